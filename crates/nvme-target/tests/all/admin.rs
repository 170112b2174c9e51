//! Admin queue: identification, features, log pages and events, as a host sees them.

use crate::common;
use crate::common::{BLOCK, Bed, Client, Dialect, HOST_ID, NQN, io, pattern};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};
use switchyard_target::{Limits, Listener, NamespaceOptions, Referral, SubsystemOptions, TlsMode};
use wire::fabrics::property::{Capabilities, Configuration, ControllerStatus};
use wire::fabrics::{DiscoveryLogEntry, DiscoveryLogHeader, Property};
use wire::nvme::feature::{AsyncEventConfiguration, FeatureId, FeatureSelect, NumberOfQueues};
use wire::nvme::identify::Cns;
use wire::nvme::identify_lists::{
    NamespaceId, parse_command_sets, parse_controller_list, parse_namespace_descriptors,
    parse_namespace_list,
};
use wire::nvme::log_page::{ErrorEntry, LogPageId, SmartLog, SupportedFeatures};
use wire::nvme::vendor::{EndController, Extensions};
use wire::nvme::{
    Abort, AdminCommand, AsyncEvent, Completion, FabricsType, GetFeatures, GetLogPage, Identify,
    IdentifyController, IdentifyNamespace, IoOpcode, SetFeatures, SglDescriptor, Status,
};

fn identify(admin: &mut Client, identify: Identify) -> (Completion, Vec<u8>) {
    admin.fetch(identify.encode(0), 4096)
}

fn page(admin: &mut Client, cns: Cns, nsid: u32) -> [u8; 4096] {
    let (completion, data) = identify(admin, Identify::new(cns, nsid));
    assert!(
        completion.status.is_success(),
        "{cns}: {}",
        completion.status
    );
    data.try_into().expect("4096 bytes")
}

fn log(admin: &mut Client, id: LogPageId, bytes: u32) -> Vec<u8> {
    let (completion, data) =
        admin.fetch(GetLogPage::new(id, 0, 0, bytes).encode(0), bytes as usize);
    assert!(
        completion.status.is_success(),
        "{id}: {}",
        completion.status
    );
    data
}

fn set(admin: &mut Client, feature: FeatureId, value: u32) -> Completion {
    admin.execute(SetFeatures::new(feature, value).encode(0), &[])
}

fn get(admin: &mut Client, feature: FeatureId, select: FeatureSelect) -> Completion {
    let get = GetFeatures {
        nsid: 0,
        feature,
        select,
        dword11: 0,
        uuid_index: 0,
    };
    admin.execute(get.encode(0), &[])
}

/// Sends an Asynchronous Event Request, which is answered later.
fn request_event(admin: &mut Client) -> u16 {
    let cid = admin.cid();
    let command = AdminCommand::AsyncEventRequest.encode(cid);
    admin.capsule(&command, &[]);
    cid
}

#[test]
fn identify_says_what_there_is() {
    let bed = Bed::new();
    let mut admin = bed.admin();
    let controller = IdentifyController::parse(&page(&mut admin, Cns::CONTROLLER, 0));
    assert_eq!(controller.in_capsule_data_bytes(), 16 * 1024);
    assert_eq!(controller.max_transfer_bytes(4096), Some(1 << 20));
    assert_eq!(controller.maxcmd, 1024);
    assert_ne!(controller.kas, 0);
    assert_eq!(wire::text::field_text(&controller.subnqn), NQN);
    let namespace = IdentifyNamespace::parse(&page(&mut admin, Cns::NAMESPACE, 1));
    assert_eq!(
        (namespace.nsze, namespace.block_bytes()),
        (4096, Some(4096))
    );
    let active = page(&mut admin, Cns::ACTIVE_NAMESPACES, 0);
    assert_eq!(parse_namespace_list(&active).collect::<Vec<_>>(), [1]);
    let above = page(&mut admin, Cns::ACTIVE_NAMESPACES, 1);
    assert_eq!(parse_namespace_list(&above).count(), 0);
    let ids = page(&mut admin, Cns::NAMESPACE_DESCRIPTORS, 1);
    assert!(parse_namespace_descriptors(&ids).any(|id| id == NamespaceId::Uuid([1; 16])));
    assert!(
        page(&mut admin, Cns::NAMESPACE, 2)
            .iter()
            .all(|&byte| byte == 0)
    );
    page(&mut admin, Cns::COMMAND_SET_NAMESPACE, 1);
    page(&mut admin, Cns::COMMAND_SET_CONTROLLER, 0);
    page(&mut admin, Cns::INDEPENDENT_NAMESPACE, 1);
    let sets = page(&mut admin, Cns::COMMAND_SETS, 0);
    assert_eq!(parse_command_sets(&sets).collect::<Vec<_>>(), [1]);
    let controllers = page(&mut admin, Cns::CONTROLLERS, 0);
    assert_eq!(
        parse_controller_list(&controllers).collect::<Vec<_>>(),
        [controller.cntlid]
    );
    let nobody = Identify::new(Cns::NAMESPACE_DESCRIPTORS, 2);
    let status = identify(&mut admin, nobody).0.status;
    assert!(status.is(Status::INVALID_NAMESPACE), "{status}");
}

