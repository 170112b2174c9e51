//! Two looks at one target, a second apart.

use control::snapshot::{
    CaravanSnapshot, ClassOfService, ClassSnapshot, CommandCounters, ControllerSnapshot,
    CoreSnapshot, LatencyBucket, LatencyHistogram, NamespaceSnapshot, OperationCounters,
    QueueSnapshot, ServiceSnapshot, SharedDeviceSnapshot, Snapshot, SwitchSnapshot,
    TenantLatencies, TenantSnapshot, ThreadsSnapshot, TokenCounters,
};
use std::collections::BTreeMap;

/// What counts is `n` times what it counts in a second.
fn latencies(n: u64) -> LatencyHistogram {
    let bucket = |(up_to_ns, count)| LatencyBucket { up_to_ns, count };
    LatencyHistogram {
        buckets: [(100_000, 60 * n), (400_000, 36 * n), (2_000_000, 4 * n)]
            .map(bucket)
            .to_vec(),
        above: 0,
        sum_ns: 0,
    }
}

fn operations(n: u64) -> OperationCounters {
    OperationCounters {
        completed: 100 * n,
        errors: n,
        bytes: 409_600 * n,
        latency: latencies(n),
    }
}

fn tenant(name: &str, class: ClassOfService, n: u64) -> TenantSnapshot {
    TenantSnapshot {
        name: name.to_owned(),
        class,
        waiting: 7,
        commands: CommandCounters {
            reads: 80 * n,
            read_bytes: 327_680 * n,
            writes: 15 * n,
            written_bytes: 61_440 * n,
            others: 5 * n,
            errors: 0,
        },
        tokens_milli: TokenCounters {
            earned: 600_000 * n,
            spent: 230_000 * n,
            given: 370_000 * n,
            taken: 1000 * n,
        },
        windows_met: 12,
        windows_missed: 3,
        latency: TenantLatencies {
            reads: latencies(n),
            ..TenantLatencies::default()
        },
        ..TenantSnapshot::default()
    }
}

fn device(n: u64) -> SharedDeviceSnapshot {
    let promise = ClassOfService::LatencyCritical {
        percentile: "p95".to_owned(),
        latency_ns: 500_000,
    };
    let mut db = tenant("db", promise, n);
    db.reserved_tokens_per_second = 600;
    SharedDeviceSnapshot {
        device: "slow".to_owned(),
        tokens_per_second: 1000,
        reserved_tokens_per_second: 600,
        tenants: vec![
            tenant("backup", ClassOfService::BestEffort { weight: 20 }, 3 * n),
            db,
        ],
    }
}

fn class(n: u64) -> ClassSnapshot {
    ClassSnapshot {
        queues: 2,
        outstanding_bytes: 65_536,
        load_bytes: 32_768,
        caravans: CaravanSnapshot {
            rings: BTreeMap::from([("drained".to_owned(), 10 * n), ("full".to_owned(), 15 * n)]),
            sizes: Vec::new(),
            requests: 100 * n,
            bytes: 4096 * n,
        },
        receive: ServiceSnapshot {
            quanta: 11 * n,
            preemptions: n,
            ..ServiceSnapshot::default()
        },
        send: ServiceSnapshot {
            quanta: 13 * n,
            preemptions: n,
            ..ServiceSnapshot::default()
        },
        moved_in: 4,
        moved_out: 5,
    }
}

/// A look after so many seconds.
pub fn after(seconds: u64) -> Snapshot {
    let core = |core| CoreSnapshot {
        core,
        busy_ns: 250_000_000 * seconds,
        ..CoreSnapshot::default()
    };
    let queue = |qid| QueueSnapshot {
        qid,
        depth: 128,
        core: u32::from(qid) - 1,
        inflight: 9,
        ..QueueSnapshot::default()
    };
    Snapshot {
        uptime_ms: 90_000_000 + 1000 * seconds,
        cores: vec![core(0), core(1)],
        threads: ThreadsSnapshot {
            active: 1,
            min: 1,
            max: 2,
            ..ThreadsSnapshot::default()
        },
        switch: vec![SwitchSnapshot {
            core: 0,
            in_use: true,
            steering_steps: 6,
            scaled_in: 8,
            scaled_out: 9,
            classes: BTreeMap::from([
                ("latency".to_owned(), class(seconds)),
                ("throughput".to_owned(), class(10 * seconds)),
            ]),
            ..SwitchSnapshot::default()
        }],
        namespaces: vec![NamespaceSnapshot {
            nqn: "nqn.2026-11.com.example:disk".to_owned(),
            nsid: 1,
            device: "slow".to_owned(),
            size_bytes: 8 << 20,
            reads: operations(seconds),
            writes: operations(2 * seconds),
            ..NamespaceSnapshot::default()
        }],
        devices: vec![device(seconds)],
        controllers: vec![ControllerSnapshot {
            cntlid: 3,
            host_nqn: "nqn.2026-11.com.example:db\u{1b}[2J".to_owned(),
            io_queues: vec![queue(1), queue(2)],
            ..ControllerSnapshot::default()
        }],
        ..Snapshot::default()
    }
}
