//! The record of outstanding requests, in memory that outlives this process.
//!
//! The front end keeps the memory and passes it to the next back end, which executes the requests
//! that the last one did not finish. `[vhost-user, "Inflight I/O tracking", split virtqueues]`

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

/// Version of the layout.
const VERSION: u16 = 1;

/// Field offsets in a queue's area.
const VERSION_AT: usize = 8;
const ENTRIES_AT: usize = 10;
const LAST_HEAD_AT: usize = 12;
const USED_AT: usize = 14;
const STATES_AT: usize = 16;

/// Bytes of a descriptor's state, and the offsets of its fields.
const STATE_BYTES: usize = 16;
const STATE_NEXT_AT: usize = 6;
const STATE_COUNTER_AT: usize = 8;

/// Alignment of the areas, in bytes.
const ALIGNMENT: usize = 64;

/// Bytes after the areas, which the specification leaves to the back end, and the offsets of fields
/// in them: the [mark](crate::cache_life::mark) of the device's cache life, the back end's number
/// of the machine, the identity of the volume, the back end's number, its host identifier, and its
/// controllers.
const TAIL_BYTES: usize = CONTROLLERS_AT + CONTROLLERS_MAX * CONTROLLER_BYTES;
const LIFE_AT: usize = 0;
const NUMBER_AT: usize = 4;
const VOLUME_AT: usize = 8;
const PROCESS_AT: usize = 16;
const HOST_AT: usize = 24;
const CONTROLLERS_AT: usize = ALIGNMENT;

/// Bytes of a controller's slot: the incarnation of the target's process, the controller
/// identifier, and a valid bit.
const CONTROLLER_BYTES: usize = 16;
const IDENTIFIER_AT: usize = 8;
const IS_THERE: u32 = 1 << 31;

/// The shared memory, with an area for each queue.
#[derive(Clone, Debug)]
pub(super) struct Inflight {
    memory: Arc<MmapRegion>,
    entries: u16,
    queues: u16,
    tail: Option<Tail>,
}

/// The part after the areas. Memory created by another program may have none.
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
    /// Creates empty memory for the requested queues.
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

    /// Maps the memory passed by the front end.
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

    /// Returns the data left by the last back end, or `None`.
    pub(super) fn left(&self) -> Option<Left> {
        let tail = self.tail.as_ref()?;
        Some(Left {
            number: NonZeroU32::new(tail.load(NUMBER_AT))?,
            mark: tail.load(LIFE_AT),
            volume: tail.load(VOLUME_AT),
        })
    }

    /// Stores data for the next back end.
    pub(super) fn leave(&self, left: Left) {
        if let Some(tail) = &self.tail {
            tail.store(LIFE_AT, left.mark);
            tail.store(VOLUME_AT, left.volume);
            tail.store(NUMBER_AT, left.number.get());
        }
    }

    /// Returns the number of the back end that stored its controllers, and these controllers.
    pub(super) fn left_writers(&self) -> (u64, Writers) {
        let mut writers = Writers::default();
        let Some(tail) = &self.tail else {
            return (0, writers);
        };
        let slice = tail.memory.as_volatile_slice();
        let read = slice.read_slice(&mut writers.host_id, tail.at + HOST_AT);
        read.expect("the tail lies within the memory");
        let controllers = (0..CONTROLLERS_MAX).filter_map(|place| tail.controller(place));
        writers.controllers = controllers.collect();
        (tail.load(PROCESS_AT), writers)
    }

    /// Stores the controllers of the back end with this number. Controllers of another back end
    /// have ended and are removed. If the back end is killed during the update, the record holds
    /// the old controllers, the new ones, or both.
    pub(super) fn leave_writers(&self, process: u64, writers: &Writers) {
        let Some(tail) = &self.tail else { return };
        if tail.load::<u64>(PROCESS_AT) != process {
            for place in 0..CONTROLLERS_MAX {
                tail.remove_controller(place);
            }
            let slice = tail.memory.as_volatile_slice();
            let written = slice.write_slice(&writers.host_id, tail.at + HOST_AT);
            written.expect("the tail lies within the memory");
            tail.store(PROCESS_AT, process);
        }
        let excess = writers.controllers.len().saturating_sub(CONTROLLERS_MAX);
        let wanted = &writers.controllers[excess..];
        let is_there = |controller| {
            let mut places = 0..CONTROLLERS_MAX;
            places.any(|place| tail.controller(place) == Some(controller))
        };
        let mut added = 0u32;
        for &controller in wanted.iter().filter(|&&controller| !is_there(controller)) {
            // If no slot is empty, a controller that is no longer in use is replaced.
            let is_free = |&place: &usize| {
                let here = tail.controller(place);
                here.is_none_or(|here| !wanted.contains(&here)) && added >> place & 1 == 0
            };
            let empty = (0..CONTROLLERS_MAX).find(|&place| tail.controller(place).is_none());
            let place = empty.or_else(|| (0..CONTROLLERS_MAX).find(is_free));
            let place = place.expect("there are as many places as controllers");
            tail.add_controller(place, controller);
            added |= 1 << place;
        }
        for place in 0..CONTROLLERS_MAX {
            let here = tail.controller(place);
            if here.is_some_and(|here| !wanted.contains(&here)) {
                tail.remove_controller(place);
            }
        }
    }

    /// Returns the area of a queue with `entries` entries; `None` if there is none.
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

