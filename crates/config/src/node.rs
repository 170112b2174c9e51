//! The tree of a TOML or JSON text, with the place of every key in the text.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{self, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::error::Category;
use toml::de::{DeTable, DeValue};

use super::problem::{Place, PlaceStep, Problem, line_of};
use super::{ConfigError, Format};

/// A value, and where its key (or, in an array, the value) begins in the text.
#[derive(Clone, Debug)]
pub struct Node {
    pub(crate) offset: Option<usize>,
    /// The value.
    pub value: Value,
}

/// Equal are nodes with equal values, wherever they stand.
impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

/// A value of a text.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// JSON's null.
    Null,
    /// true or false.
    Boolean(bool),
    /// An integer.
    Integer(i128),
    /// A number with a fraction, or an integer that is too large.
    Float,
    /// A text.
    String(String),
    /// TOML's date or time.
    Datetime,
    /// A list.
    Array(Vec<Node>),
    /// Keys with values.
    Table(BTreeMap<String, Node>),
}

impl Value {
    /// Returns the value as the text of a flag: a text, an integer, or a list of these with commas.
    pub(crate) fn flag_text(&self) -> Option<String> {
        match self {
            Self::String(text) => Some(text.clone()),
            Self::Integer(number) => Some(number.to_string()),
            Self::Array(items) => {
                let items: Option<Vec<_>> = items.iter().map(|it| it.value.flag_text()).collect();
                Some(items?.join(","))
            }
            _ => None,
        }
    }

    /// Returns the kind of the value, for messages.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Null => "null".to_owned(),
            Self::Boolean(value) => format!("the truth value {value}"),
            Self::Integer(value) => format!("the integer {value}"),
            Self::Float => "a number with a fraction".to_owned(),
            Self::String(text) => {
                let mut short: String = text.chars().take(60).collect();
                if short.len() < text.len() {
                    short.push('…');
                }
                format!("the text {short:?}")
            }
            Self::Datetime => "a date or time".to_owned(),
            Self::Array(_) => "an array".to_owned(),
            Self::Table(_) => "a table".to_owned(),
        }
    }
}

impl Node {
    pub(crate) fn parse(text: &str, format: Format) -> Result<Self, ConfigError> {
        match format {
            Format::Toml => {
                let (table, errors) = DeTable::parse_recoverable(text);
                if errors.is_empty() {
                    return Ok(Self {
                        offset: None,
                        value: from_table(table.get_ref()),
                    });
                }
                let problems = errors.iter().map(|error| {
                    let problem = Problem::of_file(
                        format!("this is not TOML: {}", error.message().replace('\n', ", ")),
                        "write key = value, with texts in quotes",
                    );
                    match error.span() {
                        Some(span) => problem.at_line(line_of(text, span.start)),
                        None => problem,
                    }
                });
                Err(ConfigError::unlocated(problems.collect()))
            }
            Format::Json => {
                serde_json::from_str(text).map_err(|error| {
                    let problem = match error.classify() {
                        // All other values are taken.
                        Category::Data => {
                            Problem::of_file(error.to_string(), "write each key once")
                        }
                        _ => Problem::of_file(
                            format!("this is not JSON: {error}"),
                            "send a JSON object",
                        ),
                    };
                    ConfigError::single(problem.at_line(error.line().max(1)))
                })
            }
        }
    }

    /// Returns the offset of the key at `place` in the text; for an absent key, that of its table.
    pub(crate) fn offset_of(&self, place: &Place) -> Option<usize> {
        let mut node = self;
        let mut offset = self.offset;
        for step in place.steps() {
            let next = match (step, &node.value) {
                (PlaceStep::Key(key), Value::Table(table)) => table.get(key),
                (PlaceStep::Index(index), Value::Array(items)) => items.get(*index),
                _ => None,
            };
            let Some(next) = next else { break };
            offset = next.offset.or(offset);
            node = next;
        }
        offset
    }
}

fn from_table(table: &DeTable<'_>) -> Value {
    let entries = table.iter().map(|(key, value)| {
        let node = Node {
            offset: Some(key.span().start),
            value: from_toml(value.get_ref()),
        };
        (key.get_ref().to_string(), node)
    });
    Value::Table(entries.collect())
}

fn from_toml(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Integer(number) => i128::from_str_radix(number.as_str(), number.radix())
            .map_or(Value::Float, Value::Integer),
        DeValue::Float(_) => Value::Float,
        DeValue::Boolean(value) => Value::Boolean(*value),
        DeValue::Datetime(_) => Value::Datetime,
        DeValue::Array(items) => Value::Array(
            items
                .iter()
                .map(|item| Node {
                    offset: Some(item.span().start),
                    value: from_toml(item.get_ref()),
                })
                .collect(),
        ),
        DeValue::Table(table) => from_table(table),
    }
}

/// JSON values carry no places: what they hold is reported by key alone. A key that is there twice is
/// refused, as in TOML: one of the two values would be ignored.
impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = deserializer.deserialize_any(JsonVisitor)?;
        Ok(Self {
            offset: None,
            value,
        })
    }
}

struct JsonVisitor;

impl<'de> Visitor<'de> for JsonVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Boolean(value))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(Value::Integer(number.into()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(Value::Integer(number.into()))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Value, E> {
        Ok(Value::Float)
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(item) = items.next_element()? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut table = BTreeMap::new();
        while let Some(key) = entries.next_key::<String>()? {
            if table.contains_key(&key) {
                return Err(de::Error::custom(format_args!("{key:?} is there twice")));
            }
            table.insert(key, entries.next_value()?);
        }
        Ok(Value::Table(table))
    }
}
