//! Queues of one thread: asynchronous requests over its own connections, or through a switchboard.

use super::blocking::{Namespace, Subsystem};
use super::own_channel::{Completions, OwnChannel};
use super::range;
use crate::channel::RemoteChannel;
use crate::error::{HostError, RequestError};
use crate::limits::QUEUE_DEPTH_MAX;
use crate::namespace::RemoteNamespace;
use crate::switchboard::limits::{SUBMITTER_BYTES, SUBMITTER_DEPTH};
use crate::switchboard::{Switchboard, SwitchedChannel};
use base::units::{KIB, Lba, MIB};
use base::{Nanos, Time};
use block::{Channel, Device, Operation, Request, Submit, SubmitterMemory};
use reactor::{BufferClass, Context, Driver as _, IoSlice, PollPolicy};
use std::io;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::time::Duration;
use switch::Class;

base::with_defaults! {
    /// Options of a [`Queue`].
    #[derive(Clone, Debug)]
    pub struct QueueOptions {
        /// Outstanding requests per connection, 1 to 4095; the controller may allow fewer.
        pub depth: u16 = 128,
        /// Number of connections.
        pub connections: u16 = 1,
        /// Idle policy of [`Queue::wait`].
        pub poll: PollPolicy = PollPolicy::Auto,
        /// Class of the requests; `None`: that of the namespace.
        pub class: Option<Class> = None,
    }
}

/// A queue of requests of one thread on a namespace: over its own connections, or through a
/// [`Switchboard`](crate::Switchboard) ([`Namespace::switched_queue`]).
///
/// If the switchboard fails, outstanding and later requests end with
/// [`BlockError::Gone`](block::BlockError::Gone).
///
/// [`Namespace::switched_queue`]: super::Namespace::switched_queue
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let host = host::Host::builder().build()?;
/// # let namespace = host.connect("127.0.0.1:4420", "nqn.2026-11.io.switchyard:default")?.namespace(1)?;
/// let mut queue = namespace.queue(32)?;
/// for tag in 0..32 {
///     queue.read(tag, tag * 4096, 4096).expect("the queue has room for 32");
/// }
/// let mut left = 32;
/// while left > 0 {
///     for done in queue.wait(1)? {
///         done.result?;
///         let data = done.data.expect("a read returns its data");
///         println!("request {} brought {} bytes", done.tag, data.len());
///         left -= 1;
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Queue {
    own: OwnChannel<dyn QueueChannel>,
    device: Box<dyn Device>,
    /// Time after which requests are given up.
    timeout: Option<Duration>,
    /// Keeps the controller connected; dropped last.
    _subsystem: Subsystem,
    /// The driver belongs to the thread that created it.
    _thread: PhantomData<*const ()>,
}

/// A channel that a [`Queue`] can use.
pub(super) trait QueueChannel: Channel {
    /// Returns the largest number of outstanding requests.
    fn depth(&self) -> usize;

    /// Submits a request that is given up at `limit`.
    fn submit_until(&mut self, request: Request, limit: Time, cx: &mut Context<'_>) -> Submit;

    /// The memory for buffers, if the channel has its own.
    fn room(&mut self) -> Option<&mut SubmitterMemory> {
        None
    }
}

impl QueueChannel for RemoteChannel {
    fn depth(&self) -> usize {
        self.capacity()
    }

    fn submit_until(&mut self, request: Request, limit: Time, cx: &mut Context<'_>) -> Submit {
        self.submit_until(request, limit, cx)
    }
}

impl QueueChannel for SwitchedChannel {
    fn depth(&self) -> usize {
        self.depth()
    }

    fn submit_until(&mut self, request: Request, limit: Time, cx: &mut Context<'_>) -> Submit {
        self.submit_until(request, limit, cx)
    }

