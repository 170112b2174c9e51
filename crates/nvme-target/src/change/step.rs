//! Steps of a change, applied by every core, and the removals and revocations that they begin.

use super::ack::Pausing;
use crate::namespace::Namespace;
use crate::subsystem::Subsystem;
use base::{SlabKey, Time};
use reactor::SocketOptions;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use switch::Knobs;

/// A step of a change on a core.
#[derive(Clone, Debug)]
pub(crate) enum ChangeStep {
    /// Adds a subsystem.
    AddSubsystem(Arc<Subsystem>),
    /// Ends every connection to a subsystem, then removes it.
    RemoveSubsystem(u32),
    /// Opens a namespace.
    AddNamespace(u32, Arc<Namespace>),
    /// Closes the gate of a namespace, and waits for its commands in flight.
    Pause(u32, u32),
    /// Opens the gate again.
    Resume(u32, u32, AfterPause),
    /// Applies a namespace's reservation to commands that have not begun at the device.
    Reserve(u32, u32),
    /// Looks up the rights of the hosts of I/O queues again.
    AskRules,
    /// Sets new knobs.
    SetKnobs(Arc<Knobs>),
    /// Listens, on the first core.
    Listen(Arc<NewListener>),
    /// Closes the listener that was opened for this address.
    CloseListener(SocketAddr),
}

/// A listener that the first core opens.
#[derive(Debug)]
pub(crate) struct NewListener {
    /// The address; port 0: any free port.
    pub(crate) address: SocketAddr,
    pub(crate) options: SocketOptions,
    /// The address in use, or the kernel's error.
    pub(crate) bound: OnceLock<io::Result<SocketAddr>>,
}

impl ChangeStep {
    /// Returns the steps that add a subsystem with its namespaces to a core.
    pub(crate) fn all_of(subsystem: &Arc<Subsystem>) -> Vec<Self> {
        let namespaces = subsystem.namespaces().into_iter();
        let namespaces = namespaces.map(|namespace| Self::AddNamespace(subsystem.index, namespace));
        let first = Self::AddSubsystem(Arc::clone(subsystem));
        std::iter::once(first).chain(namespaces).collect()
    }
}

/// State of a namespace after a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterPause {
    /// Unchanged.
    Keep,
    /// Its device was resized.
    Reopen,
    /// Removed.
    Remove,
}

/// A pending removal or revocation.
#[derive(Debug)]
pub(crate) struct Withdrawal {
    /// The namespace to remove, by subsystem and identifier; `None` for a revocation of rights.
    pub(crate) removes: Option<(u32, u32)>,
    /// Connections with unsent answers that point into the memory.
    pub(crate) holders: Vec<Holder>,
    /// Time at which connections that still have such answers are closed.
    pub(crate) until: Time,
    /// Acknowledges the change when dropped, after it is complete on this core.
    pub(crate) _debt: Option<Pausing>,
}

/// A connection with unsent answers.
#[derive(Debug)]
pub(crate) struct Holder {
    pub(crate) connection: SlabKey,
    /// Mark of the send with the last of these answers; `None` while some wait for space.
    pub(crate) mark: Option<u64>,
}
