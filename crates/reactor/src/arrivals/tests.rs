//! The decisions with a model kernel, by seed, compared with a slow and obvious record of the
//! waiting sockets.
//!
//! Data arrives at any time. The ring reports watched sockets in the order in which they became
//! readable. The owner frees receive buffers at once or later, submits further receives or not, and
//! closes sockets. The record checks the invariants after every turn.

use super::*;
use crate::limits::{RECEIVE_BUFFER_BYTES, RECEIVE_BUFFERS};
use base::{Prng, Slab};

/// Maximum times that another socket is served while one that was readable earlier waits: sockets
/// reported by the ring are also served on turns that do not check the hot ones.
const PASSED_MAX: u32 = UNSEEN_TURNS_MAX + 2;

/// Maximum idle turns before the core sleeps.
const AWAKE_MAX: u32 = UNSEEN_TURNS_MAX + 2;

#[derive(Debug)]
struct ModelSocket {
    interest: Interest,
    /// Bytes that have arrived.
    arrived: usize,
    /// The peer has closed the connection.
    ended: bool,
    /// The ring reports the next arrival.
    watched: bool,
    /// Step since which it is readable with an outstanding receive.
    waits_since: Option<u64>,
    /// Step since which it is readable.
    readable_since: Option<u64>,
    /// Times that each other socket was served meanwhile, by the index in its key.
    passed: Vec<u32>,
    /// Bytes of the outstanding send, and how many of them the socket accepts for now.
    sending: usize,
    room: usize,
}

impl ModelSocket {
    fn is_readable(&self) -> bool {
        self.arrived > 0 || self.ended
    }

    fn waits(&self) -> bool {
        self.is_readable() && self.interest.receives()
    }

    /// Returns true if a send is outstanding of which the socket accepts more.
    fn sends(&self) -> bool {
        self.sending > 0 && self.room > 0
    }
}

/// Everything except the decisions.
#[derive(Debug)]
struct Model {
    sockets: Slab<ModelSocket>,
    free_buffers: usize,
    now: Time,
    step: u64,
    /// Sockets served since the owner's last step.
    served: Vec<SlabKey>,
    /// Number of receives attempted in this turn.
    tried: usize,
    /// Number of receives and sends on sockets with a quantum in this turn.
    bounded: usize,
}

impl Kernel for Model {
    fn interest(&self, key: SlabKey) -> Option<&Interest> {
        self.sockets.get(key).map(|socket| &socket.interest)
    }

    fn interest_mut(&mut self, key: SlabKey) -> Option<&mut Interest> {
        self.sockets.get_mut(key).map(|socket| &mut socket.interest)
    }

    fn free_buffers(&self) -> usize {
        self.free_buffers
    }

    fn receive(&mut self, key: SlabKey, most: usize) -> Got {
        self.tried += 1;
        if self.free_buffers == 0 {
            return Got::NoBuffer;
        }
        self.now = self.now + Nanos(200);
        let socket = self.sockets.get_mut(key).expect("an open socket");
        assert!(socket.interest.receives(), "nobody wants to receive");
        if !socket.is_readable() {
            return Got::Nothing;
        }
        let room = RECEIVE_BUFFER_BYTES.min(most);
        let bytes = socket.arrived.min(room);
        socket.arrived -= bytes;
        let wanted = std::mem::replace(&mut socket.interest.wanted, Wanted::Nothing);
        let since = socket.waits_since.take().expect("noted when it began");
        if socket.arrived == 0 {
            socket.readable_since = None;
        }
        let queue = socket.interest.queue();
        socket.passed.fill(0);
        if queue == ArrivalQueue::Bounded {
            assert!(bytes <= socket.interest.quantum || wanted == Wanted::Payload);
            self.bounded += 1;
        }
        self.served.push(key);
        self.passes(key, queue, since);
        if bytes == 0 {
            return Got::End;
        }
        self.free_buffers -= 1;
        Got::Bytes(bytes, bytes < room)
    }

    fn send(&mut self, key: SlabKey, most: usize) -> bool {
        let Some(socket) = self.sockets.get_mut(key) else {
            return false;
        };
        if most < usize::MAX {
            assert_eq!(socket.interest.queue(), ArrivalQueue::Bounded);
            self.bounded += 1;
        }
        let bytes = socket.sending.min(socket.room).min(most);
        assert!(bytes > 0, "a send that can go on");
        socket.sending -= bytes;
        socket.room -= bytes;
        socket.sends()
    }

