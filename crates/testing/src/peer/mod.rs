//! A small controller for tests: it serves a namespace in memory over real sockets, with
//! configurable transfers and one-time protocol violations. It shares no code with the product's
//! target, so that host and target cannot contain the same mistake unnoticed.
#![allow(
    missing_docs,
    missing_debug_implementations,
    clippy::missing_panics_doc
)] // For tests alone.
#![allow(clippy::unwrap_used)] // What fails here fails the test.
#![allow(clippy::cast_possible_truncation)] // Sizes in tests are small.

mod admin;
mod chap;
mod io;
mod mischief;

use crate::{IoCommand, fields, parse_ranges};
use secure::KeyRing;
use secure::chap::{ControllerExchange, Failure};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use wire::fabrics::property::ControllerStatus;
use wire::fabrics::{
    Connect, ConnectData, ConnectResponse, FabricsCommand, InvalidParameter, Property,
};
use wire::nvme::identify::Cns;
use wire::nvme::identify_controller::NvmIdentifyController;
use wire::nvme::{Abort, Command, Completion, DataPointer, ExtentTerms, ExtentsCommand, Status};
use wire::tcp::c2h_data::C2hProgress;
use wire::tcp::{
    C2hData, CapsuleResp, DataAlignment, Event, Framer, FramerLimits, IcResp, PduFormat, PduHeader,
    R2t, Role, TermReq,
};

pub const NQN: &str = "nqn.2026-11.io.switchyard:peer";
pub const BLOCK: usize = 512;

/// A one-time protocol violation in place of the answer to an I/O command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mischief {
    /// Sends the same data twice.
    DataTwice,
    /// Sends data in answer to a write.
    DataForWrite,
    /// Reports success before all data was sent.
    DataMissing,
    /// Sends the same R2T repeatedly.
    TransferAgain,
    /// Sends an R2T for a read.
    TransferForRead,
    /// Sends R2Ts of one block each, all at once.
    TransferFlood,
    /// Reports success of a write after an R2T for this part of its data; no R2T if the part is
    /// empty.
    SuccessAfter { offset: u32, length: u32 },
    /// Sends a termination request.
    Terminate,
    /// Reports success without doing anything, together with a termination request.
    DoneAndTerminate,
    /// Closes the connection without an answer.
    Hangup,
}

/// Replaces bytes in the next PDU of this type that a connection sends.
#[derive(Clone, Debug)]
pub struct Forge {
    /// Index of the connection: 0 is the first admin queue, 1 the first I/O queue.
    pub connection: usize,
    pub pdu: u8,
    /// The replaced bytes and their offsets.
    pub edits: Vec<fields::Edit>,
    /// The header digest is recomputed.
    pub reseal: bool,
    /// Bytes sent before the PDU.
    pub before: Vec<u8>,
}

