//! Versions of the library and of its ABI.
#![allow(unsafe_code)] // Exported names.

use std::ffi::c_char;

/// Version of the ABI. A program compiled with this header works with any library of the same
/// number.
pub const SWITCHYARD_ABI_VERSION: u32 = 1;

/// Returns the ABI version of the library. It must equal SWITCHYARD_ABI_VERSION.
// SAFETY: the name is this library's own.
#[unsafe(no_mangle)]
pub extern "C" fn sw_abi_version() -> u32 {
    SWITCHYARD_ABI_VERSION
}

/// Returns the version of the library, such as "1.0.0". Never NULL.
// SAFETY: the name is this library's own.
#[unsafe(no_mangle)]
pub extern "C" fn sw_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
