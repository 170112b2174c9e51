//! `switchyard serve`: runs a target with its control plane until a signal.

use crate::args::ServeArgs;
use crate::exit::Outcome;
use crate::log;
use crate::output::{Output, human_bytes, print};
use anyhow::{Context as _, Result, bail};
use config::schema::{Authentication, Listener, Subsystem, Switch, TlsMode};
use config::{Configuration, with_causes};
use control::process::confine::{self, Paths};
use control::socket_access::SocketAccess;
use control::{Serving, ServingOptions, Snapshot};
use serde::Serialize;
use std::net::SocketAddr;
use std::sync::Arc;
use target::Target;

/// The served subsystems, as JSON.
#[derive(Debug, Serialize)]
struct Served {
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

/// Serves until a signal.
///
/// # Errors
/// An invalid configuration, or a failed system call at start.
pub fn run(args: &ServeArgs, output: Output) -> Result<Outcome> {
    let configuration = configuration(args)?;
    let token = control::client::token()?;
    confine(args, &configuration)?;
    let options = ServingOptions {
        config_path: args.config.clone(),
        state_path: args.state.clone(),
        token,
        take_over: args.take_over,
    };
    let serving = Serving::start(&configuration, options)?;
    if args.until_stdin_ends {
        watch_stdin(Arc::clone(serving.target()))?;
    }
    // A closed standard output does not stop the target.
    if let Err(error) = tell(&serving, output) {
        tracing::warn!("{}", with_causes(&error));
    }
    Ok(match serving.run()? {
        true => Outcome::Done,
        false => Outcome::Negative,
    })
}

/// Drops capabilities and applies the sandbox, before the process has a second thread.
fn confine(args: &ServeArgs, configuration: &Configuration) -> Result<()> {
    let (config, state) = (args.config.as_deref(), args.state.as_deref());
    let chosen: Vec<_> = args.confine.iter().map(|&choice| choice.into()).collect();
    confine::drop_capabilities(&chosen, SocketAccess::of_interface(configuration))?;
    confine::confine(&chosen, &Paths::of(configuration, config, state))?;
    log::begin()
}

/// Shuts the target down at the end of standard input.
fn watch_stdin(target: Arc<Target>) -> Result<()> {
    let watch = move || {
        // A read error counts as the end.
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
        return Ok(config::load_waiting(path)?);
    }
    let mut configuration = Configuration::default_with(args.devices());
    if !args.listen.is_empty() {
        configuration.listen = args.listen.iter().copied().map(Listener::from).collect();
    }
    let mut addresses = configuration.listen.iter().map(|it| it.address);
    if let Some(open) = addresses.find(|address| !address.ip().is_loopback()) {
        bail!(
            "--listen {open}: without a configuration file every host may connect, so only loopback \
             addresses are allowed; write a file with listen = [\"{open}\"] and allowed_hosts (or \
             allow_any_host = true) of the subsystem, and use --config FILE"
        );
    }
    if args.tls_key.is_some() {
        configuration.tls = args.tls.unwrap_or(TlsMode::Required);
        configuration.tls_key.clone_from(&args.tls_key);
    }
    if args.chap_secret.is_some() {
        configuration.chap_secret.clone_from(&args.chap_secret);
        let controller = &args.chap_controller_secret;
        configuration.chap_controller_secret.clone_from(controller);
        for subsystem in &mut configuration.subsystems {
            subsystem.authentication = Authentication::Chap;
        }
    }
    configuration.cores = args.cores.clone().map(|cores| cores.0);
    configuration.switch = Switch(args.switch.knobs()?);
    configuration.api.clone_from(&args.api);
    configuration.api_files = args.api_files.files();
    configuration.api_socket_mode = args.api_socket_mode;
    configuration.api_socket_group = args.api_socket_group;
    config::validate(&configuration)?;
    Ok(configuration)
}

/// Prints addresses, subsystems and namespaces.
fn tell(serving: &Serving, output: Output) -> Result<()> {
    let control = serving.control();
    let (configuration, snapshot) = (control.configuration(), control.snapshot());
    let subsystems = configuration
        .subsystems
        .iter()
        .map(|subsystem| served(subsystem, &snapshot));
    let serving = Served {
        listening: serving.addresses().to_vec(),
        api: serving.api().map(ToString::to_string),
        subsystems: subsystems.collect(),
    };
    if output.json {
        // On one line, so that scripts can wait for it.
        let line = serde_json::to_string(&serving).context("cannot make JSON")?;
        return print(format_args!("{line}\n"));
    }
    let mut text = String::new();
    for address in &serving.listening {
        text.push_str(&format!("listening on {address}\n"));
    }
    for subsystem in &serving.subsystems {
        text.push_str(&format!(
            "subsystem {} for {}\n",
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
        text.push_str(&format!("API at {api}\n"));
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
