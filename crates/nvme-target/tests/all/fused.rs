//! Fused Compare and Write: halves that belong together, and exclusion of every other change of the
//! block, on all cores. `[NVMe Base 2.0 §3.4.2, NVM 1.0 §2.1.4]`

use crate::common;
use crate::common::late;
use crate::common::{
    BLOCK, Bed, Client, Dialect, NQN, StopAtLast, eventually, io, namespace, pattern, target_with,
};
use base::Nanos;
use base::units::MIB;
use block::Operation;
use block::layer::delay::{Delay, DelayOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use switchyard_target::Limits;
use wire::fabrics::Disconnect;
use wire::limits::IDENTIFY_BYTES;
use wire::nvme::identify::Cns;
use wire::nvme::{
    Abort, AdminCommand, Command, Identify, IdentifyController, IoOpcode, SglDescriptor, Status,
};

const FIRST: u16 = 1;
const SECOND: u16 = 2;
const OTHER: u16 = 3;

const FAILED: Status = Status::ABORTED_FAILED_FUSED;
const MISSING: Status = Status::ABORTED_MISSING_FUSED;
const FIELD: Status = Status::INVALID_FIELD;

/// Where the data of a half is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Data {
    InCapsule,
    AtHost,
}

const WAYS: [Data; 2] = [Data::InCapsule, Data::AtHost];

fn half(opcode: IoOpcode, cid: u16, slba: u64, way: Data) -> Command {
    let mut command = io(opcode, slba, 1);
    command.set_cid(cid);
    let second = opcode == IoOpcode::WRITE;
    let fuse = [Command::FUSE_FIRST, Command::FUSE_SECOND];
    command.set_fuse(fuse[usize::from(second)]);
    command.set_sgl(match way {
        Data::InCapsule => SglDescriptor::in_capsule(0, BLOCK as u32),
        Data::AtHost => SglDescriptor::transport(BLOCK as u32),
    });
    command
}

fn first(slba: u64) -> Command {
    half(IoOpcode::COMPARE, FIRST, slba, Data::InCapsule)
}

fn second(slba: u64) -> Command {
    half(IoOpcode::WRITE, SECOND, slba, Data::InCapsule)
}

fn with(mut command: Command, change: impl FnOnce(&mut Command)) -> Command {
    change(&mut command);
    command
}

/// Sends commands, each with the same block of data in its capsule. Returns their statuses in the
/// order of the answers, without DNR.
fn send(client: &mut Client, commands: &[Command], data: &[u8]) -> Vec<(u16, Status)> {
    for command in commands {
        client.capsule(command, data);
    }
    commands.iter().map(|_| next(client)).collect()
}

fn next(client: &mut Client) -> (u16, Status) {
    let completion = client.completion();
    let [code, kind] = completion.status.type_and_code().to_le_bytes();
    (completion.cid, Status::from_type_and_code(kind, code))
}

/// Sends a pair with its data in the capsules. Returns both statuses.
fn pair(client: &mut Client, slba: u64, expected: &[u8], new: &[u8]) -> [(u16, Status); 2] {
    client.capsule(&first(slba), expected);
    client.capsule(&second(slba), new);
    [next(client), next(client)]
}

const BOTH: [(u16, Status); 2] = [(FIRST, Status::SUCCESS), (SECOND, Status::SUCCESS)];

#[test]
fn it_is_announced() {
    let bed = Bed::new();
    let mut admin = bed.admin();
    let identify = Identify::new(Cns::CONTROLLER, 0).encode(0);
    let (_, bytes) = admin.fetch(identify, IDENTIFY_BYTES);
    let identify = IdentifyController::parse_prefix(&bytes).expect("4096 bytes");
    assert_eq!((identify.fuses, identify.acwu), (1, 0), "of one block");
}

#[test]
fn a_pair_writes_only_if_the_block_is_as_expected() {
    let bed = Bed::new();
    for data_digest in [false, true] {
        let dialect = Dialect {
            data_digest,
            ..Dialect::default()
        };
        let (_admin, mut client) = bed.host_with(dialect);
        let [old, new] = [1, 2].map(|seed| pattern(seed, BLOCK));
        assert!(client.write(7, &old).status.is_success());
        assert_eq!(pair(&mut client, 7, &old, &new), BOTH);
        assert!(client.read(7, 1).1 == new);
        let failed = pair(&mut client, 7, &old, &old);
        assert_eq!(failed, [(FIRST, Status::COMPARE_FAILURE), (SECOND, FAILED)]);
        assert!(client.read(7, 1).1 == new, "nothing is written");
    }
}

