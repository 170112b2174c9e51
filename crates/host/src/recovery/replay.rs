//! The requests of one channel that were lost with a connection, and the decision when to send each
//! again.

use super::fences::{FenceSnapshot, ReplayPermission};
use super::range_locks::RangeLocks;
use crate::association::Association;
use crate::command::exchange::Exchange;
use crate::limits::{RETRY_DELAY, TIMEOUTS_PER_REQUEST_MAX};
use base::mutation::{self, Mutation};
use base::{Nanos, Time};
use block::{BlockError, Operation};
use std::collections::VecDeque;

/// A request that is to be sent again.
#[derive(Debug)]
pub(crate) struct Replay {
    pub(crate) exchange: Exchange,
    /// Generation of the association with which a write was lost; 0 if none of its commands can
    /// still take effect.
    pub(crate) lost_with: u64,
    /// Time from which it may be sent again.
    not_before: Time,
}

/// Decision about the oldest lost request.
#[derive(Debug)]
pub(crate) enum ReplayStep {
    /// There is none, or the requests that need not wait have been handled.
    Nothing,
    /// It waits for its fence, or for the replay margin.
    Wait,
    /// It is reported with this error.
    Report(Replay, BlockError),
    /// It is sent again.
    Send(Exchange),
}

/// Recovery state of one channel.
#[derive(Debug)]
pub(crate) struct Recovery {
    /// Generation of the association on which the lanes were last opened.
    pub(crate) joined: u64,
    fences: FenceSnapshot,
    /// Version of `fences`.
    version: u64,
    /// Requests that were lost with a connection or are to be sent again, oldest first.
    lost: VecDeque<Replay>,
    /// Time of the next decision about one of them, unless the fences or the association change.
    due: Time,
    /// Number of consecutive requests that had to wait since `due` was computed from all.
    waits: usize,
    /// Time from which lost writes may be sent.
    writes_at: Time,
    /// Time at which the controllers of all closed lanes must have ended by themselves.
    safe_at: Time,
    pub(crate) locks: RangeLocks,
}

