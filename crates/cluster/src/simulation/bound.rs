//! Lower bounds of the number of equal targets that a set of volumes needs.

use qos::placement::{Amounts, Node, Volume};
use qos::{DeviceModel, TokenRate};
use std::collections::BTreeMap;

/// Millionths of a node.
type Ppm = u64;

/// Bounds, in targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// No placement needs fewer.
    pub any: u64,
    /// No placement needs fewer that keeps classes of latency on different targets: the sum over
    /// the classes of the maximum over dimensions of demand by capacity.
    pub separate: u64,
}

/// Returns the bounds of volumes on nodes equal to `node`.
///
/// `any` relaxes the problem to volumes that can be divided. Nodes are counted by their strictest
/// class. Those of class `c` or stricter hold all volumes of these classes, so for each `c`, from
/// the strictest on, the bytes, bandwidth and tokens of these nodes must suffice for these volumes.
/// Adding, for each class, only the nodes that its constraint still lacks is optimal, because a node
/// of a later class has more tokens.
pub fn bounds<'a>(
    volumes: impl Iterator<Item = &'a Volume>,
    node: &Node,
    device: &DeviceModel,
) -> Bounds {
    let mut classes = BTreeMap::<u64, Amounts>::new();
    for volume in volumes {
        if let Ok(need) = volume.need(device) {
            let class = classes.entry(need.limit.0).or_default();
            *class = class.plus(need.amounts);
        }
    }
    let parts = |demand: Amounts, limit: u64| -> [Ppm; 3] {
        let capacity = Amounts {
            bytes: node.bytes,
            tokens: TokenRate(limit),
            bandwidth: node.bandwidth,
        };
        demand.ppm(capacity)
    };
    let (mut any, mut separate, mut tokens) = (0, 0, TokenRate(0));
    let mut sum = Amounts::default();
    for (&limit, &demand) in &classes {
        sum = sum.plus(demand);
        let [bytes, _, bandwidth] = parts(sum, limit);
        let [_, lacking, _] = parts(sum.minus(with_tokens(tokens)), limit);
        let more = bytes.max(bandwidth).saturating_sub(any).max(lacking);
        any += more;
        // Rounded up, so that the bound is not too high.
        let gained = (u128::from(more) * u128::from(limit)).div_ceil(1_000_000);
        tokens = tokens + TokenRate(u64::try_from(gained).unwrap_or(u64::MAX));
        separate += parts(demand, limit).into_iter().max().unwrap_or_default();
    }
    Bounds {
        any: any.div_ceil(1_000_000),
        separate: separate.div_ceil(1_000_000),
    }
}

const fn with_tokens(tokens: TokenRate) -> Amounts {
    Amounts {
        bytes: 0,
        tokens,
        bandwidth: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::super::workload;
    use super::*;
    use base::Nanos;
    use qos::placement::Demand;
    use qos::{Percentile, Slo};

    #[test]
    fn best_effort_fills_the_bytes_of_strict_nodes_only_in_the_bound_of_any_placement() {
        let (node, device) = (workload::node(0), workload::device());
        let strict = Volume {
            bytes: node.bytes / 1000,
            demand: Demand::Slo(Slo {
                percentile: Percentile::P95,
                latency: Nanos::from_micros(500),
                iops: 36_000,
                read_permille: 1000,
                request_bytes: 4096,
            }),
            legs: 1,
        };
        let bulk = Volume {
            bytes: node.bytes / 10,
            demand: Demand::Floor(TokenRate(0)),
            legs: 1,
        };
        let of = |strict_count, bulk_count| {
            let strict = std::iter::repeat_n(&strict, strict_count);
            let all = strict.chain(std::iter::repeat_n(&bulk, bulk_count));
            let Bounds { any, separate } = bounds(all, &node, &device);
            [any, separate]
        };
        assert_eq!(of(0, 0), [0, 0]);
        assert_eq!(of(20, 0), [2, 2], "a tenth of the tokens each");
        assert_eq!(of(0, 20), [2, 2], "a tenth of the bytes each");
        assert_eq!(of(20, 10), [2, 3]);
        assert_eq!(of(20, 30), [4, 5], "3.02 nodes of bytes");
    }
}
