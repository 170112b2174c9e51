//! Attachments as block devices of this machine.

use super::{End, FrontEnd, Started};
use crate::attach::source::Source;
use crate::ublk::{UblkOptions, UblkServer};
use crate::{IoCounts, Ping};
use anyhow::Result;
use serde_json::json;
use switch::{Class, PerClass};

impl FrontEnd for UblkServer {
    fn clients(&self) -> usize {
        self.user().is_some().into()
    }

    fn clients_in_words(&self, _: usize) -> String {
        self.user().unwrap_or_else(|| "a process".to_owned())
    }

    fn counts(&self) -> PerClass<IoCounts> {
        Self::counts(self)
    }

    fn ping(&self, ping: &Ping) {
        Self::ping(self, ping);
    }

    fn detach(&mut self, force: bool) -> Result<()> {
        if force {
            self.detach_forced();
            return Ok(());
        }
        Ok(Self::detach(self)?)
    }

    fn leave(&mut self) -> Result<()> {
        Self::leave(self);
        Ok(())
    }

    fn was_forced(&self) -> bool {
        Self::was_forced(self)
    }

    fn look(&mut self) {
        if let Err(error) = self.follow_size() {
            tracing::warn!("{error}");
        }
    }

    fn block_device(&self) -> Option<u32> {
        Some(self.id())
    }

    fn end(&self) -> Option<End> {
        if self.has_failed() {
            return Some(End::Failed);
        }
        self.has_ended().then_some(End::Removed)
    }
}

/// Makes a block device.
///
/// # Errors
/// A device that cannot be used, or a block device that cannot be made.
pub(crate) fn start(options: &UblkOptions, source: Source) -> Result<Started> {
    let options = UblkOptions {
        identity: source.identity,
        ends_with_process: source.ends_with_process,
        ..options.clone()
    };
    let server = UblkServer::start(source.device(), &options)?;
    let device = &source.device()[Class::DEFAULT];
    let geometry = device.geometry();
    let read_only = options.read_only || device.capabilities().read_only;
    let path = server.path().display().to_string();
    Ok(Started {
        description: json!({
            "kind": "ublk",
            "path": path,
            "id": server.id(),
            "bytes": geometry.bytes(),
            "block_bytes": geometry.block_bytes,
            "class": options.class.properties().name,
            "queues": server.queues(),
            "read_only": read_only,
            // It was left behind by a process that was killed.
            "recovered": server.is_recovered(),
        }),
        ways: vec![(path, geometry.bytes())],
        front_end: Box::new(server),
        source,
        read_only,
    })
}
