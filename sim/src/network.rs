//! The network: byte streams that arrive in order, in pieces of any size, late, or not at all.

mod end;
mod faults;
mod totals;
mod unowned;

pub use faults::{Lies, NetworkFaults};
pub use totals::NetworkTotals;

use crate::stirred::{CoreNumber, Stirred};
use crate::trace::say;
use crate::wiretap::{Challenges, Wiretap};
use base::{Nanos, Prng, Time};
use end::{End, Stream};
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::net::SocketAddr;
use unowned::Unowned;

/// The next item that an end can receive.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    Nothing,
    /// This many bytes, to be [read](Network::read) now.
    Bytes(usize),
    End,
    Broken,
}

/// The next byte of an end, if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peeked {
    Nothing,
    Byte(u8),
    End,
    Broken,
}

/// The result of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The connection is broken.
    Broken,
    /// This number of bytes was taken.
    Taken(usize),
}

/// The core that an event may affect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Concerns {
    /// A fixed core.
    Core(CoreNumber),
    /// The core that owns this end at that time.
    End(u64),
}

/// A listener.
#[derive(Debug)]
struct Listener {
    core: Option<CoreNumber>,
    /// Connections to be accepted, each with its arrival time.
    waiting: VecDeque<(Time, u64)>,
}

/// All connections and listeners.
#[derive(Debug)]
pub(crate) struct Network {
    faults: NetworkFaults,
    /// Times of arrivals, and of possible arrivals.
    events: BinaryHeap<Reverse<(Time, Concerns)>>,
    /// Cores that an event may have affected.
    pub(crate) stirred: Stirred,
    ends: Vec<End>,
    /// Memory of closed ends.
    spare: Vec<Stream>,
    /// Listeners by address.
    listening: BTreeMap<SocketAddr, Listener>,
    next_port: u16,
    unowned: Unowned,
    /// Ends that are not closed.
    open: BTreeSet<u64>,
    /// Hosts whose connections carry random changes, with the kind of change; one send in this many
    /// is changed.
    liars: BTreeMap<u64, (Lies, u64)>,
    /// Connections are checked for protocol violations.
    watches: bool,
    challenges: Challenges,
    pub(crate) totals: NetworkTotals,
}

/// Shortest time until a silently cut connection breaks; at most twice as long. Only a keep-alive
/// notices it earlier.
const SILENCE: Nanos = Nanos::from_secs(60);

/// More than the first PDU of a connection, which has no digest (ICReq and ICResp).
const UNPROTECTED_BYTES: u64 = 128;

impl Network {
    pub(crate) fn new(faults: NetworkFaults) -> Self {
        Self {
            faults,
            events: BinaryHeap::new(),
            stirred: Stirred::default(),
            ends: Vec::new(),
            spare: Vec::new(),
            listening: BTreeMap::new(),
            next_port: 49_152,
            unowned: Unowned::default(),
            open: BTreeSet::new(),
            liars: BTreeMap::new(),
            watches: false,
            challenges: Challenges::default(),
            totals: NetworkTotals::default(),
        }
    }

    pub(crate) fn set_faults(&mut self, faults: NetworkFaults) {
        self.faults = faults;
    }

    /// Checks from now on that all ends follow the transport's rules.
    pub(crate) fn watch(&mut self) {
        self.watches = true;
    }

    /// Listens, for a core if one is given; port 0 takes the next free port.
    pub(crate) fn listen(
        &mut self,
        mut address: SocketAddr,
        core: Option<CoreNumber>,
    ) -> Option<SocketAddr> {
        self.close_dropped(Time::ZERO);
        if address.port() == 0 {
            address.set_port(self.next_port);
            self.next_port += 1;
        }
        if self.listening.contains_key(&address) {
            return None;
        }
        let waiting = VecDeque::new();
        self.listening.insert(address, Listener { core, waiting });
        Some(address)
    }

    pub(crate) fn unlisten(&mut self, address: SocketAddr) {
        let listener = self.listening.remove(&address);
        for (_, end) in listener.into_iter().flat_map(|listener| listener.waiting) {
            self.close(end, Time::ZERO);
        }
    }

