//! Hosts that connect and then do nothing at all.
//!
//! What is this: blocking sockets that speak as much NVMe/TCP as it takes to be connected. Each
//! connection is a queue of a controller without keep-alive, so neither end ever has anything to
//! say, and what the target costs is what idle connections cost it. The host of this program
//! would send keep-alive commands, and connects its queues when there is work for them.

use anyhow::{Context as _, Result, ensure};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use wire::fabrics::connect::ConnectAttributes;
use wire::fabrics::property::Configuration;
use wire::fabrics::{Connect, ConnectData, ConnectResponse, PropertySet};
use wire::nvme::{AdminCommand, Command, Completion, IoCommand, Nqn, SglDescriptor};
use wire::tcp::limits::{CAPSULE_CMD_BYTES, IC_BYTES, PREFIX_BYTES_MAX, SHORT_HEADER_BYTES};
use wire::tcp::{CapsuleCmd, CapsuleResp, IcReq, IcResp, PduFormat, PduType};

/// I/O queues of each controller, at most; eight controllers make a thousand connections.
const QUEUES_MAX: usize = 124;

/// SQSIZE, zero-based: what the Linux host asks for.
const ADMIN_SQ_SIZE: u16 = 31;
const IO_SQ_SIZE: u16 = 127;

/// Longer than any answer of a working target takes.
const PATIENCE: Duration = Duration::from_secs(10);

/// Every queue's only command has this identifier.
const CID: u16 = 1;

/// The host's identifier; its name is derived from it.
const HOST_ID: [u8; 16] = *b"switchyard idles";
const HOST_NQN: &str = "nqn.2026-11.io.switchyard:idle-host";

/// Connected queues, the admin queue of each controller before its I/O queues.
#[derive(Debug)]
pub(super) struct IdleHosts {
    queues: Vec<Queue>,
}

#[derive(Debug)]
struct Queue {
    stream: TcpStream,
    /// QID: 0 for an admin queue.
    id: u16,
}

impl IdleHosts {
    /// Connects so many queues to namespaces of `subsystem`.
    ///
    /// # Errors
    /// A target that refuses one, or does not answer.
    pub(super) fn connect(
        address: SocketAddr,
        subsystem: &str,
        connections: usize,
    ) -> Result<Self> {
        let subsystem = Nqn::new(subsystem).context("the subsystem's name")?;
        let mut queues = Vec::with_capacity(connections);
        let mut cntlid = ConnectData::CNTLID_DYNAMIC;
        for index in 0..connections {
            let id = u16::try_from(index % (QUEUES_MAX + 1)).expect("at most 124");
            let (mut queue, joined) = Queue::connect(address, &subsystem, id, cntlid)
                .with_context(|| format!("cannot open idle connection {}", index + 1))?;
            if id == 0 {
                cntlid = joined;
                queue.enable()?;
            }
            if id as usize == QUEUES_MAX {
                cntlid = ConnectData::CNTLID_DYNAMIC;
            }
            queues.push(queue);
        }
        Ok(Self { queues })
    }

    /// Has a command answered on every queue, which shows that it is still connected.
    ///
    /// # Errors
    /// When one is not.
    pub(super) fn prove_alive(&mut self) -> Result<()> {
        for (index, queue) in self.queues.iter_mut().enumerate() {
            let command = match queue.id {
                0 => AdminCommand::KeepAlive.encode(CID),
                _ => IoCommand::Flush { nsid: 1 }.encode(CID),
            };
            queue
                .ask(command, &[])
                .with_context(|| format!("idle connection {} is gone", index + 1))?;
        }
        Ok(())
    }
}

impl Queue {
    /// Initializes a connection and connects a queue; its controller's CNTLID.
    fn connect(address: SocketAddr, subsystem: &Nqn, id: u16, cntlid: u16) -> Result<(Self, u16)> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut queue = Self { stream, id };
        queue.initialize()?;
        let connect = Connect {
            record_format: 0,
            queue_id: id,
            sq_size: if id == 0 { ADMIN_SQ_SIZE } else { IO_SQ_SIZE },
            attributes: ConnectAttributes::default(),
            keep_alive_timeout_ms: 0,
        };
        let host = Nqn::new(HOST_NQN).expect("a name of ours");
        let cntlid = if id == 0 {
            ConnectData::CNTLID_DYNAMIC
        } else {
            cntlid
        };
        let data = ConnectData::new(HOST_ID, cntlid, subsystem, &host).to_bytes();
        let mut command = connect.encode(CID);
        let length = u32::try_from(data.len()).expect("1,024 bytes");
        command.set_sgl(SglDescriptor::in_capsule(0, length));
        let completion = queue.ask(command, &data)?;
        let joined = ConnectResponse::from_dword(completion.dword0());
        Ok((queue, joined.cntlid))
    }

    /// ICReq and ICResp, without digests. `[NVMe-TCP 1.0 §3.1]`
    fn initialize(&mut self) -> Result<()> {
        let request = IcReq::PLAIN;
        self.stream.write_all(&request.to_bytes())?;
        let mut response = [0; IC_BYTES];
        self.stream.read_exact(&mut response)?;
        ensure!(
            response[0] == PduType::IcResp.code(),
            "the target answers ICReq with a PDU of type {:#04x}",
            response[0]
        );
        IcResp::parse(&response).context("the target's ICResp is malformed")?;
        Ok(())
    }

    /// Sets CC.EN, without which a controller has no I/O queues. `[NVMe Base 2.0 §3.5.2]`
    fn enable(&mut self) -> Result<()> {
        let set = PropertySet::configure(Configuration::ENABLE);
        self.ask(set.encode(CID), &[])
            .context("cannot enable a controller")?;
        Ok(())
    }

    /// Sends a command, with `data` in its capsule, and waits for its completion.
    fn ask(&mut self, command: Command, data: &[u8]) -> Result<Completion> {
        let mut pdu = [0; PREFIX_BYTES_MAX];
        let length = u32::try_from(data.len()).expect("in-capsule data is short");
        let header = CapsuleCmd { command }.encode(&PduFormat::PLAIN, length, &mut pdu);
        debug_assert_eq!(header, CAPSULE_CMD_BYTES, "no alignment was asked for");
        self.stream.write_all(&[&pdu[..header], data].concat())?;
        let mut response = [0; SHORT_HEADER_BYTES];
        self.stream.read_exact(&mut response)?;
        ensure!(
            response[0] == PduType::CapsuleResp.code(),
            "the target answers a command with a PDU of type {:#04x}",
            response[0]
        );
        let CapsuleResp { completion } = CapsuleResp::parse(&response);
        ensure!(
            completion.cid == CID && completion.status.is_success(),
            "the target refuses a command: {}",
            completion.status
        );
        Ok(completion)
    }
}
