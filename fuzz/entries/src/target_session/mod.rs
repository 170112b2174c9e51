//! Sessions of hosts with a whole target, in the simulated world.
//!
//! The first bytes say how the target is made and how far a host has come already; the others are
//! steps: valid commands of every kind, the same with a field changed, cut short, sent twice or too
//! late, data for R2Ts that fits or does not, any bytes, closes, and time. Whatever happens:
//! nothing panics, every PDU of the target is legal and answers something that was asked, once; a
//! read returns what was written; a neighbour finds its data; and at the end nothing is held any
//! more.

mod command;
mod content;
mod peer;
mod world;

use crate::mangle::{Fate, byte, dword, mangle, pick, seldom, word};
use arbitrary::Unstructured;
use base::{Nanos, Prng};
use content::{Content, Secret};
use peer::Peer;
use sim::storage::{TargetCore, serve};
use sim::{Actor, NetworkFaults, World};
use std::net::SocketAddr;
use testing::{HOST_ID, enable};
use wire::fabrics::ConnectData;
use wire::nvme::{Command, DISCOVERY_NQN, IoOpcode, SglDescriptor};
use wire::tcp::{DataAlignment, H2cData, IcReq};
use world::target;

const NQN: &str = "nqn.2026-11.io.switchyard:session";
const NEIGHBOUR_NQN: &str = "nqn.2026-11.io.switchyard:neighbour";
const HOST: &str = "nqn.2026-11.io.example:host";

/// Steps of one session: a longer one finds nothing that several short ones do not.
const STEPS_MAX: usize = 64;

/// Connections of one session.
const PEERS_MAX: usize = 6;

/// Longer than any timer of a connection that is left alone.
const LONG: Nanos = Nanos::from_secs(200);

/// Bytes that an I/O capsule carries, and an admin capsule.
const CAPSULE_BYTES: [u32; 2] = [4096, 8192];

/// Runs a session that `input` describes.
///
/// # Panics
/// If the target does anything wrong.
pub fn target_session(input: &[u8]) {
    let mut u = Unstructured::new(input);
    let mut session = Session::new(&mut u, input);
    session.prefix(&mut u);
    for _ in 0..STEPS_MAX {
        if u.is_empty() {
            break;
        }
        session.step(&mut u);
    }
    session.end();
}

struct Session {
    world: World,
    cores: Vec<TargetCore>,
    address: SocketAddr,
    peers: Vec<Peer>,
    /// An admin and an I/O queue of another host, on a volume of its own.
    neighbour: [Peer; 2],
    neighbour_host: String,
    content: Content,
    secret: Secret,
    /// Free buffers of each core at the start.
    buffers: Vec<Vec<usize>>,
    /// A PDU that is sent after the next one.
    held: Option<(usize, Vec<u8>)>,
    /// Something was sent that no host sends.
    tampered: bool,
    tag: u8,
}

impl Session {
    fn new(u: &mut Unstructured<'_>, input: &[u8]) -> Self {
        // The neighbour's name and data follow from all of the input, so that no input has them.
        let seed = input.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        let mut prng = Prng::from_seed(seed);
        let mut secret = Secret::default();
        prng.fill(&mut secret);
        let neighbour_host = format!("nqn.2026-11.io.example:{:016x}", prng.next_u64());
        let world = World::new(seed, NetworkFaults::NO_DELAYS);
        let how = byte(u);
        let shared = target(how, &neighbour_host);
        let (cores, address) = serve(&world, &shared, 1 + usize::from(how & 1));
        let dial = || Peer::new(world.dial(address).expect("the target listens"));
        let neighbour = [dial(), dial()];
        let mut this = Self {
            buffers: cores.iter().map(|c| c.driver.free_buffers()).collect(),
            peers: Vec::new(),
            neighbour,
            neighbour_host,
            content: Content::new(secret),
            secret,
            held: None,
            tampered: false,
            tag: 0,
            world,
            cores,
            address,
        };
        this.neighbour_writes();
        this
    }

    /// Lets the target do what there is to do now, and for so long.
    fn run(&mut self, time: Nanos) {
        let until = self.world.now() + time;
        let mut actors: Vec<&mut dyn Actor> = Vec::new();
        actors.extend(self.cores.iter_mut().map(|core| core as &mut dyn Actor));
        let neighbours = self.neighbour.iter_mut();
        let mut peers: Vec<_> = self.peers.iter_mut().chain(neighbours).collect();
        let content = &self.content;
        let _ = self.world.run(&mut actors, until, || {
            for peer in &mut peers {
                peer.receive(content);
            }
            false
        });
        self.world.wait_until(until);
    }

