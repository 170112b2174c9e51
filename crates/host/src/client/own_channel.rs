//! A channel on a driver owned by the calling thread, which sends, receives and waits itself.

use super::readiness::Readiness;
use crate::error::HostError;
use base::Time;
use block::{Channel, Completion, DeviceError, Request, Submit};
use reactor::uring::{Options, UringDriver};
use reactor::{Context, Driver, IdlePolicy, IoSlice, Outcome, PollPolicy, Wait, yield_core};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;

/// A channel, its driver, and its completions.
#[derive(Debug)]
pub(super) struct OwnChannel<C: ?Sized> {
    pub(super) driver: UringDriver,
    channel: Box<C>,
    idle: IdlePolicy,
    pub(super) events: Vec<reactor::Completion>,
    /// Finished requests, oldest first.
    pub(super) done: VecDeque<Completion>,
    /// Number of requests that the channel has not completed.
    outstanding: usize,
    readiness: Option<Readiness>,
    /// An error of the ring outside of a wait, returned by the next wait.
    failure: Option<io::Error>,
}

impl<C: Channel + ?Sized> OwnChannel<C> {
    /// Opens a channel on a new driver of the calling thread.
    ///
    /// # Errors
    /// No io_uring available, or the error of `open`.
    pub(super) fn open(
        options: &Options,
        poll: PollPolicy,
        open: impl FnOnce(&mut UringDriver) -> Result<Box<C>, DeviceError>,
    ) -> Result<Self, HostError> {
        let mut driver = UringDriver::new(options)?;
        Ok(Self {
            channel: open(&mut driver)?,
            driver,
            idle: IdlePolicy::new(poll),
            events: Vec::with_capacity(256),
            done: VecDeque::new(),
            outstanding: 0,
            readiness: None,
            failure: None,
        })
    }

    /// The channel, for queries.
    pub(super) fn channel(&self) -> &C {
        &self.channel
    }

    /// The channel, for changes that need no driver.
    pub(super) fn channel_mut(&mut self) -> &mut C {
        &mut self.channel
    }

    /// Returns the number of requests that the channel has not completed.
    pub(super) fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// Allocates memory for the data of a request of `bytes` bytes.
    pub(super) fn memory(&mut self, bytes: usize) -> Option<IoSlice> {
        self.channel.memory(bytes).or_else(|| {
            let buffer = self.driver.buffers().take(bytes)?;
            Some(IoSlice::from_buffer(buffer, bytes))
        })
    }

