//! Tenants, their promises and permissions.

use std::collections::BTreeSet;

use super::{Decoder, FromNode, Table, from_table};
use crate::config::node::Node;
use crate::config::problem::Place;
use crate::model::{
    BestEffort, DEFAULT_REQUEST_SIZE, DEFAULT_WEIGHT, LatencyCritical, Percentile, Permission,
    Tenant,
};

impl FromNode for Tenant {
    fn from_node(node: &Node, place: &Place, decoder: &Decoder) -> Option<Self> {
        let table = Table::open(node, place, decoder)?;
        let name = table.required("name", "write its name, like name = \"database\"");
        let hosts = set(&table, "hosts", decoder);
        let networks = set(&table, "networks", decoder);
        let subsystems = set(&table, "subsystems", decoder);
        let namespaces = set(&table, "namespaces", decoder);
        let latency_critical = table.optional("latency_critical");
        let best_effort = table.optional("best_effort");
        if table.has("latency_critical") && table.has("best_effort") {
            decoder.problem(
                &table.place("best_effort"),
                "cannot stand beside latency_critical",
                "keep one of the two",
            );
        }
        let permissions = table.optional("permissions");
        table.finish();
        Some(Self {
            name: name?,
            hosts: hosts?,
            networks: networks?,
            subsystems: subsystems?,
            namespaces: namespaces?,
            latency_critical: latency_critical?,
            best_effort: best_effort?,
            permissions: permissions?,
        })
    }
}

/// Reads a set that a tenant matches. An empty list would match everything, which is never meant.
fn set<T: FromNode + Ord>(
    table: &Table<'_>,
    key: &'static str,
    decoder: &Decoder,
) -> Option<BTreeSet<T>> {
    let items: Option<Vec<T>> = table.optional(key)?;
    if items.as_ref().is_some_and(Vec::is_empty) {
        decoder.problem(
            &table.place(key),
            "is empty",
            "name at least one, or omit the key to match all",
        );
    }
    Some(items.into_iter().flatten().collect())
}

from_table! {
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
