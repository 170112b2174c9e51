//! One client's connection: bytes to requests, completions to replies.
//!
//! A connection that is ending receives nothing more. It is closed once its requests are complete
//! and their replies are sent.

use super::export::Export;
use super::handed::{Description, HandedConnection, Stage as HandedStage};
use super::memory::ClientMemory;
use super::negotiation::{Encryption, HandshakeStep, Negotiation};
use super::payload::Payload;
use super::peer::Peer;
use super::protocol::{
    Form, NbdError, REPLY_HEADER_MAX, RequestHeader, Session, Writer, command, writes,
};
use super::reply::{Owner, Reply};
use super::requests::{Requests, Write};
use super::tls::{Stage, Tls, TlsChannel};
use crate::limits::{
    NBD_NEGOTIATION_TIME, NBD_REQUEST_BYTES_MAX, NBD_REQUESTS_MAX, NBD_TRANSFER_TIME,
};
use crate::{Finished, KnownLosses};
use base::{SlabKey, Time};
use reactor::{Context, IoSlice, SendList, SocketId};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use switch::Class;

/// Output space for one step of the handshake.
const NEGOTIATION_OUTPUT: usize = 2048;

/// Shorter data goes through the receive buffer, together with the bytes around it.
const DIRECT_BYTES_MIN: usize = 16 * 1024;

#[derive(Debug)]
enum Phase {
    Negotiating(Negotiation),
    Serving(Session),
    Ending,
}

/// A client's connection.
///
/// ```text
///                 GO, EXPORT_NAME               DISCONNECT, error, timeout, drain
///   Negotiating ------------------> Serving ------------------------------------> Ending
///        |                                                                          ^
///        +------------ ABORT, invalid input, timeout, drain ------------------------+
/// ```
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) socket: SocketId,
    /// Its number in the write order.
    number: u64,
    /// The client's end; `None` once the socket is closing.
    peer: Option<Peer>,
    /// Requests have waited in its socket or its stash, so the client may have disconnected before
    /// they are read.
    pub(super) is_late: bool,
    losses: KnownLosses,
    exports: Arc<[Export]>,
    phase: Phase,
    /// Received bytes that wait for more bytes, or for room.
    stash: Vec<u8>,
    payload: Option<Payload>,
    /// A request that waits for room.
    waiting: Option<RequestHeader>,
    pub(super) in_flight: usize,
    /// Form of the replies.
    form: Form,
    /// Replies that do not fit in the list.
    replies: VecDeque<Reply>,
    /// The list being filled, and its data bytes.
    list: Box<SendList>,
    list_bytes: usize,
    /// The other list unless it is being sent, and its data bytes.
    spare: Option<Box<SendList>>,
    sending_bytes: usize,
    /// Memory held by its requests.
    pub(super) memory: ClientMemory,
    pub(super) receiving: bool,
    /// No further request begins: the connection is to be released.
    held: bool,
    /// Its socket is being released.
    pub(super) leaving: bool,
    /// Unparsed bytes wait for room.
    paused: bool,
    pub(super) close_sent: bool,
    pub(super) closed: bool,
    handshake_by: Time,
    send_by: Time,
    /// Start of the wait for the client to receive data; [`Time::NEVER`] for none.
    sending_since: Time,
    output: Writer,
    encryption: Stage,
}

impl Connection {
    /// Creates a connection; `tls` says whether the client may or must begin TLS. `peer` is another
    /// descriptor of its socket.
    pub(super) fn new(
        (socket, peer): (SocketId, Peer),
        number: u64,
        exports: &Arc<[Export]>,
        tls: Option<&Tls>,
        losses: KnownLosses,
        now: Time,
    ) -> Self {
        let mut output = Writer::default();
        let encryption = match tls {
            None => Encryption::Unavailable,
            Some(tls) if tls.required => Encryption::Required,
            Some(_) => Encryption::Offered,
        };
        let negotiation = Negotiation::new(Arc::clone(exports), encryption, &mut output);
        let mut connection = Self {
            socket,
            number,
            peer: Some(peer),
            is_late: false,
            losses,
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
            memory: ClientMemory::default(),
            receiving: false,
            held: false,
            leaving: false,
            paused: false,
            close_sent: false,
            closed: false,
            handshake_by: now + NBD_NEGOTIATION_TIME,
            send_by: Time::NEVER,
            sending_since: Time::NEVER,
            output,
            encryption: tls.map_or(Stage::Off, |tls| Stage::Plain(tls.clone())),
        };
        connection.put_output();
        connection
    }

