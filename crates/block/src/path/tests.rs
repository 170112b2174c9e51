//! Every path over real drivers and many threads.

mod abandoned;
mod leaving;
mod room;

use super::*;
use crate::device::flash::Flash;
use crate::device::{FileDevice, FileOptions, Ram};
use crate::layer::{Delay, DelayOptions, Fault, FaultEffect, FaultOptions, FaultRule};
use crate::testing::conformance::{self, Bench, Suite};
use crate::testing::driver;
use crate::testing::{Clock, ClockedDriver, TestDevice};
use crate::{BlockError, Extents, Operation, Request, Submit, SubmitExtents};
use base::units::{Lba, MIB};
use base::{Nanos, Prng, Time};
use reactor::{Context, IoSlice};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};

const BLOCK: u32 = 4096;

/// The load of several threads: their number, and the requests of each.
const THREADS: u64 = 8;
const REQUESTS: u32 = 200;

fn ram(blocks: u64) -> Arc<dyn Device> {
    Arc::new(Ram::new(blocks * u64::from(BLOCK), BLOCK).expect("memory"))
}

fn dram_ssd(blocks: u64) -> Arc<dyn Device> {
    let profile = "dram-ssd".parse().expect("a profile");
    Arc::new(Flash::new(profile, blocks * u64::from(BLOCK), BLOCK).expect("memory"))
}

fn start(below: Arc<dyn Device>, path: Path) -> PathDevice {
    let rules = PathRules::default();
    let device = PathDevice::start(below, path, rules).expect("the path starts");
    device.with_requests(64, 2 << 20)
}

fn suite() -> Suite {
    Suite {
        requests: 600,
        ..Suite::default()
    }
}

#[test]
fn memory_passes_by_every_path() {
    for path in Path::ALL {
        conformance::run(driver, &start(ram(4096), path), suite());
    }
}

#[test]
fn emulated_flash_passes_by_every_path() {
    for path in Path::ALL {
        conformance::run(driver, &start(dram_ssd(4096), path), suite());
    }
}

#[test]
fn a_file_passes_by_every_path() {
    for path in Path::ALL {
        let options = FileOptions {
            path: crate::temporary("device"),
            block_bytes: BLOCK,
            size: Some(16 * MIB as u64),
            create: true,
            read_only: false,
            direct: true,
        };
        let device = FileDevice::open(options).expect("a file");
        conformance::run(driver, &start(Arc::new(device), path), suite());
    }
}

#[test]
fn a_device_that_takes_no_extents_passes_by_every_path() {
    for path in Path::ALL {
        let options = DelayOptions {
            read: Nanos::from_micros(20),
            write: Nanos::from_micros(50),
            ..DelayOptions::default()
        };
        let slow = Arc::new(Delay::new(ram(4096), options));
        conformance::run(driver, &start(slow, path), suite());
    }
}

/// Writes that nothing waits for are sent too, and complete within the plug's delay.
#[test]
fn unawaited_requests_pass_by_every_path() {
    for path in Path::ALL {
        let device = start(dram_ssd(4096), path).unawaited();
        conformance::run(driver, &device, suite());
    }
}

/// One thread's load: reads and writes of its own blocks, which are interleaved with those of the
/// other threads, and checks of their content. Returns the number of failed requests, each of which
/// had no effect.
fn one_of_many(device: &PathDevice, thread: u64, threads: u64, requests: u32) -> u32 {
    let mut failed = 0;
    let mut bench = Bench::open(driver(), device).expect("it opens");
    let mut random = Prng::from_seed(thread);
    let own = bench.geometry().blocks / threads;
    let mut content = vec![0_u8; usize::try_from(own).expect("a few")];
    for _ in 0..requests {
        let index = random.below(own);
        let lba = index * threads + thread;
        let known = &mut content[usize::try_from(index).expect("a few")];
        if random.chance(1, 2) {
            let content = known.wrapping_add(1);
            match bench.write(lba, &[content; BLOCK as usize]) {
                Ok(()) => *known = content,
                Err(_) => failed += 1,
            }
        } else {
            match bench.read(lba, 1) {
                Ok(found) => assert!(found.iter().all(|byte| byte == known), "block {lba}"),
                Err(_) => failed += 1,
            }
        }
    }
    bench.close();
    failed
}

