//! `serve --take-over`: another process continues, and hosts notice nothing.

use crate::common::{Folder, NQN, Serving, code, eventually, pattern, run, stderr};
use host::{Host, Namespace};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const BLOCK: usize = 4096;

/// Take-overs in a row under load.
const TIMES: u64 = 4;

/// A target with a RAM device, a file, a state file and an API.
struct Bed {
    folder: Folder,
    api: String,
}

impl Bed {
    fn new() -> Self {
        let folder = Folder::new();
        let api = folder.path("api.sock");
        Self { folder, api }
    }

    /// Writes the configuration with this address and further lines of the RAM device.
    fn config(&self, address: &str, device: &str) -> String {
        let (disk, api) = (self.folder.path("disk"), &self.api);
        self.folder.write(
            "target.toml",
            format!(
                "listen = [\"{address}\"]\napi = \"unix:{api}\"\ncores = [0]\n\
                 [devices.memory]\ntype = \"ram\"\nsize = \"16M\"\n{device}\
                 [devices.disk]\ntype = \"file\"\npath = \"{disk}\"\ncreate = true\nsize = \"16M\"\n\
                 block_size = {BLOCK}\n\
                 [[subsystems]]\nnqn = \"{NQN}\"\nallow_any_host = true\n\
                 namespaces = [{{ nsid = 1, device = \"memory\" }}, {{ nsid = 2, device = \"disk\" }}]\n"
            ),
        )
    }

    fn args(&self, config: &str) -> [String; 4] {
        let state = self.folder.path("state.json");
        [
            "--config".into(),
            config.to_owned(),
            "--state".into(),
            state,
        ]
    }

    fn start(&self) -> Serving {
        let config = self.config("127.0.0.1:0", "");
        let args = self.args(&config);
        Serving::start(&args.each_ref().map(String::as_str))
    }

    /// Takes the target at this address over.
    fn take_over(&self, address: &str) -> Serving {
        let config = self.config(address, "");
        let args = self.args(&config);
        let mut args: Vec<_> = args.iter().map(String::as_str).collect();
        args.push("--take-over");
        Serving::start(&args)
    }

    /// Tries the same with further lines of the RAM device. Returns the error.
    fn refused(&self, address: &str, device: &str) -> String {
        let config = self.config(address, device);
        let args = self.args(&config);
        let mut all = vec!["serve", "--take-over"];
        all.extend(args.iter().map(String::as_str));
        let output = run(&all);
        code(&output, 2);
        stderr(&output)
    }

    /// Returns the controllers: identifiers, hosts and their ports.
    fn controllers(&self) -> String {
        let mut stream = UnixStream::connect(&self.api).unwrap();
        let request = "GET /v1/controllers HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{text}");
        let all: serde_json::Value = serde_json::from_str(body).unwrap();
        let all = all.as_array().or_else(|| all["controllers"].as_array());
        let all = all.unwrap_or_else(|| panic!("{body}")).iter();
        let all = all.map(|it| format!("{} {} {}", it["id"], it["host_nqn"], it["peer"]));
        all.collect::<Vec<_>>().join("\n")
    }
}

