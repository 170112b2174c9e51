//! The handle that a control plane holds.
//!
//! Every change is made here: in the shared configuration first, then on every core by message,
//! under pause where commands could be affected, and hosts are notified last. One change at a time; a
//! caller waits until every core has it, or gets an error and finds nothing changed, unless the error
//! says that it could not be undone.

pub(crate) mod running;
mod snapshot;
mod subsystems;
mod tenants;
mod wake;

use crate::change::ack::{Ack, AckError};
use crate::change::step::{AfterPause, ChangeStep};
use crate::controller::async_events::Notice;
use crate::error::TargetError;
use crate::limits::{Limits, NAMESPACES_MAX, REFERRALS_MAX};
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
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use switch::Knobs;
use wire::nvme::{Nqn, NqnError};

/// Until a core that was swamped is asked again.
const RETRY: Duration = Duration::from_millis(10);

/// A target: its configuration, and the changes of it.
#[derive(Debug)]
pub struct Target {
    pub(crate) shared: Arc<Shared>,
    pub(crate) cores: usize,
    /// Held during a change: they are made one after the other.
    changing: Mutex<()>,
    /// Places of removed subsystems that cores have not let go of when the time for the change was
    /// over.
    leaving: Mutex<Vec<(u32, Arc<Ack>)>>,
    /// Wakes the thread that checks promises.
    pub(crate) tenant_wake: Arc<Wake>,
}

