//! The devices of an attachment: namespaces of a target, or a device of this machine.

use crate::attach::identifier_hash::hash;
use crate::attach::modified::Modified;
use crate::attach::queues::Queues;
use crate::attach::snapshot::AttachmentState;
use crate::attach::succession::TargetSuccession;
use crate::vhost::Succession;
use anyhow::{Context as _, Result, anyhow, ensure};
use block::{Device, PathDevice};
use config::schema::{BlockSize, DeviceKind};
use control::plane::devices::{self, TakenOver};
use host::{CoreId, HostBuilder, NamespaceInfo, Phase, RemoteNamespace, Subsystem};
use std::fmt;
use std::fs::File;
use std::hash::{BuildHasher as _, RandomState};
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::sync::Arc;
use switch::{Class, PathSpec, PerClass};

/// Commands of each queue of a remote namespace.
const REMOTE_DEPTH: u16 = 256;

/// Ways to the same blocks, by class.
pub(crate) type Devices = PerClass<Arc<dyn Device>>;

/// A device to be attached, or several.
#[derive(Clone, Debug)]
pub enum SourceDevice {
    /// A device of this machine.
    Local(DeviceKind),
    /// Namespaces of a target.
    Remote(Box<RemoteNamespaces>),
}

/// Namespaces of a target. Their host connects again for as long as they are attached.
#[derive(Clone, Debug)]
pub struct RemoteNamespaces {
    /// The host's options.
    pub host: HostBuilder,
    /// Address of the target: HOST:PORT.
    pub address: String,
    /// Name of the subsystem.
    pub nqn: String,
    /// The one that is attached; `None` means all to a front end that can have several, and otherwise
    /// number 1.
    pub nsid: Option<u32>,
}

impl fmt::Display for SourceDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(kind) => kind.fmt(f),
            Self::Remote(remote) => remote.fmt(f),
        }
    }
}

impl fmt::Display for RemoteNamespaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.address, self.nqn)?;
        self.nsid
            .map_or(Ok(()), |nsid| write!(f, " namespace {nsid}"))
    }
}

/// The devices to be attached, and the connections behind them.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) namespaces: Vec<(u32, Devices)>,
    subsystem: Option<Subsystem>,
    /// The device in words.
    pub(crate) text: String,
    /// Identity of the volume of the first namespace, the same at each start unless the volume is
    /// lost with the process.
    pub(crate) identity: u64,
    /// The volume is lost with the process.
    pub(crate) ends_with_process: bool,
    /// The means to know the time of the last write.
    pub(crate) modified: Modified,
    /// Identities of the volumes, by namespace.
    pub(crate) volumes: Vec<(u32, u64)>,
    /// The device of this machine without an I/O path.
    local: Option<Arc<dyn Device>>,
    /// The way to the controllers of a remote device.
    pub(crate) succession: Option<Arc<dyn Succession>>,
}

impl Source {
    /// Opens the device of this machine, which is namespace 1, or the namespace `nsid` of the target
    /// where the description names none; without either all of the subsystem. For a front end with a
    /// thread on each of `cores`, or with one thread if there are none. `taken` is the file of a device
    /// of this machine, with its lock, if a predecessor has it.
    pub(crate) fn open(
        device: &SourceDevice,
        path: Option<PathSpec>,
        nsid: Option<u32>,
        cores: &[CoreId],
        taken: Option<File>,
    ) -> Result<Self> {
        let mut source = match device {
            SourceDevice::Remote(remote) => {
                Self::remote(remote, remote.nsid.or(nsid), path.is_some(), cores)?
            }
            SourceDevice::Local(kind) => {
                let identity = identity_of(kind)?;
                let modified = Modified::of_file(kind);
                let device = config::schema::Device::new(kind.clone());
                let taken = taken.map(|file| TakenOver {
                    file: Some(file),
                    content: String::new(),
                });
                let opened = devices::open_identified(&device, None, taken);
                let device = opened.context("cannot open the device")?.device;
                Self {
                    namespaces: vec![(1, PerClass::from_fn(|_| Arc::clone(&device)))],
                    subsystem: None,
                    text: kind.to_string(),
                    identity,
                    ends_with_process: kind.is_volatile(),
                    modified,
                    volumes: vec![(1, identity)],
                    local: Some(device),
                    succession: None,
                }
            }
        };
        if let Some(spec) = path {
            let devices = source.namespaces.iter_mut();
            for (_, device) in devices.flat_map(|(_, devices)| devices.iter_mut()) {
                let below = Arc::clone(device);
                *device = Arc::new(PathDevice::start(below, spec.path, spec.rules)?);
            }
        }
        Ok(source)
    }

