//! `switchyard share`, and the commands for devices, subsystems, namespaces, hosts and listeners.

use crate::common::attached::{have, succeeds};
use crate::common::{Folder, NQN, Serving, code, json, program, run, stderr, stdout};
use std::process::{Command, Output};
use testing::own_address;

const HOST: &str = "nqn.2026-11.io.example:db";

/// A target that shares nothing, with its API in `folder`.
struct Bed {
    folder: Folder,
    listen: String,
    api: String,
    serving: Option<Serving>,
}

impl Bed {
    fn new() -> Self {
        let folder = Folder::new();
        let api = format!("unix:{}", folder.path("api.sock"));
        let mut bed = Self {
            folder,
            listen: own_address(),
            api,
            serving: None,
        };
        bed.restart();
        bed
    }

    /// Kills the target, and starts it with the same file and state.
    fn restart(&mut self) {
        self.serving = None;
        let folder = self.folder.path("");
        let file = self.folder.write(
            "target.toml",
            format!(
                "listen = [\"{}\"]\napi = \"{}\"\ncores = [0]\n\
                 device_folders = [\"{}\", \"/dev\"]\n",
                self.listen,
                self.api,
                folder.trim_end_matches('/')
            ),
        );
        let state = self.folder.path("state.json");
        let mut serving = Serving::start(&["--config", &file, "--state", &state]);
        while !serving.line().starts_with("API at ") {}
        self.serving = Some(serving);
    }

    fn run(&self, args: &[&str]) -> Output {
        run(&[args, &["--api", &self.api]].concat())
    }

    /// Runs a command that succeeds without a message.
    #[track_caller]
    fn done(&self, args: &[&str]) -> String {
        let output = self.run(args);
        code(&output, 0);
        assert_eq!(stderr(&output), "");
        stdout(&output).trim_end().to_owned()
    }

    /// Runs a command that fails, and returns its message.
    #[track_caller]
    fn refused(&self, args: &[&str]) -> String {
        let output = self.run(args);
        code(&output, 2);
        stderr(&output)
    }

    /// Returns the subsystems that a host finds at this address.
    fn found(&self, address: &str, host: &str) -> String {
        let output = run(&["discover", address, "--host-nqn", host]);
        code(&output, 0);
        stdout(&output)
    }

    fn address(&self) -> &str {
        self.serving.as_ref().expect("it serves").address()
    }
}

#[test]
fn a_file_is_shared_by_one_command_and_survives_a_restart() {
    let mut bed = Bed::new();
    let disk = bed.folder.path("disk.img");
    let output = bed.run(&["share", &disk, "--size", "1M", "--to", HOST]);
    code(&output, 0);
    let (ip, port) = bed.address().split_once(':').unwrap();
    let (nqn, address) = ("nqn.2026-11.io.switchyard:disk.img", bed.address());
    assert_eq!(
        stdout(&output),
        format!(
            "serving {nqn} at {address} (1.00 MiB, 512-byte blocks)\n\
             on the host:  nvme connect -t tcp -a {ip} -s {port} -n {nqn}\n"
        )
    );
    assert!(
        stderr(&output).contains("listener add"),
        "{}",
        stderr(&output)
    );
    let ram = bed.run(&["share", "1M", "--to", "any", "--json"]);
    let ram = json(&ram);
    assert_eq!(
        (&ram["device"], &ram["block_bytes"]),
        (&"ram1".into(), &4096.into())
    );
    bed.restart();
    assert!(bed.found(bed.address(), HOST).contains(nqn));
    let other = bed.found(bed.address(), "nqn.2026-11.io.example:other");
    assert!(
        !other.contains(nqn) && other.contains("switchyard:ram1"),
        "{other}"
    );

    let again = bed.refused(&["share", &disk, "--to", HOST]);
    assert!(
        again.contains("is shared already, as nqn.2026-11.io.switchyard:disk.img"),
        "{again}"
    );
    let taken = bed.refused(&["share", "1M", "--to", "any", "--name", "ram1"]);
    assert!(taken.contains("--name"), "{taken}");
    let nobody = bed.refused(&["share", "1M"]);
    assert!(nobody.contains("--to"), "{nobody}");
    for (path, word) in [
        ("/etc/passwd", "device_folders"),
        (&*bed.folder.path("none"), "none"),
    ] {
        let outside = bed.refused(&["share", path, "--to", "any"]);
        assert!(outside.contains(word), "{outside}");
    }

    assert_eq!(
        bed.done(&["unshare", &disk]),
        format!("no longer serving {nqn}")
    );
    bed.done(&["unshare", "ram1"]);
    let gone = bed.refused(&["unshare", "ram1"]);
    assert!(gone.contains("subsystem list"), "{gone}");
    bed.restart();
    assert_eq!(bed.done(&["device", "list"]), "NAME  DEVICE  USED BY");
    assert_eq!(
        std::fs::metadata(&disk).unwrap().len(),
        1 << 20,
        "it keeps its content"
    );
}

