//! TLS: a host's handshake with a target, and the records after it, with bytes changed on the way.

use base::Nanos;
use reactor::tls::{Handshake, Keys, Peer, Server, TlsError};
use secure::psk::offers;
use secure::record::{HEADER_BYTES, OVERHEAD_BYTES, Opened, Opener, Sealer, Suite, record_bytes};
use secure::{Hash, HostKeys, KeyRing, TlsKey};
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::sync::OnceLock;
use std::task::Poll;

const HOST: &str = "nqn.2026-11.io.example:host";
const SUBSYSTEM: &str = "nqn.2026-11.io.switchyard:fuzz";

/// Bytes that a handshake may send: its own messages, none of which the peer makes longer.
const SENT_MAX: usize = 4096;

/// A peer that has said everything, and is read from in pieces.
struct Said {
    bytes: VecDeque<u8>,
    piece: usize,
    sent: usize,
}

impl Peer for Said {
    fn receive(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let len = into.len().min(self.piece).min(self.bytes.len());
        for (to, byte) in into.iter_mut().zip(self.bytes.drain(..len)) {
            *to = byte;
        }
        Ok(len)
    }

    fn peek(&mut self) -> io::Result<Option<u8>> {
        Ok(self.bytes.front().copied())
    }

    fn send(&mut self, from: &[u8]) -> io::Result<usize> {
        self.sent += from.len();
        assert!(self.sent <= SENT_MAX, "it answers without bound");
        Ok(from.len())
    }
}

/// The first message of a host that is served.
fn hello() -> &'static [u8] {
    static HELLO: OnceLock<Vec<u8>> = OnceLock::new();
    struct Listens(Vec<u8>);
    impl Peer for Listens {
        fn receive(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(ErrorKind::WouldBlock.into())
        }
        fn peek(&mut self) -> io::Result<Option<u8>> {
            Err(ErrorKind::WouldBlock.into())
        }
        fn send(&mut self, from: &[u8]) -> io::Result<usize> {
            self.0.extend_from_slice(from);
            Ok(from.len())
        }
    }
    HELLO.get_or_init(|| {
        let psk = offers(&key(), HOST, SUBSYSTEM).swap_remove(0);
        let mut host = Handshake::connect(&psk).expect("a key");
        let mut listens = Listens(Vec::new());
        assert!(host.advance(&mut listens).is_pending());
        listens.0
    })
}

fn key() -> TlsKey {
    TlsKey::new(Some(Hash::Sha256), &[7; 32]).expect("32 bytes")
}

/// Runs handshakes and records on any bytes. The first one chooses.
///
/// # Panics
/// A stranger is served, a changed record is accepted, or an answer has no bound.
pub fn tls(input: &[u8]) {
    let Some((&choice, rest)) = input.split_first() else {
        return;
    };
    match choice % 3 {
        0 => handshake(rest.to_vec(), choice),
        1 => {
            // A true ClientHello, of which some bytes are changed, and what follows it.
            let mut bytes = hello().to_vec();
            for change in rest.chunks_exact(3) {
                let at = usize::from(change[0]) << 8 | usize::from(change[1]);
                let at = at % bytes.len();
                bytes[at] ^= change[2];
            }
            handshake(bytes, choice);
        }
        _ => records(rest),
    }
}

fn handshake(bytes: Vec<u8>, choice: u8) {
    let mut ring = KeyRing::default();
    let keys = HostKeys {
        tls: vec![key()],
        ..HostKeys::default()
    };
    ring.hosts.insert(HOST.to_owned(), keys);
    let is_clear = bytes.first().is_some_and(|&first| first != 22);
    let mut peer = Said {
        bytes: bytes.into(),
        piece: usize::from(choice / 3) + 1,
        sent: 0,
    };
    let server = Server::new(true, Nanos::from_secs(1), Keys::new(ring));
    match Handshake::accept(server).advance(&mut peer) {
        Poll::Pending => panic!("the peer has closed the connection"),
        Poll::Ready(Ok(_)) => panic!("nobody without the key is served"),
        Poll::Ready(Err(error)) => assert_eq!(error == TlsError::ClearText, is_clear, "{error}"),
    }
}

/// Three records of known content, of which some bytes are changed.
fn records(changes: &[u8]) {
    let suite = Suite::Aes128GcmSha256;
    let (mut sealer, mut opener) = (
        Sealer::new(suite, &[1; 32], 0),
        Opener::new(suite, &[1; 32], 0),
    );
    let mut stream = Vec::new();
    let mut ends = Vec::new();
    for data in [&b"one"[..], &[0; 40], b"three"] {
        let mut record = vec![0; OVERHEAD_BYTES + data.len()];
        record[HEADER_BYTES..][..data.len()].copy_from_slice(data);
        sealer.seal(&mut record);
        stream.extend(record);
        ends.push(stream.len());
    }
    let original = stream.clone();
    for change in changes.chunks_exact(2) {
        let at = usize::from(change[0]) % stream.len();
        stream[at] ^= change[1];
    }
    let changed = stream.iter().zip(&original).position(|(a, b)| a != b);
    let mut start = 0;
    while let Ok(Some(len)) = record_bytes(&stream[start..]) {
        let Some(record) = stream.get_mut(start..start + len) else {
            break;
        };
        let opened = opener.open(record);
        let is_whole = changed.is_none_or(|at| at >= start + len) && ends.contains(&(start + len));
        assert_eq!(
            matches!(opened, Ok(Opened::Data(_))),
            is_whole,
            "{opened:?}"
        );
        if opened.is_err() {
            break;
        }
        start += len;
    }
}
