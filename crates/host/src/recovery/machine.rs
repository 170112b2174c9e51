//! The state machine of a channel: its states, the causes that change them, and the times of its
//! attempts to get queues.
//!
//! [`TRANSITIONS`] lists every transition. The channel reports a cause to
//! [`ChannelMachine::enter`], which updates the times. Then it acts on its lanes and requests as
//! the new state requires. A cause that is not listed for the current state is a bug of this crate
//! and panics.

use crate::limits::ASK_AGAIN;
use crate::options::ConnectOptions;
use crate::qpair::was_away;
use base::mutation::{self, Mutation};
use base::{Nanos, Time};
use wire::nvme::Status;

base::named! {
    /// State of a channel.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ChannelState {
        /// No association is live and every lane is closed: requests wait.
        Waiting = "waiting",
        /// Lanes are being opened: requests wait until each lane is live or refused.
        Joining = "joining",
        /// A channel that got no queue requests one again. If no lane opens, it is `Gone` again.
        Retrying = "retrying",
        /// Requests are sent.
        Live = "live",
        /// Lanes are being closed; the channel then follows the association.
        Leaving = "leaving",
        /// No lane could be opened. Lanes are being closed; the channel is then `Gone`.
        Refused = "refused",
        /// Requests fail. The channel may get a queue later.
        Gone = "gone",
        /// The owner closed the channel. This is final.
        Closed = "closed",
    }
}

impl ChannelState {
    /// Returns true while lanes are being opened and requests wait for that.
    pub(crate) const fn is_opening(self) -> bool {
        matches!(self, Self::Joining | Self::Retrying)
    }

    /// Returns true while lanes are being closed and requests wait for the next association.
    pub(crate) const fn is_leaving(self) -> bool {
        matches!(self, Self::Leaving | Self::Refused)
    }

    /// Returns true if requests fail.
    pub(crate) const fn is_over(self) -> bool {
        matches!(self, Self::Gone | Self::Closed)
    }
}

base::named! {
    /// Cause of a transition.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Cause {
        /// The association was lost, or was lost and is live again.
        AssociationMoved = "association moved",
        /// Lanes are closed, and no association is live.
        AssociationAbsent = "association absent",
        /// Lanes are closed, and an association is live on which the channel gets a queue.
        AssociationLive = "association live",
        /// Lanes are closed, and there will be no further association.
        AssociationGone = "association gone",
        /// No association was live for the loss timeout.
        LossTimeout = "loss timeout",
        /// Every namespace of the channel was removed.
        NamespacesRemoved = "namespaces removed",
        /// Every lane is live or refused, and at least one is live.
        LanesLive = "lanes live",
        /// A lane ended.
        LaneLost = "lane lost",
        /// No lane could be opened, and the channel waits no longer for one.
        NoLane = "no lane",
        /// The channel gets no queue on the live association.
        NoQueue = "no queue",
        /// A channel without a queue requests one again.
        RetryDue = "retry due",
        /// The owner closed the channel.
        Closed = "closed",
    }
}

use ChannelState::{Closed, Gone, Joining, Leaving, Live, Refused, Retrying, Waiting};

/// Every transition: the cause, the states in which it may occur, and the state after it.
#[rustfmt::skip]
const TRANSITIONS: &[(Cause, &[ChannelState], ChannelState)] = &[
    (Cause::AssociationMoved,  &[Waiting, Joining, Retrying, Live, Refused], Leaving),
    (Cause::AssociationAbsent, &[Leaving, Gone],                             Waiting),
    (Cause::AssociationLive,   &[Leaving, Gone],                             Joining),
    (Cause::AssociationGone,   &[Leaving, Gone],                             Gone),
    (Cause::LossTimeout,       &[Waiting, Leaving],                          Gone),
    (Cause::NamespacesRemoved, &[Waiting, Joining, Retrying, Live],          Leaving),
    (Cause::NamespacesRemoved, &[Leaving, Refused, Gone],                    Gone),
    (Cause::LanesLive,         &[Joining, Retrying],                         Live),
    (Cause::LaneLost,          &[Joining, Live],                             Leaving),
    (Cause::NoLane,            &[Joining, Retrying, Live],                   Refused),
    (Cause::NoQueue,           &[Leaving, Refused, Gone],                    Gone),
    (Cause::RetryDue,          &[Gone],                                      Retrying),
    (Cause::Closed, &[Waiting, Joining, Retrying, Live, Leaving, Refused, Gone], Closed),
];

