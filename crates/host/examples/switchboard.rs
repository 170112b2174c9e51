//! Threads of two classes on one namespace, through a switchboard: one reads 4 KiB at a time and
//! waits for each, the other keeps many large reads outstanding. They share the process's lanes,
//! and the small reads go first.
//!
//! `cargo run --release -p switchyard-host --example switchboard -- 127.0.0.1:4420`

use host::{Class, Host, Namespace, Switchboard, SwitchboardOptions, SwitchedQueueOptions};
use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Reads 4 KiB `count` times. Returns the average time of a read.
fn small_reads(disk: &Namespace, board: &Switchboard, count: u32) -> Outcome<Duration> {
    let options = SwitchedQueueOptions {
        class: Some(Class::Latency),
        ..SwitchedQueueOptions::default()
    };
    let mut queue = disk.switched_queue(board, &options)?;
    let started = Instant::now();
    for n in 0..u64::from(count) {
        queue.read(n, n * 4096 % disk.size(), 4096)?;
        for done in queue.wait(1)? {
            done.result?;
        }
    }
    Ok(started.elapsed() / count)
}

/// Keeps 16 reads of 64 KiB outstanding until `over` is set. Returns the number of reads.
fn large_reads(disk: &Namespace, board: &Switchboard, over: &AtomicBool) -> Outcome<u64> {
    let options = SwitchedQueueOptions {
        class: Some(Class::Throughput),
        depth: 16,
        ..SwitchedQueueOptions::default()
    };
    let mut queue = disk.switched_queue(board, &options)?;
    let (mut asked, mut answered) = (0, 0);
    while answered < asked || !over.load(Ordering::Relaxed) {
        while asked - answered < 16 && !over.load(Ordering::Relaxed) {
            queue.read(asked, asked * 65_536 % disk.size(), 65_536)?;
            asked += 1;
        }
        for done in queue.wait(1)? {
            done.result?;
            answered += 1;
        }
    }
    Ok(answered)
}

/// Runs both concurrently. Returns the average time of a small read, and the number of large ones.
pub fn run(address: &str, count: u32) -> Outcome<(Duration, u64)> {
    let host = Host::builder().build()?;
    let subsystem = host.connect(address, "nqn.2026-11.io.switchyard:default")?;
    let disk = subsystem.namespace(1)?;
    let board = Switchboard::start(&SwitchboardOptions::of_process()?)?;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let large = scope.spawn(|| large_reads(&disk, &board, &over));
        let average = small_reads(&disk, &board, count);
        over.store(true, Ordering::Relaxed);
        Ok((average?, large.join().expect("no thread panics")?))
    })
}

fn main() -> Outcome<()> {
    let address = std::env::args().nth(1);
    let address = address.as_deref().unwrap_or("127.0.0.1:4420");
    let (average, large) = run(address, 20_000)?;
    println!("a read of 4 KiB takes {average:?} beside {large} reads of 64 KiB");
    Ok(())
}
