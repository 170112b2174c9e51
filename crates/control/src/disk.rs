//! Checks of a disk before it is shared: it may be in use, or have data that nobody wants to lose.
//!
//! The kernel's own refusal (`O_EXCL`) and the lock of another target come when the device is opened.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use block::device::file::open_beneath;
use config::ApplyError;
use config::files::folder_above;
use config::schema::{BlockSize, Device, DeviceKind};
use rustix::fs::{Mode, OFlags};

/// The remedy for a disk with content.
const FORCE: &str = "choose another device, or share it with --force (\"force\": true over the API): \
                     hosts can then read and overwrite this content";

/// Where `blkid` is.
const PROGRAMS: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// Refuses a disk that is in use or has content, and a file that is a loop device. Whatever hosts can
/// only read, and whatever cannot be opened, passes: opening it for use says why it cannot be.
///
/// # Errors
/// [`ApplyErrorKind::Conflict`](config::ApplyErrorKind::Conflict), with what was found.
pub(crate) fn check(device: &Device, folders: &[PathBuf]) -> Result<(), ApplyError> {
    let DeviceKind::File {
        path,
        read_only: false,
        ..
    } = &device.kind
    else {
        return Ok(());
    };
    let Some(file) = open(path, folders) else {
        return Ok(());
    };
    let shown = path.display();
    match sysfs(&file) {
        Some(disk) => {
            check_use(&disk, path)?;
            check_content(&disk, path)
        }
        None => match loop_device(path) {
            Some(device) => Err(ApplyError::conflict(
                format!("{shown} is in use as {device}"),
                format!("run losetup --detach {device}, or choose another file"),
            )),
            None => Ok(()),
        },
    }
}

/// Returns the logical block of the disk at `path`; that of files otherwise.
pub(crate) fn block_size(path: &Path, folders: &[PathBuf]) -> BlockSize {
    let file = open(path, folders);
    let size = file.and_then(|file| rustix::fs::ioctl_blksszget(&file).ok());
    let size = size.and_then(|bytes| BlockSize::try_from(u64::from(bytes)).ok());
    size.unwrap_or(BlockSize::B512)
}

fn open(path: &Path, folders: &[PathBuf]) -> Option<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK;
    open_beneath(folder_above(path, folders), path, flags, Mode::empty()).ok()
}

/// Returns the place in sysfs of a block device; `None` for a file.
fn sysfs(file: &File) -> Option<PathBuf> {
    let found = file.metadata().ok()?;
    let number = found.rdev();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let is_disk = found.file_type().is_block_device();
    is_disk.then(|| format!("/sys/dev/block/{major}:{minor}").into())
}

/// Returns the names in a directory of sysfs; none without the directory.
fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let names: BTreeSet<_> = names.collect();
    names.into_iter().collect()
}

fn partitions(disk: &Path) -> Vec<String> {
    let mut names = names(disk);
    names.retain(|name| disk.join(name).join("partition").exists());
    names
}

/// Refuses a disk that is mounted, or a part of another device, or has such a partition. The kernel
/// refuses to open most of these, too, and does not say why.
fn check_use(disk: &Path, path: &Path) -> Result<(), ApplyError> {
    let parts = partitions(disk).into_iter().map(|name| disk.join(name));
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    for part in std::iter::once(disk.to_owned()).chain(parts) {
        if let Some(holder) = names(&part.join("holders")).first() {
            return Err(ApplyError::conflict(
                format!("{} is a part of {holder}", path.display()),
                format!("stop {holder} (LVM, RAID or encryption), or choose another device"),
            ));
        }
        let number = fs::read_to_string(part.join("dev")).unwrap_or_default();
        if let Some(place) = mounted_at(&mounts, number.trim()) {
            return Err(ApplyError::conflict(
                format!("{} is mounted at {place}", path.display()),
                format!("run umount {place}, or choose another device"),
            ));
        }
    }
    Ok(())
}

