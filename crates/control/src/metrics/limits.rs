//! Metrics of the control plane and of limits: the end of its certificate, the age of keys, erases, the
//! use of limits, and the refusals and waits that they cause.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;

use super::family::{Labels, counters, metrics};
use crate::snapshot::{EraseSnapshot, LimitedSnapshot, Snapshot, UsageSnapshot};
use target::Metric;

const LIMITED: [Metric<LimitedSnapshot>; 1] = metrics![LimitedSnapshot:
    Counter "limited"
        "Times that a limit took effect: a connection, controller or command was refused, a \
         command or an answer waited, a connection was closed because its host or client took too \
         long, or a change took too long"
        |limited| limited.count;
];

const USAGE: [Metric<UsageSnapshot>; 2] = metrics![UsageSnapshot:
    Gauge "limit_used" "In use of what is limited" |usage| usage.used;
    Gauge "limit_max" "What there is of it" |usage| usage.max;
];

const CERTIFICATE: [Metric<u64>; 1] = metrics![u64:
    Gauge "api_certificate_expiry_seconds"
        "End of the life of the HTTP interface's certificate, in seconds since 1970" |expiry| *expiry;
];

const KEY: [Metric<u64>; 1] = metrics![u64:
    Gauge "host_key_oldest_seconds"
        "Time since which the oldest key of a host is known, in seconds since 1970" |since| *since;
];

const ERASE: [Metric<EraseSnapshot>; 1] = metrics![EraseSnapshot:
    Gauge "erase_remaining_bytes"
        "Remainder of the erase in progress, of blocks that a smaller namespace gave up"
        |erase| erase.remaining_bytes;
];

/// Writes the end of the interface's certificate, the age of keys, the erase in progress, the use of
/// limits, and the number of times that each held a client back.
///
/// # Errors
/// Those of the encoder.
pub fn encode(snapshot: &Snapshot, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    counters(encoder, CERTIFICATE, || {
        let expiry = snapshot.api_certificate_expiry_s.iter();
        expiry.map(|expiry| (Labels::new(), expiry))
    })?;
    counters(encoder, KEY, || {
        let oldest = snapshot.oldest_host_key_s.iter();
        oldest.map(|oldest| (Labels::new(), oldest))
    })?;
    counters(encoder, ERASE, || {
        let erase = snapshot.erase.iter();
        erase.map(|erase| (vec![("device", erase.device.clone())], erase))
    })?;
    counters(encoder, LIMITED, || {
        let limited = snapshot.limited.iter();
        limited.map(|limited| (vec![("limit", limited.limit.clone())], limited))
    })?;
    counters(encoder, USAGE, || {
        snapshot.usage.iter().map(|usage| {
            let core = usage.core.map(|core| ("core", core.to_string()));
            let labels = [("limit", usage.limit.clone())].into_iter().chain(core);
            (labels.collect::<Labels>(), usage)
        })
    })
}
