//! Why a volume fits nowhere, and which volume would fit.

use super::amounts::Amounts;
use super::cluster::Cluster;
use super::node::{DomainId, Loaded, NodeId};
use super::volume::{Demand, Need, Volume, VolumeError};
use crate::limits::{SLO_LATENCY_MAX, UNIT_BYTES};
use crate::tokens::TokenRate;
use base::Nanos;
use std::collections::BTreeMap;
use std::fmt;

/// Bytes of a mebibyte.
const MIB: u64 = 1 << 20;

/// Why a volume is not placed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The volume is invalid.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// No node, or too few failure domains, can take it.
    #[error(transparent)]
    Misfit(Box<Misfit>),
}

/// A volume that fits nowhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// Legs of the volume.
    pub legs: u8,
    /// Failure domains with a node that can take a leg.
    pub domains: usize,
    /// The node nearest to taking the next leg, and its shortage; `None` if every failure domain
    /// has a leg already, or the cluster has no nodes.
    pub nearest: Option<(NodeId, Amounts)>,
    /// Volumes that would fit.
    pub offer: Offer,
}

/// Changes of a volume after which it would fit, each by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// Size in bytes, in whole MiB.
    pub bytes: Option<u64>,
    /// Rate: requests per second of an SLO, tokens per second of a floor.
    pub rate: Option<u64>,
    /// Latency of the SLO.
    pub latency: Option<Nanos>,
    /// Number of legs.
    pub legs: Option<u8>,
    /// No SLO: best effort without a floor.
    pub best_effort: bool,
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.legs {
            1 => f.write_str("no node can take the volume")?,
            legs => write!(
                f,
                "{legs} legs need nodes in {legs} failure domains, and {} can take one",
                self.domains
            )?,
        }
        if let Some((node, lacks)) = &self.nearest {
            let mut parts = Vec::new();
            if lacks.bytes > 0 {
                parts.push(size(lacks.bytes.div_ceil(MIB) * MIB));
            }
            if lacks.tokens.0 > 0 {
                parts.push(lacks.tokens.to_string());
            }
            if lacks.bandwidth > 0 {
                parts.push(format!("{} bytes/s of bandwidth", lacks.bandwidth));
            }
            if parts.is_empty() {
                parts.push("a place: it has the maximum number of volumes".to_owned());
            }
            write!(f, "; {node}, the nearest, lacks {}", parts.join(" and "))?;
        }
        write!(f, "; {}", self.offer)
    }
}

impl std::error::Error for Misfit {}

impl fmt::Display for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        parts.extend(self.bytes.map(size));
        parts.extend(self.rate.map(|rate| format!("a rate of {rate}/s")));
        let latency = self.latency;
        parts.extend(latency.map(|latency| format!("a latency of {latency}")));
        parts.extend(self.legs.map(|legs| format!("{legs} legs")));
        parts.extend(self.best_effort.then(|| "best effort".to_owned()));
        match &parts[..] {
            [] => f.write_str("add nodes, or remove volumes"),
            parts => write!(f, "{} would fit", parts.join(", or ")),
        }
    }
}

/// Formats whole MiB.
fn size(bytes: u64) -> String {
    let mib = bytes / MIB;
    match mib % 1024 {
        0 => format!("{} GiB", mib / 1024),
        _ => format!("{mib} MiB"),
    }
}

impl Cluster {
    /// Explains why only `nodes` can take legs of a volume.
    pub(super) fn refusal(
        &self,
        volume: &Volume,
        needs: &[Option<Need>],
        nodes: &[NodeId],
    ) -> Refusal {
        let elsewhere = self
            .nodes()
            .filter(|(_, loaded)| !self.shares_domain(loaded, nodes));
        let shortages = elsewhere.filter_map(|(id, loaded)| {
            let need = needs[loaded.node().model].as_ref()?;
            let lacks = loaded.lacks(need);
            let [bytes, tokens, bandwidth] = lacks.ppm(loaded.capacity());
            let sum = bytes.saturating_add(tokens).saturating_add(bandwidth);
            Some((sum, id, lacks))
        });
        let nearest = shortages.min_by_key(|&(sum, id, _)| (sum, id));
        Refusal::Misfit(Box::new(Misfit {
            legs: volume.legs,
            domains: nodes.len(),
            nearest: nearest.map(|(_, id, lacks)| (id, lacks)),
            offer: self.offer(volume, needs, nodes.len()),
        }))
    }

