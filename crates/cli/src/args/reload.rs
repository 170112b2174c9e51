//! Arguments of `switchyard reload`.

use clap::Args;

/// Apply the configuration file of a running target or front end; after an upgrade, take it over
///
/// If the running process is the same program, it gets SIGHUP. Otherwise this program starts in the
/// background with the arguments, environment and working directory of the running process and
/// --take-over, and the command returns once it serves the hosts or clients.
#[derive(Args, Debug)]
#[command(after_long_help = "Examples:
  switchyard reload $(pidof switchyard)
  systemctl reload switchyard

Exit codes: 0 success, 2 error: the running process continues")]
pub struct ReloadArgs {
    /// Process ID of `switchyard serve` or `switchyard attach`
    #[arg(value_name = "PID", value_parser = super::in_range::<i32>(1..=i32::MAX as u64))]
    pub pid: i32,
}
