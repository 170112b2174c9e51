//! A connection: its socket, its framer, its queue pair, and what it is for.
//!
//! Owned by its core's poll group, which calls it with what the driver brought. It never blocks,
//! and whatever its peer sends, the worst that happens is that this connection ends.

use crate::barrier::registry::Scopes;
use crate::controller::Controller;
use crate::controller::registry::SharedController;
use crate::message::Note;
use crate::permit::ConnectionPermit;
use crate::qos::access::Rights;
use crate::qos::core::TenantSeat;
use crate::request::{Kind, Phase};
use crate::service::core::{Action, CoreState};
use crate::session::handover::Moving;
use crate::session::input::{Incoming, Receiving, Stalled};
use crate::session::output::Output;
use crate::session::qpair::Qpair;
use crate::session::transfer;
use crate::shares::{Holding, Purpose};
use crate::stats::CoreStats;
use crate::switch::demand::Demand;
use crate::switch::threads::Counted;
use base::{SlabKey, Time};
use reactor::{Context, Op, OpKey, SocketId};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::sync::Arc;
use switch::Class;
use switch::doorbell::{Mode, Urgency};
use wire::tcp::framer::{Framer, FramerLimits, Role as End};
use wire::tcp::limits::ADMIN_IN_CAPSULE_BYTES;
use wire::tcp::{DataAlignment, IcReq, IcResp, PduFormat};

/// Kind of the operation that closes.
pub(crate) const CLOSE: u8 = 3;

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum State {
    /// The host has to send ICReq.
    Opening,
    /// The host has to send Connect.
    Fresh,
    /// The queue pair is connected.
    Live,
    /// Commands are carried out no more; those under way are answered, then it closes.
    Draining,
    /// We sent a termination request; the host closes, or else we do.
    Terminating,
    /// The driver closes the socket.
    Closing,
    /// The socket is gone; commands may still be in a device.
    Closed,
}

/// What the queue pair belongs to.
#[derive(Debug)]
pub(crate) enum Owner {
    /// Connect has not come yet.
    Nobody,
    /// It is the admin queue of this controller.
    Admin(Box<Controller>),
    /// It is an I/O queue of this controller.
    Io(Arc<SharedController>),
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) key: SlabKey,
    pub(crate) socket: SocketId,
    pub(crate) peer: SocketAddr,
    /// Our end's address, where it is known.
    pub(crate) local: Option<SocketAddr>,
    pub(crate) state: State,
    pub(crate) owner: Owner,
    /// Where the core keeps the subsystem.
    pub(crate) subsystem: u32,
    /// What the commands of an I/O queue are checked against; `None` where all may be.
    pub(crate) rights: Option<Arc<Rights>>,
    /// Where its commands wait for tokens, by namespace identifier less one.
    pub(super) seats: Vec<Option<TenantSeat>>,
    /// Whose the commands of an I/O queue are to barriers.
    pub(crate) scopes: Option<Arc<Scopes>>,
    pub(crate) qpair: Qpair,
    pub(crate) framer: Framer,
    pub(crate) output: Output,
    pub(crate) incoming: Incoming,
    /// R2Ts that the host allows for one command.
    pub(crate) r2ts_max: u16,
    /// What an I/O queue asks for.
    pub(crate) demand: Demand,
    /// The thread on whose core an I/O queue's packets came in when it was connected, if that is
    /// one of the first 256.
    pub(crate) home: Option<u8>,
    /// Buffers of the core that it holds.
    pub(crate) holding: Holding,
    /// Commands that wait for H2CData.
    pub(crate) transferring: u32,
    /// The host said what class of commands the queue carries.
    pub(super) named: bool,
    /// Counted among the core's fresh connections.
    fresh: bool,
    /// Counted no more among those of its controller that may change something.
    disarmed: bool,
    pub(super) receiving: Receiving,
    /// Bytes that one receive takes at most, beside hosts that ask for little.
    pub(super) receive_quantum: Option<NonZeroUsize>,
    pub(super) stash: Vec<u8>,
    pub(super) stalled: Option<Box<Stalled>>,
    /// Since when this thread serves it.
    pub(crate) opened: Time,
    pub(super) last_input: Time,
    /// Since when a PDU is half here; never, where none is.
    pub(super) pdu_since: Time,
    /// When commands that a change waits for must have their data.
    hurried_until: Time,
    /// When a terminating or draining connection closes at the latest.
    pub(crate) close_at: Time,
    /// The timer that is set.
    timer_at: Time,
    /// Where the queue is to move to.
    pub(crate) moving: Option<Moving>,
    /// The I/O queue among those of the thread that it goes to.
    pub(crate) counted: Option<Counted>,
    /// Held for as long as anything of the connection is left.
    pub(super) permit: ConnectionPermit,
}

