//! Barriers on one core: which commands came before one, and which are held until it is over.
//!
//! While a barrier of a [`Scope`] concerns the core there is a [`Hold`] for it: every command of the
//! scope that arrives waits in it, in order. A barrier in force marks the commands that came before
//! it, and is through here when the last of them has given its slot back and, where data is sent
//! from a device's own memory, when that has left. Without a barrier there is no hold, and a command
//! costs a look at an empty list.
//!
//! Owned by its core, which runs it once a turn ([`PollGroup`](crate::PollGroup)). Must never: hold
//! what came before; let a command pass that came after; outlive its barrier by more than
//! [`BARRIER_MARGIN`].

use crate::barrier::registry::{Barrier, Scope, Scopes};
use crate::limits::BARRIER_MARGIN;
use crate::request::Ticket;
use base::{Nanos, SlabKey, Time};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Barriers on one core.
#[derive(Debug)]
pub(crate) struct CoreBarriers {
    /// Bytes that held commands may have brought along, in all scopes together.
    held_bytes_max: usize,
    holds: Vec<Hold>,
    /// Bits that mark commands as having come before a barrier in force.
    bits: u64,
    /// The number of the command that was held last.
    last: u32,
    /// Bytes that held commands brought along.
    held_bytes: usize,
    /// I/O queues of the core, by scope.
    members: BTreeMap<Arc<Scope>, BTreeSet<SlabKey>>,
}

/// A scope with held commands.
#[derive(Debug)]
pub(crate) struct Hold {
    scope: Arc<Scope>,
    /// The barrier of one of the core's own queues, until when it may last.
    own: Option<(Arc<Barrier>, Time)>,
    /// The barrier in force.
    active: Option<Active>,
    held: VecDeque<HeldCommand>,
    /// Bytes that these commands brought along.
    bytes: usize,
    /// More was held than may be, and most of it here.
    overflows: bool,
}

/// A barrier in force.
#[derive(Debug)]
struct Active {
    barrier: Arc<Barrier>,
    /// Marks commands that came before it.
    bit: u64,
    /// Number of them that are left.
    left: u32,
    /// Connections with answers that have to leave, and the send that takes the last one; `None`
    /// before that is known.
    unsent: Option<Vec<(SlabKey, u64)>>,
    through: bool,
    /// Time at which it is over on this core in any case.
    until: Time,
}

/// A held command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldCommand {
    pub(crate) ticket: Ticket,
    /// The command's own number: another one may be in its slot by now.
    pub(crate) number: u32,
    bytes: u32,
}

/// A task that is due on a barrier.
#[derive(Debug)]
pub(crate) enum Due {
    /// Its own barrier has lasted too long.
    GiveUp(Arc<Barrier>),
    /// Its own barrier holds too much.
    Overflow(Arc<Barrier>),
    /// Another core's does.
    Tell(Arc<Barrier>),
    /// It should be over, and no message said so.
    Forget(Arc<Barrier>),
    /// All earlier commands are through: their data that has not left is listed.
    ListUnsent(Arc<Barrier>),
    /// The listed data may have left by now.
    LookAtUnsent(Arc<Barrier>),
}

impl CoreBarriers {
    /// Returns a core without barriers. Held commands may bring `held_bytes_max` bytes along.
    pub(crate) fn new(held_bytes_max: usize) -> Self {
        Self {
            held_bytes_max,
            holds: Vec::new(),
            bits: 0,
            last: 0,
            held_bytes: 0,
            members: BTreeMap::new(),
        }
    }

