//! Commands and their tokens: none bypasses the scheduler, none is lost while it waits, and each is
//! charged to its host's tenant.
//!
//! No test depends on speed: a command that must wait is so expensive that it would wait for
//! minutes, and continues when prices fall or its tenant changes.

mod shares;

use crate::common;
use crate::common::{
    BLOCK, Bed, Client, Dialect, HOST, HOST_ID, NQN, deallocate_all, eventually, io, pattern,
};
use base::Nanos;
use base::units::MIB;
use block::{Channel, Request, Submit};
use qos::cost::Price;
use qos::curve::Point;
use qos::{CostModel, Curve, Declaration, Percentile, Slo, TokenPoolRules, TokenRate, Weight};
use reactor::Context;
use std::sync::Arc;
use switchyard_target::{
    DeviceQos, EventKind, Limits, NamespaceOptions, OperationSnapshot, Others, SubsystemOptions,
    Target, TargetError, Tenancy, TenantOptions, TenantSnapshot, TenantStats,
};
use testing::device::TestDevice;
use wire::fabrics::ConnectData;
use wire::nvme::admin::ABORT_NOT_ABORTED;
use wire::nvme::{Abort, Command, IoOpcode, Nqn, SglDescriptor, Status};

const OTHER: &str = "nqn.2026-11.io.example:other";

/// Tokens per second of a device.
const RATE: u64 = 1_000;

/// A price, in thousandths of a token, at which 1 MiB takes minutes to pay for.
pub(crate) const DEAR: u32 = 1_000_000;

fn measured(milli: u32, rate: u64) -> (CostModel, Curve) {
    let price = Price::milli(milli).expect("a price");
    let point = Point {
        rate: TokenRate(rate),
        latency: [Nanos::from_micros(100); Percentile::COUNT],
    };
    let curve = Curve::new(vec![point]).expect("a curve");
    let prices = qos::cost::Prices::new(price, price).with(qos::PricedOperation::Deallocate, price);
    let model = CostModel {
        mixed: prices,
        read_only: prices,
    };
    (model, curve)
}

/// Returns a device on which every unit costs `milli` thousandths of a token.
pub(crate) fn device(milli: u32) -> Arc<DeviceQos> {
    let (model, curve) = measured(milli, RATE);
    DeviceQos::new("flash", TokenPoolRules::default(), model, curve)
}

/// Makes requests almost free; debts are then soon repaid.
pub(crate) fn open(device: &DeviceQos) {
    let (model, curve) = measured(1, qos::limits::RATE_MAX);
    device.recalibrate(model, curve);
}

fn bed(device: &Arc<DeviceQos>) -> Bed {
    Bed::scheduled(Limits::default(), 1, Some(Arc::clone(device)))
}

/// Returns an SLO that this device can meet at its high prices.
fn critical() -> Declaration {
    promised(1)
}

fn promised(iops: u64) -> Declaration {
    Declaration::LatencyCritical(Slo {
        percentile: Percentile::P95,
        latency: Nanos::from_millis(1),
        iops,
        read_permille: 1000,
        request_bytes: 4096,
    })
}

fn tenant(host: &str, declaration: Declaration) -> TenantOptions {
    TenantOptions {
        name: host.to_owned(),
        hosts: vec![host.to_owned()],
        declaration,
        ..TenantOptions::default()
    }
}

fn set(target: &Target, tenants: Vec<TenantOptions>) -> Result<(), TargetError> {
    let others = Others::Serve;
    target.set_tenants(&Tenancy { tenants, others })
}

/// Returns an admin queue and an I/O queue of a host.
fn host(bed: &Bed, name: &str) -> (Client, Client) {
    let (admin, mut queues) = bed.host_named(name, 1);
    (admin, queues.remove(0))
}

/// Sends a read without waiting for its answer.
fn ask(client: &mut Client, slba: u64, blocks: usize) -> u16 {
    let cid = client.cid();
    let mut read = io(IoOpcode::READ, slba, blocks as u32);
    read.set_cid(cid);
    read.set_sgl(SglDescriptor::transport((blocks * BLOCK) as u32));
    client.capsule(&read, &[]);
    cid
}

