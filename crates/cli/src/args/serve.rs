//! `switchyard serve`.

use super::device::LocalDevices;
use super::{ApiFilesArgs, Cores, SwitchArgs, block_size};
use clap::{Args, ValueEnum};
use config::schema::group_number;
use config::schema::{ApiAddress, BlockSize, Device, DeviceKind, Keyword, SocketMode, TlsMode};
use control::process::confine::Confinement;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Share block devices over NVMe/TCP
///
/// Default without arguments: 1 GiB of RAM as namespace 1 of nqn.2026-11.io.switchyard:default at
/// 127.0.0.1:4420, open to every host on this machine. Other devices become namespaces 1, 2, ... in
/// the order of the command line. When ready, the target prints "listening on ADDRESS:PORT" for each
/// address and then the list of subsystems and namespaces.
///
/// SIGTERM, SIGINT: finish outstanding commands, then exit. SIGHUP: apply the changes of the
/// configuration file; changes made through the API stay.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  switchyard serve
  switchyard serve --file disk.img --listen 127.0.0.1:0
  switchyard serve --ram 4G --ram 512M --block-size 512 --cores 0 --poll always
  switchyard serve --baseline linux
  switchyard serve --tls-key hosts.key
  switchyard serve --knob doorbell=fixed --knob doorbell_delay_us=100
  switchyard serve --api unix:/run/switchyard/api.sock
  switchyard serve --config /etc/switchyard.toml --state /var/lib/switchyard/state.json

Exit codes: 0 all commands finished; 1 a device left commands unfinished for 10 s, or its cache
could not be written back; 2 error")]
pub struct ServeArgs {
    /// Configuration file (TOML); required to listen on other addresses than loopback
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "listen", "tls", "tls_key", "chap_secret", "chap_controller_secret", "devices", "block_size", "cores", "poll", "baseline",
        "knobs", "api", "api_certificate", "api_key", "api_tokens", "api_socket_mode",
        "api_socket_group",
    ])]
    pub config: Option<PathBuf>,
    /// Address to listen on (repeatable); port 0 picks a free port [default: 127.0.0.1:4420]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = listen)]
    pub listen: Vec<SocketAddr>,
    /// Whether hosts use TLS 1.3 [default: required with --tls-key, otherwise off]
    #[arg(long, value_name = "MODE", value_parser = word::<TlsMode>, requires = "tls_key")]
    pub tls: Option<TlsMode>,
    /// File with TLS keys of the hosts, of mode 0600; `switchyard key tls new` makes a key
    #[arg(long, value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// Require DH-HMAC-CHAP of all hosts with the secrets of this file, of mode 0600; `switchyard key
    /// chap new` makes a secret
    #[arg(long, value_name = "FILE")]
    pub chap_secret: Option<PathBuf>,
    /// File with the secret that proves the target to hosts, of mode 0600
    #[arg(long, value_name = "FILE", requires = "chap_secret")]
    pub chap_controller_secret: Option<PathBuf>,
    #[command(flatten)]
    pub local: LocalDevices,
    /// Logical block size of the shared devices: 512 or 4096 [default: 512 for files, otherwise 4096]
    #[arg(long, value_name = "BYTES", value_parser = block_size)]
    pub block_size: Option<BlockSize>,
    /// CPUs to run on, one thread each, such as 0-3 or 0,2 [default: all CPUs of the process]
    #[arg(long, value_name = "LIST")]
    pub cores: Option<Cores>,
    #[command(flatten)]
    pub switch: SwitchArgs,
    /// Address of the HTTP API and Prometheus metrics: unix:/PATH, 127.0.0.1:PORT or
    /// https://ADDRESS:PORT [default: none]
    ///
    /// A Unix socket is accessible to the owner of the process only, unless --api-socket-mode or
    /// --api-socket-group is given. On a port clients need a bearer token: set SWITCHYARD_API_TOKEN,
    /// or SWITCHYARD_API_TOKEN_FILE to the path of a file with it, or use --api-tokens.
    #[arg(long, value_name = "ADDRESS")]
    pub api: Option<ApiAddress>,
    #[command(flatten)]
    pub api_files: ApiFilesArgs,
    /// Mode of the API's Unix socket, in octal [default: 0600, or 0660 with --api-socket-group]
    #[arg(long, value_name = "MODE", requires = "api")]
    pub api_socket_mode: Option<SocketMode>,
    /// Group of the API's Unix socket: name from /etc/group, or number
    #[arg(long, value_name = "GROUP", requires = "api", value_parser = group_number)]
    pub api_socket_group: Option<u32>,
    /// State file: keeps changes made through the API over restarts
    ///
    /// At start, changes of the configuration file and of the state file are merged: a change made
    /// on one side only is kept. If both sides changed the same item, the target does not start
    /// and names the item.
    #[arg(long, value_name = "FILE")]
    pub state: Option<PathBuf>,
    /// Take over from the running target with the same arguments, without a disconnect: hosts, files,
    /// RAM and the API continue in this process, and the other one ends
    ///
    /// For a new version of the program. The running target listens on the first of the addresses,
    /// and has the same user. Commands wait for at most 5 s. If anything fails, the running target
    /// continues, and this process ends with exit code 2.
    #[arg(long)]
    pub take_over: bool,
    /// Sandbox the process (repeatable, or a comma-separated list)
    ///
    /// Start fails if the kernel does not support the choice. With "landlock", devices added later
    /// by SIGHUP or the API must be files named at start or below the folders of "device_folders"
    /// in the configuration file.
    #[arg(long, value_name = "LIST", value_enum, value_delimiter = ',')]
    pub confine: Vec<Confine>,
    /// End when standard input does, so that the target does not outlive the process that started
    /// it.
    #[arg(long, hide = true)]
    pub until_stdin_ends: bool,
}

/// An optional restriction of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Confine {
    /// Allow only the files and folders named in the configuration and on the command line
    Landlock,
    /// Block system calls that a target never needs, such as execve and mount
    Seccomp,
}

impl From<Confine> for Confinement {
    fn from(choice: Confine) -> Self {
        match choice {
            Confine::Landlock => Self::Landlock,
            Confine::Seccomp => Self::Seccomp,
        }
    }
}

impl ServeArgs {
    /// Returns the devices in the order of the command line, which is the order of their namespaces.
    pub fn devices(&self) -> Vec<Device> {
        let mut kinds = self.local.0.clone();
        if kinds.is_empty() {
            kinds.push("ram:1G".parse().expect("a device"));
        }
        let device = |kind: DeviceKind| Device::new(kind.with(self.block_size, false));
        kinds.into_iter().map(device).collect()
    }
}

/// Reads one of the words of a configuration key.
fn word<T: Keyword>(text: &str) -> Result<T, String> {
    let found = T::WORDS.iter().find(|(word, _)| *word == text);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let words: Vec<_> = T::WORDS.iter().map(|(word, _)| *word).collect();
        format!("write one of {}", words.join(", "))
    })
}

/// Reads an address to listen on.
fn listen(text: &str) -> Result<SocketAddr, String> {
    let what_to_do =
        "not an IP address with a port; use, for example, 127.0.0.1:4420 or [::1]:4420";
    reactor::address::parse(text).map_err(|_| what_to_do.to_owned())
}
