//! Clients of the NBD server, over its socket.

use arbitrary::{Result, Unstructured};
use block::device::Ram;
use block::{Device, Folder};
use frontend::ClassRules;
use frontend::nbd::{Address, NbdOptions, NbdServer};
use reactor::PollPolicy;
use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use switch::{Class, PerClass};

/// Size of the device in bytes.
const BYTES: u64 = 1 << 20;

/// Longer inputs are not tried.
const INPUT_BYTES_MAX: usize = 64 * 1024;

/// Longer than anything takes that works.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server for all inputs of a thread; the device is read-only and zero.
struct Served {
    path: PathBuf,
    // Ends before its folder.
    _server: NbdServer,
    _folder: Folder,
}

impl Served {
    fn start() -> Self {
        let folder = Folder::new();
        let path = folder.path().join("nbd.sock");
        let device: Arc<dyn Device> = Arc::new(Ram::new(BYTES, 512).expect("memory"));
        let devices = PerClass::from_fn(|_| Arc::clone(&device));
        let options = NbdOptions {
            address: Address::Unix(path.clone()),
            class: Class::Throughput,
            rules: ClassRules::default(),
            tls: None,
            read_only: true,
            cores: Vec::new(),
            poll: PollPolicy::Never,
        };
        let server = NbdServer::start(&devices, &options).expect("a free path");
        Self {
            path,
            _server: server,
            _folder: folder,
        }
    }
}

thread_local! {
    static SERVED: Served = Served::start();
}

/// A client that says whatever the input makes of it: the server answers or closes, and serves the
/// next client as before.
pub fn nbd(input: &[u8]) {
    let input = &input[..input.len().min(INPUT_BYTES_MAX)];
    let path = SERVED.with(|served| served.path.clone());
    let connect = || {
        let stream = UnixStream::connect(&path).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time");
        stream
    };
    let mut stream = connect();
    let bytes = said(&mut Unstructured::new(input)).unwrap_or_default();
    let mut taker = stream.try_clone().expect("a descriptor");
    // The server may wait for its answers to be taken.
    let takes = std::thread::spawn(move || io::copy(&mut taker, &mut io::sink()));
    // It may close at any time.
    let _ = stream.write_all(&bytes);
    let _ = stream.shutdown(Shutdown::Write);
    let taken = takes.join().expect("it only reads");
    let waited = taken.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
    assert!(!waited, "the server neither answers nor closes");
    is_served(&mut connect());
}

/// An ordinary client reads zeroes.
fn is_served(stream: &mut UnixStream) {
    let mut hello = vec![0, 0, 0, 3];
    hello.extend(option(7, &[0; 6]));
    hello.extend(request(0, 0, 77, 0, 4096, false));
    stream.write_all(&hello).expect("the server takes it");
    // Greeting, information about the export and its block sizes, acknowledgement, reply, data.
    let mut answer = [0; 18 + (20 + 12) + (20 + 14) + 20 + 16 + 4096];
    stream.read_exact(&mut answer).expect("the server answers");
    let data = &answer[answer.len() - 4096..];
    assert!(
        data.iter().all(|&byte| byte == 0),
        "a read-only device changed"
    );
}

#[allow(clippy::big_endian_bytes)]
fn option(number: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = b"IHAVEOPT".to_vec();
    bytes.extend(number.to_be_bytes());
    let len = u32::try_from(data.len()).expect("bounded by the input");
    bytes.extend(len.to_be_bytes());
    bytes.extend(data);
    bytes
}

#[allow(clippy::big_endian_bytes, clippy::cast_possible_truncation)]
fn request(flags: u16, command: u16, cookie: u64, offset: u64, len: u64, long: bool) -> Vec<u8> {
    let magic: u32 = if long { 0x21e4_1c71 } else { 0x2560_9513 };
    let mut bytes = magic.to_be_bytes().to_vec();
    bytes.extend(flags.to_be_bytes());
    bytes.extend(command.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    if long {
        bytes.extend(len.to_be_bytes());
    } else {
        bytes.extend((len as u32).to_be_bytes());
    }
    bytes
}

/// Makes the words of a client: mostly well-formed, so that they get far.
fn said(input: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let mut bytes = if input.ratio(1, 20)? {
        input.bytes(4.min(input.len()))?.to_vec()
    } else {
        vec![0, 0, 0, 2 * input.int_in_range(0..=1)? + 1]
    };
    for _ in 0..input.int_in_range(0..=3)? {
        let number = input.int_in_range(0..=12)?;
        let len = input.int_in_range(0..=40)?;
        bytes.extend(option(number, input.bytes(len)?));
    }
    let long = input.ratio(1, 2)?;
    let negotiated: &[u32] = if long { &[11] } else { &[8] };
    if input.ratio(2, 3)? {
        bytes.extend(option(negotiated[0], &[]));
        bytes.extend(option(10, b"\0\0\0\0\0\0\0\x01\0\0\0\x0fbase:allocation"));
    }
    bytes.extend(option(7, &[0; 6]));
    while !input.is_empty() {
        if input.ratio(1, 30)? {
            let len = input.int_in_range(0..=40)?;
            bytes.extend(input.bytes(len)?);
            continue;
        }
        let command = input.int_in_range(0..=9)?;
        let flags = if input.ratio(1, 4)? {
            input.arbitrary()?
        } else {
            0
        };
        let near = input.ratio(3, 4)?;
        let (mut offset, mut len): (u64, u64) = input.arbitrary()?;
        if near {
            (offset, len) = (offset % 4096 * 512, len % 64 * 512);
        }
        bytes.extend(request(
            flags,
            command,
            input.arbitrary()?,
            offset,
            len,
            long,
        ));
        if command == 1 && len < 65_536 {
            bytes.resize(bytes.len() + usize::try_from(len).expect("short"), 0xaa);
        }
    }
    Ok(bytes)
}
