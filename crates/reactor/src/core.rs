//! The loop of a core: poll → apply → maintain → flush.
//!
//! A core owns a driver, a service (the connections of a target, the lanes of a host, a load
//! generator), and a mailbox. Nothing else touches them. What the service hands to the driver while
//! it applies and maintains is flushed at the beginning of the next turn's poll.

use crate::driver::{Driver, Wait};
use crate::idle::{IdlePolicy, PollPolicy};
use crate::idle_spinner::IdleSpinner;
use crate::mailbox::{Mailbox, MailboxSender};
use crate::op::{Completion, Op, OpKey, Outcome};
use crate::preemption;
use base::Time;
use std::io;

/// The part of the core that a service may use while it works.
pub struct Context<'a> {
    /// The time at which this turn began.
    pub now: Time,
    /// The world below.
    pub driver: &'a mut dyn Driver,
}

impl<'a> Context<'a> {
    /// The context of a turn that begins now.
    #[inline]
    pub fn begin<D: Driver>(driver: &'a mut D) -> Self {
        Self {
            now: driver.now(),
            driver,
        }
    }

    /// Hands an operation to the driver.
    pub fn submit(&mut self, key: OpKey, op: Op) {
        self.driver.submit(key, op);
    }
}

impl std::fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("now", &self.now)
            .finish_non_exhaustive()
    }
}

/// The work of a core.
pub trait Service {
    /// Messages from other threads.
    type Message: Send;

