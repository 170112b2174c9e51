//! The users of a block device.

use rustix::fs::{FileType, Mode, OFlags, major, makedev, minor, stat};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// Whether a block device is in use.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// Not in use.
    None,
    /// In use by this user, as text.
    By(String),
    /// This process may not inspect the files of all processes, and those that it may inspect do
    /// not use the device.
    Unknown,
}

/// Files kept open as a reserve of descriptors for the search, which opens two directories at a
/// time: it then also works when the process is out of descriptors, and the server can end.
#[derive(Debug)]
pub(super) struct Spare([Option<File>; 2]);

impl Spare {
    /// Opens the reserve.
    ///
    /// # Errors
    /// The process is out of descriptors.
    pub(super) fn take() -> io::Result<Self> {
        let null = || File::open("/dev/null").map(Some);
        Ok(Self([null()?, null()?]))
    }

    /// [Searches](look) with the reserve closed, and reopens it if enough descriptors are free.
    pub(super) fn look(&mut self, name: &str) -> Use {
        self.0 = [None, None];
        let found = look(name);
        if let Ok(again) = Self::take() {
            *self = again;
        }
        found
    }
}

/// Searches for users of the block device `name`, such as "ublkb0", or of one of its partitions:
/// file systems, swap, stacked devices, and processes that have it open.
///
/// Finally opens the device exclusively, which detects file systems of other mount namespaces.
/// Meanwhile nobody else can mount it, so use this only for a device that is about to be removed.
fn look(name: &str) -> Use {
    let parts = Partitions::of(name);
    if let Some(holder) = parts.holder() {
        return Use::By(holder);
    }
    match parts.process() {
        Use::None => {}
        found => return found,
    }
    // Opened write-only: this requires no read permission on the device, and writes nothing.
    let path = Path::new("/dev").join(name);
    match rustix::fs::open(&path, OFlags::RDONLY | OFlags::EXCL, Mode::empty()) {
        Err(rustix::io::Errno::BUSY) => {
            Use::By("a file system, swap, or a device on top of it".to_owned())
        }
        _ => Use::None,
    }
}

/// A block device and its partitions.
#[derive(Debug)]
pub(super) struct Partitions {
    /// Their directories in sysfs.
    folders: Vec<PathBuf>,
    /// Their device numbers.
    numbers: Vec<u64>,
}

impl Partitions {
    /// Returns the block device `name` with its partitions; none if it does not exist.
    pub(super) fn of(name: &str) -> Self {
        let folder = Path::new("/sys/block").join(name);
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        let folders = entries.map(|entry| entry.path()).chain([folder.clone()]);
        let (folders, numbers) = folders
            .filter_map(|folder| number(&folder).map(|number| (folder, number)))
            .unzip();
        Self { folders, numbers }
    }

    /// Returns a file system, swap space or stacked device that the kernel lists for this process,
    /// as text. Does not open the device; takes microseconds.
    pub(super) fn holder(&self) -> Option<String> {
        let text = |path| fs::read_to_string(path).unwrap_or_default();
        let holders = self.folders.iter().find_map(|folder| {
            let mut holders = fs::read_dir(folder.join("holders")).ok()?.flatten();
            let holder = holders.next()?.file_name();
            Some(format!("the device {} on top of it", holder.display()))
        });
        holders
            .or_else(|| self.mount_in(&text("/proc/self/mountinfo")))
            .or_else(|| self.swap_in(&text("/proc/swaps")))
    }

    /// Returns a mount of one of the devices. `[proc_pid_mountinfo(5)]`
    fn mount_in(&self, mounts: &str) -> Option<String> {
        let mount = mounts.lines().find(|line| {
            let number = line.split(' ').nth(2);
            let (_, source) = line.split_once(" - ").unwrap_or_default();
            let source = source.split(' ').nth(1);
            // Some file systems use a device number of their own.
            number.is_some_and(|number| self.has_number(number))
                || source.is_some_and(|source| self.has_path(source))
        });
        let at = mount?.split(' ').nth(4).unwrap_or_default();
        Some(format!("the file system at {at}"))
    }

    /// Returns the swap space on one of the devices. `[proc_swaps(5)]`
    fn swap_in(&self, swaps: &str) -> Option<String> {
        let mut paths = swaps.lines().filter_map(|line| line.split(' ').next());
        let path = paths.find(|path| self.has_path(path))?;
        Some(format!("swap at {path}"))
    }

    /// Returns true if one of the devices has this number, given as "major:minor".
    fn has_number(&self, text: &str) -> bool {
        let mut numbers = self.numbers.iter();
        numbers.any(|&number| text == format!("{}:{}", major(number), minor(number)))
    }

    fn has_path(&self, path: &str) -> bool {
        let names = self.folders.iter().filter_map(|folder| folder.file_name());
        let mut paths = names.map(|name| Path::new("/dev").join(name));
        paths.any(|device| device == Path::new(path))
    }

