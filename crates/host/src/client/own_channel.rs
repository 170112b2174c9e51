//! A channel on a driver of the calling thread's own: the thread sends, takes answers and waits by
//! itself.

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

/// A channel, its driver, and what it has finished.
#[derive(Debug)]
pub(super) struct OwnChannel<C: ?Sized> {
    pub(super) driver: UringDriver,
    channel: Box<C>,
    idle: IdlePolicy,
    pub(super) events: Vec<reactor::Completion>,
    /// Finished requests, oldest first.
    pub(super) done: VecDeque<Completion>,
    /// Requests that the channel has not finished.
    outstanding: usize,
    readiness: Option<Readiness>,
    /// An error of the ring outside of a wait, for the next one.
    failure: Option<io::Error>,
}

impl<C: Channel + ?Sized> OwnChannel<C> {
    /// Opens a channel on a new driver of the calling thread.
    ///
    /// # Errors
    /// When the machine refuses another io_uring, and what `open` answers.
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

    /// The channel, to ask it.
    pub(super) fn channel(&self) -> &C {
        &self.channel
    }

    /// The channel, for what is neither asked nor done with its driver.
    pub(super) fn channel_mut(&mut self) -> &mut C {
        &mut self.channel
    }

    /// Requests that the channel has not finished.
    pub(super) fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// Memory for the data of a request.
    pub(super) fn memory(&mut self, bytes: usize) -> Option<IoSlice> {
        self.channel.memory(bytes).or_else(|| {
            let buffer = self.driver.buffers().take(bytes)?;
            Some(IoSlice::from_buffer(buffer, bytes))
        })
    }

    /// Does something with the channel.
    pub(super) fn with<T>(&mut self, f: impl FnOnce(&mut C, &mut Context<'_>) -> T) -> T {
        let mut cx = Context::begin(&mut self.driver);
        f(&mut self.channel, &mut cx)
    }

    /// Submits a request. It leaves at the next kick or wait.
    #[allow(clippy::result_large_err)] // The caller gets its request back, to submit it later.
    pub(super) fn submit(&mut self, request: Request) -> Result<(), Request> {
        self.submit_by(|channel, cx| channel.submit(request, cx))
    }

    /// Submits a request by `submit`.
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

    /// Sends off what was submitted.
    pub(super) fn kick(&mut self) {
        self.with(Channel::kick);
    }

    /// Waits until at least `min` requests are done, or all are, or until `end`.
    pub(super) fn wait_until(&mut self, min: usize, end: Time) -> io::Result<()> {
        let (mut first, mut now) = (true, self.driver.now());
        while first || (self.done.len() < min && self.outstanding > 0) {
            // With nothing outstanding there is nothing to sleep for.
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

    /// Sends off what was submitted, and waits as [`wait_until`](Self::wait_until) for what is handed
    /// out.
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

    /// Gives up every request with the tag. Returns false if none is under way.
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

    /// Gets the descriptor, if there is one, ready for the next wait on it. A broken ring makes it
    /// readable, and is reported by the next wait.
    pub(super) fn arm_again(&mut self) {
        if let Err(error) = self.arm() {
            self.failure.get_or_insert(error);
            self.raise();
        }
    }

    /// Gets the descriptor ready for a wait on it.
    fn arm(&mut self) -> io::Result<()> {
        if self.readiness.is_none() {
            return Ok(());
        }
        // What was submitted may have to connect first.
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

    /// Lets the channel do what it has to, although none of its requests is done soon.
    pub(super) fn wait_for_room(&mut self) -> io::Result<()> {
        let deadline = self.channel.deadline();
        let wait = self.idle.decide(self.driver.now(), deadline);
        self.turn(wait)
    }

    fn turn(&mut self, wait: Wait) -> io::Result<()> {
        self.driver.reap(wait, &mut self.events)?;
        // The end of a send is no work that the program waited for.
        let rewarded = self
            .events
            .iter()
            .any(|event| !matches!(event.outcome, Outcome::Sent { .. }));
        let now = self.apply();
        self.idle.observe(now, wait, rewarded);
        Ok(())
    }

    /// Hands the channel what the driver brought, and takes what is done.
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

    /// Closes the channel in order, for `limit` at the longest.
    pub(super) fn close(&mut self, limit: base::Nanos) {
        self.with(Channel::close);
        let mut now = self.driver.now();
        let end = now + limit;
        while !self.channel.closed() && now < end {
            // Asked before each sleep: a switchboard wakes only threads that are about to sleep.
            let deadline = self.channel.deadline().min(end);
            let wait = self.idle.decide(now, deadline);
            if self.turn(wait).is_err() {
                return;
            }
            now = yield_core(&mut self.idle, &self.driver, Some(self.driver.now()));
        }
    }
}

/// A queue that hands out completions.
trait Finished: fmt::Debug {
    fn next(&mut self) -> Option<Completion>;

    /// Completions that are there.
    fn len(&self) -> usize;

    /// No more are taken at present.
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

/// Finished requests, oldest first. What is not taken stays for the next wait of the queue.
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

    /// A channel with requests that other threads carry out. They wake a thread that sleeps.
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

    /// It was not woken, and waited for as long as a close may take.
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
