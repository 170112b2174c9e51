//! The handle that a control plane holds.
//!
//! Every change goes through it: first to the shared configuration, then by message to every core
//! (under a pause if commands could be affected); hosts are notified last. Changes are made one at
//! a time. The caller waits until every core has applied the change, or gets an error; then nothing
//! has changed, unless the error reports that the change could not be undone.

mod ana;
mod listeners;
mod reservations;
pub(crate) mod running;
mod snapshot;
mod subsystems;
mod takeover;
mod tenants;
pub(crate) mod trace;
mod wake;

use crate::authentication::Authentication;
use crate::change::ack::{Ack, AckError};
use crate::change::step::{AfterPause, ChangeStep};
use crate::controller::async_events::Notice;
use crate::error::TargetError;
use crate::limits::{ANA_GROUPS_MAX, Limits, NAMESPACES_MAX, REFERRALS_MAX};
use crate::message::{CoreMessage, Message};
use crate::namespace::{Namespace, NamespaceOptions};
use crate::service::PollGroup;
use crate::shared::{Referral, Shared};
use crate::subsystem::Subsystem;
use crate::target::wake::Wake;
use base::mutation::{self, Mutation};
use base::units::CoreId;
use reactor::priority::PriorityStatus;
use reactor::{MailboxSender, OpNamespace};
use secure::KeyRing;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use switch::Knobs;
use wire::nvme::{Nqn, NqnError};

/// Delay before a message to an overloaded core is sent again.
const RETRY: Duration = Duration::from_millis(10);

/// A target: its configuration and the changes to it.
#[derive(Debug)]
pub struct Target {
    pub(crate) shared: Arc<Shared>,
    pub(crate) cores: usize,
    /// Indices of removed subsystems that cores had not released when the change timed out.
    leaving: Mutex<Vec<(u32, Arc<Ack>)>>,
    /// Wakes the thread that checks SLOs.
    pub(crate) tenant_wake: Arc<Wake>,
}

impl Target {
    /// Creates a target without subsystems, for `cores` cores.
    ///
    /// # Errors
    /// [`TargetError::Limits`].
    pub fn new(limits: Limits, cores: usize) -> Result<Arc<Self>, TargetError> {
        limits.check()?;
        let cores = cores.max(1);
        let shared = Shared::new(limits, cores);
        Ok(Arc::new(Self {
            shared,
            cores,
            leaving: Mutex::default(),
            tenant_wake: Arc::default(),
        }))
    }

    /// Records that the thread of one core, 0 to `cores` − 1, is pinned to this core of the
    /// machine. Called once, before the thread serves.
    pub fn stays_on(&self, thread: usize, core: CoreId) {
        self.shared.threads.stays_on(thread, core);
    }

    /// Returns the service of one core, 0 to `cores` − 1, whose operations use `op_namespace`.
    #[must_use]
    pub fn poll_group(&self, core: usize, op_namespace: OpNamespace) -> PollGroup {
        PollGroup::new(core, op_namespace, Arc::clone(&self.shared))
    }

    /// Connects the cores, in order, and sends them the whole configuration; they accept
    /// connections once they have it. No other change is allowed until this one is
    /// [done](Change::poll).
    pub fn attach(&self, cores: Vec<MailboxSender<Message>>) -> Change {
        *self.shared.cores() = cores;
        let knobs = *self.shared.knobs();
        let mut steps: Vec<_> = knobs
            .map(|k| ChangeStep::SetKnobs(Arc::new(k)))
            .into_iter()
            .collect();
        for subsystem in self.shared.configuration().subsystems.values() {
            steps.extend(ChangeStep::all_of(subsystem));
        }
        Change {
            ack: self.shared.post(&steps),
        }
    }

