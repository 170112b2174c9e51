//! `switchyard share` and `switchyard unshare`.

use super::{ApiArgs, names};
use clap::{Args, ValueHint};
use clap_complete::ArgValueCandidates;
use config::schema::Size;
use std::path::PathBuf;

/// Share a file, a block device or RAM of a running target with hosts
///
/// Adds the device and a subsystem nqn.2026-11.io.switchyard:NAME with it as namespace 1. The target
/// refuses a disk that is in use. Unless forced, it also refuses one with partitions, or with a file
/// system, RAID, LVM, encryption or swap signature. Files must be in its device_folders.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  switchyard share /dev/nvme1n1 --to nqn.2014-08.org.nvmexpress:uuid:1b4e28ba-2fa1-11d2-883f-0016d3cca427
  switchyard share /srv/switchyard/disk.img --size 10G --to any
  switchyard share 1G --to any

Exit codes: 0 success, 2 error; after an error response of the target nothing has changed")]
pub struct ShareArgs {
    /// Path of a file or block device on the target's machine, or the size of a RAM device
    #[arg(value_name = "PATH|SIZE", value_parser = shared, value_hint = ValueHint::FilePath)]
    pub device: SharedDevice,
    /// NQN of a host that may connect (repeatable), or any
    #[arg(long, value_name = "HOSTNQN|any", required = true, add = ArgValueCandidates::new(names::hosts))]
    pub to: Vec<String>,
    /// Name of the device and end of the NQN [default: the file's name, or ram1, ram2, ...]
    #[arg(long)]
    pub name: Option<String>,
    /// Share this part from the beginning; a file that does not exist is created with this size
    #[arg(long)]
    pub size: Option<Size>,
    /// Share a disk although it has partitions or data
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub api: ApiArgs,
}

/// Stop sharing a device of a running target
///
/// Removes the subsystem and the devices that only it uses. Its hosts are disconnected. Content of
/// RAM devices is lost; files and disks keep theirs.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  switchyard unshare nvme1n1
  switchyard unshare nqn.2026-11.io.switchyard:nvme1n1
  switchyard unshare /dev/nvme1n1

Exit codes: 0 success, 2 error")]
pub struct UnshareArgs {
    /// Name or path of the device, or NQN of the subsystem
    #[arg(add = ArgValueCandidates::new(names::devices))]
    pub name: String,
    #[command(flatten)]
    pub api: ApiArgs,
}

/// A device to share.
#[derive(Clone, Debug)]
pub enum SharedDevice {
    /// A file or block device.
    Path(PathBuf),
    /// RAM.
    Ram(Size),
}

fn shared(text: &str) -> Result<SharedDevice, String> {
    match text.parse() {
        Ok(size) => Ok(SharedDevice::Ram(size)),
        Err(_) if text.is_empty() => Err("write a path, or a size such as 1G".to_owned()),
        Err(_) => Ok(SharedDevice::Path(text.into())),
    }
}
