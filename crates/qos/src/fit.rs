//! Fits a device's model to measured loads: calibration without the measurement. `[ReFlex §3.2.1]`
//!
//! Loads of several read shares were raised until read latency rose. The weight of a write is the
//! one that makes their curves, p95 by tokens per second, coincide: the logarithms of the token
//! rates at several latencies differ least. The remaining spread is the quality of the model; a
//! large spread is an error. The curve for admission is the upper envelope, so that no measured
//! load is slower than the curve.
//!
//! The only module of this crate with floating point: it is not on the request path. Invariant:
//! every price comes from the measurements or from the caller.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "statistics of measured numbers, in range by construction"
)]

use crate::cost::{CostModel, Price, units};
use crate::curve::{Curve, CurveError, Point};
use crate::limits::{
    CURVE_POINTS_MAX, FIT_KNEE, FIT_LATENCIES, FIT_LATENCY_FROM, FIT_LATENCY_SPAN, FIT_SHARES_MIN,
    FIT_SPREAD_PERMILLE_MAX, FIT_SUSTAINED_PERMILLE, PRICE_MILLI_MAX, RATE_MAX, UNIT_BYTES,
};
use crate::slo::Percentile;
use crate::tokens::TokenRate;
use base::Nanos;
use std::collections::BTreeMap;
use std::fmt;

#[cfg(test)]
mod tests;

/// Only reads, in thousandths.
const ALL: u16 = 1000;

/// A load and its measured result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measurement {
    /// The kind of load.
    pub kind: Kind,
    /// Offered requests per second.
    pub offered: u64,
    /// Completed requests per second.
    pub achieved: u64,
    /// Read latency at each [`Percentile`].
    pub latency: [Nanos; Percentile::COUNT],
}

impl Measurement {
    /// Returns true if the device kept up with the offered load.
    #[must_use]
    pub const fn sustained(&self) -> bool {
        self.achieved as u128 * 1000 >= self.offered as u128 * FIT_SUSTAINED_PERMILLE as u128
    }
}

/// A kind of load, whose rate is raised step by step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind {
    /// Bytes per request.
    pub request_bytes: u32,
    /// Share of reads in thousandths: 1 to 1000.
    pub read_permille: u16,
}

impl Kind {
    /// Requests of one unit.
    #[must_use]
    pub const fn unit(read_permille: u16) -> Self {
        Self {
            request_bytes: UNIT_BYTES as u32,
            read_permille,
        }
    }

    /// Returns the units per request.
    #[must_use]
    pub fn units(self) -> u32 {
        units(self.request_bytes.into())
    }

    /// Returns the tokens of a mean request.
    fn weight(self, write: f64, read_only: f64) -> f64 {
        let each = if self.read_permille == ALL {
            read_only
        } else {
            let reads = f64::from(self.read_permille) / f64::from(ALL);
            reads + (1.0 - reads) * write
        };
        each * f64::from(self.units())
    }

    /// Returns the tokens per second of `iops` requests per second at the prices of a fit.
    #[must_use]
    pub fn tokens_per_second(self, iops: f64, fit: &Fit) -> f64 {
        iops * self.weight(tokens(fit.write), tokens(fit.read_only_read))
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (percent, tenth) = (self.read_permille / 10, self.read_permille % 10);
        write!(f, "{percent}")?;
        if tenth > 0 {
            write!(f, ".{tenth}")?;
        }
        write!(f, " % reads of {} bytes", self.request_bytes)
    }
}

/// Prices known to the caller; the remaining prices are fitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// Price of a written unit; `None` to fit it.
    pub write: Option<Price>,
    /// Price of a read unit under a read-only load; `None` to fit it.
    pub read_only_read: Option<Price>,
}

