//! Every knob as text: one table with a line per knob.
//!
//! Configuration files, flags, the HTTP interface, help and [`Knobs::validate`] all use this table,
//! so a new knob is a new line here and nothing elsewhere. A key is the same everywhere, and ends
//! with its unit. Values are typed in files and over HTTP (`true`, `"fixed"`, 64), and text on the
//! command line.

use super::{KnobError, Knobs, Preset};
use crate::limits;
use base::Nanos;
use list::{DOORBELL_DELAY, KNOBS, REMOVED};
use std::fmt;

mod list;
#[cfg(test)]
mod tests;

/// A knob: name, valid values, and field in [`Knobs`].
pub struct Knob {
    /// Name, ending with the unit.
    pub key: &'static str,
    /// Description, as shown by `--help` and the documentation.
    pub meaning: &'static str,
    /// Valid values.
    pub range: KnobRange,
    /// The setting without which the knob has no effect, or `None`.
    pub with: Option<&'static str>,
    get: fn(&Knobs) -> Option<KnobValue>,
    put: fn(&mut Knobs, KnobValue) -> Option<()>,
}

/// The valid values of a knob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnobRange {
    /// On or off.
    Switch,
    /// One of these words.
    Words(&'static [&'static str]),
    /// A whole number within these inclusive bounds, in the key's unit.
    Number(u64, u64),
    /// A duration within these inclusive bounds; as text, whole microseconds.
    Time(Nanos, Nanos),
}

/// The value of a knob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnobValue {
    /// On or off.
    Switch(bool),
    /// A word, by its index in the knob's [`KnobRange::Words`].
    Word(usize),
    /// A number.
    Number(u64),
    /// A duration.
    Time(Nanos),
}

/// A knob with its value.
#[derive(Clone, Copy, Debug)]
pub struct KnobSetting {
    /// The knob.
    pub knob: &'static Knob,
    /// Its value.
    pub value: KnobValue,
}

impl KnobValue {
    fn switch(self) -> Option<bool> {
        match self {
            Self::Switch(on) => Some(on),
            _ => None,
        }
    }

    fn word<T: Copy>(self, meanings: &[T]) -> Option<T> {
        match self {
            Self::Word(index) => meanings.get(index).copied(),
            _ => None,
        }
    }

    fn number<T: TryFrom<u64>>(self) -> Option<T> {
        match self {
            Self::Number(number) => T::try_from(number).ok(),
            _ => None,
        }
    }

    fn time(self) -> Option<Nanos> {
        match self {
            Self::Time(span) => Some(span),
            _ => None,
        }
    }
}

impl fmt::Display for KnobRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Switch => f.write_str("on or off"),
            Self::Words(words) => f.write_str(&words.join(" or ")),
            Self::Number(min, max) => write!(f, "{min} to {max}"),
            Self::Time(min, max) => write!(f, "{} to {}", Micros(*min), Micros(*max)),
        }
    }
}

/// A duration in microseconds, printed without the unit.
struct Micros(Nanos);

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0.0 / 1_000, self.0.0 % 1_000);
        if rest == 0 {
            write!(f, "{whole}")
        } else {
            write!(f, "{whole}.{rest:03}")
        }
    }
}

impl KnobSetting {
    /// The value as text accepted by [`Knobs::set`].
    #[must_use]
    pub fn text(&self) -> String {
        match (self.value, self.knob.range) {
            (KnobValue::Switch(true), _) => "on".to_owned(),
            (KnobValue::Switch(false), _) => "off".to_owned(),
            (KnobValue::Word(index), KnobRange::Words(words)) => {
                words.get(index).copied().unwrap_or_default().to_owned()
            }
            (KnobValue::Word(index), _) => index.to_string(),
            (KnobValue::Number(number), _) => number.to_string(),
            (KnobValue::Time(span), _) => Micros(span).to_string(),
        }
    }
}

impl fmt::Debug for Knob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Knob({})", self.key)
    }
}

impl Knob {
    /// All knobs. A knob that enables others precedes them.
    pub const ALL: &'static [Self] = KNOBS;

