//! `switchyard discover`, `identify`, `read` and `write`.

use clap::Args;
use config::schema::DEFAULT_NQN;
use config::schema::Size;
use host::{Host, HostBuilder, Namespace};
use std::path::PathBuf;
use std::time::Duration;

config::decoded! {
/// Identity and options of this host.
#[derive(Args, Clone, Debug)]
pub struct HostArgs {
    /// NQN of this host [default: a new one for each run; attach vhost: derived from
    /// /etc/machine-id and the socket path]
    #[arg(long, value_name = "NQN")]
    pub host_nqn: Option<String> = or(None),
    /// Enable header and data digests (CRC-32C)
    #[arg(long)]
    pub digests: bool = or(false),
    /// Connect with TLS 1.3 and the keys of this file, of mode 0600
    #[arg(long, value_name = "FILE")]
    pub tls_key: Option<PathBuf> = or(None),
    /// File of mode 0600 with this host's secret for targets that require DH-HMAC-CHAP
    #[arg(long, value_name = "FILE")]
    pub chap_secret: Option<PathBuf> = or(None),
    /// File of mode 0600 with the secret by which the target must prove itself; needs
    /// --chap-secret
    #[arg(long, value_name = "FILE", requires = "chap_secret")]
    pub chap_controller_secret: Option<PathBuf> = or(None),
}
}

/// Time that a command waits for a lost connection before it fails, so that interactive use ends
/// with an error.
const LOSS_TIMEOUT: Duration = Duration::from_secs(30);

/// Keep-alive time-out. A write lost with its connection to a target without End Controller, such as
/// Linux, is sent again after up to twice this time plus 0.5 s: before [`LOSS_TIMEOUT`], at which it
/// would fail.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

const _: () = assert!(2 * KEEP_ALIVE.as_secs() + 1 < LOSS_TIMEOUT.as_secs());

impl HostArgs {
    /// Returns a host with these options.
    pub fn builder(&self) -> HostBuilder {
        let mut builder = Host::builder()
            .digests(self.digests, self.digests)
            .keep_alive(KEEP_ALIVE)
            .loss_timeout(Some(LOSS_TIMEOUT));
        if let Some(path) = &self.tls_key {
            builder = builder.tls_key_file(path);
        }
        if let Some(path) = &self.chap_secret {
            builder = builder.chap_secret_file(path);
        }
        if let Some(path) = &self.chap_controller_secret {
            builder = builder.chap_controller_secret_file(path);
        }
        if let Some(nqn) = &self.host_nqn {
            builder = builder.nqn(nqn.clone());
        }
        builder
    }
}

/// A namespace of a target.
#[derive(Args, Clone, Debug)]
pub struct NamespaceArgs {
    /// Address of the target: HOST:PORT
    #[arg(value_name = "ADDRESS")]
    pub address: String,
    /// NQN of the subsystem
    #[arg(long, value_name = "NQN", default_value = DEFAULT_NQN)]
    pub nqn: String,
    /// Namespace ID
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

/// List the subsystems of a discovery controller
///
/// Also follows its referrals to other discovery controllers. A target lists only the subsystems
/// that this host may access.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  switchyard discover 127.0.0.1:4420
  switchyard discover storage.example --json

Exit codes: 0 subsystems found, 1 no subsystem for this host, 2 error")]
pub struct DiscoverArgs {
    /// Address of the discovery controller: HOST[:PORT] [default port: 8009]
    #[arg(value_name = "ADDRESS")]
    pub address: String,
    #[command(flatten)]
    pub host: HostArgs,
}

/// Show the controller and namespaces of a subsystem
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  switchyard identify 127.0.0.1:4420
  switchyard identify 127.0.0.1:4420 --nqn nqn.2026-11.io.example:disks --nsid 2 --json

Exit codes: 0 success, 1 no such namespace, 2 error")]
pub struct IdentifyArgs {
    /// Address of the target: HOST:PORT
    #[arg(value_name = "ADDRESS")]
    pub address: String,
    /// NQN of the subsystem
    #[arg(long, value_name = "NQN", default_value = DEFAULT_NQN)]
    pub nqn: String,
    /// Show only this namespace
    #[arg(long, value_name = "NSID")]
    pub nsid: Option<u32>,
    #[command(flatten)]
    pub host: HostArgs,
}

/// Copy all or part of a namespace to a file or stdout
///
/// Offset and length are bytes, or have a unit (4k, 1M, 2G). They need no alignment to blocks.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  switchyard read 127.0.0.1:4420 --output disk.img
  switchyard read 127.0.0.1:4420 --offset 1M --length 512 | xxd

Exit codes: 0 success, 2 error")]
pub struct ReadArgs {
    #[command(flatten)]
    pub namespace: NamespaceArgs,
    /// First byte
    #[arg(long, value_name = "SIZE", default_value = "0")]
    pub offset: Size,
    /// Number of bytes [default: to the end]
    #[arg(long, value_name = "SIZE")]
    pub length: Option<Size>,
    /// Output file, replaced if it exists [default: stdout]
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Copy a file or stdin to a namespace
///
/// The offset is in bytes, or has a unit (4k, 1M, 2G). Offset and input length need no alignment to
/// blocks: a partly covered block is read, changed and written back, so no other host should write
/// to it at the same time.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  switchyard write 127.0.0.1:4420 --input disk.img --flush
  echo hello | switchyard write 127.0.0.1:4420 --offset 1M

Exit codes: 0 success, 2 error; data copied before the error stays written")]
pub struct WriteArgs {
    #[command(flatten)]
    pub namespace: NamespaceArgs,
    /// First byte
    #[arg(long, value_name = "SIZE", default_value = "0")]
    pub offset: Size,
    /// Largest number of bytes to copy [default: all of the input]
    #[arg(long, value_name = "SIZE")]
    pub length: Option<Size>,
    /// Input file [default: stdin]
    #[arg(long, short, value_name = "FILE")]
    pub input: Option<PathBuf>,
    /// Flush at the end: return when the data is on stable storage
    #[arg(long)]
    pub flush: bool,
}
