//! The setting of the switch: all knobs, written as a preset and the differences from it.

use std::fmt;

use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use switch::Knobs;
use switch::knobs::{KnobError, KnobSetting, KnobValue, Preset};

/// The key beside the knobs that names the preset.
pub const BASELINE: &str = "baseline";

/// The knobs of the target's switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Switch(pub Knobs);

/// A change of knobs: first a preset, if one is named, then single knobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SwitchChange {
    /// The preset that all knobs take first; `None` leaves their values.
    pub baseline: Option<Preset>,
    /// Keys and values that the switch knows.
    pub knobs: Vec<(String, String)>,
}

impl SwitchChange {
    /// The knobs after the change of `before`.
    ///
    /// # Errors
    /// Knobs that do not go together.
    pub fn applied_to(&self, before: Switch) -> Result<Switch, KnobError> {
        let mut knobs = self.baseline.map_or(before.0, Preset::knobs);
        let changes = self.knobs.iter();
        knobs.change(changes.map(|(key, value)| (key.as_str(), value.as_str())))?;
        Ok(Switch(knobs))
    }
}

/// A knob's value with the type that it has in TOML and JSON.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Plain {
    /// On or off.
    Switch(bool),
    /// A number, in the key's unit.
    Number(u64),
    /// A word; or a number that is not whole.
    Text(String),
}

impl Plain {
    /// The value of a knob.
    pub fn of(entry: &KnobSetting) -> Self {
        match (entry.value, entry.text()) {
            (KnobValue::Switch(on), _) => Self::Switch(on),
            (KnobValue::Word(_), text) => Self::Text(text),
            (KnobValue::Number(_) | KnobValue::Time(_), text) => {
                text.parse().map_or(Self::Text(text), Self::Number)
            }
        }
    }
}

impl fmt::Display for Plain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Switch(on) => write!(f, "{on}"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

impl Serialize for Switch {
    /// The nearest preset, and the knobs in which they differ from it.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let preset = self.0.nearest_preset();
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry(BASELINE, &preset.to_string())?;
        for entry in self.0.differences(&preset.knobs()) {
            map.serialize_entry(entry.knob.key, &Plain::of(&entry))?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Switch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        super::read_value(deserializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_the_preset_and_what_differs() {
        let mut knobs = Knobs::linux();
        knobs.prioritisation = true;
        knobs.quantum_bytes = 8192;
        let text = toml::to_string(&Switch(knobs)).expect("a table");
        assert_eq!(
            text,
            "baseline = \"linux\"\nprioritisation = true\nquantum_bytes = 8192\n"
        );
        assert_eq!(toml::from_str(&text), Ok(Switch(knobs)));
        let error = toml::from_str::<Switch>("doorbell = \"loud\"").expect_err("no such doorbell");
        assert!(
            error.to_string().contains("\"immediate\" or \"fixed\""),
            "{error}"
        );
    }
}
