//! `switchyard calibrate`.

use super::ApiArgs;
use super::host::HostArgs;
use super::{block_size, measured_seconds, seconds};
use clap::{Arg, ArgGroup, Args};
use config::schema::{BlockSize, DEFAULT_NQN, DeviceKind, DeviceTextError};
use qos::cost::Price;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Measure a device's cost model and latency curve
///
/// The model has the cost of a write, the cost of a read while there are no writes, and the read
/// latency at each rate of tokens. 1 token is the cost of a 4 KiB read in a mix with writes. A
/// target needs the model to admit SLOs and to limit tenants to their rates.
///
/// The command runs Poisson loads with several read percentages and request sizes, and raises the
/// rate of each until the device is saturated. It fails if the measurements contradict each other.
///
/// A file, block device or target is only read, unless --destructive is given.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  switchyard calibrate flash:A:1G --virtual --output a.toml
  switchyard calibrate flash:A/8:1G --quick
  switchyard calibrate file:/dev/nvme1n1 --destructive --output nvme1n1.toml
  switchyard calibrate file:/dev/nvme1n1 --write-cost 10 --read-only-cost 0.5 --output model.toml
  switchyard calibrate --target 127.0.0.1:4420 --destructive --json
  switchyard calibrate --live nvme1 --share 10 --output nvme1n1.toml

Exit codes: 0 success, 2 error or contradictory measurements. Ctrl-C ends without a result.")]
#[command(mut_args = for_subject)]
#[command(group = ArgGroup::new("calibrated").required(true).args(["device", "target", "live"]))]
pub struct CalibrateDeviceArgs {
    /// Local device: ram:SIZE, null:SIZE, flash:PROFILE:SIZE or file:PATH
    #[arg(value_name = "DEVICE")]
    pub device: Option<NamedDevice>,
    /// Calibrate a namespace of this NVMe/TCP target instead: HOST:PORT
    #[arg(long, value_name = "ADDRESS")]
    pub target: Option<String>,
    /// Recalibrate a device of a running target, by its name there, while it serves tenants
    ///
    /// The target issues random reads at a rising and falling rate, up to --share of the device's
    /// rate, as a best-effort tenant, so they do not delay tenants with an SLO. Their latencies
    /// replace the curve at the rates that were measured, when the command ends. Costs and the rest
    /// of the curve stay. Contradictory measurements change nothing. Ctrl-C cancels.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["virtual_time", "destructive",
        "write_cost", "read_only_cost", "quick", "precondition"])]
    pub live: Option<String>,
    /// With --live: limit of the load, in percent of the device's token rate
    #[arg(long, value_name = "PERCENT", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    pub share: u32,
    #[command(flatten)]
    pub api: ApiArgs,
    /// NQN of the subsystem
    #[arg(long, value_name = "NQN", default_value = DEFAULT_NQN)]
    pub nqn: String,
    /// Namespace ID
    #[arg(long, value_name = "NSID", default_value_t = 1)]
    pub nsid: u32,
    /// Logical block size of a local device: 512 or 4096
    #[arg(long, value_name = "BYTES", default_value = "512", value_parser = block_size)]
    pub block_size: BlockSize,
    /// Simulate emulated flash in virtual time: same result on every machine
    #[arg(long = "virtual", conflicts_with_all = ["target", "destructive"])]
    pub virtual_time: bool,
    /// Allow writes to a file, block device or target; OVERWRITES ALL ITS DATA
    #[arg(long)]
    pub destructive: bool,
    /// Cost of a 4 KiB write, in tokens [default: measured]
    #[arg(long, value_name = "TOKENS")]
    pub write_cost: Option<Tokens>,
    /// Cost of a 4 KiB read while there are no writes, in tokens [default: measured; 1 if writes
    /// are not allowed]
    #[arg(long, value_name = "TOKENS")]
    pub read_only_cost: Option<Tokens>,
    /// Fewer and shorter loads: a quick, inaccurate result
    #[arg(long)]
    pub quick: bool,
    /// Measured time of each load [default: 2; with --quick: 0.3]; with --live, of all loads
    /// together [default: 30]
    #[arg(long, value_name = "SECONDS", value_parser = measured_seconds, conflicts_with = "virtual_time")]
    pub seconds: Option<Duration>,
    /// With --virtual: requests of each load [default: 100000; with --quick: 20000]
    #[arg(long, value_name = "NUMBER", requires = "virtual_time")]
    #[arg(value_parser = clap::value_parser!(u64).range(1_000..=10_000_000))]
    pub requests: Option<u64>,
    /// Time of random writes before measuring, after the device is filled once [default: 30; with
    /// --quick: 2; 0 for RAM and emulated flash]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub precondition: Option<Duration>,
    /// Number of reading threads, and of writing threads
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=64))]
    pub threads: u32,
    /// Connections per thread to a target
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=64))]
    pub queues: u16,
    /// Seed of the random addresses and arrivals
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
    /// File for the model (TOML), for the configuration key "model" of a device
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub host: HostArgs,
}

/// Makes an argument conflict with the subjects of calibration to which it does not apply.
/// `requires` would not work: see [`for_target`](super::for_target).
fn for_subject(arg: Arg) -> Arg {
    let others: &[&str] = match arg.get_id().as_str() {
        "nqn"
        | "nsid"
        | "host_nqn"
        | "digests"
        | "tls_key"
        | "chap_secret"
        | "chap_controller_secret"
        | "queues" => &["device", "live"],
        "block_size" => &["target", "live", "virtual_time"],
        "threads" => &["live", "virtual_time"],
        "precondition" => &["virtual_time"],
        "seed" => &["live"],
        "api" | "share" => &["device", "target"],
        _ => return arg,
    };
    arg.conflicts_with_all(others)
}

/// A local device, and its text on the command line.
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

/// A cost in tokens, with a resolution of 0.001.
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
        let form = || "use a number of tokens, such as 10 or 0.5".to_owned();
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
