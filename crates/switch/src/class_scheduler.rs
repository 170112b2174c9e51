//! Prioritised processing: which class a core serves next, and how many bytes. `[blk-switch §3.1]`
//!
//! Strict order with quanta: the first class is served to exhaustion; later classes get at most a
//! quantum (one caravan, which bounds the delay of an arriving `Latency` request) before the first
//! class is checked again. One [`ClassScheduler`] per core and direction, owned by its loop, which
//! calls [`ClassScheduler::next`], serves the grant, and calls [`ClassScheduler::served`]. A floor
//! prevents starvation: a waiting class gets a minimum share of the bytes or time. Debts are exact,
//! in thousandths of the unit, and not reset per window. A class that does not wait is owed
//! nothing. Invariant: no service out of order except for a floor's debt; a debt exceeds its window
//! by at most one quantum.

use crate::class::{Class, PerClass};
use base::{Nanos, Time};

#[cfg(test)]
mod tests;

/// Service order of the classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// In the order of [`Class::ALL`]: a class is served only while all earlier ones have no work.
    Strict,
    /// One quantum per class in turn: no priority, for comparison.
    RoundRobin,
}

/// The unit of a floor, and how much may be served before a debt is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Window {
    /// Share of the bytes served.
    Bytes(u64),
    /// Share of the service time.
    Time(Nanos),
}

/// Parameters of a class scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClassSchedulerRules {
    /// Service order.
    pub order: Order,
    /// Maximum bytes granted to a class at a time while another one waits; at least 1.
    pub quantum_bytes: u64,
    /// Floor of each class while it waits, in thousandths; 0 for none. The sum is below 1,000.
    pub floor_permille: PerClass<u16>,
    /// Unit and window of a floor.
    pub window: Window,
}

/// The class to serve now, and how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ServiceGrant {
    /// The class.
    pub class: Class,
    /// Maximum bytes to serve. A first request that is larger than the remaining grant is served
    /// whole.
    pub bytes: u64,
    /// Out of order, to settle its floor's debt.
    pub by_floor: bool,
}

/// Counters of a class scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassSchedulerCounters {
    /// Served grants, by class.
    pub quanta: PerClass<u64>,
    /// Bytes served, by class.
    pub bytes: PerClass<u64>,
    /// Preemptions by an earlier class while a class still had work, by the preempted class.
    pub preemptions: PerClass<u64>,
    /// Grants out of order, by class.
    pub floor_grants: PerClass<u64>,
}

/// The class scheduler of one core.
#[derive(Clone, Debug)]
pub struct ClassScheduler {
    rules: ClassSchedulerRules,
    /// The grant being served, and its start time.
    current: Option<(ServiceGrant, Time)>,
    /// The class served last, if it had more work.
    unfinished: Option<Class>,
    /// Classes with waiting work at the last check.
    waits: PerClass<bool>,
    /// Debt to each class from its floor, in thousandths of a byte or nanosecond. Negative after a
    /// quantum that overpaid.
    debt: PerClass<i64>,
    /// Index of the class that is checked first in [`Order::RoundRobin`].
    turn: usize,
    counters: ClassSchedulerCounters,
}

impl ClassScheduler {
    /// Creates the scheduler of an idle core.
    #[must_use]
    pub fn new(rules: ClassSchedulerRules) -> Self {
        Self {
            rules,
            current: None,
            unfinished: None,
            waits: PerClass::default(),
            debt: PerClass::default(),
            turn: 0,
            counters: ClassSchedulerCounters::default(),
        }
    }

    /// Returns the class to serve now, given the waiting bytes of each class; `None` if nothing
    /// waits.
    ///
    /// The first class in strict order is granted all its waiting bytes, or a quantum while another
    /// class with a floor waits. Later classes, and all classes in round robin, get at most a
    /// quantum.
    #[inline]
    pub fn next(&mut self, now: Time, backlog: &PerClass<u64>) -> Option<ServiceGrant> {
        for (class, &bytes) in backlog.iter() {
            self.waits[class] = bytes > 0;
            if bytes == 0 {
                // A class that does not wait is owed nothing.
                self.debt[class] = self.debt[class].min(0);
            }
        }
        let owed = Class::ALL.into_iter().find(|&class| self.is_owed(class));
        let class = match owed {
            Some(class) => class,
            None => self.first_waiting()?,
        };
        debug_assert!(self.waits[class], "a class without work is not served");
        let bytes = backlog[class].min(self.limit(class));
        debug_assert!(bytes > 0, "a grant is for something");
        let grant = ServiceGrant {
            class,
            bytes,
            by_floor: owed.is_some(),
        };
        if let Some(before) = self.unfinished.take()
            && class < before
            && self.waits[before]
        {
            self.counters.preemptions[before] += 1;
        }
        self.current = Some((grant, now));
        Some(grant)
    }

