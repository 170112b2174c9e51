//! A session's state.

use crate::limits::Limits;
use crate::request::OtherHalf;
use crate::session::commands::CommandTable;
use crate::session::held::Held;
use crate::session::output::Output;
use crate::session::transfer::{Incoming, R2tTerms};
use base::Time;
use std::num::NonZeroUsize;
use transport::Receiver;
use wire::nvme::Command;
use wire::tcp::PduFormat;
use wire::tcp::framer::{Framer, FramerLimits, Role};
use wire::tcp::limits::ADMIN_IN_CAPSULE_BYTES;

/// Protocol state of one connection.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) commands: CommandTable,
    pub(crate) receiver: Receiver,
    pub(crate) output: Output,
    pub(crate) incoming: Incoming,
    pub(crate) r2t: R2tTerms,
    /// Connect succeeded: the host may answer R2Ts.
    pub(crate) connected: bool,
    /// Commands that wait for H2CData.
    pub(crate) transferring: u32,
    /// Payloads whose digest did not match, since the service last counted them.
    pub(crate) digest_errors: u64,
    /// Most bytes per receive, while hosts with little demand are active; `None`: no limit.
    pub(crate) receive_quantum: Option<NonZeroUsize>,
    /// The command that waits for a buffer, with the input behind it.
    pub(crate) stalled: Option<Box<Stalled>>,
    /// First half of a fused pair of which the second half is to be the next command; counted in
    /// `transferring`, because the host has to send it.
    pub(crate) first_half: Option<OtherHalf>,
    /// Commands are held for the process that takes the connection over, not executed.
    pub(crate) held: Option<Box<Held>>,
    /// Time of the last input, or of the last resumption of input that had waited.
    pub(crate) last_input: Time,
    /// Time of the last resumption of input that had waited; zero if none.
    pub(crate) resumed: Time,
    /// Start time of the incomplete PDU; [`Time::NEVER`] between PDUs.
    pub(crate) pdu_since: Time,
    /// A PDU ended in the current input.
    pub(super) pdu_ended: bool,
}

/// A parsed command that waits for a buffer, with all input behind it: at most the data of one
/// receive, because nothing is received in the meantime.
#[derive(Debug)]
pub(crate) struct Stalled {
    /// Receipt of the command.
    pub(crate) received: Time,
    /// Place of the input in the wait lists.
    pub(crate) waits: u32,
    pub(crate) command: Command,
    /// The payload if it is complete, and true if its digest matches.
    pub(crate) data: Option<(Vec<u8>, bool)>,
    /// Bytes of payload still to arrive if it is not complete.
    pub(crate) arriving: u32,
    /// Input received with the command; the part after the command begins at `taken`.
    pub(crate) input: Vec<u8>,
    pub(crate) taken: usize,
}

impl Session {
    /// Creates a session that waits for ICReq.
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
            first_half: None,
            held: None,
            last_input: now,
            resumed: Time::ZERO,
            pdu_since: Time::NEVER,
            pdu_ended: false,
        }
    }

    /// Sets the first half that waits for the next command.
    pub(crate) fn set_first_half(&mut self, half: Option<OtherHalf>) {
        self.transferring += u32::from(half.is_some());
        self.transferring -= u32::from(self.first_half.is_some());
        self.first_half = half;
    }

    /// Returns true if nothing is in flight that a move to another core would have to transfer.
    pub(crate) fn is_quiet(&self) -> bool {
        self.commands.used() == 0
            && self.output.is_idle()
            && self.stalled.is_none()
            && self.first_half.is_none()
            && self.receiver.framer().carried().is_some()
    }

    /// Returns true between PDUs with no command data outstanding.
    pub(crate) fn is_between_commands(&self) -> bool {
        self.transferring == 0 && self.receiver.framer().carried().is_some()
    }

    /// Returns true if a receive may begin: none is in flight, and no command waits for a buffer.
    pub(crate) fn may_receive(&self) -> bool {
        self.receiver.is_idle() && self.stalled.is_none()
    }

    /// Applies the terms of ICReq and ICResp. `[NVMe-TCP 1.0 §3.3.1]`
    pub(crate) fn initialize(&mut self, format: PduFormat, max_r2t: u32, limits: &Limits) {
        self.output.set_format(format);
        self.receiver.set_digests(&format);
        let ours = u32::from(limits.r2ts_per_command);
        let allowed = max_r2t.saturating_add(1).min(ours);
        self.r2t = R2tTerms::new(u16::try_from(allowed).expect("a handful"), limits);
    }
}