    fn now(&mut self) {
        self.run(Nanos::ZERO);
    }

    /// Brings a host as far as the input says.
    fn prefix(&mut self, u: &mut Unstructured<'_>) {
        let how = byte(u);
        let queues = match how % 8 {
            0 => return,
            1 => 0,
            2 => {
                self.open(u);
                self.connect(0, DISCOVERY_NQN, ConnectData::CNTLID_DYNAMIC, 0, 31, 0);
                self.enable(0);
                return;
            }
            3 | 4 => 2,
            _ => 1,
        };
        self.open(u);
        self.connect(0, NQN, ConnectData::CNTLID_DYNAMIC, 0, 31, 0);
        let cntlid = self.cntlid(0);
        self.enable(0);
        for queue in 1..=queues {
            self.open(u);
            self.connect(usize::from(queue), NQN, cntlid, queue, 15, how >> 7);
        }
    }

    /// The controller that a peer has just connected to.
    fn cntlid(&self, peer: usize) -> u16 {
        (self.peers[peer].result & 0xffff) as u16
    }

    fn step(&mut self, u: &mut Unstructured<'_>) {
        let what = byte(u);
        let which = usize::from(byte(u)) % self.peers.len().max(1);
        if self.peers.is_empty() {
            self.open(u);
            return;
        }
        match what % 16 {
            0..=6 => self.command(which, u),
            7 | 8 => self.answer(which, u),
            9 => self.stray_data(which, u),
            10 => self.open(u),
            11 => self.connect_somehow(which, u),
            12 => self.enable(which),
            13 => self.raw(which, u),
            14 => self.hang_up(which, u),
            _ => {
                let times = [1, 20, 700, 6_000, 11_000, 31_000, 70_000];
                let time = Nanos::from_millis(pick(u, &times));
                self.run(time);
            }
        }
        // Several steps may arrive at once.
        if what < 0xc0 {
            self.now();
        }
    }

    fn open(&mut self, u: &mut Unstructured<'_>) {
        if self.peers.len() == PEERS_MAX {
            return;
        }
        let Some(end) = self.world.dial(self.address) else {
            return;
        };
        self.peers.push(Peer::new(end));
        let dialect = byte(u);
        let request = IcReq {
            host_alignment: DataAlignment::from_code(dialect >> 4 & 0x7).unwrap_or_default(),
            header_digest: dialect & 1 != 0,
            data_digest: dialect & 2 != 0,
            max_r2t: u32::from(dialect >> 2 & 3),
        };
        let which = self.peers.len() - 1;
        self.transmit(which, request.to_bytes().to_vec(), dialect >> 7 != 0, u);
        self.now();
    }

    fn connect_somehow(&mut self, which: usize, u: &mut Unstructured<'_>) {
        let how = byte(u);
        let of = usize::from(byte(u)) % self.peers.len();
        let cntlid = self.cntlid(of);
        match how % 4 {
            0 => self.connect(which, NQN, ConnectData::CNTLID_DYNAMIC, 0, 31, how >> 7),
            1 => self.connect(which, DISCOVERY_NQN, ConnectData::CNTLID_DYNAMIC, 0, 31, 0),
            2 => self.connect(which, NQN, cntlid, u16::from(how >> 4), 15, how >> 7),
            _ => self.connect(which, NQN, word(u), word(u), word(u), how >> 2),
        }
    }

    /// Sends Connect; without `attributes`, SQ flow control is off.
    fn connect(
        &mut self,
        which: usize,
        nqn: &str,
        cntlid: u16,
        queue_id: u16,
        sq_size: u16,
        attributes: u8,
    ) {
        let peer = &mut self.peers[which];
        let (command, data) = connect(nqn, HOST, cntlid, queue_id, sq_size, attributes);
        execute(peer, command, &data, &mut self.content);
        self.now();
    }

    fn enable(&mut self, which: usize) {
        execute(&mut self.peers[which], enable(), &[], &mut self.content);
        self.now();
    }

