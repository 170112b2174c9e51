//! Every limit of the control plane, with its reason.

use std::ops::RangeInclusive;
use std::time::Duration;

/// Entries of one queue: the target's promise to hosts is 1,024 (MQES, a 0's based field, would
/// allow 65,536), and memory for a queue is taken when it is created.
pub const QUEUE_DEPTH: RangeInclusive<u64> = 2..=1024;

/// I/O queues that one controller grants a host: one for each core of a large machine.
pub const IO_QUEUES_PER_CONTROLLER: RangeInclusive<u64> = 1..=128;

/// In-capsule data: 16 KiB is four pages in one capsule; more only delays the capsules behind it.
pub const IN_CAPSULE_DATA_BYTES: RangeInclusive<u64> = 0..=16_384;

/// In-capsule data is announced in units of 16 bytes (IOCCSZ) [NVMe Base 2.0 §5.17.2.1].
pub const IN_CAPSULE_DATA_UNIT_BYTES: u64 = 16;

/// One command's data: at least two pages (MDTS is a power of two of pages, and 0 is no limit), at
/// most 1 MiB, the size up to which buffers are pooled.
pub const MAX_TRANSFER_BYTES: RangeInclusive<u64> = 8_192..=1_048_576;

/// One H2CData PDU: at least 4,096 bytes (MAXH2CDATA) [NVMe-TCP 1.0 §3.6.2.3].
pub const MAX_H2C_DATA_BYTES: RangeInclusive<u64> = 4_096..=1_048_576;

/// H2CData PDUs are multiples of a dword [NVMe-TCP 1.0 §3.6.2.3].
pub const MAX_H2C_DATA_UNIT_BYTES: u64 = 4;

/// R2Ts outstanding for one command: beyond a few the pipe is full anyway.
pub const MAX_R2T: RangeInclusive<u64> = 1..=4;

/// Keep Alive timeouts: from the granularity of 100 ms up to an hour; 0 means none.
pub const KEEP_ALIVE_MS: RangeInclusive<u64> = 100..=3_600_000;

/// Networks of one tenant's hosts: one for each rack of a large hall.
pub const TENANT_NETWORKS_MAX: usize = 256;

/// Connections of the whole target: 65,536 is the field's width of a controller identifier.
pub const CONNECTIONS: RangeInclusive<u64> = 1..=65_536;

/// Addresses the target listens at: one for each network port of a large machine.
pub const LISTEN_ADDRESSES_MAX: usize = 64;

/// The highest core number: the size of a CPU set that every kernel takes.
pub const CORE_NUMBER_MAX: u32 = 1023;

/// Subsystems of one target: the discovery log page must fit one transfer of 1 MiB
/// (1,024 bytes an entry).
pub const SUBSYSTEMS_MAX: usize = 512;

/// Referrals: they share the discovery log page with the subsystems.
pub const REFERRALS_MAX: usize = 64;

/// Namespaces of one subsystem: the Changed Namespace List log page and the Active Namespace ID
/// list hold 1,024 entries each [NVMe Base 2.0 §5.16.1.5].
pub const NAMESPACES_PER_SUBSYSTEM_MAX: usize = 1024;

/// The highest namespace identifier that a target shares: lists of namespaces have one page.
pub const NSID_MAX: u32 = 1024;

/// Hosts allowed by name in one subsystem: they are looked through on every connect.
pub const ALLOWED_HOSTS_MAX: usize = 1024;

/// Bytes of a tenant's name: it becomes a label of a metric, and a part of a URL.
pub const TENANT_NAME_BYTES_MAX: usize = 64;

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

/// What a layer's delay adds for each KiB: with the largest transfer of 1 MiB, as much as
/// [`DELAY_US_MAX`].
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

/// Bytes of a configuration, as a file or as a request's body: the largest configuration that
/// the limits above allow is larger, but nobody writes it, and a body is held in memory.
pub const CONFIGURATION_BYTES_MAX: usize = 1024 * 1024;

/// Bytes of a target's state: two configurations, as JSON, which may have grown beyond what a file
/// or a body may say at once. It is written whole before each change.
pub const STATE_BYTES_MAX: usize = 32 * CONFIGURATION_BYTES_MAX;

/// Bytes of a device's model: a curve of 256 points takes 32 KiB.
pub const DEVICE_MODEL_BYTES_MAX: usize = 256 * 1024;

/// The share of a device's rate that a calibration may spend while it serves, in hundredths.
pub const CALIBRATION_SHARE_PERCENT: RangeInclusive<u32> = 1..=100;

/// How long such a calibration observes: shorter sees nothing, and after an hour the device is
/// another one.
pub const CALIBRATION_SECONDS: RangeInclusive<u32> = 1..=3600;

/// The same, where nobody says.
pub const CALIBRATION_SECONDS_DEFAULT: u32 = 30;

/// Problems listed in one report: more than a screenful is not read.
pub const PROBLEMS_MAX: usize = 50;

/// Connections to the HTTP interface at one time: some scrapers, some scripts, some people.
pub const API_CONNECTIONS_MAX: usize = 64;

/// How long a connection to the HTTP interface may neither read nor write: long enough for a
/// scraper that keeps its connection, short enough that forgotten ones make room.
pub const API_CONNECTION_IDLE_S: u64 = 120;

/// How long the body of a request may take: far more than a megabyte needs on one machine.
pub const API_BODY_S: u64 = 30;

/// Changes and snapshots that wait for the dataplane at one time; the rest queue behind them.
pub const API_BLOCKING_THREADS_MAX: usize = 4;

/// How long a stop waits for responses that are being written.
pub const API_STOP_GRACE_MS: u64 = 1_000;

const _: () = assert!(
    (SUBSYSTEMS_MAX + REFERRALS_MAX + 1) * 1024 <= 1_048_576,
    "a discovery log page fits one transfer"
);

/// How long a request for events may wait for one, in milliseconds: shorter than proxies between
/// have patience.
pub const EVENTS_WAIT_MS_MAX: u64 = 60_000;

/// How often a request that waits looks whether something happened: events are about seconds.
pub const EVENTS_LOOK: Duration = Duration::from_millis(100);
