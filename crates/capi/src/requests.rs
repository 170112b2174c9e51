//! An open queue: its requests with the callers' memory, and its registered buffers.
#![allow(unsafe_code)] // The caller's memory is written when a read completes.

use crate::error::Failure;
use crate::handles::closed;
use crate::memory;
use host::{BlockError, Operation, Queue};
use reactor::{IoSlice, Memory, Region, RegionHandle};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_int;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

/// A queue of the calling thread.
#[derive(Debug)]
pub(crate) struct OpenQueue {
    handle: usize,
    queue: Queue,
    table: Table,
}

/// Requests of a queue, and the buffers that they may use.
#[derive(Debug, Default)]
struct Table {
    /// Requests by their tags.
    pending: Vec<Pending>,
    free: Vec<usize>,
    /// Registered buffers by their addresses.
    registered: BTreeMap<usize, Registered>,
}

/// A registered buffer: a range of a region, which is one of the queue's own where that gave it.
#[derive(Debug)]
struct Registered {
    region: RegionHandle,
    offset: usize,
    length: usize,
    reserved: bool,
}

impl Registered {
    /// A range of the buffer.
    fn slice(&self, at: usize, length: usize) -> IoSlice {
        let memory = Memory::Region(self.region.clone());
        IoSlice::new(memory, self.offset + at, length)
    }
}

/// A request under way.
#[derive(Debug, Default)]
struct Pending {
    user: usize,
    destination: Destination,
}

/// The caller's memory that a completion concerns.
#[derive(Debug, Default)]
enum Destination {
    /// None: the data went with the request, came into a registered buffer, or there was none.
    #[default]
    Nowhere,
    /// A read's data is copied to `length` bytes here.
    Memory(*mut u8, usize),
    /// A read's data is copied to these parts.
    Parts(Vec<libc::iovec>),
}

/// The data of a request as the caller names it.
pub(crate) enum Data {
    /// No data; the range has `u64` bytes.
    None(u64),
    /// One range of memory.
    Memory(*mut u8, usize),
    /// Parts of memory.
    Parts(Vec<libc::iovec>),
}

/// A completed request.
pub(crate) struct Finished {
    /// The caller's pointer.
    pub(crate) user: usize,
    /// 0, or a negative errno value.
    pub(crate) result: i32,
}

thread_local! {
    static QUEUES: RefCell<Vec<OpenQueue>> = const { RefCell::new(Vec::new()) };
}

/// Handles of the queues of all threads, to tell another thread's from one that was closed.
static ALL: RwLock<BTreeSet<usize>> = RwLock::new(BTreeSet::new());

/// Runs `f` on the calling thread's queue with this handle.
pub(crate) fn with<T>(
    handle: usize,
    f: impl FnOnce(&mut OpenQueue) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let found = QUEUES.try_with(|queues| {
        let mut queues = queues.borrow_mut();
        let mut all = queues.iter_mut();
        all.find(|queue| queue.handle == handle).map(f)
    });
    found.ok().flatten().unwrap_or_else(|| Err(missing(handle)))
}

/// Adds a queue to those of the calling thread. A thread that is at its end has none any more.
pub(crate) fn open(handle: usize, queue: Queue) -> Result<(), Failure> {
    let table = Table {
        pending: Vec::with_capacity(queue.depth()),
        free: Vec::with_capacity(queue.depth()),
        registered: BTreeMap::new(),
    };
    let queue = OpenQueue {
        handle,
        queue,
        table,
    };
    // The set is locked alone: a queue that is dropped locks it, too.
    let added = QUEUES.try_with(|queues| queues.borrow_mut().push(queue));
    added.map_err(|_| {
        let message = "the thread is exiting; create the queue on another thread";
        Failure::new(libc::EPERM, message)
    })?;
    let mut all = ALL.write().unwrap_or_else(PoisonError::into_inner);
    all.insert(handle);
    Ok(())
}

/// Closes a queue of the calling thread. What is under way ends without an answer; memory of the
/// caller's is not touched any more.
pub(crate) fn close(handle: usize) -> Result<(), Failure> {
    let removed = QUEUES.try_with(|queues| {
        let mut queues = queues.borrow_mut();
        let at = queues.iter().position(|queue| queue.handle == handle)?;
        Some(queues.swap_remove(at))
    });
    let Some(queue) = removed.ok().flatten() else {
        return Err(missing(handle));
    };
    drop(queue);
    Ok(())
}

impl Drop for OpenQueue {
    fn drop(&mut self) {
        let mut all = ALL.write().unwrap_or_else(PoisonError::into_inner);
        all.remove(&self.handle);
    }
}

