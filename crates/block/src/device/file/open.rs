//! Opens, locks and measures a file, and determines how it can be accessed. All of this may block:
//! it runs when a device is created, never during I/O.

use super::{BufferedReason, FileOptions, IoMode};
use crate::LockedFile;
use crate::device::DeviceError;
use crate::limits::{ALLOCATE_PIECE_BYTES, ZERO_PIECE_BYTES};
use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags, ResolveFlags, StatxFlags, fallocate};
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// An opened file.
pub(super) struct Opened {
    pub(super) file: LockedFile,
    pub(super) mode: IoMode,
    pub(super) regular: bool,
    /// Bytes of the file that are used, in whole blocks.
    pub(super) bytes: u64,
    /// True if the file system frees deallocated space of the file.
    pub(super) thin: bool,
    pub(super) preferred_bytes: u32,
}

/// The remedy for a file that is not below its folder.
const LEADS_OUT: &str = "a symbolic link leaves the permitted folder; use the path of the file \
    itself";

/// Alignment of memory that is sufficient for direct I/O with every kernel.
const PAGE_BYTES: usize = 4096;

/// Alignments to try for direct I/O if the kernel does not report the required one.
const PROBED_ALIGNMENTS: [usize; 2] = [512, 4096];

/// Opens the file at any path, or only below this folder; or takes an open file over, with its lock.
pub(super) fn open(
    options: &FileOptions,
    beneath: Option<&Path>,
    taken_over: Option<File>,
) -> Result<Opened, DeviceError> {
    let path = &options.path;
    let looked_at = match &taken_over {
        Some(file) => file.metadata(),
        None => metadata(path, beneath),
    };
    let found = match looked_at {
        Ok(metadata) => Some(metadata),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            let remedy = match error.raw_os_error() {
                Some(libc::EXDEV | libc::ELOOP) => LEADS_OUT,
                _ => "check the path",
            };
            return Err(failed("look at", path, error, remedy));
        }
    };
    check_options(options, found.as_ref())?;
    let block_device = found
        .as_ref()
        .is_some_and(|found| found.file_type().is_block_device());
    let (file, direct) = match taken_over {
        Some(file) => {
            let reason = set_direct(&file).err().map(|_| BufferedReason::Unsupported);
            (LockedFile::taken_over(file), reason)
        }
        None => {
            let (file, direct) = open_file(options, beneath, block_device)?;
            (lock(file, options)?, direct)
        }
    };
    let bytes = fit_size(&file, options, !block_device, found.is_none())?;
    let mode = match direct {
        Some(reason) => IoMode::Buffered(reason),
        None => direct_mode(&file, options, block_device)?,
    };
    let metadata = file
        .metadata()
        .map_err(|error| failed("look at", path, error, "check the disk"))?;
    let thin = !options.read_only && gives_space_back(&file, &metadata, options, block_device);
    let preferred = u32::try_from(metadata.blksize()).unwrap_or(0);
    Ok(Opened {
        file,
        mode,
        regular: !block_device,
        bytes,
        thin,
        preferred_bytes: if preferred.is_power_of_two() {
            preferred
        } else {
            0
        },
    })
}

fn metadata(path: &Path, beneath: Option<&Path>) -> io::Result<Metadata> {
    match beneath {
        None => path.metadata(),
        Some(folder) => open_beneath(folder, path, OFlags::PATH, Mode::empty())?.metadata(),
    }
}

/// Opens a file below a folder: no step of the path leads out of it, by a symbolic link or `..`,
/// even if the folder is changed concurrently.
///
/// # Errors
/// `EXDEV` if a step does, or if the path is not below the folder.
pub fn open_beneath(folder: &Path, path: &Path, flags: OFlags, mode: Mode) -> io::Result<File> {
    let rest = path
        .strip_prefix(folder)
        .map_err(|_| rustix::io::Errno::XDEV)?;
    let directory = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(folder, directory, Mode::empty())?;
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let file = rustix::fs::openat2(folder, rest, flags | OFlags::CLOEXEC, mode, within)?;
    Ok(file.into())
}

