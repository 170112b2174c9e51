//! Reservations, as two hosts with several controllers each see them.

use crate::common::late::{self, QUICK};
use crate::common::{
    BLOCK, Bed, Client, Dialect, NQN, deallocate, extents, io, namespace, pattern, ram, run,
};
use base::units::MIB;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use switchyard_target::{Limits, ReservationRecord, Target};
use testing::eventually;
use wire::fabrics::ConnectData;
use wire::limits::NSID_BROADCAST;
use wire::nvme::feature::FeatureId;
use wire::nvme::identify::Cns;
use wire::nvme::log_page::LogPageId;
use wire::nvme::reservation::{
    AcquireAction, AcquireData, RESCAP_PERSISTENT, RESCAP_TYPES, RegisterAction, RegisterData,
    RegisteredController, ReleaseAction, ReleaseData, ReservationAcquire, ReservationLog,
    ReservationNotice, ReservationRegister, ReservationRelease, ReservationReport,
    ReservationStatus, ReservationType as Type,
};
use wire::nvme::{
    AdminCommand, AsyncEvent, Command, GetLogPage, Identify, IdentifyController, IdentifyNamespace,
    IoOpcode, SetFeatures, SglDescriptor, Status,
};

const CONFLICT: Status = Status::RESERVATION_CONFLICT.with_dnr();
const INVALID: Status = Status::INVALID_FIELD.with_dnr();

/// A controller of a host, with one I/O queue.
struct Controller {
    admin: Client,
    io: Client,
    cntlid: u16,
}

/// Returns a controller of the host with this HOSTID (repeated) and key.
fn controller(bed: &Bed, host: u8) -> Controller {
    let connect = |cntlid, queue| {
        let mut client = Client::dial(bed.address(), Dialect::default());
        let name = format!("nqn.2026-11.io.example:host-{host}");
        let data = testing::connect_data(NQN, &name, [host; 16], cntlid);
        let completion = client.connect(&Client::connect_command(queue, 31, 0), &data);
        assert!(completion.status.is_success(), "{}", completion.status);
        (client, completion.dword0() as u16)
    };
    let (mut admin, cntlid) = connect(ConnectData::CNTLID_DYNAMIC, 0);
    admin.enable();
    let (io, _) = connect(cntlid, 1);
    Controller { admin, io, cntlid }
}

fn register(client: &mut Client, key: u64, persist: Option<bool>) -> Status {
    let register = ReservationRegister {
        action: RegisterAction::Register,
        ignore_key: false,
        persist,
    };
    let data = RegisterData {
        current: 0,
        new: key,
    };
    let command = register.encode(1, 0);
    client.execute(command, &data.to_bytes()).status
}

fn acquire_with(
    action: AcquireAction,
    kind: Type,
    key: u64,
    preempted: u64,
) -> (Command, [u8; 16]) {
    let data = AcquireData {
        current: key,
        preempted,
    };
    let command = ReservationAcquire { action, kind }.encode(1, 0);
    (command, data.to_bytes())
}

fn acquire(client: &mut Client, kind: Type, key: u64) -> Status {
    let (command, data) = acquire_with(AcquireAction::Acquire, kind, key, 0);
    client.execute(command, &data).status
}

fn preempt(client: &mut Client, kind: Type, key: u64, preempted: u64) -> Status {
    let (command, data) = acquire_with(AcquireAction::Preempt, kind, key, preempted);
    client.execute(command, &data).status
}

fn release(client: &mut Client, action: ReleaseAction, kind: Type, key: u64) -> Status {
    let kind = kind as u8;
    let command = ReservationRelease { action, kind }.encode(1, 0);
    let data = ReleaseData { current: key };
    client.execute(command, &data.to_bytes()).status
}

/// Returns the Reservation Status: its header and its entries.
fn report(client: &mut Client) -> (ReservationStatus, Vec<RegisteredController>) {
    let report = ReservationReport {
        dwords: 256,
        extended: true,
    };
    let (completion, data) = client.fetch(report.encode(1, 0), 1024);
    assert!(completion.status.is_success(), "{}", completion.status);
    let header = ReservationStatus::parse_prefix(&data).expect("1024 bytes");
    let count = usize::from(u16::from_le_bytes(header.controllers));
    let entries = data[64..].chunks_exact(64).take(count);
    let entries = entries.map(|entry| RegisteredController::parse_prefix(entry).expect("64"));
    (header, entries.collect())
}

