//! Namespaces and blocking calls.
#![allow(unsafe_code)] // Exported names, and pointers that are handed to `memory`.

use crate::error::{Failure, call};
use crate::handles::Handles;
use crate::memory::{self, Versioned};
use crate::options;
use crate::target::{TARGETS, Target};
use std::ffi::{c_int, c_void};
use std::io::{IoSlice, IoSliceMut};
use std::ptr;

/// An open namespace. Opaque.
#[derive(Debug)]
pub struct Namespace(());

pub(crate) static NAMESPACES: Handles<host::Namespace> = Handles::new("namespace");

/// FUA: a write completes when its data is on stable storage.
pub const SW_FUA: u32 = 1;

/// Sizes and limits of a namespace. Set size to sizeof(sw_info).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NamespaceInfo {
    /// Size of the structure in bytes.
    pub size: usize,
    /// Current size of the namespace in bytes; the target may change it.
    pub bytes: u64,
    /// Block size in bytes: unit of offsets and lengths.
    pub block_bytes: u32,
    /// Largest request of a queue in bytes (with a switchboard: request_bytes of the queue).
    /// Blocking calls have no limit.
    pub max_request_bytes: u32,
    /// Namespace ID.
    pub nsid: u32,
    /// 1 if the namespace is read-only, otherwise 0.
    pub read_only: u32,
}

// SAFETY: a `usize`, a 64-bit and four 32-bit numbers leave no gap.
unsafe impl Versioned for NamespaceInfo {}

const _: () = assert!(
    size_of::<NamespaceInfo>() == 32,
    "the layout is part of the ABI"
);

/// Opens the namespace `nsid` of a target and stores a handle.
///
/// Returns 0, -ENXIO if there is no such namespace, -EBUSY if the controller grants no more I/O
/// queues, or another negative errno value.
///
/// # Safety
/// `namespace_out` must be valid.
// SAFETY: the name is this library's own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sw_open(
    target: *mut Target,
    nsid: u32,
    namespace_out: *mut *mut Namespace,
) -> c_int {
    call(|| {
        memory::storable(namespace_out)?;
        let connected = TARGETS.get(target.addr())?;
        let opened = connected.subsystem.namespace_with(nsid, connected.class)?;
        let handle = NAMESPACES.insert(opened);
        // SAFETY: the header asks for a place for the handle.
        unsafe { memory::store(namespace_out, ptr::without_provenance_mut(handle)) }
    })
}

/// Closes a namespace handle. Outstanding calls of other threads and queues continue.
///
/// Returns 0 or -EBADF.
// SAFETY: the name is this library's own.
#[unsafe(no_mangle)]
pub extern "C" fn sw_close(ns: *mut Namespace) -> c_int {
    call(|| NAMESPACES.remove(ns.addr()).map(drop))
}

/// Sets the time-out of later calls with this handle to `timeout_us` microseconds; negative
/// (default): none.
///
/// After it, a call returns -ETIMEDOUT: at once, or, while its data is being transferred, within 5
/// s (or the command time-out if shorter). A write may have taken effect in part or as a whole;
/// later writes to these blocks wait until the outcome is known. The caller's memory is not used
/// after the return. Calls with a time-out are executed by the library's thread, without the I/O
/// path of the options.
///
/// Returns 0 or -EBADF.
// SAFETY: the name is this library's own.
#[unsafe(no_mangle)]
pub extern "C" fn sw_set_timeout(ns: *mut Namespace, timeout_us: i64) -> c_int {
    call(|| {
        let timeout = options::timeout(timeout_us);
        NAMESPACES.change(ns.addr(), |namespace| namespace.with_timeout(timeout))
    })
}

/// Stores another handle of the namespace, whose calls sw_cancel can cancel. Close it with
/// sw_close. Its calls are executed by the library's thread, without the I/O path of the options.
///
/// Returns 0, -EBADF, or another negative errno value.
///
/// # Safety
/// `namespace_out` must be valid.
// SAFETY: the name is this library's own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sw_cancellable(
    ns: *mut Namespace,
    namespace_out: *mut *mut Namespace,
) -> c_int {
    call(|| {
        memory::storable(namespace_out)?;
        let (namespace, _) = NAMESPACES.get(ns.addr())?.cancellable();
        let handle = NAMESPACES.insert(namespace);
        // SAFETY: the header asks for a place for the handle.
        unsafe { memory::store(namespace_out, ptr::without_provenance_mut(handle)) }
    })
}

/// Cancels all current and later calls of a handle of sw_cancellable, from any thread. They return
/// -ECANCELED, unless they complete first, at the same time as after a time-out (sw_set_timeout). A
/// write may have taken effect. Queues created from the handle continue.
///
/// Returns 0, -EBADF, or -EINVAL for any other handle.
// SAFETY: the name is this library's own.
#[unsafe(no_mangle)]
pub extern "C" fn sw_cancel(ns: *mut Namespace) -> c_int {
    call(|| {
        let canceller = NAMESPACES.get(ns.addr())?.canceller();
        let canceller = canceller.ok_or_else(|| {
            let message = "calls of this handle cannot be cancelled; use a handle of \
                sw_cancellable";
            Failure::new(libc::EINVAL, message)
        })?;
        canceller.cancel();
        Ok(())
    })
}

