//! Errors of knobs, each with its remedy.

use crate::limits;
use std::fmt;

/// Key of the knob that a crossing of the bounds of threads is about.
pub(super) const TARGET_THREADS_MIN: &str = "target_threads_min";

/// A knob that is where it may not be, or words that turn none.
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
    /// A fixed doorbell that is shorter than its timer is worth.
    DelayTooShort {
        /// The knob.
        knob: &'static str,
        /// The delay in microseconds.
        value: String,
    },
    /// The floors of all classes together are more than may be promised.
    TooMuchPromised {
        /// Their sum in thousandths.
        promised: u32,
    },
    /// A target is to use more threads than it may.
    BoundsCross {
        /// Threads at least.
        min: u32,
        /// Threads at most.
        max: u32,
    },
    /// A word that names no preset.
    NoPreset {
        /// The word, at most its first 32 characters.
        word: String,
        /// The names of all presets.
        expected: String,
    },
    /// A word that names no knob.
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
    /// A value that the knob has not.
    NoValue {
        /// The knob.
        knob: &'static str,
        /// The value, at most its first 32 characters.
        word: String,
        /// The valid values, in the knob's unit.
        expected: String,
    },
    /// A knob of a mechanism that another knob has turned off or replaced.
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
    /// The knob that it is about, where it is about one.
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
                format!("the floors of all classes are {promised} thousandths")
            }
            Self::BoundsCross { min, max } => {
                format!("{TARGET_THREADS_MIN} is {min}, and target_threads_max {max}")
            }
            Self::NoPreset { word, .. } => format!("{word:?} is no preset"),
            Self::NoKnob { word, .. } => format!("{word:?} is no knob"),
            Self::Removed { knob, .. } => format!("the knob {knob} was removed"),
            Self::NoValue { knob, word, .. } => format!("{knob} cannot be {word:?}"),
            Self::NotInUse { knob, with } => format!("{knob} counts only with {with}"),
            Self::ChangedTwice { knob } => {
                format!("{knob} is turned twice, by itself or by a knob that excludes it")
            }
        }
    }

    /// Returns the remedy.
    #[must_use]
    pub fn remedy(&self) -> String {
        match self {
            Self::OutOfRange { expected, .. } | Self::NoValue { expected, .. } => {
                format!("it can be {expected}")
            }
            Self::DelayTooShort { .. } => format!(
                "a fixed doorbell waits {} at least; for no delay say doorbell=immediate",
                limits::DOORBELL_DELAY_MIN
            ),
            Self::TooMuchPromised { .. } => {
                format!("they can be {} in all", limits::FLOOR_PERMILLE_MAX)
            }
            Self::BoundsCross { max, .. } => format!("the least can be 0 to {max}"),
            Self::NoPreset { expected, .. } => format!("say one of {expected}"),
            Self::NoKnob { expected, .. } => format!("the knobs are {expected}"),
            Self::Removed { remedy, .. } => (*remedy).to_owned(),
            Self::NotInUse { .. } => "say that, too, or omit this".to_owned(),
            Self::ChangedTwice { .. } => "keep one of them".to_owned(),
        }
    }
}

impl fmt::Display for KnobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.problem(), self.remedy())
    }
}

impl std::error::Error for KnobError {}
