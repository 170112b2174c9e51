//! `switchyard attach`: unmodified applications over a target that is restarted.

use crate::common::attached::{Attached, have, succeeds};
use crate::common::{
    Folder, Serving, code, eventually, limited_program, pattern, program, run, stderr,
};
use reactor::uring::UringDriver;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Alternately kills the target of a verifying load and starts a new one on its address, or
/// suspends it for a while; the front end is suspended for a while, too. The load must end with
/// `clean`. Returns the last target.
fn kill_under(
    mut load: Child,
    clean: &str,
    attached: &Attached,
    mut serving: Serving,
    serve: impl Fn(&str) -> Serving,
) -> Serving {
    let address = serving.address().to_owned();
    let mut rounds = 0;
    while rounds < 8 && load.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(400));
        if rounds % 2 == 0 {
            serving.signal("-KILL");
            drop(serving);
            std::thread::sleep(Duration::from_millis(100));
            serving = serve(&address);
        } else {
            serving.signal("-STOP");
            std::thread::sleep(Duration::from_millis(200));
            serving.signal("-CONT");
        }
        attached.signal("-STOP");
        std::thread::sleep(Duration::from_millis(200));
        attached.signal("-CONT");
        rounds += 1;
    }
    let output = load.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(rounds > 0, "it was killed under load");
    assert!(text.contains(clean), "{text}");
    serving
}

/// Regression: with one queue the attachment never started, and with two only by chance, because a
/// channel for blocking calls occupied one of them for a while.
#[test]
fn one_io_queue_is_enough_and_two_are_one_for_each_class() {
    let folder = Folder::new();
    let socket = folder.path("nbd.sock");
    let api = format!("unix:{}", folder.path("api.sock"));
    for (granted, of_latency) in [(1, 0), (2, 1)] {
        let text = format!(
            "listen = [\"127.0.0.1:0\"]\napi = \"{api}\"\n\
             [limits]\nio_queues_per_controller = {granted}\n\
             [devices.disk]\ntype = \"ram\"\nsize = \"16M\"\n\
             [[subsystems]]\nnqn = \"nqn.2026-11.io.switchyard:default\"\n\
             allow_any_host = true\nnamespaces = [{{ nsid = 1, device = \"disk\" }}]\n"
        );
        let file = folder.write("target.toml", text);
        let mut serving = Serving::start(&["--config", &file]);
        while !serving.line().starts_with("API at ") {}
        let args = ["nbd", "--socket", &socket, "--target", serving.address()];
        let attached = Attached::start(&args);
        eventually("its queues are connected", || {
            let output = run(&["switch", "show", "--json", "--api", &api]);
            let seen: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            let cores = seen["cores"].as_array().unwrap();
            let queues = |class: &str| -> u64 {
                let of = |core: &serde_json::Value| core["classes"][class]["queues"].as_u64();
                cores.iter().map(|core| of(core).unwrap()).sum()
            };
            queues("latency") == of_latency && queues("throughput") == 1
        });
        assert_eq!(attached.detach(), Some(0));
    }
}

