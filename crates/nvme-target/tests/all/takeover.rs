//! Connections that leave a target, and go on in another one or return.

use crate::common::{
    BLOCK, Bed, Client, Dialect, HOST, NQN, events, io, namespace, pattern, ram, target_with,
};
use base::units::{CoreId, MIB};
use std::net::{SocketAddr, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use switchyard_target::{Limits, Listener, RunningTarget, TargetOptions};
use testing::eventually;
use wire::fabrics::Property;
use wire::nvme::feature::FeatureId;
use wire::nvme::{IoOpcode, SetFeatures, SglDescriptor};

/// Longer than any pause takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// A successor of a target, with the same device and two cores.
pub(crate) fn successor(bed: &Bed) -> RunningTarget {
    successor_at(bed, vec![Listener::from(bed.address())])
}

fn successor_at(bed: &Bed, listen: Vec<Listener>) -> RunningTarget {
    let device = Arc::clone(&bed.ram) as _;
    let target = target_with(Limits::default(), 2, [namespace(1, device)]);
    let options = TargetOptions {
        listen,
        cores: vec![CoreId(0), CoreId(1)],
        pin: false,
        taken_over: true,
        ..TargetOptions::default()
    };
    RunningTarget::start(target, &options).expect("no address is needed")
}

/// Passes everything from one target to the other, and ends the first.
pub(crate) fn pass(bed: Bed, to: &RunningTarget) {
    let handed = bed.handle().depart(PATIENCE).expect("nothing is stuck");
    to.handle.check_handed(&handed).expect("the same target");
    to.handle.take_over(handed).expect("the core answers");
    bed.target.stop().expect("it ends");
}

#[test]
fn controllers_and_their_queues_go_on_in_another_target() {
    let bed = Bed::new();
    let (mut admin, mut queue) = bed.host();
    let set = SetFeatures::new(FeatureId::ARBITRATION, 5).encode(0);
    assert!(admin.execute(set, &[]).status.is_success());
    events::watch(&mut admin);
    let next = successor(&bed);
    let data = pattern(1, 2 * BLOCK);
    assert!(queue.write(0, &data).status.is_success());
    pass(bed, &next);
    assert_eq!(queue.read(0, 2).1, data);
    assert!(
        queue
            .write_by_r2t(4, &pattern(2, 32 * BLOCK))
            .status
            .is_success()
    );
    assert_eq!(admin.feature(0, FeatureId::ARBITRATION), 5);
    assert_eq!(admin.property(Property::CSTS), 1, "ready");
    let another = namespace(2, ram(MIB));
    next.handle.add_namespace(NQN, another).expect("a new one");
    assert_eq!(events::changed(&mut admin), [2]);
    // A reset ends the queue in the new target, too.
    admin.disable();
    queue.closed();
    admin.enable();
    next.stop().expect("it ends");
}

/// Hosts in each state before Connect, and within a PDU.
#[test]
fn connections_go_on_in_the_middle_of_a_pdu_and_before_connect() {
    for digests in [false, true] {
        let dialect = Dialect {
            header_digest: digests,
            data_digest: digests,
            ..Dialect::default()
        };
        let bed = Bed::new();
        let (_admin, mut queue) = bed.host_with(dialect);
        let address = bed.address();
        let silent = Client::raw(address);
        let mut initialized = Client::dial(address, dialect);
        let data = pattern(3, 2 * BLOCK);
        let mut write = io(IoOpcode::WRITE, 8, 2);
        write.set_sgl(SglDescriptor::in_capsule(0, 2 * BLOCK as u32));
        let (bytes, _) = queue.session.command(write, &data);
        queue.send(&bytes[..50]);
        let next = successor(&bed);
        pass(bed, &next);
        queue.send(&bytes[50..]);
        assert!(queue.completion().status.is_success());
        assert_eq!(queue.read(8, 2).1, data);
        initialized.connect_admin(NQN, 0);
        initialized.enable();
        Client::admin(address, NQN, 0);
        drop(silent);
        next.stop().expect("it ends");
    }
}

/// Regression: a host that lost its controller could end its next one, which had the same identifier.
#[test]
fn identifiers_of_ended_controllers_are_not_used_again() {
    let bed = Bed::new();
    let (admin, ended) = bed.controller(Dialect::default());
    drop(admin);
    let handle = bed.handle();
    eventually("the controller ends", || {
        handle.snapshot().controllers.is_empty()
    });
    let next = successor(&bed);
    let address = bed.address();
    pass(bed, &next);
    let mut admin = Client::dial(address, Dialect::default());
    assert_eq!(admin.connect_admin(NQN, 0), ended + 1);
    next.stop().expect("it ends");
}

/// Each has its own rules for TLS.
#[test]
fn listeners_keep_their_addresses_in_whatever_order_they_come() {
    let bed = Bed::new();
    let first = bed.address();
    let other = SocketAddr::from(([127, 0, 0, 2], 0));
    let second = bed.handle().add_listener(other.into()).expect("free");
    let next = successor_at(&bed, vec![second.into(), first.into()]);
    pass(bed, &next);
    next.handle.remove_listener(first).expect("it is there");
    Client::admin(second, NQN, 0);
    TcpStream::connect(first).expect_err("nobody listens");
    next.stop().expect("it ends");
}

/// A host that does not send the data of its write holds the pause up.
#[test]
fn a_target_that_cannot_pause_serves_all_its_hosts_again() {
    let bed = Bed::with(Limits::default(), 2);
    let (_late, mut late) = bed.host();
    let (mut admin, mut queues) = bed.host_named(HOST, 2);
    let data = pattern(4, 32 * BLOCK);
    let mut write = io(IoOpcode::WRITE, 0, 32);
    write.set_cid(7);
    write.set_sgl(SglDescriptor::transport(data.len() as u32));
    late.capsule(&write, &[]);
    let r2t = late.r2t();
    let failed = bed.handle().depart(Duration::from_millis(20));
    failed.expect_err("a command is outstanding");
    late.answer_r2t(&r2t, &data);
    assert!(late.finish_write(&data).status.is_success());
    for queue in &mut queues {
        assert_eq!(queue.read(0, 32).1, data);
    }
    assert_eq!(admin.property(Property::CSTS), 1);
    Client::admin(bed.address(), NQN, 0);
    bed.target.stop().expect("it ends");
}

/// Regression: what was held was taken for the rest of a PDU that was arriving when a take-over was
/// cancelled, and written as its data.
#[test]
fn a_pdu_that_arrives_in_part_during_a_cancelled_pause_keeps_its_bytes() {
    for data_bytes in [false, true] {
        let bed = Bed::new();
        let (_admin, mut late) = bed.host();
        let data = pattern(5, 32 * BLOCK);
        let mut write = io(IoOpcode::WRITE, 0, 32);
        write.set_cid(7);
        write.set_sgl(SglDescriptor::transport(data.len() as u32));
        late.capsule(&write, &[]);
        let r2t = late.r2t();
        let arriving = late.session.answer(&r2t, &data);
        let (first, rest) = arriving.split_at(if data_bytes { 8_000 } else { 4 });
        let inline = pattern(6, 2 * BLOCK);
        let mut write = io(IoOpcode::WRITE, 64, 2);
        write.set_sgl(SglDescriptor::in_capsule(0, inline.len() as u32));
        let (held, cid) = late.session.command(write, &inline);
        let _idle = bed.host();
        let handle = bed.handle();
        std::thread::scope(|scope| {
            let departed = scope.spawn(|| handle.depart(Duration::from_millis(300)));
            eventually("the idle host is released", || {
                handle.snapshot().controllers.len() == 1
            });
            late.send(&[&held, first].concat());
            let departed = departed.join().expect("no panic");
            departed.expect_err("a write is outstanding");
        });
        late.send(rest);
        let answers = [late.completion(), late.completion()];
        assert!(answers.iter().all(|answer| answer.status.is_success()));
        let cids = answers.map(|answer| answer.cid);
        assert!(cids.contains(&7) && cids.contains(&cid), "{cids:?}");
        assert_eq!(late.read(0, 32).1, data);
        assert_eq!(late.read(64, 2).1, inline);
        bed.target.stop().expect("it ends");
    }
}

#[test]
fn no_command_is_lost_or_repeated_by_pauses_under_load() {
    let bed = Bed::with(Limits::default(), 2);
    let stop = AtomicBool::new(false);
    let (mut admin, queues) = bed.host_named(HOST, 4);
    std::thread::scope(|scope| {
        for (number, mut queue) in (0..).zip(queues) {
            let stop = &stop;
            scope.spawn(move || {
                for round in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    // By turns in the capsule and by R2T, with reads behind them.
                    let blocks = if round % 2 == 0 { 2 } else { 32 };
                    let data = pattern(number << 32 | round, blocks * BLOCK);
                    let at = number * 64;
                    assert!(queue.write(at, &data).status.is_success());
                    assert_eq!(queue.read(at, blocks as u32).1, data);
                }
            });
        }
        let passed = catch_unwind(AssertUnwindSafe(|| {
            for _ in 0..50 {
                let handed = bed.handle().depart(PATIENCE).expect("nothing is stuck");
                assert_eq!(handed.connections(), 5);
                bed.handle().take_over(handed).expect("the core answers");
            }
        }));
        stop.store(true, Ordering::Relaxed);
        passed.expect("50 pauses");
    });
    assert_eq!(admin.property(Property::CSTS), 1);
    bed.target.stop().expect("it ends");
}
