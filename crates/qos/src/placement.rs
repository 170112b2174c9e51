//! Placement: chooses the target of a volume in a cluster. `[ReFlex §4.3]`
//!
//! A target (*node*) has bytes, bandwidth, and tokens at the strictest latency of its volumes, so
//! one strict volume reduces the tokens of all. [`Cluster::place`] therefore prefers nodes whose
//! volumes have a similar latency, then empty nodes; among them, the node that is filled best. A
//! [`Refusal`] states what the nearest node lacks, and which volume would fit.
//! [`Cluster::rebalance`] lists moves that empty or relax nodes.
//!
//! Invariants: no node is overcommitted in any dimension, the target's own
//! [`admission`](crate::admission) admits each placed SLO, and the legs of a volume are in
//! different failure domains. The same history gives the same decisions on every machine.

mod amounts;
mod cluster;
mod decide;
mod node;
mod rebalance;
mod refusal;
mod volume;

pub use amounts::Amounts;
pub use cluster::{Cluster, InsertError, NodeError, Placed};
pub use decide::ChangeError;
pub use node::{DomainId, Loaded, Node, NodeId};
pub use rebalance::{Gain, Move, Step};
pub use refusal::{Misfit, Offer, Refusal};
pub use volume::{Demand, Need, Volume, VolumeError, VolumeId};

#[cfg(test)]
#[cfg(not(loom))]
mod tests;
