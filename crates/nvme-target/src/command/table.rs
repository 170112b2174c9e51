//! The table of commands: one row per opcode, with its checks, its price and its execution. `[NVMe
//! NVM 1.0 §3, NVMe Base 2.0 §5]`
//!
//! [`check`](crate::command::blocks::check) applies the checks of a row. `begin_io`
//! (`service/io.rs`) selects the function for the [`Form`]. ONCS and the effects log are derived
//! from the rows.

use crate::limits::Limits;
use crate::reservation::state::Access;
use block::Operation;
use qos::PricedOperation;
use qos::access::Need;
use wire::nvme::log_page::EffectsLog;
use wire::nvme::{AdminOpcode, DataDirection, IdentifyController, IoOpcode};

/// A command, identified by its row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum CommandKind {
    /// An admin or Fabrics command; the slot keeps the whole command.
    #[default]
    Admin,
    /// The normal shutdown of a controller: a Property Set that first flushes volatile caches.
    Shutdown,
    Read,
    Write,
    Compare,
    Verify,
    WriteZeroes,
    Flush,
    Dataset,
    ReadExtents,
    WriteExtents,
    Register,
    Report,
    Acquire,
    Release,
}

/// The form of a command: how it begins, and how it is sent to its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Executed by a controller or by the thread of reservations; no device request.
    Controller,
    /// Data of a block range for the host: one request, or none if the device is memory.
    Read,
    /// Data from the host for a block range: one request, or none if the device is memory.
    Write,
    /// A block range and data from the host: one request.
    Data,
    /// A block range without data: one request, or a list of ranges if it is longer than a request.
    Blocks,
    /// A list of ranges as data: requests one after another.
    Ranges,
    /// A table of extents as data: one request for all extents, or one for each.
    Extents,
    /// One namespace or all: one request for each.
    Flush,
}

/// When a target supports a command.
#[derive(Clone, Copy, Debug)]
enum Offered {
    Always,
    /// [`Limits::extents`] is not 0.
    WithExtents,
    /// [`Limits::end_controller`] is true.
    WithEndController,
}

impl Offered {
    fn by(self, limits: &Limits) -> bool {
        match self {
            Self::Always => true,
            Self::WithExtents => limits.extent_terms().is_some(),
            Self::WithEndController => limits.end_controller,
        }
    }
}

/// The properties of a command.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) kind: CommandKind,
    pub(crate) opcode: IoOpcode,
    pub(crate) form: Form,
    /// The operation as which it is priced and counted.
    pub(crate) price: PricedOperation,
    /// Its access to blocks, which a reservation may refuse. `[NVMe Base 2.0 §8.19.1]`
    pub(crate) access: Access,
    /// PRACT may be 1.
    pub(crate) pract: bool,
    /// Its bit in ONCS; 0 for a mandatory command.
    oncs: u16,
    offered: Offered,
}

const fn row(
    kind: CommandKind,
    opcode: IoOpcode,
    form: Form,
    price: PricedOperation,
    access: Access,
) -> Row {
    Row {
        access,
        kind,
        opcode,
        form,
        price,
        pract: true,
        oncs: 0,
        offered: Offered::Always,
    }
}

impl Row {
    const fn oncs(self, oncs: u16) -> Self {
        Self { oncs, ..self }
    }

    const fn without_pract(self) -> Self {
        Self {
            pract: false,
            ..self
        }
    }

    const fn with_extents(self) -> Self {
        Self {
            offered: Offered::WithExtents,
            ..self
        }
    }

    /// Returns true if a target with these limits supports the command.
    pub(crate) fn is_offered(&self, limits: &Limits) -> bool {
        self.offered.by(limits)
    }

    /// Returns the row of an opcode of the NVM command set; `None` if no target supports it.
    #[inline]
    pub(crate) fn of(opcode: u8) -> Option<&'static Self> {
        KINDS[usize::from(opcode)].map(CommandKind::row)
    }
}

