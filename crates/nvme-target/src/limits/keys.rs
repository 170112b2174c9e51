//! The limits that an operator may tune, by the keys of `[limits]`, with their ranges.

use super::{EXTENTS_MAX, Limits, R2TS_PER_COMMAND_MAX};
use base::Nanos;
use base::units::MIB;
use std::fmt;
use std::ops::RangeInclusive;

/// A limit that an operator may tune: a key of `[limits]`, and a field of [`Limits`].
#[derive(Clone, Debug)]
pub struct Limit {
    /// The key; it includes the unit.
    pub key: &'static str,
    /// The meaning, as the documentation shows it.
    pub meaning: &'static str,
    /// The values that an operator may choose. In addition, 0 ("none") is legal if it is the
    /// default.
    pub range: RangeInclusive<u64>,
    /// The values within the range that are legal.
    pub legal: LegalValues,
    /// Smallest value that the target supports; it may be below the operator's range.
    least: u64,
    /// The limit is a duration: the target supports any value, and `range` applies to operators
    /// only.
    is_duration: bool,
    get: fn(&Limits) -> u64,
    set: fn(&mut Limits, u64),
}

/// The legal values within a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LegalValues {
    /// All multiples of a number, above 0.
    MultipleOf(u64),
    /// Powers of two.
    PowerOfTwo,
}

impl LegalValues {
    /// Returns true for a legal value.
    #[must_use]
    pub const fn allows(self, value: u64) -> bool {
        match self {
            Self::MultipleOf(unit) => value.is_multiple_of(unit),
            Self::PowerOfTwo => value.is_power_of_two(),
        }
    }
}

impl fmt::Display for LegalValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MultipleOf(1) => Ok(()),
            Self::MultipleOf(unit) => write!(f, "a multiple of {unit} "),
            Self::PowerOfTwo => f.write_str("a power of two "),
        }
    }
}

impl Limit {
    /// Returns the limit's value.
    #[must_use]
    pub fn get(&self, limits: &Limits) -> u64 {
        (self.get)(limits)
    }

    /// Sets the limit's value; the value must be in its range or its default.
    pub fn set(&self, limits: &mut Limits, value: u64) {
        debug_assert!(
            self.range.contains(&value) || value == self.default(),
            "{}",
            self.key
        );
        (self.set)(limits, value);
    }

    /// Returns the limit's value in a configuration that does not set it.
    #[must_use]
    pub fn default(&self) -> u64 {
        self.get(&Limits::default())
    }

    /// Returns true if the target supports the value.
    pub(super) fn holds(&self, value: u64) -> bool {
        let works = self.least..=*self.range.end();
        self.is_duration || (works.contains(&value) && self.legal.allows(value))
    }
}

/// A numeric limit.
macro_rules! number {
    ($key:literal, $meaning:literal, $field:ident: $type:ty, $range:expr) => {
        number!($key, $meaning, $field: $type, $range, LegalValues::MultipleOf(1))
    };
    ($key:literal, $meaning:literal, $field:ident: $type:ty, $range:expr, $legal:expr) => {
        Limit {
            key: $key,
            meaning: $meaning,
            range: $range,
            legal: $legal,
            least: *($range).start(),
            is_duration: false,
            get: |limits| limits.$field as u64,
            set: |limits, value| {
                limits.$field = <$type>::try_from(value).expect("within the limit's range");
            },
        }
    };
}

/// A limit in milliseconds.
macro_rules! milliseconds {
    ($key:literal, $meaning:literal, $field:ident, $range:expr) => {
        Limit {
            key: $key,
            meaning: $meaning,
            range: $range,
            legal: LegalValues::MultipleOf(1),
            least: 0,
            is_duration: true,
            get: |limits| limits.$field.as_millis(),
            set: |limits, value| limits.$field = Nanos::from_millis(value),
        }
    };
}

/// Times for which the target waits for a host: 100 ms is shorter than any network's disturbances,
/// and more than an hour is no limit in practice.
const PATIENCE_MS: RangeInclusive<u64> = 100..=3_600_000;

const MIB_64: u64 = MIB as u64;

const GIB_64: u64 = 1 << 30;

