//! Steps of a configuration change on a core, and removals and revocations until they are complete
//! on it.
//!
//! The answer to a read of device memory points into that memory until it is sent. A change that
//! withdraws the memory from a host waits for such answers as for commands in flight. It closes the
//! connections of hosts that do not read their answers in time, because the memory may be given to
//! another host next.

use crate::change::ack::Pausing;
use crate::change::step::{AfterPause, ChangeStep, Holder, Withdrawal};
use crate::fences::DeviceId;
use crate::limits::NAMESPACES_MAX;
use crate::namespace::{CoreNamespace, CoreSubsystem, Gate, Namespace};
use crate::service::connection::{Connection, Owner};
use crate::service::connection_state::ConnectionState;
use crate::service::core::CoreState;
use crate::service::fences::fenced_block;
use crate::service::poll_group::PollGroup;
use crate::shares::Purpose;
use base::mutation::{self, Mutation};
use base::{SlabKey, Time};
use block::Direct;
use reactor::{Context, PollPolicy};
use std::sync::Arc;
use switch::Knobs;
use switch::knobs::Polling;

impl PollGroup {
    /// Executes the steps of a change.
    pub(super) fn change(&mut self, steps: Vec<ChangeStep>, debt: Pausing, cx: &mut Context<'_>) {
        if !self.accepting {
            // The first change is the whole configuration: no host may connect before it is known.
            self.start_accepting(cx);
        }
        let mut debt = Some(debt);
        for step in steps {
            let result = match step {
                ChangeStep::AddSubsystem(subsystem) => {
                    let index = subsystem.index as usize;
                    let len = self.core.namespaces.subsystems.len().max(index + 1);
                    self.core.namespaces.subsystems.resize_with(len, || None);
                    self.core.namespaces.subsystems[index] = Some(CoreSubsystem {
                        namespaces: Vec::new(),
                        removing: None,
                    });
                    Ok(())
                }
                ChangeStep::RemoveSubsystem(index) => {
                    self.remove_subsystem(index, &mut debt, cx);
                    Ok(())
                }
                ChangeStep::AddNamespace(subsystem, namespace) => {
                    self.add_namespace(subsystem, namespace, cx)
                }
                ChangeStep::Pause(subsystem, nsid) => {
                    self.pause(subsystem, nsid, &mut debt, cx.now);
                    Ok(())
                }
                ChangeStep::Resume(subsystem, nsid, after) => {
                    self.resume(subsystem, nsid, after, &mut debt, cx)
                }
                ChangeStep::Reserve(subsystem, nsid) => {
                    self.reserve(subsystem, nsid);
                    Ok(())
                }
                ChangeStep::AskRules => {
                    self.ask_rules(&mut debt, cx);
                    Ok(())
                }
                ChangeStep::SetKnobs(knobs) => {
                    self.set_knobs(*knobs, cx);
                    Ok(())
                }
                ChangeStep::Listen(new) => {
                    self.listen(&new, cx);
                    Ok(())
                }
                ChangeStep::CloseListener(address) => {
                    self.close_listener(address, cx);
                    Ok(())
                }
            };
            if let (Err(error), Some(debt)) = (result, &mut debt) {
                debt.fail(error);
            }
        }
    }

    /// Applies the current rules to all connections, from the next command on; answers made under
    /// the former rules are sent first.
    fn ask_rules(&mut self, debt: &mut Option<Pausing>, cx: &mut Context<'_>) {
        if mutation::active(Mutation::RightsNotAsked) {
            return;
        }
        let rules = self.core.shared.rules();
        let mut restricted = Vec::new();
        for (key, connection) in self.connections.iter_mut() {
            match &mut connection.owner {
                Owner::Io(controller) => {
                    let decision = controller.decide_from(&rules, connection.peer.ip());
                    let rights = decision.rights();
                    if rights.is_some()
                        && rights != connection.access.rights
                        && Self::has_memory(&self.core, connection)
                    {
                        restricted.push(key);
                    }
                    connection.access.rights = rights;
                    connection.set_purpose(Purpose::Data, &mut self.core);
                }
                Owner::Admin(controller) => {
                    let rights = controller.shared.decide(&rules).rights();
                    controller.set_rights(rights);
                    if controller.is_outdated() {
                        connection.close(&mut self.core, cx);
                    } else {
                        connection.deliver_events(&mut self.core, cx);
                    }
                }
                Owner::None => {}
            }
        }
        self.assign_token_queues();
        self.revoke(restricted.into_iter(), debt, cx);
    }

