//! Names of a running target's objects, for completion on the command line.
//!
//! A target that does not answer soon has no names: completion neither waits nor complains.

use super::api::ApiArgs;
use clap::Parser;
use clap_complete::CompletionCandidate;
use config::Configuration;
use control::client::{self, Method, ask};
use std::sync::mpsc;
use std::time::Duration;

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// The flags of the command line that matter here.
#[derive(Debug, Parser)]
struct Found {
    #[command(flatten)]
    api: ApiArgs,
}

/// Returns the running configuration.
fn configuration() -> Option<Configuration> {
    let words: Vec<_> = std::env::args_os().collect();
    let flags = ["--api", "--api-ca"];
    let mut of_api = vec!["switchyard".into()];
    for (index, word) in words.iter().enumerate() {
        let text = word.to_string_lossy();
        if flags.contains(&&*text) {
            of_api.extend(words[index..].iter().take(2).cloned());
        } else if flags
            .iter()
            .any(|flag| text.starts_with(&format!("{flag}=")))
        {
            of_api.push(word.clone());
        }
    }
    let api = Found::try_parse_from(of_api).ok()?.api.interface();
    let (sender, answer) = mpsc::channel();
    std::thread::spawn(move || sender.send(ask(&api, Method::GET, "/v1/config", None).ok()));
    client::read(&answer.recv_timeout(PATIENCE).ok()??).ok()
}

fn candidates<T: ToString>(
    names: impl FnOnce(Configuration) -> Vec<T>,
) -> Vec<CompletionCandidate> {
    let names = configuration().map(names).unwrap_or_default();
    let names = names
        .iter()
        .map(|name| CompletionCandidate::new(name.to_string()));
    names.collect()
}

/// Returns the names of devices.
pub fn devices() -> Vec<CompletionCandidate> {
    candidates(|it| it.devices.into_keys().collect())
}

/// Returns the NQNs of subsystems.
pub fn subsystems() -> Vec<CompletionCandidate> {
    candidates(|it| it.subsystems.into_iter().map(|it| it.nqn).collect())
}

/// Returns the identifiers of namespaces: of the subsystem on the command line, if there is one.
pub fn nsids() -> Vec<CompletionCandidate> {
    let words: Vec<_> = std::env::args().collect();
    candidates(|it| {
        let named = it.subsystems.iter().find(|it| words.contains(&it.nqn));
        let namespaces = named.into_iter().flat_map(|it| &it.namespaces);
        namespaces.map(|it| it.nsid).collect()
    })
}

/// Returns the NQNs of hosts that are allowed, have keys or belong to a tenant; and `any`.
pub fn hosts() -> Vec<CompletionCandidate> {
    candidates(|it| {
        let allowed = it.subsystems.into_iter().flat_map(|it| it.allowed_hosts);
        let keyed = it.hosts.into_iter().map(|it| it.nqn);
        let of_tenants = it.tenants.into_iter().flat_map(|it| it.hosts);
        let mut names: Vec<_> = allowed.chain(keyed).chain(of_tenants).collect();
        names.push("any".to_owned());
        names.sort_unstable();
        names.dedup();
        names
    })
}

/// Returns the addresses of listeners.
pub fn listeners() -> Vec<CompletionCandidate> {
    candidates(|it| it.listen.iter().map(|it| it.address).collect())
}

/// Returns the names of tenants.
pub fn tenants() -> Vec<CompletionCandidate> {
    candidates(|it| it.tenants.into_iter().map(|it| it.name).collect())
}
