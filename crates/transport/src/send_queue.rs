//! The sending half of a connection: the current caravan, complete caravans, and the one being
//! sent. `[i10 §2.3, §2.4]`
//!
//! One send is outstanding at a time. During it the next caravan fills, so one system call sends
//! everything that became ready. The [`Doorbell`] decides when the current caravan is sent. The
//! owner sets the limits of a caravan, supplies its memory ([`ListSource`]), and limits the number
//! of complete caravans.
//!
//! Invariants: urgent PDUs are never delayed; a change of the doorbell's mode loses nothing; at
//! most one send is outstanding.

use crate::limits::{PDU_HEADER_BYTES_MAX, PDU_RANGES_MAX};
use reactor::{SendList, SendListPool};
use std::collections::VecDeque;
use switch::doorbell::{DoorbellCounters, Mode, Reason};
use switch::{Caravan, CaravanLimits, Doorbell};
use wire::tcp::PduFormat;

/// Supply of send lists.
pub trait ListSource {
    /// Returns an empty list, if one is free.
    fn take(&mut self) -> Option<Box<SendList>>;

    /// Returns a list, with or without content.
    fn give_back(&mut self, list: Box<SendList>);
}

/// Two send lists of a core for one connection: one is sent while the other one fills.
#[derive(Debug)]
pub struct ListPair {
    pool: SendListPool,
    /// Number of lists in use by the connection.
    taken: u8,
}

impl ListPair {
    /// Creates an empty pair, whose lists come from `pool` when the connection needs them.
    #[must_use]
    pub const fn new(pool: SendListPool) -> Self {
        Self { pool, taken: 0 }
    }
}

impl ListSource for ListPair {
    #[inline]
    fn take(&mut self) -> Option<Box<SendList>> {
        if self.taken == 2 {
            return None;
        }
        self.taken += 1;
        Some(self.pool.take())
    }

    #[inline]
    fn give_back(&mut self, list: Box<SendList>) {
        assert!(self.taken > 0, "a list comes back once");
        self.taken -= 1;
        self.pool.give_back(list);
    }
}

/// A complete caravan.
#[derive(Debug)]
struct Complete<T> {
    list: Box<SendList>,
    account: T,
}

/// Size and reason of a completed caravan, for counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// The doorbell's reason.
    pub reason: Reason,
    /// Commands or responses, bytes and segments that count against the limits.
    pub caravan: Caravan,
    /// Bytes on TCP, including headers and digests.
    pub bytes: usize,
}

impl Departure {
    /// Counts the caravan.
    #[inline]
    pub fn count(&self, counters: &mut DoorbellCounters) {
        counters.count(self.reason, self.caravan.requests, self.bytes as u64);
    }
}

/// The sending half of a connection. `T` is the owner's accounting data of a caravan; it starts
/// with the default value.
///
/// ```text
///           push_*            complete              next_send              sent
///  empty ───────────► filling ─────────► complete ─────────────► in flight ──────► empty
///                        │                                           ▲
///                        └── the doorbell rings, or `send_now` ──────┘
/// ```
#[derive(Debug)]
pub struct SendQueue<T> {
    /// Digests and alignment of sent PDUs.
    format: PduFormat,
    doorbell: Doorbell,
    pub(crate) filling: Option<Box<SendList>>,
    /// Commands or responses in the current caravan.
    loaded: Caravan,
    /// The owner's data of the current caravan.
    account: T,
    /// The current caravan has an urgent PDU, which the doorbell must not delay.
    urgent: bool,
    complete: VecDeque<Complete<T>>,
    /// The owner's data of the outstanding send.
    under_way: Option<T>,
    /// Number of completed sends.
    sent: u64,
}

impl<T: Default> SendQueue<T> {
    /// An empty queue with a doorbell in this mode.
    #[must_use]
    pub fn new(mode: Mode) -> Self {
        Self {
            format: PduFormat::PLAIN,
            doorbell: Doorbell::new(mode),
            filling: None,
            loaded: Caravan::EMPTY,
            account: T::default(),
            urgent: false,
            complete: VecDeque::new(),
            under_way: None,
            sent: 0,
        }
    }

