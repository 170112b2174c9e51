//! Messages of the kernel's FUSE driver. `[linux/fuse.h]`
//!
//! All are in the machine's byte order. Nothing here calls the kernel.
#![expect(
    clippy::host_endian_bytes,
    reason = "the kernel's structures have this machine's order"
)]

use super::limits::{ATTRIBUTES_AGE, BACKGROUND_MAX, CONGESTION_THRESHOLD, REQUEST_MAX_BYTES};
use rustix::fs::OFlags;
use std::time::Duration;

/// Protocol version of these messages; kernels of other minor versions support it.
pub(super) const VERSION: (u32, u32) = (7, 40);

/// Oldest supported minor version: the first with requests of more than 32 pages.
pub(super) const MINOR_MIN: u32 = 28;

/// First minor version (Linux 6.9) whose kernel drops cached pages that a direct write changes, and
/// runs such writes in parallel while nothing is cached.
pub(super) const MINOR_COHERENT_BYPASS: u32 = 40;

/// Bytes of a WRITE message before its data.
pub(super) const WRITE_HEADER_BYTES: usize = 80;

/// Node number of the directory.
pub(super) const ROOT: u64 = 1;

/// Capabilities negotiated in INIT.
mod capability {
    /// Concurrent reads of a file.
    pub(super) const ASYNC_READ: u64 = 1 << 0;
    /// Writes of more than one page.
    pub(super) const BIG_WRITES: u64 = 1 << 5;
    /// Concurrent direct requests of a thread.
    pub(super) const ASYNC_DIRECT: u64 = 1 << 15;
    /// Concurrent look-ups in a directory.
    pub(super) const PARALLEL_DIRECTORIES: u64 = 1 << 18;
    /// The INIT reply sets the maximum pages per request.
    pub(super) const MAX_PAGES: u64 = 1 << 22;
    /// The messages have a second word of capabilities.
    pub(super) const EXTENDED: u64 = 1 << 30;
    /// Memory mappings of files that bypass the cache.
    pub(super) const DIRECT_MAPPINGS: u64 = 1 << 36;
    /// Capabilities used if the kernel has them. Without `FUSE_WRITEBACK_CACHE`: a completed write
    /// has reached the device.
    pub(super) const USED: u64 = ASYNC_READ
        | BIG_WRITES
        | ASYNC_DIRECT
        | PARALLEL_DIRECTORIES
        | MAX_PAGES
        | EXTENDED
        | DIRECT_MAPPINGS;
}

/// Flags of an OPEN reply.
pub(super) mod opened {
    /// Requests bypass the page cache (`FOPEN_DIRECT_IO`).
    pub(in super::super) const DIRECT: u32 = 1 << 0;
    /// Direct writes of several threads run in parallel (`FOPEN_PARALLEL_DIRECT_WRITES`).
    pub(in super::super) const PARALLEL_WRITES: u32 = 1 << 6;
}

/// Write from the page cache, which carries the flags of any open file (`FUSE_WRITE_CACHE`).
const WRITE_OF_CACHE: u32 = 1 << 0;

/// Header of every message from the kernel (`struct fuse_in_header`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    opcode: u32,
    /// Identifier of the request, repeated in the reply.
    pub(super) unique: u64,
    /// Node number of the file.
    pub(super) node: u64,
    pub(super) user: u32,
    /// Identifier of the submitting thread; 0 for kernel threads.
    pub(super) thread: u32,
}

