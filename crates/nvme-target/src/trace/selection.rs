//! Selection of commands by a client, and the channel of the selected ones.

use crate::controller::registry::SharedController;
use crate::trace::stamps::Stamps;
use base::Nanos;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};

/// Selection of commands: those that match every criterion; `None` matches all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceFilter {
    /// Tenant of the host in the namespace.
    pub tenant: Option<String>,
    /// HOSTNQN.
    pub host: Option<String>,
    /// NQN of the subsystem.
    pub nqn: Option<String>,
    /// Namespace identifier.
    pub nsid: Option<u32>,
    /// Opcode of the NVM command set.
    pub opcode: Option<u8>,
    /// Shortest total time.
    pub slower_than: Nanos,
    /// Selects also one in this number of the faster commands, counted on each core.
    pub sample: Option<NonZeroU32>,
}

/// A selected command, as its core sends it.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) stamps: Stamps,
    pub(crate) core: usize,
    pub(crate) queue: u16,
    pub(crate) controller: Arc<SharedController>,
}

/// The selection of an open trace, which all cores share.
#[derive(Debug)]
pub(crate) struct Selection {
    pub(crate) filter: TraceFilter,
    sender: SyncSender<Finished>,
    /// Records that found no room.
    lost: AtomicU64,
}

impl Selection {
    pub(crate) const fn new(filter: TraceFilter, sender: SyncSender<Finished>) -> Self {
        Self {
            filter,
            sender,
            lost: AtomicU64::new(0),
        }
    }

    /// Sends a record, or counts it as lost if there is no room.
    pub(crate) fn send(&self, finished: Finished) {
        if let Err(TrySendError::Full(_)) = self.sender.try_send(finished) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        // A client that has gone ends the trace by a message.
    }

    /// Returns the number of records that found no room.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}
