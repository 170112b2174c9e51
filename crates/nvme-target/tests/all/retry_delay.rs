//! Hosts that support retry delays get one with an interrupted command. `[NVMe Base 2.0
//! §5.27.1.18]`

use crate::common;
use crate::common::{BLOCK, Bed, Client, Dialect, NQN, pattern};
use switchyard_target::Limits;
use wire::nvme::feature::{CAPABILITY_CHANGEABLE, FeatureId, FeatureSelect, HostBehavior};
use wire::nvme::identify::Cns;
use wire::nvme::log_page::{ErrorEntry, LogPageId};
use wire::nvme::{
    Completion, GetFeatures, GetLogPage, Identify, IdentifyController, IoOpcode, SetFeatures,
    SglDescriptor, Status,
};
use wire::tcp::R2t;

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

/// Starts a target with one core whose queues may have one command over extents at a time.
fn bed_with(limits: Limits) -> Bed {
    let limits = Limits {
        extents_in_flight: 1,
        ..limits
    };
    Bed::with(limits, 1)
}

/// Begins a command over extents whose data is withheld.
fn begin(queue: &mut Client) -> R2t {
    let (mut write, table) = common::extents(IoOpcode::WRITE_EXTENTS, 1, &[(0, 1), (8, 1)]);
    write.set_cid(queue.cid());
    write.set_sgl(SglDescriptor::in_capsule(0, table.len() as u32));
    queue.capsule(&write, &table);
    queue.r2t()
}

/// Sends a command beyond the queue's limit. Returns its completion.
fn beyond(queue: &mut Client) -> Completion {
    let (read, table) = common::extents(IoOpcode::READ_EXTENTS, 1, &[(0, 1), (8, 1)]);
    queue.execute(read, &table)
}

/// Linux retried such a command five times without delay, and its application got an error.
#[test]
fn an_interrupted_command_has_a_delay_once_its_host_enabled_delays() {
    let bed = bed_with(Limits::default());
    let (mut admin, mut queue) = bed.host();
    assert_eq!(identify(&mut admin).crdt, [1, 0, 0]);
    let r2t = begin(&mut queue);
    let interrupted = Status::COMMAND_INTERRUPTED;
    assert_eq!(beyond(&mut queue).status, interrupted);
    for (acre, expected) in [(1, interrupted.with_crd(1)), (0, interrupted)] {
        set_acre(&mut admin, acre);
        assert_eq!(behavior(&mut admin, FeatureSelect::CURRENT).acre, acre);
        assert_eq!(beyond(&mut queue).status, expected);
        let get = GetLogPage::new(LogPageId::ERROR, 0, 0, 64).encode(0);
        let (_, errors) = admin.fetch(get, 64);
        let newest = ErrorEntry::parse_prefix(&errors).expect("64 bytes");
        assert_eq!(newest.status_field >> 1, expected.0);
    }
    queue.answer_r2t(&r2t, &pattern(2, 2 * BLOCK));
    assert!(queue.completion().status.is_success());
    assert!(queue.write(0, &pattern(1, BLOCK)).status.is_success());
}

#[test]
fn a_reset_forgets_the_behavior_of_the_host() {
    let bed = bed_with(Limits::default());
    let (mut admin, queue) = bed.host();
    set_acre(&mut admin, 1);
    drop(queue);
    admin.disable();
    admin.enable();
    let now = behavior(&mut admin, FeatureSelect::CURRENT);
    assert_eq!(now, HostBehavior::default());
    let mut queue = Client::dial(bed.address(), Dialect::default());
    queue.connect_io(NQN, identify(&mut admin).cntlid, 1, 127);
    begin(&mut queue);
    assert_eq!(beyond(&mut queue).status, Status::COMMAND_INTERRUPTED);
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
