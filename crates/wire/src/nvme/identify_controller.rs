//! Identify Controller (CNS 01h), and its part for the NVM command set (CNS 06h).
//!
//! `[NVMe Base 2.0 §5.17.2.1]`, `[NVMe NVM 1.0 §4.1.5.2]`

use crate::layout::layout;

layout! {
    /// Identify Controller data structure, with the fabrics fields.
    pub struct IdentifyController: 4096 {
        /// VID: PCI vendor.
        vid: u16 = 0,
        /// SSVID: PCI subsystem vendor.
        ssvid: u16 = 2,
        /// SN: serial number, ASCII.
        serial_number: [u8; 20] = 4,
        /// MN: model number, ASCII.
        model_number: [u8; 40] = 24,
        /// FR: firmware revision, ASCII.
        firmware_revision: [u8; 8] = 64,
        /// RAB: recommended arbitration burst, a power of two.
        rab: u8 = 72,
        /// IEEE OUI, little-endian.
        ieee: [u8; 3] = 73,
        /// CMIC: multiple ports and controllers of the subsystem.
        cmic: u8 = 76,
        /// MDTS: maximum transfer, as a power of two in units of CAP.MPSMIN; 0 for no limit.
        mdts: u8 = 77,
        /// CNTLID.
        cntlid: u16 = 78,
        /// VER: the value of the property VS.
        ver: u32 = 80,
        /// RTD3R, microseconds.
        rtd3r: u32 = 84,
        /// RTD3E, microseconds.
        rtd3e: u32 = 88,
        /// OAES: optional asynchronous events.
        oaes: u32 = 92,
        /// CTRATT: controller attributes.
        ctratt: u32 = 96,
        /// RRLS: read recovery levels.
        rrls: u16 = 100,
        /// CNTRLTYPE: 1 I/O, 2 discovery, 3 administrative.
        cntrltype: u8 = 111,
        /// FGUID, big-endian.
        fguid: [u8; 16] = 112,
        /// CRDT1 to CRDT3: retry delays, in units of 100 ms.
        crdt: [u16; 3] = 128,
        /// NVMSR.
        nvmsr: u8 = 253,
        /// VWCI.
        vwci: u8 = 254,
        /// MEC.
        mec: u8 = 255,
        /// OACS: optional admin commands.
        oacs: u16 = 256,
        /// ACL: maximum concurrent Aborts, zero-based.
        acl: u8 = 258,
        /// AERL: maximum concurrent Asynchronous Event Requests, zero-based.
        aerl: u8 = 259,
        /// FRMW: firmware slots, and their update.
        frmw: u8 = 260,
        /// LPA: log page attributes.
        lpa: u8 = 261,
        /// ELPE: entries of the error log, zero-based.
        elpe: u8 = 262,
        /// NPSS: power states, zero-based.
        npss: u8 = 263,
        /// AVSCC.
        avscc: u8 = 264,
        /// APSTA.
        apsta: u8 = 265,
        /// WCTEMP: warning temperature, kelvin.
        wctemp: u16 = 266,
        /// CCTEMP: critical temperature, kelvin.
        cctemp: u16 = 268,
        /// MTFA, in units of 100 ms.
        mtfa: u16 = 270,
        /// HMPRE, in units of 4 KiB.
        hmpre: u32 = 272,
        /// HMMIN, in units of 4 KiB.
        hmmin: u32 = 276,
        /// TNVMCAP, bytes.
        tnvmcap: u128 = 280,
        /// UNVMCAP, bytes.
        unvmcap: u128 = 296,
        /// RPMBS.
        rpmbs: u32 = 312,
        /// EDSTT, minutes.
        edstt: u16 = 316,
        /// DSTO.
        dsto: u8 = 318,
        /// FWUG, in units of 4 KiB.
        fwug: u8 = 319,
        /// KAS: granularity of the keep-alive timer, in units of 100 ms; 0 for no keep-alive.
        kas: u16 = 320,
        /// HCTMA.
        hctma: u16 = 322,
        /// MNTMT, kelvin.
        mntmt: u16 = 324,
        /// MXTMT, kelvin.
        mxtmt: u16 = 326,
        /// SANICAP.
        sanicap: u32 = 328,
        /// HMMINDS, in units of 4 KiB.
        hmminds: u32 = 332,
        /// HMMAXD.
        hmmaxd: u16 = 336,
        /// NSETIDMAX.
        nsetidmax: u16 = 338,
        /// ENDGIDMAX.
        endgidmax: u16 = 340,
        /// ANATT: maximum time in the ANA state Change, seconds.
        anatt: u8 = 342,
        /// ANACAP: supported ANA states.
        anacap: u8 = 343,
        /// ANAGRPMAX: the highest ANA group identifier.
        anagrpmax: u32 = 344,
        /// NANAGRPID: number of ANA groups.
        nanagrpid: u32 = 348,
        /// PELS, in units of 64 KiB.
        pels: u32 = 352,
        /// Domain Identifier.
        domain_id: u16 = 356,
        /// MEGCAP, bytes.
        megcap: u128 = 368,
        /// SQES: log2 of the command's size, required in bits 3:0, maximum in bits 7:4.
        sqes: u8 = 512,
        /// CQES: log2 of the completion's size, required in bits 3:0, maximum in bits 7:4.
        cqes: u8 = 513,
        /// MAXCMD: maximum commands outstanding on one queue; mandatory over fabrics.
        maxcmd: u16 = 514,
        /// NN: the highest NSID.
        nn: u32 = 516,
        /// ONCS: optional I/O commands.
        oncs: u16 = 520,
        /// FUSES: fused operations; bit 0 is Compare and Write.
        fuses: u16 = 522,
        /// FNA: Format NVM attributes.
        fna: u8 = 524,
        /// VWC: volatile write cache.
        vwc: u8 = 525,
        /// AWUN: atomic write unit, blocks, zero-based.
        awun: u16 = 526,
        /// AWUPF: atomic write unit at power failure, blocks, zero-based.
        awupf: u16 = 528,
        /// ICSVSCC (formerly NVSCC).
        icsvscc: u8 = 530,
        /// NWPC: namespace write protection.
        nwpc: u8 = 531,
        /// ACWU: atomic compare and write unit, blocks, zero-based.
        acwu: u16 = 532,
        /// Copy Descriptor Formats Supported.
        cdfs: u16 = 534,
        /// SGLS: SGL support.
        sgls: u32 = 536,
        /// MNAN: maximum number of namespaces; 0 means NN.
        mnan: u32 = 540,
        /// MAXDNA.
        maxdna: u128 = 544,
        /// MAXCNA.
        maxcna: u32 = 560,
        /// SUBNQN, UTF-8, padded with zeroes.
        subnqn: [u8; 256] = 768,
        /// IOCCSZ: command capsule of an I/O queue, in units of 16 bytes; 4 without in-capsule
        /// data.
        ioccsz: u32 = 1792,
        /// IORCSZ: response capsule of an I/O queue, in units of 16 bytes; 1 over TCP.
        iorcsz: u32 = 1796,
        /// ICDOFF: offset of in-capsule data after the command, in units of 16 bytes; 0 over TCP.
        icdoff: u16 = 1800,
        /// FCATT: bit 0 is 0 for the dynamic controller model.
        fcatt: u8 = 1802,
        /// MSDBD: SGL data blocks in a capsule; 1 over TCP.
        msdbd: u8 = 1803,
        /// OFCS: optional Fabrics commands; bit 0 Disconnect.
        ofcs: u16 = 1804,
        /// DCTYPE: kind of discovery controller.
        dctype: u8 = 1806,
        /// PSD0 to PSD31: power states.
        power_states: [PowerState; 32] = 2048,
        /// Vendor-specific area.
        vendor: [u8; 1024] = 3072,
    }
}

