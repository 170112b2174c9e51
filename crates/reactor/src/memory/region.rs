//! A device's own memory, mapped once and shared by every core that serves the device.
#![allow(unsafe_code)] // The memory is written by several cores and by the kernel at once.

use crate::memory::pool::{Mapping, PAGE_BYTES, Pages};
use rustix::fs::MemfdFlags;
use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::sync::Arc;
#[cfg(not(target_arch = "x86_64"))]
use std::sync::atomic::AtomicU8;
use std::sync::atomic::{AtomicBool, Ordering};

/// Size of a huge page.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Why a [`Region`] could not be created.
#[derive(Debug, thiserror::Error)]
pub enum RegionError {
    /// The kernel refused the mapping.
    #[error("cannot map {bytes} bytes of memory: {source}; use less, or free memory")]
    Map {
        /// The requested size in bytes.
        bytes: usize,
        /// The kernel's error.
        source: io::Error,
    },
}

/// Bytes that are copied at once between a region and a file.
const CHUNK_BYTES: usize = 64 << 10;

/// Zeroed memory that lives as long as a handle to it; pages are allocated on first touch.
///
/// Like a real device's memory, it gives no guarantee for concurrent accesses to the same bytes: a
/// reader may see a mix of two writes, at the granularity of the processor's copies. Only plain
/// bytes are stored here, so no mix is invalid, and no reference to them ever exists. Each access
/// by [`write`], `read` and `zero` is that of a relaxed atomic on every byte, which cannot race
/// with concurrent ones. The kernel's accesses are like another thread's.
#[derive(Clone, Debug)]
pub struct Region {
    mapping: Arc<Mapping>,
    /// For a device's memory: which huge pages the kernel was advised to use.
    device: Option<Arc<HugePages>>,
}

/// One flag for each huge page of a device's memory.
#[derive(Debug)]
struct HugePages {
    advised: Box<[AtomicBool]>,
}

impl Region {
    /// Maps `bytes` bytes, rounded up to whole pages.
    ///
    /// # Errors [`RegionError::Map`] if the kernel refuses the address space.
    pub fn new(bytes: usize) -> Result<Self, RegionError> {
        Self::map(bytes, Pages::Huge)
    }

    /// Maps `bytes` bytes, rounded up to whole pages, for the blocks of a device: memory larger
    /// than the caches, parts of which may never be written.
    ///
    /// Writes of a page or more bypass the caches ([`RegionHandle::copy_in_unordered`]). A range
    /// gets huge pages only where writes arrive in sequence: a huge page for each of a thousand
    /// scattered blocks would take 2 GiB and, for zeroing, milliseconds per write.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn for_device(bytes: usize) -> Result<Self, RegionError> {
        let mut region = Self::map(bytes, Pages::Small)?;
        let count = region.len().div_ceil(HUGE_PAGE_BYTES) + 1;
        let advised = (0..count).map(|_| AtomicBool::new(false)).collect();
        region.device = Some(Arc::new(HugePages { advised }));
        Ok(region)
    }

    fn map(bytes: usize, pages: Pages) -> Result<Self, RegionError> {
        let size = bytes.max(1).next_multiple_of(PAGE_BYTES);
        let mapping =
            Mapping::new(size, pages).map_err(|source| RegionError::Map { bytes, source })?;
        Ok(Self {
            mapping: Arc::new(mapping),
            device: None,
        })
    }

    /// Replaces the content, which nobody may use at this time, by that of a region of the same size
    /// that another process [copied](Self::copy_to) to `file`.
    ///
    /// # Errors
    /// The file has another size, or cannot be read.
    pub fn copy_from(&self, file: &File) -> io::Result<()> {
        use rustix::fs::SeekFrom;
        if file.metadata()?.len() != self.len() as u64 {
            return Err(io::Error::other("the memory has another size"));
        }
        let memory = self.handle();
        memory.discard(0, self.len());
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut offset = 0;
        loop {
            // Nothing was written between one piece of data and the next one.
            let data = match rustix::fs::seek(file, SeekFrom::Data(offset as u64)) {
                Err(rustix::io::Errno::NXIO) => return Ok(()),
                found => found?,
            };
            offset = usize::try_from(data).map_err(io::Error::other)?;
            let chunk = &mut chunk[..CHUNK_BYTES.min(self.len() - offset)];
            file.read_exact_at(chunk, data)?;
            memory.copy_in(offset, chunk);
            offset += chunk.len();
        }
    }

    /// Returns a new file without a name, in memory.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn unnamed_file() -> io::Result<File> {
        let file = rustix::fs::memfd_create("device", MemfdFlags::CLOEXEC);
        Ok(File::from(file?))
    }

    /// Replaces the content of `file` by that of the region, for
    /// [`copy_from`](Self::copy_from) in another process. The region itself is anonymous memory: in
    /// a file, it would have huge pages only where the administrator allows them.
    ///
    /// # Errors
    /// Not enough memory.
    pub fn copy_to(&self, file: &File) -> io::Result<()> {
        file.set_len(0)?;
        file.set_len(self.len() as u64)?;
        let memory = self.handle();
        let pages = File::open("/proc/self/pagemap");
        let mut chunk = vec![0; CHUNK_BYTES];
        for offset in (0..self.len()).step_by(CHUNK_BYTES) {
            let chunk = &mut chunk[..CHUNK_BYTES.min(self.len() - offset)];
            if pages.as_ref().is_ok_and(|pages| {
                let address = memory.address() as usize + offset;
                is_absent(pages, address, chunk.len()).unwrap_or(false)
            }) {
                continue;
            }
            memory.copy_out(offset, chunk);
            if chunk.iter().any(|&byte| byte != 0) {
                file.write_all_at(chunk, offset as u64)?;
            }
        }
        Ok(())
    }

    /// Creates a handle for the calling core, which is cheap to clone there.
    #[must_use]
    pub fn handle(&self) -> RegionHandle {
        RegionHandle {
            region: Rc::new(self.clone()),
        }
    }

    /// Size in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.mapping.len()
    }

    /// Always false: a region has at least one page.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }
}

