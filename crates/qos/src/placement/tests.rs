//! Placement against the admission of single devices, by brute force.

use super::*;
use crate::admission::Admission;
use crate::admission::tests::device_a_parts;
use crate::cost::{CostModel, Price};
use crate::curve::{Curve, Point};
use crate::device_model::DeviceModel;
use crate::limits::{LATENCY_RESERVE_PERMILLE, LEGS_MAX, NODES_MAX};
use crate::slo::{Declaration, Percentile, Slo, SloError, TenantId};
use crate::tokens::TokenRate;
use base::Nanos;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Device A of the paper: 420 K tokens/s at 500 µs, 570 K at 2 ms.
fn device_a() -> DeviceModel {
    let (costs, curve) = device_a_parts();
    DeviceModel::new(costs, curve, LATENCY_RESERVE_PERMILLE)
}

/// A device with other prices and another curve.
fn device_x() -> DeviceModel {
    let point = |rate, micros| Point {
        rate: TokenRate(rate),
        latency: [micros, 2 * micros, 3 * micros, 5 * micros].map(Nanos::from_micros),
    };
    let points = vec![
        point(200_000, 40),
        point(700_000, 170),
        point(900_000, 1_100),
    ];
    let costs = CostModel::new(Price::milli(20_000).unwrap(), Price::READ);
    DeviceModel::new(costs, Curve::new(points).unwrap(), LATENCY_RESERVE_PERMILLE)
}

fn node(domain: u32, gib: u64) -> Node {
    Node {
        domain: DomainId(domain),
        bytes: gib * GIB,
        bandwidth: 10_000_000_000,
        model: 0,
    }
}

/// A cluster of nodes with device A and 1000 GiB, each its own domain.
fn cluster(nodes: u32) -> Cluster {
    let mut cluster = Cluster::new(vec![device_a()]);
    for at in 0..nodes {
        cluster.add_node(node(at, 1000)).unwrap();
    }
    cluster
}

fn reads(gib: u64, iops: u64, micros: u64) -> Volume {
    Volume {
        bytes: gib * GIB,
        demand: Demand::Slo(Slo {
            percentile: Percentile::P95,
            latency: Nanos::from_micros(micros),
            iops,
            read_permille: 1000,
            request_bytes: 4096,
        }),
        legs: 1,
    }
}

fn best_effort(gib: u64, floor: u64) -> Volume {
    Volume {
        bytes: gib * GIB,
        demand: Demand::Floor(TokenRate(floor)),
        legs: 1,
    }
}

fn put(cluster: &mut Cluster, id: u64, volume: Volume) -> u32 {
    let nodes = cluster.place(&volume).unwrap();
    cluster.insert(VolumeId(id), volume, nodes.clone()).unwrap();
    nodes[0].0
}

fn refused(cluster: &Cluster, volume: &Volume) -> String {
    cluster.place(volume).unwrap_err().to_string()
}

#[test]
fn similar_latencies_share_a_node() {
    let mut cluster = cluster(4);
    let relaxed = put(&mut cluster, 1, reads(10, 100_000, 2_000));
    let strict = put(&mut cluster, 2, reads(10, 50_000, 500));
    assert_ne!(strict, relaxed);
    assert_eq!(put(&mut cluster, 3, reads(10, 50_000, 520)), strict);
    assert_eq!(put(&mut cluster, 4, reads(10, 50_000, 1_900)), relaxed);
    let tokens = |node| cluster.node(NodeId(node)).unwrap().capacity().tokens;
    assert_eq!(tokens(strict), TokenRate(420_000));
    assert!(tokens(relaxed) > TokenRate(560_000));
}

#[test]
fn bytes_fill_nodes_without_tokens() {
    let mut cluster = cluster(3);
    let strict = put(&mut cluster, 1, reads(10, 400_000, 500));
    assert_eq!(put(&mut cluster, 2, best_effort(500, 1_000)), strict);
    // Its tokens weigh more than its bytes.
    let relaxed = put(&mut cluster, 3, best_effort(1, 15_000));
    assert_ne!(relaxed, strict);
}

