//! The NBD server with TLS, with hand-written clients that can also misbehave.

use base::Nanos;
use block::Device;
use block::device::Ram;
use block::layer::{Delay, DelayOptions};
use reactor::PollPolicy;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use switch::{Class, PerClass};
use switchyard_frontend::ClassRules;
use switchyard_frontend::nbd::{Address, NbdOptions, NbdServer, TlsOptions};
use testing::Authority;

const BYTES: u64 = 64 << 20;

const EXPORT_NAME: u32 = 1;
const ABORT: u32 = 2;
const LIST: u32 = 3;
const STARTTLS: u32 = 5;
const INFO: u32 = 6;
const GO: u32 = 7;
const STRUCTURED_REPLY: u32 = 8;
const SET_META_CONTEXT: u32 = 10;
const EXTENDED_HEADERS: u32 = 11;

const ACK: u32 = 1;
const ERR_UNSUP: u32 = 1 << 31 | 1;
const ERR_INVALID: u32 = 1 << 31 | 3;
const ERR_TLS_REQD: u32 = 1 << 31 | 5;

/// A server with certificates in its own directory.
struct Bed {
    authority: Authority,
    folder: PathBuf,
    server: Option<NbdServer>,
}

impl Bed {
    fn new(require: bool, verify_peer: bool) -> Self {
        let mut bed = Self::stopped();
        bed.start(require, verify_peer);
        bed
    }

    /// A bed whose server is not started.
    fn stopped() -> Self {
        let folder = block::temporary("tls");
        let authority = Authority::new(&folder);
        authority.issue("server", "server");
        Self {
            authority,
            folder,
            server: None,
        }
    }

    fn options(&self, require: bool, verify_peer: bool) -> NbdOptions {
        NbdOptions {
            address: Address::Unix(self.socket()),
            class: Class::Throughput,
            rules: ClassRules::default(),
            tls: Some(TlsOptions {
                certificates: self.authority.path("server"),
                require,
                verify_peer,
            }),
            read_only: false,
            cores: Vec::new(),
            poll: PollPolicy::Never,
        }
    }

    fn start(&mut self, require: bool, verify_peer: bool) {
        let options = self.options(require, verify_peer);
        self.server = Some(NbdServer::start(&devices(), &options).unwrap());
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("nbd.sock")
    }

    /// A client after the greeting.
    fn greet(&self) -> UnixStream {
        let mut stream = UnixStream::connect(self.socket()).unwrap();
        // Longer than any operation that works.
        let patience = Some(Duration::from_secs(60));
        stream.set_read_timeout(patience).unwrap();
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).unwrap();
        stream.write_all(&3_u32.to_be_bytes()).unwrap();
        stream
    }

    /// A client that may begin TLS.
    fn ask(&self) -> UnixStream {
        let mut stream = self.greet();
        assert_eq!(option(&mut stream, STARTTLS, &[]), [ACK]);
        stream
    }

    fn client(&self) -> StreamOwned<ClientConnection, UnixStream> {
        let connection = tls(&self.authority.path("server"), None);
        StreamOwned::new(connection, self.ask())
    }
}

fn devices() -> PerClass<Arc<dyn Device>> {
    let device: Arc<dyn Device> = Arc::new(Ram::new(BYTES, 4096).unwrap());
    PerClass::from_fn(|_| Arc::clone(&device))
}

/// A client that trusts the authority in `trusted`, and presents the certificate in `own`.
fn tls(trusted: &Path, own: Option<&Path>) -> ClientConnection {
    let mut authorities = RootCertStore::empty();
    let authority = CertificateDer::from_pem_file(trusted.join("ca-cert.pem"));
    authorities.add(authority.unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(authorities);
    let config = match own {
        None => config.with_no_client_auth(),
        Some(folder) => {
            let chain = CertificateDer::from_pem_file(folder.join("client-cert.pem"));
            let key = PrivateKeyDer::from_pem_file(folder.join("client-key.pem"));
            let with = config.with_client_auth_cert(vec![chain.unwrap()], key.unwrap());
            with.unwrap()
        }
    };
    let name = ServerName::try_from("localhost").unwrap();
    ClientConnection::new(Arc::new(config), name).unwrap()
}

fn option_bytes(number: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = b"IHAVEOPT".to_vec();
    bytes.extend(number.to_be_bytes());
    bytes.extend(u32::try_from(data.len()).unwrap().to_be_bytes());
    bytes.extend(data);
    bytes
}

/// Sends an option; returns the types of its replies.
fn option(stream: &mut (impl Read + Write), number: u32, data: &[u8]) -> Vec<u32> {
    stream.write_all(&option_bytes(number, data)).unwrap();
    let mut kinds = Vec::new();
    loop {
        let mut header = [0; 20];
        stream.read_exact(&mut header).unwrap();
        let word = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().unwrap());
        assert_eq!(word(8), number, "the option that was sent");
        let mut text = vec![0; word(16) as usize];
        stream.read_exact(&mut text).unwrap();
        kinds.push(word(12));
        if word(12) == ACK || word(12) >= 1 << 31 {
            return kinds;
        }
    }
}