#[test]
fn each_half_may_bring_its_data_in_the_capsule_or_by_r2t() {
    let bed = Bed::new();
    let (_admin, mut client) = bed.host();
    let mut old = client.read(9, 1).1;
    for (seed, (compares, writes)) in
        (1..).zip([(WAYS[0], WAYS[1]), (WAYS[1], WAYS[0]), (WAYS[1], WAYS[1])])
    {
        let new = pattern(seed, BLOCK);
        let halves = [
            (half(IoOpcode::COMPARE, FIRST, 9, compares), compares, &old),
            (half(IoOpcode::WRITE, SECOND, 9, writes), writes, &new),
        ];
        for (command, way, data) in &halves {
            let inside = if *way == Data::InCapsule {
                data
            } else {
                &[][..]
            };
            client.capsule(command, inside);
        }
        for (command, _, data) in halves.iter().filter(|half| half.1 == Data::AtHost) {
            let r2t = client.r2t();
            assert_eq!(r2t.command_id, command.cid(), "one after the other");
            client.answer_r2t(&r2t, data);
        }
        assert_eq!([next(&mut client), next(&mut client)], BOTH);
        assert!(client.read(9, 1).1 == new);
        old = new;
    }
}

/// The status of each half when the halves do not belong together.
#[test]
fn halves_without_each_other_are_aborted() {
    let bed = Bed::new();
    let (_admin, mut client) = bed.host();
    let zeroes = vec![0; BLOCK];
    let verify = with(io(IoOpcode::VERIFY, 0, 1), |command| command.set_cid(OTHER));
    let mut case = |commands: &[Command], expected: &[(u16, Status)]| {
        let answers = send(&mut client, commands, &zeroes);
        assert_eq!(answers, expected);
        // It has no effect on a later pair.
        assert_eq!(pair(&mut client, 3, &zeroes, &zeroes), BOTH);
    };
    let (success, range) = (Status::SUCCESS, Status::LBA_OUT_OF_RANGE);
    case(&[second(3)], &[(SECOND, MISSING)]);
    let between = [(FIRST, MISSING), (OTHER, success), (SECOND, MISSING)];
    // A command without data is sent without any.
    client.capsule(&first(3), &zeroes);
    client.capsule(&verify, &[]);
    client.capsule(&second(3), &zeroes);
    assert_eq!([(); 3].map(|()| next(&mut client)), between);
    let mut case = |commands: &[Command], expected: &[(u16, Status)]| {
        let answers = send(&mut client, commands, &zeroes);
        assert_eq!(answers, expected);
        assert_eq!(pair(&mut client, 3, &zeroes, &zeroes), BOTH);
    };
    let again = with(first(3), |command| command.set_cid(OTHER));
    case(
        &[first(3), again, second(3)],
        &[(FIRST, MISSING), (OTHER, success), (SECOND, success)],
    );
    let plain = with(second(4), |command| {
        command.set_fuse(0);
        command.set_cid(OTHER);
    });
    case(&[first(3), plain, second(3)], &between);
    // The first half has failed before the second one comes, and a later half fails alone.
    let far = first(1 << 40);
    case(&[far, second(3)], &[(FIRST, range), (SECOND, FAILED)]);
    case(
        &[far, plain, second(3)],
        &[(FIRST, range), (OTHER, success), (SECOND, MISSING)],
    );
    // The second half has failed.
    let far = second(1 << 40);
    case(&[first(3), far], &[(FIRST, FAILED), (SECOND, range)]);
    // Not of the same blocks.
    case(&[first(3), second(4)], &[(FIRST, FIELD), (SECOND, FIELD)]);
    // Larger than ACWU.
    let two = |command| with(command, |command: &mut Command| command.set_cdw(12, 1));
    let unit = Status::ATOMIC_WRITE_UNIT_EXCEEDED;
    case(
        &[two(first(3)), two(second(3))],
        &[(FIRST, unit), (SECOND, FAILED)],
    );
    // Other commands are never fused, nor is FUSE 3 defined.
    let swapped = with(first(3), |command| command.set_fuse(Command::FUSE_SECOND));
    case(&[swapped], &[(FIRST, FIELD)]);
    let swapped = with(second(3), |command| command.set_fuse(Command::FUSE_FIRST));
    case(&[swapped, second(3)], &[(SECOND, FIELD), (SECOND, FAILED)]);
    let reserved = with(first(3), |command| command.set_fuse(3));
    case(&[reserved], &[(FIRST, FIELD)]);
    // A half with the identifier of the other one.
    let same = with(second(3), |command| command.set_cid(FIRST));
    let conflict = Status::COMMAND_ID_CONFLICT;
    case(&[first(3), same], &[(FIRST, FAILED), (FIRST, conflict)]);
}

