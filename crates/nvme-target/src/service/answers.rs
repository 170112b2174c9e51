//! Answers, R2Ts and asynchronous events, and prioritised processing of ready output. `[NVMe-TCP
//! 1.0 §3.3.2.1, blk-switch §3.1]`
//!
//! A command whose answer finds no space in the send lists waits; `resume_output` sends waiting
//! answers in order. While `Latency` work is active, a turn sends all ready `Latency` output and
//! then at most one quantum of `Throughput`: input that arrives in the meantime is processed before
//! the next quantum. Otherwise all output leaves in the order in which it became ready.

use crate::command::table::{CommandKind, Row};
use crate::request::CommandState;
use crate::service::connection::{Connection, Owner};
use crate::service::connection_state::ConnectionState;
use crate::service::core::CoreState;
use crate::service::poll_group::PollGroup;
use crate::session::output::Unsent;
use base::SlabKey;
use base::mutation::{self, Mutation};
use qos::PricedOperation;
use reactor::{BufferPool, Context, IoSlice};
use switch::doorbell::Urgency;
use switch::{Class, PerClass};
use wire::nvme::log_page::ErrorEntry;
use wire::nvme::{Command, Completion, Status};
use wire::tcp::{DataAlignment, IcResp};

/// CRD value that selects CRDT1, the only retry delay that Identify reports.
const RETRY_DELAY: u8 = 1;

impl Connection {
    /// Returns a status as sent to the host: an interrupted command gets a retry delay if the host
    /// has enabled such delays; without a delay, hosts retry at once. `[NVMe Base 2.0 §3.3.3.2.1,
    /// §5.27.1.18]`
    #[inline]
    pub(crate) fn with_retry_delay(&self, status: Status) -> Status {
        let delays = || {
            let controller = self.controller();
            controller.is_some_and(|controller| controller.queues().behavior.acre == 1)
        };
        if status == Status::COMMAND_INTERRUPTED && delays() {
            return status.with_crd(RETRY_DELAY);
        }
        status
    }

    /// Answers ICReq, or queues the answer until there is space.
    pub(crate) fn answer_ic_req(&mut self, core: &mut CoreState, cx: &mut Context<'_>) {
        let output = &mut self.session.output;
        if output.make_room_last(0, &mut core.sends(), cx) {
            self.push_ic_resp(core, cx);
        } else {
            output.wait(Unsent::IcResp, &mut core.sends());
        }
    }

    /// Appends ICResp with the session's terms; the caller has checked the space. `[NVMe-TCP 1.0
    /// §3.3.1]`
    fn push_ic_resp(&mut self, core: &mut CoreState, cx: &Context<'_>) {
        let format = self.session.output.format();
        let response = IcResp {
            controller_alignment: DataAlignment::DWORD,
            header_digest: format.header_digest,
            data_digest: format.data_digest,
            max_h2c_data: core.limits.h2c_data_bytes,
        };
        self.session.output.push_bytes(&response.to_bytes());
        self.appended(0, Urgency::Urgent, core, cx);
    }

    /// Answers a command without a slot with an error.
    #[cold]
    pub(crate) fn refuse(
        &mut self,
        command: &Command,
        status: Status,
        core: &mut CoreState,
        cx: &mut Context<'_>,
    ) {
        let (cid, nsid) = (command.cid(), command.nsid());
        let status = self.with_retry_delay(status);
        self.log_error(cid, nsid, command.opcode(), status);
        if matches!(self.owner, Owner::Io(_))
            && let Some(namespace) = core.namespace(self.access.subsystem, nsid)
        {
            let stats = &mut namespace.stats;
            match Row::of(command.opcode()).map(|row| row.price) {
                Some(PricedOperation::Read) => stats.read_errors += 1,
                Some(PricedOperation::Write) => stats.write_errors += 1,
                Some(PricedOperation::Flush) => stats.flush_errors += 1,
                _ => stats.other_errors += 1,
            }
        }
        self.respond(cid, status, 0, core, cx);
    }

