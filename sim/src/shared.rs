//! State that all cores of a world share: time, chance and the network, their pace and memory.

use crate::network::Network;
use base::{Nanos, Prng, Time};
use reactor::{BufferClass, BufferPool};

/// State that all simulated cores share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) now: Time,
    pub(crate) prng: Prng,
    pub(crate) network: Network,
    pub(crate) pace: Pace,
    pub(crate) memory: Memory,
    /// Buffers of cores that are gone.
    pub(crate) spare_buffers: SpareBuffers,
    /// Bytes of the send under way.
    pub(crate) outgoing: Vec<u8>,
    /// Turns that were taken.
    pub(crate) turns: u64,
}

impl Shared {
    /// Returns the time of a turn of a core that polls although it could sleep; `None` for one that
    /// sleeps.
    pub(crate) fn polls(&mut self) -> Option<Nanos> {
        let polls = self.pace.poll_one_in > 0 && self.prng.chance(1, self.pace.poll_one_in);
        polls.then(|| Nanos(1 + self.prng.below(POLL_TURN_MAX.0)))
    }
}

/// Buffers of cores that are gone, for new ones: fresh memory costs a fault for each page. The content of
/// a buffer is whatever it was, as that of a real one.
#[derive(Debug, Default)]
pub(crate) struct SpareBuffers(Vec<(Vec<BufferClass>, BufferPool)>);

impl SpareBuffers {
    /// Takes buffers of these sizes, of which none is in use, or new ones.
    ///
    /// # Panics
    /// Without address space.
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

    /// Keeps the buffers of a core that is gone.
    pub(crate) fn keep(&mut self, classes: &[BufferClass], pool: &BufferPool) {
        self.0.push((classes.to_vec(), pool.clone()));
    }
}

/// Pace of the cores. Whatever a core does takes no time, unless this says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// A core that has something to do in this many is held up, as by another thread; 0 for never.
    pub stall_one_in: u64,
    /// Longest time of a stall.
    pub stall_max: Nanos,
    /// Time that sending takes, for each KiB. The core does nothing else meanwhile.
    pub send_per_kib: Nanos,
    /// A core that could sleep polls once more one time in this many; 0 for never.
    pub poll_one_in: u64,
}

impl Pace {
    /// Cores that take time for what they send, and for nothing else.
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

/// A turn of a core that polls takes so long, at most.
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
