//! Averages of repeated measurements of a time.

use std::time::Instant;

/// Averages each of several times that were measured together repeatedly: the inverse of the mean
/// rate of the middle half of its measurements, because the work done in a second is a sum of
/// rates.
pub(super) fn typical_of_each<const N: usize>(samples: &[[u64; N]]) -> [u64; N] {
    std::array::from_fn(|place| {
        let mut numbers: Vec<_> = samples.iter().map(|sample| sample[place]).collect();
        numbers.sort_unstable();
        let middle = &numbers[numbers.len() / 4..numbers.len() - numbers.len() / 4];
        let rates = middle.iter().map(|&number| 1.0 / number.max(1) as f64);
        // Without measurements the quotient is not a number, which rounds to zero.
        rounded(middle.len() as f64 / rates.sum::<f64>())
    })
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a time between those that were measured"
)]
pub(super) const fn rounded(time: f64) -> u64 {
    time.round() as u64
}

/// Nanoseconds since `since`.
pub(super) fn nanos_since(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the `permille` quantile of these numbers; 0 if there are none.
pub(super) fn quantile(numbers: &mut [u64], permille: usize) -> u64 {
    numbers.sort_unstable();
    let place = numbers.len().saturating_sub(1) * permille / 1_000;
    numbers.get(place).copied().unwrap_or(0)
}

pub(super) fn median(numbers: &mut [u64]) -> u64 {
    quantile(numbers, 500)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_few_numbers_are_among_them() {
        assert_eq!(median(&mut []), 0);
        assert_eq!(median(&mut [3, 1, 2]), 2);
        assert_eq!(quantile(&mut [5, 1, 9, 7], 990), 7);
    }

    #[test]
    fn the_middle_half_of_the_passes_counts() {
        // Alternating 30 and 60 are two rates, whose mean is the rate of 40.
        let passes = [[1, 60], [30, 9], [60, 900], [30, 30], [200, 60], [60, 30]];
        assert_eq!(typical_of_each(&passes), [40, 40]);
        assert_eq!(typical_of_each(&[[7]]), [7]);
        assert_eq!(typical_of_each::<1>(&[]), [0]);
    }
}
