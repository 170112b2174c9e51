//! SPDK's target, as its RPC `save_config` writes it: a list of RPCs for each of its parts.

use super::draft::{Exported, Import, namespace};
use super::json::Json;
use super::nvmet::referral;

use anyhow::{Context as _, Result, ensure};
use config::schema::{BlockSize, DISCOVERY_NQN, DeviceKind, HostTls, Size, Subsystem, TlsMode};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use target::limits::NAMESPACES_MAX;

/// RPCs that tune SPDK itself, or repeat a default.
const TUNING: [&str; 6] = [
    "nvmf_set_config",
    "nvmf_set_max_subsystems",
    "nvmf_set_crdt",
    "bdev_set_options",
    "bdev_nvme_set_options",
    "bdev_wait_for_examine",
];

/// Converts it.
///
/// # Errors
/// A value of another form than SPDK writes.
pub fn convert(root: Json<'_>) -> Result<Import> {
    ensure!(
        root.0.get("subsystems").is_some(),
        "there is no \"subsystems\"; name a file that SPDK's `rpc.py save_config` wrote"
    );
    let mut reader = Reader::default();
    for part in root.list("subsystems")? {
        let name = part.required("subsystem")?;
        for call in part.list("config")? {
            let method = call
                .required("method")
                .with_context(|| format!("part {name:?}"))?;
            let read = reader.call(&name, &method, call.at("params"));
            read.with_context(|| format!("{method:?} of part {name:?}"))?;
        }
    }
    reader.place_keys();
    Ok(reader.import)
}

/// The calls read so far.
#[derive(Default)]
struct Reader {
    import: Import,
    /// Block devices by name. Their device is made when a namespace uses it.
    bdevs: BTreeMap<String, DeviceKind>,
    /// Their devices, by the name of the block device.
    devices: BTreeMap<String, String>,
    /// Files of keys by name.
    keys: BTreeMap<String, PathBuf>,
    /// The keys of hosts: host, and the name of the key for each purpose.
    uses: Vec<(String, Purpose, String)>,
}

/// The use of a host's key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Tls,
    Chap,
    Controller,
}

impl Reader {
    fn call(&mut self, part: &str, method: &str, params: Json<'_>) -> Result<()> {
        match method {
            "keyring_file_add_key" => {
                let path = params.required("path")?.into();
                self.keys.insert(params.required("name")?, path);
            }
            "bdev_aio_create" | "bdev_uring_create" => {
                let path = params.required("filename")?;
                let block = params.number("block_size").filter(|&bytes| bytes > 0);
                let kind = self.import.file(&path, block);
                let kind = kind
                    .clone()
                    .with(Some(kind.block_size()), params.flag("readonly"));
                self.bdevs.insert(params.required("name")?, kind);
            }
            "bdev_malloc_create" | "bdev_null_create" => self.memory(method, params)?,
            "nvmf_create_subsystem" => self.subsystem(params)?,
            "nvmf_subsystem_add_host" => self.host(params)?,
            "nvmf_subsystem_add_ns" => self.namespace(params)?,
            "nvmf_subsystem_add_listener" => self.listener(params)?,
            "nvmf_discovery_add_referral" => {
                let nqn = params
                    .text("subnqn")
                    .unwrap_or_else(|| DISCOVERY_NQN.to_owned());
                referral(params.at("address"), &nqn, &mut self.import);
            }
            "nvmf_create_transport" => {
                let kind = params.text("trtype").unwrap_or_default();
                if !["TCP", "RDMA"].contains(&&*kind.to_uppercase()) {
                    self.import.note(format!(
                        "transport {kind}: left out: Switchyard serves TCP only"
                    ));
                }
            }
            _ if TUNING.contains(&method) => {}
            "bdev_set_qos_limit" => self.import.note(format!(
                "{method} of {}: left out: limit hosts by [[tenants]]",
                params.text("name").unwrap_or_default()
            )),
            _ if ["bdev", "nvmf", "keyring"].contains(&part) => {
                let name = ["name", "nqn"].iter().find_map(|key| params.text(key));
                let name = name.map(|name| format!(" of {name}")).unwrap_or_default();
                self.import
                    .note(format!("{method}{name}: left out: no equivalent"));
            }
            // Parts such as "sock", "iobuf" and "scheduler" tune SPDK itself.
            _ => {}
        }
        Ok(())
    }

    fn memory(&mut self, method: &str, params: Json<'_>) -> Result<()> {
        let name = params.required("name")?;
        let numbers = params.number("num_blocks").zip(params.number("block_size"));
        let (blocks, bytes) = numbers.context("no num_blocks or block_size")?;
        let size = blocks
            .checked_mul(bytes)
            .context("num_blocks is too large")?;
        if params.number("md_size").is_some_and(|bytes| bytes > 0) {
            self.import
                .note(format!("{name} has metadata; Switchyard has none"));
        }
        let Ok(block_size) = BlockSize::try_from(bytes) else {
            self.import.note(format!(
                "{name} has blocks of {bytes} bytes; left out: use 512 or 4096"
            ));
            return Ok(());
        };
        let size = Size::from_bytes(size);
        let kind = if method == "bdev_null_create" {
            DeviceKind::Null { size, block_size }
        } else {
            DeviceKind::Ram { size, block_size }
        };
        self.bdevs.insert(name, kind);
        Ok(())
    }

