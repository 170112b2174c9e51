//! The requests of a front end on one core: ranges of bytes in, completions out.
//!
//! A request of an interface may be larger than one of a device: it is carried out in pieces, and
//! complete when all of them are. Its memory is taken as a whole before it begins, so requests that
//! wait for memory hold none.

use crate::class_channel::{ClassChannel, NoChannel};
use crate::limits::{CORE_REQUESTS_RESERVE, DEVICE_BYTES_MAX};
use crate::served_size::served;
use crate::{IoCounters, KnownLosses};
use base::units::Lba;
use base::{Slab, SlabKey, Time};
use block::{BlockError, Capabilities, Channel, Completion, Device, DeviceError, Geometry};
use block::{Operation, Request, Submit};
use reactor::{Context, Driver, IoSlice};
use std::collections::VecDeque;
use std::sync::Arc;
use switch::{Class, PerClass};

/// The end of a request.
#[derive(Debug)]
pub struct Finished<T> {
    /// The front end's name for the request.
    pub owner: T,
    /// The result: of several errors, the first.
    pub result: Result<(), BlockError>,
    /// The memory that the request came with, in order.
    pub data: Vec<IoSlice>,
}

/// A request that is under way.
#[derive(Debug)]
struct Pending<T> {
    owner: T,
    class: Class,
    operation: Operation,
    /// Of a Flush: its client, and the losses that it knew of at that time.
    flush: Option<(KnownLosses, u32)>,
    bytes: u64,
    result: Result<(), BlockError>,
    pieces: usize,
    /// Pieces that are not complete.
    left: usize,
    /// The memory of each piece that is complete.
    data: Vec<Option<IoSlice>>,
}

/// The requests of one core. `T` is the front end's name for a request.
#[derive(Debug)]
pub struct DeviceIo<T> {
    device: Arc<dyn Device>,
    capabilities: Capabilities,
    /// The most bytes of one piece.
    piece_bytes: usize,
    channels: PerClass<ClassChannel>,
    /// The class with the channel that carries the requests of a class.
    ways: PerClass<Class>,
    requests: Slab<Pending<T>>,
    requests_max: usize,
    finished: PerClass<VecDeque<Finished<T>>>,
    /// Vectors without content, for reuse.
    spare: Vec<Vec<IoSlice>>,
    spare_data: Vec<Vec<Option<IoSlice>>>,
    closing: bool,
    counters: Arc<IoCounters>,
    /// Class of a request that waits for memory, and bytes of the buffers that it lacks.
    reserved: Option<(Class, usize)>,
    /// The losses that are known where all of the core is one client.
    losses: KnownLosses,
}

/// Vectors that are kept for reuse.
const SPARE_MAX: usize = 1024;

