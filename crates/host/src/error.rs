//! Errors of connections and set-up. Errors of a single request are [`block::BlockError`].

use reactor::tls::TlsError;
use secure::chap::Failure;
use std::io;
use std::net::SocketAddr;
use wire::nvme::Status;
use wire::tcp::{FatalErrorStatus, FramingError, TermReq};

/// The controller violated the NVMe/TCP protocol. The host terminates the connection with
/// H2CTermReq, reconnects, and sends the requests again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// A PDU is malformed.
    #[error(transparent)]
    Framing(#[from] FramingError),
    /// A PDU that is not valid in the state of the connection.
    #[error("unexpected {pdu} PDU in connection state {state}")]
    Sequence {
        /// The PDU's name.
        pdu: &'static str,
        /// The state of the connection.
        state: &'static str,
    },
    /// A PDU for a command that is not outstanding.
    #[error("command identifier {cid:#06x} is not outstanding")]
    UnknownCommand {
        /// The identifier received.
        cid: u16,
        /// Offset of the field in the PDU's header, in bytes.
        offset: u32,
    },
    /// Data for a command without a data transfer, outside its range, or out of order.
    #[error("unexpected data at {offset}+{length} of command {cid:#06x}: out of range or order")]
    DataOutOfRange {
        /// The command.
        cid: u16,
        /// Bytes from the start of the command's data.
        offset: u32,
        /// Bytes.
        length: u32,
    },
    /// An R2T for a command without data to send, of length 0, or outside the data of the command.
    #[error("R2T at {offset}+{length} for command {cid:#06x} is outside its data")]
    TransferOutOfRange {
        /// The command.
        cid: u16,
        /// Bytes from the start of the command's data.
        offset: u32,
        /// Bytes.
        length: u32,
    },
    /// More outstanding R2Ts than MAXR2T of ICReq.
    #[error("more outstanding R2Ts for command {cid:#06x} than MAXR2T allows")]
    TooManyTransfers {
        /// The command.
        cid: u16,
    },
    /// A successful completion before all data was transferred.
    #[error("command {cid:#06x} completed after {moved} of {expected} bytes of data")]
    DataMissing {
        /// The command.
        cid: u16,
        /// Bytes received, or requested by the controller.
        moved: u32,
        /// Bytes of the command.
        expected: u32,
        /// Offset of the field in the PDU's header, in bytes.
        offset: u32,
    },
    /// The controller enabled a digest that the host did not request.
    #[error("the controller enabled a digest that the host did not request")]
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
        // The offset of the invalid field; in ICResp that of DGST.
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

/// Why a connection ended or could not be established.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectionError {
    /// A socket error.
    #[error("{address}: {}", describe_io(*.kind))]
    Io {
        /// The controller's address.
        address: SocketAddr,
        /// The kernel's error.
        kind: io::ErrorKind,
    },
    /// There is no TLS.
    #[error("{address}: {error}")]
    Tls {
        /// The controller's address.
        address: SocketAddr,
        /// The reason.
        error: TlsError,
    },
    /// The host or the controller has not proved its name by DH-HMAC-CHAP.
    #[error("{address}: {error}")]
    Authentication {
        /// The controller's address.
        address: SocketAddr,
        /// The reason.
        error: AuthenticationError,
    },
    /// The controller closed the connection instead of answering the first PDU.
    #[error(
        "{address}: the controller closed the connection before ICResp; if it requires TLS, give \
         a key (--tls-key)"
    )]
    Shut {
        /// The controller's address.
        address: SocketAddr,
    },
    /// The controller violated the protocol.
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
    /// A command of the connection set-up was refused.
    #[error("{what} refused: {}; {}", of_command(what, *.status), remedy(*.status))]
    Refused {
        /// Name of the command.
        what: &'static str,
        /// Its status.
        status: Status,
    },
    /// The controller of an association is not known when an I/O queue connects to it, or takes no
    /// queues of the length that it announced.
    #[error("{address}: the target no longer has this host's controller as it was")]
    UnknownController {
        /// The controller's address.
        address: SocketAddr,
    },
    /// ANA: none of the namespaces is accessible by this controller.
    #[error(
        "{address}: the namespaces are inaccessible there now (ANA): another controller of the subsystem \
         serves them; name the addresses of all, separated by commas"
    )]
    Inaccessible {
        /// The controller's address.
        address: SocketAddr,
    },
    /// A response did not arrive in time.
    #[error(
        "{address}: no response to {what} within {seconds} s; check that an NVMe/TCP target listens there"
    )]
    TimedOut {
        /// The controller's address.
        address: SocketAddr,
        /// The request without response.
        what: &'static str,
        /// The time-out in seconds.
        seconds: u64,
    },
    /// A request timed out or was cancelled, and the controller did not respond to its Abort. The
    /// host ends the association, because otherwise the controller could still execute the request.
    #[error("{address}: no response to an aborted request; reconnecting")]
    GivenUp {
        /// The controller's address.
        address: SocketAddr,
    },
    /// The identifiers of a namespace changed: its NSID refers to another volume.
    #[error(
        "namespace {nsid} is now another volume (its identifiers changed); requests fail until the \
         namespace is opened again"
    )]
    OtherVolume {
        /// The namespace.
        nsid: u32,
    },
    /// The controller lacks something that the host needs.
    #[error("unusable controller: {0}")]
    Unusable(&'static str),
}

