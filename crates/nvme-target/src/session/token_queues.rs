//! Where the commands of a connection wait for tokens: a seat in each namespace that is scheduled.
//!
//! Taken at Connect and on arrival from another core, taken anew when tenants or namespaces change,
//! given up when the socket is gone. Control path: asks the rules, asks devices, allocates. Must
//! never: leave a seat, or a command that waits in it, behind a connection that is gone.

use crate::qos::core::TenantSeat;
use crate::request::{Phase, Ticket};
use crate::service::core::CoreState;
use crate::session::connection::{Connection, Owner, State};
use std::collections::BTreeSet;

impl Connection {
    /// Where commands to a namespace wait; `None` where the host is nobody, or nobody is charged.
    #[inline]
    pub(crate) fn seat(&self, nsid: u32) -> Option<TenantSeat> {
        let index = (nsid as usize).wrapping_sub(1);
        self.seats.get(index).copied().flatten()
    }

    /// Takes the seats that the host has by the rules now in force. What waits where it does not
    /// belong any more goes through the gates of its namespace once more.
    pub(crate) fn reseat(&mut self, core: &mut CoreState) {
        if self.state == State::Closed {
            return;
        }
        let before = std::mem::take(&mut self.seats);
        let scheduled = core.scheduled(self.subsystem);
        if let Some(controller) = self.controller().filter(|_| !scheduled.is_empty()) {
            let whom = controller.whom(&core.shared.rules());
            for (nsid, scheduler) in scheduled {
                let tenant = whom.tenant(nsid);
                let seat = tenant.and_then(|tenant| core.tokens.seat(scheduler, tenant));
                self.seats.resize(nsid as usize, None);
                self.seats[nsid as usize - 1] = seat;
            }
        }
        let stays = |nsid: u32, seat| self.seat(nsid) == Some(seat);
        let left: BTreeSet<TenantSeat> = (1..)
            .zip(&before)
            .filter_map(|(nsid, seat)| seat.filter(|&seat| !stays(nsid, seat)))
            .collect();
        for ticket in self.stand_up(left, core) {
            // As one whose namespace was paused, and is no more.
            self.qpair.slot(ticket.slot).phase = Phase::WaitingForNamespace;
            core.released.push_back(ticket);
        }
        for seat in before.into_iter().flatten() {
            core.tokens.unseat(seat);
        }
    }

    /// An I/O queue is among those of its tenants from now on, by the rules now in force.
    pub(crate) fn enroll(&mut self, core: &mut CoreState) {
        self.strike_off(core);
        if let Owner::Io(controller) = &self.owner {
            let scopes = controller.scopes(&core.shared.rules());
            core.barriers.join(&scopes, self.key);
            self.scopes = Some(scopes);
        }
    }

    /// It is among them no more, and no barrier waits for its commands.
    pub(crate) fn strike_off(&mut self, core: &mut CoreState) {
        let Some(scopes) = self.scopes.take() else {
            return;
        };
        core.barriers.part(&scopes, self.key);
        for entry in self.qpair.taken_mut() {
            let marks = std::mem::take(&mut entry.marks);
            if marks != 0 {
                core.barriers.passed(marks);
            }
        }
    }

    /// The connection is gone: nothing of it waits for tokens any more.
    pub(super) fn give_up_seats(&mut self, core: &mut CoreState) {
        let seats = std::mem::take(&mut self.seats);
        let left = seats.iter().copied().flatten().collect();
        self.stand_up(left, core);
        for seat in seats.into_iter().flatten() {
            core.tokens.unseat(seat);
        }
    }

    /// Takes out what waits in seats.
    fn stand_up(&self, seats: BTreeSet<TenantSeat>, core: &mut CoreState) -> Vec<Ticket> {
        let key = self.key;
        let mut taken = Vec::new();
        if self.qpair.used() > 0 {
            for seat in seats {
                let ours = |ticket: Ticket| ticket.connection == key;
                core.tokens.withdraw(seat, ours, &mut taken);
            }
        }
        taken
    }
}
