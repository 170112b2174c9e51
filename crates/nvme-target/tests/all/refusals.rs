//! Invalid input: each kind gets the specified answer, and at most the connection is lost.

use crate::common;
use crate::common::{BLOCK, Bed, Client, Dialect, HOST, HOST_ID, NQN, fabrics, io, pattern};
use base::Nanos;
use switchyard_target::{Limits, SubsystemOptions};
use wire::fabrics::{Connect, ConnectData, InvalidParameter};
use wire::nvme::{Command, Completion, FabricsType, IoOpcode, Nqn, SglDescriptor, Status};
use wire::tcp::{FatalErrorStatus, H2cData, PduHeader};

#[test]
fn hosts_that_do_not_close_after_the_last_word_are_counted() {
    let limits = Limits {
        linger: Nanos::from_millis(10),
        ..Limits::default()
    };
    let bed = Bed::with(limits, 1);
    let mut stays = Client::dial(bed.address(), Dialect::default());
    stays.send(&[0xff; 8]);
    stays.terminated();
    common::eventually("it has lingered for too long", || {
        bed.handle().snapshot().cores[0].linger_timeouts == 1
    });
    assert!(stays.try_receive().is_none());
}

/// Regression: a waiting command requested its data after the C2HTermReq of its connection.
#[test]
fn nothing_follows_a_termination_request() {
    let limits = Limits {
        linger: Nanos::from_secs(2),
        pause_patience: Nanos::from_secs(60),
        ..Limits::default()
    };
    let bed = Bed::with(limits, 1);
    let (_admin, mut queues) = bed.host_named(HOST, 2);
    let data = pattern(1, 16 * BLOCK);
    let mut write = io(IoOpcode::WRITE, 0, 16);
    write.set_sgl(SglDescriptor::transport(16 * BLOCK as u32));
    write.set_cid(1);
    queues[0].capsule(&write, &[]);
    let r2t = queues[0].r2t();
    queues[0].session.last_cid = 2;
    std::thread::scope(|scope| {
        // The change waits for the data; the namespace is paused until then.
        let resize = scope.spawn(|| bed.handle().resize_namespace(NQN, 1, 8192));
        common::eventually("a read waits for the namespace", || {
            let mut read = io(IoOpcode::READ, 40, 1);
            read.set_cid(queues[0].cid());
            read.set_sgl(SglDescriptor::transport(BLOCK as u32));
            queues[0].capsule(&read, &[]);
            bed.handle().snapshot().cores[0].pause_waits > 0
        });
        queues[1].capsule(&write, &[]);
        let stray = H2cData {
            command_id: 1,
            transfer_tag: 99,
            data_offset: 0,
            data_length: 4,
            last: true,
        };
        let bytes = queues[1].session.h2c_data(&stray, &[0; 4]);
        queues[1].send(&bytes);
        assert!(matches!(
            queues[1].receive().header,
            PduHeader::C2hTermReq(_)
        ));
        queues[0].answer_r2t(&r2t, &data);
        let resized = resize.join().expect("no panic");
        resized.expect("the namespace is resized");
    });
    let after = queues[1].try_receive();
    assert!(after.is_none(), "{after:?}");
}

#[test]
fn more_commands_than_the_queue_has_end_the_connection() {
    let bed = Bed::new();
    let mut admin = Client::dial(bed.address(), Dialect::default());
    let cntlid = admin.connect_admin(NQN, 0);
    admin.enable();
    let mut client = Client::dial(bed.address(), Dialect::default());
    client.connect_io(NQN, cntlid, 1, 3);
    for cid in 0..5 {
        let mut command = io(IoOpcode::WRITE, 0, 16);
        command.set_cid(cid);
        command.set_sgl(SglDescriptor::transport(16 * BLOCK as u32));
        client.capsule(&command, &[]);
    }
    for _ in 0..4 {
        client.r2t();
    }
    let (request, _) = client.terminated();
    assert_eq!(request.status, FatalErrorStatus::PDU_SEQUENCE_ERROR);
}

#[test]
fn a_command_identifier_in_use_is_refused() {
    let bed = Bed::new();
    let (_admin, mut client) = bed.host();
    let mut command = io(IoOpcode::WRITE, 0, 16);
    command.set_cid(5);
    command.set_sgl(SglDescriptor::transport(16 * BLOCK as u32));
    client.capsule(&command, &[]);
    let r2t = client.r2t();
    let mut second = io(IoOpcode::READ, 0, 1);
    second.set_cid(5);
    second.set_sgl(SglDescriptor::transport(BLOCK as u32));
    client.capsule(&second, &[]);
    assert!(client.completion().status.is(Status::COMMAND_ID_CONFLICT));
    client.answer_r2t(&r2t, &pattern(3, 16 * BLOCK));
    assert!(client.completion().status.is_success());
}

fn refused_connect(bed: &Bed, connect: &Connect, data: &ConnectData) -> Completion {
    let mut client = Client::dial(bed.address(), Dialect::default());
    let completion = client.connect(connect, data);
    assert!(!completion.status.is_success(), "{connect:?} {data:?}");
    completion
}

