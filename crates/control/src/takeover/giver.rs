//! The running process's side.

use super::Message;
use super::channel::{Channel, Frame};
use crate::limits::{TAKEOVER_PATIENCE, TAKEOVER_START};
use crate::process::service_manager::ServiceManager;
use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use std::fmt::Debug;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use zeroize::Zeroizing;

/// The state of what has stopped, as [`Paused`](super::Paused).
pub type State<'a> = (Zeroizing<Vec<u8>>, Vec<BorrowedFd<'a>>);

/// A process that another one can take over. An error is the reason why it continues.
pub trait Gives: Debug + Send + 'static {
    /// Version of the offer and of the state. A process takes over only from one with its own.
    const PROTOCOL: u32;
    /// What a successor needs before it can start.
    type Offer: Serialize;
    /// What has stopped, until it is served here again or there.
    type Handed;

    /// Returns the offer, with its files. Changes from here on would be lost, until
    /// [`stay`](Self::stay).
    ///
    /// # Errors
    /// Something that cannot be taken over.
    fn offer(&self) -> Result<(Self::Offer, Vec<OwnedFd>), String>;

    /// Shortens the pause, while clients are served.
    fn prepare(&self) {}

    /// Stops serving, at a boundary of requests.
    ///
    /// # Errors
    /// Requests that do not finish; it serves then.
    fn pause(&self) -> Result<Self::Handed, String>;

    /// Returns the state of what has stopped.
    ///
    /// # Errors
    /// A state that cannot be written.
    fn state<'a>(&self, handed: &'a Self::Handed) -> Result<State<'a>, String>;

    /// Serves again what has stopped.
    fn resume(&self, handed: Self::Handed);

    /// Ends the attempt: it is not taken over.
    fn stay(&self);

    /// Ends the process, because a successor serves. Returns what it serves, in words.
    fn leave(&self, handed: Self::Handed) -> String;
}

/// Waits for a successor, on a thread of its own, until it is dropped.
#[derive(Debug)]
pub struct Giver {
    door: Arc<UnixListener>,
    given: Arc<AtomicBool>,
}

impl Giver {
    /// Starts to wait at a socket; `None`, with a warning, if the process cannot be taken over.
    pub fn start<G: Gives>(
        door: io::Result<UnixListener>,
        manager: ServiceManager,
        given: impl FnOnce() -> io::Result<G>,
    ) -> Option<Self> {
        let started = door.and_then(|door| {
            let door = Arc::new(door);
            let given = given()?;
            let is_given = Arc::new(AtomicBool::new(false));
            let (entrance, done) = (Arc::clone(&door), Arc::clone(&is_given));
            let thread = std::thread::Builder::new().name("take-over".to_owned());
            thread.spawn(move || wait(&given, &entrance, &manager, &done))?;
            Ok(Self {
                door,
                given: is_given,
            })
        });
        started
            .map_err(|error| {
                tracing::warn!(%error, "this process cannot be taken over by --take-over");
            })
            .ok()
    }

    /// Returns true if a successor serves the clients.
    #[must_use]
    pub fn is_given(&self) -> bool {
        self.given.load(Ordering::Acquire)
    }
}

impl Drop for Giver {
    fn drop(&mut self) {
        // The socket of a successor stays open.
        if !self.is_given() {
            let _ = rustix::net::shutdown(&*self.door, rustix::net::Shutdown::Both);
        }
    }
}

