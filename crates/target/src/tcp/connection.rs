//! A connection: its socket, its framer, its queue pair, and what it is for.
//!
//! Owned by its core's poll group, which calls it with what the driver brought. It never blocks,
//! and whatever its peer sends, the worst that happens is that this connection ends.

use crate::controller::Controller;
use crate::core::{Action, CoreState};
use crate::limits::DIRECT_RECEIVE_BYTES_MIN;
use crate::qpair::Qpair;
use crate::registry::{Seat, SharedController};
use crate::request::Phase;
use crate::tcp::output::Output;
use crate::tcp::{term, transfer};
use base::{SlabKey, Time};
use reactor::{Buffer, Context, IoSlice, Memory, Op, OpKey, Received, SocketId};
use std::net::SocketAddr;
use std::sync::Arc;
use wire::nvme::Command;
use wire::tcp::framer::{Event, Framer, FramerLimits, Role as End};
use wire::tcp::limits::ADMIN_IN_CAPSULE_BYTES;
use wire::tcp::{DataAlignment, IcReq, IcResp, PduFormat, PduHeader};

/// Kind of the operation that receives.
pub(crate) const RECEIVE: u8 = 2;
/// Kind of the operation that closes.
pub(crate) const CLOSE: u8 = 3;

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum State {
    /// The host has to send ICReq.
    Opening,
    /// The host has to send Connect.
    Fresh,
    /// The queue pair is connected.
    Live,
    /// Commands are carried out no more; those under way are answered, then it closes.
    Draining,
    /// We sent a termination request; the host closes, or else we do.
    Terminating,
    /// The driver closes the socket.
    Closing,
    /// The socket is gone; commands may still be in a device.
    Closed,
}

/// What the queue pair belongs to.
#[derive(Debug)]
pub(crate) enum Owner {
    /// Connect has not come yet.
    Nobody,
    /// It is the admin queue of this controller.
    Admin(Box<Controller>),
    /// It is an I/O queue of this controller.
    Io(Arc<SharedController>),
}

/// What becomes of the payload that is arriving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Incoming {
    pub(crate) sink: Sink,
    /// Bytes of the PDU's payload that came already.
    pub(crate) position: u32,
    /// Bytes at its beginning that nobody wants.
    pub(crate) skip: u32,
    /// Where the wanted part goes within the command's data.
    pub(crate) base: u32,
    /// Bytes of the wanted part.
    pub(crate) want: u32,
}

/// Where arriving payload goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sink {
    /// Nowhere.
    Discard,
    /// It is in-capsule data of this slot's command.
    Capsule(u16),
    /// It is what this slot's R2T of that number asked for.
    Transfer(u16, u16),
}

impl Incoming {
    pub(crate) const DISCARD: Self = Self {
        sink: Sink::Discard,
        position: 0,
        skip: 0,
        base: 0,
        want: 0,
    };
}

/// A capsule's payload.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Payload<'a> {
    /// There is none.
    None,
    /// It is here, and whether its digest matches.
    Whole(&'a [u8], bool),
    /// So many bytes will arrive.
    Arriving(u32),
}

/// Whether the input can be worked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    Continue,
    /// No buffer is free for the command's data: the command must be seen again later.
    Stall,
}

/// A command that was parsed and could not be taken.
#[derive(Debug)]
struct Stalled {
    command: Command,
    /// The payload, where it was here.
    data: Option<(Vec<u8>, bool)>,
    arriving: u32,
}

/// What the receive under way fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Receiving {
    Nothing,
    /// A receive buffer of the driver's.
    Plain,
    /// The data of this slot.
    Into(u16),
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) key: SlabKey,
    pub(crate) socket: SocketId,
    pub(crate) peer: SocketAddr,
    /// Our end's address, where it is known.
    pub(crate) local: Option<SocketAddr>,
    pub(crate) state: State,
    pub(crate) owner: Owner,
    /// Where the core keeps the subsystem.
    pub(crate) subsystem: u32,
    pub(crate) qpair: Qpair,
    pub(crate) framer: Framer,
    pub(crate) output: Output,
    pub(crate) incoming: Incoming,
    /// R2Ts that the host allows for one command.
    pub(crate) r2ts_max: u16,
    /// Commands that wait for H2CData.
    pub(crate) transferring: u32,
    /// Counted among the core's fresh connections.
    fresh: bool,
    receiving: Receiving,
    stash: Vec<u8>,
    stalled: Option<Box<Stalled>>,
    opened: Time,
    last_input: Time,
    /// When a terminating or draining connection closes at the latest.
    pub(crate) close_at: Time,
    /// The timer that is set.
    timer_at: Time,
    /// Held for as long as anything of the connection is left.
    _seat: Seat,
}

