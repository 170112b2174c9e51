//! Command-line parts that `switchyard` and `lab` share: global options, and examples in help.

use crate::{log, output::Output};
use clap::Args;

/// Options of every command.
#[derive(Args, Clone, Debug)]
pub struct Common {
    /// Print results as JSON
    #[arg(long, global = true, help_heading = "Global options")]
    pub json: bool,
    /// Log level on stderr: error, warn, info, debug or trace, also per module, such as
    /// switchyard_target=debug [default: $SWITCHYARD_LOG, or warn]
    #[arg(
        long,
        global = true,
        value_name = "FILTER",
        help_heading = "Global options"
    )]
    pub log: Option<String>,
}

impl Common {
    /// Starts the log with the level of the option, of the environment, or `default`.
    ///
    /// # Errors
    /// An invalid filter.
    pub fn start_log(&self, default: &str) -> anyhow::Result<()> {
        log::start(self.log.as_deref(), default)
    }

    /// Returns the form of the command's output.
    #[must_use]
    pub const fn output(&self) -> Output {
        Output { json: self.json }
    }
}

/// Copies the examples and exit codes of a command to its subcommands that have none.
pub fn share_examples(command: clap::Command) -> clap::Command {
    let examples = command.get_after_long_help().cloned();
    command.mut_subcommands(|below| {
        let own = below.get_after_long_help().cloned();
        share_examples(match own.or_else(|| examples.clone()) {
            Some(examples) => below.after_long_help(examples),
            None => below,
        })
    })
}
