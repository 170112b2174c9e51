//! Use of the target's limits, and the refusals and waits that they cause.

use crate::snapshot::{LimitedSnapshot, UsageSnapshot};
use target::{CoreStats, Snapshot};

/// A limit, and the counter of those that it held back.
type Row = (&'static str, fn(&CoreStats) -> u64);

// A core publishes one number after the other, so a part may be ahead of its whole for a moment.
/// Limits that refuse or delay, by the key in a configuration or a name of their own.
const LIMITED: [Row; 30] = [
    ("connections", |s| {
        s.refused
            .saturating_sub(s.fresh_closed + s.refused_per_address)
    }),
    ("connections_per_address", |s| s.refused_per_address),
    ("connections_per_tenant", |s| s.connects_refused_per_tenant),
    ("all_queue_entries", |s| s.connects_refused_entries),
    ("fresh_connections", |s| s.fresh_closed),
    ("controllers", |s| {
        let others = s.controllers_refused_per_host
            + s.controllers_refused_per_address
            + s.controllers_refused_per_tenant
            + s.controllers_refused_discovery;
        s.controllers_refused.saturating_sub(others)
    }),
    ("controllers_per_host", |s| s.controllers_refused_per_host),
    ("controllers_per_address", |s| {
        s.controllers_refused_per_address
    }),
    ("controllers_per_tenant", |s| {
        s.controllers_refused_per_tenant
    }),
    ("discovery_controllers", |s| s.controllers_refused_discovery),
    ("payload_buffer_bytes", |s| s.buffer_waits),
    ("connection_buffer_share", |s| s.connection_share_waits),
    ("host_buffer_share", |s| s.host_share_waits),
    ("tenant_buffer_share", |s| s.tenant_share_waits),
    ("throughput_buffer_share", |s| s.throughput_share_waits),
    ("send_lists", |s| s.list_waits),
    ("sends_per_connection", |s| {
        s.output_waits.saturating_sub(s.list_waits)
    }),
    ("stash_bytes", |s| s.stash_refusals),
    ("extents_in_flight", |s| s.extents_in_flight_refused),
    ("extent_tables", |s| s.extent_tables_refused),
    ("controller_idle_timeout_ms", |s| s.controller_idle_timeouts),
    ("discovery_idle_timeout_ms", |s| s.discovery_idle_timeouts),
    ("connect_timeout_ms", |s| s.connect_timeouts),
    ("pdu_timeout_ms", |s| s.pdu_timeouts),
    ("stall_timeout_ms", |s| s.stall_timeouts),
    ("transfer_timeout_ms", |s| s.transfer_timeouts),
    ("pause_patience_ms", |s| s.pause_timeouts),
    ("barrier_timeout_ms", |s| {
        s.barriers_given_up.saturating_sub(s.barriers_overflowed)
    }),
    ("barrier_held_bytes", |s| s.barriers_overflowed),
    // Hosts at one address have as many in force as they may, or all together have.
    ("barriers_per_address", |s| s.barriers_put_off),
];

/// Returns the refusals and waits that each limit caused, of the counters of all cores together.
pub(super) fn limited(total: &CoreStats) -> Vec<LimitedSnapshot> {
    let limited = LIMITED.iter().map(|(limit, count)| LimitedSnapshot {
        limit: (*limit).to_owned(),
        count: count(total),
    });
    limited.collect()
}

/// Returns the use of limits; `cores` are the processors of the target's threads.
pub(super) fn usage(snapshot: &Snapshot, cores: &[u32]) -> Vec<UsageSnapshot> {
    let limits = &snapshot.limits;
    let one = |limit: &str, core, used: u64, max: usize| UsageSnapshot {
        limit: limit.to_owned(),
        core,
        used,
        max: max as u64,
    };
    let connections = snapshot.cores.iter().map(|core| core.connections).sum();
    let controllers = snapshot.controllers.iter();
    let discovery = controllers
        .filter(|controller| controller.kind == target::ControllerKind::Discovery)
        .count();
    let all = [
        one("connections", None, connections, limits.connections),
        one(
            "controllers",
            None,
            snapshot.controllers.len() as u64,
            limits.controllers,
        ),
        one(
            "discovery_controllers",
            None,
            discovery as u64,
            limits.discovery_controllers,
        ),
        one(
            "all_queue_entries",
            None,
            snapshot.queue_entries,
            limits.all_queue_entries,
        ),
    ];
    let each = cores
        .iter()
        .zip(&snapshot.cores)
        .flat_map(|(&core, stats)| {
            let buffers = usize::try_from(stats.buffer_bytes).unwrap_or(usize::MAX);
            [
                one(
                    "payload_buffer_bytes",
                    Some(core),
                    stats.buffer_bytes_used,
                    buffers,
                ),
                one(
                    "send_lists",
                    Some(core),
                    stats.send_lists_used,
                    limits.send_lists,
                ),
                one(
                    "extent_tables",
                    Some(core),
                    stats.extent_tables_used,
                    limits.extent_tables,
                ),
                one(
                    "stash_bytes",
                    Some(core),
                    stats.stashed_bytes,
                    limits.stash_bytes,
                ),
            ]
        });
    all.into_iter().chain(each).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_has_its_own_count() {
        let stats = CoreStats {
            refused: 5,
            fresh_closed: 2,
            controllers_refused: 9,
            controllers_refused_per_host: 4,
            output_waits: 7,
            list_waits: 7,
            extents_in_flight_refused: 3,
            extent_tables_refused: 8,
            keep_alive_expirations: 1,
            controller_idle_timeouts: 6,
            discovery_idle_timeouts: 2,
            ..CoreStats::default()
        };
        let counts = LIMITED.map(|(limit, count)| (limit, count(&stats)));
        let counted: Vec<_> = counts.into_iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(
            counted,
            [
                ("connections", 3),
                ("fresh_connections", 2),
                ("controllers", 5),
                ("controllers_per_host", 4),
                ("send_lists", 7),
                ("extents_in_flight", 3),
                ("extent_tables", 8),
                ("controller_idle_timeout_ms", 6),
                ("discovery_idle_timeout_ms", 2),
            ]
        );
    }
}
