//! The file system as the kernel sees it: one directory, with a file for each device.
//!
//! Names and attributes are answered here, on the session thread; requests for data are checked and
//! passed on to the dataplane thread.

use super::Shared;
use super::job::{Job, Message, Range, Work};
use super::limits::{ATTRIBUTES_AGE, BACKGROUND_MAX, CONGESTION_THRESHOLD, REQUEST_MAX_BYTES};
use super::thread_classes::{Asked, ThreadClasses};
use crate::device_io::KnownLosses;
use block::{Device, Geometry, Operation};
use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, OpenAccMode, OpenFlags, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs,
    ReplyWrite, Request, TimeOrNow, Version, WriteFlags,
};
use reactor::{MailboxSender, clock};
use rustix::fs::{FallocateFlags, OFlags};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;
use switch::Class;

/// A device as a file.
#[derive(Debug)]
pub(super) struct Entry {
    /// Name of the file: the namespace identifier.
    pub(super) name: String,
    pub(super) device: Arc<dyn Device>,
    /// Refuses writes, by the options or by the device.
    pub(super) read_only: bool,
    /// The last size of the device in bytes: that of the file after the device went away.
    pub(super) size: AtomicU64,
}

impl Entry {
    /// Size of the file in bytes. It stays after the device went away, since the end of the file
    /// would hide that its requests fail.
    fn bytes(&self) -> u64 {
        let geometry = self.device.geometry();
        if !geometry.is_gone() {
            self.size.store(geometry.bytes(), Ordering::Relaxed);
        }
        self.size.load(Ordering::Relaxed)
    }

    /// Size of the device.
    fn geometry(&self) -> Result<Geometry, Errno> {
        let geometry = self.device.geometry();
        let gone = geometry.is_gone();
        (!gone).then_some(geometry).ok_or(Errno::ENODEV)
    }
}

/// The open files: each is a client of its own, which an `fsync` tells of losses of the device's
/// cache.
#[derive(Debug, Default)]
pub(super) struct Handles {
    last: u64,
    open: HashMap<u64, KnownLosses>,
}

impl Handles {
    fn open(&mut self, device: &dyn Device) -> FileHandle {
        self.last += 1;
        self.open.insert(self.last, KnownLosses::of(device));
        FileHandle(self.last)
    }
}

/// The file system of one mount.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) entries: Vec<Entry>,
    pub(super) sender: MailboxSender<Message>,
    pub(super) shared: Arc<Shared>,
    pub(super) handles: Mutex<Handles>,
    /// Class of all requests; `None` where it depends on each.
    pub(super) class: Option<Class>,
    pub(super) threads: Mutex<ThreadClasses>,
    /// Permission bits of a file that may be written.
    pub(super) mode: u16,
    /// Owner and group of the files.
    pub(super) owner: (u32, u32),
    /// The kernel keeps its page cache coherent with files that bypass it.
    pub(super) bypass: bool,
}

/// The number of the first file; the directory has 1.
const FIRST_FILE: u64 = 2;

/// The protocol version since which the kernel drops cached pages that a write beside the cache
/// changes, and lets such writes run in parallel while nothing is cached (Linux 6.9).
const COHERENT_BYPASS: Version = Version(7, 40);

/// Capabilities that are used where the kernel has them: several requests at a time for reads,
/// direct I/O and names, and memory mappings of files that bypass the cache. The kernel's cache of
/// writes is left out: a write that has returned has reached the device.
const CAPABILITIES: [InitFlags; 4] = [
    InitFlags::FUSE_ASYNC_READ,
    InitFlags::FUSE_ASYNC_DIO,
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
];

impl Files {
    fn index(&self, ino: INodeNo) -> Option<usize> {
        let index = usize::try_from(ino.0.checked_sub(FIRST_FILE)?).ok()?;
        (index < self.entries.len()).then_some(index)
    }

    fn entry(&self, ino: INodeNo) -> Option<(usize, &Entry)> {
        let index = self.index(ino)?;
        Some((index, &self.entries[index]))
    }

    fn attributes(&self, ino: INodeNo) -> Option<FileAttr> {
        let epoch = SystemTime::UNIX_EPOCH;
        let mut attributes = FileAttr {
            ino,
            size: 0,
            blocks: 0,
            atime: epoch,
            mtime: epoch,
            ctime: epoch,
            crtime: epoch,
            kind: FileType::Directory,
            perm: 0o755,
            nlink: 2,
            uid: self.owner.0,
            gid: self.owner.1,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        };
        if ino == INodeNo::ROOT {
            return Some(attributes);
        }
        let (_, entry) = self.entry(ino)?;
        attributes.size = entry.bytes();
        attributes.blocks = attributes.size / 512;
        attributes.kind = FileType::RegularFile;
        attributes.perm = if entry.read_only { 0o444 } else { self.mode };
        attributes.nlink = 1;
        Some(attributes)
    }