    /// Connects: returns the near end's number, or a refusal.
    pub(crate) fn connect(
        &mut self,
        address: SocketAddr,
        origin: u64,
        now: Time,
        prng: &mut Prng,
    ) -> Option<u64> {
        if chance(self.faults.refuse_one_in, prng) {
            self.totals.refusals += 1;
            return None;
        }
        let arrival = now + self.delay(prng);
        let near = self.ends.len() as u64;
        let listener = self.listening.get_mut(&address)?;
        listener.waiting.push_back((arrival, near + 1));
        let concerns = listener.core.map_or(Concerns::End(near), Concerns::Core);
        for number in [near, near + 1] {
            self.open.insert(number);
            let stream = self.spare.pop().unwrap_or_default();
            self.ends.push(End::new(origin, UNPROTECTED_BYTES, stream));
        }
        self.note(arrival, now, concerns);
        Some(near)
    }

    /// Takes the next connection that has arrived at a listener.
    pub(crate) fn accept(&mut self, address: SocketAddr, now: Time) -> Option<u64> {
        let waiting = &mut self.listening.get_mut(&address)?.waiting;
        if waiting.front()?.0 > now {
            return None;
        }
        waiting.pop_front().map(|(_, end)| end)
    }

    pub(crate) const fn is_unreachable(&self) -> bool {
        self.faults.unreachable
    }

    pub(crate) const fn send_stall_max(&self) -> Nanos {
        self.faults.send_stall_max
    }

    /// Returns true if a connection has arrived at a listener.
    pub(crate) fn has_connection(&self, address: SocketAddr, now: Time) -> bool {
        let listener = self.listening.get(&address);
        let first = listener.and_then(|listener| listener.waiting.front());
        first.is_some_and(|(at, _)| *at <= now)
    }

    /// Returns true if [`receive`](Self::receive) would return an item.
    pub(crate) fn has_arrival(&self, end: u64, now: Time) -> bool {
        self.readable_since(end) <= now
    }

    fn end(&mut self, number: u64) -> &mut End {
        &mut self.ends[at(number)]
    }

    fn delay(&self, prng: &mut Prng) -> Nanos {
        Nanos(prng.below(self.faults.delay_max.0 + 1))
    }

    /// Schedules an event that the core of `concerns` must see; also immediately, if `at` is `now`:
    /// the core may act before the world checks its events again.
    pub(crate) fn note(&mut self, at: Time, now: Time, concerns: Concerns) {
        self.events.push(Reverse((at, concerns)));
        if at <= now {
            self.tell(concerns);
        }
    }

    fn tell(&mut self, concerns: Concerns) {
        match concerns {
            Concerns::Core(core) => self.stirred.add(core),
            Concerns::End(end) => self.stir(end),
        }
    }

    /// Marks the core that owns this end as affected by an event.
    fn stir(&mut self, end: u64) {
        if let Some(core) = self.ends[at(end)].core {
            self.stirred.add(core);
        }
    }

    /// Assigns this end to `core`.
    pub(crate) fn adopt(&mut self, end: u64, core: CoreNumber) {
        self.end(end).core = Some(core);
    }

    /// Number of bytes that `end` can send now.
    pub(crate) fn room(&self, end: u64) -> u64 {
        let peer = &self.ends[at(end ^ 1)];
        if peer.severed || peer.closed || peer.broken() < Time::NEVER {
            return u64::MAX;
        }
        self.faults.window_bytes.saturating_sub(peer.unread)
    }

