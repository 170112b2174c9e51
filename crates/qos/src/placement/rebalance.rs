//! Rebalancing: moves that empty nodes, or relax the strictest latency of nodes.
//!
//! A step is a list of moves with one gain. Each move is feasible after those before it, and lowers
//! no node's tokens, so steps never undo each other: the number of nodes in use falls, or it stays
//! and tokens rise.

use super::cluster::Cluster;
use super::node::{Loaded, NodeId};
use super::volume::VolumeId;
use crate::limits::{REBALANCE_FAILURES, SIMILAR_PPM};
use crate::tokens::TokenRate;
use std::cmp::Reverse;

/// One leg to another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The volume.
    pub volume: VolumeId,
    /// Bytes to copy.
    pub bytes: u64,
    /// The node of the leg.
    pub from: NodeId,
    /// Its new node.
    pub to: NodeId,
}

/// The gain of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gain {
    /// The node has no volumes any more.
    Empty(NodeId),
    /// The node's strictest volumes have left it, which adds tokens per second.
    Relaxed(NodeId, TokenRate),
}

/// Moves that have a gain together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The moves, in the order in which they are feasible.
    pub moves: Vec<Move>,
    /// The gain after the last one.
    pub gain: Gain,
}

impl Cluster {
    /// Returns steps of at most `moves_max` moves together, feasible in this order. Changes
    /// nothing; [`move_leg`](Self::move_leg) carries a move out.
    ///
    /// Empties the nodes with the least used capacity, then relaxes nodes, most tokens per move
    /// first.
    #[must_use]
    pub fn rebalance(&self, moves_max: usize) -> Vec<Step> {
        let mut after = self.clone();
        let mut steps = Vec::new();
        let mut left = moves_max;
        after.empty_nodes(&mut steps, &mut left);
        after.relax_nodes(&mut steps, &mut left);
        steps
    }

    fn empty_nodes(&mut self, steps: &mut Vec<Step>, left: &mut usize) {
        let used = self.nodes().filter(|(_, loaded)| !loaded.is_empty());
        let mut order: Vec<_> = used.map(|(id, loaded)| (fill(loaded), id)).collect();
        order.sort_unstable();
        let mut failures = 0;
        for (_, node) in order {
            let loaded = self.at(node);
            if loaded.volumes().len() > *left || failures == REBALANCE_FAILURES {
                continue;
            }
            let all = loaded.volumes().iter().copied().collect();
            match self.evacuate(node, all) {
                Some(moves) => {
                    *left -= moves.len();
                    let gain = Gain::Empty(node);
                    steps.push(Step { moves, gain });
                }
                None => failures += 1,
            }
        }
    }

    fn relax_nodes(&mut self, steps: &mut Vec<Step>, left: &mut usize) {
        let mut order: Vec<_> = self.nodes().filter_map(|(id, _)| self.relief(id)).collect();
        order.sort_unstable_by_key(|(tokens, node, volumes)| {
            (Reverse(tokens.0 / volumes.len() as u64), *node)
        });
        let mut failures = 0;
        for (_, node, _) in order {
            // A step before may have brought volumes.
            let Some((tokens, _, volumes)) = self.relief(node) else {
                continue;
            };
            if volumes.len() > *left || failures == REBALANCE_FAILURES {
                continue;
            }
            match self.evacuate(node, volumes) {
                Some(moves) => {
                    *left -= moves.len();
                    let gain = Gain::Relaxed(node, tokens);
                    steps.push(Step { moves, gain });
                }
                None => failures += 1,
            }
        }
    }

    /// Returns the volumes that determine a node's tokens, and the gain without them; `None` if all
    /// volumes do, or the gain is small.
    fn relief(&self, node: NodeId) -> Option<(TokenRate, NodeId, Vec<VolumeId>)> {
        let loaded = self.at(node);
        let device = self.model(loaded);
        let rate = loaded.capacity().tokens;
        let (mut strictest, mut next) = (Vec::new(), device.curve.capacity());
        for &id in loaded.volumes() {
            let need = self.volumes()[&id].volume.need(device).ok()?;
            if need.limit == rate {
                strictest.push(id);
            } else {
                next = next.min(need.limit);
            }
        }
        let gain = next - rate;
        let is_large =
            u128::from(gain.0) * 1_000_000 > u128::from(next.0) * u128::from(SIMILAR_PPM);
        let stays = strictest.len() < loaded.volumes().len();
        (is_large && stays && !strictest.is_empty()).then_some((gain, node, strictest))
    }

    /// Moves volumes off a node to nodes in use that lose no tokens by it; all of them, or none.
    fn evacuate(&mut self, node: NodeId, mut volumes: Vec<VolumeId>) -> Option<Vec<Move>> {
        // Large ones first: small ones find a place among them.
        volumes.sort_by_key(|id| (Reverse(self.volumes()[id].volume.bytes), *id));
        let mut moves = Vec::new();
        for id in volumes {
            let Some(to) = self.refuge(id, node) else {
                for it in moves.iter().rev() {
                    self.carry(it, it.to, it.from);
                }
                return None;
            };
            let bytes = self.volumes()[&id].volume.bytes;
            let one = Move {
                volume: id,
                bytes,
                from: node,
                to,
            };
            self.carry(&one, node, to);
            moves.push(one);
        }
        Some(moves)
    }

    /// Returns the best node in use for a leg that leaves `from`.
    fn refuge(&self, id: VolumeId, from: NodeId) -> Option<NodeId> {
        let placed = &self.volumes()[&id];
        let others: Vec<_> = placed
            .nodes
            .iter()
            .copied()
            .filter(|&it| it != from)
            .collect();
        let needs = self.needs(&placed.volume).ok()?;
        let accept = |to: NodeId, loaded: &Loaded| {
            let limit = needs[loaded.node().model].map_or(TokenRate(0), |need| need.limit);
            to != from
                && !loaded.is_empty()
                && loaded.capacity().tokens <= limit
                && !self.shares_domain(loaded, &others)
        };
        self.best(&needs, accept)
    }

    fn carry(&mut self, it: &Move, from: NodeId, to: NodeId) {
        let placed = &self.volumes()[&it.volume];
        let mut nodes = placed.nodes.clone();
        for node in &mut nodes {
            if *node == from {
                *node = to;
            }
        }
        self.set_nodes(it.volume, placed.volume, nodes);
    }
}

/// Returns the largest used part of a node's dimensions, in parts per million.
fn fill(loaded: &Loaded) -> u64 {
    let parts = loaded.used().ppm(loaded.capacity());
    parts.into_iter().max().unwrap_or_default()
}
