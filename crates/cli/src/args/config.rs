//! `switchyard config`.

use super::ApiArgs;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Show, save, compare and apply the configuration of a running target
///
/// The target must run with --api. Changes made through the API or by commands take effect at once.
/// They survive a restart only if the target runs with --state FILE. If the configuration file and
/// the API changed the same item, the target reports a conflict: keep the running value with
/// "save", or the file's value with "apply".
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  switchyard config show
  switchyard config diff
  switchyard config diff /etc/switchyard.toml
  switchyard config save /etc/switchyard.toml --force
  switchyard config apply /etc/switchyard.toml

Exit codes: 0 success, or no difference; 1 differences found (diff); 2 error")]
#[command(mut_arg("api", |api| api.global(true)), mut_arg("api_ca", |ca| ca.global(true)))]
pub struct ConfigArgs {
    #[command(subcommand)]
    pub command: ConfigCommand,
    #[command(flatten)]
    pub api: ApiArgs,
}

#[derive(Clone, Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print the running configuration as TOML, as `serve --config` reads it
    Show,
    /// Write the running configuration to a file atomically; comments in the file are lost
    Save {
        /// File to write
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Replace an existing file
        #[arg(long)]
        force: bool,
    },
    /// Compare the running configuration with a file; marks changes that need a restart
    Diff {
        /// File to compare with [default: the target's configuration file, as last applied]
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Apply a file to the running target; reverts changes made through the API
    Apply {
        /// File to apply
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}
