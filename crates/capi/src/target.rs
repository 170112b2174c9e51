//! Connections to subsystems.
#![allow(unsafe_code)] // Exported names, and pointers that are handed to `memory`.

use crate::error::{Failure, call};
use crate::handles::Handles;
use crate::memory;
use crate::options::{self, Options, SW_DATA_DIGEST, SW_HEADER_DIGEST, SW_NEVER};
use host::{Class, Host, PathSpec, Subsystem};
use std::ffi::{c_char, c_int};
use std::ptr;
use std::time::Duration;

/// A connected subsystem. Opaque.
#[derive(Debug)]
pub struct Target(());

/// A connection, with what its namespaces inherit.
#[derive(Clone, Debug)]
pub(crate) struct Connected {
    pub(crate) subsystem: Subsystem,
    pub(crate) class: Class,
}

pub(crate) static TARGETS: Handles<Connected> = Handles::new("target");

/// Connects to the subsystem `nqn` at `address` ("HOST:PORT") and stores a handle. `options` may be
/// NULL. Each target has a thread that keeps the connection alive.
///
/// Returns 0, -ECONNREFUSED, -ETIMEDOUT, -EACCES if the target refuses this host, or another
/// negative errno value.
///
/// # Safety
/// Pointers must be valid for the call.
// SAFETY: the name is this library's own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sw_connect(
    address: *const c_char,
    nqn: *const c_char,
    options: *const Options,
    target: *mut *mut Target,
) -> c_int {
    call(|| {
        memory::storable(target)?;
        // SAFETY: the header asks for a string.
        let address = unsafe { memory::text(address, "the address") }?;
        // SAFETY: as above.
        let nqn = unsafe { memory::text(nqn, "the NQN") }?;
        // SAFETY: the header asks for options or NULL.
        let options = unsafe { memory::take(options) }?;
        // SAFETY: as above.
        let connected = unsafe { connect(address, nqn, &options) }?;
        let handle = TARGETS.insert(connected);
        // SAFETY: the header asks for a place for the handle.
        unsafe { memory::store(target, ptr::without_provenance_mut(handle)) }
    })
}

/// # Safety
/// The pointers in `options` are NULL or valid.
unsafe fn connect(address: &str, nqn: &str, options: &Options) -> Result<Connected, Failure> {
    let digests = SW_HEADER_DIGEST | SW_DATA_DIGEST;
    options::flags(options.flags, digests, "SW_HEADER_DIGEST, SW_DATA_DIGEST")?;
    let class = options::class(options.request_class)?.unwrap_or(Class::DEFAULT);
    let bit = |bit| options.flags & bit != 0;
    let mut builder = Host::builder().digests(bit(SW_HEADER_DIGEST), bit(SW_DATA_DIGEST));
    if !options.host_nqn.is_null() {
        // SAFETY: the header asks for a string.
        builder = builder.nqn(unsafe { memory::text(options.host_nqn, "host_nqn") }?);
    }
    let span = |milliseconds: u32| Duration::from_millis(milliseconds.into());
    if options.connect_timeout_ms != 0 {
        builder = builder.connect_timeout(span(options.connect_timeout_ms));
    }
    if options.command_timeout_ms != 0 {
        builder = builder.command_timeout(span(options.command_timeout_ms));
    }
    builder = match options.keep_alive_ms {
        0 => builder,
        SW_NEVER => builder.keep_alive(Duration::ZERO),
        some => builder.keep_alive(span(some)),
    };
    builder = match options.loss_timeout_ms {
        0 => builder,
        SW_NEVER => builder.loss_timeout(None),
        some => builder.loss_timeout(Some(span(some))),
    };
    if !options.path.is_null() {
        // SAFETY: the header asks for a string.
        let path = unsafe { memory::text(options.path, "path") }?.parse::<PathSpec>();
        let path = path.map_err(|error| Failure::new(libc::EINVAL, error.to_string()))?;
        builder = builder.path(path);
    }
    if !options.tls_key_file.is_null() {
        // SAFETY: the header asks for a string.
        let path = unsafe { memory::text(options.tls_key_file, "tls_key_file") }?;
        builder = builder.tls_key_file(path);
    }
    if !options.chap_secret_file.is_null() {
        // SAFETY: the header asks for a string.
        let path = unsafe { memory::text(options.chap_secret_file, "chap_secret_file") }?;
        builder = builder.chap_secret_file(path);
    }
    if !options.chap_controller_secret_file.is_null() {
        let (path, name) = (
            options.chap_controller_secret_file,
            "chap_controller_secret_file",
        );
        // SAFETY: the header asks for a string.
        let path = unsafe { memory::text(path, name) }?;
        builder = builder.chap_controller_secret_file(path);
    }
    let subsystem = builder.build()?.connect(address, nqn)?;
    Ok(Connected { subsystem, class })
}

/// Closes a target handle. The connection ends when all namespaces and queues of the target are
/// closed. Waits up to 1 s for connections of other threads with an I/O path.
///
/// Returns 0 or -EBADF.
// SAFETY: the name is this library's own.
#[unsafe(no_mangle)]
pub extern "C" fn sw_disconnect(target: *mut Target) -> c_int {
    call(|| TARGETS.remove(target.addr()).map(drop))
}