impl Connection {
    pub(crate) fn new(
        key: SlabKey,
        socket: SocketId,
        (peer, local): (SocketAddr, Option<SocketAddr>),
        permit: ConnectionPermit,
        core: &mut CoreState,
        now: Time,
    ) -> Self {
        let limits = FramerLimits {
            capsule_data_bytes: ADMIN_IN_CAPSULE_BYTES,
            data_pdu_bytes: core.limits.h2c_data_bytes,
        };
        core.fresh_connections += 1;
        Self {
            key,
            socket,
            peer,
            local,
            state: State::Opening,
            owner: Owner::Nobody,
            subsystem: u32::MAX,
            rights: None,
            seats: Vec::new(),
            scopes: None,
            qpair: Qpair::new(),
            framer: Framer::new(End::Controller, limits),
            output: Output::new(key, socket, core.accounts.anyone()),
            incoming: Incoming::DISCARD,
            r2ts_max: 1,
            demand: Demand::default(),
            home: None,
            holding: Holding::new(core.accounts.anyone()),
            transferring: 0,
            named: false,
            fresh: true,
            disarmed: false,
            receiving: Receiving::Nothing,
            receive_quantum: None,
            stash: Vec::new(),
            stalled: None,
            opened: now,
            last_input: now,
            pdu_since: Time::NEVER,
            hurried_until: Time::NEVER,
            close_at: Time::NEVER,
            timer_at: Time::NEVER,
            moving: None,
            counted: None,
            permit,
        }
    }

    /// The connection found its place among the core's.
    pub(crate) fn settle_key(&mut self, key: SlabKey) {
        self.key = key;
        self.output.settle(key, self.socket);
    }

    /// The connection became an I/O queue, of the class that its host named, if it did.
    pub(crate) fn set_class(
        &mut self,
        named: Option<Class>,
        core: &mut CoreState,
        cx: &mut Context<'_>,
    ) {
        let class = named.unwrap_or(Class::DEFAULT);
        self.named = named.is_some();
        core.classes[class] += usize::from(self.named);
        core.switch.queues[class] += 1;
        self.counted = Some(core.shared.threads.count(class, core.index));
        self.output.carry(class, core);
        cx.driver.set_class(self.socket, class);
    }

    /// An answer with so many bytes of data, or an R2T, was appended to what is to be sent.
    #[inline]
    pub(crate) fn appended(
        &mut self,
        bytes: u32,
        urgency: Urgency,
        core: &mut CoreState,
        cx: &Context<'_>,
    ) {
        let in_flight = self.qpair.used();
        self.output.appended(bytes, urgency, in_flight, core, cx);
    }

    /// Begins to receive, and to wait for ICReq.
    pub(crate) fn start(&mut self, core: &mut CoreState, cx: &mut Context<'_>) {
        self.arm(core, self.opened + core.limits.connect_timeout);
        self.hold_back(None, core, cx);
        self.arm_receive(core, cx);
    }

    /// The controller that the connection belongs to.
    pub(crate) fn controller(&self) -> Option<&Arc<SharedController>> {
        match &self.owner {
            Owner::Nobody => None,
            Owner::Admin(controller) => Some(&controller.shared),
            Owner::Io(controller) => Some(controller),
        }
    }

    /// Data that one R2T asks for, in bytes.
    pub(crate) fn r2t_bytes(&self, core: &CoreState) -> u32 {
        if self.r2ts_max > 1 {
            core.limits.r2t_bytes
        } else {
            core.limits.transfer_bytes.max(ADMIN_IN_CAPSULE_BYTES)
        }
    }

