//! The library that makes the handshake, s2n-tls, over a [`Peer`].
#![allow(unsafe_code)] // Its callbacks for I/O get pointers.

use super::error::TlsError;
use super::peer::Peer;
use base::mutation::{self, Mutation};
use s2n_tls::config::Config;
use s2n_tls::connection::Connection;
use s2n_tls::enums::{Blinding, Mode, PskHmac, SerializationVersion, Version};
use s2n_tls::error::{Error, ErrorType};
use s2n_tls::psk::Psk as LibraryPsk;
use s2n_tls::security::Policy;
use secure::record::{Alert, Fields, Opener, Sealer, Suite};
use secure::{Hash, Psk};
use std::ffi::{c_int, c_void};
use std::io;
use std::sync::OnceLock;
use std::task::Poll;
use zeroize::Zeroizing;

/// Suites and curves: TLS 1.3 only.
const POLICY: &str = "CloudFront-Upstream-TLS-1-3-2025";

/// Maximum bytes of one call of the peer; the library reads records by header and content.
const CALL_BYTES: usize = 4096;

/// A handshake of the library.
#[derive(Debug)]
pub(super) struct Library {
    connection: Connection,
    is_server: bool,
}

/// What the callbacks need.
struct Call<'a> {
    peer: &'a mut dyn Peer,
    error: Option<io::Error>,
}

impl Library {
    pub(super) fn new(is_server: bool, psk: &Psk) -> Result<Self, TlsError> {
        Self::set_up(is_server, psk).map_err(|error| library_error(&error))
    }

    fn set_up(is_server: bool, psk: &Psk) -> Result<Self, Error> {
        let mode = if is_server {
            Mode::Server
        } else {
            Mode::Client
        };
        let mut connection = Connection::new(mode);
        connection.set_config(config()?)?;
        // A mismatch of keys was found before; a delay would only help strangers to occupy room.
        connection.set_blinding(Blinding::SelfService)?;
        let mut own = LibraryPsk::builder()?;
        own.set_identity(psk.identity.as_bytes())?;
        own.set_secret(&psk.secret)?;
        own.set_hmac(match psk.hash {
            Hash::Sha384 => PskHmac::SHA384,
            _ => PskHmac::SHA256,
        })?;
        connection.append_psk(&own.build()?)?;
        connection.set_receive_callback(Some(receive))?;
        connection.set_send_callback(Some(send))?;
        Ok(Self {
            connection,
            is_server,
        })
    }

    /// Continues the handshake as far as the peer's bytes allow. It reads not one byte behind the
    /// handshake.
    pub(super) fn negotiate(&mut self, peer: &mut dyn Peer) -> Poll<Result<(), TlsError>> {
        let mut call = Call { peer, error: None };
        let context = (&raw mut call).cast::<c_void>();
        // SAFETY: the library uses the context in its callbacks only, which it calls from
        // `poll_negotiate` alone; `call` outlives that, and the next call replaces the context.
        let set = unsafe { self.connection.set_receive_context(context) }.map(drop);
        // SAFETY: as above.
        let set = set.and_then(|()| unsafe { self.connection.set_send_context(context) }.map(drop));
        let result = match set {
            Ok(()) => self.connection.poll_negotiate().map_ok(drop),
            Err(error) => Poll::Ready(Err(error)),
        };
        let error = call.error.take();
        result.map_err(|reason| self.reason(&reason, error))
    }

    fn reason(&self, error: &Error, io: Option<io::Error>) -> TlsError {
        match (error.kind(), io) {
            (ErrorType::Alert, _) => match self.connection.alert() {
                Some(0) | None => TlsError::Closed,
                Some(alert) => TlsError::Alert(Alert(alert)),
            },
            (ErrorType::ConnectionClosed, _) => TlsError::Closed,
            (ErrorType::IOError, Some(io)) => match io.kind() {
                io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => TlsError::Closed,
                _ => TlsError::Io(io.to_string()),
            },
            _ => library_error(error),
        }
    }