    /// Applies new knobs.
    fn set_knobs(&mut self, knobs: Knobs, cx: &mut Context<'_>) {
        self.core.switch.set_knobs(knobs);
        cx.driver.set_service(&knobs.service());
        let mode = self.core.switch.knobs().answer_doorbell();
        for (_, connection) in self.connections.iter_mut() {
            if connection.state() == ConnectionState::Live
                && connection.session.output.class().is_some()
            {
                connection
                    .session
                    .output
                    .set_mode(mode, &mut self.core.sends());
            }
        }
        self.polls = Some(match knobs.polling {
            Polling::Adaptive => PollPolicy::Auto,
            Polling::Always => PollPolicy::Always,
            Polling::Never => PollPolicy::Never,
        });
        let range = self.core.shared.threads.range(&knobs);
        self.set_thread_range(range, cx.now);
    }

    fn remove_subsystem(&mut self, index: u32, debt: &mut Option<Pausing>, cx: &mut Context<'_>) {
        let slot = self
            .core
            .namespaces
            .subsystems
            .get_mut(index as usize)
            .and_then(Option::as_mut);
        let Some(subsystem) = slot else { return };
        subsystem.removing = debt.take();
        for (_, connection) in self.connections.iter_mut() {
            if connection.access.subsystem == index {
                connection.drain(&mut self.core, cx);
            }
        }
        self.finish_removal(index, cx);
    }

    fn add_namespace(
        &mut self,
        subsystem: u32,
        shared: Arc<Namespace>,
        cx: &mut Context<'_>,
    ) -> Result<(), String> {
        let nsid = shared.nsid();
        assert!(
            (1..=NAMESPACES_MAX).contains(&nsid),
            "the target checked the identifier"
        );
        let transfer = self.core.limits.transfer_bytes;
        let slot = self.core.namespaces.subsystems.get(subsystem as usize);
        if slot.is_none_or(Option::is_none) {
            return Err("the subsystem was removed".to_owned());
        }
        if self.core.namespace_ref(subsystem, nsid).is_some() {
            return Err(format!(
                "the previous namespace {nsid} is still being removed: its device has outstanding \
                 requests"
            ));
        }
        let mut opened = CoreNamespace::open(shared, cx.driver)
            .map_err(|error| format!("cannot open namespace {nsid}: {error}"))?;
        if opened.device_transfer_bytes < transfer {
            let most = opened.device_transfer_bytes;
            self.core.namespaces.close(opened.channel, cx);
            return Err(format!(
                "namespace {nsid}: transfer_bytes is {transfer}, but the device supports at most \
                 {most} bytes per request; lower transfer_bytes"
            ));
        }
        if let Some(qos) = &opened.shared.options.qos {
            match self.core.tokens.open(qos) {
                Ok(scheduler) => opened.scheduler = Some(scheduler),
                Err(error) => {
                    self.core.namespaces.close(opened.channel, cx);
                    return Err(format!("namespace {nsid}: {error}"));
                }
            }
        }
        opened.fence = fenced_block(&self.fences, DeviceId::of(&opened));
        // Before the identifier refers to the new namespace here: nothing that refers to another
        // volume by it may follow.
        for (_, connection) in self.connections.iter_mut() {
            if connection.controller().is_some_and(|c| c.is_superseded()) {
                connection.close(&mut self.core, cx);
            }
        }
        let slot = &mut self.core.namespaces.subsystems[subsystem as usize];
        let slot = slot.as_mut().expect("looked up above");
        let len = slot.namespaces.len().max(nsid as usize);
        slot.namespaces.resize_with(len, || None);
        slot.namespaces[nsid as usize - 1] = Some(opened);
        self.core.namespaces.activate(subsystem, nsid);
        self.assign_token_queues();
        Ok(())
    }

