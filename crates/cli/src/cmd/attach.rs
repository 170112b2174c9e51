//! `switchyard attach`: front ends for unmodified applications.

use super::connect::builder;
use super::signals;
use crate::args::{AttachArgs, AttachCommand, AttachFuseArgs, AttachNbdArgs};
use crate::args::{AttachUblkArgs, AttachVhostArgs, Cores, SourceArgs};
use crate::exit::Outcome;
use crate::output::{Output, human_bytes};
use anyhow::{Context as _, Result};
use block::{Device, PathDevice};
use control::model;
use control::plane::devices;
use control::process::service_manager::ServiceManager;
use frontend::fuse::Attachment;
use frontend::nbd::{Address, NbdOptions, NbdServer};
use frontend::ublk::{UblkOptions, UblkServer};
use frontend::vhost::{VhostOptions, VhostServer};
use host::Subsystem;
use serde::Serialize;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use switch::{Class, PathRules, PerClass};

/// Time between two looks at whether another program has removed what is attached.
const REMOVED_LOOK: Duration = Duration::from_millis(500);

/// Commands of each queue of a remote namespace.
const REMOTE_DEPTH: u16 = 256;

/// Attaches, and detaches at a signal.
///
/// # Errors
/// A device or target that cannot be used, or an interface that cannot be offered.
pub fn run(args: &AttachArgs, output: Output) -> Result<Outcome> {
    match &args.kind {
        AttachCommand::Nbd(args) => nbd(args, output),
        AttachCommand::Fuse(args) => fuse(args, output),
        AttachCommand::Vhost(args) => vhost(args, output),
        AttachCommand::Ublk(args) => ublk(args, output),
    }
}

/// An attachment that serves.
#[derive(Debug, Serialize)]
struct Ready {
    kind: &'static str,
    /// The way for clients.
    uri: String,
    bytes: u64,
    block_bytes: u32,
    class: &'static str,
    read_only: bool,
}

fn nbd(args: &AttachNbdArgs, output: Output) -> Result<Outcome> {
    let signal = signals::receiver(1)?;
    let source = Source::open(&args.source, args.read_only, Some(1))?;
    let options = NbdOptions {
        address: args.address(),
        class: args.class,
        read_only: args.read_only,
        cores: cores(args.cores.as_ref()),
        poll: args.poll.into(),
    };
    let (_, devices) = &source.namespaces[0];
    let server = NbdServer::start(devices, &options)?;
    let device = &devices[args.class];
    let ready = Ready {
        kind: "nbd",
        uri: match server.address() {
            Address::Unix(path) => format!("nbd+unix:///?socket={}", in_uri(&path)?),
            Address::Tcp(address) => format!("nbd://{address}"),
        },
        bytes: device.geometry().bytes(),
        block_bytes: device.geometry().block_bytes,
        class: args.class.properties().name,
        read_only: args.read_only || device.capabilities().read_only,
    };
    let text = format_args!("ready: {}, {}", ready.uri, human_bytes(ready.bytes));
    output.result(&ready, text)?;
    tell_ready()?;
    // A sender that is gone has had its signal.
    let _ = signal.recv();
    drop(server);
    Ok(Outcome::Done)
}

fn cores(cores: Option<&Cores>) -> Vec<base::units::CoreId> {
    let cores = cores.map_or(&[][..], |cores| &cores.0);
    cores.iter().copied().map(base::units::CoreId).collect()
}

/// A disk that serves a virtual machine.
#[derive(Debug, Serialize)]
struct ReadyDisk {
    kind: &'static str,
    socket: PathBuf,
    bytes: u64,
    block_bytes: u32,
    queues: u16,
    read_only: bool,
}

