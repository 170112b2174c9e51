//! Limits of the load generator, each with its reason.

use base::Nanos;

/// Most requests that one thread keeps in flight: the most that one queue of a target takes.
pub const DEPTH_MAX: u32 = 1023;

/// Most threads of one app; more than a few per core only measure the scheduler.
pub const COUNT_MAX: u32 = 256;

/// Most connections of one thread: the most that one channel of the host opens.
pub const QUEUES_MAX: u16 = 64;

/// Smallest and largest request in bytes: a logical block, and the largest transfer of a command.
pub const BLOCK_BYTES_MIN: u32 = 512;
/// See [`BLOCK_BYTES_MIN`].
pub const BLOCK_BYTES_MAX: u32 = 1024 * 1024;

/// Highest rate of one app in requests per second: far beyond what any machine does, and small
/// enough that the arithmetic of the schedule cannot overflow for centuries.
pub const RATE_MAX: u64 = 1_000_000_000;

/// Most blocks before a commit of an app with a journal: the transactions of file systems are no
/// larger than a device's table of requests.
pub const JOURNAL_BLOCKS_MAX: u32 = 1024;

/// Longest name of an app in bytes: a column of a table.
pub const NAME_BYTES_MAX: usize = 32;

/// Time for which an open loop polls before an intended start, if it may, because a sleep of the
/// kernel ends late by up to a timer slack (50 µs) and a wake-up (50 µs).
pub const PUNCTUALITY: Nanos = Nanos::from_micros(110);

/// Retry interval of a request that found no room while none is in flight whose completion would
/// make room (a connection that is being re-established).
pub const BUSY_RETRY: Nanos = Nanos::from_millis(1);

/// Time without any completion after which a thread stops waiting for outstanding requests at the
/// end of the load: two command time-outs of a host, in which it reconnects and replays lost
/// commands. This crate's own tests use devices in memory and wait a tenth of it.
pub const ANSWER_WAIT: Nanos = Nanos::from_secs(if cfg!(test) { 6 } else { 60 });

/// The same after the load was stopped: far longer than a working device takes.
pub const STOPPED_ANSWER_WAIT: Nanos = Nanos::from_secs(5);

/// Units whose content one verifying thread remembers, at 4 bytes each. A thread with more units
/// uses only the beginning of its part of the device.
pub const VERIFY_UNITS_MAX: u64 = 1 << 27;

/// Spare pool buffers of 4 KiB in addition to the requests' own, for a channel's administration.
pub const SPARE_BUFFERS: usize = 64;

/// Sockets of a thread's driver: its queues (of each class, if the class follows the I/O priority),
/// an admin queue, and those of a connection that is being replaced.
pub const SOCKETS: usize = 512;

/// Most first requests in flight at once if there are many connections to check: the number of
/// hosts that connect concurrently.
pub const TRIES_AT_ONCE: usize = 64;

/// Sockets per connection of many hosts: the connection itself, and its replacement.
pub const SOCKETS_PER_QUEUE: usize = 2;

/// Most hosts of one load: the number of controller identifiers of a target, less room for other
/// hosts.
pub const HOSTS_MAX: u32 = 50_000;

const _: () = assert!(SOCKETS > 2 * switch::Class::COUNT * QUEUES_MAX as usize);
