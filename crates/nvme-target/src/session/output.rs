//! The send side of a connection: the transport's caravans, and the answers that wait for space.
//!
//! The doorbell of the [`SendQueue`] decides when the caravan being filled leaves; the core limits
//! its size and orders the sends of its connections. A connection to a host that does not read
//! keeps a bounded number of caravans; further answers wait in their slots.

use crate::limits::Limits;
use crate::session::pace::ReaderPace;
use crate::session::send_lists::{ListPool, SharedLists};
use crate::shares::Parties;
use crate::stats::CoreStats;
use crate::switch::core::CoreSwitch;
use base::{SlabKey, Time};
use reactor::{Context, IoSlice, Op, OpKey, OpNamespace, SendList, SocketId, UnorderedStores};
use std::collections::VecDeque;
use std::rc::Rc;
use switch::Class;
use switch::doorbell::{Decision, Mode, Urgency};
use transport::SendQueue;
use transport::limits::{DATA_IOVECS, PDU_HEADER_BYTES_MAX, PDU_RANGES_MAX};
use wire::nvme::Completion;
use wire::tcp::c2h_data::C2hProgress;
use wire::tcp::{PduFormat, R2t};

/// Kind of a send operation.
pub(crate) const SEND: u8 = 1;

/// Parts of a core that the send side of its connections uses.
#[derive(Debug)]
pub(crate) struct SendContext<'a> {
    pub(crate) op_namespace: OpNamespace,
    pub(crate) switch: &'a mut CoreSwitch,
    pub(crate) stores: &'a mut UnorderedStores,
    pub(crate) lists: &'a mut ListPool,
    pub(crate) limits: &'a Limits,
    pub(crate) stats: &'a mut CoreStats,
}

impl SendContext<'_> {
    /// Returns the core's send lists, for a connection of these parties.
    #[inline]
    const fn lists_of<'a>(&'a mut self, parties: &'a Parties) -> SharedLists<'a> {
        SharedLists {
            pool: self.lists,
            parties,
            limits: self.limits,
        }
    }
}

/// Answers in a caravan.
#[derive(Clone, Copy, Debug, Default)]
struct Answers {
    count: u32,
    /// Bytes of buffers held by these answers.
    held: u32,
}

/// A PDU that waits for space in the lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsent {
    IcResp,
    /// The answer of the command in this slot, or one of its R2Ts.
    OfSlot(u16),
}

/// The sending side of a connection.
#[derive(Debug)]
pub(crate) struct Output {
    key: SlabKey,
    socket: SocketId,
    queue: SendQueue<Answers>,
    /// Parties to which its send lists are charged.
    parties: Rc<Parties>,
    /// The class of an I/O queue; `None` for admin queues.
    class: Option<Class>,
    /// Answers in lists that the driver has not received yet.
    pub(crate) unsent_answers: u32,
    /// PDUs that wait for space, in order.
    pub(crate) waiting: VecDeque<Unsent>,
    /// The connection is in one of the core's ready or waiting lists.
    marked: bool,
    /// The connection has a timer for its doorbell.
    timed: bool,
    pace: ReaderPace,
}

impl Output {
    pub(crate) fn new(key: SlabKey, socket: SocketId, parties: Rc<Parties>) -> Self {
        Self {
            key,
            socket,
            queue: SendQueue::new(Mode::Immediate),
            parties,
            class: None,
            unsent_answers: 0,
            waiting: VecDeque::new(),
            marked: false,
            timed: false,
            pace: ReaderPace::new(),
        }
    }

    /// Sets the connection's key in the core's table and its socket.
    pub(crate) fn set_key(&mut self, key: SlabKey, socket: SocketId) {
        self.key = key;
        self.socket = socket;
    }

    /// Charges the connection's lists to other parties, because its purpose became known or it
    /// ended.
    pub(crate) fn set_parties(&mut self, parties: Rc<Parties>) {
        let lists = self.queue.lists();
        self.parties.give_back_lists(lists);
        parties.take_lists(lists);
        self.parties = parties;
    }

    /// Sets the class of a connection that became an I/O queue.
    pub(crate) fn set_class(&mut self, class: Class, core: &mut SendContext<'_>) {
        self.class = Some(class);
        self.set_mode(core.switch.knobs().answer_doorbell(), core);
    }

