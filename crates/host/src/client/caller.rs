//! Blocking calls executed by the calling thread, over its own channel to the namespace and the
//! host's I/O path. `[Yu §4.2, §4.4]`
//!
//! A thread opens its channel with its first call. Only that thread can close it: when it drops the
//! namespace, at its next call after another thread dropped it, or at its exit. A thread that gets
//! no channel (no I/O queue is left, or the kernel refuses another io_uring) calls through the
//! host's thread, as without a path, and retries a second later.

use super::call::{Call, Data};
use super::own_channel::OwnChannel;
use crate::error::{HostError, RequestError};
use crate::limits::{ASK_AGAIN, CALLER_CHANNELS_MAX, TRANSFER_BYTES_MAX};
use crate::namespace::RemoteNamespace;
use base::units::KIB;
use base::{Nanos, Time};
use block::{BlockError, Channel, Device as _, Operation, PathDevice, Request};
use reactor::uring::Options;
use reactor::{BufferClass, PollPolicy};
use std::cell::RefCell;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use switch::PathSpec;

/// Pieces of one call in flight at a time.
const DEPTH: u32 = 8;

/// Commands outstanding on a thread's connection: a runner also sends requests of other threads.
const QUEUE_DEPTH: u16 = 128;

/// The namespace behind the host's I/O path.
#[derive(Debug)]
pub(super) struct CallerPath {
    device: PathDevice,
}

/// The channel of the calling thread to one namespace.
struct CallerChannel {
    path: Weak<CallerPath>,
    /// The channel, or the time at which opening one was refused; `None` after a channel was lost.
    own: Result<OwnChannel<dyn Channel>, Option<Instant>>,
    /// Losses of the target's cache reported to the thread, or before its first call. Kept when the
    /// channel is closed.
    told: u32,
}

impl Drop for CallerChannel {
    fn drop(&mut self) {
        // Nothing is outstanding between two calls, including requests of other threads.
        if let Ok(own) = &mut self.own {
            own.close(Nanos::from_secs(1));
        }
    }
}

thread_local! {
    static CHANNELS: RefCell<Vec<CallerChannel>> = const { RefCell::new(Vec::new()) };
}

impl Drop for CallerPath {
    fn drop(&mut self) {
        // A thread that is exiting has no channels any more.
        let _ = CHANNELS.try_with(|channels| close_deserted(&mut channels.borrow_mut()));
    }
}

/// Closes the calling thread's channels whose paths were dropped.
fn close_deserted(channels: &mut Vec<CallerChannel>) {
    channels.retain(|open| open.path.strong_count() > 0);
}

impl CallerPath {
    /// # Errors
    /// No thread or io_uring available, or no free I/O queue.
    pub(super) fn start(
        namespace: &RemoteNamespace,
        spec: PathSpec,
    ) -> Result<Arc<Self>, HostError> {
        let below = namespace.clone().with_queues(1, QUEUE_DEPTH);
        let below = Arc::new(below.below_path());
        let device = PathDevice::start(below, spec.path, spec.rules)?;
        let device = device.with_requests(DEPTH, TRANSFER_BYTES_MAX).in_calls();
        Ok(Arc::new(Self { device }))
    }

    /// Executes a call on the calling thread. `None` if the thread cannot have a channel.
    pub(super) fn run(
        self: &Arc<Self>,
        call: &Call,
        data: &mut Data<'_, '_>,
    ) -> Option<Result<(), RequestError>> {
        // A thread that is exiting has no channels any more.
        let done = CHANNELS.try_with(|channels| {
            let mut channels = channels.borrow_mut();
            let at = self.find(&mut channels)?;
            let result = run(channels[at].own.as_mut().ok()?, call, data);
            let is_over = |error: &RequestError| {
                matches!(
                    error,
                    RequestError::Closed | RequestError::Device(BlockError::Gone)
                )
            };
            if result.as_ref().is_err_and(is_over) {
                // Its ring is broken, or it got no queue after a loss.
                channels[at] = CallerChannel {
                    path: Arc::downgrade(self),
                    own: Err(None),
                    told: channels[at].told,
                };
            }
            Some(result)
        });
        done.ok().flatten()
    }

