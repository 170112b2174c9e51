//! Faults of a configuration, with their places and remedies.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::node::Node;
use crate::limits::PROBLEMS_MAX;

/// A key's place in a configuration, from the root: `subsystems[0].nqn`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) steps: Vec<PlaceStep>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PlaceStep {
    Key(String),
    Index(usize),
}

impl Place {
    pub(crate) fn root() -> Self {
        Self::default()
    }

    /// The place of `key` in the table here.
    pub(crate) fn key(&self, key: &str) -> Self {
        self.with(PlaceStep::Key(key.to_owned()))
    }

    /// The place of item `index` of the array here.
    pub(crate) fn index(&self, index: usize) -> Self {
        self.with(PlaceStep::Index(index))
    }

    pub(crate) fn steps(&self) -> &[PlaceStep] {
        &self.steps
    }

    fn with(&self, step: PlaceStep) -> Self {
        let mut steps = self.steps.clone();
        steps.push(step);
        Self { steps }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, step) in self.steps.iter().enumerate() {
            match step {
                PlaceStep::Index(index) => write!(f, "[{index}]")?,
                PlaceStep::Key(key) => {
                    if number > 0 {
                        f.write_str(".")?;
                    }
                    let bare = !key.is_empty()
                        && key
                            .bytes()
                            .all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b));
                    if bare {
                        f.write_str(key)?;
                    } else {
                        write!(f, "{key:?}")?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The line in the text, from 1, where there is a text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// The key; empty when the text as a whole is meant.
    pub key: String,
    /// The fault.
    pub error: String,
    /// The remedy.
    pub what_to_do: String,
    #[serde(skip)]
    pub(crate) place: Place,
}

impl Problem {
    pub(crate) fn new(
        place: &Place,
        error: impl Into<String>,
        what_to_do: impl Into<String>,
    ) -> Self {
        Self {
            line: None,
            key: place.to_string(),
            error: error.into(),
            what_to_do: what_to_do.into(),
            place: place.clone(),
        }
    }

    pub(crate) fn of_file(error: impl Into<String>, what_to_do: impl Into<String>) -> Self {
        Self::new(&Place::root(), error, what_to_do)
    }

    pub(crate) fn at_line(mut self, line: usize) -> Self {
        self.line = Some(line);
        self
    }
}

/// Everything that is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    file: Option<PathBuf>,
    problems: Vec<Problem>,
    left_out: usize,
}

impl ConfigError {
    /// The problems, in order of their lines.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// The same problems, in the file at `path`.
    #[must_use]
    pub fn in_file(mut self, path: &Path) -> Self {
        self.file = Some(path.to_owned());
        self
    }

    pub(crate) fn single(problem: Problem) -> Self {
        Self::unlocated(vec![problem])
    }

    /// Problems in a configuration that no text was read for.
    pub(crate) fn unlocated(mut problems: Vec<Problem>) -> Self {
        let left_out = problems.len().saturating_sub(PROBLEMS_MAX);
        problems.truncate(PROBLEMS_MAX);
        Self {
            file: None,
            problems,
            left_out,
        }
    }

    /// Problems in `text`, which was read as `root`.
    pub(crate) fn located(mut problems: Vec<Problem>, root: &Node, text: &str) -> Self {
        for problem in &mut problems {
            problem.line = root
                .offset_of(&problem.place)
                .map(|offset| line_of(text, offset));
        }
        problems.sort_by_key(|problem| problem.line);
        Self::unlocated(problems)
    }
}

/// The line of the byte at `offset`, from 1.
pub(crate) fn line_of(text: &str, offset: usize) -> usize {
    let end = offset.min(text.len());
    1 + text.as_bytes()[..end]
        .iter()
        .filter(|&&b| b == b'\n')
        .count()
}

impl fmt::Display for ConfigError {
    /// One line for each problem: `file:line: key: what is wrong; what would be right`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, problem) in self.problems.iter().enumerate() {
            if number > 0 {
                f.write_str("\n")?;
            }
            match (&self.file, problem.line) {
                (Some(file), Some(line)) => write!(f, "{}:{line}: ", file.display())?,
                (Some(file), None) => write!(f, "{}: ", file.display())?,
                (None, Some(line)) => write!(f, "line {line}: ")?,
                (None, None) => {}
            }
            if !problem.key.is_empty() {
                write!(f, "{}: ", problem.key)?;
            }
            write!(f, "{}; {}", problem.error, problem.what_to_do)?;
        }
        if self.left_out > 0 {
            write!(f, "\nand {} problems more", self.left_out)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}