/// The result of a fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fit {
    /// Price of a written unit.
    pub write: Price,
    /// Range of this price if any one read share is left out; `None` if the price was given.
    pub write_range: Option<(Price, Price)>,
    /// Price of a read unit under a read-only load.
    pub read_only_read: Price,
    /// Latency of 4 KiB reads by token rate, of the slowest load at each rate.
    pub curve: Curve,
    /// Spread of the token rates of mixed loads at equal latency, in thousandths: half of the range
    /// relative to its middle, at the worst latency. `None` without mixed loads.
    pub spread_permille: Option<u32>,
    /// The same spread including the read-only load.
    pub read_only_spread_permille: Option<u32>,
    /// Costs of requests of other sizes.
    pub sizes: Vec<SizeFit>,
    /// Latencies at which the curves were compared.
    pub latencies: Vec<Nanos>,
}

/// Cost of requests of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeFit {
    /// Kind of load.
    pub kind: Kind,
    /// Units of 4 KiB by the model.
    pub units: u32,
    /// Units by the measurement relative to 4 KiB at the same read share, in thousandths.
    pub measured_milli: u32,
}

impl Fit {
    /// Returns the cost model.
    #[must_use]
    pub fn costs(&self) -> CostModel {
        CostModel::new(self.write, self.read_only_read)
    }
}

/// Why measurements do not give a model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FitError {
    /// No load of 4 KiB requests.
    #[error("no load with 4 KiB requests was measured")]
    Nothing,
    /// The price of a write cannot be determined.
    #[error(
        "the cost of a write is unknown: {0} read percentages with writes were measured, but \
         {FIT_SHARES_MIN} are needed; allow writes, or give the cost"
    )]
    WriteUnknown(usize),
    /// Read latency did not rise at the highest rate of a load.
    #[error(
        "{kind}: the load was too low: p95 read latencies were {first} to {last}, but {needed} is \
         needed; raise the load further"
    )]
    NoKnee {
        /// Kind of load.
        kind: Kind,
        /// p95 at the lowest rate.
        first: Nanos,
        /// p95 at the highest rate.
        last: Nanos,
        /// Required minimum of the latter.
        needed: Nanos,
    },
    /// The curves are too far apart.
    #[error(
        "the measurements contradict each other: with the best fit (write cost {write_milli} \
         thousandths of a token), token rates at equal latency differ by {spread} ‰ (limit \
         {FIT_SPREAD_PERMILLE_MAX} ‰); measure for longer on an otherwise idle machine; otherwise \
         this device has no single write cost"
    )]
    Noise {
        /// Spread in thousandths.
        spread: u32,
        /// Price in thousandths of a token.
        write_milli: u32,
    },
    /// The points of a load do not form a curve.
    #[error("{kind}: {error}")]
    Curve {
        /// Kind of load.
        kind: Kind,
        /// Error.
        error: CurveError,
    },
    /// A price above the limit.
    #[error(
        "{kind}: the result is an invalid cost of {milli} thousandths of a token; measure for \
        longer"
    )]
    Price {
        /// Kind of load.
        kind: Kind,
        /// Price in thousandths of a token.
        milli: u64,
    },
}

/// Finds the prices and the curve.
///
/// # Errors
/// If too little was measured, the rates were too low, or the measurements contradict each other;
/// each error states what to do.
pub fn fit(measured: &[Measurement], known: Known) -> Result<Fit, FitError> {
    let lines = LoadPoints::all(measured)?;
    let unit = |line: &&LoadPoints| line.kind.request_bytes == Kind::unit(ALL).request_bytes;
    let mixed: Vec<&LoadPoints> = lines
        .iter()
        .filter(unit)
        .filter(|line| !line.only_reads())
        .collect();
    let alone = lines.iter().filter(unit).find(|line| line.only_reads());
    let compared: Vec<&LoadPoints> = mixed.iter().copied().chain(alone).collect();
    if compared.is_empty() {
        return Err(FitError::Nothing);
    }
    if mixed.len() < FIT_SHARES_MIN && known.write.is_none() {
        return Err(FitError::WriteUnknown(mixed.len()));
    }
    let latencies = latencies(&compared)?;
    let at_each = |line: &LoadPoints| line.rates(&latencies);
    let loads: Vec<Load> = mixed
        .iter()
        .map(|line| (line.kind, at_each(line)))
        .collect();
    let write = match known.write {
        Some(price) => price,
        None => price(best_write(&loads), Kind::unit(0))?,
    };
    let spread_permille = (mixed.len() > 1).then(|| spread(&loads, tokens(write)));
    agree(spread_permille, write)?;
    let alone = alone.map(at_each).filter(|_| !loads.is_empty());
    let read_only_read = match (known.read_only_read, &alone) {
        (Some(price), _) => price,
        (None, Some(rates)) => price(read_only(&loads, tokens(write), rates), Kind::unit(ALL))?,
        (None, _) => Price::READ,
    };
    let read_only_spread_permille =
        alone.map(|rates| read_only_spread(&loads, tokens(write), &rates, tokens(read_only_read)));
    agree(read_only_spread_permille, write)?;
    let weigh = |line: &LoadPoints| line.weighted(tokens(write), tokens(read_only_read));
    let weighted = compared
        .iter()
        .map(|line| weigh(line))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(Fit {
        write,
        write_range: known.write.is_none().then(|| range(&loads)).flatten(),
        read_only_read,
        curve: envelope(&weighted).map_err(|error| FitError::Curve {
            kind: compared[0].kind,
            error,
        })?,
        spread_permille,
        read_only_spread_permille,
        sizes: sizes(&lines, &latencies),
        latencies,
    })
}

