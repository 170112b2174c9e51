//! A queue of the calling thread through a [`Switchboard`]: the thread submits, waits and takes its
//! completions as by a [`Queue`](super::Queue), and the switchboard's lanes, which all threads of the
//! process share, carry the requests by their class.

use super::blocking::{Namespace, Subsystem};
use super::own_channel::{Completions, OwnChannel};
use super::queue::SubmitError;
use super::range;
use crate::error::{HostError, RequestError};
use crate::switch::limits::{SUBMITTER_BYTES, SUBMITTER_DEPTH};
use crate::switch::{Switchboard, SwitchedChannel, SwitchedNamespace};
use base::units::{KIB, Lba};
use base::{Nanos, Time};
use block::{Device as _, Operation, Request};
use reactor::{BufferClass, Driver as _, PollPolicy};
use std::io;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::time::Duration;
use switch::Class;

base::with_defaults! {
    /// Options of a [`SwitchedQueue`].
    #[derive(Clone, Debug)]
    pub struct SwitchedQueueOptions {
        /// Class of the queue's requests.
        pub class: Class = Class::DEFAULT,
        /// Requests at once: 1 to 4,096.
        pub depth: u32 = SUBMITTER_DEPTH,
        /// Bytes of the longest request with data: a block, to what the controller takes. Twice as much
        /// for each request of the depth is the address space that the queue takes, 2 GiB at most, for
        /// which the depth is reduced.
        pub request_bytes: u32 = SUBMITTER_BYTES,
        /// Idle policy of [`SwitchedQueue::wait`].
        pub poll: PollPolicy = PollPolicy::Auto,
        /// Lets application steering move the thread to other cores of the switchboard while it has the
        /// queue, unless it was pinned to one.
        pub steered: bool = false,
    }
}

/// Requests and completions of one thread on a namespace, through a [`Switchboard`]. Made by
/// [`Namespace::switched_queue`].
///
/// If the switchboard breaks, requests under way and all later ones end with
/// [`BlockError::Gone`](block::BlockError). It has no barriers: its requests leave by lanes of several
/// cores, so a [`Queue`](super::Queue) is the way to order them.
#[derive(Debug)]
pub struct SwitchedQueue {
    own: OwnChannel<SwitchedChannel>,
    device: SwitchedNamespace,
    /// Time after which requests are given up.
    timeout: Option<Duration>,
    /// Keeps the controller connected; dropped last.
    _subsystem: Subsystem,
    /// The driver belongs to the thread that made it.
    _thread: PhantomData<*const ()>,
}

impl Namespace {
    /// A queue for the calling thread through the switchboard: its requests share the lanes of the
    /// other threads, by their class.
    ///
    /// # Errors
    /// As [`Switchboard::namespace`]; when the machine refuses another io_uring or the memory; when
    /// the switchboard has 4,096 submitters, or is broken.
    pub fn switched_queue(
        &self,
        board: &Switchboard,
        options: &SwitchedQueueOptions,
    ) -> Result<SwitchedQueue, HostError> {
        let device = board
            .namespace(&self.device())?
            .with_class(options.class)
            .with_requests(options.depth, options.request_bytes)
            .steered(options.steered);
        // Data is in memory of the submitter's; these are for commands with data of their own.
        let driver = reactor::uring::Options {
            buffers: vec![BufferClass {
                bytes: 4 * KIB,
                count: 16,
            }],
            sockets: 4,
            file_operations: 16,
        };
        let own = OwnChannel::open(&driver, options.poll, |driver| {
            device.open_switched(driver).map(Box::new)
        })?;
        Ok(SwitchedQueue {
            own,
            device,
            timeout: None,
            _subsystem: self.subsystem().clone(),
            _thread: PhantomData,
        })
    }
}

