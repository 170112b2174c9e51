//! `switchyard subsystem`, `namespace`, `host` and `listener`: the objects of a running target.

use super::change::{hosts, note_forgotten, without_nulls};
use crate::args::{
    AllowedHost, HostCommand, HostCommandArgs, ListenerArgs, ListenerCommand, NamespaceArgs,
    NamespaceCommand, NamespaceId, Part, SubsystemArgs, SubsystemCommand, SubsystemSettings,
};
use crate::exit::Outcome;
use crate::output::{Output, human_bytes};
use crate::tables::{Columns, Fields};
use anyhow::{Context as _, Result, bail, ensure};
use config::schema::{Configuration, Namespace, Subsystem};
use control::client::{self, Interface, Method, ask, escaped};
use control::snapshot::NamespaceSnapshot;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use transport::key_file::read_private;

/// Largest file of keys.
const KEYS_BYTES_MAX: usize = 64 << 10;

fn subsystem_path(nqn: &str) -> String {
    format!("/v1/subsystems/{}", escaped(nqn))
}

fn configuration(api: &Interface) -> Result<Configuration> {
    client::read(&ask(api, Method::GET, "/v1/config", None)?)
}

/// Makes a change, and reports it in this text.
fn change(
    api: &Interface,
    (method, path): (Method, &str),
    body: Option<Value>,
    text: &str,
    output: Output,
) -> Result<()> {
    let body = body.map(without_nulls);
    let answer = ask(api, method, path, body.as_ref())?;
    let answer = match answer {
        Value::Null => json!({ "done": text }),
        answer => answer,
    };
    output.result(&answer, text)?;
    note_forgotten(api, output)
}

/// Carries out `switchyard subsystem`.
///
/// # Errors
/// An API that is unreachable or refuses, or output that cannot be written.
pub fn subsystem(args: &SubsystemArgs, output: Output) -> Result<Outcome> {
    let api = &args.api.interface();
    match &args.command {
        SubsystemCommand::List => list_subsystems(api, output)?,
        SubsystemCommand::Show { nqn } => {
            let mut answer = ask(api, Method::GET, &subsystem_path(nqn), None)?;
            let path = format!("{}/ana", subsystem_path(nqn));
            answer["ana_groups"] = ask(api, Method::GET, &path, None)?["groups"].take();
            output.result(&answer, Fields(&answer))?;
        }
        SubsystemCommand::Add {
            nqn,
            hosts: given,
            serial,
            model,
            authentication,
        } => {
            let (any, given) = hosts(given);
            let body = json!({
                "nqn": nqn,
                "allow_any_host": any,
                "allowed_hosts": given,
                "serial": serial,
                "model": model,
                "authentication": authentication,
            });
            let text = format!("added subsystem {nqn}");
            change(
                api,
                (Method::POST, "/v1/subsystems"),
                Some(body),
                &text,
                output,
            )?;
        }
        SubsystemCommand::Set {
            nqn,
            settings,
            ana_group,
            epoch,
        } => {
            let SubsystemSettings {
                authentication,
                ana_state,
            } = settings;
            let path = subsystem_path(nqn);
            if let Some(state) = ana_state {
                let group = ana_group.unwrap_or(1);
                let path = format!("{path}/ana/{group}");
                let body = json!({ "state": state, "epoch": epoch });
                let text = format!("ANA group {group} of {nqn} is {state}");
                change(api, (Method::PUT, &path), Some(body), &text, output)?;
            } else {
                let body = json!({ "authentication": authentication });
                let text = format!("changed subsystem {nqn}");
                change(api, (Method::PATCH, &path), Some(body), &text, output)?;
            }
        }
        SubsystemCommand::Remove { nqn } => {
            let text = format!("removed subsystem {nqn}");
            change(
                api,
                (Method::DELETE, &subsystem_path(nqn)),
                None,
                &text,
                output,
            )?;
        }
    }
    Ok(Outcome::Done)
}

