//! The controller from the host's side: the admin queue and the association.
//!
//! Owns the admin connection: it sets the controller up, sends Keep Alive, handles events, aborts
//! late commands, and reconnects after a loss. It runs on any core and driver: its owner passes
//! completions on, and calls [`Controller::tick`] each turn. Channels follow it through the
//! [`Association`]. Invariant: a new association is never announced while a connection of the old
//! one may still carry a command.

mod authentication;
mod fencing;
mod inquiry;
mod setup;
mod shut_down;

use crate::association::Association;
use crate::command::exchange::Exchange;
use crate::command::table::{Finished, Outcome};
use crate::error::ConnectionError;
use crate::info::{ControllerInfo, Parameters};
use crate::limits::{ABORTS_MAX, ADMIN_BUFFERS, ADMIN_DEPTH, FAILOVER_DELAY_MAX, STABLE_TIME};
use crate::options::ConnectOptions;
use crate::qpair::{Join, Qpair, QpairConfig, was_away};
use crate::recovery::backoff::Backoff;
use crate::recovery::epoch::{Epoch, Phase};
use crate::recovery::fences::{ControllerName, Fences};
use base::mutation::{self, Mutation};
use base::state::StateMachine;
use base::{Nanos, Time};
use inquiry::Inquiry;
use reactor::{BufferPool, Context, Driver, IoSlice, OpNamespace, OpNamespaceLease};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use wire::fabrics::property::Capabilities;
use wire::fabrics::{ConnectData, FabricsCommand};
use wire::nvme::feature::AsyncEventConfiguration;
use wire::nvme::{Abort, AdminCommand, AsyncEvent, Completion};

/// Purpose of an admin command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
enum Purpose {
    SetUp = 0,
    KeepAlive = 1,
    Event = 2,
    Abort = 3,
    Inquiry = 4,
    ShutDown = 5,
    /// End Controller. The upper bits of the tag are the association.
    Fence = 6,
}

/// Number of tag bits that name the purpose.
const PURPOSE_BITS: u32 = 8;

/// Time that the channels' connections may take to close before the next association is made
/// regardless. A channel whose core does not run cannot close them; it does so before it sends
/// anything again.
const CHANNELS_CLOSE_TIME: Nanos = Nanos::from_secs(1);

/// One controller of a remote subsystem, from the host's side.
#[derive(Debug)]
pub struct Controller {
    association: Arc<Association>,
    op_namespace: OpNamespaceLease,
    waker: u64,
    qpair: Qpair,
    state: StateMachine<ControllerState, { ControllerState::COUNT }>,
    setup: Setup,
    /// The request that an authentication in progress answers, and the last that was answered.
    authenticating: Option<u64>,
    authenticated: u64,
    inquiry: Option<Inquiry>,
    /// Namespaces or the discovery log changed while they were being read: they are read again.
    ask_again: bool,
    backoff: Backoff,
    generation: u64,
    /// Time at which the state times out, or its next step is due.
    deadline: Time,
    /// Time at which the state must be over.
    limit: Time,
    lost_at: Option<Time>,
    /// Fences of lost associations that may not have ended.
    fences: Fences,
    live_at: Time,
    keep_alive_at: Time,
    keep_alive_out: bool,
    aborts_out: usize,
    events: bool,
    /// ANA groups of the namespaces.
    ana_groups: BTreeSet<u32>,
    /// Namespaces that the controller could not identify, each with the time of the first failure.
    unidentified: BTreeMap<u32, Time>,
    /// Time at which these are identified again.
    identify_at: Time,
    /// Time at which [`tick`](Self::tick) had to run at the latest, while a limit runs.
    due: Time,
    /// Memory for the answers to admin commands, because requests may hold every buffer of the core
    /// until there is a new association.
    buffers: BufferPool,
}

