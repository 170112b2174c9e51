//! The times at which volumes were last written to, over the ends of processes.
//!
//! The file of a local device has a time of its own. For namespaces of targets there is a file for each
//! volume in the state directory of the service (`STATE_DIRECTORY`, systemd.exec(5)), if there is one.
//! It is there only while no process has the volume attached: after a process that was killed the time
//! is not known, and counts as that of the attach. Writes of other hosts in between are not seen.

use config::schema::DeviceKind;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The means to know when the content was changed last.
#[derive(Clone, Debug)]
pub(crate) enum Modified {
    /// There is none.
    Unknown,
    /// The time of the file of the first namespace, when it was attached.
    At(SystemTime),
    /// Namespaces with the identity of their volume.
    OfVolumes(Vec<(u32, u64)>),
}

impl Modified {
    /// That of a device of this machine.
    pub(crate) fn of_file(kind: &DeviceKind) -> Self {
        let Some(path) = kind.path() else {
            return Self::Unknown;
        };
        let found = fs::metadata(path).ok().filter(fs::Metadata::is_file);
        let modified = found.and_then(|found| found.modified().ok());
        modified.map_or(Self::Unknown, Self::At)
    }

    /// Returns the times that are known, by namespace, and forgets those of the state directory.
    pub(crate) fn take(&self) -> BTreeMap<u32, SystemTime> {
        match self {
            Self::Unknown => BTreeMap::new(),
            Self::At(time) => [(1, *time)].into(),
            Self::OfVolumes(volumes) => folder().map_or_else(BTreeMap::new, |folder| {
                let take = |&(nsid, identity)| Some((nsid, take(&folder, identity)?));
                volumes.iter().filter_map(take).collect()
            }),
        }
    }

    /// Keeps the times of the namespaces, in their order, for the next process.
    pub(crate) fn keep(&self, times: &[SystemTime]) {
        if let (Self::OfVolumes(volumes), Some(folder)) = (self, folder()) {
            for (&(_, identity), &time) in volumes.iter().zip(times) {
                keep(&folder, identity, time);
            }
        }
    }
}

fn folder() -> Option<PathBuf> {
    let all = std::env::var_os("STATE_DIRECTORY")?;
    std::env::split_paths(&all).next()
}

fn path(folder: &Path, identity: u64) -> PathBuf {
    folder.join(format!("modified-{identity:016x}"))
}

/// Returns the time that was kept of a volume, and removes it.
fn take(folder: &Path, identity: u64) -> Option<SystemTime> {
    let path = path(folder, identity);
    let time = read(&path);
    // One that stayed would count after a process that was killed.
    let removed = fs::remove_file(&path);
    time.filter(|_| removed.is_ok())
}

fn read(path: &Path) -> Option<SystemTime> {
    let text = fs::read_to_string(path).ok()?;
    let (seconds, nanos) = text.trim().split_once('.')?;
    let time = Duration::new(seconds.parse().ok()?, 0);
    let part = Duration::from_nanos(nanos.parse::<u32>().ok()?.into());
    SystemTime::UNIX_EPOCH.checked_add(time.checked_add(part)?)
}

/// Keeps the time of a volume, unless another process has kept a later one.
fn keep(folder: &Path, identity: u64, time: SystemTime) {
    let path = path(folder, identity);
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    let since = since.unwrap_or_default();
    if read(&path).is_some_and(|kept| kept >= time) {
        return;
    }
    let text = format!("{}.{:09}\n", since.as_secs(), since.subsec_nanos());
    if let Err(error) = fs::write(&path, text) {
        tracing::warn!("{}: {error}", path.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_kept_between_two_processes_and_no_longer() {
        let folder = block::temporary_folder("modified");
        let time = |seconds| SystemTime::UNIX_EPOCH + Duration::new(seconds, 5);
        assert_eq!(take(&folder, 7), None);
        keep(&folder, 7, time(12));
        keep(&folder, 7, time(11));
        assert_eq!(take(&folder, 8), None, "of another volume");
        assert_eq!(take(&folder, 7), Some(time(12)));
        assert_eq!(take(&folder, 7), None, "a process has it");
        for wrong in ["", "12", "12.x", "99999999999999999999.1", "-1.5"] {
            fs::write(path(&folder, 7), wrong).expect("a file");
            assert_eq!(take(&folder, 7), None, "{wrong:?}");
        }
        fs::remove_dir(&folder).expect("it is empty");
    }
}
