//! A small controller made for tests: it serves a namespace in memory over real sockets, can be
//! told how to transfer, and can be told to break the rules once. Nothing of it is shared with the
//! product's target, so that both halves cannot make the same mistake.
#![allow(
    missing_docs,
    missing_debug_implementations,
    clippy::missing_panics_doc
)] // For tests alone.
#![allow(clippy::unwrap_used)] // What fails here fails the test.
#![allow(clippy::cast_possible_truncation)] // Sizes in tests are small.

mod admin;
mod io;
mod mischief;

use crate::{IoCommand, fields, parse_ranges};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use wire::fabrics::property::{Capabilities, ControllerStatus};
use wire::fabrics::{Connect, ConnectResponse, FabricsCommand, Property};
use wire::nvme::identify::Cns;
use wire::nvme::identify_controller::NvmIdentifyController;
use wire::nvme::{
    Abort, Command, Completion, DataPointer, ExtentTerms, ExtentsCommand, LbaCommand, Status,
};
use wire::tcp::c2h_data::C2hProgress;
use wire::tcp::{
    C2hData, CapsuleResp, DataAlignment, Event, Framer, FramerLimits, IcResp, PduFormat, PduHeader,
    R2t, Role, TermReq,
};

pub const NQN: &str = "nqn.2026-11.io.switchyard:peer";
pub const BLOCK: usize = 512;

/// What the controller does wrong, once, instead of answering an I/O command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mischief {
    /// The same data twice.
    DataTwice,
    /// Data in answer to a write.
    DataForWrite,
    /// Success without all data.
    DataMissing,
    /// The same R2T again and again.
    TransferAgain,
    /// An R2T for a read.
    TransferForRead,
    /// R2Ts of one block each, all at once.
    TransferFlood,
    /// Success of a write after an R2T for this part of its data; none where that is empty.
    SuccessAfter { offset: u32, length: u32 },
    /// A termination request.
    Terminate,
    /// Success, although nothing was done, and a termination request with it.
    DoneAndTerminate,
    /// Nothing at all, and the connection is closed.
    Hangup,
}

/// The next PDU of this type that a connection sends has other bytes than it should.
#[derive(Clone, Debug)]
pub struct Forge {
    /// The number of the connection: 0 is the first admin queue, 1 the first I/O queue.
    pub connection: usize,
    pub pdu: u8,
    /// Where which bytes stand instead.
    pub edits: Vec<fields::Edit>,
    /// The header digest is made to fit again.
    pub reseal: bool,
    /// These are sent before it.
    pub before: Vec<u8>,
}