impl<T> DeviceIo<T> {
    /// Opens the devices on the calling core, one for each class, which are ways to the same
    /// blocks; for at most `requests` requests at a time. All classes share the channel of the
    /// default class where the target grants no further queue.
    ///
    /// # Errors
    /// What a device answers; [`DeviceError::Invalid`] for one of more than [`DEVICE_BYTES_MAX`].
    pub fn open(
        devices: &PerClass<Arc<dyn Device>>,
        requests: usize,
        driver: &mut dyn Driver,
    ) -> Result<Self, DeviceError> {
        let device = Arc::clone(&devices[Class::DEFAULT]);
        let bytes = device.geometry().bytes();
        if bytes > DEVICE_BYTES_MAX {
            return Err(DeviceError::Invalid(format!(
                "the device has {bytes} bytes, but files, block devices and NBD exports have at \
                 most {DEVICE_BYTES_MAX} bytes; attach a smaller device"
            )));
        }
        let mut opened: PerClass<Option<Box<dyn Channel>>> = PerClass::default();
        opened[Class::DEFAULT] = Some(device.open(driver)?);
        for class in Class::ALL {
            if opened[class].is_none() {
                match devices[class].open(driver) {
                    Ok(channel) => opened[class] = Some(channel),
                    Err(DeviceError::NoQueue(reason)) => {
                        tracing::warn!(
                            "requests of class {class} share the queue of the other \
                            class: {reason}"
                        );
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        let ways = PerClass::from_fn(|class| match opened[class] {
            Some(_) => class,
            None => Class::DEFAULT,
        });
        let capabilities = device.capabilities();
        let block = device.geometry().block_bytes as usize;
        let largest = driver.buffers().largest();
        let piece = largest.min(capabilities.max_transfer_bytes as usize);
        Ok(Self {
            capabilities,
            piece_bytes: (piece - piece % block).max(block),
            channels: PerClass::from_fn(|class| ClassChannel {
                channel: opened[class].take().unwrap_or_else(|| Box::new(NoChannel)),
                unsent: VecDeque::new(),
                in_flight: 0,
                submitted: false,
            }),
            ways,
            requests: Slab::with_capacity(requests + CORE_REQUESTS_RESERVE),
            requests_max: requests,
            finished: PerClass::default(),
            spare: Vec::new(),
            spare_data: Vec::new(),
            closing: false,
            counters: Arc::default(),
            reserved: None,
            losses: KnownLosses::of(&*device),
            device,
        })
    }

    /// The same; all Flushes are this client's, which other cores may serve as well.
    #[must_use]
    pub fn for_client(mut self, client: &KnownLosses) -> Self {
        self.losses = client.clone();
        self
    }

    /// Size and block size of the device at present, as far as clients can use it: at most
    /// [`DEVICE_BYTES_MAX`].
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        served(&*self.device)
    }

    /// Capabilities of the device.
    #[must_use]
    pub const fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    /// Returns the most bytes of one piece of a request's memory.
    #[must_use]
    pub const fn piece_bytes(&self) -> usize {
        self.piece_bytes
    }

    /// Counters of its requests.
    #[must_use]
    pub const fn counters(&self) -> &Arc<IoCounters> {
        &self.counters
    }

    /// Returns true if as many requests are under way as may be. A request that was begun before,
    /// and of which the data arrives only now, may still be [submitted](Self::submit): there is
    /// room for [`CORE_REQUESTS_RESERVE`] of them.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.under_way() >= self.requests_max
    }

    /// Requests that were not handed out as finished.
    #[must_use]
    pub fn under_way(&self) -> usize {
        let finished = self.finished.iter().map(|(_, queue)| queue.len());
        self.requests.len() + finished.sum::<usize>()
    }

    /// Returns true if finished requests wait to be [handed out](Self::finished).
    #[must_use]
    pub fn has_finished(&self) -> bool {
        self.finished.iter().any(|(_, queue)| !queue.is_empty())
    }

    /// Takes memory for `bytes` bytes of a request's data, in pieces; `None` where that much is not
    /// free at present. The content is whatever it was.
    pub fn memory(
        &mut self,
        class: Class,
        bytes: usize,
        cx: &mut Context<'_>,
    ) -> Option<Vec<IoSlice>> {
        if let Some((first, lacking)) = self.reserved
            && first.index() <= class.index()
            && bytes > 0
            && lacking <= self.buffer_bytes(bytes, cx)
        {
            return None;
        }
        let mut data = self.spare.pop().unwrap_or_default();
        let mut left = bytes;
        while left > 0 {
            let len = left.min(self.piece_bytes);
            let own = self.channels[self.ways[class]].channel.memory(len);
            let piece = own.or_else(|| {
                let buffer = cx.driver.buffers().take(len)?;
                Some(IoSlice::from_buffer(buffer, len))
            });
            let Some(piece) = piece else {
                self.recycle(data);
                return None;
            };
            data.push(piece);
            left -= len;
        }
        Some(data)
    }

    /// Keeps [memory](Self::memory) for a request of which not all is free, until
    /// [`release`](Self::release): what comes free goes to no other request of its class, or of one
    /// after it, that takes buffers of this size. The first request of the first class counts.
    pub fn reserve(&mut self, class: Class, bytes: usize, cx: &Context<'_>) {
        let is_before = |(first, _): (Class, usize)| class.index() < first.index();
        if self.reserved.is_none_or(is_before) {
            self.reserved = Some((class, self.buffer_bytes(bytes, cx)));
        }
    }

    /// Keeps memory for no request. Those that wait try again, first that which waits the longest.
    pub fn release(&mut self) {
        self.reserved = None;
    }

    /// Bytes of the buffers that a request takes.
    fn buffer_bytes(&self, bytes: usize, cx: &Context<'_>) -> usize {
        let piece = bytes.min(self.piece_bytes);
        let mut sizes = cx.driver.buffers().usage().map(|(size, ..)| size);
        sizes.find(|&size| size >= piece).unwrap_or(piece)
    }

    /// Takes memory of a finished request back.
    pub fn recycle(&mut self, mut data: Vec<IoSlice>) {
        data.clear();
        if self.spare.len() < SPARE_MAX {
            self.spare.push(data);
        }
    }

    /// A client that begins now.
    #[must_use]
    pub fn client(&self) -> KnownLosses {
        KnownLosses::of(&*self.device)
    }

    /// Begins a Flush for one of several clients.
    ///
    /// # Panics
    /// As [`submit`](Self::submit).
    pub fn flush(&mut self, class: Class, client: &KnownLosses, owner: T) {
        let flush = Some((client.clone(), client.count()));
        self.begin((class, Operation::Flush, flush), (0, 0), Vec::new(), owner);
    }

    /// Begins a request over `bytes` bytes from `offset` on; `data` is the [memory](Self::memory) of
    /// an operation that has data, and empty for others. Its end is
    /// [handed out](Self::finished), also that of a request that is refused: ranges that are not whole
    /// blocks are [`BlockError::Malformed`].
    ///
    /// # Panics
    /// When it is [full](Self::is_full) and the reserve is used up, too: ask before a request begins.
    pub fn submit(
        &mut self,
        class: Class,
        operation: Operation,
        range: (u64, u64),
        data: Vec<IoSlice>,
        owner: T,
    ) {
        let flush = (operation == Operation::Flush).then(|| self.losses.clone());
        let flush = flush.map(|client| (client.clone(), client.count()));
        self.begin((class, operation, flush), range, data, owner);
    }

    fn begin(
        &mut self,
        (class, operation, flush): (Class, Operation, Option<(KnownLosses, u32)>),
        (offset, bytes): (u64, u64),
        data: Vec<IoSlice>,
        owner: T,
    ) {
        self.counters.begin(class);
        if let Err(error) = self.check(operation, offset, bytes, &data) {
            self.counters.finish(class, operation, bytes, false);
            self.finished[class].push_back(Finished {
                owner,
                result: Err(error),
                data,
            });
            return;
        }
        let block = u64::from(self.device.geometry().block_bytes);
        let mut pieces = self.spare_data.pop().unwrap_or_default();
        pieces.resize_with(data.len(), || None);
        let pending = Pending {
            owner,
            class,
            operation,
            flush,
            bytes,
            result: Ok(()),
            pieces: 0,
            left: 0,
            data: pieces,
        };
        let Ok(key) = self.requests.insert(pending) else {
            panic!("the caller asked whether there is room for a request");
        };
        let unsent = &mut self.channels[self.ways[class]].unsent;
        let before = unsent.len();
        let mut piece = |at: u64, blocks: u64, data: Option<IoSlice>, number: usize| {
            unsent.push_back(Request {
                tag: tag_of(key, number),
                operation,
                lba: Lba(at),
                blocks: u32::try_from(blocks).expect("a piece is bounded"),
                data,
            });
        };
        let (mut at, mut left) = (offset / block, bytes / block);
        if operation == Operation::Flush {
            piece(0, 0, None, 0);
        } else if operation.has_data() {
            let mut data = data;
            for (number, slice) in data.drain(..).enumerate() {
                let blocks = slice.len() as u64 / block;
                piece(at, blocks, Some(slice), number);
                at += blocks;
            }
            self.spare.push(data);
        } else {
            let mut number = 0;
            while left > 0 {
                let blocks = left.min(u64::from(u32::MAX));
                piece(at, blocks, None, number);
                at += blocks;
                left -= blocks;
                number += 1;
            }
        }
        let count = unsent.len() - before;
        let pending = self.requests.get_mut(key);
        let pending = pending.expect("it was just put there");
        (pending.pieces, pending.left) = (count, count);
    }

    /// Refuses what cannot be cut into pieces.
    fn check(
        &self,
        operation: Operation,
        offset: u64,
        bytes: u64,
        data: &[IoSlice],
    ) -> Result<(), BlockError> {
        if self.closing {
            return Err(BlockError::Aborted);
        }
        let geometry = self.geometry();
        if geometry.is_gone() {
            return Err(BlockError::Gone);
        }
        if operation == Operation::Flush {
            return Ok(());
        }
        if operation.is_write() && self.capabilities.read_only {
            return Err(BlockError::ReadOnly);
        }
        let block = u64::from(geometry.block_bytes);
        if bytes == 0 || !offset.is_multiple_of(block) || !bytes.is_multiple_of(block) {
            return Err(BlockError::Malformed);
        }
        let end = offset.checked_add(bytes);
        if end.is_none_or(|end| end > geometry.bytes()) {
            return Err(BlockError::OutOfRange);
        }
        let given: usize = data.iter().map(IoSlice::len).sum();
        let wanted = if operation.has_data() { bytes } else { 0 };
        if given as u64 != wanted || data.len() >= 1 << (u64::BITS - SlabKey::TAG_BITS) {
            return Err(BlockError::Malformed);
        }
        Ok(())
    }

    /// Passes a completed operation of the driver's on to its channel; returns it where it belongs
    /// to none.
    pub fn apply(
        &mut self,
        completion: reactor::Completion,
        cx: &mut Context<'_>,
    ) -> Option<reactor::Completion> {
        let namespace = completion.key.op_namespace;
        for class in Class::ALL {
            let channel = &mut self.channels[class].channel;
            if channel.owns(namespace) {
                channel.complete(completion, cx);
                return None;
            }
        }
        Some(completion)
    }

    /// Sends what can be sent, and takes what is complete. Runs once each turn of the core, after
    /// the turn's requests.
    pub fn turn(&mut self, cx: &mut Context<'_>) {
        for class in Class::ALL {
            let channel = &mut self.channels[class].channel;
            channel.tick(cx);
            self.reap(class);
            self.send(class, cx);
            let entry = &mut self.channels[class];
            if std::mem::take(&mut entry.submitted) {
                entry.channel.kick(cx);
                self.reap(class);
            }
        }
    }

    fn send(&mut self, class: Class, cx: &mut Context<'_>) {
        while let Some(request) = self.channels[class].unsent.pop_front() {
            let entry = &mut self.channels[class];
            entry.submitted = true;
            match entry.channel.submit(request, cx) {
                Submit::Done(completion) => self.complete(completion),
                Submit::Queued => entry.in_flight += 1,
                Submit::Busy(request) => {
                    entry.unsent.push_front(request);
                    return;
                }
            }
        }
    }

    fn reap(&mut self, class: Class) {
        while let Some(completion) = self.channels[class].channel.reap() {
            let entry = &mut self.channels[class];
            assert!(entry.in_flight > 0, "a channel answers what it was asked");
            entry.in_flight -= 1;
            self.complete(completion);
        }
    }

    fn complete(&mut self, completion: Completion) {
        let (key, number) = piece_of(completion.tag);
        let pending = self.requests.get_mut(key);
        let pending = pending.expect("a request ends after its last piece");
        assert!(pending.left > 0, "a piece ends once");
        pending.left -= 1;
        let result = match &pending.flush {
            // The channel tells of the completion that was taken last.
            Some((client, known)) => {
                let way = self.ways[pending.class];
                let losses = self.channels[way].channel.losses();
                client.judge(completion.result, losses, *known)
            }
            None => completion.result,
        };
        if pending.result.is_ok() {
            pending.result = result;
        }
        if let Some(slice) = completion.data {
            let before = pending.data[number].replace(slice);
            assert!(before.is_none(), "a piece has one place");
        }
        if pending.left == 0 {
            let pending = self.requests.remove(key).expect("it was just there");
            let succeeded = pending.result.is_ok();
            let (class, operation) = (pending.class, pending.operation);
            self.counters
                .finish(class, operation, pending.bytes, succeeded);
            let mut data = self.spare.pop().unwrap_or_default();
            let mut pieces = pending.data;
            data.extend(pieces.drain(..).flatten());
            self.spare_data.push(pieces);
            self.finished[class].push_back(Finished {
                owner: pending.owner,
                result: pending.result,
                data,
            });
        }
    }

    /// Takes the next request that is finished, of the first class that has any.
    pub fn finished(&mut self) -> Option<Finished<T>> {
        let mut classes = Class::ALL.into_iter();
        classes.find_map(|class| self.finished_of(class))
    }

    /// Takes the next request of this class that is finished.
    pub fn finished_of(&mut self, class: Class) -> Option<Finished<T>> {
        self.finished[class].pop_front()
    }

    /// The names of the requests that were not handed out as finished.
    pub fn owners(&self) -> impl Iterator<Item = &T> {
        let finished = self.finished.iter().flat_map(|(_, queue)| queue);
        let requests = self.requests.iter().map(|(_, pending)| &pending.owner);
        requests.chain(finished.map(|finished| &finished.owner))
    }

    /// Gives a request up: pieces that were not sent end as [`BlockError::Aborted`], and so do
    /// others where the channel can [give them up](Channel::cancel).
    pub fn cancel(&mut self, is_it: impl Fn(&T) -> bool, cx: &mut Context<'_>) {
        let found = self.requests.iter().find_map(|(key, pending)| {
            is_it(&pending.owner).then_some((key, pending.class, pending.pieces))
        });
        let Some((key, class, pieces)) = found else {
            return;
        };
        let entry = &mut self.channels[self.ways[class]];
        for number in 0..pieces {
            entry.channel.cancel(tag_of(key, number), cx);
        }
        let unsent = entry.unsent.drain(..);
        let (given_up, others): (VecDeque<_>, _) =
            unsent.partition(|request| piece_of(request.tag).0 == key);
        entry.unsent = others;
        for request in given_up {
            self.complete(Completion {
                tag: request.tag,
                result: Err(BlockError::Aborted),
                data: request.data,
            });
        }
    }

    /// Returns the time at which [`turn`](Self::turn) has to run at the latest.
    #[must_use]
    pub fn deadline(&self) -> Time {
        if self.has_finished() {
            return Time::ZERO;
        }
        let channels = Class::ALL.into_iter().map(|class| &self.channels[class]);
        let due = channels.map(|entry| {
            let idle = entry.in_flight == 0 && !entry.unsent.is_empty();
            if idle {
                // Nothing under way would make the core come back to it.
                Time::ZERO
            } else {
                entry.channel.deadline()
            }
        });
        due.min().unwrap_or(Time::NEVER)
    }

    /// Begins to close the channels: requests under way end, aborted where need be, and later ones
    /// are refused.
    pub fn close(&mut self, cx: &mut Context<'_>) {
        self.closing = true;
        for class in Class::ALL {
            self.channels[class].channel.close(cx);
        }
    }

    /// Returns true if the channels are closed, after [`close`](Self::close).
    #[must_use]
    pub fn closed(&self) -> bool {
        let mut channels = Class::ALL.into_iter().map(|class| &self.channels[class]);
        self.closing && channels.all(|entry| entry.channel.closed())
    }
}

fn tag_of(key: SlabKey, piece: usize) -> u64 {
    key.tag() | (piece as u64) << SlabKey::TAG_BITS
}

fn piece_of(tag: u64) -> (SlabKey, usize) {
    let piece = usize::try_from(tag >> SlabKey::TAG_BITS);
    (SlabKey::from_tag(tag), piece.expect("24 bits"))
}

mod opening;
pub(crate) use opening::connect;

#[cfg(test)]
mod tests;