layout! {
    /// Power State Descriptor. `[NVMe Base 2.0 §5.17.2.1]`
    pub struct PowerState: 32 {
        /// MP: maximum power, in centiwatts unless bit 0 of `flags` is set.
        max_power: u16 = 0,
        /// MXPS in bit 0, NOPS in bit 1.
        flags: u8 = 3,
        /// ENLAT, microseconds.
        entry_latency_us: u32 = 4,
        /// EXLAT, microseconds.
        exit_latency_us: u32 = 8,
        /// RRT.
        relative_read_throughput: u8 = 12,
        /// RRL.
        relative_read_latency: u8 = 13,
        /// RWT.
        relative_write_throughput: u8 = 14,
        /// RWL.
        relative_write_latency: u8 = 15,
        /// IDLP.
        idle_power: u16 = 16,
        /// IPS in bits 7:6.
        idle_power_scale: u8 = 18,
        /// ACTP.
        active_power: u16 = 20,
        /// APS in bits 7:6, APW in bits 2:0.
        active_power_scale: u8 = 22,
    }
}

/// Constants of the fields.
impl IdentifyController {
    /// CNTRLTYPE: an I/O controller.
    pub const CNTRLTYPE_IO: u8 = 1;
    /// CNTRLTYPE: a discovery controller.
    pub const CNTRLTYPE_DISCOVERY: u8 = 2;
    /// CMIC: more than one port.
    pub const CMIC_MULTI_PORT: u8 = 1 << 0;
    /// CMIC: more than one controller.
    pub const CMIC_MULTI_CONTROLLER: u8 = 1 << 1;
    /// CMIC: asymmetric namespace access.
    pub const CMIC_ANA: u8 = 1 << 3;
    /// OAES: namespace attribute notices.
    pub const OAES_NAMESPACE_ATTRIBUTE: u32 = 1 << 8;
    /// OAES: asymmetric namespace access change notices.
    pub const OAES_ANA_CHANGE: u32 = 1 << 11;
    /// OAES: discovery log page change notifications.
    pub const OAES_DISCOVERY_LOG_CHANGE: u32 = 1 << 31;
    /// CTRATT: 128-bit host identifiers.
    pub const CTRATT_HOST_ID_128: u32 = 1 << 0;
    /// CTRATT: traffic based keep alive.
    pub const CTRATT_TRAFFIC_BASED_KEEP_ALIVE: u32 = 1 << 6;
    /// FRMW: slot 1 is read only.
    pub const FRMW_SLOT1_READ_ONLY: u8 = 1 << 0;
    /// FRMW: one slot.
    pub const FRMW_ONE_SLOT: u8 = 1 << 1;
    /// LPA: the commands supported and effects page.
    pub const LPA_EFFECTS: u8 = 1 << 1;
    /// LPA: offset and 32-bit length in Get Log Page.
    pub const LPA_EXTENDED_DATA: u8 = 1 << 2;
    /// ANACAP: the state Optimized.
    pub const ANACAP_OPTIMIZED: u8 = 1 << 0;
    /// ANACAP: the state Non-Optimized.
    pub const ANACAP_NON_OPTIMIZED: u8 = 1 << 1;
    /// ANACAP: the state Inaccessible.
    pub const ANACAP_INACCESSIBLE: u8 = 1 << 2;
    /// ANACAP: the state Persistent Loss.
    pub const ANACAP_PERSISTENT_LOSS: u8 = 1 << 3;
    /// ANACAP: the state Change.
    pub const ANACAP_CHANGE: u8 = 1 << 4;
    /// ANACAP: a namespace never changes its group while attached.
    pub const ANACAP_STABLE_GROUPS: u8 = 1 << 6;
    /// FUSES: Compare and Write.
    pub const FUSES_COMPARE_AND_WRITE: u16 = 1 << 0;
    /// ONCS: Compare.
    pub const ONCS_COMPARE: u16 = 1 << 0;
    /// ONCS: Dataset Management.
    pub const ONCS_DATASET_MANAGEMENT: u16 = 1 << 2;
    /// ONCS: Write Zeroes.
    pub const ONCS_WRITE_ZEROES: u16 = 1 << 3;
    /// ONCS: Save in Set Features, and Select in Get Features.
    pub const ONCS_SAVE_AND_SELECT: u16 = 1 << 4;
    /// ONCS: reservations.
    pub const ONCS_RESERVATIONS: u16 = 1 << 5;
    /// ONCS: Timestamp.
    pub const ONCS_TIMESTAMP: u16 = 1 << 6;
    /// ONCS: Verify.
    pub const ONCS_VERIFY: u16 = 1 << 7;
    /// VWC: a volatile write cache is present.
    pub const VWC_PRESENT: u8 = 1 << 0;
    /// VWC bits 2:1: Flush with the broadcast NSID flushes all namespaces.
    pub const VWC_FLUSH_ALL: u8 = 0b11 << 1;
    /// SGLS bits 1:0: SGLs are supported without alignment.
    pub const SGLS_SUPPORTED: u32 = 0b01;
    /// SGLS: the address of a data block may be an offset.
    pub const SGLS_OFFSET: u32 = 1 << 20;
    /// SGLS: transport data block descriptors.
    pub const SGLS_TRANSPORT: u32 = 1 << 21;
    /// OFCS: Disconnect.
    pub const OFCS_DISCONNECT: u16 = 1 << 0;
    /// SQES of every NVMe controller: 64 bytes.
    pub const SQES_64: u8 = 0x66;
    /// CQES of every NVMe controller: 16 bytes.
    pub const CQES_16: u8 = 0x44;

