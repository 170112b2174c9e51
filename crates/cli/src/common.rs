//! The part of the command line that all programs have: options of every command, and where help has
//! its examples from.

use crate::{log, output::Output};
use clap::Args;

/// Options of every command.
#[derive(Args, Clone, Debug)]
pub struct Common {
    /// Print results as JSON
    #[arg(long, global = true)]
    pub json: bool,
    /// Levels to log to stderr, such as "info" or "switchyard_target=debug"
    ///
    /// Without it the environment variable SWITCHYARD_LOG decides, and without that "warn".
    #[arg(long, global = true, value_name = "FILTER")]
    pub log: Option<String>,
}

impl Common {
    /// Starts the log; it says what `default` selects where neither the option nor the environment
    /// says otherwise.
    ///
    /// # Errors
    /// A filter that has no meaning.
    pub fn start_log(&self, default: &str) -> anyhow::Result<()> {
        log::start(self.log.as_deref(), default)
    }

    /// Returns the form of the command's output.
    #[must_use]
    pub const fn output(&self) -> Output {
        Output { json: self.json }
    }
}

/// Gives every command below `command` its examples and exit codes, where it has none of its own.
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