/// Opens another description of the open file `file`, with the same access mode.
pub(super) fn reopen(file: &File, options: &FileOptions, mode: IoMode) -> io::Result<File> {
    let flags = if matches!(mode, IoMode::Direct { .. }) {
        OFlags::DIRECT
    } else {
        OFlags::empty()
    };
    OpenOptions::new()
        .read(true)
        .write(!options.read_only)
        .custom_flags(flag_bits(flags))
        .open(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Makes a range of bytes read as zeroes, by the file system or by writing. Returns the description
/// used, which must be synced.
pub(super) fn erase(
    file: &File,
    options: &FileOptions,
    mode: IoMode,
    (offset, len): (u64, u64),
) -> io::Result<File> {
    // In the same mode as concurrent writes. In the page cache, a page in which the range begins
    // would be written as a whole, and could overwrite direct writes to its other blocks.
    let file = reopen(file, options, mode)?;
    let align = match mode {
        IoMode::Direct { align_bytes } => u64::from(align_bytes),
        IoMode::Buffered(_) => 1,
    };
    let mut done = 0;
    while done < len {
        let (at, left) = (offset + done, len - done);
        let is_part = !at.is_multiple_of(align) || left < align;
        let piece = if is_part {
            left.min(align - at % align)
        } else {
            (left - left % align).min(ALLOCATE_PIECE_BYTES)
        };
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&file, flags, at, piece) {
            Ok(()) => done += piece,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) if is_part => {
                erase_in_sector(&file, align, at..at + piece)?;
                done += piece;
            }
            Err(_) => done += write_zeroes(&file, at, piece)?,
        }
    }
    Ok(file)
}

/// Zeroes this range within a sector by reading and rewriting the sector. No request may write the
/// rest of the sector meanwhile: the device's blocks are no smaller than its sectors, so it would
/// be a request for a block that is being erased.
fn erase_in_sector(file: &File, align: u64, range: Range<u64>) -> io::Result<()> {
    let sector = range.start - range.start % align;
    let memory = |at: u64| usize::try_from(at - sector).expect("a sector is small");
    let bytes = memory(sector + align);
    let mut buffer = vec![0; bytes + PAGE_BYTES];
    let start = buffer.as_ptr().align_offset(PAGE_BYTES);
    let buffer = &mut buffer[start..start + bytes];
    file.read_exact_at(buffer, sector)?;
    buffer[memory(range.start)..memory(range.end)].fill(0);
    file.write_all_at(buffer, sector)
}

/// Writes up to `len` zeroes from `offset` on. Returns the number written. The memory is aligned
/// for direct I/O.
pub(super) fn write_zeroes(file: &File, offset: u64, len: u64) -> io::Result<u64> {
    let zeroes = vec![0; ZERO_PIECE_BYTES + PAGE_BYTES];
    let zeroes = &zeroes[zeroes.as_ptr().align_offset(PAGE_BYTES)..];
    let piece = usize::try_from(len)
        .unwrap_or(usize::MAX)
        .min(ZERO_PIECE_BYTES);
    file.write_all_at(&zeroes[..piece], offset)?;
    Ok(piece as u64)
}

/// Returns the size of a file or block device in bytes.
pub(super) fn size_of(mut file: &File) -> io::Result<u64> {
    file.seek(SeekFrom::End(0))
}

/// Returns the file's identity, as [`FileDevice::identity`](super::FileDevice::identity) defines
/// it.
pub(super) fn identity(file: &File, regular: bool) -> io::Result<String> {
    let metadata = file.metadata()?;
    if !regular {
        return Ok(format!("device {}", metadata.rdev()));
    }
    let inode = metadata.ino();
    let wanted = StatxFlags::BTIME;
    let statx = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, wanted);
    Ok(match statx {
        Ok(statx) if statx.stx_mask & wanted.bits() != 0 => {
            let born = statx.stx_btime;
            format!("inode {inode} of {}.{:09}", born.tv_sec, born.tv_nsec)
        }
        _ => format!("inode {inode} on {}", metadata.dev()),
    })
}

fn failed(what: &str, path: &Path, source: io::Error, remedy: &'static str) -> DeviceError {
    DeviceError::Io {
        what: format!("cannot {what} {}", path.display()),
        source,
        remedy,
    }
}

