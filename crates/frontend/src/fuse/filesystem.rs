//! The file system that the kernel sees: one directory, with a file for each device.
//!
//! Requests for names and attributes are completed here; data requests are checked and passed on.

use super::SharedMount;
use super::abi::{Answer, Attributes, Header, NewTime, ROOT, Request, opened};
use super::job::{Job, JobPlace, Range, RangeWork, UnderWay, Work};
use super::limits::REQUEST_MAX_BYTES;
use super::thread_classes::{Asked, ThreadClasses};
use crate::KnownLosses;
use crate::served_size::served;
use base::Time;
use block::{Device, Geometry, Operation};
use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};
use switch::Class;

/// A device as a file.
#[derive(Debug)]
pub(super) struct FileEntry {
    /// Name of the file: the namespace identifier.
    pub(super) name: String,
    pub(super) device: Arc<dyn Device>,
    /// Read-only, by option or because the device is.
    pub(super) read_only: bool,
    /// Last known size of the device in bytes; the file keeps it after the device is removed.
    pub(super) size: u64,
    pub(super) times: FileTimes,
}

/// The times of a file, since the Unix epoch.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileTimes {
    /// Last change of the content.
    pub(super) modified: Duration,
    /// Last change of any kind.
    changed: Duration,
}

impl FileTimes {
    /// Creates the times of a file last written at `modified`; `None` for now.
    pub(super) fn new(modified: Option<SystemTime>) -> Self {
        let modified = modified.map_or_else(since_1970, since_1970_of);
        Self {
            modified,
            changed: modified,
        }
    }

    /// Records a change of the content.
    pub(super) fn wrote(&mut self) {
        self.set(Some(NewTime::Now));
    }

    /// Sets the modification time to `modified` and the change time to now; `None` leaves the
    /// modification time as it is.
    fn set(&mut self, modified: Option<NewTime>) {
        self.changed = since_1970();
        match modified {
            Some(NewTime::Now) => self.modified = self.changed,
            Some(NewTime::At(time)) => self.modified = time,
            None => {}
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "times of files are those of the calendar"
)]
fn since_1970() -> Duration {
    since_1970_of(SystemTime::now())
}

fn since_1970_of(time: SystemTime) -> Duration {
    time.duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
}

impl FileEntry {
    /// Size of the file in bytes. It stays after the device is removed: otherwise requests would
    /// end at the end of the file instead of failing.
    fn bytes(&mut self) -> u64 {
        let geometry = served(&*self.device);
        if !geometry.is_gone() {
            self.size = geometry.bytes();
        }
        self.size
    }

    /// Size and block size of the device.
    fn geometry(&self) -> Result<Geometry, Errno> {
        let geometry = served(&*self.device);
        let gone = geometry.is_gone();
        (!gone).then_some(geometry).ok_or(Errno::NODEV)
    }
}

/// The file system of one mount.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) entries: Vec<FileEntry>,
    pub(super) shared: Arc<SharedMount>,
    pub(super) under_way: Rc<UnderWay>,
    /// Data requests are refused because the attachment is ending.
    pub(super) shut: bool,
    pub(super) handles: Handles,
    /// Class of all requests; `None` if each request's class is looked up.
    pub(super) class: Option<Class>,
    pub(super) threads: ThreadClasses,
    /// Start time, since the Unix epoch.
    pub(super) began: Duration,
    /// Permission bits of a writable file.
    pub(super) mode: u32,
    /// Owner and group of the files.
    pub(super) owner: (u32, u32),
    /// The kernel keeps its page cache coherent with files that bypass it.
    pub(super) bypass: bool,
}

/// The open files. Each is its own client, whose `fsync` reports losses of the device's cache.
#[derive(Debug, Default)]
pub(super) struct Handles {
    last: u64,
    /// By number: the index of the file, and its client.
    open: HashMap<u64, (usize, KnownLosses)>,
}

/// The open files and the times of all files, for a successor.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct HandedFiles {
    /// Start time, since the Unix epoch.
    began: Duration,
    /// Times of the last change of the content, and of any change.
    times: Vec<[Duration; 2]>,
    last: u64,
    /// Number and index of each open file, and true if its next Flush fails because writes may be lost.
    open: Vec<(u64, usize, bool)>,
}

