//! Other programs, with bounds of time and output.

use anyhow::{Context as _, Result, bail};
use std::collections::VecDeque;
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// Runs a program, and returns the last `most` bytes of its output, as text.
///
/// # Errors
/// A program that is not there, that fails (with its message), or that takes too long.
pub fn output_of(
    program: &str,
    arguments: &[&str],
    most: usize,
    timeout: Duration,
) -> Result<String> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {program}"))?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let (sender, ended) = channel();
    let errors = thread::spawn(move || stderr.map(|it| end_of(it, 4096)));
    let reader = thread::spawn(move || {
        let text = stdout.map(|it| end_of(it, most));
        // The receiver may have stopped waiting.
        let _ = sender.send(());
        text
    });
    let in_time = ended.recv_timeout(timeout).is_ok();
    if !in_time {
        // Fails only if it has ended.
        let _ = child.kill();
    }
    let status = child
        .wait()
        .with_context(|| format!("cannot wait for {program}"))?;
    let joined = |thread: thread::JoinHandle<Option<String>>| thread.join().ok().flatten();
    let (text, errors) = (joined(reader), joined(errors));
    if !in_time {
        bail!("{program} took longer than {} s", timeout.as_secs());
    }
    if !status.success() {
        let errors = errors.unwrap_or_default();
        bail!("{program} failed ({status}): {}", errors.trim());
    }
    Ok(text.unwrap_or_default())
}

/// Reads to the end, and returns the last `most` bytes.
fn end_of(mut from: impl Read, most: usize) -> String {
    let mut end = VecDeque::new();
    let mut piece = [0; 1 << 16];
    // On a read error, the text ends there.
    while let Ok(count @ 1..) = from.read(&mut piece) {
        end.extend(&piece[..count]);
        end.drain(..end.len().saturating_sub(most));
    }
    String::from_utf8_lossy(end.make_contiguous()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_have_bounds_and_reasons() {
        let run = |script: &str, timeout| {
            output_of("sh", &["-c", script], 4, timeout).map_err(|error| error.to_string())
        };
        let long = Duration::from_secs(600);
        assert_eq!(run("echo 1234567", long).as_deref(), Ok("567\n"));
        assert!(run("echo why >&2; exit 3", long).is_err_and(|it| it.ends_with(": why")));
        let error = run("exec sleep 600", Duration::ZERO).expect_err("it takes too long");
        assert!(error.contains("took longer"), "{error}");
        let error = output_of("/no/such/program", &[], 1, long).expect_err("it is not there");
        assert!(error.to_string().contains("cannot run /no"), "{error}");
    }
}
