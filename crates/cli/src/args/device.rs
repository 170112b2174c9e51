//! Devices of this machine on the command line: a flag for each kind.

use clap::error::ErrorKind;
use clap::{
    Arg, ArgAction, ArgGroup, ArgMatches, Args, Command, Error, FromArgMatches, value_parser,
};
use config::schema::{DeviceKind, DeviceTextError, KindRow};
use config::{Keys, Table};
use std::ffi::{OsStr, OsString};

/// Reads the value of a kind's flag.
fn read(kind: &str, value: &OsStr) -> Result<DeviceKind, DeviceTextError> {
    match value.to_str() {
        Some(text) => format!("{kind}:{text}").parse(),
        None => Ok(DeviceKind::file(value)),
    }
}

/// The flag of a kind.
fn flag(kind: &KindRow) -> Arg {
    let help = kind.meaning.trim_end_matches('.');
    Arg::new(kind.name)
        .long(kind.name)
        .value_name(kind.form)
        .value_parser(value_parser!(OsString))
        .help(format!("{help}; example: {}", kind.example))
}

/// The devices of a kind's flag, each with its place on the command line.
fn of_flag(kind: &KindRow, matches: &ArgMatches) -> Result<Vec<(usize, DeviceKind)>, Error> {
    let values = matches.get_many::<OsString>(kind.name);
    let places = matches.indices_of(kind.name).into_iter().flatten();
    let devices = places
        .zip(values.into_iter().flatten())
        .map(|(place, value)| {
            let device = read(kind.name, value).map_err(|error| {
                let text = format!("--{} {}: {error}\n", kind.name, value.display());
                Error::raw(ErrorKind::ValueValidation, text)
            })?;
            Ok((place, device))
        });
    devices.collect()
}

/// Any number of devices, in the order of the command line. All flags are in the group "devices".
#[derive(Clone, Debug, Default)]
pub struct LocalDevices(pub Vec<DeviceKind>);

impl FromArgMatches for LocalDevices {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut all = Vec::new();
        for kind in DeviceKind::ALL {
            all.extend(of_flag(kind, matches)?);
        }
        all.sort_by_key(|(place, _)| *place);
        Ok(Self(all.into_iter().map(|(_, device)| device).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for LocalDevices {
    fn augment_args(command: Command) -> Command {
        let flags = DeviceKind::ALL.iter().map(|kind| {
            let flag = flag(kind).action(ArgAction::Append);
            let help = flag.get_help().map(|help| format!("{help} (repeatable)"));
            flag.help(help.unwrap_or_default())
        });
        let names = DeviceKind::ALL.iter().map(|kind| kind.name);
        let group = ArgGroup::new("devices").multiple(true);
        command.args(flags).group(group.args(names))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// One device, or none. All flags are in the group "source".
#[derive(Clone, Debug, Default)]
pub struct LocalDevice(pub Option<DeviceKind>);

impl LocalDevice {
    /// Returns the names of the flags, which are keys as well.
    pub fn names() -> Vec<&'static str> {
        DeviceKind::ALL.iter().map(|kind| kind.name).collect()
    }
}

impl FromArgMatches for LocalDevice {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut devices = LocalDevices::from_arg_matches(matches)?.0;
        Ok(Self(devices.pop()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for LocalDevice {
    fn augment_args(command: Command) -> Command {
        command.args(
            DeviceKind::ALL
                .iter()
                .map(|kind| flag(kind).group("source")),
        )
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl Keys for LocalDevice {
    fn read(table: &Table<'_>) -> Option<Self> {
        let read = DeviceKind::ALL.iter().map(|kind| {
            let device = table.text(kind.name, |text| read(kind.name, OsStr::new(text)));
            Some((kind.name, device?))
        });
        let read: Vec<_> = read.collect();
        let mut found = None;
        for one in read {
            let (name, device) = one?;
            let Some(device) = device else { continue };
            if let Some(first) = &found {
                let error = format!("cannot be used with {}", DeviceKind::type_name(first));
                table.place(name).report(error, "keep one of them");
            }
            found.get_or_insert(device);
        }
        Some(Self(found))
    }
}
