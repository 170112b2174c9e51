//! Events of a session for the service: commands, progress of their data, and violations of the
//! protocol.

use wire::nvme::Command;
use wire::tcp::framer::Role;
use wire::tcp::limits::TERM_REQ_BYTES_MAX;
use wire::tcp::{FatalErrorStatus, IcReq, TermReq};

/// Payload of a capsule.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Payload<'a> {
    /// The capsule has no payload.
    None,
    /// The whole payload, and true if its digest matches.
    Whole(&'a [u8], bool),
    /// The payload will arrive later, with this many bytes.
    Arriving(u32),
}

/// Event of a session.
#[derive(Debug)]
pub(crate) enum Event<'a> {
    /// A command capsule.
    Command(Command, Payload<'a>),
    /// Data of a command.
    Data(Delivery),
    /// ICReq.
    Initialize(IcReq),
    /// H2CTermReq, with its status.
    Terminated(FatalErrorStatus),
    /// A PDU that the framer accepts only in the other direction.
    Unexpected,
}

/// Progress of the data that the host sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// No command received more data, or too little to continue.
    Nothing,
    /// The command in this slot received a part of its data and may need a further R2T.
    Partial(u16),
    /// The command in this slot has all its data.
    Whole(u16),
}

/// Violation of the protocol: the connection ends with a termination request.
/// `[NVMe-TCP 1.0 §3.6.2.5]`
#[derive(Debug)]
pub(crate) struct Violation {
    /// Text for the log.
    pub(crate) reason: String,
    request: [u8; TERM_REQ_BYTES_MAX],
    length: usize,
}

impl Violation {
    /// Returns the violation by a PDU that is legal in itself but not in this state.
    #[cold]
    pub(crate) fn of_pdu(
        status: FatalErrorStatus,
        information: u32,
        header: &[u8],
        reason: &str,
    ) -> Box<Self> {
        let term_req = TermReq {
            status,
            information,
        };
        Self::new(term_req, header, reason.to_owned())
    }

    /// Returns the violation that `term_req` reports, with the offending header.
    #[cold]
    pub(crate) fn new(term_req: TermReq, header: &[u8], reason: String) -> Box<Self> {
        let mut request = [0; TERM_REQ_BYTES_MAX];
        let length = term_req.encode(Role::Controller, header, &mut request);
        Box::new(Self {
            reason,
            request,
            length,
        })
    }

    /// Returns the C2HTermReq PDU.
    pub(crate) fn request(&self) -> &[u8] {
        &self.request[..self.length]
    }
}
