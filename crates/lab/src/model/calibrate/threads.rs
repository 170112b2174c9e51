//! Costs of threads: context switches, wake-ups and interrupts.

use super::bulk::Bulk;
use super::typical::{median, nanos_since, quantile, typical_of_each};
use anyhow::{Context as _, Result};
use base::units::CoreId;
use reactor::placement::pin_to;
use rustix::io::{read, write};
use rustix::pipe::pipe;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use sim::model::costs::{CoreCosts, Noise};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Rounds of every measurement that takes microseconds.
const ROUNDS: usize = 2_000;
/// Wake-ups of another core, each after a pause.
const WAKE_UPS: usize = 300;
/// Idle time of a core before it is woken.
const PAUSE: Duration = Duration::from_micros(700);
/// Time that a thread has run when it wakes another thread on the same core.
const RAN: Duration = Duration::from_micros(10);
/// Time for which a core is observed.
const WATCH: Duration = Duration::from_millis(300);
/// Shortest gap that counts in a thread that never pauses: shorter ones come from its loop or the
/// clock.
const GAP_NS: u64 = 2_000;
/// Shortest gap that counts as the other thread's time slice if two threads share a core.
const SLICE_NS_MIN: u64 = 300_000;
/// Longest gap of each kind of noise. Longer interruptions are too rare for a measurement of
/// seconds.
const NOISE_NS: [u64; 6] = [10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000];
/// Period of the timer that interrupts the observed thread.
const TIMER_NS: i64 = 50_000;
/// Time that a thread runs with and without the timer, and number of alternations: so short that
/// the processor's speed is mostly the same in both.
const TIMER_WATCH: Duration = Duration::from_millis(5);
const TIMER_PAIRS: usize = 31;

/// Measurements of all passes.
#[derive(Debug, Default)]
pub(super) struct Samples {
    /// Per pass: a pipe's calls; a round trip on one core; a call that wakes a sleeping core, and
    /// the wake-up latency (median and 99th percentile); the same call and median on a busy core; a
    /// time slice; the time for which a thread continues after it woke another thread on its core;
    /// and the round trip after bulk copying.
    numbers: Vec<[u64; 10]>,
    /// Shares of a thread's time taken by a timer; negative if other disturbances took more.
    timers: Vec<f64>,
    /// The gaps of all passes, and the observed time.
    gaps: Vec<u64>,
    watched_ns: u64,
}

impl Samples {
    /// Runs one pass of all measurements.
    pub(super) fn measure(&mut self, cores: [CoreId; 2]) -> Result<()> {
        let [first, second] = cores;
        let [idle_call, idle_p50, idle_p99] = wake_ups(first, second, false)?;
        let [busy_call, busy_p50, _] = wake_ups(first, second, true)?;
        self.numbers.push([
            pipe_call(first)?,
            same_core_round_trip(first, false)?,
            idle_call,
            idle_p50,
            idle_p99,
            busy_call,
            busy_p50,
            slice(second)?,
            runs_on(second)?,
            same_core_round_trip(first, true)?,
        ]);
        self.timers.extend(timer(second)?);
        for core in cores {
            self.gaps.extend(joined(on(core, || Ok(gaps(WATCH))))?);
            self.watched_ns += u64::try_from(WATCH.as_nanos()).expect("less than a second");
        }
        Ok(())
    }

    /// Returns the costs from all passes.
    pub(super) fn costs(&self) -> CoreCosts {
        let [
            call,
            round_trip,
            idle_call,
            idle_p50,
            idle_p99,
            busy_call,
            busy_p50,
            slice_ns,
            runs_on_ns,
            cold_round_trip,
        ] = typical_of_each(&self.numbers);
        // One direction is a write, a switch, and the end of a read: threads that wait and wake
        // each other also make calls.
        let context_switch_ns = (round_trip / 2).max(100);
        CoreCosts {
            context_switch_ns,
            // Of the two switches of a round trip, the first follows bulk copying.
            switch_cold_ns: cold_round_trip.saturating_sub(round_trip),
            wake_call_ns: idle_call.saturating_sub(call / 2).max(100),
            wake_busy_call_ns: busy_call.saturating_sub(call / 2).max(100),
            wake_busy_ns: busy_p50.saturating_sub(context_switch_ns),
            wake_idle_p50_ns: idle_p50,
            wake_idle_p99_ns: idle_p99.max(idle_p50),
            timer_ns: timer_ns(&self.timers),
            slice_ns,
            keep_ns: runs_on_ns.saturating_sub(context_switch_ns).min(slice_ns),
            noise: noises(&self.gaps, self.watched_ns),
        }
    }
}

