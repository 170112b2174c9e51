//! Requests as futures, for any async runtime.
//!
//! The host's thread executes the requests and wakes the waiting task; no runtime, timer or
//! descriptor is needed. The future owns the memory of an outstanding request, so it may be dropped
//! at any time.

use super::blocking::Namespace;
use super::range;
use super::reply::{ReplyState, ReplyTo};
use super::service::{BlockingRequest, ClientMessage};
use crate::error::RequestError;
use base::units::Lba;
use block::{BlockError, Device, Operation};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A namespace whose requests are futures. Cheap to clone. Created by [`Namespace::asynchronous`].
///
/// Offsets and lengths are in bytes and must be multiples of the block size. A request is sent at
/// the first poll of its future, and continues if the future is dropped later. To cancel requests,
/// use [`Namespace::with_timeout`] or [`Namespace::cancellable`].
///
/// ```no_run
/// # async fn example(namespace: host::Namespace) -> Result<(), host::RequestError> {
/// let disk = namespace.asynchronous();
/// disk.write(0, vec![7; 4096]).await?;
/// disk.flush().await?;
/// let data = disk.read(0, vec![0; 4096]).await?;
/// assert_eq!(data, [7; 4096]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct AsyncNamespace {
    namespace: Namespace,
}

impl Namespace {
    /// The namespace with requests as futures.
    #[must_use]
    pub fn asynchronous(&self) -> AsyncNamespace {
        AsyncNamespace {
            namespace: self.clone(),
        }
    }
}

impl AsyncNamespace {
    /// The same namespace, for blocking calls, sizes and queues.
    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Reads `room.len()` bytes at `offset`; returns the filled `room`.
    pub fn read(&self, offset: u64, room: Vec<u8>) -> Transfer {
        let length = room.len() as u64;
        self.transfer(Operation::Read, offset, length, room)
    }

    /// Writes `data` at `offset`; returns it. With a volatile write cache it is durable only after
    /// [`flush`](Self::flush).
    pub fn write(&self, offset: u64, data: Vec<u8>) -> Transfer {
        let length = data.len() as u64;
        self.transfer(Operation::Write { durable: false }, offset, length, data)
    }

    /// The same with FUA: completes when the data is on stable storage.
    pub fn write_durable(&self, offset: u64, data: Vec<u8>) -> Transfer {
        let length = data.len() as u64;
        self.transfer(Operation::Write { durable: true }, offset, length, data)
    }

    /// Flushes all earlier writes to stable storage. Returns no memory.
    pub fn flush(&self) -> Transfer {
        self.transfer(Operation::Flush, 0, 0, Vec::new())
    }

    /// Makes `length` bytes at `offset` read as zeroes. Returns no memory.
    pub fn write_zeroes(&self, offset: u64, length: u64) -> Transfer {
        let operation = Operation::WriteZeroes {
            deallocate: false,
            durable: false,
        };
        self.transfer(operation, offset, length, Vec::new())
    }

    /// Discards (deallocates) `length` bytes at `offset`. Returns no memory.
    pub fn discard(&self, offset: u64, length: u64) -> Transfer {
        self.transfer(Operation::Deallocate, offset, length, Vec::new())
    }

    fn transfer(&self, operation: Operation, offset: u64, length: u64, data: Vec<u8>) -> Transfer {
        Transfer {
            namespace: self.namespace.clone(),
            operation,
            offset,
            length,
            data,
            state: TransferState::New,
        }
    }
}

/// A request as a future; sent at the first poll. Returns its memory.
///
/// # Errors
/// [`RequestError`], as the blocking call of the same name.
#[derive(Debug)]
#[must_use = "a future does nothing unless polled"]
pub struct Transfer {
    namespace: Namespace,
    operation: Operation,
    offset: u64,
    length: u64,
    data: Vec<u8>,
    state: TransferState,
}

