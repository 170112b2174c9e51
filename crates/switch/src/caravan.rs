//! The caravan: the requests (or responses) that leave in one send. `[i10 §2.3]`
//!
//! The type serves two separate purposes. The *doorbell* waits for a [`Caravan`] that reaches the
//! [`CaravanLimits`] of its [`Mode`](crate::doorbell::Mode). An egress limits *one send* with the
//! same type but its own limits ([`Caravan::accepts`]). Owned by an egress and its doorbell.
//! Invariant: never cut to nothing; a request larger than every limit is sent alone.

use crate::limits::{
    CARAVAN_BYTES_MAX, CARAVAN_IOVECS_MAX, CARAVAN_REQUESTS_MAX, CARAVAN_SIZE_BUCKETS,
};

/// Limits of a caravan; it is full when it reaches the first of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CaravanLimits {
    /// Requests (or responses); at least 1. i10's aggregation size.
    pub requests: u32,
    /// Bytes, including headers; at least 1.
    pub bytes: u64,
    /// Segments (`iovec`s), at least 1.
    pub iovecs: u32,
}

impl CaravanLimits {
    /// Returns these limits times `factor`, up to the maximum of any caravan.
    #[must_use]
    pub fn times(self, factor: u32) -> Self {
        Self {
            requests: self
                .requests
                .saturating_mul(factor)
                .min(CARAVAN_REQUESTS_MAX),
            bytes: self
                .bytes
                .saturating_mul(u64::from(factor))
                .min(CARAVAN_BYTES_MAX),
            iovecs: self.iovecs.saturating_mul(factor).min(CARAVAN_IOVECS_MAX),
        }
    }
}

/// The limit that a caravan has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Full {
    /// The number of requests.
    Requests,
    /// The bytes.
    Bytes,
    /// The segments.
    Iovecs,
}

/// The size of a caravan, or of the waiting requests that will form one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Caravan {
    /// Requests.
    pub requests: u32,
    /// Bytes.
    pub bytes: u64,
    /// Segments.
    pub iovecs: u32,
}

impl Caravan {
    /// The empty caravan.
    pub const EMPTY: Self = Self {
        requests: 0,
        bytes: 0,
        iovecs: 0,
    };

    /// Returns true if there is no request.
    #[inline]
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.requests == 0
    }

    /// Adds a request, saturating.
    #[inline]
    pub const fn add(&mut self, bytes: u32, iovecs: u32) {
        self.requests = self.requests.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes as u64);
        self.iovecs = self.iovecs.saturating_add(iovecs);
    }

    /// Returns the size without `other` (saturating at 0).
    #[inline]
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(other.requests),
            bytes: self.bytes.saturating_sub(other.bytes),
            iovecs: self.iovecs.saturating_sub(other.iovecs),
        }
    }

    /// Returns the first limit reached, if any: requests before bytes before segments.
    #[inline]
    #[must_use]
    pub const fn full(self, limits: &CaravanLimits) -> Option<Full> {
        if self.requests >= limits.requests {
            Some(Full::Requests)
        } else if self.bytes >= limits.bytes {
            Some(Full::Bytes)
        } else if self.iovecs >= limits.iovecs {
            Some(Full::Iovecs)
        } else {
            None
        }
    }

    /// Returns true if one more request fits in the same send. The first one always does.
    #[inline]
    #[must_use]
    pub const fn accepts(self, bytes: u32, iovecs: u32, limits: &CaravanLimits) -> bool {
        self.requests == 0
            || (self.requests < limits.requests
                && self.bytes.saturating_add(bytes as u64) <= limits.bytes
                && self.iovecs.saturating_add(iovecs) <= limits.iovecs)
    }
}

/// Numbers of caravans by their number of requests, in powers of two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SizeHistogram {
    buckets: [u64; CARAVAN_SIZE_BUCKETS],
}

impl SizeHistogram {
    /// Creates a histogram from counts in the order of [`buckets`](Self::buckets).
    #[must_use]
    pub const fn of(buckets: [u64; CARAVAN_SIZE_BUCKETS]) -> Self {
        Self { buckets }
    }