/// Runs `work` in a separate thread on `core`.
pub(super) fn on<T: Send + 'static>(
    core: CoreId,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> thread::JoinHandle<Result<T>> {
    thread::spawn(move || {
        pin_to(core)?;
        work()
    })
}

pub(super) fn joined<T>(thread: thread::JoinHandle<Result<T>>) -> Result<T> {
    thread.join().expect("a measurement does not panic")
}

/// Spins for `span`.
fn spin(span: Duration) {
    let start = Instant::now();
    while start.elapsed() < span {
        std::hint::spin_loop();
    }
}

fn put(pipe: &OwnedFd) -> Result<()> {
    write(pipe, &[1]).context("cannot write to a pipe")?;
    Ok(())
}

fn get(pipe: &OwnedFd) -> Result<bool> {
    let mut byte = [0];
    Ok(read(pipe, &mut byte).context("cannot read from a pipe")? == 1)
}

/// Measures a write to a pipe and the read from it, without a wait.
fn pipe_call(core: CoreId) -> Result<u64> {
    joined(on(core, || {
        let (output, input) = pipe()?;
        let mut times = Vec::with_capacity(ROUNDS);
        for _ in 0..ROUNDS {
            let start = Instant::now();
            put(&input)?;
            get(&output)?;
            times.push(nanos_since(start));
        }
        Ok(median(&mut times))
    }))
}

/// Measures two threads on one core that wake each other in turn; if `cold`, each copies bulk data
/// before.
fn same_core_round_trip(core: CoreId, cold: bool) -> Result<u64> {
    let (there, to) = pipe()?;
    let (back, from) = pipe()?;
    let echo = on(core, move || {
        while get(&there)? {
            put(&from)?;
        }
        Ok(())
    });
    let times = on(core, move || {
        let mut times = Vec::with_capacity(ROUNDS);
        let mut bulk = cold.then(Bulk::new);
        for _ in 0..ROUNDS {
            bulk.iter_mut().for_each(Bulk::moves);
            let start = Instant::now();
            put(&to)?;
            get(&back)?;
            times.push(nanos_since(start));
        }
        Ok(times)
    });
    let mut times = joined(times)?;
    joined(echo)?;
    Ok(median(&mut times))
}

/// Measures repeated wake-ups of a thread on `sleeper` by one on `waker`. With `busy`, a thread
/// that yields to all other threads keeps the sleeper's core awake. Returns the waker's own time,
/// and the median and 99th percentile of the wake-up latency.
fn wake_ups(waker: CoreId, sleeper: CoreId, busy: bool) -> Result<[u64; 3]> {
    static STOP: AtomicBool = AtomicBool::new(false);
    STOP.store(false, Ordering::Relaxed);
    let spinner = busy.then(|| {
        on(sleeper, || {
            reactor::priority::yield_to_all().context("cannot lower a thread's priority")?;
            while !STOP.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
            Ok(())
        })
    });
    let epoch = Instant::now();
    let (output, input) = pipe()?;
    let (answer, answers) = pipe()?;
    let awake = on(sleeper, move || {
        let mut times = Vec::with_capacity(WAKE_UPS);
        while get(&output)? {
            times.push(nanos_since(epoch));
            put(&answers)?;
        }
        Ok(times)
    });
    let woke = on(waker, move || {
        let mut times = Vec::with_capacity(WAKE_UPS);
        for _ in 0..WAKE_UPS {
            // Spins, so that the waker's own core does not have to wake up first.
            spin(PAUSE);
            let start = nanos_since(epoch);
            put(&input)?;
            times.push((start, nanos_since(epoch)));
            get(&answer)?;
        }
        Ok(times)
    });
    let (woke, awake) = (joined(woke), joined(awake));
    STOP.store(true, Ordering::Relaxed);
    if let Some(spinner) = spinner {
        joined(spinner)?;
    }
    let (woke, awake) = (woke?, awake?);
    let mut calls: Vec<_> = woke.iter().map(|(start, end)| end - start).collect();
    let ways = woke.iter().zip(&awake);
    let mut ways: Vec<_> = ways
        .map(|((start, _), end)| end.saturating_sub(*start))
        .collect();
    Ok([
        median(&mut calls),
        median(&mut ways),
        quantile(&mut ways, 990),
    ])
}

/// Returns the gaps in a thread that reads the clock continuously.
fn gaps(watch: Duration) -> Vec<u64> {
    let start = Instant::now();
    let (mut last, mut gaps) = (0, Vec::new());
    loop {
        let now = nanos_since(start);
        if now - last > GAP_NS {
            gaps.push(now - last);
        }
        last = now;
        if start.elapsed() >= watch {
            return gaps;
        }
    }
}

