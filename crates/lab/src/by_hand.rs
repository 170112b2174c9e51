//! The host's end of a connection, by hand: it speaks NVMe/TCP over a blocking socket, and does
//! what no proper host would.

use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
use std::io::{IoSliceMut, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd as _;
use std::time::{Duration, SystemTime};
use switch::Class;
use wire::fabrics::connect::ConnectAttributes;
use wire::fabrics::property::Configuration;
use wire::fabrics::{Connect, ConnectData, PropertySet};
use wire::nvme::feature::FeatureId;
use wire::nvme::io::LbaControl;
use wire::nvme::vendor::HostExtensions;
use wire::nvme::{
    AdminCommand, Command, Completion, DISCOVERY_NQN, IoOpcode, LbaCommand, Nqn, SetFeatures,
    SglDescriptor, Status,
};
use wire::tcp::c2h_data::C2hProgress;
use wire::tcp::framer::{Event, Framer, FramerLimits, Role};
use wire::tcp::{CapsuleCmd, IcReq, PduFormat, PduHeader};

/// Longer than any answer of a target that works takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Largest data PDU that we take.
const DATA_PDU_BYTES: u32 = 16 << 20;

/// Bytes of a capsule's header with all that may go with it.
const HEADER_BYTES_MAX: usize = 256;

/// Target and namespace that a host talks to.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    /// Address of the target.
    pub address: SocketAddr,
    /// The subsystem.
    pub nqn: String,
    /// The namespace.
    pub nsid: u32,
    /// Bytes of its blocks.
    pub block_bytes: u32,
}

impl Peer {
    /// A command on blocks of the namespace.
    pub(crate) fn command(&self, opcode: IoOpcode, slba: u64, blocks: u32) -> Command {
        let command = LbaCommand {
            nsid: self.nsid,
            slba,
            blocks,
            control: LbaControl(0),
            dataset_hints: 0,
        };
        command.encode(opcode, 0)
    }

    /// A read, with its identifier.
    pub(crate) fn read(&self, cid: u16, slba: u64, blocks: u32) -> Command {
        let mut command = self.command(IoOpcode::READ, slba, blocks);
        command.set_cid(cid);
        command.set_sgl(SglDescriptor::transport(blocks * self.block_bytes));
        command
    }
}

/// A PDU that arrived.
#[derive(Debug)]
pub(crate) struct Pdu {
    pub(crate) header: PduHeader,
    pub(crate) data: Vec<u8>,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    framer: Framer,
    input: Vec<u8>,
    buffer: Vec<u8>,
    cid: u16,
    /// Time at which the kernel took the last packet that was read, where it
    /// [tells](Client::tell_arrivals).
    pub(crate) arrived: Option<SystemTime>,
}

/// ICReq of a plain connection.
pub(crate) fn ic_req() -> Vec<u8> {
    let request = IcReq::PLAIN;
    request.to_bytes().to_vec()
}

/// A TCP connection, without ICReq.
pub(crate) fn dial(address: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// A capsule as bytes.
pub(crate) fn capsule(command: &Command, data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_BYTES_MAX];
    let capsule = CapsuleCmd { command: *command };
    let length = u32::try_from(data.len()).expect("data of a capsule is short");
    let length = capsule.encode(&PduFormat::PLAIN, length, &mut bytes);
    bytes.truncate(length);
    bytes.extend_from_slice(data);
    bytes
}

/// HOSTID of a host: what its name hashes to, and never zero.
fn host_id(name: &str) -> [u8; 16] {
    let mut id = [1_u8; 16];
    for (index, byte) in name.bytes().enumerate() {
        let place = &mut id[index % 16];
        *place = place.wrapping_mul(31).wrapping_add(byte);
    }
    id[0] |= 1;
    id
}

impl Client {
    /// An initialized connection.
    pub(crate) fn open(address: SocketAddr) -> Result<Self> {
        let limits = FramerLimits {
            capsule_data_bytes: 0,
            data_pdu_bytes: DATA_PDU_BYTES,
        };
        let mut client = Self {
            stream: dial(address)?,
            framer: Framer::new(Role::Host, limits),
            input: Vec::new(),
            buffer: vec![0; 64 << 10],
            cid: 0,
            arrived: None,
        };
        client.stream.write_all(&ic_req())?;
        match client.receive()?.header {
            PduHeader::IcResp(_) => Ok(client),
            other => bail!("{other:?} instead of ICResp"),
        }
    }

    /// The admin queue of a new discovery controller, with so many entries.
    pub(crate) fn discovery(address: SocketAddr, host: &str, entries: u16) -> Result<Self> {
        let mut client = Self::open(address)?;
        let ids = (ConnectData::CNTLID_DYNAMIC, 0);
        client.connect(DISCOVERY_NQN, host, ids, entries, 0)?;
        Ok(client)
    }

    /// The admin queue of a new controller of `subsystem`, enabled, and its identifier.
    pub(crate) fn admin(address: SocketAddr, subsystem: &str, host: &str) -> Result<(Self, u16)> {
        let mut client = Self::open(address)?;
        let dynamic = ConnectData::CNTLID_DYNAMIC;
        let completion = client.connect(subsystem, host, (dynamic, 0), 32, 0)?;
        let enable = PropertySet::configure(Configuration::ENABLE);
        client.succeed(enable.encode(0), &[])?;
        let id = completion.dword0() & 0xffff;
        Ok((client, u16::try_from(id).expect("16 bits")))
    }

    /// An I/O queue of a controller, with so many entries.
    pub(crate) fn queue(peer: &Peer, host: &str, ids: (u16, u16), entries: u16) -> Result<Self> {
        let mut client = Self::open(peer.address)?;
        client.connect(&peer.nqn, host, ids, entries, 0)?;
        Ok(client)
    }

