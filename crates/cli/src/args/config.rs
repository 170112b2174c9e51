//! `switchyard config`.

use super::ApiArgs;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// See, save and compare the configuration of a running target
///
/// The target must have been started with --api. What the interface and the other commands change
/// counts at once; a target that was started with --state FILE keeps it over a restart, beside what
/// its configuration file says. Where the file and the interface changed the same thing, neither
/// wins: the target says so, and "save" or "apply" decides.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  switchyard config show
  switchyard config diff
  switchyard config diff /etc/switchyard.toml
  switchyard config save /etc/switchyard.toml --force
  switchyard config apply /etc/switchyard.toml

Exit codes: 0 done, or nothing differs; 1 something differs (diff); 2 an error")]
#[command(mut_arg("api", |api| api.global(true)))]
pub struct ConfigArgs {
    #[command(subcommand)]
    pub command: ConfigCommand,
    #[command(flatten)]
    pub api: ApiArgs,
}

#[derive(Clone, Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print the configuration in force, as a file that serve --config reads
    Show,
    /// Write the configuration in force to a file, in one step; comments are not kept
    Save {
        /// The file
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Replace a file that is there
        #[arg(long)]
        force: bool,
    },
    /// List what is in force otherwise than a file says, also what needs a restart
    Diff {
        /// The file [default: the target's own, as it was last put in force]
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Put a file in force as it is; what the interface changed before is undone
    Apply {
        /// The file
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}
