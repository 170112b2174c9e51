//! The scenarios of a guest, and its reports.
//!
//! Defines the layout of the namespace for guest scripts and tests, adds scripts and their data to
//! an [`Image`], and parses the guest's report from its console. The scripts are shell scripts in
//! `guest/`: guests have no other interpreter.
//!
//! ```text
//! 0        FILE_SYSTEM_MIB   AREAS_MIB + 16 × n                              DEVICE_MIB
//! | file system | prepared ranges | area of digest mode n: +0 pattern, +8 short   | prepared |
//! |             |                 | writes, +12 zeroes, +14 discard (MiB)         | range    |
//! ```

mod log;
mod secure;

use crate::debian::{self, Kernel};
use crate::debian13;
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
pub use secure::{Key, Proof, run_secure_initiator, run_secure_target};

/// Size of the namespace under test, in MiB.
pub const DEVICE_MIB: u64 = 256;
/// Size of the file system at its start, in MiB.
const FILE_SYSTEM_MIB: u64 = 96;
/// Start of the areas of the digest modes, in MiB.
const AREAS_MIB: u64 = 128;
/// Size of an area, in MiB.
const AREA_MIB: u64 = 16;
/// Number of digest modes, and so of areas: none, header, data, both.
const AREAS: u64 = 4;
/// Bytes of the pattern that the guest writes.
const PATTERN_BYTES: usize = 4 << 20;
/// Bytes of pattern around a zeroed or deallocated range.
const SURROUND_BYTES: usize = 256 << 10;

/// Name of the guest as a host.
pub const HOST_NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:6ad1f0fb-9d0e-4b8e-8a53-3c5d2b6b7f10";

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Programs that a guest gets from this machine.
const GUEST_PROGRAMS: [&str; 7] = [
    "mkfs.ext4",
    "e2fsck",
    "mkfs.xfs",
    "xfs_repair",
    "blkdiscard",
    "nvme",
    "fio",
];

/// Modules for an NVMe/TCP initiator with a network and file systems.
const INITIATOR_MODULES: [&str; 5] = ["virtio_net", "crc32c_generic", "nvme_tcp", "ext4", "xfs"];

/// Returns all programs required on this machine to boot such a guest.
pub fn programs() -> Vec<&'static str> {
    let mut programs = vec!["busybox", "ldd"];
    programs.extend(debian::PROGRAMS);
    programs.extend(vm::PROGRAMS);
    programs.extend(GUEST_PROGRAMS);
    programs
}

/// A range of the namespace with known content: before the guest starts, or required after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extent {
    /// First byte.
    pub offset_bytes: u64,
    /// The content.
    pub content: Vec<u8>,
}

/// The data of one run, derived from a seed.
#[derive(Debug)]
pub struct Data {
    pattern: Vec<u8>,
    prepared: Vec<Extent>,
}

