//! The token schedulers of one core: the commands that wait for their tokens. `[ReFlex §3.2.2]`
//!
//! One [`CoreScheduler`] per device with namespaces on the core; it contains every tenant with a
//! connection here. The commands of one connection to one namespace wait in a [`TokenQueue`],
//! assigned at Connect and reassigned when tenants change. The scheduler has a bounded number of
//! places, of which each tenant gets a share; further commands wait here, in order, until a round
//! has made room. So no tenant, with however many connections, hides another tenant's requests, and
//! nothing is refused or requested twice. A waiting command has a slot in its queue pair, which
//! bounds their number. Invariant: a ticket is never kept for a command that no longer waits.

mod scheduler;
mod tenant;

pub(crate) use tenant::{Closed, Done, Priced};

use crate::qos::device::DeviceQos;
use crate::request::Ticket;
use base::Time;
use qos::PricedOperation;
use qos::token_scheduler::TooManyThreads;
use scheduler::CoreScheduler;
use std::sync::Arc;
use tenant::Lateness;

/// Queue in which the commands of a tenant's connections to a namespace wait for tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TokenQueue {
    /// Index of the scheduler on the core.
    scheduler: u32,
    /// Index of the tenant in the scheduler.
    tenant: u32,
}

/// The token schedulers of a core.
#[derive(Debug)]
pub(crate) struct CoreTokens {
    /// The core's number, under which tenants keep its counters.
    core: usize,
    schedulers: Vec<Option<CoreScheduler>>,
    lateness: Lateness,
}

impl CoreTokens {
    pub(crate) const fn new(core: usize) -> Self {
        Self {
            core,
            schedulers: Vec::new(),
            lateness: Lateness {
                late: 0,
                allowed: 0,
            },
        }
    }

    /// Adds a namespace of a device. Returns the index of the device's scheduler.
    pub(crate) fn open(&mut self, qos: &Arc<DeviceQos>) -> Result<u32, TooManyThreads> {
        for (index, scheduler) in (0..).zip(&mut self.schedulers) {
            if let Some(scheduler) = scheduler
                && Arc::ptr_eq(&scheduler.qos, qos)
            {
                scheduler.namespaces += 1;
                return Ok(index);
            }
        }
        let scheduler = Some(CoreScheduler::new(qos)?);
        let free = self.schedulers.iter().position(Option::is_none);
        let index = free.unwrap_or(self.schedulers.len());
        if index == self.schedulers.len() {
            self.schedulers.push(scheduler);
        } else {
            self.schedulers[index] = scheduler;
        }
        Ok(u32::try_from(index).expect("fewer devices than namespaces"))
    }

    /// Removes a namespace; no connection may be attached for it any more.
    pub(crate) fn close(&mut self, scheduler: u32) {
        let slot = &mut self.schedulers[scheduler as usize];
        if let Some(scheduler) = slot {
            assert!(scheduler.namespaces > 0, "a namespace closes once");
            scheduler.namespaces -= 1;
            if scheduler.namespaces == 0 {
                *slot = None;
            }
        }
    }

    /// Attaches a connection to the token queue of a tenant. Control path: locks the device's
    /// register, allocates.
    pub(crate) fn attach(&mut self, scheduler: u32, tenant: &str) -> Option<TokenQueue> {
        let here = self.schedulers.get_mut(scheduler as usize)?.as_mut()?;
        let tenant = here.attach(&here.qos.registered(tenant), self.core);
        Some(TokenQueue { scheduler, tenant })
    }

    /// Detaches a connection, whose commands were removed before.
    pub(crate) fn detach(&mut self, queue: TokenQueue) {
        self.scheduler(queue.scheduler).detach(queue.tenant);
    }

    /// Queues a command. Returns its number.
    #[inline]
    pub(crate) fn enqueue(&mut self, queue: TokenQueue, priced: Priced) -> Result<u32, Closed> {
        self.scheduler(queue.scheduler)
            .enqueue(queue.tenant, priced)
    }