    fn watch(&mut self, key: SlabKey) {
        let socket = self.sockets.get_mut(key).expect("an open socket");
        assert!(!socket.interest.closing, "nobody waits for a closed socket");
        socket.watched = true;
    }

    fn clock(&self) -> Time {
        self.now
    }
}

impl ModelSocket {
    fn new(interest: Interest, others: usize) -> Self {
        Self {
            interest,
            arrived: 0,
            ended: false,
            watched: false,
            waits_since: None,
            readable_since: None,
            passed: vec![0; others],
            sending: 0,
            room: 0,
        }
    }
}

impl Model {
    fn new(sockets: usize) -> Self {
        Self {
            sockets: Slab::with_capacity(sockets),
            free_buffers: RECEIVE_BUFFERS,
            now: Time(1_000_000_000),
            step: 0,
            served: Vec::new(),
            tried: 0,
            bounded: 0,
        }
    }

    /// Records that a socket is served: those in its queue that have waited longer were passed once
    /// more.
    fn passes(&mut self, key: SlabKey, queue: ArrivalQueue, since: u64) {
        let now = self.now;
        for (_, other) in self.sockets.iter_mut() {
            let gathers = other.interest.bulk || other.interest.wanted == Wanted::Payload;
            let left_alone = gathers && now.since(other.interest.drained) < GATHER_TIME;
            let before = other.waits_since.is_some_and(|waits| waits < since);
            if !before || left_alone || other.interest.queue() != queue {
                continue;
            }
            other.passed[key.index as usize] += 1;
            assert!(
                other.passed[key.index as usize] <= PASSED_MAX,
                "{key:?} is served again and again while this one waits: {other:?}"
            );
        }
    }

    /// Records since when sockets wait.
    fn note(&mut self) {
        self.step += 1;
        for (_, socket) in self.sockets.iter_mut() {
            if socket.is_readable() {
                socket.readable_since.get_or_insert(self.step);
            }
            if socket.waits() {
                socket.waits_since.get_or_insert(self.step);
            } else {
                socket.waits_since = None;
                socket.passed.fill(0);
            }
        }
    }
}

/// A core: the decisions, the model, and an owner of the sockets.
struct Play {
    arrivals: Arrivals,
    model: Model,
    prng: Prng,
    keys: Vec<SlabKey>,
    /// Open sockets without a receive from the owner at present.
    lazy: Vec<SlabKey>,
    /// Probabilities in tenths that the owner keeps a buffer, submits no further receive, already
    /// has a completion, and that much data arrives.
    keeps: u64,
    rests: u64,
    completes: u64,
    bulk: u64,
    /// Probability in tenths that a socket's quantum changes when the owner submits a receive.
    quanta: u64,
    /// Turns since the core last slept, once nothing more arrives.
    awake: u32,
    sleeps: u32,
    /// No new sends.
    quiet: bool,
}

impl Play {
    fn new(seed: u64) -> Self {
        let mut prng = Prng::from_seed(seed);
        let count = [1, 3, 8, 20, 40, 100][usize::try_from(prng.below(6)).expect("six")];
        let mut model = Model::new(count);
        let mut arrivals = Arrivals::new(count);
        let urgent = prng.chance(1, 2);
        let mut keys = Vec::new();
        for _ in 0..count {
            let mut interest = Interest::new(model.now);
            if urgent && prng.chance(1, 4) {
                arrivals.set_class(&mut interest, Class::Latency, model.now);
            }
            let socket = ModelSocket::new(interest, count);
            keys.push(model.sockets.insert(socket).expect("room"));
        }
        Self {
            arrivals,
            model,
            lazy: keys.clone(),
            keys,
            keeps: prng.below(4),
            rests: prng.below(4),
            completes: prng.below(4),
            bulk: prng.below(4),
            quanta: prng.below(3),
            awake: 0,
            sleeps: 0,
            quiet: false,
            prng,
        }
    }

