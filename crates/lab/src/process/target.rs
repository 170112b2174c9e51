//! This stack's target in a separate process.

use crate::figure::Sends;
use anyhow::{Context as _, Result, bail, ensure};
use config::schema::ApiAddress;
use control::client::{self, Method};
use control::snapshot::SwitchSnapshot;
use host::{Host, Namespace};
use reactor::PollPolicy;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

/// Memory of a target's namespace, in bytes: more than any cache holds.
pub const RAM_BYTES: u64 = 256 << 20;

/// `switchyard serve`, killed when dropped.
#[derive(Debug)]
pub struct Target {
    process: Child,
    address: SocketAddr,
    /// Kept open, so that the target can write to it.
    _stdout: BufReader<ChildStdout>,
}

impl Target {
    /// Starts a target that shares memory, on `cores`, and waits until it is ready.
    ///
    /// # Errors
    /// As [`Target::start_with`].
    pub fn start(cores: &[u32], ram_bytes: u64, further: &[&str]) -> Result<Self> {
        let address = "127.0.0.1:0";
        Self::start_at(super::program()?, address, cores, ram_bytes, further)
    }

    fn start_at(
        program: Command,
        address: &str,
        cores: &[u32],
        ram_bytes: u64,
        further: &[&str],
    ) -> Result<Self> {
        let cores: Vec<_> = cores.iter().map(u32::to_string).collect();
        let (cores, ram) = (cores.join(","), ram_bytes.to_string());
        let args = ["--listen", address, "--cores", &cores, "--ram", &ram];
        Self::start_program(program, &[&args[..], further].concat())
    }

    /// Starts a successor of a target that was [started](Self::start) with the same arguments, and
    /// waits until it has taken over. The successor is the program at `other`, or the same.
    ///
    /// # Errors
    /// As [`Target::start_with`].
    pub fn successor(&self, other: Option<&Path>, cores: &[u32], ram_bytes: u64) -> Result<Self> {
        let program = other.map_or_else(super::program, |path| Ok(Command::new(path)))?;
        let address = self.address.to_string();
        Self::start_at(program, &address, cores, ram_bytes, &["--take-over"])
    }

    /// Waits for the end of a target that was taken over.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn end(mut self) -> Result<ExitStatus> {
        self.process.wait().context("cannot wait for the target")
    }

    /// Starts a target and waits until it is ready.
    ///
    /// # Errors
    /// It does not start; the reason is on stderr.
    pub fn start_with(args: &[&str]) -> Result<Self> {
        Self::start_program(super::program()?, args)
    }

    fn start_program(mut program: Command, args: &[&str]) -> Result<Self> {
        let mut process = program
            .arg("serve")
            .args(args)
            // Its input ends when this process ends for any reason, and then the target ends as
            // well.
            .arg("--until-stdin-ends")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the program to measure")?;
        let stdout = process.stdout.take().expect("it was asked for");
        let mut stdout = BufReader::new(stdout);
        let mut line = String::new();
        let read = stdout.read_line(&mut line);
        let address = line
            .trim_end()
            .strip_prefix("listening on ")
            .map(str::parse);
        match (read, address) {
            (Ok(_), Some(Ok(address))) => Ok(Self {
                process,
                address,
                _stdout: stdout,
            }),
            (read, _) => {
                // It has reported on the shared stderr why it did not start.
                let _ = process.kill();
                let status = process.wait().context("cannot wait for the target")?;
                read.context("cannot read the target's output")?;
                bail!("the target did not start ({status}); see its message above")
            }
        }
    }

    /// The target's process.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Returns its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connects to a namespace; the host's own thread never polls.
    ///
    /// # Errors
    /// The connection fails.
    pub fn connect(&self, nsid: u32) -> Result<Namespace> {
        let host = Host::builder().poll(PollPolicy::Never).build()?;
        let subsystem = host.connect(&self.address.to_string(), config::schema::DEFAULT_NQN)?;
        Ok(subsystem.namespace(nsid)?)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // No data is lost: its storage is memory.
        let _ = self.process.kill();
        let _ = self.process.wait();
        if let ApiAddress::Unix(socket) = interface() {
            // A target without an HTTP interface has no socket.
            let _ = std::fs::remove_file(socket);
        }
    }
}

/// Returns the address of the HTTP interface of targets whose send counters are read: a socket that
/// only this user may open. Only one target at a time may use it.
pub(super) fn interface() -> ApiAddress {
    let name = format!("switchyard-target-{}.sock", std::process::id());
    ApiAddress::Unix(std::env::temp_dir().join(name))
}

/// Returns the send counters of the target with this [`interface`], over its I/O queues since its
/// start.
///
/// # Errors
/// It does not answer.
pub(super) fn sends() -> Result<Sends> {
    let answer = client::ask(&interface().into(), Method::GET, "/v1/switch", None)?;
    let cores: Vec<SwitchSnapshot> = client::read(&answer["cores"])?;
    let classes = cores.iter().flat_map(|core| core.stats.classes.iter());
    Ok(classes.fold(Sends::default(), |sum, (_, class)| {
        let sizes = class.caravans.sizes.buckets();
        Sends {
            sends: sum.sends + sizes.iter().sum::<u64>(),
            single: sum.single + sizes[0],
            bytes: sum.bytes + class.caravans.bytes,
        }
    }))
}

/// Writes everything once: memory that was never written is one shared page of zeroes, which would
/// stay in the cache.
///
/// # Errors
/// The namespace cannot be written.
pub fn prefill(namespace: &Namespace) -> Result<()> {
    let mut random = base::Prng::from_seed(3);
    let mut piece = vec![0; 4 << 20];
    random.fill(&mut piece);
    ensure!(
        namespace.size().is_multiple_of(piece.len() as u64),
        "a whole number of pieces"
    );
    for offset in (0..namespace.size()).step_by(piece.len()) {
        namespace
            .write(offset, &piece)
            .context("cannot fill the target's memory")?;
    }
    Ok(())
}
