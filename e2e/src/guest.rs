//! The scenarios of a guest, and its reports.
//!
//! Owns the layout of the namespace that guest scripts and tests agree on, puts scripts and their
//! data into an [`Image`], and reads the guest's report from its console. The scripts themselves
//! are shell, in `guest/`: the guest has nothing else.
//!
//! ```text
//! 0        FILE_SYSTEM_MIB   AREAS_MIB + 16 × n                              DEVICE_MIB
//! | file system | prepared ranges | area of digest mode n: +0 pattern, +8 short   | prepared |
//! |             |                 | writes, +12 zeroes, +14 discard (MiB)         | range    |
//! ```

mod log;

use crate::debian::{self, Kernel};
use crate::image::Image;
use crate::limits::{fsx_operations, kills, stop_time};
use crate::process::{DEFAULT_NQN, switchyard_binary};
use crate::vm::{self, HOST_ADDRESS, Vm, Watch};
use crate::{cache_directory, find_program, output_of};
use anyhow::{Context as _, Result};
use base::prng::Prng;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::Command;

pub use log::GuestLog;

/// Size of the namespace under test, in MiB.
pub const DEVICE_MIB: u64 = 256;
/// Size of the file system at its start, in MiB.
const FILE_SYSTEM_MIB: u64 = 96;
/// Start of the areas of the digest modes, in MiB.
const AREAS_MIB: u64 = 128;
/// Size of an area, in MiB.
const AREA_MIB: u64 = 16;
/// Digest modes, and so areas: none, header, data, both.
const AREAS: u64 = 4;
/// Bytes of the pattern that the guest writes.
const PATTERN_BYTES: usize = 4 << 20;
/// Bytes of pattern around a zeroed or discarded range.
const SURROUND_BYTES: usize = 256 << 10;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Programs that a guest takes from this machine.
const GUEST_PROGRAMS: [&str; 7] = [
    "mkfs.ext4",
    "e2fsck",
    "mkfs.xfs",
    "xfs_repair",
    "blkdiscard",
    "nvme",
    "fio",
];

/// Modules that make a guest an NVMe/TCP initiator with a network and file systems.
const INITIATOR_MODULES: [&str; 5] = ["virtio_net", "crc32c_generic", "nvme_tcp", "ext4", "xfs"];

/// All programs that booting such a guest needs on this machine.
pub fn programs() -> Vec<&'static str> {
    let mut programs = vec!["busybox", "ldd"];
    programs.extend(debian::PROGRAMS);
    programs.extend(vm::PROGRAMS);
    programs.extend(GUEST_PROGRAMS);
    programs
}

/// A range of the namespace with content that is known before the guest starts, or that the
/// guest must have left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extent {
    /// First byte.
    pub offset_bytes: u64,
    /// The content.
    pub content: Vec<u8>,
}

/// The data of one run, from a seed.
#[derive(Debug)]
pub struct Data {
    pattern: Vec<u8>,
    prepared: Vec<Extent>,
}

impl Data {
    /// The data of a seed.
    pub fn from_seed(seed: u64) -> Self {
        let mut random = Prng::from_seed(seed);
        let mut bytes = |length: usize| {
            let mut content = vec![0; length];
            random.fill(&mut content);
            content
        };
        let pattern = bytes(PATTERN_BYTES);
        // One whole, one at an odd place, and the very last blocks.
        let prepared = [
            (100 * MIB, 64 << 10),
            (101 * MIB + 4 * KIB, 128 << 10),
            (DEVICE_MIB * MIB - 64 * KIB, 64 << 10),
        ]
        .map(|(offset_bytes, length)| Extent {
            offset_bytes,
            content: bytes(length),
        });
        Self {
            pattern,
            prepared: prepared.into(),
        }
    }