impl Connection {
    pub(crate) fn new(
        key: SlabKey,
        socket: SocketId,
        (peer, local): (SocketAddr, Option<SocketAddr>),
        seat: Seat,
        core: &mut CoreState,
        now: Time,
    ) -> Self {
        let limits = FramerLimits {
            capsule_data_bytes: ADMIN_IN_CAPSULE_BYTES,
            data_pdu_bytes: core.limits.h2c_data_bytes,
        };
        core.fresh_connections += 1;
        Self {
            key,
            socket,
            peer,
            local,
            state: State::Opening,
            owner: Owner::Nobody,
            subsystem: u32::MAX,
            qpair: Qpair::new(),
            framer: Framer::new(End::Controller, limits),
            output: Output::new(key, socket),
            incoming: Incoming::DISCARD,
            r2ts_max: 1,
            transferring: 0,
            fresh: true,
            receiving: Receiving::Nothing,
            stash: Vec::new(),
            stalled: None,
            opened: now,
            last_input: now,
            close_at: Time::NEVER,
            timer_at: Time::NEVER,
            _seat: seat,
        }
    }

    /// The connection found its place among the core's.
    pub(crate) fn settle_key(&mut self, key: SlabKey) {
        self.key = key;
        self.output.settle_key(key);
    }

    /// Begins to receive, and to wait for ICReq.
    pub(crate) fn start(&mut self, core: &mut CoreState, cx: &mut Context<'_>) {
        self.arm(core, self.opened + core.limits.connect_timeout);
        self.arm_receive(core, cx);
    }

    /// The controller that the connection belongs to.
    pub(crate) fn controller(&self) -> Option<&Arc<SharedController>> {
        match &self.owner {
            Owner::Nobody => None,
            Owner::Admin(controller) => Some(&controller.shared),
            Owner::Io(controller) => Some(controller),
        }
    }

    /// Whether commands are still carried out and answered.
    pub(crate) fn answers(&self) -> bool {
        self.state <= State::Draining
    }

    /// Makes sure that the timer fires at `deadline` or before.
    pub(crate) fn arm(&mut self, core: &mut CoreState, deadline: Time) {
        if deadline < self.timer_at {
            self.timer_at = deadline;
            core.timers
                .set(deadline, (self.key.index, self.key.generation));
        }
    }

    /// Whether nobody knows yet whose the connection is.
    pub(crate) fn is_fresh(&self) -> bool {
        self.fresh
    }

    /// The connection counts as one that nobody knows no more.
    pub(crate) fn leave_fresh(&mut self, core: &mut CoreState) {
        if std::mem::take(&mut self.fresh) {
            core.fresh_connections -= 1;
        }
    }

    /// A receive came to its end.
    pub(crate) fn received(
        &mut self,
        received: Received,
        core: &mut CoreState,
        cx: &mut Context<'_>,
    ) {
        let receiving = std::mem::replace(&mut self.receiving, Receiving::Nothing);
        if let (Receiving::Into(slot), Some(into)) = (receiving, received.into) {
            self.filled(slot, into, received.filled, core);
        }
        if received.result.is_err() {
            self.close(core, cx);
            return;
        }
        self.last_input = cx.now;
        if self.state < State::Terminating {
            let (buffer, length) = match &received.rest {
                Some((buffer, length)) => (&buffer[..*length], *length),
                None => (&[][..], 0),
            };
            self.consume(&buffer[..length], core, cx);
        }
        drop(received.rest);
        self.arm_receive(core, cx);
    }

    /// Payload was received where it belongs.
    fn filled(&mut self, slot: u16, into: IoSlice, filled: usize, core: &mut CoreState) {
        if self.framer.data_remaining().is_some() {
            let bytes = into.bytes().expect("payload is received into buffers only");
            self.framer.advance_external(&bytes[..filled]);
        }
        self.incoming.position += u32::try_from(filled).expect("a PDU is shorter than 4 GiB");
        let Some(entry) = self.qpair.get(slot) else {
            return;
        };
        if let Memory::Buffer(buffer) = into.into_memory() {
            let length = entry.length as usize;
            entry.data = Some(IoSlice::from_buffer(buffer, length));
        }
        core.touch();
    }

