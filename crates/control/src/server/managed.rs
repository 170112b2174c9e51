//! The processes that the control thread serves: a target, and front ends.

use std::fmt::Display;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;

use crate::api::{self, Token};
use crate::attachments::SharedAttachments;
use crate::control::Control;

/// A process that has an interface, and is told of signals.
pub(super) trait Managed: Send + Sync + 'static {
    /// The routes of its interface.
    fn router(&self, loopback: Option<SocketAddr>, token: Option<Token>) -> Router;

    /// Begins its end at the first signal `name`; called at each. Must not block.
    fn terminate(&self, name: &str);

    /// Puts its configuration file in force again.
    fn reload(self: Arc<Self>, path: PathBuf) -> impl Future<Output = ()> + Send;
}

pub(super) struct TargetProcess {
    control: Arc<Control>,
    file: Option<PathBuf>,
    on_terminate: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl TargetProcess {
    /// SIGHUP reads `file`.
    pub(super) fn new(
        control: Arc<Control>,
        file: Option<PathBuf>,
        on_terminate: impl FnOnce() + Send + 'static,
    ) -> Self {
        Self {
            control,
            file,
            on_terminate: Mutex::new(Some(Box::new(on_terminate))),
        }
    }
}

impl Managed for TargetProcess {
    fn router(&self, loopback: Option<SocketAddr>, token: Option<Token>) -> Router {
        api::router(
            Arc::clone(&self.control),
            self.file.clone(),
            loopback,
            token,
        )
    }

    fn terminate(&self, name: &str) {
        let on_terminate = self.on_terminate.lock();
        let mut on_terminate = on_terminate.unwrap_or_else(PoisonError::into_inner);
        match on_terminate.take() {
            Some(on_terminate) => {
                tracing::info!("{name}: draining");
                self.control.set_draining();
                tokio::task::spawn_blocking(on_terminate);
            }
            None => tracing::warn!("{name}: draining already; SIGKILL ends without waiting"),
        }
    }

    async fn reload(self: Arc<Self>, path: PathBuf) {
        let file = path.clone();
        let work = move |control: &Control| control.replace_from_file(&file);
        let result = Arc::clone(&self.control).in_turn(work).await;
        let shown = path.display();
        match result {
            Ok(Ok(actions)) => {
                let count = actions.len();
                let changes = if count == 1 { "change" } else { "changes" };
                tracing::info!("SIGHUP: {shown} is in force, {count} {changes}");
            }
            Ok(Err(error)) => log_refused(&path, &error),
            Err(error) => tracing::error!("SIGHUP: {shown} was not put in force: {error}"),
        }
    }
}

/// Logs the reason for which a file is not in force, each of its problems as a line of its own.
pub fn log_refused(file: &Path, error: &impl Display) {
    let shown = file.display();
    for problem in error.to_string().lines() {
        tracing::error!("SIGHUP: {shown} is not in force: {problem}");
    }
}

/// A process of front ends.
pub(super) struct FrontEnds(pub(super) SharedAttachments);

impl Managed for FrontEnds {
    fn router(&self, loopback: Option<SocketAddr>, token: Option<Token>) -> Router {
        api::attachments_router(self.0.clone(), loopback, token)
    }

    fn terminate(&self, name: &str) {
        tracing::info!("{name}: detaching");
        self.0.terminate();
    }

    async fn reload(self: Arc<Self>, path: PathBuf) {
        let reload = self.0.change(move |attachments| attachments.reload(&path));
        if let Err(error) = reload.await {
            tracing::error!("SIGHUP: the file was not put in force: {error}");
        }
    }
}