/// How the controller works.
#[derive(Clone, Debug)]
pub struct Behaviour {
    pub in_capsule_bytes: u32,
    pub max_h2c_data: u32,
    /// Bytes of one R2T.
    pub transfer_bytes: u32,
    /// R2Ts sent at once.
    pub transfers_at_once: u32,
    /// Bytes of one C2HData.
    pub data_pdu_bytes: u32,
    pub success_flag: bool,
    pub digests: bool,
    pub alignment: u8,
    pub io_queues: u16,
    pub mischief: Option<Mischief>,
    pub forge: Option<Forge>,
    /// The n-th connection is cut when so many bytes were sent on it.
    pub cut: Option<(usize, usize)>,
    /// So many I/O commands are answered "transient transport error" first.
    pub refusals: usize,
    /// So many data digests are wrong first.
    pub damaged: usize,
    /// So many I/O commands are swallowed first.
    pub swallow: usize,
    /// So many I/O commands are kept first, until [`Peer::release`].
    pub hold: usize,
    /// What is kept is ended by an Abort.
    pub aborts: bool,
    /// Connect is refused with this status.
    pub refuse_connect: Option<Status>,
    /// Connect of an I/O queue is refused with this status.
    pub refuse_io_connect: Option<Status>,
    /// Connect of I/O queues above this number is refused with this status, however many are granted.
    pub queues_refused: Option<(u16, Status)>,
    /// Identifiers of I/O queues that it has still: a Connect of one of them is refused.
    pub queues_in_use: Vec<u16>,
    /// CAP.MQES, which an I/O queue does not exceed.
    pub max_queue_entries: u16,
    /// Announces that it ends controllers on demand.
    pub fences: bool,
    /// Announces commands over extents, on these terms.
    pub extents: Option<ExtentTerms>,
    /// It refuses so many End Controllers first, for once.
    pub refused_ends: usize,
    /// End Controller is answered only when [`Peer::end_controllers`] says so.
    pub slow_fences: bool,
    /// MDTS, on which it insists.
    pub mdts: u8,
    /// What it says about the length of other commands, and insists on; nothing if `None`.
    pub lengths: Option<NvmIdentifyController>,
    /// The controller is ready only at this look at CSTS.
    pub ready_after: u32,
    /// How long each Identify takes.
    pub slow_identify: Duration,
    /// Announces that any command keeps the association alive.
    pub traffic_based: bool,
    /// It has a volatile write cache, in this life; 0 is not announced.
    pub cache_life: Option<u64>,
    /// Every byte of the namespace's UUID.
    pub volume: u8,
    /// Namespaces, which share one memory and have UUIDs of their own.
    pub namespaces: u32,
    /// An Identify of this kind, of this NSID, is answered with this status.
    pub unready: Option<(Cns, u32, Status)>,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            in_capsule_bytes: 0,
            max_h2c_data: 128 * 1024,
            transfer_bytes: 128 * 1024,
            transfers_at_once: 1,
            data_pdu_bytes: 128 * 1024,
            success_flag: true,
            digests: true,
            alignment: 0,
            io_queues: 4,
            mischief: None,
            forge: None,
            cut: None,
            refusals: 0,
            damaged: 0,
            swallow: 0,
            hold: 0,
            aborts: false,
            refuse_connect: None,
            refuse_io_connect: None,
            queues_refused: None,
            queues_in_use: Vec::new(),
            max_queue_entries: 1023,
            fences: true,
            extents: None,
            refused_ends: 0,
            slow_fences: false,
            mdts: 8,
            lengths: None,
            ready_after: 1,
            slow_identify: Duration::ZERO,
            traffic_based: false,
            cache_life: None,
            volume: 5,
            namespaces: 1,
            unready: None,
        }
    }
}

/// What the controller saw.
#[derive(Debug, Default)]
pub struct Seen {
    pub terminations: Mutex<Vec<TermReq>>,
    /// The header that the last of them complains of.
    pub complaint: Mutex<Vec<u8>>,
    /// The header that was forged last.
    pub forged: Mutex<Vec<u8>>,
    pub connections: AtomicUsize,
    pub associations: AtomicUsize,
    /// Connects of I/O queues that succeeded.
    pub live_queues: AtomicUsize,
    pub keep_alives: AtomicUsize,
    pub aborts: AtomicUsize,
    /// Identifies that failed by [`Behaviour::unready`].
    pub unready: AtomicUsize,
    pub shutdowns: AtomicUsize,
    /// CNTLIDs that End Controller named.
    pub ended: Mutex<Vec<u16>>,
    pub next_cntlid: AtomicUsize,
    pub writes: AtomicUsize,
    pub io_commands: AtomicUsize,
    /// Commands that were kept.
    pub held: AtomicUsize,
    /// Those of them that are over extents.
    pub held_extents: AtomicUsize,
    /// Most commands that were kept at once.
    pub held_at_once: AtomicUsize,
    pub last_connection_bytes: AtomicUsize,
    /// Connections that the host reset, so that nothing of them arrives later.
    pub resets: AtomicUsize,
}

/// Of two locks, `behaviour` is taken first.
struct State {
    behaviour: Mutex<Behaviour>,
    memory: Mutex<Vec<u8>>,
    seen: Arc<Seen>,
    blocks: AtomicU64,
    /// Requests that wait for an event, and whether one happened while none waited.
    events: Mutex<(Vec<LateAnswer>, bool)>,
    /// End Controllers that wait.
    held: Mutex<Vec<Held>>,
    fences: Mutex<Vec<LateAnswer>>,
    sockets: Mutex<Vec<TcpStream>>,
    stop: AtomicBool,
}

