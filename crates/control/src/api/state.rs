//! State that every route shares.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::task::spawn_blocking;

use crate::control::{ChangeError, Control};
use crate::snapshot::Snapshot;
use config::action::Action;
use config::schema::Configuration;

use super::error::ApiError;

/// State that every route shares.
#[derive(Clone, Debug)]
pub(super) struct ApiState {
    pub(super) control: Arc<Control>,
    /// The file that SIGHUP reads.
    pub(super) file: Option<PathBuf>,
}

impl ApiState {
    pub(super) fn configuration(&self) -> Arc<Configuration> {
        self.control.configuration()
    }

    /// Makes a change on a thread that may block. Once begun, it is finished even if the client
    /// goes away.
    pub(super) async fn change(
        &self,
        decide: impl FnOnce(&Configuration) -> Result<Vec<Action>, ChangeError> + Send + 'static,
    ) -> Result<Vec<Action>, ApiError> {
        let change = self.in_turn(|control| control.change_with(decide));
        change.await?.map_err(ApiError::from)
    }

    /// Runs `work` with the control plane, once the changes before it are made.
    pub(super) async fn in_turn<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Control) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let done = Arc::clone(&self.control).in_turn(work).await;
        done.map_err(|error| ApiError::internal(&error))
    }

    /// Makes this change.
    pub(super) async fn apply(&self, action: Action) -> Result<(), ApiError> {
        self.change(move |_| Ok(vec![action])).await.map(|_| ())
    }

    /// Asks the control plane for what is no change, on a thread that may block.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&Control) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let control = Arc::clone(&self.control);
        let answer = spawn_blocking(move || ask(&control)).await;
        answer.map_err(|error| ApiError::internal(&error))
    }

    pub(super) async fn snapshot(&self) -> Result<Snapshot, ApiError> {
        self.ask(Control::snapshot).await
    }
}
