//! The declarative configuration of a target, as plain values.
//!
//! Everything that can be configured about a target. It is read from TOML or JSON, changed by
//! [`crate::action`], and compared by [`crate::diff()`]. Listeners, subsystems, namespaces, hosts, tenants and referrals are kept in order of their names,
//! so that two configurations that mean the same are equal. Nothing in here does I/O.

mod allow;
mod api_address;
mod api_files;
mod api_limits;
mod as_text;
mod declare;
mod device;
mod host;
mod identifier;
mod keyword;
mod limits;
mod listener;
mod network;
mod size;
mod socket_mode;
mod switch;
mod tenant;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use crate::limits::{ANA_GROUPS_MAX, NAMESPACES_MAX};

pub use allow::Allow;
pub use api_address::{ApiAddress, ApiAddressError};
pub use api_files::ApiFiles;
pub use api_limits::ApiLimits;
pub(crate) use as_text::{as_text, text_of};
pub use declare::{Ranged, Row, Schema, range_text, read_value, toml_text, write_table};
pub use device::{
    BlockSize, Crypt, Delay, Device, DeviceKind, DeviceTextError, Fault, FaultError, FaultRule,
    FlashProfile, IoPath, KindRow,
};
pub use host::{Authentication, Host, HostTls};
pub use identifier::{
    DISCOVERY_NQN, Eui64, IdentifierError, NQN_EXPECTED, Nguid, Uuid, check_nqn, derived_serial,
    is_qualified,
};
pub use keyword::Keyword;
pub(crate) use keyword::keyword;
pub use limits::Limits;
pub use limits::REMOVED_LIMITS;
pub use listener::{Listener, ListenerError};
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

