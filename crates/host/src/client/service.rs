//! The service of a host's thread: controllers, and channels for blocking requests.

use super::reply::{BlockingReply, ReplyTo};
use crate::association::Association;
use crate::channel::RemoteChannel;
use crate::controller::Controller;
use crate::limits::BLOCKING_REQUESTS_MAX;
use crate::namespace::RemoteNamespace;
use base::units::Lba;
use base::{Nanos, Slab, SlabKey, Time};
use block::{BlockError, Channel, DeviceError, Operation, Request, Submit};
use reactor::{Completion, Context, IoSlice, Service};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::Instant;

/// Messages of callers to the thread.
#[derive(Debug)]
pub(super) enum ClientMessage {
    /// Run this association.
    Connect(Arc<Association>),
    /// Open a channel under this number, and report whether it has an I/O queue.
    Open(u64, RemoteNamespace, Sender<Result<(), DeviceError>>),
    /// Close the channel with this number.
    Release(u64),
    /// Execute this request on the channel with this number.
    Request(u64, BlockingRequest),
    /// Give up the cancelled requests of the channel with this number.
    Cancel(u64),
    /// Close everything and end.
    Shutdown,
}

/// A piece of a blocking call.
#[derive(Debug)]
pub(super) struct BlockingRequest {
    /// The caller's number of the piece.
    pub(super) piece: usize,
    pub(super) operation: Operation,
    pub(super) lba: Lba,
    pub(super) blocks: u32,
    /// Data to write or compare; a buffer for data to read.
    pub(super) data: Vec<u8>,
    pub(super) reply: ReplyTo,
    pub(super) patience: Patience,
}

/// The time-out and cancellation of a request.
#[derive(Clone, Debug, Default)]
pub(super) struct Patience {
    /// Time at which the caller stops waiting; `None`: no limit.
    pub(super) until: Option<Instant>,
    /// True once the caller has stopped waiting.
    pub(super) cancelled: Option<Arc<AtomicBool>>,
    /// Polled by the caller while it waits; true cancels the call.
    pub(super) interrupted: Option<fn() -> bool>,
}

impl Patience {
    /// Polls the caller's function. Returns true if the call is cancelled.
    pub(super) fn is_interrupted(&self) -> bool {
        let interrupted = self.interrupted.is_some_and(|interrupted| interrupted());
        if interrupted && let Some(cancelled) = &self.cancelled {
            cancelled.store(true, Ordering::Relaxed);
        }
        interrupted
    }

    /// Returns why the caller no longer waits, or `None`.
    fn is_over(&self) -> Option<BlockError> {
        let cancelled = self.cancelled.as_ref();
        if cancelled.is_some_and(|cancelled| cancelled.load(Ordering::Relaxed)) {
            return Some(BlockError::Aborted);
        }
        let is_late = self.until.is_some_and(|until| until <= Instant::now());
        is_late.then_some(BlockError::TimedOut)
    }

    /// Returns the time-out on a driver's clock.
    fn limit(&self, now: Time) -> Time {
        self.until.map_or(Time::NEVER, |until| {
            now + Nanos::from(until.saturating_duration_since(Instant::now()))
        })
    }
}

impl BlockingRequest {
    fn answer(self, result: Result<(), BlockError>) {
        let reply = BlockingReply {
            piece: self.piece,
            result,
            data: self.data,
        };
        self.reply.answer(reply);
    }
}

#[derive(Debug)]
struct OpenChannel {
    channel: RemoteChannel,
    /// Requests that were submitted to the channel.
    requests: Slab<BlockingRequest>,
    /// Requests that the channel had no room for, in order.
    backlog: VecDeque<BlockingRequest>,
    /// Lower bound of the time-outs in the backlog.
    backlog_until: Time,
    /// The caller that waits until the channel is open.
    opening: Option<Sender<Result<(), DeviceError>>>,
    closing: bool,
}