#[test]
fn connect_names_the_parameter_that_is_wrong() {
    let bed = Bed::new();
    let mut closed = SubsystemOptions::open_to_all("nqn.2026-11.io.example:closed");
    closed.allow_any_host = false;
    bed.handle().add_subsystem(closed).expect("a new subsystem");
    let mut admin = Client::dial(bed.address(), Dialect::default());
    let cntlid = admin.connect_admin(NQN, 0);
    let dynamic = ConnectData::CNTLID_DYNAMIC;
    let queue = Client::connect_command;
    let good = Client::connect_data(NQN, dynamic);
    let parameters = Status::CONNECT_INVALID_PARAMETERS;
    let unknown = Client::connect_data("nqn.2026-11.io.example:unknown", dynamic);
    let in_data = |offset| InvalidParameter::in_data(offset).to_dword();
    let in_command = |offset| InvalidParameter::in_command(offset).to_dword();
    let not_allowed = Client::connect_data("nqn.2026-11.io.example:closed", dynamic);
    // An empty name is valid where any host is served (interoperate.rs); this field is not a name
    // at all.
    let mut no_host = good;
    no_host.hostnqn_field = [0xff; 256];
    let mut no_id = good;
    no_id.host_id = [0; 16];
    let mut format = queue(0, 31, 0);
    format.record_format = 1;
    let mut cases = vec![
        (
            queue(0, 31, 0),
            unknown,
            parameters,
            in_data(ConnectData::SUBNQN_OFFSET),
        ),
        (
            queue(0, 31, 0),
            not_allowed,
            Status::CONNECT_INVALID_HOST,
            0,
        ),
        (
            queue(0, 31, 0),
            no_host,
            parameters,
            in_data(ConnectData::HOSTNQN_OFFSET),
        ),
        (
            queue(0, 31, 0),
            no_id,
            parameters,
            in_data(ConnectData::HOSTID_OFFSET),
        ),
        (
            queue(0, 0, 0),
            good,
            parameters,
            in_command(Connect::SQSIZE_OFFSET),
        ),
        (
            queue(0, 1024, 0),
            good,
            parameters,
            in_command(Connect::SQSIZE_OFFSET),
        ),
        (format, good, Status::CONNECT_INCOMPATIBLE_FORMAT, 0),
        (
            queue(0, 31, 0),
            Client::connect_data(NQN, 5),
            parameters,
            in_data(ConnectData::CNTLID_OFFSET),
        ),
    ];
    let joining = Client::connect_data(NQN, cntlid);
    // The controller is not enabled yet.
    cases.push((queue(1, 127, 0), joining, Status::COMMAND_SEQUENCE_ERROR, 0));
    for (connect, data, status, result) in cases {
        let completion = refused_connect(&bed, &connect, &data);
        assert!(
            completion.status.is(status),
            "{connect:?}: {}",
            completion.status
        );
        assert_eq!(completion.dword0(), result, "{connect:?}");
    }
    admin.enable();
    let mut first = Client::dial(bed.address(), Dialect::default());
    first.connect_io(NQN, cntlid, 1, 127);
    let mut other_host = joining;
    other_host.hostnqn_field = Nqn::new("nqn.2026-11.io.example:b")
        .expect("a name")
        .to_field();
    let other_subsystem = Client::connect_data("nqn.2026-11.io.example:closed", cntlid);
    let gone = Client::connect_data(NQN, 4711);
    for (connect, data, result) in [
        (queue(129, 127, 0), joining, in_command(Connect::QID_OFFSET)),
        (queue(2, 0, 0), joining, in_command(Connect::SQSIZE_OFFSET)),
        (
            queue(2, 1024, 0),
            joining,
            in_command(Connect::SQSIZE_OFFSET),
        ),
        (
            queue(2, 127, 0),
            other_host,
            in_data(ConnectData::HOSTNQN_OFFSET),
        ),
        (
            queue(2, 127, 0),
            other_subsystem,
            in_data(ConnectData::SUBNQN_OFFSET),
        ),
        (queue(2, 127, 0), gone, in_data(ConnectData::CNTLID_OFFSET)),
    ] {
        let completion = refused_connect(&bed, &connect, &data);
        assert!(
            completion.status.is(parameters),
            "{connect:?}: {}",
            completion.status
        );
        assert_eq!(completion.dword0(), result, "{connect:?}");
    }
    // The host identifier of the admin queue applies: some hosts send another one, or none, for I/O
    // queues.
    for (id, host_id) in [(2, [8; 16]), (3, [0; 16])] {
        let mut other_id = joining;
        other_id.host_id = host_id;
        let mut other = Client::dial(bed.address(), Dialect::default());
        let completion = other.connect(&queue(id, 127, 0), &other_id);
        assert!(completion.status.is_success(), "{}", completion.status);
    }
    let shown = bed.handle().snapshot().controllers;
    let hex: String = HOST_ID.iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(shown.iter().all(|controller| controller.host_id == hex));
    // Its connection may have closed without the target having noticed, so the host may retry.
    let taken = refused_connect(&bed, &queue(1, 127, 0), &joining).status;
    assert!(
        taken.is(Status::COMMAND_SEQUENCE_ERROR) && !taken.dnr(),
        "{taken}"
    );
}

#[test]
fn commands_out_of_turn_are_refused() {
    let bed = Bed::new();
    let mut client = Client::dial(bed.address(), Dialect::default());
    let early = client.execute(fabrics(FabricsType::PROPERTY_GET), &[]);
    assert!(
        early.status.is(Status::COMMAND_SEQUENCE_ERROR),
        "{}",
        early.status
    );
    client.connect_admin(NQN, 0);
    let identify = Command::new(0x06, 0);
    let (early, _) = client.fetch(identify, 4096);
    assert!(
        early.status.is(Status::COMMAND_SEQUENCE_ERROR),
        "{}",
        early.status
    );
}
