//! Every app of a load in its own process.
//!
//! The leader starts this program once per app, with its own command line and the number of the
//! app. A follower prints `ready` when its threads can start, reads the start time from its input
//! (`start NANOSECONDS` of the monotonic clock, which all processes share), and prints its report.
//! A follower stops when its input ends, so none outlives its leader.

use crate::{App, FollowerStart, LoadReport, Stage};
use anyhow::{Context as _, Result, anyhow, bail};
use base::{Nanos, Time};
use reactor::clock::monotonic;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The argument that gives a follower its app.
const FOLLOWER: &str = "--follower";

/// Time between the announcement of the start and the start: followers poll for it ten times a
/// second.
const START_AHEAD: Nanos = Nanos::from_millis(300);

/// Interval at which the leader checks its stop flag and shows progress.
const LOOK: Duration = Duration::from_millis(100);

/// Most bytes kept of a follower's stderr.
const STDERR_BYTES_MAX: u64 = 64 << 10;

/// Starts a process for each app, and all loads together. `stop` ends them early; the results until
/// then are kept.
///
/// `warmup` and `measured` are the spans of the load. `progress` receives its stage and the time
/// since its start; `warn` receives the stderr output of followers that delivered a report.
///
/// # Errors
/// A process without a report, with its output.
pub fn lead(
    apps: &[App],
    [warmup, measured]: [Duration; 2],
    stop: &AtomicBool,
    warn: &dyn Fn(&str),
    progress: &mut dyn FnMut(Stage, Duration),
) -> Result<LoadReport> {
    let (events, inbox) = channel();
    let mut followers = Vec::new();
    for (index, app) in apps.iter().enumerate() {
        followers.push(Follower::start(index, &app.name, &events)?);
    }
    drop(events);
    let progress = &mut |start: Option<Instant>| {
        let (stage, elapsed) = Stage::at(start, warmup, measured);
        progress(stage, elapsed);
    };
    let reports = gather(&mut followers, &inbox, stop, warn, progress)?;
    Ok(LoadReport::merged(reports))
}

enum Event {
    Ready,
    /// A follower's complete output after `ready`.
    Ended(usize, String),
}

/// A process that loads one app, killed when dropped.
struct Follower {
    app: String,
    process: Child,
    /// Closing it ends the load.
    stdin: Option<ChildStdin>,
    stderr: Option<JoinHandle<String>>,
}

