//! The algorithms to compare with.

use qos::placement::{Cluster, NodeId, Volume, VolumeId};
use std::cmp::Reverse;

/// Places a volume on the first node that can take it.
pub fn first_fit(cluster: &Cluster, volume: &Volume) -> Option<NodeId> {
    cluster.candidates(volume).ok()?.next()
}

/// Places a volume on the node with the most free bytes.
pub fn most_free(cluster: &Cluster, volume: &Volume) -> Option<NodeId> {
    let candidates = cluster.candidates(volume).ok()?;
    candidates.max_by_key(|&id| {
        let free = cluster.node(id).map(|it| it.capacity().minus(it.used()));
        (free.unwrap_or_default().bytes, Reverse(id))
    })
}

/// Places all volumes anew by first fit on `cluster`, which is empty: the strictest latencies first,
/// and of each latency the volumes with the largest sum of shares of a node. Returns the number of
/// volumes that do not fit.
pub fn first_fit_decreasing(cluster: &mut Cluster, volumes: &[(VolumeId, Volume)]) -> u64 {
    let Some(device) = cluster.models().first() else {
        return volumes.len() as u64;
    };
    let node = cluster.node(NodeId(0));
    let mut order: Vec<_> = volumes
        .iter()
        .filter_map(|&(id, volume)| {
            let need = volume.need(device).ok()?;
            let mut capacity = node?.capacity();
            capacity.tokens = need.limit;
            let size: u64 = need.amounts.ppm(capacity).iter().sum();
            Some((need.limit, Reverse(size), id, volume))
        })
        .collect();
    order.sort_unstable_by_key(|&(limit, size, id, _)| (limit, size, id));
    let mut refused = 0;
    for (_, _, id, volume) in order {
        let node = first_fit(cluster, &volume);
        let placed = node.is_some_and(|node| cluster.insert(id, volume, vec![node]).is_ok());
        refused += u64::from(!placed);
    }
    refused
}
