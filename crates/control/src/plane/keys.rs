//! Keys of hosts: those of the files that the configuration names, and those that the interface added.

use crate::host_keys::{AddedKeys, KnownKeys, now};
use config::ApplyError;
use config::schema::{Configuration, Host, HostTls};
use secure::{HostKeys, KeyRing};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::UNIX_EPOCH;
use target::Target;
use transport::key_file::{KeyFileError, chap_secrets, tls_keys};

/// The files with keys of every allowed host that has none of its own.
#[derive(Clone, Debug, Default)]
pub(super) struct FilesOfAny {
    tls: Option<PathBuf>,
    chap: Option<PathBuf>,
    controller: Option<PathBuf>,
}

impl FilesOfAny {
    /// Returns those of the configuration.
    pub(super) fn of(configuration: &Configuration) -> Self {
        Self {
            tls: configuration.tls_key.clone(),
            chap: configuration.chap_secret.clone(),
            controller: configuration.chap_controller_secret.clone(),
        }
    }

    /// Returns the time of the oldest one's last change, in milliseconds since 1970.
    fn oldest_ms(&self) -> Option<u64> {
        let files = [&self.tls, &self.chap, &self.controller];
        oldest_ms(files.into_iter().flatten().map(PathBuf::as_path))
    }

    fn read(&self) -> Result<HostKeys, KeyFileError> {
        let secrets = |path: &Option<PathBuf>| path.as_deref().map(chap_secrets).transpose();
        Ok(HostKeys {
            tls: self
                .tls
                .as_deref()
                .map(tls_keys)
                .transpose()?
                .unwrap_or_default(),
            chap: secrets(&self.chap)?.unwrap_or_default(),
            controller: secrets(&self.controller)?.into_iter().flatten().next(),
        })
    }
}

/// Returns the time of the last change of the file that has not been changed for longest, in
/// milliseconds since 1970.
fn oldest_ms(files: impl IntoIterator<Item = impl AsRef<Path>>) -> Option<u64> {
    let changed = files.into_iter().filter_map(|file| {
        let changed = std::fs::metadata(file).ok()?.modified().ok()?;
        let since = changed.duration_since(UNIX_EPOCH).ok()?;
        u64::try_from(since.as_millis()).ok()
    });
    changed.min()
}

/// The keys of hosts.
#[derive(Debug, Default)]
pub(super) struct Keys {
    /// The folder of the files.
    folder: PathBuf,
    any: FilesOfAny,
    known: Mutex<Known>,
}

#[derive(Clone, Debug, Default)]
struct Known {
    hosts: Vec<Host>,
    /// Keys of every allowed host.
    any: HostKeys,
    /// Time since which the oldest of them is known, in milliseconds since 1970.
    any_since_ms: Option<u64>,
    /// The content of their files.
    of_files: BTreeMap<String, KnownKeys>,
    added: AddedKeys,
}

