//! Hosts that can wait before they send an interrupted command again are told to. `[NVMe Base 2.0
//! §5.27.1.18]`
#![allow(
    clippy::cast_possible_truncation,
    clippy::tests_outside_test_module,
    reason = "sizes in tests are small, and the whole file is a test"
)]

mod common;

use base::Nanos;
use base::units::{KIB, MIB};
use common::{BLOCK, Bed, Client, Dialect, HOST, NQN, buffers, io, late, pattern, with_buffers};
use std::sync::atomic::Ordering;
use switchyard_target::{Limits, Tenancy, TenantOptions};
use wire::fabrics::property::Configuration;
use wire::nvme::feature::{CAPABILITY_CHANGEABLE, FeatureId, FeatureSelect, HostBehavior};
use wire::nvme::identify::Cns;
use wire::nvme::log_page::{ErrorEntry, LogPageId};
use wire::nvme::vendor::Barrier;
use wire::nvme::{
    Completion, GetFeatures, GetLogPage, Identify, IdentifyController, IoOpcode, SetFeatures,
    SglDescriptor, Status,
};
use wire::tcp::R2t;

/// What a write of these tests writes.
const BYTES: usize = 4 * BLOCK;

fn get(select: FeatureSelect) -> GetFeatures {
    GetFeatures {
        nsid: 0,
        feature: FeatureId::HOST_BEHAVIOR,
        select,
        dword11: 0,
        uuid_index: 0,
    }
}

fn behavior(admin: &mut Client, select: FeatureSelect) -> HostBehavior {
    let (completion, data) = admin.fetch(get(select).encode(0), HostBehavior::SIZE);
    assert!(completion.status.is_success(), "{}", completion.status);
    HostBehavior::parse_prefix(&data).expect("512 bytes")
}

fn set_acre(admin: &mut Client, acre: u8) {
    let behavior = HostBehavior {
        acre,
        ..HostBehavior::default()
    };
    let set = SetFeatures::new(FeatureId::HOST_BEHAVIOR, 0).encode(0);
    let status = admin.execute(set, &behavior.to_bytes()).status;
    assert!(status.is_success(), "{status}");
}

fn identify(admin: &mut Client) -> IdentifyController {
    let (_, data) = admin.fetch(Identify::new(Cns::CONTROLLER, 0).encode(0), 4096);
    IdentifyController::parse_prefix(&data).expect("4096 bytes")
}

/// A target of one core with three buffers of 16 KiB, and one of 1 MiB; small ones are for admin
/// commands.
fn short_of_buffers(limits: Limits) -> Bed {
    let classes = vec![buffers(4 * KIB, 8), buffers(16 * KIB, 3), buffers(MIB, 1)];
    let start = |target| with_buffers(target, classes);
    let (bed, state) = late::bed_started(1, 1000, limits, start);
    state.open.store(true, Ordering::SeqCst);
    bed
}

/// Asks for the buffers of 16 KiB, for writes with data that is withheld.
fn hold_buffers(queue: &mut Client) -> Vec<R2t> {
    let asked = (0..3).map(|place| {
        let mut write = io(IoOpcode::WRITE, place * 8, 4);
        write.set_cid(queue.cid());
        write.set_sgl(SglDescriptor::transport(BYTES as u32));
        queue.capsule(&write, &[]);
        queue.r2t()
    });
    asked.collect()
}

/// A write for which no buffer is left, and that must not wait for one.
fn starved(queue: &mut Client) -> Completion {
    queue.execute(io(IoOpcode::WRITE, 100, 4), &pattern(1, BYTES))
}

/// Sends a Barrier, and returns its identifier.
fn barrier(queue: &mut Client) -> u16 {
    let cid = queue.cid();
    queue.capsule(&Barrier { nsid: 1 }.encode(cid), &[]);
    cid
}

