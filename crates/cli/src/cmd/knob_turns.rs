//! Knobs of a switchboard that are turned while a load is measured.

use crate::args::{KnobChange, LoadArgs};
use anyhow::{Context as _, Result, ensure};
use host::Switchboard;
use load::{LoadProgress, Turned};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use switch::Knobs;

/// Changes of one moment, and the setting of all knobs from then on.
#[derive(Clone, Debug, PartialEq)]
struct Turn {
    at: Duration,
    changes: Vec<KnobChange>,
    knobs: Knobs,
}

/// Changes that are still to be made, in the order of time.
#[derive(Clone, Debug, Default)]
pub struct KnobTurns {
    ahead: VecDeque<Turn>,
    turned: Vec<Turned>,
}

impl KnobTurns {
    /// Those of the command line, from the position `knobs` on.
    ///
    /// # Errors
    /// A time that is not measured, knobs that do not go together at some time, or a load without a
    /// switchboard.
    pub fn of(args: &LoadArgs, mut knobs: Knobs) -> Result<Self> {
        let mut moments: BTreeMap<Duration, Vec<KnobChange>> = BTreeMap::new();
        for turn in &args.knob_turns {
            let changes = moments.entry(turn.at).or_default();
            changes.push(turn.change.clone());
        }
        let Some((&last, _)) = moments.last_key_value() else {
            return Ok(Self::default());
        };
        ensure!(
            args.is_switched(),
            "--knob-at turns the knobs of a switchboard, and there is none; add --lanes switched"
        );
        ensure!(
            last < args.seconds,
            "--knob-at {}: the load is measured for {} s; choose an earlier time or more --seconds",
            last.as_secs_f64(),
            args.seconds.as_secs_f64()
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

    /// Returns the times of the changes, in measured time.
    pub fn moments(&self) -> Vec<Duration> {
        self.ahead.iter().map(|turn| turn.at).collect()
    }

    /// Turns what is due on `board`.
    ///
    /// # Errors
    /// When the switchboard has ended.
    pub fn look(
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

    /// Returns the changes that were made.
    pub fn turned(self) -> Vec<Turned> {
        self.turned
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser as _;

    fn args(further: &[&str]) -> LoadArgs {
        let bench = ["switchyard", "bench", "--target", "x:1", "--seconds", "2"];
        let app = ["--app", "a:rw=read"];
        let words = [&bench[..], &app, further].concat();
        match Cli::try_parse_from(words).unwrap().command {
            Command::Bench(bench) => bench.load,
            other => panic!("{other:?}"),
        }
    }

    fn turns(further: &[&str]) -> Result<KnobTurns> {
        let args = args(further);
        KnobTurns::of(&args, args.switch.knobs()?)
    }

    #[test]
    fn knobs_of_a_moment_are_turned_together_in_the_order_of_time() {
        let turns = turns(&[
            "--lanes",
            "switched",
            "--knob-at",
            "1.5:doorbell=immediate",
            "--knob-at",
            "0.5:doorbell_delay_us=80",
            "--knob-at",
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
        assert!(turns(&[]).unwrap().moments().is_empty());
    }
}
