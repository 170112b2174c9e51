//! Commands and their tokens: none bypasses the scheduler, none is lost while it waits, and each is
//! charged to its host's tenant.
//!
//! No test depends on speed: a command that must wait is so expensive that it would wait for
//! minutes, and continues when prices fall or its tenant changes.

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
    DeviceQos, Limits, NamespaceOptions, OperationSnapshot, Others, SubsystemOptions, Target,
    TargetError, Tenancy, TenantEventKind, TenantOptions, TenantSnapshot, TenantStats,
};
use testing::device::TestDevice;
use wire::fabrics::ConnectData;
use wire::nvme::admin::ABORT_NOT_ABORTED;
use wire::nvme::{Abort, Command, IoOpcode, Nqn, SglDescriptor, Status};

const OTHER: &str = "nqn.2026-11.io.example:other";

/// Tokens per second of a device.
const RATE: u64 = 1_000;

/// A price, in thousandths of a token, at which 1 MiB takes minutes to pay for.
const DEAR: u32 = 1_000_000;

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
fn device(milli: u32) -> Arc<DeviceQos> {
    let (model, curve) = measured(milli, RATE);
    DeviceQos::new("flash", TokenPoolRules::default(), model, curve)
}

/// Makes requests almost free; debts are then soon repaid.
fn open(device: &DeviceQos) {
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

/// Returns a tenant's snapshot, as last published by the cores.
fn tenant_of(bed: &Bed, name: &str) -> TenantSnapshot {
    let devices = bed.handle().snapshot().devices;
    let mut tenants = devices[0].tenants.iter();
    let found = tenants.find(|tenant| tenant.name == name);
    found.expect("it is declared").clone()
}

/// Sends 1000 commands on `blocks` blocks that transfer no data.
fn flood(client: &mut Client, blocks: u32) {
    let mut bytes = Vec::new();
    for cid in 0..1000u16 {
        let mut verify = io(IoOpcode::VERIFY, 0, blocks);
        verify.set_cid(cid);
        bytes.extend(client.session.capsule(&verify, &[]));
    }
    client.send(&bytes);
}

/// Returns a device on which no command can be paid for, and almost no tokens are saved, however
/// long it takes until all commands wait.
fn shut() -> Arc<DeviceQos> {
    let device = device(DEAR);
    let (model, curve) = measured(DEAR, 1);
    device.recalibrate(model, curve);
    device
}

/// Returns the tokens that [`HOST`] and [`OTHER`] have spent, at the same time: the value of the
/// first did not change while the second was read.
fn spent(bed: &Bed) -> [u64; 2] {
    loop {
        let spent = |name| tenant_of(bed, name).stats.spent_milli / 1000;
        let [one, other, again] = [HOST, OTHER, HOST].map(spent);
        if one == again {
            return [one, other];
        }
    }
}

/// Releases the waiting commands of [`HOST`] and [`OTHER`] on a [device](shut), each of 1 MiB and
/// now one token, so slowly that this thread may be late by seconds before either has none left.
/// Polls until the tokens spent are `fair`, while fewer than `commands` of each are done: a core
/// may be late in claiming or publishing tokens.
fn share(bed: &Bed, device: &DeviceQos, commands: [u64; 2], fair: impl Fn([u64; 2]) -> bool) {
    let (model, curve) = measured(4, RATE / 4);
    device.recalibrate(model, curve);
    let mut last = [0; 2];
    eventually("both are served", || {
        let seen = spent(bed);
        let both_wait = seen[0] < commands[0] && seen[1] < commands[1];
        assert!(both_wait, "while both waited, they had {last:?}");
        last = seen;
        seen.iter().sum::<u64>() > 600 && fair(seen)
    });
}

#[test]
fn best_effort_tenants_share_by_weight_and_tokens_are_conserved() {
    let weight = |weight| Declaration::BestEffort(Weight::new(weight).expect("a weight"));
    let device = shut();
    let bed = bed(&device);
    let tenants = vec![tenant(HOST, weight(100)), tenant(OTHER, weight(200))];
    set(bed.handle(), tenants).expect("admitted");
    let (mut admin, mut one) = host(&bed, HOST);
    let (_admin, mut other) = host(&bed, OTHER);
    flood(&mut one, 256);
    flood(&mut other, 256);
    taken(&bed, &mut admin, 2000);
    share(&bed, &device, [1000, 1000], |[light, heavy]| {
        (light * 2).abs_diff(heavy) * 10 <= heavy
    });
    // The remaining commands run at the same price, and faster.
    let (model, curve) = measured(4, 10 * RATE);
    device.recalibrate(model, curve);
    for client in [&mut one, &mut other] {
        let mut answered: Vec<u16> = (0..1000).map(|_| client.completion().cid).collect();
        answered.sort_unstable();
        assert!(answered.iter().copied().eq(0..1000));
    }
    for name in [HOST, OTHER] {
        eventually("what was not needed is given back", || {
            let TenantStats {
                earned_milli,
                given_milli,
                spent_milli,
                waiting,
                others,
                ..
            } = tenant_of(&bed, name).stats;
            let kept = earned_milli.saturating_sub(given_milli);
            waiting == 0
                && others == 1000
                && spent_milli >= 1000 * 1000
                && kept.abs_diff(spent_milli) <= 1
        });
    }
}

/// In the paper, each tenant runs on one thread; here it may use two cores.
#[test]
fn a_tenant_on_two_cores_has_one_share() {
    let device = shut();
    let bed = Bed::scheduled(Limits::default(), 2, Some(Arc::clone(&device)));
    let tenants = [HOST, OTHER].map(|name| tenant(name, Declaration::default()));
    set(bed.handle(), tenants.to_vec()).expect("admitted");
    let (mut admin, mut queues) = bed.host_named(HOST, 2);
    let (_admin, other) = host(&bed, OTHER);
    queues.push(other);
    for client in &mut queues {
        flood(client, 256);
    }
    taken(&bed, &mut admin, 3000);
    let served: Vec<_> = bed.handle().snapshot().cores;
    assert!(served.iter().all(|core| core.io_commands >= 1000));
    share(&bed, &device, [2000, 1000], |[two, one]| {
        two.abs_diff(one) * 5 <= one
    });
    open(&device);
    for client in &mut queues {
        let mut answered: Vec<u16> = (0..1000).map(|_| client.completion().cid).collect();
        answered.sort_unstable();
        assert!(answered.iter().copied().eq(0..1000));
    }
}

#[test]
fn a_promise_is_kept_beside_best_effort() {
    // Half of the device, in commands of one token each.
    let half = promised(500);
    let device = device(1000);
    let bed = bed(&device);
    let tenants = vec![tenant(HOST, half), tenant(OTHER, Declaration::default())];
    set(bed.handle(), tenants).expect("admitted");
    assert_eq!(device.plan().reserved, TokenRate(RATE / 2));
    let (mut admin, mut critical) = host(&bed, HOST);
    let (_admin, mut other) = host(&bed, OTHER);
    flood(&mut other, 1);
    taken(&bed, &mut admin, 1000);
    flood(&mut critical, 1);
    let before = tenant_of(&bed, OTHER).stats.others;
    let mut seen = None;
    eventually("both were served", || {
        let both = [HOST, OTHER].map(|name| tenant_of(&bed, name).stats.others);
        seen = Some(both).filter(|[one, _]| *one > 400);
        seen.is_some()
    });
    let [promised, rest] = seen.expect("they were");
    let rest = rest - before;
    // Half is reserved, so the other tenant cannot have more. It has less if a core's round was so
    // late that spare tokens had expired.
    assert!(
        promised * 110 / 100 + 60 >= rest && rest > 0,
        "{promised} and {rest}"
    );
    eventually("its operator is told", || tenant_of(&bed, HOST).overruns);
    for client in [&mut critical, &mut other] {
        for _ in 0..1000 {
            assert!(client.completion().status.is_success());
        }
    }
}

#[test]
fn the_operator_is_told_when_a_tenant_asks_for_too_much() {
    let device = device(1000);
    let bed = bed(&device);
    let tenants = vec![tenant(HOST, promised(500)), tenant(OTHER, promised(10))];
    set(bed.handle(), tenants).expect("admitted");
    let (_admin, mut critical) = bed.host_named(HOST, 3);
    assert!(bed.handle().tenant_events(0).is_empty());
    // All at once: in a gap between them the device would be idle, and the overrun might end.
    for queue in &mut critical {
        flood(queue, 1);
    }
    eventually("it began", || !bed.handle().tenant_events(0).is_empty());
    let event = bed.handle().tenant_events(0).remove(0);
    assert_eq!(
        (event.kind, event.number),
        (TenantEventKind::OverrunBegan, 1)
    );
    assert_eq!(
        (event.tenant.as_str(), event.device.as_str()),
        (HOST, "flash")
    );
    assert_eq!(event.demand.promised_milli, 500_000);
    assert!(event.demand.asked_milli > 0 && event.demand.window_ms > 0);
    for queue in &mut critical {
        for _ in 0..1000 {
            assert!(queue.completion().status.is_success());
        }
    }
    eventually("it ended", || !bed.handle().tenant_events(1).is_empty());
    let ended = bed.handle().tenant_events(1);
    assert_eq!(ended.len(), 1);
    assert_eq!(ended[0].kind, TenantEventKind::OverrunEnded);
}

#[test]
fn late_reads_are_counted_and_nothing_is_forgotten_with_a_connection() {
    let device = device(DEAR);
    let bed = bed(&device);
    set(bed.handle(), vec![tenant(HOST, critical())]).expect("admitted");
    for turn in 1..=3u64 {
        let (mut admin, mut client) = host(&bed, HOST);
        let first = ask_for_much(&mut client);
        let late = ask_for_much(&mut client);
        taken(&bed, &mut admin, 2 * turn);
        std::thread::sleep(std::time::Duration::from_millis(5));
        open(&device);
        for cid in [first, late] {
            assert_eq!(client.fetched(cid).1.len(), MIB);
        }
        let (model, curve) = measured(DEAR, RATE);
        device.recalibrate(model, curve);
        drop((admin, client));
        eventually("all is counted", || {
            let tenant = tenant_of(&bed, HOST);
            tenant.stats.reads == 2 * turn && tenant.stats.seats == 0
        });
    }
    let TenantSnapshot { stats, latency, .. } = tenant_of(&bed, HOST);
    assert_eq!((stats.read_bytes, stats.promised_reads), (6 << 20, 6));
    assert!((1..=6).contains(&stats.late_reads), "{stats:?}");
    assert_eq!(latency.reads.commands(), 6);
    assert_eq!(latency.device_reads.commands(), 6);
    assert!(latency.reads.sum_ns > latency.device_reads.sum_ns + 5_000_000);
    eventually("the promise is judged", || {
        tenant_of(&bed, HOST).windows.missed > 0
    });
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
