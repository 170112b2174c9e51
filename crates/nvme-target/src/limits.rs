//! Every limit of the target, with its unit in its name and its reason next to it.
//!
//! Limits that an operator may tune are fields of [`Limits`]; limits that follow from a format or
//! from the size of a table are constants.

mod keys;

use base::Nanos;
use base::units::MIB;
pub use keys::{LIMITS, LIMITS_COUNT, LegalValues, Limit};
use std::ops::RangeInclusive;
use wire::nvme::{ExtentEntry, ExtentTerms};

/// Highest namespace identifier of a subsystem. Namespaces are looked up by index, and a Changed
/// Namespace List holds 1,024 entries. `[NVMe Base 2.0 §5.16.1.5]`
pub const NAMESPACES_MAX: u32 = 1024;

/// Registrants of a namespace. Each is a host, of which a cluster has a few; a report lists them in
/// 64 bytes for each of their controllers.
pub const REGISTRANTS_MAX: usize = 128;

/// Reservation notifications that a controller keeps until its host reads them; older ones are
/// dropped, which LPC shows.
pub const RESERVATION_NOTICES_MAX: usize = 64;

/// Subsystems of a target. At 1,024 bytes per entry, subsystems and referrals fit into a discovery
/// log page of one 1 MiB transfer.
pub const SUBSYSTEMS_MAX: usize = 512;

/// Outstanding Asynchronous Event Requests of a controller; hosts send one or four.
pub const ASYNC_EVENT_REQUESTS_MAX: usize = 4;

/// Entries of a controller's error log. `[NVMe Base 2.0 §5.16.1.2]`
pub const ERROR_LOG_ENTRIES: usize = 64;

/// Referrals of the discovery service; they share its log page with the subsystems.
pub const REFERRALS_MAX: usize = 64;

const _: () = assert!(
    (SUBSYSTEMS_MAX + REFERRALS_MAX + 1) * 1024 <= MIB,
    "a discovery log page fits one transfer"
);

/// R2Ts that the target keeps outstanding for one command, even if the host allows more. One R2T
/// hides a round trip; further R2Ts only cost memory for their progress.
pub const R2TS_PER_COMMAND_MAX: usize = 4;

/// Parallel deallocations of one Dataset Management command.
pub const DATASET_PARALLEL_MAX: u16 = 8;

/// Keep-alive granularity in units of 100 ms, as Identify reports it. Our timers are exact, and 100
/// ms is far below every time-out in use. `[NVMe Base 2.0 §5.17.2.1 KAS]`
pub const KEEP_ALIVE_GRANULARITY_100_MS: u16 = 1;

/// ANA groups of a subsystem: one for each namespace. The log page of all of them is 36 KiB, which
/// hosts read with one command.
pub const ANA_GROUPS_MAX: u32 = NAMESPACES_MAX;

/// ANATT in seconds: hosts wait for this time for the end of the ANA state Change. The default of
/// Linux' own target. `[NVMe Base 2.0 §5.17.2.1]`
pub const ANA_TRANSITION_SECONDS: u8 = 10;

/// Command retry delay in units of 100 ms, as Identify reports it: the host waits for this time
/// before it retries an interrupted command. The minimum; Linux retries five times, so it waits for
/// half a second in all. `[NVMe Base 2.0 §5.17.2.1 CRDT1]`
pub const RETRY_DELAY_100_MS: u16 = 1;

/// Extents of one command. The answer has one C2HData PDU per extent; with digests and padding, 64
/// of them fit into one send list.
pub const EXTENTS_MAX: u16 = 64;

/// Commands that a connection accepts before Connect, and the authentication that it requires, have
/// succeeded; hosts send six at most. The
/// answers to 16 commands fit into a socket's send buffer, so send lists come back at once even if
/// the host does not read.
pub const ATTEMPTS_MAX: u8 = 16;

/// Delay of a failed authentication's answer. It slows a guesser down, and no person notices it.
pub const AUTHENTICATION_DELAY: Nanos = Nanos::from_millis(100);

