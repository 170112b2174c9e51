//! The send side of a connection: the transport's caravans, and the answers that wait for room.
//!
//! The doorbell of the [`SendQueue`] says when the caravan being filled leaves; the core says what
//! it may carry at most, and in which order connections send. A connection to a host that does not
//! read keeps a bounded number of caravans; what does not fit waits in its slots.

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

/// Kind of the operation that sends.
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
    /// The send lists of the core, for a connection of these parties.
    #[inline]
    const fn lists_of<'a>(&'a mut self, parties: &'a Parties) -> SharedLists<'a> {
        SharedLists {
            pool: self.lists,
            parties,
            limits: self.limits,
        }
    }
}

/// Answers of a caravan.
#[derive(Clone, Copy, Debug, Default)]
struct Answers {
    count: u32,
    /// Bytes of buffers that go with them.
    held: u32,
}

/// A PDU that waits for space in the lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsent {
    IcResp,
    /// The answer of the command in this slot, or an R2T of it.
    OfSlot(u16),
}

/// The sending side of a connection.
#[derive(Debug)]
pub(crate) struct Output {
    key: SlabKey,
    socket: SocketId,
    queue: SendQueue<Answers>,
    /// Parties that its lists count for.
    parties: Rc<Parties>,
    /// The class of an I/O queue; none of what is for control alone.
    class: Option<Class>,
    /// Answers in lists that were not handed to the driver yet.
    pub(crate) unsent_answers: u32,
    /// PDUs that wait for space, in order.
    pub(crate) waiting: VecDeque<Unsent>,
    /// The connection is among the core's ready ones.
    marked: bool,
    /// The connection is among those that the core looks at when their time has come.
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

    /// The connection found its place among the core's.
    pub(crate) fn set_key(&mut self, key: SlabKey, socket: SocketId) {
        self.key = key;
        self.socket = socket;
    }

    /// It is known what the connection is for, or it is gone: its lists are another's share.
    pub(crate) fn set_parties(&mut self, parties: Rc<Parties>) {
        let lists = self.queue.lists();
        self.parties.give_back_lists(lists);
        parties.take_lists(lists);
        self.parties = parties;
    }

    /// The connection became an I/O queue of this class.
    pub(crate) fn set_class(&mut self, class: Class, core: &mut SendContext<'_>) {
        self.class = Some(class);
        self.set_mode(core.switch.knobs().answer_doorbell(), core);
    }

    /// The class of an I/O queue.
    pub(crate) const fn class(&self) -> Option<Class> {
        self.class
    }

    /// Returns the urgency of an ordinary answer.
    #[inline]
    pub(crate) fn urgency(&self) -> Urgency {
        self.class.map_or(Urgency::Urgent, Urgency::of)
    }

    /// Digests and alignment of the PDUs that leave.
    pub(crate) const fn format(&self) -> &PduFormat {
        self.queue.format()
    }

    /// Sets digests and alignment, as host and target agreed.
    pub(crate) const fn set_format(&mut self, format: PduFormat) {
        self.queue.set_format(format);
    }

    /// Returns true while a send is under way.
    pub(crate) const fn is_sending(&self) -> bool {
        self.queue.is_sending()
    }

    /// The pace at which the host takes what is sent.
    pub(crate) const fn pace(&self) -> &ReaderPace {
        &self.pace
    }