    /// An I/O queue of class `Latency`, of the controller with this admin queue.
    pub(crate) fn latency_queue(
        &mut self,
        peer: &Peer,
        host: &str,
        ids: (u16, u16),
        entries: u16,
    ) -> Result<Self> {
        let meant = HostExtensions {
            queue_classes: true,
        };
        let set = SetFeatures::new(FeatureId::HOST_EXTENSIONS, meant.to_dword());
        self.succeed(AdminCommand::SetFeatures(set).encode(0), &[])?;
        let mut client = Self::open(peer.address)?;
        let priority = Class::Latency.wire_priority();
        client.connect(&peer.nqn, host, ids, entries, priority)?;
        Ok(client)
    }

    fn connect(
        &mut self,
        subsystem: &str,
        host: &str,
        (controller, queue_id): (u16, u16),
        entries: u16,
        priority: u8,
    ) -> Result<Completion> {
        let connect = Connect {
            record_format: 0,
            queue_id,
            sq_size: entries - 1,
            attributes: ConnectAttributes(ConnectAttributes::DISABLE_SQ_FLOW_CONTROL)
                .with_priority_class(priority),
            keep_alive_timeout_ms: 0,
        };
        let names = [subsystem, host].map(Nqn::new);
        let [Ok(subsystem), Ok(name)] = names else {
            bail!("the names {subsystem:?} and {host:?} are no NQNs");
        };
        let data = ConnectData::new(host_id(host), controller, &subsystem, &name);
        self.succeed(connect.encode(0), &data.to_bytes())
    }

    /// Lets the kernel tell when what is read arrived at the socket, however long its reader took
    /// to be given a processor afterwards.
    pub(crate) fn tell_arrivals(&self) -> Result<()> {
        Ok(setsockopt(
            &self.stream,
            sockopt::ReceiveTimestampns,
            &true,
        )?)
    }

    /// Reads what has arrived. Returns the number of bytes.
    fn read(&mut self) -> Result<usize> {
        let mut controls = nix::cmsg_space!(nix::sys::time::TimeSpec);
        let mut buffers = [IoSliceMut::new(&mut self.buffer)];
        let socket = self.stream.as_raw_fd();
        let flags = MsgFlags::empty();
        let message = recvmsg::<()>(socket, &mut buffers, Some(&mut controls), flags)?;
        for control in message.cmsgs()? {
            if let ControlMessageOwned::ScmTimestampns(time) = control {
                self.arrived = Some(SystemTime::UNIX_EPOCH + Duration::from(time));
            }
        }
        Ok(message.bytes)
    }

    /// The next command identifier, below 2^15.
    pub(crate) fn cid(&mut self) -> u16 {
        self.cid = (self.cid + 1) & 0x7fff;
        self.cid
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.stream.write_all(bytes)?)
    }

    /// Sends a command with data in its capsule, and returns its completion.
    fn execute(&mut self, mut command: Command, data: &[u8]) -> Result<Completion> {
        let cid = self.cid();
        command.set_cid(cid);
        if let length @ 1.. = data.len() {
            let length = u32::try_from(length).context("data of a capsule is short")?;
            command.set_sgl(SglDescriptor::in_capsule(0, length));
        }
        self.send(&capsule(&command, data))?;
        let (completion, _) = self.answer()?;
        ensure!(completion.cid == cid, "an answer to another command");
        Ok(completion)
    }

    /// The same, of a command that the target must carry out.
    pub(crate) fn succeed(&mut self, command: Command, data: &[u8]) -> Result<Completion> {
        let completion = self.execute(command, data)?;
        ensure!(completion.status.is_success(), "{}", completion.status);
        Ok(completion)
    }

    /// The next command's answer, with the data that came before it.
    pub(crate) fn answer(&mut self) -> Result<(Completion, Vec<u8>)> {
        let mut all = Vec::new();
        loop {
            let Pdu { header, data } = self.receive()?;
            match header {
                PduHeader::C2hData(c2h) => {
                    all.extend_from_slice(&data);
                    if c2h.progress == C2hProgress::LastAndSuccess {
                        let completion = Completion::new(c2h.command_id, 0, Status::SUCCESS);
                        return Ok((completion, all));
                    }
                }
                PduHeader::CapsuleResp(response) => return Ok((response.completion, all)),
                other => bail!("the target sent {other:?}"),
            }
        }
    }

    /// The next PDU.
    pub(crate) fn receive(&mut self) -> Result<Pdu> {
        let mut partial: Option<Pdu> = None;
        loop {
            let mut input = self.input.as_slice();
            let mut done = None;
            while done.is_none()
                && let Some(event) = self.framer.next(&mut input)?
            {
                match event {
                    Event::Pdu { header, data, .. } => {
                        let data = data.unwrap_or_default().to_vec();
                        done = Some(Pdu { header, data });
                    }
                    Event::DataBegin { header, .. } => {
                        let data = Vec::new();
                        partial = Some(Pdu { header, data });
                    }
                    Event::DataChunk(chunk) => {
                        if let Some(pdu) = &mut partial {
                            pdu.data.extend_from_slice(chunk);
                        }
                    }
                    Event::DataEnd { .. } => done = partial.take(),
                }
            }
            let used = self.input.len() - input.len();
            self.input.drain(..used);
            if let Some(pdu) = done {
                return Ok(pdu);
            }
            let count = self.read()?;
            ensure!(count > 0, "the target closed the connection");
            self.input.extend_from_slice(&self.buffer[..count]);
        }
    }
}
