//! Reservations of namespaces. `[NVMe Base 2.0 §8.19]`
//!
//! [`state`] decides; one thread ([`executor`]) executes the commands that change the state, one
//! after another, because a change may wait for the state file and has to wait for every core. Each
//! core checks commands against its own copy of the [`Exclusion`](state::Exclusion), so a namespace
//! without a reservation costs a command one comparison. Invariant: when a command is answered, no
//! core lets a command of a newly excluded host begin at the device.

pub(crate) mod executor;
pub(crate) mod job;
pub(crate) mod kept;
pub(crate) mod state;
