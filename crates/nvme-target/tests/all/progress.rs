//! Hosts that withhold data, or send it byte by byte: they lose their connection, and no other host
//! is affected.

use crate::common;
use crate::common::{
    BLOCK, Bed, Client, NQN, buffers, extents, few, io, io_on, late, namespace, pattern,
    target_with, with_buffers,
};
use base::Nanos;
use base::units::{KIB, MIB};
use reactor::BufferClass;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use switch::Knobs;
use switch::knobs::Polling;
use switchyard_target::Limits;
use wire::nvme::{Abort, AdminCommand, Command, IoOpcode, SglDescriptor, Status};
use wire::tcp::H2cData;

const BYTES: usize = 16 * BLOCK;

/// Sends a write and returns the R2T for its data.
fn asked(client: &mut Client) -> wire::tcp::R2t {
    let mut write = io(IoOpcode::WRITE, 0, 16);
    write.set_cid(1);
    write.set_sgl(SglDescriptor::transport(BYTES as u32));
    client.capsule(&write, &[]);
    client.r2t()
}

/// Sends a Write Extents whose data, [`BYTES`], is requested by R2Ts.
fn send_write_extents(client: &mut Client, cid: u16) {
    let (mut write, table) = extents(IoOpcode::WRITE_EXTENTS, 1, &[(0, 4), (8, 12)]);
    write.set_cid(cid);
    write.set_sgl(SglDescriptor::in_capsule(0, table.len() as u32));
    client.capsule(&write, &table);
}

/// Sends a Write Extents and returns the R2T for its data.
fn asked_extents(client: &mut Client) -> wire::tcp::R2t {
    send_write_extents(client, 1);
    client.r2t()
}

/// Senders of commands that wait for their data.
const ASKED: [fn(&mut Client) -> wire::tcp::R2t; 2] = [asked, asked_extents];

/// Returns capsules with in-capsule data of a Write, a Write Extents and a Read Extents, each with
/// the data to be written.
fn capsules(client: &Client) -> [(Vec<u8>, Vec<u8>); 3] {
    let data = pattern(1, 3 * BLOCK);
    let table: Vec<_> = (0..64).map(|n| (2 * n, 1)).collect();
    let inside = |mut command: Command, data: &[u8]| {
        command.set_cid(1);
        command.set_sgl(SglDescriptor::in_capsule(0, data.len() as u32));
        client.session.capsule(&command, data)
    };
    let write_extents = extents(IoOpcode::WRITE_EXTENTS, 1, &[(0, 1), (1, 2)]);
    let read_extents = extents(IoOpcode::READ_EXTENTS, 1, &table);
    [
        (inside(io(IoOpcode::WRITE, 0, 3), &data), data.clone()),
        (
            inside(write_extents.0, &[&data[..], &write_extents.1].concat()),
            data,
        ),
        (inside(read_extents.0, &read_extents.1), Vec::new()),
    ]
}