#[test]
fn a_relaxed_node_gets_stricter_only_without_an_empty_one() {
    let mut cluster = cluster(2);
    let relaxed = put(&mut cluster, 1, reads(10, 10_000, 2_000));
    let strict = put(&mut cluster, 2, reads(10, 400_000, 500));
    assert_ne!(relaxed, strict);
    assert_eq!(put(&mut cluster, 3, reads(10, 30_000, 500)), relaxed);
}

#[test]
fn a_refusal_names_the_shortage_and_volumes_that_fit() {
    let mut cluster = cluster(1);
    put(&mut cluster, 1, reads(600, 300_000, 500));
    assert_eq!(
        refused(&cluster, &reads(100, 200_000, 500)),
        "no node can take the volume; node 0, the nearest, lacks 80000 tokens/s; a rate of \
         120000/s, or best effort would fit"
    );
    assert_eq!(
        refused(&cluster, &reads(100, 10_000, 200)),
        "no node can take the volume; node 0, the nearest, lacks 135000 tokens/s; a latency of \
         316.667µs, or best effort would fit"
    );
    assert_eq!(
        refused(&cluster, &best_effort(500, 10)),
        "no node can take the volume; node 0, the nearest, lacks 100 GiB; 400 GiB would fit"
    );
    assert_eq!(
        refused(&cluster, &best_effort(500, 200_000)),
        "no node can take the volume; node 0, the nearest, lacks 100 GiB and 80000 tokens/s; add \
         nodes, or remove volumes"
    );
}

#[test]
fn legs_are_in_different_failure_domains() {
    let mut cluster = Cluster::new(vec![device_a()]);
    for domain in [7, 7, 9] {
        cluster.add_node(node(domain, 100)).unwrap();
    }
    let volume = |legs| Volume {
        legs,
        ..reads(60, 1_000, 500)
    };
    assert_eq!(cluster.place(&volume(2)), Ok(vec![NodeId(0), NodeId(2)]));
    assert_eq!(
        refused(&cluster, &volume(3)),
        "3 legs need nodes in 3 failure domains, and 2 can take one; 2 legs would fit"
    );
    let id = VolumeId(1);
    let mut insert = |nodes: &[u32]| {
        let nodes = nodes.iter().copied().map(NodeId).collect();
        cluster.insert(id, volume(2), nodes)
    };
    assert_eq!(insert(&[0, 1]), Err(InsertError::Domain(NodeId(1))));
    assert_eq!(insert(&[0, 3]), Err(InsertError::NoNode(NodeId(3))));
    assert_eq!(insert(&[0]), Err(InsertError::Legs { legs: 2, nodes: 1 }));
    assert_eq!(insert(&[0, 2]), Ok(()));
    assert_eq!(insert(&[0, 2]), Err(InsertError::Exists(id)));
    let moved = cluster.move_leg(id, NodeId(0), NodeId(2));
    assert_eq!(moved, Err(InsertError::Domain(NodeId(2))));
    let moved = cluster.move_leg(id, NodeId(1), NodeId(0));
    assert_eq!(moved, Err(InsertError::NoNode(NodeId(1))));
    put(&mut cluster, 2, best_effort(60, 0));
    let moved = cluster.move_leg(id, NodeId(0), NodeId(1));
    assert_eq!(moved, Err(InsertError::Full(NodeId(1))));
}