    fn room(&mut self) -> Option<&mut SubmitterMemory> {
        Some(self.memory_mut())
    }
}

impl Queue {
    pub(super) fn new(
        mut own: OwnChannel<dyn QueueChannel>,
        device: impl Device + 'static,
        subsystem: Subsystem,
    ) -> Self {
        own.done.reserve(own.channel().depth());
        Self {
            own,
            device: Box::new(device),
            timeout: None,
            _subsystem: subsystem,
            _thread: PhantomData,
        }
    }

    pub(super) fn open(
        namespace: &RemoteNamespace,
        subsystem: Subsystem,
        options: &QueueOptions,
    ) -> Result<Self, HostError> {
        let depth = options.depth.clamp(1, QUEUE_DEPTH_MAX - 1);
        let count = usize::from(depth) * usize::from(options.connections.max(1));
        let class = |bytes, count| BufferClass { bytes, count };
        // Address space; pages are used only when a buffer is.
        let buffers = vec![
            class(4 * KIB, count + 16),
            class(16 * KIB, count),
            class(128 * KIB, count),
            class(MIB, count),
        ];
        let driver = reactor::uring::Options {
            buffers,
            sockets: usize::from(options.connections.max(1)) + 4,
            file_operations: 16,
        };
        let mut namespace = namespace.clone().with_queues(options.connections, depth);
        if let Some(class) = options.class {
            namespace = namespace.with_class(class);
        }
        let own = OwnChannel::open(&driver, options.poll, |driver| {
            namespace
                .open_remote(driver)
                .map(|channel| Box::new(channel) as _)
        })?;
        Ok(Self::new(own, namespace, subsystem))
    }

    /// Allocates a buffer of `bytes` for a request, up to the largest request. `None` while all are
    /// in use; dropping a completion's data frees it. With a switchboard other threads execute the
    /// request, so access it with [`IoSlice::copy_in`] and [`IoSlice::copy_out`].
    #[must_use]
    pub fn buffer(&mut self, bytes: usize) -> Option<IoSlice> {
        self.own.memory(bytes)
    }

    /// Allocates zeroed pages for `bytes` bytes, for any number of requests until
    /// [`release`](Self::release). Their data passes a switchboard without a copy. After a failure
    /// of the switchboard its threads may still write to them. `None` beyond
    /// [`SwitchedQueueOptions::buffer_bytes`](super::SwitchedQueueOptions), and for a queue with
    /// its own connections, which never copies.
    #[must_use]
    pub fn reserve(&mut self, bytes: usize) -> Option<IoSlice> {
        self.own.channel_mut().room()?.reserve(bytes)
    }

    /// Frees a buffer of [`reserve`](Self::reserve). No request may use it any more.
    pub fn release(&mut self, buffer: &IoSlice) {
        if let Some(room) = self.own.channel_mut().room() {
            room.release(buffer.offset());
        }
    }

    /// Submitted requests that [`wait`](Self::wait) has not returned yet.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.own.outstanding() + self.own.done.len()
    }

