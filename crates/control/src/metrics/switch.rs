//! The switch's counters, by core and class.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use super::{Kind, Labels, Value, family};
use crate::snapshot::{
    CaravanSnapshot, ClassSnapshot, ServiceSnapshot, Snapshot, SwitchSnapshot, ThreadsSnapshot,
};

/// A column of the table of classes: kind, name, help, unit, and where it is found.
type Column = (
    Kind,
    &'static str,
    &'static str,
    Option<Unit>,
    fn(&ClassSnapshot) -> u64,
);

const COLUMNS: [Column; 7] = [
    (
        Kind::Gauge,
        "class_queues",
        "Open I/O queues of the class",
        None,
        |c| c.queues,
    ),
    (
        Kind::Gauge,
        "class_outstanding",
        "Data that devices work on",
        Some(Unit::Bytes),
        |c| c.outstanding_bytes,
    ),
    (
        Kind::Gauge,
        "class_load",
        "Moving average of the data that devices work on",
        Some(Unit::Bytes),
        |c| c.load_bytes,
    ),
    (
        Kind::Counter,
        "class_caravan",
        "Bytes that were handed to TCP in caravans, headers included",
        Some(Unit::Bytes),
        |c| c.caravans.bytes,
    ),
    (
        Kind::Counter,
        "class_moves_in",
        "Queues that application steering brought to the core",
        None,
        |c| c.moved_in,
    ),
    (
        Kind::Counter,
        "class_moves_out",
        "Queues that application steering took from the core",
        None,
        |c| c.moved_out,
    ),
    (
        Kind::Counter,
        "class_caravan_answers",
        "Answers and R2Ts that left in caravans",
        None,
        |c| c.caravans.requests,
    ),
];

/// A column of the table of service, in the same form.
type ServiceColumn = (
    &'static str,
    &'static str,
    Option<Unit>,
    fn(&ServiceSnapshot) -> u64,
);

const SERVICE: [ServiceColumn; 4] = [
    (
        "class_quanta",
        "Quanta served while latency work was near",
        None,
        |s| s.quanta,
    ),
    (
        "class_served",
        "Data served while latency work was near",
        Some(Unit::Bytes),
        |s| s.bytes,
    ),
    (
        "class_preemptions",
        "Times that an earlier class took over",
        None,
        |s| s.preemptions,
    ),
    (
        "class_floor_turns",
        "Quanta that the floor owed",
        None,
        |s| s.floor_turns,
    ),
];

/// A number of each core: kind, name, help, and where it is found.
type CoreColumn = (Kind, &'static str, &'static str, fn(&SwitchSnapshot) -> u64);

const CORES: [CoreColumn; 5] = [
    (
        Kind::Counter,
        "steering_steps",
        "Steps of application steering",
        |core| core.steering_steps,
    ),
    (
        Kind::Gauge,
        "core_in_use",
        "Whether the core's thread is in use",
        |core| u64::from(core.in_use),
    ),
    (
        Kind::Counter,
        "core_scaled_in",
        "Queues that thread scaling brought to the core",
        |core| core.scaled_in,
    ),
    (
        Kind::Counter,
        "core_scaled_out",
        "Queues that thread scaling took from the core",
        |core| core.scaled_out,
    ),
    (
        Kind::Counter,
        "core_sparse_arrivals",
        "Times that latency commands came while these were sparse",
        |core| core.sparse_arrivals,
    ),
];

/// A number of the target's, in the same form.
type ThreadsColumn = (
    Kind,
    &'static str,
    &'static str,
    fn(&ThreadsSnapshot) -> u64,
);

const THREADS: [ThreadsColumn; 6] = [
    (Kind::Gauge, "threads_active", "Threads in use", |t| {
        t.active
    }),
    (Kind::Gauge, "threads_min", "Threads at least", |t| t.min),
    (Kind::Gauge, "threads_max", "Threads at most", |t| t.max),
    (
        Kind::Counter,
        "threads_grown",
        "Threads that were taken into use",
        |t| t.grown,
    ),
    (
        Kind::Counter,
        "threads_shrunk",
        "Threads that were put to sleep",
        |t| t.shrunk,
    ),
    (
        Kind::Counter,
        "threads_balanced",
        "Times that a busy thread shared its queues with another one in use",
        |t| t.balanced,
    ),
];

