//! Files of the kernel.

use std::fs;
use std::path::{Path, PathBuf};

/// The files below a root: `/`, or that of a test.
#[derive(Debug)]
pub struct System(PathBuf);

impl System {
    /// The files below `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self(root.into())
    }

    /// Returns a path below the root.
    pub fn path(&self, path: &str) -> PathBuf {
        self.0.join(path.trim_start_matches('/'))
    }

    /// Returns the text of a file without white space at the end.
    ///
    /// # Errors
    /// Why it cannot be read, for [`Finding::unknown`](super::Finding::unknown).
    pub fn text(&self, path: &str) -> Result<String, String> {
        let read = fs::read(self.path(path));
        let bytes = read.map_err(|error| format!("cannot read {path}: {error}"))?;
        Ok(String::from_utf8_lossy(&bytes).trim_end().to_owned())
    }

    /// Returns the names in a folder, in order; none if it cannot be read.
    pub fn names(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(path))
            .into_iter()
            .flatten()
            .flatten();
        let mut names: Vec<_> = entries
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    /// Returns true if there is something at the path.
    pub fn has(&self, path: &str) -> bool {
        self.path(path).exists()
    }
}

/// Returns the folder of a process in `/proc`: that of the target, or of this program.
pub fn process(pid: Option<u32>) -> String {
    pid.map_or_else(|| "/proc/self".to_owned(), |pid| format!("/proc/{pid}"))
}

/// Returns the numbers of a list such as `0-3,6`.
pub fn numbers(list: &str) -> Option<Vec<u32>> {
    if list.is_empty() {
        return Some(Vec::new());
    }
    let cores: crate::args::Cores = list.parse().ok()?;
    Some(cores.0)
}

/// Returns the value of a line `NAME: VALUE`.
pub fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    lines.find_map(|(found, value)| (found == name).then_some(value.trim()))
}

/// Returns the canonical form of a path, or the path if it has none.
pub fn canonical(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}
