//! A buffer with several owners, all read-only.
//!
//! A host sends a write's payload from the request's own memory, in as many pieces as the
//! controller requests, and must still return that memory, or send it again on another connection.
//! It therefore makes the buffer shared first, and exclusive again when the last piece has left.
//! The owner count is in the pool, so that sharing does not allocate.

use crate::memory::pool::Buffer;

/// One of the owners of a buffer. The bytes cannot change while this exists.
#[derive(Debug)]
pub struct SharedBuffer {
    /// Only the last owner returns it to the pool.
    buffer: Option<Buffer>,
}

impl SharedBuffer {
    /// Creates the first owner.
    pub(super) fn new(buffer: Buffer) -> Self {
        buffer.owners().set(1);
        Self {
            buffer: Some(buffer),
        }
    }

    fn buffer(&self) -> &Buffer {
        self.buffer.as_ref().expect("taken by drop and unwrap only")
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.buffer()
    }

    /// Creates another owner.
    pub(super) fn share(&self) -> Self {
        let owners = self.buffer().owners();
        owners.set(owners.get().checked_add(1).expect("fewer owners than 2^32"));
        Self {
            buffer: Some(self.buffer().alias()),
        }
    }

    /// Returns the buffer itself if this is its only owner; otherwise this owner.
    pub(super) fn into_buffer(mut self) -> Result<Buffer, Self> {
        if self.buffer().owners().get() > 1 {
            return Err(self);
        }
        self.buffer().owners().set(0);
        Ok(self.buffer.take().expect("taken here for the first time"))
    }

    pub(super) fn address(&self) -> *mut u8 {
        self.buffer().address()
    }
}

impl Drop for SharedBuffer {
    fn drop(&mut self) {
        let Some(buffer) = self.buffer.take() else {
            return;
        };
        let left = buffer.owners().get() - 1;
        buffer.owners().set(left);
        if left > 0 {
            // Another owner will return it.
            buffer.forget();
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::memory::{BufferClass, BufferPool, IoSlice};

    fn free(pool: &BufferPool) -> usize {
        pool.usage().next().expect("one size").1
    }

    #[test]
    fn the_last_owner_gives_the_buffer_back_once() {
        let class = BufferClass {
            bytes: 4096,
            count: 2,
        };
        let pool = BufferPool::new(&[class]).expect("a small mapping");
        let mut slice = IoSlice::from_buffer(pool.take(1).expect("one"), 100);
        slice.copy_in(0, b"payload");
        assert!(
            slice.duplicate(0, 7).is_none(),
            "an exclusive slice has one owner"
        );
        let mut slice = slice.into_shared();
        assert!(slice.bytes_mut().is_none());
        let piece = slice.duplicate(3, 4).expect("shared");
        assert_eq!(piece.bytes(), Some(&b"load"[..]));
        let other = piece.duplicate(1, 2).expect("shared");
        let slice = slice.into_exclusive().expect_err("two more owners");
        drop(piece);
        assert_eq!(free(&pool), 1);
        drop(other);
        let mut slice = slice.into_exclusive().expect("the last owner");
        assert_eq!((slice.offset(), slice.len()), (0, 100));
        slice.copy_in(0, b"P");
        drop(slice.into_shared());
        assert_eq!(free(&pool), 2);
    }
}
