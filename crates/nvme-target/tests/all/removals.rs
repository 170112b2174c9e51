//! Namespaces and rights withdrawn while commands are in flight and answers are unsent.

use crate::common;
use crate::common::{BLOCK, Bed, Client, NQN, eventually, io, io_on, late};
use base::Nanos;
use base::units::MIB;
use block::{Capabilities, Channel, Device, DeviceError, Direct, Geometry};
use reactor::{Driver, uring};
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use switchyard_target::{
    AccessGrant, Limits, Others, TargetError, Tenancy, TenantGrant, TenantOptions,
};
use wire::nvme::{IoOpcode, SglDescriptor, Status};

/// Content of the memory before the change.
const BEFORE: u8 = 0xaa;
/// Content of the memory after the change, when it belongs to another host.
const AFTER: u8 = 0xbb;

/// Fills a device from a separate thread: completions that the kernel runs for a driver interrupt
/// its thread's system calls.
fn fill(device: &dyn Device, byte: u8) {
    std::thread::scope(|scope| {
        scope.spawn(|| fill_here(device, byte));
    });
}

fn fill_here(device: &dyn Device, byte: u8) {
    let mut driver = uring::UringDriver::new(&uring::Options::default()).expect("a driver");
    let channel = device.open(&mut driver).expect("memory");
    let Some(Direct::Linear(region)) = channel.direct() else {
        panic!("RAM is memory");
    };
    let bytes = device.geometry().bytes() as usize;
    region.copy_in(0, &vec![byte; bytes]);
}

/// Regression: a host that did not read its answers was later sent the memory's new content, long
/// after the memory belonged to another host.
fn nothing_of_the_memory_is_sent_after(change: impl FnOnce(&Bed)) {
    let limits = Limits {
        pause_patience: Nanos::from_millis(100),
        ..Limits::default()
    };
    let bed = Bed::with(limits, 1);
    fill(&*bed.ram, BEFORE);
    let (_admin, mut client) = bed.host();
    let (_other_admin, mut reader) = bed.host();
    // More than the socket buffers hold.
    let reads = 96;
    for cid in 0..reads {
        let mut read = io(IoOpcode::READ, 0, (MIB / BLOCK) as u32);
        read.set_cid(cid);
        read.set_sgl(SglDescriptor::transport(MIB as u32));
        client.capsule(&read, &[]);
    }
    eventually("the target has the reads", || {
        bed.commands() == u64::from(reads)
    });
    change(&bed);
    fill(&*bed.ram, AFTER);
    let mut stream = &client.stream;
    let mut buffer = vec![0; MIB];
    let mut received = 0;
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        received += count;
        // The headers between the data contain no such run of bytes.
        let found = buffer[..count].windows(64).any(|run| run == [AFTER; 64]);
        assert!(!found, "another host's data after {received} bytes");
    }
    assert!(received < usize::from(reads) * MIB, "it had no more room");
    // A host without unsent answers stays connected.
    let read = io(IoOpcode::READ, 0, 1);
    let status = reader.fetch(read, BLOCK).0.status;
    assert!(
        status.is(Status::INVALID_NAMESPACE) || status.is(Status::ACCESS_DENIED),
        "{status}"
    );
}

#[test]
fn nothing_of_a_removed_namespace_is_sent() {
    nothing_of_the_memory_is_sent_after(|bed| {
        let removed = bed.handle().remove_namespace(NQN, 1);
        removed.expect("hosts that do not read are closed");
    });
}

#[test]
fn nothing_is_sent_after_the_right_to_read_it_is_revoked() {
    nothing_of_the_memory_is_sent_after(|bed| {
        let tenancy = Tenancy {
            tenants: vec![TenantOptions {
                name: "tested".to_owned(),
                grants: Some(vec![TenantGrant {
                    subsystem: None,
                    grant: AccessGrant {
                        namespace: None,
                        range: Some((100, 1)),
                        read: true,
                        write: true,
                    },
                }]),
                ..TenantOptions::default()
            }],
            others: Others::Refuse,
        };
        let set = bed.handle().set_tenants(&tenancy);
        set.expect("hosts that do not read are closed");
    });
}

/// A device that one core can open; opening fails on the other core once a request is in the
/// device.
#[derive(Debug)]
struct OpensOnce {
    inner: Arc<dyn Device>,
    state: Arc<late::State>,
    openings: AtomicUsize,
}

impl Device for OpensOnce {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn open(&self, driver: &mut dyn Driver) -> Result<Box<dyn Channel>, DeviceError> {
        if self.openings.fetch_add(1, Ordering::SeqCst) == 0 {
            return self.inner.open(driver);
        }
        let end = Instant::now() + Duration::from_secs(60);
        while self.state.held.load(Ordering::SeqCst) == 0 && Instant::now() < end {
            std::thread::yield_now();
        }
        Err(DeviceError::Invalid("no more channels".to_owned()))
    }
}

/// Reads from namespace 2 until that succeeds or `stop` is set. Returns true if it succeeded.
fn read_until(client: &mut Client, stop: &AtomicBool) -> bool {
    loop {
        let stopped = stop.load(Ordering::SeqCst);
        let read = io_on(2, IoOpcode::READ, 0, 1);
        let status = client.fetch(read, BLOCK).0.status;
        if status.is_success() {
            return true;
        }
        assert!(status.is(Status::INVALID_NAMESPACE), "{status}");
        if stopped {
            return false;
        }
    }
}

/// Regression: the core that had opened it removed the namespace with the command in the device.
/// The command was never answered and kept the target from ending.
#[test]
fn a_command_that_came_before_an_addition_is_undone_is_answered() {
    let bed = Bed::with(Limits::default(), 2);
    let (inner, state) = late::device(common::ram(MIB), 1);
    let device = Arc::new(OpensOnce {
        inner,
        state: Arc::clone(&state),
        openings: AtomicUsize::new(0),
    });
    // Two queues on each core.
    let (admin, queues) = bed.host_named("nqn.2026-11.io.example:host", 4);
    let stop = AtomicBool::new(false);
    let succeeded = std::thread::scope(|scope| {
        let readers: Vec<_> = queues
            .into_iter()
            .map(|mut client| {
                let stop = &stop;
                scope.spawn(move || read_until(&mut client, stop))
            })
            .collect();
        let add = scope.spawn(|| {
            let added = bed
                .handle()
                .add_namespace(NQN, common::namespace(2, device));
            stop.store(true, Ordering::SeqCst);
            added
        });
        eventually("a command waits for the removal", || {
            let cores = bed.handle().snapshot().cores;
            cores.iter().any(|core| core.pause_waits > 0)
        });
        state.open.store(true, Ordering::SeqCst);
        let added = add.join().expect("no panic");
        assert!(matches!(added, Err(TargetError::Undone(_))), "{added:?}");
        let readers = readers.into_iter();
        let results = readers.map(|reader| reader.join().expect("each read is answered"));
        results.filter(|&succeeded| succeeded).count()
    });
    assert_eq!(succeeded, 1, "the read that the device had");
    drop(admin);
    bed.target.stop().expect("an orderly end");
}
