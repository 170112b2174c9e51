//! State shared by all cores: the configuration, the controllers, and the mailboxes.
//!
//! Used at Connect, by admin commands and by a control plane, never by I/O, so plain locks are
//! sufficient.

use crate::authentication::Authentication;
use crate::authentication::attempts::Attempts;
use crate::authentication::jobs::AuthenticationJob;
use crate::change::ack::{Ack, AckError, Pausing};
use crate::change::step::ChangeStep;
use crate::controller::registry::{Controllers, SharedController};
use crate::events::{EventKind, RefusedHost, TargetEvents};
use crate::fences::Fences;
use crate::limits::Limits;
use crate::message::{CoreMessage, Message};
use crate::permit::Permits;
use crate::qos::access::AccessRules;
use crate::reservation::job::Job;
use crate::reservation::kept::{Keeper, ReservationRecord};
use crate::stats::{PerCore, SharedCoreStats};
use crate::subsystem::Subsystem;
use crate::switch::stats::{SharedLoad, SharedSwitchStats};
use crate::switch::threads::Threads;
use crate::tls::OpenListener;
use crate::trace::selection::Selection;
use reactor::priority::PriorityStatus;
use reactor::tls::Keys;
use reactor::{MailboxSender, SocketOptions};
use secure::KeyRing;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use switch::Knobs;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every holder changes one field at a time, so the data of a poisoned lock is still valid.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A referral to another discovery service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Referral {
    /// Address of the service.
    pub address: SocketAddr,
}

/// The state shared by all cores.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) limits: Limits,
    pub(crate) configuration: Mutex<Configuration>,
    pub(crate) controllers: Mutex<Controllers>,
    cores: Mutex<Vec<MailboxSender<Message>>>,
    pub(crate) core_stats: PerCore<SharedCoreStats>,
    pub(crate) switch_stats: PerCore<SharedSwitchStats>,
    /// Load of each class on each core.
    pub(crate) loads: PerCore<SharedLoad>,
    /// The same without queues that had no recent load.
    pub(crate) recent: PerCore<SharedLoad>,
    /// Scheduling priority of each core's thread, if it requested one.
    pub(crate) priorities: PerCore<OnceLock<PriorityStatus>>,
    /// The threads in use.
    pub(crate) threads: Threads,
    /// Fused pairs that wait for a fence, or have one.
    pub(crate) fences: Fences,
    knobs: Mutex<Option<Knobs>>,
    rules: Mutex<Arc<AccessRules>>,
    /// NQNs of the hosts that may connect only with TLS.
    tls_required: Mutex<Arc<BTreeSet<String>>>,
    events: Mutex<TargetEvents>,
    /// Open traces.
    traces: Mutex<Vec<Arc<Selection>>>,
    /// Permits for the connections of all cores.
    pub(crate) permits: Permits,
    /// Keys of hosts.
    pub(crate) keys: Arc<Keys>,
    /// Wrong secrets of hosts.
    pub(crate) attempts: Arc<Attempts>,
    /// Runs the jobs of DH-HMAC-CHAP; unset: the core does, as in a simulation.
    pub(crate) runs_jobs: OnceLock<fn(AuthenticationJob)>,
    /// Executes commands that change reservations; unset in a simulation, which refuses them.
    pub(crate) reserver: OnceLock<mpsc::Sender<Job>>,
    /// Keeps persistent reservations; unset: hosts cannot have any.
    pub(crate) reservation_keeper: OnceLock<Keeper>,
    /// Reservations of namespaces that are added later.
    kept_reservations: Mutex<Vec<ReservationRecord>>,
    /// Held during a change, which serialises changes.
    changing: Mutex<()>,
    /// Options of sockets; set at start.
    pub(crate) socket: OnceLock<SocketOptions>,
    /// Commands were abandoned at the end of the drain time.
    pub(crate) gave_up: AtomicBool,
    /// Number of changes that not every core applied in time.
    pub(crate) late_changes: AtomicU64,
}

/// Configuration that a control plane can change.
#[derive(Debug, Default)]
pub(crate) struct Configuration {
    pub(crate) subsystems: BTreeMap<String, Arc<Subsystem>>,
    pub(crate) listeners: Vec<OpenListener>,
    pub(crate) referrals: Vec<Referral>,
    /// GENCTR: the number of changes to the discovery log page.
    pub(crate) generation: u64,
}