impl State {
    /// Takes the command that `abort` names, if it is kept.
    fn take_held(&self, abort: &Abort) -> Option<Held> {
        let mut held = self.held.lock().unwrap();
        let place = held
            .iter()
            .position(|held| (held.queue_id, held.command.cid()) == (abort.sq_id, abort.cid))?;
        Some(held.swap_remove(place))
    }
}

/// A command that waits for its answer.
struct LateAnswer {
    stream: TcpStream,
    cid: u16,
    format: PduFormat,
}

impl LateAnswer {
    fn tell(self) {
        let event = wire::nvme::AsyncEvent::NAMESPACE_ATTRIBUTE_CHANGED.to_dword();
        self.give(u64::from(event));
    }

    fn give(mut self, result: u64) {
        let mut completion = Completion::new(self.cid, 0, Status::SUCCESS);
        completion.result = result;
        let mut out = [0; 128];
        let length = CapsuleResp { completion }.encode(&self.format, &mut out);
        let _ = self.stream.write_all(&out[..length]);
    }
}

/// The controller.
pub struct Peer {
    pub address: SocketAddr,
    pub seen: Arc<Seen>,
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

impl Peer {
    pub fn start(bytes: usize, behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Seen::default());
        let state = Arc::new(State {
            behaviour: Mutex::new(behaviour),
            memory: Mutex::new(vec![0; bytes]),
            seen: Arc::clone(&seen),
            blocks: AtomicU64::new((bytes / BLOCK) as u64),
            events: Mutex::new((Vec::new(), false)),
            fences: Mutex::new(Vec::new()),
            held: Mutex::new(Vec::new()),
            sockets: Mutex::new(Vec::new()),
            stop: AtomicBool::new(false),
        });
        let for_thread = Arc::clone(&state);
        let thread = std::thread::spawn(move || accept(&listener, &for_thread));
        Self {
            address,
            seen,
            state,
            thread: Some(thread),
        }
    }

    pub fn memory(&self) -> Vec<u8> {
        self.state.memory.lock().unwrap().clone()
    }

    pub fn fill(&self, bytes: &[u8]) {
        self.state.memory.lock().unwrap()[..bytes.len()].copy_from_slice(bytes);
    }

    pub fn change(&self, change: impl FnOnce(&mut Behaviour)) {
        change(&mut self.state.behaviour.lock().unwrap());
    }