    fn random_key(&mut self) -> Option<SlabKey> {
        let count = self.keys.len() as u64;
        let at = usize::try_from(self.prng.below(count)).expect("a few");
        self.keys.get(at).copied()
    }

    /// Lets data arrive on random sockets.
    fn arrive(&mut self, most: u64) {
        for _ in 0..self.prng.below(most + 1) {
            let Some(key) = self.random_key() else { return };
            let bytes = if self.prng.chance(self.bulk, 10) {
                1 + self.prng.below(1 << 20)
            } else {
                1 + self.prng.below(8192)
            };
            let ends = self.prng.chance(1, 2_000);
            let socket = self.model.sockets.get_mut(key).expect("open");
            socket.arrived += usize::try_from(bytes).expect("a few bytes");
            socket.ended |= ends;
            self.model.note();
        }
    }

    /// The owner processes received data, frees buffers, submits receives, closes.
    fn own(&mut self) {
        while self.model.free_buffers < RECEIVE_BUFFERS && !self.prng.chance(self.keeps, 10) {
            self.model.free_buffers += 1;
        }
        let mut asks = std::mem::take(&mut self.model.served);
        asks.append(&mut self.lazy);
        for key in asks {
            let Some(socket) = self.model.sockets.get_mut(key) else {
                continue;
            };
            if socket.interest.receives() || socket.interest.closing {
                continue;
            }
            if self.prng.chance(self.rests, 10) || socket.ended && socket.arrived == 0 {
                self.lazy.push(key);
                continue;
            }
            let direct = self.prng.chance(self.bulk, 20);
            socket.interest.wanted = if direct {
                Wanted::Payload
            } else {
                Wanted::Anything
            };
            self.model.note();
            if self.prng.chance(self.quanta, 10) {
                self.change_quantum(key);
            }
            let now = self.model.now;
            self.arrivals.wanted(key, now, &mut self.model);
        }
        if self.prng.chance(self.quanta, 100)
            && let Some(key) = self.random_key()
        {
            self.change_quantum(key);
        }
        self.send();
        if self.prng.chance(1, 500) && self.keys.len() > 1 {
            let Some(key) = self.random_key() else { return };
            self.keys.retain(|&other| other != key);
            self.arrivals.closes(key, &mut self.model);
            self.arrivals.close_in_turn(key);
        }
    }

    /// The owner submits random sends, and full sockets accept more.
    fn send(&mut self) {
        for index in 0..self.keys.len() {
            let key = self.keys[index];
            let socket = self.model.sockets.get_mut(key).expect("open");
            if socket.sends() {
                continue;
            }
            let begins = socket.sending == 0 && !self.quiet && self.prng.chance(1, 20);
            let goes_on = socket.sending > 0 && (self.quiet || self.prng.chance(1, 2));
            if begins || goes_on {
                let bytes = usize::try_from(1 + self.prng.below(200_000)).expect("a few bytes");
                if begins {
                    socket.sending = bytes;
                }
                let half = self.prng.chance(1, 4);
                socket.room = if half {
                    bytes.div_ceil(2)
                } else {
                    socket.sending
                };
                self.arrivals.sends(key, &mut self.model);
            }
        }
    }

    /// Sets or removes a socket's quantum. A waiting socket starts waiting anew.
    fn change_quantum(&mut self, key: SlabKey) {
        let quantum =
            [usize::MAX, 1152, 65_536][usize::try_from(self.prng.below(3)).expect("three")];
        let socket = self.model.sockets.get_mut(key).expect("open");
        let before = socket.interest.queue();
        self.arrivals.set_quantum(key, quantum, &mut self.model);
        let step = self.model.step;
        let socket = self.model.sockets.get_mut(key).expect("open");
        if socket.interest.queue() != before && socket.waits_since.is_some() {
            socket.waits_since = Some(step);
            socket.passed.fill(0);
        }
    }

    /// The ring reports watched sockets in the order in which they became readable.
    fn tell(&mut self) -> bool {
        let told = |socket: &ModelSocket| socket.watched && socket.is_readable();
        let sockets = self.model.sockets.iter();
        let readable = sockets.filter(|(_, socket)| told(socket));
        let mut readable: Vec<_> = readable.map(|(key, s)| (s.readable_since, key)).collect();
        readable.sort_by_key(|&(since, _)| since);
        let any = !readable.is_empty();
        for (_, key) in readable {
            let socket = self.model.sockets.get_mut(key).expect("open");
            socket.watched = false;
            let now = self.model.now;
            self.arrivals.arrived(key, now, &mut self.model);
        }
        any
    }

