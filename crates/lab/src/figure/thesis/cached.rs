//! Shared parts of the figures of Iozone through a page cache: systems by path, and ticks. `[Yu
//! §1.1, §4, §6.2]`
//!
//! The cache is this project's write-back cache with an eighth of the emulated device; the thesis
//! used the kernel's page cache and ext3. The figures of chapter 4 use the context look-up of
//! reads, except for paths that are defined without it; those of the evaluation do not. `[Yu §4.7]`

use super::{SETTING, THROUGHPUT, of_apps, path};
use crate::figure::plan::{Axis, Panel, Plan};
use crate::figure::scenario::{System, Workload};
use switch::Class;

macro_rules! cached {
    ($name:literal, $path:literal $(, $further:literal)*) => {
        path($name, &["--path", $path, "--cache", "32M" $(, $further)*])
    };
}

pub(super) const INTERRUPT: System = cached!("interrupt", "interrupt");
pub(super) const SYNC: System = cached!("sync", "sync");
pub(super) const STM: System = cached!("stm", "stm");
pub(super) const ATM: System = cached!("atm", "atm");
pub(super) const HTM: System = cached!("htm", "htm");
pub(super) const VFS_HTM: System = cached!("vfs_htm", "vfs_htm");
pub(super) const TWO_QUEUE: System = cached!("2q", "2q");

pub(super) const INTERRUPT_LOOKING: System = cached!("interrupt", "interrupt", "--context-look-up");
pub(super) const SYNC_LOOKING: System = cached!("sync", "sync", "--context-look-up");
pub(super) const STM_LOOKING: System = cached!("stm", "stm", "--context-look-up");
pub(super) const ATM_LOOKING: System = cached!("atm", "atm", "--context-look-up");
pub(super) const HTM_LOOKING: System = cached!("htm", "htm", "--context-look-up");

/// All paths without context look-up, in the thesis' order.
pub(super) const PATHS: [System; 6] = [INTERRUPT, SYNC, STM, ATM, HTM, TWO_QUEUE];

/// A tick: its name, sequential or not, percentage of reading threads (in Iozone's mix no thread
/// does both), threads.
pub(super) type Column = (&'static str, bool, u8, u32);

pub(super) const SEQ_R1: Column = ("SeqR 1", true, 100, 1);
pub(super) const SEQ_W1: Column = ("SeqW 1", true, 0, 1);
pub(super) const RAND_R1: Column = ("RandR 1", false, 100, 1);
pub(super) const RAND_W1: Column = ("RandW 1", false, 0, 1);
pub(super) const RAND_M1: Column = ("RandM 1", false, 50, 1);
pub(super) const SEQ_R32: Column = ("SeqR 32", true, 100, 32);
pub(super) const SEQ_W32: Column = ("SeqW 32", true, 0, 32);
pub(super) const RAND_R32: Column = ("RandR 32", false, 100, 32);
pub(super) const RAND_W32: Column = ("RandW 32", false, 0, 32);
pub(super) const RAND_M32: Column = ("RandM 32", false, 50, 32);

pub(super) const ALL: [Column; 10] = [
    SEQ_R1, SEQ_W1, RAND_R1, RAND_W1, RAND_M1, SEQ_R32, SEQ_W32, RAND_R32, RAND_W32, RAND_M32,
];

pub(super) const WORKLOAD: &str = "1 and 32 threads, 4 KiB through a cache of 32 MiB of the emulated device of 256 MiB with 5 µs of \
     software for each command: sequential and random reads and writes, and at random half of the threads with each (one thread reads)";

/// See [`WORKLOAD`].
pub(super) const SIMULATED_WORKLOAD: &str = "1 and 32 threads on 8 processors in virtual time, \
     4 KiB through a write-back cache that is much smaller than the emulated device with 5 µs of \
     software for each command: sequential and random reads and writes, and at random half of the \
     threads with each (one thread reads)";

/// Every system at every column.
pub(super) fn plan(systems: &[System], columns: &[Column]) -> Plan {
    let mut plan = Plan::over(Axis::new(
        "workload",
        "",
        columns.iter().map(|column| column.0),
    ));
    for &(name, sequential, read_percent, count) in columns {
        let readers = (count * u32::from(read_percent)).div_ceil(100);
        let apps = [(readers, 100), (count - readers, 0)];
        let apps = apps.into_iter().filter(|(count, _)| *count > 0);
        let apps = apps.map(|(count, read_percent)| Workload {
            class: Class::Throughput,
            read_percent,
            sequential,
            ..Workload::latency(count)
        });
        let apps: Vec<_> = apps.collect();
        for &system in systems {
            plan.run(system.name, name, of_apps(system, SETTING, apps.clone()));
        }
    }
    plan.showing([Panel::bars(THROUGHPUT)])
}
