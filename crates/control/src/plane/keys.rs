//! Keys of hosts: those of the files that the configuration names, and those that the interface added.

use crate::host_keys::{AddedKeys, KnownKeys, now};
use config::ApplyError;
use config::schema::{Host, HostTls};
use secure::{HostKeys, KeyRing};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use target::Target;
use transport::key_file::{KeyFileError, chap_secrets, tls_keys};

/// The keys of hosts.
#[derive(Debug)]
pub(super) struct Keys {
    /// The folder of the files.
    folder: PathBuf,
    /// Keys of every allowed host.
    any: HostKeys,
    known: Mutex<Known>,
}

#[derive(Clone, Debug, Default)]
struct Known {
    hosts: Vec<Host>,
    /// The content of their files.
    of_files: BTreeMap<String, KnownKeys>,
    added: AddedKeys,
}

impl Keys {
    pub(super) fn new(folder: PathBuf, any: HostKeys) -> Self {
        Self {
            folder,
            any,
            known: Mutex::default(),
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // Each field is replaced as a whole.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the files of hosts, and makes all keys valid for new connections.
    pub(super) fn set_hosts(&self, hosts: &[Host], target: &Target) -> Result<(), ApplyError> {
        let mut known = self.known();
        known.of_files = self.read(hosts, &known)?;
        known.hosts = hosts.to_vec();
        self.publish(&known, target);
        Ok(())
    }

    /// Reads the files again.
    pub(super) fn read_again(&self, target: &Target) -> Result<(), ApplyError> {
        let mut known = self.known();
        known.of_files = self.read(&known.hosts, &known)?;
        self.publish(&known, target);
        Ok(())
    }

    /// Replaces the keys that the interface added.
    pub(super) fn set_added(&self, added: &AddedKeys, target: &Target) {
        let mut known = self.known();
        known.added = added.clone();
        self.publish(&known, target);
    }

    /// Returns the keys of files by host.
    pub(super) fn of_files(&self) -> BTreeMap<String, KnownKeys> {
        self.known().of_files.clone()
    }

    fn read(
        &self,
        hosts: &[Host],
        before: &Known,
    ) -> Result<BTreeMap<String, KnownKeys>, ApplyError> {
        let now = now();
        let read = hosts.iter().map(|host| {
            let keys = self.read_host(host).map_err(|error| {
                ApplyError::invalid(
                    format!("host {:?}: {error}", host.nqn),
                    "correct the file, or name another one of the folder `keys`",
                )
            })?;
            let same = before.of_files.get(&host.nqn);
            let same = same.filter(|before| before.keys == keys);
            let since_unix_ms = same.map_or(now, |before| before.since_unix_ms);
            let keys = KnownKeys {
                keys,
                since_unix_ms,
            };
            Ok((host.nqn.clone(), keys))
        });
        read.collect()
    }

    fn read_host(&self, host: &Host) -> Result<HostKeys, KeyFileError> {
        let mut keys = HostKeys::default();
        for file in &host.tls_keys {
            keys.tls.extend(tls_keys(&self.folder.join(file))?);
        }
        for file in &host.chap_secrets {
            keys.chap.extend(chap_secrets(&self.folder.join(file))?);
        }
        if let Some(file) = &host.chap_controller_secret {
            let secrets = chap_secrets(&self.folder.join(file))?;
            keys.controller = secrets.into_iter().next();
        }
        Ok(keys)
    }

    fn publish(&self, known: &Known, target: &Target) {
        let (ring, tls_required) = self.merged(known);
        target.set_keys(ring);
        target.require_tls(tls_required);
    }

    /// Returns all keys, and the hosts that may connect only with TLS.
    fn merged(&self, known: &Known) -> (KeyRing, BTreeSet<String>) {
        let mut ring = KeyRing {
            hosts: BTreeMap::new(),
            any: self.any.clone(),
            ..KeyRing::default()
        };
        for (nqn, KnownKeys { keys, .. }) in known.of_files.iter().chain(&known.added.0) {
            let all = ring.hosts.entry(nqn.clone()).or_default();
            all.tls.extend(keys.tls.iter().cloned());
            all.chap.extend(keys.chap.iter().cloned());
            if keys.controller.is_some() {
                all.controller.clone_from(&keys.controller);
            }
        }
        let mut tls_required = BTreeSet::new();
        for host in &known.hosts {
            match host.tls {
                HostTls::Allowed => {}
                HostTls::Required => {
                    tls_required.insert(host.nqn.clone());
                }
                HostTls::Off => {
                    ring.without_tls.insert(host.nqn.clone());
                }
            }
        }
        (ring, tls_required)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use secure::TlsKey;
    use std::collections::BTreeSet;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;
    use target::Limits;

    const HOST: &str = "nqn.2026-11.io.example:db";
    const KEY: &str = "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:";

    fn host(tls: HostTls) -> [Host; 1] {
        [Host {
            nqn: HOST.to_owned(),
            tls_keys: ["db.key".to_owned()].into(),
            chap_secrets: BTreeSet::new(),
            chap_controller_secret: None,
            tls,
        }]
    }

    #[test]
    fn keys_of_files_and_added_ones_are_valid_together() {
        let folder = block::temporary_folder("keys");
        let file = folder.join("db.key");
        let write = |text: String| {
            std::fs::write(&file, text).expect("our folder");
            std::fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("our file");
        };
        write(format!("# old\n{KEY}\n"));
        let target = Target::new(Limits::default(), 1).expect("legal limits");
        let tls = TlsKey::parse(KEY).expect("a key");
        let any = HostKeys {
            tls: vec![tls],
            ..HostKeys::default()
        };
        let keys = Keys::new(folder, any);
        let count = || keys.merged(&keys.known()).0.tls(HOST).len();
        keys.set_hosts(&host(HostTls::Allowed), &target)
            .expect("a key");
        assert_eq!(count(), 1);
        let added = KnownKeys {
            keys: HostKeys {
                tls: vec![TlsKey::parse(KEY).expect("a key")],
                ..HostKeys::default()
            },
            since_unix_ms: 1,
        };
        keys.set_added(&AddedKeys([(HOST.to_owned(), added)].into()), &target);
        assert_eq!(count(), 2);
        let since = keys.of_files()[HOST].since_unix_ms;
        write("no key".to_owned());
        let error = keys.read_again(&target).expect_err("a bad file");
        assert!(error.to_string().contains("db.key: line 1: "), "{error}");
        assert_eq!(count(), 2, "those before stay");
        write(format!("{KEY}\n"));
        keys.read_again(&target).expect("a key");
        assert_eq!(keys.of_files()[HOST].since_unix_ms, since, "the same key");
        keys.set_hosts(&host(HostTls::Off), &target).expect("a key");
        assert_eq!(count(), 0, "nor the key of any host");
    }
}
