//! `switchyard serve`: a target with its control plane, until a signal ends it.

use crate::args::ServeArgs;
use crate::confine::{self, Paths};
use crate::exit::Outcome;
use crate::log;
use crate::notify::Manager;
use crate::open_files;
use crate::output::{Output, human_bytes, print};
use crate::token::token;
use anyhow::{Context as _, Result, bail};
use base::units::CoreId;
use control::model::{Device, DeviceKind, Subsystem, Switch};
use control::{Configuration, Control, Plane, ServerOptions, Snapshot, StateFile};
use reactor::placement;
use serde::Serialize;
use std::net::SocketAddr;
use std::sync::Arc;
use target::{Limits, RunningTarget, Target, TargetOptions};

/// The served subsystems, as JSON.
#[derive(Debug, Serialize)]
struct Serving {
    listening: Vec<SocketAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    api: Option<String>,
    subsystems: Vec<ServedSubsystem>,
}

#[derive(Debug, Serialize)]
struct ServedSubsystem {
    nqn: String,
    hosts: String,
    namespaces: Vec<ServedNamespace>,
}

#[derive(Debug, Serialize)]
struct ServedNamespace {
    nsid: u32,
    device: String,
    bytes: u64,
    block_bytes: u64,
}

/// Serves until a signal ends it.
///
/// # Errors
/// A bad configuration, or something that the machine refuses.
pub fn run(args: &ServeArgs, output: Output) -> Result<Outcome> {
    let configuration = configuration(args)?;
    let token = token()?;
    confine(args, &configuration)?;
    let available = placement::allowed_cores()?;
    let cores: Vec<CoreId> = match &configuration.cores {
        Some(cores) => cores.iter().copied().map(CoreId).collect(),
        None => available.clone(),
    };
    placement::check_allowed(&cores)?;
    warn_of_few_files(
        open_files::raise(),
        files_wanted(&configuration, cores.len()),
    );
    let target = Target::new(limits(&configuration), cores.len())?;
    let plane = Arc::new(Plane::new(Arc::clone(&target), numbers(&cores)));
    // Before the cores start: the first host to connect finds everything in place.
    let store = args.state.as_deref().map(StateFile::open).transpose()?;
    let control = Control::resume(&configuration, plane, store).context("nothing is served")?;
    let options = TargetOptions {
        listen: configuration.listen.clone(),
        cores: cores.clone(),
        named: configuration.cores.is_some(),
        ..TargetOptions::default()
    };
    let running = RunningTarget::start(Arc::clone(&target), &options)?;
    let control = Arc::new(control);
    let others: Vec<CoreId> = available
        .into_iter()
        .filter(|core| !cores.contains(core))
        .collect();
    let server_options = ServerOptions {
        api: configuration.api.clone(),
        token,
        config_path: args.config.clone(),
        cpus: (!others.is_empty()).then(|| numbers(&others)),
    };
    if args.until_stdin_ends {
        watch_stdin(Arc::clone(&target))?;
    }
    let manager = Manager::from_environment()?;
    let (to_end, teller) = (Arc::clone(&target), manager.clone());
    let terminate = move || {
        teller.tell("STOPPING=1");
        to_end.shutdown();
    };
    let server = match control::server::run(Arc::clone(&control), server_options, terminate) {
        Ok(server) => server,
        Err(error) => {
            running.stop().context("the target did not stop")?;
            return Err(error.into());
        }
    };
    let api = server.address().map(ToString::to_string);
    let told = tell(&running.addresses, api, &control, output);
    // The process that started it may have closed its output: it serves all the same.
    if let Err(error) = told {
        tracing::warn!("{error:#}");
    }
    manager.tell("READY=1");
    let _watch = manager.watch(&target)?;
    running.join().context("a core of the target broke")?;
    server.stop();
    Ok(match target.gave_up_commands() {
        true => Outcome::Negative,
        false => Outcome::Done,
    })
}

/// Gives up what the process does not need, before it has a second thread.
fn confine(args: &ServeArgs, configuration: &Configuration) -> Result<()> {
    let (config, state) = (args.config.as_deref(), args.state.as_deref());
    confine::drop_capabilities(&args.confine)?;
    confine::confine(&args.confine, &Paths::of(configuration, config, state))?;
    log::begin()
}

/// Descriptors that are open beside connections and devices: standard streams, the runtime of the
/// control plane and connections to its interface, and those that come and go.
const OTHER_FILES: u64 = 128;

/// Descriptors of each core: its ring, and its event counter.
const CORE_FILES: u64 = 2;

/// Descriptors that everything in the configuration takes at once. A file is open once for itself,
/// and once more on each core for each namespace over it.
fn files_wanted(configuration: &Configuration, cores: usize) -> u64 {
    let cores = cores as u64;
    let is_file = |device: &&Device| matches!(device.kind, DeviceKind::File { .. });
    let files = configuration.devices.values().filter(is_file).count() as u64;
    let namespaces = configuration.subsystems.iter().flat_map(|s| &s.namespaces);
    let devices = namespaces.filter_map(|n| configuration.devices.get(&n.device));
    let channels = devices.filter(is_file).count() as u64 * cores;
    let listeners = configuration.listen.len() as u64;
    let sockets = configuration.limits.get("connections") + listeners;
    sockets + files + channels + CORE_FILES * cores + OTHER_FILES
}

/// Says so where the configuration promises more connections than there can be.
fn warn_of_few_files(limit: Option<u64>, wanted: u64) {
    if let Some(limit) = limit.filter(|&limit| limit < wanted) {
        tracing::warn!(
            "this process may have {limit} files and sockets open, and all of its connections \
             (limits.connections) would take {wanted}: hosts beyond that wait until others have \
             gone; raise the hard limit (`ulimit -Hn`, a container's `--ulimit nofile=`, \
             LimitNOFILE= in the service's unit) or lower limits.connections"
        );
    }
}

