//! Configuration changes while hosts do I/O.

use crate::common;
use crate::common::events::{changed, watch};
use crate::common::{BLOCK, Bed, Client, Dialect, NQN, deallocate, io, io_on, pattern};
use base::Nanos;
use base::units::MIB;
use block::{Channel, Device, Request, Submit};
use reactor::Context;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use switchyard_target::{Limits, SubsystemOptions, Target, TargetError, wait_by};
use testing::device::TestDevice;
use wire::fabrics::ConnectData;
use wire::fabrics::property::{Configuration, ControllerStatus};
use wire::fabrics::{Property, PropertySet};
use wire::nvme::identify::Cns;
use wire::nvme::identify_lists::parse_namespace_list;
use wire::nvme::{Abort, AdminCommand, Command, Identify, IoOpcode, SglDescriptor, Status};

fn ram() -> Arc<dyn Device> {
    common::ram(MIB)
}

#[test]
fn namespaces_come_grow_and_go_and_hosts_are_told() {
    for cores in [1, 2] {
        let bed = Bed::with(Limits::default(), cores);
        let (mut admin, mut client) = bed.host();
        let read_two = |client: &mut Client, slba| {
            client
                .fetch(io_on(2, IoOpcode::READ, slba, 1), BLOCK)
                .0
                .status
        };
        assert!(read_two(&mut client, 0).is(Status::INVALID_NAMESPACE));
        watch(&mut admin);
        bed.handle()
            .add_namespace(NQN, common::namespace(2, ram()))
            .expect("a new one");
        assert_eq!(changed(&mut admin), [2]);
        assert!(read_two(&mut client, 255).is_success());
        assert!(read_two(&mut client, 256).is(Status::LBA_OUT_OF_RANGE));
        watch(&mut admin);
        bed.handle()
            .resize_namespace(NQN, 2, 512)
            .expect("RAM can grow");
        assert_eq!(changed(&mut admin), [2]);
        assert!(read_two(&mut client, 256).is_success());
        watch(&mut admin);
        bed.handle().remove_namespace(NQN, 2).expect("it is there");
        assert_eq!(changed(&mut admin), [2]);
        assert!(read_two(&mut client, 0).is(Status::INVALID_NAMESPACE));
        let gone = bed.handle().remove_namespace(NQN, 2);
        assert!(matches!(gone, Err(TargetError::NoNamespace { .. })));
    }
}

#[test]
fn a_namespace_is_resized_under_io_and_nothing_is_lost() {
    let bed = Bed::with(Limits::default(), 2);
    let stop = AtomicBool::new(false);
    let rounds = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..2u64)
            .map(|worker| {
                let (admin, mut client) = bed.host();
                let stop = &stop;
                scope.spawn(move || {
                    let mut rounds = 0u64;
                    while !stop.load(Ordering::Relaxed) || rounds < 10 {
                        let at = 1000 + worker * 100;
                        let blocks = if rounds.is_multiple_of(2) { 1 } else { 32 };
                        let data = pattern(rounds ^ worker, blocks * BLOCK);
                        let written = client.write(at, &data);
                        assert!(written.status.is_success(), "{}", written.status);
                        let (completion, read) = client.read(at, blocks as u32);
                        assert!(completion.status.is_success(), "{}", completion.status);
                        assert!(read == data);
                        rounds += 1;
                    }
                    drop(admin);
                    rounds
                })
            })
            .collect();
        for blocks in [8192, 4096, 2048, 6000, 4096, 8192, 3000, 4096] {
            bed.handle()
                .resize_namespace(NQN, 1, blocks)
                .expect("RAM can be resized");
        }
        stop.store(true, Ordering::Relaxed);
        workers
            .into_iter()
            .map(|w| w.join().expect("no data was lost"))
            .min()
    });
    assert!(rounds >= Some(10));
}

