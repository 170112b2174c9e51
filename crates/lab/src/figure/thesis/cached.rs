//! Figures of Iozone through a page cache, by path. `[Yu §1.1, §4, §6.2]`
//!
//! The cache is our write-back one, an eighth of the emulated device, where the thesis had the
//! kernel's page cache and ext3. Those of chapter 4 look up the context of reads but for the paths
//! that are defined by not doing so; the evaluation does not. `[Yu §4.7]`

use super::{DEVICE, SETTING, THROUGHPUT, of_app, path};
use crate::figure::claim::Bound;
use crate::figure::plan::{Axis, Panel, Plan, cell};
use crate::figure::scenario::{System, Workload};
use crate::figure::{Figure, Work};
use switch::Class;

macro_rules! cached {
    ($name:literal, $path:literal $(, $further:literal)*) => {
        path($name, &["--path", $path, "--cache", "32M" $(, $further)*])
    };
}

const INTERRUPT: System = cached!("interrupt", "interrupt");
const SYNC: System = cached!("sync", "sync");
const STM: System = cached!("stm", "stm");
const ATM: System = cached!("atm", "atm");
const HTM: System = cached!("htm", "htm");
const VFS_HTM: System = cached!("vfs_htm", "vfs_htm");
const TWO_QUEUE: System = cached!("2q", "2q");

const INTERRUPT_LOOKING: System = cached!("interrupt", "interrupt", "--context-look-up");
const SYNC_LOOKING: System = cached!("sync", "sync", "--context-look-up");
const STM_LOOKING: System = cached!("stm", "stm", "--context-look-up");
const ATM_LOOKING: System = cached!("atm", "atm", "--context-look-up");
const HTM_LOOKING: System = cached!("htm", "htm", "--context-look-up");