impl Follower {
    fn start(index: usize, app: &str, events: &Sender<Event>) -> Result<Self> {
        let program =
            std::env::current_exe().context("cannot determine the path of this program")?;
        let mut process = Command::new(&program)
            .args(std::env::args_os().skip(1))
            .args([FOLLOWER, &index.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let stdout = process.stdout.take().expect("it was asked for");
        let stderr = process.stderr.take().expect("it was asked for");
        let mut follower = Self {
            app: app.to_owned(),
            stdin: process.stdin.take(),
            process,
            stderr: None,
        };
        let events = events.clone();
        let threads = || std::thread::Builder::new().name(format!("{app} output"));
        let listen = move || listen(index, stdout, &events);
        threads().spawn(listen).context("cannot start a thread")?;
        let read = move || {
            let mut text = Vec::new();
            // On a read error, the text ends there.
            let _ = stderr.take(STDERR_BYTES_MAX).read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        };
        let reader = threads().spawn(read).context("cannot start a thread")?;
        follower.stderr = Some(reader);
        Ok(follower)
    }

    /// Returns the report after the output has ended, or the reason for its absence.
    fn report(&mut self, text: &str, warn: &dyn Fn(&str)) -> Result<LoadReport> {
        self.stdin = None;
        let status = self.process.wait().context("cannot wait for a process")?;
        let said = self.stderr.take().and_then(|reader| reader.join().ok());
        let said = said.unwrap_or_default();
        let report = serde_json::from_str(text);
        match (status.code(), report) {
            (Some(0 | 1), Ok(report)) => {
                // The follower's warnings are passed on.
                warn(&said);
                Ok(report)
            }
            _ => Err(anyhow!(
                "the process of app \"{}\" failed ({status}): {}",
                self.app,
                said.trim().trim_start_matches("error: ")
            )),
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        // Fails only if the process has already ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn listen(index: usize, stdout: ChildStdout, events: &Sender<Event>) {
    let mut stdout = BufReader::new(stdout);
    let mut text = String::new();
    // A broken output counts as ended; parsing the text detects missing parts.
    let read = stdout.read_line(&mut text);
    if read.is_ok() && text == "ready\n" {
        text.clear();
        let _ = events.send(Event::Ready);
    }
    let _ = stdout.read_to_string(&mut text);
    let _ = events.send(Event::Ended(index, text));
}

/// Starts all followers together once all are ready, and waits for their reports.
fn gather(
    followers: &mut [Follower],
    inbox: &Receiver<Event>,
    stop: &AtomicBool,
    warn: &dyn Fn(&str),
    progress: &mut dyn FnMut(Option<Instant>),
) -> Result<Vec<LoadReport>> {
    let mut reports: Vec<Option<LoadReport>> = followers.iter().map(|_| None).collect();
    let (mut ready, mut ended, mut failure) = (0, 0, None);
    let mut started = None;
    while ended < followers.len() {
        match inbox.recv_timeout(LOOK) {
            Ok(Event::Ready) => {
                ready += 1;
                if ready == followers.len() {
                    let start = monotonic() + START_AHEAD;
                    for stdin in followers.iter_mut().filter_map(|f| f.stdin.as_mut()) {
                        // Fails if the follower has ended; its report contains the reason.
                        let _ = writeln!(stdin, "start {}", start.0);
                    }
                    started = Some(Instant::now() + START_AHEAD.into());
                }
            }
            Ok(Event::Ended(index, text)) => {
                ended += 1;
                match followers[index].report(&text, warn) {
                    Ok(report) => reports[index] = Some(report),
                    Err(error) => {
                        // The other followers cannot replace its result.
                        failure = failure.or(Some(error));
                        stop.store(true, Ordering::Relaxed);
                    }
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => bail!(
                "a thread that reads the output of a \
                process panicked"
            ),
        }
        if stop.load(Ordering::Relaxed) {
            for follower in followers.iter_mut() {
                follower.stdin = None;
            }
        }
        progress(started);
    }
    if let Some(failure) = failure {
        return Err(failure);
    }
    Ok(reports.into_iter().flatten().collect())
}

/// Runs as a follower: runs the app of this number by `load`, from the leader's start time.
///
/// `print` writes to the leader, which also reads the report from there.
///
/// # Errors
/// As a load within one process.
pub fn follow(
    apps: &[App],
    index: usize,
    print: fn(std::fmt::Arguments<'_>) -> Result<()>,
    load: impl FnOnce(&[App], FollowerStart, &AtomicBool) -> Result<LoadReport>,
) -> Result<LoadReport> {
    let threads = |apps: &[App]| apps.iter().map(|app| app.count).sum();
    let app = apps.get(index).context("no app with this index")?;
    let stop = Arc::new(AtomicBool::new(false));
    let (starts, start) = channel();
    let stopping = Arc::clone(&stop);
    let hear = move || hear(&starts, &stopping);
    let listener = std::thread::Builder::new().name("leader".to_owned());
    listener.spawn(hear).context("cannot start a thread")?;
    let led = FollowerStart {
        threads_before: threads(&apps[..index]),
        threads: threads(apps),
        ready: Box::new(move || print(format_args!("ready\n")).is_ok()),
        start,
    };
    let report = load(std::slice::from_ref(app), led, &stop)?;
    let json = serde_json::to_string(&report).context("cannot make JSON")?;
    print(format_args!("{json}\n"))?;
    Ok(report)
}

fn hear(starts: &Sender<Time>, stop: &AtomicBool) {
    for line in std::io::stdin().lock().lines() {
        let nanos = line
            .ok()
            .and_then(|line| line.strip_prefix("start ")?.parse().ok());
        match nanos {
            Some(nanos) => drop(starts.send(Time(nanos))),
            None => break,
        }
    }
    stop.store(true, Ordering::Relaxed);
}
