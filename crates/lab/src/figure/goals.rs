//! Performance goals of this stack, each a number with a bound. Nearly all are quotients of a run
//! and a baseline's run; the cost of the switchboard has no baseline.

use super::claim::{Bound, Claim, Comparison, Verdict};
use super::measure::{Effort, Measured};
use super::plan::{Axis, Plan, cell, claims};
use super::sample::{Metric, Statistic};
use super::scenario::{LOAD_CORE, Layout, Scenario, Storage, System, Workload};
use anyhow::{Context as _, Result};
use base::units::CoreId;
use load::RunSummary;
use serde::Serialize;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use switch::Class;

/// A performance goal.
#[derive(Clone, Debug)]
pub struct Goal {
    /// Its name.
    pub name: &'static str,
    /// Description of the bounded number.
    pub what: &'static str,
    number: Number,
    bound: Bound,
}

/// The number that has a bound.
#[derive(Clone, Debug)]
enum Number {
    /// The number of one run divided by that of another; of several pairs the worst.
    Quotient {
        metric: Metric,
        pairs: Vec<(Run, Run)>,
        /// The same quotient for the best possible run, one without other load. If this misses the
        /// bound, the machine does not allow the goal.
        limit: Option<Box<(Run, Run)>>,
    },
    /// Processor time of a request through ingress, egress and back, with `depth` requests between
    /// two turns of the dataplane thread.
    Passing { depth: u32 },
}

/// A scenario with a name.
#[derive(Clone, Debug)]
struct Run {
    name: &'static str,
    scenario: Scenario,
}

const L_AVERAGE: Metric = Metric::Latency(Class::Latency, Statistic::Average);
const L_P50: Metric = Metric::Latency(Class::Latency, Statistic::P50);
const L_P99: Metric = Metric::Latency(Class::Latency, Statistic::P99);
const L_P999: Metric = Metric::Latency(Class::Latency, Statistic::P999);
const T_P50: Metric = Metric::Latency(Class::Throughput, Statistic::P50);
const T_BYTES: Metric = Metric::Throughput(Some(Class::Throughput));
const TOTAL_BYTES: Metric = Metric::Throughput(None);
const REQUESTS: Metric = Metric::Requests;

/// The L-app's rate in an open loop, in requests per second.
const RATE: u64 = 5000;

/// The systems here use the goals' workload: T is 64 KiB at depth 16, or 32 for `linux`.
const OURS: System = System::SWITCHYARD;
const LINUX: System = System::LINUX;
const NVME_TCP: System = System::NVME_TCP;
const NO_DOORBELL: System = System {
    turned: &["--knob", "doorbell=immediate"],
    ..OURS
};
const POLL: System = System::POLL.loaded(64 << 10, 16);

fn split(system: System, name: &'static str, l: u32, t: u32) -> Run {
    let scenario = Scenario::mix(system, Layout::Split, l, t);
    Run { name, scenario }
}

fn shared(system: System, name: &'static str, l: u32, t: u32) -> Run {
    let scenario = Scenario::mix(system, Layout::Shared, l, t);
    Run { name, scenario }
}

/// An L-app at its rate, alongside `t` T-apps.
fn paced(system: System, name: &'static str, t: u32) -> Run {
    let l = Workload {
        rate: Some(RATE),
        ..Workload::latency(1)
    };
    let apps = [l, Workload::throughput(t, &system)];
    let scenario = Scenario::of(system, Layout::Split, &apps);
    Run { name, scenario }
}

/// T alone with 4 KiB requests.
fn small(system: System, name: &'static str, depth: u32) -> Run {
    split(system.loaded(4096, depth), name, 0, 1)
}

/// All goals, in the order of their table.
#[must_use]
pub fn all() -> Vec<Goal> {
    let mut goals = against_linux();
    goals.extend(many_latency_apps());
    goals.extend(shared_cores());
    goals.extend(against_polling());
    goals.extend(doorbells());
    goals.push(tokens());
    goals.extend(passing());
    goals
}

fn goal(
    name: &'static str,
    what: &'static str,
    metric: Metric,
    bound: Bound,
    of: Run,
    to: Run,
) -> Goal {
    Goal {
        name,
        what,
        number: Number::Quotient {
            metric,
            pairs: vec![(of, to)],
            limit: None,
        },
        bound,
    }
}

