//! Targets and namespaces: connecting, and blocking calls.

use crate::buffers::{self, Data};
use crate::queue::Queue;
use crate::{class, closed, host_error, request_error, requests};
use host::{Class, Host, Path, Subsystem};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A value until it is closed.
struct Open<T>(Mutex<Option<T>>);

impl<T: Clone> Open<T> {
    fn new(value: T) -> Self {
        Self(Mutex::new(Some(value)))
    }

    fn get(&self, what: &str) -> PyResult<T> {
        let value = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        value.clone().ok_or_else(|| closed(what))
    }

    fn close(&self) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A connected subsystem.
#[pyclass(frozen, module = "switchyard")]
pub(crate) struct Target {
    inner: Open<(Subsystem, Class)>,
}

/// Connects to a subsystem.
#[pyfunction]
#[pyo3(signature = (address, nqn, *, host_nqn=None, request_class=None, header_digest=false,
    data_digest=false, connect_timeout=None, command_timeout=None, loss_timeout=None, path=None))]
pub(crate) fn connect(
    py: Python<'_>,
    address: &str,
    nqn: &str,
    host_nqn: Option<String>,
    request_class: Option<&str>,
    header_digest: bool,
    data_digest: bool,
    connect_timeout: Option<Duration>,
    command_timeout: Option<Duration>,
    loss_timeout: Option<Duration>,
    path: Option<&str>,
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
        let path = name.parse::<Path>();
        builder = builder.path(path.map_err(|error| PyValueError::new_err(error.to_string()))?);
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
        let (subsystem, class) = self.inner.get("target")?;
        let opened = py.detach(|| subsystem.namespace_with(nsid, class));
        Ok(Namespace {
            inner: Open::new(opened.map_err(host_error)?),
        })
    }

    /// Identifiers of the namespaces.
    fn namespaces(&self) -> PyResult<Vec<u32>> {
        let (subsystem, _) = self.inner.get("target")?;
        let all = subsystem.namespaces();
        Ok(all.iter().map(|info| info.nsid).collect())
    }

    /// Closes the target; namespaces and queues go on until they are closed.
    fn close(&self, py: Python<'_>) {
        let value = self.inner.close();
        py.detach(|| drop(value));
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

#[pymethods]
impl Namespace {
    #[getter]
    fn size(&self) -> PyResult<u64> {
        Ok(self.inner.get("namespace")?.size())
    }

    #[getter]
    fn block_bytes(&self) -> PyResult<u32> {
        Ok(self.inner.get("namespace")?.block_bytes())
    }

    #[getter]
    fn max_request_bytes(&self) -> PyResult<u64> {
        Ok(self.inner.get("namespace")?.max_request_bytes())
    }

    #[getter]
    fn read_only(&self) -> PyResult<bool> {
        Ok(self.inner.get("namespace")?.is_read_only())
    }

    fn read<'py>(
        &self,
        py: Python<'py>,
        offset: u64,
        length: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let namespace = self.inner.get("namespace")?;
        // A length that no memory has is refused before there is any for it.
        if length as u64 > namespace.size() {
            return Err(crate::os_error(34, "longer than the namespace: read less"));
        }
        let mut data = vec![0; length];
        py.detach(|| namespace.read(offset, &mut data))
            .map_err(request_error)?;
        Ok(PyBytes::new(py, &data))
    }

    fn read_into(&self, py: Python<'_>, offset: u64, buffer: &Bound<'_, PyAny>) -> PyResult<()> {
        let namespace = self.inner.get("namespace")?;
        let buffer = buffers::writable(buffer)?;
        let mut data = vec![0; buffer.len_bytes()];
        py.detach(|| namespace.read(offset, &mut data))
            .map_err(request_error)?;
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
        let namespace = self.inner.get("namespace")?;
        let data = Data::of(data)?;
        let write = || match durable {
            true => namespace.write_durable(offset, &data),
            false => namespace.write(offset, &data),
        };
        py.detach(write).map_err(request_error)
    }

    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        let namespace = self.inner.get("namespace")?;
        py.detach(|| namespace.flush()).map_err(request_error)
    }

    fn discard(&self, py: Python<'_>, offset: u64, length: u64) -> PyResult<()> {
        let namespace = self.inner.get("namespace")?;
        py.detach(|| namespace.discard(offset, length))
            .map_err(request_error)
    }

    fn write_zeroes(&self, py: Python<'_>, offset: u64, length: u64) -> PyResult<()> {
        let namespace = self.inner.get("namespace")?;
        py.detach(|| namespace.write_zeroes(offset, length))
            .map_err(request_error)
    }

    /// The same namespace, of which each call may take so long; `None`: as long as it takes.
    #[pyo3(signature = (timeout))]
    fn with_timeout(&self, timeout: Option<Duration>) -> PyResult<Self> {
        let namespace = self.inner.get("namespace")?;
        Ok(Self {
            inner: Open::new(namespace.with_timeout(timeout)),
        })
    }

    /// The same namespace, of which `cancel` gives up the calls.
    fn cancellable(&self) -> PyResult<Self> {
        let (namespace, _) = self.inner.get("namespace")?.cancellable();
        Ok(Self {
            inner: Open::new(namespace),
        })
    }

    /// Gives up the calls of an object that `cancellable` made.
    fn cancel(&self) -> PyResult<()> {
        let canceller = self.inner.get("namespace")?.canceller();
        let canceller = canceller.ok_or_else(|| {
            let message =
                "calls of this object cannot be cancelled: make them by one of cancellable()";
            crate::os_error(22, message)
        })?;
        canceller.cancel();
        Ok(())
    }

    /// Makes a queue of the calling thread.
    #[pyo3(signature = (depth=128, *, connections=1, request_class=None))]
    fn queue(
        &self,
        py: Python<'_>,
        depth: u16,
        connections: u16,
        request_class: Option<&str>,
    ) -> PyResult<Queue> {
        let namespace = self.inner.get("namespace")?;
        let options = host::QueueOptions {
            depth,
            connections,
            class: class(request_class)?,
            ..host::QueueOptions::default()
        };
        let opened = py.detach(|| requests::open(&namespace, &options));
        Ok(Queue::new(opened.map_err(host_error)?))
    }

    /// Closes the namespace; its queues go on.
    fn close(&self, py: Python<'_>) {
        let value = self.inner.close();
        py.detach(|| drop(value));
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    #[pyo3(signature = (*_raised))]
    fn __exit__(&self, py: Python<'_>, _raised: &Bound<'_, PyAny>) {
        self.close(py);
    }
}
