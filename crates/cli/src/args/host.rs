//! `switchyard discover`, `identify`, `read` and `write`.

use clap::Args;
use control::Size;
use control::model::DEFAULT_NQN;
use host::{Host, HostBuilder, Namespace};
use std::path::PathBuf;
use std::time::Duration;

/// Identity and options of this host.
#[derive(Args, Clone, Debug)]
pub struct HostArgs {
    /// The name that the target knows this host by [default: a new one each time]
    #[arg(long, value_name = "NQN")]
    pub host_nqn: Option<String>,
    /// Ask for header and data digests
    #[arg(long)]
    pub digests: bool,
}

/// Time for which a command waits for a lost connection. A person at a terminal, or a script, wants
/// an error more than an outage's length of silence.
const LOSS_TIMEOUT: Duration = Duration::from_secs(30);

impl HostArgs {
    /// Returns a host with these options.
    pub fn builder(&self) -> HostBuilder {
        let builder = Host::builder()
            .digests(self.digests, self.digests)
            .loss_timeout(Some(LOSS_TIMEOUT));
        match &self.host_nqn {
            Some(nqn) => builder.nqn(nqn.clone()),
            None => builder,
        }
    }
}

/// A namespace of a target.
#[derive(Args, Clone, Debug)]
pub struct NamespaceArgs {
    /// Address of the target: HOST:PORT
    #[arg(value_name = "ADDRESS")]
    pub address: String,
    /// The subsystem's name
    #[arg(long, value_name = "NQN", default_value = DEFAULT_NQN)]
    pub nqn: String,
    /// The namespace's identifier
    #[arg(long, value_name = "NSID", default_value_t = 1)]
    pub nsid: u32,
    #[command(flatten)]
    pub host: HostArgs,
}

impl NamespaceArgs {
    /// Connects to the namespace.
    pub fn connect(&self) -> anyhow::Result<Namespace> {
        let host = self.host.builder().build()?;
        let subsystem = host.connect(&self.address, &self.nqn)?;
        Ok(subsystem.namespace(self.nsid)?)
    }
}

/// List what a discovery controller offers
///
/// Asks the discovery controller and every one that it refers to. Exits with 1 when nothing is
/// offered to this host.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  switchyard discover 127.0.0.1:4420
  switchyard discover storage.example --json

Exit codes: 0 something is offered, 1 nothing is, 2 an error")]
pub struct DiscoverArgs {
    /// Address of the discovery controller: HOST[:PORT], port 8009 by default
    #[arg(value_name = "ADDRESS")]
    pub address: String,
    #[command(flatten)]
    pub host: HostArgs,
}

/// Show a subsystem's controller and namespaces
///
/// Exits with 1 when the namespace asked for does not exist.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  switchyard identify 127.0.0.1:4420
  switchyard identify 127.0.0.1:4420 --nqn nqn.2026-11.io.example:disks --nsid 2 --json

Exit codes: 0 done, 1 there is no such namespace, 2 an error")]
pub struct IdentifyArgs {
    /// Address of the target: HOST:PORT
    #[arg(value_name = "ADDRESS")]
    pub address: String,
    /// The subsystem's name
    #[arg(long, value_name = "NQN", default_value = DEFAULT_NQN)]
    pub nqn: String,
    /// Only this namespace
    #[arg(long, value_name = "NSID")]
    pub nsid: Option<u32>,
    #[command(flatten)]
    pub host: HostArgs,
}

/// Copy a namespace, or a part of it, to a file or stdout
///
/// Offset and length are in bytes, may have a unit (4k, 1M, 2G), and need not be multiples of the
/// block size.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  switchyard read 127.0.0.1:4420 --output disk.img
  switchyard read 127.0.0.1:4420 --offset 1M --length 512 | xxd

Exit codes: 0 done, 2 an error")]
pub struct ReadArgs {
    #[command(flatten)]
    pub namespace: NamespaceArgs,
    /// The first byte
    #[arg(long, value_name = "SIZE", default_value = "0")]
    pub offset: Size,
    /// Number of bytes [default: up to the end]
    #[arg(long, value_name = "SIZE")]
    pub length: Option<Size>,
    /// Write to this file, which is replaced [default: stdout]
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Copy a file or stdin to a namespace
///
/// The offset is in bytes, may have a unit (4k, 1M, 2G), and neither it nor the length of the input
/// need be a multiple of the block size: the rest of a block that is written in part stays as it
/// is. It is read and written back for that, so no other host should write to such a block at the
/// same time.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  switchyard write 127.0.0.1:4420 --input disk.img --flush
  echo hello | switchyard write 127.0.0.1:4420 --offset 1M

Exit codes: 0 done, 2 an error; what was copied before the error stays written")]
pub struct WriteArgs {
    #[command(flatten)]
    pub namespace: NamespaceArgs,
    /// The first byte
    #[arg(long, value_name = "SIZE", default_value = "0")]
    pub offset: Size,
    /// At most so many bytes of the input [default: all of it]
    #[arg(long, value_name = "SIZE")]
    pub length: Option<Size>,
    /// Read from this file [default: stdin]
    #[arg(long, short, value_name = "FILE")]
    pub input: Option<PathBuf>,
    /// Return only when everything is on stable storage
    #[arg(long)]
    pub flush: bool,
}
