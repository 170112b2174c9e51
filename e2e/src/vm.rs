//! A guest in QEMU's software emulation: needs no privilege and no virtualisation hardware.
//!
//! Owns the QEMU process. The guest's console is the only way out; its user network is the only
//! way in, and gives it this machine's loopback as [`HOST_ADDRESS`].

use crate::debian::Kernel;
use crate::limits::GUEST_DEADLINE;
use crate::process::Process;
use crate::{cache_directory, target_directory};
use anyhow::{Context as _, Result, bail};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// Programs that a guest needs on this machine.
pub const PROGRAMS: [&str; 1] = ["qemu-system-x86_64"];

/// This machine's loopback as the guest sees it: the gateway of QEMU's user network.
pub const HOST_ADDRESS: &str = "10.0.2.2";

/// How what a guest's programs say begins.
pub(crate) const SAYS: &str = "SWITCHYARD: ";

/// Boots of a guest at most.
const BOOTS_MAX: u32 = 4;

/// A machine that has not been started yet.
#[derive(Debug)]
pub struct Vm {
    kernel: PathBuf,
    initramfs: PathBuf,
    processors: u32,
    memory_mib: u32,
}

impl Vm {
    /// A machine of two processors that boots this kernel and initial file system.
    ///
    /// # Errors
    /// When the file system cannot be written where QEMU can read it.
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
        })
    }

    /// Boots, waits until the guest has powered itself off, and returns what it wrote to its
    /// console. One whose kernel died before it did anything is booted again, some times.
    ///
    /// # Errors
    /// When QEMU fails, or the guest is still running at its deadline; with the console.
    pub fn run(&self) -> Result<String> {
        for _ in 1..BOOTS_MAX {
            let console = self.boot()?;
            if !died_booting(&console) {
                return Ok(console);
            }
        }
        self.boot()
    }

    fn boot(&self) -> Result<String> {
        let mut command = Command::new("qemu-system-x86_64");
        // MTTCG: a thread per processor, so that the guest's two queues really run side by side.
        command.args([
            "-accel",
            "tcg,thread=multi",
            "-cpu",
            "max",
            "-nographic",
            "-no-reboot",
        ]);
        command.args([
            "-smp",
            &self.processors.to_string(),
            "-m",
            &self.memory_mib.to_string(),
        ]);
        command.args(["-monitor", "none", "-serial", "stdio", "-nodefaults"]);
        command.args(["-nic", "user,model=virtio-net-pci"]);
        command
            .arg("-kernel")
            .arg(&self.kernel)
            .arg("-initrd")
            .arg(&self.initramfs);
        command.args(["-append", "console=ttyS0 quiet panic=-1 rdinit=/init"]);
        command.current_dir(target_directory()?);
        let mut process = Process::start(&mut command)?;
        let status = process.wait(GUEST_DEADLINE)?;
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

/// Whether a guest's kernel died before its first program said anything.
///
/// Emulation with a thread for each processor (before QEMU 8.1) can let one execute the breakpoint
/// that another has patched in and out of the kernel's text meanwhile, which nobody expects any
/// more: `Oops: int3`. Kernels patch most while they boot.
fn died_booting(console: &str) -> bool {
    console.contains("Kernel panic - not syncing") && !console.contains(SAYS)
}

impl Drop for Vm {
    fn drop(&mut self) {
        // What stays behind is rewritten by a later run and removed with the target directory.
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
