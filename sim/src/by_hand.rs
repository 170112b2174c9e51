//! A host without a core, for behaviour that the production host never shows: a scenario sends
//! single commands over its connections, and runs the world until they are answered.

use crate::disk::{Disk, DiskFaults};
use crate::raw::{RawEnd, RawState};
use crate::world::World;
use base::Nanos;
use block::Geometry;
use reactor::tls::{self, Handshake, Shaken, TlsError};
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;
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
    /// TLS.
    tls: Option<Box<tls::Session>>,
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
    /// Connects to a target; `None` on failure.
    pub(crate) fn dial(world: &World, address: SocketAddr) -> Option<Self> {
        Some(Self {
            end: Some(world.dial(address)?),
            tls: None,
            session: Session::new(Dialect::default()),
        })
    }

    /// Continues the handshake of a connection.
    pub(crate) fn shake(&self, handshake: &mut Handshake) -> Poll<Result<Shaken, TlsError>> {
        match &self.end {
            Some(end) => end.shake(handshake),
            None => Poll::Ready(Err(TlsError::Closed)),
        }
    }

    /// Uses TLS from now on.
    pub(crate) fn secure(&mut self, session: Box<tls::Session>) {
        self.tls = Some(session);
    }

    /// Sends ICReq; `None` on failure.
    pub(crate) fn begin(&mut self) -> Option<()> {
        self.send_bytes(&Dialect::default().ic_req())
    }

    fn send_bytes(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.end.as_ref()?;
        let is_sent = match &mut self.tls {
            Some(session) => end.send_sealed(session, bytes),
            None => end.send(bytes),
        };
        is_sent.then_some(())
    }

    /// Takes the next PDU that has arrived.
    pub(crate) fn look(&mut self) -> Seen {
        let Some(end) = &self.end else {
            return Seen::Ended;
        };
        let mut input = Vec::new();
        let state = match &mut self.tls {
            Some(session) => end.receive_sealed(session, &mut input),
            None => end.receive(&mut input),
        };
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
        self.send_bytes(&bytes).map(|()| cid)
    }

    /// Sends Connect as `host` for the admin queue of a new controller, or for an I/O queue: `of` are
    /// the identifiers of its controller and the queue.
    pub(crate) fn send_connect(
        &mut self,
        subsystem: &str,
        host: &str,
        of: Option<(u16, u16)>,
    ) -> Option<u16> {
        let (cntlid, queue_id, keep_alive_ms) = match of {
            Some((cntlid, queue_id)) => (cntlid, queue_id, 0),
            None => (ConnectData::CNTLID_DYNAMIC, 0, KEEP_ALIVE_MS),
        };
        let connect = testing::connect(queue_id, SQ_SIZE, keep_alive_ms);
        let data = testing::connect_data(subsystem, host, HOST_ID, cntlid);
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
