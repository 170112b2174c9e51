//! Fields that other hosts omit, and features that a target must not offer.

use crate::common;
use crate::common::{Bed, Client, Dialect, HOST, NQN, io_on};
use block::device::Ram;
use std::sync::Arc;
use switchyard_target::{AccessGrant, Limits, Others, SubsystemOptions, Target, Tenancy};
use switchyard_target::{TenantGrant, TenantOptions};
use wire::fabrics::property::Configuration;
use wire::fabrics::{ConnectData, InvalidParameter};
use wire::fabrics::{Property, PropertyGet, PropertySet, PropertySize};
use wire::nvme::feature::{FeatureId, FeatureSelect};
use wire::nvme::identify::Cns;
use wire::nvme::log_page::{ErrorEntry, LogPageId, SmartLog};
use wire::nvme::{Abort, AdminCommand, Command, GetFeatures, GetLogPage, Identify};
use wire::nvme::{IdentifyController, IoOpcode, SetFeatures, SglDescriptor, Status};

/// Sends a command with an all-zero SGL descriptor. Returns its status.
fn without_descriptor(client: &mut Client, mut command: Command) -> Status {
    let zero = SglDescriptor::from_bytes([0; 16]);
    assert!(zero.is_zero());
    command.set_sgl(zero);
    client.execute(command, &[]).status
}

/// Some hosts leave the descriptor of commands without data all zero.
#[test]
fn a_command_without_data_needs_no_descriptor() {
    let bed = Bed::new();
    let mut admin = Client::dial(bed.address(), Dialect::default());
    admin.connect_admin(NQN, 0);
    let get = PropertyGet {
        size: PropertySize::Four,
        property: Property::CSTS,
    };
    let set = PropertySet::configure(Configuration::ENABLE);
    let feature = SetFeatures::new(FeatureId::NUMBER_OF_QUEUES, 0x0003_0003);
    let back = GetFeatures {
        nsid: 0,
        feature: FeatureId::NUMBER_OF_QUEUES,
        select: FeatureSelect::CURRENT,
        dword11: 0,
        uuid_index: 0,
    };
    let abort = Abort { sq_id: 0, cid: 999 };
    for (what, command) in [
        ("Property Set", set.encode(0)),
        ("Property Get", get.encode(0)),
        ("Set Features", feature.encode(0)),
        ("Get Features", back.encode(0)),
        ("Keep Alive", AdminCommand::KeepAlive.encode(0)),
        ("Abort", abort.encode(0)),
    ] {
        let status = without_descriptor(&mut admin, command);
        assert!(status.is_success(), "{what}: {status}");
    }
    // A command that transfers data needs a location for it.
    let identify = Identify::new(Cns::CONTROLLER, 0).encode(0);
    let status = without_descriptor(&mut admin, identify);
    assert!(!status.is_success(), "Identify moved its data nowhere");
}

/// Returns a Connect's data with an empty HOSTNQN.
fn nameless(cntlid: u16) -> ConnectData {
    let mut bytes = Client::connect_data(NQN, cntlid).to_bytes();
    let at = usize::from(ConnectData::HOSTNQN_OFFSET);
    bytes[at..at + 256].fill(0);
    ConnectData::parse(&bytes)
}

#[test]
fn a_host_without_a_name_is_served_where_any_host_is() {
    let bed = Bed::new();
    let mut admin = Client::dial(bed.address(), Dialect::default());
    let command = Client::connect_command(0, 31, 0);
    let completion = admin.connect(&command, &nameless(ConnectData::CNTLID_DYNAMIC));
    assert!(completion.status.is_success(), "{}", completion.status);
    let cntlid = completion.dword0() as u16;
    admin.enable();
    let mut queue = Client::dial(bed.address(), Dialect::default());
    let command = Client::connect_command(1, 31, 0);
    let completion = queue.connect(&command, &nameless(cntlid));
    assert!(completion.status.is_success(), "{}", completion.status);
    assert!(queue.read(0, 1).0.status.is_success());
    // The queue of a host with a name does not belong to this controller.
    let mut other = Client::dial(bed.address(), Dialect::default());
    let command = Client::connect_command(2, 31, 0);
    let completion = other.connect(&command, &Client::connect_data(NQN, cntlid));
    assert!(completion.status.is(Status::CONNECT_INVALID_PARAMETERS));
    assert_eq!(
        completion.dword0(),
        InvalidParameter::in_data(ConnectData::HOSTNQN_OFFSET).to_dword()
    );
}

#[test]
fn a_host_without_a_name_is_refused_where_hosts_are_named() {
    let target = Target::new(Limits::default(), 1).expect("valid limits");
    let options = SubsystemOptions {
        allow_any_host: false,
        allowed_hosts: vec![HOST.to_owned()],
        ..SubsystemOptions::open_to_all(NQN)
    };
    target.add_subsystem(options).expect("a new subsystem");
    let running = common::run(target, 1);
    let mut admin = Client::dial(running.addresses[0], Dialect::default());
    let command = Client::connect_command(0, 31, 0);
    let completion = admin.connect(&command, &nameless(ConnectData::CNTLID_DYNAMIC));
    let status = completion.status;
    assert!(status.is(Status::CONNECT_INVALID_HOST), "{status}");
}

fn page(admin: &mut Client, cns: Cns, nsid: u32) -> Vec<u8> {
    let (completion, data) = admin.fetch(Identify::new(cns, nsid).encode(0), 4096);
    let status = completion.status;
    assert!(status.is_success(), "{cns}: {status}");
    data
}

