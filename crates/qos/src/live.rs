//! Refits a device's curve to observations made in service. `[ReFlex §4.3]`
//!
//! A target in service cannot raise the load until read latency rises: it uses the present load,
//! adds a few reads of its own, and measures their latency at each token rate. That gives no
//! information on other rates, nor on prices; so [`refit`] replaces the observed part of a curve,
//! and keeps the rest. A curve holds for any mix, and some devices read faster while nothing is
//! written: a load with few writes may raise the curve's latencies, never lower them. Contradicting
//! observations give no newer curve. Invariant: no better latency for a rate or mix that was not
//! observed.

use crate::curve::{Curve, CurveError, Point};
use crate::limits::{
    CURVE_POINTS_MAX, FIT_SPREAD_PERMILLE_MAX, LIVE_MIXED_PERMILLE_MAX, LIVE_POINTS_MIN,
    LIVE_READS_MIN,
};
use crate::slo::Percentile;
use crate::tokens::TokenRate;
use base::Nanos;

#[cfg(test)]
#[cfg(not(loom))]
mod tests;

/// An observation of a device over some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    /// Token rate of all tenants together.
    pub rate: TokenRate,
    /// Share of reads in it, in thousandths of its units.
    pub read_permille: u16,
    /// Number of 4 KiB reads timed.
    pub reads: u64,
    /// Their latency at each [`Percentile`].
    pub latency: [Nanos; Percentile::COUNT],
}

/// A newer curve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refit {
    /// The curve.
    pub curve: Curve,
    /// Lowest and highest observed rate.
    pub seen: (TokenRate, TokenRate),
    /// Maximum deviation of a p95 from a curve that rises with the load, in thousandths.
    pub spread_permille: u32,
    /// Observations used.
    pub used: usize,
    /// p95 at the highest observed rate: by the old curve (`None` beyond its end), and by the new
    /// one.
    pub highest: (Option<Nanos>, Nanos),
}

/// Why there is no newer curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LiveError {
    /// Too few observations.
    #[error(
        "too few data: {enough} of {all} observations have at least {LIVE_READS_MIN} reads, but \
         {LIVE_POINTS_MIN} are needed; increase --seconds or --share"
    )]
    TooFew {
        /// Observations with enough reads.
        enough: usize,
        /// All observations.
        all: usize,
    },
    /// The observations contradict each other.
    #[error(
        "the observations contradict each other: p95 latencies deviate by {spread} ‰ from a curve \
         that rises with the load (limit {FIT_SPREAD_PERMILLE_MAX} ‰); increase --seconds, reduce \
         --share, or retry under a steadier load"
    )]
    Noise {
        /// Spread in thousandths.
        spread: u32,
    },
    /// The points do not form a curve.
    #[error(transparent)]
    Curve(#[from] CurveError),
}

/// Replaces a part of a curve by observations.
///
/// Below the lowest observed rate of a mix, latency is at most that observed there; above the
/// highest, at least that observed there, and otherwise that of `old`.
///
/// # Errors
/// If there are too few observations, or they contradict each other.
pub fn refit(old: &Curve, seen: &[Observation]) -> Result<Refit, LiveError> {
    let mut used: Vec<Observation> = seen
        .iter()
        .copied()
        .filter(|one| one.reads >= LIVE_READS_MIN && one.rate.0 > 0)
        .collect();
    if used.len() < LIVE_POINTS_MIN {
        let (enough, all) = (used.len(), seen.len());
        return Err(LiveError::TooFew { enough, all });
    }
    used.sort_by_key(|one| one.rate);
    let p95 = |one: &Observation| one.latency[Percentile::P95 as usize];
    let of = |mixed: bool| used.iter().filter(move |one| one.is_mixed() == mixed);
    let spreads = [true, false].map(|mixed| spread(&of(mixed).map(p95).collect::<Vec<_>>()));
    let spread = spreads[0].max(spreads[1]);
    if spread > FIT_SPREAD_PERMILLE_MAX {
        return Err(LiveError::Noise { spread });
    }
    let (mixed, alone): (Vec<_>, Vec<_>) = used.iter().partition(|one| one.is_mixed());
    let curve = if mixed.len() < LIVE_POINTS_MIN {
        raised(old, &used)?
    } else {
        raised(&replaced(old, &mixed)?, &alone)?
    };
    let (first, last) = (used[0], used[used.len() - 1]);
    let highest = curve.latency_at(Percentile::P95, last.rate);
    Ok(Refit {
        seen: (first.rate, last.rate),
        spread_permille: spread,
        used: used.len(),
        highest: (
            old.latency_at(Percentile::P95, last.rate),
            highest.unwrap_or(p95(&last)),
        ),
        curve,
    })
}