#[test]
fn properties_follow_the_controller_through_its_life() {
    let bed = Bed::new();
    let mut admin = Client::dial(bed.address(), Dialect::default());
    let cntlid = admin.connect_admin(NQN, 0);
    let capabilities = Capabilities::from_bits(admin.property(Property::CAP));
    assert_eq!(capabilities.max_queue_entries, 1023);
    assert_eq!(admin.property(Property::VS), 0x2_0000);
    assert_eq!(admin.property(Property::CSTS), 0);
    admin.enable();
    assert_eq!(admin.property(Property::CSTS), 1);
    assert_eq!(
        admin.property(Property::CC),
        u64::from(Configuration::ENABLE.0)
    );
    let mut queue = Client::dial(bed.address(), Dialect::default());
    queue.connect_io(NQN, cntlid, 1, 127);
    admin.disable();
    assert!(queue.try_receive().is_none(), "a reset ends the I/O queues");
    assert_eq!(admin.property(Property::CSTS), 0);
    admin.enable();
    let mut queue = Client::dial(bed.address(), Dialect::default());
    queue.connect_io(NQN, cntlid, 1, 127);
    assert!(queue.read(0, 1).0.status.is_success());
    let off = Configuration::ENABLE.with_shutdown(1);
    assert!(admin.configure(off).status.is_success());
    common::eventually("the shutdown is complete", || {
        let status = ControllerStatus(admin.property(Property::CSTS) as u32);
        status.shutdown() == 2
    });
}

#[test]
fn features_are_set_read_and_refused() {
    let bed = Bed::new();
    let mut admin = bed.admin();
    let asked = NumberOfQueues::of(200).to_dword();
    let granted = set(&mut admin, FeatureId::NUMBER_OF_QUEUES, asked);
    assert_eq!(NumberOfQueues::from_dword(granted.dword0()).pairs(), 128);
    let few = set(
        &mut admin,
        FeatureId::NUMBER_OF_QUEUES,
        NumberOfQueues::of(3).to_dword(),
    );
    assert_eq!(NumberOfQueues::from_dword(few.dword0()).pairs(), 3);
    let current = get(
        &mut admin,
        FeatureId::NUMBER_OF_QUEUES,
        FeatureSelect::CURRENT,
    );
    assert_eq!(NumberOfQueues::from_dword(current.dword0()).pairs(), 3);
    let all = set(&mut admin, FeatureId::NUMBER_OF_QUEUES, 0xffff_ffff);
    assert!(all.status.is(Status::INVALID_FIELD));
    assert!(
        set(&mut admin, FeatureId::KEEP_ALIVE_TIMER, 60_001)
            .status
            .is_success()
    );
    let kato = get(
        &mut admin,
        FeatureId::KEEP_ALIVE_TIMER,
        FeatureSelect::CURRENT,
    );
    assert_eq!(kato.dword0(), 60_100, "rounded up to the granularity");
    assert!(
        set(&mut admin, FeatureId::ARBITRATION, 7)
            .status
            .is_success()
    );
    let default = get(&mut admin, FeatureId::ARBITRATION, FeatureSelect::DEFAULT);
    assert_eq!(default.dword0(), 0);
    let current = get(&mut admin, FeatureId::ARBITRATION, FeatureSelect::CURRENT);
    assert_eq!(current.dword0(), 7);
    let supported = get(
        &mut admin,
        FeatureId::ARBITRATION,
        FeatureSelect::CAPABILITIES,
    );
    assert_eq!(supported.dword0(), 0b100);
    let vwc = get(
        &mut admin,
        FeatureId::VOLATILE_WRITE_CACHE,
        FeatureSelect::CURRENT,
    );
    assert!(
        vwc.status.is(Status::INVALID_FIELD),
        "RAM has no volatile write cache"
    );
    assert!(
        set(&mut admin, FeatureId(0x7f), 0)
            .status
            .is(Status::INVALID_FIELD)
    );
    let feature = FeatureId::HOST_IDENTIFIER;
    let select = FeatureSelect::CURRENT;
    let host = GetFeatures {
        nsid: 0,
        feature,
        select,
        dword11: 1,
        uuid_index: 0,
    };
    let (completion, data) = admin.fetch(host.encode(0), 16);
    assert!(completion.status.is_success());
    assert_eq!(data, HOST_ID);
}

