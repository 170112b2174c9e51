//! A core's part of the scheduling of one device: its tenants on the core, and their waiting
//! commands.

use crate::limits::{TENANT_PLACES_MAX, TENANT_PLACES_MIN, TOKEN_PLACES};
use crate::qos::core::tenant::{Closed, CoreTenant, Done, Lateness, Priced, Waiting};
use crate::qos::device::{DeviceQos, Registered};
use crate::request::Ticket;
use base::Time;
use qos::token_scheduler::{Refused, TooManyThreads};
use qos::{PricedOperation, TenantId, TokenScheduler};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// A core's part of the scheduling of one device.
#[derive(Debug)]
pub(super) struct CoreScheduler {
    pub(super) qos: Arc<DeviceQos>,
    scheduler: TokenScheduler<Waiting>,
    /// Number of the core's namespaces on the device.
    pub(super) namespaces: u32,
    tenants: Vec<Option<CoreTenant>>,
    free: Vec<u32>,
    by_id: BTreeMap<TenantId, u32>,
    /// Tenants with more waiting commands than their share of the places.
    overflowing: VecDeque<u32>,
    /// Commands released by a round, until the core resumes them.
    pub(super) released: VecDeque<Ticket>,
    /// Tenants whose counters changed since they were published.
    changed: Vec<u32>,
    /// Number of the last queued command.
    last: u32,
}

impl CoreScheduler {
    pub(super) fn new(qos: &Arc<DeviceQos>) -> Result<Self, TooManyThreads> {
        Ok(Self {
            scheduler: TokenScheduler::new(Arc::clone(qos.pool()), TOKEN_PLACES)?,
            qos: Arc::clone(qos),
            namespaces: 1,
            tenants: Vec::new(),
            free: Vec::new(),
            by_id: BTreeMap::new(),
            overflowing: VecDeque::new(),
            released: VecDeque::new(),
            changed: Vec::new(),
            last: 0,
        })
    }

    /// Returns the time of the next round.
    pub(super) fn deadline(&self) -> Time {
        self.scheduler.deadline()
    }

