//! Incidents: crashes, replaced volumes, knob changes, and configuration changes.

use super::super::cast::Kind;
use super::super::plan::Incident;
use super::super::tenants::{Tenants, host_name};
use super::super::volume::Volume;
use super::{Machine, SUBSYSTEM};
use crate::application::Replacement;
use crate::knob_changes::random_position;
use crate::rights::Rights;
use base::{Nanos, Time};
use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;
use switch::Knobs;
use target::{Target, TargetError, Waiter, wait_by};

/// Maximum wait of a crash for the request that it is to interrupt.
const ZEROES_AT_MOST: Nanos = Nanos::from_millis(20);

impl Machine {
    /// Executes an incident.
    pub(in crate::check) fn meets(&mut self, incident: Incident) {
        self.end_taken_over();
        let now = self.world.now();
        let until = |pause| now + pause;
        match incident {
            Incident::CrashTarget {
                target,
                down,
                power,
                other,
            } => self.crash_target(target, down, power, other),
            Incident::TakeOver(target, way) => self.take_over(target, way),
            Incident::CrashHost(number) => self.crash_host(number),
            Incident::PauseTarget((target, core), pause) => {
                self.cast
                    .borrow_mut()
                    .pause_target(target, core, until(pause));
                self.count("pauses");
            }
            Incident::PauseHost(number, pause) => {
                self.cast.borrow_mut().hosts[number].hold(until(pause));
                self.count("pauses");
            }
            Incident::PauseHostCores {
                host,
                core,
                pause,
                lead,
            } => {
                self.cast
                    .borrow_mut()
                    .pause_host_cores(host, core, until(pause));
                self.count("pauses of cores");
                self.pass(lead);
            }
            Incident::AwaitZeroes(target, number) => self.await_zeroes(target, number),
            Incident::PauseThread {
                host,
                thread,
                pause,
            } => self.pause_thread(host, thread, until(pause)),
            Incident::KillThread { host, thread } => self.kill_thread(host, thread),
            Incident::JumpTarget(target, by) => {
                self.cast.borrow().jump_target(target, by);
                self.count("clock jumps");
            }
            Incident::JumpHost(number, by) => {
                self.cast.borrow().hosts[number].driver().jump_clock(by);
                self.count("clock jumps");
            }
            Incident::TurnKnobs(target) => self.turn_knobs(target),
            Incident::Resize((target, volume), permille) => self.resize(target, volume, permille),
            Incident::Remove {
                target,
                gone_for,
                other,
            } => self.remove(target, gone_for, other),
            Incident::ByHand(target, act) => self.acts_by_hand(target, act),
            Incident::RemoveSubsystem(target, gone_for) => self.remove_subsystem(target, gone_for),
            Incident::Deny((target, host), denied_for) => self.deny(target, host, denied_for),
            Incident::ChangeTenants(target) => self.change_tenants(target),
            Incident::ChangeKeys(place, change) => self.change_keys(place, change),
            Incident::Authenticate(place) => self.authenticate_again(place),
            Incident::Stranger(place, stranger) => self.meets_stranger(place, stranger),
        }
    }

    fn pause_thread(&mut self, host: usize, thread: usize, until: Time) {
        let is_paused = self.cast.borrow_mut().pause_thread(host, thread, until);
        if is_paused {
            self.count("pauses of threads with a path");
        }
    }

    pub(super) fn count(&mut self, kind: &'static str) {
        *self.incidents.entry(Cow::Borrowed(kind)).or_default() += 1;
    }

    /// Runs all actors until disks of a target have zeroed blocks for `number` commands.
    fn await_zeroes(&self, target: usize, number: u64) {
        let volumes = &self.known[target].volumes;
        let zeroed = || {
            volumes
                .iter()
                .map(|volume| volume.disk.totals().zeroed)
                .sum::<u64>()
        };
        let enough = zeroed() + number;
        let until = self.world.now() + ZEROES_AT_MOST;
        self.run_until(until, || zeroed() >= enough);
    }

    fn crash_target(&mut self, target: usize, down: Nanos, power: bool, other: bool) {
        let process = self.cast.borrow_mut().targets[target].take();
        drop(process);
        self.count("target crashes");
        let volumes = self.known[target].volumes.iter();
        volumes.for_each(Volume::lose_process);
        self.known[target].cache_life += u64::from(self.plan.has_pages());
        if power {
            self.count("power losses");
            self.known[target].cache_life += 1;
            // Hosts do not know which of its volumes were replaced before.
            let known = &self.known[target];
            let volumes = known.volumes.iter().chain(&known.replaced);
            volumes.for_each(Volume::lose_power);
            if target == 0 {
                self.liars_disk.lose_power();
            }
        }
        self.pass(down);
        if other {
            self.replace_volume(target, 0);
        }
        self.start_target(target);
    }

