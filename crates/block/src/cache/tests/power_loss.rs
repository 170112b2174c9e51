//! Power loss: a device with its own volatile cache loses unflushed writes, and keeps all those
//! acknowledged by Flush or as durable.

use super::*;
use crate::device::check;
use crate::{Request, Submit};
use reactor::Context;
use std::collections::BTreeMap;

const BLOCK: usize = 512;
const BLOCKS: usize = 400;

/// A device that keeps writes in a volatile cache until they are flushed.
#[derive(Debug)]
struct Volatile {
    content: Arc<Mutex<Content>>,
}

#[derive(Debug, Default)]
struct Content {
    stable: BTreeMap<u64, Vec<u8>>,
    volatile: BTreeMap<u64, Vec<u8>>,
}

impl Content {
    fn block(&self, lba: u64) -> Vec<u8> {
        let block = self.volatile.get(&lba).or_else(|| self.stable.get(&lba));
        block.cloned().unwrap_or_else(|| vec![0; BLOCK])
    }

    fn set(&mut self, lba: u64, block: Vec<u8>, durable: bool) {
        if durable {
            self.volatile.remove(&lba);
            self.stable.insert(lba, block);
        } else {
            self.volatile.insert(lba, block);
        }
    }

    /// Loses power: a random part of the unflushed writes reached the medium.
    fn lose(&mut self, random: &mut Prng) {
        for (lba, block) in std::mem::take(&mut self.volatile) {
            if random.chance(1, 3) {
                self.stable.insert(lba, block);
            }
        }
    }
}

impl Device for Volatile {
    fn geometry(&self) -> Geometry {
        Geometry {
            block_bytes: 512,
            blocks: BLOCKS as u64,
        }
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            volatile_cache: true,
            read_only: false,
            thin: false,
            max_transfer_bytes: 1 << 20,
            preferred_bytes: 0,
            extents_max: 0,
        }
    }

    fn open(&self, _driver: &mut dyn Driver) -> Result<Box<dyn Channel>, DeviceError> {
        let content = Arc::clone(&self.content);
        Ok(Box::new(VolatileChannel {
            content,
            geometry: self.geometry(),
            capabilities: self.capabilities(),
        }))
    }
}

#[derive(Debug)]
struct VolatileChannel {
    content: Arc<Mutex<Content>>,
    geometry: Geometry,
    capabilities: Capabilities,
}

impl VolatileChannel {
    fn execute(&self, request: &mut Request) -> Result<(), BlockError> {
        check(request, self.geometry, self.capabilities)?;
        let mut content = self.content.lock().expect("no thread panicked");
        if request.operation == Operation::Flush {
            let flushed = std::mem::take(&mut content.volatile);
            content.stable.extend(flushed);
            return Ok(());
        }
        for index in 0..request.blocks as usize {
            let lba = request.lba.0 + index as u64;
            let data = request.data.as_mut();
            let mut block = vec![0; BLOCK];
            match request.operation {
                Operation::Read => {
                    let data = data.ok_or(BlockError::Malformed)?;
                    data.copy_in(index * BLOCK, &content.block(lba));
                }
                Operation::Write { durable } => {
                    let data = data.ok_or(BlockError::Malformed)?;
                    data.copy_out(index * BLOCK, &mut block);
                    content.set(lba, block, durable);
                }
                Operation::WriteZeroes { durable, .. } => content.set(lba, block, durable),
                Operation::Deallocate => content.set(lba, block, false),
                Operation::Compare | Operation::Verify | Operation::Flush => {}
            }
        }
        Ok(())
    }
}

impl Channel for VolatileChannel {
    fn submit(&mut self, mut request: Request, _cx: &mut Context<'_>) -> Submit {
        let result = self.execute(&mut request);
        Submit::Done(request.ended(result))
    }
}

/// Values that each block may have after a power loss, ending with the last one written.
struct Model(Vec<Vec<u8>>);

impl Model {
    fn write(&mut self, lba: u64, blocks: u32, value: u8, durable: bool) {
        let first = usize::try_from(lba).expect("a few");
        for possible in &mut self.0[first..first + blocks as usize] {
            if durable {
                possible.clear();
            }
            possible.push(value);
        }
    }

