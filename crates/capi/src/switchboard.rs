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

/// Starts a switchboard and stores a handle. `options` may be NULL. Queues of any namespaces that
/// sw_queue_create makes with it share one connection for each of its cores, class and target; on
/// each core requests of SW_CLASS_LATENCY go before those of SW_CLASS_THROUGHPUT. A thread submits to
/// the core that it runs on, or to one of the others if the switchboard does not have that.
///
/// Returns 0, -EINVAL for cores that the process may not use or that are named twice, or a preset or
/// knobs that there are not, -ENOSYS where the kernel refuses an io_uring, or another negative errno
/// value.
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
            let message = format!("{} cores: name at most 1024", options.core_count);
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

/// Closes a switchboard's handle. Its queues go on; its threads and connections end when the last of
/// them is closed, too.
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
            parts.ok_or_else(|| invalid(format!("knobs has {change:?}: write NAME=VALUE,...")))
        });
        let changes = changes.collect::<Result<Vec<_>, _>>()?;
        knobs.change(changes).map_err(invalid)?;
    }
    Ok(knobs)
}

fn invalid(reason: impl ToString) -> Failure {
    Failure::new(libc::EINVAL, reason.to_string())
}

/// Changes a knob while requests are under way, by its name and its value as text: ("doorbell",
/// "immediate"), ("completion_hold_us", "0"), ("prioritisation", "off").
///
/// Returns 0, -EBADF, -ESHUTDOWN where the switchboard has ended, or -EINVAL for a name or a value that
/// there is not (sw_error_message() lists those that there are), a knob that counts only with another
/// one, or one that stays as it was when the switchboard was made: lanes, latency_threads and
/// polling. Nothing has changed then.
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

/// Stores the value of a knob as text, with its end, in `size` bytes; 32 are enough for each.
///
/// Returns 0, -EBADF, -ENOSPC where it has more bytes, or -EINVAL for a name that there is not
/// (sw_error_message() lists those that there are), or a knob that counts only with another one.
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

/// All cores of a switchboard together.
pub const SW_ALL_CORES: u32 = u32::MAX;

/// A counter of a switchboard, of a core or of all.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Counter {
    /// Name, as "latency_requests".
    pub name: [c_char; 56],
    /// Value since the switchboard was made.
    pub value: u64,
}

const _: () = assert!(size_of::<Counter>() == 64, "the layout is part of the ABI");

/// Stores the first `count` counters of the switchboard's thread on the processor `core`, or, with
/// SW_ALL_CORES, of the sums of all; at most 10 ms old. docs/guide/program.md lists them. A later library
/// may have more of them, in another order: find them by their names. `counters` may be NULL where
/// `count` is 0.
///
/// Returns how many there are, -EBADF, or -EINVAL for a processor that the switchboard does not have.
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
