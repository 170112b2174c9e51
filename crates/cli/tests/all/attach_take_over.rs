//! `attach --take-over`: another process continues, and clients notice nothing.

use crate::common::attached::{Attached, have};
use crate::common::{Folder, NQN, Serving, code, eventually, json, program, run, stderr};
use crate::take_over::{Manager, Peer, Process as Running};
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const HELLO: &str = r#"{"Hello":{"protocol":1,"version":"test"}}"#;

/// Take-overs in a row under load.
const TIMES: usize = 6;

/// `switchyard attach --config FILE` with its output, killed when dropped.
struct Process {
    child: Child,
    ready: Vec<String>,
}

impl Process {
    /// Starts it, or a successor, and waits until it is ready.
    fn start(file: &str, count: usize, more: &[&str]) -> Self {
        let mut child = program()
            .args(["attach", "--config", file])
            .args(more)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let lines = stdout.lines().map(Result::unwrap);
        let lines = lines.take_while(|line| !line.starts_with("API at "));
        let ready: Vec<_> = lines.collect();
        if ready.len() < count {
            let (code, said) = Self { child, ready }.end();
            panic!("it is not ready: {code:?} {said}");
        }
        Self { child, ready }
    }

    /// Returns the place of an attachment.
    fn place(&self, name: &str) -> String {
        let prefix = format!("ready: {name}: ");
        let mut lines = self.ready.iter();
        let line = lines.find_map(|line| line.strip_prefix(&*prefix)).unwrap();
        line.rsplit_once(", ").unwrap().0.to_owned()
    }

