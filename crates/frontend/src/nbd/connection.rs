//! One client's connection: bytes to requests, completions to replies.
//!
//! ```text
//!                 GO, EXPORT_NAME               DISCONNECT, error, time-out, drain
//!   Negotiating ------------------> Serving ------------------------------------> Ending
//!        |                                                                          ^
//!        +------------ ABORT, nonsense, time-out, drain ----------------------------+
//! ```
//!
//! An ending connection receives nothing more; it is closed when its requests are complete and
//! their replies are sent.

use super::export::{ALLOCATION_CONTEXT, Export};
use super::negotiation::{Negotiation, Session, Step};
use super::payload::Payload;
use super::protocol::{
    Form, NbdError, REPLY_HEADER_MAX, Replies, RequestHeader, Writer, command, command_flag,
};
use crate::device_io::{DeviceIo, Finished};
use crate::limits::{
    NBD_NEGOTIATION_TIME, NBD_REQUEST_BYTES_MAX, NBD_REQUESTS_MAX, NBD_TRANSFER_TIME,
};
use base::{SlabKey, Time};
use block::{BlockError, Operation};
use reactor::{Context, IoSlice, SendList, SocketId};
use std::collections::VecDeque;
use std::sync::Arc;
use switch::Class;

/// Room for the output of one step of the handshake.
const NEGOTIATION_OUTPUT: usize = 2048;

/// Data that is shorter comes through the receive buffer, where its neighbours come along.
const DIRECT_BYTES_MIN: usize = 16 * 1024;

/// The part of a request that its completion needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    pub(super) connection: SlabKey,
    cookie: u64,
    offset: u64,
    length: u64,
    command: u16,
}

/// The answer to a request.
#[derive(Debug)]
struct Reply {
    owner: Owner,
    result: Result<(), NbdError>,
    data: Vec<IoSlice>,
}

#[derive(Debug)]
enum Phase {
    Negotiating(Negotiation),
    Serving(Session),
    Ending,
}

/// A client's connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) socket: SocketId,
    exports: Arc<[Export]>,
    phase: Phase,
    /// Bytes that were received and wait for more, or for room.
    stash: Vec<u8>,
    payload: Option<Payload>,
    /// A request for which there was no room.
    waiting: Option<RequestHeader>,
    pub(super) in_flight: usize,
    /// Form of the replies.
    form: Form,
    /// Replies that have no room in the list.
    replies: VecDeque<Reply>,
    /// The list that is being filled, and the bytes of data in it.
    list: Box<SendList>,
    list_bytes: usize,
    /// The other list, unless it is being sent; and its bytes of data.
    spare: Option<Box<SendList>>,
    sending_bytes: usize,
    /// Bytes of memory that requests of this connection hold.
    held: usize,
    pub(super) receiving: bool,
    /// Bytes wait that were not parsed for want of room.
    paused: bool,
    pub(super) close_sent: bool,
    pub(super) closed: bool,
    draining: bool,
    handshake_by: Time,
    payload_by: Time,
    send_by: Time,
    output: Writer,
}

impl Connection {
    pub(super) fn new(socket: SocketId, exports: &Arc<[Export]>, now: Time) -> Self {
        let mut output = Writer::default();
        let negotiation = Negotiation::new(Arc::clone(exports), &mut output);
        let mut connection = Self {
            socket,
            exports: Arc::clone(exports),
            phase: Phase::Negotiating(negotiation),
            stash: Vec::new(),
            payload: None,
            waiting: None,
            in_flight: 0,
            form: Form::Simple,
            replies: VecDeque::new(),
            list: Box::new(SendList::new()),
            list_bytes: 0,
            spare: Some(Box::new(SendList::new())),
            sending_bytes: 0,
            held: 0,
            receiving: false,
            paused: false,
            close_sent: false,
            closed: false,
            draining: false,
            handshake_by: now + NBD_NEGOTIATION_TIME,
            payload_by: Time::NEVER,
            send_by: Time::NEVER,
            output,
        };
        connection.put_output();
        connection
    }

    /// Returns true if it takes requests: it is not ending.
    pub(super) fn takes_requests(&self) -> bool {
        !matches!(self.phase, Phase::Ending)
    }

    /// Returns true if a request waits for room.
    pub(super) fn is_stalled(&self) -> bool {
        self.waiting.is_some() || self.is_full()
    }

    /// Returns true if it has to [go on](Self::resume) when there is room.
    pub(super) fn has_to_resume(&self) -> bool {
        self.is_stalled() || self.paused
    }

