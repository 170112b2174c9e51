//! A queue pair: a TCP connection, its set-up and end, and the commands on it.
//!
//! Owns the socket, the framer, the command table and up to two send lists. A controller (for the
//! admin queue) or a channel (for an I/O queue) hands it commands, passes on the completions of its
//! operations, and takes finished commands out of the table. Invariant: it never returns a command
//! as finished while an operation of the driver still holds the command's data.
//!
//! Budget of a 4 KiB read, depth 128: 64 bytes copied into the slot and again into the send list,
//! one 4 KiB copy out of the receive buffer, and its share (1/128 to 1/16) of a `sendmsg` and a
//! `recvmsg`. Receiving every payload into place would cost one system call per payload.

use super::chap::{Authentication, Chap};
use super::outgoing::Outgoing;
use crate::command::exchange::{Direction, Exchange};
use crate::command::table::CommandTable;
use crate::error::{AuthenticationError, ConnectionError, ProtocolError};
use crate::limits::{R2T_PER_COMMAND_MAX, TERMINATION_TIME, TIMEOUT_SCAN, TRANSFER_BYTES_MAX};
use crate::options::ConnectOptions;
use base::state::StateMachine;
use base::{Nanos, Time};
use reactor::tls::TlsError;
use reactor::{
    Context, IoSlice, Op, OpKey, OpNamespace, Outcome, SendListPool, SocketId, SocketOptions,
};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use switch::doorbell::{DoorbellCounters, Mode};
use switch::{CaravanLimits, Class};
use transport::Receiver;
use wire::fabrics::connect::ConnectAttributes;
use wire::fabrics::{Connect, ConnectData, ConnectResponse, InvalidParameter};
use wire::nvme::{Command, Completion, SglDescriptor, Status};
use wire::tcp::c2h_data::C2hProgress;
use wire::tcp::limits::ADMIN_IN_CAPSULE_BYTES;
use wire::tcp::{DataAlignment, Framer, FramerLimits, IcReq, IcResp, PduFormat, Role, TermReq};

/// The Connect command of one opening. `[NVMe Base 2.0 §6.3]`
#[derive(Debug)]
pub(crate) struct Join {
    pub(crate) address: SocketAddr,
    pub(crate) queue_id: u16,
    /// Zero-based.
    pub(crate) sq_size: u16,
    pub(crate) keep_alive_ms: u32,
    pub(crate) data: Box<ConnectData>,
    /// In-capsule data that the controller accepts on the queue once it is live, in bytes.
    pub(crate) in_capsule_bytes: u32,
    /// Priority class: bits 1:0 of CATTR.
    pub(crate) priority: u8,
}

/// Kinds of operation keys.
const OPEN: u8 = 0;
const RECEIVE: u8 = 1;
const SEND: u8 = 2;
const CLOSE: u8 = 3;
pub(super) const COMPUTE: u8 = 4;

/// Tag in the table of Connect and of the commands that authenticate.
pub(super) const JOIN_TAG: u64 = u64::MAX;

/// A queue pair.
#[derive(Debug)]
pub(crate) struct Qpair {
    pub(super) config: QpairConfig,
    op_namespace: OpNamespace,
    index: u32,
    /// Number of times that the connection was opened; part of the operation keys.
    generation: u8,
    state: StateMachine<ConnectionState, { ConnectionState::COUNT }>,
    socket: Option<SocketId>,
    join: Option<Join>,
    pub(super) queue_id: u16,
    pub(super) authentication: Option<Box<Authentication>>,
    /// Number of exchanges so far.
    pub(super) exchanges: u8,
    pub(crate) cntlid: u16,
    pub(super) max_h2c_data: u32,
    pub(super) in_capsule_bytes: u32,
    pub(super) table: CommandTable,
    /// Commands that the controller accepts on the queue, at most the size of the table.
    room: usize,
    pub(super) tx: Outgoing,
    pub(super) receiver: Receiver,
    /// The C2HData PDU whose payload is arriving.
    pub(super) arriving: Option<Arriving>,
    /// Time at which the current step of set-up or termination times out.
    pub(super) step_deadline: Time,
    /// Time at which the table is checked for time-outs.
    scan_at: Time,
    /// Data was received since the last such check.
    pub(super) received: bool,
    pub(super) error: Option<ConnectionError>,
}

