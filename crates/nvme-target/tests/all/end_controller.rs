//! End Controller waits for everything that may still change a device, and for nothing else.

use crate::common;
use crate::common::late::{QUICK, State, bed, bed_with};
use crate::common::{BLOCK, Bed, Client, Dialect, NQN, eventually, io, namespace, pattern};
use base::Nanos;
use base::units::MIB;
use block::device::Ram;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use switchyard_target::{Limits, SubsystemOptions};
use wire::nvme::vendor::EndController;
use wire::nvme::{Completion as Answer, IoOpcode, SglDescriptor};

/// A host's admin queue, its controller, and its I/O queue.
struct Host {
    admin: Client,
    cntlid: u16,
    io: Client,
}

impl Host {
    fn new(bed: &Bed) -> Self {
        let mut admin = Client::dial(bed.address(), Dialect::default());
        let cntlid = admin.connect_admin(NQN, 0);
        admin.enable();
        let mut io = Client::dial(bed.address(), Dialect::default());
        io.connect_io(NQN, cntlid, 1, 127);
        Self { admin, cntlid, io }
    }

    /// Sends a command on the first block without waiting for its answer.
    fn begin(&mut self, opcode: IoOpcode, data: &[u8]) {
        let mut command = io(opcode, 0, 1);
        command.set_cid(self.io.cid());
        match opcode {
            IoOpcode::READ => command.set_sgl(SglDescriptor::transport(BLOCK as u32)),
            _ if !data.is_empty() => {
                command.set_sgl(SglDescriptor::in_capsule(0, data.len() as u32));
            }
            _ => {}
        }
        self.io.capsule(&command, data);
    }

    /// Requests the end of another controller.
    fn ask_to_end(&mut self, cntlid: u16) -> u16 {
        let end = EndController {
            controller_id: cntlid,
        };
        let cid = self.admin.cid();
        self.admin.capsule(&end.encode(cid), &[]);
        cid
    }

    /// Checks that the next answer on the admin queue is the success of this command.
    fn ended(&mut self, cid: u16) {
        let Answer {
            cid: found, status, ..
        } = self.admin.completion();
        assert_eq!(found, cid);
        assert!(status.is_success(), "{status}");
    }
}

fn device_has(state: &State, requests: usize) {
    eventually("the device has the requests", || {
        state.held.load(Ordering::SeqCst) == requests
    });
}

/// Returns the number of controllers and connections of the target.
fn left(bed: &Bed) -> (usize, u64) {
    let snapshot = bed.handle().snapshot();
    let connections = snapshot.cores.iter().map(|core| core.connections).sum();
    (snapshot.controllers.len(), connections)
}

#[test]
fn what_changes_nothing_is_not_waited_for_and_keeps_its_memory() {
    let (bed, state) = bed(64);
    let mut old = Host::new(&bed);
    for _ in 0..8 {
        old.begin(IoOpcode::READ, &[]);
    }
    old.begin(IoOpcode::COMPARE, &pattern(1, BLOCK));
    old.begin(IoOpcode::VERIFY, &[]);
    old.begin(IoOpcode::FLUSH, &[]);
    device_has(&state, 11);

    // Queues are dealt out in turn: this one makes the new host's queue go to the first host's
    // core.
    let mut between = Client::dial(bed.address(), Dialect::default());
    between.connect_io(NQN, old.cntlid, 2, 127);
    let mut new = Host::new(&bed);
    let cid = new.ask_to_end(old.cntlid);
    new.ended(cid);
    assert!(old.admin.try_receive().is_none() && old.io.try_receive().is_none());
    // Its identifier stays in use, and the device's request keeps its buffer, while other hosts
    // take more than all buffers for blocks of this size.
    assert_eq!(left(&bed).0, 2);
    let data = pattern(2, BLOCK);
    assert!(new.io.write(QUICK, &data).status.is_success());
    for _ in 0..100 {
        new.begin(IoOpcode::READ, &[]);
    }
    // The device has room for only this number of requests; the old host's requests are among them.
    device_has(&state, 64);
    state.open.store(true, Ordering::SeqCst);
    for _ in 0..100 {
        assert_eq!(common::any_read(&mut new.io).1, [0; BLOCK]);
    }
    eventually("nothing is left of the old controller", || {
        left(&bed) == (1, 2)
    });
    let (read, found) = new.io.read(QUICK, 1);
    assert!(read.status.is_success() && found == data);
}

