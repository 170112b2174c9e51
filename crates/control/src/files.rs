//! Files of the control plane: read without waiting for another process, and replaced in one step.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

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
/// What the kernel says; the old content stays then.
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?;
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let mut temporary = name.to_owned();
    temporary.push(".new");
    let temporary = directory.join(temporary);
    let written = write_durably(&temporary, text).and_then(|()| std::fs::rename(&temporary, path));
    if written.is_err() {
        // At worst a part of it stays, which the next attempt overwrites.
        let _ = std::fs::remove_file(&temporary);
    }
    written?;
    // The new name is durable with its directory.
    File::open(directory)?.sync_all()
}

fn write_durably(path: &Path, text: &str) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
    // A pipe or a link that another process put there is not followed and not waited for.
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut file = File::from(rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?);
    file.write_all(text.as_bytes())?;
    file.sync_all()
}
