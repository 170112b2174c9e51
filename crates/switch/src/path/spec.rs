//! A path with its parameters, as text.

use super::{Path, PathRules, PathRulesError, QueueKind};
use base::Nanos;
use std::fmt;
use std::str::FromStr;

/// A path with its parameters. Text form: the name, then the non-default parameters, such as `stm`,
/// or `atm:unplug_threshold=8,unplug_delay_us=500`. The parameters are `unplug_threshold` and
/// `table_entries` in requests, `unplug_delay_us` and `handover_us` in microseconds, each in the
/// range of its field in [`PathRules`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathSpec {
    /// The path.
    pub path: Path,
    /// Its parameters.
    pub rules: PathRules,
}

/// The text is not a path with parameters.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// An unknown path.
    #[error("{0:?} is no I/O path; use interrupt, poll, sync, stm, atm, htm, vfs_htm or 2q")]
    Name(String),
    /// The text is not a parameter with a value.
    #[error(
        "{0:?} is no parameter of an I/O path; write unplug_threshold=REQUESTS, \
         unplug_delay_us=MICROSECONDS, table_entries=REQUESTS or handover_us=MICROSECONDS"
    )]
    Parameter(String),
    /// The parameter has no effect on the path.
    #[error("{key} has no effect on {path}; omit it, or use another I/O path")]
    NoEffect {
        /// The parameter.
        key: String,
        /// The path.
        path: Path,
    },
    /// No request is plugged, because all are awaited.
    #[error(
        "unplug_threshold and unplug_delay_us have no effect without a write-back cache: \
         a request that a thread waits for is not plugged"
    )]
    NoPlug,
    /// A parameter is out of range.
    #[error(transparent)]
    Range(#[from] PathRulesError),
}

impl From<Path> for PathSpec {
    fn from(path: Path) -> Self {
        Self {
            path,
            rules: PathRules::default(),
        }
    }
}

impl PathSpec {
    /// Returns the same path for requests that are all awaited, as without a write-back cache.
    ///
    /// # Errors
    /// [`PathError::NoPlug`] for parameters without effect.
    pub fn for_awaited(self) -> Result<Self, PathError> {
        let defaults = PathRules::default();
        let plug = |rules: PathRules| (rules.unplug_threshold, rules.unplug_delay);
        if plug(self.rules) == plug(defaults) {
            Ok(self)
        } else {
            Err(PathError::NoPlug)
        }
    }

    fn set(&mut self, parameter: &str) -> Result<(), PathError> {
        let wrong = || PathError::Parameter(parameter.to_owned());
        let (key, value) = parameter.split_once('=').ok_or_else(wrong)?;
        let number: u32 = value.parse().map_err(|_| wrong())?;
        let (path, rules) = (self.path, &mut self.rules);
        let plugs = path
            .queues()
            .iter()
            .any(|kind| matches!(kind, QueueKind::Plugged | QueueKind::Shadow));
        let has_effect = match key {
            "unplug_threshold" => {
                rules.unplug_threshold = number;
                plugs
            }
            "unplug_delay_us" => {
                rules.unplug_delay = Nanos::from_micros(number.into());
                plugs
            }
            "table_entries" => {
                rules.table_entries = number;
                !path.queues().is_empty()
            }
            "handover_us" => {
                rules.handover = Nanos::from_micros(number.into());
                !path.queues().is_empty()
            }
            _ => return Err(wrong()),
        };
        if has_effect {
            return Ok(());
        }
        Err(PathError::NoEffect {
            key: key.to_owned(),
            path,
        })
    }
}

impl FromStr for PathSpec {
    type Err = PathError;

    fn from_str(text: &str) -> Result<Self, PathError> {
        let (name, parameters) = match text.split_once(':') {
            Some((name, parameters)) => (name, Some(parameters)),
            None => (text, None),
        };
        let mut spec = Self::from(name.parse::<Path>()?);
        for parameter in parameters.into_iter().flat_map(|text| text.split(',')) {
            spec.set(parameter)?;
        }
        spec.rules.validate()?;
        Ok(spec)
    }
}

impl fmt::Display for PathSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parameters = |rules: PathRules| {
            [
                ("unplug_threshold", rules.unplug_threshold.into()),
                ("unplug_delay_us", rules.unplug_delay.0 / 1_000),
                ("table_entries", rules.table_entries.into()),
                ("handover_us", rules.handover.0 / 1_000),
            ]
        };
        self.path.fmt(f)?;
        let mut separator = ':';
        let defaults = parameters(PathRules::default());
        for (parameter, default) in parameters(self.rules).into_iter().zip(defaults) {
            if parameter != default {
                write!(f, "{separator}{}={}", parameter.0, parameter.1)?;
                separator = ',';
            }
        }
        Ok(())
    }
}