    /// Works on input until it is used up, or a command has to wait for a buffer.
    pub(crate) fn consume(&mut self, bytes: &[u8], core: &mut CoreState, cx: &mut Context<'_>) {
        let mut input = bytes;
        while self.state < State::Terminating {
            match self.framer.next(&mut input) {
                Ok(None) => break,
                Ok(Some(event)) => {
                    if self.event(event, core, cx) == Flow::Stall {
                        self.stash.extend_from_slice(input);
                        core.stashed_bytes += self.stash.len();
                        core.input_waiters.push_back(self.key);
                        break;
                    }
                }
                Err(error) => {
                    term::framing_error(self, error, core, cx);
                    break;
                }
            }
        }
        core.touch();
    }

    #[inline]
    fn event(&mut self, event: Event<'_>, core: &mut CoreState, cx: &mut Context<'_>) -> Flow {
        match event {
            Event::Pdu {
                header: PduHeader::CapsuleCmd(capsule),
                data,
                digest_ok,
            } => {
                let payload = data.map_or(Payload::None, |data| Payload::Whole(data, digest_ok));
                transfer::capsule(self, &capsule.command, payload, core, cx)
            }
            Event::DataBegin {
                header: PduHeader::CapsuleCmd(capsule),
                data_length,
            } => {
                self.incoming = Incoming::DISCARD;
                let payload = Payload::Arriving(data_length);
                transfer::capsule(self, &capsule.command, payload, core, cx)
            }
            Event::Pdu {
                header: PduHeader::H2cData(pdu),
                data,
                digest_ok,
            } => {
                if transfer::begin_data(self, &pdu, core, cx) {
                    transfer::deposit(self, data.unwrap_or_default());
                    transfer::end_data(self, digest_ok, core, cx);
                }
                Flow::Continue
            }
            Event::DataBegin {
                header: PduHeader::H2cData(pdu),
                ..
            } => {
                transfer::begin_data(self, &pdu, core, cx);
                Flow::Continue
            }
            Event::DataChunk(chunk) => {
                transfer::deposit(self, chunk);
                Flow::Continue
            }
            Event::DataEnd { digest_ok } => {
                transfer::end_data(self, digest_ok, core, cx);
                Flow::Continue
            }
            Event::Pdu { header, .. } | Event::DataBegin { header, .. } => {
                self.rare_pdu(&header, core, cx);
                Flow::Continue
            }
        }
    }

    fn rare_pdu(&mut self, header: &PduHeader, core: &mut CoreState, cx: &mut Context<'_>) {
        match header {
            PduHeader::IcReq(request) => self.initialize(request, core, cx),
            PduHeader::H2cTermReq(request) => {
                core.stats.terminations_received += 1;
                if let Some(suppressed) = core.log_budget.allow(cx.now) {
                    let status = request.status;
                    let peer = self.peer;
                    tracing::warn!(%peer, %status, suppressed, "the host terminated a connection");
                }
                self.close(core, cx);
            }
            // The framer lets nothing else pass in this direction.
            _ => self.close(core, cx),
        }
    }

    /// Answers ICReq. `[NVMe-TCP 1.0 §3.3.1]`
    fn initialize(&mut self, request: &IcReq, core: &mut CoreState, cx: &mut Context<'_>) {
        let response = IcResp {
            controller_alignment: DataAlignment::DWORD,
            header_digest: request.header_digest && core.limits.header_digest,
            data_digest: request.data_digest && core.limits.data_digest,
            max_h2c_data: core.limits.h2c_data_bytes,
        };
        if !self.output.make_room(core, cx) {
            self.close(core, cx);
            return;
        }
        self.output.push_bytes(&response.to_bytes());
        self.output.format = PduFormat {
            header_digest: response.header_digest,
            data_digest: response.data_digest,
            alignment: request.host_alignment,
        };
        self.framer
            .set_digests(response.header_digest, response.data_digest);
        let ours = u32::from(core.limits.r2ts_per_command);
        let allowed = request.max_r2t.saturating_add(1).min(ours);
        self.r2ts_max = u16::try_from(allowed).expect("a handful");
        self.state = State::Fresh;
    }

