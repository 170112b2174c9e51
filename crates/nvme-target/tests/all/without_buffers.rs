//! Commands whose device work needs no buffer: those of one host leave room for other hosts, and a
//! change of the namespace waits only for requests that the device has.

use crate::common;
use crate::common::{BLOCK, Bed, Client, NQN, deallocate, few, io, late, pattern, with_buffers};
use block::Operation;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use switchyard_target::{CoreStats, Limits};
use wire::fabrics::Property;
use wire::nvme::{Abort, Command, Completion, IoOpcode, SglDescriptor, Status};
use wire::tcp::PduHeader;

fn core(bed: &Bed) -> CoreStats {
    bed.handle().snapshot().cores[0]
}

/// Sends a command without data.
fn send(client: &mut Client, mut command: Command) -> u16 {
    let cid = client.cid();
    command.set_cid(cid);
    client.capsule(&command, &[]);
    cid
}

fn send_read(client: &mut Client, slba: u64) -> u16 {
    let mut read = io(IoOpcode::READ, slba, 1);
    read.set_sgl(SglDescriptor::transport(BLOCK as u32));
    send(client, read)
}

/// Sends a command with in-capsule data.
fn send_with(client: &mut Client, mut command: Command, data: &[u8]) -> u16 {
    let cid = client.cid();
    command.set_cid(cid);
    command.set_sgl(SglDescriptor::in_capsule(0, data.len() as u32));
    client.capsule(&command, data);
    cid
}

/// Returns the next `count` completions by command, and the data that arrived before them.
fn completions(client: &mut Client, count: usize) -> BTreeMap<u16, (Completion, Vec<u8>)> {
    let mut data = BTreeMap::<u16, Vec<u8>>::new();
    let mut done = BTreeMap::new();
    while done.len() < count {
        let pdu = client.receive();
        let completion = match pdu.header {
            PduHeader::C2hData(c2h) => {
                data.entry(c2h.command_id).or_default().extend(pdu.data);
                if c2h.progress != wire::tcp::c2h_data::C2hProgress::LastAndSuccess {
                    continue;
                }
                Completion::new(c2h.command_id, 0, Status::SUCCESS)
            }
            PduHeader::CapsuleResp(answer) => answer.completion,
            other => panic!("{other:?}"),
        };
        let cid = completion.cid;
        done.insert(cid, (completion, data.remove(&cid).unwrap_or_default()));
    }
    done
}

/// Regression: such commands needed no buffer, so no share was checked: one host's commands filled
/// the device's queue, and those of other hosts came last.
#[test]
fn a_host_without_buffers_leaves_room_in_the_device_for_others() {
    let (bed, state) = late::bed_started(1, 1, Limits::default(), |target| {
        with_buffers(target, few())
    });
    let (_admin, mut greedy) = bed.host_named("nqn.2026-11.io.example:greedy", 1);
    let (_other, mut neighbour) = bed.host();
    let greedy = &mut greedy[0];
    for _ in 0..500 {
        send(greedy, io(IoOpcode::VERIFY, 0, 256));
    }
    common::eventually("all are taken", || core(&bed).io_commands == 500);
    let read = send_read(&mut neighbour, 0);
    common::eventually("the read is, too", || core(&bed).io_commands == 501);
    state.open.store(true, Ordering::SeqCst);
    assert!(neighbour.fetched(read).0.status.is_success());
    let taken = state.taken.lock().expect("no panic").clone();
    let before = taken.iter().position(|&taken| taken == Operation::Read);
    // The pool has 8 MiB, of which a single host gets four fifths.
    assert!(before.expect("it was taken") <= 7, "{before:?}");
    for (completion, _) in completions(greedy, 500).into_values() {
        assert!(completion.status.is_success(), "{}", completion.status);
    }
}