/// Maximum controllers of one process: the current one, and those of lost connections.
pub(super) const CONTROLLERS_MAX: usize = 16;

/// Controllers through which a process sends writes to its device's target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Writers {
    /// The host identifier.
    pub host_id: [u8; 16],
    /// Identifier (CNTLID) and incarnation of the target's process; only the last 16 are stored.
    pub controllers: Vec<(u16, u64)>,
}

fn check(queues: u16, entries: u16) -> Result<(), Error> {
    let fits = (1..=VRINGS_MAX).contains(&queues) && (1..=VRING_ENTRIES_MAX).contains(&entries);
    fits.then_some(()).ok_or(Error::InvalidParam)
}

/// Data that a back end stores for the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Left {
    /// The back end's number of the machine.
    pub(super) number: NonZeroU32,
    /// The [mark](crate::cache_life::mark) of the device's cache life.
    pub(super) mark: u32,
    /// The identity of the volume; 0 if unknown.
    pub(super) volume: u64,
}

impl Tail {
    fn controller(&self, place: usize) -> Option<(u16, u64)> {
        let at = CONTROLLERS_AT + CONTROLLER_BYTES * place;
        let identifier: u32 = self.load(at + IDENTIFIER_AT);
        let cntlid = u16::try_from(identifier & !IS_THERE).ok()?;
        (identifier & IS_THERE != 0).then(|| (cntlid, self.load(at)))
    }

    fn add_controller(&self, place: usize, (cntlid, incarnation): (u16, u64)) {
        self.remove_controller(place);
        let at = CONTROLLERS_AT + CONTROLLER_BYTES * place;
        self.store(at, incarnation);
        self.store(at + IDENTIFIER_AT, u32::from(cntlid) | IS_THERE);
    }

    fn remove_controller(&self, place: usize) {
        let at = CONTROLLERS_AT + CONTROLLER_BYTES * place;
        self.store(at + IDENTIFIER_AT, 0u32);
    }

    fn load<T: vm_memory::AtomicAccess + Default>(&self, at: usize) -> T {
        let slice = self.memory.as_volatile_slice();
        let value = slice.load(self.at + at, Ordering::SeqCst);
        value.expect("the tail lies within the memory, aligned")
    }

