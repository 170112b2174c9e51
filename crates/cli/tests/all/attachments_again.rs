//! Attachments that could not start, or that a killed process left behind: the remaining
//! attachments are served meanwhile, and the next process takes over the state that clients rely
//! on.

use crate::common::attached::{Attached, have, succeeds};
use crate::common::attaching::{Attaching, fuse, have_fuse, nbd, nbd_client, vhost, write};
use crate::common::{
    Folder, Serving, bench, code, eventually, json, own_address, pattern, program, stderr, stdout,
};
use std::fs::File;
use std::net::TcpListener;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Regression: the mount left by a killed process made each further start fail, for all
/// attachments.
#[test]
fn all_kinds_of_a_killed_process_are_served_by_the_next_one() {
    if !have_fuse() {
        return;
    }
    let folder = Folder::new();
    let device = |name| {
        let disk = folder.write(name, pattern(3, 1 << 20));
        format!("file = \"{disk}\"")
    };
    let kinds = [
        nbd(&folder, "disk", &device("disk.img")),
        fuse(&folder, &device("files.img")),
        vhost(&folder, "vm", &device("vm.img")),
    ];
    let first = Attaching::start(&folder, &kinds.concat());
    let path = folder.path("files/1");
    let open = File::open(&path).unwrap();
    first.kill();
    assert!(open.read_exact_at(&mut [0; 4096], 0).is_err());
    for round in 0..2 {
        let mut next = Attaching::start(&folder, &kinds.concat());
        for name in ["disk", "files", "vm"] {
            assert_eq!(next.show(name)["state"], "local", "{}", next.log());
        }
        drop(nbd_client(&folder, "disk"));
        assert!(std::fs::read(&path).unwrap() == pattern(3, 1 << 20));
        let vm = format!("vhost:{}", folder.path("vm.sock"));
        code(
            &bench(&["--device", &vm, "--app", "a:rw=randread,bs=4k"]),
            0,
        );
        if round == 0 {
            next.kill();
        } else {
            next.signal("-TERM");
            assert_eq!(next.end(), Some(0));
        }
    }
    assert_eq!(std::fs::read_dir(folder.path("files")).unwrap().count(), 0);
}

/// Regression: one unreachable target ended the process of all attachments.
#[test]
fn an_attachment_that_does_not_start_keeps_no_other_one_from_serving() {
    let folder = Folder::new();
    let disk = folder.write("disk.img", vec![0; 1 << 20]);
    let (serving, address, serve) = Serving::file(disk);
    drop(serving);
    let file = [
        nbd(&folder, "away", &format!("target = \"{address}\"")),
        nbd(&folder, "good", "ram = \"1M\""),
        nbd(
            &folder,
            "missing",
            &format!("file = \"{}\"", folder.path("none")),
        ),
    ];
    let mut attaching = Attaching::start_some(&folder, &file.concat(), 1);
    assert!(attaching.ready[0].starts_with("ready: good: "));
    let client = nbd_client(&folder, "good");
    assert_eq!(attaching.names(), ["away", "good", "missing"]);
    for (name, reason) in [("away", &*address), ("missing", "truncate -s")] {
        eventually("it says why it has not started", || {
            let shown = attaching.show(name);
            assert_eq!(shown["state"], "not_started", "{shown}");
            shown["error"]
                .as_str()
                .is_some_and(|it| it.contains(reason))
        });
    }
    let table = stdout(&attaching.run(&["attachments"]));
    assert!(table.contains("not started"), "{table}");
    assert!(table.contains("\nmissing: attachment "), "{table}");
    let connected = |attaching: &Attaching, name, value| {
        let labels = format!("{{attachment=\"{name}\",kind=\"nbd\"}}");
        let line = format!("switchyard_attachment_connected{labels} {value}\n");
        attaching.get("/metrics").contains(&line)
    };
    assert!(connected(&attaching, "away", 0) && connected(&attaching, "good", 1));
    // It becomes available after several attempts.
    std::thread::sleep(std::time::Duration::from_secs(3));
    let _serving = serve(&address);
    assert!(attaching.line().starts_with("ready: away: "));
    assert!(connected(&attaching, "away", 1));
    assert_eq!(attaching.names(), ["away", "good", "missing"]);
    // Each reason is logged once until it changes; a target that has just ended may yield two.
    let log = attaching.log();
    let told = |name| {
        let begin = format!("not attached: attachment \"{name}\"");
        let reasons = log.lines().filter_map(|line| line.split_once(&begin));
        reasons.map(|(_, reason)| reason).collect::<Vec<_>>()
    };
    assert_eq!(told("missing").len(), 1, "{log}");
    let away = told("away");
    assert!(
        !away.is_empty() && away.windows(2).all(|it| it[0] != it[1]),
        "{log}"
    );
    code(&attaching.run(&["detach", "missing"]), 0);
    assert_eq!(attaching.names(), ["away", "good"]);
    drop(client);
    attaching.signal("-TERM");
    assert_eq!(attaching.end(), Some(0));
}