/// Writes and reads its own blocks until stopped.
fn work(namespace: &Namespace, writer: u64, stop: &AtomicBool, done: &AtomicU64) {
    for round in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let blocks = if round % 2 == 0 { 1 } else { 32 };
        let data = pattern(writer << 32 | round, blocks * BLOCK);
        let at = writer * 64 * BLOCK as u64;
        namespace.write(at, &data).unwrap();
        let mut read = vec![0; data.len()];
        namespace.read(at, &mut read).unwrap();
        assert!(read == data, "writer {writer}, round {round}");
        done.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn hosts_notice_nothing_of_take_overs_under_load() {
    let bed = Bed::new();
    let mut serving = bed.start();
    let address = serving.address().to_owned();
    let host = Host::builder().build().unwrap();
    let subsystem = host.connect(&address, NQN).unwrap();
    let namespaces = [1, 2].map(|nsid| subsystem.namespace(nsid).unwrap());
    namespaces[0].write(15 << 20, &pattern(9, BLOCK)).unwrap();
    let before = bed.controllers();
    assert!(before.contains("nqn"), "{before}");
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let (namespace, stop, done) = (&namespaces[writer % 2], &stop, &done);
            scope.spawn(move || work(namespace, writer as u64, stop, done));
        }
        let passed = catch_unwind(AssertUnwindSafe(|| {
            for _ in 0..TIMES {
                let begun = done.load(Ordering::Relaxed);
                let load_runs = || done.load(Ordering::Relaxed) > begun + 20;
                eventually("the load runs", load_runs);
                let next = bed.take_over(&address);
                let (code, said) = std::mem::replace(&mut serving, next).end();
                assert_eq!(code, Some(0), "{said}");
            }
            let begun = done.load(Ordering::Relaxed);
            let load_runs = || done.load(Ordering::Relaxed) > begun + 20;
            eventually("the load runs", load_runs);
        }));
        stop.store(true, Ordering::Relaxed);
        passed.expect("take-overs under load");
    });
    assert_eq!(bed.controllers(), before, "the same connections");
    let mut read = vec![0; BLOCK];
    namespaces[0].read(15 << 20, &mut read).unwrap();
    assert!(read == pattern(9, BLOCK), "memory is the same");
    serving.signal("-TERM");
    let (code, said) = serving.end();
    assert_eq!(code, Some(0), "{said}");
}

/// A process that begins a take-over as a successor does.
struct Peer(UnixStream);

impl Peer {
    fn connect(target: &str) -> Self {
        Self::new(UnixStream::connect_addr(&door_of(target)).unwrap())
    }

    fn new(stream: UnixStream) -> Self {
        let patience = Duration::from_secs(60);
        stream.set_read_timeout(Some(patience)).unwrap();
        Self(stream)
    }

    fn send(&mut self, message: &str) {
        self.give(message, &[], &[]);
    }

