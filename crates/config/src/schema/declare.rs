//! The macros that declare configured types: each key stands in one row.

use crate::node::{Node, Value};
use crate::problem::ConfigError;
use crate::spot::{FoundNode, Problems, Spot};
use crate::table::{FromNode, Keys, Table};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

/// A key of a table, for the documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The key.
    pub key: String,
    /// Its values in words.
    pub values: String,
    /// The default as TOML, or the meaning of leaving the key out; "required" without one.
    pub default: String,
    /// The meaning.
    pub meaning: String,
}

/// A type that [`schema!`](crate::schema!) declares.
pub trait Schema: Keys {
    /// Reports numbers outside of their ranges.
    fn check_ranges(&self, place: &Spot<'_>);

    /// Returns the keys.
    fn rows() -> Vec<Row>;

    /// Writes the keys and values.
    ///
    /// # Errors
    /// Those of the serializer.
    fn entries<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error>;
}

/// Declares structs that are read from tables. A row is the field with its documentation, and the
/// method of [`Table`] that reads the key of its name, with the arguments of that.
#[macro_export]
macro_rules! decoded {
    ($(
        $(#[$($meta:tt)*])*
        $vis:vis struct $name:ident {
            $(
                $(#[$($field_meta:tt)*])*
                $field_vis:vis $field:ident: $type:ty = $kind:ident($($argument:expr),* $(,)?),
            )+
        }
    )+) => {$(
        $(#[$($meta)*])*
        $vis struct $name {
            $( $(#[$($field_meta)*])* $field_vis $field: $type, )+
        }

        impl $crate::Keys for $name {
            fn read(table: &$crate::Table<'_>) -> Option<Self> {
                // Each key is read also where another one is wrong, so that all problems are reported.
                $( let $field = table.$kind(stringify!($field) $(, $argument)*); )+
                Some(Self { $($field: $field?),+ })
            }
        }

        impl $crate::FromNode for $name {
            fn from_node(found: &$crate::FoundNode<'_>) -> Option<Self> {
                $crate::read_table(found)
            }
        }
    )+};
}

/// Declares structs as [`decoded!`](crate::decoded!) does, which are written and documented as well.
/// A number may have a range: `pub key: u64 = or(1) in 1..=9`.
#[macro_export]
macro_rules! schema {
    ($(
        $(#[$($meta:tt)*])*
        $vis:vis struct $name:ident {
            $(
                $(#[$($field_meta:tt)*])*
                $field_vis:vis $field:ident: $type:ty = $kind:ident($($argument:expr),* $(,)?)
                    $(in $range:expr)?,
            )+
        }
    )+) => {$(
        $crate::decoded! {
            $(#[$($meta)*])*
            $vis struct $name {
                $(
                    $(#[$($field_meta)*])*
                    $field_vis $field: $type = $kind($($argument),*),
                )+
            }
        }

        impl $crate::schema::Schema for $name {
            fn check_ranges(&self, place: &$crate::Spot<'_>) {
                let _ = place;
                $($(
                    let place_of_key = place.key(stringify!($field));
                    $crate::schema::Ranged::check(&self.$field, &place_of_key, &$range);
                )?)+
            }

            fn rows() -> Vec<$crate::schema::Row> {
                [$($crate::row!(
                    $kind, $field, $type, $crate::doc_text!($(#[$($field_meta)*])*),
                    [$($argument),*] $(, $range)?
                )),+]
                .concat()
            }

            fn entries<M: serde::ser::SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
                $($crate::entry!($kind, map, stringify!($field), self.$field);)+
                Ok(())
            }
        }

        $crate::as_table!($name);
    )+};
}

/// Implements serde's traits by a schema, so that there is one decoder.
#[macro_export]
#[doc(hidden)]
macro_rules! as_table {
    ($name:ty) => {
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                $crate::schema::write_table(self, serializer)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::schema::read_value(deserializer)
            }
        }
    };
}

/// The documentation of a field as one text.
#[macro_export]
#[doc(hidden)]
macro_rules! doc_text {
    () => { "" };
    (#[doc = $text:literal] $($rest:tt)*) => { concat!($text, $crate::doc_text!($($rest)*)) };
    (#[$($other:tt)*] $($rest:tt)*) => { $crate::doc_text!($($rest)*) };
}

/// The row of a key, or those of the keys of a part.
#[macro_export]
#[doc(hidden)]
macro_rules! row {
    (flat, $key:ident, $type:ty, $doc:expr, []) => {
        <$type as $crate::schema::Schema>::rows()
    };
    (group, $key:ident, $type:ty, $doc:expr, [$words:expr]) => {
        vec![$crate::schema::Row {
            key: stringify!($key).to_owned(),
            values: "name, number".to_owned(),
            default: $words.to_owned(),
            meaning: $doc.trim().to_owned(),
        }]
    };
    (set, $key:ident, $type:ty, $doc:expr, [$words:expr], $range:expr) => {
        vec![$crate::schema::Row {
            key: stringify!($key).to_owned(),
            values: format!("list: {}", $crate::schema::range_text(&$range)),
            default: $words.to_owned(),
            meaning: $doc.trim().to_owned(),
        }]
    };
    ($kind:ident, $key:ident, $type:ty, $doc:expr, [$($argument:expr),*] $(, $range:expr)?) => {
        vec![$crate::schema::Row {
            key: stringify!($key).to_owned(),
            values: [$($crate::schema::range_text(&$range),)? <$type as $crate::FromNode>::expected()]
                .into_iter()
                .next()
                .unwrap_or_default(),
            default: $crate::default_text!($kind, $type $(, $argument)*),
            meaning: $doc.trim().to_owned(),
        }]
    };
}

/// The default of a key by the kind of its row.
#[macro_export]
#[doc(hidden)]
macro_rules! default_text {
    (required, $type:ty, $hint:expr) => {
        "required".to_owned()
    };
    (or, $type:ty, $value:expr) => {
        $crate::schema::toml_text(&$value)
    };
    (number, $type:ty, $value:expr, $range:expr) => {
        $crate::schema::toml_text(&$value)
    };
    (or_default, $type:ty) => {
        $crate::schema::toml_text(&<$type>::default())
    };
    ($kind:ident, $type:ty, $words:expr $(, $more:expr)*) => {
        $words.to_owned()
    };
}

/// Writes a key with its value by the kind of its row: what is absent is left out.
#[macro_export]
#[doc(hidden)]
macro_rules! entry {
    (flat, $map:ident, $key:expr, $value:expr) => {
        $crate::schema::Schema::entries(&$value, $map)?
    };
    (optional, $map:ident, $key:expr, $value:expr) => {
        if let Some(value) = &$value {
            $map.serialize_entry($key, value)?;
        }
    };
    (group, $($rest:tt)*) => { $crate::entry!(optional, $($rest)*) };
    (without, $($rest:tt)*) => { $crate::entry!(optional, $($rest)*) };
    (set, $map:ident, $key:expr, $value:expr) => {
        if !$value.is_empty() {
            $map.serialize_entry($key, &$value)?;
        }
    };
    (list, $($rest:tt)*) => { $crate::entry!(set, $($rest)*) };
    ($kind:ident, $map:ident, $key:expr, $value:expr) => {
        $map.serialize_entry($key, &$value)?
    };
}

/// Writes a value that a schema declares.
///
/// # Errors
/// Those of the serializer.
pub fn write_table<T: Schema, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(None)?;
    value.entries(&mut map)?;
    map.end()
}

/// Reads a value by the decoder of configurations.
///
/// # Errors
/// Every problem found, in one message.
pub fn read_value<'de, T: FromNode, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    use serde::de::Error as _;
    let node = Node::deserialize(deserializer)?;
    read_node(&node).map_err(D::Error::custom)
}

/// Reads a tree that no text was read for.
pub(crate) fn read_node<T: FromNode>(node: &Node) -> Result<T, ConfigError> {
    let problems = Problems::new(usize::MAX);
    let value = T::from_node(&FoundNode::new(node, problems.root()));
    let value = value.filter(|_| problems.is_empty());
    value.ok_or_else(|| ConfigError::unlocated(problems.into_list()))
}

/// Returns the value of an empty table: each key has its default.
///
/// # Panics
/// If a key is required.
pub(crate) fn of_empty<T: FromNode>() -> T {
    let node = Node {
        offset: None,
        value: Value::Table(BTreeMap::new()),
    };
    read_node(&node).expect("every key has a default")
}

/// Returns a value as TOML, for the documentation.
pub fn toml_text<T: Serialize>(value: &T) -> String {
    match toml::Value::try_from(value) {
        Ok(toml::Value::Array(items)) if items.is_empty() => "none".to_owned(),
        Ok(toml::Value::Table(keys)) if keys.is_empty() => "none".to_owned(),
        Ok(toml::Value::Table(_)) | Err(_) => "defaults of its keys".to_owned(),
        Ok(value) => value.to_string(),
    }
}

/// Returns a range in words.
#[must_use]
pub fn range_text(range: &RangeInclusive<u64>) -> String {
    format!("{} to {}", range.start(), range.end())
}

/// Numbers that may have a range.
pub trait Ranged {
    /// Reports numbers outside of `range`.
    fn check(&self, place: &Spot<'_>, range: &RangeInclusive<u64>);
}

impl Ranged for u64 {
    fn check(&self, place: &Spot<'_>, range: &RangeInclusive<u64>) {
        place.range(*self, range);
    }
}

impl Ranged for u32 {
    fn check(&self, place: &Spot<'_>, range: &RangeInclusive<u64>) {
        place.range((*self).into(), range);
    }
}

impl Ranged for super::Size {
    fn check(&self, place: &Spot<'_>, range: &RangeInclusive<u64>) {
        place.range(self.bytes, range);
    }
}

impl<T: Ranged> Ranged for Option<T> {
    fn check(&self, place: &Spot<'_>, range: &RangeInclusive<u64>) {
        self.iter().for_each(|value| value.check(place, range));
    }
}

impl<T: Ranged> Ranged for BTreeSet<T> {
    fn check(&self, place: &Spot<'_>, range: &RangeInclusive<u64>) {
        self.iter().for_each(|value| value.check(place, range));
    }
}

/// Reads the keys of an open table whose keys are known only together: see [`Table::flat`].
pub(crate) fn unknown_type<T>(table: &Table<'_>) -> Option<T> {
    table.ignore_unknown();
    None
}
