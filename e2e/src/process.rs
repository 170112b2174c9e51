//! The program under test as a process: found or built, started, observed, ended.
//!
//! Owns every child that it starts: all children end with the test, also if it fails. The only
//! place in this crate with the command line of `switchyard`.

use crate::library::build_with;
use crate::limits::{COMMAND_DEADLINE, END_DEADLINE, POLL_INTERVAL, READY_DEADLINE};
use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

/// The subsystem that `switchyard serve` shares by default.
pub const DEFAULT_NQN: &str = "nqn.2026-11.io.switchyard:default";

/// Header and data digests that a host requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Digests {
    /// No digests.
    Off,
    /// Both digests.
    On,
}

/// Returns the path of the `switchyard` program: `SWITCHYARD_BIN` if set, otherwise built by cargo
/// with the profile of the running test, so that it is never older than the test.
///
/// # Errors
/// If `SWITCHYARD_BIN` is not a file, or the build fails.
pub fn switchyard_binary() -> Result<PathBuf> {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    if let Some(known) = BINARY.get() {
        return Ok(known.clone());
    }
    let binary = match std::env::var_os("SWITCHYARD_BIN") {
        Some(path) => PathBuf::from(path),
        None => build_binary()?,
    };
    if !binary.is_file() {
        bail!(
            "there is no program at {}: build it, or unset SWITCHYARD_BIN",
            binary.display()
        );
    }
    Ok(BINARY.get_or_init(|| binary).clone())
}

fn build_binary() -> Result<PathBuf> {
    let folder = build_with(&["--package", "switchyard", "--bin", "switchyard"])
        .context("build the program under test")?;
    Ok(folder.join("switchyard"))
}

/// A child process with its output so far. Killed when dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    stdout: Output,
    stderr: Output,
}

