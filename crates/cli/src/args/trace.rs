//! `switchyard trace` on the command line.

use super::{ApiArgs, in_range, names};
use base::Nanos;
use clap::Args;
use clap_complete::ArgValueCandidates;
use control::client::Collector;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

/// Show where slow I/O commands of a running target spent their time, by stage
///
/// The target must run with --api, and traces only while a command runs, at most 4 at a time.
/// Each line is one command; times are in microseconds, and the stages add up to the total. The time
/// before the target has received the command, and after its socket has taken the response, is not
/// included. A summary follows the last line.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Stages:
  core      the core was busy with other commands
  transfer  data was arriving from the host
  buffer    no buffer was free
  pause     the namespace was paused by a change
  tokens    the tenant had no tokens
  device    the device executed the command, including its queue
  send      the response waited for the socket, because the host or network is slow

Examples:
  switchyard trace --tenant database --slower-than 500us
  switchyard trace --nqn nqn.2026-11.io.switchyard:default --nsid 1 --opcode write --count 20
  switchyard trace --seconds 10 --json > slow.jsonl
  switchyard trace --slower-than 5ms --sample 1/1000 --otlp http://127.0.0.1:4318

Exit codes: 0 success, 1 no command was recorded, 2 error")]
pub struct TraceArgs {
    #[command(flatten)]
    pub api: ApiArgs,
    /// Only commands of this tenant
    #[arg(long, value_name = "NAME", add = ArgValueCandidates::new(names::tenants))]
    pub tenant: Option<String>,
    /// Only commands of the host with this NQN
    #[arg(long, value_name = "NQN")]
    pub host: Option<String>,
    /// Only commands to this subsystem
    #[arg(long, value_name = "NQN")]
    pub nqn: Option<String>,
    /// Only commands to this namespace of the subsystem
    #[arg(long, value_name = "NSID", requires = "nqn")]
    pub nsid: Option<u32>,
    /// Only this command, such as read or write-zeroes
    #[arg(long, value_name = "COMMAND", value_parser = opcode)]
    pub opcode: Option<String>,
    /// Only commands that took at least this time, in ns, us, ms or s
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = span)]
    pub slower_than: Nanos,
    /// Also one in N of the faster commands
    #[arg(long, value_name = "1/N", value_parser = sample)]
    pub sample: Option<NonZeroU32>,
    /// Exit after this number of commands
    #[arg(long, value_name = "N", value_parser = in_range::<u64>(1..=u64::MAX))]
    pub count: Option<u64>,
    /// Exit after this time
    #[arg(long, value_name = "SECONDS", value_parser = super::measured_seconds)]
    pub seconds: Option<Duration>,
    /// Also export the commands as OpenTelemetry spans, to the collector at this URL
    ///
    /// The protocol is OTLP/HTTP with JSON. Each command is a span, with a child span for each stage.
    #[arg(long, value_name = "URL")]
    pub otlp: Option<Collector>,
    /// PEM file with the authorities of a collector at https://
    #[arg(
        long,
        value_name = "FILE",
        requires = "otlp",
        default_value = "/etc/ssl/certs/ca-certificates.crt"
    )]
    pub otlp_ca: PathBuf,
}

/// Parses the name of a command.
fn opcode(text: &str) -> Result<String, String> {
    let names: Vec<_> = target::trace::commands().map(|(_, name)| name).collect();
    match names.iter().any(|name| name == text) {
        true => Ok(text.to_owned()),
        false => Err(format!("write one of {}", names.join(", "))),
    }
}

/// Parses a time with its unit.
fn span(text: &str) -> Result<Nanos, String> {
    let end = text.find(|c: char| !c.is_ascii_digit());
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    let of: u64 = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return Err("write a number with its unit, like 500us or 2ms".to_owned()),
    };
    let number: u64 = number.parse().map_err(|_| "write it like 500us or 2ms")?;
    let span = number.checked_mul(of).map(Nanos);
    span.ok_or_else(|| "write at most 18446744073s".to_owned())
}

/// Parses 1/N.
fn sample(text: &str) -> Result<NonZeroU32, String> {
    let every = text.strip_prefix("1/").and_then(|every| every.parse().ok());
    every.ok_or_else(|| "write 1/N, like 1/1000".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit() {
        for (text, ns) in [
            ("0ns", 0),
            ("500us", 500_000),
            ("2ms", 2_000_000),
            ("1s", 1_000_000_000),
        ] {
            assert_eq!(span(text), Ok(Nanos(ns)));
        }
        for bad in [
            "",
            "500",
            "us",
            "-1us",
            "1.5ms",
            "1 ms",
            "1h",
            "20000000000s",
        ] {
            assert!(span(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_sample_is_one_in_a_number() {
        assert_eq!(sample("1/1000"), Ok(NonZeroU32::new(1000).unwrap()));
        for bad in ["", "1000", "1/0", "2/3", "1/-1", "1/x"] {
            assert!(sample(bad).is_err(), "{bad}");
        }
    }
}