    /// Returns the maximum bytes of in-capsule data on an I/O queue, from IOCCSZ and ICDOFF.
    pub fn in_capsule_data_bytes(&self) -> u32 {
        let overhead = 4 + u32::from(self.icdoff);
        self.ioccsz.saturating_sub(overhead).saturating_mul(16)
    }

    /// Returns the maximum bytes of a transfer; `None` for no limit, or a limit beyond 32 bits.
    ///
    /// `page_bytes` is the smallest memory page: `2 << (11 + CAP.MPSMIN)`.
    pub fn max_transfer_bytes(&self, page_bytes: u32) -> Option<u32> {
        if self.mdts == 0 {
            return None;
        }
        1_u32
            .checked_shl(u32::from(self.mdts))
            .and_then(|pages| pages.checked_mul(page_bytes))
    }
}

layout! {
    /// Identify Controller of the NVM command set (CNS 06h, CSI 0). `[NVMe NVM 1.0 §4.1.5.2]`
    pub struct NvmIdentifyController: 4096 {
        /// VSL: maximum Verify, as a power of two in units of CAP.MPSMIN; 0 for no limit.
        vsl: u8 = 0,
        /// WZSL: maximum Write Zeroes, as a power of two in units of CAP.MPSMIN; 0 for no limit.
        wzsl: u8 = 1,
        /// WUSL: maximum Write Uncorrectable, as a power of two in units of CAP.MPSMIN; 0 for no
        /// limit.
        wusl: u8 = 2,
        /// DMRL: maximum ranges in a Dataset Management; 0 for no limit.
        dmrl: u8 = 3,
        /// DMRSL: maximum blocks in one range; 0 for no limit.
        dmrsl: u32 = 4,
        /// DMSL: maximum total blocks of all ranges; 0 for no limit.
        dmsl: u64 = 8,
    }
}
