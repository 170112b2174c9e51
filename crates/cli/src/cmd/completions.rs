//! `switchyard completions`: the script by which a shell completes command lines.

use crate::args::CompletionsArgs;
use crate::exit::Outcome;
use crate::output::print;
use anyhow::{Context as _, Result};
use clap_complete::env::Shells;

/// The variable by which the script asks the program for completions.
pub const VARIABLE: &str = "SWITCHYARD_COMPLETE";

/// Keeps Bash from taking NQNs and addresses for several words.
const COLONS: &str = "COMP_WORDBREAKS=${COMP_WORDBREAKS//:}\n";

/// Prints the script.
///
/// # Errors
/// Output that cannot be written.
pub fn run(args: &CompletionsArgs) -> Result<Outcome> {
    let shells = Shells::builtins();
    let shell = shells.completer(&args.shell).context("unknown shell")?;
    let (program, mut script) = ("switchyard", Vec::new());
    shell.write_registration(VARIABLE, program, program, program, &mut script)?;
    print(format_args!("{}", String::from_utf8_lossy(&script)))?;
    if args.shell == "bash" {
        print(format_args!("{COLONS}"))?;
    }
    Ok(Outcome::Done)
}
