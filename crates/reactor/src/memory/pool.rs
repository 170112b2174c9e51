//! Page-aligned buffers of a core in a few sizes, mapped once at start.
#![allow(unsafe_code)] // Buffers are ranges of one mapping whose addresses the kernel is given.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::rc::Rc;

/// Size of a page: the alignment of every buffer, which suffices for `O_DIRECT` on any device.
pub(super) const PAGE_BYTES: usize = 4096;

/// Anonymous memory of this process, unmapped when dropped.
#[derive(Debug)]
pub(super) struct Mapping {
    address: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping is an address and a length, and may be unmapped from any thread; its owners
// document which accesses to the bytes are allowed.
unsafe impl Send for Mapping {}
// SAFETY: sharing the address is harmless; `Region` documents concurrent access to the bytes.
unsafe impl Sync for Mapping {}

/// The page size of a [`Mapping`], if the kernel supports it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pages {
    /// Huge pages: fewer translation misses on random access.
    Huge,
    /// Small pages: only touched pages occupy memory.
    Small,
}

impl Mapping {
    pub(super) fn new(len: usize, pages: Pages) -> io::Result<Self> {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice aliases nothing.
        let address = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                flags,
            )
        }?;
        let address = NonNull::new(address.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let advice = match pages {
            Pages::Huge => rustix::mm::Advice::LinuxHugepage,
            Pages::Small => rustix::mm::Advice::LinuxNoHugepage,
        };
        // A kernel without huge pages refuses the advice; nothing depends on it.
        // SAFETY: the range is exactly the mapping that was just made.
        let _ = unsafe { rustix::mm::madvise(address.as_ptr().cast(), len, advice) };
        Ok(Self { address, len })
    }

    pub(super) fn address(&self) -> *mut u8 {
        self.address.as_ptr()
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `new`; buffers, region handles and through them the
        // operations in the kernel keep the mapping alive, so nothing uses it any more.
        let unmapped = unsafe { rustix::mm::munmap(self.address.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "unmapping our own memory cannot fail");
    }
}

/// Size and number of a pool's buffers of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferClass {
    /// Size of each in bytes; rounded up to whole pages.
    pub bytes: usize,
    /// Number of buffers.
    pub count: usize,
}

struct Class {
    bytes: usize,
    /// The size as stored in buffers.
    len: u32,
    /// Address of the first buffer; the others follow contiguously.
    first: *mut u8,
    /// Indices of the free buffers.
    free: RefCell<Vec<u16>>,
    /// Number of owners of each buffer while it is shared.
    owners: Vec<Cell<u32>>,
    /// Minimum of free buffers ever: shows whether the pool is large enough.
    low_water: Cell<usize>,
}

struct PoolInner {
    classes: Vec<Class>,
    _mapping: Mapping,
}

/// The buffers of one core. Cloning gives another handle on the same pool.
///
/// Pages are allocated when a buffer is first used, and the buffer returned last is taken first, so
/// an idle pool costs little and a busy one stays in the cache.
#[derive(Clone)]
pub struct BufferPool {
    inner: Rc<PoolInner>,
}

impl BufferPool {
    /// Creates a pool with the given sizes, smallest first.
    ///
    /// # Errors The kernel refuses the address space.
    ///
    /// # Panics If the sizes are not in ascending order, a size is zero or 4 GiB, or there are more
    /// than 65,535 buffers of a size.
    pub fn new(classes: &[BufferClass]) -> io::Result<Self> {
        assert!(
            classes.windows(2).all(|w| w[0].bytes < w[1].bytes),
            "sizes ascend"
        );
        assert!(classes.iter().all(|c| c.bytes > 0), "a buffer has a size");
        let rounded = |class: &BufferClass| class.bytes.next_multiple_of(PAGE_BYTES);
        let total: usize = classes.iter().map(|c| rounded(c) * c.count).sum();
        let mapping = Mapping::new(total.max(PAGE_BYTES), Pages::Huge)?;
        let mut next = mapping.address();
        let classes = classes
            .iter()
            .map(|class| {
                let bytes = rounded(class);
                let first = next;
                next = next.wrapping_add(bytes * class.count);
                let count = u16::try_from(class.count).expect("at most 65,535 of a size");
                // The first buffer is taken first.
                let free: Vec<u16> = (0..count).rev().collect();
                Class {
                    bytes,
                    len: u32::try_from(bytes).expect("less than 4 GiB"),
                    first,
                    owners: vec![Cell::new(0); class.count],
                    low_water: Cell::new(free.len()),
                    free: RefCell::new(free),
                }
            })
            .collect();
        Ok(Self {
            inner: Rc::new(PoolInner {
                classes,
                _mapping: mapping,
            }),
        })
    }

