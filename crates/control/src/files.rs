//! Files of the control plane: read without waiting for another process, and replaced in one step.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use crate::limits::STATE_BYTES_MAX;

/// The text of the regular file at `path`. A pipe or a device is refused instead of waited for.
///
/// # Errors
/// What the file cannot be: absent, unreadable, of another kind, longer than `bytes_max`, no text.
pub fn read_regular(path: &Path, bytes_max: usize) -> io::Result<String> {
    // Without NONBLOCK the opening of a pipe waits for its writer.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(invalid("it is no regular file"));
    }
    let mut bytes = Vec::new();
    file.take(bytes_max as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > bytes_max {
        return Err(invalid(&format!("it is larger than {bytes_max} bytes")));
    }
    String::from_utf8(bytes).map_err(|_| invalid("it is not UTF-8 text"))
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
    replace_by(path, text, File::sync_all)
}

/// The same, with what makes the file's name durable in its open directory.
fn replace_by(path: &Path, text: &str, sync: impl Fn(&File) -> io::Result<()>) -> io::Result<()> {
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
    let old = match read_regular(path, STATE_BYTES_MAX) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        read => Some(read),
    };
    put(&temporary, path, text)?;
    let Err(error) = sync(&directory) else {
        return Ok(());
    };
    let restored = match old {
        None => std::fs::remove_file(path),
        Some(old) => old.and_then(|old| put(&temporary, path, &old)),
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
fn put(temporary: &Path, path: &Path, text: &str) -> io::Result<()> {
    let put = write_durably(temporary, text).and_then(|()| std::fs::rename(temporary, path));
    if put.is_err() {
        // At worst a part of it stays, which the next attempt overwrites.
        let _ = std::fs::remove_file(temporary);
    }
    put
}

fn write_durably(path: &Path, text: &str) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
    // A pipe or a link that another process put there is not followed and not waited for.
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut file = File::from(rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?);
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refuse(_: &File) -> io::Result<()> {
        Err(io::ErrorKind::StorageFull.into())
    }

    /// The new content was there, and the caller was told that the old one was.
    #[test]
    fn a_directory_that_cannot_be_synchronized_has_the_old_content() {
        let folder = std::env::temp_dir().join(format!("switchyard-files-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let file = folder.join("state.json");
        replace_by(&file, "new", refuse).expect_err("it is not durable");
        assert!(!file.exists());
        replace(&file, "old").expect("a new file");
        replace_by(&file, "new", refuse).expect_err("it is not durable");
        let read = read_regular(&file, 100).expect("a file");
        assert_eq!(read, "old");
        assert_eq!(std::fs::read_dir(&folder).expect("a folder").count(), 1);
        std::fs::remove_dir_all(&folder).expect("it is ours");
    }
}
