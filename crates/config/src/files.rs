//! Files of the control plane: read without waiting for another process, and replaced in one step.

use std::fs::{File, Metadata};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, fchown};
use std::path::{Path, PathBuf};

use block::device::file::open_beneath;
use rustix::fs::{Mode, OFlags};

use crate::limits::REPLACED_BYTES_MAX;

/// Flags for reading. Without `NONBLOCK` the opening of a pipe waits for its writer.
const READING: OFlags = OFlags::RDONLY
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK);

/// The text of the regular file at `path`. A pipe or a device is refused instead of waited for.
///
/// # Errors
/// What the file cannot be: absent, unreadable, of another kind, longer than `bytes_max`, no text.
pub fn read_regular(path: &Path, bytes_max: usize) -> io::Result<String> {
    let file = rustix::fs::open(path, READING, Mode::empty())?;
    regular_text(file.into(), bytes_max)
}

/// The same for a file below `folder`, out of which no symbolic link may lead.
///
/// # Errors
/// As [`read_regular`].
pub fn read_regular_beneath(folder: &Path, path: &Path, bytes_max: usize) -> io::Result<String> {
    regular_text(
        open_beneath(folder, path, READING, Mode::empty())?,
        bytes_max,
    )
}

/// Returns the one of `folders` that `path` lies below; an empty path, below which nothing lies, where
/// there is none.
#[must_use]
pub fn folder_above<'a>(path: &Path, folders: &'a [PathBuf]) -> &'a Path {
    let is_above = |folder: &&PathBuf| path.strip_prefix(folder).is_ok();
    folders
        .iter()
        .find(is_above)
        .map_or(Path::new(""), |folder| folder)
}

fn regular_text(file: File, bytes_max: usize) -> io::Result<String> {
    check_regular(&file.metadata()?)?;
    text(file, bytes_max)
}

/// The text of whatever is at `path`: for that of a pipe it waits until the writer has closed it.
///
/// # Errors
/// What it cannot be: absent, unreadable, longer than `bytes_max`, no text.
pub fn read_any(path: &Path, bytes_max: usize) -> io::Result<String> {
    text(File::open(path)?, bytes_max)
}

fn text(file: File, bytes_max: usize) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.take(bytes_max as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > bytes_max {
        let reason = format!("it is larger than {bytes_max} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, reason));
    }
    String::from_utf8(bytes).map_err(|_| invalid("it is not UTF-8 text"))
}

fn check_regular(found: &Metadata) -> io::Result<()> {
    if found.is_file() {
        return Ok(());
    }
    Err(invalid("it is no regular file"))
}

fn invalid(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

/// Makes `text` the content of the file at `path`: after a crash at any moment it has the old
/// content or the new one, and once this returned, the new one. Only its owner may read it.
///
/// # Errors
/// What the kernel says. The old content stays, or is there again; where it cannot be put back, the
/// error says that the new one is there.
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    replace_by(path, text, &Access::Owner, File::sync_all)
}

/// The same for a file that others may read, such as a configuration: it keeps its owner and mode,
/// and a new one has those of any new file. Where a symbolic link is at `path`, it replaces what
/// that leads to.
///
/// # Errors
/// As [`replace`]; a path of something else than a file, or an owner that this user cannot give it.
pub fn replace_shared(path: &Path, text: &str) -> io::Result<()> {
    let found = match std::fs::canonicalize(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return replace_by(path, text, &Access::New, File::sync_all);
        }
        found => found?,
    };
    let before = found.metadata()?;
    check_regular(&before)?;
    replace_by(&found, text, &Access::Kept(before), File::sync_all)
}

/// The owner and the mode of a file that is written.
enum Access {
    /// Only its owner, this user, may read and write it.
    Owner,
    /// As any new file.
    New,
    /// As this one.
    Kept(Metadata),
}