#[test]
fn a_paused_namespace_lets_transfers_finish_and_others_wait() {
    // Longer than this thread needs from the pause to the data that the change waits for.
    let limits = Limits {
        pause_patience: Nanos::from_secs(60),
        ..Limits::default()
    };
    let bed = Bed::with(limits, 1);
    let (mut admin, mut client) = bed.host();
    let data = pattern(4, 16 * BLOCK);
    let r2t = client.begin_write(1, &data);
    std::thread::scope(|scope| {
        let resize = scope.spawn(|| bed.handle().resize_namespace(NQN, 1, 8192));
        let cid = client.read_until_paused(&bed);
        let mut write = io(IoOpcode::WRITE, 40, 1);
        write.set_cid(50);
        write.set_sgl(SglDescriptor::in_capsule(0, BLOCK as u32));
        client.capsule(&write, &data[..BLOCK]);
        let mut late = io(IoOpcode::READ, 1, 1);
        late.set_cid(51);
        late.set_sgl(SglDescriptor::transport(BLOCK as u32));
        client.capsule(&late, &[]);
        // Waiting commands can be aborted.
        let queue = 1;
        let mut aborted = false;
        common::eventually("the late read is aborted", || {
            let abort = Abort {
                sq_id: queue,
                cid: 51,
            };
            let abort = AdminCommand::Abort(abort).encode(0);
            aborted |= admin.execute(abort, &[]).dword0() == 0;
            aborted
        });
        let completion = client.completion();
        assert_eq!(
            (completion.cid, completion.status),
            (51, Status::ABORTED_BY_REQUEST)
        );
        assert!(!resize.is_finished(), "the transfer is still open");
        client.answer_r2t(&r2t, &data);
        let completion = client.completion();
        assert_eq!((completion.cid, completion.status), (1, Status::SUCCESS));
        assert!(
            client.fetched(cid).1 == data[..BLOCK],
            "the read waited for the write"
        );
        let completion = client.completion();
        assert_eq!((completion.cid, completion.status), (50, Status::SUCCESS));
        resize.join().expect("no panic").expect("RAM can grow");
    });
    assert!(client.read(40, 1).1 == data[..BLOCK]);
    assert!(client.read(8191, 1).0.status.is_success());
}

#[test]
fn a_subsystem_goes_with_its_connections_and_comes_back() {
    let bed = Bed::with(Limits::default(), 2);
    let (mut admin, mut client) = bed.host();
    assert!(client.read(0, 1).0.status.is_success());
    bed.handle().remove_subsystem(NQN).expect("it is there");
    assert!(admin.try_receive().is_none());
    assert!(client.try_receive().is_none());
    assert!(bed.handle().snapshot().controllers.is_empty());
    let old = Arc::clone(&bed.ram) as Arc<dyn Device>;
    let options = SubsystemOptions {
        namespaces: vec![common::namespace(1, old), common::namespace(7, ram())],
        ..SubsystemOptions::open_to_all(NQN)
    };
    // Each time the change has waited for the cores, a host tries to connect.
    let (address, looks) = (bed.address(), Arc::new(AtomicUsize::new(0)));
    let looked = Arc::clone(&looks);
    let look = move |done: &dyn Fn() -> bool, _| {
        common::eventually("every core has it", done);
        looked.fetch_add(1, Ordering::SeqCst);
        let mut early = Client::dial(address, Dialect::default());
        let data = Client::connect_data(NQN, ConnectData::CNTLID_DYNAMIC);
        let status = early
            .connect(&Client::connect_command(0, 31, 0), &data)
            .status;
        assert!(status.is(Status::CONNECT_INVALID_PARAMETERS), "{status}");
    };
    wait_by(Box::new(look), || bed.handle().add_subsystem(options)).expect("the name is free");
    assert_eq!(looks.load(Ordering::SeqCst), 1);
    let (mut admin, mut client) = bed.host();
    let active = Identify::new(Cns::ACTIVE_NAMESPACES, 0).encode(0);
    let active = admin.fetch(active, 4096).1.try_into().expect("a page");
    assert!(parse_namespace_list(&active).eq([1, 7]));
    assert!(client.read(0, 1).0.status.is_success());
}

