//! Blocking calls: a subsystem, its namespaces, and reads and writes on them.

use super::call::{Call, Data};
use super::caller::CallerPath;
use super::queue::{Queue, QueueOptions};
use super::reply::{BlockingReply, ReplyTo};
use super::service::{BlockingRequest, ClientMessage, Patience};
use super::{Host, HostInner, range};
use crate::association::Association;
use crate::error::{HostError, RequestError};
use crate::info::{ControllerInfo, NamespaceInfo};
use crate::namespace::RemoteNamespace;
use crate::recovery::epoch::Phase;
use block::{BlockError, Device, Operation, PathDevice};
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use switch::{Class, PathSpec};

/// Pieces of one call that are under way at once: enough to keep a connection busy, few enough to
/// leave buffers for others.
const PIECES_IN_FLIGHT: usize = 8;

/// A connected subsystem: one controller of it. Cheap to clone; disconnected in order when the
/// last clone and the last namespace of it are dropped.
#[derive(Clone, Debug)]
pub struct Subsystem {
    inner: Arc<SubsystemInner>,
}

#[derive(Debug)]
struct SubsystemInner {
    association: Arc<Association>,
    host: Host,
}

impl Drop for SubsystemInner {
    fn drop(&mut self) {
        self.association.close();
        let controllers = &self.host.inner.controllers;
        controllers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Subsystem {
    pub(super) fn new(host: Host, association: Arc<Association>) -> Self {
        Self {
            inner: Arc::new(SubsystemInner { association, host }),
        }
    }

    /// State and knowledge of the association.
    #[must_use]
    pub fn association(&self) -> &Arc<Association> {
        &self.inner.association
    }

    /// The controller, as it was last identified.
    ///
    /// # Errors
    /// [`HostError::Closed`] when it was never identified.
    pub fn controller(&self) -> Result<ControllerInfo, HostError> {
        self.association().controller().ok_or(HostError::Closed)
    }

    /// The active namespaces, in order. Follows changes that the controller reports.
    #[must_use]
    pub fn namespaces(&self) -> Vec<NamespaceInfo> {
        self.association().namespaces()
    }

    /// A namespace, for blocking calls.
    ///
    /// # Errors
    /// When it does not exist, has a format that we cannot use, or every I/O queue that the
    /// controller grants is taken.
    pub fn namespace(&self, nsid: u32) -> Result<Namespace, HostError> {
        self.namespace_with(nsid, Class::DEFAULT)
    }

    /// The same, for requests of this class: its blocking calls, and its queues unless they say
    /// otherwise.
    ///
    /// # Errors
    /// As [`namespace`](Self::namespace).
    pub fn namespace_with(&self, nsid: u32, class: Class) -> Result<Namespace, HostError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let remote = RemoteNamespace::new(self.association(), nsid)?.with_class(class);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let host = &self.inner.host.inner;
        let (opened, opening) = channel();
        host.send(ClientMessage::Open(id, remote.clone(), opened))?;
        host.receive(&opening)??;
        let path = host.path.map(|path| CallerPath::start(&remote, path));
        Ok(Namespace {
            inner: Arc::new(NamespaceInner {
                id,
                path: path.transpose()?,
                remote,
                subsystem: self.clone(),
            }),
            timeout: None,
            cancelled: None,
            interrupted: None,
        })
    }

    /// Disconnects now, in order, however many handles there are: requests under way fail.
    pub fn disconnect(&self) {
        self.association().close();
    }
}

#[derive(Debug)]
struct NamespaceInner {
    id: u64,
    remote: RemoteNamespace,
    /// The way of blocking calls by the threads that make them.
    path: Option<Arc<CallerPath>>,
    subsystem: Subsystem,
}

impl NamespaceInner {
    fn host(&self) -> &HostInner {
        &self.subsystem.inner.host.inner
    }
}

impl Drop for NamespaceInner {
    fn drop(&mut self) {
        // There is only one for each namespace, and this may be the host's own thread, which must
        // not wait. A host that is closed has released it already.
        self.host()
            .sender
            .send_always(ClientMessage::Release(self.id));
    }
}

/// A namespace, for blocking calls from any thread. Cheap to clone.
///
/// Offsets and lengths are in bytes and must be multiples of the block size; any length is taken,
/// and split as the controller demands. A call returns when all of it is done. It does not return
/// while the connection is lost, unless that lasts longer than the loss time-out.
#[derive(Clone, Debug)]
pub struct Namespace {
    inner: Arc<NamespaceInner>,
    /// Time that each call may take.
    timeout: Option<Duration>,
    /// Set when its calls are cancelled.
    cancelled: Option<Arc<AtomicBool>>,
    /// Asked by a call that waits.
    interrupted: Option<fn() -> bool>,
}

/// Cancels calls: made by [`Namespace::cancellable`].
#[derive(Clone, Debug)]
pub struct Canceller {
    namespace: Arc<NamespaceInner>,
    cancelled: Arc<AtomicBool>,
}

impl Canceller {
    /// Gives up the calls and futures of the handle that this belongs to, from any thread. They fail
    /// with [`BlockError::Aborted`], but for those that are answered meanwhile; so does every later
    /// one. A write that was given up may or may not be done.
    pub fn cancel(&self) {
        if !self.cancelled.swap(true, Ordering::Relaxed) {
            // There is only one of each handle, and this may be the host's own thread, which must
            // not wait.
            let sender = &self.namespace.host().sender;
            sender.send_always(ClientMessage::Cancel(self.namespace.id));
        }
    }
}

impl Namespace {
    /// The namespace as it was identified when it was opened.
    #[must_use]
    pub fn info(&self) -> &NamespaceInfo {
        self.inner.remote.info()
    }

