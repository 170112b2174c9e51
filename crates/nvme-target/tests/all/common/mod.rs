//! A test client: it uses the wire format over a blocking socket and checks nothing by itself, so
//! that a test can violate every rule.
#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    missing_debug_implementations
)] // Each file uses a part.
#![allow(
    clippy::cast_possible_truncation,
    reason = "sizes in tests are small and chosen by the test"
)]

pub mod events;
pub mod late;
pub mod log;

use base::units::{CoreId, KIB, MIB};
use block::device::Ram;
use reactor::BufferClass;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use switch::Class;
use switchyard_target::{
    DeviceQos, Limits, NamespaceOptions, RunningTarget, SubsystemOptions, Target, TargetOptions,
};
pub use testing::{Dialect, HOST_ID, Pdu, eventually, pattern};
use wire::fabrics::property::{Configuration, ControllerStatus};
use wire::fabrics::{Connect, ConnectData, Property, PropertyGet, PropertySet, PropertySize};
use wire::nvme::feature::{FeatureId, FeatureSelect};
use wire::nvme::io::DatasetRange;
use wire::nvme::vendor::HostExtensions;
use wire::nvme::{
    AdminCommand, Command, Completion, DISCOVERY_NQN, DatasetManagement, ExtentEntry,
    ExtentsCommand, FabricsType, GetFeatures, IoOpcode, SetFeatures, SglDescriptor,
};
use wire::tcp::c2h_data::C2hProgress;
use wire::tcp::{PduHeader, R2t, TermReq};

pub const NQN: &str = "nqn.2026-11.io.switchyard:default";
pub const HOST: &str = "nqn.2026-11.io.example:host";
pub const BLOCK: usize = 4096;

/// A running target with a RAM namespace of 16 MiB, and its parts.
pub struct Bed {
    pub target: RunningTarget,
    pub ram: Arc<Ram>,
}

impl Bed {
    pub fn new() -> Self {
        Self::with(Limits::default(), 1)
    }

    pub fn with(limits: Limits, cores: usize) -> Self {
        Self::scheduled(limits, cores, None)
    }

    /// Creates a target whose namespace costs tokens.
    pub fn scheduled(limits: Limits, cores: usize, qos: Option<Arc<DeviceQos>>) -> Self {
        Self::started(limits, cores, qos, |target| run(target, cores))
    }

    /// Creates a target whose threads are pinned to these cores of the machine.
    pub fn on(cores: Vec<CoreId>) -> Self {
        let count = cores.len();
        Self::started(Limits::default(), count, None, |target| {
            run_on(target, cores, true)
        })
    }

    fn started(
        limits: Limits,
        cores: usize,
        qos: Option<Arc<DeviceQos>>,
        start: impl FnOnce(Arc<Target>) -> RunningTarget,
    ) -> Self {
        let ram = ram(16 * MIB);
        let namespace = NamespaceOptions {
            qos,
            ..namespace(1, Arc::clone(&ram) as Arc<dyn block::Device>)
        };
        Self {
            target: start(target_with(limits, cores, [namespace])),
            ram,
        }
    }

    pub fn handle(&self) -> &Arc<Target> {
        &self.target.handle
    }

    pub fn address(&self) -> SocketAddr {
        self.target.addresses[0]
    }

    /// Returns the number of I/O commands of all connections so far.
    pub fn commands(&self) -> u64 {
        let cores = self.handle().snapshot().cores;
        cores.iter().map(|core| core.io_commands).sum()
    }

    /// Returns the number of commands that waited for a paused namespace.
    pub fn pause_waits(&self) -> u64 {
        let cores = self.handle().snapshot().cores;
        cores.iter().map(|core| core.pause_waits).sum()
    }

    /// Returns an I/O queue of a class.
    pub fn queue_of(&self, cntlid: u16, queue_id: u16, class: Class) -> Client {
        let mut client = Client::dial(self.address(), Dialect::default());
        let mut connect = Client::connect_command(queue_id, 63, 0);
        connect.attributes = connect
            .attributes
            .with_priority_class(class.wire_priority());
        let completion = client.connect(&connect, &Client::connect_data(NQN, cntlid));
        assert!(completion.status.is_success(), "{}", completion.status);
        client
    }

    /// Returns a connected and enabled admin queue.
    pub fn admin(&self) -> Client {
        Client::admin(self.address(), NQN, 0)
    }

