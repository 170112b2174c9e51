//! Asymmetric Namespace Access, as hosts see it.

use crate::common;
use crate::common::{BLOCK, Bed, Client, NQN, io_on, pattern};
use base::Nanos;
use base::units::MIB;
use std::sync::atomic::{AtomicBool, Ordering};
use switchyard_target::{AnaState, Limits, NamespaceOptions, TargetError};
use wire::limits::NSID_BROADCAST;
use wire::nvme::ana::{ANA_GROUPS_ONLY, parse_ana_log};
use wire::nvme::feature::{AsyncEventConfiguration, FeatureId};
use wire::nvme::identify::Cns;
use wire::nvme::log_page::LogPageId;
use wire::nvme::{
    AdminCommand, AsyncEvent, GetLogPage, Identify, IdentifyController, IdentifyNamespace,
    IoOpcode, SetFeatures, Status,
};

/// A bed whose subsystem has namespaces 1 (group 1), 2 and 3 (both group 7).
fn bed(limits: Limits, cores: usize) -> Bed {
    let bed = Bed::with(limits, cores);
    for nsid in [2, 3] {
        let namespace = NamespaceOptions {
            ana_group: 7,
            ..common::namespace(nsid, common::ram(MIB))
        };
        bed.handle()
            .add_namespace(NQN, namespace)
            .expect("a new one");
    }
    bed
}

fn set(bed: &Bed, group: u32, state: AnaState) {
    let set = bed.handle().set_ana_state(NQN, group, state, || Ok(()));
    set.expect("no command is in flight");
}

fn identified(admin: &mut Client, cns: Cns, nsid: u32) -> [u8; 4096] {
    let (completion, data) = admin.fetch(Identify::new(cns, nsid).encode(0), 4096);
    assert!(completion.status.is_success(), "{}", completion.status);
    data.try_into().expect("4096 bytes")
}

type Group = (u32, AnaState, Vec<u32>);

/// Returns the change count of the ANA log page, and its groups.
fn log(admin: &mut Client, specific_field: u8) -> (u64, Vec<Group>) {
    let get = GetLogPage {
        specific_field,
        ..GetLogPage::new(LogPageId::ANA, 0, 0, 1024)
    };
    let (completion, data) = admin.fetch(get.encode(0), 1024);
    assert!(completion.status.is_success(), "{}", completion.status);
    let (changes, groups) = parse_ana_log(&data).expect("a valid page");
    let groups = groups.map(|it| (it.group, it.state, it.nsids().collect()));
    (changes, groups.collect())
}

fn read_of(client: &mut Client, nsid: u32) -> Status {
    let (completion, _) = client.fetch(io_on(nsid, IoOpcode::READ, 0, 1), BLOCK);
    completion.status
}

#[test]
fn hosts_see_groups_their_states_and_changes() {
    for cores in [1, 2] {
        let bed = bed(Limits::default(), cores);
        let (mut admin, mut client) = bed.host();
        let controller = IdentifyController::parse(&identified(&mut admin, Cns::CONTROLLER, 0));
        assert_ne!(controller.cmic & IdentifyController::CMIC_ANA, 0);
        assert_ne!(controller.oaes & IdentifyController::OAES_ANA_CHANGE, 0);
        assert_eq!((controller.anagrpmax, controller.nanagrpid), (1024, 1024));
        let namespace = identified(&mut admin, Cns::NAMESPACE, 3);
        assert_eq!(IdentifyNamespace::parse(&namespace).anagrpid, 7);

        let (before, groups) = log(&mut admin, 0);
        let first = (1, AnaState::Optimized, vec![1]);
        assert_eq!(
            groups,
            [first.clone(), (7, AnaState::Optimized, vec![2, 3])]
        );
        let wanted = AsyncEventConfiguration::ANA_CHANGE;
        let feature = SetFeatures::new(FeatureId::ASYNC_EVENT_CONFIGURATION, wanted.0);
        admin.execute(feature.encode(0), &[]);
        for (state, status) in [
            (AnaState::Inaccessible, Status::ANA_INACCESSIBLE),
            (AnaState::Change, Status::ANA_TRANSITION),
            (AnaState::NonOptimized, Status::SUCCESS),
            (AnaState::PersistentLoss, Status::ANA_PERSISTENT_LOSS),
            (AnaState::Optimized, Status::SUCCESS),
        ] {
            let cid = admin.cid();
            admin.capsule(&AdminCommand::AsyncEventRequest.encode(cid), &[]);
            set(&bed, 7, state);
            let event = admin.completion();
            assert_eq!(event.cid, cid);
            assert_eq!(
                AsyncEvent::from_dword(event.dword0()),
                AsyncEvent::ANA_CHANGE
            );
            let (changes, groups) = log(&mut admin, 0);
            assert!(changes > before);
            assert_eq!(groups, [first.clone(), (7, state, vec![2, 3])]);
            // A host that may try another path does not see DNR.
            assert_eq!(read_of(&mut client, 1), Status::SUCCESS);
            assert_eq!(read_of(&mut client, 2), status);
            let data = pattern(1, BLOCK);
            let written = client.execute(io_on(3, IoOpcode::WRITE, 0, 1), &data);
            assert_eq!(written.status, status);
            for (nsid, status) in [(3, status), (NSID_BROADCAST, Status::SUCCESS)] {
                let flush = io_on(nsid, IoOpcode::FLUSH, 0, 1);
                assert_eq!(client.execute(flush, &[]).status, status);
            }
        }
        let (_, only) = log(&mut admin, ANA_GROUPS_ONLY);
        assert_eq!(only[1], (7, AnaState::Optimized, vec![]));
    }
}

