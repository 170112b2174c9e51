//! Every limit of the target, with its unit in the name and its reason beside it.
//!
//! What an operator may want to tune is a field of [`Limits`]; what follows from a format or from
//! the size of a table here is a constant.

mod keys;

use base::Nanos;
use base::units::MIB;
pub use keys::{LIMITS, LIMITS_COUNT, LegalValues, Limit};
use std::ops::RangeInclusive;
use wire::nvme::{ExtentEntry, ExtentTerms};

/// Highest namespace identifier of a subsystem: namespaces are looked up by index, and one changed
/// namespace list holds as many. `[NVMe Base 2.0 §5.16.1.5]`
pub const NAMESPACES_MAX: u32 = 1024;

/// Subsystems of a target: with the referrals they fit into a discovery log page of one transfer of
/// 1 MiB, with 1,024 bytes for each.
pub const SUBSYSTEMS_MAX: usize = 512;

/// Asynchronous Event Requests that may wait in a controller; hosts send one or four.
pub const ASYNC_EVENT_REQUESTS_MAX: usize = 4;

/// Entries of a controller's error log. `[NVMe Base 2.0 §5.16.1.2]`
pub const ERROR_LOG_ENTRIES: usize = 64;

/// Referrals of the discovery service: they share its log page with the subsystems.
pub const REFERRALS_MAX: usize = 64;

const _: () = assert!(
    (SUBSYSTEMS_MAX + REFERRALS_MAX + 1) * 1024 <= MIB,
    "a discovery log page fits one transfer"
);

/// R2Ts that we keep outstanding for one command, whatever the host allows: one hides a round
/// trip, more only cost memory for their progress.
pub const R2TS_PER_COMMAND_MAX: usize = 4;

/// Deallocations of one Dataset Management command that run at once.
pub const DATASET_PARALLEL_MAX: u16 = 8;

/// Keep-alive granularity that Identify reports in units of 100 ms: our timers are exact, and a
/// tenth of a second is far below every time-out in use. `[NVMe Base 2.0 §5.17.2.1 KAS]`
pub const KEEP_ALIVE_GRANULARITY_100_MS: u16 = 1;

/// Time that Identify reports in units of 100 ms for a host to wait before it sends an interrupted
/// command again: the shortest that there is. Linux tries five times, so it waits for half a second.
/// `[NVMe Base 2.0 §5.17.2.1 CRDT1]`
pub const RETRY_DELAY_100_MS: u16 = 1;

/// Extents of one command: the C2HData PDUs of its answer, one for each, fit into one send list,
/// with digests and whatever padding.
pub const EXTENTS_MAX: u16 = 64;

/// Commands that may come on a connection until Connect has succeeded: hosts send Connect. Their
/// answers fit into the kernel's buffer of a socket, so that send lists come back at once whether the
/// host reads or not.
pub const ATTEMPTS_MAX: u8 = 16;

/// Bytes that a host takes in each `stall_timeout` in which something is to be sent all the time: 4 KiB
/// a second by default, which even 16,384 hosts behind one link of 1 Gbit/s have. So an answer waits no
/// longer than what is before it takes at that rate; one send after the other could be in time for ever.
pub const PACE_BYTES: usize = 128 * 1024;

/// Buffers of a core, each as large as the data of a capsule, for data in capsules behind which data of
/// R2Ts arrives. Such a command goes to its device and gives its buffer back, whatever its host does.
pub const CAPSULE_BUFFERS: usize = 64;

/// Interval at which a core that is at work publishes its counters.
pub const PUBLISH_INTERVAL: Nanos = Nanos::from_millis(20);

/// Time for which a queue that is to move takes no commands while those under way end: longer than
/// devices take, shorter than a host notices.
pub const MOVE_PATIENCE: Nanos = Nanos::from_millis(20);

/// The same for a queue that must move, because its thread is to sleep, at most: a tenant with less
/// than two requests a second has got an answer by then.
pub const MOVE_PATIENCE_MAX: Nanos = Nanos::from_millis(640);

/// Commands of a core that a device's token scheduler holds, 32 bytes each: the depth at which
/// 1,000 connections load a core with 32 commands each.
pub const TOKEN_PLACES: u32 = 32_768;

/// Of these, the most that one tenant may have: more than a round releases, so that what is beyond
/// loses nothing by waiting outside.
pub const TENANT_PLACES_MAX: u32 = 1_024;

/// The least: what a tenant saves for a dear request must not be given back because the next one
/// was not seen.
pub const TENANT_PLACES_MIN: u32 = 16;