/// Regression: Number of Queues was accepted again once no queue was connected any more.
#[test]
fn the_number_of_queues_stays_from_the_first_queue_to_a_reset() {
    let bed = Bed::new();
    let (mut admin, cntlid) = bed.controller(Dialect::default());
    let asked = NumberOfQueues::of(3).to_dword();
    assert!(
        set(&mut admin, FeatureId::NUMBER_OF_QUEUES, asked)
            .status
            .is_success()
    );
    let mut queue = Client::dial(bed.address(), Dialect::default());
    queue.connect_io(NQN, cntlid, 1, 127);
    let disconnect = common::fabrics(FabricsType::DISCONNECT);
    assert!(queue.execute(disconnect, &[]).status.is_success());
    let late = set(&mut admin, FeatureId::NUMBER_OF_QUEUES, asked).status;
    assert!(late.is(Status::COMMAND_SEQUENCE_ERROR), "{late}");
    for configuration in [Configuration(0), Configuration::ENABLE] {
        assert!(admin.configure(configuration).status.is_success());
    }
    assert!(
        set(&mut admin, FeatureId::NUMBER_OF_QUEUES, asked)
            .status
            .is_success()
    );
}

/// Regression: Error Recovery had one value for all namespaces.
#[test]
fn error_recovery_is_a_namespaces_own() {
    let bed = Bed::new();
    let second = common::namespace(2, Arc::clone(&bed.ram) as Arc<dyn block::Device>);
    bed.handle()
        .add_namespace(NQN, second)
        .expect("a new namespace");
    let mut admin = bed.admin();
    let set = |admin: &mut Client, nsid, value| {
        let set = SetFeatures {
            nsid,
            ..SetFeatures::new(FeatureId::ERROR_RECOVERY, value)
        };
        admin.execute(set.encode(0), &[]).status
    };
    let get = |admin: &mut Client, nsid, select| {
        let get = GetFeatures {
            nsid,
            feature: FeatureId::ERROR_RECOVERY,
            select,
            dword11: 0,
            uuid_index: 0,
        };
        admin.execute(get.encode(0), &[])
    };
    let values =
        |admin: &mut Client| [1, 2].map(|nsid| get(admin, nsid, FeatureSelect::CURRENT).dword0());
    assert!(set(&mut admin, 2, 7).is_success());
    assert_eq!(values(&mut admin), [0, 7]);
    assert!(set(&mut admin, u32::MAX, 9).is_success());
    assert_eq!(values(&mut admin), [9, 9]);
    assert_eq!(get(&mut admin, 2, FeatureSelect::DEFAULT).dword0(), 0);
    let capabilities = get(&mut admin, 0, FeatureSelect::CAPABILITIES);
    assert_eq!(capabilities.dword0(), 0b110);
    for nsid in [0, 3] {
        let status = set(&mut admin, nsid, 1);
        assert!(status.is(Status::INVALID_NAMESPACE), "{status}");
    }
    for nsid in [0, 3, u32::MAX] {
        let status = get(&mut admin, nsid, FeatureSelect::CURRENT).status;
        assert!(status.is(Status::INVALID_NAMESPACE), "{status}");
    }
}

/// CAP.CSS of a discovery controller announces one command set.
#[test]
fn a_controller_starts_with_the_command_sets_that_it_has() {
    let bed = Bed::new();
    let all = Configuration(Configuration::ENABLE.0 | 0b110 << 4);
    for (nqn, starts) in [(NQN, true), (wire::nvme::DISCOVERY_NQN, false)] {
        let mut admin = Client::dial(bed.address(), Dialect::default());
        admin.connect_admin(nqn, 0);
        assert_eq!(admin.configure(all).status.is_success(), starts, "{nqn}");
    }
}

