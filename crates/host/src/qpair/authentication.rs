//! DH-HMAC-CHAP on a connection: after Connect, before any other command. `[NVMe Base 2.0
//! §8.13.5]`
//!
//! The messages go by Authentication Send and Receive, one command at a time. The driver computes
//! the host's response.

use super::chap::{Authentication, Chap, Outstanding};
use super::connection::{COMPUTE, ConnectionState, JOIN_TAG, Qpair};
use crate::command::exchange::{Direction, Exchange, Work};
use crate::command::table::{Finished, Outcome};
use crate::error::{AuthenticationError, ConnectionError};
use crate::limits::{AUTHENTICATION_BUFFER, AUTHENTICATION_BYTES};
use base::Time;
use reactor::{BufferPool, Context, IoSlice, Op};
use secure::chap::{HostExchange, HostStep, Job, JobResult};
use std::io;
use wire::fabrics::{AuthenticationTransfer, ConnectResponse, FabricsCommand};
use wire::nvme::{SglDescriptor, Status};

impl Qpair {
    /// Continues after a successful Connect: the connection is live, or is authenticated first.
    pub(super) fn connected_as(
        &mut self,
        response: ConnectResponse,
        now: Time,
    ) -> Result<(), ConnectionError> {
        let requires = |bit: u16| response.authentication & bit != 0;
        if requires(ConnectResponse::SECURE_CHANNEL_REQUIRED) {
            return Err(self.not_authenticated(AuthenticationError::SecureChannel));
        }
        let is_required = requires(ConnectResponse::AUTHENTICATION_REQUIRED);
        let Some(chap) = self.config.chap.clone() else {
            if is_required {
                return Err(self.not_authenticated(AuthenticationError::NoSecret));
            }
            self.go_live(now);
            return Ok(());
        };
        // The key of TLS proves the controller of an I/O queue as well.
        let is_proven = self.queue_id > 0 && self.config.socket.tls.is_some();
        if is_required || (chap.controller.is_some() && !is_proven) {
            self.begin_exchange(&chap, is_required);
            let deadline = now + self.config.step_timeout;
            self.enter(ConnectionState::Authenticating, deadline);
        } else {
            self.go_live(now);
        }
        Ok(())
    }

    fn begin_exchange(&mut self, chap: &Chap, is_required: bool) {
        // Every queue has its own number, so no two exchanges of an association have the same
        // identifier.
        self.exchanges = self.exchanges.wrapping_add(1);
        let transaction = self.queue_id << 8 | u16::from(self.exchanges);
        let (exchange, negotiate) = HostExchange::begin(
            chap.names.clone(),
            chap.secret.clone(),
            chap.controller.clone(),
            transaction,
        );
        let buffers = BufferPool::new(&[AUTHENTICATION_BUFFER]);
        self.authentication = Some(Box::new(Authentication {
            exchange,
            buffers: buffers.expect("address space for a page"),
            outstanding: Outstanding::Send,
            is_required,
            is_again: self.is_live(),
        }));
        self.send_message(&negotiate);
    }

