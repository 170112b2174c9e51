//! Keys of the target that are not read by themselves.

use super::switch;
use crate::node::Value;
use crate::schema::{Limits, REMOVED_LIMITS, Switch, SwitchChange, derived_serial, group_number};
use crate::spot::FoundNode;
use crate::table::{FromNode, Table};
use std::collections::BTreeSet;
use target::limits::LIMITS;

impl Table<'_> {
    /// The parameters of the switch, with the short form `poll` beside their table.
    pub(crate) fn knobs(&self, key: &'static str, _absent: &str) -> Option<Switch> {
        let change: Option<SwitchChange> = self.or_default(key);
        let poll = self.optional("poll", "");
        switch::knobs(&change?, poll?, &self.place(key))
    }

    /// A group, by its number or name.
    pub(crate) fn group(&self, key: &'static str, absent: &str) -> Option<Option<u32>> {
        let group = self.optional::<GroupNumber>(key, absent)?;
        Some(group.map(|group| group.0))
    }

    /// A serial number, or that of the subsystem's name.
    pub(crate) fn serial(&self, key: &'static str, absent: &str) -> Option<String> {
        let nqn = match self.entries.get("nqn").map(|node| &node.value) {
            Some(Value::String(nqn)) => nqn.as_str(),
            _ => "",
        };
        let given = self.optional(key, absent)?;
        Some(given.unwrap_or_else(|| derived_serial(nqn)))
    }

    /// The hosts of a subsystem: either they or all hosts are named.
    pub(crate) fn hosts(&self, key: &'static str, _absent: &str) -> Option<BTreeSet<String>> {
        if !self.has("allow_any_host") && !self.has(key) {
            self.place(key).report(
                "is missing, and so is allow_any_host",
                "write allowed_hosts = [\"nqn…\"] with the hosts' names, or allow_any_host = true",
            );
        }
        self.or_default(key)
    }

    /// A set that a tenant matches. An empty list would match everything, which is never meant.
    pub(crate) fn set<T: FromNode + Ord>(
        &self,
        key: &'static str,
        absent: &str,
    ) -> Option<BTreeSet<T>> {
        let items: Option<BTreeSet<T>> = self.optional(key, absent)?;
        if items.as_ref().is_some_and(BTreeSet::is_empty) {
            let what_to_do = "name at least one, or omit the key to match all";
            self.place(key).report("is empty", what_to_do);
            return None;
        }
        Some(items.unwrap_or_default())
    }

    /// The value of `key`, if there is one; it excludes `other`.
    pub(crate) fn without<T: FromNode>(
        &self,
        key: &'static str,
        absent: &str,
        other: &'static str,
    ) -> Option<Option<T>> {
        let read = self.optional(key, absent);
        if self.has(key) && self.has(other) {
            let error = format!("cannot be used together with {other}");
            self.place(key).report(error, "keep one of the two");
        }
        read
    }
}

/// A group's number, written as such or as a name.
struct GroupNumber(u32);

impl FromNode for GroupNumber {
    fn from_node(found: &FoundNode<'_>) -> Option<Self> {
        let Value::String(name) = found.value else {
            return u32::from_node(found).map(Self);
        };
        match group_number(name) {
            Ok(number) => Some(Self(number)),
            Err(remedy) => found.misplaced(remedy),
        }
    }
}

impl FromNode for Limits {
    fn from_node(found: &FoundNode<'_>) -> Option<Self> {
        let table = Table::open(found)?;
        let mut limits = Self::default();
        for limit in &LIMITS {
            let value = table.number(limit.key, limit.default(), &limit.range);
            limits.set(limit.key, value.unwrap_or(limit.default()));
        }
        for key in REMOVED_LIMITS {
            if table.has(key) {
                tracing::warn!("limits.{key} was removed and is ignored; omit it");
            }
        }
        table.finish();
        Some(limits)
    }
}
