//! Constants and headers of the NBD protocol. `[NBD]` is its specification, `doc/proto.md` of the
//! NBD project. All integers are big-endian.

use block::{BlockError, Operation};
use serde::{Deserialize, Serialize};

/// First word from a server. `[NBD "Newstyle negotiation"]`
pub(super) const NBD_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// Second word from a server, and first word of every option.
pub(super) const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// First word of a reply to an option.
pub(super) const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;

const REQUEST_MAGIC: u32 = 0x2560_9513;
const EXTENDED_REQUEST_MAGIC: u32 = 0x21e4_1c71;
const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
const CHUNK_MAGIC: u32 = 0x668e_33ef;
const EXTENDED_CHUNK_MAGIC: u32 = 0x6e8a_278c;

/// Handshake flags of both sides: fixed newstyle, and no 124 zero bytes after `EXPORT_NAME`.
pub(super) const FIXED_NEWSTYLE: u16 = 1;
pub(super) const NO_ZEROES: u16 = 2;

/// Options of a client. `[NBD "Option types"]`
pub(super) mod option {
    pub(in crate::nbd) const EXPORT_NAME: u32 = 1;
    pub(in crate::nbd) const ABORT: u32 = 2;
    pub(in crate::nbd) const LIST: u32 = 3;
    pub(in crate::nbd) const STARTTLS: u32 = 5;
    pub(in crate::nbd) const INFO: u32 = 6;
    pub(in crate::nbd) const GO: u32 = 7;
    pub(in crate::nbd) const STRUCTURED_REPLY: u32 = 8;
    pub(in crate::nbd) const LIST_META_CONTEXT: u32 = 9;
    pub(in crate::nbd) const SET_META_CONTEXT: u32 = 10;
    pub(in crate::nbd) const EXTENDED_HEADERS: u32 = 11;
}

/// Replies to options. `[NBD "Option reply types"]`
pub(super) mod reply {
    pub(in crate::nbd) const ACK: u32 = 1;
    pub(in crate::nbd) const SERVER: u32 = 2;
    pub(in crate::nbd) const INFO: u32 = 3;
    pub(in crate::nbd) const META_CONTEXT: u32 = 4;
    pub(in crate::nbd) const ERR_UNSUP: u32 = 1 << 31 | 1;
    pub(in crate::nbd) const ERR_INVALID: u32 = 1 << 31 | 3;
    pub(in crate::nbd) const ERR_TLS_REQD: u32 = 1 << 31 | 5;
    pub(in crate::nbd) const ERR_UNKNOWN: u32 = 1 << 31 | 6;
}

/// Kinds of information about an export. `[NBD "NBD_OPT_INFO"]`
pub(super) mod info {
    pub(in crate::nbd) const EXPORT: u16 = 0;
    pub(in crate::nbd) const NAME: u16 = 1;
    pub(in crate::nbd) const DESCRIPTION: u16 = 2;
    pub(in crate::nbd) const BLOCK_SIZE: u16 = 3;
}

/// Transmission flags. `[NBD "Transmission flags"]`
pub(super) mod flag {
    pub(in crate::nbd) const HAS_FLAGS: u16 = 1;
    pub(in crate::nbd) const READ_ONLY: u16 = 1 << 1;
    pub(in crate::nbd) const SEND_FLUSH: u16 = 1 << 2;
    pub(in crate::nbd) const SEND_FUA: u16 = 1 << 3;
    pub(in crate::nbd) const SEND_TRIM: u16 = 1 << 5;
    pub(in crate::nbd) const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub(in crate::nbd) const SEND_DF: u16 = 1 << 7;
    pub(in crate::nbd) const CAN_MULTI_CONN: u16 = 1 << 8;
}

/// Request types. `[NBD "Request types"]`
pub(super) mod command {
    pub(in crate::nbd) const READ: u16 = 0;
    pub(in crate::nbd) const WRITE: u16 = 1;
    pub(in crate::nbd) const DISCONNECT: u16 = 2;
    pub(in crate::nbd) const FLUSH: u16 = 3;
    pub(in crate::nbd) const TRIM: u16 = 4;
    pub(in crate::nbd) const WRITE_ZEROES: u16 = 6;
    pub(in crate::nbd) const BLOCK_STATUS: u16 = 7;
}

/// Returns true for requests that change the device.
pub(super) const fn writes(command: u16) -> bool {
    matches!(
        command,
        command::WRITE | command::TRIM | command::WRITE_ZEROES
    )
}

