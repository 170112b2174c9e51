//! Summary of repeated runs.

use serde::Serialize;

/// Median, minimum and maximum of several runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RunSummary {
    /// Median of the runs.
    pub median: f64,
    /// Minimum of the runs.
    pub min: f64,
    /// Maximum of the runs.
    pub max: f64,
}

impl RunSummary {
    /// The summary of `runs`; `None` if there are none.
    #[must_use]
    pub fn of(runs: &[f64]) -> Option<Self> {
        let mut sorted = runs.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (&min, &max) = sorted.first().zip(sorted.last())?;
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 {
            sorted[middle]
        } else {
            sorted[middle - 1].midpoint(sorted[middle])
        };
        Some(Self { median, min, max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_or_between_the_two_there() {
        let of = |runs: &[f64]| RunSummary::of(runs).map(|s| (s.median, s.min, s.max));
        assert_eq!(of(&[3.0, 1.0, 2.0]), Some((2.0, 1.0, 3.0)));
        assert_eq!(of(&[4.0, 1.0]), Some((2.5, 1.0, 4.0)));
        assert_eq!(of(&[]), None);
    }
}
