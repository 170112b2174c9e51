//! Open queues. A queue belongs to the thread that made it, so it lives with that thread, and a
//! handle of another thread does not find it.

use crate::{closed, host_error, os_error};
use host::{BlockError, Completion, HostError, IoSlice, Namespace, Queue};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

/// A bit of the tags of batches, beside those of single requests.
pub(crate) const BATCH: u64 = 1 << 63;

/// A bit of the tags of single reads, of which the data is handed out.
pub(crate) const READ: u64 = 1 << 62;

/// Bits of a batch's tag for the index of a request; those above number the batches.
const INDEX_BITS: u32 = 32;

/// Time after which a wait lets Python's handlers of signals run.
const SLICE: Duration = Duration::from_millis(100);

/// A queue with what was found done.
pub(crate) struct OpenQueue {
    handle: u64,
    pub(crate) queue: Queue,
    /// Single requests that are done and were not handed out.
    pub(crate) singles: VecDeque<Single>,
    /// Completions of the batch under way.
    pub(crate) batch: Vec<Completion>,
    /// A batch is under way, and perhaps waited for.
    batch_runs: bool,
    /// Number of the batch under way: what is done of those before is dropped.
    batches: u32,
}

/// A single request that is done. Its data is a copy, so that it keeps no buffer of the queue's.
pub(crate) struct Single {
    pub(crate) tag: u64,
    pub(crate) result: Result<(), BlockError>,
    /// Data of a read.
    pub(crate) data: Option<Vec<u8>>,
}

/// The name of a queue: valid on one thread.
#[derive(Clone, Copy)]
pub(crate) struct Handle {
    number: u64,
    thread: ThreadId,
}

thread_local! {
    static QUEUES: RefCell<Vec<OpenQueue>> = const { RefCell::new(Vec::new()) };
    /// Handles of queues that were closed while one was at work.
    static CLOSED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// Runs `f` on the queues of this thread.
///
/// # Errors
/// Where one of them is at work: Python may collect garbage whenever an object is made for that, and
/// runs its finalizers.
fn with_queues<T>(f: impl FnOnce(&mut Vec<OpenQueue>) -> PyResult<T>) -> PyResult<T> {
    QUEUES.with(|queues| {
        let Ok(mut queues) = queues.try_borrow_mut() else {
            let message = "a queue of this thread is in use; do not use queues in finalizers";
            return Err(PyRuntimeError::new_err(message));
        };
        let closed = CLOSED.take();
        queues.retain(|queue| !closed.contains(&queue.handle));
        f(&mut queues)
    })
}

/// Opens a queue on the calling thread by `make`.
pub(crate) fn open(
    namespace: &Namespace,
    make: impl FnOnce(&Namespace) -> Result<Queue, HostError>,
) -> PyResult<Handle> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let queue = make(namespace).map_err(host_error)?;
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let open = OpenQueue {
        handle: number,
        queue,
        singles: VecDeque::new(),
        batch: Vec::new(),
        batch_runs: false,
        batches: 0,
    };
    with_queues(|queues| {
        queues.push(open);
        Ok(())
    })?;
    Ok(Handle {
        number,
        thread: thread::current().id(),
    })
}

impl Handle {
    fn check(self) -> PyResult<()> {
        if self.thread == thread::current().id() {
            return Ok(());
        }
        let message = "the queue belongs to another thread; create one queue per thread";
        Err(os_error(1, message))
    }

    /// Runs a batch. One that a handler of a signal begins while another is waited for is refused: each
    /// would take completions of the other for its own.
    pub(crate) fn run_batch(self, run: impl FnOnce() -> PyResult<()>) -> PyResult<()> {
        let runs = |open: &mut OpenQueue| Ok(std::mem::replace(&mut open.batch_runs, true));
        if self.with(runs)? {
            let message = "a batch of this queue is in progress; use another queue in a signal \
                handler";
            return Err(PyRuntimeError::new_err(message));
        }
        let result = run();
        // A handler may have closed the queue.
        let _ = self.with(|open| {
            open.batch_runs = false;
            Ok(())
        });
        result
    }