/// Gives everything to the first successor that takes it.
fn wait<G: Gives>(given: &G, door: &UnixListener, manager: &ServiceManager, is_given: &AtomicBool) {
    while let Ok((stream, _)) = door.accept() {
        // Strangers cause no lines in the log.
        let Ok(mut channel) = Channel::new(stream) else {
            continue;
        };
        match give(given, door, &mut channel) {
            Ok((handed, began)) => {
                let pause = began.elapsed().as_millis();
                // The service ends with its main process. The service manager may not read this for a
                // while.
                let successor = channel.peer().as_raw_pid();
                manager.tell(&format!("MAINPID={successor}"));
                is_given.store(true, Ordering::Release);
                let summary = given.leave(handed);
                tracing::info!("handed over to another process: {summary}, paused for {pause} ms");
                return;
            }
            Err((reason, handed)) => {
                // Before anything is served again, so that the successor never serves it.
                let _ = channel.tell(&Message::<()>::Refused {
                    reason: reason.clone(),
                });
                drop(channel);
                if let Some(handed) = handed {
                    given.resume(handed);
                }
                given.stay();
                tracing::error!("not taken over, and serving again: {reason}");
            }
        }
    }
}

/// What has stopped, and since when; or the reason why it is not given, and what has stopped.
type Outcome<H> = Result<(H, Instant), (String, Option<H>)>;

/// Gives everything to one successor, up to the point of no return.
fn give<G: Gives>(given: &G, door: &UnixListener, channel: &mut Channel) -> Outcome<G::Handed> {
    prepare(given, door, channel).map_err(|reason| (reason, None))?;
    given.prepare();
    let began = Instant::now();
    let handed = given.pause().map_err(|reason| (reason, None))?;
    let state = given.state(&handed);
    let sent = state.and_then(|state| send_state(state, channel));
    if let Err(reason) = sent.and_then(|()| expect_taken(channel)) {
        return Err((reason, Some(handed)));
    }
    // If it was killed since, its clients reconnect to what is started next.
    let _ = channel.tell(&Message::<()>::Go);
    Ok((handed, began))
}

/// Lets a successor start.
fn prepare<G: Gives>(given: &G, door: &UnixListener, channel: &mut Channel) -> Result<(), String> {
    let failed = |error: io::Error| format!("the connection to the other process: {error}");
    channel.set_patience(TAKEOVER_PATIENCE).map_err(failed)?;
    match receive::<IgnoredAny>(channel)?.message {
        Message::Hello { protocol, .. } if protocol == G::PROTOCOL => {}
        Message::Hello { protocol, version } => {
            return Err(format!(
                "version {version} takes over by protocol {protocol}, and the running process, \
                 version {}, by protocol {}: restart it instead",
                env!("CARGO_PKG_VERSION"),
                G::PROTOCOL
            ));
        }
        other => return Err(unexpected(&other)),
    }
    let (offer, files) = given.offer()?;
    let mut all: Vec<BorrowedFd<'_>> = files.iter().map(OwnedFd::as_fd).collect();
    all.push(door.as_fd());
    let message = Message::Offer(Box::new(offer));
    channel.send(&message, &[], &all).map_err(failed)?;
    channel.set_patience(TAKEOVER_START).map_err(failed)?;
    match receive::<IgnoredAny>(channel)?.message {
        Message::Ready => channel.set_patience(TAKEOVER_PATIENCE).map_err(failed),
        other => Err(unexpected(&other)),
    }
}

fn send_state((bytes, files): State<'_>, channel: &mut Channel) -> Result<(), String> {
    let sent = channel.send(&Message::<()>::State, &bytes, &files);
    sent.map_err(|error| format!("cannot send the connections: {error}"))
}

fn expect_taken(channel: &mut Channel) -> Result<(), String> {
    match receive::<IgnoredAny>(channel)?.message {
        Message::Taken => Ok(()),
        other => Err(unexpected(&other)),
    }
}

fn receive<O: DeserializeOwned>(channel: &mut Channel) -> Result<Frame<Message<O>>, String> {
    let received = channel.receive();
    let received = received.map_err(|error| format!("the other process: {error}"))?;
    received.ok_or_else(|| "the other process ended".to_owned())
}

fn unexpected<O: Debug>(message: &Message<O>) -> String {
    match message {
        Message::Refused { reason } => format!("the other process: {reason}"),
        other => format!("unexpected message {other:?}"),
    }
}