#[test]
fn each_object_is_listed_shown_added_changed_and_removed() {
    let mut bed = Bed::new();
    bed.done(&[
        "device",
        "add",
        "fast",
        "--ram",
        "8M",
        "--set",
        "shared=true",
    ]);
    bed.done(&["subsystem", "add", NQN, "--serial", "X1"]);
    bed.done(&["namespace", "add", NQN, "fast", "--size", "1M"]);
    bed.done(&["namespace", "add", NQN, "fast", "--read-only"]);
    bed.done(&["namespace", "set", NQN, "1", "--size", "2M"]);
    bed.done(&["host", "add", NQN, HOST]);
    bed.done(&["host", "add", NQN, "any"]);
    bed.done(&["host", "remove", NQN, "any"]);
    bed.done(&["subsystem", "set", NQN, "--authentication", "tls"]);
    let key = bed.folder.path("key");
    code(&run(&["key", "tls", "new", "--output", &key]), 0);
    bed.done(&["host", "set", HOST, "--tls-key", &key]);
    bed.restart();
    for (args, words) in [
        (
            &["device", "list"][..],
            &["fast", "ram 8M", NQN, "1", "2"][..],
        ),
        (&["device", "show", "fast"], &["type: ram", "shared: true"]),
        (&["subsystem", "list"], &[NQN, "2", HOST, "tls"]),
        (&["subsystem", "show", NQN], &["serial: X1", HOST]),
        (&["namespace", "list"], &["fast", "2.00 MiB", "8.00 MiB"]),
        (&["namespace", "show", NQN, "2"], &["read_only: true"]),
        (&["host", "list", NQN], &[HOST]),
        (&["host", "show", HOST], &[NQN, "SHA-256", "api"]),
        (&["listener", "list"], &["off"]),
    ] {
        let text = bed.done(args);
        assert!(
            words.iter().all(|word| text.contains(word)),
            "{args:?}: {text}"
        );
        assert!(!text.contains("NVMeTLSkey"), "{text}");
        json(&bed.run(&[args, &["--json"]].concat()));
    }
    let in_use = bed.refused(&["device", "remove", "fast"]);
    assert!(in_use.contains("remove the namespace first"), "{in_use}");
    bed.done(&["host", "set", HOST, "--no-keys"]);
    bed.done(&["host", "remove", NQN, HOST]);
    bed.done(&["namespace", "remove", NQN, "1"]);
    bed.done(&["subsystem", "remove", NQN]);
    bed.done(&["device", "remove", "fast"]);
}

#[test]
fn objects_that_cannot_be_are_refused_with_a_remedy() {
    let bed = Bed::new();
    for (args, word) in [
        (&["device", "add", "x"][..], "--ram SIZE"),
        (
            &["device", "add", "x", "--ram", "1M", "--set", "sise=1"],
            "size",
        ),
        (&["device", "remove", "x"], "no device"),
        (&["namespace", "add", NQN, "x"], "no subsystem"),
        (&["host", "list", NQN], "subsystem list"),
        (&["host", "set", HOST], "--tls-key FILE"),
        (
            &["subsystem", "set", NQN, "--authentication", "x"],
            "chap+tls",
        ),
        (&["listener", "add", "localhost:1"], "address"),
    ] {
        let text = bed.refused(args);
        assert!(text.contains(word), "{args:?}: {text}");
    }
}

