//! Files that only their owner may access. Those with keys of TLS or secrets of DH-HMAC-CHAP have one
//! in each line; empty lines and lines that begin with `#` are ignored.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use secure::chap::Secret;
use secure::{KeyError, TlsKey};
use zeroize::Zeroizing;

use crate::limits::{KEY_FILE_BYTES_MAX, KEYS_PER_FILE_MAX};

/// Why keys cannot be read. The messages contain nothing of a key.
#[derive(Debug, thiserror::Error)]
#[error("cannot read keys of {}: {why}", path.display())]
pub struct KeyFileError {
    /// The file.
    pub path: PathBuf,
    /// The reason, and the remedy.
    pub why: KeyFileFault,
}

/// The reason of a [`KeyFileError`].
#[derive(Debug, thiserror::Error)]
pub enum KeyFileFault {
    /// The file cannot be opened or read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// A folder, pipe or device.
    #[error("not a regular file")]
    Kind,
    /// Other users may read or write it.
    #[error("mode {mode:04o} lets other users access it; run: chmod 600 {}", path.display())]
    Mode {
        /// The file's permissions.
        mode: u32,
        /// The file.
        path: PathBuf,
    },
    /// Too long.
    #[error("larger than {0} bytes")]
    TooLong(usize),
    /// Too many keys.
    #[error("more than {KEYS_PER_FILE_MAX} keys; remove those no longer in use")]
    TooMany,
    /// Not text.
    #[error("not a text file")]
    NotText,
    /// Nothing but empty lines and comments.
    #[error("no key in it; write one with: {0}")]
    Empty(&'static str),
    /// A line that is not a key.
    #[error("line {line}: {error}")]
    Key {
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        error: KeyError,
    },
}

/// Reads the TLS keys of a file that only its owner may access.
///
/// # Errors
///
/// A file that cannot be read, that others may access, or that contains no key or invalid ones.
pub fn tls_keys(path: &Path) -> Result<Vec<TlsKey>, KeyFileError> {
    read(path, TlsKey::parse, "switchyard key tls new")
}

/// Reads the secrets of DH-HMAC-CHAP of a file that only its owner may access.
///
/// # Errors
///
/// As [`tls_keys`].
pub fn chap_secrets(path: &Path) -> Result<Vec<Secret>, KeyFileError> {
    read(path, Secret::parse, "switchyard key chap new")
}

/// Parses the keys of a text with one in each line. `command` makes a key.
///
/// # Errors
///
/// A text without a key, with an invalid one, or with too many.
pub fn parse<T>(
    text: &str,
    key: impl Fn(&str) -> Result<T, KeyError>,
    command: &'static str,
) -> Result<Vec<T>, KeyFileFault> {
    let lines = text.lines().map(str::trim).zip(1..);
    let keys = lines.filter(|(text, _)| !text.is_empty() && !text.starts_with('#'));
    let keys = keys
        .take(KEYS_PER_FILE_MAX + 1)
        .map(|(text, line)| key(text).map_err(|error| KeyFileFault::Key { line, error }))
        .collect::<Result<Vec<_>, _>>()?;
    match keys.len() {
        0 => Err(KeyFileFault::Empty(command)),
        1..=KEYS_PER_FILE_MAX => Ok(keys),
        _ => Err(KeyFileFault::TooMany),
    }
}

fn read<T>(
    path: &Path,
    key: impl Fn(&str) -> Result<T, KeyError>,
    command: &'static str,
) -> Result<Vec<T>, KeyFileError> {
    let text = read_private(path, KEY_FILE_BYTES_MAX);
    let text = text.and_then(|text| parse(&text, key, command));
    text.map_err(|why| KeyFileError {
        path: path.to_owned(),
        why,
    })
}

/// Flags for opening a file with a secret. Without `NONBLOCK`, opening a pipe waits for its writer.
pub const READING: OFlags = OFlags::RDONLY
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK);

/// Reads a text file of at most `bytes_max` bytes that only its owner may access.
///
/// # Errors
///
/// A file that cannot be read, that others may access, that is larger, or that contains no text.
pub fn read_private(path: &Path, bytes_max: usize) -> Result<Zeroizing<String>, KeyFileFault> {
    let file = rustix::fs::open(path, READING, Mode::empty()).map_err(io::Error::from)?;
    private_text(file.into(), path, bytes_max)
}

/// Reads the open file of a `path` as [`read_private`] does.
///
/// # Errors
///
/// As [`read_private`].
pub fn private_text(
    file: File,
    path: &Path,
    bytes_max: usize,
) -> Result<Zeroizing<String>, KeyFileFault> {
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(KeyFileFault::Kind);
    }
    let mode = found.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 {
        let path = path.to_owned();
        return Err(KeyFileFault::Mode { mode, path });
    }
    // Of its final size from the start: growing would leave copies behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(bytes_max + 1));
    file.take(bytes_max as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > bytes_max {
        return Err(KeyFileFault::TooLong(bytes_max));
    }
    let text = str::from_utf8(&bytes).map_err(|_| KeyFileFault::NotText)?;
    Ok(Zeroizing::new(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};

    const KEY: &str = "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:";

    fn in_file(content: &[u8], mode: u32) -> Result<Vec<TlsKey>, KeyFileError> {
        let folder = block::Folder::new();
        let path = folder.path().join("keys");
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        tls_keys(&path)
    }

    fn error(content: &[u8], mode: u32) -> String {
        in_file(content, mode).unwrap_err().to_string()
    }

    #[test]
    fn keys_are_read_line_by_line() {
        let text = format!("# old\n\n {KEY}\r\n  # new\n{KEY}");
        assert_eq!(in_file(text.as_bytes(), 0o600).unwrap().len(), 2);
        assert_eq!(in_file(KEY.as_bytes(), 0o400).unwrap().len(), 1);
        let secret = Secret::new(None, &[9; 48]).unwrap();
        let text = secret.to_text();
        assert_eq!(parse(&text, Secret::parse, "").unwrap(), [secret]);
    }

    #[test]
    fn a_file_that_others_may_access_is_refused_with_the_remedy() {
        for mode in [0o640, 0o604, 0o620, 0o602, 0o666] {
            let error = error(KEY.as_bytes(), mode);
            assert!(error.contains(&format!("mode 0{mode:o}")), "{error}");
            assert!(error.contains("run: chmod 600 /"), "{error}");
        }
    }

    #[test]
    fn each_fault_is_named_and_no_key_shown() {
        for (content, expected) in [
            (b"# nothing\n".to_vec(), "switchyard key tls new"),
            (b"\xff\xfe".to_vec(), "not a text file"),
            (vec![b'#'; KEY_FILE_BYTES_MAX + 1], "larger than"),
            (
                format!("{KEY}\n").repeat(KEYS_PER_FILE_MAX + 1).into(),
                "more than",
            ),
            (
                format!("#\n{}", KEY.replace("VR", "VS")).into(),
                "line 2: the checksum",
            ),
        ] {
            let error = error(&content, 0o600);
            assert!(error.contains(expected), "{error}");
            assert!(!error.contains("LbtnN9"), "{error}");
        }
        let absent = tls_keys(Path::new("/nonexistent/key"))
            .unwrap_err()
            .to_string();
        assert!(absent.contains("/nonexistent/key"), "{absent}");
        let folder = tls_keys(Path::new("/")).unwrap_err().to_string();
        assert!(folder.contains("not a regular file"), "{folder}");
    }
}
