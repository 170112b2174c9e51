//! A virtual machine on a disk over NBD, and the kernel's NBD client beside it, one on disks by
//! vhost-user, and one that makes a block device of its own by ublk: file systems of which the target
//! is killed and started again under load, as are the front ends that can be started again.

#![cfg(test)]

use anyhow::{Context as _, Result, ensure};
use std::fs::File;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;
use switchyard_e2e::attach::Attach;
use switchyard_e2e::cache_directory;
use switchyard_e2e::guest::{
    Data, disk_programs, run_disks, run_ublk, run_vhost_disks, ublk_programs,
};
use switchyard_e2e::process::Serve;
use switchyard_e2e::vm::past_emulation_faults;

/// Size of each namespace, in MiB: XFS makes none that is much smaller.
const DISK_MIB: u64 = 320;

/// A target with a file as its namespace, and its front end.
struct Bed<'a> {
    serve: Option<Serve>,
    devices: [&'a str; 2],
    listen: String,
}

impl<'a> Bed<'a> {
    fn new(backing: &'a Path) -> Result<Self> {
        File::create(backing)?.set_len(DISK_MIB << 20)?;
        let backing = backing.to_str().context("a path in UTF-8")?;
        let devices = ["--file", backing];
        let serve = Serve::start(&devices)?;
        let listen = serve.address().to_string();
        Ok(Self {
            serve: Some(serve),
            devices,
            listen,
        })
    }

    /// Kills the target, and starts it again after a while.
    fn crash(&mut self) -> Result<()> {
        self.serve.take().context("a target runs")?.kill()?;
        sleep(Duration::from_secs(1));
        let arguments = ["--listen", &self.listen, self.devices[0], self.devices[1]];
        self.serve = Some(Serve::start_again(&arguments)?);
        Ok(())
    }
}

#[test]
fn a_guest_keeps_its_file_systems_by_vhost_user() -> Result<()> {
    past_emulation_faults(&disk_programs(), keep_file_systems_of_a_machine)
}

fn keep_file_systems_of_a_machine() -> Result<()> {
    let folder = cache_directory("vhost")?;
    let backings = ["vda", "vdb"].map(|name| folder.join(name));
    let mut beds = [Bed::new(&backings[0])?, Bed::new(&backings[1])?];
    let folder_text = folder.to_str().context("a path in UTF-8")?;
    let sockets = ["vda", "vdb"].map(|name| format!("{folder_text}/{name}.sock"));
    let sockets = [&*sockets[0], &*sockets[1]];
    let listen = [beds[0].listen.clone(), beds[1].listen.clone()];
    let start = |disk: usize| {
        let serial = ["a-disk", "b-disk"][disk];
        let arguments = ["--socket", sockets[disk], "--target", &listen[disk]];
        Attach::vhost(&[&arguments[..], &["--queues", "2", "--serial", serial]].concat())
    };
    let mut disks = [Some(start(0)?), Some(start(1)?)];
    let report = run_vhost_disks(&Data::from_seed(26), &sockets, &mut |step| {
        if step.starts_with("round-") {
            beds.iter_mut().try_for_each(Bed::crash)?;
        } else if step.starts_with("back-end-") {
            for (number, disk) in disks.iter_mut().enumerate() {
                disk.take().context("a back end runs")?.kill()?;
                *disk = Some(start(number)?);
            }
        }
        Ok(())
    })?;
    let steps = [
        "attached",
        "made",
        "loaded",
        "round-1",
        "round-2",
        "round-3",
        "back-end-1",
        "back-end-2",
        "went-on",
        "stopped",
        "checked",
        "real-time",
        "discarded",
    ];
    report.check_survived(&steps.map(str::to_owned))?;
    let [first, second] = disks.map(|disk| disk.context("a back end runs"));
    let said = first?.stop()?;
    second?.stop()?;
    // `ionice -c 1 dd` in the guest, and nothing else.
    let real_time = said.contains("served 100 latency and ");
    ensure!(real_time, "{said}");
    for bed in beds {
        bed.serve.context("a target runs")?.stop()?;
    }
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

#[test]
fn a_guest_keeps_its_file_system_by_ublk() -> Result<()> {
    past_emulation_faults(&ublk_programs(), keep_own_file_system)
}

fn keep_own_file_system() -> Result<()> {
    let folder = cache_directory("ublk")?;
    let backing = folder.join("ublkb3");
    let mut bed = Bed::new(&backing)?;
    let port = bed
        .serve
        .as_ref()
        .context("a target runs")?
        .address()
        .port();
    let report = run_ublk(&Data::from_seed(27), port, &mut |step| {
        if step.starts_with("round-") {
            bed.crash()?;
        }
        Ok(())
    })?;
    let steps = [
        "attached",
        "taken",
        "made",
        "loaded",
        "at-once",
        "round-1",
        "round-2",
        "round-3",
        "after",
        "recovered-1",
        "recovered-2",
        "recovered-3",
        "right-one",
        "after-failure",
        "beside-failure",
        "in-use",
        "stopped",
        "checked",
        "discarded",
        "recovered-deep",
        "detached",
        "twice",
        "read-only",
        "verified",
        "forced",
        "given-up",
        "cleaned-up",
    ];
    for line in report.output.iter().filter(|line| line.contains(" p99 ")) {
        println!("{line}");
    }
    let said = bed.serve.context("a target runs")?.stop()?;
    let checked = report.check_survived(&steps.map(str::to_owned));
    checked.with_context(|| format!("the target said:\n{said}"))?;
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

#[test]
fn a_guest_keeps_its_file_systems_on_disks_over_nbd() -> Result<()> {
    past_emulation_faults(&disk_programs(), keep_file_systems)
}

fn keep_file_systems() -> Result<()> {
    let folder = cache_directory("front-ends")?;
    let backings = [folder.join("vda"), folder.join("nbd0")];
    let [mut first, mut second] = [Bed::new(&backings[0])?, Bed::new(&backings[1])?];
    let socket = folder.join("vda.sock");
    let socket = socket.to_str().context("a path in UTF-8")?;
    let qemu = Attach::nbd(&["--socket", socket, "--target", &first.listen])?;
    let kernel = Attach::nbd(&["--listen", "127.0.0.1:0", "--target", &second.listen])?;
    let report = run_disks(
        &Data::from_seed(25),
        qemu.uri(),
        kernel.port()?,
        &mut |step| {
            if step.starts_with("round-") {
                first.crash()?;
                second.crash()?;
            }
            Ok(())
        },
    )?;
    let steps = [
        "attached",
        "made",
        "loaded",
        "round-1",
        "round-2",
        "round-3",
        "went-on",
        "stopped",
        "checked",
        "discarded",
        "detached",
    ];
    report.check_survived(&steps.map(str::to_owned))?;
    qemu.stop()?;
    kernel.stop()?;
    for bed in [first, second] {
        bed.serve.context("a target runs")?.stop()?;
    }
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}