/// Returns the number of failed requests of all threads.
fn many_threads(device: &PathDevice) -> u32 {
    std::thread::scope(|scope| {
        let one = |thread| scope.spawn(move || one_of_many(device, thread, THREADS, REQUESTS));
        let threads: Vec<_> = (0..THREADS).map(one).collect();
        let failed = threads.into_iter().map(|thread| thread.join());
        failed
            .map(|failed| failed.expect("it does not panic"))
            .sum()
    })
}

#[test]
fn many_threads_find_what_they_wrote() {
    for path in Path::ALL {
        let device = start(dram_ssd(1024), path);
        assert_eq!(many_threads(&device), 0, "{path}");
        let snapshot = device.snapshot();
        let requests: u64 = snapshot.merged.iter().map(|(n, c)| u64::from(*n) * c).sum();
        assert_eq!(
            requests,
            THREADS * u64::from(REQUESTS),
            "{path}: each was sent once: {snapshot:?}"
        );
        let merges = !matches!(path, Path::Sync | Path::Interrupt | Path::Poll);
        if merges {
            assert!(snapshot.elections_won > 0, "{path}: {snapshot:?}");
        }
    }
}

/// Requests of a batch fail individually, and late ones do not delay other requests forever.
#[test]
fn many_threads_find_what_they_wrote_below_faults_and_delays() {
    let rule = |one_in, effect| FaultRule {
        one_in,
        ..FaultRule::new(effect)
    };
    for path in Path::ALL {
        let rules = vec![
            rule(20, FaultEffect::Error(BlockError::ReadFailure)),
            rule(50, FaultEffect::Delay(Nanos::from_millis(3))),
        ];
        let fault = Fault::new(ram(1024), &FaultOptions { seed: 1, rules }).expect("good rules");
        let options = DelayOptions {
            read: Nanos::from_micros(20),
            write: Nanos::from_micros(50),
            ..DelayOptions::default()
        };
        let device = start(Arc::new(Delay::new(Arc::new(fault), options)), path);
        assert!(many_threads(&device) > 0, "{path}: none failed");
    }
}

/// The dispatcher must not write to the device's previous memory.
#[test]
fn what_is_written_after_a_resize_is_there_by_every_path() {
    const WRITES: u64 = 32;
    for path in Path::ALL {
        let ram = ram(64);
        let device = start(Arc::clone(&ram), path);
        let write = |first| {
            let mut bench = Bench::open(driver(), &device).expect("it opens");
            let mut queued = 0;
            for lba in first..first + WRITES {
                let mut request = bench.request(Operation::Write { durable: false }, lba, 1);
                let data = request.data.as_mut().expect("a write has data");
                data.copy_in(0, &[7; BLOCK as usize]);
                match bench.submit(request) {
                    Submit::Done(done) => assert_eq!(done.result, Ok(())),
                    submit => queued += u32::from(matches!(submit, Submit::Queued)),
                }
            }
            for _ in 0..queued {
                assert_eq!(bench.wait().result, Ok(()), "{path}");
            }
            bench.close();
        };
        write(0);
        device.resize(128).expect("larger");
        write(WRITES);
        let mut bench = Bench::open(driver(), &*ram).expect("it opens");
        for first in [0, WRITES] {
            let found = bench.read(first, 32).expect("a read");
            assert!(found.iter().all(|&byte| byte == 7), "{path}");
        }
        bench.close();
    }
}

/// Requests of one thread that overlap keep their order, at any depth.
#[test]
fn overlapping_requests_of_a_thread_keep_their_order() {
    for path in Path::ALL {
        let device = start(dram_ssd(64), path);
        let mut bench = Bench::open(driver(), &device).expect("it opens");
        for round in 0..50_u8 {
            let mut tags = Vec::new();
            for step in 0..8 {
                let mut request = bench.request(Operation::Write { durable: false }, 5, 1);
                let data = request.data.as_mut().expect("a write has data");
                data.copy_in(0, &[round.wrapping_mul(8) + step; BLOCK as usize]);
                tags.push(request.tag);
                assert!(!matches!(bench.submit(request), Submit::Busy(_)));
            }
            let request = bench.request(Operation::Read, 5, 1);
            let last = request.tag;
            let mut read = match bench.submit(request) {
                Submit::Done(completion) => Some(completion),
                _ => None,
            };
            while read.is_none() {
                let completion = bench.wait();
                assert_eq!(completion.result, Ok(()));
                read = (completion.tag == last).then_some(completion);
            }
            let mut found = [0];
            read.and_then(|read| read.data)
                .expect("a read has data")
                .copy_out(0, &mut found);
            assert_eq!(found[0], round.wrapping_mul(8) + 7, "{path}");
        }
        while bench.finished().is_some() {}
        bench.close();
    }
}

