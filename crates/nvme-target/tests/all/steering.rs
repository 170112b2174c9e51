//! Queues that move between cores under load: every command is answered exactly once, whatever
//! happens to the queue in the meantime.

use crate::common;
use crate::common::{BLOCK, Bed, Client, Dialect, NQN, StopAtLast, eventually, io, pattern};
use base::{Nanos, Prng};
use qos::cost::Price;
use qos::curve::Point;
use qos::{CostModel, Curve, Percentile, TokenPoolRules, TokenRate};
use reactor::placement;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use switch::application_steering::Hysteresis;
use switch::limits::AFFINITY_DWELL;
use switch::{Class, Knobs};
use switchyard_target::{
    AccessGrant, DeviceQos, Limits, Others, SwitchStats, Tenancy, TenantGrant, TenantOptions,
};
use wire::fabrics::property::Configuration;
use wire::nvme::{IoOpcode, SglDescriptor, Status};

/// Blocks that the tests read.
const BLOCKS: usize = 256;

/// Returns an admin queue of a host that enables the classes of its queues.
fn admin(bed: &Bed) -> (Client, u16) {
    let (mut admin, cntlid) = bed.controller(Dialect::default());
    admin.mean_classes(true);
    (admin, cntlid)
}

/// Keeps several reads and in-capsule writes outstanding until stopped; checks every answer.
fn work(client: &mut Client, seed: u64, depth: u16, content: &[u8], stop: &AtomicBool) {
    let mut prng = Prng::from_seed(seed);
    while !stop.load(Ordering::Relaxed) {
        let mut reads = Vec::new();
        let mut bytes = Vec::new();
        for cid in 0..depth {
            let blocks = 1 + prng.below(8) as usize;
            let first = prng.below((BLOCKS - blocks) as u64) as usize;
            let mut read = io(IoOpcode::READ, first as u64, blocks as u32);
            read.set_cid(cid);
            read.set_sgl(SglDescriptor::transport((blocks * BLOCK) as u32));
            bytes.extend(client.session.capsule(&read, &[]));
            reads.push(Some((first, blocks)));
        }
        client.send(&bytes);
        for _ in 0..depth {
            let (cid, data) = common::any_read(client);
            let asked = reads[usize::from(cid)].take();
            let (first, blocks) = asked.expect("every command is answered once");
            assert!(data == content[first * BLOCK..(first + blocks) * BLOCK]);
        }
        // By R2T: the target must request the data before the queue can move.
        if prng.chance(1, 8) {
            let at = 2 * BLOCKS as u64 + 64 * prng.below(4);
            let data = pattern(seed, 32 * BLOCK);
            assert!(client.write_by_r2t(at, &data).status.is_success());
        }
    }
}

fn switches(bed: &Bed) -> Vec<SwitchStats> {
    bed.handle().snapshot().switch
}

fn moved(bed: &Bed, class: Class) -> u64 {
    let cores = switches(bed);
    cores.iter().map(|core| core.classes[class].moved_in).sum()
}

#[test]
fn bulk_leaves_the_core_of_latency_work() {
    bulk_leaves(Bed::with(Limits::default(), 2));
}

/// Commands wait for their tokens on whichever core their queue is, and the queue moves between two
/// commands.
#[test]
fn queues_move_whose_commands_are_paid_for() {
    let price = Price::milli(1).expect("a price");
    let point = Point {
        rate: TokenRate(1_000_000),
        latency: [Nanos::from_micros(100); Percentile::COUNT],
    };
    let curve = Curve::new(vec![point]).expect("a curve");
    let model = CostModel::new(price, price);
    let device = DeviceQos::new("flash", TokenPoolRules::default(), model, curve);
    bulk_leaves(Bed::scheduled(
        Limits::default(),
        2,
        Some(Arc::clone(&device)),
    ));
}

fn bulk_leaves(bed: Bed) {
    let content = pattern(11, BLOCKS * BLOCK);
    // The core with fewer queues gets the next one. Core 0 gets the latency queue; core 1 gets two
    // idle queues, because classes are kept apart if possible; core 0 gets the bulk queue.
    let counted = |bulk_queues: (u64, u64)| {
        eventually("the queues are counted where they are", || {
            let queues = |core: usize| switches(&bed)[core].classes[Class::Throughput].queues;
            (queues(0), queues(1)) == bulk_queues
        });
    };
    let (mut admin, cntlid) = admin(&bed);
    let mut latency = bed.queue_of(cntlid, 1, Class::Latency);
    let mut idle = bed.queue_of(cntlid, 2, Class::Throughput);
    // A queue that is dealt out before the previous one has arrived may go to another core.
    counted((0, 1));
    let idle_too = bed.queue_of(cntlid, 3, Class::Throughput);
    counted((0, 2));
    let mut bulk = bed.queue_of(cntlid, 4, Class::Throughput);
    counted((1, 2));
    assert!(idle.write_by_r2t(0, &content).status.is_success());
    // The data just written must not count as load of core 1.
    eventually("the load of the writer is forgotten", || {
        switches(&bed)
            .iter()
            .all(|core| core.classes[Class::Throughput].load_bytes == 0)
    });
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = StopAtLast(&stop);
        scope.spawn(|| work(&mut bulk, 1, 16, &content, &stop));
        scope.spawn(|| work(&mut latency, 2, 1, &content, &stop));
        eventually("the bulk queue moves", || {
            let cores = switches(&bed);
            cores[1].classes[Class::Throughput].moved_in > 0
        });
    });
    counted((0, 3));
    // The controller finds its queues on their current cores.
    let completion = admin.configure(Configuration::default());
    assert!(completion.status.is_success(), "{}", completion.status);
    for client in [bulk, latency, idle, idle_too] {
        client.closed();
    }
}

