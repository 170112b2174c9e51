//! Runs the real program: until its end, or in the background until dropped.

// Each test program includes this module, and uses a part of it.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

pub mod attached;
pub mod attaching;

use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;
pub use testing::{eventually, own_address, pattern};

pub const NQN: &str = "nqn.2026-11.io.switchyard:default";

/// Longer than any working operation takes: beyond it, the program hangs.
const PATIENCE: Duration = Duration::from_secs(60);

pub fn program() -> Command {
    alone(Command::new(env!("CARGO_BIN_EXE_switchyard")))
}

/// Removes input and the caller's environment settings. Its temporary files are removed with the
/// test's, even if it is killed.
fn alone(mut command: Command) -> Command {
    command.env_remove("SWITCHYARD_LOG").stdin(Stdio::null());
    command.env("TMPDIR", block::temporary_folder("tmp"));
    command
}

/// The program under limits that the shell's `ulimit` sets.
pub fn limited_program(ulimit: &str) -> Command {
    let mut command = Command::new("sh");
    let script = format!("{ulimit} && exec \"$0\" \"$@\"");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_switchyard")]);
    alone(command)
}

/// The program with its log in this file.
pub fn logging_program(log: &str) -> Command {
    let mut command = Command::new("sh");
    let script = "exec \"$0\" \"$@\" 2>\"$LOG\"";
    command
        .args(["-c", script, env!("CARGO_BIN_EXE_switchyard")])
        .env("LOG", log);
    alone(command)
}

/// Runs the program to its end.
pub fn run(args: &[&str]) -> Output {
    program().args(args).output().expect("the program starts")
}

/// Measured seconds of a load: longer if a busy machine, or a program built with a sanitizer,
/// completed too little.
const SECONDS: [f64; 3] = [0.3, 3.0, 30.0];

/// Runs a load with increasing durations until the output is sufficient. Returns the last output.
pub fn run_until(is_enough: impl Fn(&Output) -> bool, run_for: impl Fn(f64) -> Output) -> Output {
    let mut last = None;
    for seconds in SECONDS {
        let output = last.insert(run_for(seconds));
        if is_enough(output) {
            break;
        }
    }
    last.expect("it ran")
}

/// Runs `switchyard bench --json` until each app has completed requests, or until it is refused.
pub fn bench(args: &[&str]) -> Output {
    bench_until(args, |report| {
        let mut apps = report["apps"].as_array().unwrap().iter();
        apps.all(|app| app["iops"] != 0.0)
    })
}

/// Runs `switchyard bench --json` until its report is sufficient, or until it is refused.
pub fn bench_until(args: &[&str], is_enough: impl Fn(&Value) -> bool) -> Output {
    run_until(
        |output| output.status.code() != Some(0) || is_enough(&json(output)),
        |seconds| {
            let seconds = seconds.to_string();
            let short = ["--seconds", &seconds, "--warmup", "0.1", "--json"];
            run(&[&["bench"], args, &short[..]].concat())
        },
    )
}

/// A load of one hour, with its output captured.
pub fn endless_bench(args: &[&str]) -> Child {
    program()
        .args(["bench", "--seconds", "3600", "--warmup", "0", "--json"])
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts")
}

/// Sends Ctrl-C, and waits for the end.
pub fn interrupt(child: Child) -> Output {
    let pid = child.id().to_string();
    let kill = Command::new("kill").args(["-INT", &pid]).status();
    assert!(kill.expect("kill runs").success());
    child.wait_with_output().expect("the program ends")
}

/// Runs the program to its end with `input` on stdin.
pub fn run_with_input(args: &[&str], input: &[u8]) -> Output {
    let mut child = program()
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut stdin = child.stdin.take().expect("asked for");
    let input = input.to_vec();
    // A thread, because the program may produce output before it has read everything.
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().expect("the program ends");
    writer.join().expect("the input was written");
    output
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
pub fn code(output: &Output, expected: i32) {
    let actual = output.status.code();
    assert_eq!(
        actual,
        Some(expected),
        "{}{}",
        stdout(output),
        stderr(output)
    );
}

#[track_caller]
pub fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}{}", stdout(output), stderr(output)))
}

/// `switchyard serve`, killed when dropped.
pub struct Serving {
    child: Child,
    stdout: BufReader<std::process::ChildStdout>,
    pub addresses: Vec<String>,
}

impl Serving {
    /// Starts it with these arguments, which must include port 0.
    pub fn start(args: &[&str]) -> Self {
        Self::start_by(program(), args)
    }