/// A place on the axis: its name, sequential or not, percent of reads, threads.
type Column = (&'static str, bool, u8, u32);

const SEQ_R1: Column = ("SeqR 1", true, 100, 1);
const SEQ_W1: Column = ("SeqW 1", true, 0, 1);
const RAND_R1: Column = ("RandR 1", false, 100, 1);
const RAND_W1: Column = ("RandW 1", false, 0, 1);
const RAND_M1: Column = ("RandM 1", false, 50, 1);
const SEQ_R32: Column = ("SeqR 32", true, 100, 32);
const SEQ_W32: Column = ("SeqW 32", true, 0, 32);
const RAND_R32: Column = ("RandR 32", false, 100, 32);
const RAND_W32: Column = ("RandW 32", false, 0, 32);
const RAND_M32: Column = ("RandM 32", false, 50, 32);

const ALL: [Column; 10] = [
    SEQ_R1, SEQ_W1, RAND_R1, RAND_W1, RAND_M1, SEQ_R32, SEQ_W32, RAND_R32, RAND_W32, RAND_M32,
];

const WORKLOAD: &str = "1 and 32 threads, 4 KiB through a cache of 32 MiB of the emulated device of 256 MiB with 5 µs of \
     software for each command: sequential and random reads and writes, and half of each at random";

/// Fig. 1: the baseline.
pub(in crate::figure) const FIG1: Figure = Figure {
    name: "thesis-1",
    title: "The interrupt path through a cache",
    paper: "Yu §1.1, Fig. 1",
    workload: WORKLOAD,
    work: Work::Machine(|_| {
        let columns = [SEQ_R1, RAND_R1, SEQ_R32, RAND_R32];
        let mut plan = plan(&[INTERRUPT_LOOKING], &columns);
        for (name, random, sequential) in [
            ("one", RAND_R1.0, SEQ_R1.0),
            ("many", RAND_R32.0, SEQ_R32.0),
        ] {
            plan.claim(
                name,
                "random reads have about a quarter of the throughput of sequential ones",
                THROUGHPUT,
                (cell("interrupt", random), cell("interrupt", sequential)),
                Bound::Between(0.167, 0.375),
            );
        }
        plan
    }),
};

/// Fig. 6: the synchronous path.
pub(in crate::figure) const FIG6: Figure = Figure {
    name: "thesis-6",
    title: "The synchronous path through a cache",
    paper: "Yu §4.2, Fig. 6",
    workload: WORKLOAD,
    work: Work::Machine(|_| {
        let columns = [SEQ_R1, RAND_R1, SEQ_R32, RAND_R32, RAND_M32];
        let mut plan = plan(&[INTERRUPT_LOOKING, SYNC_LOOKING], &columns);
        let says = "1.58 to 2.47 times the interrupt path with random requests, 1.14 in order";
        let random = [RAND_R1, RAND_R32, RAND_M32];
        claim(
            &mut plan,
            "random",
            says,
            ("sync", "interrupt"),
            &random,
            (1.05, 3.7),
        );
        claim(
            &mut plan,
            "sequential",
            says,
            ("sync", "interrupt"),
            &[SEQ_R32],
            (0.76, 1.71),
        );
        plan
    }),
};

/// Fig. 11: asynchronous temporal merge.
pub(in crate::figure) const FIG11: Figure = Figure {
    name: "thesis-11",
    title: "Asynchronous temporal merge through a cache",
    paper: "Yu §4.5, Fig. 11",
    workload: WORKLOAD,
    work: Work::Machine(|_| {
        let columns = [SEQ_W1, RAND_W1, SEQ_W32, RAND_R32, RAND_W32];
        let mut plan = plan(&[STM_LOOKING, ATM_LOOKING], &columns);
        let of = ("atm", "stm");
        let says = "ATM has 1.5 times STM's writes with one thread";
        claim(&mut plan, "one", says, of, &[SEQ_W1, RAND_W1], (1.0, 2.25));
        let says = "and 1.18 and 1.05 times with many";
        claim(&mut plan, "sequential", says, of, &[SEQ_W32], (0.79, 1.77));
        claim(&mut plan, "random", says, of, &[RAND_W32], (0.7, 1.58));
        let says = "its reads do not merge";
        claim(&mut plan, "reads", says, of, &[RAND_R32], (0.2, 0.8));
        plan
    }),
};

/// Fig. 12: hybrid temporal merge.
pub(in crate::figure) const FIG12: Figure = Figure {
    name: "thesis-12",
    title: "Hybrid temporal merge through a cache",
    paper: "Yu §4.6, Fig. 12",
    workload: WORKLOAD,
    work: Work::Machine(|_| {
        let columns = [RAND_R1, SEQ_W1, SEQ_W32, RAND_R32, RAND_W32];
        let mut plan = plan(&[STM_LOOKING, ATM_LOOKING, HTM_LOOKING], &columns);
        let says = "HTM is as STM with reads";
        let reads = [RAND_R1, RAND_R32];
        claim(
            &mut plan,
            "reads",
            says,
            ("htm", "stm"),
            &reads,
            (0.67, 1.5),
        );
        let says = "and as ATM with writes";
        let writes = [SEQ_W1, SEQ_W32, RAND_W32];
        claim(
            &mut plan,
            "writes",
            says,
            ("htm", "atm"),
            &writes,
            (0.67, 1.5),
        );
        let says = "random reads have 45 % of the device, as read-ahead takes the rest";
        claim_part(&mut plan, "part", says, ("htm", RAND_R32), (0.3, 0.68));
        plan
    }),
};

/// Fig. 14: the read-ahead fix.
pub(in crate::figure) const FIG14: Figure = Figure {
    name: "thesis-14",
    title: "Reads without look-up of their context",
    paper: "Yu §4.7, Fig. 14",
    workload: WORKLOAD,
    work: Work::Machine(|_| {
        let columns = [SEQ_R32, RAND_R32, RAND_M32];
        let mut plan = plan(&[HTM_LOOKING, VFS_HTM], &columns);
        let of = ("vfs_htm", "htm");
        let says = "without the look-up random reads have 1.94 times the throughput";
        claim(&mut plan, "random", says, of, &[RAND_R32], (1.29, 2.91));
        let says = "and sequential ones as much as with it";
        claim(&mut plan, "sequential", says, of, &[SEQ_R32], (0.67, 1.5));
        let says = "without it random reads have 87 % of the device";
        claim_part(&mut plan, "part", says, ("vfs_htm", RAND_R32), (0.58, 1.31));
        let says = "and a mix 74 %, as reads unplug the writes early";
        let place = ("vfs_htm", RAND_M32);
        claim_part(&mut plan, "part-mixed", says, place, (0.49, 1.11));
        plan
    }),
};

/// Fig. 15: double buffering.
pub(in crate::figure) const FIG15: Figure = Figure {
    name: "thesis-15",
    title: "Double buffering through a cache",
    paper: "Yu §4.8, Fig. 15",
    workload: WORKLOAD,
    work: Work::Machine(|_| {
        let columns = [SEQ_W32, RAND_R32, RAND_W32, RAND_M32];
        let mut plan = plan(&[VFS_HTM, TWO_QUEUE], &columns);
        let says = "2Q has 1.44 times the throughput of VFS-HTM with a mix";
        claim(
            &mut plan,
            "mixed",
            says,
            ("2q", "vfs_htm"),
            &[RAND_M32],
            (0.96, 2.16),
        );
        plan
    }),
};

/// Fig. 17: all paths.
pub(in crate::figure) const FIG17: Figure = Figure {
    name: "thesis-17",
    title: "All paths through a cache",
    paper: "Yu §6.2, Fig. 17",
    workload: WORKLOAD,
    work: Work::Machine(|_| {
        let systems = [INTERRUPT, SYNC, STM, ATM, HTM, TWO_QUEUE];
        let mut plan = plan(&systems, &ALL);
        let of = ("sync", "interrupt");
        let says = "the interrupt path wins with one sequential reader";
        claim(&mut plan, "one in order", says, of, &[SEQ_R1], (0.58, 1.0));
        let says = "the synchronous path has 1.15 times as much with 32";
        claim(
            &mut plan,
            "many in order",
            says,
            of,
            &[SEQ_R32],
            (0.77, 1.73),
        );
        let says = "and 1.65 times with one random reader";
        claim(
            &mut plan,
            "one at random",
            says,
            of,
            &[RAND_R1],
            (1.1, 2.48),
        );
        let says = "ATM has 1.27 times the interrupt path's random reads with one thread";
        claim(
            &mut plan,
            "queued",
            says,
            ("atm", "interrupt"),
            &[RAND_R1],
            (0.85, 1.91),
        );
        let says = "with 32, no more of them than the synchronous path";
        claim(
            &mut plan,
            "unmerged",
            says,
            ("atm", "sync"),
            &[RAND_R32],
            (0.62, 1.05),
        );
        let says = "where STM has 1.93 times as many";
        claim(
            &mut plan,
            "merged",
            says,
            ("stm", "sync"),
            &[RAND_R32],
            (1.29, 2.9),
        );
        let says = "2Q has 4.4 times the interrupt path with a mix of 32 threads";
        claim(
            &mut plan,
            "mixed",
            says,
            ("2q", "interrupt"),
            &[RAND_M32],
            (2.93, 6.6),
        );
        plan
    }),
};

/// Every system at every column.
fn plan(systems: &[System], columns: &[Column]) -> Plan {
    let mut plan = Plan::over(Axis::new(
        "workload",
        "",
        columns.iter().map(|column| column.0),
    ));
    for &(name, sequential, read_percent, count) in columns {
        for &system in systems {
            let app = Workload {
                class: Class::Throughput,
                read_percent,
                sequential,
                ..Workload::latency(count)
            };
            plan.run(system.name, name, of_app(system, SETTING, app));
        }
    }
    plan.showing([Panel::bars(THROUGHPUT)])
}

fn claim(
    plan: &mut Plan,
    name: &'static str,
    says: &'static str,
    of: (&'static str, &'static str),
    columns: &[Column],
    (least, most): (f64, f64),
) {
    let ticks = columns.iter().map(|column| column.0);
    plan.claim_at_each(
        name,
        says,
        THROUGHPUT,
        of,
        ticks,
        Bound::Between(least, most),
    );
}

/// Adds the claim that a path has such a part of what the device can do.
fn claim_part(
    plan: &mut Plan,
    name: &'static str,
    says: &'static str,
    (path, column): (&'static str, Column),
    (least, most): (f64, f64),
) {
    let pair = (cell(path, column.0), DEVICE);
    plan.claim(name, says, THROUGHPUT, pair, Bound::Between(least, most));
}
