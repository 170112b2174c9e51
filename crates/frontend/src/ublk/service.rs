//! The queues of one core: requests from the kernel in, requests to the device out.
//!
//! Each tag of a queue has either a command in the kernel or a request here. The data of a write is
//! read from the character device before the write begins, and that of a read is written to it
//! before the request completes: through the ring, with one copy each.

use super::abi::{Request, data_offset};
use super::queue::{Copying, Descriptions, Queue, Tag};
use crate::class_rules::SizeRules;
use crate::core_thread::passes;
use crate::errno::errno_of;
use crate::log_budget::LogBudget;
use crate::{DeviceIo, Finished, KnownLosses, Ping};
use base::{SlabKey, Time};
use block::{BlockError, Operation};
use reactor::{
    Completion, Context, Driver, FileId, IoSlice, Op, OpKey, OpNamespace, Outcome, Service,
    UblkCommand,
};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use switch::{Class, PerClass};

/// A message to a core.
#[derive(Debug)]
pub(super) enum Message {
    /// Start waiting for requests of this character device: every core is ready.
    Fetch(Arc<File>),
    /// Abort outstanding requests, and refuse later ones; the tags stay with the kernel.
    Abort,
    /// Reply by dropping it.
    Ping(Ping),
    /// Begin no more requests, and end once those in the device are completed: the kernel passes
    /// all other requests to the next server.
    Quiesce,
    /// End even if the kernel has not ended the tags; their requests are no longer completed.
    Leave,
}

/// State that the threads of a server share.
#[derive(Debug)]
pub(super) struct SharedServer {
    pub(super) class: Class,
    pub(super) rules: SizeRules,
    pub(super) read_only: bool,
    /// The cache losses of the device that were reported to the kernel.
    pub(super) client: KnownLosses,
    /// The kernel refused a command that waits for requests.
    pub(super) broken: AtomicBool,
    pub(super) log: LogBudget,
    /// A descriptor of each core's ring, for as long as its thread is there.
    pub(super) rings: Mutex<Vec<OwnedFd>>,
}

impl SharedServer {
    pub(super) fn rings(&self) -> MutexGuard<'_, Vec<OwnedFd>> {
        // Entries are added and removed as a whole.
        self.rings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request's place: the index of the queue on the core, and the tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TagPlace {
    pub(super) queue: usize,
    pub(super) tag: u16,
}

/// Operation kinds, encoded in their keys.
const COMMAND: u8 = 0;
const COPY: u8 = 1;

/// Maximum memory pieces of one request: the range of piece numbers in a key.
const PIECES_MAX: usize = 256;

/// The work of one core.
#[derive(Debug)]
pub(super) struct UblkService<D> {
    shared: Arc<SharedServer>,
    io: DeviceIo<TagPlace>,
    op_namespace: OpNamespace,
    /// The character device, once its requests are fetched.
    file: Option<FileId>,
    queues: Vec<Queue<D>>,
    /// Requests waiting for memory.
    waiting: PerClass<VecDeque<(TagPlace, Request)>>,
    /// Number of requests whose data is being copied.
    copying: usize,
    /// Number of tags that the kernel has not ended.
    live: usize,
    /// Work remains that no completion will trigger.
    again: bool,
    closing: bool,
    quiescing: bool,
    leaving: bool,
}

impl<D: Descriptions> UblkService<D> {
    /// Serves `queues`, once it is told to fetch their requests.
    pub(super) fn start(
        shared: Arc<SharedServer>,
        io: DeviceIo<TagPlace>,
        queues: Vec<Queue<D>>,
        driver: &mut dyn Driver,
    ) -> Self {
        Self {
            shared,
            io,
            op_namespace: driver.op_namespace(),
            file: None,
            waiting: PerClass::default(),
            copying: 0,
            live: queues.iter().map(|queue| queue.tags.len()).sum(),
            again: false,
            closing: false,
            quiescing: false,
            leaving: false,
            queues,
        }
    }

    /// Starts waiting for the requests of all tags.
    fn fetch(&mut self, device: Arc<File>, driver: &mut dyn Driver) {
        let mut queues = self.queues.iter_mut();
        let mapped = queues.try_for_each(|queue| queue.descriptions.map(&device));
        match mapped.and_then(|()| driver.open_file(device)) {
            Ok(file) => self.file = Some(file),
            Err(error) => {
                tracing::error!("cannot use the queues of a ublk device: {error}");
                return self.shared.broken.store(true, Ordering::Relaxed);
            }
        }
        for (index, queue) in self.queues.iter().enumerate() {
            for tag in (0..).take(queue.tags.len()) {
                let place = TagPlace { queue: index, tag };
                self.command(place, UblkCommand::Fetch, driver);
            }
        }
    }

