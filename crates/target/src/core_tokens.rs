//! The token schedulers of one core: which commands wait for their tokens. `[ReFlex §3.2.2]`
//!
//! One [`CoreScheduler`] for each device that the core has namespaces over, and in it every tenant
//! of which a connection is here. A [`TenantSeat`] is where the commands of one connection to one
//! namespace wait; a connection has it from Connect on, and another one after a change
//! ([`Connection::reseat`](crate::tcp::connection::Connection::reseat)).
//!
//! The scheduler has places for a bounded number of requests, and a tenant for its share of them;
//! what is beyond waits here, in order, until a round has made room. So no tenant, with however
//! many connections, keeps another's requests from being seen, and nothing is refused or asked for
//! twice. What waits has a slot in its queue pair already, which bounds it.
//!
//! Must never: hold a ticket of a command that does not wait any more.

use crate::device_qos::DeviceQos;
use crate::limits::{TENANT_PLACES_MAX, TENANT_PLACES_MIN, TOKEN_PLACES};
use crate::request::Ticket;
use base::Time;
use qos::scheduler::{Refused, TooManyThreads};
use qos::{Account, Operation, Scheduler, TenantId, TenantKey};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Where the commands of a connection to a namespace wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TenantSeat {
    /// The scheduler, among those of the core.
    scheduler: u32,
    /// The tenant, among those of the scheduler.
    tenant: u32,
}

/// A command that waits for its tokens, and what for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Priced {
    pub(crate) operation: Operation,
    pub(crate) units: u32,
    pub(crate) ticket: Ticket,
}

/// The tenant was removed: its connections are about to be somebody else's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Closed;

/// The token schedulers of a core.
#[derive(Debug, Default)]
pub(crate) struct CoreTokens {
    schedulers: Vec<Option<CoreScheduler>>,
}

impl CoreTokens {
    /// One more namespace of a device; the place of its scheduler.
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

    /// A namespace less; no connection has a seat for it any more.
    pub(crate) fn close(&mut self, scheduler: u32) {
        let slot = &mut self.schedulers[scheduler as usize];
        if let Some(scheduler) = slot {
            scheduler.namespaces -= 1;
            if scheduler.namespaces == 0 {
                *slot = None;
            }
        }
    }

    /// A seat for commands of a tenant. Control path: asks the device, allocates.
    pub(crate) fn seat(&mut self, scheduler: u32, tenant: &str) -> Option<TenantSeat> {
        let here = self.schedulers.get_mut(scheduler as usize)?.as_mut()?;
        let account = here.qos.account(tenant);
        let tenant = here.seat(&account);
        Some(TenantSeat { scheduler, tenant })
    }

    /// A seat less; what of its connection waits was taken out before.
    pub(crate) fn unseat(&mut self, seat: TenantSeat) {
        self.scheduler(seat.scheduler).unseat(seat.tenant);
    }

    /// Lets a command wait.
    #[inline]
    pub(crate) fn enqueue(&mut self, seat: TenantSeat, priced: Priced) -> Result<(), Closed> {
        self.scheduler(seat.scheduler).enqueue(seat.tenant, priced)
    }

    /// Takes out the commands of a seat's tenant that are `wanted`.
    pub(crate) fn withdraw(
        &mut self,
        seat: TenantSeat,
        wanted: impl Fn(Ticket) -> bool,
        taken: &mut Vec<Ticket>,
    ) {
        self.scheduler(seat.scheduler)
            .withdraw(seat.tenant, wanted, taken);
    }

    /// Takes out all that waits.
    pub(crate) fn drain(&mut self) -> Vec<Ticket> {
        let mut taken = Vec::new();
        for scheduler in self.schedulers.iter_mut().flatten() {
            for tenant in 0..scheduler.tenants.len() {
                let tenant = u32::try_from(tenant).expect("fewer tenants than connections");
                scheduler.withdraw(tenant, |_| true, &mut taken);
            }
        }
        taken
    }

    /// Gives every scheduler its round, if one is due. What may go on is
    /// [released](Self::released).
    #[inline]
    pub(crate) fn round(&mut self, now: Time) {
        for scheduler in self.schedulers.iter_mut().flatten() {
            if scheduler.scheduler.deadline() <= now {
                scheduler.round(now);
            }
        }
    }

    /// The next command whose tokens are paid.
    #[inline]
    pub(crate) fn released(&mut self) -> Option<Ticket> {
        let mut schedulers = self.schedulers.iter_mut().flatten();
        schedulers.find_map(|scheduler| scheduler.released.pop_front())
    }

