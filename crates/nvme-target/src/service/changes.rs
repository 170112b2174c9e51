//! Steps of a change, taken by a core.

use crate::change::ack::Pausing;
use crate::change::step::{AfterPause, ChangeStep};
use crate::limits::NAMESPACES_MAX;
use crate::namespace::{CoreNamespace, Gate, Namespace};
use crate::service::connection::Owner;
use crate::service::connection_state::ConnectionState;
use crate::service::events;
use crate::service::namespaces::CoreSubsystem;
use crate::service::poll_group::PollGroup;
use crate::service::requests;
use crate::shares::Purpose;
use base::Time;
use base::mutation::{self, Mutation};
use reactor::{Context, PollPolicy};
use std::sync::Arc;
use switch::Knobs;
use switch::knobs::Polling;

impl PollGroup {
    /// Takes the steps of a change.
    pub(super) fn change(&mut self, steps: Vec<ChangeStep>, debt: Pausing, cx: &mut Context<'_>) {
        if !self.accepting {
            // The first change is the whole configuration: no host is let in before it is known.
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
                ChangeStep::AskRules => {
                    self.ask_rules(&mut debt, cx);
                    Ok(())
                }
                ChangeStep::SetKnobs(knobs) => {
                    self.set_knobs(*knobs, cx);
                    Ok(())
                }
            };
            if let (Err(error), Some(debt)) = (result, &mut debt) {
                debt.fail(error);
            }
        }
    }

    /// Commands are checked by the rules now in force, from the next one on; answers that were made by
    /// the rules before are sent first.
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
                        events::deliver(connection, &mut self.core, cx);
                    }
                }
                Owner::None => {}
            }
        }
        self.assign_token_queues();
        self.revoke(restricted.into_iter(), debt, cx);
    }

    /// Works by other knobs from now on.
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
            return Err("the subsystem is gone".to_owned());
        }
        if self.core.namespace_ref(subsystem, nsid).is_some() {
            return Err(format!(
                "the namespace {nsid} before is still being removed: its device has not answered"
            ));
        }
        let mut opened = CoreNamespace::open(shared, cx.driver)
            .map_err(|error| format!("namespace {nsid} cannot be opened: {error}"))?;
        if opened.device_transfer_bytes < transfer {
            let most = opened.device_transfer_bytes;
            self.core.namespaces.close(opened.channel, cx);
            return Err(format!(
                "namespace {nsid}: its device takes {most} bytes at a time, and transfer_bytes is \
                 {transfer}; lower transfer_bytes"
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
        // Before the identifier names anything here: nothing that means another volume by it may come
        // after that.
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
                requests::leave_flight(connection, nsid, &mut self.core);
                connection.hurry(nsid, &mut self.core, now);
            }
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
            .map_err(|error| format!("namespace {nsid} cannot be opened again: {error}"))?;
        self.core.namespaces.close(old, cx);
        self.core.namespaces.activate(subsystem, nsid);
        Ok(())
    }
}
