//! One virtqueue on the core that serves it.

use super::guest_memory::Regions;
use super::inflight::InflightQueue;
use crate::log_budget::LogBudget;
use crate::virtio_blk::Status;
use reactor::FileId;
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::sync::mpsc::SyncSender;
use virtio_bindings::virtio_ring::VRING_AVAIL_F_NO_INTERRUPT;
use virtio_queue::{Queue, QueueT as _};
use vm_memory::mmap::MmapRegion;
use vm_memory::{Bytes as _, GuestAddress, GuestMemoryBackend as _, GuestRegionMmap};

/// Answers that the driver is shown together, at most: a driver that polls goes on with them while the
/// next ones are copied.
const PUBLISHED_TOGETHER: usize = 16;

/// A virtqueue that has stopped.
#[derive(Debug)]
pub(super) struct Stopped {
    /// Index of the next chain in the available ring.
    pub(super) base: u16,
    /// Heads of the chains that were taken and not answered.
    pub(super) unfinished: Vec<u16>,
}

/// Places in a used ring: its index, and its elements; and those in an available ring.
/// `[virtio 1.2 §2.7.6, §2.7.8]`
const USED_INDEX_AT: u64 = 2;
const USED_ELEMENTS_AT: u64 = 4;
const USED_ELEMENT_BYTES: u64 = 8;
const AVAIL_ELEMENTS_AT: u64 = 4;

/// A virtqueue that begins to be served.
#[derive(Debug)]
pub(super) struct RingSetup {
    /// Its number.
    pub(super) index: u16,
    /// Addresses and indices, checked.
    pub(super) queue: Queue,
    pub(super) memory: Arc<Regions>,
    /// Tells of new requests; without it they are polled for.
    pub(super) kick: Option<Arc<File>>,
    /// Tells the driver of completed ones, if it is to be told.
    pub(super) call: Option<File>,
    /// Tells the front end that the queue is broken.
    pub(super) error: Option<File>,
    pub(super) inflight: Option<InflightQueue>,
    /// Heads of chains that another back end took and did not finish.
    pub(super) unfinished: Vec<u16>,
    /// Every write is to be on stable storage: the driver never flushes.
    pub(super) durable: bool,
    pub(super) log: Arc<LogBudget>,
}

/// The state of the event counter that tells of new requests.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kick {
    /// There is none: the ring is polled.
    Absent,
    Watched(FileId),
    /// Its watch ends.
    Ending(FileId),
}

/// A virtqueue that is served.
#[derive(Debug)]
pub(super) struct Ring {
    pub(super) queue: Queue,
    pub(super) memory: Arc<Regions>,
    pub(super) kick: Kick,
    pub(super) call: Option<File>,
    pub(super) error: Option<File>,
    inflight: Option<InflightQueue>,
    pub(super) durable: bool,
    /// Chains that were taken and are not answered.
    pub(super) outstanding: usize,
    /// No chain is taken any more: the guest broke the ring.
    pub(super) broken: bool,
    /// The driver tells of new requests.
    pub(super) armed: bool,
    /// Heads of chains that were answered, which the driver is not shown yet.
    unpublished: Vec<u16>,
    /// Index of the used ring when the driver was told last.
    told: u16,
    /// Waits for the end of what is under way.
    pub(super) stopping: Option<SyncSender<Stopped>>,
    /// Heads of chains that stay unanswered, of a ring that stops.
    pub(super) unfinished: Vec<u16>,
    /// Number of the start, of all starts of rings on this core. Requests with another number are not
    /// answered here.
    pub(super) start: u64,
    log: Arc<LogBudget>,
}

impl Ring {
    pub(super) fn new(setup: RingSetup, kick: Kick, start: u64) -> Self {
        Self {
            unpublished: Vec::with_capacity(PUBLISHED_TOGETHER),
            told: setup.queue.next_used(),
            queue: setup.queue,
            memory: setup.memory,
            kick,
            call: setup.call,
            error: setup.error,
            inflight: setup.inflight,
            durable: setup.durable,
            outstanding: 0,
            broken: false,
            armed: false,
            stopping: None,
            unfinished: Vec::new(),
            start,
            log: setup.log,
        }
    }

    /// Returns true if chains may be taken.
    pub(super) fn takes(&self) -> bool {
        let room = self.outstanding < usize::from(self.queue.size());
        room && !self.broken && self.stopping.is_none()
    }

    /// A chain was taken.
    pub(super) fn took(&mut self, head: u16) {
        self.outstanding += 1;
        if let Some(inflight) = &mut self.inflight {
            inflight.began(head);
        }
    }

    /// Answers a request with its status, and `len` bytes of data before it where that is `Ok`. The
    /// driver is shown it at once, or [together](Self::publish) with others.
    pub(super) fn answer(
        &mut self,
        (head, at_once): (u16, bool),
        at: GuestAddress,
        status: Status,
        len: u32,
    ) {
        assert!(self.outstanding > 0, "a chain is answered once");
        self.outstanding -= 1;
        let memory = &*self.memory;
        if let Some(inflight) = &mut self.inflight {
            inflight.ending(head);
        }
        let written = memory.write_obj(status.byte(), at);
        // All bytes up to the length were written, which those before the status of a failure need
        // not be. `[virtio 1.2 §2.7.8.2]`
        let len = match status {
            Status::Ok => len.saturating_add(1),
            Status::IoError | Status::Unsupported => 0,
        };
        let place = self.next_used() % self.queue.size();
        let element = (u64::from(len) << 32 | u64::from(head)).to_le();
        let place = USED_ELEMENTS_AT + USED_ELEMENT_BYTES * u64::from(place);
        let used = memory.write_obj(element, GuestAddress(self.queue.used_ring() + place));
        if written.is_err() || used.is_err() {
            // Both were checked when the chain was taken.
            self.break_off(&"the used ring is outside guest memory");
            return;
        }
        self.unpublished.push(head);
        if at_once || self.unpublished.len() >= PUBLISHED_TOGETHER {
            self.publish();
        }
    }