    /// Runs `f` on the queue.
    pub(crate) fn with<T>(self, f: impl FnOnce(&mut OpenQueue) -> PyResult<T>) -> PyResult<T> {
        self.check()?;
        with_queues(|queues| {
            let mut all = queues.iter_mut();
            let open = all.find(|queue| queue.handle == self.number);
            f(open.ok_or_else(|| closed("queue"))?)
        })
    }

    /// Waits until as many requests more are done as are `missing`, or all are, at the longest so
    /// long. Python's handlers of signals run meanwhile; they may use the queue.
    pub(crate) fn wait(
        self,
        py: Python<'_>,
        timeout: Option<Duration>,
        missing: impl Fn(&OpenQueue) -> usize + Sync,
    ) -> PyResult<()> {
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let slice = left.map_or(SLICE, |left| left.min(SLICE));
            let wait = |open: &mut OpenQueue| {
                let waited = open.wait(missing(open), slice);
                let is_done = missing(open) == 0 || open.queue.outstanding() == 0;
                if waited.is_err() || !is_done {
                    open.tell();
                }
                waited.map(|()| is_done)
            };
            if py.detach(|| self.with(wait))? || left == Some(slice) {
                return Ok(());
            }
            py.check_signals()?;
        }
    }

    /// Closes the queue; requests under way end without an answer.
    pub(crate) fn close(self) -> PyResult<()> {
        self.check()?;
        let removed = QUEUES.try_with(|queues| {
            let Ok(mut queues) = queues.try_borrow_mut() else {
                // The next call for a queue of this thread closes it.
                CLOSED.with_borrow_mut(|closed| closed.push(self.number));
                return None;
            };
            let at = queues
                .iter()
                .position(|queue| queue.handle == self.number)?;
            Some(queues.swap_remove(at))
        });
        // A thread that ends has closed its queues.
        drop(removed);
        Ok(())
    }
}

/// The bytes of a read. Those of a queue through a switchboard are in memory that other threads know,
/// so they are copied.
pub(crate) fn content(data: &IoSlice) -> Cow<'_, [u8]> {
    data.bytes().map_or_else(
        || {
            let mut copy = vec![0; data.len()];
            data.copy_out(0, &mut copy);
            copy.into()
        },
        Cow::from,
    )
}

impl From<Completion> for Single {
    fn from(done: Completion) -> Self {
        let data = done
            .data
            .filter(|_| done.tag & READ != 0 && done.result.is_ok());
        Self {
            tag: done.tag & !READ,
            result: done.result,
            data: data.map(|data| content(&data).into_owned()),
        }
    }
}

impl OpenQueue {
    /// Keeps the descriptor readable while single requests are to be handed out.
    pub(crate) fn tell(&self) {
        if !self.singles.is_empty() {
            self.queue.raise();
        }
    }

    /// Returns the tag of a request of the batch under way.
    pub(crate) fn batch_tag(&self, index: usize) -> u64 {
        BATCH | u64::from(self.batches) << INDEX_BITS | index as u64
    }

    /// Returns the index of a request of a batch.
    pub(crate) fn batch_index(tag: u64) -> usize {
        usize::try_from(tag & ((1 << INDEX_BITS) - 1)).expect("a batch is in memory")
    }

    /// Ends the batch under way: gives up its requests with these indices that are not done.
    pub(crate) fn end_batch(&mut self, under_way: std::ops::Range<usize>) {
        for index in under_way {
            self.queue.cancel(self.batch_tag(index));
        }
        self.batch.clear();
        self.batches = (self.batches + 1) % (1 << (READ.trailing_zeros() - INDEX_BITS));
    }

    /// Waits until `min` requests more are done, or all are, at the longest so long; takes over all
    /// that are done.
    fn wait(&mut self, min: usize, timeout: Duration) -> PyResult<()> {
        let own = self.batch_tag(0) >> INDEX_BITS;
        for completion in self.queue.wait_for(min, timeout)? {
            if completion.tag & BATCH == 0 {
                self.singles.push_back(Single::from(completion));
            } else if completion.tag >> INDEX_BITS == own {
                self.batch.push(completion);
            }
        }
        Ok(())
    }
}