/// The same, with what makes the file's name durable in its open directory.
fn replace_by(
    path: &Path,
    text: &str,
    access: &Access,
    sync: impl Fn(&File) -> io::Result<()>,
) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?;
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let mut temporary = name.to_owned();
    temporary.push(".new");
    let temporary = directory.join(temporary);
    // Opened and read first: once the file has its new content, little may fail.
    let directory = File::open(directory)?;
    let old = match read_regular(path, REPLACED_BYTES_MAX) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        read => Some(read),
    };
    put(&temporary, path, text, access)?;
    let Err(error) = sync(&directory) else {
        return Ok(());
    };
    let restored = match old {
        None => std::fs::remove_file(path),
        Some(old) => old.and_then(|old| put(&temporary, path, &old, access)),
    };
    match restored {
        // As durable as it is without another attempt.
        Ok(()) => Err(error),
        Err(restore) => Err(io::Error::new(
            error.kind(),
            format!("{error}, and the old content cannot be put back ({restore}): it is replaced"),
        )),
    }
}

/// Puts a file with this content in the place of the one at `path`.
fn put(temporary: &Path, path: &Path, text: &str, access: &Access) -> io::Result<()> {
    let written = write_durably(temporary, text, access);
    let put = written.and_then(|()| std::fs::rename(temporary, path));
    if put.is_err() {
        // At worst a part of it stays, which the next attempt overwrites.
        let _ = std::fs::remove_file(temporary);
    }
    put
}

fn write_durably(path: &Path, text: &str, access: &Access) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
    // A pipe or a link that another process put there is not followed and not waited for.
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mode = match access {
        Access::New => Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH,
        Access::Owner | Access::Kept(_) => Mode::RUSR | Mode::WUSR,
    };
    let mut file = File::from(rustix::fs::open(path, flags, mode)?);
    file.write_all(text.as_bytes())?;
    if let Access::Kept(before) = access {
        let now = file.metadata()?;
        if (now.uid(), now.gid()) != (before.uid(), before.gid()) {
            fchown(&file, Some(before.uid()), Some(before.gid()))?;
        }
        file.set_permissions(before.permissions())?;
    }
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    fn refuse(_: &File) -> io::Result<()> {
        Err(io::ErrorKind::StorageFull.into())
    }

    /// The new content was there, and the caller was told that the old one was.
    #[test]
    fn a_directory_that_cannot_be_synchronized_has_the_old_content() {
        let folder = block::temporary_folder("folder");
        let file = folder.join("state.json");
        replace_by(&file, "new", &Access::Owner, refuse).expect_err("it is not durable");
        assert!(!file.exists());
        replace(&file, "old").expect("a new file");
        replace_by(&file, "new", &Access::Owner, refuse).expect_err("it is not durable");
        let read = read_regular(&file, 100).expect("a file");
        assert_eq!(read, "old");
        assert_eq!(std::fs::read_dir(&folder).expect("a folder").count(), 1);
    }

    /// A service that runs as a user of its own could not read its configuration any more.
    #[test]
    fn a_shared_file_keeps_its_owner_its_mode_and_the_link_to_it() {
        let folder = block::temporary_folder("folder");
        let [file, link, other] = ["target.toml", "link", "other"].map(|name| folder.join(name));
        let of = |path: &Path| {
            let found = std::fs::symlink_metadata(path).expect("it is there");
            (found.uid(), found.gid(), found.mode() & 0o7777)
        };
        replace_shared(&file, "new").expect("a new file");
        std::fs::write(&other, "").expect("a file");
        assert_eq!(of(&file).2, of(&other).2 & 0o644);
        replace(&other, "").expect("a file");
        assert_eq!(of(&other).2, 0o600);

        std::fs::set_permissions(&file, Permissions::from_mode(0o604)).expect("it is ours");
        let (mut uid, mut gid, mode) = of(&file);
        if rustix::process::geteuid().is_root() {
            (uid, gid) = (12, 34);
            std::os::unix::fs::chown(&file, Some(uid), Some(gid)).expect("we are root");
        }
        std::os::unix::fs::symlink("target.toml", &link).expect("a link");
        for path in [&file, &link] {
            replace_shared(path, &path.display().to_string()).expect("it is there");
            let read = read_regular(&file, 1000).expect("a file");
            assert_eq!(read, path.display().to_string());
            assert_eq!(of(&file), (uid, gid, mode));
        }
        assert!(link.is_symlink());
        replace_shared(&folder, "").expect_err("it is a folder");
        assert_eq!(std::fs::read_dir(&folder).expect("a folder").count(), 3);
    }
}