impl Qpair {
    /// Creates a closed connection with room for `depth` commands, which takes its send lists from
    /// `lists`.
    pub(crate) fn new(
        config: QpairConfig,
        op_namespace: OpNamespace,
        index: u32,
        depth: u16,
        lists: &SendListPool,
    ) -> Self {
        Self {
            config,
            op_namespace,
            index,
            generation: 0,
            state: StateMachine::new(ConnectionState::Closed),
            socket: None,
            join: None,
            queue_id: 0,
            authentication: None,
            exchanges: 0,
            cntlid: 0,
            max_h2c_data: 0,
            in_capsule_bytes: 0,
            table: CommandTable::new(depth),
            room: usize::from(depth),
            tx: Outgoing::new(depth, lists.clone()),
            receiver: Receiver::new(new_framer()),
            arriving: None,
            step_deadline: Time::NEVER,
            scan_at: Time::NEVER,
            received: false,
            error: None,
        }
    }

    /// Returns the current state.
    #[inline]
    pub(super) fn state(&self) -> ConnectionState {
        self.state.get()
    }

    /// Returns how often the connection entered each state, with the state's name.
    pub(crate) fn states_entered(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.state.entered()
    }

    pub(crate) fn is_live(&self) -> bool {
        self.state() == ConnectionState::Live
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state() == ConnectionState::Closed
    }

    /// Returns true if the connection is ending.
    pub(crate) fn is_ending(&self) -> bool {
        self.state().is_ending()
    }

    /// Takes the error that ended the connection.
    pub(crate) fn take_error(&mut self) -> Option<ConnectionError> {
        self.error.take()
    }

    pub(crate) fn table(&mut self) -> &mut CommandTable {
        &mut self.table
    }

    pub(super) fn key(&self, kind: u8) -> OpKey {
        let slot = base::SlabKey {
            index: self.index,
            generation: self.generation,
        };
        OpKey::new(self.op_namespace, kind, slot)
    }

    /// Opens the connection. The TCP connect times out after `patience`.
    pub(crate) fn open(&mut self, join: Join, patience: Nanos, cx: &mut Context<'_>) {
        assert!(self.is_closed(), "a connection is opened when it is closed");
        self.generation = self.generation.wrapping_add(1);
        self.receiver = Receiver::new(new_framer());
        self.tx.send.set_format(PduFormat::PLAIN);
        self.arriving = None;
        self.error = None;
        self.scan_at = Time::NEVER;
        self.room = self.table.depth().min(usize::from(join.sq_size));
        self.config.address = join.address;
        self.queue_id = join.queue_id;
        self.join = Some(join);
        // The driver times the operation out.
        self.enter(ConnectionState::Connecting, Time::NEVER);
        let op = Op::Connect {
            address: self.config.address,
            options: self.config.socket.clone(),
            timeout: patience,
        };
        cx.submit(self.key(OPEN), op);
    }

    /// Ends the connection without an error.
    pub(crate) fn close(&mut self, cx: &mut Context<'_>) {
        // A termination request may still be sent; that takes only a moment.
        if self.state() != ConnectionState::Terminating {
            self.close_now(cx);
        }
    }

    pub(super) fn close_now(&mut self, cx: &mut Context<'_>) {
        match self.state() {
            ConnectionState::Closed | ConnectionState::Closing => {}
            // The driver still owns the socket; it is closed once the connect completes.
            ConnectionState::Connecting => self.enter(ConnectionState::Closing, Time::NEVER),
            _ => self.close_socket(cx),
        }
    }

    pub(super) fn enter(&mut self, state: ConnectionState, deadline: Time) {
        self.state.enter(state);
        tracing::trace!(queue = self.index, state = state.name(), "connection");
        self.step_deadline = deadline;
    }

