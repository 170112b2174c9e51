//! Errors of switch parameters (knobs), each with its remedy.

use crate::limits;
use std::fmt;

/// Key that [`KnobError::BoundsCross`] reports.
pub(super) const TARGET_THREADS_MIN: &str = "target_threads_min";

/// An invalid switch parameter, value or preset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KnobError {
    /// A value out of its range.
    OutOfRange {
        /// The knob.
        knob: &'static str,
        /// The value, in the knob's unit.
        value: String,
        /// The valid values, in the knob's unit.
        expected: String,
    },
    /// A fixed doorbell delay below the minimum.
    DelayTooShort {
        /// The knob.
        knob: &'static str,
        /// The delay in microseconds.
        value: String,
    },
    /// The floors of all classes add up to more than the maximum.
    TooMuchPromised {
        /// Their sum in thousandths.
        promised: u32,
    },
    /// `target_threads_min` exceeds `target_threads_max`.
    BoundsCross {
        /// Value of `target_threads_min`.
        min: u32,
        /// Value of `target_threads_max`.
        max: u32,
    },
    /// An unknown preset.
    NoPreset {
        /// The word, at most its first 32 characters.
        word: String,
        /// The names of all presets.
        expected: String,
    },
    /// An unknown knob.
    NoKnob {
        /// The word, at most its first 32 characters.
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
    /// An invalid value of a knob.
    NoValue {
        /// The knob.
        knob: &'static str,
        /// The value, at most its first 32 characters.
        word: String,
        /// The valid values, in the knob's unit.
        expected: String,
    },
    /// A knob without effect, because another knob disables its mechanism.
    NotInUse {
        /// The knob.
        knob: &'static str,
        /// The knob that it needs.
        with: &'static str,
    },
    /// Two of the changed knobs exclude each other.
    ChangedTwice {
        /// One of them.
        knob: &'static str,
    },
}

impl KnobError {
    /// The knob at fault; `None` if the error concerns no single knob.
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

    /// Returns the problem.
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

    /// Returns the remedy.
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
