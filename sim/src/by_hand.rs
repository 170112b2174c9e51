//! A host without a core that does what our host never does: a scenario sends commands one by one over
//! its connections, and lets the world run until they are answered.

use crate::disk::{Disk, DiskFaults};
use crate::raw::{RawEnd, RawState};
use crate::world::World;
use base::Nanos;
use block::Geometry;
use std::net::SocketAddr;
use std::sync::Arc;
use target::{NamespaceOptions, SubsystemOptions, Target};
use wire::fabrics::connect::ConnectAttributes;
use wire::fabrics::{Connect, ConnectData};
use wire::nvme::sgl::SglDescriptor;
use wire::nvme::{Command, Completion, Nqn};
use wire::tcp::framer::{Event, Framer, FramerLimits, Role};
use wire::tcp::{CapsuleCmd, DataAlignment, IcReq, PduFormat, PduHeader};

/// Its subsystem; HOSTNQN, too.
pub(crate) const SUBSYSTEM: &str = "nqn.2026-11.io.switchyard:by-hand";

/// Longest time of a request of its disk.
pub(crate) const DELAY_MAX: Nanos = Nanos::from_millis(20);

/// Blocks of its disk.
pub(crate) const BLOCKS: u32 = 256;

const BLOCK_BYTES: u32 = 512;

/// HOSTID of such a host.
const HOST_ID: [u8; 16] = [0xB7; 16];

/// SQSIZE of its queues.
const SQ_SIZE: u16 = 31;

/// Keep-alive time-out of its controllers: a silent cut ends them.
const KEEP_ALIVE_MS: u32 = 30_000;

const LIMITS: FramerLimits = FramerLimits {
    capsule_data_bytes: 0,
    data_pdu_bytes: 1 << 24,
};

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

/// Adds the subsystem of this host to a target, before there are cores that must be told.
pub(crate) fn serve(target: &Target, disk: &Disk) {
    let options = SubsystemOptions::open_to_all(SUBSYSTEM);
    target.add_subsystem(options).expect("a new subsystem");
    let namespace = NamespaceOptions::new(1, Arc::new(disk.clone()), [0xB7; 16]);
    target
        .add_namespace(SUBSYSTEM, namespace)
        .expect("a new namespace");
}

/// A connection of such a host. Dropping it breaks the connection.
#[derive(Debug)]
pub(crate) struct QueueByHand {
    end: Option<RawEnd>,
    framer: Framer,
    input: Vec<u8>,
    format: Option<PduFormat>,
    cid: u16,
}

/// State of a connection after a look at its input.
#[derive(Debug)]
pub(crate) enum Seen {
    /// Nothing that counts has arrived.
    Nothing,
    /// The connection takes commands.
    Ready,
    /// The answer to a command.
    Answer(Completion),
    /// The connection has ended.
    Ended,
}

impl QueueByHand {
    /// Connects to a target, and sends ICReq; `None` if that fails.
    pub(crate) fn dial(world: &World, address: SocketAddr) -> Option<Self> {
        let queue = Self {
            end: world.dial(address),
            framer: Framer::new(Role::Host, LIMITS),
            input: Vec::new(),
            format: None,
            cid: 0,
        };
        let request = IcReq {
            host_alignment: DataAlignment::DWORD,
            header_digest: false,
            data_digest: false,
            max_r2t: 0,
        };
        let end = queue.end.as_ref()?;
        end.send(&request.to_bytes()).then_some(queue)
    }

    /// Takes the next PDU that has arrived.
    pub(crate) fn look(&mut self) -> Seen {
        let Some(end) = &self.end else {
            return Seen::Ended;
        };
        let state = end.receive(&mut self.input);
        let mut input = self.input.as_slice();
        let mut seen = Seen::Nothing;
        while matches!(seen, Seen::Nothing) {
            let event = self.framer.next(&mut input);
            match event.expect("the target sends what is well formed") {
                None => break,
                Some(Event::Pdu { header, .. }) => match header {
                    PduHeader::IcResp(response) => {
                        self.format = Some(PduFormat {
                            alignment: response.controller_alignment,
                            ..PduFormat::PLAIN
                        });
                        seen = Seen::Ready;
                    }
                    PduHeader::CapsuleResp(capsule) => seen = Seen::Answer(capsule.completion),
                    _ => {}
                },
                Some(_) => {}
            }
        }
        let left = input.len();
        self.input.drain(..self.input.len() - left);
        if matches!(seen, Seen::Nothing) && state == RawState::Ended {
            return Seen::Ended;
        }
        seen
    }

    /// Returns true if the connection has ended, and all that arrived on it was looked at.
    pub(crate) fn has_ended(&mut self) -> bool {
        matches!(self.look(), Seen::Ended)
    }

    /// Sends a command with `data` in its capsule. Returns its identifier; `None` if the connection does
    /// not take it.
    pub(crate) fn send(&mut self, mut command: Command, data: &[u8]) -> Option<u16> {
        self.cid += 1;
        command.set_cid(self.cid);
        let length = u32::try_from(data.len()).expect("a few bytes");
        if length > 0 {
            command.set_sgl(SglDescriptor::in_capsule(0, length));
        }
        let mut bytes = vec![0; 256];
        let capsule = CapsuleCmd { command };
        let header = capsule.encode(&self.format?, length, &mut bytes);
        bytes.truncate(header);
        bytes.extend_from_slice(data);
        self.end.as_ref()?.send(&bytes).then_some(self.cid)
    }

    /// Sends Connect for the admin queue of a new controller, or, with its identifier, for I/O queue 1.
    pub(crate) fn send_connect(&mut self, subsystem: &str, cntlid: Option<u16>) -> Option<u16> {
        let name = |text| Nqn::new(text).expect("a valid name");
        let connect = Connect {
            record_format: 0,
            queue_id: u16::from(cntlid.is_some()),
            sq_size: SQ_SIZE,
            attributes: ConnectAttributes(ConnectAttributes::DISABLE_SQ_FLOW_CONTROL),
            keep_alive_timeout_ms: if cntlid.is_some() { 0 } else { KEEP_ALIVE_MS },
        };
        let cntlid = cntlid.unwrap_or(ConnectData::CNTLID_DYNAMIC);
        let data = ConnectData::new(HOST_ID, cntlid, &name(subsystem), &name(SUBSYSTEM));
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
