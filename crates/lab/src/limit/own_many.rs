//! Many connections with few requests each, against a plain program on epoll.

use super::args::LimitArgs;
use super::{CaseReport, ManyCase, Metric, RESPONSE_HEADER_BYTES, compare, run_many};
use crate::Note;
use crate::process::{RAM_BYTES, Target, prefill};
use anyhow::{Context as _, Result, ensure};
use host::Host;
use load::{App, LoadOptions, Remote, RunSummary, loads_of_hosts};
use reactor::PollPolicy;
use serde::Serialize;
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use switch::Knobs;

/// The raw exchange.
pub(super) const CASE: ManyCase = ManyCase::read_4k_2500_connections();

/// Hosts of the case, and I/O queues of each: in total the connections of the raw exchange.
const HOSTS: usize = 100;
const QUEUES: usize = CASE.connections / HOSTS;

/// Longest wait for a lost connection.
const LOSS_TIMEOUT: Duration = Duration::from_secs(30);

/// Lower bound of the rate, as a fraction of the plain program's rate.
const BOUND: f64 = 0.9;

/// Upper bound of the p99, as a multiple of the mean: with service in order of arrival, all
/// requests wait about equally long.
const P99_OVER_MEAN_MAX: f64 = 3.0;

/// The rate as a fraction, and the fairness among connections.
#[derive(Debug, Serialize)]
pub(super) struct ManyReport {
    #[serde(flatten)]
    pub(super) report: CaseReport,
    pub(super) bound: f64,
    /// The stack's p99 latency divided by its mean, of each run.
    p99_over_mean: RunSummary,
    p99_over_mean_bound: f64,
    pub(super) within: bool,
}

impl fmt::Display for ManyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RunSummary { median, min, max } = self.p99_over_mean;
        write!(
            f,
            "{}: p99 is {median:.2} times the mean ({min:.2}..{max:.2}, ≤ {P99_OVER_MEAN_MAX})",
            self.report.case
        )
    }
}

/// Runs the case: pairs of runs.
///
/// # Errors
/// As `switchyard bench`; an exchange that fails.
pub(super) fn run(args: &LimitArgs, note: Note<'_>) -> Result<ManyReport> {
    let (warmup, measured) = (args.warmup(), args.seconds);
    let mut evenness = Vec::new();
    let report = compare(
        CASE.raw.name,
        Metric::RequestsPerSecond,
        args.runs.into(),
        &mut || {
            let (rate, p99_over_mean) = run_ours(args, warmup)?;
            evenness.push(p99_over_mean);
            Ok(rate)
        },
        &mut || {
            let core = |core: u32| Some(core as usize);
            let (server, client) = (core(args.target_core), core(args.load_core));
            Ok(run_many(&CASE, server, client, warmup, measured)?.exchanges_per_second)
        },
        note,
    )?;
    let p99_over_mean = RunSummary::of(&evenness).context("there is at least one run")?;
    let even = p99_over_mean.median <= P99_OVER_MEAN_MAX;
    Ok(ManyReport {
        within: even && report.fraction.median >= BOUND,
        report,
        bound: BOUND,
        p99_over_mean,
        p99_over_mean_bound: P99_OVER_MEAN_MAX,
    })
}

/// Runs this stack once; returns its rate, and its p99 divided by its mean.
fn run_ours(args: &LimitArgs, warmup: Duration) -> Result<(f64, f64)> {
    let target = Target::start(&[args.target_core], RAM_BYTES, &[])?;
    prefill(&target.connect(1)?)?;
    let remote = Remote {
        address: &target.address().to_string(),
        nqn: config::schema::DEFAULT_NQN,
        nsid: 1,
    };
    let hosts = u32::try_from(HOSTS).expect("a small number");
    // The keep-alive threads must not compete with the load by polling.
    let host = || {
        Ok(Host::builder()
            .poll(PollPolicy::Never)
            .knobs(Knobs::switchyard())
            .loss_timeout(Some(LOSS_TIMEOUT))
            .build()?)
    };
    let namespaces = remote.connect(hosts, None, &host)?;
    let app = format!(
        "many:rw=randread,bs={RESPONSE_BYTES},queues={QUEUES},depth={},cpu={}",
        CASE.raw.depth, args.load_core
    );
    let app: App = app.parse().context("an application of this case")?;
    let options = LoadOptions {
        warmup,
        measured: args.seconds,
        hosts,
        knobs: Knobs::switchyard(),
        ..LoadOptions::default()
    };
    let loads = loads_of_hosts(&[app], &namespaces);
    let report = load::run(&loads, &options, &AtomicBool::new(false), &mut |_| {})?;
    ensure!(report.errors() == 0, "{}", report.notes().join("; "));
    let app = &report.apps[0];
    Ok((app.iops, app.latency_us.p99 / app.latency_us.avg))
}

/// Bytes of a request's data.
const RESPONSE_BYTES: usize = CASE.raw.response_bytes - RESPONSE_HEADER_BYTES;