/// Returns the registered HOSTIDs by their byte, and whether each holds the reservation.
fn hosts(client: &mut Client) -> Vec<(u8, bool)> {
    let (_, entries) = report(client);
    let mut hosts: Vec<_> = entries
        .iter()
        .map(|it| (it.host[0], it.status == 1))
        .collect();
    hosts.dedup();
    hosts
}

/// Returns the status of each kind of I/O command: those that read, then those that write.
fn statuses(client: &mut Client) -> (Vec<Status>, Vec<Status>) {
    let data = pattern(3, BLOCK);
    let mut reads = vec![client.read(0, 1).0.status];
    let (command, table) = extents(IoOpcode::READ_EXTENTS, 1, &[(0, 1), (4, 1)]);
    reads.push(extent_status(client, command, &table));
    let compare = client.execute(io(IoOpcode::COMPARE, 0, 1), &data).status;
    // It is about another status than the outcome of the comparison.
    reads.push(if compare.is(Status::COMPARE_FAILURE) {
        Status::SUCCESS
    } else {
        compare
    });
    reads.push(client.execute(io(IoOpcode::VERIFY, 0, 1), &[]).status);
    let mut writes = vec![client.write(0, &data).status];
    let large = pattern(4, 8 * BLOCK);
    let mut command = io(IoOpcode::WRITE, 8, 8);
    command.set_sgl(SglDescriptor::transport(large.len() as u32));
    let cid = client.cid();
    command.set_cid(cid);
    client.capsule(&command, &[]);
    writes.push(client.finish_write(&large).status);
    writes.push(client.execute(io(IoOpcode::WRITE_ZEROES, 0, 1), &[]).status);
    for nsid in [1, NSID_BROADCAST] {
        let mut flush = io(IoOpcode::FLUSH, 0, 1);
        flush.set_nsid(nsid);
        writes.push(client.execute(flush, &[]).status);
    }
    let (command, table) = extents(IoOpcode::WRITE_EXTENTS, 1, &[(0, 1)]);
    let inside = [&data[..], &table].concat();
    writes.push(client.execute(command, &inside).status);
    let (command, ranges) = deallocate(0, 1);
    writes.push(client.execute(command, &ranges).status);
    (reads, writes)
}

/// Returns the status of a Read of several extents.
fn extent_status(client: &mut Client, mut command: Command, table: &[u8]) -> Status {
    let cid = client.cid();
    command.set_cid(cid);
    command.set_sgl(SglDescriptor::in_capsule(0, table.len() as u32));
    client.capsule(&command, table);
    client.fetched(cid).0.status
}

fn assert_access(client: &mut Client, reads: bool, writes: bool, case: &str) {
    let (read, write) = statuses(client);
    for (statuses, allowed) in [(read, reads), (write, writes)] {
        let expected = if allowed { Status::SUCCESS } else { CONFLICT };
        assert!(
            statuses.iter().all(|status| *status == expected),
            "{case}: {statuses:?}"
        );
    }
}