#[test]
fn a_host_that_is_denied_loses_its_controllers() {
    let bed = Bed::new();
    let (mut admin, mut client) = bed.host();
    let target = bed.handle();
    target.allow_host(NQN, common::HOST).expect("it is there");
    target.allow_any_host(NQN, false).expect("it is there");
    assert!(client.read(0, 1).0.status.is_success());
    target.deny_host(NQN, common::HOST).expect("it is there");
    assert!(admin.try_receive().is_none());
    assert!(client.try_receive().is_none());
}

/// Regression: each controller of a host without access needed a message of its own. With some
/// hundreds of them, the mailboxes were full, and the change failed half-way.
#[test]
fn strangers_lose_their_controllers_at_once_where_hosts_are_let_in_by_name_alone() {
    const FRIEND: &str = "nqn.2026-11.com.example:friend";
    let bed = Bed::with(Limits::default(), 2);
    let (_admin, mut friend) = bed.host_named(FRIEND, 1);
    let mut lookout = Client::discovery(bed.address(), 60_000);
    let strangers: Vec<_> = (0..200).map(|_| bed.admin()).collect();
    let (_, mut queue) = bed.host();
    let target = bed.handle();
    target.allow_host(NQN, FRIEND).expect("it is there");
    target.allow_any_host(NQN, false).expect("it is there");
    for mut stranger in strangers {
        assert!(stranger.try_receive().is_none());
    }
    assert!(queue.try_receive().is_none());
    common::eventually("their controllers are gone", || {
        target.snapshot().controllers.len() == 2
    });
    assert!(friend[0].read(0, 1).0.status.is_success());
    let keep_alive = lookout.execute(AdminCommand::KeepAlive.encode(0), &[]);
    assert!(keep_alive.status.is_success());
}

#[test]
fn a_drain_answers_what_is_under_way() {
    let bed = Bed::new();
    let (_admin, mut client) = bed.host();
    let data = pattern(2, 64 * BLOCK);
    let mut command = io(IoOpcode::WRITE, 0, 64);
    command.set_cid(1);
    command.set_sgl(SglDescriptor::transport(64 * BLOCK as u32));
    client.capsule(&command, &[]);
    let r2t = client.r2t();
    bed.handle().shutdown();
    client.answer_r2t(&r2t, &data);
    let completion = client.completion();
    assert_eq!((completion.cid, completion.status), (1, Status::SUCCESS));
    assert!(client.try_receive().is_none());
    bed.target.join().expect("an orderly end");
}

#[test]
fn other_commands_do_what_they_say() {
    let bed = Bed::new();
    let (_admin, mut client) = bed.host_with(Dialect::default());
    let data = pattern(8, 8 * BLOCK);
    for part in 0..2 {
        let half = &data[part * 4 * BLOCK..(part + 1) * 4 * BLOCK];
        assert!(client.write(part as u64 * 4, half).status.is_success());
    }
    let compare =
        |client: &mut Client, data: &[u8]| client.execute(io(IoOpcode::COMPARE, 0, 1), data).status;
    assert!(compare(&mut client, &data[..BLOCK]).is_success());
    assert!(compare(&mut client, &data[BLOCK..2 * BLOCK]).is(Status::COMPARE_FAILURE));
    assert!(
        client
            .execute(io(IoOpcode::VERIFY, 0, 8), &[])
            .status
            .is_success()
    );
    assert!(
        client
            .execute(io(IoOpcode::WRITE_ZEROES, 2, 2), &[])
            .status
            .is_success()
    );
    let mut flush = Command::new(IoOpcode::FLUSH.0, 0);
    for nsid in [1, u32::MAX] {
        flush.set_nsid(nsid);
        assert!(client.execute(flush, &[]).status.is_success());
    }
    let ranges = [(4u64, 1u32), (6, 2)];
    let list: Vec<u8> = ranges
        .iter()
        .flat_map(|&(slba, blocks)| {
            wire::nvme::io::DatasetRange {
                attributes: 0,
                blocks,
                slba,
            }
            .to_bytes()
        })
        .collect();
    let management = wire::nvme::DatasetManagement {
        nsid: 1,
        ranges: 2,
        deallocate: true,
        integral_read: false,
        integral_write: false,
    };
    assert!(
        client
            .execute(management.encode(0), &list)
            .status
            .is_success()
    );
    let mut expected = data;
    expected[2 * BLOCK..5 * BLOCK].fill(0);
    expected[6 * BLOCK..].fill(0);
    assert!(client.read(0, 8).1 == expected);
    let beyond = wire::nvme::io::DatasetRange {
        attributes: 0,
        blocks: 2,
        slba: 4095,
    }
    .to_bytes();
    let one = wire::nvme::DatasetManagement {
        ranges: 1,
        ..management
    };
    let refused = client.execute(one.encode(0), &beyond);
    assert!(
        refused.status.is(Status::LBA_OUT_OF_RANGE),
        "{}",
        refused.status
    );
}

