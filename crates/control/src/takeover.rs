//! Another process takes a running one over: `serve --take-over`
//! (docs/design/decisions/0028-takeover.md), `attach --take-over`
//! (docs/design/decisions/0030-attach-takeover.md).
//!
//! ```text
//!   running process (giver)                                  its successor (taker)
//!                                         ◄── Hello ──────── connects
//!   configuration, files, listeners ───── Offer ──►          opens devices, starts its cores
//!                                         ◄── Ready ────────
//!   pauses; connections ───────────────── State ──►          checks them
//!   the point of no return                ◄── Taken ────────
//!   ends ──────────────────────────────── Go ─────►          serves
//! ```
//!
//! Until `Taken` the running process can serve again, and does so whatever happens to its successor.
//! The successor serves after `Go`, or if the running process is killed after `State`. Invariant: they
//! never serve at the same time.

mod channel;
mod giver;
mod taker;
mod target;

pub use giver::{Giver, Gives, State};
pub use taker::{TakeOverError, Taker};
pub(crate) use target::{Given, Offer, address_of, unpack};

use serde::{Deserialize, Serialize};
use std::os::fd::OwnedFd;
use zeroize::Zeroizing;

/// A message between the two processes; `O` is the offer.
#[derive(Debug, Serialize, Deserialize)]
enum Message<O> {
    Hello {
        protocol: u32,
        version: String,
    },
    Offer(Box<O>),
    Ready,
    /// Followed by the state of the connections.
    State,
    Taken,
    Go,
    /// The sender gives up: the running process serves.
    Refused {
        reason: String,
    },
}

/// The state of a paused process. It may contain secrets.
#[derive(Debug, Default)]
pub struct Paused {
    /// Bytes, whose form the two processes agree on.
    pub bytes: Zeroizing<Vec<u8>>,
    /// Sockets and files, in the order of the state.
    pub files: Vec<OwnedFd>,
}
