//! Queues: batches, and single requests for an event loop.

use crate::buffers::{self, Data, Parts};
use crate::requests::{self, BATCH, Handle, OpenQueue, READ};
use crate::times::time;
use crate::{os_error, request_error, submit_error};
use host::{BlockError, Completion, Operation, SubmitError};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use std::os::fd::AsRawFd as _;
use std::time::Duration;

/// A queue of requests of one thread on a namespace.
#[pyclass(frozen, module = "switchyard")]
pub(crate) struct Queue {
    handle: Handle,
}

/// A completed single request: tag, result, and the data of a read.
type Finished<'py, R> = (u64, R, Option<Bound<'py, PyBytes>>);

impl Queue {
    pub(crate) fn new(handle: Handle) -> Self {
        Self { handle }
    }

    /// Submits a single request.
    fn single<E: Into<Refused>>(
        &self,
        tag: u64,
        submit: impl FnOnce(&mut host::Queue) -> Result<(), E>,
    ) -> PyResult<()> {
        if tag & (BATCH | READ) != 0 {
            return Err(PyValueError::new_err("the tag must be less than 2**62"));
        }
        self.handle
            .with(|open| submit(&mut open.queue).map_err(|error| error.into().into()))
    }

    /// Takes the single requests that are done, as [`reap`](Self::reap).
    fn finished<'py, R>(
        &self,
        py: Python<'py>,
        min: usize,
        timeout: Option<Duration>,
        told: impl Fn(Result<(), BlockError>) -> R,
    ) -> PyResult<Vec<Finished<'py, R>>> {
        let handle = self.handle;
        handle.wait(py, timeout, |open| min.saturating_sub(open.singles.len()))?;
        handle.with(|open| {
            let finished = open.singles.drain(..).map(|done| {
                let data = done.data.map(|data| PyBytes::new(py, &data));
                (done.tag, told(done.result), data)
            });
            Ok(finished.collect())
        })
    }

    /// Runs a batch of `count` requests: `submit` submits the request with an index under a tag,
    /// while other threads run, and `each` is given the data of each.
    fn batch(
        &self,
        py: Python<'_>,
        count: usize,
        submit: impl Fn(&mut host::Queue, usize, u64) -> Result<(), SubmitError> + Sync,
        each: impl FnMut(usize, &[u8]) -> PyResult<()>,
    ) -> PyResult<()> {
        let submit = |open: &mut OpenQueue, from| submit_some(open, from, count, &submit);
        let submit = |from| py.detach(|| self.handle.with(|open| submit(open, from)));
        self.batch_by(py, count, submit, each)
    }

    /// Runs a batch of `count` requests, a queue's depth of them at a time: `submit` submits those
    /// from an index on until the queue is full, as [`submit_some`] does, and `each` is given the
    /// data of each.
    fn batch_by(
        &self,
        py: Python<'_>,
        count: usize,
        submit: impl Fn(usize) -> PyResult<(usize, Option<PyErr>)>,
        mut each: impl FnMut(usize, &[u8]) -> PyResult<()>,
    ) -> PyResult<()> {
        let handle = self.handle;
        let mut next = 0;
        handle.run_batch(|| {
            while next < count {
                let from = next;
                let failed;
                (next, failed) = submit(from)?;
                let waited = if next == from && failed.is_none() {
                    // Single requests have all the places.
                    let had = handle.with(|open| Ok(open.singles.len()))?;
                    handle.wait(py, None, |open| {
                        (had + 1).saturating_sub(open.singles.len())
                    })
                } else {
                    handle.wait(py, None, |open| {
                        (next - from).saturating_sub(open.batch.len())
                    })
                };
                handle.with(|open| {
                    // Single requests were found done, too.
                    open.tell();
                    let mut failed = failed;
                    if failed.is_none() && waited.is_ok() {
                        failed = take(&mut open.batch, &mut each)?;
                    }
                    match failed.map_or(waited, Err) {
                        Ok(()) => Ok(()),
                        Err(error) => {
                            open.end_batch(from..next);
                            Err(error)
                        }
                    }
                })?;
            }
            Ok(())
        })
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let handle = self.handle;
        // On another thread it is left to the end of its own.
        let _ = Python::attach(|py| py.detach(|| handle.close()));
    }
}

/// Submits requests of a batch until the queue is full. Returns the index of the first that was not
/// submitted, and the reason where it is another one.
fn submit_some<E: Into<Refused>>(
    open: &mut OpenQueue,
    from: usize,
    count: usize,
    submit: &impl Fn(&mut host::Queue, usize, u64) -> Result<(), E>,
) -> PyResult<(usize, Option<PyErr>)> {
    for next in from..count {
        let tag = open.batch_tag(next);
        match submit(&mut open.queue, next, tag).map_err(E::into) {
            Ok(()) => {}
            Err(Refused::Full) if next > from || open.queue.outstanding() > 0 => {
                return Ok((next, None));
            }
            Err(error) => return Ok((next, Some(error.into()))),
        }
    }
    Ok((count, None))
}