    /// Sets knobs while I/O runs; every core uses them when this returns. Nothing is lost or
    /// repeated: requests held by a doorbell are sent, and waiting requests wait by the new rules.
    ///
    /// - `target_threads` sets the number of threads in use; queues move soon after this returns.
    /// - Knobs of the lanes ([`Lanes`](switch::knobs::Lanes)) apply to connections made afterwards,
    ///   such as whether the class that a host names at the Connect of an I/O queue is used.
    /// - `polling` replaces [`TargetOptions::poll`](crate::TargetOptions::poll).
    /// - `latency_threads` applies when the cores start.
    /// - `request_steering` applies to hosts only: the target answers on the core that received the
    ///   request. `[blk-switch §3.2]`
    ///
    /// # Errors
    /// [`TargetError::Knobs`] if a knob is out of its range; nothing changes.
    /// [`TargetError::Undone`] if a core did not follow in time; the former knobs are restored.
    pub fn set_knobs(&self, knobs: Knobs) -> Result<(), TargetError> {
        let _order = self.change()?;
        let before = *self.shared.knobs();
        let change = self.begin_knobs(knobs)?;
        let done = self.shared.wait(&change.ack);
        if done.is_err() {
            *self.shared.knobs() = before;
            let before = Arc::new(before.unwrap_or_default());
            self.shared.post(&[ChangeStep::SetKnobs(before)]);
        }
        Ok(done?)
    }

    /// Like [`set_knobs`](Self::set_knobs), but does not wait for the cores: for a caller that runs
    /// them on this thread. No other change is allowed until this one is [done](Change::poll).
    ///
    /// # Errors
    /// [`TargetError::Knobs`].
    pub fn begin_knobs(&self, knobs: Knobs) -> Result<Change, TargetError> {
        knobs.validate()?;
        *self.shared.knobs() = Some(knobs);
        let ack = self.shared.post(&[ChangeStep::SetKnobs(Arc::new(knobs))]);
        Ok(Change { ack })
    }

    /// Returns the knobs.
    #[must_use]
    pub fn knobs(&self) -> Knobs {
        self.shared.knobs().unwrap_or_default()
    }

    /// Returns the number of threads in use; the first N threads are used. `[ReFlex §4.3]`
    #[must_use]
    pub fn threads_in_use(&self) -> usize {
        self.shared.threads.active()
    }

    /// Records the scheduling priority of a core's thread; called once, by the thread itself.
    pub(crate) fn note_priority(&self, core: usize, status: PriorityStatus) {
        let _ = self.shared.priorities.of(core).set(status);
    }

