//! Cores of a front end: a thread each, with a ring of its own.

use crate::error::FrontendError;
use base::units::CoreId;
use reactor::uring::{Options as DriverOptions, UringDriver};
use reactor::{Core, CoreThread, Service, placement, start_core};

/// Makes the driver of the calling thread, which stays on `core` from now on if there is one.
pub(crate) fn driver(
    core: Option<CoreId>,
    options: &DriverOptions,
) -> Result<UringDriver, FrontendError> {
    if let Some(core) = core {
        placement::pin_to(core).map_err(|error| FrontendError::Option(error.to_string()))?;
    }
    UringDriver::new(options).map_err(|error| FrontendError::Option(format!("io_uring: {error}")))
}

/// Starts the thread of a core, as [`start_core`] does. A ring that breaks ends the process: the
/// requests of clients would wait for ever, and the next process goes on with them where the
/// interface can.
pub(crate) fn start<S, T, E>(
    name: &'static str,
    open: impl FnOnce() -> Result<(Core<UringDriver, S>, T), E> + Send + 'static,
) -> Result<CoreThread<S::Message, T>, E>
where
    S: Service + 'static,
    S::Message: 'static,
    T: Send + 'static,
    E: From<FrontendError> + Send + 'static,
{
    let ended = move |result| {
        if let Err(error) = result {
            tracing::error!("the io_uring of a core of {name} broke: {error}");
            std::process::abort();
        }
    };
    start_core(name, open, ended, |error| {
        FrontendError::thread(error).into()
    })
}
