//! Commands on I/O queues, from their arrival to a slot or an answer.
//!
//! Each command is checked once, by its row of the [table](crate::command::table). Reads of memory
//! devices, and writes to them with in-capsule data, are executed during parsing: no slot, no
//! request, no copy of read data. Every other command takes a slot and continues in
//! [`requests`](super::requests).

use crate::command::blocks::{self, Admitted};
use crate::command::table::{CommandKind, Form, Row};
use crate::command::{dataset, extents};
use crate::qos::core::{CoreTokens, Done, TokenQueue};
use crate::request::Step;
use crate::service::connection::Connection;
use crate::service::input::{Arrival, NotTaken};
use crate::service::requests::Running;
use crate::session::event::Payload;
use base::Nanos;
use qos::{PricedOperation, units};
use reactor::IoSlice;
use switch::doorbell::Urgency;
use wire::limits::NSID_BROADCAST;
use wire::nvme::io::DatasetRange;
use wire::nvme::{Completion, LbaCommand, Status};

impl<'d> Arrival<'_, 'd> {
    /// Begins a command of an I/O queue.
    #[inline]
    pub(crate) fn begin_io(&mut self) -> Result<(), NotTaken> {
        let row = Row::of(self.command.opcode());
        if self.command.fuse() != 0 {
            return self.begin_half();
        }
        match row.map(|row| row.form) {
            Some(Form::Read) => self.read(),
            Some(Form::Write) => self.write(),
            Some(Form::Controller) => {
                self.core.stores.order();
                self.begin_admin()
            }
            _ => {
                self.core.stores.order();
                self.begin_row(row.ok_or(Status::INVALID_OPCODE.with_dnr())?)
            }
        }
    }

    /// Begins a command that is never executed immediately.
    fn begin_row(&mut self, row: &Row) -> Result<(), NotTaken> {
        if !row.is_offered(&self.core.limits) {
            return Err(Status::INVALID_OPCODE.with_dnr().into());
        }
        let (command, nsid) = (self.command, self.command.nsid());
        if row.form == Form::Flush && nsid == NSID_BROADCAST {
            self.check_reservations(row)?;
            return self.admit(&Admitted {
                kind: row.kind,
                nsid,
                incarnation: 0,
                run: LbaCommand::parse(command),
                bytes: 0,
                fused: None,
            });
        }
        let access = &self.connection.access;
        let namespace = self.core.namespaces.get_mut(access.subsystem, nsid);
        let (rights, limits) = (access.rights.as_deref(), &self.core.limits);
        let host = (self.connection.owner.host_id(), rights);
        let (mut admitted, namespace) = blocks::check(row, command, host, namespace, limits)?;
        match row.form {
            Form::Blocks if admitted.bytes > limits.transfer_bytes => self.begin_pieces(&admitted),
            Form::Blocks => {
                admitted.bytes = 0;
                self.admit(&admitted)
            }
            Form::Flush => self.admit(&admitted),
            Form::Ranges => self.begin_ranges(&admitted),
            Form::Extents => {
                let shift = namespace.block_shift;
                self.begin_extents(&admitted, shift)
            }
            Form::Data | Form::Read | Form::Write => self.with_data(&admitted),
            Form::Controller => Err(Status::INVALID_OPCODE.with_dnr().into()),
        }
    }

    /// Checks a Flush of all namespaces against their reservations: it would not flush what the host
    /// has written to a namespace that excludes it.
    fn check_reservations(&self, row: &Row) -> Result<(), Status> {
        let Connection { access, owner, .. } = &*self.connection;
        let all = self.core.namespaces.of(access.subsystem).iter().flatten();
        let rights = access.rights.as_ref();
        let mut seen = all.filter(|namespace| {
            rights.is_none_or(|rights| rights.check_any(namespace.shared.nsid()).is_ok())
        });
        seen.try_for_each(|namespace| blocks::check_reservation(row, owner.host_id(), namespace))
    }

    #[inline]
    fn read(&mut self) -> Result<(), NotTaken> {
        let (connection, command) = (&mut *self.connection, self.command);
        let nsid = command.nsid();
        let namespace = self
            .core
            .namespaces
            .get_mut(connection.access.subsystem, nsid);
        let row = CommandKind::Read.row();
        let host = (
            connection.owner.host_id(),
            connection.access.rights.as_deref(),
        );
        let (admitted, namespace) =
            blocks::check(row, command, host, namespace, &self.core.limits)?;
        let (run, bytes) = (&admitted.run, admitted.bytes);
        blocks::check_answer(command, self.payload, bytes)?;
        let at_once = !connection.session.output.format().data_digest
            && namespace.is_open()
            && !(run.control.fua() && namespace.has_cache());
        let (queue, tokens) = (connection.token_queue(nsid), &mut self.core.tokens);
        if at_once
            && let Some(data) = blocks::memory(namespace, run.slba, bytes)
            && (namespace.scheduler.is_none() || pay_at_once(queue, row.price, bytes, tokens))
        {
            namespace.stats.reads += 1;
            namespace.stats.read_bytes += u64::from(bytes);
            namespace.latency.reads.count_at_once();
            connection.placement.demand.answered += u64::from(bytes);
            self.answer_read(data);
            if self.core.traces.is_on() {
                self.stamp_answered(&admitted);
            }
            return Ok(());
        }
        self.admit(&admitted)
    }

    /// Answers a read of memory with `data`.
    #[inline]
    fn answer_read(&mut self, data: IoSlice) {
        let Self {
            connection,
            command,
            core,
            cx,
            ..
        } = self;
        let bytes = u32::try_from(data.len()).expect("a transfer is at most 1 MiB");
        let session = &mut connection.session;
        let flow_control = session.commands.flow_control;
        let sq_head = session.commands.reported_head();
        let completion = Completion::new(command.cid(), sq_head, Status::SUCCESS);
        if session.output.make_room_last(bytes, &mut core.sends(), cx) {
            session.output.push_data(data, completion, flow_control);
            let urgency = session.output.urgency();
            connection.appended(bytes, urgency, core, cx);
        } else if let Some(slot) = session.commands.take(command.cid(), &mut core.states) {
            let entry = session.commands.slot(slot);
            entry.kind = CommandKind::Read;
            entry.nsid = command.nsid();
            entry.transfer.data = Some(data);
            entry.status = Some(Status::SUCCESS);
            connection.answer(slot, core, cx);
        }
    }

    #[inline]
    fn write(&mut self) -> Result<(), NotTaken> {
        let (connection, command) = (&mut *self.connection, self.command);
        let nsid = command.nsid();
        let namespace = self
            .core
            .namespaces
            .get_mut(connection.access.subsystem, nsid);
        let row = CommandKind::Write.row();
        let host = (
            connection.owner.host_id(),
            connection.access.rights.as_deref(),
        );
        let (admitted, namespace) =
            blocks::check(row, command, host, namespace, &self.core.limits)?;
        let (run, bytes) = (&admitted.run, admitted.bytes);
        let Payload::Whole(capsule, true) = self.payload else {
            return self.with_data(&admitted);
        };
        let fenced = namespace.is_fenced(run.slba, run.blocks);
        if namespace.direct.is_none() || !namespace.is_open() || fenced {
            return self.with_data(&admitted);
        }
        let data = command.data_pointer()?.capsule_data(capsule)?;
        if data.len() != bytes as usize {
            return Err(Status::DATA_SGL_LENGTH_INVALID.with_dnr().into());
        }
        let (queue, tokens) = (connection.token_queue(nsid), &mut self.core.tokens);
        if namespace.scheduler.is_some() && !pay_at_once(queue, row.price, bytes, tokens) {
            return self.with_data(&admitted);
        }
        let stores = blocks::write_memory(namespace, run.slba, data)?;
        namespace.stats.writes += 1;
        namespace.stats.written_bytes += u64::from(bytes);
        namespace.latency.writes.count_at_once();
        self.core.stores.join(stores);
        connection.placement.demand.answered += u64::from(bytes);
        let urgency = if run.control.fua() {
            Urgency::Urgent
        } else {
            connection.session.output.urgency()
        };
        let sq_head = connection.session.commands.reported_head();
        let completion = Completion::new(command.cid(), sq_head, Status::SUCCESS);
        connection.complete(completion, urgency, self.core, self.cx);
        if self.core.traces.is_on() {
            self.stamp_answered(&admitted);
        }
        Ok(())
    }

    /// Takes a slot for the command, in which it waits for data or its gates.
    fn begin(&mut self, admitted: &Admitted) -> Result<Running<'_, 'd>, Status> {
        let slot = self
            .connection
            .begin(self.command, admitted, self.core, self.cx.now)?;
        self.join_pair(slot, admitted.fused);
        self.core.stamp(self.cx);
        Ok(self.connection.run(slot, self.core, self.cx))
    }

    /// Takes a slot for a command on a contiguous block range.
    fn begin_run(&mut self, admitted: &Admitted) -> Result<Running<'_, 'd>, Status> {
        self.core.stores.order();
        let mut command = self.begin(admitted)?;
        let entry = command.entry();
        entry.range.lba = admitted.run.slba;
        entry.range.blocks = admitted.run.blocks;
        entry.range.durable = admitted.run.control.fua();
        entry.range.deallocate = admitted.run.control.deallocate();
        entry.transfer.length = admitted.bytes;
        command
            .connection
            .begin_outstanding(command.slot, command.core);
        Ok(command)
    }

    /// Takes a slot for a command without in-capsule data, and continues it.
    fn admit(&mut self, admitted: &Admitted) -> Result<(), NotTaken> {
        let mut command = if admitted.kind == CommandKind::Flush {
            self.begin(admitted)?
        } else {
            self.begin_run(admitted)?
        };
        command.advance(Step::Admit);
        Ok(())
    }

    /// Begins a command whose data arrives from the host first.
    pub(super) fn with_data(&mut self, admitted: &Admitted) -> Result<(), NotTaken> {
        let payload = self.payload;
        let inside = blocks::arrival(self.command.data_pointer()?, payload, admitted.bytes)?;
        let Some(inside) = inside else {
            return self.admit(admitted);
        };
        // This applies to memory devices, too: a reader must never see half of an arriving block
        // (docs/design/decisions/0005-whole-blocks.md).
        let buffer = self.buffer(admitted.bytes)?;
        let mut command = self.begin_run(admitted)?;
        command.receive_capsule(buffer, inside, payload);
        Ok(())
    }

    /// Begins a command on more blocks than one request may have, as a list of one range: VSL and
    /// WZSL report the fast size, not a maximum. `[NVMe NVM 1.0 §3.2.5, §3.2.8]`
    fn begin_pieces(&mut self, admitted: &Admitted) -> Result<(), NotTaken> {
        let run = &admitted.run;
        let range = DatasetRange {
            attributes: 0,
            blocks: run.blocks,
            slba: run.slba,
        };
        let list = range.to_bytes();
        let length = u32::try_from(list.len()).expect("16");
        let buffer = self.buffer(length)?;
        let mut command = self.begin(admitted)?;
        let entry = command.entry();
        entry.range.listed = true;
        entry.range.blocks = 1;
        entry.range.durable = run.control.fua();
        entry.range.deallocate = run.control.deallocate();
        entry.transfer.length = length;
        command.receive_capsule(buffer, (0, &list), Payload::Whole(&list, true));
        Ok(())
    }

    /// Begins a command with a list of ranges as data.
    fn begin_ranges(&mut self, admitted: &Admitted) -> Result<(), NotTaken> {
        let payload = self.payload;
        let checked = dataset::check(self.command, payload)?;
        let buffer = match checked.inside {
            Some(inside) => Some((self.buffer(checked.length)?, inside)),
            None => None,
        };
        let mut command = self.begin(admitted)?;
        let entry = command.entry();
        entry.range.listed = true;
        entry.range.blocks = u32::from(checked.management.ranges);
        entry.range.deallocate = checked.management.deallocate;
        entry.transfer.length = checked.length;
        match buffer {
            Some((buffer, inside)) => command.receive_capsule(buffer, inside, payload),
            None => command.advance(Step::Admit),
        }
        Ok(())
    }

    /// Begins a command with a table of extents as data.
    fn begin_extents(&mut self, admitted: &Admitted, block_shift: u32) -> Result<(), NotTaken> {
        let (payload, core) = (self.payload, &mut *self.core);
        let terms = core.limits.extent_terms();
        let terms = terms.ok_or(Status::INVALID_OPCODE.with_dnr())?;
        let checked = extents::check(self.command, admitted.kind, payload, &terms, block_shift)?;
        let holding = &self.connection.holding;
        if holding.tables() >= u64::from(terms.in_flight) {
            core.stats.extents_in_flight_refused += 1;
            return Err(Status::COMMAND_INTERRUPTED.into());
        }
        if !holding.may_take_table(&core.limits) {
            core.stats.extent_tables_refused += 1;
            return Err(Status::COMMAND_INTERRUPTED.into());
        }
        let buffer = self.buffer(checked.length)?;
        let mut command = self.begin(admitted)?;
        command.connection.holding.take_table();
        let table = command.core.tables.take(checked.command);
        let entry = command.entry();
        entry.extents = Some(table);
        entry.range.durable = checked.command.fua;
        entry.transfer.length = checked.length;
        command.receive_capsule(buffer, checked.inside, payload);
        Ok(())
    }
}

/// Pays for a read or write of memory that is about to be executed immediately, and counts it for
/// its tenant. Returns false if it has to wait for its tokens, or if the host has no tenant.
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