/// Sends these pieces until the target has closed the connection.
fn trickle<'a>(client: &mut Client, pieces: impl Iterator<Item = &'a [u8]>) {
    for piece in pieces {
        // Bytes after the close cause a reset.
        if client.stream.write_all(piece).is_err() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("the target took everything");
}

/// Regression: every byte counted as progress, so one byte per second kept a half capsule and its
/// resources forever.
#[test]
fn a_capsule_that_comes_byte_by_byte_ends_its_connection() {
    let bed = Bed::with(
        Limits {
            // The capsules of the other host must arrive within it, too.
            pdu_timeout: Nanos::from_millis(1500),
            ..Limits::default()
        },
        1,
    );
    let (_other, mut neighbour) = bed.host();
    let core = || bed.handle().snapshot().cores[0];
    for which in 0..3 {
        let (_admin, mut slow) = bed.host();
        let (bytes, _) = &capsules(&slow)[which];
        trickle(&mut slow, bytes.chunks(1));
        let data = pattern(which as u64, 4 * BLOCK);
        assert!(neighbour.write(8, &data).status.is_success());
        assert!(neighbour.read(8, 4).1 == data);
        let ended = which as u64 + 1;
        common::eventually("it is counted", || core().pdu_timeouts == ended);
        common::eventually("it holds nothing", || {
            core().extent_tables_used == 0 && core().buffer_bytes_used == 0
        });
    }
}

/// A half-received command is not in flight.
#[test]
fn a_change_does_not_wait_for_half_a_capsule() {
    for which in 0..3 {
        let bed = Bed::with(
            Limits {
                pdu_timeout: Nanos::from_secs(3600),
                ..Limits::default()
            },
            1,
        );
        let (_admin, mut slow) = bed.host();
        let (bytes, written) = &capsules(&slow)[which];
        let (begin, rest) = bytes.split_at(bytes.len() / 2);
        slow.send(begin);
        let core = || bed.handle().snapshot().cores[0];
        common::eventually("it is here", || core().io_commands == 1);
        let resized = bed.handle().resize_namespace(NQN, 1, 8192);
        resized.expect("nobody vetoes it");
        slow.send(rest);
        let status = match written.is_empty() {
            true => slow.fetched(1).0.status,
            false => slow.completion().status,
        };
        assert!(status.is_success(), "{status}");
        assert!(slow.read(0, 3).1[..written.len()] == written[..]);
    }
}

#[test]
fn data_that_comes_byte_by_byte_ends_its_connection() {
    let bed = Bed::with(
        Limits {
            transfer_timeout: Nanos::from_millis(300),
            ..Limits::default()
        },
        1,
    );
    let (_other, mut neighbour) = bed.host();
    for (ask, ended) in ASKED.into_iter().zip(1..) {
        let (_admin, mut slow) = bed.host();
        let r2t = ask(&mut slow);
        // Each of these PDUs is valid.
        let pdus: Vec<_> = (0..BYTES as u32 / 4)
            .map(|index| {
                let pdu = H2cData {
                    command_id: r2t.command_id,
                    transfer_tag: r2t.transfer_tag,
                    data_offset: 4 * index,
                    data_length: 4,
                    last: 4 * index + 4 == BYTES as u32,
                };
                slow.session.h2c_data(&pdu, &[7; 4])
            })
            .collect();
        trickle(&mut slow, pdus.iter().map(Vec::as_slice));
        // In the capsule, because the transfer time-out must not apply to the other host.
        let data = pattern(2, 4 * BLOCK);
        assert!(neighbour.write(32, &data).status.is_success());
        assert!(neighbour.read(32, 4).1 == data);
        let core = || bed.handle().snapshot().cores[0];
        common::eventually("it is counted", || core().transfer_timeouts == ended);
    }
}

#[test]
fn data_that_does_not_come_ends_its_connection() {
    let bed = Bed::with(
        Limits {
            stall_timeout: Nanos::from_millis(100),
            ..Limits::default()
        },
        1,
    );
    for (ask, ended) in ASKED.into_iter().zip(1..) {
        let (_admin, mut deaf) = bed.host();
        ask(&mut deaf);
        assert!(deaf.try_receive().is_none(), "its connection is gone");
        let core = || bed.handle().snapshot().cores[0];
        common::eventually("it is counted", || {
            core().stall_timeouts == ended && core().extent_tables_used == 0
        });
    }
}

/// Regression: a slow host delayed a change of the namespace for the whole change time-out, and all
/// other hosts waited.
#[test]
fn a_host_that_withholds_data_does_not_hold_up_a_change() {
    let bed = Bed::with(
        Limits {
            pause_patience: Nanos::from_millis(100),
            // Only the time-out above can end it within this test.
            stall_timeout: Nanos::from_secs(3600),
            transfer_timeout: Nanos::from_secs(3600),
            ..Limits::default()
        },
        2,
    );
    let (_other, mut neighbour) = bed.host();
    for (ask, blocks) in ASKED.into_iter().zip([8192, 16_384]) {
        let (_admin, mut deaf) = bed.host();
        ask(&mut deaf);
        let resized = bed.handle().resize_namespace(NQN, 1, blocks);
        resized.expect("nobody vetoes it");
        assert!(deaf.try_receive().is_none(), "its connection is gone");
        let data = pattern(3, BYTES);
        assert!(neighbour.write(blocks - 16, &data).status.is_success());
        assert!(neighbour.read(blocks - 16, 16).1 == data);
    }
}

/// A change of one namespace does not affect a host that is slow with data for another namespace.
#[test]
fn a_host_that_withholds_data_of_another_namespace_keeps_its_connection() {
    let limits = Limits {
        pause_patience: Nanos::from_millis(100),
        ..Limits::default()
    };
    let ram = common::ram(16 * MIB);
    let options = [1, 2].map(|nsid| namespace(nsid, Arc::clone(&ram) as _));
    let target = common::run(target_with(limits, 1, options), 1);
    let bed = Bed { target, ram };
    let (_other, mut slow) = bed.host();
    let mut write = io_on(2, IoOpcode::WRITE, 0, 16);
    write.set_cid(1);
    write.set_sgl(SglDescriptor::transport(BYTES as u32));
    slow.capsule(&write, &[]);
    let r2t = slow.r2t();
    let (_admin, mut deaf) = bed.host();
    asked(&mut deaf);
    let resized = bed.handle().resize_namespace(NQN, 1, 8192);
    resized.expect("nobody vetoes it");
    assert!(deaf.try_receive().is_none(), "its connection is gone");
    slow.answer_r2t(&r2t, &pattern(5, BYTES));
    assert!(slow.completion().status.is_success());
}

#[test]
fn a_change_waits_for_data_that_comes() {
    let bed = Bed::new();
    let (_admin, mut client) = bed.host();
    let r2t = asked(&mut client);
    std::thread::scope(|scope| {
        let resize = || bed.handle().resize_namespace(NQN, 1, 8192);
        let change = scope.spawn(resize);
        let data = pattern(4, BYTES);
        client.answer_r2t(&r2t, &data);
        assert!(client.completion().status.is_success());
        change.join().expect("no panic").expect("it is made");
        assert!(client.read(0, 16).1 == data);
    });
}

/// Regression: a command waiting for a buffer was in flight, and a write that held one waited for
/// the end of the change: neither continued, and the change failed after `change_timeout`.
#[test]
fn a_change_waits_for_no_buffer() {
    let bed = short_of_buffers(Limits::default(), vec![buffers(MIB, 1)]);
    let core = || bed.handle().snapshot().cores[0];
    let connect = |name| bed.host_named(name, 1);
    let (_admin, mut first) = connect("nqn.2026-11.io.example:first");
    let (_other, mut second) = connect("nqn.2026-11.io.example:second");
    let [first, second] = [&mut first[0], &mut second[0]];
    let mut write = io(IoOpcode::WRITE, 0, 4);
    write.set_cid(1);
    write.set_sgl(SglDescriptor::in_capsule(0, 4 * BLOCK as u32));
    let data = pattern(7, BYTES);
    let capsule = first.session.capsule(&write, &data[..4 * BLOCK]);
    let (begin, rest) = capsule.split_at(BLOCK);
    first.send(begin);
    common::eventually("it holds the buffer", || core().buffer_bytes_used > 0);
    let mut write = io(IoOpcode::WRITE, 16, 16);
    write.set_cid(2);
    write.set_sgl(SglDescriptor::transport(BYTES as u32));
    second.capsule(&write, &[]);
    common::eventually("another waits for it", || core().buffer_waits > 0);
    let resized = bed.handle().resize_namespace(NQN, 1, 8192);
    resized.expect("what waits for a buffer is not waited for");
    first.send(rest);
    assert!(first.completion().status.is_success());
    let r2t = second.r2t();
    second.answer_r2t(&r2t, &data);
    assert!(second.completion().status.is_success());
    assert!(second.read(0, 4).1 == data[..4 * BLOCK]);
    assert!(second.read(16, 16).1 == data);
}

/// Starts a target with only these buffers.
fn short_of_buffers(limits: Limits, buffers: Vec<BufferClass>) -> Bed {
    let ram = common::ram(16 * MIB);
    let options = namespace(1, Arc::clone(&ram) as _);
    let target = with_buffers(target_with(limits, 1, [options]), buffers);
    Bed { target, ram }
}

/// Sends a command whose data is requested by R2Ts.
fn send_to_ask(client: &mut Client, mut command: Command, cid: u16, bytes: usize) {
    command.set_cid(cid);
    command.set_sgl(SglDescriptor::transport(bytes as u32));
    client.capsule(&command, &[]);
}

/// A host has the data of 64 commands requested on each of its queues and withholds it; other hosts
/// still get buffers. The waiting commands continue when the host sends the data.
fn withholds_all(queues: u16, send: impl Fn(&mut Client, u16), data: &[u8]) {
    let bed = short_of_buffers(Limits::default(), few());
    let (_admin, mut greedy) = bed.host_named("nqn.2026-11.io.example:greedy", queues);
    for queue in &mut greedy {
        for cid in 0..64 {
            send(queue, cid);
        }
    }
    let core = || bed.handle().snapshot().cores[0];
    let sent = 64 * u64::from(queues);
    common::eventually("all its commands are taken", || core().io_commands == sent);
    common::eventually("some wait for its share", || core().share_waits > 0);
    let (_other, mut neighbour) = bed.host();
    for slba in 0..10 {
        let written = neighbour.write(1000 + slba, &pattern(5, BYTES));
        assert!(written.status.is_success());
    }
    greedy.truncate(1);
    let mut done = 0;
    while done < 64 {
        match greedy[0].receive().header {
            wire::tcp::PduHeader::R2t(r2t) => greedy[0].answer_r2t(&r2t, data),
            wire::tcp::PduHeader::CapsuleResp(answer) => {
                assert!(answer.completion.status.is_success());
                done += 1;
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Regression: writes whose data did not arrive held every buffer of the core: no other host could
/// write or connect.
#[test]
fn a_host_that_withholds_all_its_data_leaves_buffers_for_others() {
    let data = pattern(5, BYTES);
    withholds_all(
        4,
        |queue, cid| send_to_ask(queue, io(IoOpcode::WRITE, 0, 16), cid, BYTES),
        &data,
    );
    // Tables also take buffers, for which the input of an idle queue waits.
    withholds_all(2, send_write_extents, &data);
}

/// Regression: lists of ranges took buffers before their share and gates were checked.
#[test]
fn a_host_that_withholds_its_lists_of_ranges_leaves_buffers_for_others() {
    let mut list = common::deallocate(0, 1).1;
    list.resize(4096, 0);
    withholds_all(
        4,
        |queue, cid| send_to_ask(queue, common::deallocate(0, 1).0, cid, list.len()),
        &list,
    );
}

/// Regression: a host with many queues had all extent tables of the core, so other hosts got none.
#[test]
fn a_host_that_withholds_the_data_of_extents_leaves_tables_for_others() {
    let limits = Limits {
        extent_tables: 64,
        ..Limits::default()
    };
    let bed = Bed::with(limits, 1);
    let (_admin, mut greedy) = bed.host_named("nqn.2026-11.io.example:greedy", 4);
    for queue in &mut greedy {
        for cid in 0..64 {
            send_write_extents(queue, cid);
        }
    }
    let core = || bed.handle().snapshot().cores[0];
    common::eventually("all its commands are taken", || core().io_commands == 256);
    common::eventually("some are refused", || {
        core().extent_tables_refused >= 256 - 64 && core().extents_in_flight_refused == 0
    });
    let (_other, mut neighbour) = bed.host();
    let data = pattern(6, 3 * BLOCK);
    for _ in 0..10 {
        let some = [(1000, 1), (1002, 2)];
        let (write, table) = extents(IoOpcode::WRITE_EXTENTS, 1, &some);
        let written = neighbour.execute(write, &[&data[..], &table].concat());
        assert!(written.status.is_success(), "{}", written.status);
        let (mut read, table) = extents(IoOpcode::READ_EXTENTS, 1, &some);
        read.set_cid(7);
        read.set_sgl(SglDescriptor::in_capsule(0, table.len() as u32));
        neighbour.capsule(&read, &table);
        let (completion, found) = neighbour.fetched(7);
        assert!(completion.status.is_success(), "{}", completion.status);
        assert!(found == data);
    }
    assert!((1..64).contains(&core().extent_tables_used));
    drop(greedy);
    common::eventually("they come back", || core().extent_tables_used == 0);
}

/// Regression: hosts that did not read held every send list of the core, so no other host was
/// answered.
#[test]
fn admin_commands_are_answered_although_hosts_do_not_read() {
    let limits = Limits {
        send_lists: 16,
        ..Limits::default()
    };
    let bed = Bed::with(limits, 1);
    let mut admin = bed.admin();
    let (_admin, mut deaf) = bed.host_named("nqn.2026-11.io.example:deaf", 8);
    // 512 MiB of answers, which exceeds all socket buffers.
    for queue in &mut deaf {
        for cid in 0..64 {
            let mut read = io(IoOpcode::READ, 0, 256);
            read.set_cid(cid);
            read.set_sgl(SglDescriptor::transport(256 * BLOCK as u32));
            queue.capsule(&read, &[]);
        }
    }
    let core = || bed.handle().snapshot().cores[0];
    common::eventually("its queues are full", || core().io_commands == 512);
    common::eventually("answers wait for lists", || core().output_waits > 0);
    for _ in 0..20 {
        assert_ne!(admin.property(wire::fabrics::Property::CAP), 0);
    }
    let mut new = bed.admin();
    assert_ne!(new.property(wire::fabrics::Property::CAP), 0);
}

/// Regression: in-capsule data took buffers regardless of shares: a host whose device does not
/// answer held all of them.
#[test]
fn a_host_whose_device_is_slow_leaves_buffers_for_others() {
    let (bed, state) = late::bed_started(1, 1000, Limits::default(), |target| {
        with_buffers(target, few())
    });
    let (_admin, mut greedy) = bed.host_named("nqn.2026-11.io.example:greedy", 4);
    let data = pattern(6, BLOCK);
    for queue in &mut greedy {
        for cid in 0..64 {
            let mut write = io(IoOpcode::WRITE, 0, 1);
            write.set_cid(cid);
            write.set_sgl(SglDescriptor::in_capsule(0, BLOCK as u32));
            queue.capsule(&write, &data);
        }
    }
    let held = || state.held.load(Ordering::SeqCst);
    common::eventually("the device holds many", || held() >= 32);
    let (_other, mut neighbour) = bed.host();
    for slba in 0..10 {
        let written = neighbour.write(late::QUICK + slba, &data);
        assert!(written.status.is_success());
    }
    assert!(held() < 68, "some buffers were left");
    state.open.store(true, Ordering::SeqCst);
    for queue in &mut greedy {
        for _ in 0..64 {
            assert!(queue.completion().status.is_success());
        }
    }
}

/// Regression: admin queues had a reserve of send lists, but I/O queues of other hosts got none.
#[test]
fn io_commands_are_answered_although_another_host_does_not_read() {
    let limits = Limits {
        send_lists: 32,
        ..Limits::default()
    };
    let bed = Bed::with(limits, 1);
    let (_admin, mut deaf) = bed.host_named("nqn.2026-11.io.example:deaf", 16);
    for queue in &mut deaf {
        for cid in 0..64 {
            let mut read = io(IoOpcode::READ, 0, 256);
            read.set_cid(cid);
            read.set_sgl(SglDescriptor::transport(256 * BLOCK as u32));
            queue.capsule(&read, &[]);
        }
    }
    let core = || bed.handle().snapshot().cores[0];
    common::eventually("its queues are full", || core().io_commands == 16 * 64);
    common::eventually("answers wait for lists", || core().list_waits > 0);
    let (_other, mut neighbour) = bed.host();
    for slba in 0..20 {
        let data = pattern(slba, BLOCK);
        assert!(neighbour.write(1000 + slba, &data).status.is_success());
        assert!(neighbour.read(1000 + slba, 1).1 == data);
    }
    common::eventually("lists are in use, and some are left", || {
        (1..32).contains(&core().send_lists_used)
    });
}

/// Regression: the time after which the kernel closes a connection without acknowledgements was
/// fixed.
#[test]
fn the_kernel_gives_up_a_host_that_takes_nothing_as_configured() {
    let limits = Limits {
        tcp_user_timeout: Nanos::from_millis(500),
        // This time-out would expire first if the kernel's time-out were not configured.
        stall_timeout: Nanos::from_secs(15),
        ..Limits::default()
    };
    let bed = Bed::with(limits, 1);
    let (_admin, mut deaf) = bed.host_named("nqn.2026-11.io.example:deaf", 1);
    for cid in 0..64 {
        let mut read = io(IoOpcode::READ, 0, 256);
        read.set_cid(cid);
        read.set_sgl(SglDescriptor::transport(256 * BLOCK as u32));
        deaf[0].capsule(&read, &[]);
    }
    let core = || bed.handle().snapshot().cores[0];
    common::eventually("its connection ends", || core().socket_timeouts == 1);
    assert_eq!(core().stall_timeouts, 0);
}

/// In-capsule data that precedes requested data uses buffers outside the pool. One command with
/// withheld data must not exempt the data in all capsules behind it from shares.
#[test]
fn a_host_that_withholds_the_data_of_one_command_leaves_buffers_for_others() {
    let (bed, state) = late::bed_started(1, 1000, Limits::default(), |target| {
        with_buffers(target, few())
    });
    let (_admin, mut greedy) = bed.host_named("nqn.2026-11.io.example:greedy", 4);
    let data = pattern(6, BYTES);
    let r2ts: Vec<_> = greedy.iter_mut().map(asked).collect();
    for queue in &mut greedy {
        for cid in 100..164 {
            let mut write = io(IoOpcode::WRITE, 0, 1);
            write.set_cid(cid);
            write.set_sgl(SglDescriptor::in_capsule(0, BLOCK as u32));
            queue.capsule(&write, &data[..BLOCK]);
        }
    }
    let core = || bed.handle().snapshot().cores[0];
    // The four queues need more buffers than there are, so the input of at least two waits.
    common::eventually("input waits", || core().buffer_waiters >= 2);
    let (_other, mut neighbour) = bed.host();
    for slba in 0..10 {
        let written = neighbour.write(late::QUICK + slba, &data[..BLOCK]);
        assert!(written.status.is_success());
    }
    state.open.store(true, Ordering::SeqCst);
    for (queue, r2t) in greedy.iter_mut().zip(&r2ts) {
        queue.answer_r2t(r2t, &data);
        for _ in 0..65 {
            let status = queue.completion().status;
            assert!(status.is_success(), "{status}");
        }
    }
}

/// Regression: the places of aborted commands in the waiting line were kept, and new commands in
/// their slots took further places: a host that repeated this could exhaust the memory.
#[test]
fn aborted_commands_leave_the_line_for_buffers() {
    let classes = vec![buffers(16 * KIB, 3), buffers(MIB, 1)];
    let bed = short_of_buffers(Limits::default(), classes);
    let [holder, other, first, next] = ["holder", "other", "first", "next"]
        .map(|name| bed.host_named(&format!("nqn.2026-11.io.example:{name}"), 1));
    let ask = |client: &mut Client, cid: u16| {
        let mut write = io(IoOpcode::WRITE, 0, 4);
        write.set_cid(cid);
        write.set_sgl(SglDescriptor::transport(16 * KIB as u32));
        client.capsule(&write, &[]);
    };
    let (mut holder, mut other) = (holder, other);
    for cid in 1..=3 {
        ask(&mut holder.1[0], cid);
        holder.1[0].r2t();
    }
    ask(&mut other.1[0], 1);
    other.1[0].r2t();
    // All buffers are held, and the first command in line stays there.
    let core = || bed.handle().snapshot().cores[0];
    let mut first = first;
    ask(&mut first.1[0], 1);
    common::eventually("it waits", || core().buffer_waits > 0);
    let (mut admin, mut next) = next;
    for round in 0..1000 {
        ask(&mut next[0], round);
        common::eventually("it is aborted", || {
            let abort = Abort {
                sq_id: 1,
                cid: round,
            };
            let abort = AdminCommand::Abort(abort).encode(0);
            admin.execute(abort, &[]).dword0() == 0
        });
        let status = next[0].completion().status;
        assert!(status.is(Status::ABORTED_BY_REQUEST), "{status}");
    }
    let all = || core().io_commands == 3 + 1 + 1 + 1000;
    common::eventually("the counters are up to date", all);
    assert_eq!(core().buffer_waiters, 1);
}

/// An Abort keeps the order of the remaining commands, and a new command in the slot of the aborted
/// one does not inherit its place.
#[test]
fn commands_get_buffers_in_order_whatever_is_aborted() {
    let classes = vec![buffers(16 * KIB, 3), buffers(MIB, 1)];
    let bed = short_of_buffers(Limits::default(), classes);
    let mut hosts = ["holder", "other", "first", "second", "third"]
        .map(|name| bed.host_named(&format!("nqn.2026-11.io.example:{name}"), 1));
    let ask = |client: &mut Client, cid: u16| {
        let mut write = io(IoOpcode::WRITE, 0, 4);
        write.set_cid(cid);
        write.set_sgl(SglDescriptor::transport(16 * KIB as u32));
        client.capsule(&write, &[]);
    };
    let mut held = Vec::new();
    for (host, cid) in [(0, 1), (0, 2), (0, 3), (1, 1)] {
        let queue = &mut hosts[host].1[0];
        ask(queue, cid);
        held.push((host, queue.r2t()));
    }
    let core = || bed.handle().snapshot().cores[0];
    for (waiting, host) in (1..).zip(2..5) {
        ask(&mut hosts[host].1[0], 1);
        common::eventually("it waits", || core().buffer_waiters == waiting);
    }
    // The second command leaves and is queued again behind the third.
    let (admin, queues) = &mut hosts[3];
    let abort = AdminCommand::Abort(Abort { sq_id: 1, cid: 1 }).encode(0);
    assert_eq!(admin.execute(abort, &[]).dword0(), 0);
    let status = queues[0].completion().status;
    assert!(status.is(Status::ABORTED_BY_REQUEST), "{status}");
    ask(&mut queues[0], 2);
    common::eventually("it waits", || core().buffer_waiters == 3);
    let data = pattern(1, 16 * KIB);
    for ((host, r2t), (next, left)) in held.into_iter().zip([(2, 2), (4, 1), (3, 0)]) {
        let queue = &mut hosts[host].1[0];
        queue.answer_r2t(&r2t, &data);
        assert!(queue.completion().status.is_success());
        hosts[next].1[0].r2t();
        common::eventually("the others wait", || core().buffer_waiters == left);
    }
}

/// Regression: a turn retried 64 waiting commands, and if none of these could continue, the core
/// slept although buffers for later ones were free.
#[test]
fn each_waiter_is_asked_before_a_core_sleeps() {
    let bed = short_of_buffers(Limits::default(), few());
    let knobs = Knobs {
        polling: Polling::Never,
        ..Knobs::default()
    };
    bed.handle().set_knobs(knobs).expect("legal knobs");
    let (_admin, mut silent) = bed.host_named("nqn.2026-11.io.example:silent", 4);
    for queue in &mut silent {
        for cid in 0..1000 {
            let mut write = io(IoOpcode::WRITE, 0, 16);
            write.set_cid(cid);
            write.set_sgl(SglDescriptor::transport(BYTES as u32));
            queue.capsule(&write, &[]);
        }
    }
    let core = || bed.handle().snapshot().cores[0];
    common::eventually("all commands are taken", || core().io_commands == 4000);
    let (_other, mut queues) = bed.host_named("nqn.2026-11.io.example:other", 1);
    let queue = &mut queues[0];
    let data = pattern(7, BYTES);
    for cid in 0..100 {
        let mut write = io(IoOpcode::WRITE, 0, 16);
        write.set_cid(cid);
        write.set_sgl(SglDescriptor::transport(BYTES as u32));
        queue.capsule(&write, &[]);
    }
    let mut done = 0;
    while done < 100 {
        match queue.receive().header {
            wire::tcp::PduHeader::R2t(r2t) => queue.answer_r2t(&r2t, &data),
            wire::tcp::PduHeader::CapsuleResp(answer) => {
                assert!(answer.completion.status.is_success());
                done += 1;
            }
            other => panic!("{other:?}"),
        }
    }
}
