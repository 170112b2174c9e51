//! The discovery log page: the subsystems that a host may use.
//!
//! `[NVMe Base 2.0 §5.16.1.23]`. The page is made when it is asked for: one entry for each
//! listener and each subsystem that the host may connect to, one for each referral, and one for the
//! discovery service itself on each listener. A listener on every address of the machine is named
//! by the one that the asking host has reached.

use crate::shared::Shared;
use std::net::{IpAddr, SocketAddr};
use wire::fabrics::{DiscoveryLogEntry, DiscoveryLogHeader};
use wire::nvme::Nqn;

/// Returns the whole page for one host, which has reached us at `local`.
pub(crate) fn log_page(
    shared: &Shared,
    (host_nqn, from): (&str, IpAddr),
    local: Option<IpAddr>,
) -> Vec<u8> {
    let configuration = shared.configuration();
    let rules = shared.rules();
    let mut entries = Vec::new();
    let numbered = || {
        let ports = (1u16..).zip(configuration.listeners.iter().copied());
        ports.filter_map(|(port, address)| Some((port, reachable(address, local)?)))
    };
    for (port, address) in numbered() {
        let mut own = entry(address, port, DiscoveryLogEntry::SUBTYPE_CURRENT_DISCOVERY);
        own.subnqn_field = Nqn::discovery().to_field();
        own.eflags = DiscoveryLogEntry::EFLAGS_PERSISTENT;
        entries.push(own);
    }
    for subsystem in configuration
        .subsystems
        .values()
        .filter(|s| s.allows(host_nqn) && rules.admit(host_nqn, from, &s.nqn))
    {
        let Ok(name) = Nqn::lenient(&subsystem.nqn) else {
            continue;
        };
        for (port, address) in numbered() {
            let mut io = entry(address, port, DiscoveryLogEntry::SUBTYPE_NVM);
            io.subnqn_field = name.to_field();
            entries.push(io);
        }
    }
    for referral in &configuration.referrals {
        let mut other = entry(referral.address, 0, DiscoveryLogEntry::SUBTYPE_REFERRAL);
        other.subnqn_field = Nqn::discovery().to_field();
        entries.push(other);
    }
    let header = DiscoveryLogHeader {
        generation: configuration.generation,
        records: entries.len() as u64,
        record_format: 0,
    };
    let mut page = header.to_bytes().to_vec();
    for entry in &entries {
        page.extend_from_slice(&entry.to_bytes());
    }
    page
}

/// The address by which the host can reach a listener; `None` where we know none.
fn reachable(listener: SocketAddr, local: Option<IpAddr>) -> Option<SocketAddr> {
    if !listener.ip().is_unspecified() {
        return Some(listener);
    }
    // A listener on `::` takes IPv6 alone, one on `0.0.0.0` IPv4.
    let local = local?.to_canonical();
    (listener.is_ipv6() == local.is_ipv6()).then_some(SocketAddr::new(local, listener.port()))
}

fn entry(address: SocketAddr, port_id: u16, subtype: u8) -> DiscoveryLogEntry {
    let mut entry = DiscoveryLogEntry {
        trtype: DiscoveryLogEntry::TRTYPE_TCP,
        subtype,
        // "Not required" would say that a secure channel can be had, and some hosts then ask for
        // TLS whatever SECTYPE says; what has no secure channel at all does not specify one.
        treq: DiscoveryLogEntry::TREQ_NOT_SPECIFIED
            | DiscoveryLogEntry::TREQ_SQ_FLOW_CONTROL_OPTIONAL,
        port_id,
        cntlid: DiscoveryLogEntry::CNTLID_DYNAMIC,
        asqsz: 32,
        sectype: DiscoveryLogEntry::SECTYPE_NONE,
        ..DiscoveryLogEntry::default()
    };
    entry.set_address(address);
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_on_every_address_is_named_by_the_one_that_was_reached() {
        let cases = [
            ("192.0.2.1:4420", Some("192.0.2.9"), Some("192.0.2.1:4420")),
            ("0.0.0.0:4420", Some("192.0.2.9"), Some("192.0.2.9:4420")),
            ("0.0.0.0:4420", Some("2001:db8::9"), None),
            ("0.0.0.0:4420", None, None),
            ("[::]:4420", Some("2001:db8::9"), Some("[2001:db8::9]:4420")),
            ("[::]:4420", Some("192.0.2.9"), None),
            ("[::]:4420", Some("::ffff:192.0.2.9"), None),
        ];
        for (listener, local, expected) in cases {
            let listener = listener.parse().expect("an address");
            let local = local.map(|local| local.parse().expect("an address"));
            let expected = expected.map(|text| text.parse().expect("an address"));
            assert_eq!(reachable(listener, local), expected, "{listener} {local:?}");
        }
    }
}