    /// Digests and alignment of sent PDUs.
    #[must_use]
    pub const fn format(&self) -> &PduFormat {
        &self.format
    }

    /// Sets the negotiated digests and alignment. `[NVMe-TCP 1.0 §3.6.2.3]`
    pub const fn set_format(&mut self, format: PduFormat) {
        self.format = format;
    }

    /// The doorbell.
    #[must_use]
    pub const fn doorbell(&self) -> &Doorbell {
        &self.doorbell
    }

    /// The doorbell, to register waiting commands and responses. This queue reports sent and
    /// dropped ones to it.
    #[inline]
    pub const fn doorbell_mut(&mut self) -> &mut Doorbell {
        &mut self.doorbell
    }

    /// Sends the current caravan without waiting for the doorbell.
    #[inline]
    pub const fn send_now(&mut self) {
        self.urgent = true;
    }

    /// Returns true if the current caravan must be sent: the doorbell rang, or it has an urgent
    /// PDU.
    #[inline]
    #[must_use]
    pub const fn is_due(&self) -> bool {
        self.urgent || self.doorbell.due().is_some()
    }

    /// Ensures that there is a current caravan. Returns false if no list is free.
    #[inline]
    pub fn begin(&mut self, lists: &mut impl ListSource) -> bool {
        if self.filling.is_none() {
            self.filling = lists.take();
        }
        self.filling.is_some()
    }

    /// Returns true if the current caravan has room for `header_bytes` and `ranges`.
    #[inline]
    #[must_use]
    pub fn has_room(&self, header_bytes: usize, ranges: usize) -> bool {
        let filling = self.filling.as_ref();
        filling.is_some_and(|list| list.fits(header_bytes, ranges))
    }

    /// Returns true if the current caravan has room for one more PDU.
    #[inline]
    #[must_use]
    pub fn has_room_for_pdu(&self) -> bool {
        self.has_room(PDU_HEADER_BYTES_MAX, PDU_RANGES_MAX)
    }

    /// Returns true if these limits allow one more command or response of this size in the caravan;
    /// an empty caravan takes any.
    #[inline]
    #[must_use]
    pub const fn accepts(&self, (bytes, iovecs): (u32, u32), limits: &CaravanLimits) -> bool {
        self.loaded.accepts(bytes, iovecs, limits)
    }

    /// Counts a command or response in the current caravan.
    #[inline]
    pub const fn load(&mut self, (bytes, iovecs): (u32, u32)) {
        self.loaded.add(bytes, iovecs);
    }

    /// Commands or responses in the current caravan.
    #[must_use]
    pub const fn loaded(&self) -> Caravan {
        self.loaded
    }

    /// The owner's data of the current caravan.
    #[inline]
    pub const fn account_mut(&mut self) -> &mut T {
        &mut self.account
    }

    /// The owner's data of the current caravan.
    #[inline]
    #[must_use]
    pub const fn account(&self) -> &T {
        &self.account
    }

    /// Completes the current caravan: it takes nothing more, and is sent after the earlier ones.
    /// Returns `None` if there is none.
    #[inline]
    pub fn complete(&mut self) -> Option<Departure> {
        let (complete, departure) = self.take_filling()?;
        self.complete.push_back(complete);
        Some(departure)
    }

    /// Completes the current caravan and returns it for sending, as [`complete`](Self::complete)
    /// and [`next_send`](Self::next_send) together. Returns `None` if there is none.
    ///
    /// # Panics
    /// If a caravan is complete, or a send is outstanding.
    #[inline]
    pub fn send_filling(&mut self) -> Option<(Box<SendList>, Departure)> {
        assert!(
            self.complete.is_empty() && !self.is_sending(),
            "nothing leaves before it"
        );
        let (Complete { list, account }, departure) = self.take_filling()?;
        self.under_way = Some(account);
        Some((list, departure))
    }

