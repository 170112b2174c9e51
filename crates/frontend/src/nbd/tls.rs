//! TLS between the socket of a client and the protocol: bytes in, bytes out.
//!
//! A client requests it with the handshake option `STARTTLS`, and then restarts the handshake
//! inside TLS. Only TLS 1.3 is supported, without session resumption.

use crate::error::FrontendError;
use crate::limits::NBD_SEALED_BYTES;
use crate::log_budget::LogBudget;
use reactor::{Segment, SendList};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{RootCertStore, ServerConfig, ServerConnection};
use std::fmt::Display;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Maximum data of one record, in bytes. `[RFC 8446 §5.1]`
const RECORD_BYTES: usize = 16 * 1024;

/// Room for the TLS overhead of the records in one send, and for handshake messages.
const OVERHEAD_BYTES: usize = 4096;

/// Encryption of a server, configured by a directory with the file names of other NBD servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsOptions {
    /// The directory: `server-cert.pem` (the chain) and `server-key.pem`; to verify clients,
    /// `ca-cert.pem` and optionally `ca-crl.pem`.
    pub certificates: PathBuf,
    /// Serves only clients that use TLS.
    pub require: bool,
    /// Serves only clients with a certificate of the authority.
    pub verify_peer: bool,
}

impl TlsOptions {
    /// Returns true if only clients with a certificate of the authority are served.
    #[must_use]
    pub const fn knows_clients(&self) -> bool {
        self.require && self.verify_peer
    }
}

/// Loads the files of the directory.
///
/// # Errors A file is missing or invalid.
pub(super) fn load(options: &TlsOptions) -> Result<Tls, FrontendError> {
    if options.verify_peer && !options.require {
        let reason = "to verify clients, TLS has to be required: others would be served without it";
        return Err(FrontendError::Option(reason.to_owned()));
    }
    let file = |name: &str| options.certificates.join(name);
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder
        .with_protocol_versions(&[&TLS13])
        .expect("the provider has suites of TLS 1.3");
    let builder = if options.verify_peer {
        let path = file("ca-cert.pem");
        let mut authorities = RootCertStore::empty();
        for authority in read_all::<CertificateDer<'static>>(&path)? {
            let added = authorities.add(authority);
            added.map_err(|error| wrong(&path, &error))?;
        }
        let revoked = file("ca-crl.pem");
        let revoked = match revoked.symlink_metadata() {
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(wrong(&revoked, &error)),
            Ok(_) => read_all::<CertificateRevocationListDer<'static>>(&revoked)?,
        };
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(authorities), provider);
        let verifier = verifier.with_crls(revoked).build();
        builder.with_client_cert_verifier(verifier.map_err(|error| wrong(&path, &error))?)
    } else {
        builder.with_no_client_auth()
    };
    let (chain, key) = (file("server-cert.pem"), file("server-key.pem"));
    let certificates = read_all(&chain)?;
    let key = PrivateKeyDer::from_pem_file(&key).map_err(|error| wrong(&key, &error))?;
    let config = builder.with_single_cert(certificates, key);
    let mut config = config.map_err(|error| wrong(&chain, &error))?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Tls {
        config: Arc::new(config),
        log: Arc::default(),
        required: options.require,
    })
}

fn wrong(path: &Path, error: &dyn Display) -> FrontendError {
    FrontendError::Option(format!(
        "cannot use {}: {error}; the directory needs the PEM files server-cert.pem and \
         server-key.pem, and ca-cert.pem to verify clients",
        path.display()
    ))
}

/// Reads all items of this kind from a file, at least one.
fn read_all<T: PemObject>(path: &Path) -> Result<Vec<T>, FrontendError> {
    let items = T::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<T>, _>>);
    let items = items.map_err(|error| wrong(path, &error))?;
    if items.is_empty() {
        return Err(wrong(path, &"no private key found"));
    }
    Ok(items)
}

/// Encryption offered by a server.
#[derive(Clone, Debug)]
pub(super) struct Tls {
    config: Arc<ServerConfig>,
    log: Arc<LogBudget>,
    /// Clients must use TLS.
    pub(super) required: bool,
}

