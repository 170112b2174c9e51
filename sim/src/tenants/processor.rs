//! The cost of a thread's work on its processor.
//!
//! A thread takes turns while it has work. In a turn it receives requests from its connections,
//! lets the scheduler release requests, and sends the answers that the device has completed; the
//! longer a turn takes, the more the next turn finds. The cost of a system call is paid once per
//! connection and turn: thousands of connections with few requests each cost more than a few
//! connections with many. Caches are not modelled.

use super::request::Request;
use crate::model::Costs;
use base::{Nanos, Time};
use std::collections::VecDeque;

/// Maximum requests, and maximum answers, per turn. `[ReFlex §4.1]`
const BATCH: usize = 64;

/// Assumed cost of scheduling a request by its tokens: this project's bound.
const SCHEDULE: Nanos = Nanos(150);

/// The processor time of a thread's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Processor {
    /// Per turn with work.
    pub turn: Nanos,
    /// Per connection that a turn receives from.
    pub receive: Nanos,
    /// Per request, from its bytes to the device.
    pub request: Nanos,
    /// Per connection that a turn sends to.
    pub send: Nanos,
    /// Per answer.
    pub answer: Nanos,
    /// Per byte received, in picoseconds.
    pub receive_byte_ps: u64,
    /// Per byte sent, in picoseconds.
    pub send_byte_ps: u64,
}

impl Processor {
    /// This stack over the kernel's TCP, at the remote end of a network.
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

    /// The paper's dataplane with its own TCP: 850 K requests of 1 KiB per second; TCP takes a
    /// fifth of the time. `[ReFlex §5.3]`
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

/// A thread's processor with its queued work.
#[derive(Debug, Default)]
pub(super) struct Core {
    /// A turn is scheduled.
    pub(super) waits: bool,
    /// End of the last turn.
    pub(super) busy_until: Time,
    /// Measured busy time.
    pub(super) busy: Nanos,
    /// Requests to receive.
    pub(super) arrived: VecDeque<Request>,
    /// Requests completed by the device.
    pub(super) done: VecDeque<Request>,
    turns: u64,
    /// Number of the last turn that received from, and sent to, each connection.
    touched: Vec<[u64; 2]>,
}

impl Core {
    pub(super) fn has_work(&self) -> bool {
        !self.arrived.is_empty() || !self.done.is_empty()
    }

    /// Takes a turn's work: requests to receive, and answers to send.
    pub(super) fn gather(&mut self) -> [Vec<Request>; 2] {
        [&mut self.arrived, &mut self.done].map(|waiting| {
            let count = waiting.len().min(BATCH);
            waiting.drain(..count).collect()
        })
    }

    /// Returns the cost of receiving and sending in a turn with this work.
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

    /// Returns true if this turn touches the request's connection in this direction for the first
    /// time.
    fn touches(&mut self, request: &Request, direction: usize) -> bool {
        if self.touched.len() <= request.connection {
            self.touched.resize(request.connection + 1, [0; 2]);
        }
        let last = &mut self.touched[request.connection][direction];
        std::mem::replace(last, self.turns) != self.turns
    }
}
