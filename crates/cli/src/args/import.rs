//! `switchyard import`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Convert the configuration of another target to one of Switchyard
///
/// Prints TOML for `serve --config` and `config apply`. Lists the parts without an equivalent, and
/// what to do about them, on stderr and as comments at the top. Changes nothing.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  switchyard import nvmetcli /etc/nvmet/config.json > target.toml
  rpc.py save_config | switchyard import spdk /dev/stdin > target.toml
  switchyard import configfs > target.toml

Exit codes: 0 success; 1 the result needs corrections, which it lists; 2 error")]
pub struct ImportArgs {
    #[command(subcommand)]
    pub source: ImportSource,
}

#[derive(Clone, Debug, Subcommand)]
pub enum ImportSource {
    /// JSON file of `nvmetcli save`
    Nvmetcli {
        /// File to read
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// JSON file of SPDK's RPC `save_config`
    Spdk {
        /// File to read
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// The running target of this machine's kernel
    Configfs {
        /// Folder of nvmet in configfs
        #[arg(value_name = "FOLDER", default_value = "/sys/kernel/config/nvmet")]
        folder: PathBuf,
    },
}
