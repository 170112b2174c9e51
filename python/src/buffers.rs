//! Memory of Python objects.

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyBufferError, PyMemoryError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyMemoryView, PySlice};
use std::ops::{Deref, Range};

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
        if object.is_instance_of::<PyBytes>() {
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
            "cannot allocate {bytes} bytes; use smaller requests"
        ))
    })?;
    memory.resize(bytes, 0);
    Ok(memory)
}

/// A writable object's buffer.
pub(crate) fn writable(object: &Bound<'_, PyAny>) -> PyResult<PyBuffer<u8>> {
    let buffer: PyBuffer<u8> = PyBuffer::get(object)?;
    if buffer.readonly() || !buffer.is_c_contiguous() {
        let message = "the buffer is not contiguous and writable; use a bytearray or a memoryview \
            of one";
        return Err(PyBufferError::new_err(message));
    }
    Ok(buffer)
}

/// Returns true if the object has its data in one piece, and may change it while other threads run;
/// that of others has to be copied as a whole, or need not be.
pub(crate) fn can_change(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let buffer: PyBuffer<u8> = PyBuffer::get(object)?;
    Ok(!object.is_instance_of::<PyBytes>() && buffer.is_c_contiguous())
}

/// The memory of an object in one piece, to be given or taken part by part, each with one copy.
pub(crate) struct Parts<'py> {
    bytes: Bound<'py, PyAny>,
}

impl<'py> Parts<'py> {
    /// The memory of an object with this buffer, which has to be in one piece.
    pub(crate) fn of(object: &Bound<'py, PyAny>) -> PyResult<Self> {
        let bytes = PyMemoryView::from(object)?.call_method1("cast", ("B",))?;
        Ok(Self { bytes })
    }

    /// A part of it.
    pub(crate) fn part(&self, range: Range<usize>) -> PyResult<PyBuffer<u8>> {
        let index = |at: usize| isize::try_from(at).expect("a place in memory");
        let (from, to) = (index(range.start), index(range.end));
        let slice = PySlice::new(self.bytes.py(), from, to, 1);
        PyBuffer::get(&self.bytes.get_item(slice)?)
    }
}