fn request(command: u16, cookie: u64, offset: u64, length: usize) -> Vec<u8> {
    let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
    bytes.extend(0_u16.to_be_bytes());
    bytes.extend(command.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(u32::try_from(length).unwrap().to_be_bytes());
    bytes
}

/// Receives a simple reply without an error.
fn done(stream: &mut impl Read, cookie: u64) {
    let mut reply = [0; 16];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(reply[..4], 0x6744_6698_u32.to_be_bytes());
    assert_eq!(reply[4..8], [0; 4]);
    assert_eq!(reply[8..], cookie.to_be_bytes());
}

fn write(stream: &mut (impl Read + Write), offset: u64, data: &[u8]) {
    let header = request(1, 1, offset, data.len());
    stream.write_all(&[&header, data].concat()).unwrap();
    done(stream, 1);
}

fn read(stream: &mut (impl Read + Write), offset: u64, length: usize) -> Vec<u8> {
    stream.write_all(&request(0, 2, offset, length)).unwrap();
    done(stream, 2);
    let mut data = vec![0; length];
    stream.read_exact(&mut data).unwrap();
    data
}

fn pattern(seed: u8, bytes: usize) -> Vec<u8> {
    let byte = |at: usize| at.to_le_bytes()[0] ^ (at / 251).to_le_bytes()[0] ^ seed;
    (0..bytes).map(byte).collect()
}

/// Waits until the server closes; returns the bytes received before.
fn rest(stream: &mut impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    let ended = stream.read_to_end(&mut bytes);
    if let Err(error) = ended {
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
    }
    bytes
}

/// Selects the default export, and uses it.
fn serves(stream: &mut (impl Read + Write)) {
    assert_eq!(option(stream, GO, &[0; 6]).last(), Some(&ACK));
    write(stream, 4096, &pattern(7, 8192));
    assert!(read(stream, 4096, 8192) == pattern(7, 8192));
}

#[test]
fn what_is_written_through_tls_reads_back() {
    let bed = Bed::new(true, false);
    let mut client = bed.client();
    assert_eq!(option(&mut client, LIST, &[]).last(), Some(&ACK));
    assert_eq!(option(&mut client, GO, &[0; 6]).last(), Some(&ACK));
    for (seed, length) in [(1, 4096), (2, 65536), (3, 3 << 20), (4, 32 << 20)] {
        let data = pattern(seed, length);
        write(&mut client, 8192, &data);
        assert!(read(&mut client, 8192, length) == data, "{length} bytes");
    }
    // Many requests, whose replies do not fit in one send.
    for cookie in 0..200 {
        let bytes = request(0, cookie, 8192, 65536);
        client.write_all(&bytes).unwrap();
    }
    let mut seen = [false; 200];
    for _ in 0..200 {
        let mut reply = [0; 16];
        client.read_exact(&mut reply).unwrap();
        let cookie = u64::from_be_bytes(reply[8..].try_into().unwrap());
        let mut data = vec![0; 65536];
        client.read_exact(&mut data).unwrap();
        assert!(data == pattern(4, 65536));
        seen[usize::try_from(cookie).unwrap()] = true;
    }
    assert_eq!(seen, [true; 200]);
    // The server sends a close notification; an abrupt end would be an error here.
    client.write_all(&request(2, 0, 0, 0)).unwrap();
    let mut bytes = Vec::new();
    assert_eq!(client.read_to_end(&mut bytes).unwrap(), 0);
}

/// A stream that transfers each byte separately.
struct ByteByByte(UnixStream);

impl Read for ByteByByte {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let len = bytes.len().min(1);
        self.0.read(&mut bytes[..len])
    }
}

