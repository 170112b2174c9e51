//! External events in the life of a target process: signals under load, suspension, a full disk for
//! its log, a file that disappears, a service manager.

use crate::common;
use crate::common::attached::Attached;
use crate::common::{
    Folder, NQN, Serving, code, eventually, logging_program, pattern, program, run, stderr,
    to_signal,
};
use block::BlockError;
use host::{Host, RequestError, Subsystem};
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const BLOCK: usize = 4096;

/// Threads that write concurrently, each to its own blocks.
const WRITERS: u64 = 4;

/// Blocks per thread.
const BLOCKS: u64 = 64;

/// A host that quickly detects the loss of its target, with short time-outs.
fn connect(serving: &Serving) -> (Host, Subsystem) {
    connect_with(serving, Duration::from_secs(1))
}

fn connect_with(serving: &Serving, keep_alive: Duration) -> (Host, Subsystem) {
    let host = Host::builder()
        .keep_alive(keep_alive)
        .loss_timeout(Some(Duration::from_secs(20)))
        .build()
        .unwrap();
    let subsystem = host.connect(serving.address(), NQN).unwrap();
    (host, subsystem)
}

/// Writes and verifies until it is stopped or fails. Returns true if everything succeeded.
fn work(subsystem: &Subsystem, writer: u64, stop: &AtomicBool, done: &AtomicU64) -> bool {
    let namespace = subsystem.namespace(1).unwrap();
    let mut read = vec![0; BLOCK];
    for round in 0.. {
        if stop.load(Ordering::Relaxed) {
            return true;
        }
        let offset = (writer * BLOCKS + round % BLOCKS) * BLOCK as u64;
        let written = pattern(writer << 32 | round, BLOCK);
        let answered =
            namespace.write(offset, &written).is_ok() && namespace.read(offset, &mut read).is_ok();
        if !answered {
            return false;
        }
        assert!(read == written, "writer {writer}, round {round}");
        done.fetch_add(1, Ordering::Relaxed);
    }
    true
}

#[test]
fn sigterm_under_load_answers_what_is_under_way_and_ends() {
    let serving = Serving::small();
    let host = Host::builder()
        .loss_timeout(Some(Duration::from_secs(1)))
        .build()
        .unwrap();
    let subsystem = host.connect(serving.address(), NQN).unwrap();
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (subsystem, stop, done) = (&subsystem, &stop, &done);
            scope.spawn(move || work(subsystem, writer, stop, done));
        }
        eventually("the load runs", || done.load(Ordering::Relaxed) > 100);
        serving.signal("-TERM");
        let (code, said) = serving.end();
        assert_eq!(code, Some(0), "{said}");
    });
}

/// While the process is suspended, no host is served; afterwards all hosts are served, and nothing
/// is lost, although keep-alive timers of both sides have expired meanwhile.
#[test]
fn a_target_that_is_stopped_for_a_while_goes_on() {
    let serving = Serving::small();
    let keep_alive = Duration::from_millis(500);
    let (_host, subsystem) = connect_with(&serving, keep_alive);
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (subsystem, stop, done) = (&subsystem, &stop, &done);
                scope.spawn(move || work(subsystem, writer, stop, done))
            })
            .collect();
        eventually("the load runs", || done.load(Ordering::Relaxed) > 100);
        serving.signal("-STOP");
        std::thread::sleep(keep_alive * 4);
        serving.signal("-CONT");
        let before = done.load(Ordering::Relaxed);
        eventually("the load goes on", || {
            done.load(Ordering::Relaxed) > before + 100
        });
        stop.store(true, Ordering::Relaxed);
        for writer in writers {
            assert!(writer.join().unwrap(), "a request failed");
        }
    });
    serving.signal("-TERM");
    let (code, said) = serving.end();
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn a_full_disk_for_the_log_disturbs_nobody() {
    let mut shell = Command::new("sh");
    let script = "exec \"$0\" --log debug \"$@\" 2>/dev/full";
    shell.args(["-c", script, env!("CARGO_BIN_EXE_switchyard")]);
    let serving = Serving::start_by(shell, &["--listen", "127.0.0.1:0", "--ram", "16M"]);
    let (_host, subsystem) = connect(&serving);
    let namespace = subsystem.namespace(1).unwrap();
    let (written, mut read) = (pattern(1, BLOCK), vec![0; BLOCK]);
    namespace.write(0, &written).unwrap();
    namespace.read(0, &mut read).unwrap();
    assert!(read == written);
    serving.signal("-TERM");
    assert_eq!(serving.end().0, Some(0));
}

