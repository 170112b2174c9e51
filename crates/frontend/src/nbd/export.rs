//! Exports: the names through which clients access the device.

use super::protocol::{
    Form, NbdError, RequestHeader, Session, command, command_flag, flag, writes,
};
use crate::class_rules::SizeRules;
use crate::limits::{NBD_REQUEST_BYTES_MAX, NBD_REQUEST_PIECES_MAX};
use crate::served_size::served;
use block::{BlockError, Device, Geometry, Operation};
use std::sync::Arc;
use switch::Class;

/// The metadata context that reports holes.
pub(super) const ALLOCATION: &str = "base:allocation";

/// Its context ID.
pub(super) const ALLOCATION_CONTEXT: u32 = 1;

/// Size of a core's largest buffers, in bytes.
const BUFFER_BYTES: u32 = 1 << 20;

/// One name of the device.
#[derive(Clone, Debug)]
pub(super) struct Export {
    pub(super) name: &'static str,
    pub(super) description: String,
    /// Class of requests through this name.
    pub(super) class: Class,
    /// Rules with precedence over the class.
    pub(super) rules: SizeRules,
    pub(super) device: Arc<dyn Device>,
    pub(super) read_only: bool,
}

impl Export {
    fn geometry(&self) -> Geometry {
        served(&*self.device)
    }

    /// Returns true if the device was removed: the export is no longer offered.
    pub(super) fn is_gone(&self) -> bool {
        self.geometry().is_gone()
    }

    /// Current size in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.geometry().bytes()
    }

    /// Returns the class of a request; `depth` is the number of outstanding requests on its
    /// connection.
    pub(super) fn class_of(&self, header: &RequestHeader, depth: usize) -> Class {
        let moves = matches!(header.command, command::READ | command::WRITE);
        let bytes = if moves { header.length } else { 0 };
        self.rules.class(bytes, depth).unwrap_or(self.class)
    }

    pub(super) fn is_read_only(&self) -> bool {
        self.read_only || self.device.capabilities().read_only
    }

    /// Transmission flags.
    pub(super) fn flags(&self, form: Form) -> u16 {
        // A flush on one connection covers writes acknowledged on every other one, because the
        // device's own flush does.
        let mut flags = flag::HAS_FLAGS | flag::SEND_FLUSH | flag::SEND_FUA | flag::CAN_MULTI_CONN;
        if self.is_read_only() {
            flags |= flag::READ_ONLY;
        } else {
            if self.device.supports(Operation::Deallocate) {
                flags |= flag::SEND_TRIM;
            }
            let zeroes = Operation::WriteZeroes {
                deallocate: true,
                durable: false,
            };
            if self.device.supports(zeroes) {
                flags |= flag::SEND_WRITE_ZEROES;
            }
        }
        if form != Form::Simple {
            flags |= flag::SEND_DF;
        }
        flags
    }

    /// Maximum data of one request, in bytes.
    pub(super) fn request_bytes_max(&self) -> u32 {
        let piece = self.device.capabilities().max_transfer_bytes;
        let piece = piece.min(BUFFER_BYTES).max(self.geometry().block_bytes);
        piece
            .saturating_mul(NBD_REQUEST_PIECES_MAX)
            .min(NBD_REQUEST_BYTES_MAX)
    }

    /// Returns the error of an invalid request, if its header shows it.
    pub(super) fn refuse(&self, header: &RequestHeader, session: Session) -> Option<NbdError> {
        use command_flag::{DONT_FRAGMENT, FUA, NO_HOLE, PAYLOAD_LEN, REQ_ONE};
        let extended = session.form == Form::Extended;
        let allowed = match header.command {
            command::READ => FUA | DONT_FRAGMENT,
            command::WRITE if extended => FUA | PAYLOAD_LEN,
            command::WRITE | command::TRIM => FUA,
            command::FLUSH => FUA,
            command::WRITE_ZEROES => FUA | NO_HOLE,
            command::BLOCK_STATUS => FUA | REQ_ONE,
            _ => return Some(NbdError::Invalid),
        };
        if header.flags & !allowed != 0 {
            return Some(NbdError::Invalid);
        }
        let writes = writes(header.command);
        if writes && self.is_read_only() {
            return Some(NbdError::Permission);
        }
        if header.command == command::FLUSH {
            return None;
        }
        let geometry = self.geometry();
        if geometry.is_gone() {
            return Some(NbdError::of(BlockError::Gone, writes));
        }
        let block = u64::from(geometry.block_bytes);
        let end = header.offset.checked_add(header.length);
        if end.is_none_or(|end| end > geometry.bytes()) {
            return Some(NbdError::of(BlockError::OutOfRange, writes));
        }
        let moves = matches!(header.command, command::READ | command::WRITE);
        if moves && header.length > self.request_bytes_max().into() {
            return Some(NbdError::Invalid);
        }
        let status = header.command == command::BLOCK_STATUS;
        if status && !session.allocation {
            return Some(NbdError::Invalid);
        }
        let aligned = header.offset.is_multiple_of(block) && header.length.is_multiple_of(block);
        (header.length == 0 || !aligned).then_some(NbdError::Invalid)
    }

    /// Minimum, preferred and maximum block size, in bytes. `[NBD "Block size constraints"]`
    pub(super) fn block_sizes(&self) -> [u32; 3] {
        let (geometry, capabilities) = (self.geometry(), self.device.capabilities());
        let block = geometry.block_bytes;
        let preferred = capabilities.preferred_bytes.max(4096).next_power_of_two();
        let most = self.request_bytes_max();
        [block, preferred.clamp(block, most), most]
    }
}