    /// Answers a command without a slot; the answer leaves soon.
    pub(crate) fn respond(
        &mut self,
        cid: u16,
        status: Status,
        result: u64,
        core: &mut CoreState,
        cx: &mut Context<'_>,
    ) {
        let sq_head = self.session.commands.reported_head();
        let completion = Completion {
            result,
            ..Completion::new(cid, sq_head, status)
        };
        self.complete(completion, Urgency::Urgent, core, cx);
    }

    /// Answers a command that has no slot and no data to send.
    #[inline]
    pub(crate) fn complete(
        &mut self,
        completion: Completion,
        urgency: Urgency,
        core: &mut CoreState,
        cx: &mut Context<'_>,
    ) {
        if self.session.output.make_room_last(0, &mut core.sends(), cx) {
            self.session.output.push_completion(completion);
            self.appended(0, urgency, core, cx);
            return;
        }
        // There is always a free slot: the queue's depth was checked when the command arrived.
        let commands = &mut self.session.commands;
        if let Some(slot) = commands.take(completion.cid, &mut core.states) {
            let entry = commands.slot(slot);
            (entry.status, entry.result) = (Some(completion.status), completion.result);
            self.answer(slot, core, cx);
        }
    }

    /// Adds an error to the controller's error log.
    pub(crate) fn log_error(&self, cid: u16, nsid: u32, opcode: u8, status: Status) {
        let Some(controller) = self.controller() else {
            return;
        };
        controller.log_error(ErrorEntry {
            sq_id: self.session.commands.id,
            cid,
            status_field: status.0 << 1,
            parameter_location: 0xffff,
            nsid,
            opcode,
            trtype: transport_of(status),
            ..ErrorEntry::default()
        });
    }

    /// Sends the R2Ts of a command up to its limit of outstanding ones; none once the session is
    /// terminating, which may have begun while the command waited.
    pub(crate) fn send_r2ts(&mut self, slot: u16, core: &mut CoreState, cx: &mut Context<'_>) {
        // Each data PDU calls this; an R2T that already waits is the next one.
        let waits = self.session.commands.slot(slot).transfer.r2t_waits;
        if waits || !self.answers() {
            return;
        }
        while self.session.has_r2t(slot) {
            let output = &mut self.session.output;
            if !output.make_room(0, &mut core.sends(), cx) {
                output.wait(Unsent::OfSlot(slot), &mut core.sends());
                self.session.commands.slot(slot).transfer.r2t_waits = true;
                return;
            }
            let Some(r2t) = self.session.next_r2t(slot) else {
                return;
            };
            self.session.output.push_r2t(r2t);
            self.appended(0, Urgency::Urgent, core, cx);
            core.stats.r2ts += 1;
        }
    }

    /// Sends the answer of a completed command, or lets it wait for space.
    pub(crate) fn answer(&mut self, slot: u16, core: &mut CoreState, cx: &mut Context<'_>) {
        let entry = self.session.commands.slot(slot);
        let (bytes, pdus) = (entry.answer_bytes(), entry.answer_pdus());
        let output = &mut self.session.output;
        let first = output.waiting.is_empty();
        if first && output.make_room_for(bytes, pdus, &mut core.sends(), cx) {
            self.push_answer(slot, core, cx);
            return;
        }
        output.wait(Unsent::OfSlot(slot), &mut core.sends());
        let entry = self.session.commands.slot(slot);
        entry.enter(CommandState::Answering, &mut core.states);
    }