impl Data {
    /// Creates the data of a seed.
    pub fn from_seed(seed: u64) -> Self {
        let mut random = Prng::from_seed(seed);
        let mut bytes = |length: usize| {
            let mut content = vec![0; length];
            random.fill(&mut content);
            content
        };
        let pattern = bytes(PATTERN_BYTES);
        // A whole range, one at an odd offset, and the last blocks.
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

    /// Returns the required content of the namespace before the guest starts; the rest is
    /// arbitrary.
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

    /// Returns the required content of the namespace after a guest that reported success.
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
            // Deallocated blocks may have any content; the blocks around them may not.
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
    /// Name in the report: lower-case letters.
    pub name: &'static str,
    /// The target's address: a port of this machine's loopback.
    pub address: SocketAddr,
}

/// Boots a guest that exercises each target with the kernel's initiator, and returns its report.
/// `model` is the required model number of the controllers.
///
/// # Errors
/// If the guest cannot be built or started, or does not power itself off.
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

/// Boots a guest that exercises the kernel's own target, in the same guest, in the same way, to
/// check the script: a failure here is a bug of the script.
///
/// # Errors
/// Like [`run_initiator`].
pub fn run_reference(data: &Data) -> Result<GuestLog> {
    let scenario = Scenario {
        targets: &[("reference", 4420)],
        address: "127.0.0.1",
        ..Scenario::kernel_target(include_str!("../guest/initiator.sh"))
    };
    Ok(GuestLog::parse(&scenario.guest(data)?.run()?))
}

/// Boots a guest with a host under load while its namespaces and target are removed and added;
/// `watch` does so step by step. The first namespace has [`DEVICE_MIB`].
///
/// # Errors
/// Like [`run_initiator`], and errors of `watch`.
pub fn run_changes(data: &Data, target: SocketAddr, watch: Watch<'_>) -> Result<GuestLog> {
    let scenario = Scenario {
        targets: &[("changes", target.port())],
        ..Scenario::new(&[include_str!("../guest/changes.sh")])
    };
    Ok(GuestLog::parse(&scenario.guest(data)?.run_watched(watch)?))
}

/// Boots a guest that reaches one disk by these targets; `watch` moves it from one to the other.
///
/// # Errors
/// Like [`run_initiator`], and errors of `watch`.
pub fn run_multipath(data: &Data, targets: &[Target], watch: Watch<'_>) -> Result<GuestLog> {
    let targets: Vec<_> = targets
        .iter()
        .map(|it| (it.name, it.address.port()))
        .collect();
    let scenario = Scenario {
        targets: &targets,
        ..Scenario::new(&[include_str!("../guest/multipath.sh")])
    };
    Ok(GuestLog::parse(&scenario.guest(data)?.run_watched(watch)?))
}

/// Boots a guest with a target and with hosts, the kernel's and ours, while its clock jumps.
///
/// # Errors
/// Like [`run_initiator`].
pub fn run_clock(data: &Data) -> Result<GuestLog> {
    let mut scenario = Scenario {
        address: "127.0.0.1",
        ..Scenario::new(&[include_str!("../guest/clock.sh")])
    };
    scenario.add_switchyard()?;
    Ok(GuestLog::parse(&scenario.guest(data)?.run()?))
}

/// Boots a guest with a target and with hosts, ours and the kernel's, at the two ends of a network;
/// `settings` are the shell variables of `guest/network.sh`.
///
/// # Errors
/// Like [`run_initiator`].
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

/// Additional programs of such a guest.
pub const NETWORK_PROGRAMS: [&str; 3] = ["ip", "tc", "ss"];

/// Returns all programs required on this machine to boot a guest with disks.
pub fn disk_programs() -> Vec<&'static str> {
    [&programs()[..], &["nbd-client", EXERCISER, "strip", "cc"]].concat()
}

/// The program that tests the file systems of disks.
const EXERCISER: &str = "fsx";

/// Boots a guest with a disk over NBD through QEMU's client, at this URI, and a disk through the
/// kernel's client, at this port; `watch` is called for each step.
///
/// # Errors
/// Like [`run_initiator`], and errors of `watch`.
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

/// Boots a guest with the disks of the vhost-user back ends at these two sockets; `watch` is called
/// for each step.
///
/// # Errors
/// Like [`run_initiator`], and errors of `watch`.
pub fn run_vhost_disks(data: &Data, sockets: &[&str], watch: Watch<'_>) -> Result<GuestLog> {
    let scenario = Scenario::disks(include_str!("../guest/vhost_disks.sh"), &["virtio_blk"])?;
    let vm = scenario.guest(data)?.vhost_disks(sockets);
    Ok(GuestLog::parse(&vm.run_watched(watch)?))
}

/// Boots a guest that creates block devices with the program under test, two of them over the
/// targets at these ports; `watch` is called for each step.
///
/// # Errors
/// Like [`run_initiator`], and errors of `watch`.
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

/// Boots a guest that creates block devices with the program under test, and runs all tests of
/// `suite` on each: `SWITCHYARD_SUITE_DISK` is its path, and `SWITCHYARD_SUITE_BLOCK` its bytes per
/// block.
///
/// # Errors
/// Like [`run_initiator`].
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