fn list_subsystems(api: &Interface, output: Output) -> Result<()> {
    let answer = ask(api, Method::GET, "/v1/subsystems", None)?;
    let listed: Vec<Subsystem> = client::read(&answer["subsystems"])?;
    let row = |it: &Subsystem| {
        let count = it.namespaces.len().to_string();
        let proof = it.authentication.to_string();
        vec![it.nqn.clone(), count, allowed(it).join(", "), proof]
    };
    let rows = listed.iter().map(row).collect();
    let titles = ["NQN", "NAMESPACES", "HOSTS", "AUTHENTICATION"];
    output.result(&answer, Columns::new(&titles, rows))
}

/// Returns the hosts that may connect, as words.
fn allowed(subsystem: &Subsystem) -> Vec<String> {
    match (subsystem.allow_any_host, subsystem.allowed_hosts.is_empty()) {
        (true, _) => vec!["any".to_owned()],
        (false, true) => vec!["none".to_owned()],
        (false, false) => subsystem.allowed_hosts.iter().cloned().collect(),
    }
}

/// Carries out `switchyard namespace`.
///
/// # Errors
/// As [`subsystem`].
pub fn namespace(args: &NamespaceArgs, output: Output) -> Result<Outcome> {
    let api = &args.api.interface();
    let namespaces = |nqn: &str| format!("{}/namespaces", subsystem_path(nqn));
    let path = |id: &NamespaceId| format!("{}/{}", namespaces(&id.nqn), id.nsid);
    match &args.command {
        NamespaceCommand::List { nqn } => list_namespaces(api, nqn.as_deref(), output)?,
        NamespaceCommand::Show(id) => {
            let answer = ask(api, Method::GET, &path(id), None)?;
            output.result(&answer, Fields(&answer))?;
        }
        NamespaceCommand::Add {
            nqn,
            device,
            nsid,
            size,
            uuid,
            read_only,
            ana_group,
        } => {
            let nsid = match nsid {
                Some(nsid) => *nsid,
                None => next_nsid(api, nqn)?,
            };
            let body = json!({
                "nsid": nsid,
                "device": device,
                "size": size,
                "uuid": uuid,
                "read_only": read_only,
                "ana_group": ana_group,
            });
            let text = format!("added namespace {nsid} of {nqn}");
            change(
                api,
                (Method::POST, &namespaces(nqn)),
                Some(body),
                &text,
                output,
            )?;
        }
        NamespaceCommand::Set { id, size } => {
            let size = match size {
                Part::All => Value::Null,
                Part::Size(size) => json!(size),
            };
            let body = json!({ "size": size });
            // Null is a value here.
            let answer = ask(api, Method::PATCH, &path(id), Some(&body))?;
            let NamespaceId { nqn, nsid } = id;
            output.result(&answer, format_args!("resized namespace {nsid} of {nqn}"))?;
            note_forgotten(api, output)?;
        }
        NamespaceCommand::Remove(id) => {
            let text = format!("removed namespace {} of {}", id.nsid, id.nqn);
            change(api, (Method::DELETE, &path(id)), None, &text, output)?;
        }
    }
    Ok(Outcome::Done)
}

/// Returns the lowest free identifier of a subsystem.
fn next_nsid(api: &Interface, nqn: &str) -> Result<u32> {
    let answer = ask(api, Method::GET, &subsystem_path(nqn), None)?;
    let subsystem: Subsystem = client::read(&answer)?;
    let mut nsids = 1..;
    let free = nsids.find(|&nsid| subsystem.namespace(nsid).is_none());
    free.context("every namespace identifier is in use")
}

