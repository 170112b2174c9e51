//! Limits of a configuration, each with its reason. Limits that an operator can change are the
//! target's: [`target::limits::LIMITS`].

use std::ops::RangeInclusive;
pub use target::limits::{ANA_GROUPS_MAX, NAMESPACES_MAX, REFERRALS_MAX, SUBSYSTEMS_MAX};

/// Networks of one tenant's hosts: one for each rack of a large hall.
pub const TENANT_NETWORKS_MAX: usize = 256;

/// Addresses the target listens at: one for each network port of a large machine.
pub const LISTEN_ADDRESSES_MAX: usize = 64;

/// The highest core number: the size of a CPU set that every kernel takes.
pub const CORE_NUMBER_MAX: u32 = 1023;

/// Hosts allowed by name in one subsystem: they are looked through on every connect.
pub const ALLOWED_HOSTS_MAX: usize = 1024;

/// Hosts with keys: some for each subsystem of a large target.
pub const HOSTS_MAX: usize = 4096;

/// Files with keys of one host: an old and a new one of each kind, for some subsystems.
pub const HOST_KEY_FILES_MAX: usize = 16;

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

/// Bytes of a device's model: a curve of 256 points takes 32 KiB.
pub const DEVICE_MODEL_BYTES_MAX: usize = 256 * 1024;

/// Problems listed in one report: more than a screenful is not read.
pub const PROBLEMS_MAX: usize = 50;

/// Bytes of a file with certificates, a key or tokens: some authorities between, or
/// [`API_TOKENS_MAX`].
pub const API_FILE_BYTES_MAX: usize = 64 * 1024;

/// Tokens of clients over TCP: all are compared with that of each request.
pub const API_TOKENS_MAX: usize = 256;

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

/// Bytes of a file that is replaced in one step: two configurations as JSON, which may have grown
/// beyond the size of a file or a body.
pub const REPLACED_BYTES_MAX: usize = 32 * CONFIGURATION_BYTES_MAX;