/// Makes a configuration file invalid: each SIGHUP then logs a line of 9 KB about it.
fn break_config(config: &str) {
    let text = std::fs::read_to_string(config).unwrap();
    std::fs::write(config, format!("{text}{} = 1\n", "x".repeat(9000))).unwrap();
}

/// Regression: a full log pipe blocked every thread that logged.
#[test]
fn a_log_that_nobody_reads_disturbs_nobody() {
    let folder = Folder::new();
    let config = folder.write(
        "target.toml",
        format!(
            "listen = [\"127.0.0.1:0\"]\n[devices.m]\ntype = \"ram\"\nsize = \"16M\"\n\
             [[subsystems]]\nnqn = \"{NQN}\"\nallow_any_host = true\n\
             namespaces = [{{ nsid = 1, device = \"m\" }}]\n"
        ),
    );
    let path = folder.path("pipe");
    assert!(
        Command::new("mkfifo")
            .arg(&path)
            .status()
            .unwrap()
            .success()
    );
    let mut shell = Command::new("sh");
    let script = "exec \"$0\" \"$@\" 2<>\"$PIPE\"";
    shell.args(["-c", script, env!("CARGO_BIN_EXE_switchyard")]);
    shell.env("PIPE", &path);
    let serving = Serving::start_by(shell, &["--config", &config]);
    let pipe = std::fs::File::open(&path).unwrap();
    break_config(&config);
    // It holds 16 pages, and each line takes three.
    eventually("the pipe is full", || {
        serving.signal("-HUP");
        rustix::io::ioctl_fionread(&pipe).unwrap() > 5 * 9000
    });
    for _ in 0..10 {
        serving.signal("-HUP");
        write_and_read(&serving);
    }
    serving.signal("-TERM");
    assert_eq!(serving.end().0, Some(0));
}

