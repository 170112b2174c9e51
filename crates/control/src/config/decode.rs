//! From a tree to values: types, words and unknown keys.

mod devices;
mod switch;
mod target;
mod tenants;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;

use super::node::{Node, Value};
use super::problem::{Place, Problem};
use crate::limits::PROBLEMS_MAX;
use crate::model::{ApiAddress, Eui64, Keyword, Network, Nguid, Size, Uuid};
use crate::suggest::nearest;

/// Gathers the problems of one reading.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    problems: RefCell<Vec<Problem>>,
}

impl Decoder {
    pub(crate) fn problem(
        &self,
        place: &Place,
        error: impl Into<String>,
        what_to_do: impl Into<String>,
    ) {
        let mut problems = self.problems.borrow_mut();
        // One more than is shown tells the reader that there are more.
        if problems.len() <= PROBLEMS_MAX {
            problems.push(Problem::new(place, error, what_to_do));
        }
    }

    pub(crate) fn into_problems(self) -> Vec<Problem> {
        self.problems.into_inner()
    }

    pub(crate) fn wrong_type(&self, place: &Place, value: &Value, expected: &str) {
        self.problem(
            place,
            format!("{} cannot stand here", value.describe()),
            format!("write {expected}"),
        );
    }
}

/// A value that can be read from a tree. `None` means that the problem has been reported.
pub(crate) trait FromNode: Sized {
    fn from_node(node: &Node, place: &Place, decoder: &Decoder) -> Option<Self>;
}

/// A table being read: it remembers which keys were asked for, and refuses all others.
pub(crate) struct Table<'a> {
    entries: &'a BTreeMap<String, Node>,
    place: Place,
    decoder: &'a Decoder,
    known: RefCell<Vec<&'static str>>,
}

impl<'a> Table<'a> {
    /// The table that `node` is.
    pub(crate) fn open(node: &'a Node, place: &Place, decoder: &'a Decoder) -> Option<Self> {
        let Value::Table(entries) = &node.value else {
            decoder.wrong_type(place, &node.value, "a table: keys with values");
            return None;
        };
        Some(Self {
            entries,
            place: place.clone(),
            decoder,
            known: RefCell::default(),
        })
    }

    pub(crate) fn place(&self, key: &str) -> Place {
        self.place.key(key)
    }

    pub(crate) fn has(&self, key: &'static str) -> bool {
        self.node(key).is_some()
    }

