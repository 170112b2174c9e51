//! A namespace identifier that now belongs to another namespace: commands for the former one change
//! nothing.

use crate::common;
use crate::common::{BLOCK, Bed, Client, Dialect, NQN, eventually, io_on, pattern};
use base::units::MIB;
use block::Device;
use block::device::Ram;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use switchyard_target::{Limits, NamespaceOptions, Target, TargetError};
use testing::device::TestDevice;
use wire::nvme::{IoOpcode, SglDescriptor, Status};

/// Options of namespace 2: memory with a volume of its own for each `uuid`.
fn second(device: &Arc<dyn Device>, uuid: u8) -> NamespaceOptions {
    NamespaceOptions {
        uuid: [uuid; 16],
        ..common::namespace(2, Arc::clone(device))
    }
}

fn ram() -> Arc<dyn Device> {
    Arc::new(Ram::new(MIB as u64, BLOCK as u32).expect("1 MiB"))
}

fn add(target: &Target, options: NamespaceOptions) {
    target
        .add_namespace(NQN, options)
        .expect("the identifier is free");
}

/// A target with a namespace 2 of volume 1, and its memory.
fn bed(cores: usize) -> (Bed, Arc<dyn Device>) {
    let (bed, first) = (Bed::with(Limits::default(), cores), ram());
    add(bed.handle(), second(&first, 1));
    (bed, first)
}

/// Returns the bytes of a write of the first block of namespace 2.
fn capsule(client: &mut Client, data: &[u8]) -> Vec<u8> {
    let mut write = io_on(2, IoOpcode::WRITE, 0, 1);
    write.set_cid(client.cid());
    write.set_sgl(SglDescriptor::in_capsule(0, BLOCK as u32));
    client.session.capsule(&write, data)
}

/// Sends half of such a write, and returns the rest once the target has received it.
fn begin_write(bed: &Bed, client: &mut Client, data: &[u8]) -> Vec<u8> {
    let bytes = capsule(client, data);
    let (half, rest) = bytes.split_at(BLOCK / 2);
    client.send(half);
    eventually("the write has a buffer", || {
        let cores = bed.handle().snapshot().cores;
        cores.iter().any(|core| core.buffer_bytes_used > 0)
    });
    rest.to_vec()
}

/// Returns the first block of namespace 2, as read by a new host.
fn content(bed: &Bed) -> Vec<u8> {
    let (_admin, mut client) = bed.host();
    let (completion, data) = client.fetch(io_on(2, IoOpcode::READ, 0, 1), BLOCK);
    assert!(completion.status.is_success(), "{}", completion.status);
    data
}

/// Regression: a half-received write was executed on the device that had the identifier by then.
#[test]
fn a_write_does_not_reach_another_volume_that_has_its_identifier_now() {
    for cores in [1, 2] {
        let (bed, _first) = bed(cores);
        let (mut admin, mut client) = bed.host();
        let rest = begin_write(&bed, &mut client, &pattern(1, BLOCK));
        bed.handle().remove_namespace(NQN, 2).expect("it is there");
        add(bed.handle(), second(&ram(), 2));
        // The connection may have closed already.
        let _ = client.stream.write_all(&rest);
        assert!(client.try_receive().is_none(), "nothing is answered");
        assert!(admin.try_receive().is_none(), "the host has to look again");
        assert!(content(&bed) == [0; BLOCK]);
    }
}

/// Writes that a host sends until it learns of the change, without reading the namespaces again.
#[test]
fn writes_that_go_on_through_the_change_do_not_reach_the_other_volume() {
    for cores in [1, 2] {
        let (bed, _first) = bed(cores);
        let (answers, changed) = (AtomicUsize::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let (_admin, mut client) = bed.host();
            let (answers, changed) = (&answers, &changed);
            let writer = scope.spawn(move || {
                // One more write is begun after the change, if the connection still exists.
                while !changed.load(Ordering::SeqCst) {
                    let bytes = capsule(&mut client, &pattern(2, BLOCK));
                    if client.stream.write_all(&bytes).is_err() || client.try_receive().is_none() {
                        return;
                    }
                    answers.fetch_add(1, Ordering::SeqCst);
                }
                let bytes = capsule(&mut client, &pattern(2, BLOCK));
                let _ = client.stream.write_all(&bytes);
                assert!(client.try_receive().is_none(), "the host has to look again");
            });
            eventually("it writes", || answers.load(Ordering::SeqCst) > 0);
            bed.handle().remove_namespace(NQN, 2).expect("it is there");
            add(bed.handle(), second(&ram(), 2));
            changed.store(true, Ordering::SeqCst);
            writer.join().expect("no answer after the change");
        });
        assert!(content(&bed) == [0; BLOCK]);
    }
}