    fn command(&self, place: TagPlace, command: UblkCommand, driver: &mut dyn Driver) {
        let op = Op::Ublk {
            file: self.file(),
            queue: self.queues[place.queue].number,
            tag: place.tag,
            command,
        };
        driver.submit(self.key(place, COMMAND, 0), op);
    }

    fn file(&self) -> FileId {
        self.file.expect("requests were fetched")
    }

    /// The key's index holds the tag in its upper half, as there are fewer queues than tags; its
    /// generation is the piece.
    fn key(&self, place: TagPlace, kind: u8, piece: usize) -> OpKey {
        let queue = u16::try_from(place.queue).expect("a device has fewer queues");
        let slot = SlabKey {
            index: u32::from(place.tag) << 16 | u32::from(queue),
            generation: u8::try_from(piece).expect("pieces are bounded"),
        };
        OpKey::new(self.op_namespace, kind, slot)
    }

    fn tag(&mut self, place: TagPlace) -> &mut Tag {
        &mut self.queues[place.queue].tags[usize::from(place.tag)]
    }

    /// Handles the end of a tag's command: a request has arrived, or none will.
    fn commanded(&mut self, place: TagPlace, result: io::Result<usize>, cx: &mut Context<'_>) {
        match result {
            Ok(_) => {
                let queue = &mut self.queues[place.queue];
                queue.requests += 1;
                let request = Request::parse(&queue.descriptions.read(place.tag));
                let bytes = request.map_or(0, |request| request.data_bytes());
                let by_rule = self.shared.rules.class(bytes, queue.requests);
                let class = by_rule.unwrap_or(self.shared.class);
                queue.tags[usize::from(place.tag)].take(class);
                match request {
                    Some(request) => self.waiting[class].push_back((place, request)),
                    None => self.answer(place, Err(Errno::OPNOTSUPP), cx),
                }
            }
            Err(error) => {
                self.tag(place).end();
                self.live -= 1;
                if error.raw_os_error() != Some(Errno::NODEV.raw_os_error()) {
                    tracing::error!("the kernel rejects commands of a ublk queue: {error}");
                    self.shared.broken.store(true, Ordering::Relaxed);
                }
            }
        }
    }

    /// Completes a request with a byte count or an error; the tag then waits for the next one. A
    /// request outstanding when the core leaves is executed by the next server.
    fn answer(&mut self, place: TagPlace, result: Result<u64, Errno>, cx: &mut Context<'_>) {
        if self.leaving {
            return;
        }
        self.tag(place).answer();
        let queue = &mut self.queues[place.queue];
        assert!(queue.requests > 0, "a request is answered once");
        queue.requests -= 1;
        let result = match result {
            Ok(bytes) => i32::try_from(bytes).expect("a request's data is bounded"),
            Err(errno) => -errno.raw_os_error(),
        };
        self.command(place, UblkCommand::Commit(result), cx.driver);
    }

    /// Begins requests while there is memory; returns true if any began.
    fn begin(&mut self, cx: &mut Context<'_>) -> bool {
        self.io.release();
        let begun = Class::ALL.map(|class| self.begin_class(class, cx));
        begun.contains(&true)
    }

    fn begin_class(&mut self, class: Class, cx: &mut Context<'_>) -> bool {
        let mut begun = false;
        while !self.quiescing
            && !self.leaving
            && let Some(&(place, request)) = self.waiting[class].front()
        {
            let bytes = usize::try_from(request.data_bytes()).unwrap_or(usize::MAX);
            let bounded = bytes <= self.queues[place.queue].request_bytes
                && (bytes > 0 || !request.operation.has_data());
            let memory = if bounded {
                self.io.memory(class, bytes, cx)
            } else {
                Some(Vec::new())
            };
            let Some(memory) = memory else {
                self.io.reserve(class, bytes, cx);
                break;
            };
            self.waiting[class].pop_front();
            begun = true;
            if !bounded || memory.len() > PIECES_MAX {
                self.io.recycle(memory);
                self.answer(place, Err(Errno::INVAL), cx);
            } else if request.operation.is_write() && self.shared.read_only {
                self.io.recycle(memory);
                self.answer(place, Err(Errno::ROFS), cx);
            } else if matches!(request.operation, Operation::Write { .. }) {
                self.copy(place, request, memory, cx);
            } else {
                self.submit(place, request, memory);
            }
        }
        begun
    }

    fn submit(&mut self, place: TagPlace, request: Request, memory: Vec<IoSlice>) {
        self.tag(place).submit(request);
        let range = (request.offset, request.bytes);
        let class = self.tag(place).class;
        self.io
            .submit(class, request.operation, range, memory, place);
    }