    /// Waits for its end. Returns its exit code and its log.
    fn end(mut self) -> (Option<i32>, String) {
        let code = self.child.wait().unwrap().code();
        let mut log = String::new();
        let mut stderr = self.child.stderr.take().unwrap();
        stderr.read_to_string(&mut log).unwrap();
        (code, log)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Requests that each attachment has begun since its process started.
fn requests(api: &str) -> Vec<u64> {
    let all = json(&run(&["attachments", "--json", "--api", api]));
    let requests = |attachment: &Value| {
        let classes = attachment["classes"].as_array().unwrap().iter();
        let count = |class: &Value, key: &str| class[key].as_u64().unwrap();
        classes
            .map(|class| count(class, "reads") + count(class, "writes"))
            .sum()
    };
    let all = all["attachments"].as_array().unwrap().iter();
    all.map(requests).collect()
}

/// A verifying load until it is interrupted.
fn load(name: &str, device: &[String]) -> Child {
    Command::new("fio")
        .args([&format!("--name={name}"), "--rw=randwrite"])
        .args(["--bsrange=4k-128k", "--size=12M", "--iodepth=8"])
        .args(["--time_based", "--runtime=3600", "--rate=16M,16M"])
        .args(["--verify=crc32c", "--verify_backlog=64", "--verify_fatal=1"])
        .args(["--verify_state_save=0", "--fsync=32", "--direct=1"])
        .args(device)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn signal(child: &Child, name: &str) {
    let mut kill = Command::new("kill");
    kill.args([name, &child.id().to_string()]);
    assert!(kill.status().unwrap().success());
}

/// Ends a load, which must have had no error.
fn finish(mut load: Child) {
    assert!(load.try_wait().unwrap().is_none(), "it runs");
    signal(&load, "-INT");
    let output = load.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &stderr(&output);
    let is_clean = text.contains("err= 0") && !text.contains("verify:");
    assert!(is_clean, "{text}");
}

#[test]
fn clients_notice_nothing_of_take_overs_under_load() {
    if !have(&["fio", "fusermount3"]) || !std::path::Path::new("/dev/fuse").exists() {
        return;
    }
    let folder = Folder::new();
    let target = folder.write(
        "target.toml",
        format!(
            "listen = [\"127.0.0.1:0\"]\n\
             [devices.a]\ntype = \"ram\"\nsize = \"16M\"\n\
             [devices.b]\ntype = \"ram\"\nsize = \"16M\"\n\
             [devices.c]\ntype = \"ram\"\nsize = \"16M\"\n\
             [[subsystems]]\nnqn = \"{NQN}\"\nallow_any_host = true\nnamespaces = [\
             {{ nsid = 1, device = \"a\" }}, {{ nsid = 2, device = \"b\" }}, \
             {{ nsid = 3, device = \"c\" }}]\n"
        ),
    );
    let serving = Serving::start(&["--config", &target]);
    let (socket, files, disk) = (
        folder.path("nbd.sock"),
        folder.path("files"),
        folder.write("disk", vec![0; 16 << 20]),
    );
    std::fs::create_dir(&files).unwrap();
    let api = format!("unix:{}", folder.path("api.sock"));
    let remote = format!("target = \"{}\"", serving.address());
    let file = folder.write(
        "attach.toml",
        format!(
            "api = \"{api}\"\n\
             [[attachments]]\nname = \"unix\"\nkind = \"nbd\"\nsocket = \"{socket}\"\nnsid = 1\n{remote}\n\
             [[attachments]]\nname = \"tcp\"\nkind = \"nbd\"\nlisten = \"127.0.0.1:0\"\nnsid = 2\n{remote}\n\
             [[attachments]]\nname = \"files\"\nkind = \"fuse\"\nmountpoint = \"{files}\"\nnsid = 3\n{remote}\n\
             [[attachments]]\nname = \"local\"\nkind = \"nbd\"\nsocket = \"{socket}2\"\nfile = \"{disk}\"\n"
        ),
    );
    let mut process = Process::start(&file, 4, &[]);
    let nbd = |name: &str, process: &Process| {
        let place = process.place(name);
        load(
            name,
            &["--ioengine=nbd".to_owned(), format!("--uri={place}")],
        )
    };
    let mut loads = vec![
        nbd("unix", &process),
        nbd("tcp", &process),
        nbd("local", &process),
    ];
    let name = format!("--filename={}", process.place("files"));
    loads.push(load("files", &["--ioengine=io_uring".to_owned(), name]));
    let runs = || requests(&api).iter().all(|&count| count > 50);
    for _ in 0..TIMES {
        eventually("all loads run", runs);
        let next = Process::start(&file, 4, &["--take-over"]);
        assert_eq!(next.place("tcp"), process.place("tcp"));
        let (code, said) = std::mem::replace(&mut process, next).end();
        assert_eq!(code, Some(0), "{said}");
    }
    eventually("all loads run", runs);
    loads.into_iter().for_each(finish);
    signal(&process.child, "-TERM");
    let (code, said) = process.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(!std::path::Path::new(&socket).exists());
    assert_eq!(std::fs::read_dir(&files).unwrap().count(), 0, "unmounted");
}

/// Returns the address at which an attachment at this Unix socket is taken over.
fn door_of(socket: &str) -> SocketAddr {
    let bytes = b"unix\0".iter().chain(socket.as_bytes());
    let number = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    SocketAddr::from_abstract_name(format!("switchyard-attach/{number:016x}")).unwrap()
}

/// `qemu-io` with one connection.
struct Client {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Client {
    fn new(uri: &str) -> Self {
        let mut child = Command::new("stdbuf")
            .args(["-oL", "qemu-io", "-f", "raw", uri])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            input: child.stdin.take().unwrap(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    fn writes_and_reads(&mut self, step: &str) {
        // One at a time: qemu-io waits for its input between them.
        for (command, word) in [
            ("write -P 7 0 64k\n", "wrote 65536/65536"),
            ("read -P 7 0 64k\n", "read 65536/65536"),
        ] {
            self.input.write_all(command.as_bytes()).unwrap();
            let mut line = String::new();
            while !line.contains(word) {
                line.clear();
                assert!(self.output.read_line(&mut line).unwrap() > 0, "{step}");
                assert!(!line.contains("error"), "{step}: {line}");
            }
        }
    }

    fn end(mut self) {
        drop(self.input);
        assert!(self.child.wait().unwrap().success());
    }
}

/// Successors that end at any step, or that the running process refuses.
#[test]
fn a_failed_take_over_leaves_the_front_end_serving() {
    if !have(&["qemu-io", "stdbuf"]) {
        return;
    }
    let folder = Folder::new();
    let serving = Serving::small();
    let socket = folder.path("nbd.sock");
    let args = ["nbd", "--socket", &socket, "--target", serving.address()];
    let attached = Attached::start(&args);
    let mut client = Client::new(&attached.uri);
    let mut still_serves = |step: &str| client.writes_and_reads(step);
    still_serves("at the start");
    let peer = || Peer::at(&door_of(&socket));
    drop(peer());
    still_serves("connected");
    let mut other = peer();
    other.send(r#"{"Hello":{"protocol":99,"version":"9.9"}}"#);
    let refused = other.receive();
    assert!(
        refused.contains("version 9.9") && refused.contains("restart"),
        "{refused}"
    );
    still_serves("another version");
    let mut other = peer();
    other.send(HELLO);
    assert!(other.receive().starts_with(r#"{"Offer""#));
    drop(other);
    still_serves("after the offer");
    for ends in ["", r#"{"Refused":{"reason":"no room"}}"#] {
        let mut other = peer();
        other.send(HELLO);
        other.receive();
        other.send(r#""Ready""#);
        assert_eq!(other.receive(), r#""State""#);
        if !ends.is_empty() {
            other.send(ends);
            assert!(other.receive().contains("no room"));
        }
        drop(other);
        still_serves("after the state");
    }
    let refused = |args: &[&str], word: &str| {
        let output = run(&[&["attach"], args, &["--take-over"]].concat());
        code(&output, 2);
        assert!(stderr(&output).contains(word), "{}", stderr(&output));
    };
    refused(&[&args[..], &["--read-only"]].concat(), "rights to write");
    still_serves("another configuration");
    let elsewhere = folder.path("other.sock");
    refused(
        &["nbd", "--socket", &elsewhere, "--null", "1M"],
        "no process to take over",
    );
    refused(&["nbd", "--listen", "127.0.0.1:0", "--null", "1M"], "port");
    // None of them was in the way of the next one.
    let next = Attached::start(&[&args[..], &["--take-over"]].concat());
    let mut attached = attached;
    assert_eq!(attached.child.wait().unwrap().code(), Some(0));
    still_serves("taken over");
    client.end();
    assert_eq!(next.detach(), Some(0));
}

/// Its target accepts connections and is silent: an attempt to start it is always in flight.
#[test]
fn an_attachment_that_does_not_start_prevents_no_take_over() {
    let folder = Folder::new();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let (socket, away) = (folder.path("nbd.sock"), folder.path("away.sock"));
    let file = folder.write(
        "attach.toml",
        format!(
            "api = \"unix:{}\"\n\
             [[attachments]]\nname = \"there\"\nkind = \"nbd\"\nsocket = \"{socket}\"\nnull = \"1M\"\n\
             [[attachments]]\nname = \"away\"\nkind = \"nbd\"\nsocket = \"{away}\"\n\
             target = \"{}\"\n",
            folder.path("api.sock"),
            silent.local_addr().unwrap()
        ),
    );
    let process = Process::start(&file, 1, &[]);
    let next = Process::start(&file, 1, &["--take-over"]);
    let (code, said) = process.end();
    assert_eq!(code, Some(0), "{said}");
    UnixStream::connect(&socket).unwrap();
    drop(next);
}

/// The content of memory would be lost.
#[test]
fn memory_of_the_process_is_not_taken_over() {
    let folder = Folder::new();
    let socket = folder.path("nbd.sock");
    let args = ["nbd", "--socket", &socket, "--ram", "1M"];
    let attached = Attached::start(&args);
    let output = run(&[&["attach"], &args[..], &["--take-over"]].concat());
    code(&output, 2);
    let said = stderr(&output);
    assert!(said.contains("ram 1M is memory of this process"), "{said}");
    assert_eq!(attached.detach(), Some(0));
}

/// A user who could take it over would have the disk.
#[test]
fn another_user_is_refused() {
    if !have(&["setpriv"]) || !rustix::process::geteuid().is_root() {
        return;
    }
    let folder = Folder::new();
    let socket = folder.path("nbd.sock");
    let attached = Attached::start(&["nbd", "--socket", &socket, "--null", "1M"]);
    let mut other = Command::new("setpriv");
    other.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    other.arg(env!("CARGO_BIN_EXE_switchyard"));
    other.args([
        "attach",
        "nbd",
        "--socket",
        &socket,
        "--null",
        "1M",
        "--take-over",
    ]);
    let output = other.output().unwrap();
    assert!(!output.status.success());
    let said = stderr(&output);
    let is_refused = said.contains("same user") || said.contains("ended before it was taken over");
    assert!(is_refused, "{said}");
    assert_eq!(attached.detach(), Some(0));
}

/// As `systemctl reload` does, by another program than the running one.
#[test]
fn a_reload_after_an_upgrade_takes_over() {
    let folder = Folder::new();
    let manager = Manager::new(&folder);
    let socket = folder.path("nbd.sock");
    let old = folder.path("switchyard");
    std::fs::copy(env!("CARGO_BIN_EXE_switchyard"), &old).unwrap();
    let args = ["nbd", "--socket", &socket, "--null", "1M"];
    let mut attached = Attached::start_by(manager.supervise(Command::new(&old)), &args);
    assert_eq!(manager.value("READY"), "1");
    // The successor keeps its standard error.
    let mut reload = program();
    reload.args(["reload", &attached.child.id().to_string()]);
    let reload = reload.stderr(Stdio::null()).output().unwrap();
    code(&reload, 0);
    let said = String::from_utf8_lossy(&reload.stdout).into_owned();
    assert!(said.contains("ready: "), "{said}");
    let successor = Running(manager.value("MAINPID"));
    assert_eq!(attached.child.wait().unwrap().code(), Some(0));
    assert_eq!(manager.value("WATCHDOG"), "1", "it is fed");
    successor.signal("-TERM");
    eventually("it ends", || successor.has_ended());
    assert!(!std::path::Path::new(&socket).exists());
}
