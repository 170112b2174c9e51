//! Attachments by the NBD protocol.

use super::{FrontEnd, Offered, Started};
use crate::attach::source::Source;
use crate::nbd::{Address, NbdOptions, NbdServer};
use crate::{Handed, IoCounts, Ping};
use anyhow::{Context as _, Result};
use serde_json::json;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Instant;
use switch::PerClass;

impl FrontEnd for NbdServer {
    fn clients(&self) -> usize {
        self.connections()
    }

    fn clients_in_words(&self, count: usize) -> String {
        match count {
            1 => "1 client".to_owned(),
            count => format!("{count} clients"),
        }
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

    fn was_forced(&self) -> bool {
        Self::was_forced(self)
    }
}

/// Starts a server; one that was `taken` over serves when it resumes.
///
/// # Errors
/// A device that cannot be used, or an address that cannot be listened on.
pub(crate) fn start(
    options: &NbdOptions,
    source: Source,
    taken: Option<Offered>,
) -> Result<Started> {
    let server = match taken {
        None => NbdServer::start(source.device(), options)?,
        Some(taken) => NbdServer::prepare(source.device(), options, Some(taken.into_socket()?))?,
    };
    let device = &source.device()[options.class];
    let scheme = if options.tls.is_some() { "nbds" } else { "nbd" };
    let uri = match server.address() {
        Address::Unix(path) => format!("{scheme}+unix:///?socket={}", in_uri(&path)?),
        Address::Tcp(address) => format!("{scheme}://{address}"),
    };
    let (bytes, block_bytes) = (device.geometry().bytes(), device.geometry().block_bytes);
    let read_only = options.read_only || device.capabilities().read_only;
    Ok(Started {
        description: json!({
            "kind": "nbd",
            "uri": uri,
            "bytes": bytes,
            "block_bytes": block_bytes,
            "class": options.class.properties().name,
            "read_only": read_only,
        }),
        ways: vec![(uri, bytes)],
        front_end: Box::new(server),
        source,
        read_only,
    })
}

/// A path as the value of a URI's parameter. `[RFC 3986 §2]`
fn in_uri(path: &Path) -> Result<String> {
    let path = std::path::absolute(path).context("cannot find the working directory")?;
    let mut text = String::new();
    for &byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte) {
            text.push(byte.into());
        } else {
            text += &format!("%{byte:02X}");
        }
    }
    Ok(text)
}
