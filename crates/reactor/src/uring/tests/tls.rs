//! TLS between the driver's sockets, with another driver, and with peers that break its rules.

use super::*;
use crate::op::Stream;
use crate::tls::pool::{ConnectTls, Redial};
use crate::tls::{Client, Keys, Proven, Refused, Server, Session, Side, TlsError};
use secure::psk::offers;
use secure::record::{
    Alert, DATA_MAX, HEADER_BYTES, OVERHEAD_BYTES, Opened, Opener, Sealer, Suite,
};
use secure::record::{MESSAGE_MAX, RECORDS_MAX, record_bytes};
use secure::{Hash, HostKeys, KeyRing, Psk, TlsKey};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:0d5b3a1e-0000-4000-8000-000000000001";
const SUBSYSTEM: &str = "nqn.2026-11.io.switchyard:tls";

fn a_key(hash: Option<Hash>, byte: u8) -> TlsKey {
    let len = if hash == Some(Hash::Sha384) { 48 } else { 32 };
    TlsKey::new(hash, &vec![byte; len]).expect("a key of its hash's length")
}

fn psks(key: &TlsKey) -> Vec<Psk> {
    offers(key, HOST, SUBSYSTEM)
}

fn server(required: bool, host: &str, key: &TlsKey) -> Arc<Server> {
    let mut ring = KeyRing::default();
    let keys = HostKeys {
        tls: vec![key.clone()],
        ..HostKeys::default()
    };
    ring.hosts.insert(host.to_owned(), keys);
    Server::new(required, Nanos::from_secs(5), Keys::new(ring))
}

fn with(tls: Option<Side>) -> SocketOptions {
    SocketOptions {
        tls,
        ..SocketOptions::default()
    }
}

type Ends = (
    Result<SocketId, io::Error>,
    Option<Result<Stream, io::Error>>,
);

/// Connects to a listener with other options. Returns what the host got, and what the target did.
fn connect(
    driver: &mut UringDriver,
    address: &str,
    host: Option<Side>,
    target: Option<Side>,
) -> Ends {
    let address = address.parse().expect("an address");
    let (listener, address) = driver.listen(address, &with(target)).expect("a free port");
    driver.submit(key(2), Op::Accept { listener });
    let (options, timeout) = (with(host), Nanos::from_secs(5));
    let op = Op::Connect {
        address,
        options,
        timeout,
    };
    driver.submit(key(1), op);
    let (mut near, mut far) = (None, None);
    let mut completions = Vec::new();
    while near.is_none() || (far.is_none() && near.as_ref().is_some_and(Result::is_ok)) {
        let deadline = driver.now() + Nanos::from_secs(10);
        let wait = Wait::Until(deadline);
        driver.reap(wait, &mut completions).expect("the ring works");
        assert!(driver.now() < deadline, "nothing happened");
        for completion in completions.drain(..) {
            match completion.outcome {
                Outcome::Connected(result) => near = Some(result),
                Outcome::Accepted(result) => far = Some(result.map(|(stream, _)| stream)),
                other => panic!("unexpected {other:?}"),
            }
        }
    }
    driver.close_listener(listener);
    // Until the end of the accept: what the target says to the last attempt may come before.
    let mut ended = false;
    while !ended {
        for completion in gather(driver, 1) {
            match completion.outcome {
                Outcome::Accepted(Err(error)) if error.raw_os_error() == Some(libc::ECANCELED) => {
                    ended = true;
                }
                Outcome::Accepted(result) => far = Some(result.map(|(stream, _)| stream)),
                other => panic!("unexpected {other:?}"),
            }
        }
    }
    (near.expect("it has ended"), far)
}

