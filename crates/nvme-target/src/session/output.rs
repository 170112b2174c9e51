//! The send side of a connection: a caravan being filled, those that wait, and the one under way.
//!
//! The connection's [`Doorbell`] says when the caravan being filled leaves; what it may carry at
//! most is the core's word. One send is under way at a time; meanwhile the next caravan fills, so
//! that one system call takes all that became ready. A connection to a host that does not read keeps
//! a bounded number of caravans; what does not fit waits in its slots.

use crate::limits::{ANSWER_HEADER_BYTES_MAX, ANSWER_IOVECS, ANSWER_RANGES_MAX, Limits};
use crate::session::send_lists::ListPool;
use crate::shares::Parties;
use crate::stats::CoreStats;
use crate::switch::core::CoreSwitch;
use base::{SlabKey, Time};
use reactor::{Context, IoSlice, Op, OpKey, OpNamespace, SendList, SocketId};
use std::collections::VecDeque;
use std::rc::Rc;
use switch::doorbell::{Decision, Mode, Reason, Urgency};
use switch::{Class, Doorbell};
use wire::nvme::Completion;
use wire::tcp::c2h_data::C2hProgress;
use wire::tcp::limits::PREFIX_BYTES_MAX;
use wire::tcp::{C2hData, CapsuleResp, PduFormat, R2t, digest};

/// Kind of the operation that sends.
pub(crate) const SEND: u8 = 1;

/// Parts of a core that the send side of its connections uses.
#[derive(Debug)]
pub(crate) struct SendContext<'a> {
    pub(crate) op_namespace: OpNamespace,
    pub(crate) switch: &'a mut CoreSwitch,
    pub(crate) lists: &'a mut ListPool,
    pub(crate) limits: &'a Limits,
    pub(crate) stats: &'a mut CoreStats,
}

/// The sending side of a connection.
#[derive(Debug)]
pub(crate) struct Output {
    key: SlabKey,
    socket: SocketId,
    /// Digests and alignment of what we send.
    pub(crate) format: PduFormat,
    /// Parties that its lists count for.
    parties: Rc<Parties>,
    /// The class of an I/O queue; none of what is for control alone.
    class: Option<Class>,
    /// Doorbell of the caravan in `filling`.
    doorbell: Doorbell,
    filling: Option<Box<SendList>>,
    /// Answers in the list being filled.
    filling_answers: usize,
    /// Bytes of buffers that go with them.
    filling_held: u32,
    queued: VecDeque<(Box<SendList>, usize, u32)>,
    /// Bytes of buffers that are being sent.
    sending_held: u32,
    /// Caravans that have left.
    departed: u64,
    pub(crate) sending: bool,
    /// Beginning of the send under way.
    pub(crate) since: Time,
    /// Answers in lists that were not handed to the driver yet.
    pub(crate) unsent_answers: usize,
    /// Slots with an answer or R2T that waits for space, in order.
    pub(crate) waiting: VecDeque<u16>,
    /// The connection is among the core's ready ones.
    marked: bool,
    /// The connection is among those that the core looks at when their time has come.
    timed: bool,
}

impl Output {
    pub(crate) fn new(key: SlabKey, socket: SocketId, parties: Rc<Parties>) -> Self {
        Self {
            key,
            socket,
            format: PduFormat::PLAIN,
            parties,
            class: None,
            doorbell: Doorbell::new(Mode::Immediate),
            filling: None,
            filling_answers: 0,
            filling_held: 0,
            sending_held: 0,
            queued: VecDeque::new(),
            departed: 0,
            sending: false,
            since: Time::ZERO,
            unsent_answers: 0,
            waiting: VecDeque::new(),
            marked: false,
            timed: false,
        }
    }

    /// The connection found its place among the core's.
    pub(crate) fn set_key(&mut self, key: SlabKey, socket: SocketId) {
        self.key = key;
        self.socket = socket;
    }

