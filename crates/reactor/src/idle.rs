//! When to poll and when to sleep.
//!
//! Waking an idle core costs tens of microseconds, so a core that expects work soon polls a
//! little; a core that shares its processor with the very thread it waits for must not, because
//! that thread cannot run meanwhile. Nobody tells a core which of the two it is. It learns: a poll
//! that was soon rewarded makes the next one more likely, a poll in vain less, one that the
//! scheduler interrupted for somebody else much less, and now and then one is tried again. Pure:
//! it is told the time.

use crate::driver::Wait;
use base::{Nanos, Time};

/// Whether a core polls while it has nothing to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PollPolicy {
    /// Never sleep: lowest latency, a whole processor.
    Always,
    /// Always sleep at once: least CPU, every request pays for a wake-up.
    Never,
    /// Poll while that pays, then sleep.
    #[default]
    Auto,
}

/// How long a poll may last. A response that has to wake its sender's idle core first takes 50 to
/// 100 µs; a shorter poll would never be rewarded, and two sleeping ends would stay asleep.
const POLL_WINDOW: Nanos = Nanos::from_micros(120);

/// Polls in vain that it takes to give up, and the ceiling of what success can save up.
const CONFIDENCE_MAX: u32 = 16;

/// A poll that is rewarded within this time spared a wake-up that would have cost more.
const SOON: Nanos = Nanos::from_micros(30);

/// What one soon rewarded poll is worth in polls in vain.
const REWARD: u32 = 2;

/// After so many polls, the scheduler's count of preemptions is looked at: where somebody else got
/// the processor during most of them, whatever rewarded them would have come sooner to a sleeper.
const POLLS_PER_CHECK: u32 = 16;

/// A core that gave up tries one poll again after this many sleeps that were shorter than a poll
/// would have been: where polling never pays, both ends together lose less than 0.5 % of their
/// requests to such tries, so not even their 99th percentile shows it.
const TRY_AFTER_SLEEPS: u32 = 512;

/// Learns whether to poll.
#[derive(Clone, Debug)]
pub struct IdlePolicy {
    policy: PollPolicy,
    confidence: u32,
    short_sleeps: u32,
    /// Polls since the last check, and what the scheduler's count was then.
    polls: u32,
    preemptions: Option<u64>,
    /// The stretch of idleness that the core is in.
    stretch: Option<Stretch>,
}

#[derive(Clone, Copy, Debug)]
struct Stretch {
    since: Time,
    /// Decided at its beginning.
    polls: bool,
}

impl IdlePolicy {
    /// A policy that knows nothing yet and starts hopeful.
    #[must_use]
    pub const fn new(policy: PollPolicy) -> Self {
        Self {
            policy,
            confidence: CONFIDENCE_MAX,
            short_sleeps: 0,
            polls: 0,
            preemptions: None,
            stretch: None,
        }
    }

    /// Another policy from now on; what was learned is kept.
    pub fn set_policy(&mut self, policy: PollPolicy) {
        self.policy = policy;
    }

    /// How the next turn shall wait, given the service's deadline.
    pub fn decide(&mut self, now: Time, deadline: Time) -> Wait {
        match self.policy {
            _ if deadline <= now => Wait::No,
            PollPolicy::Always => Wait::No,
            PollPolicy::Never => Wait::Until(deadline),
            PollPolicy::Auto => {
                let polls = self.confidence > 0;
                let stretch = self.stretch.get_or_insert(Stretch { since: now, polls });
                let poll = stretch.polls && now.since(stretch.since) < POLL_WINDOW;
                if poll {
                    Wait::No
                } else {
                    Wait::Until(deadline)
                }
            }
        }
    }

    /// What the turn brought that [`decide`](Self::decide) was asked about. `preemptions` counts
    /// how often the scheduler took the processor away; it is asked only now and then.
    pub fn observe(
        &mut self,
        now: Time,
        wait: Wait,
        busy: bool,
        preemptions: impl FnOnce() -> u64,
    ) {
        if !busy {
            return;
        }
        let Some(stretch) = self.stretch.take() else {
            return;
        };
        let length = now.since(stretch.since);
        if stretch.polls {
            self.polled(wait, length);
            self.check(preemptions);
        } else if length < POLL_WINDOW {
            self.short_sleeps += 1;
            if self.short_sleeps >= TRY_AFTER_SLEEPS {
                self.short_sleeps = 0;
                self.confidence = 1;
            }
        }
    }

