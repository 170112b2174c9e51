//! State shared by all cores of a world: time, randomness, the network, pace and memory.

use crate::network::Network;
use base::{Nanos, Prng, Time};
use reactor::tls::TlsMemory;
use reactor::{BufferClass, BufferPool};

/// State shared by all simulated cores.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) now: Time,
    pub(crate) prng: Prng,
    pub(crate) network: Network,
    pub(crate) pace: Pace,
    pub(crate) memory: Memory,
    /// Buffers of ended cores.
    pub(crate) spare_buffers: SpareBuffers,
    /// Bytes of the current send.
    pub(crate) outgoing: Vec<u8>,
    /// Memory for the records of sends and receives.
    pub(crate) tls: TlsMemory,
    /// Number of turns taken.
    pub(crate) turns: u64,
}

impl Shared {
    /// Returns the turn duration of a core that polls although it could sleep; `None` for a core
    /// that sleeps.
    pub(crate) fn polls(&mut self) -> Option<Nanos> {
        let polls = self.pace.poll_one_in > 0 && self.prng.chance(1, self.pace.poll_one_in);
        polls.then(|| Nanos(1 + self.prng.below(POLL_TURN_MAX.0)))
    }
}

/// Buffers of ended cores, reused for new cores: fresh memory costs a page fault per page. Their
/// content is undefined, like that of a real buffer.
#[derive(Debug, Default)]
pub(crate) struct SpareBuffers(Vec<(Vec<BufferClass>, BufferPool)>);

impl SpareBuffers {
    /// Takes unused buffers of these sizes, or allocates new buffers.
    ///
    /// # Panics
    /// If address space is exhausted.
    pub(crate) fn take(&mut self, classes: &[BufferClass]) -> BufferPool {
        let fits = |(other, pool): &(Vec<BufferClass>, BufferPool)| {
            let (_, used) = pool.bytes();
            other == classes && used == 0
        };
        match self.0.iter().position(fits) {
            Some(place) => self.0.swap_remove(place).1,
            None => BufferPool::new(classes).expect("address space for the simulation"),
        }
    }

    /// Keeps the buffers of an ended core.
    pub(crate) fn keep(&mut self, classes: &[BufferClass], pool: &BufferPool) {
        self.0.push((classes.to_vec(), pool.clone()));
    }
}

/// Pace of the cores. Actions take no time unless a field here sets one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// One in this many turns of a core with work is delayed, as if by another thread; 0 for never.
    pub stall_one_in: u64,
    /// Maximum delay.
    pub stall_max: Nanos,
    /// Duration of a send per KiB, during which the core does nothing else.
    pub send_per_kib: Nanos,
    /// A core that could sleep polls again one time in this many; 0 for never.
    pub poll_one_in: u64,
}

impl Pace {
    /// Cores that take time for sends only.
    #[must_use]
    pub const fn of_sends(send_per_kib: Nanos) -> Self {
        Self {
            stall_one_in: 0,
            stall_max: Nanos::ZERO,
            send_per_kib,
            poll_one_in: 0,
        }
    }
}

/// Maximum turn duration of a polling core.
const POLL_TURN_MAX: Nanos = Nanos::from_micros(5);

/// Memory of a simulated driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Payload buffers, smallest first.
    pub buffers: Vec<BufferClass>,
    /// Receive buffers.
    pub receive_buffers: usize,
}

impl Default for Memory {
    fn default() -> Self {
        let class = |bytes, count| BufferClass { bytes, count };
        Self {
            buffers: vec![class(4096, 512), class(128 * 1024, 64), class(1 << 20, 16)],
            receive_buffers: 8,
        }
    }
}
