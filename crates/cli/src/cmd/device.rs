//! `switchyard device`: the devices of a running target, and keys of encrypted ones.

use super::change::{absolute, note_forgotten};
use super::encrypted;
use crate::args::{DeviceArgs, DeviceCommand};
use crate::exit::Outcome;
use crate::output::Output;
use crate::tables::{Columns, Fields};
use anyhow::{Context as _, Result};
use config::schema::{Device, DeviceKind};
use control::client::{self, Interface, Method, ask, escaped};
use serde::Deserialize;
use serde_json::{Value, json};

const PATH: &str = "/v1/devices";

/// Carries it out.
///
/// # Errors
/// An API that is unreachable or refuses, or a device or key that cannot be used.
pub fn run(args: &DeviceArgs, output: Output) -> Result<Outcome> {
    let api = &args.api.interface();
    match &args.command {
        DeviceCommand::List => list(api, output)?,
        DeviceCommand::Show { name } => {
            let answer = ask(api, Method::GET, &path(name), None)?;
            let used_by = users(&client::read(&answer)?);
            let fields = Fields(&answer["device"]);
            let text = format!("name: {name}\n{fields}\nused by: {used_by}");
            output.result(&answer, text)?;
        }
        DeviceCommand::Add {
            name,
            device,
            set,
            force,
        } => {
            let kind = device.0.clone();
            let kind =
                kind.context("no device is given; add --file PATH, --ram SIZE or another kind")?;
            let device = with_settings(kind, set)?;
            let body = json!({ "name": name, "device": device, "force": force });
            let answer = ask(api, Method::POST, PATH, Some(&body))?;
            output.result(&answer, format_args!("added device {name}"))?;
            note_forgotten(api, output)?;
        }
        DeviceCommand::Remove { name } => {
            ask(api, Method::DELETE, &path(name), None)?;
            output.result(
                &json!({ "removed": name }),
                format_args!("removed device {name}"),
            )?;
            note_forgotten(api, output)?;
        }
        DeviceCommand::ChangeKey {
            path,
            key_file,
            new_key_file,
        } => encrypted::change_key(path, key_file, new_key_file, output)?,
        DeviceCommand::EraseKey { path } => encrypted::erase_key(path, output)?,
    }
    Ok(Outcome::Done)
}

fn path(name: &str) -> String {
    format!("{PATH}/{}", escaped(name))
}

/// Returns a device in the form of the API, with further keys.
fn with_settings(mut kind: DeviceKind, set: &[(String, String)]) -> Result<Value> {
    if let DeviceKind::File { path, .. } = &mut kind {
        *path = absolute(path)?.into();
    }
    let mut device = serde_json::to_value(Device::new(kind))?;
    for (key, value) in set {
        // Text needs no quotes.
        let value = serde_json::from_str(value).unwrap_or_else(|_| json!(value));
        device[key] = value;
    }
    Ok(device)
}

#[derive(Deserialize)]
struct Listed {
    name: String,
    device: Device,
    used_by: Vec<User>,
}

#[derive(Deserialize)]
struct User {
    nqn: String,
    nsid: u32,
}

/// Returns the namespaces that use a device, as text.
fn users(listed: &Listed) -> String {
    let users = listed.used_by.iter();
    let users: Vec<_> = users
        .map(|user| format!("{} {}", user.nqn, user.nsid))
        .collect();
    match users.is_empty() {
        true => "-".to_owned(),
        false => users.join(", "),
    }
}

fn list(api: &Interface, output: Output) -> Result<()> {
    let answer = ask(api, Method::GET, PATH, None)?;
    let listed: Vec<Listed> = client::read(&answer["devices"])?;
    let row = |it: &Listed| vec![it.name.clone(), it.device.kind.to_string(), users(it)];
    let rows = listed.iter().map(row).collect();
    output.result(&answer, Columns::new(&["NAME", "DEVICE", "USED BY"], rows))
}
