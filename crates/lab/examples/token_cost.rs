//! Prints the cost of the token scheduler per request, in nanoseconds of one core: the time to
//! enqueue and release a request, for tenants within their SLOs.
//!
//! ```text
//! cargo run --release -p switchyard-lab --example token_cost
//! ```
//!
//! The last case has the target's maximum of registered and connected tenants; the cost of a
//! request must not depend on silent tenants.

use anyhow::Result;
use base::{Nanos, Prng, Time};
use qos::cost::Price;
use qos::curve::Point;
use qos::{
    CostModel, Curve, Declaration, Percentile, PricedOperation, Slo, TenantId, TenantKey, Tenants,
    TokenPoolRules, TokenRate, TokenScheduler, Weight,
};
use std::time::Instant;

const ROUNDS: u32 = 100_000;
const RUNS: usize = 7;
/// Time between two rounds: long enough that 10,000 SLOs of an even share of the device hold.
const ROUND: Nanos = Nanos::from_micros(200);

/// Number of tenants, number of active tenants, and number of requests per round.
struct Case {
    name: &'static str,
    registered: u32,
    active: u32,
    requests: u32,
    best_effort: bool,
}

const CASES: [Case; 6] = [
    Case {
        name: "1 tenant, 1 request a round",
        registered: 1,
        active: 1,
        requests: 1,
        best_effort: false,
    },
    Case {
        name: "the same, best effort",
        registered: 1,
        active: 1,
        requests: 1,
        best_effort: true,
    },
    Case {
        name: "1 tenant, 16 requests a round",
        registered: 1,
        active: 1,
        requests: 16,
        best_effort: false,
    },
    Case {
        name: "16 tenants, 16 requests a round",
        registered: 16,
        active: 16,
        requests: 16,
        best_effort: false,
    },
    Case {
        name: "the same, best effort",
        registered: 16,
        active: 16,
        requests: 16,
        best_effort: true,
    },
    Case {
        name: "10,000 registered, 16 of them active",
        registered: 10_000,
        active: 16,
        requests: 16,
        best_effort: false,
    },
];

fn main() -> Result<()> {
    for case in &CASES {
        let mut runs = (0..RUNS)
            .map(|_| measure(case))
            .collect::<Result<Vec<_>>>()?;
        runs.sort_by(f64::total_cmp);
        println!("{:<40} {:>6.1} ns a request", case.name, runs[RUNS / 2]);
    }
    Ok(())
}

fn tenants(case: &Case) -> Result<Tenants> {
    let latency = [Nanos::from_micros(400); Percentile::COUNT];
    let curve = Curve::new(vec![Point {
        rate: TokenRate(100_000_000),
        latency,
    }])?;
    let model = CostModel::new(Price::milli(10_000)?, Price::milli(500)?);
    let mut tenants = Tenants::new(TokenPoolRules::default(), model, curve);
    for id in 0..case.registered {
        let slo = Slo {
            percentile: Percentile::P95,
            latency: Nanos::from_micros(500),
            iops: 90_000_000 / u64::from(case.registered),
            read_permille: 1000,
            request_bytes: 4096,
        };
        let declaration = if case.best_effort {
            Declaration::BestEffort(Weight::default())
        } else {
            Declaration::LatencyCritical(slo)
        };
        tenants.set(TenantId(id), declaration)?;
    }
    Ok(tenants)
}

/// Returns nanoseconds per request.
fn measure(case: &Case) -> Result<f64> {
    let tenants = tenants(case)?;
    let mut scheduler: TokenScheduler<u32> = TokenScheduler::new(tenants.pool().clone(), 1024)?;
    let accounts = (0..case.registered).filter_map(|id| tenants.account(TenantId(id)));
    let mut keys: Vec<TenantKey> = accounts.map(|account| scheduler.attach(account)).collect();
    // Active tenants are scattered among the silent ones.
    let mut prng = Prng::from_seed(1);
    for at in 0..case.active as usize {
        let other = at + usize::try_from(prng.below((keys.len() - at) as u64))?;
        keys.swap(at, other);
    }
    keys.truncate(case.active as usize);
    let mut now = Time(1);
    let mut released = 0u64;
    let began = Instant::now();
    for round in 0..ROUNDS {
        now = now + ROUND;
        for request in 0..case.requests {
            let key = keys[(round + request) as usize % keys.len()];
            let _ = scheduler.enqueue(key, PricedOperation::Read, 1, request);
        }
        scheduler.round(now, &mut |_, _| released += 1);
    }
    let nanos = began.elapsed().as_nanos();
    anyhow::ensure!(
        released >= u64::from(ROUNDS / 2),
        "only {released} requests went"
    );
    Ok(nanos as f64 / released as f64)
}
