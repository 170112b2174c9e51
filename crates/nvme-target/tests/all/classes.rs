//! Queues of classes: the class that a host names is used only if the host enabled that, and urgent
//! output does not wait for patient output.

use crate::common;
use crate::common::{Bed, Client, Dialect};
use switch::{Class, Knobs};
use switchyard_target::Limits;
use wire::fabrics::property::Configuration;
use wire::nvme::feature::{FeatureId, FeatureSelect};
use wire::nvme::vendor::Extensions;
use wire::nvme::{
    AdminCommand, GetFeatures, Identify, IdentifyController, SglDescriptor, identify,
};

fn say(admin: &mut Client, queue_classes: bool) {
    let value = admin.mean_classes(queue_classes);
    let get = GetFeatures {
        nsid: 0,
        feature: FeatureId::HOST_EXTENSIONS,
        select: FeatureSelect::CURRENT,
        dword11: 0,
        uuid_index: 0,
    };
    let completion = admin.execute(AdminCommand::GetFeatures(get).encode(0), &[]);
    assert_eq!(completion.dword0(), value);
}

fn classes(bed: &Bed, latency: u64, throughput: u64) {
    common::eventually("the core counts its queues", || {
        let core = bed.handle().snapshot().cores[0];
        (core.latency_queues, core.throughput_queues) == (latency, throughput)
    });
}

#[test]
fn a_queue_has_the_class_that_its_host_means() {
    let bed = Bed::new();
    let (mut admin, cntlid) = bed.controller(Dialect::default());
    let get = Identify::new(identify::Cns::CONTROLLER, 0);
    let (_, data) = admin.fetch(get.encode(0), 4096);
    let controller = IdentifyController::parse_prefix(&data).expect("4096 bytes");
    assert!(Extensions::parse(&controller.vendor).queue_classes);

    // An ordinary host leaves the bits zero, which would mean "urgent", unintentionally.
    let ordinary = bed.queue_of(cntlid, 1, Class::Latency);
    say(&mut admin, true);
    let latency = bed.queue_of(cntlid, 2, Class::Latency);
    let throughput = bed.queue_of(cntlid, 3, Class::Throughput);
    classes(&bed, 1, 1);
    say(&mut admin, false);
    let late = bed.queue_of(cntlid, 4, Class::Latency);
    classes(&bed, 1, 1);
    drop((ordinary, latency, throughput, late));
    classes(&bed, 0, 0);
}

/// Regression: a reset restored the feature's default, but not the behavior that the feature had
/// enabled.
#[test]
fn a_reset_forgets_that_the_host_means_classes() {
    let bed = Bed::new();
    let (mut admin, cntlid) = bed.controller(Dialect::default());
    say(&mut admin, true);
    assert!(admin.configure(Configuration(0)).status.is_success());
    admin.enable();
    let ordinary = bed.queue_of(cntlid, 1, Class::Latency);
    say(&mut admin, true);
    let meant = bed.queue_of(cntlid, 2, Class::Latency);
    classes(&bed, 1, 0);
    drop((ordinary, meant));
}

#[test]
fn every_class_is_served_whole_beside_the_others() {
    let bed = Bed::new();
    let mut knobs = Knobs::default();
    knobs.caravan.beside_latency.bytes = 4096;
    knobs.caravan.alone.bytes = 4096;
    bed.handle().set_knobs(knobs).expect("valid knobs");
    let (mut admin, cntlid) = bed.controller(Dialect::default());
    say(&mut admin, true);
    let mut latency = bed.queue_of(cntlid, 1, Class::Latency);
    let mut bulk: Vec<_> = (2..6)
        .map(|id| bed.queue_of(cntlid, id, Class::Throughput))
        .collect();
    let blocks = 64_u32;
    let content = common::pattern(7, blocks as usize * common::BLOCK);
    assert!(bulk[0].write_by_r2t(0, &content).status.is_success());
    // More than the target may queue for a connection, on every queue, before anything is read.
    const EACH: usize = 32;
    let mut asked = Vec::new();
    for client in &mut bulk {
        for _ in 0..EACH {
            let cid = client.cid();
            let mut read = common::io(wire::nvme::IoOpcode::READ, 0, blocks);
            read.set_cid(cid);
            read.set_sgl(SglDescriptor::transport(blocks * common::BLOCK as u32));
            client.capsule(&read, &[]);
            asked.push(cid);
        }
    }
    for _ in 0..EACH {
        let (completion, data) = latency.read(0, 1);
        assert!(completion.status.is_success());
        assert_eq!(data, content[..common::BLOCK]);
    }
    let mut asked = asked.into_iter();
    for client in &mut bulk {
        for cid in asked.by_ref().take(EACH) {
            let (completion, data) = client.fetched(cid);
            assert!(completion.status.is_success());
            assert_eq!(data, content);
        }
    }
    common::eventually("what was served is counted by class", || {
        let stats = bed.handle().snapshot().switch[0].classes;
        // Including the answer to Connect.
        let answers = stats.map(|stats| stats.caravans.requests);
        let all = (1 + EACH as u64, 4 + 4 * EACH as u64 + 2);
        stats[Class::Latency].send.quanta > 0
            && (answers[Class::Latency], answers[Class::Throughput]) == all
    });
    // An answer larger than a caravan is sent alone.
    let sizes = bed.handle().snapshot().switch[0].classes[Class::Throughput]
        .caravans
        .sizes;
    assert_eq!(sizes.buckets()[0], sizes.caravans());
}

/// Queues are connected on the first core. A queue that moves away must not cause that core to
/// serve bulk work in small pieces, not even for the second in which `Latency` work counts as
/// recent.
#[test]
fn a_latency_queue_holds_nobody_up_where_it_was_connected() {
    const READS: u64 = 64;
    let bed = Bed::with(Limits::default(), 2);
    let (mut admin, cntlid) = bed.controller(Dialect::default());
    say(&mut admin, true);
    let mut bulk = bed.queue_of(cntlid, 1, Class::Throughput);
    let latency = bed.queue_of(cntlid, 2, Class::Latency);
    common::eventually("each class has a core of its own", || {
        let queues = |core: usize| {
            bed.handle().snapshot().switch[core]
                .classes
                .map(|s| s.queues)
        };
        let (first, second) = (queues(0), queues(1));
        first[Class::Throughput] == 1 && second[Class::Latency] == 1
    });
    for _ in 0..READS {
        assert!(bulk.read(0, 1).0.status.is_success());
    }
    common::eventually("all reads are counted", || {
        let stats = bed.handle().snapshot().switch[0].classes;
        stats[Class::Throughput].caravans.requests > READS
    });
    let served = bed.handle().snapshot().switch[0].classes[Class::Throughput].send;
    assert_eq!(served.quanta, 0);
    drop(latency);
}
