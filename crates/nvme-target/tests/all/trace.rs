//! Traces: each wait of a command is in the record of its stage, the stages add up, and only selected
//! commands are recorded.
//!
//! No test depends on speed: a stage takes at least as long as the test itself held the command in it.

use crate::common;
use crate::common::{
    BLOCK, Bed, Client, HOST, NQN, buffers, eventually, io, io_on, namespace, pattern, target_with,
};
use crate::tokens;
use base::Nanos;
use base::units::MIB;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use switchyard_target::limits::{TRACE_RECORDS, TRACES_MAX};
use switchyard_target::trace::{Stage, TraceFilter, TraceRecord, commands};
use switchyard_target::{CoreStats, Limits, Others, TargetError, Tenancy, TenantOptions, Trace};
use wire::fabrics::Property;
use wire::nvme::{IoOpcode, SglDescriptor, Status};

const OTHER: &str = "nqn.2026-11.io.example:other";

fn open(bed: &Bed, admin: &mut Client) -> Trace {
    open_with(bed, admin, TraceFilter::default())
}

/// Opens a trace, and waits until the core of the admin queue has begun it.
fn open_with(bed: &Bed, admin: &mut Client, filter: TraceFilter) -> Trace {
    let trace = bed.handle().trace(filter).expect("room");
    admin.property(Property::CAP);
    trace
}

/// Waits for exactly `count` records, in the order in which their answers were sent.
fn records(trace: &Trace, count: usize) -> Vec<TraceRecord> {
    let mut all = Vec::new();
    eventually("the records arrive", || {
        all.extend(trace.take(TRACE_RECORDS, 0));
        all.len() >= count
    });
    assert_eq!(all.len(), count, "{all:?}");
    for record in &all {
        let sum: u64 = record.stages.iter().map(|it| it.ns).sum();
        assert_eq!(sum, record.total_ns, "{record:?}");
        let in_order = record.stages.is_sorted_by_key(|it| it.after_ns);
        assert!(in_order, "{record:?}");
        let within = |it: &switchyard_target::trace::StageTime| {
            it.ns > 0 && it.after_ns + it.ns <= record.total_ns
        };
        assert!(record.stages.iter().all(within), "{record:?}");
    }
    all
}

fn core(bed: &Bed) -> CoreStats {
    bed.handle().snapshot().cores[0]
}

/// Sends a command whose data is not in its capsule.
fn send(client: &mut Client, opcode: IoOpcode, slba: u64, blocks: u32) -> u16 {
    let cid = client.cid();
    let mut command = io(opcode, slba, blocks);
    command.set_cid(cid);
    command.set_sgl(SglDescriptor::transport(blocks * BLOCK as u32));
    client.capsule(&command, &[]);
    cid
}

#[test]
fn every_way_of_a_command_is_recorded_with_its_identity() {
    let bed = Bed::new();
    let (mut admin, mut client) = bed.host();
    let trace = open(&bed, &mut admin);
    let data = pattern(1, 2 * BLOCK);
    assert!(client.write(3, &data).status.is_success());
    assert!(client.read(3, 2).1 == data);
    assert!(client.write_by_r2t(8, &data).status.is_success());
    let zeroes = io(IoOpcode::WRITE_ZEROES, 5, 4);
    assert!(client.execute(zeroes, &[]).status.is_success());
    assert!(
        client
            .execute(io(IoOpcode::FLUSH, 0, 1), &[])
            .status
            .is_success()
    );
    let (deallocate, ranges) = common::deallocate(0, 1);
    assert!(client.execute(deallocate, &ranges).status.is_success());
    let mut compare = io(IoOpcode::COMPARE, 8, 1);
    compare.set_sgl(SglDescriptor::in_capsule(0, BLOCK as u32));
    let completion = client.execute(compare, &data[BLOCK..]);
    assert!(completion.status.is(Status::COMPARE_FAILURE));
    let seen = records(&trace, 7);
    let shown = |record: &TraceRecord| {
        (
            record.command.clone(),
            record.slba,
            record.bytes,
            record.error.clone(),
        )
    };
    let error = completion.status.to_string();
    let expected = [
        ("write", Some(3), 8192, None),
        ("read", Some(3), 8192, None),
        ("write", Some(8), 8192, None),
        ("write-zeroes", Some(5), 16384, None),
        ("flush", None, 0, None),
        ("dataset-management", None, 0, None),
        ("compare", Some(8), 4096, Some(error)),
    ];
    let expected = expected.map(|(name, slba, bytes, error)| (name.to_owned(), slba, bytes, error));
    assert_eq!(seen.iter().map(shown).collect::<Vec<_>>(), expected);
    for record in &seen {
        assert_eq!((&*record.host, &*record.nqn), (HOST, NQN));
        assert_eq!((record.thread, record.qid, record.nsid), (0, 1, 1));
        assert_eq!(record.tenant.as_deref(), Some("default"));
    }
    assert!(seen.is_sorted_by_key(|record| record.unix_ns));
}

