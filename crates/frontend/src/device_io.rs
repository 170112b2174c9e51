//! The requests of a front end on one core: byte ranges in, completions out.
//!
//! A front end's request may be larger than the device accepts: it is split into pieces and
//! completes when all pieces have. All its memory is allocated before it begins, so requests that
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

/// A finished request.
#[derive(Debug)]
pub struct Finished<T> {
    /// The front end's identifier of the request.
    pub owner: T,
    /// The result: the first error, if several pieces failed.
    pub result: Result<(), BlockError>,
    /// The memory that was passed with the request, in order.
    pub data: Vec<IoSlice>,
}

/// A request in flight.
#[derive(Debug)]
struct Pending<T> {
    owner: T,
    class: Class,
    operation: Operation,
    /// Of a Flush: its client, and the client's loss count at submission.
    flush: Option<(KnownLosses, u32)>,
    bytes: u64,
    result: Result<(), BlockError>,
    pieces: usize,
    /// Number of pieces that are not complete.
    left: usize,
    /// The memory of each complete piece.
    data: Vec<Option<IoSlice>>,
}

/// The requests of one core. `T` is the front end's identifier of a request.
#[derive(Debug)]
pub struct DeviceIo<T> {
    device: Arc<dyn Device>,
    capabilities: Capabilities,
    /// Maximum bytes of one piece.
    piece_bytes: usize,
    channels: PerClass<ClassChannel>,
    /// For each class, the class whose channel carries its requests.
    ways: PerClass<Class>,
    requests: Slab<Pending<T>>,
    requests_max: usize,
    finished: PerClass<VecDeque<Finished<T>>>,
    /// Empty vectors for reuse.
    spare: Vec<Vec<IoSlice>>,
    spare_data: Vec<Vec<Option<IoSlice>>>,
    closing: bool,
    counters: Arc<IoCounters>,
    /// Class of the request that waits for memory, and the bytes of buffers it lacks.
    reserved: Option<(Class, usize)>,
    /// The known losses if the whole core serves a single client.
    losses: KnownLosses,
}

/// Maximum number of vectors kept for reuse.
const SPARE_MAX: usize = 1024;

impl<T> DeviceIo<T> {
    /// Opens the devices on the calling core: one for each class, all of them paths to the same
    /// blocks, for at most `requests` requests at a time. All classes share the default class's
    /// channel if the target grants no further queue.
    ///
    /// # Errors The device's error; [`DeviceError::Invalid`] if it is larger than
    /// [`DEVICE_BYTES_MAX`].
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

    /// Assigns all Flushes to `client`, which other cores may serve as well.
    #[must_use]
    pub fn for_client(mut self, client: &KnownLosses) -> Self {
        self.losses = client.clone();
        self
    }