/// Closes the reader of its outputs, and then starts it with neither output open.
#[test]
fn a_target_without_outputs_serves() {
    let folder = Folder::new();
    let mut shell = Command::new("sh");
    let script = "mkfifo \"$PIPE\"; true <\"$PIPE\" & exec \"$0\" \"$@\" 2>\"$PIPE\"";
    shell.args(["-c", script, env!("CARGO_BIN_EXE_switchyard")]);
    shell.env("PIPE", folder.path("pipe"));
    let args = ["--listen", "127.0.0.1:0", "--ram", "8M", "--log", "trace"];
    let serving = Serving::start_by(shell, &args);
    write_and_read(&serving);
    serving.signal("-TERM");
    assert_eq!(serving.end().0, Some(0));

    let socket = format!("unix:{}", folder.path("api.sock"));
    let mut shell = Command::new("sh");
    let script = "exec \"$0\" serve \"$@\" >&- 2>&-";
    shell.args(["-c", script, env!("CARGO_BIN_EXE_switchyard")]);
    let mut child = shell.args(args).args(["--api", &socket]).spawn().unwrap();
    eventually("it answers", || {
        run(&["config", "show", "--api", &socket]).status.success()
    });
    // The descriptors of its outputs must not refer to a newly opened file, to which it would write
    // its log.
    for descriptor in [1, 2] {
        let path = format!("/proc/{}/fd/{descriptor}", child.id());
        assert_eq!(
            std::fs::read_link(path).unwrap().to_str(),
            Some("/dev/null")
        );
    }
    let pid = to_signal(child.id());
    assert!(Command::new("kill").arg(pid).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

fn write_and_read(serving: &Serving) {
    let (_host, subsystem) = connect(serving);
    let namespace = subsystem.namespace(1).unwrap();
    let (written, mut read) = (pattern(1, BLOCK), vec![0; BLOCK]);
    namespace.write(0, &written).unwrap();
    namespace.read(0, &mut read).unwrap();
    assert!(read == written);
}

/// A target whose folder, with its log, is a file system of 2 MiB; prints the reason and returns
/// `None` if that cannot be made.
fn in_a_small_file_system(folder: &str, args: &[&str]) -> Option<Serving> {
    let mount = "mount -t tmpfs -o size=2m tmpfs \"$DIR\"";
    let script = format!("{mount} && exec \"$0\" \"$@\" 2>>\"$DIR/log\"");
    let attempts: [&[&str]; 2] = [&["--mount"], &["--mount", "--user", "--map-root-user"]];
    for namespaces in attempts {
        let mut probe = Command::new("unshare");
        let probe = probe.args(namespaces).args(["sh", "-c", mount]);
        if !probe.env("DIR", folder).status().unwrap().success() {
            continue;
        }
        let mut command = Command::new("unshare");
        command.args(namespaces).args(["sh", "-c", &script]);
        command.arg(env!("CARGO_BIN_EXE_switchyard"));
        command.env("DIR", folder);
        return Some(Serving::start_by(command, args));
    }
    block::skipped("no mount namespace");
    None
}

/// Its log and its device are in a full file system: a write fails, other writes succeed, log lines
/// are dropped, and their number is logged once there is room.
#[test]
fn a_full_file_system_of_the_log_and_of_a_device() {
    let folder = Folder::new();
    let inside = folder.path("small");
    std::fs::create_dir(&inside).unwrap();
    let config = folder.write(
        "target.toml",
        format!(
            "listen = [\"127.0.0.1:0\"]\n[devices.disk]\ntype = \"file\"\n\
             path = \"{inside}/disk\"\ncreate = true\nsize = \"16M\"\nblock_size = 4096\n\
             [[subsystems]]\nnqn = \"{NQN}\"\nallow_any_host = true\n\
             namespaces = [{{ nsid = 1, device = \"disk\" }}]\n"
        ),
    );
    let args = ["--config", &config, "--log", "info"];
    let Some(serving) = in_a_small_file_system(&inside, &args) else {
        return;
    };
    let (_host, subsystem) = connect(&serving);
    let namespace = subsystem.namespace(1).unwrap();
    let piece = pattern(1, 16 * BLOCK);
    let mut filled = 0;
    let error = loop {
        match namespace.write(filled * piece.len() as u64, &piece) {
            Ok(()) => filled += 1,
            Err(error) => break error,
        }
    };
    assert!(
        matches!(error, RequestError::Device(BlockError::NoSpace)),
        "{error:?}"
    );
    assert!(filled > 8, "{filled} pieces");
    let single = pattern(2, BLOCK);
    // Fill it up to the last page, so that no log line fits.
    let mut last = filled * piece.len() as u64;
    while namespace.write(last, &single).is_ok() {
        last += BLOCK as u64;
    }
    let mut read = vec![0; piece.len()];
    for index in 0..filled {
        namespace
            .read(index * piece.len() as u64, &mut read)
            .unwrap();
        assert!(read == piece, "piece {index}");
    }
    namespace.write(0, &single).unwrap();
    namespace.flush().unwrap();
    // A line that does not fit fills the last page of the log; its remainder is dropped.
    let log = format!("/proc/{}/root{inside}/log", serving.pid());
    break_config(&config);
    eventually("the log is full", || {
        serving.signal("-HUP");
        let length = std::fs::metadata(&log).unwrap().len();
        length > 0 && length.is_multiple_of(4096)
    });
    namespace.write(0, &single).unwrap();
    namespace.discard(0, 64 << 10).unwrap();
    eventually("the dropped lines are counted", || {
        serving.signal("-HUP");
        let text = std::fs::read(&log).unwrap();
        String::from_utf8_lossy(&text).contains("log lines dropped")
    });
    serving.signal("-TERM");
    assert_eq!(serving.end().0, Some(0));
}

/// A load that is suspended for a while finds everything unchanged.
#[test]
fn a_host_that_is_stopped_for_a_while_goes_on() {
    let serving = Serving::small();
    let mut bench = program();
    bench.args(["bench", "--target", serving.address(), "--verify", "--json"]);
    bench.args(["--app", "a:rw=randrw,bs=4k,depth=8"]);
    bench.args(["--seconds", "2", "--warmup", "0"]);
    bench.stdout(std::process::Stdio::piped());
    let bench = bench.spawn().unwrap();
    let send = |name: &str| {
        let mut kill = Command::new("kill");
        let status = kill.args([name, bench.id().to_string().as_str()]).status();
        assert!(status.unwrap().success());
    };
    std::thread::sleep(Duration::from_millis(500));
    send("-STOP");
    std::thread::sleep(Duration::from_secs(1));
    send("-CONT");
    let output = bench.wait_with_output().unwrap();
    code(&output, 0);
    assert!(common::json(&output)["apps"][0]["iops"].as_f64().unwrap() > 0.0);
    serving.signal("-TERM");
    let (code, said) = serving.end();
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn a_file_that_disappears_is_served_until_the_end_and_one_that_is_cut_fails_reads() {
    let folder = Folder::new();
    let path = folder.write("disk", vec![0; 1 << 20]);
    let serving = Serving::start(&["--listen", "127.0.0.1:0", "--file", &path]);
    let (_host, subsystem) = connect(&serving);
    let namespace = subsystem.namespace(1).unwrap();
    let other = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let (written, mut read) = (pattern(1, BLOCK), vec![0; BLOCK]);
    namespace.write(0, &written).unwrap();
    namespace.flush().unwrap();
    namespace.read(0, &mut read).unwrap();
    assert!(read == written, "the file lives as long as it is open");
    other.set_len(0).unwrap();
    namespace.read(0, &mut read).unwrap_err();
    other.set_len(1 << 20).unwrap();
    namespace.read(0, &mut read).unwrap();
    assert!(read.iter().all(|&byte| byte == 0), "what was cut is gone");
    serving.signal("-TERM");
    let (ended, said) = serving.end();
    assert_eq!(ended, Some(0), "{said}");
    let again = run(&["serve", "--listen", "127.0.0.1:0", "--file", &path]);
    code(&again, 2);
    assert!(stderr(&again).contains(&path), "{}", stderr(&again));
}

#[test]
fn neither_a_pipe_nor_a_folder_is_waited_for() {
    let folder = Folder::new();
    let pipe = folder.path("pipe");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    for command in ["serve", "attach"] {
        let output = run(&[command, "--config", &folder.path("")]);
        code(&output, 2);
        let said = stderr(&output);
        assert!(said.contains("Is a directory"), "{said}");
    }
    for path in [pipe, folder.path("")] {
        let output = run(&["serve", "--listen", "127.0.0.1:0", "--file", &path]);
        code(&output, 2);
        let said = stderr(&output);
        assert!(said.contains("neither a regular file"), "{said}");
        let config = folder.write(
            "target.toml",
            format!(
                "listen = [\"127.0.0.1:0\"]\n[devices.d]\ntype = \"null\"\nsize = \"1M\"\n\
                 model = \"{path}\"\n"
            ),
        );
        let output = run(&["serve", "--config", &config]);
        code(&output, 2);
        let said = stderr(&output);
        assert!(said.contains("no regular file"), "{said}");
    }
}

/// Regression: it was refused, as if other users of the process waited for it.
#[test]
fn a_process_starts_by_what_a_program_writes_and_does_not_wait_for_it_again() {
    let folder = Folder::new();
    let pipe = folder.path("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let write = |text: String| {
        let pipe = pipe.clone();
        std::thread::spawn(move || std::fs::write(pipe, text).unwrap())
    };
    let config = folder.write(
        "target.toml",
        "listen = [\"127.0.0.1:0\"]\n[devices.d]\ntype = \"null\"\nsize = \"1M\"\n",
    );
    let writer = write(std::fs::read_to_string(config).unwrap());
    let log = folder.path("log");
    let serving = Serving::start_by(logging_program(&log), &["--config", &pipe]);
    writer.join().unwrap();
    serving.signal("-HUP");
    eventually("the pipe is refused", || {
        std::fs::read_to_string(&log)
            .unwrap()
            .contains("no regular file")
    });
    serving.signal("-TERM");
    assert_eq!(serving.end().0, Some(0));

    let socket = folder.path("nbd.sock");
    let writer = write(format!(
        "[[attachments]]\nname = \"a\"\nkind = \"nbd\"\nsocket = \"{socket}\"\nram = \"1M\"\n"
    ));
    let attached = Attached::start(&["--config", &pipe]);
    writer.join().unwrap();
    assert_eq!(attached.detach(), Some(0));
}

/// Regression: the end of the file was silently cut off.
#[test]
fn a_file_with_a_part_of_a_block_says_what_is_not_served() {
    let folder = Folder::new();
    let file = folder.write("odd", vec![0; 10_001]);
    let serving = Serving::start(&["--listen", "127.0.0.1:0", "--file", &file]);
    serving.signal("-TERM");
    let (code, said) = serving.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("the last 273 bytes"), "{said}");
}

/// The values that the kernel shows for each thread of a process.
fn of_threads(pid: u32, key: &str) -> Vec<String> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let mut values: Vec<String> = threads
        .map(|thread| {
            let status = std::fs::read_to_string(thread.unwrap().path().join("status")).unwrap();
            let line = status.lines().find(|line| line.starts_with(key)).unwrap();
            line.split_whitespace().last().unwrap().to_owned()
        })
        .collect();
    values.sort();
    values.dedup();
    values
}

#[test]
fn no_thread_keeps_capabilities_that_a_target_does_not_need() {
    let serving = Serving::small();
    assert_eq!(of_threads(serving.pid(), "NoNewPrivs"), ["1"]);
    // CAP_DAC_OVERRIDE, CAP_NET_BIND_SERVICE, CAP_IPC_LOCK and CAP_SYS_NICE.
    let most = 1 << 1 | 1 << 10 | 1 << 14 | 1 << 23;
    for key in ["CapEff", "CapPrm", "CapInh"] {
        for value in of_threads(serving.pid(), key) {
            let capabilities = u64::from_str_radix(&value, 16).unwrap();
            assert_eq!(capabilities & !most, 0, "{key} {value}");
        }
    }
}

/// All functions of a target work within the sandbox; access outside of it fails.
#[test]
fn a_confined_target_serves_and_reaches_nothing_else() {
    let folder = Folder::new();
    let disks = folder.path("disks");
    std::fs::create_dir(&disks).unwrap();
    let outside = folder.path("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(format!("{outside}/other"), vec![0; 1 << 20]).unwrap();
    std::fs::create_dir(folder.path("etc")).unwrap();
    let socket = folder.path("disks/api.sock");
    let toml = |more: &str| {
        let text = format!(
            "listen = [\"127.0.0.1:0\"]\napi = \"unix:{socket}\"\ncores = [0]\n\
             device_folders = [\"{disks}\"]\n\
             [devices.disk]\ntype = \"file\"\npath = \"{disks}/disk\"\ncreate = true\n\
             size = \"1M\"\n{more}\
             [[subsystems]]\nnqn = \"{NQN}\"\nallow_any_host = true\n\
             namespaces = [{{ nsid = 1, device = \"disk\" }}]\n"
        );
        folder.write("etc/target.toml", text)
    };
    let config = toml("");
    let first = std::fs::read_to_string(&config).unwrap();
    let state = folder.path("disks/state.json");
    let args = ["--config", &config, "--state", &state];
    let args = [&args[..], &["--confine", "landlock,seccomp"]].concat();
    let log = folder.path("log");
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec \"$0\" \"$@\" 2>\"$LOG\""]);
    shell.arg(env!("CARGO_BIN_EXE_switchyard")).env("LOG", &log);
    // LeakSanitizer inspects the process by ptrace, which the filter refuses.
    shell.env("LSAN_OPTIONS", "detect_leaks=0");
    let serving = Serving::start_by(shell, &args);
    assert_eq!(of_threads(serving.pid(), "Seccomp:"), ["2"]);
    let (_host, subsystem) = connect(&serving);
    let namespace = subsystem.namespace(1).unwrap();
    let (written, mut read) = (pattern(1, BLOCK), vec![0; BLOCK]);
    namespace.write(0, &written).unwrap();
    namespace.flush().unwrap();
    namespace.read(0, &mut read).unwrap();
    assert!(read == written);

    let api = format!("unix:{socket}");
    let tenant = ["tenant", "add", "t", "--host", "nqn.2026-11.io.example:t"];
    code(&run(&[&tenant[..], &["--api", &api]].concat()), 0);
    // The configuration may name the file, but the kernel refuses access.
    let more = format!("[devices.other]\ntype = \"file\"\npath = \"{outside}/other\"\n");
    toml(&more);
    serving.signal("-HUP");
    eventually("the refusal is logged", || {
        let log = std::fs::read_to_string(&log).unwrap();
        log.contains("is not in force") && log.contains("Permission denied")
    });
    folder.write(
        "etc/target.toml",
        format!("default_tenant = false\n{first}"),
    );
    serving.signal("-HUP");
    eventually("the changed file is in force", || {
        let shown = run(&["config", "show", "--json", "--api", &api]);
        let shown = common::json(&shown);
        assert!(shown["devices"]["other"].is_null());
        shown["default_tenant"] == false
    });
    serving.signal("-TERM");
    assert_eq!(serving.end().0, Some(0));
}