#[test]
fn every_command_of_an_excluded_host_conflicts_over_all_controllers() {
    for cores in [1, 3] {
        let bed = Bed::with(Limits::default(), cores);
        let mut a = [controller(&bed, 1), controller(&bed, 1)];
        let mut b = [controller(&bed, 2), controller(&bed, 2)];
        let mut c = controller(&bed, 3);
        assert_access(&mut c.io, true, true, "without a reservation");
        assert_eq!(register(&mut a[0].io, 11, None), Status::SUCCESS);
        assert_eq!(register(&mut b[0].io, 22, None), Status::SUCCESS);
        for kind in Type::ALL {
            assert_eq!(acquire(&mut c.io, kind, 11), CONFLICT, "no registrant");
            assert_eq!(acquire(&mut a[1].io, kind, 11), Status::SUCCESS);
            let case = format!("{kind:?} on {cores} cores");
            for controller in &mut a {
                assert_access(&mut controller.io, true, true, &case);
            }
            let shared = kind.admits_registrants();
            let reads = !kind.excludes_reads();
            for controller in &mut b {
                let (reads, writes) = (reads || shared, shared);
                assert_access(&mut controller.io, reads, writes, &case);
            }
            assert_access(&mut c.io, reads, false, &case);
            let (header, entries) = report(&mut c.io);
            assert_eq!(header.kind, kind as u8);
            let mut found: Vec<_> = entries.iter().map(|it| (it.cntlid, it.key)).collect();
            found.sort_unstable();
            let mut expected = Vec::new();
            expected.extend(a.iter().map(|it| (it.cntlid, 11)));
            expected.extend(b.iter().map(|it| (it.cntlid, 22)));
            expected.sort_unstable();
            assert_eq!(found, expected);
            let holds_all = kind.is_held_by_all();
            assert_eq!(hosts(&mut c.io), [(1, true), (2, holds_all)]);
            let released = release(&mut a[0].io, ReleaseAction::Release, kind, 11);
            assert_eq!(released, Status::SUCCESS);
            assert_access(&mut c.io, true, true, "released");
        }
    }
}

#[test]
fn fields_of_the_commands_are_checked() {
    let bed = Bed::new();
    let mut a = controller(&bed, 1);
    let identify = |admin: &mut Client, cns, nsid| {
        let (completion, data) = admin.fetch(Identify::new(cns, nsid).encode(0), 4096);
        assert!(completion.status.is_success());
        <[u8; 4096]>::try_from(data).expect("4096 bytes")
    };
    let found = IdentifyController::parse(&identify(&mut a.admin, Cns::CONTROLLER, 0));
    assert_ne!(found.oncs & IdentifyController::ONCS_RESERVATIONS, 0);
    let found = IdentifyNamespace::parse(&identify(&mut a.admin, Cns::NAMESPACE, 1));
    assert_eq!(found.rescap, RESCAP_TYPES, "nothing keeps the state");
    assert_eq!(register(&mut a.io, 1, Some(true)), INVALID);
    assert_eq!(register(&mut a.io, 0, None), INVALID);
    let execute = |client: &mut Client, opcode: IoOpcode, nsid, dword, data: &[u8]| {
        let mut command = Command::new(opcode.0, 0);
        command.set_nsid(nsid);
        command.set_cdw(10, dword);
        client.execute(command, data).status
    };
    let namespace = Status::INVALID_NAMESPACE.with_dnr();
    let short = Status::DATA_SGL_LENGTH_INVALID.with_dnr();
    let (register, acquire, release) = (
        IoOpcode::RESERVATION_REGISTER,
        IoOpcode::RESERVATION_ACQUIRE,
        IoOpcode::RESERVATION_RELEASE,
    );
    for (opcode, nsid, dword, bytes, expected) in [
        (register, 2, 0, 16, namespace),
        (register, NSID_BROADCAST, 0, 16, namespace),
        (register, 1, 3, 16, INVALID),
        (register, 1, 1 << 30, 16, INVALID),
        (register, 1, 0, 8, short),
        (acquire, 1, 0, 16, INVALID),
        (acquire, 1, 7 << 8, 16, INVALID),
        (acquire, 1, 1 << 8 | 1 << 3, 16, INVALID),
        (acquire, 1, 1 << 8 | 3, 16, INVALID),
        (acquire, 1, 1 << 8, 16, CONFLICT),
        (release, 1, 1 << 3, 8, INVALID),
        (release, 1, 2, 8, INVALID),
        (release, 1, 1 << 8, 0, short),
        (release, 1, 1 << 8, 8, CONFLICT),
    ] {
        let status = execute(&mut a.io, opcode, nsid, dword, &[1; 16][..bytes]);
        assert_eq!(status, expected, "{opcode} {dword:#x} {bytes}");
    }
    let status = |client: &mut Client, extended, dwords, bytes| {
        let command = ReservationReport { dwords, extended }.encode(1, 0);
        let (completion, data) = client.fetch(command, bytes);
        (completion.status, data.len())
    };
    let inconsistent = Status::HOST_ID_INCONSISTENT.with_dnr();
    assert_eq!(status(&mut a.io, false, 16, 64), (inconsistent, 0));
    assert_eq!(status(&mut a.io, true, 16, 128), (short, 0));
    assert_eq!(status(&mut a.io, true, 1, 4), (Status::SUCCESS, 4));
    // The commands are none of an admin queue.
    let admin = execute(&mut a.admin, register, 1, 0, &[1; 16]);
    assert!(admin.is(Status::INVALID_OPCODE), "{admin}");
}

