//! Errors: a negative errno value, and a text of the calling thread.
#![allow(unsafe_code)] // Exported names.

use host::{HostError, RequestError, SubmitError};
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A defect of the library was caught; the handles that the call used should be closed.
pub const SW_EPANIC: c_int = -1001;

/// The reason for which a call failed.
#[derive(Debug)]
pub(crate) struct Failure {
    /// A positive errno value.
    errno: c_int,
    message: String,
}

impl Failure {
    pub(crate) fn new(errno: c_int, message: impl Into<String>) -> Self {
        Self {
            errno,
            message: message.into(),
        }
    }
}

impl From<HostError> for Failure {
    fn from(error: HostError) -> Self {
        Self::new(error.errno(), error.to_string())
    }
}

impl From<RequestError> for Failure {
    fn from(error: RequestError) -> Self {
        Self::new(error.errno(), error.to_string())
    }
}

impl From<SubmitError> for Failure {
    fn from(error: SubmitError) -> Self {
        Self::new(error.errno(), error.to_string())
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::new(error.raw_os_error().unwrap_or(libc::EIO), error.to_string())
    }
}

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::default();
}

/// Text of the last error of the calling thread, which says what is wrong; empty where there was
/// none. Valid until the next call of the thread. Never NULL.
// SAFETY: the name is this library's own.
#[unsafe(no_mangle)]
pub extern "C" fn sw_error_message() -> *const c_char {
    // A thread that ends has none any more.
    MESSAGE
        .try_with(|message| message.borrow().as_ptr())
        .unwrap_or(c"".as_ptr())
}

/// The answer of a call that succeeds, as C gets it.
pub(crate) trait Answer {
    fn number(self) -> c_int;
}

impl Answer for c_int {
    fn number(self) -> c_int {
        self
    }
}

impl Answer for () {
    fn number(self) -> c_int {
        0
    }
}

/// Runs a call, notes its error, and keeps panics from the caller.
pub(crate) fn call<A: Answer>(run: impl FnOnce() -> Result<A, Failure>) -> c_int {
    // After a panic the caller is told to close what the call used.
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(answer)) => answer.number(),
        Ok(Err(failure)) => {
            note(&failure.message);
            -failure.errno
        }
        Err(_) => {
            note("a defect of the library was caught: close what the call used, and report it");
            SW_EPANIC
        }
    }
}

fn note(message: &str) {
    let text = CString::new(message.replace('\0', " ")).unwrap_or_default();
    let _ = MESSAGE.try_with(|message| message.replace(text));
}
