//! A target, the kernel's host and our own host in a guest whose clock jumps by days and years in
//! both directions: no timer expires early, and no request is late.

use anyhow::Result;
use switchyard_e2e::guest::{Data, programs, run_clock};
use switchyard_e2e::vm::past_emulation_faults;

#[test]
fn nobody_notices_that_the_clock_is_set() -> Result<()> {
    let programs = [&programs()[..], &["strip"]].concat();
    past_emulation_faults(&programs, set_the_clock)
}

fn set_the_clock() -> Result<()> {
    let report = run_clock(&Data::from_seed(24))?;
    let steps = [
        "started",
        "connected",
        "loaded",
        "steady",
        "day",
        "back",
        "years",
        "past",
        "stopped",
        "disconnected",
        "ended",
    ];
    report.check(&steps.map(str::to_owned))
}
