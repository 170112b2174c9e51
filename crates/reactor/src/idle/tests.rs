//! Simulated exchanges: on two processors and on one, alongside other threads, and random ones.

use super::*;

const US: u64 = 1_000;

/// Runs stretches of idleness that end after `gap` if the core polls, and after `woken` if it
/// sleeps. Returns how many of the last `count` were polled until they ended.
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
                    policy.observe(now, Wait::No, busy);
                    if policy.should_yield(now, busy) {
                        policy.yielded(now, now, || false);
                    }
                    if busy {
                        rewarded += 1;
                        break;
                    }
                }
                wait @ Wait::Until(_) => {
                    now = now + Nanos(woken);
                    policy.observe(now, wait, true);
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
        policy.observe(Time(15 * US), Wait::Until(Time::NEVER), true);
    }
    assert!(tries <= 10_000 / 512 + 1, "{tries} polls in vain of 10,000");
}

#[test]
fn finds_out_when_polling_begins_to_pay() {
    // An exchange of two awake cores, and one with 5,000 requests per second, where two wake-ups
    // take longer than the interval between requests.
    for (gap, woken) in [(20 * US, 60 * US), (180 * US, 400 * US)] {
        let mut policy = IdlePolicy::new(PollPolicy::Auto);
        rewarded(&mut policy, u64::MAX, woken, 1_000);
        rewarded(&mut policy, gap, woken, 600);
        assert_eq!(rewarded(&mut policy, gap, woken, 100), 100, "{gap}");
    }
}

#[test]
fn an_idle_core_gives_way_only_in_the_middle_of_a_poll() {
    let mut policy = IdlePolicy::new(PollPolicy::Auto);
    assert!(!policy.should_yield(Time(0), false), "it has not begun");
    assert_eq!(policy.decide(Time(0), Time(0)), Wait::No);
    assert!(!policy.should_yield(Time(0), false), "it was due");
    assert_eq!(policy.decide(Time(0), Time::NEVER), Wait::No);
    policy.observe(Time(US), Wait::No, false);
    assert!(policy.should_yield(Time(US), false));
    policy.observe(Time(2 * US), Wait::No, true);
    assert!(!policy.should_yield(Time(2 * US), false), "it was rewarded");
    for policy in [PollPolicy::Always, PollPolicy::Never] {
        let mut policy = IdlePolicy::new(policy);
        policy.decide(Time(0), Time::NEVER);
        assert!(!policy.should_yield(Time(US), false));
        assert!(!policy.should_yield(Time(US), true));
    }
}

#[test]
fn a_busy_core_gives_way_now_and_then_and_less_to_who_keeps_the_processor() {
    let mut policy = IdlePolicy::new(PollPolicy::Auto);
    let mut now = Time(0);
    let mut ways = |kept: u64, until: u64| {
        let mut ways = 0;
        while now < Time(until) {
            now = now + Nanos(5 * US);
            policy.observe(now, Wait::No, true);
            if policy.should_yield(now, true) {
                ways += 1;
                let since = now;
                now = now + Nanos(kept);
                policy.yielded(since, now, || true);
            }
        }
        ways
    };
    // 50 µs of work, then 50 µs for the other threads.
    assert_eq!(ways(50 * US, 100_000 * US), 1_000);
    // 50 ms of work, then 3 ms for the thread that keeps the processor.
    assert!(ways(3_000 * US, 1_000_000 * US) <= 18);
}

/// 5,000 requests per second, where a wake-up costs as much as the interval between requests.
#[test]
fn polls_where_work_comes_within_two_wake_ups() {
    let mut policy = IdlePolicy::new(PollPolicy::Auto);
    assert_eq!(rewarded(&mut policy, 180 * US, 400 * US, 1_000), 1_000);
}

#[test]
fn a_slow_exchange_is_no_reason_to_poll() {
    let mut policy = IdlePolicy::new(PollPolicy::Auto);
    assert_eq!(rewarded(&mut policy, 400 * US, 450 * US, 10_000), 0);
    let mut polled = 0;
    for _ in 0..10_000 {
        let wait = policy.decide(Time(0), Time::NEVER);
        polled += u32::from(wait == Wait::No);
        let wait = policy.decide(Time(300 * US), Time::NEVER);
        policy.observe(Time(400 * US), wait, true);
    }
    assert!(polled <= 10_000 / 512 + 1, "{polled}");
}