/// The service of a host's thread.
#[derive(Debug)]
pub(super) struct ClientService {
    controllers: Vec<Controller>,
    channels: BTreeMap<u64, OpenChannel>,
    shutting_down: bool,
}

impl ClientService {
    pub(super) fn new() -> Self {
        Self {
            controllers: Vec::new(),
            channels: BTreeMap::new(),
            shutting_down: false,
        }
    }

    fn open(
        &mut self,
        id: u64,
        namespace: &RemoteNamespace,
        opened: Sender<Result<(), DeviceError>>,
        cx: &mut Context<'_>,
    ) {
        let channel = match namespace.open_remote(cx.driver) {
            Ok(channel) => channel,
            Err(error) => {
                // A caller that gave up has dropped its receiver.
                let _ = opened.send(Err(error));
                return;
            }
        };
        let places = channel.capacity().min(BLOCKING_REQUESTS_MAX);
        let open = OpenChannel {
            channel,
            requests: Slab::with_capacity(places),
            backlog: VecDeque::new(),
            backlog_until: Time::NEVER,
            opening: Some(opened),
            closing: false,
        };
        self.channels.insert(id, open);
    }
}

impl OpenChannel {
    /// Reports to the caller that opens the channel whether it has an I/O queue, once that is
    /// known.
    fn tell_opened(&mut self, cx: &mut Context<'_>) {
        if self.opening.is_none() {
            return;
        }
        let Some(result) = self.channel.opened() else {
            return;
        };
        if result.is_err() {
            self.closing = true;
            self.channel.close(cx);
        }
        if let Some(opening) = self.opening.take() {
            // A caller that gave up has dropped its receiver.
            let _ = opening.send(result);
        }
    }

    /// Answers the waiting requests that are given up.
    fn give_up(&mut self, now: Time) {
        let mut until = Time::NEVER;
        for _ in 0..self.backlog.len() {
            let Some(request) = self.backlog.pop_front() else {
                break;
            };
            if let Some(error) = request.patience.is_over() {
                request.answer(Err(error));
            } else {
                until = until.min(request.patience.limit(now));
                self.backlog.push_back(request);
            }
        }
        self.backlog_until = until;
    }

    /// Accepts a request.
    fn take(&mut self, request: BlockingRequest, now: Time) {
        if let Some(error) = request.patience.is_over() {
            return request.answer(Err(error));
        }
        self.backlog_until = self.backlog_until.min(request.patience.limit(now));
        self.backlog.push_back(request);
    }

    /// Submits the waiting requests that the channel has room for.
    fn submit(&mut self, cx: &mut Context<'_>) {
        while let Some(request) = self.backlog.pop_front() {
            if self.closing {
                request.answer(Err(BlockError::Aborted));
                continue;
            }
            let data = match slice_for(&request, cx) {
                Ok(data) => data,
                Err(NoBuffer) => {
                    self.backlog.push_front(request);
                    break;
                }
            };
            let (operation, lba, blocks) = (request.operation, request.lba, request.blocks);
            let limit = request.patience.limit(cx.now);
            let key = match self.requests.insert(request) {
                Ok(key) => key,
                Err(request) => {
                    self.backlog.push_front(request);
                    break;
                }
            };
            let request = Request {
                tag: key.tag(),
                operation,
                lba,
                blocks,
                data,
            };
            match self.channel.submit_until(request, limit, cx) {
                Submit::Queued => {}
                Submit::Done(done) => finish(&mut self.requests, done),
                Submit::Busy(_) => {
                    if let Some(request) = self.requests.remove(key) {
                        self.backlog.push_front(request);
                    }
                    break;
                }
            }
        }
        self.channel.kick(cx);
    }
}

/// All buffers of this size are in use.
struct NoBuffer;