impl Write for ByteByByte {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(&bytes[..bytes.len().min(1)])
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[test]
fn records_may_come_in_pieces() {
    let bed = Bed::new(true, false);
    let connection = tls(&bed.authority.path("server"), None);
    serves(&mut StreamOwned::new(connection, ByteByByte(bed.ask())));
}

#[test]
fn required_tls_comes_before_everything_else() {
    let bed = Bed::new(true, false);
    let mut stream = bed.greet();
    for number in [
        LIST,
        INFO,
        GO,
        STRUCTURED_REPLY,
        SET_META_CONTEXT,
        EXTENDED_HEADERS,
        99,
    ] {
        assert_eq!(option(&mut stream, number, &[0; 6]), [ERR_TLS_REQD]);
    }
    assert_eq!(option(&mut stream, STARTTLS, b"data"), [ERR_INVALID]);
    assert_eq!(option(&mut stream, STARTTLS, &[]), [ACK]);
    let connection = tls(&bed.authority.path("server"), None);
    serves(&mut StreamOwned::new(connection, stream));
    // An option that can only be refused by closing.
    let mut stream = bed.greet();
    stream.write_all(&option_bytes(EXPORT_NAME, &[])).unwrap();
    assert!(rest(&mut stream).is_empty());
    let mut stream = bed.greet();
    assert_eq!(option(&mut stream, ABORT, &[]), [ACK]);
    assert!(rest(&mut stream).is_empty());
}

#[test]
fn offered_tls_may_be_left_out() {
    let bed = Bed::new(false, false);
    serves(&mut bed.greet());
    serves(&mut bed.client());
    let path = bed.folder.join("plain.sock");
    let options = NbdOptions {
        address: Address::Unix(path.clone()),
        tls: None,
        ..bed.options(false, false)
    };
    let _server = NbdServer::start(&devices(), &options).unwrap();
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.read_exact(&mut [0; 18]).unwrap();
    stream.write_all(&3_u32.to_be_bytes()).unwrap();
    assert_eq!(option(&mut stream, STARTTLS, &[]), [ERR_UNSUP]);
    serves(&mut stream);
}

/// An attacker could have sent it in the client's name.
#[test]
fn choices_in_plain_text_are_forgotten() {
    let bed = Bed::new(false, false);
    let mut stream = bed.greet();
    assert_eq!(option(&mut stream, STRUCTURED_REPLY, &[]), [ACK]);
    let query = b"\0\0\0\0\0\0\0\x01\0\0\0\x0fbase:allocation";
    assert_eq!(option(&mut stream, SET_META_CONTEXT, query), [4, ACK]);
    assert_eq!(option(&mut stream, STARTTLS, &[]), [ACK]);
    let connection = tls(&bed.authority.path("server"), None);
    let mut stream = StreamOwned::new(connection, stream);
    // Simple replies allow no metadata context, and they are used here.
    assert_eq!(option(&mut stream, SET_META_CONTEXT, query), [ERR_INVALID]);
    serves(&mut stream);
}

/// Plain text sent right after STARTTLS must be treated neither as an option of the encrypted
/// handshake nor as part of TLS.
#[test]
fn bytes_behind_the_question_end_the_connection() {
    let bed = Bed::new(true, false);
    let mut hello = Vec::new();
    let mut connection = tls(&bed.authority.path("server"), None);
    connection.write_tls(&mut hello).unwrap();
    for injected in [option_bytes(LIST, &[]), b"I".to_vec(), hello] {
        let mut stream = bed.greet();
        let question = option_bytes(STARTTLS, &[]);
        stream.write_all(&[question, injected].concat()).unwrap();
        // At most the reply to STARTTLS.
        let answer = rest(&mut stream);
        assert!(answer.len() <= 20, "{answer:?}");
    }
    serves(&mut bed.client());
}

#[test]
fn plain_text_within_tls_ends_the_connection() {
    let bed = Bed::new(true, false);
    // Instead of a handshake: options, invalid records, and records that are too long.
    for garbage in [
        option_bytes(LIST, &[]),
        vec![0xff; 4096],
        [&[22, 3, 1, 0xff, 0xff][..], &[0; 65535]].concat(),
        [23, 3, 3, 0, 0].repeat(1000),
    ] {
        let mut stream = bed.ask();
        // The server may close before it has received all.
        let _ = stream.write_all(&garbage);
        let answer = rest(&mut stream);
        assert!(answer.len() < 20, "an alert at most: {answer:?}");
    }
    // And after it.
    let mut client = bed.client();
    serves(&mut client);
    client.sock.write_all(&request(0, 5, 0, 4096)).unwrap();
    let mut bytes = Vec::new();
    client.read_to_end(&mut bytes).unwrap_err();
    assert!(bytes.is_empty());
}

#[test]
fn tls_is_begun_once() {
    let bed = Bed::new(true, false);
    let mut client = bed.client();
    assert_eq!(option(&mut client, STARTTLS, &[]), [ERR_INVALID]);
    serves(&mut client);
}

#[test]
fn half_a_handshake_is_given_up() {
    let bed = Bed::new(true, false);
    let mut hello = Vec::new();
    let mut connection = tls(&bed.authority.path("server"), None);
    connection.write_tls(&mut hello).unwrap();
    let mut streams = [bed.ask(), bed.ask(), bed.ask()];
    streams[1].write_all(&hello[..hello.len() / 2]).unwrap();
    streams[2].write_all(&hello).unwrap();
    for stream in &mut streams {
        rest(stream);
    }
}

/// A client that disconnects before two successive replies must not keep its connection for ever:
/// the second reply can be neither encrypted nor dropped.
#[test]
fn a_client_that_is_gone_before_its_replies_keeps_no_place() {
    let mut bed = Bed::stopped();
    let slow = DelayOptions {
        read: Nanos::from_millis(100),
        ..DelayOptions::default()
    };
    let devices = devices().map(|device| Arc::new(Delay::new(device, slow)) as Arc<dyn Device>);
    let server = NbdServer::start(&devices, &bed.options(true, false)).unwrap();
    bed.server = Some(server);
    let mut client = bed.client();
    assert!(option(&mut client, GO, &[0; 6]).ends_with(&[ACK]));
    for cookie in 0..4 {
        client.write_all(&request(0, cookie, 0, 4096)).unwrap();
        // The replies come at different times.
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(client);
    let server = bed.server.as_ref().unwrap();
    let begun = Instant::now();
    while server.connections() > 0 {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "it keeps its place"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn only_clients_of_the_authority_are_served() {
    let mut bed = Bed::stopped();
    let own = bed.authority.issue("client", "client");
    let taken_back = bed.authority.issue("taken back", "client");
    let other = Authority::new(&bed.folder.join("other"));
    let strange = other.issue("client", "client");
    let revoked = taken_back.join("client-cert.pem");
    bed.authority.revoke(&revoked, "server");
    bed.start(true, true);
    let authority = bed.authority.path("server");
    let connect = |shown: Option<&Path>| StreamOwned::new(tls(&authority, shown), bed.ask());
    serves(&mut connect(Some(&own)));
    for shown in [None, Some(&*taken_back), Some(&*strange)] {
        let mut client = connect(shown);
        let _ = client.write_all(&option_bytes(GO, &[0; 6]));
        let mut bytes = Vec::new();
        client.read_to_end(&mut bytes).unwrap_err();
        assert!(bytes.is_empty(), "{shown:?}");
    }
    serves(&mut connect(Some(&own)));
}

#[test]
fn certificates_that_cannot_be_used_are_named() {
    let bed = Bed::stopped();
    let start = |require, verify, address: Option<&str>| {
        let mut options = bed.options(require, verify);
        if let Some(address) = address {
            options.address = address.parse().unwrap();
        }
        NbdServer::start(&devices(), &options)
            .unwrap_err()
            .to_string()
    };
    // Beyond this machine only with authenticated clients. This address is not one of this machine.
    for (require, verify) in [(true, false), (false, true)] {
        let error = start(require, verify, Some("192.0.2.1:1"));
        assert!(error.contains("verify clients"), "{error}");
    }
    // Clients without TLS would be served without a certificate.
    let error = start(false, true, None);
    assert!(error.contains("has to be required"), "{error}");
    let error = start(true, true, Some("192.0.2.1:1"));
    assert!(error.contains("cannot listen"), "{error}");
    let file = |name: &str| bed.authority.path("server").join(name);
    for (name, content) in [
        ("ca-crl.pem", Some("no list")),
        // A dangling symbolic link is not a list either.
        ("ca-crl.pem", None),
        ("ca-cert.pem", Some("no certificate")),
        ("ca-cert.pem", None),
        ("server-key.pem", None),
        ("server-cert.pem", None),
    ] {
        match content {
            None if name == "ca-crl.pem" => symlink("nowhere", file(name)).unwrap(),
            Some(content) => std::fs::write(file(name), content).unwrap(),
            None => std::fs::remove_file(file(name)).unwrap(),
        }
        let error = start(true, name.starts_with("ca"), None);
        assert!(error.contains(name), "{name}: {error}");
        if name == "ca-crl.pem" {
            std::fs::remove_file(file(name)).unwrap();
        }
    }
    // The key of another certificate.
    let server = bed.authority.issue("server", "server");
    let other = bed.authority.issue("other", "server");
    std::fs::copy(other.join("server-key.pem"), server.join("server-key.pem")).unwrap();
    let error = start(true, false, None);
    assert!(error.contains("server-cert.pem"), "{error}");
}
