//! The configuration in the making, which the readers of all sources fill.

use super::json::Json;
use base::printable;
use config::limits::DEVICE_NAME_BYTES_MAX;
use config::schema::{
    Authentication, BlockSize, Configuration, Device, DeviceKind, Host, HostTls, Listener,
    Namespace, Subsystem, TlsMode,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// A configuration in the making.
#[derive(Default)]
pub struct Import {
    devices: BTreeMap<String, Device>,
    pub subsystems: Vec<Exported>,
    listeners: BTreeMap<SocketAddr, TlsMode>,
    hosts: BTreeMap<String, Host>,
    pub configuration: Configuration,
    notes: Vec<String>,
}

/// A subsystem, and the addresses at which hosts reach it.
pub struct Exported {
    pub subsystem: Subsystem,
    pub addresses: BTreeSet<SocketAddr>,
}

impl Import {
    /// Notes a part without an equivalent, and what to do.
    pub fn note(&mut self, note: impl AsRef<str>) {
        let note = printable(note.as_ref()).into_owned();
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    pub fn subsystem(&mut self, nqn: &str) -> Option<&mut Exported> {
        let mut all = self.subsystems.iter_mut();
        all.find(|it| it.subsystem.nqn == nqn)
    }

    /// Adds a device, and returns its name: one that resembles `name`, or that of the device with
    /// the same file.
    pub fn device(&mut self, name: &str, kind: DeviceKind) -> String {
        let path = kind.path();
        let mut known = self.devices.iter();
        let same = known.find(|(_, device)| path.is_some() && device.kind.path() == path);
        if let Some((name, _)) = same {
            return name.clone();
        }
        let name = file_name(name, DEVICE_NAME_BYTES_MAX - "-9999".len());
        let numbered = |number: u32| match number {
            1 => name.clone(),
            _ => format!("{name}-{number}"),
        };
        let is_free = |name: &String| !self.devices.contains_key(name);
        let name = (1..).map(numbered).find(is_free).expect("one is free");
        self.devices.insert(name.clone(), Device::new(kind));
        name
    }

    /// Returns a file or block device with the logical blocks that the other target gave it:
    /// `block_bytes`, or without it those of the block device, and 4,096 bytes for a file.
    pub fn file(&mut self, path: &str, block_bytes: Option<u64>) -> DeviceKind {
        let path = PathBuf::from(path);
        let block = block_bytes.or_else(|| logical_block_bytes(&path));
        let block = block.and_then(|bytes| BlockSize::try_from(bytes).ok());
        if block.is_none() {
            self.note(format!(
                "{}: unknown block size; 512 is assumed. Hosts misread the content if it was 4096: \
                 compare with `cat /sys/block/DEVICE/queue/logical_block_size`",
                path.display()
            ));
        }
        DeviceKind::file(path).with(block, false)
    }

    /// Adds an address; returns it. `what` names it in notes.
    pub fn listener(&mut self, address: Json<'_>, tls: TlsMode, what: &str) -> Option<SocketAddr> {
        let kind = address.text("trtype").unwrap_or_default().to_lowercase();
        if kind == "rdma" {
            self.note(format!(
                "{what} is RDMA; Switchyard serves TCP at the same address: hosts connect with \
                 `nvme connect -t tcp`"
            ));
        } else if kind != "tcp" {
            self.note(format!(
                "{what} has the transport {kind:?}; left out: Switchyard serves TCP only"
            ));
            return None;
        }
        let host = address.text("traddr").unwrap_or_default();
        let port = address.text("trsvcid").unwrap_or_default();
        let parsed = host.parse::<IpAddr>().ok().zip(port.parse::<u16>().ok());
        let Some((ip, port)) = parsed.filter(|(_, port)| *port > 0) else {
            self.note(format!(
                "{what} has the address {host:?}, port {port:?}; left out: add an IP address and \
                 port to listen"
            ));
            return None;
        };
        let address = SocketAddr::new(ip, port);
        if let Some(before) = self.listeners.insert(address, tls)
            && before != tls
        {
            self.listeners.insert(address, TlsMode::Required);
            self.note(format!(
                "{address} had connections with and without TLS; it requires TLS"
            ));
        }
        Some(address)
    }

    /// Returns the keys of a host.
    pub fn host(&mut self, nqn: &str) -> &mut Host {
        self.hosts.entry(nqn.to_owned()).or_insert_with(|| Host {
            nqn: nqn.to_owned(),
            tls_keys: BTreeSet::new(),
            chap_secrets: BTreeSet::new(),
            chap_controller_secret: None,
            tls: HostTls::Allowed,
        })
    }

    /// Returns the configuration and the notes.
    pub fn finish(mut self) -> (Configuration, Vec<String>) {
        let all: BTreeSet<_> = self.listeners.keys().copied().collect();
        for Exported {
            mut subsystem,
            addresses,
        } in std::mem::take(&mut self.subsystems)
        {
            let nqn = subsystem.nqn.clone();
            if addresses.is_empty() {
                self.note(format!(
                    "subsystem {nqn} has no TCP address; left out with its namespaces"
                ));
                continue;
            }
            if addresses != all {
                let own: Vec<_> = addresses.iter().map(ToString::to_string).collect();
                self.note(format!(
                    "subsystem {nqn} was reachable at {} only, now at every address of listen: \
                     check allowed_hosts, or serve it by a target of its own",
                    own.join(" and ")
                ));
            }
            self.authenticate(&mut subsystem);
            self.configuration.subsystems.push(subsystem);
        }
        let mut used = BTreeMap::<String, usize>::new();
        let subsystems = self.configuration.subsystems.iter();
        for namespace in subsystems.flat_map(|it| &it.namespaces) {
            *used.entry(namespace.device.clone()).or_default() += 1;
        }
        for (name, mut device) in std::mem::take(&mut self.devices) {
            let uses = used.get(&name).copied().unwrap_or_default();
            if uses == 0 {
                self.note(format!("device {name} is used by no namespace; left out"));
                continue;
            }
            device.shared = uses > 1;
            self.configuration.devices.insert(name, device);
        }
        let listeners = self.listeners.iter().map(|(&address, &tls)| Listener {
            address,
            tls: (tls != TlsMode::Off).then_some(tls),
        });
        self.configuration.listen = listeners.collect();
        self.configuration.hosts = self.hosts.into_values().collect();
        self.configuration.sort();
        (self.configuration, self.notes)
    }

    /// Requires of a subsystem's hosts the proofs for which all of them have keys.
    fn authenticate(&mut self, subsystem: &mut Subsystem) {
        let hosts = || {
            subsystem
                .allowed_hosts
                .iter()
                .map(|nqn| self.hosts.get(nqn))
        };
        let all = |has: fn(&Host) -> bool| {
            hosts().all(|host| host.is_some_and(has)) && hosts().next().is_some()
        };
        let chap = |host: &Host| !host.chap_secrets.is_empty();
        let tls = |host: &Host| !host.tls_keys.is_empty();
        let named = !subsystem.allow_any_host;
        subsystem.authentication = match (named && all(chap), named && all(tls)) {
            (true, true) => Authentication::ChapAndTls,
            (true, false) => Authentication::Chap,
            (false, true) => Authentication::Tls,
            (false, false) => Authentication::None,
        };
        let some = hosts().flatten().any(chap) || (!named && self.hosts.values().any(chap));
        if some && !(named && all(chap)) {
            let nqn = &subsystem.nqn;
            self.note(format!(
                "subsystem {nqn}: only some of its hosts had a DH-HMAC-CHAP key, and Switchyard \
                 requires a proof of all hosts or none: list the hosts in allowed_hosts, give each a \
                 key, and write authentication = \"chap\""
            ));
        }
    }
}

/// Returns a name for a file or a device: the last characters of `name`, without special ones, nor
/// those that begin an option or a hidden file.
pub fn file_name(name: &str, most: usize) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || "-_.".contains(c) {
            c
        } else {
            '_'
        }
    };
    let name: Vec<char> = name.chars().map(plain).collect();
    let name: String = name[name.len().saturating_sub(most)..].iter().collect();
    let name = name.trim_start_matches(['-', '.']).to_owned();
    if name.is_empty() {
        "device".to_owned()
    } else {
        name
    }
}