/// Returns the state after `cause`, or `None` if it may not occur in `state`.
fn next(state: ChannelState, cause: Cause) -> Option<ChannelState> {
    let row = |row: &&(Cause, &[ChannelState], _)| row.0 == cause && row.1.contains(&state);
    TRANSITIONS.iter().find(row).map(|row| row.2)
}

/// What happens to requests of a channel that has no queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OtherWay {
    /// They fail at once, with their lost writes.
    None,
    /// They fail with [`Gone`](block::BlockError::Gone), lost writes only once they can no longer
    /// take effect: the submitter repeats them elsewhere.
    Repeated,
    /// The channel's owner takes them, lost writes as above, and the channel requests a queue every
    /// [`ASK_AGAIN`].
    Taken,
}

/// The state of a channel, and the times of its attempts to get queues.
#[derive(Debug)]
pub(crate) struct ChannelMachine {
    state: ChannelState,
    pub(crate) other_way: OtherWay,
    /// Times of the first and last failure to open any lane since the channel was live.
    failing: Option<(Time, Time)>,
    /// Time by which the channel must run while `failing`: a later run counts as an absence.
    run_by: Time,
    /// `Gone`: time at which a queue is requested again.
    retry_at: Time,
    /// `Live` or while lanes are opened: time at which refused lanes are opened again.
    reopen_at: Time,
    /// Delay before the next such attempt.
    reopen_delay: Nanos,
    /// Identifier of the queue that was refused last, or 0. Higher ones are tried before it.
    pub(crate) refused_queue: u16,
    /// Queue and status of the last refusal, unless the controller still had that queue.
    pub(crate) refusal: Option<(u16, Status)>,
    reopen_delay_min: Nanos,
    loss_timeout: Option<Nanos>,
    connect_timeout: Nanos,
    keep_reconnecting: bool,
}

impl ChannelMachine {
    /// Creates the machine of a channel that waits for an association with these options.
    pub(crate) const fn new(options: &ConnectOptions) -> Self {
        Self {
            state: Waiting,
            other_way: OtherWay::None,
            failing: None,
            run_by: Time::NEVER,
            retry_at: Time::NEVER,
            reopen_at: Time::NEVER,
            reopen_delay: options.reconnect_delay_min,
            refused_queue: 0,
            refusal: None,
            reopen_delay_min: options.reconnect_delay_min,
            loss_timeout: options.loss_timeout,
            connect_timeout: options.connect_timeout,
            keep_reconnecting: options.keep_reconnecting,
        }
    }

    /// Returns the current state.
    #[inline]
    pub(crate) const fn state(&self) -> ChannelState {
        self.state
    }

    /// Moves to the state after `cause`, and returns it.
    ///
    /// # Panics
    /// If the cause may not occur in the current state.
    pub(crate) fn enter(&mut self, cause: Cause, now: Time) -> ChannelState {
        let before = self.state;
        let Some(state) = next(before, cause) else {
            panic!("{} in state {}", cause.name(), before.name());
        };
        self.state = state;
        self.retry_at = Time::NEVER;
        if state != Live {
            // Lanes opened in another state would stay open.
            self.reopen_at = Time::NEVER;
        }
        match state {
            Joining | Retrying => self.refusal = None,
            Live => {
                self.failing = None;
                self.run_by = Time::NEVER;
                self.reopen_delay = self.reopen_delay_min;
                self.refused_queue = 0;
                self.refusal = None;
            }
            Leaving | Refused if before.is_opening() => self.note_failure(now),
            Waiting | Leaving | Refused => {}
            Gone | Closed => self.failing = None,
        }
        let retries = self.is_replaceable() || self.keep_reconnecting;
        if cause == Cause::NoQueue && retries && !mutation::active(Mutation::QueueNotAskedFor) {
            self.retry_at = now + ASK_AGAIN;
        }
        state
    }