    fn subsystem(&mut self, params: Json<'_>) -> Result<()> {
        let nqn = params.required("nqn")?;
        if nqn == DISCOVERY_NQN {
            return Ok(());
        }
        ensure!(
            self.import.subsystem(&nqn).is_none(),
            "{nqn:?} is there twice"
        );
        let mut subsystem = Subsystem::new(&nqn);
        subsystem.allow_any_host = params.flag("allow_any_host");
        subsystem.serial = params.text("serial_number").unwrap_or(subsystem.serial);
        subsystem.model = params.text("model_number").unwrap_or(subsystem.model);
        self.import.subsystems.push(Exported {
            subsystem,
            addresses: BTreeSet::new(),
        });
        Ok(())
    }

    fn exported(&mut self, params: Json<'_>) -> Result<&mut Exported> {
        let nqn = params.required("nqn")?;
        let found = self.import.subsystem(&nqn);
        found.with_context(|| format!("there is no nvmf_create_subsystem of {nqn:?} before it"))
    }

    fn host(&mut self, params: Json<'_>) -> Result<()> {
        let host = params.required("host")?;
        let exported = self.exported(params)?;
        exported.subsystem.allowed_hosts.insert(host.clone());
        for (key, purpose) in [
            ("psk", Purpose::Tls),
            ("dhchap_key", Purpose::Chap),
            ("dhchap_ctrlr_key", Purpose::Controller),
        ] {
            if let Some(name) = params.text(key) {
                self.uses.push((host.clone(), purpose, name));
            }
        }
        Ok(())
    }

    fn namespace(&mut self, params: Json<'_>) -> Result<()> {
        let from = params.at("namespace");
        let bdev = from.required("bdev_name")?;
        let taken = &self.exported(params)?.subsystem;
        let nqn = taken.nqn.clone();
        let free = (1..=NAMESPACES_MAX).find(|nsid| taken.namespace(*nsid).is_none());
        let given = from.number("nsid").filter(|&nsid| nsid > 0);
        let nsid = given.map_or(free, |nsid| u32::try_from(nsid).ok());
        let what = format!("namespace of {bdev} in {nqn}");
        let Some(nsid) = nsid.filter(|&nsid| nsid <= NAMESPACES_MAX) else {
            self.import.note(format!(
                "{what}: left out: give it a number up to {NAMESPACES_MAX}"
            ));
            return Ok(());
        };
        if from.flag("no_auto_visible") {
            self.import.note(format!(
                "{what} is visible to some hosts only; left out: put it into a subsystem with these \
                 allowed_hosts"
            ));
            return Ok(());
        }
        let Some(kind) = self.bdevs.get(&bdev).cloned() else {
            self.import.note(format!(
                "{what}: left out: Switchyard serves files and block devices: give the disk back to \
                 the kernel (scripts/setup.sh reset) and add it as a device of type \"file\""
            ));
            return Ok(());
        };
        if matches!(kind, DeviceKind::Ram { .. }) {
            self.import
                .note(format!("{bdev} is memory; its content is not taken over"));
        }
        if from.text("ptpl_file").is_some() {
            self.import
                .note(format!("{what} has reservations; Switchyard has none"));
        }
        let device = match self.devices.get(&bdev) {
            Some(device) => device.clone(),
            None => self.import.device(&bdev, kind),
        };
        self.devices.insert(bdev, device.clone());
        let namespace = namespace(nsid, &device, from);
        self.exported(params)?.subsystem.namespaces.push(namespace);
        Ok(())
    }

    fn listener(&mut self, params: Json<'_>) -> Result<()> {
        let nqn = params.required("nqn")?;
        if nqn == DISCOVERY_NQN {
            return Ok(());
        }
        let tls = match params.flag("secure_channel") {
            true => TlsMode::Required,
            false => TlsMode::Off,
        };
        let address = params.at("listen_address");
        let added = self
            .import
            .listener(address, tls, &format!("a listener of {nqn}"));
        self.exported(params)?.addresses.extend(added);
        Ok(())
    }

    /// Names the files of keys, relative to the folder above all of them.
    fn place_keys(&mut self) {
        let mut found = Vec::new();
        for (host, purpose, name) in std::mem::take(&mut self.uses) {
            match self.keys.get(&name) {
                Some(path) if path.is_absolute() => found.push((host, purpose, path.clone())),
                // Older versions have the path itself in place of a name.
                None if name.starts_with('/') => found.push((host, purpose, name.into())),
                _ => self.import.note(format!(
                    "host {host}: its key {name:?} is in no file with an absolute path; write it \
                     to a file, and name it in [[hosts]]"
                )),
            }
        }
        let mut folders = found.iter().filter_map(|(_, _, path)| path.parent());
        let Some(mut above) = folders.next().map(Path::to_owned) else {
            return;
        };
        for folder in folders {
            while !folder.starts_with(&above) {
                above.pop();
            }
        }
        for (nqn, purpose, path) in found {
            let file = path.strip_prefix(&above).unwrap_or(&path);
            let file = file.to_string_lossy().into_owned();
            let host = self.import.host(&nqn);
            match purpose {
                Purpose::Tls => {
                    host.tls_keys.insert(file);
                    host.tls = HostTls::Required;
                }
                Purpose::Chap => drop(host.chap_secrets.insert(file)),
                Purpose::Controller => host.chap_controller_secret = Some(file),
            }
        }
        self.import.configuration.keys = Some(above);
    }
}
