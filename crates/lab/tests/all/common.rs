//! Runs the real programs: `lab` until its end, and `switchyard`, which it finds as in normal use.

use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// The program `switchyard`: from the environment, or in the directory of `lab`.
pub(crate) fn switchyard() -> Command {
    let given = std::env::var_os("SWITCHYARD_BIN").map(PathBuf::from);
    let beside = || Path::new(env!("CARGO_BIN_EXE_lab")).with_file_name("switchyard");
    let path = given.unwrap_or_else(beside);
    assert!(
        path.is_file(),
        "{} is not here: cargo build, or name it with SWITCHYARD_BIN",
        path.display()
    );
    alone(Command::new(path))
}

/// Removes input and the caller's environment settings. Its temporary files are removed with the
/// test's, even if it is killed.
pub(crate) fn alone(mut command: Command) -> Command {
    command.env_remove("SWITCHYARD_LOG").stdin(Stdio::null());
    command.env("TMPDIR", block::temporary_folder("tmp"));
    command
}

/// Runs `lab` to its end.
pub(crate) fn run(args: &[&str]) -> Output {
    let mut command = alone(Command::new(env!("CARGO_BIN_EXE_lab")));
    command.args(args).output().expect("the program starts")
}

/// Measured seconds of a load: longer if a busy machine completed too little.
const SECONDS: [f64; 3] = [0.3, 3.0, 30.0];

/// Runs a load with increasing durations until the output is sufficient. Returns the last output.
pub(crate) fn run_until(
    is_enough: impl Fn(&Output) -> bool,
    run_for: impl Fn(f64) -> Output,
) -> Output {
    let mut last = None;
    for seconds in SECONDS {
        let output = last.insert(run_for(seconds));
        if is_enough(output) {
            break;
        }
    }
    last.expect("it ran")
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
pub(crate) fn code(output: &Output, expected: i32) {
    let told = || format!("{}{}", stdout(output), stderr(output));
    assert_eq!(output.status.code(), Some(expected), "{}", told());
}

#[track_caller]
pub(crate) fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}{}", stdout(output), stderr(output)))
}

/// `switchyard serve` with one namespace of 16 MiB in memory, killed when dropped.
pub(crate) struct Serving {
    child: Child,
    pub(crate) address: String,
}

impl Serving {
    pub(crate) fn small() -> Self {
        let mut program = switchyard();
        program.args(["serve", "--listen", "127.0.0.1:0", "--ram", "16M"]);
        let mut child = program.stdout(Stdio::piped()).spawn().expect("it starts");
        let mut line = String::new();
        let stdout = child.stdout.as_mut().expect("asked for");
        let read = BufReader::new(stdout).read_line(&mut line);
        read.expect("its output is read");
        let address = line.trim_end().strip_prefix("listening on ");
        let address = address.expect("it is ready").to_owned();
        Self { child, address }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A folder of one test, removed when dropped.
pub(crate) struct Folder(block::Folder);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(block::Folder::new())
    }

    pub(crate) fn path(&self, name: &str) -> String {
        let path = self.0.path().join(name);
        path.to_str().expect("a path of ours is text").to_owned()
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::write(&path, content).expect("a file can be written");
        path
    }
}
