//! Other stacks between a load and the same storage: the plain server, `nbdkit` and `tgtd`.
//!
//! Their servers run on the target's core and their clients on the load's: the plain client, fio
//! and `iscsi-perf`. Loopback ports are chosen at run time, and nothing needs privileges: `tgtd`
//! gets a control socket of its own.
//!
//! Invariants: no server outlives this process; this process never contacts or ends a server that
//! it did not start.

use crate::figure::{AppSample, Effort, LOAD_CORE, Sample, Scenario, Stack, TARGET_CORE, Workload};
use crate::folder::Folder;
use crate::plain::{OneByOne, Plain, PlainServer, Wait};
use anyhow::{Context as _, Result, bail, ensure};
use base::units::CoreId;
use load::Latency;
use reactor::placement;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Bytes of the shared file: more than a core's caches hold.
const FILE_BYTES: usize = 64 << 20;

/// A file system in memory, if there is one.
const MEMORY: &str = "/dev/shm";

/// Longest time until a server listens.
const PATIENCE: Duration = Duration::from_secs(10);

/// Interval between connection attempts to a server.
const LOOK: Duration = Duration::from_millis(10);

/// Name of `tgtd`'s only target, and number of its only logical unit with storage.
const TARGET: &str = "iqn.2026-11.io.switchyard:figure";
const UNIT: u8 = 1;

/// A file that several programs share, removed when dropped.
#[derive(Debug)]
pub(super) struct SharedFile {
    path: PathBuf,
}