/// Changes namespace 1 while its device holds a command; `sent` is sent before the change, and
/// `then` while the namespace is paused.
fn change_under(
    bed: &Bed,
    state: &common::late::State,
    probe: &mut Client,
    change: impl FnOnce() -> Result<(), TargetError> + Send,
    then: impl FnOnce(),
) {
    common::eventually("the device holds a command", || {
        state.held.load(Ordering::SeqCst) == 1
    });
    std::thread::scope(|scope| {
        let change = scope.spawn(change);
        // Reads that arrive before the pause are answered at once; repeat until one waits.
        common::eventually("the namespace is paused, or changed already", || {
            let mut read = io(IoOpcode::READ, common::late::QUICK, 1);
            read.set_cid(probe.cid());
            read.set_sgl(SglDescriptor::transport(BLOCK as u32));
            probe.capsule(&read, &[]);
            let before = bed.pause_waits();
            std::thread::sleep(Duration::from_millis(30));
            before > 0 || change.is_finished()
        });
        assert!(!change.is_finished(), "the device still holds a command");
        then();
        state.open.store(true, Ordering::SeqCst);
        change
            .join()
            .expect("no panic")
            .expect("the change is made");
    });
}

fn flush_all(client: &mut Client) -> u16 {
    let mut flush = Command::new(IoOpcode::FLUSH.0, 0);
    flush.set_nsid(u32::MAX);
    let cid = client.cid();
    flush.set_cid(cid);
    client.capsule(&flush, &[]);
    cid
}

fn shut_down(admin: &mut Client) -> u16 {
    let mut set = PropertySet::configure(Configuration::ENABLE.with_shutdown(1)).encode(0);
    let cid = admin.cid();
    set.set_cid(cid);
    admin.capsule(&set, &[]);
    cid
}

fn answered(client: &mut Client, cid: u16) {
    let completion = client.completion();
    assert_eq!((completion.cid, completion.status), (cid, Status::SUCCESS));
}

fn all_controllers_end(bed: &Bed) {
    common::eventually("every controller ends", || {
        bed.handle().snapshot().controllers.is_empty()
    });
}

#[test]
fn a_flush_of_all_namespaces_is_answered_although_one_is_changed() {
    for remove in [false, true] {
        let (bed, state) = common::late::bed(8);
        let (_admin, mut client) = bed.host();
        let (_other, mut probe) = bed.host();
        let cid = flush_all(&mut client);
        let target = bed.handle();
        let change = || match remove {
            true => target.remove_namespace(NQN, 1),
            false => target.resize_namespace(NQN, 1, 8192),
        };
        change_under(&bed, &state, &mut probe, change, || ());
        answered(&mut client, cid);
        drop((_admin, client, _other, probe));
        all_controllers_end(&bed);
    }
}

