//! Every limit and default of this crate, with its unit in the name and its reason beside it.

use base::Nanos;
use base::units::KIB;

// Caravans and doorbells.

/// Requests of a caravan: beyond this the gain per request is marginal and the wait is not.
/// `[i10 §3]`
pub const CARAVAN_REQUESTS: u32 = 16;

/// Bytes of a caravan: the largest packet that the kernel segments in one go, and the most that a
/// `Latency` packet should find before it in a core's receive work. `[i10 §2.3]`
pub const CARAVAN_BYTES: u64 = 64 * KIB as u64;

/// Segments of a caravan: two (header, data) for each of its requests, and as many again for data
/// in pieces.
pub const CARAVAN_IOVECS: u32 = 64;

/// Requests of one send where no `Latency` work is active: a whole window of small reads. (A send of
/// 64 answers carries 1.4 times as many 4 KiB reads as one of 16.)
pub const CARAVAN_ALONE_REQUESTS: u32 = 128;

/// Bytes of one send where no `Latency` work is active: 128 answers of 4 KiB, or four of 128 KiB,
/// which smaller sends make slower.
pub const CARAVAN_ALONE_BYTES: u64 = 512 * KIB as u64;

/// Segments of one send where no `Latency` work is active, in the same proportion.
pub const CARAVAN_ALONE_IOVECS: u32 = 512;

/// Bytes of bulk that leave between two `Latency` requests, on average, from which on these are
/// sparse: six sends. Larger ones then save bulk three sends for each request that waits for
/// half a send more.
pub const SPARSE_LATENCY_BYTES: u64 = 6 * CARAVAN_BYTES;

/// The smallest such number: fewer than one send.
pub const SPARSE_LATENCY_BYTES_MIN: u64 = 4 * KIB as u64;

/// The largest: with more, nothing is sparse, and it can be said in other ways.
pub const SPARSE_LATENCY_BYTES_MAX: u64 = 1024 * 1024 * KIB as u64;

/// The most that a pause between two `Latency` requests counts for, in multiples of the bound:
/// after the longest, a dozen requests that follow close on each other are dense again.
pub const SPARSE_LATENCY_PAUSES: u64 = 4;

/// Factor by which a send carries more beside sparse `Latency` requests.
pub const CARAVAN_SPARSE_FACTOR: u32 = 2;

/// The most that it may be told to be: sends of 1 MiB, which no `Latency` request should meet.
pub const CARAVAN_SPARSE_FACTOR_MAX: u32 = 16;

/// A host that asked for little counts as present for so long: many times the turns of a busy core,
/// and short beside what bulk loses by a pause of a light host.
pub const LIGHT_HOST_WINDOW: Nanos = Nanos::from_millis(10);

/// Bytes that one receive takes, beside a light host, on connections that are not I/O queues: 16
/// capsules without data, or a Connect.
pub const CONTROL_QUANTUM_BYTES: usize = 1152;

/// Data that one receive asks for at most, for its host to count as light beside others: a quarter
/// of a caravan, so that a light host is itself no load that another one has to wait for.
pub const LIGHT_RECEIVE_BYTES: u64 = CARAVAN_BYTES / 4;

/// Data that a light host asks for within [`LIGHT_HOST_WINDOW`] at most: twice what reads of 4 KiB
/// come to that follow each other after 20 µs.
pub const LIGHT_HOST_BYTES: u64 = 64 * CARAVAN_BYTES;

/// Factor by which the data counts among them that a receive of more than [`LIGHT_RECEIVE_BYTES`]
/// asks for: a light host may ask for four caravans of such bulk.
pub const LIGHT_HOST_BULK_FACTOR: u64 = 16;

/// Requests of a caravan at most: the deepest queue that a lane has.
pub const CARAVAN_REQUESTS_MAX: u32 = 4096;

/// Bytes of a caravan at most: a caravan is never split, so it fits the socket's buffer of 8 MiB.
/// `[i10 §3]`
pub const CARAVAN_BYTES_MAX: u64 = 8 * 1024 * KIB as u64;

/// Segments of a caravan at most: the kernel's `UIO_MAXIOV`.
pub const CARAVAN_IOVECS_MAX: u32 = 1024;

/// Buckets of the caravan-size histogram: 1, 2, 4 … 2,048 and more requests.
pub const CARAVAN_SIZE_BUCKETS: usize = 12;

/// Delay of a fixed doorbell after the first request. `[i10 §3]`
pub const DOORBELL_DELAY: Nanos = Nanos::from_micros(50);

/// The shortest delay of a fixed doorbell: below it, timers cost more than the batch saves, and
/// the immediate mode is the honest choice. (What the authors' code does as well.)
pub const DOORBELL_DELAY_MIN: Nanos = Nanos::from_micros(25);

