//! Tenants of a target and their SLOs on its devices. `[ReFlex §4.3]`
//!
//! A tenant is declared once, and has an account on every device of which it can use a namespace;
//! so the declarations of a device change with the tenancy and with the namespaces on it. A tenant
//! that exceeds one device's capacity is refused on all devices. Invariant: all devices have the
//! former SLOs, or all have the new ones.

use crate::change::step::ChangeStep;
use crate::error::TargetError;
use crate::events::TargetEvent;
use crate::limits::SLO_WINDOW;
use crate::namespace::Namespace;
use crate::qos::access::{AccessRules, Tenancy};
use crate::qos::device::DeviceQos;
use crate::target::wake::Wake;
use crate::target::{Target, check_name};
use qos::limits::OVERRUN_WINDOW;
use std::sync::Arc;
use std::time::Instant;

/// A device, and its namespaces by subsystem.
type Used = (Arc<DeviceQos>, Vec<(String, u32)>);

impl Target {
    /// Declares the tenants: their hosts, the blocks that each may use, and its SLO or weight. From
    /// the next command on, every queue is checked and scheduled by them. Hosts that lose access
    /// lose their controllers, and requests that wait for tokens wait in the queue of their host's
    /// new tenant.
    ///
    /// # Errors
    /// [`TargetError::Invalid`] or [`TargetError::Name`] if the declaration is invalid;
    /// [`TargetError::Refused`] if a device cannot meet an SLO in addition to all others;
    /// [`TargetError::Undone`] if a core did not follow in time. Then nothing has changed.
    pub fn set_tenants(&self, tenancy: &Tenancy) -> Result<(), TargetError> {
        let _order = self.change()?;
        for host in tenancy.tenants.iter().flat_map(|tenant| &tenant.hosts) {
            check_name(host)?;
        }
        let rules = Arc::new(AccessRules::new(tenancy)?);
        let others = self.promise(&self.scheduled_devices(), &rules)?;
        let before = self.shared.set_rules(Arc::clone(&rules));
        if !others && rules.same_but_for_promises(&before) {
            // Only the accounts changed: the cores read them in their next rounds.
            return Ok(());
        }
        let controllers: Vec<_> = self.shared.controllers().iter().cloned().collect();
        // Decided here, so that the cores find the result cached.
        for controller in controllers {
            controller.decide(&rules);
        }
        if let Err(error) = self.apply(&[ChangeStep::AskRules]) {
            self.shared.set_rules(before);
            self.promise_again(self.scheduled_devices());
            self.shared.post(&[ChangeStep::AskRules]);
            return Err(error.into());
        }
        self.end_denied();
        self.discovery_changed();
        Ok(())
    }

    /// Checks the tenants' demand against their SLOs. Called every [`qos::limits::OVERRUN_WINDOW`];
    /// with `window_ends`, every [`SLO_WINDOW`](crate::limits::SLO_WINDOW), it also judges the SLOs
    /// by the reads since the last window. [`RunningTarget`](crate::RunningTarget) calls it by
    /// itself.
    pub fn look_at_tenants(&self, window_ends: bool) {
        for (qos, _) in self.scheduled_devices() {
            for event in qos.look(window_ends) {
                self.shared.note(event);
            }
        }
    }

    /// Returns the events with numbers above `after` (0: all), oldest first. The target
    /// keeps the last [`EVENTS_MAX`](crate::limits::EVENTS_MAX); a gap in the numbers
    /// means dropped events.
    #[must_use]
    pub fn events(&self, after: u64) -> Vec<TargetEvent> {
        self.shared.events().after(after)
    }

    /// Declares the tenants that can use new namespaces on the devices of those namespaces.
    ///
    /// # Errors
    /// [`TargetError::Refused`].
    pub(crate) fn promise_with(
        &self,
        nqn: &str,
        coming: &[Arc<Namespace>],
    ) -> Result<(), TargetError> {
        let mut devices = self.scheduled_devices();
        for namespace in coming {
            use_device(&mut devices, nqn, namespace);
        }
        let theirs = coming.iter().filter_map(|n| n.options.qos.as_ref());
        devices.retain(|(qos, _)| theirs.clone().any(|other| Arc::ptr_eq(other, qos)));
        self.promise(&devices, &self.shared.rules()).map(drop)
    }