    /// Returns what the namespace must hold before the guest starts; the rest may be anything.
    pub fn before(&self) -> Vec<Extent> {
        let surround = &self.pattern[..SURROUND_BYTES];
        let around = (0..AREAS).flat_map(|area| {
            [12, 14].map(|place| Extent {
                offset_bytes: (AREAS_MIB + area * AREA_MIB + place) * MIB,
                content: surround.to_vec(),
            })
        });
        self.prepared.iter().cloned().chain(around).collect()
    }

    /// Returns what the namespace must hold after a guest that reported success.
    pub fn after(&self) -> Vec<Extent> {
        let mut extents = self.prepared.clone();
        for area in 0..AREAS {
            let start = (AREAS_MIB + area * AREA_MIB) * MIB;
            let mut add = |offset_bytes, content: &[u8]| {
                extents.push(Extent {
                    offset_bytes: start + offset_bytes,
                    content: content.into(),
                });
            };
            add(0, &self.pattern);
            add(8 * MIB + 4 * KIB, &self.pattern[..64 << 10]);
            add(8 * MIB + 132 * KIB, &self.pattern[..16 << 10]);
            let mut zeroed = self.pattern[..SURROUND_BYTES].to_vec();
            zeroed[64 << 10..192 << 10].fill(0);
            add(12 * MIB, &zeroed);
            // What was discarded may read as anything; what surrounds it may not.
            add(14 * MIB, &self.pattern[..64 << 10]);
            add(
                14 * MIB + 192 * KIB,
                &self.pattern[192 << 10..SURROUND_BYTES],
            );
        }
        extents
    }
}

/// A target that the guest connects to.
#[derive(Debug, Clone)]
pub struct Target {
    /// Its name in the report: lower-case letters.
    pub name: &'static str,
    /// The target's address: a port of this machine's loopback.
    pub address: SocketAddr,
}

/// Boots a guest that exercises each target with the kernel's initiator, and returns its report.
/// `model` is the model number that the controllers must show.
///
/// # Errors
/// When the guest cannot be made or started, or does not power itself off.
pub fn run_initiator(data: &Data, targets: &[Target], model: &str) -> Result<GuestLog> {
    let targets: Vec<(&str, u16)> = targets
        .iter()
        .map(|target| (target.name, target.address.port()))
        .collect();
    let scenario = Scenario {
        targets: &targets,
        model,
        ..Scenario::new(&[include_str!("../guest/initiator.sh")])
    };
    Ok(GuestLog::parse(&scenario.guest(data)?.run()?))
}

/// Boots a guest that exercises the kernel's own target, in the same guest, in the same way: the
/// check of the check. What fails here is the script's fault.
///
/// # Errors
/// As [`run_initiator`].
pub fn run_reference(data: &Data) -> Result<GuestLog> {
    let scenario = Scenario {
        targets: &[("reference", 4420)],
        address: "127.0.0.1",
        ..Scenario::kernel_target(include_str!("../guest/initiator.sh"))
    };
    Ok(GuestLog::parse(&scenario.guest(data)?.run()?))
}

/// Boots a guest with a host that works while its namespaces and its target come and go; `watch`
/// makes them do so, step by step. The first namespace is as large as [`DEVICE_MIB`] says.
///
/// # Errors
/// As [`run_initiator`], and what `watch` says.
pub fn run_changes(data: &Data, target: SocketAddr, watch: Watch<'_>) -> Result<GuestLog> {
    let scenario = Scenario {
        targets: &[("changes", target.port())],
        ..Scenario::new(&[include_str!("../guest/changes.sh")])
    };
    Ok(GuestLog::parse(&scenario.guest(data)?.run_watched(watch)?))
}

/// Boots a guest with a target and hosts of its own, the kernel's and ours, while its clock jumps.
///
/// # Errors
/// As [`run_initiator`].
pub fn run_clock(data: &Data) -> Result<GuestLog> {
    let mut scenario = Scenario {
        address: "127.0.0.1",
        ..Scenario::new(&[include_str!("../guest/clock.sh")])
    };
    scenario.add_switchyard()?;
    Ok(GuestLog::parse(&scenario.guest(data)?.run()?))
}

