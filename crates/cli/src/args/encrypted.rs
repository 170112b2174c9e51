//! `switchyard device`.

use super::device::LocalDevice;
use super::{ApiArgs, names};
use clap::{Args, Subcommand};
use clap_complete::ArgValueCandidates;
use std::path::PathBuf;

/// List, add and remove the devices of a running target; change and erase the key of an encrypted one
///
/// A device does not change while it is in use: add the changed one under another name. Changes take
/// effect at once. They survive a restart if the target runs with --state FILE. change-key and
/// erase-key work on a file or block device that a target encrypts ([devices.NAME.crypt] in its
/// configuration) and that no process serves at this time.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  switchyard device list
  switchyard device add fast --ram 1G --set shared=true
  switchyard device add disk --file /dev/nvme1n1 --set block_size=4096
  switchyard device remove disk
  switchyard device change-key disk.img --key-file old.key --new-key-file new.key
  switchyard device erase-key disk.img

Exit codes: 0 success, 2 error; after an error response of the target nothing has changed")]
#[command(mut_arg("api", |api| api.global(true)), mut_arg("api_ca", |ca| ca.global(true)))]
pub struct DeviceArgs {
    #[command(subcommand)]
    pub command: DeviceCommand,
    #[command(flatten)]
    pub api: ApiArgs,
}

#[derive(Clone, Debug, Subcommand)]
pub enum DeviceCommand {
    /// List the devices and the namespaces that use them
    List,
    /// Show the settings of a device
    Show {
        /// Name of the device
        #[arg(add = ArgValueCandidates::new(names::devices))]
        name: String,
    },
    /// Add a device; no host sees it before a namespace uses it
    Add {
        /// Name of the device
        name: String,
        #[command(flatten)]
        device: Box<LocalDevice>,
        /// Key of [devices.NAME] in the configuration, with its value (repeatable)
        #[arg(long, value_name = "KEY=VALUE", value_parser = setting)]
        set: Vec<(String, String)>,
        /// Add a disk although it has partitions or data
        #[arg(long)]
        force: bool,
    },
    /// Remove a device that no namespace uses; content of RAM is lost
    Remove {
        /// Name of the device
        #[arg(add = ArgValueCandidates::new(names::devices))]
        name: String,
    },
    /// Replace the key that opens a device; its content stays as it is
    ChangeKey {
        /// Path of the file or block device
        path: PathBuf,
        /// File with the current key
        #[arg(long, value_name = "FILE")]
        key_file: PathBuf,
        /// File with the new key: 32 bytes in base64, as openssl rand -base64 32 prints
        #[arg(long, value_name = "FILE")]
        new_key_file: PathBuf,
    },
    /// Make the content of a device unreadable forever, with any key
    ///
    /// Overwrites the encrypted data key in the device's header, flushes it and reads it back. Flash
    /// may keep the old header in spare blocks: destroy the key file as well. Copies and backups of
    /// the device stay readable with the key.
    EraseKey {
        /// Path of the file or block device
        path: PathBuf,
    },
}

fn setting(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once('=').filter(|(key, _)| !key.is_empty());
    let (key, value) = parts.ok_or("write KEY=VALUE, such as shared=true")?;
    Ok((key.to_owned(), value.to_owned()))
}
