//! The Linux kernel's own initiator during changes: a namespace that is added, shrunk and removed,
//! a controller reset, FUA, and a target that is killed, taken over by other processes, and stopped
//! for half a minute, under file load in two file systems. All files must exist afterwards. After each
//! kill, the remaining file systems must be consistent after a journal replay.

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;
use switchyard_e2e::guest::{DEVICE_MIB, Data, programs, run_changes};
use switchyard_e2e::process::{DEFAULT_NQN, Serve};
use switchyard_e2e::vm::past_emulation_faults;
use switchyard_e2e::{cache_directory, find_program, output_of};

/// Number of times that the target is killed.
const ROUNDS: u32 = 20;

/// Take-overs in a row after that.
const TAKE_OVERS: u32 = 3;

/// Duration of the final stop of the target: longer than any of its host's timers.
const STOP: Duration = Duration::from_secs(30);

/// Size of the namespace for XFS, in MiB: the smallest XFS is slightly smaller.
const XFS_MIB: u64 = 320;

/// The guest expects the copy of round N at this number plus N: a new number each time because it
/// is a new volume.
const COPY_NSID: u32 = 100;

/// The target with its files.
struct Bed {
    serve: Option<Serve>,
    config: PathBuf,
    backing: PathBuf,
    backing_xfs: PathBuf,
    /// A copy of it as of the last kill.
    copy_xfs: PathBuf,
    /// Listen address of the running target.
    listen: SocketAddr,
    address: SocketAddr,
}

impl Bed {
    fn new(folder: &Path) -> Result<Self> {
        let any: SocketAddr = "127.0.0.1:0".parse()?;
        let mut bed = Self {
            serve: None,
            config: folder.join("target.toml"),
            backing: folder.join("namespace"),
            backing_xfs: folder.join("xfs"),
            copy_xfs: folder.join("xfs-copy"),
            listen: any,
            address: any,
        };
        File::create(&bed.backing)?.set_len(DEVICE_MIB << 20)?;
        for xfs in [&bed.backing_xfs, &bed.copy_xfs] {
            File::create(xfs)?.set_len(XFS_MIB << 20)?;
        }
        bed.configure("")?;
        bed.start()?;
        Ok(bed)
    }

    /// Writes the configuration, with this namespace in addition to the permanent ones.
    fn configure(&self, namespace: &str) -> Result<()> {
        let (listen, backing) = (self.listen, self.backing.display());
        let (xfs, copy) = (self.backing_xfs.display(), self.copy_xfs.display());
        let text = format!(
            "listen = [\"{listen}\"]\n[devices.file]\ntype = \"file\"\npath = \"{backing}\"\n\
             [devices.xfs]\ntype = \"file\"\npath = \"{xfs}\"\n\
             [devices.copy]\ntype = \"file\"\npath = \"{copy}\"\n\
             [devices.memory]\ntype = \"ram\"\nsize = \"8M\"\nblock_size = 512\n\
             [[subsystems]]\nnqn = \"{DEFAULT_NQN}\"\nallow_any_host = true\n\
             namespaces = [{{ nsid = 1, device = \"file\" }}, {{ nsid = 3, device = \"xfs\" }}, {namespace}]\n"
        );
        std::fs::write(&self.config, text).context("write the configuration")
    }

    fn start(&mut self) -> Result<()> {
        let config = self.config.to_str().context("a path in UTF-8")?;
        let serve = Serve::start_again(&["--config", config])?;
        self.address = serve.address();
        self.serve = Some(serve);
        Ok(())
    }

    fn reload(&self, namespace: &str) -> Result<()> {
        self.configure(namespace)?;
        self.serve.as_ref().context("a target runs")?.reload()
    }

    /// Kills the target and restarts it at the same address, with a copy of the XFS namespace for
    /// the guest to check.
    fn crash(&mut self, round: u32) -> Result<()> {
        self.serve.take().context("a target runs")?.kill()?;
        check_ext4(&self.backing)?;
        let mut copy = Command::new("cp");
        copy.arg("--sparse=always");
        output_of(copy.args([&self.backing_xfs, &self.copy_xfs]))?;
        self.listen = self.address;
        let nsid = COPY_NSID + round;
        self.configure(&format!("{{ nsid = {nsid}, device = \"copy\" }}"))?;
        self.start()
    }

    /// Has other processes take the target over: all connections stay.
    fn take_over(&mut self) -> Result<()> {
        let serve = self.serve.as_mut().context("a target runs")?;
        let config = self.config.to_str().context("a path in UTF-8")?;
        let before = serve.peers()?;
        ensure!(!before.is_empty(), "the guest is connected");
        for _ in 0..TAKE_OVERS {
            serve.take_over(&["--config", config])?;
        }
        let after = serve.peers()?;
        ensure!(before == after, "{before:?} before, {after:?} after");
        Ok(())
    }

    fn stop_for_a_while(&self) -> Result<()> {
        let serve = self.serve.as_ref().context("a target runs")?;
        serve.signal(Signal::STOP)?;
        sleep(STOP);
        serve.signal(Signal::CONT)
    }

    /// Reacts to a step of the guest.
    fn act(&mut self, step: &str) -> Result<()> {
        match step {
            "connected" => self.reload("{ nsid = 2, device = \"memory\" }"),
            "added" => self.reload("{ nsid = 2, device = \"memory\", size = \"4M\" }"),
            "resized" => self.reload(""),
            "last-round" => {
                self.take_over()?;
                self.stop_for_a_while()
            }
            step => match step.strip_prefix("round-") {
                Some(round) => self.crash(round.parse()?),
                None => Ok(()),
            },
        }
    }
}

/// Checks a copy of a namespace as if its host had crashed, too: after a journal replay, only
/// repairs are left that any crash requires. The guest does the same with XFS: a mount replays its
/// log, for which this process lacks the permission.
fn check_ext4(backing: &Path) -> Result<()> {
    let copy = backing.with_extension("copy");
    std::fs::copy(backing, &copy)?;
    let e2fsck = find_program("e2fsck").context("e2fsck")?;
    for how in [["-y", "-Ejournal_only"], ["-f", "-p"]] {
        let checked = Command::new(&e2fsck).args(how).arg(&copy).output()?;
        // Exit code 1: the file system was repaired, as far as possible without interaction.
        ensure!(
            matches!(checked.status.code(), Some(0 | 1)),
            "e2fsck {how:?}: {}\n{}{}",
            checked.status,
            String::from_utf8_lossy(&checked.stdout),
            String::from_utf8_lossy(&checked.stderr)
        );
    }
    Ok(())
}

#[test]
fn kernel_initiator_follows_changes_and_survives_a_target_that_is_killed() -> Result<()> {
    past_emulation_faults(&programs(), follow_changes)
}

fn follow_changes() -> Result<()> {
    let folder = cache_directory("changes")?;
    let mut bed = Bed::new(&folder)?;
    let address = bed.address;
    let report = run_changes(&Data::from_seed(22), address, &mut |step| bed.act(step))?;
    let steps = [
        "connected",
        "added",
        "resized",
        "removed",
        "fua",
        "reset",
        "loaded",
        "damage-found",
        "last-round",
        "went-on",
        "verified",
        "compared",
        "disconnected",
    ];
    let rounds = (1..=ROUNDS).flat_map(|round| [format!("round-{round}"), format!("xfs-{round}")]);
    let steps: Vec<String> = steps.map(str::to_owned).into_iter().chain(rounds).collect();
    report.check_survived(&steps)?;
    bed.serve.take().context("a target runs")?.stop()?;
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}