/// Regression: a process waited for an unresponsive target until its time-out, and failed.
#[test]
fn a_signal_ends_a_process_that_waits_for_its_first_answer() {
    let folder = Folder::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap().to_string();
    let device = format!("target = \"{target}\"");
    let two = ["a", "b"].map(|name| nbd(&folder, name, &device));
    let config = write(&folder, &two.concat());
    let socket = folder.path("one.sock");
    let one = ["nbd", "--socket", &socket, "--target", &target];
    for (args, connections) in [(&one[..], 1), (&["--config", &config], 2)] {
        let mut process = program();
        process.arg("attach").args(args);
        let process = process.stdout(Stdio::piped()).stderr(Stdio::piped());
        let process = process.spawn().unwrap();
        let accepted: Vec<_> = (0..connections)
            .map(|_| listener.accept().unwrap())
            .collect();
        let sent = Command::new("kill").arg(process.id().to_string()).status();
        assert!(sent.unwrap().success());
        let output = process.wait_with_output().unwrap();
        code(&output, 0);
        assert_eq!(stderr(&output), "", "it gave nothing up");
        assert!(!stdout(&output).contains("ready"), "{}", stdout(&output));
        drop(accepted);
    }
}

/// Regression: an attachment whose change failed to start was lost until the next signal.
#[test]
fn an_attachment_with_a_change_that_does_not_start_is_tried_again() {
    let folder = Folder::new();
    let disk = folder.write("disk.img", vec![0; 2 << 20]);
    let (serving, address, serve) = Serving::file(disk);
    drop(serving);
    let before = nbd(&folder, "a", "ram = \"1M\"");
    let attaching = Attaching::start(&folder, &before);
    let size = || attaching.show("a")["size_bytes"].clone();
    let state = || attaching.show("a")["state"].clone();
    let after = nbd(&folder, "a", &format!("target = \"{address}\""));
    for text in [&after, &before, &after] {
        write(&folder, text);
        attaching.signal("-HUP");
        let expected = if *text == before {
            "local"
        } else {
            "not_started"
        };
        eventually("it follows the file", || state() == expected);
    }
    let _serving = serve(&address);
    eventually("the change is in force", || {
        state() == "connected" && size() == 2 << 20
    });
}

/// The socket tells the next server that clients may rely on unflushed data. Regression: a failed
/// start removed it.
#[test]
fn a_start_that_fails_leaves_the_socket_that_it_found() {
    let folder = Folder::new();
    let (socket, disk) = (
        folder.path("nbd.sock"),
        folder.write("disk", vec![0; 1 << 20]),
    );
    let args = ["nbd", "--socket", &socket, "--file", &disk];
    drop(Attached::start(&args));
    let mut failing = program();
    failing.arg("attach").args(args);
    // The ready line cannot be written.
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = failing.stdout(full).output().unwrap();
    code(&output, 2);
    assert!(Path::new(&socket).exists(), "{}", stderr(&output));
    assert_eq!(Attached::start(&args).detach(), Some(0));
    assert!(!Path::new(&socket).exists());
}

/// With the service manager's defaults, five starts within ten seconds were the last ones. The
/// threads of a block device's server must not wait for memory that only they can free.
#[test]
fn the_units_start_again_and_have_the_rights_that_are_promised() {
    let unit = |name: &str| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/systemd");
        std::fs::read_to_string(folder.join(name)).unwrap()
    };
    let all = unit("switchyard-attach.service");
    for text in [&all, &unit("switchyard-attach@.service")] {
        let (head, _) = text.split_once("[Service]").unwrap();
        assert!(head.lines().any(|line| line == "StartLimitIntervalSec=0"));
    }
    let bound = |line: &&str| line.starts_with("CapabilityBoundingSet=");
    let bound = all.lines().find(bound).unwrap();
    assert!(bound.contains("CAP_SYS_RESOURCE"), "{bound}");
}

/// Clients keep the transfer limit of the start. Regression: their large requests failed from then
/// on.
#[test]
fn clients_go_on_with_a_target_that_takes_less_in_one_command() {
    if !have(&["nbdcopy"]) {
        return;
    }
    let folder = Folder::new();
    let input = folder.write("in", pattern(4, 4 << 20));
    let (disk, output) = (
        folder.write("disk.img", vec![0; 4 << 20]),
        folder.path("out"),
    );
    let serve = |address: &str, bytes: u32| {
        let config = format!(
            "listen = [\"{address}\"]\n[limits]\nmax_transfer_bytes = {bytes}\n\
             [devices.disk]\ntype = \"file\"\npath = \"{disk}\"\n\
             [[subsystems]]\nnqn = \"nqn.2026-11.io.switchyard:default\"\nallow_any_host = true\n\
             namespaces = [{{ nsid = 1, device = \"disk\" }}]\n"
        );
        Serving::start(&["--config", &folder.write("target.toml", config)])
    };
    let serving = serve(&own_address(), 1 << 20);
    let address = serving.address().to_owned();
    let target = format!("target = \"{address}\"");
    let kinds = [nbd(&folder, "disk", &target), vhost(&folder, "vm", &target)];
    let mut attaching = Attaching::start(&folder, &kinds.concat());
    serving.signal("-KILL");
    drop(serving);
    let _serving = serve(&address, 8192);
    let vm = format!("vhost:{}", folder.path("vm.sock"));
    let load = ["--device", &vm, "--verify", "--app", "a:rw=randrw,bs=128k"];
    assert_eq!(json(&bench(&load))["apps"][0]["errors"], 0);
    let uri = format!("nbd+unix:///?socket={}", folder.path("disk.sock"));
    succeeds("nbdcopy", &["--flush", &input, &uri]);
    succeeds("nbdcopy", &[&uri, &output]);
    assert!(std::fs::read(&output).unwrap() == pattern(4, 4 << 20));
    attaching.signal("-TERM");
    assert_eq!(attaching.end(), Some(0));
}
