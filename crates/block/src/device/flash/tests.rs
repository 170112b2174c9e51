//! The emulator in virtual time: the shapes of the paper's Fig. 1 and Fig. 3, and the device.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "statistics of measured times"
)]

use super::*;
use crate::testing::conformance::Bench;
use crate::testing::driver;
use crate::testing::{Clock, ClockedDriver};
use base::{Nanos, Prng};
use std::cell::Cell;
use std::rc::Rc;

fn parts(name: &str) -> Parts {
    name.parse::<Profile>().expect("a profile").parts()
}

/// Returns the p95 latency of 4 KiB reads in microseconds, for an open-loop load of random requests
/// at `iops` with a share of `reads` (0 to 1).
fn p95(parts: Parts, iops: f64, reads: f64) -> f64 {
    const WARM_UP: usize = 10_000;
    const REQUESTS: usize = 50_000;
    let timing = Timing::new(parts);
    let mut prng = Prng::from_seed(1);
    let mut fraction = || (prng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
    let mut now = 1e9;
    let mut latencies = Vec::with_capacity(REQUESTS);
    for number in 0..WARM_UP + REQUESTS {
        // Poisson arrivals.
        now += -(1.0 - fraction()).ln() / iops * 1e9;
        let at = Time(now as u64);
        let page = (fraction() * 1e6) as u64;
        let access = if fraction() < reads {
            Access::Read { page, pages: 1 }
        } else {
            Access::Write { pages: 1 }
        };
        let latency = timing.finish(at, access).since(at);
        if number >= WARM_UP && matches!(access, Access::Read { .. }) {
            latencies.push(latency.0);
        }
    }
    latencies.sort_unstable();
    latencies[latencies.len() * 95 / 100] as f64 / 1e3
}

/// Returns the load with this p95 (in microseconds), within 1 %.
fn iops_at(parts: Parts, latency: f64, reads: f64) -> f64 {
    let (mut low, mut high) = (1_000.0, 4e6);
    while high / low > 1.01 {
        let middle = f64::sqrt(low * high);
        if p95(parts, middle, reads) <= latency {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

/// Fits 1 / IOPS = (r + (1 − r) × w) / rate to loads of equal latency, by least squares. Returns
/// the write cost w and the rate in tokens/s.
fn fit(points: &[(f64, f64)]) -> (f64, f64) {
    let (mut rr, mut rw, mut ww, mut ry, mut wy) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for &(reads, iops) in points {
        // Weighted by the load, so that each point counts by its relative error.
        let (r, w, y) = (reads * iops, (1.0 - reads) * iops, 1.0);
        rr += r * r;
        rw += r * w;
        ww += w * w;
        ry += r * y;
        wy += w * y;
    }
    let determinant = rr * ww - rw * rw;
    let read = (ry * ww - wy * rw) / determinant;
    let write = (wy * rr - ry * rw) / determinant;
    (write / read, 1.0 / read)
}

/// `[ReFlex Fig. 3]`: one weight for writes explains loads of all read shares.
#[test]
fn the_write_cost_is_recovered() {
    for (name, cost, read_only) in [("A", 10.0, 0.5), ("B", 20.0, 1.0), ("C", 16.0, 1.0)] {
        let parts = parts(name);
        let loads = [0.99, 0.95, 0.9, 0.75, 0.5].map(|r| (r, iops_at(parts, 1_000.0, r)));
        let (write, rate) = fit(&loads);
        println!("{name}: write cost {write:.2}, {rate:.0} tokens/s at 1 ms, {loads:?}");
        assert!(
            (write / cost - 1.0).abs() < 0.1,
            "{name}: a write costs {write}"
        );
        for (reads, iops) in loads {
            let tokens = iops * (reads + (1.0 - reads) * write);
            assert!(
                (tokens / rate - 1.0).abs() < 0.1,
                "{name}: {tokens} at {reads}"
            );
        }
        let alone = rate / iops_at(parts, 1_000.0, 1.0);
        println!("{name}: a read among nothing but reads costs {alone:.3}");
        assert!((alone / read_only - 1.0).abs() < 0.1, "{name}: {alone}");
    }
}

/// Device A of the paper: 420 K tokens/s at 500 µs, 570 K at 2 ms.
#[test]
fn device_a_has_the_papers_knee() {
    let parts = parts("A");
    for (latency, rate) in [(500.0, 420e3), (2_000.0, 570e3)] {
        for reads in [0.99, 0.9, 0.5] {
            let tokens = iops_at(parts, latency, reads) * (reads + (1.0 - reads) * 10.0);
            println!("{tokens:.0} tokens/s at {latency} µs, {reads} reads");
            assert!(
                (tokens / rate - 1.0).abs() < 0.1,
                "{tokens} at {latency} µs, {reads}"
            );
        }
    }
    let alone = iops_at(parts, 500.0, 1.0);
    println!("{alone:.0} reads/s at 500 µs");
    assert!((0.9e6..1.2e6).contains(&alone), "{alone} reads a second");
}

/// `[ReFlex Fig. 1]`: latency depends on the load and on the share of reads.
#[test]
fn writes_make_reads_late() {
    let parts = parts("A");
    for iops in [50e3, 100e3, 150e3] {
        let latencies = [1.0, 0.99, 0.9, 0.75, 0.5].map(|reads| p95(parts, iops, reads));
        println!("{iops}: {latencies:.0?}");
        assert!(latencies.is_sorted(), "{latencies:?} at {iops}");
    }
    for reads in [1.0, 0.99, 0.9, 0.75, 0.5] {
        let latencies = [10e3, 50e3, 90e3].map(|iops| p95(parts, iops, reads));
        assert!(latencies.is_sorted(), "{latencies:?} at {reads}");
    }
    assert!(p95(parts, 1_000.0, 1.0) < 100.0, "an unloaded read is fast");
}

/// A scaled device has the same latencies at the scaled rate.
#[test]
fn a_scaled_device_is_as_late() {
    for reads in [1.0, 0.9] {
        let whole = iops_at(parts("A"), 500.0, reads);
        let part = iops_at(parts("A/8"), 500.0, reads);
        assert!((part * 8.0 / whole - 1.0).abs() < 0.1, "{part} of {whole}");
    }
}

#[test]
fn a_memory_device_takes_seven_microseconds() {
    let timing = Timing::new(parts("dram-ssd"));
    let second = Time(1_000_000_000);
    let read = |pages| Access::Read { page: 0, pages };
    assert_eq!(timing.finish(second, read(1)).since(second), Nanos(7_000));
    let later = second + second.since(Time::ZERO);
    let write = Access::Write { pages: 1 };
    assert_eq!(timing.finish(later, write).since(later), Nanos(7_000));
    let last = later + Nanos::from_secs(1);
    let span = timing.finish(last, read(25_600)).since(last);
    let rate = 25_600 * 4_096 * 1_000 / span.0;
    assert!((699..=700).contains(&rate), "{rate} megabytes a second");
    assert_eq!(timing.finish(last, Access::Flush), last);
}

/// Commands of any size complete, in a bounded number of steps.
#[test]
fn the_largest_requests_end_some_time() {
    let timing = Timing::new(parts("A"));
    for access in [
        Access::Read {
            page: u64::MAX,
            pages: u64::MAX,
        },
        Access::Map { pages: u64::MAX },
        Access::Read { page: 0, pages: 0 },
    ] {
        assert!(timing.finish(Time(1), access) >= Time(1));
    }
    // The dies limit a flood of writes once the buffer is full.
    let timing = Timing::new(parts("A/8"));
    let now = Time(1);
    let first = timing.finish(now, Access::Write { pages: 1 }).since(now);
    let last = (0..1_000)
        .map(|_| timing.finish(now, Access::Write { pages: 1 }))
        .max();
    let last = last.expect("a thousand").since(now);
    assert!(first < Nanos::from_micros(50), "{first}");
    assert!(last > Nanos::from_millis(100), "{last}");
}

/// Returns a bench of a device with its own clock, and the clock.
fn bench(flash: &Flash, now: Time) -> (Bench<ClockedDriver>, Rc<Cell<Time>>) {
    let clock = Rc::new(Cell::new(now));
    let driver = Clock::driver(driver(), Rc::clone(&clock));
    (Bench::open(driver, flash).expect("memory"), clock)
}

/// The completion comes at the time of the model, independent of the core's time.
#[test]
fn a_completion_comes_at_its_time() {
    let flash = Flash::new("A".parse().expect("a profile"), 1 << 20, 512).expect("small");
    let now = Time(5_000_000_000);
    let (mut bench, _) = bench(&flash, now);
    let mut channel = flash.open(bench.driver()).expect("memory");
    let request = bench.request(Operation::Read, 7, 9);
    let tag = request.tag;
    let mut cx = Context::begin(bench.driver());
    assert!(matches!(channel.submit(request, &mut cx), Submit::Queued));
    let due = channel.deadline();
    let parts = parts("A");
    let expected = parts.transfer.0 + parts.read_alone.0 + parts.command.0;
    assert_eq!(due.since(now), Nanos(expected), "two pages, side by side");
    cx.now = due - Nanos(1);
    channel.tick(&mut cx);
    assert!(channel.reap().is_none(), "too early");
    cx.now = due;
    channel.tick(&mut cx);
    assert_eq!(channel.reap().expect("it is time").tag, tag);
    assert_eq!(channel.deadline(), Time::NEVER);
}

/// It must not begin at the start of the turn, which would hide the thread's earlier work in the
/// turn, or time without a processor.
#[test]
fn a_request_begins_when_the_device_is_told() {
    let flash = Flash::new("dram-ssd".parse().expect("a profile"), 1 << 20, 512).expect("small");
    let (mut bench, clock) = bench(&flash, Time(5_000_000_000));
    let mut channel = flash.open(bench.driver()).expect("memory");
    let request = bench.request(Operation::Read, 0, 8);
    let mut cx = Context::begin(bench.driver());
    let told = cx.now + Nanos::from_micros(3);
    clock.set(told);
    assert!(matches!(channel.submit(request, &mut cx), Submit::Queued));
    assert_eq!(channel.deadline().since(told), Nanos(7_000));
    let counted = flash.device_time().expect("it knows its time");
    assert_eq!((counted.requests, counted.took), (1, Nanos(7_000)));
}

/// Requests of two cores interfere.
#[test]
fn cores_share_the_device() {
    let flash = Flash::new("A/64".parse().expect("a profile"), 1 << 20, 512).expect("small");
    let (mut bench, _) = bench(&flash, Time(5_000_000_000));
    let mut channels: Vec<_> = (0..2)
        .map(|_| flash.open(bench.driver()).expect("memory"))
        .collect();
    let mut deadlines = Vec::new();
    for channel in &mut channels {
        let request = bench.request(Operation::Read, 0, 1);
        let mut cx = Context::begin(bench.driver());
        assert!(matches!(channel.submit(request, &mut cx), Submit::Queued));
        deadlines.push(channel.deadline());
    }
    assert_eq!(deadlines[1].since(deadlines[0]), parts("A").read_alone);
}