/// Leaves the command in its stage for a while. Returns the time that it was at least in the stage:
/// after it, the core begins another turn.
fn hold(admin: &mut Client) -> Nanos {
    let since = Instant::now();
    std::thread::sleep(Duration::from_millis(5));
    let least = since.elapsed();
    admin.property(Property::CAP);
    least.into()
}

/// Checks that a command was in a stage for at least this time.
fn check(record: &TraceRecord, stage: Stage, least: Nanos) {
    let times = record.stages.iter().filter(|it| it.stage == stage);
    let time = Nanos(times.map(|it| it.ns).sum());
    assert!(time >= least, "{least} of {stage:?} in {record:?}");
}

#[test]
fn a_wait_for_tokens_is_in_the_stage_tokens() {
    let device = tokens::device(tokens::DEAR);
    let bed = Bed::scheduled(Limits::default(), 1, Some(Arc::clone(&device)));
    let (mut admin, mut client) = bed.host();
    let trace = open(&bed, &mut admin);
    let cid = send(&mut client, IoOpcode::READ, 0, 256);
    eventually("the read waits", || core(&bed).commands_unpaid == 1);
    let least = hold(&mut admin);
    tokens::open(&device);
    assert!(client.fetched(cid).0.status.is_success());
    check(&records(&trace, 1)[0], Stage::Tokens, least);
}

#[test]
fn a_slow_device_is_in_the_stage_device() {
    let (bed, state) = common::late::bed_on(1, 1, Limits::default());
    let (mut admin, mut client) = bed.host();
    let trace = open(&bed, &mut admin);
    // The second one has no room in the device.
    let cids = [0, 1].map(|slba| send(&mut client, IoOpcode::READ, slba, 1));
    eventually("the device is full", || core(&bed).device_waits == 1);
    let least = hold(&mut admin);
    state.open.store(true, Ordering::SeqCst);
    for _ in cids {
        common::any_read(&mut client);
    }
    for record in records(&trace, 2) {
        check(&record, Stage::Device, least);
    }
}

#[test]
fn a_host_that_does_not_read_is_in_the_stage_send() {
    let bed = Bed::new();
    let (mut admin, mut client) = bed.host();
    let trace = open(&bed, &mut admin);
    // More than the socket's buffers take.
    let cids: Vec<_> = (0..32)
        .map(|_| send(&mut client, IoOpcode::READ, 0, 256))
        .collect();
    eventually("answers wait", || core(&bed).output_waits > 0);
    let least = hold(&mut admin);
    for &cid in &cids {
        assert_eq!(client.fetched(cid).1.len(), 256 * BLOCK);
    }
    let records = records(&trace, cids.len());
    let last = records.last().expect("one for each");
    assert_eq!(last.cid, cids[cids.len() - 1]);
    check(last, Stage::Send, least);
}

