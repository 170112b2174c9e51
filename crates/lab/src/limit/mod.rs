//! The raw socket exchange: how fast this machine's sockets can carry the same messages.
//!
//! A client and a server exchange messages of the sizes of an NVMe/TCP workload, at the same depth,
//! with the same batching and polling, and do nothing else: no NVMe, no device, no allocation per
//! message. What they reach is the yardstick that `lab limit` divides our own results by, so the
//! exchange must be as good a socket program as can be written; a slower one flatters
//! the dataplane.
//!
//! Where the yardstick could be read either way, it takes the harder one: responses come from
//! random blocks of a large region in huge pages (the cache misses of a RAM device without its
//! lookup), while both ends receive into one small buffer that stays in the cache, and a written
//! payload is sent from a few blocks that stay there too.
//!
//! [`RawCase`] says what is exchanged, [`RawServer`] and [`run_client`] are the two ends (as
//! threads of one process by [`run_pair`], or each in its own process by [`serve`]), and
//! [`compare()`] turns interleaved runs of a workload and its limit into a [`CaseReport`].
//!
//! [`run_many`] is the same for many connections, by a plain program on epoll.
//!
//! Every other end has one connection, one thread and one loop: receive what has come, account for
//! it, send what is ready in as few system calls as possible. It never blocks on a send while there is
//! something to receive, so two ends cannot wait for each other, whatever the size of the socket
//! buffers.

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
pub use many::{ManyCase, run_many};
pub use message::{REQUEST_HEADER_BYTES, RESPONSE_HEADER_BYTES};
pub use pair::{PairResult, run_pair};
pub use region::Region;
pub use run::{LimitReport, run};
pub use server::{RawServer, ServerReport, serve};