/// The longest time for which a doorbell may hold a request: a thousand times what is useful on a
/// network of today, and shorter than every timeout.
pub const DOORBELL_HOLD_MAX: Nanos = Nanos::from_millis(100);

/// Longest time for which an adaptive doorbell holds a request: as long as i10's, which only work
/// that fills its caravans ever pays.
pub const DOORBELL_HOLD: Nanos = Nanos::from_micros(50);

/// Submitters with `Latency` work of a core up to which these send for themselves: two that poll on
/// one processor gain little on average and lose at the 99th percentile, and four lose both.
pub const DIRECT_SUBMITTERS: u32 = 1;

/// The most that they may be told to be: each has a connection of its own.
pub const DIRECT_SUBMITTERS_MAX: u32 = 64;

/// Time for which a completion that may wait is kept from its application beside `Latency` work: a
/// fraction of what a request of 16 takes there, and enough for a quarter of them.
pub const COMPLETION_HOLD: Nanos = Nanos::from_micros(100);

/// The longest that it may be told to be: more would be felt by what has few requests under way.
pub const COMPLETION_HOLD_MAX: Nanos = Nanos::from_millis(10);

/// The longest pause between two arrivals that the estimate of their pace takes seriously: far
/// beyond any hold, and forgotten within some thirty arrivals.
pub const ARRIVAL_GAP_MAX: Nanos = Nanos::from_millis(1);

/// Bytes of one request that the estimates take seriously, so that their products fit 64 bits.
pub const REQUEST_BYTES_MAX: u64 = 1 << 24;

// Loads.

/// Weight of a new sample in every moving average: 1 / 2^3. (The authors' code: 1/8.)
pub const EWMA_SHIFT: u32 = 3;

/// A core's load without traffic for so long counts as none. (The authors' code: 1,000 ms.)
pub const LOAD_RESET: Nanos = Nanos::from_secs(1);

/// Cores that the switch knows at most: what the kernel's affinity masks hold by default.
pub const CORES_MAX: usize = 1024;

// Request steering.

/// Bytes outstanding on a core from which its `Throughput` requests look for another:
/// sixteen requests of 64 KiB, the knee of their latency over load. `[blk-switch §3.2]`
pub const STEERING_THRESHOLD_BYTES: u64 = 16 * 64 * KIB as u64;

/// The smallest threshold: below one small request, every request would look elsewhere.
pub const STEERING_THRESHOLD_BYTES_MIN: u64 = 4 * KIB as u64;

/// The largest threshold: no core has more outstanding than this and still a use for steering.
pub const STEERING_THRESHOLD_BYTES_MAX: u64 = 1024 * 1024 * KIB as u64;

/// Requests that make a waiting caravan nearly full: one more steered there leaves almost at once.
pub const NEARLY_FULL_REQUESTS: u32 = CARAVAN_REQUESTS * 3 / 4;

// Application steering.

/// Period of application steering: for load that stays, not for bursts. `[blk-switch §3.3]`
pub const APPLICATION_STEERING_PERIOD: Nanos = Nanos::from_millis(10);

/// The shortest period: a thread moved more often than the kernel's scheduler runs it gains
/// nothing.
pub const APPLICATION_STEERING_PERIOD_MIN: Nanos = Nanos::from_millis(1);

/// The longest period: a minute of a wrong place is no steering any more.
pub const APPLICATION_STEERING_PERIOD_MAX: Nanos = Nanos::from_secs(60);

/// L*: a core with this `Latency` load takes no more `Latency` threads. The paper's 100 KB, which
/// are 24 requests of 4 KiB. `[blk-switch §3.3]`
pub const LATENCY_LOAD_MAX_BYTES: u64 = 24 * 4 * KIB as u64;

/// The largest L*, so that sums of loads fit 64 bits with ease.
pub const LATENCY_LOAD_MAX_BYTES_MAX: u64 = 1024 * 1024 * KIB as u64;

/// Moves of one class in a step of application steering: each is a system call and cold caches.
pub const MOVES_PER_STEP_MAX: usize = 64;

// Thread scaling.

/// Threads of a target that can be bounded: as many as share the tokens of a device.
pub const TARGET_THREADS_MAX: u32 = 64;

/// Period of thread scaling: the same as application steering's, for the same reason.
pub const THREAD_SCALING_PERIOD: Nanos = Nanos::from_millis(10);

/// A thread that has something to do for so much of its time is pressed: beyond it, what waits for
/// it grows out of proportion.
pub const THREAD_PRESSED_PERMILLE: u32 = 800;

/// Load from which on a thread that keeps no promises is pressed, too; below it, it is not the
/// thread that is slow.
pub const THREAD_LATE_PERMILLE: u32 = 500;

