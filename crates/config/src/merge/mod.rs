//! Two changes of one configuration, made into one.
//!
//! The file and the interface both change the configuration in force. Each configuration becomes a
//! tree with leaves that change as a whole: a listener, a device, a namespace, a tenant, an allowed
//! host, a referral, the knobs. A leaf that only one side changed has that side's value; one that both
//! changed differently is a [`Contradiction`], which only a person resolves. Nothing in here does
//! I/O.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::action::Action;
use crate::diff::{Fixed, FixedWhileRunning, diff};
use crate::schema::Configuration;

/// Keys that the file and the interface changed in different ways.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Contradiction {
    /// The keys, at least one.
    pub keys: Vec<String>,
}

impl fmt::Display for Contradiction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the configuration file and the interface have both changed {}",
            self.keys.join(", ")
        )
    }
}

/// A leaf that differs between two configurations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// Its key.
    pub key: String,
    /// Its value in the first; `None` where it is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    /// Its value in the second; `None` where it is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
}

impl Difference {
    /// Returns true if a running target has the key from the file at its start alone.
    #[must_use]
    pub fn needs_restart(&self) -> bool {
        let whole = self.key.split('.').next();
        whole.is_some_and(|key| FIXED.contains(&key))
    }
}

/// Arrays of items that have a key; the empty key is the item itself.
const KEYED: [(&str, &str); 7] = [
    ("listen", ""),
    ("subsystems", "nqn"),
    ("namespaces", "nsid"),
    ("allowed_hosts", ""),
    ("tenants", "name"),
    ("hosts", "nqn"),
    ("referrals", ""),
];

/// Tables of leaves.
const LEAVES: [&str; 7] = [
    "listen",
    "devices",
    "namespaces",
    "tenants",
    "hosts",
    "allowed_hosts",
    "referrals",
];

/// Keys that the running target has from the file alone.
const FIXED: [&str; 16] = [
    "tls",
    "tls_key",
    "chap_secret",
    "chap_controller_secret",
    "api",
    "api_certificate",
    "api_key",
    "api_tokens",
    "api_socket_mode",
    "api_socket_group",
    "api_limits",
    "keys",
    "device_folders",
    "cores",
    "limits",
    "digests",
];

/// Merges `file` with the changes of the interface: from `base`, the file before, to `in_force`.
/// The result is not checked as a whole.
///
/// # Errors
/// What both changed.
///
/// # Panics
/// If a name is there twice in one of the three, or names are out of order: one of the two items would
/// be lost.
pub fn merge(
    base: &Configuration,
    in_force: &Configuration,
    file: &Configuration,
) -> Result<Configuration, Contradiction> {
    let all = [base, in_force, file];
    let is_sorted = all.into_iter().all(Configuration::is_sorted);
    assert!(is_sorted, "each name is there once, and in order");
    let (base, in_force, of_file) = (tree(base), tree(in_force), tree(file));
    let mut keys = Vec::new();
    let merged = merge_values(
        &ValuePlace::default(),
        Some(&base),
        Some(&in_force),
        Some(&of_file),
        &mut keys,
    );
    if !keys.is_empty() {
        return Err(Contradiction { keys });
    }
    let mut merged = merged.expect("three trees make one");
    assert!(
        are_among(&leaves(&in_force, &merged), &leaves(&base, &of_file))
            && are_among(&leaves(&of_file, &merged), &leaves(&base, &in_force)),
        "neither side undoes the other's changes"
    );
    let whole = serde_json::to_value(file).expect("a configuration has a form in JSON");
    for key in FIXED {
        if let Some(value) = whole.get(key) {
            merged[key] = value.clone();
        }
    }
    unkeyed(&mut merged);
    let mut merged: Configuration =
        serde_json::from_value(merged).expect("made of parts of configurations");
    merged.sort();
    Ok(merged)
}

/// Returns the differences from `before` to `after`.
#[must_use]
pub fn differences(before: &Configuration, after: &Configuration) -> Vec<Difference> {
    leaves(&whole_tree(before), &whole_tree(after))
}

/// Returns the leaves that differ between two trees.
fn leaves(before: &Value, after: &Value) -> Vec<Difference> {
    let mut found = Vec::new();
    let place = ValuePlace::default();
    compare(&place, Some(before), Some(after), &mut found);
    found
}

