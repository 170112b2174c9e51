//! The raw socket exchange: the limit of this machine's sockets for the same messages.
//!
//! A client and a server exchange messages with the sizes, depth, batching and polling of an
//! NVMe/TCP workload and nothing else: no NVMe, no device, no allocation per message. `lab limit`
//! divides this stack's results by this limit, so the exchange must be optimal, and every doubtful
//! choice favours it: both ends receive into one small cached buffer, and written payload comes
//! from a few cached blocks. Only responses come from random blocks of a large region in huge
//! pages, like those of a RAM device. A [`RawCase`] describes the exchange; [`RawServer`],
//! [`run_client`], [`run_pair`] and [`serve`] run its ends; [`run_many`] uses many connections on
//! epoll; [`compare()`] makes the [`CaseReport`]. Invariant: no end blocks on a send while it can
//! receive, so two ends never deadlock.

mod args;
mod case;
mod client;
mod compare;
mod error;
mod idle;
mod idle_hosts;
pub mod limits;
mod many;
mod message;
mod outbox;
mod own;
mod own_many;
mod pair;
mod region;
mod run;
mod server;
mod socket;

#[cfg(test)]
mod tests;

pub use args::LimitArgs;
pub use case::{Poll, RawCase};
pub use client::{RawResult, run_client};
pub use compare::{Better, CaseReport, Metric, compare};
pub use error::RawError;
pub(crate) use idle_hosts::IdleHosts;
pub use many::{ManyCase, run_many};
pub use message::{REQUEST_HEADER_BYTES, RESPONSE_HEADER_BYTES};
pub use pair::{PairResult, run_pair};
pub use region::Region;
pub use run::{LimitReport, run};
pub use server::{RawServer, ServerReport, serve};