    /// Checks that no arrival is missed while the core sleeps, and every arrival wakes it.
    fn check_sleep(&self) {
        for (key, socket) in self.model.sockets.iter() {
            // The buffers' owner frees them on this same core.
            let waits_for_buffer = socket.interest.in_line && self.model.free_buffers == 0;
            assert!(
                !socket.interest.receives() || socket.watched || waits_for_buffer,
                "asleep, and nobody would tell of {key:?}: {socket:?}"
            );
            assert!(
                !socket.sends(),
                "asleep with a send to go on with: {socket:?}"
            );
        }
    }

    /// Checks that each socket with an outstanding receive is in exactly one place, and the
    /// counters are right.
    fn check_places(&self) {
        assert!(self.arrivals.hot.len() <= HOT_SOCKETS_MAX);
        let line = &self.arrivals.line;
        for (key, socket) in self.model.sockets.iter() {
            let interest = &socket.interest;
            let hot = self.arrivals.hot.iter().filter(|&&hot| hot == key).count();
            assert_eq!(hot, usize::from(interest.hot), "{socket:?}");
            let waiting = line.urgent.iter().chain(&line.others).chain(&line.bounded);
            let places = waiting.filter(|&&waiting| waiting == key).count();
            assert_eq!(places, usize::from(interest.in_line), "{socket:?}");
            assert!(
                !interest.hot || interest.queue() != ArrivalQueue::Bounded,
                "{socket:?}"
            );
            let found = interest.hot || interest.in_line || socket.watched;
            assert!(found || !interest.receives(), "nobody looks at {socket:?}");
        }
        let places = line.urgent.len() + line.others.len() + line.bounded.len();
        assert!(places <= self.model.sockets.len());
        let is_open = |key: &SlabKey| {
            let socket = self.model.sockets.get(*key);
            socket.is_some_and(|socket| socket.sends() && !socket.interest.closing)
        };
        assert!(self.arrivals.paced.sends.iter().all(is_open));
    }

    fn turn(&mut self, quiet: bool) {
        let now = self.model.now;
        let wait = match self.prng.below(4) {
            0 if !quiet => Wait::No,
            1 if !quiet => Wait::Until(Time(now.0 - 1)),
            2 => Wait::Until(Time::NEVER),
            _ => Wait::Until(now + Nanos(1 + self.prng.below(100_000))),
        };
        let completed = !quiet && self.prng.chance(self.completes, 10);
        (self.model.tried, self.model.bounded) = (0, 0);
        let line = &self.arrivals.line;
        let lines = [&line.urgent, &line.others, &line.bounded]
            .map(|line| Vec::from_iter(line.iter().copied()));
        // A socket is tried once in the line and once among the hot ones.
        let most = self.model.sockets.len() + self.arrivals.hot.len();
        let passed = self.arrivals.paced.was_passed() || self.arrivals.prioritises(now);
        let next = self.arrivals.turn(wait, now, completed, &mut self.model);
        if let Some(key) = self.arrivals.take_close() {
            let socket = self.model.sockets.remove(key).expect("closed once");
            assert!(socket.interest.closing && self.model.bounded == 0);
            self.arrivals.closed(&socket.interest);
            self.model.bounded += 1;
        }
        assert!(self.model.tried <= most);
        assert!(self.model.bounded <= 1, "one socket with a quantum a turn");
        let unbounded = |key: &SlabKey| {
            let socket = self.model.sockets.get(*key).expect("open");
            socket.interest.queue() != ArrivalQueue::Bounded
        };
        let brought = self.model.served.iter().any(unbounded);
        assert!(
            self.model.bounded == 0 || !brought || passed,
            "passed by once at most"
        );
        for line in lines {
            let place = |key: &SlabKey| line.iter().position(|waiting| waiting == key);
            let places = self.model.served.iter().filter_map(place);
            assert!(places.is_sorted(), "the line is served in its order");
        }
        match next {
            DriverStep::Turn => self.awake += u32::from(quiet),
            DriverStep::Sleep(until) => {
                assert!(!completed && until > now && wait == Wait::Until(until));
                self.check_sleep();
                (self.awake, self.sleeps) = (0, self.sleeps + 1);
                let mut woken = self.tell();
                // The next arrival or the deadline wakes a sleeping core.
                while !quiet && !woken && self.prng.chance(3, 4) {
                    self.arrive(1);
                    self.model.now = self.model.now + Nanos(self.prng.below(300_000));
                    woken = self.tell();
                }
            }
        }
        self.tell();
        self.check_places();
        self.own();
        self.model.now = self.model.now + Nanos(500 + self.prng.below(3_000));
    }

