//! Makes requests fail, hang, tear or return wrong data by rules, with the same faults for the same
//! seed.
//!
//! The rules are checked in order; the first that matches and strikes decides. A rule counts its
//! matching requests over all cores, and whether it strikes the n-th of them depends only on the
//! seed, the rule and n. So one stream of requests always gets the same faults; if several cores
//! share the device, their order decides which of them gets one.

use super::below::{Ended, Layer, LayerDevice};
use crate::delay_queue::DelayQueue;
use crate::device::{Device, DeviceError};
use crate::limits::{FAULT_RULES_MAX, LAYER_QUEUE_DEPTH};
use crate::request::{BlockError, Completion, Operation, Request};
use base::units::Lba;
use base::{Nanos, Prng, Time};
use reactor::{Driver, IoSlice, Wake};
use serde::Serialize;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The operations that a rule applies to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultOperation {
    /// All.
    #[default]
    Any,
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Flushes, whatever the rule's range.
    Flush,
    /// Write Zeroes.
    WriteZeroes,
    /// Deallocations.
    Deallocate,
    /// Compares.
    Compare,
    /// Verifications.
    Verify,
}

impl FaultOperation {
    /// All of them with their names in a configuration.
    pub const NAMES: &'static [(&'static str, Self)] = &[
        ("any", Self::Any),
        ("read", Self::Read),
        ("write", Self::Write),
        ("flush", Self::Flush),
        ("write_zeroes", Self::WriteZeroes),
        ("deallocate", Self::Deallocate),
        ("compare", Self::Compare),
        ("verify", Self::Verify),
    ];

    const fn matches(self, operation: Operation) -> bool {
        match self {
            Self::Any => true,
            Self::Read => matches!(operation, Operation::Read),
            Self::Write => matches!(operation, Operation::Write { .. }),
            Self::Flush => matches!(operation, Operation::Flush),
            Self::WriteZeroes => matches!(operation, Operation::WriteZeroes { .. }),
            Self::Deallocate => matches!(operation, Operation::Deallocate),
            Self::Compare => matches!(operation, Operation::Compare),
            Self::Verify => matches!(operation, Operation::Verify),
        }
    }
}

/// The effect on a struck request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultEffect {
    /// The request fails and never reaches the device.
    Error(BlockError),
    /// The request is executed, but its completion is held back for this time.
    Delay(Nanos),
    /// The request is executed, but its completion is held back until [`Fault::release`], or until
    /// the channel closes, when it ends as aborted.
    Hang,
    /// Only the first blocks of the range are changed, and the request fails with
    /// [`BlockError::WriteFailure`]. A request that changes nothing fails with
    /// [`BlockError::ReadFailure`].
    Torn {
        /// Number of blocks changed; of a shorter range, all but the last block.
        blocks: u32,
    },
    /// One bit of the read data is flipped, and success is reported. No effect on requests that
    /// return no data.
    Corrupt,
}

/// A rule: the struck requests, and the effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultRule {
    /// The operations that match.
    pub operation: FaultOperation,
    /// The first block of the range that a request must touch.
    pub first: Lba,
    /// The length of that range in blocks; `None`: to the device's end.
    pub blocks: Option<u64>,
    /// Number of matching requests that pass before the rule begins.
    pub skip: u64,
    /// Inverse of the share of matching requests that are struck, at random; 1 strikes each. At
    /// least 1.
    pub one_in: u64,
    /// Largest number of strikes; `None`: unlimited.
    pub times: Option<u64>,
    /// The effect on a struck request.
    pub effect: FaultEffect,
}

impl FaultRule {
    /// A rule that strikes every request.
    #[must_use]
    pub const fn new(effect: FaultEffect) -> Self {
        Self {
            operation: FaultOperation::Any,
            first: Lba(0),
            blocks: None,
            skip: 0,
            one_in: 1,
            times: None,
            effect,
        }
    }

