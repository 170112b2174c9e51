//! Every limit of this crate, with its unit in the name and the reason for its value.

use base::Nanos;
use reactor::BufferClass;
use std::time::Duration;

/// Commands outstanding on one queue. The command identifier holds the slot's number and, in the
/// bits above, the number of uses of the slot, so that an answer to an old command is detected.
pub const QUEUE_DEPTH_MAX: u16 = 4096;

/// Commands outstanding on the admin queue: one of the set-up, one Keep Alive, one Asynchronous
/// Event Request, aborts, and End Controller for each of the last lost associations.
pub const ADMIN_DEPTH: u16 = 31;

/// Lost associations that may still have a write in the target's device while a newer one is live.
/// Beyond this number the host waits, because each of them took a connection loss and a hanging
/// write.
pub const FENCES_MAX: usize = 8;

/// Aborts outstanding at a time: controllers usually allow at least four. Further aborts wait.
pub const ABORTS_MAX: usize = 4;

/// I/O queues that one channel opens at most, because more connections per core only cost system
/// calls.
pub const CHANNEL_QUEUES_MAX: u16 = 64;

/// I/O queues of one controller, over all cores.
pub const IO_QUEUES_MAX: u16 = 128;

/// Largest transfer of one command, whatever the controller allows: the size of one pool buffer.
pub const TRANSFER_BYTES_MAX: u32 = 1024 * 1024;

/// R2Ts that the controller may have outstanding for one command. Controllers use one; a queue's
/// memory for them is its depth times this.
pub const R2T_PER_COMMAND_MAX: usize = 4;

/// Extents of one command, whatever the controller allows: each is a separate run of blocks in the
/// controller's answer, and more hardly save any further header.
pub const EXTENTS_MAX: u16 = 64;

/// Number of responses by which the prefetch of a command's slot runs ahead: far enough to hide a
/// cache miss behind the work on the responses in between.
pub const PREFETCH_PDUS: usize = 3;

/// Time for a termination request to be sent and for the controller to close the connection; after
/// that the connection is reset.
pub const TERMINATION_TIME: Nanos = Nanos::from_millis(500);

/// Time for one step of the connection's set-up (TCP, ICResp, Connect, an admin command).
pub const SETUP_STEP_TIME: Nanos = Nanos::from_secs(10);

/// Time that an aborted command may still take before its connection is reset; the command time-out
/// if that is shorter.
pub const ABORT_TIME: Nanos = Nanos::from_secs(5);

/// Interval at which outstanding commands are checked for time-outs: coarse, because useful
/// time-outs are at least seconds long and a check touches every slot.
pub const TIMEOUT_SCAN: Nanos = Nanos::from_millis(250);

/// Number of times that a command that timed out is sent again before it fails. Each time its
/// connection is reset, so a command that always times out would block all other commands forever.
pub const TIMEOUTS_PER_REQUEST_MAX: u8 = 2;

/// Time added to the keep-alive time-out before lost writes are sent again to a target that does
/// not support End Controller: the timer's granularity (usually 100 ms) and a margin.
pub const REPLAY_MARGIN: Nanos = Nanos::from_millis(500);

/// Number of times that a command refused without "do not retry" is sent again: at once, then after
/// doubling delays, half a second in total. A controller that is short of memory refuses commands
/// until other commands free it.
pub const RETRIES_PER_REQUEST_MAX: u8 = 10;

/// Delay before such a command is sent again for the second time; doubles each time.
pub const RETRY_DELAY: Nanos = Nanos::from_millis(1);

/// Longest delay between two rounds of attempts at several addresses.
pub const FAILOVER_DELAY_MAX: Nanos = Nanos::from_millis(500);

/// Age of an association after which the next reconnect starts from the shortest delay.
pub const STABLE_TIME: Nanos = Nanos::from_secs(10);

/// Time for the controller to shut down on a graceful disconnect.
pub const SHUTDOWN_TIME: Nanos = Nanos::from_secs(5);

/// Interval at which CSTS is read while the controller becomes ready or shuts down.
pub const STATUS_POLL: Nanos = Nanos::from_millis(10);

/// Namespaces of a controller that the host identifies. Identify costs two round trips for each.
pub const NAMESPACES_MAX: usize = 1024;

/// Entries of a discovery log that the host reads; a larger log is an error of the controller.
pub const DISCOVERY_ENTRIES_MAX: u64 = 4096;

/// Number of times that a discovery log is read again because it changed while it was being read.
pub const DISCOVERY_READS_MAX: u32 = 8;

/// Depth to which discovery follows referrals.
pub const REFERRAL_DEPTH_MAX: usize = 4;

/// Discovery controllers queried in one discovery.
pub const REFERRALS_MAX: usize = 32;

/// Controllers that one [`Host`](crate::Host) keeps at once.
pub const CONTROLLERS_MAX: usize = 256;

/// Delay before a refused queue, channel or End Controller is requested again: each attempt has a
/// cost, and queues are seldom released.
pub const ASK_AGAIN: Nanos = Nanos::from_secs(1);

/// Alignment in bytes at which requested data is split at the end of a caravan: offsets must be
/// multiples of 4, and less than a page is not worth a header.
pub const H2C_DATA_STEP: u32 = 4096;

/// Interval at which a waiting caller checks that the host's thread still runs: long enough to cost
/// nothing, and short enough to report a broken host soon.
pub const THREAD_LOOK: Duration = Duration::from_millis(200);

/// Blocking requests of one namespace in flight; further callers wait.
pub const BLOCKING_REQUESTS_MAX: usize = 256;

/// Namespaces to which one thread has its own channels for blocking calls; it uses the host's
/// thread for further ones.
pub const CALLER_CHANNELS_MAX: usize = 64;

const _: () = assert!(
    QUEUE_DEPTH_MAX.is_power_of_two(),
    "slot numbers are the low bits of a CID"
);
const _: () = assert!(TRANSFER_BYTES_MAX.is_multiple_of(4096));

/// Buffers owned by a controller, for the data of admin commands. Two can be in use: the answer to
/// a command of the set-up or an inquiry, and the one for its next command.
pub(crate) const ADMIN_BUFFERS: BufferClass = BufferClass {
    bytes: 4096,
    count: 4,
};

/// AL of Authentication Receive: room for every message.
pub(crate) const AUTHENTICATION_BYTES: u32 = 4096;

/// Memory for one message of authentication.
pub(crate) const AUTHENTICATION_BUFFER: BufferClass = BufferClass {
    bytes: AUTHENTICATION_BYTES as usize,
    count: 1,
};

const _: () = assert!(secure::chap::MESSAGE_BYTES_MAX <= AUTHENTICATION_BUFFER.bytes);

/// The longest command time-out: one year, so that deadlines do not overflow.
pub const COMMAND_TIMEOUT_MAX: Nanos = Nanos::from_secs(365 * 24 * 60 * 60);
