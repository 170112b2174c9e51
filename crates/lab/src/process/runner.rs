//! Runs a figure's scenarios on this machine.

use super::configuration;
use super::foreign::{self, SharedFile};
use super::load::{Load, On};
use super::target::{RAM_BYTES, Target, interface, prefill, sends};
use crate::figure::{
    Disturbance, Effort, LoadProcess, ProcessorTime, Runner, SHARED_CORES, Sample, Scenario, Sends,
    Slices, Stack, Storage, System, Workload,
};
use crate::proc::{Scheduled, cpu_seconds, ended_children_cpu_seconds};
use ::load::LoadReport;
use anyhow::{Context as _, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

/// Interval at which running loads are checked.
const LOOK: Duration = Duration::from_millis(25);

/// Runs targets and loads in separate processes, on the machine's first two processors.
#[derive(Debug)]
pub struct MachineRunner {
    /// Folder of the targets' configurations.
    folder: PathBuf,
    ram_bytes: u64,
    /// The emulated flash's cost model, once needed.
    model: Option<PathBuf>,
    /// The file that programs of other projects share, once needed.
    file: Option<SharedFile>,
}

/// Size of the emulated device of the thesis: more than the processors' caches hold.
const DRAM_SSD_MIB: u32 = 256;

impl MachineRunner {
    /// Runs on this machine, with its files in `folder`.
    #[must_use]
    pub fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            ram_bytes: RAM_BYTES,
            model: None,
            file: None,
        }
    }

    /// Starts a target with the storage of `scenario`, and writes every block once.
    fn target(&mut self, scenario: &Scenario) -> Result<Target> {
        let uses = |storage| {
            let mut processes = scenario.processes.iter();
            processes.any(|process| process.storage == storage)
        };
        let cores = scenario.layout.target_cores();
        let system = &scenario.system;
        if uses(Storage::Flash) {
            ensure!(
                system.turned.is_empty(),
                "a target with a configuration file cannot change single knobs"
            );
            let text = configuration::with_flash(system, cores, self.ram_bytes);
            return self.configured(&text, &[1, 2]);
        }
        if uses(Storage::Tokens) || uses(Storage::TokensByHost) {
            let tenants = scenario.processes.iter();
            let tenants = tenants
                .filter(|process| process.storage == Storage::TokensByHost)
                .map(|process| process.hosts)
                .sum();
            let model = self.model()?;
            let text = configuration::with_tokens(system, cores, &model, tenants);
            return self.configured(&text, &[1]);
        }
        if uses(Storage::PricedMemory) {
            let folder = self.folder.canonicalize().context("the output folder")?;
            let model = folder.join("plenty.toml");
            let plenty = configuration::plenty().to_toml();
            std::fs::write(&model, plenty)
                .with_context(|| format!("cannot write {}", model.display()))?;
            let text = configuration::with_priced_memory(system, cores, self.ram_bytes, &model);
            return self.configured(&text, &[1]);
        }
        let baseline = system.preset.to_string();
        let api = interface().to_string();
        let own = ["--api", &api, "--baseline", &baseline];
        if uses(Storage::File) {
            let cores: Vec<_> = cores.iter().map(u32::to_string).collect();
            let cores = cores.join(",");
            let file = text_of(self.file()?.path())?;
            let where_ = ["--listen", "127.0.0.1:0", "--cores", &cores, "--file", file];
            return Target::start_with(&[&where_[..], &own, system.turned].concat());
        }
        let further = [&own[..], system.turned].concat();
        let target = Target::start(cores, self.ram_bytes, &further)?;
        prefill(&target.connect(1)?)?;
        Ok(target)
    }

    /// Starts a target with a configuration, and writes the blocks of these namespaces once.
    fn configured(&self, text: &str, namespaces: &[u32]) -> Result<Target> {
        let path = self.folder.join("target.toml");
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        let target = Target::start_with(&["--config", text_of(&path)?])?;
        for &nsid in namespaces {
            prefill(&target.connect(nsid)?)?;
        }
        Ok(target)
    }

    /// Returns a local storage in the form of `bench --device`.
    fn local_device(&mut self, storage: Storage) -> Result<String> {
        match storage {
            Storage::DramSsd {
                command_us,
                page_us,
            } => Ok(format!(
                "dram-ssd+{command_us}us+{page_us}us:{DRAM_SSD_MIB}M"
            )),
            _ => Ok(format!("file:{}", text_of(self.file()?.path())?)),
        }
    }

    /// Returns the file in memory, created on first use.
    fn file(&mut self) -> Result<&SharedFile> {
        if self.file.is_none() {
            self.file = Some(SharedFile::new()?);
        }
        Ok(self.file.as_ref().expect("just made"))
    }

    /// Returns the path of the emulated flash's cost model, which is measured once, in virtual
    /// time.
    fn model(&mut self) -> Result<PathBuf> {
        if let Some(model) = &self.model {
            return Ok(model.clone());
        }
        // A relative path of a model would not be relative to the configuration.
        let folder = self.folder.canonicalize().context("the output folder")?;
        let path = folder.join("model.toml");
        let device = format!("flash:{}:1G", configuration::FLASH_PROFILE);
        let output = super::program()?
            .args(["calibrate", &device, "--virtual", "--quick", "--output"])
            .arg(&path)
            .output()
            .context("cannot start the program to measure")?;
        ensure!(
            output.status.success(),
            "the flash cannot be calibrated: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
        self.model = Some(path.clone());
        Ok(path)
    }
}