/// A channel that fails a whole command for one of its extents.
#[derive(Debug)]
struct AllOrNothingChannel(Box<dyn Channel>);

const DENIED: Lba = Lba(13);

impl Channel for AllOrNothingChannel {
    fn submit(&mut self, request: Request, cx: &mut Context<'_>) -> Submit {
        if request.lba == DENIED {
            return Submit::Done(request.ended(Err(BlockError::Denied)));
        }
        self.0.submit(request, cx)
    }

    fn submit_extents(&mut self, command: Extents, cx: &mut Context<'_>) -> SubmitExtents {
        if command.extents.iter().any(|extent| extent.lba == DENIED) {
            return SubmitExtents::Done(command.ended(Err(BlockError::Denied)));
        }
        self.0.submit_extents(command, cx)
    }
}

/// A failing request in a merged command fails alone.
#[test]
fn a_request_does_not_fail_for_another_one_of_its_command() {
    let below = TestDevice::new(ram(64), |ram| Box::new(AllOrNothingChannel(ram)));
    let device = start(Arc::new(below), Path::Stm);
    let mut bench = Bench::open(driver(), &device).expect("it opens");
    let mut denied = 0;
    for lba in 10..20 {
        let request = bench.request(Operation::Write { durable: false }, lba, 1);
        denied = if Lba(lba) == DENIED {
            request.tag
        } else {
            denied
        };
        assert!(matches!(bench.submit(request), Submit::Queued));
    }
    for _ in 10..20 {
        let completion = bench.wait();
        let fails = completion.tag == denied;
        assert_eq!(
            completion.result,
            if fails {
                Err(BlockError::Denied)
            } else {
                Ok(())
            }
        );
    }
    assert_eq!(device.snapshot().merged.last().map(|(n, _)| *n), Some(10));
    bench.close();
}

/// A driver with its own clock.
fn clocked() -> ClockedDriver {
    Clock::driver(driver(), Rc::new(Cell::new(Time::ZERO)))
}

/// Submits a write of one block by hand.
fn submit(channel: &mut dyn Channel, driver: &mut ClockedDriver, now: Time, lba: u64) {
    let buffer = driver.buffers().take(BLOCK as usize).expect("a buffer");
    let request = Request {
        tag: lba,
        operation: Operation::Write { durable: false },
        lba: Lba(lba),
        blocks: 1,
        data: Some(IoSlice::from_buffer(buffer, BLOCK as usize)),
    };
    driver.replaced.set(now);
    let submit = channel.submit(request, &mut Context::begin(driver));
    assert!(matches!(submit, Submit::Queued));
}

fn turn(channel: &mut dyn Channel, driver: &mut ClockedDriver, now: Time) {
    driver.replaced.set(now);
    channel.tick(&mut Context::begin(driver));
}

/// An elected thread that does not run delays other threads by the hand-over time, no longer.
#[test]
fn a_runner_that_does_not_run_is_deposed() {
    let device = start(dram_ssd(64), Path::Stm);
    let (mut first, mut second) = (clocked(), clocked());
    let mut preempted = device.open(&mut first).expect("it opens");
    let mut waiting = device.open(&mut second).expect("it opens");
    let at = |micros| Time::ZERO + Nanos::from_micros(micros);
    submit(&mut *preempted, &mut first, at(1_000), 1);
    // It is elected, and its thread does not run any more.
    submit(&mut *waiting, &mut second, at(1_001), 2);
    turn(&mut *waiting, &mut second, at(1_002));
    assert!(waiting.reap().is_none());
    let look = waiting.deadline();
    assert!(look <= at(2_100), "{look:?}: it will look in time");
    turn(&mut *waiting, &mut second, at(2_100));
    turn(&mut *waiting, &mut second, at(2_200));
    let completion = waiting.reap().expect("it took the queue over");
    assert_eq!(completion.result, Ok(()));
    assert_eq!(device.snapshot().taken_over, 1);
    // The requests that the preempted thread had queued were executed by the other one.
    turn(&mut *preempted, &mut first, at(2_300));
    assert_eq!(preempted.reap().expect("it is over").result, Ok(()));
}