/// Boots a guest with a target, and hosts of its own and the kernel's, at the two ends of a network;
/// `settings` are the shell variables that `guest/network.sh` names.
///
/// # Errors
/// As [`run_initiator`].
pub fn run_network(data: &Data, settings: &str) -> Result<GuestLog> {
    let mut scenario = Scenario {
        address: "192.0.2.1",
        modules: [&INITIATOR_MODULES[..], &["veth", "sch_netem", "tcp_diag"]].concat(),
        more_programs: &NETWORK_PROGRAMS,
        ..Scenario::new(&[settings, include_str!("../guest/network.sh")])
    };
    scenario.add_switchyard()?;
    Ok(GuestLog::parse(&scenario.guest(data)?.run()?))
}

/// The programs of such a guest that others do not need.
pub const NETWORK_PROGRAMS: [&str; 3] = ["ip", "tc", "ss"];

/// All programs that booting a guest with disks needs on this machine.
pub fn disk_programs() -> Vec<&'static str> {
    [&programs()[..], &["nbd-client", EXERCISER, "strip", "cc"]].concat()
}

/// The program that exercises the file systems of disks.
const EXERCISER: &str = "fsx";

/// Boots a guest with a disk over NBD by QEMU's client, of this URI, and one by the kernel's client,
/// from this port; `watch` is told of its steps.
///
/// # Errors
/// As [`run_initiator`], and what `watch` says.
pub fn run_disks(data: &Data, disk: &str, port: u16, watch: Watch<'_>) -> Result<GuestLog> {
    let mut scenario = Scenario {
        targets: &[("disks", port)],
        more_programs: &["nbd-client"],
        ..Scenario::disks(include_str!("../guest/disks.sh"), &["virtio_blk", "nbd"])?
    };
    let nbd_keep = cache_directory("programs")?.join("nbd_keep");
    let mut compiler = Command::new("cc");
    compiler.args(["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror"]);
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/guest/nbd_keep.c");
    output_of(compiler.arg("-o").arg(&nbd_keep).arg(source))?;
    scenario.built_programs.push(("nbd_keep", nbd_keep));
    let vm = scenario.guest(data)?.disk(disk);
    Ok(GuestLog::parse(&vm.run_watched(watch)?))
}

/// Boots a guest with the disks of the vhost-user back ends at these two sockets; `watch` is told of
/// its steps.
///
/// # Errors
/// As [`run_initiator`], and what `watch` says.
pub fn run_vhost_disks(data: &Data, sockets: &[&str], watch: Watch<'_>) -> Result<GuestLog> {
    let scenario = Scenario::disks(include_str!("../guest/vhost_disks.sh"), &["virtio_blk"])?;
    let vm = scenario.guest(data)?.vhost_disks(sockets);
    Ok(GuestLog::parse(&vm.run_watched(watch)?))
}

/// Boots a guest that makes block devices by the program under test, two of them over the targets at
/// these ports; `watch` is told of its steps.
///
/// # Errors
/// As [`run_initiator`], and what `watch` says.
pub fn run_ublk(data: &Data, ports: [u16; 2], watch: Watch<'_>) -> Result<GuestLog> {
    let mut scenario = Scenario {
        targets: &ports.map(|port| ("ublk", port)),
        ..Scenario::disks(
            concat!(
                include_str!("../guest/front_end.sh"),
                include_str!("../guest/ublk.sh")
            ),
            &["ublk_drv"],
        )?
    };
    scenario.add_switchyard()?;
    Ok(GuestLog::parse(&scenario.guest(data)?.run_watched(watch)?))
}