fn list_namespaces(api: &Interface, nqn: Option<&str>, output: Output) -> Result<()> {
    let stats = ask(api, Method::GET, "/v1/stats", None)?;
    let sizes: Vec<NamespaceSnapshot> = client::read(&stats["namespaces"])?;
    let (mut rows, mut list) = (Vec::new(), Vec::new());
    for subsystem in of(configuration(api)?.subsystems, nqn)? {
        for namespace in &subsystem.namespaces {
            let Namespace { nsid, device, .. } = namespace;
            let mut sizes = sizes.iter();
            let shown = sizes.find(|it| it.nqn == subsystem.nqn && it.namespace.nsid == *nsid);
            let bytes = shown.map(|it| it.size_bytes);
            let size = bytes.map_or("-".to_owned(), human_bytes);
            rows.push(vec![
                subsystem.nqn.clone(),
                nsid.to_string(),
                device.clone(),
                size,
            ]);
            let mut item = json!(namespace);
            item["nqn"] = json!(subsystem.nqn);
            item["size_bytes"] = json!(bytes);
            list.push(item);
        }
    }
    let table = Columns::new(&["NQN", "NSID", "DEVICE", "SIZE"], rows);
    output.result(&json!({ "namespaces": list }), table)
}

/// Returns all subsystems, or the one that is named.
fn of(all: Vec<Subsystem>, nqn: Option<&str>) -> Result<Vec<Subsystem>> {
    let Some(nqn) = nqn else { return Ok(all) };
    let found: Vec<_> = all.into_iter().filter(|it| it.nqn == nqn).collect();
    ensure!(
        !found.is_empty(),
        "there is no subsystem {nqn:?}; list the subsystems with `switchyard subsystem list`"
    );
    Ok(found)
}

/// Carries out `switchyard host`.
///
/// # Errors
/// As [`subsystem`]; files of keys that cannot be read.
pub fn host(args: &HostCommandArgs, output: Output) -> Result<Outcome> {
    let api = &args.api.interface();
    match &args.command {
        HostCommand::List { nqn } => {
            let (mut rows, mut list) = (Vec::new(), Vec::new());
            for subsystem in of(configuration(api)?.subsystems, nqn.as_deref())? {
                for host in allowed(&subsystem) {
                    list.push(json!({ "nqn": subsystem.nqn, "host": host }));
                    rows.push(vec![subsystem.nqn.clone(), host]);
                }
            }
            let table = Columns::new(&["SUBSYSTEM", "HOST"], rows);
            output.result(&json!({ "hosts": list }), table)?;
        }
        HostCommand::Show { host } => show_host(api, host, output)?,
        HostCommand::Add(allowed) => set_allowed(api, allowed, true, output)?,
        HostCommand::Remove(allowed) => set_allowed(api, allowed, false, output)?,
        HostCommand::Set {
            host,
            tls_key,
            chap_secret,
            chap_controller_secret,
            no_keys,
        } => {
            let path = format!("/v1/hosts/{}", escaped(host));
            if *no_keys {
                let text = format!("removed the keys of {host}");
                change(api, (Method::DELETE, &path), None, &text, output)?;
            } else {
                let body = keys([tls_key, chap_secret, chap_controller_secret])?;
                let text = format!("set the keys of {host}");
                change(api, (Method::PUT, &path), Some(body), &text, output)?;
            }
        }
    }
    Ok(Outcome::Done)
}

/// Returns the keys of a host in the form of the API.
fn keys([tls, chap, controller]: [&Option<PathBuf>; 3]) -> Result<Value> {
    let mut body = Map::new();
    for (name, file) in [("tls_keys", tls), ("chap_secrets", chap)] {
        if let Some(file) = file {
            body.insert(name.to_owned(), json!(lines(file)?));
        }
    }
    if let Some(file) = controller {
        match &lines(file)?[..] {
            [only] => body.insert("chap_controller_secret".to_owned(), json!(only)),
            all => bail!(
                "{} has {} secrets; leave one in it",
                file.display(),
                all.len()
            ),
        };
    }
    ensure!(
        !body.is_empty(),
        "nothing to change; add --tls-key FILE, --chap-secret FILE, --chap-controller-secret FILE \
         or --no-keys"
    );
    Ok(Value::Object(body))
}

