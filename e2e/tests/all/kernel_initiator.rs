//! The Linux kernel's own initiator, in a guest, against `switchyard serve`: digests off and on,
//! raw ranges, Write Zeroes, Deallocate, a file system across a reconnect, discovery, and
//! `nvme-cli`'s view of the controller.

use anyhow::{Context as _, Result, ensure};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use switchyard_e2e::cache_directory;
use switchyard_e2e::guest::{
    DEVICE_MIB, Data, Extent, Target, initiator_steps, programs, run_initiator, run_reference,
};
use switchyard_e2e::process::{Digests, Remote, Serve};
use switchyard_e2e::vm::past_emulation_faults;

/// Model number of our controllers.
const MODEL: &str = "Switchyard";

#[test]
fn kernel_initiator_uses_a_file_and_memory() -> Result<()> {
    past_emulation_faults(&programs(), use_a_file_and_memory)
}

fn use_a_file_and_memory() -> Result<()> {
    let data = Data::from_seed(20);
    let folder = cache_directory("initiator")?;
    let backing = folder.join("namespace");
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(&backing)?;
    file.set_len(DEVICE_MIB << 20)?;
    for extent in data.before() {
        file.write_all_at(&extent.content, extent.offset_bytes)?;
    }
    file.sync_all()?;

    let size = format!("{DEVICE_MIB}M");
    let path = backing
        .to_str()
        .context("the target directory's path is UTF-8")?;
    // Both block sizes, one target each.
    let from_file = Serve::start(&["--file", path, "--block-size", "4096"])?;
    let from_memory = Serve::start(&["--ram", &size, "--block-size", "512"])?;
    // Our own host fills and checks the memory: two hosts, one content.
    let ours = Remote {
        address: from_memory.address(),
        digests: Digests::On,
    };
    let scratch = folder.join("extent");
    for extent in data.before() {
        std::fs::write(&scratch, &extent.content)?;
        ours.write(extent.offset_bytes, &scratch)?;
    }

    let targets = [("file", &from_file), ("memory", &from_memory)].map(|(name, serve)| Target {
        name,
        address: serve.address(),
    });
    let report = run_initiator(&data, &targets, MODEL)?;
    let mut steps = [initiator_steps("file"), initiator_steps("memory")].concat();
    for target in ["file", "memory"] {
        for mode in ["plain", "both"] {
            steps.push(format!("{target}-{mode}-command-sets"));
        }
    }
    report.check(&steps)?;

    for extent in data.after() {
        ours.read(extent.offset_bytes, extent.content.len() as u64, &scratch)?;
        same(&extent, &std::fs::read(&scratch)?).context("in the memory namespace")?;
    }
    from_memory.stop()?;
    from_file.stop()?;
    for extent in data.after() {
        let mut found = vec![0; extent.content.len()];
        file.read_exact_at(&mut found, extent.offset_bytes)?;
        same(&extent, &found).context("in the file behind the namespace")?;
    }
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

/// The guest's script passes against the kernel's own target: if this test passes and the one above
/// fails, the script is not at fault.
#[test]
fn kernel_initiator_uses_the_kernel_target() -> Result<()> {
    past_emulation_faults(&programs(), use_the_kernel_target)
}

fn use_the_kernel_target() -> Result<()> {
    let report = run_reference(&Data::from_seed(21))?;
    report.check(&initiator_steps("reference"))
}

fn same(expected: &Extent, found: &[u8]) -> Result<()> {
    let differs = expected.content.iter().zip(found).position(|(a, b)| a != b);
    ensure!(
        differs.is_none() && expected.content.len() == found.len(),
        "{} bytes at byte {} are not what the guest reported; the first difference is at {:?}",
        expected.content.len(),
        expected.offset_bytes,
        differs.map(|index| expected.offset_bytes + index as u64)
    );
    Ok(())
}
