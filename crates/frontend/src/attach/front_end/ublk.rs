//! Attachments as block devices of this machine.

use super::{End, FrontEnd, Offered, Started};
use crate::attach::source::{Devices, Source};
use crate::ublk::{UblkOptions, UblkServer};
use crate::{Handed, IoCounts, Ping};
use anyhow::Result;
use serde_json::{Value, json};
use std::time::Instant;
use switch::{Class, PerClass};

/// A block device, and what starts its server again after a pause.
#[derive(Debug)]
struct Served {
    /// `None` until the predecessor has stopped, or if it could not be started after that.
    server: Option<UblkServer>,
    devices: Devices,
    options: UblkOptions,
    description: Value,
    /// The server could not be started after a pause.
    has_failed: bool,
}

impl FrontEnd for Served {
    fn clients(&self) -> usize {
        let server = self.server.as_ref();
        server.and_then(UblkServer::user).is_some().into()
    }

    fn clients_in_words(&self, _: usize) -> String {
        let user = self.server.as_ref().and_then(UblkServer::user);
        user.unwrap_or_else(|| "a process".to_owned())
    }

    fn counts(&self) -> PerClass<IoCounts> {
        let server = self.server.as_ref();
        server.map_or_else(PerClass::default, UblkServer::counts)
    }

    fn ping(&self, ping: &Ping) {
        self.server.iter().for_each(|server| server.ping(ping));
    }

    fn detach(&mut self, force: bool) -> Result<()> {
        let Some(server) = &mut self.server else {
            return Ok(());
        };
        if force {
            server.detach_forced();
            return Ok(());
        }
        Ok(server.detach()?)
    }

    fn leave(&mut self) -> Result<()> {
        self.server.iter_mut().for_each(UblkServer::leave);
        Ok(())
    }

    fn offer(&self) -> Result<Offered> {
        Ok(Offered {
            state: self.description.clone(),
            file: None,
        })
    }

    fn pause(&mut self, _: Instant) -> Result<Handed, String> {
        let life = self.server.as_mut().map(UblkServer::pause);
        // The kernel passes the block device on when this is closed.
        self.server = None;
        Ok(Handed {
            state: json!(life),
            ..Handed::default()
        })
    }

    fn resume(&mut self, mut handed: Handed) -> Result<(), String> {
        let options = UblkOptions {
            left_life: handed.read()?,
            ..self.options.clone()
        };
        let started = UblkServer::start(&self.devices, &options);
        self.has_failed = started.is_err();
        self.server = Some(started.map_err(|error| error.to_string())?);
        Ok(())
    }

    fn was_forced(&self) -> bool {
        self.server.as_ref().is_some_and(UblkServer::was_forced)
    }

    fn look(&mut self) {
        if let Some(Err(error)) = self.server.as_mut().map(UblkServer::follow_size) {
            tracing::warn!("{error}");
        }
    }

    fn block_device(&self) -> Option<u32> {
        self.options.id
    }

    fn end(&self) -> Option<End> {
        let server = self.server.as_ref();
        if self.has_failed || server.is_some_and(UblkServer::has_failed) {
            return Some(End::Failed);
        }
        server?.has_ended().then_some(End::Removed)
    }
}

/// Makes a block device; one that was `taken` over is served when it resumes.
///
/// # Errors
/// A device that cannot be used, or a block device that cannot be made.
pub(crate) fn start(
    options: &UblkOptions,
    source: Source,
    taken: Option<Offered>,
) -> Result<Started> {
    let mut options = UblkOptions {
        identity: source.identity,
        ends_with_process: source.ends_with_process,
        ..options.clone()
    };
    let device = &source.device()[Class::DEFAULT];
    let geometry = device.geometry();
    let read_only = options.read_only || device.capabilities().read_only;
    let (server, description) = match taken {
        Some(taken) => (None, taken.state),
        None => {
            let server = UblkServer::start(source.device(), &options)?;
            let description = json!({
                "kind": "ublk",
                "path": server.path().display().to_string(),
                "id": server.id(),
                "bytes": geometry.bytes(),
                "block_bytes": geometry.block_bytes,
                "class": options.class.properties().name,
                "queues": server.queues(),
                "read_only": read_only,
                // It was left behind by a process that was killed.
                "recovered": server.is_recovered(),
            });
            (Some(server), description)
        }
    };
    let id = description["id"].as_u64();
    options.id = id.and_then(|id| u32::try_from(id).ok());
    let path = description["path"].as_str().unwrap_or_default().to_owned();
    Ok(Started {
        front_end: Box::new(Served {
            server,
            devices: source.device().clone(),
            options,
            description: description.clone(),
            has_failed: false,
        }),
        description,
        ways: vec![(path, geometry.bytes())],
        source,
        read_only,
    })
}