/// Returns true if each difference is one of `others`, or within one of them.
fn are_among(differences: &[Difference], others: &[Difference]) -> bool {
    let is_within = |key: &str, other: &str| {
        let rest = key.strip_prefix(other);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let is_among = |it: &Difference| others.iter().any(|other| is_within(&it.key, &other.key));
    differences.iter().all(is_among)
}

/// Returns the actions of [`diff()`]. Its errors name the keys as [`differences`] does: a value within
/// a table, rather than the table.
pub fn actions(
    before: &Configuration,
    after: &Configuration,
) -> Result<Vec<Action>, FixedWhileRunning> {
    diff(before, after).map_err(|error| {
        let found = differences(before, after);
        let values = |fixed: Fixed| {
            let inside = format!("{}.", fixed.key);
            let found = found.iter().filter(|it| it.key.starts_with(&inside));
            let values = found.map(|it| Fixed {
                key: it.key.clone(),
                what_to_do: fixed.what_to_do.clone(),
            });
            let values: Vec<Fixed> = values.collect();
            if values.is_empty() {
                vec![fixed]
            } else {
                values
            }
        };
        let keys = error.keys.into_iter().flat_map(values).collect();
        FixedWhileRunning { keys }
    })
}

/// Returns the tree without the keys that are fixed while a target runs.
fn tree(configuration: &Configuration) -> Value {
    let mut tree = whole_tree(configuration);
    if let Value::Object(entries) = &mut tree {
        entries.retain(|key, _| !FIXED.contains(&key.as_str()));
    }
    tree
}

fn whole_tree(configuration: &Configuration) -> Value {
    let mut tree = serde_json::to_value(configuration).expect("a configuration has a form in JSON");
    keyed(&mut tree);
    tree
}

/// Arrays of [`KEYED`] become tables.
fn keyed(value: &mut Value) {
    let Value::Object(entries) = value else {
        return;
    };
    for (name, entry) in entries {
        let key = KEYED.iter().find(|(array, _)| array == name);
        if let (Some((_, key)), Value::Array(items)) = (key, &mut *entry) {
            let items = std::mem::take(items).into_iter();
            let table = items.map(|item| (item_key(&item, key), item));
            *entry = Value::Object(table.collect());
        }
        inside(name, entry, keyed);
    }
}

/// Goes on with the tables within an entry that is no table of leaves.
fn inside(name: &str, entry: &mut Value, go_on: impl Fn(&mut Value)) {
    match entry {
        Value::Object(subsystems) if name == "subsystems" => {
            subsystems.values_mut().for_each(go_on);
        }
        _ if LEAVES.contains(&name) => {}
        _ => go_on(entry),
    }
}

fn item_key(item: &Value, key: &str) -> String {
    match if key.is_empty() { item } else { &item[key] } {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Tables that were arrays become arrays again.
fn unkeyed(value: &mut Value) {
    let Value::Object(entries) = value else {
        return;
    };
    for (name, entry) in entries {
        inside(name, entry, unkeyed);
        if KEYED.iter().any(|(array, _)| array == name)
            && let Value::Object(table) = entry
        {
            let items = std::mem::take(table).into_iter().map(|(_, item)| item);
            *entry = Value::Array(items.collect());
        }
    }
}

/// The place of a value in its tree.
#[derive(Clone, Debug, Default)]
struct ValuePlace {
    /// The keys that lead there, for people.
    text: String,
    /// The last of them; empty for a subsystem.
    name: String,
    /// It changes as a whole.
    leaf: bool,
}

impl ValuePlace {
    fn below(&self, key: &str) -> Self {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let text = match (self.text.is_empty(), key.chars().all(plain)) {
            (true, _) => key.to_owned(),
            (false, true) => format!("{}.{key}", self.text),
            (false, false) => format!("{}.{key:?}", self.text),
        };
        // Subsystems have names of their own, which mean no table.
        let name = if self.text == "subsystems" { "" } else { key };
        Self {
            text,
            name: name.to_owned(),
            // Knobs depend on each other, so they change together.
            leaf: LEAVES.contains(&self.name.as_str()) || (self.text.is_empty() && key == "switch"),
        }
    }
}

fn merge_values(
    place: &ValuePlace,
    base: Option<&Value>,
    in_force: Option<&Value>,
    file: Option<&Value>,
    conflicts: &mut Vec<String>,
) -> Option<Value> {
    if in_force == file || file == base {
        return in_force.cloned();
    }
    if in_force == base {
        return file.cloned();
    }
    let (Some(Value::Object(ours)), Some(Value::Object(theirs)), false) =
        (in_force, file, place.leaf)
    else {
        conflicts.push(place.text.clone());
        return None;
    };
    let mut merged = Map::new();
    for key in union(ours, theirs) {
        let base = base.and_then(|base| base.get(key));
        let (ours, theirs) = (ours.get(key), theirs.get(key));
        if let Some(value) = merge_values(&place.below(key), base, ours, theirs, conflicts) {
            merged.insert(key.clone(), value);
        }
    }
    Some(Value::Object(merged))
}

fn compare(
    place: &ValuePlace,
    before: Option<&Value>,
    after: Option<&Value>,
    found: &mut Vec<Difference>,
) {
    if before == after {
        return;
    }
    match (before, after, place.leaf) {
        (Some(Value::Object(old)), Some(Value::Object(new)), false) => {
            for key in union(old, new) {
                compare(&place.below(key), old.get(key), new.get(key), found);
            }
        }
        _ => found.push(Difference {
            key: place.text.clone(),
            before: before.cloned(),
            after: after.cloned(),
        }),
    }
}

fn union<'a>(
    first: &'a Map<String, Value>,
    second: &'a Map<String, Value>,
) -> BTreeSet<&'a String> {
    first.keys().chain(second.keys()).collect()
}
