//! Steps of a change, which every core takes, and the removals and revocations that it has begun.

use super::ack::Pausing;
use crate::namespace::Namespace;
use crate::subsystem::Subsystem;
use base::{SlabKey, Time};
use std::sync::Arc;
use switch::Knobs;

/// A step that a core takes.
#[derive(Clone, Debug)]
pub(crate) enum ChangeStep {
    /// Know a new subsystem.
    AddSubsystem(Arc<Subsystem>),
    /// End every connection to a subsystem, then forget it.
    RemoveSubsystem(u32),
    /// Open a namespace.
    AddNamespace(u32, Arc<Namespace>),
    /// Let no new command of a namespace pass, and wait for those in flight.
    Pause(u32, u32),
    /// Let commands pass again.
    Resume(u32, u32, AfterPause),
    /// Look up the rights of the hosts of I/O queues again.
    AskRules,
    /// Take other knobs.
    SetKnobs(Arc<Knobs>),
}

impl ChangeStep {
    /// Returns the steps by which a core knows a subsystem with its namespaces.
    pub(crate) fn all_of(subsystem: &Arc<Subsystem>) -> Vec<Self> {
        let namespaces = subsystem.namespaces().into_iter();
        let namespaces = namespaces.map(|namespace| Self::AddNamespace(subsystem.index, namespace));
        let first = Self::AddSubsystem(Arc::clone(subsystem));
        std::iter::once(first).chain(namespaces).collect()
    }
}

/// Future of a paused namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterPause {
    /// It is as before.
    Keep,
    /// Its device has changed its size.
    Reopen,
    /// It is gone.
    Remove,
}

/// A removal or a revocation that waits.
#[derive(Debug)]
pub(crate) struct Withdrawal {
    /// The namespace that is to be removed, by subsystem and identifier; `None` for rights.
    pub(crate) removes: Option<(u32, u32)>,
    /// Connections with answers that point into the memory and are not sent.
    pub(crate) holders: Vec<Holder>,
    /// Time at which the connections close that hold some still.
    pub(crate) until: Time,
    /// Acknowledged, by being dropped, when the change is through on this core.
    pub(crate) _debt: Option<Pausing>,
}

/// A connection with answers that are not sent.
#[derive(Debug)]
pub(crate) struct Holder {
    pub(crate) connection: SlabKey,
    /// Number of the send with which the last of them leaves; `None` while some wait for room.
    pub(crate) mark: Option<u64>,
}