    fn matches(&self, request: &Request) -> bool {
        if !self.operation.matches(request.operation) {
            return false;
        }
        if request.operation == Operation::Flush {
            return true;
        }
        let (first, end) = (
            request.lba.0,
            request.lba.0.saturating_add(request.blocks.into()),
        );
        let rule_end = self
            .blocks
            .map_or(u64::MAX, |blocks| self.first.0.saturating_add(blocks));
        first < rule_end && end > self.first.0
    }
}

/// The rules of a fault layer, and its seed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultOptions {
    /// The seed of every random choice.
    pub seed: u64,
    /// The rules, in the order in which they are checked.
    pub rules: Vec<FaultRule>,
}

#[derive(Debug)]
struct Rule {
    rule: FaultRule,
    matched: AtomicU64,
    struck: AtomicU64,
}

/// State shared by the channels of all cores.
#[derive(Debug)]
struct SharedFaults {
    seed: u64,
    rules: Vec<Rule>,
    /// Number of releases of hanging completions.
    releases: AtomicU64,
    /// Wakers of the cores, one for each channel.
    wakers: Mutex<Vec<Arc<dyn Wake>>>,
}

/// A rule that struck a request.
#[derive(Clone, Copy, Debug)]
struct Strike {
    /// Index of the rule.
    rule: usize,
    /// Number of requests that had matched the rule before.
    number: u64,
    effect: FaultEffect,
}

