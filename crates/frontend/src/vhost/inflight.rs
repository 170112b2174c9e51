//! The record of requests under way, in memory that outlives this process.
//!
//! The front end keeps the memory, and hands it to the next back end, which carries out what the
//! last one did not finish. `[vhost-user, "Inflight I/O tracking", split virtqueues]`

use crate::limits::{VRING_ENTRIES_MAX, VRINGS_MAX};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::fs::File;
use std::io;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vhost::vhost_user::Error;
use vhost::vhost_user::message::VhostUserInflight;
use vm_memory::mmap::MmapRegion;
use vm_memory::{Bytes as _, FileOffset, VolatileMemory as _};

/// The version of the layout.
const VERSION: u16 = 1;

/// Places of fields in a queue's area.
const VERSION_AT: usize = 8;
const ENTRIES_AT: usize = 10;
const LAST_HEAD_AT: usize = 12;
const USED_AT: usize = 14;
const STATES_AT: usize = 16;

/// Bytes of a descriptor's state, and places of its fields.
const STATE_BYTES: usize = 16;
const STATE_NEXT_AT: usize = 6;
const STATE_COUNTER_AT: usize = 8;

/// Alignment of the areas.
const ALIGNMENT: usize = 64;

/// Bytes behind the areas, which the specification leaves to the back end, and places of fields in
/// them: the [mark](crate::cache_life::mark) of the life of the device's caches, and the number that
/// the back end has for the machine.
const TAIL_BYTES: usize = ALIGNMENT;
const LIFE_AT: usize = 0;
const NUMBER_AT: usize = 4;

/// The memory, with an area for each queue.
#[derive(Clone, Debug)]
pub(super) struct Inflight {
    memory: Arc<MmapRegion>,
    entries: u16,
    queues: u16,
    tail: Option<Tail>,
}

/// The part behind the areas. Memory that another program made may have none.
#[derive(Clone, Debug)]
struct Tail {
    memory: Arc<MmapRegion>,
    at: usize,
}

/// The area of one queue.
#[derive(Debug)]
pub(super) struct InflightQueue {
    memory: Arc<MmapRegion>,
    base: usize,
    entries: u16,
    counter: u64,
    tail: Option<Tail>,
}

fn area_bytes(entries: u16) -> usize {
    (STATES_AT + STATE_BYTES * usize::from(entries)).next_multiple_of(ALIGNMENT)
}

fn failed(error: impl Into<io::Error>) -> Error {
    Error::ReqHandlerError(error.into())
}

impl Inflight {
    /// Makes the memory for the queues that are asked for; empty.
    pub(super) fn create(wanted: &VhostUserInflight) -> Result<(VhostUserInflight, File), Error> {
        let (queues, entries) = (wanted.num_queues, wanted.queue_size);
        check(queues, entries)?;
        let bytes = area_bytes(entries) * usize::from(queues) + TAIL_BYTES;
        let file = memfd_create(c"switchyard-inflight", MemfdFlags::CLOEXEC).map_err(failed)?;
        ftruncate(&file, bytes as u64).map_err(failed)?;
        Ok((
            VhostUserInflight::new(bytes as u64, 0, queues, entries),
            file.into(),
        ))
    }

    /// Takes the memory from the front end.
    pub(super) fn open(given: &VhostUserInflight, file: File) -> Result<Self, Error> {
        let (queues, entries) = (given.num_queues, given.queue_size);
        check(queues, entries)?;
        let areas = area_bytes(entries) * usize::from(queues);
        if given.mmap_size < areas as u64 {
            return Err(Error::InvalidParam);
        }
        let has_tail = given.mmap_size >= (areas + TAIL_BYTES) as u64;
        let bytes = if has_tail { areas + TAIL_BYTES } else { areas };
        let memory = MmapRegion::from_file(FileOffset::new(file, given.mmap_offset), bytes);
        let memory = memory.map_err(|error| failed(io::Error::other(error)))?;
        let memory = Arc::new(memory);
        Ok(Self {
            tail: has_tail.then(|| Tail {
                memory: Arc::clone(&memory),
                at: areas,
            }),
            memory,
            entries,
            queues,
        })
    }

    /// Returns the number that the last back end had for the machine, and the mark that it left.
    pub(super) fn left(&self) -> Option<(NonZeroU32, u32)> {
        let tail = self.tail.as_ref()?;
        let number = NonZeroU32::new(tail.load(NUMBER_AT))?;
        Some((number, tail.load(LIFE_AT)))
    }