    /// Calls `f` with the channel and its context.
    pub(super) fn with<T>(&mut self, f: impl FnOnce(&mut C, &mut Context<'_>) -> T) -> T {
        let mut cx = Context::begin(&mut self.driver);
        f(&mut self.channel, &mut cx)
    }

    /// Submits a request. It is sent at the next kick or wait.
    #[allow(clippy::result_large_err)] // The caller gets its request back, to submit it later.
    pub(super) fn submit(&mut self, request: Request) -> Result<(), Request> {
        self.submit_by(|channel, cx| channel.submit(request, cx))
    }

    /// Submits a request through `submit`.
    #[allow(clippy::result_large_err)] // As above.
    pub(super) fn submit_by(
        &mut self,
        submit: impl FnOnce(&mut C, &mut Context<'_>) -> Submit,
    ) -> Result<(), Request> {
        match self.with(submit) {
            Submit::Queued => self.outstanding += 1,
            Submit::Done(done) => self.done.push_back(done),
            Submit::Busy(request) => return Err(request),
        }
        Ok(())
    }

    /// Sends the submitted requests.
    pub(super) fn kick(&mut self) {
        self.with(Channel::kick);
    }

    /// Waits until at least `min` requests are complete, or all are, or until `end`.
    pub(super) fn wait_until(&mut self, min: usize, end: Time) -> io::Result<()> {
        let (mut first, mut now) = (true, self.driver.now());
        while first || (self.done.len() < min && self.outstanding > 0) {
            // With nothing outstanding there is no reason to sleep.
            let wait = if self.done.len() >= min || self.outstanding == 0 {
                Wait::No
            } else {
                let deadline = self.channel.deadline().min(end);
                self.idle.decide(now, deadline)
            };
            self.turn(wait)?;
            first = false;
            if self.done.len() < min {
                now = yield_core(&mut self.idle, &self.driver, Some(self.driver.now()));
                if now >= end {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Sends the submitted requests, waits as [`wait_until`](Self::wait_until), and returns the
    /// completions.
    pub(super) fn take_until(&mut self, min: usize, end: Time) -> io::Result<Completions<'_>> {
        if let Some(error) = self.failure.take() {
            return Err(error);
        }
        self.kick();
        if let Some(readiness) = &self.readiness {
            readiness.clear();
            self.driver.reset_wake_counter();
        }
        self.wait_until(min, end)?;
        Ok(Completions { queue: self })
    }

    /// Cancels every request with the tag. Returns false if there is none.
    pub(super) fn cancel(&mut self, tag: u64) -> bool {
        let found = self.with(|channel, cx| channel.cancel(tag, cx));
        self.apply();
        self.arm_again();
        found
    }

    /// The descriptor of [`Queue::readiness`](super::Queue::readiness).
    pub(super) fn readiness(&mut self) -> io::Result<BorrowedFd<'_>> {
        if self.readiness.is_none() {
            let readiness = Readiness::new(self.driver.wake_counter())?;
            self.driver.raise_on_completion(readiness.counter())?;
            self.readiness = Some(readiness);
            self.arm()?;
        }
        let readiness = self.readiness.as_ref().expect("made above");
        Ok(readiness.descriptor())
    }

    /// Makes the descriptor readable, if there is one.
    pub(super) fn raise(&self) {
        if let Some(readiness) = &self.readiness {
            readiness.raise();
        }
    }

    /// Prepares the descriptor, if there is one, for the next wait on it. A broken ring makes it
    /// readable, and the next wait reports the error.
    pub(super) fn arm_again(&mut self) {
        if let Err(error) = self.arm() {
            self.failure.get_or_insert(error);
            self.raise();
        }
    }

    /// Prepares the descriptor for a wait on it.
    fn arm(&mut self) -> io::Result<()> {
        if self.readiness.is_none() {
            return Ok(());
        }
        // The submitted requests may have to connect first.
        self.apply();
        while self.done.is_empty() && !self.driver.prepare_sleep(&mut self.events)? {
            self.apply();
        }
        let deadline = self.channel.deadline();
        let readiness = self.readiness.as_ref().expect("asked above");
        if self.done.is_empty() {
            readiness.wake_at(self.driver.now(), deadline)
        } else {
            readiness.raise();
            Ok(())
        }
    }

    /// Waits for the channel's next event or deadline, which may make room.
    pub(super) fn wait_for_room(&mut self) -> io::Result<()> {
        let deadline = self.channel.deadline();
        let wait = self.idle.decide(self.driver.now(), deadline);
        self.turn(wait)
    }

    fn turn(&mut self, wait: Wait) -> io::Result<()> {
        self.driver.reap(wait, &mut self.events)?;
        // The end of a send is not a completion that the program waited for.
        let rewarded = self
            .events
            .iter()
            .any(|event| !matches!(event.outcome, Outcome::Sent { .. }));
        let now = self.apply();
        self.idle.observe(now, wait, rewarded);
        Ok(())
    }

    /// Applies the driver's completions to the channel, and collects the finished requests.
    pub(super) fn apply(&mut self) -> Time {
        let mut cx = Context::begin(&mut self.driver);
        for event in self.events.drain(..) {
            self.channel.complete(event, &mut cx);
        }
        self.channel.tick(&mut cx);
        let now = cx.now;
        while let Some(done) = self.channel.reap() {
            self.outstanding -= 1;
            self.done.push_back(done);
        }
        now
    }

    /// Closes the channel in an orderly way, within `limit`.
    pub(super) fn close(&mut self, limit: base::Nanos) {
        self.with(Channel::close);
        let mut now = self.driver.now();
        let end = now + limit;
        while !self.channel.closed() && now < end {
            // Read before each sleep: a switchboard wakes only threads that are about to sleep.
            let deadline = self.channel.deadline().min(end);
            let wait = self.idle.decide(now, deadline);
            if self.turn(wait).is_err() {
                return;
            }
            now = yield_core(&mut self.idle, &self.driver, Some(self.driver.now()));
        }
    }
}

/// A queue of completions to return.
trait Finished: fmt::Debug {
    fn next(&mut self) -> Option<Completion>;

    /// Number of completions in the queue.
    fn len(&self) -> usize;

    /// Prepares the queue for its next wait, when no further completions are taken now.
    fn rest(&mut self);
}

impl<C: Channel + ?Sized> Finished for OwnChannel<C> {
    fn next(&mut self) -> Option<Completion> {
        self.done.pop_front()
    }

    fn len(&self) -> usize {
        self.done.len()
    }

    fn rest(&mut self) {
        self.arm_again();
    }
}

/// Finished requests, oldest first. Completions that are not taken stay for the next wait of the
/// queue.
#[derive(Debug)]
pub struct Completions<'a> {
    queue: &'a mut dyn Finished,
}

impl Iterator for Completions<'_> {
    type Item = Completion;

    fn next(&mut self) -> Option<Completion> {
        self.queue.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let len = self.queue.len();
        (len, Some(len))
    }
}

impl Drop for Completions<'_> {
    fn drop(&mut self) {
        self.queue.rest();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Nanos;
    use reactor::Wake;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// A channel whose requests other threads execute. They wake a sleeping thread.
    #[derive(Debug)]
    struct Elsewhere(Arc<Progress>);

    #[derive(Debug, Default)]
    struct Progress {
        may_sleep: AtomicBool,
        is_done: AtomicBool,
    }

    impl Channel for Elsewhere {
        fn submit(&mut self, request: Request, _: &mut Context<'_>) -> Submit {
            Submit::Busy(request)
        }

        fn deadline(&self) -> Time {
            self.0.may_sleep.store(true, Ordering::Release);
            Time::NEVER
        }

        fn closed(&self) -> bool {
            self.0.is_done.load(Ordering::Acquire)
        }
    }

    /// It was not woken, and waited for the whole time that a close may take.
    #[test]
    fn a_thread_that_closes_says_that_it_sleeps() {
        let channel = Arc::new(Progress::default());
        let open = |_: &mut UringDriver| Ok(Box::new(Elsewhere(Arc::clone(&channel))));
        let options = Options::default();
        let mut own = OwnChannel::open(&options, PollPolicy::Never, open).unwrap();
        let (waker, other) = (own.driver.waker(), Arc::clone(&channel));
        let other = std::thread::spawn(move || {
            while !other.may_sleep.load(Ordering::Acquire) {
                if other.is_done.load(Ordering::Acquire) {
                    return;
                }
                std::thread::yield_now();
            }
            other.is_done.store(true, Ordering::Release);
            Wake::wake(&*waker);
        });
        own.close(Nanos::from_secs(60));
        let was_woken = channel.is_done.swap(true, Ordering::AcqRel);
        other.join().unwrap();
        assert!(was_woken, "it slept through its end");
    }
}
