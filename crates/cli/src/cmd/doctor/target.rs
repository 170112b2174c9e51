//! The configuration and the running target: its API and its addresses.

use super::finding::Finding;
use crate::args::ExaminedArgs;
use anyhow::{Context as _, Result};
use config::schema::{ApiAddress, Configuration, TlsMode};
use config::{ConfigError, with_causes};
use control::client::{self, Interface, Method, ask};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

const CONFIGURATION_FILE: &str = "/etc/switchyard/target.toml";
const API_SOCKET: &str = "/run/switchyard/api.sock";
const START: &str = "systemctl start switchyard, or `switchyard serve --config FILE`";

/// `TimeoutStopSec` of the unit, in milliseconds.
const STOP_TIMEOUT_MS: u64 = 30_000;

/// Time for an address to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The target of this machine: its configuration file and its API.
pub struct Examined {
    /// The file, if there is one.
    pub file: Option<PathBuf>,
    read: Option<Result<Configuration, ConfigError>>,
    /// The API, if there should be one.
    pub api: Option<Interface>,
    running: Option<Result<Configuration>>,
    /// The process of the target, if its API has a Unix socket.
    pub pid: Option<u32>,
}

impl Examined {
    /// Reads the file, and queries the API.
    pub fn find(args: &ExaminedArgs) -> Self {
        let usual = || Some(PathBuf::from(CONFIGURATION_FILE)).filter(|path| path.exists());
        let file = args.config.clone().or_else(usual);
        let read = file.as_deref().map(config::load);
        let of_file = read.as_ref().and_then(|read| read.as_ref().ok());
        let usual = || {
            let usual = Some(API_SOCKET).filter(|path| Path::new(path).exists());
            usual.map(|path| ApiAddress::Unix(path.into()))
        };
        let given = args.api.clone().or_else(|| of_file?.api.clone());
        let api = given.or_else(|| usual().filter(|_| of_file.is_none()));
        let api = api.map(|address| args.authority.interface(&address));
        let get = |api| client::read(&ask(api, Method::GET, "/v1/config", None)?);
        Self {
            pid: api.as_ref().and_then(|api| peer(&api.address)),
            running: api.as_ref().map(get),
            api,
            read,
            file,
        }
    }

    /// Returns the configuration of the file, if it is valid.
    pub fn of_file(&self) -> Option<&Configuration> {
        self.read.as_ref()?.as_ref().ok()
    }

    /// Returns the configuration in force, and that of the file.
    pub fn configurations(&self) -> impl Iterator<Item = &Configuration> {
        let running = self.running.as_ref().and_then(|it| it.as_ref().ok());
        running.into_iter().chain(self.of_file())
    }

    /// Checks the file.
    pub fn check_configuration(&self) -> Vec<Finding> {
        const CHECK: &str = "configuration";
        match (&self.file, &self.read) {
            (Some(file), Some(Ok(_))) => {
                vec![Finding::ok(CHECK, format!("{} is valid", file.display()))]
            }
            (Some(file), Some(Err(error))) => {
                let problems = error.problems().iter().map(|problem| {
                    let line = problem
                        .line
                        .map(|line| format!(":{line}"))
                        .unwrap_or_default();
                    let text = format!(
                        "{}{line}: {} {}",
                        file.display(),
                        problem.key,
                        problem.error
                    );
                    Finding::fail(CHECK, text, &problem.what_to_do)
                });
                problems.collect()
            }
            _ => {
                let why = format!("there is no {CONFIGURATION_FILE}; name the file with --config");
                vec![Finding::unknown(CHECK, why)]
            }
        }
    }

    /// Checks the API.
    pub fn check_api(&self) -> Finding {
        const CHECK: &str = "API";
        match (&self.api, &self.running) {
            (Some(api), Some(Ok(_))) => {
                let process = self
                    .pid
                    .map(|pid| format!(", process {pid}"))
                    .unwrap_or_default();
                Finding::ok(CHECK, format!("{} answers{process}", api.address))
            }
            (Some(_), Some(Err(error))) => {
                let text = with_causes(error);
                let kind = error
                    .chain()
                    .find_map(|cause| cause.downcast_ref::<std::io::Error>());
                match kind.map(std::io::Error::kind) {
                    Some(ErrorKind::PermissionDenied) => {
                        Finding::unknown(CHECK, format!("{text} (run as root)"))
                    }
                    Some(_) => Finding::fail(CHECK, text, START),
                    None => Finding::fail(CHECK, text, "see `switchyard config show --help`"),
                }
            }
            _ if self.file.is_some() => Finding::warn(
                CHECK,
                "the configuration has none: commands cannot query or change the target",
                format!("api = \"unix:{API_SOCKET}\" in the configuration"),
            ),
            _ => Finding::unknown(
                CHECK,
                format!("there is no {API_SOCKET}; name it with --api"),
            ),
        }
    }
}

