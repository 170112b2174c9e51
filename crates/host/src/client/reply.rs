//! Answers of the host's thread to a waiting thread or task.

use block::BlockError;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

/// The answer to a piece of a call.
#[derive(Debug)]
pub(super) struct BlockingReply {
    pub(super) piece: usize,
    pub(super) result: Result<(), BlockError>,
    pub(super) data: Vec<u8>,
}

/// The receiver of the answer to a piece.
#[derive(Debug)]
pub(super) enum ReplyTo {
    /// A waiting thread.
    Caller(Sender<BlockingReply>),
    /// The task of a future, which is woken.
    Task(TaskReply),
}

impl ReplyTo {
    /// A reply to the task that takes its answers from `shared`.
    pub(super) fn task(shared: &Arc<ReplyState>) -> Self {
        Self::Task(TaskReply {
            shared: Some(Arc::clone(shared)),
        })
    }

    pub(super) fn answer(self, reply: BlockingReply) {
        match self {
            // A caller that gave up has dropped its receiver.
            Self::Caller(caller) => drop(caller.send(reply)),
            Self::Task(task) => task.answer(reply),
        }
    }
}

/// State shared by the host's thread and a task.
#[derive(Debug, Default)]
pub(super) struct ReplyState {
    answers: Mutex<Answers>,
}

#[derive(Debug, Default)]
struct Answers {
    /// Answers that the task has not taken; `None` for a piece that the thread dropped.
    arrived: Vec<Option<BlockingReply>>,
    waker: Option<Waker>,
}

/// The thread's end of a piece: wakes the task, even if it is dropped without an answer.
#[derive(Debug)]
pub(super) struct TaskReply {
    shared: Option<Arc<ReplyState>>,
}

impl TaskReply {
    fn answer(mut self, reply: BlockingReply) {
        if let Some(shared) = self.shared.take() {
            shared.put(Some(reply));
        }
    }
}

impl Drop for TaskReply {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.take() {
            shared.put(None);
        }
    }
}

impl ReplyState {
    fn put(&self, answer: Option<BlockingReply>) {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.arrived.push(answer);
        let waker = answers.waker.take();
        drop(answers);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Takes the answers that have arrived. If there are none, the next one wakes `waker`.
    pub(super) fn take(&self, waker: &Waker) -> Vec<Option<BlockingReply>> {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        if answers.arrived.is_empty() {
            answers.waker = Some(waker.clone());
        }
        std::mem::take(&mut answers.arrived)
    }
}
