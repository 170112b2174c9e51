//! Metrics of limits: their use, and the refusals and waits that they cause.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;

use super::family::{FamilyKind, Labels, Value, family};
use crate::snapshot::{Snapshot, UsageSnapshot};

pub(super) fn encode(snapshot: &Snapshot, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let limited = snapshot.limited.iter().map(|limited| {
        let labels = vec![("limit", limited.limit.clone())];
        (labels, Value::Count(limited.count))
    });
    family(
        encoder,
        FamilyKind::Counter,
        "limited",
        "Times that a limit held somebody back: a connection, controller or command was refused, a \
         command or an answer waited, a connection was closed because its host or client took too \
         long, or a change took too long",
        None,
        limited,
    )?;
    type Column = (&'static str, &'static str, fn(&UsageSnapshot) -> u64);
    let columns: [Column; 2] = [
        ("limit_used", "In use of what is limited", |usage| {
            usage.used
        }),
        ("limit_max", "What there is of it", |usage| usage.max),
    ];
    for (name, help, value) in columns {
        let values = snapshot.usage.iter().map(|usage| {
            let core = usage.core.map(|core| ("core", core.to_string()));
            let labels: Labels = [("limit", usage.limit.clone())]
                .into_iter()
                .chain(core)
                .collect();
            (labels, Value::Count(value(usage)))
        });
        family(encoder, FamilyKind::Gauge, name, help, None, values)?;
    }
    Ok(())
}