impl SharedFaults {
    /// Returns the rule that strikes a request, if any.
    fn strike(&self, request: &Request) -> Option<Strike> {
        for (index, rule) in self.rules.iter().enumerate() {
            if !rule.rule.matches(request) {
                continue;
            }
            let number = rule.matched.fetch_add(1, Ordering::Relaxed);
            if number < rule.rule.skip || !self.draws(index, number, rule.rule.one_in) {
                continue;
            }
            let times = rule.rule.times.unwrap_or(u64::MAX);
            let count = |struck: u64| (struck < times).then_some(struck.saturating_add(1));
            if rule
                .struck
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, count)
                .is_ok()
            {
                let effect = rule.rule.effect;
                return Some(Strike {
                    rule: index,
                    number,
                    effect,
                });
            }
        }
        None
    }

    /// Reverts the counts of [`strike`](Self::strike), because the request was not passed down.
    fn undo(&self, request: &Request, struck: Option<usize>) {
        let asked = struck.map_or(self.rules.len(), |index| index + 1);
        for rule in self.rules[..asked]
            .iter()
            .filter(|rule| rule.rule.matches(request))
        {
            rule.matched.fetch_sub(1, Ordering::Relaxed);
        }
        if let Some(index) = struck {
            self.rules[index].struck.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn draws(&self, rule: usize, number: u64, one_in: u64) -> bool {
        one_in == 1 || self.random(rule, number).below(one_in) == 0
    }

    fn random(&self, rule: usize, number: u64) -> Prng {
        let stream = Prng::from_seed(self.seed ^ rule as u64).next_u64();
        Prng::from_seed(stream.wrapping_add(number))
    }

    fn wakers(&self) -> MutexGuard<'_, Vec<Arc<dyn Wake>>> {
        self.wakers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A device with faults.
#[derive(Debug)]
pub struct Fault {
    inner: Arc<dyn Device>,
    shared: Arc<SharedFaults>,
}

impl Fault {
    /// Adds the faults of `options` to `inner`.
    ///
    /// # Errors
    /// [`DeviceError::Invalid`] for too many rules, or a rule with `one_in` of 0.
    pub fn new(inner: Arc<dyn Device>, options: &FaultOptions) -> Result<Self, DeviceError> {
        if options.rules.len() > FAULT_RULES_MAX {
            let count = options.rules.len();
            return Err(DeviceError::Invalid(format!(
                "{count} fault rules exceed the limit of {FAULT_RULES_MAX} per device; remove some"
            )));
        }
        if let Some(index) = options.rules.iter().position(|rule| rule.one_in == 0) {
            return Err(DeviceError::Invalid(format!(
                "fault rule {index} has a rate of one in 0 requests; use 1 for every request"
            )));
        }
        let rules = options.rules.iter().map(|&rule| Rule {
            rule,
            matched: AtomicU64::new(0),
            struck: AtomicU64::new(0),
        });
        let shared = SharedFaults {
            seed: options.seed,
            rules: rules.collect(),
            releases: AtomicU64::new(0),
            wakers: Mutex::default(),
        };
        Ok(Self {
            inner,
            shared: Arc::new(shared),
        })
    }

    /// Releases all hanging completions. May be called on any thread.
    pub fn release(&self) {
        self.shared.releases.fetch_add(1, Ordering::Release);
        self.shared.wakers().iter().for_each(|waker| waker.wake());
    }

    /// Returns the number of requests that each rule struck.
    #[must_use]
    pub fn strikes(&self) -> Vec<u64> {
        let rules = self.shared.rules.iter();
        rules
            .map(|rule| rule.struck.load(Ordering::Relaxed))
            .collect()
    }
}

impl LayerDevice for Fault {
    fn inner(&self) -> &dyn Device {
        &*self.inner
    }

    type Layer = FaultLayer;

    fn layer(&self, driver: &mut dyn Driver) -> FaultLayer {
        let waker = driver.waker();
        self.shared.wakers().push(Arc::clone(&waker));
        FaultLayer {
            shared: Arc::clone(&self.shared),
            waker,
            block_bytes: self.geometry().block_bytes,
            hanging: VecDeque::with_capacity(LAYER_QUEUE_DEPTH),
            releases: self.shared.releases.load(Ordering::Acquire),
            closing: false,
        }
    }

    /// Applies the faults of a Write Zeroes request; a hanging one waits for the
    /// [release](Fault::release).
    fn erase(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        let block = u64::from(self.geometry().block_bytes);
        let first = offset / block;
        let blocks = offset.saturating_add(len).div_ceil(block) - first;
        let request = Request {
            tag: 0,
            operation: Operation::WriteZeroes {
                deallocate: true,
                durable: true,
            },
            lba: Lba(first),
            blocks: u32::try_from(blocks).unwrap_or(u32::MAX),
            data: None,
        };
        match self.shared.strike(&request).map(|strike| strike.effect) {
            None | Some(FaultEffect::Corrupt) => {}
            Some(FaultEffect::Delay(delay)) => std::thread::sleep(delay.into()),
            Some(FaultEffect::Hang) => {
                let before = self.shared.releases.load(Ordering::Acquire);
                while self.shared.releases.load(Ordering::Acquire) == before {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            Some(FaultEffect::Error(_) | FaultEffect::Torn { .. }) => {
                return Err(DeviceError::Io {
                    what: "cannot erase a part of a device with injected faults".to_owned(),
                    source: std::io::ErrorKind::Other.into(),
                    remedy: "remove the fault",
                });
            }
        }
        self.inner.erase(offset, len)
    }
}

/// The layer's record of a request in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Note {
    strike: Option<Strike>,
    /// Random choice of the bit to flip, if any.
    random: u64,
    operation: Operation,
    /// Number of blocks of the request, and length of its data, before it was torn.
    blocks: u32,
    data_len: usize,
}

/// The state of the layer in one core's channel.
#[derive(Debug)]
pub(super) struct FaultLayer {
    shared: Arc<SharedFaults>,
    waker: Arc<dyn Wake>,
    block_bytes: u32,
    hanging: VecDeque<Completion>,
    /// Number of releases seen.
    releases: u64,
    closing: bool,
}

impl FaultLayer {
    /// Shortens a request that is to be torn. Returns the error of a request that is not to be
    /// executed.
    fn prepare(
        &self,
        request: &mut Request,
        effect: Option<FaultEffect>,
    ) -> Result<(), BlockError> {
        match effect {
            Some(FaultEffect::Error(error)) => Err(error),
            Some(FaultEffect::Torn { blocks }) => {
                if !request.operation.is_write() {
                    return Err(BlockError::ReadFailure);
                }
                let blocks = blocks.min(request.blocks.saturating_sub(1));
                let bytes = u64::from(blocks) * u64::from(self.block_bytes);
                let len = request.data.as_ref().map_or(0, IoSlice::len);
                let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).min(len);
                if blocks == 0 {
                    return Err(BlockError::WriteFailure);
                }
                request.blocks = blocks;
                request.data = request.data.take().map(|data| with_len(data, bytes));
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// Returns the slice with another length.
fn with_len(slice: IoSlice, len: usize) -> IoSlice {
    let offset = slice.offset();
    IoSlice::new(slice.into_memory(), offset, len)
}

fn flip_bit(data: &mut IoSlice, random: u64) {
    let at = Prng::from_seed(random).below(data.len() as u64);
    let at = usize::try_from(at).expect("below a length");
    let mut byte = [0];
    data.copy_out(at, &mut byte);
    data.copy_in(at, &[byte[0] ^ (1 << (random % 8))]);
}

impl Drop for FaultLayer {
    fn drop(&mut self) {
        let mut wakers = self.shared.wakers();
        let own = |other: &Arc<dyn Wake>| Arc::ptr_eq(other, &self.waker);
        if let Some(at) = wakers.iter().position(own) {
            wakers.swap_remove(at);
        }
    }
}

impl Layer for FaultLayer {
    type Note = Note;

    fn held(&self) -> usize {
        self.hanging.len()
    }

    fn begin(&mut self, request: &mut Request) -> Result<Note, BlockError> {
        if self.closing {
            return Err(BlockError::Aborted);
        }
        let strike = self.shared.strike(request);
        let blocks = request.blocks;
        let data_len = request.data.as_ref().map_or(0, IoSlice::len);
        self.prepare(request, strike.map(|strike| strike.effect))?;
        let random = strike.map_or(0, |strike| {
            let mut random = self.shared.random(strike.rule, strike.number);
            // The first number decided whether the rule struck.
            random.next_u64();
            random.next_u64()
        });
        Ok(Note {
            strike,
            random,
            operation: request.operation,
            blocks,
            data_len,
        })
    }

    fn undo(&mut self, note: Note, request: &mut Request) {
        request.blocks = note.blocks;
        let data = request.data.take();
        request.data = data.map(|data| with_len(data, note.data_len));
        self.shared
            .undo(request, note.strike.map(|strike| strike.rule));
    }

    fn end(&mut self, note: Note, mut completion: Completion, now: Time) -> Ended {
        match note.strike.map(|strike| strike.effect) {
            None | Some(FaultEffect::Error(_)) => {}
            Some(FaultEffect::Torn { .. }) => {
                completion.data = completion.data.map(|data| with_len(data, note.data_len));
                completion.result = completion.result.and(Err(BlockError::WriteFailure));
            }
            Some(FaultEffect::Corrupt) => {
                if let (Operation::Read, Ok(()), Some(data)) =
                    (note.operation, completion.result, &mut completion.data)
                {
                    flip_bit(data, note.random);
                }
            }
            Some(FaultEffect::Delay(_)) if self.closing => {}
            Some(FaultEffect::Delay(delay)) => return Ended::At(now + delay, completion),
            Some(FaultEffect::Hang) if self.closing => {
                completion.result = Err(BlockError::Aborted);
            }
            Some(FaultEffect::Hang) => {
                self.hanging.push_back(completion);
                return Ended::Held;
            }
        }
        Ended::Now(completion)
    }

    fn release(&mut self, out: &mut DelayQueue) {
        let releases = self.shared.releases.load(Ordering::Acquire);
        let released = std::mem::replace(&mut self.releases, releases) != releases;
        if !released && !self.closing {
            return;
        }
        for mut completion in self.hanging.drain(..) {
            if !released {
                completion.result = Err(BlockError::Aborted);
            }
            out.pass(completion);
        }
    }

    fn close(&mut self) {
        self.closing = true;
    }
}
