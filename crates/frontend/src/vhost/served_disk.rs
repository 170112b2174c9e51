//! The state of a served disk that the server's threads share, and the messages to its cores.

use super::ring::{RingSetup, Stopped};
use super::succession::{OwnWriters, Succession};
use crate::class_rules::SizeRules;
use crate::log_budget::LogBudget;
use crate::virtio_blk::ID_BYTES;
use crate::virtio_blk::config::Properties;
use crate::{ClassChoice, KnownLosses, Ping};
use block::{Device, Geometry};
use reactor::MailboxSender;
use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

/// A message to a core.
#[derive(Debug)]
pub(super) enum Message {
    /// Serve a virtqueue.
    Start(Box<RingSetup>),
    /// Take no more chains, and report once all taken chains are completed.
    Stop(u16, SyncSender<Stopped>),
    /// Report at once if the queue is stopping: chains not completed by now stay incomplete.
    Abandon(u16),
    /// Check whether writes are still [held](ServedDisk::holds_writes).
    Look,
    /// Replace the event counter that notifies the driver.
    Call(u16, Option<File>, SyncSender<()>),
    /// Replace the event counter that notifies the front end of a broken queue.
    Error(u16, Option<File>, SyncSender<()>),
    /// Reply by dropping it.
    Ping(Ping),
    /// End: outstanding requests get no completion.
    End,
}

/// State of a served disk that its threads share.
#[derive(Debug)]
pub(super) struct ServedDisk {
    pub(super) device: Arc<dyn Device>,
    pub(super) class: ClassChoice,
    pub(super) rules: SizeRules,
    pub(super) read_only: bool,
    pub(super) queues: u16,
    pub(super) id: [u8; ID_BYTES],
    /// The known cache losses of the machine served now or last.
    pub(super) client: KnownLosses,
    /// A machine is connected.
    pub(super) connected: AtomicBool,
    /// A connection has ended with unfinished requests.
    pub(super) gave_up: AtomicBool,
    /// Number of writes in the device from queues that stopped before they completed, plus one for
    /// the writes of another, ended process. Until they end, they could overwrite a later write to
    /// the same blocks.
    pub(super) late_writes: AtomicUsize,
    /// The identity of the volume; 0 if unknown.
    pub(super) volume: u64,
    /// Access to the controllers behind the device, and those of this process.
    pub(super) succession: Option<Arc<dyn Succession>>,
    pub(super) writers: OwnWriters,
    /// The cores, once all have started.
    pub(super) cores: OnceLock<Vec<MailboxSender<Message>>>,
    /// Deadline of the end: nothing waits beyond it.
    pub(super) end_by: Mutex<Option<Instant>>,
    pub(super) log: Arc<LogBudget>,
}

impl ServedDisk {
    pub(super) fn core_of(&self, queue: u16) -> &MailboxSender<Message> {
        let cores = self.cores.get().expect("front ends come later");
        &cores[usize::from(queue) % cores.len()]
    }

    /// Returns true if writes must wait because an earlier write of an abandoned ring may still be
    /// executed.
    #[inline]
    pub(super) fn holds_writes(&self) -> bool {
        self.late_writes.load(Ordering::SeqCst) > 0
    }

    /// Holds writes until each of `count` earlier ones [is over](Self::write_is_over).
    pub(super) fn hold_writes(&self, count: usize) {
        self.late_writes.fetch_add(count, Ordering::SeqCst);
    }

    /// Records the end of one of the earlier writes.
    pub(super) fn write_is_over(&self) {
        if self.late_writes.fetch_sub(1, Ordering::SeqCst) == 1 {
            for core in self.cores.get().into_iter().flatten() {
                core.send_always(Message::Look);
            }
        }
    }

    pub(super) fn end_by(&self) -> Option<Instant> {
        *self.end_by.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_end_by(&self, by: Option<Instant>) {
        *self.end_by.lock().unwrap_or_else(PoisonError::into_inner) = by;
    }

    pub(super) fn properties(&self, geometry: Geometry) -> Properties {
        Properties {
            geometry,
            preferred_bytes: self.device.capabilities().preferred_bytes,
            queues: self.queues,
        }
    }
}