#[test]
fn log_pages_have_real_content() {
    let bed = Bed::new();
    let (mut admin, mut client) = bed.host();
    for _ in 0..3 {
        assert!(client.write(0, &pattern(1, BLOCK)).status.is_success());
        assert!(client.read(0, 1).0.status.is_success());
    }
    let mut beyond = io(IoOpcode::READ, 1 << 40, 1);
    beyond.set_sgl(SglDescriptor::transport(BLOCK as u32));
    let completion = client.execute(beyond, &[]);
    let errors = log(&mut admin, LogPageId::ERROR, 64);
    let entry = ErrorEntry::parse_prefix(&errors).expect("an entry");
    assert_eq!(
        (entry.error_count, entry.sq_id, entry.cid),
        (1, 1, completion.cid)
    );
    assert_eq!(
        entry.status_field >> 1,
        Status::LBA_OUT_OF_RANGE.with_dnr().0
    );
    common::eventually("the counters are published", || {
        let data = log(&mut admin, LogPageId::SMART, 512);
        let smart = SmartLog::parse_prefix(&data).expect("512 bytes");
        smart.host_reads == 3 && smart.host_writes == 3 && smart.error_entries >= 1
    });
    log(&mut admin, LogPageId::FIRMWARE_SLOT, 512);
    log(&mut admin, LogPageId::EFFECTS, 4096);
    let page = log(&mut admin, LogPageId::FEATURE_EFFECTS, 1024);
    let supported = SupportedFeatures::parse_prefix(&page).expect("1024 bytes");
    for id in 0..=u8::MAX {
        let feature = FeatureId(id);
        let asked = get(&mut admin, feature, FeatureSelect::CAPABILITIES);
        let announced = supported.features[usize::from(id)] & SupportedFeatures::SUPPORTED > 0;
        assert_eq!(announced, asked.status.is_success(), "{feature}");
    }
}

#[test]
fn a_command_that_waits_can_be_aborted_and_others_cannot() {
    for cores in [1, 2] {
        let bed = Bed::with(Limits::default(), cores);
        let (mut admin, mut client) = bed.host();
        let event = request_event(&mut admin);
        let cid = admin.cid();
        let own = AdminCommand::Abort(Abort {
            sq_id: 0,
            cid: event,
        })
        .encode(cid);
        admin.capsule(&own, &[]);
        let first = admin.completion();
        assert_eq!(
            (first.cid, first.status),
            (event, Status::ABORTED_BY_REQUEST)
        );
        let second = admin.completion();
        assert_eq!((second.cid, second.dword0()), (cid, 0));
        // A transfer cannot be aborted: the host is about to send.
        let mut command = io(IoOpcode::WRITE, 0, 16);
        command.set_cid(9);
        command.set_sgl(SglDescriptor::transport(16 * BLOCK as u32));
        client.capsule(&command, &[]);
        let r2t = client.r2t();
        for (sq_id, cid) in [(1, 9), (1, 10), (2, 9), (0, 9)] {
            let abort = AdminCommand::Abort(Abort { sq_id, cid }).encode(0);
            let completion = admin.execute(abort, &[]);
            assert!(completion.status.is_success());
            assert_eq!(completion.dword0(), 1, "queue {sq_id} command {cid}");
        }
        client.answer_r2t(&r2t, &pattern(1, 16 * BLOCK));
        assert!(client.completion().status.is_success());
    }
}

#[test]
fn a_silent_host_loses_its_controller_with_all_queues() {
    let bed = Bed::with(Limits::default(), 2);
    let mut admin = Client::dial(bed.address(), Dialect::default());
    let cntlid = admin.connect_admin(NQN, 300);
    admin.enable();
    let mut queues: Vec<_> = (1..=3)
        .map(|id| {
            let mut queue = Client::dial(bed.address(), Dialect::default());
            queue.connect_io(NQN, cntlid, id, 31);
            queue
        })
        .collect();
    assert_eq!(bed.handle().snapshot().controllers[0].io_queues.len(), 3);
    assert!(admin.try_receive().is_none());
    for queue in &mut queues {
        assert!(queue.try_receive().is_none());
    }
    common::eventually("the controller is forgotten", || {
        bed.handle().snapshot().controllers.is_empty()
    });
}

