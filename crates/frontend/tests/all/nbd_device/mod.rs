//! The default export of an NBD server as a device, accessed with extended headers by a
//! hand-written client.
#![allow(clippy::unwrap_used, clippy::big_endian_bytes)] // What fails here fails the test.

use crate::nbd_client::{Client, FLUSH, READ, TRIM, WRITE, WRITE_ZEROES};
use base::Time;
use block::{BlockError, Capabilities, Channel, Completion, Device, DeviceError, Geometry};
use block::{Operation, Request, Submit, check};
use reactor::{Context, Driver};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::mpsc;

/// Maximum requests in flight.
const IN_FLIGHT_MAX: usize = 64;

const FUA: u16 = 1;
const NO_HOLE: u16 = 2;

/// An error chunk.
const ERROR: u16 = (1 << 15) + 1;

const EINVAL: u32 = 22;
const ENOSPC: u32 = 28;

/// The default export of the server at this socket.
#[derive(Debug)]
pub(crate) struct NbdDevice {
    pub(crate) socket: PathBuf,
    pub(crate) geometry: Geometry,
}

const CAPABILITIES: Capabilities = Capabilities {
    volatile_cache: false,
    read_only: false,
    thin: true,
    max_transfer_bytes: 128 * 1024,
    preferred_bytes: 0,
    extents_max: 0,
};

impl Device for NbdDevice {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn open(&self, _driver: &mut dyn Driver) -> Result<Box<dyn Channel>, DeviceError> {
        let client = Client::extended(&self.socket);
        let mut stream = client.stream.try_clone().unwrap();
        let (outgoing, messages) = mpsc::channel::<Vec<u8>>();
        // The server may have no room for a write before it has sent its replies. The thread ends
        // with the channel.
        std::thread::spawn(move || {
            for message in messages {
                stream.write_all(&message).unwrap();
            }
        });
        Ok(Box::new(NbdChannel {
            client,
            outgoing,
            geometry: self.geometry,
            in_flight: HashMap::new(),
            finished: VecDeque::new(),
            closed: false,
        }))
    }
}

/// A connection with the requests that wait for replies, which arrive in any order.
struct NbdChannel {
    client: Client,
    outgoing: mpsc::Sender<Vec<u8>>,
    geometry: Geometry,
    in_flight: HashMap<u64, Request>,
    finished: VecDeque<Completion>,
    closed: bool,
}

impl fmt::Debug for NbdChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NbdChannel").finish_non_exhaustive()
    }
}

/// Returns command and flags of an operation that NBD supports.
fn command(operation: Operation) -> Option<(u16, u16)> {
    let fua = |durable| if durable { FUA } else { 0 };
    Some(match operation {
        Operation::Read => (READ, 0),
        Operation::Write { durable } => (WRITE, fua(durable)),
        Operation::Flush => (FLUSH, 0),
        Operation::WriteZeroes {
            deallocate,
            durable,
        } => {
            let hole = if deallocate { 0 } else { NO_HOLE };
            (WRITE_ZEROES, fua(durable) | hole)
        }
        Operation::Deallocate => (TRIM, 0),
        Operation::Compare | Operation::Verify => return None,
    })
}

impl NbdChannel {
    /// Returns offset and length in bytes; `None` if NBD cannot represent the offset.
    fn range(&self, request: &Request) -> Option<(u64, u64)> {
        let block = u64::from(self.geometry.block_bytes);
        match request.operation {
            Operation::Flush => Some((0, 0)),
            _ => Some((
                request.lba.0.checked_mul(block)?,
                u64::from(request.blocks) * block,
            )),
        }
    }

    fn send(&self, request: &Request, (command, flags): (u16, u16)) {
        let range = self.range(request).unwrap();
        // With extended headers, a flag announces the payload.
        let payload = if command == WRITE { 1 << 5 } else { 0 };
        let flags = flags | payload;
        let mut message = self
            .client
            .header(command, flags, request.tag, range.0, range.1);
        if command == WRITE {
            request.data.as_ref().unwrap().append_to(0, &mut message);
        }
        self.outgoing.send(message).unwrap();
    }

    /// Receives a reply.
    fn take_answer(&mut self) {
        let (kind, tag, payload) = self.client.chunk();
        let mut request = self.in_flight.remove(&tag).unwrap();
        if check(&request, self.geometry, CAPABILITIES) == Err(BlockError::OutOfRange) {
            let number = u32::from_be_bytes(payload[..4].try_into().unwrap());
            let expected = if request.operation.is_write() {
                ENOSPC
            } else {
                EINVAL
            };
            assert_eq!((kind, number), (ERROR, expected), "{:?}", request.operation);
            self.finished
                .push_back(request.ended(Err(BlockError::OutOfRange)));
            return;
        }
        if request.operation == Operation::Read {
            assert_eq!(kind, 1, "a read is answered with data");
            request.data.as_mut().unwrap().copy_in(0, &payload[8..]);
        } else {
            assert_eq!(kind, 0, "{:?} is answered: {payload:?}", request.operation);
        }
        self.finished.push_back(request.ended(Ok(())));
    }
}

impl Channel for NbdChannel {
    fn submit(&mut self, mut request: Request, _cx: &mut Context<'_>) -> Submit {
        let command = command(request.operation);
        let valid = check(&request, self.geometry, CAPABILITIES).and_then(|()| {
            match (request.operation, &mut request.data) {
                // A shared buffer is not written to.
                (Operation::Read, Some(data)) if data.bytes().is_some() => {
                    data.bytes_mut().map(drop).ok_or(BlockError::Malformed)
                }
                _ => Ok(()),
            }
        });
        match valid {
            // Requests that NBD can represent must be refused by the server.
            Err(BlockError::OutOfRange) if command.is_some() && self.range(&request).is_some() => {}
            Err(error) => return Submit::Done(request.ended(Err(error))),
            Ok(()) => {}
        }
        let Some(command) = command else {
            return Submit::Done(request.ended(Err(BlockError::Unsupported)));
        };
        if self.closed || self.in_flight.len() == IN_FLIGHT_MAX {
            return Submit::Busy(request);
        }
        self.send(&request, command);
        assert!(self.in_flight.insert(request.tag, request).is_none());
        Submit::Queued
    }

    fn tick(&mut self, _cx: &mut Context<'_>) {
        if !self.in_flight.is_empty() {
            self.take_answer();
        }
    }

    fn reap(&mut self) -> Option<Completion> {
        self.finished.pop_front()
    }

    fn deadline(&self) -> Time {
        if self.in_flight.is_empty() {
            Time::NEVER
        } else {
            Time::ZERO
        }
    }

    fn close(&mut self, _cx: &mut Context<'_>) {
        while !self.in_flight.is_empty() {
            self.take_answer();
        }
        self.closed = true;
    }
}
