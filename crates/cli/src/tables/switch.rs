//! The switch of a target in words: its knobs, and its counters.

use control::snapshot::{ClassStats, SwitchSnapshot, SwitchStats, ThreadsSnapshot};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::fmt;
use switch::doorbell::Reason;
use switch::knobs::Knob;

/// Positions of the knobs of a target, and what its switch did.
///
/// The knobs are not read as such: those of another version are shown, too.
#[derive(Debug, Deserialize)]
pub struct SwitchAnswer {
    /// The preset, and the differences from it.
    pub setting: Map<String, Value>,
    /// Every knob in use.
    pub knobs: Map<String, Value>,
    /// Threads of the target; `None` in the answer to a change.
    #[serde(default)]
    pub threads: Option<ThreadsSnapshot>,
    /// The switch of each core; empty in the answer to a change.
    #[serde(default)]
    pub cores: Vec<SwitchSnapshot>,
}

fn word(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(true) => "on".to_owned(),
        Value::Bool(false) => "off".to_owned(),
        other => other.to_string(),
    }
}

impl fmt::Display for SwitchAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let baseline = self.setting.get("baseline").map(word).unwrap_or_default();
        write!(f, "preset {baseline}")?;
        match self.setting.len().saturating_sub(1) {
            0 => {}
            1 => f.write_str(", with 1 changed parameter (*)")?,
            several => write!(f, ", with {several} changed parameters (*)")?,
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
                "\nthreads: {} in use (min {}, max {}); scaled up {} times, down {} times, \
                 balanced {} times",
                threads.active,
                threads.min,
                threads.max,
                threads.grown,
                threads.shrunk,
                threads.balanced
            )?;
        }
        for core in &self.cores {
            write!(
                f,
                "\ncore {}: thread priority {}",
                core.core, core.privilege
            )?;
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
            "{} queues, {} bytes outstanding (average {}), {} completions in {caravans} batches, \
             {} quanta, {} preemptions, queues moved in {}, out {}",
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
            write!(f, "; batches sent by {reason} {count}")?;
            for (reason, count) in others {
                write!(f, ", {reason} {count}")?;
            }
        }
        Ok(())
    }
}
