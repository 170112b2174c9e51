//! Iozone through a cache: the figures of chapters 1, 4 and 6, measured, and simulated with eight
//! processors in virtual time. `[Yu §1.1, §4, §6.2]`

use super::cached::{
    ALL, ATM_LOOKING, HTM_LOOKING, INTERRUPT_LOOKING, PATHS, RAND_M32, RAND_R1, RAND_R32, RAND_W1,
    RAND_W32, SEQ_R1, SEQ_R32, SEQ_W1, SEQ_W32, SIMULATED_WORKLOAD, STM_LOOKING, SYNC_LOOKING,
    TWO_QUEUE, VFS_HTM, WORKLOAD, plan,
};
use super::{DEVICE, THROUGHPUT, in_virtual_time};
use crate::figure::plan::claims;
use crate::figure::{Figure, Work};

/// Declares figures, each with its number, title and section in the thesis, its systems and
/// columns, and its claims.
macro_rules! figures {
    ($($measured:ident $simulated:ident $number:literal $title:literal $section:literal,
        $systems:expr, $columns:expr; { $($claims:tt)+ })+) => {$(
        pub(in crate::figure) const $measured: Figure = Figure {
            name: concat!("thesis-", $number),
            title: $title,
            paper: concat!("Yu §", $section, ", Fig. ", $number),
            workload: WORKLOAD,
            work: Work::Machine(|_| {
                let mut plan = plan($systems, $columns);
                claims! { plan; $($claims)+ }
                plan
            }),
        };

        pub(in crate::figure) const $simulated: Figure = in_virtual_time(
            $measured,
            concat!("sim-thesis-", $number),
            concat!($title, " (simulated, costs of the thesis' table 6)"),
            SIMULATED_WORKLOAD,
        );
    )+};
}

