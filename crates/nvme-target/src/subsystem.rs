//! A subsystem: its namespaces, and the hosts that may access them.

use crate::authentication::Authentication;
use crate::namespace::{Namespace, NamespaceOptions, Volume};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use wire::nvme::ana::AnaState;

/// Options of a subsystem.
#[derive(Clone, Debug)]
pub struct SubsystemOptions {
    /// NVMe Qualified Name of the subsystem.
    pub nqn: String,
    /// Serial number: up to 20 printable ASCII characters.
    pub serial: String,
    /// Model number: up to 40 printable ASCII characters.
    pub model: String,
    /// Every host may connect.
    pub allow_any_host: bool,
    /// The NQNs of the hosts that may connect if not every host may.
    pub allowed_hosts: Vec<String>,
    /// The proofs of their names that hosts have to give.
    pub authentication: Authentication,
    /// The initial namespaces; more can be added later.
    pub namespaces: Vec<NamespaceOptions>,
    /// Life of its write caches if it differs from the [target's](crate::Limits::cache_life): for
    /// namespaces on devices that can lose data which devices of other namespaces keep.
    pub cache_life: Option<u64>,
    /// State of the ANA groups without a state in `ana_groups`.
    pub ana_state: AnaState,
    /// States of ANA groups.
    pub ana_groups: BTreeMap<u32, AnaState>,
}

impl SubsystemOptions {
    /// Returns the options of a subsystem that every host may use.
    #[must_use]
    pub fn open_to_all(nqn: &str) -> Self {
        Self {
            nqn: nqn.to_owned(),
            serial: serial_of(nqn),
            model: "Switchyard".to_owned(),
            allow_any_host: true,
            allowed_hosts: Vec::new(),
            authentication: Authentication::default(),
            namespaces: Vec::new(),
            cache_life: None,
            ana_state: AnaState::Optimized,
            ana_groups: BTreeMap::new(),
        }
    }
}

/// Returns a serial number derived from the name, always the same (FNV-1a hash).
#[must_use]
pub fn serial_of(nqn: &str) -> String {
    let hash = nqn.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("SW{hash:016X}")
}

/// The part of a subsystem that all cores share.
#[derive(Debug)]
pub(crate) struct Subsystem {
    /// Index of the subsystem on every core.
    pub(crate) index: u32,
    pub(crate) nqn: String,
    pub(crate) serial: String,
    pub(crate) model: String,
    changing: Mutex<Changing>,
}

/// The states of a subsystem's ANA groups. `[NVMe Base 2.0 §8.1]`
#[derive(Debug)]
pub(crate) struct AnaGroups {
    /// State of all other groups.
    usual: AnaState,
    /// Each group with its state, and the number of its last change.
    groups: BTreeMap<u32, (AnaState, u64)>,
    /// Number of changes so far.
    pub(crate) changes: u64,
}

impl AnaGroups {
    fn new(usual: AnaState, groups: BTreeMap<u32, AnaState>) -> Self {
        let groups = groups.into_iter();
        Self {
            usual,
            groups: groups.map(|(group, state)| (group, (state, 0))).collect(),
            changes: 0,
        }
    }

    /// Returns the state of a group, and the number of its last change.
    pub(crate) fn get(&self, group: u32) -> (AnaState, u64) {
        self.groups.get(&group).copied().unwrap_or((self.usual, 0))
    }

    /// Sets the state of a group.
    pub(crate) fn set(&mut self, group: u32, state: AnaState) {
        self.changes += 1;
        self.groups.insert(group, (state, self.changes));
    }

    /// The namespaces of a group changed: the log page does.
    pub(crate) fn touch(&mut self, group: u32) {
        self.set(group, self.get(group).0);
    }
}

/// A removed namespace of a subsystem.
#[derive(Clone, Copy, Debug)]
struct Former {
    volume: Volume,
    incarnation: u32,
    read_only: bool,
    /// The subsystem's [`changes`](Changing::changes) at its removal.
    removal: u32,
}

