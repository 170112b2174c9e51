//! The memory of the requests of one connection.

use crate::DeviceIo;
use crate::limits::{NBD_REQUEST_BYTES_MAX, NBD_RESERVE};
use base::Time;
use reactor::{BufferPool, Context, IoSlice};
use switch::Class;

/// The buffers of a core, which its clients share, and the connection's own [`Reserve`].
#[derive(Debug)]
pub(super) struct ClientMemory {
    /// Bytes held by requests of this connection.
    held: usize,
    reserve: Reserve,
    starved_since: Time,
}

impl Default for ClientMemory {
    fn default() -> Self {
        Self {
            held: 0,
            reserve: Reserve::default(),
            starved_since: Time::NEVER,
        }
    }
}

impl ClientMemory {
    /// Allocates memory for `bytes` bytes of a request's data; `None` if there is not enough room
    /// at present.
    pub(super) fn take<T>(
        &mut self,
        class: Class,
        bytes: usize,
        io: &mut DeviceIo<T>,
        cx: &mut Context<'_>,
    ) -> Option<Vec<IoSlice>> {
        let most = NBD_REQUEST_BYTES_MAX as usize;
        if (self.held > 0 && self.held + bytes > most) || io.is_full() {
            return None;
        }
        let shared = io.memory(class, bytes, cx);
        let memory = shared.or_else(|| self.reserve.take(bytes, io.piece_bytes()));
        if memory.is_some() {
            self.starved_since = Time::NEVER;
            self.held += bytes;
        } else {
            io.reserve(class, bytes, cx);
            self.starved_since = self.starved_since.min(cx.now);
        }
        memory
    }

    /// Records that requests hold `bytes` bytes less.
    pub(super) fn give_back(&mut self, bytes: usize) {
        self.held -= bytes;
    }

    /// Records that no request waits for memory any more.
    pub(super) fn waits_no_more(&mut self) {
        self.starved_since = Time::NEVER;
    }

    /// Returns the start of the wait for memory that other connections hold; [`Time::NEVER`] for
    /// none.
    pub(super) const fn starved_since(&self) -> Time {
        self.starved_since
    }
}

/// Buffers of one connection only: [`NBD_RESERVE`]. Its requests use them while the shared buffers
/// of the core are exhausted.
#[derive(Debug, Default)]
struct Reserve(Option<BufferPool>);

impl Reserve {
    /// Allocates memory for `bytes` bytes of a request's data, in pieces of at most `piece_bytes`
    /// bytes. `None` if this connection's requests hold too much of the reserve, or if the process
    /// is out of address space.
    fn take(&mut self, bytes: usize, piece_bytes: usize) -> Option<Vec<IoSlice>> {
        if self.0.is_none() {
            self.0 = BufferPool::new(&NBD_RESERVE).ok();
        }
        let pool = self.0.as_ref()?;
        let piece = piece_bytes.min(pool.largest());
        let mut data = Vec::with_capacity(bytes.div_ceil(piece));
        let mut left = bytes;
        while left > 0 {
            let len = left.min(piece);
            data.push(IoSlice::from_buffer(pool.take(len)?, len));
            left -= len;
        }
        Some(data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;
    use reactor::Memory;

    /// Model of the free buffers, as counts.
    #[derive(Clone, Debug)]
    struct Model {
        small: usize,
        large: usize,
    }

    impl Model {
        fn new() -> Self {
            let [small, large] = NBD_RESERVE.map(|class| class.count);
            Self { small, large }
        }

        /// Takes a small buffer for a piece that fits in one, if any is free, otherwise a large
        /// one. Returns false and changes nothing if not everything is free.
        fn take(&mut self, bytes: usize, piece: usize) -> bool {
            let mut after = self.clone();
            let lengths = (0..bytes).step_by(piece).map(|at| piece.min(bytes - at));
            for len in lengths {
                let free = if len <= NBD_RESERVE[0].bytes && after.small > 0 {
                    &mut after.small
                } else {
                    &mut after.large
                };
                let Some(left) = free.checked_sub(1) else {
                    return false;
                };
                *free = left;
            }
            *self = after;
            true
        }

        fn give_back(&mut self, data: Vec<IoSlice>) {
            for slice in data {
                let Memory::Buffer(buffer) = slice.into_memory() else {
                    panic!("it is a pool's");
                };
                if buffer.len() == NBD_RESERVE[0].bytes {
                    self.small += 1;
                } else {
                    self.large += 1;
                }
            }
        }
    }

    #[test]
    fn it_lends_what_the_model_lends() {
        let mut random = Prng::from_seed(21);
        let mut number = |below: u64| usize::try_from(random.below(below)).expect("small");
        let (mut lent, mut refused) = (0, 0);
        for _ in 0..100 {
            let (mut reserve, mut model) = (Reserve::default(), Model::new());
            let mut held: Vec<Vec<IoSlice>> = Vec::new();
            let piece = 4096 << number(10);
            for _ in 0..200 {
                if !held.is_empty() && number(2) == 0 {
                    let data = held.swap_remove(number(held.len() as u64));
                    model.give_back(data);
                    continue;
                }
                let most = 1 << number(10);
                let bytes = 512 * (1 + number(most));
                let taken = reserve.take(bytes, piece);
                assert_eq!(
                    taken.is_some(),
                    model.take(bytes, piece.min(65536)),
                    "{bytes}"
                );
                let Some(data) = taken else {
                    refused += 1;
                    continue;
                };
                lent += 1;
                assert_eq!(data.iter().map(IoSlice::len).sum::<usize>(), bytes);
                assert!(data.iter().all(|slice| slice.len() <= piece));
                held.push(data);
            }
        }
        assert!(lent > 1000 && refused > 1000, "{lent}, {refused}");
    }
}