    /// Returns true while nothing is to be sent, and nothing is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.lists() == 0 && self.waiting.is_empty()
    }

    /// Makes room for one answer with `bytes` bytes of data, or an R2T; false when the connection
    /// has as many caravans as it may.
    #[inline]
    pub(crate) fn make_room(
        &mut self,
        bytes: u32,
        core: &mut SendContext<'_>,
        cx: &mut Context<'_>,
    ) -> bool {
        self.make_room_for(bytes, 1, core, cx)
    }

    /// The same for an answer with its data in `pdus` PDUs.
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
            // While `Latency` work is served first, a caravan that may wait is sent in its turn.
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

    /// Makes room for something new, which does not overtake what waits already.
    #[inline]
    pub(crate) fn make_room_last(
        &mut self,
        bytes: u32,
        core: &mut SendContext<'_>,
        cx: &mut Context<'_>,
    ) -> bool {
        self.waiting.is_empty() && self.make_room(bytes, core, cx)
    }

    /// A PDU waits for room: it is tried again when a send ends. Where none is under way, it is
    /// tried next turn if it is another one's turn now, and when a list comes back if none is left.
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

    /// The connection has something to send, and neither a list for it nor one under way.
    pub(crate) fn wait_for_list(&mut self, core: &mut SendContext<'_>) {
        if !self.marked {
            self.marked = true;
            core.lists.waiting.push_back((self.class, self.key));
        }
    }

    /// Returns true if it waits for a list, and has none under way that would take it on at its end.
    pub(crate) fn lacks_list(&self) -> bool {
        self.queue.lists() == 0 && !self.waiting.is_empty()
    }

    /// An answer with `bytes` bytes of data, or an R2T, was appended, and `in_flight` other
    /// commands are under way on the queue: the doorbell says when it leaves.
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

    /// Another mode of the doorbell; what it holds leaves.
    pub(crate) fn set_mode(&mut self, mode: Mode, core: &mut SendContext<'_>) {
        let decision = self.queue.doorbell_mut().reconfigure(mode);
        self.follow(decision, core);
    }

    /// The time has come that the doorbell named, or one before.
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

    /// The connection has something to send.
    #[inline]
    fn mark(&mut self, core: &mut SendContext<'_>) {
        if !self.marked {
            self.marked = true;
            core.switch.push_ready(self.class, self.key);
        }
    }

    /// The caravan being filled takes nothing more, and leaves when those before it have.
    fn complete_caravan(&mut self, core: &mut SendContext<'_>) {
        let Some(departure) = self.queue.complete() else {
            return;
        };
        if let Some(class) = self.class {
            departure.count(&mut core.switch.counters.classes[class].caravans);
        }
    }

    /// Starts a send, if one can be and is due. Returns its bytes.
    pub(crate) fn flush(&mut self, core: &mut SendContext<'_>, cx: &mut Context<'_>) -> usize {
        if self.is_sending() {
            return 0;
        }
        // What waits for room waits for a caravan that is full.
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
        // The host may read by another core what an answer tells it was written.
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

    /// The core is about to flush this connection, and takes it off its list.
    pub(crate) fn unmark(&mut self) {
        self.marked = false;
    }

    /// A send came to its end. Puts the connection back on the core's list if more is to be sent.
    /// Returns how many bytes of buffers went with it.
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
        // One that waits for a list is not late itself.
        self.pace.took(bytes, more && !self.lacks_list(), now);
        answers.held
    }

    /// Lets all that was appended leave without waiting for more: when
    /// [`has_left`](Self::has_left) is true of the number, it has. `None` where nothing was.
    pub(crate) fn leave_soon(&mut self, core: &mut SendContext<'_>) -> Option<u64> {
        self.complete_caravan(core);
        if self.queue.lists() == 0 {
            return None;
        }
        self.mark(core);
        Some(self.queue.mark())
    }

    /// Returns true once as many caravans have left.
    pub(crate) const fn has_left(&self, mark: u64) -> bool {
        self.queue.has_left(mark)
    }

    /// The answer that was appended carries `bytes` bytes of buffers.
    pub(crate) fn hold(&mut self, bytes: u32) {
        self.queue.account_mut().held += bytes;
    }

    /// Drops what was to be sent. Returns how many bytes of buffers that were.
    pub(crate) fn abandon(&mut self, core: &mut SendContext<'_>) -> u32 {
        let mut lists = core.lists_of(&self.parties);
        let mut held = 0;
        self.queue
            .abandon(&mut lists, |answers| held += answers.held);
        self.unsent_answers = 0;
        self.waiting.clear();
        held
    }

    /// Appends bytes that are a PDU already.
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

    /// Appends all the data of a command, and its completion: as the SUCCESS flag where the host
    /// did without SQ flow control, as a CapsuleResp otherwise. `[NVMe-TCP 1.0 §3.3.2.1]`
    #[inline]
    pub(crate) fn push_data(&mut self, data: IoSlice, completion: Completion, flow_control: bool) {
        let last = last_progress(&completion, flow_control);
        self.push_data_at(completion.cid, 0, data, last);
        self.end_data(last, completion);
    }

    /// Appends the data of extents of a command, in order, and its completion.
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
        // Memory that others may write is copied before it gets here, where a digest goes with it.
        assert!(
            !self.format().data_digest || data.bytes().is_some(),
            "digests are made of private copies"
        );
        self.queue.push_c2h_data_at(cid, offset, data, progress);
    }

    /// Appends the completion behind the data, unless that says it.
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