impl Controller {
    /// A controller that starts to connect at its first [`tick`](Self::tick), on `driver`.
    ///
    /// # Panics
    /// If no address space is left for 16 KiB.
    #[must_use]
    pub fn new(association: Arc<Association>, driver: &mut dyn Driver) -> Self {
        let options = association.options();
        let op_namespace = driver.lease_op_namespace();
        let qpair = Qpair::new(
            QpairConfig::new(options, true),
            op_namespace.id(),
            0,
            ADMIN_DEPTH,
            driver.send_lists(),
        );
        let backoff = Backoff::new(
            options.reconnect_delay_min,
            options.reconnect_delay_max,
            options.seed,
        );
        let waker = association.add_waker(driver.waker());
        Self {
            op_namespace,
            waker,
            qpair,
            state: StateMachine::new(ControllerState::Waiting),
            setup: Setup::default(),
            authenticating: None,
            authenticated: 0,
            inquiry: None,
            ask_again: false,
            backoff,
            generation: 0,
            deadline: Time::ZERO,
            limit: Time::NEVER,
            lost_at: None,
            fences: Fences::default(),
            live_at: Time::ZERO,
            keep_alive_at: Time::NEVER,
            keep_alive_out: false,
            aborts_out: 0,
            events: false,
            ana_groups: BTreeSet::new(),
            unidentified: BTreeMap::new(),
            identify_at: Time::NEVER,
            due: Time::NEVER,
            buffers: BufferPool::new(&[ADMIN_BUFFERS]).expect("address space for four pages"),
            association,
        }
    }

    /// Begins an association with these options. Give the result to [`Self::new`].
    #[must_use]
    pub fn associate(mut options: ConnectOptions) -> Arc<Association> {
        options.prepare_keys();
        Association::new(options)
    }

    /// The state that the controller shares with its channels.
    #[must_use]
    pub fn association(&self) -> &Arc<Association> {
        &self.association
    }

    /// The current state.
    #[must_use]
    pub fn state(&self) -> ControllerState {
        self.state.get()
    }

    /// Returns how often the controller entered each state, with the state's name.
    pub fn states_entered(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.state.entered()
    }

    /// Returns true if operations of this namespace are the controller's.
    #[must_use]
    pub fn owns(&self, op_namespace: OpNamespace) -> bool {
        op_namespace == self.op_namespace.id()
    }

    /// Returns true if the driver has no operation of the controller any more.
    #[must_use]
    pub fn closed(&self) -> bool {
        self.state() == ControllerState::Closed
    }

    fn options(&self) -> &ConnectOptions {
        self.association.options()
    }

    /// Handles a completed operation of the controller.
    pub fn complete(&mut self, completion: reactor::Completion, cx: &mut Context<'_>) {
        self.qpair.apply(completion, cx);
        self.proceed(cx);
    }

    /// Follows the admin queue: first its state, then the answers.
    fn proceed(&mut self, cx: &mut Context<'_>) {
        if self.state() == ControllerState::Connecting && self.qpair.is_live() {
            self.begin_setup(cx);
        }
        while let Some(finished) = self.qpair.table().take_finished() {
            self.finished(finished, cx);
        }
        let over = !matches!(
            self.state(),
            ControllerState::Draining | ControllerState::Waiting | ControllerState::Closed
        );
        if over && (self.qpair.is_closed() || self.qpair.is_ending()) {
            let error = self.qpair.take_error();
            self.lose(error, cx);
        }
        self.qpair.pump(cx);
    }

    fn finished(&mut self, finished: Finished, cx: &mut Context<'_>) {
        let Outcome::Answered(completion) = finished.outcome else {
            return;
        };
        if self.qpair.is_message(&finished.exchange) {
            return self.message_answered(finished, cx);
        }
        let data = finished.exchange.data;
        let data = data.as_ref().and_then(IoSlice::bytes).unwrap_or_default();
        let tag = finished.exchange.tag;
        match tag & ((1 << PURPOSE_BITS) - 1) {
            tag if tag == Purpose::SetUp as u64 => self.set_up_answered(&completion, data, cx),
            tag if tag == Purpose::KeepAlive as u64 => {
                self.kept_alive(cx.now);
            }
            tag if tag == Purpose::Event as u64 => self.event(&completion, cx),
            tag if tag == Purpose::Abort as u64 => self.aborts_out -= 1,
            tag if tag == Purpose::Inquiry as u64 => self.inquiry_answered(&completion, data, cx),
            fence if fence == Purpose::Fence as u64 => {
                self.fence_answered(tag >> PURPOSE_BITS, completion.status, cx);
            }
            _ => self.shut_down_answered(&completion, cx),
        }
    }