    /// Sends from `end` to its peer, up to the available [`room`](Self::room). `more`: the owner
    /// left out bytes that exceed it.
    pub(crate) fn send(
        &mut self,
        end: u64,
        bytes: &[u8],
        more: bool,
        now: Time,
        prng: &mut Prng,
    ) -> Sent {
        if self.end(end).broken() <= now || self.end(end ^ 1).closed {
            return Sent::Broken;
        }
        if self.end(end ^ 1).severed {
            // The sender has not noticed yet. A stream may end early, but never has a hole.
            return Sent::Taken(bytes.len());
        }
        let room = usize::try_from(self.room(end)).unwrap_or(usize::MAX);
        let mut taken = bytes.len().min(room);
        if taken > 1 && chance(self.faults.partial_one_in, prng) {
            taken = 1 + usize::try_from(prng.below(taken as u64 - 1)).expect("a part of it");
        }
        if taken < bytes.len() || more {
            self.totals.partial += 1;
            self.end(end ^ 1).awaited = true;
        }
        self.carry(end, &bytes[..taken], now, prng);
        Sent::Taken(taken)
    }

    fn carry(&mut self, end: u64, bytes: &[u8], now: Time, prng: &mut Prng) {
        if bytes.is_empty() {
            return;
        }
        self.tap(end, bytes);
        let bytes = &*self.damaged(end, bytes, prng);
        let cut = chance(self.faults.cut_one_in, prng);
        let length = if cut {
            prng.below(bytes.len() as u64 + 1)
        } else {
            bytes.len() as u64
        };
        let mut rest = &bytes[..at(length)];
        self.totals.bytes += length;
        let peer = self.end(end ^ 1);
        peer.carried += length;
        peer.unread += length;
        let mut pieces = 1 + prng.below(self.faults.pieces_max);
        while !rest.is_empty() {
            let size = if pieces <= 1 {
                rest.len() as u64
            } else {
                1 + prng.below(rest.len() as u64)
            };
            let (piece, after) = rest.split_at(at(size));
            let arrival = now + self.delay(prng);
            let peer = self.end(end ^ 1);
            let before = peer.last_arrival;
            let arrives = peer.carry(piece, arrival);
            // It may arrive together with the previous piece, of which the core is notified.
            if arrives > before || arrives <= now {
                self.note(arrives, now, Concerns::End(end ^ 1));
            }
            rest = after;
            pieces -= 1;
        }
        if cut {
            self.cut(end, now, prng);
        }
    }

    /// Checks the bytes that `end` sends. An answer to a deliberately changed PDU is no violation
    /// of the end that sends it.
    fn tap(&mut self, end: u64, bytes: &[u8]) {
        if let Some(tap) = self.tap_of(end) {
            tap.sends(end & 1 == 0, bytes);
        }
    }

    /// Checks the records in which `end` is about to send these bytes.
    pub(crate) fn tap_sealed(&mut self, end: u64, bytes: &[u8], records: &[u8]) {
        if let Some(tap) = self.tap_of(end) {
            tap.seals(end & 1 == 0, bytes, records);
        }
    }

    fn tap_of(&mut self, end: u64) -> Option<&mut Wiretap> {
        let near = &mut self.ends[at(end & !1)];
        let taps = self.watches && !self.liars.contains_key(&near.origin);
        let new = || Box::new(Wiretap::new(self.challenges.clone()));
        taps.then(|| &mut **near.tap.get_or_insert_with(new))
    }

