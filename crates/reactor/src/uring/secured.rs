//! Sends and receives of sockets with TLS.
//!
//! A send copies the list's bytes, record by record, into memory of the core, encrypts them there,
//! and continues with the next records once the kernel has accepted these. A receive takes
//! encrypted bytes into memory of the core, and copies what its records contain to its destination;
//! the beginning of an incomplete record stays with the session.

use super::receiver::Receiver;
use super::socket::{self, Attempt, RECEIVE_TAIL_BYTES, Receiving, Sending};
use crate::arrivals::{Got, Wanted};
use crate::memory::Buffer;
use crate::op::{Completion, Outcome, Received};
use crate::tls::SessionEnd;
use base::SlabKey;
use secure::record::{DATA_MAX, OVERHEAD_BYTES, RECORD_MAX};
use std::io;

/// Maximum receives in one turn that bring records without data, or parts of one record.
const EMPTY_MAX: usize = 8;

/// Encrypted bytes to receive behind `begun` ones: the records of a payload and a little more, or as
/// many as there is `room` for.
fn room(receiving: &Receiving, room: usize, begun: usize) -> usize {
    receiving.into.as_ref().map_or(room, |slice| {
        let records = slice.len().div_ceil(DATA_MAX) * OVERHEAD_BYTES;
        let all = slice.len() + records + RECEIVE_TAIL_BYTES;
        room.min(all.saturating_sub(begun).max(RECORD_MAX))
    })
}

impl Receiver<'_> {
    /// Receives on a socket with TLS; see [`Kernel::receive`](crate::arrivals::Kernel::receive).
    pub(super) fn receive_secured(&mut self, key: SlabKey, most: usize, mut buffer: Buffer) -> Got {
        let Some(socket) = self.sockets.get_mut(key) else {
            return Got::Nothing;
        };
        let (Some(session), Some(receiving)) = (&mut socket.session, &mut socket.receiving) else {
            return Got::Nothing;
        };
        let memory = self.tls.received();
        let mut brought = (Got::Nothing, Ok((0, 0)));
        for _ in 0..EMPTY_MAX {
            if session.has_ended() {
                brought = (Got::End, Err(SessionEnd::Closed.into()));
                break;
            }
            let begun = session.begin(memory);
            let room = room(receiving, memory.len() - begun, begun).min(most);
            let bytes = match socket::receive_bytes(&socket.fd, &mut memory[begun..begun + room]) {
                Attempt::WouldBlock => {
                    self.stats.empty_receives += 1;
                    break;
                }
                Attempt::Moved(0) => {
                    brought = (Got::End, Err(SessionEnd::Closed.into()));
                    break;
                }
                Attempt::Failed(error) => {
                    brought = (Got::End, Err(error));
                    break;
                }
                Attempt::Moved(bytes) => bytes,
            };
            self.stats.receives += 1;
            self.stats.received_bytes += bytes as u64;
            let arrived = &mut memory[..begun + bytes];
            let opened = session.open(arrived, receiving.into.as_mut(), &mut buffer);
            self.stats.worn_keys += u64::from(session.begins_to_wear());
            match opened {
                Ok((0, 0)) if bytes < room => break,
                Ok((0, 0)) => {}
                Ok(lengths) => {
                    brought = (Got::Bytes(bytes, bytes < room), Ok(lengths));
                    break;
                }
                Err(end) => {
                    let alert = end.alert();
                    brought = (Got::End, Err(end.into()));
                    if let Some(alert) = alert {
                        socket.end_session(alert);
                    }
                    break;
                }
            }
        }
        let (got, result) = brought;
        if matches!(got, Got::Nothing) {
            return got;
        }
        self.complete_receive(key, buffer, result);
        got
    }

    fn complete_receive(
        &mut self,
        key: SlabKey,
        buffer: Buffer,
        result: io::Result<(usize, usize)>,
    ) {
        let Some(socket) = self.sockets.get_mut(key) else {
            return;
        };
        socket.interest.wanted = Wanted::Nothing;
        let Some(Receiving { key, into }) = socket.receiving.take() else {
            return;
        };
        let (filled, behind) = result.as_ref().ok().copied().unwrap_or_default();
        let received = Received {
            into,
            filled,
            rest: (behind > 0).then_some((buffer, behind)),
            result: result.map(drop),
        };
        let outcome = Outcome::Received(received);
        self.ready.push(Completion { key, outcome });
    }

    /// Sends on a socket with TLS; see [`Kernel::send`](crate::arrivals::Kernel::send).
    pub(super) fn send_secured(&mut self, key: SlabKey, most: usize) -> bool {
        let Some(socket) = self.sockets.get_mut(key) else {
            return false;
        };
        let (Some(session), Some(sending)) = (&mut socket.session, &mut socket.sending) else {
            return false;
        };
        let sealed = sending.sealed.get_or_insert_with(|| self.tls.take());
        let mut left = most;
        let result = loop {
            // A socket that has TLS never sends without it.
            if session.is_over() {
                break Err(io::ErrorKind::ConnectionAborted.into());
            }
            if sealed.unsent().is_empty() {
                session.seal(&sending.list, &mut sending.position, sealed);
                self.stats.worn_keys += u64::from(session.begins_to_wear());
                sending.sent = sending.position.bytes();
                if sealed.unsent().is_empty() {
                    break Ok(());
                }
            }
            let unsent = sealed.unsent();
            match socket::send_bytes(&socket.fd, &unsent[..unsent.len().min(left)]) {
                Attempt::Moved(bytes) => {
                    self.stats.sends += 1;
                    self.stats.sent_bytes += bytes as u64;
                    sealed.sent(bytes);
                    left -= bytes;
                    let is_all = sending.sent >= sending.list.bytes();
                    if is_all && sealed.unsent().is_empty() {
                        break Ok(());
                    }
                    if left == 0 {
                        sending.list.set_aside(sending.sent);
                        return true;
                    }
                }
                Attempt::WouldBlock => {
                    self.stats.send_stalls += 1;
                    sending.list.set_aside(sending.sent);
                    self.watch_room(key);
                    return false;
                }
                Attempt::Failed(error) => break Err(error),
            }
        };
        if let Some(Sending {
            key, list, sealed, ..
        }) = socket.sending.take()
        {
            sealed.into_iter().for_each(|it| self.tls.give_back(it));
            let outcome = Outcome::Sent { list, result };
            self.ready.push(Completion { key, outcome });
        }
        false
    }
}
