//! Errors by the party at fault: violations of the protocol by the peer, and set-up as its user
//! sees it.
//!
//! Errors of a single request are [`block::BlockError`].

use std::io;
use std::net::SocketAddr;
use wire::nvme::Status;
use wire::tcp::{FatalErrorStatus, FramingError, TermReq};

/// A controller broke the rules of NVMe/TCP. The connection is terminated with H2CTermReq, and
/// made anew; the requests on it are sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// A PDU is malformed.
    #[error(transparent)]
    Framing(#[from] FramingError),
    /// A PDU came that makes no sense in the connection's state.
    #[error("a {pdu} came while the connection was {state}")]
    Sequence {
        /// The PDU's name.
        pdu: &'static str,
        /// The state of the connection.
        state: &'static str,
    },
    /// A PDU names a command that is not outstanding.
    #[error("command identifier {cid:#06x} is not outstanding")]
    UnknownCommand {
        /// The identifier received.
        cid: u16,
        /// Offset of the field in the PDU's header, in bytes.
        offset: u32,
    },
    /// Data for a command that expects none, or that lies outside of what was asked for, or that
    /// does not continue where the data before it ended.
    #[error("data {offset}+{length} of command {cid:#06x} is not the next part of its data")]
    DataOutOfRange {
        /// The command.
        cid: u16,
        /// Bytes from the start of the command's data.
        offset: u32,
        /// Bytes.
        length: u32,
    },
    /// An R2T for a command that has no data to send, for nothing, or for data outside of it.
    #[error("R2T {offset}+{length} for command {cid:#06x} does not lie within its data")]
    TransferOutOfRange {
        /// The command.
        cid: u16,
        /// Bytes from the start of the command's data.
        offset: u32,
        /// Bytes.
        length: u32,
    },
    /// More R2Ts at once than we allowed in ICReq.
    #[error("more R2Ts outstanding for command {cid:#06x} than were allowed")]
    TooManyTransfers {
        /// The command.
        cid: u16,
    },
    /// A successful completion before all data of a read had come, or before the controller had
    /// all data of a write.
    #[error("command {cid:#06x} completed after {moved} of {expected} bytes")]
    DataMissing {
        /// The command.
        cid: u16,
        /// Bytes received, or asked for by the controller.
        moved: u32,
        /// Bytes of the command.
        expected: u32,
        /// Offset of the field in the PDU's header, in bytes.
        offset: u32,
    },
    /// The controller demands digests that we did not offer.
    #[error("the controller enabled a digest that was not offered")]
    Digests,
}

impl ProtocolError {
    /// Returns the termination request for this error. `[NVMe-TCP 1.0 §3.6.2.4]`
    #[must_use]
    pub fn term_req(&self) -> TermReq {
        let status = match self {
            Self::Framing(error) => return error.term_req(),
            Self::Sequence { .. } => FatalErrorStatus::PDU_SEQUENCE_ERROR,
            Self::DataOutOfRange { .. } | Self::TransferOutOfRange { .. } => {
                FatalErrorStatus::DATA_TRANSFER_OUT_OF_RANGE
            }
            Self::TooManyTransfers { .. } => FatalErrorStatus::R2T_LIMIT_EXCEEDED,
            Self::UnknownCommand { .. } | Self::DataMissing { .. } | Self::Digests => {
                FatalErrorStatus::INVALID_PDU_HEADER_FIELD
            }
        };
        // The offset of the field that is at fault; in ICResp that of DGST.
        let information = match self {
            Self::UnknownCommand { offset, .. } | Self::DataMissing { offset, .. } => *offset,
            Self::Digests => 11,
            _ => 0,
        };
        TermReq {
            status,
            information,
        }
    }
}

/// Reason for which a connection ended, or was not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectionError {
    /// The kernel's reason.
    #[error("{address}: {}", describe_io(*.kind))]
    Io {
        /// The controller's address.
        address: SocketAddr,
        /// The kernel's error.
        kind: io::ErrorKind,
    },
    /// The controller broke the rules.
    #[error("{address}: protocol error by the controller: {error}")]
    Protocol {
        /// The controller's address.
        address: SocketAddr,
        /// The violation.
        error: ProtocolError,
    },
    /// The controller terminated the connection with C2HTermReq.
    #[error(
        "{address}: the controller terminated the connection: {status}, information {information:#x}"
    )]
    Terminated {
        /// The controller's address.
        address: SocketAddr,
        /// FES.
        status: FatalErrorStatus,
        /// FEI.
        information: u32,
    },
    /// A command of the set-up was refused.
    #[error("{what} refused: {}; {}", of_command(what, *.status), remedy(*.status))]
    Refused {
        /// Which command.
        what: &'static str,
        /// Its status.
        status: Status,
    },
    /// Something did not come in time.
    #[error(
        "{address}: no answer to {what} within {seconds} s; check that an NVMe/TCP controller listens there"
    )]
    TimedOut {
        /// The controller's address.
        address: SocketAddr,
        /// The answer that was waited for.
        what: &'static str,
        /// The time-out in seconds.
        seconds: u64,
    },
    /// A request was given up, by a limit or a cancellation, and not answered. The controller may
    /// still carry it out, and only the end of its association says when it cannot.
    #[error("{address}: no answer to a request that was given up; the connections are made anew")]
    GivenUp {
        /// The controller's address.
        address: SocketAddr,
    },
    /// The identifiers of a namespace changed: its NSID names another volume.
    #[error(
        "namespace {nsid} is another volume now (its identifiers changed); requests for the old one \
         fail, open the namespace anew to use the new one"
    )]
    OtherVolume {
        /// The namespace.
        nsid: u32,
    },
    /// The controller says something that makes it unusable.
    #[error("unusable controller: {0}")]
    Unusable(&'static str),
}

