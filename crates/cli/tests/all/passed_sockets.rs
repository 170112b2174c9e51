//! Sockets that a service manager passes to `switchyard attach` (sd_listen_fds(3)).

use crate::common::attached::Attached;
use crate::common::attaching::{Attaching, nbd, vhost};
use crate::common::{Folder, code, eventually, limited_program, stderr};
use std::fs;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;

/// The program with `passed` as its descriptor 3, and LISTEN_PID set to `meant` (a shell
/// expression).
fn passing(passed: impl Into<OwnedFd>, meant: &str) -> Command {
    let script = format!("export LISTEN_FDS=1 LISTEN_PID={meant} && exec 3<&0 0</dev/null");
    let mut command = limited_program(&script);
    command.stdin(passed.into());
    command
}

/// Reads the beginning of a server's handshake.
fn is_served(mut client: impl Read) {
    let mut begin = [0; 8];
    client.read_exact(&mut begin).unwrap();
    assert_eq!(&begin, b"NBDMAGIC");
}

fn is_close_on_exec(process: u32, descriptor: u32) -> bool {
    let text = fs::read_to_string(format!("/proc/{process}/fdinfo/{descriptor}")).unwrap();
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
    u32::from_str_radix(flags.unwrap().trim(), 8).unwrap() & 0o2_000_000 != 0
}

#[test]
fn a_server_serves_the_clients_of_a_passed_socket_and_leaves_it_there() {
    let folder = Folder::new();
    let path = folder.path("nbd.sock");
    let manager = UnixListener::bind(&path).unwrap();
    let inode = fs::metadata(&path).unwrap().ino();
    for _ in 0..2 {
        // It has waited since before the server started.
        let early = UnixStream::connect(&path).unwrap();
        let command = passing(manager.try_clone().unwrap(), "$$");
        let attached = Attached::start_by(command, &["nbd", "--socket", &path, "--ram", "1M"]);
        is_served(early);
        is_served(UnixStream::connect(&path).unwrap());
        assert!(is_close_on_exec(attached.child.id(), 3));
        assert_eq!(attached.detach(), Some(0));
        assert_eq!(fs::metadata(&path).unwrap().ino(), inode);
    }
}

#[test]
fn a_server_serves_a_passed_port() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let early = TcpStream::connect(address).unwrap();
    let listen = address.to_string();
    let args = ["nbd", "--listen", &listen, "--ram", "1M"];
    let attached = Attached::start_by(passing(listener, "$$"), &args);
    is_served(early);
    is_served(TcpStream::connect(address).unwrap());
    assert_eq!(attached.detach(), Some(0));
}

#[test]
fn a_back_end_serves_a_passed_socket_and_leaves_it_there() {
    let folder = Folder::new();
    let path = folder.path("vm.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let file = vhost(&folder, "vm", "ram = \"1M\"");
    let mut attaching = Attaching::start_by(passing(listener, "$$"), &folder, &file, 1);
    let _machine = UnixStream::connect(&path).unwrap();
    eventually("the machine is accepted", || {
        attaching.show("vm")["clients"] == 1
    });
    attaching.signal("-TERM");
    attaching.end();
    assert!(Path::new(&path).exists());
}

/// Two attachments on one socket would distribute its clients among different disks.
#[test]
fn one_attachment_at_a_time_has_a_passed_socket() {
    let folder = Folder::new();
    let path = folder.path("a.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let a = nbd(&folder, "a", "ram = \"1M\"");
    let file = a.clone() + &a.replacen("\"a\"", "\"b\"", 1);
    let attaching = Attaching::start_by(passing(listener, "$$"), &folder, &file, 1);
    let mut names = ["a", "b"];
    if attaching.show("a")["state"] == "not_started" {
        names.reverse();
    }
    let refused = attaching.show(names[1]);
    assert_eq!(refused["state"], "not_started", "{refused}");
    code(&attaching.run(&["detach", names[0]]), 0);
    let line = attaching.line();
    assert!(line.starts_with("ready: "), "{line}");
    is_served(UnixStream::connect(&path).unwrap());
}

#[test]
fn a_passed_socket_of_no_attachment_is_refused_by_name() {
    let folder = Folder::new();
    let (path, other) = (folder.path("a.sock"), folder.path("b.sock"));
    let args = ["attach", "nbd", "--socket", &other, "--ram", "1M"];
    let listener = UnixListener::bind(&path).unwrap();
    let (connected, _peer) = UnixStream::pair().unwrap();
    for (passed, expected) in [
        (OwnedFd::from(listener), &*path),
        (connected.into(), "Accept=no"),
    ] {
        let output = passing(passed, "$$").args(args).output().unwrap();
        code(&output, 2);
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    }
    assert!(Path::new(&path).exists() && !Path::new(&other).exists());
}

#[test]
fn sockets_for_another_process_are_left_alone() {
    let folder = Folder::new();
    let path = folder.path("nbd.sock");
    let listener = UnixListener::bind(folder.path("a.sock")).unwrap();
    let args = ["nbd", "--socket", &path, "--ram", "1M"];
    let attached = Attached::start_by(passing(listener, "1"), &args);
    assert_eq!(attached.detach(), Some(0));
}
