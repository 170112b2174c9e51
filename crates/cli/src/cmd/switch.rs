//! `switchyard switch`: lists, shows and changes switch parameters.

use crate::args::{SwitchCommand, SwitchCommandArgs};
use crate::exit::Outcome;
use crate::output::Output;
use crate::tables::SwitchAnswer;
use anyhow::{Result, ensure};
use control::api::KnobList;
use control::client::{self, Interface, Method, ask};
use load::KnobChange;
use serde_json::{Map, Value, json};
use std::fmt;

const PATH: &str = "/v1/switch";

/// Carries it out.
///
/// # Errors
/// An API that is unreachable or refuses, or output that cannot be written.
pub fn run(args: &SwitchCommandArgs, output: Output) -> Result<Outcome> {
    match &args.command {
        SwitchCommand::Knobs => {
            let list = KnobList::new();
            output.result(&list, Shown(&list))?;
        }
        SwitchCommand::Show { api } => {
            tell(&ask(&api.interface(), Method::GET, PATH, None)?, output)?
        }
        SwitchCommand::Set { changes, api } => {
            let mut body = Map::new();
            for KnobChange { key, value } in changes {
                let twice = body.insert(key.clone(), plain(value));
                ensure!(twice.is_none(), "{key} is given twice; use it once");
            }
            turn(&api.interface(), &Value::Object(body), output)?;
        }
        SwitchCommand::Preset { name, api } => {
            turn(
                &api.interface(),
                &json!({ "baseline": name.to_string() }),
                output,
            )?;
        }
    }
    Ok(Outcome::Done)
}

fn turn(api: &Interface, body: &Value, output: Output) -> Result<()> {
    tell(&ask(api, Method::PATCH, PATH, Some(body))?, output)
}

/// Converts a value to its JSON type; the target checks it.
fn plain(text: &str) -> Value {
    match (text, text.parse::<u64>()) {
        ("true", _) => true.into(),
        ("false", _) => false.into(),
        (_, Ok(number)) => number.into(),
        (text, Err(_)) => text.into(),
    }
}

fn tell(answer: &Value, output: Output) -> Result<()> {
    output.result(answer, client::read::<SwitchAnswer>(answer)?)
}

/// All parameters, as people read them.
struct Shown<'a>(&'a KnobList);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "presets: {}", self.0.presets.join(", "))?;
        for knob in &self.0.knobs {
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