fn missing(handle: usize) -> Failure {
    let all = ALL.read().unwrap_or_else(PoisonError::into_inner);
    if all.contains(&handle) {
        let message = "the queue belongs to another thread; create one queue per thread";
        return Failure::new(libc::EPERM, message);
    }
    closed("queue")
}

impl OpenQueue {
    pub(crate) fn queue(&mut self) -> &mut Queue {
        &mut self.queue
    }

    /// Submits a request.
    ///
    /// # Safety
    /// The data's memory is the request's until it completes.
    pub(crate) unsafe fn submit(
        &mut self,
        operation: Operation,
        offset: u64,
        data: Data,
        user: usize,
    ) -> Result<(), Failure> {
        let length = match &data {
            Data::None(length) => *length,
            Data::Memory(_, length) => *length as u64,
            Data::Parts(parts) => parts.iter().map(|part| part.iov_len as u64).sum(),
        };
        if length == 0 && operation != Operation::Flush {
            let message = "the request has length 0; use at least one block";
            return Err(Failure::new(libc::EINVAL, message));
        }
        // The range is checked before anything is taken.
        let mut request = self.queue.request(0, operation, offset, length, None)?;
        // SAFETY: as for this function.
        let (slice, destination) = unsafe { self.attach(operation, data) }?;
        let tag = self.table.free.pop().unwrap_or(self.table.pending.len());
        if tag == self.table.pending.len() {
            self.table.pending.push(Pending::default());
        }
        self.table.pending[tag] = Pending { user, destination };
        request.tag = tag as u64;
        request.data = slice;
        self.queue.submit(request).map_err(|_| {
            self.table.detach(tag);
            let message = "the queue is full; reap a completion, then submit again";
            Failure::new(libc::EAGAIN, message)
        })
    }

    /// Finds memory of the queue's for a request, with the data of a write.
    ///
    /// # Safety
    /// As for [`submit`](Self::submit).
    unsafe fn attach(
        &mut self,
        operation: Operation,
        data: Data,
    ) -> Result<(Option<IoSlice>, Destination), Failure> {
        let reads = operation == Operation::Read;
        // One part may lie in a registered buffer.
        let data = match data {
            Data::Parts(parts) if parts.len() == 1 => {
                Data::Memory(parts[0].iov_base.cast(), parts[0].iov_len)
            }
            data => data,
        };
        match data {
            Data::None(_) => Ok((None, Destination::Nowhere)),
            Data::Memory(start, length) => {
                if let Some(slice) = self.registered_slice(start.addr(), length)? {
                    return Ok((Some(slice), Destination::Nowhere));
                }
                let mut slice = self.buffer(length)?;
                // SAFETY: the header asks for that much memory.
                let memory = unsafe { memory::bytes(start, if reads { 0 } else { length }) }?;
                slice.copy_in(0, memory);
                let destination = match reads {
                    true => Destination::Memory(start, length),
                    false => Destination::Nowhere,
                };
                Ok((Some(slice), destination))
            }
            Data::Parts(parts) => {
                let length = parts.iter().map(|part| part.iov_len).sum();
                let mut slice = self.buffer(length)?;
                if reads {
                    return Ok((Some(slice), Destination::Parts(parts)));
                }
                let mut at = 0;
                for part in &parts {
                    // SAFETY: the header asks for parts that exist.
                    let memory = unsafe { memory::bytes(part.iov_base.cast(), part.iov_len) }?;
                    slice.copy_in(at, memory);
                    at += memory.len();
                }
                Ok((Some(slice), Destination::Nowhere))
            }
        }
    }

    fn buffer(&mut self, length: usize) -> Result<IoSlice, Failure> {
        self.queue.buffer(length).ok_or_else(|| {
            let message =
                "all buffers of the queue are in use; reap a completion, then submit again";
            Failure::new(libc::EAGAIN, message)
        })
    }

    /// Returns the range of the registered buffer that it begins in, if it begins in one.
    fn registered_slice(&self, start: usize, length: usize) -> Result<Option<IoSlice>, Failure> {
        let Some((&address, buffer)) = self.table.registered.range(..=start).next_back() else {
            return Ok(None);
        };
        let at = start - address;
        if at >= buffer.length {
            return Ok(None);
        }
        if length > buffer.length - at {
            let message = "the range exceeds its registered buffer";
            return Err(Failure::new(libc::EINVAL, message));
        }
        Ok(Some(buffer.slice(at, length)))
    }