/// Declares goals, two or three lines each: a name, a description of the bounded number, and the
/// quotient of two runs with its bound.
macro_rules! goals {
    ($($name:literal $what:literal:
        $metric:expr, [$of:expr, $to:expr] $sign:tt $bound:expr
        $(, limited by [$best:expr, $base:expr])?;)+) => {
        vec![$(
            goal($name, $what, $metric, claims!(@bound $sign $bound), $of, $to)
                $(.limited_by($best, $base))?
        ),+]
    };
}

impl Goal {
    /// Adds the limit: the quotient of these two runs, shown next to the result.
    fn limited_by(mut self, of: Run, to: Run) -> Self {
        if let Number::Quotient { limit, .. } = &mut self.number {
            *limit = Some(Box::new((of, to)));
        }
        self
    }

    /// The claim that a quotient is within the bound.
    fn claim<'a>(&self, metric: Metric, pairs: impl IntoIterator<Item = &'a (Run, Run)>) -> Claim {
        let comparison = |(of, to): &(Run, Run)| Comparison {
            of: cell(of.name, HERE),
            to: cell(to.name, HERE).into(),
        };
        Claim {
            name: self.name,
            says: self.what,
            metric,
            comparisons: pairs.into_iter().map(comparison).collect(),
            bound: self.bound,
        }
    }
}

/// L with a core for itself and a core for its target, both polling: the effects of the machine on
/// this run affect every stack.
fn alone_polling() -> Run {
    split(POLL, "poll 1 L", 1, 0)
}

fn against_linux() -> Vec<Goal> {
    let ours = || split(OURS, "switchyard 1 L + 1 T", 1, 1);
    let linux = || split(LINUX, "linux 1 L + 1 T", 1, 1);
    let plain = || split(NVME_TCP, "nvme-tcp 1 L + 1 T", 1, 1);
    let alone = || split(OURS, "switchyard 1 L", 1, 0);
    goals![
        "split-linux-average" "split, 1 L + 1 T, L average: linux against switchyard":
            L_AVERAGE, [linux(), ours()] >= 10.0;
        "split-linux-p99" "split, 1 L + 1 T, L p99: linux against switchyard":
            L_P99, [linux(), ours()] >= 8.0, limited by [linux(), alone_polling()];
        "split-nvme-tcp-p99" "split, 1 L + 1 T, L p99: nvme-tcp against switchyard":
            L_P99, [plain(), ours()] >= 8.0, limited by [plain(), alone_polling()];
        "split-nvme-tcp-throughput" "split, 1 L + 1 T, T: switchyard against nvme-tcp":
            T_BYTES, [ours(), plain()] >= 0.80;
        "split-alone-p99" "split, L p99: beside 1 T against alone":
            L_P99, [ours(), alone()] <= 2.0;
        "split-linux-throughput" "split, 1 L + 1 T, T: switchyard against linux":
            T_BYTES, [ours(), linux()] >= 0.80;
    ]
}

fn shared_cores() -> Vec<Goal> {
    let ours = || shared(OURS, "switchyard 4 L + 2 T, shared", 4, 2);
    let linux = || shared(LINUX, "linux 4 L + 2 T, shared", 4, 2);
    goals![
        "shared-linux-p99" "shared, 4 L + 2 T, L p99: linux against switchyard":
            L_P99, [linux(), ours()] >= 8.0;
        "shared-linux-total" "shared, 4 L + 2 T, all bytes: switchyard against linux":
            TOTAL_BYTES, [ours(), linux()] >= 0.90;
    ]
}

fn many_latency_apps() -> Vec<Goal> {
    let many = |l| {
        let name = match l {
            1 => "switchyard 1 L + 1 T",
            2 => "switchyard 2 L + 1 T",
            4 => "switchyard 4 L + 1 T",
            8 => "switchyard 8 L + 1 T",
            _ => "switchyard 16 L + 1 T",
        };
        split(OURS, name, l, 1)
    };
    let against = |ls: &[u32], base: &Run| {
        let pair = |&l: &u32| (many(l), base.clone());
        ls.iter().map(pair).collect()
    };
    vec![
        Goal {
            name: "many-l-p99",
            what: "split, 2 to 16 L + 1 T, L p99: against that of 1 L + 1 T",
            number: Number::Quotient {
                metric: L_P99,
                pairs: against(&[2, 4, 8, 16], &many(1)),
                limit: None,
            },
            bound: Bound::AtMost(3.0),
        }
        .limited_by(split(OURS, "switchyard 16 L", 16, 0), many(1)),
        Goal {
            name: "many-l-throughput",
            what: "split, 1 to 16 L + 1 T, T: against T alone",
            number: Number::Quotient {
                metric: T_BYTES,
                pairs: against(&[1, 2, 4, 8, 16], &split(OURS, "switchyard 1 T", 0, 1)),
                limit: None,
            },
            bound: Bound::AtLeast(0.4),
        },
    ]
}

