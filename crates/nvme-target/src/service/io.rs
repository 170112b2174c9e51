//! Commands on I/O queues, from their arrival to a slot or an answer.
//!
//! Each is checked once, by its row of the [table](crate::command::table). Reads of a device that is
//! memory, and writes to it with their data in the capsule, are done while they are parsed: no slot,
//! no request, no copy of the data of a read. Everything else takes a slot, and continues in
//! [`requests`](super::requests).

use crate::command::blocks::{self, Admitted};
use crate::command::table::{CommandKind, Form, Row};
use crate::command::{dataset, extents};
use crate::qos::core::{CoreTokens, Done, TokenQueue};
use crate::request::Step;
use crate::service::connection::Connection;
use crate::service::core::CoreState;
use crate::service::input::Flow;
use crate::session::event::Payload;
use base::{Nanos, Time};
use qos::{PricedOperation, units};
use reactor::{Context, IoSlice};
use switch::doorbell::Urgency;
use wire::limits::NSID_BROADCAST;
use wire::nvme::io::DatasetRange;
use wire::nvme::{Command, Completion, LbaCommand, Status};

impl Connection {
    /// Begins a command of an I/O queue.
    #[inline]
    pub(crate) fn begin_io(
        &mut self,
        command: &Command,
        payload: Payload<'_>,
        core: &mut CoreState,
        cx: &mut Context<'_>,
    ) -> Flow {
        let row = Row::of(command.opcode());
        let result = match row.map(|row| row.form) {
            Some(Form::Read) => self.read(command, payload, core, cx),
            Some(Form::Write) => self.write(command, payload, core, cx),
            _ => {
                core.stores.order();
                let row = row.ok_or(Status::INVALID_OPCODE.with_dnr());
                row.and_then(|row| self.begin_row(row, command, payload, core, cx))
            }
        };
        result.unwrap_or_else(|status| {
            self.refuse(command, status, core, cx);
            Flow::Continue
        })
    }

    /// Begins a command that is never done at once.
    fn begin_row(
        &mut self,
        row: &Row,
        command: &Command,
        payload: Payload<'_>,
        core: &mut CoreState,
        cx: &mut Context<'_>,
    ) -> Result<Flow, Status> {
        if !row.is_offered(&core.limits) {
            return Err(Status::INVALID_OPCODE.with_dnr());
        }
        let nsid = command.nsid();
        if row.form == Form::Flush && nsid == NSID_BROADCAST && command.fuse() == 0 {
            let all = Admitted {
                kind: row.kind,
                nsid,
                incarnation: 0,
                run: LbaCommand::parse(command),
                bytes: 0,
            };
            return self.admit(command, &all, core, cx);
        }
        let namespace = core.namespaces.get_mut(self.access.subsystem, nsid);
        let rights = self.access.rights.as_deref();
        let (admitted, namespace) = blocks::check(row, command, rights, namespace, &core.limits)?;
        match row.form {
            Form::Blocks if admitted.bytes > core.limits.transfer_bytes => {
                self.begin_pieces(command, &admitted, core, cx)
            }
            Form::Blocks => {
                let without_data = Admitted {
                    bytes: 0,
                    ..admitted
                };
                self.admit(command, &without_data, core, cx)
            }
            Form::Flush => self.admit(command, &admitted, core, cx),
            Form::Ranges => self.begin_ranges(command, payload, &admitted, core, cx),
            Form::Extents => {
                let shift = namespace.block_shift;
                self.begin_extents(command, payload, (&admitted, shift), core, cx)
            }
            Form::Data | Form::Read | Form::Write => {
                self.with_data(command, payload, &admitted, core, cx)
            }
            Form::Controller => Err(Status::INVALID_OPCODE.with_dnr()),
        }
    }

    #[inline]
    fn read(
        &mut self,
        command: &Command,
        payload: Payload<'_>,
        core: &mut CoreState,
        cx: &mut Context<'_>,
    ) -> Result<Flow, Status> {
        let nsid = command.nsid();
        let namespace = core.namespaces.get_mut(self.access.subsystem, nsid);
        let row = CommandKind::Read.row();
        let rights = self.access.rights.as_deref();
        let (admitted, namespace) = blocks::check(row, command, rights, namespace, &core.limits)?;
        let (run, bytes) = (&admitted.run, admitted.bytes);
        blocks::check_answer(command, payload, bytes)?;
        let at_once = !self.session.output.format().data_digest
            && namespace.is_open()
            && !(run.control.fua() && namespace.has_cache());
        if at_once
            && let Some(data) = blocks::memory(namespace, run.slba, bytes)
            && (namespace.scheduler.is_none()
                || pay_at_once(self.token_queue(nsid), row.price, bytes, &mut core.tokens))
        {
            namespace.stats.reads += 1;
            namespace.stats.read_bytes += u64::from(bytes);
            namespace.latency.reads.count_at_once();
            self.placement.demand.answered += u64::from(bytes);
            self.answer_read(command.cid(), nsid, data, core, cx);
            return Ok(Flow::Continue);
        }
        self.admit(command, &admitted, core, cx)
    }

