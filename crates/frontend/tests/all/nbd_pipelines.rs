//! Requests that NBD clients pipeline: each client gets its share of the server's memory. A client
//! that receives no replies does not block other clients, and the server's memory for it is
//! bounded.

use crate::nbd_client::{Client, FLUSH, READ, WRITE};
use crate::nbd_servers::{BLOCK, BYTES, file_device, pattern, ram, serve};
use base::Nanos;
use block::layer::{Delay, DelayOptions};
use block::{Capabilities, Channel, Device, DeviceError, Geometry};
use reactor::Driver;
use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A device that accepts 4 KiB at a time.
#[derive(Debug)]
struct Small(Arc<dyn Device>);

impl Device for Small {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            max_transfer_bytes: 4096,
            ..self.0.capabilities()
        }
    }

    fn open(&self, driver: &mut dyn Driver) -> Result<Box<dyn Channel>, DeviceError> {
        self.0.open(driver)
    }
}

#[test]
fn a_deaf_client_holds_nobody_up() {
    let (_server, path) = serve(ram());
    let mut deaf = Client::simple(&path);
    deaf.stream.set_nonblocking(true).unwrap();
    let request = deaf.header(READ, 0, 1, 0, 1 << 20);
    let mut accepted = 0;
    for _ in 0..20_000 {
        match deaf.stream.write(&request) {
            Ok(bytes) if bytes == request.len() => accepted += 1,
            _ => break,
        }
    }
    assert!(accepted > 100, "the socket takes some: {accepted}");
    let mut client = Client::simple(&path);
    for round in 0..50 {
        let data = pattern(round, 1 << 20);
        assert_eq!(client.write(0, &data), 0);
        assert!(client.read(0, 1 << 20) == data);
    }
}

/// More requests than the limit, with no reply read meanwhile.
#[test]
fn a_long_pipeline_is_answered_in_full() {
    let (_server, path) = serve(ram());
    let mut client = Client::simple(&path);
    let mut sender = Client {
        stream: client.stream.try_clone().unwrap(),
        extended: false,
    };
    const REQUESTS: u64 = 5_000;
    let thread = std::thread::spawn(move || {
        for cookie in 0..REQUESTS {
            let offset = cookie * BLOCK % BYTES;
            if cookie % 2 == 0 {
                sender.send(WRITE, 0, cookie, (offset, BLOCK));
                sender.stream.write_all(&[7; 4096]).unwrap();
            } else {
                sender.send(READ, 0, cookie, (offset, BLOCK));
            }
        }
    });
    let mut seen = vec![false; usize::try_from(REQUESTS).unwrap()];
    for _ in 0..REQUESTS {
        let (error, cookie) = client.reply();
        assert_eq!(error, 0);
        if cookie % 2 == 1 {
            client.stream.read_exact(&mut [0; 4096]).unwrap();
        }
        let seen = &mut seen[usize::try_from(cookie).unwrap()];
        assert!(!std::mem::replace(seen, true), "{cookie} is answered once");
    }
    thread.join().unwrap();
}

/// One send with more requests than the limit, and nothing after it that would trigger the server
/// again.
#[test]
fn requests_that_came_at_once_are_all_answered() {
    let (_server, path) = serve(ram());
    let mut client = Client::simple(&path);
    let flushes: Vec<u8> = (0..1000)
        .flat_map(|cookie| client.header(FLUSH, 0, cookie, 0, 0))
        .collect();
    client.stream.write_all(&flushes).unwrap();
    for _ in 0..1000 {
        assert_eq!(client.reply().0, 0);
    }
    // As many options, whose replies do not fit in one send.
    let mut client = Client::greet(&path);
    let list = b"IHAVEOPT\0\0\0\x03\0\0\0\0".repeat(200);
    client.stream.write_all(&list).unwrap();
    for _ in 0..200 {
        while client.option_reply() != 1 {}
    }
}

/// The data of a write arrives while the limit of outstanding requests is reached.
#[test]
fn a_write_that_began_in_time_finds_room() {
    let delays = DelayOptions {
        read: Nanos::from_secs(3),
        ..DelayOptions::default()
    };
    let (_server, path) = serve(Arc::new(Delay::new(ram(), delays)));
    let mut writer = Client::simple(&path);
    writer.send(WRITE, 0, 1, (0, BLOCK));
    let mut others: Vec<_> = (0..17).map(|_| Client::simple(&path)).collect();
    for client in &mut others {
        let reads = client.header(READ, 0, 2, 0, BLOCK).repeat(256);
        client.stream.write_all(&reads).unwrap();
    }
    std::thread::sleep(Duration::from_millis(500));
    writer.stream.write_all(&[7; 4096]).unwrap();
    assert_eq!(writer.reply(), (0, 1));
    for client in &mut others {
        for _ in 0..256 {
            assert_eq!(client.reply(), (0, 2));
            client.stream.read_exact(&mut [0; 4096]).unwrap();
        }
    }
}

