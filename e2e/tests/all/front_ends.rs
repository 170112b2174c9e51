//! Virtual machines with a disk over NBD (through QEMU's and the kernel's NBD clients), with disks
//! by vhost-user, and with a block device by ublk: file systems stay intact while the target, and
//! the front ends that support it, are killed and restarted under load.

use anyhow::{Context as _, Result, anyhow, ensure};
use std::fs::File;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;
use switchyard_e2e::attach::Attach;
use switchyard_e2e::cache_directory;
use switchyard_e2e::guest::{
    Data, disk_programs, run_disks, run_ublk, run_vhost_disks, unused_port,
};
use switchyard_e2e::limits::{kills, stop_time};
use switchyard_e2e::process::Serve;
use switchyard_e2e::vm::past_emulation_faults;

/// Size of each namespace, in MiB: near the minimum of XFS.
const DISK_MIB: u64 = 320;

/// Returns the names of these steps; a name that ends with a hyphen is repeated for each kill.
fn steps(names: &[&str]) -> Vec<String> {
    let each = |name: &&str| -> Vec<String> {
        match name.strip_suffix('-') {
            Some(_) => (1..=kills())
                .map(|round| format!("{name}{round}"))
                .collect(),
            None => vec![(*name).to_owned()],
        }
    };
    names.iter().flat_map(each).collect()
}

/// A front end that can be restarted.
struct FrontEnd<F> {
    attach: Option<Attach>,
    start: F,
}

impl<F: Fn() -> Result<Attach>> FrontEnd<F> {
    fn new(start: F) -> Result<Self> {
        let attach = Some(start()?);
        Ok(Self { attach, start })
    }

    fn running(&self) -> Result<&Attach> {
        self.attach.as_ref().context("a front end runs")
    }

    /// Executes a step: kills it and starts a replacement, or stops it for a while.
    fn act(&mut self, step: &str) -> Result<()> {
        if step.starts_with("front-end-") && step != "front-end-stops" {
            self.attach.take().context("a front end runs")?.kill()?;
            self.attach = Some((self.start)()?);
        } else if step == "front-end-stops" {
            self.running()?.stand_still(stop_time())?;
        }
        Ok(())
    }

    /// Ends it, and returns its standard error.
    fn stop(self) -> Result<String> {
        self.attach.context("a front end runs")?.stop()
    }
}

/// A target with a file as its namespace.
struct Bed<'a> {
    serve: Option<Serve>,
    devices: [&'a str; 4],
    listen: String,
}

impl<'a> Bed<'a> {
    fn new(backing: &'a Path) -> Result<Self> {
        File::create(backing)?.set_len(DISK_MIB << 20)?;
        let backing = backing.to_str().context("a path in UTF-8")?;
        // The guests ask for this block size of their disks.
        let devices = ["--file", backing, "--block-size", "4096"];
        let serve = Serve::start(&devices)?;
        let listen = serve.address().to_string();
        Ok(Self {
            serve: Some(serve),
            devices,
            listen,
        })
    }

    /// Returns the port of the target.
    fn port(&self) -> Result<u16> {
        let serve = self.serve.as_ref().context("a target runs")?;
        Ok(serve.address().port())
    }

    /// Executes a step on the target: kills it and restarts it after a while, or stops it for a
    /// while.
    fn act(&mut self, step: &str) -> Result<()> {
        if step.starts_with("round-") {
            self.crash()?;
        } else if step == "target-stops" {
            let serve = self.serve.as_ref().context("a target runs")?;
            serve.stand_still(stop_time())?;
        }
        Ok(())
    }

    /// Kills the target, and restarts it after a while.
    fn crash(&mut self) -> Result<()> {
        self.serve.take().context("a target runs")?.kill()?;
        sleep(Duration::from_secs(1));
        let arguments = [&["--listen", &*self.listen], &self.devices[..]].concat();
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
    let mut first = FrontEnd::new(|| start(0))?;
    let mut second = FrontEnd::new(|| start(1))?;
    let report = run_vhost_disks(&Data::from_seed(26), &sockets, &mut |step| {
        beds.iter_mut().try_for_each(|bed| bed.act(step))?;
        first.act(step)?;
        second.act(step)
    })?;
    let expected = steps(&[
        "attached",
        "verified",
        "made",
        "loaded",
        "round-",
        "front-end-",
        "target-stops",
        "front-end-stops",
        "machine-stops",
        "went-on",
        "stopped",
        "checked",
        "real-time",
        "discarded",
    ]);
    report.check_survived(&expected)?;
    let said = first.stop()?;
    second.stop()?;
    // Only the requests of `ionice -c 1 dd` in the guest.
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
    past_emulation_faults(&disk_programs(), keep_own_file_system)
}

fn keep_own_file_system() -> Result<()> {
    let folder = cache_directory("ublk")?;
    let backings = ["ublkb3", "ublkb6"].map(|name| folder.join(name));
    let mut beds = [Bed::new(&backings[0])?, Bed::new(&backings[1])?];
    let ports = [beds[0].port()?, beds[1].port()?];
    let report = run_ublk(&Data::from_seed(27), ports, &mut |step| {
        beds.iter_mut().try_for_each(|bed| bed.act(step))
    })?;
    let expected = steps(&[
        "attached",
        "taken",
        "made",
        "loaded",
        "at-once",
        "round-",
        "after",
        "recovered-",
        "target-stops",
        "front-end-stopped",
        "machine-stops",
        "went-on",
        "right-one",
        "after-failure",
        "beside-failure",
        "in-use",
        "stopped",
        "checked",
        "discarded",
        "recovered-deep",
        "taken-over",
        "detached",
        "twice",
        "read-only",
        "verified",
        "forced",
        "given-up",
        "cleaned-up",
    ]);
    for line in report.output.iter().filter(|line| line.contains(" p99 ")) {
        println!("{line}");
    }
    let checked = report.check_survived(&expected);
    for bed in beds {
        let said = bed.serve.context("a target runs")?.stop()?;
        checked
            .as_ref()
            .map_err(|error| anyhow!("{error:#}\nthe target said:\n{said}"))?;
    }
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
    let listen = [first.listen.clone(), second.listen.clone()];
    let mut qemu = FrontEnd::new(|| Attach::nbd(&["--socket", socket, "--target", &listen[0]]))?;
    let uri = qemu.running()?.uri().to_owned();
    let place = format!("127.0.0.1:{}", unused_port()?);
    let mut kernel = FrontEnd::new(|| Attach::nbd(&["--listen", &place, "--target", &listen[1]]))?;
    let port = kernel.running()?.port()?;
    let report = run_disks(&Data::from_seed(25), &uri, port, &mut |step| {
        first.act(step)?;
        second.act(step)?;
        qemu.act(step)?;
        kernel.act(step)
    })?;
    let expected = steps(&[
        "attached",
        "made",
        "loaded",
        "round-",
        "front-end-",
        "target-stops",
        "front-end-stops",
        "machine-stops",
        "went-on",
        "stopped",
        "checked",
        "discarded",
        "detached",
    ]);
    report.check_survived(&expected)?;
    qemu.stop()?;
    kernel.stop()?;
    for bed in [first, second] {
        bed.serve.context("a target runs")?.stop()?;
    }
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}
