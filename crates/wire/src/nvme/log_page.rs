//! Log pages, except the discovery log page (see [`crate::fabrics::discovery`]).
//!
//! `[NVMe Base 2.0 §5.16.1]`

use crate::layout::layout;
use crate::nvme::opcode::code_names;

code_names! {
    /// LID: log page identifier. `[NVMe Base 2.0 §5.16.1]`
    LogPageId {
        /// Supported Log Pages.
        SUPPORTED = 0x00, "Supported Log Pages";
        /// Error Information.
        ERROR = 0x01, "Error Information";
        /// SMART / Health Information.
        SMART = 0x02, "SMART / Health Information";
        /// Firmware Slot Information.
        FIRMWARE_SLOT = 0x03, "Firmware Slot Information";
        /// Changed Namespace List.
        CHANGED_NAMESPACES = 0x04, "Changed Namespace List";
        /// Commands Supported and Effects.
        EFFECTS = 0x05, "Commands Supported and Effects";
        /// Device Self-test.
        DEVICE_SELF_TEST = 0x06, "Device Self-test";
        /// Telemetry Host-Initiated.
        TELEMETRY_HOST = 0x07, "Telemetry Host-Initiated";
        /// Telemetry Controller-Initiated.
        TELEMETRY_CONTROLLER = 0x08, "Telemetry Controller-Initiated";
        /// Endurance Group Information.
        ENDURANCE_GROUP = 0x09, "Endurance Group Information";
        /// Asymmetric Namespace Access.
        ANA = 0x0c, "Asymmetric Namespace Access";
        /// Persistent Event Log.
        PERSISTENT_EVENT = 0x0d, "Persistent Event Log";
        /// Feature Identifiers Supported and Effects.
        FEATURE_EFFECTS = 0x12, "Feature Identifiers Supported and Effects";
        /// Discovery.
        DISCOVERY = 0x70, "Discovery";
        /// Reservation Notification.
        RESERVATION = 0x80, "Reservation Notification";
        /// Sanitize Status.
        SANITIZE = 0x81, "Sanitize Status";
    }
}

layout! {
    /// Supported Log Pages (LID 00h). `[NVMe Base 2.0 §5.16.1.1]`
    pub struct SupportedLogPages: 1024 {
        /// Support by LID: bit 0 supported, bit 1 an offset may be an index, bits 31:16 depend on
        /// the page.
        pages: [u32; 256] = 0,
    }
}

impl SupportedLogPages {
    /// LSUPP: the page is supported.
    pub const SUPPORTED: u32 = 1 << 0;
}

layout! {
    /// Feature Identifiers Supported and Effects (LID 12h). `[NVMe Base 2.0 §5.16.1.19]`
    pub struct SupportedFeatures: 1024 {
        /// Support by FID: bit 0 supported, bits 31:20 the scope.
        features: [u32; 256] = 0,
    }
}

impl SupportedFeatures {
    /// FSUPP: the feature is supported.
    pub const SUPPORTED: u32 = 1 << 0;

    /// FSP: the feature has namespace scope.
    pub const OF_NAMESPACE: u32 = 1 << 20;

    /// FSP: the feature has controller scope.
    pub const OF_CONTROLLER: u32 = 1 << 21;
}

layout! {
    /// One entry of Error Information (LID 01h). `[NVMe Base 2.0 §5.16.1.2]`
    pub struct ErrorEntry: 64 {
        /// Error Count: the entry's number, from 1; 0 for no entry.
        error_count: u64 = 0,
        /// SQID.
        sq_id: u16 = 8,
        /// CID.
        cid: u16 = 10,
        /// The status as in the completion: bits 15:1.
        status_field: u16 = 12,
        /// Parameter Error Location: byte in bits 7:0, bit in bits 10:8; FFFFh for none.
        parameter_location: u16 = 14,
        /// The first block in error.
        lba: u64 = 16,
        /// NSID.
        nsid: u32 = 24,
        /// LID of vendor information; 0 for none.
        vendor_log_page: u8 = 28,
        /// TRTYPE.
        trtype: u8 = 29,
        /// CSI.
        command_set: u8 = 30,
        /// OPC.
        opcode: u8 = 31,
        /// Command Specific Information.
        command_specific: u64 = 32,
        /// Transport Type Specific Information.
        transport_specific: u16 = 40,
        /// Log Page Version.
        version: u8 = 63,
    }
}