/// Starts a target on two cores with an admin queue, two latency queues that stay, one on each
/// core, and two bulk queues that move to the core with the lower latency load.
fn restless() -> (Bed, Client, Vec<Client>) {
    let bed = Bed::with(Limits::default(), 2);
    let mut knobs = Knobs::default();
    let steering = &mut knobs.application_steering;
    steering.hysteresis = Hysteresis::Paper;
    steering.period = Nanos::from_millis(1);
    steering.latency_load_max_bytes = 1;
    bed.handle().set_knobs(knobs).expect("valid knobs");
    let (admin, cntlid) = admin(&bed);
    let classes = [
        Class::Latency,
        Class::Latency,
        Class::Throughput,
        Class::Throughput,
    ];
    let clients = (1..)
        .zip(classes)
        .map(|(id, class)| bed.queue_of(cntlid, id, class))
        .collect();
    (bed, admin, clients)
}

/// Two latency clients and the bulk clients read the written data while `during` runs.
fn while_all_work(clients: &mut [Client], content: &[u8], during: impl FnOnce()) {
    assert!(clients[0].write_by_r2t(0, content).status.is_success());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = StopAtLast(&stop);
        for (seed, client) in (0u64..).zip(clients) {
            let stop = &stop;
            let depth = if seed < 2 { 1 } else { 16 };
            scope.spawn(move || work(client, seed, depth, content, stop));
        }
        during();
    });
}

#[test]
fn queues_that_never_rest_lose_nothing() {
    let content = pattern(12, BLOCKS * BLOCK);
    let (bed, _admin, mut clients) = restless();
    while_all_work(&mut clients, &content, || {
        eventually("bulk moves to and fro", || {
            moved(&bed, Class::Throughput) >= 20
        });
    });
    assert_eq!(moved(&bed, Class::Latency), 0);
}

/// Runs two busy queues, each on the home core of the other queue, on two cores of this machine,
/// until `until` accepts the threads' counters.
fn strangers(affinity: bool, until: impl Fn(&[SwitchStats]) -> bool) {
    let cores = placement::allowed_cores().expect("the cores");
    let &[first, second, ..] = cores.as_slice() else {
        block::skipped("one core only");
        return;
    };
    let content = pattern(15, BLOCKS * BLOCK);
    let bed = Bed::on(vec![first, second]);
    let knobs = Knobs {
        queue_affinity: affinity,
        ..Knobs::default()
    };
    bed.handle().set_knobs(knobs).expect("valid knobs");
    let (_admin, cntlid) = admin(&bed);
    let stop = AtomicBool::new(false);
    let (bed, content, stop) = (&bed, &content, &stop);
    let on = |core, id, class| {
        let connect = || {
            placement::pin_to(core).expect("an allowed core");
            bed.queue_of(cntlid, id, class)
        };
        let connected = std::thread::scope(|scope| scope.spawn(connect).join());
        connected.expect("connected")
    };
    // On loopback, packets are received on the sender's core. The first queue goes to the first
    // thread, the second queue to the second thread.
    let mut latency = on(second, 1, Class::Latency);
    let mut bulk = on(first, 2, Class::Throughput);
    assert!(bulk.write_by_r2t(0, content).status.is_success());
    std::thread::scope(|scope| {
        let _stop = StopAtLast(stop);
        scope.spawn(move || work(&mut bulk, 1, 16, content, stop));
        scope.spawn(move || work(&mut latency, 2, 1, content, stop));
        eventually("the queues are where they belong", || until(&switches(bed)));
    });
}

#[test]
fn queues_in_each_other_s_homes_go_home() {
    strangers(true, |cores| {
        let queues = |core: usize, class| cores[core].classes[class].queues;
        queues(1, Class::Latency) == 1 && queues(0, Class::Throughput) == 1
    });
}

#[test]
fn queues_stay_where_they_were_dealt_without_affinity() {
    let begun = Instant::now();
    strangers(false, |cores| {
        let moved = cores.iter().flat_map(|core| core.classes.iter());
        assert_eq!(moved.map(|(_, class)| class.moved_in).sum::<u64>(), 0);
        begun.elapsed() > 3 * Duration::from(AFFINITY_DWELL)
    });
}

