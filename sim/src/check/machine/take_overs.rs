//! Take-overs of a target by another process, in the steps of the control plane
//! (docs/design/decisions/0028-takeover.md).

use super::super::plan::TakeOver;
use super::super::volume::Volume;
use super::Machine;
use crate::world::Outcome;
use base::{Nanos, Time};
use block::Cache;
use reactor::Service as _;
use std::sync::Arc;
use std::time::Duration;
use target::{Handed, Target, wait_by};

/// Time in which a target releases its connections, and in which caches write the remainder back.
const PATIENCE: Duration = Duration::from_secs(5);

/// Time in which caches write back before, and the pages that each may leave.
const DRAIN: Duration = Duration::from_secs(10);
const DIRTY_MAX: u32 = 4;

/// Time after which a core that is not stalled has served connections again.
const AGAIN: Nanos = Nanos::from_secs(1);

/// Whether the process of a target has all its connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Serving {
    /// It has.
    #[default]
    All,
    /// Another process is taking it over.
    Departing,
    /// It has them again once no core is stalled.
    Again,
}

impl Machine {
    /// Returns the time from which the process of a target, of which no core is stalled from
    /// `stands` on, has all its connections.
    pub(super) fn serves_all_from(&self, target: usize, stands: Time) -> Time {
        let serving = &self.known[target].serving;
        match serving.get() {
            Serving::All => Time::ZERO,
            Serving::Departing => Time::NEVER,
            Serving::Again if stands + AGAIN < self.world.now() => {
                serving.set(Serving::All);
                Time::ZERO
            }
            Serving::Again => self.world.now().max(stands) + AGAIN,
        }
    }

    /// Has a target taken over by another process, or not.
    pub(super) fn take_over(&mut self, target: usize, way: TakeOver) {
        let Some(running) = self.running(target) else {
            return;
        };
        if let TakeOver::Silent(core, pause) = way {
            let until = self.world.now() + pause;
            self.cast.borrow_mut().pause_target(target, core, until);
        }
        let volumes = &self.known[target].volumes;
        let caches: Vec<_> = volumes.iter().map(|it| it.replace_cache(None)).collect();
        let drain = |drains| {
            let caches = caches.iter().flatten();
            caches.for_each(|cache| cache.set_draining(drains));
        };
        drain(true);
        let (successor, audit) = self.process(target, running.limits().clone(), true);
        let next = Arc::clone(&successor.shared);
        self.cast.borrow_mut().beside.push(successor);
        self.written_back(&caches, DIRTY_MAX, DRAIN);
        self.known[target].serving.set(Serving::Departing);
        let is_taken = self.hand_over(target, &caches, &next, way);
        self.known[target].serving.set(Serving::Again);
        let mut cast = self.cast.borrow_mut();
        let successor = cast.beside.pop();
        if is_taken {
            running.shutdown();
            let before = std::mem::replace(&mut cast.targets[target], successor);
            cast.beside.extend(before);
            drop(cast);
            self.set_audit(target, audit);
            self.count("take-overs");
        } else {
            drop(cast);
            drop(successor);
            let volumes = self.known[target].volumes.iter();
            let put_back = |(volume, cache): (&Volume, &Option<Cache>)| {
                volume.replace_cache(cache.clone());
            };
            volumes.zip(&caches).for_each(put_back);
            drain(false);
            // Commands that waited for tokens were executed without.
            self.audits.borrow_mut()[target].tenants_change();
            self.count("failed take-overs");
        }
    }

    /// Hands the connections of a target to another process. Returns false if the running one serves
    /// them again.
    fn hand_over(
        &self,
        target: usize,
        caches: &[Option<Cache>],
        next: &Arc<Target>,
        way: TakeOver,
    ) -> bool {
        let mut handed = None;
        self.change(target, |it| {
            handed = Some(it.depart(PATIENCE)?);
            Ok(())
        });
        let Some(handed) = handed else { return false };
        let is_written = self.written_back(caches, 0, PATIENCE);
        let handed = in_bytes(handed);
        if way == TakeOver::Refused {
            next.set_listeners(&[]);
            let refused = next.check_handed(&handed);
            refused.expect_err("listeners that it does not have");
        }
        if !is_written || matches!(way, TakeOver::Refused | TakeOver::Killed) {
            self.change(target, |it| it.take_over(handed));
            return false;
        }
        next.check_handed(&handed).expect("the same target");
        // It serves them later if it does not in time.
        let _ = wait_by(self.waiter(), || next.take_over(handed));
        true
    }

    /// Waits until no cache has more than `most` pages to write back. Returns false if one has.
    fn written_back(&self, caches: &[Option<Cache>], most: u32, patience: Duration) -> bool {
        let dirty = |cache: &Cache| cache.snapshot().dirty > most;
        let done = || !caches.iter().flatten().any(dirty);
        let until = self.world.now() + Nanos::from(patience);
        done() || self.run_until(until, done) == Outcome::Done
    }

    /// Ends the processes that were taken over and have nothing left. Returns the number of others.
    pub(super) fn end_taken_over(&self) -> usize {
        let beside = &mut self.cast.borrow_mut().beside;
        beside.retain(|process| {
            let ends = process.cores.iter().all(|core| core.service.finished());
            for (core, buffers) in process.cores.iter().zip(&process.buffers).filter(|_| ends) {
                let (free, open) = (core.driver.free_buffers(), core.driver.open_sockets());
                assert_eq!((&free, open), (buffers, 0), "a process keeps something");
            }
            !ends
        });
        beside.len()
    }
}

/// Passes the state of the connections on as another process receives it.
fn in_bytes(handed: Handed) -> Handed {
    let (state, bytes) = {
        let (state, bytes) = handed.state();
        (serde_json::to_vec(&state).expect("a state"), bytes)
    };
    let state = serde_json::from_slice(&state).expect("the same state");
    Handed::join(state, &bytes, handed.into_sockets()).expect("they fit")
}
