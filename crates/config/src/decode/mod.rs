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
use super::spot::{FoundNode, Spot};
use crate::schema::{ApiAddress, Eui64, Keyword, Network, Nguid, Size, SocketMode, Uuid};
use crate::suggest::nearest;
pub(super) use switch::report_knob;

/// A value that can be read from a tree. `None` means that the problem has been reported.
pub trait FromNode: Sized {
    /// Reads the value that was found, or reports why it cannot.
    fn from_node(found: &FoundNode<'_>) -> Option<Self>;
}

/// A table being read. It remembers which keys were asked for, and refuses all others.
#[derive(Debug)]
pub struct Table<'a> {
    entries: &'a BTreeMap<String, Node>,
    place: Spot<'a>,
    known: RefCell<Vec<&'static str>>,
}

impl<'a> Table<'a> {
    /// The table that was found.
    pub fn open(found: &FoundNode<'a>) -> Option<Self> {
        let Value::Table(entries) = found.value else {
            return found.wrong_type("a table: keys with values");
        };
        Some(Self {
            entries,
            place: found.place.clone(),
            known: RefCell::default(),
        })
    }

    /// Returns the place of `key`.
    #[must_use]
    pub fn place(&self, key: &str) -> Spot<'a> {
        self.place.key(key)
    }

    /// Returns true if `key` has a value.
    #[must_use]
    pub fn has(&self, key: &'static str) -> bool {
        self.found(key).is_some()
    }

    /// Returns true if `key` is present, also as null.
    pub fn mentions(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    fn found(&self, key: &'static str) -> Option<FoundNode<'a>> {
        self.known.borrow_mut().push(key);
        // JSON's null says the same as leaving the key away.
        let node = self.entries.get(key);
        let node = node.filter(|node| !matches!(node.value, Value::Null));
        node.map(|node| FoundNode::new(node, self.place(key)))
    }

    /// The value of `key`; without it, `hint` tells what to write.
    pub fn required<T: FromNode>(&self, key: &'static str, hint: &str) -> Option<T> {
        if let Some(found) = self.found(key) {
            return T::from_node(&found);
        }
        self.place(key).report("is missing", hint);
        None
    }

    /// The value of `key`, if there is one; `None` outside means that it is wrong.
    pub fn optional<T: FromNode>(&self, key: &'static str) -> Option<Option<T>> {
        match self.found(key) {
            Some(found) => T::from_node(&found).map(Some),
            None => Some(None),
        }
    }

    /// The value of `key`, or `default` without one.
    pub fn or<T: FromNode>(&self, key: &'static str, default: T) -> Option<T> {
        Some(self.optional(key)?.unwrap_or(default))
    }

    /// The value of `key`, or its type's default without one.
    pub fn or_default<T: FromNode + Default>(&self, key: &'static str) -> Option<T> {
        self.or(key, T::default())
    }

    /// The number of `key`, or `default` without one. Whether it is in `range` is checked later:
    /// here the message about a value of another type names it.
    pub fn number(
        &self,
        key: &'static str,
        default: u64,
        range: &RangeInclusive<u64>,
    ) -> Option<u64> {
        let found = self.found(key);
        found.map_or(Some(default), |found| integer(&found, range))
    }

    /// The nodes under other keys than these.
    pub fn others(&self, keys: &[&str]) -> impl Iterator<Item = (&'a String, FoundNode<'a>)> {
        let others = self.entries.iter();
        let others = others.filter(|(key, _)| !keys.contains(&key.as_str()));
        others.map(|(key, node)| (key, FoundNode::new(node, self.place(key))))
    }

    /// Reports every key that no decoder read.
    pub fn finish(self) {
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
            self.place(key).report("is not a known key", what_to_do);
        }
    }
}

/// Reads structs from tables: each field from the key of its name, by that method of [`Table`]. A key
/// is read also where another one is wrong, so that all problems are reported.
#[macro_export]
#[doc(hidden)]
macro_rules! from_table {
    ($($type:ty { $($field:ident: $read:ident($($argument:expr),*)),+ $(,)? })+) => {$(
        impl $crate::FromNode for $type {
            fn from_node(found: &$crate::FoundNode<'_>) -> Option<Self> {
                let table = $crate::Table::open(found)?;
                $(let $field = table.$read(stringify!($field) $(, $argument)*);)+
                table.finish();
                Some(Self { $($field: $field?),+ })
            }
        }
    )+};
}

/// Reads types, each by a function of what was found.
macro_rules! from_found {
    ($($type:ty: $read:expr;)+) => {$(
        impl $crate::FromNode for $type {
            fn from_node(found: &$crate::FoundNode<'_>) -> Option<Self> {
                ($read)(found)
            }
        }
    )+};
}
use from_found;

