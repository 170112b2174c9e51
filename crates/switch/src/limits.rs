//! Limits and defaults of this crate, each with its unit in the name and its reason.

use base::Nanos;
use base::units::KIB;

// Caravans and doorbells.

/// Requests of a caravan: with more, the gain per request is marginal, the added wait is not. `[i10
/// §3]`
pub const CARAVAN_REQUESTS: u32 = 16;

/// Bytes of a caravan: the largest packet that the kernel segments at once, and the most that
/// should precede a `Latency` packet in a core's receive work. `[i10 §2.3]`
pub const CARAVAN_BYTES: u64 = 64 * KIB as u64;

/// Segments of a caravan: two (header, data) per request, and as many again for fragmented data.
pub const CARAVAN_IOVECS: u32 = 64;

/// Requests of one send without active `Latency` work: a whole window of small reads. (A send of 64
/// responses carries 1.4 times as many 4 KiB reads as one of 16.)
pub const CARAVAN_ALONE_REQUESTS: u32 = 128;

/// Bytes of one send without active `Latency` work: 128 responses of 4 KiB, or four of 128 KiB,
/// which are slower in smaller sends.
pub const CARAVAN_ALONE_BYTES: u64 = 512 * KIB as u64;

/// Segments of one send without active `Latency` work, in the same proportion.
pub const CARAVAN_ALONE_IOVECS: u32 = 512;

/// Average bulk bytes between two `Latency` requests from which the latter are sparse: six sends.
/// Larger sends then save bulk three sends for each `Latency` request, which waits for half a send
/// more.
pub const SPARSE_LATENCY_BYTES: u64 = 6 * CARAVAN_BYTES;

/// Minimum of [`SPARSE_LATENCY_BYTES`]: less than one send.
pub const SPARSE_LATENCY_BYTES_MIN: u64 = 4 * KIB as u64;

/// Maximum of [`SPARSE_LATENCY_BYTES`]: above it no work is sparse, which other knobs express.
pub const SPARSE_LATENCY_BYTES_MAX: u64 = 1024 * 1024 * KIB as u64;

/// Cap on a pause between two `Latency` requests, in multiples of the bound: after the longest
/// pause, a dozen requests in close succession count as dense again.
pub const SPARSE_LATENCY_PAUSES: u64 = 4;

/// Factor on the size of a send while `Latency` requests are sparse.
pub const CARAVAN_SPARSE_FACTOR: u32 = 2;

/// Maximum of [`CARAVAN_SPARSE_FACTOR`]: sends of 1 MiB, more than should delay any `Latency`
/// request.
pub const CARAVAN_SPARSE_FACTOR_MAX: u32 = 16;

/// Time for which a light host counts as present after a request: many turns of a busy core, and
/// short compared with the cost to bulk of a light host's pauses.
pub const LIGHT_HOST_WINDOW: Nanos = Nanos::from_millis(10);

/// Bytes per receive alongside a light host on connections that are not I/O queues: 16 capsules
/// without data, or a Connect.
pub const CONTROL_QUANTUM_BYTES: usize = 1152;

/// Maximum data requested in one receive of a light host: a quarter of a caravan, so that light
/// hosts do not delay each other.
pub const LIGHT_RECEIVE_BYTES: u64 = CARAVAN_BYTES / 4;

/// Maximum data requested by a light host within [`LIGHT_HOST_WINDOW`]: twice that of 4 KiB reads
/// every 20 µs.
pub const LIGHT_HOST_BYTES: u64 = 64 * CARAVAN_BYTES;

/// Factor on the data of a receive above [`LIGHT_RECEIVE_BYTES`]: a light host may request four
/// caravans of such bulk per window.
pub const LIGHT_HOST_BULK_FACTOR: u64 = 16;

/// Maximum requests of a caravan: the depth of the deepest queue of a lane.
pub const CARAVAN_REQUESTS_MAX: u32 = 4096;

