//! Reservations: the four commands and their data structures. `[NVMe Base 2.0 §7.2, §7.3, §7.4,
//! §7.5, §8.19]`
//!
//! A reserved value of a field parses to `None`, and its command is answered with Invalid Field.

use crate::bytes::byte_of;
use crate::layout::layout;
use crate::nvme::command::Command;
use crate::nvme::opcode::IoOpcode;

/// RTYPE: type of a reservation. `[NVMe Base 2.0 §8.19]`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum ReservationType {
    /// Only the holder may write.
    WriteExclusive = 1,
    /// Only the holder may read and write.
    ExclusiveAccess = 2,
    /// Only registrants may write.
    WriteExclusiveRegistrants = 3,
    /// Only registrants may read and write.
    ExclusiveAccessRegistrants = 4,
    /// Only registrants may write, and each is a holder.
    WriteExclusiveAll = 5,
    /// Only registrants may read and write, and each is a holder.
    ExclusiveAccessAll = 6,
}

impl ReservationType {
    /// All types, in the order of their values.
    pub const ALL: [Self; 6] = [
        Self::WriteExclusive,
        Self::ExclusiveAccess,
        Self::WriteExclusiveRegistrants,
        Self::ExclusiveAccessRegistrants,
        Self::WriteExclusiveAll,
        Self::ExclusiveAccessAll,
    ];

    /// Parses the byte; `None` for a reserved value.
    pub fn parse(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == byte)
    }

    /// Every registrant is a holder.
    pub const fn is_held_by_all(self) -> bool {
        matches!(self, Self::WriteExclusiveAll | Self::ExclusiveAccessAll)
    }

    /// Registrants have the access of the holder.
    pub const fn admits_registrants(self) -> bool {
        !matches!(self, Self::WriteExclusive | Self::ExclusiveAccess)
    }

    /// Hosts without access may not read.
    pub const fn excludes_reads(self) -> bool {
        matches!(
            self,
            Self::ExclusiveAccess | Self::ExclusiveAccessRegistrants | Self::ExclusiveAccessAll
        )
    }
}

/// RREGA: action of Reservation Register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RegisterAction {
    /// Registers with NRKEY.
    Register = 0,
    /// Ends the registration.
    Unregister = 1,
    /// Replaces the key by NRKEY.
    Replace = 2,
}

/// RACQA: action of Reservation Acquire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum AcquireAction {
    /// Acquires a reservation.
    Acquire = 0,
    /// Ends the registrations of PRKEY, and replaces the reservation if one of them holds it.
    Preempt = 1,
    /// The same; the commands of these hosts have ended before it completes.
    PreemptAndAbort = 2,
}

/// RRELA: action of Reservation Release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ReleaseAction {
    /// Releases the reservation.
    Release = 0,
    /// Ends the reservation and all registrations.
    Clear = 1,
}

/// IEKEY, bit 3 of dword 10.
const IGNORE_KEY: u32 = 1 << 3;

/// Reservation Register, with its [`RegisterData`]. `[NVMe Base 2.0 §7.3]`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReservationRegister {
    /// RREGA.
    pub action: RegisterAction,
    /// IEKEY: CRKEY is not checked.
    pub ignore_key: bool,
    /// CPTPL: the new Persist Through Power Loss state; `None` for no change.
    pub persist: Option<bool>,
}

impl ReservationRegister {
    /// Parses dword 10.
    pub fn parse(command: &Command) -> Option<Self> {
        let dword = command.cdw(10);
        Some(Self {
            action: match dword & 0b111 {
                0 => RegisterAction::Register,
                1 => RegisterAction::Unregister,
                2 => RegisterAction::Replace,
                _ => return None,
            },
            ignore_key: dword & IGNORE_KEY != 0,
            persist: match dword >> 30 {
                0 => None,
                2 => Some(false),
                3 => Some(true),
                _ => return None,
            },
        })
    }

    /// Encodes the command; the caller sets its data pointer.
    pub fn encode(&self, nsid: u32, cid: u16) -> Command {
        let persist = self.persist.map_or(0, |on| 0b10 | u32::from(on));
        let dword = self.action as u32 | u32::from(self.ignore_key) << 3 | persist << 30;
        command(IoOpcode::RESERVATION_REGISTER, nsid, cid, dword)
    }
}