#[test]
fn disconnect_ends_one_queue_and_its_identifier_serves_again() {
    let bed = Bed::new();
    let (_admin, mut client) = bed.host();
    let completion = client.execute(common::fabrics(FabricsType::DISCONNECT), &[]);
    assert!(completion.status.is_success(), "{}", completion.status);
    assert!(client.try_receive().is_none());
    let cntlid = bed.handle().snapshot().controllers[0].id;
    common::eventually("the queue is gone", || {
        bed.handle().snapshot().controllers[0].io_queues.is_empty()
    });
    let mut again = Client::dial(bed.address(), Dialect::default());
    again.connect_io(NQN, cntlid, 1, 127);
    assert!(again.read(0, 1).0.status.is_success());
}

fn records(admin: &mut Client) -> (DiscoveryLogHeader, Vec<DiscoveryLogEntry>) {
    let header = log(admin, LogPageId::DISCOVERY, 1024);
    let header = DiscoveryLogHeader::parse_prefix(&header).expect("a header");
    let bytes = 1024 * (header.records as u32 + 1);
    let page = log(admin, LogPageId::DISCOVERY, bytes);
    let entries = page[1024..]
        .chunks(1024)
        .filter_map(DiscoveryLogEntry::parse_prefix);
    (header, entries.collect())
}

#[test]
fn discovery_names_a_listener_on_every_address_by_the_one_that_was_reached() {
    let bed = Bed::new();
    let everywhere: SocketAddr = "0.0.0.0:4420".parse().expect("an address");
    let elsewhere: SocketAddr = "192.0.2.1:4420".parse().expect("an address");
    let secure = Listener {
        address: elsewhere,
        tls: TlsMode::Required,
    };
    bed.handle().set_listeners(&[everywhere.into(), secure]);
    let (_, entries) = records(&mut Client::discovery(bed.address(), 0));
    let mut addresses: Vec<_> = entries.iter().filter_map(|e| e.socket_address()).collect();
    addresses.sort_unstable();
    addresses.dedup();
    let reached = "127.0.0.1:4420".parse().expect("an address");
    assert_eq!(addresses, [reached, elsewhere]);
    for entry in entries {
        let is_secure = entry.sectype == DiscoveryLogEntry::SECTYPE_TLS13;
        assert_eq!(is_secure, entry.socket_address() == Some(elsewhere));
    }
}

#[test]
fn discovery_shows_what_a_host_may_see_and_tells_of_changes() {
    let bed = Bed::new();
    let mut once = Client::discovery(bed.address(), 0);
    let (before, entries) = records(&mut once);
    assert_eq!(entries.len(), 2);
    let io = entries
        .iter()
        .find(|e| e.subtype == DiscoveryLogEntry::SUBTYPE_NVM);
    let io = io.expect("the default subsystem");
    assert_eq!(io.socket_address(), Some(bed.address()));
    let treq = DiscoveryLogEntry::TREQ_NOT_SPECIFIED;
    let treq = treq | DiscoveryLogEntry::TREQ_SQ_FLOW_CONTROL_OPTIONAL;
    assert_eq!(
        (io.treq, io.sectype),
        (treq, DiscoveryLogEntry::SECTYPE_NONE)
    );
    assert_eq!(io.subnqn().expect("a name").as_str(), NQN);

    let mut lasting = Client::discovery(bed.address(), 60_000);
    let wanted = AsyncEventConfiguration::DISCOVERY_LOG_CHANGE;
    set(&mut lasting, FeatureId::ASYNC_EVENT_CONFIGURATION, wanted.0);
    let cid = request_event(&mut lasting);
    let mut hidden = SubsystemOptions::open_to_all("nqn.2026-11.io.example:hidden");
    hidden.allow_any_host = false;
    bed.handle().add_subsystem(hidden).expect("a new subsystem");
    let event = lasting.completion();
    assert_eq!(event.cid, cid);
    assert_eq!(
        AsyncEvent::from_dword(event.dword0()),
        AsyncEvent::DISCOVERY_LOG_CHANGE
    );
    assert_eq!(event.dword0(), 0x70_f002);
    let (after, entries) = records(&mut lasting);
    assert!(after.generation > before.generation);
    assert_eq!(entries.len(), 2, "a host does not see what it may not use");
    bed.handle()
        .allow_host("nqn.2026-11.io.example:hidden", common::HOST)
        .expect("a host");
    let referral = Referral {
        address: "127.0.0.9:8009".parse().expect("an address"),
    };
    bed.handle().add_referral(referral).expect("a referral");
    assert_eq!(records(&mut lasting).1.len(), 4);
    bed.handle().remove_referral(referral).expect("it exists");
    bed.handle()
        .deny_host("nqn.2026-11.io.example:hidden", common::HOST)
        .expect("a host");
    assert_eq!(records(&mut lasting).1.len(), 2);
    let (refused, _) = lasting.fetch(Identify::new(Cns::NAMESPACE, 1).encode(0), 4096);
    assert!(
        refused.status.is(Status::INVALID_FIELD),
        "{}",
        refused.status
    );
}

