//! Errors of switch parameters (knobs), each with its remedy.

use crate::limits;
use std::fmt;

/// Key of the knob named by an error about crossing thread bounds.
pub(super) const TARGET_THREADS_MIN: &str = "target_threads_min";

/// An invalid knob, or text that does not set one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KnobError {
    /// A value out of range.
    OutOfRange {
        /// The knob.
        knob: &'static str,
        /// The value, in the knob's unit.
        value: String,
        /// The valid values, in the knob's unit.
        expected: String,
    },
    /// The delay of a fixed doorbell is too short to pay off.
    DelayTooShort {
        /// The knob.
        knob: &'static str,
        /// The delay in microseconds.
        value: String,
    },
    /// The sum of all classes' floors is too large.
    TooMuchPromised {
        /// The sum in thousandths.
        promised: u32,
    },
    /// The minimum number of threads exceeds the maximum.
    BoundsCross {
        /// Minimum number of threads.
        min: u32,
        /// Maximum number of threads.
        max: u32,
    },
    /// The word is not a preset.
    NoPreset {
        /// The word, cut to its first 32 characters.
        word: String,
        /// The names of all presets.
        expected: String,
    },
    /// The word is not a knob.
    NoKnob {
        /// The word, cut to its first 32 characters.
        word: String,
        /// The keys of all knobs.
        expected: String,
    },
    /// A knob of an earlier version.
    Removed {
        /// The knob.
        knob: &'static str,
        /// The remedy.
        remedy: &'static str,
    },
    /// A value that the knob does not accept.
    NoValue {
        /// The knob.
        knob: &'static str,
        /// The value, cut to its first 32 characters.
        word: String,
        /// The valid values, in the knob's unit.
        expected: String,
    },
    /// A knob of a mechanism that another knob has disabled or replaced.
    NotInUse {
        /// The knob.
        knob: &'static str,
        /// The setting that it requires.
        with: &'static str,
    },
    /// Two of the changed knobs are mutually exclusive.
    ChangedTwice {
        /// One of them.
        knob: &'static str,
    },
}

impl KnobError {
    /// The key of the affected knob, or `None`.
    #[must_use]
    pub const fn knob(&self) -> Option<&'static str> {
        match self {
            Self::OutOfRange { knob, .. }
            | Self::DelayTooShort { knob, .. }
            | Self::Removed { knob, .. }
            | Self::NoValue { knob, .. }
            | Self::NotInUse { knob, .. }
            | Self::ChangedTwice { knob } => Some(knob),
            Self::BoundsCross { .. } => Some(TARGET_THREADS_MIN),
            Self::TooMuchPromised { .. } | Self::NoPreset { .. } | Self::NoKnob { .. } => None,
        }
    }

    /// Returns the problem as text.
    #[must_use]
    pub fn problem(&self) -> String {
        match self {
            Self::OutOfRange { knob, value, .. } | Self::DelayTooShort { knob, value } => {
                format!("{knob} is {value}")
            }
            Self::TooMuchPromised { promised } => {
                format!("the floors of all classes add up to {promised} thousandths")
            }
            Self::BoundsCross { min, max } => {
                format!("{TARGET_THREADS_MIN} is {min}, but target_threads_max is {max}")
            }
            Self::NoPreset { word, .. } => format!("unknown preset {word:?}"),
            Self::NoKnob { word, .. } => format!("unknown switch parameter {word:?}"),
            Self::Removed { knob, .. } => format!("the switch parameter {knob} was removed"),
            Self::NoValue { knob, word, .. } => format!("invalid value {word:?} of {knob}"),
            Self::NotInUse { knob, with } => format!("{knob} has an effect only with {with}"),
            Self::ChangedTwice { knob } => {
                format!("{knob} is set twice, directly or by a parameter that excludes it")
            }
        }
    }

    /// Returns the remedy as text.
    #[must_use]
    pub fn remedy(&self) -> String {
        match self {
            Self::OutOfRange { expected, .. } | Self::NoValue { expected, .. } => {
                format!("use {expected}")
            }
            Self::DelayTooShort { .. } => format!(
                "use at least {}, or doorbell=immediate for no delay",
                limits::DOORBELL_DELAY_MIN
            ),
            Self::TooMuchPromised { .. } => {
                format!("use at most {} in total", limits::FLOOR_PERMILLE_MAX)
            }
            Self::BoundsCross { max, .. } => format!("use 0 to {max} for {TARGET_THREADS_MIN}"),
            Self::NoPreset { expected, .. } | Self::NoKnob { expected, .. } => {
                format!("use one of {expected}")
            }
            Self::Removed { remedy, .. } => (*remedy).to_owned(),
            Self::NotInUse { .. } => "set that too, or omit this".to_owned(),
            Self::ChangedTwice { .. } => "set only one of them".to_owned(),
        }
    }
}

impl fmt::Display for KnobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.problem(), self.remedy())
    }
}

impl std::error::Error for KnobError {}