/// Reads an integer, or reports that one of `range` is expected.
fn integer<T: TryFrom<i128> + Display>(
    found: &FoundNode<'_>,
    range: &RangeInclusive<T>,
) -> Option<T> {
    if let Value::Integer(value) = *found.value
        && let Ok(value) = T::try_from(value)
    {
        return Some(value);
    }
    found.wrong_type(&format!(
        "an integer from {} to {}",
        range.start(),
        range.end()
    ))
}

/// Reads a text, or reports `expected`.
fn text<'a>(found: &FoundNode<'a>, expected: &str) -> Option<&'a str> {
    match found.value {
        Value::String(text) => Some(text),
        _ => found.wrong_type(expected),
    }
}

/// Reads a text and understands it, or reports `expected`.
pub fn parsed<T: FromStr>(found: &FoundNode<'_>, expected: &str) -> Option<T> {
    let value = text(found, expected)?.parse().ok();
    value.or_else(|| found.wrong_type(expected))
}

/// Reads a text with a type that has errors with remedies.
fn explained<T: FromStr<Err: Display>>(found: &FoundNode<'_>, expected: &str) -> Option<T> {
    match text(found, expected)?.parse::<T>() {
        Ok(value) => Some(value),
        Err(error) => found.misplaced(error.to_string()),
    }
}

/// One of a few words.
fn word<T: Keyword>(found: &FoundNode<'_>) -> Option<T> {
    let names = || T::WORDS.iter().map(|(name, _)| *name);
    if let Value::String(text) = found.value {
        if let Some((_, value)) = T::WORDS.iter().find(|(name, _)| name == text) {
            return Some(*value);
        }
        if let Some(name) = nearest(text, names()) {
            return found.misplaced(format!("did you mean \"{name}\"?"));
        }
    }
    let names: Vec<String> = names().map(|name| format!("\"{name}\"")).collect();
    let last = usize::from(names.len() == 2);
    found.wrong_type(&names.join(", ").replacen(", ", " or ", last))
}

from_found! {
    bool: |found: &FoundNode<'_>| match *found.value {
        Value::Boolean(value) => Some(value),
        _ => found.wrong_type("true or false"),
    };
    u16: |found| integer(found, &(0..=Self::MAX));
    u32: |found| integer(found, &(0..=Self::MAX));
    u64: |found| integer(found, &(0..=Self::MAX));
    String: |found| text(found, "a text in quotes").map(str::to_owned);
    SocketAddr: |found| {
        let expected = "an address with a port, like \"127.0.0.1:4420\" or \"[::1]:4420\"";
        let value = reactor::address::parse(text(found, expected)?).ok();
        value.or_else(|| found.wrong_type(expected))
    };
    IpAddr: |found| parsed(found, "an IP address, like \"192.0.2.1\" or \"2001:db8::1\"");
    PathBuf: |found| parsed(found, "a path in quotes");
    Uuid: |found| parsed(found, Uuid::EXPECTED);
    Nguid: |found| parsed(found, Nguid::EXPECTED);
    Eui64: |found| parsed(found, Eui64::EXPECTED);
    ApiAddress: |found| explained(found, "\"127.0.0.1:4421\" or \"unix:/run/switchyard/api.sock\"");
    SocketMode: |found| explained(found, "permission bits in quotes, like \"0660\"");
    Network: |found| explained(found, "a network like \"192.0.2.0/24\"");
    Size: |found: &FoundNode<'_>| match *found.value {
        Value::Integer(value) if let Ok(bytes) = u64::try_from(value) => Some(Self { bytes }),
        _ => parsed(found, "a size such as \"1G\", \"512M\" or 4096"),
    };
    crate::schema::PollPolicy: word;
    crate::schema::FaultOperation: word;
    crate::schema::FaultError: word;
    crate::schema::Percentile: word;
    crate::schema::Access: word;
}

impl<T: FromNode> FromNode for Vec<T> {
    fn from_node(found: &FoundNode<'_>) -> Option<Self> {
        let Value::Array(items) = found.value else {
            return found.wrong_type("an array: values between [ and ]");
        };
        let items = items.iter().enumerate();
        let items = items.map(|(index, item)| FoundNode::new(item, found.place.index(index)));
        let read: Vec<Option<T>> = items.map(|item| T::from_node(&item)).collect();
        read.into_iter().collect()
    }
}

/// A map from names to values of one kind.
fn named<T: FromNode>(found: &FoundNode<'_>) -> Option<BTreeMap<String, T>> {
    let Value::Table(entries) = found.value else {
        return found.wrong_type("a table: names with values");
    };
    let read = entries.iter().map(|(name, node)| {
        let value = T::from_node(&FoundNode::new(node, found.place.key(name)));
        Some((name.clone(), value?))
    });
    let read: Vec<Option<(String, T)>> = read.collect();
    read.into_iter().collect()
}