    /// Appends the answer of a command; the caller has checked the space.
    fn push_answer(&mut self, slot: u16, core: &mut CoreState, cx: &Context<'_>) {
        self.stamp_answer(slot, core);
        let commands = &mut self.session.commands;
        let bytes = commands.slot(slot).answer_bytes();
        let announced = commands.take_announcement();
        let sq_head = announced.unwrap_or(commands.reported_head());
        let flow_control = commands.flow_control;
        let entry = commands.slot(slot);
        let status = entry.status.unwrap_or(Status::INTERNAL_ERROR);
        let completion = Completion {
            result: entry.result,
            sq_head,
            sq_id: 0,
            cid: entry.cid,
            status,
        };
        let kind = entry.kind;
        let waits =
            !entry.range.durable && !matches!(kind, CommandKind::Flush | CommandKind::Admin);
        let output = &mut self.session.output;
        let sent = entry.extents_sent();
        if let Some(table) = entry.extents.as_mut().filter(|_| bytes > 0) {
            let held = std::mem::take(&mut entry.transfer.held_bytes);
            output.push_extents(table.take_data().take(sent), completion, flow_control);
            output.hold(held);
            self.free(slot, core);
            let urgency = if waits {
                self.session.output.urgency()
            } else {
                Urgency::Urgent
            };
            self.appended(bytes, urgency, core, cx);
            return;
        }
        match entry.transfer.data.take().filter(|_| bytes > 0) {
            Some(mut data) => {
                if mutation::active(Mutation::ReadCutShort) && data.len() > 4096 {
                    let at = data.offset();
                    data = IoSlice::new(data.into_memory(), at, 4096);
                }
                let held = std::mem::take(&mut entry.transfer.held_bytes);
                output.push_data(data, completion, flow_control);
                output.hold(held);
            }
            None if drops(kind, entry.cid) => {}
            None => output.push_completion(completion),
        }
        if mutation::active(Mutation::AnsweredTwice) && kind == CommandKind::Flush {
            output.push_completion(completion);
        }
        self.free(slot, core);
        let urgency = if waits && status.is_success() {
            self.session.output.urgency()
        } else {
            Urgency::Urgent
        };
        self.appended(bytes, urgency, core, cx);
    }

    /// Sends output that waited for space. Nothing follows a termination request. `[NVMe-TCP 1.0
    /// §3.6.2.5]`
    pub(crate) fn resume_output(&mut self, core: &mut CoreState, cx: &mut Context<'_>) {
        if !self.answers() {
            return;
        }
        while let Some(&unsent) = self.session.output.waiting.front() {
            let entry = match unsent {
                Unsent::IcResp => None,
                Unsent::OfSlot(slot) => self.session.commands.get(slot),
            };
            let state = entry
                .as_ref()
                .map_or(CommandState::Free, |entry| entry.state());
            let (bytes, pdus) = match entry {
                Some(entry) if state == CommandState::Answering => {
                    (entry.answer_bytes(), entry.answer_pdus())
                }
                _ => (0, 1),
            };
            let output = &mut self.session.output;
            if !output.make_room_for(bytes, pdus, &mut core.sends(), cx) {
                return;
            }
            output.waiting.pop_front();
            match (unsent, state) {
                (Unsent::IcResp, _) => self.push_ic_resp(core, cx),
                (Unsent::OfSlot(slot), CommandState::Answering) => {
                    self.push_answer(slot, core, cx);
                }
                (Unsent::OfSlot(slot), CommandState::Transferring) => {
                    self.session.commands.slot(slot).transfer.r2t_waits = false;
                    self.send_r2ts(slot, core, cx);
                }
                (Unsent::OfSlot(_), _) => {}
            }
        }
    }

    /// Completes Asynchronous Event Requests with pending events.
    pub(crate) fn deliver_events(&mut self, core: &mut CoreState, cx: &mut Context<'_>) {
        while self.answers()
            && let Owner::Admin(controller) = &mut self.owner
            && let Some((cid, event)) = controller.events.next()
        {
            let result = u64::from(event.to_dword());
            self.respond(cid, Status::SUCCESS, result, core, cx);
        }
    }
}

/// Returns the TRTYPE of an error; 0 if the error is not related to the transport. `[NVMe Base 2.0
/// §5.16.1.2]`
fn transport_of(status: Status) -> u8 {
    if status.is(Status::TRANSIENT_TRANSPORT_ERROR) {
        wire::fabrics::DiscoveryLogEntry::TRTYPE_TCP
    } else {
        0
    }
}

