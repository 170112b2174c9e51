//! Attachments as block devices of this machine.

use super::front_end::{End, FrontEnd, Started, cores};
use super::source::Source;
use crate::args::AttachUblkArgs;
use anyhow::{Context as _, Result};
use frontend::ublk::{UblkOptions, UblkServer};
use frontend::{ClassRules, IoCounts};
use serde::Serialize;
use std::path::PathBuf;
use switch::{Class, PerClass};

/// A block device that serves.
#[derive(Debug, Serialize)]
struct ReadyBlockDevice {
    kind: &'static str,
    path: PathBuf,
    id: u32,
    bytes: u64,
    block_bytes: u32,
    class: &'static str,
    queues: u16,
    read_only: bool,
    /// It was left behind by a process that was killed.
    recovered: bool,
}

#[derive(Debug)]
struct Ublk {
    server: UblkServer,
    bytes: u64,
}

impl FrontEnd for Ublk {
    fn ways(&self) -> Vec<(String, u64)> {
        vec![(self.server.path().display().to_string(), self.bytes)]
    }

    fn clients(&self) -> usize {
        self.server.user().is_some().into()
    }

    fn clients_in_words(&self, _: usize) -> String {
        let user = self.server.user();
        user.unwrap_or_else(|| "a process".to_owned())
    }

    fn counts(&self) -> PerClass<IoCounts> {
        self.server.counts()
    }

    fn detach(&mut self, force: bool) -> Result<()> {
        if force {
            self.server.detach_forced();
            return Ok(());
        }
        Ok(self.server.detach()?)
    }

    fn look(&mut self) {
        if let Err(error) = self.server.follow_size() {
            tracing::warn!("{error}");
        }
    }

    fn end(&self) -> Option<End> {
        self.server.has_ended().then_some(End::Removed)
    }
}

/// Makes a block device.
///
/// # Errors
/// A device that cannot be used, or a block device that cannot be made.
pub(super) fn start(args: &AttachUblkArgs, rules: &ClassRules) -> Result<Started> {
    let source = Source::open(&args.source, args.read_only, Some(1))?;
    let options = UblkOptions {
        id: args.id,
        identity: source.identity,
        class: args.class,
        rules: rules.clone(),
        read_only: args.read_only,
        queues: args.queues,
        cores: cores(args.cores.as_ref()),
        poll: args.poll.into(),
    };
    let server = UblkServer::start(source.device(), &options)?;
    let device = &source.device()[Class::DEFAULT];
    let ready = ReadyBlockDevice {
        kind: "ublk",
        path: server.path(),
        id: server.id(),
        bytes: device.geometry().bytes(),
        block_bytes: device.geometry().block_bytes,
        class: args.class.properties().name,
        queues: server.queues(),
        read_only: args.read_only || device.capabilities().read_only,
        recovered: server.is_recovered(),
    };
    let ublk = Ublk {
        server,
        bytes: ready.bytes,
    };
    Ok(Started {
        front_end: Box::new(ublk),
        source,
        class: ready.class,
        read_only: ready.read_only,
        ready: serde_json::to_value(&ready).context("cannot make JSON")?,
    })
}