/// The other end shares the processor, and runs only after yields for `after`. Returns how many of
/// `count` stretches were polled.
fn on_one_processor(policy: &mut IdlePolicy, after: u64, count: u32) -> u32 {
    let mut polled = 0;
    for _ in 0..count {
        let wait = policy.decide(Time(0), Time::NEVER);
        if wait == Wait::No {
            polled += 1;
            policy.observe(Time(US), wait, false);
            policy.yielded(Time(US), Time(US + 500), || false);
            assert_eq!(policy.decide(Time(after), Time::NEVER), Wait::No);
            policy.observe(Time(after), Wait::No, false);
            policy.yielded(Time(after), Time(after + 10 * US), || true);
        }
        policy.observe(Time(after + 10 * US), wait, true);
    }
    polled
}

#[test]
fn gives_up_where_giving_way_does_not_let_the_other_end_run() {
    let mut policy = IdlePolicy::new(PollPolicy::Auto);
    assert!(on_one_processor(&mut policy, 190 * US, 1_000) <= CONFIDENCE_MAX + 2);
    // A thread of lower priority gets the processor only after about 50 µs of yields.
    let mut policy = IdlePolicy::new(PollPolicy::Auto);
    assert!(on_one_processor(&mut policy, 40 * US, 1_000) <= CONFIDENCE_MAX + 2);
    let mut policy = IdlePolicy::new(PollPolicy::Auto);
    assert_eq!(on_one_processor(&mut policy, 2 * US, 1_000), 1_000);
}

#[test]
fn what_a_sleeper_would_have_found_as_well_rewards_no_poll() {
    let mut policy = IdlePolicy::new(PollPolicy::Auto);
    // Two unrewarded polls for each first check that finds something.
    let mut polled = 0;
    for _ in 0..100 {
        for _ in 0..2 {
            polled += u32::from(policy.decide(Time(0), Time::NEVER) == Wait::No);
            let wait = policy.decide(Time(0) + IdlePolicy::POLL_WINDOW, Time::NEVER);
            policy.observe(Time(900 * US), wait, true);
        }
        let wait = policy.decide(Time(0), Time::NEVER);
        policy.observe(Time(US), wait, true);
    }
    assert!(polled <= CONFIDENCE_MAX, "{polled}");
}

/// Polls `count` times; each time another thread has the processor for `kept` before the reward.
/// Returns how many stretches were polled.
fn beside(policy: &mut IdlePolicy, kept: u64, count: u64) -> u64 {
    let mut polled = 0;
    for _ in 0..count {
        let wait = policy.decide(Time(0), Time::NEVER);
        if wait == Wait::No {
            polled += 1;
            policy.observe(Time(US), wait, false);
            assert!(policy.should_yield(Time(US), false));
            policy.yielded(Time(US), Time(US + kept), || true);
        }
        policy.observe(Time(US + kept), wait, true);
    }
    polled
}

#[test]
fn goes_on_where_others_need_the_processor_for_moments() {
    let mut policy = IdlePolicy::new(PollPolicy::Auto);
    assert_eq!(beside(&mut policy, 20 * US, 1_000), 1_000);
}

#[test]
fn gives_up_where_somebody_keeps_the_processor() {
    let mut policy = IdlePolicy::new(PollPolicy::Auto);
    assert!(beside(&mut policy, 3_000 * US, 1_000) <= 4);
    // An occasional interruption does not matter.
    let mut policy = IdlePolicy::new(PollPolicy::Auto);
    for _ in 0..1_000 {
        assert_eq!(beside(&mut policy, 3_000 * US, 1), 1);
        assert_eq!(rewarded(&mut policy, 20 * US, 60 * US, 9), 9);
    }
}

#[test]
fn spare_time_is_polled_until_another_thread_wants_the_processor() {
    let mut policy = IdlePolicy::new(PollPolicy::Spare);
    assert_eq!(rewarded(&mut policy, 10 * US, 60 * US, 1_000), 1_000);
    // An interrupt that takes the processor is not a thread.
    assert_eq!(policy.decide(Time(0), Time::NEVER), Wait::No);
    policy.observe(Time(US), Wait::No, false);
    policy.yielded(Time(US), Time(9 * US), || false);
    assert_eq!(policy.decide(Time(9 * US), Time::NEVER), Wait::No);
    policy.yielded(Time(9 * US), Time(14 * US), || true);
    let asleep = Wait::Until(Time::NEVER);
    assert_eq!(policy.decide(Time(14 * US), Time::NEVER), asleep);
    policy.observe(Time(40 * US), asleep, true);
    assert!(beside(&mut policy, 5 * US, 1_000) <= CONFIDENCE_MAX.into());
    // It tries again occasionally.
    rewarded(&mut policy, 10 * US, 60 * US, 600);
    assert_eq!(rewarded(&mut policy, 10 * US, 60 * US, 100), 100);
}

#[test]
fn a_busy_core_with_spare_time_alone_does_not_yield() {
    let policy = IdlePolicy::new(PollPolicy::Spare);
    assert!(!policy.should_yield(Time(1_000 * US), true));
}