#[test]
fn copies_by_unmodified_clients_are_exact() {
    if !have(&["nbdcopy", "nbdinfo", "qemu-img", "qemu-io", "nbdkit"]) {
        return;
    }
    let folder = Folder::new();
    let input = folder.write("in", pattern(1, 16 << 20));
    let output = folder.path("out");
    let serving = Serving::small();
    let socket = folder.path("a socket & more.sock");
    for path in [None, Some("stm")] {
        let mut args = vec!["nbd", "--socket", &socket, "--target", serving.address()];
        args.extend(path.iter().flat_map(|path| ["--path", path]));
        let attached = Attached::start(&args);
        let info = succeeds("nbdinfo", &["--json", &attached.uri]);
        let info: serde_json::Value = serde_json::from_str(&info).unwrap();
        let export = &info["exports"][0];
        assert_eq!(export["export-size"], 16 << 20, "{info}");
        assert_eq!(export["can_multi_conn"], true, "{info}");
        // FUA, zeroes and discards, which do not change adjacent blocks; a different pattern fails.
        let commands = [
            "write -P 7 -f 0 64k",
            "write -P 9 64k 64k",
            "write -z 4k 8k",
            "discard 64k 32k",
            "flush",
            "read -P 7 0 4k",
            "read -P 0 4k 8k",
            "read -P 7 12k 52k",
            "read -P 0 64k 32k",
            "read -P 9 96k 32k",
        ];
        let commands = commands.iter().flat_map(|command| ["-c", command]);
        let arguments = ["-f", "raw"].into_iter().chain(commands);
        let arguments: Vec<_> = arguments.chain([&*attached.uri]).collect();
        succeeds("qemu-io", &arguments);
        succeeds("nbdcopy", &["--flush", &input, &attached.uri]);
        succeeds("nbdcopy", &[&attached.uri, &output]);
        assert!(std::fs::read(&output).unwrap() == pattern(1, 16 << 20));
        let compare = ["compare", "-f", "raw", "-F", "raw", &input, &attached.uri];
        succeeds("qemu-img", &compare);
        let image = folder.path("image.qcow2");
        let convert = ["convert", "-f", "raw", "-O", "qcow2", &attached.uri, &image];
        succeeds("qemu-img", &convert);
        // A part of the disk, by a filter of nbdkit over its client.
        let (part, uri) = (folder.path("part"), format!("uri={}", attached.uri));
        let copy = format!("nbdcopy \"$uri\" '{part}'");
        let range = ["offset=1M", "range=2M", "--run", &copy];
        let filter = ["-U", "-", "--filter=offset", "nbd", &uri];
        succeeds("nbdkit", &[&filter[..], &range].concat());
        assert!(std::fs::read(&part).unwrap() == pattern(1, 16 << 20)[1 << 20..3 << 20]);
        assert_eq!(attached.detach(), Some(0));
        assert!(!Path::new(&socket).exists());
    }
    let read = run(&["read", serving.address()]);
    assert!(read.stdout == pattern(1, 16 << 20), "the target has it");
}

/// Regression: the loss was final after the time-out. Every later request failed while the process
/// continued, also with an I/O path, whose submitters and dispatcher kept the error.
#[test]
fn a_target_that_comes_back_after_the_time_out_is_used_again() {
    if !have(&["nbdcopy"]) {
        return;
    }
    let folder = Folder::new();
    let disk = folder.write("disk.img", vec![0; 1 << 20]);
    let (serving, address, serve) = Serving::file(disk);
    let target = ["--target", &address, "--io-timeout", "1"];
    let paths = [None, Some("stm"), Some("2q"), Some("interrupt")];
    let attached = paths.map(|path| {
        let socket = folder.path(&format!("{}.sock", path.unwrap_or("nbd")));
        let path: Vec<_> = path.iter().flat_map(|path| ["--path", path]).collect();
        Attached::start(&[&["nbd", "--socket", &socket][..], &target, &path].concat())
    });
    let copies = |attached: &Attached| {
        let copy = Command::new("nbdcopy")
            .args([&attached.uri, &folder.path("copy")])
            .output();
        copy.unwrap().status.success()
    };
    assert!(attached.iter().all(copies));
    serving.signal("-KILL");
    drop(serving);
    assert!(!attached.iter().any(copies), "requests fail");
    let _serving = serve(&address);
    for attached in attached {
        eventually("it is used again", || copies(&attached));
        assert_eq!(attached.detach(), Some(0));
    }
}

/// Nice values of the threads of a process, by their names.
fn nice_values(process: u32) -> Vec<(String, i64)> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    // A thread that has just ended has no `/proc` files.
    let of = |folder: std::path::PathBuf| {
        let read = |file| std::fs::read_to_string(folder.join(file)).ok();
        let stat = read("stat")?;
        let (_, fields) = stat.rsplit_once(") ").unwrap();
        let nice = fields.split(' ').nth(16).unwrap();
        Some((read("comm")?.trim().to_owned(), nice.parse().unwrap()))
    };
    tasks.filter_map(|task| of(task.unwrap().path())).collect()
}