/// Makes the handshake of both ends of a pair of Unix sockets, which were never accepted or connected.
fn connect_unix(driver: &mut UringDriver, host: Option<Side>, target: &Arc<Server>) -> Ends {
    let [near, far] = unix_pair();
    let local = "127.0.0.1:0".parse().expect("an address");
    let (listener, peer) = driver.listen(local, &with(None)).expect("a free port");
    let slot = driver.listeners.key_at(listener.0).expect("it listens");
    driver.shake_accepted((key(2), slot), (far, peer), target);
    let deadline = driver.now() + Nanos::from_secs(5);
    let redial: Redial = |_, _| Err(io::ErrorKind::Unsupported.into());
    let tls = ConnectTls::new(peer, &with(host), deadline, redial).expect("it has TLS");
    driver.connecting += 1;
    driver.shake_hands(key(1), near, tls);
    let (mut near, mut far) = (None, None);
    for completion in gather(driver, 2) {
        match completion.outcome {
            Outcome::Connected(result) => near = Some(result),
            Outcome::Accepted(result) => far = Some(result.map(|(stream, _)| stream)),
            other => panic!("unexpected {other:?}"),
        }
    }
    driver.close_listener(listener);
    (near.expect("it has ended"), far)
}

/// Makes a connection with TLS to this address, or over a pair of Unix sockets.
fn secured(driver: &mut UringDriver, address: Option<&str>, tls: &TlsKey) -> (SocketId, SocketId) {
    let client = Client::new(psks(tls)).map(Side::Client);
    let target = server(true, HOST, tls);
    let (near, far) = match address {
        Some(address) => connect(driver, address, client, Some(Side::Server(target))),
        None => connect_unix(driver, client, &target),
    };
    let stream = far.expect("accepted").expect("the same key");
    let proven = stream.proven().expect("it has TLS");
    assert_eq!(
        (&*proven.host_nqn, &*proven.subsystem_nqn),
        (HOST, SUBSYSTEM)
    );
    let suite = match tls.suite_hash() {
        Hash::Sha384 => Suite::Aes256GcmSha384,
        _ => Suite::Aes128GcmSha256,
    };
    assert_eq!(proven.suite, suite);
    (near.expect("the same key"), driver.adopt(stream))
}

/// Sends a payload between headers, and receives it in pieces with and without a destination.
fn exchange(driver: &mut UringDriver, from: SocketId, to: SocketId, bytes: usize) {
    let mut source = driver.buffers().take(1 << 20).expect("a buffer");
    for (at, byte) in source.iter_mut().enumerate() {
        *byte = u8::try_from(at % 251).expect("small");
    }
    let expected = source[..bytes].to_vec();
    let mut list = list(b"header");
    list.push_payload(IoSlice::from_buffer(source, bytes));
    list.push_header(b"trailer");
    driver.submit(key(3), Op::Send { socket: from, list });
    receive(driver, 4, to);
    let (mut stream, mut sent, mut completions) = (Vec::new(), false, Vec::new());
    while stream.len() < bytes + 13 || !sent {
        let deadline = driver.now() + Nanos::from_secs(5);
        let wait = Wait::Until(deadline);
        driver.reap(wait, &mut completions).expect("the ring works");
        assert!(driver.now() < deadline, "{} arrived", stream.len());
        for completion in completions.drain(..) {
            match completion.outcome {
                Outcome::Sent { result, .. } => {
                    result.expect("sent");
                    sent = true;
                }
                Outcome::Received(got) => {
                    got.result.as_ref().expect("received");
                    match (&got.into, &got.rest) {
                        (None, Some((buffer, len))) => stream.extend_from_slice(&buffer[..*len]),
                        _ => collect(&mut stream, got),
                    }
                    if stream.len() == bytes + 13 {
                        continue;
                    }
                    let into = driver.buffers().take(1 << 20).expect("a buffer");
                    let into = Some(IoSlice::from_buffer(into, 100_000));
                    driver.submit(key(4), Op::Receive { socket: to, into });
                }
                other => panic!("unexpected {other:?}"),
            }
        }
    }
    assert_eq!(&stream[..6], b"header");
    assert!(stream[6..6 + bytes] == expected);
    assert_eq!(&stream[6 + bytes..], b"trailer");
}

