//! A target in this process, and helpers for its tests.

// Every test file includes this module and uses part of it.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use base::units::{CoreId, MIB};
use block::device::Ram;
use host::{Host, RemoteNamespace, Subsystem, Switchboard, SwitchedNamespace};
use reactor::BufferClass;
use reactor::uring::{Options, UringDriver};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use target::{Limits, NamespaceOptions, RunningTarget, SubsystemOptions, Target, TargetOptions};

pub const NQN: &str = "nqn.2026-11.io.switchyard:default";

/// A namespace of 16 MiB in memory.
pub fn namespace(nsid: u32, block_bytes: u32) -> NamespaceOptions {
    let ram = Ram::new(16 * MIB as u64, block_bytes).unwrap();
    NamespaceOptions::new(nsid, Arc::new(ram), [u8::try_from(nsid).unwrap(); 16])
}

/// A target with namespace 1, on `cores` cores of its own.
pub fn start(cores: u32) -> RunningTarget {
    start_with(cores, Limits::default())
}

/// The same with these limits.
pub fn start_with(cores: u32, limits: Limits) -> RunningTarget {
    start_serving(cores, limits, namespace(1, 4096))
}

/// The same with another namespace.
pub fn start_serving(cores: u32, limits: Limits, namespace: NamespaceOptions) -> RunningTarget {
    let target = Target::new(limits, cores as usize).unwrap();
    target
        .add_subsystem(SubsystemOptions::open_to_all(NQN))
        .unwrap();
    target.add_namespace(NQN, namespace).unwrap();
    let options = TargetOptions {
        listen: vec![SocketAddr::from(([127, 0, 0, 1], 0)).into()],
        cores: (0..cores).map(CoreId).collect(),
        pin: false,
        ..TargetOptions::default()
    };
    RunningTarget::start(target, &options).unwrap()
}

pub fn driver() -> UringDriver {
    let class = |bytes, count| BufferClass { bytes, count };
    UringDriver::new(&Options {
        buffers: vec![class(4096, 2048), class(128 * 1024, 256), class(MIB, 32)],
        sockets: 64,
        file_operations: 64,
    })
    .unwrap()
}

/// The host must outlive all use of the subsystem.
pub fn connect(running: &RunningTarget) -> (Host, Subsystem) {
    let host = Host::builder().build().unwrap();
    let address = running.addresses[0].to_string();
    let subsystem = host.connect(&address, NQN).unwrap();
    (host, subsystem)
}

pub fn switched(board: &Switchboard, subsystem: &Subsystem, nsid: u32) -> SwitchedNamespace {
    let remote = RemoteNamespace::new(subsystem.association(), nsid).unwrap();
    board.namespace(&remote).unwrap()
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        std::thread::park();
    }
}