/// Reservation Acquire, with its [`AcquireData`]. `[NVMe Base 2.0 §7.2]`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReservationAcquire {
    /// RACQA.
    pub action: AcquireAction,
    /// RTYPE.
    pub kind: ReservationType,
}

impl ReservationAcquire {
    /// Parses dword 10; IEKEY may not be set.
    pub fn parse(command: &Command) -> Option<Self> {
        let dword = command.cdw(10);
        let action = match dword & 0b111 {
            0 => AcquireAction::Acquire,
            1 => AcquireAction::Preempt,
            2 => AcquireAction::PreemptAndAbort,
            _ => return None,
        };
        let kind = ReservationType::parse(byte_of(dword, 8))?;
        (dword & IGNORE_KEY == 0).then_some(Self { action, kind })
    }

    /// Encodes the command; the caller sets its data pointer.
    pub fn encode(&self, nsid: u32, cid: u16) -> Command {
        let dword = self.action as u32 | (self.kind as u32) << 8;
        command(IoOpcode::RESERVATION_ACQUIRE, nsid, cid, dword)
    }
}

/// Reservation Release, with its [`ReleaseData`]. `[NVMe Base 2.0 §7.4]`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReservationRelease {
    /// RRELA.
    pub action: ReleaseAction,
    /// RTYPE, which Clear ignores.
    pub kind: u8,
}

impl ReservationRelease {
    /// Parses dword 10; IEKEY may not be set.
    pub fn parse(command: &Command) -> Option<Self> {
        let dword = command.cdw(10);
        let action = match dword & 0b111 {
            0 => ReleaseAction::Release,
            1 => ReleaseAction::Clear,
            _ => return None,
        };
        let kind = byte_of(dword, 8);
        (dword & IGNORE_KEY == 0).then_some(Self { action, kind })
    }

    /// Encodes the command; the caller sets its data pointer.
    pub fn encode(&self, nsid: u32, cid: u16) -> Command {
        let dword = self.action as u32 | u32::from(self.kind) << 8;
        command(IoOpcode::RESERVATION_RELEASE, nsid, cid, dword)
    }
}

/// Reservation Report, answered with a [`ReservationStatus`]. `[NVMe Base 2.0 §7.5]`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReservationReport {
    /// NUMD, one-based: length of the data in dwords.
    pub dwords: u64,
    /// EDS: the data structure with host identifiers of 128 bits.
    pub extended: bool,
}

impl ReservationReport {
    /// Parses dwords 10 and 11.
    pub fn parse(command: &Command) -> Self {
        Self {
            dwords: u64::from(command.cdw(10)) + 1,
            extended: command.cdw(11) & 1 != 0,
        }
    }

    /// Encodes the command; the caller sets its data pointer.
    ///
    /// # Panics
    /// If the length is not 1 to 2^32 dwords.
    pub fn encode(&self, nsid: u32, cid: u16) -> Command {
        let dwords = u32::try_from(self.dwords - 1).expect("at most 2^32 dwords");
        let mut command = command(IoOpcode::RESERVATION_REPORT, nsid, cid, dwords);
        command.set_cdw(11, u32::from(self.extended));
        command
    }
}

fn command(opcode: IoOpcode, nsid: u32, cid: u16, dword10: u32) -> Command {
    let mut command = Command::new(opcode.0, cid);
    command.set_nsid(nsid);
    command.set_cdw(10, dword10);
    command
}

layout! {
    /// Data of Reservation Register.
    pub struct RegisterData: 16 {
        /// CRKEY: the host's current key.
        current: u64 = 0,
        /// NRKEY: its new key.
        new: u64 = 8,
    }
}

layout! {
    /// Data of Reservation Acquire.
    pub struct AcquireData: 16 {
        /// CRKEY: the host's key.
        current: u64 = 0,
        /// PRKEY: the key to preempt.
        preempted: u64 = 8,
    }
}

layout! {
    /// Data of Reservation Release.
    pub struct ReleaseData: 8 {
        /// CRKEY: the host's key.
        current: u64 = 0,
    }
}

