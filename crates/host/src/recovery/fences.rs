//! Fences: lost associations whose commands may still take effect. Channels must respect them.
//!
//! A fence stands from the loss of an association until the target confirms that none of its
//! commands can change anything any more, or, if it cannot confirm that, until it must have ended
//! the lost controller by itself. [`Fences`] is the list of a [`Controller`](crate::Controller);
//! channels use a [`FenceSnapshot`], which the [`Association`](crate::association::Association)
//! passes on. Pure rules; the reasons are in docs/design/decisions/0004-replay.md. Invariant: while
//! its fence stands, a lost write is not sent again, and if it was reported, its blocks are not
//! written again.

use super::span::Span;
use crate::info::Parameters;
use base::mutation::{self, Mutation};
use base::{Nanos, Time};
use std::collections::BTreeSet;

/// A controller as remembered by its host, also for another process that takes the host's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControllerName {
    /// Its identifier (CNTLID).
    pub cntlid: u16,
    /// Incarnation of the target's process; 0 if it did not report one.
    pub incarnation: u64,
}

/// A lost association that is not known to have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fence {
    /// Generation of the association.
    pub(crate) generation: u64,
    /// CNTLID of its controller.
    pub(crate) cntlid: u16,
    /// Incarnation of the target's process; 0 if it did not report one.
    incarnation: u64,
    /// Time after the close of its connections in which its controller ends by itself. For a
    /// controller of another process: `None` until the first association, whose value is then used.
    quiet: Option<Nanos>,
    /// True if it was a controller of this host, which can request its end.
    is_ours: bool,
    lost_at: Time,
    /// Time at which its connections were closed; `None` until they are.
    left_at: Option<Time>,
    /// True once it has stood for longer than the loss timeout.
    overdue: bool,
    /// Time at which its end is requested from the controller; [`Time::NEVER`] while an answer is
    /// awaited, and if no request is to be sent.
    ask_at: Time,
    /// True if the live association's controller cannot end it: it is lowered when its own
    /// controller must have ended by itself.
    expires: bool,
}

impl Fence {
    fn expiry(&self) -> Time {
        let left_at = self.left_at.filter(|_| self.expires);
        let expiry = left_at.zip(self.quiet);
        expiry.map_or(Time::NEVER, |(left_at, quiet)| left_at + quiet)
    }
}

/// The fences of a controller, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Fences {
    standing: Vec<Fence>,
    /// Generation of the last lost association.
    lost: u64,
}

impl Fences {
    /// Raises a fence for a lost association, whose controller had these parameters.
    pub(crate) fn raise(&mut self, generation: u64, lost: &Parameters, now: Time) {
        self.lost = generation;
        self.standing.push(Fence {
            generation,
            cntlid: lost.cntlid,
            incarnation: lost.incarnation,
            quiet: Some(lost.quiet),
            is_ours: true,
            lost_at: now,
            left_at: None,
            overdue: false,
            ask_at: Time::NEVER,
            expires: false,
        });
    }

    /// Raises a fence for a controller left by an ended process, whose connections are closed. Only
    /// the end of a controller of this host can be requested. `number` is that of no association.
    pub(crate) fn inherit(
        &mut self,
        number: u64,
        (controller, is_ours): (ControllerName, bool),
        now: Time,
    ) {
        self.standing.push(Fence {
            generation: number,
            cntlid: controller.cntlid,
            incarnation: controller.incarnation,
            quiet: None,
            is_ours,
            lost_at: now,
            left_at: Some(now),
            overdue: false,
            ask_at: Time::NEVER,
            expires: false,
        });
    }

