//! The exit code of the program, and its last message.

use base::printable_lines;
use config::with_causes;
use std::io::{self, Write as _};
use std::process::ExitCode;

/// The outcome of a command that could do its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done: exit code 0.
    Done,
    /// The answer is no (nothing found, data differed, requests failed): exit code 1.
    Negative,
}

impl Outcome {
    /// [`Done`](Self::Done) where the answer is yes.
    pub const fn of(yes: bool) -> Self {
        if yes { Self::Done } else { Self::Negative }
    }
}

/// Turns a command's result into the exit code; an error is told on stderr, with its causes.
pub fn code(result: anyhow::Result<Outcome>) -> ExitCode {
    match result {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::Negative) => ExitCode::from(1),
        // The reader of our output has seen enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // Without stderr there is no reader left.
            let message = with_causes(&error);
            let _ = writeln!(io::stderr(), "error: {}", printable_lines(&message));
            ExitCode::from(2)
        }
    }
}

/// Output without a reader; see [`crate::output`].
#[derive(Debug)]
pub struct OutputClosed;

impl std::fmt::Display for OutputClosed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("standard output was closed")
    }
}

impl std::error::Error for OutputClosed {}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<OutputClosed>().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_closed_output_is_a_quiet_end() {
        let closed = anyhow::Error::new(OutputClosed).context("cannot print");
        assert!(is_broken_pipe(&closed));
        let socket = anyhow::Error::new(io::Error::from(io::ErrorKind::BrokenPipe));
        assert!(!is_broken_pipe(&socket));
    }
}