#[test]
fn invalid_nodes_and_volumes_are_errors() {
    let mut cluster = cluster(1);
    let empty = Node {
        bandwidth: 0,
        ..node(0, 1)
    };
    assert_eq!(cluster.add_node(empty), Err(NodeError::Empty));
    let unknown = Node {
        model: 1,
        ..node(0, 1)
    };
    assert_eq!(cluster.add_node(unknown), Err(NodeError::Model(1)));
    for _ in 1..NODES_MAX {
        cluster.add_node(node(0, 1)).unwrap();
    }
    assert_eq!(cluster.add_node(node(0, 1)), Err(NodeError::TooMany));
    let error = |volume: Volume| match cluster.place(&volume) {
        Err(Refusal::Volume(error)) => error,
        other => panic!("{other:?}"),
    };
    let volume = best_effort(1, 0);
    assert_eq!(error(Volume { bytes: 0, ..volume }), VolumeError::Empty);
    for legs in [0, LEGS_MAX + 1] {
        assert_eq!(error(Volume { legs, ..volume }), VolumeError::Legs(legs));
    }
    let floor = TokenRate(u64::MAX);
    assert_eq!(error(best_effort(1, u64::MAX)), VolumeError::Floor(floor));
    assert_eq!(error(reads(1, 0, 500)), VolumeError::Slo(SloError::NoRate));
    let most = Volume {
        bytes: u64::MAX,
        ..reads(1, 1, 500)
    };
    assert!(refused(&cluster, &most).contains("lacks"));
}

#[test]
fn a_volume_grows_in_place_or_moves_or_stays_as_it_is() {
    let mut cluster = cluster(2);
    put(&mut cluster, 1, reads(500, 1_000, 500));
    put(&mut cluster, 2, reads(400, 1_000, 500));
    let mut grow = |gib| cluster.change(VolumeId(2), reads(gib, 1_000, 500));
    assert_eq!(grow(500), Ok(vec![NodeId(0)]));
    assert_eq!(grow(501), Ok(vec![NodeId(1)]));
    let before = cluster.clone();
    let grown = cluster.change(VolumeId(2), reads(1_001, 1_000, 500));
    assert!(matches!(grown, Err(ChangeError::Refused(_))));
    assert_eq!(cluster.volumes(), before.volumes());
    assert_eq!(cluster.node(NodeId(1)).unwrap().used().bytes, 501 * GIB);
    let unknown = cluster.change(VolumeId(3), reads(1, 1, 500));
    assert_eq!(unknown, Err(ChangeError::Unknown(VolumeId(3))));
}

#[test]
fn a_node_is_relaxed_by_the_move_of_its_strict_volume() {
    let mut cluster = cluster(2);
    let mut insert = |id, volume, node| {
        let nodes = vec![NodeId(node)];
        cluster.insert(VolumeId(id), volume, nodes).unwrap();
    };
    insert(1, reads(10, 300_000, 2_000), 0);
    insert(2, reads(10, 20_000, 500), 0);
    insert(3, reads(10, 300_000, 500), 1);
    let steps = cluster.rebalance(10);
    let moved = Move {
        volume: VolumeId(2),
        bytes: 10 * GIB,
        from: NodeId(0),
        to: NodeId(1),
    };
    let gain = Gain::Relaxed(NodeId(0), TokenRate(570_000 - 420_000));
    let moves = vec![moved];
    assert_eq!(steps, [Step { moves, gain }]);
    assert_eq!(cluster.rebalance(0), []);
}

#[derive(Clone, Debug)]
enum Operation {
    Place(Volume),
    End(usize),
    Change(usize, Volume),
    Rebalance(usize),
}

fn volumes() -> impl Strategy<Value = Volume> {
    let slo = (
        prop::sample::select(Percentile::ALL.to_vec()),
        prop::sample::select(vec![90, 300, 500, 510, 1_000, 2_000]),
        1_000u64..150_000,
        prop::sample::select(vec![500, 900, 1000]),
        prop::sample::select(vec![512, 4096, 16_384]),
    );
    let slo = slo.prop_map(|(percentile, micros, iops, read_permille, request_bytes)| {
        Demand::Slo(Slo {
            percentile,
            latency: Nanos::from_micros(micros),
            iops,
            read_permille,
            request_bytes,
        })
    });
    let floor = prop_oneof![Just(0), 0u64..300_000];
    let demand = prop_oneof![3 => slo, 2 => floor.prop_map(|it| Demand::Floor(TokenRate(it)))];
    (1u64..200, demand, 1u8..=3).prop_map(|(mib, demand, legs)| Volume {
        bytes: mib * MIB,
        demand,
        legs,
    })
}