/// A request that a queue did not take.
enum Refused {
    Full,
    For(PyErr),
}

impl From<SubmitError> for Refused {
    fn from(error: SubmitError) -> Self {
        match error {
            SubmitError::Full => Self::Full,
            SubmitError::Request(_) => Self::For(submit_error(error)),
        }
    }
}

impl From<Refused> for PyErr {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Full => submit_error(SubmitError::Full),
            Refused::For(error) => error,
        }
    }
}

/// Submits a write of the data of an object that may change, with one copy of it.
fn write_buffer(
    py: Python<'_>,
    queue: &mut host::Queue,
    tag: u64,
    offset: u64,
    buffer: &PyBuffer<u8>,
    durable: bool,
) -> Result<(), Refused> {
    let (operation, length) = (Operation::Write { durable }, buffer.len_bytes());
    let request = queue.request(tag, operation, offset, length as u64, None);
    let mut request = request.map_err(SubmitError::from)?;
    let mut data = queue.buffer(length).ok_or(Refused::Full)?;
    match data.bytes_mut() {
        Some(bytes) => buffer.copy_to_slice(py, bytes).map_err(Refused::For)?,
        // Through a switchboard it is memory that other threads know.
        None => data.copy_in(0, &buffer.to_vec(py).map_err(Refused::For)?),
    }
    request.data = Some(data);
    queue.submit(request).map_err(|_| Refused::Full)
}

/// Submits a write of bytes that do not change.
fn write_bytes(
    queue: &mut host::Queue,
    tag: u64,
    offset: u64,
    bytes: &[u8],
    durable: bool,
) -> Result<(), SubmitError> {
    match durable {
        true => queue.write_durable(tag, offset, bytes),
        false => queue.write(tag, offset, bytes),
    }
}

/// Hands out the data of the requests of a batch that are done. Returns the last failure.
fn take(
    batch: &mut Vec<Completion>,
    mut each: impl FnMut(usize, &[u8]) -> PyResult<()>,
) -> PyResult<Option<PyErr>> {
    let mut failed = None;
    for done in batch.drain(..) {
        let index = OpenQueue::batch_index(done.tag);
        match (done.result, &done.data) {
            (Ok(()), Some(data)) => each(index, &requests::content(data))?,
            (Ok(()), None) => {}
            (Err(error), _) => {
                let text = format!("request {index} of the batch: {error}");
                failed = Some(os_error(host::block_errno(error), text));
            }
        }
    }
    Ok(failed)
}

#[pymethods]
impl Queue {
    #[getter]
    fn depth(&self) -> PyResult<usize> {
        self.handle.with(|open| Ok(open.queue.depth()))
    }

    #[getter]
    fn outstanding(&self) -> PyResult<usize> {
        let all = |open: &mut OpenQueue| Ok(open.queue.outstanding() + open.singles.len());
        self.handle.with(all)
    }

