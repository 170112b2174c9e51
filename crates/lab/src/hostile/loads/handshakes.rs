//! TLS handshakes, one after the other.

use super::{PAUSE, Worker};
use anyhow::{Context as _, Result, bail, ensure};
use reactor::tls::{Handshake, Peer, Shaken, TlsError};
use secure::TlsKey;
use secure::psk::offers;
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::task::Poll;
use std::time::{Duration, Instant};
use testing::dial;

/// A key that everyone knows, of the started target and of all hosts.
pub(in crate::hostile) const KEY: &str =
    "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:";

/// Handshakes per second.
const RATE: usize = 1000;

pub(super) fn run(worker: &Worker<'_>) -> Result<()> {
    let key = TlsKey::parse(KEY).context("our own key")?;
    let psk = offers(&key, &worker.host(0), &worker.peer.nqn).remove(0);
    let every = Duration::from_secs(1) / u32::try_from(worker.size.of(RATE))?;
    let mut next = Instant::now();
    let mut begun = false;
    while worker.goes_on() {
        let mut peer = Wire(dial(worker.peer.address)?);
        let mut handshake = Handshake::connect(&psk)?;
        match handshake.advance(&mut peer) {
            Poll::Ready(Ok(Shaken::Secured(_))) => worker.count(1),
            // The target makes room for others.
            Poll::Ready(Err(TlsError::Closed)) => ensure!(begun, "the target refuses TLS"),
            Poll::Ready(Err(error)) => bail!(error),
            state => bail!("a handshake that waits for its peer is {state:?}"),
        }
        if !std::mem::replace(&mut begun, true) {
            worker.has_begun();
        }
        next += every;
        match next.checked_duration_since(Instant::now()) {
            Some(early) => std::thread::sleep(early.min(PAUSE)),
            // It does not make up for what was too slow.
            None => next = Instant::now(),
        }
    }
    Ok(())
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
