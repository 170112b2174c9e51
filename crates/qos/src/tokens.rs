//! Tokens, the unit of a device's load, in integers without loss of fractions. `[ReFlex §3.2.1]`
//!
//! One token is the cost of one 4 KiB random read under a mixed load. Amounts are in billionths: a
//! rate in whole tokens per second is then the same number of billionths per nanosecond, so the
//! earnings of a time span are one exact multiplication without a remainder.

use base::Nanos;
use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Neg, Sub, SubAssign};

/// Billionths per token.
const NANO: i64 = 1_000_000_000;

/// An amount of tokens, in billionths; negative for a debt. Sums saturate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tokens(pub i64);

impl Tokens {
    /// No tokens.
    pub const ZERO: Self = Self(0);

    /// Whole tokens (saturating).
    #[must_use]
    pub const fn whole(tokens: i64) -> Self {
        Self(tokens.saturating_mul(NANO))
    }

    /// Thousandths of a token (saturating).
    #[must_use]
    pub const fn milli(milli: i64) -> Self {
        Self(milli.saturating_mul(NANO / 1000))
    }

    /// Returns whole tokens, rounded down.
    #[must_use]
    pub const fn floor(self) -> i64 {
        self.0.div_euclid(NANO)
    }

    /// Returns the amount, or zero for a debt.
    #[must_use]
    pub const fn or_zero(self) -> Self {
        if self.0 < 0 { Self::ZERO } else { self }
    }
}

impl Add for Tokens {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Tokens {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Tokens {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl SubAssign for Tokens {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

impl Neg for Tokens {
    type Output = Self;
    fn neg(self) -> Self {
        Self(self.0.saturating_neg())
    }
}

impl Sum for Tokens {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::ZERO, Add::add)
    }
}

impl fmt::Display for Tokens {
    /// Formats tokens to the thousandth (rounded towards zero).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let magnitude = self.0.unsigned_abs();
        let sign = if self.0 < 0 { "-" } else { "" };
        let (whole, milli) = (magnitude / 1_000_000_000, magnitude / 1_000_000 % 1000);
        write!(f, "{sign}{whole}.{milli:03}")
    }
}

/// A rate in whole tokens per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenRate(pub u64);

impl TokenRate {
    /// Returns the tokens earned in a time span (saturating).
    #[inline]
    #[must_use]
    pub fn over(self, span: Nanos) -> Tokens {
        Tokens(i64::try_from(self.0.saturating_mul(span.0)).unwrap_or(i64::MAX))
    }

    /// Returns the time to earn `amount`, rounded up; zero for a debt, and `u64::MAX` ns at rate
    /// zero.
    #[must_use]
    pub fn time_for(self, amount: Tokens) -> Nanos {
        let amount = amount.or_zero().0.unsigned_abs();
        match (amount, self.0) {
            (0, _) => Nanos::ZERO,
            (_, 0) => Nanos(u64::MAX),
            (amount, rate) => Nanos(amount.div_ceil(rate)),
        }
    }
}

impl Add for TokenRate {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for TokenRate {
    type Output = Self;
    /// Saturates at zero: a remaining rate never underflows.
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Sum for TokenRate {
    fn sum<I: Iterator<Item = Self>>(rates: I) -> Self {
        rates.fold(Self::default(), Add::add)
    }
}

impl fmt::Display for TokenRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tokens/s", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_earns_to_the_last_fraction() {
        let rate = TokenRate(104_333);
        let mut sum = Tokens::ZERO;
        // A million steps take minutes in an interpreter.
        let steps: u64 = if cfg!(miri) { 1_000 } else { 1_000_000 };
        for _ in 0..steps {
            sum += rate.over(Nanos(1_000_000_000 / steps));
        }
        assert_eq!(sum, Tokens::whole(104_333));
        assert_eq!(rate.time_for(sum), Nanos::from_secs(1));
        assert_eq!(TokenRate(3).time_for(Tokens(10)), Nanos(4));
        assert_eq!(TokenRate(0).time_for(Tokens(1)), Nanos(u64::MAX));
        assert_eq!(TokenRate(0).time_for(Tokens(-1)), Nanos::ZERO);
    }

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(TokenRate(u64::MAX).over(Nanos(9)), Tokens(i64::MAX));
        assert_eq!(TokenRate(3) - TokenRate(9), TokenRate(0));
        assert_eq!(Tokens(i64::MAX) + Tokens(1), Tokens(i64::MAX));
        assert_eq!(-Tokens(i64::MIN), Tokens(i64::MAX));
    }

    #[test]
    fn amounts_are_read_as_tokens() {
        assert_eq!(Tokens::milli(-1_500).to_string(), "-1.500");
        assert_eq!(Tokens::whole(12).to_string(), "12.000");
        assert_eq!(Tokens::milli(-1_500).floor(), -2);
    }
}
