//! Boots the guest of `guest/network.sh` with the given settings, and prints its results. Used by
//! `scripts/bench-network`.
//!
//! ```sh
//! cargo run -p switchyard-e2e --example network -- 'NETEM="delay 500us loss 1%"' RUNS=3 SECONDS=3
//! ```

use anyhow::Result;
use switchyard_e2e::guest::{Data, NETWORK_PROGRAMS, programs, run_network};
use switchyard_e2e::vm::past_emulation_faults;

fn main() -> Result<()> {
    let settings: Vec<String> = std::env::args().skip(1).collect();
    let programs = [&programs()[..], &NETWORK_PROGRAMS, &["strip"]].concat();
    past_emulation_faults(&programs, || {
        let report = run_network(&Data::from_seed(0), &settings.join("\n"))?;
        for line in &report.output {
            println!("{line}");
        }
        report.check(&[])
    })
}