    fn close_socket(&mut self, cx: &mut Context<'_>) {
        let socket = self.socket.take().expect("an open connection has a socket");
        // A reset drops commands that are still in the socket's buffer. Otherwise they could arrive
        // at any later time, after they were reported.
        let given_up = self.state() == ConnectionState::Terminating || self.table.is_timed();
        self.enter(ConnectionState::Closing, Time::NEVER);
        let op = if given_up {
            Op::Reset { socket }
        } else {
            Op::Close { socket }
        };
        cx.submit(self.key(CLOSE), op);
    }

    /// Ends the connection because of an error. The first error is kept.
    pub(crate) fn fail(&mut self, error: ConnectionError, cx: &mut Context<'_>) {
        self.error.get_or_insert(error);
        self.close_now(cx);
    }

    /// Ends the connection with H2CTermReq after a protocol error of the controller.
    /// `[NVMe-TCP 1.0 §3.6.2.4]`
    pub(super) fn violated(&mut self, error: ProtocolError, header: &[u8], cx: &mut Context<'_>) {
        let address = self.config.address;
        self.error
            .get_or_insert(ConnectionError::Protocol { address, error });
        if self.socket.is_none() {
            return self.close_now(cx);
        }
        let deadline = cx.now + TERMINATION_TIME;
        self.enter(ConnectionState::Terminating, deadline);
        self.tx.terminate(&error.term_req(), header);
        self.pump(cx);
    }