/// Returns where the device with this number is mounted, by `/proc/self/mountinfo`.
fn mounted_at<'a>(mounts: &'a str, number: &str) -> Option<&'a str> {
    let mut lines = mounts.lines().map(|line| line.split(' ').skip(2));
    lines.find_map(|mut words| (words.next()? == number).then(|| words.nth(1))?)
}

/// Refuses a disk with partitions, or with a signature that `blkid` knows.
fn check_content(disk: &Path, path: &Path) -> Result<(), ApplyError> {
    let shown = path.display();
    let partitions = partitions(disk);
    if !partitions.is_empty() {
        let message = format!("{shown} has partitions: {}", partitions.join(", "));
        return Err(ApplyError::conflict(message, FORCE));
    }
    let unknown = |why: &dyn std::fmt::Display| {
        ApplyError::failed(
            format!("cannot check {shown} for data: blkid: {why}"),
            "install util-linux, run the target without --confine, or share the device with \
             --force (\"force\": true over the API)",
        )
    };
    let mut blkid = Command::new("blkid");
    blkid.args(["--probe", "--output", "export"]).arg(path);
    let found = blkid.env_clear().env("PATH", PROGRAMS).output();
    let found = found.map_err(|error| unknown(&error))?;
    let message = String::from_utf8_lossy(&found.stderr);
    match found.status.code() {
        Some(0) => {
            let text = String::from_utf8_lossy(&found.stdout);
            let message = format!("{shown} has data: {}", signature(&text));
            Err(ApplyError::conflict(message, FORCE))
        }
        Some(2) if message.is_empty() => Ok(()),
        Some(8) => {
            let message = format!("{shown} has data: several signatures");
            Err(ApplyError::conflict(message, FORCE))
        }
        _ => Err(unknown(&format_args!(
            "{} {}",
            found.status,
            message.trim()
        ))),
    }
}

/// Returns what `blkid` found: `ext4 (filesystem) "root"`.
fn signature(text: &str) -> String {
    let value = |key: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once('='));
        lines.find_map(|(name, value)| (name == key).then_some(value))
    };
    let kind = value("TYPE").or_else(|| value("PTTYPE"));
    let mut found = kind.unwrap_or("an unknown signature").to_owned();
    match (value("USAGE"), value("PTTYPE")) {
        (Some(usage), _) => found.push_str(&format!(" ({usage})")),
        (None, Some(_)) => found.push_str(" (partition table)"),
        (None, None) => {}
    }
    if let Some(label) = value("LABEL") {
        found.push_str(&format!(" {label:?}"));
    }
    found
}

/// Returns the loop device that has this file, if one has.
fn loop_device(path: &Path) -> Option<String> {
    let path = path.canonicalize().ok()?;
    let mut devices = names(Path::new("/sys/block")).into_iter();
    devices.find_map(|name| {
        let file = format!("/sys/block/{name}/loop/backing_file");
        let backing = fs::read_to_string(file).ok()?;
        (Path::new(backing.trim_end()) == path).then(|| format!("/dev/{name}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_and_signatures_are_read() {
        let mounts =
            "22 1 8:2 / / rw - ext4 /dev/sda2 rw\n23 22 8:17 /a /mnt/b rw - xfs /dev/sdb1 rw\n";
        assert_eq!(mounted_at(mounts, "8:17"), Some("/mnt/b"));
        assert_eq!(mounted_at(mounts, "8:1"), None);
        assert_eq!(mounted_at("", ""), None);
        for (text, expected) in [
            (
                "LABEL=root\nTYPE=ext4\nUSAGE=filesystem\n",
                "ext4 (filesystem) \"root\"",
            ),
            ("PTUUID=1\nPTTYPE=gpt\n", "gpt (partition table)"),
            ("UUID=1\n", "an unknown signature"),
        ] {
            assert_eq!(signature(text), expected);
        }
    }
}
