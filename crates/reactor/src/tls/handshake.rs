//! A handshake, driven by the bytes of a peer: on the pool's thread, or in the simulator.

use super::error::TlsError;
use super::library::Library;
use super::peer::Peer;
use super::server::{Server, shown};
use super::session::{Proven, Session};
use base::mutation::{self, Mutation};
use secure::record::Alert;
use secure::{ClientHello, ClientHelloError, Psk};
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::task::Poll;

/// The result of a handshake.
#[derive(Debug)]
pub enum Shaken {
    /// The connection has TLS.
    Secured(Box<Session>),
    /// The host does not use TLS, and need not. None of its bytes was taken.
    Clear,
}

/// A handshake in progress.
#[derive(Debug)]
pub struct Handshake {
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// Receives the ClientHello.
    Hello {
        server: Arc<Server>,
        bytes: Vec<u8>,
    },
    /// Receives the first byte of a server.
    Answer {
        library: Library,
        identity: String,
    },
    /// The library continues.
    Library {
        library: Library,
        identity: String,
        /// Bytes received before, and how many of them the library has taken.
        before: (Vec<u8>, usize),
    },
    Over,
}

/// First byte of a record with a handshake message or an alert.
const RECORD: [u8; 2] = [22, 21];

impl Handshake {
    /// Begins the target's side of a connection.
    #[must_use]
    pub const fn accept(server: Arc<Server>) -> Self {
        let bytes = Vec::new();
        Self {
            stage: Stage::Hello { server, bytes },
        }
    }

    /// Begins the host's side of a connection with one key.
    ///
    /// # Errors The library's.
    pub fn connect(psk: &Psk) -> Result<Self, TlsError> {
        let (library, identity) = (Library::new(false, psk)?, psk.identity.clone());
        Ok(Self {
            stage: Stage::Answer { library, identity },
        })
    }

    /// Continues with the bytes that are there. After the end it must not be called again. On a
    /// failure, an alert was sent if the specification names one.
    ///
    /// # Errors The reason of the failure.
    pub fn advance(&mut self, peer: &mut dyn Peer) -> Poll<Result<Shaken, TlsError>> {
        loop {
            match std::mem::replace(&mut self.stage, Stage::Over) {
                Stage::Hello { server, mut bytes } => match take_hello(&server, &mut bytes, peer) {
                    Ok(Some(Hello::Clear)) => return Poll::Ready(Ok(Shaken::Clear)),
                    Ok(Some(Hello::Psk(psk))) => {
                        self.stage = Stage::Library {
                            library: Library::new(true, &psk)?,
                            identity: psk.identity.clone(),
                            before: (bytes, 0),
                        };
                    }
                    Ok(None) => {
                        self.stage = Stage::Hello { server, bytes };
                        return Poll::Pending;
                    }
                    Err(error) => return Poll::Ready(Err(error)),
                },
                Stage::Answer {
                    mut library,
                    identity,
                } => {
                    // The ClientHello leaves; the library does not get the answer yet.
                    if let Poll::Ready(result) = library.negotiate(&mut Unheard(peer)) {
                        return Poll::Ready(finish(library, &identity, result));
                    }
                    match peer.peek() {
                        Ok(Some(first)) if RECORD.contains(&first) => {
                            let before = (Vec::new(), 0);
                            self.stage = Stage::Library {
                                library,
                                identity,
                                before,
                            };
                        }
                        Ok(Some(_)) => return Poll::Ready(Err(TlsError::NotTls)),
                        Ok(None) => return Poll::Ready(Err(TlsError::Closed)),
                        Err(error) if error.kind() == ErrorKind::WouldBlock => {
                            self.stage = Stage::Answer { library, identity };
                            return Poll::Pending;
                        }
                        Err(error) => return Poll::Ready(Err(io_error(&error))),
                    }
                }
                Stage::Library {
                    mut library,
                    identity,
                    mut before,
                } => {
                    let mut replay = Replay {
                        before: &mut before,
                        peer,
                    };
                    if let Poll::Ready(result) = library.negotiate(&mut replay) {
                        return Poll::Ready(finish(library, &identity, result));
                    }
                    self.stage = Stage::Library {
                        library,
                        identity,
                        before,
                    };
                    return Poll::Pending;
                }
                Stage::Over => unreachable!("a handshake ends once"),
            }
        }
    }
}

fn finish(
    library: Library,
    identity: &str,
    result: Result<(), TlsError>,
) -> Result<Shaken, TlsError> {
    result.map_err(|error| named(error, identity))?;
    let (sealer, opener, suite) = library.into_keys()?;
    let proven = Proven::new(identity, suite)
        .ok_or_else(|| TlsError::Library("the identity is none of NVMe/TCP".to_owned()))?;
    Ok(Shaken::Secured(Box::new(Session::new(
        sealer, opener, proven,
    ))))
}