    /// Returns true if the connection takes another command.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.state() == ConnectionState::Live && self.table.len() < self.room
    }

    /// Takes a command.
    ///
    /// # Panics
    /// If there is no room: the caller asked [`has_room`](Self::has_room).
    #[inline]
    pub(crate) fn start(&mut self, exchange: Exchange, now: Time) {
        let deadline = now + self.config.command_timeout;
        self.tx.join(&exchange, now, self.table.len() + 1);
        self.start_until(exchange, deadline);
    }

    /// Takes a command that times out at `deadline`.
    #[inline]
    pub(crate) fn start_until(&mut self, exchange: Exchange, deadline: Time) {
        debug_assert!(self.is_live(), "the caller asked for room");
        let index = self.table.insert(exchange, deadline);
        if !self.tx.queue.is_empty() || !self.encode_command(index) {
            self.tx.queue.push_back(index);
        }
    }

    /// Sends what is ready. Returns the bytes of data sent under a doorbell, 0 without one.
    #[inline]
    pub(crate) fn pump(&mut self, cx: &mut Context<'_>) -> u64 {
        let Some(socket) = self.socket else { return 0 };
        let next = self.tx.next_send(self.is_live(), cx.now, self.table.len());
        let Some((list, bytes)) = next else {
            return 0;
        };
        cx.submit(self.key(SEND), Op::Send { socket, list });
        bytes
    }

    /// Sends after an event. With a doorbell, the owner pumps at the end of its turn instead,
    /// because other lanes may go first.
    pub(super) fn follow_up(&mut self, cx: &mut Context<'_>) {
        if !self.is_live() || !self.tx.is_paced() {
            self.pump(cx);
        }
    }

    /// Sets the doorbell mode and the caravan limits of commands of this class.
    pub(crate) fn pace(&mut self, mode: Mode, limits: CaravanLimits, class: Class) {
        self.tx.pace(mode, limits, class);
    }

    /// Commands that wait for the doorbell.
    pub(crate) const fn waiting_for_doorbell(&self) -> u32 {
        self.tx.waiting()
    }

    pub(crate) const fn doorbell_counters(&self) -> &DoorbellCounters {
        self.tx.counters()
    }

    /// Handles a completed operation of this connection.
    pub(crate) fn apply(&mut self, completion: reactor::Completion, cx: &mut Context<'_>) {
        if let Outcome::Computed(result) = completion.outcome {
            // A connection may end before its job.
            if completion.key.generation == self.generation {
                self.computed(result, cx);
            }
            return;
        }
        debug_assert_eq!(completion.key.generation, self.generation);
        match completion.outcome {
            Outcome::Connected(result) => self.connected(result, cx),
            Outcome::Received(received) => self.received(received, cx),
            Outcome::Sent { list, result } => self.sent(list, result, cx),
            Outcome::Closed => self.closed(),
            other => debug_assert!(false, "no such operation was submitted: {other:?}"),
        }
        if self.is_set_up_by_messages() {
            self.follow_authentication(cx);
        }
    }

    fn io_error(&self, error: &io::Error) -> ConnectionError {
        let address = self.config.address;
        let tls = error
            .get_ref()
            .and_then(|inner| inner.downcast_ref::<TlsError>());
        if let Some(tls) = tls {
            let error = TlsError::clone(tls);
            return ConnectionError::Tls { address, error };
        }
        let kind = error.kind();
        let is_shut = matches!(kind, ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset);
        if is_shut && self.state() == ConnectionState::Authenticating {
            let command = self.authentication_awaits();
            let error = AuthenticationError::Closed { command };
            return ConnectionError::Authentication { address, error };
        }
        if is_shut
            && self.state() == ConnectionState::Initializing
            && self.config.socket.tls.is_none()
        {
            return ConnectionError::Shut { address };
        }
        ConnectionError::Io { address, kind }
    }

    fn connected(&mut self, result: io::Result<SocketId>, cx: &mut Context<'_>) {
        match result {
            Err(error) => {
                if self.state() == ConnectionState::Connecting {
                    let error = self.io_error(&error);
                    self.error.get_or_insert(error);
                }
                self.closed();
            }
            Ok(socket) => {
                self.socket = Some(socket);
                if self.state() == ConnectionState::Closing {
                    return self.close_socket(cx);
                }
                self.enter(
                    ConnectionState::Initializing,
                    cx.now + self.config.step_timeout,
                );
                self.tx.push_bytes(&self.ic_req());
                self.pump(cx);
                self.receive_more(None, cx);
            }
        }
    }

    /// Returns the ICReq: digests by the options, no padding, four R2Ts per command.
    /// `[NVMe-TCP 1.0 §3.6.2.2]`
    fn ic_req(&self) -> [u8; IcReq::SIZE] {
        let request = IcReq {
            host_alignment: DataAlignment::DWORD,
            header_digest: self.config.header_digest,
            data_digest: self.config.data_digest,
            max_r2t: u32::try_from(R2T_PER_COMMAND_MAX).expect("a few") - 1,
        };
        request.to_bytes()
    }

    /// Submits the next receive. Its first bytes go to `into`, if there is one.
    pub(super) fn receive_more(&mut self, into: Option<IoSlice>, cx: &mut Context<'_>) {
        if let Some(socket) = self.socket {
            if into.is_none() {
                self.receiver.arm();
            }
            cx.submit(self.key(RECEIVE), Op::Receive { socket, into });
        }
    }

    /// Handles ICResp: sets the PDU format, and sends Connect.
    pub(super) fn initialized(
        &mut self,
        response: &IcResp,
        now: Time,
    ) -> Result<(), ProtocolError> {
        let unasked = (response.header_digest && !self.config.header_digest)
            || (response.data_digest && !self.config.data_digest);
        if unasked {
            return Err(ProtocolError::Digests);
        }
        let format = PduFormat {
            header_digest: response.header_digest,
            data_digest: response.data_digest,
            alignment: response.controller_alignment,
        };
        self.receiver.set_digests(&format);
        self.tx.send.set_format(format);
        self.max_h2c_data = response.max_h2c_data;
        self.enter(ConnectionState::Joining, now + self.config.step_timeout);
        let join = self.join.take().expect("opening set it");
        // Without SQ flow control the controller may omit the capsule of a successful read.
        let attributes = if self.config.sq_flow_control {
            ConnectAttributes::default()
        } else {
            ConnectAttributes(ConnectAttributes::DISABLE_SQ_FLOW_CONTROL)
        };
        let connect = Connect {
            record_format: 0,
            queue_id: join.queue_id,
            sq_size: join.sq_size,
            attributes: attributes.with_priority_class(join.priority),
            keep_alive_timeout_ms: join.keep_alive_ms,
        };
        let data = join.data.to_bytes();
        let mut command = connect.encode(0);
        let length = u32::try_from(data.len()).expect("1024");
        debug_assert!(length <= ADMIN_IN_CAPSULE_BYTES);
        command.set_sgl(SglDescriptor::in_capsule(0, length));
        self.in_capsule_bytes = join.in_capsule_bytes;
        self.send_join(command, &data);
        Ok(())
    }

    fn send_join(&mut self, command: Command, data: &[u8]) {
        let exchange = Exchange::admin(JOIN_TAG, command, None);
        let index = self.table.insert(exchange, Time::NEVER);
        self.encode_capsule_with(index, data);
    }

    /// Handles the answer to Connect.
    pub(super) fn joined(&mut self, completion: &Completion, now: Time) -> Option<ConnectionError> {
        let join = self.table.take_newest(JOIN_TAG);
        debug_assert!(join.is_some(), "it was answered just now");
        let status = completion.status;
        if !status.is_success() {
            let parameter = InvalidParameter::from_dword(completion.dword0());
            // Its identifier, and how long its queues may be, were read from the controller.
            let read = [
                InvalidParameter::in_data(ConnectData::CNTLID_OFFSET),
                InvalidParameter::in_command(Connect::SQSIZE_OFFSET),
            ];
            let is_unknown = self.queue_id > 0
                && status.is(Status::CONNECT_INVALID_PARAMETERS)
                && read.contains(&parameter);
            let address = self.config.address;
            let what = "Connect";
            return Some(if is_unknown {
                ConnectionError::UnknownController { address }
            } else {
                ConnectionError::Refused { what, status }
            });
        }
        let response = ConnectResponse::from_dword(completion.dword0());
        self.cntlid = response.cntlid;
        self.connected_as(response, now).err()
    }

    /// Lets commands flow.
    pub(super) fn go_live(&mut self, now: Time) {
        self.enter(ConnectionState::Live, Time::NEVER);
        self.scan_at = now + TIMEOUT_SCAN;
    }

    /// Handles C2HTermReq: the controller ends the connection.
    pub(super) fn terminated(&mut self, request: TermReq, cx: &mut Context<'_>) {
        let error = ConnectionError::Terminated {
            address: self.config.address,
            status: request.status,
            information: request.information,
        };
        self.fail(error, cx);
    }

    pub(super) fn receive_failed(&mut self, error: &io::Error, cx: &mut Context<'_>) {
        let error = self.io_error(error);
        self.fail(error, cx);
    }

    fn sent(&mut self, list: Box<reactor::SendList>, result: io::Result<()>, cx: &mut Context<'_>) {
        self.tx.sent(list);
        if let Err(error) = result {
            if self.state() != ConnectionState::Closing {
                let error = self.io_error(&error);
                self.fail(error, cx);
            }
            return;
        }
        self.tx.finish_answered(&mut self.table);
        match self.state() {
            // The controller closes after it has read the request; an earlier reset would discard
            // it.
            ConnectionState::Terminating if self.tx.send.is_idle() => self.receive_more(None, cx),
            ConnectionState::Live => {
                self.encode_backlog();
                self.follow_up(cx);
            }
            _ => {
                self.pump(cx);
            }
        }
    }

    /// Handles the end of the connection's last operation: every command on it is lost.
    fn closed(&mut self) {
        self.socket = None;
        self.join = None;
        self.authentication = None;
        self.enter(ConnectionState::Closed, Time::NEVER);
        self.scan_at = Time::NEVER;
        self.tx.reset();
        self.table.lose_all();
        // A lost Connect or message is reported as the connection's error. It was the only command.
        let _ = self.table.take_newest(JOIN_TAG);
    }

    /// Runs the timers. Returns true if the table is to be checked for time-outs.
    pub(crate) fn tick(&mut self, cx: &mut Context<'_>) -> bool {
        if self.step_deadline <= cx.now {
            match self.state() {
                ConnectionState::Terminating => self.close_now(cx),
                // Data that arrived meanwhile has not been processed yet.
                _ if was_away(self.step_deadline, cx.now) => {
                    self.step_deadline = cx.now + self.config.step_timeout;
                }
                ConnectionState::Initializing => self.step_timed_out("ICReq", cx),
                _ => self.step_timed_out(self.authentication_awaits(), cx),
            }
        }
        self.follow_up(cx);
        if self.scan_at > cx.now {
            return false;
        }
        if was_away(self.scan_at, cx.now) {
            // The core took no answers in that time, so it does not count for time-outs.
            let latest = cx.now + self.config.command_timeout;
            // Answers may still follow the data that is arriving.
            let is_behind = self.received && self.arriving.is_some();
            self.table.excuse(self.scan_at, cx.now, latest, is_behind);
        }
        self.received = false;
        self.scan_at = cx.now + TIMEOUT_SCAN;
        true
    }

    fn step_timed_out(&mut self, what: &'static str, cx: &mut Context<'_>) {
        let error = ConnectionError::TimedOut {
            address: self.config.address,
            what,
            seconds: self.config.step_timeout.0 / 1_000_000_000,
        };
        self.fail(error, cx);
    }

    /// Returns true if nothing is due until the next request or data from the peer.
    pub(crate) fn is_idle(&self) -> bool {
        self.is_live()
            && self.table.len() == 0
            && self.tx.send.has_nothing_to_send()
            && self.step_deadline == Time::NEVER
    }

    /// Returns the time at which [`tick`](Self::tick) must run at the latest.
    pub(crate) fn deadline(&self) -> Time {
        if self.table.len() == 0 {
            return self.step_deadline;
        }
        let held = self.tx.deadline();
        // Asynchronous event requests have no time-out.
        let scan_at = if self.table.is_timed() {
            self.scan_at
        } else {
            Time::NEVER
        };
        self.step_deadline.min(scan_at).min(held)
    }
}