/// Returns the process at the other end of a Unix socket; `None` if it is in another namespace.
fn peer(address: &ApiAddress) -> Option<u32> {
    let ApiAddress::Unix(path) = address else {
        return None;
    };
    let socket = UnixStream::connect(path).ok()?;
    let pid = getsockopt(&socket, PeerCredentials).ok()?.pid();
    // The kernel's answer for a process that this one cannot see is 0.
    u32::try_from(pid).ok().filter(|&pid| pid > 0)
}

/// Compares the time of a shutdown with that of the service manager.
pub fn check_timeouts(configuration: &Configuration) -> Finding {
    const CHECK: &str = "time-outs";
    let drain = configuration.limits.get("drain_timeout_ms");
    let unit = format!(
        "TimeoutStopSec={} of switchyard.service",
        STOP_TIMEOUT_MS / 1000
    );
    // Devices that do not answer get one second more.
    if drain + 1000 < STOP_TIMEOUT_MS {
        return Finding::ok(
            CHECK,
            format!("drain_timeout_ms {drain} ends before {unit}"),
        );
    }
    Finding::warn(
        CHECK,
        format!("drain_timeout_ms {drain}: {unit} ends first, and kills the target"),
        format!(
            "TimeoutStopSec={} in the unit, or a smaller drain_timeout_ms",
            drain / 1000 + 2
        ),
    )
}

/// Connects to each address of the target.
pub fn check_addresses(configuration: &Configuration, args: &ExaminedArgs) -> Vec<Finding> {
    let listeners = configuration.listeners();
    listeners
        .map(|(address, tls)| check_address(address, tls, args))
        .collect()
}

/// Connects as an NVMe/TCP host: ICReq, Connect to the discovery controller, and its log page.
fn check_address(listener: SocketAddr, tls: TlsMode, args: &ExaminedArgs) -> Finding {
    const CHECK: &str = "address";
    if listener.port() == 0 {
        return Finding::unknown(CHECK, format!("{listener}: the port is chosen at start"));
    }
    let mut address = listener;
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    if let Err(error) = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
        return Finding::fail(
            CHECK,
            format!("{address} accepts no connection: {error}"),
            START,
        );
    }
    if tls == TlsMode::Required && args.host.tls_key.is_none() {
        let why = format!("{address} requires TLS; give --tls-key and --host-nqn to check it");
        return Finding::unknown(CHECK, why);
    }
    match discover(&address, args) {
        Ok(count) => Finding::ok(CHECK, format!("{address} answers, with {count} subsystems")),
        Err(error) => Finding::fail(
            CHECK,
            format!(
                "{address} does not answer as a discovery controller: {}",
                with_causes(&error)
            ),
            "journalctl -u switchyard; another program may have the port: ss -ltnp",
        ),
    }
}

fn discover(address: &SocketAddr, args: &ExaminedArgs) -> Result<usize> {
    let host = args.host.builder().build()?;
    let found = host.discover(&address.to_string()).context("discovery")?;
    let of_subsystems = |entry: &&host::DiscoveryEntry| entry.kind == host::SubsystemKind::Nvm;
    Ok(found.entries.iter().filter(of_subsystems).count())
}

#[cfg(test)]
mod tests {
    use super::super::finding::Status;
    use super::*;

    #[test]
    fn a_long_shutdown_is_found() {
        let status = |text: &str| {
            let read = config::parse(text, config::Format::Toml).expect("valid");
            check_timeouts(&read).status
        };
        assert_eq!(status(""), Status::Ok);
        assert_eq!(
            status("limits = { drain_timeout_ms = 29000 }"),
            Status::Warn
        );
    }
}
