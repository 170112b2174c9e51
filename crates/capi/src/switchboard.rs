//! Switchboards: lanes to targets that the threads of a process share.
#![allow(unsafe_code)] // Exported names, and pointers that are handed to `memory`.

use crate::error::{Failure, call};
use crate::handles::Handles;
use crate::memory;
use crate::options::{self, Switchboard, SwitchboardOptions};
use host::{CoreId, Knobs, Preset};
use std::ffi::{c_char, c_int};
use std::ptr;

pub(crate) static SWITCHBOARDS: Handles<host::Switchboard> = Handles::new("switchboard");

/// Starts a switchboard and stores a handle. `options` may be NULL. Its queues, of any namespace,
/// share one connection per core, class and target. Each core serves SW_CLASS_LATENCY before
/// SW_CLASS_THROUGHPUT. A thread submits to the core on which it runs, or to another core of the
/// switchboard if its own is not part of it.
///
/// Returns 0, -EINVAL for unavailable or duplicate cores, or an unknown preset or switch parameter,
/// -ENOSYS without io_uring, or another negative errno value.
///
/// # Safety
/// Pointers must be valid for the call.
// SAFETY: the name is this library's own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sw_switchboard_create(
    options: *const SwitchboardOptions,
    switchboard: *mut *mut Switchboard,
) -> c_int {
    call(|| {
        memory::storable(switchboard)?;
        // SAFETY: the header asks for options or NULL.
        let options = unsafe { memory::take(options) }?;
        options::flags(options.reserved, 0, "zero in reserved fields")?;
        if options.core_count > 1024 {
            let message = format!("{} cores; use at most 1024", options.core_count);
            return Err(Failure::new(libc::EINVAL, message));
        }
        // SAFETY: the header asks for as many numbers.
        let cores = unsafe { memory::numbers(options.cores, options.core_count as usize) }?;
        let mut chosen = host::SwitchboardOptions::of_process()?;
        if !options.cores.is_null() {
            chosen.cores = cores.into_iter().map(CoreId).collect();
        }
        // SAFETY: as above.
        chosen.knobs = unsafe { knobs(&options) }?;
        let handle = SWITCHBOARDS.insert(host::Switchboard::start(&chosen)?);
        // SAFETY: the header asks for a place for the handle.
        unsafe { memory::store(switchboard, ptr::without_provenance_mut(handle)) }
    })
}

/// Closes a switchboard handle. Its queues continue; its threads and connections end when the last
/// queue is closed.
///
/// Returns 0 or -EBADF.
// SAFETY: the name is this library's own.
#[unsafe(no_mangle)]
pub extern "C" fn sw_switchboard_destroy(switchboard: *mut Switchboard) -> c_int {
    call(|| SWITCHBOARDS.remove(switchboard.addr()).map(drop))
}

/// # Safety
/// The pointers in `options` are NULL or valid.
unsafe fn knobs(options: &SwitchboardOptions) -> Result<Knobs, Failure> {
    let mut knobs = Knobs::default();
    if !options.preset.is_null() {
        // SAFETY: the header asks for a string.
        let preset = unsafe { memory::text(options.preset, "preset") }?.parse::<Preset>();
        knobs = preset.map_err(invalid)?.knobs();
    }
    if !options.knobs.is_null() {
        // SAFETY: as above.
        let text = unsafe { memory::text(options.knobs, "knobs") }?;
        let changes = text.split(',').filter(|change| !change.is_empty());
        let changes = changes.map(|change| {
            let parts = change.split_once('=');
            parts.ok_or_else(|| invalid(format!("knobs has {change:?}; use NAME=VALUE,...")))
        });
        let changes = changes.collect::<Result<Vec<_>, _>>()?;
        knobs.change(changes).map_err(invalid)?;
    }
    Ok(knobs)
}

fn invalid(reason: impl ToString) -> Failure {
    Failure::new(libc::EINVAL, reason.to_string())
}

/// Changes a switch parameter, without interrupting requests. Name and value are text, such as
/// ("doorbell", "immediate"), ("completion_hold_us", "0"), ("prioritisation", "off").
///
/// Returns 0, -EBADF, -ESHUTDOWN if the switchboard has ended, or -EINVAL for an unknown name or
/// value (sw_error_message() lists the valid ones), a parameter without effect in the current mode,
/// or one that is fixed at the start: lanes, latency_threads and polling. After an error nothing
/// has changed.
///
/// # Safety
/// Pointers must be valid for the call.
// SAFETY: the name is this library's own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sw_switchboard_set_knob(
    switchboard: *mut Switchboard,
    name: *const c_char,
    value: *const c_char,
) -> c_int {
    call(|| {
        let board = SWITCHBOARDS.get(switchboard.addr())?;
        // SAFETY: the header asks for a string.
        let name = unsafe { memory::text(name, "the name") }?;
        // SAFETY: as above.
        let value = unsafe { memory::text(value, "the value") }?;
        Ok(board.change_knobs([(name, value)])?)
    })
}

/// Stores the value of a switch parameter as text with a terminating 0 in `size` bytes; 32 are
/// enough.
///
/// Returns 0, -EBADF, -ENOSPC if the text is longer, or -EINVAL for an unknown name
/// (sw_error_message() lists the valid ones), or a parameter without effect in the current mode.
///
/// # Safety
/// Pointers must be valid for the call.
// SAFETY: the name is this library's own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sw_switchboard_get_knob(
    switchboard: *mut Switchboard,
    name: *const c_char,
    value: *mut c_char,
    size: usize,
) -> c_int {
    call(|| {
        let board = SWITCHBOARDS.get(switchboard.addr())?;
        // SAFETY: the header asks for a string.
        let name = unsafe { memory::text(name, "the name") }?;
        let text = board.knobs().text(name).map_err(invalid)?;
        // SAFETY: the header asks for as many bytes.
        unsafe { memory::store_text(value, size, &text) }
    })
}

/// Sum over all cores of a switchboard.
pub const SW_ALL_CORES: u32 = u32::MAX;

/// A counter of a switchboard.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Counter {
    /// Name, such as "latency_requests".
    pub name: [c_char; 56],
    /// Value since the start of the switchboard.
    pub value: u64,
}

const _: () = assert!(size_of::<Counter>() == 64, "the layout is part of the ABI");

/// Stores the first `count` counters of `core`, or with SW_ALL_CORES the sums over all cores.
/// Values are at most 10 ms old. docs/guide/program.md lists them. Later libraries may have more
/// counters, in another order: find them by name. `counters` may be NULL if `count` is 0.
///
/// Returns the number of existing counters, -EBADF, or -EINVAL for a core that is not part of the
/// switchboard.
///
/// # Safety
/// Pointers must be valid for the call.
// SAFETY: the name is this library's own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sw_switchboard_counters(
    switchboard: *mut Switchboard,
    core: u32,
    counters: *mut Counter,
    count: usize,
) -> c_int {
    call(|| {
        let board = SWITCHBOARDS.get(switchboard.addr())?;
        let core = (core != SW_ALL_CORES).then_some(CoreId(core));
        let named = board.named_counters(core)?;
        for (index, (name, value)) in named.iter().take(count).enumerate() {
            let mut counter = Counter {
                name: [0; 56],
                value: *value,
            };
            let room = counter.name.len();
            // SAFETY: the place is ours.
            unsafe { memory::store_text(counter.name.as_mut_ptr(), room, name) }?;
            // SAFETY: the header asks for room for as many.
            unsafe { memory::store(counters.wrapping_add(index), counter) }?;
        }
        Ok(c_int::try_from(named.len()).expect("a few dozens"))
    })
}