    /// Replaces a volume by another volume.
    fn replace_volume(&mut self, target: usize, place: usize) {
        self.count("other volumes");
        let volume = Volume::new(self.made, &self.plan, &mut self.prng);
        self.made += 1;
        let nsid = u32::try_from(place + 1).expect("a few");
        // Observers that identify the old volume by its size must learn the new size.
        volume.extent.begin();
        volume.extent.end(volume.extent.blocks());
        let by = Replacement {
            target,
            nsid,
            oracle: &volume.oracle,
            extent: &volume.extent,
        };
        let hosts = &mut self.cast.borrow_mut().hosts;
        hosts.iter_mut().for_each(|host| host.is_replaced(&by));
        let known = &mut self.known[target];
        let before = std::mem::replace(&mut known.volumes[place], volume);
        // Pages that could not be written back are lost with its cache.
        before.lose_process();
        known.replaced.push(before);
    }

    fn crash_host(&mut self, number: usize) {
        self.count("host crashes");
        self.replace_host(number);
    }

    /// Crashes a host, and starts another host for the rest of its work.
    pub(super) fn replace_host(&mut self, number: usize) {
        let crashed = self.cast.borrow_mut().hosts.remove(number);
        drop(crashed.kind);
        let mut applications = crashed.applications;
        self.hosts_made += 1;
        for application in &mut applications {
            let answered = application.report.borrow().answered;
            application.workload.requests -= answered;
            application.report = Rc::default();
            let place = application.nsid as usize - 1;
            let volume = &self.known[application.target].volumes[place];
            application.oracle = Some(Rc::clone(&volume.oracle));
            if let Some(law) = &mut application.law {
                law.extent = volume.extent.clone();
            }
            application.seed = self.prng.next_u64();
            application.host = self.hosts_made;
        }
        let host = self.host(number, applications);
        self.cast.borrow_mut().hosts.insert(number, host);
    }

    fn turn_knobs(&mut self, target: usize) {
        let cast = Rc::clone(&self.cast);
        let mut cast = cast.borrow_mut();
        let Some(process) = &mut cast.targets[target] else {
            return;
        };
        let turning = process.turning.as_ref();
        if turning.is_some_and(|turning| turning.poll().is_none()) {
            return;
        }
        let knobs = random_position(&mut self.prng, &process.shared.knobs());
        let change = process.shared.begin_knobs(knobs);
        process.turning = Some(change.expect("the position is valid"));
        self.count("knobs turned");
        // The cores of a switchboard follow.
        for host in &cast.hosts {
            if let Kind::Threads(host) = &host.kind
                && let Some(board) = &host.board
            {
                let knobs = random_position(&mut self.prng, &Knobs::default());
                // A stalled core may not take another message.
                let _ = board.set_knobs(&knobs);
            }
        }
    }

    /// Changes a target through its control plane while all actors run. Returns true on success.
    pub(super) fn change(
        &self,
        target: usize,
        what: impl FnOnce(&Target) -> Result<(), TargetError>,
    ) -> bool {
        self.change_by(target, self.waiter(), what)
    }

    /// Returns a waiter that runs all actors.
    pub(super) fn waiter(&self) -> Waiter {
        let (world, cast) = (self.world.clone(), Rc::clone(&self.cast));
        Box::new(move |done, timeout| {
            let until = world.now() + Nanos::from(timeout);
            let mut cast = cast.borrow_mut();
            world.run(&mut cast.actors(), until, done);
        })
    }

    /// Returns the process of a target.
    pub(super) fn running(&self, target: usize) -> Option<Arc<Target>> {
        let cast = self.cast.borrow();
        let process = cast.targets[target].as_ref();
        process.map(|process| Arc::clone(&process.shared))
    }

    /// Changes a target while this waiter runs all actors. Returns true on success.
    pub(super) fn change_by(
        &self,
        target: usize,
        waiter: Waiter,
        what: impl FnOnce(&Target) -> Result<(), TargetError>,
    ) -> bool {
        let Some(shared) = self.running(target) else {
            return false;
        };
        match wait_by(waiter, || what(&shared)) {
            Ok(()) => true,
            Err(TargetError::Undone(_) | TargetError::NotUndone(_)) => false,
            Err(error) => panic!("a change is refused: {error}"),
        }
    }

