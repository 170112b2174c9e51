use super::*;
use crate::options::{HostIdentity, parse_nqn};
use std::collections::BTreeSet;

fn association() -> Arc<Association> {
    let nqn = parse_nqn("nqn.2026-11.io.switchyard:default").unwrap();
    let host = HostIdentity::generate();
    Association::new(ConnectOptions::new(([127, 0, 0, 1], 1).into(), nqn, host))
}

#[test]
fn only_the_first_report_of_a_loss_counts() {
    let association = association();
    association.set_epoch(Epoch {
        generation: 3,
        phase: Phase::Live,
    });
    association.report_lost(2, None);
    assert_eq!(association.phase(), Phase::Live);
    association.report_lost(3, Some(ConnectionError::Unusable("first")));
    association.report_lost(3, Some(ConnectionError::Unusable("second")));
    assert_eq!(association.phase(), Phase::Recovering);
    assert_eq!(
        association.last_error(),
        Some(ConnectionError::Unusable("first"))
    );
}

fn learn(association: &Association, found: Vec<NamespaceInfo>) {
    association.learn_namespaces(NamespacesFound {
        found,
        ..NamespacesFound::default()
    });
}

#[test]
fn a_namespace_that_cannot_be_identified_keeps_its_state_and_its_requests_wait() {
    let association = association();
    let plain = |nsid| NamespaceInfo::plain(nsid, 10);
    learn(&association, vec![plain(1), plain(2)]);
    let states = [1, 2].map(|nsid| association.namespace_state(nsid).unwrap());
    let suspends = |nsid| association.fence_snapshot().1.suspends(nsid);
    association.learn_namespaces(NamespacesFound {
        found: vec![plain(1)],
        unknown: BTreeSet::from([2, 3]),
        ..NamespacesFound::default()
    });
    assert!(states.iter().all(|state| !state.is_gone()));
    assert!(!suspends(1) && suspends(2) && !suspends(3));
    assert_eq!(association.namespaces().len(), 2);
    assert!(association.unusable(3).is_some());
    // Only these are identified again.
    let version = association.fence_version();
    association.learn_namespaces(NamespacesFound {
        found: vec![plain(3)],
        unknown: BTreeSet::from([2]),
        only: Some(BTreeSet::from([2, 3])),
        ..NamespacesFound::default()
    });
    assert!(!states[0].is_gone() && suspends(2));
    assert_eq!(association.fence_version(), version, "nothing to look at");
    assert_eq!(association.namespaces().len(), 3);
    assert_eq!(association.unusable(3), None);
    association.learn_namespaces(NamespacesFound {
        found: vec![plain(2)],
        only: Some(BTreeSet::from([2])),
        ..NamespacesFound::default()
    });
    assert!(states.iter().all(|state| !state.is_gone()) && !suspends(2));
    association.learn_namespaces(NamespacesFound {
        only: Some(BTreeSet::from([2])),
        ..NamespacesFound::default()
    });
    assert!(!states[0].is_gone() && states[1].is_gone());
}

#[test]
fn a_resized_namespace_keeps_its_state_and_a_removed_one_is_gone_for_good() {
    let association = association();
    learn(
        &association,
        vec![NamespaceInfo::plain(1, 10), NamespaceInfo::plain(2, 10)],
    );
    let one = association.namespace_state(1).unwrap();
    learn(&association, vec![NamespaceInfo::plain(1, 20)]);
    assert_eq!(one.geometry().blocks, 20);
    learn(&association, vec![]);
    assert!(one.is_gone());
    learn(&association, vec![NamespaceInfo::plain(1, 30)]);
    assert!(one.is_gone());
    assert_eq!(
        association.namespace_state(1).unwrap().geometry().blocks,
        30
    );
}

#[test]
fn another_volume_under_the_same_identifier_is_another_namespace() {
    let association = association();
    let volume = |byte| NamespaceInfo {
        uuid: Some([byte; 16]),
        ..NamespaceInfo::plain(1, 10)
    };
    learn(&association, vec![volume(1)]);
    let first = association.namespace_state(1).unwrap();
    learn(&association, vec![volume(1)]);
    assert!(!first.is_gone());
    assert_eq!(association.last_error(), None);
    learn(&association, vec![volume(2)]);
    assert!(first.is_gone());
    assert!(!association.namespace_state(1).unwrap().is_gone());
    let error = association.last_error().unwrap().to_string();
    assert!(error.contains("namespace 1"), "{error}");
    learn(&association, vec![volume(1)]);
    assert!(first.is_gone(), "who had it does not know what was missed");
}

#[test]
fn a_connection_that_comes_too_late_does_not_open() {
    let association = association();
    let epoch = Epoch {
        generation: 1,
        phase: Phase::Live,
    };
    association.set_epoch(epoch);
    assert!(association.enter_open(epoch));
    association.report_lost(1, None);
    assert!(!association.enter_open(epoch));
    assert_eq!(association.open_connections(), 1);
    association.leave_open(1);
    assert_eq!(association.open_connections(), 0);
}

#[test]
fn identifiers_start_at_one_and_are_given_out_once() {
    let mut ids = QueueIds::default();
    assert_eq!(ids.free(2), 2);
    assert_eq!(ids.take(2, 0), Some(1));
    assert_eq!(ids.take(2, 0), Some(2));
    assert_eq!(ids.take(2, 0), None);
    assert_eq!(ids.free(2), 0);
    ids.release(1);
    assert_eq!(ids.take(2, 0), Some(1));
}

#[test]
fn all_that_are_free_are_tried_in_turn() {
    let mut ids = QueueIds::default();
    assert_eq!(ids.take(4, 0), Some(1));
    let mut tried = 1;
    for next in [2, 3, 4, 1, 2] {
        assert_eq!(ids.take(4, tried), Some(next));
        ids.release(tried);
        tried = next;
    }
    assert_eq!(ids.take(4, 4), Some(1));
}