/// Returns the curve with its points in the observed range replaced by the observations, which are
/// in the order of their rates.
fn replaced(old: &Curve, seen: &[Observation]) -> Result<Curve, CurveError> {
    let (first, last) = (seen[0], seen[seen.len() - 1]);
    let below = old.points().iter().take_while(|one| one.rate < first.rate);
    let mut points: Vec<Point> = below
        .map(|&Point { rate, latency }| Point {
            rate,
            latency: each(latency, first.latency, Ord::min),
        })
        .collect();
    for one in seen {
        push(&mut points, one.rate, one.latency);
    }
    // Directly above the observed range the old curve continues at its old value, not on a line
    // from here.
    let next = TokenRate(last.rate.0 + 1);
    if let Some(latency) = at(old, next) {
        push(&mut points, next, latency);
    }
    points.extend(old.points().iter().filter(|one| one.rate > next));
    Curve::new(thinned(points))
}

/// Returns the curve, raised to the observations where these are higher.
fn raised(old: &Curve, seen: &[Observation]) -> Result<Curve, CurveError> {
    let mut rates: Vec<TokenRate> = old.points().iter().map(|one| one.rate).collect();
    rates.extend(seen.iter().map(|one| one.rate));
    rates.sort_unstable();
    let mut points = Vec::with_capacity(rates.len());
    for rate in rates {
        push(&mut points, rate, at(old, rate).unwrap_or_default());
        for one in seen.iter().filter(|one| one.rate == rate) {
            push(&mut points, rate, one.latency);
        }
    }
    Curve::new(thinned(points))
}

impl Observation {
    /// Returns true if the share of writes is high enough to represent any mix.
    const fn is_mixed(&self) -> bool {
        self.read_permille <= LIVE_MIXED_PERMILLE_MAX
    }
}

/// Returns all latencies at a rate; `None` beyond the end of the curve.
fn at(curve: &Curve, rate: TokenRate) -> Option<[Nanos; Percentile::COUNT]> {
    let mut latency = [Nanos::ZERO; Percentile::COUNT];
    for (latency, percentile) in latency.iter_mut().zip(Percentile::ALL) {
        *latency = curve.latency_at(percentile, rate)?;
    }
    Some(latency)
}

/// Adds a point; at an existing rate, the higher latencies are kept.
fn push(points: &mut Vec<Point>, rate: TokenRate, latency: [Nanos; Percentile::COUNT]) {
    match points.last_mut() {
        Some(last) if last.rate >= rate => last.latency = each(last.latency, latency, Ord::max),
        _ => points.push(Point { rate, latency }),
    }
}

fn each(
    a: [Nanos; Percentile::COUNT],
    b: [Nanos; Percentile::COUNT],
    of: fn(Nanos, Nanos) -> Nanos,
) -> [Nanos; Percentile::COUNT] {
    let mut all = a;
    for (one, other) in all.iter_mut().zip(b) {
        *one = of(*one, other);
    }
    all
}

/// Reduces the points to the maximum of a curve. Each group is replaced by a point with the first
/// rate and the last latency, so that no latency improves.
fn thinned(points: Vec<Point>) -> Vec<Point> {
    let step = points.len().div_ceil(CURVE_POINTS_MAX - 1);
    if points.len() <= CURVE_POINTS_MAX {
        return points;
    }
    let last = points[points.len() - 1];
    let kept = points[..points.len() - 1].chunks(step);
    let kept = kept.map(|chunk| Point {
        rate: chunk[0].rate,
        latency: chunk.iter().fold(chunk[0].latency, |all, one| {
            each(all, one.latency, Ord::max)
        }),
    });
    kept.chain([last]).collect()
}

/// Returns the maximum deviation, in thousandths, of latencies in the order of their loads from a
/// curve that never falls: adjacent values that fall are pooled, and compared with their mean.
fn spread(latencies: &[Nanos]) -> u32 {
    // Sums of adjacent values, and their number.
    let mut pools: Vec<(u128, u128)> = Vec::new();
    for latency in latencies {
        let mut pool = (u128::from(latency.0), 1);
        while let Some(&(sum, count)) = pools.last() {
            // Compares the means.
            if sum * pool.1 <= pool.0 * count {
                break;
            }
            pools.pop();
            pool = (pool.0 + sum, pool.1 + count);
        }
        pools.push(pool);
    }
    let means = pools
        .iter()
        .flat_map(|&(sum, count)| (0..count).map(move |_| sum / count));
    let off = latencies.iter().zip(means).map(|(latency, mean)| {
        let permille = u128::from(latency.0).abs_diff(mean) * 1000 / mean.max(1);
        u32::try_from(permille).unwrap_or(u32::MAX)
    });
    off.max().unwrap_or(0)
}