/// Returns true if the core did not run for a while: a timer that was due at `due` runs only `now`.
pub(crate) fn was_away(due: Time, now: Time) -> bool {
    now.since(due) > TIMEOUT_SCAN
}

fn new_framer() -> Framer {
    let limits = FramerLimits {
        capsule_data_bytes: 0,
        data_pdu_bytes: TRANSFER_BYTES_MAX,
    };
    Framer::new(Role::Host, limits)
}

/// Configuration of a connection.
#[derive(Clone, Debug)]
pub(crate) struct QpairConfig {
    pub(crate) address: SocketAddr,
    pub(crate) socket: SocketOptions,
    /// Secrets of DH-HMAC-CHAP.
    pub(super) chap: Option<Arc<Chap>>,
    pub(crate) header_digest: bool,
    pub(crate) data_digest: bool,
    pub(crate) sq_flow_control: bool,
    pub(crate) step_timeout: Nanos,
    pub(crate) command_timeout: Nanos,
}

impl QpairConfig {
    /// The configuration of the admin queue's connection, or of an I/O queue's.
    pub(crate) fn new(options: &ConnectOptions, admin: bool) -> Self {
        Self {
            address: options.address,
            socket: options.socket.clone(),
            chap: Chap::new(options),
            header_digest: options.header_digest,
            data_digest: options.data_digest,
            sq_flow_control: options.sq_flow_control,
            step_timeout: options.connect_timeout,
            command_timeout: if admin {
                options.connect_timeout
            } else {
                options.command_timeout
            },
        }
    }
}