fn check_options(options: &FileOptions, found: Option<&Metadata>) -> Result<(), DeviceError> {
    let path = options.path.display();
    let invalid = |message| Err(DeviceError::Invalid(message));
    let block = u64::from(options.block_bytes);
    if let Some(size) = options
        .size
        .filter(|&size| size == 0 || !size.is_multiple_of(block))
    {
        return invalid(format!(
            "{path}: size {size} is not a multiple of the block size; use a positive multiple of \
             {block}"
        ));
    }
    match found.map(Metadata::file_type) {
        Some(kind) if kind.is_file() || kind.is_block_device() => Ok(()),
        Some(_) => invalid(format!(
            "{path} is neither a regular file nor a block device"
        )),
        None if options.read_only || !options.create => Err(failed(
            "open",
            &options.path,
            io::Error::from_raw_os_error(libc::ENOENT),
            "check the path, or create the file (create = true and a size in the configuration)",
        )),
        None if options.size.is_none() => invalid(format!(
            "{path} does not exist; give a size to create it with"
        )),
        None => Ok(()),
    }
}

/// Opens the file for direct I/O if requested; otherwise returns the reason.
fn open_file(
    options: &FileOptions,
    beneath: Option<&Path>,
    block_device: bool,
) -> Result<(File, Option<BufferedReason>), DeviceError> {
    let mut flags = OFlags::empty();
    if block_device && !options.read_only {
        // The kernel then refuses a device that is mounted or part of another device.
        flags |= OFlags::EXCL;
    }
    let creates = options.create && !options.read_only && !block_device;
    let open = |flags: OFlags| match beneath {
        None => OpenOptions::new()
            .read(true)
            .write(!options.read_only)
            .create(creates)
            .mode(0o600)
            .custom_flags(flag_bits(flags))
            .open(&options.path),
        Some(folder) => {
            let access = if options.read_only {
                OFlags::RDONLY
            } else {
                OFlags::RDWR
            };
            let create = if creates {
                OFlags::CREATE
            } else {
                OFlags::empty()
            };
            // A new file is accessible only to its owner; without creation, a mode is refused.
            let mode = if creates {
                Mode::RUSR | Mode::WUSR
            } else {
                Mode::empty()
            };
            open_beneath(folder, &options.path, flags | access | create, mode)
        }
    };
    let (result, reason) = if options.direct {
        match open(flags | OFlags::DIRECT) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                (open(flags), Some(BufferedReason::Unsupported))
            }
            result => (result, None),
        }
    } else {
        (open(flags), Some(BufferedReason::Asked))
    };
    match result {
        Ok(file) => Ok((file, reason)),
        Err(error) => {
            let remedy = match error.raw_os_error() {
                Some(libc::EBUSY) => "unmount it and stop its users, or open it read-only",
                Some(libc::EROFS) => "open it read-only",
                Some(libc::EACCES | libc::EPERM) => "grant this user access, or open it read-only",
                Some(libc::ENOSPC) => "free space on its file system",
                Some(libc::EXDEV | libc::ELOOP) => LEADS_OUT,
                _ => "check the path",
            };
            Err(failed("open", &options.path, error, remedy))
        }
    }
}

/// Sets direct I/O for an open file.
fn set_direct(file: &File) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(file)?;
    Ok(rustix::fs::fcntl_setfl(file, flags | OFlags::DIRECT)?)
}

fn flag_bits(flags: OFlags) -> i32 {
    flags.bits().cast_signed()
}

/// Locks the file for one writer or many readers. The lock is advisory.
fn lock(file: File, options: &FileOptions) -> Result<LockedFile, DeviceError> {
    let locked = if options.read_only {
        LockedFile::shared(file)
    } else {
        LockedFile::exclusive(file)
    };
    locked.map_err(|error| {
        let remedy = if error.kind() == io::ErrorKind::WouldBlock {
            "another device or process uses it; stop it, or use another file"
        } else {
            "use a file system that supports locks"
        };
        failed("lock", &options.path, error, remedy)
    })
}

