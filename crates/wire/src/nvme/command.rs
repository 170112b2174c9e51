//! The 64-byte command (submission queue entry).
//!
//! [`Command`] holds the bytes with typed access to each field: a command is copied once from the
//! stream, and the hot path decodes only the fields that it uses. A struct of decoded fields would
//! cost the same copy plus the decoding of fields that most commands do not use.

use crate::bytes::{put_u16, put_u32, put_u64, u16_at, u32_at, u64_at};
use crate::limits::COMMAND_BYTES;
use crate::nvme::opcode::{FABRICS_OPCODE, FabricsType};
use crate::nvme::sgl::{DataPointer, SglDescriptor};
use crate::nvme::status::Status;

/// A command in its wire format. `[NVMe Base 2.0 §3.3.3.1]`
///
/// Any 64 bytes are a `Command`; [`crate::nvme::AdminCommand`],
/// [`LbaCommand`](crate::nvme::LbaCommand) and [`crate::fabrics::FabricsCommand`] interpret them.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Command([u8; COMMAND_BYTES]);

const _: () = assert!(size_of::<Command>() == 64);

/// PSDT: bits 7:6 of byte 1. `[NVMe Base 2.0 §3.3.3.1]`
const PSDT_SGL: u8 = 0b01 << 6;
const PSDT_MASK: u8 = 0b11 << 6;
const FUSE_MASK: u8 = 0b11;

impl Command {
    /// A command of zeroes with this opcode and identifier; its data pointer is an SGL of length 0
    /// (fabrics allow SGLs only).
    pub fn new(opcode: u8, cid: u16) -> Self {
        let mut command = Self([0; COMMAND_BYTES]);
        command.0[0] = opcode;
        command.0[1] = PSDT_SGL;
        command.set_cid(cid);
        command.set_sgl(SglDescriptor::transport(0));
        command
    }

    /// A Fabrics command of this type.
    pub fn new_fabrics(kind: FabricsType, cid: u16) -> Self {
        let mut command = Self::new(FABRICS_OPCODE, cid);
        command.0[4] = kind.0;
        command
    }

    /// Creates a command from its bytes.
    #[inline]
    pub const fn from_bytes(bytes: [u8; COMMAND_BYTES]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes of the command.
    #[inline]
    pub const fn as_bytes(&self) -> &[u8; COMMAND_BYTES] {
        &self.0
    }

    /// OPC: opcode, which depends on the kind of queue.
    #[inline]
    pub const fn opcode(&self) -> u8 {
        self.0[0]
    }

    /// Returns true for a Fabrics command, valid on any queue.
    #[inline]
    pub const fn is_fabrics(&self) -> bool {
        self.0[0] == FABRICS_OPCODE
    }

    /// FCTYPE: type of a Fabrics command; valid only if [`Self::is_fabrics`].
    pub const fn fabrics_type(&self) -> FabricsType {
        FabricsType(self.0[4])
    }

    /// FUSE of the first command of a fused pair.
    pub const FUSE_FIRST: u8 = 1;
    /// FUSE of the second command of a fused pair.
    pub const FUSE_SECOND: u8 = 2;

    /// FUSE: 0 for an ordinary command.
    #[inline]
    pub const fn fuse(&self) -> u8 {
        self.0[1] & FUSE_MASK
    }

    /// PSDT: 1 if the data pointer is an SGL and metadata, if any, a contiguous buffer.
    #[inline]
    pub const fn psdt(&self) -> u8 {
        self.0[1] >> 6
    }

    /// Sets PSDT, 0 to 3; values other than 1 are for tests of their refusal.
    pub fn set_psdt(&mut self, psdt: u8) {
        self.0[1] = (self.0[1] & !PSDT_MASK) | (psdt << 6);
    }

    /// Sets FUSE, 0 to 3.
    pub fn set_fuse(&mut self, fuse: u8) {
        self.0[1] = (self.0[1] & !FUSE_MASK) | (fuse & FUSE_MASK);
    }

    /// CID: the host's identifier of the command while it is outstanding on its queue.
    #[inline]
    pub fn cid(&self) -> u16 {
        u16_at(&self.0, 2)
    }

    /// Sets CID.
    #[inline]
    pub fn set_cid(&mut self, cid: u16) {
        put_u16(&mut self.0, 2, cid);
    }

    /// NSID: the namespace; Fabrics commands have no such field.
    #[inline]
    pub fn nsid(&self) -> u32 {
        u32_at(&self.0, 4)
    }

    /// Sets NSID.
    #[inline]
    pub fn set_nsid(&mut self, nsid: u32) {
        put_u32(&mut self.0, 4, nsid);
    }

    /// SGL1: the data pointer, unchecked; [`Self::data_pointer`] checks it.
    #[inline]
    pub fn sgl(&self) -> SglDescriptor {
        let mut raw = [0; 16];
        raw.copy_from_slice(&self.0[24..40]);
        SglDescriptor::from_bytes(raw)
    }

    /// Sets SGL1.
    #[inline]
    pub fn set_sgl(&mut self, sgl: SglDescriptor) {
        self.0[24..40].copy_from_slice(&sgl.to_bytes());
    }

    /// Returns the location of the command's data, as allowed by NVMe/TCP.
    ///
    /// # Errors
    ///
    /// The status to answer with: Invalid Field for a PSDT other than SGL, SGL Descriptor Type
    /// Invalid for a descriptor that NVMe/TCP does not have. `[NVMe-TCP 1.0 §3.4]`
    #[inline]
    pub fn data_pointer(&self) -> Result<DataPointer, Status> {
        if self.psdt() != 0b01 {
            return Err(Status::INVALID_FIELD.with_dnr());
        }
        self.sgl().data_pointer()
    }

    /// Returns command dword `index`, 0 to 15.
    ///
    /// # Panics
    ///
    /// If `index` is above 15.
    #[inline]
    pub fn cdw(&self, index: usize) -> u32 {
        u32_at(&self.0, index * 4)
    }

    /// Sets command dword `index`, 0 to 15.
    ///
    /// # Panics
    ///
    /// If `index` is above 15.
    #[inline]
    pub fn set_cdw(&mut self, index: usize, value: u32) {
        put_u32(&mut self.0, index * 4, value);
    }

    /// Returns two dwords as one value, the lower at `index`.
    ///
    /// # Panics
    ///
    /// If `index` is above 14.
    #[inline]
    pub fn cdw64(&self, index: usize) -> u64 {
        u64_at(&self.0, index * 4)
    }

    /// Sets two dwords from one value, the lower at `index`.
    ///
    /// # Panics
    ///
    /// If `index` is above 14.
    #[inline]
    pub fn set_cdw64(&mut self, index: usize, value: u64) {
        put_u64(&mut self.0, index * 4, value);
    }
}

impl core::fmt::Debug for Command {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let mut debug = f.debug_struct("Command");
        debug.field("opcode", &self.opcode());
        debug.field("flags", &self.0[1]);
        debug.field("cid", &self.cid());
        debug.field("nsid", &self.nsid());
        debug.field("sgl", &self.sgl());
        for (name, index) in [
            ("cdw10", 10),
            ("cdw11", 11),
            ("cdw12", 12),
            ("cdw13", 13),
            ("cdw14", 14),
            ("cdw15", 15),
        ] {
            debug.field(name, &format_args!("{:#x}", self.cdw(index)));
        }
        debug.finish()
    }
}