fn against_polling() -> Vec<Goal> {
    let ours = || paced(OURS, "switchyard 1 L at 5000/s + 1 T", 1);
    let poll = || paced(POLL, "poll 1 L at 5000/s + 1 T", 1);
    let polling = || split(POLL, "poll 1 L + 1 T", 1, 1);
    goals![
        "poll-open-p99" "one core, 1 L at 5000/s + 1 T, L p99: poll against switchyard":
            L_P99, [poll(), ours()] >= 10.0,
            limited by [poll(), paced(POLL, "poll 1 L at 5000/s", 0)];
        "poll-open-throughput" "one core, 1 L at 5000/s + 1 T, T: switchyard against poll":
            T_BYTES, [ours(), poll()] >= 1.3;
        "poll-closed-p999" "one core, 1 L + 1 T, L p99.9: poll against switchyard":
            L_P999, [polling(), split(OURS, "switchyard 1 L + 1 T", 1, 1)] >= 10.0,
            limited by [polling(), alone_polling()];
    ]
}

fn doorbells() -> Vec<Goal> {
    let deep = || small(OURS, "switchyard 4 KiB x 128", 128);
    goals![
        "l-alone-doorbell" "split, L alone, p50: switchyard against no doorbell":
            L_P50,
            [
                split(OURS, "switchyard 1 L", 1, 0),
                split(NO_DOORBELL, "switchyard 1 L, no doorbell", 1, 0)
            ] <= 1.03;
        "t-alone-caravans" "split, T alone, 4 KiB x 128: switchyard against one request a send":
            REQUESTS, [deep(), small(NVME_TCP, "nvme-tcp 4 KiB x 128", 128)] >= 4.0;
        "t-alone-fixed" "split, T alone, 4 KiB x 128: switchyard against the fixed doorbell":
            REQUESTS, [deep(), small(LINUX, "linux 4 KiB x 128", 128)] >= 1.1;
        "t-alone-depth-1"
            "split, T alone, 4 KiB x 1, p50: switchyard against no doorbell, so no 50 µs":
            T_P50,
            [small(OURS, "switchyard 4 KiB x 1", 1), small(NVME_TCP, "nvme-tcp 4 KiB x 1", 1)] <= 1.1;
    ]
}

/// Cost of the token scheduler on a device that does not need it.
fn tokens() -> Goal {
    let mut with = small(OURS, "switchyard 4 KiB x 128, tokens", 128);
    for process in &mut with.scenario.processes {
        process.storage = Storage::PricedMemory;
    }
    goal(
        "t-alone-tokens",
        "split, T alone, 4 KiB x 128: with a token scheduler against without",
        REQUESTS,
        Bound::AtLeast(0.95),
        with,
        small(OURS, "switchyard 4 KiB x 128", 128),
    )
}

fn passing() -> Vec<Goal> {
    let at = |name, what, depth| Goal {
        name,
        what,
        number: Number::Passing { depth },
        bound: Bound::AtMost(300.0),
    };
    vec![
        at(
            "passing-1",
            "CPU of a request through ingress and egress, 1 at a time",
            1,
        ),
        at(
            "passing-16",
            "CPU of a request through ingress and egress, 16 at a time",
            16,
        ),
    ]
}

/// Returns the plan of `goals`, with each scenario once, even if several goals use it.
#[must_use]
pub fn plan(goals: &[Goal]) -> Plan {
    let mut plan = Plan::over(Axis::new("Goals", "", [HERE]));
    let mut there = BTreeSet::new();
    for goal in goals {
        let Number::Quotient {
            metric,
            pairs,
            limit,
        } = &goal.number
        else {
            continue;
        };
        for (of, to) in pairs.iter().chain(limit.as_deref()) {
            for run in [of, to] {
                if there.insert(run.name) {
                    plan.run(run.name, HERE, run.scenario.clone());
                }
            }
        }
        plan.claims.push(goal.claim(*metric, pairs));
    }
    plan
}

