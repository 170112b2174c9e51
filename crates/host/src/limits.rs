//! Every limit of this crate, with its unit in the name and its reason beside it.

use base::Nanos;
use reactor::BufferClass;
use std::time::Duration;

/// Commands outstanding on one queue. The command identifier holds the slot's number and, in the
/// bits above, how often the slot was used, so that an answer to an old command is noticed.
pub const QUEUE_DEPTH_MAX: u16 = 4096;

/// Commands outstanding on the admin queue: one of the set-up, one keep-alive, one asynchronous
/// event request, aborts, and End Controller for each of the last lost associations.
pub const ADMIN_DEPTH: u16 = 31;

/// Lost associations that may still have a write in the target's device while a newer one is live.
/// With one more the host waits: each of them took a connection loss, and a write that hangs.
pub const FENCES_MAX: usize = 8;

/// Aborts that are outstanding at a time: controllers announce at least four by custom. Further ones
/// wait.
pub const ABORTS_MAX: usize = 4;

/// I/O queues that one channel opens at most: more connections per core only cost system calls.
pub const CHANNEL_QUEUES_MAX: u16 = 64;

/// I/O queues of one controller, over all cores.
pub const IO_QUEUES_MAX: u16 = 128;

/// The largest transfer that we ask for in one command, whatever the controller allows: what one
/// pool buffer holds.
pub const TRANSFER_BYTES_MAX: u32 = 1024 * 1024;

/// R2Ts that the controller may have outstanding for one command. One is what every controller
/// uses, and a queue's memory for them is depth times this.
pub const R2T_PER_COMMAND_MAX: usize = 4;

/// Extents of one command, whatever the controller takes: each is a run of blocks of its own in the
/// controller's answer, and more save hardly any further header.
pub const EXTENTS_MAX: u16 = 64;

/// Distance in responses at which a command's slot is prefetched: far enough to hide a miss behind
/// the work on those between.
pub const PREFETCH_PDUS: usize = 3;

/// Time for a termination request to leave and for the controller to close the connection because
/// of it; then the connection is reset.
pub const TERMINATION_TIME: Nanos = Nanos::from_millis(500);

/// Time for one step of the connection's set-up (TCP, ICResp, Connect, an admin command).
pub const SETUP_STEP_TIME: Nanos = Nanos::from_secs(10);

/// Time that an aborted command may still take before its connection is reset, or the time-out of
/// commands if that is shorter.
pub const ABORT_TIME: Nanos = Nanos::from_secs(5);

/// Interval at which outstanding commands are checked for time-outs: coarse, because the shortest
/// useful time-out is seconds long, and a look touches every slot.
pub const TIMEOUT_SCAN: Nanos = Nanos::from_millis(250);

/// Number of times that a command that timed out is sent again before it fails. Each time its
/// connection is reset, so a command that always times out would stop all others for ever.
pub const TIMEOUTS_PER_REQUEST_MAX: u8 = 2;

/// Time added to the keep-alive time-out before lost writes are sent again to a target that does
/// not end controllers on demand: the timer's granularity (100 ms by custom) and some slack.
pub const REPLAY_MARGIN: Nanos = Nanos::from_millis(500);

/// Number of times that a command refused without "do not retry" is sent again: at once, and then
/// after ever longer times, of half a second in total. A controller that is short of memory refuses
/// commands for as long as others hold it.
pub const RETRIES_PER_REQUEST_MAX: u8 = 10;

/// Time after which such a command is sent again for the second time; it doubles with each.
pub const RETRY_DELAY: Nanos = Nanos::from_millis(1);

/// Age of an association after which the next reconnect starts from the shortest delay.
pub const STABLE_TIME: Nanos = Nanos::from_secs(10);

/// Time for the controller to shut down on a graceful disconnect.
pub const SHUTDOWN_TIME: Nanos = Nanos::from_secs(5);

/// Interval at which CSTS is read while the controller becomes ready or shuts down.
pub const STATUS_POLL: Nanos = Nanos::from_millis(10);

/// Namespaces of a controller that we look at. Identify costs two round trips for each.
pub const NAMESPACES_MAX: usize = 1024;

/// Entries of a discovery log that we read; a larger one is an error of the controller's.
pub const DISCOVERY_ENTRIES_MAX: u64 = 4096;

/// Number of times that a discovery log that changes while it is read is read again.
pub const DISCOVERY_READS_MAX: u32 = 8;

/// Depth to which discovery follows referrals.
pub const REFERRAL_DEPTH_MAX: usize = 4;

/// Discovery controllers asked in one discovery.
pub const REFERRALS_MAX: usize = 32;

/// Controllers that one [`Host`](crate::Host) keeps at once.
pub const CONTROLLERS_MAX: usize = 256;

/// Time after which a queue, a channel, or the end of a lost controller that was refused is asked
/// for again: each attempt costs something, and queues are given back seldom.
pub const ASK_AGAIN: Nanos = Nanos::from_secs(1);

/// Step in which data that a controller asked for is cut where a caravan ends, in bytes: its
/// offsets must be multiples of 4, and less than a page is not worth a header.
pub const H2C_DATA_STEP: u32 = 4096;

/// Interval at which a waiting caller checks that the host's thread still runs: long enough to cost
/// nothing, and short enough to report a broken host soon.
pub const THREAD_LOOK: Duration = Duration::from_millis(200);

/// Blocking requests of one namespace in flight; further callers wait their turn.
pub const BLOCKING_REQUESTS_MAX: usize = 256;

/// Namespaces to which one thread has channels of its own for blocking calls; it reaches further
/// ones by the host's thread.
pub const CALLER_CHANNELS_MAX: usize = 64;

const _: () = assert!(
    QUEUE_DEPTH_MAX.is_power_of_two(),
    "slot numbers are the low bits of a CID"
);
const _: () = assert!(TRANSFER_BYTES_MAX.is_multiple_of(4096));

/// Buffers of a controller's own, for the data of admin commands. Three can be in use: the answer to
/// a command of the set-up or an inquiry, the one for its next command, and the log of tenants' events.
pub(crate) const ADMIN_BUFFERS: BufferClass = BufferClass {
    bytes: 4096,
    count: 4,
};

/// The longest command time-out, a year: with it, deadlines are times that come.
pub const COMMAND_TIMEOUT_MAX: Nanos = Nanos::from_secs(365 * 24 * 60 * 60);