    /// Whether commands are still carried out and answered.
    pub(crate) fn answers(&self) -> bool {
        self.state <= State::Draining
    }

    /// Makes sure that the timer fires at `deadline` or before.
    pub(crate) fn arm(&mut self, core: &mut CoreState, deadline: Time) {
        if deadline < self.timer_at {
            self.timer_at = deadline;
            core.timers
                .set(deadline, (self.key.index, self.key.generation));
        }
    }

    /// Whether nobody knows yet whose the connection is.
    pub(crate) fn is_fresh(&self) -> bool {
        self.fresh
    }

    /// The connection counts as one that nobody knows no more.
    pub(crate) fn leave_fresh(&mut self, core: &mut CoreState) {
        if std::mem::take(&mut self.fresh) {
            core.fresh_connections -= 1;
        }
    }

    /// Answers ICReq. `[NVMe-TCP 1.0 §3.3.1]`
    pub(super) fn initialize(
        &mut self,
        request: &IcReq,
        core: &mut CoreState,
        cx: &mut Context<'_>,
    ) {
        let response = IcResp {
            controller_alignment: DataAlignment::DWORD,
            header_digest: request.header_digest && core.limits.header_digest,
            data_digest: request.data_digest && core.limits.data_digest,
            max_h2c_data: core.limits.h2c_data_bytes,
        };
        if !self.output.make_room(0, core, cx) {
            self.close(core, cx);
            return;
        }
        self.output.push_bytes(&response.to_bytes());
        self.appended(0, Urgency::Urgent, core, cx);
        self.output.format = PduFormat {
            header_digest: response.header_digest,
            data_digest: response.data_digest,
            alignment: request.host_alignment,
        };
        self.framer
            .set_digests(response.header_digest, response.data_digest);
        let ours = u32::from(core.limits.r2ts_per_command);
        let allowed = request.max_r2t.saturating_add(1).min(ours);
        self.r2ts_max = u16::try_from(allowed).expect("a handful");
        self.state = State::Fresh;
    }

    /// Connect succeeded: limits and the queue's size are known from here on.
    pub(crate) fn go_live(&mut self, capsule_data_bytes: u32, core: &mut CoreState) {
        self.leave_fresh(core);
        self.state = State::Live;
        self.framer.set_limits(FramerLimits {
            capsule_data_bytes,
            data_pdu_bytes: core.limits.h2c_data_bytes,
        });
    }

    /// Ends the connection: the driver is told once.
    pub(crate) fn close(&mut self, core: &mut CoreState, cx: &mut Context<'_>) {
        if self.state >= State::Closing {
            return;
        }
        self.leave_fresh(core);
        let drains = self.state == State::Draining;
        self.state = State::Closing;
        let key = OpKey::new(core.op_namespace, CLOSE, self.key);
        cx.submit(
            key,
            Op::Close {
                socket: self.socket,
            },
        );
        match &self.owner {
            Owner::Nobody => {}
            Owner::Admin(controller) => {
                // At once, so that no queue joins after the admin queue is gone.
                controller.shared.queues().dead = true;
                core.actions
                    .push(Action::EndController(Arc::clone(&controller.shared)));
            }
            Owner::Io(controller) => {
                let mut queues = controller.queues();
                let id = self.qpair.id;
                if queues
                    .places
                    .get(&id)
                    .is_some_and(|place| place.core == core.index && place.connection == self.key)
                {
                    queues.places.remove(&id);
                }
                if drains && queues.places.is_empty() {
                    // The admin queue may drain as well, and wait for this one.
                    core.shared.deliver(controller.admin.core, Note::Look);
                }
            }
        }
    }