fn nodes() -> impl Strategy<Value = Vec<Node>> {
    let node = (0u32..3, 50u64..500, 1u64..20, 0usize..2);
    let node = node.prop_map(|(domain, mib, hundreds, model)| Node {
        domain: DomainId(domain),
        bytes: mib * MIB,
        bandwidth: hundreds * 100_000_000,
        model,
    });
    prop::collection::vec(node, 1..5)
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let operation = prop_oneof![
        6 => volumes().prop_map(Operation::Place),
        2 => any::<usize>().prop_map(Operation::End),
        2 => (any::<usize>(), volumes()).prop_map(|(at, it)| Operation::Change(at, it)),
        2 => (0usize..8).prop_map(Operation::Rebalance),
    ];
    prop::collection::vec(operation, 1..40)
}

/// What the admission of the node's device grants: its token rate with these volumes, if all fit.
fn admitted(node: &Node, volumes: &[Volume]) -> Option<TokenRate> {
    let model = [device_a(), device_x()][node.model].clone();
    let mut admission = Admission::new(model.costs, model.curve, LATENCY_RESERVE_PERMILLE);
    let (mut floors, mut bytes, mut bandwidth) = (0, 0, 0);
    for (id, volume) in (1..).map(TenantId).zip(volumes) {
        bytes += volume.bytes;
        match volume.demand {
            Demand::Slo(slo) => {
                bandwidth += slo.iops * u64::from(slo.request_bytes);
                let declaration = Declaration::LatencyCritical(slo);
                admission.admit(id, declaration).ok()?;
            }
            Demand::Floor(floor) => {
                bandwidth += floor.0 * 4096;
                floors += floor.0;
            }
        }
    }
    let plan = admission.plan();
    let fits = bytes <= node.bytes
        && bandwidth <= node.bandwidth
        && plan.reserved.0 + floors <= plan.rate.0;
    fits.then_some(plan.rate)
}

fn on(cluster: &Cluster, id: NodeId) -> Vec<Volume> {
    let placed = cluster.volumes().values();
    let here = placed.filter(|placed| placed.nodes.contains(&id));
    here.map(|placed| placed.volume).collect()
}

/// No node is overcommitted, and no two legs share a domain.
fn check(cluster: &Cluster) {
    for (id, loaded) in cluster.nodes() {
        let rate = admitted(loaded.node(), &on(cluster, id));
        assert_eq!(rate, Some(loaded.capacity().tokens), "{id}");
    }
    for placed in cluster.volumes().values() {
        let domain = |&id: &NodeId| cluster.node(id).unwrap().node().domain;
        let domains: BTreeSet<_> = placed.nodes.iter().map(domain).collect();
        assert_eq!(domains.len(), usize::from(placed.volume.legs));
        assert_eq!(placed.nodes.len(), domains.len());
    }
}

/// Returns true if enough domains have a node that admits the volume.
fn can_be_placed(cluster: &Cluster, volume: &Volume) -> bool {
    let admits = |(id, loaded): &(NodeId, &Loaded)| {
        let mut all = on(cluster, *id);
        all.push(*volume);
        admitted(loaded.node(), &all).is_some()
    };
    let able = cluster.nodes().filter(admits);
    let domains: BTreeSet<_> = able.map(|(_, loaded)| loaded.node().domain).collect();
    domains.len() >= usize::from(volume.legs)
}