/// Returns the keys in a file: one on each line, without comments.
fn lines(file: &Path) -> Result<Vec<String>> {
    let text = read_private(file, KEYS_BYTES_MAX)
        .with_context(|| format!("cannot read keys of {}", file.display()))?;
    let lines = text.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    Ok(lines.map(ToOwned::to_owned).collect())
}

fn show_host(api: &Interface, host: &str, output: Output) -> Result<()> {
    let configuration = configuration(api)?;
    let keyed = ask(api, Method::GET, "/v1/hosts", None)?["hosts"].take();
    let keyed: Vec<Value> = client::read(&keyed)?;
    let keys = keyed.into_iter().find(|it| it["nqn"] == host);
    let subsystems = configuration.subsystems.iter();
    let may: Vec<_> = subsystems
        .filter(|it| it.allows(host))
        .map(|it| &it.nqn)
        .collect();
    let mut shown = json!({ "host": host, "subsystems": may });
    for (key, value) in keys.iter().filter_map(Value::as_object).flatten() {
        if key != "nqn" {
            shown[key] = value.clone();
        }
    }
    output.result(&shown, Fields(&shown))
}

/// Lets a host, or any, connect to a subsystem, or no longer.
fn set_allowed(api: &Interface, who: &AllowedHost, allow: bool, output: Output) -> Result<()> {
    let AllowedHost { nqn, host } = who;
    let path = format!("{}/hosts", subsystem_path(nqn));
    let text = match allow {
        true => format!("{host} may connect to {nqn}"),
        false => format!("{host} may no longer connect to {nqn}"),
    };
    let (method, path, body) = match (host.as_str(), allow) {
        ("any", _) => (
            Method::PATCH,
            path,
            Some(json!({ "allow_any_host": allow })),
        ),
        (host, true) => (Method::POST, path, Some(json!({ "host": host }))),
        (host, false) => (Method::DELETE, format!("{path}/{}", escaped(host)), None),
    };
    change(api, (method, &path), body, &text, output)
}

/// Carries out `switchyard listener`.
///
/// # Errors
/// As [`subsystem`].
pub fn listener(args: &ListenerArgs, output: Output) -> Result<Outcome> {
    const PATH: &str = "/v1/listeners";
    let api = &args.api.interface();
    let path = |address: &dyn ToString| format!("{PATH}/{}", escaped(&address.to_string()));
    match &args.command {
        ListenerCommand::List => {
            let answer = ask(api, Method::GET, PATH, None)?;
            let listed: Vec<Value> = client::read(&answer["listeners"])?;
            let cells = ["address", "bound", "tls"];
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let rows = listed
                .iter()
                .map(|it| cells.map(|cell| text(&it[cell])).to_vec());
            let table = Columns::new(&["ADDRESS", "IN USE", "TLS"], rows.collect());
            output.result(&answer, table)?;
        }
        ListenerCommand::Show { address } => {
            let answer = ask(api, Method::GET, &path(address), None)?;
            output.result(&answer, Fields(&answer))?;
        }
        ListenerCommand::Add { address, tls } => {
            let body = json!({ "address": address, "tls": tls });
            let answer = ask(api, Method::POST, PATH, Some(&without_nulls(body)))?;
            let bound = answer["bound"].as_str().unwrap_or_default();
            output.result(&answer, format_args!("listening on {bound}"))?;
            note_forgotten(api, output)?;
        }
        ListenerCommand::Set { address, tls } => {
            let text = format!("TLS of new connections to {address}: {tls}");
            let body = Some(json!({ "tls": tls }));
            change(api, (Method::PATCH, &path(address)), body, &text, output)?;
        }
        ListenerCommand::Remove { address } => {
            let text = format!("no longer listening on {address}; its connections stay");
            change(api, (Method::DELETE, &path(address)), None, &text, output)?;
        }
    }
    Ok(Outcome::Done)
}
