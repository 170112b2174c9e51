//! Runs a figure's scenarios on this machine.

use super::load::{Load, Report};
use super::target::{RAM_BYTES, Target, prefill, sends};
use super::threads::Scheduled;
use super::{cpu_seconds, ended_children_cpu_seconds};
use anyhow::{Context as _, Result, ensure};
use bench::figure::{
    Effort, FLASH_READ_US, FLASH_WRITE_US, ProcessorTime, Runner, SHARED_CORES, Sample, Scenario,
    Sends, Storage, System,
};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

/// Where targets are asked what they sent.
const INTERFACE: &str = "127.0.0.1:0";

/// How often running loads are looked at.
const LOOK: Duration = Duration::from_millis(25);

/// Targets and loads in processes of their own, on the machine's first two processors.
#[derive(Debug)]
pub struct MachineRunner {
    /// Where targets' configurations are written.
    folder: PathBuf,
    ram_bytes: u64,
}

impl MachineRunner {
    /// Runs here, with files of its own in `folder`.
    ///
    /// # Errors
    /// When this process may not use the two processors.
    pub fn new(folder: &Path) -> Result<Self> {
        let allowed = rustix::thread::sched_getaffinity(None)
            .context("cannot find out which processors there are")?;
        for core in SHARED_CORES {
            ensure!(
                allowed.is_set(core as usize),
                "figures run on processors 0 and 1, and this process may not use processor {core}"
            );
        }
        Ok(Self {
            folder: folder.to_owned(),
            ram_bytes: RAM_BYTES,
        })
    }

    /// A target with the storage of `scenario`, every block written once.
    fn target(&self, scenario: &Scenario) -> Result<Target> {
        let flash = scenario
            .processes
            .iter()
            .any(|process| process.storage == Storage::Flash);
        let cores = scenario.layout.target_cores();
        let system = &scenario.system;
        if !flash {
            let baseline = system.preset.to_string();
            let own = ["--api", INTERFACE, "--baseline", &baseline];
            let further = [&own[..], system.turned].concat();
            let target = Target::start(cores, self.ram_bytes, &further)?;
            prefill(&target.connect(1)?)?;
            return Ok(target);
        }
        ensure!(
            system.turned.is_empty(),
            "a target with a configuration file has no single knobs"
        );
        let path = self.folder.join("target.toml");
        let text = with_flash(system, cores, self.ram_bytes);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        let path = path
            .to_str()
            .context("the output folder's name is not text")?;
        let target = Target::start_with(&["--config", path])?;
        for nsid in [1, 2] {
            prefill(&target.connect(nsid)?)?;
        }
        Ok(target)
    }
}

impl Runner for MachineRunner {
    fn run(&mut self, scenario: &Scenario, effort: &Effort) -> Result<Sample> {
        let mut target = self.target(scenario)?;
        let api = target.interface()?;
        let sent_before = sends(&api)?;
        let started = Instant::now();
        let target_before = cpu_seconds(target.pid())?;
        let host_before = ended_children_cpu_seconds()?;
        let time_before = ProcessorTime::now()?;
        let loads = scenario.processes.iter();
        let loads = loads
            .map(|process| Load::start(target.address(), &scenario.system, process, effort))
            .collect::<Result<Vec<_>>>()?;
        let (reports, scheduled) = wait(loads)?;
        let seconds = started.elapsed().as_secs_f64();
        let stolen_permille = ProcessorTime::now()?.stolen_permille_since(time_before);
        let host_cores = (ended_children_cpu_seconds()? - host_before) / seconds;
        let target_cores = (cpu_seconds(target.pid())? - target_before) / seconds;
        let switch: Vec<_> = reports
            .iter()
            .flat_map(|report| report.switch.clone())
            .collect();
        let apps: Vec<_> = reports.into_iter().flat_map(|report| report.apps).collect();
        let sample = Sample::of_reports(scenario, &apps)?;
        Ok(Sample {
            host_cores,
            target_cores,
            stolen_permille,
            slices: scheduled.means(),
            host_sends: Sends::of_host(&switch),
            target_sends: sends(&api)?.since(sent_before),
            ..sample
        })
    }
}

/// Waits for all loads; their reports in order, and how their L-apps' threads were scheduled
/// while all ran. To look takes time, so that is done only where applications are processes.
fn wait(mut loads: Vec<Load>) -> Result<(Vec<Report>, Scheduled)> {
    let processes = loads.len() > 1;
    let mut scheduled = Scheduled::default();
    let mut ends: Vec<Option<ExitStatus>> = vec![None; loads.len()];
    while ends.iter().any(Option::is_none) {
        std::thread::sleep(LOOK);
        for (load, end) in loads.iter_mut().zip(&mut ends) {
            if end.is_none() {
                *end = load.ended()?;
            }
        }
        if processes && ends.iter().all(Option::is_none) {
            let threads = loads.iter().map(Load::latency_threads);
            let now = threads.fold(Scheduled::default(), Scheduled::plus);
            // The last look may find that a thread has ended already.
            if now.slices >= scheduled.slices {
                scheduled = now;
            }
        }
    }
    let mut reports = Vec::new();
    for (load, end) in loads.into_iter().zip(ends) {
        reports.push(load.report(end.expect("all have ended"))?);
    }
    Ok((reports, scheduled))
}

/// The configuration of a target with memory as namespace 1 and flash as namespace 2.
fn with_flash(system: &System, cores: &[u32], ram_bytes: u64) -> String {
    format!(
        r#"listen = ["127.0.0.1:0"]
api = "{INTERFACE}"
cores = {cores:?}

[switch]
baseline = "{preset}"

[devices.memory]
type = "ram"
size = {ram_bytes}
block_size = 4096

[devices.flash]
type = "ram"
size = {ram_bytes}
block_size = 4096

[devices.flash.delay]
read_us = {FLASH_READ_US}
write_us = {FLASH_WRITE_US}

[[subsystems]]
nqn = "{nqn}"
allow_any_host = true

[[subsystems.namespaces]]
nsid = 1
device = "memory"

[[subsystems.namespaces]]
nsid = 2
device = "flash"
"#,
        preset = system.preset,
        nqn = control::model::DEFAULT_NQN,
    )
}
