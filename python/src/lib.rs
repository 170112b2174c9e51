//! The native half of the Python module `switchyard`: connections, blocking calls and queues.
//!
//! The other half, in `python/switchyard`, has what is better said in Python: `asyncio`. Calls
//! that wait let other Python threads run. Errors are `OSError` with an errno value and a text that
//! says what is wrong. Must never: wait with the interpreter's lock; keep an object's memory after
//! the call that it was given to.

mod buffers;
mod connection;
mod open;
mod queue;
mod requests;
mod switchboard;
mod times;

use host::{HostError, RequestError, SubmitError};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

/// The module `switchyard._native`.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<connection::Target>()?;
    module.add_class::<connection::Namespace>()?;
    module.add_class::<switchboard::Switchboard>()?;
    module.add_class::<queue::Queue>()?;
    module.add_function(wrap_pyfunction!(connection::connect, module)?)
}

/// An `OSError`, of the subclass that Python has for the number.
fn os_error(errno: i32, message: impl Into<String>) -> PyErr {
    PyOSError::new_err((errno, message.into()))
}

fn host_error(error: HostError) -> PyErr {
    os_error(error.errno(), error.to_string())
}

fn request_error(error: RequestError) -> PyErr {
    os_error(error.errno(), error.to_string())
}

fn submit_error(error: SubmitError) -> PyErr {
    os_error(error.errno(), error.to_string())
}

/// `EBADF`.
fn closed(what: &str) -> PyErr {
    os_error(9, format!("the {what} is closed; open it again"))
}

/// The class with this name.
fn class(name: Option<&str>) -> PyResult<Option<host::Class>> {
    match name {
        None => Ok(None),
        Some("latency") => Ok(Some(host::Class::Latency)),
        Some("throughput") => Ok(Some(host::Class::Throughput)),
        Some(_) => Err(PyValueError::new_err(
            "request_class must be \"latency\" or \"throughput\"",
        )),
    }
}
