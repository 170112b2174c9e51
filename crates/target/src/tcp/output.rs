//! What a connection has to send: lists being filled, waiting, and under way.
//!
//! One send is under way at a time; meanwhile the next list fills, so that one system call takes
//! all that became ready. A connection whose host does not read keeps a bounded number of lists;
//! what does not fit waits in its slots.

use crate::core::CoreState;
use crate::limits::{ANSWER_HEADER_BYTES_MAX, ANSWER_RANGES_MAX};
use base::{SlabKey, Time};
use reactor::{Context, IoSlice, Op, OpKey, SendList, SocketId};
use std::collections::VecDeque;
use wire::nvme::Completion;
use wire::tcp::c2h_data::C2hProgress;
use wire::tcp::limits::PREFIX_BYTES_MAX;
use wire::tcp::{C2hData, CapsuleResp, PduFormat, R2t, digest};

/// Kind of the operation that sends.
pub(crate) const SEND: u8 = 1;

/// The sending side of a connection.
#[derive(Debug)]
pub(crate) struct Output {
    key: SlabKey,
    socket: SocketId,
    /// Digests and alignment of what we send.
    pub(crate) format: PduFormat,
    filling: Option<Box<SendList>>,
    /// Answers in the list being filled.
    filling_answers: usize,
    queued: VecDeque<(Box<SendList>, usize)>,
    pub(crate) sending: bool,
    /// What is sent here goes before what is sent elsewhere.
    pub(crate) urgent: bool,
    /// When the send under way began.
    pub(crate) since: Time,
    /// Answers in lists that were not handed to the driver yet.
    pub(crate) unsent_answers: usize,
    /// Slots whose answer or R2T found no room, in order.
    pub(crate) waiting: VecDeque<u16>,
    /// The connection is on the core's list of those with something to send.
    marked: bool,
}

impl Output {
    pub(crate) fn new(key: SlabKey, socket: SocketId) -> Self {
        Self {
            key,
            socket,
            format: PduFormat::PLAIN,
            filling: None,
            filling_answers: 0,
            queued: VecDeque::new(),
            sending: false,
            urgent: false,
            since: Time::ZERO,
            unsent_answers: 0,
            waiting: VecDeque::new(),
            marked: false,
        }
    }

    /// The connection found its place among the core's.
    pub(crate) fn settle_key(&mut self, key: SlabKey) {
        self.key = key;
    }

    /// Whether nothing is to be sent, and nothing is under way.
    pub(crate) fn is_idle(&self) -> bool {
        !self.sending && self.filling.is_none() && self.queued.is_empty() && self.waiting.is_empty()
    }

    /// Makes room for one answer or R2T; false when the connection has as many lists as it may.
    #[inline]
    pub(crate) fn make_room(&mut self, core: &mut CoreState, cx: &mut Context<'_>) -> bool {
        let caravan = !self.urgent && core.prioritises();
        let most = if caravan {
            // What is sent on loopback is received on this very core before the next send.
            core.limits.caravan_bytes.min(core.limits.send_bytes)
        } else {
            core.limits.send_bytes
        };
        if let Some(list) = &self.filling {
            if list.fits(ANSWER_HEADER_BYTES_MAX, ANSWER_RANGES_MAX)
                && list.bytes() < most
                && self.filling_answers < core.limits.send_answers
            {
                return true;
            }
            if self.sending && self.queued.len() + 1 >= core.limits.sends_per_connection {
                return false;
            }
            self.queue_filling();
            self.flush(core, cx);
        }
        self.filling = core.lists.take();
        self.filling_answers = 0;
        if self.filling.is_none() {
            return false;
        }
        if !self.marked {
            self.marked = true;
            core.output.push(self.key);
        }
        true
    }

    /// Makes room for something new, which does not overtake what waits already.
    #[inline]
    pub(crate) fn make_room_last(&mut self, core: &mut CoreState, cx: &mut Context<'_>) -> bool {
        self.waiting.is_empty() && self.make_room(core, cx)
    }

    /// A slot waits for room: it is tried again when a send ends, or next turn if none is under way
    /// (then it is the core that has no list left).
    pub(crate) fn wait(&mut self, slot: u16, core: &mut CoreState) {
        self.waiting.push_back(slot);
        core.stats.output_waits += 1;
        if !self.sending && !self.marked {
            self.marked = true;
            core.output.push(self.key);
        }
    }

    fn queue_filling(&mut self) {
        if let Some(list) = self.filling.take() {
            self.queued.push_back((list, self.filling_answers));
            self.filling_answers = 0;
        }
    }

    /// Starts a send, if one can be.
    pub(crate) fn flush(&mut self, core: &CoreState, cx: &mut Context<'_>) {
        if self.sending {
            return;
        }
        if self.queued.is_empty() {
            self.queue_filling();
        }
        let Some((list, answers)) = self.queued.pop_front() else {
            return;
        };
        self.unsent_answers -= answers;
        self.sending = true;
        self.since = cx.now;
        let key = OpKey::new(core.room, SEND, self.key);
        cx.submit(
            key,
            Op::Send {
                socket: self.socket,
                list,
            },
        );
    }

    /// The core is about to flush this connection, and takes it off its list.
    pub(crate) fn unmark(&mut self) {
        self.marked = false;
    }

    /// A send came to its end. Puts the connection back on the core's list if more is to be sent.
    pub(crate) fn sent(&mut self, list: Box<SendList>, core: &mut CoreState) {
        core.lists.give_back(list);
        self.sending = false;
        let more = self.filling.is_some() || !self.queued.is_empty() || !self.waiting.is_empty();
        if more && !self.marked {
            self.marked = true;
            core.output.push(self.key);
        }
    }

    /// Drops what was to be sent.
    pub(crate) fn abandon(&mut self, core: &mut CoreState) {
        let queued = self.queued.drain(..).map(|(list, _)| list);
        for list in queued.chain(self.filling.take()) {
            core.lists.give_back(list);
        }
        self.unsent_answers = 0;
        self.filling_answers = 0;
        self.waiting.clear();
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
