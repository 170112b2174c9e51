//! The completion time of a flash request: the model, without data and without waiting.
//!
//! A page is on a die, which executes its operations one after another in order of arrival;
//! channels transfer pages likewise. Reads wait for the die's current work. Writes complete in a
//! buffer and load the dies later: with a program, and with the pages that garbage collection moves
//! and the blocks that it erases. This work is cut into slices of the length of a read (it is
//! suspended to let reads through) and spread over the dies, so that it disturbs reads as much as
//! the same number of further reads would. That is why one weight for writes is enough (`[ReFlex
//! Fig. 3]`). If nothing was programmed for a while, dies read faster.

use super::profile::Parts;
use base::{Nanos, Time};
use std::sync::atomic::{AtomicU64, Ordering};

/// Time without a program operation after which dies read faster.
const SETTLE: Nanos = Nanos::from_millis(20);

/// Entries in one page of the map: 4 bytes each.
const MAP_PAGES: u64 = 1024;

/// Map pages that one command changes at most: the map of 1 GiB.
const MAP_PAGES_MAX: u64 = 256;

/// The properties of a request that determine its duration. Pages are 4 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads of consecutive pages.
    Read {
        /// The first page.
        page: u64,
        /// Number of pages.
        pages: u64,
    },
    /// Writes of pages; the device chooses their location.
    Write {
        /// Number of pages.
        pages: u64,
    },
    /// Changes of the page map without data (Write Zeroes, Deallocate).
    Map {
        /// Number of pages.
        pages: u64,
    },
    /// A flush costs only the command, because the buffer survives a power loss.
    Flush,
}

impl Access {
    /// Returns the number of pages transferred between the device and its host.
    fn pages_carried(self) -> u64 {
        match self {
            Self::Read { pages, .. } | Self::Write { pages } => pages,
            Self::Map { pages } => map_pages(pages),
            Self::Flush => 0,
        }
    }
}

/// Returns the number of map pages with the entries of `pages` pages.
fn map_pages(pages: u64) -> u64 {
    pages.div_ceil(MAP_PAGES).min(MAP_PAGES_MAX)
}

/// Time until which each part of a device is busy, in nanoseconds.
///
/// It needs no event queue: a result depends only on `now` and the order of calls, in virtual and
/// in real time. All threads of a device share it, with atomics and no lock. An ageing or
/// overheated device is [slower](Self::slow_down) from then on; garbage collection for a while
/// makes it [busy](Self::storm). Invariant: a call never blocks, and no request ends before `now`.
#[derive(Debug)]
pub struct Timing {
    parts: Parts,
    dies: Box<[AtomicU64]>,
    channels: Box<[AtomicU64]>,
    /// Time at which each slot of the write buffer is free, in the order of use.
    buffer: Box<[AtomicU64]>,
    written: AtomicU64,
    /// Total work of writes in nanoseconds; the slices are numbered by it.
    work: AtomicU64,
    /// Time of the last program operation.
    programmed_at: AtomicU64,
    /// Duration of an operation in percent of the profile's.
    pace_percent: AtomicU64,
}