    /// Runs the timers. Called once each turn of the core.
    pub fn tick(&mut self, cx: &mut Context<'_>) {
        if self.qpair.tick(cx) {
            self.look_for_timeouts(cx);
        }
        if self.association.is_closing() {
            self.begin_shut_down(cx);
        }
        self.make_up_for_absence(cx.now);
        if self.give_up_at() <= cx.now && self.state().is_making() {
            self.give_up(cx);
        }
        if self.fail_at() <= cx.now {
            self.association.set_overdue(true);
        }
        self.ask_for_ends(cx);
        self.look_for_expired_fences(cx);
        self.look_for_overdue_fences(cx.now);
        match self.state() {
            ControllerState::Waiting if self.deadline <= cx.now => self.connect(cx),
            ControllerState::SettingUp if self.deadline <= cx.now => self.poll_ready(cx),
            ControllerState::SettingUp => self.keep_alive(cx),
            ControllerState::Live => self.keep(cx),
            ControllerState::Draining => self.drained(cx),
            ControllerState::ShuttingDown => self.shutting_down(cx),
            _ => {}
        }
        self.proceed(cx);
        let limits_run =
            self.lost_at.is_some() || self.fences.len() > 0 || !self.unidentified.is_empty();
        let step_ends = if self.state() == ControllerState::Connecting {
            cx.now + self.options().connect_timeout
        } else {
            Time::NEVER
        };
        self.due = if limits_run {
            self.deadline().min(step_ends)
        } else {
            Time::NEVER
        };
    }

    /// Excludes time in which the process or the machine was stopped from the loss timeout: no
    /// attempt was made in it. At least one connect timeout is left for an attempt now.
    fn make_up_for_absence(&mut self, now: Time) {
        if !was_away(self.due, now) {
            return;
        }
        let away = now.since(self.due);
        let options = self.association.options();
        let limit = options.loss_timeout.unwrap_or_default();
        let least = now + options.connect_timeout - limit;
        let extend = |since: &mut Time| *since = (*since + away).max(least);
        self.lost_at.iter_mut().for_each(extend);
        self.unidentified.values_mut().for_each(extend);
        self.fences.extend(extend);
        if self.state() == ControllerState::Waiting {
            self.deadline = now;
        }
    }

    /// Returns the time at which [`tick`](Self::tick) must run at the latest.
    #[must_use]
    pub fn deadline(&self) -> Time {
        let own = match self.state() {
            ControllerState::Live => self.keep_alive_at.min(self.identify_at),
            ControllerState::SettingUp => self.deadline.min(self.keep_alive_at),
            ControllerState::Closed => return Time::NEVER,
            // Its own connection ends first, and that wakes it.
            ControllerState::Draining if !self.qpair.is_closed() => Time::NEVER,
            _ => self.deadline,
        };
        let give_up_at = if self.state().is_making() {
            self.give_up_at()
        } else {
            Time::NEVER
        };
        own.min(self.limit)
            .min(self.fail_at())
            .min(self.qpair.deadline())
            .min(give_up_at)
            .min(self.next_fence())
    }

    fn connect(&mut self, cx: &mut Context<'_>) {
        self.inherit(cx.now);
        let options = self.association.options();
        let data = ConnectData::new(
            options.host.id,
            ConnectData::CNTLID_DYNAMIC,
            &options.subsystem,
            &options.host.nqn,
        );
        let address = self.association.next_address();
        let join = Join {
            address,
            queue_id: 0,
            sq_size: ADMIN_DEPTH,
            keep_alive_ms: options.kato_ms(),
            data: Box::new(data),
            // No command on the admin queue carries in-capsule data.
            in_capsule_bytes: 0,
            priority: 0,
        };
        let left = self.give_up_at().since(cx.now);
        let patience = options.connect_timeout.min(left);
        self.enter(ControllerState::Connecting, Time::NEVER);
        self.qpair.open(join, patience, cx);
    }

    /// Returns the time at which a loss is final.
    fn give_up_at(&self) -> Time {
        let lost = self.lost_at.zip(self.options().final_loss());
        match lost {
            Some((lost_at, limit)) if self.association.phase() == Phase::Recovering => {
                lost_at + limit
            }
            _ => Time::NEVER,
        }
    }

