//! Identify Namespace: CNS 00h, the NVM command set's CNS 05h, and the independent CNS 08h.
//!
//! `[NVMe NVM 1.0 §4.1.5.1, §4.1.5.3]`, `[NVMe Base 2.0 §5.17.2.8]`

use crate::layout::{Field, layout};

/// LBAF: the size of a block and of its metadata. `[NVMe NVM 1.0 §4.1.5.1]`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct LbaFormat {
    /// MS: bytes of metadata.
    pub metadata_bytes: u16,
    /// LBADS: log2 of the bytes of a block; 0 for an unavailable format.
    pub data_shift: u8,
    /// RP in bits 1:0: relative performance, 0 the best.
    pub relative_performance: u8,
}

impl LbaFormat {
    /// A format with blocks of `2^data_shift` bytes without metadata.
    pub const fn of_shift(data_shift: u8) -> Self {
        Self {
            metadata_bytes: 0,
            data_shift,
            relative_performance: 0,
        }
    }
}

impl Field for LbaFormat {
    const SIZE: usize = 4;

    fn get(bytes: &[u8]) -> Self {
        Self {
            metadata_bytes: u16::get(bytes),
            data_shift: bytes[2],
            relative_performance: bytes[3],
        }
    }

    fn put(&self, bytes: &mut [u8]) {
        self.metadata_bytes.put(bytes);
        bytes[2] = self.data_shift;
        bytes[3] = self.relative_performance;
    }
}

layout! {
    /// Identify Namespace data structure (CNS 00h).
    pub struct IdentifyNamespace: 4096 {
        /// NSZE: size in blocks.
        nsze: u64 = 0,
        /// NCAP: maximum allocated blocks.
        ncap: u64 = 8,
        /// NUSE: allocated blocks.
        nuse: u64 = 16,
        /// NSFEAT: features.
        nsfeat: u8 = 24,
        /// NLBAF: formats, zero-based.
        nlbaf: u8 = 25,
        /// FLBAS: format in use.
        flbas: u8 = 26,
        /// MC: metadata capabilities.
        mc: u8 = 27,
        /// DPC: protection capabilities.
        dpc: u8 = 28,
        /// DPS: protection in use.
        dps: u8 = 29,
        /// NMIC: bit 0, may be attached to more than one controller.
        nmic: u8 = 30,
        /// RESCAP: reservations.
        rescap: u8 = 31,
        /// FPI: format progress.
        fpi: u8 = 32,
        /// DLFEAT: content of deallocated blocks.
        dlfeat: u8 = 33,
        /// NAWUN: blocks, zero-based.
        nawun: u16 = 34,
        /// NAWUPF: blocks, zero-based.
        nawupf: u16 = 36,
        /// NACWU: blocks, zero-based.
        nacwu: u16 = 38,
        /// NABSN: blocks, zero-based.
        nabsn: u16 = 40,
        /// NABO: block.
        nabo: u16 = 42,
        /// NABSPF: blocks, zero-based.
        nabspf: u16 = 44,
        /// NOIOB: blocks.
        noiob: u16 = 46,
        /// NVMCAP: bytes.
        nvmcap: u128 = 48,
        /// NPWG: preferred write granularity, blocks, zero-based.
        npwg: u16 = 64,
        /// NPWA: preferred write alignment, blocks, zero-based.
        npwa: u16 = 66,
        /// NPDG: preferred deallocate granularity, blocks, zero-based.
        npdg: u16 = 68,
        /// NPDA: preferred deallocate alignment, blocks, zero-based.
        npda: u16 = 70,
        /// NOWS: optimal write size, blocks, zero-based.
        nows: u16 = 72,
        /// MSSRL: maximum blocks in one source range of Copy.
        mssrl: u16 = 74,
        /// MCL: maximum total blocks of a Copy.
        mcl: u32 = 76,
        /// MSRC: maximum source ranges in one Copy, zero-based.
        msrc: u8 = 80,
        /// ANAGRPID: its ANA group; 0 without ANA.
        anagrpid: u32 = 92,
        /// NSATTR: bit 0, write protected.
        nsattr: u8 = 99,
        /// NVMSETID.
        nvmsetid: u16 = 100,
        /// ENDGID.
        endgid: u16 = 102,
        /// NGUID, big-endian; zero for none.
        nguid: [u8; 16] = 104,
        /// EUI64, big-endian; zero for none.
        eui64: [u8; 8] = 120,
        /// LBAF0 to LBAF63.
        lba_formats: [LbaFormat; 64] = 128,
        /// Vendor-specific area.
        vendor: [u8; 3712] = 384,
    }
}