crate::schema! {
    /// The configuration of a target. By default it listens at 127.0.0.1:4420 and shares nothing.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Configuration {
        /// Addresses that hosts connect to. One with its own `tls`: `ADDRESS:PORT tls=required`.
        pub listen: Vec<Listener> = or(vec![Listener::from(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), PORT))]),
        /// Whether hosts use TLS 1.3 with pre-shared keys. Fixed while running.
        pub tls: TlsMode = or(TlsMode::Off),
        /// File (mode 0600) with TLS keys, one in each line, for every host that may connect. `SIGHUP`
        /// reads it again; its name is fixed while running.
        pub tls_key: Option<PathBuf> = optional("none"),
        /// Like `tls_key`, with secrets of DH-HMAC-CHAP.
        pub chap_secret: Option<PathBuf> = optional("none"),
        /// Like `tls_key`, with the secret of DH-HMAC-CHAP that proves the controller to those hosts.
        pub chap_controller_secret: Option<PathBuf> = optional("hosts cannot request a proof"),
        /// Address of the HTTP interface and `/metrics`: a Unix socket, a loopback port, or any port
        /// with TLS. Ports need tokens: `api_tokens`, or the variable SWITCHYARD_API_TOKEN or
        /// SWITCHYARD_API_TOKEN_FILE. Fixed while running.
        pub api: Option<ApiAddress> = optional("no interface"),
        /// Files of an interface on a port.
        pub api_files: ApiFiles = flat(),
        /// Permission bits of the interface's Unix socket. Fixed while running.
        pub api_socket_mode: Option<SocketMode> = optional("0600; with a group 0660"),
        /// Group of the interface's Unix socket. Fixed while running.
        pub api_socket_group: Option<u32> = group("group of the process"),
        /// Folder with the files of keys and secrets that `hosts` names, each with mode 0600. Fixed while
        /// running.
        pub keys: Option<PathBuf> = optional("folder of the configuration file"),
        /// Folders for files and models of devices that are added over the interface; no symbolic
        /// link leads out of them. Fixed while running.
        pub device_folders: Vec<PathBuf> = list("none: such devices are refused"),
        /// Processors of the dataplane, with one pinned thread (*core*) on each; the first accepts
        /// connections. Fixed while running.
        pub cores: Option<Vec<u32>> = optional("all of the process, as the load requires"),
        /// Serves hosts without a tenant as the tenant "default"; if false, they may not connect.
        pub default_tenant: bool = or(true),
        /// Parameters of the switch: `baseline`, and those that differ from it.
        pub switch: Switch = knobs("baseline \"switchyard\""),
        /// Limits of the target. Fixed while running.
        pub limits: Limits = or_default(),
        /// Limits of the clients of the HTTP interface. Fixed while running.
        pub api_limits: ApiLimits = or_default(),
        /// Digests that hosts may request. Fixed while running.
        pub digests: Digests = or_default(),
        /// Entries of the discovery controller in addition to the subsystems.
        pub discovery: Discovery = or_default(),
        /// The devices, by name: 1 to 64 letters, digits, - _ or . A device cannot be changed while
        /// running; add the changed one under another name.
        pub devices: BTreeMap<String, Device> = or_default(),
        /// The subsystems.
        pub subsystems: Vec<Subsystem> = or_default(),
        /// The tenants.
        pub tenants: Vec<Tenant> = or_default(),
        /// The hosts that have keys.
        pub hosts: Vec<Host> = or_default(),
    }

    /// Digests that hosts may request `[NVMe-TCP 1.0 §3.3.1]`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Digests {
        /// Grants header digests to hosts that request them.
        pub header: bool = or(true),
        /// Grants data digests to hosts that request them.
        pub data: bool = or(true),
    }

    /// Entries of the discovery controller in addition to the subsystems.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Discovery {
        /// Other discovery controllers.
        pub referrals: Vec<Referral> = or_default(),
    }

    /// Another discovery controller `[NVMe Base 2.0 §5.16.1.23]`.
    #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub struct Referral {
        /// Its address.
        pub address: IpAddr = required("write its IP address, like address = \"192.0.2.1\""),
        /// Its port.
        pub port: u16 = or(DISCOVERY_PORT),
        /// Its name: the well-known one, or a unique discovery name.
        pub nqn: String = or(DISCOVERY_NQN.to_owned()),
    }

    /// A subsystem: namespaces under one name, and the hosts that may connect.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Subsystem {
        /// NVMe Qualified Name.
        pub nqn: String = required("write its name, like nqn = \"nqn.2026-11.com.example:disks\""),
        /// Serial number: 1 to 20 printable ASCII characters. Fixed while running.
        pub serial: String = serial("derived from `nqn`"),
        /// Model number: 1 to 40 printable ASCII characters. Fixed while running.
        pub model: String = or(DEFAULT_MODEL.to_owned()),
        /// Any host may connect; `allowed_hosts` is ignored.
        pub allow_any_host: bool = or(false),
        /// NQNs of the hosts that may connect.
        pub allowed_hosts: BTreeSet<String> = hosts("required without allow_any_host"),
        /// Proof of its name that a host has to give.
        pub authentication: Authentication = or(Authentication::None),
        /// First state of ANA groups.
        pub ana_state: AnaState = or(AnaState::Optimized),
        /// The namespaces.
        pub namespaces: Vec<Namespace> = or_default(),
    }

    /// A namespace: a device, or its beginning, as hosts see it.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Namespace {
        /// Identifier within the subsystem.
        pub nsid: u32 = required("write its number in the subsystem, like nsid = 1")
            in 1..=NAMESPACES_MAX.into(),
        /// Name of its device.
        pub device: String = required(
            "write the name of a device, like device = \"NAME\" where [devices.NAME] exists"
        ),
        /// Part of the device that it shows, from the beginning.
        pub size: Option<Size> = optional("the whole device"),
        /// Hosts take a namespace with another UUID for another volume: set it where a file was
        /// copied or restored, or a block device's number may change.
        pub uuid: Option<Uuid> = optional("derived from nqn, serial, nsid and the backing store"),
        /// NGUID.
        pub nguid: Option<Nguid> = optional("bytes of the UUID"),
        /// EUI-64.
        pub eui64: Option<Eui64> = optional("none"),
        /// Refuses writes.
        pub read_only: bool = or(false),
        /// ANA group.
        pub ana_group: u32 = or(1) in 1..=ANA_GROUPS_MAX.into(),
    }
}