    /// Returns true if no receive has data left to wait for.
    fn is_done(&self) -> bool {
        let mut sockets = self.model.sockets.iter();
        !sockets.any(|(_, socket)| socket.waits() || socket.sending > 0)
    }
}

fn play(seed: u64) {
    let mut play = Play::new(seed);
    play.own();
    for _ in 0..400 {
        let many = play.prng.chance(1, 4);
        play.arrive(if many { 40 } else { 2 });
        play.turn(false);
    }
    // Nothing more arrives: everything is served, and then the core sleeps.
    (play.keeps, play.rests, play.quiet) = (0, 0, true);
    play.own();
    let mut left = 10_000;
    while !play.is_done() {
        left -= 1;
        assert!(left > 0, "somebody waits for ever: {:?}", play.model);
        play.turn(true);
    }
    play.awake = 0;
    let slept = play.sleeps;
    while play.sleeps == slept {
        // A silent socket stays hot for a while, which must not keep the core awake.
        assert!(play.awake <= AWAKE_MAX, "awake for nothing");
        play.turn(true);
    }
}

#[test]
fn no_readable_socket_is_forgotten_starves_or_is_passed_again_and_again() {
    for seed in 0..500 {
        let played = std::panic::catch_unwind(|| play(seed));
        assert!(played.is_ok(), "seed {seed}");
    }
}

/// Urgent rounds must not move the start of the rounds over the other sockets: of two always
/// readable sockets, one would be served on every turn and the other never.
#[test]
fn hot_sockets_take_turns_where_urgent_arrivals_are_near() {
    let mut model = Model::new(3);
    let mut arrivals = Arrivals::new(3);
    let keys = [Class::Latency, Class::Throughput, Class::Throughput].map(|class| {
        let mut interest = Interest::new(model.now);
        arrivals.set_class(&mut interest, class, model.now);
        let socket = ModelSocket::new(interest, 3);
        model.sockets.insert(socket).expect("room")
    });
    let mut served = [0_u32; 3];
    let turns = 20;
    for _ in 0..turns {
        let now = model.now;
        assert!(arrivals.prioritises(now));
        for key in &keys[1..] {
            let socket = model.sockets.get_mut(*key).expect("open");
            socket.arrived += 1 << 20;
            socket.interest.wanted = Wanted::Anything;
            model.note();
            arrivals.wanted(*key, now, &mut model);
        }
        arrivals.turn(Wait::No, now, false, &mut model);
        model.free_buffers = RECEIVE_BUFFERS;
        for key in std::mem::take(&mut model.served) {
            let place = keys.iter().position(|&other| other == key);
            served[place.expect("one of them")] += 1;
        }
        model.now = now + Nanos::from_micros(20);
    }
    assert_eq!(served, [0, turns / 2, turns / 2]);
}

