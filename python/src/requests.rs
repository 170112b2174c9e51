//! Open queues. A queue belongs to the thread that made it, so it lives with that thread, and a
//! handle of another thread does not find it.

use crate::{closed, os_error};
use host::{BlockError, Completion, HostError, Namespace, Queue, QueueOptions};
use pyo3::prelude::*;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, ThreadId};

/// A bit of the tags of batches, beside those of single requests.
pub(crate) const BATCH: u64 = 1 << 63;

/// A bit of the tags of single reads, of which the data is handed out.
pub(crate) const READ: u64 = 1 << 62;

/// A queue with what was found done.
pub(crate) struct OpenQueue {
    handle: u64,
    pub(crate) queue: Queue,
    /// Single requests that are done and were not handed out.
    pub(crate) singles: VecDeque<Single>,
    /// Completions of the batch under way.
    pub(crate) batch: Vec<Completion>,
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
}

/// Opens a queue on the calling thread.
pub(crate) fn open(namespace: &Namespace, options: &QueueOptions) -> Result<Handle, HostError> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let queue = namespace.queue_with(options)?;
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let open = OpenQueue {
        handle: number,
        queue,
        singles: VecDeque::new(),
        batch: Vec::new(),
    };
    QUEUES.with_borrow_mut(|queues| queues.push(open));
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
        let message = "a queue of another thread: make one for each thread";
        Err(os_error(1, message))
    }

    /// Runs `f` on the queue.
    pub(crate) fn with<T>(self, f: impl FnOnce(&mut OpenQueue) -> PyResult<T>) -> PyResult<T> {
        self.check()?;
        QUEUES.with_borrow_mut(|queues| {
            let mut all = queues.iter_mut();
            let open = all.find(|queue| queue.handle == self.number);
            f(open.ok_or_else(|| closed("queue"))?)
        })
    }

    /// Closes the queue; requests under way end without an answer.
    pub(crate) fn close(self) -> PyResult<()> {
        self.check()?;
        let removed = QUEUES.try_with(|queues| {
            let mut queues = queues.borrow_mut();
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

impl From<Completion> for Single {
    fn from(done: Completion) -> Self {
        let data = done
            .data
            .filter(|_| done.tag & READ != 0 && done.result.is_ok());
        Self {
            tag: done.tag & !READ,
            result: done.result,
            data: data.map(|data| data.bytes().unwrap_or_default().to_vec()),
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

    /// Waits until `min` requests more are done, or all are, at the longest so long; takes over all
    /// that are done.
    pub(crate) fn wait(
        &mut self,
        min: usize,
        timeout: Option<std::time::Duration>,
    ) -> PyResult<()> {
        let done = match timeout {
            None => self.queue.wait(min)?,
            Some(timeout) => self.queue.wait_for(min, timeout)?,
        };
        for completion in done {
            if completion.tag & BATCH == 0 {
                self.singles.push_back(Single::from(completion));
            } else {
                self.batch.push(completion);
            }
        }
        Ok(())
    }
}
