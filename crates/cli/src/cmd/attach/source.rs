//! The devices of an attachment: namespaces of a target, or a device of this machine.

use super::super::connect::builder;
use crate::args::{LocalDevice, SourceArgs};
use anyhow::{Context as _, Result, anyhow};
use block::{Device, PathDevice};
use control::attachments::AttachmentState;
use control::model;
use control::plane::devices;
use host::{NamespaceInfo, Phase, Subsystem};
use std::hash::{BuildHasher as _, RandomState};
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::sync::Arc;
use switch::knobs::Preset;
use switch::{Class, PerClass};

/// Commands of each queue of a remote namespace.
const REMOTE_DEPTH: u16 = 256;

/// Ways to the same blocks, by class.
pub(super) type Devices = PerClass<Arc<dyn Device>>;

/// The devices to be attached, and the connections behind them.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) namespaces: Vec<(u32, Devices)>,
    subsystem: Option<Subsystem>,
    /// The device in words.
    pub(super) text: String,
    /// Identity of the volume of the first namespace, the same at each start unless the volume is
    /// lost with the process.
    pub(super) identity: u64,
    /// The volume is lost with the process.
    pub(super) ends_with_process: bool,
}

impl Source {
    /// Opens the namespace `nsid`, or all of the subsystem; a device of this machine is namespace 1.
    pub(super) fn open(args: &SourceArgs, read_only: bool, nsid: Option<u32>) -> Result<Self> {
        let mut source = match (&args.target, args.local()) {
            (Some(address), _) => Self::remote(args, address, args.nsid.or(nsid))?,
            (None, local) => {
                let local = local.expect("the command line demands one");
                let identity = identity_of(&local)?;
                let in_memory = matches!(local, LocalDevice::Ram(_) | LocalDevice::Flash(_));
                let device = model::Device::new(local.kind(args.block_size, read_only));
                let device = devices::open(&device).context("cannot open the device")?;
                Self {
                    namespaces: vec![(1, PerClass::from_fn(|_| Arc::clone(&device)))],
                    subsystem: None,
                    text: in_words(&local),
                    identity,
                    ends_with_process: in_memory,
                }
            }
        };
        if let Some(spec) = args.path {
            let devices = source.namespaces.iter_mut();
            for (_, device) in devices.flat_map(|(_, devices)| devices.iter_mut()) {
                let below = Arc::clone(device);
                *device = Arc::new(PathDevice::start(below, spec.path, spec.rules)?);
            }
        }
        Ok(source)
    }

    fn remote(args: &SourceArgs, address: &str, nsid: Option<u32>) -> Result<Self> {
        let timeout = Some(args.io_timeout).filter(|timeout| !timeout.is_zero());
        let knobs = args.baseline.unwrap_or(Preset::Switchyard).knobs();
        let host = builder(&args.host).loss_timeout(timeout);
        let host = host.keep_reconnecting(true).knobs(knobs).build()?;
        let subsystem = host.connect(address, &args.nqn)?;
        let all = || {
            subsystem
                .namespaces()
                .iter()
                .map(|info| info.nsid)
                .collect()
        };
        let nsids = nsid.map_or_else(all, |nsid| vec![nsid]);
        let mut identity = None;
        let open = |nsid| -> Result<(u32, Devices)> {
            let namespace = subsystem.namespace(nsid)?;
            identity.get_or_insert_with(|| volume(&args.nqn, namespace.info()));
            let device = |class: Class| -> Arc<dyn Device> {
                let device = namespace.device().with_queues(1, REMOTE_DEPTH);
                Arc::new(device.with_class(class))
            };
            Ok((nsid, PerClass::from_fn(device)))
        };
        let text = match nsids[..] {
            [nsid] => format!("{address} {} namespace {nsid}", args.nqn),
            _ => format!("{address} {}", args.nqn),
        };
        Ok(Self {
            namespaces: nsids.into_iter().map(open).collect::<Result<_>>()?,
            identity: identity.unwrap_or_default(),
            ends_with_process: false,
            subsystem: Some(subsystem),
            text,
        })
    }

    /// Returns the state of the way to the devices, and the reason for which it is lost.
    pub(super) fn state(&self) -> (AttachmentState, Option<String>) {
        let Some(subsystem) = &self.subsystem else {
            return (AttachmentState::Local, None);
        };
        let association = subsystem.association();
        let is_gone = |(_, devices): &&(u32, Devices)| devices[Class::DEFAULT].geometry().is_gone();
        let state = match association.phase() {
            Phase::Live => {
                return match self.namespaces.iter().find(is_gone) {
                    None => (AttachmentState::Connected, None),
                    Some((nsid, _)) => {
                        let error = format!("namespace {nsid} is removed, or another volume");
                        (AttachmentState::Gone, Some(error))
                    }
                };
            }
            Phase::Connecting | Phase::Recovering => AttachmentState::NotConnected,
            Phase::Gone => AttachmentState::Gone,
        };
        (state, association.last_error().map(|e| e.to_string()))
    }