/// Names the identity in the errors that a server's alerts mean.
fn named(error: TlsError, identity: &str) -> TlsError {
    let identity = || shown(identity.as_bytes());
    match error {
        TlsError::Alert(alert) if alert == Alert::UNKNOWN_PSK_IDENTITY => {
            let identity = identity();
            TlsError::UnknownIdentity { identity, alert }
        }
        TlsError::Alert(alert) if alert == Alert::DECRYPT_ERROR => {
            let identity = identity();
            TlsError::OtherKey { identity, alert }
        }
        other => other,
    }
}

fn io_error(error: &io::Error) -> TlsError {
    match error.kind() {
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => TlsError::Closed,
        _ => TlsError::Io(error.to_string()),
    }
}

/// What a host begins with.
enum Hello {
    /// No TLS.
    Clear,
    /// This key.
    Psk(Box<Psk>),
}

/// Receives the ClientHello, and finds the host's key. Returns `None` while bytes are missing.
fn take_hello(
    server: &Server,
    bytes: &mut Vec<u8>,
    peer: &mut dyn Peer,
) -> Result<Option<Hello>, TlsError> {
    if bytes.is_empty() {
        match peer.peek() {
            Ok(Some(first)) if first == RECORD[0] => {}
            Ok(Some(_)) if server.is_required() && !mutation::active(Mutation::TlsNotRequired) => {
                return Err(TlsError::ClearText);
            }
            Ok(Some(_)) => return Ok(Some(Hello::Clear)),
            Ok(None) => return Err(TlsError::Closed),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(io_error(&error)),
        }
    }
    loop {
        // The record's header first, then its content: what follows it is the library's. The length
        // in the first header is judged before it is believed.
        let missing = missing_bytes(bytes);
        if missing == 0 || bytes.len() == HEADER {
            match ClientHello::parse(bytes) {
                Ok(hello) => {
                    let chosen = server.choose(&hello);
                    let chosen = chosen.map_err(|(error, alert)| refuse(peer, alert, error))?;
                    return Ok(Some(Hello::Psk(Box::new(chosen))));
                }
                Err(ClientHelloError::Incomplete) => {}
                Err(error) => {
                    let error = TlsError::Hello(error.to_string());
                    return Err(refuse(peer, Alert::DECODE_ERROR, error));
                }
            }
        }
        let start = bytes.len();
        let wanted = if missing == 0 { HEADER } else { missing };
        bytes.resize(start + wanted, 0);
        let received = peer.receive(&mut bytes[start..]);
        bytes.truncate(start + received.as_ref().ok().copied().unwrap_or(0));
        match received {
            Ok(0) => return Err(TlsError::Closed),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(io_error(&error)),
        }
    }
}

/// Bytes of a record's header.
const HEADER: usize = secure::record::HEADER_BYTES;

/// Returns how many bytes are missing to the end of the header or record that `bytes` end in; 0 at
/// the end of a record.
fn missing_bytes(bytes: &[u8]) -> usize {
    let mut rest = bytes;
    loop {
        if rest.is_empty() {
            return 0;
        }
        let Some(&[.., high, low]) = rest.first_chunk::<HEADER>() else {
            return HEADER - rest.len();
        };
        let len = HEADER + (usize::from(high) << 8 | usize::from(low));
        match rest.get(len..) {
            Some(next) => rest = next,
            None => return len - rest.len(),
        }
    }
}

/// Sends an alert in clear, as far as the peer takes it, and returns the error.
fn refuse(peer: &mut dyn Peer, alert: Alert, error: TlsError) -> TlsError {
    // A peer that is gone needs none.
    let _ = peer.send(&alert.in_clear());
    error
}

/// A peer whose first bytes were received before.
struct Replay<'a> {
    before: &'a mut (Vec<u8>, usize),
    peer: &'a mut dyn Peer,
}

impl Peer for Replay<'_> {
    fn receive(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let (bytes, taken) = &mut *self.before;
        let left = &bytes[*taken..];
        if left.is_empty() {
            return self.peer.receive(into);
        }
        let len = left.len().min(into.len());
        into[..len].copy_from_slice(&left[..len]);
        *taken += len;
        Ok(len)
    }

    fn peek(&mut self) -> io::Result<Option<u8>> {
        self.peer.peek()
    }

    fn send(&mut self, from: &[u8]) -> io::Result<usize> {
        self.peer.send(from)
    }
}

/// A peer that is not listened to.
struct Unheard<'a>(&'a mut dyn Peer);

impl Peer for Unheard<'_> {
    fn receive(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(ErrorKind::WouldBlock.into())
    }

    fn peek(&mut self) -> io::Result<Option<u8>> {
        self.0.peek()
    }

    fn send(&mut self, from: &[u8]) -> io::Result<usize> {
        self.0.send(from)
    }
}
