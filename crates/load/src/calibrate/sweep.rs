//! Raises loads until reads are late.
//!
//! The first kind is read-only and yields the approximate speed of the device. All other kinds
//! begin at a small fraction of it, which is a negligible load whatever a write costs. Each load is
//! then doubled until its reads are late or the device does not keep up. Finally the steps across
//! which latency rises most are halved, so that most loads are where the curve bends.

use super::Probe;
use super::plan::{Plan, Steps};
use anyhow::{Result, ensure};
use base::Nanos;
use qos::Percentile;
use qos::fit::{Kind, Measurement};
use qos::limits::{FIT_LATENCY_FROM, FIT_LATENCY_SPAN};

/// Rate of the very first load: a slow device keeps up with it, and a fast one is not yet busy.
const FIRST_IOPS: u64 = 1_000;
/// Highest rate tried: ten times that of any device.
const MOST_IOPS: u64 = 100_000_000;
/// Lowest rate tried.
const LEAST_IOPS: u64 = 10;
/// A negligible load is the device's read rate divided by this number: with one write per read,
/// each at the cost of 20 reads, it is a twentieth of the capacity.
const UNLOADED_DIVISOR: u64 = 200;
/// Loads closer together than this many thousandths count as the same.
const CLOSE_PERMILLE: u64 = 15;

/// Progress of a calibration.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// The next kind of load.
    pub kind: Kind,
    /// Requests a second.
    pub iops: u64,
    /// Index of that kind, from 0.
    pub number: usize,
    /// Number of kinds.
    pub kinds: usize,
    /// Loads of this kind so far.
    pub loads: usize,
    /// Most loads of a kind.
    pub most: usize,
}

/// A sweep over all kinds.
pub(super) struct Sweep<'a> {
    plan: &'a Plan,
    /// First load of all kinds but the first.
    unloaded: Option<u64>,
    /// p95 from which reads are late.
    late: Nanos,
}

impl<'a> Sweep<'a> {
    pub(super) fn new(plan: &'a Plan) -> Self {
        Self {
            plan,
            unloaded: None,
            late: Nanos::ZERO,
        }
    }

    /// Measures all kinds.
    pub(super) fn run(
        mut self,
        probe: &mut dyn Probe,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Vec<Measurement>> {
        let mut all = Vec::new();
        for (number, &kind) in self.plan.kinds.iter().enumerate() {
            let mut line = RaisedLoad {
                kind,
                points: Vec::new(),
                steps: self.plan.steps,
                number,
                kinds: self.plan.kinds.len(),
                probe,
                progress,
            };
            self.raise(&mut line)?;
            line.refine(self.late)?;
            all.append(&mut line.points);
        }
        Ok(all)
    }

    /// Doubles a load until reads are late.
    fn raise(&mut self, line: &mut RaisedLoad<'_>) -> Result<()> {
        let first = line.unloaded(self.unloaded.unwrap_or(FIRST_IOPS))?;
        // Latencies are compared up to this multiple of the highest one without load.
        let late = p95(&first)
            .0
            .saturating_mul(FIT_LATENCY_FROM * FIT_LATENCY_SPAN);
        self.late = self.late.max(Nanos(late));
        let mut iops = first.offered;
        while !line.is_late(self.late) && line.points.len() < line.steps.most && iops < MOST_IOPS {
            // The first kind starts from a guess, which is further from the limit than a fraction
            // of a known rate.
            iops = (iops * if self.unloaded.is_some() { 2 } else { 4 }).min(MOST_IOPS);
            line.measure(iops)?;
        }
        if self.unloaded.is_none() {
            let most = line.points.iter().map(|point| point.achieved).max();
            let most = most.expect("something was measured");
            self.unloaded = Some((most / UNLOADED_DIVISOR).max(LEAST_IOPS));
        }
        Ok(())
    }
}

/// One kind of load while it is raised.
struct RaisedLoad<'a> {
    kind: Kind,
    /// In the order of the requested rates.
    points: Vec<Measurement>,
    steps: Steps,
    number: usize,
    kinds: usize,
    probe: &'a mut dyn Probe,
    progress: &'a mut dyn FnMut(Progress),
}

impl RaisedLoad<'_> {
    fn measure(&mut self, iops: u64) -> Result<Measurement> {
        (self.progress)(Progress {
            kind: self.kind,
            iops,
            number: self.number,
            kinds: self.kinds,
            loads: self.points.len(),
            most: self.steps.most,
        });
        let measured = self.probe.measure(self.kind, iops)?;
        ensure!(
            measured.achieved > 0 && p95(&measured) > Nanos::ZERO,
            "{}: no read completed in the measured time at {iops} requests/s; measure for longer",
            self.kind
        );
        let at = self.points.partition_point(|point| point.offered < iops);
        self.points.insert(at, measured);
        Ok(measured)
    }

    /// The first load that the device keeps up with, at `iops` or less.
    fn unloaded(&mut self, iops: u64) -> Result<Measurement> {
        let mut iops = iops;
        loop {
            let first = self.measure(iops)?;
            if first.sustained() {
                return Ok(first);
            }
            ensure!(
                iops > LEAST_IOPS,
                "{}: the device does not sustain the lowest rate of {iops} requests/s ({} \
                 completed)",
                self.kind,
                first.achieved
            );
            self.points.clear();
            iops = (iops / 10).max(LEAST_IOPS);
        }
    }

    /// Returns true if the highest load was too much.
    fn is_late(&self, late: Nanos) -> bool {
        let last = self.points.last();
        last.is_some_and(|last| p95(last) >= late || !last.sustained())
    }

    /// Halves the steps across which the p95 rises most.
    fn refine(&mut self, late: Nanos) -> Result<()> {
        let enough = 1.0 + f64::from(self.steps.rise_percent) / 100.0;
        while self.points.len() < self.steps.most {
            let rise = |pair: &[Measurement]| {
                let latency = |point| p95(point).min(late).0 as f64;
                latency(&pair[1]) / latency(&pair[0])
            };
            let wide = |pair: &&[Measurement]| {
                let [low, high] = [pair[0].offered, pair[1].offered];
                (high - low) * 1000 > low * CLOSE_PERMILLE && rise(pair) > enough
            };
            let steps = self.points.windows(2).filter(wide);
            let Some(widest) = steps.max_by(|a, b| rise(a).total_cmp(&rise(b))) else {
                break;
            };
            let middle = widest[0].offered.midpoint(widest[1].offered);
            self.measure(middle)?;
        }
        Ok(())
    }
}

fn p95(point: &Measurement) -> Nanos {
    point.latency[Percentile::P95 as usize]
}