#[test]
fn the_threads_of_a_nice_attachment_leave_processors_to_others() {
    let folder = Folder::new();
    let serving = Serving::small();
    let socket = folder.path("nice.sock");
    let mut args = vec!["nbd", "--socket", &socket, "--target", serving.address()];
    args.extend(["--nice", "19"]);
    let attached = Attached::start(&args);
    let threads = nice_values(attached.child.id());
    let nice = |name: &str| threads.iter().find(|(thread, _)| thread.contains(name));
    for name in ["nbd", "switchyard-host"] {
        assert_eq!(nice(name).map(|(_, nice)| *nice), Some(19), "{threads:?}");
    }
    assert!(threads.iter().any(|(_, nice)| *nice < 19), "{threads:?}");
    assert_eq!(attached.detach(), Some(0));
}

/// The target is killed repeatedly under a verifying load. Requests wait, and no acknowledged write
/// is lost.
#[test]
fn a_killed_target_costs_time_and_nothing_else() {
    if !have(&["fio"]) {
        return;
    }
    let folder = Folder::new();
    let disk = folder.write("disk.img", vec![0; 32 << 20]);
    let (serving, address, serve) = Serving::file(disk);
    let socket = folder.path("nbd.sock");
    let attached = Attached::start(&["nbd", "--socket", &socket, "--target", &address]);
    let fio = Command::new("fio")
        .args([
            "--name=load",
            "--ioengine=nbd",
            "--rw=randwrite",
            "--bsrange=4k-64k",
        ])
        .args(["--size=32M", "--io_size=256M", "--iodepth=16"])
        .args([
            "--verify=crc32c",
            "--verify_backlog=256",
            "--verify_fatal=1",
            "--verify_state_save=0",
        ])
        .args(["--rate=32M,32M", &format!("--uri={}", attached.uri)])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let _serving = kill_under(fio, "err= 0", &attached, serving, serve);
    assert_eq!(attached.detach(), Some(0));
}

