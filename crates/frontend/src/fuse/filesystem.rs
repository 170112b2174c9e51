//! The file system as the kernel sees it: one directory, with a file for each device.
//!
//! Names and attributes are answered here; requests for data are checked, and handed on.

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
    /// Refuses writes, by the options or by the device.
    pub(super) read_only: bool,
    /// The last size of the device in bytes: that of the file after the device went away.
    pub(super) size: u64,
    pub(super) times: FileTimes,
}

/// The times of a file, since the beginning of 1970.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileTimes {
    /// The content was changed last.
    pub(super) modified: Duration,
    /// Anything was changed last.
    changed: Duration,
}

impl FileTimes {
    /// The times of a file with this time of the last write; `None` for now.
    pub(super) fn new(modified: Option<SystemTime>) -> Self {
        let modified = modified.map_or_else(since_1970, since_1970_of);
        Self {
            modified,
            changed: modified,
        }
    }

    /// Notes a change of the content.
    pub(super) fn wrote(&mut self) {
        self.set(Some(NewTime::Now));
    }

    /// Changes the time of the last change of the content, or another time.
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
    /// Size of the file in bytes. It stays after the device went away, since the end of the file
    /// would hide that its requests fail.
    fn bytes(&mut self) -> u64 {
        let geometry = served(&*self.device);
        if !geometry.is_gone() {
            self.size = geometry.bytes();
        }
        self.size
    }

    /// Size of the device.
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
    /// Requests for data are refused: the attachment ends.
    pub(super) shut: bool,
    pub(super) handles: Handles,
    /// Class of all requests; `None` where it depends on each.
    pub(super) class: Option<Class>,
    pub(super) threads: ThreadClasses,
    /// The time of the start, since the beginning of 1970.
    pub(super) began: Duration,
    /// Permission bits of a file that may be written.
    pub(super) mode: u32,
    /// Owner and group of the files.
    pub(super) owner: (u32, u32),
    /// The kernel keeps its page cache coherent with files that bypass it.
    pub(super) bypass: bool,
}

/// The open files: each is a client of its own, which an `fsync` tells of losses of the device's
/// cache.
#[derive(Debug, Default)]
pub(super) struct Handles {
    last: u64,
    open: HashMap<u64, KnownLosses>,
}

/// The next step of a request.
#[derive(Debug)]
pub(super) enum RequestStep<'a> {
    /// Answer it.
    Answer(Answer),
    /// Carry it out; the data is that of a write.
    Carry(Job, &'a [u8]),
    /// Interrupt the request of this name, if a signal ends its thread.
    Interrupt(u64),
    /// None: it has no answer.
    End,
}

/// The number of the first file.
const FIRST_FILE: u64 = ROOT + 1;

/// Kinds of files in a mode.
const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;

/// A request for data, as far as it is on the device; `None` where nothing of it is.
type Found = (Work, Option<Range>);

impl Files {
    /// Returns the next step of a request.
    ///
    /// # Errors
    /// The error that the kernel gets.
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
            // Refused is every change but that of times, and to the size that the device has.
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
        let entry = &self.entries[self.index(node).ok_or(Errno::ISDIR)?];
        if entry.read_only && flags & OFlags::ACCMODE != OFlags::RDONLY {
            return Err(Errno::ROFS);
        }
        // Each open drops what is cached: another machine may have written to the device. Without
        // these bits the kernel bypasses the cache as well, but one write at a time: 8 threads that
        // write to a device of 100 µs reach 1,700 writes/s instead of 14,400.
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
        handles.open.insert(handles.last, client);
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

    /// The next step of a request for a device.
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
                let client = self.handles.open.get(&handle).ok_or(Errno::INVAL)?;
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

    /// Checks a write; `None` for one of no bytes.
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
        // Of asynchronous requests the kernel takes one that is not whole for a failed one.
        if (cut && flags.contains(OFlags::DIRECT)) || (range.is_none() && len > 0) {
            return Err(Errno::NOSPC);
        }
        // Pages that were changed through a mapping are written by the kernel's own threads, with
        // the flags of any file.
        let durable = !of_cache && flags.contains(OFlags::DSYNC);
        Ok((Work::Write { durable }, range))
    }

    /// The work of a change of the file's space; `None` if there is nothing to do. Blocks that are only
    /// partly in the range are read, changed and written.
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
            // All of the device is there already.
            return if beyond { Err(Errno::NOSPC) } else { Ok(None) };
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
        // Whole blocks lie between the first part, if there is one, and the last one.
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