    /// Returns the name of the answer for which the exchange waits.
    pub(super) fn authentication_awaits(&self) -> &'static str {
        let authentication = self.authentication.as_ref();
        authentication.map_or("Connect", |it| it.outstanding.name())
    }

    /// Returns true if an exchange before the connection was live has the only commands.
    pub(super) fn is_set_up_by_messages(&self) -> bool {
        let authentication = self.authentication.as_ref();
        authentication.is_some_and(|it| !it.is_again)
    }

    /// Follows the commands of that exchange.
    pub(super) fn follow_authentication(&mut self, cx: &mut Context<'_>) {
        while let Some(finished) = self.table.take_finished() {
            let Err(error) = self.message_answered(finished, cx) else {
                continue;
            };
            return self.fail(error, cx);
        }
        self.pump(cx);
    }

    /// Continues after a command of the exchange.
    pub(crate) fn message_answered(
        &mut self,
        finished: Finished,
        cx: &mut Context<'_>,
    ) -> Result<(), ConnectionError> {
        let is_ending = self.is_ending();
        let (Some(authentication), Outcome::Answered(completion)) =
            (&mut self.authentication, finished.outcome)
        else {
            return Ok(());
        };
        if is_ending {
            return Ok(());
        }
        let outstanding = authentication.outstanding;
        let status = completion.status;
        match outstanding {
            Outstanding::SendFailure => self.close_now(cx),
            _ if !status.is_success() => return Err(self.message_refused(outstanding, status)),
            Outstanding::Send => self.receive_message(),
            Outstanding::SendLast => self.authenticated(cx.now),
            Outstanding::Receive => {
                let data = finished.exchange.data;
                let data = data.as_ref().and_then(IoSlice::bytes).unwrap_or_default();
                let step = authentication.exchange.receive(data);
                return self.step(step, cx);
            }
            Outstanding::Compute => {}
        }
        Ok(())
    }

    fn message_refused(&self, outstanding: Outstanding, status: Status) -> ConnectionError {
        let command = outstanding.name();
        let authentication = self.authentication.as_ref();
        let is_required = authentication.is_some_and(|it| it.is_required);
        self.not_authenticated(if is_required {
            AuthenticationError::Refused { command, status }
        } else {
            AuthenticationError::Unproven { command, status }
        })
    }

    /// Continues with the result of the driver.
    pub(super) fn computed(&mut self, result: io::Result<JobResult>, cx: &mut Context<'_>) {
        if self.is_ending() {
            return;
        }
        let Some(authentication) = &mut self.authentication else {
            return;
        };
        let next = match result {
            Ok(result) => {
                let step = authentication.exchange.computed(result);
                self.step(step, cx)
            }
            Err(error) => Err(self.not_authenticated(AuthenticationError::Busy(error.kind()))),
        };
        if let Err(error) = next {
            return self.fail(error, cx);
        }
        self.pump(cx);
    }

    fn step(&mut self, step: HostStep, cx: &mut Context<'_>) -> Result<(), ConnectionError> {
        match step {
            HostStep::Compute(job) => self.compute(job, cx),
            HostStep::Send(message) => {
                self.expect(Outstanding::Send);
                self.send_message(&message);
            }
            HostStep::Authenticated(Some(message)) => {
                self.expect(Outstanding::SendLast);
                self.send_message(&message);
            }
            HostStep::Authenticated(None) => self.authenticated(cx.now),
            HostStep::Failed(failure, message) => {
                let error = self.not_authenticated(AuthenticationError::Failed(failure));
                let Some(message) = message else {
                    return Err(error);
                };
                // Kept until the controller knows it, or the connection ends.
                self.error.get_or_insert(error);
                self.expect(Outstanding::SendFailure);
                self.send_message(&message);
            }
        }
        Ok(())
    }

    fn expect(&mut self, outstanding: Outstanding) {
        if let Some(authentication) = &mut self.authentication {
            authentication.outstanding = outstanding;
        }
    }

    fn compute(&mut self, job: Job, cx: &mut Context<'_>) {
        self.expect(Outstanding::Compute);
        cx.submit(self.key(COMPUTE), Op::Compute { job });
    }

    fn authenticated(&mut self, now: Time) {
        self.end_authentication();
        if self.state() == ConnectionState::Authenticating {
            self.go_live(now);
        }
    }

    /// Ends the exchange.
    pub(crate) fn end_authentication(&mut self) {
        self.authentication = None;
        self.step_deadline = Time::NEVER;
    }

    /// Begins an exchange on a live connection. Returns false if there is no room.
    pub(crate) fn authenticate_again(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(chap) = self.config.chap.clone() else {
            return false;
        };
        if !self.has_room() || !self.tx.has_room() {
            return false;
        }
        self.begin_exchange(&chap, true);
        self.step_deadline = cx.now + self.config.step_timeout;
        true
    }

    /// Returns true while an exchange is in progress.
    pub(crate) fn is_authenticating(&self) -> bool {
        self.authentication.is_some()
    }

    /// Returns true if the command carries a message.
    pub(crate) fn is_message(&self, exchange: &Exchange) -> bool {
        exchange.tag == JOIN_TAG
    }

    fn not_authenticated(&self, error: AuthenticationError) -> ConnectionError {
        let address = self.config.address;
        ConnectionError::Authentication { address, error }
    }

    /// Sends a message as in-capsule data, which is allowed on every queue. `[NVMe-TCP 1.0 §3.3.2]`
    fn send_message(&mut self, message: &[u8]) {
        let length = u32::try_from(message.len()).expect("at most MESSAGE_BYTES_MAX");
        let transfer = AuthenticationTransfer::message(length);
        let mut command = FabricsCommand::AuthenticationSend(transfer).encode(0);
        command.set_sgl(SglDescriptor::in_capsule(0, length));
        let exchange = Exchange::admin(JOIN_TAG, command, None);
        let index = self.table.insert(exchange, Time::NEVER);
        self.encode_capsule_with(index, message);
    }

    fn receive_message(&mut self) {
        self.expect(Outstanding::Receive);
        let Some(authentication) = &self.authentication else {
            return;
        };
        let bytes = AUTHENTICATION_BUFFER.bytes;
        let buffer = authentication.buffers.take(bytes);
        let mut data = IoSlice::from_buffer(buffer.expect("one command at a time"), bytes);
        // A controller may send less than the host has room for.
        data.bytes_mut().expect("it is exclusive").fill(0);
        let transfer = AuthenticationTransfer::message(AUTHENTICATION_BYTES);
        let mut command = FabricsCommand::AuthenticationReceive(transfer).encode(0);
        command.set_sgl(SglDescriptor::transport(AUTHENTICATION_BYTES));
        let work = Work::Admin(Box::new(command));
        let exchange = Exchange::new(JOIN_TAG, work, Direction::In, Some(data));
        let index = self.table.insert(exchange, Time::NEVER);
        self.encode_capsule_with(index, &[]);
    }
}
