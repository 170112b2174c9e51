//! Threads that run a core. A driver is created on the thread that uses it, so the starting thread
//! waits until the new one has opened its core, or has failed to.

use crate::core::{Core, Service};
use crate::mailbox::MailboxSender;
use crate::uring::UringDriver;
use std::io;
use std::sync::mpsc;
use std::thread::{Builder, JoinHandle};

/// A thread that runs a core whose service takes messages `M`.
#[derive(Debug)]
pub struct CoreThread<M, T> {
    /// The thread; it ends when the service has finished or the ring is broken.
    pub thread: JoinHandle<()>,
    /// A sender to the core's mailbox.
    pub sender: MailboxSender<M>,
    /// The additional value that `open` returned.
    pub opened: T,
}

/// Starts a thread with this name, which opens a core with `open` and runs it until its service has
/// finished. Returns once the core is open. `ended` receives the result of the run, on that thread,
/// while the core still exists.
///
/// # Errors The error of `open`, or the one that `refused` creates from the kernel's if the thread
/// cannot be started.
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
            // The starting thread waits for it.
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