fn text_of(path: &Path) -> Result<&str> {
    path.to_str()
        .context("the output folder's name is not valid UTF-8")
}

/// Fails if this process may not use the two processors.
fn check_processors() -> Result<()> {
    let allowed =
        rustix::thread::sched_getaffinity(None).context("cannot read the allowed processors")?;
    for core in SHARED_CORES {
        ensure!(
            allowed.is_set(core as usize),
            "figures run on processors 0 and 1, but this process may not use processor {core}"
        );
    }
    Ok(())
}

impl Runner for MachineRunner {
    fn run(&mut self, scenario: &Scenario, effort: &Effort) -> Result<Sample> {
        check_processors()?;
        if scenario.system.stack == Stack::Own {
            return self.run_own(scenario, effort);
        }
        let time_before = ProcessorTime::now()?;
        let sample = match scenario.system.stack {
            Stack::Local => {
                let mut loads = Vec::new();
                for process in &scenario.processes {
                    let device = self.local_device(process.storage)?;
                    let on = On::Device(&device);
                    loads.push(Load::start(on, &scenario.system, process, effort)?);
                }
                let (reports, _) = wait(loads)?;
                let path = reports
                    .iter()
                    .find_map(|report| report.path.first().cloned());
                let apps: Vec<_> = reports.into_iter().flat_map(|report| report.apps).collect();
                Sample {
                    path,
                    ..Sample::of_reports(scenario, &apps)?
                }
            }
            _ => foreign::run(self.file()?, scenario, effort)?,
        };
        Ok(Sample {
            disturbance: Disturbance::since(&time_before)?,
            ..sample
        })
    }
}

impl MachineRunner {
    /// Runs this stack at both ends.
    fn run_own(&mut self, scenario: &Scenario, effort: &Effort) -> Result<Sample> {
        let target = self.target(scenario)?;
        let sent_before = sends()?;
        let started = Instant::now();
        let target_before = cpu_seconds(target.pid())?;
        let host_before = ended_children_cpu_seconds()?;
        let time_before = ProcessorTime::now()?;
        let loads = scenario.processes.iter();
        let loads = loads
            .map(|process| {
                let on = On::Target(target.address());
                Load::start(on, &scenario.system, process, effort)
            })
            .collect::<Result<Vec<_>>>()?;
        let (reports, scheduled) = wait(loads)?;
        let seconds = started.elapsed().as_secs_f64();
        let disturbance = Disturbance::since(&time_before)?;
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
            disturbance,
            slices: means(scheduled),
            host_sends: Sends::of_host(&switch),
            target_sends: sends()?.since(sent_before),
            ..sample
        })
    }
}

/// Warm-up of a [`load`].
pub(crate) const WARM_UP: Duration = Duration::from_millis(300);

/// Loads a target by a process of applications that is measured for `measured`, and returns its
/// report.
///
/// # Errors
/// A process that cannot be started, and requests that fail.
pub(crate) fn load(
    target: &Target,
    system: &System,
    apps: Vec<Workload>,
    measured: Duration,
) -> Result<LoadReport> {
    let effort = Effort {
        warmup: WARM_UP,
        ..Effort::new(1, measured, 1)
    };
    let on = On::Target(target.address());
    let load = Load::start(on, system, &LoadProcess::of(apps), &effort)?;
    let (mut reports, _) = wait(vec![load])?;
    let report = reports.remove(0);
    ensure!(report.errors() == 0, "{}", report.notes().join("; "));
    Ok(report)
}

/// Waits for all loads. Returns their reports in order, and the scheduling counters of the L-apps'
/// threads while all loads ran. Reading these takes time, so that is done only if applications are
/// separate processes.
fn wait(mut loads: Vec<Load>) -> Result<(Vec<LoadReport>, Scheduled)> {
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
            // In the last check, a thread may already have ended.
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

/// The means per slice; `None` if there were no slices.
fn means(scheduled: Scheduled) -> Option<Slices> {
    let slices = u32::try_from(scheduled.slices).ok();
    let slices = slices.filter(|&slices| slices > 0)?;
    Some(Slices {
        run: scheduled.run / slices,
        wait: scheduled.wait / slices,
    })
}
