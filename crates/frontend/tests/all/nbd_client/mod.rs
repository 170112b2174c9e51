//! A hand-written client of the NBD server, which can also send invalid requests.
#![allow(clippy::unwrap_used, clippy::big_endian_bytes)] // What fails here fails the test.
#![allow(dead_code)] // No test uses all of it.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

pub(crate) const READ: u16 = 0;
pub(crate) const WRITE: u16 = 1;
pub(crate) const DISCONNECT: u16 = 2;
pub(crate) const FLUSH: u16 = 3;
pub(crate) const TRIM: u16 = 4;
pub(crate) const WRITE_ZEROES: u16 = 6;
pub(crate) const BLOCK_STATUS: u16 = 7;

/// A hand-written client.
pub(crate) struct Client {
    pub(crate) stream: UnixStream,
    pub(crate) extended: bool,
}

impl Client {
    pub(crate) fn greet(path: &Path) -> Self {
        let mut stream = UnixStream::connect(path).unwrap();
        // Longer than any operation that works.
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).unwrap();
        stream.write_all(&3_u32.to_be_bytes()).unwrap();
        Self {
            stream,
            extended: false,
        }
    }

    /// Receives one reply to an option; returns its type.
    pub(crate) fn option_reply(&mut self) -> u32 {
        let mut header = [0; 20];
        self.stream.read_exact(&mut header).unwrap();
        let len = u32::from_be_bytes(header[16..].try_into().unwrap());
        let mut data = vec![0; len as usize];
        self.stream.read_exact(&mut data).unwrap();
        u32::from_be_bytes(header[12..16].try_into().unwrap())
    }

    /// Sends an option; returns the types of its replies.
    pub(crate) fn option(&mut self, number: u32, data: &[u8]) -> Vec<u32> {
        let mut bytes = b"IHAVEOPT".to_vec();
        bytes.extend(number.to_be_bytes());
        bytes.extend(u32::try_from(data.len()).unwrap().to_be_bytes());
        bytes.extend(data);
        self.stream.write_all(&bytes).unwrap();
        let mut kinds = Vec::new();
        loop {
            let kind = self.option_reply();
            kinds.push(kind);
            if kind == 1 || kind >= 1 << 31 {
                return kinds;
            }
        }
    }

    /// A client of the default export with simple replies.
    pub(crate) fn simple(path: &Path) -> Self {
        let mut client = Self::greet(path);
        assert_eq!(client.option(7, &[0; 6]).last(), Some(&1));
        client
    }

    /// A client of the default export with extended headers and the context `base:allocation`.
    pub(crate) fn extended(path: &Path) -> Self {
        let mut client = Self::greet(path);
        assert_eq!(client.option(11, &[]), [1]);
        let query = b"\0\0\0\0\0\0\0\x01\0\0\0\x0fbase:allocation";
        assert_eq!(client.option(10, query), [4, 1]);
        assert_eq!(client.option(7, &[0; 6]).last(), Some(&1));
        client.extended = true;
        client
    }

    pub(crate) fn header(
        &self,
        command: u16,
        flags: u16,
        cookie: u64,
        offset: u64,
        length: u64,
    ) -> Vec<u8> {
        let magic: u32 = if self.extended {
            0x21e4_1c71
        } else {
            0x2560_9513
        };
        let mut bytes = magic.to_be_bytes().to_vec();
        bytes.extend(flags.to_be_bytes());
        bytes.extend(command.to_be_bytes());
        bytes.extend(cookie.to_be_bytes());
        bytes.extend(offset.to_be_bytes());
        if self.extended {
            bytes.extend(length.to_be_bytes());
        } else {
            bytes.extend(u32::try_from(length).unwrap().to_be_bytes());
        }
        bytes
    }

    pub(crate) fn send(
        &mut self,
        command: u16,
        flags: u16,
        cookie: u64,
        (offset, length): (u64, u64),
    ) {
        let bytes = self.header(command, flags, cookie, offset, length);
        self.stream.write_all(&bytes).unwrap();
    }

    /// Receives the next simple reply: error and cookie.
    pub(crate) fn reply(&mut self) -> (u32, u64) {
        let mut bytes = [0; 16];
        self.stream.read_exact(&mut bytes).unwrap();
        assert_eq!(bytes[..4], 0x6744_6698_u32.to_be_bytes());
        (
            u32::from_be_bytes(bytes[4..8].try_into().unwrap()),
            u64::from_be_bytes(bytes[8..].try_into().unwrap()),
        )
    }

    /// Receives the next chunk with extended headers: type, cookie, payload.
    pub(crate) fn chunk(&mut self) -> (u16, u64, Vec<u8>) {
        let mut bytes = [0; 32];
        self.stream.read_exact(&mut bytes).unwrap();
        assert_eq!(bytes[..4], 0x6e8a_278c_u32.to_be_bytes());
        assert_eq!(bytes[4..6], [0, 1], "one chunk each");
        let kind = u16::from_be_bytes(bytes[6..8].try_into().unwrap());
        let cookie = u64::from_be_bytes(bytes[8..16].try_into().unwrap());
        let len = u64::from_be_bytes(bytes[24..].try_into().unwrap());
        let mut payload = vec![0; usize::try_from(len).unwrap()];
        self.stream.read_exact(&mut payload).unwrap();
        (kind, cookie, payload)
    }

    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) -> u32 {
        self.send(WRITE, 0, 1, (offset, data.len() as u64));
        self.stream.write_all(data).unwrap();
        self.reply().0
    }

    pub(crate) fn read(&mut self, offset: u64, length: usize) -> Vec<u8> {
        self.send(READ, 0, 2, (offset, length as u64));
        assert_eq!(self.reply(), (0, 2));
        let mut data = vec![0; length];
        self.stream.read_exact(&mut data).unwrap();
        data
    }

    pub(crate) fn error(&mut self, command: u16, range: (u64, u64)) -> u32 {
        self.send(command, 0, 3, range);
        let (error, cookie) = self.reply();
        assert_eq!(cookie, 3);
        error
    }

    /// Waits until the server closes the connection.
    pub(crate) fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => true,
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        }
    }
}
