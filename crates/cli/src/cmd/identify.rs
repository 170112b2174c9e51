//! `switchyard identify`.

use crate::args::IdentifyArgs;
use crate::exit::Outcome;
use crate::output::{Output, human_bytes};
use anyhow::Result;
use base::printable;
use host::{ControllerInfo, NamespaceInfo};
use serde::Serialize;
use std::fmt;

#[derive(Debug, Serialize)]
struct Identity {
    controller: Controller,
    namespaces: Vec<Namespace>,
}

#[derive(Debug, Serialize)]
struct Controller {
    nqn: String,
    cntlid: u16,
    model: String,
    serial: String,
    firmware: String,
    version: String,
    max_transfer_bytes: u32,
    in_capsule_bytes: u32,
    io_queues: u16,
    queue_depth: u16,
    keep_alive_ms: u32,
    volatile_cache: bool,
    commands: Vec<&'static str>,
}

#[derive(Debug, Serialize)]
struct Namespace {
    nsid: u32,
    bytes: u64,
    block_bytes: u32,
    blocks: u64,
    blocks_used: u64,
    thin: bool,
    read_only: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    uuid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nguid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    eui64: Option<String>,
}

impl Controller {
    fn of(nqn: &str, info: ControllerInfo) -> Self {
        let optional = [
            (info.compare, "compare"),
            (info.dataset_management, "dataset management"),
            (info.write_zeroes, "write zeroes"),
            (info.verify, "verify"),
        ];
        Self {
            nqn: nqn.to_owned(),
            cntlid: info.cntlid,
            model: info.model,
            serial: info.serial,
            firmware: info.firmware,
            version: info.version,
            max_transfer_bytes: info.max_transfer_bytes,
            in_capsule_bytes: info.in_capsule_bytes,
            io_queues: info.io_queues,
            queue_depth: info.queue_depth,
            keep_alive_ms: info.keep_alive_ms,
            volatile_cache: info.volatile_cache,
            commands: optional
                .into_iter()
                .filter_map(|(has, name)| has.then_some(name))
                .collect(),
        }
    }
}

impl Namespace {
    fn of(info: &NamespaceInfo) -> Self {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Self {
            nsid: info.nsid,
            bytes: info.geometry.bytes(),
            block_bytes: info.geometry.block_bytes,
            blocks: info.geometry.blocks,
            blocks_used: info.blocks_used,
            thin: info.thin,
            read_only: info.read_only,
            uuid: info.uuid_text(),
            nguid: info.nguid.map(|id| hex(&id)),
            eui64: info.eui64.map(|id| hex(&id)),
        }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let c = &self.controller;
        let size = |bytes: u32| human_bytes(bytes.into());
        writeln!(f, "subsystem        {}", c.nqn)?;
        writeln!(
            f,
            "controller       {} ({} {}, serial {})",
            c.cntlid,
            printable(&c.model),
            printable(&c.firmware),
            printable(&c.serial)
        )?;
        writeln!(f, "NVMe version     {}", c.version)?;
        writeln!(f, "largest transfer {}", size(c.max_transfer_bytes))?;
        writeln!(f, "in-capsule data  {}", size(c.in_capsule_bytes))?;
        writeln!(
            f,
            "I/O queues       {} of {} commands",
            c.io_queues, c.queue_depth
        )?;
        writeln!(f, "keep-alive       {} ms", c.keep_alive_ms)?;
        writeln!(
            f,
            "write cache      {}",
            if c.volatile_cache { "volatile" } else { "none" }
        )?;
        write!(f, "optional cmds    {}", c.commands.join(", "))?;
        for n in &self.namespaces {
            let size = human_bytes(n.bytes);
            write!(
                f,
                "\nnamespace {}: {size} in {} blocks of {} bytes",
                n.nsid, n.blocks, n.block_bytes
            )?;
            f.write_str(if n.thin { ", thin" } else { "" })?;
            f.write_str(if n.read_only { ", read-only" } else { "" })?;
            for (name, id) in [("uuid", &n.uuid), ("nguid", &n.nguid), ("eui64", &n.eui64)] {
                if let Some(id) = id {
                    write!(f, "\n  {name} {id}")?;
                }
            }
        }
        Ok(())
    }
}

/// Prints the controller and namespaces of a subsystem.
///
/// # Errors
/// No connection, or a controller that refuses this host.
pub fn run(args: &IdentifyArgs, output: Output) -> Result<Outcome> {
    let host = args.host.builder().build()?;
    let subsystem = host.connect(&args.address, &args.nqn)?;
    let wanted = |info: &&NamespaceInfo| args.nsid.is_none_or(|nsid| nsid == info.nsid);
    let all = subsystem.namespaces();
    let identity = Identity {
        controller: Controller::of(&args.nqn, subsystem.controller()?),
        namespaces: all.iter().filter(wanted).map(Namespace::of).collect(),
    };
    let missing = args.nsid.filter(|_| identity.namespaces.is_empty());
    if missing.is_none() || output.json {
        output.result(&identity, &identity)?;
    }
    if let Some(nsid) = missing {
        output.note(format_args!(
            "subsystem {} has no active namespace {nsid}",
            args.nqn
        ));
        return Ok(Outcome::Negative);
    }
    Ok(Outcome::Done)
}