    /// Pays for a command that is executed immediately, if its tenant has enough tokens. Otherwise
    /// the command has to wait.
    #[inline]
    pub(crate) fn pay_at_once(
        &mut self,
        queue: TokenQueue,
        operation: PricedOperation,
        units: u32,
    ) -> bool {
        let scheduler = self.scheduler(queue.scheduler);
        scheduler.pay_at_once(queue.tenant, operation, units)
    }

    /// Counts a completed command.
    #[inline]
    pub(crate) fn done(&mut self, queue: TokenQueue, done: &Done) {
        let scheduler = self.schedulers.get_mut(queue.scheduler as usize);
        if let Some(scheduler) = scheduler.and_then(Option::as_mut) {
            scheduler.done(queue.tenant, done, &mut self.lateness);
        }
    }

    /// Returns true if, since the last call, more reads were late than the SLOs allow, over all
    /// tenants of the core.
    pub(crate) fn was_late(&mut self) -> bool {
        std::mem::take(&mut self.lateness).is_too_much()
    }

    /// Publishes the counters that changed. Returns true if they will change again without further
    /// events.
    pub(crate) fn publish(&mut self) -> bool {
        let schedulers = self.schedulers.iter_mut().flatten();
        schedulers.fold(false, |more, scheduler| scheduler.publish() | more)
    }

    /// Removes the command that waits under a number. Returns false if it does not wait.
    pub(crate) fn withdraw(&mut self, queue: TokenQueue, number: u32, ticket: Ticket) -> bool {
        self.scheduler(queue.scheduler)
            .withdraw(queue.tenant, number, ticket)
    }

    /// Removes the commands of a connection that wait in a queue, each by its number, in order.
    pub(crate) fn withdraw_all(
        &mut self,
        queue: TokenQueue,
        commands: &mut [(u32, Ticket)],
        taken: &mut Vec<Ticket>,
    ) {
        self.scheduler(queue.scheduler)
            .withdraw_all(queue.tenant, commands, taken);
    }

    /// Removes all waiting commands.
    pub(crate) fn drain(&mut self) -> Vec<Ticket> {
        let mut taken = Vec::new();
        for scheduler in self.schedulers.iter_mut().flatten() {
            scheduler.drain(&mut taken);
        }
        taken
    }

    /// Runs a round of every scheduler that is due. Paid commands are then
    /// [released](Self::released).
    #[inline]
    pub(crate) fn round(&mut self, now: Time) {
        for scheduler in self.schedulers.iter_mut().flatten() {
            if scheduler.deadline() <= now {
                scheduler.round(now);
            }
        }
    }

    /// Returns the next command that is paid for.
    #[inline]
    pub(crate) fn released(&mut self) -> Option<Ticket> {
        let mut schedulers = self.schedulers.iter_mut().flatten();
        schedulers.find_map(|scheduler| scheduler.released.pop_front())
    }

    /// Returns the time of the next round.
    pub(crate) fn deadline(&self) -> Time {
        let schedulers = self.schedulers.iter().flatten();
        let deadlines = schedulers.map(CoreScheduler::deadline);
        deadlines.min().unwrap_or(Time::NEVER)
    }

