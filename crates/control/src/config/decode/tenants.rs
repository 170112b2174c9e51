//! Tenants, their promises and permissions.

use std::collections::BTreeSet;

use super::{Decoder, FromNode, Table};
use crate::config::node::Node;
use crate::config::problem::Place;
use crate::model::{
    Access, BestEffort, DEFAULT_REQUEST_SIZE, DEFAULT_WEIGHT, LatencyCritical, Percentile,
    Permission, Tenant,
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

impl FromNode for LatencyCritical {
    fn from_node(node: &Node, place: &Place, decoder: &Decoder) -> Option<Self> {
        let table = Table::open(node, place, decoder)?;
        let percentile = table.or("percentile", Percentile::P95);
        let latency_us = table.required(
            "latency_us",
            "write within how many microseconds reads are done, like latency_us = 500",
        );
        let iops = table.required(
            "iops",
            "write how many requests a second, like iops = 70000",
        );
        let read_percent = table.required(
            "read_percent",
            "write how many of 100 requests read, like read_percent = 80",
        );
        let request_size = table.or("request_size", DEFAULT_REQUEST_SIZE);
        table.finish();
        Some(Self {
            percentile: percentile?,
            latency_us: latency_us?,
            iops: iops?,
            read_percent: read_percent?,
            request_size: request_size?,
        })
    }
}

impl FromNode for BestEffort {
    fn from_node(node: &Node, place: &Place, decoder: &Decoder) -> Option<Self> {
        let table = Table::open(node, place, decoder)?;
        let weight = table.or("weight", DEFAULT_WEIGHT);
        table.finish();
        Some(Self { weight: weight? })
    }
}

impl FromNode for Permission {
    fn from_node(node: &Node, place: &Place, decoder: &Decoder) -> Option<Self> {
        let table = Table::open(node, place, decoder)?;
        let subsystem = table.optional("subsystem");
        let namespace = table.optional("namespace");
        let first_block = table.or_default("first_block");
        let blocks = table.optional("blocks");
        let access = table.required::<Access>(
            "access",
            "write access = \"read_write\", \"read\" or \"write\"",
        );
        table.finish();
        Some(Self {
            subsystem: subsystem?,
            namespace: namespace?,
            first_block: first_block?,
            blocks: blocks?,
            access: access?,
        })
    }
}