/// Rejects curves that are too far apart.
fn agree(spread: Option<u32>, write: Price) -> Result<(), FitError> {
    match spread {
        Some(spread) if spread > FIT_SPREAD_PERMILLE_MAX => Err(FitError::Noise {
            spread,
            write_milli: write.as_milli(),
        }),
        _ => Ok(()),
    }
}

/// Requests per second of a kind of load at each of the compared latencies.
type Load = (Kind, Vec<f64>);

/// The points of one kind of load.
#[derive(Debug)]
struct LoadPoints {
    kind: Kind,
    /// Its rates are requests per second.
    curve: Curve,
}

impl LoadPoints {
    /// Builds the curves of all kinds, each in the order of its loads.
    fn all(measured: &[Measurement]) -> Result<Vec<Self>, FitError> {
        let mut kinds: BTreeMap<Kind, Vec<Measurement>> = BTreeMap::new();
        for &measurement in measured {
            kinds.entry(measurement.kind).or_default().push(measurement);
        }
        let lines = kinds.into_iter().map(|(kind, mut points)| {
            points.sort_by_key(|point| point.offered);
            Self::of(kind, &points)
        });
        lines.collect()
    }

    fn of(kind: Kind, measured: &[Measurement]) -> Result<Self, FitError> {
        let mut points: Vec<Point> = Vec::with_capacity(measured.len());
        for &Measurement {
            achieved, latency, ..
        } in measured
        {
            // Beyond its limit a device completes no more requests, and requests wait longer.
            let least = points.last().map_or(1, |point| point.rate.0 + 1);
            let rate = TokenRate(achieved.max(least));
            points.push(Point { rate, latency });
        }
        let curve = Curve::new(points).map_err(|error| FitError::Curve { kind, error })?;
        Ok(Self { kind, curve })
    }

    fn only_reads(&self) -> bool {
        self.kind.read_permille == ALL
    }

    /// Returns the p95 at the lowest and at the highest load.
    fn span(&self) -> (Nanos, Nanos) {
        let p95 = |point: &Point| point.latency[Percentile::P95 as usize];
        let points = self.curve.points();
        (p95(&points[0]), p95(&points[points.len() - 1]))
    }

    /// Returns the requests per second at which the p95 has each of these latencies.
    fn rates(&self, latencies: &[Nanos]) -> Vec<f64> {
        let rate = |&latency| self.curve.rate_for(Percentile::P95, latency);
        let rates = latencies.iter().map(|latency| {
            let rate = rate(latency).expect("latencies lie between the lowest and the highest");
            rate.0 as f64
        });
        rates.collect()
    }