/// Wrong secrets that the hosts of one address (IPv6: of one /64) may try per [`GUESS_PERIOD`]: more
/// than a person needs, too few to guess a secret of 32 bytes.
pub const GUESSES: usize = 10;

/// The period of [`GUESSES`].
pub const GUESS_PERIOD: Nanos = Nanos::from_secs(60);

/// Addresses whose wrong secrets are counted, up to 200 bytes each; a further one replaces the address
/// without a wrong secret for longest.
pub const GUESSERS: usize = 1024;

/// Bytes that a host must receive in each `stall_timeout` during which data is always waiting to be
/// sent. The default is 4 KiB/s, which even each of 16,384 hosts behind one 1 Gbit/s link achieves.
/// This bounds the wait of an answer by the bytes queued before it; a limit per send alone would
/// not, because every single send could be in time.
pub const PACE_BYTES: usize = 128 * 1024;

/// Blocks of a fused Compare and Write (ACWU): a lock on disk is one block.
pub const COMPARE_AND_WRITE_BLOCKS: u32 = 1;

/// Buffers of a core for in-capsule data that precedes R2T data in the receive stream, each of the
/// size of a capsule's data, and for the second half of a fused pair. Such a command goes to its
/// device and returns its buffer, independently of its host.
pub const CAPSULE_BUFFERS: usize = 64;

/// Interval at which a busy core publishes its counters.
pub const PUBLISH_INTERVAL: Nanos = Nanos::from_millis(20);

/// Time for which a queue that is to move accepts no commands while the commands in flight finish:
/// longer than devices take, shorter than a host notices.
pub const MOVE_PATIENCE: Nanos = Nanos::from_millis(20);

/// Upper bound of this time for a queue that must move because its thread is to sleep: in 640 ms, a
/// tenant with less than two requests per second has received an answer.
pub const MOVE_PATIENCE_MAX: Nanos = Nanos::from_millis(640);

/// Commands of a core that a device's token scheduler holds, 32 bytes each: 1,000 connections load
/// a core with 32 commands each.
pub const TOKEN_PLACES: u32 = 32_768;

/// Most of these commands that one tenant may have. This exceeds the release of one round, so
/// commands beyond it lose nothing by waiting outside.
pub const TENANT_PLACES_MAX: u32 = 1_024;

/// Fewest of these commands that a tenant may have: a tenant must not give back the tokens saved
/// for an expensive request because the scheduler has not seen the next request.
pub const TENANT_PLACES_MIN: u32 = 16;

/// Window over which the target judges whether a tenant's SLO was met: long enough for a
/// percentile, short enough for an operator.
pub const SLO_WINDOW: Nanos = Nanos::from_secs(1);

/// Events that a target keeps: more than one day's events.
pub const EVENTS_MAX: usize = 256;

/// Open traces of a target: one for each of a few operators.
pub const TRACES_MAX: usize = 4;

/// Records that an open trace keeps until they are taken; about 1 MiB. A client that takes them
/// every 100 ms loses none below 40,000 selected commands per second.
pub const TRACE_RECORDS: usize = 4096;

/// Lines that a core logs per second about its peers: enough to diagnose a problem, too few to fill
/// a disk.
pub const LOG_LINES_PER_SECOND: u32 = 10;

/// Log lines of one peer in each [`LOG_PEER_PERIOD`]: the number that all peers together may cause
/// in half a second, so that one peer does not suppress the lines of other peers.
pub const LOG_LINES_PER_PEER: u32 = 5;

/// The period of [`LOG_LINES_PER_PEER`].
pub const LOG_PEER_PERIOD: Nanos = Nanos::from_secs(10);

/// Peers with a log budget of their own on a core, 24 bytes each; further peers share budgets.
pub const LOG_PEERS: usize = 256;

