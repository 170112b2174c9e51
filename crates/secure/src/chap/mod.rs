//! DH-HMAC-CHAP: secrets, messages, and an exchange from either end. `[NVMe Base 2.0 §8.13.5]`
//!
//! ```text
//!  HostExchange                                    ControllerExchange
//!     begin ───────────── Negotiate ──────────────► receive ─► Job (challenge)
//!     receive ◄────────── Challenge ─────────────── computed
//!     Job (reply)
//!     computed ────────── Reply ──────────────────► receive ─► Job (verification)
//!     receive ◄────────── Success1, Failure1 ────── computed
//!     done, or ────────── Success2, Failure2 ─────► receive
//! ```
//!
//! An exchange does the cheap work, and returns a [`Job`] for the mathematics, which takes up to
//! some 10 ms for the largest group: it runs wherever its owner wants.

mod controller;
mod failure;
mod group;
mod host;
mod job;
mod message;
mod secret;

pub use controller::{ControllerExchange, Progress};
pub use failure::Failure;
pub use group::Group;
pub use host::{HostExchange, HostStep};
pub use job::{Job, JobResult, Random};
pub use message::{Challenge, Explanation, MESSAGE_BYTES_MAX, Message, Negotiate, Reply};
pub use secret::Secret;

use crate::Hash;
use zeroize::Zeroizing;

/// The names that an exchange is bound to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    /// NQN of the host.
    pub hostnqn: String,
    /// NQN of the subsystem.
    pub subnqn: String,
}

/// The values that a response is computed from, beside key and names.
#[derive(Debug, Clone, Copy)]
struct Terms {
    hash: Hash,
    transaction: u16,
    sequence: u32,
}

/// R1: proves the host. `[NVMe Base 2.0 §8.13.5.4]`
fn host_response(
    terms: Terms,
    secret: &Secret,
    challenge: &[u8],
    names: &Names,
) -> Zeroizing<Vec<u8>> {
    let parties = (&*names.hostnqn, &*names.subnqn);
    respond(terms, secret, challenge, "HostHost", parties)
}

/// R2: proves the controller. `[NVMe Base 2.0 §8.13.5.5]`
fn controller_response(
    terms: Terms,
    secret: &Secret,
    challenge: &[u8],
    names: &Names,
) -> Zeroizing<Vec<u8>> {
    let parties = (&*names.subnqn, &*names.hostnqn);
    respond(terms, secret, challenge, "Controller", parties)
}

fn respond(
    terms: Terms,
    secret: &Secret,
    challenge: &[u8],
    role: &str,
    (own, other): (&str, &str),
) -> Zeroizing<Vec<u8>> {
    let parts = [
        challenge,
        &terms.sequence.to_le_bytes(),
        &terms.transaction.to_le_bytes(),
        // SC_C: no secure channel.
        &[0],
        role.as_bytes(),
        own.as_bytes(),
        &[0],
        other.as_bytes(),
    ];
    terms.hash.hmac(&secret.transformed(own), &parts)
}

/// The augmented challenge of a shared secret; the challenge itself for the group NULL. `[NVMe Base
/// 2.0 §8.13.5.4]`
fn augmented(hash: Hash, shared: &[u8], challenge: &[u8]) -> Zeroizing<Vec<u8>> {
    if shared.is_empty() {
        return Zeroizing::new(challenge.to_vec());
    }
    hash.hmac(hash.digest(shared).as_ref(), &[challenge])
}

#[cfg(test)]
mod tests;
