//! `switchyard top` on the command line.

use super::ApiArgs;
use clap::Args;
use std::time::Duration;

/// Show live statistics of a running target: tenants, cores, namespaces and queues
///
/// The target must run with --api. With the API of a running `switchyard attach`, top shows its
/// attachments.
/// Rates and latencies cover the time between two samples, by the target's clock. Latencies are
/// upper bounds of histogram buckets. If the target stops, top retries until it is back.
///
/// With --once or --json, or if stdin or stdout is no terminal, top takes two samples, prints the
/// statistics between them, and exits.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Keys:
  Tab, Shift-Tab    next, previous pane
  Up, Down          scroll rows (also Page Up, Page Down, Home, End)
  Left, Right       scroll columns
  s, S              sort by the next, previous column
  q, Ctrl-C         quit

Examples:
  switchyard top
  switchyard top --api unix:/run/switchyard/api.sock --interval 5
  switchyard top --once | less -S
  switchyard top --json

Exit codes: 0 success, 2 error")]
pub struct TopArgs {
    #[command(flatten)]
    pub api: ApiArgs,
    /// Time between samples, 0.1 to 3600
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    pub interval: Duration,
    /// Print once as plain text, then exit
    #[arg(long)]
    pub once: bool,
}

fn interval(text: &str) -> Result<Duration, String> {
    let range = Duration::from_millis(100)..=Duration::from_secs(3600);
    super::seconds(text)
        .ok()
        .filter(|interval| range.contains(interval))
        .ok_or_else(|| "use 0.1 to 3600 seconds".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_no_busy_loop_and_no_eternity() {
        assert_eq!(interval("0.1"), Ok(Duration::from_millis(100)));
        assert_eq!(interval("3600"), Ok(Duration::from_secs(3600)));
        for bad in ["0", "0.09", "3601", "-1", "nan", "x", ""] {
            assert!(interval(bad).is_err(), "{bad}");
        }
    }
}