/// A request from the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request<'a> {
    /// The first message: the kernel's version and capabilities.
    Init {
        version: (u32, u32),
        readahead: u32,
        capabilities: u64,
    },
    Lookup {
        name: &'a [u8],
    },
    GetAttributes,
    SetAttributes {
        /// Changes mode, owner or group.
        identity: bool,
        size: Option<u64>,
        modified: Option<NewTime>,
        /// Changes the time of the last access.
        accessed: bool,
    },
    Open {
        flags: OFlags,
    },
    Release {
        handle: u64,
    },
    Read {
        offset: u64,
        len: u32,
    },
    Write {
        offset: u64,
        flags: OFlags,
        /// Comes from the page cache, not from the file's user.
        of_cache: bool,
        data: &'a [u8],
    },
    /// `fsync`.
    Sync {
        handle: u64,
    },
    /// `fallocate`.
    Allocate {
        offset: u64,
        len: u64,
        mode: u32,
    },
    OpenDirectory,
    ReadDirectory {
        offset: u64,
        len: u32,
    },
    FileSystemStatus,
    /// A request that succeeds without any work: closing a file or a directory, `fsync` of a
    /// directory.
    Nothing,
    /// The kernel no longer references these nodes. Has no reply.
    Forget,
    /// The thread of the request with this identifier has a pending signal. Has no reply.
    Interrupt {
        unique: u64,
    },
    /// A change to the directory.
    ChangeDirectory,
    /// A request that the front end does not support.
    Unknown,
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let field = bytes.get(at..at + 4)?;
    Some(u32::from_ne_bytes(field.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let field = bytes.get(at..at + 8)?;
    Some(u64::from_ne_bytes(field.try_into().ok()?))
}

fn flags_at(bytes: &[u8], at: usize) -> Option<OFlags> {
    u32_at(bytes, at).map(OFlags::from_bits_retain)
}

impl Header {
    /// Length of the header in bytes.
    const BYTES: usize = 40;

    /// Parses the header; also returns the rest of the message. `None` if the message is shorter
    /// than its length field.
    pub(super) fn parse(message: &[u8]) -> Option<(Self, &[u8])> {
        let header = Self {
            opcode: u32_at(message, 4)?,
            unique: u64_at(message, 8)?,
            node: u64_at(message, 16)?,
            user: u32_at(message, 24)?,
            thread: u32_at(message, 32)?,
        };
        let len = usize::try_from(u32_at(message, 0)?).ok()?;
        Some((header, message.get(Self::BYTES..len)?))
    }
}

impl<'a> Request<'a> {
    /// Parses the request after a header; `None` if it is too short for its opcode.
    pub(super) fn parse(header: &Header, body: &'a [u8]) -> Option<Self> {
        Some(match header.opcode {
            1 => Self::Lookup {
                name: body.strip_suffix(&[0])?,
            },
            2 | 42 => Self::Forget,
            3 => Self::GetAttributes,
            4 => {
                let valid = u32_at(body, 0)?;
                Self::SetAttributes {
                    identity: valid & 7 != 0,
                    size: (valid & 8 != 0).then_some(u64_at(body, 16)?),
                    modified: match (valid & 1 << 5, valid & 1 << 8) {
                        (0, _) => None,
                        (_, 0) => {
                            let seconds = Duration::from_secs(u64_at(body, 40)?);
                            let part = Duration::from_nanos(u32_at(body, 60)?.into());
                            Some(NewTime::At(seconds.saturating_add(part)))
                        }
                        _ => Some(NewTime::Now),
                    },
                    accessed: valid & (1 << 4 | 1 << 7) != 0,
                }
            }
            // SYMLINK, MKNOD, MKDIR, UNLINK, RMDIR, RENAME, LINK, CREATE, RENAME2.
            6 | 8..=13 | 35 | 45 => Self::ChangeDirectory,
            14 => Self::Open {
                flags: flags_at(body, 0)?,
            },
            15 => Self::Read {
                offset: u64_at(body, 8)?,
                len: u32_at(body, 16)?,
            },
            16 => Self::write(body)?,
            17 => Self::FileSystemStatus,
            18 => Self::Release {
                handle: u64_at(body, 0)?,
            },
            20 => Self::Sync {
                handle: u64_at(body, 0)?,
            },
            // A completed write is already on the device, so a close does nothing.
            25 | 29 | 30 | 38 => Self::Nothing,
            26 => Self::init(body)?,
            27 => Self::OpenDirectory,
            28 => Self::ReadDirectory {
                offset: u64_at(body, 8)?,
                len: u32_at(body, 16)?,
            },
            36 => Self::Interrupt {
                unique: u64_at(body, 0)?,
            },
            43 => Self::Allocate {
                offset: u64_at(body, 8)?,
                len: u64_at(body, 16)?,
                mode: u32_at(body, 24)?,
            },
            _ => Self::Unknown,
        })
    }

    fn write(body: &'a [u8]) -> Option<Self> {
        let len = usize::try_from(u32_at(body, 16)?).ok()?;
        let data = body.get(WRITE_HEADER_BYTES - Header::BYTES..)?;
        Some(Self::Write {
            offset: u64_at(body, 8)?,
            flags: flags_at(body, 32)?,
            of_cache: u32_at(body, 20)? & WRITE_OF_CACHE != 0,
            data: data.get(..len)?,
        })
    }

    fn init(body: &[u8]) -> Option<Self> {
        let mut capabilities = u64::from(u32_at(body, 12)?);
        if capabilities & capability::EXTENDED != 0 {
            capabilities |= u64::from(u32_at(body, 16)?) << 32;
        }
        Some(Self::Init {
            version: (u32_at(body, 0)?, u32_at(body, 4)?),
            readahead: u32_at(body, 8)?,
            capabilities,
        })
    }
}

/// The new value of a file time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NewTime {
    Now,
    /// Time since the Unix epoch.
    At(Duration),
}

