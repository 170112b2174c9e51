//! `switchyard bench`.

use super::bench_app::AppFlags;
use super::host::HostArgs;
use super::{SwitchArgs, block_size, for_target, measured_seconds, seconds};
use anyhow::Context as _;
use base::Nanos;
use block::CacheOptions;
use clap::{ArgGroup, Args, ValueEnum};
use config::schema::Size;
use config::schema::{BlockSize, DEFAULT_NQN, DeviceKind, DeviceTextError};
use control::plane::devices;
use load::{App, KnobTurn};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;
use switch::knobs::Preset;
use switch::read_ahead::WINDOW_PAGES_MAX;
use switch::{PathRules, PathSpec, ReadAheadRules};

/// Measure a target or local device with a synthetic load
///
/// --rw and its companions describe one application. Several: each --app describes a group of
/// identical threads: NAME:KEY=VALUE,... with these keys:
///
///   rw      read, write, randread, randwrite, rw or randrw (required)
///   bs      request size in bytes: a multiple of 512 up to 1m [4k]
///   depth   requests in flight per thread [1]
///   count   number of threads [1]
///   cpu     CPU that the threads are pinned to [any]
///   queues  connections per thread [1]
///   rate    requests per second of all threads together, sent at fixed times (open loop); latency
///           counts from the intended start [none: closed loop]
///   pace    arrivals with rate: even, or poisson (random, independent) [even]
///   mix     percentage of reads of rw and randrw [50]
///   journal writes per commit, as in a journaling file system: after this many writes the thread
///           waits for them, flushes, and does one durable write; for rw=write or randwrite
///           [no commits]
///   class   L (latency), T (throughput), or ioprio: L while the thread has a real-time I/O
///           priority (ionice -c1), else T [T]
#[derive(Args, Clone, Debug)]
#[command(verbatim_doc_comment)]
#[command(after_long_help = "Examples:
  switchyard bench --target 127.0.0.1:4420 --rw randread --bs 4k --depth 32 --cpu 1
  switchyard bench --target 127.0.0.1:4420 --seconds 30 --json \\
      --app 'web:rw=randread,depth=1,rate=5000' --app 'backup:rw=read,bs=128k,depth=16'
  switchyard bench --target 127.0.0.1:4420 --baseline linux --app 'a:rw=randread,class=L,cpu=1' \\
      --app 'b:rw=randread,bs=64k,depth=32,class=T,cpu=1'
  switchyard bench --target 127.0.0.1:4420 --processes \\
      --app 'l:rw=randread,class=L' --app 't:rw=randread,bs=64k,depth=16,class=T'
  switchyard bench --target 127.0.0.1:4420 --hosts 100 \\
      --app 'many:rw=randread,bs=1k,queues=10,depth=256,rate=50000,pace=poisson'
  switchyard bench --target 127.0.0.1:4420 --baseline linux --app 'a:rw=randread,depth=64' \\
      --knob-at 5:doorbell=immediate --knob-at 8:doorbell=adaptive
  switchyard bench --device ram:1G --app 'a:rw=randrw,mix=70,depth=8' --verify
  switchyard bench --target 127.0.0.1:4420 --cache 256M --app 'a:rw=read,bs=4k'

