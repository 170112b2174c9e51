//! The users of a block device.

use rustix::fs::{FileType, Mode, OFlags, makedev, stat};
use std::fs;
use std::path::{Path, PathBuf};

/// Returns a user of the block device `name`, such as "ublkb0", or of one of its partitions; `None`
/// where none is found.
///
/// The kernel tells of those that need the device for themselves: file systems, swap, and devices on
/// top of it. Processes are found by their open files, as far as this process may look.
pub(super) fn user_of(name: &str) -> Option<String> {
    let path = Path::new("/dev").join(name);
    // Without being open for reading it need not be readable, and no process writes to it by this.
    let alone = rustix::fs::open(&path, OFlags::RDONLY | OFlags::EXCL, Mode::empty());
    if matches!(alone, Err(rustix::io::Errno::BUSY)) {
        return Some("a file system, swap, or a device on top of it".to_owned());
    }
    drop(alone);
    let devices = numbers(Path::new("/sys/block").join(name));
    let processes = fs::read_dir("/proc").ok()?.flatten();
    for process in processes {
        let number = process.file_name();
        let number = number.to_string_lossy();
        if number.bytes().all(|byte| byte.is_ascii_digit())
            && has_open(&process.path().join("fd"), &devices)
        {
            return Some(format!("process {number}"));
        }
    }
    None
}

/// Returns true if one of a process's open files is one of these block devices.
fn has_open(files: &Path, devices: &[u64]) -> bool {
    let Ok(files) = fs::read_dir(files) else {
        // The process has ended, or is not to be looked at.
        return false;
    };
    files.flatten().any(|file| {
        let path = file.path();
        // A file elsewhere may be of a file system that does not answer.
        let is_device = fs::read_link(&path).is_ok_and(|target| target.starts_with("/dev"));
        is_device
            && stat(&path).is_ok_and(|found| {
                FileType::from_raw_mode(found.st_mode) == FileType::BlockDevice
                    && devices.contains(&found.st_rdev)
            })
    })
}

/// Returns the device numbers of a block device and of its partitions.
fn numbers(folder: PathBuf) -> Vec<u64> {
    let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
    let folders = entries.map(|entry| entry.path()).chain([folder.clone()]);
    let number = |folder: PathBuf| {
        let text = fs::read_to_string(folder.join("dev")).ok()?;
        let (major, minor) = text.trim().split_once(':')?;
        Some(makedev(major.parse().ok()?, minor.parse().ok()?))
    };
    folders.filter_map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn a_device_that_is_not_there_has_no_user() {
        assert_eq!(user_of("ublkb-none"), None);
        assert!(numbers(PathBuf::from("/sys/block/ublkb-none")).is_empty());
    }

    #[test]
    fn an_open_file_that_is_no_block_device_is_none() {
        let null = File::open("/dev/null").expect("every machine has one");
        let number = rustix::fs::fstat(&null).expect("it is open").st_rdev;
        assert!(!has_open(Path::new("/proc/self/fd"), &[number]));
        assert!(!has_open(Path::new("/proc/0/fd"), &[number]));
    }
}
