//! Changes of a switchboard's knobs while a load is measured.

use crate::{LoadProgress, Turned, seconds};
use anyhow::{Context as _, Result, ensure};
use host::Switchboard;
use host::switchboard::FIXED_KNOBS;
use std::collections::{BTreeMap, VecDeque};
use std::str::FromStr;
use std::time::Duration;
use switch::Knobs;
use switch::knobs::{Knob, KnobError};

/// `KEY=VALUE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnobChange {
    /// The knob's name.
    pub key: String,
    /// Its new value.
    pub value: String,
}

impl KnobChange {
    /// Returns the knob's name and its value.
    #[must_use]
    pub fn parts(&self) -> (&str, &str) {
        (&self.key, &self.value)
    }

    /// Parses a change of a knob that the switch of this program has.
    ///
    /// # Errors
    /// The fault, and a valid value.
    pub fn known(text: &str) -> Result<Self, String> {
        let change: Self = text.parse()?;
        let checked = Knob::find(&change.key).and_then(|knob| knob.parse(&change.value));
        match checked {
            Ok(_) => Ok(change),
            Err(KnobError::NoKnob { word, .. }) => Err(format!(
                "unknown switch parameter {word:?}; `switchyard switch knobs` lists all"
            )),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl FromStr for KnobChange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((key, value)) => Ok(Self {
                key: key.to_owned(),
                value: value.to_owned(),
            }),
            None => Err("use KEY=VALUE, such as doorbell=immediate".to_owned()),
        }
    }
}

/// A knob change during a load: `SECONDS:KEY=VALUE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnobTurn {
    /// Time of the change, from the start of the measured time.
    pub at: Duration,
    /// The knob and its value.
    pub change: KnobChange,
}

impl FromStr for KnobTurn {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = || "use SECONDS:KEY=VALUE, such as 2.5:doorbell=immediate".to_owned();
        let (at, change) = text.split_once(':').ok_or_else(form)?;
        let turn = Self {
            at: seconds(at).map_err(|_| form())?,
            change: KnobChange::known(change)?,
        };
        let key = &turn.change.key;
        if FIXED_KNOBS.contains(&key.as_str()) {
            return Err(format!(
                "{key} cannot change after the start; set it with --knob"
            ));
        }
        Ok(turn)
    }
}

/// Changes at one time, and the resulting setting of all knobs.
#[derive(Clone, Debug, PartialEq)]
struct Turn {
    at: Duration,
    changes: Vec<KnobChange>,
    knobs: Knobs,
}

/// Pending changes, in the order of time.
#[derive(Clone, Debug, Default)]
pub struct KnobTurns {
    ahead: VecDeque<Turn>,
    turned: Vec<Turned>,
}

impl KnobTurns {
    /// Changes of a load that is measured for `measured`, starting from `knobs`; `switched` if it
    /// has a switchboard.
    ///
    /// # Errors
    /// A time outside the measured time, an invalid combination of knobs at some time, or a load
    /// without a switchboard.
    pub fn of(
        turns: &[KnobTurn],
        mut knobs: Knobs,
        measured: Duration,
        switched: bool,
    ) -> Result<Self> {
        let mut moments: BTreeMap<Duration, Vec<KnobChange>> = BTreeMap::new();
        for turn in turns {
            let changes = moments.entry(turn.at).or_default();
            changes.push(turn.change.clone());
        }
        let Some((&last, _)) = moments.last_key_value() else {
            return Ok(Self::default());
        };
        ensure!(
            switched,
            "--knob-at needs a switchboard; add --lanes switched"
        );
        ensure!(
            last < measured,
            "--knob-at {}: later than the measured time of {} s; use an earlier time, or increase \
             --seconds",
            last.as_secs_f64(),
            measured.as_secs_f64()
        );
        let ahead = moments.into_iter().map(|(at, changes)| {
            knobs
                .change(changes.iter().map(KnobChange::parts))
                .with_context(|| format!("--knob-at {}", at.as_secs_f64()))?;
            Ok(Turn { at, changes, knobs })
        });
        Ok(Self {
            ahead: ahead.collect::<Result<_>>()?,
            turned: Vec::new(),
        })
    }

    /// Returns the times of the changes, from the start of the measured time.
    pub(super) fn moments(&self) -> Vec<Duration> {
        self.ahead.iter().map(|turn| turn.at).collect()
    }

    /// Applies due changes to `board`.
    ///
    /// # Errors
    /// The switchboard has ended.
    pub(super) fn look(
        &mut self,
        board: &Switchboard,
        warmup: Duration,
        progress: LoadProgress,
    ) -> Result<()> {
        let Some(measured) = progress.elapsed.checked_sub(warmup) else {
            return Ok(());
        };
        while let Some(turn) = self.ahead.pop_front_if(|turn| turn.at <= measured) {
            board.set_knobs(&turn.knobs).context("--knob-at")?;
            let turned = turn.changes.into_iter().map(|change| Turned {
                at_seconds: measured.as_secs_f64(),
                knob: change.key,
                value: change.value,
            });
            self.turned.extend(turned);
        }
        Ok(())
    }

    /// Returns the changes that were applied.
    pub(super) fn turned(self) -> Vec<Turned> {
        self.turned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(turns: &[&str]) -> Result<KnobTurns> {
        let turns: Vec<KnobTurn> = turns.iter().map(|turn| turn.parse().unwrap()).collect();
        KnobTurns::of(&turns, Knobs::switchyard(), Duration::from_secs(2), true)
    }

    #[test]
    fn knobs_of_a_moment_are_turned_together_in_the_order_of_time() {
        let turns = turns(&[
            "1.5:doorbell=immediate",
            "0.5:doorbell_delay_us=80",
            "0.5:doorbell=fixed",
        ]);
        let turns = turns.unwrap();
        let moments = [500, 1500].map(Duration::from_millis);
        assert_eq!(turns.moments(), moments);
        let mut expected = Knobs::switchyard();
        expected.set("doorbell", "fixed").unwrap();
        expected.set("doorbell_delay_us", "80").unwrap();
        assert_eq!(turns.ahead[0].knobs, expected);
        expected.set("doorbell", "immediate").unwrap();
        assert_eq!(turns.ahead[1].knobs, expected);
    }

    #[test]
    fn nothing_to_turn_needs_no_switchboard() {
        let turns = KnobTurns::of(&[], Knobs::switchyard(), Duration::from_secs(2), false);
        assert!(turns.unwrap().moments().is_empty());
    }
}