    /// Cuts every connection.
    pub fn cut_all(&self) {
        for socket in self.state.sockets.lock().unwrap().drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// Cuts the oldest connection that was not cut yet.
    pub fn cut_oldest(&self) {
        let socket = self.state.sockets.lock().unwrap().remove(0);
        let _ = socket.shutdown(Shutdown::Both);
    }

    /// Carries out what is kept; how many commands that is.
    pub fn release(&self) -> usize {
        let held = std::mem::take(&mut *self.state.held.lock().unwrap());
        let count = held.len();
        for held in held {
            let (command, capsule) = (held.command, held.capsule.clone());
            let mut connection = held.connection(&self.state);
            let _ = connection.io(&command, &capsule);
        }
        count
    }

    /// Answers the End Controllers that wait; how many.
    pub fn end_controllers(&self) -> usize {
        let waiting = std::mem::take(&mut *self.state.fences.lock().unwrap());
        let count = waiting.len();
        for answer in waiting {
            answer.give(0);
        }
        count
    }

    /// Changes the namespace's size, and says so.
    pub fn resize(&self, blocks: u64) {
        self.state
            .memory
            .lock()
            .unwrap()
            .resize(blocks as usize * BLOCK, 0);
        self.state.blocks.store(blocks, Ordering::SeqCst);
        let mut events = self.state.events.lock().unwrap();
        events.1 = events.0.is_empty();
        for slot in events.0.drain(..) {
            slot.tell();
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        self.cut_all();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

fn accept(listener: &TcpListener, state: &Arc<State>) {
    for stream in listener.incoming() {
        if state.stop.load(Ordering::SeqCst) {
            return;
        }
        let Ok(stream) = stream else { return };
        stream.set_nodelay(true).unwrap();
        let number = state.seen.connections.fetch_add(1, Ordering::SeqCst);
        state
            .sockets
            .lock()
            .unwrap()
            .push(stream.try_clone().unwrap());
        let state = Arc::clone(state);
        std::thread::spawn(move || {
            let mut connection = Connection::new(stream, state, number);
            connection.run();
            let _ = connection.stream.shutdown(Shutdown::Both);
        });
    }
}

/// A command that is kept.
struct Held {
    stream: TcpStream,
    format: PduFormat,
    queue_id: u16,
    command: Command,
    capsule: Vec<u8>,
}

impl Held {
    /// The connection that it came by, to answer it.
    fn connection(self, state: &Arc<State>) -> Connection {
        let mut connection = Connection::new(self.stream, Arc::clone(state), usize::MAX);
        connection.format = self.format;
        connection
    }
}

/// A run of bytes of the memory.
type Place = std::ops::Range<usize>;

/// A write whose data is on its way.
struct Writing {
    /// Its places in the memory, in order.
    places: Vec<Place>,
    compare: bool,
    cid: u16,
    data: Vec<u8>,
    received: u32,
    asked: u32,
}

struct Connection {
    stream: TcpStream,
    state: Arc<State>,
    number: usize,
    behaviour: Behaviour,
    format: PduFormat,
    queue_id: u16,
    sent: usize,
    writing: Vec<Writing>,
    /// Header and payload that are arriving.
    arriving: Option<(PduHeader, Vec<u8>)>,
    looks: u32,
    misbehaved: bool,
}

/// The connection is over.
struct Over;

type Step = Result<(), Over>;

impl Connection {
    fn new(stream: TcpStream, state: Arc<State>, number: usize) -> Self {
        let behaviour = state.behaviour.lock().unwrap().clone();
        Self {
            stream,
            state,
            number,
            behaviour,
            format: PduFormat::PLAIN,
            queue_id: 0,
            sent: 0,
            writing: Vec::new(),
            arriving: None,
            looks: 0,
            misbehaved: false,
        }
    }

    fn run(&mut self) {
        let limits = FramerLimits {
            capsule_data_bytes: 8192.max(self.behaviour.in_capsule_bytes),
            data_pdu_bytes: self.behaviour.max_h2c_data,
        };
        let mut framer = Framer::new(Role::Controller, limits);
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let count = match self.stream.read(&mut buffer) {
                Ok(count) => count,
                Err(error) => {
                    let reset = error.kind() == std::io::ErrorKind::ConnectionReset;
                    let resets = &self.state.seen.resets;
                    resets.fetch_add(usize::from(reset), Ordering::SeqCst);
                    return;
                }
            };
            if count == 0 {
                return;
            }
            let mut input = &buffer[..count];
            loop {
                match framer.next(&mut input) {
                    Ok(None) => break,
                    Ok(Some(event)) => {
                        if self.event(&event, &mut framer).is_err() {
                            return;
                        }
                    }
                    Err(error) => panic!("the host broke the rules: {error}"),
                }
            }
        }
    }

    fn event(&mut self, event: &Event<'_>, framer: &mut Framer) -> Step {
        match *event {
            Event::Pdu {
                header,
                data,
                digest_ok,
            } => {
                assert!(digest_ok, "the host's data digest is wrong");
                self.pdu(&header, data.unwrap_or_default(), framer)
            }
            Event::DataBegin { header, .. } => {
                self.arriving = Some((header, Vec::new()));
                Ok(())
            }
            Event::DataChunk(chunk) => {
                let (_, data) = self.arriving.as_mut().unwrap();
                data.extend_from_slice(chunk);
                Ok(())
            }
            Event::DataEnd { digest_ok } => {
                assert!(digest_ok, "the host's data digest is wrong");
                let (header, data) = self.arriving.take().unwrap();
                self.pdu(&header, &data, framer)
            }
        }
    }

    fn pdu(&mut self, header: &PduHeader, data: &[u8], framer: &mut Framer) -> Step {
        match header {
            PduHeader::IcReq(request) => {
                let digests = self.behaviour.digests;
                let (hd, dd) = (
                    request.header_digest && digests,
                    request.data_digest && digests,
                );
                self.format = PduFormat {
                    header_digest: hd,
                    data_digest: dd,
                    alignment: request.host_alignment,
                };
                framer.set_digests(hd, dd);
                let alignment = DataAlignment::from_code(self.behaviour.alignment).unwrap();
                framer.set_alignment(alignment);
                self.send(&self.ic_resp().to_bytes())
            }
            PduHeader::CapsuleCmd(capsule) => self.command(&capsule.command, data),
            PduHeader::H2cData(pdu) => self.data(pdu.command_id, pdu, data),
            PduHeader::H2cTermReq(request) => {
                *self.state.seen.complaint.lock().unwrap() = data.to_vec();
                self.state.seen.terminations.lock().unwrap().push(*request);
                Err(Over)
            }
            other => panic!("the host sent {other:?}"),
        }
    }

    fn ic_resp(&self) -> IcResp {
        IcResp {
            controller_alignment: DataAlignment::from_code(self.behaviour.alignment).unwrap(),
            header_digest: self.format.header_digest,
            data_digest: self.format.data_digest,
            max_h2c_data: self.behaviour.max_h2c_data,
        }
    }

    /// What is sent instead, where this PDU is to be forged.
    fn forge(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut behaviour = self.state.behaviour.lock().unwrap();
        let number = self.number;
        let forge = behaviour
            .forge
            .take_if(|forge| forge.connection == number && forge.pdu == bytes[0])?;
        drop(behaviour);
        self.misbehaved = true;
        let mut pdu = bytes.to_vec();
        let header = usize::from(bytes[2]);
        fields::apply(&mut pdu, &forge.edits);
        if forge.reseal && self.format.header_digest {
            fields::reseal(&mut pdu, header);
        }
        let mut all = forge.before;
        all.extend_from_slice(&pdu);
        let end = all.len().min(128);
        *self.state.seen.forged.lock().unwrap() = all[..end].to_vec();
        Some(all)
    }

    fn send(&mut self, bytes: &[u8]) -> Step {
        let forged = self.forge(bytes);
        let mut bytes = forged.as_deref().unwrap_or(bytes);
        let mut over = false;
        if let Some((number, limit)) = self.behaviour.cut
            && number == self.number
            && self.sent + bytes.len() >= limit
        {
            bytes = &bytes[..limit - self.sent];
            over = true;
        }
        self.sent += bytes.len();
        self.state
            .seen
            .last_connection_bytes
            .store(self.sent, Ordering::SeqCst);
        self.stream.write_all(bytes).map_err(|_| Over)?;
        if over { Err(Over) } else { Ok(()) }
    }

    fn complete(&mut self, cid: u16, status: Status, result: u64) -> Step {
        let mut completion = Completion::new(cid, 0xffff, status);
        completion.result = result;
        let mut out = [0; 128];
        let length = CapsuleResp { completion }.encode(&self.format, &mut out);
        self.send(&out[..length])
    }

    fn done(&mut self, cid: u16) -> Step {
        self.complete(cid, Status::SUCCESS, 0)
    }

    fn command(&mut self, command: &Command, data: &[u8]) -> Step {
        if command.is_fabrics() {
            return self.fabrics(command, data);
        }
        if self.queue_id == 0 {
            return self.admin(command);
        }
        self.io(command, data)
    }

    fn fabrics(&mut self, command: &Command, data: &[u8]) -> Step {
        let cid = command.cid();
        match FabricsCommand::parse(command).unwrap() {
            FabricsCommand::Connect(connect) => self.connect(cid, &connect, data),
            FabricsCommand::PropertyGet(get) => {
                let value = match get.property {
                    Property::CAP => capabilities(self.behaviour.max_queue_entries).to_bits(),
                    Property::CSTS => {
                        self.looks += 1;
                        let shut = self.state.seen.shutdowns.load(Ordering::SeqCst) > 0;
                        if shut {
                            u64::from(ControllerStatus::SHUTDOWN_COMPLETE.0)
                        } else {
                            u64::from(self.looks >= self.behaviour.ready_after)
                        }
                    }
                    _ => 0,
                };
                self.complete(cid, Status::SUCCESS, value)
            }
            FabricsCommand::PropertySet(set) => {
                if set.property == Property::CC && set.value >> 14 & 0b11 != 0 {
                    self.state.seen.shutdowns.fetch_add(1, Ordering::SeqCst);
                }
                self.done(cid)
            }
            FabricsCommand::Disconnect(_) => self.done(cid),
        }
    }

    fn connect(&mut self, cid: u16, connect: &Connect, data: &[u8]) -> Step {
        assert_eq!(data.len(), 1024);
        self.queue_id = connect.queue_id;
        if connect.queue_id == 0 {
            self.state.seen.associations.fetch_add(1, Ordering::SeqCst);
            self.state.seen.shutdowns.store(0, Ordering::SeqCst);
        }
        if let Some(status) = self.behaviour.refuse_connect {
            return self.complete(cid, status, 0);
        }
        if connect.queue_id > 0 {
            if let Some(status) = self.behaviour.refuse_io_connect {
                return self.complete(cid, status, 0);
            }
            let refused = self.state.behaviour.lock().unwrap().queues_refused;
            if let Some((_, status)) = refused.filter(|&(most, _)| connect.queue_id > most) {
                return self.complete(cid, status, 0);
            }
            let in_use = self.state.behaviour.lock().unwrap().queues_in_use.clone();
            if in_use.contains(&connect.queue_id) {
                let status = Status::COMMAND_SEQUENCE_ERROR.with_dnr();
                return self.complete(cid, status, 0);
            }
            if connect.sq_size > self.behaviour.max_queue_entries {
                return self.complete(cid, Status::CONNECT_INVALID_PARAMETERS, 0);
            }
        }
        if connect.queue_id > 0 {
            self.state.seen.live_queues.fetch_add(1, Ordering::SeqCst);
        }
        let response = ConnectResponse {
            cntlid: if connect.queue_id == 0 {
                1 + self.state.seen.next_cntlid.fetch_add(1, Ordering::SeqCst) as u16
            } else {
                wire::fabrics::ConnectData::parse_prefix(data)
                    .unwrap()
                    .cntlid
            },
            authentication: 0,
        };
        self.complete(cid, Status::SUCCESS, u64::from(response.to_dword()))
    }

    fn late_answer(&self, cid: u16) -> LateAnswer {
        LateAnswer {
            stream: self.stream.try_clone().unwrap(),
            cid,
            format: self.format,
        }
    }

    fn data_pdu(&mut self, pdu: &C2hData, data: &[u8]) -> Step {
        let mut out = [0; 128];
        let length = pdu.encode(&self.format, &mut out);
        let mut bytes = out[..length].to_vec();
        bytes.extend_from_slice(data);
        if self.format.data_digest {
            let mut digest = wire::tcp::digest::digest_bytes(data);
            let mut behaviour = self.state.behaviour.lock().unwrap();
            if self.queue_id > 0 && behaviour.damaged > 0 {
                behaviour.damaged -= 1;
                digest[0] ^= 1;
            }
            bytes.extend_from_slice(&digest);
        }
        self.send(&bytes)
    }

    fn send_data(&mut self, cid: u16, data: &[u8]) -> Step {
        let size = self.behaviour.data_pdu_bytes as usize;
        let success = self.behaviour.success_flag;
        for (index, chunk) in data.chunks(size).enumerate() {
            let offset = index * size;
            let progress = match (offset + chunk.len() == data.len(), success) {
                (false, _) => C2hProgress::More,
                (true, false) => C2hProgress::Last,
                (true, true) => C2hProgress::LastAndSuccess,
            };
            let pdu = C2hData {
                command_id: cid,
                data_offset: offset as u32,
                data_length: chunk.len() as u32,
                progress,
            };
            self.data_pdu(&pdu, chunk)?;
        }
        if success { Ok(()) } else { self.done(cid) }
    }
}

fn range(command: &LbaCommand) -> std::ops::Range<usize> {
    let start = command.slba as usize * BLOCK;
    start..start + command.blocks as usize * BLOCK
}

fn capabilities(max_queue_entries: u16) -> Capabilities {
    Capabilities {
        max_queue_entries,
        contiguous_queues: true,
        arbitration: 0,
        timeout: 4,
        subsystem_reset: false,
        command_sets: Capabilities::CSS_NVM,
        page_shift_min: 0,
        page_shift_max: 0,
        ready_modes: 1,
    }
}