    fn is_full(&self) -> bool {
        match &self.phase {
            // The output of the handshake waits to be sent.
            Phase::Negotiating(_) => !self.list.fits(NEGOTIATION_OUTPUT, 2),
            Phase::Serving(_) => self.in_flight + self.replies.len() >= NBD_REQUESTS_MAX,
            Phase::Ending => false,
        }
    }

    /// Returns true if nothing is left to do but to close.
    pub(super) fn is_over(&self) -> bool {
        let sent = self.list.is_empty() && self.spare.is_some() && self.replies.is_empty();
        matches!(self.phase, Phase::Ending) && self.in_flight == 0 && sent && !self.close_sent
    }

    /// Returns true if nothing of it is left anywhere.
    pub(super) fn is_gone(&self) -> bool {
        self.closed && self.in_flight == 0 && !self.receiving && self.spare.is_some()
    }

    /// Takes no further request; what is under way is answered.
    pub(super) fn end(&mut self) {
        self.phase = Phase::Ending;
        self.waiting = None;
        self.payload = None;
        self.stash = Vec::new();
        self.paused = false;
    }

    /// The server is detaching: requests that come from now on are refused, and the connection ends
    /// when none is under way.
    pub(super) fn drain(&mut self) {
        self.draining = true;
        if let Phase::Negotiating(negotiation) = &mut self.phase {
            negotiation.shut_down();
        }
        self.end_if_drained();
    }

    fn end_if_drained(&mut self) {
        let idle = self.in_flight == 0 && self.payload.is_none() && self.waiting.is_none();
        if self.draining && idle {
            self.end();
        }
    }

