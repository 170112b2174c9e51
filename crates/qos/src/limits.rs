//! All limits and defaults of this crate, with the unit in the name and the reason.

use base::Nanos;
use base::units::KIB;

// Costs.

/// The unit in which a request is counted: flash works at this granularity, so less costs as much.
/// `[ReFlex §3.2.1]`
pub const UNIT_BYTES: u64 = 4 * KIB as u64;

/// Units of the largest request: 4 GiB. A Deallocate may name more, and costs no more, so that it
/// can be paid for at all.
pub const UNITS_MAX: u32 = 1 << 20;

/// The highest price of a unit, in thousandths of a token: 1000 reads. With the largest request
/// this is 10⁹ tokens, and far below what an amount can hold.
pub const PRICE_MILLI_MAX: u32 = 1_000_000;

/// Units of Deallocate that cost as much as one written unit: it moves no data; the first costs as
/// much in any case.
pub const DEALLOCATE_UNITS: u32 = 64;

// Rates.

/// The highest rate of a device, in tokens a second: a thousand fast devices of today.
pub const RATE_MAX: u64 = 1_000_000_000;

/// A round at least every 5 % of the strictest SLO. `[ReFlex §3.2.2]`
pub const ROUND_PERMILLE: u64 = 50;

/// Part of a promised latency that is kept back, in thousandths: a request waits for a round (a
/// twentieth), and a round lets requests go together that came one by one, which costs as much
/// again.
pub const LATENCY_RESERVE_PERMILLE: u64 = 100;

/// The longest time between two rounds where no SLO says so; also where an SLO would allow more.
pub const ROUND_MAX: Nanos = Nanos::from_millis(1);

/// The shortest: below this, looking again costs more than waiting.
pub const ROUND_MIN: Nanos = Nanos::from_micros(5);

/// Longest rounds for which a device earns tokens at once, however long no thread looked: five are
/// a quarter of the strictest SLO, and what a burst of them adds to a request's wait.
pub const SPAN_ROUNDS: u64 = 5;

/// Largest overdraft of a latency-critical tenant, in tokens. `[ReFlex §3.2.2]`
pub const NEG_LIMIT_TOKENS: i64 = 50;

/// Rounds for which a latency-critical tenant may save tokens. `[ReFlex §3.2.2]`
pub const POS_LIMIT_ROUNDS: u64 = 3;

/// Part of its tokens beyond that which it gives away, in thousandths. `[ReFlex §3.2.2]`
pub const DONATION_PERMILLE: i64 = 900;

/// Time in which a latency-critical tenant earns the largest advance from best effort. A load that
/// is at its SLO in the mean, but with reads and writes at random, is 5 ms ahead or behind after a
/// second (device A, 70 K requests/s of which a fifth write), and twice as much after four.
pub const ADVANCE: Nanos = Nanos::from_millis(100);

/// Time without a request after which a latency-critical tenant is not active on a thread any more,
/// while it is on others: much longer than requests of one that uses several threads are apart.
pub const SILENCE: Nanos = Nanos::from_millis(10);

/// Period in which the control plane looks for tenants that are stopped at their limit: bursts are
/// much shorter.
pub const OVERRUN_WINDOW: Nanos = Nanos::from_millis(100);

/// Windows that are remembered: a second, which is long for a burst.
pub const OVERRUN_WINDOWS: u32 = 10;

/// Number of windows in which a tenant is stopped before it counts as overrun.
pub const OVERRUN_WINDOWS_LIMITED: u32 = 8;

// Tenants.

/// Tenants of a device: four times what the paper served. `[ReFlex §5.5]`
pub const TENANTS_MAX: usize = 65_536;

/// The largest weight of a best-effort tenant, as of a control group's.
pub const WEIGHT_MAX: u32 = 10_000;

/// The weight of a best-effort tenant that names none.
pub const WEIGHT_DEFAULT: u32 = 100;

/// Parts of a weight, so that a tenant on several threads divides it: exactly up to six threads.
pub const WEIGHT_PARTS: u64 = 60;

/// The strictest latency that an SLO can ask for; a network's round trip is longer.
pub const SLO_LATENCY_MIN: Nanos = Nanos::from_micros(10);

/// The laxest; beyond it, best effort says the same.
pub const SLO_LATENCY_MAX: Nanos = Nanos::from_secs(10);

/// The largest request that an SLO can be stated for: the largest transfer of a target.
pub const SLO_REQUEST_BYTES_MAX: u32 = 1024 * 1024;

/// Points of a calibration curve: one every 1 % of a device's rate, and spare.
pub const CURVE_POINTS_MAX: usize = 256;

/// Read shares with writes among them that a write's price is fitted to: two always agree
/// somewhere, and only a third can contradict.
pub const FIT_SHARES_MIN: usize = 3;

/// Latencies at which curves are compared.
pub const FIT_LATENCIES: usize = 8;

/// The lowest of them, in multiples of the highest p95 without load: below, what a request takes by
/// itself decides as much as the queue before it. The paper's strictest SLO is about that.
pub const FIT_LATENCY_FROM: u64 = 4;

/// Least ratio of the highest latency to the lowest; below it no load came near the device's limit.
pub const FIT_KNEE: u64 = 2;

/// Span of latencies that are compared, as a multiple of the lowest: beyond, every latency is at
/// the same load.
pub const FIT_LATENCY_SPAN: u64 = 4;

/// Spread, in thousandths, beyond which token rates at equal latency contradict each other.
pub const FIT_SPREAD_PERMILLE_MAX: u32 = 200;

/// Reads of an observation at least: one of them is beyond its p99.9.
pub const LIVE_READS_MIN: u64 = 1_000;

/// Observations that make a newer curve at least: two are a line, and always rise or fall.
pub const LIVE_POINTS_MIN: usize = 3;

/// Largest read share of a mix, in thousandths: the mildest one that calibration measures, as of
/// the paper's Fig. 1.
pub const LIVE_MIXED_PERMILLE_MAX: u16 = 990;

/// Part of the requested rate, in thousandths, that a device completes if it keeps up.
pub const FIT_SUSTAINED_PERMILLE: u64 = 970;

/// Assignments of tenants to connections.
pub const ASSIGNMENTS_MAX: usize = 65_536;

/// Ranges that a tenant may be granted in all.
pub const GRANTS_MAX: usize = 4_096;

// Threads.

/// Threads that schedule for one device: a bit each in one word.
pub const THREADS_MAX: u32 = 64;

/// A device is read-only once nothing else was asked of it for so long; a garbage collection that
/// writes started has ended by then.
pub const READ_ONLY_AFTER: Nanos = Nanos::from_millis(100);

/// Over which the read share is counted.
pub const SHARE_WINDOW: Nanos = Nanos::from_millis(10);

/// Requests that are priced at most to see what a tenant could use of a loan: what a thread takes
/// in one turn. `[ReFlex §3.1]`
pub const LOAN_REQUESTS: usize = 64;

const _: () = assert!(
    UNITS_MAX as i128 * PRICE_MILLI_MAX as i128 * 1_000_000 < i64::MAX as i128,
    "the dearest request has a price"
);
const _: () = assert!(
    RATE_MAX as i128 * ROUND_MAX.0 as i128 * SPAN_ROUNDS as i128 * 64 < i64::MAX as i128,
    "what a device earns at once fits, many times"
);
