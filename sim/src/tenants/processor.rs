//! The cost of a thread's work on its processor.
//!
//! A thread takes turns, one after the other while there is work. In a turn it receives what its
//! connections have sent, lets the scheduler release what may go, and sends the answers that the
//! device has for it; the longer a turn takes, the more the next one finds. What a system call
//! costs is paid once for each connection that a turn touches: thousands of connections that ask
//! for little each cost more than a few that ask for much. Caches are not modelled.

use super::request::Request;
use crate::model::Costs;
use base::{Nanos, Time};
use std::collections::VecDeque;

/// Requests, and answers, that one turn takes at most. `[ReFlex §4.1]`
const BATCH: usize = 64;

/// Bound on the cost of scheduling a request by its tokens: what this project allows itself.
const SCHEDULE: Nanos = Nanos(150);

/// The processor time of a thread's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Processor {
    /// A turn that finds something.
    pub turn: Nanos,
    /// Each connection that a turn receives from.
    pub receive: Nanos,
    /// Each request, from its bytes to the device.
    pub request: Nanos,
    /// Each connection that a turn sends to.
    pub send: Nanos,
    /// Each answer.
    pub answer: Nanos,
    /// A byte received, in picoseconds.
    pub receive_byte_ps: u64,
    /// A byte sent, in picoseconds.
    pub send_byte_ps: u64,
}

impl Processor {
    /// This stack over the kernel's TCP, at the other end of a network.
    #[must_use]
    pub const fn over_kernel_tcp(costs: &Costs) -> Self {
        let (stack, socket) = (&costs.stack, &costs.socket);
        Self {
            turn: Nanos(stack.turn_ns),
            receive: Nanos(socket.receive_call_ns + socket.packet_ns),
            request: Nanos(stack.target_request_ns + SCHEDULE.0),
            send: Nanos(socket.send_call_ns),
            answer: Nanos(socket.send_message_ns),
            receive_byte_ps: socket.receive_byte_ps + socket.packet_byte_ps,
            send_byte_ps: socket.send_byte_ps,
        }
    }

    /// The dataplane of the paper, with a TCP of its own: 850 K requests of 1 KiB a second, of
    /// which a fifth of the time is TCP's. `[ReFlex §5.3]`
    #[must_use]
    pub const fn of_the_paper() -> Self {
        const REQUEST_NS: u64 = 1_000_000 / 850;
        const TCP_NS: u64 = REQUEST_NS / 5;
        Self {
            turn: Nanos(0),
            receive: Nanos(TCP_NS / 2),
            request: Nanos(REQUEST_NS - TCP_NS),
            send: Nanos(TCP_NS / 2),
            answer: Nanos(0),
            receive_byte_ps: 0,
            send_byte_ps: 0,
        }
    }
}

/// A thread's processor, and what waits for it.
#[derive(Debug, Default)]
pub(super) struct Core {
    /// A turn is in the calendar.
    pub(super) waits: bool,
    /// Until when the last turn takes.
    pub(super) busy_until: Time,
    /// Time of turns that was measured.
    pub(super) busy: Nanos,
    /// Requests that have not been received.
    pub(super) arrived: VecDeque<Request>,
    /// Requests that the device is done with.
    pub(super) done: VecDeque<Request>,
    turns: u64,
    /// The last turn that received from a connection, and that sent to it.
    touched: Vec<[u64; 2]>,
}

impl Core {
    pub(super) fn has_work(&self) -> bool {
        !self.arrived.is_empty() || !self.done.is_empty()
    }

    /// Takes what a turn finds: requests to take in, and answers to send.
    pub(super) fn gather(&mut self) -> [Vec<Request>; 2] {
        [&mut self.arrived, &mut self.done].map(|waiting| {
            let count = waiting.len().min(BATCH);
            waiting.drain(..count).collect()
        })
    }

    /// Returns the cost of receiving and sending in a turn that found these.
    pub(super) fn cost(
        &mut self,
        processor: &Processor,
        [received, sent]: &[Vec<Request>; 2],
    ) -> Nanos {
        self.turns += 1;
        let mut picoseconds = 0;
        let mut took = processor.turn;
        for request in received {
            if self.touches(request, 0) {
                took += processor.receive;
            }
            took += processor.request;
            picoseconds += processor.receive_byte_ps * request.received_bytes();
        }
        for request in sent {
            if self.touches(request, 1) {
                took += processor.send;
            }
            took += processor.answer;
            picoseconds += processor.send_byte_ps * request.sent_bytes();
        }
        took + Nanos(picoseconds / 1000)
    }

    /// Returns true if this turn has not touched the request's connection in this direction before.
    fn touches(&mut self, request: &Request, direction: usize) -> bool {
        if self.touched.len() <= request.connection {
            self.touched.resize(request.connection + 1, [0; 2]);
        }
        let last = &mut self.touched[request.connection][direction];
        std::mem::replace(last, self.turns) != self.turns
    }
}