Exit codes: 0 success; 1 failed or unanswered requests, or data mismatch; 2 error
Ctrl-C stops early and prints the results so far.")]
#[command(mut_args = |arg| for_target(arg, &["device"]))]
#[command(group = ArgGroup::new("loaded").required(true).args(["target", "device"]))]
#[command(group = ArgGroup::new("load").required(true).args(["rw", "apps"]).multiple(true))]
pub struct LoadArgs {
    /// Address of the NVMe/TCP target: HOST:PORT[,HOST:PORT...]
    #[arg(long, value_name = "ADDRESS")]
    pub target: Option<String>,
    /// NQN of the subsystem
    #[arg(long, value_name = "NQN", default_value = DEFAULT_NQN)]
    pub nqn: String,
    /// Namespace ID
    #[arg(long, value_name = "NSID", default_value_t = 1)]
    pub nsid: u32,
    /// Local device instead of a target: ram:SIZE, null:SIZE, flash:PROFILE:SIZE, dram-ssd:SIZE, file:PATH or vhost:SOCKET
    ///
    /// vhost:SOCKET is the disk of a vhost-user back end, such as `switchyard attach vhost`. It
    /// receives the app's class; without class=, threads with a real-time I/O priority (ionice -c1)
    /// are L. A flash profile takes extra latency per command and per 4 KiB page:
    /// dram-ssd+5us:1G, dram-ssd+5us+20us:1G.
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<LoadedDevice>,
    /// Logical block size of the local device: 512 or 4096 [default: 4096]
    #[arg(long, value_name = "BYTES", value_parser = block_size, conflicts_with = "target")]
    pub block_size: Option<BlockSize>,
    /// Application (repeatable): NAME:rw=randread,bs=4k,depth=32,count=1,cpu=1[,queues=1][,rate=IOPS][,pace=even][,mix=70][,journal=BLOCKS][,class=L]
    #[arg(long = "app", value_name = "APP")]
    pub apps: Vec<App>,
    #[command(flatten)]
    pub app: AppFlags,
    /// Measured time
    #[arg(long, visible_alias = "runtime", value_name = "SECONDS", default_value = "10", value_parser = measured_seconds)]
    pub seconds: Duration,
    /// Warm-up before measuring
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    pub warmup: Duration,
    /// Verify read data against written data; apps that write OVERWRITE THE DEVICE
    ///
    /// Each thread uses its own part of the device. The content of a block is derived from its
    /// address and the number of the write. Reads of written blocks are compared, and at the end
    /// all written blocks are read back.
    #[arg(long)]
    pub verify: bool,
    /// Write the whole device once before the warm-up; OVERWRITES THE DEVICE
    ///
    /// RAM and sparse files that were never written read as zeroes from a single page, faster than
    /// real data.
    #[arg(long)]
    pub prefill: bool,
    /// Seed of the random addresses and arrivals
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
    /// Connections of the apps [default: own; switched with a --baseline other than poll or
    /// poll-priority, and with apps of both classes]
    #[arg(long, value_enum, value_name = "OWNER")]
    pub lanes: Option<Lanes>,
    /// I/O path that all apps share, such as stm or atm:unplug_threshold=8,unplug_delay_us=500
    ///
    ///   stm, htm, vfs_htm, 2q  merge concurrent requests into one command
    ///   atm                    merges writes
    ///   interrupt, poll        merge adjacent blocks
    ///   sync                   no merging
    ///
    /// Parameters:
    ///
    ///   unplug_threshold  requests that release a plugged queue [32]
    ///   unplug_delay_us   longest time that a queue stays plugged [1000]
    ///   table_entries     most requests per command [1024]
    ///   handover_us       time after which the queue of a preempted thread is taken over [1000]
    ///
    /// Without --path, each thread sends its own requests.
    #[arg(
        long,
        value_name = "PATH",
        verbatim_doc_comment,
        conflicts_with_all = ["lanes", "hosts"]
    )]
    pub path: Option<PathSpec>,
    /// Size of a write-back cache that all apps share: 1M to 1T [default: no cache]
    ///
    /// The cache is above --path. Writes complete in the cache; dirty pages are written to the device
    /// at the end of the run.
    #[arg(long, value_name = "SIZE", conflicts_with_all = ["lanes", "hosts"])]
    pub cache: Option<Size>,
    /// Age at which the cache writes back a dirty page [default: 5000]
    #[arg(long, value_name = "MILLISECONDS", requires = "cache")]
    pub dirty_expire: Option<u64>,
    /// Largest read-ahead window of the cache, in pages of 4 KiB; 0 turns read-ahead off [default: 32]
    ///
    /// The window of a sequential stream starts at 4 pages and doubles up to this value.
    #[arg(long, value_name = "PAGES", requires = "cache")]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=i64::from(WINDOW_PAGES_MAX)))]
    pub read_ahead: Option<u32>,
    /// Treat a read as sequential if the preceding page is in the cache
    ///
    /// Random reads that are close together then cause useless read-ahead. Not possible with the
    /// paths vfs_htm and 2q.
    #[arg(long, requires = "cache")]
    pub context_look_up: bool,
    /// Number of emulated hosts, each with its own connections
    ///
    /// Threads use the hosts round-robin. All connections are tested before the warm-up. The host
    /// NQNs are --host-nqn followed by a number from 0, so they can belong to different tenants.
    /// More than one host implies --lanes own.
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 1,
        conflicts_with = "device"
    )]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(load::limits::HOSTS_MAX)))]
    pub hosts: u32,
    /// Run each app in its own process
    #[arg(long)]
    pub processes: bool,
    /// Run only this app, under control of another process.
    #[arg(long, hide = true, value_name = "INDEX", requires = "processes")]
    pub follower: Option<usize>,
    #[command(flatten)]
    pub switch: SwitchArgs,
    /// Change a switch parameter of the host during the measurement, such as
    /// 5:doorbell=immediate after 5 s (repeatable)
    ///
    /// Changes of the same time apply together. Needs --lanes switched. Parameters of the target
    /// are changed with `switchyard switch set`. The report lists the changes.
    #[arg(long = "knob-at", value_name = "SECONDS:KEY=VALUE")]
    pub knob_turns: Vec<KnobTurn>,
    #[command(flatten)]
    pub host: HostArgs,
}