    fn offer(&self, volume: &Volume, needs: &[Option<Need>], legs: usize) -> Offer {
        let each = |value: &dyn Fn(&Loaded, &Need) -> Option<u64>| {
            self.best_of_legs(volume.legs, |loaded| {
                let need = needs[loaded.node().model].as_ref()?;
                loaded.has_place().then(|| value(loaded, need))?
            })
        };
        let bytes = each(&|loaded, need| {
            let without = Amounts {
                bytes: 0,
                ..loaded.lacks(need)
            };
            (without == Amounts::default()).then(|| loaded.free(need).bytes / MIB * MIB)
        });
        let rate = each(&|loaded, need| self.rate_left(volume, loaded, need));
        // The lowest latency is the best.
        let latency = each(&|loaded, need| {
            let latency = self.latency_left(volume, loaded, need)?;
            Some(u64::MAX - latency.0)
        });
        let best_effort = matches!(volume.demand, Demand::Slo(_))
            && self.place_count(&Volume {
                demand: Demand::Floor(TokenRate(0)),
                ..*volume
            });
        Offer {
            bytes: bytes.filter(|&bytes| bytes > 0),
            rate: rate.filter(|&rate| rate > 0 || matches!(volume.demand, Demand::Floor(_))),
            latency: latency.map(|inverse| Nanos(u64::MAX - inverse)),
            legs: u8::try_from(legs).ok().filter(|&legs| legs > 0),
            best_effort,
        }
    }

    /// Returns true if enough failure domains can take a leg.
    fn place_count(&self, volume: &Volume) -> bool {
        let Ok(needs) = self.needs(volume) else {
            return false;
        };
        let fits = self.best_of_legs(volume.legs, |loaded| {
            let need = needs[loaded.node().model].as_ref()?;
            loaded.fits(need).then_some(1)
        });
        fits.is_some()
    }

    /// Returns the rate that a node has left for the volume; `None` if it has too few bytes.
    fn rate_left(&self, volume: &Volume, loaded: &Loaded, need: &Need) -> Option<u64> {
        let free = loaded.free(need);
        if free.bytes < volume.bytes || need.limit == TokenRate(0) {
            return None;
        }
        Some(match &volume.demand {
            Demand::Slo(slo) => {
                let rate = slo.iops_at(free.tokens, &self.model(loaded).costs);
                rate.min(free.bandwidth / u64::from(slo.request_bytes))
            }
            Demand::Floor(_) => free.tokens.0.min(free.bandwidth / UNIT_BYTES),
        })
    }

    /// Returns the strictest latency at which a node can take the volume.
    fn latency_left(&self, volume: &Volume, loaded: &Loaded, need: &Need) -> Option<Nanos> {
        let Demand::Slo(slo) = &volume.demand else {
            return None;
        };
        let relaxed = Need {
            limit: loaded.capacity().tokens,
            ..*need
        };
        if !loaded.fits(&relaxed) {
            return None;
        }
        let total = loaded.used().plus(need.amounts).tokens;
        let latency = self.model(loaded).latency_at(slo.percentile, total)?;
        (latency <= SLO_LATENCY_MAX).then_some(latency)
    }

    /// Returns the highest value that `legs` failure domains reach, each by its best node.
    fn best_of_legs(&self, legs: u8, value: impl Fn(&Loaded) -> Option<u64>) -> Option<u64> {
        let mut best = BTreeMap::<DomainId, u64>::new();
        for (_, loaded) in self.nodes() {
            if let Some(value) = value(loaded) {
                let entry = best.entry(loaded.node().domain).or_default();
                *entry = (*entry).max(value);
            }
        }
        let mut values: Vec<_> = best.into_values().collect();
        values.sort_unstable_by(|a, b| b.cmp(a));
        values.get(usize::from(legs).checked_sub(1)?).copied()
    }
}