    /// The driver let go of the socket: whatever waits for the host waits in vain.
    pub(crate) fn closed(&mut self, core: &mut CoreState) {
        self.state = State::Closed;
        let unsent = self.output.abandon(core);
        self.holding.give_back(unsent);
        if let Some(class) = self.output.class() {
            core.classes[class] -= usize::from(self.named);
            core.switch.queues[class] -= 1;
            self.counted = None;
            core.switch.load[class] -= self.demand.forget();
        }
        if self.stalled.is_none() {
            self.stash = Vec::new();
        }
        self.give_up_seats(core);
        for slot in self.qpair.occupied() {
            let entry = self.qpair.slot(slot);
            // An admin command is never in a device: it waits for another core, or for the end of
            // another controller, which may be far.
            if entry.phase != Phase::Executing || entry.kind == Kind::Admin {
                transfer::forget(self, slot, core);
            }
        }
    }

    /// It is known what the connection is for, and of which host, tenant and class it is: what it
    /// holds counts for them.
    pub(crate) fn belongs(&mut self, purpose: Purpose, core: &mut CoreState) {
        let Some(controller) = self.controller() else {
            return;
        };
        let whom = controller.whom(&core.shared.rules());
        let host = (&*controller.host_nqn, controller.host_id);
        let (tenant, class) = (whom.held_to_account(), self.output.class());
        let parties = core.accounts.parties(purpose, host, tenant, class);
        self.holding.belongs_to(Rc::clone(&parties));
        self.output.serve(parties);
    }

    /// A command has a buffer for its data, which its connection holds until it is answered.
    pub(crate) fn keep(&mut self, slot: u16, bytes: u32) {
        self.qpair.slot(slot).charged += bytes;
        self.holding.take(bytes);
    }

    /// A command is over: its slot serves again, and barriers that it came before are told.
    pub(crate) fn give_back(&mut self, slot: u16, core: &mut CoreState) {
        let charged = self.qpair.slot(slot).charged;
        self.holding.give_back(charged);
        let marks = self.qpair.give_back(slot);
        if marks != 0 {
            core.barriers.passed(marks);
        }
    }

    /// Whether nothing of the connection can change what a device holds any more. True only once,
    /// so that its controller counts right.
    pub(crate) fn disarm(&mut self) -> bool {
        let harmless = self.state == State::Closed && !self.qpair.changes_data();
        harmless && !std::mem::replace(&mut self.disarmed, true)
    }

    /// Whether nothing of the connection is left.
    pub(crate) fn is_gone(&self) -> bool {
        self.state == State::Closed && self.qpair.used() == 0 && self.stalled.is_none()
    }

    /// Carries out no further command, answers those under way, then closes.
    pub(crate) fn drain(&mut self, core: &mut CoreState, cx: &mut Context<'_>) {
        match self.state {
            State::Live => {
                self.state = State::Draining;
                self.output.turn(Mode::Immediate, core);
                core.draining.push(self.key);
                self.close_at = cx.now + core.limits.drain_timeout;
                self.arm(core, self.close_at);
                self.drained(core, cx);
            }
            State::Opening | State::Fresh => self.close(core, cx),
            _ => {}
        }
    }

    /// Closes a draining connection soon, if nothing is left to answer.
    pub(crate) fn drained(&mut self, core: &mut CoreState, cx: &mut Context<'_>) {
        let waiting = self.qpair.used() > 0 || !self.output.is_idle() || self.stalled.is_some();
        // With an admin queue its I/O queues end, whose commands may be in a device for long.
        let waiting = waiting || self.has_queues();
        if self.state == State::Draining && !waiting {
            // Closing while input is unread would reset the connection, and the reset may
            // overtake our last answers: give the host a moment to read them and to close.
            let soon = cx.now + core.limits.linger;
            if soon < self.close_at {
                self.close_at = soon;
                self.arm(core, soon);
            }
        }
    }

    /// Returns true while I/O queues of this admin queue's controller are connected.
    fn has_queues(&self) -> bool {
        match &self.owner {
            Owner::Admin(controller) => !controller.shared.queues().places.is_empty(),
            Owner::Nobody | Owner::Io(_) => false,
        }
    }