    /// Takes a buffer of at least `bytes` bytes, from the smallest size that has a free one. `None`
    /// if all are in use: the caller waits for one to return. The content is undefined.
    #[must_use]
    pub fn take(&self, bytes: usize) -> Option<Buffer> {
        let candidates = self.inner.classes.iter().enumerate();
        for (index, class) in candidates.filter(|(_, class)| class.bytes >= bytes) {
            let mut free = class.free.borrow_mut();
            if let Some(number) = free.pop() {
                class.low_water.set(class.low_water.get().min(free.len()));
                drop(free);
                let address = class.first.wrapping_add(usize::from(number) * class.bytes);
                return Some(Buffer {
                    address: NonNull::new(address).expect("a mapping does not start at zero"),
                    pool: Rc::clone(&self.inner),
                    len: class.len,
                    class: u16::try_from(index).expect("a few sizes"),
                    number,
                });
            }
        }
        None
    }

    /// Returns the memory of free buffers to the kernel, with one system call for each run of them.
    pub fn release_free(&self) {
        for class in &self.inner.classes {
            let mut free = class.free.borrow().clone();
            free.sort_unstable();
            for run in free.chunk_by(|&one, &next| one + 1 == next) {
                let first = class.first.wrapping_add(usize::from(run[0]) * class.bytes);
                let len = class.bytes * run.len();
                // SAFETY: the range is whole free buffers of the mapping, and the content of a free
                // buffer is unspecified.
                let released = unsafe {
                    rustix::mm::madvise(first.cast(), len, rustix::mm::Advice::LinuxDontNeed)
                };
                debug_assert!(released.is_ok(), "our own memory is not locked");
            }
        }
    }

    /// Size of the largest buffer in bytes.
    #[must_use]
    pub fn largest(&self) -> usize {
        self.inner.classes.last().map_or(0, |class| class.bytes)
    }

    /// Number of free buffers of the size with this index.
    #[must_use]
    pub fn free(&self, class: usize) -> usize {
        self.inner.classes[class].free.borrow().len()
    }

    /// Total bytes of all buffers, and of the buffers in use.
    #[must_use]
    pub fn bytes(&self) -> (usize, usize) {
        let classes = self.inner.classes.iter();
        classes.fold((0, 0), |(all, used), class| {
            let (count, free) = (class.owners.len(), class.free.borrow().len());
            (
                all + class.bytes * count,
                used + class.bytes * (count - free),
            )
        })
    }

    /// Returns each size with the number of its buffers, in the order of [`usage`](Self::usage).
    pub fn classes(&self) -> impl Iterator<Item = BufferClass> + '_ {
        let classes = self.inner.classes.iter();
        classes.map(|class| BufferClass {
            bytes: class.bytes,
            count: class.owners.len(),
        })
    }

    /// Iterates over the sizes: (size in bytes, free now, minimum ever free).
    pub fn usage(&self) -> impl Iterator<Item = (usize, usize, usize)> + '_ {
        let classes = self.inner.classes.iter();
        classes.map(|c| (c.bytes, c.free.borrow().len(), c.low_water.get()))
    }
}

impl fmt::Debug for BufferPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.usage()).finish()
    }
}

