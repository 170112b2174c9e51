//! The ends of lanes, what is on its way between them, and the links.

use super::app::Way;
use super::config::Link;
use std::collections::VecDeque;
use switch::demand::Demand;
use switch::doorbell::{DoorbellCounters, Mode};
use switch::{Class, Doorbell, Knobs};

/// Bytes of a command capsule, and of an answer's headers: a data header and a completion.
pub(super) const COMMAND_BYTES: u32 = 72;
/// See [`COMMAND_BYTES`].
pub(super) const ANSWER_BYTES: u32 = 24 + 24;

/// The largest packet that the kernel hands on in one piece.
pub(super) const PACKET_BYTES: u64 = 64 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Side {
    Host,
    Target,
}

impl Side {
    /// Returns the mode of its doorbells.
    pub(super) const fn doorbell(self, knobs: &Knobs) -> Mode {
        match self {
            Self::Host => knobs.doorbell,
            Self::Target => knobs.answer_doorbell(),
        }
    }
}

/// The stage of a request. It only ever goes to the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// In an ingress.
    Ingress,
    /// In a lane's egress on the host.
    Egress,
    /// On its way to the target, or waiting there.
    Sent,
    /// In the target's device.
    Device,
    /// Its answer waits in the lane's egress on the target.
    Answered,
    /// The answer is on its way, or waits on the host.
    Returned,
    /// Its application has not taken it yet.
    Completed,
    /// It is not in use.
    Free,
}

#[derive(Debug)]
pub(super) struct Request {
    pub(super) stage: Stage,
    pub(super) app: usize,
    pub(super) class: Class,
    pub(super) bytes: u32,
    pub(super) write: bool,
    /// The time at which the application wanted it.
    pub(super) since: u64,
    /// The host core with the egress by which it leaves, to the load of which it counts.
    pub(super) egress: usize,
    pub(super) way: Way,
    /// Quanta that had begun when it came to its present queue, for the isolation of classes.
    pub(super) quanta_before: u64,
}

impl Request {
    /// Returns its bytes on the way to the target.
    pub(super) const fn command_bytes(&self) -> u32 {
        COMMAND_BYTES + if self.write { self.bytes } else { 0 }
    }

    /// Returns the bytes of its answer.
    pub(super) const fn answer_bytes(&self) -> u32 {
        ANSWER_BYTES + self.answer_data_bytes()
    }

    /// Returns its bytes when it leaves a side.
    pub(super) const fn bytes_from(&self, side: Side) -> u32 {
        match side {
            Side::Host => self.command_bytes(),
            Side::Target => self.answer_bytes(),
        }
    }

    /// Returns the bytes that a caravan of that side counts: the production target counts data.
    pub(super) const fn caravan_bytes_from(&self, side: Side) -> u32 {
        match side {
            Side::Host => self.command_bytes(),
            Side::Target => self.answer_data_bytes(),
        }
    }

    const fn answer_data_bytes(&self) -> u32 {
        if self.write { 0 } else { self.bytes }
    }
}

/// One end of a lane.
#[derive(Debug)]
pub(super) struct End {
    pub(super) side: Side,
    pub(super) class: Class,
    pub(super) engine: usize,
    /// The other end.
    pub(super) peer: usize,
    pub(super) doorbell: Doorbell,
    /// Caravans that left.
    pub(super) caravans: DoorbellCounters,
    /// Requests and answers that wait to be sent.
    pub(super) egress: VecDeque<usize>,
    pub(super) egress_bytes: u64,
    /// Its engine knows that it has something to send.
    pub(super) listed: bool,
    /// Packets that wait to be received.
    pub(super) received: VecDeque<usize>,
    /// Under way, as the doorbell counts it.
    pub(super) in_flight: u32,
    pub(super) timer: Option<u64>,
    /// Packets that wait for the link.
    pub(super) wire: VecDeque<usize>,
    /// Packets sent so far.
    pub(super) packets: u64,
    /// Of a target's end: the bytes that its peer requests.
    pub(super) demand: Demand,
}

impl End {
    pub(super) fn new(side: Side, class: Class, engine: usize, doorbell: Doorbell) -> Self {
        Self {
            side,
            class,
            engine,
            peer: 0,
            doorbell,
            caravans: DoorbellCounters::default(),
            egress: VecDeque::new(),
            egress_bytes: 0,
            listed: false,
            received: VecDeque::new(),
            in_flight: 0,
            timer: None,
            wire: VecDeque::new(),
            packets: 0,
            demand: Demand::default(),
        }
    }
}

/// The part of a caravan that the kernel hands on in one piece, as far as requests are whole.
#[derive(Debug, Default)]
pub(super) struct Packet {
    /// The end that it left.
    pub(super) from: usize,
    pub(super) bytes: u64,
    pub(super) requests: Vec<usize>,
}

impl Packet {
    /// Returns the number of pieces in which the kernel hands it on.
    pub(super) const fn pieces(&self) -> u64 {
        self.bytes.div_ceil(PACKET_BYTES)
    }
}

/// One direction of a link. Ends take turns, packet by packet, as the queues of a network card do.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) link: Link,
    pub(super) busy: bool,
    pub(super) turns: VecDeque<usize>,
}

impl Wire {
    pub(super) const fn new(link: Link) -> Self {
        Self {
            link,
            busy: false,
            turns: VecDeque::new(),
        }
    }

    /// Returns the time for which so many bytes keep it busy.
    pub(super) const fn nanos(&self, bytes: u64) -> u64 {
        bytes.saturating_mul(8_000_000_000) / self.link.bits_per_second
    }
}