#[test]
fn end_controller_is_announced_and_known_or_neither() {
    for end_controller in [true, false] {
        let limits = Limits {
            end_controller,
            ..Limits::default()
        };
        let bed = Bed::with(limits, 1);
        let mut admin = bed.admin();
        let identify = IdentifyController::parse(&page(&mut admin, Cns::CONTROLLER, 0));
        let announced = Extensions::parse(&identify.vendor).end_controller;
        assert_eq!(announced, end_controller);
        let nobody = EndController {
            controller_id: 0xfff0,
        };
        let answer = admin.execute(nobody.encode(0), &[]);
        let refused = answer.status.is(Status::INVALID_OPCODE);
        assert_eq!(refused, !end_controller, "{}", answer.status);
    }
}

#[test]
fn every_identifier_of_a_namespace_is_shown() {
    let bed = Bed::new();
    let (eui64, nguid, uuid) = ([0xe6; 8], [0x66; 16], [0x44; 16]);
    let named = NamespaceOptions {
        uuid,
        nguid,
        eui64,
        ..common::namespace(2, Arc::clone(&bed.ram) as Arc<dyn block::Device>)
    };
    bed.handle()
        .add_namespace(NQN, named)
        .expect("a new namespace");
    let mut admin = bed.admin();
    let shown = IdentifyNamespace::parse(&page(&mut admin, Cns::NAMESPACE, 2));
    assert_eq!((shown.eui64, shown.nguid), (eui64, nguid));
    let descriptors = page(&mut admin, Cns::NAMESPACE_DESCRIPTORS, 2);
    let ids: Vec<_> = parse_namespace_descriptors(&descriptors).collect();
    let wanted = [
        NamespaceId::Eui64(eui64),
        NamespaceId::Nguid(nguid),
        NamespaceId::Uuid(uuid),
    ];
    assert_eq!(ids[..3], wanted);
    // A namespace with only a UUID reports it as its NGUID, too: some hosts use no namespace
    // without an NGUID or EUI64.
    let shown = IdentifyNamespace::parse(&page(&mut admin, Cns::NAMESPACE, 1));
    assert_eq!((shown.eui64, shown.nguid), ([0; 8], [1; 16]));
    let descriptors = page(&mut admin, Cns::NAMESPACE_DESCRIPTORS, 1);
    let ids: Vec<_> = parse_namespace_descriptors(&descriptors).collect();
    let wanted = [NamespaceId::Nguid([1; 16]), NamespaceId::Uuid([1; 16])];
    assert_eq!(ids[..2], wanted);
}

/// Calls `make` until a call completes within `limit`, so that no part of the result times out
/// before all of it is made.
fn made_within<T>(limit: Duration, make: impl Fn() -> T) -> T {
    for _ in 0..20 {
        let begun = Instant::now();
        let made = catch_unwind(AssertUnwindSafe(&make));
        if begun.elapsed() < limit {
            return made.unwrap_or_else(|panic| resume_unwind(panic));
        }
    }
    panic!("it always takes longer");
}