    /// Reads `length` bytes at each offset.
    fn read_many<'py>(
        &self,
        py: Python<'py>,
        offsets: Vec<u64>,
        length: usize,
    ) -> PyResult<Bound<'py, PyList>> {
        let mut all: Vec<Option<Bound<'py, PyBytes>>> = vec![None; offsets.len()];
        let read = |queue: &mut host::Queue, i: usize, tag| queue.read(tag, offsets[i], length);
        self.batch(py, offsets.len(), read, |index, data| {
            all[index] = Some(PyBytes::new(py, data));
            Ok(())
        })?;
        PyList::new(py, all)
    }

    /// Reads `length` bytes at each offset into a buffer, one after the other.
    fn read_many_into(
        &self,
        py: Python<'_>,
        offsets: Vec<u64>,
        length: usize,
        buffer: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let object = buffer;
        let buffer = buffers::writable(object)?;
        if offsets.len().checked_mul(length) != Some(buffer.len_bytes()) {
            let message = "the buffer is smaller than all reads together";
            return Err(PyValueError::new_err(message));
        }
        let read = |queue: &mut host::Queue, i: usize, tag| queue.read(tag, offsets[i], length);
        let parts = Parts::of(object)?;
        self.batch(py, offsets.len(), read, |index, data| {
            let part = parts.part(index * length..(index + 1) * length)?;
            part.copy_from_slice(py, data)
        })
    }

    /// Writes equal parts of the data at the offsets.
    #[pyo3(signature = (offsets, data, *, durable=false))]
    fn write_many(
        &self,
        py: Python<'_>,
        offsets: Vec<u64>,
        data: &Bound<'_, PyAny>,
        durable: bool,
    ) -> PyResult<()> {
        let (count, bytes) = (offsets.len(), PyBuffer::<u8>::get(data)?.len_bytes());
        if count == 0 && bytes == 0 {
            return Ok(());
        }
        if count == 0 || !bytes.is_multiple_of(count) {
            let message = "the data cannot be split into one equal part per offset";
            return Err(PyValueError::new_err(message));
        }
        let part = |i: usize| i * (bytes / count)..(i + 1) * (bytes / count);
        if buffers::can_change(data)? {
            let parts = Parts::of(data)?;
            let write = |queue: &mut host::Queue, i: usize, tag| {
                let part = parts.part(part(i)).map_err(Refused::For)?;
                write_buffer(py, queue, tag, offsets[i], &part, durable)
            };
            // No other thread runs meanwhile.
            let submit = |open: &mut OpenQueue, from| submit_some(open, from, count, &write);
            let submit = |from| self.handle.with(|open| submit(open, from));
            return self.batch_by(py, count, submit, |_, _| Ok(()));
        }
        let data = Data::of(data)?;
        let write = |queue: &mut host::Queue, i: usize, tag| {
            write_bytes(queue, tag, offsets[i], &data[part(i)], durable)
        };
        self.batch(py, count, write, |_, _| Ok(()))
    }

    fn submit_read(&self, tag: u64, offset: u64, length: usize) -> PyResult<()> {
        self.single(tag, |queue| queue.read(tag | READ, offset, length))
    }

    #[pyo3(signature = (tag, offset, data, *, durable=false))]
    fn submit_write(
        &self,
        py: Python<'_>,
        tag: u64,
        offset: u64,
        data: &Bound<'_, PyAny>,
        durable: bool,
    ) -> PyResult<()> {
        if data.is_instance_of::<PyBytes>() {
            let data = Data::of(data)?;
            return self.single(tag, |queue| write_bytes(queue, tag, offset, &data, durable));
        }
        let data: PyBuffer<u8> = PyBuffer::get(data)?;
        self.single(tag, |queue| {
            write_buffer(py, queue, tag, offset, &data, durable)
        })
    }

    fn submit_flush(&self, tag: u64) -> PyResult<()> {
        self.single(tag, |queue| queue.flush(tag))
    }

    fn submit_discard(&self, tag: u64, offset: u64, length: u64) -> PyResult<()> {
        self.single(tag, |queue| queue.discard(tag, offset, length))
    }

    fn submit_write_zeroes(&self, tag: u64, offset: u64, length: u64) -> PyResult<()> {
        self.single(tag, |queue| queue.write_zeroes(tag, offset, length))
    }

    /// Sets the time-out of later requests; `None`: no time-out.
    #[pyo3(signature = (timeout))]
    fn set_timeout(&self, #[pyo3(from_py_with = time)] timeout: Option<Duration>) -> PyResult<()> {
        self.handle.with(|open| {
            open.queue.set_timeout(timeout);
            Ok(())
        })
    }

    /// Cancels the single requests with this tag. Returns False if there is none.
    fn cancel(&self, tag: u64) -> PyResult<bool> {
        self.handle.with(|open| {
            let found = open.queue.cancel(tag) | open.queue.cancel(tag | READ);
            open.tell();
            Ok(found)
        })
    }

    fn kick(&self) -> PyResult<()> {
        self.handle.with(|open| {
            open.queue.kick();
            open.tell();
            Ok(())
        })
    }

    /// Sends the submitted requests and waits until `min` (or all) single requests are complete.
    /// The result is 0 or an errno value.
    #[pyo3(signature = (min=0, timeout=None))]
    fn reap<'py>(
        &self,
        py: Python<'py>,
        min: usize,
        #[pyo3(from_py_with = time)] timeout: Option<Duration>,
    ) -> PyResult<Vec<Finished<'py, i32>>> {
        self.finished(py, min, timeout, |result| {
            result.map_or_else(host::block_errno, |()| 0)
        })
    }

    /// The same for coroutines, without waiting. The result is `None` or the exception to raise.
    fn reap_for_coroutines<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<Vec<Finished<'py, Option<PyErr>>>> {
        self.finished(py, 0, None, |result| {
            result.err().map(|error| request_error(error.into()))
        })
    }

    /// File descriptor for event loops: readable when `reap(0)` may have completions or work.
    fn fileno(&self) -> PyResult<i32> {
        self.handle.with(|open| {
            let descriptor = open.queue.readiness()?.as_raw_fd();
            open.tell();
            Ok(descriptor)
        })
    }

    /// Closes the queue; outstanding requests get no completion.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let handle = self.handle;
        py.detach(|| handle.close())
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    #[pyo3(signature = (*_raised))]
    fn __exit__(&self, py: Python<'_>, _raised: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py)
    }
}
