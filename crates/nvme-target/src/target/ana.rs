//! Asymmetric Namespace Access: states of groups of namespaces. `[NVMe Base 2.0 §8.1]`

use super::{Target, check_ana_group};
use crate::change::step::{AfterPause, ChangeStep};
use crate::controller::async_events::Notice;
use crate::error::TargetError;
use crate::message::CoreMessage;
use wire::nvme::ana::AnaState;

impl Target {
    /// Sets the state of an ANA group of a subsystem; hosts are notified.
    ///
    /// Before a state in which commands are refused, the commands in flight finish, and
    /// `write_back` is called, which makes acknowledged writes durable for whoever serves the group
    /// next. When this returns, no core executes a command of the group, and later ones are
    /// refused.
    ///
    /// # Errors
    /// [`TargetError::NoSubsystem`], a group that is out of range, an error of `write_back`, or a
    /// core that did not follow in time: then the state is as before.
    /// [`TargetError::NotUndone`] if the state is set, but a core does not execute the commands
    /// that waited for it.
    pub fn set_ana_state(
        &self,
        nqn: &str,
        group: u32,
        state: AnaState,
        write_back: impl FnOnce() -> Result<(), TargetError>,
    ) -> Result<(), TargetError> {
        let _order = self.change()?;
        check_ana_group(group)?;
        let subsystem = self.subsystem(nqn)?;
        let (before, _) = subsystem.lock().ana.get(group);
        let mut namespaces = subsystem.namespaces();
        namespaces.retain(|namespace| namespace.options.ana_group == group);
        let resume = || {
            let steps = namespaces.iter().map(|namespace| {
                ChangeStep::Resume(subsystem.index, namespace.nsid(), AfterPause::Keep)
            });
            steps.collect::<Vec<_>>()
        };
        if before.is_accessible() && !state.is_accessible() {
            let paused = namespaces.iter().try_for_each(|namespace| {
                let pause = ChangeStep::Pause(subsystem.index, namespace.nsid());
                self.apply(&[pause]).map_err(TargetError::from)
            });
            if let Err(error) = paused.and_then(|()| write_back()) {
                self.shared.post(&resume());
                return Err(error);
            }
        }
        subsystem.lock().ana.set(group, state);
        for namespace in &namespaces {
            namespace.set_ana(state);
        }
        let resumed = self.apply(&resume());
        self.shared.deliver_all(|| CoreMessage::Notify {
            subsystem: Some(subsystem.index),
            notice: Notice::Ana,
        });
        resumed.map_err(|error| TargetError::NotUndone(error.to_string()))
    }
}