    /// Returns the time at which requests begin to fail although the loss is not final.
    fn fail_at(&self) -> Time {
        match self.lost_at {
            Some(lost_at) if !self.association.is_overdue() => self.options().fail_at(lost_at),
            _ => Time::NEVER,
        }
    }

    /// Gives up after the time for a new association.
    fn give_up(&mut self, cx: &mut Context<'_>) {
        if self.state() == ControllerState::Waiting {
            return self.end();
        }
        let options = self.options();
        let limit = options.final_loss().unwrap_or(Nanos::ZERO);
        let error = ConnectionError::TimedOut {
            address: self.association.address(),
            what: self.awaited(),
            seconds: limit.0 / 1_000_000_000,
        };
        self.lose(Some(error), cx);
    }

    /// Returns the name of the awaited answer while an association is being made.
    fn awaited(&self) -> &'static str {
        match self.state() {
            ControllerState::Connecting => "Connect",
            ControllerState::SettingUp => self.set_up_awaits(),
            _ => "an admin command",
        }
    }

    fn enter(&mut self, state: ControllerState, deadline: Time) {
        self.state.enter(state);
        tracing::trace!(
            generation = self.generation,
            state = state.name(),
            "controller"
        );
        self.deadline = deadline;
        self.limit = Time::NEVER;
    }

    /// Sends an admin command. There is no free slot only if the connection, and with it the
    /// association, is ending.
    fn ask(
        &mut self,
        purpose: Purpose,
        command: wire::nvme::Command,
        data_bytes: usize,
        cx: &mut Context<'_>,
    ) {
        let data = (data_bytes > 0).then(|| {
            let buffer = self.buffers.take(data_bytes);
            let buffer = buffer.expect("there is one for each command that may be outstanding");
            IoSlice::from_buffer(buffer, data_bytes)
        });
        let exchange = Exchange::admin(purpose as u64, command, data);
        if !self.qpair.has_room() {
            self.lose(None, cx);
        } else if purpose == Purpose::Event {
            self.qpair.start_until(exchange, Time::NEVER);
        } else {
            self.qpair.start(exchange, cx.now);
        }
    }

    fn ask_fabrics(&mut self, purpose: Purpose, command: &FabricsCommand, cx: &mut Context<'_>) {
        self.ask(purpose, command.encode(0), 0, cx);
    }

    fn ask_admin(
        &mut self,
        purpose: Purpose,
        command: &AdminCommand,
        data_bytes: usize,
        cx: &mut Context<'_>,
    ) {
        self.ask(purpose, command.encode(0), data_bytes, cx);
    }

    /// Announces the association: channels may open their queues.
    fn go_live(&mut self, cx: &mut Context<'_>) {
        self.enter(ControllerState::Live, Time::NEVER);
        self.generation += 1;
        self.lost_at = None;
        self.live_at = cx.now;
        self.aborts_out = 0;
        self.association.set_overdue(false);
        self.association.end_round();
        let live = ControllerName {
            cntlid: self.qpair.cntlid,
            incarnation: self.setup.parameters.incarnation,
        };
        let controllers = self.fences.controllers().chain([live]);
        self.association.note_controllers(controllers.collect());
        self.association.set_epoch(Epoch {
            generation: self.generation,
            phase: Phase::Live,
        });
        // Without a free slot the association is lost again, which requires the live state.
        if self.events {
            self.ask_admin(Purpose::Event, &AdminCommand::AsyncEventRequest, 0, cx);
        }
    }

    /// Runs the timers of a live association, sends aborts, and follows a loss that a channel
    /// noticed.
    fn keep(&mut self, cx: &mut Context<'_>) {
        if self.association.phase() == Phase::Recovering {
            return self.lose(None, cx);
        }
        let mut later = Vec::new();
        for request in self.association.take_aborts() {
            if request.generation != self.generation {
                continue;
            }
            if self.aborts_out >= ABORTS_MAX {
                later.push(request);
                continue;
            }
            self.aborts_out += 1;
            let abort = Abort {
                sq_id: request.queue_id,
                cid: request.cid,
            };
            self.ask_admin(Purpose::Abort, &AdminCommand::Abort(abort), 0, cx);
        }
        self.association.keep_aborts(later);
        if self.state() == ControllerState::Live {
            self.keep_alive(cx);
            self.identify_again(cx);
            self.authenticate_again(cx);
        }
    }

    fn look_for_timeouts(&mut self, cx: &mut Context<'_>) {
        if self.qpair.table().overdue(0, cx.now).is_some() {
            let options = self.options();
            let error = ConnectionError::TimedOut {
                address: self.association.address(),
                what: self.awaited(),
                seconds: options.connect_timeout.0 / 1_000_000_000,
            };
            self.qpair.fail(error, cx);
        }
    }

    /// Closes the connection of a lost association, then tries again.
    fn lose(&mut self, error: Option<ConnectionError>, cx: &mut Context<'_>) {
        let shutting_down = self.state() == ControllerState::ShuttingDown;
        if self.state() == ControllerState::Live {
            self.association.report_lost(self.generation, error);
            self.raise_fence(cx.now);
        } else {
            self.association.set_error(error);
        }
        self.lost_at.get_or_insert(cx.now);
        self.inquiry = None;
        self.authenticating = None;
        self.identify_at = Time::NEVER;
        // The next association decides how the remaining fences end.
        self.fences.part();
        self.qpair.close(cx);
        self.enter(ControllerState::Draining, cx.now + CHANNELS_CLOSE_TIME);
        if shutting_down {
            self.deadline = cx.now;
        }
        if self.live_at > Time::ZERO && cx.now.since(self.live_at) > STABLE_TIME {
            self.backoff.reset();
            self.live_at = Time::ZERO;
        }
    }

    fn drained(&mut self, cx: &mut Context<'_>) {
        if !self.qpair.is_closed() {
            return;
        }
        if self.association.open_connections() > 0 && self.deadline > cx.now {
            return;
        }
        self.fences.leave(cx.now);
        let lost_for = cx.now.since(self.lost_at.unwrap_or(cx.now));
        let error = self.association.last_error();
        let refused = error.as_ref().is_some_and(ConnectionError::is_permanent);
        let mut delay_max = Nanos(u64::MAX);
        if let Some(ConnectionError::Authentication { .. }) = error {
            self.backoff.skip();
        } else if self.association.has_several_addresses() {
            // Another target may serve the namespaces soon.
            delay_max = FAILOVER_DELAY_MAX;
        }
        let has_further = self.association.has_further_address();
        let hopeless = match self.association.phase() {
            Phase::Gone => true,
            // The caller decides about a first attempt that fails.
            Phase::Connecting => !(self.options().persistent || has_further) || refused,
            _ => {
                let limit = self.options().final_loss();
                limit.is_some_and(|limit| lost_for >= limit)
            }
        };
        if hopeless || self.association.is_closing() {
            return self.end();
        }
        let delay = if has_further {
            Nanos::ZERO
        } else {
            self.association.begin_round();
            self.backoff.next().min(delay_max)
        };
        self.enter(ControllerState::Waiting, cx.now + delay);
    }

    fn end(&mut self) {
        self.enter(ControllerState::Closed, Time::NEVER);
        self.be_gone();
    }

    /// Ends the association for good: there will be no further one.
    fn be_gone(&self) {
        self.association.set_epoch(Epoch {
            generation: self.generation,
            phase: Phase::Gone,
        });
        self.association.remove_waker(self.waker);
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        // The controller no longer runs, and threads may still wait for an association.
        if self.state() != ControllerState::Closed {
            self.be_gone();
        }
    }
}