/// The mutable part of a subsystem; used only at Connect and by admin commands.
#[derive(Debug)]
pub(crate) struct Changing {
    pub(crate) allow_any_host: bool,
    pub(crate) allowed_hosts: BTreeSet<String>,
    pub(crate) authentication: Authentication,
    pub(crate) namespaces: BTreeMap<u32, Arc<Namespace>>,
    /// The last removed namespace of each unused identifier.
    former: BTreeMap<u32, Former>,
    /// Number of namespace additions and removals so far.
    changes: u32,
    /// Controllers created before this number of changes know an identifier that now refers to a
    /// different volume.
    oldest: u32,
    /// The life of its write caches if it differs from the [target's](crate::Limits::cache_life).
    pub(crate) cache_life: Option<u64>,
    pub(crate) ana: AnaGroups,
    /// The subsystem is being removed: no host may connect.
    pub(crate) removed: bool,
}

/// An [announced](Changing::announce) namespace: the value of `oldest` before the announcement.
#[derive(Debug)]
pub(crate) struct Announcement(u32);

impl Changing {
    /// Returns true if the subsystem allows every host, or this one by name.
    fn names(&self, host_nqn: &str) -> bool {
        self.allow_any_host || self.allowed_hosts.contains(host_nqn)
    }

    /// Returns the number of changes so far: the age of a controller created now.
    pub(crate) const fn changes(&self) -> u32 {
        self.changes
    }

    /// Returns the incarnation of a new namespace: that of its predecessor if the volume and its
    /// write protection are the same.
    pub(crate) fn incarnation(&mut self, namespace: &Namespace) -> u32 {
        self.changes += 1;
        let (volume, read_only) = (namespace.volume(), namespace.read_only());
        let former = self.former.get(&namespace.nsid());
        let same = former.filter(|former| (former.volume, former.read_only) == (volume, read_only));
        same.map_or(self.changes, |former| former.incarnation)
    }

    /// Announces a namespace that is about to be added. If its identifier referred to a different
    /// volume, controllers created before that volume's removal are superseded, because their hosts
    /// mean that volume. Returns the value that undoes this.
    pub(crate) fn announce(&mut self, namespace: &Namespace) -> Announcement {
        let former = self.former.get(&namespace.nsid());
        let other = former.filter(|former| former.volume != namespace.volume());
        let oldest = other.map_or(self.oldest, |former| self.oldest.max(former.removal));
        Announcement(std::mem::replace(&mut self.oldest, oldest))
    }

    /// Undoes an announcement, because the namespace was not added and no core has it.
    pub(crate) const fn withdraw(&mut self, announcement: Announcement) {
        self.oldest = announcement.0;
    }

    /// Adds a namespace.
    pub(crate) fn add(&mut self, namespace: Arc<Namespace>) {
        self.former.remove(&namespace.nsid());
        self.ana.touch(namespace.options.ana_group);
        self.namespaces.insert(namespace.nsid(), namespace);
    }

    /// Removes a namespace that no core has any more.
    pub(crate) fn forget(&mut self, namespace: &Namespace) {
        self.changes += 1;
        self.ana.touch(namespace.options.ana_group);
        let former = Former {
            volume: namespace.volume(),
            incarnation: namespace.incarnation,
            read_only: namespace.read_only(),
            removal: self.changes,
        };
        self.former.insert(namespace.nsid(), former);
    }
}