/// Data that arrives damaged fails its half and with it the other one.
#[test]
fn damaged_data_fails_both_halves() {
    let bed = Bed::new();
    let dialect = Dialect {
        data_digest: true,
        ..Dialect::default()
    };
    let (_admin, mut client) = bed.host_with(dialect);
    let zeroes = vec![0; BLOCK];
    let damaged = Status::TRANSIENT_TRANSPORT_ERROR;
    for (bad, expected) in [
        (0, [(FIRST, damaged), (SECOND, FAILED)]),
        (1, [(SECOND, damaged), (FIRST, FAILED)]),
    ] {
        for (index, command) in [first(5), second(5)].iter().enumerate() {
            let mut bytes = client.session.capsule(command, &zeroes);
            if index == bad {
                *bytes.last_mut().expect("a digest") ^= 1;
            }
            client.send(&bytes);
        }
        let mut answers = [next(&mut client), next(&mut client)];
        answers.sort_by_key(|&(cid, _)| (cid == SECOND) == (bad == 0));
        assert_eq!(answers, expected);
        assert_eq!(pair(&mut client, 5, &zeroes, &zeroes), BOTH);
    }
}

#[test]
fn abort_of_a_half_fails_the_other_half() {
    let bed = Bed::new();
    let (mut admin, mut client) = bed.host();
    let zeroes = vec![0; BLOCK];
    let mut abort = |cid| {
        let abort = AdminCommand::Abort(Abort { sq_id: 1, cid });
        admin.execute(abort.encode(0), &[]).dword0()
    };
    client.capsule(&first(6), &zeroes);
    eventually("the first half waits", || abort(FIRST) == 0);
    assert_eq!(next(&mut client), (FIRST, Status::ABORTED_BY_REQUEST));
    assert_eq!(send(&mut client, &[second(6)], &zeroes), [(SECOND, FAILED)]);
    // The second half waits for its data, so only the first one can be aborted.
    client.capsule(&first(6), &zeroes);
    client.capsule(&half(IoOpcode::WRITE, SECOND, 6, Data::AtHost), &[]);
    let r2t = client.r2t();
    assert_eq!(abort(SECOND), 1);
    assert_eq!(abort(FIRST), 0);
    assert_eq!(next(&mut client), (FIRST, Status::ABORTED_BY_REQUEST));
    client.answer_r2t(&r2t, &zeroes);
    assert_eq!(next(&mut client), (SECOND, FAILED));
    assert_eq!(pair(&mut client, 6, &zeroes, &zeroes), BOTH);
}

/// The end of a queue between the halves, or while the second one has no data.
#[test]
fn a_queue_may_end_between_the_halves() {
    let bed = Bed::with(Limits::default(), 2);
    let zeroes = vec![0; BLOCK];
    let (mut admin, mut client) = bed.host();
    client.capsule(&first(8), &zeroes);
    let disconnect = with(Disconnect { record_format: 0 }.encode(0), |command| {
        command.set_cid(OTHER)
    });
    client.capsule(&disconnect, &[]);
    let answers = [next(&mut client), next(&mut client)];
    assert_eq!(answers, [(FIRST, MISSING), (OTHER, Status::SUCCESS)]);
    for ends in [Data::InCapsule, Data::AtHost] {
        let (mut other_admin, mut lost) = bed.host();
        lost.capsule(&first(8), &zeroes);
        if ends == Data::AtHost {
            lost.capsule(&half(IoOpcode::WRITE, SECOND, 8, ends), &[]);
            lost.r2t();
            other_admin.disable();
        }
        drop((other_admin, lost));
    }
    let (_other, mut client) = bed.host();
    assert_eq!(pair(&mut client, 8, &zeroes, &zeroes), BOTH);
    admin.disable();
    eventually("only the last host is connected", || {
        let cores = bed.handle().snapshot().cores;
        cores.iter().map(|core| core.connections).sum::<u64>() == 3
    });
}

