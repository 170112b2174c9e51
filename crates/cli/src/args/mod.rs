//! The command line: every flag once, with short and long help.

mod attach;
mod bench;
mod calibrate;
mod config;
mod device;
mod host;
mod man;
mod serve;
mod switch;
mod tenant;
mod top;

pub use ::load::{Cores, measured_seconds, seconds};
pub use attach::{AttachArgs, AttachCommand, AttachmentsArgs, DetachArgs};
pub use bench::{LoadArgs, LoadedDevice};
pub use calibrate::{CalibrateDeviceArgs, NamedDevice};
pub use cli::knobs::{Poll, SwitchArgs};
pub use config::{ConfigArgs, ConfigCommand};
pub use host::{DiscoverArgs, HostArgs, IdentifyArgs, ReadArgs, WriteArgs};
pub use man::ManArgs;
pub use serve::ServeArgs;
pub use switch::{ApiArgs, SwitchCommand, SwitchCommandArgs};
pub use tenant::{DefaultTenantPolicy, TenantArgs, TenantChange, TenantCommand};
pub use top::TopArgs;

use clap::{Arg, Parser, Subcommand};
use cli::common::{Common, share_examples};

/// Block storage over plain TCP, in user space, on a stock Linux kernel.
#[derive(Debug, Parser)]
#[command(name = "switchyard", version, propagate_version = true)]
#[command(after_help = concat!(
    "Examples:\n",
    "  switchyard serve                              share 1 GiB of memory at 127.0.0.1:4420\n",
    "  switchyard discover 127.0.0.1:4420            what is offered there?\n",
    "  switchyard bench --target 127.0.0.1:4420 \\\n",
    "      --app 'a:rw=randread,bs=4k,depth=32'      how fast is it?\n",
    "\n",
    "Exit codes:\n",
    "  0  done\n",
    "  1  a negative result: nothing found, data differed, requests failed\n",
    "  2  an error: the message on stderr says what to do",
))]
#[command(mut_subcommands = share_examples)]
pub struct Cli {
    #[command(flatten)]
    pub common: Common,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Share block devices over NVMe/TCP
    Serve(ServeArgs),
    /// List what a discovery controller offers
    Discover(DiscoverArgs),
    /// Show a subsystem's controller and namespaces
    Identify(IdentifyArgs),
    /// Copy a namespace, or a part of it, to a file or stdout
    Read(ReadArgs),
    /// Copy a file or stdin to a namespace
    Write(WriteArgs),
    /// Give unmodified applications a device
    Attach(AttachArgs),
    /// List the attachments of a running attach process
    Attachments(AttachmentsArgs),
    /// Detach a device of a running attach process
    Detach(DetachArgs),
    /// Load a target or a local device, and measure it
    Bench(LoadArgs),
    /// Find out what requests cost on a device, and how late its reads are at each load
    Calibrate(CalibrateDeviceArgs),
    /// See, save and compare the configuration of a running target
    Config(ConfigArgs),
    /// See and turn the knobs of a running target's switch
    Switch(SwitchCommandArgs),
    /// See and change the tenants of a running target
    Tenant(TenantArgs),
    /// Watch a running target: tenants, cores, namespaces and queues
    Top(TopArgs),
    /// Write the manual pages of all commands
    Man(ManArgs),
}

/// Makes an argument conflict with `local`, the arguments that name a device of this machine, if it
/// says something of a target. A `requires = "target"` would not: clap waives what an argument of the
/// same group excludes.
fn for_target(arg: Arg, local: &'static [&'static str]) -> Arg {
    let flags = ["nqn", "nsid", "io_timeout", "host_nqn", "digests"];
    match flags.contains(&arg.get_id().as_str()) {
        true => arg.conflicts_with_all(local),
        false => arg,
    }
}

/// A block size on the command line.
///
/// # Errors
/// What would be right.
pub fn block_size(text: &str) -> Result<control::model::BlockSize, String> {
    let bytes: u64 = text.parse().map_err(|_| "write 512 or 4096".to_owned())?;
    control::model::BlockSize::try_from(bytes).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    /// The documentation promises it, and those below `tenant` and others had none.
    #[test]
    fn every_command_has_examples_and_exit_codes() {
        fn check(command: &clap::Command) {
            for below in command.get_subcommands() {
                let name = below.get_name();
                let help = below.get_after_long_help().map(ToString::to_string);
                let help = help.unwrap_or_default();
                assert!(help.contains("Examples:\n"), "{name}: {help}");
                assert!(help.contains("Exit codes: "), "{name}: {help}");
                check(below);
            }
        }
        check(&Cli::command());
    }

    #[test]
    fn block_sizes_are_those_of_disks() {
        assert!(block_size("1024").is_err() && block_size("4096").is_ok());
    }
}