#[test]
fn a_normal_shutdown_completes_although_a_namespace_is_changed() {
    for remove in [false, true] {
        let (bed, state) = common::late::bed(8);
        let (mut admin, _client) = bed.host();
        let (_other, mut probe) = bed.host();
        let cid = shut_down(&mut admin);
        let target = bed.handle();
        let change = || match remove {
            true => target.remove_namespace(NQN, 1),
            false => target.resize_namespace(NQN, 1, 8192),
        };
        change_under(&bed, &state, &mut probe, change, || ());
        answered(&mut admin, cid);
        drop((admin, _client, _other, probe));
        all_controllers_end(&bed);
    }
}

#[test]
fn flushes_of_all_namespaces_wait_for_one_that_is_paused() {
    let (bed, state) = common::late::bed(8);
    // A shutdown ends the queues of its controller.
    let (mut admin, _) = bed.host();
    let (_flusher, mut client) = bed.host();
    let (_other, mut probe) = bed.host();
    let (_third, mut reader) = bed.host();
    let mut read = io(IoOpcode::READ, 0, 1);
    read.set_cid(1);
    read.set_sgl(SglDescriptor::transport(BLOCK as u32));
    reader.capsule(&read, &[]);
    let (mut flush, mut shutdown) = (0, 0);
    let change = || bed.handle().resize_namespace(NQN, 1, 8192);
    change_under(&bed, &state, &mut probe, change, || {
        flush = flush_all(&mut client);
        shutdown = shut_down(&mut admin);
    });
    answered(&mut client, flush);
    answered(&mut admin, shutdown);
    assert!(reader.fetched(1).0.status.is_success());
}

/// Regression: the target dropped the subsystem, reported that nothing had changed, and reused its
/// index while a core still served it.
#[test]
fn a_subsystem_is_removed_although_its_device_takes_too_long() {
    // The removal uses all of this time; later changes must complete within it, however late the
    // core is.
    let limits = Limits {
        change_timeout: Nanos::from_secs(5),
        ..Limits::default()
    };
    let (bed, state) = common::late::bed_on(1, 8, limits);
    let (_admin, mut client) = bed.host();
    let mut write = io(IoOpcode::WRITE, 0, 1);
    write.set_cid(1);
    write.set_sgl(SglDescriptor::in_capsule(0, BLOCK as u32));
    client.capsule(&write, &pattern(1, BLOCK));
    common::eventually("the device holds a command", || {
        state.held.load(Ordering::SeqCst) == 1
    });
    let target = bed.handle();
    target.remove_subsystem(NQN).expect("it is removed");
    assert_eq!(target.snapshot().late_changes, 1);
    assert!(target.snapshot().subsystems.is_empty());
    let again = || {
        let options = SubsystemOptions::open_to_all(NQN);
        target.add_subsystem(options).expect("a new subsystem");
        let options = common::namespace(1, ram());
        target.add_namespace(NQN, options).expect("a new namespace");
    };
    again();
    let (_new_admin, mut new) = bed.host();
    assert!(new.write(0, &pattern(2, BLOCK)).status.is_success());
    // The old subsystem ends, which does not affect the new one.
    state.open.store(true, Ordering::SeqCst);
    while client.try_receive().is_some() {}
    assert_eq!(new.read(0, 1).1, pattern(2, BLOCK));
    drop((_admin, client));
    target.remove_subsystem(NQN).expect("it is removed");
    again();
    let (_third_admin, mut third) = bed.host();
    assert!(third.write(0, &pattern(2, BLOCK)).status.is_success());
}