    fn handles(&self) -> MutexGuard<'_, Handles> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn class(&self, request: &Request, range: Range, depth: usize) -> Class {
        if let Some(class) = self.class {
            return class;
        }
        let asked = Asked {
            thread: request.pid(),
            user: request.uid(),
            bytes: range.len as u64,
            depth,
        };
        let threads = self.threads.lock();
        let mut threads = threads.unwrap_or_else(PoisonError::into_inner);
        threads.of(asked, clock::monotonic())
    }

    /// Passes a request on to the dataplane thread, once there is room.
    fn pass(&self, file: usize, request: &Request, range: Range, work: Work, data: &[u8]) {
        let Some(permit) = self.shared.gate.enter(data) else {
            let errno = Errno::ENODEV;
            match work {
                Work::Read(reply) => reply.error(errno),
                Work::Write { reply, .. } => reply.error(errno),
                Work::Flush { reply, .. } | Work::Plain { reply, .. } => reply.error(errno),
            }
            return;
        };
        let job = Job {
            file,
            class: self.class(request, range, permit.depth()),
            range,
            work,
            permit,
        };
        // The gate bounds the number of these messages.
        self.sender.send_always(Message::Job(job));
    }

    /// The range of a request for data, as far as it is on the device.
    fn range(
        entry: &Entry,
        (offset, len): (u64, usize),
        flags: OpenFlags,
    ) -> Result<Option<Range>, Errno> {
        let range = Range::clamped(offset, len, entry.geometry()?);
        if is_direct(flags) && range.is_some_and(|range| !range.is_whole()) {
            return Err(Errno::EINVAL);
        }
        Ok(range)
    }

    /// The operation and the range of a change of the file's space; `None` where nothing is to be
    /// done.
    fn allocation(
        entry: &Entry,
        offset: u64,
        length: u64,
        mode: i32,
    ) -> Result<Option<(Operation, Range)>, Errno> {
        let mode = FallocateFlags::from_bits_retain(mode.cast_unsigned());
        let geometry = entry.geometry()?;
        let end = offset.checked_add(length).ok_or(Errno::EFBIG)?;
        let kind = mode & !FallocateFlags::KEEP_SIZE;
        let beyond = end > geometry.bytes();
        if kind.is_empty() {
            // All of the device is there already.
            return if beyond { Err(Errno::ENOSPC) } else { Ok(None) };
        }
        let operation = if kind == FallocateFlags::PUNCH_HOLE {
            // A hole reads as zeroes, which no target promises of what is deallocated.
            Operation::WriteZeroes {
                deallocate: true,
                durable: false,
            }
        } else if kind == FallocateFlags::ZERO_RANGE {
            Operation::WriteZeroes {
                deallocate: false,
                durable: false,
            }
        } else {
            return Err(Errno::EOPNOTSUPP);
        };
        if entry.read_only {
            return Err(Errno::EROFS);
        }
        if beyond && !mode.contains(FallocateFlags::KEEP_SIZE) {
            return Err(Errno::ENOSPC);
        }
        let end = end.min(geometry.bytes());
        if offset >= end {
            return Ok(None);
        }
        let block = u64::from(geometry.block_bytes);
        if !offset.is_multiple_of(block) || !end.is_multiple_of(block) {
            return Err(Errno::EINVAL);
        }
        let range = Range {
            start: offset,
            span: end - offset,
            ..Range::default()
        };
        Ok(Some((operation, range)))
    }
}

fn open_flags(flags: OpenFlags) -> OFlags {
    OFlags::from_bits_retain(flags.0.cast_unsigned())
}

fn is_direct(flags: OpenFlags) -> bool {
    open_flags(flags).contains(OFlags::DIRECT)
}

