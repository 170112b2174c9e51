//! Set-up of one run of a figure: a stack on both sides, storage, and applications.
//!
//! Plain data: a [`Runner`](super::Runner) turns it into processes. Figures compose scenarios from
//! systems and layouts.

use crate::plain::Wait;
use switch::Class;
use switch::knobs::Preset;

/// The processor of a target in layout [`Layout::Split`].
pub const TARGET_CORE: u32 = 0;
/// The processor of all applications in layout [`Layout::Split`].
pub const LOAD_CORE: u32 = 1;
/// The processors of layout [`Layout::Shared`].
pub const SHARED_CORES: [u32; 2] = [TARGET_CORE, LOAD_CORE];

/// A storage stack in the figures' comparison: a preset, and the load of `Throughput` applications
/// at the knee of its latency-throughput curve. `[blk-switch §5.1]`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct System {
    /// Name in tables and legends.
    pub name: &'static str,
    /// Programs at both ends.
    pub stack: Stack,
    /// All knobs, on both sides.
    pub preset: Preset,
    /// Further arguments of `bench` and of the target, which change knobs of the preset.
    pub turned: &'static [&'static str],
    /// Each thread has its own connections, whatever the preset.
    pub own_lanes: bool,
    /// Bytes of a T-app's request.
    pub t_bytes: u32,
    /// Requests that a T-app keeps in flight.
    pub t_depth: u32,
}

/// Programs that serve a scenario's storage and load it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stack {
    /// This program at both ends.
    Own,
    /// This program loads local storage directly.
    Local,
    /// The plain server of [`crate::plain`] and its client, which sleeps or polls.
    Plain(Wait),
    /// `nbdkit` and fio.
    Nbd,
    /// `tgtd` and `iscsi-perf`, which reports only the rate of reads.
    Iscsi,
}

impl Stack {
    /// Required programs of other projects, with the Debian package of each.
    #[must_use]
    pub const fn programs(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Own | Self::Local | Self::Plain(_) => &[],
            Self::Nbd => &[("nbdkit", "nbdkit"), ("fio", "fio")],
            Self::Iscsi => &[
                ("tgtd", "tgt"),
                ("tgtadm", "tgt"),
                ("iscsi-perf", "libiscsi-bin"),
            ],
        }
    }
}

impl System {
    /// A preset at the knee of blk-switch: 64 KiB at depth 16.
    #[must_use]
    pub const fn of(name: &'static str, preset: Preset) -> Self {
        Self {
            name,
            stack: Stack::Own,
            preset,
            turned: &[],
            own_lanes: false,
            t_bytes: 64 << 10,
            t_depth: 16,
        }
    }

    /// The same with this request size and depth of T-apps.
    #[must_use]
    pub const fn loaded(self, t_bytes: u32, t_depth: u32) -> Self {
        Self {
            t_bytes,
            t_depth,
            ..self
        }
    }

    /// This stack with everything on.
    pub const SWITCHYARD: Self = Self::of("switchyard", Preset::Switchyard);
    /// The same with separate connections per thread instead of a switchboard's lanes.
    pub const OWN_LANES: Self = Self {
        own_lanes: true,
        ..Self::SWITCHYARD
    };
    /// Linux in the blk-switch paper: i10's lanes without classes, 64 KiB at depth 32.
    pub const LINUX: Self = Self {
        t_depth: 32,
        ..Self::of("linux", Preset::Linux)
    };
    /// The same without batching.
    pub const NVME_TCP: Self = Self::of("nvme-tcp", Preset::NvmeTcp);
    /// A polling stack, 128 KiB at depth 8.
    pub const POLL: Self = Self::of("poll", Preset::Poll).loaded(128 << 10, 8);
    /// The same with L-apps at nice −20.
    pub const POLL_PRIORITY: Self = Self {
        name: "poll-priority",
        preset: Preset::PollWithPriority,
        ..Self::POLL
    };

    /// Returns true if the stack moves applications itself. Otherwise applications are pinned
    /// evenly, as in the paper's comparison. `[blk-switch §5.1]`
    #[must_use]
    pub const fn places_applications(&self) -> bool {
        self.preset.knobs().application_steering.enabled
    }
}

/// Cores of the target and of the applications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// The target on one core, all applications on the other.
    Split,
    /// Target and applications on both cores.
    Shared,
}

impl Layout {
    /// The target's `--cores`.
    #[must_use]
    pub const fn target_cores(self) -> &'static [u32] {
        match self {
            Self::Split => &[TARGET_CORE],
            Self::Shared => &SHARED_CORES,
        }
    }
}