    /// The subsystem that it is a namespace of.
    #[must_use]
    pub fn subsystem(&self) -> &Subsystem {
        &self.inner.subsystem
    }

    /// Size in bytes now.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.inner.remote.geometry().bytes()
    }

    /// Block size in bytes.
    #[must_use]
    pub fn block_bytes(&self) -> u32 {
        self.inner.remote.geometry().block_bytes
    }

    /// The most bytes that one request of a [`Queue`] has; blocking calls take any length.
    #[must_use]
    pub fn max_request_bytes(&self) -> u64 {
        range::max_request_bytes(&self.inner.remote)
    }

    /// Returns true if the namespace may not be written.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.inner.remote.capabilities().read_only
    }

    /// The namespace as a device, to be opened on a core of the caller's own.
    #[must_use]
    pub fn device(&self) -> RemoteNamespace {
        self.inner.remote.clone()
    }

    /// The namespace as a device that is reached by an I/O path: threads that open the same device,
    /// or clones of it, share its queues. A [`PathSpec`] has parameters of the path. The namespace must
    /// be kept as long as the device is used. A thread may have requests of others under way: it has to drive its
    /// channel when that asks for it, until it has closed it. A thread that is granted no I/O queue
    /// again after a loss gets [`BlockError::Gone`], and the others go on.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let host = host::Host::builder().build()?;
    /// # let subsystem = host.connect("127.0.0.1:4420", "nqn.2026-11.io.switchyard:default")?;
    /// let disk = subsystem.namespace(1)?;
    /// let device = disk.device_by(switch::Path::Stm)?;
    /// // Each thread opens `device.clone()` on its own driver, and submits there.
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the machine refuses a thread or an io_uring, or every I/O queue that the controller
    /// grants is taken.
    pub fn device_by(&self, path: impl Into<PathSpec>) -> Result<PathDevice, HostError> {
        let remote = self.device().below_path();
        let remote = Arc::new(remote);
        let spec = path.into();
        Ok(PathDevice::start(remote, spec.path, spec.rules)?)
    }

    /// A queue of its own for the calling thread: `depth` requests at once, completions in the
    /// caller's hands, no other thread in between.
    ///
    /// # Errors
    /// When the machine refuses another io_uring, the association is over, or every I/O queue that
    /// the controller grants is taken.
    pub fn queue(&self, depth: u16) -> Result<Queue, HostError> {
        self.queue_with(&QueueOptions {
            depth,
            poll: self.inner.host().poll,
            ..QueueOptions::default()
        })
    }

    /// The same with all options.
    ///
    /// # Errors
    /// As [`queue`](Self::queue).
    pub fn queue_with(&self, options: &QueueOptions) -> Result<Queue, HostError> {
        Queue::open(&self.inner.remote, self.inner.subsystem.clone(), options)
    }

    /// The same namespace; each call and future of this handle, and of its clones, may take so long;
    /// with `None`, which is the default, as long as it will.
    ///
    /// One that is not done then fails with [`BlockError::TimedOut`], and a write of it may or may
    /// not be done, in part or as a whole. What the target was not sent yet is not sent any more.
    /// Newer writes to blocks that it may still write wait until that is decided. A call returns at
    /// once, unless the connection is in the midst of its data: then within 5 s, or the command
    /// time-out if that is shorter. The host's thread carries these calls out, whatever its
    /// [path](super::HostBuilder::path).
    #[must_use]
    pub fn with_timeout(&self, timeout: impl Into<Option<Duration>>) -> Self {
        Self {
            timeout: timeout.into(),
            ..self.clone()
        }
    }

    /// The same namespace with something that cancels all calls and futures of this handle and of
    /// its clones, from another thread. The host's thread carries them out.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let host = host::Host::builder().build()?;
    /// # let disk = host.connect("127.0.0.1:4420", "nqn.2026-11.io.switchyard:default")?.namespace(1)?;
    /// let (disk, canceller) = disk.cancellable();
    /// let reader = std::thread::spawn(move || disk.read(0, &mut [0; 4096]));
    /// canceller.cancel();
    /// if let Err(error) = reader.join().expect("it does not panic") {
    ///     println!("{error}"); // "request aborted", unless it was done before
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn cancellable(&self) -> (Self, Canceller) {
        let mut namespace = self.clone();
        namespace.cancelled = Some(Arc::default());
        let canceller = namespace.canceller().expect("it was just made one");
        (namespace, canceller)
    }

    /// The same namespace, of which each call asks `interrupted` on its own thread every 200 ms while
    /// it waits. A call that is answered with true is given up as by a [`Canceller`], and no other
    /// one. Calls by an I/O path of the host's, and by a handle that
    /// [`cancellable`](Self::cancellable) made, do not ask.
    #[must_use]
    pub fn interrupted_by(&self, interrupted: fn() -> bool) -> Self {
        let mut namespace = self.clone();
        namespace.interrupted = Some(interrupted);
        namespace
    }

    /// Returns what cancels the calls and futures of this handle, where it is one that
    /// [`cancellable`](Self::cancellable) made, or a clone of it.
    #[must_use]
    pub fn canceller(&self) -> Option<Canceller> {
        let cancelled = self.cancelled.clone()?;
        Some(Canceller {
            namespace: Arc::clone(&self.inner),
            cancelled,
        })
    }

    /// Returns the patience of a call that begins now.
    pub(super) fn patience(&self) -> Patience {
        let own = self.interrupted.map(|_| Arc::default());
        Patience {
            until: self
                .timeout
                .and_then(|span| Instant::now().checked_add(span)),
            cancelled: self.cancelled.clone().or(own),
            interrupted: self.interrupted.filter(|_| self.cancelled.is_none()),
        }
    }

    /// The message that a request is to the host's thread.
    pub(super) fn message(&self, request: BlockingRequest) -> ClientMessage {
        ClientMessage::Request(self.inner.id, request)
    }

    /// Hands the host's thread a message without waiting; `Some` message comes back while its
    /// mailbox is full.
    pub(super) fn post(
        &self,
        message: ClientMessage,
    ) -> Result<Option<ClientMessage>, RequestError> {
        let host = self.inner.host();
        if host.is_over() {
            return Err(RequestError::Closed);
        }
        Ok(host.sender.send(message).err())
    }

    /// Reads `data.len()` bytes at `offset`.
    ///
    /// # Errors
    /// [`RequestError`]; `data` may be filled in part.
    pub fn read(&self, offset: u64, data: &mut [u8]) -> Result<(), RequestError> {
        let length = data.len() as u64;
        self.run(Operation::Read, offset, length, Data::Read(data))
    }

    /// Reads into the parts one after the other, as `preadv`: a part may have any length, all of
    /// them together are whole blocks.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_vectored(
        &self,
        offset: u64,
        parts: &mut [IoSliceMut<'_>],
    ) -> Result<(), RequestError> {
        let length = parts.iter().map(|part| part.len() as u64).sum();
        self.run(Operation::Read, offset, length, Data::Scatter(parts))
    }

    /// Writes the parts one after the other, as `pwritev`.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_vectored(
        &self,
        offset: u64,
        parts: &[IoSlice<'_>],
        durable: bool,
    ) -> Result<(), RequestError> {
        let length = parts.iter().map(|part| part.len() as u64).sum();
        let operation = Operation::Write { durable };
        self.run(operation, offset, length, Data::Gather(parts))
    }

    /// Writes `data` at `offset`. Stable only after [`flush`](Self::flush) where the device has a
    /// volatile cache.
    ///
    /// # Errors
    /// [`RequestError`]; part of the range may be written.
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<(), RequestError> {
        let operation = Operation::Write { durable: false };
        self.run(operation, offset, data.len() as u64, Data::Write(data))
    }

    /// Writes `data` at `offset` and returns when it is on stable storage.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_durable(&self, offset: u64, data: &[u8]) -> Result<(), RequestError> {
        let operation = Operation::Write { durable: true };
        self.run(operation, offset, data.len() as u64, Data::Write(data))
    }

    /// Puts everything that was written before on stable storage.
    ///
    /// # Errors
    /// [`RequestError::Device`].
    pub fn flush(&self) -> Result<(), RequestError> {
        let result = self.run(Operation::Flush, 0, 0, Data::None);
        match &self.inner.path {
            Some(path) => path.judge(result, self.inner.remote.state().unflushed.losses()),
            None => result,
        }
    }

    /// Makes `length` bytes at `offset` read as zeroes.
    ///
    /// # Errors
    /// [`RequestError`]; part of the range may be zero.
    pub fn write_zeroes(&self, offset: u64, length: u64) -> Result<(), RequestError> {
        let operation = Operation::WriteZeroes {
            deallocate: false,
            durable: false,
        };
        self.run(operation, offset, length, Data::None)
    }

    /// Gives `length` bytes at `offset` back: their content is no longer needed.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn discard(&self, offset: u64, length: u64) -> Result<(), RequestError> {
        self.run(Operation::Deallocate, offset, length, Data::None)
    }

    /// Compares `data` with what is at `offset`.
    ///
    /// # Errors
    /// [`BlockError::CompareFailure`](block::BlockError::CompareFailure) where they differ, and as [`read`](Self::read).
    pub fn compare(&self, offset: u64, data: &[u8]) -> Result<(), RequestError> {
        let length = data.len() as u64;
        self.run(Operation::Compare, offset, length, Data::Write(data))
    }

    /// Lets the device read `length` bytes at `offset` without sending them.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn verify(&self, offset: u64, length: u64) -> Result<(), RequestError> {
        self.run(Operation::Verify, offset, length, Data::None)
    }

    /// Splits a call into requests, keeps a few of them under way, and waits for all.
    fn run(
        &self,
        operation: Operation,
        offset: u64,
        length: u64,
        mut data: Data<'_, '_>,
    ) -> Result<(), RequestError> {
        let Some(call) = Call::new(&self.inner.remote, operation, offset, length)? else {
            return Ok(());
        };
        if self.inner.subsystem.association().is_closing() {
            return Err(BlockError::Gone.into());
        }
        if self.timeout.is_none()
            && self.cancelled.is_none()
            && let Some(path) = &self.inner.path
            && let Some(result) = path.run(&call, &mut data)
            && !self.may_repeat(&result)
        {
            return result;
        }
        let (reply, replies) = channel();
        let patience = self.patience();
        let mut next = 0;
        let mut out = 0;
        let mut failed = None;
        while next < call.pieces || out > 0 {
            while failed.is_none() && next < call.pieces && out < PIECES_IN_FLIGHT {
                self.send_piece(&call, next, &data, &reply, &patience)?;
                next += 1;
                out += 1;
            }
            if out == 0 {
                break;
            }
            let answer = self.receive(&replies, &patience)?;
            out -= 1;
            match answer.result {
                Ok(()) => data.take(answer.piece as u64 * call.step, &answer.data),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Returns true if a call failed for want of a queue of the calling thread's own: nothing of it
    /// is under way any more, and the host's thread may carry it out anew.
    fn may_repeat(&self, result: &Result<(), RequestError>) -> bool {
        let remote = &self.inner.remote;
        let association = remote.association();
        let is_over = association.is_closing() || association.phase() == Phase::Gone;
        let lacks_queue = matches!(result, Err(RequestError::Device(BlockError::Gone)));
        lacks_queue && !is_over && !remote.state().is_gone()
    }

    fn receive(
        &self,
        replies: &Receiver<BlockingReply>,
        patience: &Patience,
    ) -> Result<BlockingReply, RequestError> {
        let host = self.inner.host();
        let answer = host.receive_looking(replies, || {
            if patience.is_interrupted() {
                host.sender
                    .send_always(ClientMessage::Cancel(self.inner.id));
            }
        });
        answer.map_err(|_| RequestError::Closed)
    }

    fn send_piece(
        &self,
        call: &Call,
        piece: usize,
        data: &Data<'_, '_>,
        reply: &Sender<BlockingReply>,
        patience: &Patience,
    ) -> Result<(), RequestError> {
        let (at, size) = call.range(piece);
        let (lba, blocks) = call.blocks(piece);
        let request = BlockingRequest {
            piece,
            operation: call.operation,
            lba,
            blocks,
            data: data.piece(at, size),
            reply: ReplyTo::Caller(reply.clone()),
            patience: patience.clone(),
        };
        let message = ClientMessage::Request(self.inner.id, request);
        self.inner
            .host()
            .send(message)
            .map_err(|_| RequestError::Closed)
    }
}
