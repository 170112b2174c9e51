//! The knobs of the switch.

use switch::knobs::{Knob, KnobError, KnobRange, Polling, Preset};
use switch::{Class, Knobs};

use crate::node::Value;
use crate::schema::{BASELINE, PollPolicy, Switch, SwitchChange};
use crate::spot::{FoundNode, Spot};
use crate::suggest::nearest;
use crate::table::{FromNode, from_found, parsed};

from_found! {
    Class: "L, T", |found| parsed(found, "\"L\" or \"T\"");
}

impl FromNode for SwitchChange {
    fn from_node(found: &FoundNode<'_>) -> Option<Self> {
        let Value::Table(entries) = found.value else {
            return found.wrong_type("a table: knobs with values");
        };
        let mut change = Self::default();
        let mut sound = true;
        // JSON's null says the same as leaving the key away.
        let given = entries
            .iter()
            .filter(|(_, node)| !matches!(node.value, Value::Null));
        for (key, node) in given {
            let found = FoundNode::new(node, found.place.key(key));
            if key == BASELINE {
                change.baseline = preset(&found);
                sound &= change.baseline.is_some();
            } else if let Some(value) = value(key, &found) {
                change.knobs.push((key.clone(), value));
            } else {
                sound = false;
            }
        }
        sound.then_some(change)
    }
}

impl FromNode for Switch {
    fn from_node(found: &FoundNode<'_>) -> Option<Self> {
        knobs(&SwitchChange::from_node(found)?, None, &found.place)
    }
}

fn preset(found: &FoundNode<'_>) -> Option<Preset> {
    let names: Vec<_> = Preset::ALL.iter().map(|(_, name)| *name).collect();
    let expected = format!("one of {}", names.join(", "));
    parsed(found, &expected)
}

/// The text of a knob's value, which the knob has taken on trial.
fn value(key: &str, found: &FoundNode<'_>) -> Option<String> {
    let found_knob = Knob::find(key);
    if let Err(error @ KnobError::Removed { .. }) = &found_knob {
        found.place.report("was removed", error.remedy());
        return None;
    }
    let Ok(knob) = found_knob else {
        let keys = Knob::ALL.iter().map(|knob| knob.key);
        let what_to_do = match nearest(key, keys.chain([BASELINE])) {
            Some(name) => format!("did you mean \"{name}\"?"),
            None => "`switchyard switch knobs` lists them".to_owned(),
        };
        found.place.report("is not a known knob", what_to_do);
        return None;
    };
    let text = match (found.value, knob.range) {
        (Value::Boolean(on), KnobRange::Switch) => on.to_string(),
        (Value::String(text), KnobRange::Switch | KnobRange::Words(_)) => text.clone(),
        (Value::Integer(number), KnobRange::Number(..) | KnobRange::Time(..)) => number.to_string(),
        _ => String::new(),
    };
    if knob.parse(&text).is_ok() {
        return Some(text);
    }
    let expected = match knob.range {
        KnobRange::Switch => "true or false".to_owned(),
        KnobRange::Words(words) => format!("\"{}\"", words.join("\" or \"")),
        KnobRange::Number(..) | KnobRange::Time(..) => format!("an integer from {}", knob.range),
    };
    found.wrong_type(&expected)
}

/// The knobs of a configuration; `poll` is the short form of one of them.
pub(super) fn knobs(
    change: &SwitchChange,
    poll: Option<PollPolicy>,
    place: &Spot<'_>,
) -> Option<Switch> {
    if poll.is_some() && change.knobs.iter().any(|(key, _)| key == "polling") {
        place
            .key("polling")
            .report("says the same as poll", "keep one of the two");
        return None;
    }
    match change.applied_to(Switch(Knobs::default())) {
        Ok(mut switch) => {
            if let Some(poll) = poll {
                switch.0.polling = match poll {
                    PollPolicy::Auto => Polling::Adaptive,
                    PollPolicy::Always => Polling::Always,
                    PollPolicy::Never => Polling::Never,
                };
            }
            Some(switch)
        }
        Err(error) => {
            report_knob(&error, place);
            None
        }
    }
}

/// Reports what is wrong with knobs, at the one that is meant.
pub(crate) fn report_knob(error: &KnobError, place: &Spot<'_>) {
    let place = error.knob().map_or(place.clone(), |knob| place.key(knob));
    place.report(error.problem(), error.remedy());
}
