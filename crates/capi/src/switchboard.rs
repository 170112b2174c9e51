//! Switchboards: lanes to targets that the threads of a process share.
#![allow(unsafe_code)] // Exported names, and pointers that are handed to `memory`.

use crate::error::{Failure, call};
use crate::handles::Handles;
use crate::memory;
use crate::options::{self, Switchboard, SwitchboardOptions};
use host::CoreId;
use std::ffi::c_int;
use std::ptr;

pub(crate) static SWITCHBOARDS: Handles<host::Switchboard> = Handles::new("switchboard");

/// Starts a switchboard and stores a handle. `options` may be NULL. Queues of any namespaces that
/// sw_queue_create makes with it share one connection for each of its cores, class and target; on
/// each core requests of SW_CLASS_LATENCY go before those of SW_CLASS_THROUGHPUT. A thread submits to
/// the core that it runs on, or to one of the others if the switchboard does not have that.
///
/// Returns 0, -EINVAL for cores that the process may not use or that are named twice, -ENOSYS where
/// the kernel refuses an io_uring, or another negative errno value.
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
        let handle = SWITCHBOARDS.insert(host::Switchboard::start(&chosen)?);
        // SAFETY: the header asks for a place for the handle.
        unsafe { memory::store(switchboard, ptr::without_provenance_mut(handle)) }?;
        Ok(0)
    })
}

/// Closes a switchboard's handle. Its queues go on; its threads and connections end when the last of
/// them is closed, too.
///
/// Returns 0 or -EBADF.
// SAFETY: the name is this library's own.
#[unsafe(no_mangle)]
pub extern "C" fn sw_switchboard_destroy(switchboard: *mut Switchboard) -> c_int {
    call(|| {
        drop(SWITCHBOARDS.remove(switchboard.addr())?);
        Ok(0)
    })
}