/// Returns true if a deliberate mutation drops the answer to a command.
#[inline]
fn drops(kind: CommandKind, cid: u16) -> bool {
    mutation::active(Mutation::AnswerDropped) && kind == CommandKind::Compare && cid % 8 == 7
}

/// Returns a buffer of a pool for data of exactly this length, and the size of the whole buffer in
/// bytes; `None` if none is free.
pub(crate) fn take_buffer(pool: &BufferPool, length: usize) -> Option<(IoSlice, u32)> {
    let buffer = pool.take(length)?;
    let bytes = u32::try_from(buffer.len()).expect("a buffer is less than 4 GiB");
    Some((IoSlice::from_buffer(buffer, length), bytes))
}

impl PollGroup {
    /// Sends the output that is ready.
    pub(super) fn run_output(&mut self, cx: &mut Context<'_>) {
        self.run_doorbells(cx);
        // A connection that becomes ready during this loop is served in the next turn.
        let mut left = PerClass::from_fn(|class| self.core.switch.ready[class].len());
        if !self.core.switch.prioritises(cx.now) {
            for class in Class::ALL {
                while self.next_ready(class, &mut left, cx).is_some() {}
            }
            return;
        }
        loop {
            // The scheduler owes a class only if both classes wait; otherwise the exact time does
            // not matter.
            let all_wait = left.iter().all(|(_, &count)| count > 0);
            let now = if all_wait { cx.driver.now() } else { cx.now };
            let backlog = left.map(|count| if count > 0 { u64::MAX } else { 0 });
            let Some(grant) = self.core.switch.send.next(now, &backlog) else {
                return;
            };
            let mut bytes = 0;
            while bytes < grant.bytes
                && let Some(sent) = self.next_ready(grant.class, &mut left, cx)
            {
                bytes += sent;
            }
            let now = if all_wait { cx.driver.now() } else { now };
            self.core.switch.send.served(now, bytes);
            if grant.class.properties().may_wait {
                self.core.switch.note_bulk(bytes);
                if !grant.by_floor {
                    return;
                }
            }
        }
    }

    /// Sends on the next connection of a class. Returns the number of bytes.
    fn next_ready(
        &mut self,
        class: Class,
        left: &mut PerClass<usize>,
        cx: &mut Context<'_>,
    ) -> Option<u64> {
        left[class] = left[class].checked_sub(1)?;
        let key = self.core.switch.ready[class].pop_front()?;
        Some(self.send_on(key, cx))
    }

    /// Sends the queued output of one connection. Returns the number of bytes.
    fn send_on(&mut self, key: SlabKey, cx: &mut Context<'_>) -> u64 {
        let Some(connection) = self.connections.get_mut(key) else {
            return 0;
        };
        connection.session.output.unmark();
        if connection.state() >= ConnectionState::Closing {
            return 0;
        }
        if !connection.session.output.waiting.is_empty() {
            connection.resume_output(&mut self.core, cx);
        }
        let bytes = connection.session.output.flush(&mut self.core.sends(), cx);
        if connection.session.output.lacks_list() {
            connection
                .session
                .output
                .wait_for_list(&mut self.core.sends());
        }
        if connection.session.output.is_sending() {
            let since = connection.session.output.pace().slow_since();
            let deadline = since + self.core.limits.stall_timeout;
            connection.arm(&mut self.core, deadline);
        }
        bytes as u64
    }

    /// Rings the doorbells that are due.
    fn run_doorbells(&mut self, cx: &Context<'_>) {
        while let Some(key) = self.core.switch.held.pop_due(cx.now) {
            if let Some(connection) = self.connections.get_mut(key) {
                connection
                    .session
                    .output
                    .look_at_doorbell(&mut self.core.sends(), cx.now);
            }
        }
    }
}