    /// Returns the index of the used ring behind what was answered.
    fn next_used(&self) -> u16 {
        let ahead = u16::try_from(self.unpublished.len()).expect("a few");
        self.queue.next_used().wrapping_add(ahead)
    }

    /// Shows the driver what was answered. A driver that polls reads the index all the time, and each
    /// change of it has to come back from the driver's processor.
    fn publish(&mut self) {
        if self.unpublished.is_empty() {
            return;
        }
        let next = self.next_used();
        self.queue.set_next_used(next);
        let at = GuestAddress(self.queue.used_ring() + USED_INDEX_AT);
        let shown = self.memory.store(next.to_le(), at, Ordering::Release);
        if shown.is_err() {
            self.break_off(&"the used ring is outside guest memory");
        }
        if let Some(inflight) = &mut self.inflight {
            inflight.ended(&self.unpublished, next);
        }
        self.unpublished.clear();
    }

    /// A Flush was answered that began in the life of the device's caches with this
    /// [mark](crate::cache_life::mark).
    pub(super) fn flushed(&self, mark: u32) {
        if let Some(inflight) = &self.inflight {
            inflight.flushed(mark);
        }
    }

    /// Serves no further request: what the guest wrote makes no sense.
    pub(super) fn break_off(&mut self, reason: &dyn std::fmt::Display) {
        if std::mem::replace(&mut self.broken, true) {
            return;
        }
        // Once for each start of the ring, and a guest starts it as often as it likes.
        if let Some(suppressed) = self.log.allow() {
            tracing::error!(
                suppressed,
                "stopped a request queue because of an error of the guest: {reason}"
            );
        }
        if let Some(error) = &self.error {
            signal(error);
        }
    }

    /// Asks the driver to tell of new requests. Returns true if there are some already.
    pub(super) fn arm(&mut self) -> bool {
        self.armed = true;
        match self.queue.enable_notification(&*self.memory) {
            Ok(more) => more,
            Err(error) => {
                self.break_off(&error);
                false
            }
        }
    }

    /// Asks the driver to be silent.
    pub(super) fn disarm(&mut self) {
        if std::mem::take(&mut self.armed)
            && let Err(error) = self.queue.disable_notification(&*self.memory)
        {
            self.break_off(&error);
        }
    }

    /// Shows the driver what was answered, and tells it, if it wants to know.
    pub(super) fn notify(&mut self) {
        self.publish();
        let next = self.queue.next_used();
        let before = std::mem::replace(&mut self.told, next);
        if before == next {
            return;
        }
        // Complete the used ring before reading the driver's wish. `[virtio 1.2 §2.7.7.2]`
        fence(Ordering::SeqCst);
        let available = self.queue.avail_ring();
        let wanted = if self.queue.event_idx_enabled() {
            let event = available + AVAIL_ELEMENTS_AT + 2 * u64::from(self.queue.size());
            let event = self
                .memory
                .load::<u16>(GuestAddress(event), Ordering::Relaxed);
            event.map(|event| {
                // `[virtio 1.2 §2.7.10]`
                let passed = next.wrapping_sub(u16::from_le(event)).wrapping_sub(1);
                passed < next.wrapping_sub(before)
            })
        } else {
            let flags = GuestAddress(available);
            let flags = self.memory.load::<u16>(flags, Ordering::Relaxed);
            let silent = u16::try_from(VRING_AVAIL_F_NO_INTERRUPT).expect("one bit");
            flags.map(|flags| u16::from_le(flags) & silent == 0)
        };
        match wanted {
            Ok(true) => self.call.iter().for_each(signal),
            Ok(false) => {}
            Err(error) => self.break_off(&error),
        }
    }
}

/// Adds one to an event counter; one that is full has told already.
#[expect(
    clippy::host_endian_bytes,
    reason = "the counter is a number of this machine"
)]
pub(super) fn signal(counter: &File) {
    let _ = rustix::io::write(counter, &1u64.to_ne_bytes());
}

/// Bytes of an available ring with the most entries, and some for its alignment.
const RING_BYTES: usize = 4096;

/// A queue with an available ring that names `heads`, in memory that the guest's is part of: the way to
/// chains that the guest's own ring no longer names.
pub(super) fn recovered(
    queue: &Queue,
    memory: &Regions,
    heads: &[u16],
) -> Option<(Queue, Regions)> {
    let last = memory.0.iter().map(vm_memory::GuestMemoryRegion::last_addr);
    let above = last.max()?.0.checked_next_multiple_of(RING_BYTES as u64)?;
    let at = GuestAddress(above);
    let own = GuestRegionMmap::new(MmapRegion::new(RING_BYTES).ok()?, at)?;
    let memory = Regions(memory.0.insert_region(Arc::new(own)).ok()?);
    let field = |index: usize| GuestAddress(above + 2 * index as u64);
    let count = u16::try_from(heads.len()).ok()?;
    memory.write_obj(count.to_le(), field(1)).ok()?;
    for (index, head) in heads.iter().enumerate() {
        memory.write_obj(head.to_le(), field(2 + index)).ok()?;
    }
    let mut own = Queue::new(queue.max_size()).ok()?;
    own.try_set_size(queue.size()).ok()?;
    let table = GuestAddress(queue.desc_table());
    own.try_set_desc_table_address(table).ok()?;
    own.try_set_avail_ring_address(at).ok()?;
    own.set_ready(true);
    Some((own, memory))
}
