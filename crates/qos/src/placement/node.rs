//! A node: its capacity, and the volumes on it.

use super::amounts::Amounts;
use super::volume::{Demand, Need, VolumeId};
use crate::device_model::DeviceModel;
use crate::limits::TENANTS_MAX;
use crate::slo::Percentile;
use crate::tokens::TokenRate;
use base::Nanos;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Identifies a node: its index in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.0)
    }
}

/// Identifies a failure domain, such as a rack: nodes of one may fail together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DomainId(pub u32);

/// A target that stores volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its failure domain.
    pub domain: DomainId,
    /// Capacity in bytes.
    pub bytes: u64,
    /// Network bandwidth in bytes per second.
    pub bandwidth: u64,
    /// Index of its device in the cluster's models.
    pub model: usize,
}

/// A node with its volumes.
#[derive(Clone, Debug)]
pub struct Loaded {
    node: Node,
    rate: TokenRate,
    used: Amounts,
    /// Latencies of the SLOs, with the number of volumes.
    latencies: BTreeMap<(Percentile, Nanos), u32>,
    volumes: BTreeSet<VolumeId>,
}

impl Loaded {
    pub(super) fn new(node: Node, device: &DeviceModel) -> Self {
        Self {
            node,
            rate: device.curve.capacity(),
            used: Amounts::default(),
            latencies: BTreeMap::new(),
            volumes: BTreeSet::new(),
        }
    }

    /// Returns the node.
    #[must_use]
    pub const fn node(&self) -> &Node {
        &self.node
    }

    /// Returns the sum of all demands.
    #[must_use]
    pub const fn used(&self) -> Amounts {
        self.used
    }

    /// Returns the capacity; tokens at the strictest latency of the volumes.
    #[must_use]
    pub const fn capacity(&self) -> Amounts {
        self.capacity_at(self.rate)
    }

    /// Returns the volumes.
    #[must_use]
    pub const fn volumes(&self) -> &BTreeSet<VolumeId> {
        &self.volumes
    }

    /// Returns true without volumes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.volumes.is_empty()
    }

    pub(super) const fn capacity_at(&self, tokens: TokenRate) -> Amounts {
        Amounts {
            bytes: self.node.bytes,
            tokens,
            bandwidth: self.node.bandwidth,
        }
    }

    /// Returns the capacity that remains for a leg with this need.
    pub(super) fn free(&self, need: &Need) -> Amounts {
        let capacity = self.capacity_at(self.rate.min(need.limit));
        capacity.minus(self.used)
    }

    /// Returns by how much the node is short of a need.
    pub(super) fn lacks(&self, need: &Need) -> Amounts {
        let capacity = self.capacity_at(self.rate.min(need.limit));
        self.used.plus(need.amounts).minus(capacity)
    }

    pub(super) fn fits(&self, need: &Need) -> bool {
        self.has_place() && self.lacks(need) == Amounts::default()
    }

    /// Returns true below the number of tenants that a device can have.
    pub(super) fn has_place(&self) -> bool {
        self.volumes.len() < TENANTS_MAX
    }

    pub(super) fn add(&mut self, id: VolumeId, demand: &Demand, need: &Need) {
        self.volumes.insert(id);
        self.used = self.used.plus(need.amounts);
        self.rate = self.rate.min(need.limit);
        if let Some(latency) = demand.latency() {
            *self.latencies.entry(latency).or_default() += 1;
        }
    }

    pub(super) fn remove(
        &mut self,
        id: VolumeId,
        demand: &Demand,
        need: &Need,
        device: &DeviceModel,
    ) {
        self.volumes.remove(&id);
        self.used = self.used.minus(need.amounts);
        let Some(latency) = demand.latency() else {
            return;
        };
        if let Some(count) = self.latencies.get_mut(&latency) {
            *count -= 1;
            if *count == 0 {
                self.latencies.remove(&latency);
                self.rate = self.strictest(device);
            }
        }
    }

    /// Returns the token rate at which the device meets all latencies: the strictest of each
    /// percentile decides.
    fn strictest(&self, device: &DeviceModel) -> TokenRate {
        let strictest = Percentile::ALL.iter().filter_map(|&percentile| {
            let all = (percentile, Nanos::ZERO)..=(percentile, Nanos(u64::MAX));
            self.latencies.range(all).next()
        });
        let rates = strictest.map(|(&(percentile, latency), _)| {
            let rate = device.rate_for(percentile, latency);
            rate.unwrap_or_default()
        });
        rates.fold(device.curve.capacity(), TokenRate::min)
    }
}
