//! The state of one remote namespace, which all of its channels share.

use crate::info::{NamespaceInfo, VolumeId};
use crate::recovery::unflushed::Unflushed;
use base::mutation::{self, Mutation};
use block::Geometry;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A namespace as it was last identified.
#[derive(Debug)]
pub(crate) struct NamespaceState {
    pub(crate) nsid: u32,
    pub(crate) block_bytes: u32,
    volume: VolumeId,
    /// Size in blocks; 0 after the namespace went away, or its NSID came to name another volume.
    blocks: AtomicU64,
    read_only: AtomicBool,
    pub(crate) unflushed: Unflushed,
}

impl NamespaceState {
    /// The state of a namespace of the controller with this serial number.
    pub(crate) fn new(info: &NamespaceInfo, serial: &str) -> Self {
        Self {
            nsid: info.nsid,
            block_bytes: info.geometry.block_bytes,
            volume: info.volume(serial),
            blocks: AtomicU64::new(info.geometry.blocks),
            read_only: AtomicBool::new(info.read_only),
            unflushed: Unflushed::new(),
        }
    }

    pub(crate) fn geometry(&self) -> Geometry {
        Geometry {
            block_bytes: self.block_bytes,
            blocks: self.blocks.load(Ordering::Relaxed),
        }
    }

    /// Returns true if the namespace went away; it does not come back under this state.
    pub(crate) fn is_gone(&self) -> bool {
        self.geometry().is_gone()
    }

    pub(crate) fn read_only(&self) -> bool {
        self.read_only.load(Ordering::Relaxed)
    }

    /// Returns true if the identifiers are those of the volume that this state belongs to.
    pub(super) fn is_volume(&self, info: &NamespaceInfo, serial: &str) -> bool {
        info.volume(serial).is_same(&self.volume) || mutation::active(Mutation::OtherVolumeAccepted)
    }

    /// Takes over the size and the protection of the namespace as it is identified now: `None`, or
    /// another volume, or another block size, means that it is gone.
    pub(super) fn update(&self, info: Option<&NamespaceInfo>, serial: &str) {
        let same = |info: &&NamespaceInfo| {
            self.is_volume(info, serial) && info.geometry.block_bytes == self.block_bytes
        };
        let info = info.filter(same);
        let blocks = info.map_or(0, |info| info.geometry.blocks);
        self.blocks.store(blocks, Ordering::Relaxed);
        if let Some(info) = info {
            self.read_only.store(info.read_only, Ordering::Relaxed);
        }
    }
}
