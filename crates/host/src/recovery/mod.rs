//! Recovery from a lost association: the channel's state machine ([`machine`]), fences, replay, and
//! the effect of a loss on writes. The reasons are in docs/design/decisions/0004-replay.md.
//!
//! # Invariants
//!
//! 1. *One epoch.* Every connection is opened under the epoch that its channel has seen. Once the
//!    epoch has moved and no connection is open, no connection of the old epoch is opened again
//!    ([`epoch`]). A channel at rest may have connections of an old epoch; it closes them before it
//!    sends anything ([`rest`]).
//! 2. *A fence for each loss.* A fence stands from the loss of a live association until the target
//!    confirms that it has ended, or must have ended it by itself ([`fences`]).
//! 3. *No early replay.* A lost write is not sent again while the fence of its association stands
//!    ([`replay`]).
//! 4. *No write undone.* If a lost write is reported while its fence stands, no channel writes its
//!    blocks again until the fence is lowered ([`fences`]).
//! 5. *No overtaking.* A channel sends no newer write while an overlapping older one is to be sent
//!    again ([`range_locks`]). Outstanding writes of two channels have no order, even if both
//!    channels belong to one submitter (its direct lane and the ingress).
//! 6. *One completion.* A request is completed once, by its answer or by one report, and never
//!    while a command of it can still be answered ([`replay`]).
//! 7. *No false Flush.* A Flush fails if the target has lost writes that it covers ([`unflushed`]).
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
