//! `switchyard calibrate`: measures the cost model of a device.

use super::signals;
use crate::args::{CalibrateDeviceArgs, NamedDevice};
use crate::exit::Outcome;
use crate::output::Output;
use anyhow::{Context as _, Result, ensure};
use config::schema::{Device, DeviceKind};
use control::plane::devices;
use host::Namespace;
use indicatif::ProgressBar;
use load::calibrate::{self, OnDevice, Options, Progress, Subject};
use qos::fit::Known;
use reactor::PollPolicy;
use std::sync::Arc;

/// Measures the device and prints its model.
///
/// # Errors
/// A device that cannot be opened; writes that are needed but not allowed; contradictory
/// measurements; a file that cannot be written.
pub fn run(args: &CalibrateDeviceArgs, output: Output) -> Result<Outcome> {
    let known = Known {
        write: args.write_cost.map(|cost| cost.0),
        read_only_read: args.read_only_cost.map(|cost| cost.0),
    };
    let name = name(args);
    let options = options(args)?;
    ensure!(
        options.writes || known.write.is_some(),
        "the cost of writes to {name} is unknown: without --destructive it is only read; give the \
         cost with --write-cost TOKENS, or add --destructive, which OVERWRITES ALL DATA"
    );
    if !options.writes {
        output.note(format_args!(
            "{name} is only read: costs are those of the command line, and the latency curve is that \
             of reads without writes"
        ));
    }
    output.check_files(&args.output)?;
    let stop = signals::stop_flag()?;
    // The controller stays connected while its namespace is there.
    let (subject, _namespace) = subject(args, &name, options.writes)?;
    let bar = output.count_bar();
    let progress = &mut |progress| show(&bar, progress, output);
    let result = calibrate::run(subject, &options, known, &stop, progress);
    bar.finish_and_clear();
    let calibration = result?;
    output.result(&calibration, &calibration)?;
    if let Some(path) = &args.output {
        let model = calibrate::model(&name, &calibration, known);
        output.file(path, &model.to_toml())?;
    }
    Ok(Outcome::Done)
}

/// Returns the name of the device in the model.
fn name(args: &CalibrateDeviceArgs) -> String {
    match &args.device {
        Some(device) => device.name.clone(),
        None => format!(
            "namespace {} of {} at {}",
            args.nsid,
            args.nqn,
            address(args)
        ),
    }
}

/// Returns the target's address, where there is no local device.
fn address(args: &CalibrateDeviceArgs) -> &str {
    let address = args.target.as_deref();
    address.expect("the command line demands one of them")
}

fn options(args: &CalibrateDeviceArgs) -> Result<Options> {
    let device = args.device.as_ref().map(|named| &named.device);
    ensure!(
        !args.virtual_time || matches!(device, Some(DeviceKind::Flash { .. })),
        "{} is not emulated flash, which --virtual needs; omit --virtual, or use a device such as \
         flash:A:1G",
        name(args)
    );
    let holds_data = matches!(device, None | Some(DeviceKind::File { .. }));
    Ok(Options {
        writes: args.destructive || !holds_data,
        quick: args.quick,
        measured: args.seconds,
        precondition: args.precondition,
        requests: args.requests,
        threads: args.threads,
        queues: args.queues,
        seed: args.seed,
    })
}

/// Opens the device; one of a target lives as long as its namespace.
fn subject(
    args: &CalibrateDeviceArgs,
    name: &str,
    writes: bool,
) -> Result<(Subject, Option<Namespace>)> {
    let Some(NamedDevice { device, .. }) = &args.device else {
        // The thread that keeps the controller alive must not compete with the load by polling.
        let host = args.host.builder().poll(PollPolicy::Never).build()?;
        let namespace = host
            .connect(address(args), &args.nqn)?
            .namespace(args.nsid)?;
        let device = namespace.device().with_queues(args.queues, OnDevice::DEPTH);
        let subject = Subject::Device {
            device: Arc::new(device),
            fresh: false,
        };
        return Ok((subject, Some(namespace)));
    };
    let subject = match device.clone().with(Some(args.block_size), !writes) {
        DeviceKind::Flash { profile, size, .. } if args.virtual_time => Subject::Virtual {
            profile: profile.0,
            bytes: size.bytes,
        },
        kind => Subject::Device {
            fresh: !matches!(kind, DeviceKind::File { .. }),
            device: devices::open(&Device::new(kind)).with_context(|| name.to_owned())?,
        },
    };
    Ok((subject, None))
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
