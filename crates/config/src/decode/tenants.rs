//! Tenants, their promises and permissions.

use crate::from_table;
use std::collections::BTreeSet;

use super::{FromNode, Table};
use crate::schema::{
    BestEffort, DEFAULT_REQUEST_SIZE, DEFAULT_WEIGHT, LatencyCritical, Percentile, Permission,
    Tenant,
};

impl Table<'_> {
    /// Reads a set that a tenant matches. An empty list would match everything, which is never meant.
    fn set<T: FromNode + Ord>(&self, key: &'static str) -> Option<BTreeSet<T>> {
        let items: Option<Vec<T>> = self.optional(key)?;
        if items.as_ref().is_some_and(Vec::is_empty) {
            let what_to_do = "name at least one, or omit the key to match all";
            self.place(key).report("is empty", what_to_do);
        }
        Some(items.into_iter().flatten().collect())
    }

    /// Reads the value of `key`, if there is one; it excludes `other`.
    fn without<T: FromNode>(&self, key: &'static str, other: &'static str) -> Option<Option<T>> {
        let read = self.optional(key);
        if self.has(key) && self.has(other) {
            let error = format!("cannot stand beside {other}");
            self.place(key).report(error, "keep one of the two");
        }
        read
    }
}

from_table! {
    Tenant {
        name: required("write its name, like name = \"database\""),
        hosts: set(),
        networks: set(),
        subsystems: set(),
        namespaces: set(),
        latency_critical: optional(),
        best_effort: without("latency_critical"),
        permissions: optional(),
    }
    LatencyCritical {
        percentile: or(Percentile::P95),
        latency_us: required("write within how many microseconds reads are done, like latency_us = 500"),
        iops: required("write how many requests a second, like iops = 70000"),
        read_percent: required("write how many of 100 requests read, like read_percent = 80"),
        request_size: or(DEFAULT_REQUEST_SIZE),
    }
    BestEffort {
        weight: or(DEFAULT_WEIGHT),
    }
    Permission {
        subsystem: optional(),
        namespace: optional(),
        first_block: or_default(),
        blocks: optional(),
        access: required("write access = \"read_write\", \"read\" or \"write\""),
    }
}
