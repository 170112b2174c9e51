//! Adding and removing subsystems.

use super::check_ana_group;
use super::{RETRY, Target, check_name, check_namespace};
use crate::change::ack::{Ack, AckError};
use crate::change::step::ChangeStep;
use crate::error::TargetError;
use crate::limits::SUBSYSTEMS_MAX;
use crate::subsystem::{Subsystem, SubsystemOptions};
use std::collections::BTreeSet;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

impl Target {
    /// Adds a subsystem with its namespaces. Hosts see it with all its namespaces or not at all;
    /// otherwise a reconnecting host would take missing namespaces for removed ones.
    ///
    /// # Errors
    /// An invalid or existing name, texts that are too long, too many subsystems, or an error of
    /// [`add_namespace`](Self::add_namespace) for one of its namespaces. Then nothing is added.
    pub fn add_subsystem(&self, options: SubsystemOptions) -> Result<(), TargetError> {
        let _order = self.change()?;
        check(&options)?;
        let index = self.free_index(&options.nqn)?;
        let subsystem = Arc::new(Subsystem::new(index, options, self.cores));
        let namespaces = subsystem.namespaces();
        for namespace in &namespaces {
            self.restore_reservations(&subsystem.nqn, namespace);
        }
        self.promise_with(&subsystem.nqn, &namespaces)?;
        if let Err(error) = self.apply(&ChangeStep::all_of(&subsystem)) {
            // Some cores may have it.
            self.retire(&subsystem);
            self.promise_without(namespaces.iter());
            return Err(error.into());
        }
        let name = subsystem.nqn.clone();
        self.shared
            .configuration()
            .subsystems
            .insert(name, subsystem);
        if namespaces.iter().any(|n| n.options.qos.is_some()) {
            self.tenant_wake.poke();
        }
        self.discovery_changed();
        Ok(())
    }

    /// Returns a free index for a new subsystem of this name.
    fn free_index(&self, nqn: &str) -> Result<u32, TargetError> {
        let configuration = self.shared.configuration();
        if configuration.subsystems.contains_key(nqn) {
            return Err(TargetError::Exists(nqn.to_owned()));
        }
        if configuration.subsystems.len() >= SUBSYSTEMS_MAX {
            let reason = format!("a target has at most {SUBSYSTEMS_MAX} subsystems");
            return Err(TargetError::Invalid(reason));
        }
        // The index of a removed subsystem is reused once every core has released it.
        let mut leaving = self.leaving();
        leaving.retain(|(_, ack)| !matches!(ack.poll(), Some(Ok(()))));
        let taken = |index| {
            let mut used = configuration.subsystems.values().map(|s| s.index);
            used.any(|other| other == index) || leaving.iter().any(|(i, _)| *i == index)
        };
        let mut free = (0..).filter(|&index| !taken(index));
        Ok(free.next().expect("there are 2^32 places"))
    }

    /// Removes a subsystem: its outstanding commands are answered, then its connections close. If
    /// that exceeds the time for a change because a device does not answer, the subsystem is still
    /// removed for hosts and the control plane, and its devices are released later.
    ///
    /// # Errors
    /// [`TargetError::NoSubsystem`].
    pub fn remove_subsystem(&self, nqn: &str) -> Result<(), TargetError> {
        let _order = self.change()?;
        let subsystem = self.subsystem(nqn)?;
        self.retire(&subsystem);
        self.shared.configuration().subsystems.remove(nqn);
        for namespace in subsystem.namespaces() {
            self.retain_reservations(nqn, &namespace);
        }
        self.promise_without(subsystem.namespaces().iter());
        self.discovery_changed();
        Ok(())
    }

    fn leaving(&self) -> MutexGuard<'_, Vec<(u32, Arc<Ack>)>> {
        // Entries are added and removed as a whole.
        self.leaving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes every core drop a subsystem. This cannot be undone: if a core exceeds the time for a
    /// change, the index is kept until that core has finished.
    fn retire(&self, subsystem: &Subsystem) {
        subsystem.lock().removed = true;
        let begun = Instant::now();
        let timeout: Duration = self.shared.limits.change_timeout.into();
        loop {
            let ack = self
                .shared
                .post(&[ChangeStep::RemoveSubsystem(subsystem.index)]);
            let left = timeout.saturating_sub(begun.elapsed());
            let Err(error) = self.shared.wait_for(&ack, left) else {
                return;
            };
            if matches!(error, AckError::Failed(_)) && begun.elapsed() < timeout {
                // A core did not take the message; posting again does not repeat the step on the
                // other cores.
                std::thread::sleep(RETRY);
                continue;
            }
            let nqn = &subsystem.nqn;
            tracing::warn!(nqn, %error, "a removed subsystem is still in use by a core");
            self.leaving().push((subsystem.index, ack));
            return;
        }
    }

    /// Sets the life of a subsystem's write caches for Identify, in place of the
    /// [target's](crate::Limits::cache_life). Call it before adding a namespace whose device can
    /// lose data that the target's other devices keep. It is safe while hosts are connected: they
    /// read Identify again when the namespace is added.
    ///
    /// # Errors
    /// [`TargetError::NoSubsystem`].
    pub fn set_cache_life(&self, nqn: &str, life: u64) -> Result<(), TargetError> {
        self.subsystem(nqn)?.lock().cache_life = Some(life);
        Ok(())
    }
}