/// A page-aligned buffer with one owner; dropping it returns it to its pool.
pub struct Buffer {
    address: NonNull<u8>,
    pool: Rc<PoolInner>,
    // Small, because requests carry buffers through several queues.
    len: u32,
    class: u16,
    number: u16,
}

impl Buffer {
    pub(crate) fn address(&self) -> *mut u8 {
        self.address.as_ptr()
    }

    /// The number of owners that share the buffer; used by
    /// [`SharedBuffer`](super::shared::SharedBuffer) only.
    pub(super) fn owners(&self) -> &Cell<u32> {
        &self.pool.classes[usize::from(self.class)].owners[usize::from(self.number)]
    }

    /// Creates a second value for the same buffer, for a read-only owner.
    pub(super) fn alias(&self) -> Self {
        Self {
            pool: Rc::clone(&self.pool),
            ..*self
        }
    }

    /// Drops the value without returning the buffer, which another value represents.
    pub(super) fn forget(mut self) {
        self.class = u16::MAX;
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the range belongs to the pool's mapping, which the buffer keeps alive; anonymous
        // memory is initialised. No write happens meanwhile: the range has one owner, or several
        // aliases that live in `SharedBuffer`s, which only read and which the driver refuses as the
        // target of a read or a receive (`IoSlice::is_writable`).
        unsafe { std::slice::from_raw_parts(self.address.as_ptr(), self.len as usize) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` makes the access exclusive: aliases are never
        // handed out mutably (`SharedBuffer` returns the buffer itself to the last owner only).
        unsafe { std::slice::from_raw_parts_mut(self.address.as_ptr(), self.len as usize) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // Only `forget` leaves no class.
        if let Some(class) = self.pool.classes.get(usize::from(self.class)) {
            class.free.borrow_mut().push(self.number);
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("len", &self.len).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_distinct_aligned_and_come_back() {
        let classes = [
            BufferClass {
                bytes: 4096,
                count: 2,
            },
            BufferClass {
                bytes: 65_536,
                count: 1,
            },
        ];
        let pool = BufferPool::new(&classes).expect("a small mapping");
        let mut a = pool.take(100).expect("a small one");
        let mut b = pool.take(4096).expect("a small one");
        a.fill(1);
        b.fill(2);
        assert!(a.iter().all(|&x| x == 1));
        assert_eq!(a.address() as usize % PAGE_BYTES, 0);
        // The small ones are in use: the next size serves.
        let c = pool.take(1).expect("the large one");
        assert_eq!(c.len(), 65_536);
        assert!(pool.take(1).is_none());
        drop(b);
        assert!(pool.take(5_000).is_none());
        assert!(pool.take(1).is_some());
        drop((a, c));
        let usage: Vec<_> = pool.usage().collect();
        assert_eq!(usage, [(4096, 2, 0), (65_536, 1, 0)]);
    }

    #[test]
    fn free_buffers_are_given_back_to_the_machine_and_others_stay() {
        let class = BufferClass {
            bytes: 8192,
            count: 5,
        };
        let pool = BufferPool::new(&[class]).expect("a small mapping");
        let mut taken: Vec<_> = (0..5).map_while(|_| pool.take(1)).collect();
        for buffer in &mut taken {
            buffer.fill(7);
        }
        let kept = taken.remove(2);
        drop(taken);
        pool.release_free();
        assert!(kept.iter().all(|&byte| byte == 7));
        let again: Vec<_> = (0..4).map_while(|_| pool.take(1)).collect();
        assert_eq!(again.len(), 4);
        for buffer in &again {
            assert!(buffer.iter().all(|&byte| byte == 0), "new pages");
        }
    }

    #[test]
    fn a_buffer_outlives_its_pool_handle() {
        let pool = BufferPool::new(&[BufferClass { bytes: 1, count: 1 }]).expect("a mapping");
        let mut buffer = pool.take(1).expect("one");
        drop(pool);
        buffer[0] = 9;
        assert_eq!(buffer[0], 9);
    }
}
