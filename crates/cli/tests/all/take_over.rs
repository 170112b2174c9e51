//! `serve --take-over`: another process continues, and hosts notice nothing.

use crate::common::{
    Folder, NQN, Serving, code, eventually, own_address, pattern, program, run, stderr,
};
use host::{Host, Namespace};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use secure::{Hash, TlsKey};
use std::fs::Permissions;
use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

const BLOCK: usize = 4096;

/// Take-overs in a row under load.
const TIMES: u64 = 4;

/// A target with a RAM device, a file, a state file and an API.
struct Bed {
    folder: Folder,
    address: String,
    api: String,
    /// File with the key of TLS.
    key: Option<String>,
    /// Further lines of the RAM device.
    memory: &'static str,
}

impl Bed {
    fn new() -> Self {
        let folder = Folder::new();
        let api = folder.path("api.sock");
        let address = own_address().replace(":0", ":4420");
        Self {
            folder,
            address,
            api,
            key: None,
            memory: "",
        }
    }

    /// The same with TLS.
    fn secured() -> Self {
        let mut bed = Self::new();
        let key = TlsKey::new(Some(Hash::Sha256), &[7; 32]).unwrap();
        let path = bed.folder.write("key", key.to_text().as_bytes());
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        bed.key = Some(path);
        bed
    }

    fn host(&self) -> Host {
        match &self.key {
            Some(key) => Host::builder().tls_key_file(key).build().unwrap(),
            None => Host::builder().build().unwrap(),
        }
    }

