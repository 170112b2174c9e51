//! Errors of the ublk front end, each with its remedy.

use crate::FrontendError;
use std::io;

/// Why a device could not be attached as a block device, or detached.
#[derive(Debug, thiserror::Error)]
pub enum UblkError {
    /// The kernel's ublk driver is not loaded.
    #[error(
        "/dev/ublk-control does not exist; load the kernel module (modprobe ublk_drv; needs Linux \
         6.5 or later, and on some systems a package such as linux-modules-extra)"
    )]
    NoDriver,
    /// The process lacks the privilege to create block devices.
    #[error("creating a block device needs CAP_SYS_ADMIN; run as root, or use fuse")]
    NotPermitted,
    /// Opening the control device failed for another reason.
    #[error("cannot open /dev/ublk-control: {0}")]
    Control(io::Error),
    /// The ring for control commands cannot be created.
    #[error("io_uring: {0}; check `sysctl kernel.io_uring_disabled` (0 allows it)")]
    Ring(io::Error),
    /// The kernel's driver lacks a required feature.
    #[error(
        "the ublk_drv of this kernel is too old (no UBLK_F_USER_COPY); Linux 6.5 or later is \
        needed"
    )]
    TooOld,
    /// Another process serves the device.
    #[error(
        "/dev/ublkb{id} is served by process {process}; use another --id, or stop that process"
    )]
    Taken {
        /// Number of the device.
        id: u32,
        /// Number of the process.
        process: i32,
    },
    /// The device left by a killed server does not match.
    #[error("cannot recover /dev/ublkb{id}, which another process left: {reason}")]
    Different {
        /// Number of the device.
        id: u32,
        /// The difference, and the remedy.
        reason: String,
    },
    /// A control command failed.
    #[error("{command} of ublk device {id} failed: {source}")]
    Command {
        /// Name of the command.
        command: &'static str,
        /// Number of the device.
        id: u32,
        /// The kernel's error.
        source: io::Error,
    },
    /// The character device cannot be used.
    #[error("{path}: {source}")]
    Device {
        /// Its path.
        path: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The block device is open.
    #[error("{path} is in use by {user}; unmount or close it")]
    InUse {
        /// Path of the block device.
        path: String,
        /// The user, if it can be identified.
        user: String,
    },
    /// The process may not inspect the open files of other processes.
    #[error(
        "{path} may be in use: without CAP_SYS_PTRACE its users are unknown; close it in all \
         processes, then detach it with --force"
    )]
    MayBeInUse {
        /// Path of the block device.
        path: String,
    },
    /// An error common to all front ends.
    #[error(transparent)]
    Frontend(#[from] FrontendError),
}

impl UblkError {
    pub(super) fn command(command: super::abi::Control, id: u32) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Command {
            command: command.name(),
            id,
            source,
        }
    }
}