/// Returns true if the kernel has no page for this range of our anonymous memory, in memory or
/// swapped out: it was never written.
fn is_absent(pages: &File, address: usize, len: usize) -> io::Result<bool> {
    let mut entries = [0; CHUNK_BYTES / PAGE_BYTES * 8];
    let entries = &mut entries[..len.div_ceil(PAGE_BYTES) * 8];
    pages.read_exact_at(entries, (address / PAGE_BYTES * 8) as u64)?;
    // The upper two bits of an entry: present, swapped.
    Ok(entries.chunks(8).all(|entry| entry[7] & 0xc0 == 0))
}

/// One core's handle on a [`Region`]. Cloning it touches no memory used by another core.
#[derive(Clone, Debug)]
pub struct RegionHandle {
    region: Rc<Region>,
}

impl RegionHandle {
    /// Size in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.region.len()
    }

    /// Always false: a region has at least one page.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Returns true if this handle has no clone, in any slice.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        Rc::strong_count(&self.region) == 1
    }

    /// Returns true if this is a handle on `region`.
    #[must_use]
    pub fn is_of(&self, region: &Region) -> bool {
        Arc::ptr_eq(&self.region.mapping, &region.mapping)
    }

    /// Copies `bytes` into the region at `offset`.
    ///
    /// # Panics
    /// If they do not fit.
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) {
        self.copy_in_unordered(offset, bytes).order();
    }

    /// Copies `bytes` into the region at `offset` without a fence, for an owner that
    /// [orders](UnorderedStores::order) the stores of several copies at once. That pays off because
    /// each fence waits until the memory has accepted all earlier stores.
    ///
    /// # Panics
    /// If `bytes` do not fit.
    pub fn copy_in_unordered(&self, offset: usize, bytes: &[u8]) -> UnorderedStores {
        let to = self.checked(offset, bytes.len());
        let any = self.region.device.is_some() && bytes.len() >= PAGE_BYTES;
        if any {
            self.advise(to as usize, bytes.len());
        }
        let write = if any { stream } else { write };
        // SAFETY: `checked` proved that the destination lies within the mapping, and a slice of
        // Rust memory never overlaps with it. The returned value orders the stores.
        unsafe { write(bytes, to) }
        UnorderedStores {
            any,
            of_this_thread: PhantomData,
        }
    }

    /// Copies `out.len()` bytes out of the region at `offset`.
    ///
    /// # Panics
    /// If the range is not within the region.
    pub fn copy_out(&self, offset: usize, out: &mut [u8]) {
        let from = self.checked(offset, out.len());
        // SAFETY: `checked` proved that the source lies within the mapping, and a slice of Rust
        // memory never overlaps with it.
        unsafe { read(from, out) }
    }

    /// Writes `len` zero bytes at `offset`.
    ///
    /// # Panics
    /// If the range is not within the region.
    pub fn zero(&self, offset: usize, len: usize) {
        let to = self.checked(offset, len);
        // SAFETY: `checked` proved that the range lies within the mapping.
        unsafe { zero(to, len) }
    }

    /// Makes `len` bytes at `offset` read as zeroes, and returns the whole pages among them to the
    /// kernel; they are allocated again when next written.
    ///
    /// # Panics If the range is not within the region.
    pub fn discard(&self, offset: usize, len: usize) {
        let start = self.checked(offset, len).wrapping_sub(offset);
        let first = offset.next_multiple_of(PAGE_BYTES).min(offset + len);
        let last = ((offset + len) / PAGE_BYTES * PAGE_BYTES).max(first);
        self.zero(offset, first - offset);
        self.zero(last, offset + len - last);
        if first == last {
            return;
        }
        let (pages, advice) = (
            start.wrapping_add(first).cast(),
            rustix::mm::Advice::LinuxDontNeed,
        );
        // SAFETY: the pages lie within our own anonymous mapping, which stays mapped and reads as
        // zeroes; only plain bytes live here, and no reference to them exists.
        if unsafe { rustix::mm::madvise(pages, last - first, advice) }.is_err() {
            // Locked memory cannot be returned.
            self.zero(first, last - first);
        }
    }

    /// Returns true if the bytes at `offset` equal `bytes`.
    ///
    /// # Panics
    /// If the range is not within the region.
    #[must_use]
    pub fn equals(&self, offset: usize, bytes: &[u8]) -> bool {
        let mut chunk = [0u8; 512];
        bytes.chunks(chunk.len()).enumerate().all(|(i, expected)| {
            let at = offset + i * 512;
            let found = &mut chunk[..expected.len()];
            self.copy_out(at, found);
            found == expected
        })
    }

    pub(crate) fn address(&self) -> *mut u8 {
        self.region.mapping.address()
    }

    /// Advises the kernel to use a huge page for the range after the one being written when a write
    /// reaches the middle of the latter. Sequential writes will reach that range, and a page
    /// touched before the advice stays small.
    #[inline]
    fn advise(&self, address: usize, len: usize) {
        let middle = |address: usize| (address + HUGE_PAGE_BYTES / 2) / HUGE_PAGE_BYTES;
        if middle(address) != middle(address + len) {
            self.advise_next(middle(address + len));
        }
    }

    /// Advises the kernel to use the huge page with this index, counted from address zero.
    #[cold]
    fn advise_next(&self, number: usize) {
        let (Some(device), start) = (&self.region.device, self.address() as usize) else {
            return;
        };
        let (page, end) = (number * HUGE_PAGE_BYTES, start + self.len());
        if page < start || page + HUGE_PAGE_BYTES > end {
            return;
        }
        let advised = &device.advised[number - start / HUGE_PAGE_BYTES];
        if advised.load(Ordering::Relaxed) || advised.swap(true, Ordering::Relaxed) {
            return;
        }
        let page = self.address().wrapping_add(page - start).cast();
        // SAFETY: the range lies within our own mapping, and the advice changes none of its bytes.
        // A kernel without huge pages refuses it, which costs speed only.
        let _ = unsafe {
            rustix::mm::madvise(page, HUGE_PAGE_BYTES, rustix::mm::Advice::LinuxHugepage)
        };
    }

    fn checked(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(
            offset.checked_add(len).is_some_and(|end| end <= self.len()),
            "range {offset}+{len} exceeds a region of {} bytes",
            self.len()
        );
        self.address().wrapping_add(offset)
    }
}

