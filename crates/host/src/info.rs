//! Identify data of controllers and namespaces as plain values.

use base::Nanos;
use block::{Geometry, Operation};
use std::net::SocketAddr;
use wire::fabrics::DiscoveryLogEntry;
use wire::nvme::{ExtentTerms, IdentifyController, IdentifyNamespace};

/// Returns the text of a field without its padding. Invalid UTF-8 becomes U+FFFD. The text may have
/// control characters.
pub(crate) fn text(field: &[u8]) -> String {
    let end = field.iter().position(|&byte| byte == 0);
    let text = String::from_utf8_lossy(&field[..end.unwrap_or(field.len())]);
    text.trim_end_matches(' ').to_owned()
}

/// A controller. `[NVMe Base 2.0 §5.17.2.1]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerInfo {
    /// CNTLID: controller ID.
    pub cntlid: u16,
    /// NQN of the subsystem.
    pub subsystem: String,
    /// MN: model number.
    pub model: String,
    /// SN: serial number.
    pub serial: String,
    /// FR: firmware revision.
    pub firmware: String,
    /// VS: version of the specification, such as "2.0.0".
    pub version: String,
    /// Largest transfer in bytes: MDTS, limited by this host.
    pub max_transfer_bytes: u32,
    /// Largest in-capsule data of an I/O queue in bytes.
    pub in_capsule_bytes: u32,
    /// I/O queues that the controller grants.
    pub io_queues: u16,
    /// Depth of an I/O queue.
    pub queue_depth: u16,
    /// Keep-alive time-out in milliseconds; 0: none.
    pub keep_alive_ms: u32,
    /// NN: highest namespace ID.
    pub namespaces_max: u32,
    /// VWC: has a volatile write cache.
    pub volatile_cache: bool,
    /// ONCS: Compare.
    pub compare: bool,
    /// ONCS: Dataset Management.
    pub dataset_management: bool,
    /// ONCS: Write Zeroes.
    pub write_zeroes: bool,
    /// ONCS: Verify.
    pub verify: bool,
    /// CTRATT: traffic-based keep-alive.
    pub traffic_based_keep_alive: bool,
}

impl ControllerInfo {
    pub(crate) fn from_identify(identify: &IdentifyController) -> Self {
        let text = |field: &[u8]| text(field).trim().to_owned();
        let oncs = |bit| identify.oncs & bit != 0;
        Self {
            cntlid: identify.cntlid,
            subsystem: text(&identify.subnqn),
            model: text(&identify.model_number),
            serial: text(&identify.serial_number),
            firmware: text(&identify.firmware_revision),
            version: wire::fabrics::property::Version(identify.ver).to_string(),
            max_transfer_bytes: 0,
            in_capsule_bytes: identify.in_capsule_data_bytes(),
            io_queues: 0,
            queue_depth: 0,
            keep_alive_ms: 0,
            namespaces_max: identify.nn,
            volatile_cache: identify.vwc & IdentifyController::VWC_PRESENT != 0,
            compare: oncs(IdentifyController::ONCS_COMPARE),
            dataset_management: oncs(IdentifyController::ONCS_DATASET_MANAGEMENT),
            write_zeroes: oncs(IdentifyController::ONCS_WRITE_ZEROES),
            verify: oncs(IdentifyController::ONCS_VERIFY),
            traffic_based_keep_alive: identify.ctratt
                & IdentifyController::CTRATT_TRAFFIC_BASED_KEEP_ALIVE
                != 0,
        }
    }
}

/// A namespace. `[NVMe NVM 1.0 §4.1.5.1]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceInfo {
    /// NSID: namespace ID.
    pub nsid: u32,
    /// Size and block size.
    pub geometry: Geometry,
    /// NUSE: blocks in use.
    pub blocks_used: u64,
    /// Thin provisioning: deallocated blocks are freed.
    pub thin: bool,
    /// Currently write-protected.
    pub read_only: bool,
    /// NPWG: preferred write granularity in bytes; 0: none.
    pub preferred_bytes: u32,
    /// NGUID, if reported.
    pub nguid: Option<[u8; 16]>,
    /// EUI64, if reported.
    pub eui64: Option<[u8; 8]>,
    /// UUID, if reported.
    pub uuid: Option<[u8; 16]>,
}

#[cfg(test)]
impl NamespaceInfo {
    /// A namespace of `blocks` blocks of 512 bytes, with no other properties.
    pub(crate) fn plain(nsid: u32, blocks: u64) -> Self {
        Self {
            nsid,
            geometry: Geometry {
                block_bytes: 512,
                blocks,
            },
            blocks_used: 0,
            thin: false,
            read_only: false,
            preferred_bytes: 0,
            nguid: None,
            eui64: None,
            uuid: None,
        }
    }
}