    fn polled(&mut self, wait: Wait, length: Nanos) {
        if wait != Wait::No {
            self.confidence = self.confidence.saturating_sub(1);
        } else if length <= SOON {
            self.confidence = (self.confidence + REWARD).min(CONFIDENCE_MAX);
        }
        // A reward that came late, from a peer that had to be woken, proves nothing: once both
        // ends poll, it will come soon.
    }

    fn check(&mut self, preemptions: impl FnOnce() -> u64) {
        self.polls += 1;
        let Some(before) = self.preemptions else {
            // What happened to this thread before its first poll says nothing about polling.
            self.preemptions = Some(preemptions());
            return;
        };
        if self.polls < POLLS_PER_CHECK {
            return;
        }
        self.polls = 0;
        let now = preemptions();
        self.preemptions = Some(now);
        if now.saturating_sub(before) >= u64::from(POLLS_PER_CHECK / 2) {
            self.confidence = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;

    /// Plays stretches of idleness that end after `gap` when the core polls, and after `woken`
    /// when it sleeps. Returns how many of the last `count` were polled until they ended.
    fn rewarded(policy: &mut IdlePolicy, gap: u64, woken: u64, count: u32) -> u32 {
        let mut rewarded = 0;
        let mut now = Time(0);
        for _ in 0..count {
            let start = now;
            loop {
                match policy.decide(now, Time::NEVER) {
                    Wait::No => {
                        now = now + Nanos(US);
                        let busy = now.since(start).0 >= gap;
                        policy.observe(now, Wait::No, busy, || 0);
                        if busy {
                            rewarded += 1;
                            break;
                        }
                    }
                    wait @ Wait::Until(_) => {
                        now = now + Nanos(woken);
                        policy.observe(now, wait, true, || 0);
                        break;
                    }
                }
            }
        }
        rewarded
    }

    #[test]
    fn polls_where_work_comes_soon() {
        let mut policy = IdlePolicy::new(PollPolicy::Auto);
        assert_eq!(rewarded(&mut policy, 10 * US, 60 * US, 1_000), 1_000);
    }

    #[test]
    fn gives_up_where_the_peer_needs_this_very_processor_and_rarely_tries_again() {
        let mut policy = IdlePolicy::new(PollPolicy::Auto);
        assert_eq!(rewarded(&mut policy, u64::MAX, 15 * US, 10_000), 0);
        let mut tries = 0;
        for _ in 0..10_000 {
            if policy.decide(Time(0), Time::NEVER) == Wait::No {
                tries += 1;
            }
            policy.observe(Time(15 * US), Wait::Until(Time::NEVER), true, || 0);
        }
        assert!(tries <= 10_000 / 512 + 1, "{tries} polls in vain of 10,000");
    }

    #[test]
    fn finds_out_when_polling_begins_to_pay() {
        let mut policy = IdlePolicy::new(PollPolicy::Auto);
        rewarded(&mut policy, u64::MAX, 60 * US, 1_000);
        rewarded(&mut policy, 20 * US, 60 * US, 600);
        assert_eq!(rewarded(&mut policy, 20 * US, 60 * US, 100), 100);
    }

    #[test]
    fn a_reward_that_came_because_the_peer_got_this_processor_counts_against_polling() {
        let mut policy = IdlePolicy::new(PollPolicy::Auto);
        for i in 0..u64::from(POLLS_PER_CHECK) {
            assert_eq!(policy.decide(Time(0), Time::NEVER), Wait::No);
            policy.observe(Time(20 * US), Wait::No, true, || i);
        }
        assert_eq!(
            policy.decide(Time(0), Time::NEVER),
            Wait::Until(Time::NEVER)
        );
    }

    /// A thread that had worked for somebody else before was taken for one whose polls starve its
    /// peer.
    #[test]
    fn preemptions_before_the_first_poll_do_not_count() {
        let mut policy = IdlePolicy::new(PollPolicy::Auto);
        for _ in 0..u64::from(2 * POLLS_PER_CHECK) {
            assert_eq!(policy.decide(Time(0), Time::NEVER), Wait::No);
            policy.observe(Time(20 * US), Wait::No, true, || 1_000);
        }
        // Where the count cannot be had any more, nothing is concluded, nor does it overflow.
        for _ in 0..u64::from(2 * POLLS_PER_CHECK) {
            assert_eq!(policy.decide(Time(0), Time::NEVER), Wait::No);
            policy.observe(Time(20 * US), Wait::No, true, || 0);
        }
    }

    #[test]
    fn an_occasional_preemption_does_not() {
        let mut policy = IdlePolicy::new(PollPolicy::Auto);
        for i in 0..1_000 {
            assert_eq!(policy.decide(Time(0), Time::NEVER), Wait::No);
            policy.observe(Time(20 * US), Wait::No, true, || i / 8);
        }
    }

    #[test]
    fn two_ends_that_sleep_find_each_other() {
        // The first to try is rewarded late, since its peer still has to be woken; it goes on.
        let mut policy = IdlePolicy::new(PollPolicy::Auto);
        rewarded(&mut policy, u64::MAX, 60 * US, 700);
        assert!(rewarded(&mut policy, 70 * US, 60 * US, 600) > 50);
        assert!(rewarded(&mut policy, 10 * US, 60 * US, 600) > 50);
        assert_eq!(rewarded(&mut policy, 10 * US, 60 * US, 100), 100);
    }

    #[test]
    fn a_core_without_traffic_sleeps_until_its_deadline() {
        let mut policy = IdlePolicy::new(PollPolicy::Auto);
        rewarded(&mut policy, u64::MAX, 1_000_000 * US, 20);
        let deadline = Time(5_000_000_000);
        assert_eq!(policy.decide(Time(0), deadline), Wait::Until(deadline));
        assert_eq!(policy.decide(deadline, deadline), Wait::No);
    }

    #[test]
    fn the_other_policies_do_not_learn() {
        let mut always = IdlePolicy::new(PollPolicy::Always);
        let mut never = IdlePolicy::new(PollPolicy::Never);
        for _ in 0..100 {
            assert_eq!(always.decide(Time(0), Time::NEVER), Wait::No);
            assert_eq!(never.decide(Time(0), Time::NEVER), Wait::Until(Time::NEVER));
            always.observe(Time(9), Wait::No, false, || 0);
            never.observe(Time(9), Wait::Until(Time::NEVER), true, || 0);
        }
    }

    use proptest::prelude::*;

    fn policies() -> impl Strategy<Value = PollPolicy> {
        prop_oneof![
            Just(PollPolicy::Always),
            Just(PollPolicy::Never),
            Just(PollPolicy::Auto)
        ]
    }

    proptest! {
        /// Whatever happens: nobody sleeps beyond a deadline or when it has passed, a stretch of
        /// idleness is polled for a bounded time, and after that the policy sleeps until work.
        #[test]
        fn sleeps_end_at_the_deadline_and_polls_end(
            policy in policies(),
            turns in prop::collection::vec(
                (0u64..200_000, any::<bool>(), prop_oneof![Just(Some(0)), Just(None), (0u64..300_000).prop_map(Some)], 0u64..64), 1..600),
        ) {
            let mut idle = IdlePolicy::new(policy);
            let (mut now, mut preempted) = (Time(1_000_000_000), 0);
            let mut idle_since = None;
            let mut slept = false;
            for (span, busy, deadline, preemptions) in turns {
                let deadline = deadline.map_or(Time::NEVER, |span| now + Nanos(span));
                let wait = idle.decide(now, deadline);
                prop_assert_eq!(wait, idle.clone().decide(now, deadline), "asking changes nothing");
                if deadline > now {
                    idle_since.get_or_insert(now);
                }
                match wait {
                    Wait::Until(until) => {
                        prop_assert_ne!(policy, PollPolicy::Always);
                        prop_assert!(until == deadline && until > now);
                        slept = true;
                    }
                    Wait::No if policy == PollPolicy::Auto && deadline > now => {
                        let since = idle_since.expect("set above");
                        prop_assert!(now.since(since) < POLL_WINDOW, "polls too long");
                        prop_assert!(!slept, "polls again although nothing happened");
                    }
                    Wait::No => prop_assert!(policy == PollPolicy::Always || deadline <= now),
                }
                now = now + Nanos(span);
                preempted += preemptions;
                idle.observe(now, wait, busy, || preempted);
                if busy {
                    (idle_since, slept) = (None, false);
                }
            }
        }
    }
}