/// Constants of the fields.
impl IdentifyNamespace {
    /// NSFEAT: thin provisioning.
    pub const NSFEAT_THIN: u8 = 1 << 0;
    /// NSFEAT: NGUID and EUI64 are never reused.
    pub const NSFEAT_IDS_NOT_REUSED: u8 = 1 << 3;
    /// NSFEAT: NPWG, NPWA, NPDG, NPDA and NOWS are valid.
    pub const NSFEAT_OPTIMAL_IO: u8 = 1 << 4;
    /// NMIC: may be attached to more than one controller.
    pub const NMIC_SHARED: u8 = 1 << 0;
    /// DLFEAT bits 2:0: deallocated blocks read as zeroes.
    pub const DLFEAT_READS_ZERO: u8 = 0b001;
    /// DLFEAT: Write Zeroes may deallocate.
    pub const DLFEAT_WRITE_ZEROES_DEALLOCATES: u8 = 1 << 3;
    /// NSATTR: write protected.
    pub const NSATTR_WRITE_PROTECTED: u8 = 1 << 0;

    /// Returns the index of the format in use: bits 3:0 of FLBAS, with bits 6:5 above them.
    pub const fn format_index(&self) -> usize {
        ((self.flbas & 0x0f) | ((self.flbas & 0x60) >> 1)) as usize
    }

    /// Returns the format in use.
    pub const fn format(&self) -> LbaFormat {
        self.lba_formats[self.format_index()]
    }

    /// Returns the bytes of a block; `None` if the format does not have blocks of 512 bytes to 2
    /// GiB.
    pub const fn block_bytes(&self) -> Option<u32> {
        let shift = self.format().data_shift as u32;
        if shift >= 9 {
            1_u32.checked_shl(shift)
        } else {
            None
        }
    }
}

layout! {
    /// Identify Namespace of the NVM command set (CNS 05h, CSI 0): extended protection.
    pub struct NvmIdentifyNamespace: 4096 {
        /// LBSTM: logical block storage tag mask.
        lbstm: u64 = 0,
        /// PIC: protection information capabilities.
        pic: u8 = 8,
        /// ELBAF0 to ELBAF63.
        extended_formats: [u32; 64] = 12,
    }
}

layout! {
    /// I/O Command Set Independent Identify Namespace (CNS 08h).
    pub struct IndependentIdentifyNamespace: 4096 {
        /// NSFEAT: features.
        nsfeat: u8 = 0,
        /// NMIC: bit 0, may be attached to more than one controller.
        nmic: u8 = 1,
        /// RESCAP: reservations.
        rescap: u8 = 2,
        /// FPI: format progress.
        fpi: u8 = 3,
        /// ANAGRPID: its ANA group; 0 without ANA.
        anagrpid: u32 = 4,
        /// NSATTR: bit 0, write protected.
        nsattr: u8 = 8,
        /// NVMSETID.
        nvmsetid: u16 = 10,
        /// ENDGID.
        endgid: u16 = 12,
        /// NSTAT: bit 0, ready.
        nstat: u8 = 14,
    }
}

/// Constants of the fields.
impl IndependentIdentifyNamespace {
    /// NSFEAT: the namespace identifiers are never reused.
    pub const NSFEAT_IDS_NOT_REUSED: u8 = 1 << 3;
    /// NSTAT: the namespace is ready.
    pub const NSTAT_READY: u8 = 1 << 0;
}
