//! The receiving half of a connection: turns bytes into PDUs, and receives large payload directly
//! into its destination.

use crate::limits::DIRECT_RECEIVE_BYTES_MIN;
use reactor::IoSlice;
use wire::tcp::{Event, Framer, FramingError, PduFormat};

/// A slice that a receive fills, and its position in the data of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectReceive {
    /// Slot of the command in the connection's table.
    pub slot: u16,
    /// First byte of the slice in the data of its command.
    position: u32,
    /// Length of the command's data in bytes.
    length: u32,
}

/// The framer of a connection, and the destination of the current receive.
///
/// ```text
///            arm                    arm_direct
///  idle ───────────► buffer   idle ───────────► direct
///    ▲  disarm          │       ▲  disarm          │
///    └──────────────────┘       └──────────────────┘
/// ```
#[derive(Debug)]
pub struct Receiver {
    framer: Framer,
    state: ReceiveState,
}

/// The outstanding receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReceiveState {
    /// None.
    Idle,
    /// Into a receive buffer of the driver.
    Buffer,
    /// Into the data of a command first.
    Direct(DirectReceive),
}

impl Receiver {
    /// A receiver for the first PDU of a connection.
    #[must_use]
    pub const fn new(framer: Framer) -> Self {
        Self {
            framer,
            state: ReceiveState::Idle,
        }
    }

