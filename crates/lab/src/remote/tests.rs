//! Clients against servers: real ones where there are such, and peers that lie.

use super::*;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;

/// A file of random content.
struct Disk(PathBuf);

impl Disk {
    const BYTES: u64 = 1 << 20;

    fn new(name: &str) -> Self {
        let path = block::temporary(name);
        let mut content = vec![0; 1 << 20];
        Prng::from_seed(9).fill(&mut content);
        std::fs::write(&path, content).unwrap();
        Self(path)
    }
}

fn load(writes: bool, seed: u64) -> OneByOne {
    OneByOne {
        writes,
        bytes: 4096,
        device_bytes: Disk::BYTES,
        warmup: Duration::from_millis(5),
        measured: Duration::from_millis(40),
        seed,
    }
}

/// Reads what is in the file, writes to it, and measures real requests.
fn check(remote: &mut dyn Remote, disk: &Disk, seed: u64) {
    let content = std::fs::read(&disk.0).unwrap();
    let mut data = vec![0; 4096];
    remote.read(8192, &mut data).unwrap();
    assert_eq!(data, content[8192..12_288]);
    remote.write(4096, &[7; 4096]).unwrap();
    remote.read(4096, &mut data).unwrap();
    assert_eq!(data, [7; 4096]);
    for writes in [false, true] {
        let (per_second, latency) = load(writes, seed).run(remote).unwrap();
        assert!(per_second > 0.0 && latency.avg > 0.0);
        assert!(latency.p50 <= latency.p95 && latency.p95 <= latency.max);
    }
    let now = std::fs::read(&disk.0).unwrap();
    let chunks = content.chunks(4096).zip(now.chunks(4096));
    let changed = chunks.filter(|(before, now)| before != now).count();
    assert!(changed > 1, "random writes have written nothing");
}

#[test]
fn the_plain_server_serves_its_file_to_clients_that_sleep_or_poll() {
    let disk = Disk::new("plain");
    let server = PlainServer::start(&disk.0, None).unwrap();
    for (wait, seed) in [(Wait::Sleeps, 3), (Wait::Polls, 4)] {
        let mut client = Plain::connect(server.address(), wait).unwrap();
        check(&mut client, &disk, seed);
        // Beyond the end there is nothing, and the connection lives on.
        let mut data = [0; 4096];
        let beyond = client.read(Disk::BYTES, &mut data).unwrap_err();
        assert!(beyond.to_string().contains("file fails"), "{beyond}");
        client.read(0, &mut data).unwrap();
    }
}

#[test]
fn the_plain_server_closes_a_connection_that_sends_nonsense() {
    let disk = Disk::new("nonsense");
    let server = PlainServer::start(&disk.0, None).unwrap();
    let mut stream = std::net::TcpStream::connect(server.address()).unwrap();
    stream.write_all(&[0xff; 64]).unwrap();
    let mut answer = Vec::new();
    // Closed, or reset, as something was left unread.
    let closed = stream.read_to_end(&mut answer);
    assert!(closed.is_err() || answer.is_empty());
    Plain::connect(server.address(), Wait::Sleeps)
        .unwrap()
        .read(0, &mut [0; 512])
        .unwrap();
}

/// A peer that says this, whatever it hears.
fn liar(says: Vec<u8>) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.write_all(&says);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    });
    address
}

#[test]
fn servers_that_do_not_keep_to_their_protocol_are_refused() {
    let nbd = |says| {
        Nbd::connect(liar(says), Wait::Sleeps)
            .unwrap_err()
            .to_string()
    };
    let closed = nbd(Vec::new());
    assert!(closed.contains("does not answer"), "{closed}");
    let other = nbd(vec![0; 18]);
    assert!(other.contains("does not speak NBD"), "{other}");
    let mut long = b"NBDMAGICIHAVEOPT\0\x03".to_vec();
    long.extend(0x0003_e889_0455_65a9_u64.to_be_bytes());
    long.extend([0, 0, 0, 7, 0, 0, 0, 3, 0xff, 0xff, 0xff, 0xff]);
    let long = nbd(long);
    assert!(long.contains("4294967295 bytes"), "{long}");

    let iscsi = |says| {
        let connected = Iscsi::connect(liar(says), "iqn.x", 1, Wait::Sleeps);
        connected.unwrap_err().to_string()
    };
    let other = iscsi(vec![0; 48]);
    assert!(other.contains("answered with 0x00"), "{other}");
    let mut refused = vec![0; 48];
    refused[0] = 0x23;
    refused[36] = 2;
    let refused = iscsi(refused);
    assert!(refused.contains("refuses the login"), "{refused}");
}
