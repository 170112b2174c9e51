//! One end of a connection, and what is on its way to it.

use crate::stirred::CoreNumber;
use crate::wiretap::Wiretap;
use base::{Nanos, Prng, Time};
use std::collections::VecDeque;

/// Bytes on their way or arrived.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// In order.
    bytes: VecDeque<u8>,
    /// The pieces that they travel in: when each arrives, and its length. None overtakes another.
    arriving: VecDeque<(Time, usize)>,
}

/// One end of a connection, as the other end's bytes arrive there.
#[derive(Debug)]
pub(super) struct End {
    stream: Stream,
    /// Time at which the last piece arrives.
    pub(super) last_arrival: Time,
    /// From this time on, what follows the last piece is the end of the stream.
    ended: Time,
    /// From this time on, the connection is broken: all that its owner still gets is what arrived
    /// before, as a kernel keeps it.
    broken: Time,
    /// From this time on, there is something to receive: follows from the above, and is asked often.
    readable: Time,
    /// Nothing arrives any more but what is on its way: what is sent from now on is lost.
    pub(super) severed: bool,
    /// The owner closed it.
    pub(super) closed: bool,
    /// The end that connected.
    pub(super) origin: u64,
    /// The core that has it.
    pub(super) core: Option<CoreNumber>,
    /// Bytes that were sent to it.
    pub(super) carried: u64,
    /// Bytes of these that it has not received.
    pub(super) unread: u64,
    /// Its sender waits for room.
    pub(super) awaited: bool,
    /// Watches the connection, at the end that connected.
    pub(super) tap: Option<Box<Wiretap>>,
}

impl End {
    /// An end of a connection that `origin` made; `stream` has nothing in it.
    pub(super) fn new(origin: u64, stream: Stream) -> Self {
        Self {
            stream,
            last_arrival: Time::ZERO,
            ended: Time::NEVER,
            broken: Time::NEVER,
            readable: Time::NEVER,
            severed: false,
            closed: false,
            origin,
            core: None,
            carried: 0,
            unread: 0,
            awaited: false,
            tap: None,
        }
    }

    fn note_readable(&mut self) {
        let first = self
            .stream
            .arriving
            .front()
            .map_or(self.ended, |(at, _)| *at);
        self.readable = first.min(self.broken);
    }

    /// A piece is on its way. Returns when it arrives: not before `arrival`, nor before others.
    pub(super) fn carry(&mut self, piece: &[u8], arrival: Time) -> Time {
        self.last_arrival = self.last_arrival.max(arrival);
        self.stream.bytes.extend(piece);
        self.stream
            .arriving
            .push_back((self.last_arrival, piece.len()));
        self.note_readable();
        self.last_arrival
    }

    /// Ends the stream: from `at` on, its end follows the last piece.
    pub(super) fn end(&mut self, at: Time) {
        self.ended = at;
        self.note_readable();
    }

    /// The time from which on the end of the stream follows the last piece.
    pub(super) const fn ended(&self) -> Time {
        self.ended
    }

    /// The connection is broken from `at` on.
    pub(super) fn break_off(&mut self, at: Time) {
        self.broken = at;
        self.note_readable();
    }

    /// The time from which on the connection is broken.
    pub(super) const fn broken(&self) -> Time {
        self.broken
    }

    /// Since when there is something to receive.
    pub(super) const fn readable_since(&self) -> Time {
        self.readable
    }

    /// Returns true if all has been received, and the stream has ended by `now`.
    pub(super) fn is_over(&self, now: Time) -> bool {
        self.stream.arriving.is_empty() && self.ended <= now
    }

    /// Times at which pieces arrive.
    pub(super) fn arrivals(&self) -> impl Iterator<Item = Time> + '_ {
        self.stream.arriving.iter().map(|(at, _)| *at)
    }

    /// Delays all that has not arrived by `now`; the end of the stream comes no sooner.
    pub(super) fn delay(&mut self, now: Time, by: Nanos) {
        for (arrival, _) in self.stream.arriving.iter_mut().filter(|(at, _)| *at > now) {
            *arrival = *arrival + by;
        }
        self.last_arrival = self.last_arrival.max(now) + by;
        if self.ended < Time::NEVER {
            self.ended = self.ended.max(self.last_arrival);
        }
        self.note_readable();
    }

    /// Loses all that has not arrived by `now`.
    pub(super) fn lose(&mut self, now: Time) {
        self.stream.arriving.retain(|(at, _)| *at <= now);
        let left = self.stream.arriving.iter().map(|(_, length)| length).sum();
        self.stream.bytes.truncate(left);
        self.note_readable();
    }

    /// The owner receives nothing any more. Returns the memory of what it would have received.
    pub(super) fn forget(&mut self) -> Stream {
        let mut stream = std::mem::take(&mut self.stream);
        stream.bytes.clear();
        stream.arriving.clear();
        self.note_readable();
        stream
    }

    /// Takes some of what has arrived, at most `limit` bytes. Returns how many those are, which are
    /// to be [read](Self::read) now.
    pub(super) fn take(&mut self, limit: usize, now: Time, prng: &mut Prng) -> usize {
        let mut taken = 0;
        let latest = now.min(self.broken);
        while let Some((at, left)) = self.stream.arriving.front_mut() {
            if *at > latest || taken >= limit {
                break;
            }
            let take = (*left).min(limit - taken);
            taken += take;
            *left -= take;
            if *left == 0 {
                self.stream.arriving.pop_front();
            }
            // Pieces that arrived apart are joined half of the time.
            if prng.chance(1, 2) {
                break;
            }
        }
        self.unread = self.unread.saturating_sub(taken as u64);
        self.note_readable();
        taken
    }

    /// Reads the next `count` bytes, of those that were [taken](Self::take): `out` gets them in one
    /// piece or two.
    pub(super) fn read(&mut self, count: usize, mut out: impl FnMut(&[u8])) {
        let (front, back) = self.stream.bytes.as_slices();
        let first = count.min(front.len());
        out(&front[..first]);
        if first < count {
            out(&back[..count - first]);
        }
        self.stream.bytes.drain(..count);
    }
}