/// A write whose data has not arrived, and one that waits for room in the device, are refused when
/// they come to begin; one at the device finishes.
#[test]
fn waiting_commands_of_a_preempted_host_are_refused() {
    let (bed, state) = late::bed_on(1, 1, Limits::default());
    let mut a = controller(&bed, 1);
    let mut b = controller(&bed, 2);
    assert_eq!(register(&mut a.io, 11, None), Status::SUCCESS);
    assert_eq!(register(&mut b.io, 22, None), Status::SUCCESS);
    assert_eq!(
        acquire(&mut b.io, Type::WriteExclusive, 22),
        Status::SUCCESS
    );
    let data = pattern(1, BLOCK);
    let mut begin = |cid: u16, slba| {
        let mut write = io(IoOpcode::WRITE, slba, 1);
        write.set_cid(cid);
        write.set_sgl(SglDescriptor::in_capsule(0, BLOCK as u32));
        b.io.capsule(&write, &data);
    };
    begin(100, 0);
    begin(101, 1);
    eventually("one is at the device", || {
        state.held.load(Ordering::SeqCst) == 1
    });
    let large = pattern(2, 8 * BLOCK);
    let r2t = b.io.begin_write(102, &large);
    let kind = Type::ExclusiveAccess;
    assert_eq!(preempt(&mut a.io, kind, 11, 22), Status::SUCCESS);
    assert_eq!(hosts(&mut a.io), [(1, true)]);
    let refused = b.io.completion();
    assert_eq!((refused.cid, refused.status), (101, CONFLICT));
    b.io.answer_r2t(&r2t, &large);
    let refused = b.io.completion();
    assert_eq!((refused.cid, refused.status), (102, CONFLICT));
    state.open.store(true, Ordering::SeqCst);
    // It wakes the core.
    assert_eq!(a.io.read(2000, 1).0.status, Status::SUCCESS);
    let finished = b.io.completion();
    assert_eq!((finished.cid, finished.status), (100, Status::SUCCESS));
    assert_eq!(a.io.read(0, 1).1, data);
    assert_eq!(a.io.read(1, 1).1, vec![0; BLOCK], "never written");
}

#[test]
fn a_preemption_with_abort_waits_for_the_commands_at_the_device() {
    let (bed, state) = late::bed_on(1, 4, Limits::default());
    let mut a = controller(&bed, 1);
    let mut b = controller(&bed, 2);
    assert_eq!(register(&mut a.io, 11, None), Status::SUCCESS);
    assert_eq!(register(&mut b.io, 22, None), Status::SUCCESS);
    let data = pattern(1, BLOCK);
    let mut write = io(IoOpcode::WRITE, 0, 1);
    write.set_cid(100);
    write.set_sgl(SglDescriptor::in_capsule(0, BLOCK as u32));
    b.io.capsule(&write, &data);
    eventually("it is at the device", || {
        state.held.load(Ordering::SeqCst) == 1
    });
    assert_eq!(
        acquire(&mut b.io, Type::WriteExclusive, 22),
        Status::SUCCESS
    );
    let kind = Type::WriteExclusive;
    let action = AcquireAction::PreemptAndAbort;
    let (mut command, preempted) = acquire_with(action, kind, 11, 22);
    let cid = a.io.cid();
    command.set_cid(cid);
    command.set_sgl(SglDescriptor::in_capsule(0, 16));
    a.io.capsule(&command, &preempted);
    // The namespace is paused by now, and the command is not answered.
    let mut read = 200;
    let ask = |client: &mut Client, cid| {
        let mut command = io(IoOpcode::READ, QUICK, 1);
        command.set_cid(cid);
        command.set_sgl(SglDescriptor::transport(BLOCK as u32));
        client.capsule(&command, &[]);
    };
    ask(&mut b.io, read);
    eventually("a command waits for the namespace", || {
        if !b.io.is_silent() {
            b.io.fetched(read);
            read += 1;
            ask(&mut b.io, read);
        }
        bed.pause_waits() > 0
    });
    assert!(a.io.is_silent());
    state.open.store(true, Ordering::SeqCst);
    let completion = a.io.completion();
    assert_eq!((completion.cid, completion.status), (cid, Status::SUCCESS));
    let mut ended = Vec::new();
    while ended.len() < 2 {
        let (completion, _) = b.io.answer().expect("an answer");
        ended.push((completion.cid, completion.status));
    }
    ended.sort_by_key(|(cid, _)| *cid);
    assert!(ended.contains(&(100, Status::SUCCESS)), "{ended:?}");
    assert!(ended.iter().any(|(cid, _)| *cid == read), "{ended:?}");
    assert_eq!(hosts(&mut a.io), [(1, true)]);
    assert_eq!(b.io.write(2000, &data).status, CONFLICT);
}