#[test]
fn bytes_of_every_length_pass_both_ways_with_both_hashes_over_ipv4_ipv6_and_unix_sockets() {
    let mut driver = small();
    for (address, hash) in [
        (Some("127.0.0.1:0"), Some(Hash::Sha256)),
        (Some("[::1]:0"), Some(Hash::Sha384)),
        (Some("127.0.0.1:0"), None),
        (None, Some(Hash::Sha256)),
    ] {
        let (near, far) = secured(&mut driver, address, &a_key(hash, 7));
        for bytes in [1, 4096, DATA_MAX - 13, DATA_MAX, 128 << 10, 1 << 20] {
            exchange(&mut driver, near, far, bytes);
            exchange(&mut driver, far, near, bytes);
        }
        // The peer is told, and nothing is left.
        receive(&mut driver, 5, far);
        driver.submit(key(6), Op::Close { socket: near });
        let mut ended = false;
        for completion in gather(&mut driver, 2) {
            if let Outcome::Received(got) = completion.outcome {
                let error = got.result.expect_err("it has ended");
                assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
                ended = true;
            }
        }
        assert!(ended);
        driver.submit(key(6), Op::Close { socket: far });
        assert!(matches!(wait_for(&mut driver, key(6)), Outcome::Closed));
        assert!(!driver.has_operation_of(OWNER) && driver.connecting == 0);
    }
}

#[test]
fn a_host_with_the_old_derivation_is_served_and_tries_it_itself() {
    let mut driver = small();
    // Without a hash, both derivations have the same identities.
    let key = a_key(None, 3);
    let target = || Some(Side::Server(server(true, HOST, &key)));
    for psk in psks(&key) {
        let client = Client::new(vec![psk]).map(Side::Client);
        let (near, _) = connect(&mut driver, "127.0.0.1:0", client, target());
        near.expect("every derivation is known");
    }
    // A peer that has another key for the first ones, as one with another derivation has.
    let mut tried = psks(&a_key(None, 4));
    tried.extend(psks(&key));
    let client = Client::new(tried).expect("keys");
    for _ in 0..2 {
        let side = Some(Side::Client(Arc::clone(&client)));
        let (near, _) = connect(&mut driver, "127.0.0.1:0", side, target());
        near.expect("the fifth key");
        assert_eq!(client.attempt(0).map(|(index, _)| index), Some(4));
    }
}

fn tls_error(error: &io::Error) -> &TlsError {
    let inner = error.get_ref().expect("an error of TLS");
    match inner.downcast_ref::<Refused>() {
        Some(refused) => &refused.error,
        None => inner.downcast_ref().expect("an error of TLS"),
    }
}

#[test]
fn each_mismatch_is_named_at_both_ends() {
    let mut driver = small();
    let key = a_key(Some(Hash::Sha256), 7);
    let client = |key: &TlsKey, version: u8| {
        let mut psks = psks(key);
        psks.retain(|psk| psk.version == version);
        psks.truncate(1);
        Client::new(psks).map(Side::Client)
    };
    let target = |host: &str| Some(Side::Server(server(true, host, &key)));
    let other = a_key(Some(Hash::Sha256), 8);
    let cases = [
        // Host's key and version, the host in the target's keys, and what both say.
        (
            &key,
            1,
            "nqn.2026-11.io.switchyard:other",
            "does not know the identity NVMe1R01",
            "there is no TLS key for this host; known are the hosts nqn.2026-11.io.switchyard:other",
        ),
        (
            &other,
            1,
            HOST,
            "does not know the identity NVMe1R01",
            "wrong key for identity NVMe1R01",
        ),
        (
            &other,
            0,
            HOST,
            "has another key for the identity NVMe0R01",
            "wrong key for identity NVMe0R01",
        ),
        (
            &a_key(Some(Hash::Sha384), 7),
            0,
            HOST,
            "does not know the identity NVMe0R02",
            "are for SHA-256",
        ),
    ];
    for (tls, version, host, near_says, far_says) in cases {
        let ends = connect(
            &mut driver,
            "127.0.0.1:0",
            client(tls, version),
            target(host),
        );
        let (near, far) = (ends.0.expect_err("refused"), ends.1.expect("told"));
        let far = far.expect_err("refused");
        assert!(near.to_string().contains(near_says), "{near}");
        assert!(far.to_string().contains(far_says), "{far}");
        // What is derived from the key is in no message.
        let digest = psks(tls)[0].identity.clone();
        let digest = digest
            .rsplit(' ')
            .next()
            .expect("version 1 has one")
            .to_owned();
        assert!(!near.to_string().contains(&digest) && !far.to_string().contains(&digest));
    }
}