impl SharedFile {
    /// A file of random content, in memory if there is such a file system.
    pub(super) fn new() -> Result<Self> {
        let memory = Path::new(MEMORY);
        let folder = if memory.is_dir() {
            memory.to_owned()
        } else {
            std::env::temp_dir()
        };
        let path = folder.join(format!("switchyard-figure-{}", std::process::id()));
        let mut content = vec![0; FILE_BYTES];
        base::Prng::from_seed(4).fill(&mut content);
        let file = Self { path };
        std::fs::write(&file.path, content)
            .with_context(|| format!("cannot write {}", file.path.display()))?;
        Ok(file)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SharedFile {
    fn drop(&mut self) {
        // The file is in memory: if it stays, only memory is lost.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Returns true if a program of this name is installed.
pub fn found(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = std::env::split_paths(&paths).chain(ROOTS.map(PathBuf::from));
    folders.any(|folder| folder.join(program).is_file())
}

/// Folders of servers that are often missing in PATH.
const ROOTS: [&str; 2] = ["/usr/sbin", "/sbin"];

/// A command for a program by its name, also outside PATH.
fn program(name: &str) -> Command {
    let roots = ROOTS.map(|root| Path::new(root).join(name));
    let there = roots.into_iter().find(|path| path.is_file());
    Command::new(there.unwrap_or_else(|| PathBuf::from(name)))
}

/// Runs a scenario with a single application at depth 1.
pub(super) fn run(file: &SharedFile, scenario: &Scenario, effort: &Effort) -> Result<Sample> {
    let mut apps = scenario.apps();
    let (Some(app), None) = (apps.next(), apps.next()) else {
        bail!("other stacks support a single application");
    };
    ensure!(
        (app.depth, app.count) == (1, 1) && matches!(app.read_percent, 0 | 100),
        "other stacks support a single thread that only reads or only writes at depth 1"
    );
    let (iops, latency) = match scenario.system.stack {
        Stack::Own | Stack::Local => bail!("not a stack of another project"),
        Stack::Plain(wait) => plain(file, wait, app, effort)?,
        Stack::Nbd => fio(&Server::nbdkit(file)?, app, effort)?,
        Stack::Iscsi => iscsi_perf(&Server::tgtd(file)?, app, effort)?,
    };
    Ok(Sample {
        apps: vec![AppSample {
            class: app.class,
            iops,
            bytes_per_second: iops * f64::from(app.bytes),
            latency,
            software: None,
        }],
        ..Sample::default()
    })
}

/// Runs the plain server and its client.
fn plain(file: &SharedFile, wait: Wait, app: &Workload, effort: &Effort) -> Result<(f64, Latency)> {
    let server = PlainServer::start(file.path(), Some(TARGET_CORE))?;
    let load = OneByOne {
        writes: app.read_percent == 0,
        bytes: app.bytes,
        device_bytes: FILE_BYTES as u64,
        warmup: effort.warmup,
        measured: effort.measured,
        seed: effort.seed,
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("one by one".to_owned());
        let thread = thread.spawn_scoped(scope, || {
            placement::pin_to(CoreId(LOAD_CORE))?;
            Plain::connect(server.address(), wait)?.run(&load)
        });
        let thread = thread.context("cannot start a thread")?;
        thread.join().expect("a load does not panic")
    })
}

/// Runs a load on its core, and returns its output.
fn output(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_owned();
    let output = Command::new("taskset")
        .args(["-c", &LOAD_CORE.to_string()])
        .arg(&program)
        .args(command.get_args())
        .stdin(Stdio::null())
        .output()
        .context("cannot start taskset, of the package util-linux")?;
    ensure!(
        output.status.success(),
        "{} fails: {}",
        program.display(),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs fio as an NBD client.
fn fio(server: &Server, app: &Workload, effort: &Effort) -> Result<(f64, Latency)> {
    let ms = |time: Duration| format!("{}ms", time.as_millis());
    let (direction, pattern) = if app.read_percent == 0 {
        ("write", "randwrite")
    } else {
        ("read", "randread")
    };
    let mut command = Command::new("fio");
    command
        .args(["--name=load", "--ioengine=nbd", "--iodepth=1"])
        .arg(format!("--uri=nbd://{}", server.address))
        .arg(format!("--rw={pattern}"))
        .arg(format!("--bs={}", app.bytes))
        .arg(format!("--randseed={}", effort.seed))
        .arg(format!("--ramp_time={}", ms(effort.warmup)))
        .arg(format!("--runtime={}", ms(effort.measured)))
        .args(["--time_based", "--output-format=json"])
        .args(["--lat_percentiles=1", "--clat_percentiles=0"])
        .arg("--percentile_list=50:95:99:99.9");
    fio_result(&output(&mut command)?, direction)
        .context("the output of fio has no latencies; measure for longer")
}

/// Parses requests per second and latency from fio's output.
fn fio_result(output: &str, direction: &str) -> Option<(f64, Latency)> {
    // A line about the connection precedes the JSON object.
    let report = output.get(output.find('{')?..)?;
    let report: serde_json::Value = serde_json::from_str(report).ok()?;
    let result = report.pointer(&format!("/jobs/0/{direction}"))?;
    let microseconds = |place: &str| {
        let nanoseconds = result.pointer(&format!("/lat_ns/{place}"))?.as_f64()?;
        Some(nanoseconds / 1e3)
    };
    let latency = Latency {
        avg: microseconds("mean")?,
        p50: microseconds("percentile/50.000000")?,
        p95: microseconds("percentile/95.000000")?,
        p99: microseconds("percentile/99.000000")?,
        p999: microseconds("percentile/99.900000")?,
        max: microseconds("max")?,
    };
    Some((result.get("iops")?.as_f64()?, latency))
}

/// Runs `iscsi-perf`; returns its average request rate, without percentiles.
fn iscsi_perf(server: &Server, app: &Workload, effort: &Effort) -> Result<(f64, Latency)> {
    ensure!(app.read_percent == 100, "iscsi-perf only reads");
    // It measures whole seconds, from its start.
    let seconds = effort.measured.as_secs_f64().ceil().max(1.0);
    let blocks = app.bytes / 512;
    let mut command = Command::new("iscsi-perf");
    command
        .args(["-r", "-m", "1", "-b", &blocks.to_string()])
        .args(["-t", &seconds.to_string()])
        .arg(format!("iscsi://{}/{TARGET}/{UNIT}", server.address));
    let iops = average(&output(&mut command)?);
    let iops = iops.context("the output of iscsi-perf has no average")?;
    let latency = Latency {
        avg: 1e6 / iops,
        p50: f64::NAN,
        p95: f64::NAN,
        p99: f64::NAN,
        p999: f64::NAN,
        max: f64::NAN,
    };
    Ok((iops, latency))
}

/// Returns the last number after "iops average".
fn average(text: &str) -> Option<f64> {
    let (_, last) = text.rsplit_once("iops average ")?;
    let number: f64 = last.split_whitespace().next()?.parse().ok()?;
    (number > 0.0).then_some(number)
}

/// A server of another project, ended when dropped.
#[derive(Debug)]
struct Server {
    process: Child,
    address: SocketAddr,
    /// Folder of its control socket.
    folder: Option<Folder>,
}

impl Server {
    /// `nbdkit` with the file as its export.
    fn nbdkit(file: &SharedFile) -> Result<Self> {
        Self::start(None, |command, address| {
            command
                .arg("nbdkit")
                .args(["--foreground", "--exit-with-parent", "--newstyle"])
                .args(["--ipaddr", &address.ip().to_string()])
                .args(["--port", &address.port().to_string()])
                .arg("file")
                .arg(file.path());
        })
    }

    /// `tgtd` with the file as its only unit.
    fn tgtd(file: &SharedFile) -> Result<Self> {
        let folder = Folder::new("tgtd")?;
        let server = Self::start(Some(folder), |command, address| {
            command
                .arg(program("tgtd").get_program())
                .args(["--foreground", "--control-port", CONTROL])
                .args(["--iscsi", &format!("portal={address}")]);
        })?;
        let file = file.path().to_string_lossy();
        let unit = UNIT.to_string();
        for words in [
            &["target", "new", "--targetname", TARGET][..],
            &[
                "logicalunit",
                "new",
                "--lun",
                &unit,
                "--backing-store",
                &file,
            ],
            &["target", "bind", "--initiator-address", "ALL"],
        ] {
            server.tgtadm(words)?;
        }
        Ok(server)
    }

    /// Runs `tgtadm` with an operation in a mode on target 1.
    fn tgtadm(&self, words: &[&str]) -> Result<()> {
        let mut command = program("tgtadm");
        set_control_socket(&mut command, self.folder.as_ref());
        let output = command
            .args(["--control-port", CONTROL, "--lld", "iscsi", "--tid", "1"])
            .args(["--mode", words[0], "--op", words[1]])
            .args(&words[2..])
            .stdin(Stdio::null())
            .output()
            .context("cannot start tgtadm")?;
        ensure!(
            output.status.success(),
            "tgtadm {}: {}",
            words.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        );
        Ok(())
    }

    /// Starts a server on the target's core, and waits until it listens on a free port.
    fn start(
        folder: Option<Folder>,
        arguments: impl FnOnce(&mut Command, SocketAddr),
    ) -> Result<Self> {
        // It cannot choose a port and report it. If another process takes the port in between, the
        // server fails with an error.
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("there is no free port")?;
        let address = free.local_addr()?;
        drop(free);
        // Programs of other projects neither choose a core nor detect the end of this process.
        let mut command = Command::new("taskset");
        command.args(["-c", &TARGET_CORE.to_string()]).args([
            "setpriv",
            "--pdeathsig",
            "KILL",
            "--",
        ]);
        arguments(&mut command, address);
        set_control_socket(&mut command, folder.as_ref());
        let process = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start taskset, of the package util-linux")?;
        let mut server = Self {
            process,
            address,
            folder,
        };
        server.settle()?;
        Ok(server)
    }

    fn settle(&mut self) -> Result<()> {
        let start = Instant::now();
        while TcpStream::connect(self.address).is_err() {
            let ended = self
                .process
                .try_wait()
                .context("cannot wait for a server")?;
            if let Some(status) = ended {
                bail!(
                    "the server ended before it listened at {}: {status}",
                    self.address
                );
            }
            ensure!(
                start.elapsed() < PATIENCE,
                "the server does not listen at {}",
                self.address
            );
            std::thread::sleep(LOOK);
        }
        Ok(())
    }
}

/// Sets the control socket of `tgtd` and `tgtadm`.
fn set_control_socket(command: &mut Command, folder: Option<&Folder>) {
    if let Some(folder) = folder {
        command.env("TGT_IPC_SOCKET", folder.path().join("control"));
    }
}

/// `tgtd`'s number on its control socket, which no other `tgtd` shares.
const CONTROL: &str = "0";

impl Drop for Server {
    fn drop(&mut self) {
        // No data is lost: its storage is memory.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_average_of_iscsi_perf_counts() {
        let text =
            "iops current 9 (0 MB/s), iops average 12 (0 MB/s)\riops average 15030 (58 MB/s)";
        assert_eq!(average(text), Some(15_030.0));
        assert_eq!(average("iops average 0 (0 MB/s)"), None);
        assert_eq!(average("no such number"), None);
    }

    #[test]
    fn latencies_are_read_from_the_output_of_fio() {
        let output = r#"fio: connected to NBD server
            {"jobs": [{"read": {"iops": 8768.2, "lat_ns": {"max": 8708840, "mean": 113272.2, "percentile":
            {"50.000000": 61696, "95.000000": 103936, "99.000000": 2408448, "99.900000": 6586368}}},
            "write": {"iops": 0.0, "lat_ns": {"max": 0, "mean": 0.0}}}]}"#;
        let (iops, latency) = fio_result(output, "read").unwrap();
        assert_eq!((iops, latency.p95, latency.max), (8768.2, 103.936, 8708.84));
        assert!(fio_result(output, "write").is_none() && fio_result("", "read").is_none());
    }

    #[test]
    fn programs_are_found_by_their_names() {
        assert!(found("true") && !found("no-program-is-called-so"));
    }
}