    /// Returns the limits that the target was created with.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.shared.limits
    }

    /// Starts a change, which may post a bounded number of messages to each core.
    ///
    /// # Errors
    /// A core that does not take its messages. Posted messages are never dropped and have no limit,
    /// so repeated changes would exhaust the memory.
    pub(crate) fn change(&self) -> Result<MutexGuard<'_, ()>, TargetError> {
        let order = self.shared.changing();
        self.check_mailboxes()?;
        Ok(order)
    }

    /// Checks that messages may be posted to the cores.
    ///
    /// # Errors
    /// A core that does not take its messages.
    pub(crate) fn check_mailboxes(&self) -> Result<(), TargetError> {
        match self.shared.swamped() {
            None => Ok(()),
            Some(core) => Err(TargetError::Undone(format!(
                "the message queue of core {core} is full: the core does not process messages"
            ))),
        }
    }

    fn subsystem(&self, nqn: &str) -> Result<Arc<Subsystem>, TargetError> {
        self.shared
            .subsystem(nqn)
            .ok_or_else(|| TargetError::NoSubsystem(nqn.to_owned()))
    }

    /// Posts steps to all cores and waits for them.
    pub(crate) fn apply(&self, steps: &[ChangeStep]) -> Result<(), AckError> {
        self.shared.wait(&self.shared.post(steps))
    }

    /// Notifies discovery hosts that their log page may have changed.
    pub(crate) fn discovery_changed(&self) {
        self.shared.configuration().generation += 1;
        self.shared.deliver_all(|| CoreMessage::Notify {
            subsystem: None,
            notice: Notice::Discovery,
        });
    }

    fn namespace_changed(&self, subsystem: &Subsystem, nsid: u32) {
        let subsystem = Some(subsystem.index);
        self.shared.deliver_all(|| CoreMessage::Notify {
            subsystem,
            notice: Notice::Namespace(nsid),
        });
    }

    /// Adds a namespace to a subsystem; hosts are notified.
    ///
    /// # Errors
    /// An identifier that is out of range or taken, a device that a core cannot open, or
    /// [`TargetError::Refused`] if the device cannot meet the SLOs of its tenants.
    pub fn add_namespace(&self, nqn: &str, options: NamespaceOptions) -> Result<(), TargetError> {
        let _order = self.change()?;
        let subsystem = self.subsystem(nqn)?;
        let nsid = options.nsid;
        check_namespace(nqn, nsid, subsystem.namespace(nsid).is_some())?;
        check_ana_group(options.ana_group)?;
        let (ana, _) = subsystem.lock().ana.get(options.ana_group);
        let mut namespace = Namespace::new(options, ana, self.cores);
        namespace.incarnation = subsystem.lock().incarnation(&namespace);
        self.restore_reservations(nqn, &namespace);
        let namespace = Arc::new(namespace);
        self.promise_with(nqn, std::slice::from_ref(&namespace))?;
        let announcement = subsystem.lock().announce(&namespace);
        let added = self.apply(&[ChangeStep::AddNamespace(
            subsystem.index,
            Arc::clone(&namespace),
        )]);
        if let Err(error) = added {
            // Some cores may have opened it.
            let undo = [
                ChangeStep::Pause(subsystem.index, nsid),
                ChangeStep::Resume(subsystem.index, nsid, AfterPause::Remove),
            ];
            // A core that does not answer may keep it open for longer than the change may wait.
            let gone = match error {
                AckError::Failed(_) => self.apply(&undo).is_ok(),
                AckError::TimedOut { .. } => {
                    self.shared.post(&undo);
                    false
                }
            };
            if gone {
                subsystem.lock().withdraw(announcement);
            }
            self.promise_without([&namespace].into_iter());
            return Err(error.into());
        }
        let scheduled = namespace.options.qos.is_some();
        subsystem.lock().add(namespace);
        if scheduled {
            self.tenant_wake.poke();
        }
        self.namespace_changed(&subsystem, nsid);
        Ok(())
    }

    /// Pauses a namespace on every core, applies `change` to it, and resumes its commands.
    fn paused(
        &self,
        subsystem: &Subsystem,
        nsid: u32,
        after: AfterPause,
        change: impl FnOnce() -> Result<(), TargetError>,
    ) -> Result<(), TargetError> {
        let resume = |after| ChangeStep::Resume(subsystem.index, nsid, after);
        if let Err(error) = self.apply(&[ChangeStep::Pause(subsystem.index, nsid)]) {
            self.shared.post(&[resume(AfterPause::Keep)]);
            return Err(error.into());
        }
        if let Err(error) = change() {
            self.apply(&[resume(AfterPause::Keep)])?;
            return Err(error);
        }
        Ok(self.apply(&[resume(after)])?)
    }

    fn namespace(
        &self,
        nqn: &str,
        nsid: u32,
    ) -> Result<(Arc<Subsystem>, Arc<Namespace>), TargetError> {
        let subsystem = self.subsystem(nqn)?;
        let missing = || TargetError::NoNamespace {
            nqn: nqn.to_owned(),
            nsid,
        };
        let namespace = subsystem.namespace(nsid).ok_or_else(missing)?;
        Ok((subsystem, namespace))
    }

    /// Removes a namespace: its outstanding commands finish, later ones are refused; hosts are
    /// notified.
    ///
    /// # Errors
    /// [`TargetError::NoNamespace`], or a core that did not follow in time.
    pub fn remove_namespace(&self, nqn: &str, nsid: u32) -> Result<(), TargetError> {
        let _order = self.change()?;
        let (subsystem, namespace) = self.namespace(nqn, nsid)?;
        let forget = || {
            subsystem.lock().namespaces.remove(&nsid);
            Ok(())
        };
        if let Err(error) = self.paused(&subsystem, nsid, AfterPause::Remove, forget) {
            if subsystem.namespace(nsid).is_some() {
                return Err(error);
            }
            // Nothing of it is in flight any more, and each core drops it with its next message.
            tracing::warn!(nqn, nsid, %error, "a removed namespace is still in use by a core");
        }
        subsystem.lock().forget(&namespace);
        self.retain_reservations(nqn, &namespace);
        self.promise_without([&namespace].into_iter());
        self.namespace_changed(&subsystem, nsid);
        Ok(())
    }

    /// Resizes a namespace while it is in use; hosts are notified. If a core cannot reopen the
    /// device, the former size is restored, with its content unless the device discards it when it
    /// shrinks. When this returns, no core accesses a block beyond a reduced size.
    ///
    /// # Errors
    /// A device that cannot be resized, or a core that failed or did not follow in time.
    /// [`TargetError::NotUndone`] if the former size could not be restored.
    pub fn resize_namespace(&self, nqn: &str, nsid: u32, blocks: u64) -> Result<(), TargetError> {
        let _order = self.change()?;
        let (subsystem, namespace) = self.namespace(nqn, nsid)?;
        let device = &namespace.options.device;
        let before = device.geometry().blocks;
        let to = |blocks| {
            let resize = || Ok(device.resize(blocks)?);
            self.paused(&subsystem, nsid, AfterPause::Reopen, resize)
        };
        let mut done = to(blocks);
        if let Err(error) = &done {
            // Cores that followed would accept commands for blocks that other cores do not have.
            if device.geometry().blocks != before
                && let Err(undo) = to(before)
            {
                done = Err(TargetError::NotUndone(format!("{error}, then {undo}")));
            }
        }
        // Even after a failure: a host that connected in the meantime may have seen another size.
        let shrunk = device.geometry().blocks < before;
        if !(shrunk && mutation::active(Mutation::ShrinkNotTold)) {
            self.namespace_changed(&subsystem, nsid);
        }
        done
    }

    /// Allows a host to use a subsystem.
    ///
    /// # Errors
    /// An invalid name, or [`TargetError::NoSubsystem`].
    pub fn allow_host(&self, nqn: &str, host_nqn: &str) -> Result<(), TargetError> {
        let _order = self.change()?;
        check_name(host_nqn)?;
        self.subsystem(nqn)?
            .lock()
            .allowed_hosts
            .insert(host_nqn.to_owned());
        self.discovery_changed();
        Ok(())
    }

    /// Revokes a host's permission, and ends its controllers of the subsystem.
    ///
    /// # Errors
    /// [`TargetError::NoSubsystem`].
    pub fn deny_host(&self, nqn: &str, host_nqn: &str) -> Result<(), TargetError> {
        let _order = self.change()?;
        let subsystem = self.subsystem(nqn)?;
        subsystem.lock().allowed_hosts.remove(host_nqn);
        self.end_denied();
        self.discovery_changed();
        Ok(())
    }

    /// Ends the controllers of hosts that may no longer use their subsystem. Each core finds its
    /// own, so this is one message per core regardless of their number.
    pub(crate) fn end_denied(&self) {
        if !mutation::active(Mutation::DeniedHostStays) {
            self.shared.deliver_all(|| CoreMessage::EndDenied);
        }
    }

    /// Allows every host to use a subsystem, or only those allowed by name; the controllers of all
    /// other hosts end.
    ///
    /// # Errors
    /// [`TargetError::NoSubsystem`].
    pub fn allow_any_host(&self, nqn: &str, allow: bool) -> Result<(), TargetError> {
        let _order = self.change()?;
        self.subsystem(nqn)?.lock().allow_any_host = allow;
        if !allow {
            self.end_denied();
        }
        self.discovery_changed();
        Ok(())
    }

    /// Sets the proofs of their names that hosts of a subsystem have to give; the controllers of hosts
    /// that did not give them end.
    ///
    /// # Errors
    /// [`TargetError::NoSubsystem`].
    pub fn set_authentication(
        &self,
        nqn: &str,
        required: Authentication,
    ) -> Result<(), TargetError> {
        let _order = self.change()?;
        self.subsystem(nqn)?.lock().authentication = required;
        self.end_denied();
        self.discovery_changed();
        Ok(())
    }

    /// Lets these hosts connect only with TLS; their controllers without it end.
    pub fn require_tls(&self, hosts: BTreeSet<String>) {
        self.shared.require_tls(hosts);
        self.end_denied();
    }

    /// Adds a referral to another discovery service.
    ///
    /// # Errors
    /// A referral that exists, or too many of them.
    pub fn add_referral(&self, referral: Referral) -> Result<(), TargetError> {
        let _order = self.change()?;
        {
            let mut configuration = self.shared.configuration();
            if configuration.referrals.contains(&referral) {
                return Err(TargetError::Exists(format!(
                    "the referral to {}",
                    referral.address
                )));
            }
            if configuration.referrals.len() >= REFERRALS_MAX {
                let reason = format!("a target has at most {REFERRALS_MAX} referrals");
                return Err(TargetError::Invalid(reason));
            }
            configuration.referrals.push(referral);
        }
        self.discovery_changed();
        Ok(())
    }

    /// Removes a referral to another discovery service.
    ///
    /// # Errors
    /// A referral that does not exist.
    pub fn remove_referral(&self, referral: Referral) -> Result<(), TargetError> {
        let _order = self.change()?;
        {
            let mut configuration = self.shared.configuration();
            let before = configuration.referrals.len();
            configuration.referrals.retain(|other| *other != referral);
            if configuration.referrals.len() == before {
                let reason = format!("no referral to {}", referral.address);
                return Err(TargetError::Invalid(reason));
            }
        }
        self.discovery_changed();
        Ok(())
    }

    /// Sets the keys of hosts, for TLS handshakes and authentications from now on. Connections stay,
    /// except those of hosts that have to authenticate and did so by a secret that is not among these
    /// keys.
    pub fn set_keys(&self, keys: KeyRing) {
        if !keys.is_without_chap() {
            reactor::chap::prepare();
        }
        self.shared.set_key_ring(keys);
        self.end_denied();
    }

    /// Stops accepting connections, answers outstanding commands, and ends every core.
    pub fn shutdown(&self) {
        self.shared.deliver_all(|| CoreMessage::Shutdown);
    }

    /// Returns true if commands were abandoned because they were not answered within the drain
    /// time-out. Valid when all cores have ended.
    #[must_use]
    pub fn gave_up_commands(&self) -> bool {
        self.shared.gave_up.load(Ordering::Relaxed)
    }

    /// Returns true if every core takes a message within `timeout`.
    #[must_use]
    pub fn responds(&self, timeout: Duration) -> bool {
        self.shared.swamped().is_none() && self.shared.post(&[]).wait(timeout).is_ok()
    }
}

