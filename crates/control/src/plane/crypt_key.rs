//! The key of an encrypted device: from a file, or from a command that prints it.

use crate::limits::{CRYPT_KEY_BYTES_MAX, CRYPT_KEY_COMMAND_TIME};
use block::DeviceError;
use block::device::file::open_beneath;
use block::layer::CryptKey;
use config::files::folder_above;
use config::schema::Crypt;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::Mode;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use transport::key_file::{READING, private_text, read_private};
use zeroize::Zeroizing;

/// Pause between two looks at a command that closed its output.
const EXIT_PAUSE: Duration = Duration::from_millis(5);

/// Reads the key of a device. The file lies below one of `folders` where there are such.
///
/// # Errors
/// [`DeviceError::Invalid`] for a file that cannot be read or that other users may access, a
/// command that fails, and a text that is not a key. The error contains nothing of the text.
pub fn read(crypt: &Crypt, folders: Option<&[PathBuf]>) -> Result<CryptKey, DeviceError> {
    let (text, place) = match (&crypt.key_file, crypt.key_command.as_slice()) {
        (Some(path), []) => {
            let place = format!("the key file {}", path.display());
            (of_file(path, folders), place)
        }
        (None, [program, arguments @ ..]) if folders.is_none() => {
            let place = format!("the key command {program}");
            (of_command(program, arguments), place)
        }
        _ => {
            let reason = "crypt needs key_file or, in the configuration file, key_command";
            return Err(DeviceError::Invalid(reason.to_owned()));
        }
    };
    let failed = |error: &dyn std::fmt::Display| DeviceError::Invalid(format!("{place}: {error}"));
    let text = text.map_err(|error| failed(&error))?;
    CryptKey::from_text(&text).map_err(|error| failed(&error))
}

fn of_file(path: &Path, folders: Option<&[PathBuf]>) -> io::Result<Zeroizing<String>> {
    let text = match folders {
        None => read_private(path, CRYPT_KEY_BYTES_MAX),
        Some(folders) => {
            let folder = folder_above(path, folders);
            let file = open_beneath(folder, path, READING, Mode::empty())?;
            private_text(file, path, CRYPT_KEY_BYTES_MAX)
        }
    };
    text.map_err(io::Error::other)
}

/// Runs a program without a shell, and returns its output.
fn of_command(program: &str, arguments: &[String]) -> io::Result<Zeroizing<String>> {
    let deadline = Instant::now() + CRYPT_KEY_COMMAND_TIME;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    let mut running = Running(command.stdout(Stdio::piped()).spawn()?);
    let output = running.0.stdout.take();
    let mut output = output.ok_or_else(|| io::Error::other("it has no output"))?;
    let late = || {
        let seconds = CRYPT_KEY_COMMAND_TIME.as_secs();
        io::Error::other(format!("it did not end within {seconds} s and was killed"))
    };
    let mut bytes = Buffer::default();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
        let mut ready = [PollFd::new(&output, PollFlags::IN)];
        match poll(&mut ready, Some(&timeout)) {
            Err(rustix::io::Errno::INTR) => continue,
            Ok(0) => return Err(late()),
            ready => ready?,
        };
        if !bytes.read_from(&mut output)? {
            break;
        }
    }
    let status = loop {
        match running.0.try_wait()? {
            Some(status) => break status,
            None if Instant::now() >= deadline => return Err(late()),
            None => std::thread::sleep(EXIT_PAUSE),
        }
    };
    if !status.success() {
        return Err(io::Error::other(format!(
            "it failed ({status}); its messages are in the log"
        )));
    }
    bytes.text()
}

/// A child process that ends with this value.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail for a process that has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Bytes of a key's text: a fixed place, so that no copy is left behind.
struct Buffer {
    bytes: Zeroizing<[u8; CRYPT_KEY_BYTES_MAX + 1]>,
    len: usize,
}

impl Default for Buffer {
    fn default() -> Self {
        Self {
            bytes: Zeroizing::new([0; CRYPT_KEY_BYTES_MAX + 1]),
            len: 0,
        }
    }
}

impl Buffer {
    /// Reads once; returns false at the end.
    fn read_from(&mut self, mut source: impl Read) -> io::Result<bool> {
        let count = match source.read(&mut self.bytes[self.len..]) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(true),
            count => count?,
        };
        self.len += count;
        if self.len > CRYPT_KEY_BYTES_MAX {
            let reason = format!("it has more than {CRYPT_KEY_BYTES_MAX} bytes");
            return Err(io::Error::other(reason));
        }
        Ok(count > 0)
    }

    fn text(&self) -> io::Result<Zeroizing<String>> {
        let text = str::from_utf8(&self.bytes[..self.len]);
        let text = text.map_err(|_| io::Error::other("it is not text"))?;
        Ok(Zeroizing::new(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

    fn by_command(script: &str) -> Result<CryptKey, String> {
        let crypt = Crypt {
            key_file: None,
            key_command: ["sh", "-c", script].map(str::to_owned).into(),
            create: false,
        };
        read(&crypt, None).map_err(|error| error.to_string())
    }

    fn by_file(content: &[u8], mode: u32, beneath: bool) -> Result<CryptKey, String> {
        let folder = block::Folder::new();
        let path = folder.path().join("key");
        fs::write(&path, content).expect("a new file");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("our own file");
        let crypt = Crypt {
            key_file: Some(path),
            key_command: Vec::new(),
            create: false,
        };
        let folders = [folder.path().to_owned()];
        read(&crypt, beneath.then_some(&folders)).map_err(|error| error.to_string())
    }

    #[test]
    fn keys_come_from_files_and_commands() {
        for beneath in [false, true] {
            by_file(KEY.as_bytes(), 0o600, beneath).expect("a key");
        }
        by_command(&format!("echo {KEY}")).expect("a key");
    }

    #[test]
    fn each_fault_is_named_and_nothing_of_the_text_shown() {
        for (content, mode, expected) in [
            (KEY.as_bytes().to_vec(), 0o640, "run: chmod 600 /"),
            (
                vec![b'A'; CRYPT_KEY_BYTES_MAX + 1],
                0o600,
                "larger than 4096 bytes",
            ),
            (vec![0xFF; 9], 0o600, "not a text file"),
            (
                KEY.as_bytes()[..40].to_vec(),
                0o600,
                "openssl rand -base64 32",
            ),
        ] {
            let error = by_file(&content, mode, false).expect_err(expected);
            assert!(
                error.contains(expected) && error.contains("/key: "),
                "{error}"
            );
            assert!(
                !error.contains("AAEC") && !error.contains("AAAA"),
                "{error}"
            );
        }
        for (script, expected) in [
            ("exit 3".to_owned(), "exit status: 3"),
            (format!("echo {KEY}; exit 1"), "exit status: 1"),
            ("yes AAAA".to_owned(), "more than 4096 bytes"),
            ("echo AAAA".to_owned(), "openssl rand -base64 32"),
        ] {
            let error = by_command(&script).expect_err(expected);
            assert!(error.contains(expected), "{error}");
            assert!(
                !error.contains("AAEC") && !error.contains("AAAA"),
                "{error}"
            );
        }
        let absent = Crypt {
            key_file: None,
            key_command: vec!["/nonexistent/program".to_owned()],
            create: false,
        };
        let error = read(&absent, None).expect_err("no program").to_string();
        assert!(
            error.contains("/nonexistent/program: No such file"),
            "{error}"
        );
        let over_the_interface = read(&absent, Some(&[])).expect_err("no commands");
        assert!(over_the_interface.to_string().contains("key_file"));
    }
}
