//! A reset or shutdown is complete when the I/O queues can no longer change data.

use crate::common::late::{State, bed};
use crate::common::{BLOCK, Bed, Client, Dialect, NQN, eventually, io, pattern};
use std::sync::atomic::Ordering;
use wire::fabrics::Property;
use wire::fabrics::property::{Configuration, ControllerStatus};
use wire::nvme::{IoOpcode, SglDescriptor, Status};

const SHUTDOWN_OCCURRING: u8 = 1;
const SHUTDOWN_COMPLETE: u8 = 2;

fn status(admin: &mut Client) -> ControllerStatus {
    ControllerStatus(admin.property(Property::CSTS) as u32)
}

/// Returns a controller with `queues` I/O queues, each with a write of the first block in the
/// device.
fn with_writes(bed: &Bed, state: &State, queues: u16) -> (Client, u16, Vec<Client>) {
    let (admin, cntlid) = bed.controller(Dialect::default());
    let data = pattern(1, BLOCK);
    let all: Vec<_> = (1..=queues)
        .map(|id| {
            let mut queue = Client::dial(bed.address(), Dialect::default());
            queue.connect_io(NQN, cntlid, id, 127);
            let mut write = io(IoOpcode::WRITE, 0, 1);
            write.set_cid(queue.cid());
            write.set_sgl(SglDescriptor::in_capsule(0, BLOCK as u32));
            queue.capsule(&write, &data);
            queue
        })
        .collect();
    eventually("the device has the writes", || {
        state.held.load(Ordering::SeqCst) == usize::from(queues)
    });
    (admin, cntlid, all)
}

/// Regression: RDY became 0 at once, so the host repeated its writes on new queues, and the old
/// writes reached the medium last.
#[test]
fn a_controller_stays_ready_until_writes_have_left_the_device() {
    // Queues on each of two cores.
    let (bed, state) = bed(8);
    let (mut admin, cntlid, queues) = with_writes(&bed, &state, 2);
    assert!(admin.configure(Configuration(0)).status.is_success());
    for queue in queues {
        queue.closed();
    }
    assert!(status(&mut admin).ready(), "the device has two writes");
    // Ready for nothing except the end of the reset.
    let early = admin.configure(Configuration::ENABLE);
    assert!(early.status.is(Status::COMMAND_SEQUENCE_ERROR));
    let mut early = Client::dial(bed.address(), Dialect::default());
    let connect = Client::connect_command(1, 127, 0);
    let refused = early.connect(&connect, &Client::connect_data(NQN, cntlid));
    assert!(refused.status.is(Status::COMMAND_SEQUENCE_ERROR));
    state.permits.store(1, Ordering::SeqCst);
    eventually("the device has finished one", || {
        state.permits.load(Ordering::SeqCst) == 0
    });
    assert!(status(&mut admin).ready(), "the device has a write");
    state.open.store(true, Ordering::SeqCst);
    eventually("the reset ends", || !status(&mut admin).ready());
    admin.enable();
    let mut queue = Client::dial(bed.address(), Dialect::default());
    queue.connect_io(NQN, cntlid, 1, 127);
    let data = pattern(2, BLOCK);
    assert!(queue.write(0, &data).status.is_success());
    assert!(queue.read(0, 1).1 == data);
}

/// Regression: an abrupt shutdown completed at once, so the host could pass the volume to another
/// host too early.
#[test]
fn a_shutdown_is_complete_when_writes_have_left_the_device() {
    let (bed, state) = bed(8);
    let (mut admin, _, queues) = with_writes(&bed, &state, 2);
    let off = Configuration::ENABLE.with_shutdown(2);
    assert!(admin.configure(off).status.is_success());
    for queue in queues {
        queue.closed();
    }
    assert_eq!(status(&mut admin).shutdown(), SHUTDOWN_OCCURRING);
    state.open.store(true, Ordering::SeqCst);
    eventually("the shutdown is complete", || {
        status(&mut admin).shutdown() == SHUTDOWN_COMPLETE
    });
}