fn vhost(args: &AttachVhostArgs, output: Output) -> Result<Outcome> {
    let signal = signals::receiver(1)?;
    let source = Source::open(&args.source, args.read_only, Some(1))?;
    let options = VhostOptions {
        socket: std::path::absolute(&args.socket).context("cannot find the working directory")?,
        class: args.class,
        read_only: args.read_only,
        queues: args.queues,
        id: args.serial.clone(),
        cores: cores(args.cores.as_ref()),
        poll: args.poll.into(),
    };
    let (_, devices) = &source.namespaces[0];
    let server = VhostServer::start(devices, &options)?;
    let device = &devices[Class::DEFAULT];
    let ready = ReadyDisk {
        kind: "vhost",
        socket: server.socket().to_owned(),
        bytes: device.geometry().bytes(),
        block_bytes: device.geometry().block_bytes,
        queues: server.queues(),
        read_only: args.read_only || device.capabilities().read_only,
    };
    let size = human_bytes(ready.bytes);
    let text = format_args!("ready: {}, {size}", ready.socket.display());
    output.result(&ready, text)?;
    tell_ready()?;
    // A sender that is gone has had its signal.
    let _ = signal.recv();
    let served = server.detach();
    output.note(format_args!(
        "served {} latency and {} throughput requests",
        served[Class::Latency],
        served[Class::Throughput]
    ));
    Ok(Outcome::Done)
}

/// A block device that serves.
#[derive(Debug, Serialize)]
struct ReadyBlockDevice {
    kind: &'static str,
    path: PathBuf,
    id: u32,
    bytes: u64,
    block_bytes: u32,
    class: &'static str,
    queues: u16,
    read_only: bool,
    /// It was left behind by a process that was killed.
    recovered: bool,
}

fn ublk(args: &AttachUblkArgs, output: Output) -> Result<Outcome> {
    let signal = signals::receiver(2)?;
    let source = Source::open(&args.source, args.read_only, Some(1))?;
    let options = UblkOptions {
        id: args.id,
        class: args.class,
        read_only: args.read_only,
        queues: args.queues,
        cores: cores(args.cores.as_ref()),
        poll: args.poll.into(),
    };
    let (_, devices) = &source.namespaces[0];
    let mut server = UblkServer::start(devices, &options)?;
    let device = &devices[Class::DEFAULT];
    let ready = ReadyBlockDevice {
        kind: "ublk",
        path: server.path(),
        id: server.id(),
        bytes: device.geometry().bytes(),
        block_bytes: device.geometry().block_bytes,
        class: args.class.properties().name,
        queues: server.queues(),
        read_only: args.read_only || device.capabilities().read_only,
        recovered: server.is_recovered(),
    };
    let size = human_bytes(ready.bytes);
    let text = format_args!("ready: {}, {size}", ready.path.display());
    output.result(&ready, text)?;
    tell_ready()?;
    until_detached(&mut server, &signal, output);
    Ok(Outcome::Done)
}

/// A path as the value of a URI's parameter. `[RFC 3986 §2]`
fn in_uri(path: &Path) -> Result<String> {
    let path = std::path::absolute(path).context("cannot find the working directory")?;
    let mut text = String::new();
    for &byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte) {
            text.push(byte.into());
        } else {
            text += &format!("%{byte:02X}");
        }
    }
    Ok(text)
}

/// Tells the service manager, if there is one.
fn tell_ready() -> Result<()> {
    let manager = ServiceManager::from_environment();
    manager
        .context("the service manager cannot be told that this is ready")?
        .tell("READY=1");
    Ok(())
}

/// Files that serve.
#[derive(Debug, Serialize)]
struct ReadyFiles {
    kind: &'static str,
    files: Vec<ReadyFile>,
}

#[derive(Debug, Serialize)]
struct ReadyFile {
    path: PathBuf,
    bytes: u64,
    block_bytes: u32,
}

fn fuse(args: &AttachFuseArgs, output: Output) -> Result<Outcome> {
    let signal = signals::receiver(2)?;
    let source = Source::open(&args.source, args.read_only, args.source.nsid)?;
    let options = frontend::fuse::Options {
        mountpoint: args.mountpoint.clone(),
        class: args.class,
        core: args.core.map(base::units::CoreId),
        poll: args.poll.into(),
        allow_other: args.allow_other,
        read_only: args.read_only,
    };
    let mut attachment = Attachment::start(source.namespaces.clone(), &options)?;
    let file = |(nsid, devices): &(u32, PerClass<Arc<dyn Device>>)| {
        let geometry = devices[Class::DEFAULT].geometry();
        ReadyFile {
            path: attachment.mountpoint().join(nsid.to_string()),
            bytes: geometry.bytes(),
            block_bytes: geometry.block_bytes,
        }
    };
    let ready = ReadyFiles {
        kind: "fuse",
        files: source.namespaces.iter().map(file).collect(),
    };
    let lines = ready.files.iter().map(|file| {
        let size = human_bytes(file.bytes);
        format!("ready: {}, {size}", file.path.display())
    });
    output.result(&ready, lines.collect::<Vec<_>>().join("\n"))?;
    tell_ready()?;
    until_detached(&mut attachment, &signal, output);
    Ok(Outcome::Done)
}

