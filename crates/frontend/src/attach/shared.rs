//! The attachments of a process as its HTTP interface and its signals use them.

use super::running::Running;
use super::snapshot::AttachmentsAnswer;
use std::sync::Arc;
use tokio::task::{JoinError, spawn_blocking};

/// The attachments of a process. Calls of them block, so each runs on a thread of the pool; changes
/// run one after the other.
#[derive(Clone, Debug)]
pub(crate) struct SharedAttachments {
    running: Arc<Running>,
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl SharedAttachments {
    pub(crate) fn new(running: Arc<Running>) -> Self {
        Self {
            running,
            turn: Arc::default(),
        }
    }

    /// Makes a change after those before it: until then it takes no thread, so that queries
    /// find one however many changes wait. Once begun, it is finished even if the client goes away.
    pub(crate) async fn change<T: Send + 'static>(
        &self,
        change: impl FnOnce(&Running) -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        let running = Arc::clone(&self.running);
        let turn = Arc::clone(&self.turn).lock_owned().await;
        let work = move || {
            let _turn = turn;
            change(&running)
        };
        spawn_blocking(work).await
    }

    pub(crate) async fn snapshot(&self) -> Result<AttachmentsAnswer, JoinError> {
        let running = Arc::clone(&self.running);
        spawn_blocking(move || running.snapshot()).await
    }

    /// See [`Running::terminate`].
    pub(crate) fn terminate(&self) {
        self.running.terminate();
    }

    /// See [`Running::is_draining`].
    pub(crate) fn is_draining(&self) -> bool {
        self.running.is_draining()
    }
}
