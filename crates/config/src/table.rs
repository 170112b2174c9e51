//! Tables that are read: the keys that were asked for, and values of general types.

use crate::node::{Node, Value};
use crate::spot::{FoundNode, Spot};
use crate::suggest::nearest;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// A value that can be read from a tree. `None` means that the problem has been reported.
pub trait FromNode: Sized {
    /// Reads the value that was found, or reports why it cannot.
    fn from_node(found: &FoundNode<'_>) -> Option<Self>;

    /// Returns the values in words, for messages and the documentation.
    fn expected() -> String {
        "table".to_owned()
    }
}

/// A value that is read from the keys of a table, perhaps beside other keys.
pub trait Keys: Sized {
    /// Reads the keys.
    fn read(table: &Table<'_>) -> Option<Self>;
}

/// Reads a table that has no other keys than those of `T`.
pub fn read_table<T: Keys>(found: &FoundNode<'_>) -> Option<T> {
    let table = Table::open(found)?;
    let read = T::read(&table);
    table.finish();
    read
}

/// A table being read. It remembers which keys were asked for, and refuses all others.
#[derive(Debug)]
pub struct Table<'a> {
    pub(crate) entries: &'a BTreeMap<String, Node>,
    place: Spot<'a>,
    known: RefCell<Vec<&'static str>>,
    ignores_unknown: Cell<bool>,
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
            ignores_unknown: Cell::default(),
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

    /// The value of `key`; without it, `hint` is reported as the remedy.
    pub fn required<T: FromNode>(&self, key: &'static str, hint: &str) -> Option<T> {
        if let Some(found) = self.found(key) {
            return T::from_node(&found);
        }
        self.place(key).report("is missing", hint);
        None
    }

    /// The value of `key`, if there is one; `None` outside means that it is wrong. `_absent` documents
    /// the meaning of leaving it out.
    pub fn optional<T: FromNode>(&self, key: &'static str, _absent: &str) -> Option<Option<T>> {
        match self.found(key) {
            Some(found) => T::from_node(&found).map(Some),
            None => Some(None),
        }
    }

    /// The value of `key`, or `default` without one.
    pub fn or<T: FromNode>(&self, key: &'static str, default: T) -> Option<T> {
        Some(self.optional(key, "")?.unwrap_or(default))
    }

    /// The value of `key`, or its type's default without one.
    pub fn or_default<T: FromNode + Default>(&self, key: &'static str) -> Option<T> {
        self.or(key, T::default())
    }

    /// The items of `key`; without it, none.
    pub fn list<T: FromNode + Default>(&self, key: &'static str, _absent: &str) -> Option<T> {
        self.or_default(key)
    }

    /// A value that is read from keys of this table, under no key of its own.
    pub fn flat<T: Keys>(&self, _part: &'static str) -> Option<T> {
        T::read(self)
    }

    /// The text of `key` by `parse`, which may also be written as a number, or as a list of texts and
    /// numbers; `None` inside without one.
    pub fn text<T, E: Display>(
        &self,
        key: &'static str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<Option<T>> {
        let Some(found) = self.found(key) else {
            return Some(None);
        };
        let Some(text) = found.value.flag_text() else {
            return found.wrong_type("a text, an integer, or a list of texts or integers");
        };
        match parse(&text) {
            Ok(value) => Some(Some(value)),
            Err(error) => found.misplaced(error.to_string()),
        }
    }

    /// The same, with a value without one.
    pub fn text_or<T, E: Display>(
        &self,
        key: &'static str,
        parse: impl FnOnce(&str) -> Result<T, E>,
        default: T,
    ) -> Option<T> {
        Some(self.text(key, parse)?.unwrap_or(default))
    }

