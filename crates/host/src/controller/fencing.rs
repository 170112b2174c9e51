//! The controller's side of fences: raised at a loss, lowered when the target confirms the end of a
//! lost association or must have ended it (docs/design/decisions/0004-replay.md).

use super::SetupStep;
use super::{Controller, ControllerState, PURPOSE_BITS, Purpose};
use crate::command::exchange::Exchange;
use crate::error::ConnectionError;
use crate::limits::{ASK_AGAIN, FENCES_MAX};
use base::Time;
use reactor::Context;
use wire::nvme::Status;
use wire::nvme::vendor::EndController;

/// First fence number that belongs to no association of this process. Fits into a tag.
const INHERITED: u64 = 1 << 48;

/// Name of the command that confirms the end of a lost association.
const END_CONTROLLER: &str = "End Controller (writes of a lost connection may still be in progress \
    in the target)";

/// Name of the event that replaces it with controllers that do not support that command.
const KEEP_ALIVE_EXPIRY: &str = "expiry of a lost controller's keep-alive timer (its writes may \
    still be in progress in the target)";

impl Controller {
    /// Requests the end of the lost associations and continues meanwhile: only requests that were
    /// lost with them wait (docs/design/decisions/0004-replay.md).
    pub(super) fn fence(&mut self, cx: &mut Context<'_>) {
        self.setup.step = SetupStep::Fence;
        self.fences.meet(&self.setup.parameters, cx.now);
        self.fences.expire(cx.now);
        self.association.set_fences(&self.fences);
        if self.ask_for_ends(cx) {
            self.pass_fences(cx);
        }
    }

    /// Sends each End Controller that is due. Returns false if the association was lost by that.
    pub(super) fn ask_for_ends(&mut self, cx: &mut Context<'_>) -> bool {
        while let Some(fence) = self.fences.take_due(cx.now) {
            let end = EndController {
                controller_id: fence.cntlid,
            };
            let tag = Purpose::Fence as u64 | fence.generation << PURPOSE_BITS;
            let exchange = Exchange::admin(tag, end.encode(0), None);
            if !self.qpair.has_room() {
                self.lose(None, cx);
                return false;
            }
            // No time-out: the target's device may take any time.
            self.qpair.start_until(exchange, Time::NEVER);
        }
        true
    }

    fn pass_fences(&mut self, cx: &mut Context<'_>) {
        if self.fences.len() <= FENCES_MAX {
            self.ask_queues(cx);
        }
    }

    /// Handles the answer to an End Controller.
    pub(super) fn fence_answered(&mut self, generation: u64, status: Status, cx: &mut Context<'_>) {
        // Our identifier, but not our controller: it was assigned anew after ours had ended.
        let of_others = status.type_and_code() == Status::INVALID_FIELD.type_and_code();
        if !status.is_success() && !of_others {
            let what = "End Controller";
            let error = ConnectionError::Refused { what, status };
            // The answer may have come with the end of its association, which sends no more
            // requests.
            let is_up = matches!(
                self.state(),
                ControllerState::SettingUp | ControllerState::Live
            );
            if is_up && !status.dnr() {
                self.fences.ask_again(generation, cx.now + ASK_AGAIN);
            }
            return self.association.set_error(Some(error));
        }
        self.fences.lower(generation);
        self.fences_fell(cx);
    }

    fn fences_fell(&mut self, cx: &mut Context<'_>) {
        self.association.set_fences(&self.fences);
        if self.state() == ControllerState::SettingUp && self.setup.step == SetupStep::Fence {
            self.pass_fences(cx);
        }
    }

    /// Lowers the fences of associations that must have ended by themselves, if this controller
    /// cannot end them.
    pub(super) fn look_for_expired_fences(&mut self, cx: &mut Context<'_>) {
        if self.fences.expire(cx.now) {
            self.fences_fell(cx);
        }
    }

    /// Raises a fence for the lost association: its commands may still take effect.
    pub(super) fn raise_fence(&mut self, now: Time) {
        if self.options().is_discovery() {
            return;
        }
        let parameters = &self.setup.parameters;
        self.fences.raise(self.generation, parameters, now);
        self.association.set_fences(&self.fences);
    }

    /// Raises fences for the controllers that another process left.
    pub(super) fn inherit(&mut self, now: Time) {
        let inherited = self.association.take_inherited();
        for (number, controller) in (INHERITED..).zip(inherited) {
            self.fences.inherit(number, controller, now);
        }
    }

    /// Returns the name of the event for which the fences wait.
    pub(super) fn fence_awaits(&self) -> &'static str {
        if self.fences.any_expires() {
            KEEP_ALIVE_EXPIRY
        } else {
            END_CONTROLLER
        }
    }

    /// Marks overdue fences: writes wait for a fence no longer than the loss timeout.
    pub(super) fn look_for_overdue_fences(&mut self, now: Time) {
        let Some(limit) = self.options().loss_timeout else {
            return;
        };
        if self.fences.mark_overdue(now, limit) {
            let error = ConnectionError::TimedOut {
                address: self.association.address(),
                what: self.fence_awaits(),
                seconds: limit.0 / 1_000_000_000,
            };
            self.association.set_error(Some(error));
            self.association.set_fences(&self.fences);
        }
    }

    /// Returns the next time at which a fence becomes overdue, is lowered, or End Controller is
    /// sent.
    pub(super) fn next_fence(&self) -> Time {
        let limit = self.options().loss_timeout;
        let overdue = limit.map_or(Time::NEVER, |limit| self.fences.next_overdue(limit));
        overdue
            .min(self.fences.next_expiry())
            .min(self.fences.next_ask())
    }
}
