//! `switchyard device`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Change and erase the key of an encrypted device
///
/// The device is a file or block device that a target encrypts ([devices.NAME.crypt] in its
/// configuration) and that no process serves at this time.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  switchyard device change-key disk.img --key-file old.key --new-key-file new.key
  switchyard device erase-key disk.img

Exit codes: 0 success, 2 error")]
pub struct DeviceArgs {
    #[command(subcommand)]
    pub command: DeviceCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub enum DeviceCommand {
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