    /// Returns the controllers behind the fences.
    pub(crate) fn controllers(&self) -> impl Iterator<Item = ControllerName> + '_ {
        self.standing.iter().map(|fence| ControllerName {
            cntlid: fence.cntlid,
            incarnation: fence.incarnation,
        })
    }

    /// Called when the next association is established, with a controller with these parameters:
    /// lowers the fences that this shows to be over, and decides how each remaining fence ends.
    pub(crate) fn meet(&mut self, controller: &Parameters, now: Time) {
        self.standing.retain_mut(|fence| {
            let is_known = fence.incarnation != 0 && controller.incarnation != 0;
            let is_of_other = is_known && fence.incarnation != controller.incarnation;
            // In another process, these identifiers would name different controllers of this host.
            fence.quiet.get_or_insert(controller.quiet);
            fence.expires = !controller.fenced || is_of_other || !fence.is_ours;
            fence.ask_at = if fence.expires { Time::NEVER } else { now };
            if !controller.fenced {
                return true;
            }
            if is_of_other {
                // The previous process may still serve the same storage from another machine. On
                // the same machine it has ended, because only one process at a time can open a
                // volume.
                return !is_same_boot(fence.incarnation, controller.incarnation);
            }
            // An identifier in use again can only belong to the new controller.
            fence.cntlid != controller.cntlid
        });
    }

    /// No controller is live: nothing is requested, and no fence is lowered by time alone.
    pub(crate) fn part(&mut self) {
        for fence in &mut self.standing {
            fence.ask_at = Time::NEVER;
            fence.expires = false;
        }
    }

    /// Returns true if some fence is lowered by time alone.
    pub(crate) fn any_expires(&self) -> bool {
        self.standing.iter().any(|fence| fence.expires)
    }

    /// Requests the end of this association from the controller at time `at`.
    pub(crate) fn ask_again(&mut self, generation: u64, at: Time) {
        let mut fences = self.standing.iter_mut();
        if let Some(fence) = fences.find(|fence| fence.generation == generation) {
            fence.ask_at = at;
        }
    }

    /// Returns a fence whose end is to be requested now. Its answer is then awaited.
    pub(crate) fn take_due(&mut self, now: Time) -> Option<Fence> {
        let fence = self.standing.iter_mut().find(|fence| fence.ask_at <= now)?;
        fence.ask_at = Time::NEVER;
        Some(*fence)
    }

    /// Returns the time of the next request to the controller.
    pub(crate) fn next_ask(&self) -> Time {
        let times = self.standing.iter().map(|fence| fence.ask_at);
        times.min().unwrap_or(Time::NEVER)
    }

    /// Lowers the fence of this association: its commands cannot take effect any more.
    pub(crate) fn lower(&mut self, generation: u64) {
        let others = mutation::active(Mutation::FenceFellsOthers);
        self.standing
            .retain(|fence| fence.generation != generation && !others);
    }

    /// Records that the connections of all lost associations are closed.
    pub(crate) fn leave(&mut self, now: Time) {
        for fence in &mut self.standing {
            fence.left_at.get_or_insert(now);
        }
    }

    /// Lowers the fences of associations whose controllers must have ended by themselves, if the
    /// live controller cannot end them. Returns true if there were any.
    pub(crate) fn expire(&mut self, now: Time) -> bool {
        let before = self.standing.len();
        self.standing.retain(|fence| fence.expiry() > now);
        self.standing.len() < before
    }

    /// Returns the time at which the next fence is lowered by time alone.
    pub(crate) fn next_expiry(&self) -> Time {
        let times = self.standing.iter().map(Fence::expiry);
        times.min().unwrap_or(Time::NEVER)
    }

    pub(crate) fn len(&self) -> usize {
        self.standing.len()
    }

    /// Moves the times from which the age of each fence counts.
    pub(crate) fn extend(&mut self, mut extend: impl FnMut(&mut Time)) {
        for fence in &mut self.standing {
            extend(&mut fence.lost_at);
        }
    }

    /// Marks the fences that have stood for `limit`. Returns true if any was not marked before.
    pub(crate) fn mark_overdue(&mut self, now: Time, limit: Nanos) -> bool {
        let late = |fence: &&mut Fence| !fence.overdue && fence.lost_at + limit <= now;
        let late = self.standing.iter_mut().filter(late);
        late.map(|fence| fence.overdue = true).count() > 0
    }

    /// Returns the time at which the next fence will have stood for `limit`.
    pub(crate) fn next_overdue(&self, limit: Nanos) -> Time {
        let waiting = self.standing.iter().filter(|fence| !fence.overdue);
        let times = waiting.map(|fence| fence.lost_at + limit);
        times.min().unwrap_or(Time::NEVER)
    }
}

/// Returns true if the incarnations show that two processes of a target run in the same boot of the
/// same machine.
fn is_same_boot(incarnation: u64, other: u64) -> bool {
    let boot = |incarnation: u64| incarnation >> 32;
    boot(incarnation) == boot(other) && boot(incarnation) != 0
}

/// Permission to send a lost write again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplayPermission {
    /// It may be sent again.
    Allowed,
    /// It waits for its fence.
    Fenced,
    /// It has waited for the loss timeout: it is reported, and its blocks are closed.
    Overdue,
}

