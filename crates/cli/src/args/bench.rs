//! `switchyard bench`.

use super::host::HostArgs;
use super::{SwitchArgs, block_size, for_target, measured_seconds, seconds};
use anyhow::Context as _;
use base::Nanos;
use block::CacheOptions;
use clap::{ArgGroup, Args, ValueEnum};
use control::Size;
use control::model::{BlockSize, DEFAULT_NQN, DeviceKind, DeviceTextError};
use control::plane::devices;
use load::{App, KnobTurn};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;
use switch::knobs::Preset;
use switch::read_ahead::WINDOW_PAGES_MAX;
use switch::{PathRules, PathSpec, ReadAheadRules};

/// Load a target or a local device, and measure it
///
/// Each --app is a number of threads that do the same: NAME:KEY=VALUE,... with the keys
///
///   rw      read, write, randread, randwrite, rw or randrw; the one that must be given
///   bs      bytes of a request: a multiple of 512 up to 1m [4k]
///   depth   requests that each thread keeps in flight [1]
///   count   threads [1]
///   cpu     the processor that each thread is pinned to [any]
///   queues  connections of each thread [1]
///   rate    requests per second of all threads: an open loop, in which latency counts from the
///           intended start of a request [a closed loop]
///   pace    even, or poisson: starts of requests that know nothing of each other [even]
///   mix     percent of reads of rw and randrw [50]
///   journal blocks before each commit of threads that only write, as a file system with a journal
///           does: they complete, a Flush, then a durable write [no commits]
///   class   L (must finish soon), T (wants bytes per second and may wait), or ioprio: what the
///           thread's I/O priority says, also when that changes (ionice -c1: L; else T) [T]
#[derive(Args, Clone, Debug)]
#[command(verbatim_doc_comment)]
#[command(after_long_help = "Examples:
  switchyard bench --target 127.0.0.1:4420 --app 'a:rw=randread,bs=4k,depth=32,cpu=1'
  switchyard bench --target 127.0.0.1:4420 --seconds 30 --json \\
      --app 'web:rw=randread,depth=1,rate=5000' --app 'backup:rw=read,bs=128k,depth=16'
  switchyard bench --target 127.0.0.1:4420 --baseline linux --app 'a:rw=randread,class=L,cpu=1' \\
      --app 'b:rw=randread,bs=64k,depth=32,class=T,cpu=1'
  switchyard bench --target 127.0.0.1:4420 --processes \\
      --app 'l:rw=randread,class=L' --app 't:rw=randread,bs=64k,depth=16,class=T'
  switchyard bench --target 127.0.0.1:4420 --hosts 100 \
      --app 'many:rw=randread,bs=1k,queues=10,depth=256,rate=50000,pace=poisson'
  switchyard bench --target 127.0.0.1:4420 --baseline linux --app 'a:rw=randread,depth=64' \\
      --knob-at 5:doorbell=immediate --knob-at 8:doorbell=adaptive
  switchyard bench --device ram:1G --app 'a:rw=randrw,mix=70,depth=8' --verify
  switchyard bench --target 127.0.0.1:4420 --cache 256M --app 'a:rw=read,bs=4k'

