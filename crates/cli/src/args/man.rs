//! Arguments of `switchyard man`.

use clap::Args;
use std::path::PathBuf;

/// Pages in section 1, one for each command, made from what `--help` says.
#[derive(Args, Debug)]
#[command(after_long_help = concat!(
    "Examples:\n",
    "  switchyard man /usr/local/share/man/man1      then: man switchyard-attach-nbd\n",
    "  switchyard man . && man ./switchyard-serve.1\n",
    "\n",
    "Exit codes: 0 done, 2 an error",
))]
pub struct ManArgs {
    /// The directory for the pages, which is made if it is missing; pages of the same names are
    /// replaced
    pub directory: PathBuf,
}
