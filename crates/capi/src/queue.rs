//! Completion queues: many requests of one thread at once.
#![allow(unsafe_code)] // Exported names, and pointers that are handed to `memory`.

use crate::error::{Failure, call};
use crate::handles;
use crate::memory;
use crate::namespace::{NAMESPACES, Namespace, SW_FUA};
use crate::options::{self, QueueOptions, SW_STEERED};
use crate::requests::{self, Data};
use crate::switchboard::SWITCHBOARDS;
use host::Operation;
use std::ffi::{c_int, c_void};
use std::os::fd::AsRawFd as _;
use std::ptr;

/// A queue of requests of one thread on a namespace. Opaque.
#[derive(Debug)]
pub struct Queue(());

/// A completed request.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Completion {
    /// The pointer given at submission.
    pub user: *mut c_void,
    /// 0, or a negative errno value. The memory of a read is valid only with 0.
    pub result: i32,
    /// Zero.
    pub reserved: u32,
}

/// Creates a queue of the calling thread for `depth` outstanding requests (1 to 4095; the
/// controller may allow fewer, see sw_queue_depth), with its own connection, or with the
/// switchboard of `options`. `options` may be NULL.
///
/// A thread with outstanding requests must call sw_queue_reap at least once per keep-alive
/// time-out. With a switchboard this is not necessary, except for the only SW_CLASS_LATENCY thread
/// of a core, which may get its own connection.
///
/// Returns 0, -EBUSY if the controller grants no more
/// I/O queues, -EMFILE if it grants fewer than the switchboard needs or the switchboard already has
/// 4,096 queues, -ENOSYS without io_uring, or another negative errno value. If a switchboard fails,
/// requests of its queues complete with -ENODEV.
///
/// # Safety
/// Pointers must be valid for the call.
// SAFETY: the name is this library's own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sw_queue_create(
    ns: *mut Namespace,
    depth: u32,
    options: *const QueueOptions,
    queue: *mut *mut Queue,
) -> c_int {
    call(|| {
        memory::storable(queue)?;
        // SAFETY: the header asks for options or NULL.
        let options = unsafe { memory::take(options) }?;
        options::flags(options.reserved, 0, "zero in reserved fields")?;
        let namespace = NAMESPACES.get(ns.addr())?;
        let most = host::limits::QUEUE_DEPTH_MAX - 1;
        let depth = number(depth, most, "the depth")?;
        let opened = if options.switchboard.is_null() {
            own(&namespace, depth, &options)
        } else {
            switched(&namespace, depth, &options)
        }?;
        let handle = handles::number();
        requests::open(handle, opened)?;
        // SAFETY: the header asks for a place for the handle.
        unsafe { memory::store(queue, ptr::without_provenance_mut(handle)) }
    })
}

/// Opens a queue with connections of its own.
fn own(
    namespace: &host::Namespace,
    depth: u16,
    options: &QueueOptions,
) -> Result<host::Queue, Failure> {
    if options.request_bytes != 0 || options.flags != 0 || options.buffer_bytes != 0 {
        let message = "request_bytes, flags and buffer_bytes need a switchboard; set one, or leave \
            them zero";
        return Err(Failure::new(libc::EINVAL, message));
    }
    let most = host::limits::CHANNEL_QUEUES_MAX;
    let connections = options.connections.max(1);
    let opened = namespace.queue_with(&host::QueueOptions {
        depth,
        connections: number(connections, most, "the number of connections")?,
        poll: options::poll(options.poll)?,
        class: options::class(options.request_class)?,
    })?;
    Ok(opened)
}

