//! The Identify command, and the values of CNS. `[NVMe Base 2.0 §5.17]`

use crate::bytes::{byte_of, high16, join16, low16};
use crate::nvme::command::Command;
use crate::nvme::opcode::{AdminOpcode, code_names};

/// Identify. The returned data always has 4096 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identify {
    /// NSID: depends on CNS.
    pub nsid: u32,
    /// CNS: the requested structure.
    pub cns: Cns,
    /// CNTID: a controller, for some values of CNS.
    pub controller_id: u16,
    /// CNS Specific Identifier (an NVM set, a domain), for some values of CNS.
    pub specific_id: u16,
    /// CSI: an I/O command set, for some values of CNS.
    pub command_set: u8,
    /// UUID Index, 0 to 127.
    pub uuid_index: u8,
}

impl Identify {
    /// An Identify command for the structure `cns` of namespace `nsid`.
    pub const fn new(cns: Cns, nsid: u32) -> Self {
        Self {
            nsid,
            cns,
            controller_id: 0,
            specific_id: 0,
            command_set: 0,
            uuid_index: 0,
        }
    }

    /// Parses the command dwords.
    pub fn parse(command: &Command) -> Self {
        let (cdw10, cdw11) = (command.cdw(10), command.cdw(11));
        Self {
            nsid: command.nsid(),
            cns: Cns(byte_of(cdw10, 0)),
            controller_id: high16(cdw10),
            specific_id: low16(cdw11),
            command_set: byte_of(cdw11, 24),
            uuid_index: byte_of(command.cdw(14), 0) & 0x7f,
        }
    }

    /// Encodes the command; the caller sets its data pointer.
    pub fn encode(&self, cid: u16) -> Command {
        let mut command = Command::new(AdminOpcode::IDENTIFY.0, cid);
        command.set_nsid(self.nsid);
        command.set_cdw(10, join16(u16::from(self.cns.0), self.controller_id));
        command.set_cdw(
            11,
            join16(self.specific_id, u16::from(self.command_set) << 8),
        );
        command.set_cdw(14, u32::from(self.uuid_index & 0x7f));
        command
    }
}

code_names! {
    /// Controller or Namespace Structure: the data structure that Identify requests. `[NVMe Base
    /// 2.0 §5.17.1]`
    Cns {
        /// One namespace (NVM command set).
        NAMESPACE = 0x00, "Identify Namespace";
        /// The controller.
        CONTROLLER = 0x01, "Identify Controller";
        /// Active namespaces above NSID.
        ACTIVE_NAMESPACES = 0x02, "Active Namespace ID List";
        /// Identifiers of one namespace.
        NAMESPACE_DESCRIPTORS = 0x03, "Namespace Identification Descriptor List";
        /// NVM sets.
        NVM_SETS = 0x04, "NVM Set List";
        /// One namespace in the view of one command set.
        COMMAND_SET_NAMESPACE = 0x05, "I/O Command Set Specific Identify Namespace";
        /// The controller in the view of one command set.
        COMMAND_SET_CONTROLLER = 0x06, "I/O Command Set Specific Identify Controller";
        /// Active namespaces of one command set.
        COMMAND_SET_ACTIVE_NAMESPACES = 0x07, "I/O Command Set Specific Active Namespace ID List";
        /// One namespace, independent of its command set.
        INDEPENDENT_NAMESPACE = 0x08, "I/O Command Set Independent Identify Namespace";
        /// Allocated namespaces above NSID.
        ALLOCATED_NAMESPACES = 0x10, "Allocated Namespace ID List";
        /// One allocated namespace.
        ALLOCATED_NAMESPACE = 0x11, "Identify Allocated Namespace";
        /// Controllers that a namespace is attached to.
        ATTACHED_CONTROLLERS = 0x12, "Namespace Attached Controller List";
        /// Controllers of the subsystem.
        CONTROLLERS = 0x13, "Controller List";
        /// Primary controller capabilities.
        PRIMARY_CAPABILITIES = 0x14, "Primary Controller Capabilities";
        /// Secondary controllers.
        SECONDARY_CONTROLLERS = 0x15, "Secondary Controller List";
        /// Namespace granularity.
        NAMESPACE_GRANULARITY = 0x16, "Namespace Granularity List";
        /// UUIDs.
        UUIDS = 0x17, "UUID List";
        /// Domains.
        DOMAINS = 0x18, "Domain List";
        /// Endurance groups.
        ENDURANCE_GROUPS = 0x19, "Endurance Group List";
        /// Allocated namespaces of one command set.
        COMMAND_SET_ALLOCATED_NAMESPACES = 0x1a, "I/O Command Set Specific Allocated Namespace ID List";
        /// One allocated namespace in the view of one command set.
        COMMAND_SET_ALLOCATED_NAMESPACE = 0x1b, "I/O Command Set Specific Identify Allocated Namespace";
        /// Combinations of command sets.
        COMMAND_SETS = 0x1c, "Identify I/O Command Set";
    }
}

/// CSI of the NVM command set. `[NVMe Base 2.0 §3.1.2.2]`
pub const CSI_NVM: u8 = 0x00;
