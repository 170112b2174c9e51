//! Limits on connections, queue entries and controllers, and the shares of hosts and tenants.

use crate::common;
use crate::common::{Bed, Client, Dialect, HOST, HOST_ID, NQN};
use base::Nanos;
use std::io::Read as _;
use switchyard_target::{Limits, Tenancy, TenantOptions};
use wire::fabrics::ConnectData;
use wire::nvme::{Completion, DISCOVERY_NQN, Nqn, Status};

#[test]
fn a_connection_that_never_connects_is_closed() {
    let bed = |connect_timeout| {
        let limits = Limits {
            connect_timeout,
            ..Limits::default()
        };
        Bed::with(limits, 1)
    };
    let hurried = bed(Nanos::from_millis(50));
    let mut silent = Client::raw(hurried.address());
    assert_eq!(silent.read(&mut [0; 1]).expect("an end, not an error"), 0);
    // Enough time for the two PDUs that initialize a connection, however late this thread is.
    let patient = bed(Nanos::from_secs(5));
    let mut initialized = Client::dial(patient.address(), Dialect::default());
    assert!(initialized.try_receive().is_none());
}

#[test]
fn those_who_connect_and_say_nothing_keep_nobody_out() {
    let limits = Limits {
        fresh_connections: 3,
        ..Limits::default()
    };
    let bed = Bed::with(limits, 1);
    let (_admin, mut io) = bed.host();
    let mut silent: Vec<_> = (0..3).map(|_| Client::raw(bed.address())).collect();
    common::eventually("three connections are open", || {
        bed.handle().snapshot().cores[0].connections == 5
    });
    // Each new connection replaces the one that has been silent for longest.
    let (_second_admin, mut second_io) = bed.host();
    assert_eq!(silent[0].read(&mut [0; 1]).unwrap_or(0), 0, "the oldest");
    assert!(second_io.read(0, 1).0.status.is_success());
    assert!(io.read(0, 1).0.status.is_success());
    let open = silent.split_off(1);
    common::eventually("only the oldest had to go", || {
        bed.handle().snapshot().cores[0].connections == 6
    });
    let core = bed.handle().snapshot().cores[0];
    assert_eq!((core.fresh_closed, core.refused), (1, 1));
    drop(open);
}

/// Regression: silent connections could use up the limit of the target.
#[test]
fn the_silent_never_take_more_than_half_of_all_places() {
    let limits = Limits {
        connections: 16,
        ..Limits::default()
    };
    let bed = Bed::with(limits, 1);
    let silent: Vec<_> = (0..20).map(|_| Client::raw(bed.address())).collect();
    common::eventually("half of the places are left", || {
        let core = bed.handle().snapshot().cores[0];
        core.accepted + core.refused >= 20 && core.connections == 8
    });
    drop(silent);
}

#[test]
fn connections_beyond_the_limit_are_refused_and_others_go_on() {
    for (connections, connections_per_address) in [(3, 99), (99, 3)] {
        let limits = Limits {
            connections,
            connections_per_address,
            ..Limits::default()
        };
        let bed = Bed::with(limits, 1);
        let (_admin, mut io) = bed.host();
        let silent = Client::raw(bed.address());
        let core = || bed.handle().snapshot().cores[0];
        common::eventually("three connections are open", || core().connections == 3);
        let mut fourth = Client::raw(bed.address());
        assert_eq!(fourth.read(&mut [0; 1]).unwrap_or(0), 0);
        let of_address = u64::from(connections > 3);
        common::eventually("it is counted", || {
            (core().refused, core().refused_per_address) == (1, of_address)
        });
        assert!(io.read(0, 1).0.status.is_success());
        drop(silent);
    }
}

#[test]
fn the_limit_of_connections_is_that_of_all_cores_together() {
    let limits = Limits {
        connections: 5,
        ..Limits::default()
    };
    let bed = Bed::with(limits, 2);
    let (_admin, mut queues) = bed.host_named(HOST, 2);
    let mut silent: Vec<_> = (0..2).map(|_| Client::raw(bed.address())).collect();
    let open = || {
        let snapshot = bed.handle().snapshot();
        snapshot
            .cores
            .iter()
            .map(|core| core.connections)
            .collect::<Vec<_>>()
    };
    common::eventually("both cores have connections", || open() == [4, 1]);
    let mut sixth = Client::raw(bed.address());
    assert_eq!(sixth.read(&mut [0; 1]).unwrap_or(0), 0);
    for queue in &mut queues {
        assert!(queue.read(0, 1).0.status.is_success());
    }
    silent.pop();
    common::eventually("there is room again", || open().iter().sum::<u64>() == 4);
    assert!(bed.admin().session.last_cid > 0);
}

/// Sends a Connect of queue `ids.1` to controller `ids.0`, with a 0's based number of entries.
fn connect(
    bed: &Bed,
    (subsystem, host, host_id): (&str, &str, [u8; 16]),
    ids: (u16, u16),
    sq_size: u16,
) -> (Completion, Client) {
    let mut client = Client::dial(bed.address(), Dialect::default());
    let names = [subsystem, host].map(|name| Nqn::new(name).expect("a name"));
    let data = ConnectData::new(host_id, ids.0, &names[0], &names[1]);
    let command = Client::connect_command(ids.1, sq_size, 0);
    (client.connect(&command, &data), client)
}

/// Returns true for a refusal that allows a retry.
fn busy(status: Status) -> bool {
    status.is(Status::CONNECT_CONTROLLER_BUSY) && !status.dnr()
}