/// Non-temporal stores ([`RegionHandle::copy_in_unordered`]) that other threads may see later than
/// this thread's subsequent stores, until a fence. The thread that made them sees them at once.
///
/// Dropping this value orders them at the latest.
#[derive(Debug, Default)]
#[must_use]
pub struct UnorderedStores {
    any: bool,
    /// A fence orders the stores of the thread that runs it.
    of_this_thread: PhantomData<*const ()>,
}

impl UnorderedStores {
    /// Returns true if no store waits to be ordered.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        !self.any
    }

    /// Adds the stores of `other`, to be ordered together with these.
    #[inline]
    pub fn join(&mut self, mut other: Self) {
        self.any |= std::mem::take(&mut other.any);
    }

    /// Makes all later stores and sends of this thread visible after these stores.
    #[inline]
    pub fn order(&mut self) {
        if std::mem::take(&mut self.any) {
            fence();
        }
    }
}

impl Drop for UnorderedStores {
    #[inline]
    fn drop(&mut self) {
        self.order();
    }
}

/// Orders the stores of [`stream`] before all later ones.
fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction has no operands. To the compiler it is an access to all memory, so
    // neither moves other accesses across it.
    unsafe {
        std::arch::asm!("sfence", options(nostack, preserves_flags));
    }
}

