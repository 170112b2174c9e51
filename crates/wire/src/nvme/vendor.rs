//! Vendor-specific extensions between a host and a target of Switchyard.
//!
//! A controller announces its extensions in the vendor-specific area of Identify Controller; a host
//! uses announced extensions only, and works without any.

use crate::bytes::{low16, put_u64, u64_at};
use crate::nvme::command::Command;
use crate::nvme::extents::ExtentTerms;
use crate::nvme::opcode::AdminOpcode;

/// First bytes of a Switchyard controller's vendor-specific area.
const MAGIC: [u8; 8] = *b"SWITCHYD";

/// Offset of the extension bits in the vendor-specific area.
const BITS: usize = MAGIC.len();

/// Offset of the life of the caches.
const CACHE_LIFE: usize = 16;

/// Offset of the limits on commands over extents.
const EXTENT_TERMS: usize = 24;

/// Offset of the incarnation.
const INCARNATION: usize = 40;

/// Extensions that a controller announces.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Extensions {
    /// Supports [`EndController`].
    pub end_controller: bool,
    /// Respects the priority class of a queue's Connect command if the host has announced with
    /// [`HostExtensions`] that it sets it.
    pub queue_classes: bool,
    /// Supports [`ExtentsCommand`](crate::nvme::ExtentsCommand), with these limits.
    pub extents: Option<ExtentTerms>,
    /// Number of the life of its volatile write caches: if a host finds another number than before,
    /// acknowledged unflushed writes may be lost. 0 for unknown.
    pub cache_life: u64,
    /// Number of the target's process: after a change, controller identifiers are assigned anew. 0
    /// for unknown. The upper 32 bits identify the boot of the machine, or are 0: with another
    /// number of the same boot, every controller of the previous process has ended.
    pub incarnation: u64,
}

impl Extensions {
    /// Extensions that a controller of this version announces, without those that have values.
    pub const OURS: Self = Self {
        end_controller: true,
        queue_classes: true,
        extents: None,
        cache_life: 0,
        incarnation: 0,
    };

    /// Parses the vendor-specific area of Identify Controller; that of another vendor has no
    /// extensions.
    pub fn parse(area: &[u8; 1024]) -> Self {
        if area[..MAGIC.len()] != MAGIC {
            return Self::default();
        }
        Self {
            end_controller: area[BITS] & 1 != 0,
            queue_classes: area[BITS] & 2 != 0,
            extents: ExtentTerms::parse(&area[EXTENT_TERMS..]).filter(|_| area[BITS] & 16 != 0),
            cache_life: u64_at(area, CACHE_LIFE),
            incarnation: u64_at(area, INCARNATION),
        }
    }

    /// Encodes the vendor-specific area of Identify Controller.
    pub fn encode(self) -> [u8; 1024] {
        let mut area = [0; 1024];
        area[..MAGIC.len()].copy_from_slice(&MAGIC);
        area[BITS] = u8::from(self.end_controller)
            | u8::from(self.queue_classes) << 1
            | u8::from(self.extents.is_some()) << 4;
        if let Some(terms) = self.extents {
            area[EXTENT_TERMS..][..ExtentTerms::SIZE].copy_from_slice(&terms.to_bytes());
        }
        put_u64(&mut area, CACHE_LIFE, self.cache_life);
        put_u64(&mut area, INCARNATION, self.incarnation);
        area
    }
}

/// End Controller: a vendor-specific admin command without data.
///
/// It ends another controller of the same host (same NQN and identifier) in the same subsystem: all
/// its connections are closed. The command completes when none of that controller's commands can
/// take effect any more; immediately if there is no such controller. A host that has lost a
/// connection sends it before it resends a write, because an old copy of that write may still be in
/// flight (docs/design/decisions/0004-replay.md).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EndController {
    /// CNTLID of the controller to end.
    pub controller_id: u16,
}

impl EndController {
    /// Parses the dword.
    pub fn parse(command: &Command) -> Self {
        Self {
            controller_id: low16(command.cdw(10)),
        }
    }

    /// Encodes the command.
    pub fn encode(&self, cid: u16) -> Command {
        let mut command = Command::new(AdminOpcode::END_CONTROLLER.0, cid);
        command.set_cdw(10, u32::from(self.controller_id));
        command
    }
}

/// Host Extensions: a vendor-specific feature, dword 11 of Set Features, which a host sets before
/// it connects I/O queues. A controller supports it if it announces the extension.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct HostExtensions {
    /// The host sets the priority class (bits 1:0 of CATTR) of its I/O queues; 00 is urgent. Other
    /// hosts leave it at 00 without meaning it.
    pub queue_classes: bool,
}

impl HostExtensions {
    /// Parses dword 11; unknown bits are ignored.
    pub const fn from_dword(dword: u32) -> Self {
        Self {
            queue_classes: dword & 1 != 0,
        }
    }

    /// Encodes dword 11.
    pub const fn to_dword(self) -> u32 {
        self.queue_classes as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extensions_survive_the_vendor_area_and_strangers_have_none() {
        assert_eq!(
            Extensions::parse(&Extensions::OURS.encode()),
            Extensions::OURS
        );
        let none = Extensions::default();
        assert_eq!(Extensions::parse(&none.encode()), none);
        let some = Extensions {
            end_controller: true,
            cache_life: 0x0123_4567_89AB_CDEF,
            incarnation: 0xFEDC_BA98_7654_3210,
            extents: Some(ExtentTerms {
                extents: 64,
                in_flight: 0x1234,
                bytes: 0x0012_3456,
                outcomes: true,
            }),
            ..none
        };
        assert_eq!(Extensions::parse(&some.encode()), some);
        assert_eq!(Extensions::parse(&[0xFF; 1024]), none);
        assert_eq!(Extensions::parse(&[0; 1024]), none);
        let mut unannounced = some.encode();
        unannounced[BITS] &= !16;
        assert_eq!(Extensions::parse(&unannounced).extents, None);
    }

    #[test]
    fn host_extensions_survive_the_dword_and_unknown_bits_say_nothing() {
        for queue_classes in [false, true] {
            let ours = HostExtensions { queue_classes };
            assert_eq!(HostExtensions::from_dword(ours.to_dword()), ours);
        }
        let strange = HostExtensions::from_dword(!1);
        assert_eq!(strange, HostExtensions::default());
    }

    #[test]
    fn the_command_names_the_controller() {
        let end = EndController {
            controller_id: 0x1234,
        };
        let command = end.encode(7);
        assert_eq!(command.opcode(), 0xC0);
        assert_eq!(EndController::parse(&command), end);
    }
}