/// Returns the logical block that other targets give a file or block device; `None` if it is not on
/// this machine.
fn logical_block_bytes(path: &Path) -> Option<u64> {
    let found = fs::metadata(path).ok()?;
    if found.is_file() {
        return Some(4096);
    }
    let (major, minor) = (
        rustix::fs::major(found.rdev()),
        rustix::fs::minor(found.rdev()),
    );
    let folder = found.file_type().is_block_device();
    let folder = folder.then(|| format!("/sys/dev/block/{major}:{minor}"))?;
    // A partition has the queue of its disk.
    let mut queues = ["queue", "../queue"].iter();
    queues.find_map(|queue| {
        let text = fs::read_to_string(format!("{folder}/{queue}/logical_block_size")).ok()?;
        text.trim().parse().ok()
    })
}

/// Reads an identifier of a namespace; one of zeroes is none.
fn identifier<T: std::str::FromStr>(text: Option<String>) -> Option<T> {
    text?.parse().ok()
}

/// Returns a namespace with these identifiers.
pub fn namespace(nsid: u32, device: &str, ids: Json<'_>) -> Namespace {
    let digits = |key: &str| ids.text(key).map(|text| text.replace('-', ""));
    Namespace {
        uuid: identifier(ids.text("uuid")),
        nguid: identifier(digits("nguid")),
        eui64: identifier(digits("eui64")),
        ..Namespace::new(nsid, device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_files() {
        assert_eq!(file_name("nqn.2014-08.org:h/1", 60), "nqn.2014-08.org_h_1");
        assert_eq!(
            (file_name("abc", 2), file_name("-.", 2)),
            ("bc".into(), "device".into())
        );
    }

    #[test]
    fn devices_of_one_file_are_one_device() {
        let mut import = Import::default();
        let null = || "null:1G".parse::<DeviceKind>().expect("a device");
        let names = [import.device("a b", null()), import.device("a b", null())];
        assert_eq!(names, ["a_b", "a_b-2"]);
        let file = || DeviceKind::file("/x");
        let names = [import.device("x", file()), import.device("y", file())];
        assert_eq!(names, ["x", "x"]);
    }
}