    /// An operation completed.
    fn apply(&mut self, completion: Completion, cx: &mut Context<'_>);

    /// A message came.
    fn message(&mut self, message: Self::Message, cx: &mut Context<'_>);

    /// Runs once each turn, after everything was applied: start what became possible, send what
    /// was gathered, fire deadlines. Must be cheap when nothing happened.
    fn maintain(&mut self, cx: &mut Context<'_>);

    /// Returns true if the last [`maintain`](Self::maintain) found work that came neither through
    /// the driver nor through the mailbox, such as from a queue that other threads fill.
    fn took_work(&self) -> bool {
        false
    }

    /// Returns the time at which [`maintain`](Self::maintain) must run again at the latest;
    /// [`Time::NEVER`] for never, a time that has passed for "at once".
    fn deadline(&self) -> Time;

    /// The core is about to sleep until the [`deadline`](Self::deadline), and the policy does not
    /// poll any more. Returns false where there is work after all, such as in a queue that tells
    /// of new entries only from now on; then the core looks again at once.
    fn may_sleep(&mut self) -> bool {
        true
    }

    /// Returns the policy for an idle core at present; `None` for the one that the core was made
    /// with.
    fn poll_policy(&self) -> Option<PollPolicy> {
        None
    }

    /// Returns true when the work is over and the loop may end.
    fn finished(&self) -> bool;
}

/// A core: a driver, a service and a mailbox, and the loop over them.
#[derive(Debug)]
pub struct Core<D, S: Service> {
    /// The world below.
    pub driver: D,
    /// The work.
    pub service: S,
    mailbox: Mailbox<S::Message>,
    completions: Vec<Completion>,
    /// Poll policy of the idle core, unless the service says otherwise.
    poll: PollPolicy,
    idle: IdlePolicy,
    idle_spinner: Option<IdleSpinner>,
}

impl<D: Driver, S: Service> Core<D, S> {
    /// A core that will run `service` on `driver`, sleeping as `poll` says.
    pub fn new(driver: D, service: S, poll: PollPolicy) -> Self {
        let mailbox = Mailbox::new(driver.waker());
        Self {
            driver,
            service,
            mailbox,
            completions: Vec::with_capacity(256),
            poll,
            idle: IdlePolicy::new(poll),
            idle_spinner: None,
        }
    }

    /// The same core; `idle_spinner` keeps its processor awake for a while whenever it goes to
    /// sleep.
    #[must_use]
    pub fn with_idle_spinner(mut self, idle_spinner: Option<IdleSpinner>) -> Self {
        self.idle_spinner = idle_spinner;
        self
    }

    /// A sending end of the core's mailbox.
    #[must_use]
    pub fn sender(&self) -> MailboxSender<S::Message> {
        self.mailbox.sender()
    }

    /// Runs until the service has finished.
    ///
    /// # Errors
    /// When the driver is broken.
    pub fn run(&mut self) -> io::Result<()> {
        let mut now = self.driver.now();
        while !self.service.finished() {
            let policy = self.service.poll_policy().unwrap_or(self.poll);
            self.idle.set_policy(policy);
            let deadline = self.service.deadline();
            let mut wait = self.idle.decide(now, deadline);
            if wait != Wait::No && !self.service.may_sleep() {
                wait = Wait::No;
            }
            if let (Wait::Until(_), Some(idle_spinner)) = (wait, &self.idle_spinner) {
                idle_spinner.expect();
            }
            let turn = self.turn(wait)?;
            now = yield_core(&mut self.idle, &self.driver, turn);
        }
        Ok(())
    }

    /// Runs one turn of the loop. Returns the time since which it was idle; `None` for a busy one.
    ///
    /// # Errors
    /// When the driver is broken.
    pub fn turn(&mut self, wait: Wait) -> io::Result<Option<Time>> {
        self.driver.reap(wait, &mut self.completions)?;
        let mut busy = !self.completions.is_empty();
        // A send that has left is no work that a thread waited for.
        let mut rewarded = self
            .completions
            .iter()
            .any(|c| !matches!(c.outcome, Outcome::Sent { .. }));
        let mut cx = Context::begin(&mut self.driver);
        for completion in self.completions.drain(..) {
            self.service.apply(completion, &mut cx);
        }
        while let Some(message) = self.mailbox.pop() {
            busy = true;
            rewarded = true;
            self.service.message(message, &mut cx);
        }
        self.service.maintain(&mut cx);
        let took = self.service.took_work();
        let now = cx.now;
        self.idle.observe(now, wait, rewarded || took);
        Ok((!busy && !took).then_some(now))
    }
}

/// Yields the processor to other threads after a [turn](Core::turn) that was idle `since` then or
/// busy (`None`), if the policy says so, and tells the policy how long that took. Returns the latest
/// time read: what is left of an idle turn is too short to read the clock once more.
pub fn yield_core(idle: &mut IdlePolicy, driver: &impl Driver, since: Option<Time>) -> Time {
    let before = since.unwrap_or_else(|| driver.now());
    if !idle.should_yield(before, since.is_none()) {
        return before;
    }
    std::thread::yield_now();
    let now = driver.now();
    idle.yielded(before, now, preemption::was_preempted);
    now
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::uring::{Options, UringDriver};

    /// Finds work whenever it may sleep; ends after five turns.
    struct Busy {
        turns: u32,
        deadline: Time,
        asked: u32,
    }

    impl Service for Busy {
        type Message = ();

        fn apply(&mut self, _: Completion, _: &mut Context<'_>) {}

        fn message(&mut self, (): (), _: &mut Context<'_>) {}

        fn maintain(&mut self, _: &mut Context<'_>) {
            self.turns += 1;
        }

        fn deadline(&self) -> Time {
            self.deadline
        }

        fn may_sleep(&mut self) -> bool {
            self.asked += 1;
            false
        }

        fn finished(&self) -> bool {
            self.turns == 5
        }
    }

    #[test]
    fn a_core_asks_whether_it_may_sleep_before_it_does_and_never_else() {
        use PollPolicy::{Always, Never};
        let due = Time(1);
        for (poll, deadline, asked) in [
            (Always, Time::NEVER, 0),
            (Never, due, 0),
            (Never, Time::NEVER, 5),
        ] {
            let driver = UringDriver::new(&Options::default()).expect("a ring");
            let service = Busy {
                turns: 0,
                deadline,
                asked: 0,
            };
            let mut core = Core::new(driver, service, poll);
            core.run().expect("the ring works");
            assert_eq!(core.service.asked, asked, "{poll:?} {deadline:?}");
        }
    }
}