/// An attachment that is not ended while it is in use, unless by force.
trait InUse {
    fn has_ended(&self) -> bool;

    /// Does what is due now and then.
    fn look(&mut self) {}

    /// Ends it, or says why not.
    fn detach(&mut self) -> Result<(), String>;

    fn detach_forced(&mut self);
}

impl InUse for Attachment {
    fn has_ended(&self) -> bool {
        Self::has_ended(self)
    }

    fn detach(&mut self) -> Result<(), String> {
        Self::detach(self).map_err(|error| error.to_string())
    }

    fn detach_forced(&mut self) {
        Self::detach_forced(self);
    }
}

impl InUse for UblkServer {
    fn has_ended(&self) -> bool {
        Self::has_ended(self)
    }

    fn look(&mut self) {
        if let Err(error) = self.follow_size() {
            tracing::warn!("{error}");
        }
    }

    fn detach(&mut self) -> Result<(), String> {
        Self::detach(self).map_err(|error| error.to_string())
    }

    fn detach_forced(&mut self) {
        Self::detach_forced(self);
    }
}

/// Serves until a signal comes while the attachment is not in use, or a second one comes, or another
/// program removes it.
fn until_detached(attached: &mut impl InUse, signal: &mpsc::Receiver<()>, output: Output) {
    let mut signals = 0;
    while !attached.has_ended() {
        if signal.recv_timeout(REMOVED_LOOK).is_err() {
            attached.look();
            continue;
        }
        signals += 1;
        match attached.detach() {
            Ok(()) => break,
            Err(error) if signals == 1 => {
                output.note(format_args!(
                    "{error}; or signal again to detach all the same"
                ));
            }
            Err(_) => {
                attached.detach_forced();
                break;
            }
        }
    }
}

/// Ways to the same blocks, by class.
type Devices = PerClass<Arc<dyn Device>>;

/// The devices to be attached, and the connections behind them.
struct Source {
    namespaces: Vec<(u32, Devices)>,
    _subsystem: Option<Subsystem>,
}

impl Source {
    /// Opens the namespace `nsid`, or all of the subsystem; a device of this machine is namespace 1.
    fn open(args: &SourceArgs, read_only: bool, nsid: Option<u32>) -> Result<Self> {
        let mut source = match (&args.target, args.local()) {
            (Some(address), _) => Self::remote(args, address, args.nsid.or(nsid))?,
            (None, local) => {
                let local = local.expect("the command line demands one");
                let device = model::Device::new(local.kind(args.block_size, read_only));
                let device = devices::open(&device).context("cannot open the device")?;
                Self {
                    namespaces: vec![(1, PerClass::from_fn(|_| Arc::clone(&device)))],
                    _subsystem: None,
                }
            }
        };
        if let Some(path) = args.path {
            let devices = source.namespaces.iter_mut();
            for (_, device) in devices.flat_map(|(_, devices)| devices.iter_mut()) {
                let below = Arc::clone(device);
                *device = Arc::new(PathDevice::start(below, path, PathRules::default())?);
            }
        }
        Ok(source)
    }

    fn remote(args: &SourceArgs, address: &str, nsid: Option<u32>) -> Result<Self> {
        let timeout = Some(args.io_timeout).filter(|timeout| !timeout.is_zero());
        let host = builder(&args.host).loss_timeout(timeout).build()?;
        let subsystem = host.connect(address, &args.nqn)?;
        let all = || {
            subsystem
                .namespaces()
                .iter()
                .map(|info| info.nsid)
                .collect()
        };
        let nsids = nsid.map_or_else(all, |nsid| vec![nsid]);
        let open = |nsid| -> Result<(u32, Devices)> {
            let namespace = subsystem.namespace(nsid)?;
            let device = |class: Class| -> Arc<dyn Device> {
                let device = namespace.device().with_queues(1, REMOTE_DEPTH);
                Arc::new(device.with_class(class))
            };
            Ok((nsid, PerClass::from_fn(device)))
        };
        Ok(Self {
            namespaces: nsids.into_iter().map(open).collect::<Result<_>>()?,
            _subsystem: Some(subsystem),
        })
    }
}