/// The rules also change while queues are moving between cores.
#[test]
fn what_a_host_may_do_goes_along_with_its_queues() {
    let content = pattern(14, BLOCKS * BLOCK);
    let (bed, _admin, mut clients) = restless();
    let tenancy = |blocks| Tenancy {
        tenants: vec![TenantOptions {
            name: "tested".to_owned(),
            grants: Some(vec![TenantGrant {
                subsystem: None,
                grant: AccessGrant {
                    namespace: None,
                    range: Some((0, blocks)),
                    read: true,
                    write: true,
                },
            }]),
            ..TenantOptions::default()
        }],
        others: Others::Refuse,
    };
    let set = |blocks| {
        let set = bed.handle().set_tenants(&tenancy(blocks));
        set.expect("every core follows");
    };
    while_all_work(&mut clients, &content, || {
        eventually("bulk moves while the rules change", || {
            set(2048);
            set(1024);
            moved(&bed, Class::Throughput) >= 10
        });
        let before = moved(&bed, Class::Throughput);
        eventually("bulk moves by the same rules", || {
            moved(&bed, Class::Throughput) >= before + 10
        });
    });
    for client in &mut clients {
        let refused = client.read(1023, 2).0.status;
        assert!(refused.is(Status::ACCESS_DENIED), "{refused}");
        assert!(client.read(1023, 1).0.status.is_success());
    }
}

/// Sends reads without checking the answers, until the connection ends.
fn read_until_closed(client: &mut Client, seed: u64, depth: u16) {
    let mut prng = Prng::from_seed(seed);
    let mut answers = vec![0; 64 * BLOCK];
    loop {
        let mut bytes = Vec::new();
        let mut due = 0;
        for cid in 0..depth {
            let blocks = 1 + prng.below(2) as u32;
            let mut read = io(IoOpcode::READ, 0, blocks);
            read.set_cid(cid);
            read.set_sgl(SglDescriptor::transport(blocks * BLOCK as u32));
            bytes.extend(client.session.capsule(&read, &[]));
            due += 24 + blocks as usize * BLOCK;
        }
        let sent = client.stream.write_all(&bytes);
        if sent.is_err() || client.stream.read_exact(&mut answers[..due]).is_err() {
            return;
        }
    }
}

#[test]
fn a_subsystem_can_be_removed_while_its_queues_move() {
    let (bed, _admin, clients) = restless();
    std::thread::scope(|scope| {
        for (seed, mut client) in (0u64..).zip(clients) {
            let depth = if seed < 2 { 1 } else { 16 };
            scope.spawn(move || read_until_closed(&mut client, seed, depth));
        }
        eventually("bulk moves to and fro", || {
            moved(&bed, Class::Throughput) >= 5
        });
        bed.handle()
            .remove_subsystem(NQN)
            .expect("every core lets go of it");
    });
    eventually("every queue is gone", || {
        let cores = switches(&bed);
        let queues = |class| -> u64 { cores.iter().map(|core| core.classes[class].queues).sum() };
        queues(Class::Latency) + queues(Class::Throughput) == 0
            && bed.handle().snapshot().controllers.is_empty()
    });
}

#[test]
fn with_steering_off_nothing_moves() {
    let bed = Bed::with(Limits::default(), 2);
    let content = pattern(13, BLOCKS * BLOCK);
    let mut knobs = Knobs::default();
    knobs.application_steering.enabled = false;
    bed.handle().set_knobs(knobs).expect("valid knobs");
    let (_admin, cntlid) = admin(&bed);
    let mut latency = bed.queue_of(cntlid, 1, Class::Latency);
    let mut idle = bed.queue_of(cntlid, 2, Class::Throughput);
    let mut bulk = bed.queue_of(cntlid, 3, Class::Throughput);
    assert!(idle.write_by_r2t(0, &content).status.is_success());
    let (stop, begun) = (AtomicBool::new(false), bed.commands());
    std::thread::scope(|scope| {
        let _stop = StopAtLast(&stop);
        scope.spawn(|| work(&mut latency, 1, 1, &content, &stop));
        scope.spawn(|| work(&mut bulk, 2, 16, &content, &stop));
        // Enough commands for many periods.
        eventually("much is done", || bed.commands() > begun + 30_000);
    });
    assert_eq!(
        moved(&bed, Class::Latency) + moved(&bed, Class::Throughput),
        0
    );
}

#[test]
fn where_lanes_are_shared_no_queue_has_a_class() {
    let bed = Bed::new();
    let (_admin, cntlid) = admin(&bed);
    let before = bed.queue_of(cntlid, 1, Class::Latency);
    bed.handle().set_knobs(Knobs::linux()).expect("valid knobs");
    let after = bed.queue_of(cntlid, 2, Class::Latency);
    eventually("queues made before keep their class", || {
        let classes = switches(&bed)[0].classes;
        (
            classes[Class::Latency].queues,
            classes[Class::Throughput].queues,
        ) == (1, 1)
    });
    drop((before, after));
}
