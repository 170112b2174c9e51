//! Every limit and default of this crate, with its unit in the name and its reason.

use base::Nanos;
use base::units::KIB;

// Costs.

/// The unit in which a request is counted. Flash works at this granularity, so smaller requests
/// cost as much. `[ReFlex §3.2.1]`
pub const UNIT_BYTES: u64 = 4 * KIB as u64;

/// Maximum units of a request: 4 GiB. A Deallocate may name more and costs no more, so that it can
/// always be paid for.
pub const UNITS_MAX: u32 = 1 << 20;

/// Maximum price of a unit, in thousandths of a token: 1000 reads. With the largest request this is
/// 10⁹ tokens, far below the range of an amount.
pub const PRICE_MILLI_MAX: u32 = 1_000_000;

/// Units of Deallocate that cost as much as one written unit, because no data moves; one written
/// unit is the minimum.
pub const DEALLOCATE_UNITS: u32 = 64;

// Rates.

/// Maximum rate of a device, in tokens per second: a thousand fast devices of today.
pub const RATE_MAX: u64 = 1_000_000_000;

/// Maximum time between rounds, in thousandths of the strictest SLO. `[ReFlex §3.2.2]`
pub const ROUND_PERMILLE: u64 = 50;

/// Part of an SLO's latency that is kept in reserve, in thousandths. A request waits for a round (a
/// twentieth), and a round releases requests together that arrived one by one, which costs the same
/// again.
pub const LATENCY_RESERVE_PERMILLE: u64 = 100;

/// Maximum time between two rounds, with or without an SLO.
pub const ROUND_MAX: Nanos = Nanos::from_millis(1);

/// Minimum time between two rounds: below it, a round costs more than waiting.
pub const ROUND_MIN: Nanos = Nanos::from_micros(5);

/// Maximum number of longest rounds for which a device earns tokens at once, even if no thread ran
/// a round for longer. Five are a quarter of the strictest SLO, and a burst of them adds that to a
/// request's wait.
pub const SPAN_ROUNDS: u64 = 5;

/// Maximum overdraft of a latency-critical tenant, in tokens. `[ReFlex §3.2.2]`
pub const NEG_LIMIT_TOKENS: i64 = 50;

/// Rounds for which a latency-critical tenant may save tokens. `[ReFlex §3.2.2]`
pub const POS_LIMIT_ROUNDS: u64 = 3;

/// Part of its tokens above that which it donates, in thousandths. `[ReFlex §3.2.2]`
pub const DONATION_PERMILLE: i64 = 900;

/// Time in which a latency-critical tenant earns its maximum advance from best effort. A load at
/// its SLO on average, but with reads and writes in random order, is 5 ms ahead or behind after a
/// second (device A, 70 K requests/s of which a fifth are writes), and twice as much after four.
pub const ADVANCE: Nanos = Nanos::from_millis(100);

/// Time without a request after which a latency-critical tenant stops being active on a thread
/// while it is active on other threads: much longer than the interval between requests of a tenant
/// that uses several threads.
pub const SILENCE: Nanos = Nanos::from_millis(10);

/// Period in which the control plane checks for tenants that are stopped at their limit: bursts are
/// much shorter.
pub const OVERRUN_WINDOW: Nanos = Nanos::from_millis(100);

/// Windows remembered: one second, long for a burst.
pub const OVERRUN_WINDOWS: u32 = 10;

/// Number of windows with a stop from which a tenant counts as overrunning.
pub const OVERRUN_WINDOWS_LIMITED: u32 = 8;

// Tenants.

/// Maximum tenants of a device: four times the paper's. `[ReFlex §5.5]`
pub const TENANTS_MAX: usize = 65_536;

/// Maximum weight of a best-effort tenant, like a control group's.
pub const WEIGHT_MAX: u32 = 10_000;

/// Default weight of a best-effort tenant.
pub const WEIGHT_DEFAULT: u32 = 100;

/// Parts of a weight, so that a tenant on several threads divides it: exactly up to six threads.
pub const WEIGHT_PARTS: u64 = 60;

/// Minimum latency of an SLO; a network's round trip is longer.
pub const SLO_LATENCY_MIN: Nanos = Nanos::from_micros(10);

