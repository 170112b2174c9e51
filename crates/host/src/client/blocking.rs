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

/// Outstanding requests per call: enough to keep a connection busy, few enough to leave buffers for
/// other calls.
const PIECES_IN_FLIGHT: usize = 8;

/// A connection to a subsystem. Cheap to clone. Shut down when the last clone and namespace of it
/// are dropped.
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

    /// The association.
    #[must_use]
    pub fn association(&self) -> &Arc<Association> {
        &self.inner.association
    }

    /// Latest Identify data of the controller.
    ///
    /// # Errors
    /// [`HostError::Closed`] without Identify data.
    pub fn controller(&self) -> Result<ControllerInfo, HostError> {
        self.association().controller().ok_or(HostError::Closed)
    }

    /// Authenticates the admin queue again by DH-HMAC-CHAP, while requests continue. I/O queues and
    /// reconnects authenticate by themselves; there is no timer.
    ///
    /// # Errors
    /// No secret, a controller that does not support it, or a failed authentication, which ends the
    /// connection.
    pub fn authenticate_again(&self) -> Result<(), HostError> {
        let options = self.association().options();
        if options.chap_secret.is_none() {
            return Err(HostError::Option(
                "authentication needs a secret: set chap_secret of the host".to_owned(),
            ));
        }
        let limit = Duration::from(options.connect_timeout).saturating_mul(2);
        Ok(self.association().authenticate_again(limit)?)
    }

    /// The active namespaces by ID, updated after changes reported by the controller.
    #[must_use]
    pub fn namespaces(&self) -> Vec<NamespaceInfo> {
        self.association().namespaces()
    }

    /// Opens a namespace for blocking calls.
    ///
    /// # Errors
    /// No such namespace, an unsupported format, or no free I/O queue.
    pub fn namespace(&self, nsid: u32) -> Result<Namespace, HostError> {
        self.namespace_with(nsid, Class::DEFAULT)
    }

    /// The same, with a default class for its calls and queues.
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

    /// Shuts the connection down, independently of other handles: outstanding requests fail.
    pub fn disconnect(&self) {
        self.association().close();
    }
}

#[derive(Debug)]
struct NamespaceInner {
    id: u64,
    remote: RemoteNamespace,
    /// The I/O path by which calling threads execute blocking calls themselves.
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
        // At most one per namespace. It does not wait, because this may be the host's own thread. A
        // closed host has released the namespace already.
        self.host()
            .sender
            .send_always(ClientMessage::Release(self.id));
    }
}

/// A namespace, for blocking calls from any thread. Cheap to clone.
///
/// Offsets and lengths are in bytes and must be multiples of the block size. Calls of any length
/// are split into requests of the controller's limit. While the connection is lost, calls wait up
/// to the loss time-out.
#[derive(Clone, Debug)]
pub struct Namespace {
    inner: Arc<NamespaceInner>,
    /// Time-out of each call.
    timeout: Option<Duration>,
    /// True once the calls are cancelled.
    cancelled: Option<Arc<AtomicBool>>,
    /// Polled by a waiting call; true cancels the call.
    interrupted: Option<fn() -> bool>,
}

/// Cancels calls. Created by [`Namespace::cancellable`].
#[derive(Clone, Debug)]
pub struct Canceller {
    namespace: Arc<NamespaceInner>,
    cancelled: Arc<AtomicBool>,
}

impl Canceller {
    /// Cancels current and later calls and futures of the handle, from any thread. They fail with
    /// [`BlockError::Aborted`], unless they complete first. A cancelled write may have taken
    /// effect.
    pub fn cancel(&self) {
        if !self.cancelled.swap(true, Ordering::Relaxed) {
            // At most one per handle. It does not wait, because this may be the host's own thread.
            let sender = &self.namespace.host().sender;
            sender.send_always(ClientMessage::Cancel(self.namespace.id));
        }
    }
}

impl Namespace {
    /// Identify data of the namespace when it was opened.
    #[must_use]
    pub fn info(&self) -> &NamespaceInfo {
        self.inner.remote.info()
    }

    /// The subsystem of the namespace.
    #[must_use]
    pub fn subsystem(&self) -> &Subsystem {
        &self.inner.subsystem
    }