/// The only tick on the axis: goals are not a sweep.
const HERE: &str = "";

/// Verdict on a goal.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Judged {
    /// Verdict on a quotient.
    Quotient(QuotientVerdict),
    /// Verdict on a number.
    Number(NumberVerdict),
}

/// Verdict on a goal that bounds a quotient.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct QuotientVerdict {
    /// The quotient.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// The same for the best possible run, one without other load: the limit of the machine.
    pub limit: Option<RunSummary>,
}

impl QuotientVerdict {
    /// Returns true if no stack could have reached the bound on this machine.
    #[must_use]
    pub fn is_out_of_reach(&self) -> bool {
        let beyond = |limit: RunSummary| !self.verdict.bound.holds(limit.median);
        !self.verdict.holds && self.limit.is_some_and(beyond)
    }
}

/// Verdict on a goal that bounds a plain number.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NumberVerdict {
    /// The goal's name.
    pub name: &'static str,
    /// Description of the bounded number.
    pub says: &'static str,
    /// The number's name, with the unit last.
    pub metric: &'static str,
    /// The number, summarised over the repetitions.
    pub number: RunSummary,
    /// Bound of its median.
    pub bound: Bound,
    /// The median is within the bound.
    pub holds: bool,
}

impl Judged {
    /// Returns true if the goal is reached.
    #[must_use]
    pub const fn holds(&self) -> bool {
        match self {
            Self::Quotient(quotient) => quotient.verdict.holds,
            Self::Number(verdict) => verdict.holds,
        }
    }
}

/// Returns the verdict on each of `goals`, for which `plan` was `measured`. `cost` measures the
/// cost of passing through the switchboard at a depth, in nanoseconds; it is called `effort.runs`
/// times.
///
/// # Errors
/// A number that could not be measured.
pub fn judge(
    goals: &[Goal],
    plan: &Plan,
    measured: &Measured,
    effort: &Effort,
    cost: &mut dyn FnMut(u32) -> Result<f64>,
) -> Result<Vec<Judged>> {
    let numbers = |cell: &_, metric| measured.numbers(plan, cell, metric);
    let judged = goals.iter().map(|goal| match &goal.number {
        Number::Quotient {
            metric,
            pairs,
            limit,
        } => {
            let judge = |claim: Claim| claim.judge(numbers);
            let limit = limit.as_deref().map(|pair| goal.claim(*metric, [pair]));
            Ok(Judged::Quotient(QuotientVerdict {
                verdict: judge(goal.claim(*metric, pairs))?,
                limit: limit
                    .map(judge)
                    .transpose()?
                    .map(|verdict| verdict.quotient),
            }))
        }
        &Number::Passing { depth } => {
            let runs = (0..effort.runs).map(|_| cost(depth));
            let runs = runs
                .collect::<Result<Vec<_>>>()
                .with_context(|| goal.name.to_owned())?;
            let number = RunSummary::of(&runs).context("there was no run")?;
            Ok(Judged::Number(NumberVerdict {
                name: goal.name,
                says: goal.what,
                metric: "ns_per_request",
                number,
                bound: goal.bound,
                holds: goal.bound.holds(number.median),
            }))
        }
    });
    judged.collect()
}

/// Requests of one measurement: enough to hide the start-up, and a few milliseconds.
const PASSING_REQUESTS: u64 = 20_000;

/// Measures the processor time in nanoseconds of a request through ingress, egress and back: the
/// mean over `span`, alone on the processor of the applications.
///
/// # Errors
/// The processor may not be used, or the machine refuses an io_uring.
pub fn cost_of_passing(depth: u32, span: Duration) -> Result<f64> {
    let measure = move || {
        reactor::placement::pin_to(CoreId(LOAD_CORE))?;
        let once = || host::switchboard::cost_of_passing(PASSING_REQUESTS, depth);
        // The first run brings code and data into the caches.
        once()?;
        let (began, mut costs) = (Instant::now(), Vec::new());
        while costs.is_empty() || began.elapsed() < span {
            costs.push(once()?.0 as f64);
        }
        Ok(costs.iter().sum::<f64>() / costs.len() as f64)
    };
    // A separate thread, because pinning it makes it useless for other work.
    let thread = std::thread::Builder::new().spawn(measure);
    let thread = thread.context("cannot start a thread")?;
    thread.join().expect("measuring does not panic")
}
