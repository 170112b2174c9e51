//! The world of a session: a network, a target with two subsystems, and its cores.

use super::command::{BLOCK_BYTES, NAMESPACE_BYTES};
use super::{CAPSULE_BYTES, NEIGHBOUR_NQN, NQN};
use base::Nanos;
use base::units::CoreId;
use block::device::Ram;
use reactor::{Core, Driver, PollPolicy, SocketOptions};
use sim::{NetworkFaults, SimDriver, World};
use std::net::SocketAddr;
use std::sync::Arc;
use target::{Limits, NamespaceOptions, PollGroup, SubsystemOptions, Target};

/// A network without delays: all that matters here is the order.
pub(super) fn calm() -> NetworkFaults {
    NetworkFaults {
        delay_max: Nanos::ZERO,
        send_stall_max: Nanos::ZERO,
        ..NetworkFaults::CALM
    }
}

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
        limits.stash_bytes = 8192;
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

pub(super) fn cores(
    world: &World,
    shared: &Arc<Target>,
    count: usize,
) -> (Vec<Core<SimDriver, PollGroup>>, SocketAddr) {
    let mut address = SocketAddr::from(([10, 0, 0, 1], 0));
    let mut cores = Vec::new();
    for (index, number) in (0..).zip(0..count) {
        let mut driver = world.driver();
        let op_namespace = driver.op_namespace();
        shared.stays_on(number, CoreId(index));
        let mut service = shared.poll_group(number, op_namespace);
        if number == 0 {
            let bound = driver.listen(address, &SocketOptions::default());
            let (listener, bound) = bound.expect("a free address");
            service.add_listener(listener);
            address = bound;
        }
        cores.push(Core::new(driver, service, PollPolicy::Never));
    }
    (cores, address)
}

pub(super) fn free_buffers(core: &Core<SimDriver, PollGroup>) -> Vec<usize> {
    core.driver
        .buffers()
        .usage()
        .map(|(_, free, _)| free)
        .collect()
}
