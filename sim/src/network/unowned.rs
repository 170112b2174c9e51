//! Sockets that no core owns: on their way to another core or process, and closed when dropped.

use super::{Concerns, Network};
use crate::stirred::CoreNumber;
use base::Time;
use reactor::Simulated;
use std::cmp::Reverse;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Dropped connections and listeners.
#[derive(Debug)]
pub(super) struct Unowned {
    ends: (Sender<u64>, Receiver<u64>),
    listeners: (Sender<SocketAddr>, Receiver<SocketAddr>),
}

impl Default for Unowned {
    fn default() -> Self {
        Self {
            ends: channel(),
            listeners: channel(),
        }
    }
}

impl Network {
    /// Returns an end that no core owns.
    pub(crate) fn unowned(&self, end: u64) -> Simulated<u64> {
        Simulated::new(end, &self.unowned.ends.0)
    }

    /// Releases a listener: its connections wait.
    pub(crate) fn release_listener(&mut self, address: SocketAddr) -> Simulated<SocketAddr> {
        self.set_listener(address, None);
        Simulated::new(address, &self.unowned.listeners.0)
    }

    /// Assigns a listener to `core`.
    pub(crate) fn adopt_listener(&mut self, address: SocketAddr, core: CoreNumber) {
        self.set_listener(address, Some(core));
        self.stirred.add(core);
        let waiting = self.listening.get(&address).map(|it| &it.waiting);
        for &(at, _) in waiting.into_iter().flatten() {
            self.events.push(Reverse((at, Concerns::Core(core))));
        }
    }

    fn set_listener(&mut self, address: SocketAddr, core: Option<CoreNumber>) {
        if let Some(listener) = self.listening.get_mut(&address) {
            listener.core = core;
        }
    }

    /// Closes the sockets that were dropped.
    pub(super) fn close_dropped(&mut self, now: Time) {
        while let Ok(end) = self.unowned.ends.1.try_recv() {
            self.close(end, now);
        }
        while let Ok(address) = self.unowned.listeners.1.try_recv() {
            self.unlisten(address);
        }
    }
}
