//! Memory of Python objects.

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyBufferError, PyMemoryError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use std::ops::Deref;

/// Data to write: the memory of a `bytes` object itself, or a copy of any other object's.
pub(crate) enum Data {
    /// Cannot change.
    Bytes(PyBackedBytes),
    /// Of an object that may change meanwhile.
    Copy(Vec<u8>),
}

impl Deref for Data {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Copy(copy) => copy,
        }
    }
}

impl Data {
    /// The data of an object with a contiguous buffer.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        if object.is_instance_of::<pyo3::types::PyBytes>() {
            return Ok(Self::Bytes(object.extract()?));
        }
        let buffer: PyBuffer<u8> = PyBuffer::get(object)?;
        let mut copy = zeroed(buffer.len_bytes())?;
        buffer.copy_to_slice(object.py(), &mut copy)?;
        Ok(Self::Copy(copy))
    }
}

/// Memory of the module's own, or a `MemoryError`: a program asks for as much as it likes.
pub(crate) fn zeroed(bytes: usize) -> PyResult<Vec<u8>> {
    let mut memory = Vec::new();
    memory.try_reserve_exact(bytes).map_err(|_| {
        PyMemoryError::new_err(format!(
            "no memory for {bytes} bytes: read or write less at once"
        ))
    })?;
    memory.resize(bytes, 0);
    Ok(memory)
}

/// A writable object's buffer.
pub(crate) fn writable(object: &Bound<'_, PyAny>) -> PyResult<PyBuffer<u8>> {
    let buffer: PyBuffer<u8> = PyBuffer::get(object)?;
    if buffer.readonly() || !buffer.is_c_contiguous() {
        let message = "the buffer cannot be written in one piece: use a bytearray or a memoryview";
        return Err(PyBufferError::new_err(message));
    }
    Ok(buffer)
}