impl NamespaceInfo {
    /// Reads the data structure. Fails with the reason if the host cannot use the namespace.
    pub(crate) fn from_identify(
        nsid: u32,
        identify: &IdentifyNamespace,
    ) -> Result<Self, &'static str> {
        if identify.nsze == 0 {
            return Err("it is not active");
        }
        let block_bytes = identify
            .block_bytes()
            .filter(|bytes| (512..=4096).contains(bytes))
            .ok_or("unsupported block size; format it with blocks of 512 or 4096 bytes")?;
        if identify.format().metadata_bytes != 0 {
            return Err("unsupported format with metadata; format it without metadata");
        }
        let optimal = identify.nsfeat & IdentifyNamespace::NSFEAT_OPTIMAL_IO != 0;
        let preferred = (u32::from(identify.npwg) + 1).saturating_mul(block_bytes);
        let some = |id: [u8; 16]| (id != [0; 16]).then_some(id);
        Ok(Self {
            nsid,
            geometry: Geometry {
                block_bytes,
                // Keeps the size in bytes within 64 bits.
                blocks: identify.nsze.min((1 << 63) / u64::from(block_bytes)),
            },
            blocks_used: identify.nuse,
            thin: identify.nsfeat & IdentifyNamespace::NSFEAT_THIN != 0,
            read_only: identify.nsattr & IdentifyNamespace::NSATTR_WRITE_PROTECTED != 0,
            preferred_bytes: if optimal { preferred } else { 0 },
            nguid: some(identify.nguid),
            eui64: (identify.eui64 != [0; 8]).then_some(identify.eui64),
            uuid: None,
        })
    }

    /// Returns the identifiers of its volume. `serial` is the subsystem's.
    pub(crate) fn volume(&self, serial: &str) -> VolumeId {
        VolumeId {
            nguid: self.nguid,
            eui64: self.eui64,
            uuid: self.uuid,
            serial: serial.to_owned(),
        }
    }

    /// The UUID in its usual form.
    #[must_use]
    pub fn uuid_text(&self) -> Option<String> {
        self.uuid
            .map(|bytes| uuid::Uuid::from_bytes(bytes).to_string())
    }
}

/// The identifiers of a volume. An NSID only names a place in a subsystem: it may name another
/// volume after a reconnect or a change. `[NVMe Base 2.0 §4.5.1]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VolumeId {
    nguid: Option<[u8; 16]>,
    eui64: Option<[u8; 8]>,
    uuid: Option<[u8; 16]>,
    /// Compared only if neither side has an identifier.
    serial: String,
}

impl VolumeId {
    /// Returns true if both are the same volume: they share a kind of identifier, and are equal in
    /// each kind that both have. Without any identifier the subsystem's serial number decides.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let kinds = [
            equal(self.nguid, other.nguid),
            equal(self.eui64, other.eui64),
            equal(self.uuid, other.uuid),
        ];
        let mut known = kinds.into_iter().flatten().peekable();
        if known.peek().is_some() {
            return known.all(|same| same);
        }
        self.is_nameless() && other.is_nameless() && self.serial == other.serial
    }

    const fn is_nameless(&self) -> bool {
        self.nguid.is_none() && self.eui64.is_none() && self.uuid.is_none()
    }
}

/// Compares two identifiers; `None` unless both are known.
fn equal<T: PartialEq>(one: Option<T>, other: Option<T>) -> Option<bool> {
    Some(one? == other?)
}

/// Kind of subsystem to which a discovery log entry refers. `[NVMe Base 2.0 §5.16.1.23]`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubsystemKind {
    /// Another discovery subsystem.
    Referral,
    /// A subsystem with namespaces.
    Nvm,
    /// The queried discovery subsystem itself.
    CurrentDiscovery,
    /// A value that is reserved.
    Other(u8),
}

/// One entry of a discovery log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveryEntry {
    /// TRTYPE as text: "tcp", "rdma"…
    pub transport: String,
    /// TRADDR.
    pub address: String,
    /// TRSVCID: the port, for TCP.
    pub service: String,
    /// SUBNQN.
    pub subsystem: String,
    /// SUBTYPE.
    pub kind: SubsystemKind,
    /// PORTID.
    pub port_id: u16,
    /// CNTLID: FFFFh if the subsystem chooses.
    pub cntlid: u16,
    /// ASQSZ: entries of the admin queue.
    pub admin_queue_entries: u16,
    /// SECTYPE: a secure channel is required.
    pub secure_channel: bool,
    /// Address to connect to, if it is TCP with a numeric address.
    pub socket_address: Option<SocketAddr>,
}

impl DiscoveryEntry {
    /// TRADDR and TRSVCID as one text, such as `[::1]:8009`.
    #[must_use]
    pub fn address_text(&self) -> String {
        match self.address.contains(':') {
            true => format!("[{}]:{}", self.address, self.service),
            false => format!("{}:{}", self.address, self.service),
        }
    }

