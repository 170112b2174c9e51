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

/// Maximum completions published together: a polling driver handles them while the next ones are
/// copied.
const PUBLISHED_TOGETHER: usize = 16;

/// A virtqueue that has stopped.
#[derive(Debug)]
pub(super) struct Stopped {
    /// Index of the next chain in the available ring.
    pub(super) base: u16,
    /// Heads of the chains that were taken but not completed.
    pub(super) unfinished: Vec<u16>,
}

/// Offsets in a used ring (index, elements) and in an available ring. `[virtio 1.2 §2.7.6, §2.7.8]`
const USED_INDEX_AT: u64 = 2;
const USED_ELEMENTS_AT: u64 = 4;
const USED_ELEMENT_BYTES: u64 = 8;
const AVAIL_ELEMENTS_AT: u64 = 4;

/// The parameters of a virtqueue to be served.
#[derive(Debug)]
pub(super) struct RingSetup {
    /// Index of the queue.
    pub(super) index: u16,
    /// Addresses and indices, validated.
    pub(super) queue: Queue,
    pub(super) memory: Arc<Regions>,
    /// Signals new requests; without it the ring is polled.
    pub(super) kick: Option<Arc<File>>,
    /// Notifies the driver of completions; `None` if it wants no notifications.
    pub(super) call: Option<File>,
    /// Notifies the front end of a broken queue.
    pub(super) error: Option<File>,
    pub(super) inflight: Option<InflightQueue>,
    /// Heads of chains that another back end took but did not complete.
    pub(super) unfinished: Vec<u16>,
    /// Every write must be on stable storage on completion: the driver never flushes.
    pub(super) durable: bool,
    pub(super) log: Arc<LogBudget>,
}

/// State of the event counter that signals new requests.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kick {
    /// No event counter: the ring is polled.
    Absent,
    Watched(FileId),
    /// Its watch is ending.
    Ending(FileId),
}

/// A virtqueue that is being served.
#[derive(Debug)]
pub(super) struct Ring {
    pub(super) queue: Queue,
    pub(super) memory: Arc<Regions>,
    pub(super) kick: Kick,
    pub(super) call: Option<File>,
    pub(super) error: Option<File>,
    inflight: Option<InflightQueue>,
    pub(super) durable: bool,
    /// Number of chains that were taken and not completed.
    pub(super) outstanding: usize,
    /// No more chains are taken: the guest corrupted the ring.
    pub(super) broken: bool,
    /// Notifications of new requests are enabled.
    pub(super) armed: bool,
    /// Heads of completed chains that are not published to the driver yet.
    unpublished: Vec<u16>,
    /// Index of the used ring at the last notification of the driver.
    told: u16,
    /// Present while the ring stops: receives the report once all chains are completed.
    pub(super) stopping: Option<SyncSender<Stopped>>,
    /// Heads of a stopping ring's chains that stay incomplete.
    pub(super) unfinished: Vec<u16>,
    /// Start number, counted over all rings of this core. Requests with another number do not
    /// complete on this ring.
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

    /// Records that a chain was taken.
    pub(super) fn took(&mut self, head: u16) {
        self.outstanding += 1;
        if let Some(inflight) = &mut self.inflight {
            inflight.began(head);
        }
    }

    /// Completes a request with its status, preceded by `len` bytes of data if the status is `Ok`.
    /// It is published to the driver at once, or [together](Self::publish) with other completions.
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
        // All bytes up to the length must have been written, which need not hold for the bytes
        // before a failure status. `[virtio 1.2 §2.7.8.2]`
        let len = match status {
            Status::Ok => len.saturating_add(1),
            Status::IoError | Status::Unsupported => 0,
        };
        let place = self.next_used() % self.queue.size();
        let element = (u64::from(len) << 32 | u64::from(head)).to_le();
        let place = USED_ELEMENTS_AT + USED_ELEMENT_BYTES * u64::from(place);
        let used = memory.write_obj(element, GuestAddress(self.queue.used_ring() + place));
        if written.is_err() || used.is_err() {
            // Both were validated when the chain was taken.
            self.break_off(&"the used ring is outside guest memory");
            return;
        }
        self.unpublished.push(head);
        if at_once || self.unpublished.len() >= PUBLISHED_TOGETHER {
            self.publish();
        }
    }

    /// Returns the used ring's index after all completions, including unpublished ones.
    fn next_used(&self) -> u16 {
        let ahead = u16::try_from(self.unpublished.len()).expect("a few");
        self.queue.next_used().wrapping_add(ahead)
    }

    /// Publishes completions to the driver. A polling driver reads the index continuously, so each
    /// update must fetch the cache line back from the driver's processor.
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

    /// Records a completed Flush that began in the cache life with this
    /// [mark](crate::cache_life::mark).
    pub(super) fn flushed(&self, mark: u32) {
        if let Some(inflight) = &self.inflight {
            inflight.flushed(mark);
        }
    }

    /// Stops taking requests because the guest's ring is invalid.
    pub(super) fn break_off(&mut self, reason: &dyn std::fmt::Display) {
        if std::mem::replace(&mut self.broken, true) {
            return;
        }
        // Once per start of the ring, and a guest can restart it without limit.
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

    /// Enables the driver's notifications. Returns true if new requests are already there.
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

    /// Disables the driver's notifications.
    pub(super) fn disarm(&mut self) {
        if std::mem::take(&mut self.armed)
            && let Err(error) = self.queue.disable_notification(&*self.memory)
        {
            self.break_off(&error);
        }
    }

    /// Publishes completions, and notifies the driver if it has notifications enabled.
    pub(super) fn notify(&mut self) {
        self.publish();
        let next = self.queue.next_used();
        let before = std::mem::replace(&mut self.told, next);
        if before == next {
            return;
        }
        // The used ring must be written before the driver's notification setting is read. `[virtio
        // 1.2 §2.7.7.2]`
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

/// Adds 1 to an event counter; a full counter is already signalled.
#[expect(
    clippy::host_endian_bytes,
    reason = "the counter is a number of this machine"
)]
pub(super) fn signal(counter: &File) {
    let _ = rustix::io::write(counter, &1u64.to_ne_bytes());
}

/// Bytes of an available ring with the maximum entries, including alignment padding.
const RING_BYTES: usize = 4096;

/// Creates a queue whose available ring contains `heads`, in memory that includes the guest's. It
/// gives access to chains that the guest's own ring no longer contains.
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
