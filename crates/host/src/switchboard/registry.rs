//! The registry of a switchboard: the controllers, namespaces and submitters known to all its
//! cores.
//!
//! Each has a number that means the same on every core. So an update reaches all cores or none, and
//! only updates that reached all are entered here.

use super::ingress::Submitter;
use super::ingress::TargetNumber;
use super::message::{DataplaneMessage, Update};
use super::{DataplaneThread, SwitchboardInner, limits};
use crate::association::Association;
use crate::association::NamespaceState;
use crate::error::HostError;
use crate::namespace::RemoteNamespace;
use block::{Capabilities, Device};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// The controllers, submitters and namespaces known to every core.
#[derive(Debug, Default)]
pub(super) struct Registry {
    /// Controllers by number.
    targets: Vec<Option<Target>>,
    /// Submitters by number.
    submitters: Vec<Option<Arc<Submitter>>>,
}

#[derive(Debug)]
struct Target {
    number: Arc<TargetNumber>,
    association: Arc<Association>,
    /// Namespaces by number. An NSID that names another volume later is another namespace.
    namespaces: Vec<Arc<NamespaceState>>,
}

impl Registry {
    /// Removes submitters that left and controllers that are gone, once the threads have removed
    /// them too.
    fn forget(&mut self) {
        for place in &mut self.submitters {
            place.take_if(|known| Arc::strong_count(known) == 1);
        }
        // After the submitters, which hold the numbers of their controllers.
        for place in &mut self.targets {
            place.take_if(|target| Arc::get_mut(&mut target.number).is_some());
        }
    }
}

/// Pause between two attempts to put a message into a full mailbox.
const MAILBOX_PAUSE: Duration = Duration::from_micros(200);

impl SwitchboardInner {
    fn registry(&self) -> MutexGuard<'_, Registry> {
        // Each change of the registry is complete, so poisoning does no harm.
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends an update to every core or to none; waits while a thread's mailbox is full.
    pub(super) fn tell(&self, note: impl Fn() -> Update) -> Result<(), HostError> {
        // One update at a time, so that the free room stays free.
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        self.tell_left(&mut left)?;
        self.tell_all(note)
    }

    /// Removes a submitter. The cores are notified now, or with the next update.
    pub(super) fn leave(&self, number: u32) {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        left.push(number);
        // Threads that have ended keep no submitter.
        let _ = self.tell_left(&mut left);
    }

    fn tell_left(&self, left: &mut Vec<u32>) -> Result<(), HostError> {
        while let Some(&number) = left.last() {
            self.tell_all(|| Update::Leave(number))?;
            left.pop();
        }
        Ok(())
    }

    fn tell_all(&self, note: impl Fn() -> Update) -> Result<(), HostError> {
        if self.health.is_broken() {
            return Err(HostError::Closed);
        }
        let run_by_others = self.threads.iter().filter(|core| core.thread.is_none());
        if run_by_others.clone().any(|core| core.sender.is_full()) {
            return Err(HostError::Limit(
                "a core of this switchboard has too many pending messages; let it run first",
            ));
        }
        // A failure from here on breaks the whole switchboard: the remaining cores need no update
        // then.
        let mut cores = self.threads.iter();
        cores.try_for_each(|core| core.tell(DataplaneMessage(note())))
    }

    /// Sends the end of the switchboard to every core that still runs.
    pub(super) fn tell_end(&self) {
        for core in &self.threads {
            // A core that has ended must not keep the message from the remaining cores.
            let _ = core.tell(DataplaneMessage(Update::Close));
        }
    }