/// Returns the bytes to use, after extending the file to the requested size.
fn fit_size(
    file: &File,
    options: &FileOptions,
    regular: bool,
    new: bool,
) -> Result<u64, DeviceError> {
    let path = &options.path;
    let there =
        size_of(file).map_err(|error| failed("find the size of", path, error, "check the disk"))?;
    let block = u64::from(options.block_bytes);
    let wanted = options.size.unwrap_or(there / block * block);
    if wanted == 0 {
        return Err(DeviceError::Invalid(format!(
            "{} has {there} bytes, less than one block of {block} bytes; give a size to extend it, \
             or use another file",
            path.display()
        )));
    }
    if wanted <= there {
        return Ok(wanted);
    }
    if !regular || !options.create || options.read_only {
        return Err(DeviceError::Invalid(format!(
            "{} has {there} bytes, less than the requested {wanted}; use a smaller size, or extend \
             the file",
            path.display()
        )));
    }
    let remedy = "free space on its file system, or ask for less";
    let extended = file.set_len(wanted).and_then(|()| file.sync_all());
    extended.map_err(|error| failed("extend", path, error, remedy))?;
    if new {
        // A new file is durable only once its directory is.
        let parent = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        let synced = File::open(parent.unwrap_or(Path::new("."))).and_then(|dir| dir.sync_all());
        synced.map_err(|error| failed("sync", path, error, "check the disk"))?;
    }
    Ok(wanted)
}

/// Determines the alignment of a file that was opened for direct I/O, and falls back to the page
/// cache if the block size is smaller.
fn direct_mode(
    file: &File,
    options: &FileOptions,
    block_device: bool,
) -> Result<IoMode, DeviceError> {
    let reason = match direct_alignment(file, block_device) {
        Some(align_bytes) if align_bytes <= options.block_bytes => {
            return Ok(IoMode::Direct { align_bytes });
        }
        Some(align_bytes) => BufferedReason::Alignment { align_bytes },
        None => BufferedReason::Unsupported,
    };
    let buffered = rustix::fs::fcntl_getfl(file)
        .and_then(|flags| rustix::fs::fcntl_setfl(file, flags.difference(OFlags::DIRECT)));
    let remedy = "open it without direct I/O";
    buffered.map_err(|errno| failed("leave direct I/O on", &options.path, errno.into(), remedy))?;
    Ok(IoMode::Buffered(reason))
}

/// Returns the alignment that direct I/O requires in file and memory, in bytes; `None` if direct
/// I/O is not supported.
fn direct_alignment(file: &File, block_device: bool) -> Option<u32> {
    let wanted = StatxFlags::DIOALIGN;
    if let Ok(statx) = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, wanted)
        && statx.stx_mask & wanted.bits() != 0
    {
        let align = statx.stx_dio_offset_align.max(statx.stx_dio_mem_align);
        return (statx.stx_dio_offset_align != 0).then_some(align);
    }
    // A kernel before 6.1, or a file system that does not report it.
    if block_device {
        return rustix::fs::ioctl_blksszget(file).ok();
    }
    let mut memory = vec![0u8; 3 * 4096];
    let start = memory.as_ptr().align_offset(4096);
    let found = PROBED_ALIGNMENTS.into_iter().find(|&align| {
        // Aligned to `align` and to no larger power of two.
        let at = if align < 4096 { start + align } else { start };
        file.read_at(&mut memory[at..at + align], 0).is_ok()
    });
    found.and_then(|align| u32::try_from(align).ok())
}

/// Returns true if holes can be punched. The check changes nothing.
fn gives_space_back(
    file: &File,
    metadata: &Metadata,
    options: &FileOptions,
    block_device: bool,
) -> bool {
    if block_device {
        let (major, minor) = (
            rustix::fs::major(metadata.rdev()),
            rustix::fs::minor(metadata.rdev()),
        );
        let limit = format!("/sys/dev/block/{major}:{minor}/queue/discard_max_bytes");
        return std::fs::read_to_string(limit).is_ok_and(|text| text.trim() != "0");
    }
    let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    // Beyond the end there is no data to lose.
    let end = metadata.len().next_multiple_of(4096);
    fallocate(file, mode, end, u64::from(options.block_bytes)).is_ok()
}