impl SwitchedQueue {
    /// Requests that were submitted and not handed out by [`wait`](Self::wait) yet.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.own.outstanding() + self.own.done.len()
    }

    /// Reads `length` bytes at `offset` into memory of the queue's, which comes with the completion
    /// and is free for other requests once that is dropped. Other threads carry the request out, so
    /// the data is taken from there by [`IoSlice::copy_out`](reactor::IoSlice::copy_out). The
    /// request leaves at the next [`wait`](Self::wait) or [`kick`](Self::kick).
    ///
    /// # Errors
    /// [`SubmitError::Full`] while there are as many requests as may be, or no memory;
    /// [`RequestError::Alignment`], [`RequestError::OutOfRange`], and [`RequestError::TooLong`] for
    /// more than [`SwitchedQueueOptions::request_bytes`].
    pub fn read(&mut self, tag: u64, offset: u64, length: usize) -> Result<(), SubmitError> {
        self.submit(tag, Operation::Read, offset, length as u64, &[])
    }

    /// Writes a copy of `data` at `offset`. Stable only after a [`flush`](Self::flush) where the
    /// device has a volatile cache.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn write(&mut self, tag: u64, offset: u64, data: &[u8]) -> Result<(), SubmitError> {
        let operation = Operation::Write { durable: false };
        self.submit(tag, operation, offset, data.len() as u64, data)
    }

    /// The same; completes when the data is on stable storage (FUA).
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn write_durable(&mut self, tag: u64, offset: u64, data: &[u8]) -> Result<(), SubmitError> {
        let operation = Operation::Write { durable: true };
        self.submit(tag, operation, offset, data.len() as u64, data)
    }

    /// Puts every write that completed with success before on stable storage.
    ///
    /// # Errors
    /// [`SubmitError::Full`].
    pub fn flush(&mut self, tag: u64) -> Result<(), SubmitError> {
        self.submit(tag, Operation::Flush, 0, 0, &[])
    }

    /// Makes `length` bytes at `offset` read as zeroes.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn write_zeroes(&mut self, tag: u64, offset: u64, length: u64) -> Result<(), SubmitError> {
        let operation = Operation::WriteZeroes {
            deallocate: false,
            durable: false,
        };
        self.submit(tag, operation, offset, length, &[])
    }

    /// Gives `length` bytes at `offset` back: their content is no longer needed.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn discard(&mut self, tag: u64, offset: u64, length: u64) -> Result<(), SubmitError> {
        self.submit(tag, Operation::Deallocate, offset, length, &[])
    }

    /// Gives requests that are submitted from now on so long, as
    /// [`Queue::set_timeout`](super::Queue::set_timeout) does, also while they wait for other threads'.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.timeout = timeout;
    }

    /// Gives up every request that was submitted under `tag`, as if its time were over; it completes
    /// with [`BlockError::Aborted`](block::BlockError), or with the target's answer if that comes
    /// first. The switchboard's threads do so: it may take them a moment. Returns false if none is
    /// under way.
    pub fn cancel(&mut self, tag: u64) -> bool {
        self.own.cancel(tag)
    }

    /// A descriptor for `poll(2)`, `epoll(7)` and event loops, as
    /// [`Queue::readiness`](super::Queue::readiness).
    ///
    /// # Errors
    /// The kernel's.
    pub fn readiness(&mut self) -> io::Result<BorrowedFd<'_>> {
        self.own.readiness()
    }

    /// Submits a request; `data` is what a write writes.
    fn submit(
        &mut self,
        tag: u64,
        operation: Operation,
        offset: u64,
        length: u64,
        data: &[u8],
    ) -> Result<(), SubmitError> {
        let geometry = self.device.geometry();
        range::check(geometry, offset, length)?;
        let most = if operation.has_data() {
            u64::from(self.device.capabilities().max_transfer_bytes)
        } else {
            range::without_data_max(geometry)
        };
        if length > most {
            return Err(RequestError::TooLong { length, most }.into());
        }
        let data = if operation.has_data() {
            let bytes = usize::try_from(length).expect("a request fits into memory");
            let mut slice = self.own.memory(bytes).ok_or(SubmitError::Full)?;
            slice.copy_in(0, data);
            Some(slice)
        } else {
            None
        };
        let block = u64::from(geometry.block_bytes);
        let request = Request {
            tag,
            operation,
            lba: Lba(offset / block),
            blocks: u32::try_from(length / block).unwrap_or(u32::MAX),
            data,
        };
        let span = self.timeout.map(Nanos::from);
        let submitted = self.own.submit_by(|channel, cx| {
            let limit = span.map_or(Time::NEVER, |span| cx.now + span);
            channel.submit_until(request, limit, cx)
        });
        submitted.map_err(|_| SubmitError::Full)
    }

    /// Sends off what was submitted, without waiting.
    pub fn kick(&mut self) {
        self.own.kick();
        self.own.arm_again();
    }

    /// Waits until at least `min` requests are done, or all are, and hands them out, oldest first.
    /// With 0 it only looks. What is not taken stays for the next call.
    ///
    /// # Errors
    /// When the thread's io_uring is broken; failed requests are completions.
    pub fn wait(&mut self, min: usize) -> io::Result<Completions<'_>> {
        self.own.take_until(min, Time::NEVER)
    }

    /// The same, for `timeout` at the longest: fewer may be done then.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_for(&mut self, min: usize, timeout: Duration) -> io::Result<Completions<'_>> {
        let end = self.own.driver.now() + Nanos::from(timeout);
        self.own.take_until(min, end)
    }
}

impl Drop for SwitchedQueue {
    fn drop(&mut self) {
        self.own.close(Nanos::from_secs(1));
    }
}