    /// Returns the bytes that arrive for those that `end` sends: with a flipped bit, or a
    /// deliberate change.
    fn damaged<'a>(&mut self, end: u64, bytes: &'a [u8], prng: &mut Prng) -> Cow<'a, [u8]> {
        let origin = self.end(end).origin;
        let peer = self.end(end ^ 1);
        let spared = peer.spared.saturating_sub(peer.carried);
        if let Some(&(lies, one_in)) = self.liars.get(&origin)
            && lies.are_told(end & 1 == 0)
            && chance(one_in, prng)
        {
            self.totals.lies += 1;
            return Cow::Owned(lie(bytes, prng));
        }
        let protected = (bytes.len() as u64).saturating_sub(spared);
        if protected == 0 || !chance(self.faults.flip_one_in, prng) {
            return Cow::Borrowed(bytes);
        }
        self.totals.flips += 1;
        let at = usize::try_from(spared + prng.below(protected)).expect("within the bytes");
        let mut bytes = bytes.to_vec();
        bytes[at] ^= 1 << prng.below(8);
        Cow::Owned(bytes)
    }

    /// Changes one in `one_in` sends to and from this host from now on.
    pub(crate) fn tell_lies(&mut self, origin: u64, lies: Lies, one_in: u64) {
        self.liars.insert(origin, (lies, one_in));
    }

    /// Breaks a connection, or all connections of its host: each end notices at a time of its own.
    fn cut(&mut self, end: u64, now: Time, prng: &mut Prng) {
        self.totals.cuts += 1;
        let origin = self.end(end).origin;
        say(|| format!("{now:?}: connection {} of host {origin} is cut", end / 2));
        if chance(self.faults.silent_one_in, prng) {
            for side in [end, end ^ 1] {
                let late = SILENCE + Nanos(prng.below(SILENCE.0));
                let state = self.end(side);
                state.severed = true;
                state.lose(now);
                state.break_off(now + late);
                self.note(now + late, now, Concerns::End(side));
                // A sender that waits for room sees its send completed.
                self.note(now + Nanos(1), now, Concerns::End(side));
                self.stir(side);
            }
            return;
        }
        let linger = Nanos(prng.below(self.faults.linger_max.0 + 1));
        let one_in = self.faults.partition_one_in;
        if one_in == 0 || !prng.chance(1, one_in) {
            return self.sever(end, linger, now, prng);
        }
        let origin = self.end(end).origin;
        self.sever_all(origin, linger, now, prng);
    }

    /// Breaks all connections of a host.
    fn sever_all(&mut self, origin: u64, linger: Nanos, now: Time, prng: &mut Prng) {
        let nears: BTreeSet<u64> = self.open.iter().map(|end| end & !1).collect();
        for near in nears {
            if self.end(near).origin == origin && !self.end(near).severed {
                self.totals.severed += 1;
                self.sever(near, linger, now, prng);
            }
        }
    }

    /// Resets the connection when the owner of `end` has disappeared: its peer finds it broken.
    /// Data sent before may still arrive.
    pub(crate) fn reset(&mut self, end: u64, now: Time, prng: &mut Prng) {
        if !self.end(end ^ 1).severed {
            self.totals.severed += 1;
            self.sever(end, Nanos::ZERO, now, prng);
        }
        self.close(end, now);
    }

    fn sever(&mut self, end: u64, linger: Nanos, now: Time, prng: &mut Prng) {
        for side in [end, end ^ 1] {
            let notice = self.delay(prng);
            let state = self.end(side);
            state.severed = true;
            // Data in flight arrives late, or is lost.
            if prng.chance(1, 2) {
                state.delay(now, linger);
                state.break_off(state.last_arrival + notice + Nanos::from_millis(1));
            } else {
                state.break_off(now + notice);
            }
            let ends = [state.ended(), state.broken(), now + Nanos(1)];
            let times: Vec<_> = state.arrivals().chain(ends).collect();
            for at in times.into_iter().filter(|&at| at < Time::NEVER) {
                self.note(at, now, Concerns::End(side));
            }
            self.stir(side);
        }
    }

    /// Returns the next arrival at `end`: any number of the receivable bytes, at most `limit`.
    pub(crate) fn receive(
        &mut self,
        end: u64,
        limit: usize,
        now: Time,
        prng: &mut Prng,
    ) -> Arrival {
        let window = self.faults.window_bytes;
        let state = self.end(end);
        let full = state.unread >= window;
        let bytes = state.take(limit, now, prng);
        if bytes > 0 {
            let awaited = std::mem::take(&mut state.awaited);
            if awaited {
                let told = now + self.delay(prng);
                self.note(told.max(now + Nanos(1)), now, Concerns::End(end ^ 1));
            }
            if awaited || full {
                self.stir(end ^ 1);
            }
            Arrival::Bytes(bytes)
        } else if state.broken() <= now {
            Arrival::Broken
        } else if state.is_over(now) {
            Arrival::End
        } else {
            Arrival::Nothing
        }
    }

    /// Returns the next byte, which stays where it is.
    pub(crate) fn peek(&self, end: u64, now: Time) -> Peeked {
        let state = &self.ends[at(end)];
        match state.first(now) {
            Some(byte) => Peeked::Byte(byte),
            None if state.broken() <= now => Peeked::Broken,
            None if state.is_over(now) => Peeked::End,
            None => Peeked::Nothing,
        }
    }

    /// Reads the next bytes that `end` received.
    pub(crate) fn read_into(&mut self, end: u64, into: &mut [u8]) {
        let mut at = 0;
        self.read(end, into.len(), |bytes| {
            into[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        });
    }

    /// Flips no bit of the next `bytes` that `end` sends.
    pub(crate) fn spare(&mut self, end: u64, bytes: usize) {
        let peer = self.end(end ^ 1);
        peer.spared = peer.spared.max(peer.carried + bytes as u64);
    }

    /// Reads the next `count` bytes that `end` received, and passes them to `out` in one or two
    /// pieces.
    pub(crate) fn read(&mut self, end: u64, count: usize, out: impl FnMut(&[u8])) {
        self.end(end).read(count, out);
    }

    /// Closes `end`: its peer sees the end of the stream after the data sent before.
    pub(crate) fn close(&mut self, end: u64, now: Time) {
        self.open.remove(&end);
        self.end(end).closed = true;
        let stream = self.end(end).forget();
        self.spare.push(stream);
        if self.end(end ^ 1).closed {
            self.end(end & !1).tap = None;
        }
        self.stir(end ^ 1);
        let peer = self.end(end ^ 1);
        if peer.severed {
            // The peer is not notified; it will find the connection broken.
            return;
        }
        let at = peer.last_arrival.max(now);
        if peer.ended() == Time::NEVER {
            peer.end(at);
        }
        self.note(at, now, Concerns::End(end ^ 1));
        // A sender that waits for room finds the connection closed.
        self.note(now + Nanos(1), now, Concerns::End(end ^ 1));
    }

    /// Marks the cores with events due by `now`. Returns the time of the next possible event.
    pub(crate) fn next_event(&mut self, now: Time) -> Option<Time> {
        self.close_dropped(now);
        while let Some(&Reverse((at, concerns))) = self.events.peek() {
            if at > now {
                return Some(at);
            }
            self.events.pop();
            self.tell(concerns);
        }
        None
    }

    /// Time since when an end has data to receive.
    pub(crate) fn readable_since(&self, end: u64) -> Time {
        self.ends[at(end)].readable_since()
    }
}

