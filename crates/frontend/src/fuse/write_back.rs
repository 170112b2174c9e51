//! Writing back data that the kernel holds for the files of a mount.

use rustix::fs::{Mode, OFlags, open, syncfs};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

/// Makes the kernel write back mapped pages of the files of a mount, and all data held by file
/// systems and block devices over loop devices of these files. Waits for at most `time`; returns
/// true if it finished.
pub(super) fn write_back(mountpoint: &Path, time: Duration) -> bool {
    let (done, is_done) = mpsc::channel();
    let mountpoint = mountpoint.to_owned();
    let thread = std::thread::Builder::new().name("write-back".to_owned());
    let spawned = thread.spawn(move || {
        // The receiver has timed out if it is closed.
        let _ = done.send(write_back_now(&mountpoint));
    });
    match spawned.map(|_| is_done.recv_timeout(time)) {
        Ok(Ok(Ok(()))) => return true,
        Ok(Ok(Err(error))) => tracing::warn!("not all cached data was written back: {error}"),
        Ok(Err(_)) => tracing::warn!(
            "not all cached data was written back within {} s",
            time.as_secs()
        ),
        Err(error) => tracing::warn!(
            "cached data was not written back: cannot start a thread: \
            {error}"
        ),
    }
    false
}

fn write_back_now(mountpoint: &Path) -> io::Result<()> {
    let sync = |path: &Path| -> io::Result<()> {
        let directory = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(syncfs(directory)?)
    };
    let mut devices = Vec::new();
    for disk in names(Path::new("/sys/block")) {
        let file = Path::new("/sys/block")
            .join(&disk)
            .join("loop/backing_file");
        let file = fs::read(file).unwrap_or_default();
        if Path::new(std::ffi::OsStr::from_bytes(file.trim_ascii_end())).starts_with(mountpoint) {
            add(disk, &mut devices);
        }
    }
    let mounts = fs::read("/proc/self/mountinfo")?;
    // The topmost devices first.
    for device in devices.iter().rev() {
        for path in mounts_of(device, &mounts) {
            sync(&path)?;
        }
        File::open(Path::new("/dev").join(device))?.sync_all()?;
    }
    sync(mountpoint)
}

/// Adds a block device, its partitions, and the devices on top of these.
fn add(name: String, devices: &mut Vec<String>) {
    if devices.contains(&name) {
        return;
    }
    let folder = Path::new("/sys/class/block").join(&name);
    let inside = names(&folder).into_iter();
    let partitions = inside.filter(|part| folder.join(part).join("partition").exists());
    let above: Vec<_> = partitions.chain(names(&folder.join("holders"))).collect();
    devices.push(name);
    above.into_iter().for_each(|name| add(name, devices));
}

/// Returns the names in a directory; none if it cannot be read.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().into_string());
    names.flatten().collect()
}

/// Returns the mount points of a block device according to the kernel's mount table.
/// `[proc_pid_mountinfo(5)]`
fn mounts_of(device: &str, table: &[u8]) -> Vec<PathBuf> {
    let number = Path::new("/sys/class/block").join(device).join("dev");
    let number = fs::read(number).unwrap_or_default();
    let (number, path) = (number.trim_ascii_end(), format!("/dev/{device}"));
    let lines = table.split(|&byte| byte == b'\n');
    let mounts = lines.filter_map(|line| {
        let words: Vec<_> = line.split(|&byte| byte == b' ').collect();
        let end = words.iter().position(|&word| word == b"-")?;
        // Some file systems use a device number of their own.
        let has_number = words
            .get(2)
            .is_some_and(|&word| word == number && !word.is_empty());
        let has_path = words
            .get(end + 2)
            .is_some_and(|&word| word == path.as_bytes());
        let place = words.get(4).filter(|_| has_number || has_path);
        place.map(|place| unescaped(place))
    });
    mounts.collect()
}

/// Decodes a path in which the kernel has escaped some bytes as `\ooo`.
fn unescaped(word: &[u8]) -> PathBuf {
    let mut path = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((&byte, others)) = rest.split_first() {
        let code = others.get(..3).filter(|_| byte == b'\\');
        let code = code.and_then(|code| u8::from_str_radix(str::from_utf8(code).ok()?, 8).ok());
        path.push(code.unwrap_or(byte));
        rest = if code.is_some() { &others[3..] } else { others };
    }
    std::ffi::OsString::from_vec(path).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found_by_the_device_or_its_path() {
        let table = b"30 25 0:40 / /a\\040b\\134 rw shared:1 - btrfs /dev/loop77 rw\n\
            31 30 259:1 / /c rw - ext4 /dev/other rw\nnonsense - \n";
        assert_eq!(mounts_of("loop77", table), [Path::new("/a b\\")]);
        assert!(mounts_of("loop7", table).is_empty());
        assert_eq!(unescaped(b"/x\\9\\04"), Path::new("/x\\9\\04"));
    }
}
