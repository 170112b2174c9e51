//! Output for people and scripts: results on stdout, everything else on stderr.

use crate::exit::OutputClosed;
use anyhow::{Context as _, Result};
use base::{printable_json, printable_lines};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The form of a command's output.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    /// Results are JSON.
    pub json: bool,
}

impl Output {
    /// Prints a result: `value` with `--json`, otherwise `text`.
    ///
    /// # Errors
    /// When stdout cannot be written.
    pub fn result(self, value: &impl Serialize, text: impl std::fmt::Display) -> Result<()> {
        if self.json {
            let json = serde_json::to_string_pretty(value).context("cannot make JSON")?;
            print(format_args!("{}\n", printable_json(&json)))
        } else {
            print(format_args!("{}\n", printable_lines(&text.to_string())))
        }
    }

    /// Prints a message that is not a result on stderr.
    pub fn note(self, text: impl std::fmt::Display) {
        // Without stderr there is no reader.
        let _ = writeln!(io::stderr(), "{}", printable_lines(&text.to_string()));
    }

    /// Copies lines to stderr unchanged.
    pub fn note_all(self, lines: &str) {
        // Without stderr there is no reader.
        let _ = io::stderr().write_all(lines.as_bytes());
    }

    /// Checks that these files are writable, before a long measurement. Their content stays; new
    /// files are removed again.
    ///
    /// # Errors
    /// The first file that cannot be written.
    pub fn check_files<'a>(self, paths: impl IntoIterator<Item = &'a PathBuf>) -> Result<()> {
        for path in paths {
            let is_new = fs::symlink_metadata(path).is_err();
            // Opening and closing a pipe would signal end of file to its reader.
            if !is_new && fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir())
            {
                continue;
            }
            let opened = OpenOptions::new().append(true).create(true).open(path);
            opened.with_context(|| format!("cannot write {}", path.display()))?;
            if is_new {
                // An empty file that stays does no harm.
                let _ = fs::remove_file(path);
            }
        }
        Ok(())
    }

    /// Writes a result to a file, and prints its path on stderr.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn file(self, path: &Path, text: &str) -> Result<()> {
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
        self.note(format_args!("wrote {}", path.display()));
        Ok(())
    }

    /// A bar for `total` bytes, on stderr; invisible where that is no terminal.
    #[must_use]
    pub fn bytes_bar(self, total: Option<u64>) -> ProgressBar {
        let form = if total.is_some() {
            "{wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}"
        } else {
            "{spinner} {bytes} {bytes_per_sec}"
        };
        bar(total, form)
    }

    /// A bar for `total`, which the load generator fills, on stderr; invisible where that is no
    /// terminal.
    #[must_use]
    pub fn time_bar(self, total: Duration) -> ProgressBar {
        let total = u64::try_from(total.as_millis()).unwrap_or(u64::MAX);
        bar(Some(total), "{msg} {wide_bar} {percent}%")
    }

    /// A bar for a number of runs, on stderr; invisible where that is no terminal.
    #[must_use]
    pub fn count_bar(self) -> ProgressBar {
        bar(Some(0), "{msg} {wide_bar} {pos}/{len} {eta}")
    }
}

fn bar(total: Option<u64>, form: &str) -> ProgressBar {
    // Draws to stderr, and nothing at all where that is no terminal.
    let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr_with_hz(10));
    bar.set_style(ProgressStyle::with_template(form).expect("a form of our own"));
    bar
}

/// Prints to stdout, and makes sure that it is out.
///
/// # Errors
/// [`OutputClosed`] without a reader; otherwise the kernel's reason.
pub fn print(text: std::fmt::Arguments<'_>) -> Result<()> {
    let mut stdout = io::stdout().lock();
    written(stdout.write_fmt(text).and_then(|()| stdout.flush()))
}

/// The result of writing to stdout.
///
/// # Errors
/// As [`print()`].
pub fn written(result: io::Result<()>) -> Result<()> {
    match result {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(OutputClosed.into()),
        other => other.context("cannot write to standard output"),
    }
}

/// Creates a file that only its owner may access.
///
/// # Errors
/// It exists, or cannot be created.
pub fn new_private_file(path: &Path) -> Result<File> {
    let options = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    options.with_context(|| format!("cannot create {}; name a new file", path.display()))
}

/// An amount of bytes for people.
#[must_use]
pub fn human_bytes(bytes: u64) -> String {
    indicatif::BinaryBytes(bytes).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_checked_and_left_as_they_are() {
        let folder = block::temporary_folder("folder");
        let (old, new) = (folder.join("old"), folder.join("new"));
        fs::write(&old, "content").expect("a file");
        let output = Output { json: false };
        output.check_files([&old, &new]).expect("files");
        let content = fs::read_to_string(&old).expect("a file");
        let is_left = new.exists();
        let error = output.check_files([&folder]).expect_err("no file");
        assert_eq!((&*content, is_left), ("content", false));
        assert!(error.to_string().starts_with("cannot write"), "{error}");
    }
}
