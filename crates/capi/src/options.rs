//! Options of a connection, of a switchboard and of a queue.
#![allow(unsafe_code)] // Promises about the layout of the structures.

use crate::error::Failure;
use crate::memory::Versioned;
use host::Class;
use reactor::PollPolicy;
use std::ffi::c_char;
use std::time::Duration;

/// Request class: that of the connection, or SW_CLASS_THROUGHPUT.
pub const SW_CLASS_DEFAULT: u32 = 0;
/// Request class L (latency): served first.
pub const SW_CLASS_LATENCY: u32 = 1;
/// Request class T (throughput).
pub const SW_CLASS_THROUGHPUT: u32 = 2;

/// Enable header digests (CRC-32C).
pub const SW_HEADER_DIGEST: u32 = 1;
/// Enable data digests (CRC-32C).
pub const SW_DATA_DIGEST: u32 = 2;

/// A waiting thread polls while requests complete frequently enough, otherwise sleeps.
pub const SW_POLL_AUTO: u32 = 0;
/// A waiting thread always polls: lowest latency, 100 % CPU.
pub const SW_POLL_ALWAYS: u32 = 1;
/// A waiting thread sleeps.
pub const SW_POLL_NEVER: u32 = 2;

/// Infinite time-out.
pub const SW_NEVER: u32 = u32::MAX;

/// Options of sw_connect. Set size to sizeof(sw_options). 0 in any other field means its default.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Options {
    /// Size of the structure in bytes.
    pub size: usize,
    /// NQN of this host; NULL: a new one for this connection.
    pub host_nqn: *const c_char,
    /// Class of the requests: SW_CLASS_*.
    pub request_class: u32,
    /// SW_HEADER_DIGEST, SW_DATA_DIGEST.
    pub flags: u32,
    /// Time-out of each step of the connection set-up, in milliseconds.
    pub connect_timeout_ms: u32,
    /// Time after which a command is aborted, in milliseconds; 30,000 by default.
    pub command_timeout_ms: u32,
    /// Keep-alive time-out in milliseconds; 15,000 by default, SW_NEVER disables it.
    pub keep_alive_ms: u32,
    /// Time without a connection after which requests fail, in milliseconds; 600,000 by default,
    /// SW_NEVER waits for ever.
    pub loss_timeout_ms: u32,
    /// I/O path of blocking calls, such as "sync" or "stm:handover_us=500". Each calling thread
    /// then has its own connection, until it closes the namespace or exits; if another thread
    /// closes the namespace, until the next call of this thread. NULL: a thread of the library
    /// executes the calls of all threads.
    pub path: *const c_char,
    /// File with TLS keys of this host, of mode 0600: connections use TLS 1.3. NULL: without TLS.
    pub tls_key_file: *const c_char,
    /// File with the secret of this host for DH-HMAC-CHAP, of mode 0600. NULL: no secret.
    pub chap_secret_file: *const c_char,
    /// File with the secret by which targets must prove themselves, of mode 0600; needs
    /// chap_secret_file. NULL: they need not.
    pub chap_controller_secret_file: *const c_char,
}

// SAFETY: a `usize`, five pointers and six 32-bit numbers leave no gap.
unsafe impl Versioned for Options {}

const _: () = assert!(size_of::<Options>() == 72, "the layout is part of the ABI");

/// Threads and connections that queues of a process share. Opaque.
#[derive(Debug)]
pub struct Switchboard(());

/// Options of sw_switchboard_create. Set size to sizeof(sw_switchboard_options). 0 in any other
/// field means its default.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct SwitchboardOptions {
    /// Size of the structure in bytes.
    pub size: usize,
    /// CPUs of the switchboard, with one thread each; NULL: all CPUs that the calling thread may
    /// use.
    pub cores: *const u32,
    /// Number of entries in cores, at most 1024.
    pub core_count: u32,
    /// Zero.
    pub reserved: u32,
    /// Preset of the switch parameters: "switchyard" (NULL), or another stack for comparison, such
    /// as "linux" or "nvme-tcp" (see `switchyard bench --help`, --baseline).
    pub preset: *const c_char,
    /// Switch parameters that differ from the preset, such as
    /// "doorbell=immediate,completion_hold_us=0" (`switchyard switch knobs` lists them); NULL:
    /// none.
    pub knobs: *const c_char,
}