/// Sends a read of 1 MiB, which waits for minutes at the high price.
fn ask_for_much(client: &mut Client) -> u16 {
    ask(client, 0, MIB / BLOCK)
}

/// Waits until the target has received `count` I/O commands, and has had some turns after that.
fn taken(bed: &Bed, admin: &mut Client, count: u64) {
    eventually("the target has the commands", || bed.commands() == count);
    for _ in 0..10 {
        admin.property(wire::fabrics::Property::CAP);
    }
}

/// Returns a tenant's snapshot, as last published by the cores.
fn tenant_of(bed: &Bed, name: &str) -> TenantSnapshot {
    let devices = bed.handle().snapshot().devices;
    let mut tenants = devices[0].tenants.iter();
    let found = tenants.find(|tenant| tenant.name == name);
    found.expect("it is declared").clone()
}

/// Regression: a reserved bit in Write and Compare, which in Write Zeroes means deallocation, made
/// the target treat their data as a list of ranges at payment, and truncate it.
#[test]
fn data_that_is_no_list_of_ranges_stays_as_it_came() {
    const DEAC: u32 = 1 << 25;
    let bed = bed(&device(1));
    let (_admin, mut host) = bed.host();
    let data = [0xFF; BLOCK];
    for opcode in [IoOpcode::WRITE, IoOpcode::COMPARE] {
        let mut command = io(opcode, 0, 1);
        command.set_cdw(12, command.cdw(12) | DEAC);
        let completion = host.execute(command, &data);
        assert!(completion.status.is_success(), "{}", completion.status);
    }
    assert!(host.read(0, 1).1 == data, "what was written");
}