impl Recovery {
    /// Creates the state of a channel that accepts `capacity` requests.
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            joined: 0,
            fences: FenceSnapshot::default(),
            version: 0,
            lost: VecDeque::with_capacity(capacity),
            due: Time::ZERO,
            waits: 0,
            writes_at: Time::ZERO,
            safe_at: Time::ZERO,
            locks: RangeLocks::with_capacity(capacity),
        }
    }

    /// Records that the lanes are opened on the association of this generation; lost writes may be
    /// sent from `writes_at` on.
    pub(crate) fn join(&mut self, generation: u64, writes_at: Time) {
        assert!(
            generation >= self.joined,
            "associations come one after the other"
        );
        self.joined = generation;
        self.writes_at = writes_at;
        self.due = Time::ZERO;
    }

    /// Records that the lanes are closed; their controller ends by itself by `safe_at`.
    pub(crate) fn leave(&mut self, safe_at: Time) {
        self.safe_at = self.safe_at.max(safe_at);
    }

    /// Returns the time at which the controllers of all closed lanes must have ended by themselves.
    pub(crate) const fn safe_at(&self) -> Time {
        self.safe_at
    }

    /// Updates the copy of the association's fences if they have changed.
    #[inline]
    pub(crate) fn refresh(&mut self, association: &Association) {
        if association.fence_version() != self.version {
            (self.version, self.fences) = association.fence_snapshot();
            self.due = Time::ZERO;
        }
    }

    /// Returns true if a new request would write blocks that an old write may still overwrite.
    #[inline]
    pub(crate) fn is_fenced(&self, exchange: &Exchange) -> bool {
        !self.fences.is_open() && exchange.written().any(|span| self.fences.closes(span))
    }

    /// Returns true if some new request may have to wait for an older write, or for its namespace.
    #[inline]
    pub(crate) fn has_rules(&self) -> bool {
        !self.locks.is_empty() || self.fences.holds_any()
    }

    /// Returns true if a new request has to wait for an older write, or for its namespace.
    pub(crate) fn holds_back(&self, exchange: &Exchange) -> bool {
        self.locks.blocks(exchange) || self.is_held(exchange) || self.is_suspended(exchange)
    }

    /// Returns true if a request is for a namespace that could not be identified.
    fn is_suspended(&self, exchange: &Exchange) -> bool {
        let nsid = exchange.nsid();
        nsid.is_some_and(|nsid| self.fences.suspends(nsid))
    }

    /// Returns true if an older write to blocks that it writes was given up, and may still be
    /// executed.
    #[inline]
    pub(crate) fn is_held(&self, exchange: &Exchange) -> bool {
        let held = |span| self.fences.holds(span);
        self.fences.holds_any() && exchange.written().any(held)
    }

    /// The requests that are to be sent again.
    pub(crate) fn lost_ones(&self) -> impl Iterator<Item = &Exchange> {
        self.lost.iter().map(|replay| &replay.exchange)
    }

    /// The same, to change their commands.
    pub(crate) fn lost_ones_mut(&mut self) -> impl Iterator<Item = &mut Exchange> {
        self.lost.iter_mut().map(|replay| &mut replay.exchange)
    }

    /// Replaces each request that is to be sent again by the result of `change`.
    pub(crate) fn replace_lost(&mut self, mut change: impl FnMut(Exchange) -> Vec<Exchange>) {
        for _ in 0..self.lost.len() {
            let Replay {
                exchange,
                lost_with,
                not_before,
            } = self.lost.pop_front().expect("there are as many");
            let in_its_place = change(exchange).into_iter().map(|exchange| Replay {
                exchange,
                lost_with,
                not_before,
            });
            self.lost.extend(in_its_place);
        }
    }

    /// Takes the first request matching `which` that is to be sent again. If an old command of it
    /// may still take effect although no fence shows that, it is kept, and `error` is reported once
    /// that is over.
    pub(crate) fn give_up(
        &mut self,
        now: Time,
        which: impl Fn(&Exchange) -> bool,
        error: BlockError,
    ) -> Option<Option<Replay>> {
        let place = self
            .lost
            .iter()
            .position(|replay| which(&replay.exchange))?;
        let exchange = &mut self.lost[place].exchange;
        if exchange.replayed && self.writes_at > now {
            exchange.given_up = Some(error);
            return Some(None);
        }
        Some(self.lost.remove(place))
    }

    /// Returns true if no request is to be sent again.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.lost.is_empty()
    }

    /// Returns the number of requests that are to be sent again.
    pub(crate) fn len(&self) -> usize {
        self.lost.len()
    }

    /// Appends a request that the controller asked to be sent again. It waits longer each time.
    pub(crate) fn retry(&mut self, mut exchange: Exchange, now: Time) {
        let delay = 1u64.checked_shl(exchange.retries.into()).unwrap_or(0) / 2;
        exchange.retries += 1;
        self.keep(Replay {
            exchange,
            lost_with: 0,
            not_before: now + Nanos(RETRY_DELAY.0 * delay),
        });
    }

    /// Puts a request that found no free lane first.
    pub(crate) fn push_front(&mut self, exchange: Exchange) {
        self.lost.push_front(Replay {
            exchange,
            lost_with: 0,
            not_before: Time::ZERO,
        });
        self.due = Time::ZERO;
    }

    /// Locks the range of a write that was lost with the association of the lanes.
    pub(crate) fn lost(&mut self, mut exchange: Exchange) -> Replay {
        let mut lost_with = 0;
        if exchange.operation().is_some_and(Operation::is_write) {
            if !exchange.replayed {
                if !mutation::active(Mutation::ReplayNotLocked) {
                    exchange.written().for_each(|span| self.locks.lock(span));
                }
                exchange.replayed = true;
            }
            lost_with = self.joined;
        }
        Replay {
            exchange,
            lost_with,
            not_before: Time::ZERO,
        }
    }

    /// Keeps a lost request until it may be sent again, or is reported. A write that is not sent
    /// again is kept too, because once it is reported, no command of it may take effect any more.
    pub(crate) fn keep(&mut self, replay: Replay) {
        self.due = self.due.min(self.not_before(&replay));
        self.lost.push_back(replay);
    }

    /// Takes the oldest lost request, even if it still waits.
    pub(crate) fn take(&mut self) -> Option<Replay> {
        self.lost.pop_front()
    }

    /// Decides about the oldest lost request, with the fences as last [refreshed](Self::refresh).
    /// `is_gone` returns true for requests of removed namespaces. Waiting requests are not checked
    /// again before one of them is due, because a controller may refuse a whole queue of commands.
    pub(crate) fn next(&mut self, now: Time, is_gone: impl Fn(&Exchange) -> bool) -> ReplayStep {
        if now < self.due {
            return ReplayStep::Nothing;
        }
        let Some(replay) = self.lost.pop_front() else {
            return ReplayStep::Nothing;
        };
        if is_gone(&replay.exchange) {
            return ReplayStep::Report(replay, BlockError::Gone);
        }
        let permission = self.fences.replay_permission(replay.lost_with);
        let waits = permission == ReplayPermission::Fenced || self.is_suspended(&replay.exchange);
        if waits || self.not_before(&replay) > now {
            self.lost.push_back(replay);
            self.waits += 1;
            if self.waits >= self.lost.len() {
                self.waits = 0;
                self.due = self.earliest();
            }
            return ReplayStep::Wait;
        }
        if permission == ReplayPermission::Overdue {
            return ReplayStep::Report(replay, BlockError::TimedOut);
        }
        if replay.exchange.timeouts > TIMEOUTS_PER_REQUEST_MAX {
            // Its fence is lowered: none of its commands can take effect any more.
            let replay = Replay {
                lost_with: 0,
                ..replay
            };
            return ReplayStep::Report(replay, BlockError::TimedOut);
        }
        ReplayStep::Send(replay.exchange)
    }

    /// Returns the time of the next decision about lost requests, or an earlier time at which
    /// [`next`](Self::next) checks all of them.
    pub(crate) fn deadline(&self) -> Time {
        if self.lost.is_empty() {
            Time::NEVER
        } else {
            self.due
        }
    }

    /// Returns the earliest time at which a lost request may be sent again, excluding those that
    /// wait for a fence or a namespace: a change of these wakes the channel.
    fn earliest(&self) -> Time {
        let free = self.lost.iter().filter(|replay| {
            self.fences.replay_permission(replay.lost_with) != ReplayPermission::Fenced
                && !self.is_suspended(&replay.exchange)
        });
        let times = free.map(|replay| self.not_before(replay));
        times.min().unwrap_or(Time::NEVER)
    }

    /// Returns the time from which a lost request may be sent again, regardless of its fence.
    fn not_before(&self, replay: &Replay) -> Time {
        let margin = if replay.exchange.replayed {
            self.writes_at
        } else {
            Time::ZERO
        };
        margin.max(replay.not_before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::nvme::Command;

    /// Requests decisions as a channel does. Returns the numbers of waiting and of sent requests.
    fn drain(recovery: &mut Recovery, now: Time) -> (usize, usize) {
        let (mut waiting, mut sent) = (0, 0);
        for _ in 0..recovery.len() {
            match recovery.next(now, |_| false) {
                ReplayStep::Nothing => break,
                ReplayStep::Wait => waiting += 1,
                ReplayStep::Send(_) => sent += 1,
                ReplayStep::Report(..) => panic!("nothing was lost with a connection"),
            }
        }
        (waiting, sent)
    }

    /// Each refused command, each answer and each turn scanned all waiting requests.
    #[test]
    fn requests_that_wait_for_their_time_are_looked_at_once() {
        let count = 1024;
        let mut recovery = Recovery::new(count);
        let now = Time::ZERO + RETRY_DELAY;
        let mut looks = 0;
        for tag in 0..count as u64 {
            let mut exchange = Exchange::admin(tag, Command::new(0x06, 0), None);
            exchange.retries = 1;
            recovery.retry(exchange, now);
            looks += drain(&mut recovery, now).0;
        }
        for _ in 0..count {
            looks += drain(&mut recovery, now).0;
        }
        assert!(looks <= 2 * count, "{looks}");
        assert_eq!(recovery.deadline(), now + RETRY_DELAY);
        let later = recovery.deadline();
        assert_eq!(drain(&mut recovery, later), (0, count));
        assert_eq!(recovery.deadline(), Time::NEVER);
    }
}