/// A thread that waits long for a slow device checks for a stuck runner more and more rarely.
#[test]
fn a_submitter_looks_for_a_stuck_runner_ever_more_rarely() {
    let options = DelayOptions {
        write: Nanos::from_millis(50),
        ..DelayOptions::default()
    };
    let device = start(Arc::new(Delay::new(ram(64), options)), Path::Stm);
    let (mut first, mut second) = (clocked(), clocked());
    let mut running = device.open(&mut first).expect("it opens");
    let mut waiting = device.open(&mut second).expect("it opens");
    let mut now = Time::ZERO + Nanos::from_millis(1);
    submit(&mut *running, &mut first, now, 1);
    turn(&mut *running, &mut first, now);
    // It has polled for long enough, and sleeps until its device answers.
    now = now + Nanos::from_millis(5);
    turn(&mut *running, &mut first, now);
    assert!(running.deadline() > now);
    submit(&mut *waiting, &mut second, now, 2);
    turn(&mut *waiting, &mut second, now);
    for after in [1, 2, 4, 8, 16, 16] {
        now = now + Nanos::from_millis(after);
        assert_eq!(waiting.deadline(), now);
        turn(&mut *waiting, &mut second, now);
    }
    // A completed request brings the next check forward: another runner may be stuck by now.
    turn(&mut *running, &mut first, now);
    for after in [16, 16, 16] {
        now = now + Nanos::from_millis(after);
        turn(&mut *waiting, &mut second, now);
    }
    submit(&mut *waiting, &mut second, now, 3);
    now = now + Nanos::from_millis(3);
    turn(&mut *running, &mut first, now);
    turn(&mut *waiting, &mut second, now);
    assert_eq!(waiting.reap().map(|done| done.tag), Some(2));
    assert_eq!(waiting.deadline(), now + Nanos::from_millis(1));
    assert_eq!(device.snapshot().taken_over, 0);
}

/// A thread that ends with outstanding work leaves no thread waiting.
#[test]
fn a_submitter_that_dies_leaves_nobody_waiting() {
    let device = start(dram_ssd(64), Path::Stm);
    let (mut first, mut second) = (clocked(), clocked());
    let mut dying = device.open(&mut first).expect("it opens");
    let mut waiting = device.open(&mut second).expect("it opens");
    let at = |micros| Time::ZERO + Nanos::from_micros(micros);
    submit(&mut *dying, &mut first, at(10), 1);
    submit(&mut *waiting, &mut second, at(11), 2);
    // The batch of both is in flight.
    turn(&mut *dying, &mut first, at(12));
    submit(&mut *waiting, &mut second, at(13), 3);
    drop(dying);
    turn(&mut *waiting, &mut second, at(14));
    turn(&mut *waiting, &mut second, at(100));
    let mut results = Vec::new();
    while let Some(completion) = waiting.reap() {
        results.push((completion.tag, completion.result));
    }
    results.sort_unstable_by_key(|(tag, _)| *tag);
    assert_eq!(results, [(2, Err(BlockError::Aborted)), (3, Ok(()))]);
}