#[test]
fn a_namespace_that_is_added_has_the_state_of_its_group() {
    let bed = bed(Limits::default(), 1);
    set(&bed, 7, AnaState::Inaccessible);
    let namespace = NamespaceOptions {
        ana_group: 7,
        ..common::namespace(9, common::ram(MIB))
    };
    bed.handle()
        .add_namespace(NQN, namespace)
        .expect("a new one");
    let (_admin, mut client) = bed.host();
    assert_eq!(read_of(&mut client, 9), Status::ANA_INACCESSIBLE);
    bed.handle()
        .resize_namespace(NQN, 9, 512)
        .expect("RAM grows");
    assert_eq!(read_of(&mut client, 9), Status::ANA_INACCESSIBLE);
    set(&bed, 7, AnaState::Optimized);
    assert_eq!(read_of(&mut client, 9), Status::SUCCESS);
}

/// Another target may serve the group as soon as it is inaccessible here.
#[test]
fn commands_in_flight_end_and_later_ones_are_refused() {
    let limits = Limits {
        pause_patience: Nanos::from_secs(60),
        ..Limits::default()
    };
    let bed = bed(limits, 1);
    let (_admin, mut client) = bed.host();
    let data = pattern(4, 16 * BLOCK);
    let r2t = client.begin_write(1, &data);
    let written_back = AtomicBool::new(false);
    let write_back = || {
        written_back.store(true, Ordering::Relaxed);
        Ok(())
    };
    let state = AnaState::Inaccessible;
    std::thread::scope(|scope| {
        let change = scope.spawn(|| bed.handle().set_ana_state(NQN, 1, state, write_back));
        let cid = client.read_until_paused(&bed);
        assert!(!change.is_finished() && !written_back.load(Ordering::Relaxed));
        client.answer_r2t(&r2t, &data);
        let completion = client.completion();
        assert_eq!((completion.cid, completion.status), (1, Status::SUCCESS));
        let (refused, _) = client.fetched(cid);
        assert_eq!(refused.status, Status::ANA_INACCESSIBLE);
        change
            .join()
            .expect("no panic")
            .expect("the write has ended");
    });
    assert!(written_back.load(Ordering::Relaxed));
}

#[test]
fn writes_that_cannot_be_made_durable_keep_the_state() {
    let bed = bed(Limits::default(), 2);
    let (_admin, mut client) = bed.host();
    let fails = || Err(TargetError::Undone("no space".to_owned()));
    let state = AnaState::Inaccessible;
    let refused = bed.handle().set_ana_state(NQN, 7, state, fails);
    assert!(
        matches!(refused, Err(TargetError::Undone(_))),
        "{refused:?}"
    );
    for nsid in [1, 2, 3] {
        assert_eq!(read_of(&mut client, nsid), Status::SUCCESS);
    }
    for group in [0, 1025] {
        let refused = bed.handle().set_ana_state(NQN, group, state, || Ok(()));
        assert!(
            matches!(refused, Err(TargetError::Invalid(_))),
            "{refused:?}"
        );
    }
    let refused = bed.handle().set_ana_state("nqn.none", 1, state, || Ok(()));
    assert!(
        matches!(refused, Err(TargetError::NoSubsystem(_))),
        "{refused:?}"
    );
}