    /// Returns an admin queue and one I/O queue of 128 entries without SQ flow control.
    pub fn host(&self) -> (Client, Client) {
        self.host_with(Dialect::default())
    }

    /// Returns a connected and enabled admin queue, and its controller's identifier.
    pub fn controller(&self, dialect: Dialect) -> (Client, u16) {
        let mut admin = Client::dial(self.address(), dialect);
        let cntlid = admin.connect_admin(NQN, 0);
        admin.enable();
        (admin, cntlid)
    }

    pub fn host_with(&self, dialect: Dialect) -> (Client, Client) {
        let (admin, cntlid) = self.controller(dialect);
        let mut io = Client::dial(self.address(), dialect);
        io.connect_io(NQN, cntlid, 1, 127);
        (admin, io)
    }

    /// Returns an admin queue and `queues` I/O queues of a host of this name, dealt out to the
    /// cores in turn.
    pub fn host_named(&self, name: &str, queues: u16) -> (Client, Vec<Client>) {
        let connect = |cntlid, queue, entries| {
            let mut client = Client::dial(self.address(), Dialect::default());
            let data = testing::connect_data(NQN, name, HOST_ID, cntlid);
            let completion = client.connect(&Client::connect_command(queue, entries, 0), &data);
            assert!(completion.status.is_success(), "{}", completion.status);
            (client, completion.dword0() as u16)
        };
        let (mut admin, cntlid) = connect(ConnectData::CNTLID_DYNAMIC, 0, 31);
        admin.enable();
        let queues = (1..=queues).map(|queue| connect(cntlid, queue, 1023).0);
        let queues = queues.collect();
        (admin, queues)
    }
}

pub fn namespace(nsid: u32, device: Arc<dyn block::Device>) -> NamespaceOptions {
    NamespaceOptions::new(nsid, device, [nsid as u8; 16])
}

/// Returns a RAM device of `bytes` bytes.
pub fn ram(bytes: usize) -> Arc<Ram> {
    Arc::new(Ram::new(bytes as u64, BLOCK as u32).expect("a small device"))
}

/// Returns a target with one subsystem, which every host may use.
pub fn target_with(
    limits: Limits,
    cores: usize,
    namespaces: impl IntoIterator<Item = NamespaceOptions>,
) -> Arc<Target> {
    let target = Target::new(limits, cores).expect("legal limits");
    target
        .add_subsystem(SubsystemOptions::open_to_all(NQN))
        .expect("a new subsystem");
    for namespace in namespaces {
        target
            .add_namespace(NQN, namespace)
            .expect("a new namespace");
    }
    target
}

pub fn run(target: Arc<Target>, cores: usize) -> RunningTarget {
    let cores = (0..cores).map(|core| CoreId(core as u32)).collect();
    run_on(target, cores, false)
}

/// Runs a target on these cores of the machine; `pin` pins its threads.
pub fn run_on(target: Arc<Target>, cores: Vec<CoreId>, pin: bool) -> RunningTarget {
    let options = TargetOptions {
        listen: vec![SocketAddr::from(([127, 0, 0, 1], 0)).into()],
        cores,
        pin,
        ..TargetOptions::default()
    };
    RunningTarget::start(target, &options).expect("a target on loopback")
}

/// The host's end of a connection; an error fails the test.
pub struct Client(testing::Client);

impl Deref for Client {
    type Target = testing::Client;

    fn deref(&self) -> &testing::Client {
        &self.0
    }
}

impl DerefMut for Client {
    fn deref_mut(&mut self) -> &mut testing::Client {
        &mut self.0
    }
}

impl Client {
    /// Opens a TCP connection, without ICReq.
    pub fn raw(address: SocketAddr) -> TcpStream {
        testing::dial(address).expect("the target listens")
    }

    /// Returns an initialized connection.
    pub fn dial(address: SocketAddr, dialect: Dialect) -> Self {
        Self(testing::Client::open(address, dialect).expect("ICResp"))
    }

    /// Returns a connected and enabled admin queue.
    pub fn admin(address: SocketAddr, nqn: &str, kato_ms: u32) -> Self {
        let mut client = Self::dial(address, Dialect::default());
        client.connect_admin(nqn, kato_ms);
        client.enable();
        client
    }