    /// Returns the knob with this key.
    ///
    /// # Errors
    /// [`KnobError::NoKnob`], or [`KnobError::Removed`].
    pub fn find(key: &str) -> Result<&'static Self, KnobError> {
        if let Some(&(knob, remedy)) = REMOVED.iter().find(|(removed, _)| *removed == key) {
            return Err(KnobError::Removed { knob, remedy });
        }
        Self::ALL
            .iter()
            .find(|knob| knob.key == key)
            .ok_or_else(|| KnobError::NoKnob {
                word: shortened(key),
                expected: KNOBS
                    .iter()
                    .map(|knob| knob.key)
                    .collect::<Vec<_>>()
                    .join(", "),
            })
    }

    /// Returns its value in `knobs`; `None` if it has no effect there.
    #[must_use]
    pub fn get(&self, knobs: &Knobs) -> Option<KnobValue> {
        (self.get)(knobs)
    }

    /// Parses text as a value of the knob.
    ///
    /// # Errors
    /// [`KnobError::NoValue`], or out of range.
    pub fn parse(&self, text: &str) -> Result<KnobValue, KnobError> {
        let number = || text.parse::<u64>().ok();
        let value = match self.range {
            KnobRange::Switch => match text {
                "on" | "true" => Some(KnobValue::Switch(true)),
                "off" | "false" => Some(KnobValue::Switch(false)),
                _ => None,
            },
            KnobRange::Words(words) => words
                .iter()
                .position(|word| word.eq_ignore_ascii_case(text))
                .map(KnobValue::Word),
            KnobRange::Number(..) => number().map(KnobValue::Number),
            KnobRange::Time(..) => number()
                .and_then(|micros| micros.checked_mul(1_000))
                .map(|nanos| KnobValue::Time(Nanos(nanos))),
        };
        let value = value.ok_or_else(|| KnobError::NoValue {
            knob: self.key,
            word: shortened(text),
            expected: self.range.to_string(),
        })?;
        self.check(value)?;
        Ok(value)
    }

    /// Checks that a value of this knob is within its range.
    pub(super) fn check(&self, value: KnobValue) -> Result<(), KnobError> {
        let (fits, text) = match (self.range, value) {
            (KnobRange::Number(min, max), KnobValue::Number(number)) => {
                ((min..=max).contains(&number), number.to_string())
            }
            (KnobRange::Time(min, max), KnobValue::Time(span)) => {
                ((min..=max).contains(&span), Micros(span).to_string())
            }
            (KnobRange::Switch, KnobValue::Switch(_)) => return Ok(()),
            (KnobRange::Words(words), KnobValue::Word(index)) => {
                (index < words.len(), index.to_string())
            }
            _ => (false, format!("{value:?}")),
        };
        if fits {
            return Ok(());
        }
        if self.key == DOORBELL_DELAY
            && value.time().is_some_and(|d| d < limits::DOORBELL_DELAY_MIN)
        {
            return Err(KnobError::DelayTooShort {
                knob: self.key,
                value: text,
            });
        }
        Err(KnobError::OutOfRange {
            knob: self.key,
            value: text,
            expected: self.range.to_string(),
        })
    }

    /// Sets the knob to `value`.
    fn put(&self, knobs: &mut Knobs, value: KnobValue) -> Result<(), KnobError> {
        (self.put)(knobs, value).ok_or(self.not_in_use())
    }

    fn not_in_use(&self) -> KnobError {
        KnobError::NotInUse {
            knob: self.key,
            with: self.with.unwrap_or("another value"),
        }
    }
}

impl Knobs {
    /// Sets one knob, which must have an effect with the other settings. Does not validate the
    /// whole set; [`Knobs::validate`] does.
    ///
    /// # Errors An unknown knob, an invalid value, or a knob without effect. Nothing has changed
    /// then.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), KnobError> {
        let knob = Knob::find(key)?;
        knob.put(self, knob.parse(value)?)
    }

    /// Returns the value of one knob as text accepted by [`Knobs::set`].
    ///
    /// # Errors
    /// An unknown knob, or one without effect.
    pub fn text(&self, key: &str) -> Result<String, KnobError> {
        let knob = Knob::find(key)?;
        let value = knob.get(self).ok_or_else(|| knob.not_in_use())?;
        Ok(KnobSetting { knob, value }.text())
    }

    /// Changes several knobs together, in any order, and validates the result.
    ///
    /// # Errors
    /// As [`Knobs::set`] and [`Knobs::validate`], or two of the knobs are mutually exclusive.
    /// Nothing has changed then.
    pub fn change<'a>(
        &mut self,
        changes: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<(), KnobError> {
        let mut wanted: Vec<(&'static Knob, KnobValue)> = Vec::new();
        for (key, text) in changes {
            let knob = Knob::find(key)?;
            if wanted.iter().any(|(other, _)| other.key == knob.key) {
                return Err(KnobError::ChangedTwice { knob: knob.key });
            }
            wanted.push((knob, knob.parse(text)?));
        }
        let mut changed = *self;
        // In the table's order, so that a knob that enables others is set before them.
        for knob in Knob::ALL {
            if let Some((_, value)) = wanted.iter().find(|(other, _)| other.key == knob.key) {
                knob.put(&mut changed, *value)?;
            }
        }
        for (knob, value) in wanted {
            if knob.get(&changed) != Some(value) {
                return Err(KnobError::ChangedTwice { knob: knob.key });
            }
        }
        changed.validate()?;
        *self = changed;
        Ok(())
    }

    /// Returns every knob that has an effect, with its value, in the table's order.
    pub fn entries(&self) -> impl Iterator<Item = KnobSetting> + use<> {
        let knobs = *self;
        Knob::ALL.iter().filter_map(move |knob| {
            let value = knob.get(&knobs)?;
            Some(KnobSetting { knob, value })
        })
    }

    /// Returns the knobs whose values differ from `base`; passing them to [`Knobs::change`] turns
    /// `base` into this set.
    pub fn differences(&self, base: &Self) -> impl Iterator<Item = KnobSetting> + use<> {
        let base = *base;
        self.entries()
            .filter(move |entry| entry.knob.get(&base) != Some(entry.value))
    }

    /// Returns the preset with the fewest differences from this set; the first one on a tie.
    #[must_use]
    pub fn nearest_preset(&self) -> Preset {
        Preset::ALL
            .iter()
            .map(|(preset, _)| *preset)
            .min_by_key(|preset| self.differences(&preset.knobs()).count())
            .unwrap_or(Preset::Switchyard)
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(32).collect()
}