/// Opens a queue through a switchboard.
fn switched(
    namespace: &host::Namespace,
    depth: u16,
    options: &QueueOptions,
) -> Result<host::Queue, Failure> {
    options::flags(options.flags, SW_STEERED, "SW_STEERED")?;
    if options.connections != 0 {
        let message = "a queue of a switchboard has no own connections; leave the number zero";
        return Err(Failure::new(libc::EINVAL, message));
    }
    let board = SWITCHBOARDS.get(options.switchboard.addr())?;
    let mut chosen = host::SwitchedQueueOptions {
        class: options::class(options.request_class)?,
        depth: depth.into(),
        poll: options::poll(options.poll)?,
        buffer_bytes: options.buffer_bytes,
        steered: options.flags & SW_STEERED != 0,
        ..host::SwitchedQueueOptions::default()
    };
    if options.request_bytes != 0 {
        chosen.request_bytes = options.request_bytes;
    }
    Ok(namespace.switched_queue(&board, &chosen)?)
}

fn number(value: u32, most: u16, what: &str) -> Result<u16, Failure> {
    let value = u16::try_from(value)
        .ok()
        .filter(|&value| (1..=most).contains(&value));
    value.ok_or_else(|| {
        Failure::new(
            libc::EINVAL,
            format!(
                "{what} is out of range; use 1 to \
        {most}"
            ),
        )
    })
}

/// Closes a queue, as the exit of its thread does. Outstanding requests get no completion, and may
/// or may not take effect; their memory is not used any more. Frees the registered buffers.
///
/// Returns 0, -EBADF, or -EPERM for a queue of another thread.
// SAFETY: the name is this library's own.
#[unsafe(no_mangle)]
pub extern "C" fn sw_queue_destroy(queue: *mut Queue) -> c_int {
    call(|| requests::close(queue.addr()))
}

/// Returns the largest number of outstanding requests, or a negative errno value.
// SAFETY: the name is this library's own.
#[unsafe(no_mangle)]
pub extern "C" fn sw_queue_depth(queue: *mut Queue) -> c_int {
    call(|| requests::with(queue.addr(), |open| Ok(count(open.queue().depth()))))
}

/// Returns the number of submitted, unreaped requests, or a negative errno value.
// SAFETY: the name is this library's own.
#[unsafe(no_mangle)]
pub extern "C" fn sw_queue_outstanding(queue: *mut Queue) -> c_int {
    call(|| requests::with(queue.addr(), |open| Ok(count(open.queue().outstanding()))))
}

fn count(value: usize) -> c_int {
    c_int::try_from(value).unwrap_or(c_int::MAX)
}

fn submit(
    queue: *mut Queue,
    offset: u64,
    user: *mut c_void,
    request: impl FnOnce() -> Result<(Operation, Data), Failure>,
) -> c_int {
    call(|| {
        let (operation, data) = request()?;
        requests::with(queue.addr(), |open| {
            // SAFETY: the header says that the memory is the request's until it is reaped.
            unsafe { open.submit(operation, offset, data, user.expose_provenance()) }
        })
    })
}

fn memory_of(data: *mut c_void, length: usize) -> Result<Data, Failure> {
    if data.is_null() {
        return Err(memory::null("the data"));
    }
    Ok(Data::Memory(data.cast(), length))
}

fn writes(flags: u32) -> Result<Operation, Failure> {
    options::flags(flags, SW_FUA, "SW_FUA")?;
    let durable = flags & SW_FUA != 0;
    Ok(Operation::Write { durable })
}

/// Submits a read of `length` bytes at `offset`; `data` is filled when the request is reaped. The
/// request is sent at the next sw_queue_kick or sw_queue_reap. The completion returns `user`.
///
/// Returns 0; -EAGAIN if the queue is full; -EINVAL for a range that is empty, not aligned to
/// blocks, or longer than max_request_bytes; -ERANGE beyond the end; or another negative errno
/// value. After an error there is no completion.
///
/// # Safety
/// `data` must have `length` bytes until the request is reaped.
// SAFETY: the name is this library's own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sw_queue_read(
    queue: *mut Queue,
    data: *mut c_void,
    length: usize,
    offset: u64,
    user: *mut c_void,
) -> c_int {
    submit(queue, offset, user, || {
        Ok((Operation::Read, memory_of(data, length)?))
    })
}