    /// Leaves the number that this back end has for the machine, and a mark.
    pub(super) fn leave(&self, number: NonZeroU32, mark: u32) {
        if let Some(tail) = &self.tail {
            tail.store(LIFE_AT, mark);
            tail.store(NUMBER_AT, number.get());
        }
    }

    /// The area of a queue with so many entries; `None` where there is none.
    pub(super) fn queue(&self, index: u16, entries: u16) -> Option<InflightQueue> {
        (index < self.queues && entries <= self.entries).then(|| InflightQueue {
            memory: Arc::clone(&self.memory),
            base: usize::from(index) * area_bytes(self.entries),
            entries: self.entries,
            counter: 0,
            tail: self.tail.clone(),
        })
    }
}

fn check(queues: u16, entries: u16) -> Result<(), Error> {
    let fits = (1..=VRINGS_MAX).contains(&queues) && (1..=VRING_ENTRIES_MAX).contains(&entries);
    fits.then_some(()).ok_or(Error::InvalidParam)
}

impl Tail {
    fn load(&self, at: usize) -> u32 {
        let slice = self.memory.as_volatile_slice();
        let value = slice.load(self.at + at, Ordering::SeqCst);
        value.expect("the tail lies within the memory, aligned")
    }

    fn store(&self, at: usize, value: u32) {
        let slice = self.memory.as_volatile_slice();
        let stored = slice.store(value, self.at + at, Ordering::SeqCst);
        stored.expect("the tail lies within the memory, aligned");
    }
}

impl InflightQueue {
    fn load<T: vm_memory::AtomicAccess + Default>(&self, at: usize) -> T {
        let slice = self.memory.as_volatile_slice();
        let value = slice.load(self.base + at, Ordering::Acquire);
        value.expect("the area lies within the memory, aligned")
    }

    fn store<T: vm_memory::AtomicAccess>(&self, at: usize, value: T) {
        let slice = self.memory.as_volatile_slice();
        let stored = slice.store(value, self.base + at, Ordering::Release);
        stored.expect("the area lies within the memory, aligned");
    }

    fn state(head: u16) -> usize {
        STATES_AT + STATE_BYTES * usize::from(head)
    }

    /// Returns the heads of the chains that the last back end did not finish, in the order in which
    /// it took them; `used` is the index of the used ring.
    pub(super) fn recover(&mut self, used: u16) -> Vec<u16> {
        if self.load::<u16>(VERSION_AT) == 0 {
            self.store(VERSION_AT, VERSION);
            self.store(ENTRIES_AT, self.entries);
            self.store(USED_AT, used);
            return Vec::new();
        }
        // The last ones became visible to the driver together, and were not struck off any more.
        let mut head = self.load::<u16>(LAST_HEAD_AT);
        let last = used.wrapping_sub(self.load::<u16>(USED_AT));
        for _ in 0..last.min(self.entries) {
            if head >= self.entries {
                break;
            }
            self.store(Self::state(head), 0u8);
            head = self.load(Self::state(head) + STATE_NEXT_AT);
        }
        self.store(USED_AT, used);
        let open = (0..self.entries).filter(|&head| self.load::<u8>(Self::state(head)) == 1);
        let counter = |head: u16| self.load::<u64>(Self::state(head) + STATE_COUNTER_AT);
        let mut open: Vec<_> = open.map(|head| (counter(head), head)).collect();
        open.sort_unstable();
        self.counter = open
            .last()
            .map_or(0, |(counter, _)| counter.wrapping_add(1));
        open.into_iter().map(|(_, head)| head).collect()
    }

    /// A chain was taken.
    pub(super) fn began(&mut self, head: u16) {
        assert!(head < self.entries, "the record of another queue follows");
        let state = Self::state(head);
        self.store(state + STATE_COUNTER_AT, self.counter);
        self.counter = self.counter.wrapping_add(1);
        self.store(state, 1u8);
    }

    /// A chain is in the used ring next: the batch that becomes visible to the driver together is
    /// a list, of which this is the new head.
    pub(super) fn ending(&mut self, head: u16) {
        let last = self.load::<u16>(LAST_HEAD_AT);
        self.store(Self::state(head) + STATE_NEXT_AT, last);
        self.store(LAST_HEAD_AT, head);
    }

