//! The network: byte streams that arrive in order, in pieces of any size, late, or not at all.

mod end;
mod faults;
mod totals;

pub use faults::{Lies, NetworkFaults};
pub use totals::NetworkTotals;

use crate::stirred::{CoreNumber, Stirred};
use crate::trace::say;
use crate::wiretap::Wiretap;
use base::{Nanos, Prng, Time};
use end::{End, Stream};
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::net::SocketAddr;

/// The next thing that an end can receive.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    Nothing,
    /// So many bytes, which are to be [read](Network::read) now.
    Bytes(usize),
    End,
    Broken,
}

/// The result of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The connection is broken.
    Broken,
    /// So many bytes were taken.
    Taken(usize),
}

/// The core on which an event may have an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Concerns {
    /// This one.
    Core(CoreNumber),
    /// The one that has this end then.
    End(u64),
}

/// A listener.
#[derive(Debug)]
struct Listener {
    core: Option<CoreNumber>,
    /// Connections that wait to be accepted, and when each arrives.
    waiting: VecDeque<(Time, u64)>,
}

/// All connections and listeners.
#[derive(Debug)]
pub(crate) struct Network {
    faults: NetworkFaults,
    /// Times at which something arrives, or may.
    events: BinaryHeap<Reverse<(Time, Concerns)>>,
    /// Cores on which something has happened.
    pub(crate) stirred: Stirred,
    ends: Vec<End>,
    /// Memory of ends that were closed.
    spare: Vec<Stream>,
    /// By address.
    listening: BTreeMap<SocketAddr, Listener>,
    next_port: u16,
    /// Ends that are not closed.
    open: BTreeSet<u64>,
    /// A send in so many of the connections of these hosts is changed at random.
    liars: BTreeMap<u64, (Lies, u64)>,
    /// Connections are watched.
    watches: bool,
    pub(crate) totals: NetworkTotals,
}

/// Shortest time for which only a keep-alive notices a silent cut; at most twice as long.
const SILENCE: Nanos = Nanos::from_secs(60);

