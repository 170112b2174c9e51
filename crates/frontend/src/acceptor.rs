//! The accept thread of a front end.

use crate::FrontendError;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::AsFd;
use socket2::Socket;
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;
use std::time::Duration;

/// Pause after `accept` failed because the kernel was out of descriptors or memory.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);

/// The accept thread; dropping it ends the thread.
#[derive(Debug)]
pub(crate) struct Acceptor {
    /// Closed to end the thread.
    end: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Acceptor {
    /// Runs `accept`, which returns when the other end of its socket is closed.
    pub(crate) fn start(
        name: &str,
        accept: impl FnOnce(&UnixStream) + Send + 'static,
    ) -> Result<Self, FrontendError> {
        let (end, ended) = UnixStream::pair().map_err(FrontendError::thread)?;
        let thread = std::thread::Builder::new().name(name.to_owned());
        let thread = thread.spawn(move || accept(&ended));
        Ok(Self {
            end: Some(end),
            thread: Some(thread.map_err(FrontendError::thread)?),
        })
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            // A panic has already been logged.
            let _ = thread.join();
        }
    }
}

/// The event that ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    /// The server shuts down.
    End,
    /// The socket is readable.
    Socket,
    /// The timeout expired.
    Time,
}

/// Waits until the other end of `end` is closed, the socket is readable, or `time` has passed.
/// Without `time` there is no timeout.
pub(crate) fn wait(end: &UnixStream, socket: Option<&impl AsFd>, time: Option<Duration>) -> Woken {
    let mut ready = vec![PollFd::new(end, PollFlags::IN)];
    ready.extend(socket.map(|socket| PollFd::new(socket, PollFlags::IN)));
    let time = time.map(|time| time.try_into().expect("a short time"));
    // A signal ends the wait early; the caller then waits again.
    if poll(&mut ready, time.as_ref()).is_err() {
        return Woken::Time;
    }
    match ready.iter().position(|fd| !fd.revents().is_empty()) {
        Some(0) => Woken::End,
        Some(_) => Woken::Socket,
        None => Woken::Time,
    }
}

/// Waits for `time` while the kernel is out of descriptors or memory. Returns true if the server
/// shuts down meanwhile.
pub(crate) fn pause(end: &UnixStream, time: Duration) -> bool {
    wait(end, None::<&Socket>, Some(time)) == Woken::End
}
