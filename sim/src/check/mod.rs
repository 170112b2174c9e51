//! A run drawn from a seed: production hosts and targets, faults of the network, disks, processes
//! and machines, and checks of invariants.
//!
//! [`run`] panics at a failure: an answer that the oracle does not allow, an unprovoked error, a
//! hang, a leaked resource at the end, or a block without its acknowledged content. The same
//! [`Options`] give the same run in every step.

mod audit;
mod cast;
mod encryption;
mod feature;
mod kept;
mod machine;
mod path;
mod plan;
mod proofs;
mod tenants;
mod volume;

pub use feature::Feature;
pub use kept::kept;
pub use path::{DrawnPath, HostPath};
pub use plan::{Event, Incident, Options, Plan};
pub use proofs::{Chap, Proofs, Tls};

use crate::trace::say;
use crate::world::Outcome;
use base::Nanos;
use machine::Machine;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Maximum virtual time until all work is complete after all faults have ended: more than the sum
/// of all timeouts.
const LIVENESS: Nanos = Nanos::from_secs(1_200);

/// Maximum virtual time of the part of a run with faults.
const TURMOIL: Nanos = Nanos::from_secs(36_000);

/// Counts of faults and requests of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Survived {
    /// Requests that were answered.
    pub requests: u64,
    /// Of these, requests that failed.
    pub failed: u64,
    /// Of these, requests through each I/O path that threads of hosts share.
    #[serde(default)]
    pub by_path: BTreeMap<Cow<'static, str>, u64>,
    /// Runners of those paths replaced by other submitters.
    #[serde(default)]
    pub deposed: u64,
    /// Faults by kind.
    pub faults: BTreeMap<Cow<'static, str>, u64>,
    /// Hash of all answers and their times: equal in equal runs.
    pub fingerprint: u64,
    /// Duration in virtual time, in nanoseconds.
    pub simulated_ns: u64,
}

impl Survived {
    /// Total faults of all kinds.
    #[must_use]
    pub fn faults(&self) -> u64 {
        self.faults.values().sum()
    }

    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.failed += other.failed;
        let add = |to: &mut BTreeMap<_, u64>, from: &BTreeMap<Cow<'static, str>, u64>| {
            for (kind, count) in from {
                *to.entry(kind.clone()).or_default() += count;
            }
        };
        add(&mut self.by_path, &other.by_path);
        add(&mut self.faults, &other.faults);
        self.deposed += other.deposed;
        self.simulated_ns += other.simulated_ns;
    }
}

/// Minimises a failing run: removes features and requests while `fails` returns true.
pub fn shrink(options: &Options, mut fails: impl FnMut(&Options) -> bool) -> Options {
    let mut shortest = options.clone();
    for feature in Plan::draw(options).features {
        let mut shorter = shortest.clone();
        shorter.without.insert(feature);
        if fails(&shorter) {
            shortest = shorter;
        }
    }
    let mut requests = Plan::draw(&shortest).workload.requests;
    let mut step = requests / 2;
    while step > 0 {
        let mut shorter = shortest.clone();
        shorter.requests = Some(requests - step);
        if requests > step && fails(&shorter) {
            requests -= step;
            shortest = shorter;
        }
        step /= 2;
    }
    shortest
}

/// Runs `options`, and reports events to [`trace`](crate::trace).
///
/// # Panics
/// If an invariant is violated, with a description.
pub fn run(options: &Options) -> Survived {
    run_plan(options.seed, &Plan::draw(options))
}

/// Runs a plan; all other choices are drawn from `seed`.
///
/// # Panics
/// Like [`run`].
pub fn run_plan(seed: u64, plan: &Plan) -> Survived {
    say(|| format!("{plan:#?}"));
    let mut machine = Machine::new(seed, plan);
    let begun = machine.world.now();
    for event in &plan.events {
        let before = format!("before {event:?}");
        await_answers(&mut machine, TURMOIL, &before, |n| n >= event.after);
        say(|| format!("{:?}: {:?}", machine.world.now(), event.what));
        machine.meets(event.what);
    }
    let calm = plan.calm_after;
    await_answers(&mut machine, TURMOIL, "before calm", |n| n >= calm);
    say(|| format!("{:?}: all is calm", machine.world.now()));
    machine.calm();
    machine.check_sizes();
    machine.check_authentication();
    let total = machine.total();
    await_answers(&mut machine, LIVENESS, "a hang", |n| n == total);
    say(|| format!("{:?}: all is answered", machine.world.now()));
    machine.end(LIVENESS);
    let mut survived = machine.survived();
    survived.simulated_ns = machine.world.now().since(begun).0;
    survived
}

/// Runs all actors until `done`, called with the number of answers, returns true.
///
/// # Panics
/// If that takes longer than `most`.
fn await_answers(machine: &mut Machine, most: Nanos, what: &str, done: impl Fn(u64) -> bool) {
    let outcome = machine.run(most, done);
    assert_eq!(outcome, Outcome::Done, "{what}: {}", machine.standing());
}