    fn command(&mut self, which: usize, u: &mut Unstructured<'_>) {
        let is_io = self.peers[which].is_io;
        let mut draft = command::command(u, is_io);
        let inside = command::place(u, &mut draft, CAPSULE_BYTES[usize::from(!is_io)]);
        let peer = &mut self.peers[which];
        let cid = match byte(u) {
            0..240 => peer.next_cid,
            cid => u16::from(cid - 240),
        };
        peer.next_cid = cid.wrapping_add(1);
        draft.command.set_cid(cid);
        self.tag = self.tag.wrapping_add(1).max(1);
        let mut data = vec![self.tag; inside as usize];
        if draft.command.opcode() == IoOpcode::DATASET_MANAGEMENT.0 && is_io {
            for range in data.chunks_exact_mut(16) {
                range.fill(0);
                range[4] = byte(u);
                range[8] = byte(u);
            }
        }
        if let Some(start) = data.len().checked_sub(draft.table.len()) {
            data[start..].copy_from_slice(&draft.table);
        }
        let bytes = peer.session.capsule(&draft.command, &data);
        self.transmit(which, bytes, true, u);
    }

    /// Sends data for the oldest R2T: all of it, a part of it, or something else.
    fn answer(&mut self, which: usize, u: &mut Unstructured<'_>) {
        let how = byte(u);
        let peer = &mut self.peers[which];
        let Some(mut r2t) = peer.r2ts.pop_front() else {
            return;
        };
        let most = if how & 0x10 == 0 {
            peer.session.max_h2c_data
        } else {
            4096
        };
        let mut length = r2t.length.min(most);
        let mut data = H2cData {
            command_id: r2t.command_id,
            transfer_tag: r2t.transfer_tag,
            data_offset: r2t.offset,
            data_length: length,
            last: length == r2t.length,
        };
        self.tampered |= how % 16 > 10;
        match how % 16 {
            11 => data.command_id ^= word(u),
            12 => data.transfer_tag ^= word(u),
            13 => data.data_offset = data.data_offset.wrapping_add(dword(u)),
            14 => data.last = !data.last,
            15 => {
                length = u32::from(word(u));
                data.data_length = length;
            }
            _ => {}
        }
        r2t.offset += r2t.length.min(length);
        r2t.length -= r2t.length.min(length);
        if r2t.length > 0 {
            peer.r2ts.push_front(r2t);
        }
        self.tag = self.tag.wrapping_add(1).max(1);
        let bytes = h2c_data(&self.peers[which], &data, self.tag);
        self.transmit(which, bytes, true, u);
    }

    /// Data that nothing asked for.
    fn stray_data(&mut self, which: usize, u: &mut Unstructured<'_>) {
        self.tampered = true;
        let data = H2cData {
            command_id: word(u) % 32,
            transfer_tag: word(u) % 32,
            data_offset: dword(u),
            data_length: u32::from(byte(u)) * 4,
            last: seldom(u, 2),
        };
        let bytes = h2c_data(&self.peers[which], &data, 0xee);
        self.transmit(which, bytes, true, u);
    }

    fn raw(&mut self, which: usize, u: &mut Unstructured<'_>) {
        self.tampered = true;
        let length = usize::from(byte(u)).min(u.len());
        let bytes = u.bytes(length).unwrap_or_default().to_vec();
        self.peers[which].send(&bytes, &mut self.content);
    }

    fn hang_up(&mut self, which: usize, u: &mut Unstructured<'_>) {
        let Some(end) = self.peers[which].hang_up() else {
            return;
        };
        if seldom(u, 2) {
            end.reset();
        } else {
            end.close();
        }
    }

    /// Sends a PDU, perhaps not as it is.
    fn transmit(
        &mut self,
        which: usize,
        mut pdu: Vec<u8>,
        may_differ: bool,
        u: &mut Unstructured<'_>,
    ) {
        let how = if may_differ { byte(u) } else { 0 };
        let mut fate = Fate::Once;
        if how & 0x1f > 20 {
            self.tampered = true;
            let format = self.peers[which].session.format;
            fate = mangle(&mut pdu, &format, byte(u), u);
        }
        if fate == Fate::Later && self.held.is_none() {
            self.held = Some((which, pdu));
            return;
        }
        self.peers[which].send(&pdu, &mut self.content);
        if fate == Fate::Twice {
            self.peers[which].send(&pdu, &mut self.content);
        }
        if let Some((which, pdu)) = self.held.take() {
            self.peers[which].send(&pdu, &mut self.content);
        }
    }

