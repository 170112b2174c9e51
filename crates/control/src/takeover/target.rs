//! A target that is taken over.

use super::giver::State as HandedBytes;
use super::{Giver, Gives, Paused};
use crate::control::Control;
use crate::limits::{TAKEOVER_DIRTY_MAX, TAKEOVER_DRAIN, TAKEOVER_PATIENCE};
use crate::plane::Plane;
use crate::plane::devices::HandedDevice;
use crate::process::service_manager::ServiceManager;
use crate::server::Server;
use crate::state::State;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener};
use std::path::PathBuf;
use std::sync::Arc;
use target::{Handed, HandedState, RunningTarget, Target};
use zeroize::Zeroizing;

/// What a successor needs before it can start; the files follow in the order of the fields.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Offer {
    /// The configuration and the changes to it.
    pub(crate) state: State,
    /// Number of the process, as hosts know it.
    pub(crate) incarnation: u64,
    pub(crate) devices: Vec<HandedDevice>,
    /// The life of the caches, as hosts know it.
    pub(crate) cache_life: u64,
    /// There is a state file; its lock is among the files.
    pub(crate) has_store: bool,
    /// There is an HTTP interface; its socket is among the files.
    pub(crate) has_api: bool,
    /// Addresses of the listeners.
    pub(crate) listeners: Vec<SocketAddr>,
}

/// Returns the address at which a target that listens on `listener` is taken over. It lies in the
/// network namespace, as the listener does, and is no file.
pub(crate) fn address_of(listener: SocketAddr) -> io::Result<UnixAddr> {
    UnixAddr::from_abstract_name(format!("switchyard/{listener}"))
}

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
    /// The configuration file, which is applied first.
    file: Option<PathBuf>,
}

impl Given {
    /// What a running target gives.
    pub(crate) fn new(
        running: &RunningTarget,
        control: &Arc<Control>,
        plane: Arc<Plane>,
        file: Option<PathBuf>,
    ) -> Self {
        Self {
            target: Arc::clone(&running.handle),
            control: Arc::clone(control),
            plane,
            api: None,
            first: running.addresses.first().copied(),
            file,
        }
    }

    /// Starts to wait for a successor; `door` is the socket of the process before.
    pub(crate) fn wait(
        mut self,
        door: Option<OwnedFd>,
        server: &Server,
        manager: ServiceManager,
    ) -> Option<Giver> {
        let open = || {
            let none = || io::Error::other("it has no listener");
            UnixListener::bind_addr(&address_of(self.first.ok_or_else(none)?)?)
        };
        let door = door.map_or_else(open, |door| Ok(door.into()));
        Giver::start(door, manager, || {
            self.api = server.socket()?;
            Ok(self)
        })
    }
}

impl Gives for Given {
    const PROTOCOL: u32 = 2;
    type Offer = Offer;
    type Handed = Handed;

    fn offer(&self) -> Result<(Offer, Vec<OwnedFd>), String> {
        // What a pipe gave cannot be read again.
        if let Some(file) = self.file.as_ref().filter(|file| file.is_file()) {
            let applied = self.control.replace_from_file(file);
            applied.map_err(|error| format!("{} is not in force: {error}", file.display()))?;
        }
        let state = self.control.set_leaving(true);
        self.plane.drain_caches(None, true);
        let (devices, files) = self.plane.hand_over()?;
        let store = self.control.share_store();
        let store = store.map_err(|error| format!("the lock of the state file: {error}"))?;
        let api = self.api.as_ref().map(OwnedFd::try_clone).transpose();
        let api = api.map_err(|error| format!("the socket of the interface: {error}"))?;
        let open = self.target.snapshot().listeners;
        let offer = Offer {
            state,
            incarnation: self.target.limits().incarnation,
            devices,
            cache_life: self.plane.cache_life(),
            has_store: store.is_some(),
            has_api: api.is_some(),
            listeners: open.iter().map(|it| it.bound.address).collect(),
        };
        let files = files.into_iter().chain(store).map(File::into);
        Ok((offer, files.chain(api).collect()))
    }

    fn prepare(&self) {
        // With more, the pause is longer.
        let _ = self
            .plane
            .wait_for_caches(None, TAKEOVER_DIRTY_MAX, TAKEOVER_DRAIN);
    }

    fn pause(&self) -> Result<Handed, String> {
        let departed = self.target.depart(TAKEOVER_PATIENCE);
        let handed = departed.map_err(|error| error.to_string())?;
        let written = self.plane.wait_for_caches(None, 0, TAKEOVER_PATIENCE);
        let carried = written.and_then(|()| self.plane.carry_devices());
        match carried {
            Ok(()) => Ok(handed),
            Err(reason) => {
                self.resume(handed);
                Err(reason)
            }
        }
    }

    fn state<'a>(&self, handed: &'a Handed) -> Result<HandedBytes<'a>, String> {
        let (state, rests) = handed.state();
        let state = serde_json::to_vec(&state).map_err(|error| error.to_string())?;
        let state = Zeroizing::new(state);
        let length = (state.len() as u64).to_le_bytes();
        let bytes = Zeroizing::new([&length[..], &state, &rests].concat());
        let sockets = handed.sockets().into_iter().map(OwnedFd::as_fd);
        Ok((bytes, sockets.collect()))
    }

    fn resume(&self, handed: Handed) {
        if let Err(error) = self.target.take_over(handed) {
            tracing::error!(%error, "some connections are served late");
        }
    }

    fn stay(&self) {
        self.plane.drain_caches(None, false);
        self.control.set_leaving(false);
    }

    fn leave(&self, handed: Handed) -> String {
        let summary = format!("{} connections", handed.connections());
        drop(handed);
        self.target.shutdown();
        summary
    }
}

/// Returns the connections of a paused target.
pub(crate) fn unpack(paused: Paused) -> Result<Handed, String> {
    let short = || "the state is incomplete".to_owned();
    let (length, rest) = paused.bytes.split_first_chunk::<8>().ok_or_else(short)?;
    let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| short())?;
    let (state, rests) = rest.split_at_checked(length).ok_or_else(short)?;
    let state: HandedState = serde_json::from_slice(state).map_err(|error| error.to_string())?;
    let sockets = state.divide(paused.files);
    Handed::join(state, rests, sockets)
}
