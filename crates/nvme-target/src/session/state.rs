//! A session's state.

use crate::limits::Limits;
use crate::session::commands::CommandTable;
use crate::session::output::Output;
use crate::session::transfer::{Incoming, R2tTerms};
use base::Time;
use std::num::NonZeroUsize;
use transport::Receiver;
use wire::nvme::Command;
use wire::tcp::PduFormat;
use wire::tcp::framer::{Framer, FramerLimits, Role};
use wire::tcp::limits::ADMIN_IN_CAPSULE_BYTES;

/// One connection's state of the protocol.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) commands: CommandTable,
    pub(crate) receiver: Receiver,
    pub(crate) output: Output,
    pub(crate) incoming: Incoming,
    pub(crate) r2t: R2tTerms,
    /// Connect succeeded: R2Ts are answered from here on.
    pub(crate) connected: bool,
    /// Commands that wait for H2CData.
    pub(crate) transferring: u32,
    /// Payloads with a digest that did not match, since the service counted them.
    pub(crate) digest_errors: u64,
    /// Bytes that one receive takes at most, beside hosts that ask for little.
    pub(crate) receive_quantum: Option<NonZeroUsize>,
    /// The command that waits for a buffer, with the input behind it.
    pub(crate) stalled: Option<Box<Stalled>>,
    /// Time of the last input, or at which input went on that had waited.
    pub(crate) last_input: Time,
    /// Time at which input went on that had waited; zero if none has.
    pub(crate) resumed: Time,
    /// Time at which a PDU began that is not complete; never, between PDUs.
    pub(crate) pdu_since: Time,
    /// A PDU ended in the input at hand.
    pub(super) pdu_ended: bool,
}

/// A command that was parsed and waits for a buffer, with all input behind it: what one receive brought
/// at most, because nothing is received meanwhile.
#[derive(Debug)]
pub(crate) struct Stalled {
    /// Place of the input among those that wait.
    pub(crate) waits: u32,
    pub(crate) command: Command,
    /// The payload, where it was complete, and true if its digest matches.
    pub(crate) data: Option<(Vec<u8>, bool)>,
    /// Bytes of payload that will arrive otherwise.
    pub(crate) arriving: u32,
    /// Input that was received with the command; that behind it begins at `taken`.
    pub(crate) input: Vec<u8>,
    pub(crate) taken: usize,
}

impl Session {
    /// A session that waits for ICReq.
    pub(crate) fn new(output: Output, limits: &Limits, now: Time) -> Self {
        let framer_limits = FramerLimits {
            capsule_data_bytes: ADMIN_IN_CAPSULE_BYTES,
            data_pdu_bytes: limits.h2c_data_bytes,
        };
        Self {
            commands: CommandTable::new(),
            receiver: Receiver::new(Framer::new(Role::Controller, framer_limits)),
            output,
            incoming: Incoming::DISCARD,
            r2t: R2tTerms::new(1, limits),
            connected: false,
            transferring: 0,
            digest_errors: 0,
            receive_quantum: None,
            stalled: None,
            last_input: now,
            resumed: Time::ZERO,
            pdu_since: Time::NEVER,
            pdu_ended: false,
        }
    }

    /// Returns true while nothing is under way that a move to another core would have to take along.
    pub(crate) fn is_quiet(&self) -> bool {
        self.commands.used() == 0
            && self.output.is_idle()
            && self.stalled.is_none()
            && self.receiver.framer().data_remaining().is_none()
    }

    /// Returns true between PDUs, with no data of a command on its way.
    pub(crate) fn is_between_commands(&self) -> bool {
        self.transferring == 0 && self.receiver.framer().data_remaining().is_none()
    }

    /// Returns true if a receive may begin: none is under way, and no command waits for a buffer.
    pub(crate) fn may_receive(&self) -> bool {
        self.receiver.is_idle() && self.stalled.is_none()
    }

    /// Takes the terms that ICReq and ICResp agreed on. `[NVMe-TCP 1.0 §3.3.1]`
    pub(crate) fn initialize(&mut self, format: PduFormat, max_r2t: u32, limits: &Limits) {
        self.output.set_format(format);
        self.receiver.set_digests(&format);
        let ours = u32::from(limits.r2ts_per_command);
        let allowed = max_r2t.saturating_add(1).min(ours);
        self.r2t = R2tTerms::new(u16::try_from(allowed).expect("a handful"), limits);
    }
}