    /// Continues a connection that was released, here or by a predecessor, without the greeting of a
    /// new one. What the client has sent comes later.
    pub(super) fn resume_as(&mut self, description: &Description) {
        self.list.clear();
        match (description.stage, &mut self.phase) {
            (HandedStage::Negotiating(progress), Phase::Negotiating(negotiation)) => {
                negotiation.resume(progress);
            }
            (HandedStage::Serving(session), phase) => {
                self.form = session.form;
                *phase = Phase::Serving(session);
            }
            (HandedStage::Negotiating(_), _) => {}
        }
        if description.has_lost {
            self.losses.lost_before();
        }
        // The client may have disconnected meanwhile.
        self.is_late = true;
    }

    /// Begins no further request until [`unhold`](Self::unhold).
    pub(super) const fn hold(&mut self) {
        self.held = true;
    }

    /// Begins requests again.
    pub(super) fn unhold(&mut self, key: SlabKey, requests: &mut Requests) {
        if std::mem::replace(&mut self.held, false) {
            self.paused = true;
            self.submit_if_arrived(key, requests);
        }
    }

    /// Returns true if it is held, nothing is in flight, and all replies are sent.
    pub(super) fn may_leave(&self) -> bool {
        let is_open = !matches!(self.phase, Phase::Ending) && !self.close_sent;
        let is_quiet = self.in_flight == 0 && self.is_sent() && !self.is_sending();
        self.held && is_open && is_quiet
    }

    /// Returns true if the client uses TLS, whose state cannot be handed over.
    pub(super) const fn is_secured(&self) -> bool {
        self.encryption.is_secured()
    }

    /// Returns the state of a connection whose socket was released; `losses` are all losses of the
    /// device, or `None` if its data may be lost.
    pub(super) fn into_handed(self, socket: OwnedFd, losses: Option<u32>) -> HandedConnection {
        let (stage, form) = match &self.phase {
            Phase::Serving(session) => (HandedStage::Serving(*session), session.form),
            Phase::Negotiating(negotiation) => (
                HandedStage::Negotiating(negotiation.progress()),
                Form::Simple,
            ),
            Phase::Ending => unreachable!("it does not leave"),
        };
        let has_lost = losses.is_none_or(|losses| self.losses.count() < losses);
        let mut sent = Writer::default();
        if let Some(payload) = self.payload {
            payload.header.encode(form, &mut sent);
            payload.append_to(&mut sent.0);
        }
        if let Some(header) = self.waiting {
            header.encode(form, &mut sent);
        }
        sent.bytes(&self.stash);
        HandedConnection::new(stage, has_lost, sent.0, socket)
    }

    /// Returns true if it accepts requests: it is not ending.
    pub(super) fn takes_requests(&self) -> bool {
        // Bytes received before the reply to STARTTLS is sent are not read.
        !matches!(self.phase, Phase::Ending) && !matches!(self.encryption, Stage::Beginning(_))
    }

    /// Returns true if a request waits for room.
    pub(super) fn is_stalled(&self) -> bool {
        self.waiting.is_some() || self.is_full()
    }

    /// Returns true if it must [resume](Self::resume) when there is room.
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

    /// Returns true if it only remains to be closed.
    pub(super) fn is_over(&self) -> bool {
        let sent = self.is_sent() && !self.encryption.channel().is_some_and(TlsChannel::is_busy);
        matches!(self.phase, Phase::Ending) && self.in_flight == 0 && sent && !self.close_sent
    }

    /// Returns true if all replies were sent, or passed to the TLS channel.
    fn is_sent(&self) -> bool {
        self.list.is_empty() && self.spare.is_some() && self.replies.is_empty()
    }

    /// Returns true if no part of it is left.
    pub(super) fn is_gone(&self) -> bool {
        self.closed && self.in_flight == 0 && !self.receiving && !self.is_sending()
    }