    fn pause(&mut self, subsystem: u32, nsid: u32, debt: &mut Option<Pausing>, now: Time) {
        let Some(namespace) = self.core.namespace(subsystem, nsid) else {
            return;
        };
        namespace.gate = match debt.take() {
            Some(debt) if !namespace.is_quiet() => Gate::Pausing { debt },
            _ => Gate::Paused,
        };
        self.put_back(subsystem, nsid);
        for (_, connection) in self.connections.iter_mut() {
            if connection.access.subsystem == subsystem {
                connection.leave_flight(nsid, &mut self.core);
                connection.hurry(nsid, &mut self.core, now);
            }
        }
    }

    /// Applies the current reservation of a namespace. Commands that wait for room in its device
    /// pass their gates again.
    fn reserve(&mut self, subsystem: u32, nsid: u32) {
        let Some(namespace) = self.core.namespace(subsystem, nsid) else {
            return;
        };
        namespace.exclusion = namespace.shared.reservations().exclusion();
        self.put_back(subsystem, nsid);
        if let Some(namespace) = self.core.namespace(subsystem, nsid)
            && namespace.is_open()
        {
            let waiting = std::mem::take(&mut namespace.waiting);
            self.core.waiters.released.extend(waiting);
        }
    }

    fn resume(
        &mut self,
        subsystem: u32,
        nsid: u32,
        after: AfterPause,
        debt: &mut Option<Pausing>,
        cx: &mut Context<'_>,
    ) -> Result<(), String> {
        if after == AfterPause::Remove {
            self.remove_namespace(subsystem, nsid, debt, cx);
            return Ok(());
        }
        let Some(namespace) = self.core.namespace(subsystem, nsid) else {
            return Ok(());
        };
        namespace.gate = Gate::Open;
        namespace.ana = namespace.shared.ana();
        let waiting = std::mem::take(&mut namespace.waiting);
        let mut result = Ok(());
        if after == AfterPause::Reopen {
            result = self.reopen(subsystem, nsid, cx);
        }
        self.core.waiters.released.extend(waiting);
        result
    }

    fn reopen(&mut self, subsystem: u32, nsid: u32, cx: &mut Context<'_>) -> Result<(), String> {
        let Some(namespace) = self.core.namespace(subsystem, nsid) else {
            return Ok(());
        };
        let old = namespace
            .reopen(cx.driver)
            .map_err(|error| format!("cannot open namespace {nsid} again: {error}"))?;
        self.core.namespaces.close(old, cx);
        self.core.namespaces.activate(subsystem, nsid);
        Ok(())
    }
}

/// Returns true while a connection has unsent answers that point into the memory of a namespace
/// (`None`: of any namespace).
fn holds(
    holder: &mut Holder,
    nsid: Option<u32>,
    connection: &mut Connection,
    core: &mut CoreState,
) -> bool {
    if connection.state() == ConnectionState::Closed {
        return false;
    }
    let session = &mut connection.session;
    if holder.mark.is_none() && !session.commands.has_unsent_data(nsid) {
        holder.mark = session.output.leave_soon(&mut core.sends());
        if holder.mark.is_none() {
            return false;
        }
    }
    !holder
        .mark
        .is_some_and(|mark| session.output.has_left(mark))
}

impl PollGroup {
    /// Removes a namespace as soon as nothing of it is in flight and no answer points into its
    /// memory. Its gate is closed until then.
    pub(super) fn remove_namespace(
        &mut self,
        subsystem: u32,
        nsid: u32,
        debt: &mut Option<Pausing>,
        cx: &mut Context<'_>,
    ) {
        let Some(namespace) = self.core.namespace(subsystem, nsid) else {
            return;
        };
        let debt = match std::mem::replace(&mut namespace.gate, Gate::Paused) {
            Gate::Pausing { debt } => Some(debt),
            Gate::Open | Gate::Paused => debt.take(),
        };
        let mut holders = Vec::new();
        if has_memory(namespace) {
            let all = self.connections.iter();
            let theirs = all.filter(|(_, connection)| connection.access.subsystem == subsystem);
            holders.extend(theirs.map(|(connection, _)| Holder {
                connection,
                mark: None,
            }));
        }
        let removes = Some((subsystem, nsid));
        self.withdraw_memory(removes, holders, debt, cx);
    }