/// Over which it is judged whether a tenant's promise was kept: long enough for a percentile, short
/// enough for an operator.
pub const SLO_WINDOW: Nanos = Nanos::from_secs(1);

/// Tenant events that a target keeps: more than happen in a day without a look.
pub const TENANT_EVENTS_MAX: usize = 256;

/// Lines that a core logs in a second about what its peers do: enough to see what goes on, too few to
/// fill a disk.
pub const LOG_LINES_PER_SECOND: u32 = 10;

/// Of these, lines of one peer in each [`LOG_PEER_PERIOD`]: as many as all peers may cause in half a
/// second, so that none keeps out lines of others.
pub const LOG_LINES_PER_PEER: u32 = 5;

/// The period of [`LOG_LINES_PER_PEER`].
pub const LOG_PEER_PERIOD: Nanos = Nanos::from_secs(10);

/// Peers with lines of their own on a core, 24 bytes each; beyond that some share.
pub const LOG_PEERS: usize = 256;

base::with_defaults! {
    /// Limits that an operator may tune.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Limits {
        /// In-capsule data of an I/O command, in bytes; a multiple of 16, 0 to 16 KiB (IOCCSZ). A
        /// 16 KiB write then needs no R2T and no round trip for it.
        pub in_capsule_bytes: u32 = 16 * 1024,
        /// Largest transfer of one command in bytes (MDTS); a power of two from 8192 to 1 MiB. A limit
        /// of one page cannot be announced: MDTS 0 stands for none.
        pub transfer_bytes: u32 = 1024 * 1024,
        /// Data of one H2CData PDU in bytes (MAXH2CDATA); a multiple of 4, at least 4096.
        pub h2c_data_bytes: u32 = 128 * 1024,
        /// Data that one R2T asks for, in bytes; at least 4096. A command with more gets several, of a
        /// host that allows more than one at a time; another one is asked for all of its data at once,
        /// for each further R2T would cost it a round trip.
        pub r2t_bytes: u32 = 256 * 1024,
        /// R2Ts that may be outstanding for one command, 1 to [`R2TS_PER_COMMAND_MAX`]; a host may
        /// allow fewer.
        pub r2ts_per_command: u16 = 4,
        /// Blocks that one Dataset Management may deallocate in a range, and in all (DMRSL, DMSL); at
        /// least 1. A device that has to write zeroes for it is at work for seconds, not hours.
        pub deallocate_blocks: u32 = 1 << 23,
        /// A device is asked to deallocate so many bytes at a time, at least 4096, so that an Abort
        /// finds something left to take back.
        pub deallocate_piece_bytes: u32 = 64 * 1024 * 1024,
        /// Keep-alive time-out of a host that asks for none, in milliseconds; 0 leaves it without.
        pub keep_alive_default_ms: u32 = 0,
        /// Shortest keep-alive time-out in milliseconds: a host that asks for less gets this.
        pub keep_alive_min_ms: u32 = 1_000,
        /// Time after which a controller without a keep-alive timer, without I/O queues and without
        /// commands ends: it would hold its place for as long as its connection is open.
        pub controller_idle_timeout: Nanos = Nanos::from_secs(120),
        /// Time after which a discovery controller without a keep-alive timer and without commands ends.
        /// `[NVMe Base 2.0 §3.1.2.3.3]`
        pub discovery_idle_timeout: Nanos = Nanos::from_secs(120),
        /// Entries of an I/O queue (MQES), 2 to 1024.
        pub queue_entries: u16 = 1024,
        /// I/O queues of a controller, 1 to 128.
        pub io_queues: u16 = 128,
        /// Connections of the target, on all cores together.
        pub connections: usize = 16_384,
        /// Of these, those from one address, or of IPv6 one /64; at least 1.
        pub connections_per_address: usize = 12_288,
        /// Of these, those of all hosts of a tenant, from Connect on; at least 1. The tenant "default"
        /// has no such limit, for its hosts have nothing in common.
        pub connections_per_tenant: usize = 12_288,
        /// Entries of all queues together, of which one address (of IPv6, one /64) and one tenant have
        /// three quarters at most; at least 1. An entry takes 200 bytes once it was in use.
        // 256 of each connection, or 800 MiB.
        pub all_queue_entries: usize = 4_194_304,
        /// Connections that have not got through Connect yet, and at most half of `connections`; for
        /// one more, the oldest of them goes. Each may hold 8 KiB for the data of Connect.
        pub fresh_connections: usize = 8192,
        /// Controllers of the whole target, at most 65,000.
        pub controllers: usize = 4096,
        /// Of these, those of one host, by its HOSTNQN: a host that may use one name alone has as many
        /// HOSTIDs as it likes; at least 1. Where hosts may use any name, this keeps back those that go
        /// wrong, and the next those that mean harm.
        pub controllers_per_host: usize = 1024,
        /// Of these, those of hosts at one address, or of IPv6 in one /64; at least 1.
        pub controllers_per_address: usize = 3072,
        /// Of these, those of all hosts of a tenant; at least 1. The tenant "default" has no such
        /// limit, for its hosts have nothing in common.
        pub controllers_per_tenant: usize = 2048,
        /// Of these, discovery controllers; at least 1. Any host may have one, known or not, so hosts at
        /// one address have three quarters of them at most.
        pub discovery_controllers: usize = 1024,
        /// Sends that one connection may have gathered beyond the one under way.
        pub sends_per_connection: usize = 4,
        /// Payload buffers that a connection may hold, as a multiple of those that are free: with 2, one
        /// alone leaves a third. One buffer it may always have.
        pub connection_buffer_share: u32 = 2,
        /// The same of all connections of a host (HOSTNQN) on a core, and of send lists and tables of
        /// extents.
        pub host_buffer_share: u32 = 4,
        /// The same of all hosts of a tenant, and without one, or with "default", which is no common
        /// owner, of all hosts at one address or, of IPv6, in one /64.
        pub tenant_buffer_share: u32 = 6,
        /// The same of all queues of class `Throughput`.
        pub throughput_buffer_share: u32 = 7,
        /// Send lists of a core; each takes about 80 KiB once it was used. I/O queues leave an eighth of
        /// them for admin commands and keep-alives, discovery a sixteenth, and admin queues one in 64 for
        /// connections before Connect. Discovery has half at most.
        pub send_lists: usize = 1024,
        /// Interval at which queues give back the memory of commands that they did not have lately.
        pub trim_interval: Nanos = Nanos::from_secs(10),
        /// From the start of a connection to the end of Connect.
        pub connect_timeout: Nanos = Nanos::from_secs(10),
        /// Time after which the kernel ends a connection if its peer acknowledges nothing of what was
        /// sent, or has no room for any of it (`TCP_USER_TIMEOUT`).
        pub tcp_user_timeout: Nanos = Nanos::from_secs(30),
        /// Time without traffic after which the kernel asks the peer whether it is there
        /// (`SO_KEEPALIVE`); it asks three times, a third of that apart. In whole seconds.
        pub tcp_keep_alive: Nanos = Nanos::from_secs(30),
        /// Without any progress of a transfer that we asked for, or of a send; and the time in which a host
        /// takes [`PACE_BYTES`] at least, if there is something to send all of it.
        pub stall_timeout: Nanos = Nanos::from_secs(30),
        /// From the first byte of a PDU to its last, whatever comes between.
        pub pdu_timeout: Nanos = Nanos::from_secs(30),
        /// From the R2T for a command's data to the last byte of it.
        pub transfer_timeout: Nanos = Nanos::from_secs(60),
        /// The same, once a change waits for the command; also for reading answers that point into memory
        /// which a change takes away. A change waits for such data and for what the
        /// devices have, and for nothing that waits itself: no host may hold up an operator for longer,
        /// nor with that the other hosts of a namespace.
        pub pause_patience: Nanos = Nanos::from_secs(5),
        /// From our termination request, or the end of a drain, to the close of the connection.
        pub linger: Nanos = Nanos::from_millis(200),
        /// From the start of a shutdown to the forced end of what is still open.
        pub drain_timeout: Nanos = Nanos::from_secs(10),
        /// Time that a change of the configuration may take on all cores; longer than `pause_patience`.
        pub change_timeout: Nanos = Nanos::from_secs(60),
        /// Header digests are granted to hosts that ask for them.
        pub header_digest: bool = true,
        /// Data digests are granted to hosts that ask for them.
        pub data_digest: bool = true,
        /// Identify announces End Controller, the vendor admin command that lets a host know when
        /// nothing of an old controller can take effect any more. Without it the command is refused
        /// with Invalid Opcode, as by any other target.
        pub end_controller: bool = true,
        /// Most extents of one Read Extents or Write Extents, the vendor I/O commands, at most
        /// [`EXTENTS_MAX`]. With 0 none are announced, and they are refused with Invalid Opcode, as by
        /// any other target.
        pub extents: u16 = EXTENTS_MAX,
        /// Most such commands outstanding on one queue, at least 1: their tables are small, and their
        /// buffers are counted as those of any other.
        pub extents_in_flight: u16 = 64,
        /// Tables of such commands on one core, at least 1; each takes up to 4 KiB once it was used.
        /// Hosts, tenants and classes share them as they do buffers; a command beyond a share is answered
        /// with a status that asks for a retry.
        // 64 of each of 128 queues, or 32 MiB.
        pub extent_tables: usize = 8192,
        /// Which life of the devices' volatile write caches it is, for Identify: it changes whenever
        /// they may have lost what was acknowledged and not flushed. 0 says nothing, as any other
        /// target does; hosts then take every lost connection for such a loss. A subsystem may have
        /// [another one](crate::Target::set_cache_life).
        pub cache_life: u64 = 0,
        /// Number of this process, for Identify: another one at each start, so that hosts of ours do not
        /// take controllers of this process for those that they had in one before. Its upper 32 bits
        /// name the boot of the machine: a process of the same boot has its volumes only when the one
        /// before has ended. 0 in either part says nothing.
        pub incarnation: u64 = 0,
    }
}