impl Default for Configuration {
    fn default() -> Self {
        declare::of_empty()
    }
}

impl Default for Digests {
    fn default() -> Self {
        declare::of_empty()
    }
}

impl Default for Discovery {
    fn default() -> Self {
        declare::of_empty()
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

keyword! {
    /// State of an ANA group `[NVMe Base 2.0 §8.1.3]`.
    pub enum AnaState {
        /// Commands are executed, by the best path.
        Optimized = "optimized",
        /// Commands are executed; hosts prefer an optimized path.
        NonOptimized = "non-optimized",
        /// Commands are refused: hosts use another path.
        Inaccessible = "inaccessible",
        /// Commands are refused for ever.
        PersistentLoss = "persistent-loss",
        /// Commands are refused: hosts wait for the next state.
        Change = "change",
    }
}

keyword! {
    /// Whether hosts use TLS.
    pub enum TlsMode {
        /// Connections with TLS are refused.
        Off = "off",
        /// Hosts may use TLS.
        Allowed = "allowed",
        /// Connections without TLS are refused.
        Required = "required",
    }
}

impl Configuration {
    /// Returns each listener's address and use of TLS.
    pub fn listeners(&self) -> impl Iterator<Item = (SocketAddr, TlsMode)> {
        let own = |it: &Listener| (it.address, it.tls.unwrap_or(self.tls));
        self.listen.iter().map(own)
    }

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

    /// The same target with its listeners, sharing nothing: where the actions that build this one begin.
    #[must_use]
    pub fn emptied(&self) -> Self {
        Self {
            discovery: Discovery::default(),
            devices: BTreeMap::new(),
            subsystems: Vec::new(),
            tenants: Vec::new(),
            hosts: Vec::new(),
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

    /// Puts listeners, subsystems, namespaces, tenants, hosts and referrals in order of their names.
    pub fn sort(&mut self) {
        self.listen.sort_by_key(|listener| listener.address);
        self.subsystems.sort_by(|a, b| a.nqn.cmp(&b.nqn));
        for subsystem in &mut self.subsystems {
            subsystem.sort();
        }
        self.tenants.sort_by(|a, b| a.name.cmp(&b.name));
        self.hosts.sort_by(|a, b| a.nqn.cmp(&b.nqn));
        self.discovery.referrals.sort();
    }

    /// Returns true if all of these are in that order, and each name is there once.
    pub fn is_sorted(&self) -> bool {
        let namespaces = |subsystem: &Subsystem| {
            let namespaces = &subsystem.namespaces;
            namespaces.is_sorted_by(|a, b| a.nsid < b.nsid)
        };
        self.listen.is_sorted_by(|a, b| a.address < b.address)
            && self.subsystems.is_sorted_by(|a, b| a.nqn < b.nqn)
            && self.subsystems.iter().all(namespaces)
            && self.tenants.is_sorted_by(|a, b| a.name < b.name)
            && self.hosts.is_sorted_by(|a, b| a.nqn < b.nqn)
            && self.discovery.referrals.is_sorted_by(|a, b| a < b)
    }

    /// The configuration as a TOML document that reads back as the same configuration.
    #[must_use]
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("every value of a configuration has a form in TOML")
    }

    /// Returns [`to_toml`](Self::to_toml) without the keys and tables that have their defaults,
    /// apart from `listen`.
    ///
    /// # Panics
    /// Never: every value has a form in TOML.
    #[must_use]
    pub fn to_short_toml(&self) -> String {
        let table = |of: &Self| toml::Table::try_from(of).expect("every value has a form in TOML");
        let defaults = table(&Self::default());
        let mut own = table(self);
        own.retain(|key, value| key == "listen" || defaults.get(key) != Some(value));
        toml::to_string(&own).expect("a table has a form in TOML")
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
            authentication: Authentication::None,
            ana_state: AnaState::Optimized,
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
            ana_group: 1,
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
