//! What arrives on a connection: receives, the PDUs in them, and where their payload goes.
//!
//! Called by the poll group with each receive that ends. A big payload is received straight to
//! where it belongs; a command for which no buffer is free waits here, and with it all input that
//! follows, within [`stash_bytes`](crate::Limits::stash_bytes).

use crate::limits::DIRECT_RECEIVE_BYTES_MIN;
use crate::service::core::CoreState;
use crate::session::connection::{Connection, State};
use crate::session::{termination, transfer};
use base::Time;
use reactor::{Buffer, Context, IoSlice, Memory, Op, OpKey, Received};
use switch::light_hosts::Asked;
use wire::nvme::Command;
use wire::tcp::PduHeader;
use wire::tcp::framer::Event;

/// Kind of the operation that receives.
pub(crate) const RECEIVE: u8 = 2;

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
pub(super) struct Stalled {
    command: Command,
    /// The payload, where it was here.
    data: Option<(Vec<u8>, bool)>,
    arriving: u32,
}

impl Stalled {
    /// Bytes that it keeps.
    fn bytes(&self) -> usize {
        self.data.as_ref().map_or(0, |(data, _)| data.len())
    }
}

/// What the receive under way fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Receiving {
    Nothing,
    /// A receive buffer of the driver's.
    Plain,
    /// The data of this slot.
    Into(u16),
}

