//! The end of a run: all actors end, and all resources are freed.

use super::*;

/// Maximum lifetime of a disconnected host's controller beyond its keep-alive timeout: its core may
/// be stalled, or its device slow. The sum is less than the time until a silent cut breaks the
/// connection.
const OUTLIVES: Nanos = Nanos::from_secs(40);

/// Maximum time for which a connected host may use an outdated namespace size: notices wait for a
/// stalled core, and the host then reads lists and structures.
const HEARS_WITHIN: Nanos = Nanos::from_secs(60);

impl Machine {
    /// Checks, after all faults have ended, that each connected host learns the size of each
    /// namespace.
    pub(in crate::check) fn check_sizes(&self) {
        let cast = self.cast.borrow();
        let associations = cast.hosts.iter().flat_map(|host| {
            let each = host.associations().into_iter().enumerate();
            each.map(|(target, association)| (target, Arc::clone(association)))
        });
        let associations: Vec<_> = associations.collect();
        drop(cast);
        let wrong = || {
            let live = associations
                .iter()
                .filter(|(_, a)| a.phase() == Phase::Live);
            let mut known = live.flat_map(|(target, association)| {
                let namespaces = association.namespaces().into_iter();
                namespaces.map(|namespace| (*target, namespace.nsid, namespace.geometry.blocks))
            });
            known.find(|&(target, nsid, blocks)| {
                let volume = self.known[target].volumes.get(nsid as usize - 1);
                let is_removed = self.is_removed(target, nsid as usize - 1);
                !is_removed && volume.is_some_and(|volume| volume.blocks() != blocks)
            })
        };
        let until = self.world.now() + HEARS_WITHIN;
        let outcome = self.run_until(until, || wrong().is_none());
        assert_eq!(
            outcome,
            Outcome::Done,
            "a host believes in a size that a namespace has no more (target, NSID, blocks): {:?}; {}",
            wrong(),
            self.standing()
        );
    }

    /// Ends all actors, and checks that all resources are freed and every block has an allowed
    /// content.
    pub(in crate::check) fn end(&mut self, at_most: Nanos) {
        let until = self.world.now() + at_most;
        if let Some(liar) = &mut self.cast.borrow_mut().liar {
            // Earlier false data may still affect it; it ends like any other host and frees its
            // resources.
            self.world.tell_lies(liar.driver(), self.plan.lies, 0);
            liar.stop_asking();
        }
        loop {
            let over = {
                let cast = &mut *self.cast.borrow_mut();
                let hosts = cast.hosts.iter_mut().chain(&mut cast.liar);
                let left = hosts.filter_map(|host| (!host.leaves()).then_some(()));
                left.count() == 0
            };
            if over {
                break;
            }
            self.revive();
            let span = Nanos::from_secs(1);
            assert!(
                self.world.now() + span < until,
                "a host does not end: {}",
                self.standing()
            );
            self.pass(span);
        }
        while self.end_taken_over() > 0 {
            let span = Nanos::from_secs(1);
            assert!(
                self.world.now() + span < until,
                "a process that was taken over does not end"
            );
            self.pass(span);
        }
        let (targets, hosts) = {
            let mut cast = self.cast.borrow_mut();
            let mut hosts = std::mem::take(&mut cast.hosts);
            hosts.extend(cast.liar.take());
            (std::mem::take(&mut cast.targets), hosts)
        };
        hosts.iter().for_each(Host::check_end);
        drop(hosts);
        for (number, process) in targets.into_iter().enumerate() {
            let mut process = process.expect("every target runs");
            self.check_keep_alive(&mut process);
            self.end_target(&mut process, until);
            self.audits.borrow()[number].end();
        }
        self.end_orphans(&vec![(None, Time::ZERO); self.known.len()]);
        for known in &self.known {
            for volume in known.volumes.iter().chain(&known.replaced) {
                volume.check();
                volume.lose_power();
                volume.check();
            }
        }
    }

    /// Checks that controllers of hosts that have ended are removed, some by the keep-alive timeout
    /// alone.
    fn check_keep_alive(&self, target: &mut Process) {
        let hosts: Vec<_> = (0..self.plan.hosts).map(host_name).collect();
        let shared = Arc::clone(&target.shared);
        let left = move || {
            let mut controllers = shared.snapshot().controllers;
            controllers.retain(|controller| hosts.contains(&controller.host_nqn));
            controllers
        };
        let until = self.world.now() + self.plan.keep_alive + OUTLIVES;
        let outcome = self.run_target(target, until, || left().is_empty());
        assert_eq!(
            outcome,
            Outcome::Done,
            "controllers outlive their keep-alive time-out of {}: {:?}",
            self.plan.keep_alive,
            left()
        );
    }

    fn end_target(&self, target: &mut Process, until: Time) {
        let shared = Arc::clone(&target.shared);
        let empty = move || {
            let snapshot = shared.snapshot();
            snapshot.controllers.is_empty() && snapshot.cores.iter().all(|c| c.connections == 0)
        };
        let outcome = self.run_target(target, until, empty);
        let left = target.shared.snapshot();
        assert_eq!(
            outcome,
            Outcome::Done,
            "left over: {:?} {:?}",
            left.controllers,
            left.cores
        );
        for (core, buffers) in target.cores.iter().zip(&target.buffers) {
            assert_eq!(
                &core.driver.free_buffers(),
                buffers,
                "the target keeps buffers"
            );
        }
        // Counters are published periodically.
        let later = self.world.now() + Nanos::from_millis(200);
        self.run_target(target, later, || false);
        self.world.wait_until(later);
        target.shared.shutdown();
        while !target.cores.iter().all(|core| core.service.finished()) {
            let next = self.world.now() + Nanos::from_millis(100);
            assert!(next < until, "the target does not end");
            self.run_target(target, next, || false);
            self.world.wait_until(next);
        }
    }

    fn run_target(&self, target: &mut Process, until: Time, done: impl FnMut() -> bool) -> Outcome {
        let mut actors: Vec<_> = target.actors().collect();
        self.world.run(&mut actors, until, done)
    }
}
