//! `switchyard attach` as a process.

use crate::limits::READY_DEADLINE;
use crate::process::{Process, switchyard_binary};
use anyhow::{Context as _, Result};
use std::process::Command;
use std::time::Duration;

/// A running `switchyard attach`.
#[derive(Debug)]
pub struct Attach {
    process: Process,
    uri: String,
}

impl Attach {
    /// Starts an NBD server with these arguments, and waits until it is ready.
    ///
    /// # Errors
    /// If it ends, or is not ready before the deadline.
    pub fn nbd(arguments: &[&str]) -> Result<Self> {
        Self::start("nbd", arguments)
    }

    /// Starts a vhost-user back end with these arguments, and waits until it is ready; its URI is
    /// the path of its socket.
    ///
    /// # Errors
    /// Like [`Attach::nbd`].
    pub fn vhost(arguments: &[&str]) -> Result<Self> {
        Self::start("vhost", arguments)
    }

    fn start(kind: &str, arguments: &[&str]) -> Result<Self> {
        let mut command = Command::new(switchyard_binary()?);
        command.args(["attach", kind]).args(arguments);
        let mut process = Process::start(&mut command)?;
        let uri = process.wait_for("a line with its URI", READY_DEADLINE, |stdout, _| {
            let ready = stdout
                .lines()
                .find_map(|line| line.strip_prefix("ready: "))?;
            Some(ready.split_once(',')?.0.to_owned())
        })?;
        Ok(Self { process, uri })
    }

    /// Returns the URI for clients.
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// Returns the port of a server that listens on TCP.
    ///
    /// # Errors
    /// If it listens on a Unix socket.
    pub fn port(&self) -> Result<u16> {
        let port = self.uri.rsplit_once(':').map(|(_, port)| port.parse());
        port.context("a URI with a port")?
            .context("a port is a number")
    }

    /// Ends it with SIGTERM and requires exit code 0; returns its output on stderr.
    ///
    /// # Errors
    /// If it does not end before the deadline, or with another exit code.
    pub fn stop(self) -> Result<String> {
        self.process.stop()
    }

    /// Stops it with SIGSTOP, and continues it after `time`.
    ///
    /// # Errors
    /// If it has ended.
    pub fn stand_still(&self, time: Duration) -> Result<()> {
        self.process.stand_still(time)
    }

    /// Ends it with SIGKILL.
    ///
    /// # Errors
    /// If it cannot be killed.
    pub fn kill(self) -> Result<()> {
        self.process.kill()
    }
}