/// Regression: one command could keep a device busy with its whole size, and could not be aborted.
#[test]
fn a_deallocation_goes_by_pieces_and_can_be_aborted_between_them() {
    let limits = Limits {
        deallocate_piece_bytes: 16 * BLOCK as u32,
        deallocate_blocks: 900,
        ..Limits::default()
    };
    let (bed, state) = common::late::bed_on(1, 64, limits);
    let (mut admin, mut client) = bed.host();
    let (mut command, list) = deallocate(3, 900);
    command.set_cid(77);
    command.set_sgl(SglDescriptor::in_capsule(0, list.len() as u32));
    client.capsule(&command, &list);
    let held = || state.held.load(Ordering::SeqCst);
    common::eventually("the device has as many pieces as it gets", || held() == 8);
    let abort = Abort { sq_id: 1, cid: 77 };
    let first = admin.cid();
    let mut waiting = abort.encode(0);
    waiting.set_cid(first);
    admin.capsule(&waiting, &[]);
    // Two commands that arrive at once may be processed in either order.
    assert_ne!(admin.property(Property::CAP), 0);
    // Answered before the first Abort, which waits: a host may write to these blocks once it
    // receives the answer to an Abort.
    assert_eq!(admin.execute(abort.encode(0), &[]).dword0(), 1, "only once");
    state.open.store(true, Ordering::SeqCst);
    let completion = client.completion();
    assert_eq!(completion.cid, 77);
    assert!(completion.status.is(Status::ABORTED_BY_REQUEST));
    assert_eq!(held(), 8, "no further piece was begun");
    let answer = admin.completion();
    assert_eq!(
        (answer.cid, answer.dword0()),
        (first, 0),
        "it is taken back"
    );
    // The whole range is deallocated without an Abort, but no more than the announced limit.
    let data = pattern(4, 256 * BLOCK);
    assert!(client.write(100, &data).status.is_success());
    let (command, list) = deallocate(101, 254);
    assert!(client.execute(command, &list).status.is_success());
    let read = client.read(100, 256).1;
    assert_eq!(read[..BLOCK], data[..BLOCK]);
    assert!(read[BLOCK..255 * BLOCK].iter().all(|&byte| byte == 0));
    assert_eq!(read[255 * BLOCK..], data[255 * BLOCK..]);
    let data = pattern(5, BLOCK);
    for lba in [0, 899, 900] {
        assert!(client.write(lba, &data).status.is_success());
    }
    let (command, list) = deallocate(0, 901);
    assert!(client.execute(command, &list).status.is_success());
    let read = |client: &mut Client, lba| client.read(lba, 1).1;
    for lba in [0, 899] {
        assert!(read(&mut client, lba).iter().all(|&byte| byte == 0));
    }
    assert!(read(&mut client, 900) == data, "beyond DMRSL and DMSL");
}

/// Regression: CSTS.SHST stayed at "occurring", because the controller was not notified, and
/// repeated requests did not help until a reset.
#[test]
fn a_shutdown_that_is_aborted_while_it_waits_is_over() {
    let (bed, state) = common::late::bed_on(1, 8, Limits::default());
    let (mut admin, mut client) = bed.host();
    let (_other, mut probe) = bed.host();
    let mut read = io(IoOpcode::READ, 0, 1);
    read.set_cid(1);
    read.set_sgl(SglDescriptor::transport(BLOCK as u32));
    client.capsule(&read, &[]);
    let shutdown_state = |admin: &mut Client| {
        let status = admin.property(Property::CSTS);
        ControllerStatus(status as u32).shutdown()
    };
    let change = || bed.handle().resize_namespace(NQN, 1, 8192);
    change_under(&bed, &state, &mut probe, change, || {
        let waiting = shut_down(&mut admin);
        assert_eq!(shutdown_state(&mut admin), 1);
        let mut abort = Abort {
            sq_id: 0,
            cid: waiting,
        }
        .encode(0);
        let asked = admin.cid();
        abort.set_cid(asked);
        admin.capsule(&abort, &[]);
        let aborted = admin.completion();
        assert_eq!(aborted.cid, waiting);
        assert!(aborted.status.is(Status::ABORTED_BY_REQUEST));
        let answer = admin.completion();
        assert_eq!((answer.cid, answer.dword0()), (asked, 0));
        assert_eq!(shutdown_state(&mut admin), 0);
    });
    client.closed();
    let again = shut_down(&mut admin);
    answered(&mut admin, again);
    common::eventually("the shutdown is complete", || {
        shutdown_state(&mut admin) == 2
    });
}

/// A channel of RAM that closes only when requested; open channels are counted.
#[derive(Debug)]
struct CountedChannel {
    ram: Box<dyn Channel>,
    closed: bool,
    channels: Arc<AtomicUsize>,
}

