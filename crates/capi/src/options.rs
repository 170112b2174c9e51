//! Options of a connection, of a switchboard and of a queue.
#![allow(unsafe_code)] // Promises about the layout of the structures.

use crate::error::Failure;
use crate::memory::Versioned;
use host::Class;
use reactor::PollPolicy;
use std::ffi::c_char;
use std::time::Duration;

/// Class of requests: that of the connection, or the library's default, which is throughput.
pub const SW_CLASS_DEFAULT: u32 = 0;
/// Class of requests that are few and waited for: they go first.
pub const SW_CLASS_LATENCY: u32 = 1;
/// Class of requests that are many.
pub const SW_CLASS_THROUGHPUT: u32 = 2;

/// Digests of headers: damage on the way is noticed, at some cost.
pub const SW_HEADER_DIGEST: u32 = 1;
/// Digests of data.
pub const SW_DATA_DIGEST: u32 = 2;

/// A thread that waits polls while that pays, and sleeps otherwise.
pub const SW_POLL_AUTO: u32 = 0;
/// A thread that waits always polls: lowest latency, a whole processor.
pub const SW_POLL_ALWAYS: u32 = 1;
/// A thread that waits sleeps at once.
pub const SW_POLL_NEVER: u32 = 2;

/// A time of options that never comes.
pub const SW_NEVER: u32 = u32::MAX;

/// Options of sw_connect. Zero in a field is its default; set size to sizeof(sw_options).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Options {
    /// Size of the structure in bytes.
    pub size: usize,
    /// Name of this host (NQN) that the target knows it by; NULL makes one for this connection.
    pub host_nqn: *const c_char,
    /// Class of the requests: SW_CLASS_*.
    pub request_class: u32,
    /// SW_HEADER_DIGEST, SW_DATA_DIGEST.
    pub flags: u32,
    /// Time that each step of connecting may take, in milliseconds.
    pub connect_timeout_ms: u32,
    /// Time after which a command is aborted, in milliseconds; 30,000 by default.
    pub command_timeout_ms: u32,
    /// Keep-alive time-out in milliseconds; 15,000 by default, SW_NEVER turns it off.
    pub keep_alive_ms: u32,
    /// Time without a connection after which requests fail, in milliseconds; 600,000 by default,
    /// SW_NEVER waits for ever.
    pub loss_timeout_ms: u32,
    /// I/O path of blocking calls, as "sync" or "stm:handover_us=500": each thread that makes them
    /// has a connection of its own. It ends as that thread closes the namespace, with its next call
    /// by a path after another thread did that, or with the thread. NULL: a thread of the library
    /// carries them out for all.
    pub path: *const c_char,
}

// SAFETY: a `usize`, two pointers and six 32-bit numbers leave no gap.
unsafe impl Versioned for Options {}

const _: () = assert!(size_of::<Options>() == 48, "the layout is part of the ABI");

/// Threads and lanes that the queues of a process share. Opaque.
#[derive(Debug)]
pub struct Switchboard(());

/// Options of sw_switchboard_create. Zero in a field is its default; set size to
/// sizeof(sw_switchboard_options).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct SwitchboardOptions {
    /// Size of the structure in bytes.
    pub size: usize,
    /// Numbers of the processors that get a thread and lanes each; NULL: all that the calling thread
    /// may run on.
    pub cores: *const u32,
    /// The number of them, at most 1024.
    pub core_count: u32,
    /// Zero.
    pub reserved: u32,
    /// Position of all knobs to begin with: "switchyard", which NULL is, or that of another stack to
    /// compare with, as "linux" or "nvme-tcp" (the names of --baseline of the program).
    pub preset: *const c_char,
    /// Knobs that differ from it, as "doorbell=immediate,completion_hold_us=0" (those of --knob of
    /// the program; `switchyard switch knobs` lists them); NULL: none.
    pub knobs: *const c_char,
}

// SAFETY: a `usize`, three pointers and two 32-bit numbers leave no gap.
unsafe impl Versioned for SwitchboardOptions {}

const _: () = assert!(
    size_of::<SwitchboardOptions>() == 40,
    "the layout is part of the ABI"
);

/// Lets the switchboard move the thread to others of its cores while it has the queue, unless the
/// thread was pinned to one.
pub const SW_STEERED: u32 = 1;

/// Options of sw_queue_create. Zero in a field is its default; set size to
/// sizeof(sw_queue_options).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct QueueOptions {
    /// Size of the structure in bytes.
    pub size: usize,
    /// Connections of the queue, each with as many requests as the queue's depth; 1 by default.
    pub connections: u32,
    /// Behaviour of sw_queue_reap while it waits: SW_POLL_*.
    pub poll: u32,
    /// Class of the requests: SW_CLASS_*; by default that of the connection.
    pub request_class: u32,
    /// Zero.
    pub reserved: u32,
    /// Makes the queue's requests go through this switchboard; NULL: the queue has connections of its
    /// own. What follows is for queues of a switchboard only, and connections is not.
    pub switchboard: *mut Switchboard,
    /// Most bytes of a request with data; 262,144 by default. Twice as much for each request of the
    /// depth is the address space that the queue takes, 2 GiB at most, for which the depth is reduced.
    pub request_bytes: u32,
    /// SW_STEERED.
    pub flags: u32,
    /// Bytes of sw_buffer_alloc, 1 GiB at most, of which data is not copied; none by default. Address
    /// space.
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
    let message = format!("{what} is {value:#x}: use {instead}");
    Failure::new(libc::EINVAL, message)
}

/// Returns the time-out of so many microseconds; `None` for a negative number.
pub(crate) fn timeout(microseconds: i64) -> Option<Duration> {
    u64::try_from(microseconds).ok().map(Duration::from_micros)
}