/// Maximum bytes of a caravan: it is never split, so it must fit the socket's buffer of 8 MiB.
/// `[i10 §3]`
pub const CARAVAN_BYTES_MAX: u64 = 8 * 1024 * KIB as u64;

/// Maximum segments of a caravan: the kernel's `UIO_MAXIOV`.
pub const CARAVAN_IOVECS_MAX: u32 = 1024;

/// Buckets of the caravan-size histogram: 1, 2, 4 … 2,048 and more requests.
pub const CARAVAN_SIZE_BUCKETS: usize = 12;

/// Default delay of a fixed doorbell after the first request. `[i10 §3]`
pub const DOORBELL_DELAY: Nanos = Nanos::from_micros(50);

/// Minimum delay of a fixed doorbell: below it, timers cost more than the batch saves, and the
/// immediate mode is better. (The authors' code has the same limit.)
pub const DOORBELL_DELAY_MIN: Nanos = Nanos::from_micros(25);

/// Maximum hold time of a doorbell: a thousand times the useful time on today's networks, and
/// shorter than every timeout.
pub const DOORBELL_HOLD_MAX: Nanos = Nanos::from_millis(100);

/// Default hold time of an adaptive doorbell: i10's, incurred only by work that fills its caravans.
pub const DOORBELL_HOLD: Nanos = Nanos::from_micros(50);

/// Default maximum of a core's `Latency` submitters that send for themselves: two that poll on one
/// processor gain little on average and lose at the 99th percentile; four lose on both.
pub const DIRECT_SUBMITTERS: u32 = 1;

/// Maximum of [`DIRECT_SUBMITTERS`]: each has its own connection.
pub const DIRECT_SUBMITTERS_MAX: u32 = 64;

/// Default hold time of a completion that may wait, alongside `Latency` work: a fraction of the
/// latency of 16 outstanding requests, and long enough for a quarter of them.
pub const COMPLETION_HOLD: Nanos = Nanos::from_micros(100);

/// Maximum of [`COMPLETION_HOLD`]: a longer hold would slow applications with few outstanding
/// requests.
pub const COMPLETION_HOLD_MAX: Nanos = Nanos::from_millis(10);

/// Cap on an arrival gap in the pace estimate: far longer than any hold, and forgotten within about
/// thirty arrivals.
pub const ARRIVAL_GAP_MAX: Nanos = Nanos::from_millis(1);

/// Cap on the bytes of one request in the estimates, so that their products fit in 64 bits.
pub const REQUEST_BYTES_MAX: u64 = 1 << 24;

// Loads.

/// Weight of a new sample in every moving average: 1 / 2^3. (The authors' code: 1/8.)
pub const EWMA_SHIFT: u32 = 3;

/// Time without traffic after which a core's load is 0. (The authors' code: 1,000 ms.)
pub const LOAD_RESET: Nanos = Nanos::from_secs(1);

/// Maximum cores known to the switch: the default size of the kernel's affinity masks.
pub const CORES_MAX: usize = 1024;

// Request steering.

/// Outstanding bytes from which a core's `Throughput` requests are steered: sixteen requests of 64
/// KiB, the knee of their latency curve. `[blk-switch §3.2]`
pub const STEERING_THRESHOLD_BYTES: u64 = 16 * 64 * KIB as u64;

/// Minimum threshold: below one small request, every request would be steered.
pub const STEERING_THRESHOLD_BYTES_MIN: u64 = 4 * KIB as u64;

/// Maximum threshold: no core has more outstanding and still benefits from steering.
pub const STEERING_THRESHOLD_BYTES_MAX: u64 = 1024 * 1024 * KIB as u64;

/// Requests that make a waiting caravan nearly full: an additional one leaves almost at once.
pub const NEARLY_FULL_REQUESTS: u32 = CARAVAN_REQUESTS * 3 / 4;

// Application steering.

