//! `switchyard calibrate`: the model of a device, from loading it.

use super::connect::builder;
use super::signals;
use crate::args::{CalibrateDeviceArgs, LocalDevice, NamedDevice};
use crate::exit::Outcome;
use crate::output::Output;
use anyhow::{Context as _, Result, bail, ensure};
use block::Device;
use block::device::flash::Profile;
use control::DeviceModel;
use control::device_model::{PriceList, Provenance};
use control::model::{Device as Model, DeviceKind};
use control::plane::devices;
use control::provenance;
use indicatif::ProgressBar;
use lab::calibrate::{
    Calibration, Emulated, OnDevice, OnDeviceOptions, Plan, Progress, calibrate, curves,
};
use qos::fit::Known;
use reactor::PollPolicy;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Time for which each load is measured, and for which a device that holds data is written before.
const FULL: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(30));
const QUICK: (Duration, Duration) = (Duration::from_millis(300), Duration::from_secs(2));

/// In virtual time there are no blocks, and requests of any size.
const SMALLEST_BLOCK: u32 = 512;

/// Requests of each load in virtual time.
const REQUESTS: u64 = 100_000;
const REQUESTS_QUICK: u64 = 20_000;

/// Loads the device, and says what its requests cost.
///
/// # Errors
/// A device that cannot be loaded, or must not be written while the price of a write is unknown;
/// measurements that are no model; files that cannot be written.
pub fn run(args: &CalibrateDeviceArgs, output: Output) -> Result<Outcome> {
    let loaded = Loaded::of(args)?;
    let known = Known {
        write: args.write_cost.map(|cost| cost.0),
        read_only_read: args.read_only_cost.map(|cost| cost.0),
    };
    let name = &loaded.name;
    ensure!(
        loaded.writes || known.write.is_some(),
        "{name} may hold data and is not written to, so what a write costs stays unknown; say it \
         with --write-cost TOKENS, or allow writing with --destructive, which OVERWRITES ALL DATA"
    );
    if !loaded.writes {
        output.note(format_args!(
            "{name} is not written to: prices are those of the command line, and the curve is that \
             of reads alone"
        ));
    }
    let stop = signals::stop_flag()?;
    let bar = output.count_bar();
    let result = measure(args, &loaded, known, &stop, &mut |progress| {
        show(&bar, progress, output)
    });
    bar.finish_and_clear();
    let calibration = result?;
    output.result(&calibration, &calibration)?;
    if let Some(path) = &args.output {
        let model = model(name, &calibration, known);
        output.file(path, &model.to_toml())?;
    }
    if let Some(path) = &args.svg {
        output.file(path, &curves::svg(&calibration, name)?)?;
    }
    Ok(Outcome::Done)
}

/// The device that is loaded.
struct Loaded {
    name: String,
    /// Nothing is lost when it is written, or that was asked for.
    writes: bool,
    kind: Kind,
}

enum Kind {
    /// No device at all.
    Virtual {
        profile: Profile,
        bytes: u64,
    },
    Local(DeviceKind),
    Remote {
        address: String,
    },
}

impl Loaded {
    fn of(args: &CalibrateDeviceArgs) -> Result<Self> {
        let Some(NamedDevice { name, device }) = &args.device else {
            let address = args
                .target
                .clone()
                .expect("the command line demands one of them");
            return Ok(Self {
                name: format!("{} at {address}, namespace {}", args.nqn, args.nsid),
                writes: args.destructive,
                kind: Kind::Remote { address },
            });
        };
        let holds_data = matches!(device, LocalDevice::File(_));
        let writes = args.destructive || !holds_data;
        let kind = match device.kind(args.block_size, !writes) {
            DeviceKind::Flash { profile, size, .. } if args.virtual_time => Kind::Virtual {
                profile: profile.0,
                bytes: size.bytes,
            },
            _ if args.virtual_time => bail!(
                "{name} is no emulated flash, and only that knows virtual time; leave --virtual \
                 away, or calibrate a device such as flash:A:1G"
            ),
            kind => Kind::Local(kind),
        };
        Ok(Self {
            name: name.clone(),
            writes,
            kind,
        })
    }
}

fn measure(
    args: &CalibrateDeviceArgs,
    loaded: &Loaded,
    known: Known,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(Progress),
) -> Result<Calibration> {
    let plan = |block_bytes| Plan::new(loaded.writes, block_bytes, args.quick);
    match &loaded.kind {
        &Kind::Virtual { profile, bytes } => {
            let default = if args.quick { REQUESTS_QUICK } else { REQUESTS };
            let requests = args.requests.unwrap_or(default);
            let mut probe = Emulated::new(profile, bytes, requests, args.seed);
            calibrate(&plan(SMALLEST_BLOCK), known, &mut probe, stop, progress)
        }
        Kind::Local(kind) => {
            let device =
                devices::open(&Model::new(kind.clone())).with_context(|| loaded.name.clone())?;
            let full = !matches!(kind, DeviceKind::File { .. });
            on_device(args, device, full, &plan, known, stop, progress)
        }
        Kind::Remote { address } => {
            // The thread that keeps the controller alive must not compete with the load by polling.
            let host = builder(&args.host).poll(PollPolicy::Never).build()?;
            let namespace = host.connect(address, &args.nqn)?.namespace(args.nsid)?;
            let device = namespace.device().with_queues(args.queues, OnDevice::DEPTH);
            on_device(args, Arc::new(device), false, &plan, known, stop, progress)
        }
    }
}

/// `fresh` is a device with a state that nothing but its contents makes.
fn on_device(
    args: &CalibrateDeviceArgs,
    device: Arc<dyn Device>,
    fresh: bool,
    plan: &dyn Fn(u32) -> Plan,
    known: Known,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(Progress),
) -> Result<Calibration> {
    let (measured, precondition) = if args.quick { QUICK } else { FULL };
    let precondition = match args.precondition {
        Some(Duration::ZERO) => None,
        Some(precondition) => Some(precondition),
        None if fresh => Some(Duration::ZERO),
        None => Some(precondition),
    };
    let plan = plan(device.geometry().block_bytes);
    let writes = plan.writes();
    let options = OnDeviceOptions {
        measured: args.seconds.unwrap_or(measured),
        threads: args.threads,
        queues: args.queues,
        writes,
        precondition: precondition.filter(|_| writes),
        seed: args.seed,
    };
    let mut probe = OnDevice::prepare(device, options, stop)?;
    calibrate(&plan, known, &mut probe, stop, progress)
}

fn show(bar: &ProgressBar, progress: Progress, output: Output) {
    let Progress {
        kind,
        iops,
        number,
        kinds,
        loads,
        most,
    } = progress;
    if bar.is_hidden() {
        if loads == 0 {
            output.note(format_args!("{} of {kinds}: {kind}", number + 1));
        }
        return;
    }
    bar.set_length((kinds * most) as u64);
    bar.set_position((number * most + loads) as u64);
    bar.set_message(format!("{kind}, {iops}/s"));
}

fn model(name: &str, calibration: &Calibration, known: Known) -> DeviceModel {
    let fit = &calibration.fit;
    let words = std::env::args().skip(1);
    let command = std::iter::once("switchyard".to_owned())
        .chain(words)
        .collect::<Vec<_>>();
    DeviceModel {
        provenance: Provenance {
            device: name.to_owned(),
            command: Some(command.join(" ")),
            write_price_measured: known.write.is_none(),
            spread_permille: fit.spread_permille,
            ..provenance::here_and_now()
        },
        prices: PriceList::new(fit.write, fit.read_only_read),
        curve: fit.curve.clone(),
    }
}