#[test]
fn a_fused_pair_is_refused_as_its_write() {
    let bed = Bed::new();
    let mut a = controller(&bed, 1);
    let mut b = controller(&bed, 2);
    assert_eq!(register(&mut a.io, 11, None), Status::SUCCESS);
    let kind = Type::WriteExclusive;
    assert_eq!(acquire(&mut a.io, kind, 11), Status::SUCCESS);
    let halves = [
        (Command::FUSE_FIRST, IoOpcode::COMPARE, vec![0; BLOCK]),
        (Command::FUSE_SECOND, IoOpcode::WRITE, pattern(1, BLOCK)),
    ];
    for (fuse, opcode, data) in &halves {
        let mut half = io(*opcode, 0, 1);
        half.set_fuse(*fuse);
        half.set_cid(100 + u16::from(*fuse));
        half.set_sgl(SglDescriptor::in_capsule(0, BLOCK as u32));
        b.io.capsule(&half, data);
    }
    let mut ended = [b.io.completion(), b.io.completion()];
    ended.sort_by_key(|completion| completion.cid);
    let [first, second] = ended.map(|completion| completion.status);
    assert!(first.is(Status::ABORTED_FAILED_FUSED), "{first}");
    assert_eq!(second, CONFLICT);
    assert_eq!(a.io.read(0, 1).1, vec![0; BLOCK], "never written");
}

fn notification(admin: &mut Client) -> ReservationLog {
    let get = GetLogPage::new(LogPageId::RESERVATION, 0, 0, 64);
    let (completion, data) = admin.fetch(get.encode(0), 64);
    assert!(completion.status.is_success(), "{}", completion.status);
    ReservationLog::parse_prefix(&data).expect("64 bytes")
}

#[test]
fn hosts_are_notified_unless_they_mask_it() {
    let bed = Bed::new();
    let mut a = controller(&bed, 1);
    let mut b = [controller(&bed, 2), controller(&bed, 2)];
    assert_eq!(notification(&mut b[0].admin), ReservationLog::default());
    let mask = ReservationNotice::ReservationReleased.mask();
    let mut set = SetFeatures::new(FeatureId::RESERVATION_NOTIFICATION_MASK, mask);
    set.nsid = NSID_BROADCAST;
    assert!(b[1].admin.execute(set.encode(0), &[]).status.is_success());
    assert_eq!(register(&mut a.io, 11, None), Status::SUCCESS);
    assert_eq!(register(&mut b[0].io, 22, None), Status::SUCCESS);
    for controller in &mut b {
        let cid = controller.admin.cid();
        let request = AdminCommand::AsyncEventRequest.encode(cid);
        controller.admin.capsule(&request, &[]);
    }
    let kind = Type::WriteExclusiveRegistrants;
    assert_eq!(acquire(&mut a.io, kind, 11), Status::SUCCESS);
    let released = release(&mut a.io, ReleaseAction::Release, kind, 11);
    assert_eq!(released, Status::SUCCESS);
    assert_eq!(preempt(&mut a.io, kind, 11, 22), Status::SUCCESS);
    for (controller, kinds) in b.iter_mut().zip([
        &[
            ReservationNotice::ReservationReleased,
            ReservationNotice::RegistrationPreempted,
        ][..],
        &[ReservationNotice::RegistrationPreempted],
    ]) {
        let event = controller.admin.completion();
        let event = AsyncEvent::from_dword(event.dword0());
        assert_eq!(event, AsyncEvent::RESERVATION);
        for (count, kind) in (1..).zip(kinds) {
            let expected = ReservationLog {
                count,
                kind: *kind as u8,
                available: (kinds.len() as u64 - count) as u8,
                nsid: 1,
            };
            assert_eq!(notification(&mut controller.admin), expected);
        }
        let none = ReservationLog::default();
        assert_eq!(notification(&mut controller.admin), none);
    }
    assert_eq!(notification(&mut a.admin), ReservationLog::default());
}

