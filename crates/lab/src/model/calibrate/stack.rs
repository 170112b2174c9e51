//! Costs of this stack's code per request, measured with a real target and load in separate
//! processes, by the user-space time of each.

use super::sockets::{connected, receive_some};
use super::typical::{median, nanos_since, rounded, typical_of_each};
use crate::figure::{System, Workload};
use crate::proc::{ended_children_user_seconds, user_seconds};
use crate::process::{RAM_BYTES, Target, WARM_UP, load};
use anyhow::{Result, ensure};
use base::units::CoreId;
use sim::model::costs::StackCosts;
use std::hint::black_box;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use switch::request_steering::EgressLoad;
use switch::{Class, Knobs, RequestSteering};

/// Duration of the load: long against the kernel's 10 ms time resolution.
const LOADED: Duration = Duration::from_secs(1);
/// The load's system.
const SYSTEM: System = System {
    turned: &["--prefill", "--poll", "never"],
    ..System::OWN_LANES
};
/// Rounds of measurements in this process.
const ROUNDS: u64 = 100_000;
/// Turns without work.
const TURNS: usize = 2_000;
/// Cores of the machine on which steering decides.
const CORES: usize = 16;

/// Numbers of one pass: the host's and the target's time per request, a hand-over between threads,
/// a steering decision, and a turn.
pub(super) type Sample = [u64; 5];

pub(super) fn measure([first, second]: [CoreId; 2]) -> Result<Sample> {
    let target = Target::start(&[first.0], RAM_BYTES, &["--poll", "never"])?;
    let app = Workload {
        class: Class::Throughput,
        depth: 128,
        ..Workload::latency(1).on(second.0)
    };
    let (host_before, target_before) =
        (ended_children_user_seconds()?, user_seconds(target.pid())?);
    let report = load(&target, &SYSTEM, vec![app], LOADED)?;
    // Including those of the warm-up.
    let requests = rounded(report.apps[0].iops * (WARM_UP + LOADED).as_secs_f64());
    ensure!(
        requests > 1_000,
        "the load completed no requests; try again on a quieter machine"
    );
    Ok([
        nanos(ended_children_user_seconds()? - host_before) / requests,
        nanos(user_seconds(target.pid())? - target_before) / requests,
        hand_over(),
        steer(),
        turn()?,
    ])
}

fn nanos(seconds: f64) -> u64 {
    rounded(seconds * 1e9)
}

/// Returns the costs from all passes.
pub(super) fn costs(samples: &[Sample]) -> StackCosts {
    let [host_ns, target_request_ns, hand_over_ns, steer_ns, turn_ns] = typical_of_each(samples);
    // The application, the submission path and the completion path each take a third of the host's
    // time.
    let third = (host_ns / 3).max(10);
    StackCosts {
        app_request_ns: third,
        hand_over_ns,
        submit_ns: third,
        complete_ns: third,
        steer_ns,
        target_request_ns: target_request_ns.max(10),
        turn_ns: turn_ns.max(1),
    }
}

/// Measures a pass through a queue between threads.
fn hand_over() -> u64 {
    let (into, out) = mpsc::channel();
    let start = Instant::now();
    for number in 0..ROUNDS {
        let _ = into.send(number);
        let _ = black_box(out.recv());
    }
    nanos_since(start) / ROUNDS
}

/// Measures a request-steering decision on an overloaded core.
fn steer() -> u64 {
    let rules = Knobs::switchyard().request_steering;
    let mut steering = RequestSteering::new(rules, CORES, 1);
    let load = |core: usize| EgressLoad {
        throughput_bytes: if core == 0 { u64::MAX } else { 65_536 },
        ..EgressLoad::default()
    };
    let loads: Vec<_> = (0..CORES).map(|core| Some(load(core))).collect();
    let start = Instant::now();
    for _ in 0..ROUNDS {
        black_box(steering.steer(Class::Throughput, 0, black_box(&loads[..])));
    }
    nanos_since(start) / ROUNDS
}

/// Measures a turn of a loop: it reads the clock, and polls a recently active socket.
fn turn() -> Result<u64> {
    let (mut socket, _other) = connected()?;
    socket.set_nonblocking(true)?;
    let mut nothing = [0];
    let mut times = Vec::with_capacity(TURNS);
    for _ in 0..TURNS {
        let start = Instant::now();
        let got = receive_some(&mut socket, &mut nothing)?;
        times.push(nanos_since(start));
        ensure!(got.is_none(), "an idle socket received {got:?}");
    }
    Ok(median(&mut times))
}
