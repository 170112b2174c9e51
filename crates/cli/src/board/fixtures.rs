//! Two looks at one target, a second apart.

use super::{Board, Sample};
use control::snapshot::{
    ClassStats, ControllerSnapshot, CoreSnapshot, Latency, NamespaceSnapshot, QueueSnapshot,
    ScheduledDevice, ServiceClass, Snapshot, SwitchSnapshot, TenantSnapshot, ThreadsSnapshot,
};
use switch::doorbell::Reason;
use switch::{Class, PerClass};
use target::{Authentication, ControllerKind, OperationSnapshot, SwitchStats, TenantStats};

/// Counts `n` times as much as in a second: 60 commands within 100 us, 36 within 500 us, 4 within
/// 2 ms.
fn latencies(n: u64) -> Latency {
    let mut latency = Latency::default();
    for (bucket, count) in [(3, 60 * n), (6, 36 * n), (9, 4 * n)] {
        latency.buckets[bucket] = count;
    }
    latency
}

fn operations(n: u64) -> OperationSnapshot {
    OperationSnapshot {
        completed: 100 * n,
        errors: n,
        bytes: 409_600 * n,
        latency: latencies(n),
    }
}

fn tenant(name: &str, class: ServiceClass, n: u64) -> TenantSnapshot {
    let mut tenant = TenantSnapshot {
        name: name.to_owned(),
        class,
        stats: TenantStats {
            waiting: 7,
            reads: 80 * n,
            read_bytes: 327_680 * n,
            writes: 15 * n,
            written_bytes: 61_440 * n,
            others: 5 * n,
            earned_milli: 600_000 * n,
            spent_milli: 230_000 * n,
            given_milli: 370_000 * n,
            taken_milli: 1000 * n,
            ..TenantStats::default()
        },
        ..TenantSnapshot::default()
    };
    tenant.latency.reads = latencies(n);
    tenant.windows.met = 12;
    tenant.windows.missed = 3;
    tenant
}

fn device(n: u64) -> ScheduledDevice {
    let promise = ServiceClass::LatencyCritical {
        percentile: "p95".to_owned(),
        latency_ns: 500_000,
    };
    let mut db = tenant("db", promise, n);
    db.reserved_tokens_per_second = 600;
    ScheduledDevice {
        name: "slow".to_owned(),
        tokens_per_second: 1000,
        reserved_tokens_per_second: 600,
        namespaces: Vec::new(),
        tenants: vec![
            tenant("backup", ServiceClass::BestEffort { weight: 20 }, 3 * n),
            db,
        ],
    }
}

fn class(n: u64) -> ClassStats {
    let mut class = ClassStats {
        queues: 2,
        outstanding_bytes: 65_536,
        load_bytes: 32_768,
        moved_in: 4,
        moved_out: 5,
        ..ClassStats::default()
    };
    class.caravans.rings[Reason::ALL[0].index()] = 10 * n;
    class.caravans.rings[Reason::ALL[1].index()] = 15 * n;
    class.caravans.requests = 100 * n;
    class.caravans.bytes = 4096 * n;
    class.receive.quanta = 11 * n;
    class.receive.preemptions = n;
    class.send.quanta = 13 * n;
    class.send.preemptions = n;
    class
}

fn switch(core: u32, seconds: u64) -> SwitchSnapshot {
    SwitchSnapshot {
        core,
        in_use: core == 0,
        stats: SwitchStats {
            steering_steps: 6,
            scaled_in: 8,
            scaled_out: 9,
            classes: PerClass::from_fn(|name| match name {
                Class::Latency => class(seconds),
                Class::Throughput => class(10 * seconds),
            }),
            ..SwitchStats::default()
        },
        ..SwitchSnapshot::default()
    }
}

/// Returns a look after so many seconds.
#[must_use]
pub fn after(seconds: u64) -> Snapshot {
    let core = |core| CoreSnapshot {
        core,
        busy_ns: 250_000_000 * seconds,
        ..CoreSnapshot::default()
    };
    let queue = |qid| QueueSnapshot {
        qid,
        depth: 128,
        core: Some(u32::from(qid) - 1),
        header_digest: true,
        data_digest: false,
    };
    let mut namespace = NamespaceSnapshot {
        nqn: "nqn.2026-11.com.example:disk".to_owned(),
        device: "slow".to_owned(),
        size_bytes: 8 << 20,
        ..NamespaceSnapshot::default()
    };
    namespace.namespace.nsid = 1;
    namespace.namespace.reads = operations(seconds);
    namespace.namespace.writes = operations(2 * seconds);
    Snapshot {
        uptime_ms: 90_000_000 + 1000 * seconds,
        cores: vec![core(0), core(1)],
        threads: ThreadsSnapshot {
            active: 1,
            min: 1,
            max: 2,
            ..ThreadsSnapshot::default()
        },
        switch: vec![switch(0, seconds), switch(1, seconds)],
        namespaces: vec![namespace],
        devices: vec![device(seconds)],
        controllers: vec![ControllerSnapshot {
            id: 3,
            kind: ControllerKind::Io,
            nqn: String::new(),
            host_nqn: "nqn.2026-11.com.example:db\u{1b}[2J".to_owned(),
            host_id: String::new(),
            identity: Authentication {
                tls: true,
                chap: false,
            },
            peer: ([127, 0, 0, 1], 4420).into(),
            io_queues: vec![queue(1), queue(2)],
            errors: 0,
        }],
        ..Snapshot::default()
    }
}

/// The board of a target between two moments.
pub fn between(earlier: Option<&Snapshot>, later: &Snapshot) -> Board {
    let sample = |target: &Snapshot| Sample {
        target: target.clone(),
        attachments: None,
    };
    Board::between(earlier.map(sample).as_ref(), &sample(later))
}
