//! Times as Python programs give them.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use std::time::Duration;

/// Reads a time: `None`, seconds as a number, or a `timedelta`.
pub(crate) fn time(value: &Bound<'_, PyAny>) -> PyResult<Option<Duration>> {
    if value.is_none() {
        return Ok(None);
    }
    let negative = || {
        let text = format!("invalid time {value}; use 0 or more seconds, or None");
        PyValueError::new_err(text)
    };
    if let Ok(seconds) = value.extract::<f64>() {
        let time = Duration::try_from_secs_f64(seconds);
        return time.map(Some).map_err(|_| negative());
    }
    value.extract::<Duration>().map(Some).map_err(|error| {
        if error.is_instance_of::<PyValueError>(value.py()) {
            return negative();
        }
        let text = format!("invalid time {value}; use seconds as a number, a timedelta, or None");
        PyTypeError::new_err(text)
    })
}
