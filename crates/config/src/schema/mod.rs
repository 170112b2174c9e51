//! The declarative configuration of a target, as plain values.
//!
//! Everything that can be configured about a target. It is read from TOML or JSON, changed by
//! [`crate::action`], and compared by [`crate::diff()`]. Subsystems, namespaces, hosts, tenants and referrals are kept in order of their names,
//! so that two configurations that mean the same are equal. Nothing in here does I/O.

mod allow;
mod api_address;
mod api_limits;
mod as_text;
mod device;
mod identifier;
mod keyword;
mod limits;
mod network;
mod size;
mod socket_mode;
mod switch;
mod tenant;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use allow::Allow;
pub use api_address::{ApiAddress, ApiAddressError};
pub use api_limits::ApiLimits;
pub(crate) use as_text::{as_text, text_of};
pub use device::{
    BlockSize, Delay, Device, DeviceKind, DeviceTextError, Fault, FaultEffect, FaultError,
    FaultOperation, FaultRule, FlashProfile, IoPath,
};
pub use identifier::{
    DISCOVERY_NQN, Eui64, IdentifierError, NQN_EXPECTED, Nguid, Uuid, check_nqn, derived_serial,
    is_qualified,
};
pub use keyword::Keyword;
pub(crate) use keyword::keyword;
pub use limits::Limits;
pub use limits::REMOVED_LIMITS;
pub use network::{Network, NetworkError};
pub use size::{Size, SizeError};
pub use socket_mode::{SocketMode, group_number};
pub use switch::Plain;
pub use switch::{BASELINE, Switch, SwitchChange};
pub use tenant::{
    Access, BestEffort, DEFAULT_REQUEST_SIZE, DEFAULT_TENANT, DEFAULT_WEIGHT, LatencyCritical,
    Percentile, Permission, Tenant,
};

/// The port of NVMe/TCP I/O controllers [NVMe-TCP 1.0 §3.1.1].
pub const PORT: u16 = 4420;

/// The port of NVMe/TCP discovery controllers [NVMe-TCP 1.0 §3.1.1].
pub const DISCOVERY_PORT: u16 = 8009;

/// The subsystem of a target that was told of none.
pub const DEFAULT_NQN: &str = "nqn.2026-11.io.switchyard:default";

/// The model number of a subsystem that was given none.
pub const DEFAULT_MODEL: &str = "Switchyard";

base::with_defaults! {
    /// Everything that can be said about a target.
    ///
    /// By default: a target at 127.0.0.1:4420 that shares nothing yet.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    pub struct Configuration {
        /// Addresses for hosts; loopback by default. Fixed while running.
        pub listen: Vec<SocketAddr> = vec![SocketAddr::new(Ipv4Addr::LOCALHOST.into(), PORT)],
        /// The address of the HTTP interface; `None` switches it off. Fixed while running.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub api: Option<ApiAddress> = None,
        /// Permission bits of the interface's Unix socket; `None` for 0600, and with a group for 0660.
        /// Fixed while running.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub api_socket_mode: Option<SocketMode> = None,
        /// Number of the group of the interface's Unix socket; `None` for that of the process. Fixed
        /// while running.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub api_socket_group: Option<u32> = None,
        /// Folders below which devices that are added over the interface may have their files; without
        /// any, none may. Fixed while running.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub device_folders: Vec<PathBuf> = Vec::new(),
        /// The cores that the dataplane runs on; `None` leaves the choice to the target. Fixed while
        /// running.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub cores: Option<Vec<u32>> = None,
        /// Hosts that are no tenant are served as the tenant "default"; otherwise they may not connect.
        pub default_tenant: bool = true,
        /// The knobs of the switch.
        pub switch: Switch = Switch::default(),
        /// Limits of the target. Fixed while running.
        pub limits: Limits = Limits::default(),
        /// Limits of the HTTP interface's clients. Fixed while running.
        pub api_limits: ApiLimits = ApiLimits::default(),
        /// Which digests hosts may ask for. Fixed while running.
        pub digests: Digests = Digests::default(),
        /// Entries of the discovery controller beyond the subsystems.
        pub discovery: Discovery = Discovery::default(),
        /// The devices, by name.
        pub devices: BTreeMap<String, Device> = BTreeMap::new(),
        /// The subsystems, in order of their names.
        pub subsystems: Vec<Subsystem> = Vec::new(),
        /// The tenants, in order of their names.
        pub tenants: Vec<Tenant> = Vec::new(),
    }
}