#[test]
fn a_host_that_never_sends_the_second_half_is_disconnected() {
    let limits = Limits {
        stall_timeout: Nanos::from_millis(50),
        ..Limits::default()
    };
    let bed = Bed::with(limits, 1);
    for slba in [1, 1 << 40] {
        let (_admin, mut client) = bed.host();
        client.capsule(&first(slba), &[0; BLOCK]);
        if slba > 1 {
            assert_eq!(next(&mut client), (FIRST, Status::LBA_OUT_OF_RANGE));
        }
        client.closed();
    }
}

/// A first half that waits delays no change of its namespace, and the pair follows the change.
#[test]
fn a_change_does_not_wait_for_a_second_half() {
    let bed = Bed::new();
    let (_admin, mut client) = bed.host();
    let zeroes = vec![0; BLOCK];
    client.capsule(&first(4000), &zeroes);
    client.capsule(
        &half(IoOpcode::WRITE, SECOND, 4000, Data::InCapsule),
        &zeroes,
    );
    assert_eq!([next(&mut client), next(&mut client)], BOTH);
    client.capsule(&first(4000), &zeroes);
    let target = bed.handle();
    target.resize_namespace(NQN, 1, 4000).expect("RAM shrinks");
    client.capsule(&second(4000), &zeroes);
    let range = Status::LBA_OUT_OF_RANGE;
    assert_eq!(
        [next(&mut client), next(&mut client)],
        [(FIRST, FAILED), (SECOND, range)]
    );
    target.resize_namespace(NQN, 1, 4096).expect("RAM grows");
    assert_eq!(pair(&mut client, 4000, &zeroes, &zeroes), BOTH);
}

/// Two hosts on two cores, on a device that executes only on demand.
#[test]
fn writes_at_the_device_end_before_a_pair_and_later_ones_wait_for_it() {
    let (bed, device) = late::bed(64);
    let (_one, mut writer) = bed.host();
    let (_two, mut locker) = bed.host();
    let [written, new, last] = [1, 2, 3].map(|seed| pattern(seed, BLOCK));
    let begin = |writer: &mut Client, cid, data: &[u8]| {
        let mut write = io(IoOpcode::WRITE, 5, 1);
        write.set_cid(cid);
        write.set_sgl(SglDescriptor::in_capsule(0, BLOCK as u32));
        writer.capsule(&write, data);
    };
    begin(&mut writer, 0, &written);
    eventually("the device has it", || {
        device.held.load(Ordering::SeqCst) == 1
    });
    locker.capsule(&first(5), &written);
    locker.capsule(&second(5), &new);
    let mut writes = 1;
    eventually("a write waits for the pair", || {
        begin(
            &mut writer,
            writes,
            if bed.pause_waits() == 0 {
                &written
            } else {
                &last
            },
        );
        writes += 1;
        assert!(writes < 60);
        eventually("it has arrived", || bed.commands() >= u64::from(writes) + 2);
        let held = device.held.load(Ordering::SeqCst);
        bed.pause_waits() > 0 && held + bed.pause_waits() as usize == usize::from(writes)
    });
    // Blocks beside it, and reads of it, do not wait.
    let (_three, mut reader) = bed.host();
    assert!(reader.write(late::QUICK, &last).status.is_success());
    let before = device.taken.lock().expect("no panic").len();
    let durable = Operation::Write { durable: false };
    let all_writes = |taken: &[Operation]| taken.iter().all(|&operation| operation == durable);
    assert!(
        all_writes(&device.taken.lock().expect("no panic")),
        "no Compare yet"
    );
    device.open.store(true, Ordering::SeqCst);
    assert_eq!([next(&mut locker), next(&mut locker)], BOTH);
    for _ in 0..writes {
        assert!(writer.completion().status.is_success());
    }
    let taken = device.taken.lock().expect("no panic").clone();
    assert_eq!(taken[before..before + 2], [Operation::Compare, durable]);
    assert!(all_writes(&taken[before + 2..]) && taken.len() > before + 2);
    assert!(
        writer.read(5, 1).1 != new,
        "the write that waited came last"
    );
}

#[test]
fn fua_commits_before_the_compare_and_after_the_write() {
    let (bed, device) = late::bed(4);
    device.open.store(true, Ordering::SeqCst);
    let (_admin, mut client) = bed.host();
    let zeroes = vec![0; BLOCK];
    let durable = |command| {
        with(command, |command: &mut Command| {
            command.set_cdw(12, 1 << 30)
        })
    };
    let answers = send(
        &mut client,
        &[durable(first(5)), durable(second(5))],
        &zeroes,
    );
    assert_eq!(answers, BOTH);
    let taken = device.taken.lock().expect("no panic");
    let write = Operation::Write { durable: true };
    assert_eq!(taken[..], [Operation::Flush, Operation::Compare, write]);
}

