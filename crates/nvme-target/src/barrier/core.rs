//! Barriers on one core: which commands came before one, and which are held until it is over.
//!
//! While a barrier of a [`Scope`] concerns the core there is a [`Hold`] for it: every command of the
//! scope that arrives waits in it, in order. A barrier in force is through here when the last of the
//! commands that came before it has given its slot back and, where data is sent from a device's own
//! memory, when that has left. Without a barrier there is no hold, and a command costs a look at an
//! empty list.
//!
//! Which commands came before is in the commands: each has the epoch in which it came, and a barrier
//! that comes into force ends an epoch. So they need not be counted at that moment: a [`Search`] goes
//! through the queues of the scope, waits at the first such command until it is over, and goes on
//! there. However many commands there are, a turn looks at a bounded number of them, and a barrier that
//! is aborted before it is through has looked at no more than it passed.
//!
//! Owned by its core, which runs it once a turn ([`PollGroup`](crate::PollGroup)). Must never: hold
//! what came before; let a command pass that came after; outlive its barrier by more than
//! [`BARRIER_MARGIN`].

use crate::barrier::registry::{Barrier, Scope, Scopes};
use crate::limits::BARRIER_MARGIN;
use crate::line::Line;
use crate::request::Ticket;
use base::{Nanos, SlabKey, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

/// Barriers on one core.
#[derive(Debug)]
pub(crate) struct CoreBarriers {
    holds: Vec<Hold>,
    /// Number of barriers that came into force; wraps.
    epoch: u32,
    /// The number of the command that was held last.
    last: u32,
    /// Bytes of buffers that held commands keep.
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
    held: Line<HeldCommand>,
    /// Bytes of buffers that these commands keep.
    bytes: usize,
    /// More was held than may be, and most of it here.
    overflows: bool,
}

/// A barrier in force.
#[derive(Debug)]
struct Active {
    barrier: Arc<Barrier>,
    /// The epoch that it ended.
    epoch: u32,
    search: Search,
    /// Connections with answers that have to leave, and the send that takes the last one.
    unsent: Vec<(SlabKey, u64)>,
    through: bool,
    /// Time at which it is over on this core in any case.
    until: Time,
}

/// Search for commands that came before a barrier: all in places before this one are over, or came later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Search {
    /// It goes on with this queue, from this slot on.
    At(SlabKey, u16),
    /// This command came before the barrier.
    WaitsFor(Ticket),
    /// None is left.
    Over,
}

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
    /// The search for earlier commands goes on.
    Search(Arc<Barrier>),
    /// All of them are through, and their data may have left by now.
    LookAtUnsent(Arc<Barrier>),
}

impl CoreBarriers {
    /// Returns a core without barriers.
    pub(crate) fn new() -> Self {
        Self {
            holds: Vec::new(),
            epoch: 0,
            last: 0,
            held_bytes: 0,
            members: BTreeMap::new(),
        }
    }

    /// Returns the bytes of buffers that held commands keep.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes
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

    /// An I/O queue is gone, or another's: no search waits for its commands.
    pub(crate) fn leave(&mut self, scopes: &Scopes, key: SlabKey) {
        let waits = |search| matches!(search, Search::WaitsFor(for_) if for_.connection == key);
        self.go_on(waits, key, 0);
        for scope in scopes.iter() {
            if let Some(queues) = self.members.get_mut(scope) {
                queues.remove(&key);
                if queues.is_empty() {
                    self.members.remove(scope);
                }
            }
        }
    }

