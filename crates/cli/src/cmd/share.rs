//! `switchyard share` and `switchyard unshare`.

use super::change::{self, note_forgotten};
use crate::args::{ShareArgs, SharedDevice, UnshareArgs};
use crate::exit::Outcome;
use crate::output::{Output, human_bytes};
use anyhow::{Context as _, Result, ensure};
use config::schema::TlsMode;
use control::api::Shared;
use control::client::{self, Method, ask, escaped};
use serde_json::json;
use std::fmt;

const PATH: &str = "/v1/shares";

/// Shares a device.
///
/// # Errors
/// An API that is unreachable or refuses, or output that cannot be written.
pub fn add(args: &ShareArgs, output: Output) -> Result<Outcome> {
    let (any, hosts) = change::hosts(&args.to);
    let (path, size) = match &args.device {
        SharedDevice::Path(path) => (Some(change::absolute(path)?), args.size),
        SharedDevice::Ram(size) => {
            ensure!(
                args.size.is_none(),
                "--size is for a path; {size} is a size already (write ./{size} for a file of this name)"
            );
            (None, Some(*size))
        }
    };
    let body = json!({
        "path": path,
        "size": size,
        "name": args.name,
        "allow_any_host": any,
        "allowed_hosts": hosts,
        "force": args.force,
    });
    let api = &args.api.interface();
    let answer = ask(api, Method::POST, PATH, Some(&change::without_nulls(body)))?;
    let shared: Shared = client::read(&answer)?;
    output.result(&answer, Served(&shared))?;
    if shared
        .addresses
        .iter()
        .all(|it| it.address.ip().is_loopback())
    {
        output.note(
            "note: only this machine reaches the target; listen on a further address with: \
             switchyard listener add ADDRESS:4420",
        );
    }
    note_forgotten(api, output)?;
    Ok(Outcome::Done)
}

/// Removes a shared device.
///
/// # Errors
/// As [`add`].
pub fn remove(args: &UnshareArgs, output: Output) -> Result<Outcome> {
    let api = &args.api.interface();
    let mut name = args.name.clone();
    if name.contains('/') {
        name = change::absolute(name.as_ref())?;
    }
    let answer = ask(
        api,
        Method::DELETE,
        &format!("{PATH}/{}", escaped(&name)),
        None,
    )?;
    let nqn = answer["nqn"]
        .as_str()
        .context("cannot parse the target's response")?;
    output.result(&answer, format_args!("no longer serving {nqn}"))?;
    note_forgotten(api, output)?;
    Ok(Outcome::Done)
}

/// A shared device, and how a host connects.
struct Served<'a>(&'a Shared);

impl fmt::Display for Served<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared {
            nqn,
            size_bytes,
            block_bytes,
            addresses,
            ..
        } = self.0;
        let all: Vec<_> = addresses.iter().map(|it| it.address.to_string()).collect();
        let (all, size) = (all.join(", "), human_bytes(*size_bytes));
        write!(
            f,
            "serving {nqn} at {all} ({size}, {block_bytes}-byte blocks)"
        )?;
        if let Some(first) = addresses.first() {
            let (ip, port) = (first.address.ip(), first.address.port());
            let tls = if first.tls == TlsMode::Required {
                " --tls"
            } else {
                ""
            };
            write!(
                f,
                "\non the host:  nvme connect -t tcp -a {ip} -s {port} -n {nqn}{tls}"
            )?;
        }
        Ok(())
    }
}