    /// The value of `key`, which is one of `words`.
    pub fn one_of(&self, key: &'static str, words: &[&'static str]) -> Option<&'static str> {
        let Some(found) = self.found(key) else {
            let hint = format!("write {key} = {}", alternatives(words));
            self.place(key).report("is missing", hint);
            return None;
        };
        among(&found, words)
    }

    /// Makes [`finish`](Self::finish) accept all keys: which are known depends on one that is wrong.
    pub fn ignore_unknown(&self) {
        self.ignores_unknown.set(true);
    }

    /// The number of `key`, or `default` without one. Whether it is in `range` is checked later:
    /// here the message about a value of another type names it.
    pub(crate) fn number(
        &self,
        key: &'static str,
        default: u64,
        range: &RangeInclusive<u64>,
    ) -> Option<u64> {
        let found = self.found(key);
        found.map_or(Some(default), |found| integer(&found, range))
    }

    /// Reports every key that no decoder read.
    pub fn finish(self) {
        let known = self.known.borrow();
        for key in self.entries.keys().filter(|_| !self.ignores_unknown.get()) {
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

/// Reads types: the values in words, and a function of what was found.
macro_rules! from_found {
    ($($type:ty: $expected:expr, $read:expr;)+) => {$(
        impl $crate::FromNode for $type {
            fn from_node(found: &$crate::FoundNode<'_>) -> Option<Self> {
                ($read)(found)
            }

            fn expected() -> String {
                $expected.into()
            }
        }
    )+};
}
pub(crate) use from_found;

/// Reads an integer, or reports that one of `range` is expected.
pub(crate) fn integer<T: TryFrom<i128> + Display>(
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
pub(crate) fn text<'a>(found: &FoundNode<'a>, expected: &str) -> Option<&'a str> {
    match found.value {
        Value::String(text) => Some(text),
        _ => found.wrong_type(expected),
    }
}

/// Reads a text and understands it, or reports `expected`.
pub(crate) fn parsed<T: FromStr>(found: &FoundNode<'_>, expected: &str) -> Option<T> {
    let value = text(found, expected)?.parse().ok();
    value.or_else(|| found.wrong_type(expected))
}

/// Reads a text with a type that has errors with remedies.
pub(crate) fn explained<T: FromStr<Err: Display>>(
    found: &FoundNode<'_>,
    expected: &str,
) -> Option<T> {
    match text(found, expected)?.parse::<T>() {
        Ok(value) => Some(value),
        Err(error) => found.misplaced(error.to_string()),
    }
}

/// One of a few words.
pub(crate) fn among(found: &FoundNode<'_>, words: &[&'static str]) -> Option<&'static str> {
    if let Value::String(text) = found.value {
        if let Some(word) = words.iter().find(|word| *word == text) {
            return Some(word);
        }
        if let Some(word) = nearest(text, words.iter().copied()) {
            return found.misplaced(format!("did you mean \"{word}\"?"));
        }
    }
    found.wrong_type(&alternatives(words))
}

/// Returns the words in quotes: `"a", "b", "c"`.
fn alternatives(words: &[&str]) -> String {
    let words: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
    let last = usize::from(words.len() == 2);
    words.join(", ").replacen(", ", " or ", last)
}

impl<T: FromNode> FromNode for Option<T> {
    fn from_node(found: &FoundNode<'_>) -> Option<Self> {
        T::from_node(found).map(Some)
    }

    fn expected() -> String {
        T::expected()
    }
}

impl<T: FromNode + Ord> FromNode for BTreeSet<T> {
    fn from_node(found: &FoundNode<'_>) -> Option<Self> {
        Some(Vec::from_node(found)?.into_iter().collect())
    }

    fn expected() -> String {
        Vec::<T>::expected()
    }
}

/// Names with values of one kind.
impl<T: FromNode> FromNode for BTreeMap<String, T> {
    fn from_node(found: &FoundNode<'_>) -> Option<Self> {
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

    fn expected() -> String {
        "table of names".to_owned()
    }
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

    fn expected() -> String {
        format!("list: {}", T::expected())
    }
}