/// Reciprocal of the part of all connections, queue entries and controllers that is for addresses and
/// tenants that hold little: 1/16, 64 of 1,024. Without it, hosts at two addresses, or of two tenants,
/// could hold all of them.
pub const RESERVE_PART: usize = 16;

/// Reciprocal of what an address or tenant that holds little may hold: 1/256, 4 of 1,024, at least 1. The
/// reserve is enough for 16 of them.
pub const LITTLE_PART: usize = 256;

/// Returns true if one that holds `own` of `taken` things would hold them from the reserve of `limit`,
/// and more than little.
#[must_use]
pub(crate) const fn is_reserved(limit: usize, taken: usize, own: usize) -> bool {
    let little = limit / LITTLE_PART;
    taken > limit - limit / RESERVE_PART && own > 1 && own > little
}

impl Limits {
    /// Returns the terms of commands over extents; `None` where there are none. A table has to fit
    /// into a capsule.
    #[must_use]
    pub fn extent_terms(&self) -> Option<ExtentTerms> {
        let table = usize::try_from(self.in_capsule_bytes).unwrap_or(usize::MAX);
        let entries = u16::try_from(table / ExtentEntry::SIZE).unwrap_or(u16::MAX);
        let extents = self.extents.min(EXTENTS_MAX).min(entries);
        (extents > 0).then_some(ExtentTerms {
            extents,
            in_flight: self.extents_in_flight.max(1),
            bytes: self.transfer_bytes,
            outcomes: true,
        })
    }