#[test]
fn a_write_is_waited_for_while_everything_else_goes_on() {
    for opcode in [IoOpcode::WRITE, IoOpcode::WRITE_ZEROES] {
        let (bed, state) = bed(64);
        let mut old = Host::new(&bed);
        let data = match opcode {
            IoOpcode::WRITE => pattern(3, BLOCK),
            _ => Vec::new(),
        };
        old.begin(opcode, &data);
        old.begin(IoOpcode::READ, &[]);
        device_has(&state, 2);

        let mut new = Host::new(&bed);
        let cid = new.ask_to_end(old.cntlid);
        assert!(old.io.try_receive().is_none(), "it is closed all the same");
        for block in 0..20 {
            // Admin commands may be answered in any order: the later command is answered first.
            assert_ne!(new.admin.property(wire::fabrics::Property::CAP), 0);
            assert!(new.io.read(QUICK + block, 1).0.status.is_success());
        }
        state.open.store(true, Ordering::SeqCst);
        new.ended(cid);
        let (read, found) = new.io.read(0, 1);
        assert!(read.status.is_success());
        let wanted = if data.is_empty() {
            vec![0; BLOCK]
        } else {
            data
        };
        assert!(found == wanted, "it was done before");
        eventually("nothing is left of the old controller", || {
            left(&bed) == (1, 2)
        });
    }
}

#[test]
fn what_the_device_had_no_room_for_is_taken_back() {
    let (bed, state) = bed(4);
    let mut old = Host::new(&bed);
    for _ in 0..4 {
        old.begin(IoOpcode::READ, &[]);
    }
    device_has(&state, 4);
    old.begin(IoOpcode::WRITE, &pattern(4, BLOCK));
    old.begin(IoOpcode::FLUSH, &[]);
    eventually("they wait for the device", || {
        let cores = bed.handle().snapshot().cores;
        cores.iter().map(|core| core.device_waits).sum::<u64>() == 2
    });

    let mut new = Host::new(&bed);
    let cid = new.ask_to_end(old.cntlid);
    new.ended(cid);
    state.open.store(true, Ordering::SeqCst);
    eventually("nothing is left of the old controller", || {
        left(&bed) == (1, 2)
    });
    let (read, found) = new.io.read(0, 1);
    assert!(read.status.is_success());
    assert!(found == [0; BLOCK], "the write never came to the device");
    assert_eq!(state.held.load(Ordering::SeqCst), 4);
}

#[test]
fn hosts_that_gave_up_waiting_leave_nothing_behind() {
    let (bed, state) = bed(64);
    let mut old = Host::new(&bed);
    old.begin(IoOpcode::WRITE, &pattern(5, BLOCK));
    device_has(&state, 1);
    let cntlid = old.cntlid;
    drop(old);
    for _ in 0..10 {
        let mut impatient = Host::new(&bed);
        impatient.ask_to_end(cntlid);
        assert_ne!(impatient.admin.property(wire::fabrics::Property::CAP), 0);
    }
    // The queue whose write is in the device.
    eventually("the others are gone", || left(&bed) == (1, 1));
    let mut patient = Host::new(&bed);
    let cid = patient.ask_to_end(cntlid);
    state.open.store(true, Ordering::SeqCst);
    patient.ended(cid);
    let again = patient.ask_to_end(cntlid);
    patient.ended(again);
    eventually("nothing is left", || left(&bed) == (1, 2));
}

/// Regression: the host took a refusal for the end of a controller that no longer belonged to it.
#[test]
fn a_write_is_waited_for_after_its_subsystem_was_removed_and_added_again() {
    // The removal uses all of this time; later changes must complete within it, however late the
    // cores are.
    let limits = Limits {
        change_timeout: Nanos::from_secs(5),
        ..Limits::default()
    };
    let (bed, state) = bed_with(64, limits);
    let mut old = Host::new(&bed);
    old.begin(IoOpcode::WRITE, &pattern(6, BLOCK));
    device_has(&state, 1);
    let target = bed.handle();
    target.remove_subsystem(NQN).expect("it is gone for hosts");
    target
        .add_subsystem(SubsystemOptions::open_to_all(NQN))
        .expect("the name is free");
    let ram = Ram::new(16 * MIB as u64, BLOCK as u32).expect("16 MiB");
    target
        .add_namespace(NQN, namespace(1, Arc::new(ram)))
        .expect("a new namespace");

    let mut new = Host::new(&bed);
    let cid = new.ask_to_end(old.cntlid);
    // If it had been answered, the next answer would be a different one.
    assert_ne!(new.admin.property(wire::fabrics::Property::CAP), 0);
    state.open.store(true, Ordering::SeqCst);
    new.ended(cid);
}
