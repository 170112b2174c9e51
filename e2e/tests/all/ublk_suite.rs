//! The device suite on block devices by ublk.

use anyhow::{Context as _, Result, ensure};
use block::device::{FileDevice, FileOptions};
use reactor::uring::{Options, UringDriver};
use std::path::PathBuf;
use switchyard_e2e::guest::{Data, programs, run_ublk_suite};
use switchyard_e2e::vm::past_emulation_faults;
use testing::device::conformance::{Suite, run};

/// Boots a guest that runs this program for each of its block devices.
#[test]
fn the_device_suite_passes_through_ublk() -> Result<()> {
    if let Some(disk) = std::env::var_os("SWITCHYARD_SUITE_DISK") {
        return pass(disk.into());
    }
    past_emulation_faults(&programs(), || {
        let suite = std::env::current_exe().context("find the running test")?;
        let report = run_ublk_suite(&Data::from_seed(28), suite)?;
        report.check_survived(&["passed-512", "passed-4096"].map(str::to_owned))?;
        let ran = |line: &&String| line.contains("conformance of FileDevice");
        ensure!(report.output.iter().filter(ran).count() == 2, "{report:?}");
        Ok(())
    })
}

/// Runs the suite on a block device of this machine.
fn pass(disk: PathBuf) -> Result<()> {
    let block_bytes = std::env::var("SWITCHYARD_SUITE_BLOCK")?;
    let device = FileDevice::open(FileOptions {
        path: disk,
        block_bytes: block_bytes.parse()?,
        size: None,
        create: false,
        read_only: false,
        direct: true,
    })?;
    let mode = device.mode().to_string();
    ensure!(mode.starts_with("direct"), "{mode}");
    let driver = || UringDriver::new(&Options::default()).expect("a ring");
    run(driver, &device, Suite::default());
    Ok(())
}