    /// Searches for a process that has one of the devices open.
    fn process(&self) -> Use {
        let Ok(processes) = fs::read_dir("/proc") else {
            return Use::Unknown;
        };
        let mut found = Use::None;
        for process in processes.flatten() {
            let number = process.file_name();
            let number = number.to_string_lossy();
            if !number.bytes().all(|byte| byte.is_ascii_digit()) {
                continue;
            }
            match has_open(&process.path().join("fd"), &self.numbers) {
                Ok(true) => return Use::By(format!("process {number}")),
                Ok(false) => {}
                Err(_) => found = Use::Unknown,
            }
        }
        found
    }
}

/// Returns true if the process has one of these block devices open.
///
/// # Errors
/// This process may not inspect the files.
fn has_open(files: &Path, devices: &[u64]) -> io::Result<bool> {
    for file in unless_gone(fs::read_dir(files))?.into_iter().flatten() {
        let path = file?.path();
        let target = unless_gone(fs::read_link(&path))?;
        // A file elsewhere may be on a file system that does not respond.
        let is_device = target.is_some_and(|target| target.starts_with("/dev"));
        let is_one = is_device
            && stat(&path).is_ok_and(|found| {
                FileType::from_raw_mode(found.st_mode) == FileType::BlockDevice
                    && devices.contains(&found.st_rdev)
            });
        if is_one {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns `None` if the object no longer exists: a closed file, or an ended process.
fn unless_gone<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(error),
        Err(_) => Ok(None),
    }
}

/// Returns the device number from a sysfs directory.
fn number(folder: &Path) -> Option<u64> {
    let text = fs::read_to_string(folder.join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(makedev(major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

    /// A device with the number 259:3 and a partition.
    fn parts() -> Partitions {
        let folder = PathBuf::from("/sys/block/ublkb7");
        Partitions {
            folders: vec![folder.join("ublkb7p1"), folder],
            numbers: vec![makedev(259, 4), makedev(259, 3)],
        }
    }

    #[test]
    fn a_device_that_is_not_there_has_no_user() {
        let parts = Partitions::of("ublkb-none");
        assert!(parts.numbers.is_empty() && parts.folders.is_empty());
        assert_eq!(parts.holder(), None);
    }

    #[test]
    fn an_open_file_that_is_no_block_device_is_none() {
        let null = File::open("/dev/null").expect("every machine has one");
        let number = rustix::fs::fstat(&null).expect("it is open").st_rdev;
        let has_open = |path| has_open(Path::new(path), &[number]).expect("it is looked at");
        assert!(!has_open("/proc/self/fd"));
        assert!(!has_open("/proc/0/fd"));
    }

    #[test]
    fn a_mount_is_found_by_its_number_or_its_source() {
        let line = |number, source| {
            format!(
                "22 27 0:21 / /proc rw - proc proc rw\n\
                 36 35 {number} /a /mnt/disk rw,noatime shared:1 master:2 - btrfs {source} rw,a=b\n"
            )
        };
        let found = |number, source| parts().mount_in(&line(number, source));
        let at = Some("the file system at /mnt/disk".to_owned());
        assert_eq!(found("259:3", "/dev/other"), at);
        assert_eq!(found("259:4", "none"), at);
        assert_eq!(found("0:51", "/dev/ublkb7p1"), at);
        assert_eq!(found("0:51", "/dev/ublkb7p11"), None);
        assert_eq!(found("259:30", "/dev/ublkb70"), None);
        assert_eq!(parts().mount_in("nonsense"), None);
    }

    #[test]
    fn swap_is_found_by_its_path() {
        let swaps = "Filename\t\t\tType\n/dev/ublkb7      partition\t1023996\t0\t-2\n";
        let found = parts().swap_in(swaps);
        assert_eq!(found, Some("swap at /dev/ublkb7".to_owned()));
        assert_eq!(parts().swap_in("/dev/sda2 partition 1 0 -2"), None);
    }

    /// A process whose open files may not be inspected must not count as one without the device:
    /// the device could be removed while it is in use.
    #[test]
    fn files_that_may_not_be_looked_at_are_not_taken_for_others() {
        // Applies to this thread only.
        let look = std::thread::spawn(|| {
            let none = CapabilitySet::empty();
            let dropped = set_capabilities(
                None,
                CapabilitySets {
                    effective: none,
                    permitted: none,
                    inheritable: none,
                },
            );
            dropped.expect("a thread may have less");
            let first = Path::new("/proc/1/fd");
            (has_open(first, &[]), parts().process())
        });
        let (first, all) = look.join().expect("it does not panic");
        // The first process may be this one.
        assert!(first.is_ok() || all != Use::None);
        let of_kind = |kind: io::ErrorKind| unless_gone::<()>(Err(kind.into()));
        of_kind(io::ErrorKind::PermissionDenied).expect_err("it is there");
        let gone = of_kind(io::ErrorKind::NotFound);
        assert_eq!(gone.expect("it is not there"), None);
    }
}
