//! The target of a session, with two subsystems.

use super::command::{BLOCK_BYTES, NAMESPACE_BYTES};
use super::{CAPSULE_BYTES, NEIGHBOUR_NQN, NQN};
use block::device::Ram;
use std::sync::Arc;
use target::{Limits, NamespaceOptions, SubsystemOptions, Target};

pub(super) fn target(how: u8, neighbour_host: &str) -> Arc<Target> {
    let mut limits = Limits {
        in_capsule_bytes: CAPSULE_BYTES[0],
        queue_entries: 32,
        io_queues: 4,
        connections: 16,
        fresh_connections: 8,
        ..Limits::default()
    };
    if how & 2 != 0 {
        limits.r2t_bytes = 8192;
        limits.h2c_data_bytes = 4096;
    }
    if how & 4 != 0 {
        limits.send_lists = 16;
    }
    let target = Target::new(limits, 1 + usize::from(how & 1)).expect("legal limits");
    let open = SubsystemOptions::open_to_all(NQN);
    target.add_subsystem(open).expect("a new subsystem");
    let closed = SubsystemOptions {
        allow_any_host: false,
        allowed_hosts: vec![neighbour_host.to_owned()],
        ..SubsystemOptions::open_to_all(NEIGHBOUR_NQN)
    };
    target.add_subsystem(closed).expect("a new subsystem");
    for (nsid, block_bytes) in (1..).zip(BLOCK_BYTES) {
        add_namespace(&target, NQN, nsid, block_bytes);
    }
    add_namespace(&target, NEIGHBOUR_NQN, 1, 4096);
    target
}

fn add_namespace(target: &Target, nqn: &str, nsid: u32, block_bytes: u32) {
    let ram = Ram::new(u64::from(NAMESPACE_BYTES), block_bytes).expect("a small device");
    let options = NamespaceOptions {
        read_only: nsid == 3,
        ..NamespaceOptions::new(nsid, Arc::new(ram), [1; 16])
    };
    target.add_namespace(nqn, options).expect("a new namespace");
}