    /// Returns the curve by tokens per second.
    fn weighted(&self, write: f64, read_only: f64) -> Result<Curve, FitError> {
        let weight = self.kind.weight(write, read_only);
        let mut points = Vec::with_capacity(self.curve.points().len());
        for point in self.curve.points() {
            let least = points.last().map_or(1, |point: &Point| point.rate.0 + 1);
            let rate = ((point.rate.0 as f64 * weight) as u64).clamp(least, RATE_MAX);
            points.push(Point {
                rate: TokenRate(rate),
                ..*point
            });
        }
        Curve::new(points).map_err(|error| FitError::Curve {
            kind: self.kind,
            error,
        })
    }
}

/// Returns the latencies at which curves are compared: equidistant on a logarithmic scale, from
/// where load increases latency to the highest latency that every load reached.
fn latencies(lines: &[&LoadPoints]) -> Result<Vec<Nanos>, FitError> {
    let first = lines.iter().map(|line| line.span().0).max();
    let from = first
        .expect("there are lines")
        .0
        .saturating_mul(FIT_LATENCY_FROM);
    let needed = Nanos(from.saturating_mul(FIT_KNEE));
    let mut to = Nanos(u64::MAX);
    for line in lines {
        let (first, last) = line.span();
        if last < needed {
            let kind = line.kind;
            return Err(FitError::NoKnee {
                kind,
                first,
                last,
                needed,
            });
        }
        to = to.min(last);
    }
    let to = to.0.min(from.saturating_mul(FIT_LATENCY_SPAN));
    let step = (to as f64 / from as f64).powf(1.0 / (FIT_LATENCIES - 1) as f64);
    let latencies = (0..FIT_LATENCIES).map(|number| {
        let latency = from as f64 * step.powi(i32::try_from(number).expect("a few"));
        Nanos((latency as u64).min(to))
    });
    Ok(latencies.collect())
}

/// Returns the price of a write, in tokens, with the smallest difference of token rates. The
/// difference has one minimum, found by golden-section search.
fn best_write(loads: &[Load]) -> f64 {
    const GOLDEN: f64 = 0.618_033_988_749_895;
    let differs = |log_write: f64| difference(loads, log_write.exp());
    let most = f64::from(PRICE_MILLI_MAX) / 1e3;
    let (mut low, mut high) = ((1.0 / most).ln(), most.ln());
    while high - low > 1e-6 {
        let step = (high - low) * GOLDEN;
        if differs(high - step) < differs(low + step) {
            high = low + step;
        } else {
            low = high - step;
        }
    }
    low.midpoint(high).exp()
}

/// Returns the squared differences of the token rates' logarithms from their mean, over all
/// latencies.
fn difference(loads: &[Load], write: f64) -> f64 {
    at_each_latency(loads, write)
        .map(|rates| {
            let logs: Vec<f64> = rates.iter().map(|rate| rate.ln()).collect();
            let mean = mean(&logs);
            logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>()
        })
        .sum()
}

/// Returns the token rates of all loads at each latency.
fn at_each_latency(loads: &[Load], write: f64) -> impl Iterator<Item = Vec<f64>> + '_ {
    let count = loads.first().map_or(0, |(_, rates)| rates.len());
    (0..count).map(move |at| {
        let weighted = |(kind, rates): &Load| rates[at] * kind.weight(write, 1.0);
        loads.iter().map(weighted).collect()
    })
}

/// Returns half of the range of the token rates, in thousandths of its middle, at the worst
/// latency.
fn spread(loads: &[Load], write: f64) -> u32 {
    let worst = at_each_latency(loads, write)
        .map(|rates| apart(&rates))
        .fold(0.0, f64::max);
    (worst * 1e3).round() as u32
}

fn apart(rates: &[f64]) -> f64 {
    let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
    let most = rates.iter().copied().fold(0.0, f64::max);
    (most - least) / (most + least)
}

/// Returns the range of the write price with each of the read shares left out.
fn range(loads: &[Load]) -> Option<(Price, Price)> {
    let without = |out: usize| {
        let mut others = loads.to_vec();
        others.remove(out);
        best_write(&others)
    };
    let prices: Vec<f64> = (0..loads.len()).map(without).collect();
    let least = prices.iter().copied().fold(f64::INFINITY, f64::min);
    let most = prices.iter().copied().fold(0.0, f64::max);
    let price = |tokens| price(tokens, Kind::unit(0)).ok();
    Some((price(least)?, price(most)?))
}

