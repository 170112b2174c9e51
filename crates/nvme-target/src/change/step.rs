//! Steps of a change, which every core takes.

use crate::namespace::Namespace;
use crate::subsystem::Subsystem;
use std::sync::Arc;
use switch::Knobs;

/// What a core is asked to do.
#[derive(Clone, Debug)]
pub(crate) enum Step {
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
    /// Ask again what the hosts of I/O queues may do.
    AskRules,
    /// Turn knobs.
    Turn(Arc<Knobs>),
}

/// What becomes of a paused namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterPause {
    /// It is as before.
    Keep,
    /// Its device has changed its size.
    Reopen,
    /// It is gone.
    Remove,
}