#[test]
fn a_service_manager_is_told_and_its_watchdog_fed() {
    let folder = Folder::new();
    let path = folder.path("notify.sock");
    let manager = UnixDatagram::bind(&path).unwrap();
    let next = || {
        let mut text = [0; 64];
        let length = manager.recv(&mut text).unwrap();
        String::from_utf8_lossy(&text[..length]).into_owned()
    };
    let mut command = program();
    command.envs([("NOTIFY_SOCKET", path.as_str()), ("WATCHDOG_USEC", "20000")]);
    let serving = Serving::start_by(command, &["--listen", "127.0.0.1:0", "--ram", "8M"]);
    assert_eq!(next(), "READY=1");
    assert_eq!(next(), "WATCHDOG=1");
    assert_eq!(next(), "WATCHDOG=1");
    serving.signal("-TERM");
    while next() != "STOPPING=1" {}
    let (ended, said) = serving.end();
    assert_eq!(ended, Some(0), "{said}");
}

/// Regression: a thread polled the cores without a pause, and reported each time that they hang.
#[test]
fn a_watchdog_without_a_time_is_none() {
    let folder = Folder::new();
    let path = folder.path("notify.sock");
    let manager = UnixDatagram::bind(&path).unwrap();
    let mut command = program();
    command.envs([("NOTIFY_SOCKET", path.as_str()), ("WATCHDOG_USEC", "0")]);
    let serving = Serving::start_by(command, &["--listen", "127.0.0.1:0", "--ram", "8M"]);
    code(&run(&["identify", serving.address()]), 0);
    serving.signal("-TERM");
    for expected in ["READY=1", "STOPPING=1"] {
        let mut text = [0; 64];
        let length = manager.recv(&mut text).unwrap();
        assert_eq!(String::from_utf8_lossy(&text[..length]), expected);
    }
    let (ended, said) = serving.end();
    assert_eq!(ended, Some(0), "{said}");
    assert!(!said.contains("watchdog"), "{said}");
}