    /// Gives up the requests of this pointer of the caller's.
    pub(crate) fn cancel(&mut self, user: usize) -> Result<(), Failure> {
        let Self { queue, table, .. } = self;
        let pending = table.pending.iter().enumerate();
        let theirs = pending.filter(|(_, pending)| pending.user == user);
        let mut found = false;
        for (tag, _) in theirs {
            // A place that is free has no request.
            found |= queue.cancel(tag as u64);
        }
        if found {
            return Ok(());
        }
        let message = "no outstanding request with this pointer; reap its completion";
        Err(Failure::new(libc::ENOENT, message))
    }

    /// Waits for `min` completions (of those outstanding) at the longest `timeout`, and gives at
    /// most `max` of them to `each`. Returns their number.
    pub(crate) fn reap(
        &mut self,
        min: usize,
        max: usize,
        timeout: Option<Duration>,
        mut each: impl FnMut(usize, Finished) -> Result<(), Failure>,
    ) -> Result<usize, Failure> {
        let Self { queue, table, .. } = self;
        let min = min.min(max);
        let done = match timeout {
            None => queue.wait(min)?,
            Some(timeout) => queue.wait_for(min, timeout)?,
        };
        let mut taken = 0;
        for done in done.take(max) {
            let tag = usize::try_from(done.tag).expect("we gave it");
            let (user, destination) = table.detach(tag);
            let result = match done.result {
                // SAFETY: the header asks for memory that is the request's until now.
                Ok(()) => unsafe { bring(&destination, done.data.as_ref()) },
                Err(error) => -host::block_errno(error),
            };
            each(taken, Finished { user, result })?;
            taken += 1;
        }
        Ok(taken)
    }

    /// Registers a buffer, and returns its address.
    pub(crate) fn register(&mut self, length: usize) -> Result<*mut u8, Failure> {
        if length == 0 {
            let message = "the buffer has length 0; use at least 1 byte";
            return Err(Failure::new(libc::EINVAL, message));
        }
        let given = self.queue.reserve(length);
        let reserved = given.is_some();
        let slice = match given {
            Some(slice) => slice,
            None => {
                let region = Region::new(length);
                let region =
                    region.map_err(|error| Failure::new(libc::ENOMEM, error.to_string()))?;
                IoSlice::new(Memory::Region(region.handle()), 0, region.len())
            }
        };
        let (address, offset, length) = (slice.address(), slice.offset(), slice.len());
        if let Memory::Region(region) = slice.into_memory() {
            let buffer = Registered {
                region,
                offset,
                length,
                reserved,
            };
            self.table.registered.insert(address.addr(), buffer);
        }
        Ok(address)
    }

    /// Gives a registered buffer back.
    pub(crate) fn unregister(&mut self, address: usize) -> Result<(), Failure> {
        match self.table.registered.get(&address) {
            Some(buffer) if buffer.region.is_alone() => {
                if buffer.reserved {
                    self.queue.release(&buffer.slice(0, buffer.length));
                }
                self.table.registered.remove(&address);
                Ok(())
            }
            Some(_) => {
                let message = "a request uses the buffer; wait for its completion, then free the \
                    buffer";
                Err(Failure::new(libc::EBUSY, message))
            }
            None => {
                let message = "no registered buffer of this queue starts at this address";
                Err(Failure::new(libc::EINVAL, message))
            }
        }
    }
}

impl Table {
    /// Ends a request's entry. Returns the caller's pointer and memory.
    fn detach(&mut self, tag: usize) -> (usize, Destination) {
        let Pending { user, destination } = std::mem::take(&mut self.pending[tag]);
        self.free.push(tag);
        (user, destination)
    }
}

/// Copies a read's data to the caller's memory. Returns the request's result.
///
/// # Safety
/// The destination's memory exists, and nothing else uses it.
unsafe fn bring(destination: &Destination, data: Option<&IoSlice>) -> c_int {
    let Some(data) = data else { return 0 };
    match destination {
        Destination::Nowhere => 0,
        &Destination::Memory(start, length) => {
            // SAFETY: as for this function.
            match unsafe { memory::bytes_mut(start, length) } {
                Ok(memory) => data.copy_out(0, memory),
                Err(_) => return -host::block_errno(BlockError::Malformed),
            }
            0
        }
        Destination::Parts(parts) => {
            let mut at = 0;
            for part in parts {
                // SAFETY: as for this function.
                match unsafe { memory::bytes_mut(part.iov_base.cast(), part.iov_len) } {
                    Ok(memory) => data.copy_out(at, memory),
                    Err(_) => return -host::block_errno(BlockError::Malformed),
                }
                at += part.iov_len;
            }
            0
        }
    }
}