/// Attributes of a file or of the directory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attributes {
    pub(super) node: u64,
    pub(super) bytes: u64,
    /// File type and permissions.
    pub(super) mode: u32,
    pub(super) links: u32,
    pub(super) owner: (u32, u32),
    /// Times of the last content change and of the last change of any kind, since the Unix epoch.
    pub(super) modified: Duration,
    pub(super) changed: Duration,
}

/// The body of a reply.
#[derive(Debug, Default)]
pub(super) struct Answer(Vec<u8>);

impl Answer {
    /// The bytes after the reply header.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn u16(mut self, value: u16) -> Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    fn zeroes(mut self, bytes: usize) -> Self {
        self.0.resize(self.0.len() + bytes, 0);
        self
    }

    /// Replies to INIT (`struct fuse_init_out`) with the supported subset of the kernel's
    /// capabilities. A page is `page_bytes` bytes.
    pub(super) fn init(readahead: u32, capabilities: u64, page_bytes: u32) -> Self {
        let pages = (REQUEST_MAX_BYTES / page_bytes).max(1);
        let both = capabilities & capability::USED;
        let word = |bits: u64| u32::try_from(bits & u64::from(u32::MAX)).expect("it is one word");
        Self::default()
            .u32(VERSION.0)
            .u32(VERSION.1)
            .u32(readahead.min(REQUEST_MAX_BYTES))
            .u32(word(both))
            .u16(BACKGROUND_MAX)
            .u16(CONGESTION_THRESHOLD)
            .u32(REQUEST_MAX_BYTES)
            // Granularity of times in nanoseconds.
            .u32(1)
            .u16(u16::try_from(pages).unwrap_or(u16::MAX))
            .u16(0)
            .u32(word(both >> 32))
            .zeroes(28)
    }

    /// Replies to INIT from a newer major version: the kernel repeats INIT with this version.
    pub(super) fn version() -> Self {
        Self::default().u32(VERSION.0).u32(VERSION.1).zeroes(56)
    }

    fn with_attributes(self, attributes: &Attributes) -> Self {
        self.u64(attributes.node)
            .u64(attributes.bytes)
            .u64(attributes.bytes / 512)
            // The access time is reported as the modification time.
            .u64(attributes.modified.as_secs())
            .u64(attributes.modified.as_secs())
            .u64(attributes.changed.as_secs())
            .u32(attributes.modified.subsec_nanos())
            .u32(attributes.modified.subsec_nanos())
            .u32(attributes.changed.subsec_nanos())
            .u32(attributes.mode)
            .u32(attributes.links)
            .u32(attributes.owner.0)
            .u32(attributes.owner.1)
            .u32(0)
            .u32(4096)
            .u32(0)
    }

    /// Replies to LOOKUP (`struct fuse_entry_out`).
    pub(super) fn entry(attributes: &Attributes) -> Self {
        let seconds = ATTRIBUTES_AGE.as_secs();
        let entry = Self::default().u64(attributes.node).u64(0);
        let valid = entry.u64(seconds).u64(seconds).zeroes(8);
        valid.with_attributes(attributes)
    }

    /// Replies to GETATTR or SETATTR (`struct fuse_attr_out`).
    pub(super) fn attributes(attributes: &Attributes) -> Self {
        let valid = Self::default().u64(ATTRIBUTES_AGE.as_secs()).zeroes(8);
        valid.with_attributes(attributes)
    }

    /// Replies to OPEN (`struct fuse_open_out`) with a handle and flags of [`opened`].
    pub(super) fn open(handle: u64, bits: u32) -> Self {
        Self::default().u64(handle).u32(bits).zeroes(4)
    }

    /// Replies to WRITE with the number of bytes written (`struct fuse_write_out`).
    pub(super) fn written(bytes: u32) -> Self {
        Self::default().u32(bytes).zeroes(4)
    }

    /// Replies to STATFS (`struct fuse_statfs_out`) with the total in sectors of 512 bytes and the
    /// number of files.
    pub(super) fn status(sectors: u64, files: u64) -> Self {
        let counts = Self::default().u64(sectors).zeroes(16).u64(files).zeroes(8);
        counts.u32(512).u32(255).u32(512).zeroes(28)
    }

    /// Adds an entry to a READDIR reply (`struct fuse_dirent`) of at most `most` bytes; returns
    /// false if it does not fit. `next` is the offset of the entry after it.
    pub(super) fn add(&mut self, node: u64, next: u64, mode: u32, name: &str, most: usize) -> bool {
        const HEADER_BYTES: usize = 24;
        let end = self.0.len() + (HEADER_BYTES + name.len()).next_multiple_of(8);
        if end > most {
            return false;
        }
        let name_bytes = u32::try_from(name.len()).expect("names are short");
        let header = std::mem::take(self).u64(node).u64(next);
        *self = header.u32(name_bytes).u32(mode >> 12);
        self.0.extend(name.as_bytes());
        self.0.resize(end, 0);
        true
    }
}