#[test]
fn late_data_is_in_the_stage_transfer_and_a_full_pool_in_the_stage_buffer() {
    let ram = common::ram(16 * MIB);
    // Not accessible as memory, so that every write needs a buffer.
    let (device, state) = common::late::device(Arc::clone(&ram) as _, 4);
    state.open.store(true, Ordering::SeqCst);
    let target = target_with(Limits::default(), 1, [namespace(1, device)]);
    let target = common::with_buffers(target, vec![buffers(MIB, 1)]);
    let bed = Bed { target, ram };
    let (mut admin, mut first) = bed.host();
    let (_admin, mut second) = bed.host();
    let (_admin, mut third) = bed.host();
    let trace = open(&bed, &mut admin);
    let data = pattern(1, 64 * BLOCK);
    send(&mut first, IoOpcode::WRITE, 0, 64);
    let r2t = first.r2t();
    // No buffer is left: one waits in its slot, and one, with data in its capsule, before it has one.
    send(&mut second, IoOpcode::WRITE, 64, 64);
    let mut inside = io(IoOpcode::WRITE, 128, 1);
    inside.set_cid(third.cid());
    inside.set_sgl(SglDescriptor::in_capsule(0, BLOCK as u32));
    third.capsule(&inside, &data[..BLOCK]);
    eventually("both wait", || core(&bed).buffer_waiters == 2);
    let least = hold(&mut admin);
    first.answer_r2t(&r2t, &data);
    assert!(first.completion().status.is_success());
    assert!(second.finish_write(&data).status.is_success());
    assert!(third.completion().status.is_success());
    let records = records(&trace, 3);
    let of = |slba| {
        let mut found = records.iter().filter(|record| record.slba == Some(slba));
        found.next().expect("it is recorded")
    };
    check(of(0), Stage::Transfer, least);
    check(of(64), Stage::Buffer, least);
    check(of(128), Stage::Buffer, least);
}

#[test]
fn a_command_of_a_paused_namespace_is_in_the_stage_pause() {
    let limits = Limits {
        pause_patience: Nanos::from_secs(60),
        ..Limits::default()
    };
    let bed = Bed::with(limits, 1);
    let (mut admin, mut client) = bed.host();
    let trace = open(&bed, &mut admin);
    let data = pattern(4, 16 * BLOCK);
    send(&mut client, IoOpcode::WRITE, 0, 16);
    let r2t = client.r2t();
    std::thread::scope(|scope| {
        // Waits for the data of the write.
        let resize = scope.spawn(|| bed.handle().resize_namespace(NQN, 1, 8192));
        let mut cid = send(&mut client, IoOpcode::READ, 40, 1);
        eventually("a read waits for the namespace", || {
            if !client.is_silent() {
                client.fetched(cid);
                cid = send(&mut client, IoOpcode::READ, 40, 1);
            }
            core(&bed).pause_waits > 0
        });
        let least = hold(&mut admin);
        client.answer_r2t(&r2t, &data);
        assert!(client.completion().status.is_success());
        resize.join().expect("no panic").expect("it is resized");
        client.fetched(cid);
        let mut all = Vec::new();
        eventually("the read is recorded", || {
            all.extend(trace.take(TRACE_RECORDS, 0));
            all.iter().any(|record| record.cid == cid)
        });
        check(all.last().expect("one"), Stage::Pause, least);
    });
}

/// Host, namespace and name of commands.
type Commands = &'static [(&'static str, u32, &'static str)];

