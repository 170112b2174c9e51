//! Our host against the Linux kernel's own target, in a guest: with and without digests, data that
//! the kernel prepared, data of ours, and a load that verifies what it reads.

#![cfg(test)]

use anyhow::{Result, ensure};
use switchyard_e2e::guest::{
    Data, FINISHED, FINISHED_AT, programs, run_foreign_target, unused_port,
};
use switchyard_e2e::process::{Digests, Remote};
use switchyard_e2e::{Readiness, cache_directory, require_programs};

/// Small blocks at depth, large ones that the target asks for by R2T, and a mix.
const APPS: [&str; 2] = [
    "small:rw=randrw,bs=4k,depth=16,count=1",
    "large:rw=write,bs=512k,depth=4,count=1",
];

#[test]
fn our_host_uses_the_kernel_target() -> Result<()> {
    if require_programs(&programs())? == Readiness::Skip {
        return Ok(());
    }
    let folder = cache_directory("foreign")?;
    let (data, port) = (Data::from_seed(23), unused_port()?);
    let scratch = folder.join("extent");
    let use_it = || -> Result<()> {
        let address = ([127, 0, 0, 1], port).into();
        for digests in [Digests::Off, Digests::On] {
            let target = Remote { address, digests };
            // The load writes anywhere, so each round prepares what it compares.
            target.bench(&APPS, 1)?;
            for extent in data.before() {
                std::fs::write(&scratch, &extent.content)?;
                target.write(extent.offset_bytes, &scratch)?;
                target.read(extent.offset_bytes, extent.content.len() as u64, &scratch)?;
                ensure!(std::fs::read(&scratch)? == extent.content, "{digests:?}");
            }
        }
        let mut word = FINISHED.as_bytes().to_vec();
        word.resize(4096, b'\n');
        std::fs::write(&scratch, word)?;
        let target = Remote {
            address,
            digests: Digests::Off,
        };
        target.write(FINISHED_AT, &scratch)
    };
    let report = run_foreign_target(&data, port, &mut |step| match step {
        "kernel-target" => use_it(),
        _ => Ok(()),
    })?;
    report.check(&["kernel-target", "finished"].map(str::to_owned))?;
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}
