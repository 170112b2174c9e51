//! The thread that computes for hosts' DH-HMAC-CHAP, because the larger groups take up to some 10 ms,
//! and no core may be delayed by that.
//!
//! One for each process, at a low priority; it lives as long as the process.

use crate::limits::COMPUTATIONS_MAX;
use crate::op::OpKey;
use crate::results::Results;
use secure::chap::{Job, JobResult};
use std::io::{self, ErrorKind};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock, Weak};

/// The result of an operation.
pub(crate) type Computed = (OpKey, JobResult);

/// A job for a driver.
struct Task {
    key: OpKey,
    job: Job,
    results: Weak<Results<Computed>>,
}

/// Starts the thread. A core's thread must not start it, because it may be pinned to a core, and the
/// new thread would share that core.
///
/// # Errors
/// The kernel's reason.
pub fn prepare() -> io::Result<()> {
    tasks().map(drop)
}

/// Computes on the thread.
///
/// # Errors
/// `ResourceBusy` while [`COMPUTATIONS_MAX`] jobs wait, or there is no thread.
pub(crate) fn compute(key: OpKey, job: Job, results: &Arc<Results<Computed>>) -> io::Result<()> {
    let results = Arc::downgrade(results);
    let sent = tasks()?.try_send(Task { key, job, results });
    sent.map_err(|error| match error {
        TrySendError::Full(_) => ErrorKind::ResourceBusy.into(),
        TrySendError::Disconnected(_) => ErrorKind::BrokenPipe.into(),
    })
}

/// Computes on the calling thread.
pub(crate) fn run(job: Job) -> JobResult {
    job.run(&mut crate::fill_random)
}

fn tasks() -> io::Result<&'static SyncSender<Task>> {
    static TASKS: OnceLock<Result<SyncSender<Task>, ErrorKind>> = OnceLock::new();
    let tasks = TASKS.get_or_init(|| {
        let (sender, receiver) = sync_channel(COMPUTATIONS_MAX);
        let thread = std::thread::Builder::new().name("chap-host".to_owned());
        let started = thread.spawn(move || work(&receiver));
        started.map(|_| sender).map_err(|error| error.kind())
    });
    tasks.as_ref().map_err(|&kind| kind.into())
}

fn work(tasks: &Receiver<Task>) {
    crate::priority::lower_nice();
    for Task { key, job, results } in tasks {
        if results.strong_count() == 0 {
            continue;
        }
        let result = run(job);
        if let Some(results) = results.upgrade() {
            results.add((key, result));
        }
    }
}
