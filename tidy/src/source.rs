//! The files of the workspace, and the findings of rules.

use std::path::Path;
use std::{fmt, fs, io};

/// A text file of the workspace.
#[derive(Clone, Debug)]
pub struct Source {
    /// The path from the workspace's root, with `/`.
    pub path: String,
    /// The content.
    pub text: String,
}

/// A violation of a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The file's path from the workspace's root.
    pub path: String,
    /// The line, from 1; 0 for the whole file.
    pub line: usize,
    /// The violation, and how to repair it.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}

/// The folder of build output, which is skipped.
const SKIPPED: &str = "target";

impl Source {
    /// Creates a file with this content.
    #[must_use]
    pub fn new(path: &str, text: &str) -> Self {
        Self {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    /// Reads every Rust, Markdown and TOML file below `root`, sorted by path.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn read_all(root: &Path) -> io::Result<Vec<Self>> {
        let mut files = Vec::new();
        let mut folders = vec![root.to_path_buf()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder)? {
                let path = entry?.path();
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                if name.starts_with('.') || name == SKIPPED {
                    continue;
                }
                let kind = path.extension().unwrap_or_default().to_string_lossy();
                if path.is_dir() {
                    folders.push(path);
                } else if ["rs", "md", "toml"].contains(&kind.as_ref()) {
                    let below = path.strip_prefix(root).unwrap_or(&path);
                    let text = fs::read_to_string(&path)?;
                    files.push(Self::new(&below.to_string_lossy(), &text));
                }
            }
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(files)
    }

    /// Returns true for a Rust file.
    #[must_use]
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Returns true for a file of tests, examples or benchmarks only.
    #[must_use]
    pub fn is_test(&self) -> bool {
        ["/tests/", "/examples/", "/benches/"]
            .iter()
            .any(|folder| self.path.contains(folder))
            || self.path.ends_with("tests.rs")
    }

    /// Returns the folder of the file's crate: the path before `src`, `tests`, `examples`,
    /// `benches` or the file's name.
    #[must_use]
    pub fn krate(&self) -> &str {
        let ends = [
            "/src/",
            "/tests/",
            "/examples/",
            "/benches/",
            "/fuzz_targets/",
        ]
        .iter()
        .filter_map(|folder| self.path.find(folder));
        let end = ends.min().or_else(|| self.path.rfind('/')).unwrap_or(0);
        &self.path[..end]
    }

    /// Returns a finding in line `line` of this file, from 1.
    #[must_use]
    pub fn finding(&self, line: usize, message: impl Into<String>) -> Finding {
        Finding {
            path: self.path.clone(),
            line,
            message: message.into(),
        }
    }
}

/// Returns the code of a Rust file without comments and without the body of its inline test
/// modules, line by line.
#[must_use]
pub fn code(text: &str) -> Vec<&str> {
    let mut lines = Vec::new();
    let mut in_tests = false;
    let mut after_attribute = false;
    for line in text.lines() {
        let line_code = line.split("//").next().unwrap_or_default();
        if in_tests {
            in_tests = line != "}";
            lines.push("");
            continue;
        }
        if after_attribute && line.starts_with("mod ") && line.ends_with('{') {
            in_tests = true;
            lines.push("");
            continue;
        }
        let is_attribute = line.starts_with("#[");
        after_attribute = (after_attribute && is_attribute) || line.starts_with("#[cfg(test)]");
        lines.push(line_code);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crate_of_a_file_is_the_folder_above_its_sources() {
        let of = |path| Source::new(path, "").krate().to_owned();
        assert_eq!(of("crates/base/src/time.rs"), "crates/base");
        assert_eq!(of("crates/host/tests/all/peer/mod.rs"), "crates/host");
        assert_eq!(of("sim/src/lib.rs"), "sim");
        assert_eq!(of("fuzz/entries/src/lib.rs"), "fuzz/entries");
        assert_eq!(of("docs/x.md"), "docs");
        assert_eq!(of("README.md"), "");
    }

    #[test]
    fn comments_and_inline_tests_are_no_code() {
        let text = "use a; // b\n#[cfg(test)]\nmod tests {\n    use c;\n}\nuse d;\n";
        let expected = ["use a; ", "#[cfg(test)]", "", "", "", "use d;"];
        assert_eq!(code(text), expected);
    }
}
