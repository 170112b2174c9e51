//! A run with everything in it that its seed says: production hosts and a production target, faults
//! of the network, the disks, the processes and the machine, and checkers of what may never happen.
//!
//! [`run`] panics where something is wrong: an answer that the oracle does not allow, an error that
//! nothing provokes, a hang, something that is left over at the end, a block that is not what was
//! promised. The same [`Options`] are the same run, to the last step.

mod audit;
mod cast;
mod feature;
mod kept;
mod machine;
mod path;
mod plan;
mod tenants;
mod volume;

pub use feature::Feature;
pub use kept::kept;
pub use path::{DrawnPath, HostPath};
pub use plan::{Event, Incident, Options, Plan};

use crate::trace::say;
use crate::world::Outcome;
use base::Nanos;
use machine::Machine;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Longest that it may take in the run's own time until all is done, once nothing goes wrong any
/// more: longer than every time-out together.
const LIVENESS: Nanos = Nanos::from_secs(1_200);

/// Longest that a run may take in its own time before all is calm.
const TURMOIL: Nanos = Nanos::from_secs(36_000);

/// The faults and requests that a run survived.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Survived {
    /// Requests that were answered.
    pub requests: u64,
    /// Of these, with an error.
    pub failed: u64,
    /// Of these, by each I/O path that threads of hosts share.
    #[serde(default)]
    pub by_path: BTreeMap<Cow<'static, str>, u64>,
    /// Runners of those paths that others deposed.
    #[serde(default)]
    pub deposed: u64,
    /// Faults of each kind.
    pub faults: BTreeMap<Cow<'static, str>, u64>,
    /// Of all answers and when they came: equal runs have equal ones.
    pub fingerprint: u64,
    /// Duration in the run's own time, in nanoseconds.
    pub simulated_ns: u64,
}

impl Survived {
    /// Faults of all kinds together.
    #[must_use]
    pub fn faults(&self) -> u64 {
        self.faults.values().sum()
    }

    /// Adds what another run survived.
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

/// The shortest form of a run that fails: without any feature, and with as few requests, as it can
/// do without and `fails` says that it still does.
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

/// Runs what the options say, and tells [`trace`](crate::trace) what happens.
///
/// # Panics
/// If anything happens that never may, with what it was.
pub fn run(options: &Options) -> Survived {
    run_plan(options.seed, &Plan::draw(options))
}

/// Runs a plan; everything else is drawn from `seed`.
///
/// # Panics
/// As [`run`].
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
    let total = machine.total();
    await_answers(&mut machine, LIVENESS, "a hang", |n| n == total);
    say(|| format!("{:?}: all is answered", machine.world.now()));
    machine.end(LIVENESS);
    let mut survived = machine.survived();
    survived.simulated_ns = machine.world.now().since(begun).0;
    survived
}

/// Lets all live until so many answers are there.
///
/// # Panics
/// If that takes too long.
fn await_answers(machine: &mut Machine, most: Nanos, what: &str, done: impl Fn(u64) -> bool) {
    let outcome = machine.run(most, done);
    assert_eq!(outcome, Outcome::Done, "{what}: {}", machine.standing());
}
