//! Attachments by the NBD protocol.

use super::front_end::{FrontEnd, Started};
use super::source::Source;
use crate::args::AttachNbdArgs;
use anyhow::{Context as _, Result};
use frontend::nbd::{Address, NbdOptions, NbdServer};
use frontend::{ClassRules, IoCounts};
use serde_json::json;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use switch::PerClass;

#[derive(Debug)]
struct Nbd {
    server: NbdServer,
    uri: String,
    bytes: u64,
}

impl FrontEnd for Nbd {
    fn ways(&self) -> Vec<(String, u64)> {
        vec![(self.uri.clone(), self.bytes)]
    }

    fn clients(&self) -> usize {
        self.server.connections()
    }

    fn clients_in_words(&self, count: usize) -> String {
        match count {
            1 => "1 client".to_owned(),
            count => format!("{count} clients"),
        }
    }

    fn counts(&self) -> PerClass<IoCounts> {
        self.server.counts()
    }

    fn detach(&mut self, _: bool) -> Result<()> {
        self.server.detach();
        Ok(())
    }
}

/// Starts a server.
///
/// # Errors
/// A device that cannot be used, or an address that cannot be listened on.
pub(super) fn start(args: &AttachNbdArgs, rules: &ClassRules) -> Result<Started> {
    let source = Source::open(&args.source, args.serving.read_only, Some(1))?;
    let options = NbdOptions {
        address: args.address(),
        class: args.class,
        rules: rules.clone(),
        tls: args.tls(),
        read_only: args.serving.read_only,
        cores: args.serving.cores(),
        poll: args.serving.poll.into(),
    };
    let server = NbdServer::start(source.device(), &options)?;
    let device = &source.device()[args.class];
    let scheme = if options.tls.is_some() { "nbds" } else { "nbd" };
    let uri = match server.address() {
        Address::Unix(path) => format!("{scheme}+unix:///?socket={}", in_uri(&path)?),
        Address::Tcp(address) => format!("{scheme}://{address}"),
    };
    let (bytes, block_bytes) = (device.geometry().bytes(), device.geometry().block_bytes);
    let class = args.class.properties().name;
    let read_only = args.serving.read_only || device.capabilities().read_only;
    Ok(Started {
        ready: json!({
            "kind": "nbd",
            "uri": uri,
            "bytes": bytes,
            "block_bytes": block_bytes,
            "class": class,
            "read_only": read_only,
        }),
        front_end: Box::new(Nbd { server, uri, bytes }),
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
