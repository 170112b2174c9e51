//! Subsystems, namespaces, hosts and referrals.

use std::collections::BTreeMap;

use super::devices::block_multiple;
use crate::limits;
use crate::problem::Place;
use crate::schema::{
    Configuration, DISCOVERY_NQN, Device, NQN_EXPECTED, Namespace, Referral, Schema as _,
    Subsystem, check_nqn,
};
use crate::spot::Spot;
use crate::suggest::nearest;

pub(super) fn check(configuration: &Configuration, place: &Spot<'_>) {
    let subsystems = &configuration.subsystems;
    place.at_most(subsystems.len(), limits::SUBSYSTEMS_MAX, "subsystems");
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    let mut across = Across::default();
    for (index, subsystem) in subsystems.iter().enumerate() {
        let place = place.index(index);
        if let Some(first) = names.insert(&subsystem.nqn, index) {
            place.key("nqn").report(
                format!("{:?} is the name of subsystems[{first}] too", subsystem.nqn),
                "give each subsystem a name of its own",
            );
        }
        identity(subsystem, &place);
        namespaces(subsystem, configuration, &place, &mut across);
    }
}

/// Findings in the namespaces before, across all subsystems.
#[derive(Default)]
struct Across<'a> {
    /// Each device in use, and where it was used first.
    devices: BTreeMap<&'a str, Place>,
    /// Each identifier, and the device and place it was used for first.
    identifiers: BTreeMap<String, (&'a str, Place)>,
}

fn identity(subsystem: &Subsystem, place: &Spot<'_>) {
    let nqn_place = place.key("nqn");
    name(&subsystem.nqn, &nqn_place);
    if subsystem.nqn == DISCOVERY_NQN {
        nqn_place.report(
            "is the name of the discovery subsystem, which is always there",
            NQN_EXPECTED,
        );
    }
    for (key, text, limit) in [
        ("serial", &subsystem.serial, limits::SERIAL_BYTES_MAX),
        ("model", &subsystem.model, limits::MODEL_BYTES_MAX),
    ] {
        let printable = text.bytes().all(|b| (0x20..0x7F).contains(&b));
        if text.is_empty() || text.len() > limit || !printable || text.trim() != text {
            place.key(key).report(
                format!("{text:?} cannot be told to hosts"),
                format!("write 1 to {limit} printable ASCII characters, no blank first or last"),
            );
        }
    }
    let place = place.key("allowed_hosts");
    let hosts = &subsystem.allowed_hosts;
    place.at_most(hosts.len(), limits::ALLOWED_HOSTS_MAX, "hosts");
    for host in hosts {
        name(host, &place);
    }
}

pub(super) fn name(nqn: &str, place: &Spot<'_>) {
    if let Err(why) = check_nqn(nqn) {
        let shown: String = nqn.chars().take(limits::NQN_BYTES_MAX).collect();
        place.report(format!("{shown:?} {why}"), NQN_EXPECTED);
    }
}

fn namespaces<'a>(
    subsystem: &'a Subsystem,
    configuration: &'a Configuration,
    place: &Spot<'_>,
    across: &mut Across<'a>,
) {
    let place = place.key("namespaces");
    let count = subsystem.namespaces.len();
    place.at_most(count, limits::NAMESPACES_MAX as usize, "namespaces");
    let mut nsids: BTreeMap<u32, usize> = BTreeMap::new();
    for (index, namespace) in subsystem.namespaces.iter().enumerate() {
        let place = place.index(index);
        let nsid = namespace.nsid;
        namespace.check_ranges(&place);
        if let Some(first) = nsids.insert(nsid, index) {
            let free =
                (1..=limits::NAMESPACES_MAX).find(|free| subsystem.namespace(*free).is_none());
            let what_to_do = match free {
                Some(free) => format!("write one that is free, like {free}"),
                None => "every one is taken; remove a namespace".to_owned(),
            };
            place.key("nsid").report(
                format!("{nsid} is the nsid of namespaces[{first}] of this subsystem too"),
                what_to_do,
            );
        }
        match configuration.devices.get(&namespace.device) {
            Some(device) => over_device(namespace, device, &place, across),
            None => unknown_device(namespace, configuration, &place),
        }
        identifiers(namespace, &place, across);
    }
}

fn unknown_device(namespace: &Namespace, configuration: &Configuration, place: &Spot<'_>) {
    let known = || configuration.devices.keys().map(String::as_str);
    let given = &namespace.device;
    let what_to_do = match nearest(given, known()) {
        Some(near) => format!("did you mean \"{near}\"?"),
        None if configuration.devices.is_empty() => format!("add a device: [devices.{given}]"),
        None => {
            let names: Vec<_> = known().take(10).collect();
            format!("the devices are {}", names.join(", "))
        }
    };
    place
        .key("device")
        .report(format!("there is no device {given:?}"), what_to_do);
}

fn over_device<'a>(
    namespace: &'a Namespace,
    device: &Device,
    place: &Spot<'_>,
    across: &mut Across<'a>,
) {
    let name = &namespace.device;
    if let Some(first) = across.devices.get(name.as_str()) {
        if !device.shared {
            place.key("device").report(
                format!("device {name:?} is used by {first} already"),
                format!("use another device, or write shared = true in [devices.{name}]"),
            );
        }
    } else {
        across.devices.insert(name, place.place.clone());
    }
    if let Some(size) = namespace.size {
        let place = place.key("size");
        block_multiple(size, device.kind.block_size().bytes(), &place);
        if let Some(whole) = device.kind.size()
            && size > whole
        {
            place.report(
                format!("{size} is more than device {name:?} has"),
                format!("write at most \"{whole}\", or omit it for all of it"),
            );
        }
    }
}

fn identifiers<'a>(namespace: &'a Namespace, place: &Spot<'_>, across: &mut Across<'a>) {
    for (key, identifier) in [
        ("uuid", namespace.uuid.map(|i| i.to_string())),
        ("nguid", namespace.nguid.map(|i| i.to_string())),
        ("eui64", namespace.eui64.map(|i| i.to_string())),
    ] {
        let Some(identifier) = identifier else {
            continue;
        };
        let place_of_key = place.key(key);
        match across.identifiers.get(&format!("{key} {identifier}")) {
            // The same data in two subsystems is rightly the same namespace to a host.
            Some((device, _)) if *device == namespace.device => {}
            Some((_, first)) => place_of_key.report(
                format!("{identifier} names {first} too, and hosts would take both for one"),
                "give each namespace its own, or omit it",
            ),
            None => {
                across.identifiers.insert(
                    format!("{key} {identifier}"),
                    (&namespace.device, place.place.clone()),
                );
            }
        }
    }
}

pub(super) fn check_referrals(referrals: &[Referral], place: &Spot<'_>) {
    place.at_most(referrals.len(), limits::REFERRALS_MAX, "referrals");
    for (index, referral) in referrals.iter().enumerate() {
        let place = place.index(index);
        name(&referral.nqn, &place.key("nqn"));
        if referral.port == 0 {
            place
                .key("port")
                .report("0 is no port", "write a port, like 8009");
        }
        if referral.address.is_unspecified() || referral.address.is_multicast() {
            place.key("address").report(
                format!("hosts cannot connect to {}", referral.address),
                "write the address of one machine",
            );
        }
        if referrals[..index].contains(referral) {
            place.report("is there twice", "keep one of the two");
        }
    }
}