    fn resize(&mut self, target: usize, volume: usize, permille: u64) {
        if self.is_removed(target, volume) {
            return;
        }
        self.count("resized volumes");
        let blocks = (self.plan.blocks * permille / 1_000).max(1);
        let known = &self.known[target].volumes[volume];
        let gone = known.begin_resize(usize::try_from(blocks).expect("a small disk"));
        let nsid = u32::try_from(volume + 1).expect("a few");
        self.change(target, |t| t.resize_namespace(SUBSYSTEM, nsid, blocks));
        known.end_resize(gone);
    }

    pub(super) fn is_removed(&self, target: usize, volume: usize) -> bool {
        self.known[target].removed && volume + 1 == self.plan.volumes
    }

    fn remove(&mut self, target: usize, gone_for: Nanos, other: bool) {
        let nsid = u32::try_from(self.plan.volumes).expect("a few");
        if !self.change(target, |t| t.remove_namespace(SUBSYSTEM, nsid)) {
            return;
        }
        self.count("removed namespaces");
        self.known[target].removed = true;
        self.pass(gone_for);
        if other {
            self.replace_volume(target, self.plan.volumes - 1);
        }
        let volume = &self.known[target].volumes[self.plan.volumes - 1];
        let (options, dispatcher) = volume.as_namespace(nsid, || self.world.driver());
        if let Some(process) = &mut self.cast.borrow_mut().targets[target] {
            dispatcher
                .into_iter()
                .for_each(|dispatcher| process.add_dispatcher(dispatcher));
        }
        self.change_at_last(target, |t| t.add_namespace(SUBSYSTEM, options.clone()));
        self.known[target].removed = false;
    }

    /// Changes a target, with retries until it succeeds.
    fn change_at_last(&self, target: usize, what: impl Fn(&Target) -> Result<(), TargetError>) {
        while !self.change(target, &what) {
            self.pass(Nanos::from_secs(1));
        }
    }

    fn remove_subsystem(&mut self, target: usize, gone_for: Nanos) {
        if !self.change(target, |t| t.remove_subsystem(SUBSYSTEM)) {
            return;
        }
        self.count("removed subsystems");
        self.audits.borrow_mut()[target].tenants_change();
        self.pass(gone_for);
        let subsystem = self.subsystem();
        self.change_at_last(target, |t| t.add_subsystem(subsystem.clone()));
        let (namespaces, dispatchers) = {
            let audit = &mut self.audits.borrow_mut()[target];
            self.namespaces(target, audit)
        };
        if let Some(process) = &mut self.cast.borrow_mut().targets[target] {
            let dispatchers = dispatchers.into_iter();
            dispatchers.for_each(|dispatcher| process.add_dispatcher(dispatcher));
        }
        for options in namespaces {
            self.change_at_last(target, |t| t.add_namespace(SUBSYSTEM, options.clone()));
        }
    }

    fn deny(&mut self, target: usize, host: usize, denied_for: Nanos) {
        self.count("denied hosts");
        let name = host_name(host);
        let rights = self.known[target].rights[host].clone();
        let set = |banned| {
            for rights in &rights {
                rights.end(banned, rights.permits());
            }
        };
        rights.iter().for_each(Rights::begin);
        let denied = self.change(target, |t| t.deny_host(SUBSYSTEM, &name));
        // Its controllers end once every core has received the change: a core may be stalled.
        let now = self.world.now();
        let stands = self.cast.borrow().stands_until(target).max(now);
        self.pass(stands.since(now) + Nanos::from_secs(1));
        set(denied);
        self.pass(denied_for);
        rights.iter().for_each(Rights::begin);
        self.change(target, |t| t.allow_host(SUBSYSTEM, &name));
        set(false);
    }

    fn change_tenants(&mut self, target: usize) {
        self.count("changed tenants");
        self.audits.borrow_mut()[target].tenants_change();
        let volumes = self.plan.volumes;
        let blocks = self.plan.blocks;
        let tenants = Tenants::draw(&mut self.prng, self.plan.hosts, volumes, blocks);
        let known = &self.known[target];
        let all = || known.rights.iter().flatten();
        all().for_each(Rights::begin);
        let changed = self.change(target, |t| t.set_tenants(&tenants.tenancy()));
        for (host, volumes) in known.rights.iter().enumerate() {
            for (volume, rights) in volumes.iter().enumerate() {
                let permits = if changed {
                    tenants.permits(host, volume)
                } else {
                    rights.permits()
                };
                rights.end(rights.is_banned(), permits);
            }
        }
        if changed {
            self.known[target].tenants = tenants;
        }
    }
}
