//! The choice of nodes.
//!
//! Nodes are ranked by tier; in a tier, the best is the one of which the least stays free in its
//! freest dimension, so that dimensions are used up together. Tokens are wasted where the volume is
//! with stricter ones, or makes the node stricter; a wasted token counts [`WASTE_WEIGHT`] times.

use super::amounts::ppm;
use super::cluster::{Cluster, Placed};
use super::node::{Loaded, NodeId};
use super::refusal::Refusal;
use super::volume::{Need, Volume, VolumeId};
use crate::limits::{SIMILAR_PPM, WASTE_WEIGHT};
use crate::tokens::TokenRate;

/// Why a placed volume cannot change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// The volume is not placed.
    #[error("{0} is not placed")]
    Unknown(VolumeId),
    /// No nodes can take the changed volume.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// The order in which nodes are used; the first is best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Tier {
    /// In use, and of similar latency; or stricter, and the volume needs less of its tokens than of
    /// its bytes or bandwidth.
    Similar,
    /// Empty.
    Empty,
    /// In use, and stricter.
    Stricter,
    /// In use, and would lose tokens by a stricter volume.
    Relaxed,
}

impl Cluster {
    /// Returns a node for each leg of a volume. Changes nothing; [`insert`](Self::insert) carries
    /// it out.
    ///
    /// # Errors
    /// Why it fits nowhere, and which volume would fit.
    pub fn place(&self, volume: &Volume) -> Result<Vec<NodeId>, Refusal> {
        let needs = self.needs(volume)?;
        self.complete(volume, &needs, Vec::new())
    }

    /// Replaces a placed volume, as when it grows, and returns the node of each leg. A leg stays on
    /// its node if that can take it.
    ///
    /// # Errors
    /// If it fits nowhere; the volume then stays as it was.
    pub fn change(&mut self, id: VolumeId, volume: Volume) -> Result<Vec<NodeId>, ChangeError> {
        let Some(Placed { volume: old, nodes }) = self.remove(id) else {
            return Err(ChangeError::Unknown(id));
        };
        let after = self.changed(&volume, &nodes);
        match after {
            Ok(after) => {
                self.set_nodes(id, volume, after.clone());
                Ok(after)
            }
            Err(refusal) => {
                self.set_nodes(id, old, nodes);
                Err(refusal.into())
            }
        }
    }

    fn changed(&self, volume: &Volume, nodes: &[NodeId]) -> Result<Vec<NodeId>, Refusal> {
        let needs = self.needs(volume)?;
        let stays = |id: &NodeId| {
            let loaded = self.node(*id);
            loaded.is_some_and(|loaded| {
                let need = needs[loaded.node().model].as_ref();
                need.is_some_and(|need| loaded.fits(need) && rank(loaded, need).0 != Tier::Relaxed)
            })
        };
        let stay = nodes.iter().copied().filter(stays);
        let stay = stay.take(volume.legs.into()).collect();
        self.complete(volume, &needs, stay)
    }

    /// Adds nodes to `nodes` until each leg has one.
    fn complete(
        &self,
        volume: &Volume,
        needs: &[Option<Need>],
        mut nodes: Vec<NodeId>,
    ) -> Result<Vec<NodeId>, Refusal> {
        while nodes.len() < usize::from(volume.legs) {
            let accept = |_: NodeId, loaded: &Loaded| !self.shares_domain(loaded, &nodes);
            let Some(best) = self.best(needs, accept) else {
                return Err(self.refusal(volume, needs, &nodes));
            };
            nodes.push(best);
        }
        Ok(nodes)
    }

    /// Returns the best accepted node that can take a leg.
    pub(super) fn best(
        &self,
        needs: &[Option<Need>],
        accept: impl Fn(NodeId, &Loaded) -> bool,
    ) -> Option<NodeId> {
        let ranked = self.nodes().filter_map(|(id, loaded)| {
            let need = needs[loaded.node().model].as_ref()?;
            (loaded.fits(need) && accept(id, loaded)).then(|| (rank(loaded, need), id))
        });
        ranked.min().map(|(_, id)| id)
    }
}

/// Ranks a node that fits: by tier, then by the largest dimension that stays free, plus the wasted
/// tokens.
fn rank(loaded: &Loaded, need: &Need) -> (Tier, u64) {
    let rate = loaded.capacity().tokens;
    let after = loaded.capacity_at(rate.min(need.limit));
    let demand = need.amounts.ppm(after);
    let rest = loaded.free(need).minus(need.amounts).ppm(after);
    let unused = rest.into_iter().max().unwrap_or_default();
    // By the volume, which takes a larger share of a stricter node; and by those already there.
    let used = loaded.used().tokens;
    let wasted = ppm(need.amounts.tokens.0, after.tokens.0)
        - ppm(need.amounts.tokens.0, need.limit.0)
        + ppm(used.0, after.tokens.0)
        - ppm(used.0, rate.0);
    let tier = tier(loaded, need.limit, demand);
    (
        tier,
        unused.saturating_add(WASTE_WEIGHT.saturating_mul(wasted)),
    )
}

fn tier(loaded: &Loaded, limit: TokenRate, [bytes, tokens, bandwidth]: [u64; 3]) -> Tier {
    let rate = loaded.capacity().tokens;
    let is_stricter = rate < limit;
    let difference = ppm(rate.max(limit).0 - rate.min(limit).0, rate.max(limit).0);
    if loaded.is_empty() {
        Tier::Empty
    } else if difference <= SIMILAR_PPM || is_stricter && tokens <= bytes.max(bandwidth) {
        Tier::Similar
    } else if is_stricter {
        Tier::Stricter
    } else {
        Tier::Relaxed
    }
}