#[test]
fn only_selected_commands_are_recorded() {
    let namespaces = [1, 2].map(|nsid| namespace(nsid, common::ram(MIB) as _));
    let target = common::run(target_with(Limits::default(), 1, namespaces), 1);
    let bed = Bed {
        target,
        ram: common::ram(MIB),
    };
    let gold = TenantOptions {
        name: "gold".to_owned(),
        hosts: vec![OTHER.to_owned()],
        ..TenantOptions::default()
    };
    let tenancy = Tenancy {
        tenants: vec![gold],
        others: Others::Serve,
    };
    bed.handle().set_tenants(&tenancy).expect("a tenant");
    let (mut admin, mut plain) = bed.host();
    let (_admin, mut queues) = bed.host_named(OTHER, 1);
    let name = |name: &str| Some(name.to_owned());
    let read = commands()
        .find(|(_, name)| name == "read")
        .expect("it is one")
        .0;
    // With the namespaces of the selected commands: each host reads and writes both.
    let filters: [(TraceFilter, Commands); 6] = [
        (
            TraceFilter {
                host: name(HOST),
                nsid: Some(2),
                ..TraceFilter::default()
            },
            &[(HOST, 2, "read"), (HOST, 2, "write")],
        ),
        (
            TraceFilter {
                tenant: name("gold"),
                opcode: Some(read),
                ..TraceFilter::default()
            },
            &[(OTHER, 1, "read"), (OTHER, 2, "read")],
        ),
        (
            TraceFilter {
                nqn: name(NQN),
                nsid: Some(1),
                opcode: Some(read),
                ..TraceFilter::default()
            },
            &[(HOST, 1, "read"), (OTHER, 1, "read")],
        ),
        (
            TraceFilter {
                nqn: name("nqn.2026-11.io.example:none"),
                ..TraceFilter::default()
            },
            &[],
        ),
        (
            TraceFilter {
                tenant: name("none"),
                ..TraceFilter::default()
            },
            &[],
        ),
        (
            TraceFilter {
                slower_than: Nanos::from_secs(3600),
                ..TraceFilter::default()
            },
            &[],
        ),
    ];
    for (filter, selected) in filters {
        let all = open(&bed, &mut admin);
        let trace = open_with(&bed, &mut admin, filter.clone());
        let data = pattern(1, BLOCK);
        for client in [&mut plain, &mut queues[0]] {
            for nsid in [1, 2] {
                assert!(
                    client
                        .fetch(io_on(nsid, IoOpcode::READ, 0, 1), BLOCK)
                        .0
                        .status
                        .is_success()
                );
                let write = io_on(nsid, IoOpcode::WRITE, 0, 1);
                assert!(client.execute(write, &data).status.is_success());
            }
        }
        // A core records a command for all traces at once.
        records(&all, 8);
        let seen = trace.take(TRACE_RECORDS, 0);
        let seen: Vec<_> = seen
            .iter()
            .map(|it| (&*it.host, it.nsid, &*it.command))
            .collect();
        assert_eq!(seen, selected, "{filter:?}");
    }
}

#[test]
fn one_in_a_number_of_fast_commands_is_a_sample() {
    let bed = Bed::new();
    let (mut admin, mut client) = bed.host();
    let filter = TraceFilter {
        slower_than: Nanos::from_secs(3600),
        sample: NonZeroU32::new(8),
        ..TraceFilter::default()
    };
    let trace = open_with(&bed, &mut admin, filter);
    for slba in 0..64 {
        assert!(client.read(slba, 1).0.status.is_success());
    }
    let sampled: Vec<_> = records(&trace, 8).iter().map(|it| it.slba).collect();
    let expected: Vec<_> = (0..8).map(|n| Some(8 * n + 7)).collect();
    assert_eq!(sampled, expected);
}

#[test]
fn records_that_nobody_takes_are_counted_as_lost() {
    const LOST: usize = 10;
    let bed = Bed::new();
    let (mut admin, mut client) = bed.host();
    let trace = open(&bed, &mut admin);
    for _ in 0..TRACE_RECORDS + LOST {
        assert!(client.read(0, 1).0.status.is_success());
    }
    eventually("they are lost", || trace.lost() == LOST as u64);
    records(&trace, TRACE_RECORDS);
    assert!(client.read(0, 1).0.status.is_success());
    records(&trace, 1);
    assert_eq!(trace.lost(), LOST as u64);
}

#[test]
fn a_trace_ends_when_it_is_dropped_and_makes_room_for_another_one() {
    let bed = Bed::new();
    let (mut admin, mut client) = bed.host();
    let mut traces: Vec<_> = (0..TRACES_MAX).map(|_| open(&bed, &mut admin)).collect();
    let refused = bed.handle().trace(TraceFilter::default());
    let Err(TargetError::Invalid(reason)) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(reason, "4 traces are open, the most at a time");
    traces.truncate(1);
    assert!(client.read(0, 1).0.status.is_success());
    let later = open(&bed, &mut admin);
    assert!(client.read(1, 1).0.status.is_success());
    assert_eq!(records(&later, 1)[0].slba, Some(1));
    let both: Vec<_> = records(&traces[0], 2).iter().map(|it| it.slba).collect();
    assert_eq!(both, [Some(0), Some(1)]);
    drop((traces, later));
    assert!(client.read(2, 1).0.status.is_success());
    let again = open(&bed, &mut admin);
    assert!(client.read(3, 1).0.status.is_success());
    assert_eq!(records(&again, 1)[0].slba, Some(3));
    let target = Arc::clone(bed.handle());
    bed.target.stop().expect("an orderly end");
    // Its cores have ended.
    drop((again, target));
}
