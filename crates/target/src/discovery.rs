//! The discovery service: what a host may see, as the discovery log page.
//!
//! `[NVMe Base 2.0 §5.16.1.23]`. The page is made when it is asked for: one entry for each
//! listener and each subsystem that allows the host, one for each referral, and one for the
//! discovery service itself on each listener.

use crate::registry::Shared;
use std::net::SocketAddr;
use wire::fabrics::{DiscoveryLogEntry, DiscoveryLogHeader};
use wire::nvme::Nqn;

/// The whole page for one host.
pub(crate) fn log_page(shared: &Shared, host_nqn: &str) -> Vec<u8> {
    let configuration = shared.configuration();
    let mut entries = Vec::new();
    let numbered = || (1u16..).zip(configuration.listeners.iter().copied());
    for (port, address) in numbered() {
        let mut own = entry(address, port, DiscoveryLogEntry::SUBTYPE_CURRENT_DISCOVERY);
        own.subnqn_field = Nqn::discovery().to_field();
        own.eflags = DiscoveryLogEntry::EFLAGS_PERSISTENT;
        entries.push(own);
    }
    for subsystem in configuration
        .subsystems
        .values()
        .filter(|s| s.allows(host_nqn))
    {
        let Ok(name) = Nqn::new(&subsystem.nqn) else {
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

fn entry(address: SocketAddr, port_id: u16, subtype: u8) -> DiscoveryLogEntry {
    let mut entry = DiscoveryLogEntry {
        trtype: DiscoveryLogEntry::TRTYPE_TCP,
        subtype,
        treq: DiscoveryLogEntry::TREQ_NOT_REQUIRED
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
