//! Costs of our own code for a request, measured on the real thing: our target and our load in
//! processes of their own, and the time that each spends in user space.

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

/// Duration of the load: the kernel counts in steps of 10 ms.
const LOADED: Duration = Duration::from_secs(1);
/// The load's side of it.
const SYSTEM: System = System {
    turned: &["--prefill", "--poll", "never"],
    ..System::OWN_LANES
};
/// Rounds of what is measured in this process.
const ROUNDS: u64 = 100_000;
/// Turns that find nothing.
const TURNS: usize = 2_000;
/// Cores of the machine on which steering decides.
const CORES: usize = 16;

/// One pass's numbers: the host's and the target's time for a request, a hand-over, a decision of
/// steering, and a turn.
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
    // Those of the warm-up included.
    let requests = rounded(report.apps[0].iops * (WARM_UP + LOADED).as_secs_f64());
    ensure!(
        requests > 1_000,
        "the load came to nothing; try again on a quieter machine"
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

/// Returns the costs by all passes.
pub(super) fn costs(samples: &[Sample]) -> StackCosts {
    let [host_ns, target_request_ns, hand_over_ns, steer_ns, turn_ns] = typical_of_each(samples);
    // The application, the way out and the way back have a third of the host's time each.
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

/// Into a queue between threads and out of it.
fn hand_over() -> u64 {
    let (into, out) = mpsc::channel();
    let start = Instant::now();
    for number in 0..ROUNDS {
        let _ = into.send(number);
        let _ = black_box(out.recv());
    }
    nanos_since(start) / ROUNDS
}

/// A decision of request steering on an overloaded core.
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

/// A turn of a loop looks at the clock, and at a socket that brought something lately.
fn turn() -> Result<u64> {
    let (mut socket, _other) = connected()?;
    socket.set_nonblocking(true)?;
    let mut nothing = [0];
    let mut times = Vec::with_capacity(TURNS);
    for _ in 0..TURNS {
        let start = Instant::now();
        let got = receive_some(&mut socket, &mut nothing)?;
        times.push(nanos_since(start));
        ensure!(
            got.is_none(),
            "a socket that is sent nothing brought {got:?}"
        );
    }
    Ok(median(&mut times))
}
