//! A metric with its values, as the encoder takes them.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::Unit;

use crate::snapshot::{Latency, Snapshot};
use target::{LATENCY_BOUNDS_NS, Metric, MetricKind};

/// Labels without a value to point at for an exemplar.
pub type Labels = Vec<(&'static str, String)>;

/// One metric with one value for each set of labels.
fn family(
    encoder: &mut DescriptorEncoder<'_>,
    kind: MetricKind,
    name: &str,
    help: &str,
    unit: Option<&Unit>,
    values: impl IntoIterator<Item = (Labels, u64)>,
) -> fmt::Result {
    let metric_type = match kind {
        MetricKind::Counter | MetricKind::Duration => MetricType::Counter,
        MetricKind::Gauge => MetricType::Gauge,
    };
    let mut metric = encoder.encode_descriptor(name, help, unit, metric_type)?;
    for (labels, value) in values {
        if labels.is_empty() {
            one(&mut metric, kind, value)?;
        } else {
            one(&mut metric.encode_family(&labels)?, kind, value)?;
        }
    }
    Ok(())
}

fn one(metric: &mut MetricEncoder<'_>, kind: MetricKind, value: u64) -> fmt::Result {
    let no_exemplar = None::<&Exemplar<Labels, u64>>;
    match kind {
        MetricKind::Counter => metric.encode_counter(&value, no_exemplar),
        MetricKind::Duration => metric.encode_counter(&seconds(value), no_exemplar),
        MetricKind::Gauge => metric.encode_gauge(&i64::try_from(value).unwrap_or(i64::MAX)),
    }
}

/// Nanoseconds in the unit that Prometheus wants. Precise to a nanosecond for a hundred days.
pub(super) fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// Time since the start of the process.
///
/// # Errors
/// Those of the encoder.
pub fn uptime(snapshot: &Snapshot, encoder: &mut DescriptorEncoder<'_>, help: &str) -> fmt::Result {
    let uptime = seconds(snapshot.uptime_ms.saturating_mul(1_000_000));
    let (unit, kind) = (Some(&Unit::Seconds), MetricType::Gauge);
    let mut metric = encoder.encode_descriptor("uptime", help, unit, kind)?;
    metric.encode_gauge(&uptime)
}

/// The metrics of a struct of counters: one value for each of `items`, with its labels.
///
/// # Errors
/// Those of the encoder.
pub fn counters<'a, S: 'a, I: IntoIterator<Item = (Labels, &'a S)>>(
    encoder: &mut DescriptorEncoder<'_>,
    metrics: impl IntoIterator<Item = Metric<S>>,
    items: impl Fn() -> I,
) -> fmt::Result {
    for metric in metrics {
        let (name, unit) = match (metric.kind, metric.name.strip_suffix("_bytes")) {
            (MetricKind::Duration, _) => (metric.name, Some(Unit::Seconds)),
            (_, Some(name)) => (name, Some(Unit::Bytes)),
            (_, None) => (metric.name, None),
        };
        let help = metric.help.trim().trim_end_matches('.').replace('`', "");
        // What counts nanoseconds is shown in seconds.
        let help = help.trim_end_matches(", in nanoseconds");
        let values = items().into_iter();
        let values = values.map(|(labels, counters)| (labels, (metric.value)(counters)));
        family(encoder, metric.kind, name, help, unit.as_ref(), values)?;
    }
    Ok(())
}

/// Declares [`Metric`]s of a type: kind, name, help, and the way to the value.
#[macro_export]
#[doc(hidden)]
macro_rules! metrics {
    ($of:ty: $($kind:ident $name:literal $help:literal $value:expr;)+) => {
        [$(target::Metric::<$of> {
            name: $name,
            help: $help,
            kind: target::MetricKind::$kind,
            value: $value,
        }),+]
    };
}
pub use metrics;

/// A counter with one value for each of `words`, which a further label tells apart.
///
/// # Errors
/// Those of the encoder.
pub fn by_word<'a, S: 'a, W: IntoIterator<Item = (&'static str, u64)>>(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help, unit): (&str, &str, Option<Unit>),
    items: impl Iterator<Item = (Labels, &'a S)>,
    label: &'static str,
    words: impl Fn(&S) -> W,
) -> fmt::Result {
    let values = items.flat_map(|(labels, item)| {
        let words = words(item).into_iter();
        words.map(move |(word, value)| (with(labels.clone(), label, word), value))
    });
    let kind = MetricKind::Counter;
    family(encoder, kind, name, help, unit.as_ref(), values)
}

/// Adds a label.
#[must_use]
pub fn with(mut labels: Labels, name: &'static str, value: impl ToString) -> Labels {
    labels.push((name, value.to_string()));
    labels
}

pub(super) fn histogram(metric: &mut MetricEncoder<'_>, latency: &Latency) -> fmt::Result {
    // The encoder adds the buckets up, and wants an infinite bound last.
    let bounds = LATENCY_BOUNDS_NS.into_iter().map(seconds);
    let bounds = bounds.chain([f64::INFINITY]);
    let buckets: Vec<(f64, u64)> = bounds.zip(latency.buckets).collect();
    assert_eq!(
        buckets.len(),
        latency.buckets.len(),
        "each count has its bound"
    );
    metric.encode_histogram::<Labels>(seconds(latency.sum_ns), latency.commands(), &buckets, None)
}
