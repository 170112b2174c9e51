//! Seeded random numbers: the same seed gives the same sequence on every machine.
//!
//! xoshiro256** seeded by SplitMix64 (Blackman and Vigna). Fast, but not for secrets.

/// A seeded generator of pseudo-random numbers.
#[derive(Clone, Debug)]
pub struct Prng {
    state: [u64; 4],
}

impl Prng {
    /// A generator that always yields the same numbers for the same seed.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        let mut mix = seed;
        let state = std::array::from_fn(|_| {
            mix = mix.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = mix;
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            z ^ (z >> 31)
        });
        Self { state }
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A number in `0..bound` by multiplication (Lemire), without division; zero when `bound` is
    /// zero. The bias is below `bound / 2^64`.
    pub fn below(&mut self, bound: u64) -> u64 {
        let product = u128::from(self.next_u64()) * u128::from(bound);
        (product >> 64) as u64
    }

    /// True with probability `numerator / denominator`.
    pub fn chance(&mut self, numerator: u64, denominator: u64) -> bool {
        self.below(denominator) < numerator
    }

    /// Fills `out` with random bytes.
    pub fn fill(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            let bytes = self.next_u64().to_le_bytes();
            chunk.copy_from_slice(&bytes[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_fixes_the_sequence_and_the_bound_holds() {
        let (mut a, mut b) = (Prng::from_seed(7), Prng::from_seed(7));
        let mut c = Prng::from_seed(8);
        let mut differs = false;
        for _ in 0..1_000 {
            let x = a.below(10);
            assert!(x < 10);
            assert_eq!(x, b.below(10));
            differs |= x != c.below(10);
        }
        assert!(differs);
        assert_eq!(a.below(0), 0);
    }

    #[test]
    fn every_value_below_a_small_bound_comes_up() {
        let mut prng = Prng::from_seed(1);
        let mut seen = [false; 16];
        for _ in 0..1_000 {
            seen[usize::try_from(prng.below(16)).expect("below sixteen")] = true;
        }
        assert!(seen.iter().all(|&s| s));
    }
}