    fn remote(
        remote: &RemoteNamespaces,
        nsid: Option<u32>,
        by_path: bool,
        cores: &[CoreId],
    ) -> Result<Self> {
        let host = remote.host.clone().keep_reconnecting(true).build()?;
        let subsystem = host.connect(&remote.address, &remote.nqn)?;
        let all = || {
            subsystem
                .namespaces()
                .iter()
                .map(|info| info.nsid)
                .collect()
        };
        let nsids = nsid.map_or_else(all, |nsid| vec![nsid]);
        let queues = Queues::new(&subsystem, nsids.len(), by_path, cores)?;
        let mut volumes = Vec::new();
        let open = |nsid| -> Result<(u32, Devices)> {
            // Without the channel for blocking calls, which would take an I/O queue.
            let namespace = RemoteNamespace::new(subsystem.association(), nsid)?;
            volumes.push((nsid, volume(&remote.nqn, namespace.info())));
            let board = queues.board.as_ref();
            let switched = board.map(|board| board.namespace(&namespace)).transpose()?;
            let device = |class: Class| -> Arc<dyn Device> {
                if let Some(switched) = &switched {
                    return Arc::new(switched.clone().with_class(class));
                }
                let device = namespace.clone().with_queues(1, REMOTE_DEPTH);
                let mut device = device.with_class(class);
                if class != Class::DEFAULT {
                    device = device.leaving(queues.left);
                }
                if by_path {
                    Arc::new(device.below_path())
                } else {
                    Arc::new(device)
                }
            };
            Ok((nsid, PerClass::from_fn(device)))
        };
        let opened = RemoteNamespaces {
            nsid: match nsids[..] {
                [nsid] => Some(nsid),
                _ => None,
            },
            ..remote.clone()
        };
        let namespaces = nsids.into_iter().map(open).collect::<Result<_>>()?;
        Ok(Self {
            namespaces,
            identity: volumes.first().map_or(0, |&(_, identity)| identity),
            modified: Modified::OfVolumes(volumes.clone()),
            volumes,
            local: None,
            ends_with_process: false,
            succession: Some(Arc::new(TargetSuccession {
                host,
                address: remote.address.clone(),
                nqn: remote.nqn.clone(),
                subsystem: subsystem.clone(),
            })),
            subsystem: Some(subsystem),
            text: opened.to_string(),
        })
    }

    /// Returns the state of the way to the devices, and the reason for which it is lost.
    pub(crate) fn state(&self) -> (AttachmentState, Option<String>) {
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

    /// Returns the file of a device of this machine, with its lock, for a successor; `None` if there is
    /// none.
    ///
    /// # Errors
    /// The content ends with this process, or there is no descriptor left.
    pub(crate) fn share_file(&self) -> Result<Option<File>> {
        ensure!(
            !self.ends_with_process,
            "the content of {} is memory of this process; it cannot be taken over",
            self.text
        );
        let file = self.local.as_ref().map(|device| device.hand_over());
        Ok(file.transpose()?.flatten())
    }

    /// Returns the size of all devices at present, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let devices = self.namespaces.iter().map(|(_, devices)| devices);
        let sizes = devices.map(|devices| devices[Class::DEFAULT].geometry().bytes());
        sizes.fold(0, u64::saturating_add)
    }

    /// Returns the one device of a front end that has one.
    pub(crate) fn device(&self) -> &Devices {
        &self.namespaces[0].1
    }
}

/// Returns the identity of a device of this machine: of a file its place, of a block device its
/// number, of one without content its description. Memory is another volume at each start.
fn identity_of(kind: &DeviceKind) -> Result<u64> {
    let Some(path) = kind.path() else {
        return Ok(match kind.is_volatile() {
            true => RandomState::new().hash_one("memory"),
            false => hash("local", kind.to_string().as_bytes()),
        });
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
    // A target may announce the UUID as NGUID too, and may not have done so before: the same volume.
    if let Some(nguid) = info.nguid.filter(|_| info.nguid != info.uuid) {
        hash("nguid", &nguid)
    } else if let Some(eui64) = info.eui64 {
        hash("eui64", &eui64)
    } else if let Some(uuid) = info.uuid {
        hash("uuid", &uuid)
    } else {
        hash(nqn, &info.nsid.to_le_bytes())
    }
}

/// Returns the block size of a device of this machine where none is given: that of a block device, and
/// 512 bytes otherwise. Images of disks are made for that, and firmware starts from no other.
#[must_use]
pub fn block_size_of(kind: &DeviceKind) -> BlockSize {
    let Some(path) = kind.path() else {
        return BlockSize::B512;
    };
    // One that is not there is an error when it is opened.
    let is_block = std::fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device());
    let device = is_block.then(|| File::open(path).ok()).flatten();
    let bytes = device.and_then(|device| rustix::fs::ioctl_blksszget(device).ok());
    let size = bytes.and_then(|bytes| BlockSize::try_from(u64::from(bytes)).ok());
    size.unwrap_or(BlockSize::B512)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    #[test]
    fn a_file_is_the_same_by_each_of_its_names_and_no_other_one() {
        let folder = block::temporary_folder("folder");
        let [one, other, link] = ["one", "other", "link"].map(|name| folder.join(name));
        for path in [&one, &other] {
            fs::write(path, [0; 4096]).expect("it is written");
        }
        symlink(&one, &link).expect("a link");
        let identity = |path: PathBuf| {
            let text = format!("file:{}", path.display());
            identity_of(&text.parse().expect("a device"))
        };
        let first = identity(one).expect("it is there");
        assert_eq!(identity(link).expect("it is there"), first);
        assert_ne!(identity(other).expect("it is there"), first);
        identity(folder.join("none")).expect_err("it is not there");
    }

    /// A block device of ublk that a killed process left was served on as one of zeroes.
    #[test]
    fn memory_is_another_volume_at_each_start() {
        let identity = |text: &str| {
            let kind: DeviceKind = text.parse().expect("a device");
            identity_of(&kind).expect("it has one")
        };
        assert_ne!(identity("ram:1M"), identity("ram:1M"));
        assert_ne!(identity("flash:A/8:1M"), identity("flash:A/8:1M"));
        assert_eq!(identity("null:1M"), identity("null:1M"));
    }

    /// Firmware started from none of them, and an image's partitions were not found.
    #[test]
    fn a_device_without_a_block_size_has_that_of_disk_images() {
        for text in ["ram:1M", "file:/dev/null", "file:/nothing/there"] {
            let kind = text.parse().expect("a device");
            assert_eq!(block_size_of(&kind), BlockSize::B512, "{text}");
        }
    }
}
