//! The attachments of a process, as its interface and its signals share them.

use super::{Attachments, AttachmentsAnswer};
use std::sync::Arc;
use tokio::task::{JoinError, spawn_blocking};

/// The attachments of a process. Calls of them block, so each takes a thread of the pool; changes take
/// no more than one of them together.
#[derive(Clone, Debug)]
pub(crate) struct SharedAttachments {
    attachments: Arc<dyn Attachments>,
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl SharedAttachments {
    pub(crate) fn new(attachments: Arc<dyn Attachments>) -> Self {
        Self {
            attachments,
            turn: Arc::default(),
        }
    }

    /// Makes a change once those before it are made: until then it takes no thread, so that questions
    /// find one however many changes wait. Once begun, it is finished even if the client goes away.
    pub(crate) async fn change<T: Send + 'static>(
        &self,
        change: impl FnOnce(&dyn Attachments) -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        let attachments = Arc::clone(&self.attachments);
        let turn = Arc::clone(&self.turn).lock_owned().await;
        let work = move || {
            let _turn = turn;
            change(&*attachments)
        };
        spawn_blocking(work).await
    }

    pub(crate) async fn snapshot(&self) -> Result<AttachmentsAnswer, JoinError> {
        let attachments = Arc::clone(&self.attachments);
        spawn_blocking(move || attachments.snapshot()).await
    }

    /// See [`Attachments::terminate`].
    pub(crate) fn terminate(&self) {
        self.attachments.terminate();
    }

    /// See [`Attachments::is_draining`].
    pub(crate) fn is_draining(&self) -> bool {
        self.attachments.is_draining()
    }
}
