//! `switchyard switch`: what can be turned.

use crate::args::{SwitchCommand, SwitchCommandArgs};
use crate::exit::Outcome;
use crate::output::Output;
use anyhow::Result;
use serde::Serialize;
use std::fmt;
use switch::Knobs;
use switch::knobs::{Knob, Preset};

/// Carries it out.
///
/// # Errors
/// An output that cannot be written.
pub fn run(args: &SwitchCommandArgs, output: Output) -> Result<Outcome> {
    match &args.command {
        SwitchCommand::Knobs => {
            let list = KnobList::new();
            output.result(&list, &list)?;
        }
    }
    Ok(Outcome::Done)
}

/// Everything that can be turned.
#[derive(Debug, Serialize)]
struct KnobList {
    presets: Vec<&'static str>,
    knobs: Vec<KnobLine>,
}

#[derive(Debug, Serialize)]
struct KnobLine {
    key: &'static str,
    range: String,
    /// Where it is by default; nothing where it does not count then.
    #[serde(skip_serializing_if = "Option::is_none")]
    default: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    with: Option<&'static str>,
    meaning: &'static str,
}

impl KnobList {
    fn new() -> Self {
        let defaults = Knobs::default();
        let text = |knob: &Knob| {
            let mut entries = defaults.entries();
            entries.find(|entry| entry.knob.key == knob.key)
        };
        let line = |knob: &Knob| KnobLine {
            key: knob.key,
            range: knob.range.to_string(),
            default: text(knob).map(|entry| entry.text()),
            with: knob.with,
            meaning: knob.meaning,
        };
        Self {
            presets: Preset::ALL.iter().map(|(_, name)| *name).collect(),
            knobs: Knob::ALL.iter().map(line).collect(),
        }
    }
}

impl fmt::Display for KnobList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "presets: {}", self.presets.join(", "))?;
        for knob in &self.knobs {
            write!(f, "\n{}: {}", knob.key, knob.range)?;
            match (&knob.default, knob.with) {
                (Some(default), _) => write!(f, " [{default}]")?,
                (None, Some(with)) => write!(f, " (with {with})")?,
                (None, None) => {}
            }
            write!(f, "\n    {}", knob.meaning)?;
        }
        Ok(())
    }
}