Exit codes: 0 done, 1 requests failed or had no answer, or data differed, 2 an error. Ctrl-C ends
early with what was measured until then.")]
#[command(mut_args = |arg| for_target(arg, &["device"]))]
#[command(group = ArgGroup::new("loaded").required(true).args(["target", "device"]))]
pub struct LoadArgs {
    /// The NVMe/TCP target: HOST:PORT
    #[arg(long, value_name = "ADDRESS")]
    pub target: Option<String>,
    /// The subsystem's name
    #[arg(long, value_name = "NQN", default_value = DEFAULT_NQN)]
    pub nqn: String,
    /// The namespace's identifier
    #[arg(long, value_name = "NSID", default_value_t = 1)]
    pub nsid: u32,
    /// A local device instead of a target: ram:SIZE, null:SIZE, flash:PROFILE:SIZE, dram-ssd:SIZE, file:PATH or vhost:SOCKET
    ///
    /// vhost:SOCKET is the disk of a vhost-user back end, such as one of `switchyard attach vhost`;
    /// it is told the app's class; without class=, threads with a real-time I/O priority (ionice -c1)
    /// ask for latency.
    /// A profile may take longer than it is made for, for each command and each page of 4 KiB:
    /// dram-ssd+5us, dram-ssd+5us+20us.
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<LoadedDevice>,
    /// Logical block of the local device: 512 or 4096 bytes [default: 4096]
    #[arg(long, value_name = "BYTES", value_parser = block_size, conflicts_with = "target")]
    pub block_size: Option<BlockSize>,
    /// An application (repeatable): NAME:rw=randread,bs=4k,depth=32,count=1,cpu=1[,queues=1][,rate=IOPS][,pace=even][,mix=70][,journal=BLOCKS][,class=L]
    #[arg(long = "app", value_name = "APP", required = true)]
    pub apps: Vec<App>,
    /// Measure for so many seconds
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = measured_seconds)]
    pub seconds: Duration,
    /// Run for so many seconds before
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    pub warmup: Duration,
    /// Check that what is read is what was written; OVERWRITES THE DEVICE where apps write
    ///
    /// Each thread gets a part of the device of its own. Every block that it writes carries
    /// content that follows from its address and the write's number; reads of such blocks are
    /// compared, and at the end everything that was written is read back.
    #[arg(long)]
    pub verify: bool,
    /// Write the whole device once before the start; OVERWRITES THE DEVICE
    ///
    /// Memory and sparse files that were never written read as zeroes from a single page, which
    /// is faster than data.
    #[arg(long)]
    pub prefill: bool,
    /// Fixes the order of requests
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
    /// Connections that the apps use [default: own; switched with a --baseline other than poll, and
    /// with apps of both classes]
    ///
    /// With their own every thread has connections to itself and serves them alone.
    /// Switched, all threads share one connection for each core and class, as the threads of one
    /// large application do.
    #[arg(long, value_enum, value_name = "WHOSE")]
    pub lanes: Option<Lanes>,
    /// The I/O path that all apps share: interrupt, poll, sync, stm, atm, htm, vfs_htm or 2q, and
    /// its parameters, as atm:unplug_threshold=8,unplug_delay_us=500,table_entries=64,handover_us=1000
    ///
    /// Without one, each thread sends its requests itself and waits as --baseline says. With one,
    /// threads that wait for another one's work sleep. The parameters: requests that unplug a queue
    /// [32]; the longest time for which it is plugged [1000]; the most requests of one batch [1024];
    /// the time after which a queue is taken over from a thread that does not run [1000].
    #[arg(long, value_name = "PATH", conflicts_with_all = ["lanes", "hosts"])]
    pub path: Option<PathSpec>,
    /// A write-back cache of so many bytes that all apps share: 1M to 1T
    ///
    /// With --path it lies above the path. Writes complete when they are in the cache; at the end
    /// of the run all of them are written to the device.
    #[arg(long, value_name = "SIZE", conflicts_with_all = ["lanes", "hosts"])]
    pub cache: Option<Size>,
    /// Age at which a dirty page of the cache is written back, in milliseconds [default: 5000]
    #[arg(long, value_name = "MILLISECONDS", requires = "cache")]
    pub dirty_expire: Option<u64>,
    /// Largest read-ahead window of the cache, in pages of 4 KiB; 0 turns read-ahead off [default: 32]
    ///
    /// A sequential stream's window begins with 4 pages and doubles up to this.
    #[arg(long, value_name = "PAGES", requires = "cache")]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=i64::from(WINDOW_PAGES_MAX)))]
    pub read_ahead: Option<u32>,
    /// Let the cache take a read for sequential also if the page before it is cached
    ///
    /// Random reads that lie close together then look sequential, and the device reads pages ahead
    /// that no app asks for. The paths vfs_htm and 2q are those without it, and refuse it.
    #[arg(long, requires = "cache")]
    pub context_look_up: bool,
    /// Load the target as so many hosts, each with connections of its own
    ///
    /// Requests go by each in turn, and every connection is tried before the start. The hosts'
    /// names are that of --host-nqn with a number behind it, from 0 on, so that a target can tell
    /// their tenants apart. Of several hosts each thread has connections of its own, also with
    /// apps of both classes.
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 1,
        conflicts_with = "device"
    )]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(load::limits::HOSTS_MAX)))]
    pub hosts: u32,
    /// Run every app in a process of its own: they share nothing but the kernel
    #[arg(long)]
    pub processes: bool,
    /// Load only this app, led by another process.
    #[arg(long, hide = true, value_name = "INDEX", requires = "processes")]
    pub follower: Option<usize>,
    #[command(flatten)]
    pub switch: SwitchArgs,
    /// Turn a knob of the switchboard after so many seconds of the measured time (repeatable)
    ///
    /// Those of the same time are turned together. Needs switched lanes, which have these knobs; the
    /// target's are turned by `switchyard switch set`. The report says what was turned, and when.
    #[arg(long = "knob-at", value_name = "SECONDS:KEY=VALUE")]
    pub knob_turns: Vec<KnobTurn>,
    #[command(flatten)]
    pub host: HostArgs,
}

impl LoadArgs {
    /// Returns true if the apps share the lanes of a switchboard: where that is said, where a
    /// baseline other than polling is, and where apps of both classes load one target.
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
    /// Parameters that have no effect on what the apps ask for.
    pub fn path(&self) -> anyhow::Result<Option<(switch::Path, PathRules)>> {
        let path = match self.path {
            Some(path) if self.cache.is_none() => Some(path.for_awaited().context("--path")?),
            path => path,
        };
        Ok(path.map(|spec| (spec.path, spec.rules)))
    }
}

/// Connections that apps use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Lanes {
    /// Each thread its own.
    Own,
    /// Those of a switchboard, one for each core and class.
    Switched,
}

/// A device that is loaded without a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadedDevice {
    /// One that this process makes.
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
                DeviceTextError::Form => format!("{error}, or vhost:SOCKET"),
                // Of a part of it.
                _ => error.to_string(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// They were taken and had no effect.
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