/// Period of application steering: for persistent load, not bursts. `[blk-switch §3.3]`
pub const APPLICATION_STEERING_PERIOD: Nanos = Nanos::from_millis(10);

/// Minimum period: moving a thread more often than the kernel schedules it gains nothing.
pub const APPLICATION_STEERING_PERIOD_MIN: Nanos = Nanos::from_millis(1);

/// Maximum period: a thread misplaced for a minute is not steered in any useful sense.
pub const APPLICATION_STEERING_PERIOD_MAX: Nanos = Nanos::from_secs(60);

/// L*: a core with this `Latency` load accepts no more `Latency` threads. The paper's 100 KB, which
/// are 24 requests of 4 KiB. `[blk-switch §3.3]`
pub const LATENCY_LOAD_MAX_BYTES: u64 = 24 * 4 * KIB as u64;

/// Maximum L*, so that sums of loads easily fit in 64 bits.
pub const LATENCY_LOAD_MAX_BYTES_MAX: u64 = 1024 * 1024 * KIB as u64;

/// Maximum moves of one class per step: each costs a system call and cold caches.
pub const MOVES_PER_STEP_MAX: usize = 64;

// Thread scaling.

/// Maximum threads of a target: as many as can share the tokens of a device.
pub const TARGET_THREADS_MAX: u32 = 64;

/// Period of thread scaling: that of application steering, for the same reason.
pub const THREAD_SCALING_PERIOD: Nanos = Nanos::from_millis(10);

/// Busy share from which a thread is pressed: beyond it, waiting times grow out of proportion.
pub const THREAD_PRESSED_PERMILLE: u32 = 800;

/// Busy share from which a thread that misses SLOs is pressed, too; below it, the thread is not the
/// cause.
pub const THREAD_LATE_PERMILLE: u32 = 500;

/// Load that a thread carries easily: half of its time leaves room for bursts.
pub const THREAD_CALM_PERMILLE: u32 = 500;

/// Minimum load difference that makes sharing worthwhile without an additional thread.
pub const THREAD_GAP_PERMILLE: u32 = 300;

/// Consecutive checks that must find a thread pressed before a step: a burst is over by then.
pub const THREAD_PRESSED_STEPS: u32 = 2;

/// Consecutive checks that must find a surplus thread before it is removed.
pub const THREAD_CALM_STEPS: u32 = 10;

/// Time for queues to move and for the measurements to reflect it.
pub const THREAD_SETTLE: Nanos = Nanos::from_millis(50);

/// Minimum time between a queue's placement and its move to its arrival core; a queue without
/// requests for this long is ignored in that decision. Placements on the host have settled by then,
/// and a move briefly pauses the queue. `[blk-switch §3.3]` uses 1 s for the loads themselves.
pub const AFFINITY_DWELL: Nanos = Nanos::from_millis(100);

/// Minimum time between two rounds of load sharing among threads in use: loads fluctuate, and a
/// short-lived difference is not worth the moves.
pub const THREAD_SHARE_DWELL: Nanos = Nanos::from_millis(200);

/// Minimum time before the number of threads shrinks: growing is urgent, shrinking is not.
pub const THREAD_DWELL: Nanos = Nanos::from_millis(500);

// Service.

/// Bytes of `Throughput` work between two checks of the `Latency` queues: one caravan.
pub const QUANTUM_BYTES: u64 = CARAVAN_BYTES;

/// Minimum quantum: below one small request, checking costs more than serving.
pub const QUANTUM_BYTES_MIN: u64 = 4 * KIB as u64;

/// Maximum quantum: the largest caravan.
pub const QUANTUM_BYTES_MAX: u64 = CARAVAN_BYTES_MAX;

/// Maximum floor of a class, in thousandths: more than half would reverse the service order.
pub const FLOOR_PERMILLE_MAX: u16 = 500;

/// Default floor of `Throughput` in thousandths of the time: 1 % is not noticeable, and no request
/// waits behind endless `Latency` work until it times out.
pub const FLOOR_PERMILLE: u16 = 10;