    /// Returns true if the channel's owner takes the requests of a channel without a queue.
    pub(crate) fn is_replaceable(&self) -> bool {
        self.other_way == OtherWay::Taken
    }

    /// Returns true unless requests fail, or will if the attempt to get a queue fails.
    pub(crate) const fn is_back(&self) -> bool {
        !self.state.is_over() && !matches!(self.state, Retrying | Refused)
    }

    fn note_failure(&mut self, now: Time) {
        let first = self.failing.map_or(now, |(first, _)| first);
        self.failing = Some((first, now));
    }

    /// Returns true if a lane failed since the channel was live, and none opened since.
    pub(crate) const fn is_failing(&self) -> bool {
        self.failing.is_some()
    }

    /// Returns true if the channel gets no queue although an association is live: no lane opened
    /// for the loss timeout, or when the channel requested one again.
    pub(crate) fn is_refused(&self) -> bool {
        let lasts = |limit: Nanos| {
            let failing = self.failing.map(|(first, last)| last.since(first));
            failing.is_some_and(|time| time >= limit)
        };
        self.state == Refused || self.loss_timeout.is_some_and(lasts)
    }

    /// Notes that a lane could not be opened and no lane is live; `refused` if the controller
    /// refused its queue. Returns true if the channel waits no longer: [`NoLane`](Cause::NoLane).
    pub(crate) fn has_no_lane(&mut self, refused: bool, now: Time) -> bool {
        self.note_failure(now);
        // The owner takes its requests, so they need not wait.
        self.state == Retrying || refused && self.is_replaceable() || self.is_refused()
    }

    /// Schedules refused lanes to be opened again after a delay, which doubles up to [`ASK_AGAIN`].
    pub(crate) fn reopen_later(&mut self, now: Time) {
        debug_assert!(self.state == Live || self.state.is_opening());
        let delay = self.reopen_delay;
        self.reopen_at = self.reopen_at.min(now + delay);
        self.reopen_delay = Nanos(delay.0.saturating_mul(2)).min(ASK_AGAIN.max(delay));
    }

    /// Returns true, once, when refused lanes are to be opened again.
    pub(crate) fn take_reopening(&mut self, now: Time) -> bool {
        take_due(&mut self.reopen_at, now)
    }

    /// Returns true, once, when a channel without a queue is to request one again.
    pub(crate) fn take_retry(&mut self, now: Time) -> bool {
        take_due(&mut self.retry_at, now)
    }

    /// Returns the time at which one of these attempts is due, or the channel must run.
    pub(crate) fn deadline(&self) -> Time {
        self.retry_at.min(self.reopen_at).min(self.run_by)
    }

    /// Excludes time in which the channel did not run, because the machine or the thread was
    /// stopped, from the time in which no lane opened: no attempt was made in it. At least one
    /// connect timeout is left for an attempt now.
    pub(crate) fn make_up_for_absence(&mut self, now: Time) {
        let due = std::mem::replace(&mut self.run_by, Time::NEVER);
        let Some((first, _)) = &mut self.failing else {
            return;
        };
        if was_away(due, now) {
            let limit = self.loss_timeout.unwrap_or_default();
            *first = (*first + now.since(due)).max(now + self.connect_timeout - limit);
        }
        self.run_by = now + ASK_AGAIN;
    }
}

