//! Switchboards: lanes that threads share, with knobs and counters.

use crate::host_error;
use crate::open::Open;
use host::{CoreId, HostError, KnobValue, Knobs, Preset, SwitchboardOptions};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict as _, PyMapping, PyMappingProxy};
use std::collections::BTreeMap;

/// Threads and connections that queues of all threads share.
#[pyclass(frozen, module = "switchyard")]
pub(crate) struct Switchboard {
    pub(crate) inner: Open<host::Switchboard>,
}

/// The value of a knob.
#[derive(FromPyObject, IntoPyObject)]
pub(crate) enum Setting {
    Switch(bool),
    Number(u64),
    Text(String),
}

impl Setting {
    /// The value as the table of all knobs takes it.
    fn text(self) -> String {
        match self {
            Self::Switch(on) => on.to_string(),
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text,
        }
    }
}

/// Switch parameters and their values, as text.
fn settings(knobs: &Bound<'_, PyMapping>) -> PyResult<Vec<(String, String)>> {
    let settings: Vec<(String, Setting)> = knobs.items()?.extract()?;
    let settings = settings.into_iter();
    Ok(settings.map(|(key, value)| (key, value.text())).collect())
}

fn by_reference(settings: &[(String, String)]) -> impl Iterator<Item = (&str, &str)> {
    settings
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()))
}

/// `ValueError` for an invalid option.
fn option_error(error: HostError) -> PyErr {
    match error {
        HostError::Option(message) => PyValueError::new_err(message),
        other => host_error(other),
    }
}

#[pymethods]
impl Switchboard {
    /// Starts a thread on each core; by default on all CPUs that the calling thread may use.
    #[new]
    #[pyo3(signature = (cores=None, *, preset=None, knobs=None))]
    fn new(
        py: Python<'_>,
        cores: Option<Vec<u32>>,
        preset: Option<&str>,
        knobs: Option<&Bound<'_, PyMapping>>,
    ) -> PyResult<Self> {
        let invalid = |error: &dyn std::error::Error| PyValueError::new_err(error.to_string());
        let preset = preset.map(str::parse::<Preset>).transpose();
        let preset = preset.map_err(|error| invalid(&error))?;
        let mut chosen = preset.map_or_else(Knobs::default, Preset::knobs);
        let knobs = knobs.map(settings).transpose()?.unwrap_or_default();
        let changed = chosen.change(by_reference(&knobs));
        changed.map_err(|error| invalid(&error))?;
        let start = || {
            let mut options = SwitchboardOptions::of_process()?;
            options.knobs = chosen;
            if let Some(cores) = cores {
                options.cores = cores.into_iter().map(CoreId).collect();
            }
            host::Switchboard::start(&options)
        };
        let started = py.detach(start).map_err(host_error)?;
        Ok(Self {
            inner: Open::new(started),
        })
    }

    /// CPU numbers of its cores.
    #[getter]
    fn cores(&self) -> PyResult<Vec<u32>> {
        self.inner.with("switchboard", |board| {
            board.cores().iter().map(|core| core.0).collect()
        })
    }

    /// The current switch parameters that have an effect.
    #[getter]
    fn knobs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyMappingProxy>> {
        let knobs = self.inner.with("switchboard", host::Switchboard::knobs)?;
        let settings = knobs.entries().map(|entry| {
            let text = entry.text();
            let setting = match (entry.value, text.parse()) {
                (KnobValue::Switch(on), _) => Setting::Switch(on),
                (_, Ok(number)) => Setting::Number(number),
                (_, Err(_)) => Setting::Text(text),
            };
            (entry.knob.key, setting)
        });
        let settings = settings.into_py_dict(py)?;
        Ok(PyMappingProxy::new(py, settings.as_mapping()))
    }

    /// Changes switch parameters atomically, without interrupting requests.
    fn set_knobs(&self, py: Python<'_>, knobs: &Bound<'_, PyMapping>) -> PyResult<()> {
        let knobs = settings(knobs)?;
        let change = |board: &host::Switchboard| board.change_knobs(by_reference(&knobs));
        let changed = self.inner.run(py, "switchboard", change)?;
        changed.map_err(option_error)
    }

    /// Counters of a core, or sums over all cores.
    #[pyo3(signature = (core=None))]
    fn counters(&self, core: Option<u32>) -> PyResult<BTreeMap<String, u64>> {
        let named = |board: &host::Switchboard| board.named_counters(core.map(CoreId));
        let named = self.inner.with("switchboard", named)?;
        Ok(named.map_err(option_error)?.into_iter().collect())
    }

    /// Closes the switchboard; its queues continue.
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