impl Subsystem {
    /// Creates a subsystem with its namespaces, for `cores` cores.
    pub(crate) fn new(index: u32, options: SubsystemOptions, cores: usize) -> Self {
        let ana = AnaGroups::new(options.ana_state, options.ana_groups);
        let namespaces = options.namespaces.into_iter();
        let namespaces = namespaces.map(|options| {
            let (state, _) = ana.get(options.ana_group);
            Arc::new(Namespace::new(options, state, cores))
        });
        let namespaces = namespaces.map(|n| (n.nsid(), n)).collect();
        Self {
            index,
            nqn: options.nqn,
            serial: options.serial,
            model: options.model,
            changing: Mutex::new(Changing {
                allow_any_host: options.allow_any_host,
                allowed_hosts: options.allowed_hosts.into_iter().collect(),
                authentication: options.authentication,
                namespaces,
                former: BTreeMap::new(),
                changes: 0,
                oldest: 0,
                cache_life: options.cache_life,
                ana,
                removed: false,
            }),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Changing> {
        // Every change is a single insertion or removal, so the data of a poisoned lock is still
        // valid.
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn allows(&self, host_nqn: &str) -> bool {
        let changing = self.lock();
        !changing.removed && changing.names(host_nqn)
    }

    /// Returns true if the host list excludes a host. The removal of the subsystem does not count:
    /// commands to a removed subsystem are answered first.
    pub(crate) fn denies(&self, host_nqn: &str) -> bool {
        let changing = self.lock();
        !changing.removed && !changing.names(host_nqn)
    }

    /// Returns true if a controller created after `changes` changes is superseded, because an
    /// identifier that its host knows now refers to a different volume.
    pub(crate) fn supersedes(&self, changes: u32) -> bool {
        changes < self.lock().oldest
    }

    pub(crate) fn namespace(&self, nsid: u32) -> Option<Arc<Namespace>> {
        self.lock().namespaces.get(&nsid).cloned()
    }

    pub(crate) fn namespaces(&self) -> Vec<Arc<Namespace>> {
        self.lock().namespaces.values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_allowed_hosts_pass_and_nobody_after_removal() {
        let mut options = SubsystemOptions::open_to_all("nqn.2026-11.io.example:a");
        options.allow_any_host = false;
        options.allowed_hosts.push("nqn.host".to_owned());
        let subsystem = Subsystem::new(0, options, 1);
        assert!(subsystem.allows("nqn.host") && !subsystem.denies("nqn.host"));
        assert!(!subsystem.allows("nqn.other") && subsystem.denies("nqn.other"));
        subsystem.lock().allow_any_host = true;
        assert!(subsystem.allows("nqn.other"));
        subsystem.lock().removed = true;
        assert!(!subsystem.allows("nqn.host") && !subsystem.denies("nqn.host"));
        assert!(subsystem.serial.len() <= 20);
    }

    fn namespace(nsid: u32, uuid: u8, read_only: bool) -> Namespace {
        let ram = block::device::Ram::new(4096, 4096).expect("4 KiB");
        let options = NamespaceOptions {
            nsid,
            device: Arc::new(ram),
            uuid: [uuid; 16],
            nguid: [0; 16],
            eui64: [0; 8],
            read_only,
            ana_group: 1,
            qos: None,
        };
        Namespace::new(options, AnaState::Optimized, 1)
    }

    /// Adds and removes a namespace. Returns its incarnation, and the age of a controller created
    /// in between.
    fn pass(subsystem: &Subsystem, mut namespace: Namespace) -> (u32, u32) {
        let mut changing = subsystem.lock();
        namespace.incarnation = changing.incarnation(&namespace);
        changing.announce(&namespace);
        let namespace = Arc::new(namespace);
        changing.add(Arc::clone(&namespace));
        let age = changing.changes();
        changing.namespaces.remove(&namespace.nsid());
        changing.forget(&namespace);
        (namespace.incarnation, age)
    }

    #[test]
    fn controllers_are_over_when_an_identifier_that_they_know_is_another_volumes() {
        let subsystem = Subsystem::new(
            0,
            SubsystemOptions::open_to_all("nqn.2026-11.io.example:a"),
            1,
        );
        let (first, old) = pass(&subsystem, namespace(1, 1, false));
        let (again, _) = pass(&subsystem, namespace(1, 1, false));
        assert_eq!(again, first, "the same volume");
        let (read_only, _) = pass(&subsystem, namespace(1, 1, true));
        assert_ne!(read_only, first, "no write goes on");
        pass(&subsystem, namespace(2, 2, false));
        assert!(!subsystem.supersedes(old), "no identifier is another's");
        let between = subsystem.lock().changes();
        let (other, age) = pass(&subsystem, namespace(1, 3, false));
        assert!(![first, read_only].contains(&other));
        assert!(subsystem.supersedes(old));
        assert!(!subsystem.supersedes(between) && !subsystem.supersedes(age));
        // The first namespace comes back: controllers created in the meantime refer to the second
        // one.
        pass(&subsystem, namespace(1, 1, false));
        assert!(subsystem.supersedes(between) && subsystem.supersedes(age));
    }
}
