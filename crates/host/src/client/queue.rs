//! A queue of one's own: requests and completions on the calling thread, with its own driver and
//! its own connection. This is the fast way in.

use super::blocking::Subsystem;
use crate::channel::{QueueFull, RemoteChannel};
use crate::error::HostError;
use crate::limits::QUEUE_DEPTH_MAX;
use crate::namespace::RemoteNamespace;
use base::Nanos;
use base::units::{KIB, Lba, MIB};
use block::{Channel, Completion, Device, Operation, Request, Submit};
use reactor::uring::UringDriver;
use reactor::{
    BufferClass, Context, Driver, IdlePolicy, IoSlice, Outcome, PollPolicy, Wait, yield_core,
};
use std::collections::VecDeque;
use std::io;
use std::marker::PhantomData;

/// Options of a [`Queue`].
#[derive(Clone, Debug)]
pub struct QueueOptions {
    /// Requests at once, on each connection: 1 to 4095; the controller may allow fewer.
    pub depth: u16,
    /// Connections.
    pub connections: u16,
    /// Idle policy of [`Queue::wait`].
    pub poll: PollPolicy,
}

impl Default for QueueOptions {
    fn default() -> Self {
        Self {
            depth: 128,
            connections: 1,
            poll: PollPolicy::Auto,
        }
    }
}

/// Requests and completions of one thread on a namespace.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let host = host::Host::builder().build()?;
/// # let namespace = host.connect("127.0.0.1:4420", "nqn.2026-11.io.switchyard:default")?.namespace(1)?;
/// let mut queue = namespace.queue(32)?;
/// for tag in 0..32 {
///     queue.read(tag, tag * 8, 8).expect("the queue has room for 32");
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
    driver: UringDriver,
    channel: RemoteChannel,
    idle: IdlePolicy,
    events: Vec<reactor::Completion>,
    done: VecDeque<Completion>,
    block_bytes: u32,
    /// Keeps the controller connected; dropped last.
    _subsystem: Subsystem,
    /// The driver belongs to the thread that made it.
    _thread: PhantomData<*const ()>,
}

impl Queue {
    pub(super) fn open(
        namespace: &RemoteNamespace,
        subsystem: Subsystem,
        options: &QueueOptions,
    ) -> Result<Self, HostError> {
        let depth = options.depth.clamp(1, QUEUE_DEPTH_MAX - 1);
        let count = usize::from(depth) * usize::from(options.connections.max(1));
        let class = |bytes, count| BufferClass { bytes, count };
        // Address space; memory is taken only when a buffer is used.
        let buffers = vec![
            class(4 * KIB, count + 16),
            class(16 * KIB, count),
            class(128 * KIB, count),
            class(MIB, count),
        ];
        let mut driver = UringDriver::new(&reactor::uring::Options {
            buffers,
            sockets: usize::from(options.connections.max(1)) + 4,
            file_operations: 16,
        })?;
        let namespace = namespace.clone().with_queues(options.connections, depth);
        let channel = namespace.open_remote(&mut driver)?;
        Ok(Self {
            driver,
            channel,
            idle: IdlePolicy::new(options.poll),
            events: Vec::with_capacity(256),
            done: VecDeque::with_capacity(count),
            block_bytes: namespace.geometry().block_bytes,
            _subsystem: subsystem,
            _thread: PhantomData,
        })
    }

    /// Memory for a request: `bytes` of the queue's own buffers, at most 1 MiB. `None` while all
    /// are in use; dropping a completion's data gives one back.
    #[must_use]
    pub fn buffer(&self, bytes: usize) -> Option<IoSlice> {
        let buffer = self.driver.buffers().take(bytes)?;
        Some(IoSlice::from_buffer(buffer, bytes))
    }