#[test]
fn a_peer_without_tls_is_named() {
    let mut driver = small();
    let psk = psks(&a_key(Some(Hash::Sha256), 7)).swap_remove(0);
    let with_tls = Client::new(vec![psk]).map(Side::Client);
    for (answer, expected) in [
        (&b"\x03\x00\x18\x00"[..], TlsError::NotTls),
        (b"", TlsError::Closed),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let options = with(with_tls.clone());
        let timeout = Nanos::from_secs(5);
        driver.submit(
            key(1),
            Op::Connect {
                address,
                options,
                timeout,
            },
        );
        let answers = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            stream.read_exact(&mut [0; 5]).expect("a ClientHello");
            stream.write_all(answer).expect("some bytes");
        });
        let Outcome::Connected(Err(error)) = wait_for(&mut driver, key(1)) else {
            panic!("there is no TLS");
        };
        assert_eq!(*tls_error(&error), expected);
        answers.join().expect("it has answered");
    }
}

/// Accepts one raw connection with TLS, to which `bytes` are sent.
fn accept_raw(
    driver: &mut UringDriver,
    required: bool,
    bytes: &[u8],
) -> (TcpStream, io::Result<Stream>) {
    let key = a_key(Some(Hash::Sha256), 7);
    let side = Some(Side::Server(server(required, HOST, &key)));
    let local = "127.0.0.1:0".parse().expect("an address");
    let (listener, address) = driver.listen(local, &with(side)).expect("a free port");
    driver.submit(super::key(2), Op::Accept { listener });
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.write_all(bytes).expect("some bytes");
    let Outcome::Accepted(result) = wait_for(driver, super::key(2)) else {
        panic!("it was to accept");
    };
    driver.close_listener(listener);
    wait_for(driver, super::key(2));
    (stream, result.map(|(stream, _)| stream))
}

#[test]
fn clear_text_is_passed_on_where_it_is_allowed_and_refused_elsewhere() {
    let mut driver = small();
    let (_stream, accepted) = accept_raw(&mut driver, false, b"\0\0\x80\0clear");
    let socket = driver.adopt(accepted.expect("allowed"));
    receive(&mut driver, 4, socket);
    let (buffer, len) = received(wait_for(&mut driver, key(4))).rest.expect("data");
    assert_eq!(&buffer[..len], b"\0\0\x80\0clear");
    let (mut stream, accepted) = accept_raw(&mut driver, true, b"\0\0\x80\0clear");
    assert_eq!(
        *tls_error(&accepted.expect_err("required")),
        TlsError::ClearText
    );
    let mut left = Vec::new();
    // The unread bytes turn the end into a reset.
    let _ = stream.read_to_end(&mut left);
    assert_eq!(left, []);
    // No handshake, but it begins like one.
    let (mut stream, accepted) = accept_raw(&mut driver, true, b"\x16\x03\x01\x00\x04\x02\0\0\0");
    assert!(matches!(
        tls_error(&accepted.expect_err("malformed")),
        TlsError::Hello(_)
    ));
    let mut alert = [0; 7];
    stream.read_exact(&mut alert).expect("an alert");
    assert_eq!(alert, Alert::DECODE_ERROR.in_clear());
}

fn unix_pair() -> [OwnedFd; 2] {
    let (near, far) = UnixStream::pair().expect("two descriptors");
    [near.into(), far.into()]
}

fn tcp_pair() -> [OwnedFd; 2] {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let peer = TcpStream::connect(address).expect("it listens");
    peer.set_nodelay(true).expect("set");
    let (stream, _) = listener.accept().expect("a connection");
    [stream.into(), peer.into()]
}

/// A socket with TLS whose peer is the test, with the keys for its side.
fn raw(driver: &mut UringDriver) -> (SocketId, File, Sealer, Opener) {
    raw_after(driver, tcp_pair(), 0)
}