    /// When the next round is due.
    pub(crate) fn deadline(&self) -> Time {
        let schedulers = self.schedulers.iter().flatten();
        let deadlines = schedulers.map(|scheduler| scheduler.scheduler.deadline());
        deadlines.min().unwrap_or(Time::NEVER)
    }

    fn scheduler(&mut self, index: u32) -> &mut CoreScheduler {
        let scheduler = self.schedulers.get_mut(index as usize);
        scheduler
            .and_then(Option::as_mut)
            .expect("seats are given up before their scheduler goes")
    }
}

/// A core's part of the scheduling of one device.
#[derive(Debug)]
struct CoreScheduler {
    qos: Arc<DeviceQos>,
    scheduler: Scheduler<Waiting>,
    /// Namespaces of the core over the device.
    namespaces: u32,
    tenants: Vec<Option<CoreTenant>>,
    free: Vec<u32>,
    by_id: BTreeMap<TenantId, u32>,
    /// Tenants that have more waiting than their share of the places.
    overflowing: VecDeque<u32>,
    /// Commands that a round let go, until the core has looked at them.
    released: VecDeque<Ticket>,
}

/// A command in the scheduler.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    ticket: Ticket,
    tenant: u32,
}

/// A tenant of which a connection is here.
#[derive(Debug)]
struct CoreTenant {
    key: TenantKey,
    id: TenantId,
    seats: u32,
    /// Requests that the scheduler holds.
    queued: u32,
    /// Those that it has no place for, in order.
    overflow: VecDeque<Priced>,
}

impl CoreScheduler {
    fn new(qos: &Arc<DeviceQos>) -> Result<Self, TooManyThreads> {
        Ok(Self {
            scheduler: Scheduler::new(Arc::clone(qos.pool()), TOKEN_PLACES)?,
            qos: Arc::clone(qos),
            namespaces: 1,
            tenants: Vec::new(),
            free: Vec::new(),
            by_id: BTreeMap::new(),
            overflowing: VecDeque::new(),
            released: VecDeque::new(),
        })
    }

    fn seat(&mut self, account: &Arc<Account>) -> u32 {
        if let Some(&index) = self.by_id.get(&account.id())
            && let Some(tenant) = &mut self.tenants[index as usize]
        {
            tenant.seats += 1;
            return index;
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.tenants.push(None);
            u32::try_from(self.tenants.len() - 1).expect("fewer tenants than connections")
        });
        self.tenants[index as usize] = Some(CoreTenant {
            key: self.scheduler.attach(account),
            id: account.id(),
            seats: 1,
            queued: 0,
            overflow: VecDeque::new(),
        });
        self.by_id.insert(account.id(), index);
        index
    }

    fn unseat(&mut self, tenant: u32) {
        let slot = &mut self.tenants[tenant as usize];
        let Some(left) = slot else { return };
        left.seats -= 1;
        if left.seats > 0 {
            return;
        }
        let forgotten = left.overflow.len() + left.queued as usize;
        debug_assert_eq!(forgotten, 0, "connections leave with what waits of theirs");
        self.scheduler.detach(left.key, &mut |_| {});
        self.by_id.remove(&left.id);
        *slot = None;
        self.free.push(tenant);
        self.overflowing.retain(|&other| other != tenant);
    }

    /// Places that a tenant may have.
    #[inline]
    fn share(&self) -> u32 {
        let tenants = u32::try_from(self.by_id.len()).unwrap_or(u32::MAX);
        (TOKEN_PLACES / tenants.max(1)).clamp(TENANT_PLACES_MIN, TENANT_PLACES_MAX)
    }

    #[inline]
    fn enqueue(&mut self, tenant: u32, priced: Priced) -> Result<(), Closed> {
        let share = self.share();
        let Some(entry) = &mut self.tenants[tenant as usize] else {
            return Err(Closed);
        };
        if entry.overflow.is_empty() {
            match entry.push(&mut self.scheduler, tenant, share, priced) {
                Ok(()) => return Ok(()),
                Err(Refused::Closed(_)) => return Err(Closed),
                Err(Refused::Full(_)) => self.overflowing.push_back(tenant),
            }
        }
        entry.overflow.push_back(priced);
        Ok(())
    }

    fn withdraw(&mut self, tenant: u32, wanted: impl Fn(Ticket) -> bool, taken: &mut Vec<Ticket>) {
        let Some(entry) = &mut self.tenants[tenant as usize] else {
            return;
        };
        let queued = &mut entry.queued;
        self.scheduler
            .withdraw(entry.key, |w| wanted(w.ticket), &mut |w| {
                *queued -= 1;
                taken.push(w.ticket);
            });
        entry.overflow.retain(|priced| {
            let theirs = wanted(priced.ticket);
            if theirs {
                taken.push(priced.ticket);
            }
            !theirs
        });
        if entry.overflow.is_empty() {
            self.overflowing.retain(|&other| other != tenant);
        }
    }

    #[inline]
    fn round(&mut self, now: Time) {
        let (tenants, released) = (&mut self.tenants, &mut self.released);
        self.scheduler.round(now, &mut |waiting, _| {
            if let Some(tenant) = &mut tenants[waiting.tenant as usize] {
                tenant.queued -= 1;
            }
            released.push_back(waiting.ticket);
        });
        if !self.overflowing.is_empty() {
            self.refill();
        }
    }

    /// Lets what had no place take those that became free, each tenant in its turn.
    fn refill(&mut self) {
        let share = self.share();
        for _ in 0..self.overflowing.len() {
            let Some(tenant) = self.overflowing.pop_front() else {
                return;
            };
            let Some(entry) = &mut self.tenants[tenant as usize] else {
                continue;
            };
            while let Some(&next) = entry.overflow.front() {
                if entry
                    .push(&mut self.scheduler, tenant, share, next)
                    .is_err()
                {
                    break;
                }
                entry.overflow.pop_front();
            }
            if !entry.overflow.is_empty() {
                self.overflowing.push_back(tenant);
            }
        }
    }
}