#[test]
fn listeners_come_and_go_and_are_kept() {
    let mut bed = Bed::new();
    code(&bed.run(&["share", "1M", "--to", "any"]), 0);
    let only = bed.address().to_owned();
    let last = bed.refused(&["listener", "remove", &only]);
    assert!(last.contains("add another listener first"), "{last}");
    let own = own_address();
    let added = bed.done(&["listener", "add", &own]);
    let bound = added
        .strip_prefix("listening on ")
        .expect("an address")
        .to_owned();
    assert!(bed.found(&bound, HOST).contains("switchyard:ram1"));
    let twice = bed.refused(&["listener", "add", &own]);
    assert!(twice.contains("already"), "{twice}");
    let foreign = bed.refused(&["listener", "add", "192.0.2.1:4420"]);
    assert!(foreign.contains("ip addr"), "{foreign}");
    assert!(bed.done(&["listener", "show", &bound]).contains("tls: off"));
    bed.done(&["listener", "set", &own, "--tls", "required"]);

    bed.restart();
    let listed = json(&bed.run(&["listener", "list", "--json"]));
    let mut listeners = listed["listeners"].as_array().unwrap().iter();
    let kept = listeners
        .find(|it| it["address"] == *own)
        .expect("it is kept");
    assert_eq!(kept["tls"], "required");
    let bound = kept["bound"].as_str().unwrap().to_owned();
    let plain = run(&["discover", &bound, "--host-nqn", HOST]);
    code(&plain, 2);

    bed.done(&["listener", "remove", &own]);
    let gone = bed.refused(&["listener", "remove", &own]);
    assert!(gone.contains("no listener on"), "{gone}");
    std::net::TcpStream::connect(&bound).expect_err("nobody listens");
    // SIGHUP merges the file's listeners with those of commands.
    bed.done(&["listener", "add", &own]);
    bed.done(&["listener", "remove", &bed.listen]);
    bed.restart();
    let listed = json(&bed.run(&["listener", "list", "--json"]));
    assert_eq!(listed["listeners"].as_array().unwrap().len(), 1);
    assert_eq!(listed["listeners"][0]["address"], *own);
}

#[test]
fn a_target_without_a_state_file_says_that_it_forgets() {
    let folder = Folder::new();
    let api = format!("unix:{}", folder.path("api.sock"));
    let args = ["--listen", "127.0.0.1:0", "--ram", "1M", "--api", &api];
    let mut serving = Serving::start(&args);
    while !serving.line().starts_with("API at ") {}
    let shared = run(&["share", "1M", "--to", "any", "--api", &api]);
    code(&shared, 0);
    assert!(
        stderr(&shared).contains("--state FILE"),
        "{}",
        stderr(&shared)
    );
}

/// A loop device, detached when dropped.
struct Loop(String);

impl Loop {
    fn over(file: &str) -> Option<Self> {
        let found = Command::new("losetup")
            .args(["--find", "--show", "--partscan", file])
            .output()
            .unwrap();
        if !found.status.success() {
            block::skipped(format_args!("no loop device: {}", stderr(&found)));
            return None;
        }
        Some(Self(stdout(&found).trim().to_owned()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.0]).status();
    }
}

