//! The end of a request to flash: the model, without data and without waiting.
//!
//! A page lies on a die, which does one thing after another, in the order in which it was asked;
//! channels carry pages likewise. Reads wait for what the die does already. Writes end in a buffer
//! and load the dies later: with a program, and with what the garbage collection moves and erases.
//! Such work is cut into slices as long as a read (it is suspended to let reads through) and spread
//! over the dies, so that it disturbs reads as much as so many more of them would: the reason why
//! one weight for writes is enough (`[ReFlex Fig. 3]`). As long as nothing was programmed for a
//! while, dies read faster.
//!
//! [`Timing`] only remembers until when each part is busy, so an answer takes no event queue: it
//! depends on `now` and the order of questions alone, in virtual time as on a machine. All threads
//! of a device share it: atomics, no lock. A device that ages, or is cooled too little, is
//! [slower](Timing::slow_down) from then on; one that collects garbage for a while is
//! [busy](Timing::storm). Must never: keep a question waiting, or let a request end before `now`.

use super::profile::Parts;
use base::{Nanos, Time};
use std::sync::atomic::{AtomicU64, Ordering};

/// Dies read faster once nothing was programmed for so long.
const SETTLE: Nanos = Nanos::from_millis(20);

/// Entries in one page of the map: 4 bytes each.
const MAP_PAGES: u64 = 1024;

/// Map pages that one command changes at most: the map of 1 GiB.
const MAP_PAGES_MAX: u64 = 256;

/// A request, as far as its time goes. Pages are 4 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads of consecutive pages.
    Read {
        /// The first page.
        page: u64,
        /// Number of pages.
        pages: u64,
    },
    /// Writes of pages; the device chooses the place.
    Write {
        /// Number of pages.
        pages: u64,
    },
    /// Changes of the map of pages, without data (Write Zeroes, Deallocate).
    Map {
        /// Number of pages.
        pages: u64,
    },
    /// A flush costs the command alone: what the buffer holds is safe.
    Flush,
}

impl Access {
    /// The pages that move between the device and its host.
    fn pages_carried(self) -> u64 {
        match self {
            Self::Read { pages, .. } | Self::Write { pages } => pages,
            Self::Map { pages } => map_pages(pages),
            Self::Flush => 0,
        }
    }
}

/// The pages of the map that hold the entries of `pages` pages.
fn map_pages(pages: u64) -> u64 {
    pages.div_ceil(MAP_PAGES).min(MAP_PAGES_MAX)
}

/// Time until which each part of a device is busy, in nanoseconds.
#[derive(Debug)]
pub struct Timing {
    parts: Parts,
    dies: Box<[AtomicU64]>,
    channels: Box<[AtomicU64]>,
    /// Time at which each place of the write buffer is free, in the order in which they are used.
    buffer: Box<[AtomicU64]>,
    written: AtomicU64,
    /// Work of writes so far, in nanoseconds; its slices are numbered by it.
    work: AtomicU64,
    /// Time of the last program operation.
    programmed_at: AtomicU64,
    /// Pace of the device: time of an operation in hundredths of the profile's.
    pace_percent: AtomicU64,
}

impl Timing {
    /// A device that is idle.
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

    /// Sets the pace of dies and channels, in hundredths of the time that they take when new: 100
    /// is a device as it was made, 200 one that is half as fast. What is under way ends as it was
    /// to.
    pub fn slow_down(&self, percent: u32) {
        self.pace_percent
            .store(percent.max(1).into(), Ordering::Relaxed);
    }

    /// Makes every die busy with work of its own for this long, after what it does already.
    pub fn storm(&self, now: Time, span: Nanos) {
        for die in &self.dies {
            reserve(die, now, span);
        }
    }

    /// Returns the time that an operation takes now, if it takes `span` on a new device.
    fn paced(&self, span: Nanos) -> Nanos {
        match self.pace_percent.load(Ordering::Relaxed) {
            100 => span,
            percent => Nanos(span.0.saturating_mul(percent) / 100),
        }
    }

    /// Returns the time at which a request that comes now ends.
    pub fn finish(&self, now: Time, access: Access) -> Time {
        self.finish_all(now, std::iter::once(access))
    }

    /// Returns the time at which a command of several extents that comes now ends: the controller's
    /// time counts once.
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

    /// Pages are striped over the dies; more than there are dies queue up evenly.
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

    /// Moves `pages` pages to or from a die, over its channel.
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

    /// A page ends in the buffer as soon as a place is free, which it is once programmed.
    fn write_buffered(&self, now: Time) -> Time {
        let number = self.written.fetch_add(1, Ordering::Relaxed);
        let slot = &self.buffer[place(number, self.buffer.len() as u64)];
        let accepted = now.max(Time(slot.load(Ordering::Relaxed)));
        slot.store(self.program(accepted).0, Ordering::Relaxed);
        accepted + self.parts.buffered
    }

    /// Loads the dies with what a page that is written brings; returns when it is programmed.
    fn program(&self, now: Time) -> Time {
        let slice = self.parts.read;
        let work = self.parts.work();
        let before = self.work.fetch_add(work.0, Ordering::Relaxed);
        // Whole slices only; the rest of one is done with the next page.
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

/// Takes a part for `span`, as soon as it is free, but not before `earliest`.
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

/// A number that nothing follows from (the finaliser of SplitMix64): writes that come evenly do
/// not meet dies evenly.
fn scatter(number: u64) -> u64 {
    let mut z = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