    /// Returns true while no barrier concerns the core.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.holds.is_empty()
    }

    /// Returns true if a barrier may concern a command of these scopes to a namespace. Others are
    /// carried out as if there was none.
    #[inline]
    pub(crate) fn concern(&self, scopes: Option<&Scopes>, nsid: u32) -> bool {
        !self.is_idle() && self.concern_scope(scopes, nsid)
    }

    fn concern_scope(&self, scopes: Option<&Scopes>, nsid: u32) -> bool {
        let scope = scopes.and_then(|scopes| scopes.scope(nsid));
        scope.is_none_or(|scope| self.holds.iter().any(|hold| hold.scope == *scope))
    }

    /// An I/O queue is these hosts' from now on.
    pub(crate) fn join(&mut self, scopes: &Scopes, key: SlabKey) {
        for scope in scopes.iter() {
            let queues = self.members.entry(Arc::clone(scope)).or_default();
            queues.insert(key);
        }
    }

    /// An I/O queue is gone, or another's.
    pub(crate) fn leave(&mut self, scopes: &Scopes, key: SlabKey) {
        for scope in scopes.iter() {
            if let Some(queues) = self.members.get_mut(scope) {
                queues.remove(&key);
                if queues.is_empty() {
                    self.members.remove(scope);
                }
            }
        }
    }

    /// The I/O queues of a scope.
    pub(crate) fn members(&self, scope: &Scope) -> Vec<SlabKey> {
        let queues = self.members.get(scope).into_iter().flatten();
        queues.copied().collect()
    }

    fn hold(&mut self, scope: &Scope) -> Option<&mut Hold> {
        self.holds.iter_mut().find(|hold| *hold.scope == *scope)
    }

    fn hold_or_new(&mut self, scope: &Arc<Scope>) -> &mut Hold {
        let place = self.holds.iter().position(|hold| hold.scope == *scope);
        let place = place.unwrap_or_else(|| {
            self.holds.push(Hold {
                scope: Arc::clone(scope),
                own: None,
                active: None,
                held: VecDeque::new(),
                bytes: 0,
                overflows: false,
            });
            self.holds.len() - 1
        });
        &mut self.holds[place]
    }

    /// Lets a command wait that is of one of these scopes, if that is on hold, and brought `bytes`
    /// along. Its number, if it waits.
    pub(crate) fn wait<'a>(
        &mut self,
        mut scopes: impl Iterator<Item = &'a Arc<Scope>>,
        ticket: Ticket,
        bytes: u32,
    ) -> Option<u32> {
        let scope = scopes.find(|scope| self.holds.iter().any(|hold| hold.scope == **scope))?;
        // 0 says that a command is not held.
        self.last = self.last.wrapping_add(1).max(1);
        let number = self.last;
        self.held_bytes += bytes as usize;
        let overflows = self.held_bytes > self.held_bytes_max;
        let hold = self.hold(scope).expect("found just now");
        hold.bytes += bytes as usize;
        hold.held.push_back(HeldCommand {
            ticket,
            number,
            bytes,
        });
        if overflows {
            // A tenant that holds little pays for no other one's excess.
            let most = self.holds.iter_mut().max_by_key(|hold| hold.bytes);
            most.expect("one was found just now").overflows = true;
        }
        Some(number)
    }

    /// A held command is over before it was released: what it brought counts no longer.
    #[cold]
    pub(crate) fn forget(&mut self, number: u32) {
        for hold in &mut self.holds {
            let place = hold.held.iter().position(|held| held.number == number);
            if let Some(held) = place.and_then(|place| hold.held.remove(place)) {
                hold.bytes -= held.bytes as usize;
                self.held_bytes -= held.bytes as usize;
                return;
            }
        }
    }

    /// A barrier of one of the core's own queues: what follows is held.
    pub(crate) fn own(&mut self, barrier: &Arc<Barrier>, until: Time) {
        let hold = self.hold_or_new(&barrier.scope);
        debug_assert!(hold.own.is_none(), "the next one waits among the held");
        hold.own = Some((Arc::clone(barrier), until));
    }

    /// The barrier of this command, which is over, or is to be.
    pub(crate) fn disown(&mut self, ticket: Ticket) -> Option<Arc<Barrier>> {
        let owns = |own: &(Arc<Barrier>, Time)| own.0.ticket == ticket;
        let mut holds = self.holds.iter_mut();
        let hold = holds.find(|hold| hold.own.as_ref().is_some_and(owns))?;
        hold.own.take().map(|(barrier, _)| barrier)
    }

    /// All barriers of the core's own queues.
    pub(crate) fn owned(&self) -> Vec<Arc<Barrier>> {
        let owned = self.holds.iter().filter_map(|hold| hold.own.as_ref());
        owned.map(|(barrier, _)| Arc::clone(barrier)).collect()
    }

    /// A barrier is in force: the bit that marks what came before it.
    pub(crate) fn take(
        &mut self,
        barrier: &Arc<Barrier>,
        patience: Nanos,
        now: Time,
    ) -> Option<u64> {
        if self.bits == u64::MAX {
            return None;
        }
        let bit = 1 << (!self.bits).trailing_zeros();
        self.bits |= bit;
        let before = self.hold_or_new(&barrier.scope).active.replace(Active {
            barrier: Arc::clone(barrier),
            bit,
            left: 0,
            unsent: None,
            through: false,
            until: now + patience + BARRIER_MARGIN,
        });
        debug_assert!(before.is_none(), "one after the other");
        Some(bit)
    }

    /// The barrier in force for a scope.
    pub(crate) fn in_force(&mut self, scope: &Scope) -> Option<Arc<Barrier>> {
        let active = self.hold(scope)?.active.as_ref()?;
        Some(Arc::clone(&active.barrier))
    }

    /// So many commands were marked.
    pub(crate) fn marked(&mut self, barrier: &Arc<Barrier>, count: u32) {
        if let Some(active) = self.active(barrier) {
            active.left += count;
        }
    }

    /// A command with these marks gave its slot back.
    #[cold]
    pub(crate) fn passed(&mut self, marks: u64) {
        let active = self
            .holds
            .iter_mut()
            .filter_map(|hold| hold.active.as_mut());
        for active in active.filter(|active| active.bit & marks != 0) {
            active.left -= 1;
        }
    }

    fn active(&mut self, barrier: &Arc<Barrier>) -> Option<&mut Active> {
        let active = self.hold(&barrier.scope)?.active.as_mut()?;
        Arc::ptr_eq(&active.barrier, barrier).then_some(active)
    }

    /// Appends the tasks that are due, each turn while there are barriers.
    pub(crate) fn due(&mut self, now: Time, due: &mut Vec<Due>) {
        for hold in &mut self.holds {
            let overflows = std::mem::take(&mut hold.overflows);
            let own = hold.own.as_ref();
            if let Some((barrier, until)) = own
                && (overflows || *until <= now)
            {
                let barrier = Arc::clone(barrier);
                due.push(if overflows {
                    Due::Overflow(barrier)
                } else {
                    Due::GiveUp(barrier)
                });
                continue;
            }
            let Some(active) = &hold.active else { continue };
            let barrier = || Arc::clone(&active.barrier);
            if active.until <= now {
                due.push(Due::Forget(barrier()));
            } else if overflows {
                due.push(Due::Tell(barrier()));
            } else if active.left == 0 && !active.through {
                due.push(match active.unsent {
                    None => Due::ListUnsent(barrier()),
                    Some(_) => Due::LookAtUnsent(barrier()),
                });
            }
        }
    }

    /// Notes the connections with answers that have to leave before the barrier is through.
    pub(crate) fn list_unsent(&mut self, barrier: &Arc<Barrier>, unsent: Vec<(SlabKey, u64)>) {
        if let Some(active) = self.active(barrier) {
            active.unsent = Some(unsent);
        }
    }

    /// Drops connections that have sent their answers. Returns true if the barrier is through here
    /// by that.
    pub(crate) fn all_sent(
        &mut self,
        barrier: &Arc<Barrier>,
        mut has_left: impl FnMut(SlabKey, u64) -> bool,
    ) -> bool {
        let Some(active) = self.active(barrier) else {
            return false;
        };
        let unsent = active.unsent.get_or_insert_default();
        unsent.retain(|&(key, mark)| !has_left(key, mark));
        let through = unsent.is_empty() && !active.through;
        active.through |= through;
        through
    }

    /// A barrier is not in force any more: the bit that may still mark commands.
    pub(crate) fn end(&mut self, barrier: &Arc<Barrier>) -> Option<u64> {
        self.active(barrier)?;
        let active = self.hold(&barrier.scope)?.active.take()?;
        self.bits &= !active.bit;
        Some(active.bit)
    }

    /// The next command of a scope that is not to wait any longer. The hold goes with the last one.
    pub(crate) fn next_free(&mut self, scope: &Arc<Scope>) -> Option<HeldCommand> {
        let place = self.holds.iter().position(|hold| hold.scope == *scope)?;
        let hold = &mut self.holds[place];
        if hold.own.is_some() || hold.active.is_some() {
            return None;
        }
        let Some(held) = hold.held.pop_front() else {
            self.holds.swap_remove(place);
            return None;
        };
        hold.bytes -= held.bytes as usize;
        self.held_bytes -= held.bytes as usize;
        Some(held)
    }

    /// Returns the time at which a task is due although nothing happens.
    pub(crate) fn deadline(&self) -> Time {
        let mut deadline = Time::NEVER;
        for hold in &self.holds {
            if let Some((_, until)) = &hold.own {
                deadline = deadline.min(*until);
            }
            if let Some(active) = &hold.active {
                deadline = deadline.min(active.until);
                if active.left == 0 && active.unsent.is_none() {
                    return Time::ZERO;
                }
            }
            if hold.overflows {
                return Time::ZERO;
            }
        }
        deadline
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qos::access::{AccessRules, Tenancy};
    use std::net::Ipv4Addr;

    const HELD_BYTES_MAX: usize = 8 << 20;

    const KEY: SlabKey = SlabKey {
        index: 3,
        generation: 1,
    };

    fn scopes(host: &str) -> Scopes {
        let rules = AccessRules::new(&Tenancy::default()).expect("nothing is said");
        Scopes::of(
            &rules.host_tenants(host, "nqn.2026-11.io.example:a"),
            host,
            [1; 16],
        )
    }

    fn ticket(slot: u16) -> Ticket {
        Ticket {
            connection: KEY,
            slot,
        }
    }

    fn barrier(scopes: &Scopes, slot: u16) -> Arc<Barrier> {
        let scope = scopes.scope(1).expect("everybody is somebody");
        Barrier::new(scope, 0, ticket(slot), Ipv4Addr::LOCALHOST.into(), 1)
    }

    fn due(core: &mut CoreBarriers, now: Time) -> Vec<Due> {
        let mut due = Vec::new();
        core.due(now, &mut due);
        due
    }

    #[test]
    fn a_barrier_waits_for_what_is_marked_and_then_for_what_was_sent() {
        let (ours, others) = (scopes("nqn.a"), scopes("nqn.b"));
        let mut core = CoreBarriers::new(HELD_BYTES_MAX);
        core.join(&ours, KEY);
        let barrier = barrier(&ours, 0);
        let (now, patience) = (Time(5), Nanos::from_secs(1));
        assert!(core.is_idle());
        core.own(&barrier, now + patience);
        let bit = core.take(&barrier, patience, now).expect("a bit");
        core.marked(&barrier, 2);
        assert_eq!(core.members(&barrier.scope), [KEY]);
        // What comes now waits, others' does not.
        let first = core.wait(ours.iter(), ticket(1), 0).expect("it is held");
        assert_eq!(core.wait(others.iter(), ticket(2), 0), None);
        let second = core.wait(ours.iter(), ticket(3), 0).expect("it is held");
        assert_ne!(first, second);
        core.passed(bit);
        assert!(due(&mut core, now).is_empty());
        core.passed(bit | 1 << 63);
        assert!(matches!(due(&mut core, now)[..], [Due::ListUnsent(_)]));
        core.list_unsent(&barrier, vec![(KEY, 7)]);
        assert!(!core.all_sent(&barrier, |_, _| false));
        assert!(matches!(due(&mut core, now)[..], [Due::LookAtUnsent(_)]));
        assert!(core.all_sent(&barrier, |key, mark| (key, mark) == (KEY, 7)));
        assert!(due(&mut core, now).is_empty(), "it is said once");
        let scope = Arc::clone(&barrier.scope);
        assert!(core.disown(ticket(0)).is_some() && core.next_free(&scope).is_none());
        assert_eq!(core.end(&barrier), Some(bit));
        let freed = [first, second].map(|number| {
            let held = core.next_free(&scope).expect("held in order");
            held.number == number
        });
        assert_eq!(freed, [true, true]);
        assert!(core.next_free(&scope).is_none() && core.is_idle());
        core.leave(&ours, KEY);
        assert!(core.members.is_empty());
    }

    /// Any barrier on a core took the way through a device's memory from every host there.
    #[test]
    fn a_host_that_always_has_a_barrier_is_no_concern_of_others() {
        let (ours, others) = (scopes("nqn.a"), scopes("nqn.b"));
        let mut core = CoreBarriers::new(HELD_BYTES_MAX);
        assert!(!core.concern(Some(&ours), 1) && !core.concern(None, 1));
        core.own(&barrier(&ours, 0), Time(5));
        assert!(core.concern(Some(&ours), 1));
        assert!(!core.concern(Some(&others), 1));
        // A queue without known scopes takes the long way.
        assert!(core.concern(None, 1));
    }

    #[test]
    fn time_and_memory_are_bounded() {
        let ours = scopes("nqn.a");
        let mut core = CoreBarriers::new(HELD_BYTES_MAX);
        let (own, other) = (barrier(&ours, 0), barrier(&ours, 1));
        let (now, patience) = (Time(5), Nanos::from_secs(1));
        core.own(&own, now + patience);
        core.take(&other, patience, now).expect("a bit");
        core.marked(&other, 1);
        assert_eq!(core.deadline(), now + patience);
        let half = u32::try_from(HELD_BYTES_MAX / 2).expect("a few MiB");
        for slot in 2..4 {
            core.wait(ours.iter(), ticket(slot), half).expect("held");
            assert!(due(&mut core, now).is_empty());
        }
        core.wait(ours.iter(), ticket(4), 1).expect("held");
        assert!(matches!(&due(&mut core, now)[..], [Due::Overflow(b)] if Arc::ptr_eq(b, &own)));
        assert!(core.disown(ticket(0)).is_some());
        // Still too much: the other core's barrier is told.
        core.wait(ours.iter(), ticket(5), 1).expect("held");
        assert!(matches!(&due(&mut core, now)[..], [Due::Tell(b)] if Arc::ptr_eq(b, &other)));
        let late = now + patience + BARRIER_MARGIN;
        assert!(matches!(&due(&mut core, late)[..], [Due::Forget(b)] if Arc::ptr_eq(b, &other)));
        assert!(core.end(&other).is_some());
        while core.next_free(&other.scope).is_some() {}
        assert_eq!((core.held_bytes, core.bits), (0, 0));
    }

    /// The barrier that failed was that of the last one to hold something, however little.
    #[test]
    fn who_holds_most_pays_for_too_much() {
        let (greedy, modest) = (scopes("nqn.a"), scopes("nqn.b"));
        let mut core = CoreBarriers::new(HELD_BYTES_MAX);
        let (now, patience) = (Time(5), Nanos::from_secs(1));
        let (own, other) = (barrier(&greedy, 0), barrier(&modest, 1));
        core.own(&own, now + patience);
        core.own(&other, now + patience);
        let most = u32::try_from(HELD_BYTES_MAX).expect("a few MiB");
        core.wait(greedy.iter(), ticket(2), most).expect("held");
        core.wait(modest.iter(), ticket(3), 1).expect("held");
        assert!(matches!(&due(&mut core, now)[..], [Due::Overflow(b)] if Arc::ptr_eq(b, &own)));
        assert!(core.disown(ticket(0)).is_some());
        while core.next_free(&own.scope).is_some() {}
        core.wait(modest.iter(), ticket(4), 1).expect("held");
        assert!(due(&mut core, now).is_empty());
    }

    /// An aborted command kept its entry, and what it had brought counted, until the barrier ended.
    #[test]
    fn a_held_command_that_is_over_counts_no_longer() {
        let mut core = CoreBarriers::new(HELD_BYTES_MAX);
        let host = scopes("h");
        let (now, patience) = (Time(5), Nanos::from_secs(1));
        let own = barrier(&host, 0);
        core.own(&own, now + patience);
        let most = u32::try_from(HELD_BYTES_MAX).expect("a few MiB");
        for _ in 0..3 {
            let number = core.wait(host.iter(), ticket(2), most).expect("held");
            core.forget(number);
        }
        let kept = core.wait(host.iter(), ticket(3), 1).expect("held");
        assert!(due(&mut core, now).is_empty());
        assert!(core.disown(ticket(0)).is_some());
        let next = core.next_free(&own.scope).map(|held| held.number);
        assert_eq!(next, Some(kept));
        assert!(core.next_free(&own.scope).is_none() && core.is_idle());
    }
}
