//! A scripted host over a blocking TCP socket.

use crate::{Dialect, Pdu, Session, connect, connect_data, enable};
use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
use std::io::{IoSliceMut, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd as _;
use std::time::{Duration, SystemTime};
use wire::fabrics::{Connect, ConnectData};
use wire::nvme::{Command, Completion, DISCOVERY_NQN, Status};
use wire::tcp::PduHeader;
use wire::tcp::c2h_data::C2hProgress;

/// Longer than any response of a working target takes.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A TCP connection, without ICReq. Its reads and writes fail after [`PATIENCE`].
///
/// # Errors
/// The kernel's error.
pub fn dial(address: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// The host's end of a connection.
#[derive(Debug)]
pub struct Client {
    /// The socket.
    pub stream: TcpStream,
    /// Format, identifiers, and received bytes.
    pub session: Session,
    /// Time at which the kernel received the last packet that was read, if
    /// [`Client::report_arrivals`] is on.
    pub arrived: Option<SystemTime>,
    buffer: Vec<u8>,
}

/// HOSTID of a host: a hash of its NQN, and never zero.
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
    /// Connects and initialises a connection.
    ///
    /// # Errors
    /// The target does not answer with ICResp.
    pub fn open(address: SocketAddr, dialect: Dialect) -> Result<Self> {
        let mut client = Self {
            stream: dial(address)?,
            session: Session::new(dialect),
            arrived: None,
            buffer: vec![0; 64 << 10],
        };
        client.send(&dialect.ic_req())?;
        match client.receive()?.header {
            PduHeader::IcResp(_) => Ok(client),
            other => bail!("{other:?} instead of ICResp"),
        }
    }

    /// Connects the admin queue of a new discovery controller, with this number of entries.
    ///
    /// # Errors
    /// The target refuses it, or does not answer.
    pub fn discovery(address: SocketAddr, host: &str, entries: u16) -> Result<Self> {
        let mut client = Self::open(address, Dialect::default())?;
        let ids = (ConnectData::CNTLID_DYNAMIC, 0);
        client.join(DISCOVERY_NQN, host, ids, entries, 0)?;
        Ok(client)
    }

    /// Connects the admin queue of a new controller of `subsystem`, and enables the controller.
    /// Returns the queue and the controller's identifier.
    ///
    /// # Errors
    /// The target refuses it, or does not answer.
    pub fn admin(address: SocketAddr, subsystem: &str, host: &str) -> Result<(Self, u16)> {
        let mut client = Self::open(address, Dialect::default())?;
        let dynamic = ConnectData::CNTLID_DYNAMIC;
        let completion = client.join(subsystem, host, (dynamic, 0), 32, 0)?;
        client.succeed(enable(), &[])?;
        let id = completion.dword0() & 0xffff;
        Ok((client, u16::try_from(id).expect("16 bits")))
    }

    /// Connects a queue of an existing controller, by their identifiers, with this number of
    /// entries and this priority class.
    ///
    /// # Errors
    /// The target refuses it, or does not answer.
    pub fn join(
        &mut self,
        subsystem: &str,
        host: &str,
        (controller, queue_id): (u16, u16),
        entries: u16,
        priority: u8,
    ) -> Result<Completion> {
        let mut connect = connect(queue_id, entries - 1, 0);
        connect.attributes = connect.attributes.with_priority_class(priority);
        let data = connect_data(subsystem, host, host_id(host), controller);
        self.succeed(connect.encode(0), &data.to_bytes())
    }

    /// Sends Connect, and returns its completion.
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    pub fn connect(&mut self, connect: &Connect, data: &ConnectData) -> Result<Completion> {
        self.execute(connect.encode(0), &data.to_bytes())
    }

    /// Enables receive time stamps of the kernel, which do not depend on when the thread runs.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn report_arrivals(&self) -> Result<()> {
        Ok(setsockopt(
            &self.stream,
            sockopt::ReceiveTimestampns,
            &true,
        )?)
    }

    /// Reads the available bytes. Returns their number.
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

    /// Sends bytes unchanged.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn send(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.stream.write_all(bytes)?)
    }

    /// Sends a command with data in its capsule, and returns its completion.
    ///
    /// # Errors
    /// The target does not answer, or completes a different command.
    pub fn execute(&mut self, command: Command, data: &[u8]) -> Result<Completion> {
        let (bytes, cid) = self.session.command(command, data);
        self.send(&bytes)?;
        let (completion, _) = self.answer()?;
        ensure!(completion.cid == cid, "an answer to another command");
        Ok(completion)
    }

    /// Executes a command that must succeed.
    ///
    /// # Errors
    /// As [`execute`](Self::execute), or the command fails.
    pub fn succeed(&mut self, command: Command, data: &[u8]) -> Result<Completion> {
        let completion = self.execute(command, data)?;
        ensure!(completion.status.is_success(), "{}", completion.status);
        Ok(completion)
    }

    /// Returns the next completion, with the data that preceded it.
    ///
    /// # Errors
    /// The target sends a different PDU, or nothing, or closes the connection; or parts of the data
    /// belong to a different command or offset.
    pub fn answer(&mut self) -> Result<(Completion, Vec<u8>)> {
        let mut of = None;
        let mut all = Vec::new();
        loop {
            let Pdu { header, data, .. } = self.receive()?;
            match header {
                PduHeader::C2hData(c2h) => {
                    let cid = *of.get_or_insert(c2h.command_id);
                    ensure!(
                        c2h.command_id == cid && c2h.data_offset as usize == all.len(),
                        "data out of order: {c2h:?}"
                    );
                    all.extend_from_slice(&data);
                    if c2h.progress == C2hProgress::LastAndSuccess {
                        return Ok((Completion::new(cid, 0, Status::SUCCESS), all));
                    }
                }
                PduHeader::CapsuleResp(response) => return Ok((response.completion, all)),
                other => bail!("the target sent {other:?}"),
            }
        }
    }

    /// Returns the next PDU.
    ///
    /// # Errors
    /// The target sends no valid PDU, or closes the connection.
    pub fn receive(&mut self) -> Result<Pdu> {
        let pdu = self.next_pdu()?;
        pdu.context("the target closed the connection")
    }

    /// Returns the next PDU; `None` if the target closed the connection.
    ///
    /// # Errors
    /// The target sends nothing, an invalid PDU, or a wrong data digest.
    pub fn next_pdu(&mut self) -> Result<Option<Pdu>> {
        loop {
            if let Some(pdu) = self.session.next_pdu()? {
                ensure!(pdu.digest_ok, "the data digest of {:?}", pdu.header);
                return Ok(Some(pdu));
            }
            let count = match self.read() {
                Err(error) if is_reset(&error) => 0,
                other => other?,
            };
            if count == 0 {
                return Ok(None);
            }
            self.session.inward.feed(&self.buffer[..count]);
        }
    }
}

fn is_reset(error: &anyhow::Error) -> bool {
    error.downcast_ref() == Some(&nix::errno::Errno::ECONNRESET)
}
