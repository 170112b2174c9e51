//! `switchyard subsystem`, `namespace`, `host` and `listener`: the objects of a running target.

use super::{ApiArgs, names};
use clap::{Args, Subcommand};
use clap_complete::ArgValueCandidates;
use config::schema::{AnaState, Authentication, Keyword, Size, TlsMode, Uuid};
use std::net::SocketAddr;
use std::path::PathBuf;

/// List, add, change and remove the subsystems of a running target
///
/// Changes take effect at once. They survive a restart if the target runs with --state FILE.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  switchyard subsystem list
  switchyard subsystem add nqn.2026-11.com.example:disks --host nqn.2026-11.com.example:db
  switchyard subsystem set nqn.2026-11.com.example:disks --authentication chap
  switchyard subsystem set nqn.2026-11.com.example:disks --ana-state inaccessible
  switchyard subsystem remove nqn.2026-11.com.example:disks

Exit codes: 0 success, 2 error; after an error response of the target nothing has changed")]
#[command(mut_arg("api", |api| api.global(true)), mut_arg("api_ca", |ca| ca.global(true)))]
pub struct SubsystemArgs {
    #[command(subcommand)]
    pub command: SubsystemCommand,
    #[command(flatten)]
    pub api: ApiArgs,
}

#[derive(Clone, Debug, Subcommand)]
pub enum SubsystemCommand {
    /// List the subsystems
    List,
    /// Show the settings of a subsystem
    Show {
        /// NQN of the subsystem
        #[arg(add = ArgValueCandidates::new(names::subsystems))]
        nqn: String,
    },
    /// Add a subsystem without namespaces
    Add {
        /// NQN of the subsystem
        nqn: String,
        /// NQN of a host that may connect (repeatable), or any
        #[arg(long = "host", value_name = "HOSTNQN|any", add = ArgValueCandidates::new(names::hosts))]
        hosts: Vec<String>,
        /// Serial number, up to 20 characters [default: derived from the NQN]
        #[arg(long)]
        serial: Option<String>,
        /// Model number, up to 40 characters [default: Switchyard]
        #[arg(long)]
        model: Option<String>,
        /// Proof that hosts have to give of their NQNs: none, chap, tls or chap+tls [default: none]
        #[arg(long, value_name = "PROOF", value_parser = keyword::<Authentication>)]
        authentication: Option<Authentication>,
    },
    /// Change a subsystem; connections that no longer qualify are closed
    Set {
        /// NQN of the subsystem
        #[arg(add = ArgValueCandidates::new(names::subsystems))]
        nqn: String,
        #[command(flatten)]
        settings: SubsystemSettings,
        /// ANA group [default: 1]
        #[arg(long, value_name = "GROUP", requires = "ana_state")]
        ana_group: Option<u32>,
        /// Number of the ownership: refused if a higher one was set before; above 0, the group is
        /// inaccessible after a restart until its state is set again [default: 0]
        #[arg(long, requires = "ana_state")]
        epoch: Option<u64>,
    },
    /// Remove a subsystem with its namespaces, and disconnect its hosts; devices stay
    Remove {
        /// NQN of the subsystem
        #[arg(add = ArgValueCandidates::new(names::subsystems))]
        nqn: String,
    },
}

/// Settings of a subsystem that can change.
#[derive(Args, Clone, Debug)]
#[group(required = true)]
pub struct SubsystemSettings {
    /// Proof that hosts have to give of their NQNs: none, chap, tls or chap+tls
    #[arg(long, value_name = "PROOF", value_parser = keyword::<Authentication>)]
    pub authentication: Option<Authentication>,
    /// State of an ANA group: optimized, non-optimized, inaccessible, persistent-loss or change; once
    /// the command ends, no I/O command is executed if the state refuses them
    #[arg(long, value_name = "STATE", value_parser = keyword::<AnaState>)]
    pub ana_state: Option<AnaState>,
}