/// Four clients hold all large buffers: two do not receive their replies, and two do not send the
/// data of their writes.
#[test]
fn deaf_clients_give_their_memory_to_one_that_waits() {
    let (device, file) = file_device();
    let (_server, path) = serve(device);
    let _deaf = [READ, WRITE, READ, WRITE].map(|command| {
        let mut deaf = Client::simple(&path);
        deaf.send(command, 0, 1, (0, 32 << 20));
        // Read and partly sent, or partly received: the memory is in use.
        if command == READ {
            assert_eq!(deaf.reply(), (0, 1));
        } else {
            deaf.stream.write_all(&[1; 1 << 20]).unwrap();
        }
        deaf
    });
    let mut client = Client::simple(&path);
    // Clients that do not receive are reset later, for their own timeout.
    let patience = Some(Duration::from_secs(40));
    client.stream.set_read_timeout(patience).unwrap();
    assert!(client.read(40 << 20, 1 << 20) == [0; 1 << 20]);
    std::fs::remove_file(&file).unwrap();
}

/// A client that needs few buffers must not wait until clients that hold all buffers of a core are
/// reset, one after the other.
#[test]
fn a_client_with_small_requests_waits_for_no_memory_of_others() {
    // Pieces of 4 KiB, so that all buffers are in use, including the small ones.
    const PIECES_MAX: u64 = 512;
    let buffers = reactor::uring::Options::default().buffers;
    let (_server, path) = serve(Arc::new(Small(ram())));
    let mut greedy = Vec::new();
    for class in buffers {
        let mut pieces = class.count as u64;
        while pieces > 0 {
            let taken = pieces.min(PIECES_MAX);
            let mut client = Client::simple(&path);
            client.send(WRITE, 0, 1, (BYTES / 2, taken * BLOCK));
            // The socket buffer is too small for it: the server has read it into its memory.
            let data = vec![1; usize::try_from(taken * BLOCK - 1).unwrap()];
            client.stream.write_all(&data).unwrap();
            greedy.push(client);
            pieces -= taken;
        }
    }
    let mut client = Client::simple(&path);
    for round in 0..50 {
        let data = pattern(round, 4096);
        assert_eq!(client.write(u64::from(round) * BLOCK, &data), 0);
        let read = client.read(0, 65536);
        assert!(read[usize::from(round % 16) * 4096..][..4096] == pattern(round % 16, 4096));
    }
    // As many concurrent requests as the reserve has buffers, and more.
    let mut all = Vec::new();
    for cookie in 0..40 {
        all.extend(client.header(WRITE, 0, cookie, cookie * BLOCK, BLOCK));
        all.extend(pattern(7, 4096));
    }
    client.stream.write_all(&all).unwrap();
    (0..40).for_each(|_| assert_eq!(client.reply().0, 0));
    // None of the other clients was reset for crowding it out.
    for client in &mut greedy {
        client.stream.write_all(&[1]).unwrap();
        assert_eq!(client.reply(), (0, 1));
    }
}

/// A request that needs many buffers must not starve while requests that need one take each buffer
/// that becomes free.
#[test]
fn a_large_request_is_served_beside_clients_that_keep_all_buffers_busy() {
    const NEIGHBOURS: usize = 6;
    const DEPTH: u64 = 32;
    let (device, file) = file_device();
    let options = DelayOptions {
        read_per_kib: Nanos::from_millis(1),
        ..DelayOptions::default()
    };
    let (_server, path) = serve(Arc::new(Delay::new(device, options)));
    let goes_on = AtomicBool::new(true);
    std::thread::scope(|scope| {
        for neighbour in 0..NEIGHBOURS {
            let (path, goes_on) = (&path, &goes_on);
            scope.spawn(move || {
                let mut client = Client::simple(path);
                // Different sizes, so that they do not end together.
                let bytes =
                    |cookie: u64| (128 << 10) + 4096 * (1 + (cookie + neighbour as u64) % 32);
                (0..DEPTH).for_each(|cookie| client.send(READ, 0, cookie, (0, bytes(cookie))));
                let mut under_way = DEPTH;
                while under_way > 0 {
                    let (error, cookie) = client.reply();
                    assert_eq!(error, 0);
                    let mut data = vec![0; usize::try_from(bytes(cookie)).unwrap()];
                    client.stream.read_exact(&mut data).unwrap();
                    under_way -= 1;
                    if goes_on.load(Ordering::Relaxed) {
                        client.send(READ, 0, cookie + DEPTH, (0, bytes(cookie + DEPTH)));
                        under_way += 1;
                    }
                }
            });
        }
        let mut client = Client::simple(&path);
        let patience = Some(Duration::from_secs(20));
        client.stream.set_read_timeout(patience).unwrap();
        for _ in 0..2 {
            client.send(READ, 0, 1, (0, 32 << 20));
            let mut reply = vec![0; 16 + (32 << 20)];
            let answered = client.stream.read_exact(&mut reply);
            if answered.is_err() {
                goes_on.store(false, Ordering::Relaxed);
            }
            answered.expect("it is answered while the others go on");
            std::thread::sleep(Duration::from_millis(100));
        }
        goes_on.store(false, Ordering::Relaxed);
    });
    std::fs::remove_file(&file).unwrap();
}