    /// Writes the configuration with this address and further lines of the RAM device.
    fn config(&self, name: &str, address: &str, device: &str) -> String {
        let (disk, api) = (self.folder.path("disk"), &self.api);
        let tls = self.key.as_ref();
        let tls = tls.map(|key| format!("tls = \"required\"\ntls_key = \"{key}\"\n"));
        let tls = tls.unwrap_or_default();
        self.folder.write(
            name,
            format!(
                "listen = [\"{address}\"]\napi = \"unix:{api}\"\ncores = [0]\n{tls}\
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
        self.start_by(program())
    }

    /// Starts this program.
    fn start_by(&self, program: Command) -> Serving {
        let config = self.config("target.toml", &self.address, self.memory);
        let args = self.args(&config);
        Serving::start_by(program, &args.each_ref().map(String::as_str))
    }

    /// Takes the target over.
    fn take_over(&self) -> Serving {
        let config = self.folder.path("target.toml");
        let args = self.args(&config);
        let mut args: Vec<_> = args.iter().map(String::as_str).collect();
        args.push("--take-over");
        Serving::start(&args)
    }

    /// Tries the same with another configuration. Returns the error.
    fn refused(&self, address: &str, device: &str) -> String {
        let config = self.config("other.toml", address, device);
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
    take_over_under_load(&Bed::new());
}

#[test]
fn hosts_with_tls_notice_nothing_of_take_overs_under_load() {
    take_over_under_load(&Bed::secured());
}

fn take_over_under_load(bed: &Bed) {
    let mut serving = bed.start();
    let host = bed.host();
    let subsystem = host.connect(&bed.address, NQN).unwrap();
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
                let next = bed.take_over();
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
pub(crate) struct Peer(UnixStream);

impl Peer {
    fn connect(target: &str) -> Self {
        Self::at(&door_of(target))
    }

    pub(crate) fn at(door: &SocketAddr) -> Self {
        Self::new(UnixStream::connect_addr(door).unwrap())
    }

    fn new(stream: UnixStream) -> Self {
        let patience = Duration::from_secs(60);
        stream.set_read_timeout(Some(patience)).unwrap();
        Self(stream)
    }

    pub(crate) fn send(&mut self, message: &str) {
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
    pub(crate) fn receive(&mut self) -> String {
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

const HELLO: &str = r#"{"Hello":{"protocol":2,"version":"test"}}"#;

#[test]
fn a_failed_take_over_leaves_the_target_serving() {
    fail_to_take_over(&Bed::new());
}

#[test]
fn a_failed_take_over_leaves_the_target_serving_over_tls() {
    fail_to_take_over(&Bed::secured());
}

/// Has successors that end at any step, or request what cannot be.
fn fail_to_take_over(bed: &Bed) {
    let serving = bed.start();
    let address = serving.address().to_owned();
    let host = bed.host();
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
    let next = bed.take_over();
    assert_eq!(serving.end().0, Some(0));
    still_serves("taken over");
    drop(next);
}

/// Unwritten pages of a cache are written back first, and the next cache is empty.
#[test]
fn a_cache_is_written_back_before_a_take_over() {
    let mut bed = Bed::new();
    bed.memory = "cache = \"4M\"\ncache_dirty_expire_ms = 600000\n";
    take_over_under_load(&bed);
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
        let state = br#"{"newest":0,"connections":[]}"#;
        let nobody = [&(state.len() as u64).to_le_bytes()[..], state].concat();
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

/// Messages that a service manager receives; a thread reads them.
pub(crate) struct Manager {
    path: String,
    messages: Receiver<String>,
}

impl Manager {
    pub(crate) fn new(folder: &Folder) -> Self {
        let path = folder.path("notify.sock");
        let socket = UnixDatagram::bind(&path).unwrap();
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            let mut text = [0; 64];
            while let Ok(length) = socket.recv(&mut text) {
                let text = String::from_utf8_lossy(&text[..length]);
                if sender.send(text.into_owned()).is_err() {
                    return;
                }
            }
        });
        Self { path, messages }
    }

    /// Sets the environment of a service with a watchdog.
    pub(crate) fn supervise(&self, mut program: Command) -> Command {
        program.env("NOTIFY_SOCKET", &self.path);
        program.env("WATCHDOG_USEC", "20000");
        program
    }

    /// Returns the value of the next message with this name; skips all others.
    pub(crate) fn value(&self, name: &str) -> String {
        loop {
            let text = self.messages.recv_timeout(Duration::from_secs(60)).unwrap();
            if let Some((_, value)) = text.split_once('=').filter(|(found, _)| *found == name) {
                return value.to_owned();
            }
        }
    }

    /// Skips all messages so far.
    fn forget(&self) {
        while self.messages.try_recv().is_ok() {}
    }
}

/// A process, killed when dropped.
pub(crate) struct Process(pub(crate) String);

impl Process {
    pub(crate) fn signal(&self, name: &str) {
        let kill = Command::new("kill").args([name, &self.0]).status();
        assert!(kill.unwrap().success());
    }

    pub(crate) fn has_ended(&self) -> bool {
        // As a zombie it has no command line.
        let line = std::fs::read(format!("/proc/{}/cmdline", self.0));
        line.is_ok_and(|line| line.is_empty())
            || !Command::new("kill")
                .args(["-0", &self.0])
                .status()
                .unwrap()
                .success()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = Command::new("kill")
            .args(["-KILL", &self.0])
            .stderr(Stdio::null())
            .status();
    }
}

/// As `systemctl reload` does, first without and then with another program than the running one.
#[test]
fn a_reload_applies_the_configuration_and_after_an_upgrade_takes_over() {
    let bed = Bed::new();
    let manager = Manager::new(&bed.folder);
    let serving = bed.start_by(manager.supervise(program()));
    assert_eq!(manager.value("READY"), "1");
    let host = Host::builder().build().unwrap();
    let subsystem = host.connect(&bed.address, NQN).unwrap();
    let namespace = subsystem.namespace(1).unwrap();
    namespace.write(0, &pattern(1, BLOCK)).unwrap();
    let running = serving.pid().to_string();
    let config = |more: &str| {
        let path = bed.config("target.toml", &bed.address, "");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(path, text + more).unwrap();
    };
    let shows = |text: &str| {
        let output = run(&["config", "show", "--api", &format!("unix:{}", bed.api)]);
        String::from_utf8_lossy(&output.stdout).contains(text)
    };

    config("[devices.second]\ntype = \"null\"\nsize = \"1M\"\n");
    code(&run(&["reload", &running]), 0);
    eventually("the file is in force", || shows("second"));
    assert!(
        std::fs::read_link(format!("/proc/{running}/exe")).is_ok(),
        "the same process"
    );

    // Before the successor starts, the running target applies the file.
    config("[devices.third]\ntype = \"null\"\nsize = \"1M\"\n");
    let upgraded = bed.folder.path("upgraded");
    std::fs::copy(env!("CARGO_BIN_EXE_switchyard"), &upgraded).unwrap();
    // The successor keeps its standard error.
    let reload = Command::new(&upgraded)
        .args(["reload", &running])
        .stderr(Stdio::null())
        .output();
    let reload = reload.unwrap();
    code(&reload, 0);
    assert!(String::from_utf8_lossy(&reload.stdout).contains("listening on"));
    let successor = Process(manager.value("MAINPID"));
    let program = std::fs::read_link(format!("/proc/{}/exe", successor.0)).unwrap();
    assert_eq!(program.to_str(), Some(&*upgraded));
    assert_eq!(serving.end().0, Some(0));
    assert_eq!(manager.value("READY"), "1");
    manager.forget();
    assert_eq!(manager.value("WATCHDOG"), "1", "fed by the successor");
    assert!(shows("third") && !shows("second"));
    let mut read = vec![0; BLOCK];
    namespace.read(0, &mut read).unwrap();
    assert!(read == pattern(1, BLOCK));
    successor.signal("-TERM");
    assert_eq!(manager.value("STOPPING"), "1");
    eventually("it ends", || successor.has_ended());
}

/// The running process continues, and the caller learns that it does.
#[test]
fn a_reload_by_a_program_that_does_not_take_over_is_an_error() {
    let bed = Bed::new();
    let serving = bed.start();
    bed.folder.write("target.toml", "listen = 7\n");
    let upgraded = bed.folder.path("upgraded");
    std::fs::copy(env!("CARGO_BIN_EXE_switchyard"), &upgraded).unwrap();
    let running = serving.pid().to_string();
    let reload = Command::new(&upgraded)
        .args(["reload", &running])
        .output()
        .unwrap();
    code(&reload, 2);
    let said = stderr(&reload);
    assert!(
        said.contains("listen") && said.contains("running process continues"),
        "{said}"
    );
    code(&run(&["identify", &bed.address]), 0);

    let mine = std::process::id().to_string();
    let reload = run(&["reload", &mine]);
    code(&reload, 2);
    assert!(stderr(&reload).contains("not `switchyard serve`"));
}