    /// Answers a read of memory with `data`.
    #[inline]
    fn answer_read(
        &mut self,
        cid: u16,
        nsid: u32,
        data: IoSlice,
        core: &mut CoreState,
        cx: &mut Context<'_>,
    ) {
        let bytes = u32::try_from(data.len()).expect("a transfer is at most 1 MiB");
        let session = &mut self.session;
        let flow_control = session.commands.flow_control;
        let completion = Completion::new(cid, session.commands.reported_head(), Status::SUCCESS);
        if session.output.make_room_last(bytes, &mut core.sends(), cx) {
            session.output.push_data(data, completion, flow_control);
            let urgency = session.output.urgency();
            self.appended(bytes, urgency, core, cx);
        } else if let Some(slot) = session.commands.take(cid, &mut core.states) {
            let entry = session.commands.slot(slot);
            entry.kind = CommandKind::Read;
            entry.nsid = nsid;
            entry.transfer.data = Some(data);
            entry.status = Some(Status::SUCCESS);
            self.answer(slot, core, cx);
        }
    }

    #[inline]
    fn write(
        &mut self,
        command: &Command,
        payload: Payload<'_>,
        core: &mut CoreState,
        cx: &mut Context<'_>,
    ) -> Result<Flow, Status> {
        let nsid = command.nsid();
        let namespace = core.namespaces.get_mut(self.access.subsystem, nsid);
        let row = CommandKind::Write.row();
        let rights = self.access.rights.as_deref();
        let (admitted, namespace) = blocks::check(row, command, rights, namespace, &core.limits)?;
        let (run, bytes) = (&admitted.run, admitted.bytes);
        let Payload::Whole(capsule, true) = payload else {
            return self.with_data(command, payload, &admitted, core, cx);
        };
        if namespace.direct.is_none() || !namespace.is_open() {
            return self.with_data(command, payload, &admitted, core, cx);
        }
        let data = command.data_pointer()?.capsule_data(capsule)?;
        if data.len() != bytes as usize {
            return Err(Status::DATA_SGL_LENGTH_INVALID.with_dnr());
        }
        if namespace.scheduler.is_some()
            && !pay_at_once(self.token_queue(nsid), row.price, bytes, &mut core.tokens)
        {
            return self.with_data(command, payload, &admitted, core, cx);
        }
        let stores = blocks::write_memory(namespace, run.slba, data)?;
        namespace.stats.writes += 1;
        namespace.stats.written_bytes += u64::from(bytes);
        namespace.latency.writes.count_at_once();
        core.stores.join(stores);
        self.placement.demand.answered += u64::from(bytes);
        let urgency = if run.control.fua() {
            Urgency::Urgent
        } else {
            self.session.output.urgency()
        };
        let sq_head = self.session.commands.reported_head();
        let completion = Completion::new(command.cid(), sq_head, Status::SUCCESS);
        self.complete(completion, urgency, core, cx);
        Ok(Flow::Continue)
    }

    /// Takes a slot for a command on a run of blocks.
    fn take(
        &mut self,
        command: &Command,
        admitted: &Admitted,
        core: &mut CoreState,
        now: Time,
    ) -> Result<u16, Status> {
        core.stores.order();
        let slot = self.begin(command, admitted, core, now)?;
        let entry = self.session.commands.slot(slot);
        entry.range.lba = admitted.run.slba;
        entry.range.blocks = admitted.run.blocks;
        entry.range.durable = admitted.run.control.fua();
        entry.range.deallocate = admitted.run.control.deallocate();
        entry.transfer.length = admitted.bytes;
        self.begin_outstanding(slot, core);
        Ok(slot)
    }

    /// Takes a slot for a command that has no data in its capsule, and lets it continue.
    #[inline]
    fn admit(
        &mut self,
        command: &Command,
        admitted: &Admitted,
        core: &mut CoreState,
        cx: &mut Context<'_>,
    ) -> Result<Flow, Status> {
        let slot = if admitted.kind == CommandKind::Flush {
            self.begin(command, admitted, core, cx.now)?
        } else {
            self.take(command, admitted, core, cx.now)?
        };
        self.run(slot, core, cx).advance(Step::Admit);
        Ok(Flow::Continue)
    }

    /// Begins a command with data from the host, which comes first.
    fn with_data(
        &mut self,
        command: &Command,
        payload: Payload<'_>,
        admitted: &Admitted,
        core: &mut CoreState,
        cx: &mut Context<'_>,
    ) -> Result<Flow, Status> {
        let inside = blocks::arrival(command.data_pointer()?, payload, admitted.bytes)?;
        let Some(inside) = inside else {
            return self.admit(command, admitted, core, cx);
        };
        // Also if the device is memory: a reader must never see half a block of what is arriving
        // (docs/design/decisions/0005-whole-blocks.md).
        let buffer = match self.capsule_buffer(admitted.bytes, core, cx) {
            Ok(buffer) => buffer,
            Err(list) => return Ok(Flow::Stall(list)),
        };
        let slot = self.take(command, admitted, core, cx.now)?;
        self.run(slot, core, cx)
            .receive_capsule(buffer, inside, payload);
        Ok(Flow::Continue)
    }

