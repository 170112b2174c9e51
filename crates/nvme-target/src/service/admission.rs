//! Admission of a command to its device: its namespace's gate, its tokens, and its buffer or share of
//! the device work, in that order. What it lacks it waits for, holding nothing that others need.

use crate::command::table::CommandKind;
use crate::command::{cost, dataset};
use crate::namespace::CoreNamespace;
use crate::qos::core::Priced;
use crate::request::{CommandState, Step};
use crate::service::answers::take_buffer;
use crate::service::requests::{Resolved, Running};
use crate::service::wait_lists::WaitsFor;
use crate::shares::{Share, WORK_PART};
use base::mutation::{self, Mutation};
use qos::PricedOperation;
use wire::limits::NSID_BROADCAST;
use wire::nvme::Status;

impl Running<'_, '_> {
    /// Passes the command through its gates: its namespace, which must be open and still the one
    /// that it was checked against, and the tokens.
    pub(super) fn admit(&mut self) -> Step {
        let entry = self.entry();
        debug_assert_eq!(
            entry.state(),
            CommandState::Dispatched,
            "gates are for dispatched commands"
        );
        if entry.nsid == NSID_BROADCAST {
            return self.admit_to_all();
        }
        if entry.fused.is_some()
            && let Some(step) = self.wait_for_first()
        {
            return step;
        }
        let Resolved {
            entry, namespace, ..
        } = self.resolve();
        // The identifier may belong to another namespace since the command was checked.
        let incarnation = entry.accounting.incarnation;
        let Some(namespace) = namespace.filter(|n| n.incarnation == incarnation) else {
            return Step::Answer(Status::INVALID_NAMESPACE.with_dnr());
        };
        if !namespace.is_open() && !mutation::active(Mutation::PauseIgnored) {
            return Step::WaitForNamespace(entry.nsid);
        }
        // The state of its ANA group may have changed while the command waited.
        if let Err(status) = namespace.check_access() {
            return Step::Answer(status);
        }
        // The namespace may have shrunk while the command waited.
        let fits = entry.extents.as_deref().map_or_else(
            || namespace.contains(entry.range.lba, u64::from(entry.range.blocks)),
            |table| table.end() <= namespace.blocks,
        );
        if !entry.has_parts() && !fits {
            return Step::Answer(Status::LBA_OUT_OF_RANGE.with_dnr());
        }
        if namespace.scheduler.is_some() && !entry.accounting.paid {
            // Not in flight yet, so a pause of the namespace never waits for tokens.
            return self.pay();
        }
        namespace.in_flight += 1;
        entry.accounting.in_flight = true;
        Step::Prepare
    }

    /// Lets the command wait for its tokens. `[ReFlex §3.2]`
    fn pay(&mut self) -> Step {
        let unscheduled = self.core.unscheduled;
        let Resolved {
            entry,
            namespace,
            limits,
            ..
        } = self.resolve();
        if entry.range.listed && entry.transfer.received < entry.transfer.length {
            // The data determines the price; until it has arrived, the namespace is not involved.
            return Step::Prepare;
        }
        if unscheduled {
            entry.accounting.paid = true;
            return Step::Admit;
        }
        dataset::clip(entry, limits);
        let namespace = namespace.as_deref();
        let shape = namespace.map(|namespace| (namespace.block_shift, namespace.thin));
        let (shift, thin) = shape.unwrap_or((0, true));
        entry.range.pays_flush =
            entry.range.durable && namespace.is_some_and(CoreNamespace::has_cache);
        entry.parts.paid_blocks = dataset::blocks_to_pay(entry, shift, limits);
        let (operation, units) = cost::of(entry, shift, thin);
        self.wait_for_tokens(operation, units)
    }

    /// Makes the command pass its gates again to pay for its next part. A pause does not wait for
    /// this.
    pub(super) fn pay_again(&mut self) -> Step {
        let Resolved {
            entry,
            namespace,
            states,
            ..
        } = self.resolve();
        (entry.accounting.paid, entry.parts.paid_blocks) = (false, None);
        entry.enter(CommandState::Dispatched, states);
        if std::mem::take(&mut entry.accounting.in_flight)
            && let Some(namespace) = namespace
        {
            namespace.end_flight();
        }
        Step::Admit
    }

    /// Pays for each namespace of a Flush of all namespaces, one by one; a paused namespace delays
    /// the command only when its turn comes.
    fn admit_to_all(&mut self) -> Step {
        let entry = self.entry();
        if entry.accounting.paid {
            // The command waited for a paused namespace.
            return Step::Execute;
        }
        let (begin, kind) = (entry.parts.next, entry.kind);
        let subsystem = self.connection.access.subsystem;
        let mut scheduled = self.core.scheduled(subsystem);
        if kind == CommandKind::Shutdown {
            // A host that shuts down pays only where there is data to flush, and waits nowhere
            // else.
            scheduled.retain(|&(nsid, _)| {
                let namespace = self.core.namespaces.get(subsystem, nsid);
                namespace.is_some_and(CoreNamespace::has_cache)
            });
        }
        let connection = &*self.connection;
        let rights = connection.access.rights.as_deref();
        let mut paying = scheduled
            .into_iter()
            .map(|(nsid, _)| nsid)
            .filter(|&nsid| nsid > begin)
            .filter(|&nsid| connection.token_queue(nsid).is_some())
            .filter(|&nsid| rights.is_none_or(|rights| rights.check_any(nsid).is_ok()));
        let next = paying.next().filter(|_| !self.core.unscheduled);
        let entry = self.entry();
        let Some(nsid) = next else {
            entry.parts.next = 0;
            entry.accounting.paid = true;
            return Step::Execute;
        };
        entry.parts.next = nsid - 1;
        self.wait_for_tokens(PricedOperation::Flush, 1)
    }