/// A host that vanishes while its pair is at the device, or waits for its fence, leaves no fence.
#[test]
fn a_lost_pair_leaves_no_fence() {
    let (bed, device) = late::bed(64);
    let zeroes = vec![0; BLOCK];
    let lost: Vec<_> = (0..4)
        .map(|_| {
            let (admin, mut client) = bed.host();
            client.capsule(&first(5), &zeroes);
            client.capsule(&second(5), &zeroes);
            (admin, client)
        })
        .collect();
    eventually("one is at the device", || {
        bed.commands() == 8 && device.held.load(Ordering::SeqCst) == 1
    });
    drop(lost);
    let (_admin, mut client) = bed.host();
    client.capsule(&first(5), &zeroes);
    client.capsule(&second(5), &zeroes);
    device.open.store(true, Ordering::SeqCst);
    assert_eq!([next(&mut client), next(&mut client)], BOTH);
    assert!(client.write(5, &zeroes).status.is_success());
    assert!(client.write(6, &zeroes).status.is_success());
}

/// Returns targets whose device is memory, and whose device takes time between the compare and the
/// write of a pair.
fn beds(cores: usize) -> [Bed; 2] {
    let ram = common::ram(MIB);
    let options = DelayOptions {
        read: Nanos::from_micros(500),
        write: Nanos::from_micros(100),
        ..DelayOptions::default()
    };
    let slow = Arc::new(Delay::new(Arc::clone(&ram) as _, options));
    let target = target_with(Limits::default(), cores, [namespace(1, slow)]);
    let target = common::run(target, cores);
    [Bed::with(Limits::default(), cores), Bed { target, ram }]
}

/// The lock of a cluster file system: no increment by any host on any core is lost.
#[test]
fn racing_increments_are_never_lost() {
    const HOSTS: u64 = 6;
    const INCREMENTS: u64 = 20;
    let count_of = |data: &[u8]| u64::from_le_bytes(data[..8].try_into().expect("8 bytes"));
    let increment = |client: &mut Client| loop {
        let old = client.read(11, 1).1;
        let mut new = old.clone();
        new[..8].copy_from_slice(&(count_of(&old) + 1).to_le_bytes());
        match pair(client, 11, &old, &new) {
            BOTH => return,
            [(FIRST, Status::COMPARE_FAILURE), (SECOND, FAILED)] => {}
            other => panic!("{other:?}"),
        }
    };
    for bed in beds(3) {
        std::thread::scope(|scope| {
            for host in 0..HOSTS {
                let bed = &bed;
                scope.spawn(move || {
                    let (_admin, mut client) = bed.host();
                    for _ in 0..INCREMENTS {
                        increment(&mut client);
                        // Other blocks of the device, in one command and in a list.
                        let data = pattern(host, BLOCK);
                        assert!(client.write(20 + host, &data).status.is_success());
                        let (deallocate, list) = common::deallocate(100 + host, 1);
                        assert!(client.execute(deallocate, &list).status.is_success());
                    }
                });
            }
        });
        let (_admin, mut client) = bed.host();
        assert_eq!(count_of(&client.read(11, 1).1), HOSTS * INCREMENTS);
    }
}

/// A write between a pair's compare and its write would be lost.
#[test]
fn an_ordinary_write_is_never_lost_in_a_pair() {
    const WRITES: u8 = 100;
    // Sets the second byte, and keeps the writer's.
    let lock = |bed: &Bed, stop: &AtomicBool| {
        let (_admin, mut client) = bed.host();
        while !stop.load(Ordering::Relaxed) {
            let old = client.read(12, 1).1;
            let mut new = old.clone();
            new[1] = old[1].wrapping_add(1);
            let answers = pair(&mut client, 12, &old, &new);
            assert_eq!(answers[0].1 == Status::SUCCESS, answers == BOTH);
        }
    };
    for bed in beds(2) {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _stop = StopAtLast(&stop);
            for _ in 0..2 {
                scope.spawn(|| lock(&bed, &stop));
            }
            let (_admin, mut client) = bed.host();
            for number in 1..=WRITES {
                let mut data = vec![0; BLOCK];
                data[0] = number;
                assert!(client.write(12, &data).status.is_success());
                let found = client.read(12, 1).1[0];
                assert_eq!(found, number, "a pair has put an older block back");
            }
        });
    }
}