/// Checks the name of a subsystem or host: it must not contain white space; its form is not checked
/// otherwise.
pub(crate) fn check_name(name: &str) -> Result<Nqn, TargetError> {
    let refused = |reason| TargetError::Name {
        name: name.to_owned(),
        reason,
    };
    if name.chars().any(char::is_whitespace) {
        return Err(refused(NqnError::NotText));
    }
    Nqn::lenient(name).map_err(refused)
}

/// Checks the identifier of a new namespace; `taken` is true if it is in use.
fn check_namespace(nqn: &str, nsid: u32, taken: bool) -> Result<(), TargetError> {
    if !(1..=NAMESPACES_MAX).contains(&nsid) {
        let reason = format!("namespace ID {nsid} is out of range; use 1 to {NAMESPACES_MAX}");
        return Err(TargetError::Invalid(reason));
    }
    if taken {
        return Err(TargetError::Exists(format!("namespace {nsid} of {nqn}")));
    }
    Ok(())
}

/// A change that the cores are applying.
#[derive(Debug)]
pub struct Change {
    pub(crate) ack: Arc<Ack>,
}

impl Change {
    /// Returns the outcome once every core has finished: the error of a core that could not follow.
    #[must_use]
    pub fn poll(&self) -> Option<Result<(), TargetError>> {
        Some(self.ack.poll()?.map_err(TargetError::from))
    }
}

/// Checks the identifier of an ANA group.
fn check_ana_group(group: u32) -> Result<(), TargetError> {
    if (1..=ANA_GROUPS_MAX).contains(&group) {
        return Ok(());
    }
    let reason = format!("ANA group {group} is out of range; use 1 to {ANA_GROUPS_MAX}");
    Err(TargetError::Invalid(reason))
}
