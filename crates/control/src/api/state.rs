//! State that every route shares.

use std::path::PathBuf;
use std::sync::Arc;

use crate::action::Action;
use crate::control::{ChangeError, Control};
use crate::dataplane::DataPlane;
use crate::model::Configuration;
use crate::snapshot::{Snapshot, TenantEvent};

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
        let control = Arc::clone(&self.control);
        let turn = self.control.turn().await;
        let work = move || {
            let _turn = turn;
            control.change_with(decide)
        };
        blocking(work).await?.map_err(ApiError::from)
    }

    /// Makes this change.
    pub(super) async fn apply(&self, action: Action) -> Result<(), ApiError> {
        self.change(move |_| Ok(vec![action])).await.map(|_| ())
    }

    pub(super) async fn snapshot(&self) -> Result<Snapshot, ApiError> {
        let control = Arc::clone(&self.control);
        blocking(move || control.snapshot()).await
    }

    pub(super) async fn events(&self, after: u64) -> Result<Vec<TenantEvent>, ApiError> {
        let control = Arc::clone(&self.control);
        blocking(move || control.events(after)).await
    }

    /// Asks the dataplane for what is no change of the configuration, on a thread that may block.
    pub(super) async fn plane<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&dyn DataPlane) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let control = Arc::clone(&self.control);
        blocking(move || ask(control.plane())).await
    }
}

/// Runs `work` on a thread that may block.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| ApiError::internal(&error))
}