impl Channel for CountedChannel {
    fn submit(&mut self, request: Request, cx: &mut Context<'_>) -> Submit {
        self.ram.submit(request, cx)
    }

    fn close(&mut self, _: &mut Context<'_>) {
        self.closed = true;
    }

    fn closed(&self) -> bool {
        self.closed
    }
}

impl Drop for CountedChannel {
    fn drop(&mut self) {
        self.channels.fetch_sub(1, Ordering::SeqCst);
    }
}

#[test]
fn channels_are_closed_with_their_subsystem_and_where_a_namespace_is_refused() {
    let channels = Arc::new(AtomicUsize::new(0));
    let device = |transfer_bytes| {
        let channels = Arc::clone(&channels);
        let device = TestDevice::new(ram(), move |ram| {
            channels.fetch_add(1, Ordering::SeqCst);
            Box::new(CountedChannel {
                ram,
                closed: false,
                channels: Arc::clone(&channels),
            })
        });
        Arc::new(device.with(|capabilities| capabilities.max_transfer_bytes = transfer_bytes))
    };
    let bed = Bed::with(Limits::default(), 2);
    let target = bed.handle();
    let none_is_left = || {
        common::eventually("every channel is closed", || {
            channels.load(Ordering::SeqCst) == 0
        });
    };
    let refused = target.add_namespace(NQN, common::namespace(2, device(BLOCK as u32)));
    assert!(matches!(refused, Err(TargetError::Undone(_))));
    none_is_left();
    let added = target.add_namespace(NQN, common::namespace(2, device(MIB as u32)));
    added.expect("a new one");
    assert_eq!(channels.load(Ordering::SeqCst), 2);
    let (_admin, mut client) = bed.host();
    assert!(client.read(0, 1).0.status.is_success());
    target.remove_subsystem(NQN).expect("it is there");
    none_is_left();
    // A subsystem is added with all of its namespaces or not at all.
    let with = |second| SubsystemOptions {
        namespaces: vec![
            common::namespace(1, device(MIB as u32)),
            common::namespace(2, second),
        ],
        ..SubsystemOptions::open_to_all(NQN)
    };
    let refused = target.add_subsystem(with(device(BLOCK as u32)));
    assert!(matches!(refused, Err(TargetError::Undone(_))));
    none_is_left();
    let added = target.add_subsystem(with(device(MIB as u32)));
    added.expect("the name is free");
    assert_eq!(channels.load(Ordering::SeqCst), 4);
    target.remove_subsystem(NQN).expect("it is there");
    none_is_left();
    bed.target.stop().expect("an orderly end");
}

#[derive(Debug)]
struct Asleep;

impl reactor::Wake for Asleep {
    fn wake(&self) {}
}

/// Regression: each change left an undroppable message for a core that took none, so repeated
/// changes exhausted the memory.
#[test]
fn repeated_changes_do_not_fill_the_mailbox_of_a_core_that_hangs() {
    let target = Target::new(Limits::default(), 1).expect("legal limits");
    let options = SubsystemOptions {
        allow_any_host: false,
        ..SubsystemOptions::open_to_all(NQN)
    };
    target.add_subsystem(options).expect("a new subsystem");
    let mut mailbox = reactor::Mailbox::new(Arc::new(Asleep));
    target.attach(vec![mailbox.sender()]);
    let deny = || target.deny_host(NQN, common::HOST);
    let accepted = (0..5000).filter(|_| deny().is_ok()).count();
    let error = deny().expect_err("nobody takes the messages").to_string();
    assert!(
        error.contains("the message queue of core 0 is full"),
        "{error}"
    );
    assert!(!target.responds(Duration::from_secs(3600)), "it is known");
    let kept = std::iter::from_fn(|| mailbox.pop()).count();
    assert!(
        (accepted..=1100).contains(&kept),
        "{accepted} changes, {kept} messages"
    );
    deny().expect("there is room again");
}
