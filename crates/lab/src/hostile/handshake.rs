//! A TLS handshake of a host that then has nothing to say.

use anyhow::{Context as _, Result, bail};
use reactor::tls::{Handshake, Peer, Shaken, TlsError};
use secure::psk::offers;
use secure::{Psk, TlsKey};
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::task::Poll;

/// A key that everyone knows, of the started target and of all hosts.
pub(super) const KEY: &str = "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:";

/// Returns the pre-shared key of a host.
///
/// # Errors
/// The names are too long.
pub(super) fn psk(host: &str, subsystem: &str) -> Result<Psk> {
    let key = TlsKey::parse(KEY).context("our own key")?;
    let mut psks = offers(&key, host, subsystem).into_iter();
    psks.next().context("the names are too long for a key")
}

/// Shakes hands over a new connection. Returns false if the target has closed it, to make room for
/// others.
///
/// # Errors
/// Why the target refuses.
pub(super) fn shake(stream: TcpStream, psk: &Psk) -> Result<bool> {
    match Handshake::connect(psk)?.advance(&mut Wire(stream)) {
        Poll::Ready(Ok(Shaken::Secured(_))) => Ok(true),
        Poll::Ready(Err(TlsError::Closed)) => Ok(false),
        Poll::Ready(Err(error)) => bail!(error),
        state => bail!("a handshake that waits for its peer is {state:?}"),
    }
}

/// A connection whose calls block, so that a handshake ends in one call.
struct Wire(TcpStream);

impl Peer for Wire {
    fn receive(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }

    fn peek(&mut self) -> io::Result<Option<u8>> {
        let mut first = [0];
        Ok((self.0.peek(&mut first)? > 0).then_some(first[0]))
    }

    fn send(&mut self, from: &[u8]) -> io::Result<usize> {
        self.0.write(from)
    }
}