/// Load that a thread carries with ease: half of its time leaves room for bursts.
pub const THREAD_CALM_PERMILLE: u32 = 500;

/// Least difference in load at which a thread is worth sharing with; one more is not needed.
pub const THREAD_GAP_PERMILLE: u32 = 300;

/// Looks in a row that find a thread pressed before anything is done: a burst is over by then.
pub const THREAD_PRESSED_STEPS: u32 = 2;

/// Looks in a row that find a thread too many before it goes.
pub const THREAD_CALM_STEPS: u32 = 10;

/// Time that queues take to move, and numbers to show it.
pub const THREAD_SETTLE: Nanos = Nanos::from_millis(50);

/// Time for which a queue stays where it was brought before it may move to its arrival core, and
/// after which a queue without requests counts for nothing in that decision: placements on the host
/// have settled by then, and a move costs a quiet moment. `[blk-switch §3.3]` has 1 s for the loads
/// themselves.
pub const AFFINITY_DWELL: Nanos = Nanos::from_millis(100);

/// Time for which threads in use keep the queues that they have before one shares again: loads go
/// up and down, and a difference that does not last is not worth the moves.
pub const THREAD_SHARE_DWELL: Nanos = Nanos::from_millis(200);

/// Time for which a number of threads stays before it shrinks: growing is urgent, shrinking is not.
pub const THREAD_DWELL: Nanos = Nanos::from_millis(500);

// Service.

/// Bytes of `Throughput` work between two looks at the `Latency` queues: one caravan.
pub const QUANTUM_BYTES: u64 = CARAVAN_BYTES;

/// The smallest quantum: below one small request, looking costs more than serving.
pub const QUANTUM_BYTES_MIN: u64 = 4 * KIB as u64;

/// The largest quantum: the largest caravan.
pub const QUANTUM_BYTES_MAX: u64 = CARAVAN_BYTES_MAX;

/// Largest floor of a class, in thousandths, while those before it have work too: more than half
/// would turn the order of service around.
pub const FLOOR_PERMILLE_MAX: u16 = 500;

/// Default floor of `Throughput`, of the time: a hundredth is not noticed, and no request waits
/// behind endless `Latency` work until it times out.
pub const FLOOR_PERMILLE: u16 = 10;

/// The stretch over which a floor holds, where it is counted in bytes.
pub const FLOOR_WINDOW_BYTES: u64 = 1024 * KIB as u64;

/// The stretch over which a floor holds, where it is counted in time: longer than a quantum takes,
/// too short for starving to be noticed.
pub const FLOOR_WINDOW: Nanos = Nanos::from_millis(1);

/// The shortest stretch in bytes: one small request.
pub const FLOOR_WINDOW_BYTES_MIN: u64 = 4 * KIB as u64;

/// The longest stretch in bytes: beyond it, a floor is no protection against starving.
pub const FLOOR_WINDOW_BYTES_MAX: u64 = 1024 * 1024 * KIB as u64;

/// The shortest stretch of time: about as long as a quantum takes.
pub const FLOOR_WINDOW_MIN: Nanos = Nanos::from_micros(10);

/// The longest stretch of time: a tenth of what applications call a hang.
pub const FLOOR_WINDOW_MAX: Nanos = Nanos::from_secs(1);

/// Requests that unplug a queue, at most: the entries of a device's table.
pub const UNPLUG_THRESHOLD_MAX: u32 = TABLE_ENTRIES_MAX;

/// The longest time for which a request is plugged: ten times the thesis', beyond which a write
/// that is not awaited would be late for those that come to await it.
pub const UNPLUG_DELAY_MAX: Nanos = Nanos::from_millis(10);

/// Requests that unplug a queue of the baseline. `[Yu §4.5]`
pub const DISK_UNPLUG_THRESHOLD: u32 = 4;

/// The longest time for which the baseline plugs a request. `[Yu §4.5]`
pub const DISK_UNPLUG_DELAY: Nanos = Nanos::from_millis(3);

/// Entries of the table of a merged command. `[Yu §5.2]`
pub const TABLE_ENTRIES_MAX: u32 = 1024;

/// The shortest time after which a queue is taken over from a runner that does not run: longer than
/// a wake-up takes.
pub const HANDOVER_MIN: Nanos = Nanos::from_micros(100);

/// The longest one.
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
// The doorbell multiplies these without looking.
const _: () = assert!(CARAVAN_BYTES_MAX.checked_mul(ARRIVAL_GAP_MAX.0).is_some());
const _: () = assert!(REQUEST_BYTES_MAX.checked_mul(DOORBELL_HOLD_MAX.0).is_some());
