//! `switchyard calibrate`.

use super::host::HostArgs;
use super::switch::ApiArgs;
use super::{block_size, measured_seconds, seconds};
use clap::{Arg, ArgGroup, Args};
use control::model::{BlockSize, DEFAULT_NQN, DeviceKind, DeviceTextError};
use qos::cost::Price;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Find out what requests cost on a device, and how late its reads are at each load
///
/// Loads the device with requests that arrive independently of each other, at several shares of
/// reads and several sizes, each ever faster until reads come late. From that come the price of a
/// write in reads, the price of a read while nothing is written, and the latency of reads at each
/// rate of tokens (1 token: a 4 KiB read beside writes): the model by which a target admits and
/// holds back tenants. Where the measurements contradict each other there is no model.
///
/// Nothing is written to what holds data (a file, a block device, a target) unless --destructive
/// allows it.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  switchyard calibrate flash:A:1G --virtual --output a.toml
  switchyard calibrate flash:A/8:1G --quick
  switchyard calibrate file:/dev/nvme1n1 --destructive --output nvme1n1.toml
  switchyard calibrate file:/dev/nvme1n1 --write-cost 10 --read-only-cost 0.5 --output model.toml
  switchyard calibrate --target 127.0.0.1:4420 --destructive --json
  switchyard calibrate --live nvme1 --share 10 --output nvme1n1.toml

Exit codes: 0 there is a model, 2 an error, or measurements that are no model. Ctrl-C ends without
one.")]
#[command(mut_args = for_subject)]
#[command(group = ArgGroup::new("calibrated").required(true).args(["device", "target", "live"]))]
pub struct CalibrateDeviceArgs {
    /// The device: ram:SIZE, null:SIZE, flash:PROFILE:SIZE or file:PATH
    #[arg(value_name = "DEVICE")]
    pub device: Option<NamedDevice>,
    /// Instead, a namespace of an NVMe/TCP target: HOST:PORT
    #[arg(long, value_name = "ADDRESS")]
    pub target: Option<String>,
    /// Instead, a device of a running target while it serves, by its name there
    ///
    /// The target reads at random, ever faster up to a share of the device's rate and back; its
    /// reads pay like a best-effort tenant's requests, so no promise waits for them. How late they
    /// are beside the tenants' requests is the newer part of the curve, in force when this ends; the
    /// prices and all rates that were not seen stay. Measurements that contradict each other
    /// change nothing. Ctrl-C cancels.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["virtual_time", "destructive",
        "write_cost", "read_only_cost", "quick", "precondition"])]
    pub live: Option<String>,
    /// With --live: the most of the device's token rate that is spent, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    pub share: u32,
    #[command(flatten)]
    pub api: ApiArgs,
    /// The subsystem's name
    #[arg(long, value_name = "NQN", default_value = DEFAULT_NQN)]
    pub nqn: String,
    /// The namespace's identifier
    #[arg(long, value_name = "NSID", default_value_t = 1)]
    pub nsid: u32,
    /// Logical block of a local device: 512 or 4096 bytes
    #[arg(long, value_name = "BYTES", default_value = "512", value_parser = block_size)]
    pub block_size: BlockSize,
    /// In virtual time, for emulated flash: the same numbers on every machine
    #[arg(long = "virtual", conflicts_with_all = ["target", "destructive"])]
    pub virtual_time: bool,
    /// Write to a device that holds data; OVERWRITES ALL OF IT
    #[arg(long)]
    pub destructive: bool,
    /// Price of a write, in 4 KiB reads; measured where this is not given
    #[arg(long, value_name = "TOKENS")]
    pub write_cost: Option<Tokens>,
    /// Price of a read while nothing is written, in tokens; measured where this is not given and
    /// writing is allowed [default otherwise: 1]
    #[arg(long, value_name = "TOKENS")]
    pub read_only_cost: Option<Tokens>,
    /// Fewer loads, shorter: to look at, not to rely on
    #[arg(long)]
    pub quick: bool,
    /// Measure each load for so many seconds [default: 2; quick: 0.3]; with --live, all of them
    /// [default: 30]
    #[arg(long, value_name = "SECONDS", value_parser = measured_seconds, conflicts_with = "virtual_time")]
    pub seconds: Option<Duration>,
    /// Requests of each load in virtual time [default: 100000; quick: 20000]
    #[arg(long, value_name = "NUMBER", requires = "virtual_time")]
    #[arg(value_parser = clap::value_parser!(u64).range(1_000..=10_000_000))]
    pub requests: Option<u64>,
    /// Write at random for so many seconds before, once the device is full [default: 30; quick: 2;
    /// 0 for memory and emulated flash]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub precondition: Option<Duration>,
    /// Threads that read, and as many that write
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=64))]
    pub threads: u32,
    /// Connections of each thread to a target
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=64))]
    pub queues: u16,
    /// Fixes the order of requests
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
    /// Write the model here, as TOML
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub host: HostArgs,
}

