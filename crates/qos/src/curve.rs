//! The curve: measured read latency by load of a device. `[ReFlex §3.2.1, Fig. 3]`
//!
//! Calibration measures points; admission queries the token rate that keeps a latency, and the
//! latency at a rate. A curve is linear between two points. It assumes nothing beyond the last
//! point, and no latency is attainable below the first. Invariant: no rate is returned at which the
//! measured latency exceeds the limit.

use crate::limits::{CURVE_POINTS_MAX, RATE_MAX};
use crate::slo::Percentile;
use crate::tokens::TokenRate;
use base::Nanos;

/// Read latencies at one load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// The load, in tokens per second.
    pub rate: TokenRate,
    /// The latency at each [`Percentile`], in the order of [`Percentile::ALL`].
    pub latency: [Nanos; Percentile::COUNT],
}

/// A device's curve; latencies never fall as the load rises.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Curve {
    points: Vec<Point>,
}

#[cfg(test)]
thread_local! {
    /// Calls of [`Curve::rate_for`] on this thread.
    pub(crate) static LOOK_UPS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Why points do not form a curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CurveError {
    /// Too few or too many points: their number.
    #[error("the curve has {0} points; use 1 to {CURVE_POINTS_MAX}")]
    Points(usize),
    /// A load not above its predecessor: index of the point.
    #[error(
        "the rate of point {0} is not higher than that of the previous point; sort the points, \
        each rate once"
    )]
    Order(usize),
    /// A load out of range: index of the point.
    #[error("point {0} has a rate out of range; use 1 to {RATE_MAX} tokens/s")]
    Rate(usize),
    /// A latency out of range: index of the point.
    #[error("point {0} has a latency of zero, or a percentile below a lower percentile")]
    Latency(usize),
}

/// A latency that the device exceeds at every load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{percentile} is {best} even at {rate}, the lowest load measured")]
pub struct Unattainable {
    /// The requested percentile.
    pub percentile: Percentile,
    /// Latency at the lowest load.
    pub best: Nanos,
    /// The lowest load.
    pub rate: TokenRate,
}

impl Curve {
    /// A curve through points in the order of their loads. Where a latency falls as the load rises,
    /// which is noise, the higher latency is used from there on.
    ///
    /// # Errors
    /// If there are no points or too many, or a point is out of order or range.
    pub fn new(mut points: Vec<Point>) -> Result<Self, CurveError> {
        if !(1..=CURVE_POINTS_MAX).contains(&points.len()) {
            return Err(CurveError::Points(points.len()));
        }
        let mut before: Option<Point> = None;
        for (at, point) in points.iter_mut().enumerate() {
            if !(1..=RATE_MAX).contains(&point.rate.0) {
                return Err(CurveError::Rate(at));
            }
            if point.latency[0] == Nanos::ZERO || !point.latency.is_sorted() {
                return Err(CurveError::Latency(at));
            }
            if let Some(before) = before {
                if point.rate <= before.rate {
                    return Err(CurveError::Order(at));
                }
                for (latency, floor) in point.latency.iter_mut().zip(before.latency) {
                    *latency = (*latency).max(floor);
                }
            }
            before = Some(*point);
        }
        Ok(Self { points })
    }

    /// Returns the points.
    #[must_use]
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// Returns the highest measured load.
    #[must_use]
    pub fn capacity(&self) -> TokenRate {
        self.points[self.points.len() - 1].rate
    }

    /// Returns the highest load that keeps a latency, rounded down.
    ///
    /// # Errors
    /// If even the lowest load exceeds it.
    pub fn rate_for(
        &self,
        percentile: Percentile,
        latency: Nanos,
    ) -> Result<TokenRate, Unattainable> {
        #[cfg(test)]
        LOOK_UPS.with(|count| count.set(count.get() + 1));
        let at = |point: &Point| point.latency[percentile as usize];
        let above = self.points.partition_point(|point| at(point) <= latency);
        let Some(low) = above.checked_sub(1).map(|below| &self.points[below]) else {
            let first = &self.points[0];
            let (best, rate) = (at(first), first.rate);
            return Err(Unattainable {
                percentile,
                best,
                rate,
            });
        };
        let Some(high) = self.points.get(above) else {
            return Ok(low.rate);
        };
        let step = scale(
            high.rate.0 - low.rate.0,
            latency.0 - at(low).0,
            at(high).0 - at(low).0,
        );
        Ok(TokenRate(low.rate.0 + step))
    }

