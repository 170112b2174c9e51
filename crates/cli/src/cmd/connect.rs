//! Common parts of the host's commands: a host, and a way to a namespace.

use crate::args::{HostArgs, NamespaceArgs};
use anyhow::Result;
use host::{Host, HostBuilder, Namespace};
use std::time::Duration;

/// Time for which a command waits for a lost connection. A person at a terminal, or a script, wants
/// an error more than an outage's length of silence.
const LOSS_TIMEOUT: Duration = Duration::from_secs(30);

/// A host with the options of the command line.
pub fn builder(args: &HostArgs) -> HostBuilder {
    let builder = Host::builder()
        .digests(args.digests, args.digests)
        .loss_timeout(Some(LOSS_TIMEOUT));
    match &args.host_nqn {
        Some(nqn) => builder.nqn(nqn.clone()),
        None => builder,
    }
}

/// Connects to the namespace of the command line.
pub fn namespace(args: &NamespaceArgs) -> Result<Namespace> {
    let host = builder(&args.host).build()?;
    let subsystem = host.connect(&args.address, &args.nqn)?;
    Ok(subsystem.namespace(args.nsid)?)
}