    /// Returns the epoch of commands that come now.
    #[inline]
    pub(crate) const fn epoch(&self) -> u32 {
        self.epoch
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
                held: Line::default(),
                bytes: 0,
                overflows: false,
            });
            self.holds.len() - 1
        });
        &mut self.holds[place]
    }

    /// Lets a command wait that is of one of these scopes, if that is on hold, and keeps `bytes` of
    /// buffers; all of them together may keep `most`. Its number, if it waits.
    pub(crate) fn wait<'a>(
        &mut self,
        mut scopes: impl Iterator<Item = &'a Arc<Scope>>,
        ticket: Ticket,
        bytes: u32,
        most: usize,
    ) -> Option<u32> {
        let scope = scopes.find(|scope| self.holds.iter().any(|hold| hold.scope == **scope))?;
        // 0 says that a command is not held.
        self.last = self.last.wrapping_add(1).max(1);
        let number = self.last;
        self.held_bytes += bytes as usize;
        let overflows = self.held_bytes > most;
        let hold = self.hold(scope).expect("found just now");
        hold.bytes += bytes as usize;
        let held = HeldCommand {
            ticket,
            number,
            bytes,
        };
        hold.held.push(number, held);
        if overflows {
            // A tenant that holds little pays for no other one's excess.
            let most = self.holds.iter_mut().max_by_key(|hold| hold.bytes);
            most.expect("one was found just now").overflows = true;
        }
        Some(number)
    }

    /// A held command is over before it was released: what it keeps counts no longer.
    #[cold]
    pub(crate) fn forget(&mut self, number: u32) {
        for hold in &mut self.holds {
            if let Some(held) = hold.held.remove(number, |_| true) {
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

    /// A barrier is in force: what came up to now came before it.
    pub(crate) fn take(&mut self, barrier: &Arc<Barrier>, patience: Nanos, now: Time) {
        let epoch = self.epoch;
        self.epoch = epoch.wrapping_add(1);
        let queues = self.members.get(&barrier.scope);
        let first = queues.and_then(BTreeSet::first);
        let search = first.map_or(Search::Over, |&key| Search::At(key, 0));
        let before = self.hold_or_new(&barrier.scope).active.replace(Active {
            barrier: Arc::clone(barrier),
            epoch,
            search,
            unsent: Vec::new(),
            through: false,
            until: now + patience + BARRIER_MARGIN,
        });
        debug_assert!(before.is_none(), "one after the other");
    }

    /// The barrier in force for a scope.
    pub(crate) fn in_force(&mut self, scope: &Scope) -> Option<Arc<Barrier>> {
        let active = self.hold(scope)?.active.as_ref()?;
        Some(Arc::clone(&active.barrier))
    }

    /// A command is over, and its slot free: searches that wait for it go on.
    #[cold]
    pub(crate) fn passed(&mut self, ticket: Ticket) {
        self.go_on(
            |search| search == Search::WaitsFor(ticket),
            ticket.connection,
            ticket.slot + 1,
        );
    }

    /// The searches that are where `wanted` says go on at a place.
    fn go_on(&mut self, wanted: impl Fn(Search) -> bool, key: SlabKey, slot: u16) {
        let holds = self.holds.iter_mut();
        for active in holds.filter_map(|hold| hold.active.as_mut()) {
            if wanted(active.search) {
                active.search = Search::At(key, slot);
            }
        }
    }

    /// Returns the place at which the search for what came before a barrier goes on, and the epoch that
    /// the barrier ended; `None` where it waits, or is over.
    pub(crate) fn search_at(&mut self, barrier: &Arc<Barrier>) -> Option<(SlabKey, u16, u32)> {
        let Search::At(key, slot) = self.active(barrier)?.search else {
            return None;
        };
        // The queue may have left the scope.
        let queues = self.members.get(&barrier.scope);
        let next = queues.and_then(|queues| queues.range(key..).next().copied());
        let active = self.active(barrier)?;
        let Some(next) = next else {
            active.search = Search::Over;
            return None;
        };
        Some((next, if next == key { slot } else { 0 }, active.epoch))
    }

    /// The search has come this far.
    pub(crate) fn searched(&mut self, barrier: &Arc<Barrier>, search: Search) {
        if let Some(active) = self.active(barrier) {
            active.search = search;
        }
    }

    /// Nothing in a queue came before a barrier any more; the answers that its connection has to send,
    /// up to this send, may have.
    pub(crate) fn searched_queue(
        &mut self,
        barrier: &Arc<Barrier>,
        key: SlabKey,
        unsent: Option<u64>,
    ) {
        let queues = self.members.get(&barrier.scope);
        let mut rest = queues
            .into_iter()
            .flat_map(|queues| queues.range((Excluded(key), Unbounded)));
        let next = rest.next().copied();
        if let Some(active) = self.active(barrier) {
            active.unsent.extend(unsent.map(|mark| (key, mark)));
            active.search = next.map_or(Search::Over, |next| Search::At(next, 0));
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
            } else if !active.through {
                match active.search {
                    Search::At(..) => due.push(Due::Search(barrier())),
                    Search::WaitsFor(_) => {}
                    Search::Over => due.push(Due::LookAtUnsent(barrier())),
                }
            }
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
        if active.search != Search::Over {
            return false;
        }
        // Each turn asks the last one alone, however many there are.
        while active
            .unsent
            .pop_if(|&mut (key, mark)| has_left(key, mark))
            .is_some()
        {}
        let through = active.unsent.is_empty() && !active.through;
        active.through |= through;
        through
    }

    /// A barrier is not in force any more.
    pub(crate) fn end(&mut self, barrier: &Arc<Barrier>) {
        if self.active(barrier).is_some()
            && let Some(hold) = self.hold(&barrier.scope)
        {
            hold.active = None;
        }
    }

    /// The next command of a scope that is not to wait any longer. The hold goes with the last one.
    pub(crate) fn next_free(&mut self, scope: &Arc<Scope>) -> Option<HeldCommand> {
        let place = self.holds.iter().position(|hold| hold.scope == *scope)?;
        let hold = &mut self.holds[place];
        if hold.own.is_some() || hold.active.is_some() {
            return None;
        }
        let Some((_, held)) = hold.held.pop() else {
            assert!(hold.bytes == 0, "what is held is counted with it");
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
                let over = active.search == Search::Over && active.unsent.is_empty();
                if !active.through && (over || matches!(active.search, Search::At(..))) {
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
mod tests;
