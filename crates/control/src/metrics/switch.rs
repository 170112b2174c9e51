//! The switch's counters, by core and class.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;

use super::family::{Labels, by_word, counters, metrics, with};
use crate::snapshot::{ClassStats, Snapshot, SwitchSnapshot, SwitchStats, ThreadsSnapshot};
use switch::caravan::SizeHistogram;
use switch::doorbell::Reason;
use target::{Metric, ServiceStats};

/// Each core's classes with their labels.
fn classes(snapshot: &Snapshot) -> impl Iterator<Item = (Labels, &ClassStats)> {
    snapshot.switch.iter().flat_map(|core| {
        core.stats
            .classes
            .iter()
            .map(|(class, stats)| (with(labels(core), "class", class), stats))
    })
}

const CARAVANS: [Metric<ClassStats>; 2] = metrics![ClassStats:
    Counter "class_caravan_bytes" "Bytes that were handed to TCP in caravans, headers included"
        |class| class.caravans.bytes;
    Counter "class_caravan_answers" "Answers and R2Ts that left in caravans"
        |class| class.caravans.requests;
];

const IN_USE: [Metric<SwitchSnapshot>; 1] = metrics![SwitchSnapshot:
    Gauge "core_in_use" "1 while the core's thread is in use" |core| core.in_use.into();
];

const PRIVILEGE: [Metric<SwitchSnapshot>; 1] = metrics![SwitchSnapshot:
    Gauge "core_privilege" "Privilege with which the core's thread runs; always 1" |_| 1;
];

fn labels(core: &SwitchSnapshot) -> Labels {
    vec![("core", core.core.to_string())]
}

pub(super) fn encode(snapshot: &Snapshot, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    counters(encoder, ClassStats::metrics(), || classes(snapshot))?;
    counters(encoder, ServiceStats::metrics(), || {
        classes(snapshot).flat_map(|(labels, class)| {
            [("receive", &class.receive), ("send", &class.send)]
                .map(|(direction, service)| (with(labels.clone(), "direction", direction), service))
        })
    })?;
    counters(encoder, SwitchStats::metrics(), || {
        let cores = snapshot.switch.iter();
        cores.map(|core| (labels(core), &core.stats))
    })?;
    counters(encoder, ThreadsSnapshot::metrics(), || {
        [(Labels::new(), &snapshot.threads)]
    })?;
    counters(encoder, CARAVANS, || classes(snapshot))?;
    let (name, help) = (
        "class_doorbell_rings",
        "Caravans that left, by the reason of the doorbell",
    );
    by_word(
        encoder,
        (name, help, None),
        classes(snapshot),
        "reason",
        |class| Reason::ALL.map(|reason| (reason.name(), class.caravans.rings[reason.index()])),
    )?;
    sizes(snapshot, encoder)?;
    counters(encoder, PRIVILEGE, || {
        let cores = snapshot.switch.iter();
        cores.map(|core| (with(labels(core), "privilege", &core.privilege), core))
    })?;
    counters(encoder, IN_USE, || {
        snapshot.switch.iter().map(|core| (labels(core), core))
    })
}

fn sizes(snapshot: &Snapshot, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(
        "class_caravan_requests",
        "Answers and R2Ts of a caravan",
        None,
        MetricType::Histogram,
    )?;
    for (labels, class) in classes(snapshot) {
        let sizes = class.caravans.sizes;
        let bound = |bound: Option<u64>| bound.map_or(f64::INFINITY, |bound| bound as f64);
        let buckets: Vec<(f64, u64)> = sizes
            .buckets()
            .iter()
            .enumerate()
            .map(|(bucket, &count)| (bound(SizeHistogram::bound(bucket)), count))
            .collect();
        metric.encode_family(&labels)?.encode_histogram::<Labels>(
            class.caravans.requests as f64,
            sizes.caravans(),
            &buckets,
            None,
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{Exposition, Scrape, render};
    use super::*;
    use switch::Class;

    #[test]
    fn every_counter_of_a_class_has_its_labels() {
        let mut core = SwitchSnapshot {
            core: 2,
            privilege: "nice".to_owned(),
            in_use: true,
            ..SwitchSnapshot::default()
        };
        core.stats.steering_steps = 7;
        core.stats.scaled_in = 8;
        core.stats.scaled_out = 9;
        core.stats.sparse_arrivals = 10;
        let class = &mut core.stats.classes[Class::Throughput];
        class.queues = 3;
        class.outstanding_bytes = 65_536;
        class.load_bytes = 1;
        class.moved_in = 4;
        class.send.preemptions = 5;
        class.caravans.requests = 9;
        class.caravans.bytes = 4096;
        class.caravans.sizes.record(1);
        class.caravans.sizes.record(8);
        class.caravans.rings[Reason::Timer.index()] = 2;
        let snapshot = Snapshot {
            switch: vec![core],
            threads: ThreadsSnapshot {
                active: 2,
                min: 1,
                max: 3,
                grown: 5,
                shrunk: 4,
                balanced: 6,
            },
            ..Snapshot::default()
        };
        let text = render(Scrape { snapshot }, Exposition::OpenMetrics);
        let of = "core=\"2\",class=\"throughput\"";
        for line in [
            format!("switchyard_class_queues{{{of}}} 3"),
            format!("switchyard_class_outstanding_bytes{{{of}}} 65536"),
            format!("switchyard_class_load_bytes{{{of}}} 1"),
            format!("switchyard_class_caravan_bytes_total{{{of}}} 4096"),
            format!("switchyard_class_caravan_answers_total{{{of}}} 9"),
            format!("switchyard_class_moves_in_total{{{of}}} 4"),
            format!("switchyard_class_preemptions_total{{{of},direction=\"send\"}} 5"),
            format!("switchyard_class_doorbell_rings_total{{{of},reason=\"timer\"}} 2"),
            format!("switchyard_class_caravan_requests_bucket{{le=\"1.0\",{of}}} 1"),
            format!("switchyard_class_caravan_requests_bucket{{le=\"15.0\",{of}}} 2"),
            format!("switchyard_class_caravan_requests_bucket{{le=\"+Inf\",{of}}} 2"),
            format!("switchyard_class_caravan_requests_sum{{{of}}} 9.0"),
            "switchyard_core_privilege{core=\"2\",privilege=\"nice\"} 1".to_owned(),
            "switchyard_steering_steps_total{core=\"2\"} 7".to_owned(),
            "switchyard_core_in_use{core=\"2\"} 1".to_owned(),
            "switchyard_core_scaled_in_total{core=\"2\"} 8".to_owned(),
            "switchyard_core_scaled_out_total{core=\"2\"} 9".to_owned(),
            "switchyard_core_sparse_arrivals_total{core=\"2\"} 10".to_owned(),
            "switchyard_threads_active 2".to_owned(),
            "switchyard_threads_min 1".to_owned(),
            "switchyard_threads_max 3".to_owned(),
            "switchyard_threads_grown_total 5".to_owned(),
            "switchyard_threads_shrunk_total 4".to_owned(),
            "switchyard_threads_balanced_total 6".to_owned(),
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\nis not in\n{text}");
        }
    }
}