impl Process {
    /// Starts a program with its output captured.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(command: &mut Command) -> Result<Self> {
        Self::spawn(command.stdin(Stdio::null()))
    }

    /// Starts a program with an input that ends when the returned handle is dropped.
    ///
    /// # Errors
    /// Like [`start`](Self::start).
    pub fn start_with_input(command: &mut Command) -> Result<(Self, ChildStdin)> {
        let mut process = Self::spawn(command.stdin(Stdio::piped()))?;
        let input = process.child.stdin.take().context("input was piped")?;
        Ok((process, input))
    }

    fn spawn(command: &mut Command) -> Result<Self> {
        let name = format!("{command:?}");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("start {name}"))?;
        let stdout = Output::follow(child.stdout.take().context("standard output was piped")?);
        let stderr = Output::follow(child.stderr.take().context("standard error was piped")?);
        Ok(Self {
            name,
            child,
            stdout,
            stderr,
        })
    }

    /// Returns the standard output so far.
    pub fn stdout(&self) -> String {
        self.stdout.text()
    }

    /// Returns the standard error so far.
    pub fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// Waits until `found` returns a value for the output so far (standard output, standard error).
    ///
    /// # Errors
    /// If the process ends first, or the deadline passes; with all its output.
    pub fn wait_for<T>(
        &mut self,
        what: &str,
        deadline: Duration,
        found: impl Fn(&str, &str) -> Option<T>,
    ) -> Result<T> {
        let start = Instant::now();
        loop {
            // Reads the state before the text, so that text written before the end is seen.
            let ended = self.has_ended()?;
            if let Some(value) = found(&self.stdout(), &self.stderr()) {
                return Ok(value);
            }
            if let Some(status) = ended {
                bail!(
                    "{} ended with {status} before {what}\n{}",
                    self.name,
                    self.transcript()
                );
            }
            if start.elapsed() > deadline {
                bail!(
                    "{}: no {what} within {deadline:?}\n{}",
                    self.name,
                    self.transcript()
                );
            }
            sleep(POLL_INTERVAL);
        }
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// If the process has ended.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        kill_process(Pid::from_child(&self.child), signal)
            .with_context(|| format!("send {signal:?} to {}", self.name))
    }

    /// Stops it with SIGSTOP, and continues it after `time`.
    ///
    /// # Errors
    /// If the process has ended.
    pub fn stand_still(&self, time: Duration) -> Result<()> {
        self.signal(Signal::STOP)?;
        sleep(time);
        self.signal(Signal::CONT)
    }

    /// Kills it, and waits for its end.
    ///
    /// # Errors
    /// If it has already ended.
    pub fn kill(mut self) -> Result<()> {
        self.signal(Signal::KILL)?;
        self.wait(END_DEADLINE)?;
        Ok(())
    }

    /// Ends it with SIGTERM and requires success; returns its standard error.
    ///
    /// # Errors
    /// If it has already ended, does not end before the deadline, or fails.
    pub fn stop(mut self) -> Result<String> {
        self.signal(Signal::TERM)?;
        let status = self.wait(END_DEADLINE)?;
        if !status.success() {
            bail!("{} ended with {status}\n{}", self.name, self.transcript());
        }
        Ok(self.stderr())
    }

    /// Waits for the end of the process and of its output.
    ///
    /// # Errors
    /// If the deadline passes; with all its output.
    pub fn wait(&mut self, deadline: Duration) -> Result<ExitStatus> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.has_ended()? {
                return Ok(status);
            }
            if start.elapsed() > deadline {
                bail!(
                    "{} did not end within {deadline:?}\n{}",
                    self.name,
                    self.transcript()
                );
            }
            sleep(POLL_INTERVAL);
        }
    }

    /// Returns the exit status if it has ended; then its output is complete.
    ///
    /// # Errors
    /// If the system call fails.
    pub fn has_ended(&mut self) -> Result<Option<ExitStatus>> {
        let ended = self.child.try_wait().context("look at the child")?;
        if ended.is_some() {
            self.stdout.finish();
            self.stderr.finish();
        }
        Ok(ended)
    }

    /// Waits for the end and requires success; returns standard output.
    ///
    /// # Errors
    /// If the deadline passes or the process fails.
    pub fn succeed(mut self, deadline: Duration) -> Result<String> {
        let status = self.wait(deadline)?;
        if !status.success() {
            bail!("{} ended with {status}\n{}", self.name, self.transcript());
        }
        Ok(self.stdout())
    }

    pub(crate) fn transcript(&self) -> String {
        format!(
            "standard output:\n{}\nstandard error:\n{}",
            self.stdout(),
            self.stderr()
        )
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only for a process that has already ended, as intended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One output of a child, read by a thread so that the child never waits for its reader.
#[derive(Debug)]
struct Output {
    text: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

impl Output {
    fn follow(pipe: impl Read + Send + 'static) -> Self {
        let text = Arc::new(Mutex::new(String::new()));
        let sink = Arc::clone(&text);
        let reader = spawn(move || {
            let mut lines = BufReader::new(pipe);
            let mut line = Vec::new();
            while lines
                .read_until(b'\n', &mut line)
                .is_ok_and(|length| length > 0)
            {
                let mut sink = sink.lock().unwrap_or_else(PoisonError::into_inner);
                sink.push_str(&String::from_utf8_lossy(&line));
                line.clear();
            }
        });
        Self {
            text,
            reader: Some(reader),
        }
    }

    fn text(&self) -> String {
        self.text
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn finish(&mut self) {
        if let Some(reader) = self.reader.take() {
            // A reader that panicked has left the data read before.
            let _ = reader.join();
        }
    }
}

/// A running `switchyard serve`.
#[derive(Debug)]
pub struct Serve {
    process: Process,
    address: SocketAddr,
}

impl Serve {
    /// Starts a target on a free loopback port with these devices (`["--ram", "256M"]`), and waits
    /// until it reports its address.
    ///
    /// # Errors
    /// If it ends, or does not report its address before the deadline.
    pub fn start(devices: &[&str]) -> Result<Self> {
        Self::start_with(&[&["--listen", "127.0.0.1:0"], devices].concat())
    }

    /// Starts a target with these arguments, which include its address.
    ///
    /// # Errors
    /// Like [`Serve::start`].
    pub fn start_with(arguments: &[&str]) -> Result<Self> {
        let mut command = Command::new(switchyard_binary()?);
        command.arg("serve").args(arguments);
        let mut process = Process::start(&mut command)?;
        let address =
            process.wait_for("a line with its address", READY_DEADLINE, |stdout, _| {
                stdout.lines().find_map(parse_ready_line)
            })?;
        Ok(Self { process, address })
    }

    /// Starts a target at the address of a killed target, with retries while the port is in use:
    /// without a listener, connection attempts use source ports of the same range, possibly this
    /// very port. TCP then connects the port to itself for a moment.
    ///
    /// # Errors
    /// Like [`Serve::start`].
    pub fn start_again(arguments: &[&str]) -> Result<Self> {
        let end = Instant::now() + READY_DEADLINE;
        loop {
            match Self::start_with(arguments) {
                Err(error)
                    if format!("{error:#}").contains("Address already in use")
                        && Instant::now() < end =>
                {
                    sleep(POLL_INTERVAL);
                }
                other => return other,
            }
        }
    }

    /// Replaces the target by a process that takes it over; `arguments` are those of the target with
    /// its address.
    ///
    /// # Errors
    /// If it is not taken over, or does not end with exit code 0.
    pub fn take_over(&mut self, arguments: &[&str]) -> Result<()> {
        let next = Self::start_with(&[arguments, &["--take-over"]].concat())?;
        let before = std::mem::replace(self, next);
        before.process.succeed(END_DEADLINE).map(drop)
    }

    /// Returns its listen address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the current number of connections from hosts.
    ///
    /// # Errors
    /// If the system call fails.
    pub fn connections(&self) -> Result<usize> {
        self.peers().map(|peers| peers.len())
    }

    /// Returns the hosts' ends of these connections, in the form of `/proc/net/tcp`.
    ///
    /// # Errors
    /// If the system call fails.
    pub fn peers(&self) -> Result<BTreeSet<String>> {
        let table = std::fs::read_to_string("/proc/net/tcp").context("list connections")?;
        let port = format!(":{:04X}", self.address.port());
        // Number, local address, remote address, state: 01 is "established".
        let peer = |line: &str| {
            let mut columns = line.split_whitespace().skip(1);
            columns.next().filter(|local| local.ends_with(&port))?;
            let peer = columns.next()?;
            (columns.next() == Some("01")).then(|| peer.to_owned())
        };
        Ok(table.lines().filter_map(peer).collect())
    }

    /// Reloads the target's configuration file.
    ///
    /// # Errors
    /// If it has ended.
    pub fn reload(&self) -> Result<()> {
        self.process.signal(Signal::HUP)
    }

    /// Returns the process ID.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.process.child.id()
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// If it has ended.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        self.process.signal(signal)
    }

    /// Stops it with SIGSTOP, and continues it after `time`.
    ///
    /// # Errors
    /// If it has ended.
    pub fn stand_still(&self, time: Duration) -> Result<()> {
        self.process.stand_still(time)
    }

    /// Kills it, and waits for its end.
    ///
    /// # Errors
    /// If it has already ended.
    pub fn kill(self) -> Result<()> {
        self.process.kill()
    }

    /// Ends it with SIGTERM and requires exit code 0; returns its standard error.
    ///
    /// # Errors
    /// If it has already ended, does not end, or ends with another exit code.
    pub fn stop(self) -> Result<String> {
        self.process.stop()
    }
}

/// Parses the address in the line with which `switchyard serve` reports that it is ready:
/// `listening on 127.0.0.1:4420`, with any text after it.
pub fn parse_ready_line(line: &str) -> Option<SocketAddr> {
    let (_, rest) = line.split_once("listening on ")?;
    rest.split_whitespace().next()?.parse().ok()
}

/// Starts the independent host implementation against a target with namespace 1.
///
/// # Errors
/// If it cannot be started.
pub fn start_foreign_host(target: SocketAddr, options: &[&str]) -> Result<Process> {
    start_python("foreign_host.py", target, options)
}

/// Starts the independent implementation of DH-HMAC-CHAP against a target with namespace 1, with the
/// files of the host's secret and of the controller's.
///
/// # Errors
/// If it cannot be started.
pub fn start_foreign_chap(target: SocketAddr, secrets: [&str; 2]) -> Result<Process> {
    start_python("foreign_chap.py", target, &secrets)
}

fn start_python(script: &str, target: SocketAddr, options: &[&str]) -> Result<Process> {
    let mut host = Command::new("python3");
    // Leaves no compiled files.
    host.arg("-B");
    host.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(script));
    host.args([&target.ip().to_string(), &target.port().to_string()]);
    Process::start(host.arg(DEFAULT_NQN).args(options))
}

/// Runs the program under test, and returns its standard output.
///
/// # Errors
/// If the command fails or does not end.
pub fn switchyard(arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(switchyard_binary()?);
    Process::start(command.args(arguments))?.succeed(COMMAND_DEADLINE)
}

/// One namespace of a target, for the host commands of `switchyard`.
#[derive(Debug, Clone, Copy)]
pub struct Remote {
    /// The target's address.
    pub address: SocketAddr,
    /// Digests to request.
    pub digests: Digests,
}

impl Remote {
    fn command(self, arguments: &[&str]) -> Result<Command> {
        let mut command = Command::new(switchyard_binary()?);
        command.args(arguments).args(["--nqn", DEFAULT_NQN]);
        if self.digests == Digests::On {
            command.arg("--digests");
        }
        Ok(command)
    }

    /// `switchyard bench`: returns its JSON.
    ///
    /// # Errors
    /// If the command fails or does not end.
    pub fn bench(self, apps: &[&str], seconds: u32) -> Result<String> {
        self.start_bench(apps, seconds)?.succeed(COMMAND_DEADLINE)
    }

    /// `switchyard bench`, which writes its JSON to standard output.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start_bench(self, apps: &[&str], seconds: u32) -> Result<Process> {
        Process::start(&mut self.bench_command(apps, seconds)?)
    }

    /// `switchyard bench` through an I/O path: returns its JSON.
    ///
    /// # Errors
    /// If the command fails or does not end.
    pub fn bench_by_path(self, path: &str, apps: &[&str], seconds: u32) -> Result<String> {
        let mut command = self.bench_command(apps, seconds)?;
        command.args(["--path", path]);
        Process::start(&mut command)?.succeed(COMMAND_DEADLINE)
    }

    fn bench_command(self, apps: &[&str], seconds: u32) -> Result<Command> {
        let mut command = self.command(&["bench", "--target", &self.address.to_string()])?;
        for app in apps {
            command.args(["--app", app]);
        }
        command.args(["--seconds", &seconds.to_string(), "--warmup", "0"]);
        command.args(["--verify", "--json"]);
        Ok(command)
    }

    /// `switchyard discover`: returns its output.
    ///
    /// # Errors
    /// If the command fails or does not end.
    pub fn discover(self) -> Result<String> {
        let mut command = Command::new(switchyard_binary()?);
        command.args(["discover", &self.address.to_string()]);
        if self.digests == Digests::On {
            command.arg("--digests");
        }
        Process::start(&mut command)?.succeed(COMMAND_DEADLINE)
    }

    /// `switchyard write`: writes the file's content to the namespace at a byte offset.
    ///
    /// # Errors
    /// If the command fails or does not end.
    pub fn write(self, offset_bytes: u64, content: &Path) -> Result<()> {
        let mut command = self.command(&["write", &self.address.to_string()])?;
        command
            .args(["--offset", &offset_bytes.to_string(), "--input"])
            .arg(content);
        Process::start(&mut command)?.succeed(COMMAND_DEADLINE)?;
        Ok(())
    }

    /// `switchyard read`: reads bytes of the namespace at a byte offset into a file.
    ///
    /// # Errors
    /// If the command fails or does not end.
    pub fn read(self, offset_bytes: u64, length_bytes: u64, into: &Path) -> Result<()> {
        let mut command = self.command(&["read", &self.address.to_string()])?;
        command.args(["--offset", &offset_bytes.to_string()]);
        command
            .args(["--length", &length_bytes.to_string(), "--output"])
            .arg(into);
        Process::start(&mut command)?.succeed(COMMAND_DEADLINE)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_line_gives_the_address() {
        let address = Some("127.0.0.1:40123".parse().unwrap());
        assert_eq!(parse_ready_line("listening on 127.0.0.1:40123"), address);
        assert_eq!(
            parse_ready_line("  listening on 127.0.0.1:40123 (1 namespace)"),
            address
        );
        assert_eq!(parse_ready_line("listening on nowhere"), None);
        assert_eq!(parse_ready_line("listening on "), None);
        assert_eq!(parse_ready_line("starting"), None);
    }

    #[test]
    fn waiting_for_a_process_that_ends_tells_what_it_wrote() {
        let mut shell = Command::new("sh");
        let mut process =
            Process::start(shell.args(["-c", "echo so; echo why >&2; exit 3"])).unwrap();
        let error = process
            .wait_for("nothing", Duration::from_secs(30), |_, _| None::<()>)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("so\n") && error.contains("why\n") && error.contains('3'),
            "{error}"
        );
    }

    #[test]
    fn text_before_the_end_is_found_after_the_end() {
        let mut shell = Command::new("sh");
        let mut process = Process::start(shell.args(["-c", "echo here"])).unwrap();
        let found = process.wait_for("here", Duration::from_secs(30), |stdout, _| {
            stdout.contains("here").then_some(true)
        });
        assert!(found.unwrap());
    }
}