/// Stage of a connection on its way to TLS.
#[derive(Debug)]
pub(super) enum Stage {
    /// The server has no TLS.
    Off,
    /// The client has not requested TLS.
    Plain(Tls),
    /// The reply to the client's request is being sent.
    Beginning(Tls),
    /// All bytes pass through the channel.
    Running(Box<TlsChannel>),
}

impl Stage {
    /// Records the client's request for TLS.
    pub(super) fn begin(&mut self) {
        *self = match std::mem::replace(self, Self::Off) {
            Self::Plain(tls) => Self::Beginning(tls),
            other => other,
        };
    }

    /// Records that the reply was sent, if one was required. Returns true if TLS begins.
    pub(super) fn run(&mut self) -> bool {
        let Self::Beginning(tls) = self else {
            return false;
        };
        let channel = TlsChannel::new(tls);
        *self = Self::Running(Box::new(channel));
        true
    }

    /// Returns true if the client has requested TLS.
    pub(super) const fn is_secured(&self) -> bool {
        matches!(self, Self::Beginning(_) | Self::Running(_))
    }

    /// Returns the channel if TLS is running.
    pub(super) fn channel(&self) -> Option<&TlsChannel> {
        match self {
            Self::Running(channel) => Some(channel),
            _ => None,
        }
    }

    /// Returns the channel, mutable, if TLS is running.
    pub(super) fn channel_mut(&mut self) -> Option<&mut TlsChannel> {
        match self {
            Self::Running(channel) => Some(channel),
            _ => None,
        }
    }
}

/// Encryption of one connection.
#[derive(Debug)]
pub(super) struct TlsChannel {
    connection: ServerConnection,
    log: Arc<LogBudget>,
    /// The list being encrypted, its next segment, and the number of encrypted bytes in that
    /// segment.
    plain: Option<(Box<SendList>, usize, usize)>,
    /// Memory of the encrypted output; `None` while it is being sent.
    sealed: Option<Box<SendList>>,
    /// The data of one record.
    record: Vec<u8>,
    /// Nothing more is sent.
    abandoned: bool,
}

impl TlsChannel {
    /// Creates a channel that waits for the client to begin.
    fn new(tls: &Tls) -> Self {
        let connection = ServerConnection::new(Arc::clone(&tls.config));
        let sealed = SendList::with_capacity(NBD_SEALED_BYTES + OVERHEAD_BYTES, 2);
        Self {
            connection: connection.expect("a configuration that was checked"),
            log: Arc::clone(&tls.log),
            plain: None,
            sealed: Some(Box::new(sealed)),
            record: Vec::new(),
            abandoned: false,
        }
    }