/// Flags of requests. `[NBD "Command flags"]`
pub(super) mod command_flag {
    pub(in crate::nbd) const FUA: u16 = 1;
    pub(in crate::nbd) const NO_HOLE: u16 = 1 << 1;
    pub(in crate::nbd) const DONT_FRAGMENT: u16 = 1 << 2;
    pub(in crate::nbd) const REQ_ONE: u16 = 1 << 3;
    pub(in crate::nbd) const PAYLOAD_LEN: u16 = 1 << 5;
}

/// Types of the chunks of a structured reply. `[NBD "Structured reply types"]`
mod chunk {
    pub(super) const NONE: u16 = 0;
    pub(super) const OFFSET_DATA: u16 = 1;
    pub(super) const BLOCK_STATUS: u16 = 5;
    pub(super) const BLOCK_STATUS_EXT: u16 = 6;
    pub(super) const ERROR: u16 = 1 << 15 | 1;
    /// The last chunk of the reply.
    pub(super) const DONE: u16 = 1;
}

/// Error values of replies. `[NBD "Error values"]`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum NbdError {
    /// Not permitted.
    Permission = 1,
    /// The device failed.
    Io = 5,
    /// The request is invalid.
    Invalid = 22,
    /// Beyond the end, or out of space.
    NoSpace = 28,
    /// The device does not support the operation.
    NotSupported = 95,
}

impl NbdError {
    /// Returns the value for a device's error.
    pub(super) const fn of(error: BlockError, writes: bool) -> Self {
        match error {
            // The specification requires ENOSPC for writes beyond the end, and EINVAL for reads.
            BlockError::OutOfRange if writes => Self::NoSpace,
            BlockError::OutOfRange | BlockError::Malformed => Self::Invalid,
            // Clients then write zeroes themselves.
            BlockError::Unsupported => Self::NotSupported,
            BlockError::ReadOnly | BlockError::Denied => Self::Permission,
            BlockError::NoSpace => Self::NoSpace,
            BlockError::ReadFailure
            | BlockError::WriteFailure
            | BlockError::CacheLost
            | BlockError::CompareFailure
            | BlockError::Corrupt
            | BlockError::Aborted
            | BlockError::Gone
            | BlockError::TimedOut
            | BlockError::Internal => Self::Io,
        }
    }
}

/// The form of headers and replies that a client negotiated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Form {
    /// 28-byte requests, simple replies.
    Simple,
    /// 28-byte requests, structured replies.
    Structured,
    /// 32-byte requests, structured replies with 64-bit lengths.
    Extended,
}

/// A request's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestHeader {
    pub(super) flags: u16,
    pub(super) command: u16,
    pub(super) cookie: u64,
    pub(super) offset: u64,
    pub(super) length: u64,
}

impl RequestHeader {
    /// Bytes of a header.
    pub(super) const fn bytes(form: Form) -> usize {
        match form {
            Form::Simple | Form::Structured => 28,
            Form::Extended => 32,
        }
    }

    /// Parses a header; `None` if the bytes are not a header.
    ///
    /// # Panics If there are fewer bytes than a header has.
    pub(super) fn decode(form: Form, bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(&bytes[..Self::bytes(form)]);
        let magic = reader.u32()?;
        let header = Self {
            flags: reader.u16()?,
            command: reader.u16()?,
            cookie: reader.u64()?,
            offset: reader.u64()?,
            length: match form {
                Form::Simple | Form::Structured => reader.u32()?.into(),
                Form::Extended => reader.u64()?,
            },
        };
        let expected = match form {
            Form::Simple | Form::Structured => REQUEST_MAGIC,
            Form::Extended => EXTENDED_REQUEST_MAGIC,
        };
        (magic == expected).then_some(header)
    }

    /// Writes the header as the client sent it.
    pub(super) fn encode(&self, form: Form, writer: &mut Writer) {
        writer.u32(match form {
            Form::Simple | Form::Structured => REQUEST_MAGIC,
            Form::Extended => EXTENDED_REQUEST_MAGIC,
        });
        writer.u16(self.flags).u16(self.command).u64(self.cookie);
        writer.u64(self.offset);
        match form {
            Form::Simple | Form::Structured => {
                writer.u32(u32::try_from(self.length).expect("it came with 32 bits"))
            }
            Form::Extended => writer.u64(self.length),
        };
    }

    /// Returns true if data follows the header.
    pub(super) const fn has_payload(&self, form: Form) -> bool {
        let declared = self.flags & command_flag::PAYLOAD_LEN != 0;
        self.command == command::WRITE || (declared && matches!(form, Form::Extended))
    }

    /// Returns true if the request must be on stable storage when it completes.
    pub(super) const fn is_durable(&self) -> bool {
        self.flags & command_flag::FUA != 0
    }

