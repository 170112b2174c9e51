//! The devices of an attachment: namespaces of a target, or a device of this machine.

use super::super::connect::builder;
use crate::args::{LocalDevice, SourceArgs};
use anyhow::{Context as _, Result};
use block::{Device, PathDevice};
use control::attachments::AttachmentState;
use control::model;
use control::plane::devices;
use host::{Phase, Subsystem};
use std::sync::Arc;
use switch::knobs::Preset;
use switch::{Class, PathRules, PerClass};

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
}

impl Source {
    /// Opens the namespace `nsid`, or all of the subsystem; a device of this machine is namespace 1.
    pub(super) fn open(args: &SourceArgs, read_only: bool, nsid: Option<u32>) -> Result<Self> {
        let mut source = match (&args.target, args.local()) {
            (Some(address), _) => Self::remote(args, address, args.nsid.or(nsid))?,
            (None, local) => {
                let local = local.expect("the command line demands one");
                let device = model::Device::new(local.kind(args.block_size, read_only));
                let device = devices::open(&device).context("cannot open the device")?;
                Self {
                    namespaces: vec![(1, PerClass::from_fn(|_| Arc::clone(&device)))],
                    subsystem: None,
                    text: in_words(&local),
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
        let knobs = args.baseline.unwrap_or(Preset::Switchyard).knobs();
        let host = builder(&args.host).loss_timeout(timeout).knobs(knobs);
        let host = host.build()?;
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
        let text = match nsids[..] {
            [nsid] => format!("{address} {} namespace {nsid}", args.nqn),
            _ => format!("{address} {}", args.nqn),
        };
        Ok(Self {
            namespaces: nsids.into_iter().map(open).collect::<Result<_>>()?,
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
        let state = match association.phase() {
            Phase::Live => return (AttachmentState::Connected, None),
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

fn in_words(local: &LocalDevice) -> String {
    match local {
        LocalDevice::Ram(size) => format!("ram {size}"),
        LocalDevice::Null(size) => format!("null {size}"),
        LocalDevice::Flash(spec) => format!("flash {spec}"),
        LocalDevice::File(path) => format!("file {}", path.display()),
    }
}
