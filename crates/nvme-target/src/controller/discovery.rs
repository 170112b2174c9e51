//! The discovery log page: the subsystems that a host may use.
//!
//! `[NVMe Base 2.0 §5.16.1.23]`. The page is generated on request: one entry for each listener and
//! each subsystem that the host may connect to, one for each referral, and one for the discovery
//! service itself on each listener. A listener on a wildcard address is listed with the address
//! that the requesting host has reached.

use crate::shared::Shared;
use crate::tls::TlsMode;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use wire::fabrics::{DiscoveryLogEntry, DiscoveryLogHeader};
use wire::nvme::{GetLogPage, Nqn, Status};

/// The part of a page that a host requests. Hosts read a long page with many commands, so entries
/// outside of the part are not generated.
struct Window {
    wanted: Range<u64>,
    /// Bytes of the page before the next entry.
    at: u64,
    /// Entries so far.
    entries: u64,
    bytes: Vec<u8>,
}

impl Window {
    fn new(get: &GetLogPage) -> Self {
        Self {
            wanted: get.offset..get.offset.saturating_add(get.data_bytes()),
            at: DiscoveryLogHeader::SIZE as u64,
            entries: 0,
            bytes: Vec::new(),
        }
    }

    /// Adds the requested part of the bytes at `start`.
    fn put(&mut self, start: u64, bytes: &[u8]) {
        let place = |at: u64| usize::try_from(at.saturating_sub(start)).unwrap_or(usize::MAX);
        let (first, last) = (place(self.wanted.start), place(self.wanted.end));
        let part = first.min(bytes.len())..last.min(bytes.len());
        self.bytes.extend_from_slice(&bytes[part]);
    }

    fn push(&mut self, entry: impl FnOnce() -> DiscoveryLogEntry) {
        let start = self.at;
        self.at += DiscoveryLogEntry::SIZE as u64;
        self.entries += 1;
        if start < self.wanted.end && self.at > self.wanted.start {
            self.put(start, &entry().to_bytes());
        }
    }
}

/// Returns the part of the page that `get` requests, for one host, which reached the target at
/// `local`.
///
/// # Errors
/// Invalid Field: an offset beyond the page.
pub(crate) fn log_page(
    shared: &Shared,
    (host_nqn, from): (&str, IpAddr),
    local: Option<IpAddr>,
    get: &GetLogPage,
) -> Result<Vec<u8>, Status> {
    let configuration = shared.configuration();
    let rules = shared.rules();
    let mut window = Window::new(get);
    let numbered = || {
        let ports = (1u16..).zip(configuration.listeners.iter().map(|it| it.bound));
        ports.filter_map(|(port, at)| Some((port, reachable(at.address, local)?, at.tls)))
    };
    for (port, address, tls) in numbered() {
        window.push(|| {
            let subtype = DiscoveryLogEntry::SUBTYPE_CURRENT_DISCOVERY;
            let mut own = entry(address, port, subtype, tls);
            own.subnqn_field = Nqn::discovery().to_field();
            own.eflags = DiscoveryLogEntry::EFLAGS_PERSISTENT;
            own
        });
    }
    for subsystem in configuration
        .subsystems
        .values()
        .filter(|s| s.allows(host_nqn) && rules.admit(host_nqn, from, &s.nqn))
    {
        let Ok(name) = Nqn::lenient(&subsystem.nqn) else {
            continue;
        };
        for (port, address, tls) in numbered() {
            window.push(|| {
                let subtype = DiscoveryLogEntry::SUBTYPE_NVM;
                let mut io = entry(address, port, subtype, tls);
                io.subnqn_field = name.to_field();
                io
            });
        }
    }
    for referral in &configuration.referrals {
        window.push(|| {
            // What another target requires is unknown.
            let subtype = DiscoveryLogEntry::SUBTYPE_REFERRAL;
            let mut other = entry(referral.address, 0, subtype, TlsMode::Off);
            other.subnqn_field = Nqn::discovery().to_field();
            other
        });
    }
    if get.offset > window.at {
        return Err(Status::INVALID_FIELD.with_dnr());
    }
    let header = DiscoveryLogHeader {
        generation: configuration.generation,
        records: window.entries,
        record_format: 0,
    };
    let entries = std::mem::take(&mut window.bytes);
    window.put(0, &header.to_bytes());
    window.bytes.extend(entries);
    Ok(window.bytes)
}

/// Returns the address by which the host can reach a listener; `None` if unknown.
fn reachable(listener: SocketAddr, local: Option<IpAddr>) -> Option<SocketAddr> {
    if !listener.ip().is_unspecified() {
        return Some(listener);
    }
    // A listener on `::` accepts IPv6 only, one on `0.0.0.0` IPv4 only.
    let local = local?.to_canonical();
    (listener.is_ipv6() == local.is_ipv6()).then_some(SocketAddr::new(local, listener.port()))
}

fn entry(address: SocketAddr, port_id: u16, subtype: u8, tls: TlsMode) -> DiscoveryLogEntry {
    let (treq, sectype) = tls.in_discovery_log();
    let mut entry = DiscoveryLogEntry {
        trtype: DiscoveryLogEntry::TRTYPE_TCP,
        subtype,
        treq: treq | DiscoveryLogEntry::TREQ_SQ_FLOW_CONTROL_OPTIONAL,
        port_id,
        cntlid: DiscoveryLogEntry::CNTLID_DYNAMIC,
        asqsz: 32,
        sectype,
        ..DiscoveryLogEntry::default()
    };
    entry.set_address(address);
    entry
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::limits::NSID_BROADCAST;
    use wire::nvme::log_page::LogPageId;

    /// Regression: the whole page was generated for each command, although it requested four bytes.
    #[test]
    fn a_window_has_its_part_of_the_page_and_nothing_else_is_made() {
        let named = |index: u16| DiscoveryLogEntry {
            port_id: index,
            ..DiscoveryLogEntry::default()
        };
        let page: Vec<u8> = (0..10).flat_map(|index| named(index).to_bytes()).collect();
        for (offset, length, most) in [
            (0, 4, 0),
            (0, 2048, 1),
            (1024, 4, 1),
            (2040, 16, 2),
            (3072, 4096, 4),
            (11_000, 4096, 1),
            (11_264, 4, 0),
        ] {
            let mut window = Window::new(&GetLogPage::new(
                LogPageId::DISCOVERY,
                NSID_BROADCAST,
                offset,
                length,
            ));
            let mut made = 0;
            for index in 0..10 {
                window.push(|| {
                    made += 1;
                    named(index)
                });
            }
            assert_eq!((made, window.at), (most, 11_264), "{offset} {length}");
            let place = |at: u64| {
                let place = usize::try_from(at.saturating_sub(1024)).expect("small");
                place.min(page.len())
            };
            let part = place(offset)..place(offset + u64::from(length));
            assert_eq!(window.bytes, page[part]);
        }
    }

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
