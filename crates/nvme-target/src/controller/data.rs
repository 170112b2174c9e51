//! The data of an admin or Fabrics command.

use wire::nvme::{Command, DataPointer, Status};

/// Direction of a command's data: bits 1:0 of the opcode, or of the type of a Fabrics command.
/// `[NVMe Base 2.0 §3.3.3.1]`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    None,
    ToController,
    ToHost,
}

impl Direction {
    /// Returns the direction of a command's data.
    pub(crate) fn of(command: &Command) -> Self {
        let code = if command.is_fabrics() {
            command.fabrics_type().0
        } else {
            command.opcode()
        };
        match code & 0b11 {
            0b01 => Self::ToController,
            0b10 => Self::ToHost,
            _ => Self::None,
        }
    }
}

/// Returns the place of a command's data. Hosts leave the descriptor all zero where no data moves,
/// which for Get and Set Features the opcode does not tell.
pub(crate) fn pointer(command: &Command, direction: Direction) -> Result<DataPointer, Status> {
    if direction == Direction::None || command.sgl().is_zero() {
        return Ok(DataPointer::Transport { length: 0 });
    }
    command.data_pointer()
}
