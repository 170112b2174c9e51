//! Measures the cost of idle connected targets for the dataplane thread of a switchboard: processor
//! time and latency of 4 KiB reads from one target, without and with many idle targets.
//!
//! `cargo run --release -p switchyard-host --example many_targets -- 127.0.0.1:4420 64`

use host::{Class, Host, Namespace, Switchboard, SwitchboardOptions, SwitchedQueueOptions};
use rustix::time::{ClockId, clock_gettime};
use std::error::Error;
use std::time::{Duration, Instant};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const NQN: &str = "nqn.2026-11.io.switchyard:default";

/// Processor time of this process.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.try_into().expect("it is positive")
}

/// Keeps `depth` reads outstanding until `count` are done. Returns the wall-clock time and the
/// processor time per read.
fn reads(disk: &Namespace, board: &Switchboard, depth: u64, count: u64) -> Outcome<[Duration; 2]> {
    let options = SwitchedQueueOptions {
        // Latency work would get a direct lane, which has no other targets.
        class: Some(Class::Throughput),
        depth: 128,
        ..SwitchedQueueOptions::default()
    };
    let mut queue = disk.switched_queue(board, &options)?;
    let (started, began) = (Instant::now(), processor_time());
    let (mut asked, mut answered) = (0, 0);
    while answered < count {
        while asked < count && asked - answered < depth {
            queue.read(asked, asked * 4096 % disk.size(), 4096)?;
            asked += 1;
        }
        for done in queue.wait(1)? {
            done.result?;
            answered += 1;
        }
    }
    let each = u32::try_from(count)?;
    Ok([started.elapsed() / each, (processor_time() - began) / each])
}

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or("127.0.0.1:4420".into());
    let targets: usize = arguments.next().map_or(Ok(64), |text| text.parse())?;
    let host = Host::builder().build()?;
    // One switchboard for each number of targets; they run in turns.
    let setups = [1, targets].map(|targets| -> Outcome<_> {
        let board = Switchboard::start(&SwitchboardOptions::of_process()?)?;
        let mut disks = Vec::new();
        let mut queues = Vec::new();
        for _ in 0..targets {
            let disk = host.connect(&address, NQN)?.namespace(1)?;
            queues.push(disk.switched_queue(&board, &SwitchedQueueOptions::default())?);
            disks.push(disk);
        }
        Ok((board, disks, queues))
    });
    let [alone, beside] = setups;
    let setups = [alone?, beside?];
    for (depth, count) in [(1, 50_000), (128, 500_000)] {
        for _ in 0..5 {
            for (board, disks, _) in &setups {
                let [time, processor] = reads(&disks[0], board, depth, count)?;
                println!(
                    "depth {depth}, {} targets: {time:?} a read, {processor:?} of processor time",
                    disks.len()
                );
            }
        }
    }
    Ok(())
}