/// Boots a guest that makes block devices by the program under test, and has `suite` run all its tests
/// for each: `SWITCHYARD_SUITE_DISK` is its path, and `SWITCHYARD_SUITE_BLOCK` the bytes of a block.
///
/// # Errors
/// As [`run_initiator`].
pub fn run_ublk_suite(data: &Data, suite: PathBuf) -> Result<GuestLog> {
    let scripts = [
        include_str!("../guest/front_end.sh"),
        include_str!("../guest/ublk_suite.sh"),
    ];
    let mut scenario = Scenario {
        modules: [&INITIATOR_MODULES[..], &["ublk_drv"]].concat(),
        built_programs: vec![("suite", suite)],
        ..Scenario::new(&scripts)
    };
    scenario.add_switchyard()?;
    Ok(GuestLog::parse(&scenario.guest(data)?.run()?))
}

/// The word that ends a guest of [`run_foreign_target`], at the start of a block.
pub const FINISHED: &str = "the host has finished";

/// Offset of that block in the namespace, in bytes.
pub const FINISHED_AT: u64 = FILE_SYSTEM_MIB * MIB;

/// Boots a guest with the kernel's own target, which this machine reaches at `port` of its loopback
/// once step `kernel-target` is finished; it ends when it finds [`FINISHED`].
///
/// # Errors
/// As [`run_initiator`], and what `watch` says.
pub fn run_foreign_target(data: &Data, port: u16, watch: Watch<'_>) -> Result<GuestLog> {
    let scenario = Scenario::kernel_target(include_str!("../guest/foreign_target.sh"));
    let vm = scenario.guest(data)?.forward(port, 4420);
    Ok(GuestLog::parse(&vm.run_watched(watch)?))
}

/// The commands that a target is expected to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CommandSets {
    /// All of ours.
    All,
    /// The features of the kernel's own target: neither Compare nor Verify.
    KernelTarget,
}

/// The scenario of a guest, with its parameters.
struct Scenario<'a> {
    /// Names and ports of the targets that its kernel connects to.
    targets: &'a [(&'a str, u16)],
    /// The targets' address.
    address: &'a str,
    /// The model number that they show.
    model: &'a str,
    command_sets: CommandSets,
    modules: Vec<&'a str>,
    /// Programs beside those of every guest.
    more_programs: &'a [&'a str],
    /// Names and places of programs that this machine has built; without what debuggers need.
    built_programs: Vec<(&'a str, PathBuf)>,
    script: String,
}

impl<'a> Scenario<'a> {
    /// An initiator, with these scripts one after the other.
    fn new(scripts: &[&str]) -> Self {
        Self {
            targets: &[],
            address: HOST_ADDRESS,
            model: "",
            command_sets: CommandSets::All,
            modules: INITIATOR_MODULES.to_vec(),
            more_programs: &[],
            built_programs: Vec::new(),
            script: scripts.join("\n"),
        }
    }

