//! The keep-alive timer of an association. `[NVMe Base 2.0 §3.9]`

use super::{Controller, Purpose};
use base::mutation::{self, Mutation};
use base::{Nanos, Time};
use reactor::Context;
use wire::nvme::AdminCommand;

impl Controller {
    /// Returns the time of the next Keep Alive after one at `now`: half of the time-out later.
    pub(super) fn next_keep_alive(&self, now: Time) -> Time {
        match self.options().keep_alive {
            _ if mutation::active(Mutation::KeepAliveNotSent) => Time::NEVER,
            Nanos::ZERO => Time::NEVER,
            keep_alive => now + Nanos(keep_alive.0 / 2),
        }
    }

    /// Sends a Keep Alive when it is due.
    pub(super) fn keep_alive(&mut self, cx: &mut Context<'_>) {
        if self.keep_alive_at > cx.now {
            return;
        }
        if self.keep_alive_out {
            // The next one leaves when this one is answered.
            self.keep_alive_at = Time::NEVER;
            return;
        }
        // [NVMe Base 2.0 §3.9]: also where traffic counts. What came from the controller answers
        // what it received a while ago, so it does not say how long it has heard nothing.
        self.keep_alive_out = true;
        self.ask_admin(Purpose::KeepAlive, &AdminCommand::KeepAlive, 0, cx);
        self.keep_alive_at = self.next_keep_alive(cx.now);
    }

    /// Takes note of the answer to a Keep Alive.
    pub(super) fn kept_alive(&mut self, now: Time) {
        self.keep_alive_out = false;
        if self.keep_alive_at == Time::NEVER {
            self.keep_alive_at = now;
        }
    }
}