    /// Lets the command wait for tokens of its tenant. The status is Access Denied without a
    /// tenant, and one that requests a retry if the tenant was removed at this moment.
    pub(super) fn wait_for_tokens(&mut self, operation: PricedOperation, units: u32) -> Step {
        let priced = Priced {
            operation,
            units,
            ticket: self.connection.ticket(self.slot),
        };
        let paying = self.entry().paying_namespace();
        for _ in 0..2 {
            let Some(queue) = self.connection.token_queue(paying) else {
                return Step::Answer(Status::ACCESS_DENIED.with_dnr());
            };
            if let Ok(number) = self.core.tokens.enqueue(queue, priced) {
                self.entry().order.line = number;
                self.enter(CommandState::WaitingForTokens);
                return Step::Wait;
            }
            self.connection.assign_token_queues(self.core);
        }
        Step::Answer(Status::COMMAND_INTERRUPTED)
    }

    /// Acquires the resources that the command needs before execution: a buffer and its data, or
    /// its share of the device work without buffers.
    pub(super) fn prepare(&mut self) -> Step {
        let entry = self.entry();
        let transfer = &entry.transfer;
        let asks = entry.kind.takes_data() && transfer.received < transfer.length;
        let has_room = self.get_buffer(asks) && (asks || self.get_work());
        if !has_room {
            return Step::Wait;
        }
        if self.entry().state() == CommandState::WaitingForBuffer {
            self.enter(CommandState::Dispatched);
        }
        if asks {
            self.request_data();
            Step::Wait
        } else {
            Step::Execute
        }
    }

    /// Acquires a buffer for the command if it needs one. Returns false if the command waits for
    /// it.
    fn get_buffer(&mut self, asks: bool) -> bool {
        let digests = self.connection.session.output.format().data_digest;
        let Resolved {
            entry, namespace, ..
        } = self.resolve();
        let (reads, length) = (entry.kind.sends_data(), entry.transfer.length);
        let needs = entry.transfer.data.is_none() && length > 0 && (asks || reads);
        if !needs {
            return true;
        }
        let memory = namespace.is_some_and(|namespace| namespace.direct.is_some());
        entry.transfer.direct = memory && !digests && reads;
        if entry.transfer.direct {
            return true;
        }
        let (limits, pool) = (&self.core.limits, self.cx.driver.buffers());
        let holding = &self.connection.holding;
        let entry = self.connection.session.commands.slot(self.slot);
        // Each extent of a read has its own buffer.
        let table = entry.extents.as_deref();
        let (largest, share) = match table.filter(|_| reads) {
            Some(table) => (
                table.lengths().max().unwrap_or_default(),
                holding.may_take_all(table.lengths(), pool, limits),
            ),
            None => (
                length as usize,
                holding.may_take(length as usize, pool, limits),
            ),
        };
        let second = entry.is_second_half();
        if let Err(share) = share {
            if second && self.take_kept_buffer(largest) {
                return true;
            }
            self.wait_for_share(share);
            return false;
        }
        let turn = self.core.waiters.may_take(largest, pool);
        let connection = &mut *self.connection;
        if let Err(list) = turn.and_then(|()| connection.take_buffers(self.slot, largest, pool)) {
            if second && self.take_kept_buffer(largest) {
                return true;
            }
            self.wait_in(if second { WaitsFor::SHARE } else { list });
            self.core.stats.buffer_waits += 1;
            return false;
        }
        true
    }

    /// Takes a buffer outside of the pool for a second half, because all of the pool may be held by
    /// first halves.
    fn take_kept_buffer(&mut self, length: usize) -> bool {
        let buffer = take_buffer(&self.core.capsule_buffers, length);
        let taken = buffer.is_some();
        if let Some((data, _)) = buffer {
            self.entry().transfer.data = Some(data);
        }
        taken
    }

    /// Charges the device work of a command without a buffer. Returns false if the command waits
    /// for its share of such work; in the device, it would delay other commands.
    fn get_work(&mut self) -> bool {
        let entry = self.entry();
        if entry.accounting.works || !entry.works_without_buffer() {
            return true;
        }
        let all = self.cx.driver.buffers().bytes().0;
        let Resolved {
            entry, namespace, ..
        } = self.resolve();
        if entry.transfer.work_bytes == 0 {
            let shift = namespace.map_or(0, |namespace| namespace.block_shift);
            let most = (all / WORK_PART) as u64;
            let bytes = cost::bytes_without_buffer(entry, shift).min(most);
            entry.transfer.work_bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        }
        let bytes = u64::from(entry.transfer.work_bytes);
        if bytes == 0 {
            return true;
        }
        let (limits, pool) = (&self.core.limits, self.cx.driver.buffers());
        if let Err(share) = self.connection.holding.may_work(bytes, pool, limits) {
            self.wait_for_share(share);
            return false;
        }
        self.connection.begin_work(self.slot);
        true
    }

    /// Lets the command wait for a share that is used up.
    fn wait_for_share(&mut self, share: Share) {
        if self.entry().state() != CommandState::WaitingForBuffer {
            share.count(&mut self.core.stats);
        }
        self.wait_in(WaitsFor::SHARE);
    }

    /// Lets the command wait in a list.
    fn wait_in(&mut self, list: WaitsFor) {
        if self.entry().state() != CommandState::WaitingForBuffer {
            self.enter(CommandState::WaitingForBuffer);
        }
        let ticket = self.connection.ticket(self.slot);
        self.entry().order.waits = self.core.waiters.lists.push(list, ticket);
    }
}
