//! State that survives a restart of the target: the configuration in force, the file it came from,
//! keys of hosts that the interface added, the ranges of devices that are to be zeroed before a
//! namespace shows them, and reservations that persist.
//!
//! One JSON file, which is replaced in one step before each change (see [`config::files`]). It keeps
//! both configurations, so that what the interface changed can be told from what the file changed
//! meanwhile. One process at a time has it, by a lock on a second file beside it.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use block::LockedFile;
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use switch::knobs::{Knob, KnobError};
use target::ReservationRecord;
use zeroize::Zeroizing;

use crate::ana::AnaGroup;
use crate::host_keys::AddedKeys;
use config::files;
use config::limits::REPLACED_BYTES_MAX;
use config::schema::Configuration;

/// The version of the format that this program writes, and the only one that it reads.
const VERSION: u32 = 1;

/// The content of a state file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// The configuration file (or the flags) as it was last put in force.
    pub file: Configuration,
    /// The configuration in force: the same with the changes of the interface.
    pub in_force: Configuration,
    /// Ranges that namespaces gave up when they were made smaller. Named as in earlier programs, which
    /// zeroed them in the background.
    #[serde(default, rename = "erasing")]
    pub to_zero: Vec<ToZero>,
    /// Keys of hosts that the interface added.
    #[serde(default)]
    pub host_keys: AddedKeys,
    /// States of ANA groups that were set while running.
    #[serde(default)]
    pub ana: Vec<AnaGroup>,
    /// Reservations that persist.
    #[serde(default)]
    pub reservations: Vec<ReservationRecord>,
}

/// A range of a device that is to be zeroed before a namespace shows it again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToZero {
    /// The device's name.
    pub device: String,
    /// A text that names its content: another file under that name is left alone.
    pub content: String,
    /// The first byte of the range.
    pub first_byte: u64,
    /// The byte behind it.
    pub end_byte: u64,
}

#[derive(Serialize)]
struct Written<'a> {
    version: u32,
    file: &'a Configuration,
    in_force: &'a Configuration,
    #[serde(rename = "erasing")]
    to_zero: &'a [ToZero],
    host_keys: &'a AddedKeys,
    ana: &'a [AnaGroup],
    reservations: &'a [ReservationRecord],
}

/// The file of a target's state; no other process has it.
#[derive(Debug)]
pub struct StateFile {
    path: PathBuf,
    lock: LockedFile,
}

/// The reason for which the state cannot be read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the state file {}: {why}; {what_to_do}", path.display())]
pub struct StateError {
    /// The file.
    pub path: PathBuf,
    /// The fault.
    pub why: String,
    /// The remedy.
    pub what_to_do: String,
}

/// Removes the knobs of earlier versions that this one does not have: a state file is not edited by
/// hand. The decoder ignores such limits.
fn ignore_removed(state: &mut Value) {
    let is_knob = |key: &str| matches!(Knob::find(key), Err(KnobError::Removed { .. }));
    for place in ["/file/switch", "/in_force/switch"] {
        if let Some(entries) = state.pointer_mut(place).and_then(Value::as_object_mut) {
            entries.retain(|key, _| {
                let removed = is_knob(key);
                if removed {
                    tracing::warn!("{key} of the state file was removed and is ignored");
                }
                !removed
            });
        }
    }
}

