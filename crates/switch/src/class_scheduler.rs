//! Prioritised processing: the class that a core serves next, and the quantum. `[blk-switch §3.1]`
//!
//! Strict priority with quanta: the first class is always served first; a later class gets at most
//! one quantum (one caravan) before the first class is checked again. One [`ClassScheduler`] per
//! core and direction: the core's loop calls [`ClassScheduler::next`], serves the grant, calls
//! [`ClassScheduler::served`], and repeats until nothing waits. Invariants: a later class is served
//! before a waiting earlier class only to meet its floor; a class with a floor never falls short of
//! it by more than a quantum.
//!
//! # The floor
//!
//! Strict priority would starve `Throughput` under continuous `Latency` load. A floor guarantees a
//! waiting class a share of all service, in bytes or time. Its debt grows by the floor's share of
//! the service of other classes while it waits, and shrinks by its own service. When the debt
//! reaches that of one window, the class gets a quantum; an excess is deducted from the next one. A
//! class that does not wait accumulates no debt. Rejected: counting shares per window of the clock,
//! which forgets at every boundary.

use crate::class::{Class, PerClass};
use base::{Nanos, Time};

#[cfg(test)]
mod tests;

/// The order in which the classes are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// Classes in the order of [`Class::ALL`]: a later one is served while the earlier ones have no
    /// work.
    Strict,
    /// A quantum each in turn: no priority, for comparison.
    RoundRobin,
}

/// The quantity that a floor is a share of, and how much of it may be served before the floor
/// holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Window {
    /// A share of the bytes served.
    Bytes(u64),
    /// A share of the time that serving took.
    Time(Nanos),
}

/// Parameters of a class scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClassSchedulerRules {
    /// The order of service.
    pub order: Order,
    /// Bytes that a class is granted at a time while another waits; at least 1.
    pub quantum_bytes: u64,
    /// Floor of each class while it waits, in thousandths; 0 for none. The sum stays below 1,000.
    pub floor_permille: PerClass<u16>,
    /// The quantity and the stretch of a floor.
    pub window: Window,
}

/// The class to serve now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ServiceGrant {
    /// The class.
    pub class: Class,
    /// Bytes to serve at most. A request that is larger than what is left of the grant is served
    /// whole if it is the first one.
    pub bytes: u64,
    /// Out of turn, because its floor owes it.
    pub by_floor: bool,
}

/// Counters of a class scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassSchedulerCounters {
    /// Grants that were served, by class.
    pub quanta: PerClass<u64>,
    /// Bytes served, by class.
    pub bytes: PerClass<u64>,
    /// Times that a class had more to do when an earlier one took over, by the class that was
    /// preempted.
    pub preemptions: PerClass<u64>,
    /// Grants out of turn, by class.
    pub floor_grants: PerClass<u64>,
}

/// The order of service on one core.
#[derive(Clone, Debug)]
pub struct ClassScheduler {
    rules: ClassSchedulerRules,
    /// The grant that is being served, and since when.
    current: Option<(ServiceGrant, Time)>,
    /// The class that was served last, if it had more.
    unfinished: Option<Class>,
    /// Classes with waiting work, as of the last look.
    waits: PerClass<bool>,
    /// Debt to each class by its floor: thousandths of a byte or of a nanosecond. Negative where a
    /// quantum paid too much.
    debt: PerClass<i64>,
    /// Index of the class that is first asked, for [`Order::RoundRobin`].
    turn: usize,
    counters: ClassSchedulerCounters,
}

impl ClassScheduler {
    /// A core that has served nothing yet.
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

    /// Returns the class to serve now, given the bytes that wait in each class; `None` if nothing
    /// waits.
    ///
    /// The first class in strict order gets all that waits of it, or a quantum where another one
    /// with a floor waits; later classes get a quantum at most, and so do all in round robin.
    #[inline]
    pub fn next(&mut self, now: Time, backlog: &PerClass<u64>) -> Option<ServiceGrant> {
        for (class, &bytes) in backlog.iter() {
            self.waits[class] = bytes > 0;
            if bytes == 0 {
                // It does not wait, so nothing is owed.
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

    /// The last grant was served, with so many bytes: fewer than granted where a device or socket
    /// was busy, more where the first request was larger. Without a grant nothing happens.
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

    /// Other rules, from the next grant on. Debts are forgotten: they were counted by other rules.
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

    /// The class waits, and its floor has not been kept for a whole window.
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

    /// Returns the bytes that a class may be granted. The first class in strict order is served to
    /// exhaustion, but asked again every quantum while a floor waits for its share.
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
                // In turn it pays no more than what is owed: there is nothing to pay back later.
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