/// Maximum latency of an SLO; beyond it, best effort is equivalent.
pub const SLO_LATENCY_MAX: Nanos = Nanos::from_secs(10);

/// Maximum request size of an SLO: the largest transfer of a target.
pub const SLO_REQUEST_BYTES_MAX: u32 = 1024 * 1024;

/// Maximum points of a curve: one per 1 % of a device's rate, and spare.
pub const CURVE_POINTS_MAX: usize = 256;

/// Minimum number of read shares with writes for the fit of a write's price: two always agree, only
/// a third can contradict.
pub const FIT_SHARES_MIN: usize = 3;

/// Number of latencies at which curves are compared.
pub const FIT_LATENCIES: usize = 8;

/// The lowest of them, in multiples of the highest p95 without load: below, the request's own
/// service time matters as much as the queue. The paper's strictest SLO is about that.
pub const FIT_LATENCY_FROM: u64 = 4;

/// Minimum ratio of the highest latency to the lowest; below it no load came near the device's
/// limit.
pub const FIT_KNEE: u64 = 2;

/// Maximum ratio of the compared latencies: beyond, every latency is at the same load.
pub const FIT_LATENCY_SPAN: u64 = 4;

/// Maximum spread of token rates at equal latency, in thousandths; above it, measurements
/// contradict each other.
pub const FIT_SPREAD_PERMILLE_MAX: u32 = 200;

/// Minimum reads of an observation: one of them exceeds its p99.9.
pub const LIVE_READS_MIN: u64 = 1_000;

/// Minimum observations for a newer curve: two form a line that always rises or falls.
pub const LIVE_POINTS_MIN: usize = 3;

/// Maximum read share of a mix, in thousandths: the highest that calibration measures, as in the
/// paper's Fig. 1.
pub const LIVE_MIXED_PERMILLE_MAX: u16 = 990;

/// Minimum completed part of the offered rate, in thousandths, of a device that keeps up.
pub const FIT_SUSTAINED_PERMILLE: u64 = 970;

/// Maximum number of assignments of tenants to connections.
pub const ASSIGNMENTS_MAX: usize = 65_536;

/// Maximum number of ranges granted to a tenant.
pub const GRANTS_MAX: usize = 4_096;

// Placement.

/// Maximum nodes of a cluster: ten times the size at which a decision is measured.
pub const NODES_MAX: usize = 10_000;

/// Maximum volumes of a cluster: ten times the number with which decisions are measured.
pub const VOLUMES_MAX: usize = 1_000_000;

/// Maximum legs of a volume.
pub const LEGS_MAX: u8 = 4;

/// Maximum part of its tokens that a node in use loses to a volume of similar latency, in parts per
/// million: the goal for all losses of placement together.
pub const SIMILAR_PPM: u64 = 50_000;

/// Weight of a wasted token in the choice of a node, against an unused part of the same size: a
/// volume wastes tokens as long as it stays, while an unused part waits for the next volume.
pub const WASTE_WEIGHT: u64 = 100;

/// Number of nodes that cannot be emptied, or relaxed, after which rebalancing stops to try: each
/// takes up to a millisecond in a large cluster.
pub const REBALANCE_FAILURES: usize = 32;

// Threads.

/// Maximum threads that schedule for one device: one bit each in a word.
pub const THREADS_MAX: u32 = 64;

/// Time without any other operation after which a device's load is read-only; garbage collection
/// started by writes has ended by then.
pub const READ_ONLY_AFTER: Nanos = Nanos::from_millis(100);

/// Window over which the read share is counted.
pub const SHARE_WINDOW: Nanos = Nanos::from_millis(10);

/// Maximum requests priced to determine how much of a loan a tenant can use: a thread's batch per
/// turn. `[ReFlex §3.1]`
pub const LOAN_REQUESTS: usize = 64;

const _: () = assert!(
    UNITS_MAX as i128 * PRICE_MILLI_MAX as i128 * 1_000_000 < i64::MAX as i128,
    "the dearest request has a price"
);
const _: () = assert!(
    RATE_MAX as i128 * ROUND_MAX.0 as i128 * SPAN_ROUNDS as i128 * 64 < i64::MAX as i128,
    "what a device earns at once fits, many times"
);