keyword! {
    /// The idle policy of a core: `poll`, the short form of the knob `polling`.
    pub enum PollPolicy {
        /// Polls for a while that depends on recent arrivals, then sleeps in the kernel.
        Auto = "auto",
        /// Polls for ever: lowest latency, one whole core each.
        Always = "always",
        /// Sleeps at once.
        Never = "never",
    }
}

base::with_defaults! {
    /// Which digests the target agrees to when a host asks for them [NVMe-TCP 1.0 §3.3.1].
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    pub struct Digests {
        /// The header digest.
        pub header: bool = true,
        /// The data digest.
        pub data: bool = true,
    }
}

/// Entries of the discovery controller beyond the subsystems.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Discovery {
    /// Other discovery controllers, in order.
    pub referrals: Vec<Referral>,
}

/// Another discovery controller [NVMe Base 2.0 §5.16.1.23].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Referral {
    /// Its address.
    pub address: IpAddr,
    /// Its port.
    pub port: u16,
    /// Its name: the well-known one, or a unique discovery name.
    pub nqn: String,
}

/// A subsystem: namespaces under one name, and the hosts that may use them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subsystem {
    /// Its NVMe Qualified Name.
    pub nqn: String,
    /// Its serial number, at most 20 printable ASCII characters.
    pub serial: String,
    /// Its model number, at most 40 printable ASCII characters.
    pub model: String,
    /// Every host may connect; while this holds, `allowed_hosts` is kept and not looked at.
    pub allow_any_host: bool,
    /// The names of the hosts that may connect.
    pub allowed_hosts: BTreeSet<String>,
    /// The namespaces, in order of their identifiers.
    #[serde(default)]
    pub namespaces: Vec<Namespace>,
}

/// A namespace: a device, or its beginning, as hosts see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Namespace {
    /// Its identifier within the subsystem, from 1.
    pub nsid: u32,
    /// The name of the device under it.
    pub device: String,
    /// The part of the device that it shows, from the device's beginning; `None` means all of it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub size: Option<Size>,
    /// Its UUID; `None` means [`Namespace::uuid_or_derived`].
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub uuid: Option<Uuid>,
    /// Its globally unique identifier, if it has one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub nguid: Option<Nguid>,
    /// Its IEEE extended unique identifier, if it has one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub eui64: Option<Eui64>,
    /// Hosts may not write to it.
    #[serde(default)]
    pub read_only: bool,
}

impl Configuration {
    /// A target that shares `devices` with every host as namespaces 1, 2, … of one subsystem,
    /// [`DEFAULT_NQN`]. Each device is named after its kind and namespace: `ram1`, `file2`.
    #[must_use]
    pub fn default_with(devices: impl IntoIterator<Item = Device>) -> Self {
        let mut configuration = Self::default();
        let mut subsystem = Subsystem::new(DEFAULT_NQN);
        subsystem.allow_any_host = true;
        for (device, nsid) in devices.into_iter().zip(1_u32..) {
            let name = format!("{}{nsid}", device.kind.type_name());
            subsystem.namespaces.push(Namespace::new(nsid, &name));
            configuration.devices.insert(name, device);
        }
        configuration.subsystems.push(subsystem);
        configuration
    }

    /// The same target, sharing nothing: where the actions that build this one begin.
    #[must_use]
    pub fn emptied(&self) -> Self {
        Self {
            discovery: Discovery::default(),
            devices: BTreeMap::new(),
            subsystems: Vec::new(),
            tenants: Vec::new(),
            default_tenant: true,
            switch: Switch::default(),
            ..self.clone()
        }
    }

    /// The subsystem named `nqn`.
    #[must_use]
    pub fn subsystem(&self, nqn: &str) -> Option<&Subsystem> {
        self.subsystems.iter().find(|s| s.nqn == nqn)
    }

    /// The device of a namespace.
    #[must_use]
    pub fn device_of(&self, nqn: &str, nsid: u32) -> Option<&Device> {
        let namespace = self.subsystem(nqn)?.namespace(nsid)?;
        self.devices.get(&namespace.device)
    }

