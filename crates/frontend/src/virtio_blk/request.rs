//! One request: header, data segments, and status byte.

use super::{DESCRIPTORS_MAX, RANGE_SECTORS_MAX, SECTOR_BYTES, SEGMENTS_KEPT};
use switch::Class;
use virtio_bindings::virtio_blk::{
    VIRTIO_BLK_S_IOERR, VIRTIO_BLK_S_OK, VIRTIO_BLK_S_UNSUPP, VIRTIO_BLK_T_DISCARD,
    VIRTIO_BLK_T_FLUSH, VIRTIO_BLK_T_GET_ID, VIRTIO_BLK_T_IN, VIRTIO_BLK_T_OUT,
    VIRTIO_BLK_T_WRITE_ZEROES, VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP,
};
use virtio_queue::DescriptorChain;
use vm_memory::{Address as _, Bytes as _, GuestAddress, GuestMemory, Permissions};

/// Bytes of a request's header. `[virtio 1.2 §5.2.6]`
const HEADER_BYTES: usize = 16;

/// Bytes of the range of a discard or write-zeroes request. `[virtio 1.2 §5.2.6]`
const RANGE_BYTES: usize = 16;

/// The status of a request. `[virtio 1.2 §5.2.6]`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The request succeeded.
    Ok,
    /// The request failed or is invalid.
    IoError,
    /// The type or a flag of the request is not supported.
    Unsupported,
}

impl Status {
    /// Returns the status byte for the driver.
    #[must_use]
    pub const fn byte(self) -> u8 {
        let code = match self {
            Self::Ok => VIRTIO_BLK_S_OK,
            Self::IoError => VIRTIO_BLK_S_IOERR,
            Self::Unsupported => VIRTIO_BLK_S_UNSUPP,
        };
        code.to_le_bytes()[0]
    }
}

/// A piece of guest memory, within the guest's address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its first byte.
    pub address: GuestAddress,
    /// Its length in bytes; at least 1.
    pub len: u32,
}

/// The work of a request. Offsets and lengths are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Read from the device into the segments.
    Read {
        /// First byte.
        offset: u64,
        /// Total length of the segments.
        bytes: u64,
    },
    /// Write the segments to the device.
    Write {
        /// First byte.
        offset: u64,
        /// Total length of the segments.
        bytes: u64,
    },
    /// Put all writes on stable storage.
    Flush,
    /// Write the device's name into the segments.
    GetId,
    /// Deallocate the range.
    Discard {
        /// First byte.
        offset: u64,
        /// Length.
        bytes: u64,
    },
    /// Write zeroes to the range.
    WriteZeroes {
        /// First byte.
        offset: u64,
        /// Length.
        bytes: u64,
        /// The device may deallocate the range.
        unmap: bool,
    },
}

/// A request from the driver.
#[derive(Debug)]
pub struct Request {
    /// The index of the chain's head, for the used ring.
    pub head: u16,
    /// The I/O priority of the submitting process, as Linux guests set it.
    pub priority: u32,
    /// The work, or the status with which the request is refused.
    pub command: Result<Command, Status>,
    /// The data segments, in order; empty for a command without data.
    pub data: Vec<Segment>,
    /// The address of the status byte.
    pub status: GuestAddress,
}

impl Request {
    /// Returns the class for the I/O priority: real-time is `Latency`. `[blk-switch §3, ionice]`
    #[must_use]
    pub fn class(&self) -> Class {
        u16::try_from(self.priority).map_or(Class::DEFAULT, Class::from_io_priority)
    }
}

/// A chain that cannot be completed: its status byte is missing or unreachable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The chain loops, leaves its table, is too long, or has a misplaced indirect table.
    #[error("a descriptor chain has a loop, an index out of range, or too many descriptors")]
    Chain,
    /// The chain has no device-writable byte.
    #[error("a descriptor chain has no writable byte for the status")]
    NoStatus,
    /// The status byte is outside the guest's memory.
    #[error("the status byte of a request is outside guest memory")]
    Outside,
}

/// The descriptors of a chain, split into readable and writable segments.
struct Parts {
    readable: Vec<Segment>,
    writable: Vec<Segment>,
}

/// Parses the request of a chain. `data` and `other` are vectors for reuse; the request takes the
/// first.
///
/// # Errors [`Malformed`] if the request cannot be completed: its queue is then broken. Any other
/// error of the request is in its [`command`](Request::command).
pub fn parse<M>(
    mut chain: DescriptorChain<&M>,
    memory: &M,
    data: Vec<Segment>,
    other: &mut Vec<Segment>,
) -> Result<Request, Malformed>
where
    M: GuestMemory,
{
    let head = chain.head_index();
    let mut parts = Parts {
        readable: std::mem::take(other),
        writable: data,
    };
    parts.readable.clear();
    parts.writable.clear();
    let sorted = parts.sort(&mut chain);
    let status = sorted.and_then(|()| parts.take_status(memory));
    let status = match status {
        Ok(status) => status,
        Err(malformed) => {
            *other = parts.readable;
            return Err(malformed);
        }
    };
    let mut header = [0; HEADER_BYTES];
    let read = parts.take_readable(&mut header, memory);
    let field = |at: usize| {
        let bytes = header[at..at + 4].try_into().expect("four bytes");
        u32::from_le_bytes(bytes)
    };
    let (kind, priority) = (field(0), field(4));
    let sector = u64::from(field(12)) << 32 | u64::from(field(8));
    let command = read.and_then(|()| parts.command(kind, sector, memory));
    let writes = matches!(command, Ok(Command::Write { .. }));
    let (mut data, rest) = if writes {
        (parts.readable, parts.writable)
    } else {
        (parts.writable, parts.readable)
    };
    *other = rest;
    if !matches!(
        command,
        Ok(Command::Read { .. } | Command::Write { .. } | Command::GetId)
    ) {
        data.clear();
        // A guest can queue many requests, each with any number of descriptors.
        if data.capacity() > SEGMENTS_KEPT {
            data = Vec::new();
        }
    }
    Ok(Request {
        head,
        priority,
        command,
        data,
        status,
    })
}

