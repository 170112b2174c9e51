//! The ends of lanes, the packets in flight between them, and the links.

use super::app::Way;
use super::config::Link;
use std::collections::VecDeque;
use switch::demand::Demand;
use switch::doorbell::{DoorbellCounters, Mode};
use switch::{Class, Doorbell, Knobs};

/// Bytes of a command capsule.
pub(super) const COMMAND_BYTES: u32 = 72;
/// Bytes of an answer's headers: a data header and a completion.
pub(super) const ANSWER_BYTES: u32 = 24 + 24;

/// Maximum bytes of a packet that the kernel passes on in one piece.
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

/// The stage of a request, which only advances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// In an ingress queue.
    Ingress,
    /// In a lane's egress queue on the host.
    Egress,
    /// In flight to the target, or queued there.
    Sent,
    /// In the target's device.
    Device,
    /// Its answer is in the lane's egress queue on the target.
    Answered,
    /// The answer is in flight, or queued on the host.
    Returned,
    /// Completed, and not yet processed by its application.
    Completed,
    /// Not in use.
    Free,
}

#[derive(Debug)]
pub(super) struct Request {
    pub(super) stage: Stage,
    pub(super) app: usize,
    pub(super) class: Class,
    pub(super) bytes: u32,
    pub(super) write: bool,
    /// Intended start time.
    pub(super) since: u64,
    /// The host core through whose egress queue it leaves, and to whose load it counts.
    pub(super) egress: usize,
    pub(super) way: Way,
    /// Number of quanta begun when it joined its present queue, to measure the isolation of
    /// classes.
    pub(super) quanta_before: u64,
}

impl Request {
    /// Returns its bytes on the wire to the target.
    pub(super) const fn command_bytes(&self) -> u32 {
        COMMAND_BYTES + if self.write { self.bytes } else { 0 }
    }

    /// Returns the bytes of its answer on the wire.
    pub(super) const fn answer_bytes(&self) -> u32 {
        ANSWER_BYTES + self.answer_data_bytes()
    }

    /// Returns its bytes on the wire from a side.
    pub(super) const fn bytes_from(&self, side: Side) -> u32 {
        match side {
            Side::Host => self.command_bytes(),
            Side::Target => self.answer_bytes(),
        }
    }

    /// Returns its bytes as counted for a caravan of that side: the production target counts data
    /// only.
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
    /// Index of the other end.
    pub(super) peer: usize,
    pub(super) doorbell: Doorbell,
    /// Caravans sent.
    pub(super) caravans: DoorbellCounters,
    /// Requests and answers to send.
    pub(super) egress: VecDeque<usize>,
    pub(super) egress_bytes: u64,
    /// Its engine has it in the list of ends with data to send.
    pub(super) listed: bool,
    /// Packets to receive.
    pub(super) received: VecDeque<usize>,
    /// Outstanding requests, as the doorbell counts them.
    pub(super) in_flight: u32,
    pub(super) timer: Option<u64>,
    /// Packets that wait for the link.
    pub(super) wire: VecDeque<usize>,
    /// Number of packets sent.
    pub(super) packets: u64,
    /// At a target's end: the bytes that its peer requests.
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

/// The part of a caravan that the kernel passes on in one piece, in whole requests.
#[derive(Debug, Default)]
pub(super) struct Packet {
    /// The end that sent it.
    pub(super) from: usize,
    pub(super) bytes: u64,
    pub(super) requests: Vec<usize>,
}

impl Packet {
    /// Returns the number of pieces in which the kernel passes it on.
    pub(super) const fn pieces(&self) -> u64 {
        self.bytes.div_ceil(PACKET_BYTES)
    }
}

/// One direction of a link. Ends take turns packet by packet, like the queues of a network card.
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

    /// Returns the time that `bytes` occupy it.
    pub(super) const fn nanos(&self, bytes: u64) -> u64 {
        bytes.saturating_mul(8_000_000_000) / self.link.bits_per_second
    }
}
