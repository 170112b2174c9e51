//! A guest in QEMU's software emulation: needs no privilege and no virtualisation hardware.
//!
//! Owns the QEMU process. The guest's console is its only output. Its user network is its only
//! connection, and maps this machine's loopback to [`HOST_ADDRESS`].

use crate::debian::Kernel;
use crate::limits::{POLL_INTERVAL, guest_deadline, stop_time};
use crate::process::Process;
use crate::{Readiness, cache_directory, require_programs, target_directory};
use anyhow::{Context as _, Result, bail};
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::Instant;

/// Programs required on this machine to run a guest.
pub const PROGRAMS: [&str; 1] = ["qemu-system-x86_64"];

/// This machine's loopback in the guest: the gateway of QEMU's user network.
pub const HOST_ADDRESS: &str = "10.0.2.2";

/// Seconds for which requests of a disk over NBD wait for a connection.
const RECONNECT_SECONDS: u32 = 120;

/// Prefix of the lines that a guest's programs report.
pub(crate) const SAYS: &str = "SWITCHYARD: ";

/// The step after which the machine itself is stopped, for [`stop_time`].
const MACHINE_STOPS: &str = "machine-stops";

/// Maximum boots of a guest.
const BOOTS_MAX: u32 = 4;

/// A virtual machine before its start.
#[derive(Debug)]
pub struct Vm {
    kernel: PathBuf,
    initramfs: PathBuf,
    processors: u32,
    memory_mib: u32,
    /// Forwarding from a loopback port of this machine to a port of the guest.
    forward: Option<(u16, u16)>,
    /// URI of its disk image.
    disk: Option<String>,
    /// Sockets of vhost-user back ends.
    vhost_disks: Vec<String>,
}

/// Called for each step that a guest has completed, while the guest continues.
pub type Watch<'a> = &'a mut dyn FnMut(&str) -> Result<()>;

impl Vm {
    /// Creates a machine of two processors that boots this kernel and initial file system.
    ///
    /// # Errors
    /// If the file system cannot be written to a file for QEMU.
    pub fn new(kernel: &Kernel, initramfs: &[u8]) -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = cache_directory("run")?.join(format!("{}-{count}.cpio", std::process::id()));
        std::fs::write(&path, initramfs).with_context(|| format!("write {}", path.display()))?;
        Ok(Self {
            kernel: kernel.image.clone(),
            initramfs: path,
            processors: 2,
            memory_mib: 768,
            forward: None,
            disk: None,
            vhost_disks: Vec::new(),
        })
    }

    /// Forwards a loopback port of this machine to a port of the guest.
    pub fn forward(mut self, loopback_port: u16, guest_port: u16) -> Self {
        self.forward = Some((loopback_port, guest_port));
        self
    }

    /// Adds the disk `/dev/vda`, with blocks of 4 KiB and the image at this NBD URI. QEMU
    /// reconnects for a limited time after a lost connection, and requests wait meanwhile.
    pub fn disk(mut self, uri: &str) -> Self {
        self.disk = Some(uri.to_owned());
        self
    }

    /// Adds the disks of the vhost-user back ends at these sockets, which may be restarted:
    /// `/dev/vda` and following.
    pub fn vhost_disks(mut self, sockets: &[&str]) -> Self {
        self.vhost_disks = sockets.iter().map(ToString::to_string).collect();
        self
    }

    /// Boots, waits until the guest has powered itself off, and returns its console output. A guest
    /// whose kernel died before it ran any program is booted again, up to a limit.
    ///
    /// # Errors
    /// If QEMU fails, or the guest still runs at its deadline; with the console output.
    pub fn run(&self) -> Result<String> {
        self.run_watched(&mut |_| Ok(()))
    }

    /// Like [`run`](Self::run); `watch` is called for each step that the guest has completed.
    ///
    /// # Errors
    /// Like [`Vm::run`], and errors of `watch`.
    pub fn run_watched(&self, watch: Watch<'_>) -> Result<String> {
        for _ in 1..BOOTS_MAX {
            let console = self.boot(watch)?;
            if !died_booting(&console) {
                return Ok(console);
            }
        }
        self.boot(watch)
    }

    fn boot(&self, watch: Watch<'_>) -> Result<String> {
        let mut command = Command::new("qemu-system-x86_64");
        // MTTCG: one thread per processor, so that the guest's two queues run in parallel.
        command.args(["-accel", "tcg,thread=multi", "-cpu", "max"]);
        command.args(["-nographic", "-no-reboot"]);
        command.args(["-smp", &self.processors.to_string()]);
        command.args(["-m", &self.memory_mib.to_string()]);
        command.args(["-monitor", "none", "-serial", "stdio", "-nodefaults"]);
        let mut network = "user,model=virtio-net-pci".to_owned();
        if let Some((ours, theirs)) = self.forward {
            network += &format!(",hostfwd=tcp:127.0.0.1:{ours}-:{theirs}");
        }
        command.args(["-nic", &network]);
        command
            .arg("-kernel")
            .arg(&self.kernel)
            .arg("-initrd")
            .arg(&self.initramfs);
        command.args(["-append", "console=ttyS0 quiet panic=-1 rdinit=/init"]);
        if let Some(uri) = &self.disk {
            let drive = format!(
                "file={uri},file.reconnect-delay={RECONNECT_SECONDS},format=raw,if=none,id=disk,\
                 cache=none,discard=unmap"
            );
            let blocks = "logical_block_size=4096,physical_block_size=4096";
            let device = format!("virtio-blk-pci,drive=disk,{blocks}");
            command.args(["-drive", &drive, "-device", &device]);
        }
        if !self.vhost_disks.is_empty() {
            let memory = format!(
                "memory-backend-memfd,id=ram,size={}M,share=on",
                self.memory_mib
            );
            command.args(["-object", &memory, "-machine", "memory-backend=ram"]);
        }
        for (number, socket) in self.vhost_disks.iter().enumerate() {
            let socket = format!("socket,id=disk{number},path={socket},reconnect=1");
            let device = format!("vhost-user-blk-pci,chardev=disk{number},num-queues=2");
            command.args(["-chardev", &socket, "-device", &device]);
        }
        command.current_dir(target_directory()?);
        let mut process = Process::start(&mut command)?;
        let status = follow(&mut process, watch)?;
        if !status.success() {
            bail!(
                "QEMU ended with {status}: {}\n{}",
                process.stderr(),
                process.stdout()
            );
        }
        Ok(process.stdout())
    }
}