    /// Returns the most connections that have not got through Connect.
    #[must_use]
    pub fn fresh_max(&self) -> usize {
        self.fresh_connections.min((self.connections / 2).max(1))
    }

    /// Checks every number against its range.
    ///
    /// # Errors
    /// The first limit that is out of its range, with the range.
    pub fn check(&self) -> Result<(), LimitsError> {
        let broken = LIMITS.iter().find(|limit| !limit.holds(limit.get(self)));
        broken.map_or(Ok(()), |limit| {
            Err(LimitsError {
                key: limit.key,
                range: limit.range.clone(),
                legal: limit.legal,
            })
        })
    }
}

/// A limit lies outside of its range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key} must be {legal}from {} to {}", range.start(), range.end())]
pub struct LimitsError {
    /// The limit's key.
    pub key: &'static str,
    /// The legal values.
    pub range: RangeInclusive<u64>,
    /// Those of them that are legal.
    pub legal: LegalValues,
}

const _: () = assert!(NAMESPACES_MAX as usize <= wire::limits::NAMESPACE_LIST_ENTRIES);
const _: () = assert!(TENANT_PLACES_MIN <= TENANT_PLACES_MAX && TENANT_PLACES_MAX <= TOKEN_PLACES);
const _: () = assert!(
    EXTENTS_MAX as usize * transport::limits::PDU_HEADER_BYTES_MAX
        <= reactor::limits::SEND_HEADER_BYTES
);
const _: () = assert!(
    EXTENTS_MAX as usize * transport::limits::PDU_RANGES_MAX <= reactor::limits::SEND_SEGMENTS_MAX
);
const _: () = assert!(EXTENTS_MAX as usize <= wire::limits::EXTENTS_PER_COMMAND_MAX);
const _: () = assert!(R2TS_PER_COMMAND_MAX.is_power_of_two());

#[cfg(test)]
mod tests;
