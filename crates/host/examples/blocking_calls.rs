//! Measures blocking calls in turn: through the host's thread, and by the I/O paths that the
//! calling threads run themselves.
//!
//!     switchyard serve --listen 127.0.0.1:4420 --cores 0 --ram 256M taskset -c 1 cargo run
//!     --release -p switchyard-host --example blocking_calls -- 127.0.0.1:4420 [THREADS] [RUNS]
//!
//! Each thread reads 4 KiB at a time for a second. Prints requests per second and microseconds per
//! call: median, minimum and maximum of the runs.
#![allow(clippy::print_stdout, clippy::unwrap_used)] // A measurement for a terminal.

use host::{Host, Namespace};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use switch::Path;

const BLOCK: usize = 4096;

fn calls_per_second(namespace: &Namespace, threads: u64) -> f64 {
    let (over, count) = (AtomicBool::new(false), AtomicU64::new(0));
    let blocks = namespace.size() / BLOCK as u64;
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (over, count) = (&over, &count);
            scope.spawn(move || {
                let mut data = [0; BLOCK];
                let mut block = thread;
                while !over.load(Ordering::Relaxed) {
                    // Steps of a large prime serve as random blocks.
                    block = (block + 7_368_787) % blocks;
                    namespace.read(block * BLOCK as u64, &mut data).unwrap();
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        std::thread::sleep(Duration::from_millis(200));
        count.store(0, Ordering::Relaxed);
        let started = Instant::now();
        std::thread::sleep(Duration::from_secs(1));
        let rate = count.load(Ordering::Relaxed) as f64 / started.elapsed().as_secs_f64();
        over.store(true, Ordering::Relaxed);
        rate
    })
}

fn main() {
    let mut args = std::env::args().skip(1);
    let address = args.next().expect("HOST:PORT [THREADS] [RUNS]");
    let threads: u64 = args.next().map_or(1, |text| text.parse().unwrap());
    let runs: usize = args.next().map_or(5, |text| text.parse().unwrap());
    let ways = [
        None,
        Some(Path::Sync),
        Some(Path::Stm),
        Some(Path::TwoQueue),
    ];
    let mut rates = vec![Vec::new(); ways.len()];
    for _ in 0..runs {
        for (way, rates) in ways.iter().zip(&mut rates) {
            let builder = Host::builder();
            let builder = way
                .iter()
                .fold(builder, |builder, &path| builder.path(path));
            let host = builder.build().unwrap();
            let subsystem = host
                .connect(&address, "nqn.2026-11.io.switchyard:default")
                .unwrap();
            let namespace = subsystem.namespace(1).unwrap();
            rates.push(calls_per_second(&namespace, threads));
        }
    }
    for (way, rates) in ways.iter().zip(&mut rates) {
        rates.sort_by(f64::total_cmp);
        let name = way.map_or("host's thread", Path::name);
        let micros = |rate: f64| threads as f64 * 1e6 / rate;
        let (low, middle, high) = (rates[0], rates[rates.len() / 2], rates[rates.len() - 1]);
        println!(
            "{name:14} {:.1} K/s [{:.1}..{:.1}], {:.1} µs a call",
            middle / 1e3,
            low / 1e3,
            high / 1e3,
            micros(middle)
        );
    }
}