    /// Returns the operation of a read, write, flush, trim or write-zeroes request.
    pub(super) const fn operation(&self) -> Operation {
        let durable = self.is_durable();
        let deallocate = self.flags & command_flag::NO_HOLE == 0;
        match self.command {
            command::READ => Operation::Read,
            command::WRITE => Operation::Write { durable },
            command::FLUSH => Operation::Flush,
            command::TRIM if !durable => Operation::Deallocate,
            // Trim has no durable form; write zeroes with deallocation has one.
            command::TRIM => Operation::WriteZeroes {
                deallocate: true,
                durable,
            },
            _ => Operation::WriteZeroes {
                deallocate,
                durable,
            },
        }
    }
}

/// Parses integers and ranges from the front of a byte slice.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(front)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// Parses a string that follows its length in 32 bits.
    pub(super) fn string(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.u32()?).ok()?;
        self.take(len)
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Appends integers and bytes.
#[derive(Debug, Default)]
pub(super) struct Writer(pub(super) Vec<u8>);

#[expect(clippy::big_endian_bytes, reason = "NBD is big-endian")]
impl Writer {
    pub(super) fn u16(&mut self, value: u16) -> &mut Self {
        self.bytes(&value.to_be_bytes())
    }

    pub(super) fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_be_bytes())
    }

    pub(super) fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes(&value.to_be_bytes())
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// The reply to an option.
    pub(super) fn option_reply(&mut self, option: u32, kind: u32, data: &[u8]) {
        let len = u32::try_from(data.len()).expect("a reply is short");
        self.u64(OPTION_REPLY_MAGIC).u32(option).u32(kind);
        self.u32(len).bytes(data);
    }
}

/// Maximum bytes of a reply without its data.
pub(super) const REPLY_HEADER_MAX: usize = 32 + 32;

/// Writes the header of a reply into `writer`; the data of a read follows it.
#[derive(Debug)]
pub(super) struct Replies {
    pub(super) form: Form,
}

impl Replies {
    /// Completes a request without data.
    pub(super) fn done(&self, writer: &mut Writer, cookie: u64, offset: u64) {
        match self.form {
            Form::Simple => simple(writer, 0, cookie),
            _ => self.chunk(writer, chunk::NONE, cookie, offset, 0),
        }
    }

    /// Completes a read; `length` bytes follow.
    pub(super) fn data(&self, writer: &mut Writer, cookie: u64, offset: u64, length: u64) {
        if self.form == Form::Simple {
            return simple(writer, 0, cookie);
        }
        self.chunk(writer, chunk::OFFSET_DATA, cookie, offset, 8 + length);
        writer.u64(offset);
    }

    /// Completes a failed request.
    pub(super) fn error(&self, writer: &mut Writer, cookie: u64, offset: u64, error: NbdError) {
        if self.form == Form::Simple {
            return simple(writer, error as u32, cookie);
        }
        self.chunk(writer, chunk::ERROR, cookie, offset, 6);
        writer.u32(error as u32).u16(0);
    }

    /// Reports the range as a single allocated extent of `base:allocation`.
    pub(super) fn allocated(
        &self,
        writer: &mut Writer,
        cookie: u64,
        (offset, length): (u64, u64),
        context: u32,
    ) {
        if self.form == Form::Extended {
            self.chunk(writer, chunk::BLOCK_STATUS_EXT, cookie, offset, 24);
            writer.u32(context).u32(1).u64(length).u64(0);
        } else {
            let length = u32::try_from(length).expect("a request of 32 bits");
            self.chunk(writer, chunk::BLOCK_STATUS, cookie, offset, 12);
            writer.u32(context).u32(length).u32(0);
        }
    }

    fn chunk(&self, writer: &mut Writer, kind: u16, cookie: u64, offset: u64, length: u64) {
        if self.form == Form::Extended {
            writer.u32(EXTENDED_CHUNK_MAGIC).u16(chunk::DONE).u16(kind);
            writer.u64(cookie).u64(offset).u64(length);
        } else {
            let length = u32::try_from(length).expect("a reply is bounded");
            writer.u32(CHUNK_MAGIC).u16(chunk::DONE).u16(kind);
            writer.u64(cookie).u32(length);
        }
    }
}

fn simple(writer: &mut Writer, error: u32, cookie: u64) {
    writer.u32(SIMPLE_REPLY_MAGIC).u32(error).u64(cookie);
}

/// The options that a client negotiated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Session {
    /// Index of the export.
    pub(super) export: usize,
    /// Form of requests and replies.
    pub(super) form: Form,
    /// The client requested the context `base:allocation`.
    pub(super) allocation: bool,
}
