//! Recovery from a lost association: one home for fences, replay and what a loss means for writes.
//! The reasoning is in docs/design/decisions/0004-replay.md.
//!
//! # Invariants
//!
//! 1. *One epoch.* Every connection is opened under the epoch that its channel has seen. Once the
//!    epoch has moved and no connection is open, none of the old epoch is opened any more
//!    ([`epoch`]). A channel at rest may have connections of an old epoch, and closes them before it
//!    sends anything ([`rest`]).
//! 2. *A fence for each loss.* From the loss of a live association until the target confirms its
//!    end, or must have ended it by itself, a fence stands for it ([`fences`]).
//! 3. *No early replay.* A write that was lost is not sent again while the fence of its association
//!    stands ([`replay`]).
//! 4. *No write undone.* A write that is reported while its fence stands leaves its blocks fenced:
//!    no channel writes them anew until the fence is lowered ([`fences`]).
//! 5. *No overtaking.* No newer write of a channel leaves while an overlapping one of it is to be
//!    sent again ([`range_locks`]). Writes of two channels that are outstanding together have no
//!    order, also where both channels are one submitter's: its own lane, and the ingress.
//! 6. *One completion.* A request is completed once: by its answer, or by one report, never while a
//!    command of it can still be answered ([`replay`]).
//! 7. *No false Flush.* A Flush fails that would promise writes which a target has lost
//!    ([`unflushed`]).
//! 8. *The same volume.* A request is sent again only to the volume that it was submitted to
//!    ([`NamespaceState`](crate::association::NamespaceState)).

pub(crate) mod backoff;
pub(crate) mod epoch;
pub(crate) mod fences;
pub(crate) mod machine;
pub(crate) mod range_locks;
pub(crate) mod replay;
pub(crate) mod rest;
pub(crate) mod span;
pub(crate) mod status;
pub(crate) mod unflushed;
