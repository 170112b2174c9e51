//! Disconnect: its answer is the last one of the queue, which no longer exists when the answer
//! arrives.

use crate::common::{BLOCK, Bed, Client, Dialect, NQN, eventually, fabrics, io, late, pattern};
use base::Nanos;
use std::sync::atomic::Ordering;
use switchyard_target::Limits;
use wire::fabrics::Property;
use wire::nvme::vendor::EndController;
use wire::nvme::{AdminCommand, FabricsType, IoOpcode, SglDescriptor};

/// Returns limits with a long linger time, for which connections stay after their last answer.
fn limits() -> Limits {
    Limits {
        linger: Nanos::from_secs(20),
        ..Limits::default()
    }
}

/// Regression: the identifier stayed in use until the connection closed, 200 ms later.
#[test]
fn an_identifier_serves_again_as_soon_as_its_queue_is_disconnected() {
    for cores in [1, 2] {
        let bed = Bed::with(limits(), cores);
        let (mut admin, cntlid) = bed.controller(Dialect::default());
        let mut old = Vec::new();
        for round in 0..20 {
            let mut queue = Client::dial(bed.address(), Dialect::default());
            queue.connect_io(NQN, cntlid, 1, 127);
            assert!(queue.write(0, &pattern(round, BLOCK)).status.is_success());
            let completion = queue.execute(fabrics(FabricsType::DISCONNECT), &[]);
            assert!(completion.status.is_success(), "{}", completion.status);
            old.push(queue);
        }
        assert!(admin.property(Property::CSTS) & 1 == 1);
    }
}

#[test]
fn disconnect_is_answered_after_all_other_commands_of_the_queue() {
    let (bed, state) = late::bed_on(1, 64, limits());
    let (mut admin, mut queue) = bed.host();
    let mut write = io(IoOpcode::WRITE, 0, 1);
    let cid = queue.cid();
    write.set_cid(cid);
    write.set_sgl(SglDescriptor::in_capsule(0, BLOCK as u32));
    queue.capsule(&write, &pattern(1, BLOCK));
    eventually("the device has it", || {
        state.held.load(Ordering::SeqCst) == 1
    });
    let leave = queue.cid();
    let mut disconnect = fabrics(FabricsType::DISCONNECT);
    disconnect.set_cid(leave);
    queue.capsule(&disconnect, &[]);
    for _ in 0..10 {
        admin.property(Property::CAP);
    }
    assert!(queue.is_silent());
    // Its identifier stays in use while it has an outstanding command.
    let controllers = bed.handle().snapshot().controllers;
    assert_eq!(controllers[0].io_queues.len(), 1);
    state.open.store(true, Ordering::SeqCst);
    let answers = [queue.completion(), queue.completion()];
    assert_eq!(answers.map(|answer| answer.cid), [cid, leave]);
    assert!(answers.iter().all(|answer| answer.status.is_success()));
    let mut again = Client::dial(bed.address(), Dialect::default());
    again.connect_io(NQN, controllers[0].id, 1, 127);
    assert!(again.read(0, 1).1 == pattern(1, BLOCK));
}

/// A disconnected queue changes nothing any more, however long its connection stays.
#[test]
fn the_end_of_a_controller_does_not_wait_for_a_queue_that_is_disconnected() {
    let bed = Bed::with(limits(), 2);
    let (_lost, mut queue) = bed.host();
    let controller_id = bed.handle().snapshot().controllers[0].id;
    let completion = queue.execute(fabrics(FabricsType::DISCONNECT), &[]);
    assert!(completion.status.is_success(), "{}", completion.status);
    let mut other = bed.admin();
    let end = AdminCommand::EndController(EndController { controller_id }).encode(0);
    let ended = other.execute(end, &[]);
    assert!(ended.status.is_success(), "{}", ended.status);
    assert!(queue.is_silent(), "its connection is still there");
}