impl StateFile {
    /// Takes the file at `path`, which need not be there yet.
    ///
    /// # Errors
    /// A directory that cannot be written, or another process that has it.
    pub fn open(path: &Path) -> Result<Self, StateError> {
        let failed = |why: String, what_to_do: &str| StateError {
            path: path.to_owned(),
            why,
            what_to_do: what_to_do.to_owned(),
        };
        let Some(name) = path.file_name() else {
            return Err(failed("it has no name".to_owned(), "name a file"));
        };
        // Before the lock, which stays where it was made.
        if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
            let why = "it is no regular file".to_owned();
            return Err(failed(why, "name one, or a file that is not there yet"));
        }
        let mut name = name.to_owned();
        name.push(".lock");
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let lock = path.with_file_name(name);
        let lock = rustix::fs::open(lock, flags, Mode::RUSR | Mode::WUSR).map_err(|error| {
            failed(
                format!("its lock cannot be taken: {error}"),
                "choose a directory that there is and that this user may write to",
            )
        })?;
        let lock = LockedFile::exclusive(lock.into()).map_err(|error| {
            failed(
                format!("another target uses it ({error})"),
                "stop that one, or give each a state file of its own",
            )
        })?;
        Ok(Self {
            path: path.to_owned(),
            lock,
        })
    }

    /// Takes the file at `path` over with the lock that another process [shares](Self::share).
    #[must_use]
    pub fn taken_over(path: &Path, lock: File) -> Self {
        Self {
            path: path.to_owned(),
            lock: LockedFile::taken_over(lock),
        }
    }

    /// Returns the lock for the process that takes the file over.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn share(&self) -> io::Result<File> {
        self.lock.share()
    }

    /// Returns the path of the state file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the content of the state file, unless it is new.
    ///
    /// # Errors
    /// A file that cannot be read, or that this program did not write.
    pub fn load(&self) -> Result<Option<State>, StateError> {
        let text = match files::read_regular(&self.path, REPLACED_BYTES_MAX) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                let remedy = match error.kind() {
                    ErrorKind::InvalidData | ErrorKind::FileTooLarge => {
                        "name a regular file that this program wrote, or none"
                    }
                    _ => "make it readable",
                };
                return Err(self.failed(format!("it cannot be read: {error}"), remedy));
            }
        };
        let remedy = "move it away to start with the configuration file alone; what the interface \
                      changed is then not in force";
        let damaged =
            |error: serde_json::Error| self.failed(format!("it is damaged: {error}"), remedy);
        let mut value: Value = serde_json::from_str(&text).map_err(damaged)?;
        if value["version"] != VERSION {
            let why = format!("its version is {}, not {VERSION}", value["version"]);
            return Err(self.failed(why, "start the program that wrote it, or move it away"));
        }
        ignore_removed(&mut value);
        let mut state: State = serde_json::from_value(value).map_err(damaged)?;
        self.check_mode(&state)?;
        for configuration in [&mut state.file, &mut state.in_force] {
            config::validate(configuration)
                .map_err(|error| self.failed(format!("it is damaged: {error}"), remedy))?;
            configuration.sort();
        }
        Ok(Some(state))
    }

    /// Refuses keys that others may have read or written.
    fn check_mode(&self, state: &State) -> Result<(), StateError> {
        let found = std::fs::metadata(&self.path);
        let mode = found.map_or(0, |found| found.permissions().mode() & 0o7777);
        if state.host_keys.0.is_empty() || mode & 0o077 == 0 {
            return Ok(());
        }
        let why = format!("it has keys of hosts, and its mode {mode:04o} lets other users use it");
        let remedy = format!(
            "run chmod 600 {}, and replace the keys that others may have read",
            self.path.display()
        );
        Err(self.failed(why, &remedy))
    }

    /// Remembers these; when it returns, they are there after a crash.
    ///
    /// # Errors
    /// What is in the way. What was remembered before stays, as far as [`files::replace`] can keep
    /// it.
    pub fn save(
        &self,
        file: &Configuration,
        in_force: &Configuration,
        (to_zero, reservations): (&[ToZero], &[ReservationRecord]),
        (host_keys, ana): (&AddedKeys, &[AnaGroup]),
    ) -> Result<(), StateError> {
        let written = Written {
            version: VERSION,
            file,
            in_force,
            to_zero,
            host_keys,
            ana,
            reservations,
        };
        let text = serde_json::to_string(&written).expect("configurations have a form in JSON");
        let text = Zeroizing::new(text);
        if text.len() > REPLACED_BYTES_MAX {
            let why = format!("it would be larger than {REPLACED_BYTES_MAX} bytes");
            return Err(self.failed(why, "share fewer things"));
        }
        files::replace(&self.path, &text).map_err(|error| {
            self.failed(
                format!("it cannot be written: {error}"),
                "free some space there, or make its directory writable",
            )
        })
    }

    fn failed(&self, why: String, what_to_do: &str) -> StateError {
        StateError {
            path: self.path.clone(),
            why,
            what_to_do: what_to_do.to_owned(),
        }
    }
}