/// The same load on a file, whose requests have the class of their I/O priority.
#[test]
fn a_file_of_a_killed_target_keeps_its_content() {
    if !have(&["fio"]) {
        return;
    }
    let folder = Folder::new();
    let disk = folder.write("disk.img", vec![0; 32 << 20]);
    let (serving, address, serve) = Serving::file(disk);
    let (attached, mountpoint) = Attached::fuse(&folder, &address);
    let file = attached.uri.clone();
    assert_eq!(std::fs::metadata(&file).unwrap().len(), 32 << 20);
    let fio = Command::new("fio")
        .args(["--name=load", "--ioengine=psync", "--rw=randwrite"])
        .args(["--bsrange=4k-64k", "--size=32M", "--io_size=128M"])
        .args(["--direct=1", "--numjobs=2", "--offset_increment=16M"])
        .args([
            "--verify=crc32c",
            "--verify_backlog=256",
            "--verify_fatal=1",
        ])
        .args(["--verify_state_save=0", "--rate=32M,32M"])
        .arg(format!("--filename={file}"))
        .args(["--filesize=32M", "--size=16M"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let _serving = kill_under(fio, "err= 0", &attached, serving, serve);
    // The first signal does not close open files.
    let open = std::fs::File::open(&file).unwrap();
    let pid = attached.child.id().to_string();
    assert!(Command::new("kill").arg(&pid).status().unwrap().success());
    std::thread::sleep(Duration::from_millis(300));
    let mut buffer = [0; 4096];
    open.read_exact_at(&mut buffer, 0).unwrap();
    drop(open);
    assert_eq!(attached.detach(), Some(0));
    assert_eq!(std::fs::read_dir(&mountpoint).unwrap().count(), 0);
}

/// The same by vhost-user, with this program's own front end instead of a virtual machine.
#[test]
fn a_disk_of_a_killed_target_keeps_its_content() {
    let folder = Folder::new();
    let disk = folder.write("disk.img", vec![0; 32 << 20]);
    let (serving, address, serve) = Serving::file(disk);
    let socket = folder.path("vhost.sock");
    let attached = Attached::start(&["vhost", "--socket", &socket, "--target", &address]);
    assert_eq!(attached.uri, socket);
    let device = format!("vhost:{socket}");
    let load = program()
        .args(["bench", "--device", &device, "--verify", "--json"])
        .args(["--app", "a:rw=randrw,bs=8k,depth=16", "--seconds", "3"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let _serving = kill_under(load, "\"errors\": 0", &attached, serving, serve);
    assert_eq!(attached.detach(), Some(0));
    assert!(!Path::new(&socket).exists());
}

/// Processor time of a process, in kernel ticks of 10 ms.
fn ticks(process: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let times = fields.split(' ').skip(11).take(2);
    times.map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

/// Waits for a second in which the attachment uses no processor time. A polling attachment has
/// none.
fn becomes_idle(attached: &Attached) {
    let process = attached.child.id();
    eventually("it is idle", || {
        let before = ticks(process);
        std::thread::sleep(Duration::from_secs(1));
        ticks(process) - before <= 2
    });
}

#[test]
fn attachments_with_clients_that_ask_for_nothing_take_no_processor_time() {
    let folder = Folder::new();
    let serving = Serving::small();
    let target = ["--target", serving.address()];

    let socket = folder.path("nbd.sock");
    let attached = Attached::start(&[&["nbd", "--socket", &socket][..], &target].concat());
    let mut client = UnixStream::connect(&socket).unwrap();
    let begin = b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\0";
    client.write_all(begin).unwrap();
    client.read_exact(&mut [0; 18 + 10]).unwrap();
    let read = [&b"\x25\x60\x95\x13"[..], &[0; 20], &[0, 0, 16, 0]].concat();
    client.write_all(&read).unwrap();
    client.read_exact(&mut [0; 16 + 4096]).unwrap();
    becomes_idle(&attached);
    drop(client);
    assert_eq!(attached.detach(), Some(0));

    let socket = folder.path("vhost.sock");
    let attached = Attached::start(&[&["vhost", "--socket", &socket][..], &target].concat());
    let disk = load::vhost::VhostDisk::connect(Path::new(&socket)).unwrap();
    let driver = UringDriver::new(&reactor::uring::Options::default()).unwrap();
    let mut bench = testing::device::conformance::Bench::open(driver, &disk).unwrap();
    bench.read(0, 1).unwrap();
    becomes_idle(&attached);
    bench.close();
    drop(disk);
    assert_eq!(attached.detach(), Some(0));

    let (attached, _) = Attached::fuse(&folder, serving.address());
    let file = std::fs::File::open(&attached.uri).unwrap();
    file.read_exact_at(&mut [0; 4096], 0).unwrap();
    becomes_idle(&attached);
    drop(file);
    assert_eq!(attached.detach(), Some(0));
}

#[test]
fn a_back_end_that_is_killed_is_started_again_on_its_socket() {
    let folder = Folder::new();
    let socket = folder.path("vhost.sock");
    let args = ["vhost", "--socket", &socket, "--ram", "16M"];
    let first = Attached::start(&args);
    let output = program().arg("attach").args(args).output().unwrap();
    code(&output, 2);
    assert!(stderr(&output).contains("in use"), "{}", stderr(&output));
    drop(first);
    assert!(Path::new(&socket).exists(), "it was killed");
    assert_eq!(Attached::start(&args).detach(), Some(0));
}

#[test]
fn a_front_end_that_is_killed_is_started_again_on_its_socket() {
    let folder = Folder::new();
    let (socket, disk) = (
        folder.path("nbd.sock"),
        folder.write("disk", vec![0; 1 << 20]),
    );
    let args = ["nbd", "--socket", &socket, "--file", &disk];
    drop(Attached::start(&args));
    assert!(Path::new(&socket).exists(), "it was killed");
    assert_eq!(Attached::start(&args).detach(), Some(0));
}

#[test]
fn a_service_manager_is_told_when_clients_can_connect() {
    let folder = Folder::new();
    let path = folder.path("notify.sock");
    let manager = UnixDatagram::bind(&path).unwrap();
    let mut command = program();
    command.env("NOTIFY_SOCKET", &path);
    let socket = folder.path("nbd.sock");
    let attached = Attached::start_by(command, &["nbd", "--socket", &socket, "--ram", "1M"]);
    let mut text = [0; 64];
    let length = manager.recv(&mut text).unwrap();
    assert_eq!(&text[..length], b"READY=1");
    assert_eq!(attached.detach(), Some(0));
}

/// A guest of `e2e` has the driver; here the error contains the remedy. The test is skipped on a
/// machine with the driver, where the error does not occur.
#[test]
fn a_block_device_takes_the_driver_of_the_kernel() {
    if Path::new("/dev/ublk-control").exists() {
        return;
    }
    let output = run(&["attach", "ublk", "--ram", "16M", "--id", "5"]);
    code(&output, 2);
    let said = stderr(&output);
    assert!(said.contains("modprobe ublk_drv"), "{said}");
}

#[test]
fn what_cannot_be_attached_is_said() {
    let folder = Folder::new();
    let file = folder.write("file", "content");
    let long = folder.path(&"l".repeat(120));
    let socket = folder.path("nbd.sock");
    for (args, expected) in [
        (vec!["--socket", &socket], "--target"),
        (vec!["--ram", "1M"], "--socket"),
        (
            vec!["--socket", &socket, "--ram", "1M", "--null", "1M"],
            "cannot be used with",
        ),
        (
            vec!["--socket", &socket, "--ram", "1M", "--class", "X"],
            "class",
        ),
        (
            vec!["--socket", &socket, "--file", "/no/such/file"],
            "/no/such/file: No such file or directory (os error 2); check the path, or make a file: \
             truncate -s 1G /no/such/file",
        ),
        (vec!["--listen", "192.0.2.1:1", "--ram", "1M"], "loopback"),
        (
            vec!["--listen", "127.0.0.1", "--ram", "1M"],
            "127.0.0.1 is not HOST:PORT; use, for example, 127.0.0.1:10809",
        ),
        (
            vec!["--socket", &socket, "--target", "127.0.0.1:1"],
            "127.0.0.1:1",
        ),
        (
            vec!["--socket", "/no/such/folder/s", "--ram", "1M"],
            "create the directory",
        ),
        (
            vec!["--socket", &file, "--ram", "1M"],
            "a file that is not a socket exists; use another path, or remove",
        ),
        (vec!["--socket", &long, "--ram", "1M"], "use a shorter path"),
        (
            vec!["--socket", &socket, "--ram", "1M", "--cores", "999"],
            "999",
        ),
    ] {
        let output = program()
            .args(["attach", "nbd"])
            .args(&args)
            .output()
            .unwrap();
        code(&output, 2);
        assert!(
            stderr(&output).contains(expected),
            "{args:?}: {}",
            stderr(&output)
        );
    }
}

#[test]
fn the_attachment_is_described_as_json() {
    let mut child = program()
        .args(["attach", "nbd", "--listen", "127.0.0.1:0", "--null", "1G"])
        .args(["--class", "L", "--block-size", "512", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    // The object has several lines; it ends where the program does.
    let pid = child.id().to_string();
    let mut text = String::new();
    while !text.ends_with("}\n") {
        assert!(stdout.read_line(&mut text).unwrap() > 0, "{text}");
    }
    assert!(Command::new("kill").arg(&pid).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    code(&output, 0);
    let ready: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(ready["block_bytes"], 512, "{text}");
    assert_eq!(ready["class"], "latency", "{text}");
    assert!(
        ready["uri"]
            .as_str()
            .unwrap()
            .starts_with("nbd://127.0.0.1:")
    );
}

/// Regression: the process exited with success, and left a dead mount.
#[test]
fn a_mount_is_removed_where_no_file_descriptor_is_left() {
    let folder = Folder::new();
    let mountpoint = folder.path("files");
    std::fs::create_dir(&mountpoint).unwrap();
    let mut served = 0;
    for descriptors in 10..30 {
        let mut program = limited_program(&format!("ulimit -n {descriptors}"));
        let program = program.args(["attach", "fuse", &mountpoint, "--ram", "1M"]);
        let program = program.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = program.spawn().unwrap();
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        if line.starts_with("ready: ") {
            served += 1;
            succeeds("kill", &[&child.id().to_string()]);
        }
        let output = child.wait_with_output().unwrap();
        // The mount of a process that has ended cannot be read.
        let left = std::fs::read_dir(&mountpoint);
        assert!(left.is_ok(), "{descriptors}: {}", stderr(&output));
    }
    if served == 0 {
        block::skipped("files cannot be mounted here");
    }
}