/// A C2HData PDU whose payload is arriving.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arriving {
    /// Slot of the command; `None` if the payload is dropped.
    pub(super) index: Option<u16>,
    pub(super) progress: C2hProgress,
}

base::states! {
    /// State of a connection.
    ///
    /// ```text
    ///           open            TCP            ICResp          Connect
    ///  Closed ───────► Connecting ──► Initializing ──► Joining ──────► Live
    ///    ▲  ▲              │               │            │   │            ▲ │
    ///    │  │              │               │            │   ▼            │ │
    ///    │  │              │               │            │ Authenticating─┘ │
    ///    │  └──────────────┤               ├────────────┴───┴──────────────┤
    ///    │       refused   │ close         │ the controller breaks a rule  │ close, error
    ///    │                 ▼               ▼                               │
    ///    └───────────── Closing ◄──── Terminating                          │
    ///                      ▲                                               │
    ///                      └───────────────────────────────────────────────┘
    /// ```
    pub(crate) enum ConnectionState {
        /// There is no socket and no operation.
        Closed = "closed",
        /// The TCP connection is being established.
        Connecting = "connecting",
        /// ICReq was sent; ICResp is awaited.
        Initializing = "initializing",
        /// Connect was sent; its completion is awaited.
        Joining = "joining",
        /// The host and, if it has to, the controller prove their names.
        Authenticating = "authenticating",
        /// Commands flow.
        Live = "live",
        /// The controller violated the protocol; H2CTermReq is being sent.
        Terminating = "terminating",
        /// The socket is being closed.
        Closing = "closing",
    }
}