/// The text at the start of a block that ends a guest of [`run_foreign_target`].
pub const FINISHED: &str = "the host has finished";

/// Offset of that block in the namespace, in bytes.
pub const FINISHED_AT: u64 = FILE_SYSTEM_MIB * MIB;

/// Boots a guest with the kernel's own target, which this machine reaches at `port` of its loopback
/// after step `kernel-target`; the guest ends when it reads [`FINISHED`].
///
/// # Errors
/// Like [`run_initiator`], and errors of `watch`.
pub fn run_foreign_target(data: &Data, port: u16, watch: Watch<'_>) -> Result<GuestLog> {
    let scenario = Scenario::kernel_target(include_str!("../guest/foreign_target.sh"));
    let vm = scenario.guest(data)?.forward(port, 4420);
    Ok(GuestLog::parse(&vm.run_watched(watch)?))
}

/// The commands that a target must support.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CommandSets {
    /// All commands of our target.
    All,
    /// The commands of the kernel's own target: without Compare and Verify.
    KernelTarget,
}

/// The scenario of a guest with its parameters.
struct Scenario<'a> {
    /// Names and ports of the targets to connect to.
    targets: &'a [(&'a str, u16)],
    /// The targets' address.
    address: &'a str,
    /// Model number of the targets.
    model: &'a str,
    command_sets: CommandSets,
    modules: Vec<&'a str>,
    /// Programs in addition to those of every guest.
    more_programs: &'a [&'a str],
    /// Names and paths of programs built on this machine, stripped of debug information.
    built_programs: Vec<(&'a str, PathBuf)>,
    /// Keys, for guests with the programs of Debian 13.
    keys: &'a [Key],
    script: String,
}

impl<'a> Scenario<'a> {
    /// An initiator that runs these scripts in order.
    fn new(scripts: &[&str]) -> Self {
        Self {
            targets: &[],
            address: HOST_ADDRESS,
            model: "",
            command_sets: CommandSets::All,
            modules: INITIATOR_MODULES.to_vec(),
            more_programs: &[],
            built_programs: Vec::new(),
            keys: &[],
            script: scripts.join("\n"),
        }
    }

    /// A guest that mounts disks, with these modules in addition to those of all guests.
    fn disks(script: &str, modules: &[&'a str]) -> Result<Self> {
        let exerciser = find_program(EXERCISER).context("the exerciser is installed")?;
        Ok(Self {
            modules: [&INITIATOR_MODULES[..], modules].concat(),
            built_programs: vec![(EXERCISER, exerciser)],
            ..Self::new(&[include_str!("../guest/file_load.sh"), script])
        })
    }

    /// Adds the program under test to the guest.
    fn add_switchyard(&mut self) -> Result<()> {
        self.built_programs
            .push(("switchyard", switchyard_binary()?));
        Ok(())
    }

    /// The kernel's own target, followed by this script.
    fn kernel_target(script: &'a str) -> Self {
        Self {
            model: "Reference",
            command_sets: CommandSets::KernelTarget,
            modules: [&INITIATOR_MODULES[..], &["nvmet_tcp", "loop"]].concat(),
            ..Self::new(&[include_str!("../guest/kernel_target.sh"), script])
        }
    }

    /// Creates a guest that runs it.
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
        if !self.keys.is_empty() {
            image.foreign_programs(debian13::FOLDER, &debian13::obtain()?, &debian13::PROGRAMS)?;
        }
        for key in self.keys {
            image.data(&format!("keys/{}", key.name), key.text.as_bytes())?;
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
             HOSTNQN={HOST_NQN}\n\
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
    // Differs from the pattern in the last bit of Compare's data.
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

/// Returns a loopback port without a listener: bound and released before.
///
/// # Errors
/// If there is none.
pub fn unused_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("find an unused port")?;
    Ok(listener.local_addr().context("ask for the port")?.port())
}

/// Returns the steps that [`run_initiator`]'s guest reports for a target of this name.
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
