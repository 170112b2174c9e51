//! Scatter-gather list descriptors, and the two kinds that NVMe/TCP allows.

use crate::bytes::{put_u32, put_u64, u32_at, u64_at};
use crate::nvme::status::Status;

/// An SGL descriptor. `[NVMe Base 2.0 §4.1.2]`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SglDescriptor {
    /// Address, or offset into the capsule's data.
    pub address: u64,
    /// Bytes of the data.
    pub length: u32,
    /// Bytes 12 to 14: reserved in the kinds of NVMe/TCP, part of the key in a keyed descriptor.
    pub reserved: [u8; 3],
    /// Type in bits 7:4, subtype in bits 3:0.
    pub identifier: u8,
}

impl SglDescriptor {
    /// Bytes on the wire.
    pub const SIZE: usize = 16;
    /// Data Block with the Offset subtype: in-capsule data.
    pub const IN_CAPSULE: u8 = 0x01;
    /// Transport Data Block, transport-specific subtype Ah: data in data PDUs.
    pub const TRANSPORT: u8 = 0x5a;

    /// A descriptor for `length` bytes of in-capsule data at byte `offset`.
    pub const fn in_capsule(offset: u64, length: u32) -> Self {
        Self {
            address: offset,
            length,
            reserved: [0; 3],
            identifier: Self::IN_CAPSULE,
        }
    }

    /// A descriptor for `length` bytes in data PDUs. `[NVMe-TCP 1.0 §3.4]`
    pub const fn transport(length: u32) -> Self {
        Self {
            address: 0,
            length,
            reserved: [0; 3],
            identifier: Self::TRANSPORT,
        }
    }

    /// Parses a descriptor; any 16 bytes are valid.
    #[inline]
    pub fn from_bytes(bytes: [u8; Self::SIZE]) -> Self {
        Self {
            address: u64_at(&bytes, 0),
            length: u32_at(&bytes, 8),
            reserved: [bytes[12], bytes[13], bytes[14]],
            identifier: bytes[15],
        }
    }

    /// Returns the descriptor as bytes.
    #[inline]
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        let mut out = [0; Self::SIZE];
        put_u64(&mut out, 0, self.address);
        put_u32(&mut out, 8, self.length);
        out[12..15].copy_from_slice(&self.reserved);
        out[15] = self.identifier;
        out
    }

    /// Returns true if every byte is zero: hosts leave the descriptor zero in commands without
    /// data.
    #[inline]
    pub fn is_zero(&self) -> bool {
        self.to_bytes() == [0; Self::SIZE]
    }

    /// Returns the descriptor as one of the two kinds of NVMe/TCP.
    ///
    /// # Errors
    ///
    /// SGL Descriptor Type Invalid for every other kind (keyed, segment, bit bucket, address).
    #[inline]
    pub fn data_pointer(&self) -> Result<DataPointer, Status> {
        match self.identifier {
            Self::TRANSPORT => Ok(DataPointer::Transport {
                length: self.length,
            }),
            Self::IN_CAPSULE => Ok(DataPointer::InCapsule {
                offset: self.address,
                length: self.length,
            }),
            _ => Err(Status::SGL_DESCRIPTOR_TYPE_INVALID.with_dnr()),
        }
    }
}

/// Location of a command's data. `[NVMe-TCP 1.0 §3.4]`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataPointer {
    /// Data in the command's own capsule.
    InCapsule {
        /// Offset into the capsule's data.
        offset: u64,
        /// Bytes of data.
        length: u32,
    },
    /// Data in data PDUs, requested with R2T or sent with C2HData.
    Transport {
        /// Bytes of data; 0 for a command without data.
        length: u32,
    },
}

impl DataPointer {
    /// Returns the bytes of data.
    #[inline]
    pub const fn length(&self) -> u32 {
        match self {
            Self::InCapsule { length, .. } | Self::Transport { length } => *length,
        }
    }

    /// Returns the part of the capsule's data that the descriptor covers.
    ///
    /// # Errors
    ///
    /// Invalid Field if the data is not in the capsule, SGL Offset Invalid or Data SGL Length
    /// Invalid if it exceeds the capsule. `[NVMe Base 2.0 §4.1.2.1]`
    pub fn capsule_data<'a>(&self, capsule: &'a [u8]) -> Result<&'a [u8], Status> {
        let Self::InCapsule { offset, length } = *self else {
            return Err(Status::INVALID_FIELD.with_dnr());
        };
        let rest = usize::try_from(offset)
            .ok()
            .and_then(|offset| capsule.get(offset..))
            .ok_or(Status::SGL_OFFSET_INVALID.with_dnr())?;
        usize::try_from(length)
            .ok()
            .and_then(|length| rest.get(..length))
            .ok_or(Status::DATA_SGL_LENGTH_INVALID.with_dnr())
    }
}

#[cfg(test)]
mod tests;