    /// Returns the largest number of outstanding requests.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.own.channel().depth()
    }

    /// Submits a request. It is sent at the next [`wait`](Self::wait) or [`kick`](Self::kick).
    ///
    /// # Errors
    /// The request itself if the queue is full.
    #[allow(clippy::result_large_err)] // The caller gets its request back, to submit it later.
    pub fn submit(&mut self, request: Request) -> Result<(), Request> {
        let span = self.timeout.map(Nanos::from);
        self.own.submit_by(|channel, cx| {
            let limit = span.map_or(Time::NEVER, |span| cx.now + span);
            channel.submit_until(request, limit, cx)
        })
    }

    /// Sets the time-out of later requests, from their submission; `None` (default): none.
    ///
    /// After it, a request completes with [`BlockError::TimedOut`](block::BlockError): at once, or,
    /// while its memory is needed for a transfer, within 5 s (or the command time-out if shorter),
    /// after which the host reconnects. A write may have taken effect; later writes to its blocks
    /// wait until the outcome is known, so it cannot overwrite them. With a switchboard the time
    /// includes the wait for requests of other threads.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.timeout = timeout;
    }

    /// Cancels all requests with `tag`, as after a time-out. They complete with
    /// [`BlockError::Aborted`](block::BlockError), or with the target's result if that arrives
    /// first. Returns false if there are none. With a switchboard the cancellation is asynchronous.
    pub fn cancel(&mut self, tag: u64) -> bool {
        self.own.cancel(tag)
    }

    /// Creates a request of `length` bytes at `offset`, both multiples of the block size, for
    /// [`submit`](Self::submit). Operations with data get a buffer of this length.
    ///
    /// # Errors
    /// [`RequestError::Alignment`], [`RequestError::OutOfRange`], and [`RequestError::TooLong`] for
    /// more than [`Namespace::max_request_bytes`](super::Namespace::max_request_bytes), or with a
    /// switchboard [`SwitchedQueueOptions::request_bytes`](super::SwitchedQueueOptions).
    pub fn request(
        &self,
        tag: u64,
        operation: Operation,
        offset: u64,
        length: u64,
        data: Option<IoSlice>,
    ) -> Result<Request, RequestError> {
        let geometry = self.device.geometry();
        range::check(geometry, offset, length)?;
        range::check_length(&*self.device, operation, length)?;
        let block = u64::from(geometry.block_bytes);
        Ok(Request {
            tag,
            operation,
            lba: Lba(offset / block),
            blocks: u32::try_from(length / block).unwrap_or(u32::MAX),
            data,
        })
    }

    /// Reads `length` bytes at `offset` into a buffer of the queue, which the completion returns.
    ///
    /// # Errors
    /// [`SubmitError::Full`], also while no buffer is free, and as [`request`](Self::request).
    pub fn read(&mut self, tag: u64, offset: u64, length: usize) -> Result<(), SubmitError> {
        let mut request = self.request(tag, Operation::Read, offset, length as u64, None)?;
        request.data = Some(self.buffer(length).ok_or(SubmitError::Full)?);
        self.submit(request).map_err(|_| SubmitError::Full)
    }

    /// Writes a copy of `data` at `offset`. With a volatile write cache it is durable only after
    /// [`flush`](Self::flush).
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn write(&mut self, tag: u64, offset: u64, data: &[u8]) -> Result<(), SubmitError> {
        self.put(tag, Operation::Write { durable: false }, offset, data)
    }

    /// The same; completes when the data is on stable storage (FUA).
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn write_durable(&mut self, tag: u64, offset: u64, data: &[u8]) -> Result<(), SubmitError> {
        self.put(tag, Operation::Write { durable: true }, offset, data)
    }

    /// Flushes all writes that completed successfully before. A timed-out or cancelled write may
    /// take effect later.
    ///
    /// # Errors
    /// [`SubmitError::Full`].
    pub fn flush(&mut self, tag: u64) -> Result<(), SubmitError> {
        self.put(tag, Operation::Flush, 0, &[])
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
        let request = self.request(tag, operation, offset, length, None)?;
        self.submit(request).map_err(|_| SubmitError::Full)
    }

    /// Discards (deallocates) `length` bytes at `offset`.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn discard(&mut self, tag: u64, offset: u64, length: u64) -> Result<(), SubmitError> {
        let request = self.request(tag, Operation::Deallocate, offset, length, None)?;
        self.submit(request).map_err(|_| SubmitError::Full)
    }

    fn put(
        &mut self,
        tag: u64,
        operation: Operation,
        offset: u64,
        data: &[u8],
    ) -> Result<(), SubmitError> {
        let mut request = self.request(tag, operation, offset, data.len() as u64, None)?;
        if operation.has_data() {
            let mut slice = self.buffer(data.len()).ok_or(SubmitError::Full)?;
            slice.copy_in(0, data);
            request.data = Some(slice);
        }
        self.submit(request).map_err(|_| SubmitError::Full)
    }

    /// Sends submitted requests without waiting.
    pub fn kick(&mut self) {
        self.own.kick();
        self.own.arm_again();
    }

    /// Makes the descriptor of [`readiness`](Self::readiness) readable, for a program that leaves
    /// completions to its event loop.
    pub fn raise(&self) {
        self.own.raise();
    }

    /// Waits until at least `min` (or all) requests are complete, and returns them. With 0 it does
    /// not wait.
    ///
    /// # Errors
    /// A failure of io_uring; failed requests are completions.
    pub fn wait(&mut self, min: usize) -> io::Result<Completions<'_>> {
        self.own.take_until(min, Time::NEVER)
    }

    /// The same, for at most `timeout`; may return fewer.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_for(&mut self, min: usize, timeout: Duration) -> io::Result<Completions<'_>> {
        let end = self.own.driver.now() + Nanos::from(timeout);
        self.own.take_until(min, end)
    }

    /// A descriptor for `poll(2)`, `epoll(7)` and event loops. It is readable when
    /// [`wait`](Self::wait) with 0 may have work or completions; spurious wake-ups are possible.
    /// After the first call of this function, [`kick`](Self::kick) and [`wait`](Self::wait) need up
    /// to one more system call.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn readiness(&mut self) -> io::Result<BorrowedFd<'_>> {
        self.own.readiness()
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.own.close(Nanos::from_secs(1));
    }
}