/// Fills `info`, up to its size field.
///
/// Returns 0 or a negative errno value.
///
/// # Safety
/// `info` must be valid.
// SAFETY: the name is this library's own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sw_namespace_info(ns: *mut Namespace, info: *mut NamespaceInfo) -> c_int {
    call(|| {
        let namespace = NAMESPACES.get(ns.addr())?;
        let value = NamespaceInfo {
            size: 0,
            bytes: namespace.size(),
            block_bytes: namespace.block_bytes(),
            max_request_bytes: u32::try_from(namespace.max_request_bytes()).unwrap_or(u32::MAX),
            nsid: namespace.info().nsid,
            read_only: namespace.is_read_only().into(),
        };
        // SAFETY: the header asks for a structure with its size.
        unsafe { memory::fill(info, &value) }
    })
}

/// Reads `length` bytes at `offset`.
///
/// Returns 0, -EINVAL if offset or length is not a multiple of the block size, -ERANGE beyond the
/// end, or another negative errno value. After an error part of the memory may be filled.
///
/// # Safety
/// `data` must have `length` bytes.
// SAFETY: the name is this library's own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sw_read(
    ns: *mut Namespace,
    data: *mut c_void,
    length: usize,
    offset: u64,
) -> c_int {
    call(|| {
        let namespace = NAMESPACES.get(ns.addr())?;
        // SAFETY: the header asks for that much memory.
        let data = unsafe { memory::bytes_mut(data.cast(), length) }?;
        Ok(namespace.read(offset, data)?)
    })
}

/// Writes `length` bytes at `offset`. Without SW_FUA in `flags`, the data is on stable storage only
/// after sw_flush.
///
/// Returns as sw_read. After an error part of the range may be written.
///
/// # Safety
/// `data` must have `length` bytes.
// SAFETY: the name is this library's own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sw_write(
    ns: *mut Namespace,
    data: *const c_void,
    length: usize,
    offset: u64,
    flags: u32,
) -> c_int {
    call(|| {
        let namespace = NAMESPACES.get(ns.addr())?;
        options::flags(flags, SW_FUA, "SW_FUA")?;
        // SAFETY: the header asks for that much memory.
        let data = unsafe { memory::bytes(data.cast(), length) }?;
        let written = match flags & SW_FUA {
            0 => namespace.write(offset, data),
            _ => namespace.write_durable(offset, data),
        };
        Ok(written?)
    })
}

/// Reads into a vector of `count` parts (0 to 1024). Parts may have any length, but must not
/// overlap; their total length is a multiple of the block size.
///
/// Returns as sw_read.
///
/// # Safety
/// The vector and its parts must be valid.
// SAFETY: the name is this library's own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sw_readv(
    ns: *mut Namespace,
    parts: *const libc::iovec,
    count: c_int,
    offset: u64,
) -> c_int {
    call(|| {
        let namespace = NAMESPACES.get(ns.addr())?;
        // SAFETY: the header asks for a vector with that many parts.
        let parts = unsafe { memory::parts(parts, count) }?;
        let mut slices = Vec::with_capacity(parts.len());
        for part in &parts {
            // SAFETY: the header asks for parts that exist, and none overlaps another.
            let slice = unsafe { memory::bytes_mut(part.iov_base.cast(), part.iov_len) }?;
            slices.push(IoSliceMut::new(slice));
        }
        Ok(namespace.read_vectored(offset, &mut slices)?)
    })
}

/// Writes a vector of `count` parts; see sw_readv and sw_write.
///
/// # Safety
/// The vector and its parts must be valid.
// SAFETY: the name is this library's own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sw_writev(
    ns: *mut Namespace,
    parts: *const libc::iovec,
    count: c_int,
    offset: u64,
    flags: u32,
) -> c_int {
    call(|| {
        let namespace = NAMESPACES.get(ns.addr())?;
        options::flags(flags, SW_FUA, "SW_FUA")?;
        // SAFETY: the header asks for a vector with that many parts.
        let parts = unsafe { memory::parts(parts, count) }?;
        let mut slices = Vec::with_capacity(parts.len());
        for part in &parts {
            // SAFETY: the header asks for parts that exist.
            let slice = unsafe { memory::bytes(part.iov_base.cast(), part.iov_len) }?;
            slices.push(IoSlice::new(slice));
        }
        Ok(namespace.write_vectored(offset, &slices, flags & SW_FUA != 0)?)
    })
}

/// Flushes all earlier writes to stable storage.
///
/// Returns 0, -EREMOTEIO if the target lost unflushed writes, or another negative errno value.
// SAFETY: the name is this library's own.
#[unsafe(no_mangle)]
pub extern "C" fn sw_flush(ns: *mut Namespace) -> c_int {
    call(|| Ok(NAMESPACES.get(ns.addr())?.flush()?))
}

/// Discards (deallocates) `length` bytes at `offset`.
///
/// Returns as sw_read.
// SAFETY: the name is this library's own.
#[unsafe(no_mangle)]
pub extern "C" fn sw_discard(ns: *mut Namespace, offset: u64, length: u64) -> c_int {
    call(|| Ok(NAMESPACES.get(ns.addr())?.discard(offset, length)?))
}

/// Makes `length` bytes at `offset` read as zeroes.
///
/// Returns as sw_read.
// SAFETY: the name is this library's own.
#[unsafe(no_mangle)]
pub extern "C" fn sw_write_zeroes(ns: *mut Namespace, offset: u64, length: u64) -> c_int {
    call(|| Ok(NAMESPACES.get(ns.addr())?.write_zeroes(offset, length)?))
}
