//! The loop of a core: poll → apply → maintain → flush.
//!
//! A core owns a driver, a service (the connections of a target, the lanes of a host, a load
//! generator), and a mailbox, which no other thread accesses. Operations that the service submits
//! while it applies and maintains are flushed at the beginning of the next turn's poll.

use crate::driver::{Driver, Wait};
use crate::idle::{IdlePolicy, PollPolicy};
use crate::idle_spinner::IdleSpinner;
use crate::mailbox::{Mailbox, MailboxSender};
use crate::op::{Completion, Op, OpKey, Outcome};
use crate::preemption;
use base::Time;
use std::io;

/// The part of the core that a service can use while it runs.
pub struct Context<'a> {
    /// The start time of this turn.
    pub now: Time,
    /// The driver.
    pub driver: &'a mut dyn Driver,
}

impl<'a> Context<'a> {
    /// Creates the context of a turn that begins now.
    #[inline]
    pub fn begin<D: Driver>(driver: &'a mut D) -> Self {
        Self {
            now: driver.now(),
            driver,
        }
    }

    /// Submits an operation to the driver.
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

    /// Handles a completed operation.
    fn apply(&mut self, completion: Completion, cx: &mut Context<'_>);

    /// Handles a message.
    fn message(&mut self, message: Self::Message, cx: &mut Context<'_>);

    /// Runs once per turn, after everything was applied: starts work that became possible, sends
    /// gathered data, handles deadlines. Must be cheap when nothing happened.
    fn maintain(&mut self, cx: &mut Context<'_>);

    /// Returns true if the last [`maintain`](Self::maintain) found work from a source other than
    /// the driver and the mailbox, such as a queue filled by other threads.
    fn took_work(&self) -> bool {
        false
    }

    /// Returns the latest time of the next [`maintain`](Self::maintain); [`Time::NEVER`] for never,
    /// a past time for "at once".
    fn deadline(&self) -> Time;

    /// Called before the core sleeps until the [`deadline`](Self::deadline), when the policy no
    /// longer polls. Returns false if there is work after all, for example in a queue that signals
    /// new entries only from now on; the core then checks again at once.
    fn may_sleep(&mut self) -> bool {
        true
    }

    /// Returns the current idle policy; `None` for the one that the core was created with.
    fn poll_policy(&self) -> Option<PollPolicy> {
        None
    }

    /// Returns true when the service is done and the loop may end.
    fn finished(&self) -> bool;
}

/// A core: a driver, a service and a mailbox, and the loop over them.
#[derive(Debug)]
pub struct Core<D, S: Service> {
    /// The driver.
    pub driver: D,
    /// The service.
    pub service: S,
    mailbox: Mailbox<S::Message>,
    completions: Vec<Completion>,
    /// Idle policy of the core, unless the service overrides it.
    poll: PollPolicy,
    idle: IdlePolicy,
    idle_spinner: Option<IdleSpinner>,
}

impl<D: Driver, S: Service> Core<D, S> {
    /// Creates a core that runs `service` on `driver` with the idle policy `poll`.
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

    /// Adds an idle spinner, which keeps the core's processor awake for a while whenever the core
    /// goes to sleep.
    #[must_use]
    pub fn with_idle_spinner(mut self, idle_spinner: Option<IdleSpinner>) -> Self {
        self.idle_spinner = idle_spinner;
        self
    }

    /// Creates a sender to the core's mailbox.
    #[must_use]
    pub fn sender(&self) -> MailboxSender<S::Message> {
        self.mailbox.sender()
    }

    /// Runs until the service has finished.
    ///
    /// # Errors The driver failed.
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

    /// Runs one turn of the loop. Returns the time since which the turn was idle; `None` for a busy
    /// turn.
    ///
    /// # Errors The driver failed.
    pub fn turn(&mut self, wait: Wait) -> io::Result<Option<Time>> {
        self.driver.reap(wait, &mut self.completions)?;
        let mut busy = !self.completions.is_empty();
        // A completed send is not work that a thread waited for.
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

/// Yields the processor to other threads if the policy proposes it, after a [turn](Core::turn) that
/// was idle `since` then or busy (`None`), and reports the duration to the policy. Returns the
/// latest time read: the remainder of an idle turn is too short to read the clock again.
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