    fn take_filling(&mut self) -> Option<(Complete<T>, Departure)> {
        let list = self.filling.take()?;
        let caravan = std::mem::take(&mut self.loaded);
        let bytes = list.bytes();
        let reason = self.doorbell.took(caravan);
        self.urgent = false;
        let account = std::mem::take(&mut self.account);
        let departure = Departure {
            reason,
            caravan,
            bytes,
        };
        Some((Complete { list, account }, departure))
    }

    /// Returns the oldest complete caravan with its data, to be sent now; `None` while a send is
    /// outstanding, or if none is complete.
    #[inline]
    pub fn next_send(&mut self) -> Option<(Box<SendList>, &T)> {
        if self.under_way.is_some() {
            return None;
        }
        let Complete { list, account } = self.complete.pop_front()?;
        Some((list, self.under_way.insert(account)))
    }

    /// Ends the outstanding send. Returns the owner's data.
    ///
    /// # Panics
    /// If no send is outstanding.
    pub fn end_send(&mut self, list: Box<SendList>, lists: &mut impl ListSource) -> T {
        lists.give_back(list);
        self.sent += 1;
        self.under_way.take().expect("a send was under way")
    }

    /// Drops all unsent caravans and returns their lists. Calls `each` with the data of every
    /// dropped caravan.
    pub fn abandon(&mut self, lists: &mut impl ListSource, mut each: impl FnMut(T)) {
        self.doorbell.clear();
        self.loaded = Caravan::EMPTY;
        self.urgent = false;
        if let Some(list) = self.filling.take() {
            lists.give_back(list);
        }
        each(std::mem::take(&mut self.account));
        for Complete { list, account } in self.complete.drain(..) {
            lists.give_back(list);
            each(account);
        }
    }

    /// Returns the number of complete caravans that wait for the outstanding send.
    #[must_use]
    pub fn complete_caravans(&self) -> usize {
        self.complete.len()
    }

    /// Returns the number of lists of the queue, including those in the driver.
    #[must_use]
    pub fn lists(&self) -> usize {
        let filling = usize::from(self.filling.is_some());
        self.complete.len() + filling + usize::from(self.under_way.is_some())
    }

    /// Returns true while a send is outstanding.
    #[inline]
    #[must_use]
    pub const fn is_sending(&self) -> bool {
        self.under_way.is_some()
    }

    /// Returns true if there is a current caravan, even an empty one.
    #[must_use]
    pub const fn is_filling(&self) -> bool {
        self.filling.is_some()
    }

    /// Returns true if nothing waits to be sent; a send may be outstanding.
    #[inline]
    #[must_use]
    pub fn has_nothing_to_send(&self) -> bool {
        self.complete.is_empty() && self.filling.as_ref().is_none_or(|list| list.is_empty())
    }