    /// Takes the keys of both directions out of the library.
    pub(super) fn into_keys(self) -> Result<(Sealer, Opener, Suite), TlsError> {
        let wrong = || TlsError::Library("it negotiated what was not offered".to_owned());
        let connection = &self.connection;
        let version = connection.actual_protocol_version();
        let psk_len = connection.negotiated_psk_identity_length();
        if !matches!(version, Ok(Version::TLS13)) || !matches!(psk_len, Ok(1..)) {
            return Err(wrong());
        }
        let taken = connection.serialization_length().and_then(|len| {
            let mut state = Zeroizing::new(vec![0; len]);
            connection.serialize(&mut state).map(|()| state)
        });
        let state = taken.map_err(|error| library_error(&error))?;
        let mut state = Fields(&state);
        // The format of s2n-tls: version, protocol, suite, two sequence numbers, the maximum
        // fragment, the secrets of client and server.
        let fields = (|| {
            state.take::<10>()?;
            let suite = Suite::from_number(state.take()?)?;
            let sequences = [big_endian(&mut state)?, big_endian(&mut state)?];
            state.take::<2>()?;
            let secrets = [
                state.bytes(suite.secret_bytes())?,
                state.bytes(suite.secret_bytes())?,
            ];
            Some((suite, sequences, secrets))
        })();
        let (suite, sequences, secrets) = fields.ok_or_else(wrong)?;
        let (own, other) = match self.is_server {
            _ if mutation::active(Mutation::TlsOneKey) => (0, 0),
            true => (1, 0),
            false => (0, 1),
        };
        Ok((
            Sealer::new(suite, secrets[own], sequences[own]),
            Opener::new(suite, secrets[other], sequences[other]),
            suite,
        ))
    }
}

/// Returns the next number of 8 bytes, in network byte order.
fn big_endian(state: &mut Fields<'_>) -> Option<u64> {
    state.take().map(u64::from_be_bytes)
}

fn library_error(error: &Error) -> TlsError {
    match error.name() {
        // Without a trusted authority, as here, the library says so of every certificate.
        "S2N_ERR_CERT_UNTRUSTED" => TlsError::Certificate,
        _ => TlsError::Library(error.message().to_owned()),
    }
}

/// The configuration that all handshakes share.
fn config() -> Result<Config, Error> {
    static CONFIG: OnceLock<Config> = OnceLock::new();
    if let Some(config) = CONFIG.get() {
        return Ok(config.clone());
    }
    let mut builder = Config::builder();
    // Certificates are never used; reading those of the system takes milliseconds.
    builder.with_system_certs(false)?;
    builder.set_security_policy(&Policy::from_version(POLICY)?)?;
    builder.set_serialization_version(SerializationVersion::V1)?;
    let config = builder.build()?;
    Ok(CONFIG.get_or_init(|| config).clone())
}

/// Prepares the library, so that a process may confine itself afterwards.
pub(super) fn prepare() -> Result<(), TlsError> {
    config().map(drop).map_err(|error| library_error(&error))
}

/// # Safety
/// `context` is that of a running [`Library::negotiate`], and `out` has room for `len` bytes.
unsafe extern "C" fn receive(context: *mut c_void, out: *mut u8, len: u32) -> c_int {
    // SAFETY: by the contract; the library is not called again while this runs.
    let call = unsafe { &mut *context.cast::<Call<'_>>() };
    let mut bytes = [0; CALL_BYTES];
    let len = CALL_BYTES.min(len as usize);
    let result = call.peer.receive(&mut bytes[..len]);
    if let Ok(received) = result {
        debug_assert!(received <= len);
        // SAFETY: `out` has room for `len` bytes, and is the library's own memory.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), out, received) };
    }
    answer(call, result)
}

/// # Safety
/// `context` is that of a running [`Library::negotiate`], and `from` has `len` bytes.
unsafe extern "C" fn send(context: *mut c_void, from: *const u8, len: u32) -> c_int {
    // SAFETY: by the contract; the library is not called again while this runs.
    let call = unsafe { &mut *context.cast::<Call<'_>>() };
    // SAFETY: by the contract.
    let bytes = unsafe { std::slice::from_raw_parts(from, len as usize) };
    let result = call.peer.send(bytes);
    answer(call, result)
}

/// Converts a result for the library, which looks at `errno`.
fn answer(call: &mut Call<'_>, result: io::Result<usize>) -> c_int {
    let number = match result {
        Ok(bytes) => return c_int::try_from(bytes).unwrap_or(c_int::MAX),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => libc::EAGAIN,
        Err(error) => {
            call.error = Some(error);
            libc::EIO
        }
    };
    // SAFETY: the call has no condition.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: the address of this thread's `errno` is valid while the thread lives.
    unsafe { *errno = number };
    -1
}