    /// Returns a connected discovery controller.
    pub fn discovery(address: SocketAddr, kato_ms: u32) -> Self {
        Self::admin(address, DISCOVERY_NQN, kato_ms)
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.0.send(bytes).expect("the target reads");
    }

    /// Returns the next PDU; `None` if the target closed the connection.
    pub fn try_receive(&mut self) -> Option<Pdu> {
        self.0.next_pdu().expect("the target sends legal PDUs")
    }

    /// Returns true if there is nothing to receive.
    pub fn is_silent(&self) -> bool {
        self.stream.set_nonblocking(true).expect("a socket");
        let peeked = self.stream.peek(&mut [0]);
        self.stream.set_nonblocking(false).expect("a socket");
        peeked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }

    /// Checks that the target closes the connection without sending anything.
    pub fn closed(mut self) {
        let mut rest = Vec::new();
        let closed = self.stream.read_to_end(&mut rest);
        assert!(
            closed.is_ok() && rest.is_empty(),
            "closed, and nothing else"
        );
    }

    /// Sets whether the classes of the host's queues are used.
    pub fn mean_classes(&mut self, queue_classes: bool) -> u32 {
        let value = HostExtensions { queue_classes }.to_dword();
        let set = SetFeatures::new(FeatureId::HOST_EXTENSIONS, value);
        let completion = self.execute(AdminCommand::SetFeatures(set).encode(0), &[]);
        assert!(completion.status.is_success(), "{}", completion.status);
        value
    }

    pub fn receive(&mut self) -> Pdu {
        self.try_receive()
            .expect("an answer, not the end of the connection")
    }

    /// Returns the next PDU, which must be a CapsuleResp.
    pub fn completion(&mut self) -> Completion {
        let pdu = self.receive();
        let PduHeader::CapsuleResp(response) = pdu.header else {
            panic!("{pdu:?}")
        };
        response.completion
    }

    /// Returns the next PDU, which must be an R2T.
    pub fn r2t(&mut self) -> R2t {
        let pdu = self.receive();
        let PduHeader::R2t(r2t) = pdu.header else {
            panic!("{pdu:?}")
        };
        r2t
    }

    /// Returns the next PDU, which must be a C2HTermReq, after which the connection ends.
    pub fn terminated(&mut self) -> (TermReq, Vec<u8>) {
        let pdu = self.receive();
        let PduHeader::C2hTermReq(request) = pdu.header else {
            panic!("{pdu:?}")
        };
        assert!(
            self.try_receive().is_none(),
            "a termination request is the last PDU"
        );
        (request, pdu.data)
    }

    pub fn capsule(&mut self, command: &Command, data: &[u8]) {
        let bytes = self.session.capsule(command, data);
        self.send(&bytes);
    }

    /// Answers an R2T with its part of a command's `data`, in PDUs as large as allowed.
    pub fn answer_r2t(&mut self, r2t: &R2t, data: &[u8]) {
        let (start, end) = (r2t.offset as usize, (r2t.offset + r2t.length) as usize);
        let bytes = self.session.answer(r2t, &data[start..end]);
        self.send(&bytes);
    }

    pub fn cid(&mut self) -> u16 {
        self.session.cid()
    }

    /// Sends a command and returns its completion, which must be the next PDU.
    pub fn execute(&mut self, command: Command, data: &[u8]) -> Completion {
        let (bytes, cid) = self.session.command(command, data);
        self.send(&bytes);
        let completion = self.completion();
        assert_eq!(completion.cid, cid);
        completion
    }

    /// Sends a command that reads data, and returns its completion and data.
    pub fn fetch(&mut self, mut command: Command, length: usize) -> (Completion, Vec<u8>) {
        let cid = self.cid();
        command.set_cid(cid);
        command.set_sgl(SglDescriptor::transport(length as u32));
        self.capsule(&command, &[]);
        self.fetched(cid)
    }

    /// Returns the completion and data of an outstanding command.
    pub fn fetched(&mut self, cid: u16) -> (Completion, Vec<u8>) {
        let (completion, data) = self.answer().expect("an answer");
        assert_eq!(completion.cid, cid);
        (completion, data)
    }

    pub fn connect_command(queue_id: u16, sq_size: u16, kato_ms: u32) -> Connect {
        testing::connect(queue_id, sq_size, kato_ms)
    }