impl ConnectionError {
    /// Returns true if another attempt cannot help, because the controller refused this host.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::Refused { status, .. } => status.dnr(),
            Self::Unusable(_) => true,
            _ => false,
        }
    }
}

fn describe_io(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::ConnectionRefused => {
            "connection refused: nothing listens there; start the target or check address and port"
        }
        io::ErrorKind::TimedOut => {
            "no answer: the address is not reachable; check route and firewall"
        }
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            "unreachable: check address and route"
        }
        io::ErrorKind::UnexpectedEof => "the controller closed the connection",
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            "the controller reset the connection"
        }
        _ => "the connection failed",
    }
}

/// Returns the name of a status: Connect has names of its own for some numbers.
fn of_command(command: &str, status: Status) -> String {
    if command == "Connect" {
        status.of_connect().to_string()
    } else {
        status.to_string()
    }
}

fn remedy(status: Status) -> &'static str {
    if status.is(Status::CONNECT_INVALID_HOST) {
        "allow this host NQN in the subsystem, and its address in the networks of its tenant, or \
         connect with another one"
    } else if status.is(Status::CONNECT_INVALID_PARAMETERS) {
        "check the subsystem NQN (`discover` lists those that are offered)"
    } else if status.is(Status::CONNECT_CONTROLLER_BUSY) {
        "every controller is taken; disconnect another host"
    } else {
        "see the target's log"
    }
}

/// Reason for which a host could not be set up, or could not connect.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The connection could not be made.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// An option makes no sense.
    #[error("{0}")]
    Option(String),
    /// An address cannot be understood or found.
    #[error("address \"{address}\": {reason}; write it as HOST:PORT, for example 127.0.0.1:4420")]
    Address {
        /// The text that was given.
        address: String,
        /// The reason.
        reason: String,
    },
    /// The core's driver could not be made.
    #[error(transparent)]
    Driver(#[from] reactor::uring::SetupError),
    /// The machine refused something.
    #[error("{what}: {source}")]
    Io {
        /// The action that failed.
        what: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The namespace does not exist.
    #[error("namespace {nsid} does not exist in {subsystem}; it has {available}")]
    NoNamespace {
        /// The namespace asked for.
        nsid: u32,
        /// The subsystem.
        subsystem: String,
        /// Those that exist.
        available: String,
    },
    /// The namespace has a format that we do not handle.
    #[error("namespace {nsid}: {reason}")]
    UnusableNamespace {
        /// Which.
        nsid: u32,
        /// The reason.
        reason: &'static str,
    },
    /// A channel to a namespace could not be opened.
    #[error(transparent)]
    Device(#[from] block::DeviceError),
    /// The host was closed, or its thread ended.
    #[error("the host was closed")]
    Closed,
    /// Too much of something.
    #[error("{0}")]
    Limit(&'static str),
}

/// Reason for which a blocking request failed.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// Offset or length is not a multiple of the block size.
    #[error(
        "{what} {value} is not a multiple of the namespace's block size, {block_bytes} bytes; \
         read or write whole blocks"
    )]
    Alignment {
        /// "offset" or "length".
        what: &'static str,
        /// The value that was given, in bytes.
        value: u64,
        /// The block size.
        block_bytes: u32,
    },
    /// The range does not lie within the namespace.
    #[error("bytes {offset}+{length} lie beyond the end of the namespace, which has {size} bytes")]
    OutOfRange {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
        /// Size of the namespace in bytes.
        size: u64,
    },
    /// The range is longer than one request may be.
    #[error("{length} bytes are more than the {most} of one request: make several of it")]
    TooLong {
        /// Bytes.
        length: u64,
        /// The most that one request may have, in bytes.
        most: u64,
    },
    /// The device could not do it.
    #[error(transparent)]
    Device(#[from] block::BlockError),
    /// The host was closed.
    #[error("the host was closed")]
    Closed,
}