base::with_defaults! {
    /// Limits that an operator may tune.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Limits {
        /// In-capsule data of an I/O command, in bytes; a multiple of 16, 0 to 16 KiB (IOCCSZ).
        /// With the default, a 16 KiB write needs no R2T and no additional round trip.
        pub in_capsule_bytes: u32 = 16 * 1024,
        /// Largest transfer of one command in bytes (MDTS); a power of two from 8192 to 1 MiB. A
        /// limit of one page cannot be announced, because MDTS 0 means no limit.
        pub transfer_bytes: u32 = 1024 * 1024,
        /// Data of one H2CData PDU in bytes (MAXH2CDATA); a multiple of 4, at least 4096.
        pub h2c_data_bytes: u32 = 128 * 1024,
        /// Data requested by one R2T, in bytes; at least 4096. A command with more data gets
        /// several R2Ts if its host allows more than one at a time. A host that allows one R2T gets
        /// a single R2T for all the data, because each further R2T would cost a round trip.
        pub r2t_bytes: u32 = 256 * 1024,
        /// R2Ts that may be outstanding for one command, 1 to [`R2TS_PER_COMMAND_MAX`]; a host may
        /// allow fewer.
        pub r2ts_per_command: u16 = 4,
        /// Blocks that one Dataset Management command may deallocate per range and in total (DMRSL,
        /// DMSL); at least 1. It bounds the work of a device that has to write zeroes to seconds,
        /// not hours.
        pub deallocate_blocks: u32 = 1 << 23,
        /// Bytes that a device deallocates per request, at least 4096. Smaller pieces let an Abort
        /// cancel the remainder.
        pub deallocate_piece_bytes: u32 = 64 * 1024 * 1024,
        /// Keep-alive time-out of a host that requests none, in milliseconds; 0: no time-out.
        pub keep_alive_default_ms: u32 = 0,
        /// Shortest keep-alive time-out in milliseconds; it replaces a shorter requested one.
        pub keep_alive_min_ms: u32 = 1_000,
        /// Time after which a controller without a keep-alive timer, I/O queues and commands ends;
        /// otherwise it would stay for as long as its connection is open.
        pub controller_idle_timeout: Nanos = Nanos::from_secs(120),
        /// Time after which a discovery controller without a keep-alive timer and without commands
        /// ends. `[NVMe Base 2.0 §3.1.2.3.3]`
        pub discovery_idle_timeout: Nanos = Nanos::from_secs(120),
        /// Entries of an I/O queue (MQES), 2 to 1024.
        pub queue_entries: u16 = 1024,
        /// I/O queues of a controller, 1 to 128.
        pub io_queues: u16 = 128,
        /// Connections of the target, on all cores together.
        pub connections: usize = 16_384,
        /// Most connections from one address (IPv6: one /64); at least 1.
        pub connections_per_address: usize = 12_288,
        /// Most connections of all hosts of a tenant, counted from Connect on; at least 1. The
        /// tenant "default" has no such limit, because its hosts have nothing in common.
        pub connections_per_tenant: usize = 12_288,
        /// Entries of all queues together; at least 1. One address (IPv6: one /64) and one tenant
        /// each get at most three quarters. An entry takes 200 bytes after its first use.
        // 256 of each connection, or 800 MiB.
        pub all_queue_entries: usize = 4_194_304,
        /// Connections before the end of Connect and of the authentication that it requires, at most half of `connections`; a further
        /// connection closes the oldest of them. Each may hold 8 KiB for the data of Connect.
        pub fresh_connections: usize = 8192,
        /// Controllers of the whole target, at most 65,000.
        pub controllers: usize = 4096,
        /// Lowest controller identifier; at least 1. Targets that share subsystems need ranges
        /// without a common identifier, and at least as many as `controllers`.
        pub first_controller_id: u16 = 1,
        /// Highest controller identifier; FFF0h to FFFFh are reserved.
        pub last_controller_id: u16 = 0xffef,
        /// Most controllers of one host, by its HOSTNQN; at least 1. A host that is restricted to
        /// one name may still use any number of HOSTIDs. Where hosts may use any name, this limit
        /// stops faulty hosts, and the next limit stops malicious ones.
        pub controllers_per_host: usize = 1024,
        /// Most controllers of hosts at one address (IPv6: in one /64); at least 1.
        pub controllers_per_address: usize = 3072,
        /// Most controllers of all hosts of a tenant; at least 1. The tenant "default" has no such
        /// limit, because its hosts have nothing in common.
        pub controllers_per_tenant: usize = 2048,
        /// Most discovery controllers; at least 1. Any host, known or not, may have one, so hosts
        /// at one address get at most three quarters of them.
        pub discovery_controllers: usize = 1024,
        /// Sends that one connection may queue in addition to the one in flight.
        pub sends_per_connection: usize = 4,
        /// Payload buffers that a connection may hold, as a multiple of the free ones: with 2, a
        /// single connection leaves a third free. It may always hold one buffer.
        pub connection_buffer_share: u32 = 2,
        /// The same limit for all connections of a host (HOSTNQN) on a core; it also applies to
        /// send lists and extent tables.
        pub host_buffer_share: u32 = 4,
        /// The same limit for all hosts of a tenant. Hosts without a tenant, or of "default" (not a
        /// common owner), are counted by address (IPv6: /64) instead.
        pub tenant_buffer_share: u32 = 6,
        /// The same limit for all queues of class `Throughput`.
        pub throughput_buffer_share: u32 = 7,
        /// Send lists of a core; each takes about 80 KiB after its first use. I/O queues leave 1/8
        /// of them for admin commands and keep-alives, discovery leaves 1/16, and admin queues
        /// leave 1/64 for connections before Connect. Discovery uses at most half.
        pub send_lists: usize = 1024,
        /// Interval at which queues free the memory of command slots that they did not use
        /// recently.
        pub trim_interval: Nanos = Nanos::from_secs(10),
        /// Time-out from the start of a connection to the end of Connect.
        pub connect_timeout: Nanos = Nanos::from_secs(10),
        /// Time-out from Connect to the end of the host's authentication: the default keep-alive
        /// time-out of the specification, and longer than the jobs of all other hosts take. `[NVMe
        /// Base 2.0 §8.13.2]`
        pub authentication_timeout: Nanos = Nanos::from_secs(120),
        /// Time after which the kernel closes a connection whose peer acknowledges none of the sent
        /// data, or has no receive window for it (`TCP_USER_TIMEOUT`).
        pub tcp_user_timeout: Nanos = Nanos::from_secs(30),
        /// Time without traffic after which the kernel probes the peer (`SO_KEEPALIVE`): three
        /// probes, at intervals of a third of this time. Whole seconds.
        pub tcp_keep_alive: Nanos = Nanos::from_secs(30),
        /// Time-out of a requested transfer or a send without any progress; also the period in
        /// which a host must receive at least [`PACE_BYTES`] while there is data to send.
        pub stall_timeout: Nanos = Nanos::from_secs(30),
        /// Time-out from the first to the last byte of a PDU, even if it makes progress.
        pub pdu_timeout: Nanos = Nanos::from_secs(30),
        /// Time-out from the R2T for a command's data to the last byte of the data.
        pub transfer_timeout: Nanos = Nanos::from_secs(60),
        /// The same time-out once a change of the configuration waits for the command; also for
        /// reading answers that point into memory which the change removes. A change waits for such
        /// data and for requests at the devices, but for no waiting command. So no host can delay
        /// an operator, or the other hosts of the namespace, for longer.
        pub pause_patience: Nanos = Nanos::from_secs(5),
        /// From the target's termination request, or the end of a drain, to the close of the
        /// connection.
        pub linger: Nanos = Nanos::from_millis(200),
        /// Time from the start of a shutdown to the forced close of the remaining connections.
        pub drain_timeout: Nanos = Nanos::from_secs(10),
        /// Time that a change of the configuration may take on all cores; longer than
        /// `pause_patience`.
        pub change_timeout: Nanos = Nanos::from_secs(60),
        /// Grants header digests to hosts that request them.
        pub header_digest: bool = true,
        /// Grants data digests to hosts that request them.
        pub data_digest: bool = true,
        /// Announces End Controller in Identify: the vendor admin command that completes when
        /// nothing of an old controller can take effect any more. Without it the target refuses the
        /// command with Invalid Opcode, as other targets do.
        pub end_controller: bool = true,
        /// Most extents of one Read Extents or Write Extents (vendor I/O commands), at most
        /// [`EXTENTS_MAX`]. With 0 the target announces no such commands and refuses them with
        /// Invalid Opcode, as other targets do.
        pub extents: u16 = EXTENTS_MAX,
        /// Most Read Extents and Write Extents outstanding on one queue, at least 1. Their tables
        /// are small, and their buffers count like those of any command.
        pub extents_in_flight: u16 = 64,
        /// Extent tables of a core, at least 1; each takes up to 4 KiB after its first use. Hosts,
        /// tenants and classes share them like buffers; a command beyond a share ends with a status
        /// that requests a retry.
        // 64 for each of 128 queues, or 32 MiB.
        pub extent_tables: usize = 8192,
        /// Life of the devices' volatile write caches, for Identify: it changes whenever
        /// acknowledged but unflushed data may have been lost. 0: not reported, as by other
        /// targets; hosts then treat every lost connection as such a loss. A subsystem may have
        /// [its own value](crate::Target::set_cache_life).
        pub cache_life: u64 = 0,
        /// Incarnation of this target process, for Identify: different after each start, so that
        /// our hosts do not mistake controllers of this process for those of an earlier one. The
        /// upper 32 bits identify the boot of the machine: within one boot, a process has its
        /// volumes only after the previous process has ended. 0 in either half: not reported.
        pub incarnation: u64 = 0,
    }
}