    /// Returns the class of an I/O queue.
    pub(crate) const fn class(&self) -> Option<Class> {
        self.class
    }

    /// Returns the urgency of an ordinary answer.
    #[inline]
    pub(crate) fn urgency(&self) -> Urgency {
        self.class.map_or(Urgency::Urgent, Urgency::of)
    }

    /// Returns digests and alignment of sent PDUs.
    pub(crate) const fn format(&self) -> &PduFormat {
        self.queue.format()
    }

    /// Sets digests and alignment, as host and target agreed.
    pub(crate) const fn set_format(&mut self, format: PduFormat) {
        self.queue.set_format(format);
    }

    /// Returns true while a send is in flight.
    pub(crate) const fn is_sending(&self) -> bool {
        self.queue.is_sending()
    }

    /// Returns the pace at which the host reads.
    pub(crate) const fn pace(&self) -> &ReaderPace {
        &self.pace
    }

    /// Returns true if nothing is to be sent and no send is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.lists() == 0 && self.waiting.is_empty()
    }

    /// Makes room for one answer with `bytes` bytes of data, or an R2T; returns false if the
    /// connection has reached its limit of caravans.
    #[inline]
    pub(crate) fn make_room(
        &mut self,
        bytes: u32,
        core: &mut SendContext<'_>,
        cx: &mut Context<'_>,
    ) -> bool {
        self.make_room_for(bytes, 1, core, cx)
    }

    /// Makes room for an answer whose data is in `pdus` PDUs.
    #[inline]
    pub(crate) fn make_room_for(
        &mut self,
        bytes: u32,
        pdus: usize,
        core: &mut SendContext<'_>,
        cx: &mut Context<'_>,
    ) -> bool {
        if self.queue.is_filling() {
            let limits = core.switch.caravan_limits(cx.now);
            let (header_bytes, ranges) = (pdus * PDU_HEADER_BYTES_MAX, pdus * PDU_RANGES_MAX);
            let fits = self.queue.has_room(header_bytes, ranges);
            if fits && self.queue.accepts((bytes, DATA_IOVECS), &limits) {
                return true;
            }
            // While `Latency` work has priority, a caravan that may wait is sent in its turn.
            let in_turn = self.urgency() == Urgency::Patient && core.switch.prioritises(cx.now);
            let blocked = self.is_sending() || in_turn;
            if blocked && self.queue.complete_caravans() + 1 >= core.limits.sends_per_connection {
                return false;
            }
            self.complete_caravan(core);
            if blocked {
                self.mark(core);
            } else {
                self.flush(core, cx);
            }
        }
        self.queue.begin(&mut core.lists_of(&self.parties))
    }

    /// Makes room for a new PDU; returns false if other PDUs wait, which it must not overtake.
    #[inline]
    pub(crate) fn make_room_last(
        &mut self,
        bytes: u32,
        core: &mut SendContext<'_>,
        cx: &mut Context<'_>,
    ) -> bool {
        self.waiting.is_empty() && self.make_room(bytes, core, cx)
    }

    /// Queues a PDU until there is room. It is retried when a send ends; if none is in flight, in
    /// the next turn; and if no send list is available, when one is returned.
    pub(crate) fn wait(&mut self, unsent: Unsent, core: &mut SendContext<'_>) {
        self.waiting.push_back(unsent);
        core.stats.output_waits += 1;
        let without_list = self.lacks_list();
        if without_list {
            core.stats.list_waits += 1;
            self.wait_for_list(core);
        } else if !self.is_sending() {
            self.mark(core);
        }
    }

    /// Queues a connection with output that has no send list, neither filled nor in flight.
    pub(crate) fn wait_for_list(&mut self, core: &mut SendContext<'_>) {
        if !self.marked {
            self.marked = true;
            core.lists.waiting.push_back((self.class, self.key));
        }
    }

    /// Returns true if the connection waits for a list and has none in flight whose end would
    /// resume it.
    pub(crate) fn lacks_list(&self) -> bool {
        self.queue.lists() == 0 && !self.waiting.is_empty()
    }

    /// Handles an appended answer with `bytes` bytes of data, or an R2T, while `in_flight` other
    /// commands of the queue are outstanding: the doorbell decides when it leaves.
    #[inline]
    pub(crate) fn appended(
        &mut self,
        bytes: u32,
        urgency: Urgency,
        in_flight: u32,
        core: &mut SendContext<'_>,
        cx: &Context<'_>,
    ) {
        let iovecs = if bytes > 0 { DATA_IOVECS } else { 1 };
        self.queue.load((bytes, iovecs));
        let doorbell = self.queue.doorbell_mut();
        let decision = doorbell.on_request(cx.now, bytes, iovecs, urgency, in_flight);
        self.follow(decision, core);
    }

    /// Changes the mode of the doorbell; held output leaves.
    pub(crate) fn set_mode(&mut self, mode: Mode, core: &mut SendContext<'_>) {
        let decision = self.queue.doorbell_mut().reconfigure(mode);
        self.follow(decision, core);
    }

    /// Runs the doorbell's timer, which may fire early.
    pub(crate) fn look_at_doorbell(&mut self, core: &mut SendContext<'_>, now: Time) {
        self.timed = false;
        let decision = self.queue.doorbell_mut().on_timer(now);
        self.follow(decision, core);
    }

    #[inline]
    fn follow(&mut self, decision: Decision, core: &mut SendContext<'_>) {
        match decision {
            Decision::Ring(_) => self.mark(core),
            Decision::Hold { until } => {
                if until < Time::NEVER && !self.timed {
                    self.timed = true;
                    core.switch.held.set(until, self.key);
                }
            }
        }
    }

    /// Adds the connection to the core's ready list.
    #[inline]
    fn mark(&mut self, core: &mut SendContext<'_>) {
        if !self.marked {
            self.marked = true;
            core.switch.push_ready(self.class, self.key);
        }
    }

    /// Closes the caravan being filled; it leaves after the earlier ones.
    fn complete_caravan(&mut self, core: &mut SendContext<'_>) {
        let Some(departure) = self.queue.complete() else {
            return;
        };
        if let Some(class) = self.class {
            departure.count(&mut core.switch.counters.classes[class].caravans);
        }
    }

    /// Starts a send if one is possible and due. Returns its bytes.
    pub(crate) fn flush(&mut self, core: &mut SendContext<'_>, cx: &mut Context<'_>) -> usize {
        if self.is_sending() {
            return 0;
        }
        // PDUs that wait for space need a full caravan to leave.
        let due = self.queue.is_due() || !self.waiting.is_empty();
        if self.queue.complete_caravans() == 0 && due {
            self.complete_caravan(core);
        }
        let Some((list, answers)) = self.queue.next_send() else {
            return 0;
        };
        debug_assert!(
            self.unsent_answers >= answers.count,
            "an answer is sent once"
        );
        self.unsent_answers -= answers.count;
        let bytes = list.bytes();
        self.pace.begins(cx.now);
        // After it receives an answer, the host may use another core to read the data written.
        core.stores.order();
        let key = OpKey::new(core.op_namespace, SEND, self.key);
        cx.submit(
            key,
            Op::Send {
                socket: self.socket,
                list,
            },
        );
        bytes
    }

    /// Notes that the core takes this connection off its list to flush it.
    pub(crate) fn unmark(&mut self) {
        self.marked = false;
    }

    /// Handles the end of a send. Puts the connection back on the core's list if there is more to
    /// send. Returns the bytes of buffers that the sent answers held.
    pub(crate) fn sent(
        &mut self,
        list: Box<SendList>,
        core: &mut SendContext<'_>,
        now: Time,
    ) -> u32 {
        let bytes = list.bytes();
        let mut lists = core.lists_of(&self.parties);
        let answers = self.queue.end_send(list, &mut lists);
        let more = self.queue.is_due() || self.queue.complete_caravans() > 0;
        let more = more || !self.waiting.is_empty();
        if more {
            self.mark(core);
        }
        // A connection that waits for a list is not late itself.
        self.pace.took(bytes, more && !self.lacks_list(), now);
        answers.held
    }

    /// Makes all appended output leave without waiting for more. Returns the mark for
    /// [`has_left`](Self::has_left), which then reports whether it has left; `None` if there is no
    /// output.
    pub(crate) fn leave_soon(&mut self, core: &mut SendContext<'_>) -> Option<u64> {
        self.complete_caravan(core);
        if self.queue.lists() == 0 {
            return None;
        }
        self.mark(core);
        Some(self.queue.mark())
    }

    /// Returns the mark of the answer that is appended next, or was appended last in this caravan.
    pub(crate) fn filling_mark(&self) -> u64 {
        self.queue.filling_mark()
    }

    /// Returns true once the output before the mark has left.
    pub(crate) const fn has_left(&self, mark: u64) -> bool {
        self.queue.has_left(mark)
    }

    /// Charges `bytes` bytes of buffers to the appended answer.
    pub(crate) fn hold(&mut self, bytes: u32) {
        self.queue.account_mut().held += bytes;
    }

    /// Drops all output. Returns the bytes of buffers that it held.
    pub(crate) fn abandon(&mut self, core: &mut SendContext<'_>) -> u32 {
        let mut lists = core.lists_of(&self.parties);
        let mut held = 0;
        self.queue
            .abandon(&mut lists, |answers| held += answers.held);
        self.unsent_answers = 0;
        self.waiting.clear();
        held
    }

    /// Appends an encoded PDU.
    pub(crate) fn push_bytes(&mut self, bytes: &[u8]) {
        self.queue.push_bytes(bytes);
    }

    fn count_answer(&mut self) {
        self.queue.account_mut().count += 1;
        self.unsent_answers += 1;
    }

    /// Appends a CapsuleResp.
    #[inline]
    pub(crate) fn push_completion(&mut self, completion: Completion) {
        self.queue.push_response(completion);
        self.count_answer();
    }

    /// Appends an R2T.
    pub(crate) fn push_r2t(&mut self, r2t: R2t) {
        self.queue.push_r2t(r2t);
    }

    /// Appends all the data of a command, and its completion: as the SUCCESS flag if SQ flow
    /// control is disabled, otherwise as a CapsuleResp. `[NVMe-TCP 1.0 §3.3.2.1]`
    #[inline]
    pub(crate) fn push_data(&mut self, data: IoSlice, completion: Completion, flow_control: bool) {
        let last = last_progress(&completion, flow_control);
        self.push_data_at(completion.cid, 0, data, last);
        self.end_data(last, completion);
    }

    /// Appends the data of a command's extents, in order, and its completion.
    pub(crate) fn push_extents(
        &mut self,
        parts: impl ExactSizeIterator<Item = Option<IoSlice>>,
        completion: Completion,
        flow_control: bool,
    ) {
        let last = last_progress(&completion, flow_control);
        let (mut offset, mut left) = (0, parts.len());
        for data in parts {
            let data = data.expect("every extent that was read has data");
            let bytes = u32::try_from(data.len()).expect("a transfer is at most 1 MiB");
            left -= 1;
            let progress = if left > 0 { C2hProgress::More } else { last };
            self.push_data_at(completion.cid, offset, data, progress);
            offset += bytes;
        }
        self.end_data(last, completion);
    }

    /// Appends a C2HData PDU.
    #[inline]
    fn push_data_at(&mut self, cid: u16, offset: u32, data: IoSlice, progress: C2hProgress) {
        // Memory that other parties may write is copied before it gets here if a digest covers it.
        assert!(
            !self.format().data_digest || data.bytes().is_some(),
            "digests are made of private copies"
        );
        self.queue.push_c2h_data_at(cid, offset, data, progress);
    }

    /// Appends the completion after the data, unless the last data PDU carries it.
    #[inline]
    fn end_data(&mut self, last: C2hProgress, completion: Completion) {
        if last == C2hProgress::LastAndSuccess {
            self.count_answer();
        } else {
            self.push_completion(completion);
        }
    }
}

/// Returns the flags of the last data PDU of a command.
#[inline]
const fn last_progress(completion: &Completion, flow_control: bool) -> C2hProgress {
    if !flow_control && completion.result == 0 {
        C2hProgress::LastAndSuccess
    } else {
        C2hProgress::Last
    }
}
