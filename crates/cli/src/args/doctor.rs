//! `switchyard doctor` and `switchyard support-bundle`.

use super::api::ApiAuthorityArgs;
use super::host::HostArgs;
use super::seconds;
use clap::Args;
use config::schema::ApiAddress;
use std::path::PathBuf;
use std::time::Duration;

/// The target of this machine that is examined.
#[derive(Args, Clone, Debug)]
pub struct ExaminedArgs {
    /// Configuration file of the target [default: /etc/switchyard/target.toml, if it exists]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Address of the target's HTTP API [default: that of the configuration file, or
    /// unix:/run/switchyard/api.sock]
    #[arg(long, value_name = "ADDRESS")]
    pub api: Option<ApiAddress>,
    #[command(flatten)]
    pub authority: ApiAuthorityArgs,
    #[command(flatten)]
    pub host: HostArgs,
}

/// Check this machine, the configuration and the running target
///
/// Prints one line per finding: OK, WARN, FAIL or UNKNOWN, and for WARN and FAIL the remedy. Checks
/// kernel, io_uring, limits, processors, clock source, network cards, devices, files of keys,
/// configuration, API, and the addresses of the target by a connection of NVMe/TCP. Changes nothing.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  switchyard doctor
  switchyard doctor --config target.toml --api unix:/tmp/api.sock --json

Exit codes: 0 no FAIL, 1 at least one FAIL, 2 error")]
pub struct DoctorArgs {
    #[command(flatten)]
    pub examined: ExaminedArgs,
}

/// Collect information about this machine and the target for support in one file
///
/// Contains the findings of `switchyard doctor`, versions, configuration, state, answers of the API,
/// metrics, the last 24 hours of the log, and a profile of the target. Contains no keys, secrets or
/// tokens. Contains host names, addresses, NQNs and paths.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  switchyard support-bundle
  switchyard support-bundle /tmp/bundle.tar.gz --profile 30

Exit codes: 0 success, 2 error")]
pub struct SupportBundleArgs {
    /// File to create [default: switchyard-support.tar.gz]
    #[arg(
        value_name = "FILE",
        default_value = "switchyard-support.tar.gz",
        hide_default_value = true
    )]
    pub file: PathBuf,
    /// State file of the target
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/var/lib/switchyard/state.json"
    )]
    pub state: PathBuf,
    /// Duration of the profile; 0: none
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub profile: Duration,
    #[command(flatten)]
    pub examined: ExaminedArgs,
}