    /// Begins a command on more blocks than one request has, as a list of one range: VSL and WZSL
    /// say what is fast, not what is possible. `[NVMe NVM 1.0 §3.2.5, §3.2.8]`
    fn begin_pieces(
        &mut self,
        command: &Command,
        admitted: &Admitted,
        core: &mut CoreState,
        cx: &mut Context<'_>,
    ) -> Result<Flow, Status> {
        let run = &admitted.run;
        let range = DatasetRange {
            attributes: 0,
            blocks: run.blocks,
            slba: run.slba,
        };
        let list = range.to_bytes();
        let length = u32::try_from(list.len()).expect("16");
        let buffer = match self.capsule_buffer(length, core, cx) {
            Ok(buffer) => buffer,
            Err(list) => return Ok(Flow::Stall(list)),
        };
        let slot = self.begin(command, admitted, core, cx.now)?;
        let entry = self.session.commands.slot(slot);
        entry.range.listed = true;
        entry.range.blocks = 1;
        entry.range.durable = run.control.fua();
        entry.range.deallocate = run.control.deallocate();
        entry.transfer.length = length;
        let whole = Payload::Whole(&list, true);
        self.run(slot, core, cx)
            .receive_capsule(buffer, (0, &list), whole);
        Ok(Flow::Continue)
    }

    /// Begins a command with a list of ranges as data.
    fn begin_ranges(
        &mut self,
        command: &Command,
        payload: Payload<'_>,
        admitted: &Admitted,
        core: &mut CoreState,
        cx: &mut Context<'_>,
    ) -> Result<Flow, Status> {
        let checked = dataset::check(command, payload)?;
        let mut buffer = None;
        if checked.inside.is_some() {
            match self.capsule_buffer(checked.length, core, cx) {
                Ok(taken) => buffer = Some(taken),
                Err(list) => return Ok(Flow::Stall(list)),
            }
        }
        let slot = self.begin(command, admitted, core, cx.now)?;
        let entry = self.session.commands.slot(slot);
        entry.range.listed = true;
        entry.range.blocks = u32::from(checked.management.ranges);
        entry.range.deallocate = checked.management.deallocate;
        entry.transfer.length = checked.length;
        if let Some((buffer, inside)) = buffer.zip(checked.inside) {
            self.run(slot, core, cx)
                .receive_capsule(buffer, inside, payload);
        } else {
            self.run(slot, core, cx).advance(Step::Admit);
        }
        Ok(Flow::Continue)
    }

    /// Begins a command with a table of extents as data.
    fn begin_extents(
        &mut self,
        command: &Command,
        payload: Payload<'_>,
        (admitted, block_shift): (&Admitted, u32),
        core: &mut CoreState,
        cx: &mut Context<'_>,
    ) -> Result<Flow, Status> {
        let terms = core.limits.extent_terms();
        let terms = terms.ok_or(Status::INVALID_OPCODE.with_dnr())?;
        let checked = extents::check(command, admitted.kind, payload, &terms, block_shift)?;
        if self.holding.tables() >= u64::from(terms.in_flight) {
            core.stats.extents_in_flight_refused += 1;
            return Err(Status::COMMAND_INTERRUPTED);
        }
        if !self.holding.may_take_table(&core.limits) {
            core.stats.extent_tables_refused += 1;
            return Err(Status::COMMAND_INTERRUPTED);
        }
        // As the data of any write.
        let buffer = match self.capsule_buffer(checked.length, core, cx) {
            Ok(buffer) => buffer,
            Err(list) => return Ok(Flow::Stall(list)),
        };
        let slot = self.begin(command, admitted, core, cx.now)?;
        self.holding.take_table();
        let entry = self.session.commands.slot(slot);
        entry.extents = Some(core.tables.take(checked.command));
        entry.range.durable = checked.command.fua;
        entry.transfer.length = checked.length;
        self.run(slot, core, cx)
            .receive_capsule(buffer, checked.inside, payload);
        Ok(Flow::Continue)
    }
}

/// Pays for a read or write of memory that is about to be done at once, and counts it for its
/// tenant. Returns false if it has to wait for its tokens, or the host has no tenant.
#[inline]
fn pay_at_once(
    queue: Option<TokenQueue>,
    operation: PricedOperation,
    bytes: u32,
    tokens: &mut CoreTokens,
) -> bool {
    let Some(queue) = queue else {
        return false;
    };
    let bytes = u64::from(bytes);
    let paid = tokens.pay_at_once(queue, operation, units(bytes));
    if paid {
        let done = Done {
            operation,
            success: true,
            bytes,
            took: Nanos(0),
            device: Some(Nanos(0)),
        };
        tokens.done(queue, &done);
    }
    paid
}
