//! DH-HMAC-CHAP of queues, from Connect or a host's Negotiate to its end. `[NVMe Base 2.0 §8.13]`
//!
//! Until the first exchange succeeds, the connection stays in the state before Connect: it counts as
//! fresh, and for no host or tenant. Connect of an admin queue has reserved a controller by then,
//! Connect of an I/O queue nothing; it is executed again afterwards. Only a host begins a further
//! exchange; the specification gives a controller no means to request one.

use crate::authentication::exchange::{Chap, First, Stage};
use crate::authentication::jobs::AuthenticationJob;
use crate::controller::connect::{self, Refusal};
use crate::controller::reply::Reply;
use crate::limits::AUTHENTICATION_DELAY;
use crate::message::CoreMessage;
use crate::request::Step;
use crate::service::connection::{Connection, Owner};
use crate::service::core::{Action, CoreState};
use crate::service::poll_group::PollGroup;
use crate::service::requests::Running;
use base::{SlabKey, Time};
use reactor::Context;
use reactor::address::network;
use secure::chap::{Failure, Job, JobResult, Names, Progress, Secret};
use std::sync::Arc;
use wire::fabrics::{AuthenticationTransfer, ConnectData};
use wire::nvme::{DISCOVERY_NQN, Status};
use wire::tcp::limits::ADMIN_IN_CAPSULE_BYTES;

/// Checks the fields of an authentication command with `length` bytes of data. `[NVMe Base 2.0 §6.1,
/// §6.2]`
fn check(transfer: &AuthenticationTransfer, length: u32) -> Result<(), Status> {
    if *transfer != AuthenticationTransfer::message(transfer.length) || transfer.length == 0 {
        return Err(Status::INVALID_FIELD.with_dnr());
    }
    if transfer.length != length {
        return Err(Status::DATA_SGL_LENGTH_INVALID.with_dnr());
    }
    Ok(())
}

/// The status of a command at the wrong step.
const OUT_OF_ORDER: Status = Status::COMMAND_SEQUENCE_ERROR.with_dnr();

impl Connection {
    /// Makes the queue wait for the first authentication of its host.
    pub(super) fn await_authentication(
        &mut self,
        first: First,
        data: &ConnectData,
        core: &mut CoreState,
        now: Time,
    ) {
        let text = |name: Option<wire::nvme::Nqn>| name.map(|name| name.as_str().to_owned());
        let names = Names {
            hostnqn: text(data.hostnqn().ok()).unwrap_or_default(),
            subnqn: text(data.subnqn().ok()).unwrap_or_default(),
        };
        let deadline = now + core.limits.authentication_timeout;
        let keys = core.shared.keys.current();
        self.chap = Some(Chap::new(names, Stage::First(first), keys, deadline));
        self.accept_data(ADMIN_IN_CAPSULE_BYTES, core);
        self.arm(core, deadline);
    }

    /// Returns true from Connect until the host has authenticated the queue, if it has to.
    pub(super) fn is_pending(&self) -> bool {
        let stage = self.chap.as_ref().map(|chap| &chap.stage);
        matches!(stage, Some(Stage::First(_) | Stage::Failed))
    }

    /// Returns the exchange for a message of the host, a new one if none is in progress.
    fn exchange(&mut self, core: &mut CoreState, now: Time) -> Result<&mut Chap, Status> {
        let deadline = now + core.limits.authentication_timeout;
        let keys = core.shared.keys.current();
        if self.chap.is_none() {
            let names = self.names().ok_or(OUT_OF_ORDER)?;
            let chap = Chap::new(names, Stage::Again, Arc::clone(&keys), deadline);
            self.chap = Some(chap);
        }
        self.arm(core, deadline);
        let chap = self.chap.as_mut().filter(|chap| !chap.is_busy());
        let chap = chap.filter(|chap| !chap.has_failed());
        let chap = chap.ok_or(OUT_OF_ORDER)?;
        chap.exchange.set_keys(keys);
        if matches!(chap.stage, Stage::Again) {
            chap.deadline = deadline;
        }
        Ok(chap)
    }

    /// Returns the names of a live queue's host and subsystem.
    fn names(&self) -> Option<Names> {
        let controller = self.controller()?;
        let subsystem = controller.subsystem.as_ref();
        let subnqn = subsystem.map_or(DISCOVERY_NQN, |subsystem| &subsystem.nqn);
        Some(Names {
            hostnqn: controller.host_nqn.clone(),
            subnqn: subnqn.to_owned(),
        })
    }