#[derive(Debug)]
enum TransferState {
    New,
    /// Messages that did not fit into the thread's mailbox, and pieces without an answer.
    Running {
        unsent: VecDeque<ClientMessage>,
        left: usize,
        /// Size of each piece but the last, in bytes.
        step: usize,
        shared: Arc<ReplyState>,
        failed: Option<RequestError>,
    },
    Over,
}

impl Future for Transfer {
    type Output = Result<Vec<u8>, RequestError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if matches!(this.state, TransferState::New) {
            match this.start() {
                Ok(state) => this.state = state,
                Err(error) => {
                    this.state = TransferState::Over;
                    return Poll::Ready(Err(error));
                }
            }
        }
        let TransferState::Running {
            unsent,
            left,
            step,
            shared,
            failed,
        } = &mut this.state
        else {
            panic!("a future is not polled after it is done");
        };
        while let Some(message) = unsent.pop_front() {
            match this.namespace.post(message) {
                Ok(None) => {}
                Ok(Some(back)) => {
                    // The mailbox is full. Other tasks run, then this one retries.
                    unsent.push_front(back);
                    cx.waker().wake_by_ref();
                    break;
                }
                // The dropped reply of the message is counted below.
                Err(error) => *failed = Some(error),
            }
        }
        while *left > 0 {
            let arrived = shared.take(cx.waker());
            if arrived.is_empty() {
                return Poll::Pending;
            }
            *left -= arrived.len();
            for answer in arrived {
                match answer.map(|answer| (answer.result, answer)) {
                    Some((Ok(()), answer)) if this.data.is_empty() => this.data = answer.data,
                    Some((Ok(()), answer)) if this.operation == Operation::Read => {
                        let at = answer.piece * *step;
                        this.data[at..at + answer.data.len()].copy_from_slice(&answer.data);
                    }
                    Some((Ok(()), _)) => {}
                    Some((Err(error), _)) => *failed = failed.take().or(Some(error.into())),
                    None => *failed = failed.take().or(Some(RequestError::Closed)),
                }
            }
        }
        let failed = failed.take();
        this.state = TransferState::Over;
        let data = std::mem::take(&mut this.data);
        Poll::Ready(failed.map_or(Ok(data), Err))
    }
}

impl Transfer {
    /// Checks the range, and splits it into pieces.
    fn start(&mut self) -> Result<TransferState, RequestError> {
        let device = self.namespace.device();
        let geometry = device.geometry();
        range::check(geometry, self.offset, self.length)?;
        let most = if self.operation.has_data() {
            range::max_request_bytes(&device)
        } else {
            range::without_data_max(geometry)
        };
        let block = u64::from(geometry.block_bytes);
        let count = match self.length.div_ceil(most) {
            0 if self.operation == Operation::Flush => 1,
            count => count,
        };
        let step = usize::try_from(most).unwrap_or(usize::MAX);
        let shared = Arc::<ReplyState>::default();
        let patience = self.namespace.patience();
        let mut unsent = VecDeque::new();
        for piece in 0..count {
            let at = piece * most;
            let length = most.min(self.length - at);
            let request = BlockingRequest {
                piece: usize::try_from(piece).map_err(|_| BlockError::Malformed)?,
                operation: self.operation,
                lba: Lba((self.offset + at) / block),
                blocks: u32::try_from(length / block).map_err(|_| BlockError::Malformed)?,
                data: self.memory(at, length, count == 1),
                reply: ReplyTo::task(&shared),
                patience: patience.clone(),
            };
            unsent.push_back(self.namespace.message(request));
        }
        Ok(TransferState::Running {
            left: unsent.len(),
            unsent,
            step,
            shared,
            failed: None,
        })
    }

    /// Returns the memory of a piece: the whole buffer if it is the only piece.
    fn memory(&mut self, at: u64, length: u64, only: bool) -> Vec<u8> {
        if !self.operation.has_data() {
            Vec::new()
        } else if only {
            std::mem::take(&mut self.data)
        } else {
            let place = |at: u64| usize::try_from(at).expect("an offset in memory");
            self.data[place(at)..place(at + length)].to_vec()
        }
    }
}
