//! Every knob as text: one line of one table for each.
//!
//! Files, flags, the HTTP interface, help and [`Knobs::validate`] all read this table, so a further
//! knob is a further line here and nothing elsewhere. A key is the same word everywhere, with its
//! unit last; in files and over HTTP a value has the type that it has there (`true`, `"fixed"`,
//! 64), and on the command line it is text.

use super::{KnobError, Knobs, Preset};
use crate::limits;
use base::Nanos;
use list::{DOORBELL_DELAY, KNOBS, REMOVED};
use std::fmt;

mod list;
#[cfg(test)]
mod tests;

/// A knob: its name, its valid values, and its place in [`Knobs`].
pub struct Knob {
    /// Name, with its unit last.
    pub key: &'static str,
    /// Meaning, as `--help` and the documents show it.
    pub meaning: &'static str,
    /// Valid values.
    pub range: KnobRange,
    /// The knob and value without which it does not count, where there is such a condition.
    pub with: Option<&'static str>,
    get: fn(&Knobs) -> Option<KnobValue>,
    put: fn(&mut Knobs, KnobValue) -> Option<()>,
}

/// The valid values of a knob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnobRange {
    /// A switch: on or off.
    Switch,
    /// One of these words.
    Words(&'static [&'static str]),
    /// A whole number within these bounds, themselves included, in the key's unit.
    Number(u64, u64),
    /// A span of time within these bounds, themselves included; as text, whole microseconds.
    Time(Nanos, Nanos),
}

/// The value of a knob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnobValue {
    /// A switch: on or off.
    Switch(bool),
    /// A word, by its place in the knob's [`KnobRange::Words`].
    Word(usize),
    /// A number.
    Number(u64),
    /// A span of time.
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

/// A span of time in microseconds, without the unit.
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
    /// The value as text that [`Knobs::set`] takes.
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
    /// All of them. A knob that decides whether others count comes before those.
    pub const ALL: &'static [Self] = KNOBS;

    /// The knob with this key.
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

    /// Returns its value in `knobs`; `None` where it does not count.
    #[must_use]
    pub fn get(&self, knobs: &Knobs) -> Option<KnobValue> {
        (self.get)(knobs)
    }

    /// Parses a text as a value of the knob.
    ///
    /// # Errors
    /// [`KnobError::NoValue`], or that it is out of range.
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

    /// Sets it.
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
    /// Sets one knob, which must count in the position of the others, and does not look at the
    /// position as a whole ([`Knobs::validate`] does).
    ///
    /// # Errors
    /// An unknown knob, a value that it has not, or a knob that does not count. Nothing has changed
    /// then.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), KnobError> {
        let knob = Knob::find(key)?;
        knob.put(self, knob.parse(value)?)
    }

    /// Returns the value of one knob, as text that [`Knobs::set`] takes.
    ///
    /// # Errors
    /// An unknown knob, or one that does not count.
    pub fn text(&self, key: &str) -> Result<String, KnobError> {
        let knob = Knob::find(key)?;
        let value = knob.get(self).ok_or_else(|| knob.not_in_use())?;
        Ok(KnobSetting { knob, value }.text())
    }

    /// Changes several knobs together, whatever their order, and validates the result.
    ///
    /// # Errors
    /// As [`Knobs::set`] and [`Knobs::validate`], or two of them that exclude each other. Nothing
    /// has changed then.
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
        // In the table's order, so that what decides about others is set before them.
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

    /// Every knob that counts, with its value, in the table's order.
    pub fn entries(&self) -> impl Iterator<Item = KnobSetting> + use<> {
        let knobs = *self;
        Knob::ALL.iter().filter_map(move |knob| {
            let value = knob.get(&knobs)?;
            Some(KnobSetting { knob, value })
        })
    }

    /// The knobs in which this position differs from `base`; [`Knobs::change`] makes this position
    /// of `base` by them.
    pub fn differences(&self, base: &Self) -> impl Iterator<Item = KnobSetting> + use<> {
        let base = *base;
        self.entries()
            .filter(move |entry| entry.knob.get(&base) != Some(entry.value))
    }

    /// The preset that differs least from this position; of several, the first.
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
