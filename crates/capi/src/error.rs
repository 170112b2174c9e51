//! Errors: a negative errno value, and a text of the calling thread.
#![allow(unsafe_code)] // Exported names.

use host::{HostError, RequestError, SubmitError};
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

/// Internal error of the library (panic). Close the handles used by the call.
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

/// Returns the message of the last error of the calling thread, or an empty string. Valid until the
/// next call of the thread. Never NULL.
// SAFETY: the name is this library's own.
#[unsafe(no_mangle)]
pub extern "C" fn sw_error_message() -> *const c_char {
    // A thread that ends has none any more.
    MESSAGE
        .try_with(|message| message.borrow().as_ptr())
        .unwrap_or(c"".as_ptr())
}

/// Returns a short description of an error value of this library, such as -ERANGE or SW_EPANIC, on
/// any thread. sw_error_message() has the details. Constant, never NULL.
// SAFETY: the name is this library's own.
#[unsafe(no_mangle)]
pub extern "C" fn sw_strerror(code: c_int) -> *const c_char {
    let errno = code.unsigned_abs();
    let text = c_int::try_from(errno).ok().and_then(meaning);
    let text = text.or_else(|| system_texts().get(errno as usize)?.as_deref());
    text.unwrap_or(c"unknown error").as_ptr()
}

/// Returns the meaning of an errno value where this library has one of its own for it.
fn meaning(errno: c_int) -> Option<&'static CStr> {
    const PANIC: c_int = -SW_EPANIC;
    Some(match errno {
        0 => c"success",
        libc::EACCES => c"access denied by the target",
        libc::EAGAIN => c"the queue is full",
        libc::EBADF => c"the handle is closed or invalid",
        libc::EBADMSG => c"data corruption detected",
        libc::EBUSY => c"no free I/O queue, or the buffer is in use",
        libc::ECANCELED => c"the request was cancelled or aborted",
        libc::EINVAL => c"invalid argument, or a range not aligned to blocks",
        libc::ENODEV => c"the namespace was removed",
        libc::ENOENT => c"no such outstanding request",
        libc::ENOSPC => c"no space left on the device, or the result buffer is too small",
        libc::ENOSYS => c"io_uring is not available",
        libc::ENXIO => c"no such namespace",
        libc::EOPNOTSUPP => c"not supported by the target",
        libc::EPERM => c"the queue belongs to another thread",
        libc::EPROTO => c"protocol error by the target",
        libc::ERANGE => c"beyond the end of the namespace",
        libc::EREMOTEIO => c"the target lost writes that were not flushed",
        libc::EROFS => c"the namespace is read-only",
        libc::ESHUTDOWN => c"closed during the call",
        libc::ESTALE => c"the namespace is now another volume",
        libc::ETIMEDOUT => c"timed out",
        PANIC => c"internal error of the library; close the handles used by the call",
        _ => return None,
    })
}

/// The system's texts of errno values, by value; without the number in them.
fn system_texts() -> &'static [Option<CString>] {
    static TEXTS: OnceLock<Vec<Option<CString>>> = OnceLock::new();
    TEXTS.get_or_init(|| {
        let text = |errno| {
            let text = io::Error::from_raw_os_error(errno).to_string();
            let text = text.strip_suffix(&format!(" (os error {errno})"))?;
            CString::new(text).ok()
        };
        (0..=libc::EHWPOISON).map(text).collect()
    })
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
            note(
                "internal error of the library; close the handles used by the call, and report \
                the error",
            );
            SW_EPANIC
        }
    }
}

fn note(message: &str) {
    let text = CString::new(message.replace('\0', " ")).unwrap_or_default();
    let _ = MESSAGE.try_with(|message| message.replace(text));
}