// SAFETY: a `usize`, three pointers and two 32-bit numbers leave no gap.
unsafe impl Versioned for SwitchboardOptions {}

const _: () = assert!(
    size_of::<SwitchboardOptions>() == 40,
    "the layout is part of the ABI"
);

/// The switchboard may move the thread between its cores while the queue exists, unless the thread
/// is pinned to one CPU.
pub const SW_STEERED: u32 = 1;

/// Options of sw_queue_create. Set size to sizeof(sw_queue_options). 0 in any other field means its
/// default.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct QueueOptions {
    /// Size of the structure in bytes.
    pub size: usize,
    /// Number of connections, each with the depth of the queue; 1 by default.
    pub connections: u32,
    /// Polling policy of sw_queue_reap: SW_POLL_*.
    pub poll: u32,
    /// Class of the requests: SW_CLASS_*; by default that of the connection.
    pub request_class: u32,
    /// Zero.
    pub reserved: u32,
    /// Switchboard of the queue; NULL: the queue has its own connections. The fields below apply
    /// only with a switchboard, and connections only without one.
    pub switchboard: *mut Switchboard,
    /// Largest request in bytes; 262,144 by default. The queue uses 2 * depth * request_bytes of
    /// address space, at most 2 GiB; the depth is reduced to fit.
    pub request_bytes: u32,
    /// SW_STEERED.
    pub flags: u32,
    /// Size of the memory for zero-copy buffers (sw_buffer_alloc) in bytes, at most 1 GiB; 0 by
    /// default. Reserves address space only.
    pub buffer_bytes: u64,
}

// SAFETY: a `usize`, a pointer, six 32-bit numbers and a 64-bit one leave no gap.
unsafe impl Versioned for QueueOptions {}

const _: () = assert!(
    size_of::<QueueOptions>() == 48,
    "the layout is part of the ABI"
);

/// Returns the class with this number; `None` for the default.
pub(crate) fn class(number: u32) -> Result<Option<Class>, Failure> {
    match number {
        SW_CLASS_DEFAULT => Ok(None),
        SW_CLASS_LATENCY => Ok(Some(Class::Latency)),
        SW_CLASS_THROUGHPUT => Ok(Some(Class::Throughput)),
        _ => Err(unknown("request_class", number, "SW_CLASS_*")),
    }
}

/// Returns the poll policy with this number.
pub(crate) fn poll(number: u32) -> Result<PollPolicy, Failure> {
    match number {
        SW_POLL_AUTO => Ok(PollPolicy::Auto),
        SW_POLL_ALWAYS => Ok(PollPolicy::Always),
        SW_POLL_NEVER => Ok(PollPolicy::Never),
        _ => Err(unknown("poll", number, "SW_POLL_*")),
    }
}

/// Refuses bits that have no meaning.
pub(crate) fn flags(given: u32, known: u32, names: &str) -> Result<(), Failure> {
    if given & !known != 0 {
        return Err(unknown("flags", given, names));
    }
    Ok(())
}

/// An option that has no such value.
pub(crate) fn unknown(what: &str, value: u32, instead: &str) -> Failure {
    let message = format!("{what} is {value:#x}; use {instead}");
    Failure::new(libc::EINVAL, message)
}

/// Returns the time-out of so many microseconds; `None` for a negative number.
pub(crate) fn timeout(microseconds: i64) -> Option<Duration> {
    u64::try_from(microseconds).ok().map(Duration::from_micros)
}
