//! `switchyard switch`: what can be turned, and turning it on a running target.

use crate::args::{KnobChange, SwitchCommand, SwitchCommandArgs};
use crate::exit::Outcome;
use crate::http::ask;
use crate::output::Output;
use anyhow::{Context as _, Result, ensure};
use control::model::ApiAddress;
use control::snapshot::{ClassStats, SwitchSnapshot, ThreadsSnapshot};
use hyper::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::fmt;
use switch::Knobs;
use switch::doorbell::Reason;
use switch::knobs::{Knob, Preset};
use target::SwitchStats;

const PATH: &str = "/v1/switch";

/// Carries it out.
///
/// # Errors
/// An interface that cannot be reached or refuses, or an output that cannot be written.
pub fn run(args: &SwitchCommandArgs, output: Output) -> Result<Outcome> {
    match &args.command {
        SwitchCommand::Knobs => {
            let list = KnobList::new();
            output.result(&list, &list)?;
        }
        SwitchCommand::Show { api } => tell(&ask(&api.api, Method::GET, PATH, None)?, output)?,
        SwitchCommand::Set { changes, api } => {
            let mut body = Map::new();
            for KnobChange { key, value } in changes {
                let twice = body.insert(key.clone(), plain(value));
                ensure!(twice.is_none(), "{key} is given twice; keep one of them");
            }
            turn(&api.api, &Value::Object(body), output)?;
        }
        SwitchCommand::Preset { name, api } => {
            turn(&api.api, &json!({ "baseline": name.to_string() }), output)?;
        }
    }
    Ok(Outcome::Done)
}

fn turn(api: &ApiAddress, body: &Value, output: Output) -> Result<()> {
    tell(&ask(api, Method::PATCH, PATH, Some(body))?, output)
}

/// A value with the type that it has in JSON; the target knows whether it fits.
fn plain(text: &str) -> Value {
    match (text, text.parse::<u64>()) {
        ("true", _) => true.into(),
        ("false", _) => false.into(),
        (_, Ok(number)) => number.into(),
        (text, Err(_)) => text.into(),
    }
}

fn tell(answer: &Value, output: Output) -> Result<()> {
    let seen = Seen::deserialize(answer).context("the target's answer is not understood")?;
    output.result(answer, &seen)
}

/// A target's answer about its switch.
#[derive(Debug, Deserialize)]
struct Seen {
    setting: Map<String, Value>,
    knobs: Map<String, Value>,
    /// Nothing in the answer to a change.
    #[serde(default)]
    threads: Option<ThreadsSnapshot>,
    #[serde(default)]
    cores: Vec<SwitchSnapshot>,
}

fn word(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(true) => "on".to_owned(),
        Value::Bool(false) => "off".to_owned(),
        other => other.to_string(),
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let baseline = self.setting.get("baseline").map(word).unwrap_or_default();
        write!(f, "preset {baseline}")?;
        match self.setting.len().saturating_sub(1) {
            0 => {}
            1 => f.write_str(", and 1 knob (*) that differs from it")?,
            several => write!(f, ", and {several} knobs (*) that differ from it")?,
        }
        // In the order in which the switch lists them; what this program does not know, last.
        let known = Knob::ALL.iter().map(|knob| knob.key);
        let known: Vec<&str> = known.filter(|key| self.knobs.contains_key(*key)).collect();
        let rest = self.knobs.keys().map(String::as_str);
        let rest: Vec<&str> = rest.filter(|key| !known.contains(key)).collect();
        for key in known.iter().chain(&rest) {
            let mark = if self.setting.contains_key(*key) {
                '*'
            } else {
                ' '
            };
            write!(f, "\n{mark} {key}={}", word(&self.knobs[*key]))?;
        }
        if let Some(threads) = &self.threads {
            write!(
                f,
                "\nthreads: {} in use, of {} to {}; {} grown, {} shrunk, {} balanced",
                threads.active,
                threads.min,
                threads.max,
                threads.grown,
                threads.shrunk,
                threads.balanced
            )?;
        }
        for core in &self.cores {
            write!(f, "\ncore {}: served {}", core.core, core.privilege)?;
            if let Some(reason) = &core.privilege_refused {
                write!(f, " ({reason})")?;
            }
            if self.threads.is_some() && !core.in_use {
                write!(f, ", not in use")?;
            }
            let SwitchStats {
                scaled_in,
                scaled_out,
                sparse_arrivals,
                classes,
                ..
            } = &core.stats;
            if scaled_in + scaled_out > 0 {
                write!(f, ", {scaled_in} queues scaled in and {scaled_out} out")?;
            }
            if *sparse_arrivals > 0 {
                write!(f, ", {sparse_arrivals} sparse arrivals")?;
            }
            for (name, class) in classes.iter() {
                write!(f, "\ncore {} {name}: {}", core.core, Did(class))?;
            }
        }
        Ok(())
    }
}

/// Counters of a core's switch for a class, on one line.
struct Did<'a>(&'a ClassStats);

impl fmt::Display for Did<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let class = self.0;
        let caravans: u64 = class.caravans.rings.iter().sum();
        write!(
            f,
            "{} queues, {} bytes outstanding (load {}), {} answers in {caravans} caravans, {} \
             quanta, {} preemptions, moved {} in and {} out",
            class.queues,
            class.outstanding_bytes,
            class.load_bytes,
            class.caravans.requests,
            class.receive.quanta + class.send.quanta,
            class.receive.preemptions + class.send.preemptions,
            class.moved_in,
            class.moved_out
        )?;
        let rings = Reason::ALL.map(|reason| (reason.name(), class.caravans.rings[reason.index()]));
        let mut rings: Vec<_> = rings.into_iter().filter(|(_, count)| *count > 0).collect();
        rings.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        if let Some(((reason, count), others)) = rings.split_first() {
            write!(f, "; rang for {reason} {count}")?;
            for (reason, count) in others {
                write!(f, ", {reason} {count}")?;
            }
        }
        Ok(())
    }
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
    /// The default; `None` where the knob does not count then.
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