/// Behaviour of the controller.
#[derive(Clone, Debug)]
pub struct Behaviour {
    pub in_capsule_bytes: u32,
    pub max_h2c_data: u32,
    /// Bytes per R2T.
    pub transfer_bytes: u32,
    /// R2Ts outstanding at once.
    pub transfers_at_once: u32,
    /// Bytes per C2HData PDU.
    pub data_pdu_bytes: u32,
    pub success_flag: bool,
    pub digests: bool,
    pub alignment: u8,
    pub io_queues: u16,
    pub mischief: Option<Mischief>,
    pub forge: Option<Forge>,
    /// `(n, bytes)`: the n-th connection is cut after this number of bytes was sent on it.
    pub cut: Option<(usize, usize)>,
    /// Number of first I/O commands that fail with "transient transport error".
    pub refusals: usize,
    /// Number of first data digests that are wrong.
    pub damaged: usize,
    /// Number of first I/O commands that are never answered.
    pub swallow: usize,
    /// Number of first I/O commands that are held until [`Peer::release`].
    pub hold: usize,
    /// An Abort ends held commands.
    pub aborts: bool,
    /// Status with which Connect fails.
    pub refuse_connect: Option<Status>,
    /// AUTHREQ in the response to Connect.
    pub authentication: u16,
    /// Keys of DH-HMAC-CHAP, whose commands are invalid without.
    pub keys: Option<Arc<KeyRing>>,
    /// Replaces the messages that the controller sends; an empty one is never sent.
    pub tamper: Option<fn(Vec<u8>) -> Vec<u8>>,
    /// Status with which Connect of an I/O queue fails.
    pub refuse_io_connect: Option<Status>,
    /// `(number, parameter)`: Connect of I/O queues fails in this association, from 1, because of this
    /// parameter.
    pub differs: Option<(usize, InvalidParameter)>,
    /// `(number, status)`: Connect of I/O queues above this number fails with this status, even if
    /// they were granted.
    pub queues_refused: Option<(u16, Status)>,
    /// Identifiers of I/O queues that still exist: their Connect fails.
    pub queues_in_use: Vec<u16>,
    /// CAP.MQES, the upper limit of an I/O queue's size.
    pub max_queue_entries: u16,
    /// Reports support of End Controller.
    pub fences: bool,
    /// Reports support of commands over extents, with these limits.
    pub extents: Option<ExtentTerms>,
    /// Number of first End Controller commands that fail.
    pub refused_ends: usize,
    /// End Controller is answered only after [`Peer::end_controllers`].
    pub slow_fences: bool,
    /// MDTS, which is enforced.
    pub mdts: u8,
    /// Length limits of the remaining commands, reported and enforced; `None` for no limits.
    pub lengths: Option<NvmIdentifyController>,
    /// The read of CSTS, counted from 1, from which on the controller reports ready.
    pub ready_after: u32,
    /// Duration of each Identify.
    pub slow_identify: Duration,
    /// Reports traffic-based keep-alive: any command keeps the association alive.
    pub traffic_based: bool,
    /// Life of the volatile write cache; `None` for no cache, `Some(0)` for a cache that reports no
    /// life.
    pub cache_life: Option<u64>,
    /// Value of every byte of the namespace's UUID.
    pub volume: u8,
    /// Number of namespaces, which share one memory and have different UUIDs.
    pub namespaces: u32,
    /// Status with which an Identify of this CNS and NSID fails.
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
            authentication: 0,
            keys: None,
            tamper: None,
            refuse_io_connect: None,
            differs: None,
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

/// Events that the controller has observed.
#[derive(Debug, Default)]
pub struct Seen {
    pub terminations: Mutex<Vec<TermReq>>,
    /// The header in the last of these terminations.
    pub complaint: Mutex<Vec<u8>>,
    /// The last forged header.
    pub forged: Mutex<Vec<u8>>,
    pub connections: AtomicUsize,
    /// Queues that authenticated.
    pub authenticated: AtomicUsize,
    /// Failures of authentication.
    pub failures: Mutex<Vec<Failure>>,
    pub associations: AtomicUsize,
    /// Number of successful Connects of I/O queues.
    pub live_queues: AtomicUsize,
    pub keep_alives: AtomicUsize,
    pub aborts: AtomicUsize,
    /// Identify commands that failed by [`Behaviour::unready`].
    pub unready: AtomicUsize,
    pub shutdowns: AtomicUsize,
    /// CNTLIDs in End Controller commands.
    pub ended: Mutex<Vec<u16>>,
    pub next_cntlid: AtomicUsize,
    pub writes: AtomicUsize,
    pub io_commands: AtomicUsize,
    /// Number of held commands.
    pub held: AtomicUsize,
    /// The part of them that are commands over extents.
    pub held_extents: AtomicUsize,
    /// Most commands held at once.
    pub held_at_once: AtomicUsize,
    pub last_connection_bytes: AtomicUsize,
    /// Connections reset by the host, which guarantees that no data of them arrives later.
    pub resets: AtomicUsize,
}

/// Lock order: `behaviour` first.
struct State {
    behaviour: Mutex<Behaviour>,
    memory: Mutex<Vec<u8>>,
    seen: Arc<Seen>,
    blocks: AtomicU64,
    /// Outstanding event requests, and whether an event occurred while there was none.
    events: Mutex<(Vec<LateAnswer>, bool)>,
    /// Held End Controller commands.
    held: Mutex<Vec<Held>>,
    fences: Mutex<Vec<LateAnswer>>,
    sockets: Mutex<Vec<TcpStream>>,
    stop: AtomicBool,
}

impl State {
    /// Takes the held command that `abort` names, if there is one.
    fn take_held(&self, abort: &Abort) -> Option<Held> {
        let mut held = self.held.lock().unwrap();
        let place = held
            .iter()
            .position(|held| (held.queue_id, held.command.cid()) == (abort.sq_id, abort.cid))?;
        Some(held.swap_remove(place))
    }
}

/// A command whose answer is outstanding.
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