    /// Connect succeeded: limits and the queue's size are known from here on.
    pub(crate) fn go_live(&mut self, capsule_data_bytes: u32, core: &mut CoreState) {
        self.leave_fresh(core);
        self.state = State::Live;
        self.framer.set_limits(FramerLimits {
            capsule_data_bytes,
            data_pdu_bytes: core.limits.h2c_data_bytes,
        });
    }

    /// Keeps a command that could not be taken. False when too much is kept already.
    pub(crate) fn stall(
        &mut self,
        command: &Command,
        payload: Payload<'_>,
        core: &CoreState,
    ) -> bool {
        let (data, arriving) = match payload {
            Payload::None => (None, 0),
            Payload::Whole(data, digest_ok) => (Some((data.to_vec(), digest_ok)), 0),
            Payload::Arriving(length) => (None, length),
        };
        let bytes = data.as_ref().map_or(0, |(data, _)| data.len());
        if core.stashed_bytes + bytes > crate::limits::STASH_BYTES_MAX {
            return false;
        }
        self.stalled = Some(Box::new(Stalled {
            command: *command,
            data,
            arriving,
        }));
        true
    }

    /// Tries again what had to wait for a buffer. True when the connection goes on.
    pub(crate) fn resume_input(&mut self, core: &mut CoreState, cx: &mut Context<'_>) -> bool {
        let Some(stalled) = self.stalled.take() else {
            return true;
        };
        if self.state >= State::Terminating {
            core.stashed_bytes -= self.stash.len();
            self.stash = Vec::new();
            return true;
        }
        let payload = match &stalled.data {
            Some((data, digest_ok)) => Payload::Whole(data, *digest_ok),
            None => Payload::Arriving(stalled.arriving),
        };
        if transfer::dispatch(self, &stalled.command, payload, core, cx) == Flow::Stall {
            self.stalled = Some(stalled);
            return false;
        }
        let stash = std::mem::take(&mut self.stash);
        core.stashed_bytes -= stash.len();
        self.consume(&stash, core, cx);
        self.arm_receive(core, cx);
        true
    }

    /// Starts the next receive: into the place where a big payload belongs, if one is arriving.
    fn arm_receive(&mut self, core: &mut CoreState, cx: &mut Context<'_>) {
        let ready = self.receiving == Receiving::Nothing && self.stalled.is_none();
        if !ready || self.state >= State::Closing {
            return;
        }
        let into = self.destination();
        self.receiving = match &into {
            Some((slot, _)) => Receiving::Into(*slot),
            None => Receiving::Plain,
        };
        let key = OpKey::new(core.room, RECEIVE, self.key);
        let into = into.map(|(_, slice)| slice);
        cx.submit(
            key,
            Op::Receive {
                socket: self.socket,
                into,
            },
        );
    }

    /// Where the payload that is arriving can be received straight to.
    fn destination(&mut self) -> Option<(u16, IoSlice)> {
        if self.state >= State::Terminating {
            return None;
        }
        let left = self.framer.data_remaining()?;
        let (Sink::Capsule(slot) | Sink::Transfer(slot, _)) = self.incoming.sink else {
            return None;
        };
        let Incoming {
            position,
            skip,
            base,
            want,
            ..
        } = self.incoming;
        let wanted = (skip + want)
            .checked_sub(position)
            .filter(|_| position >= skip)?;
        let length = left.min(wanted) as usize;
        if length < DIRECT_RECEIVE_BYTES_MIN {
            return None;
        }
        let offset = (base + position - skip) as usize;
        let entry = self.qpair.get(slot)?;
        let Memory::Buffer(buffer) = entry.data.take()?.into_memory() else {
            return None;
        };
        Some((slot, IoSlice::new(Memory::Buffer(buffer), offset, length)))
    }

    /// Ends the connection: the driver is told once.
    pub(crate) fn close(&mut self, core: &mut CoreState, cx: &mut Context<'_>) {
        if self.state >= State::Closing {
            return;
        }
        self.leave_fresh(core);
        self.state = State::Closing;
        let key = OpKey::new(core.room, CLOSE, self.key);
        cx.submit(
            key,
            Op::Close {
                socket: self.socket,
            },
        );
        match &self.owner {
            Owner::Nobody => {}
            Owner::Admin(controller) => {
                core.actions
                    .push(Action::EndController(Arc::clone(&controller.shared)));
            }
            Owner::Io(controller) => {
                let mut queues = controller.queues();
                let id = self.qpair.id;
                if queues
                    .places
                    .get(&id)
                    .is_some_and(|place| place.core == core.index && place.connection == self.key)
                {
                    queues.places.remove(&id);
                }
            }
        }
    }