/// Returns the price of a read under a read-only load. The price that makes its token rates equal
/// those of mixed loads depends on the latency, because read-only loads with shorter requests queue
/// less; the highest price is used, so that read-only loads are nowhere slower than the curve.
fn read_only(loads: &[Load], write: f64, alone: &[f64]) -> f64 {
    let mixed = at_each_latency(loads, write).map(|rates| geometric_mean(&rates));
    mixed
        .zip(alone)
        .map(|(tokens, reads)| tokens / reads)
        .fold(0.0, f64::max)
}

fn read_only_spread(loads: &[Load], write: f64, alone: &[f64], price: f64) -> u32 {
    let mixed = at_each_latency(loads, write).map(|rates| geometric_mean(&rates));
    let apart = mixed
        .zip(alone)
        .map(|(tokens, reads)| apart(&[tokens, reads * price]));
    (apart.fold(0.0, f64::max) * 1e3).round() as u32
}

/// Returns the costs of requests of sizes other than 4 KiB, relative to 4 KiB at the same read
/// share.
fn sizes(lines: &[LoadPoints], latencies: &[Nanos]) -> Vec<SizeFit> {
    let fits = lines.iter().filter_map(|line| {
        let Kind {
            request_bytes,
            read_permille,
        } = line.kind;
        let unit = lines
            .iter()
            .find(|line| line.kind == Kind::unit(read_permille))?;
        if std::ptr::eq(unit, line) {
            return None;
        }
        let (first, last) = line.span();
        let common: Vec<Nanos> = latencies
            .iter()
            .copied()
            .filter(|latency| (first..=last).contains(latency))
            .collect();
        if common.is_empty() {
            return None;
        }
        let quotients = unit.rates(&common).into_iter().zip(line.rates(&common));
        let quotients: Vec<f64> = quotients.map(|(unit, line)| unit / line).collect();
        Some(SizeFit {
            kind: line.kind,
            units: units(request_bytes.into()),
            measured_milli: (geometric_mean(&quotients) * 1e3).round() as u32,
        })
    });
    fits.collect()
}

/// Builds the curve with the highest latency of all loads at each rate, up to the highest rate that
/// all of them reached.
fn envelope(curves: &[Curve]) -> Result<Curve, CurveError> {
    let end = curves
        .iter()
        .map(Curve::capacity)
        .min()
        .expect("there are curves");
    let all = curves.iter().flat_map(Curve::points);
    let mut rates: Vec<TokenRate> = all
        .map(|point| point.rate)
        .filter(|&rate| rate <= end)
        .collect();
    rates.push(end);
    rates.sort_unstable();
    rates.dedup();
    // If there are too many points, some are left out; the last one stays.
    let step = rates.len().div_ceil(CURVE_POINTS_MAX);
    let kept = rates.iter().rev().step_by(step).rev();
    let points = kept.map(|&rate| {
        let latency = Percentile::ALL.map(|percentile| {
            let at = |curve: &Curve| curve.latency_at(percentile, rate);
            let latest = curves.iter().filter_map(at).max();
            latest.expect("no curve ends before")
        });
        Point { rate, latency }
    });
    Curve::new(points.collect())
}

fn tokens(price: Price) -> f64 {
    f64::from(price.as_milli()) / 1e3
}

fn price(tokens: f64, kind: Kind) -> Result<Price, FitError> {
    let milli = (tokens * 1e3).round() as u64;
    let price = u32::try_from(milli)
        .ok()
        .and_then(|milli| Price::milli(milli).ok());
    // A minimum at the end of the search interval is no result.
    let found = price.filter(|price| (2..PRICE_MILLI_MAX - 1).contains(&price.as_milli()));
    found.ok_or(FitError::Price { kind, milli })
}

fn mean(numbers: &[f64]) -> f64 {
    numbers.iter().sum::<f64>() / numbers.len() as f64
}

fn geometric_mean(numbers: &[f64]) -> f64 {
    let logs: Vec<f64> = numbers.iter().map(|number| number.ln()).collect();
    mean(&logs).exp()
}
