//! `switchyard attach`: front ends for unmodified applications.

use super::connect::builder;
use super::signals;
use crate::args::{AttachArgs, AttachCommand, AttachNbdArgs, SourceArgs};
use crate::exit::Outcome;
use crate::output::{Output, human_bytes};
use anyhow::{Context as _, Result};
use block::{Device, PathDevice};
use control::model;
use control::plane::devices;
use frontend::nbd::{Address, NbdOptions, NbdServer};
use host::Subsystem;
use serde::Serialize;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;
use switch::{Class, PathRules, PerClass};

/// Commands of each queue of a remote namespace.
const REMOTE_DEPTH: u16 = 256;

/// Attaches, and detaches at a signal.
///
/// # Errors
/// A device or target that cannot be used, or an interface that cannot be offered.
pub fn run(args: &AttachArgs, output: Output) -> Result<Outcome> {
    match &args.kind {
        AttachCommand::Nbd(args) => nbd(args, output),
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
    let signal = signals::first_signal()?;
    let source = Source::open(&args.source, args.read_only)?;
    let options = NbdOptions {
        address: args.address(),
        class: args.class,
        read_only: args.read_only,
        cores: args.cores.clone().map_or_else(Vec::new, |cores| {
            cores.0.into_iter().map(base::units::CoreId).collect()
        }),
        poll: args.poll.into(),
    };
    let server = NbdServer::start(&source.devices, &options)?;
    let device = &source.devices[args.class];
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
    // A sender that is gone has had its signal.
    let _ = signal.recv();
    drop(server);
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

/// The device to be attached, and the connections behind it.
struct Source {
    devices: PerClass<Arc<dyn Device>>,
    _subsystem: Option<Subsystem>,
}

impl Source {
    fn open(args: &SourceArgs, read_only: bool) -> Result<Self> {
        let mut source = match (&args.target, args.local()) {
            (Some(address), _) => Self::remote(args, address)?,
            (None, local) => {
                let local = local.expect("the command line demands one");
                let device = model::Device::new(local.kind(args.block_size, read_only));
                let device = devices::open(&device).context("cannot open the device")?;
                Self {
                    devices: PerClass::from_fn(|_| Arc::clone(&device)),
                    _subsystem: None,
                }
            }
        };
        if let Some(path) = args.path {
            for (_, device) in source.devices.iter_mut() {
                let below = Arc::clone(device);
                *device = Arc::new(PathDevice::start(below, path, PathRules::default())?);
            }
        }
        Ok(source)
    }

    fn remote(args: &SourceArgs, address: &str) -> Result<Self> {
        let timeout = Some(args.io_timeout).filter(|timeout| !timeout.is_zero());
        let host = builder(&args.host).loss_timeout(timeout).build()?;
        let subsystem = host.connect(address, &args.nqn)?;
        let namespace = subsystem.namespace(args.nsid)?;
        let device = |class: Class| -> Arc<dyn Device> {
            let device = namespace.device().with_queues(1, REMOTE_DEPTH);
            Arc::new(device.with_class(class))
        };
        Ok(Self {
            devices: PerClass::from_fn(device),
            _subsystem: Some(subsystem),
        })
    }
}
