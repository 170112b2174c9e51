//! Attachments as block devices of this machine.

use super::front_end::{End, FrontEnd, Started};
use super::source::Source;
use crate::args::AttachUblkArgs;
use anyhow::Result;
use frontend::ublk::{UblkOptions, UblkServer};
use frontend::{ClassRules, IoCounts};
use serde_json::json;
use switch::{Class, PerClass};

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

    fn block_device(&self) -> Option<u32> {
        Some(self.server.id())
    }

    fn end(&self) -> Option<End> {
        if self.server.has_failed() {
            return Some(End::Failed);
        }
        self.server.has_ended().then_some(End::Removed)
    }
}

/// Makes a block device.
///
/// # Errors
/// A device that cannot be used, or a block device that cannot be made.
pub(super) fn start(args: &AttachUblkArgs, rules: &ClassRules) -> Result<Started> {
    let source = Source::open(&args.source, args.serving.read_only, Some(1))?;
    let options = UblkOptions {
        id: args.id,
        identity: source.identity,
        ends_with_process: source.ends_with_process,
        class: args.class,
        rules: rules.clone(),
        read_only: args.serving.read_only,
        queues: args.queues,
        cores: args.serving.cores(),
        poll: args.serving.poll.into(),
    };
    let server = UblkServer::start(source.device(), &options)?;
    let device = &source.device()[Class::DEFAULT];
    let geometry = device.geometry();
    let class = args.class.properties().name;
    let read_only = args.serving.read_only || device.capabilities().read_only;
    Ok(Started {
        ready: json!({
            "kind": "ublk",
            "path": server.path().display().to_string(),
            "id": server.id(),
            "bytes": geometry.bytes(),
            "block_bytes": geometry.block_bytes,
            "class": class,
            "queues": server.queues(),
            "read_only": read_only,
            // It was left behind by a process that was killed.
            "recovered": server.is_recovered(),
        }),
        front_end: Box::new(Ublk {
            server,
            bytes: geometry.bytes(),
        }),
        source,
        read_only,
    })
}