    /// Decrypts bytes from the socket and appends their plain text to `plain`. Returns false once
    /// the client has closed its side.
    pub(super) fn open(
        &mut self,
        mut bytes: &[u8],
        plain: &mut Vec<u8>,
    ) -> Result<bool, &'static str> {
        while !bytes.is_empty() {
            let taken = self.connection.read_tls(&mut bytes);
            let taken = taken.map_err(|_| "sent a TLS record that is too long")?;
            let state = self.connection.process_new_packets();
            let state = state.map_err(|error| {
                if let Some(suppressed) = self.log.allow() {
                    tracing::debug!(suppressed, "TLS error of a client: {error}");
                }
                "violated the TLS protocol"
            })?;
            let (at, len) = (plain.len(), state.plaintext_bytes_to_read());
            plain.resize(at + len, 0);
            let read = self.connection.reader().read_exact(&mut plain[at..]);
            read.expect("as many as there are");
            if state.peer_has_closed() || taken == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns true if nothing more is sent.
    pub(super) const fn is_abandoned(&self) -> bool {
        self.abandoned
    }

    /// Returns true if it can accept another list.
    pub(super) const fn is_free(&self) -> bool {
        self.plain.is_none()
    }

    /// Encrypts pending output up to the limit of one send, starting with the remainder of an
    /// earlier list. With `last`, it also notifies the client that nothing follows. Returns `None`
    /// if there is nothing to send, or while a send is in flight.
    ///
    /// # Panics If given a list while the channel is not [free](Self::is_free).
    pub(super) fn seal(
        &mut self,
        list: Option<Box<SendList>>,
        last: bool,
    ) -> Option<Box<SendList>> {
        if let Some(list) = list {
            assert!(self.plain.is_none(), "the channel is free");
            self.plain = Some((list, 0, 0));
        }
        if self.abandoned {
            return None;
        }
        if last && self.plain.is_none() {
            // Has an effect only once: the library records that it was sent.
            self.connection.send_close_notify();
        }
        let mut sealed = self.sealed.take()?;
        loop {
            while self.connection.wants_write() {
                let mut room = Room(&mut sealed);
                if self.connection.write_tls(&mut room).is_err() {
                    return Some(sealed);
                }
            }
            let is_full = sealed.bytes() + RECORD_BYTES > NBD_SEALED_BYTES;
            if is_full || !self.seal_record() {
                break;
            }
        }
        if sealed.is_empty() {
            self.sealed = Some(sealed);
            return None;
        }
        Some(sealed)
    }

    /// Encrypts one record. Returns false if there is nothing to encrypt.
    fn seal_record(&mut self) -> bool {
        let Some((list, segment, done)) = &mut self.plain else {
            return false;
        };
        self.record.clear();
        while let Some(next) = list.segments().get(*segment) {
            let at = self.record.len();
            let (len, room) = (segment_bytes(next) - *done, RECORD_BYTES - at);
            match next {
                Segment::Header { start, .. } => {
                    let from = start + *done;
                    let bytes = &list.headers()[from..from + len.min(room)];
                    self.record.extend_from_slice(bytes);
                }
                Segment::Payload(slice) => {
                    self.record.resize(at + len.min(room), 0);
                    slice.copy_out(*done, &mut self.record[at..]);
                }
            }
            if len > room {
                *done += room;
                break;
            }
            (*segment, *done) = (*segment + 1, 0);
        }
        if self.record.is_empty() {
            return false;
        }
        let written = self.connection.writer().write_all(&self.record);
        written.expect("what was encrypted before has been taken");
        true
    }

    /// Takes back a list from [`seal`](Self::seal) after it was sent. Returns the plain list once
    /// all of it was sent.
    pub(super) fn sent(&mut self, mut sealed: Box<SendList>) -> Option<Box<SendList>> {
        sealed.clear();
        self.sealed = Some(sealed);
        let (list, segment, _) = self.plain.as_ref()?;
        let all = *segment == list.segments().len();
        if all { self.take_back() } else { None }
    }

    /// Stops sending. Returns the list that was not completely sent.
    pub(super) fn abandon(&mut self) -> Option<Box<SendList>> {
        self.abandoned = true;
        self.take_back()
    }

    fn take_back(&mut self) -> Option<Box<SendList>> {
        self.plain.take().map(|(list, ..)| list)
    }

    /// Returns true while the driver holds a list.
    pub(super) const fn is_sending(&self) -> bool {
        self.sealed.is_none()
    }

    /// Returns true while something is being sent or remains to be sent.
    pub(super) fn is_busy(&self) -> bool {
        let has_to_send = self.plain.is_some() || self.connection.wants_write();
        self.is_sending() || (has_to_send && !self.abandoned)
    }
}

fn segment_bytes(segment: &Segment) -> usize {
    match segment {
        Segment::Header { len, .. } => *len,
        Segment::Payload(slice) => slice.len(),
    }
}

/// Writes into the remaining room of a list.
struct Room<'a>(&'a mut SendList);

impl io::Write for Room<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let most = NBD_SEALED_BYTES + OVERHEAD_BYTES - self.0.bytes();
        let len = bytes.len().min(most);
        if len == 0 {
            return Err(ErrorKind::WriteZero.into());
        }
        self.0.push_header(&bytes[..len]);
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
