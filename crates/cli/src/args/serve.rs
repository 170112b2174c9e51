//! `switchyard serve`.

use super::{Cores, SwitchArgs, block_size, device};
use clap::{ArgMatches, Args, ValueEnum};
use control::model::{ApiAddress, BlockSize, Device, DeviceKind, SocketMode};
use control::process::confine::Confinement;
use control::socket_access::group_number;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Share block devices over NVMe/TCP
///
/// Without arguments it shares 1 GiB of memory with any host on this machine, as namespace 1 of
/// nqn.2026-11.io.switchyard:default at 127.0.0.1:4420. When it is ready it prints a line
/// "listening on ADDRESS:PORT" for each address, then what it shares. SIGTERM and SIGINT let
/// commands under way finish and end it; SIGHUP applies what changed in the configuration file, and
/// leaves what the interface changed.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  switchyard serve
  switchyard serve --file disk.img --listen 127.0.0.1:0
  switchyard serve --ram 4G --ram 512M --block-size 512 --cores 0 --poll always
  switchyard serve --baseline linux
  switchyard serve --knob doorbell=fixed --knob doorbell_delay_us=100
  switchyard serve --api unix:/run/switchyard/api.sock
  switchyard serve --config /etc/switchyard.toml --state /var/lib/switchyard/state.json

Exit codes: 0 drained and ended; 1 ended, but commands that a device did not answer within 10 s
were given up, or a device did not take what its cache had; 2 an error")]
pub struct ServeArgs {
    /// Take everything from this TOML file; the only way to serve other machines
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "listen", "ram", "file", "null", "flash", "block_size", "cores", "poll", "baseline",
        "knobs", "api", "api_socket_mode", "api_socket_group",
    ])]
    pub config: Option<PathBuf>,
    /// Listen here (repeatable); port 0 takes a free one [default: 127.0.0.1:4420]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = listen)]
    pub listen: Vec<SocketAddr>,
    /// Share memory of this size, such as 1G (repeatable)
    #[arg(long, value_name = "SIZE", value_parser = device::ram)]
    pub ram: Vec<DeviceKind>,
    /// Share a file or block device (repeatable)
    #[arg(long, value_name = "PATH", value_parser = device::file())]
    pub file: Vec<DeviceKind>,
    /// Share a device of this size that forgets writes and reads as zeroes (repeatable)
    #[arg(long, value_name = "SIZE", value_parser = device::null)]
    pub null: Vec<DeviceKind>,
    /// Share memory that is as slow as a flash device, such as A/8:1G (repeatable)
    ///
    /// A, B and C are whole devices, in which writes make reads late; A/8 has an eighth of A's
    /// dies. dram-ssd takes 7 µs.
    #[arg(long, value_name = "PROFILE:SIZE", value_parser = device::flash)]
    pub flash: Vec<DeviceKind>,
    /// Logical block of the shared devices: 512 or 4096 bytes
    #[arg(long, value_name = "BYTES", default_value = "4096", value_parser = block_size)]
    pub block_size: BlockSize,
    /// Processors to run on, such as 0-3 or 0,2 [default: all that this process may use]
    #[arg(long, value_name = "LIST")]
    pub cores: Option<Cores>,
    #[command(flatten)]
    pub switch: SwitchArgs,
    /// Serve the HTTP interface and metrics here: unix:/PATH, such as unix:/run/switchyard/api.sock
    ///
    /// Only the owner of the process may open it, unless --api-socket-mode or --api-socket-group is
    /// given. 127.0.0.1:PORT is possible too; requests must
    /// then show the token that the target finds in the environment: SWITCHYARD_API_TOKEN, or the
    /// file that SWITCHYARD_API_TOKEN_FILE names.
    #[arg(long, value_name = "ADDRESS")]
    pub api: Option<ApiAddress>,
    /// Permission bits of the interface's Unix socket, in octal [default: 0600, or 0660 with
    /// --api-socket-group]
    #[arg(long, value_name = "MODE", requires = "api")]
    pub api_socket_mode: Option<SocketMode>,
    /// Group of the interface's Unix socket: a name of /etc/group, or a number
    #[arg(long, value_name = "GROUP", requires = "api", value_parser = group_number)]
    pub api_socket_group: Option<u32>,
    /// Keep what the interface changes in this file, and bring it back at the next start
    ///
    /// The configuration file counts too: what only one of the two changed is as that one says.
    /// Where both changed the same thing the target does not start, and says what it is.
    #[arg(long, value_name = "FILE")]
    pub state: Option<PathBuf>,
    /// Keep the process from what a target never does (repeatable, or a list)
    ///
    /// What is chosen must be possible on this machine. With "landlock", SIGHUP and the interface
    /// reach no files but those that were named at the start, and those below device_folders.
    #[arg(long, value_name = "LIST", value_enum, value_delimiter = ',')]
    pub confine: Vec<Confine>,
    /// End when standard input does, so that the target does not outlive the process that started
    /// it.
    #[arg(long, hide = true)]
    pub until_stdin_ends: bool,
    /// The devices in the order of the command line; see [`ServeArgs::order`].
    #[arg(skip)]
    pub devices: Vec<Device>,
}

/// A restriction by choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Confine {
    /// Only the files and folders that the configuration and the command line name
    Landlock,
    /// No programs, no mounts, no other system calls that a target never makes
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
    /// Puts the devices in the order in which the command line names them, which is the order of
    /// their namespaces.
    pub fn order(&mut self, matches: &ArgMatches) {
        let named = [
            ("ram", &self.ram),
            ("null", &self.null),
            ("flash", &self.flash),
            ("file", &self.file),
        ];
        let mut all: Vec<(usize, DeviceKind)> = Vec::new();
        for (name, kinds) in named {
            let places = matches.indices_of(name).into_iter().flatten();
            all.extend(places.zip(kinds.iter().cloned()));
        }
        all.sort_by_key(|(place, _)| *place);
        let kinds = all.into_iter().map(|(_, kind)| kind);
        let mut kinds: Vec<DeviceKind> = kinds.collect();
        if kinds.is_empty() {
            kinds.push(device::ram("1G").expect("a size"));
        }
        let device = |kind: DeviceKind| Device::new(kind.with(self.block_size, false));
        self.devices = kinds.into_iter().map(device).collect();
    }
}

/// Reads an address to listen on.
fn listen(text: &str) -> Result<SocketAddr, String> {
    let what_to_do =
        "it is no IP address with a port; write one, such as 127.0.0.1:4420 or [::1]:4420";
    reactor::address::parse(text).map_err(|_| what_to_do.to_owned())
}
