//! The limits of the load generator, each with its reason.

use base::Nanos;

/// Most requests that one thread keeps in flight: what one queue of a target takes at most.
pub const DEPTH_MAX: u32 = 1023;

/// Most threads of one app; more than a few per core only measure the scheduler.
pub const COUNT_MAX: u32 = 256;

/// Most connections of one thread: what one channel of the host opens.
pub const QUEUES_MAX: u16 = 64;

/// Smallest and largest request in bytes: a logical block, and the largest transfer of a command.
pub const BLOCK_BYTES_MIN: u32 = 512;
/// See [`BLOCK_BYTES_MIN`].
pub const BLOCK_BYTES_MAX: u32 = 1024 * 1024;

/// Highest rate of one app in requests per second: far beyond what any machine does, and small
/// enough that the arithmetic of the schedule cannot overflow for centuries.
pub const RATE_MAX: u64 = 1_000_000_000;

/// Most blocks before a commit of an app that writes as a journal does: the transactions of file
/// systems are no larger than what a device's table takes at once.
pub const JOURNAL_BLOCKS_MAX: u32 = 1024;

/// Longest name of an app in bytes: a column of a table.
pub const NAME_BYTES_MAX: usize = 32;

/// An open loop that may poll does so for this long before an intended start, because a sleep of
/// the kernel's ends up to a timer slack (50 µs) and a wake-up (50 µs) late.
pub const PUNCTUALITY: Nanos = Nanos::from_micros(110);

/// Time after which a request that found no room is tried again when nothing is in flight with a
/// completion that would make room (a connection that is being made anew).
pub const BUSY_RETRY: Nanos = Nanos::from_millis(1);

/// Time without any answer after which a thread waits no longer for what is under way when the load
/// has ended: two command time-outs of a host, in which it connects anew and sends lost commands again.
/// This crate's own tests, of which the devices are in memory, wait a tenth of it.
pub const ANSWER_WAIT: Nanos = Nanos::from_secs(if cfg!(test) { 6 } else { 60 });

/// The same when the load was stopped: far beyond what a device takes that works.
pub const STOPPED_ANSWER_WAIT: Nanos = Nanos::from_secs(5);

/// Requests that one thread remembers the content of when it verifies: four bytes each. Beyond
/// that, only the beginning of the thread's part of the device is used.
pub const VERIFY_UNITS_MAX: u64 = 1 << 27;

/// Pool buffers of 4 KiB beyond the requests' own: what a channel needs for its administration.
pub const SPARE_BUFFERS: usize = 64;

/// Sockets that a thread's driver has room for: its queues (of each class, where the class follows
/// the I/O priority), an admin queue, and those of a connection that is being replaced.
pub const SOCKETS: usize = 512;

/// First requests under way at once, where there are many connections to try: as many hosts then
/// connect at a time.
pub const TRIES_AT_ONCE: usize = 64;

/// For each connection of many hosts: itself, and the one that replaces it.
pub const SOCKETS_PER_QUEUE: usize = 2;

/// Hosts that one load connects as: as many controllers as a target has identifiers for, with
/// room for others.
pub const HOSTS_MAX: u32 = 50_000;

const _: () = assert!(SOCKETS > 2 * switch::Class::COUNT * QUEUES_MAX as usize);
