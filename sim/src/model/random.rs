//! Random spans of time, from one seed.

use base::Prng;

/// ln 2 and ln 100: the median and the 99th percentile of an exponential distribution of mean 1.
const LN_2: f64 = std::f64::consts::LN_2;
const LN_100: f64 = 2.0 * std::f64::consts::LN_10;

/// A step's cost varies by up to this many 1,024ths in either direction. In a trace of sends and
/// receives of one size the 10th and the 90th percentile are a fifth from the median.
const VARIES: u64 = 256;

#[derive(Debug)]
pub(crate) struct Random {
    prng: Prng,
}

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            prng: Prng::from_seed(seed),
        }
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.prng.below(bound)
    }

    pub(crate) fn permille(&mut self, permille: u16) -> bool {
        permille > 0 && self.prng.chance(u64::from(permille), 1_000)
    }

    /// A random span around `span`, with `span` as the mean: without variation, threads that wait
    /// for each other fall into a lock-step that no machine shows.
    pub(crate) fn around(&mut self, span: u64) -> u64 {
        let share = 1_024 - VARIES + self.prng.below(2 * VARIES + 1);
        span.saturating_mul(share) / 1_024
    }

    /// An exponentially distributed span with this mean.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "at most 53 ln 2 times the mean, and never negative"
    )]
    pub(crate) fn exponential(&mut self, mean: u64) -> u64 {
        (self.unit_exponential() * mean as f64) as u64
    }

    /// A span with this median and 99th percentile: a constant and an exponential part.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "spans are far below 2^53 ns, and the maximum is taken with zero"
    )]
    pub(crate) fn between_p50_and_p99(&mut self, p50: u64, p99: u64) -> u64 {
        let mean = (p99.saturating_sub(p50)) as f64 / (LN_100 - LN_2);
        let floor = p50 as f64 - mean * LN_2;
        (floor + mean * self.unit_exponential()).max(0.0) as u64
    }

    fn unit_exponential(&mut self) -> f64 {
        // In (0, 1]: the logarithm is finite.
        let unit = ((self.prng.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
        -unit.ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_the_mean_and_the_percentiles_that_were_asked_for() {
        let mut random = Random::new(3);
        let (mut sum, mut around) = (0, 0);
        let mut spans: Vec<u64> = Vec::new();
        for _ in 0..100_000 {
            sum += random.exponential(1_000);
            around += random.around(1_000);
            spans.push(random.between_p50_and_p99(40_000, 70_000));
        }
        for mean in [sum / 100_000, around / 100_000] {
            assert!((980..1_020).contains(&mean), "{mean}");
        }
        spans.sort_unstable();
        assert!((39_000..41_000).contains(&spans[50_000]));
        assert!((68_000..72_000).contains(&spans[99_000]));
    }
}