    /// When the host must have sent what it owes.
    fn input_deadlines(&mut self, core: &CoreState, now: Time) -> [(Time, Late); 4] {
        let limits = &core.limits;
        let (mut silent, mut asked) = (Time::NEVER, Time::NEVER);
        if self.transferring > 0 {
            silent = self.last_input + limits.stall_timeout;
            let since = self.qpair.asked().map(|(since, _)| since).min();
            asked = since.unwrap_or(Time::NEVER) + limits.transfer_timeout;
        }
        let subsystem = self.subsystem;
        let changes = |nsid| {
            core.namespace_ref(subsystem, nsid)
                .is_some_and(|n| !n.is_open())
        };
        if self.hurried_until <= now && !self.qpair.asked().any(|(_, nsid)| changes(nsid)) {
            self.hurried_until = Time::NEVER;
        }
        let half = self.pdu_since + limits.pdu_timeout;
        [
            (silent, Late::Silent),
            (asked, Late::Transfer),
            (half, Late::Pdu),
            (self.hurried_until, Late::Change),
        ]
    }

    /// A namespace is to change: what was asked for of its commands' data has to be here soon.
    pub(crate) fn hurry(&mut self, nsid: u32, core: &mut CoreState, now: Time) {
        if self.transferring > 0 && self.qpair.asked().any(|(_, of)| of == nsid) {
            let until = now + core.limits.pause_patience;
            self.hurried_until = until;
            self.arm(core, until);
        }
    }

    /// The timer fired that was set for `now` or before.
    pub(crate) fn timer(&mut self, core: &mut CoreState, cx: &mut Context<'_>) {
        if self.timer_at > cx.now {
            return;
        }
        self.timer_at = Time::NEVER;
        let limits = &core.limits;
        let mut next = Time::NEVER;
        let mut expired = None;
        let mut check = |deadline: Time, what: Late| {
            if deadline <= cx.now {
                expired = Some(what);
            } else {
                next = next.min(deadline);
            }
        };
        match self.state {
            State::Opening | State::Fresh => {
                check(self.opened + limits.connect_timeout, Late::Connect);
            }
            State::Live => {}
            State::Draining | State::Terminating => check(self.close_at, Late::Ending),
            State::Closing | State::Closed => return,
        }
        for (deadline, reason) in self.input_deadlines(core, cx.now) {
            check(deadline, reason);
        }
        if self.output.sending {
            check(self.output.since + limits.stall_timeout, Late::Deaf);
        }
        if let Owner::Admin(controller) = &self.owner {
            check(controller.keep_alive.deadline(), Late::KeepAlive);
        }
        let Some(late) = expired else {
            self.arm(core, next);
            return;
        };
        if let Some((reason, counter)) = late.reason(&mut core.stats) {
            *counter += 1;
            core.touch();
            let peer = self.peer;
            if let Some(suppressed) = core.log_budget.allow(peer.ip(), cx.now) {
                tracing::warn!(%peer, reason, suppressed, "closing a connection");
            }
        }
        self.close(core, cx);
    }
}

/// What a connection is closed for when its time is over.
#[derive(Clone, Copy, Debug)]
enum Late {
    Connect,
    /// We end it ourselves: nobody is late.
    Ending,
    Silent,
    Transfer,
    Pdu,
    Change,
    Deaf,
    KeepAlive,
}

impl Late {
    /// What to log, and where it is counted.
    fn reason(self, stats: &mut CoreStats) -> Option<(&'static str, &mut u64)> {
        Some(match self {
            Self::Ending => return None,
            Self::Connect => (
                "the host did not connect in time",
                &mut stats.connect_timeouts,
            ),
            Self::Silent => (
                "the host did not send its data in time",
                &mut stats.stall_timeouts,
            ),
            Self::Transfer => (
                "the host did not send its data in time",
                &mut stats.transfer_timeouts,
            ),
            Self::Pdu => (
                "the host did not complete a PDU in time",
                &mut stats.pdu_timeouts,
            ),
            Self::Change => (
                "the host withheld data that a change waits for",
                &mut stats.pause_timeouts,
            ),
            Self::Deaf => ("the host did not read in time", &mut stats.stall_timeouts),
            Self::KeepAlive => (
                "the keep-alive timer expired",
                &mut stats.keep_alive_expirations,
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_is_small() {
        // Slots, lists and buffers come with the first command that needs them, so this is all
        // that a connection takes until then.
        assert!(
            size_of::<Connection>() <= 1152,
            "{}",
            size_of::<Connection>()
        );
    }
}