    /// Chains are in the used ring, which has the index `used` now.
    pub(super) fn ended(&mut self, heads: &[u16], used: u16) {
        for &head in heads {
            self.store(Self::state(head), 0u8);
        }
        self.store(USED_AT, used);
    }

    /// A Flush was answered that began in the life with this mark: what was lost before that is told.
    pub(super) fn flushed(&self, mark: u32) {
        if let Some(tail) = &self.tail {
            tail.store(LIFE_AT, mark);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue() -> (InflightQueue, InflightQueue) {
        let wanted = VhostUserInflight::new(0, 0, 2, 8);
        let (given, file) = Inflight::create(&wanted).expect("a small memory");
        let again = file.try_clone().expect("a descriptor is left");
        let open = |file| Inflight::open(&given, file).expect("its own");
        let of = |inflight: Inflight| inflight.queue(1, 8).expect("there are two");
        (of(open(file)), of(open(again)))
    }

    #[test]
    fn unfinished_chains_are_found_in_their_order() {
        let (mut first, mut second) = queue();
        assert!(first.recover(0).is_empty());
        for head in [5, 2, 7] {
            first.began(head);
        }
        first.ending(2);
        first.ended(&[2], 1);
        assert_eq!(second.recover(1), [5, 7]);
        // The used ring shows one that was not struck off.
        second.ending(7);
        assert_eq!(first.recover(2), [5]);
    }

    #[test]
    fn a_batch_that_the_driver_has_seen_is_struck_off_as_a_whole() {
        let (mut first, mut second) = queue();
        assert!(first.recover(u16::MAX).is_empty());
        for head in [5, 2, 7, 0, 3] {
            first.began(head);
        }
        first.ending(2);
        first.ended(&[2], 0);
        for head in [7, 5, 3] {
            first.ending(head);
        }
        // The back end ended before the index of the used ring, with all of them, or with one.
        assert_eq!(second.recover(0), [5, 7, 0, 3]);
        assert_eq!(second.recover(3), [0]);
        // It had struck one of them off.
        for head in [1, 4] {
            first.began(head);
            first.ending(head);
        }
        first.store(InflightQueue::state(1), 0u8);
        assert_eq!(second.recover(5), [0]);
    }

    #[test]
    fn each_back_end_finds_the_mark_that_the_last_flush_left() {
        let wanted = VhostUserInflight::new(0, 0, 2, 8);
        let (given, file) = Inflight::create(&wanted).expect("a small memory");
        let open = |given: &VhostUserInflight| {
            let file = file.try_clone().expect("a descriptor is left");
            Inflight::open(given, file).expect("its own")
        };
        let [one, other] = [3, 5].map(|number| NonZeroU32::new(number).expect("not 0"));
        assert_eq!(open(&given).left(), None, "nothing was left");
        open(&given).leave(one, 7);
        assert_eq!(open(&given).left(), Some((one, 7)));
        open(&given).queue(1, 8).expect("its own").flushed(9);
        assert_eq!(open(&given).left(), Some((one, 9)));
        open(&given).leave(other, 9);
        // As an earlier version made it.
        let bytes = given.mmap_size - TAIL_BYTES as u64;
        let short = VhostUserInflight::new(bytes, 0, 2, 8);
        assert_eq!(open(&short).left(), None);
        open(&short).leave(one, 7);
        open(&short).queue(1, 8).expect("its own").flushed(1);
        assert_eq!(open(&given).left(), Some((other, 9)), "untouched");
    }

    #[test]
    fn memory_that_does_not_fit_is_refused() {
        let wanted = VhostUserInflight::new(0, 0, 1, 8);
        let (given, file) = Inflight::create(&wanted).expect("a small memory");
        let larger = VhostUserInflight::new(1 << 20, 0, 64, 1024);
        let copy = file.try_clone().expect("a descriptor is left");
        Inflight::open(&larger, copy).expect_err("the file is shorter");
        let inflight = Inflight::open(&given, file).expect("its own");
        assert!(inflight.queue(1, 8).is_none());
        assert!(inflight.queue(0, 16).is_none());
        for (queues, entries) in [(0, 8), (1, 0), (65, 8), (1, 2048)] {
            let wanted = VhostUserInflight::new(0, 0, queues, entries);
            assert!(Inflight::create(&wanted).is_err(), "out of bounds");
        }
    }
}