/// Interruptions of a core, by length: the number and mean of the gaps up to each of [`NOISE_NS`].
/// Kernel ticks take tens of microseconds on a virtual machine. Those of the hypervisor are
/// similar, but rarer.
fn noises(gaps: &[u64], watched_ns: u64) -> Vec<Noise> {
    let longer = std::iter::once(0).chain(NOISE_NS);
    let kinds = longer.zip(NOISE_NS).map(|(longer, up_to)| {
        let kind = gaps.iter().filter(|&&gap| longer < gap && gap <= up_to);
        kind.fold((0, 0), |(count, sum), gap| (count + 1, sum + gap))
    });
    let kinds = kinds.filter(|&(count, _)| count > 0);
    let noise = |(count, sum)| Noise {
        period_ns: watched_ns / count,
        length_ns: sum / count,
    };
    kinds.map(noise).collect()
}

/// Measures the time for which a thread of the default scheduling class keeps a core that another
/// thread wants.
fn slice(core: CoreId) -> Result<u64> {
    let other = on(core, || Ok(gaps(WATCH)));
    let own = on(core, || Ok(gaps(WATCH)));
    let mut all = joined(own)?;
    all.extend(joined(other)?);
    all.retain(|gap| *gap >= SLICE_NS_MIN);
    Ok(median(&mut all))
}

/// Measures the time for which a thread that runs continuously keeps its core after it wakes a
/// sleeping thread there, until that thread runs.
fn runs_on(core: CoreId) -> Result<u64> {
    let epoch = Instant::now();
    let woken_at = Arc::new(AtomicU64::new(0));
    let (output, input) = pipe()?;
    let woken = on(core, {
        let woken_at = Arc::clone(&woken_at);
        move || {
            while get(&output)? {
                woken_at.store(nanos_since(epoch).max(1), Ordering::Relaxed);
            }
            Ok(())
        }
    });
    let times = on(core, move || {
        let mut times = Vec::with_capacity(WAKE_UPS);
        for _ in 0..WAKE_UPS {
            spin(RAN);
            woken_at.store(0, Ordering::Relaxed);
            let start = nanos_since(epoch);
            put(&input)?;
            let end = loop {
                match woken_at.load(Ordering::Relaxed) {
                    0 => std::hint::spin_loop(),
                    end => break end,
                }
            };
            times.push(end.saturating_sub(start));
        }
        Ok(times)
    });
    let mut times = joined(times)?;
    joined(woken)?;
    Ok(median(&mut times))
}

/// Measures the shares of its time that a continuously running thread loses to a timer.
fn timer(core: CoreId) -> Result<Vec<f64>> {
    joined(on(core, || {
        let spins = |watch: Duration| {
            let (start, mut count) = (Instant::now(), 0_u64);
            while start.elapsed() < watch {
                count += 1;
            }
            count
        };
        let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::empty())?;
        let period = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
        let set = |nanos| {
            let value = Itimerspec {
                it_interval: period(nanos),
                it_value: period(nanos),
            };
            rustix::time::timerfd_settime(&timer, TimerfdTimerFlags::empty(), &value)
        };
        let mut shares = Vec::with_capacity(TIMER_PAIRS);
        for _ in 0..TIMER_PAIRS {
            set(0)?;
            let quiet = spins(TIMER_WATCH);
            set(TIMER_NS)?;
            let interrupted = spins(TIMER_WATCH);
            shares.push(1.0 - interrupted as f64 / quiet.max(1) as f64);
        }
        Ok(shares)
    }))
}

/// Returns the time that an interrupt takes from the running thread.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of a timer's period"
)]
fn timer_ns(shares: &[f64]) -> u64 {
    let mut shares = shares.to_vec();
    shares.sort_unstable_by(f64::total_cmp);
    let median = shares.get(shares.len() / 2).copied().unwrap_or(0.0);
    (median.max(0.0) * TIMER_NS as f64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_told_apart_by_its_length() {
        let gaps = [60_000, 4_000, 70_000, 2_000_000, 50_000, 9_000_000];
        let kind = |period_ns, length_ns| Noise {
            period_ns,
            length_ns,
        };
        assert_eq!(
            noises(&gaps, 6_000_000),
            [
                kind(6_000_000, 4_000),
                kind(2_000_000, 60_000),
                kind(6_000_000, 2_000_000)
            ]
        );
        assert_eq!(noises(&[], 1), []);
    }

    #[test]
    fn a_timer_costs_the_median_of_its_shares() {
        assert_eq!(timer_ns(&[0.5, -0.2, 0.01]), 500);
        assert_eq!(timer_ns(&[-0.2, -0.1, 0.01]), 0);
        assert_eq!(timer_ns(&[]), 0);
    }
}