    /// Returns the result of a Flush of the calling thread, on any of its channels. A channel
    /// shared by threads reports a loss only to the first of them, and a new channel does not
    /// report it at all. `losses` is the number of losses known now.
    pub(super) fn judge(
        &self,
        result: Result<(), RequestError>,
        losses: u32,
    ) -> Result<(), RequestError> {
        if !matches!(
            &result,
            Ok(()) | Err(RequestError::Device(BlockError::CacheLost))
        ) {
            return result;
        }
        let told = CHANNELS.try_with(|channels| {
            let mut channels = channels.borrow_mut();
            let at = self.position(&channels)?;
            Some(std::mem::replace(&mut channels[at].told, losses))
        });
        match told.ok().flatten() {
            Some(told) if told < losses => Err(BlockError::CacheLost.into()),
            Some(_) => Ok(()),
            None => result,
        }
    }

    fn position(&self, channels: &[CallerChannel]) -> Option<usize> {
        let is_ours = |open: &CallerChannel| std::ptr::eq(open.path.as_ptr(), self);
        channels.iter().position(is_ours)
    }

    /// Returns the index of the calling thread's channel; opens one if there is none.
    fn find(self: &Arc<Self>, channels: &mut Vec<CallerChannel>) -> Option<usize> {
        close_deserted(channels);
        let mut told = self.device.cache_losses();
        if let Some(at) = self.position(channels) {
            match channels[at].own {
                Err(refused)
                    if refused.is_none_or(|at| at.elapsed() >= Duration::from(ASK_AGAIN)) =>
                {
                    told = channels.swap_remove(at).told;
                }
                _ => return Some(at),
            }
        }
        if channels.len() >= CALLER_CHANNELS_MAX {
            return None;
        }
        let options = Options {
            // A path allocates its own data memory.
            buffers: vec![BufferClass {
                bytes: 4 * KIB,
                count: 16,
            }],
            sockets: 4,
            file_operations: 16,
        };
        // A path decides itself when to poll.
        let opened = OwnChannel::open(&options, PollPolicy::Never, |driver| {
            self.device.open(driver)
        });
        let own = opened.map_err(|_| Some(Instant::now()));
        channels.push(CallerChannel {
            path: Arc::downgrade(self),
            own,
            told,
        });
        Some(channels.len() - 1)
    }
}

/// Keeps up to [`DEPTH`] pieces of a call in flight, and waits for all.
fn run(
    own: &mut OwnChannel<dyn Channel>,
    call: &Call,
    data: &mut Data<'_, '_>,
) -> Result<(), RequestError> {
    let mut next = 0;
    let mut failed = None;
    loop {
        while failed.is_none() && next < call.pieces {
            let Some(request) = request(own, call, next, data) else {
                break;
            };
            if own.submit(request).is_err() {
                break;
            }
            next += 1;
        }
        own.kick();
        let waits = own.outstanding() > 0 || !own.done.is_empty();
        let turned = if waits {
            own.wait_until(1, Time::NEVER)
        } else if failed.is_some() || next == call.pieces {
            return failed.map_or(Ok(()), |error: BlockError| Err(error.into()));
        } else {
            own.wait_for_room()
        };
        turned.map_err(|_| RequestError::Closed)?;
        while let Some(done) = own.done.pop_front() {
            match (done.result, &done.data) {
                (Ok(()), Some(read)) if call.operation == Operation::Read => {
                    data.take_slice(done.tag * call.step, read);
                }
                (Ok(()), _) => {}
                (Err(error), _) => failed = failed.or(Some(error)),
            }
        }
    }
}

/// Makes the request of a piece; `None` while there is no memory for its data.
fn request(
    own: &mut OwnChannel<dyn Channel>,
    call: &Call,
    piece: usize,
    data: &Data<'_, '_>,
) -> Option<Request> {
    let (at, size) = call.range(piece);
    let (lba, blocks) = call.blocks(piece);
    let data = if call.operation.has_data() {
        let bytes = usize::try_from(size).expect("a piece fits into memory");
        let mut slice = own.memory(bytes)?;
        data.fill(at, &mut slice);
        Some(slice)
    } else {
        None
    };
    Some(Request {
        tag: piece as u64,
        operation: call.operation,
        lba,
        blocks,
        data,
    })
}
