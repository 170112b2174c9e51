//! The running target's side.

use super::channel::{Channel, Frame};
use super::{Message, Offer, PROTOCOL, address_of};
use crate::control::Control;
use crate::limits::{TAKEOVER_DIRTY_MAX, TAKEOVER_DRAIN, TAKEOVER_PATIENCE, TAKEOVER_START};
use crate::plane::Plane;
use crate::process::service_manager::ServiceManager;
use crate::server::Server;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use target::{Handed, RunningTarget, Target};
use zeroize::Zeroizing;

/// What is given to a successor.
#[derive(Debug)]
pub(crate) struct Given {
    target: Arc<Target>,
    control: Arc<Control>,
    plane: Arc<Plane>,
    /// The socket of the interface.
    api: Option<OwnedFd>,
    /// The first address at start.
    first: Option<SocketAddr>,
    /// The socket at which successors connect, from the process before.
    door: Option<OwnedFd>,
    /// The configuration file, which is applied first.
    file: Option<PathBuf>,
    manager: ServiceManager,
}

impl Given {
    /// What a running target gives; `door` comes from the process before.
    pub(crate) fn new(
        running: &RunningTarget,
        control: &Arc<Control>,
        plane: Arc<Plane>,
        door: Option<OwnedFd>,
        (file, manager): (Option<PathBuf>, ServiceManager),
    ) -> Self {
        Self {
            target: Arc::clone(&running.handle),
            control: Arc::clone(control),
            plane,
            api: None,
            first: running.addresses.first().copied(),
            door,
            file,
            manager,
        }
    }
}

/// Waits for a successor, on a thread of its own, until it is dropped.
#[derive(Debug)]
pub(crate) struct Giver {
    door: Arc<UnixListener>,
    given: Arc<AtomicBool>,
}

impl Giver {
    /// Starts to wait; `None`, with a warning, if the target cannot be taken over.
    pub(crate) fn start(mut given: Given, server: &Server) -> Option<Self> {
        let door = match given.door.take() {
            Some(door) => Ok(UnixListener::from(door)),
            None => open_door(&given),
        };
        let started = door.and_then(|door| {
            given.api = server.socket()?;
            let door = Arc::new(door);
            let is_given = Arc::new(AtomicBool::new(false));
            let (entrance, done) = (Arc::clone(&door), Arc::clone(&is_given));
            let thread = std::thread::Builder::new().name("take-over".to_owned());
            thread.spawn(move || wait(&given, &entrance, &done))?;
            Ok(Self {
                door,
                given: is_given,
            })
        });
        started
            .map_err(|error| {
                tracing::warn!(%error, "this target cannot be taken over by --take-over");
            })
            .ok()
    }

