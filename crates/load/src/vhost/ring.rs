//! The driver's half of a split virtqueue, in memory that is shared with the device.
//! `[virtio 1.2 §2.7]`

use std::io;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use vhost::VringConfigData;
use vm_memory::mmap::MmapRegion;
use vm_memory::{AtomicAccess, ByteValued, Bytes as _, VolatileMemory as _};

/// Descriptors of a queue. Each slot has three: header, data, status.
pub const ENTRIES: u16 = 1024;

/// Most requests in flight.
pub const SLOTS: u16 = 256;

/// Most bytes of a request's data.
pub const DATA_BYTES: usize = 128 * 1024;

/// Bytes of a request's header.
const HEADER_BYTES: usize = 16;

/// Offsets within a queue's area: descriptors, available ring, used ring, headers and statuses.
const AVAILABLE_AT: usize = 16 * ENTRIES as usize;
const USED_AT: usize = AVAILABLE_AT + 4096;
const HEADERS_AT: usize = USED_AT + 12 * 1024;
const STATUSES_AT: usize = HEADERS_AT + 32 * SLOTS as usize;
const DATA_AT: usize = 64 * 1024;

/// Bytes of a queue's area.
pub const AREA_BYTES: usize = DATA_AT + SLOTS as usize * DATA_BYTES;

const _: () = assert!(STATUSES_AT + SLOTS as usize <= DATA_AT);

/// Flags of a descriptor: another descriptor follows; the device writes to the buffer. `[virtio 1.2
/// §2.7.5]`
const NEXT: u16 = 1;
const WRITE: u16 = 2;

/// The data of a request, from the device's point of view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// No data.
    None,
    /// The device reads this number of bytes.
    Out(usize),
    /// The device writes this number of bytes.
    In(usize),
}

/// One queue.
#[derive(Debug)]
pub struct DriverRing {
    memory: Arc<MmapRegion>,
    /// The first byte of the area, which is also its address for the device.
    base: usize,
    /// Available index: requests made available, including those not yet published.
    available: u16,
    published: u16,
    used: u16,
}

impl DriverRing {
    /// An empty queue with its area at `base`, which it clears.
    ///
    /// # Errors
    /// The area does not lie within the memory.
    pub fn new(memory: Arc<MmapRegion>, base: usize) -> io::Result<Self> {
        let ring = Self {
            memory,
            base,
            available: 0,
            published: 0,
            used: 0,
        };
        let slice = ring.memory.as_volatile_slice();
        let cleared = slice.write_slice(&[0; DATA_AT], base);
        cleared.map_err(io::Error::other)?;
        Ok(ring)
    }

    /// Returns the queue's addresses in the form that a back end needs.
    #[must_use]
    pub const fn addresses(&self) -> VringConfigData {
        let base = self.base as u64;
        VringConfigData {
            queue_max_size: ENTRIES,
            queue_size: ENTRIES,
            flags: 0,
            desc_table_addr: base,
            used_ring_addr: base + USED_AT as u64,
            avail_ring_addr: base + AVAILABLE_AT as u64,
            log_addr: None,
        }
    }

    fn write<T: ByteValued>(&self, at: usize, value: T) {
        let slice = self.memory.as_volatile_slice();
        let written = slice.write_obj(value, self.base + at);
        written.expect("the area lies within the memory");
    }

    fn store<T: AtomicAccess>(&self, at: usize, value: T, order: Ordering) {
        let slice = self.memory.as_volatile_slice();
        let stored = slice.store(value, self.base + at, order);
        stored.expect("the area lies within the memory, aligned");
    }

    fn load<T: AtomicAccess>(&self, at: usize, order: Ordering) -> T {
        let slice = self.memory.as_volatile_slice();
        let loaded = slice.load(self.base + at, order);
        loaded.expect("the area lies within the memory, aligned")
    }

    fn data_at(slot: u16) -> usize {
        DATA_AT + usize::from(slot) * DATA_BYTES
    }

