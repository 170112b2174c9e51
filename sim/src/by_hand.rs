//! A host without a core, for behaviour that the production host never shows: a scenario sends
//! single commands over its connections, and runs the world until they are answered.

use crate::disk::{Disk, DiskFaults};
use crate::raw::{RawEnd, RawState};
use crate::world::World;
use base::Nanos;
use block::Geometry;
use std::net::SocketAddr;
use std::sync::Arc;
use target::{NamespaceOptions, SubsystemOptions, Target};
use testing::{Dialect, Session};
use wire::fabrics::ConnectData;
use wire::nvme::{Command, Completion};
use wire::tcp::PduHeader;

/// Its subsystem NQN, also used as HOSTNQN.
pub(crate) const SUBSYSTEM: &str = "nqn.2026-11.io.switchyard:by-hand";

/// Longest request time of its disk.
pub(crate) const DELAY_MAX: Nanos = Nanos::from_millis(20);

/// Blocks of its disk.
pub(crate) const BLOCKS: u32 = 256;

const BLOCK_BYTES: u32 = 512;

/// HOSTID of such a host.
const HOST_ID: [u8; 16] = [0xB7; 16];

/// SQSIZE of its queues.
const SQ_SIZE: u16 = 31;

/// Keep-alive time-out of its controllers: after a silent cut of the connection it ends them.
const KEEP_ALIVE_MS: u32 = 30_000;

/// The disk of this host at a target.
pub(crate) fn disk(target: usize) -> Disk {
    let geometry = Geometry {
        block_bytes: BLOCK_BYTES,
        blocks: BLOCKS.into(),
    };
    let faults = DiskFaults {
        delay_max: DELAY_MAX,
        ..DiskFaults::default()
    };
    Disk::new(geometry, false, faults, 0xB7 + target as u64)
}

/// Adds this host's subsystem to a target, before the target has cores that need a notification.
pub(crate) fn serve(target: &Target, disk: &Disk) {
    let options = SubsystemOptions::open_to_all(SUBSYSTEM);
    target.add_subsystem(options).expect("a new subsystem");
    let namespace = NamespaceOptions::new(1, Arc::new(disk.clone()), [0xB7; 16]);
    target
        .add_namespace(SUBSYSTEM, namespace)
        .expect("a new namespace");
}

/// A connection of such a host. Dropping it closes the connection.
#[derive(Debug)]
pub(crate) struct QueueByHand {
    end: Option<RawEnd>,
    session: Session,
}

/// State of a connection after polling its input.
#[derive(Debug)]
pub(crate) enum Seen {
    /// No relevant input.
    Nothing,
    /// The connection is ready for commands.
    Ready,
    /// The completion of a command.
    Answer(Completion),
    /// The connection has ended.
    Ended,
}

impl QueueByHand {
    /// Connects to a target, and sends ICReq; `None` on failure.
    pub(crate) fn dial(world: &World, address: SocketAddr) -> Option<Self> {
        let queue = Self {
            end: world.dial(address),
            session: Session::new(Dialect::default()),
        };
        let end = queue.end.as_ref()?;
        end.send(&Dialect::default().ic_req()).then_some(queue)
    }

    /// Takes the next PDU that has arrived.
    pub(crate) fn look(&mut self) -> Seen {
        let Some(end) = &self.end else {
            return Seen::Ended;
        };
        let mut input = Vec::new();
        let state = end.receive(&mut input);
        self.session.inward.feed(&input);
        while let Some(pdu) = self
            .session
            .next_pdu()
            .expect("the target sends legal PDUs")
        {
            match pdu.header {
                PduHeader::IcResp(_) => return Seen::Ready,
                PduHeader::CapsuleResp(capsule) => return Seen::Answer(capsule.completion),
                _ => {}
            }
        }
        if state == RawState::Ended {
            return Seen::Ended;
        }
        Seen::Nothing
    }

    /// Returns true if the connection has ended, and all its input was handled.
    pub(crate) fn has_ended(&mut self) -> bool {
        matches!(self.look(), Seen::Ended)
    }

    /// Sends a command with `data` in its capsule. Returns its identifier; `None` if the connection
    /// does not accept it.
    pub(crate) fn send(&mut self, command: Command, data: &[u8]) -> Option<u16> {
        let (bytes, cid) = self.session.command(command, data);
        self.end.as_ref()?.send(&bytes).then_some(cid)
    }

    /// Sends Connect for the admin queue of a new controller, or, with its identifier, for I/O
    /// queue 1.
    pub(crate) fn send_connect(&mut self, subsystem: &str, cntlid: Option<u16>) -> Option<u16> {
        let (queue_id, keep_alive_ms) = match cntlid {
            Some(_) => (1, 0),
            None => (0, KEEP_ALIVE_MS),
        };
        let connect = testing::connect(queue_id, SQ_SIZE, keep_alive_ms);
        let cntlid = cntlid.unwrap_or(ConnectData::CNTLID_DYNAMIC);
        let data = testing::connect_data(subsystem, SUBSYSTEM, HOST_ID, cntlid);
        self.send(connect.encode(0), &data.to_bytes())
    }
}

impl Drop for QueueByHand {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            end.reset();
        }
    }
}