impl Target {
    /// A target without subsystems, for `cores` cores.
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
            changing: Mutex::new(()),
            leaving: Mutex::default(),
            tenant_wake: Arc::default(),
        }))
    }

    /// The thread of one core, 0 to `cores` − 1, stays on this core of the machine. Said once,
    /// before it serves.
    pub fn stays_on(&self, thread: usize, core: CoreId) {
        self.shared.threads.stays_on(thread, core);
    }

    /// Returns the service of one core, 0 to `cores` − 1, with operations that use `room`.
    #[must_use]
    pub fn poll_group(&self, core: usize, op_namespace: OpNamespace) -> PollGroup {
        PollGroup::new(core, op_namespace, Arc::clone(&self.shared))
    }

    /// Connects the cores, in order, and gives them all that is configured; they begin to accept
    /// connections when they have it. Until the change is [done](Change::poll) nothing else may
    /// be changed.
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

    /// Turns knobs while I/O runs: every core works by them when this returns. Nothing is lost or
    /// repeated: what a doorbell held is sent, what was waiting waits by the new rules.
    ///
    /// `target_threads` says how many threads are in use: queues move accordingly, soon after this
    /// returns. What changes the lanes ([`Lanes`](switch::knobs::Lanes)) counts for connections made from
    /// then on: whether the class that a host names when it connects an I/O queue counts at
    /// all. `polling` replaces [`TargetOptions::poll`](crate::TargetOptions::poll).
    /// `latency_threads` counts when the cores start. `request_steering` means the host alone: the
    /// target answers where it was asked. `[blk-switch §3.2]`
    ///
    /// # Errors
    /// [`TargetError::Knobs`] where one is out of its range, and nothing is turned;
    /// [`TargetError::Undone`] where a core did not follow in time, and they are turned back.
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

    /// As [`set_knobs`](Self::set_knobs), without waiting for the cores: for a caller that runs them
    /// on this very thread. Until the change is [done](Change::poll) nothing else may be changed.
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

    /// Returns the number of threads in use: those of the first N cores. `[ReFlex §4.3]`
    #[must_use]
    pub fn threads_in_use(&self) -> usize {
        self.shared.threads.active()
    }

    /// Notes the scheduling priority of a core's thread; once, by the thread itself.
    pub(crate) fn note_priority(&self, core: usize, status: PriorityStatus) {
        let _ = self.shared.priorities.of(core).set(status);
    }

    /// The limits that the target was made with.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.shared.limits
    }

    /// The turn of a change, which may post a bounded number of messages to each core.
    ///
    /// # Errors
    /// A core that does not take its messages. What is posted must not be lost and finds room
    /// always, so endless changes would fill the machine's memory.
    pub(crate) fn change(&self) -> Result<MutexGuard<'_, ()>, TargetError> {
        // Guards no data, only the order of changes.
        let order = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        match self.shared.swamped() {
            None => Ok(order),
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

    /// Tells discovery hosts that what they see may have changed.
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
    /// [`TargetError::Refused`] where the device cannot keep what its tenants are promised.
    pub fn add_namespace(&self, nqn: &str, options: NamespaceOptions) -> Result<(), TargetError> {
        let _order = self.change()?;
        let subsystem = self.subsystem(nqn)?;
        let nsid = options.nsid;
        check_namespace(nqn, nsid, subsystem.namespace(nsid).is_some())?;
        let mut namespace = Namespace::new(options, self.cores);
        namespace.incarnation = subsystem.lock().incarnation(&namespace);
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
            // A core that does not answer may have it for longer than can be waited for.
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

    /// Pauses a namespace on every core, does `change` to it, and lets its commands go on.
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

    /// Removes a namespace: its commands under way finish, later ones are refused; hosts are notified.
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
            // Nothing of it is under way any more, and each core forgets it with its next message.
            tracing::warn!(nqn, nsid, %error, "a removed namespace is still in use by a core");
        }
        subsystem.lock().forget(&namespace);
        self.promise_without([&namespace].into_iter());
        self.namespace_changed(&subsystem, nsid);
        Ok(())
    }

    /// Changes the size of a namespace while it is in use; hosts are notified. Where a core cannot
    /// open the device again, it has the size from before, and its content, unless the device drops
    /// that when it shrinks. Once this returned, no core reaches a block beyond a smaller size.
    ///
    /// # Errors
    /// A device that cannot be resized, or a core that did not follow, or not in time.
    /// [`TargetError::NotUndone`] where it has not the size from before.
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
            // Cores that followed would take commands for blocks that others do not have.
            if device.geometry().blocks != before
                && let Err(undo) = to(before)
            {
                done = Err(TargetError::NotUndone(format!("{error}, then {undo}")));
            }
        }
        // Also where it failed: a host that connected meanwhile may have seen another size.
        let shrunk = device.geometry().blocks < before;
        if !(shrunk && mutation::active(Mutation::ShrinkNotTold)) {
            self.namespace_changed(&subsystem, nsid);
        }
        done
    }

    /// Lets a host use a subsystem.
    ///
    /// # Errors
    /// A name that is none, or [`TargetError::NoSubsystem`].
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

    /// Takes the permission back, and ends the host's controllers of the subsystem.
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

    /// Ends the controllers of hosts that may not use their subsystem any more. Each core finds its
    /// own: however many there are, this is one message.
    pub(crate) fn end_denied(&self) {
        if !mutation::active(Mutation::DeniedHostStays) {
            self.shared.deliver_all(|| CoreMessage::EndDenied);
        }
    }

    /// Lets every host use a subsystem, or only those that are allowed by name: controllers of
    /// others end.
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

    /// Refers discovery hosts to another discovery service.
    ///
    /// # Errors
    /// One that exists, or too many of them.
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

    /// Refers to another discovery service no more.
    ///
    /// # Errors
    /// One that does not exist.
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

    /// The addresses that the discovery log page names.
    pub fn set_listeners(&self, addresses: &[SocketAddr]) {
        self.shared.configuration().listeners = addresses.to_vec();
        self.discovery_changed();
    }

    /// Stops accepting connections, answers what is under way, and ends every core.
    pub fn shutdown(&self) {
        self.shared.deliver_all(|| CoreMessage::Shutdown);
    }

    /// Returns true if commands were given up because they were not answered in the time that a
    /// shutdown leaves them. Known when all cores have ended.
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

/// Checks the name of a subsystem or a host. Its form is not checked, but it has no white space.
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

/// Checks the identifier of a namespace that is to come; `taken` says that there is one.
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

/// A change on its way to the cores.
#[derive(Debug)]
pub struct Change {
    pub(crate) ack: Arc<Ack>,
}

impl Change {
    /// Returns the outcome, once every core is through: the error of one that could not follow.
    #[must_use]
    pub fn poll(&self) -> Option<Result<(), TargetError>> {
        Some(self.ack.poll()?.map_err(TargetError::from))
    }
}