    /// Returns the number of commands in the scheduler.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.scheduler.waiting()
    }

    /// Sets the number after which the next queued command is numbered.
    #[cfg(test)]
    pub(super) fn begin_at(&mut self, number: u32) {
        self.last = number;
    }

    /// Returns the number of accesses to a tenant's unplaced commands by removals.
    #[cfg(test)]
    pub(super) fn looks(&self, tenant: u32) -> usize {
        let entry = self.tenants[tenant as usize].as_ref();
        entry.expect("a tenant").overflow.looks()
    }

    pub(super) fn attach(&mut self, registered: &Registered, core: usize) -> u32 {
        let Registered { account, record } = registered;
        let index = match self.by_id.get(&account.id()) {
            Some(&index) => index,
            None => self.free.pop().unwrap_or_else(|| {
                self.tenants.push(None);
                u32::try_from(self.tenants.len() - 1).expect("fewer tenants than connections")
            }),
        };
        let slot = &mut self.tenants[index as usize];
        let tenant = slot.get_or_insert_with(|| {
            let key = self.scheduler.attach(account);
            CoreTenant::new(account.id(), key, record, core)
        });
        tenant.stats.seats += 1;
        self.by_id.insert(account.id(), index);
        // Room for every tenant, so that noting one never allocates.
        self.changed
            .reserve(self.tenants.len() - self.changed.len());
        self.note(index);
        index
    }

    pub(super) fn detach(&mut self, tenant: u32) {
        let slot = &mut self.tenants[tenant as usize];
        let Some(left) = slot else { return };
        assert!(left.stats.seats > 0, "a connection is detached once");
        left.stats.seats -= 1;
        if left.stats.seats > 0 {
            self.note(tenant);
            return;
        }
        debug_assert_eq!(
            left.waiting(),
            0,
            "connections leave with what waits of theirs"
        );
        // First, so that the tokens it holds are given back before they are counted.
        self.scheduler.drain(left.key, &mut |_| {});
        left.publish(&mut self.scheduler);
        self.scheduler.detach(left.key, &mut |_| {});
        self.by_id.remove(&left.id);
        *slot = None;
        self.free.push(tenant);
        self.overflowing.retain(|&other| other != tenant);
        self.changed.retain(|&other| other != tenant);
    }

    /// Notes that a tenant's counters changed.
    #[inline]
    fn note(&mut self, tenant: u32) {
        if let Some(entry) = &mut self.tenants[tenant as usize]
            && entry.changes()
        {
            self.changed.push(tenant);
        }
    }

    #[inline]
    pub(super) fn done(&mut self, tenant: u32, done: &Done, lateness: &mut Lateness) {
        if let Some(entry) = &mut self.tenants[tenant as usize] {
            entry.count(done, lateness);
        }
        self.note(tenant);
    }

    /// Publishes the counters of tenants that changed. Returns true if they will change again
    /// without further events.
    pub(super) fn publish(&mut self) -> bool {
        let (tenants, scheduler) = (&mut self.tenants, &mut self.scheduler);
        self.changed.retain(|&tenant| {
            let entry = tenants[tenant as usize].as_mut();
            entry.is_some_and(|entry| entry.publish(scheduler))
        });
        !self.changed.is_empty()
    }

    pub(super) fn drain(&mut self, taken: &mut Vec<Ticket>) {
        for entry in self.tenants.iter_mut().flatten() {
            let queued = &mut |waiting: Waiting| taken.push(waiting.ticket);
            self.scheduler.drain(entry.key, queued);
            entry.queued = 0;
            let mut overflow = std::mem::take(&mut entry.overflow);
            taken.extend(std::iter::from_fn(|| overflow.pop()).map(|(_, next)| next.ticket));
        }
        self.overflowing.clear();
    }

    /// Returns the number of places that a tenant may have.
    #[inline]
    fn share(&self) -> u32 {
        let tenants = u32::try_from(self.by_id.len()).unwrap_or(u32::MAX);
        (TOKEN_PLACES / tenants.max(1)).clamp(TENANT_PLACES_MIN, TENANT_PLACES_MAX)
    }

    #[inline]
    pub(super) fn enqueue(&mut self, tenant: u32, priced: Priced) -> Result<u32, Closed> {
        let share = self.share();
        self.note(tenant);
        let Some(entry) = &mut self.tenants[tenant as usize] else {
            return Err(Closed);
        };
        self.last = self.last.wrapping_add(1);
        if entry.overflow.is_empty() {
            match entry.push(&mut self.scheduler, tenant, share, priced) {
                Ok(()) => return Ok(self.last),
                Err(Refused::Closed(_)) => return Err(Closed),
                Err(Refused::Full(_)) => self.overflowing.push_back(tenant),
            }
        }
        entry.overflow.push(self.last, priced);
        Ok(self.last)
    }

    #[inline]
    pub(super) fn pay_at_once(
        &mut self,
        tenant: u32,
        operation: PricedOperation,
        units: u32,
    ) -> bool {
        let entry = self.tenants[tenant as usize].as_ref();
        // Commands without a place arrived earlier.
        entry.is_some_and(|entry| {
            entry.overflow.is_empty()
                && self
                    .scheduler
                    .pay_at_once(entry.key, operation, units)
                    .is_some()
        })
    }

    /// Removes the command that waits under a number: in constant time from those without a place,
    /// otherwise by a search of at most the tenant's places. Returns false if it does not wait.
    pub(super) fn withdraw(&mut self, tenant: u32, number: u32, ticket: Ticket) -> bool {
        let Some(entry) = &mut self.tenants[tenant as usize] else {
            return false;
        };
        let priced = |priced: &Priced| priced.ticket == ticket;
        if entry.overflow.remove(number, priced).is_some() {
            self.forget_overflow(tenant);
            return true;
        }
        let queued = |waiting: &Waiting| waiting.ticket == ticket;
        let taken = self.scheduler.remove(entry.key, queued).is_some();
        entry.queued -= u32::from(taken);
        taken
    }

    /// Removes a tenant from the overflowing ones if all of its commands have a place.
    fn forget_overflow(&mut self, tenant: u32) {
        let entry = self.tenants[tenant as usize].as_ref();
        if entry.is_none_or(|entry| entry.overflow.is_empty()) {
            self.overflowing.retain(|&other| other != tenant);
        }
    }

    /// Removes a connection's commands, which wait under these numbers, in order: in constant time
    /// each from those without a place; the tenant's commands with a place are scanned once.
    pub(super) fn withdraw_all(
        &mut self,
        tenant: u32,
        commands: &mut [(u32, Ticket)],
        taken: &mut Vec<Ticket>,
    ) {
        let Some(entry) = &mut self.tenants[tenant as usize] else {
            return;
        };
        // Numbers wrap, and no number is newer than the last.
        let after_last = self.last.wrapping_add(1);
        commands.sort_unstable_by_key(|&(number, _)| number.wrapping_sub(after_last));
        let mut unplaced = Vec::new();
        for &mut (number, ticket) in &mut *commands {
            let waits = |priced: &Priced| priced.ticket == ticket;
            if entry.overflow.remove(number, waits).is_some() {
                unplaced.push(ticket);
            }
        }
        if unplaced.len() < commands.len() {
            let connection = commands[0].1.connection;
            let theirs = |waiting: &Waiting| waiting.ticket.connection == connection;
            let queued = &mut entry.queued;
            self.scheduler.withdraw(entry.key, theirs, &mut |waiting| {
                *queued -= 1;
                taken.push(waiting.ticket);
            });
        }
        if !unplaced.is_empty() {
            taken.append(&mut unplaced);
            self.forget_overflow(tenant);
        }
    }

    #[inline]
    pub(super) fn round(&mut self, now: Time) {
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

    /// Moves commands without a place to free places, tenant by tenant.
    fn refill(&mut self) {
        let share = self.share();
        for _ in 0..self.overflowing.len() {
            let Some(tenant) = self.overflowing.pop_front() else {
                return;
            };
            let Some(entry) = &mut self.tenants[tenant as usize] else {
                continue;
            };
            while let Some(&next) = entry.overflow.first() {
                if entry
                    .push(&mut self.scheduler, tenant, share, next)
                    .is_err()
                {
                    break;
                }
                entry.overflow.pop();
            }
            if !entry.overflow.is_empty() {
                self.overflowing.push_back(tenant);
            }
        }
    }
}
