//! The loop's steps: take requests in, gather, send, and the costs.

use super::super::app::Way;
use super::super::caches::Habit;
use super::super::config::Hosting;
use super::super::costs::for_bytes;
use super::super::cpu::ThreadStep;
use super::super::event::Event;
use super::super::lane::{PACKET_BYTES, Packet, Side, Stage};
use super::super::world::World;
use super::Turn;
use base::{Nanos, Time};
use switch::class_scheduler::ServiceGrant;
use switch::doorbell::{Decision, Reason, Urgency};
use switch::knobs::Polling;
use switch::{Caravan, Class, LatencyActivity, LatencyWatch, PerClass};

/// Segments of a request or answer in a send: header and data.
const IOVECS: u32 = 2;

/// Maximum bytes of a receive: the production buffer.
const RECEIVE_BYTES: u64 = 256 * 1024;

impl World<'_> {
    /// Returns the next step of a dataplane loop and its cost; `None` if it may sleep.
    pub(in crate::model) fn engine_step(&mut self, number: usize) -> Option<(ThreadStep, u64)> {
        if !self.engines[number].sending.is_empty() {
            return Some(self.send_next(number, 0));
        }
        let engine = &mut self.engines[number];
        let ends = &self.ends;
        let backlog = PerClass::from_fn(|class| {
            let send = engine.sends[class]
                .front()
                .map_or(0, |&end| ends[end].egress_bytes);
            engine.ingress_bytes[class] + engine.receive_bytes[class] + send
        });
        let Some(grant) = engine.scheduler.next(Time(self.now), &backlog) else {
            let turn = self.costs.stack.turn_ns;
            let polls = self.knobs.polling == Polling::Always;
            return polls.then_some((ThreadStep::Poll, turn));
        };
        if grant.class == Class::Latency {
            let now = Time(self.now);
            self.latency_of(number).present(now);
        } else {
            engine.quanta += u64::from(!grant.by_floor);
        }
        Some(self.serve(number, grant))
    }

    fn serve(&mut self, number: usize, grant: ServiceGrant) -> (ThreadStep, u64) {
        let class = grant.class;
        if let Some(end) = self.due_now(number, class) {
            return self.load_caravan(number, end, grant);
        }
        let engine = &mut self.engines[number];
        let count = engine.ingress[class].len();
        engine.turn[class].gathered = true;
        if count > 0 {
            let inline = self.config.hosting == Hosting::Inline;
            let stack = &self.costs.stack;
            let each = if inline {
                stack.submit_ns + stack.app_request_ns / 2
            } else {
                stack.submit_ns + stack.hand_over_ns
            };
            let step = ThreadStep::Take {
                count,
                class: class.index(),
            };
            return (step, each * count as u64);
        }
        self.receive_some(number, grant)
    }

    /// Returns the end that sends before more is gathered: at the end of a turn, or because its
    /// send must not or need not wait for that. An end with more to send than one caravan sends
    /// again at the end of the next turn, because the production loop polls for arrivals between
    /// any two sends of a lane.
    fn due_now(&mut self, number: usize, class: Class) -> Option<usize> {
        let engine = &mut self.engines[number];
        let all_taken = engine.ingress[class].is_empty();
        let all_received = engine.receives[class].is_empty();
        let turn = &mut engine.turn[class];
        let enough = all_taken && (all_received || turn.bytes >= RECEIVE_BYTES);
        if enough && turn.sends == 0 {
            turn.sends = engine.sends[class].len();
        }
        let Some(&end) = engine.sends[class].front() else {
            *turn = Turn::default();
            return None;
        };
        let at_once = matches!(
            self.ends[end].doorbell.due(),
            Some(Reason::Urgent | Reason::RequestsFull | Reason::BytesFull | Reason::IovecsFull)
        );
        let first = turn.gathered || all_taken && all_received;
        if turn.sends == 0 && !(at_once && first) {
            return None;
        }
        turn.sends = turn.sends.saturating_sub(1);
        if turn.sends == 0 {
            *turn = Turn::default();
        }
        engine.sends[class].pop_front();
        Some(end)
    }

    /// Builds a caravan of the requests that wait at an end.
    fn load_caravan(
        &mut self,
        number: usize,
        end: usize,
        grant: ServiceGrant,
    ) -> (ThreadStep, u64) {
        let limits = self.knobs.caravan.limits(self.latency_activity(number));
        let (mut caravan, mut bytes) = (Caravan::EMPTY, 0);
        let (mut packet, mut filled) = (None, 0);
        while let Some(&request) = self.ends[end].egress.front() {
            let it = &self.requests[request];
            let side = self.ends[end].side;
            let (request_bytes, counted) = (it.bytes_from(side), it.caravan_bytes_from(side));
            if !caravan.accepts(counted, IOVECS, &limits) {
                break;
            }
            if it.class == Class::Latency && grant.class == Class::Latency {
                self.engines[number].served_first(it.quanta_before);
            }
            caravan.add(counted, IOVECS);
            bytes += u64::from(request_bytes);
            self.ends[end].egress.pop_front();
            // If headers do not fit, the kernel sends a small additional packet. It is paid for
            // (`Packet::pieces`), but received with the large packet.
            filled += u64::from(counted);
            let open = match packet {
                Some(open) if filled <= PACKET_BYTES => open,
                _ => {
                    filled = u64::from(counted);
                    self.open_packet(number, end)
                }
            };
            packet = Some(open);
            let load = &mut self.packets[open];
            load.requests.push(request);
            load.bytes += u64::from(request_bytes);
        }
        let it = &mut self.ends[end];
        it.egress_bytes -= bytes;
        it.packets += 1;
        let reason = it.doorbell.took(caravan);
        it.caravans.count(reason, caravan.requests, caravan.bytes);
        let more = it.doorbell.due().is_some() && !it.egress.is_empty();
        it.listed = more;
        let engine = &mut self.engines[number];
        engine.sending_bytes = bytes;
        if more {
            engine.sends[grant.class].push_back(end);
        }
        if grant.class.properties().may_wait {
            self.latency_of(number).sent(bytes);
        }
        let socket = &self.costs.socket;
        let cold_ns = self.carry(number, Habit::Send, bytes, socket.send_cold_ns);
        // The loop polls its sockets between any two sends of a lane.
        let mut call_ns = self.costs.stack.turn_ns + socket.send_call_ns + cold_ns;
        if self.wires.is_none() && self.peer_works(number, end) {
            call_ns += self.costs.socket.contended_ns;
        }
        self.send_next(number, call_ns)
    }

    /// Returns the `Latency` activity that an engine sees, if it prioritises.
    fn latency_activity(&self, number: usize) -> LatencyActivity {
        if self.knobs.prioritisation {
            let (core, side) = self.place_of(number);
            self.cores[core].latency[side].latency_activity(Time(self.now))
        } else {
            LatencyActivity::Absent
        }
    }

    /// Returns the `Latency` activity of an engine's core and side, to record more of it.
    fn latency_of(&mut self, number: usize) -> &mut LatencyWatch {
        let (core, side) = self.place_of(number);
        &mut self.cores[core].latency[side]
    }

    fn place_of(&self, number: usize) -> (usize, usize) {
        let engine = &self.engines[number];
        (self.threads[engine.thread].core, engine.side as usize)
    }

    /// Returns the additional cost of `bytes` on an engine's core after bulk.
    fn carry(&mut self, number: usize, habit: Habit, bytes: u64, price_ns: u64) -> u64 {
        let core = self.threads[self.engines[number].thread].core;
        self.cores[core].caches.carry(habit, bytes, price_ns)
    }

    /// Returns true if the loop at the other end of a lane is active on another core.
    fn peer_works(&self, number: usize, end: usize) -> bool {
        let peer = self.engines[self.ends[self.ends[end].peer].engine].thread;
        let here = self.threads[self.engines[number].thread].core;
        self.threads[peer].core != here && self.works(peer)
    }

    /// Adds a packet to the send that an engine is about to make.
    fn open_packet(&mut self, number: usize, end: usize) -> usize {
        let packet = self.spare_packets.pop().unwrap_or_else(|| {
            self.packets.push(Packet::default());
            self.packets.len() - 1
        });
        let it = &mut self.packets[packet];
        (it.from, it.bytes) = (end, 0);
        self.engines[number].sending.push_back(packet);
        packet
    }

    /// The kernel takes the next packet of a send: each packet leaves while the next packet is
    /// copied.
    fn send_next(&mut self, number: usize, call_ns: u64) -> (ThreadStep, u64) {
        let engine = &mut self.engines[number];
        let packet = engine.sending.pop_front();
        let packet = packet.expect("a doorbell rings for something");
        let last = engine.sending.is_empty();
        let (socket, load) = (&self.costs.socket, &self.packets[packet]);
        let mut cost = call_ns
            + socket.send_message_ns * load.requests.len() as u64
            + for_bytes(load.bytes, socket.send_byte_ps);
        if self.wires.is_none() {
            // Loopback: the receiving half runs here, too.
            cost += load.pieces() * socket.packet_ns + for_bytes(load.bytes, socket.packet_byte_ps);
        }
        (ThreadStep::Send { packet, last }, cost)
    }

    fn receive_some(&mut self, number: usize, grant: ServiceGrant) -> (ThreadStep, u64) {
        let engine = &mut self.engines[number];
        let end = *engine.receives[grant.class]
            .front()
            .expect("what the scheduler grants is there");
        let (mut bytes, mut count, mut requests) = (0, 0, 0);
        for &packet in &self.ends[end].received {
            let packet = &self.packets[packet];
            if count > 0 && bytes + packet.bytes > grant.bytes.min(RECEIVE_BYTES) {
                break;
            }
            bytes += packet.bytes;
            count += 1;
            requests += packet.requests.len() as u64;
            if grant.class == Class::Latency {
                for &request in &packet.requests {
                    engine.served_first(self.requests[request].quanta_before);
                }
            }
        }
        engine.turn[grant.class].bytes += bytes;
        let stack = &self.costs.stack;
        let each = match (engine.side, engine.way) {
            (Side::Target, _) => stack.target_request_ns,
            (Side::Host, Way::Ingress) => stack.complete_ns + stack.hand_over_ns,
            (Side::Host, Way::Direct) => stack.complete_ns + stack.app_request_ns / 2,
        };
        let socket = &self.costs.socket;
        let cold_ns = self.carry(number, Habit::Receive, bytes, socket.receive_cold_ns);
        let cost = socket.receive_call_ns
            + cold_ns
            + for_bytes(bytes, socket.receive_byte_ps)
            + each * requests;
        let step = ThreadStep::Receive {
            end,
            packets: count,
        };
        (step, cost)
    }

    /// Applies the effect of a dataplane loop's step.
    pub(in crate::model) fn engine_finish(&mut self, number: usize, step: ThreadStep) {
        let bytes = match step {
            ThreadStep::Take { count, class } => {
                self.take_requests(number, count, Class::ALL[class])
            }
            ThreadStep::Send { packet, .. } => {
                self.send(packet);
                self.engines[number].sending_bytes
            }
            ThreadStep::Return => self.engines[number].sending_bytes,
            ThreadStep::Receive { end, packets } => self.receive(number, end, packets),
            ThreadStep::App { .. } | ThreadStep::Poll => return,
        };
        let (now, engine) = (Time(self.now), &mut self.engines[number]);
        // A grant is used up after the whole send.
        if engine.sending.is_empty() {
            engine.scheduler.served(now, bytes);
        }
    }

    /// Puts an application's request into an engine's ingress.
    pub(in crate::model) fn hand_in(&mut self, number: usize, request: usize) {
        let engine = &mut self.engines[number];
        let it = &mut self.requests[request];
        it.quanta_before = engine.quanta;
        let class = self.lane_class[it.class];
        engine.ingress_bytes[class] += u64::from(it.command_bytes());
        engine.ingress[class].push_back(request);
        self.notify(number);
    }

    fn take_requests(&mut self, number: usize, count: usize, class: Class) -> u64 {
        let mut bytes = 0;
        for _ in 0..count {
            let engine = &mut self.engines[number];
            let Some(request) = engine.ingress[class].pop_front() else {
                break;
            };
            let it = &self.requests[request];
            let target = self.apps[it.app].target;
            let size = u64::from(it.command_bytes());
            engine.ingress_bytes[class] -= size;
            bytes += size;
            if class == Class::Latency {
                engine.served_first(it.quanta_before);
                let now = Time(self.now);
                self.latency_of(number).arrived(now);
            }
            let end = self.lane_of(number, target, class);
            self.put(end, request, Stage::Ingress, Stage::Egress);
        }
        bytes
    }

    /// Queues a request or answer at an end.
    pub(in crate::model) fn put(&mut self, end: usize, request: usize, from: Stage, to: Stage) {
        self.advance(request, from, to);
        let it = &mut self.ends[end];
        let counted = self.requests[request].caravan_bytes_from(it.side);
        self.requests[request].quanta_before = self.engines[it.engine].quanta;
        it.egress.push_back(request);
        it.egress_bytes += u64::from(self.requests[request].bytes_from(it.side));
        let urgency = if self.knobs.prioritisation {
            Urgency::of(it.class)
        } else {
            Urgency::Patient
        };
        let in_flight = it.in_flight;
        let now = Time(self.now);
        let decision = it
            .doorbell
            .on_request(now, counted, IOVECS, urgency, in_flight);
        self.obey(end, decision);
    }

    /// Executes a doorbell's decision.
    pub(in crate::model) fn obey(&mut self, end: usize, decision: Decision) {
        let it = &mut self.ends[end];
        match decision {
            Decision::Ring(_) if it.listed => {}
            Decision::Ring(_) => {
                it.listed = true;
                let (engine, class) = (it.engine, it.class);
                self.engines[engine].sends[class].push_back(end);
                self.notify(engine);
            }
            Decision::Hold { until } if until == Time::NEVER || it.timer == Some(until.0) => {}
            Decision::Hold { until } => {
                it.timer = Some(until.0);
                self.calendar.push(until.0, Event::Doorbell { end });
            }
        }
    }

    /// A doorbell's timer is due.
    pub(in crate::model) fn on_doorbell(&mut self, end: usize) {
        let it = &mut self.ends[end];
        if it.timer != Some(self.now) {
            return;
        }
        it.timer = None;
        let decision = it.doorbell.on_timer(Time(self.now));
        let core = self.threads[self.engines[it.engine].thread].core;
        if matches!(decision, Decision::Ring(_)) {
            self.softirq(core, self.costs.core.timer_ns);
            self.falls_due(core);
        }
        self.obey(end, decision);
    }

    /// A packet has left.
    pub(in crate::model) fn send(&mut self, packet: usize) {
        let load = &self.packets[packet];
        let end = load.from;
        let (from, to) = match self.ends[end].side {
            Side::Host => (Stage::Egress, Stage::Sent),
            Side::Target => (Stage::Answered, Stage::Returned),
        };
        let count = u32::try_from(load.requests.len()).expect("bounded by the caravan");
        for index in 0..load.requests.len() {
            let request = self.packets[packet].requests[index];
            self.advance(request, from, to);
        }
        if self.ends[end].side == Side::Host {
            self.ends[end].in_flight += count;
        }
        if self.wires.is_some() {
            self.transmit(packet);
        } else {
            self.deliver(packet);
        }
    }

    /// Delivers a packet to its receiver's socket.
    pub(in crate::model) fn deliver(&mut self, packet: usize) {
        let from = self.packets[packet].from;
        let end = self.ends[from].peer;
        let it = &mut self.ends[end];
        let engine = &mut self.engines[it.engine];
        for &request in &self.packets[packet].requests {
            self.requests[request].quanta_before = engine.quanta;
        }
        if it.received.is_empty() {
            engine.receives[it.class].push_back(end);
        }
        it.received.push_back(packet);
        engine.receive_bytes[it.class] += self.packets[packet].bytes;
        let number = it.engine;
        self.notify(number);
    }

    fn receive(&mut self, number: usize, end: usize, packets: usize) -> u64 {
        let mut batch = std::mem::take(&mut self.engines[number].batch);
        let (mut bytes, class) = (0, self.ends[end].class);
        for _ in 0..packets {
            let Some(packet) = self.ends[end].received.pop_front() else {
                break;
            };
            bytes += self.packets[packet].bytes;
            batch.append(&mut self.packets[packet].requests);
            self.spare_packets.push(packet);
        }
        // The lane may have moved to another engine while the packet was in flight.
        let owner = &mut self.engines[self.ends[end].engine];
        owner.receive_bytes[class] -= bytes;
        owner.receives[class].retain(|&other| other != end);
        if !self.ends[end].received.is_empty() {
            owner.receives[class].push_back(end);
        }
        match self.ends[end].side {
            Side::Host => {
                for &request in &batch {
                    self.completed(end, request);
                }
            }
            Side::Target => self.commands(end, &batch),
        }
        batch.clear();
        self.engines[number].batch = batch;
        bytes
    }

    /// Commands arrive at the target.
    fn commands(&mut self, end: usize, batch: &[usize]) {
        let count = u32::try_from(batch.len()).expect("bounded by the depths of all applications");
        self.ends[end].in_flight += count;
        if self.ends[end].class == Class::Latency {
            let (now, engine) = (Time(self.now), self.ends[end].engine);
            self.latency_of(engine).arrived(now);
        }
        let bytes: u64 = batch
            .iter()
            .map(|&request| u64::from(self.requests[request].bytes))
            .sum();
        let demand = &mut self.ends[end].demand;
        demand.outstanding += bytes;
        demand.sample(Time(self.now));
        for &request in batch {
            self.advance(request, Stage::Sent, Stage::Device);
            if self.config.device == Nanos::ZERO {
                self.answer(end, request);
            } else {
                let at = self.now + self.config.device.0;
                self.calendar.push(at, Event::Device { end, request });
            }
        }
    }

    /// The device has completed a request.
    pub(in crate::model) fn answer(&mut self, end: usize, request: usize) {
        self.ends[end].in_flight -= 1;
        self.ends[end].demand.outstanding -= u64::from(self.requests[request].bytes);
        self.put(end, request, Stage::Device, Stage::Answered);
    }

    /// A request's answer was received.
    fn completed(&mut self, end: usize, request: usize) {
        self.advance(request, Stage::Returned, Stage::Completed);
        let it = &mut self.ends[end];
        it.in_flight -= 1;
        let decision = it.doorbell.on_completion(Time(self.now), it.in_flight);
        self.obey(end, decision);
        let near = self.latency_activity(self.ends[end].engine).is_active();
        self.complete(request, near);
    }

    /// Moves a lane to another engine.
    pub(in crate::model) fn move_lane(&mut self, end: usize, to: usize) {
        let it = &mut self.ends[end];
        let from = std::mem::replace(&mut it.engine, to);
        if from == to {
            return;
        }
        let class = it.class;
        if it.listed {
            self.engines[from].sends[class].retain(|&other| other != end);
            self.engines[to].sends[class].push_back(end);
        }
        if !it.received.is_empty() {
            let packets = &self.packets;
            let bytes: u64 = it
                .received
                .iter()
                .map(|&packet| packets[packet].bytes)
                .sum();
            self.engines[from].receives[class].retain(|&other| other != end);
            self.engines[from].receive_bytes[class] -= bytes;
            self.engines[to].receives[class].push_back(end);
            self.engines[to].receive_bytes[class] += bytes;
        }
        let quanta = self.engines[to].quanta;
        let waiting = it
            .received
            .iter()
            .flat_map(|&packet| &self.packets[packet].requests);
        for &request in waiting.chain(&it.egress) {
            self.requests[request].quanta_before = quanta;
        }
        self.notify(to);
    }
}
