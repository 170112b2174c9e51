//! The flags of `switchyard bench` for a load of one application, in place of `--app`.

use clap::Args;
use load::App;

/// Name of the application in reports and errors.
const NAME: &str = "bench";

/// One application; `--app` describes several.
///
/// Each flag is a key of `--app`, which checks its value.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "One application, instead of --app")]
pub struct AppFlags {
    /// Pattern: read, write, randread, randwrite, rw or randrw
    #[arg(long, value_name = "PATTERN", conflicts_with = "apps")]
    pub rw: Option<String>,
    /// Request size [default: 4k]
    #[arg(long, value_name = "SIZE", requires = "rw")]
    pub bs: Option<String>,
    /// Requests in flight per thread [default: 1]
    #[arg(
        long,
        visible_alias = "iodepth",
        value_name = "NUMBER",
        requires = "rw"
    )]
    pub depth: Option<String>,
    /// Threads [default: 1]
    #[arg(
        long,
        visible_alias = "numjobs",
        value_name = "NUMBER",
        requires = "rw"
    )]
    pub count: Option<String>,
    /// CPU that the threads are pinned to [default: any]
    #[arg(long, value_name = "CPU", requires = "rw")]
    pub cpu: Option<String>,
    /// Connections per thread [default: 1]
    #[arg(long, value_name = "NUMBER", requires = "rw")]
    pub queues: Option<String>,
    /// Requests per second of all threads together, sent at fixed times [default: closed loop]
    #[arg(
        long,
        visible_alias = "rate_iops",
        value_name = "IOPS",
        requires = "rw"
    )]
    pub rate: Option<String>,
    /// Arrivals with --rate: even or poisson [default: even]
    #[arg(long, value_name = "PACE", requires = "rw")]
    pub pace: Option<String>,
    /// Percentage of reads of rw and randrw [default: 50]
    #[arg(
        long,
        visible_alias = "rwmixread",
        value_name = "PERCENT",
        requires = "rw"
    )]
    pub mix: Option<String>,
    /// Writes per commit of a journaling file system [default: no commits]
    #[arg(long, value_name = "WRITES", requires = "rw")]
    pub journal: Option<String>,
    /// Class: L (latency), T (throughput) or ioprio [default: T]
    #[arg(long, value_name = "CLASS", requires = "rw")]
    pub class: Option<String>,
}

impl AppFlags {
    /// Returns the application; `None` without `--rw`.
    ///
    /// # Errors
    /// The flag, and valid values.
    pub fn app(&self) -> anyhow::Result<Option<App>> {
        let flags = [
            ("rw", &self.rw),
            ("bs", &self.bs),
            ("depth", &self.depth),
            ("count", &self.count),
            ("cpu", &self.cpu),
            ("queues", &self.queues),
            ("rate", &self.rate),
            ("pace", &self.pace),
            ("mix", &self.mix),
            ("journal", &self.journal),
            ("class", &self.class),
        ];
        if self.rw.is_none() {
            return Ok(None);
        }
        let given = flags
            .iter()
            .filter_map(|(key, value)| Some((*key, value.as_deref()?)));
        if let Some((key, value)) = given.clone().find(|(_, value)| value.contains(',')) {
            anyhow::bail!("--{key} {value}: write one value; --app describes several applications");
        }
        let keys: Vec<_> = given.map(|(key, value)| format!("{key}={value}")).collect();
        Ok(Some(format!("{NAME}:{}", keys.join(",")).parse()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        flags: AppFlags,
        #[arg(long = "app")]
        apps: Vec<App>,
    }

    fn parse(line: &str) -> Result<Line, clap::Error> {
        <Line as clap::Parser>::try_parse_from(line.split(' '))
    }

    #[test]
    fn flags_are_the_keys_of_an_app() {
        let keys =
            "rw=randrw,bs=8k,depth=3,count=2,cpu=1,queues=2,rate=9,pace=poisson,mix=70,class=L";
        let expected: App = format!("bench:{keys}").parse().expect("an app");
        let flags: Vec<_> = keys
            .split(',')
            .map(|key| format!("--{}", key.replace('=', " ")))
            .collect();
        let line = parse(&format!("bench {}", flags.join(" "))).expect("flags");
        assert_eq!(line.flags.app().expect("valid"), Some(expected));
        let line = parse("bench --rw write --iodepth 4 --numjobs 2 --journal 8").expect("flags");
        let app: App = "bench:rw=write,depth=4,count=2,journal=8"
            .parse()
            .expect("an app");
        assert_eq!(line.flags.app().expect("valid"), Some(app));
        assert_eq!(
            parse("bench").expect("flags").flags.app().expect("valid"),
            None
        );
    }

    #[test]
    fn errors_name_the_flag() {
        for (line, expected) in [
            (
                "bench --rw read --bs 5000",
                "bs=5000: use a multiple of 512",
            ),
            ("bench --rw read,bs=4k", "--rw read,bs=4k: write one value"),
            ("bench --rw read --mix 5", "rw=read is not a mixed load"),
        ] {
            let flags = parse(line).expect("flags").flags;
            let error = flags.app().expect_err(line).to_string();
            assert!(error.contains(expected), "{line}: {error}");
        }
        let both = parse("bench --rw read --app a:rw=read").expect_err("both");
        assert_eq!(both.kind(), clap::error::ErrorKind::ArgumentConflict);
        let alone = parse("bench --bs 4k").expect_err("no pattern");
        assert_eq!(
            alone.kind(),
            clap::error::ErrorKind::MissingRequiredArgument
        );
    }
}