/// Each offer fits, and no larger one.
fn check_offer(cluster: &Cluster, volume: &Volume, refusal: &Refusal) {
    let Refusal::Misfit(misfit) = refusal else {
        panic!("{refusal}");
    };
    let offer = misfit.offer;
    let fits = |volume: Volume| cluster.place(&volume).is_ok();
    if let Some(bytes) = offer.bytes {
        assert!(bytes < volume.bytes && fits(Volume { bytes, ..*volume }));
        let bytes = bytes + MIB;
        assert!(!fits(Volume { bytes, ..*volume }));
    }
    if let Some(legs) = offer.legs {
        assert!(legs < volume.legs && fits(Volume { legs, ..*volume }));
    }
    let with = |demand| Volume { demand, ..*volume };
    match volume.demand {
        Demand::Slo(slo) => {
            let iops = |iops| fits(with(Demand::Slo(Slo { iops, ..slo })));
            if let Some(rate) = offer.rate {
                assert!(rate < slo.iops && iops(rate) && !iops(rate + 1));
            }
            let latency = |latency| fits(with(Demand::Slo(Slo { latency, ..slo })));
            if let Some(it) = offer.latency {
                assert!(it > slo.latency && latency(it));
                assert!(!latency(Nanos(it.0 - it.0 / 100)));
            }
            assert_eq!(offer.best_effort, fits(with(Demand::Floor(TokenRate(0)))));
        }
        Demand::Floor(floor) => {
            let floors = |it| fits(with(Demand::Floor(TokenRate(it))));
            if let Some(rate) = offer.rate {
                assert!(rate < floor.0 && floors(rate) && !floors(rate + 1));
            }
        }
    }
}

/// Moves are feasible in order, and gain what they claim.
fn carry_out(cluster: &mut Cluster, steps: &[Step]) {
    let used = |cluster: &Cluster| {
        let used = cluster.nodes().filter(|(_, loaded)| !loaded.is_empty());
        used.map(|(id, loaded)| (id, loaded.capacity().tokens))
            .collect::<BTreeMap<_, _>>()
    };
    for step in steps {
        let before = used(cluster);
        for it in &step.moves {
            assert_eq!(it.bytes, cluster.volumes()[&it.volume].volume.bytes);
            cluster.move_leg(it.volume, it.from, it.to).unwrap();
            check(cluster);
        }
        let mut expected = before;
        match step.gain {
            Gain::Empty(node) => assert!(expected.remove(&node).is_some()),
            Gain::Relaxed(node, tokens) => {
                assert!(tokens > TokenRate(0));
                let rate = expected.get_mut(&node).unwrap();
                *rate = *rate + tokens;
            }
        }
        assert_eq!(used(cluster), expected);
    }
}

fn run(cluster: &mut Cluster, operation: &Operation, next: &mut u64) {
    let ids: Vec<_> = cluster.volumes().keys().copied().collect();
    let pick = |at: usize| (!ids.is_empty()).then(|| ids[at % ids.len()]);
    match operation {
        Operation::Place(volume) => {
            let placed = cluster.place(volume);
            assert_eq!(placed.is_ok(), can_be_placed(cluster, volume));
            match placed {
                Ok(nodes) => {
                    cluster.insert(VolumeId(*next), *volume, nodes).unwrap();
                    *next += 1;
                }
                Err(refusal) => check_offer(cluster, volume, &refusal),
            }
        }
        Operation::End(at) => {
            if let Some(id) = pick(*at) {
                assert!(cluster.remove(id).is_some());
            }
        }
        Operation::Change(at, volume) => {
            let Some(id) = pick(*at) else { return };
            let mut without = cluster.clone();
            without.remove(id);
            let before = cluster.volumes().clone();
            match cluster.change(id, *volume) {
                Ok(nodes) => assert_eq!(cluster.volumes()[&id].nodes, nodes),
                Err(_) => {
                    assert!(!can_be_placed(&without, volume));
                    assert_eq!(cluster.volumes(), &before);
                }
            }
        }
        Operation::Rebalance(moves_max) => {
            let steps = cluster.rebalance(*moves_max);
            let moves: usize = steps.iter().map(|step| step.moves.len()).sum();
            assert!(moves <= *moves_max);
            carry_out(cluster, &steps);
        }
    }
}

proptest! {
    #[test]
    fn no_node_is_overcommitted_and_refusals_offers_and_gains_are_right(
        nodes in nodes(),
        operations in operations(),
    ) {
        let mut cluster = Cluster::new(vec![device_a(), device_x()]);
        for node in nodes {
            cluster.add_node(node).unwrap();
        }
        let mut next = 0;
        for operation in &operations {
            run(&mut cluster, operation, &mut next);
            check(&cluster);
        }
    }
}