    fn end(&mut self) {
        if let Some((which, pdu)) = self.held.take() {
            self.peers[which].send(&pdu, &mut self.content);
        }
        self.now();
        if !self.tampered {
            self.finish();
        }
        for peer in &mut self.peers {
            if let Some(end) = peer.hang_up() {
                end.close();
            }
        }
        self.run(LONG);
        self.neighbour_reads();
        for peer in &mut self.neighbour {
            let end = peer
                .hang_up()
                .expect("a well-behaved host keeps its connection");
            end.close();
        }
        self.run(LONG);
        for (core, buffers) in self.cores.iter().zip(&self.buffers) {
            assert_eq!(core.driver.open_sockets(), 0, "connections");
            assert_eq!(&core.driver.free_buffers(), buffers, "payload buffers");
            let held = core.service.held();
            assert!(held.is_nothing(), "{held:?}");
        }
    }

    /// Hosts that only did what they may get an answer to everything.
    fn finish(&mut self) {
        for _ in 0..1_000 {
            let mut sent = false;
            for which in 0..self.peers.len() {
                let peer = &mut self.peers[which];
                while let Some(r2t) = peer.r2ts.pop_front() {
                    let data = vec![0x77; r2t.length as usize];
                    let bytes = peer.session.answer(&r2t, &data);
                    peer.send(&bytes, &mut self.content);
                    sent = true;
                }
            }
            self.now();
            if !sent {
                break;
            }
        }
        self.run(Nanos::from_secs(70));
        for peer in self.peers.iter().filter(|peer| peer.is_open()) {
            let unanswered = peer.unanswered();
            assert!(unanswered.is_empty(), "no answer to {unanswered:x?}");
        }
    }

    fn neighbour_writes(&mut self) {
        let host = self.neighbour_host.clone();
        let request = testing::Dialect::default().ic_req();
        let mut cntlid = ConnectData::CNTLID_DYNAMIC;
        for queue in 0..2u16 {
            let peer = &mut self.neighbour[usize::from(queue)];
            peer.send(&request, &mut self.content);
            let (command, data) = connect(NEIGHBOUR_NQN, &host, cntlid, queue, 31, 0);
            execute(peer, command, &data, &mut self.content);
            self.now();
            let peer = &mut self.neighbour[usize::from(queue)];
            if queue == 0 {
                cntlid = (peer.result & 0xffff) as u16;
                execute(peer, enable(), &[], &mut self.content);
                self.now();
            }
        }
        self.neighbour_does(IoOpcode::WRITE, "write");
    }

    /// The neighbour compares its data with what it wrote: a read would show it.
    fn neighbour_reads(&mut self) {
        let peer = &mut self.neighbour[1];
        assert!(peer.is_open(), "a well-behaved host keeps its connection");
        peer.status = None;
        self.neighbour_does(IoOpcode::COMPARE, "data");
    }

    /// The neighbour sends a command with its data, which succeeds.
    fn neighbour_does(&mut self, opcode: IoOpcode, what: &str) {
        let data = self.secret.repeat(512);
        let command = testing::blocks(opcode, 1, 5, 1);
        execute(
            &mut self.neighbour[1],
            command,
            &data,
            &mut Content::new([0; 8]),
        );
        self.now();
        let status = self.neighbour[1].status;
        assert!(
            status.is_some_and(|status| status.is_success()),
            "the neighbour's {what}: {status:?}"
        );
    }
}

fn connect(
    nqn: &str,
    host: &str,
    cntlid: u16,
    queue_id: u16,
    sq_size: u16,
    attributes: u8,
) -> (Command, [u8; 1024]) {
    let mut connect = testing::connect(queue_id, sq_size, 0);
    connect.attributes.0 ^= attributes;
    let data = testing::connect_data(nqn, host, HOST_ID, cntlid);
    (connect.encode(0), data.to_bytes())
}

/// Sends a command as it should be, its data in the capsule.
fn execute(peer: &mut Peer, mut command: Command, data: &[u8], content: &mut Content) {
    command.set_cid(peer.next_cid);
    peer.next_cid = peer.next_cid.wrapping_add(1);
    if let Ok(length @ 1..) = u32::try_from(data.len()) {
        command.set_sgl(SglDescriptor::in_capsule(0, length));
    }
    let bytes = peer.session.capsule(&command, data);
    peer.send(&bytes, content);
}

fn h2c_data(peer: &Peer, pdu: &H2cData, tag: u8) -> Vec<u8> {
    let data = vec![tag; (pdu.data_length as usize).min(1 << 20)];
    peer.session.h2c_data(pdu, &data)
}