    /// Sends a message with bytes and files.
    fn give(&mut self, message: &str, bytes: &[u8], files: &[BorrowedFd<'_>]) {
        let mut frame = Vec::new();
        for number in [message.len(), bytes.len(), files.len()] {
            frame.extend((number as u64).to_le_bytes());
        }
        frame.extend(message.as_bytes());
        frame.extend(bytes);
        self.0.write_all(&frame).unwrap();
        if !files.is_empty() {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            assert!(control.push(SendAncillaryMessage::ScmRights(files)));
            let one = [IoSlice::new(&[0])];
            rustix::net::sendmsg(&self.0, &one, &mut control, SendFlags::empty()).unwrap();
        }
    }

    /// Returns the next message, without its bytes and files.
    fn receive(&mut self) -> String {
        let mut numbers = [[0; 8]; 3];
        self.0.read_exact(numbers.as_flattened_mut()).unwrap();
        let [text, bytes, files] = numbers.map(u64::from_le_bytes);
        let mut message = vec![0; usize::try_from(text).unwrap()];
        self.0.read_exact(&mut message).unwrap();
        let mut rest = vec![0; usize::try_from(bytes + files.div_ceil(128)).unwrap()];
        self.0.read_exact(&mut rest).unwrap();
        String::from_utf8(message).unwrap()
    }
}

/// Returns the address at which a target is taken over.
fn door_of(target: &str) -> SocketAddr {
    SocketAddr::from_abstract_name(format!("switchyard/{target}")).unwrap()
}

const HELLO: &str = r#"{"Hello":{"protocol":1,"version":"test"}}"#;

/// A successor that ends at any step, or asks for what cannot be.
#[test]
fn a_failed_take_over_leaves_the_target_serving() {
    let bed = Bed::new();
    let serving = bed.start();
    let address = serving.address().to_owned();
    let host = Host::builder().build().unwrap();
    let subsystem = host.connect(&address, NQN).unwrap();
    let namespace = subsystem.namespace(1).unwrap();
    let before = bed.controllers();
    let still_serves = |step: &str| {
        let data = pattern(1, BLOCK);
        namespace.write(0, &data).unwrap();
        let mut read = vec![0; BLOCK];
        namespace.read(0, &mut read).unwrap();
        assert!(read == data, "{step}");
        assert_eq!(bed.controllers(), before, "{step}");
    };
    drop(Peer::connect(&address));
    still_serves("connected");
    let mut peer = Peer::connect(&address);
    peer.send(r#"{"Hello":{"protocol":99,"version":"9.9"}}"#);
    let refused = peer.receive();
    assert!(
        refused.contains("version 9.9") && refused.contains("restart"),
        "{refused}"
    );
    still_serves("another version");
    let mut peer = Peer::connect(&address);
    peer.send(HELLO);
    assert!(peer.receive().starts_with(r#"{"Offer""#));
    drop(peer);
    still_serves("after the offer");
    let mut peer = Peer::connect(&address);
    peer.send(HELLO);
    peer.receive();
    peer.send(r#""Ready""#);
    assert_eq!(peer.receive(), r#""State""#);
    drop(peer);
    still_serves("after the state");
    let mut peer = Peer::connect(&address);
    peer.send(HELLO);
    peer.receive();
    peer.send(r#""Ready""#);
    peer.receive();
    peer.send(r#"{"Refused":{"reason":"no room"}}"#);
    assert!(peer.receive().contains("no room"));
    still_serves("refused");
    let error = bed.refused(&address, "verify = true\n");
    assert!(
        error.contains("differs in") && error.contains("SIGHUP"),
        "{error}"
    );
    still_serves("another configuration");
    let error = bed.refused("127.0.0.1:1", "");
    assert!(error.contains("no target to take over"), "{error}");
    // None of them was in the way of the next one.
    let next = bed.take_over(&address);
    assert_eq!(serving.end().0, Some(0));
    still_serves("taken over");
    drop(next);
}

/// A cache is memory that does not move.
#[test]
fn a_target_with_a_cache_is_not_taken_over() {
    let bed = Bed::new();
    let config = bed.config("127.0.0.1:0", "cache = \"1M\"\n");
    let args = bed.args(&config);
    let serving = Serving::start(&args.each_ref().map(String::as_str));
    let error = bed.refused(serving.address(), "cache = \"1M\"\n");
    assert!(
        error.contains("write-back cache") && error.contains("restart"),
        "{error}"
    );
}

/// The old process is killed when its successor has everything: nobody else can serve.
#[test]
fn a_successor_serves_if_the_target_is_killed_after_it_has_handed_over() {
    let folder = Folder::new();
    let config = |address: &str| {
        folder.write(
            "target.toml",
            format!(
                "listen = [\"{address}\"]\ncores = [0]\n\
                 [devices.none]\ntype = \"null\"\nsize = \"16M\"\n\
                 [[subsystems]]\nnqn = \"{NQN}\"\nallow_any_host = true\n\
                 namespaces = [{{ nsid = 1, device = \"none\" }}]\n"
            ),
        )
    };
    let serving = Serving::start(&["--config", &config("127.0.0.1:0")]);
    let address = serving.address().to_owned();
    let mut peer = Peer::connect(&address);
    peer.send(HELLO);
    let offer = peer.receive();
    drop((peer, serving));
    // In its place, with the same offer.
    let mut listener = None;
    eventually("the port is free", || {
        listener = TcpListener::bind(&*address).ok();
        listener.is_some()
    });
    let (listener, door) = (
        listener.unwrap(),
        UnixListener::bind_addr(&door_of(&address)),
    );
    let door = door.unwrap();
    let giver = std::thread::spawn(move || {
        let mut peer = Peer::new(door.accept().unwrap().0);
        assert!(peer.receive().starts_with(r#"{"Hello""#));
        peer.give(&offer, &[], &[door.as_fd()]);
        assert_eq!(peer.receive(), r#""Ready""#);
        let nobody = [&2_u64.to_le_bytes()[..], b"[]"].concat();
        peer.give(r#""State""#, &nobody, &[listener.as_fd()]);
        assert_eq!(peer.receive(), r#""Taken""#);
    });
    let next = Serving::start(&["--config", &config(&address), "--take-over"]);
    giver.join().unwrap();
    let host = Host::builder().build().unwrap();
    let subsystem = host.connect(next.address(), NQN).unwrap();
    let namespace = subsystem.namespace(1).unwrap();
    namespace.read(0, &mut [0; BLOCK]).unwrap();
}