impl Controller {
    /// Handles an asynchronous event, and requests the next one. `[NVMe Base 2.0 §5.2]`
    fn event(&mut self, completion: &Completion, cx: &mut Context<'_>) {
        if !completion.status.is_success() {
            self.events = false;
            return;
        }
        let event = AsyncEvent::from_dword(completion.dword0());
        if matches!(
            event,
            AsyncEvent::NAMESPACE_ATTRIBUTE_CHANGED | AsyncEvent::DISCOVERY_LOG_CHANGE
        ) {
            self.look_again(cx);
        } else if event == AsyncEvent::ANA_CHANGE {
            self.look_at_ana(cx);
        }
        self.ask_admin(Purpose::Event, &AdminCommand::AsyncEventRequest, 0, cx);
    }
}

impl Controller {
    /// Returns the time of the next Keep Alive after one at `now`: half of the time-out later.
    fn next_keep_alive(&self, now: Time) -> Time {
        match self.options().keep_alive {
            _ if mutation::active(Mutation::KeepAliveNotSent) => Time::NEVER,
            Nanos::ZERO => Time::NEVER,
            keep_alive => now + Nanos(keep_alive.0 / 2),
        }
    }

    /// Sends a Keep Alive when it is due.
    fn keep_alive(&mut self, cx: &mut Context<'_>) {
        if self.keep_alive_at > cx.now {
            return;
        }
        if self.keep_alive_out {
            // The next one is sent when this one is answered.
            self.keep_alive_at = Time::NEVER;
            return;
        }
        // [NVMe Base 2.0 §3.9]: also with traffic-based keep-alive. An answer only shows that the
        // controller received something earlier.
        self.keep_alive_out = true;
        self.ask_admin(Purpose::KeepAlive, &AdminCommand::KeepAlive, 0, cx);
        self.keep_alive_at = self.next_keep_alive(cx.now);
    }

