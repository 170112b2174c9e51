//! A subsystem: namespaces, and the hosts that may see them.

use crate::namespace::{Namespace, NamespaceOptions};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Options of a subsystem.
#[derive(Clone, Debug)]
pub struct SubsystemOptions {
    /// Its NVMe Qualified Name.
    pub nqn: String,
    /// Serial number: up to 20 printable ASCII characters.
    pub serial: String,
    /// Model number: up to 40 printable ASCII characters.
    pub model: String,
    /// Every host may connect.
    pub allow_any_host: bool,
    /// The NQNs of the hosts that may connect otherwise.
    pub allowed_hosts: Vec<String>,
    /// Its namespaces; others may come later.
    pub namespaces: Vec<NamespaceOptions>,
    /// Life of its write caches, where it is another one than the
    /// [target's](crate::Limits::cache_life): for namespaces with devices that can lose what those of
    /// others keep.
    pub cache_life: Option<u64>,
}

impl SubsystemOptions {
    /// A subsystem that every host may use.
    #[must_use]
    pub fn open_to_all(nqn: &str) -> Self {
        Self {
            nqn: nqn.to_owned(),
            serial: serial_of(nqn),
            model: "Switchyard".to_owned(),
            allow_any_host: true,
            allowed_hosts: Vec::new(),
            namespaces: Vec::new(),
            cache_life: None,
        }
    }
}

/// A serial number that is always the same for the same name (FNV-1a).
#[must_use]
pub fn serial_of(nqn: &str) -> String {
    let hash = nqn.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("SW{hash:016X}")
}

/// A subsystem as all cores share it.
#[derive(Debug)]
pub(crate) struct Subsystem {
    /// Index by which every core keeps its part.
    pub(crate) index: u32,
    pub(crate) nqn: String,
    pub(crate) serial: String,
    pub(crate) model: String,
    changing: Mutex<Changing>,
}

/// The part of a subsystem that can change; read at Connect and by admin commands only.
#[derive(Debug)]
pub(crate) struct Changing {
    pub(crate) allow_any_host: bool,
    pub(crate) allowed_hosts: BTreeSet<String>,
    pub(crate) namespaces: BTreeMap<u32, Arc<Namespace>>,
    /// The life of its write caches, where it is another one than the
    /// [target's](crate::Limits::cache_life).
    pub(crate) cache_life: Option<u64>,
    /// The subsystem is being removed: no host connects any more.
    pub(crate) removed: bool,
}

impl Changing {
    /// Returns true if it is for every host, or for this one by name.
    fn names(&self, host_nqn: &str) -> bool {
        self.allow_any_host || self.allowed_hosts.contains(host_nqn)
    }
}

impl Subsystem {
    /// Returns a subsystem with its namespaces, for so many cores.
    pub(crate) fn new(index: u32, options: SubsystemOptions, cores: usize) -> Self {
        let namespaces = options.namespaces.into_iter();
        let namespaces = namespaces.map(|options| Arc::new(Namespace::new(options, cores)));
        Self {
            index,
            nqn: options.nqn,
            serial: options.serial,
            model: options.model,
            changing: Mutex::new(Changing {
                allow_any_host: options.allow_any_host,
                allowed_hosts: options.allowed_hosts.into_iter().collect(),
                namespaces: namespaces.map(|n| (n.nsid(), n)).collect(),
                cache_life: options.cache_life,
                removed: false,
            }),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Changing> {
        // Every change is a single insertion or removal, so a poisoned lock is still good.
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn allows(&self, host_nqn: &str) -> bool {
        let changing = self.lock();
        !changing.removed && changing.names(host_nqn)
    }

    /// Returns true if a host may not use it that could while it is not removed: commands to one
    /// that is removed are answered first.
    pub(crate) fn denies(&self, host_nqn: &str) -> bool {
        let changing = self.lock();
        !changing.removed && !changing.names(host_nqn)
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
}