/// Controllers stay if the identifier refers to the same volume, or if they are younger than the
/// change.
#[test]
fn the_same_volume_again_and_younger_controllers_stay() {
    for cores in [1, 2] {
        let (bed, first) = bed(cores);
        let (_admin, mut client) = bed.host();
        let data = pattern(3, BLOCK);
        let rest = begin_write(&bed, &mut client, &data);
        bed.handle().remove_namespace(NQN, 2).expect("it is there");
        add(bed.handle(), second(&first, 1));
        client.send(&rest);
        let status = client.completion().status;
        assert!(status.is_success(), "{status}");
        assert!(content(&bed) == data);

        bed.handle().remove_namespace(NQN, 2).expect("it is there");
        let (mut young_admin, mut young) = bed.host();
        add(bed.handle(), second(&ram(), 2));
        assert!(client.try_receive().is_none(), "it means the first volume");
        let bytes = capsule(&mut young, &data);
        young.send(&bytes);
        assert!(young.completion().status.is_success());
        assert_ne!(young_admin.property(wire::fabrics::Property::CAP), 0);
        assert!(content(&bed) == data);
    }
}

/// Regression: a command was checked only at its arrival.
#[test]
fn a_write_does_not_reach_a_volume_that_is_read_only_now() {
    let (bed, first) = bed(1);
    let (_admin, mut client) = bed.host();
    let rest = begin_write(&bed, &mut client, &pattern(4, BLOCK));
    bed.handle().remove_namespace(NQN, 2).expect("it is there");
    let read_only = NamespaceOptions {
        read_only: true,
        ..second(&first, 1)
    };
    add(bed.handle(), read_only);
    client.send(&rest);
    let status = client.completion().status;
    assert!(status.is(Status::INVALID_NAMESPACE), "{status}");
    assert!(content(&bed) == [0; BLOCK]);
}

/// A queue connected between removal and addition belongs to a controller from before.
#[test]
fn a_queue_is_as_old_as_its_controller() {
    let (bed, _first) = bed(1);
    let mut admin = Client::dial(bed.address(), Dialect::default());
    let cntlid = admin.connect_admin(NQN, 0);
    admin.enable();
    bed.handle().remove_namespace(NQN, 2).expect("it is there");
    let mut io = Client::dial(bed.address(), Dialect::default());
    io.connect_io(NQN, cntlid, 1, 127);
    add(bed.handle(), second(&ram(), 2));
    assert!(io.try_receive().is_none() && admin.try_receive().is_none());
}

/// Regression: a refused change disconnected all hosts of the subsystem, and new queues were
/// refused.
#[test]
fn a_namespace_that_does_not_come_disconnects_no_host() {
    for cores in [1, 2] {
        let (bed, _first) = bed(cores);
        let (admin, cntlid) = bed.controller(Dialect::default());
        let mut queue = Client::dial(bed.address(), Dialect::default());
        queue.connect_io(NQN, cntlid, 1, 127);
        bed.handle().remove_namespace(NQN, 2).expect("it is there");
        let small = TestDevice::new(common::ram(MIB), |ram| ram);
        let small = small.with(|capabilities| capabilities.max_transfer_bytes = BLOCK as u32);
        let small: Arc<dyn Device> = Arc::new(small);
        let refused = bed.handle().add_namespace(NQN, second(&small, 2));
        assert!(matches!(refused, Err(TargetError::Undone(_))));
        for number in 2..4 {
            assert!(queue.read(0, 1).0.status.is_success(), "{cores} cores");
            queue = Client::dial(bed.address(), Dialect::default());
            queue.connect_io(NQN, cntlid, number, 127);
        }
        drop(admin);
    }
}
