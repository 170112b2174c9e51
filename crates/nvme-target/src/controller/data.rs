//! The data of an admin or Fabrics command.

use wire::nvme::{Command, DataDirection, DataPointer, Status};

/// Returns the direction of a command's data; no supported command has both.
pub(crate) fn direction(command: &Command) -> DataDirection {
    let code = if command.is_fabrics() {
        command.fabrics_type().0
    } else {
        command.opcode()
    };
    match DataDirection::of(code) {
        DataDirection::Both => DataDirection::None,
        one => one,
    }
}

/// Returns the place of a command's data. Hosts leave the descriptor all zero where no data moves,
/// which for Get and Set Features the opcode does not tell.
pub(crate) fn pointer(command: &Command, direction: DataDirection) -> Result<DataPointer, Status> {
    if direction == DataDirection::None || command.sgl().is_zero() {
        return Ok(DataPointer::Transport { length: 0 });
    }
    command.data_pointer()
}