    fn store<T: vm_memory::AtomicAccess>(&self, at: usize, value: T) {
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
    /// they were taken; `used` is the index of the used ring.
    pub(super) fn recover(&mut self, used: u16) -> Vec<u16> {
        if self.load::<u16>(VERSION_AT) == 0 {
            self.store(VERSION_AT, VERSION);
            self.store(ENTRIES_AT, self.entries);
            self.store(USED_AT, used);
            return Vec::new();
        }
        // The last batch was published to the driver, but the record was not updated.
        let mut head = self.load::<u16>(LAST_HEAD_AT);
        let last = used.wrapping_sub(self.load::<u16>(USED_AT));
        if last > self.entries {
            // The driver has restarted, and does not rely on earlier requests.
            for head in 0..self.entries {
                self.store(Self::state(head), 0u8);
            }
        }
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

    /// Records that a chain was taken.
    pub(super) fn began(&mut self, head: u16) {
        assert!(head < self.entries, "the record of another queue follows");
        let state = Self::state(head);
        self.store(state + STATE_COUNTER_AT, self.counter);
        self.counter = self.counter.wrapping_add(1);
        self.store(state, 1u8);
    }

    /// Records that a chain is about to be added to the used ring. The batch that is published
    /// together is a linked list, and `head` becomes its new head.
    pub(super) fn ending(&mut self, head: u16) {
        let last = self.load::<u16>(LAST_HEAD_AT);
        self.store(Self::state(head) + STATE_NEXT_AT, last);
        self.store(LAST_HEAD_AT, head);
    }

    /// Records that chains are in the used ring, whose index is now `used`.
    pub(super) fn ended(&mut self, heads: &[u16], used: u16) {
        for &head in heads {
            self.store(Self::state(head), 0u8);
        }
        self.store(USED_AT, used);
    }

    /// Records a completed Flush that began in the cache life with this mark: every earlier loss
    /// has been reported.
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
        // The used ring contains a chain that the record still has as in flight.
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
        // The back end ended before updating the used ring's index, with the whole batch or a
        // single chain in it.
        assert_eq!(second.recover(0), [5, 7, 0, 3]);
        assert_eq!(second.recover(3), [0]);
        // It had cleared one of them in the record.
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
        let left = |number, mark| Left {
            number,
            mark,
            volume: 0x1234_5678_9abc_def0,
        };
        assert_eq!(open(&given).left(), None, "nothing was left");
        open(&given).leave(left(one, 7));
        assert_eq!(open(&given).left(), Some(left(one, 7)));
        open(&given).queue(1, 8).expect("its own").flushed(9);
        assert_eq!(open(&given).left(), Some(left(one, 9)));
        open(&given).leave(left(other, 9));
        // Memory created by an earlier version.
        let bytes = given.mmap_size - TAIL_BYTES as u64;
        let short = VhostUserInflight::new(bytes, 0, 2, 8);
        assert_eq!(open(&short).left(), None);
        open(&short).leave(left(one, 7));
        open(&short).queue(1, 8).expect("its own").flushed(1);
        assert_eq!(open(&given).left(), Some(left(other, 9)), "untouched");
    }

    #[test]
    fn the_controllers_of_a_back_end_are_what_it_left_last() {
        let wanted = VhostUserInflight::new(0, 0, 2, 8);
        let (given, file) = Inflight::create(&wanted).expect("a small memory");
        let record = Inflight::open(&given, file).expect("its own");
        let mut writers = Writers {
            host_id: [7; 16],
            controllers: Vec::new(),
        };
        assert_eq!(record.left_writers(), (0, Writers::default()));
        for count in [1, 3, CONTROLLERS_MAX, 2, 0] {
            let numbers = 0..u16::try_from(count).expect("few");
            writers.controllers = numbers.map(|number| (number, u64::MAX)).collect();
            record.leave_writers(5, &writers);
            let (process, mut left) = record.left_writers();
            left.controllers.sort_unstable();
            assert_eq!((process, &left), (5, &writers));
        }
        // As many other controllers, more than there are slots.
        let numbers = 100..118;
        writers.controllers = numbers.map(|number| (number, 1)).collect();
        record.leave_writers(5, &writers);
        let (_, mut left) = record.left_writers();
        left.controllers.sort_unstable();
        assert_eq!(left.controllers, writers.controllers[2..]);
        (writers.host_id, writers.controllers) = ([8; 16], vec![(1, 1)]);
        record.leave_writers(6, &writers);
        assert_eq!(record.left_writers(), (6, writers));
    }

    /// Requests of a driver that has since been reset must not be executed.
    #[test]
    fn a_driver_that_begins_anew_has_nothing_unfinished() {
        let (mut first, mut second) = queue();
        assert!(first.recover(20).is_empty());
        first.began(5);
        assert!(second.recover(0).is_empty());
        assert!(first.recover(0).is_empty());
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