/// Storage under load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Storage {
    /// Memory of the target.
    #[default]
    Memory,
    /// Memory behind a delay: reads take 80 µs, as on the paper's SSD. `[blk-switch §5.2]`
    Flash,
    /// Emulated flash of profile A whose requests cost tokens; one tenant loads it.
    Tokens,
    /// The same, with each host as a separate tenant.
    TokensByHost,
    /// Memory of the target whose requests cost tokens, with unlimited supply.
    PricedMemory,
    /// A file in memory, which programs of other projects can share as well.
    File,
    /// The thesis' device, emulated, without a target, with an added delay in microseconds.
    DramSsd {
        /// Per command (F). `[Yu §6.6]`
        command_us: u32,
        /// Per page of 4 KiB (C).
        page_us: u32,
    },
}

/// Delay of a read from [`Storage::Flash`], in microseconds. `[blk-switch §5.1]`
pub const FLASH_READ_US: u32 = 80;
/// Delay of a write to [`Storage::Flash`], in microseconds: it is buffered.
pub const FLASH_WRITE_US: u32 = 20;

/// Threads with the same load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// L- or T-app.
    pub class: Class,
    /// Threads.
    pub count: u32,
    /// Bytes of a request.
    pub bytes: u32,
    /// Requests that each thread keeps in flight.
    pub depth: u32,
    /// Percentage of reads.
    pub read_percent: u8,
    /// Each thread's requests are sequential; otherwise random.
    pub sequential: bool,
    /// Requests per second of all threads, as an open loop.
    pub rate: Option<u64>,
    /// Inter-arrival times are random (Poisson) instead of even.
    pub random: bool,
    /// Connections of each thread, and of each host.
    pub queues: u16,
    /// The processor that the threads are pinned to.
    pub core: Option<u32>,
}

impl Workload {
    /// L-apps: 4 KiB random reads at depth 1. `[blk-switch §5.1]`
    #[must_use]
    pub const fn latency(count: u32) -> Self {
        Self {
            class: Class::Latency,
            count,
            bytes: 4096,
            depth: 1,
            read_percent: 100,
            sequential: false,
            rate: None,
            random: false,
            queues: 1,
            core: None,
        }
    }

    /// T-apps: random reads at the system's knee. `[blk-switch §5.1]`
    #[must_use]
    pub const fn throughput(count: u32, system: &System) -> Self {
        Self {
            class: Class::Throughput,
            bytes: system.t_bytes,
            depth: system.t_depth,
            ..Self::latency(count)
        }
    }

    /// The same, pinned.
    #[must_use]
    pub const fn on(self, core: u32) -> Self {
        Self {
            core: Some(core),
            ..self
        }
    }

    /// The text of `bench --app` for it.
    #[must_use]
    pub fn text(&self, name: &str) -> String {
        use std::fmt::Write as _;
        let pattern = if self.sequential { "rw" } else { "randrw" };
        let mut text = format!(
            "{name}:rw={pattern},mix={},bs={},depth={},count={},class={}",
            self.read_percent,
            self.bytes,
            self.depth,
            self.count,
            self.class.properties().letter,
        );
        // Writing to a string cannot fail.
        if let Some(core) = self.core {
            let _ = write!(text, ",cpu={core}");
        }
        if let Some(rate) = self.rate {
            let _ = write!(text, ",rate={rate}");
        }
        if self.random {
            text.push_str(",pace=poisson");
        }
        if self.queues != 1 {
            let _ = write!(text, ",queues={}", self.queues);
        }
        text
    }
}

/// One process that runs applications.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadProcess {
    /// Applications.
    pub apps: Vec<Workload>,
    /// Storage that its requests go to.
    pub storage: Storage,
    /// Its niceness.
    pub nice: i32,
    /// Number of hosts that it connects as.
    pub hosts: u32,
}

impl LoadProcess {
    /// Applications of ordinary priority on memory.
    #[must_use]
    pub const fn of(apps: Vec<Workload>) -> Self {
        Self {
            apps,
            storage: Storage::Memory,
            nice: 0,
            hosts: 1,
        }
    }
}

/// A scenario: one set-up that is run and measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// The stack on both sides.
    pub system: System,
    /// Cores of the target.
    pub layout: Layout,
    /// Processes that run at the same time.
    pub processes: Vec<LoadProcess>,
}

impl Scenario {
    /// Applications that are already placed, in one process on this storage.
    #[must_use]
    pub fn on(system: System, layout: Layout, storage: Storage, apps: Vec<Workload>) -> Self {
        Self {
            system,
            layout,
            processes: vec![LoadProcess {
                storage,
                ..LoadProcess::of(apps)
            }],
        }
    }

    /// Applications in one process, placed by the layout.
    #[must_use]
    pub fn of(system: System, layout: Layout, apps: &[Workload]) -> Self {
        let apps = placed(&system, layout, apps);
        Self::on(system, layout, Storage::Memory, apps)
    }

