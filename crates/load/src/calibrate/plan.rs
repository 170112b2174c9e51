//! The kinds of load that are measured, and the steps by which each is raised.

use qos::fit::Kind;
use qos::limits::UNIT_BYTES;

/// Read shares in thousandths, as in the paper's Fig. 1.
const SHARES: [u16; 6] = [1000, 990, 950, 900, 750, 500];
const SHARES_QUICK: [u16; 4] = [1000, 950, 750, 500];

/// Read sizes that check the cost rule for sizes, as in the paper's Fig. 3.
const SIZES: [u32; 2] = [1024, 32 * 1024];

/// All loads of a calibration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The kinds, each raised until reads are late; the first one is read-only.
    pub kinds: Vec<Kind>,
    /// Steps of every kind.
    pub steps: Steps,
}

/// Steps by which a load is raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steps {
    /// Most loads of each kind.
    pub most: usize,
    /// Largest rise of the p95 from one load to the next, in hundredths. Loads are added between
    /// until it holds, or their number reaches `most`.
    pub rise_percent: u32,
}

impl Plan {
    /// The plan for a device: with writes or without, in requests of whole blocks.
    #[must_use]
    pub fn new(writes: bool, block_bytes: u32, quick: bool) -> Self {
        let shares: &[u16] = if quick { &SHARES_QUICK } else { &SHARES };
        let shares = shares.iter().filter(|&&share| writes || share == 1000);
        let mut kinds: Vec<Kind> = shares.map(|&share| Kind::unit(share)).collect();
        let sizes = SIZES
            .iter()
            .filter(|size| !quick && size.is_multiple_of(block_bytes));
        kinds.extend(sizes.map(|&request_bytes| Kind {
            request_bytes,
            read_permille: 1000,
        }));
        let steps = if quick {
            Steps {
                most: 16,
                rise_percent: 40,
            }
        } else {
            Steps {
                most: 26,
                rise_percent: 20,
            }
        };
        Self { kinds, steps }
    }

    /// Returns true if any kind writes.
    #[must_use]
    pub fn writes(&self) -> bool {
        self.kinds.iter().any(|kind| kind.read_permille < 1000)
    }
}

const _: () = assert!(
    UNIT_BYTES == 4096,
    "which the sizes above are compared with"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_written_that_must_not_be() {
        for (block_bytes, sizes) in [(512, 3), (4096, 2)] {
            let reads = Plan::new(false, block_bytes, false);
            assert!(!reads.writes());
            assert_eq!(reads.kinds.len(), sizes);
            let all = Plan::new(true, block_bytes, false);
            assert_eq!(all.kinds.len(), sizes + 5);
            assert_eq!(all.kinds[0], Kind::unit(1000), "the first one only reads");
        }
        let quick = Plan::new(true, 512, true);
        let mixed = quick.kinds.iter().filter(|kind| kind.read_permille < 1000);
        assert!(mixed.count() >= qos::limits::FIT_SHARES_MIN);
    }
}