fn take_due(at: &mut Time, now: Time) -> bool {
    let is_due = *at <= now;
    if is_due {
        *at = Time::NEVER;
    }
    is_due
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HostIdentity;

    /// The state after each cause in each state; `-` for a cause that may not occur.
    const TABLE: &str = "
                             Waiting Joining Retrying Live    Leaving Refused Gone     Closed
        association moved    leaving leaving leaving  leaving -       leaving -        -
        association absent   -       -       -        -       waiting -       waiting  -
        association live     -       -       -        -       joining -       joining  -
        association gone     -       -       -        -       gone    -       gone     -
        loss timeout         gone    -       -        -       gone    -       -        -
        namespaces removed   leaving leaving leaving  leaving gone    gone    gone     -
        lanes live           -       live    live     -       -       -       -        -
        lane lost            -       leaving -        leaving -       -       -        -
        no lane              -       refused refused  refused -       -       -        -
        no queue             -       -       -        -       gone    gone    gone     -
        retry due            -       -       -        -       -       -       retrying -
        closed               closed  closed  closed   closed  closed  closed  closed   -";

    const SECOND: Nanos = Nanos::from_secs(1);

    fn machine(other_way: OtherWay, change: impl FnOnce(&mut ConnectOptions)) -> ChannelMachine {
        let nqn = crate::parse_nqn("nqn.2026-11.io.switchyard:machine").unwrap();
        let identity = HostIdentity { nqn, id: [7; 16] };
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], 4420));
        let mut options = ConnectOptions::new(address, nqn, identity);
        options.loss_timeout = Some(Nanos(10 * SECOND.0));
        options.reconnect_delay_min = Nanos(SECOND.0 / 4);
        change(&mut options);
        let mut machine = ChannelMachine::new(&options);
        machine.other_way = other_way;
        machine
    }

    /// Enters causes one after the other at time `now`. Returns the last state.
    fn enter(machine: &mut ChannelMachine, causes: &[Cause], now: Time) -> ChannelState {
        causes.iter().for_each(|&cause| {
            machine.enter(cause, now);
        });
        machine.state()
    }

    /// A channel that opens lanes.
    fn joining(other_way: OtherWay) -> ChannelMachine {
        let mut machine = machine(other_way, |_| {});
        let causes = [Cause::AssociationMoved, Cause::AssociationLive];
        assert_eq!(enter(&mut machine, &causes, Time::ZERO), Joining);
        machine
    }

    /// A channel without a queue.
    fn gone(other_way: OtherWay, change: impl FnOnce(&mut ConnectOptions)) -> ChannelMachine {
        let mut machine = machine(other_way, change);
        let causes = [Cause::AssociationMoved, Cause::NoQueue];
        assert_eq!(enter(&mut machine, &causes, Time::ZERO), Gone);
        machine
    }

    #[test]
    fn every_cause_leads_to_the_state_of_the_table_or_is_refused() {
        let rows = TABLE.lines().skip(2);
        assert_eq!(rows.clone().count(), Cause::COUNT);
        for (row, cause) in rows.zip(Cause::ALL) {
            let states = row.trim().strip_prefix(cause.name()).expect(row);
            let states: Vec<_> = states.split_whitespace().collect();
            assert_eq!(states.len(), ChannelState::COUNT, "{row}");
            for (after, state) in states.into_iter().zip(ChannelState::ALL) {
                let found = next(state, cause).map_or("-", ChannelState::name);
                assert_eq!(found, after, "{state:?}, {cause:?}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "lanes live in state gone")]
    fn a_cause_that_may_not_occur_panics() {
        gone(OtherWay::None, |_| {}).enter(Cause::LanesLive, Time::ZERO);
    }

    /// A channel without a queue that had reopened refused lanes left them open when it was closed.
    #[test]
    fn refused_lanes_are_opened_again_in_no_state_without_lanes() {
        for cause in [
            Cause::NamespacesRemoved,
            Cause::AssociationMoved,
            Cause::LaneLost,
            Cause::NoLane,
            Cause::Closed,
        ] {
            let mut machine = joining(OtherWay::None);
            machine.reopen_later(Time::ZERO);
            assert!(machine.deadline() < Time::NEVER);
            machine.enter(cause, Time::ZERO);
            if cause == Cause::NamespacesRemoved {
                assert_eq!(machine.enter(cause, Time::ZERO), Gone);
            }
            assert_eq!(machine.deadline(), Time::NEVER, "{cause:?}");
            assert!(!machine.take_reopening(Time(u64::MAX - 1)), "{cause:?}");
        }
    }

    #[test]
    fn refused_lanes_of_a_live_channel_are_opened_again_and_later_each_time() {
        let mut machine = joining(OtherWay::None);
        machine.enter(Cause::LanesLive, Time::ZERO);
        let mut now = Time::ZERO;
        for quarters in [1, 2, 4, 4] {
            machine.reopen_later(now);
            let due = now + Nanos(quarters * SECOND.0 / 4);
            assert_eq!(machine.deadline(), due);
            assert!(!machine.take_reopening(now));
            now = due;
            assert!(machine.take_reopening(now) && !machine.take_reopening(now));
        }
    }

    #[test]
    fn a_channel_without_a_lane_waits_for_the_loss_timeout_over_all_attempts() {
        let mut machine = joining(OtherWay::None);
        let at = |seconds| Time::ZERO + Nanos(seconds * SECOND.0);
        assert!(!machine.has_no_lane(true, at(1)));
        let moved = [Cause::AssociationMoved, Cause::AssociationLive];
        assert_eq!(enter(&mut machine, &moved, at(9)), Joining);
        assert!(machine.is_failing() && !machine.is_refused());
        assert!(!machine.has_no_lane(false, at(10)));
        assert!(machine.has_no_lane(false, at(11)));
        assert_eq!(machine.enter(Cause::NoLane, at(11)), Refused);
        assert!(machine.is_refused() && !machine.is_back());
        // The next association gets no further time.
        machine.enter(Cause::AssociationMoved, at(12));
        assert!(machine.is_refused() && machine.is_back());
        machine.enter(Cause::NoQueue, at(12));
        assert!(!machine.is_refused() && !machine.is_failing());
    }

    #[test]
    fn a_live_lane_ends_the_time_without_one() {
        let mut machine = joining(OtherWay::None);
        (machine.refused_queue, machine.refusal) = (3, Some((3, Status::ACCESS_DENIED)));
        assert!(!machine.has_no_lane(true, Time::ZERO));
        machine.enter(Cause::LanesLive, Time::ZERO);
        assert!(!machine.is_failing());
        assert_eq!((machine.refused_queue, machine.refusal), (0, None));
    }

    #[test]
    fn a_replaceable_channel_waits_for_no_queue_that_is_refused() {
        let mut machine = joining(OtherWay::Taken);
        assert!(
            !machine.has_no_lane(false, Time::ZERO),
            "it was not refused"
        );
        assert!(machine.has_no_lane(true, Time::ZERO));
    }

    #[test]
    fn a_queue_is_requested_again_where_that_is_wanted_and_given_up_at_the_first_failure() {
        let never = gone(OtherWay::Repeated, |_| {});
        assert_eq!(never.deadline(), Time::NEVER);
        let keeps = |options: &mut ConnectOptions| options.keep_reconnecting = true;
        for mut machine in [gone(OtherWay::Taken, |_| {}), gone(OtherWay::None, keeps)] {
            let due = Time::ZERO + ASK_AGAIN;
            assert_eq!(machine.deadline(), due);
            assert!(!machine.take_retry(Time::ZERO) && machine.take_retry(due));
            assert_eq!(machine.enter(Cause::RetryDue, due), Retrying);
            assert!(!machine.is_back() && machine.deadline() == Time::NEVER);
            assert!(machine.has_no_lane(false, due));
            assert_eq!(machine.enter(Cause::NoLane, due), Refused);
            machine.enter(Cause::NoQueue, due);
            assert_eq!(machine.deadline(), due + ASK_AGAIN);
            // The next association has other queues.
            machine.enter(Cause::AssociationLive, due);
            assert!(machine.is_back() && machine.deadline() == Time::NEVER);
            machine.enter(Cause::LanesLive, due);
            assert!(machine.is_back());
        }
    }

    #[test]
    fn time_in_which_the_channel_did_not_run_is_not_counted() {
        let mut machine = joining(OtherWay::None);
        machine.make_up_for_absence(Time::ZERO);
        assert_eq!(machine.deadline(), Time::NEVER, "lanes do not fail");
        assert!(!machine.has_no_lane(true, Time::ZERO));
        machine.make_up_for_absence(Time::ZERO);
        let run_by = Time::ZERO + ASK_AGAIN;
        assert_eq!(machine.deadline(), run_by);
        let later = Time::ZERO + Nanos(100 * SECOND.0);
        machine.make_up_for_absence(later);
        assert!(!machine.has_no_lane(true, later));
        let (first, _) = machine.failing.unwrap();
        assert!(
            later.since(first) < Nanos(10 * SECOND.0),
            "time for an attempt"
        );
    }
}
