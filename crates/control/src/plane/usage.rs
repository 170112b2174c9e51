//! Use of the target's limits, and the refusals and waits that they cause.

use crate::snapshot::{LimitedSnapshot, UsageSnapshot};
use target::{ControllerKind, CoreStats, Limits, Snapshot};

/// A limit, and the counter of those that it held back.
type Row = (&'static str, fn(&CoreStats) -> u64);

// A core publishes one number after the other, so a part may be ahead of its whole for a moment.
/// Limits that refuse or delay, by the key in a configuration or a name of their own.
const LIMITED: [Row; 28] = [
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
    ("extents_in_flight", |s| s.extents_in_flight_refused),
    ("extent_tables", |s| s.extent_tables_refused),
    ("controller_idle_timeout_ms", |s| s.controller_idle_timeouts),
    ("discovery_idle_timeout_ms", |s| s.discovery_idle_timeouts),
    ("connect_timeout_ms", |s| s.connect_timeouts),
    ("pdu_timeout_ms", |s| s.pdu_timeouts),
    ("tcp_user_timeout_ms", |s| s.socket_timeouts),
    ("stall_timeout_ms", |s| s.stall_timeouts),
    ("transfer_timeout_ms", |s| s.transfer_timeouts),
    ("pause_patience_ms", |s| s.pause_timeouts),
    ("linger_ms", |s| s.linger_timeouts),
];

/// Returns the refusals and waits that each limit caused; `total` are the counters of all cores together.
pub(super) fn limited(snapshot: &Snapshot, total: &CoreStats) -> Vec<LimitedSnapshot> {
    let of_cores = LIMITED.iter().map(|(limit, count)| (*limit, count(total)));
    let changes = [("change_timeout_ms", snapshot.late_changes)];
    let limited = of_cores.chain(changes);
    let limited = limited.map(|(limit, count)| LimitedSnapshot {
        limit: limit.to_owned(),
        count,
    });
    limited.collect()
}

/// The use of a limit: its name, what is in use, and the limit.
type Usage = (&'static str, u64, usize);

/// Rows of a table of [`Usage`].
macro_rules! usage {
    ($($limit:literal => $used:expr, $max:expr;)+) => {
        [$(($limit, $used, $max)),+]
    };
}

/// Returns the use of limits; `cores` are the processors of the target's threads.
pub(super) fn usage(snapshot: &Snapshot, cores: &[u32]) -> Vec<UsageSnapshot> {
    let one = |core| {
        move |(limit, used, max): Usage| UsageSnapshot {
            limit: limit.to_owned(),
            core,
            used,
            max: max as u64,
        }
    };
    let each = cores
        .iter()
        .zip(&snapshot.cores)
        .flat_map(|(&core, stats)| {
            let of_core = usage_of_core(stats, &snapshot.limits).into_iter();
            of_core.map(one(Some(core)))
        });
    let all = usage_of_target(snapshot).into_iter().map(one(None));
    all.chain(each).collect()
}

/// Returns the use of what the whole target has.
fn usage_of_target(snapshot: &Snapshot) -> [Usage; 5] {
    let limits = &snapshot.limits;
    let sum = |count: fn(&CoreStats) -> u64| snapshot.cores.iter().map(count).sum();
    let discovery = snapshot.controllers.iter();
    let discovery = discovery.filter(|c| c.kind == ControllerKind::Discovery);
    usage! {
        "connections" => sum(|core| core.connections), limits.connections;
        "fresh_connections" => sum(|core| core.fresh_connections), limits.fresh_max();
        "controllers" => snapshot.controllers.len() as u64, limits.controllers;
        "discovery_controllers" => discovery.count() as u64, limits.discovery_controllers;
        "all_queue_entries" => snapshot.queue_entries, limits.all_queue_entries;
    }
}

/// Returns the use of what a core has.
fn usage_of_core(stats: &CoreStats, limits: &Limits) -> [Usage; 4] {
    let buffers = usize::try_from(stats.buffer_bytes).unwrap_or(usize::MAX);
    usage! {
        "payload_buffer_bytes" => stats.buffer_bytes_used, buffers;
        // Commands without a buffer share as much as the buffers have.
        "work_bytes" => stats.work_bytes, buffers;
        "send_lists" => stats.send_lists_used, limits.send_lists;
        "extent_tables" => stats.extent_tables_used, limits.extent_tables;
    }
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
            socket_timeouts: 1,
            linger_timeouts: 5,
            ..CoreStats::default()
        };
        let target = target::Target::new(Limits::default(), 1).expect("the defaults");
        let mut snapshot = target.snapshot();
        snapshot.late_changes = 4;
        let counts = limited(&snapshot, &stats);
        let counted = counts.iter().filter(|limited| limited.count > 0);
        let counted: Vec<_> = counted.map(|l| (l.limit.as_str(), l.count)).collect();
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
                ("tcp_user_timeout_ms", 1),
                ("linger_ms", 5),
                ("change_timeout_ms", 4),
            ]
        );
    }

    /// `connect_timeout_ms` was not there.
    #[test]
    fn the_operators_page_has_every_limit_that_is_counted() {
        let page = include_str!("../../../../docs/guide/operate.md");
        let target = target::Target::new(Limits::default(), 1).expect("the defaults");
        let snapshot = target.snapshot();
        let limited = limited(&snapshot, &CoreStats::default()).into_iter();
        let usage = usage(&snapshot, &[0]).into_iter();
        for limit in limited.map(|l| l.limit).chain(usage.map(|u| u.limit)) {
            let share = limit.ends_with("_buffer_share") && page.contains("`*_buffer_share`");
            assert!(share || page.contains(&format!("`{limit}`")), "{limit}");
        }
    }

    #[test]
    fn what_is_in_use_stands_beside_its_limit() {
        let target = target::Target::new(Limits::default(), 2).expect("the defaults");
        let mut snapshot = target.snapshot();
        for core in &mut snapshot.cores {
            core.fresh_connections = 5;
        }
        snapshot.cores[1] = CoreStats {
            buffer_bytes: 900,
            work_bytes: 7,
            ..snapshot.cores[1]
        };
        let usage = usage(&snapshot, &[4, 8]);
        let of = |limit: &str, core| {
            let mut found = usage.iter().filter(|u| u.limit == limit && u.core == core);
            let found = found.next().expect("it is shown");
            (found.used, found.max)
        };
        assert_eq!(of("fresh_connections", None), (10, 8192));
        assert_eq!(of("work_bytes", Some(8)), (7, 900));
    }
}