    /// Returns true while the driver holds one of its lists.
    fn is_sending(&self) -> bool {
        match self.encryption.channel() {
            Some(tls) => tls.is_sending(),
            None => self.spare.is_none(),
        }
    }

    /// Stops accepting requests; outstanding requests complete.
    pub(super) fn end(&mut self) {
        self.phase = Phase::Ending;
        self.waiting = None;
        self.memory.waits_no_more();
        self.payload = None;
        self.stash = Vec::new();
        self.paused = false;
    }

    /// Returns the deadline of the handshake while it lasts.
    pub(super) fn negotiates(&self) -> Option<Time> {
        matches!(self.phase, Phase::Negotiating(_)).then_some(self.handshake_by)
    }

    /// Returns the start of the wait for the client to send or receive data that holds memory;
    /// [`Time::NEVER`] for none.
    pub(super) fn awaited_since(&self) -> Time {
        let payload = self.payload.as_ref();
        let payload = payload.filter(|payload| payload.refused.is_none());
        let payload = payload.map_or(Time::NEVER, |payload| payload.since);
        self.sending_since.min(payload)
    }

    /// Returns the kind of wait that has timed out, or `None`.
    pub(super) fn overdue(&self, now: Time) -> Option<&'static str> {
        if self.negotiates().is_some_and(|by| now >= by) {
            return Some("did not select an export in time");
        }
        let payload = self.payload.as_ref();
        if payload.is_some_and(|payload| now >= payload.since + NBD_TRANSFER_TIME) {
            return Some("did not send the data of a write in time");
        }
        (self.is_sending() && now >= self.send_by).then_some("did not read replies in time")
    }

    /// Handles received bytes; `plain` is a buffer for their plain text. Returns an error if they
    /// are not valid NBD or TLS.
    pub(super) fn receive(
        &mut self,
        bytes: &[u8],
        plain: &mut Vec<u8>,
        key: SlabKey,
        requests: &mut Requests,
        cx: &mut Context<'_>,
    ) -> Result<(), &'static str> {
        let Some(tls) = self.encryption.channel_mut() else {
            return self.take(bytes, key, requests, cx);
        };
        plain.clear();
        let opened = tls.open(bytes, plain);
        self.take(plain, key, requests, cx)?;
        if !opened? {
            self.end();
        }
        Ok(())
    }

    fn take(
        &mut self,
        bytes: &[u8],
        key: SlabKey,
        requests: &mut Requests,
        cx: &mut Context<'_>,
    ) -> Result<(), &'static str> {
        if self.stash.is_empty() {
            let taken = self.parse(bytes, key, requests, cx)?;
            self.stash.extend_from_slice(&bytes[taken..]);
            return Ok(());
        }
        self.stash.extend_from_slice(bytes);
        self.resume(key, requests, cx)
    }

    /// Continues with bytes that waited.
    pub(super) fn resume(
        &mut self,
        key: SlabKey,
        requests: &mut Requests,
        cx: &mut Context<'_>,
    ) -> Result<(), &'static str> {
        if self.held {
            return Ok(());
        }
        self.paused = false;
        if let Some(header) = self.waiting.take() {
            self.begin(header, key, requests, cx)?;
        }
        if self.stash.is_empty() {
            return Ok(());
        }
        let stash = std::mem::take(&mut self.stash);
        let taken = self.parse(&stash, key, requests, cx)?;
        if taken < stash.len() && !matches!(self.phase, Phase::Ending) {
            self.stash = stash;
            self.stash.drain(..taken);
        }
        Ok(())
    }

    /// Parses as many of the first bytes as possible. Returns their number.
    fn parse(
        &mut self,
        bytes: &[u8],
        key: SlabKey,
        requests: &mut Requests,
        cx: &mut Context<'_>,
    ) -> Result<usize, &'static str> {
        let mut at = 0;
        loop {
            let rest = &bytes[at..];
            if let Some(payload) = &mut self.payload {
                at += payload.fill(rest);
                if !self.submit_if_arrived(key, requests) {
                    return Ok(at);
                }
                continue;
            }
            if self.held || self.is_stalled() {
                (self.paused, self.is_late) = (true, true);
                return Ok(at);
            }
            let session = match &mut self.phase {
                Phase::Ending => return Ok(bytes.len()),
                Phase::Negotiating(negotiation) => {
                    let (taken, step) = negotiation.step(rest, &mut self.output);
                    at += taken;
                    self.put_output();
                    match step {
                        HandshakeStep::More if taken == 0 => return Ok(at),
                        HandshakeStep::More => {}
                        HandshakeStep::StartTls if at < bytes.len() => {
                            return Err("sent plain-text data after STARTTLS");
                        }
                        HandshakeStep::StartTls => {
                            self.encryption.begin();
                            return Ok(at);
                        }
                        HandshakeStep::Begin(session) => {
                            self.form = session.form;
                            self.phase = Phase::Serving(session);
                        }
                        HandshakeStep::Close => self.end(),
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
            let header = header.ok_or("sent an invalid request")?;
            self.begin(header, key, requests, cx)?;
        }
    }

    /// Begins a request, or makes it wait.
    fn begin(
        &mut self,
        header: RequestHeader,
        key: SlabKey,
        requests: &mut Requests,
        cx: &mut Context<'_>,
    ) -> Result<(), &'static str> {
        let Phase::Serving(session) = self.phase else {
            return Ok(());
        };
        if header.command == command::DISCONNECT {
            self.end();
            return Ok(());
        }
        let has_payload = header.has_payload(session.form);
        if has_payload && header.length > NBD_REQUEST_BYTES_MAX.into() {
            return Err("sent a request with too much data");
        }
        let export = &self.exports[session.export];
        let refused = export.refuse(&header, session);
        let class = export.class_of(&header, self.in_flight + 1);
        let mut data = Vec::new();
        if refused.is_none() {
            let moves = matches!(header.command, command::READ | command::WRITE);
            let room = if requests.is_full() {
                None
            } else if moves {
                let bytes = usize::try_from(header.length).expect("a request is bounded");
                self.memory.take(class, bytes, &mut requests.io, cx)
            } else {
                Some(data)
            };
            let Some(memory) = room else {
                (self.waiting, self.is_late) = (Some(header), true);
                return Ok(());
            };
            data = memory;
        }
        if has_payload {
            self.payload = Some(Payload::new(header, class, refused, data, cx.now));
            self.submit_if_arrived(key, requests);
        } else if let Some(error) = refused {
            self.reply(header, key, Err(error));
        } else if header.command == command::BLOCK_STATUS {
            self.reply(header, key, Ok(()));
        } else {
            self.submit(header, class, data, key, requests);
        }
        Ok(())
    }

    /// Replies to a request without data.
    fn reply(&mut self, header: RequestHeader, key: SlabKey, result: Result<(), NbdError>) {
        self.replies.push_back(Reply {
            owner: Owner::new(header, key),
            result,
            data: Vec::new(),
        });
        self.encode();
    }

    fn submit(
        &mut self,
        header: RequestHeader,
        class: Class,
        data: Vec<IoSlice>,
        key: SlabKey,
        requests: &mut Requests,
    ) {
        if !matches!(self.phase, Phase::Serving(_)) {
            return;
        }
        let (owner, range) = (Owner::new(header, key), (header.offset, header.length));
        match header.operation() {
            block::Operation::Flush => requests.flush(class, &self.losses, owner),
            operation if operation.is_write() => {
                let write = Write {
                    class,
                    operation,
                    range,
                    data,
                    owner,
                };
                let peer = self.peer.as_ref().filter(|_| self.is_late);
                if !requests.write(self.number, peer, write) {
                    self.end();
                    return;
                }
            }
            operation => requests.io.submit(class, operation, range, data, owner),
        }
        self.in_flight += 1;
    }

    /// Takes the client's end because the socket is about to be closed or reset.
    pub(super) const fn closes(&mut self) -> Option<Peer> {
        self.close_sent = true;
        self.peer.take()
    }

    /// Returns the memory for the next received bytes; it is returned through
    /// [`received`](Self::received).
    pub(super) fn destination(&mut self) -> Option<IoSlice> {
        if self.encryption.channel().is_some() {
            return None;
        }
        let payload = self.payload.as_mut()?;
        let current = payload.current.as_ref()?;
        let direct = current.len() >= DIRECT_BYTES_MIN && self.stash.is_empty();
        if direct { payload.current.take() } else { None }
    }

    /// Takes a destination back, with `filled` bytes in it.
    pub(super) fn received(&mut self, into: IoSlice, filled: usize) {
        // A connection that is ending has dropped it.
        if let Some(payload) = &mut self.payload {
            payload.current = Some(into);
            payload.filled(filled);
        }
    }

    /// Submits the request once its data has arrived. Returns true if it was complete.
    pub(super) fn submit_if_arrived(&mut self, key: SlabKey, requests: &mut Requests) -> bool {
        if self.held || self.payload.as_ref().is_none_or(|payload| payload.left > 0) {
            return false;
        }
        let payload = self.payload.take().expect("it was just there");
        match payload.refused {
            Some(error) => self.reply(payload.header, key, Err(error)),
            None => self.submit(payload.header, payload.class, payload.full, key, requests),
        }
        true
    }

    /// Handles a finished request of this connection.
    pub(super) fn finish(&mut self, finished: Finished<Owner>) {
        let Finished {
            owner,
            result,
            mut data,
        } = finished;
        self.in_flight -= 1;
        let result = result.map_err(|error| NbdError::of(error, writes(owner.command)));
        if owner.command != command::READ || result.is_err() {
            self.memory.give_back(data.iter().map(IoSlice::len).sum());
            data.clear();
        }
        self.replies.push_back(Reply {
            owner,
            result,
            data,
        });
        self.encode();
    }

    /// Encodes replies into the list while there is room.
    fn encode(&mut self) {
        while let Some(reply) = self.replies.front() {
            if !self.list.fits(REPLY_HEADER_MAX, 1 + reply.data.len()) {
                return;
            }
            let reply = self.replies.pop_front().expect("it is there");
            reply.write_header(self.form, &mut self.output);
            self.put_output();
            for slice in reply.data {
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

    /// Takes the list to be sent, unless another list is being sent.
    pub(super) fn take_list(&mut self, now: Time) -> Option<Box<SendList>> {
        if self
            .encryption
            .channel()
            .is_some_and(TlsChannel::is_abandoned)
        {
            self.abandon();
            return None;
        }
        let list = match self.encryption.channel().map(TlsChannel::is_free) {
            None => self.take_plain(now)?,
            Some(is_free) => {
                let plain = if is_free { self.take_plain(now) } else { None };
                let over = matches!(self.phase, Phase::Ending) && self.in_flight == 0;
                let over = over && plain.is_none() && self.is_sent();
                self.encryption.channel_mut()?.seal(plain, over)?
            }
        };
        self.send_by = now + NBD_TRANSFER_TIME;
        Some(list)
    }

    fn take_plain(&mut self, now: Time) -> Option<Box<SendList>> {
        if self.list.is_empty() {
            return None;
        }
        let spare = self.spare.take()?;
        self.sending_bytes = std::mem::take(&mut self.list_bytes);
        if self.sending_bytes > 0 {
            self.sending_since = now;
        }
        let list = std::mem::replace(&mut self.list, spare);
        self.encode();
        Some(list)
    }

    /// Takes a list back that was sent, or never will be.
    pub(super) fn sent(&mut self, list: Box<SendList>) {
        if let Some(tls) = self.encryption.channel_mut() {
            if let Some(plain) = tls.sent(list) {
                self.sent_plain(plain);
            }
            return;
        }
        self.sent_plain(list);
        if self.list.is_empty()
            && self.encryption.run()
            && let Phase::Negotiating(negotiation) = &mut self.phase
        {
            negotiation.begin_tls();
        }
    }

    fn sent_plain(&mut self, mut list: Box<SendList>) {
        list.clear();
        self.spare = Some(list);
        self.sending_since = Time::NEVER;
        self.memory
            .give_back(std::mem::take(&mut self.sending_bytes));
    }

    /// The client has disconnected: pending output is dropped.
    pub(super) fn abandon(&mut self) {
        self.end();
        self.replies.clear();
        self.list.clear();
        self.list_bytes = 0;
        if let Some(plain) = self.encryption.channel_mut().and_then(TlsChannel::abandon) {
            self.sent_plain(plain);
        }
    }
}