    /// Reports a failure that has waited for long enough, and ends a further exchange that its host
    /// has abandoned. Returns the time of the next call.
    pub(super) fn authentication_timer(
        &mut self,
        core: &mut CoreState,
        cx: &mut Context<'_>,
    ) -> Time {
        let Some(chap) = &mut self.chap else {
            return Time::NEVER;
        };
        if chap.waiting.is_some() && cx.now < chap.reports_at {
            return chap.reports_at;
        }
        if let Some(slot) = chap.waiting.take() {
            let mut running = self.run(slot, core, cx);
            let status = running.report().err();
            if status.is_some() {
                running.entry().transfer.data = None;
            }
            running.advance(Step::Answer(status.unwrap_or(Status::SUCCESS)));
            return Time::NEVER;
        }
        if !matches!(chap.stage, Stage::Again) {
            return Time::NEVER;
        }
        if cx.now >= chap.deadline && !chap.is_busy() {
            // [NVMe Base 2.0 §8.13.2]: a further exchange that stalls is not a failure.
            let has_failed = chap.exchange.failure().is_some();
            self.chap = None;
            if has_failed {
                self.end_association(core, cx);
            }
            return Time::NEVER;
        }
        chap.deadline
    }

    /// Ends the association of a queue whose further exchange has failed. `[NVMe Base 2.0 §8.13.2]`
    fn end_association(&mut self, core: &mut CoreState, cx: &mut Context<'_>) {
        match &self.owner {
            Owner::None => {}
            Owner::Admin(controller) => {
                let controller = Arc::clone(&controller.shared);
                core.actions.push(Action::EndController(controller));
            }
            Owner::Io(controller) => {
                // This queue ends after its last answer.
                self.leave_queues(controller, core, cx.now);
                let note = CoreMessage::EndQueue {
                    connection: controller.admin.connection,
                    cntlid: controller.id,
                };
                core.shared.deliver(controller.admin.core, note);
            }
        }
        self.drain(core, cx);
    }
}

impl Running<'_, '_> {
    /// Executes Authentication Send.
    pub(super) fn authentication_send(
        &mut self,
        send: &AuthenticationTransfer,
    ) -> Result<Reply, Status> {
        check(send, self.entry().transfer.length)?;
        let data = self.entry().transfer.data.take();
        let bytes = data.as_ref().and_then(|data| data.bytes());
        let chap = self.connection.exchange(self.core, self.cx.now)?;
        let progress = chap.exchange.receive(bytes.unwrap_or_default());
        drop(data);
        match progress {
            Progress::Compute(job) => {
                chap.computing = Some(self.slot);
                self.compute(job);
                return Ok(Reply::AwaitAuthentication);
            }
            Progress::Continue => self.note_failure(),
            Progress::Authenticated => self.authenticated()?,
            Progress::Failed(failure) => {
                self.log_failure(failure);
                self.end_failed();
            }
        }
        Ok(Reply::Bare(0))
    }

    /// Executes Authentication Receive.
    pub(super) fn authentication_receive(
        &mut self,
        receive: &AuthenticationTransfer,
    ) -> Result<Reply, Status> {
        check(receive, self.entry().transfer.length)?;
        let chap = self.connection.chap.as_mut().ok_or(OUT_OF_ORDER)?;
        let bytes = chap.exchange.response_bytes();
        let bytes = bytes.filter(|_| !chap.is_busy()).ok_or(OUT_OF_ORDER)?;
        if bytes > receive.length as usize {
            return Err(Status::INVALID_FIELD.with_dnr());
        }
        if chap.exchange.failure().is_some() && self.cx.now < chap.reports_at {
            chap.waiting = Some(self.slot);
            let reports_at = chap.reports_at;
            self.connection.arm(self.core, reports_at);
            return Ok(Reply::AwaitAuthentication);
        }
        self.report()
    }

    /// Answers Authentication Receive with the message that is due.
    fn report(&mut self) -> Result<Reply, Status> {
        let chap = self.connection.chap.as_mut().ok_or(OUT_OF_ORDER)?;
        let (message, progress) = chap.exchange.response().ok_or(OUT_OF_ORDER)?;
        if let Some(data) = &mut self.entry().transfer.data {
            data.copy_in(0, &message);
        }
        match progress {
            Progress::Continue | Progress::Compute(_) => {}
            Progress::Authenticated => self.authenticated()?,
            Progress::Failed(_) => self.end_failed(),
        }
        Ok(Reply::Data(0))
    }

    /// Lets a job run away from this thread.
    fn compute(&self, job: Job) {
        let shared = &self.core.shared;
        let Some(core) = shared.cores().get(self.core.index).cloned() else {
            return;
        };
        let job = AuthenticationJob {
            core,
            connection: self.connection.key,
            attempts: Arc::clone(&shared.attempts),
            network: network(self.connection.peer.ip()),
            at: self.cx.now,
            job,
        };
        match shared.runs_jobs.get() {
            Some(run) => run(job),
            None => job.run(true),
        }
    }

