//! States of ANA groups in the target, and what is made durable before another target serves.

use super::{Plane, refused};
use crate::ana::{AnaGroup, to_wire};
use crate::limits::{TAKEOVER_DIRTY_MAX, TAKEOVER_DRAIN, TAKEOVER_PATIENCE};
use config::ApplyError;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;
use target::AnaState as WireState;
use target::TargetError;

impl Plane {
    /// Keeps the states of ANA groups for subsystems that are added later.
    pub(super) fn remember_ana(&self, groups: &[AnaGroup]) {
        let locked = self.ana.lock();
        *locked.unwrap_or_else(PoisonError::into_inner) = groups.to_vec();
    }

    /// Keeps the state of an ANA group, for its subsystem if that is removed and added again.
    fn remember_one(&self, set: &AnaGroup) {
        let locked = self.ana.lock();
        let mut groups = locked.unwrap_or_else(PoisonError::into_inner);
        groups.retain(|it| (&it.nqn, it.group) != (&set.nqn, set.group));
        groups.push(set.clone());
    }

    /// Returns the states of a subsystem's ANA groups that were kept.
    pub(super) fn ana_before(&self, nqn: &str) -> BTreeMap<u32, WireState> {
        let locked = self.ana.lock();
        let groups = locked.unwrap_or_else(PoisonError::into_inner);
        let of_it = groups.iter().filter(|it| it.nqn == nqn);
        of_it.map(|it| (it.group, to_wire(it.state))).collect()
    }

    /// Sets the state of an ANA group. The caches of its devices write back before and in the pause.
    pub(super) fn set_ana_state(&self, set: &AnaGroup) -> Result<(), ApplyError> {
        let AnaGroup { nqn, group, .. } = set;
        let state = to_wire(set.state);
        let names = if state.is_accessible() {
            BTreeSet::new()
        } else {
            self.devices_of(nqn, *group)
        };
        self.drain_caches(Some(&names), true);
        let few = self.wait_for_caches(Some(&names), TAKEOVER_DIRTY_MAX, TAKEOVER_DRAIN);
        let write_back = || {
            let written = self.wait_for_caches(Some(&names), 0, TAKEOVER_PATIENCE);
            let durable = written.and_then(|()| self.make_durable(&names));
            durable.map_err(TargetError::Undone)
        };
        let done = few
            .map_err(TargetError::Undone)
            .and_then(|()| self.target.set_ana_state(nqn, *group, state, write_back));
        self.drain_caches(Some(&names), false);
        done.map_err(refused)?;
        self.remember_one(set);
        Ok(())
    }

    /// Returns the names of the devices of an ANA group.
    fn devices_of(&self, nqn: &str, group: u32) -> BTreeSet<String> {
        let opened = self.opened();
        let users = opened.users.iter();
        let users = users.filter(|((owner, _), user)| owner == nqn && user.ana_group == group);
        users.map(|(_, user)| user.device.clone()).collect()
    }

    fn make_durable(&self, names: &BTreeSet<String>) -> Result<(), String> {
        let devices: Vec<_> = {
            let opened = self.opened();
            let found = names.iter().filter_map(|name| {
                let device = opened.devices.get(name)?.innermost.upgrade()?;
                Some((name.clone(), device))
            });
            found.collect()
        };
        devices.into_iter().try_for_each(|(name, device)| {
            let durable = device.make_durable();
            durable
                .map_err(|error| format!("device {name:?} cannot make its writes durable: {error}"))
        })
    }
}
