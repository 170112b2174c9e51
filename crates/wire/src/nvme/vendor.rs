//! Vendor specific extensions between a host and a target of Switchyard.
//!
//! A controller announces its extensions in the vendor's area of Identify Controller; a host uses
//! only what was announced, and everything works without.

use crate::bytes::{low16, put_u64, u64_at};
use crate::nvme::command::Command;
use crate::nvme::extents::ExtentTerms;
use crate::nvme::opcode::AdminOpcode;

/// First bytes of the vendor's area of a Switchyard controller.
const MAGIC: [u8; 8] = *b"SWITCHYD";

/// Offset of the extensions' bits in the vendor's area.
const BITS: usize = MAGIC.len();

/// Offset of the life of the caches.
const CACHE_LIFE: usize = 16;

/// Offset of the terms of commands over extents.
const EXTENT_TERMS: usize = 24;

/// Offset of the incarnation.
const INCARNATION: usize = 40;

/// The extensions that a controller announces.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Extensions {
    /// Knows [`EndController`].
    pub end_controller: bool,
    /// Respects the priority class of a queue's Connect command, once the host has said with
    /// [`HostExtensions`] that it means it.
    pub queue_classes: bool,
    /// Knows [`ExtentsCommand`](crate::nvme::ExtentsCommand), on these terms.
    pub extents: Option<ExtentTerms>,
    /// Life of its volatile write caches, as a number: what was acknowledged and not flushed may be
    /// gone where a host finds another one than before. 0 says nothing.
    pub cache_life: u64,
    /// Number of the target's process: under another one, identifiers of controllers are given out
    /// anew. 0 says nothing. The upper 32 bits name the boot of the machine, or are 0: under another
    /// number of the same boot, every controller of the process before is gone.
    pub incarnation: u64,
}

impl Extensions {
    /// The extensions that a controller of this version announces, but for those with numbers.
    pub const OURS: Self = Self {
        end_controller: true,
        queue_classes: true,
        extents: None,
        cache_life: 0,
        incarnation: 0,
    };

    /// Reads the vendor's area of Identify Controller; any other vendor's announces nothing.
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

    /// The vendor's area of Identify Controller.
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
/// It ends another controller of the same host (same NQN and identifier) in the same subsystem:
/// all its connections are closed. The command completes when none of that controller's commands
/// can take effect any more; when there is no such controller, at once. A host that has lost a
/// connection sends it before it sends a write again, since an old copy of that write may still be
/// on its way (docs/design/decisions/0004-replay.md).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EndController {
    /// CNTLID of the controller to end.
    pub controller_id: u16,
}

impl EndController {
    /// Reads the dword.
    pub fn parse(command: &Command) -> Self {
        Self {
            controller_id: low16(command.cdw(10)),
        }
    }

    /// The command.
    pub fn encode(&self, cid: u16) -> Command {
        let mut command = Command::new(AdminOpcode::END_CONTROLLER.0, cid);
        command.set_cdw(10, u32::from(self.controller_id));
        command
    }
}

/// Host Extensions: a vendor-specific feature, dword 11 of Set Features, which a host sets before
/// it connects I/O queues. A controller that does not announce the extension knows no such feature.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct HostExtensions {
    /// The priority class (bits 1:0 of CATTR) of this host's I/O queues is meant: 00 is urgent.
    /// Ordinary hosts leave it 00 and mean nothing by it.
    pub queue_classes: bool,
}

impl HostExtensions {
    /// Reads dword 11; bits that we do not know say nothing.
    pub const fn from_dword(dword: u32) -> Self {
        Self {
            queue_classes: dword & 1 != 0,
        }
    }

    /// Dword 11.
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