    /// Requests that were submitted and not handed out by [`wait`](Self::wait) yet.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.channel.outstanding() + self.done.len()
    }

    /// Returns the number of requests that may be.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.channel.capacity()
    }

    /// Submits a request. It leaves with all others at the next [`wait`](Self::wait) or
    /// [`kick`](Self::kick).
    ///
    /// # Errors
    /// The request itself, when the queue is full.
    #[allow(clippy::result_large_err)] // The caller gets its request back, to submit it later.
    pub fn submit(&mut self, request: Request) -> Result<(), Request> {
        let mut cx = Context {
            now: self.driver.now(),
            driver: &mut self.driver,
        };
        match self.channel.submit(request, &mut cx) {
            Submit::Queued => Ok(()),
            Submit::Done(done) => {
                self.done.push_back(done);
                Ok(())
            }
            Submit::Busy(request) => Err(request),
        }
    }

    /// Reads `blocks` blocks from block `lba` on into a buffer of the queue's.
    ///
    /// # Errors
    /// The request itself, when the queue is full; without data when no buffer is free.
    #[allow(clippy::result_large_err)] // As above.
    pub fn read(&mut self, tag: u64, lba: u64, blocks: u32) -> Result<(), Request> {
        let bytes = blocks as usize * self.block_bytes as usize;
        let request = Request {
            tag,
            operation: Operation::Read,
            lba: Lba(lba),
            blocks,
            data: self.buffer(bytes),
        };
        if request.data.is_none() {
            return Err(request);
        }
        self.submit(request)
    }

    /// Writes a copy of `data`, whole blocks, from block `lba` on.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    #[allow(clippy::result_large_err)] // As above.
    pub fn write(&mut self, tag: u64, lba: u64, data: &[u8]) -> Result<(), Request> {
        let blocks = data.len() / self.block_bytes as usize;
        let mut request = Request {
            tag,
            operation: Operation::Write { durable: false },
            lba: Lba(lba),
            blocks: u32::try_from(blocks).unwrap_or(u32::MAX),
            data: self.buffer(data.len()),
        };
        let Some(slice) = &mut request.data else {
            return Err(request);
        };
        slice.copy_in(0, data);
        self.submit(request)
    }

    /// Submits a barrier: its completion comes when every request that was submitted to this queue
    /// before is done, and everything that the target had received of the same tenant elsewhere;
    /// what is submitted after it takes effect after it ([`RemoteChannel::barrier`]).
    ///
    /// # Errors
    /// [`QueueFull`].
    pub fn barrier(&mut self, tag: u64) -> Result<(), QueueFull> {
        let mut cx = Context {
            now: self.driver.now(),
            driver: &mut self.driver,
        };
        self.channel.barrier(tag, &mut cx)
    }

    /// Sends off what was submitted, without waiting.
    pub fn kick(&mut self) {
        let mut cx = Context {
            now: self.driver.now(),
            driver: &mut self.driver,
        };
        self.channel.kick(&mut cx);
    }

    /// Waits until at least `min` requests are done, or all are, and hands them out. With 0 it
    /// only looks.
    ///
    /// # Errors
    /// When the thread's io_uring is broken; failed requests are completions.
    pub fn wait(&mut self, min: usize) -> io::Result<Completions<'_>> {
        self.kick();
        let mut first = true;
        while first || (self.done.len() < min && self.channel.outstanding() > 0) {
            let wait = if min == 0 || self.done.len() >= min {
                Wait::No
            } else {
                let deadline = self.channel.deadline();
                self.idle.decide(self.driver.now(), deadline)
            };
            self.turn(wait)?;
            first = false;
            if self.done.len() < min {
                yield_core(&mut self.idle, &self.driver, false);
            }
        }
        Ok(Completions { queue: self })
    }

    fn turn(&mut self, wait: Wait) -> io::Result<()> {
        self.driver.reap(wait, &mut self.events)?;
        // The end of a send is no work that the program waited for.
        let rewarded = self
            .events
            .iter()
            .any(|event| !matches!(event.outcome, Outcome::Sent { .. }));
        let mut cx = Context {
            now: self.driver.now(),
            driver: &mut self.driver,
        };
        for event in self.events.drain(..) {
            self.channel.complete(event, &mut cx);
        }
        self.channel.tick(&mut cx);
        self.idle.observe(cx.now, wait, rewarded);
        while let Some(done) = self.channel.reap() {
            self.done.push_back(done);
        }
        Ok(())
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let mut cx = Context {
            now: self.driver.now(),
            driver: &mut self.driver,
        };
        let limit = cx.now + Nanos::from_secs(1);
        self.channel.close(&mut cx);
        while !self.channel.closed() && self.driver.now() < limit {
            if self.turn(Wait::Until(limit)).is_err() {
                return;
            }
        }
    }
}

/// Finished requests, oldest first. What is not taken stays for the next
/// [`wait`](Queue::wait).
#[derive(Debug)]
pub struct Completions<'a> {
    queue: &'a mut Queue,
}

impl Iterator for Completions<'_> {
    type Item = Completion;

    fn next(&mut self) -> Option<Completion> {
        self.queue.done.pop_front()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let len = self.queue.done.len();
        (len, Some(len))
    }
}