    /// `l` L-apps alongside `t` T-apps at the system's knee, in one process.
    #[must_use]
    pub fn mix(system: System, layout: Layout, l: u32, t: u32) -> Self {
        let apps = [Workload::latency(l), Workload::throughput(t, &system)];
        Self::of(system, layout, &apps)
    }

    /// The same with a separate process per application.
    #[must_use]
    pub fn in_processes(mut self) -> Self {
        let apps = self
            .processes
            .iter()
            .flat_map(|process| process.apps.iter().map(move |app| (process, *app)));
        self.processes = apps
            .flat_map(|(process, app)| {
                let single = LoadProcess {
                    apps: vec![Workload { count: 1, ..app }],
                    ..process.clone()
                };
                std::iter::repeat_n(single, app.count as usize)
            })
            .collect();
        self
    }

    /// All applications, in the order of their processes.
    pub fn apps(&self) -> impl Iterator<Item = &Workload> {
        self.processes.iter().flat_map(|process| &process.apps)
    }
}

/// Places applications on cores, and omits those with a count of zero.
fn placed(system: &System, layout: Layout, apps: &[Workload]) -> Vec<Workload> {
    let there = apps.iter().filter(|app| app.count > 0);
    match layout {
        Layout::Split => there.map(|app| app.on(LOAD_CORE)).collect(),
        Layout::Shared if system.places_applications() => there.copied().collect(),
        Layout::Shared => there.flat_map(evenly).collect(),
    }
}

fn evenly(app: &Workload) -> impl Iterator<Item = Workload> + use<> {
    let app = *app;
    let cores = u32::try_from(SHARED_CORES.len()).expect("two");
    SHARED_CORES
        .into_iter()
        .zip(0..)
        .filter_map(move |(core, index)| {
            let count = (app.count + cores - 1 - index) / cores;
            let rate = app
                .rate
                .map(|rate| rate * u64::from(count) / u64::from(app.count));
            (count > 0).then_some(Workload {
                count,
                rate,
                ..app.on(core)
            })
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use load::{Access, App, Pace};

    #[test]
    fn an_app_s_text_is_what_the_load_generator_reads() {
        let apps = [
            Workload::latency(3).on(1),
            Workload::throughput(2, &System::POLL),
            Workload {
                rate: Some(5000),
                read_percent: 25,
                sequential: true,
                random: true,
                queues: 3,
                ..Workload::latency(1)
            },
        ];
        for app in apps {
            let read: App = app.text("L0").parse().unwrap();
            assert_eq!(read.block_bytes, app.bytes);
            assert_eq!((read.depth, read.count), (app.depth, app.count));
            assert_eq!((read.cpu, read.rate), (app.core, app.rate));
            assert_eq!(read.read_percent, app.read_percent);
            assert_eq!(read.access == Access::Sequential, app.sequential);
            assert_eq!(read.pace == Pace::Poisson, app.random);
            assert_eq!(read.queues, app.queues);
            assert_eq!(read.class, Some(app.class));
        }
    }

    #[test]
    fn the_split_layout_keeps_target_and_applications_apart() {
        let scenario = Scenario::mix(System::SWITCHYARD, Layout::Split, 4, 1);
        assert_eq!(scenario.layout.target_cores(), [TARGET_CORE]);
        assert!(scenario.apps().all(|app| app.core == Some(LOAD_CORE)));
    }

    #[test]
    fn the_shared_layout_pins_evenly_what_the_stack_does_not_place() {
        let count = |core, class| -> u32 {
            let scenario = Scenario::mix(System::LINUX, Layout::Shared, 5, 2);
            let there = |app: &&Workload| app.core == core && app.class == class;
            scenario.apps().filter(there).map(|app| app.count).sum()
        };
        assert_eq!(count(Some(0), Class::Latency), 3);
        assert_eq!(count(Some(1), Class::Latency), 2);
        assert_eq!(count(Some(0), Class::Throughput), 1);
        assert_eq!(count(Some(1), Class::Throughput), 1);
        let free = Scenario::mix(System::SWITCHYARD, Layout::Shared, 5, 2);
        assert!(free.apps().all(|app| app.core.is_none()));
        let one = Scenario::mix(System::LINUX, Layout::Shared, 1, 0);
        assert_eq!(one.apps().count(), 1);
    }

    #[test]
    fn processes_run_one_application_each() {
        let scenario = Scenario::mix(System::SWITCHYARD, Layout::Shared, 4, 2).in_processes();
        assert_eq!(scenario.processes.len(), 6);
        assert!(scenario.apps().all(|app| app.count == 1));
    }
}