    /// Returns the wait that took too long, if one did.
    pub(super) fn overdue(&self, now: Time) -> Option<&'static str> {
        let negotiates = matches!(self.phase, Phase::Negotiating(_));
        if negotiates && now >= self.handshake_by {
            return Some("did not choose an export");
        }
        if self.payload.is_some() && now >= self.payload_by {
            return Some("did not send the data of a write");
        }
        (self.spare.is_none() && now >= self.send_by).then_some("did not take replies")
    }

    /// Takes bytes that were received. Returns an error for what is not NBD.
    pub(super) fn receive(
        &mut self,
        bytes: &[u8],
        key: SlabKey,
        io: &mut DeviceIo<Owner>,
        cx: &mut Context<'_>,
    ) -> Result<(), &'static str> {
        if self.stash.is_empty() {
            let taken = self.parse(bytes, key, io, cx)?;
            self.stash.extend_from_slice(&bytes[taken..]);
            return Ok(());
        }
        self.stash.extend_from_slice(bytes);
        self.resume(key, io, cx)
    }

    /// Goes on with bytes that waited.
    pub(super) fn resume(
        &mut self,
        key: SlabKey,
        io: &mut DeviceIo<Owner>,
        cx: &mut Context<'_>,
    ) -> Result<(), &'static str> {
        self.paused = false;
        if let Some(header) = self.waiting.take() {
            self.begin(header, key, io, cx)?;
        }
        if self.stash.is_empty() {
            return Ok(());
        }
        let stash = std::mem::take(&mut self.stash);
        let taken = self.parse(&stash, key, io, cx)?;
        if taken < stash.len() && !matches!(self.phase, Phase::Ending) {
            self.stash = stash;
            self.stash.drain(..taken);
        }
        Ok(())
    }

    /// Takes bytes off the front of `bytes`, as far as it goes. Returns their number.
    fn parse(
        &mut self,
        bytes: &[u8],
        key: SlabKey,
        io: &mut DeviceIo<Owner>,
        cx: &mut Context<'_>,
    ) -> Result<usize, &'static str> {
        let mut at = 0;
        loop {
            let rest = &bytes[at..];
            if let Some(payload) = &mut self.payload {
                at += payload.fill(rest);
                if !self.submit_if_arrived(key, io) {
                    return Ok(at);
                }
                continue;
            }
            if self.is_stalled() {
                self.paused = true;
                return Ok(at);
            }
            let session = match &mut self.phase {
                Phase::Ending => return Ok(bytes.len()),
                Phase::Negotiating(negotiation) => {
                    let (taken, step) = negotiation.step(rest, &mut self.output);
                    at += taken;
                    self.put_output();
                    match step {
                        Step::More if taken == 0 => return Ok(at),
                        Step::More => {}
                        Step::Begin(session) => {
                            self.form = session.form;
                            self.phase = Phase::Serving(session);
                        }
                        Step::Close => self.end(),
                    }
                    continue;
                }
                Phase::Serving(session) => *session,
            };
            let len = RequestHeader::bytes(session.form);
            if rest.len() < len {
                return Ok(at);
            }
            at += len;
            let header = RequestHeader::decode(session.form, rest);
            let header = header.ok_or("sent something else than a request")?;
            self.begin(header, key, io, cx)?;
        }
    }

    /// Begins a request, or has it wait.
    fn begin(
        &mut self,
        header: RequestHeader,
        key: SlabKey,
        io: &mut DeviceIo<Owner>,
        cx: &mut Context<'_>,
    ) -> Result<(), &'static str> {
        let Phase::Serving(session) = self.phase else {
            return Ok(());
        };
        if header.command == command::DISCONNECT {
            self.end();
            return Ok(());
        }
        let declared = header.flags & command_flag::PAYLOAD_LEN != 0;
        let writes = header.command == command::WRITE;
        let has_payload = writes || (declared && session.form == Form::Extended);
        if has_payload && header.length > NBD_REQUEST_BYTES_MAX.into() {
            return Err("sent more data than a request may have");
        }
        let refused = self.refuse(&header, session);
        let moves = refused.is_none() && matches!(header.command, command::READ | command::WRITE);
        let class = self.exports[session.export].class_of(&header, self.in_flight + 1);
        let mut data = Vec::new();
        if moves {
            let bytes = usize::try_from(header.length).expect("a request is bounded");
            let room = self.held == 0 || self.held + bytes <= NBD_REQUEST_BYTES_MAX as usize;
            let memory = (room && !io.is_full()).then(|| io.memory(class, bytes, cx));
            let Some(memory) = memory.flatten() else {
                self.waiting = Some(header);
                return Ok(());
            };
            self.held += bytes;
            data = memory;
        } else if refused.is_none() && io.is_full() {
            self.waiting = Some(header);
            return Ok(());
        }
        if has_payload {
            self.payload_by = cx.now + NBD_TRANSFER_TIME;
            self.payload = Some(Payload::new(header, class, refused, data));
            self.submit_if_arrived(key, io);
        } else if let Some(error) = refused {
            self.refused(header, key, error);
        } else if header.command == command::BLOCK_STATUS {
            self.replies.push_back(Reply {
                owner: owner(header, key),
                result: Ok(()),
                data,
            });
            self.encode();
        } else {
            self.submit(header, class, data, key, io);
        }
        Ok(())
    }

    /// Returns the error of a request that is wrong, as far as its header shows it.
    fn refuse(&self, header: &RequestHeader, session: Session) -> Option<NbdError> {
        use command_flag::{DONT_FRAGMENT, FUA, NO_HOLE, PAYLOAD_LEN, REQ_ONE};
        let export = &self.exports[session.export];
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
        if self.draining {
            return Some(NbdError::Shutdown);
        }
        if header.flags & !allowed != 0 {
            return Some(NbdError::Invalid);
        }
        let writes = writes(header.command);
        if writes && export.is_read_only() {
            return Some(NbdError::Permission);
        }
        if header.command == command::FLUSH {
            return None;
        }
        let geometry = export.device.geometry();
        let block = u64::from(geometry.block_bytes);
        let end = header.offset.checked_add(header.length);
        if end.is_none_or(|end| end > geometry.bytes()) {
            return Some(NbdError::of(BlockError::OutOfRange, writes));
        }
        let moves = matches!(header.command, command::READ | command::WRITE);
        if moves && header.length > export.request_bytes_max().into() {
            return Some(NbdError::Invalid);
        }
        let status = header.command == command::BLOCK_STATUS;
        if status && !session.allocation {
            return Some(NbdError::Invalid);
        }
        let aligned = header.offset.is_multiple_of(block) && header.length.is_multiple_of(block);
        (header.length == 0 || !aligned).then_some(NbdError::Invalid)
    }

    fn refused(&mut self, header: RequestHeader, key: SlabKey, error: NbdError) {
        self.replies.push_back(Reply {
            owner: owner(header, key),
            result: Err(error),
            data: Vec::new(),
        });
        self.encode();
        self.end_if_drained();
    }

    fn submit(
        &mut self,
        header: RequestHeader,
        class: Class,
        data: Vec<IoSlice>,
        key: SlabKey,
        io: &mut DeviceIo<Owner>,
    ) {
        if !matches!(self.phase, Phase::Serving(_)) {
            return;
        }
        let durable = header.flags & command_flag::FUA != 0;
        let deallocate = header.flags & command_flag::NO_HOLE == 0;
        let operation = match header.command {
            command::READ => Operation::Read,
            command::WRITE => Operation::Write { durable },
            command::FLUSH => Operation::Flush,
            command::TRIM if !durable => Operation::Deallocate,
            // A trim has no durable form; zeroes that may be given back do.
            command::TRIM => Operation::WriteZeroes {
                deallocate: true,
                durable,
            },
            _ => Operation::WriteZeroes {
                deallocate,
                durable,
            },
        };
        self.in_flight += 1;
        let range = (header.offset, header.length);
        io.submit(class, operation, range, data, owner(header, key));
    }

    /// The memory into which the next bytes may be received; it comes back by
    /// [`received`](Self::received).
    pub(super) fn destination(&mut self) -> Option<IoSlice> {
        let payload = self.payload.as_mut()?;
        let current = payload.current.as_ref()?;
        let direct = current.len() >= DIRECT_BYTES_MIN && self.stash.is_empty();
        if direct { payload.current.take() } else { None }
    }

    /// A destination comes back with `filled` bytes in it.
    pub(super) fn received(&mut self, into: IoSlice, filled: usize) {
        // A connection that ends has forgotten it.
        if let Some(payload) = &mut self.payload {
            payload.current = Some(into);
            payload.filled(filled);
        }
    }

    /// Submits the request, once its data has arrived. Returns true if it was complete.
    pub(super) fn submit_if_arrived(&mut self, key: SlabKey, io: &mut DeviceIo<Owner>) -> bool {
        if self.payload.as_ref().is_none_or(|payload| payload.left > 0) {
            return false;
        }
        let payload = self.payload.take().expect("it was just there");
        match payload.refused {
            Some(error) => self.refused(payload.header, key, error),
            None => self.submit(payload.header, payload.class, payload.full, key, io),
        }
        true
    }

    /// A request of this connection is finished.
    pub(super) fn finish(&mut self, finished: Finished<Owner>) {
        let Finished {
            owner,
            result,
            mut data,
        } = finished;
        self.in_flight -= 1;
        let result = result.map_err(|error| NbdError::of(error, writes(owner.command)));
        if owner.command != command::READ || result.is_err() {
            self.held -= data.iter().map(IoSlice::len).sum::<usize>();
            data.clear();
        }
        self.replies.push_back(Reply {
            owner,
            result,
            data,
        });
        self.encode();
        self.end_if_drained();
    }

    /// Puts replies into the list, as far as there is room.
    fn encode(&mut self) {
        while let Some(reply) = self.replies.front() {
            if !self.list.fits(REPLY_HEADER_MAX, 1 + reply.data.len()) {
                return;
            }
            let Some(Reply {
                owner,
                result,
                data,
            }) = self.replies.pop_front()
            else {
                return;
            };
            let (replies, output) = (Replies { form: self.form }, &mut self.output);
            let Owner {
                cookie,
                offset,
                length,
                command,
                ..
            } = owner;
            match result {
                Err(error) => replies.error(output, cookie, offset, error),
                Ok(()) if command == command::READ => {
                    replies.data(output, cookie, offset, length);
                }
                Ok(()) if command == command::BLOCK_STATUS => {
                    replies.allocated(output, cookie, (offset, length), ALLOCATION_CONTEXT);
                }
                Ok(()) => replies.done(output, cookie, offset),
            }
            self.put_output();
            for slice in data {
                self.list_bytes += slice.len();
                self.list.push_payload(slice);
            }
        }
    }

    fn put_output(&mut self) {
        if !self.output.0.is_empty() {
            self.list.push_header(&self.output.0);
            self.output.0.clear();
        }
    }

    /// Takes the list that has to be sent, unless another one is being sent.
    pub(super) fn take_list(&mut self, now: Time) -> Option<Box<SendList>> {
        if self.list.is_empty() {
            return None;
        }
        let spare = self.spare.take()?;
        self.sending_bytes = std::mem::take(&mut self.list_bytes);
        self.send_by = now + NBD_TRANSFER_TIME;
        let list = std::mem::replace(&mut self.list, spare);
        self.encode();
        Some(list)
    }

    /// A list was sent, or never will be.
    pub(super) fn sent(&mut self, mut list: Box<SendList>) {
        list.clear();
        self.spare = Some(list);
        self.held -= std::mem::take(&mut self.sending_bytes);
    }

    /// The client is gone: what was to be sent never will be.
    pub(super) fn abandon(&mut self) {
        self.end();
        self.replies.clear();
        self.list.clear();
    }
}

const fn owner(header: RequestHeader, connection: SlabKey) -> Owner {
    Owner {
        connection,
        cookie: header.cookie,
        offset: header.offset,
        length: header.length,
        command: header.command,
    }
}

const fn writes(command: u16) -> bool {
    matches!(
        command,
        command::WRITE | command::TRIM | command::WRITE_ZEROES
    )
}