    /// Returns true if a successor serves the connections.
    pub(crate) fn is_given(&self) -> bool {
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

fn open_door(given: &Given) -> io::Result<UnixListener> {
    let first = given
        .first
        .ok_or_else(|| io::Error::other("it has no listener"))?;
    UnixListener::bind_addr(&address_of(first)?)
}

/// Gives the target to the first successor that takes it.
fn wait(given: &Given, door: &UnixListener, is_given: &AtomicBool) {
    while let Ok((stream, _)) = door.accept() {
        // Strangers cause no lines in the log.
        let Ok(channel) = Channel::new(stream) else {
            continue;
        };
        match give(given, door, channel) {
            Ok(summary) => {
                tracing::info!("handed over to another process: {summary}");
                is_given.store(true, Ordering::Release);
                given.target.shutdown();
                return;
            }
            Err(reason) => {
                tracing::error!("not taken over, and serving again: {reason}");
                given.plane.drain_caches(false);
                given.control.set_leaving(false);
            }
        }
    }
}

/// Gives the target to one successor, up to the point of no return.
fn give(given: &Given, door: &UnixListener, mut channel: Channel) -> Result<String, String> {
    prepare(given, door, &mut channel).map_err(|reason| refuse(&mut channel, reason))?;
    // With more, the pause is longer.
    let _ = given
        .plane
        .wait_for_caches(TAKEOVER_DIRTY_MAX, TAKEOVER_DRAIN);
    let begun = Instant::now();
    let handed = match given.target.depart(TAKEOVER_PATIENCE) {
        Ok(handed) => handed,
        Err(error) => return Err(refuse(&mut channel, error.to_string())),
    };
    let plane = &given.plane;
    let written = plane.wait_for_caches(0, TAKEOVER_PATIENCE);
    let carried = written.and_then(|()| plane.carry_devices());
    let sent = carried.and_then(|()| send_state(&handed, &mut channel));
    let sent = sent.and_then(|()| expect_taken(&mut channel));
    if let Err(reason) = sent {
        // Before the connections are served again, so that the successor never serves them.
        let reason = refuse(&mut channel, reason);
        drop(channel);
        if let Err(error) = given.target.take_over(handed) {
            tracing::error!(%error, "some connections are served late");
        }
        return Err(reason);
    }
    let summary = format!(
        "{} connections, paused for {} ms",
        handed.connections(),
        begun.elapsed().as_millis()
    );
    // If it was killed since, its hosts reconnect to what is started next.
    let _ = channel.tell(&Message::Go);
    // The service ends with its main process. The service manager may not read this for a while.
    let successor = channel.peer().as_raw_pid();
    given.manager.tell(&format!("MAINPID={successor}"));
    Ok(summary)
}

/// Tells a successor that it must not serve. Returns the reason.
fn refuse(channel: &mut Channel, reason: String) -> String {
    // It may be gone.
    let _ = channel.tell(&Message::Refused {
        reason: reason.clone(),
    });
    reason
}

/// Lets a successor start.
fn prepare(given: &Given, door: &UnixListener, channel: &mut Channel) -> Result<(), String> {
    let failed = |error: io::Error| format!("the connection to the other process: {error}");
    channel.set_patience(TAKEOVER_PATIENCE).map_err(failed)?;
    match receive(channel)?.message {
        Message::Hello { protocol, .. } if protocol == PROTOCOL => {}
        Message::Hello { protocol, version } => {
            return Err(format!(
                "version {version} takes over by protocol {protocol}, and the running target, \
                 version {}, by protocol {PROTOCOL}: restart the target instead",
                env!("CARGO_PKG_VERSION")
            ));
        }
        other => return Err(unexpected(&other)),
    }
    // What a pipe gave cannot be read again.
    if let Some(file) = given.file.as_ref().filter(|file| file.is_file()) {
        let applied = given.control.replace_from_file(file);
        applied.map_err(|error| format!("{} is not in force: {error}", file.display()))?;
    }
    // Changes from here on would be lost.
    let state = given.control.set_leaving(true);
    given.plane.drain_caches(true);
    let (devices, files) = given.plane.hand_over()?;
    let store = given.control.share_store();
    let store = store.map_err(|error| format!("the lock of the state file: {error}"))?;
    let open = given.target.snapshot().listeners;
    let listeners = open.iter();
    let offer = Offer {
        state,
        incarnation: given.target.limits().incarnation,
        devices,
        cache_life: given.plane.cache_life(),
        has_store: store.is_some(),
        has_api: given.api.is_some(),
        listeners: listeners.map(|it| it.bound.address).collect(),
    };
    let mut all: Vec<BorrowedFd<'_>> = files.iter().map(File::as_fd).collect();
    all.extend(store.as_ref().map(File::as_fd));
    all.extend(given.api.as_ref().map(OwnedFd::as_fd));
    all.push(door.as_fd());
    let message = Message::Offer(Box::new(offer));
    channel.send(&message, &[], &all).map_err(failed)?;
    channel.set_patience(TAKEOVER_START).map_err(failed)?;
    match receive(channel)?.message {
        Message::Ready => channel.set_patience(TAKEOVER_PATIENCE).map_err(failed),
        other => Err(unexpected(&other)),
    }
}

fn send_state(handed: &Handed, channel: &mut Channel) -> Result<(), String> {
    let (state, rests) = handed.state();
    let state = serde_json::to_vec(&state).map_err(|error| error.to_string())?;
    let state = Zeroizing::new(state);
    let length = (state.len() as u64).to_le_bytes();
    let bytes = Zeroizing::new([&length[..], &state, &rests].concat());
    let sockets = handed.sockets().into_iter().map(OwnedFd::as_fd);
    let sockets: Vec<_> = sockets.collect();
    let sent = channel.send(&Message::State, &bytes, &sockets);
    sent.map_err(|error| format!("cannot send the connections: {error}"))
}

fn expect_taken(channel: &mut Channel) -> Result<(), String> {
    match receive(channel)?.message {
        Message::Taken => Ok(()),
        other => Err(unexpected(&other)),
    }
}

fn receive(channel: &mut Channel) -> Result<Frame, String> {
    let received = channel.receive();
    let received = received.map_err(|error| format!("the other process: {error}"))?;
    received.ok_or_else(|| "the other process ended".to_owned())
}

fn unexpected(message: &Message) -> String {
    match message {
        Message::Refused { reason } => format!("the other process: {reason}"),
        other => format!("unexpected message {other:?}"),
    }
}