    pub fn connect_data(nqn: &str, cntlid: u16) -> ConnectData {
        testing::connect_data(nqn, HOST, HOST_ID, cntlid)
    }

    pub fn connect(&mut self, connect: &Connect, data: &ConnectData) -> Completion {
        self.execute(connect.encode(0), &data.to_bytes())
    }

    pub fn connect_admin(&mut self, nqn: &str, kato_ms: u32) -> u16 {
        let command = Self::connect_command(0, 31, kato_ms);
        let data = Self::connect_data(nqn, ConnectData::CNTLID_DYNAMIC);
        let completion = self.connect(&command, &data);
        assert!(completion.status.is_success(), "{}", completion.status);
        completion.dword0() as u16
    }

    pub fn connect_io(&mut self, nqn: &str, cntlid: u16, queue_id: u16, sq_size: u16) {
        let command = Self::connect_command(queue_id, sq_size, 0);
        let completion = self.connect(&command, &Self::connect_data(nqn, cntlid));
        assert!(completion.status.is_success(), "{}", completion.status);
    }

    pub fn property(&mut self, property: Property) -> u64 {
        let size = property.size().unwrap_or(PropertySize::Four);
        let completion = self.execute(PropertyGet { size, property }.encode(0), &[]);
        assert!(completion.status.is_success(), "{}", completion.status);
        completion.result
    }

    pub fn configure(&mut self, configuration: Configuration) -> Completion {
        let set = PropertySet::configure(configuration);
        self.execute(set.encode(0), &[])
    }

    /// Resets the controller, and waits until it is no longer ready.
    pub fn disable(&mut self) {
        let completion = self.configure(Configuration(0));
        assert!(completion.status.is_success(), "{}", completion.status);
        eventually("the reset ends", || {
            let status = ControllerStatus(self.property(Property::CSTS) as u32);
            !status.ready()
        });
    }

    pub fn enable(&mut self) {
        let completion = self.configure(Configuration::ENABLE);
        assert!(completion.status.is_success(), "{}", completion.status);
    }

    /// Reads blocks of namespace 1.
    pub fn read(&mut self, slba: u64, blocks: u32) -> (Completion, Vec<u8>) {
        self.fetch(io(IoOpcode::READ, slba, blocks), blocks as usize * BLOCK)
    }

    /// Writes blocks of namespace 1, in the capsule if they fit, by R2T otherwise.
    pub fn write(&mut self, slba: u64, data: &[u8]) -> Completion {
        let command = io(IoOpcode::WRITE, slba, (data.len() / BLOCK) as u32);
        if data.len() <= 16 * 1024 {
            self.execute(command, data)
        } else {
            self.write_by_r2t(slba, data)
        }
    }

    /// Returns the current value of a feature, from an admin queue.
    pub fn feature(&mut self, nsid: u32, feature: FeatureId) -> u32 {
        let get = GetFeatures {
            nsid,
            feature,
            select: FeatureSelect::CURRENT,
            dword11: 0,
            uuid_index: 0,
        };
        let completion = self.execute(AdminCommand::GetFeatures(get).encode(0), &[]);
        assert!(completion.status.is_success(), "{}", completion.status);
        completion.dword0()
    }

    /// Begins a write of the first blocks, for whose data the target asks.
    pub fn begin_write(&mut self, cid: u16, data: &[u8]) -> R2t {
        let mut command = io(IoOpcode::WRITE, 0, (data.len() / BLOCK) as u32);
        command.set_cid(cid);
        command.set_sgl(SglDescriptor::transport(data.len() as u32));
        self.capsule(&command, &[]);
        self.r2t()
    }

    /// Reads the first block again and again until a read waits for its namespace, which is being
    /// paused. Returns the CID of that read, which is followed by no other.
    pub fn read_until_paused(&mut self, bed: &Bed) -> u16 {
        let mut cid = 100;
        let ask = |client: &mut Self, cid| {
            let mut read = io(IoOpcode::READ, 0, 1);
            read.set_cid(cid);
            read.set_sgl(SglDescriptor::transport(BLOCK as u32));
            client.capsule(&read, &[]);
        };
        ask(self, cid);
        eventually("a command waits for the namespace", || {
            if !self.is_silent() {
                self.fetched(cid);
                cid += 1;
                ask(self, cid);
            }
            bed.pause_waits() > 0
        });
        cid
    }