    /// Returns the largest number of requests in a bucket; `None` for the last bucket, which is
    /// unbounded.
    #[must_use]
    pub const fn bound(bucket: usize) -> Option<u64> {
        if bucket + 1 < CARAVAN_SIZE_BUCKETS {
            Some((2 << bucket) - 1)
        } else {
            None
        }
    }

    /// Counts a sent caravan of `requests` requests; 0 counts nothing.
    #[inline]
    pub fn record(&mut self, requests: u32) {
        if let Some(power) = requests.checked_ilog2() {
            let last = CARAVAN_SIZE_BUCKETS - 1;
            self.buckets[usize::try_from(power).map_or(last, |power| power.min(last))] += 1;
        }
    }

    /// Caravans by size: element `n` counts those with `2^n ..= 2^(n+1) - 1` requests, the last one
    /// those with `2^n` or more.
    #[must_use]
    pub const fn buckets(&self) -> &[u64; CARAVAN_SIZE_BUCKETS] {
        &self.buckets
    }

    /// Total number of caravans.
    #[must_use]
    pub fn caravans(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Adds the counts of another lane.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.buckets.iter_mut().zip(other.buckets) {
            *mine += theirs;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: CaravanLimits = CaravanLimits {
        requests: 4,
        bytes: 100,
        iovecs: 6,
    };

    #[test]
    fn the_first_limit_that_is_reached_makes_it_full() {
        let of = |requests, bytes, iovecs| {
            Caravan {
                requests,
                bytes,
                iovecs,
            }
            .full(&LIMITS)
        };
        assert_eq!(of(3, 99, 5), None);
        assert_eq!(of(4, 100, 6), Some(Full::Requests));
        assert_eq!(of(3, 100, 6), Some(Full::Bytes));
        assert_eq!(of(3, 99, 6), Some(Full::Iovecs));
    }

    #[test]
    fn a_send_takes_what_fits_and_the_first_in_any_case() {
        let mut caravan = Caravan::EMPTY;
        assert!(caravan.accepts(u32::MAX, u32::MAX, &LIMITS));
        caravan.add(60, 2);
        assert!(caravan.accepts(40, 4, &LIMITS));
        assert!(!caravan.accepts(41, 1, &LIMITS));
        assert!(!caravan.accepts(1, 5, &LIMITS));
        caravan.add(1, 1);
        caravan.add(1, 1);
        caravan.add(1, 1);
        assert!(!caravan.accepts(1, 1, &LIMITS), "four are the limit");
    }

    #[test]
    fn limits_multiply_up_to_what_a_caravan_may_carry() {
        let twice = LIMITS.times(2);
        assert_eq!((twice.requests, twice.bytes, twice.iovecs), (8, 200, 12));
        assert_eq!(LIMITS.times(1), LIMITS);
        let most = LIMITS.times(u32::MAX);
        assert_eq!(most.requests, CARAVAN_REQUESTS_MAX);
        assert_eq!(most.bytes, CARAVAN_BYTES_MAX);
        assert_eq!(most.iovecs, CARAVAN_IOVECS_MAX);
        assert_eq!(most.times(u32::MAX), most);
    }

    #[test]
    fn whatever_the_numbers_nothing_wraps() {
        let mut caravan = Caravan {
            requests: u32::MAX,
            bytes: u64::MAX,
            iovecs: u32::MAX,
        };
        caravan.add(u32::MAX, u32::MAX);
        assert_eq!(caravan.requests, u32::MAX);
        assert_eq!(Caravan::EMPTY.without(caravan), Caravan::EMPTY);
    }

    #[test]
    fn sizes_fall_into_powers_of_two() {
        let mut sizes = SizeHistogram::default();
        for requests in [0, 1, 2, 3, 4, 7, 8, u32::MAX] {
            sizes.record(requests);
        }
        assert_eq!(sizes.buckets()[..4], [1, 2, 2, 1]);
        assert_eq!(sizes.buckets()[CARAVAN_SIZE_BUCKETS - 1], 1);
        let mut twice = sizes;
        twice.merge(&sizes);
        assert_eq!((sizes.caravans(), twice.caravans()), (7, 14));
    }
}