/// Regression: a discovery controller without a keep-alive timer lived as long as its connection,
/// so a few thousand of them used up all controllers.
#[test]
fn a_discovery_controller_that_is_asked_nothing_ends() {
    let idle = Duration::from_secs(2);
    let limits = Limits {
        discovery_idle_timeout: idle.into(),
        ..Limits::default()
    };
    let discovery = |bed: &Bed| Client::discovery(bed.address(), 0);
    let (bed, mut silent, mut others, mut asked, busy) = made_within(idle, || {
        let bed = Bed::with(limits.clone(), 1);
        let silent = discovery(&bed);
        let with_timer = Client::discovery(bed.address(), 60_000);
        let others = [with_timer, bed.admin()];
        let asked = Instant::now();
        let busy = discovery(&bed);
        (bed, silent, others, asked, busy)
    });
    let ids = || -> Vec<u16> {
        let snapshot = bed.handle().snapshot();
        snapshot.controllers.iter().map(|c| c.id).collect()
    };
    // Until the silent controller ends, the other one sends commands. The other one may also end if
    // the machine delays two of its commands for too long; it is then created again.
    let (mut busy, mut lost) = (Some(busy), 0);
    common::eventually("the one that asks nothing ends", || {
        let get = Identify::new(Cns::CONTROLLER, 0).encode(0);
        let before = std::mem::replace(&mut asked, Instant::now());
        let ask = AssertUnwindSafe(|| {
            let busy = busy.get_or_insert_with(|| discovery(&bed));
            busy.fetch(get, 4096).0.status
        });
        match catch_unwind(ask) {
            Ok(status) => assert!(status.is_success(), "{status}"),
            Err(_) => {
                assert!(before.elapsed() >= idle, "it was asked in time");
                lost += 1;
                busy = None;
            }
        }
        let left = ids();
        assert!(left.contains(&2) && left.contains(&3), "{left:?}");
        !left.contains(&1)
    });
    assert!(silent.try_receive().is_none());
    for other in &mut others {
        assert_ne!(other.property(Property::CAP), 0);
    }
    let core = || bed.handle().snapshot().cores[0];
    common::eventually("it is counted", || core().discovery_idle_timeouts > lost);
    // It had no keep-alive timer that could expire.
    assert_eq!(core().keep_alive_expirations, 0);
}

/// Regression: hosts at two addresses could hold every controller indefinitely without sending
/// anything.
#[test]
fn a_controller_without_timer_and_queues_that_is_asked_nothing_ends() {
    let limit = Duration::from_secs(2);
    let limits = Limits {
        controller_idle_timeout: limit.into(),
        ..Limits::default()
    };
    let (bed, (mut idle, mut queues), mut silent, mut timed) = made_within(limit, || {
        let bed = Bed::with(limits.clone(), 2);
        // An I/O queue counts as a sign of life of its host while it exists.
        let host = bed.host_named(common::HOST, 1);
        let silent = bed.admin();
        // A controller with a keep-alive timer stays, however late this thread is.
        let timed = Client::admin(bed.address(), NQN, 60_000);
        (bed, host, silent, timed)
    });
    let ids = || -> Vec<u16> {
        let snapshot = bed.handle().snapshot();
        snapshot.controllers.iter().map(|c| c.id).collect()
    };
    let ends = |left: &[u16]| {
        common::eventually("the one that shows nothing ends", || ids() == left);
    };
    ends(&[1, 3]);
    assert!(silent.try_receive().is_none());
    let core = || bed.handle().snapshot().cores[0];
    common::eventually("it is counted", || core().controller_idle_timeouts == 1);
    assert_eq!(core().keep_alive_expirations, 0);
    assert_ne!(idle.property(Property::CAP), 0);
    assert!(queues[0].read(0, 1).0.status.is_success());
    drop(queues);
    ends(&[3]);
    common::eventually("it is counted", || core().controller_idle_timeouts == 2);
    assert_ne!(timed.property(Property::CAP), 0);
}

#[test]
fn listeners_come_and_go_while_the_target_runs_and_connections_stay() {
    let bed = Bed::new();
    let (target, any) = (
        bed.handle(),
        testing::own_address()
            .parse::<SocketAddr>()
            .expect("an address"),
    );
    let bound = target.add_listener(any.into()).expect("a free port");
    assert_eq!(target.snapshot().listeners.len(), 2);
    let again = target.add_listener(bound.into()).expect_err("in use");
    assert!(again.to_string().contains("already exists"), "{again}");
    let mut admin = Client::admin(bound, NQN, 0);
    target.remove_listener(any).expect("it is there");
    target.remove_listener(any).expect_err("it is gone");
    assert_eq!(target.snapshot().listeners.len(), 1);
    std::net::TcpStream::connect(bound).expect_err("nobody listens");
    let (_, entries) = records(&mut Client::discovery(bed.address(), 0));
    let address = Some(bed.address());
    assert!(
        entries
            .iter()
            .all(|entry| entry.socket_address() == address)
    );
    // The connection outlives its listener, and its address can be listened on again.
    admin.property(Property::CSTS);
    target
        .add_listener(bound.into())
        .expect("a free port again");
    Client::admin(bound, NQN, 0);
}
