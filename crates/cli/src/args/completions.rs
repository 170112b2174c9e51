//! Arguments of `switchyard completions`.

use clap::Args;
use clap::builder::PossibleValuesParser;

/// Print the completion script of a shell
///
/// Names of devices, subsystems, namespaces, hosts, listeners and tenants are those of the running
/// target, at the address of --api.
#[derive(Args, Debug)]
#[command(after_long_help = "Examples:
  source <(switchyard completions bash)
  switchyard completions zsh > ~/.zfunc/_switchyard
  switchyard completions fish > ~/.config/fish/completions/switchyard.fish

Exit codes: 0 success, 2 error")]
pub struct CompletionsArgs {
    /// Shell
    #[arg(value_parser = PossibleValuesParser::new(["bash", "zsh", "fish"]))]
    pub shell: String,
}