    /// Waits for the unsent answers of connections that lost rights.
    pub(super) fn revoke(
        &mut self,
        connections: impl Iterator<Item = SlabKey>,
        debt: &mut Option<Pausing>,
        cx: &mut Context<'_>,
    ) {
        let holders: Vec<_> = connections
            .map(|connection| Holder {
                connection,
                mark: None,
            })
            .collect();
        if !holders.is_empty() {
            self.withdraw_memory(None, holders, debt.take(), cx);
        }
    }

    fn withdraw_memory(
        &mut self,
        removes: Option<(u32, u32)>,
        holders: Vec<Holder>,
        debt: Option<Pausing>,
        cx: &mut Context<'_>,
    ) {
        self.withdrawals.push(Withdrawal {
            removes,
            holders,
            until: cx.now + self.core.limits.pause_patience,
            _debt: debt,
        });
        self.run_withdrawals(cx);
    }

    /// Returns true if the connection's subsystem has a namespace whose memory answers point into.
    pub(super) fn has_memory(core: &CoreState, connection: &Connection) -> bool {
        let mut namespaces = core.namespaces.of(connection.access.subsystem).iter();
        namespaces.any(|namespace| namespace.as_ref().is_some_and(has_memory))
    }

    /// Completes the removals and revocations that no longer wait for anything, in order.
    pub(super) fn run_withdrawals(&mut self, cx: &mut Context<'_>) {
        let mut index = 0;
        while let Some(withdrawal) = self.withdrawals.get_mut(index) {
            let nsid = withdrawal.removes.map(|(_, nsid)| nsid);
            let (core, connections) = (&mut self.core, &mut self.connections);
            let is_late = cx.now >= withdrawal.until;
            withdrawal.holders.retain_mut(|holder| {
                let Some(connection) = connections.get_mut(holder.connection) else {
                    return false;
                };
                let holds = holds(holder, nsid, connection, core);
                if holds && is_late {
                    connection.close_unread(core, cx);
                }
                holds
            });
            if is_late {
                withdrawal.until = Time::NEVER;
            }
            let quiet = withdrawal.removes.is_none_or(|(subsystem, nsid)| {
                let namespace = self.core.namespace_ref(subsystem, nsid);
                namespace.is_none_or(CoreNamespace::is_quiet)
                    || mutation::active(Mutation::UndoForgetsCommands)
            });
            if !withdrawal.holders.is_empty() || !quiet {
                index += 1;
                continue;
            }
            let withdrawal = self.withdrawals.remove(index);
            if let Some((subsystem, nsid)) = withdrawal.removes {
                self.forget_namespace(subsystem, nsid, cx);
            }
        }
    }

    /// Returns the time of the next check of connections that do not read.
    pub(super) fn withdrawal_deadline(&self) -> Time {
        let times = self.withdrawals.iter().map(|withdrawal| withdrawal.until);
        times.min().unwrap_or(Time::NEVER)
    }

    /// Drops a namespace that has nothing in flight.
    fn forget_namespace(&mut self, subsystem: u32, nsid: u32, cx: &mut Context<'_>) {
        let slot = self.core.namespaces.subsystems.get_mut(subsystem as usize);
        let namespaces = slot.and_then(Option::as_mut).map(|s| &mut s.namespaces);
        let namespace = namespaces.and_then(|all| all.get_mut(nsid as usize - 1)?.take());
        let Some(removed) = namespace else {
            return;
        };
        self.assign_token_queues();
        if let Some(scheduler) = removed.scheduler {
            self.core.tokens.close(scheduler);
        }
        self.core.namespaces.close(removed.channel, cx);
        self.core.waiters.released.extend(removed.waiting);
    }
}

/// Returns true if answers to reads of a namespace may point into its memory.
fn has_memory(namespace: &CoreNamespace) -> bool {
    matches!(namespace.direct, Some(Direct::Linear(_)))
}