    /// Copies `bytes` into a slot's data, from `at` on.
    pub fn put(&self, slot: u16, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= DATA_BYTES, "a slot's data is bounded");
        let slice = self.memory.as_volatile_slice();
        let written = slice.write_slice(bytes, self.base + Self::data_at(slot) + at);
        written.expect("the area lies within the memory");
    }

    /// Copies a slot's data out.
    pub fn get(&self, slot: u16, bytes: &mut [u8]) {
        assert!(bytes.len() <= DATA_BYTES, "a slot's data is bounded");
        let slice = self.memory.as_volatile_slice();
        let read = slice.read_slice(bytes, self.base + Self::data_at(slot));
        read.expect("the area lies within the memory");
    }

    /// Writes one descriptor.
    pub fn describe(&self, index: u16, address: u64, len: u32, flags: u16, next: u16) {
        let at = 16 * usize::from(index);
        self.write(at, address.to_le());
        self.write(at + 8, len.to_le());
        self.write(at + 12, flags.to_le());
        self.write(at + 14, next.to_le());
    }

    /// Makes a request available in the slot; [`publish`](Self::publish) shows it to the device.
    pub fn add(&mut self, slot: u16, kind: u32, priority: u32, sector: u64, data: Data) {
        let base = self.base as u64;
        let header = HEADERS_AT + 32 * usize::from(slot);
        self.write(header, kind.to_le());
        self.write(header + 4, priority.to_le());
        self.write(header + 8, sector.to_le());
        let first = 3 * slot;
        let status = base + (STATUSES_AT + usize::from(slot)) as u64;
        let header_bytes = u32::try_from(HEADER_BYTES).expect("16");
        let after = if data == Data::None {
            first + 2
        } else {
            first + 1
        };
        self.describe(first, base + header as u64, header_bytes, NEXT, after);
        let address = base + Self::data_at(slot) as u64;
        let len = |len: usize| u32::try_from(len).expect("a slot's data is bounded");
        match data {
            Data::None => {}
            Data::Out(bytes) => self.describe(first + 1, address, len(bytes), NEXT, first + 2),
            Data::In(bytes) => {
                self.describe(first + 1, address, len(bytes), NEXT | WRITE, first + 2);
            }
        }
        self.describe(first + 2, status, 1, WRITE, 0);
        self.write(STATUSES_AT + usize::from(slot), 0xFFu8);
        self.offer(first);
    }

    /// Puts the head of a descriptor chain into the available ring.
    pub fn offer(&mut self, head: u16) {
        let place = usize::from(self.available % ENTRIES);
        self.write(AVAILABLE_AT + 4 + 2 * place, head.to_le());
        self.available = self.available.wrapping_add(1);
    }

    /// Publishes the available requests. Returns true if the device requested a notification.
    pub fn publish(&mut self) -> bool {
        if self.published == self.available {
            return false;
        }
        self.store(AVAILABLE_AT + 2, self.available.to_le(), Ordering::Release);
        // The index is visible before the device's notification setting is read. `[virtio 1.2
        // §2.7.13.4.1]`
        fence(Ordering::SeqCst);
        let event = USED_AT + 4 + 8 * usize::from(ENTRIES);
        let event = u16::from_le(self.load(event, Ordering::Relaxed));
        let old = std::mem::replace(&mut self.published, self.available);
        // `[virtio 1.2 §2.7.10]`
        let passed = self.available.wrapping_sub(event).wrapping_sub(1);
        passed < self.available.wrapping_sub(old)
    }

    /// Makes the available ring claim another number of chains, for hostile drivers.
    pub fn jump(&mut self, chains: u16) {
        self.available = self.available.wrapping_add(chains);
    }

    /// Returns true if the device has used a chain that was not [taken](Self::take).
    #[must_use]
    pub fn has_used(&self) -> bool {
        let index = u16::from_le(self.load(USED_AT + 2, Ordering::Acquire));
        index != self.used
    }

    /// Enables the device's notification of the next used chain. Returns true if there is one
    /// already.
    #[must_use]
    pub fn arm(&self) -> bool {
        let event = AVAILABLE_AT + 4 + 2 * usize::from(ENTRIES);
        self.store(event, self.used.to_le(), Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.has_used()
    }

    /// Takes a used chain: its slot, its status, and the number of bytes that the device wrote.
    pub fn take(&mut self) -> Option<(u16, u8, u32)> {
        if !self.has_used() {
            return None;
        }
        let place = USED_AT + 4 + 8 * usize::from(self.used % ENTRIES);
        let head = u32::from_le(self.load(place, Ordering::Relaxed));
        let len = u32::from_le(self.load(place + 4, Ordering::Relaxed));
        self.used = self.used.wrapping_add(1);
        let slot = u16::try_from(head / 3).ok().filter(|&slot| slot < SLOTS)?;
        let status = self.load(STATUSES_AT + usize::from(slot), Ordering::Relaxed);
        Some((slot, status, len))
    }
}