/// Reciprocal of the reserve: the part of all connections, queue entries and controllers that is
/// kept for addresses and tenants with few of them. 1/16 is 64 of 1,024. Without it, hosts at two
/// addresses, or of two tenants, could hold everything.
pub const RESERVE_PART: usize = 16;

/// Reciprocal of the few that an address or tenant may take from the reserve: 1/256, 4 of 1,024, at
/// least 1. The reserve is enough for 16 such holders.
pub const LITTLE_PART: usize = 256;

/// Returns true if a holder of `own` out of `taken` objects takes from the reserve of `limit` and
/// exceeds the few that the reserve is for.
#[must_use]
pub(crate) const fn is_reserved(limit: usize, taken: usize, own: usize) -> bool {
    let little = limit / LITTLE_PART;
    taken > limit - limit / RESERVE_PART && own > 1 && own > little
}

impl Limits {
    /// Returns the terms of commands over extents; `None` if disabled. A command's table has to fit
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

    /// Returns the most connections before the end of Connect.
    #[must_use]
    pub fn fresh_max(&self) -> usize {
        self.fresh_connections.min((self.connections / 2).max(1))
    }

    /// Checks every number against its range.
    ///
    /// # Errors
    /// The first limit that is out of its range, with the range.
    pub fn check(&self) -> Result<(), LimitsError> {
        let error = |limit: &Limit, range| LimitsError {
            key: limit.key,
            range,
            legal: limit.legal,
        };
        if let Some(limit) = LIMITS.iter().find(|limit| !limit.holds(limit.get(self))) {
            return Err(error(limit, limit.range.clone()));
        }
        if self.first_controller_id > self.last_controller_id {
            let mut limits = LIMITS.iter();
            let last = limits.find(|limit| limit.key == "last_controller_id");
            let range = self.first_controller_id.into()..=0xffef;
            return Err(error(last.expect("a key of LIMITS"), range));
        }
        Ok(())
    }
}

/// A limit is out of its range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key} must be {legal}from {} to {}", range.start(), range.end())]
pub struct LimitsError {
    /// The key of the limit.
    pub key: &'static str,
    /// The legal values.
    pub range: RangeInclusive<u64>,
    /// The legal values within the range.
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