impl Keys {
    /// Reads the files with keys of every allowed host.
    pub(super) fn new(folder: PathBuf, any: FilesOfAny) -> Result<Self, KeyFileError> {
        let known = Known {
            any: any.read()?,
            any_since_ms: any.oldest_ms(),
            ..Known::default()
        };
        Ok(Self {
            folder,
            any,
            known: Mutex::new(known),
        })
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // Each field is replaced as a whole.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the files of hosts, and makes all keys valid for new connections.
    pub(super) fn set_hosts(&self, hosts: &[Host], target: &Target) -> Result<(), ApplyError> {
        let mut known = self.known();
        self.read(hosts, &mut known)?;
        known.hosts = hosts.to_vec();
        self.publish(&known, target);
        Ok(())
    }

    /// Reads the files again.
    pub(super) fn read_again(&self, target: &Target) -> Result<(), ApplyError> {
        let mut known = self.known();
        let hosts = known.hosts.clone();
        self.read(&hosts, &mut known)?;
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

    fn read(&self, hosts: &[Host], known: &mut Known) -> Result<(), ApplyError> {
        let any = self.any.read();
        let any = any.map_err(|error| {
            ApplyError::invalid(error.to_string(), "correct or restore the file")
        })?;
        let now = now();
        let before = &known.of_files;
        let read = hosts.iter().map(|host| {
            let keys = self.read_host(host).map_err(|error| {
                ApplyError::invalid(
                    format!("host {:?}: {error}", host.nqn),
                    "correct the file, or name another one of the folder `keys`",
                )
            })?;
            let same = before.get(&host.nqn);
            let same = same.filter(|before| before.keys == keys);
            let since_unix_ms = same.map_or_else(
                || oldest_ms(self.files_of(host)).map_or(now, |it| it.min(now)),
                |before| before.since_unix_ms,
            );
            let keys = KnownKeys {
                keys,
                since_unix_ms,
            };
            Ok((host.nqn.clone(), keys))
        });
        known.of_files = read.collect::<Result<_, ApplyError>>()?;
        known.any = any;
        known.any_since_ms = self.any.oldest_ms();
        Ok(())
    }

    /// Returns the files with keys of a host.
    fn files_of(&self, host: &Host) -> impl Iterator<Item = PathBuf> {
        let files = host.tls_keys.iter().chain(&host.chap_secrets);
        let files = files.chain(&host.chap_controller_secret);
        files.map(|file| self.folder.join(file))
    }

    /// Returns the time since which the oldest key is known, in seconds since 1970; `None` without
    /// keys.
    pub(super) fn oldest_s(&self) -> Option<u64> {
        let known = self.known();
        let of_hosts = known.of_files.values().chain(known.added.0.values());
        let of_hosts = of_hosts.filter(|it| it.keys != HostKeys::default());
        let since = of_hosts
            .map(|it| it.since_unix_ms)
            .chain(known.any_since_ms);
        since.min().map(|ms| ms / 1_000)
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
            any: known.any.clone(),
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
        let of_any = folder.join("any.key");
        std::fs::copy(&file, &of_any).expect("our folder");
        let target = Target::new(Limits::default(), 1).expect("legal limits");
        let any = FilesOfAny {
            tls: Some(of_any.clone()),
            ..FilesOfAny::default()
        };
        let keys = Keys::new(folder, any).expect("a key");
        let count = || keys.merged(&keys.known()).0.tls(HOST).len();
        keys.set_hosts(&host(HostTls::Allowed), &target)
            .expect("a key");
        assert_eq!(count(), 1);
        let changed = std::fs::metadata(&file).expect("our file").modified();
        let changed = changed.expect("a time").duration_since(UNIX_EPOCH);
        let changed = changed.expect("not before 1970").as_secs();
        assert_eq!(keys.oldest_s(), Some(changed));
        let added = KnownKeys {
            keys: HostKeys {
                tls: vec![TlsKey::parse(KEY).expect("a key")],
                ..HostKeys::default()
            },
            since_unix_ms: 1,
        };
        keys.set_added(&AddedKeys([(HOST.to_owned(), added)].into()), &target);
        assert_eq!(count(), 2);
        assert_eq!(keys.oldest_s(), Some(0), "the added one");
        let since = keys.of_files()[HOST].since_unix_ms;
        write("no key".to_owned());
        let error = keys.read_again(&target).expect_err("a bad file");
        assert!(error.to_string().contains("db.key: line 1: "), "{error}");
        assert_eq!(count(), 2, "those before stay");
        write(format!("{KEY}\n"));
        keys.read_again(&target).expect("a key");
        assert_eq!(keys.of_files()[HOST].since_unix_ms, since, "the same key");
        let of_any_other = || {
            keys.merged(&keys.known())
                .0
                .tls("nqn.2026-11.io.example:other")
                .len()
        };
        assert_eq!(of_any_other(), 1);
        std::fs::write(&of_any, format!("{KEY}\n{KEY}\n")).expect("our file");
        keys.read_again(&target).expect("two keys");
        assert_eq!(of_any_other(), 2);
        keys.set_hosts(&host(HostTls::Off), &target).expect("a key");
        assert_eq!(count(), 0, "nor the key of any host");
    }
}