/// Returns the reply header for a body of `bytes` bytes (`struct fuse_out_header`); `errno` is the
/// kernel's error number, 0 for success.
pub(super) fn answer_header(unique: u64, errno: i32, bytes: usize) -> [u8; 16] {
    let mut header = [0; 16];
    let len = u32::try_from(header.len() + bytes).expect("an answer is bounded");
    header[..4].copy_from_slice(&len.to_ne_bytes());
    header[4..8].copy_from_slice(&(-errno).to_ne_bytes());
    header[8..].copy_from_slice(&unique.to_ne_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds a message from the kernel with the words of its body.
    fn message(opcode: u32, body: &[u8]) -> Vec<u8> {
        let len = u32::try_from(Header::BYTES + body.len()).expect("short");
        let header = Answer::default().u32(len).u32(opcode).u64(77).u64(2);
        let header = header.u32(1000).u32(100).u32(4321).zeroes(4);
        [header.bytes(), body].concat()
    }

    fn parse(message: &[u8]) -> Option<(Header, Request<'_>)> {
        let (header, body) = Header::parse(message)?;
        Some((header, Request::parse(&header, body)?))
    }

    static DATA: [u8; 512] = [9; 512];
    const DIRECT: OFlags = OFlags::DIRECT;

    /// Bodies of data requests, with the expected parse results.
    fn requests_for_data() -> Vec<(u32, Vec<u8>, Request<'static>)> {
        let read = Answer::default().u64(3).u64(8192).u32(4096).zeroes(20);
        let write = Answer::default().u64(3).u64(4096).u32(512).u32(1).u64(5);
        let write = write.u32(DIRECT.bits()).u32(0);
        let allocate = Answer::default().u64(3).u64(512).u64(1024).u32(2).u32(0);
        let (offset, len) = (8192, 4096);
        let read_of = Request::Read { offset, len };
        let write_of = Request::Write {
            offset: 4096,
            flags: DIRECT,
            of_cache: true,
            data: &DATA,
        };
        let (offset, len, mode) = (512, 1024, 2);
        let allocate_of = Request::Allocate { offset, len, mode };
        vec![
            (15, read.0, read_of),
            (16, [write.bytes(), &DATA].concat(), write_of),
            (43, allocate.0, allocate_of),
        ]
    }

    /// Bodies of all other requests, with the expected parse results.
    fn other_requests() -> Vec<(u32, Vec<u8>, Request<'static>)> {
        let init = Answer::default()
            .u32(7)
            .u32(41)
            .u32(1 << 17)
            .u32(1 << 30 | 1);
        let init = init.u32(1 << 4).zeroes(44);
        let init_of = Request::Init {
            version: (7, 41),
            readahead: 1 << 17,
            capabilities: 1 << 36 | 1 << 30 | 1,
        };
        let set = Answer::default().u32(8 | 1 << 5 | 1 << 6).u32(0).u64(3);
        let set = set.u64(99).zeroes(16).u64(1234).zeroes(12).u32(5);
        let set_of = Request::SetAttributes {
            identity: false,
            size: Some(99),
            modified: Some(NewTime::At(Duration::new(1234, 5))),
            accessed: false,
        };
        let open = Answer::default().u32(DIRECT.bits());
        let interrupt = Answer::default().u64(12);
        vec![
            (1, b"1\0".to_vec(), Request::Lookup { name: b"1" }),
            (4, set.zeroes(24).0, set_of),
            (14, open.0, Request::Open { flags: DIRECT }),
            (26, init.0, init_of),
            (36, interrupt.0, Request::Interrupt { unique: 12 }),
            (4711, vec![1, 2, 3], Request::Unknown),
        ]
    }

    #[test]
    fn requests_are_read_and_cut_ones_refused() {
        for (opcode, body, expected) in [requests_for_data(), other_requests()].concat() {
            let whole = message(opcode, &body);
            let (header, request) = parse(&whole).expect("whole");
            assert!(request == expected, "opcode {opcode}");
            assert_eq!((header.unique, header.node), (77, 2));
            assert_eq!((header.user, header.thread), (1000, 4321));
            for len in 0..whole.len() {
                assert!(
                    parse(&whole[..len]).is_none(),
                    "opcode {opcode}, {len} bytes"
                );
                // A message whose length field matches the shortened length is parsed within its
                // bytes.
                let mut cut = whole.clone();
                cut[..4].copy_from_slice(&u32::try_from(len).expect("short").to_ne_bytes());
                let _ = parse(&cut);
            }
        }
    }

    #[test]
    fn answers_have_the_sizes_of_the_kernel() {
        let attributes = Attributes {
            node: 2,
            bytes: 1024,
            mode: 0o100_600,
            links: 1,
            owner: (1, 2),
            modified: Duration::new(3, 4),
            changed: Duration::new(5, 6),
        };
        let sizes = [
            (Answer::init(1 << 20, u64::MAX, 4096), 64),
            (Answer::version(), 64),
            (Answer::entry(&attributes), 128),
            (Answer::attributes(&attributes), 104),
            (Answer::open(1, 0), 16),
            (Answer::written(512), 8),
            (Answer::status(2, 1), 80),
        ];
        for (answer, bytes) in sizes {
            assert_eq!(answer.bytes().len(), bytes);
        }
        let mut list = Answer::default();
        assert!(list.add(1, 1, 0o040_000, ".", 64));
        assert!(list.add(2, 2, 0o100_000, "123456789", 72));
        assert!(!list.add(3, 3, 0o100_000, "1", 72));
        assert_eq!(list.bytes().len(), 32 + 40);
        let header = answer_header(7, 5, 100);
        assert_eq!(u32_at(&header, 0), Some(116));
        assert_eq!(u32_at(&header, 4).map(u32::cast_signed), Some(-5));
        assert_eq!(u64_at(&header, 8), Some(7));
    }
}
