//! As much of NBD as a read and a write take: the fixed newstyle handshake, and simple replies.
//! (The NBD project's `doc/proto.md`.)

use super::Remote;
use super::connection::{Connection, Wait, u32_at, u64_at};
use anyhow::{Result, bail, ensure};
use std::net::SocketAddr;

const GREETING: u64 = u64::from_be_bytes(*b"NBDMAGIC");
const OPTION: u64 = u64::from_be_bytes(*b"IHAVEOPT");
const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
const REQUEST: u32 = 0x2560_9513;
const SIMPLE_REPLY: u32 = 0x6744_6698;

/// Fixed newstyle, without zeroes behind the export.
const CLIENT_FLAGS: u32 = 0b11;
const OPTION_GO: u32 = 7;
const REPLY_ACK: u32 = 1;
const REPLY_INFO: u32 = 3;
const INFO_EXPORT: u16 = 0;

const READ: u16 = 0;
const WRITE: u16 = 1;

/// Most bytes of one reply of the handshake: much more than any takes.
const REPLY_BYTES_MAX: u32 = 4096;

/// A client of an NBD server's default export.
#[derive(Debug)]
pub struct Nbd {
    connection: Connection,
    size: u64,
    cookie: u64,
    message: Vec<u8>,
}

impl Nbd {
    /// Connects.
    ///
    /// # Errors
    /// When the server does not answer, or is none of NBD.
    pub fn connect(address: SocketAddr, wait: Wait) -> Result<Self> {
        let mut connection = Connection::open(address, wait)?;
        let mut greeting = [0; 18];
        connection.receive(&mut greeting)?;
        ensure!(
            u64_at(&greeting, 0) == GREETING && u64_at(&greeting, 8) == OPTION,
            "the server does not speak NBD, or an old form of it"
        );
        let mut go = CLIENT_FLAGS.to_be_bytes().to_vec();
        go.extend(OPTION.to_be_bytes());
        go.extend(OPTION_GO.to_be_bytes());
        // The default export's name is empty, and nothing else is asked.
        go.extend(6_u32.to_be_bytes());
        go.extend([0; 6]);
        connection.send(&go)?;
        let mut size = None;
        loop {
            let mut reply = [0; 20];
            connection.receive(&mut reply)?;
            ensure!(u64_at(&reply, 0) == OPTION_REPLY, "a malformed reply");
            let length = u32_at(&reply, 16);
            ensure!(length <= REPLY_BYTES_MAX, "a reply of {length} bytes");
            let mut data = vec![0; length as usize];
            connection.receive(&mut data)?;
            match u32_at(&reply, 12) {
                REPLY_ACK => break,
                REPLY_INFO if data.len() >= 10 && data[..2] == INFO_EXPORT.to_be_bytes() => {
                    size = Some(u64_at(&data, 2));
                }
                REPLY_INFO => {}
                other => bail!("the server refuses its export: {other:#x}"),
            }
        }
        let Some(size) = size else {
            bail!("the server does not say how large its export is");
        };
        Ok(Self {
            connection,
            size,
            cookie: 0,
            message: Vec::new(),
        })
    }

    /// Bytes of the export.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Sends a request, and receives the head of its reply.
    fn ask(&mut self, kind: u16, offset: u64, length: usize, data: &[u8]) -> Result<()> {
        self.cookie += 1;
        let length = u32::try_from(length)?;
        self.message.clear();
        self.message.extend(REQUEST.to_be_bytes());
        self.message.extend(0_u16.to_be_bytes());
        self.message.extend(kind.to_be_bytes());
        self.message.extend(self.cookie.to_be_bytes());
        self.message.extend(offset.to_be_bytes());
        self.message.extend(length.to_be_bytes());
        self.message.extend(data);
        self.connection.send(&self.message)?;
        let mut reply = [0; 16];
        self.connection.receive(&mut reply)?;
        ensure!(
            u32_at(&reply, 0) == SIMPLE_REPLY && u64_at(&reply, 8) == self.cookie,
            "a malformed reply, or one to another request"
        );
        let error = u32_at(&reply, 4);
        ensure!(error == 0, "the server answers with error {error}");
        Ok(())
    }
}

impl Remote for Nbd {
    fn read(&mut self, offset: u64, data: &mut [u8]) -> Result<()> {
        self.ask(READ, offset, data.len(), &[])?;
        self.connection.receive(data)
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> Result<()> {
        self.ask(WRITE, offset, data.len(), data)
    }
}
