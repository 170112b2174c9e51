//! Pace of a probe: the arrivals of its reads, and the tokens that it may spend.
//!
//! The load steps up to the share and down again, so each load occurs twice: if the device changes
//! in between, the results contradict each other. Within a step, arrivals are independent of each
//! other. A balance limits them; it fills at the share of the device's rate and holds little more
//! than one read.

use base::{Nanos, Prng, Time};
use qos::{TokenRate, Tokens};

/// Number of load levels; the highest one is the share.
const LEVELS: usize = 8;

/// Largest balance, as the time to earn it: the length of the longest round.
const BALANCE_SPAN: Nanos = Nanos::from_millis(1);

/// Delay after which overdue arrivals are dropped.
const LATE: Nanos = Nanos::from_millis(10);

/// The arrivals of a probe.
#[derive(Debug)]
pub(super) struct Pace {
    share_percent: u32,
    random: Prng,
    now: Time,
    /// Time of the next arrival.
    arrival: Time,
    balance: Tokens,
    /// Rate at which the balance grows, and the price of a read, as of the last update.
    rate: TokenRate,
    price: Tokens,
}

impl Pace {
    /// Total number of steps.
    pub(super) const STEPS: usize = 2 * LEVELS;

    pub(super) fn new(share_percent: u32, seed: u64) -> Self {
        Self {
            share_percent: share_percent.clamp(1, 100),
            random: Prng::from_seed(seed),
            now: Time::ZERO,
            arrival: Time::NEVER,
            balance: Tokens::ZERO,
            rate: TokenRate(1),
            price: Tokens::whole(1),
        }
    }

    /// Begins with an empty balance.
    pub(super) fn begin(&mut self, now: Time) {
        self.now = now;
        self.arrival = now;
    }

    /// Returns the time of the last update.
    pub(super) const fn now(&self) -> Time {
        self.now
    }

    /// Fills the balance at the current rate and price.
    pub(super) fn earn(&mut self, now: Time, rate: TokenRate, price: Tokens) {
        let share = TokenRate((rate.0 * u64::from(self.share_percent) / 100).max(1));
        let most = share.over(BALANCE_SPAN).max(price);
        self.balance = (self.balance + share.over(now.since(self.now))).min(most);
        (self.now, self.rate, self.price) = (now, share, price);
        if now.since(self.arrival) > LATE {
            self.arrival = now;
        }
    }

    /// Returns true if a read is due and can be paid for.
    pub(super) fn due(&self, now: Time) -> bool {
        self.arrival <= now && self.balance >= self.price
    }

    /// Takes the due read and pays for it.
    pub(super) fn take(&mut self, step: usize) {
        self.balance -= self.price;
        self.skip(step);
    }

    /// Skips the due read, because no slot was free for it.
    pub(super) fn skip(&mut self, step: usize) {
        let gap = self.gap(step);
        self.arrival = self.arrival + gap;
    }

    /// Returns the earliest time at which a read can be due.
    pub(super) fn next(&self) -> Time {
        let missing = (self.price - self.balance).or_zero();
        self.arrival.max(self.now + self.rate.time_for(missing))
    }

    /// Returns the load of a step in parts of [`LEVELS`]: up, and down again.
    const fn level(step: usize) -> u64 {
        let level = if step < LEVELS {
            step + 1
        } else {
            Self::STEPS.saturating_sub(step)
        };
        if level == 0 { 1 } else { level as u64 }
    }

    /// Returns the random time to the next of independent arrivals.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "a time of at most some minutes, from a random number"
    )]
    fn gap(&mut self, step: usize) -> Nanos {
        // The interval at full load: the time to earn a read.
        let full = self.price.0 as f64 / self.rate.0.max(1) as f64;
        let mean = full * LEVELS as f64 / Self::level(step) as f64;
        // 53 random bits: at least 2^-53, at most 1.
        let uniform = ((self.random.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
        Nanos((-uniform.ln() * mean) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of reads in one second of a step, and their cost.
    fn second(
        pace: &mut Pace,
        begin: Time,
        step: usize,
        rate: u64,
        price: Tokens,
    ) -> (u64, Tokens) {
        let mut now = begin;
        let (mut reads, mut spent) = (0, Tokens::ZERO);
        pace.begin(begin);
        while now < begin + Nanos::from_secs(1) {
            pace.earn(now, TokenRate(rate), price);
            while pace.due(now) {
                pace.take(step);
                reads += 1;
                spent += price;
            }
            now = pace.next().max(now + Nanos(1));
        }
        (reads, spent)
    }

    #[test]
    fn loads_go_up_to_the_share_and_down_again() {
        let mut pace = Pace::new(20, 7);
        let mut begin = Time(5_000_000_000);
        for step in 0..Pace::STEPS {
            let (reads, spent) = second(&mut pace, begin, step, 100_000, Tokens::milli(500));
            begin = begin + Nanos::from_secs(2);
            let level = [1, 2, 3, 4, 5, 6, 7, 8, 8, 7, 6, 5, 4, 3, 2, 1][step];
            let wanted = 40_000 * level / 8;
            assert!(
                reads > wanted * 8 / 10,
                "{reads} of {wanted} in step {step}"
            );
            assert!(
                reads < wanted * 11 / 10,
                "{reads} of {wanted} in step {step}"
            );
            // Of a share of 20,000 tokens; the initial balance is at most that of one millisecond.
            assert!(spent <= Tokens::whole(20_020), "{spent:?} in step {step}");
        }
    }

    #[test]
    fn who_was_late_does_not_burst() {
        let mut pace = Pace::new(10, 7);
        let price = Tokens::whole(1);
        pace.begin(Time(1));
        let late = Time(60_000_000_000);
        pace.earn(late, TokenRate(100_000), price);
        let mut reads = 0;
        while pace.due(late) {
            pace.take(7);
            reads += 1;
        }
        assert!((1..=10).contains(&reads), "{reads} at once");
    }

    #[test]
    fn a_read_that_costs_more_than_the_balance_holds_is_paid_in_the_end() {
        let mut pace = Pace::new(1, 7);
        let dear = Tokens::whole(1_000);
        let (reads, _) = second(&mut pace, Time(1), 7, 100_000, dear);
        assert!(reads <= 1, "{reads}");
        pace.earn(Time(9_000_000_000), TokenRate(100_000), dear);
        assert!(pace.due(Time(9_000_000_000)));
    }
}