figures! {
    BASELINE BASELINE_SIMULATED "1" "The interrupt path through a cache" "1.1",
    &[INTERRUPT_LOOKING], &[SEQ_R1, RAND_R1, SEQ_R32, RAND_R32];
    {
        "one" "random reads have about a quarter of the throughput of sequential ones":
            THROUGHPUT,
            ("interrupt", RAND_R1.0) / ("interrupt", SEQ_R1.0) in 0.167..=0.375;
        "many" "random reads have about a quarter of the throughput of sequential ones":
            THROUGHPUT,
            ("interrupt", RAND_R32.0) / ("interrupt", SEQ_R32.0) in 0.167..=0.375;
    }

    SYNCHRONOUS SYNCHRONOUS_SIMULATED "6" "The synchronous path through a cache" "4.2",
    &[INTERRUPT_LOOKING, SYNC_LOOKING], &[SEQ_R1, RAND_R1, SEQ_R32, RAND_R32, RAND_M32];
    {
        "random" "1.58 to 2.47 times the interrupt path with random requests, 1.14 in order":
            THROUGHPUT, "sync" / "interrupt" in 1.05..=3.7,
            at [RAND_R1.0, RAND_R32.0, RAND_M32.0];
        "sequential"
            "1.58 to 2.47 times the interrupt path with random requests, 1.14 in order":
            THROUGHPUT, "sync" / "interrupt" in 0.76..=1.71, at [SEQ_R32.0];
    }

    ASYNCHRONOUS ASYNCHRONOUS_SIMULATED "11" "Asynchronous temporal merge through a cache" "4.5",
    &[STM_LOOKING, ATM_LOOKING], &[SEQ_W1, RAND_W1, SEQ_W32, RAND_R32, RAND_W32];
    {
        "one" "ATM has 1.5 times STM's writes with one thread":
            THROUGHPUT, "atm" / "stm" in 1.0..=2.25, at [SEQ_W1.0, RAND_W1.0];
        "sequential" "and 1.18 and 1.05 times with many":
            THROUGHPUT, "atm" / "stm" in 0.79..=1.77, at [SEQ_W32.0];
        "random" "and 1.18 and 1.05 times with many":
            THROUGHPUT, "atm" / "stm" in 0.7..=1.58, at [RAND_W32.0];
        "reads" "its reads do not merge":
            THROUGHPUT, "atm" / "stm" in 0.2..=0.8, at [RAND_R32.0];
    }

    HYBRID HYBRID_SIMULATED "12" "Hybrid temporal merge through a cache" "4.6",
    &[STM_LOOKING, ATM_LOOKING, HTM_LOOKING], &[RAND_R1, SEQ_W1, SEQ_W32, RAND_R32, RAND_W32];
    {
        "reads" "HTM is as STM with reads":
            THROUGHPUT, "htm" / "stm" in 0.67..=1.5, at [RAND_R1.0, RAND_R32.0];
        "writes" "and as ATM with writes":
            THROUGHPUT, "htm" / "atm" in 0.67..=1.5, at [SEQ_W1.0, SEQ_W32.0, RAND_W32.0];
        "part" "random reads have 45 % of the device, as read-ahead takes the rest":
            THROUGHPUT, ("htm", RAND_R32.0) / DEVICE in 0.3..=0.68;
    }

    READ_AHEAD READ_AHEAD_SIMULATED "14" "Reads without look-up of their context" "4.7",
    &[HTM_LOOKING, VFS_HTM], &[SEQ_R32, RAND_R32, RAND_M32];
    {
        "random" "without the look-up random reads have 1.94 times the throughput":
            THROUGHPUT, "vfs_htm" / "htm" in 1.29..=2.91, at [RAND_R32.0];
        "sequential" "and sequential ones as much as with it":
            THROUGHPUT, "vfs_htm" / "htm" in 0.67..=1.5, at [SEQ_R32.0];
        "part" "without it random reads have 87 % of the device":
            THROUGHPUT, ("vfs_htm", RAND_R32.0) / DEVICE in 0.58..=1.31;
        "part-mixed" "and a mix 74 %, as reads unplug the writes early":
            THROUGHPUT, ("vfs_htm", RAND_M32.0) / DEVICE in 0.49..=1.11;
    }

    DOUBLE DOUBLE_SIMULATED "15" "Double buffering through a cache" "4.8",
    &[VFS_HTM, TWO_QUEUE], &[SEQ_W32, RAND_R32, RAND_W32, RAND_M32];
    {
        "mixed" "2Q has 1.44 times the throughput of VFS-HTM with a mix":
            THROUGHPUT, "2q" / "vfs_htm" in 0.96..=2.16, at [RAND_M32.0];
    }

    EVERY_PATH EVERY_PATH_SIMULATED "17" "All paths through a cache" "6.2",
    &PATHS, &ALL;
    {
        "one in order" "the interrupt path wins with one sequential reader":
            THROUGHPUT, "sync" / "interrupt" in 0.58..=1.0, at [SEQ_R1.0];
        "many in order" "the synchronous path has 1.15 times as much with 32":
            THROUGHPUT, "sync" / "interrupt" in 0.77..=1.73, at [SEQ_R32.0];
        "one at random" "and 1.65 times with one random reader":
            THROUGHPUT, "sync" / "interrupt" in 1.1..=2.48, at [RAND_R1.0];
        "queued" "ATM has 1.27 times the interrupt path's random reads with one thread":
            THROUGHPUT, "atm" / "interrupt" in 0.85..=1.91, at [RAND_R1.0];
        "unmerged" "with 32, no more of them than the synchronous path":
            THROUGHPUT, "atm" / "sync" in 0.62..=1.05, at [RAND_R32.0];
        "merged" "where STM has 1.93 times as many":
            THROUGHPUT, "stm" / "sync" in 1.29..=2.9, at [RAND_R32.0];
        "mixed" "2Q has 4.4 times the interrupt path with a mix of 32 threads":
            THROUGHPUT, "2q" / "interrupt" in 2.93..=6.6, at [RAND_M32.0];
    }
}