impl ConnectionError {
    /// Returns true if retries are useless, because the controller refused this host.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::Refused { status, .. } => status.dnr(),
            Self::Unusable(_) => true,
            // A target that ends closes connections as well.
            Self::Authentication { error, .. } => !matches!(
                error,
                AuthenticationError::Busy(_) | AuthenticationError::Closed { .. }
            ),
            _ => false,
        }
    }
}

/// Why a connection is not authenticated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthenticationError {
    /// The controller requires it, and the host has no secret.
    #[error("the target requires DH-HMAC-CHAP: give the secret of this host (--chap-secret FILE)")]
    NoSecret,
    /// The controller requires to open a secure channel by the exchange.
    #[error(
        "the target requires secure channel concatenation, which is not supported; let it require \
         TLS with a configured key or DH-HMAC-CHAP instead"
    )]
    SecureChannel,
    /// The exchange failed.
    #[error("DH-HMAC-CHAP failed: {0}")]
    Failed(Failure),
    /// The controller requires the exchange and refused a command of it.
    #[error("DH-HMAC-CHAP failed: {command} refused: {status}; see the target's log")]
    Refused {
        /// Name of the command.
        command: &'static str,
        /// Its status.
        status: Status,
    },
    /// The host requires the exchange, and the controller refused a command of it.
    #[error(
        "the target did not prove itself by DH-HMAC-CHAP: {command} refused: {status}; configure its \
         secrets there, or omit --chap-controller-secret"
    )]
    Unproven {
        /// Name of the command.
        command: &'static str,
        /// Its status.
        status: Status,
    },
    /// The controller closed the connection, as Linux may instead of answering a wrong secret.
    #[error(
        "the target closed the connection during DH-HMAC-CHAP, instead of answering {command}; \
         compare the secret with that of the target, and see its log"
    )]
    Closed {
        /// Name of the command.
        command: &'static str,
    },
    /// The host could not compute its response.
    #[error("DH-HMAC-CHAP failed: the host could not compute its response: {0}")]
    Busy(io::ErrorKind),
}

fn describe_io(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::ConnectionRefused => {
            "connection refused: no process listens there; start the target, or check address and port"
        }
        io::ErrorKind::TimedOut => {
            "connection timed out: the address is not reachable; check route and firewall"
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

/// Returns the name of a status. Connect has its own names for some status codes.
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
         use another host NQN"
    } else if status.is(Status::CONNECT_INVALID_PARAMETERS) {
        "check the subsystem NQN (`switchyard discover` lists the subsystems)"
    } else if status.is(Status::CONNECT_CONTROLLER_BUSY) {
        "all controllers are in use; disconnect another host"
    } else {
        "see the target's log"
    }
}

/// Why a host could not be created or could not connect.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The connection failed.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// An invalid option.
    #[error("{0}")]
    Option(String),
    /// An address is malformed or cannot be resolved.
    #[error("address \"{address}\": {reason}; use HOST:PORT, for example 127.0.0.1:4420")]
    Address {
        /// The given text.
        address: String,
        /// The reason.
        reason: String,
    },
    /// io_uring could not be set up.
    #[error(transparent)]
    Driver(#[from] reactor::uring::SetupError),
    /// A system call failed.
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
        /// The requested namespace.
        nsid: u32,
        /// The subsystem.
        subsystem: String,
        /// The existing namespaces.
        available: String,
    },
    /// The namespace has an unsupported format.
    #[error("namespace {nsid}: {reason}")]
    UnusableNamespace {
        /// The namespace.
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
    /// A limit is exceeded.
    #[error("{0}")]
    Limit(&'static str),
}

/// Why a blocking request failed.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// Offset or length is not a multiple of the block size.
    #[error(
        "{what} {value} is not a multiple of the namespace's block size of {block_bytes} bytes; \
         read or write whole blocks"
    )]
    Alignment {
        /// "offset" or "length".
        what: &'static str,
        /// The given value in bytes.
        value: u64,
        /// The block size.
        block_bytes: u32,
    },
    /// The range exceeds the namespace.
    #[error("range {offset}+{length} exceeds the namespace, which has {size} bytes")]
    OutOfRange {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
        /// Size of the namespace in bytes.
        size: u64,
    },
    /// The range exceeds the largest request.
    #[error("{length} bytes exceed the limit of {most} bytes per request; split the request")]
    TooLong {
        /// Bytes.
        length: u64,
        /// Largest request in bytes.
        most: u64,
    },
    /// The device reported an error.
    #[error(transparent)]
    Device(#[from] block::BlockError),
    /// The host was closed.
    #[error("the host was closed")]
    Closed,
}