    /// Returns the next event and advances the input; `None` at the end of the input.
    ///
    /// # Errors
    /// The violation of the PDU format; the connection must be terminated.
    #[inline]
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Event<'a>>, FramingError> {
        self.framer.next(input)
    }

    /// The framer.
    #[must_use]
    pub const fn framer(&self) -> &Framer {
        &self.framer
    }

    /// The framer, to set limits and alignment.
    pub const fn framer_mut(&mut self) -> &mut Framer {
        &mut self.framer
    }

    /// Returns the framer, to continue the stream on another core. The current receive must not
    /// bring more data.
    #[must_use]
    pub fn into_framer(self) -> Framer {
        self.framer
    }

    /// Sets the negotiated digests. `[NVMe-TCP 1.0 §3.6.2.3]`
    pub const fn set_digests(&mut self, format: &PduFormat) {
        self.framer
            .set_digests(format.header_digest, format.data_digest);
    }

    /// Returns true if no receive is outstanding.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.state == ReceiveState::Idle
    }

    /// Returns the number of missing bytes of the current payload of `wanted` bytes, if a direct
    /// receive is worthwhile.
    #[must_use]
    pub fn direct_bytes(&self, wanted: u32) -> Option<usize> {
        let bytes = self.framer.data_remaining()?.min(wanted) as usize;
        (bytes >= DIRECT_RECEIVE_BYTES_MIN).then_some(bytes)
    }

    /// Notes a submitted receive into a buffer of the driver.
    pub fn arm(&mut self) {
        debug_assert!(self.is_idle(), "one receive at a time");
        self.state = ReceiveState::Buffer;
    }

    /// Notes a submitted receive into the data of a command. Returns the slice to fill: `bytes`
    /// bytes of `data` from `position`.
    pub fn arm_direct(&mut self, slot: u16, data: IoSlice, position: u32, bytes: usize) -> IoSlice {
        debug_assert!(self.is_idle(), "one receive at a time");
        let length = u32::try_from(data.len()).expect("a transfer is at most 1 MiB");
        self.state = ReceiveState::Direct(DirectReceive {
            slot,
            position,
            length,
        });
        let offset = data.offset() + position as usize;
        IoSlice::new(data.into_memory(), offset, bytes)
    }

    /// Notes the end of the receive. Returns the command whose data it filled, if any.
    pub fn disarm(&mut self) -> Option<DirectReceive> {
        match std::mem::replace(&mut self.state, ReceiveState::Idle) {
            ReceiveState::Direct(direct) => Some(direct),
            ReceiveState::Idle | ReceiveState::Buffer => None,
        }
    }

    /// Reports `filled` bytes received directly into `slice` to the framer. Returns the whole data
    /// of the command.
    pub fn filled(&mut self, direct: DirectReceive, slice: IoSlice, filled: usize) -> IoSlice {
        if filled > 0 && self.framer.data_remaining().is_some() {
            match slice.bytes() {
                Some(bytes) => self.framer.advance_external(&bytes[..filled]),
                // A device's memory cannot be read for a digest: with a negotiated digest, such
                // data is received into a buffer.
                None => {
                    let filled = u32::try_from(filled).expect("a PDU is shorter than 4 GiB");
                    self.framer.advance_unseen(filled);
                }
            }
        }
        let offset = slice.offset() - direct.position as usize;
        IoSlice::new(slice.into_memory(), offset, direct.length as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reactor::{BufferClass, BufferPool};
    use wire::tcp::c2h_data::C2hProgress;
    use wire::tcp::limits::PREFIX_BYTES_MAX;
    use wire::tcp::{C2hData, DataAlignment, FramerLimits, IcResp, Role};

    const BYTES: u32 = 16 * 1024;

    /// A receiver that has read the header of a C2HData PDU with this payload.
    fn receiver(digest: bool) -> Receiver {
        let limits = FramerLimits {
            capsule_data_bytes: 0,
            data_pdu_bytes: BYTES,
        };
        let mut receiver = Receiver::new(Framer::new(Role::Host, limits));
        let format = PduFormat {
            data_digest: digest,
            ..PduFormat::PLAIN
        };
        let initialized = IcResp {
            controller_alignment: DataAlignment::DWORD,
            header_digest: false,
            data_digest: digest,
            max_h2c_data: BYTES,
        };
        let first = initialized.to_bytes();
        assert!(receiver.next(&mut &first[..]).unwrap().is_some());
        receiver.set_digests(&format);
        let pdu = C2hData {
            command_id: 1,
            data_offset: 0,
            data_length: BYTES,
            progress: C2hProgress::LastAndSuccess,
        };
        let mut header = [0; PREFIX_BYTES_MAX];
        let length = pdu.encode(&format, &mut header);
        let mut input = &header[..length];
        while receiver.next(&mut input).unwrap().is_some() {}
        receiver
    }

    #[test]
    fn a_direct_receive_gives_the_whole_data_back_and_moves_the_framer_on() {
        for digest in [false, true] {
            let mut receiver = receiver(digest);
            assert_eq!(receiver.direct_bytes(BYTES), Some(BYTES as usize));
            assert_eq!(receiver.direct_bytes(9_000), Some(9_000));
            assert_eq!(receiver.direct_bytes(8_000), None, "a copy costs less");
            let class = BufferClass {
                bytes: BYTES as usize,
                count: 1,
            };
            let pool = BufferPool::new(&[class]).unwrap();
            let buffer = pool.take(BYTES as usize).unwrap();
            let data = IoSlice::from_buffer(buffer, BYTES as usize);
            let slice = receiver.arm_direct(7, data, 0, BYTES as usize);
            assert!(!receiver.is_idle());
            let direct = receiver.disarm().expect("it was armed with data");
            assert_eq!(direct.slot, 7);
            let data = receiver.filled(direct, slice, 10_000);
            assert_eq!((data.offset(), data.len()), (0, BYTES as usize));
            assert_eq!(receiver.framer().data_remaining(), Some(BYTES - 10_000));
            assert_eq!(receiver.direct_bytes(BYTES), None, "the rest is copied");
        }
    }

    #[test]
    fn a_receive_into_a_buffer_fills_no_command() {
        let mut receiver = receiver(false);
        receiver.arm();
        assert!(!receiver.is_idle());
        assert_eq!(receiver.disarm(), None);
        assert!(receiver.is_idle());
    }
}
