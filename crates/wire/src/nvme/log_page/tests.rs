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

/// An event is three bytes; Linux takes the type from bits 2:0 and the information from bits 15:8.
#[test]
fn events_are_what_hosts_expect() {
    assert_eq!(
        AsyncEvent::NAMESPACE_ATTRIBUTE_CHANGED.to_dword(),
        0x04_00_02
    );
    assert_eq!(AsyncEvent::DISCOVERY_LOG_CHANGE.to_dword(), 0x70_f0_02);
    assert_eq!(AsyncEvent::ANA_CHANGE.to_dword(), 0x0c_03_02);
    assert_eq!(AsyncEvent::from_dword(0x0c_03_02), AsyncEvent::ANA_CHANGE);
    assert_eq!(
        AsyncEvent::DISCOVERY_LOG_CHANGE.to_string(),
        "discovery log page change"
    );
}
