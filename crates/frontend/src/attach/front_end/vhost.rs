//! Attachments by vhost-user.

use super::{FrontEnd, Offered, Started};
use crate::attach::source::Source;
use crate::vhost::{VhostOptions, VhostServer};
use crate::{Handed, IoCounts, Ping};
use anyhow::{Context as _, Result};
use serde_json::json;
use std::time::Instant;
use switch::{Class, PerClass};

impl FrontEnd for VhostServer {
    fn clients(&self) -> usize {
        self.is_connected().into()
    }

    fn clients_in_words(&self, _: usize) -> String {
        "a machine".to_owned()
    }

    fn counts(&self) -> PerClass<IoCounts> {
        Self::counts(self)
    }

    fn ping(&self, ping: &Ping) {
        Self::ping(self, ping);
    }

    fn detach(&mut self, _: bool) -> Result<()> {
        Self::detach(self);
        Ok(())
    }

    fn offer(&self) -> Result<Offered> {
        Ok(Offered::socket(self.share_socket()?))
    }

    fn pause(&mut self, by: Instant) -> Result<Handed, String> {
        Self::pause(self, by)
    }

    fn resume(&mut self, handed: Handed) -> Result<(), String> {
        Self::resume(self, handed)
    }
}

/// Starts a back end; one that was `taken` over serves when it resumes.
///
/// # Errors
/// A device that cannot be used, or a socket that cannot be listened on.
pub(crate) fn start(
    options: &VhostOptions,
    source: Source,
    taken: Option<Offered>,
) -> Result<Started> {
    let socket =
        std::path::absolute(&options.socket).context("cannot find the working directory")?;
    let id = match &*options.id {
        "" => format!("{:016x}", source.identity),
        given => given.to_owned(),
    };
    let options = VhostOptions {
        socket,
        id,
        identity: source.identity,
        succession: source.succession.clone(),
        ..options.clone()
    };
    let server = match taken {
        None => VhostServer::start(source.device(), &options)?,
        Some(taken) => VhostServer::prepare(source.device(), &options, Some(taken.into_socket()?))?,
    };
    let device = &source.device()[Class::DEFAULT];
    let geometry = device.geometry();
    let read_only = options.read_only || device.capabilities().read_only;
    Ok(Started {
        description: json!({
            "kind": "vhost",
            "socket": serde_json::to_value(server.socket()).context("cannot make JSON")?,
            "bytes": geometry.bytes(),
            "block_bytes": geometry.block_bytes,
            "queues": server.queues(),
            "read_only": read_only,
        }),
        ways: vec![(server.socket().display().to_string(), geometry.bytes())],
        front_end: Box::new(server),
        source,
        read_only,
    })
}