    pub fn write_by_r2t(&mut self, slba: u64, data: &[u8]) -> Completion {
        let mut command = io(IoOpcode::WRITE, slba, (data.len() / BLOCK) as u32);
        let cid = self.cid();
        command.set_cid(cid);
        command.set_sgl(SglDescriptor::transport(data.len() as u32));
        self.capsule(&command, &[]);
        self.finish_write(data)
    }

    /// Answers R2Ts until the command completes.
    pub fn finish_write(&mut self, data: &[u8]) -> Completion {
        loop {
            match self.receive().header {
                PduHeader::R2t(r2t) => self.answer_r2t(&r2t, data),
                PduHeader::CapsuleResp(response) => return response.completion,
                other => panic!("{other:?}"),
            }
        }
    }
}

/// Returns a command on blocks of namespace 1.
pub fn io(opcode: IoOpcode, slba: u64, blocks: u32) -> Command {
    io_on(1, opcode, slba, blocks)
}

pub fn io_on(nsid: u32, opcode: IoOpcode, slba: u64, blocks: u32) -> Command {
    testing::blocks(opcode, nsid, slba, blocks)
}

/// Returns a Fabrics command of a type.
pub fn fabrics(kind: FabricsType) -> Command {
    Command::new_fabrics(kind, 0)
}

/// Returns the next answer to any read of the queue: its command identifier and data.
pub fn any_read(client: &mut Client) -> (u16, Vec<u8>) {
    let pdu = client.receive();
    let PduHeader::C2hData(c2h) = pdu.header else {
        panic!("{:?}", pdu.header);
    };
    assert_eq!(c2h.progress, C2hProgress::LastAndSuccess);
    (c2h.command_id, pdu.data)
}

pub fn buffers(bytes: usize, count: usize) -> BufferClass {
    BufferClass { bytes, count }
}

/// Returns a small number of buffers.
pub fn few() -> Vec<BufferClass> {
    vec![buffers(64 * KIB, 64), buffers(MIB, 4)]
}

/// Runs a target on one core, with only these buffers.
pub fn with_buffers(target: Arc<Target>, buffers: Vec<BufferClass>) -> RunningTarget {
    let options = TargetOptions {
        listen: vec![SocketAddr::from(([127, 0, 0, 1], 0)).into()],
        cores: vec![CoreId(0)],
        pin: false,
        buffers,
        ..TargetOptions::default()
    };
    RunningTarget::start(target, &options).expect("a target on loopback")
}

/// Returns a Dataset Management command that deallocates one range, and its data.
pub fn deallocate(slba: u64, blocks: u32) -> (Command, Vec<u8>) {
    deallocate_all(&[(slba, blocks)])
}

/// Returns a Dataset Management command that deallocates these ranges, and its data.
pub fn deallocate_all(ranges: &[(u64, u32)]) -> (Command, Vec<u8>) {
    let management = DatasetManagement {
        nsid: 1,
        ranges: ranges.len() as u16,
        deallocate: true,
        integral_read: false,
        integral_write: false,
    };
    let ranges = ranges.iter().flat_map(|&(slba, blocks)| {
        let range = DatasetRange {
            attributes: 0,
            blocks,
            slba,
        };
        range.to_bytes()
    });
    (management.encode(0), ranges.collect())
}

/// Returns a command over these extents of a namespace, and its table.
pub fn extents(opcode: IoOpcode, nsid: u32, extents: &[(u64, u32)]) -> (Command, Vec<u8>) {
    let entries = extents
        .iter()
        .map(|&(slba, blocks)| ExtentEntry { slba, blocks });
    let table = entries.flat_map(|entry| entry.to_bytes()).collect();
    let command = ExtentsCommand {
        nsid,
        extents: extents.len() as u16,
        blocks: extents.iter().map(|&(_, blocks)| blocks).sum(),
        fua: false,
        outcomes: false,
    };
    (command.encode(opcode, 0), table)
}

/// Sets the flag that ends the work, even if the test fails.
pub struct StopAtLast<'a>(pub &'a AtomicBool);

impl Drop for StopAtLast<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sends bytes that are not a PDU, and waits for the answer.
pub fn violate(address: SocketAddr, bytes: &[u8]) {
    let mut stream = Client::raw(address);
    let _ = stream.write_all(bytes);
    let _ = stream.read(&mut [0; 256]);
}