/// Waits for the end of a guest, and calls `watch` for its steps.
fn follow(process: &mut Process, watch: Watch<'_>) -> Result<ExitStatus> {
    let began = Instant::now();
    let deadline = guest_deadline();
    let mut told = 0;
    loop {
        let ended = process.has_ended()?;
        let console = process.stdout();
        let steps: Vec<&str> = console.lines().filter_map(finished_step).collect();
        for step in &steps[told..] {
            println!("{:5} s: {step}", began.elapsed().as_secs());
            watch(step).with_context(|| format!("after step {step}\n{console}"))?;
            if *step == MACHINE_STOPS {
                process.stand_still(stop_time())?;
            }
        }
        told = steps.len();
        if let Some(status) = ended {
            return Ok(status);
        }
        if began.elapsed() > deadline {
            // At the end, where it is read of a long output.
            let last = steps.last().unwrap_or(&"none");
            bail!("the guest did not end within {deadline:?}\n{console}\nlast step: {last}");
        }
        sleep(POLL_INTERVAL);
    }
}

/// Returns the step that a line of the console reports as completed.
fn finished_step(line: &str) -> Option<&str> {
    let (_, said) = line.split_once(SAYS)?;
    said.trim_end().strip_prefix("step ")?.strip_suffix(" ok")
}

/// Runs a test if these programs are installed, and repeats it, up to a limit, if the emulation
/// crashed its guest's kernel.
///
/// Emulation with a thread per processor (before QEMU 8.1) can let one processor execute the
/// breakpoint that another has meanwhile patched in and out of the kernel's text, which the kernel
/// no longer expects: `Oops: int3`. Kernels report this error for no other reason, so every other
/// error fails the test immediately.
///
/// # Errors
/// Errors of the test, and those of [`require_programs`].
pub fn past_emulation_faults(programs: &[&str], test: impl Fn() -> Result<()>) -> Result<()> {
    if require_programs(programs)? == Readiness::Skip {
        return Ok(());
    }
    for _ in 1..BOOTS_MAX {
        match test() {
            Err(error) if format!("{error:#}").contains("Oops: int3") => {
                println!("the emulation let a guest's kernel die; once more:\n{error:#}");
            }
            other => return other,
        }
    }
    test()
}

/// Returns true if a guest's kernel died before its first program reported anything, for the reason
/// given at [`past_emulation_faults`]: kernels patch most while they boot.
fn died_booting(console: &str) -> bool {
    console.contains("Kernel panic - not syncing") && !console.contains(SAYS)
}

impl Drop for Vm {
    fn drop(&mut self) {
        // A remaining file is overwritten by a later run and removed with the target directory.
        let _ = std::fs::remove_file(&self.initramfs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_dies_before_it_says_anything_died_booting() {
        let died = "[ 2.0] Oops: int3: 0000 [#1]\n[ 2.1] Kernel panic - not syncing: Fatal\n";
        assert!(died_booting(died));
        assert!(!died_booting(&format!("{SAYS}step modules ok\n{died}")));
        assert!(!died_booting("SeaBIOS\n"));
    }
}