/// All operations cost tokens, including unmap, write zeroes and compare, which other schedulers
/// exempt.
#[test]
fn no_command_escapes() {
    let device = device(DEAR);
    let bed = bed(&device);
    let (mut admin, mut client) = host(&bed, HOST);
    let whole = (MIB / BLOCK) as u32;
    let mut flush_all = Command::new(IoOpcode::FLUSH.0, 0);
    flush_all.set_nsid(u32::MAX);
    let mut flush = flush_all;
    flush.set_nsid(1);
    let (deallocate, ranges) = deallocate_all(&[(3, 1), (1000, 512)]);
    let block = pattern(1, BLOCK);
    // The first command takes the saved tokens; then one of every kind follows, with in-capsule
    // data if it has any.
    let mut kinds = vec![
        (io(IoOpcode::VERIFY, 0, whole), &[][..]),
        (io(IoOpcode::VERIFY, 0, whole), &[][..]),
        (io(IoOpcode::WRITE_ZEROES, 0, whole), &[]),
        (io(IoOpcode::WRITE, 0, 1), &block),
        (io(IoOpcode::COMPARE, 0, 1), &block),
        (deallocate, &ranges),
        (flush, &[]),
        (flush_all, &[]),
    ];
    for (command, data) in &mut kinds {
        let cid = client.cid();
        command.set_cid(cid);
        if !data.is_empty() {
            command.set_sgl(SglDescriptor::in_capsule(0, data.len() as u32));
        }
        client.capsule(command, data);
    }
    ask(&mut client, 0, 1);
    ask_for_much(&mut client);
    let mut by_r2t = io(IoOpcode::WRITE, 0, whole);
    let cid = client.cid();
    by_r2t.set_cid(cid);
    by_r2t.set_sgl(SglDescriptor::transport(MIB as u32));
    client.capsule(&by_r2t, &[]);
    taken(&bed, &mut admin, 11);
    assert!(
        client.is_silent(),
        "none is answered, and none asks for data"
    );
    let namespace = &bed.handle().snapshot().subsystems[0].namespaces[0];
    let counted = namespace.operations().map(|(_, operation)| *operation);
    assert_eq!(counted, [OperationSnapshot::default(); 4]);
    open(&device);
    let mut ended = 0;
    while ended < 11 {
        match client.receive().header {
            wire::tcp::PduHeader::R2t(r2t) => client.answer_r2t(&r2t, &pattern(2, MIB)),
            wire::tcp::PduHeader::CapsuleResp(response) => {
                let completion = response.completion;
                assert!(completion.status.is_success(), "{}", completion.status);
                ended += 1;
            }
            wire::tcp::PduHeader::C2hData(_) => ended += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(client.read(0, whole).1 == pattern(2, MIB));
}

/// Its price depends on its data, which is requested first; no block is accessed yet.
#[test]
fn deallocate_waits_with_its_ranges() {
    let device = device(DEAR);
    let bed = bed(&device);
    let (mut admin, mut client) = host(&bed, HOST);
    ask_for_much(&mut client);
    let (mut command, ranges) = deallocate_all(&[(3, 1), (1000, 512)]);
    let cid = client.cid();
    command.set_cid(cid);
    command.set_sgl(SglDescriptor::transport(ranges.len() as u32));
    client.capsule(&command, &[]);
    let r2t = client.r2t();
    client.answer_r2t(&r2t, &ranges);
    taken(&bed, &mut admin, 2);
    assert!(client.is_silent());
    // A change of the namespace does not wait for it.
    let blocks = (8 * MIB / BLOCK) as u64;
    bed.handle()
        .resize_namespace(NQN, 1, blocks)
        .expect("a pause that does not wait for tokens");
    assert!(client.is_silent());
    open(&device);
    assert_eq!(client.fetched(cid - 1).1.len(), MIB);
    let completion = client.completion();
    assert!(completion.status.is_success(), "{}", completion.status);
}

#[test]
fn what_waits_can_be_aborted_and_its_place_serves_again() {
    let device = device(DEAR);
    let bed = bed(&device);
    let (mut admin, mut client) = host(&bed, HOST);
    let first = ask_for_much(&mut client);
    let second = ask_for_much(&mut client);
    taken(&bed, &mut admin, 2);
    for (cid, aborted) in [(second, true), (first, true), (first, false)] {
        let abort = Abort { sq_id: 1, cid };
        let told = admin.execute(abort.encode(0), &[]);
        assert!(told.status.is_success(), "{}", told.status);
        assert_eq!(told.dword0() & ABORT_NOT_ABORTED == 0, aborted);
        if aborted {
            let completion = client.completion();
            assert_eq!(completion.cid, cid);
            assert!(completion.status.is(Status::ABORTED_BY_REQUEST));
        }
    }
    // In the same slots: neither is answered twice or early.
    let third = ask(&mut client, 7, 1);
    let fourth = ask_for_much(&mut client);
    taken(&bed, &mut admin, 4);
    open(&device);
    assert!(client.fetched(third).0.status.is_success());
    assert_eq!(client.fetched(fourth).1.len(), MIB);
    assert!(client.read(0, 1).0.status.is_success());
}

/// Otherwise the tenant's other connections would pay for the commands left behind.
#[test]
fn a_connection_takes_along_what_waits() {
    let device = device(DEAR);
    let bed = bed(&device);
    let (mut admin, mut client) = host(&bed, HOST);
    for turn in 1..=5 {
        let (mut other_admin, mut other) = host(&bed, HOST);
        for _ in 0..200 {
            ask_for_much(&mut other);
        }
        taken(&bed, &mut other_admin, turn * 200);
    }
    eventually("the connections are gone", || {
        bed.handle().snapshot().controllers.len() == 1
    });
    // A tenant with 1000 reserved tokens per second is not stopped yet, so nothing was spent.
    set(bed.handle(), vec![tenant(HOST, critical())]).expect("admitted");
    let cid = ask_for_much(&mut client);
    assert_eq!(client.fetched(cid).1.len(), MIB);
    // Now it is stopped, and its connection can still end.
    ask_for_much(&mut client);
    taken(&bed, &mut admin, 1002);
    assert!(client.is_silent());
    bed.target.stop().expect("an orderly end");
    assert_eq!(client.fetched(cid + 1).1.len(), MIB, "answered at last");
}

#[test]
fn a_namespace_can_be_resized_while_commands_wait() {
    let device = device(DEAR);
    let bed = bed(&device);
    let (mut admin, mut client) = host(&bed, HOST);
    let near = ask_for_much(&mut client);
    let far = ask(&mut client, 4000, 96);
    taken(&bed, &mut admin, 2);
    let small = (4 * MIB / BLOCK) as u64;
    bed.handle()
        .resize_namespace(NQN, 1, small)
        .expect("a pause that does not wait for tokens");
    assert!(client.is_silent());
    open(&device);
    assert_eq!(client.fetched(near).1.len(), MIB);
    let (completion, _) = client.fetched(far);
    assert!(completion.status.is(Status::LBA_OUT_OF_RANGE));
}

#[test]
fn a_namespace_can_be_removed_while_commands_wait() {
    let device = device(DEAR);
    let bed = bed(&device);
    let (mut admin, mut client) = host(&bed, HOST);
    let gone = [ask_for_much(&mut client), ask_for_much(&mut client)];
    taken(&bed, &mut admin, 2);
    bed.handle().remove_namespace(NQN, 1).expect("it is there");
    for cid in gone {
        let (completion, _) = client.fetched(cid);
        assert!(completion.status.is(Status::INVALID_NAMESPACE));
    }
    // A different namespace on the same device, under the same identifier.
    let again = NamespaceOptions {
        qos: Some(Arc::clone(&device)),
        ..common::namespace(1, Arc::clone(&bed.ram) as Arc<dyn block::Device>)
    };
    bed.handle().add_namespace(NQN, again).expect("a new one");
    let waits = ask_for_much(&mut client);
    taken(&bed, &mut admin, 3);
    assert!(client.is_silent());
    open(&device);
    assert_eq!(client.fetched(waits).1.len(), MIB);
}

/// Each tenant has places of its own, however many commands of other tenants wait.
#[test]
fn a_flood_keeps_nobody_out_and_is_answered_in_full() {
    let device = device(DEAR);
    let bed = bed(&device);
    set(bed.handle(), vec![tenant(HOST, critical())]).expect("admitted");
    let mut flood: Vec<_> = (0..3).map(|_| host(&bed, OTHER)).collect();
    let cids: Vec<Vec<u16>> = flood
        .iter_mut()
        .map(|(_, client)| (0..1000).map(|at| ask(client, at, 1)).collect())
        .collect();
    let (mut admin, mut client) = host(&bed, HOST);
    taken(&bed, &mut admin, 3000);
    let cid = ask_for_much(&mut client);
    assert_eq!(client.fetched(cid).1.len(), MIB);
    open(&device);
    for ((_, client), cids) in flood.iter_mut().zip(cids) {
        let mut answered: Vec<u16> = cids.iter().map(|_| common::any_read(client).0).collect();
        answered.sort_unstable();
        assert_eq!(answered, cids);
        assert!(client.is_silent());
    }
}

/// A second change of a running tenant must take effect like the first.
#[test]
fn every_live_change_is_in_force_for_what_waits() {
    let device = device(DEAR);
    let bed = bed(&device);
    let (mut admin, mut client) = host(&bed, HOST);
    for turn in 0..3u64 {
        // As the default tenant, it waits.
        let cid = ask_for_much(&mut client);
        taken(&bed, &mut admin, 2 * turn + 1);
        assert!(client.is_silent(), "turn {turn}");
        assert_eq!(device.plan().reserved, TokenRate(0));
        // Its SLO releases it; after that the tenant is in debt.
        set(bed.handle(), vec![tenant(HOST, critical())]).expect("admitted");
        assert_eq!(device.plan().reserved, TokenRate(RATE));
        assert_eq!(client.fetched(cid).1.len(), MIB, "turn {turn}");
        let late = ask_for_much(&mut client);
        taken(&bed, &mut admin, 2 * turn + 2);
        assert!(client.is_silent(), "turn {turn}");
        // Nothing is lost when the host becomes the default tenant again, and the debt is dropped.
        set(bed.handle(), Vec::new()).expect("nobody is too much");
        assert!(client.is_silent(), "turn {turn}");
        set(bed.handle(), vec![tenant(HOST, critical())]).expect("admitted");
        assert_eq!(client.fetched(late).1.len(), MIB, "turn {turn}");
        set(bed.handle(), Vec::new()).expect("nobody is too much");
    }
}

/// A refused tenant must not stay registered, or its second connection would be taken for a
/// registered tenant's.
#[test]
fn a_refused_tenants_second_connection_is_refused_too() {
    let device = device(DEAR);
    let bed = bed(&device);
    let only = |tenants| Tenancy {
        tenants,
        others: Others::Refuse,
    };
    let other = tenant(OTHER, Declaration::default());
    let tenancy = only(vec![other.clone()]);
    bed.handle().set_tenants(&tenancy).expect("best effort");
    let too_much = promised(2);
    let connect = |name: &str| {
        let mut client = Client::dial(bed.address(), Dialect::default());
        let names = [NQN, name].map(|name| Nqn::new(name).expect("a name"));
        let cntlid = ConnectData::CNTLID_DYNAMIC;
        let data = ConnectData::new(HOST_ID, cntlid, &names[0], &names[1]);
        let connected = client.connect(&Client::connect_command(0, 31, 0), &data);
        connected.status
    };
    for _ in 0..3 {
        let error = bed
            .handle()
            .set_tenants(&only(vec![other.clone(), tenant(HOST, too_much)]))
            .expect_err("twice what there is");
        let told = error.to_string();
        assert!(told.contains(HOST) && told.contains("\"flash\""), "{told}");
        assert!(told.contains("1 requests/s would be"), "{told}");
        assert_eq!(device.plan().reserved, TokenRate(0));
        assert!(connect(HOST).is(Status::CONNECT_INVALID_HOST));
        assert!(connect(OTHER).is_success());
    }
    // Nor can a namespace be added on a device that cannot meet the SLOs of its tenants.
    let bed = Bed::new();
    set(bed.handle(), vec![tenant(HOST, too_much)]).expect("no device is scheduled");
    let second = || NamespaceOptions {
        qos: Some(Arc::clone(&device)),
        ..common::namespace(2, Arc::clone(&bed.ram) as Arc<dyn block::Device>)
    };
    let refused = bed.handle().add_namespace(NQN, second());
    assert!(matches!(refused, Err(TargetError::Refused { .. })));
    set(bed.handle(), vec![tenant(HOST, critical())]).expect("less");
    bed.handle().add_namespace(NQN, second()).expect("room");
    assert_eq!(device.plan().reserved, TokenRate(RATE));
    bed.handle().remove_namespace(NQN, 2).expect("it is there");
    assert_eq!(device.plan().reserved, TokenRate(0), "given back");
}

/// If one of its devices cannot meet the SLOs, nothing is reserved on the other devices.
#[test]
fn a_subsystem_comes_with_promises_on_all_of_its_devices_or_not_at_all() {
    let (cheap, dear) = (device(1), device(DEAR));
    let bed = Bed::new();
    let with = || {
        let namespace = |nsid, qos| NamespaceOptions {
            qos: Some(Arc::clone(qos)),
            ..common::namespace(nsid, Arc::clone(&bed.ram) as Arc<dyn block::Device>)
        };
        SubsystemOptions {
            namespaces: vec![
                namespace(1, &cheap),
                namespace(2, &dear),
                namespace(3, &dear),
            ],
            ..SubsystemOptions::open_to_all("nqn.2026-11.io.example:promised")
        }
    };
    let reserved = || (cheap.plan().reserved.0 > 0, dear.plan().reserved);
    set(bed.handle(), vec![tenant(HOST, promised(2))]).expect("no device is scheduled");
    let refused = bed.handle().add_subsystem(with());
    assert!(matches!(refused, Err(TargetError::Refused { .. })));
    assert_eq!(reserved(), (false, TokenRate(0)));
    set(bed.handle(), vec![tenant(HOST, critical())]).expect("less");
    bed.handle().add_subsystem(with()).expect("room");
    assert_eq!(reserved(), (true, TokenRate(RATE)));
    let name = with().nqn;
    bed.handle().remove_subsystem(&name).expect("it is there");
    assert_eq!(reserved(), (false, TokenRate(0)));
}

/// A device with a volatile write cache that executes nothing during parsing.
#[derive(Debug)]
struct Cached(Box<dyn Channel>);

impl Channel for Cached {
    fn submit(&mut self, request: Request, cx: &mut Context<'_>) -> Submit {
        self.0.submit(request, cx)
    }

    fn closed(&self) -> bool {
        self.0.closed()
    }
}

/// Regression: it cost no more than a write that ends in the cache.
#[test]
fn fua_costs_a_flush_where_there_is_a_cache() {
    let device = device(1);
    let cached = TestDevice::new(common::ram(MIB), |ram| Box::new(Cached(ram)));
    let cached = cached.with(|capabilities| {
        capabilities.volatile_cache = true;
        capabilities.extents_max = 0;
    });
    let namespace = NamespaceOptions {
        qos: Some(Arc::clone(&device)),
        ..common::namespace(1, Arc::new(cached))
    };
    let target = common::run(common::target_with(Limits::default(), 1, [namespace]), 1);
    let ram = common::ram(MIB);
    let bed = Bed { target, ram };
    set(bed.handle(), vec![tenant(HOST, Declaration::default())]).expect("admitted");
    let (_admin, mut client) = host(&bed, HOST);
    let data = pattern(1, BLOCK);
    let mut expected = 0;
    for (opcode, fua, cost) in [
        (IoOpcode::WRITE, false, 1),
        (IoOpcode::WRITE, true, 2),
        (IoOpcode::READ, false, 1),
        (IoOpcode::READ, true, 2),
        (IoOpcode::WRITE_ZEROES, true, 2),
    ] {
        let mut command = io(opcode, 0, 1);
        command.set_cdw(12, command.cdw(12) | u32::from(fua) << 30);
        let status = match opcode {
            IoOpcode::READ => client.fetch(command, BLOCK).0.status,
            IoOpcode::WRITE => client.execute(command, &data).status,
            _ => client.execute(command, &[]).status,
        };
        assert!(status.is_success(), "{status}");
        expected += cost;
        eventually("it is counted", || {
            tenant_of(&bed, HOST).stats.spent_milli >= expected
        });
        assert_eq!(
            tenant_of(&bed, HOST).stats.spent_milli,
            expected,
            "{opcode} {fua}"
        );
    }
}

/// Regression: the whole command was paid for at once, so a tenant with an SLO was in debt for
/// minutes, and its reads waited.
#[test]
fn zeroes_of_any_length_are_paid_for_piece_by_piece() {
    let device = device(DEAR);
    let bed = bed(&device);
    set(bed.handle(), vec![tenant(HOST, critical())]).expect("admitted");
    let (mut admin, mut client) = host(&bed, HOST);
    let data = pattern(3, BLOCK);
    for cid in [1, 2] {
        let mut zeroes = io(IoOpcode::WRITE_ZEROES, 0, (4 * MIB / BLOCK) as u32);
        zeroes.set_cid(cid);
        client.capsule(&zeroes, &[]);
        // The first piece, which overdraws the balance; each later piece would take four minutes.
        let piece = u64::from(DEAR) * (MIB / BLOCK) as u64;
        let stats = || tenant_of(&bed, HOST).stats;
        eventually("a piece is paid for", || {
            stats().spent_milli == piece && stats().waiting == u64::from(cid)
        });
    }
    assert!(client.is_silent());
    // A pause does not wait for it, and an Abort ends it.
    let blocks = (8 * MIB / BLOCK) as u64;
    bed.handle()
        .resize_namespace(NQN, 1, blocks)
        .expect("a pause that does not wait for tokens");
    let told = admin.execute(Abort { sq_id: 1, cid: 1 }.encode(0), &[]);
    assert_eq!(told.dword0() & ABORT_NOT_ABORTED, 0);
    let completion = client.completion();
    assert_eq!(completion.cid, 1);
    assert!(completion.status.is(Status::ABORTED_BY_REQUEST));
    open(&device);
    let completion = client.completion();
    assert_eq!(completion.cid, 2);
    assert!(completion.status.is_success(), "{}", completion.status);
    assert!(
        client
            .write((4 * MIB / BLOCK) as u64, &data)
            .status
            .is_success()
    );
    let last = client.read((4 * MIB / BLOCK) as u64 - 1, 2).1;
    assert!(last[..BLOCK].iter().all(|&byte| byte == 0) && last[BLOCK..] == data);
}
