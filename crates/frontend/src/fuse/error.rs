//! Errors of the FUSE front end, each with its remedy.

use block::DeviceError;
use reactor::placement::PlacementError;
use reactor::uring::SetupError;
use std::io;
use std::path::PathBuf;

/// Why devices could not be attached as files, or detached.
#[derive(Debug, thiserror::Error)]
pub enum FuseError {
    /// The options contain no namespace, a duplicate, or too many.
    #[error("{0}")]
    Namespaces(String),
    /// The mount of a predecessor differs.
    #[error(
        "the mount at {0} has other namespaces or options than this process would give it; restart \
         the process instead"
    )]
    Different(PathBuf),
    /// The mount point cannot be used.
    #[error("mount point {path}: {source}; create the directory, or use another one")]
    MountPoint {
        /// The mount point.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The mount point is not a directory.
    #[error("mount point {0} is not a directory; use an empty directory")]
    NotADirectory(PathBuf),
    /// A FUSE file system is already mounted there.
    #[error(
        "{0} is already the mount point of a FUSE file system; use another directory, or unmount \
         it: fusermount3 -u {0}"
    )]
    AlreadyMounted(PathBuf),
    /// The process that served the mount point has ended, and its mount remains.
    #[error("{0} has a stale FUSE mount of a process that ended; remove it: fusermount3 -u {0}")]
    Stale(PathBuf),
    /// The kernel's interface cannot be opened.
    #[error(
        "cannot open /dev/fuse: {0}; load the kernel module (modprobe fuse), or grant access \
        to the device"
    )]
    NoFuse(io::Error),
    /// The process lacks the privilege to mount, and `fusermount3` is missing.
    #[error("cannot run fusermount3: {0}; install the package fuse3, or run as root")]
    NoHelper(io::Error),
    /// The kernel or `fusermount3` refused to mount.
    #[error("cannot mount at {path}: {reason}")]
    Mount {
        /// The mount point.
        path: PathBuf,
        /// The error message of the kernel or `fusermount3`.
        reason: String,
    },
    /// The kernel and the front end support no common protocol version.
    #[error("cannot start the FUSE session: {0}; Linux 4.20 or later is needed")]
    Session(io::Error),
    /// The thread cannot run on the core.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// The ring of the core's thread cannot be created.
    #[error(transparent)]
    Driver(#[from] SetupError),
    /// Opening a device failed.
    #[error("namespace {nsid}: {source}")]
    Device {
        /// The namespace identifier.
        nsid: u32,
        /// The device's error.
        source: DeviceError,
    },
    /// The thread cannot be started.
    #[error("cannot start a thread: {0}; raise the limit with `ulimit -u`")]
    Thread(io::Error),
    /// Files are open, or the directory is a process's working directory.
    #[error(
        "{path} is in use ({open} open files); close them (fuser -vm {path} lists the processes)"
    )]
    InUse {
        /// The mount point.
        path: PathBuf,
        /// Number of open files; 0 if only the directory itself is in use.
        open: usize,
    },
    /// Unmounting failed for another reason.
    #[error("cannot unmount {path}: {reason}; try fusermount3 -u -z {path}")]
    Unmount {
        /// The mount point.
        path: PathBuf,
        /// The error message of the kernel or `fusermount3`.
        reason: String,
    },
}