    pub(crate) fn from_log(entry: &DiscoveryLogEntry) -> Self {
        let transport = match entry.trtype {
            1 => "rdma".to_owned(),
            2 => "fc".to_owned(),
            DiscoveryLogEntry::TRTYPE_TCP => "tcp".to_owned(),
            254 => "loop".to_owned(),
            other => format!("{other}"),
        };
        Self {
            transport,
            address: text(&entry.traddr),
            service: text(&entry.trsvcid),
            subsystem: text(&entry.subnqn_field),
            kind: match entry.subtype {
                DiscoveryLogEntry::SUBTYPE_REFERRAL => SubsystemKind::Referral,
                DiscoveryLogEntry::SUBTYPE_NVM => SubsystemKind::Nvm,
                DiscoveryLogEntry::SUBTYPE_CURRENT_DISCOVERY => SubsystemKind::CurrentDiscovery,
                other => SubsystemKind::Other(other),
            },
            port_id: entry.port_id,
            cntlid: entry.cntlid,
            admin_queue_entries: entry.asqsz,
            secure_channel: entry.sectype == DiscoveryLogEntry::SECTYPE_TLS13,
            socket_address: entry.socket_address(),
        }
    }
}

/// Properties of the live association that I/O queues need.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Parameters {
    pub(crate) cntlid: u16,
    /// Commands on one I/O queue.
    pub(crate) depth: u16,
    /// I/O queues granted.
    pub(crate) io_queues: u16,
    pub(crate) in_capsule_bytes: u32,
    pub(crate) max_transfer_bytes: u32,
    pub(crate) lengths: CommandLengths,
    pub(crate) features: Features,
    /// The controller supports End Controller: it confirms when no command of another controller
    /// can take effect any more.
    pub(crate) fenced: bool,
    /// The controller uses the class in a queue's Connect command, and knows that this host sets
    /// it.
    pub(crate) queue_classes: bool,
    /// Limits of commands over extents, the controller's within those of this host; `None` if it
    /// does not support them.
    pub(crate) extents: Option<ExtentTerms>,
    /// Time after the close of its connections in which the controller must have ended by itself.
    pub(crate) quiet: Nanos,
    /// Number of the life of its write caches; 0 if it does not report one.
    pub(crate) cache_life: u64,
    /// Incarnation of the target's process; 0 if it does not report one.
    pub(crate) incarnation: u64,
}

/// Largest ranges, in bytes or blocks, of commands to which MDTS does not apply. `[NVMe NVM 1.0
/// §4.1.5.2]`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CommandLengths {
    /// Bytes of a Write Zeroes command.
    pub(crate) write_zeroes_bytes: u64,
    /// Bytes of a Verify command.
    pub(crate) verify_bytes: u64,
    /// Blocks of the single range of a Dataset Management command.
    pub(crate) deallocate_blocks: u32,
}

/// Optional commands.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Features {
    pub(crate) compare: bool,
    pub(crate) dataset_management: bool,
    pub(crate) write_zeroes: bool,
    pub(crate) verify: bool,
    pub(crate) volatile_cache: bool,
}

impl Features {
    /// Returns true if the controller supports the command of an operation.
    pub(crate) const fn supports(self, operation: Operation) -> bool {
        match operation {
            Operation::Compare => self.compare,
            Operation::Deallocate => self.dataset_management,
            Operation::WriteZeroes { .. } => self.write_zeroes,
            Operation::Verify => self.verify,
            Operation::Read | Operation::Write { .. } | Operation::Flush => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMELESS: VolumeId = VolumeId {
        nguid: None,
        eui64: None,
        uuid: None,
        serial: String::new(),
    };

    #[test]
    fn a_volume_is_recognised_by_every_identifier_that_both_have() {
        let both = VolumeId {
            nguid: Some([1; 16]),
            uuid: Some([2; 16]),
            ..NAMELESS
        };
        let one = VolumeId {
            uuid: Some([2; 16]),
            ..NAMELESS
        };
        let contradiction = VolumeId {
            nguid: Some([9; 16]),
            uuid: Some([2; 16]),
            ..NAMELESS
        };
        let nothing_in_common = VolumeId {
            eui64: Some([3; 8]),
            ..NAMELESS
        };
        assert!(both.is_same(&both) && both.is_same(&one) && one.is_same(&both));
        assert!(!both.is_same(&contradiction));
        assert!(!both.is_same(&nothing_in_common));
        assert!(!both.is_same(&NAMELESS) && !NAMELESS.is_same(&both));
    }

    #[test]
    fn without_identifiers_the_serial_number_decides() {
        let other = VolumeId {
            serial: "2".to_owned(),
            ..NAMELESS
        };
        assert!(NAMELESS.is_same(&NAMELESS));
        assert!(!NAMELESS.is_same(&other));
        // An identifier takes precedence over the serial number.
        let named = |serial: &str| VolumeId {
            uuid: Some([1; 16]),
            serial: serial.to_owned(),
            ..NAMELESS
        };
        assert!(named("1").is_same(&named("2")));
    }

    /// Two names appeared equal: each was cut off before the first byte that is not UTF-8.
    #[test]
    fn text_that_is_no_utf8_is_shown_as_such() {
        assert_eq!(text(b"nqn.a\xff\nb  \0c"), "nqn.a\u{fffd}\nb");
        assert_eq!(text(b"full"), "full");
    }
}