impl Connection {
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
        let commands = core.stats.io_commands;
        let admin_commands = core.stats.admin_commands;
        let outstanding = self.demand.outstanding;
        let mut received_bytes = 0;
        if self.urgency_matters() {
            core.switch.note_urgent(cx.now);
        }
        if self.state < State::Terminating {
            let (buffer, length) = match &received.rest {
                Some((buffer, length)) => (&buffer[..*length], *length),
                None => (&[][..], 0),
            };
            received_bytes = length as u64;
            self.consume(&buffer[..length], core, cx);
        }
        drop(received.rest);
        let asked = Asked {
            commands: core.stats.io_commands - commands,
            data_bytes: (self.demand.outstanding + self.demand.answered)
                .saturating_sub(outstanding),
            received_bytes,
        };
        if core.stats.io_commands != commands {
            self.sample_demand(core, cx.now);
            if self.urgency_matters() {
                core.switch.note_urgent_commands(cx.now);
            }
        }
        let any = asked.commands > 0 || core.stats.admin_commands != admin_commands;
        if any || self.state >= State::Terminating {
            self.hold_back(Some(asked), core, cx);
        }
        self.arm_receive(core, cx);
    }

    /// Sets how much the next receives take: beside a host that asks for little, one that asks for
    /// much gets a caravan in a turn. `asked`: what the last receive brought, if anything.
    pub(super) fn hold_back(
        &mut self,
        asked: Option<Asked>,
        core: &mut CoreState,
        cx: &mut Context<'_>,
    ) {
        if self.state >= State::Closing {
            return;
        }
        let (host, hosts) = (self.holding.host(), &mut core.switch.light_hosts);
        let quantum = match (self.output.class(), asked) {
            // Strict priority has quanta of its own.
            (Some(class), _) if !class.properties().may_wait => None,
            (Some(_), Some(asked)) => hosts.asked(host, asked, cx.now),
            (Some(_), None) => None,
            (None, _) => hosts.control_quantum(host, cx.now),
        };
        // What comes after a termination request is discarded, the sooner the better.
        let applies = core.switch.knobs().light_hosts && self.state < State::Terminating;
        let quantum = quantum.filter(|_| applies);
        if quantum != self.receive_quantum {
            self.receive_quantum = quantum;
            cx.driver.set_receive_quantum(self.socket, quantum);
        }
    }

    /// Whether what arrives must not wait for what arrives on other I/O queues.
    fn urgency_matters(&self) -> bool {
        let class = self.output.class();
        class.is_some_and(|class| !class.properties().may_wait)
    }

    /// Commands of an I/O queue came: what it and its core are asked for is measured.
    fn sample_demand(&mut self, core: &mut CoreState, now: Time) {
        let Some(class) = self.output.class() else {
            return;
        };
        let (before, after) = self.demand.sample(now);
        let load = &mut core.switch.load[class];
        *load = *load - before + after;
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
        let mut ended = self.pdu_since == Time::NEVER;
        while self.state < State::Terminating {
            match self.framer.next(&mut input) {
                Ok(None) => break,
                Ok(Some(event)) => {
                    ended |= matches!(event, Event::Pdu { .. } | Event::DataEnd { .. });
                    if self.event(event, core, cx) == Flow::Stall {
                        self.stash.extend_from_slice(input);
                        core.stashed_bytes += self.stash.len();
                        core.input_waiters.push_back(self.key);
                        break;
                    }
                }
                Err(error) => {
                    termination::framing_error(self, error, core, cx);
                    break;
                }
            }
        }
        self.time_pdu(ended, core, cx.now);
        core.touch();
    }

    /// Notes since when a PDU is half here; a new one where another has ended.
    #[inline]
    fn time_pdu(&mut self, ended: bool, core: &mut CoreState, now: Time) {
        // Where we do not receive, nobody else is late.
        if self.framer.is_between_pdus() || self.stalled.is_some() {
            self.pdu_since = Time::NEVER;
        } else if ended {
            self.pdu_since = now;
            self.arm(core, now + core.limits.pdu_timeout);
        }
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
                if let Some(suppressed) = core.log_budget.allow(self.peer.ip(), cx.now) {
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

    /// Keeps a command that could not be taken. False when too much is kept already.
    pub(crate) fn stall(
        &mut self,
        command: &Command,
        payload: Payload<'_>,
        core: &mut CoreState,
    ) -> bool {
        let (data, arriving) = match payload {
            Payload::None => (None, 0),
            Payload::Whole(data, digest_ok) => (Some((data.to_vec(), digest_ok)), 0),
            Payload::Arriving(length) => (None, length),
        };
        let stalled = Stalled {
            command: *command,
            data,
            arriving,
        };
        if core.stashed_bytes + stalled.bytes() > core.limits.stash_bytes {
            return false;
        }
        core.stashed_bytes += stalled.bytes();
        self.stalled = Some(Box::new(stalled));
        true
    }

    /// Tries again what had to wait for a buffer. True when the connection goes on.
    pub(crate) fn resume_input(&mut self, core: &mut CoreState, cx: &mut Context<'_>) -> bool {
        let Some(stalled) = self.stalled.take() else {
            return true;
        };
        if self.state >= State::Terminating {
            core.stashed_bytes -= self.stash.len() + stalled.bytes();
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
        core.stashed_bytes -= stash.len() + stalled.bytes();
        self.consume(&stash, core, cx);
        self.arm_receive(core, cx);
        true
    }

    /// Starts the next receive: into the place where a big payload belongs, if one is arriving.
    pub(crate) fn arm_receive(&mut self, core: &mut CoreState, cx: &mut Context<'_>) {
        let ready = self.receiving == Receiving::Nothing && self.stalled.is_none();
        let ready = ready && !self.holds_back();
        if !ready || self.state >= State::Closing {
            return;
        }
        let into = self.destination();
        self.receiving = match &into {
            Some((slot, _)) => Receiving::Into(*slot),
            None => Receiving::Plain,
        };
        let key = OpKey::new(core.op_namespace, RECEIVE, self.key);
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
}

/// A buffer for a command's data, exactly as long, and how many bytes of the core's it takes.
pub(crate) fn take_buffer(cx: &Context<'_>, length: usize) -> Option<(IoSlice, u32)> {
    let buffer: Buffer = cx.driver.buffers().take(length)?;
    let bytes = u32::try_from(buffer.len()).expect("a buffer is less than 4 GiB");
    Some((IoSlice::from_buffer(buffer, length), bytes))
}