    /// Releases the declarations that only namespaces which were removed, or not added, required.
    pub(crate) fn promise_without<'a>(&self, gone: impl Iterator<Item = &'a Arc<Namespace>>) {
        let devices = gone.filter_map(|namespace| namespace.options.qos.as_ref());
        self.promise_again(devices.map(|qos| self.used(qos)).collect());
    }

    /// Applies the current rules to devices after namespaces were removed, which never adds a
    /// reservation.
    fn promise_again(&self, devices: Vec<Used>) {
        if let Err(error) = self.promise(&devices, &self.shared.rules()) {
            tracing::error!(%error, "a device can no longer meet the SLOs of its tenants");
        }
    }

    /// Declares on all given devices, or on none, the tenants that can have hosts there by `rules`.
    /// Returns true if a tenant's account changed.
    fn promise(&self, devices: &[Used], rules: &AccessRules) -> Result<bool, TargetError> {
        let mut others = false;
        for (at, (qos, namespaces)) in devices.iter().enumerate() {
            match qos.replace(&rules.declared(namespaces)) {
                Ok(changed) => others |= changed,
                Err((tenant, refusal)) => {
                    let done = devices[..at].iter().map(|(done, _)| self.used(done));
                    self.promise_again(done.collect());
                    if others {
                        self.shared.post(&[ChangeStep::AskRules]);
                    }
                    return Err(TargetError::Refused {
                        tenant,
                        device: qos.name().to_owned(),
                        refusal,
                    });
                }
            }
        }
        Ok(others)
    }

    /// Returns every scheduled device.
    pub(crate) fn scheduled_devices(&self) -> Vec<Used> {
        let mut devices: Vec<Used> = Vec::new();
        for subsystem in self.shared.configuration().subsystems.values() {
            for namespace in subsystem.namespaces() {
                use_device(&mut devices, &subsystem.nqn, &namespace);
            }
        }
        devices
    }

    /// Returns true if any device is scheduled.
    pub(crate) fn is_anything_scheduled(&self) -> bool {
        let configuration = self.shared.configuration();
        let mut subsystems = configuration.subsystems.values();
        subsystems.any(|subsystem| {
            let changing = subsystem.lock();
            changing
                .namespaces
                .values()
                .any(|n| n.options.qos.is_some())
        })
    }

    /// Returns a device with its namespaces.
    fn used(&self, qos: &Arc<DeviceQos>) -> Used {
        let mut devices = self.scheduled_devices().into_iter();
        let found = devices.find(|(other, _)| Arc::ptr_eq(other, qos));
        found.unwrap_or_else(|| (Arc::clone(qos), Vec::new()))
    }
}

/// Adds a namespace to its device's entry if the device is scheduled.
fn use_device(devices: &mut Vec<Used>, nqn: &str, namespace: &Namespace) {
    let Some(qos) = &namespace.options.qos else {
        return;
    };
    let user = (nqn.to_owned(), namespace.nsid());
    let mut known = devices.iter_mut();
    match known.find(|(other, _)| Arc::ptr_eq(other, qos)) {
        Some((_, users)) => users.push(user),
        None => devices.push((Arc::clone(qos), vec![user])),
    }
}

/// Ends the thread that checks tenants when dropped.
#[derive(Debug)]
pub(crate) struct Watch(Arc<Wake>);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Starts the thread that periodically checks tenants, until the returned value is dropped.
pub(crate) fn start(target: &Arc<Target>) -> Watch {
    let watch = Watch(Arc::clone(&target.tenant_wake));
    let target = Arc::clone(target);
    let look = move || {
        let mut window = Instant::now();
        let watched = || target.is_anything_scheduled();
        while target.tenant_wake.sleep(OVERRUN_WINDOW.into(), watched) {
            let window_ends = window.elapsed() >= SLO_WINDOW.into();
            if window_ends {
                window = Instant::now();
            }
            target.look_at_tenants(window_ends);
        }
    };
    let thread = std::thread::Builder::new().name("tenants".to_owned());
    if let Err(error) = thread.spawn(look) {
        tracing::error!(%error, "cannot start the thread that checks SLOs");
    }
    watch
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::registry::{ConnectionPlace, ControllerKind, SharedController};
    use crate::limits::Limits;
    use crate::message::CoreMessage;
    use crate::qos::access::Others;
    use crate::subsystem::SubsystemOptions;
    use base::SlabKey;
    use std::net::SocketAddr;

    const NQN: &str = "nqn.2026-11.com.example:a";

    #[derive(Debug)]
    struct Awake;

    impl reactor::Wake for Awake {
        fn wake(&self) {}
    }

    /// A host may have a thousand controllers. Regression: each had its own message, for which the
    /// core scanned all its connections.
    #[test]
    fn one_message_ends_all_controllers_that_a_change_refuses() {
        let target = Target::new(Limits::default(), 1).expect("the defaults are in range");
        let options = SubsystemOptions::open_to_all(NQN);
        target.add_subsystem(options).expect("a new subsystem");
        let subsystem = target.shared.subsystem(NQN);
        for host in 0..100 {
            let make = |id| {
                let host = (format!("nqn.host{host}"), [1; 16]);
                let peer = SocketAddr::from(([127, 0, 0, 1], 1));
                let connection = SlabKey {
                    index: u32::from(id),
                    generation: 0,
                };
                let admin = ConnectionPlace {
                    core: 0,
                    connection,
                };
                SharedController::new(
                    id,
                    ControllerKind::Io,
                    subsystem.clone(),
                    host,
                    peer,
                    admin,
                    0,
                )
            };
            let made = target
                .shared
                .controllers()
                .insert(&target.shared.limits, make);
            assert!(made.is_some());
        }
        let mut mailbox = reactor::Mailbox::new(Arc::new(Awake));
        *target.shared.cores() = vec![mailbox.sender()];
        let refused = Tenancy {
            others: Others::Refuse,
            ..Tenancy::default()
        };
        let mut ends = 0;
        std::thread::scope(|scope| {
            let change = scope.spawn(|| {
                let changed = target.set_tenants(&refused);
                changed.and_then(|()| target.allow_any_host(NQN, false))
            });
            loop {
                let done = change.is_finished();
                while let Some(message) = mailbox.pop() {
                    match message.0 {
                        CoreMessage::Change { .. } | CoreMessage::Notify { .. } => {}
                        other => {
                            assert!(matches!(other, CoreMessage::EndDenied), "{other:?}");
                            ends += 1;
                        }
                    }
                }
                if done {
                    break;
                }
                std::thread::yield_now();
            }
            change.join().expect("no panic").expect("no error");
        });
        assert_eq!(ends, 2, "one for each change");
    }
}