    /// Ends the last grant after `bytes` bytes: fewer than granted if a device or socket was busy,
    /// more if the first request was larger. Without a grant it does nothing.
    #[inline]
    pub fn served(&mut self, now: Time, bytes: u64) {
        let Some((grant, since)) = self.current.take() else {
            return;
        };
        let class = grant.class;
        self.counters.quanta[class] += 1;
        self.counters.bytes[class] += bytes;
        self.counters.floor_grants[class] += u64::from(grant.by_floor);
        self.unfinished = Some(class);
        self.turn = (class.index() + 1) % Class::COUNT;
        let units = match self.rules.window {
            Window::Bytes(_) => bytes,
            Window::Time(_) => now.since(since).0,
        };
        self.account(class, units, grant.by_floor);
    }

    /// Sets new rules from the next grant on. Debts are reset, because they were counted under the
    /// old rules.
    pub fn reconfigure(&mut self, rules: ClassSchedulerRules) {
        self.rules = rules;
        self.debt = PerClass::default();
    }

    /// Returns its parameters.
    #[must_use]
    pub const fn rules(&self) -> &ClassSchedulerRules {
        &self.rules
    }

    /// Returns its counters.
    #[must_use]
    pub const fn counters(&self) -> &ClassSchedulerCounters {
        &self.counters
    }

    /// Returns true if the class waits and its floor has been violated for a whole window.
    #[inline]
    fn is_owed(&self, class: Class) -> bool {
        let share = i64::from(self.rules.floor_permille[class]);
        share > 0 && self.waits[class] && self.debt[class] >= share.saturating_mul(self.window())
    }

    #[inline]
    fn window(&self) -> i64 {
        let units = match self.rules.window {
            Window::Bytes(bytes) => bytes,
            Window::Time(time) => time.0,
        };
        i64::try_from(units).unwrap_or(i64::MAX)
    }

    #[inline]
    fn first_waiting(&self) -> Option<Class> {
        let begin = match self.rules.order {
            Order::Strict => 0,
            Order::RoundRobin => self.turn,
        };
        (begin..begin + Class::COUNT)
            .map(|index| Class::ALL[index % Class::COUNT])
            .find(|&class| self.waits[class])
    }

    /// Returns the maximum grant of a class in bytes. The first class in strict order is served to
    /// exhaustion, but is rechecked every quantum while a class with a floor waits.
    #[inline]
    fn limit(&self, class: Class) -> u64 {
        let others_bound_it = Class::ALL.into_iter().any(|other| {
            other != class
                && (other < class
                    || self.waits[other]
                        && (self.rules.floor_permille[other] > 0
                            || self.rules.order == Order::RoundRobin))
        });
        if others_bound_it {
            self.rules.quantum_bytes
        } else {
            u64::MAX
        }
    }

    /// Updates the debts to all classes after `class` was served.
    #[inline]
    fn account(&mut self, class: Class, units: u64, by_floor: bool) {
        let units = i64::try_from(units).unwrap_or(i64::MAX);
        for other in Class::ALL {
            let share = i64::from(self.rules.floor_permille[other]);
            if share == 0 {
                continue;
            }
            let debt = self.debt[other];
            self.debt[other] = if other == class {
                let paid = debt.saturating_sub(units.saturating_mul(1000 - share));
                // Service in order pays at most the debt, so that nothing must be repaid later.
                if by_floor {
                    paid
                } else {
                    paid.max(debt.min(0))
                }
            } else {
                let grown = debt.saturating_add(units.saturating_mul(share));
                if self.waits[other] {
                    grown
                } else {
                    grown.min(0).max(debt)
                }
            };
        }
    }
}
