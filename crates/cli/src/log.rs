//! The log on stderr.
//!
//! Dataplane threads log too, and must not block on a full pipe. So a separate thread writes the
//! lines, from a bounded queue. Lines are dropped and counted when the queue is full or stderr
//! returns an error.

use anyhow::{Context as _, Result, anyhow};
use base::printable;
use std::fmt;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tracing::field::Field;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::fmt::format::{self, Writer};
use tracing_subscriber::fmt::{FormatFields, MakeWriter};

/// Capacity of the queue in lines.
const LINES_MAX: usize = 4096;

/// Longest wait for the queue to empty at process exit.
const FLUSH_TIME: Duration = Duration::from_secs(1);

/// The queue of the process.
static QUEUE: OnceLock<SyncSender<Item>> = OnceLock::new();

/// Dropped lines that were not reported yet.
static DROPPED: AtomicU64 = AtomicU64::new(0);

enum Item {
    /// A line.
    LogLine(Vec<u8>),
    /// Everything before it has been written when this is answered.
    Flush(SyncSender<()>),
}

/// The writer of the subscriber.
#[derive(Debug)]
struct Log(());

/// A line that is being made.
#[derive(Debug, Default)]
struct LogLine(Vec<u8>);

/// Formats an event's message and fields on one line, with control characters escaped, because they
/// may contain text from peers.
fn fields() -> impl for<'a> FormatFields<'a> + 'static {
    let field = |line: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug| {
        let value = format!("{value:?}");
        match field.name() {
            "message" => line.write_str(&printable(&value)),
            name => write!(line, "{name}={}", printable(&value)),
        }
    };
    format::debug_fn(field).delimited(" ")
}

/// Logs by `filter`, or the environment variable `SWITCHYARD_LOG`, or `default`. Lines are queued
/// until [`begin`] is called.
///
/// # Errors
/// An invalid filter.
pub fn start(filter: Option<&str>, default: &str) -> Result<()> {
    let from_env = || {
        std::env::var("SWITCHYARD_LOG")
            .ok()
            .filter(|filter| !filter.is_empty())
    };
    let filter = filter.map(str::to_owned).or_else(from_env);
    let filter = filter.unwrap_or_else(|| default.to_owned());
    let parsed = EnvFilter::builder().parse(&filter).map_err(|error| {
        anyhow!(
            "invalid log filter \"{filter}\" ({error}); use a level such as info, or \
             MODULE=LEVEL,... (--log, or the environment variable SWITCHYARD_LOG)"
        )
    })?;
    let (queue, lines) = mpsc::sync_channel(LINES_MAX);
    if QUEUE.set(queue).is_ok() {
        *waiting() = Some(lines);
    }
    tracing_subscriber::fmt()
        .with_env_filter(parsed)
        .fmt_fields(fields())
        .with_writer(Log(()))
        .with_ansi(io::IsTerminal::is_terminal(&io::stderr()))
        .init();
    Ok(())
}

/// Starts the writing thread, once.
///
/// # Errors
/// A thread that cannot be created.
pub fn begin() -> Result<()> {
    let Some(lines) = waiting().take() else {
        return Ok(());
    };
    let thread = std::thread::Builder::new().name("log".to_owned());
    let write = move || write_lines(&lines, io::stderr());
    thread.spawn(write).context("cannot start a thread")?;
    Ok(())
}

/// The lines, before their thread has them.
fn waiting() -> MutexGuard<'static, Option<Receiver<Item>>> {
    static LINES: Mutex<Option<Receiver<Item>>> = Mutex::new(None);
    LINES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits up to 1 s until the logged lines are written.
pub fn flush() {
    if begin().is_err() {
        return;
    }
    let (done, is_done) = mpsc::sync_channel(1);
    let asked = QUEUE.get().map(|queue| queue.try_send(Item::Flush(done)));
    if let Some(Ok(())) = asked {
        // A stderr without a reader is not waited for.
        let _: Result<(), RecvTimeoutError> = is_done.recv_timeout(FLUSH_TIME);
    }
}

fn write_lines(lines: &Receiver<Item>, mut out: impl Write) {
    for item in lines {
        match item {
            Item::LogLine(line) => {
                let dropped = DROPPED.swap(0, Ordering::Relaxed);
                let told = match dropped {
                    0 => Ok(()),
                    _ => writeln!(out, "{dropped} log lines dropped"),
                };
                if told.and_then(|()| out.write_all(&line)).is_err() {
                    DROPPED.fetch_add(dropped + 1, Ordering::Relaxed);
                }
            }
            // The caller may have gone on.
            Item::Flush(done) => drop(done.try_send(())),
        }
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = LogLine;

    fn make_writer(&'a self) -> LogLine {
        LogLine::default()
    }
}

impl Write for LogLine {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for LogLine {
    fn drop(&mut self) {
        let line = std::mem::take(&mut self.0);
        let sent = QUEUE.get().map(|queue| queue.try_send(Item::LogLine(line)));
        if !matches!(sent, Some(Ok(()))) {
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::sync::Arc;

    /// A peer's name could forge lines of the log.
    #[test]
    fn text_of_a_peer_neither_makes_lines_nor_commands_a_terminal() {
        let path = block::temporary("log");
        let file = File::create(&path).expect("a file");
        let subscriber = tracing_subscriber::fmt()
            .fmt_fields(fields())
            .with_ansi(false)
            .with_writer(Arc::new(file))
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            let name = "a\nERROR b\u{1b}[2J\u{9b}";
            tracing::warn!(host = name, peer = %name, "{name} is refused");
        });
        let log = std::fs::read_to_string(&path).expect("a file");
        let shown = r"a\nERROR b\u{1b}[2J\u{9b}";
        let end = format!(" {shown} is refused host=\"{shown}\" peer={shown}\n");
        assert!(log.ends_with(&end), "{log}");
        assert_eq!(log.lines().count(), 1, "{log}");
    }

    /// Refuses everything at first, as a full disk does, and then nothing.
    struct Disk {
        refuses: u32,
        written: SyncSender<Vec<u8>>,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.refuses > 0 {
                self.refuses -= 1;
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.written.send(bytes.to_vec()).expect("it is read");
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_a_full_disk_refuses_is_counted_and_told_when_there_is_room() {
        let (queue, lines) = mpsc::sync_channel(8);
        let (written, text) = mpsc::sync_channel(64);
        for line in ["a\n", "b\n", "c\n"] {
            let sent = queue.send(Item::LogLine(line.into()));
            sent.expect("there is room");
        }
        drop(queue);
        write_lines(
            &lines,
            Disk {
                refuses: 2,
                written,
            },
        );
        let text: Vec<u8> = text.iter().flatten().collect();
        let text = String::from_utf8_lossy(&text);
        assert!(text.ends_with("log lines dropped\nc\n"), "{text}");
    }
}
