//! The process that the control thread serves: a target, or another one with an interface.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::api::{self, Routes};
use crate::control::Control;

/// A process with an HTTP interface, which receives signals.
pub trait Managed: Send + Sync + 'static {
    /// Returns the routes of its interface.
    fn routes(&self) -> Routes;

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
    fn routes(&self) -> Routes {
        api::routes(Arc::clone(&self.control), self.file.clone())
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
