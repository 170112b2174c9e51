//! Figures of the thesis on I/O paths to fast devices (Yu).
//!
//! The device is emulated: one command at a time, 1.149 µs per command and 5.851 µs per page. The
//! thesis' software holds the device's lock for 5 µs per command; [`SETTING`] adds them to the
//! device, so that only the paths are compared. Two processors run all threads, the thesis had
//! eight: in paths with many polling threads, these share them.

mod cached;
pub(super) mod fig04;
pub(super) mod fig09;
pub(super) mod fig18;
pub(super) mod fig21;
pub(super) mod fig22;
pub(super) mod fig23;
pub(super) mod iozone;
pub(super) mod table6;
pub(super) mod table7;

use super::claim::Divisor;
use super::sample::Metric;
use super::scenario::{Layout, Scenario, Stack, Storage, System, Workload};
use super::{Figure, Work};
use sim::paths::Machine;
use switch::Class;
use switch::knobs::Preset;

/// The emulated device, including the software of the thesis that runs under its lock.
const SETTING: Storage = Storage::DramSsd {
    command_us: 5,
    page_us: 0,
};

/// The device alone.
const BARE: Storage = Storage::DramSsd {
    command_us: 0,
    page_us: 0,
};

/// Maximum throughput of the device, in the unit of [`THROUGHPUT`]: a page of 4 KiB in 5.851 µs.
/// That equals the thesis' 700 MB/s.
const DEVICE: Divisor = Divisor::Fixed {
    name: "the device",
    value: 5.6,
};

const THROUGHPUT: Metric = Metric::Throughput(None);

const fn path(name: &'static str, turned: &'static [&'static str]) -> System {
    System {
        stack: Stack::Local,
        turned,
        ..System::of(name, Preset::Switchyard)
    }
}

const INTERRUPT: System = path("interrupt", &["--path", "interrupt"]);
const POLL: System = path("poll", &["--path", "poll"]);
const SYNC: System = path("sync", &["--path", "sync"]);
const STM: System = path("stm", &["--path", "stm"]);
const ATM: System = path("atm", &["--path", "atm"]);
const HTM: System = path("htm", &["--path", "htm"]);
const TWO_QUEUE: System = path("2q", &["--path", "2q"]);

/// All paths except `poll`, which only Table 6 has, in the thesis' order.
const PATHS: [System; 6] = [INTERRUPT, SYNC, STM, ATM, HTM, TWO_QUEUE];

/// The same as `figure`, with eight processors in virtual time, and the thesis' costs of single
/// requests. `[Yu Table 6]`
const fn in_virtual_time(
    figure: Figure,
    name: &'static str,
    title: &'static str,
    workload: &'static str,
) -> Figure {
    let Work::Machine(plan) = figure.work else {
        panic!("it is not measured");
    };
    Figure {
        name,
        title,
        workload,
        work: Work::Paths(plan, Machine::of_thesis),
        ..figure
    }
}

/// Threads with one request each. `[Yu §6, Table 5]`
fn threads(system: System, storage: Storage, count: u32, read_percent: u8) -> Scenario {
    let app = Workload {
        class: Class::Throughput,
        read_percent,
        ..Workload::latency(count)
    };
    of_apps(system, storage, vec![app])
}

fn of_apps(system: System, storage: Storage, apps: Vec<Workload>) -> Scenario {
    Scenario::on(system, Layout::Shared, storage, apps)
}