    /// Returns true if `key` is present, also as null.
    pub(crate) fn mentions(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    fn node(&self, key: &'static str) -> Option<&'a Node> {
        self.known.borrow_mut().push(key);
        // JSON's null says the same as leaving the key away.
        self.entries
            .get(key)
            .filter(|node| !matches!(node.value, Value::Null))
    }

    /// The value of `key`; without it, `hint` tells what to write.
    pub(crate) fn required<T: FromNode>(&self, key: &'static str, hint: &str) -> Option<T> {
        let place = self.place(key);
        match self.node(key) {
            Some(node) => T::from_node(node, &place, self.decoder),
            None => {
                self.decoder.problem(&place, "is missing", hint);
                None
            }
        }
    }

    /// The value of `key`, if there is one; `None` outside means that it is wrong.
    pub(crate) fn optional<T: FromNode>(&self, key: &'static str) -> Option<Option<T>> {
        match self.node(key) {
            Some(node) => T::from_node(node, &self.place(key), self.decoder).map(Some),
            None => Some(None),
        }
    }

    /// The value of `key`, or `default` without one.
    pub(crate) fn or<T: FromNode>(&self, key: &'static str, default: T) -> Option<T> {
        Some(self.optional(key)?.unwrap_or(default))
    }

    /// The value of `key`, or its type's default without one.
    pub(crate) fn or_default<T: FromNode + Default>(&self, key: &'static str) -> Option<T> {
        self.or(key, T::default())
    }

    /// The number of `key`, or `default` without one. Whether it is in `range` is checked later:
    /// here the message about a value of another type names it.
    pub(crate) fn number(
        &self,
        key: &'static str,
        default: u64,
        range: &RangeInclusive<u64>,
    ) -> Option<u64> {
        let Some(node) = self.node(key) else {
            return Some(default);
        };
        integer(node, &self.place(key), self.decoder, range)
    }

    /// Reports every key that no decoder read.
    pub(crate) fn finish(self) {
        let known = self.known.borrow();
        for key in self.entries.keys() {
            if known.contains(&key.as_str()) {
                continue;
            }
            let what_to_do = match nearest(key, known.iter().copied()) {
                Some(name) => format!("did you mean \"{name}\"?"),
                None => {
                    let mut names = known.clone();
                    names.sort_unstable();
                    names.dedup();
                    format!("known here are {}", names.join(", "))
                }
            };
            self.decoder
                .problem(&self.place.key(key), "is not a known key", what_to_do);
        }
    }
}

/// Reads structs from tables: each field from the key of its name, by that method of [`Table`]. A key
/// is read also where another one is wrong, so that all problems are reported.
macro_rules! from_table {
    ($($type:ty { $($field:ident: $read:ident($($argument:expr),*)),+ $(,)? })+) => {$(
        impl $crate::config::FromNode for $type {
            fn from_node(
                node: &$crate::config::Node,
                place: &$crate::config::Place,
                decoder: &$crate::config::Decoder,
            ) -> Option<Self> {
                let table = $crate::config::Table::open(node, place, decoder)?;
                $(let $field = table.$read(stringify!($field) $(, $argument)*);)+
                table.finish();
                Some(Self { $($field: $field?),+ })
            }
        }
    )+};
}
pub(crate) use from_table;

impl FromNode for bool {
    fn from_node(node: &Node, place: &Place, decoder: &Decoder) -> Option<Self> {
        if let Value::Boolean(value) = node.value {
            return Some(value);
        }
        decoder.wrong_type(place, &node.value, "true or false");
        None
    }
}

/// Reads an integer, or reports that one of `range` is expected.
fn integer<T: TryFrom<i128> + Display>(
    node: &Node,
    place: &Place,
    decoder: &Decoder,
    range: &RangeInclusive<T>,
) -> Option<T> {
    if let Value::Integer(value) = node.value
        && let Ok(value) = T::try_from(value)
    {
        return Some(value);
    }
    let expected = format!("an integer from {} to {}", range.start(), range.end());
    decoder.wrong_type(place, &node.value, &expected);
    None
}

macro_rules! integers {
    ($($type:ty),+) => {$(
        impl FromNode for $type {
            fn from_node(node: &Node, place: &Place, decoder: &Decoder) -> Option<Self> {
                integer(node, place, decoder, &(0..=Self::MAX))
            }
        }
    )+};
}

integers!(u16, u32, u64);

impl FromNode for String {
    fn from_node(node: &Node, place: &Place, decoder: &Decoder) -> Option<Self> {
        if let Value::String(text) = &node.value {
            return Some(text.clone());
        }
        decoder.wrong_type(place, &node.value, "a text in quotes");
        None
    }
}

/// Reads a text and understands it with `parse`, or reports `expected`.
fn parsed<T>(
    node: &Node,
    place: &Place,
    decoder: &Decoder,
    expected: &str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Option<T> {
    if let Value::String(text) = &node.value
        && let Some(value) = parse(text)
    {
        return Some(value);
    }
    decoder.wrong_type(place, &node.value, expected);
    None
}

macro_rules! from_text {
    ($($type:ty: $expected:expr),+ $(,)?) => {$(
        impl FromNode for $type {
            fn from_node(node: &Node, place: &Place, decoder: &Decoder) -> Option<Self> {
                parsed(node, place, decoder, $expected, |text| text.parse().ok())
            }
        }
    )+};
}

from_text! {
    SocketAddr: "an address with a port, like \"127.0.0.1:4420\" or \"[::1]:4420\"",
    IpAddr: "an IP address, like \"192.0.2.1\" or \"2001:db8::1\"",
    PathBuf: "a path in quotes",
    Uuid: Uuid::EXPECTED,
    Nguid: Nguid::EXPECTED,
    Eui64: Eui64::EXPECTED,
}

/// Reads a text with a type that has errors with remedies.
fn explained<T: FromStr<Err: Display>>(
    node: &Node,
    place: &Place,
    decoder: &Decoder,
    expected: &str,
) -> Option<T> {
    let Value::String(text) = &node.value else {
        decoder.wrong_type(place, &node.value, expected);
        return None;
    };
    let explain = |error: T::Err| {
        let found = format!("{} cannot stand here", node.value.describe());
        decoder.problem(place, found, error.to_string());
    };
    text.parse().map_err(explain).ok()
}

impl FromNode for ApiAddress {
    fn from_node(node: &Node, place: &Place, decoder: &Decoder) -> Option<Self> {
        let expected = "\"127.0.0.1:4421\" or \"unix:/run/switchyard/api.sock\"";
        explained(node, place, decoder, expected)
    }
}

impl FromNode for Network {
    fn from_node(node: &Node, place: &Place, decoder: &Decoder) -> Option<Self> {
        explained(node, place, decoder, "a network like \"192.0.2.0/24\"")
    }
}

impl FromNode for Size {
    fn from_node(node: &Node, place: &Place, decoder: &Decoder) -> Option<Self> {
        if let Value::Integer(value) = node.value
            && let Ok(bytes) = u64::try_from(value)
        {
            return Some(Self { bytes });
        }
        let expected = "a size such as \"1G\", \"512M\" or 4096";
        parsed(node, place, decoder, expected, |text| text.parse().ok())
    }
}

impl<T: FromNode> FromNode for Vec<T> {
    fn from_node(node: &Node, place: &Place, decoder: &Decoder) -> Option<Self> {
        let Value::Array(items) = &node.value else {
            decoder.wrong_type(place, &node.value, "an array: values between [ and ]");
            return None;
        };
        let read: Vec<Option<T>> = items
            .iter()
            .enumerate()
            .map(|(index, item)| T::from_node(item, &place.index(index), decoder))
            .collect();
        read.into_iter().collect()
    }
}

/// A map from names to values of one kind.
fn named<T: FromNode>(
    node: &Node,
    place: &Place,
    decoder: &Decoder,
) -> Option<BTreeMap<String, T>> {
    let Value::Table(entries) = &node.value else {
        decoder.wrong_type(place, &node.value, "a table: names with values");
        return None;
    };
    let read: Vec<Option<(String, T)>> = entries
        .iter()
        .map(|(name, node)| {
            T::from_node(node, &place.key(name), decoder).map(|value| (name.clone(), value))
        })
        .collect();
    read.into_iter().collect()
}

/// One of a few words.
fn word<T: Keyword>(node: &Node, place: &Place, decoder: &Decoder) -> Option<T> {
    let names = || T::WORDS.iter().map(|(name, _)| *name);
    if let Value::String(text) = &node.value {
        if let Some((_, value)) = T::WORDS.iter().find(|(name, _)| name == text) {
            return Some(*value);
        }
        if let Some(name) = nearest(text, names()) {
            decoder.problem(
                place,
                format!("{} cannot stand here", node.value.describe()),
                format!("did you mean \"{name}\"?"),
            );
            return None;
        }
    }
    let names: Vec<String> = names().map(|name| format!("\"{name}\"")).collect();
    decoder.wrong_type(
        place,
        &node.value,
        &names
            .join(", ")
            .replacen(", ", " or ", usize::from(names.len() == 2)),
    );
    None
}

macro_rules! from_word {
    ($($type:ty),+) => {$(
        impl FromNode for $type {
            fn from_node(node: &Node, place: &Place, decoder: &Decoder) -> Option<Self> {
                word(node, place, decoder)
            }
        }
    )+};
}

from_word!(
    crate::model::PollPolicy,
    crate::model::FaultOperation,
    crate::model::FaultError,
    crate::model::Percentile,
    crate::model::Access
);