/// List, add, resize and remove the namespaces of a running target
///
/// Changes take effect at once, and hosts are notified. They survive a restart if the target runs with
/// --state FILE.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  switchyard namespace list
  switchyard namespace add nqn.2026-11.com.example:disks fast
  switchyard namespace set nqn.2026-11.com.example:disks 1 --size 2G
  switchyard namespace remove nqn.2026-11.com.example:disks 1

Exit codes: 0 success, 2 error; after an error response of the target nothing has changed")]
#[command(mut_arg("api", |api| api.global(true)), mut_arg("api_ca", |ca| ca.global(true)))]
pub struct NamespaceArgs {
    #[command(subcommand)]
    pub command: NamespaceCommand,
    #[command(flatten)]
    pub api: ApiArgs,
}

/// A namespace of a subsystem.
#[derive(Args, Clone, Debug)]
pub struct NamespaceId {
    /// NQN of the subsystem
    #[arg(add = ArgValueCandidates::new(names::subsystems))]
    pub nqn: String,
    /// Identifier of the namespace
    #[arg(add = ArgValueCandidates::new(names::nsids))]
    pub nsid: u32,
}

#[derive(Clone, Debug, Subcommand)]
pub enum NamespaceCommand {
    /// List the namespaces of all subsystems, or of one
    List {
        /// NQN of the subsystem
        #[arg(add = ArgValueCandidates::new(names::subsystems))]
        nqn: Option<String>,
    },
    /// Show the settings of a namespace
    Show(NamespaceId),
    /// Add a namespace over a device
    Add {
        /// NQN of the subsystem
        #[arg(add = ArgValueCandidates::new(names::subsystems))]
        nqn: String,
        /// Name of the device
        #[arg(add = ArgValueCandidates::new(names::devices))]
        device: String,
        /// Identifier of the namespace [default: the next free one]
        #[arg(long)]
        nsid: Option<u32>,
        /// Part of the device that it shows, from the beginning [default: the whole device]
        #[arg(long)]
        size: Option<Size>,
        /// UUID that hosts see [default: derived]
        #[arg(long)]
        uuid: Option<Uuid>,
        /// Refuse writes
        #[arg(long)]
        read_only: bool,
        /// ANA group: namespaces of a subsystem that change their ANA state together [default: 1]
        #[arg(long, value_name = "GROUP")]
        ana_group: Option<u32>,
    },
    /// Resize a namespace; a RAM device or file of its own grows with it
    Set {
        #[command(flatten)]
        id: NamespaceId,
        /// Part of the device that it shows, or all
        #[arg(long, value_name = "SIZE|all", value_parser = part)]
        size: Part,
    },
    /// Remove a namespace; its device stays
    Remove(NamespaceId),
}

/// The part of a device that a namespace shows.
#[derive(Clone, Copy, Debug)]
pub enum Part {
    All,
    Size(Size),
}

fn part(text: &str) -> Result<Part, String> {
    match text {
        "all" => Ok(Part::All),
        _ => text
            .parse()
            .map(Part::Size)
            .map_err(|error| format!("{error}, or all")),
    }
}

/// Show and change which hosts may connect to the subsystems of a running target, and their keys
///
/// Changes take effect at once. They survive a restart if the target runs with --state FILE.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  switchyard host list
  switchyard host add nqn.2026-11.com.example:disks nqn.2026-11.com.example:db
  switchyard host set nqn.2026-11.com.example:db --tls-key db.key
  switchyard host remove nqn.2026-11.com.example:disks any

Exit codes: 0 success, 2 error; after an error response of the target nothing has changed")]
#[command(mut_arg("api", |api| api.global(true)), mut_arg("api_ca", |ca| ca.global(true)))]
pub struct HostCommandArgs {
    #[command(subcommand)]
    pub command: HostCommand,
    #[command(flatten)]
    pub api: ApiArgs,
}

/// A host of a subsystem.
#[derive(Args, Clone, Debug)]
pub struct AllowedHost {
    /// NQN of the subsystem
    #[arg(add = ArgValueCandidates::new(names::subsystems))]
    pub nqn: String,
    /// NQN of the host, or any
    #[arg(value_name = "HOSTNQN|any", add = ArgValueCandidates::new(names::hosts))]
    pub host: String,
}

