//! `/v1/shares`: a device, its subsystem and its hosts in one step.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{delete, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::body::{Body, PathParts};
use super::error::ApiError;
use super::listeners::bound;
use super::state::ApiState;
use crate::control::{ChangeError, actions_between};
use crate::{disk, folders};
use config::limits::DEVICE_NAME_BYTES_MAX;
use config::schema::{
    BlockSize, Configuration, Device, DeviceKind, Namespace, Size, Subsystem, TlsMode,
};
use config::{Action, ApplyError};

/// What the names of shared subsystems begin with; the name of the share follows.
const NQN_PREFIX: &str = "nqn.2026-11.io.switchyard:";

pub(super) fn routes() -> Router<ApiState> {
    Router::new()
        .route("/v1/shares", post(add))
        .route("/v1/shares/{name}", delete(remove))
}

config::decoded! {
    /// A device to share: a `path`, or RAM of a `size`.
    struct Share {
        path: Option<PathBuf> = optional("RAM of `size`"),
        size: Option<Size> = optional("the whole device"),
        name: Option<String> = optional("derived from the path"),
        allow_any_host: bool = or(false),
        allowed_hosts: BTreeSet<String> = list("none"),
        force: bool = or(false),
    }
}

/// A shared device, as hosts reach it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shared {
    /// The name of the device.
    pub device: String,
    /// The name of the subsystem; the device is its namespace 1.
    pub nqn: String,
    /// The size in bytes.
    pub size_bytes: u64,
    /// Bytes of a logical block.
    pub block_bytes: u32,
    /// The addresses that hosts connect to. Those that only this machine reaches are last.
    pub addresses: Vec<SharedAddress>,
}

/// An address that hosts connect to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedAddress {
    /// The address.
    pub address: SocketAddr,
    /// Use of TLS on it.
    pub tls: TlsMode,
}

async fn add(
    State(state): State<ApiState>,
    body: Body,
) -> Result<(StatusCode, Json<Shared>), ApiError> {
    let share: Share = body.read()?;
    let made = state.change(move |model| share.plan(model)).await?;
    let added = made.into_iter().find_map(|action| match action {
        Action::AddSubsystem { subsystem } => Some(subsystem),
        _ => None,
    });
    let Subsystem {
        nqn, namespaces, ..
    } = added.expect("the plan has one");
    let (configuration, snapshot) = (state.configuration(), state.snapshot().await?);
    let mut shown = snapshot.namespaces.iter();
    let shown = shown.find(|namespace| namespace.nqn == nqn);
    let listeners = configuration.listeners();
    let addresses = listeners.map(|(address, tls)| SharedAddress {
        address: reachable(bound(&snapshot, address)),
        tls,
    });
    let mut addresses: Vec<_> = addresses.collect();
    addresses.sort_by_key(|it| it.address.ip().is_loopback());
    let shared = Shared {
        device: namespaces[0].device.clone(),
        nqn,
        size_bytes: shown.map_or(0, |shown| shown.size_bytes),
        block_bytes: shown.map_or(0, |shown| shown.namespace.block_bytes),
        addresses,
    };
    Ok((StatusCode::CREATED, Json(shared)))
}

impl Share {
    fn plan(self, model: &Configuration) -> Result<Vec<Action>, ChangeError> {
        let kind = self.kind(model)?;
        let device = Device::new(kind);
        folders::check(&device, &model.device_folders)?;
        if !self.force {
            disk::check(&device, &model.device_folders)?;
        }
        let name = match &self.name {
            Some(name) => name.clone(),
            None => free_name(model, self.path.as_deref()),
        };
        let mut subsystem = Subsystem::new(&format!("{NQN_PREFIX}{name}"));
        subsystem.allow_any_host = self.allow_any_host;
        subsystem.allowed_hosts = self.allowed_hosts;
        subsystem.namespaces.push(Namespace::new(1, &name));
        if is_taken(model, &name) {
            return Err(ApplyError::conflict(
                format!("there is a device or subsystem {name:?} already"),
                "choose another name (--name), or omit it",
            )
            .into());
        }
        let mut after = model.clone();
        after.devices.insert(name, device);
        after.subsystems.push(subsystem);
        actions_between(model, &after)
    }

    fn kind(&self, model: &Configuration) -> Result<DeviceKind, ApplyError> {
        let Some(path) = &self.path else {
            let size = self.size.ok_or_else(|| {
                ApplyError::invalid(
                    "neither path nor size is given",
                    "write the path of a file or block device, or the size of a RAM device",
                )
            })?;
            let block_size = BlockSize::B4096;
            return Ok(DeviceKind::Ram { size, block_size });
        };
        let mut devices = model.devices.iter();
        let same = devices.find(|(_, device)| device.kind.path() == Some(path));
        if let Some((name, _)) = same {
            let users: Vec<_> = model.users_of(name).map(|(nqn, _)| nqn).collect();
            let (message, remedy) = match users.first() {
                Some(nqn) => (
                    format!("{} is shared already, as {nqn}", path.display()),
                    "let a further host use it with: switchyard host add NQN HOSTNQN",
                ),
                None => (
                    format!("{} is the device {name:?} already", path.display()),
                    "remove that device, or add a namespace over it",
                ),
            };
            return Err(ApplyError::conflict(message, remedy));
        }
        Ok(DeviceKind::File {
            path: path.clone(),
            size: self.size,
            block_size: disk::block_size(path, &model.device_folders),
            // Only now: a file that is missing after a restart is an error, not an empty disk.
            create: self.size.is_some() && path.symlink_metadata().is_err(),
            read_only: false,
        })
    }
}