/// Each core's classes with their labels.
fn classes(snapshot: &Snapshot) -> impl Iterator<Item = (Labels, &ClassSnapshot)> {
    snapshot.switch.iter().flat_map(|core| {
        core.classes.iter().map(|(name, class)| {
            let labels = vec![("core", core.core.to_string()), ("class", name.clone())];
            (labels, class)
        })
    })
}

fn with(mut labels: Labels, name: &'static str, value: &str) -> Labels {
    labels.push((name, value.to_owned()));
    labels
}

pub(super) fn encode(snapshot: &Snapshot, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    for (kind, name, help, unit, value) in COLUMNS {
        let values = classes(snapshot).map(|(labels, class)| (labels, Value::Count(value(class))));
        family(encoder, kind, name, help, unit.as_ref(), values)?;
    }
    for (name, help, unit, value) in SERVICE {
        let values = classes(snapshot).flat_map(|(labels, class)| {
            [("receive", &class.receive), ("send", &class.send)].map(|(direction, service)| {
                let labels = with(labels.clone(), "direction", direction);
                (labels, Value::Count(value(service)))
            })
        });
        family(encoder, Kind::Counter, name, help, unit.as_ref(), values)?;
    }
    let rings = classes(snapshot).flat_map(|(labels, class)| {
        let rings = class.caravans.rings.iter();
        rings.map(move |(reason, &count)| {
            (with(labels.clone(), "reason", reason), Value::Count(count))
        })
    });
    let help = "Caravans that left, by why the doorbell rang";
    family(
        encoder,
        Kind::Counter,
        "class_doorbell_rings",
        help,
        None,
        rings,
    )?;
    sizes(snapshot, encoder)?;
    let privileges = snapshot.switch.iter().map(|core| {
        let labels = vec![("core", core.core.to_string())];
        (with(labels, "privilege", &core.privilege), Value::Count(1))
    });
    let help = "By what the core's thread goes before others; always 1";
    family(
        encoder,
        Kind::Gauge,
        "core_privilege",
        help,
        None,
        privileges,
    )?;
    for (kind, name, help, value) in CORES {
        let values = snapshot.switch.iter().map(|core| {
            let labels = vec![("core", core.core.to_string())];
            (labels, Value::Count(value(core)))
        });
        family(encoder, kind, name, help, None, values)?;
    }
    for (kind, name, help, value) in THREADS {
        let value = [(Labels::new(), Value::Count(value(&snapshot.threads)))];
        family(encoder, kind, name, help, None, value)?;
    }
    Ok(())
}

fn sizes(snapshot: &Snapshot, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(
        "class_caravan_requests",
        "Answers and R2Ts of a caravan",
        None,
        MetricType::Histogram,
    )?;
    for (labels, class) in classes(snapshot) {
        let CaravanSnapshot {
            sizes, requests, ..
        } = &class.caravans;
        let bound = |bound: Option<u64>| bound.map_or(f64::INFINITY, |bound| bound as f64);
        let buckets: Vec<(f64, u64)> = sizes
            .iter()
            .map(|bucket| (bound(bucket.up_to_requests), bucket.count))
            .collect();
        let count = sizes.iter().map(|bucket| bucket.count).sum();
        metric.encode_family(&labels)?.encode_histogram::<Labels>(
            *requests as f64,
            count,
            &buckets,
            None,
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::render;
    use super::*;
    use switch::doorbell::{DoorbellCounters, Reason};

    #[test]
    fn every_counter_of_a_class_has_its_labels() {
        let mut counters = DoorbellCounters {
            requests: 9,
            bytes: 4096,
            ..DoorbellCounters::default()
        };
        counters.sizes.record(1);
        counters.sizes.record(8);
        counters.rings[Reason::Timer.index()] = 2;
        let mut class = ClassSnapshot {
            queues: 3,
            outstanding_bytes: 65_536,
            load_bytes: 1,
            caravans: CaravanSnapshot::from(&counters),
            moved_in: 4,
            ..ClassSnapshot::default()
        };
        class.send.preemptions = 5;
        let classes = [("throughput".to_owned(), class)];
        let text = render(Snapshot {
            switch: vec![SwitchSnapshot {
                core: 2,
                privilege: "nice".to_owned(),
                privilege_refused: None,
                in_use: true,
                steering_steps: 7,
                scaled_in: 8,
                scaled_out: 9,
                sparse_arrivals: 10,
                classes: classes.into(),
            }],
            threads: ThreadsSnapshot {
                active: 2,
                min: 1,
                max: 3,
                grown: 5,
                shrunk: 4,
                balanced: 6,
            },
            ..Snapshot::default()
        });
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