/// Rows by [`CommandKind`].
#[rustfmt::skip]
static TABLE: [Row; 15] = {
    use CommandKind as Kind;
    use IdentifyController as Id;
    use IoOpcode as Op;
    use PricedOperation as Price;
    [
        row(Kind::Admin, Op::FABRICS, Form::Controller, Price::Read, Access::Free),
        row(Kind::Shutdown, Op::FABRICS, Form::Flush, Price::Flush, Access::Free),
        row(Kind::Read, Op::READ, Form::Read, Price::Read, Access::Read),
        row(Kind::Write, Op::WRITE, Form::Write, Price::Write, Access::Write),
        row(Kind::Compare, Op::COMPARE, Form::Data, Price::Compare, Access::Read).oncs(Id::ONCS_COMPARE),
        row(Kind::Verify, Op::VERIFY, Form::Blocks, Price::Verify, Access::Read).oncs(Id::ONCS_VERIFY).without_pract(),
        row(Kind::WriteZeroes, Op::WRITE_ZEROES, Form::Blocks, Price::WriteZeroes, Access::Write).oncs(Id::ONCS_WRITE_ZEROES),
        row(Kind::Flush, Op::FLUSH, Form::Flush, Price::Flush, Access::Write),
        row(Kind::Dataset, Op::DATASET_MANAGEMENT, Form::Ranges, Price::Deallocate, Access::Write).oncs(Id::ONCS_DATASET_MANAGEMENT),
        row(Kind::ReadExtents, Op::READ_EXTENTS, Form::Extents, Price::Read, Access::Read).with_extents(),
        row(Kind::WriteExtents, Op::WRITE_EXTENTS, Form::Extents, Price::Write, Access::Write).with_extents(),
        row(Kind::Register, Op::RESERVATION_REGISTER, Form::Controller, Price::Read, Access::Free).oncs(Id::ONCS_RESERVATIONS),
        row(Kind::Report, Op::RESERVATION_REPORT, Form::Controller, Price::Read, Access::Free).oncs(Id::ONCS_RESERVATIONS),
        row(Kind::Acquire, Op::RESERVATION_ACQUIRE, Form::Controller, Price::Read, Access::Free).oncs(Id::ONCS_RESERVATIONS),
        row(Kind::Release, Op::RESERVATION_RELEASE, Form::Controller, Price::Read, Access::Free).oncs(Id::ONCS_RESERVATIONS),
    ]
};

/// Command kinds by opcode of the NVM command set.
static KINDS: [Option<CommandKind>; 256] = {
    let mut kinds = [None; 256];
    let mut at = 0;
    while at < TABLE.len() {
        let row = &TABLE[at];
        assert!(row.kind as usize == at, "rows stand in the order of kinds");
        if row.opcode.0 != IoOpcode::FABRICS.0 {
            kinds[row.opcode.0 as usize] = Some(row.kind);
        }
        at += 1;
    }
    kinds
};

/// The admin commands that `controller::admin` executes.
static ADMIN: [(AdminOpcode, Offered); 8] = [
    (AdminOpcode::GET_LOG_PAGE, Offered::Always),
    (AdminOpcode::IDENTIFY, Offered::Always),
    (AdminOpcode::ABORT, Offered::Always),
    (AdminOpcode::SET_FEATURES, Offered::Always),
    (AdminOpcode::GET_FEATURES, Offered::Always),
    (AdminOpcode::ASYNC_EVENT_REQUEST, Offered::Always),
    (AdminOpcode::KEEP_ALIVE, Offered::Always),
    (AdminOpcode::END_CONTROLLER, Offered::WithEndController),
];