/// Regression: all commands sent before a change were executed first, so the change could time out,
/// and all hosts waited until then.
#[test]
fn a_change_waits_for_no_more_than_the_device_has() {
    for removes in [false, true] {
        let limits = Limits {
            deallocate_piece_bytes: 16 * BLOCK as u32,
            ..Limits::default()
        };
        let (bed, state) = late::bed_on(1, 1, limits);
        let (_admin, mut client) = bed.host_named("nqn.2026-11.io.example:host", 1);
        let client = &mut client[0];
        state.open.store(true, Ordering::SeqCst);
        let data = pattern(1, 256 * BLOCK);
        for slba in [0, 256] {
            assert!(client.write(slba, &data).status.is_success());
        }
        state.open.store(false, Ordering::SeqCst);
        // The device gets the first piece of the first command.
        let (command, list) = deallocate(3, 250);
        let mut sent = vec![send_with(client, command, &list)];
        for _ in 0..500 {
            sent.push(send(client, io(IoOpcode::VERIFY, 0, 256)));
        }
        let read = send_read(client, 260);
        let (command, table) = common::extents(IoOpcode::READ_EXTENTS, 1, &[(261, 2), (270, 1)]);
        let extents = send_with(client, command, &table);
        let compare = send_with(client, io(IoOpcode::COMPARE, 256, 1), &data[..BLOCK]);
        let write = send_with(
            client,
            io(IoOpcode::WRITE, 1, 1),
            &data[5 * BLOCK..6 * BLOCK],
        );
        sent.extend([read, extents, compare, write]);
        for nsid in [1, u32::MAX] {
            let mut flush = Command::new(IoOpcode::FLUSH.0, 0);
            flush.set_nsid(nsid);
            sent.push(send(client, flush));
        }
        let all = 2 + sent.len() as u64;
        common::eventually("all are taken", || core(&bed).io_commands == all);
        let taken = || state.taken.lock().expect("no panic").len();
        let before = taken();
        std::thread::scope(|scope| {
            let target = bed.handle();
            let change = scope.spawn(move || match removes {
                true => target.remove_namespace(NQN, 1),
                false => target.resize_namespace(NQN, 1, 8192),
            });
            common::eventually("the rest waits at the gate", || {
                core(&bed).pause_waits > 500
            });
            state.permits.store(1, Ordering::SeqCst);
            change.join().expect("no panic").expect("it is made");
        });
        if removes {
            // A Flush of all namespaces has no namespace left to flush.
            for (_, (completion, _)) in completions(client, sent.len()) {
                let gone = completion.status.is(Status::INVALID_NAMESPACE);
                assert!(gone || completion.cid == sent[sent.len() - 1]);
            }
            assert_eq!(taken(), before, "the device got nothing more");
            continue;
        }
        state.open.store(true, Ordering::SeqCst);
        let answers = completions(client, sent.len());
        for (cid, (completion, _)) in &answers {
            assert!(
                completion.status.is_success(),
                "{cid}: {}",
                completion.status
            );
        }
        assert!(answers[&read].1 == data[4 * BLOCK..5 * BLOCK]);
        let found = &answers[&extents].1;
        assert!(found[..2 * BLOCK] == data[5 * BLOCK..7 * BLOCK]);
        assert!(found[2 * BLOCK..] == data[14 * BLOCK..15 * BLOCK]);
        let found = client.read(0, 256).1;
        assert!(found[..BLOCK] == data[..BLOCK]);
        assert!(found[BLOCK..2 * BLOCK] == data[5 * BLOCK..6 * BLOCK]);
        assert!(found[2 * BLOCK..3 * BLOCK] == data[2 * BLOCK..3 * BLOCK]);
        let mut zeroes = found[3 * BLOCK..253 * BLOCK].iter();
        assert!(zeroes.all(|&byte| byte == 0));
        assert!(found[253 * BLOCK..] == data[253 * BLOCK..]);
        // The first piece and 15 other requests, each once.
        let taken = state.taken.lock().expect("no panic");
        let pieces = taken
            .iter()
            .filter(|&&taken| taken == Operation::Deallocate);
        assert_eq!(pieces.count(), 16);
    }
}

/// Regression: they were refused beyond one request's size, although the announced limits are not
/// maximums: a host that did not read the limits could not create a file system.
#[test]
fn zeroes_and_verification_of_any_length_go_by_pieces() {
    let bed = Bed::new();
    let (_admin, mut client) = bed.host();
    let data = pattern(7, BLOCK);
    for lba in [0, 1, 1000, 3000, 3001] {
        assert!(client.write(lba, &data).status.is_success());
    }
    for deallocates in [false, true] {
        assert!(client.write(1000, &data).status.is_success());
        let mut zeroes = io(IoOpcode::WRITE_ZEROES, 1, 3000);
        zeroes.set_cdw(12, zeroes.cdw(12) | u32::from(deallocates) << 25);
        assert!(client.execute(zeroes, &[]).status.is_success());
        for lba in [1, 1000, 3000] {
            assert!(client.read(lba, 1).1.iter().all(|&byte| byte == 0));
        }
        for lba in [0, 3001] {
            assert_eq!(client.read(lba, 1).1, data);
        }
    }
    let verify = io(IoOpcode::VERIFY, 0, 4096);
    assert!(client.execute(verify, &[]).status.is_success());
    for opcode in [IoOpcode::WRITE_ZEROES, IoOpcode::VERIFY] {
        let beyond = client.execute(io(opcode, 1, 4096), &[]).status;
        assert!(beyond.is(Status::LBA_OUT_OF_RANGE), "{beyond}");
    }
}

#[test]
fn long_zeroes_can_be_aborted_between_pieces() {
    let limits = Limits {
        transfer_bytes: 16 * BLOCK as u32,
        ..Limits::default()
    };
    let (bed, state) = late::bed_on(1, 64, limits);
    let (mut admin, mut client) = bed.host();
    let cid = send(&mut client, io(IoOpcode::WRITE_ZEROES, 3, 900));
    let held = || state.held.load(Ordering::SeqCst);
    common::eventually("the device has as many pieces as it gets", || held() == 8);
    let abort = send(&mut admin, Abort { sq_id: 1, cid }.encode(0));
    // The Abort was processed before this is answered.
    assert_ne!(admin.property(Property::CAP), 0);
    state.open.store(true, Ordering::SeqCst);
    let completion = client.completion();
    assert_eq!(completion.cid, cid);
    assert!(completion.status.is(Status::ABORTED_BY_REQUEST));
    assert_eq!(held(), 8, "no further piece was begun");
    let answer = admin.completion();
    assert_eq!((answer.cid, answer.dword0()), (abort, 0), "it was aborted");
}
