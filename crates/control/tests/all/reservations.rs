//! Reservations that persist: the state file, and the next start.

// The whole file is a test program, and a panic is how a test fails.

use crate::common::Scratch;
use base::units::CoreId;
use config::schema::Configuration;
use config::{Format, parse};
use std::net::SocketAddr;
use std::sync::Arc;
use switchyard_control::{Control, Plane, StateFile};
use target::{Limits, ReservationSnapshot, RunningTarget, Target, TargetOptions};
use testing::{Client, Dialect};
use wire::fabrics::ConnectData;
use wire::nvme::reservation::{
    AcquireAction, AcquireData, RegisterAction, RegisterData, ReservationAcquire,
    ReservationRegister, ReservationType,
};
use wire::nvme::{Command, IoOpcode, Status};

const NQN: &str = "nqn.2026-11.com.example:a";

fn configuration(scratch: &Scratch) -> Configuration {
    let path = scratch.0.join("disk");
    let text = format!(
        "[devices.a]\ntype = \"file\"\npath = {path:?}\ncreate = true\nsize = \"1M\"\n\
         [[subsystems]]\nnqn = \"{NQN}\"\nallow_any_host = true\n\
         namespaces = [{{ nsid = 1, device = \"a\" }}]\n"
    );
    parse(&text, Format::Toml).unwrap()
}

/// Starts a target; with `keeps`, it has a state file.
fn start(scratch: &Scratch, keeps: bool) -> (RunningTarget, Arc<Control>) {
    let target = Target::new(Limits::default(), 2).unwrap();
    let plane = Arc::new(Plane::new(Arc::clone(&target), vec![0, 0]));
    let store = keeps.then(|| StateFile::open(&scratch.0.join("state")).unwrap());
    let control = Arc::new(Control::resume(&configuration(scratch), plane, store).unwrap());
    control.offer_persistence(&target);
    let options = TargetOptions {
        listen: vec![SocketAddr::from(([127, 0, 0, 1], 0)).into()],
        cores: vec![CoreId(0), CoreId(0)],
        pin: false,
        ..TargetOptions::default()
    };
    (RunningTarget::start(target, &options).unwrap(), control)
}

/// Returns the admin queue and an I/O queue of the host with this HOSTID (repeated).
fn host(target: &RunningTarget, id: u8) -> (Client, Client) {
    let connect = |cntlid, queue| {
        let mut client = Client::open(target.addresses[0], Dialect::default()).unwrap();
        let name = format!("nqn.2026-11.com.example:host-{id}");
        let data = testing::connect_data(NQN, &name, [id; 16], cntlid);
        let command = testing::connect(queue, 31, 0).encode(0);
        let (status, dword) = execute(&mut client, command, &data.to_bytes());
        assert_eq!(status, Status::SUCCESS);
        (client, u16::try_from(dword).unwrap())
    };
    let (mut admin, cntlid) = connect(ConnectData::CNTLID_DYNAMIC, 0);
    let enabled = execute(&mut admin, testing::enable(), &[]).0;
    assert_eq!(enabled, Status::SUCCESS);
    (admin, connect(cntlid, 1).0)
}

fn execute(client: &mut Client, command: Command, data: &[u8]) -> (Status, u32) {
    let (bytes, _) = client.session.command(command, data);
    client.send(&bytes).unwrap();
    let (completion, _) = client.answer().unwrap();
    (completion.status, completion.dword0())
}

fn register(io: &mut Client, persist: Option<bool>) -> Status {
    let register = ReservationRegister {
        action: RegisterAction::Register,
        ignore_key: true,
        persist,
    };
    let data = RegisterData { current: 0, new: 5 };
    execute(io, register.encode(1, 0), &data.to_bytes()).0
}

fn shown(control: &Control) -> ReservationSnapshot {
    let namespaces = control.snapshot().namespaces;
    namespaces[0].namespace.reservations.clone()
}

#[test]
fn a_persistent_reservation_is_in_force_after_a_restart_before_hosts_connect() {
    let scratch = Scratch::new("reservations");
    let path = scratch.0.join("state");
    let (target, control) = start(&scratch, true);
    let (_admin, mut io) = host(&target, 1);
    let (kind, current) = (ReservationType::ExclusiveAccess, 5);
    assert_eq!(register(&mut io, None), Status::SUCCESS);
    let written = || std::fs::read_to_string(&path).unwrap();
    assert!(written().contains("\"reservations\":[]"), "{}", written());
    assert_eq!(register(&mut io, Some(true)), Status::SUCCESS);
    let action = AcquireAction::Acquire;
    let acquire = ReservationAcquire { action, kind }.encode(1, 0);
    let data = AcquireData {
        current,
        preempted: 0,
    };
    assert_eq!(
        execute(&mut io, acquire, &data.to_bytes()).0,
        Status::SUCCESS
    );
    let before = shown(&control);
    assert_eq!((before.kind, before.persists), (Some(2), true));
    // As by a crash: nothing is written at the end.
    let copy = written();
    target.stop().unwrap();
    drop((io, control));
    std::fs::write(&path, copy).unwrap();

    let (target, control) = start(&scratch, true);
    assert_eq!(shown(&control), before);
    let (_other, mut io) = host(&target, 2);
    let write = testing::blocks(IoOpcode::WRITE, 1, 0, 1);
    let (status, _) = execute(&mut io, write, &[1; 512]);
    assert!(status.is(Status::RESERVATION_CONFLICT), "{status}");
    target.stop().unwrap();
}

#[test]
fn without_a_state_file_nothing_persists() {
    let scratch = Scratch::new("reservations-none");
    let (target, control) = start(&scratch, false);
    let (_admin, mut io) = host(&target, 1);
    let refused = register(&mut io, Some(true));
    assert!(refused.is(Status::INVALID_FIELD), "{refused}");
    assert_eq!(shown(&control), ReservationSnapshot::default());
    assert_eq!(register(&mut io, None), Status::SUCCESS);
    target.stop().unwrap();
}