impl CoreTenant {
    /// Gives a command to the scheduler, where the tenant has not had its share.
    #[inline]
    fn push(
        &mut self,
        scheduler: &mut Scheduler<Waiting>,
        tenant: u32,
        share: u32,
        priced: Priced,
    ) -> Result<(), Refused<Waiting>> {
        let Priced {
            operation,
            units,
            ticket,
        } = priced;
        let waiting = Waiting { ticket, tenant };
        if self.queued >= share {
            return Err(Refused::Full(waiting));
        }
        scheduler.enqueue(self.key, operation, units, waiting)?;
        self.queued += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{Nanos, SlabKey};
    use qos::cost::Price;
    use qos::curve::Point;
    use qos::{CostModel, Curve, Percentile, Rules, TokenRate};

    fn device(rate: u64) -> Arc<DeviceQos> {
        let point = Point {
            rate: TokenRate(rate),
            latency: [Nanos::from_micros(500); Percentile::COUNT],
        };
        let curve = Curve::new(vec![point]).expect("a curve");
        let model = CostModel::new(Price::READ, Price::READ);
        DeviceQos::new("flash", Rules::default(), model, curve)
    }

    fn read(index: u32, slot: u16) -> Priced {
        let connection = SlabKey {
            index,
            generation: 0,
        };
        Priced {
            operation: Operation::Read,
            units: 1,
            ticket: Ticket { connection, slot },
        }
    }

    #[test]
    fn a_flood_waits_in_order_and_keeps_nobody_out() {
        let qos = device(1_000_000);
        let mut core = CoreTokens::default();
        let scheduler = core.open(&qos).expect("a thread");
        let flood = core.seat(scheduler, "anybody").expect("a seat");
        let count = 3 * TENANT_PLACES_MAX;
        for at in 0..count {
            core.enqueue(flood, read(at, 0)).expect("open");
        }
        let waiting = core.scheduler(scheduler).scheduler.waiting();
        assert_eq!(waiting, TENANT_PLACES_MAX as usize);
        let mut taken = Vec::new();
        let odd = |ticket: Ticket| !ticket.connection.index.is_multiple_of(2);
        core.withdraw(flood, odd, &mut taken);
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
        core.unseat(flood);
        core.close(scheduler);
        assert!(core.schedulers[0].is_none());
    }

    #[test]
    fn namespaces_of_a_device_share_a_scheduler_and_tenants_a_queue() {
        let (one, other) = (device(1_000), device(1_000));
        let mut core = CoreTokens::default();
        let first = core.open(&one).expect("a thread");
        assert_eq!(core.open(&one).expect("the same"), first);
        let second = core.open(&other).expect("a thread");
        assert_ne!(first, second);
        let seats = [first, first, second].map(|s| core.seat(s, "anybody").expect("a seat"));
        assert_eq!(seats[0], seats[1]);
        assert_ne!(seats[0], seats[2]);
        core.enqueue(seats[0], read(1, 1)).expect("open");
        core.enqueue(seats[2], read(2, 2)).expect("open");
        assert_eq!(core.drain().len(), 2);
        for seat in seats {
            core.unseat(seat);
        }
        core.close(first);
        core.close(first);
        // Its place serves again.
        let again = core.open(&device(1)).expect("a thread");
        assert_eq!(again, first);
    }
}
