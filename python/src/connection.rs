//! Targets and namespaces: connecting, and blocking calls.

use crate::buffers::{self, Data};
use crate::open::Open;
use crate::queue::Queue;
use crate::switchboard::Switchboard;
use crate::times::time;
use crate::{class, host_error, request_error, requests};
use host::{Class, Host, PathSpec, RequestError, Subsystem};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::cell::Cell;
use std::path::PathBuf;
use std::time::Duration;

/// A connected subsystem.
#[pyclass(frozen, module = "switchyard")]
pub(crate) struct Target {
    inner: Open<(Subsystem, Class)>,
}

/// Connects to a subsystem.
#[pyfunction]
#[pyo3(signature = (address, nqn, *, host_nqn=None, request_class=None, header_digest=false,
    data_digest=false, connect_timeout=None, command_timeout=None, loss_timeout=None, path=None,
    tls_key_file=None, chap_secret_file=None, chap_controller_secret_file=None))]
pub(crate) fn connect(
    py: Python<'_>,
    address: &str,
    nqn: &str,
    host_nqn: Option<String>,
    request_class: Option<&str>,
    header_digest: bool,
    data_digest: bool,
    #[pyo3(from_py_with = time)] connect_timeout: Option<Duration>,
    #[pyo3(from_py_with = time)] command_timeout: Option<Duration>,
    #[pyo3(from_py_with = time)] loss_timeout: Option<Duration>,
    path: Option<&str>,
    tls_key_file: Option<PathBuf>,
    chap_secret_file: Option<PathBuf>,
    chap_controller_secret_file: Option<PathBuf>,
) -> PyResult<Target> {
    let class = class(request_class)?.unwrap_or(Class::DEFAULT);
    let mut builder = Host::builder().digests(header_digest, data_digest);
    if let Some(name) = host_nqn {
        builder = builder.nqn(name);
    }
    if let Some(timeout) = connect_timeout {
        builder = builder.connect_timeout(timeout);
    }
    if let Some(timeout) = command_timeout {
        builder = builder.command_timeout(timeout);
    }
    if let Some(timeout) = loss_timeout {
        builder = builder.loss_timeout(Some(timeout));
    }
    if let Some(name) = path {
        let path = name.parse::<PathSpec>();
        builder = builder.path(path.map_err(|error| PyValueError::new_err(error.to_string()))?);
    }
    if let Some(file) = tls_key_file {
        builder = builder.tls_key_file(file);
    }
    if let Some(file) = chap_secret_file {
        builder = builder.chap_secret_file(file);
    }
    if let Some(file) = chap_controller_secret_file {
        builder = builder.chap_controller_secret_file(file);
    }
    let connect = || builder.build()?.connect(address, nqn);
    let subsystem = py.detach(connect).map_err(host_error)?;
    Ok(Target {
        inner: Open::new((subsystem, class)),
    })
}

#[pymethods]
impl Target {
    /// Opens a namespace.
    #[pyo3(signature = (nsid=1))]
    fn namespace(&self, py: Python<'_>, nsid: u32) -> PyResult<Namespace> {
        let open = |(subsystem, class): &(Subsystem, Class)| subsystem.namespace_with(nsid, *class);
        let opened = self.inner.run(py, "target", open)?;
        Ok(Namespace {
            inner: Open::new(opened.map_err(host_error)?.interrupted_by(interrupted)),
        })
    }

    /// Namespace IDs of the subsystem.
    fn namespaces(&self) -> PyResult<Vec<u32>> {
        let all = |(subsystem, _): &(Subsystem, Class)| subsystem.namespaces();
        let all = self.inner.with("target", all)?;
        Ok(all.iter().map(|info| info.nsid).collect())
    }

    /// Closes the target; its namespaces and queues continue.
    fn close(&self, py: Python<'_>) {
        self.inner.close(py);
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    #[pyo3(signature = (*_raised))]
    fn __exit__(&self, py: Python<'_>, _raised: &Bound<'_, PyAny>) {
        self.close(py);
    }
}

/// An open namespace, for blocking calls from any thread.
#[pyclass(frozen, module = "switchyard")]
pub(crate) struct Namespace {
    inner: Open<host::Namespace>,
}

impl Namespace {
    fn ask<A>(&self, ask: impl FnOnce(&host::Namespace) -> A) -> PyResult<A> {
        self.inner.with("namespace", ask)
    }

    /// Makes a call.
    fn call(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&host::Namespace) -> Result<(), RequestError> + Send,
    ) -> PyResult<()> {
        let result = self.inner.run(py, "namespace", call)?;
        // A handler of a signal raised.
        RAISED.take().map_or(result.map_err(request_error), Err)
    }
}

thread_local! {
    /// The exception of a signal handler that ended the wait of a call.
    static RAISED: Cell<Option<PyErr>> = const { Cell::new(None) };
}

/// Runs Python's signal handlers. Returns true if one raised.
fn interrupted() -> bool {
    let raised = Python::attach(|py| py.check_signals().err());
    let is_raised = raised.is_some();
    RAISED.set(raised);
    is_raised
}