    /// The same by a command that executes the program.
    pub fn start_by(mut program: Command, args: &[&str]) -> Self {
        let mut child = program
            .arg("serve")
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("asked for"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("its output is read");
        let Some(address) = line.trim_end().strip_prefix("listening on ") else {
            let mut text = String::new();
            let mut stderr = child.stderr.take().expect("asked for");
            let _ = child.kill();
            let _ = stderr.read_to_string(&mut text);
            let _ = child.wait();
            panic!("it is not ready: {line}{text}");
        };
        let addresses = vec![address.to_owned()];
        Self {
            child,
            stdout,
            addresses,
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// One namespace in memory of 16 MiB.
    pub fn small() -> Self {
        Self::start(&["--listen", "127.0.0.1:0", "--ram", "16M"])
    }

    /// One namespace over a file, at an address where it can be restarted; returned with the
    /// address and a function that does so.
    pub fn file(disk: String) -> (Self, String, impl Fn(&str) -> Self) {
        let serve = move |address: &str| Self::start(&["--listen", address, "--file", &disk]);
        let serving = serve(&own_address());
        let address = serving.address().to_owned();
        (serving, address, serve)
    }

    pub fn address(&self) -> &str {
        &self.addresses[0]
    }

    /// Returns the next line of its output.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout
            .read_line(&mut line)
            .expect("its output is read");
        line.trim_end().to_owned()
    }

    pub fn signal(&self, name: &str) {
        let status = Command::new("kill")
            .args([name, &to_signal(self.child.id())])
            .status()
            .expect("kill runs");
        assert!(status.success());
    }

    /// Waits for its end; returns its exit code and stderr.
    pub fn end(mut self) -> (Option<i32>, String) {
        let mut status = None;
        eventually("it ends", || {
            status = self.child.try_wait().expect("it can be waited for");
            status.is_some()
        });
        let mut text = String::new();
        let mut stderr = self.child.stderr.take().expect("asked for");
        stderr
            .read_to_string(&mut text)
            .expect("its errors are read");
        (status.and_then(|status| status.code()), text)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A folder of one test, removed when dropped.
pub struct Folder(block::Folder);

impl Folder {
    pub fn new() -> Self {
        Self(block::Folder::new())
    }

    pub fn path(&self, name: &str) -> String {
        self.0
            .path()
            .join(name)
            .to_str()
            .expect("a path of ours is text")
            .to_owned()
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::write(Path::new(&path), content).expect("a file can be written");
        path
    }
}

/// A device model with a write cost of ten reads and this token rate.
pub fn device_model(tokens_per_second: u64) -> String {
    format!(
        "version = 1
[provenance]
device = \"a device of a test\"
write_price_measured = true
[prices.mixed]
read_millitokens = 1000
write_millitokens = 10000
[prices.read_only]
read_millitokens = 1000
[[curve]]
tokens_per_second = {tokens_per_second}
p50_ns = 100000
p95_ns = 100000
p99_ns = 100000
p999_ns = 100000
"
    )
}

/// A target of one core with one namespace, over a device of this name, kind (lines of TOML) and
/// token rate, with further configuration; returned with its HTTP interface.
pub fn serve_by_tokens(
    folder: &Folder,
    (name, kind): (&str, &str),
    tokens_per_second: u64,
    more: &str,
) -> (Serving, String) {
    let model = folder.write("model.toml", device_model(tokens_per_second));
    let socket = format!("unix:{}", folder.path("api.sock"));
    let file = folder.write(
        "target.toml",
        format!(
            "listen = [\"127.0.0.1:0\"]\napi = \"{socket}\"\ncores = [0]\n\
             [devices.{name}]\n{kind}\nmodel = \"{model}\"\n\
             [[subsystems]]\nnqn = \"{NQN}\"\nallow_any_host = true\n\
             namespaces = [{{ nsid = 1, device = \"{name}\" }}]\n{more}"
        ),
    );
    let mut serving = Serving::start(&["--config", &file]);
    while !serving.line().starts_with("API at ") {}
    (serving, socket)
}

/// Returns the ID to signal a process. ThreadSanitizer delays a signal until its thread makes a
/// known blocking call. The kernel's first choice, the main thread, waits in a plain system call,
/// so under ThreadSanitizer the ID is that of the thread that handles signals.
pub fn to_signal(process: u32) -> String {
    let mut takes_signals = None;
    if std::env::var_os("TSAN_OPTIONS").is_some() {
        let threads = std::fs::read_dir(format!("/proc/{process}/task"));
        let mut threads = threads.expect("it runs").flatten();
        takes_signals = threads.find(|thread| {
            let name = std::fs::read_to_string(thread.path().join("comm"));
            name.is_ok_and(|name| name.trim_end() == "control")
        });
    }
    takes_signals.map_or_else(
        || process.to_string(),
        |thread| thread.file_name().to_string_lossy().into_owned(),
    )
}

/// Returns the response of the HTTP interface, with its head.
pub fn request(mut stream: impl std::io::Read + std::io::Write, head: &str, body: &str) -> String {
    let length = body.len();
    write!(
        stream,
        "{head} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
