//! Threads that run a core. A driver is made on the thread that uses it, so the thread that starts
//! another one waits until it has opened its core, or could not.

use crate::core::{Core, Service};
use crate::mailbox::MailboxSender;
use crate::uring::UringDriver;
use std::io;
use std::sync::mpsc;
use std::thread::{Builder, JoinHandle};

/// A thread that runs a core, with a service that takes messages `M`.
#[derive(Debug)]
pub struct CoreThread<M, T> {
    /// The thread, which ends when the service has finished or the ring is broken.
    pub thread: JoinHandle<()>,
    /// A sending end of the core's mailbox.
    pub sender: MailboxSender<M>,
    /// The value that `open` returned beside the core.
    pub opened: T,
}

/// Starts a thread with this name, which opens a core by `open` and runs it until its service has
/// finished. Returns once the core is open. `ended` gets the result of the run, on that thread,
/// while the core is still there.
///
/// # Errors
/// The error of `open`, or what `refused` makes of the kernel's, where there is no thread to be had.
pub fn start_core<S, T, E>(
    name: impl Into<String>,
    open: impl FnOnce() -> Result<(Core<UringDriver, S>, T), E> + Send + 'static,
    ended: impl FnOnce(io::Result<()>) + Send + 'static,
    refused: impl Fn(io::Error) -> E,
) -> Result<CoreThread<S::Message, T>, E>
where
    S: Service + 'static,
    S::Message: 'static,
    T: Send + 'static,
    E: Send + 'static,
{
    let (opened, outcome) = mpsc::sync_channel(1);
    let run = move || match open() {
        Ok((mut core, value)) => {
            // The starter waits for it.
            let _ = opened.send(Ok((core.sender(), value)));
            ended(core.run());
        }
        Err(error) => {
            let _ = opened.send(Err(error));
        }
    };
    let thread = Builder::new().name(name.into());
    let thread = thread.spawn(run).map_err(&refused)?;
    let lost = |_| refused(io::Error::other("the thread ended during set-up"));
    let (sender, opened) = outcome.recv().map_err(lost)??;
    Ok(CoreThread {
        thread,
        sender,
        opened,
    })
}