    /// Cuts the oldest connection that is still up.
    pub fn cut_oldest(&self) {
        let socket = self.state.sockets.lock().unwrap().remove(0);
        let _ = socket.shutdown(Shutdown::Both);
    }

    /// Executes the held commands; returns their number.
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

    /// Answers the held End Controller commands; returns their number.
    pub fn end_controllers(&self) -> usize {
        let waiting = std::mem::take(&mut *self.state.fences.lock().unwrap());
        let count = waiting.len();
        for answer in waiting {
            answer.give(0);
        }
        count
    }

    /// Changes the namespace's size, and reports it by an event.
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

/// A held command.
struct Held {
    stream: TcpStream,
    format: PduFormat,
    queue_id: u16,
    command: Command,
    capsule: Vec<u8>,
}

impl Held {
    /// Returns its connection, to send the answer.
    fn connection(self, state: &Arc<State>) -> Connection {
        let mut connection = Connection::new(self.stream, Arc::clone(state), usize::MAX);
        connection.format = self.format;
        connection
    }
}

/// A byte range of the memory.
type Place = std::ops::Range<usize>;

/// A write whose data is being transferred.
struct Writing {
    /// Its memory ranges, in order.
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
    chap: Option<ControllerExchange>,
    is_authenticated: bool,
    sent: usize,
    writing: Vec<Writing>,
    /// Header and payload of the PDU that is being received.
    arriving: Option<(PduHeader, Vec<u8>)>,
    looks: u32,
    is_shut_down: bool,
    misbehaved: bool,
}

/// The connection has ended.
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
            chap: None,
            is_authenticated: false,
            sent: 0,
            writing: Vec::new(),
            arriving: None,
            looks: 0,
            is_shut_down: false,
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

    /// Returns the forged bytes if this PDU is to be forged.
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
        if self.lacks_authentication(command) {
            let status = Status::AUTHENTICATION_REQUIRED.with_dnr();
            return self.complete(command.cid(), status, 0);
        }
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
                    Property::CAP => self.capabilities().to_bits(),
                    Property::CSTS => {
                        self.looks += 1;
                        if self.is_shut_down {
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
                    self.is_shut_down = true;
                    self.state.seen.shutdowns.fetch_add(1, Ordering::SeqCst);
                }
                self.done(cid)
            }
            FabricsCommand::AuthenticationSend(_) => self.message_sent(cid, data),
            FabricsCommand::AuthenticationReceive(receive) => self.message_due(cid, receive),
            FabricsCommand::Disconnect(_) => self.done(cid),
        }
    }

    fn connect(&mut self, cid: u16, connect: &Connect, data: &[u8]) -> Step {
        assert_eq!(data.len(), 1024);
        self.queue_id = connect.queue_id;
        if connect.queue_id == 0 {
            self.state.seen.associations.fetch_add(1, Ordering::SeqCst);
        }
        if let Some(status) = self.behaviour.refuse_connect {
            return self.complete(cid, status, 0);
        }
        if connect.queue_id > 0 {
            if let Some(status) = self.behaviour.refuse_io_connect {
                return self.complete(cid, status, 0);
            }
            let associations = self.state.seen.associations.load(Ordering::SeqCst);
            if let Some((number, parameter)) = self.behaviour.differs
                && number == associations
            {
                let status = Status::CONNECT_INVALID_PARAMETERS.with_dnr();
                return self.complete(cid, status, parameter.to_dword().into());
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
                ConnectData::parse_prefix(data).unwrap().cntlid
            },
            authentication: self.behaviour.authentication,
        };
        self.begin_chap(data);
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
