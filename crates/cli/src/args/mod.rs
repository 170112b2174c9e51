//! The command line: every flag once, with short and long help.

mod api;
mod attach;
mod bench;
mod bench_app;
mod calibrate;
mod completions;
mod config;
mod device;
mod doctor;
mod encrypted;
mod host;
mod import;
mod key;
mod man;
mod names;
mod objects;
#[cfg(test)]
mod reference;
mod reload;
mod serve;
mod share;
mod switch;
mod tenant;
mod top;
mod trace;

pub use ::load::{Cores, measured_seconds, seconds};
pub use api::{ApiArgs, ApiAuthorityArgs, ApiFilesArgs};
#[cfg(test)]
pub use attach::AttachCommand;
pub use attach::{AttachArgs, AttachmentsArgs, DetachArgs, load as load_attachments};
pub use bench::{LoadArgs, LoadedDevice};
pub use calibrate::{CalibrateDeviceArgs, NamedDevice};
pub use cli::knobs::{Poll, SwitchArgs};
pub use completions::CompletionsArgs;
pub use config::{ConfigArgs, ConfigCommand};
pub use doctor::{DoctorArgs, ExaminedArgs, SupportBundleArgs};
pub use encrypted::{DeviceArgs, DeviceCommand};
pub use host::{DiscoverArgs, HostArgs, IdentifyArgs, ReadArgs, WriteArgs};
pub use import::{ImportArgs, ImportSource};
pub use key::{ChapKeyCommand, KeyArgs, KeyCommand, NewKeyFile, TlsKeyCommand};
pub use man::ManArgs;
pub use objects::{
    AllowedHost, HostCommand, HostCommandArgs, ListenerArgs, ListenerCommand, NamespaceArgs,
    NamespaceCommand, NamespaceId, Part, SubsystemArgs, SubsystemCommand, SubsystemSettings,
};
pub use reload::ReloadArgs;
pub use serve::ServeArgs;
pub use share::{ShareArgs, SharedDevice, UnshareArgs};
pub use switch::{SwitchCommand, SwitchCommandArgs};
pub use tenant::{DefaultTenantPolicy, TenantArgs, TenantChange, TenantCommand};
pub use top::TopArgs;
pub use trace::TraceArgs;

use clap::{Arg, Parser, Subcommand, ValueEnum};
use cli::common::{Common, share_examples};
use std::ops::RangeInclusive;

/// Block storage over plain TCP, in user space, on a stock Linux kernel.
#[derive(Debug, Parser)]
#[command(name = "switchyard", version, propagate_version = true)]
#[command(after_help = concat!(
    "Examples:\n",
    "  switchyard serve                              share 1 GiB of RAM at 127.0.0.1:4420\n",
    "  switchyard discover 127.0.0.1:4420            list its subsystems\n",
    "  switchyard bench --target 127.0.0.1:4420 \\\n",
    "      --rw randread --bs 4k --depth 32          measure its 4 KiB random reads\n",
    "\n",
    "Exit codes:\n",
    "  0  success\n",
    "  1  negative result: nothing found, data mismatch, failed requests\n",
    "  2  error: the message on stderr names the cause and the remedy",
))]
#[command(mut_subcommands = share_examples)]
pub struct Cli {
    #[command(flatten)]
    pub common: Common,
    #[command(subcommand)]
    pub command: Command,
}

/// The commands; each has its help in the documentation of its arguments.
#[derive(Debug, Subcommand)]
pub enum Command {
    Serve(ServeArgs),
    Reload(ReloadArgs),
    Share(ShareArgs),
    Unshare(UnshareArgs),
    Discover(DiscoverArgs),
    Identify(IdentifyArgs),
    Read(ReadArgs),
    Write(WriteArgs),
    Attach(AttachArgs),
    Attachments(AttachmentsArgs),
    Detach(DetachArgs),
    Bench(LoadArgs),
    Calibrate(CalibrateDeviceArgs),
    Config(ConfigArgs),
    Device(DeviceArgs),
    Doctor(DoctorArgs),
    Import(ImportArgs),
    Subsystem(SubsystemArgs),
    Namespace(NamespaceArgs),
    Host(HostCommandArgs),
    Listener(ListenerArgs),
    Key(KeyArgs),
    SupportBundle(SupportBundleArgs),
    Switch(SwitchCommandArgs),
    Tenant(TenantArgs),
    Top(TopArgs),
    Trace(TraceArgs),
    Man(ManArgs),
    Completions(CompletionsArgs),
}

/// Makes an argument that applies only to a target conflict with `local`, the arguments that name a
/// local device. `requires = "target"` would not: clap ignores a requirement that conflicts with
/// another argument of the same group.
fn for_target(arg: Arg, local: &'static [&'static str]) -> Arg {
    let flags = [
        "nqn",
        "nsid",
        "io_timeout",
        "host_nqn",
        "digests",
        "tls_key",
        "chap_secret",
        "chap_controller_secret",
    ];
    match flags.contains(&arg.get_id().as_str()) {
        true => arg.conflicts_with_all(local),
        false => arg,
    }
}

/// Parses a block size.
///
/// # Errors
/// The valid sizes.
pub fn block_size(text: &str) -> Result<::config::schema::BlockSize, String> {
    let bytes: u64 = text.parse().map_err(|_| "use 512 or 4096".to_owned())?;
    ::config::schema::BlockSize::try_from(bytes).map_err(|error| error.to_string())
}

/// Returns the reader of a number in a range.
fn in_range<T: TryFrom<u64>>(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        let number = number.and_then(|number| T::try_from(number).ok());
        number.ok_or_else(|| format!("write a number from {} to {}", range.start(), range.end()))
    }
}

/// Reads one of the words of a flag.
fn one_of<T: ValueEnum>(text: &str) -> Result<T, String> {
    T::from_str(text, false).map_err(|_| {
        let words = T::value_variants().iter().filter_map(T::to_possible_value);
        let words: Vec<_> = words.map(|word| word.get_name().to_owned()).collect();
        format!("write one of {}", words.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

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