/// The standing fences, as respected by channels.
#[derive(Clone, Debug, Default)]
pub(crate) struct FenceSnapshot {
    /// Generations of associations with standing fences; true if the fence is overdue.
    standing: Vec<(u64, bool)>,
    /// Generation of the last lost association, as reported by the controller.
    lost: u64,
    /// Blocks of writes that were reported while their fence stood: an old copy may still take
    /// effect.
    closed: Vec<(u64, Span)>,
    /// Blocks of given-up writes that the live association, of this generation, has not answered.
    held: Vec<(u64, Span)>,
    /// NSIDs that could not be identified: their requests wait.
    suspended: BTreeSet<u32>,
}

impl FenceSnapshot {
    /// Makes requests for these namespaces wait, in addition to the namespaces that already wait
    /// and for which `left` returns true. Returns true if that changes anything.
    pub(crate) fn suspend(
        &mut self,
        mut namespaces: BTreeSet<u32>,
        left: impl Fn(&u32) -> bool,
    ) -> bool {
        namespaces.extend(self.suspended.iter().copied().filter(left));
        let changes = namespaces != self.suspended;
        self.suspended = namespaces;
        changes
    }

    /// Returns true if requests for a namespace wait until it is identified.
    pub(crate) fn suspends(&self, nsid: u32) -> bool {
        self.suspended.contains(&nsid)
    }

    /// Takes over the standing fences. Blocks behind lowered fences are open again.
    pub(crate) fn update(&mut self, fences: &Fences) {
        self.lost = fences.lost;
        self.standing.clear();
        let standing = fences.standing.iter();
        self.standing
            .extend(standing.map(|fence| (fence.generation, fence.overdue)));
        let stands = |generation| self.standing.iter().any(|&(other, _)| other == generation);
        let closed = &mut self.closed;
        closed.retain(|&(generation, _)| generation > fences.lost || stands(generation));
        // A write of a lost association is not answered any more.
        self.held.retain(|&(generation, span)| {
            let is_live = generation > fences.lost;
            if !is_live && stands(generation) {
                closed.push((generation, span));
            }
            is_live
        });
    }

    /// Returns true if a fence stands.
    pub(crate) fn stands(&self) -> bool {
        !self.standing.is_empty()
    }

    /// Returns the permission of a write that was lost with this association.
    pub(crate) fn replay_permission(&self, generation: u64) -> ReplayPermission {
        match self.standing.iter().find(|(other, _)| *other == generation) {
            _ if mutation::active(Mutation::FenceIgnored) => ReplayPermission::Allowed,
            None => ReplayPermission::Allowed,
            Some((_, false)) => ReplayPermission::Fenced,
            Some((_, true)) => ReplayPermission::Overdue,
        }
    }

    /// Closes the blocks of a write that was lost with an association and is reported before it is
    /// known to be over. `is_lost`: that association is no longer live.
    pub(crate) fn close(&mut self, generation: u64, span: Span, is_lost: bool) {
        if mutation::active(Mutation::ReportedNotFenced) {
            return;
        }
        let unknown = generation > self.lost && is_lost;
        if unknown || self.replay_permission(generation) != ReplayPermission::Allowed {
            self.closed.push((generation, span));
        }
    }

    /// Returns true if an old write could still overwrite a new write of these blocks.
    pub(crate) fn closes(&self, span: Span) -> bool {
        self.closed.iter().any(|(_, closed)| closed.overlaps(span))
    }

    /// Holds newer writes of these blocks back: an older one was given up, and the association of
    /// this generation may still execute it.
    pub(crate) fn hold(&mut self, generation: u64, span: Span) {
        if mutation::active(Mutation::HoldForgotten) {
            return;
        }
        self.held.push((generation, span));
    }

    /// Ends a hold: the older write is over, or its blocks are closed.
    pub(crate) fn let_go(&mut self, generation: u64, span: Span) {
        let this = (generation, span);
        if let Some(place) = self.held.iter().position(|&held| held == this) {
            self.held.swap_remove(place);
        }
    }

    /// Returns true if a new write of these blocks has to wait.
    pub(crate) fn holds(&self, span: Span) -> bool {
        self.held.iter().any(|(_, held)| held.overlaps(span))
    }

    /// Returns true if some new request may have to wait.
    #[inline]
    pub(crate) fn holds_any(&self) -> bool {
        !self.held.is_empty() || !self.suspended.is_empty()
    }

    /// Returns true if no block is fenced.
    pub(crate) fn is_open(&self) -> bool {
        self.closed.is_empty()
    }
}

#[cfg(test)]
mod tests;
