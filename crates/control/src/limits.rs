//! Every limit of the control plane, with its reason.

use std::ops::RangeInclusive;
use std::time::Duration;

/// A key of `[limits]`: what hosts are promised, and how much of the target they may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The key, with the unit in it.
    pub key: &'static str,
    /// The value of a configuration that does not name it. Where it is 0 and out of the range, 0
    /// stands for "none".
    pub default: u64,
    /// The values that are allowed.
    pub range: RangeInclusive<u64>,
    /// Those among them that are.
    pub step: Step,
}

/// Values within a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// All multiples of a number, above 0.
    MultipleOf(u64),
    /// Powers of two.
    PowerOfTwo,
}

impl Limit {
    const fn new(key: &'static str, default: u64, range: RangeInclusive<u64>) -> Self {
        Self::stepped(key, default, range, Step::MultipleOf(1))
    }

    const fn stepped(
        key: &'static str,
        default: u64,
        range: RangeInclusive<u64>,
        step: Step,
    ) -> Self {
        Self {
            key,
            default,
            range,
            step,
        }
    }
}

/// Times that the target waits for a host: a tenth of a second is below every network's hiccups,
/// and who wants more than an hour wants no limit.
const PATIENCE_MS: RangeInclusive<u64> = 100..=HOUR_MS;

const HOUR_MS: u64 = 3_600_000;

/// Everything that `[limits]` of a configuration may say. What each is for, in full, stands with
/// the target's own limits; here is why its range ends where it does.
pub const LIMITS: [Limit; LIMITS_COUNT] = [
    // The target's promise to hosts (MQES, a 0's based field, would allow 65,536).
    Limit::new("queue_depth", 1024, 2..=1024),
    // One for each core of a large machine.
    Limit::new("io_queues_per_controller", 128, 1..=128),
    // Four pages in one capsule; more only delays the capsules behind it. Announced in units of 16
    // bytes (IOCCSZ) [NVMe Base 2.0 §5.17.2.1].
    Limit::stepped(
        "in_capsule_data_bytes",
        16_384,
        0..=16_384,
        Step::MultipleOf(16),
    ),
    // At least two pages (MDTS is a power of two of pages, and 0 is no limit), at most the size up
    // to which buffers are pooled.
    Limit::stepped("max_transfer_bytes", MIB, 8_192..=MIB, Step::PowerOfTwo),
    // MAXH2CDATA is a multiple of a dword, at least 4,096 [NVMe-TCP 1.0 §3.6.2.3].
    Limit::stepped(
        "max_h2c_data_bytes",
        131_072,
        4_096..=MIB,
        Step::MultipleOf(4),
    ),
    // Beyond a few the pipe is full anyway.
    Limit::new("max_r2t", 4, 1..=4),
    // Each R2T costs a round trip; one asks for the largest transfer at most.
    Limit::stepped("r2t_bytes", 262_144, 4_096..=MIB, Step::MultipleOf(4)),
    // DMRSL and DMSL are 32 bits wide, in all.
    Limit::new("deallocate_blocks", 1 << 23, 1..=u32::MAX as u64),
    // A block at least; at most what a device zeroes in a second or so.
    Limit::stepped(
        "deallocate_piece_bytes",
        64 * MIB,
        4_096..=GIB,
        Step::MultipleOf(4_096),
    ),
    // From the granularity of 100 ms up to an hour; 0 leaves a host that asks for none without.
    Limit::new("keep_alive_default_ms", 0, PATIENCE_MS),
    Limit::new("keep_alive_min_ms", 1_000, PATIENCE_MS),
    Limit::new("discovery_idle_timeout_ms", 120_000, PATIENCE_MS),
    // 65,536 is the field's width of a controller identifier.
    Limit::new("connections", 16_384, 1..=65_536),
    Limit::new("connections_per_address", 12_288, 1..=65_536),
    Limit::new("fresh_connections", 8_192, 1..=65_536),
    // Some identifiers stand for others [NVMe-oF 1.1 §3.3].
    Limit::new("controllers", 4_096, 1..=65_000),
    Limit::new("controllers_per_host", 1_024, 1..=65_000),
    Limit::new("controllers_per_address", 3_072, 1..=65_000),
    Limit::new("controllers_per_tenant", 2_048, 1..=65_000),
    Limit::new("discovery_controllers", 1_024, 1..=65_000),
    // A send list takes 80 KiB.
    Limit::new("sends_per_connection", 4, 1..=64),
    // Multiples of what is free: with 1,000 nearly all, which is no limit any more.
    Limit::new("connection_buffer_share", 2, 1..=1_000),
    Limit::new("host_buffer_share", 4, 1..=1_000),
    Limit::new("tenant_buffer_share", 6, 1..=1_000),
    Limit::new("throughput_buffer_share", 7, 1..=1_000),
    // Below 64 a part of them is less than a handful; above, 5 GiB for each core.
    Limit::new("send_lists", 1_024, 64..=65_536),
    Limit::new("stash_bytes", 16 * MIB, MIB..=GIB),
    Limit::new("trim_interval_ms", 10_000, PATIENCE_MS),
    Limit::new("connect_timeout_ms", 10_000, PATIENCE_MS),
    Limit::new("stall_timeout_ms", 30_000, PATIENCE_MS),
    Limit::new("pdu_timeout_ms", 30_000, PATIENCE_MS),
    Limit::new("transfer_timeout_ms", 60_000, PATIENCE_MS),
    // A change is given up after a minute.
    Limit::new("pause_patience_ms", 5_000, 100..=30_000),
    Limit::new("drain_timeout_ms", 10_000, PATIENCE_MS),
    // Hosts have patience with a command for 30 s, and some for longer.
    Limit::new("barrier_timeout_ms", 10_000, 100..=60_000),
    // A command has marks for 64 barriers.
    Limit::new("barriers_per_address", 16, 1..=64),
    Limit::new("barrier_held_bytes", 8 * MIB, 65_536..=GIB),
];

/// Keys of `[limits]`.
pub const LIMITS_COUNT: usize = 37;

const MIB: u64 = 1 << 20;

const GIB: u64 = 1 << 30;

/// Networks of one tenant's hosts: one for each rack of a large hall.
pub const TENANT_NETWORKS_MAX: usize = 256;

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