fn is_taken(model: &Configuration, name: &str) -> bool {
    let nqn = format!("{NQN_PREFIX}{name}");
    model.devices.contains_key(name) || model.subsystem(&nqn).is_some()
}

/// Returns a free name: that of the file, perhaps with a number, or `ram1`, `ram2`, ….
fn free_name(model: &Configuration, path: Option<&Path>) -> String {
    let is_free = |name: &String| !is_taken(model, name);
    let Some(path) = path else {
        let mut names = (1..).map(|number| format!("ram{number}"));
        return names.find(is_free).expect("a configuration is finite");
    };
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let name = file.chars().map(|c| if plain(c) { c } else { '-' });
    // Room for a number behind it.
    let name: String = name.take(DEVICE_NAME_BYTES_MAX - 8).collect();
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    let mut names = std::iter::once(name.clone()).chain(numbered);
    names.find(is_free).expect("a configuration is finite")
}

/// Returns the address by which other machines most likely reach a listener: for one on all addresses,
/// the source address of the default route, or the loopback address if there is none.
fn reachable(listener: SocketAddr) -> SocketAddr {
    if !listener.ip().is_unspecified() {
        return listener;
    }
    // Nothing is sent: these are addresses of documentation.
    let (elsewhere, here): (IpAddr, IpAddr) = match listener.ip() {
        IpAddr::V4(_) => (
            Ipv4Addr::new(192, 0, 2, 1).into(),
            Ipv4Addr::LOCALHOST.into(),
        ),
        IpAddr::V6(_) => (
            Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
            Ipv6Addr::LOCALHOST.into(),
        ),
    };
    let own = || {
        let socket = UdpSocket::bind((listener.ip(), 0))?;
        socket.connect((elsewhere, 9))?;
        socket.local_addr()
    };
    let ip = own().map_or(here, |own: SocketAddr| own.ip());
    SocketAddr::new(ip, listener.port())
}

/// Removes a subsystem and the devices that only it uses, by its name, that of a device, or a path.
async fn remove(
    State(state): State<ApiState>,
    PathParts(name): PathParts<String>,
) -> Result<Json<Value>, ApiError> {
    let made = state.change(move |model| unshare(model, &name)).await?;
    let mut devices = Vec::new();
    let mut nqn = None;
    for action in made {
        match action {
            Action::RemoveSubsystem { nqn: removed } => nqn = Some(removed),
            Action::RemoveDevice { name } => devices.push(name),
            _ => {}
        }
    }
    Ok(Json(json!({ "nqn": nqn, "devices": devices })))
}

fn unshare(model: &Configuration, name: &str) -> Result<Vec<Action>, ChangeError> {
    let path = Path::new(name);
    let is_meant = |subsystem: &Subsystem| {
        let mut devices = subsystem.namespaces.iter().map(|it| &it.device);
        let has = |device: &String| {
            let found = model.devices.get(device).and_then(|it| it.kind.path());
            device == name || found == Some(path)
        };
        subsystem.nqn == name || devices.any(has)
    };
    let all: Vec<_> = model.subsystems.iter().filter(|it| is_meant(it)).collect();
    let subsystem = match all[..] {
        [only] => only,
        [] => {
            return Err(ApplyError::not_found(
                format!("nothing is shared as {name:?}"),
                "name an NQN, a device or a path; list them with: switchyard subsystem list",
            )
            .into());
        }
        _ => {
            return Err(ApplyError::conflict(
                format!("device {name:?} is shared by {} subsystems", all.len()),
                "name the NQN of the subsystem",
            )
            .into());
        }
    };
    let mut after = model.clone();
    after.subsystems.retain(|it| it.nqn != subsystem.nqn);
    for namespace in &subsystem.namespaces {
        if after.users_of(&namespace.device).next().is_none() {
            after.devices.remove(&namespace.device);
        }
    }
    actions_between(model, &after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_files_or_the_next_free_ones() {
        let mut model = Configuration::default();
        let mut take = |path: Option<&str>| {
            let name = free_name(&model, path.map(Path::new));
            let size = Size::from_bytes(4096);
            let block_size = BlockSize::B4096;
            let device = Device::new(DeviceKind::Ram { size, block_size });
            model.devices.insert(name.clone(), device);
            config::validate(&model).expect("names of devices");
            name
        };
        assert_eq!(take(Some("/dev/nvme1n1")), "nvme1n1");
        assert_eq!(take(Some("/srv/nvme1n1")), "nvme1n1-2");
        assert_eq!(take(Some("/srv/Bücher 1.img")), "B-cher-1.img");
        assert_eq!(take(Some(&format!("/srv/{}", "x".repeat(255)))).len(), 56);
        assert_eq!([take(None), take(None)], ["ram1", "ram2"]);
    }

    #[test]
    fn an_address_of_a_machine_is_reached_as_it_is() {
        for address in ["192.0.2.7:4420", "[::1]:4420"] {
            let address = address.parse().expect("an address");
            assert_eq!(reachable(address), address);
        }
        let any: SocketAddr = "0.0.0.0:4420".parse().expect("an address");
        assert_eq!(reachable(any).port(), 4420);
        assert!(!reachable(any).ip().is_unspecified());
    }
}