    /// Makes the queue live, or keeps it so, after its host has authenticated.
    fn authenticated(&mut self) -> Result<(), Status> {
        let Some(chap) = self.connection.chap.take() else {
            return Ok(());
        };
        let host = &*chap.exchange.names().hostnqn;
        let secret = chap.exchange.proof().cloned();
        let keys = self.core.shared.keys.current();
        let is_valid = secret
            .as_ref()
            .is_some_and(|secret| keys.chap(host).contains(secret));
        let result = match &chap.stage {
            // The secret was removed meanwhile.
            _ if !is_valid => Err(Refusal::REMOVED),
            Stage::First(First::Admin) => self.admit_host(secret),
            Stage::First(First::Io(named)) => self.join(&named.0, &named.1, true).map(|joined| {
                if let Some(joined) = joined {
                    self.connection.become_io(joined, self.core, self.cx);
                }
            }),
            Stage::Again | Stage::Failed => {
                if let Owner::Admin(controller) = &self.connection.owner {
                    controller
                        .shared
                        .authenticate(secret, &self.core.shared.keys);
                }
                Ok(())
            }
        };
        let Err(refusal) = result else {
            return Ok(());
        };
        let status = self.refused(Some(host), refusal);
        self.connection.chap = Some(chap);
        self.end_failed();
        Err(status)
    }

    /// Makes the admin queue of a pending controller live, within the limits of its host.
    fn admit_host(&mut self, secret: Option<Secret>) -> Result<(), Refusal> {
        let connection = &mut *self.connection;
        if let Owner::Admin(controller) = &connection.owner {
            let (shared, permit) = (&controller.shared, &mut connection.permit);
            let view = self.core.view(self.cx.now);
            connect::authenticated(shared, secret, permit, &view)?;
        }
        connection.become_admin(self.core);
        Ok(())
    }

    /// Logs the failure that the next Authentication Receive reports, if any.
    fn note_failure(&mut self) {
        let now = self.cx.now;
        let Some(chap) = &mut self.connection.chap else {
            return;
        };
        if let Some(failure) = chap.exchange.failure() {
            chap.reports_at = now + AUTHENTICATION_DELAY;
            self.log_failure(failure);
        }
    }

    fn log_failure(&mut self, failure: Failure) {
        let Running {
            connection,
            core,
            cx,
            ..
        } = self;
        core.stats.authentication_failures += 1;
        core.touch();
        let (peer, queue) = (connection.peer, connection.session.commands.id);
        let Some(suppressed) = core.log_budget.allow(peer.ip(), cx.now) else {
            return;
        };
        let chap = connection.chap.as_ref();
        let host = chap.map(|chap| &*chap.exchange.names().hostnqn);
        let reason = format!("DH-HMAC-CHAP of queue {queue}: {failure}");
        core.shared.note_refused(host, peer.ip(), reason);
        tracing::warn!(%peer, host, queue, suppressed, "authentication failed: {failure}");
    }

    /// Ends the queue of a host that has failed, after the answers to its commands.
    fn end_failed(&mut self) {
        let now = self.cx.now;
        let Some(chap) = &mut self.connection.chap else {
            return;
        };
        if matches!(chap.stage, Stage::Again) {
            self.connection.chap = None;
            self.connection.end_association(self.core, self.cx);
            return;
        }
        chap.stage = Stage::Failed;
        chap.deadline = now + self.core.limits.linger;
        let deadline = chap.deadline;
        self.connection.arm(self.core, deadline);
    }
}

impl PollGroup {
    /// Continues an authentication with the result of its job; `None` if too many jobs wait.
    pub(super) fn computed(
        &mut self,
        key: SlabKey,
        result: Option<Box<JobResult>>,
        cx: &mut Context<'_>,
    ) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let computing = connection.chap.as_mut();
        let Some((chap, slot)) = computing.and_then(|chap| {
            let slot = chap.computing.take()?;
            Some((chap, slot))
        }) else {
            return;
        };
        let Some(result) = result else {
            let peer = connection.peer;
            if let Some(suppressed) = self.core.log_budget.allow(peer.ip(), cx.now) {
                tracing::warn!(%peer, suppressed, "closed a connection: too many hosts \
                    authenticate at the same time");
            }
            connection.close(&mut self.core, cx);
            return;
        };
        // A result only makes a response due.
        drop(chap.exchange.computed(*result));
        let asker = connection.ticket(slot);
        connection.run(slot, &mut self.core, cx).note_failure();
        self.answer_later(asker, 0, cx);
    }
}