/// Returns a target that keeps reservations, with those of a process before.
fn keeping(before: Vec<ReservationRecord>) -> (Bed, Arc<Mutex<Vec<Vec<ReservationRecord>>>>) {
    let target = Target::new(Limits::default(), 2).expect("the defaults");
    let saved = Arc::new(Mutex::new(Vec::new()));
    let (kept, weak) = (Arc::clone(&saved), Arc::downgrade(&target));
    target.keep_reservations(move || {
        let target = weak.upgrade().expect("it runs");
        let mut saved = kept.lock().expect("no panic");
        saved.push(target.persistent_reservations());
        if saved.len() == 3 {
            return Err("no space".to_owned());
        }
        Ok(())
    });
    target.set_reservations(before);
    let options = switchyard_target::SubsystemOptions::open_to_all(NQN);
    target.add_subsystem(options).expect("a new one");
    let ram = ram(16 * MIB);
    let device = Arc::clone(&ram) as _;
    target.add_namespace(NQN, namespace(1, device)).expect("1");
    let target = run(target, 2);
    (Bed { target, ram }, saved)
}

#[test]
fn persistent_reservations_outlive_namespaces_and_the_process() {
    let (bed, saved) = keeping(Vec::new());
    let mut a = controller(&bed, 1);
    let mut b = controller(&bed, 2);
    let identify = Identify::new(Cns::NAMESPACE, 1).encode(0);
    let (_, data) = a.admin.fetch(identify, 4096);
    let rescap = IdentifyNamespace::parse_prefix(&data).expect("4096").rescap;
    assert_eq!(rescap, RESCAP_TYPES | RESCAP_PERSISTENT);
    let count = || saved.lock().expect("no panic").len();
    assert_eq!(register(&mut b.io, 22, None), Status::SUCCESS);
    assert_eq!(count(), 0, "nothing persists");
    let again = |bed: &Bed| {
        bed.handle().remove_namespace(NQN, 1).expect("it is there");
        let device = Arc::clone(&bed.ram) as _;
        let added = bed.handle().add_namespace(NQN, namespace(1, device));
        added.expect("it is gone");
    };
    again(&bed);
    assert!(hosts(&mut a.io).is_empty(), "not persistent");
    assert_eq!(register(&mut a.io, 11, Some(true)), Status::SUCCESS);
    assert_eq!(a.admin.feature(1, FeatureId::RESERVATION_PERSISTENCE), 1);
    let kind = Type::ExclusiveAccess;
    assert_eq!(acquire(&mut a.io, kind, 11), Status::SUCCESS);
    assert_eq!(count(), 2, "one for each change");
    // The third time, it is not kept: nothing changes, and the host may retry.
    let mut off = SetFeatures::new(FeatureId::RESERVATION_PERSISTENCE, 0);
    off.nsid = 1;
    let refused = a.admin.execute(off.encode(0), &[]).status;
    assert!(refused.is(Status::COMMAND_INTERRUPTED), "{refused}");
    assert_eq!(a.admin.feature(1, FeatureId::RESERVATION_PERSISTENCE), 1);
    again(&bed);
    assert_eq!(hosts(&mut a.io), [(1, true)]);
    assert_access(&mut b.io, false, false, "added again");
    // Another volume under the same identifier has none of it.
    bed.handle().remove_namespace(NQN, 1).expect("it is there");
    let records = bed.handle().persistent_reservations();
    assert_eq!(records.len(), 1, "removed, and kept");
    let mut other = namespace(1, ram(16 * MIB));
    other.uuid = [99; 16];
    bed.handle().add_namespace(NQN, other).expect("it is gone");
    let mut c = controller(&bed, 3);
    assert_access(&mut c.io, true, true, "another volume");
    assert!(bed.handle().persistent_reservations().is_empty());
    bed.target.stop().expect("it ends");

    let (bed, _) = keeping(records);
    let mut b = controller(&bed, 2);
    assert_access(&mut b.io, false, false, "after a restart");
    let entry = report(&mut b.io).1[0];
    assert_eq!(
        (entry.cntlid, entry.key),
        (RegisteredController::NO_CONTROLLER, 11)
    );
    let snapshot = bed.handle().snapshot();
    let shown = &snapshot.subsystems[0].namespaces[0].reservations;
    assert_eq!((shown.kind, shown.persists), (Some(2), true));
    assert_eq!(shown.registrants[0].host_id, "01".repeat(16));
    let mut a = controller(&bed, 1);
    let mut off = SetFeatures::new(FeatureId::RESERVATION_PERSISTENCE, 0);
    off.nsid = NSID_BROADCAST;
    assert!(a.admin.execute(off.encode(0), &[]).status.is_success());
    assert!(bed.handle().persistent_reservations().is_empty());
}