/// Many threads, some of which panic during their load.
#[test]
fn threads_that_panic_leave_the_others_at_work() {
    for path in Path::ALL {
        let device = start(dram_ssd(1024), path);
        let barrier = Barrier::new(6);
        let ended = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..6 {
                let (device, barrier, ended) = (&device, &barrier, &ended);
                scope.spawn(move || {
                    barrier.wait();
                    let load = std::panic::AssertUnwindSafe(|| {
                        let mut bench = Bench::open(driver(), device).expect("it opens");
                        for round in 0..200_u64 {
                            let lba = thread * 128 + round % 100;
                            // Requests of the remaining threads may be in flight through a thread
                            // that panics.
                            let _ = bench.write(lba, &[1; BLOCK as usize]);
                            assert!(thread < 4 || round < 20, "this thread dies");
                        }
                        bench.close();
                    });
                    if std::panic::catch_unwind(load).is_ok() {
                        ended.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(ended.load(Ordering::Relaxed), 4, "{path}");
    }
}

/// A dispatcher sends a limited number of batches per turn. It continues with the remaining
/// requests although the device owes it no completion.
#[test]
fn a_dispatcher_does_not_sleep_before_its_queue_is_empty() {
    const READS: u64 = 20;
    let rules = PathRules {
        table_entries: 1,
        ..PathRules::default()
    };
    let device = PathDevice::unattended(ram(64), Path::Interrupt, rules);
    let device = device.expect("good rules").with_requests(64, 2 << 20);
    let (mut first, mut second) = (clocked(), clocked());
    let mut dispatcher = device.dispatcher(&mut second).expect("it opens");
    let mut channel = device.open(&mut first).expect("it opens");
    let later = Time::ZERO + Nanos::from_secs(1);
    for lba in 0..READS {
        let buffer = first.buffers().take(BLOCK as usize).expect("a buffer");
        let request = Request {
            tag: lba,
            operation: Operation::Read,
            lba: Lba(lba),
            blocks: 1,
            data: Some(IoSlice::from_buffer(buffer, BLOCK as usize)),
        };
        let mut cx = Context {
            now: Time::ZERO,
            driver: &mut first,
        };
        assert!(matches!(channel.submit(request, &mut cx), Submit::Queued));
    }
    let mut done = 0;
    while done < READS {
        let mut cx = Context {
            now: later,
            driver: &mut second,
        };
        reactor::Service::maintain(&mut dispatcher, &mut cx);
        let before = done;
        turn(&mut *channel, &mut first, Time::ZERO);
        while channel.reap().is_some() {
            done += 1;
        }
        let comes_back = reactor::Service::deadline(&dispatcher) == Time::ZERO;
        assert!(done == READS || comes_back, "{done} of {READS} are done");
        assert!(done > before, "a turn sends some");
    }
}

/// A device that counts losses of its cache, and answers Flushes at once or later.
#[derive(Debug)]
struct Losing {
    ram: Ram,
    losses: Arc<AtomicU64>,
}

#[derive(Debug)]
struct LosingChannel {
    losses: Arc<AtomicU64>,
    /// Flushes that are answered when they are reaped: those after an odd number of losses.
    flushes: Vec<Request>,
}

impl Device for Losing {
    fn geometry(&self) -> Geometry {
        self.ram.geometry()
    }

    fn capabilities(&self) -> Capabilities {
        self.ram.capabilities()
    }

    fn open(&self, _: &mut dyn Driver) -> Result<Box<dyn Channel>, DeviceError> {
        Ok(Box::new(LosingChannel {
            losses: Arc::clone(&self.losses),
            flushes: Vec::new(),
        }))
    }
}

impl Channel for LosingChannel {
    fn submit(&mut self, request: Request, _: &mut Context<'_>) -> Submit {
        if self.losses.load(Ordering::Relaxed).is_multiple_of(2) {
            return Submit::Done(request.ended(Err(BlockError::CacheLost)));
        }
        self.flushes.push(request);
        Submit::Queued
    }

    fn reap(&mut self) -> Option<crate::Completion> {
        let flush = self.flushes.pop()?;
        Some(flush.ended(Err(BlockError::CacheLost)))
    }

    fn losses(&self) -> Option<u32> {
        u32::try_from(self.losses.load(Ordering::Relaxed)).ok()
    }
}

/// The entry of a Flush that completed at once must not stay and supply an outdated number.
#[test]
fn losses_are_those_of_the_last_flush_whether_it_was_done_at_once_or_not() {
    let losses = Arc::new(AtomicU64::new(0));
    let ram = Ram::new(64 * u64::from(BLOCK), BLOCK).expect("memory");
    let below = Losing {
        ram,
        losses: Arc::clone(&losses),
    };
    let device = start(Arc::new(below), Path::Sync);
    let mut own = driver();
    let mut channel = device.open(&mut own).expect("it opens");
    for count in [2, 3, 4, 5] {
        losses.store(count, Ordering::Relaxed);
        let mut cx = Context {
            now: Time::ZERO,
            driver: &mut own,
        };
        let flush = Request {
            tag: count,
            operation: Operation::Flush,
            lba: Lba(0),
            blocks: 0,
            data: None,
        };
        let done = match channel.submit(flush, &mut cx) {
            Submit::Done(done) => Some(done),
            _ => {
                channel.tick(&mut cx);
                channel.reap()
            }
        };
        assert_eq!(done.map(|done| done.tag), Some(count));
        assert_eq!(channel.losses().map(u64::from), Some(count));
    }
}