    /// Returns the size of all devices at present, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        let devices = self.namespaces.iter().map(|(_, devices)| devices);
        let sizes = devices.map(|devices| devices[Class::DEFAULT].geometry().bytes());
        sizes.fold(0, u64::saturating_add)
    }

    /// Returns the one device of a front end that has one.
    pub(super) fn device(&self) -> &Devices {
        &self.namespaces[0].1
    }
}

/// Returns a device that is to be opened in words.
pub(super) fn wanted_in_words(args: &SourceArgs) -> String {
    let target = || {
        let nsid = args.nsid.map(|nsid| format!(" namespace {nsid}"));
        let address = args.target.as_deref().unwrap_or_default();
        format!("{address} {}{}", args.nqn, nsid.unwrap_or_default())
    };
    args.local().as_ref().map_or_else(target, in_words)
}

fn in_words(local: &LocalDevice) -> String {
    match local {
        LocalDevice::Ram(size) => format!("ram {size}"),
        LocalDevice::Null(size) => format!("null {size}"),
        LocalDevice::Flash(spec) => format!("flash {spec}"),
        LocalDevice::File(path) => format!("file {}", path.display()),
    }
}

/// Returns the identity of a device of this machine: of a file its place, of a block device its
/// number, of one without content its description. Memory is another volume at each start.
fn identity_of(local: &LocalDevice) -> Result<u64> {
    let path = match local {
        LocalDevice::File(path) => path,
        LocalDevice::Null(_) => return Ok(hash("local", in_words(local).as_bytes())),
        LocalDevice::Ram(_) | LocalDevice::Flash(_) => {
            return Ok(RandomState::new().hash_one("memory"));
        }
    };
    let found = std::fs::metadata(path).map_err(|error| {
        let path = path.display();
        let remedy = match error.kind() {
            ErrorKind::NotFound => format!(", or make a file: truncate -s 1G {path}"),
            _ => String::new(),
        };
        anyhow!("cannot open the device: {path}: {error}; check the path{remedy}")
    })?;
    let (kind, place) = if found.file_type().is_block_device() {
        ("block", [found.rdev(), 0])
    } else {
        ("file", [found.dev(), found.ino()])
    };
    Ok(hash(kind, &place.map(u64::to_le_bytes).concat()))
}

/// Returns the identity of a namespace's volume: by its identifier, or its place in the subsystem
/// where it has none.
fn volume(nqn: &str, info: &NamespaceInfo) -> u64 {
    if let Some(nguid) = info.nguid {
        hash("nguid", &nguid)
    } else if let Some(eui64) = info.eui64 {
        hash("eui64", &eui64)
    } else if let Some(uuid) = info.uuid {
        hash("uuid", &uuid)
    } else {
        hash(nqn, &info.nsid.to_le_bytes())
    }
}

/// The hash of an identifier of a kind (FNV-1a), which is the same in every version.
fn hash(kind: &str, identifier: &[u8]) -> u64 {
    let bytes = kind.bytes().chain([0]).chain(identifier.iter().copied());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_file_is_the_same_by_each_of_its_names_and_no_other_one() {
        let folder = std::env::temp_dir().join(format!("switchyard-source-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let [one, other, link] = ["one", "other", "link"].map(|name| folder.join(name));
        for path in [&one, &other] {
            fs::write(path, [0; 4096]).expect("it is written");
        }
        symlink(&one, &link).expect("a link");
        let identity = |path| identity_of(&LocalDevice::File(path));
        let first = identity(one).expect("it is there");
        assert_eq!(identity(link).expect("it is there"), first);
        assert_ne!(identity(other).expect("it is there"), first);
        identity(folder.join("none")).expect_err("it is not there");
        fs::remove_dir_all(&folder).expect("it is removed");
    }

    /// A block device of ublk that a killed process left was served on as one of zeroes.
    #[test]
    fn memory_is_another_volume_at_each_start() {
        let size: control::Size = "1M".parse().expect("a size");
        let identity = |local| identity_of(&local).expect("it has one");
        let ram = || identity(LocalDevice::Ram(size));
        assert_ne!(ram(), ram());
        let spec = || LocalDevice::Flash("A/8:1M".parse().expect("a device"));
        assert_ne!(identity(spec()), identity(spec()));
        let null = || identity(LocalDevice::Null(size));
        assert_eq!(null(), null());
    }

    #[test]
    fn identifiers_of_different_kinds_differ() {
        // FNV-1a of a zero byte.
        assert_eq!(hash("", b""), 0xaf63_bd4c_8601_b7df);
        assert_ne!(hash("nguid", &[1; 16]), hash("uuid", &[1; 16]));
        assert_ne!(hash("nguid", &[1; 16]), hash("nguid", &[2; 16]));
    }
}