#[test]
fn reservations_of_every_kind_go_on_in_another_target() {
    let bed = Bed::with(Limits::default(), 2);
    let mut a = controller(&bed, 1);
    let mut b = controller(&bed, 2);
    assert_eq!(register(&mut a.io, 11, None), Status::SUCCESS);
    assert_eq!(register(&mut b.io, 22, None), Status::SUCCESS);
    let kind = Type::WriteExclusive;
    assert_eq!(acquire(&mut a.io, kind, 11), Status::SUCCESS);
    let next = crate::takeover::successor(&bed);
    crate::takeover::pass(bed, &next);
    assert_access(&mut b.io, true, false, "taken over");
    assert_access(&mut a.io, true, true, "taken over");
    assert_eq!(hosts(&mut b.io), [(1, true), (2, false)]);
    let released = release(&mut a.io, ReleaseAction::Clear, kind, 11);
    assert_eq!(released, Status::SUCCESS);
    assert_access(&mut b.io, true, true, "cleared");
    assert_eq!(notification(&mut b.admin).kind, 3);
    next.stop().expect("it ends");
}

#[test]
fn a_host_that_may_not_write_every_block_reserves_nothing() {
    let bed = Bed::new();
    let limited = switchyard_target::TenantOptions {
        name: "limited".to_owned(),
        hosts: vec!["nqn.2026-11.io.example:host-1".to_owned()],
        grants: Some(vec![switchyard_target::TenantGrant {
            subsystem: None,
            grant: switchyard_target::AccessGrant {
                namespace: Some(1),
                range: Some((0, 16)),
                read: true,
                write: true,
            },
        }]),
        ..switchyard_target::TenantOptions::default()
    };
    let tenancy = switchyard_target::Tenancy {
        tenants: vec![limited],
        ..switchyard_target::Tenancy::default()
    };
    bed.handle().set_tenants(&tenancy).expect("a good tenancy");
    let mut a = controller(&bed, 1);
    let denied = Status::ACCESS_DENIED.with_dnr();
    assert_eq!(register(&mut a.io, 11, None), denied);
    let mut set = SetFeatures::new(FeatureId::RESERVATION_PERSISTENCE, 0);
    set.nsid = 1;
    assert_eq!(a.admin.execute(set.encode(0), &[]).status, denied);
    assert!(hosts(&mut a.io).is_empty());
    let mut b = controller(&bed, 2);
    assert_eq!(register(&mut b.io, 22, None), Status::SUCCESS);
}
