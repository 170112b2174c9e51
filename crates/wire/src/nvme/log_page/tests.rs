use super::*;
use crate::limits::NSID_BROADCAST;
use crate::nvme::async_event::AsyncEvent;

#[test]
fn more_changes_than_fit_say_so() {
    let list = ChangedNamespaces::of([3, 7]);
    assert!(list.iter().eq([3, 7]));
    assert_eq!(list.to_bytes()[..12], [3, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0]);
    let full = ChangedNamespaces::of(1..=1024);
    assert!(!full.is_overflow());
    assert!(full.iter().eq(1..=1024));
    let over = ChangedNamespaces::of(1..=1025);
    assert!(over.is_overflow());
    assert_eq!(over.nsids[..2], [NSID_BROADCAST, 0]);
    assert_eq!(over.iter().count(), 0);
}

#[test]
fn tenant_events_fill_a_page_and_no_count_goes_beyond_it() {
    let event = |number| TenantEvent {
        number,
        kind: TenantEvent::BEGAN,
        ..TenantEvent::default()
    };
    let two = TenantEvents::of([event(9), event(4)]);
    assert!(two.iter().map(|event| event.number).eq([9, 4]));
    let mut bytes = two.to_bytes();
    assert_eq!((bytes[0], bytes[64], bytes[64 + 192]), (2, 9, 4));
    bytes[..4].fill(0xff);
    assert_eq!(
        TenantEvents::parse(&bytes).iter().count(),
        TENANT_EVENT_ENTRIES
    );
    assert_eq!(
        TenantEvents::of((0..100).map(event)).count as usize,
        TENANT_EVENT_ENTRIES
    );
}

/// An event is three bytes; Linux takes the type from bits 2:0 and what happened from bits 15:8.
#[test]
fn events_are_what_hosts_expect() {
    assert_eq!(
        AsyncEvent::NAMESPACE_ATTRIBUTE_CHANGED.to_dword(),
        0x04_00_02
    );
    assert_eq!(AsyncEvent::DISCOVERY_LOG_CHANGE.to_dword(), 0x70_f0_02);
    assert_eq!(AsyncEvent::TENANT.to_dword(), 0xc0_00_07);
    assert_eq!(AsyncEvent::ANA_CHANGE.to_dword(), 0x0c_03_02);
    assert_eq!(AsyncEvent::from_dword(0x0c_03_02), AsyncEvent::ANA_CHANGE);
    assert_eq!(
        AsyncEvent::DISCOVERY_LOG_CHANGE.to_string(),
        "discovery log page change"
    );
}
