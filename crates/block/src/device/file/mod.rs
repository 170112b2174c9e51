//! A regular file or a block device as a device.
//!
//! The file is locked against use by a second server. Each core has its own open file description,
//! because the kernel reports a failed writeback once per description: with a shared one, a core
//! could report success for data that is lost. All I/O goes through the core's driver.
//!
//! # Direct and buffered
//! `O_DIRECT` bypasses the page cache if the file system and device support it for the block size.
//! Otherwise I/O goes through the page cache, which is as safe (Flush and FUA mean the same) but
//! needs a copy; [`FileDevice::mode`] returns the mode and its reason. On a block device with
//! larger blocks than the namespace, a crash may then tear blocks adjacent to one that is being
//! written.
//!
//! # After a failed flush
//! After the kernel reports failed writeback once, its next `fdatasync` succeeds although the data
//! is lost. So after a failure every Flush and FUA write fails on all cores, until the device is
//! opened again.

mod channel;
mod errno;
mod open;
mod sync_queue;
#[cfg(test)]
mod tests;

use super::{
    Capabilities, Channel, Device, DeviceError, Geometry, check_block_bytes, check_within,
};
use crate::LockedFile;
use crate::limits::TRANSFER_MAX_BYTES;
use channel::FileChannel;
use open::Opened;
pub use open::open_beneath;
use reactor::Driver;
use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The file to open, and how to open it.
#[derive(Clone, Debug)]
pub struct FileOptions {
    /// A regular file or a block device.
    pub path: PathBuf,
    /// Size of a logical block in bytes: 512 or 4096.
    pub block_bytes: u32,
    /// Bytes of the file to use, and its size if it is created; a multiple of the block size.
    /// `None`: all whole blocks of the file.
    pub size: Option<u64>,
    /// Creates a missing regular file, and extends one that is shorter than `size`; the new part is
    /// sparse.
    pub create: bool,
    /// Opens it read-only.
    pub read_only: bool,
    /// Bypasses the page cache if possible.
    pub direct: bool,
}

/// How a file is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoMode {
    /// Bypassing the page cache.
    Direct {
        /// Alignment of offsets, lengths and memory, in bytes; at most a block.
        align_bytes: u32,
    },
    /// Through the page cache.
    Buffered(BufferedReason),
}

/// Why a file is accessed through the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BufferedReason {
    /// Requested by the options.
    Asked,
    /// The file system does not support direct I/O for this file.
    Unsupported,
    /// Direct I/O requires larger blocks than the namespace has.
    Alignment {
        /// Alignment that direct I/O requires, in bytes.
        align_bytes: u32,
    },
}

impl fmt::Display for IoMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Direct { align_bytes } => {
                write!(f, "direct I/O in multiples of {align_bytes} bytes")
            }
            Self::Buffered(BufferedReason::Asked) => f.write_str("through the page cache"),
            Self::Buffered(BufferedReason::Unsupported) => {
                f.write_str("through the page cache: the file system does not support direct I/O")
            }
            Self::Buffered(BufferedReason::Alignment { align_bytes }) => write!(
                f,
                "through the page cache: direct I/O needs a block size of {align_bytes} bytes"
            ),
        }
    }
}

/// State shared by the channels of all cores.
#[derive(Debug)]
struct FileState {
    blocks: AtomicU64,
    /// True once data was lost on its way to stable storage: no Flush may succeed any more.
    flush_failed: AtomicBool,
}

/// A file as a device.
#[derive(Debug)]
pub struct FileDevice {
    options: FileOptions,
    /// Not used for I/O if a core can have its own description.
    file: LockedFile,
    mode: IoMode,
    capabilities: Capabilities,
    regular: bool,
    shared: Arc<FileState>,
}

impl FileDevice {
    /// Opens and locks a file.
    ///
    /// # Errors
    /// [`DeviceError::Io`] if a system call fails, for example because another server has locked
    /// the file or because a block device is mounted; [`DeviceError::Invalid`] for a wrong kind or
    /// size.
    pub fn open(options: FileOptions) -> Result<Self, DeviceError> {
        Self::open_at(options, None, None)
    }

    /// The same for a file that another process [hands over](Device::hand_over), with its lock;
    /// the path is only shown.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn taken_over(file: File, options: FileOptions) -> Result<Self, DeviceError> {
        Self::open_at(options, None, Some(file))
    }

    /// The same for a path below `folder`. No symbolic link may lead out of the folder, even if the
    /// folder is changed concurrently.
    ///
    /// # Errors
    /// As [`open`](Self::open), and [`DeviceError::Io`] for a path that leads out of the folder.
    pub fn open_beneath(folder: &Path, options: FileOptions) -> Result<Self, DeviceError> {
        Self::open_at(options, Some(folder), None)
    }

    fn open_at(
        options: FileOptions,
        beneath: Option<&Path>,
        taken_over: Option<File>,
    ) -> Result<Self, DeviceError> {
        check_block_bytes(options.block_bytes)?;
        let Opened {
            file,
            mode,
            regular,
            bytes,
            thin,
            preferred_bytes,
        } = open::open(&options, beneath, taken_over)?;
        let capabilities = Capabilities {
            volatile_cache: !options.read_only,
            read_only: options.read_only,
            thin,
            max_transfer_bytes: TRANSFER_MAX_BYTES,
            preferred_bytes,
            extents_max: 0,
        };
        let shared = FileState {
            blocks: AtomicU64::new(bytes / u64::from(options.block_bytes)),
            flush_failed: AtomicBool::new(false),
        };
        Ok(Self {
            options,
            file,
            mode,
            capabilities,
            regular,
            shared: Arc::new(shared),
        })
    }

    /// Returns the I/O mode: direct, or buffered with the reason.
    #[must_use]
    pub fn mode(&self) -> IoMode {
        self.mode
    }

    /// Returns an identity of the file, independent of its path and content: constant for the same
    /// file, and different for a file that replaced it. A regular file is identified by its inode
    /// and its time of birth, or by its file system's device number if that records no time of
    /// birth; a block device by its device number, which may change with a restart of the machine.
    ///
    /// # Errors
    /// [`DeviceError::Io`] if a system call fails.
    pub fn identity(&self) -> Result<String, DeviceError> {
        open::identity(&self.file, self.regular)
            .map_err(|error| self.io_error("identify", error, "check the disk"))
    }

    fn io_error(&self, what: &str, source: io::Error, remedy: &'static str) -> DeviceError {
        let what = format!("cannot {what} {}", self.options.path.display());
        DeviceError::Io {
            what,
            source,
            remedy,
        }
    }
}