/// Default window of a floor counted in bytes.
pub const FLOOR_WINDOW_BYTES: u64 = 1024 * KIB as u64;

/// Default window of a floor counted in time: longer than a quantum takes, too short for starvation
/// to be noticed.
pub const FLOOR_WINDOW: Nanos = Nanos::from_millis(1);

/// Minimum window in bytes: one small request.
pub const FLOOR_WINDOW_BYTES_MIN: u64 = 4 * KIB as u64;

/// Maximum window in bytes: beyond it a floor does not prevent starvation.
pub const FLOOR_WINDOW_BYTES_MAX: u64 = 1024 * 1024 * KIB as u64;

/// Minimum window in time: about the duration of a quantum.
pub const FLOOR_WINDOW_MIN: Nanos = Nanos::from_micros(10);

/// Maximum window in time: a tenth of a typical application's hang timeout.
pub const FLOOR_WINDOW_MAX: Nanos = Nanos::from_secs(1);

/// Maximum requests that unplug a queue: the entries of a device's table.
pub const UNPLUG_THRESHOLD_MAX: u32 = TABLE_ENTRIES_MAX;

/// Maximum plug time of a request: ten times the thesis's, beyond which a later waiter for a
/// plugged write would be delayed.
pub const UNPLUG_DELAY_MAX: Nanos = Nanos::from_millis(10);

/// Requests that unplug a queue of the baseline. `[Yu §4.5]`
pub const DISK_UNPLUG_THRESHOLD: u32 = 4;

/// Maximum plug time of the baseline. `[Yu §4.5]`
pub const DISK_UNPLUG_DELAY: Nanos = Nanos::from_millis(3);

/// Entries of the table of a merged command. `[Yu §5.2]`
pub const TABLE_ENTRIES_MAX: u32 = 1024;

/// Minimum time before a queue is taken over from a runner that does not run: longer than a wake-up
/// takes.
pub const HANDOVER_MIN: Nanos = Nanos::from_micros(100);

/// Maximum time before such a take-over.
pub const HANDOVER_MAX: Nanos = Nanos::from_secs(1);

const _: () = assert!(THREAD_CALM_PERMILLE <= THREAD_LATE_PERMILLE);
const _: () = assert!(THREAD_LATE_PERMILLE < THREAD_PRESSED_PERMILLE);
const _: () = assert!(FLOOR_PERMILLE <= FLOOR_PERMILLE_MAX);
const _: () = assert!(DOORBELL_DELAY_MIN.0 <= DOORBELL_DELAY.0);
const _: () = assert!(DOORBELL_DELAY.0 <= DOORBELL_HOLD_MAX.0);
const _: () = assert!(DOORBELL_HOLD.0 <= ARRIVAL_GAP_MAX.0);
const _: () = assert!(SPARSE_LATENCY_BYTES <= SPARSE_LATENCY_BYTES_MAX);
const _: () = assert!(CARAVAN_SPARSE_FACTOR <= CARAVAN_SPARSE_FACTOR_MAX);
const _: () = assert!(CARAVAN_ALONE_REQUESTS <= CARAVAN_REQUESTS_MAX);
const _: () = assert!(CARAVAN_ALONE_BYTES <= CARAVAN_BYTES_MAX);
const _: () = assert!(CARAVAN_ALONE_IOVECS <= CARAVAN_IOVECS_MAX);
const _: () = assert!(CARAVAN_REQUESTS_MAX >> (CARAVAN_SIZE_BUCKETS - 1) == 2);
// The doorbell multiplies these without overflow checks.
const _: () = assert!(CARAVAN_BYTES_MAX.checked_mul(ARRIVAL_GAP_MAX.0).is_some());
const _: () = assert!(REQUEST_BYTES_MAX.checked_mul(DOORBELL_HOLD_MAX.0).is_some());