    fn scheduler(&mut self, index: u32) -> &mut CoreScheduler {
        let scheduler = self.schedulers.get_mut(index as usize);
        scheduler
            .and_then(Option::as_mut)
            .expect("connections are detached before their scheduler goes")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::TENANT_PLACES_MAX;
    use base::{Nanos, SlabKey};
    use qos::cost::Price;
    use qos::curve::Point;
    use qos::{CostModel, Curve, Declaration, Percentile, TokenPoolRules, TokenRate};

    fn device(rate: u64) -> Arc<DeviceQos> {
        let point = Point {
            rate: TokenRate(rate),
            latency: [Nanos::from_micros(500); Percentile::COUNT],
        };
        let curve = Curve::new(vec![point]).expect("a curve");
        let model = CostModel::new(Price::READ, Price::READ);
        DeviceQos::new("flash", TokenPoolRules::default(), model, curve)
    }

    fn read(index: u32, slot: u16) -> Priced {
        let connection = SlabKey {
            index,
            generation: 0,
        };
        Priced {
            operation: PricedOperation::Read,
            units: 1,
            ticket: Ticket { connection, slot },
        }
    }

    #[test]
    fn a_flood_waits_in_order_and_keeps_nobody_out() {
        let qos = device(1_000_000);
        let mut core = CoreTokens::new(0);
        let scheduler = core.open(&qos).expect("a thread");
        let flood = core.attach(scheduler, "anybody").expect("a queue");
        let count = 3 * TENANT_PLACES_MAX;
        let numbers: Vec<_> = (0..count)
            .map(|at| core.enqueue(flood, read(at, 0)).expect("open"))
            .collect();
        let waiting = core.scheduler(scheduler).waiting();
        assert_eq!(waiting, TENANT_PLACES_MAX as usize);
        let mut taken = Vec::new();
        for at in (1..count).step_by(2) {
            let mut own = [(numbers[at as usize], read(at, 0).ticket)];
            core.withdraw_all(flood, &mut own, &mut taken);
        }
        assert_eq!(taken.len(), count as usize / 2);
        let mut now = Time(1);
        for expected in (0..count).step_by(2) {
            let next = loop {
                if let Some(next) = core.released() {
                    break next;
                }
                assert_ne!(core.deadline(), Time::NEVER, "something waits");
                now = now + Nanos::from_micros(100);
                core.round(now);
            };
            assert_eq!(next.connection.index, expected);
        }
        assert_eq!(core.released(), None);
        core.round(now);
        assert_eq!(core.deadline(), Time::NEVER);
        core.detach(flood);
        core.close(scheduler);
        assert!(core.schedulers[0].is_none());
    }

    /// Regression: each connection scanned all waiting commands of the tenant, which took quadratic
    /// time when all connections closed at once.
    #[test]
    fn a_connection_takes_its_commands_along_in_order_without_a_look_at_all_others() {
        const CONNECTIONS: u32 = 1_000;
        const COMMANDS: u16 = 12;
        let qos = device(1_000_000);
        let mut core = CoreTokens::new(0);
        let scheduler = core.open(&qos).expect("a thread");
        // Numbers wrap in this test.
        core.scheduler(scheduler).begin_at(u32::MAX - 6_000);
        let queue = core.attach(scheduler, "anybody").expect("a queue");
        let mut own = vec![Vec::new(); CONNECTIONS as usize];
        for slot in 0..COMMANDS {
            for connection in 0..CONNECTIONS {
                let command = read(connection, slot);
                let number = core.enqueue(queue, command).expect("open");
                own[connection as usize].push((number, command.ticket));
            }
        }
        for mut commands in own {
            let expected: Vec<_> = commands.iter().map(|&(_, ticket)| ticket).collect();
            commands.reverse();
            let mut taken = Vec::new();
            core.withdraw_all(queue, &mut commands, &mut taken);
            assert_eq!(taken, expected);
        }
        assert!(core.drain().is_empty());
        let looks = core.scheduler(scheduler).looks(queue.tenant);
        assert!(
            looks <= 4 * (CONNECTIONS * u32::from(COMMANDS)) as usize,
            "{looks}"
        );
        core.detach(queue);
        core.close(scheduler);
    }

    /// Regression: each Abort removed all waiting commands of the tenant, of all its connections,
    /// and queued them again.
    #[test]
    fn what_is_aborted_leaves_alone_wherever_it_waits() {
        let qos = device(1_000_000);
        let mut core = CoreTokens::new(0);
        let scheduler = core.open(&qos).expect("a thread");
        let queue = core.attach(scheduler, "anybody").expect("a queue");
        let count = 5 * TENANT_PLACES_MAX;
        let mut numbers = Vec::new();
        for at in 0..count {
            numbers.push(core.enqueue(queue, read(at, 0)).expect("open"));
        }
        let mut gone = Vec::new();
        let mut abort = |core: &mut CoreTokens, at: u32| {
            let taken = core.withdraw(queue, numbers[at as usize], read(at, 0).ticket);
            assert_eq!(taken, !gone.contains(&at), "{at}");
            gone.push(at);
        };
        // The first, the last, the first and the last with a place, and some between; none twice.
        let edge = TENANT_PLACES_MAX;
        for at in [0, count - 1, edge - 1, edge, 7, edge + 7, 0, edge] {
            abort(&mut core, at);
        }
        assert!(!core.withdraw(queue, numbers[1], read(2, 1).ticket));
        // The freed places are reused: commands without a place get one, and can be aborted there.
        let mut now = Time(1);
        let mut left = Vec::new();
        for round in 0..u32::MAX {
            now = now + Nanos::from_micros(100);
            core.round(now);
            left.extend(std::iter::from_fn(|| core.released()).map(|t| t.connection.index));
            if round == 5 {
                abort(&mut core, edge + 100);
                abort(&mut core, 2 * edge + 1);
            }
            if core.scheduler(scheduler).waiting() == 0 {
                break;
            }
        }
        let expected = (0..count).filter(|at| !gone.contains(at));
        assert!(expected.eq(left.iter().copied()));
        assert_eq!(core.released(), None);
        core.detach(queue);
        core.close(scheduler);
    }

    #[test]
    fn lateness_is_what_exceeds_the_percentile() {
        let mut lateness = Lateness::default();
        for read in 0..100 {
            lateness.count(read < 5, 50);
        }
        assert!(!lateness.is_too_much(), "p95, and 5 of 100");
        lateness.count(true, 50);
        assert!(lateness.is_too_much());
    }

    #[test]
    fn namespaces_of_a_device_share_a_scheduler_and_tenants_a_queue() {
        let (one, other) = (device(1_000), device(1_000));
        let mut core = CoreTokens::new(0);
        let first = core.open(&one).expect("a thread");
        assert_eq!(core.open(&one).expect("the same"), first);
        let second = core.open(&other).expect("a thread");
        assert_ne!(first, second);
        let queues = [first, first, second].map(|s| core.attach(s, "anybody").expect("a queue"));
        assert_eq!(queues[0], queues[1]);
        assert_ne!(queues[0], queues[2]);
        core.enqueue(queues[0], read(1, 1)).expect("open");
        core.enqueue(queues[2], read(2, 2)).expect("open");
        assert_eq!(core.drain().len(), 2);
        for queue in queues {
            core.detach(queue);
        }
        core.close(first);
        core.close(first);
        // Its index is reused.
        let again = core.open(&device(1)).expect("a thread");
        assert_eq!(again, first);
    }

    /// Each of its connections has a queue, but all of them belong to one tenant.
    #[test]
    fn a_best_effort_host_with_a_thousand_connections_gets_no_more_than_its_share() {
        const CONNECTIONS: u32 = 1_000;
        let qos = device(100_000);
        let both = ["greedy", "modest"].map(|name| (name.to_owned(), Declaration::default()));
        qos.replace(&both.into()).expect("best effort");
        let mut core = CoreTokens::new(0);
        let scheduler = core.open(&qos).expect("a thread");
        for connection in 0..CONNECTIONS {
            let queue = core.attach(scheduler, "greedy").expect("a queue");
            for slot in 0..8 {
                core.enqueue(queue, read(connection, slot)).expect("open");
            }
        }
        let modest = core.attach(scheduler, "modest").expect("a queue");
        for slot in 0..4_000 {
            core.enqueue(modest, read(CONNECTIONS, slot)).expect("open");
        }
        let mut served = [0u32; 2];
        let mut now = Time(1);
        while served.iter().sum::<u32>() < 4_000 {
            now = now + Nanos::from_micros(100);
            core.round(now);
            while let Some(ticket) = core.released() {
                served[usize::from(ticket.connection.index == CONNECTIONS)] += 1;
            }
            assert!(now < Time(1_000_000_000), "{served:?} in a second");
        }
        let [greedy, modest] = served;
        assert!(
            greedy.abs_diff(modest) <= modest / 50,
            "{greedy} and {modest}"
        );
    }
}