    fn flush(&mut self) {
        for possible in &mut self.0 {
            let last = possible.pop().expect("there is a value");
            *possible = vec![last];
        }
    }
}

/// Executes one request of the load.
fn step(bench: &mut Bench<UringDriver>, model: &mut Model, random: &mut Prng, value: u8) {
    let blocks = 1 + u32::try_from(random.below(20)).expect("a few");
    let lba = random.below(BLOCKS as u64 - u64::from(blocks));
    let durable = random.chance(1, 8);
    match random.below(20) {
        0..12 => {
            let data = vec![value; blocks as usize * BLOCK];
            let write = Operation::Write { durable };
            assert_eq!(bench.send(write, lba, &data), Ok(()));
            model.write(lba, blocks, value, durable);
        }
        12..14 => {
            let zeroes = Operation::WriteZeroes {
                deallocate: false,
                durable,
            };
            assert_eq!(bench.operate(zeroes, lba, blocks), Ok(()));
            model.write(lba, blocks, 0, durable);
        }
        14 => {
            assert_eq!(bench.operate(Operation::Deallocate, lba, blocks), Ok(()));
            model.write(lba, blocks, 0, false);
        }
        15 => {
            assert_eq!(bench.operate(Operation::Flush, 0, 0), Ok(()));
            model.flush();
        }
        _ => {
            let found = bench.read(lba, blocks).expect("a read");
            for (index, block) in found.chunks(BLOCK).enumerate() {
                let at = usize::try_from(lba).expect("a few") + index;
                let known = model.0[at].last().expect("there is a value");
                assert!(block.iter().all(|byte| byte == known), "block {at}");
            }
        }
    }
}

/// Runs a load until power is lost, and checks the remaining content.
fn lose_power(seed: u64) {
    let mut random = Prng::from_seed(seed);
    let content = Arc::new(Mutex::new(Content::default()));
    let device: Arc<dyn Device> = Arc::new(Volatile {
        content: Arc::clone(&content),
    });
    let is_slow = random.chance(1, 4);
    let below = if is_slow { slow(device) } else { device };
    let dirty_max = u32::try_from(random.below(30)).expect("a few");
    let background = u32::try_from(random.below(u64::from(dirty_max) + 1)).expect("a few");
    let pages = dirty_max.max(1) + u32::try_from(random.below(60)).expect("a few");
    let cache = cache(below, options(pages, background, dirty_max));
    let mut model = Model(vec![vec![0]; BLOCKS]);
    // Over a slow device a channel may wait for another one, which would have to run.
    let mut benches: Vec<_> = (0..if is_slow { 1 } else { 2 })
        .map(|_| open(&cache))
        .collect();
    for request in 0..random.below(300) {
        let count = benches.len() as u64;
        let bench = usize::try_from(random.below(count)).expect("a few");
        let value = u8::try_from(1 + request % 255).expect("below 256");
        step(&mut benches[bench], &mut model, &mut random, value);
        if random.chance(1, 4) {
            benches[bench].turn(Nanos::ZERO);
        }
    }
    drop(benches);
    drop(cache);
    let mut content = content.lock().expect("no thread panicked");
    content.lose(&mut random);
    for (lba, possible) in (0..).zip(&model.0) {
        let block = content.block(lba);
        assert!(block.iter().all(|byte| *byte == block[0]), "torn block");
        assert!(
            possible.contains(&block[0]),
            "seed {seed}: block {lba} is {} and not of {possible:?}",
            block[0]
        );
    }
}

#[test]
fn what_a_flush_or_a_durable_write_acknowledged_survives_a_power_loss() {
    for seed in 0..300 {
        lose_power(seed);
    }
}

#[test]
fn the_test_device_itself_passes() {
    let content = Arc::new(Mutex::new(Content::default()));
    let mut bench = open(&Volatile {
        content: Arc::clone(&content),
    });
    bench.write(1, &[1; BLOCK]).expect("a write");
    assert_eq!(bench.operate(Operation::Flush, 0, 0), Ok(()));
    bench.write(1, &[2; BLOCK]).expect("a write");
    let mut content = content.lock().expect("no thread panicked");
    content.volatile.clear();
    assert_eq!(content.block(1), [1; BLOCK]);
}