/// Regression: a tenant with several addresses or hosts could have all connections of the target.
#[test]
fn a_tenant_leaves_connections_for_others() {
    let limits = Limits {
        connections_per_tenant: 3,
        ..Limits::default()
    };
    let bed = Bed::with(limits, 1);
    let tenancy = Tenancy {
        tenants: vec![TenantOptions {
            name: "greedy".to_owned(),
            hosts: vec![HOST.to_owned()],
            ..TenantOptions::default()
        }],
        ..Tenancy::default()
    };
    bed.handle().set_tenants(&tenancy).expect("a good tenancy");
    let (admin, cntlid) = bed.controller(Dialect::default());
    let queue = |queue| connect(&bed, (NQN, HOST, HOST_ID), (cntlid, queue), 31);
    let mut open: Vec<_> = (1..3).map(&queue).collect();
    assert!(open.iter().all(|(answer, _)| answer.status.is_success()));
    assert!(busy(queue(3).0.status));
    let dynamic = (ConnectData::CNTLID_DYNAMIC, 0);
    assert!(busy(
        connect(&bed, (NQN, HOST, HOST_ID), dynamic, 31).0.status
    ));
    // Other tenants are not affected.
    let (_other, mut neighbour) = bed.host_named("nqn.2026-11.io.example:quiet", 4);
    assert!(neighbour[3].read(0, 1).0.status.is_success());
    open.pop();
    common::eventually("there is room again", || queue(3).0.status.is_success());
    common::eventually("refusals are counted", || {
        let core = bed.handle().snapshot().cores[0];
        core.connects_refused_per_tenant >= 2 && core.controllers_refused == 0
    });
    drop((admin, open));
}

/// Regression: each connection could use the memory of 1,024 commands.
#[test]
fn entries_of_queues_are_limited() {
    let limits = Limits {
        all_queue_entries: 400,
        ..Limits::default()
    };
    let bed = Bed::with(limits, 1);
    let (_admin, cntlid) = bed.controller(Dialect::default());
    let queue = |queue, entries: u16| {
        let ids = (cntlid, queue);
        connect(&bed, (NQN, HOST, HOST_ID), ids, entries - 1)
    };
    let entries = || bed.handle().snapshot().queue_entries;
    assert_eq!(entries(), 32);
    // The address may have 300 of them.
    let (answer, mut first) = queue(1, 200);
    assert!(answer.status.is_success() && first.read(0, 1).0.status.is_success());
    assert!(busy(queue(2, 69).0.status));
    // A refused Connect leaves nothing counted.
    let (answer, _second) = queue(2, 68);
    assert!(answer.status.is_success());
    assert_eq!(entries(), 300);
    let dynamic = (ConnectData::CNTLID_DYNAMIC, 0);
    assert!(busy(
        connect(&bed, (NQN, HOST, HOST_ID), dynamic, 31).0.status
    ));
    assert_eq!(bed.handle().snapshot().controllers.len(), 1);
    drop(first);
    common::eventually("there is room again", || queue(3, 69).0.status.is_success());
    common::eventually("refusals are counted", || {
        bed.handle().snapshot().cores[0].connects_refused_entries >= 2
    });
}

/// Regression: a host with one name took every controller of the target, each with a HOSTID of its
/// own.
#[test]
fn a_host_has_its_share_of_controllers_whatever_its_identifiers_are() {
    let limits = Limits {
        controllers_per_host: 2,
        ..Limits::default()
    };
    let bed = Bed::with(limits, 1);
    let controller = |id| {
        let dynamic = (ConnectData::CNTLID_DYNAMIC, 0);
        connect(&bed, (NQN, HOST, [id; 16]), dynamic, 31)
    };
    let open = [1, 2].map(controller);
    assert!(open.iter().all(|(answer, _)| answer.status.is_success()));
    assert!(busy(controller(3).0.status));
}

/// Regression: a few thousand anonymous Connects held every controller of the target.
#[test]
fn nobody_takes_more_controllers_than_a_share() {
    let connect = |bed: &Bed, subsystem: &str, host: &str| {
        let dynamic = (ConnectData::CNTLID_DYNAMIC, 0);
        let (answer, client) = connect(bed, (subsystem, host, HOST_ID), dynamic, 31);
        (answer.status, client)
    };
    let limits = Limits {
        controllers: 10,
        controllers_per_host: 2,
        controllers_per_address: 6,
        discovery_controllers: 4,
        ..Limits::default()
    };
    let bed = Bed::with(limits, 1);
    let name = |index: usize| format!("nqn.2026-11.io.example:host{index}");
    let mut open = Vec::new();
    // A host has its share, and no more until one of its controllers ends.
    for _ in 0..2 {
        let (status, client) = connect(&bed, NQN, &name(0));
        assert!(status.is_success(), "{status}");
        open.push(client);
    }
    assert!(busy(connect(&bed, NQN, &name(0)).0));
    // Discovery has its own limit, whatever the hosts' names are.
    for index in 1..4 {
        let (status, client) = connect(&bed, DISCOVERY_NQN, &name(index));
        assert!(status.is_success(), "{status}");
        open.push(client);
    }
    assert!(busy(connect(&bed, DISCOVERY_NQN, &name(9)).0));
    // An address has its own limit, too.
    let (status, client) = connect(&bed, NQN, &name(10));
    assert!(status.is_success(), "{status}");
    open.push(client);
    assert!(busy(connect(&bed, NQN, &name(11)).0));
    common::eventually("refusals are counted", || {
        bed.handle().snapshot().cores[0].controllers_refused == 3
    });
    drop(open);
    common::eventually("there is room again", || {
        let (status, _client) = connect(&bed, NQN, &name(0));
        status.is_success()
    });
}
