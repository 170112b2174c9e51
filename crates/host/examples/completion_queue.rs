//! Random reads through a queue of the calling thread: many requests at once, no other thread
//! involved.
//!
//! `cargo run --release -p switchyard-host --example completion_queue -- 127.0.0.1:4420 NQN 128`

use base::Prng;
use host::Host;
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or("127.0.0.1:4420".into());
    let subsystem = arguments
        .next()
        .unwrap_or("nqn.2026-11.io.switchyard:default".into());
    let depth: u16 = arguments.next().unwrap_or("128".into()).parse()?;

    let host = Host::builder().build()?;
    let namespace = host.connect(&address, &subsystem)?.namespace(1)?;
    let mut queue = namespace.queue(depth)?;
    let places = namespace.size() / 4096;
    let mut random = Prng::from_seed(1);

    let start = Instant::now();
    let mut reads = 0_u64;
    let mut finished = Vec::with_capacity(usize::from(depth));
    for tag in 0..u64::from(depth) {
        queue.read(tag, random.below(places) * 4096, 4096)?;
    }
    while start.elapsed() < Duration::from_secs(3) {
        // A completion's buffer returns to the queue when it is dropped.
        for done in queue.wait(1)? {
            done.result?;
            finished.push(done.tag);
        }
        reads += finished.len() as u64;
        for tag in finished.drain(..) {
            queue.read(tag, random.below(places) * 4096, 4096)?;
        }
    }
    let seconds = start.elapsed().as_secs();
    println!(
        "{reads} reads of 4 KiB, {} a second",
        reads / seconds.max(1)
    );
    Ok(())
}