impl ConnectionState {
    /// Returns true if the connection is ending.
    pub(super) const fn is_ending(self) -> bool {
        matches!(self, Self::Terminating | Self::Closing)
    }

    fn follows(self, before: Self) -> bool {
        use ConnectionState::{
            Authenticating, Closed, Closing, Connecting, Initializing, Joining, Live, Terminating,
        };
        match self {
            Closed => matches!(before, Connecting | Closing),
            Connecting => before == Closed,
            Initializing => before == Connecting,
            Joining => before == Initializing,
            Authenticating => before == Joining,
            Live => matches!(before, Joining | Authenticating),
            Terminating => matches!(
                before,
                Initializing | Joining | Authenticating | Live | Terminating
            ),
            // The close was requested during the connect; it happens once the socket is connected.
            Closing => before != Closed,
        }
    }
}

impl Qpair {
    /// Removes a command that is not in a send. With a doorbell it is counted in a caravan, and
    /// stays.
    pub(crate) fn withdraw(&mut self, index: u16) -> Option<Exchange> {
        if self.tx.is_paced() {
            return None;
        }
        let place = self.tx.queue.iter().position(|&queued| queued == index)?;
        self.tx.queue.remove(place);
        Some(self.table.withdraw(index))
    }

    /// Takes the data of a command, which stays in the table until it is answered. Data that
    /// arrives for it is dropped. Returns `None` if an operation of the driver may still use the
    /// data, or the controller may still request it.
    pub(crate) fn detach(&mut self, index: u16, now: Time) -> Option<Option<IoSlice>> {
        let is_carried = self.is_carried(index);
        let deadline = now + self.config.command_timeout;
        let slot = self.table.slot(index);
        let is_asked_for = slot.received == slot.data_bytes && !slot.has_transfers();
        let exchange = slot.exchange.as_mut()?;
        let is_free = match exchange.direction {
            Direction::None => true,
            // Otherwise a receive is filling it.
            Direction::In => exchange.data.is_some(),
            Direction::Out => is_asked_for && !is_carried && exchange.reclaim(),
        };
        if !is_free {
            return None;
        }
        exchange.detached = true;
        let data = exchange.take_data();
        slot.detach(deadline);
        Some(data)
    }

    /// Returns true while a queued or running send has data of the command. Device memory has no
    /// owner count, so nothing else shows that it is in use.
    pub(super) fn is_carried(&self, index: u16) -> bool {
        !self.tx.send.has_left(self.table.mark(index))
    }
}

impl Qpair {
    /// Returns the status with which the controller refused the last Connect.
    pub(crate) fn refusal(&self) -> Option<Status> {
        match self.error {
            Some(ConnectionError::Refused { status, .. }) => Some(status),
            _ => None,
        }
    }

    /// Returns true if the target does not know the controller that the queue belongs to.
    pub(crate) fn is_unknown(&self) -> bool {
        matches!(self.error, Some(ConnectionError::UnknownController { .. }))
    }

    /// Returns the error that ended the connection.
    pub(crate) fn error(&self) -> Option<&ConnectionError> {
        self.error.as_ref()
    }
}

#[cfg(test)]
mod tests;