#[test]
fn a_disk_in_use_or_with_data_is_refused() {
    if !have(&["losetup", "blkid", "mkfs.ext4", "mount"]) {
        return;
    }
    let bed = Bed::new();
    let file = bed.folder.write("disk.img", vec![0; 8 << 20]);
    let Some(disk) = Loop::over(&file) else {
        return;
    };
    let share = ["share", &disk.0, "--to", HOST];
    let below = bed.refused(&["share", &file, "--to", HOST]);
    assert!(below.contains(&format!("in use as {}", disk.0)), "{below}");
    succeeds("mkfs.ext4", &["-q", "-L", "keep", &disk.0]);
    let data = bed.refused(&share);
    assert!(data.contains("ext4 (filesystem) \"keep\""), "{data}");
    assert!(data.contains("--force"), "{data}");
    let added = ["device", "add", "disk", "--file", &disk.0];
    assert!(bed.refused(&added).contains("ext4"));

    let place = bed.folder.path("mounted");
    std::fs::create_dir(&place).unwrap();
    succeeds("mount", &[&disk.0, &place]);
    let mounted = bed.refused(&share);
    let forced = bed.refused(&[&share[..], &["--force"]].concat());
    succeeds("umount", &[&place]);
    assert!(
        mounted.contains(&format!("is mounted at {place}")),
        "{mounted}"
    );
    assert!(forced.contains("unmount it"), "{forced}");

    let forced = bed.run(&[&share[..], &["--force"]].concat());
    code(&forced, 0);
    assert!(stdout(&forced).contains("8.00 MiB, 512-byte blocks"));
    // Data of hosts is no reason to refuse a restart.
    let mut bed = bed;
    bed.restart();
    assert!(bed.found(bed.address(), HOST).contains("switchyard:loop"));
    bed.done(&["unshare", &disk.0]);
    drop(disk);

    // A partition table with one partition of 1 MiB.
    let mut table = vec![0; 8 << 20];
    table[446 + 4] = 0x83;
    table[446 + 8..446 + 12].copy_from_slice(&2048_u32.to_le_bytes());
    table[446 + 12..446 + 16].copy_from_slice(&2048_u32.to_le_bytes());
    table[510..512].copy_from_slice(&[0x55, 0xaa]);
    let file = bed.folder.write("parted.img", table);
    let disk = Loop::over(&file).expect("there was one");
    let parted = bed.refused(&["share", &disk.0, "--to", HOST]);
    // A kernel that reads no such tables has no partitions; `blkid` finds the table then.
    let found = ["has partitions: loop", "dos (partition table)"];
    assert!(found.iter().any(|text| parted.contains(text)), "{parted}");
}

/// Runs the program as the script of a shell does, to complete `last` after `words`.
fn completed(api: &str, words: &[&str], last: &str) -> Vec<String> {
    let words = [&["switchyard"], words, &["--api", api, last]].concat();
    let output = program()
        .env("SWITCHYARD_COMPLETE", "bash")
        .env("_CLAP_COMPLETE_INDEX", (words.len() - 1).to_string())
        .env("_CLAP_IFS", "\n")
        .arg("--")
        .args(words)
        .output()
        .unwrap();
    code(&output, 0);
    assert_eq!(stderr(&output), "");
    stdout(&output).lines().map(str::to_owned).collect()
}

#[test]
fn shells_complete_names_of_the_running_target() {
    let bed = Bed::new();
    code(&bed.run(&["share", "1M", "--to", HOST]), 0);
    let nqn = "nqn.2026-11.io.switchyard:ram1";
    for (words, last, name) in [
        (&["unshare"][..], "ra", "ram1"),
        (&["device", "show"], "", "ram1"),
        (&["subsystem", "show"], "nqn", nqn),
        (&["namespace", "show", nqn], "", "1"),
        (&["host", "show"], "nqn", HOST),
        (&["listener", "remove"], "", &bed.listen),
    ] {
        let found = completed(&bed.api, words, last);
        assert!(found.iter().any(|it| it == name), "{words:?}: {found:?}");
    }
    let nowhere = format!("unix:{}", bed.folder.path("none"));
    assert!(completed(&nowhere, &["device", "show"], "ra").is_empty());
    for shell in ["bash", "zsh", "fish"] {
        let script = run(&["completions", shell]);
        code(&script, 0);
        assert!(
            stdout(&script).contains("SWITCHYARD_COMPLETE"),
            "{}",
            stdout(&script)
        );
    }
    // Bash itself completes by its script.
    let path = std::path::Path::new(env!("CARGO_BIN_EXE_switchyard"));
    let script = format!(
        "PATH={}:$PATH; source <(switchyard completions bash); \
         COMP_WORDS=(switchyard device show --api {} ra); COMP_CWORD=5; \
         _clap_complete_switchyard switchyard ra {}; echo \"${{COMPREPLY[@]}}\"",
        path.parent().unwrap().display(),
        bed.api,
        bed.api
    );
    let output = Command::new("bash").args(["-c", &script]).output().unwrap();
    assert_eq!(stdout(&output).trim(), "ram1", "{}", stderr(&output));
}