    /// Returns the latency at a load, rounded up; `None` beyond the measured loads.
    #[must_use]
    pub fn latency_at(&self, percentile: Percentile, rate: TokenRate) -> Option<Nanos> {
        let at = |point: &Point| point.latency[percentile as usize];
        let above = self.points.partition_point(|point| point.rate < rate);
        let high = self.points.get(above)?;
        let Some(low) = above.checked_sub(1).map(|below| &self.points[below]) else {
            return Some(at(high));
        };
        let short = high.rate.0 - rate.0;
        let less = scale(at(high).0 - at(low).0, short, high.rate.0 - low.rate.0);
        Some(Nanos(at(high).0 - less))
    }
}

/// `whole × part / of`, rounded down; `part` is at most `of`.
fn scale(whole: u64, part: u64, of: u64) -> u64 {
    let scaled = u128::from(whole) * u128::from(part) / u128::from(of.max(1));
    u64::try_from(scaled).unwrap_or(whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn point(rate: u64, micros: u64) -> Point {
        let latency = Nanos::from_micros(micros);
        Point {
            rate: TokenRate(rate),
            latency: [latency; Percentile::COUNT],
        }
    }

    fn curve(points: &[(u64, u64)]) -> Curve {
        Curve::new(
            points
                .iter()
                .map(|&(rate, micros)| point(rate, micros))
                .collect(),
        )
        .unwrap()
    }

    #[test]
    fn a_rate_lies_on_the_line_between_two_points() {
        let curve = curve(&[(100_000, 100), (400_000, 400), (500_000, 2_400)]);
        let rate = |micros| curve.rate_for(Percentile::P95, Nanos::from_micros(micros));
        assert_eq!(rate(250), Ok(TokenRate(250_000)));
        assert_eq!(rate(400), Ok(TokenRate(400_000)));
        assert_eq!(rate(500), Ok(TokenRate(405_000)));
        assert_eq!(
            rate(9_000),
            Ok(TokenRate(500_000)),
            "nothing is known beyond"
        );
        let best = Nanos::from_micros(100);
        let low = TokenRate(100_000);
        let nothing = Unattainable {
            percentile: Percentile::P95,
            best,
            rate: low,
        };
        assert_eq!(rate(99), Err(nothing));
        assert_eq!(
            curve.latency_at(Percentile::P99, TokenRate(250_000)),
            Some(Nanos(250_000))
        );
        assert_eq!(
            curve.latency_at(Percentile::P99, TokenRate(1)),
            Some(Nanos(100_000))
        );
        assert_eq!(curve.latency_at(Percentile::P99, TokenRate(500_001)), None);
        assert_eq!(curve.capacity(), TokenRate(500_000));
    }

    #[test]
    fn noise_never_promises_more() {
        let curve = curve(&[(100, 500), (200, 300), (300, 600)]);
        let rate = |micros| curve.rate_for(Percentile::P50, Nanos::from_micros(micros));
        rate(400).unwrap_err();
        assert_eq!(rate(500), Ok(TokenRate(200)));
    }

    #[test]
    fn what_is_no_curve_is_refused() {
        let refused = |points: Vec<Point>| Curve::new(points).unwrap_err();
        assert_eq!(refused(vec![]), CurveError::Points(0));
        assert_eq!(
            refused(vec![point(2, 1), point(2, 1)]),
            CurveError::Order(1)
        );
        assert_eq!(refused(vec![point(0, 1)]), CurveError::Rate(0));
        assert_eq!(refused(vec![point(1, 0)]), CurveError::Latency(0));
        let mut falling = point(1, 9);
        falling.latency[3] = Nanos(1);
        assert_eq!(refused(vec![falling]), CurveError::Latency(0));
    }

    proptest! {
        /// The returned rate keeps the latency at that load, and is the highest that does.
        #[test]
        fn a_promised_rate_keeps_the_latency(
            steps in prop::collection::vec((1u64..1_000_000, 1u64..1_000_000), 1..20),
            latency in 1u64..10_000_000,
        ) {
            let mut sum = (0, 0);
            let points = steps.iter().map(|&(rate, nanos)| {
                sum = (sum.0 + rate, sum.1 + nanos);
                let latency = [Nanos(sum.1); Percentile::COUNT];
                Point { rate: TokenRate(sum.0), latency }
            });
            let curve = Curve::new(points.collect()).unwrap();
            let latency = Nanos(latency);
            match curve.rate_for(Percentile::P95, latency) {
                Err(nothing) => prop_assert!(nothing.best > latency),
                Ok(rate) => {
                    let kept = curve.latency_at(Percentile::P95, rate).unwrap();
                    prop_assert!(kept <= latency, "{kept} at {rate}");
                    if let Some(more) = curve.latency_at(Percentile::P95, TokenRate(rate.0 + 1)) {
                        prop_assert!(more >= latency, "{more} is allowed too");
                    }
                }
            }
        }
    }
}