    /// Copies the data of a write from the kernel, or that of a read to it.
    fn copy(
        &mut self,
        place: TagPlace,
        request: Request,
        mut memory: Vec<IoSlice>,
        cx: &mut Context<'_>,
    ) {
        let mut at = 0;
        let queue = self.queues[place.queue].number;
        let pieces = memory.len();
        for (piece, slice) in memory.drain(..).enumerate() {
            let offset = data_offset(queue, place.tag, at);
            at += slice.len() as u64;
            let file = self.file();
            let op = if matches!(request.operation, Operation::Read) {
                Op::Write {
                    file,
                    offset,
                    slice,
                    durable: false,
                }
            } else {
                Op::Read {
                    file,
                    offset,
                    slice,
                }
            };
            cx.submit(self.key(place, COPY, piece), op);
        }
        self.copying += 1;
        self.tag(place).copy(request, memory, pieces);
    }

    /// Handles the result of copying a piece of a request's data.
    fn copied(
        &mut self,
        place: TagPlace,
        piece: usize,
        result: io::Result<usize>,
        slice: IoSlice,
        cx: &mut Context<'_>,
    ) {
        let whole = match result {
            Ok(bytes) => bytes == slice.len(),
            Err(error) => {
                if let Some(suppressed) = self.shared.log.allow() {
                    tracing::warn!(
                        suppressed,
                        "cannot copy the data of a ublk request: {error}"
                    );
                }
                false
            }
        };
        let Some(done) = self.tag(place).copied(piece, slice, whole) else {
            return;
        };
        assert!(self.copying > 0, "a copy ends once");
        self.copying -= 1;
        let Copying {
            request,
            memory,
            failed,
        } = done;
        if failed || matches!(request.operation, Operation::Read) {
            self.io.recycle(memory);
            let result = if failed {
                Err(Errno::IO)
            } else {
                Ok(request.bytes)
            };
            self.answer(place, result, cx);
        } else {
            self.submit(place, request, memory);
        }
    }

    fn finish(&mut self, finished: Finished<TagPlace>, cx: &mut Context<'_>) {
        let Finished {
            owner: place,
            result,
            data,
        } = finished;
        let request = self.tag(place).finished();
        if result.is_ok() && request.operation == Operation::Read {
            return self.copy(place, request, data, cx);
        }
        self.io.recycle(data);
        let result = match result {
            Ok(()) => Ok(request.data_bytes()),
            Err(error) => Err(errno_of(error)),
        };
        self.answer(place, result, cx);
    }

    /// Fails requests that wait for memory that can never become free.
    fn refuse_waiting(&mut self, cx: &mut Context<'_>) {
        for class in Class::ALL {
            while let Some((place, _)) = self.waiting[class].pop_front() {
                self.again = true;
                self.answer(place, Err(errno_of(BlockError::Internal)), cx);
            }
        }
    }

    fn leave(&mut self, cx: &mut Context<'_>) {
        self.leaving = true;
        self.close(cx);
    }

    fn close(&mut self, cx: &mut Context<'_>) {
        if !self.closing {
            self.closing = true;
            self.io.close(cx);
        }
    }
}

impl<D: Descriptions> Service for UblkService<D> {
    type Message = Message;

    fn apply(&mut self, completion: Completion, cx: &mut Context<'_>) {
        let Some(Completion { key, outcome }) = self.io.apply(completion, cx) else {
            return;
        };
        let place = TagPlace {
            queue: usize::try_from(key.index & 0xffff).expect("16 bits"),
            tag: u16::try_from(key.index >> 16).expect("16 bits"),
        };
        match (key.kind, outcome) {
            (COMMAND, Outcome::File { result, .. }) => self.commanded(place, result, cx),
            (
                COPY,
                Outcome::File {
                    result,
                    slice: Some(slice),
                },
            ) => self.copied(place, key.generation.into(), result, slice, cx),
            _ => unreachable!("the service starts nothing else"),
        }
    }

    fn message(&mut self, message: Message, cx: &mut Context<'_>) {
        match message {
            Message::Fetch(device) => self.fetch(device, cx.driver),
            Message::Abort => self.close(cx),
            Message::Ping(ping) => drop(ping),
            Message::Quiesce => self.quiescing = true,
            Message::Leave => self.leave(cx),
        }
    }

    fn maintain(&mut self, cx: &mut Context<'_>) {
        self.again = passes(|| {
            let mut progress = self.begin(cx);
            self.io.turn(cx);
            while let Some(finished) = self.io.finished() {
                self.finish(finished, cx);
                progress = true;
            }
            progress
        });
        if self.io.under_way() == 0 && self.copying == 0 && !self.again {
            if self.quiescing {
                self.leave(cx);
            } else {
                self.refuse_waiting(cx);
            }
        }
        if self.live == 0 {
            self.close(cx);
        }
    }

    fn deadline(&self) -> Time {
        if self.again {
            return Time::ZERO;
        }
        self.io.deadline()
    }

    fn finished(&self) -> bool {
        (self.live == 0 || self.leaving) && self.closing && self.io.closed()
    }
}