/// Without priorities, a hot `Latency` socket must be read or put in line while sockets of the
/// other class wait in line, not only after it has cooled down.
#[test]
fn without_priorities_a_hot_socket_of_either_class_stands_in_line() {
    for hot in Class::ALL {
        let count = 81;
        let mut model = Model::new(count);
        let mut arrivals = Arrivals::new(count);
        let rules = class_scheduler::ClassSchedulerRules {
            order: Order::RoundRobin,
            ..*arrivals.service.rules()
        };
        arrivals.set_service(&rules);
        let mut add = |model: &mut Model, class| {
            let mut interest = Interest::new(model.now);
            arrivals.set_class(&mut interest, class, model.now);
            let socket = ModelSocket::new(interest, count);
            model.sockets.insert(socket).expect("room")
        };
        let first = add(&mut model, hot);
        let others: Vec<_> = (1..count)
            .map(|_| add(&mut model, Class::Throughput))
            .collect();
        let receive = |arrivals: &mut Arrivals, model: &mut Model, key| {
            let now = model.now;
            let socket = model.sockets.get_mut(key).expect("open");
            if socket.interest.receives() {
                return;
            }
            socket.arrived += 100;
            socket.interest.wanted = Wanted::Anything;
            model.note();
            arrivals.wanted(key, now, model);
            if std::mem::take(&mut model.sockets.get_mut(key).expect("open").watched) {
                arrivals.arrived(key, now, model);
            }
        };
        let (mut served, turns) = (0, 170);
        for turn in 0..turns {
            receive(&mut arrivals, &mut model, first);
            // The first socket becomes hot before the others arrive.
            for &key in others.iter().filter(|_| turn >= 10) {
                receive(&mut arrivals, &mut model, key);
            }
            arrivals.turn(Wait::No, model.now, false, &mut model);
            model.free_buffers = RECEIVE_BUFFERS;
            let received = std::mem::take(&mut model.served);
            served += usize::from(turn >= 10 && received.contains(&first));
            model.now = model.now + Nanos::from_micros(1);
        }
        // A turn serves eight sockets in order, and the ring reports further ones.
        assert!(served >= (turns - 10) / 20, "{hot:?}: {served} of {turns}");
    }
}

/// While a socket with a quantum is sending, others must still be received from: a host that
/// receives its responses slowly must not lock out all other hosts' requests.
#[test]
fn sockets_with_a_quantum_are_received_from_while_others_send() {
    for case in 0..8_u32 {
        let [urgent_near, others_close, bounded_first] = [1, 2, 4].map(|bit| case & bit > 0);
        let mut model = Model::new(5);
        let mut arrivals = Arrivals::new(5);
        arrivals.bounded_first = bounded_first;
        let mut add = |model: &mut Model, class, quantum| {
            let mut interest = Interest::new(model.now);
            arrivals.set_class(&mut interest, class, model.now);
            interest.quantum = quantum;
            let socket = ModelSocket::new(interest, 5);
            model.sockets.insert(socket).expect("room")
        };
        let bulk = Class::Throughput;
        let near = if urgent_near { Class::Latency } else { bulk };
        add(&mut model, near, usize::MAX);
        let sender = add(&mut model, bulk, 1152);
        let receiver = add(&mut model, bulk, 1152);
        let other = add(&mut model, bulk, usize::MAX);
        let closing = add(&mut model, bulk, usize::MAX);
        let socket = model.sockets.get_mut(sender).expect("open");
        (socket.sending, socket.room) = (usize::MAX, usize::MAX);
        arrivals.sends(sender, &mut model);
        let (mut served, turns) = (0, 240);
        for _ in 0..turns {
            let now = model.now;
            assert_eq!(arrivals.prioritises(now), urgent_near);
            for key in [receiver, other] {
                let socket = model.sockets.get_mut(key).expect("open");
                if socket.interest.receives() {
                    continue;
                }
                socket.arrived += 1 << 20;
                socket.interest.wanted = Wanted::Anything;
                model.note();
                arrivals.wanted(key, now, &mut model);
                arrivals.arrived(key, now, &mut model);
            }
            if others_close {
                arrivals.close_in_turn(closing);
            }
            model.bounded = 0;
            arrivals.turn(Wait::No, now, false, &mut model);
            model.bounded += usize::from(arrivals.take_close().is_some());
            assert!(model.bounded <= 1, "one socket with a quantum a turn");
            model.free_buffers = RECEIVE_BUFFERS;
            let received = std::mem::take(&mut model.served);
            served += usize::from(received.contains(&receiver));
            model.now = now + Nanos(100);
        }
        let sent = usize::MAX - model.sockets.get_mut(sender).expect("open").sending;
        let sends = sent / crate::limits::BOUNDED_SEND_BYTES;
        // Every second turn skips such sockets or closes one. Of three others one receives, and
        // with urgent arrivals active, every second one of these is for `other`.
        assert!(served >= turns / 16, "{served} of {turns}");
        assert!(sends >= turns / 8, "{sends} of {turns}");
    }
}
