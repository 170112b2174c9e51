//! `switchyard top` on the command line.

use super::switch::ApiArgs;
use clap::Args;
use std::time::Duration;

/// Watch a running target: tenants, cores, namespaces and queues
///
/// The target must have been started with --api. Of a process of `switchyard attach` with an
/// interface it shows the attachments. Rates are differences between two looks, by the
/// target's own clock. Latencies are bounds of histogram buckets, of what ended between the looks.
/// A target that goes away is asked again until it is back.
///
/// Where standard input or output is no terminal, and with --once or --json, it takes two looks,
/// prints what was between them, and ends.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Keys:
  Tab, Shift-Tab    next pane, pane before
  Up, Down          scroll rows (Page Up, Page Down, Home, End: further)
  Left, Right       scroll columns
  s, S              sort by the next column, or the one before
  q, Ctrl-C         quit

Examples:
  switchyard top
  switchyard top --api unix:/run/switchyard/api.sock --interval 5
  switchyard top --once | less -S
  switchyard top --json

Exit codes: 0 done, 2 an error")]
pub struct TopArgs {
    #[command(flatten)]
    pub api: ApiArgs,
    /// Time between two looks, 0.1 to 3600
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    pub interval: Duration,
    /// Print once, as plain text, and end
    #[arg(long)]
    pub once: bool,
}

fn interval(text: &str) -> Result<Duration, String> {
    let range = Duration::from_millis(100)..=Duration::from_secs(3600);
    super::seconds(text)
        .ok()
        .filter(|interval| range.contains(interval))
        .ok_or_else(|| "write seconds from 0.1 to 3600".to_owned())
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