impl Device for FileDevice {
    fn geometry(&self) -> Geometry {
        Geometry {
            block_bytes: self.options.block_bytes,
            blocks: self.shared.blocks.load(Ordering::Relaxed),
        }
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn open(&self, driver: &mut dyn Driver) -> Result<Box<dyn Channel>, DeviceError> {
        let own = open::reopen(&self.file, &self.options, self.mode);
        // Without /proc there is only one description. Other cores then learn of a failed flush
        // only from the shared flag.
        let file = own.or_else(|_| self.file.try_clone());
        let file = file.and_then(|file| driver.open_file(Arc::new(file)));
        let file = file.map_err(|source| {
            self.io_error(
                "hand over",
                source,
                "use fewer file devices in this process",
            )
        })?;
        let channel = FileChannel::new(self, driver.lease_op_namespace(), file)?;
        Ok(Box::new(channel))
    }

    fn make_durable(&self) -> io::Result<()> {
        if self.options.read_only {
            return Ok(());
        }
        self.sync(&self.file)
    }

    fn hand_over(&self) -> io::Result<Option<File>> {
        if self.shared.flush_failed.load(Ordering::Acquire) {
            return Err(io::Error::other("writes to it were lost"));
        }
        self.file.share().map(Some)
    }

    /// A regular file is truncated or extended with the device. If only a part of it is used, it
    /// can shrink but not grow, because the bytes after that part do not belong to the device.
    fn resize(&self, blocks: u64) -> Result<(), DeviceError> {
        let path = self.options.path.display();
        let invalid = |message| Err(DeviceError::Invalid(message));
        if !self.regular {
            return invalid(format!(
                "cannot resize the block device {path}; resize it itself, then open it again"
            ));
        }
        if self.options.read_only {
            return invalid(format!("cannot resize {path}: it is open read-only"));
        }
        let bytes = blocks.checked_mul(u64::from(self.options.block_bytes));
        let Some(bytes) = bytes.filter(|&bytes| bytes > 0) else {
            return invalid(format!("{path}: invalid size of {blocks} blocks"));
        };
        let used = self.geometry().bytes();
        let there = open::size_of(&self.file)
            .map_err(|error| self.io_error("determine the size of", error, "check the disk"))?;
        // A tail shorter than a block is the rest of a size that was not a multiple of the block
        // size.
        let partly = there >= used + u64::from(self.options.block_bytes);
        if partly && bytes > used {
            return invalid(format!(
                "{path} has {there} bytes, of which {used} are used; open it with another size to \
                 use more"
            ));
        }
        if !partly {
            if there > used && bytes > used {
                // The rest of a block must not appear in a new one.
                self.set_len(used)?;
            }
            self.set_len(bytes)?;
        }
        self.shared.blocks.store(blocks, Ordering::Relaxed);
        Ok(())
    }

    fn erase(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        check_within(self.geometry(), offset, len)?;
        if self.options.read_only {
            let path = self.options.path.display();
            let reason = format!("cannot erase {path}: it is open read-only");
            return Err(DeviceError::Invalid(reason));
        }
        let erased = open::erase(&self.file, &self.options, self.mode, (offset, len));
        let erased = erased.and_then(|file| self.sync(&file));
        erased.map_err(|error| self.io_error("erase a part of", error, "check the disk"))
    }
}

impl FileDevice {
    /// Syncs a description of the device's file. The system reports a loss to descriptions that are
    /// opened later only if it has not reported it before, so no Flush succeeds after a loss.
    fn sync(&self, file: &File) -> io::Result<()> {
        let synced = file.sync_all();
        let is_lost = |error: &io::Error| error.kind() != io::ErrorKind::Interrupted;
        if synced.as_ref().is_err_and(is_lost) {
            self.shared.flush_failed.store(true, Ordering::Release);
        }
        synced
    }

    fn set_len(&self, bytes: u64) -> Result<(), DeviceError> {
        self.file
            .set_len(bytes)
            .and_then(|()| self.sync(&self.file))
            .map_err(|error| {
                self.io_error(
                    "resize",
                    error,
                    "free space on its file system, or use a smaller size",
                )
            })
    }
}