/// Returns the index of an end in the vector of all.
fn at(end: u64) -> usize {
    usize::try_from(end).expect("ends are in a vector")
}

/// True with probability 1 / `one_in`; never for 0.
fn chance(one_in: u64, prng: &mut Prng) -> bool {
    one_in > 0 && prng.chance(1, one_in)
}

/// Returns valid bytes with random changes, as a peer would send that probes the other end.
fn lie(bytes: &[u8], prng: &mut Prng) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let below = |prng: &mut Prng, limit: usize| {
        usize::try_from(prng.below(limit as u64)).expect("below a usize")
    };
    if bytes.is_empty() {
        return bytes;
    }
    for _ in 0..=prng.below(3) {
        // Changed headers are worth more than changed data, and most sends begin with a header.
        let region = if prng.chance(1, 2) { 80 } else { bytes.len() };
        let at = below(prng, region.min(bytes.len()));
        let count = 1 + below(prng, 8.min(bytes.len() - at));
        let range = at..at + count;
        match prng.below(6) {
            0 => bytes[at] ^= 1 << prng.below(8),
            1 => prng.fill(&mut bytes[range]),
            2 => bytes[range].fill(0),
            3 => bytes[range].fill(0xFF),
            4 => {
                let again = bytes[range].to_vec();
                bytes.splice(at..at, again);
            }
            _ if bytes.len() > count => drop(bytes.drain(range)),
            _ => {}
        }
    }
    bytes
}

#[cfg(test)]
mod tests;
