//! One end of a connection, and the data in flight to it.

use crate::stirred::CoreNumber;
use crate::wiretap::Wiretap;
use base::{Nanos, Prng, Time};
use std::collections::VecDeque;

/// Bytes in flight or arrived.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// Bytes in order.
    bytes: VecDeque<u8>,
    /// The pieces in flight: arrival time and length. No piece overtakes another piece.
    arriving: VecDeque<(Time, usize)>,
}

/// One end of a connection: the receiver of the other end's bytes.
#[derive(Debug)]
pub(super) struct End {
    stream: Stream,
    /// Arrival time of the last piece.
    pub(super) last_arrival: Time,
    /// Time from which the end of the stream follows the last piece.
    ended: Time,
    /// Time from which the connection is broken: its owner still receives data that arrived before,
    /// as with a kernel.
    broken: Time,
    /// Time from which there is data to receive: derived from the fields above, and read often.
    readable: Time,
    /// Data sent from now on is lost; data in flight still arrives.
    pub(super) severed: bool,
    /// The owner closed it.
    pub(super) closed: bool,
    /// The end that connected.
    pub(super) origin: u64,
    /// The core that owns it.
    pub(super) core: Option<CoreNumber>,
    /// Total bytes sent to it.
    pub(super) carried: u64,
    /// Of these, bytes at the beginning without flipped bits.
    pub(super) spared: u64,
    /// Bytes not received yet.
    pub(super) unread: u64,
    /// Its sender waits for room.
    pub(super) awaited: bool,
    /// Checks the connection; at the end that connected.
    pub(super) tap: Option<Box<Wiretap>>,
}

impl End {
    /// Creates an end of a connection that `origin` made; `stream` is empty, and of what is sent to
    /// it, the first `spared` bytes have no flipped bits.
    pub(super) fn new(origin: u64, spared: u64, stream: Stream) -> Self {
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
            spared,
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

    /// Sends a piece to it. Returns its arrival time: `arrival` or later, after all earlier pieces.
    pub(super) fn carry(&mut self, piece: &[u8], arrival: Time) -> Time {
        self.last_arrival = self.last_arrival.max(arrival);
        self.stream.bytes.extend(piece);
        self.stream
            .arriving
            .push_back((self.last_arrival, piece.len()));
        self.note_readable();
        self.last_arrival
    }

    /// Ends the stream: from `at` on, the end of the stream follows the last piece.
    pub(super) fn end(&mut self, at: Time) {
        self.ended = at;
        self.note_readable();
    }

    /// Returns the time from which the end of the stream follows the last piece.
    pub(super) const fn ended(&self) -> Time {
        self.ended
    }

    /// Breaks the connection from `at` on.
    pub(super) fn break_off(&mut self, at: Time) {
        self.broken = at;
        self.note_readable();
    }

    /// Returns the time from which the connection is broken.
    pub(super) const fn broken(&self) -> Time {
        self.broken
    }

    /// Returns the time from which there is data to receive.
    pub(super) const fn readable_since(&self) -> Time {
        self.readable
    }

    /// Returns true if all data was received and the stream has ended by `now`.
    pub(super) fn is_over(&self, now: Time) -> bool {
        self.stream.arriving.is_empty() && self.ended <= now
    }

    /// Returns the next byte that has arrived by `now`.
    pub(super) fn first(&self, now: Time) -> Option<u8> {
        let (at, _) = self.stream.arriving.front()?;
        let is_there = *at <= now.min(self.broken);
        self.stream.bytes.front().copied().filter(|_| is_there)
    }

    /// Returns the arrival times of pieces.
    pub(super) fn arrivals(&self) -> impl Iterator<Item = Time> + '_ {
        self.stream.arriving.iter().map(|(at, _)| *at)
    }

    /// Delays all pieces that have not arrived by `now`, and with them the end of the stream.
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

    /// Loses all pieces that have not arrived by `now`.
    pub(super) fn lose(&mut self, now: Time) {
        self.stream.arriving.retain(|(at, _)| *at <= now);
        let left = self.stream.arriving.iter().map(|(_, length)| length).sum();
        self.stream.bytes.truncate(left);
        self.note_readable();
    }

    /// Stops receiving. Returns the memory of the unread data.
    pub(super) fn forget(&mut self) -> Stream {
        let mut stream = std::mem::take(&mut self.stream);
        stream.bytes.clear();
        stream.arriving.clear();
        self.note_readable();
        stream
    }

    /// Takes some of the arrived bytes, at most `limit`. Returns their number; they must be
    /// [read](Self::read) immediately.
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
            // Pieces that arrived separately are joined half of the time.
            if prng.chance(1, 2) {
                break;
            }
        }
        self.unread = self.unread.saturating_sub(taken as u64);
        self.note_readable();
        taken
    }

    /// Reads the next `count` of the [taken](Self::take) bytes, and passes them to `out` in one or
    /// two pieces.
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