    /// Adds a controller on every core. Returns its index in the registry.
    fn add_target(
        &self,
        registry: &mut Registry,
        association: &Arc<Association>,
    ) -> Result<usize, HostError> {
        let free = registry.targets.iter().position(Option::is_none);
        let index = free.unwrap_or(registry.targets.len());
        if index >= limits::TARGETS_MAX {
            return Err(HostError::Limit(
                "this switchboard already has lanes to 64 controllers; create another switchboard",
            ));
        }
        if association.free_queues() < self.lanes_per_target {
            return Err(HostError::Limit(
                "the controller grants fewer I/O queues than the switchboard needs (one per core \
                 and class); use fewer cores, or raise the target's limit",
            ));
        }
        let number = u16::try_from(index).expect("at most 64");
        let number = Arc::new(TargetNumber(number));
        self.tell(|| Update::Target(Arc::clone(&number), Arc::clone(association)))?;
        if free.is_none() {
            registry.targets.push(None);
        }
        registry.targets[index] = Some(Target {
            number,
            association: Arc::clone(association),
            namespaces: Vec::new(),
        });
        Ok(index)
    }

    /// Returns the numbers of a namespace and its controller, after adding them on every core.
    pub(super) fn register(
        &self,
        remote: &RemoteNamespace,
    ) -> Result<(Arc<TargetNumber>, u16), HostError> {
        let mut registry = self.registry();
        registry.forget();
        let association = remote.association();
        let is_it = |target: &Target| Arc::ptr_eq(&target.association, association);
        let mut targets = registry.targets.iter();
        let known = targets.position(|target| target.as_ref().is_some_and(is_it));
        let index = match known {
            Some(index) => index,
            None => self.add_target(&mut registry, association)?,
        };
        let targets = registry.targets.iter().flatten();
        let all: usize = targets.map(|target| target.namespaces.len()).sum();
        let target = registry.targets[index].as_mut();
        let Target {
            number, namespaces, ..
        } = target.expect("it is known");
        let state = remote.state();
        let known = namespaces
            .iter()
            .position(|known| Arc::ptr_eq(known, state));
        let namespace = known.unwrap_or(namespaces.len());
        let namespace = u16::try_from(namespace).expect("at most 1,024");
        if known.is_none() {
            if all >= limits::NAMESPACES_MAX {
                return Err(HostError::Limit(
                    "this switchboard already has 1,024 namespaces; create another switchboard",
                ));
            }
            // Each submitter has its own limit from opening, and lanes split requests that are
            // longer than a command.
            let capabilities = Capabilities {
                max_transfer_bytes: u32::MAX,
                ..remote.capabilities()
            };
            self.tell(|| Update::Namespace {
                target: number.0,
                namespace,
                state: Arc::clone(state),
                capabilities,
            })?;
            namespaces.push(Arc::clone(state));
        }
        Ok((Arc::clone(number), namespace))
    }

    /// Adds a submitter on every core. Returns its number.
    pub(super) fn join(&self, submitter: &Arc<Submitter>) -> Result<u32, HostError> {
        let mut registry = self.registry();
        registry.forget();
        let free = registry.submitters.iter().position(Option::is_none);
        let index = free.unwrap_or(registry.submitters.len());
        if index >= limits::SUBMITTERS_MAX {
            return Err(HostError::Limit(
                "this switchboard already has 4,096 submitters; close one, or create another \
                 switchboard",
            ));
        }
        let number = u32::try_from(index).expect("at most 4,096");
        self.tell(|| Update::Join(number, Arc::clone(submitter)))?;
        if free.is_none() {
            registry.submitters.push(None);
        }
        registry.submitters[index] = Some(Arc::clone(submitter));
        Ok(number)
    }
}

impl DataplaneThread {
    /// Sends a message; waits for room while the thread runs.
    fn tell(&self, message: DataplaneMessage) -> Result<(), HostError> {
        let mut next = message;
        loop {
            if self.thread.as_ref().is_some_and(JoinHandle::is_finished) {
                return Err(HostError::Closed);
            }
            match self.sender.send(next) {
                Ok(()) => return Ok(()),
                Err(_) if self.thread.is_none() => return Err(HostError::Closed),
                Err(back) => next = back,
            }
            std::thread::sleep(MAILBOX_PAUSE);
        }
    }
}
