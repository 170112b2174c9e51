//! One request at a time to servers of other protocols: NBD, iSCSI, and a plain one of our own.
//!
//! What is this: what ReFlex's table of unloaded latencies compares with (`[ReFlex §5.1, Table
//! 2]`).
//! Each client is a socket and as much of its protocol as a read and a write take; they share
//! everything else, so that what differs is the server and the protocol. The figure `reflex-table2`
//! calls it.
//!
//! What must never happen: a number that is not that of a request which the server answered with
//! success, or memory by what a peer says without bound.

#![allow(
    clippy::big_endian_bytes,
    reason = "the numbers of these protocols are in network order"
)]

mod connection;
mod iscsi;
mod nbd;
mod plain;

#[cfg(test)]
mod tests;

pub use connection::Wait;
pub use iscsi::Iscsi;
pub use nbd::Nbd;
pub use plain::{Plain, PlainServer};

use anyhow::{Context as _, Result, ensure};
use base::{Latencies, Prng};
use load::Latency;
use std::time::{Duration, Instant};

/// Storage behind a connection. Offsets and lengths are in bytes, and multiples of 512.
pub trait Remote {
    /// Fills `data` with what is at `offset`.
    ///
    /// # Errors
    /// A broken connection, or an answer that is not success.
    fn read(&mut self, offset: u64, data: &mut [u8]) -> Result<()>;

    /// Writes `data` at `offset`.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn write(&mut self, offset: u64, data: &[u8]) -> Result<()>;
}

/// Requests one after the other, each as soon as the one before it is answered, at random places.
#[derive(Clone, Copy, Debug)]
pub struct OneByOne {
    /// The requests write.
    pub writes: bool,
    /// Bytes of each.
    pub bytes: u32,
    /// Bytes of the storage.
    pub device_bytes: u64,
    /// Runs so long before anything is measured.
    pub warmup: Duration,
    /// Is measured.
    pub measured: Duration,
    /// Fixes the places.
    pub seed: u64,
}

impl OneByOne {
    /// Runs it on the calling thread: requests a second, and how long each took.
    ///
    /// # Errors
    /// The first request that fails.
    pub fn run(&self, remote: &mut dyn Remote) -> Result<(f64, Latency)> {
        let mut random = Prng::from_seed(self.seed);
        let mut data = vec![0; self.bytes as usize];
        random.fill(&mut data);
        let places = self.device_bytes / u64::from(self.bytes);
        ensure!(places > 0, "the storage is smaller than a request");
        let mut latency = Latencies::new();
        let start = Instant::now();
        let end = self.warmup + self.measured;
        let mut began = start;
        loop {
            let elapsed = began - start;
            if elapsed >= end {
                break;
            }
            let offset = random.below(places) * u64::from(self.bytes);
            if self.writes {
                remote.write(offset, &data).context("a write failed")?;
            } else {
                remote.read(offset, &mut data).context("a read failed")?;
            }
            let now = Instant::now();
            if elapsed >= self.warmup {
                latency.record((now - began).into());
            }
            began = now;
        }
        ensure!(
            !latency.is_empty(),
            "no request completed in the measured time; measure for longer"
        );
        let per_second = latency.count() as f64 / self.measured.as_secs_f64();
        Ok((per_second, Latency::of(&latency)))
    }
}