fn numbers(cores: &[CoreId]) -> Vec<u32> {
    cores.iter().map(|core| core.0).collect()
}

/// Ends the target when standard input does.
fn watch_stdin(target: Arc<Target>) -> Result<()> {
    let watch = move || {
        // An input that cannot be read has ended, too.
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        target.shutdown();
    };
    let thread = std::thread::Builder::new().name("stdin".to_owned());
    thread.spawn(watch).context("cannot start a thread")?;
    Ok(())
}

/// Returns the configuration of the flags or of the file.
fn configuration(args: &ServeArgs) -> Result<Configuration> {
    if let Some(path) = &args.config {
        return Ok(control::config::load(path)?);
    }
    let mut configuration = Configuration::default_with(args.devices.clone());
    if !args.listen.is_empty() {
        configuration.listen.clone_from(&args.listen);
    }
    if let Some(open) = configuration
        .listen
        .iter()
        .find(|address| !address.ip().is_loopback())
    {
        bail!(
            "--listen {open}: other machines could connect, and without a configuration every \
             host may; write a file with listen = [\"{open}\"] and the subsystem's allowed_hosts \
             (or allow_any_host = true) and start with --config FILE"
        );
    }
    configuration.cores = args.cores.clone().map(|cores| cores.0);
    configuration.switch = Switch(args.switch.knobs()?);
    configuration.api.clone_from(&args.api);
    control::config::validate(&configuration)?;
    Ok(configuration)
}

/// Returns the configuration's limits, which were checked, as the target takes them.
fn limits(configuration: &Configuration) -> Limits {
    Limits {
        header_digest: configuration.digests.header,
        data_digest: configuration.digests.data,
        cache_life: cache_life(),
        ..configuration.limits.for_target()
    }
}

/// Which life of the write caches it is: what files have not flushed is with the kernel, so it
/// outlives this process and not the machine. 0 where the kernel does not say.
fn cache_life() -> u64 {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    let boot = boot.map(|id| uuid::Uuid::parse_str(id.trim()));
    let (high, low) = match boot {
        Ok(Ok(boot)) => boot.as_u64_pair(),
        _ => (0, 0),
    };
    high ^ low
}

/// Says that it is ready, where, and what for.
fn tell(
    listening: &[SocketAddr],
    api: Option<String>,
    control: &Control,
    output: Output,
) -> Result<()> {
    let (configuration, snapshot) = (control.configuration(), control.snapshot());
    let subsystems = configuration
        .subsystems
        .iter()
        .map(|subsystem| served(subsystem, &snapshot));
    let serving = Serving {
        listening: listening.to_vec(),
        api,
        subsystems: subsystems.collect(),
    };
    if output.json {
        // One line, so that a script can wait for it.
        let line = serde_json::to_string(&serving).context("cannot make JSON")?;
        return print(format_args!("{line}\n"));
    }
    let mut text = String::new();
    for address in &serving.listening {
        text.push_str(&format!("listening on {address}\n"));
    }
    for subsystem in &serving.subsystems {
        text.push_str(&format!(
            "serving {} to {}\n",
            subsystem.nqn, subsystem.hosts
        ));
        for ServedNamespace {
            nsid,
            device,
            bytes,
            block_bytes,
        } in &subsystem.namespaces
        {
            let size = human_bytes(*bytes);
            text.push_str(&format!(
                "  namespace {nsid}: {device}, {size} in {block_bytes}-byte blocks\n"
            ));
        }
    }
    if let Some(api) = &serving.api {
        text.push_str(&format!("interface at {api}\n"));
    }
    print(format_args!("{text}"))
}

fn served(subsystem: &Subsystem, snapshot: &Snapshot) -> ServedSubsystem {
    let namespaces = snapshot
        .namespaces
        .iter()
        .filter(|n| n.nqn == subsystem.nqn);
    let count = subsystem.allowed_hosts.len();
    ServedSubsystem {
        nqn: subsystem.nqn.clone(),
        hosts: match (subsystem.allow_any_host, count) {
            (true, _) => "any host".to_owned(),
            (false, 1) => "1 host".to_owned(),
            (false, count) => format!("{count} hosts"),
        },
        namespaces: namespaces
            .map(|namespace| ServedNamespace {
                nsid: namespace.namespace.nsid,
                device: namespace.device.clone(),
                bytes: namespace.size_bytes,
                block_bytes: namespace.namespace.block_bytes.into(),
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use control::config::Format;

    /// The files that each core opens for each namespace were left out, so a limit was taken for
    /// enough with which connections failed.
    #[test]
    fn every_core_opens_a_file_once_more_for_each_namespace() {
        let text = r#"
            listen = ["127.0.0.1:0"]
            [limits]
            connections = 100
            [devices.disk]
            type = "file"
            path = "/nowhere"
            shared = true
            [devices.memory]
            type = "ram"
            size = "1MiB"
            [[subsystems]]
            nqn = "nqn.2026-11.io.example:a"
            allow_any_host = true
            [[subsystems.namespaces]]
            nsid = 1
            device = "disk"
            [[subsystems.namespaces]]
            nsid = 2
            device = "disk"
            [[subsystems.namespaces]]
            nsid = 3
            device = "memory"
        "#;
        let configuration = control::config::parse(text, Format::Toml).expect("a configuration");
        let wanted = 100 + 1 + 1 + 2 * 3 + CORE_FILES * 3 + OTHER_FILES;
        assert_eq!(files_wanted(&configuration, 3), wanted);
    }
}