impl Shared {
    pub(crate) fn new(limits: Limits, cores: usize) -> Arc<Self> {
        Arc::new(Self {
            permits: Permits::new(limits.connections, limits.connections_per_address),
            keys: Arc::default(),
            attempts: Arc::default(),
            runs_jobs: OnceLock::new(),
            reserver: OnceLock::new(),
            reservation_keeper: OnceLock::new(),
            kept_reservations: Mutex::default(),
            changing: Mutex::default(),
            socket: OnceLock::new(),
            configuration: Mutex::default(),
            controllers: Mutex::default(),
            cores: Mutex::default(),
            core_stats: PerCore::new(cores),
            switch_stats: PerCore::new(cores),
            loads: PerCore::new(cores),
            recent: PerCore::new(cores),
            priorities: PerCore::new(cores),
            threads: Threads::new(cores),
            fences: Fences::default(),
            knobs: Mutex::default(),
            rules: Mutex::default(),
            tls_required: Mutex::default(),
            events: Mutex::default(),
            traces: Mutex::default(),
            gave_up: AtomicBool::new(false),
            late_changes: AtomicU64::new(0),
            limits,
        })
    }

    pub(crate) fn configuration(&self) -> MutexGuard<'_, Configuration> {
        lock(&self.configuration)
    }

    pub(crate) fn controllers(&self) -> MutexGuard<'_, Controllers> {
        lock(&self.controllers)
    }

    /// Begins a change, after the previous one.
    pub(crate) fn changing(&self) -> MutexGuard<'_, ()> {
        lock(&self.changing)
    }

    /// Returns the reservations of namespaces that are added later.
    pub(crate) fn kept_reservations(&self) -> MutexGuard<'_, Vec<ReservationRecord>> {
        lock(&self.kept_reservations)
    }

    /// Returns the knobs; `None` until they are set.
    pub(crate) fn knobs(&self) -> MutexGuard<'_, Option<Knobs>> {
        lock(&self.knobs)
    }

    /// Returns the tenants of hosts, and their rights.
    pub(crate) fn rules(&self) -> Arc<AccessRules> {
        Arc::clone(&lock(&self.rules))
    }

    /// Sets the hosts that may connect only with TLS.
    pub(crate) fn require_tls(&self, hosts: BTreeSet<String>) {
        *lock(&self.tls_required) = Arc::new(hosts);
    }

    /// Returns the proofs of its name that a host has to give in a subsystem.
    pub(crate) fn required(&self, host: &str, subsystem: &Subsystem) -> Authentication {
        let of_subsystem = subsystem.lock().authentication;
        let of_tenant = self.rules().required(host, &subsystem.nqn);
        let of_host = Authentication {
            tls: lock(&self.tls_required).contains(host),
            chap: false,
        };
        of_subsystem.and(of_tenant).and(of_host)
    }

    /// Returns true if the host of a controller has to give a proof of its name that it has not given.
    pub(crate) fn is_unproven(&self, controller: &SharedController) -> bool {
        let subsystem = controller.subsystem.as_deref();
        subsystem.is_some_and(|subsystem| {
            let required = self.required(&controller.host_nqn, subsystem);
            !controller.standing().missing(required).is_none()
        })
    }

    /// Sets new rules; returns the former ones.
    pub(crate) fn set_rules(&self, rules: Arc<AccessRules>) -> Arc<AccessRules> {
        std::mem::replace(&mut lock(&self.rules), rules)
    }

    /// Sets the keys of hosts. Hosts that authenticated by a secret that is no longer valid have no
    /// proof by DH-HMAC-CHAP any more.
    pub(crate) fn set_key_ring(&self, keys: KeyRing) {
        self.keys.replace(keys);
        let keys = self.keys.current();
        for controller in self.controllers().iter() {
            controller.standing().check(&controller.host_nqn, &keys);
        }
    }

    /// Returns the mailboxes of all cores, in order.
    pub(crate) fn cores(&self) -> MutexGuard<'_, Vec<MailboxSender<Message>>> {
        lock(&self.cores)
    }

    /// Sends a message to one core; fails if that core does not exist or its mailbox is full.
    pub(crate) fn send(&self, core: usize, note: CoreMessage) -> Result<(), Message> {
        let sender = self.cores().get(core).cloned();
        match sender {
            Some(sender) => sender.send(Message(note)),
            None => Err(Message(note)),
        }
    }

    /// Sends a message that must not be lost to one core, even if its mailbox is full. The number
    /// of such messages is bounded by the connections, outstanding commands and changes, which are
    /// all limited.
    pub(crate) fn deliver(&self, core: usize, note: CoreMessage) {
        let sender = self.cores().get(core).cloned();
        match sender {
            Some(sender) => sender.send_always(Message(note)),
            None => tracing::error!(core, "no such core; dropped the message {note:?}"),
        }
    }

    /// Delivers a message to every core.
    pub(crate) fn deliver_all(&self, note: impl Fn() -> CoreMessage) {
        for sender in &*self.cores() {
            sender.send_always(Message(note()));
        }
    }

    /// Returns the first core whose mailbox is full.
    pub(crate) fn swamped(&self) -> Option<usize> {
        self.cores().iter().position(MailboxSender::is_full)
    }

    /// Keeps an event of this moment.
    pub(crate) fn note(&self, event: EventKind) {
        #[expect(clippy::disallowed_methods, reason = "the time of events, for people")]
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |since| since.as_millis());
        let now = u64::try_from(now).unwrap_or(u64::MAX);
        self.events().push(now, event);
    }

    /// Keeps the event that a host did not prove its name.
    pub(crate) fn note_refused(&self, host: Option<&str>, address: IpAddr, reason: String) {
        self.note(EventKind::AuthenticationRefused(RefusedHost {
            host: host.map(str::to_owned),
            address,
            reason,
        }));
    }

    pub(crate) fn events(&self) -> MutexGuard<'_, TargetEvents> {
        lock(&self.events)
    }

    /// Returns the open traces.
    pub(crate) fn traces(&self) -> MutexGuard<'_, Vec<Arc<Selection>>> {
        lock(&self.traces)
    }

    /// Posts steps to every core; each core acknowledges all of them with one acknowledgement.
    pub(crate) fn post(&self, steps: &[ChangeStep]) -> Arc<Ack> {
        let cores = self.cores().clone();
        let ack = Ack::new(cores.len());
        for core in cores {
            // A core that missed a change would differ from the other cores permanently.
            core.send_always(Message(CoreMessage::Change {
                steps: steps.to_vec(),
                debt: Pausing::new(&ack),
            }));
        }
        ack
    }

    /// Waits until all cores have applied a change, for at most the time of a change.
    pub(crate) fn wait(&self, ack: &Ack) -> Result<(), AckError> {
        self.wait_for(ack, self.limits.change_timeout.into())
    }

    /// Like [`wait`](Self::wait), for at most `left`, the remainder of that time.
    pub(crate) fn wait_for(&self, ack: &Ack, left: Duration) -> Result<(), AckError> {
        let done = ack.wait(left);
        if let Err(AckError::TimedOut { .. }) = done {
            self.late_changes.fetch_add(1, Ordering::Relaxed);
        }
        done
    }

    pub(crate) fn subsystem(&self, nqn: &str) -> Option<Arc<Subsystem>> {
        self.configuration().subsystems.get(nqn).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::registry::tests::controller;

    #[derive(Debug)]
    struct Awake;
    impl reactor::Wake for Awake {
        fn wake(&self) {}
    }

    /// Regression: after one core had ended while another was draining, a change waited for its
    /// full time, and the watchdog was not fed.
    #[test]
    fn a_core_that_has_ended_owes_no_acknowledgement() {
        let target = crate::Target::new(Limits::default(), 1).expect("the defaults are in range");
        let mailbox = reactor::Mailbox::new(Arc::new(Awake));
        let shared = &target.shared;
        *shared.cores() = vec![mailbox.sender()];
        let before = shared.post(&[ChangeStep::AskRules]);
        assert_eq!(before.poll(), None, "it is on its way");
        drop(mailbox);
        assert_eq!(before.poll(), Some(Ok(())), "the core never takes it");
        let after = shared.post(&[ChangeStep::AskRules]);
        assert_eq!(after.poll(), Some(Ok(())), "the core is gone");
        assert!(target.responds(Duration::ZERO));
    }

    /// Regression: a core with a temporarily full mailbox kept queues of ended controllers,
    /// continued after a shutdown, and did not notify its hosts of a change.
    #[test]
    fn a_full_mailbox_loses_no_end_and_no_change() {
        let target = crate::Target::new(Limits::default(), 1).expect("the defaults are in range");
        let mut mailbox = reactor::Mailbox::new(Arc::new(Awake));
        let shared = &target.shared;
        *shared.cores() = vec![mailbox.sender()];
        while shared.send(0, CoreMessage::Look).is_ok() {}
        let controller = controller(1);
        let connection = controller.admin.connection;
        shared.deliver(
            0,
            CoreMessage::EndQueue {
                connection,
                cntlid: 1,
            },
        );
        let change = shared.post(&[ChangeStep::AskRules]);
        assert_eq!(change.poll(), None, "it is on its way");
        target.discovery_changed();
        target.shutdown();
        let notes = std::iter::from_fn(|| mailbox.pop());
        let kept: Vec<_> = notes
            .filter(|n| !matches!(n.0, CoreMessage::Look))
            .collect();
        assert!(
            matches!(
                kept[..],
                [
                    Message(CoreMessage::EndQueue { cntlid: 1, .. }),
                    Message(CoreMessage::Change { .. }),
                    Message(CoreMessage::Notify { .. }),
                    Message(CoreMessage::Shutdown),
                ]
            ),
            "{kept:?}"
        );
    }
}