    /// It is known what the connection is for, or it is gone: its lists are another's share.
    pub(crate) fn set_parties(&mut self, parties: Rc<Parties>) {
        let filling = usize::from(self.filling.is_some());
        let lists = self.queued.len() + filling + usize::from(self.sending);
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

    /// Returns true while nothing is to be sent, and nothing is under way.
    pub(crate) fn is_idle(&self) -> bool {
        !self.sending && self.filling.is_none() && self.queued.is_empty() && self.waiting.is_empty()
    }

    /// Makes room for one answer with so many bytes of data, or an R2T; false when the connection
    /// has as many caravans as it may.
    #[inline]
    pub(crate) fn make_room(
        &mut self,
        bytes: u32,
        core: &mut SendContext<'_>,
        cx: &mut Context<'_>,
    ) -> bool {
        if let Some(list) = &self.filling {
            let limits = core.switch.caravan_limits(cx.now);
            let caravan = self.doorbell.waiting();
            if list.fits(ANSWER_HEADER_BYTES_MAX, ANSWER_RANGES_MAX)
                && caravan.accepts(bytes, ANSWER_IOVECS, &limits)
            {
                return true;
            }
            // While `Latency` work is served first, a caravan that may wait is sent in its turn.
            let in_turn = self.urgency() == Urgency::Patient && core.switch.prioritises(cx.now);
            let blocked = self.sending || in_turn;
            if blocked && self.queued.len() + 1 >= core.limits.sends_per_connection {
                return false;
            }
            self.complete_caravan(core);
            if blocked {
                self.mark(core);
            } else {
                self.flush(core, cx);
            }
        }
        self.filling = core.lists.take(&self.parties, core.limits);
        self.filling.is_some()
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

    /// A slot waits for room: it is tried again when a send ends. Where none is under way, it is
    /// tried next turn if it is another one's turn now, and when a list comes back if none is left.
    pub(crate) fn wait(&mut self, slot: u16, core: &mut SendContext<'_>) {
        self.waiting.push_back(slot);
        core.stats.output_waits += 1;
        let without_list = self.lacks_list();
        if without_list {
            core.stats.list_waits += 1;
            self.wait_for_list(core);
        } else if !self.sending {
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
        let nothing = !self.sending && self.filling.is_none() && self.queued.is_empty();
        nothing && !self.waiting.is_empty()
    }

    /// An answer with so many bytes of data, or an R2T, was appended, and `in_flight` other
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
        let iovecs = if bytes > 0 { ANSWER_IOVECS } else { 1 };
        let decision = self
            .doorbell
            .on_request(cx.now, bytes, iovecs, urgency, in_flight);
        self.follow(decision, core);
    }

    /// Another mode of the doorbell; what it holds leaves.
    pub(crate) fn set_mode(&mut self, mode: Mode, core: &mut SendContext<'_>) {
        let decision = self.doorbell.reconfigure(mode);
        self.follow(decision, core);
    }

    /// The time has come that the doorbell named, or one before.
    pub(crate) fn look_at_doorbell(&mut self, core: &mut SendContext<'_>, now: Time) {
        self.timed = false;
        let decision = self.doorbell.on_timer(now);
        self.follow(decision, core);
    }

    #[inline]
    fn follow(&mut self, decision: Decision, core: &mut SendContext<'_>) {
        match decision {
            Decision::Ring(_) => self.mark(core),
            Decision::Hold { until } => {
                if until < Time::NEVER && !self.timed {
                    self.timed = true;
                    let Self { key, .. } = *self;
                    core.switch.held.set(until, (key.index, key.generation));
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
        let Some(list) = self.filling.take() else {
            return;
        };
        if let Some(class) = self.class {
            let reason = self.doorbell.due().unwrap_or(Reason::Asked);
            let requests = self.doorbell.waiting().requests;
            core.switch
                .count_caravan(class, reason, requests, list.bytes());
        }
        self.doorbell.rang();
        let answers = std::mem::take(&mut self.filling_answers);
        let held = std::mem::take(&mut self.filling_held);
        self.queued.push_back((list, answers, held));
    }

    /// Starts a send, if one can be and is due. Returns its bytes.
    pub(crate) fn flush(&mut self, core: &mut SendContext<'_>, cx: &mut Context<'_>) -> usize {
        if self.sending {
            return 0;
        }
        // What waits for room waits for a caravan that is full.
        let due = self.doorbell.due().is_some() || !self.waiting.is_empty();
        if self.queued.is_empty() && due {
            self.complete_caravan(core);
        }
        let Some((list, answers, held)) = self.queued.pop_front() else {
            return 0;
        };
        self.unsent_answers -= answers;
        self.sending = true;
        self.sending_held = held;
        self.since = cx.now;
        let bytes = list.bytes();
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
    pub(crate) fn sent(&mut self, list: Box<SendList>, core: &mut SendContext<'_>) -> u32 {
        core.lists.give_back(list, &self.parties);
        self.sending = false;
        self.departed += 1;
        let due = self.doorbell.due().is_some();
        if due || !self.queued.is_empty() || !self.waiting.is_empty() {
            self.mark(core);
        }
        std::mem::take(&mut self.sending_held)
    }

    /// Lets all that was appended leave without waiting for more: when
    /// [`has_left`](Self::has_left) is true of the number, it has. `None` where nothing was.
    pub(crate) fn leave_soon(&mut self, core: &mut SendContext<'_>) -> Option<u64> {
        self.complete_caravan(core);
        let ahead = self.queued.len() as u64 + u64::from(self.sending);
        if ahead == 0 {
            return None;
        }
        self.mark(core);
        Some(self.departed + ahead)
    }

    /// Returns true once as many caravans have left.
    pub(crate) const fn has_left(&self, mark: u64) -> bool {
        self.departed >= mark
    }

    /// The answer that was appended carries so many bytes of buffers.
    pub(crate) fn hold(&mut self, bytes: u32) {
        self.filling_held += bytes;
    }

    /// Drops what was to be sent. Returns how many bytes of buffers that were.
    pub(crate) fn abandon(&mut self, core: &mut SendContext<'_>) -> u32 {
        let mut held = std::mem::take(&mut self.filling_held);
        held += self.queued.iter().map(|(_, _, held)| held).sum::<u32>();
        let queued = self.queued.drain(..).map(|(list, _, _)| list);
        for list in queued.chain(self.filling.take()) {
            core.lists.give_back(list, &self.parties);
        }
        self.doorbell.clear();
        self.unsent_answers = 0;
        self.filling_answers = 0;
        self.waiting.clear();
        held
    }

    /// The list to fill, after [`make_room`](Self::make_room) said that there is one.
    fn list(&mut self) -> &mut SendList {
        self.filling.as_mut().expect("the caller made room")
    }

    /// Appends bytes that are a PDU already.
    pub(crate) fn push_bytes(&mut self, bytes: &[u8]) {
        self.list().push_header(bytes);
    }

    fn count_answer(&mut self) {
        self.filling_answers += 1;
        self.unsent_answers += 1;
    }

    /// Appends a CapsuleResp.
    #[inline]
    pub(crate) fn push_completion(&mut self, completion: Completion) {
        let mut header = [0; CapsuleResp::SIZE + 4];
        let length = CapsuleResp { completion }.encode(&self.format, &mut header);
        self.list().push_header(&header[..length]);
        self.count_answer();
    }

    /// Appends an R2T.
    pub(crate) fn push_r2t(&mut self, r2t: R2t) {
        let mut header = [0; R2t::SIZE + 4];
        let length = r2t.encode(&self.format, &mut header);
        self.list().push_header(&header[..length]);
    }

    /// Appends all the data of a command, and its completion: as the SUCCESS flag where the host
    /// did without SQ flow control, as a CapsuleResp otherwise. `[NVMe-TCP 1.0 §3.3.2.1]`
    #[inline]
    pub(crate) fn push_data(&mut self, data: IoSlice, completion: Completion, flow_control: bool) {
        let trivial = !flow_control && completion.result == 0;
        let progress = if trivial {
            C2hProgress::LastAndSuccess
        } else {
            C2hProgress::Last
        };
        let pdu = C2hData {
            command_id: completion.cid,
            data_offset: 0,
            data_length: u32::try_from(data.len()).expect("a transfer is at most 1 MiB"),
            progress,
        };
        let mut header = [0; PREFIX_BYTES_MAX];
        let format = self.format;
        let length = pdu.encode(&format, &mut header);
        let digest = format.data_digest.then(|| {
            // Memory that others may write has no digest: it is copied before it gets here.
            digest::digest_bytes(data.bytes().expect("digests are made of private copies"))
        });
        let list = self.list();
        list.push_header(&header[..length]);
        list.push_payload(data);
        if let Some(digest) = digest {
            list.push_header(&digest);
        }
        if trivial {
            self.count_answer();
        } else {
            self.push_completion(completion);
        }
    }
}