layout! {
    /// SMART / Health Information (LID 02h). `[NVMe Base 2.0 §5.16.1.3]`
    pub struct SmartLog: 512 {
        /// Critical Warning.
        critical_warning: u8 = 0,
        /// Composite Temperature, kelvin.
        temperature_kelvin: u16 = 1,
        /// Available Spare, percent.
        available_spare: u8 = 3,
        /// Available Spare Threshold, percent.
        available_spare_threshold: u8 = 4,
        /// Percentage Used; may exceed 100.
        percentage_used: u8 = 5,
        /// Endurance Group Critical Warning Summary.
        endurance_warning: u8 = 6,
        /// Data Units Read: thousands of 512 bytes, rounded up.
        data_units_read: u128 = 32,
        /// Data Units Written: thousands of 512 bytes, rounded up.
        data_units_written: u128 = 48,
        /// Host Read Commands.
        host_reads: u128 = 64,
        /// Host Write Commands.
        host_writes: u128 = 80,
        /// Controller Busy Time, minutes.
        busy_minutes: u128 = 96,
        /// Power Cycles.
        power_cycles: u128 = 112,
        /// Power On Hours.
        power_on_hours: u128 = 128,
        /// Unsafe Shutdowns.
        unsafe_shutdowns: u128 = 144,
        /// Media and Data Integrity Errors.
        media_errors: u128 = 160,
        /// Number of Error Information Log Entries.
        error_entries: u128 = 176,
        /// Warning Composite Temperature Time, minutes.
        warning_temperature_minutes: u32 = 192,
        /// Critical Composite Temperature Time, minutes.
        critical_temperature_minutes: u32 = 196,
        /// Temperature Sensors 1 to 8, kelvin; 0 for none.
        temperature_sensors_kelvin: [u16; 8] = 200,
        /// Thermal Management Temperature 1 and 2 Transition Counts.
        thermal_transitions: [u32; 2] = 216,
        /// Total Time For Thermal Management Temperature 1 and 2, seconds.
        thermal_seconds: [u32; 2] = 224,
    }
}

layout! {
    /// Firmware Slot Information (LID 03h). `[NVMe Base 2.0 §5.16.1.4]`
    pub struct FirmwareSlotLog: 512 {
        /// AFI: the active slot in bits 2:0, the slot of the next reset in bits 6:4.
        active: u8 = 0,
        /// FRS1 to FRS7: revisions, ASCII; zero for an empty slot.
        revisions: [[u8; 8]; 7] = 8,
    }
}

layout! {
    /// Changed Namespace List (LID 04h). `[NVMe Base 2.0 §5.16.1.5]`
    pub struct ChangedNamespaces: 4096 {
        /// Ascending identifiers, zero after the last; FFFFFFFFh alone for more than 1024.
        nsids: [u32; 1024] = 0,
    }
}

impl ChangedNamespaces {
    /// Creates the list of these namespaces, in ascending order.
    pub fn of(nsids: impl IntoIterator<Item = u32>) -> Self {
        let mut list = Self::default();
        let mut changed = nsids.into_iter();
        for place in &mut list.nsids {
            match changed.next() {
                Some(nsid) => *place = nsid,
                None => return list,
            }
        }
        if changed.next().is_some() {
            list = Self::default();
            list.nsids[0] = crate::limits::NSID_BROADCAST;
        }
        list
    }

    /// Returns true if more namespaces changed than fit.
    pub const fn is_overflow(&self) -> bool {
        self.nsids[0] == crate::limits::NSID_BROADCAST
    }

    /// Returns the identifiers up to the first zero; none if the list overflowed.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let overflow = self.is_overflow();
        self.nsids
            .iter()
            .copied()
            .take_while(move |nsid| *nsid != 0 && !overflow)
    }
}

layout! {
    /// Commands Supported and Effects (LID 05h). `[NVMe Base 2.0 §5.16.1.6]`
    pub struct EffectsLog: 4096 {
        /// ACS0 to ACS255: admin commands, by opcode.
        admin: [u32; 256] = 0,
        /// IOCS0 to IOCS255: I/O commands, by opcode.
        io: [u32; 256] = 1024,
    }
}

impl EffectsLog {
    /// CSUPP: the command is supported.
    pub const SUPPORTED: u32 = 1 << 0;
    /// LBCC: the command may change data.
    pub const CHANGES_DATA: u32 = 1 << 1;
}

#[cfg(test)]
mod tests;