impl CommandKind {
    /// Returns the command's row.
    #[inline]
    pub(crate) fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }

    /// Returns true if the command may change blocks: after a lost connection, nothing may be
    /// replayed before such a command has ended (docs/design/decisions/0004-replay.md).
    #[inline]
    pub(crate) fn changes_data(self) -> bool {
        self.row().opcode.changes_data()
    }

    /// Returns the access that the command needs to its blocks.
    #[inline]
    pub(crate) fn need(self) -> Need {
        if self.changes_data() {
            Need::Write
        } else {
            Need::Read
        }
    }

    /// Returns true if the host sends block data or a list.
    #[inline]
    pub(crate) fn takes_data(self) -> bool {
        DataDirection::of(self.row().opcode.0) == DataDirection::ToController
    }

    /// Returns true if the answer may carry data.
    #[inline]
    pub(crate) fn sends_data(self) -> bool {
        let direction = DataDirection::of(self.row().opcode.0);
        matches!(direction, DataDirection::ToHost | DataDirection::Both)
    }

    /// Returns the operation of the command's device requests, with FUA (`durable`), and with DEAC
    /// or AD (`deallocate`). `None` for Dataset Management with only hints, which a controller may
    /// ignore, and for a command without device requests.
    pub(crate) const fn operation(self, durable: bool, deallocate: bool) -> Option<Operation> {
        Some(match self {
            Self::Admin | Self::Register | Self::Report | Self::Acquire | Self::Release => {
                return None;
            }
            Self::Read | Self::ReadExtents => Operation::Read,
            Self::Write | Self::WriteExtents => Operation::Write { durable },
            Self::Compare => Operation::Compare,
            Self::Verify => Operation::Verify,
            Self::WriteZeroes => Operation::WriteZeroes {
                deallocate,
                durable,
            },
            Self::Flush | Self::Shutdown => Operation::Flush,
            Self::Dataset if deallocate => Operation::Deallocate,
            Self::Dataset => return None,
        })
    }
}

/// Returns the bits of ONCS for the supported commands.
pub(crate) fn oncs() -> u16 {
    TABLE.iter().fold(0, |oncs, row| oncs | row.oncs)
}

/// Returns the Commands Supported and Effects log page. `[NVMe Base 2.0 §5.16.1.6]`
pub(crate) fn effects(limits: &Limits) -> EffectsLog {
    let mut log = EffectsLog::default();
    for (opcode, offered) in &ADMIN {
        log.admin[usize::from(opcode.0)] = u32::from(offered.by(limits)) * EffectsLog::SUPPORTED;
    }
    let rows = KINDS.iter().flatten().map(|kind| kind.row());
    for row in rows.filter(|row| row.is_offered(limits)) {
        let changes = u32::from(row.opcode.changes_data()) * EffectsLog::CHANGES_DATA;
        log.io[usize::from(row.opcode.0)] = EffectsLog::SUPPORTED | changes;
    }
    log
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effects_name_every_command_that_changes_data() {
        let limits = Limits {
            end_controller: false,
            extents: 0,
            ..Limits::default()
        };
        let log = effects(&limits);
        assert_eq!(log.io[usize::from(IoOpcode::WRITE_EXTENTS.0)], 0);
        let all = effects(&Limits::default());
        assert_eq!(all.io[usize::from(IoOpcode::WRITE_EXTENTS.0)], 0b11);
        assert_eq!(all.io[usize::from(IoOpcode::READ_EXTENTS.0)], 0b01);
        let end = usize::from(AdminOpcode::END_CONTROLLER.0);
        assert_eq!((all.admin[end], log.admin[end]), (0b01, 0));
        assert_eq!(log.io[usize::from(IoOpcode::WRITE.0)], 0b11);
        assert_eq!(log.io[usize::from(IoOpcode::READ.0)], 0b01);
        assert_eq!(log.io[usize::from(IoOpcode::COPY.0)], 0);
    }

    #[test]
    fn data_travels_as_the_operation_says() {
        let rows = KINDS.iter().flatten().map(|kind| kind.row());
        for row in rows.filter(|row| row.form != Form::Controller) {
            let operation = row.kind.operation(false, true).expect("it has a device");
            assert_eq!(
                row.kind.changes_data(),
                operation.is_write(),
                "{}",
                row.opcode
            );
            let moves = row.kind.takes_data() || row.kind.sends_data();
            assert_eq!(
                operation.has_data(),
                moves && row.form != Form::Ranges,
                "{}",
                row.opcode
            );
        }
    }
}