/// The same with these sockets, after `sent` records.
fn raw_after(
    driver: &mut UringDriver,
    [stream, peer]: [OwnedFd; 2],
    sent: u64,
) -> (SocketId, File, Sealer, Opener) {
    let suite = Suite::Aes128GcmSha256;
    let (ours, theirs) = ([1; 32], [2; 32]);
    let proven = Proven {
        host_nqn: HOST.to_owned(),
        subsystem_nqn: SUBSYSTEM.to_owned(),
        suite,
    };
    let session = Session::new(
        Sealer::new(suite, &ours, sent),
        Opener::new(suite, &theirs, 0),
        proven,
    );
    let socket = driver.adopt(Stream::Socket(stream, Some(Box::new(session))));
    let keys = (
        Sealer::new(suite, &theirs, 0),
        Opener::new(suite, &ours, sent),
    );
    (socket, peer.into(), keys.0, keys.1)
}

fn sealed(sealer: &mut Sealer, data: &[u8]) -> Vec<u8> {
    let mut record = vec![0; OVERHEAD_BYTES + data.len()];
    record[HEADER_BYTES..][..data.len()].copy_from_slice(data);
    sealer.seal(&mut record);
    record
}

/// Reads a record as the peer.
fn opened(peer: &mut File, opener: &mut Opener) -> (Opened, Vec<u8>) {
    let mut record = vec![0; HEADER_BYTES];
    peer.read_exact(&mut record).expect("a header");
    let len = record_bytes(&record).expect("a header").expect("all of it");
    record.resize(len, 0);
    peer.read_exact(&mut record[HEADER_BYTES..])
        .expect("a record");
    (opener.open(&mut record).expect("its key"), record)
}

#[test]
fn a_record_that_arrives_byte_by_byte_is_received_once_it_is_whole() {
    let mut driver = small();
    let (socket, mut peer, mut sealer, _) = raw(&mut driver);
    let mut bytes = sealed(&mut sealer, b"");
    bytes.extend(sealed(&mut sealer, b"slow"));
    receive(&mut driver, 4, socket);
    let mut completions = Vec::new();
    for byte in &bytes {
        assert!(completions.is_empty(), "a part of a record has no data");
        peer.write_all(&[*byte]).expect("a byte");
        let wait = Wait::Until(driver.now() + Nanos::from_micros(300));
        driver.reap(wait, &mut completions).expect("the ring works");
    }
    if completions.is_empty() {
        completions = gather(&mut driver, 1);
    }
    let got = received(completions.pop().expect("it is whole").outcome);
    let (buffer, len) = got.rest.expect("data");
    assert_eq!(&buffer[..len], b"slow");
}

#[test]
fn a_released_connection_takes_its_keys_and_half_a_record_along() {
    let (mut driver, mut other) = (small(), small());
    let (socket, mut peer, mut sealer, mut opener) = raw(&mut driver);
    let record = sealed(&mut sealer, b"moved");
    peer.write_all(&record[..9]).expect("a part");
    receive(&mut driver, 4, socket);
    let mut none = Vec::new();
    let wait = Wait::Until(driver.now() + Nanos::from_millis(2));
    driver.reap(wait, &mut none).expect("the ring works");
    driver.submit(key(5), Op::Release { socket });
    let mut stream = None;
    for completion in gather(&mut driver, 2) {
        if let Outcome::Released(released) = completion.outcome {
            stream = Some(released);
        }
    }
    peer.write_all(&record[9..]).expect("the rest");
    let socket = other.adopt(stream.expect("released"));
    receive(&mut other, 4, socket);
    let (buffer, len) = received(wait_for(&mut other, key(4))).rest.expect("data");
    assert_eq!(&buffer[..len], b"moved");
    send(&mut other, socket, b"here");
    let (content, record) = opened(&mut peer, &mut opener);
    assert_eq!(content, Opened::Data(5..9));
    assert_eq!(&record[5..9], b"here");
}