layout! {
    /// Header of the extended Reservation Status, followed by a [`RegisteredController`] for each
    /// controller of a registrant. `[NVMe Base 2.0 §7.5.1]`
    pub struct ReservationStatus: 64 {
        /// GEN: number of changes of registrations.
        generation: u32 = 0,
        /// RTYPE; 0 without a reservation.
        kind: u8 = 4,
        /// REGCTL, 16 bits: number of entries.
        controllers: [u8; 2] = 5,
        /// PTPLS: 1 if the state persists through power loss.
        persists: u8 = 9,
    }
}

layout! {
    /// Extended Registered Controller.
    pub struct RegisteredController: 64 {
        /// CNTLID; FFFFh for a registrant without a controller.
        cntlid: u16 = 0,
        /// RCSTS: bit 0, its host holds the reservation.
        status: u8 = 2,
        /// RKEY.
        key: u64 = 8,
        /// HOSTID.
        host: [u8; 16] = 16,
    }
}

impl RegisteredController {
    /// CNTLID of a registrant without a controller.
    pub const NO_CONTROLLER: u16 = 0xffff;
    /// RCSTS: its host holds the reservation.
    pub const HOLDER: u8 = 1 << 0;
}

/// Type of a reservation notification. `[NVMe Base 2.0 §5.16.1.24]`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ReservationNotice {
    /// Another host ended the host's registration.
    RegistrationPreempted = 1,
    /// A reservation that the host's registration gave access to was released.
    ReservationReleased = 2,
    /// Another host cleared the reservation.
    ReservationPreempted = 3,
}

impl ReservationNotice {
    /// Returns its bit in Reservation Notification Mask. `[NVMe Base 2.0 §5.27.1.26]`
    pub const fn mask(self) -> u32 {
        1 << self as u32
    }
}

layout! {
    /// Reservation Notification (LID 80h). `[NVMe Base 2.0 §5.16.1.24]`
    pub struct ReservationLog: 64 {
        /// LPC: number of the notification since the controller's start; 0 for none.
        count: u64 = 0,
        /// A [`ReservationNotice`]; 0 for none.
        kind: u8 = 8,
        /// NALP: further notifications, at most 255.
        available: u8 = 9,
        /// NSID.
        nsid: u32 = 12,
    }
}

/// RESCAP: the state can persist through power loss. `[NVMe Base 2.0 §5.17.2.8]`
pub const RESCAP_PERSISTENT: u8 = 1 << 0;

/// RESCAP: all six types, and IEKEY as of NVMe 1.3.
pub const RESCAP_TYPES: u8 = 0b1111_1110;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_come_back_and_reserved_values_do_not() {
        for bits in 0..=u32::from(u16::MAX) {
            let dword = bits & 0xffff | (bits & 0b11) << 30;
            let of = |opcode| command(opcode, 7, 9, dword);
            let register = of(IoOpcode::RESERVATION_REGISTER);
            let register_dword = dword & 0xc000_000f;
            match ReservationRegister::parse(&register) {
                Some(it) => assert_eq!(it.encode(7, 9).cdw(10), register_dword),
                None => assert!(dword & 0b111 > 2 || dword >> 30 == 1),
            }
            match ReservationAcquire::parse(&of(IoOpcode::RESERVATION_ACQUIRE)) {
                Some(it) => assert_eq!(it.encode(7, 9).cdw(10), dword & 0xff0f),
                None => assert!(
                    dword & 0b111 > 2 || dword & 8 != 0 || !(1..=6).contains(&byte_of(dword, 8))
                ),
            }
            match ReservationRelease::parse(&of(IoOpcode::RESERVATION_RELEASE)) {
                Some(it) => assert_eq!(it.encode(7, 9).cdw(10), dword & 0xff0f),
                None => assert!(dword & 0b111 > 1 || dword & 8 != 0),
            }
        }
        for dwords in [1, 16, 1 << 32] {
            let report = ReservationReport {
                dwords,
                extended: dwords == 16,
            };
            assert_eq!(ReservationReport::parse(&report.encode(1, 2)), report);
        }
    }
}