    /// The namespaces over the device named `name`, each with its subsystem's name.
    pub fn users_of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a str, &'a Namespace)> {
        self.subsystems.iter().flat_map(move |subsystem| {
            subsystem
                .namespaces
                .iter()
                .filter(move |namespace| namespace.device == name)
                .map(|namespace| (subsystem.nqn.as_str(), namespace))
        })
    }

    /// Puts subsystems, namespaces, tenants and referrals in order of their names.
    pub fn sort(&mut self) {
        self.subsystems.sort_by(|a, b| a.nqn.cmp(&b.nqn));
        for subsystem in &mut self.subsystems {
            subsystem.sort();
        }
        self.tenants.sort_by(|a, b| a.name.cmp(&b.name));
        self.discovery.referrals.sort();
    }

    /// Returns true if all of these are in that order, and each name is there once.
    pub fn is_sorted(&self) -> bool {
        let namespaces = |subsystem: &Subsystem| {
            let namespaces = &subsystem.namespaces;
            namespaces.is_sorted_by(|a, b| a.nsid < b.nsid)
        };
        self.subsystems.is_sorted_by(|a, b| a.nqn < b.nqn)
            && self.subsystems.iter().all(namespaces)
            && self.tenants.is_sorted_by(|a, b| a.name < b.name)
            && self.discovery.referrals.is_sorted_by(|a, b| a < b)
    }

    /// The configuration as a TOML document that reads back as the same configuration.
    #[must_use]
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("every value of a configuration has a form in TOML")
    }
}

impl Subsystem {
    /// A subsystem without namespaces that no host may use yet, with the default model and the
    /// serial number that belongs to its name.
    #[must_use]
    pub fn new(nqn: &str) -> Self {
        Self {
            nqn: nqn.to_owned(),
            serial: derived_serial(nqn),
            model: DEFAULT_MODEL.to_owned(),
            allow_any_host: false,
            allowed_hosts: BTreeSet::new(),
            namespaces: Vec::new(),
        }
    }

    /// The namespace with identifier `nsid`.
    #[must_use]
    pub fn namespace(&self, nsid: u32) -> Option<&Namespace> {
        self.namespaces.iter().find(|n| n.nsid == nsid)
    }

    /// Returns true if the host named `host` may connect.
    #[must_use]
    pub fn allows(&self, host: &str) -> bool {
        self.allow_any_host || self.allowed_hosts.contains(host)
    }

    /// Puts the namespaces in order of their identifiers.
    pub fn sort(&mut self) {
        self.namespaces.sort_by_key(|n| n.nsid);
    }
}

impl Namespace {
    /// All of the device named `device`, for reading and writing.
    #[must_use]
    pub fn new(nsid: u32, device: &str) -> Self {
        Self {
            nsid,
            device: device.to_owned(),
            size: None,
            uuid: None,
            nguid: None,
            eui64: None,
            read_only: false,
        }
    }

    /// The UUID that hosts are told: the one given, or one that belongs to the namespace's place
    /// and to the `content` of its device, by which hosts notice that another volume stands there.
    #[must_use]
    pub fn uuid_or_derived(&self, subsystem: &Subsystem, content: &str) -> Uuid {
        self.uuid
            .unwrap_or_else(|| Uuid::derived(&subsystem.nqn, &subsystem.serial, self.nsid, content))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_become_namespaces_in_their_order() {
        let configuration = Configuration::default_with([
            Device::new(DeviceKind::Ram {
                size: Size::from_bytes(1 << 30),
                block_size: BlockSize::B4096,
            }),
            Device::new(DeviceKind::Null {
                size: Size::from_bytes(1 << 20),
                block_size: BlockSize::B512,
            }),
        ]);
        let subsystem = configuration.subsystem(DEFAULT_NQN).expect("the default");
        assert!(subsystem.allows("nqn.2026-11.com.example:anybody"));
        let names: Vec<_> = subsystem
            .namespaces
            .iter()
            .map(|n| (n.nsid, n.device.as_str()))
            .collect();
        assert_eq!(names, [(1, "ram1"), (2, "null2")]);
        assert_eq!(configuration.users_of("null2").count(), 1);
        assert_eq!(configuration.emptied(), Configuration::default());
    }
}
