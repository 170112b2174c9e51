//! The target, its subsystems and namespaces.

use super::{FromNode, Table, switch};
use crate::from_table;
use crate::node::Value;
use crate::schema::{
    ApiLimits, Configuration, DEFAULT_MODEL, DISCOVERY_NQN, DISCOVERY_PORT, Digests, Discovery,
    Limits, Namespace, REMOVED_LIMITS, Referral, Subsystem, derived_serial, group_number,
};
use crate::spot::FoundNode;
use target::limits::LIMITS;

impl FromNode for Configuration {
    fn from_node(found: &FoundNode<'_>) -> Option<Self> {
        let table = Table::open(found)?;
        let default = Self::default();
        let listen = table.or("listen", default.listen);
        let api = table.optional("api");
        let api_socket_mode = table.optional("api_socket_mode");
        let api_socket_group = table.optional::<GroupNumber>("api_socket_group");
        let api_limits = table.or_default("api_limits");
        let device_folders = table.or_default("device_folders");
        let cores = table.optional("cores");
        let default_tenant = table.or("default_tenant", default.default_tenant);
        let poll = table.optional("poll");
        let switch = table.or_default("switch");
        let limits = table.or_default("limits");
        let digests = table.or_default("digests");
        let discovery = table.or_default("discovery");
        let devices = table.or_default("devices");
        let subsystems = table.or_default("subsystems");
        let tenants = table.or_default("tenants");
        table.finish();
        let switch = switch::knobs(&switch?, poll?, &found.place.key("switch"));
        Some(Self {
            listen: listen?,
            api: api?,
            api_socket_mode: api_socket_mode?,
            api_socket_group: api_socket_group?.map(|group| group.0),
            api_limits: api_limits?,
            device_folders: device_folders?,
            cores: cores?,
            default_tenant: default_tenant?,
            switch: switch?,
            limits: limits?,
            digests: digests?,
            discovery: discovery?,
            devices: devices?,
            subsystems: subsystems?,
            tenants: tenants?,
        })
    }
}

/// A group's number, written as such or as a name.
struct GroupNumber(u32);

impl FromNode for GroupNumber {
    fn from_node(found: &FoundNode<'_>) -> Option<Self> {
        let Value::String(name) = found.value else {
            return u32::from_node(found).map(Self);
        };
        match group_number(name) {
            Ok(number) => Some(Self(number)),
            Err(remedy) => found.misplaced(remedy),
        }
    }
}

impl FromNode for Limits {
    fn from_node(found: &FoundNode<'_>) -> Option<Self> {
        let table = Table::open(found)?;
        let mut limits = Self::default();
        for limit in &LIMITS {
            let value = table.number(limit.key, limit.default(), &limit.range);
            limits.set(limit.key, value.unwrap_or_default());
        }
        for key in REMOVED_LIMITS {
            if table.has(key) {
                tracing::warn!("limits.{key} was removed and is ignored; omit it");
            }
        }
        table.finish();
        Some(limits)
    }
}

impl FromNode for ApiLimits {
    fn from_node(found: &FoundNode<'_>) -> Option<Self> {
        let table = Table::open(found)?;
        let mut limits = Self::default();
        for (key, value, range) in limits.each() {
            *value = table.number(key, *value, &range).unwrap_or_default();
        }
        table.finish();
        Some(limits)
    }
}

from_table! {
    Digests {
        header: or(true),
        data: or(true),
    }
    Discovery {
        referrals: or_default(),
    }
    Referral {
        address: required("write its IP address, like address = \"192.0.2.1\""),
        port: or(DISCOVERY_PORT),
        nqn: or(DISCOVERY_NQN.to_owned()),
    }
    Namespace {
        nsid: required("write its number in the subsystem, like nsid = 1"),
        device: required("write the name of a device, like device = \"NAME\" where [devices.NAME] exists"),
        size: optional(),
        uuid: optional(),
        nguid: optional(),
        eui64: optional(),
        read_only: or_default(),
    }
}

impl FromNode for Subsystem {
    fn from_node(found: &FoundNode<'_>) -> Option<Self> {
        let table = Table::open(found)?;
        let nqn = table.required::<String>(
            "nqn",
            "write its name, like nqn = \"nqn.2026-11.com.example:disks\"",
        );
        let serial = table.optional("serial");
        let model = table.or("model", DEFAULT_MODEL.to_owned());
        if !table.has("allow_any_host") && !table.has("allowed_hosts") {
            table.place("allowed_hosts").report(
                "is missing, and so is allow_any_host",
                "write allowed_hosts = [\"nqn…\"] with the hosts' names, or allow_any_host = true",
            );
        }
        let allow_any_host = table.or_default("allow_any_host");
        let allowed_hosts = table.or_default::<Vec<String>>("allowed_hosts");
        let namespaces = table.or_default("namespaces");
        table.finish();
        let nqn = nqn?;
        Some(Self {
            serial: serial?.unwrap_or_else(|| derived_serial(&nqn)),
            nqn,
            model: model?,
            allow_any_host: allow_any_host?,
            allowed_hosts: allowed_hosts?.into_iter().collect(),
            namespaces: namespaces?,
        })
    }
}
