//! Another process takes a running target over: `serve --take-over`
//! (docs/design/decisions/0028-takeover.md).
//!
//! ```text
//!   running target (giver)                                   its successor (taker)
//!                                         ◄── Hello ──────── connects
//!   configuration, files, listeners ───── Offer ──►          opens devices, starts its cores
//!                                         ◄── Ready ────────
//!   pauses; connections ───────────────── State ──►          checks them
//!   the point of no return                ◄── Taken ────────
//!   ends ──────────────────────────────── Go ─────►          serves
//! ```
//!
//! Until `Taken` the running target can serve again, and does so whatever happens to its successor.
//! The successor serves after `Go`, or if the running target is killed after `State`. Invariant: they
//! never serve at the same time.

mod channel;
mod giver;
mod taker;

pub(crate) use giver::{Given, Giver};
pub use taker::TakeOverError;
pub(crate) use taker::Taker;

use crate::plane::devices::HandedDevice;
use crate::state::State;
use serde::{Deserialize, Serialize};
use std::io;
use std::net::SocketAddr;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::SocketAddr as UnixAddr;

/// Version of the messages and of the state. A program takes over only from one with its own.
const PROTOCOL: u32 = 1;

/// A message between the two processes.
#[derive(Debug, Serialize, Deserialize)]
enum Message {
    Hello {
        protocol: u32,
        version: String,
    },
    Offer(Box<Offer>),
    Ready,
    /// Followed by the state of the connections.
    State,
    Taken,
    Go,
    /// The sender gives up: the running target serves.
    Refused {
        reason: String,
    },
}

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
fn address_of(listener: SocketAddr) -> io::Result<UnixAddr> {
    UnixAddr::from_abstract_name(format!("switchyard/{listener}"))
}
