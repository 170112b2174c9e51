//! Attachments by vhost-user.

use super::front_end::{FrontEnd, Started};
use super::source::Source;
use crate::args::AttachVhostArgs;
use anyhow::{Context as _, Result};
use frontend::vhost::{VhostOptions, VhostServer};
use frontend::{ClassRules, IoCounts};
use serde_json::json;
use std::path::PathBuf;
use switch::{Class, PerClass};

#[derive(Debug)]
struct Vhost {
    server: VhostServer,
    socket: PathBuf,
    bytes: u64,
}

impl FrontEnd for Vhost {
    fn ways(&self) -> Vec<(String, u64)> {
        vec![(self.socket.display().to_string(), self.bytes)]
    }

    fn clients(&self) -> usize {
        self.server.is_connected().into()
    }

    fn clients_in_words(&self, _: usize) -> String {
        "a machine".to_owned()
    }

    fn counts(&self) -> PerClass<IoCounts> {
        self.server.counts()
    }

    fn detach(&mut self, _: bool) -> Result<()> {
        self.server.detach();
        Ok(())
    }
}

/// Starts a back end.
///
/// # Errors
/// A device that cannot be used, or a socket that cannot be listened on.
pub(super) fn start(args: &AttachVhostArgs, rules: &ClassRules) -> Result<Started> {
    let source = Source::open(&args.source, args.serving.read_only, Some(1))?;
    let options = VhostOptions {
        socket: std::path::absolute(&args.socket).context("cannot find the working directory")?,
        class: args.class,
        rules: rules.clone(),
        read_only: args.serving.read_only,
        queues: args.queues,
        id: args.serial.clone(),
        cores: args.serving.cores(),
        poll: args.serving.poll.into(),
    };
    let server = VhostServer::start(source.device(), &options)?;
    let device = &source.device()[Class::DEFAULT];
    let geometry = device.geometry();
    let read_only = args.serving.read_only || device.capabilities().read_only;
    let socket = server.socket().to_owned();
    Ok(Started {
        ready: json!({
            "kind": "vhost",
            "socket": serde_json::to_value(&socket).context("cannot make JSON")?,
            "bytes": geometry.bytes(),
            "block_bytes": geometry.block_bytes,
            "queues": server.queues(),
            "read_only": read_only,
        }),
        front_end: Box::new(Vhost {
            server,
            socket,
            bytes: geometry.bytes(),
        }),
        source,
        read_only,
    })
}