/// Longer than the first PDU of a connection, which has no digest (ICReq and ICResp).
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
            open: BTreeSet::new(),
            liars: BTreeMap::new(),
            watches: false,
            totals: NetworkTotals::default(),
        }
    }

    pub(crate) fn set_faults(&mut self, faults: NetworkFaults) {
        self.faults = faults;
    }

    /// Holds all ends to the rules of the transport from now on.
    pub(crate) fn watch(&mut self) {
        self.watches = true;
    }

    /// Listens, on this core if it is one's; port 0 takes the next free one.
    pub(crate) fn listen(
        &mut self,
        mut address: SocketAddr,
        core: Option<CoreNumber>,
    ) -> Option<SocketAddr> {
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

    /// Connects: the near end's number, or a refusal.
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
            self.ends.push(End::new(origin, stream));
        }
        self.note(arrival, now, concerns);
        Some(near)
    }

    /// The next connection that has arrived at a listener.
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

    /// Returns true if [`receive`](Self::receive) would return anything.
    pub(crate) fn has_arrival(&self, end: u64, now: Time) -> bool {
        self.readable_since(end) <= now
    }

    fn end(&mut self, number: u64) -> &mut End {
        &mut self.ends[at(number)]
    }

    fn delay(&self, prng: &mut Prng) -> Nanos {
        Nanos(prng.below(self.faults.delay_max.0 + 1))
    }

    /// Something may happen then, of which this core has to know; also at once, if that is `now`: it may
    /// act before the world looks at its events again.
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

    /// Something has happened of which the owner of this end has to know.
    fn stir(&mut self, end: u64) {
        if let Some(core) = self.ends[at(end)].core {
            self.stirred.add(core);
        }
    }

    /// From now on a core has this end.
    pub(crate) fn adopt(&mut self, end: u64, core: CoreNumber) {
        self.end(end).core = Some(core);
    }

    /// Bytes that `end` may send now.
    pub(crate) fn room(&self, end: u64) -> u64 {
        let peer = &self.ends[at(end ^ 1)];
        if peer.severed || peer.closed || peer.broken() < Time::NEVER {
            return u64::MAX;
        }
        self.faults.window_bytes.saturating_sub(peer.unread)
    }

    /// Sends from `end` to its peer what there is room for. `more`: its owner left out what there
    /// is no [`room`](Self::room) for.
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
            // The sender does not know yet. A stream has an end, but never a hole.
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
            // It may arrive with the one before it, of which the core will be told.
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

    /// Looks at what `end` sends. An answer to a lie is no fault of the end that sends it.
    fn tap(&mut self, end: u64, bytes: &[u8]) {
        let near = &mut self.ends[at(end & !1)];
        if self.watches && !self.liars.contains_key(&near.origin) {
            let tap = near.tap.get_or_insert_with(|| Box::new(Wiretap::new()));
            tap.sends(end & 1 == 0, bytes);
        }
    }

    /// Returns what arrives of what `end` sends: with a bit that flipped, or a lie in it.
    fn damaged<'a>(&mut self, end: u64, bytes: &'a [u8], prng: &mut Prng) -> Cow<'a, [u8]> {
        let (origin, carried) = (self.end(end).origin, self.end(end ^ 1).carried);
        if let Some(&(lies, one_in)) = self.liars.get(&origin)
            && lies.are_told(end & 1 == 0)
            && chance(one_in, prng)
        {
            self.totals.lies += 1;
            return Cow::Owned(lie(bytes, prng));
        }
        let spared = UNPROTECTED_BYTES.saturating_sub(carried);
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

    /// From now on what this host sends, or is sent, is changed in one send in `one_in`.
    pub(crate) fn tell_lies(&mut self, origin: u64, lies: Lies, one_in: u64) {
        self.liars.insert(origin, (lies, one_in));
    }

    /// Breaks a connection, or all of its host's: the ends learn of it at times of their own.
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
                // A sender that waits for room is told that all is sent.
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

    /// The owner of `end` is gone without a word: its peer finds the connection broken. What had
    /// been sent before may still arrive.
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
            // Sometimes what was on its way still arrives, late, and sometimes it does not.
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

    /// Returns what has arrived at `end`: any number of bytes of what could be received, at most
    /// `limit`.
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

    /// Reads the next `count` of the bytes that `end` received: `out` gets them in one piece or two.
    pub(crate) fn read(&mut self, end: u64, count: usize, out: impl FnMut(&[u8])) {
        self.end(end).read(count, out);
    }

    /// Closes `end`: its peer sees the end of the stream after what was sent before.
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
            // The peer is not told; it will find the connection broken.
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

    /// Tells the cores of what happens by now. Returns the next time at which something may.
    pub(crate) fn next_event(&mut self, now: Time) -> Option<Time> {
        while let Some(&Reverse((at, concerns))) = self.events.peek() {
            if at > now {
                return Some(at);
            }
            self.events.pop();
            self.tell(concerns);
        }
        None
    }

    /// Since when an end has something to receive.
    pub(crate) fn readable_since(&self, end: u64) -> Time {
        self.ends[at(end)].readable_since()
    }
}

/// Returns the index of an end in the vector of all.
fn at(end: u64) -> usize {
    usize::try_from(end).expect("ends are in a vector")
}

/// One in so many; never for 0.
fn chance(one_in: u64, prng: &mut Prng) -> bool {
    one_in > 0 && prng.chance(1, one_in)
}

/// Returns valid bytes, changed as a peer does that tries out what the other end makes of it.
fn lie(bytes: &[u8], prng: &mut Prng) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let below = |prng: &mut Prng, limit: usize| {
        usize::try_from(prng.below(limit as u64)).expect("below a usize")
    };
    if bytes.is_empty() {
        return bytes;
    }
    for _ in 0..=prng.below(3) {
        // Headers are worth more than data, and most of what is sent begins with one.
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