    /// A guest that mounts disks, by these modules beside those of all guests.
    fn disks(script: &str, modules: &[&'a str]) -> Result<Self> {
        let exerciser = find_program(EXERCISER).context("the exerciser is installed")?;
        Ok(Self {
            modules: [&INITIATOR_MODULES[..], modules].concat(),
            built_programs: vec![(EXERCISER, exerciser)],
            ..Self::new(&[include_str!("../guest/file_load.sh"), script])
        })
    }

    /// Gives the guest the program under test.
    fn add_switchyard(&mut self) -> Result<()> {
        self.built_programs
            .push(("switchyard", switchyard_binary()?));
        Ok(())
    }

    /// The kernel's own target, and then this script.
    fn kernel_target(script: &'a str) -> Self {
        Self {
            model: "Reference",
            command_sets: CommandSets::KernelTarget,
            modules: [&INITIATOR_MODULES[..], &["nvmet_tcp", "loop"]].concat(),
            ..Self::new(&[include_str!("../guest/kernel_target.sh"), script])
        }
    }

    /// A guest that will run it.
    fn guest(&self, data: &Data) -> Result<Vm> {
        let kernel = Kernel::obtain()?;
        let mut image = Image::new()?;
        image.busybox()?;
        for program in GUEST_PROGRAMS.iter().chain(self.more_programs) {
            image.program(program)?;
        }
        for (name, path) in &self.built_programs {
            image.stripped_program(name, path)?;
        }
        image.data("fsx.toml", include_bytes!("../guest/fsx.toml"))?;
        image.modules(&kernel.modules(&self.modules)?)?;
        image.script("init", include_str!("../guest/init.sh"))?;
        image.data("nvme.sh", include_bytes!("../guest/nvme.sh"))?;
        image.data("scenario", self.script.as_bytes())?;

        let command_sets = match self.command_sets {
            CommandSets::All => "all",
            CommandSets::KernelTarget => "kernel",
        };
        let (address, model) = (self.address, self.model);
        let parameters = format!(
            "TRADDR={address}\nNQN={DEFAULT_NQN}\nMODEL='{model}'\nCOMMAND_SETS={command_sets}\n\
             HOSTNQN=nqn.2014-08.org.nvmexpress:uuid:6ad1f0fb-9d0e-4b8e-8a53-3c5d2b6b7f10\n\
             HOSTID=6ad1f0fb-9d0e-4b8e-8a53-3c5d2b6b7f10\nREFUSED_PORT={}\n\
             DEVICE_MIB={DEVICE_MIB}\nFILE_SYSTEM_MIB={FILE_SYSTEM_MIB}\nAREAS_MIB={AREAS_MIB}\n\
             KILLS={}\nSTOP_SECONDS={}\nFSX_OPERATIONS={}\n",
            unused_port()?,
            kills(),
            stop_time().as_secs(),
            fsx_operations(),
        );
        image.data("parameters", parameters.as_bytes())?;
        let mut list = String::new();
        for (name, port) in self.targets {
            writeln!(list, "{name} {port}").context("write to a string")?;
        }
        image.data("targets", list.as_bytes())?;
        add_data(&mut image, data)?;

        println!("kernel: {}", kernel.package);
        Vm::new(&kernel, &image.finish()?)
    }
}

fn add_data(image: &mut Image, data: &Data) -> Result<()> {
    image.data("pattern", &data.pattern)?;
    // Differs from the pattern in the last bit of what Compare is given.
    let mut other = data.pattern[..64 << 10].to_vec();
    if let Some(last) = other.last_mut() {
        *last ^= 1;
    }
    image.data("other", &other)?;
    let mut ranges = String::new();
    for (index, extent) in data.prepared.iter().enumerate() {
        let name = format!("range{index}");
        let length = extent.content.len() >> 10;
        writeln!(ranges, "{name} {} {length}", extent.offset_bytes / KIB)
            .context("write to a string")?;
        image.data(&format!("prepared/{name}"), &extent.content)?;
    }
    image.data("prepared/ranges", ranges.as_bytes())
}

/// Returns a loopback port without a listener: bound a moment ago and let go.
///
/// # Errors
/// When there is none.
pub fn unused_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("find an unused port")?;
    Ok(listener.local_addr().context("ask for the port")?.port())
}

/// The steps that [`run_initiator`]'s guest reports for a target of this name.
pub fn initiator_steps(target: &str) -> Vec<String> {
    let raw = [
        "connect",
        "attributes",
        "prepared",
        "raw",
        "zeroes",
        "discard",
        "disconnect-last",
    ];
    let files = [
        "administer",
        "verified",
        "make-file-system",
        "disconnect",
        "reconnect",
        "compare-file-system",
    ];
    let mut steps = vec![
        format!("{target}-discovery"),
        format!("{target}-connect-all"),
    ];
    for mode in ["plain", "header", "data", "both"] {
        steps.extend(raw.iter().map(|step| format!("{target}-{mode}-{step}")));
    }
    for mode in ["plain", "both"] {
        steps.extend(files.iter().map(|step| format!("{target}-{mode}-{step}")));
    }
    steps
}

#[cfg(test)]
mod tests;
