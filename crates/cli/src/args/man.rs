//! Arguments of `switchyard man`.

use clap::Args;
use std::path::PathBuf;

/// Write the manual pages of all commands
#[derive(Args, Debug)]
#[command(after_long_help = concat!(
    "Examples:\n",
    "  switchyard man /usr/local/share/man/man1 && man switchyard-attach-nbd\n",
    "  switchyard man . && man ./switchyard-serve.1\n",
    "\n",
    "Exit codes: 0 success, 2 error",
))]
pub struct ManArgs {
    /// Directory for the pages, created if missing; existing pages are replaced
    pub directory: PathBuf,
}