    /// The driver let go of the socket: whatever waits for the host waits in vain.
    pub(crate) fn closed(&mut self, core: &mut CoreState) {
        self.state = State::Closed;
        self.output.abandon(core);
        if self.stalled.is_none() {
            self.stash = Vec::new();
        }
        for slot in self.qpair.occupied() {
            let entry = self.qpair.slot(slot);
            if entry.phase != Phase::Executing {
                transfer::forget(self, slot, core);
            }
        }
    }

    /// Whether nothing of the connection is left.
    pub(crate) fn is_gone(&self) -> bool {
        self.state == State::Closed && self.qpair.used() == 0 && self.stalled.is_none()
    }

    /// Carries out no further command, answers those under way, then closes.
    pub(crate) fn drain(&mut self, core: &mut CoreState, cx: &mut Context<'_>) {
        match self.state {
            State::Live => {
                self.state = State::Draining;
                core.draining.push(self.key);
                self.close_at = cx.now + core.limits.drain_timeout;
                self.arm(core, self.close_at);
                self.drained(core, cx);
            }
            State::Opening | State::Fresh => self.close(core, cx),
            _ => {}
        }
    }

    /// Closes a draining connection soon, if nothing is left to answer.
    pub(crate) fn drained(&mut self, core: &mut CoreState, cx: &mut Context<'_>) {
        let waiting = self.qpair.used() > 0 || !self.output.is_idle() || self.stalled.is_some();
        if self.state == State::Draining && !waiting {
            // Closing while input is unread would reset the connection, and the reset may
            // overtake our last answers: give the host a moment to read them and to close.
            let soon = cx.now + core.limits.linger;
            if soon < self.close_at {
                self.close_at = soon;
                self.arm(core, soon);
            }
        }
    }

    /// The timer fired that was set for `now` or before.
    pub(crate) fn timer(&mut self, core: &mut CoreState, cx: &mut Context<'_>) {
        if self.timer_at > cx.now {
            return;
        }
        self.timer_at = Time::NEVER;
        let limits = &core.limits;
        let mut next = Time::NEVER;
        let mut expired = None;
        let mut check = |deadline: Time, what: &'static str| {
            if deadline <= cx.now {
                expired = Some(what);
            } else {
                next = next.min(deadline);
            }
        };
        match self.state {
            State::Opening | State::Fresh => {
                check(
                    self.opened + limits.connect_timeout,
                    "the host did not connect in time",
                );
            }
            State::Live => {}
            State::Draining | State::Terminating => check(self.close_at, ""),
            State::Closing | State::Closed => return,
        }
        if self.transferring > 0 {
            check(
                self.last_input + limits.stall_timeout,
                "the host did not send its data in time",
            );
        }
        if self.output.sending {
            check(
                self.output.since + limits.stall_timeout,
                "the host did not read in time",
            );
        }
        if let Owner::Admin(controller) = &self.owner {
            check(
                controller.keep_alive.deadline(),
                "the keep-alive timer expired",
            );
            if controller.keep_alive.deadline() <= cx.now {
                core.stats.keep_alive_expirations += 1;
                core.touch();
            }
        }
        let Some(reason) = expired else {
            self.arm(core, next);
            return;
        };
        if !reason.is_empty()
            && let Some(suppressed) = core.log_budget.allow(cx.now)
        {
            let peer = self.peer;
            tracing::warn!(%peer, reason, suppressed, "closing a connection");
        }
        self.close(core, cx);
    }
}

/// A buffer for a command's data, exactly as long.
pub(crate) fn take_buffer(cx: &Context<'_>, length: usize) -> Option<IoSlice> {
    let buffer: Buffer = cx.driver.buffers().take(length)?;
    Some(IoSlice::from_buffer(buffer, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_is_small() {
        // Slots, lists and buffers come with the first command that needs them, so this is all
        // that a connection takes until then.
        assert!(
            size_of::<Connection>() <= 1024,
            "{}",
            size_of::<Connection>()
        );
    }
}