/// Submits a write; `flags` is 0 or SW_FUA. The data is copied before the call returns, except from
/// a registered buffer, which must not change until the request is reaped.
///
/// Returns as sw_queue_read.
///
/// # Safety
/// `data` must have `length` bytes.
// SAFETY: the name is this library's own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sw_queue_write(
    queue: *mut Queue,
    data: *const c_void,
    length: usize,
    offset: u64,
    flags: u32,
    user: *mut c_void,
) -> c_int {
    submit(queue, offset, user, || {
        let data = memory_of(data.cast_mut(), length)?;
        Ok((writes(flags)?, data))
    })
}

/// Submits a read into a vector of `count` parts, as sw_readv. The vector itself is copied.
///
/// Returns as sw_queue_read.
///
/// # Safety
/// The parts must be valid until the request is reaped.
// SAFETY: the name is this library's own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sw_queue_readv(
    queue: *mut Queue,
    parts: *const libc::iovec,
    count: c_int,
    offset: u64,
    user: *mut c_void,
) -> c_int {
    submit(queue, offset, user, || {
        // SAFETY: the header asks for a vector with that many parts.
        let parts = unsafe { memory::parts(parts, count) }?;
        Ok((Operation::Read, Data::Parts(parts)))
    })
}

/// Submits a write of a vector of `count` parts, as sw_writev. The data is copied before the call
/// returns, except for a single part in a registered buffer, which must not change until the
/// request is reaped.
///
/// Returns as sw_queue_read.
///
/// # Safety
/// The vector and its parts must be valid.
// SAFETY: the name is this library's own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sw_queue_writev(
    queue: *mut Queue,
    parts: *const libc::iovec,
    count: c_int,
    offset: u64,
    flags: u32,
    user: *mut c_void,
) -> c_int {
    submit(queue, offset, user, || {
        // SAFETY: the header asks for a vector with that many parts.
        let parts = unsafe { memory::parts(parts, count) }?;
        Ok((writes(flags)?, Data::Parts(parts)))
    })
}

/// Submits a flush: at its completion, all writes reaped before the submission are on stable
/// storage.
///
/// Returns as sw_queue_read.
// SAFETY: the name is this library's own.
#[unsafe(no_mangle)]
pub extern "C" fn sw_queue_flush(queue: *mut Queue, user: *mut c_void) -> c_int {
    submit(queue, 0, user, || Ok((Operation::Flush, Data::None(0))))
}

/// Submits a discard, as sw_discard.
///
/// Returns as sw_queue_read.
// SAFETY: the name is this library's own.
#[unsafe(no_mangle)]
pub extern "C" fn sw_queue_discard(
    queue: *mut Queue,
    offset: u64,
    length: u64,
    user: *mut c_void,
) -> c_int {
    submit(queue, offset, user, || {
        Ok((Operation::Deallocate, Data::None(length)))
    })
}

/// Submits a write of zeroes, as sw_write_zeroes.
///
/// Returns as sw_queue_read.
// SAFETY: the name is this library's own.
#[unsafe(no_mangle)]
pub extern "C" fn sw_queue_write_zeroes(
    queue: *mut Queue,
    offset: u64,
    length: u64,
    user: *mut c_void,
) -> c_int {
    let operation = Operation::WriteZeroes {
        deallocate: false,
        durable: false,
    };
    submit(queue, offset, user, || Ok((operation, Data::None(length))))
}

/// Sends the submitted requests, without waiting.
///
/// Returns 0 or a negative errno value.
// SAFETY: the name is this library's own.
#[unsafe(no_mangle)]
pub extern "C" fn sw_queue_kick(queue: *mut Queue) -> c_int {
    call(|| {
        requests::with(queue.addr(), |open| {
            open.queue().kick();
            Ok(0)
        })
    })
}