    /// Handles the answer to a Keep Alive.
    fn kept_alive(&mut self, now: Time) {
        self.keep_alive_out = false;
        if self.keep_alive_at == Time::NEVER {
            self.keep_alive_at = now;
        }
    }
}

base::states! {
    /// State of a controller.
    ///
    /// ```text
    ///                tick              Connect              namespaces known
    ///  Waiting ────────────► Connecting ─────► SettingUp ──────────────────► Live
    ///    ▲ │                     │                 │                          │ │ close
    ///    │ │                     │      error      │          loss            │ ▼
    ///    │ │                     ▼                 ▼                          │ ShuttingDown
    ///    │ │                 Draining ◄────────────┴──────────────────────────┘ │
    ///    │ │                   │   │ ▲                                          │
    ///    └─│───────────────────┘   │ └──────────────────────────────────────────┘
    ///      ▼                       ▼
    ///      └──────────────────► Closed
    /// ```
    pub enum ControllerState {
        /// The admin queue is being connected.
        Connecting = "connecting",
        /// The controller is being enabled and identified.
        SettingUp = "setting_up",
        /// Requests flow.
        Live = "live",
        /// The association is lost; connections of it are being closed.
        Draining = "draining",
        /// The next attempt is scheduled.
        Waiting = "waiting",
        /// The controller is being shut down.
        ShuttingDown = "shutting_down",
        /// The controller has ended.
        Closed = "closed",
    }
}

impl ControllerState {
    /// Returns true while an association is being made, or an attempt is scheduled.
    const fn is_making(self) -> bool {
        matches!(self, Self::Connecting | Self::SettingUp | Self::Waiting)
    }

    fn follows(self, before: Self) -> bool {
        match self {
            Self::Connecting => before == Self::Waiting,
            Self::SettingUp => before == Self::Connecting,
            Self::Live => before == Self::SettingUp,
            Self::ShuttingDown => before == Self::Live,
            Self::Waiting => before == Self::Draining,
            Self::Closed => matches!(before, Self::Draining | Self::Waiting),
            // A loss may be detected more than once before it is drained.
            Self::Draining => before != Self::Closed,
        }
    }
}

/// The current step of the set-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SetupStep {
    /// CAP is being read.
    #[default]
    Capabilities,
    /// CC.EN is being set.
    Enable,
    /// CSTS.RDY is awaited.
    Ready,
    /// Identify Controller.
    Identify,
    /// Identify Controller of the NVM command set: size limits of single commands.
    Lengths,
    /// Set Features: Host Extensions.
    Extensions,
    /// Too many lost associations may not have ended: waits until one of them has.
    Fence,
    /// Set Features: Number of Queues.
    Queues,
    /// Set Features: Asynchronous Event Configuration.
    Events,
    /// Namespaces, or the discovery log.
    Inquiry,
}

/// Results of the set-up so far.
#[derive(Debug, Default)]
struct Setup {
    step: SetupStep,
    capabilities: Option<Capabilities>,
    identified: Option<Box<ControllerInfo>>,
    parameters: Parameters,
    wanted_events: AsyncEventConfiguration,
    /// The controller reports ANA states.
    ana: bool,
    /// Time at which the controller must be ready.
    ready_by: Time,
    shutdown_asked: bool,
}