#[test]
fn a_processor_that_the_hypervisor_took_teaches_nothing() {
    let mut policy = IdlePolicy::new(PollPolicy::Auto);
    for _ in 0..1_000 {
        assert_eq!(policy.decide(Time(0), Time::NEVER), Wait::No);
        policy.observe(Time(US), Wait::No, false);
        policy.yielded(Time(US), Time(5_000 * US), || false);
        policy.observe(Time(5_001 * US), Wait::No, true);
    }
    assert!(
        policy.should_yield(Time(5_051 * US), true),
        "it need not stay"
    );
}

#[test]
fn two_ends_that_sleep_find_each_other() {
    // The first end to try is rewarded late, because its peer must still be woken; it continues.
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

/// An open-loop thread must not sleep through its own requests: the poll that began with the
/// previous completion has long ended.
#[test]
fn what_follows_a_deadline_is_polled_for_anew() {
    let mut policy = IdlePolicy::new(PollPolicy::Auto);
    for request in 0..1_000 {
        let (begins, next) = (Time(request * 400 * US), Time((request + 1) * 400 * US));
        assert_eq!(policy.decide(begins, begins), Wait::No);
        assert_eq!(policy.decide(begins, next), Wait::No, "request {request}");
        let answered = begins + Nanos(15 * US);
        policy.yielded(begins, begins, || false);
        policy.observe(answered, Wait::No, true);
        assert_eq!(policy.decide(answered, next), Wait::No);
        let late = answered + IdlePolicy::POLL_WINDOW;
        assert_eq!(policy.decide(late, next), Wait::Until(next));
    }
}

#[test]
fn deadlines_alone_are_no_reason_to_poll() {
    let mut policy = IdlePolicy::new(PollPolicy::Auto);
    let mut polled = 0;
    for tick in 0..1_000 {
        let (now, next) = (Time(tick * 1_000 * US), Time((tick + 1) * 1_000 * US));
        assert_eq!(policy.decide(now, now), Wait::No);
        polled += u32::from(policy.decide(now, next) == Wait::No);
    }
    assert!(polled <= CONFIDENCE_MAX, "{polled}");
}

#[test]
fn the_other_policies_do_not_learn() {
    let mut always = IdlePolicy::new(PollPolicy::Always);
    let mut never = IdlePolicy::new(PollPolicy::Never);
    for _ in 0..100 {
        assert_eq!(always.decide(Time(0), Time::NEVER), Wait::No);
        assert_eq!(never.decide(Time(0), Time::NEVER), Wait::Until(Time::NEVER));
        always.observe(Time(9), Wait::No, false);
        never.observe(Time(9), Wait::Until(Time::NEVER), true);
    }
}

use proptest::prelude::*;

fn policies() -> impl Strategy<Value = PollPolicy> {
    prop_oneof![
        Just(PollPolicy::Always),
        Just(PollPolicy::Never),
        Just(PollPolicy::Auto),
        Just(PollPolicy::Spare)
    ]
}

proptest! {
    /// In every case: no sleep extends beyond a deadline or begins after it, a stretch of idleness
    /// is polled for a bounded time, and then the policy sleeps until work arrives.
    #[test]
    fn sleeps_end_at_the_deadline_and_polls_end(
        policy in policies(),
        turns in prop::collection::vec(
            (0u64..200_000, any::<bool>(), prop_oneof![Just(Some(0)), Just(None), (0u64..300_000).prop_map(Some)], 0u64..300_000), 1..600),
    ) {
        let mut idle = IdlePolicy::new(policy);
        let mut now = Time(1_000_000_000);
        let mut idle_since = None;
        let mut slept = false;
        for (span, busy, deadline, kept) in turns {
            let deadline = deadline.map_or(Time::NEVER, |span| now + Nanos(span));
            let wait = idle.decide(now, deadline);
            if deadline > now {
                idle_since.get_or_insert(now);
            } else {
                (idle_since, slept) = (None, false);
            }
            match wait {
                Wait::Until(until) => {
                    prop_assert_ne!(policy, PollPolicy::Always);
                    prop_assert!(until == deadline && until > now);
                    slept = true;
                }
                Wait::No if policy != PollPolicy::Always && deadline > now => {
                    let since = idle_since.expect("set above");
                    prop_assert!(now.since(since) < IdlePolicy::POLL_WINDOW, "polls too long");
                    prop_assert!(!slept, "polls again although nothing happened");
                }
                Wait::No => prop_assert!(policy == PollPolicy::Always || deadline <= now),
            }
            now = now + Nanos(span);
            idle.observe(now, wait, busy);
            if idle.should_yield(now, busy) {
                idle.yielded(now, now + Nanos(kept), || true);
            }
            if busy {
                (idle_since, slept) = (None, false);
            }
        }
    }
}