/// Sends the submitted requests, waits until `min` (or all outstanding) requests are complete or
/// `timeout_us` microseconds have passed (negative: no limit), and stores at most `max`
/// completions. With `min` 0 it does not wait.
///
/// Returns the number of completions, or a negative errno value.
///
/// # Safety
/// `completions` must have room for `max`.
// SAFETY: the name is this library's own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sw_queue_reap(
    queue: *mut Queue,
    completions: *mut Completion,
    min: u32,
    max: u32,
    timeout_us: i64,
) -> c_int {
    call(|| {
        if max > 0 {
            memory::storable(completions)?;
        }
        let timeout = options::timeout(timeout_us);
        let max = c_int::try_from(max).unwrap_or(c_int::MAX).unsigned_abs();
        let taken = requests::with(queue.addr(), |open| {
            open.reap(min as usize, max as usize, timeout, |index, finished| {
                let completion = Completion {
                    user: ptr::with_exposed_provenance_mut(finished.user),
                    result: finished.result,
                    reserved: 0,
                };
                // SAFETY: the header asks for room for `max`, and the index is below it.
                unsafe { memory::store(completions.wrapping_add(index), completion) }
            })
        })?;
        Ok(count(taken))
    })
}

/// Sets the time-out of later requests to `timeout_us` microseconds; negative (default): none.
///
/// After it, a request completes with -ETIMEDOUT: at once, or, while its memory is needed for a
/// transfer, within 5 s (or the command time-out if shorter). Late data of a read is dropped. A
/// write may have taken effect; later writes to these blocks wait until the outcome is known, so it
/// cannot overwrite them. Time-outs are processed by sw_queue_reap.
///
/// Returns 0 or a negative errno value.
// SAFETY: the name is this library's own.
#[unsafe(no_mangle)]
pub extern "C" fn sw_queue_set_timeout(queue: *mut Queue, timeout_us: i64) -> c_int {
    call(|| {
        requests::with(queue.addr(), |open| {
            open.queue().set_timeout(options::timeout(timeout_us));
            Ok(0)
        })
    })
}

/// Cancels all requests submitted with `user`, as after a time-out. They complete with -ECANCELED,
/// or with the target's result if that arrives first. Their memory stays in use until they are
/// reaped.
///
/// Returns 0, -ENOENT if no outstanding request has `user`, or another negative errno value.
// SAFETY: the name is this library's own.
#[unsafe(no_mangle)]
pub extern "C" fn sw_queue_cancel(queue: *mut Queue, user: *mut c_void) -> c_int {
    call(|| requests::with(queue.addr(), |open| open.cancel(user.expose_provenance())))
}

/// Returns a file descriptor for poll(2) and event loops. It is readable when sw_queue_reap with
/// `min` 0 may have work or completions; spurious wake-ups are possible. It belongs to the queue:
/// do not read or close it.
///
/// Returns the descriptor, or a negative errno value.
// SAFETY: the name is this library's own.
#[unsafe(no_mangle)]
pub extern "C" fn sw_queue_fd(queue: *mut Queue) -> c_int {
    call(|| {
        requests::with(queue.addr(), |open| {
            Ok(open.queue().readiness()?.as_raw_fd())
        })
    })
}

/// Allocates a registered buffer of `length` zeroed bytes, rounded up to pages, and stores its
/// address. Requests with data in it are zero-copy, except vectors of several parts, and, with a
/// switchboard, buffers beyond buffer_bytes. Several requests may use parts of a buffer at the same
/// time. Pages are allocated at first access.
///
/// Returns 0, -EINVAL for length 0, -ENOMEM, or another negative errno value.
///
/// # Safety
/// `address` must be valid.
// SAFETY: the name is this library's own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sw_buffer_alloc(
    queue: *mut Queue,
    length: usize,
    address: *mut *mut c_void,
) -> c_int {
    call(|| {
        memory::storable(address)?;
        let start = requests::with(queue.addr(), |open| open.register(length))?;
        // SAFETY: the header asks for a place for the address.
        unsafe { memory::store(address, start.cast()) }
    })
}

/// Frees a buffer of sw_buffer_alloc.
///
/// Returns 0, -EBUSY while a request uses it, -EINVAL if no buffer starts at `address`, or another
/// negative errno value.
// SAFETY: the name is this library's own.
#[unsafe(no_mangle)]
pub extern "C" fn sw_buffer_free(queue: *mut Queue, address: *mut c_void) -> c_int {
    call(|| requests::with(queue.addr(), |open| open.unregister(address.addr())))
}