#[derive(Clone, Debug, Subcommand)]
pub enum HostCommand {
    /// List the hosts that may connect, by subsystem
    List {
        /// NQN of the subsystem [default: all]
        #[arg(add = ArgValueCandidates::new(names::subsystems))]
        nqn: Option<String>,
    },
    /// Show the subsystems and the keys of a host; the keys themselves are never shown
    Show {
        /// NQN of the host
        #[arg(value_name = "HOSTNQN", add = ArgValueCandidates::new(names::hosts))]
        host: String,
    },
    /// Let a host connect to a subsystem
    Add(AllowedHost),
    /// Replace the keys that commands and the API gave to a host; keys of files stay
    Set {
        /// NQN of the host
        #[arg(value_name = "HOSTNQN", add = ArgValueCandidates::new(names::hosts))]
        host: String,
        /// File with TLS keys, mode 0600
        #[arg(long, value_name = "FILE")]
        tls_key: Option<PathBuf>,
        /// File with DH-HMAC-CHAP secrets that prove the host, mode 0600
        #[arg(long, value_name = "FILE")]
        chap_secret: Option<PathBuf>,
        /// File with the DH-HMAC-CHAP secret that proves the controller, mode 0600
        #[arg(long, value_name = "FILE")]
        chap_controller_secret: Option<PathBuf>,
        /// Remove these keys
        #[arg(long, conflicts_with_all = ["tls_key", "chap_secret", "chap_controller_secret"])]
        no_keys: bool,
    },
    /// Take a host's right to connect to a subsystem, and disconnect it
    Remove(AllowedHost),
}

/// List, add, change and remove the addresses that hosts connect to
///
/// Changes take effect at once. They survive a restart if the target runs with --state FILE.
/// Connections outlive their listener.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  switchyard listener list
  switchyard listener add 192.0.2.7:4420
  switchyard listener set 192.0.2.7:4420 --tls required
  switchyard listener remove 127.0.0.1:4420

Exit codes: 0 success, 2 error; after an error response of the target nothing has changed")]
#[command(mut_arg("api", |api| api.global(true)), mut_arg("api_ca", |ca| ca.global(true)))]
pub struct ListenerArgs {
    #[command(subcommand)]
    pub command: ListenerCommand,
    #[command(flatten)]
    pub api: ApiArgs,
}

#[derive(Clone, Debug, Subcommand)]
pub enum ListenerCommand {
    /// List the addresses
    List,
    /// Show a listener
    Show {
        /// Its address
        #[arg(value_name = "ADDRESS:PORT", add = ArgValueCandidates::new(names::listeners))]
        address: SocketAddr,
    },
    /// Listen on a further address
    Add {
        /// IP address of this machine and port; 0.0.0.0 and [::]: all addresses; port 0: a free port
        #[arg(value_name = "ADDRESS:PORT")]
        address: SocketAddr,
        /// Use of TLS: off, allowed or required [default: that of the configuration]
        #[arg(long, value_name = "MODE", value_parser = keyword::<TlsMode>)]
        tls: Option<TlsMode>,
    },
    /// Change the use of TLS by new connections
    Set {
        /// Its address
        #[arg(value_name = "ADDRESS:PORT", add = ArgValueCandidates::new(names::listeners))]
        address: SocketAddr,
        /// Use of TLS: off, allowed or required
        #[arg(long, value_name = "MODE", value_parser = keyword::<TlsMode>)]
        tls: TlsMode,
    },
    /// Stop listening on an address; established connections stay
    Remove {
        /// Its address
        #[arg(value_name = "ADDRESS:PORT", add = ArgValueCandidates::new(names::listeners))]
        address: SocketAddr,
    },
}

/// Reads a word of the configuration.
fn keyword<T: Keyword>(text: &str) -> Result<T, String> {
    let found = T::WORDS.iter().find(|(word, _)| *word == text);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let words: Vec<_> = T::WORDS.iter().map(|(word, _)| *word).collect();
        format!("write one of {}", words.join(", "))
    })
}