/// Makes an argument conflict with the subjects of a calibration of which it says nothing. A
/// `requires` would not: see [`for_target`](super::for_target).
fn for_subject(arg: Arg) -> Arg {
    let others: &[&str] = match arg.get_id().as_str() {
        "nqn" | "nsid" | "host_nqn" | "digests" | "queues" => &["device", "live"],
        "block_size" => &["target", "live", "virtual_time"],
        "threads" => &["live", "virtual_time"],
        "precondition" => &["virtual_time"],
        "seed" => &["live"],
        "api" | "share" => &["device", "target"],
        _ => return arg,
    };
    arg.conflicts_with_all(others)
}

/// A local device, and how the command line named it.
#[derive(Clone, Debug)]
pub struct NamedDevice {
    pub name: String,
    pub device: DeviceKind,
}

impl FromStr for NamedDevice {
    type Err = DeviceTextError;

    fn from_str(text: &str) -> Result<Self, DeviceTextError> {
        Ok(Self {
            name: text.to_owned(),
            device: text.parse()?,
        })
    }
}

/// A price: a number of tokens, to thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tokens(pub Price);

impl FromStr for Tokens {
    type Err = String;

    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "saturates, and is checked"
    )]
    fn from_str(text: &str) -> Result<Self, String> {
        let form = || "write a number of tokens, like 10 or 0.5".to_owned();
        let tokens: f64 = text.parse().map_err(|_| form())?;
        if !tokens.is_finite() {
            return Err(form());
        }
        let price = Price::milli((tokens * 1e3).round() as u32);
        price.map(Self).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::error::ErrorKind;

    /// They were taken and had no effect.
    #[test]
    fn flags_that_say_nothing_of_the_subject_are_refused() {
        #[derive(Debug, clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: CalibrateDeviceArgs,
        }
        let target = ["--target", "127.0.0.1:4420"];
        let subjects: [&[&str]; 4] = [
            &["flash:A:64M"],
            &["flash:A:64M", "--virtual"],
            &target,
            &["--live", "ssd"],
        ];
        for (flag, is_for) in [
            (
                &["--nqn", "nqn.2026-11.io.example:a"][..],
                [false, false, true, false],
            ),
            (&["--nsid", "3"], [false, false, true, false]),
            (
                &["--host-nqn", "nqn.2026-11.io.example:h"],
                [false, false, true, false],
            ),
            (&["--digests"], [false, false, true, false]),
            (&["--queues", "2"], [false, false, true, false]),
            (&["--block-size", "4096"], [true, false, false, false]),
            (&["--threads", "2"], [true, false, true, false]),
            (&["--precondition", "1"], [true, false, true, false]),
            (&["--seed", "2"], [true, true, true, false]),
            (&["--share", "20"], [false, false, false, true]),
            (&["--api", "unix:/a"], [false, false, false, true]),
        ] {
            for (subject, is_for) in subjects.into_iter().zip(is_for) {
                let line = [&["calibrate"], subject, flag].concat();
                let error = <Line as clap::Parser>::try_parse_from(&line).err();
                let refusal = (!is_for).then_some(ErrorKind::ArgumentConflict);
                assert_eq!(error.map(|error| error.kind()), refusal, "{line:?}");
            }
        }
    }

    #[test]
    fn prices_are_read_to_thousandths() {
        let milli = |text: &str| text.parse::<Tokens>().map(|tokens| tokens.0.as_milli());
        assert_eq!(milli("10"), Ok(10_000));
        assert_eq!(milli("0.4875"), Ok(488));
        for bad in ["", "ten", "-1", "0", "NaN", "1e9"] {
            assert!(bad.parse::<Tokens>().is_err(), "{bad}");
        }
        assert_eq!("NaN".parse::<Tokens>().err(), "ten".parse::<Tokens>().err());
    }
}
