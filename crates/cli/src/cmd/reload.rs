//! `switchyard reload`: applies the configuration file of a running target or of front ends, or starts
//! their successor.

use crate::args::ReloadArgs;
use crate::exit::Outcome;
use crate::output::print;
use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Starts a program as an orphan: the service manager supervises only its own children without a
/// warning.
const ORPHAN: &str = "\"$0\" \"$@\" &";

/// Sends SIGHUP, or starts the successor and waits until it serves.
///
/// # Errors
/// No such target, or a successor that does not take it over.
pub fn run(args: &ReloadArgs) -> Result<Outcome> {
    let running = PathBuf::from(format!("/proc/{}", args.pid));
    if file_of(&running)? == file_of(Path::new("/proc/self"))? {
        let pid = Pid::from_raw(args.pid).context("0 is no process ID")?;
        kill_process(pid, Signal::HUP).with_context(|| format!("cannot signal {}", args.pid))?;
        return Ok(Outcome::Done);
    }
    let mut child = successor(&running)?
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start /bin/sh")?;
    child.wait().context("cannot wait for /bin/sh")?;
    let mut stdout = child.stdout.take().context("no output")?;
    // It prints its addresses in one piece once it serves, and nothing before.
    let mut text = vec![0; 4096];
    let length = stdout.read(&mut text).context("cannot read its output")?;
    if length == 0 {
        bail!("not taken over: the running process continues; the error above has the reason");
    }
    print(format_args!("{}", String::from_utf8_lossy(&text[..length])))?;
    Ok(Outcome::Done)
}

/// Returns device and inode of the program of a process.
fn file_of(process: &Path) -> Result<(u64, u64)> {
    let file = fs::metadata(process.join("exe"));
    let file = file.with_context(|| {
        format!(
            "cannot examine {}: is it running, as the same user?",
            process.display()
        )
    })?;
    Ok((file.dev(), file.ino()))
}

/// Returns the command that starts this program in place of a running one.
fn successor(running: &Path) -> Result<Command> {
    let read = |name: &str| {
        let path = running.join(name);
        fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    let (arguments, environment) = (read("cmdline")?, read("environ")?);
    let program = std::env::current_exe().context("cannot find this program")?;
    let mut command = Command::new("/bin/sh");
    command.args(["-c", ORPHAN]).arg(program);
    command.args(take_over(strings(&arguments))?);
    command.current_dir(running.join("cwd"));
    command.env_clear();
    let variables = strings(&environment).filter_map(|variable| {
        let at = variable.as_bytes().iter().position(|&byte| byte == b'=')?;
        let (name, value) = variable.as_bytes().split_at(at);
        Some((OsStr::from_bytes(name), OsStr::from_bytes(&value[1..])))
    });
    // The watchdog of systemd names the process that it was started for.
    command.envs(variables.filter(|(name, _)| *name != "WATCHDOG_PID"));
    Ok(command)
}

/// Returns the strings of a file of /proc, which each end with a zero byte.
fn strings(bytes: &[u8]) -> impl Iterator<Item = &OsStr> {
    let strings = bytes.split_inclusive(|&byte| byte == 0);
    strings.map(|string| OsStr::from_bytes(string.strip_suffix(&[0]).unwrap_or(string)))
}

/// Returns the arguments of a successor, from those of the running process with its name.
fn take_over<'a>(arguments: impl Iterator<Item = &'a OsStr>) -> Result<Vec<OsString>> {
    let mut arguments: Vec<_> = arguments.skip(1).map(OsStr::to_owned).collect();
    let takes_over = |argument: &OsString| argument == "serve" || argument == "attach";
    if !arguments.iter().any(takes_over) {
        bail!("the process is not `switchyard serve` or `switchyard attach`: give the ID of one");
    }
    if !arguments.iter().any(|argument| argument == "--take-over") {
        arguments.push("--take-over".into());
    }
    Ok(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken_over(cmdline: &[u8]) -> Option<Vec<OsString>> {
        take_over(strings(cmdline)).ok()
    }

    #[test]
    fn a_successor_has_the_arguments_of_its_predecessor_and_takes_over() {
        let first = taken_over(b"/usr/bin/switchyard\0serve\0--state\0\0").expect("a target");
        assert_eq!(first, ["serve", "--state", "", "--take-over"]);
        let second = taken_over(b"/usr/bin/switchyard\0serve\0--take-over\0").expect("a target");
        assert_eq!(second, ["serve", "--take-over"]);
        let attached = taken_over(b"switchyard\0attach\0nbd\0").expect("a front end");
        assert_eq!(attached, ["attach", "nbd", "--take-over"]);
        assert_eq!(taken_over(b"switchyard\0top\0"), None);
        assert_eq!(taken_over(b""), None, "a zombie");
    }
}