/// Why a queue did not accept a request.
#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    /// The queue is full, or all buffers of this size are in use.
    #[error("the queue is full; wait for a completion, then submit again")]
    Full,
    /// The request is invalid.
    #[error(transparent)]
    Request(#[from] RequestError),
}

base::with_defaults! {
    /// Options of a [`Queue`] through a switchboard.
    #[derive(Clone, Debug)]
    pub struct SwitchedQueueOptions {
        /// Class of the requests; `None`: that of the namespace.
        pub class: Option<Class> = None,
        /// Outstanding requests, 1 to 4,096.
        pub depth: u32 = SUBMITTER_DEPTH,
        /// Largest request in bytes: from one block to the controller's limit. The queue uses 2 ×
        /// depth × this of address space, at most 2 GiB; the depth is reduced to fit.
        pub request_bytes: u32 = SUBMITTER_BYTES,
        /// Size of the memory for [`Queue::reserve`] in bytes, at most 1 GiB. Reserves address
        /// space only.
        pub buffer_bytes: u64 = 0,
        /// Idle policy of [`Queue::wait`].
        pub poll: PollPolicy = PollPolicy::Auto,
        /// Application steering may move the thread between cores of the switchboard while the
        /// queue exists, unless the thread is pinned to one CPU.
        pub steered: bool = false,
    }
}

impl Namespace {
    /// A queue of the calling thread through the switchboard.
    ///
    /// # Errors
    /// As [`Switchboard::namespace`]; no io_uring or memory available; a switchboard with 4,096
    /// submitters, or one that failed.
    pub fn switched_queue(
        &self,
        board: &Switchboard,
        options: &SwitchedQueueOptions,
    ) -> Result<Queue, HostError> {
        let remote = self.device();
        let device = board
            .namespace(&remote)?
            .with_class(options.class.unwrap_or(remote.class()))
            .with_requests(options.depth, options.request_bytes)
            .with_room(options.buffer_bytes)
            .steered(options.steered);
        // The data is in the submitter's memory; these buffers are for commands with data of their
        // own.
        let driver = reactor::uring::Options {
            buffers: vec![BufferClass {
                bytes: 4 * KIB,
                count: 16,
            }],
            sockets: 4,
            file_operations: 16,
        };
        let own = OwnChannel::open(&driver, options.poll, |driver| {
            device
                .open_switched(driver)
                .map(|channel| Box::new(channel) as _)
        })?;
        Ok(Queue::new(own, device, self.subsystem().clone()))
    }
}