impl Timing {
    /// Creates an idle device.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        let idle = |count: u32| (0..count).map(|_| AtomicU64::new(0)).collect();
        Self {
            parts,
            dies: idle(parts.dies),
            channels: idle(parts.channels),
            buffer: idle(parts.buffer_pages),
            written: AtomicU64::new(0),
            work: AtomicU64::new(0),
            programmed_at: AtomicU64::new(0),
            pace_percent: AtomicU64::new(100),
        }
    }

    /// Sets the duration of die and channel operations in percent of the profile's: 100 is a new
    /// device, 200 one of half the speed. Operations in flight keep their end.
    pub fn slow_down(&self, percent: u32) {
        self.pace_percent
            .store(percent.max(1).into(), Ordering::Relaxed);
    }

    /// Makes every die busy with internal work for this time, after its current work.
    pub fn storm(&self, now: Time, span: Nanos) {
        for die in &self.dies {
            reserve(die, now, span);
        }
    }

    /// Returns the current duration of an operation that takes `span` on a new device.
    fn paced(&self, span: Nanos) -> Nanos {
        match self.pace_percent.load(Ordering::Relaxed) {
            100 => span,
            percent => Nanos(span.0.saturating_mul(percent) / 100),
        }
    }

    /// Returns the time at which a request that arrives now completes.
    pub fn finish(&self, now: Time, access: Access) -> Time {
        self.finish_all(now, std::iter::once(access))
    }

    /// Returns the time at which a command of several extents that arrives now completes: the
    /// controller's time counts once.
    pub fn finish_all(&self, now: Time, accesses: impl Iterator<Item = Access>) -> Time {
        if self.parts.serial {
            let pages = accesses.map(Access::pages_carried);
            let pages = pages.fold(0, u64::saturating_add);
            if pages == 0 {
                return now;
            }
            let carried = Nanos(self.parts.transfer.0.saturating_mul(pages));
            let span = self.paced(self.parts.command + carried);
            return reserve(&self.channels[0], now, span).1;
        }
        let ends = accesses.map(|access| match access {
            Access::Read { page, pages } => self.read(now, page, pages),
            Access::Write { pages } => self.write(now, pages),
            Access::Map { pages } => self.write(now, map_pages(pages)),
            Access::Flush => now,
        });
        ends.max().unwrap_or(now) + self.parts.command
    }

    /// Pages are striped over the dies; more pages than dies queue evenly.
    fn read(&self, now: Time, page: u64, pages: u64) -> Time {
        let programmed_at = Time(self.programmed_at.load(Ordering::Relaxed));
        let alone = programmed_at == Time::ZERO || now.since(programmed_at) >= SETTLE;
        let each = if alone {
            self.parts.read_alone
        } else {
            self.parts.read
        };
        let dies = self.dies.len() as u64;
        let (rows, rest) = (pages / dies, pages % dies);
        let mut end = now;
        for step in 0..pages.min(dies) {
            let count = rows + u64::from(step < rest);
            let die = place(page.wrapping_add(step), dies);
            end = end.max(self.on_die(now, die, count, each));
        }
        end
    }

    /// Transfers `pages` pages to or from a die, over its channel.
    fn on_die(&self, now: Time, die: usize, pages: u64, each: Nanos) -> Time {
        let (transfer, each) = (self.paced(self.parts.transfer), self.paced(each));
        let channel = &self.channels[place(die as u64, self.channels.len() as u64)];
        let (begin, carried) = reserve(channel, now, Nanos(transfer.0.saturating_mul(pages)));
        let work = Nanos(each.0.saturating_mul(pages));
        // The die begins with the first page, and ends after the last.
        let (_, end) = reserve(&self.dies[die], begin + transfer, work);
        end.max(carried + each)
    }

    fn write(&self, now: Time, pages: u64) -> Time {
        self.programmed_at
            .fetch_max(now.0.max(1), Ordering::Relaxed);
        let mut end = now;
        for _ in 0..pages {
            end = end.max(if self.buffer.is_empty() {
                self.program(now)
            } else {
                self.write_buffered(now)
            });
        }
        end
    }

    /// A page completes in the buffer once a slot is free, that is, once its previous page is
    /// programmed.
    fn write_buffered(&self, now: Time) -> Time {
        let number = self.written.fetch_add(1, Ordering::Relaxed);
        let slot = &self.buffer[place(number, self.buffer.len() as u64)];
        let accepted = now.max(Time(slot.load(Ordering::Relaxed)));
        slot.store(self.program(accepted).0, Ordering::Relaxed);
        accepted + self.parts.buffered
    }

    /// Loads the dies with the work of a written page. Returns the time at which it is programmed.
    fn program(&self, now: Time) -> Time {
        let slice = self.parts.read;
        let work = self.parts.work();
        let before = self.work.fetch_add(work.0, Ordering::Relaxed);
        // Whole slices only; the rest of a slice is done with the next page.
        let (first, last) = (before / slice.0, (before + work.0) / slice.0);
        let own = self.parts.program.0.div_ceil(slice.0);
        let anywhere = scatter(first);
        let mut end = now;
        for number in first..last {
            let die = place(anywhere.wrapping_add(number), self.dies.len() as u64);
            let slice_end = if number == first {
                self.on_die(now, die, 1, slice)
            } else {
                reserve(&self.dies[die], now, self.paced(slice)).1
            };
            if number < first + own {
                end = end.max(slice_end);
            }
        }
        end
    }
}

/// Reserves a part for `span`, once it is free, but not before `earliest`.
fn reserve(part: &AtomicU64, earliest: Time, span: Nanos) -> (Time, Time) {
    let mut busy = part.load(Ordering::Relaxed);
    loop {
        let begin = earliest.max(Time(busy));
        let end = begin + span;
        match part.compare_exchange_weak(busy, end.0, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return (begin, end),
            Err(other) => busy = other,
        }
    }
}

fn place(number: u64, count: u64) -> usize {
    usize::try_from(number % count).expect("as many as are in memory")
}

/// A pseudo-random number (the finaliser of SplitMix64), so that evenly spaced writes do not hit
/// dies evenly.
fn scatter(number: u64) -> u64 {
    let mut z = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
