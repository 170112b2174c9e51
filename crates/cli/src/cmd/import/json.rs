//! Values of another program's JSON, which writes numbers also as text.

use anyhow::{Context as _, Result};
use serde_json::Value;

/// A value.
#[derive(Clone, Copy, Debug)]
pub struct Json<'a>(pub &'a Value);

impl<'a> Json<'a> {
    /// Returns the value of a key; null without it.
    pub fn at(self, key: &str) -> Self {
        Self(self.0.get(key).unwrap_or(&Value::Null))
    }

    /// Returns the items of a list; none without the key.
    ///
    /// # Errors
    /// A value that is no list.
    pub fn list(self, key: &str) -> Result<impl Iterator<Item = Self> + Clone + use<'a>> {
        let items = match self.at(key).0 {
            Value::Null => &[][..],
            value => value
                .as_array()
                .with_context(|| format!("{key:?} is no list"))?,
        };
        Ok(items.iter().map(Self))
    }

    /// Returns a text, number or truth value as text; `None` if it is empty or something else.
    pub fn text(self, key: &str) -> Option<String> {
        match self.at(key).0 {
            Value::String(text) => Some(text.trim().to_owned()).filter(|text| !text.is_empty()),
            Value::Number(number) => Some(number.to_string()),
            Value::Bool(value) => Some(value.to_string()),
            _ => None,
        }
    }

    /// Returns the text of a key.
    ///
    /// # Errors
    /// If there is none.
    pub fn required(self, key: &str) -> Result<String> {
        self.text(key)
            .with_context(|| format!("no {key:?} in {}", self.shortened()))
    }

    /// Returns a number; `None` if it is something else.
    pub fn number(self, key: &str) -> Option<u64> {
        self.text(key)?.parse().ok()
    }

    /// Returns true for true, 1 and numbers above.
    pub fn flag(self, key: &str) -> bool {
        self.text(key)
            .is_some_and(|text| text == "true" || text.parse().is_ok_and(|it: u64| it > 0))
    }

    /// Returns the beginning of the value, for errors.
    fn shortened(self) -> String {
        let text = self.0.to_string();
        let short: String = text.chars().take(80).collect();
        if short.len() < text.len() {
            short + "…"
        } else {
            short
        }
    }
}