impl Parts {
    /// Walks the chain. Descriptors of length 0 are skipped.
    fn sort<M: GuestMemory>(&mut self, chain: &mut DescriptorChain<&M>) -> Result<(), Malformed> {
        let mut complete = false;
        for (count, descriptor) in chain.enumerate() {
            if count >= DESCRIPTORS_MAX {
                return Err(Malformed::Chain);
            }
            complete = !descriptor.has_next();
            if descriptor.len() == 0 {
                continue;
            }
            let segments = if descriptor.is_write_only() {
                &mut self.writable
            } else {
                &mut self.readable
            };
            segments.push(Segment {
                address: descriptor.addr(),
                len: descriptor.len(),
            });
        }
        // The walk stops at the first error.
        complete.then_some(()).ok_or(Malformed::Chain)
    }

    /// Removes the last device-writable byte, which is the status. `[virtio 1.2 §5.2.6]`
    fn take_status<M: GuestMemory>(&mut self, memory: &M) -> Result<GuestAddress, Malformed> {
        let last = self.writable.last_mut().ok_or(Malformed::NoStatus)?;
        last.len -= 1;
        let status = last.address.checked_add(last.len.into());
        let status = status.ok_or(Malformed::Outside)?;
        if last.len == 0 {
            self.writable.pop();
        }
        let reachable = memory.check_range(status, 1, Permissions::Write);
        reachable.then_some(status).ok_or(Malformed::Outside)
    }

    /// Copies the first bytes of the readable part, however they are segmented, and removes them
    /// from it.
    fn take_readable<M: GuestMemory>(&mut self, out: &mut [u8], memory: &M) -> Result<(), Status> {
        let mut filled = 0;
        let mut spent = 0;
        for segment in &mut self.readable {
            let len = (out.len() - filled).min(segment.len as usize);
            let piece = &mut out[filled..filled + len];
            let read = memory.read_slice(piece, segment.address);
            read.map_err(|_| Status::IoError)?;
            filled += len;
            let taken = u32::try_from(len).expect("at most a segment");
            segment.len -= taken;
            let rest = segment.address.checked_add(taken.into());
            segment.address = rest.ok_or(Status::IoError)?;
            if segment.len > 0 {
                break;
            }
            spent += 1;
            if filled == out.len() {
                break;
            }
        }
        self.readable.drain(..spent);
        if filled == out.len() {
            Ok(())
        } else {
            Err(Status::IoError)
        }
    }

    fn command<M: GuestMemory>(
        &mut self,
        kind: u32,
        sector: u64,
        memory: &M,
    ) -> Result<Command, Status> {
        let offset = || sector.checked_mul(SECTOR_BYTES).ok_or(Status::IoError);
        match kind {
            VIRTIO_BLK_T_IN => Ok(Command::Read {
                offset: offset()?,
                bytes: check(&self.writable, memory, Permissions::Write)?,
            }),
            VIRTIO_BLK_T_OUT => Ok(Command::Write {
                offset: offset()?,
                bytes: check(&self.readable, memory, Permissions::Read)?,
            }),
            VIRTIO_BLK_T_FLUSH => Ok(Command::Flush),
            VIRTIO_BLK_T_GET_ID => {
                check(&self.writable, memory, Permissions::Write)?;
                Ok(Command::GetId)
            }
            VIRTIO_BLK_T_DISCARD | VIRTIO_BLK_T_WRITE_ZEROES => self.range(kind, memory),
            _ => Err(Status::Unsupported),
        }
    }

    /// Parses the single range of a discard or write-zeroes request. `[virtio 1.2 §5.2.6]`
    fn range<M: GuestMemory>(&mut self, kind: u32, memory: &M) -> Result<Command, Status> {
        let mut range = [0; RANGE_BYTES];
        self.take_readable(&mut range, memory)?;
        if !self.readable.is_empty() {
            // The configuration space allows one range only.
            return Err(Status::IoError);
        }
        let field = |at: usize| {
            let bytes = range[at..at + 4].try_into().expect("four bytes");
            u32::from_le_bytes(bytes)
        };
        let sector = u64::from(field(4)) << 32 | u64::from(field(0));
        let (sectors, flags) = (field(8), field(12));
        let unmap = flags & VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP != 0;
        let discard = kind == VIRTIO_BLK_T_DISCARD;
        if flags & !VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP != 0 || (discard && unmap) {
            return Err(Status::Unsupported);
        }
        if sectors > RANGE_SECTORS_MAX {
            return Err(Status::IoError);
        }
        let offset = sector.checked_mul(SECTOR_BYTES).ok_or(Status::IoError)?;
        let bytes = u64::from(sectors) * SECTOR_BYTES;
        if discard {
            Ok(Command::Discard { offset, bytes })
        } else {
            Ok(Command::WriteZeroes {
                offset,
                bytes,
                unmap,
            })
        }
    }
}

/// Returns the total length of the segments after checking that they are in the guest's memory.
fn check<M: GuestMemory>(
    segments: &[Segment],
    memory: &M,
    access: Permissions,
) -> Result<u64, Status> {
    let bytes = segments.iter().map(|segment| u64::from(segment.len)).sum();
    let inside = |segment: &Segment| {
        let len = usize::try_from(segment.len).expect("32 bits");
        memory.check_range(segment.address, len, access)
    };
    let all_inside = segments.iter().all(inside);
    all_inside.then_some(bytes).ok_or(Status::IoError)
}