impl LoadArgs {
    /// Returns the arguments with the application of `--rw` as one of `--app`.
    ///
    /// # Errors
    /// An invalid value of its flags.
    pub fn with_app(&self) -> anyhow::Result<Self> {
        let mut args = self.clone();
        args.apps.extend(self.app.app()?);
        Ok(args)
    }

    /// Returns true if the apps share the lanes of a switchboard: with `--lanes switched`, with a
    /// baseline other than polling, and with apps of both classes on one target.
    pub fn is_switched(&self) -> bool {
        let polls = |preset| matches!(preset, Preset::Poll | Preset::PollWithPriority);
        let mut classes = self.apps.iter().filter_map(|app| app.class);
        let several = classes
            .next()
            .is_some_and(|first| classes.any(|class| class != first));
        match (self.lanes, self.switch.baseline) {
            _ if self.path.is_some() || self.cache.is_some() => false,
            (Some(lanes), _) => lanes == Lanes::Switched,
            (None, Some(preset)) => !polls(preset),
            (None, None) => several && self.can_be_switched(),
        }
    }

    fn can_be_switched(&self) -> bool {
        self.target.is_some() && self.hosts == 1
    }

    /// Returns the options of the cache.
    ///
    /// # Errors
    /// A size or an age that a cache cannot have.
    pub fn cache(&self) -> anyhow::Result<Option<CacheOptions>> {
        let Some(size) = self.cache else {
            return Ok(None);
        };
        let mut options = devices::cache_options(size).context("--cache")?;
        if let Some(expire) = self.dirty_expire {
            options.dirty_expire = Nanos::from_millis(expire);
        }
        if let Some(pages) = self.read_ahead {
            options.read_ahead = ReadAheadRules::up_to(pages);
        }
        options.read_ahead.context_look_up = self.context_look_up;
        options.check().context("--dirty-expire")?;
        Ok(Some(options))
    }

    /// Returns the I/O path and its parameters.
    ///
    /// # Errors
    /// Parameters without effect on the requests of the apps.
    pub fn path(&self) -> anyhow::Result<Option<(switch::Path, PathRules)>> {
        let path = match self.path {
            Some(path) if self.cache.is_none() => Some(path.for_awaited().context("--path")?),
            path => path,
        };
        Ok(path.map(|spec| (spec.path, spec.rules)))
    }
}

/// Owner of the connections of apps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Lanes {
    /// Each thread has its own connections
    Own,
    /// All threads share one connection per core and class, as in one multi-threaded application
    Switched,
}

/// A device on this machine that is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadedDevice {
    /// A device that this process opens.
    Local(DeviceKind),
    /// The disk of a vhost-user back end, at its socket.
    Vhost(PathBuf),
}

impl FromStr for LoadedDevice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("vhost:") {
            Some(path) if !path.is_empty() => Ok(Self::Vhost(path.into())),
            _ => text.parse().map(Self::Local).map_err(|error| match error {
                DeviceTextError::Form(_) => format!("{error}, or vhost:SOCKET"),
                // Of a part of it.
                _ => error.to_string(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_for_a_target_are_refused_beside_a_local_device() {
        #[derive(Debug, clap::Parser)]
        struct Line {
            #[command(flatten)]
            load: LoadArgs,
        }
        let parse = |source: [&str; 2], flag: &[&str]| {
            let start = ["bench", "--app", "a:rw=read"];
            <Line as clap::Parser>::try_parse_from([&start, &source[..], flag].concat())
        };
        for flag in [
            &["--nqn", "nqn.2026-11.io.example:a"][..],
            &["--nsid", "7"],
            &["--host-nqn", "nqn.2026-11.io.example:h"],
            &["--digests"],
        ] {
            let error = parse(["--device", "ram:16M"], flag).expect_err("it is for a target");
            assert_eq!(error.kind(), clap::error::ErrorKind::ArgumentConflict);
            parse(["--target", "127.0.0.1:4420"], flag).expect("it is for a target");
        }
        let blocks = ["--block-size", "512"];
        let error = parse(["--target", "127.0.0.1:4420"], &blocks).expect_err("the target says");
        assert_eq!(error.kind(), clap::error::ErrorKind::ArgumentConflict);
        parse(["--device", "ram:16M"], &blocks).expect("it is for a device");
    }

    #[test]
    fn a_loaded_device_may_be_that_of_a_back_end() {
        assert_eq!("vhost:/a".parse(), Ok(LoadedDevice::Vhost("/a".into())));
        let file = DeviceKind::file("/a:b");
        assert_eq!("file:/a:b".parse(), Ok(LoadedDevice::Local(file)));
        let refusal = |text: &str| text.parse::<LoadedDevice>().expect_err("no device");
        for (bad, names_vhost) in [("vhost:", true), ("disk:1G", true), ("ram:x", false)] {
            assert_eq!(refusal(bad).ends_with("vhost:SOCKET"), names_vhost, "{bad}");
        }
    }
}
