//! The disk that a server serves, as its threads share it, and the messages to its cores.

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
    /// Take no further chain, and report once all that were taken are answered.
    Stop(u16, SyncSender<Stopped>),
    /// Report at once, if the queue stops: chains that are not answered by now stay unanswered.
    Abandon(u16),
    /// Writes may no longer be [held](ServedDisk::holds_writes).
    Look,
    /// Tell the driver by another event counter.
    Call(u16, Option<File>, SyncSender<()>),
    /// Tell the front end of a broken queue by another event counter.
    Error(u16, Option<File>, SyncSender<()>),
    /// Answer by dropping it.
    Ping(Ping),
    /// End: what is under way is no longer answered.
    End,
}

/// The disk that a server serves: state that its threads share.
#[derive(Debug)]
pub(super) struct ServedDisk {
    pub(super) device: Arc<dyn Device>,
    pub(super) class: ClassChoice,
    pub(super) rules: SizeRules,
    pub(super) read_only: bool,
    pub(super) queues: u16,
    pub(super) id: [u8; ID_BYTES],
    /// The losses of the device's cache that the machine knows of which is served, or was last.
    pub(super) client: KnownLosses,
    /// A machine is connected.
    pub(super) connected: AtomicBool,
    /// Writes that the device has still of queues that stopped without their answers, and one for the
    /// writes of another process that is gone. Until they are done, a later write to their blocks could
    /// be overwritten by them.
    pub(super) late_writes: AtomicUsize,
    /// The identity of the volume; 0 where it is not known.
    pub(super) volume: u64,
    /// The way to the controllers behind the device, and those of this process.
    pub(super) succession: Option<Arc<dyn Succession>>,
    pub(super) writers: OwnWriters,
    /// The cores, once all have started.
    pub(super) cores: OnceLock<Vec<MailboxSender<Message>>>,
    /// Time at which nothing is waited for any more.
    pub(super) end_by: Mutex<Option<Instant>>,
    pub(super) log: Arc<LogBudget>,
}

impl ServedDisk {
    pub(super) fn core_of(&self, queue: u16) -> &MailboxSender<Message> {
        let cores = self.cores.get().expect("front ends come later");
        &cores[usize::from(queue) % cores.len()]
    }

    /// Returns true if writes have to wait, because an earlier one of an abandoned ring may still be
    /// carried out.
    #[inline]
    pub(super) fn holds_writes(&self) -> bool {
        self.late_writes.load(Ordering::SeqCst) > 0
    }

    /// Holds writes until each of `count` earlier ones [is over](Self::write_is_over).
    pub(super) fn hold_writes(&self, count: usize) {
        self.late_writes.fetch_add(count, Ordering::SeqCst);
    }

    /// One of the writes that others are held for is over.
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

    pub(super) fn properties(&self, geometry: Geometry) -> Properties {
        Properties {
            geometry,
            preferred_bytes: self.device.capabilities().preferred_bytes,
            queues: self.queues,
        }
    }
}
