//! The program under the limits of a process: open files and locked memory.

use crate::common::{Folder, Serving, limited_program, stderr};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

const SERVE: [&str; 4] = ["--listen", "127.0.0.1:0", "--ram", "16M"];

#[test]
fn serve_takes_the_hard_limit_of_open_files() {
    let limited = limited_program("ulimit -Sn 64 && ulimit -Hn 20000");
    let serving = Serving::start_by(limited, &SERVE);
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", serving.pid())).unwrap();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"))
        .unwrap();
    let numbers: Vec<_> = line.split_whitespace().skip(3).take(2).collect();
    assert_eq!(numbers, ["20000", "20000"]);
    serving.signal("-TERM");
    let (code, said) = serving.end();
    assert_eq!((code, said.as_str()), (Some(0), ""), "20000 are enough");
}

#[test]
fn serve_says_when_the_hard_limit_is_less_than_its_connections_need() {
    let serving = Serving::start_by(limited_program("ulimit -Sn 64 && ulimit -Hn 512"), &SERVE);
    serving.signal("-TERM");
    let (code, said) = serving.end();
    assert_eq!(code, Some(0));
    for part in ["may have 512 files", "limits.connections", "LimitNOFILE="] {
        assert!(said.contains(part), "{said}");
    }
}

/// The program with this limit on locked memory. The limit does not apply to a process that may
/// lock memory, so root changes to an otherwise unused user: the kernel sums the rings of a user's
/// processes.
fn with_locked_memory(kib: u32, folder: &Folder) -> Command {
    let mut command = limited_program(&format!("ulimit -l {kib}"));
    if rustix::process::geteuid().is_root() {
        let nobody_else = 70_000 + std::process::id() % 1_000_000;
        // The build directory may be accessible to root only.
        let program = folder.path("switchyard");
        // By another process: a file that is open for writing cannot be executed, and processes
        // started by other tests would inherit the open file.
        let copied = Command::new("cp")
            .args([env!("CARGO_BIN_EXE_switchyard"), &program])
            .status();
        assert!(copied.unwrap().success());
        let folder = std::path::Path::new(&program).parent().unwrap();
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
        let script = format!("ulimit -l {kib} && exec \"$0\" \"$@\"");
        command = Command::new("sh");
        command
            .args(["-c", &script, &program])
            .env_remove("SWITCHYARD_LOG")
            .current_dir("/")
            .uid(nobody_else)
            .gid(nobody_else)
            .stdin(std::process::Stdio::null());
    }
    command
}

/// Serves on one core, so that the number of rings is the number of cores.
fn serve_arguments() -> [String; 7] {
    let core = reactor::placement::allowed_cores().unwrap()[0];
    [
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--ram",
        "16M",
        "--cores",
    ]
    .map(str::to_owned)
    .into_iter()
    .chain([core.to_string()])
    .collect::<Vec<_>>()
    .try_into()
    .unwrap()
}

#[test]
fn what_containers_have_of_locked_memory_is_enough_to_serve() {
    let folder = Folder::new();
    let limited = with_locked_memory(64, &folder);
    // Only a user without other processes has the whole limit.
    if !rustix::process::geteuid().is_root() {
        block::skipped("other programs of this user may have taken its locked memory");
        return;
    }
    let arguments = serve_arguments();
    let arguments: Vec<_> = arguments[1..].iter().map(String::as_str).collect();
    let serving = Serving::start_by(limited, &arguments);
    serving.signal("-TERM");
    let (code, said) = serving.end();
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn without_locked_memory_it_says_what_to_do() {
    let folder = Folder::new();
    let output = with_locked_memory(0, &folder)
        .args(serve_arguments())
        // Kernels that do not count rings let it serve; then the end of its input ends it.
        .arg("--until-stdin-ends")
        .output()
        .unwrap();
    let said = stderr(&output);
    match output.status.code() {
        Some(0) => assert!(said.is_empty(), "{said}"),
        Some(2) => {
            for part in ["not enough locked memory", "ulimit -l", "LimitMEMLOCK="] {
                assert!(said.contains(part), "{said}");
            }
        }
        other => panic!("{other:?}: {said}"),
    }
}
