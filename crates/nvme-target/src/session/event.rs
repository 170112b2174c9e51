//! Events of a session for the service: commands, progress of their data, and violations of the
//! protocol.

use secure::record::Alert;
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

    /// Returns the violation by a host that begins with TLS (`first` are its first bytes), where
    /// none is configured; it is answered with an alert. `None` for anything else.
    #[cold]
    pub(crate) fn of_tls(first: &[u8]) -> Option<Box<Self>> {
        /// A TLS record with a handshake message, of any version.
        const HANDSHAKE: [u8; 2] = [22, 3];
        first.starts_with(&HANDSHAKE).then(|| {
            let alert = Alert::HANDSHAKE_FAILURE.in_clear();
            let mut request = [0; TERM_REQ_BYTES_MAX];
            request[..alert.len()].copy_from_slice(&alert);
            let reason = "the host uses TLS, and none is configured: start the target with a TLS \
                          key, or connect without TLS";
            Box::new(Self {
                reason: reason.to_owned(),
                request,
                length: alert.len(),
            })
        })
    }

    /// Returns the C2HTermReq PDU, or an alert.
    pub(crate) fn request(&self) -> &[u8] {
        &self.request[..self.length]
    }
}
