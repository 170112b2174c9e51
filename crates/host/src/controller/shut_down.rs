//! The orderly end of an association. `[NVMe Base 2.0 §3.6.1]`

use super::{CHANNELS_CLOSE_TIME, Controller, ControllerState, Purpose};
use crate::limits::{SHUTDOWN_TIME, STATUS_POLL};
use crate::recovery::epoch::{Epoch, Phase};
use base::Time;
use reactor::Context;
use wire::fabrics::property::{Configuration, ControllerStatus};
use wire::fabrics::{FabricsCommand, Property, PropertyGet, PropertySet, PropertySize};
use wire::nvme::Completion;

impl Controller {
    /// Shuts down in order: first the channels, then the controller.
    pub(super) fn begin_shut_down(&mut self, cx: &mut Context<'_>) {
        match self.state() {
            ControllerState::Closed | ControllerState::ShuttingDown | ControllerState::Draining => {
                return;
            }
            ControllerState::Waiting => return self.end(),
            ControllerState::Connecting | ControllerState::SettingUp => {
                return self.lose(None, cx);
            }
            ControllerState::Live => {}
        }
        self.association.set_epoch(Epoch {
            generation: self.generation,
            phase: Phase::Gone,
        });
        // A controller that shuts down receives no other command.
        self.fences.part();
        self.enter(ControllerState::ShuttingDown, cx.now + CHANNELS_CLOSE_TIME);
        self.limit = cx.now + SHUTDOWN_TIME;
        self.setup.shutdown_asked = false;
    }

    pub(super) fn shutting_down(&mut self, cx: &mut Context<'_>) {
        if self.limit <= cx.now {
            return self.lose(None, cx);
        }
        let channels_open = self.association.open_connections() > 0;
        if !self.setup.shutdown_asked && (!channels_open || self.deadline <= cx.now) {
            self.setup.shutdown_asked = true;
            self.deadline = Time::NEVER;
            // CSS keeps its value: only a reset may change it.
            let command_sets = self
                .setup
                .capabilities
                .map_or(0, |found| found.command_sets);
            let normal = Configuration::enable(command_sets).with_shutdown(0b01);
            let set = PropertySet::configure(normal);
            self.ask_fabrics(Purpose::ShutDown, &FabricsCommand::PropertySet(set), cx);
        } else if self.setup.shutdown_asked && self.deadline <= cx.now {
            self.deadline = Time::NEVER;
            self.ask_status(Purpose::ShutDown, cx);
        }
    }

    pub(super) fn ask_status(&mut self, purpose: Purpose, cx: &mut Context<'_>) {
        let get = PropertyGet {
            size: PropertySize::Four,
            property: Property::CSTS,
        };
        self.ask_fabrics(purpose, &FabricsCommand::PropertyGet(get), cx);
    }

    pub(super) fn shut_down_answered(&mut self, completion: &Completion, cx: &mut Context<'_>) {
        if self.state() != ControllerState::ShuttingDown {
            return;
        }
        let status = ControllerStatus(completion.dword0());
        // The answer to Property Set has no value, so it never appears complete.
        if !completion.status.is_success() || status.shutdown() == 0b10 {
            return self.lose(None, cx);
        }
        self.deadline = cx.now + STATUS_POLL;
    }
}