/// Starts a target with two namespaces, of which the host's tenant may access the first.
fn shared_bed() -> Bed {
    let bed = Bed::new();
    let device = Arc::new(Ram::new(1 << 20, 512).expect("a small device"));
    let second = common::namespace(2, device);
    let target = bed.handle();
    target.add_namespace(NQN, second).expect("a new namespace");
    let grant = AccessGrant {
        namespace: Some(1),
        range: None,
        read: true,
        write: true,
    };
    let tenant = TenantOptions {
        name: "first".to_owned(),
        hosts: vec![HOST.to_owned()],
        grants: Some(vec![TenantGrant {
            subsystem: None,
            grant,
        }]),
        ..TenantOptions::default()
    };
    let tenancy = Tenancy {
        tenants: vec![tenant],
        others: Others::Serve,
    };
    target.set_tenants(&tenancy).expect("a good tenancy");
    bed
}

#[test]
fn a_tenant_does_not_learn_of_namespaces_that_it_may_not_touch() {
    let bed = shared_bed();
    let (mut admin, mut queue) = bed.host();
    let list = page(&mut admin, Cns::ACTIVE_NAMESPACES, 0);
    assert_eq!(list[..8], [1, 0, 0, 0, 0, 0, 0, 0]);
    let hidden = page(&mut admin, Cns::NAMESPACE, 2);
    assert!(
        hidden.iter().all(|&byte| byte == 0),
        "as one that is not active"
    );
    // I/O of other hosts to the hidden namespace is not in its totals, either.
    let stranger = "nqn.2026-11.io.example:stranger";
    let (mut other, mut queues) = bed.host_named(stranger, 1);
    let write = io_on(2, IoOpcode::WRITE, 0, 8);
    let completion = queues[0].execute(write, &[7; 4096]);
    assert!(completion.status.is_success(), "{}", completion.status);
    let refused = queue.execute(io_on(2, IoOpcode::WRITE, 0, 8), &[7; 4096]);
    assert!(refused.status.is(Status::ACCESS_DENIED));
    let smart = |admin: &mut Client| {
        let log = GetLogPage::new(LogPageId::SMART, 0, 0, 512).encode(0);
        let (completion, data) = admin.fetch(log, 512);
        assert!(completion.status.is_success());
        SmartLog::parse(&data.try_into().expect("512 bytes")).host_writes
    };
    common::eventually("the write is counted", || smart(&mut other) == 1);
    assert_eq!(smart(&mut admin), 0);
    // With access, the host sees it.
    let everybody = Tenancy {
        tenants: Vec::new(),
        others: Others::Serve,
    };
    bed.handle()
        .set_tenants(&everybody)
        .expect("a good tenancy");
    assert_eq!(page(&mut admin, Cns::ACTIVE_NAMESPACES, 0)[4], 2);
    assert_eq!(smart(&mut admin), 1);
}

#[test]
fn a_discovery_controller_offers_the_log_pages_that_it_has() {
    let bed = Bed::new();
    let mut discovery = Client::discovery(bed.address(), 0);
    let data = page(&mut discovery, Cns::CONTROLLER, 0);
    let lpa = |data: Vec<u8>| {
        IdentifyController::parse(&data.try_into().expect("4096 bytes")).lpa
            & IdentifyController::LPA_EFFECTS
    };
    assert_eq!(lpa(data), 0);
    let effects = GetLogPage::new(LogPageId::EFFECTS, 0, 0, 4096).encode(0);
    assert!(!discovery.fetch(effects, 4096).0.status.is_success());
    let mut admin = bed.admin();
    assert_ne!(lpa(page(&mut admin, Cns::CONTROLLER, 0)), 0);
    assert!(admin.fetch(effects, 4096).0.status.is_success());
}

#[test]
fn an_error_that_is_not_of_the_transport_names_none() {
    let bed = Bed::new();
    let (mut admin, mut queue) = bed.host();
    let beyond = queue.read(u64::MAX - 8, 1).0.status;
    assert!(beyond.is(Status::LBA_OUT_OF_RANGE), "{beyond}");
    let log = GetLogPage::new(LogPageId::ERROR, 0, 0, 64).encode(0);
    let (completion, data) = admin.fetch(log, 64);
    assert!(completion.status.is_success());
    let entry = ErrorEntry::parse(&data.try_into().expect("64 bytes"));
    assert!(entry.error_count > 0, "the error is in the log");
    assert_eq!(entry.trtype, 0);
}

/// Other targets accept any name, and scripts of their users depend on that.
#[test]
fn a_subsystem_may_have_any_name_without_white_space() {
    let target = Target::new(Limits::default(), 1).expect("valid limits");
    let name = "blktests-subsystem-1";
    target
        .add_subsystem(SubsystemOptions::open_to_all(name))
        .expect("a name like another");
    for bad in ["", "two words", "tab\tbed"] {
        let options = SubsystemOptions::open_to_all(bad);
        assert!(target.add_subsystem(options).is_err(), "{bad:?}");
    }
    let running = common::run(target, 1);
    let mut data = Client::connect_data(NQN, ConnectData::CNTLID_DYNAMIC).to_bytes();
    let at = usize::from(ConnectData::SUBNQN_OFFSET);
    data[at..at + 256].fill(0);
    data[at..at + name.len()].copy_from_slice(name.as_bytes());
    let mut admin = Client::dial(running.addresses[0], Dialect::default());
    let connect = Client::connect_command(0, 31, 0).encode(0);
    let completion = admin.execute(connect, &data);
    assert!(completion.status.is_success(), "{}", completion.status);
    admin.enable();
    let data = page(&mut admin, Cns::CONTROLLER, 0);
    let identify = IdentifyController::parse(&data.try_into().expect("4096 bytes"));
    assert!(identify.subnqn.starts_with(name.as_bytes()));
}