/// Every limit that an operator may tune, with the reason for the ends of its range; the reason for
/// the limit itself is in its field's comment.
pub static LIMITS: [Limit; LIMITS_COUNT] = [
    // The target announces it as MQES, a 0's based field that would allow 65,536.
    number!("queue_depth", "Entries of a queue.", queue_entries: u16, 2..=1024),
    // One for each core of a large machine.
    number!("io_queues_per_controller", "I/O queues of a controller.", io_queues: u16, 1..=128),
    // Four pages in one capsule; more would only delay the capsules behind it. Announced in units
    // of 16 bytes (IOCCSZ) [NVMe Base 2.0 §5.17.2.1].
    number!(
        "in_capsule_data_bytes",
    "In-capsule data of an I/O command.",
        in_capsule_bytes: u32,
        0..=16_384,
        LegalValues::MultipleOf(16)
    ),
    // At least two pages (MDTS is a power of two of pages, and 0 means no limit); at most the
    // largest pooled buffer.
    number!(
        "max_transfer_bytes",
    "Largest transfer of one command (MDTS).",
        transfer_bytes: u32,
        8_192..=MIB_64,
        LegalValues::PowerOfTwo
    ),
    // MAXH2CDATA is a multiple of a dword, at least 4,096 [NVMe-TCP 1.0 §3.6.2.3].
    number!(
        "max_h2c_data_bytes",
    "Data of one H2CData PDU.",
        h2c_data_bytes: u32,
        4_096..=MIB_64,
        LegalValues::MultipleOf(4)
    ),
    // More R2Ts do not increase the throughput.
    number!("max_r2t", "Outstanding R2Ts of one command, if the host allows as many.", r2ts_per_command: u16, 1..=R2TS_PER_COMMAND_MAX as u64),
    // Each R2T costs a round trip; one R2T requests at most the largest transfer.
    number!(
        "r2t_bytes",
    "Data that one R2T requests.",
        r2t_bytes: u32,
        4_096..=MIB_64,
        LegalValues::MultipleOf(4)
    ),
    // DMRSL and DMSL are 32 bits wide.
    number!("deallocate_blocks", "Blocks of one Deallocate command.", deallocate_blocks: u32, 1..=u32::MAX as u64),
    // At least one block, at most a second's work of a device that writes zeroes.
    number!(
        "deallocate_piece_bytes",
    "Size of the pieces in which a device deallocates.",
        deallocate_piece_bytes: u32,
        4_096..=GIB_64,
        LegalValues::MultipleOf(4_096)
    ),
    // From the granularity of 100 ms to an hour; with 0, a host that requests no time-out has none.
    Limit {
        is_duration: true,
        ..number!("keep_alive_default_ms", "Keep-alive timeout of hosts that request none; 0: none.", keep_alive_default_ms: u32, PATIENCE_MS)
    },
    Limit {
        is_duration: true,
        ..number!("keep_alive_min_ms", "Shortest keep-alive timeout; shorter requests are raised to it.", keep_alive_min_ms: u32, PATIENCE_MS)
    },
    milliseconds!(
        "controller_idle_timeout_ms",
        "Ends a controller without keep-alive timeout, I/O queues and outstanding commands after this time.",
        controller_idle_timeout,
        PATIENCE_MS
    ),
    milliseconds!(
        "discovery_idle_timeout_ms",
        "The same for discovery controllers.",
        discovery_idle_timeout,
        PATIENCE_MS
    ),
    // A controller identifier has 65,536 values.
    number!("connections", "Connections of all hosts.", connections: usize, 1..=65_536),
    number!("connections_per_address", "Connections from one address; IPv6 addresses count by /64.", connections_per_address: usize, 1..=65_536),
    number!("connections_per_tenant", "Connections of all hosts of a tenant other than \"default\".", connections_per_tenant: usize, 1..=65_536),
    // From a few deep queues to the deepest queues on the most connections.
    Limit {
        least: 1,
        ..number!("all_queue_entries", "Entries of all queues, 200 bytes each once used; one address or tenant may use three quarters.", all_queue_entries: usize, 65_536..=65_536 * 1_024)
    },
    number!("fresh_connections", "Connections before the end of Connect, never more than half of `connections`; beyond, the oldest is closed.", fresh_connections: usize, 1..=65_536),
    // Some controller identifiers are reserved [NVMe-oF 1.1 §3.3].
    number!("controllers", "Controllers of all hosts.", controllers: usize, 1..=65_000),
    // FFF0h to FFFFh are reserved [NVMe-oF 1.1 §3.3].
    number!("first_controller_id", "Lowest controller identifier.", first_controller_id: u16, 1..=0xffef),
    number!("last_controller_id", "Highest controller identifier.", last_controller_id: u16, 1..=0xffef),
    number!("controllers_per_host", "Controllers of one host NQN.", controllers_per_host: usize, 1..=65_000),
    number!("controllers_per_address", "Controllers of hosts at one address.", controllers_per_address: usize, 1..=65_000),
    number!("controllers_per_tenant", "Controllers of all hosts of a tenant other than \"default\".", controllers_per_tenant: usize, 1..=65_000),
    number!("discovery_controllers", "Discovery controllers; one address may have three quarters.", discovery_controllers: usize, 1..=65_000),
    // A send list takes 80 KiB.
    number!("sends_per_connection", "Sends that a connection may queue in addition to the one in flight.", sends_per_connection: usize, 1..=64),
    // Multiples of the free amount: 1,000 is nearly all of it, that is, no limit.
    number!("connection_buffer_share", "Most payload buffers of a connection, as a multiple of those left free on its core (2: two thirds).", connection_buffer_share: u32, 1..=1_000),
    number!("host_buffer_share", "The same for all connections of a host; also for send lists and extent tables.", host_buffer_share: u32, 1..=1_000),
    number!("tenant_buffer_share", "The same for all hosts of a tenant, or of an address without one.", tenant_buffer_share: u32, 1..=1_000),
    number!("throughput_buffer_share", "The same for all queues of class T.", throughput_buffer_share: u32, 1..=1_000),
    // Below 64, the smaller parts would be a handful of lists; the upper end is 5 GiB per core.
    Limit {
        least: 1,
        ..number!("send_lists", "Send lists of a core (headers and payload of one send), 80 KiB each once used.", send_lists: usize, 64..=65_536)
    },
    milliseconds!(
        "trim_interval_ms",
        "Frees unused command slots of queues after this time.",
        trim_interval,
        PATIENCE_MS
    ),
    milliseconds!(
        "connect_timeout_ms",
        "From the start of a connection to the end of Connect.",
        connect_timeout,
        PATIENCE_MS
    ),
    milliseconds!(
        "tcp_user_timeout_ms",
        "Longest time that sent data may stay unacknowledged (TCP_USER_TIMEOUT).",
        tcp_user_timeout,
        PATIENCE_MS
    ),
    // The kernel counts in whole seconds.
    Limit {
        legal: LegalValues::MultipleOf(1_000),
        ..milliseconds!(
            "tcp_keep_alive_ms",
            "Silence before the first TCP keep-alive probe (SO_KEEPALIVE).",
            tcp_keep_alive,
            1_000..=3_600_000
        )
    },
    milliseconds!(
        "stall_timeout_ms",
        "Longest time without progress of a transfer or send.",
        stall_timeout,
        PATIENCE_MS
    ),
    milliseconds!(
        "pdu_timeout_ms",
        "Longest time from the first byte of a PDU to the last.",
        pdu_timeout,
        PATIENCE_MS
    ),
    milliseconds!(
        "transfer_timeout_ms",
        "Longest time from an R2T to the last byte of its command's data.",
        transfer_timeout,
        PATIENCE_MS
    ),
    // A change is abandoned after a minute unless `change_timeout_ms` sets another time.
    milliseconds!(
        "pause_patience_ms",
        "As `transfer_timeout_ms`, once a configuration change waits for the command.",
        pause_patience,
        100..=30_000
    ),
    // Our own client waits ten minutes for a change.
    milliseconds!(
        "change_timeout_ms",
        "Longest time of a configuration change on all cores, then it fails; above `pause_patience_ms`.",
        change_timeout,
        1_000..=300_000
    ),
    milliseconds!(
        "drain_timeout_ms",
        "Longest time from the start of a shutdown to its forced end.",
        drain_timeout,
        PATIENCE_MS
    ),
    // A round trip on any network, including a satellite link.
    milliseconds!(
        "linger_ms",
        "Time from the last PDU to the close, after a protocol error of the host or a drain.",
        linger,
        10..=10_000
    ),
    // With 0, hosts send one command per extent.
    number!("extents_per_command", "Block ranges of one Read Extents or Write Extents, Switchyard's vendor commands; 0: disabled.", extents: u16, 0..=EXTENTS_MAX as u64),
    // No more than the commands of a queue.
    number!("extents_in_flight", "Such commands outstanding on one queue.", extents_in_flight: u16, 1..=1_024),
    // From a few queues' tables to 256 MiB per core.
    Limit {
        least: 1,
        ..number!("extent_tables", "Extent tables of a core (one per such command), 4 KiB each once used.", extent_tables: usize, 64..=65_536)
    },
];

/// Limits that an operator may tune.
pub const LIMITS_COUNT: usize = 45;