    /// Current size and block size of the device as clients see them: at most [`DEVICE_BYTES_MAX`].
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        served(&*self.device)
    }

    /// Capabilities of the device.
    #[must_use]
    pub const fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    /// Returns the maximum bytes of one piece of a request's memory.
    #[must_use]
    pub const fn piece_bytes(&self) -> usize {
        self.piece_bytes
    }

    /// Counters of the core's requests.
    #[must_use]
    pub const fn counters(&self) -> &Arc<IoCounters> {
        &self.counters
    }

    /// Returns true if the limit of outstanding requests is reached. A request that began earlier
    /// and whose data arrives only now may still be [submitted](Self::submit):
    /// [`CORE_REQUESTS_RESERVE`] entries are kept for these.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.under_way() >= self.requests_max
    }

    /// Number of requests that [`finished`](Self::finished) has not returned yet.
    #[must_use]
    pub fn under_way(&self) -> usize {
        let finished = self.finished.iter().map(|(_, queue)| queue.len());
        self.requests.len() + finished.sum::<usize>()
    }

    /// Returns true if [`finished`](Self::finished) has requests to return.
    #[must_use]
    pub fn has_finished(&self) -> bool {
        self.finished.iter().any(|(_, queue)| !queue.is_empty())
    }

    /// Allocates memory for `bytes` bytes of a request's data, in pieces; `None` if not enough is
    /// free. The content is undefined.
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

    /// Reserves [memory](Self::memory) for a request that lacks some of it, until
    /// [`release`](Self::release): freed buffers of its size are then withheld from every other
    /// request of its class or of a later class. Only the first request of the first class
    /// reserves.
    pub fn reserve(&mut self, class: Class, bytes: usize, cx: &Context<'_>) {
        let is_before = |(first, _): (Class, usize)| class.index() < first.index();
        if self.reserved.is_none_or(is_before) {
            self.reserved = Some((class, self.buffer_bytes(bytes, cx)));
        }
    }

    /// Ends the reservation. Waiting requests try again, the oldest first.
    pub fn release(&mut self) {
        self.reserved = None;
    }

    /// Bytes of the buffers that a request occupies.
    fn buffer_bytes(&self, bytes: usize, cx: &Context<'_>) -> usize {
        let piece = bytes.min(self.piece_bytes);
        let mut sizes = cx.driver.buffers().usage().map(|(size, ..)| size);
        sizes.find(|&size| size >= piece).unwrap_or(piece)
    }

    /// Frees the memory of a finished request.
    pub fn recycle(&mut self, mut data: Vec<IoSlice>) {
        data.clear();
        if self.spare.len() < SPARE_MAX {
            self.spare.push(data);
        }
    }

    /// Returns a new client of the device.
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

    /// Begins a request for `bytes` bytes at `offset`; `data` is the [memory](Self::memory) of an
    /// operation with data, and empty otherwise. Every request, including a refused one, is
    /// returned by [`finished`](Self::finished). Ranges that are not whole blocks are
    /// [`BlockError::Malformed`].
    ///
    /// # Panics If it is [full](Self::is_full) and the reserve is used up: check before a request
    /// begins.
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

    /// Checks that a request can be split into pieces.
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

    /// Passes a completed driver operation to its channel; returns it if it belongs to none.
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

    /// Sends pieces and takes completions. Runs once in each turn of the core, after the turn's
    /// requests.
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
            // The channel reports the losses as of the completion taken last.
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

    /// Returns the next finished request, of the first class that has one.
    pub fn finished(&mut self) -> Option<Finished<T>> {
        let mut classes = Class::ALL.into_iter();
        classes.find_map(|class| self.finished_of(class))
    }

    /// Returns the next finished request of this class.
    pub fn finished_of(&mut self, class: Class) -> Option<Finished<T>> {
        self.finished[class].pop_front()
    }

    /// The identifiers of the requests that [`finished`](Self::finished) has not returned yet.
    pub fn owners(&self) -> impl Iterator<Item = &T> {
        let finished = self.finished.iter().flat_map(|(_, queue)| queue);
        let requests = self.requests.iter().map(|(_, pending)| &pending.owner);
        requests.chain(finished.map(|finished| &finished.owner))
    }

    /// Cancels a request: unsent pieces end as [`BlockError::Aborted`], and so do sent pieces if
    /// the channel can [cancel](Channel::cancel) them.
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

    /// Returns the latest time for the next [`turn`](Self::turn).
    #[must_use]
    pub fn deadline(&self) -> Time {
        if self.has_finished() {
            return Time::ZERO;
        }
        let channels = Class::ALL.into_iter().map(|class| &self.channels[class]);
        let due = channels.map(|entry| {
            let idle = entry.in_flight == 0 && !entry.unsent.is_empty();
            if idle {
                // No outstanding operation would wake the core for this work.
                Time::ZERO
            } else {
                entry.channel.deadline()
            }
        });
        due.min().unwrap_or(Time::NEVER)
    }

    /// Begins to close the channels: outstanding requests end, aborted where necessary, and later
    /// requests are refused.
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
