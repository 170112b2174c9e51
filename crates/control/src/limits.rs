//! Every limit of the control plane, with its reason. Limits that an operator may tune are the
//! target's: [`target::limits::LIMITS`]. What a target can hold is also its own to say.

use std::ops::RangeInclusive;
use std::time::Duration;
pub use target::limits::{NAMESPACES_MAX, REFERRALS_MAX, SUBSYSTEMS_MAX};

/// Networks of one tenant's hosts: one for each rack of a large hall.
pub const TENANT_NETWORKS_MAX: usize = 256;

/// Addresses the target listens at: one for each network port of a large machine.
pub const LISTEN_ADDRESSES_MAX: usize = 64;

/// The highest core number: the size of a CPU set that every kernel takes.
pub const CORE_NUMBER_MAX: u32 = 1023;

/// Hosts allowed by name in one subsystem: they are looked through on every connect.
pub const ALLOWED_HOSTS_MAX: usize = 1024;

/// Bytes of a tenant's name: it becomes a label of a metric, and a part of a URL.
pub const TENANT_NAME_BYTES_MAX: usize = 64;

/// Attachments of one process: each has at least one thread and one ring.
pub const ATTACHMENTS_MAX: usize = 256;

/// Bytes of an attachment's name: it becomes a label of a metric, and a part of a URL.
pub const ATTACHMENT_NAME_BYTES_MAX: usize = 64;

/// Devices of one target.
pub const DEVICES_MAX: usize = 4096;

/// Folders for the files of devices that are added over the interface.
pub const DEVICE_FOLDERS_MAX: usize = 64;

/// Bytes of a device's name: it becomes a label of a metric.
pub const DEVICE_NAME_BYTES_MAX: usize = 64;

/// The largest device: what 64-bit file offsets can address.
pub const DEVICE_BYTES_MAX: u64 = i64::MAX as u64;

/// A layer's delay: longer than any host's own command time-out (30 s) tests nothing more.
pub const DELAY_US_MAX: u64 = 60_000_000;

/// Delay of a layer for each KiB: with the largest transfer of 1 MiB, as much as [`DELAY_US_MAX`].
pub const DELAY_PER_KIB_NS_MAX: u64 = DELAY_US_MAX * 1000 / 1024;

/// Rules of one fault layer: they are looked through on every request.
pub const FAULT_RULES_MAX: usize = 64;

/// Bytes of a name without its final zero [NVMe Base 2.0 §4.5].
pub const NQN_BYTES_MAX: usize = 223;

/// Bytes of the serial number in Identify Controller [NVMe Base 2.0 §5.17.2.1].
pub const SERIAL_BYTES_MAX: usize = 20;

/// Bytes of the model number in Identify Controller [NVMe Base 2.0 §5.17.2.1].
pub const MODEL_BYTES_MAX: usize = 40;

/// Bytes of a Unix socket's path without its final zero (`sun_path` has 108).
pub const UNIX_PATH_BYTES_MAX: usize = 107;

/// Bytes of a configuration, as a file or as a request's body: the largest configuration that the
/// limits above allow is larger, but has no use, and a body is held in memory.
pub const CONFIGURATION_BYTES_MAX: usize = 1024 * 1024;

/// Bytes of a target's state: two configurations, as JSON, which may have grown beyond what a file
/// or a body may say at once. It is written whole before each change.
pub const STATE_BYTES_MAX: usize = 32 * CONFIGURATION_BYTES_MAX;

/// Bytes of a device that are zeroed at once, and then synced: requests for the page in which they
/// begin wait for that.
pub const ERASE_PIECE_BYTES: u64 = 64 * 1024 * 1024;

/// Bytes of a device's model: a curve of 256 points takes 32 KiB.
pub const DEVICE_MODEL_BYTES_MAX: usize = 256 * 1024;

/// The share of a device's rate that a calibration may spend while it serves, in hundredths.
pub const CALIBRATION_SHARE_PERCENT: RangeInclusive<u32> = 1..=100;

/// Length of such a calibration: a shorter one sees nothing, and after an hour the device is
/// another one.
pub const CALIBRATION_SECONDS: RangeInclusive<u32> = 1..=3600;

/// Its default.
pub const CALIBRATION_SECONDS_DEFAULT: u32 = 30;

/// Problems listed in one report: more than a screenful is not read.
pub const PROBLEMS_MAX: usize = 50;

/// Connections to the HTTP interface at one time: two, so that a forgotten one leaves room for another,
/// up to as many as a process with the usual 1,024 files has for anything.
pub const API_CONNECTIONS: RangeInclusive<u64> = 2..=1024;

/// Their default: some scrapers, some scripts, some people.
pub const API_CONNECTIONS_DEFAULT: u64 = 64;

/// Times that the HTTP interface waits for a client, in milliseconds: a tenth of a second is enough on
/// one machine, and more than an hour is as good as no limit.
pub const API_TIME_MS: RangeInclusive<u64> = 100..=3_600_000;

/// Time for which a connection to the HTTP interface may neither read nor write while no answer is
/// due: long enough for a scraper that keeps its connection, short enough that forgotten ones make
/// room.
pub const IDLE_MS_DEFAULT: u64 = 120_000;

/// Time from the start of a connection to the HTTP interface to the end of its first request's head:
/// a client on this machine sends it at once.
pub const REQUEST_MS_DEFAULT: u64 = 10_000;

/// Time for the body of a request: far more than a megabyte needs on one machine.
pub const BODY_MS_DEFAULT: u64 = 30_000;

/// Changes and snapshots that wait for the dataplane at one time; the rest queue behind them.
pub const API_BLOCKING_THREADS_MAX: usize = 4;

/// Time between two lines of the log about connections that the HTTP interface cannot accept.
pub const API_ACCEPT_LOG_PERIOD_MS: u64 = 60_000;

/// Time for which a stop waits for responses that are being written.
pub const API_STOP_GRACE_MS: u64 = 1_000;

/// Longest wait of a request for events, in milliseconds: shorter than the patience of proxies
/// between.
pub const EVENTS_WAIT_MS_MAX: u64 = 60_000;

/// Interval at which a waiting request looks for events: events are about seconds.
pub const EVENTS_LOOK: Duration = Duration::from_millis(100);