/// Writes with non-temporal stores. This saves reading the cache lines that are about to be
/// overwritten, half of the cost of a 4 KiB write, and leaves the cache to the receive buffers.
/// Only a [`fence`] orders such stores, and the caller must issue it.
///
/// # Safety
/// As of [`write`].
#[cfg(target_arch = "x86_64")]
unsafe fn stream(bytes: &[u8], to: *mut u8) {
    /// Bytes that the loop copies per iteration, and more than the alignment that its stores
    /// require.
    const STEP: usize = 64;
    let head = to.align_offset(STEP).min(bytes.len());
    let (first, rest) = bytes.split_at(head);
    // SAFETY: the head is a part of the range that the caller vouches for.
    unsafe { write(first, to) };
    let (steps, last) = rest.split_at(rest.len() / STEP * STEP);
    let at = to.wrapping_add(head);
    if !steps.is_empty() {
        // SAFETY: both ranges have `steps.len()` bytes, the destination by what the caller vouches
        // for, and it is aligned to 64 bytes; the loop runs at least once and ends with the range.
        unsafe {
            std::arch::asm!(
                "2:",
                "movdqu {a}, [{from}]",
                "movdqu {b}, [{from} + 16]",
                "movdqu {c}, [{from} + 32]",
                "movdqu {d}, [{from} + 48]",
                "movntdq [{to}], {a}",
                "movntdq [{to} + 16], {b}",
                "movntdq [{to} + 32], {c}",
                "movntdq [{to} + 48], {d}",
                "add {from}, 64",
                "add {to}, 64",
                "sub {left}, 64",
                "jnz 2b",
                a = out(xmm_reg) _,
                b = out(xmm_reg) _,
                c = out(xmm_reg) _,
                d = out(xmm_reg) _,
                from = inout(reg) steps.as_ptr() => _,
                to = inout(reg) at => _,
                left = inout(reg) steps.len() => _,
                options(nostack),
            );
        }
    }
    // SAFETY: the rest is the end of the range that the caller vouches for.
    unsafe { write(last, at.wrapping_add(steps.len())) };
}

/// On other processors, an ordinary write.
///
/// # Safety
/// As of [`write`].
#[cfg(not(target_arch = "x86_64"))]
unsafe fn stream(bytes: &[u8], to: *mut u8) {
    // SAFETY: the caller vouches for the range.
    unsafe { write(bytes, to) }
}

/// Writes each byte as a relaxed atomic store.
///
/// # Safety
/// `to` must be valid for writes of `bytes.len()` bytes, must not overlap with `bytes`, and no
/// reference to what it names may exist.
unsafe fn write(bytes: &[u8], to: *mut u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as the caller vouches. The compiler knows of no access that others could race with,
    // and the processor's are stores of one byte or several, as those of relaxed atomics.
    unsafe {
        copy(bytes.as_ptr(), to, bytes.len());
    }
    #[cfg(not(target_arch = "x86_64"))]
    for (i, &byte) in bytes.iter().enumerate() {
        // SAFETY: as the caller vouches; a byte is always aligned.
        unsafe { AtomicU8::from_ptr(to.wrapping_add(i)) }.store(byte, Ordering::Relaxed);
    }
}

/// Reads each byte as a relaxed atomic load.
///
/// # Safety
/// `from` must be valid for reads of `out.len()` bytes, must not overlap with `out`, and no
/// exclusive reference to what it names may exist.
unsafe fn read(from: *mut u8, out: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as of `write`, with loads.
    unsafe {
        copy(from, out.as_mut_ptr(), out.len());
    }
    #[cfg(not(target_arch = "x86_64"))]
    for (i, byte) in out.iter_mut().enumerate() {
        // SAFETY: as the caller vouches; a byte is always aligned.
        *byte = unsafe { AtomicU8::from_ptr(from.wrapping_add(i)) }.load(Ordering::Relaxed);
    }
}

/// Zeroes each byte as a relaxed atomic store.
///
/// # Safety
/// As of [`write`].
unsafe fn zero(to: *mut u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as of `write`; the direction flag is clear between instructions of ours.
    unsafe {
        std::arch::asm!(
            "rep stosb",
            inout("rcx") len => _,
            inout("rdi") to => _,
            in("al") 0_u8,
            options(nostack, preserves_flags),
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    for i in 0..len {
        // SAFETY: as the caller vouches; a byte is always aligned.
        unsafe { AtomicU8::from_ptr(to.wrapping_add(i)) }.store(0, Ordering::Relaxed);
    }
}

/// Copies with an instruction that is opaque to the compiler.
///
/// # Safety
/// `from` must be valid for reads and `to` for writes of `len` bytes, and they must not overlap.
#[cfg(target_arch = "x86_64")]
unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    if len == 0 {
        // Even with no bytes, the instruction waits for outstanding streaming stores, on an Intel
        // Xeon for longer than copying a page takes.
        return;
    }
    // SAFETY: the caller vouches for the ranges; the direction flag is clear between instructions
    // of ours.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") len => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags),
        );
    }
}

#[cfg(test)]
mod tests;