    /// Returns true if no send is outstanding or waiting.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        !self.is_sending() && self.has_nothing_to_send()
    }

    /// Returns the number that the count of completed sends reaches once all complete caravans are
    /// sent.
    #[inline]
    #[must_use]
    pub fn mark(&self) -> u64 {
        self.sent + self.complete.len() as u64 + u64::from(self.is_sending())
    }

    /// Returns the number that the count of completed sends reaches once the current caravan is
    /// sent, too.
    #[inline]
    #[must_use]
    pub fn filling_mark(&self) -> u64 {
        self.mark() + 1
    }

    /// Returns true if the number of completed sends has reached a [`mark`](Self::mark).
    #[inline]
    #[must_use]
    pub const fn has_left(&self, mark: u64) -> bool {
        self.sent >= mark
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{Nanos, Time};
    use switch::Knobs;
    use switch::doorbell::{Decision, Urgency};
    use wire::nvme::{Completion, Status};

    /// Bytes and segments of a response without digest.
    const ANSWER: (u32, u32) = (24, 1);

    fn queue() -> (SendQueue<usize>, ListPair) {
        let queue = SendQueue::new(Knobs::linux().doorbell);
        (queue, ListPair::new(SendListPool::default()))
    }

    fn answer(queue: &mut SendQueue<usize>, lists: &mut ListPair, now: Time) -> Decision {
        assert!(queue.begin(lists) && queue.has_room_for_pdu());
        queue.push_response(Completion::new(1, 0, Status::SUCCESS));
        *queue.account_mut() += 1;
        queue.load(ANSWER);
        let (bytes, iovecs) = ANSWER;
        let doorbell = queue.doorbell_mut();
        doorbell.on_request(now, bytes, iovecs, Urgency::Patient, 40)
    }

    #[test]
    fn a_caravan_leaves_whole_and_its_account_comes_back() {
        let (mut queue, mut lists) = queue();
        for n in 1..16 {
            let decision = answer(&mut queue, &mut lists, Time(1));
            let until = Time(1) + Nanos::from_micros(50);
            assert_eq!(decision, Decision::Hold { until }, "{n} wait");
            assert_eq!(queue.doorbell().deadline(), until);
        }
        answer(&mut queue, &mut lists, Time(2));
        assert!(queue.is_due());
        let departure = queue.complete().expect("sixteen are in it");
        assert_eq!(departure.reason, Reason::RequestsFull);
        assert_eq!((departure.caravan.requests, departure.bytes), (16, 16 * 24));
        let mark = queue.mark();
        let (list, account) = queue.next_send().expect("none is under way");
        assert_eq!((*account, list.bytes()), (16, 16 * 24));
        assert!(queue.is_sending() && !queue.is_idle() && !queue.has_left(mark));
        assert_eq!(queue.end_send(list, &mut lists), 16);
        assert!(queue.is_idle() && queue.has_left(mark));
        answer(&mut queue, &mut lists, Time(3));
        let mark = queue.filling_mark();
        let (list, departure) = queue.send_filling().expect("one fills");
        assert_eq!((departure.caravan.requests, list.bytes()), (1, 24));
        assert!(queue.is_sending() && !queue.has_left(mark));
        assert!(queue.has_nothing_to_send());
        assert_eq!(queue.end_send(list, &mut lists), 1);
        assert!(queue.is_idle() && queue.has_left(mark));
        assert!(queue.send_filling().is_none(), "none fills");
    }

    #[test]
    fn one_send_is_under_way_while_the_next_caravan_fills() {
        let (mut queue, mut lists) = queue();
        answer(&mut queue, &mut lists, Time(1));
        queue.send_now();
        assert!(queue.is_due());
        queue.complete();
        assert!(!queue.is_due(), "nothing fills");
        let (list, _) = queue.next_send().expect("none is under way");
        answer(&mut queue, &mut lists, Time(2));
        queue.complete();
        assert!(queue.next_send().is_none());
        assert_eq!((queue.lists(), queue.complete_caravans()), (2, 1));
        assert!(!queue.begin(&mut lists), "both lists are in use");
        queue.end_send(list, &mut lists);
        assert!(queue.next_send().is_some());
    }

    #[test]
    fn what_is_abandoned_is_accounted_for_and_its_lists_come_back() {
        let (mut queue, mut lists) = queue();
        answer(&mut queue, &mut lists, Time(1));
        answer(&mut queue, &mut lists, Time(1));
        queue.complete();
        answer(&mut queue, &mut lists, Time(2));
        let mut dropped = 0;
        queue.abandon(&mut lists, |answers| dropped += answers);
        assert_eq!((dropped, queue.lists()), (3, 0));
        assert!(queue.is_idle() && !queue.is_due());
        assert_eq!(queue.doorbell().deadline(), Time::NEVER);
        assert!(lists.take().is_some() && lists.take().is_some());
    }

    #[test]
    fn another_mode_rings_for_what_is_held() {
        let (mut queue, mut lists) = queue();
        answer(&mut queue, &mut lists, Time(1));
        let decision = queue.doorbell_mut().reconfigure(Mode::Immediate);
        assert_eq!(decision, Decision::Ring(Reason::Knob));
        assert!(queue.doorbell().deadline() <= Time(1) && queue.is_due());
    }
}