    /// Current size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.inner.remote.geometry().bytes()
    }

    /// Block size in bytes.
    #[must_use]
    pub fn block_bytes(&self) -> u32 {
        self.inner.remote.geometry().block_bytes
    }

    /// Largest request of a [`Queue`] in bytes; blocking calls have no limit.
    #[must_use]
    pub fn max_request_bytes(&self) -> u64 {
        range::max_request_bytes(&self.inner.remote)
    }

    /// Returns true if the namespace is read-only.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.inner.remote.capabilities().read_only
    }

    /// The namespace as a device, to be opened on cores of the caller.
    #[must_use]
    pub fn device(&self) -> RemoteNamespace {
        self.inner.remote.clone()
    }

    /// The namespace as a device behind an I/O path: threads that open the same device or a clone
    /// of it share its queues. Keep the namespace while the device is in use. A thread may have
    /// sent requests of other threads, so it must drive its channel when due, until it has closed
    /// it. A thread that gets no I/O queue after a loss receives [`BlockError::Gone`]; the other
    /// threads continue.
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
    /// No thread or io_uring available, or no free I/O queue.
    pub fn device_by(&self, path: impl Into<PathSpec>) -> Result<PathDevice, HostError> {
        let remote = self.device().below_path();
        let remote = Arc::new(remote);
        let spec = path.into();
        Ok(PathDevice::start(remote, spec.path, spec.rules)?)
    }

    /// A queue of the calling thread with its own connection, for `depth` outstanding requests. No
    /// other thread is involved.
    ///
    /// # Errors
    /// No io_uring available, the association has ended, or no free I/O queue.
    pub fn queue(&self, depth: u16) -> Result<Queue, HostError> {
        self.queue_with(&QueueOptions {
            depth,
            poll: self.inner.host().poll,
            ..QueueOptions::default()
        })
    }

    /// The same with options.
    ///
    /// # Errors
    /// As [`queue`](Self::queue).
    pub fn queue_with(&self, options: &QueueOptions) -> Result<Queue, HostError> {
        Queue::open(&self.inner.remote, self.inner.subsystem.clone(), options)
    }

    /// The same namespace, with a time-out for each call and future of this handle and its clones;
    /// `None` (default): none.
    ///
    /// After it, a call fails with [`BlockError::TimedOut`]: at once, or, while its data is being
    /// transferred, within 5 s (or the command time-out if shorter). A write may have taken effect
    /// in part or as a whole; requests that were not sent yet are dropped. Later writes to these
    /// blocks wait until the outcome is known. The host's thread executes these calls, without its
    /// [path](super::HostBuilder::path).
    #[must_use]
    pub fn with_timeout(&self, timeout: impl Into<Option<Duration>>) -> Self {
        Self {
            timeout: timeout.into(),
            ..self.clone()
        }
    }

    /// The same namespace, and a [`Canceller`] for all calls and futures of this handle and its
    /// clones. The host's thread executes them.
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

    /// The same namespace; while a call waits, it calls `interrupted` on its thread every 200 ms,
    /// and is cancelled if that returns true. Has no effect with an I/O path or on a handle of
    /// [`cancellable`](Self::cancellable).
    #[must_use]
    pub fn interrupted_by(&self, interrupted: fn() -> bool) -> Self {
        let mut namespace = self.clone();
        namespace.interrupted = Some(interrupted);
        namespace
    }

    /// Returns the canceller of this handle, if it was created by
    /// [`cancellable`](Self::cancellable).
    #[must_use]
    pub fn canceller(&self) -> Option<Canceller> {
        let cancelled = self.cancelled.clone()?;
        Some(Canceller {
            namespace: Arc::clone(&self.inner),
            cancelled,
        })
    }

    /// Returns the time-out and cancellation of a call that begins now.
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

    /// Wraps a request as a message to the host's thread.
    pub(super) fn message(&self, request: BlockingRequest) -> ClientMessage {
        ClientMessage::Request(self.inner.id, request)
    }

    /// Sends a message to the host's thread without waiting. Returns the message while the mailbox
    /// is full.
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
    /// [`RequestError`]; part of `data` may be filled.
    pub fn read(&self, offset: u64, data: &mut [u8]) -> Result<(), RequestError> {
        let length = data.len() as u64;
        self.run(Operation::Read, offset, length, Data::Read(data))
    }

    /// Reads into a vector, as `preadv`. Parts may have any length; their total must be a multiple
    /// of the block size.
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

    /// Writes a vector, as `pwritev`.
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

    /// Writes `data` at `offset`. With a volatile write cache it is durable only after
    /// [`flush`](Self::flush).
    ///
    /// # Errors
    /// [`RequestError`]; part of the range may be written.
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<(), RequestError> {
        let operation = Operation::Write { durable: false };
        self.run(operation, offset, data.len() as u64, Data::Write(data))
    }

    /// Writes `data` at `offset` with FUA: returns when it is on stable storage.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_durable(&self, offset: u64, data: &[u8]) -> Result<(), RequestError> {
        let operation = Operation::Write { durable: true };
        self.run(operation, offset, data.len() as u64, Data::Write(data))
    }

    /// Flushes all earlier writes to stable storage.
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

    /// Discards (deallocates) `length` bytes at `offset`.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn discard(&self, offset: u64, length: u64) -> Result<(), RequestError> {
        self.run(Operation::Deallocate, offset, length, Data::None)
    }

    /// Compares `data` with the content at `offset`.
    ///
    /// # Errors
    /// [`BlockError::CompareFailure`](block::BlockError::CompareFailure) if they differ, otherwise
    /// as [`read`](Self::read).
    pub fn compare(&self, offset: u64, data: &[u8]) -> Result<(), RequestError> {
        let length = data.len() as u64;
        self.run(Operation::Compare, offset, length, Data::Write(data))
    }

    /// Verifies `length` bytes at `offset`: the device reads them without a transfer.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn verify(&self, offset: u64, length: u64) -> Result<(), RequestError> {
        self.run(Operation::Verify, offset, length, Data::None)
    }

    /// Splits a call into requests, keeps up to [`PIECES_IN_FLIGHT`] of them outstanding, and waits
    /// for all.
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

    /// Returns true if a call failed because the calling thread got no queue of its own. Nothing of
    /// it is in flight any more, so the host's thread may repeat it.
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