impl Filesystem for Files {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        for capability in CAPABILITIES {
            // A kernel without it does the same, one request at a time.
            let _ = config.add_capabilities(capability);
        }
        let refused = |_| io::Error::other("the kernel takes no requests of 1 MiB");
        config.set_max_write(REQUEST_MAX_BYTES).map_err(refused)?;
        let refused = |_| io::Error::other("the kernel takes no background requests");
        config.set_max_background(BACKGROUND_MAX).map_err(refused)?;
        config
            .set_congestion_threshold(CONGESTION_THRESHOLD)
            .map_err(refused)?;
        if let Err(most) = config.set_max_readahead(REQUEST_MAX_BYTES) {
            // The kernel's own limit is lower; it is the answer to a larger wish.
            let _ = config.set_max_readahead(most);
        }
        self.bypass = config.kernel_abi() >= COHERENT_BYPASS;
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let mut entries = self.entries.iter();
        let found = entries.position(|entry| parent == INodeNo::ROOT && name == &*entry.name);
        let attributes =
            found.and_then(|index| self.attributes(INodeNo(index as u64 + FIRST_FILE)));
        match attributes {
            Some(attributes) => reply.entry(&ATTRIBUTES_AGE, &attributes, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(ino) {
            Some(attributes) => reply.attr(&ATTRIBUTES_AGE, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    /// Refuses every change but those that leave all as it is: the size that the device has, and
    /// times, which are not kept.
    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let Some(attributes) = self.attributes(ino) else {
            reply.error(Errno::ENOENT);
            return;
        };
        let resized = size.is_some_and(|size| size != attributes.size);
        if resized || mode.is_some() || uid.is_some() || gid.is_some() {
            reply.error(Errno::EPERM);
        } else {
            reply.attr(&ATTRIBUTES_AGE, &attributes);
        }
    }

    fn open(&self, _: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let Some((_, entry)) = self.entry(ino) else {
            reply.error(Errno::EISDIR);
            return;
        };
        if entry.read_only && flags.acc_mode() != OpenAccMode::O_RDONLY {
            reply.error(Errno::EROFS);
            return;
        }
        // Each open drops what is cached: another machine may have written to the device. Without
        // these flags the kernel bypasses the cache as well, but one write at a time: 8 threads that
        // write to a device of 100 µs reach 1,700 writes/s instead of 14,400.
        let mut options = FopenFlags::empty();
        if self.bypass && is_direct(flags) {
            options = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        }
        self.shared.open.fetch_add(1, Ordering::Relaxed);
        let handle = self.handles().open(&*entry.device);
        reply.opened(handle, options);
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.handles().open.remove(&handle.0);
        self.shared.open.fetch_sub(1, Ordering::Relaxed);
        reply.ok();
    }

    fn read(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let Some((file, entry)) = self.entry(ino) else {
            reply.error(Errno::EISDIR);
            return;
        };
        let len = size.min(REQUEST_MAX_BYTES) as usize;
        match Self::range(entry, (offset, len), flags) {
            Ok(Some(range)) => {
                self.pass(file, request, range, Work::Read(reply), &[]);
            }
            Ok(None) => reply.data(&[]),
            Err(errno) => reply.error(errno),
        }
    }

    fn write(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let Some((file, entry)) = self.entry(ino) else {
            reply.error(Errno::EISDIR);
            return;
        };
        if entry.read_only {
            reply.error(Errno::EROFS);
            return;
        }
        let data = &data[..data.len().min(REQUEST_MAX_BYTES as usize)];
        match Self::range(entry, (offset, data.len()), flags) {
            // Of asynchronous requests the kernel takes one that is not whole for a failed one.
            Ok(Some(range)) if range.len < data.len() && is_direct(flags) => {
                reply.error(Errno::ENOSPC);
            }
            Ok(Some(range)) => {
                // Pages that were changed through a mapping are written by the kernel's own
                // threads, with the flags of any file.
                let cached = write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
                let durable = !cached && open_flags(flags).contains(OFlags::DSYNC);
                let work = Work::Write { durable, reply };
                self.pass(file, request, range, work, &data[..range.len]);
            }
            Ok(None) if data.is_empty() => reply.written(0),
            Ok(None) => reply.error(Errno::ENOSPC),
            Err(errno) => reply.error(errno),
        }
    }

    /// Answers a close: a write that has returned is on the device already.
    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        _: bool,
        reply: ReplyEmpty,
    ) {
        let client = self.handles().open.get(&handle.0).cloned();
        let (Some(file), Some(client)) = (self.index(ino), client) else {
            reply.error(Errno::EINVAL);
            return;
        };
        let work = Work::Flush { client, reply };
        self.pass(file, request, Range::default(), work, &[]);
    }

    fn fallocate(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let Some((file, entry)) = self.entry(ino) else {
            reply.error(Errno::EISDIR);
            return;
        };
        match Self::allocation(entry, offset, length, mode) {
            Ok(Some((operation, range))) => {
                let work = Work::Plain { operation, reply };
                self.pass(file, request, range, work, &[]);
            }
            Ok(None) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        if ino != INodeNo::ROOT {
            reply.error(Errno::ENOTDIR);
            return;
        }
        let dots = [".", ".."].map(|name| (INodeNo::ROOT, FileType::Directory, name));
        let files = self.entries.iter().zip(FIRST_FILE..);
        let files = files.map(|(entry, ino)| (INodeNo(ino), FileType::RegularFile, &*entry.name));
        let skipped = usize::try_from(offset).unwrap_or(usize::MAX);
        let listed = dots.into_iter().chain(files).zip(1..).skip(skipped);
        for ((ino, kind, name), next) in listed {
            if reply.add(ino, next, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let sizes = self.entries.iter();
        let sizes = sizes.map(|entry| entry.bytes() / 512);
        let blocks = sizes.fold(0, u64::saturating_add);
        let files = self.entries.len() as u64;
        reply.statfs(blocks, 0, 0, files, 0, 512, 255, 512);
    }

    fn create(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        reply.error(Errno::EPERM);
    }

    fn mknod(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }

    fn mkdir(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }

    fn symlink(&self, _: &Request, _: INodeNo, _: &OsStr, _: &Path, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }

    fn link(&self, _: &Request, _: INodeNo, _: INodeNo, _: &OsStr, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }

    fn unlink(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EPERM);
    }

    fn rmdir(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EPERM);
    }

    fn rename(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: INodeNo,
        _: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EPERM);
    }
}