/// Checks names, texts and identifiers of a new subsystem.
fn check(options: &SubsystemOptions) -> Result<(), TargetError> {
    let nqn = &options.nqn;
    if check_name(nqn)?.is_discovery() {
        return Err(TargetError::Exists(nqn.clone()));
    }
    for host in &options.allowed_hosts {
        check_name(host)?;
    }
    if options.serial.len() > 20 || options.model.len() > 40 {
        let reason = "a serial number has at most 20 characters, a model number 40";
        return Err(TargetError::Invalid(reason.to_owned()));
    }
    let groups = options.ana_groups.keys();
    groups.copied().try_for_each(check_ana_group)?;
    let mut known = BTreeSet::new();
    for namespace in &options.namespaces {
        let nsid = namespace.nsid;
        check_namespace(nqn, nsid, !known.insert(nsid))?;
        check_ana_group(namespace.ana_group)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::async_events::Notice;
    use crate::limits::Limits;
    use crate::message::{CoreMessage, Message};
    use crate::namespace::NamespaceOptions;
    use block::device::Ram;
    use reactor::Mailbox;

    const NQN: &str = "nqn.2026-11.com.example:a";

    #[derive(Debug)]
    struct Awake;

    impl reactor::Wake for Awake {
        fn wake(&self) {}
    }

    fn with_namespaces(nsids: &[u32]) -> SubsystemOptions {
        let namespace = |&nsid| NamespaceOptions {
            nsid,
            device: Arc::new(Ram::new(1 << 20, 4096).expect("1 MiB")),
            uuid: [1; 16],
            nguid: [0; 16],
            eui64: [0; 8],
            read_only: false,
            ana_group: 1,
            qos: None,
        };
        SubsystemOptions {
            namespaces: nsids.iter().map(namespace).collect(),
            ..SubsystemOptions::open_to_all(NQN)
        }
    }

    /// Adds a subsystem with two namespaces to a target with one core, whose messages are passed to
    /// `core`. Returns the outcome.
    fn add(target: &Target, mut core: impl FnMut(CoreMessage)) -> Result<(), TargetError> {
        let mut mailbox = Mailbox::new(Arc::new(Awake));
        *target.shared.cores() = vec![mailbox.sender()];
        std::thread::scope(|scope| {
            let change = scope.spawn(|| target.add_subsystem(with_namespaces(&[1, 7])));
            loop {
                let done = change.is_finished();
                while let Some(Message(message)) = mailbox.pop() {
                    core(message);
                }
                if done {
                    break;
                }
                std::thread::yield_now();
            }
            change.join().expect("no panic")
        })
    }

    /// Regression: a host that reconnected when the subsystem existed without its namespaces took
    /// them for removed.
    #[test]
    fn hosts_find_a_subsystem_when_every_core_has_its_namespaces() {
        let target = Target::new(Limits::default(), 1).expect("the defaults are in range");
        let found = || {
            let subsystem = target.shared.subsystem(NQN)?;
            let namespaces = subsystem.namespaces();
            Some(namespaces.iter().map(|n| n.nsid()).collect::<Vec<_>>())
        };
        let mut told = Vec::new();
        let added = add(&target, |message| match message {
            CoreMessage::Change { steps, debt } => {
                assert_eq!(found(), None, "no core has it yet");
                assert!(
                    matches!(
                        steps[..],
                        [
                            ChangeStep::AddSubsystem(_),
                            ChangeStep::AddNamespace(0, _),
                            ChangeStep::AddNamespace(0, _)
                        ]
                    ),
                    "{steps:?}"
                );
                told.push("change");
                drop(debt);
            }
            CoreMessage::Notify { subsystem, notice } => {
                assert_eq!((subsystem, notice), (None, Notice::Discovery));
                assert_eq!(found(), Some(vec![1, 7]));
                told.push("notice");
            }
            other => panic!("{other:?}"),
        });
        added.expect("a new subsystem");
        assert_eq!(told, ["change", "notice"]);
    }

    #[test]
    fn a_subsystem_of_which_a_core_cannot_open_a_namespace_was_never_there() {
        let target = Target::new(Limits::default(), 1).expect("the defaults are in range");
        let mut told = Vec::new();
        let added = add(&target, |message| match message {
            CoreMessage::Change { steps, mut debt } => {
                assert!(target.shared.subsystem(NQN).is_none());
                let removes = matches!(steps[..], [ChangeStep::RemoveSubsystem(0)]);
                if !removes {
                    debt.fail("no such file".to_owned());
                }
                told.push(removes);
            }
            other => panic!("{other:?}"),
        });
        assert!(matches!(added, Err(TargetError::Undone(_))), "{added:?}");
        assert_eq!(told, [false, true]);
        assert!(target.shared.subsystem(NQN).is_none());
    }

    #[test]
    fn namespaces_of_a_subsystem_have_identifiers_of_their_own() {
        let target = Target::new(Limits::default(), 1).expect("the defaults are in range");
        for (nsids, reason) in [
            (&[1, 2, 1][..], "namespace 1 of"),
            (&[0], "ID 0 is out of range"),
            (&[1025], "ID 1025 is out of range"),
        ] {
            let refused = target.add_subsystem(with_namespaces(nsids));
            let error = refused.expect_err("it makes no sense").to_string();
            assert!(error.contains(reason), "{error}");
            assert!(target.shared.subsystem(NQN).is_none());
        }
        let added = target.add_subsystem(with_namespaces(&[1024, 1]));
        added.expect("a new subsystem");
    }
}