/// The next step of a request.
#[derive(Debug)]
pub(super) enum RequestStep<'a> {
    /// Reply to it.
    Answer(Answer),
    /// Execute it; the data is that of a write.
    Carry(Job, &'a [u8]),
    /// Interrupt the request with this identifier if its thread is being killed.
    Interrupt(u64),
    /// Nothing: the request has no reply.
    End,
}

/// Node number of the first file.
const FIRST_FILE: u64 = ROOT + 1;

/// File types in a mode.
const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;

/// A data request and its range on the device; `None` if none of it is on the device.
type Found = (Work, Option<Range>);

impl Files {
    /// Returns the next step of a request.
    ///
    /// # Errors
    /// The error reported to the kernel.
    pub(super) fn step<'a>(
        &mut self,
        header: &Header,
        request: Request<'a>,
        now: Time,
    ) -> Result<RequestStep<'a>, Errno> {
        let node = header.node;
        let answer = match request {
            Request::Read { .. }
            | Request::Write { .. }
            | Request::Sync { .. }
            | Request::Allocate { .. } => return self.carry(header, request, now),
            Request::Interrupt { unique } => return Ok(RequestStep::Interrupt(unique)),
            Request::Forget => return Ok(RequestStep::End),
            Request::Lookup { name } => {
                let named = |entry: &FileEntry| entry.name.as_bytes() == name;
                let found = self.entries.iter().position(named);
                let found = found.filter(|_| node == ROOT).ok_or(Errno::NOENT)?;
                Answer::entry(&self.attributes(found as u64 + FIRST_FILE)?)
            }
            Request::GetAttributes => Answer::attributes(&self.attributes(node)?),
            // Every change is refused, except to times and to the current size.
            Request::SetAttributes {
                identity,
                size,
                modified,
                accessed,
            } => {
                let attributes = self.attributes(node)?;
                if identity || size.is_some_and(|size| size != attributes.bytes) {
                    return Err(Errno::PERM);
                }
                if (modified.is_some() || accessed)
                    && let Some(index) = self.index(node)
                {
                    self.entries[index].times.set(modified);
                }
                Answer::attributes(&self.attributes(node)?)
            }
            Request::Open { flags } => self.open(node, flags)?,
            Request::Release { handle } => {
                self.handles.open.remove(&handle);
                self.shared.open.fetch_sub(1, Ordering::Relaxed);
                Answer::default()
            }
            Request::OpenDirectory => Answer::open(0, 0),
            Request::ReadDirectory { offset, len } => self.list(node, offset, len)?,
            Request::FileSystemStatus => {
                let sectors = self.entries.iter_mut().map(|entry| entry.bytes() / 512);
                let sectors = sectors.fold(0, u64::saturating_add);
                Answer::status(sectors, self.entries.len() as u64)
            }
            Request::Nothing => Answer::default(),
            Request::ChangeDirectory => return Err(Errno::PERM),
            Request::Init { .. } => return Err(Errno::IO),
            Request::Unknown => return Err(Errno::NOSYS),
        };
        Ok(RequestStep::Answer(answer))
    }

    /// Returns the state for a successor; `has_lost` says of each file that its writes may be lost.
    pub(super) fn hand_over(&self, has_lost: &[bool]) -> HandedFiles {
        let open = self.handles.open.iter();
        let open = open.map(|(&number, (file, client))| {
            let losses = KnownLosses::of(&*self.entries[*file].device);
            let lost = has_lost[*file] || client.count() < losses.count();
            (number, *file, lost)
        });
        let times = self.entries.iter().map(|entry| entry.times);
        HandedFiles {
            began: self.began,
            times: times.map(|times| [times.modified, times.changed]).collect(),
            last: self.handles.last,
            open: open.collect(),
        }
    }

    /// Continues with the state of a predecessor, or with that of a cancelled pause.
    pub(super) fn take_over(&mut self, handed: HandedFiles) {
        self.began = handed.began;
        for (entry, [modified, changed]) in self.entries.iter_mut().zip(handed.times) {
            entry.times = FileTimes { modified, changed };
        }
        self.handles.last = handed.last;
        self.handles.open.clear();
        for (number, file, lost) in handed.open {
            // The kernel knows no other files.
            let Some(entry) = self.entries.get(file) else {
                continue;
            };
            let client = KnownLosses::of(&*entry.device);
            if lost {
                client.lost_before();
            }
            self.handles.open.insert(number, (file, client));
        }
        let open = self.handles.open.len();
        self.shared.open.store(open, Ordering::Relaxed);
    }

    fn index(&self, node: u64) -> Option<usize> {
        let index = usize::try_from(node.checked_sub(FIRST_FILE)?).ok()?;
        (index < self.entries.len()).then_some(index)
    }

    fn attributes(&mut self, node: u64) -> Result<Attributes, Errno> {
        let mut attributes = Attributes {
            node,
            bytes: 0,
            mode: DIRECTORY | 0o755,
            links: 2,
            owner: self.owner,
            modified: self.began,
            changed: self.began,
        };
        if node != ROOT {
            let index = self.index(node).ok_or(Errno::NOENT)?;
            let entry = &mut self.entries[index];
            attributes.bytes = entry.bytes();
            attributes.mode = REGULAR | if entry.read_only { 0o444 } else { self.mode };
            attributes.links = 1;
            attributes.modified = entry.times.modified;
            attributes.changed = entry.times.changed;
        }
        Ok(attributes)
    }

    fn open(&mut self, node: u64, flags: OFlags) -> Result<Answer, Errno> {
        let index = self.index(node).ok_or(Errno::ISDIR)?;
        let entry = &self.entries[index];
        if entry.read_only && flags & OFlags::ACCMODE != OFlags::RDONLY {
            return Err(Errno::ROFS);
        }
        // Each open drops the cached pages: another machine may have written to the device. Without
        // these flags the kernel bypasses the cache as well, but serialises writes: 8 threads that
        // write to a device with 100 µs latency reach 1,700 writes/s instead of 14,400.
        let direct = self.bypass && flags.contains(OFlags::DIRECT);
        let bits = if direct {
            opened::DIRECT | opened::PARALLEL_WRITES
        } else {
            0
        };
        self.shared.open.fetch_add(1, Ordering::Relaxed);
        let handles = &mut self.handles;
        handles.last += 1;
        let client = KnownLosses::of(&*entry.device);
        handles.open.insert(handles.last, (index, client));
        Ok(Answer::open(handles.last, bits))
    }

    fn list(&self, node: u64, offset: u64, len: u32) -> Result<Answer, Errno> {
        if node != ROOT {
            return Err(Errno::NOTDIR);
        }
        let most = len.min(REQUEST_MAX_BYTES) as usize;
        let dots = [(ROOT, DIRECTORY, "."), (ROOT, DIRECTORY, "..")];
        let files = self.entries.iter().zip(FIRST_FILE..);
        let files = files.map(|(entry, node)| (node, REGULAR, &*entry.name));
        let skipped = usize::try_from(offset).unwrap_or(usize::MAX);
        let mut answer = Answer::default();
        for ((node, mode, name), next) in dots.into_iter().chain(files).zip(1..).skip(skipped) {
            if !answer.add(node, next, mode, name, most) {
                break;
            }
        }
        Ok(answer)
    }

    /// Returns the next step of a data request.
    fn carry<'a>(
        &mut self,
        header: &Header,
        request: Request<'a>,
        now: Time,
    ) -> Result<RequestStep<'a>, Errno> {
        if self.shut {
            return Err(Errno::NODEV);
        }
        let file = self.index(header.node).ok_or(Errno::ISDIR)?;
        let entry = &self.entries[file];
        let mut data: &[u8] = &[];
        let found = match request {
            Request::Read { offset, len } => {
                let len = len.min(REQUEST_MAX_BYTES) as usize;
                let range = Range::clamped(offset, len, entry.geometry()?);
                (Work::Read, range)
            }
            Request::Write {
                offset,
                flags,
                of_cache,
                data: all,
            } => {
                let found = Self::write(entry, (offset, all), flags, of_cache)?;
                data = &all[..found.1.map_or(0, |range| range.len)];
                found
            }
            Request::Sync { handle } => {
                let (_, client) = self.handles.open.get(&handle).ok_or(Errno::INVAL)?;
                (Work::Flush(client.clone()), Some(Range::default()))
            }
            Request::Allocate { offset, len, mode } => {
                match Self::allocation(entry, offset, len, mode)? {
                    Some((work, range)) => (work, Some(range)),
                    None => return Ok(RequestStep::Answer(Answer::default())),
                }
            }
            _ => return Err(Errno::NOSYS),
        };
        let (work, Some(range)) = found else {
            return Ok(RequestStep::Answer(match found.0 {
                Work::Write { .. } => Answer::written(0),
                _ => Answer::default(),
            }));
        };
        let place = JobPlace::new(Rc::clone(&self.under_way));
        let asked = Asked {
            thread: header.thread,
            user: header.user,
            bytes: range.len as u64,
            depth: self.under_way.requests.get(),
        };
        let by_thread = || self.threads.of(asked, now);
        let job = Job {
            unique: header.unique,
            thread: header.thread,
            file,
            class: self.class.unwrap_or_else(by_thread),
            range,
            work,
            place,
        };
        Ok(RequestStep::Carry(job, data))
    }

    /// Checks a write; `None` for a write of 0 bytes.
    fn write(
        entry: &FileEntry,
        (offset, data): (u64, &[u8]),
        flags: OFlags,
        of_cache: bool,
    ) -> Result<Found, Errno> {
        if entry.read_only {
            return Err(Errno::ROFS);
        }
        let len = data.len().min(REQUEST_MAX_BYTES as usize);
        let range = Range::clamped(offset, len, entry.geometry()?);
        let cut = range.is_some_and(|range| range.len < len);
        // For asynchronous direct requests, the kernel treats a short write as a failure.
        if (cut && flags.contains(OFlags::DIRECT)) || (range.is_none() && len > 0) {
            return Err(Errno::NOSPC);
        }
        // Kernel threads write pages that were changed through a mapping, with the flags of any
        // open file.
        let durable = !of_cache && flags.contains(OFlags::DSYNC);
        Ok((Work::Write { durable }, range))
    }

    /// Returns the work of a `fallocate`; `None` if there is nothing to do. Blocks that are only
    /// partly in the range are read, modified and written.
    fn allocation(
        entry: &FileEntry,
        offset: u64,
        length: u64,
        mode: u32,
    ) -> Result<Option<RangeWork>, Errno> {
        let mode = FallocateFlags::from_bits_retain(mode);
        let geometry = entry.geometry()?;
        let end = offset.checked_add(length).ok_or(Errno::FBIG)?;
        let kind = mode & !FallocateFlags::KEEP_SIZE;
        let beyond = end > geometry.bytes();
        if kind.is_empty() {
            // All blocks of the device are always allocated.
            return if beyond { Err(Errno::NOSPC) } else { Ok(None) };
        }
        let operation = if kind == FallocateFlags::PUNCH_HOLE {
            // A hole must read as zeroes, which deallocated blocks need not do.
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
            return Err(Errno::OPNOTSUPP);
        };
        if !entry.device.supports(operation) {
            return Err(Errno::OPNOTSUPP);
        }
        if entry.read_only {
            return Err(Errno::ROFS);
        }
        if beyond && !mode.contains(FallocateFlags::KEEP_SIZE) {
            return Err(Errno::NOSPC);
        }
        let end = end.min(geometry.bytes());
        let block = u64::from(geometry.block_bytes);
        // Whole blocks lie between the partial first block, if any, and the partial last one.
        let first = offset.next_multiple_of(block).min(end);
        let last = (end - end % block).max(first);
        let part = |from: u64, to: u64, then: Option<RangeWork>| {
            let len = usize::try_from(to.saturating_sub(from)).expect("less than a block");
            match Range::clamped(from, len, geometry) {
                Some(range) => Some((Work::ZeroPart(then.map(Box::new)), range)),
                None => then,
            }
        };
        let mut step = part(last, end, None);
        if first < last {
            let range = Range {
                start: first,
                span: last - first,
                ..Range::default()
            };
            step = Some((Work::Plain(operation, step.map(Box::new)), range));
        }
        Ok(part(offset, first, step))
    }
}