#[pymethods]
impl Namespace {
    #[getter]
    fn size(&self) -> PyResult<u64> {
        self.ask(host::Namespace::size)
    }

    #[getter]
    fn block_bytes(&self) -> PyResult<u32> {
        self.ask(host::Namespace::block_bytes)
    }

    #[getter]
    fn max_request_bytes(&self) -> PyResult<u64> {
        self.ask(host::Namespace::max_request_bytes)
    }

    #[getter]
    fn read_only(&self) -> PyResult<bool> {
        self.ask(host::Namespace::is_read_only)
    }

    fn read<'py>(
        &self,
        py: Python<'py>,
        offset: u64,
        length: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let (size, bytes) = (self.size()?, length as u64);
        // Before memory is taken for it.
        if offset.checked_add(bytes).is_none_or(|end| end > size) {
            return Err(request_error(RequestError::OutOfRange {
                offset,
                length: bytes,
                size,
            }));
        }
        PyBytes::new_with(py, length, |data| {
            self.call(py, |namespace| namespace.read(offset, data))
        })
    }

    fn read_into(&self, py: Python<'_>, offset: u64, buffer: &Bound<'_, PyAny>) -> PyResult<()> {
        let buffer = buffers::writable(buffer)?;
        let mut data = buffers::zeroed(buffer.len_bytes())?;
        self.call(py, |namespace| namespace.read(offset, &mut data))?;
        buffer.copy_from_slice(py, &data)
    }

    #[pyo3(signature = (offset, data, *, durable=false))]
    fn write(
        &self,
        py: Python<'_>,
        offset: u64,
        data: &Bound<'_, PyAny>,
        durable: bool,
    ) -> PyResult<()> {
        let data = Data::of(data)?;
        self.call(py, |namespace| match durable {
            true => namespace.write_durable(offset, &data),
            false => namespace.write(offset, &data),
        })
    }

    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, host::Namespace::flush)
    }

    fn discard(&self, py: Python<'_>, offset: u64, length: u64) -> PyResult<()> {
        self.call(py, |namespace| namespace.discard(offset, length))
    }

    fn write_zeroes(&self, py: Python<'_>, offset: u64, length: u64) -> PyResult<()> {
        self.call(py, |namespace| namespace.write_zeroes(offset, length))
    }

    /// The same namespace, whose calls raise TimeoutError after `timeout`; `None`: no time-out.
    #[pyo3(signature = (timeout))]
    fn with_timeout(
        &self,
        #[pyo3(from_py_with = time)] timeout: Option<Duration>,
    ) -> PyResult<Self> {
        let namespace = self.ask(|namespace| namespace.with_timeout(timeout))?;
        Ok(Self {
            inner: Open::new(namespace),
        })
    }

    /// The same namespace, whose calls `cancel` can cancel.
    fn cancellable(&self) -> PyResult<Self> {
        let (namespace, _) = self.ask(host::Namespace::cancellable)?;
        Ok(Self {
            inner: Open::new(namespace),
        })
    }

    /// Cancels the calls of an object of `cancellable`.
    fn cancel(&self) -> PyResult<()> {
        let cancel = |namespace: &host::Namespace| namespace.canceller().map(|all| all.cancel());
        self.ask(cancel)?.ok_or_else(|| {
            let message =
                "calls of this object cannot be cancelled; use an object of cancellable()";
            crate::os_error(22, message)
        })
    }

    /// Creates a queue of the calling thread.
    #[pyo3(signature = (depth=128, *, connections=1, request_class=None, switchboard=None))]
    fn queue(
        &self,
        py: Python<'_>,
        depth: u16,
        connections: u16,
        request_class: Option<&str>,
        switchboard: Option<&Switchboard>,
    ) -> PyResult<Queue> {
        let class = class(request_class)?;
        let opened = match switchboard {
            None => {
                let options = host::QueueOptions {
                    depth,
                    connections,
                    class,
                    ..host::QueueOptions::default()
                };
                self.inner.run(py, "namespace", |namespace| {
                    requests::open(namespace, |namespace| namespace.queue_with(&options))
                })
            }
            Some(_) if connections != 1 => {
                let message = "a queue of a switchboard has no own connections; omit connections";
                return Err(PyValueError::new_err(message));
            }
            Some(switchboard) => {
                let board = switchboard
                    .inner
                    .with("switchboard", host::Switchboard::clone)?;
                let options = host::SwitchedQueueOptions {
                    class,
                    depth: depth.into(),
                    ..host::SwitchedQueueOptions::default()
                };
                self.inner.run(py, "namespace", |namespace| {
                    requests::open(namespace, |namespace| {
                        // It may be the last when it is dropped, which takes time.
                        let board = board;
                        namespace.switched_queue(&board, &options)
                    })
                })
            }
        };
        Ok(Queue::new(opened??))
    }

    /// Closes the namespace; its queues continue.
    fn close(&self, py: Python<'_>) {
        self.inner.close(py);
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    #[pyo3(signature = (*_raised))]
    fn __exit__(&self, py: Python<'_>, _raised: &Bound<'_, PyAny>) {
        self.close(py);
    }
}
