//! `lab limit`: this stack compared with the limit of this machine's sockets.
//!
//! The target is this program, `serve` in a separate process on the target's core; the load runs on
//! the load's core in this process. In turns with it, the raw exchange runs with its server on the
//! target's core and its client on the load's. Either both poll or neither does.

use super::args::LimitArgs;
use super::idle::{self, IdleReport};
use super::limits::IDLE_NAME;
use super::own::{CASES, Case};
use super::own_many::{self as many, ManyReport};
use super::{Better, CaseReport, compare, run_pair};
use crate::Note;
use crate::process::{RAM_BYTES, Target, prefill};
use anyhow::{Context as _, Result};
use load::Machine;
use serde::Serialize;
use std::fmt;

/// Every case that was run, and whether each is within its bound.
#[derive(Debug, Serialize)]
pub struct LimitReport {
    cases: Vec<BoundedCase>,
    machine: Machine,
}

/// A case, and whether it is within its bound.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum BoundedCase {
    Compared {
        #[serde(flatten)]
        report: CaseReport,
        bound: f64,
        within: bool,
    },
    Many(ManyReport),
    Idle(IdleReport),
}

impl BoundedCase {
    fn within(&self) -> bool {
        match self {
            Self::Compared { within, .. } => *within,
            Self::Many(many) => many.within,
            Self::Idle(idle) => idle.within,
        }
    }
}

/// Runs the cases and reports the fractions.
///
/// # Errors
/// A core that may not be used, a target that does not start, or an exchange that fails.
pub fn run(args: &LimitArgs, note: Note<'_>) -> Result<LimitReport> {
    let chosen = |name: &str| args.cases.is_empty() || args.cases.iter().any(|case| case == name);
    let mut lines = Vec::new();
    for case in CASES.iter().filter(|case| chosen(case.raw.name)) {
        let report = run_case(case, args, note).with_context(|| case.raw.name.to_owned())?;
        let fraction = report.fraction.median;
        let within = match report.better {
            Better::Higher => fraction >= case.bound,
            Better::Lower => fraction <= case.bound,
        };
        lines.push(BoundedCase::Compared {
            report,
            bound: case.bound,
            within,
        });
    }
    let many = many::CASE.raw.name;
    if chosen(many) {
        lines.push(BoundedCase::Many(many::run(args, note).context(many)?));
    }
    if chosen(IDLE_NAME) {
        note(format_args!("{}: watching an idle target", IDLE_NAME));
        lines.push(BoundedCase::Idle(idle::run(args).context(IDLE_NAME)?));
    }
    Ok(LimitReport {
        cases: lines,
        machine: Machine::look(),
    })
}

impl LimitReport {
    /// Returns true if every case is within its bound.
    #[must_use]
    pub fn within(&self) -> bool {
        self.cases.iter().all(BoundedCase::within)
    }
}

/// Runs one case: pairs of runs. A target only lives for its run, because a polling target would
/// take half of its processor from the raw exchange that is measured next.
fn run_case(case: &Case, args: &LimitArgs, note: Note<'_>) -> Result<CaseReport> {
    let cores = case.cores(args.target_core, args.load_core);
    let (warmup, measured) = (args.warmup(), args.seconds);
    let core = |core: u32| Some(core as usize);
    compare(
        case.raw.name,
        case.metric,
        args.runs.into(),
        &mut || {
            let poll = ["--poll", case.poll_text()];
            let target = Target::start(&[cores.target], RAM_BYTES, &poll)?;
            let namespace = target.connect(1)?;
            prefill(&namespace)?;
            case.run_ours(&namespace, cores.load, warmup, measured)
        },
        &mut || {
            let pair = run_pair(
                &case.raw,
                core(cores.target),
                core(cores.load),
                warmup,
                measured,
            )?;
            Ok(case.value(pair.client.exchanges_per_second, pair.client.latency_us.p50))
        },
        note,
    )
}

impl fmt::Display for LimitReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rates = |line: &BoundedCase| !matches!(line, BoundedCase::Idle(_));
        if self.cases.iter().any(rates) {
            writeln!(
                f,
                "{:24}  {:>10}  {:>10}  {:10}  {:>8}  {:>15}  {:>8}",
                "case", "ours", "limit", "unit", "fraction", "spread", "bound"
            )?;
        }
        for line in &self.cases {
            match line {
                BoundedCase::Compared { report, bound, .. } => write_rates(f, report, *bound)?,
                BoundedCase::Many(many) => {
                    write_rates(f, &many.report, many.bound)?;
                    write!(f, "\n{many}")?;
                }
                BoundedCase::Idle(idle) => write!(f, "{idle}")?,
            }
            writeln!(f, "  {}", verdict(line.within()))?;
        }
        write!(f, "on {}", self.machine)
    }
}

fn write_rates(f: &mut fmt::Formatter<'_>, report: &CaseReport, bound: f64) -> fmt::Result {
    let CaseReport {
        case,
        ours,
        limit,
        unit,
        fraction,
        better,
        ..
    } = report;
    let decimals = usize::from(*better == Better::Lower);
    let sign = if *better == Better::Higher {
        "≥"
    } else {
        "≤"
    };
    let spread = format!("{:.2}..{:.2}", fraction.min, fraction.max);
    let bound = format!("{sign} {bound:.2}");
    let median = fraction.median;
    write!(
        f,
        "{case:24}  {ours:>10.decimals$}  {limit:>10.decimals$}  {unit:10}  {median:>8.2}  \
         {spread:>15}  {bound:>8}"
    )
}

fn verdict(within: bool) -> &'static str {
    if within { "ok" } else { "MISSED" }
}