/// Linux sent such a command again at once, five times, and its application got an error.
#[test]
fn an_interrupted_command_has_a_delay_once_its_host_enabled_delays() {
    let bed = short_of_buffers(Limits::default());
    let (mut admin, mut queue) = bed.host();
    assert_eq!(identify(&mut admin).crdt, [1, 0, 0]);
    let r2ts = hold_buffers(&mut queue);
    let interrupted = Status::COMMAND_INTERRUPTED;
    assert_eq!(starved(&mut queue).status, interrupted);
    for (acre, expected) in [(1, interrupted.with_crd(1)), (0, interrupted)] {
        set_acre(&mut admin, acre);
        assert_eq!(behavior(&mut admin, FeatureSelect::CURRENT).acre, acre);
        assert_eq!(starved(&mut queue).status, expected);
        let get = GetLogPage::new(LogPageId::ERROR, 0, 0, 64).encode(0);
        let (_, errors) = admin.fetch(get, 64);
        let newest = ErrorEntry::parse_prefix(&errors).expect("64 bytes");
        assert_eq!(newest.status_field >> 1, expected.0);
    }
    set_acre(&mut admin, 1);
    // The same for a command that has waited already.
    let waits = barrier(&mut queue);
    let tenant = TenantOptions {
        name: "one".to_owned(),
        hosts: vec![HOST.to_owned()],
        ..TenantOptions::default()
    };
    let tenancy = Tenancy {
        tenants: vec![tenant],
        ..Tenancy::default()
    };
    bed.handle().set_tenants(&tenancy).expect("a good tenancy");
    let ended = queue.completion();
    assert_eq!(ended.cid, waits);
    assert_eq!(ended.status, interrupted.with_crd(1));
    for r2t in r2ts {
        queue.answer_r2t(&r2t, &pattern(2, BYTES));
        assert!(queue.completion().status.is_success());
    }
    assert_eq!(starved(&mut queue).status, Status::SUCCESS);
}

/// [NVMe Base 2.0 §3.3.3.2.1]: with DNR the field is reserved.
#[test]
fn a_command_that_is_not_to_be_sent_again_has_no_delay() {
    let limits = Limits {
        barrier_timeout: Nanos::from_millis(100),
        ..Limits::default()
    };
    let bed = short_of_buffers(limits);
    let (mut admin, mut queue) = bed.host();
    set_acre(&mut admin, 1);
    hold_buffers(&mut queue);
    let fails = barrier(&mut queue);
    let ended = queue.completion();
    assert_eq!(ended.cid, fails);
    assert_eq!(ended.status, Status::COMMAND_INTERRUPTED.with_dnr());
}

#[test]
fn a_reset_forgets_the_behavior_of_the_host() {
    let bed = short_of_buffers(Limits::default());
    let (mut admin, queue) = bed.host();
    set_acre(&mut admin, 1);
    drop(queue);
    for configuration in [Configuration(0), Configuration::ENABLE] {
        assert!(admin.configure(configuration).status.is_success());
    }
    let now = behavior(&mut admin, FeatureSelect::CURRENT);
    assert_eq!(now, HostBehavior::default());
    let mut queue = Client::dial(bed.address(), Dialect::default());
    queue.connect_io(NQN, identify(&mut admin).cntlid, 1, 127);
    let _r2ts = hold_buffers(&mut queue);
    assert_eq!(starved(&mut queue).status, Status::COMMAND_INTERRUPTED);
}

#[test]
fn the_behavior_of_the_host_is_a_feature_of_io_controllers() {
    let bed = Bed::new();
    let mut admin = bed.admin();
    let set = HostBehavior {
        acre: 1,
        etdas: 1,
        lbafee: 1,
    };
    let command = SetFeatures::new(FeatureId::HOST_BEHAVIOR, 0).encode(0);
    assert!(admin.execute(command, &set.to_bytes()).status.is_success());
    assert_eq!(behavior(&mut admin, FeatureSelect::CURRENT), set);
    for select in [FeatureSelect::DEFAULT, FeatureSelect::SAVED] {
        assert_eq!(behavior(&mut admin, select), HostBehavior::default());
    }
    let supported = admin.execute(get(FeatureSelect::CAPABILITIES).encode(0), &[]);
    assert_eq!(supported.dword0(), CAPABILITY_CHANGEABLE);
    let mut discovery = Client::discovery(bed.address(), 0);
    assert_eq!(identify(&mut discovery).crdt, [0; 3]);
    let refused = discovery.execute(command, &set.to_bytes()).status;
    assert!(refused.is(Status::INVALID_FIELD), "{refused}");
}