#[test]
fn new_keys_of_the_peer_are_taken_and_answered_before_the_next_data() {
    for pair in [tcp_pair(), unix_pair()] {
        let mut driver = small();
        let (socket, mut peer, mut sealer, mut opener) = raw_after(&mut driver, pair, 0);
        let mut update = [0; MESSAGE_MAX];
        let len = sealer.update(&mut update);
        peer.write_all(&update[..len]).expect("an update");
        peer.write_all(&sealed(&mut sealer, b"new"))
            .expect("a record");
        receive(&mut driver, 4, socket);
        let (buffer, len) = received(wait_for(&mut driver, key(4))).rest.expect("data");
        assert_eq!(&buffer[..len], b"new");
        send(&mut driver, socket, b"old");
        // It was not asked for new keys itself.
        assert_eq!(opened(&mut peer, &mut opener).0, Opened::Data(5..8));
    }
}

#[test]
fn what_breaks_the_rules_ends_the_connection_with_an_alert_and_nothing_in_clear() {
    for (bytes, alert) in [
        (
            vec![23, 3, 3, 0, 17].into_iter().chain([7; 17]).collect(),
            Alert::BAD_RECORD_MAC,
        ),
        (vec![23, 3, 3, 0xff, 0xff], Alert::RECORD_OVERFLOW),
        (vec![22, 3, 3, 0, 17], Alert::UNEXPECTED_MESSAGE),
        (b"\0\0\x80\0\0".to_vec(), Alert::UNEXPECTED_MESSAGE),
    ] {
        let bytes: Vec<u8> = bytes;
        let mut driver = small();
        let (socket, mut peer, _, mut opener) = raw(&mut driver);
        peer.write_all(&bytes).expect("some bytes");
        receive(&mut driver, 4, socket);
        let got = received(wait_for(&mut driver, key(4)));
        let error = got.result.expect_err("it breaks the rules");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
        let list = list(b"never in clear");
        driver.submit(key(3), Op::Send { socket, list });
        let Outcome::Sent { result, .. } = wait_for(&mut driver, key(3)) else {
            panic!("a send completes");
        };
        assert!(result.is_err());
        driver.submit(key(5), Op::Close { socket });
        wait_for(&mut driver, key(5));
        let mut record = Vec::new();
        peer.read_to_end(&mut record).expect("the end");
        let told = opener
            .open(&mut record)
            .expect_err("an alert, and nothing else");
        assert_eq!(told, secure::record::RecordError::Alert(alert));
    }
}

#[test]
fn an_end_in_the_middle_of_a_record_is_an_end() {
    let mut driver = small();
    let (socket, mut peer, mut sealer, _) = raw(&mut driver);
    let record = sealed(&mut sealer, b"cut");
    peer.write_all(&record[..record.len() - 1]).expect("a part");
    drop(peer);
    receive(&mut driver, 4, socket);
    let got = received(wait_for(&mut driver, key(4)));
    let error = got.result.expect_err("it was cut");
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    assert!(got.rest.is_none());
}

#[test]
fn a_worn_key_is_reported_and_changed_if_the_peer_changes_keys_too() {
    for pair in [tcp_pair(), unix_pair()] {
        let mut driver = small();
        let (socket, mut peer, mut sealer, mut opener) =
            raw_after(&mut driver, pair, RECORDS_MAX - 1);
        send(&mut driver, socket, b"worn");
        assert_eq!(opened(&mut peer, &mut opener).0, Opened::Data(5..9));
        assert_eq!(driver.stats().worn_keys, 1);
        let mut update = [0; MESSAGE_MAX];
        let len = sealer.update(&mut update);
        peer.write_all(&update[..len]).expect("an update");
        peer.write_all(&sealed(&mut sealer, b"new"))
            .expect("a record");
        receive(&mut driver, 4, socket);
        assert!(received(wait_for(&mut driver, key(4))).rest.is_some());
        send(&mut driver, socket, b"new");
        assert_eq!(opened(&mut peer, &mut opener).0, Opened::Message);
        assert_eq!(opened(&mut peer, &mut opener).0, Opened::Data(5..8));
        assert_eq!(driver.stats().worn_keys, 1, "once");
    }
}