fn slice_for(request: &BlockingRequest, cx: &mut Context<'_>) -> Result<Option<IoSlice>, NoBuffer> {
    if !request.operation.has_data() {
        return Ok(None);
    }
    let length = request.data.len();
    let buffer = cx.driver.buffers().take(length).ok_or(NoBuffer)?;
    let mut slice = IoSlice::from_buffer(buffer, length);
    if request.operation != Operation::Read {
        slice.copy_in(0, &request.data);
    }
    Ok(Some(slice))
}

fn finish(requests: &mut Slab<BlockingRequest>, done: block::Completion) {
    let Some(mut request) = requests.remove(SlabKey::from_tag(done.tag)) else {
        return;
    };
    if let (Operation::Read, Ok(()), Some(data)) = (request.operation, done.result, &done.data) {
        data.copy_out(0, &mut request.data);
    }
    request.answer(done.result);
}

impl Service for ClientService {
    type Message = ClientMessage;

    fn apply(&mut self, completion: Completion, cx: &mut Context<'_>) {
        let op_namespace = completion.key.op_namespace;
        let mut controllers = self.controllers.iter_mut();
        if let Some(controller) = controllers.find(|controller| controller.owns(op_namespace)) {
            return controller.complete(completion, cx);
        }
        let mut channels = self.channels.values_mut();
        if let Some(open) = channels.find(|open| open.channel.owns(op_namespace)) {
            open.channel.complete(completion, cx);
        }
    }

    fn message(&mut self, message: ClientMessage, cx: &mut Context<'_>) {
        match message {
            ClientMessage::Connect(association) => {
                let controller = Controller::new(association, cx.driver);
                self.controllers.push(controller);
            }
            ClientMessage::Open(id, namespace, opened) => {
                self.open(id, &namespace, opened, cx);
            }
            ClientMessage::Release(id) => {
                if let Some(open) = self.channels.get_mut(&id) {
                    open.closing = true;
                    open.channel.close(cx);
                }
            }
            ClientMessage::Request(id, request) => match self.channels.get_mut(&id) {
                Some(open) => open.take(request, cx.now),
                None => request.answer(Err(BlockError::Gone)),
            },
            ClientMessage::Cancel(id) => {
                let Some(open) = self.channels.get_mut(&id) else {
                    return;
                };
                open.give_up(cx.now);
                for (key, request) in open.requests.iter() {
                    if request.patience.is_over() == Some(BlockError::Aborted) {
                        open.channel.cancel(key.tag(), cx);
                    }
                }
            }
            ClientMessage::Shutdown => {
                self.shutting_down = true;
                for open in self.channels.values_mut() {
                    open.closing = true;
                    open.channel.close(cx);
                }
                for controller in &self.controllers {
                    controller.association().close();
                }
            }
        }
    }

    fn maintain(&mut self, cx: &mut Context<'_>) {
        for controller in &mut self.controllers {
            controller.tick(cx);
        }
        self.controllers.retain(|controller| !controller.closed());
        for open in self.channels.values_mut() {
            open.channel.tick(cx);
            open.tell_opened(cx);
            if open.backlog_until <= cx.now {
                open.give_up(cx.now);
            }
        }
        loop {
            let (mut reaped, mut waits) = (false, false);
            for open in self.channels.values_mut() {
                open.submit(cx);
                while let Some(done) = open.channel.reap() {
                    reaped = true;
                    finish(&mut open.requests, done);
                }
                waits |= !open.backlog.is_empty();
            }
            // A buffer that is free now may be the one that a request of another channel waits for.
            if !reaped || !waits {
                break;
            }
        }
        self.channels
            .retain(|_, open| !(open.closing && open.channel.closed()));
    }

    fn deadline(&self) -> Time {
        let controllers = self.controllers.iter().map(Controller::deadline);
        let open = self.channels.values();
        let channels = open.map(|open| open.channel.deadline().min(open.backlog_until));
        controllers.chain(channels).min().unwrap_or(Time::NEVER)
    }

    fn finished(&self) -> bool {
        self.shutting_down && self.controllers.is_empty() && self.channels.is_empty()
    }
}
