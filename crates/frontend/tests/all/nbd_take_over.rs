//! Servers that take each other over: connections, requests that have arrived in part, and failures.

use crate::closed_gate::gated;
use crate::forgetful::Forgetful;
use crate::nbd_client::{Client, FLUSH, WRITE};
use crate::nbd_servers::{BYTES, options, pattern, ram, serve};
use block::Device;
use block::device::Ram;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};
use switch::PerClass;
use switchyard_frontend::TakenSocket;
use switchyard_frontend::nbd::NbdServer;

/// Longer than any pause that works.
fn patience() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

/// Starts a successor of `server`, which serves when this returns.
fn take_over(server: &mut NbdServer, device: &Arc<dyn Device>, path: &Path) -> NbdServer {
    let devices = PerClass::from_fn(|_| Arc::clone(device));
    let (socket, origin) = server.share_socket().unwrap();
    let taken = TakenSocket::new(socket, origin);
    let mut next = NbdServer::prepare(&devices, &options(path), Some(taken)).unwrap();
    let handed = server.pause(patience()).unwrap();
    next.resume(handed).unwrap();
    next
}

/// Cuts a request with its data at every place that matters, and sends a piece before each take-over.
#[test]
fn clients_continue_in_the_middle_of_a_request() {
    let device = ram();
    let (mut server, path) = serve(Arc::clone(&device));
    let data = pattern(7, 1 << 20);
    let mut idle = Client::simple(&path);
    assert_eq!(idle.write(0, &pattern(1, 8192)), 0);
    let mut simple = Client::simple(&path);
    let mut extended = Client::extended(&path);
    let mut late = Client::greet(&path);
    let request = |client: &Client, flags, offset| {
        let length = data.len() as u64;
        let header = client.header(WRITE, flags, 9, offset, length);
        [&header, &*data].concat()
    };
    let requests = [
        request(&simple, 0, 1 << 20),
        request(&extended, 1 << 5, 2 << 20),
    ];
    // Parts of a header, of small and of large data, and the rest.
    let cuts = [10, 28, 40, 5000, 600_000, 1 << 20];
    let option = [&b"IHAVEOPT\0\0\0\x07\0\0\0\x06"[..], &[0; 6]].concat();
    let mut from = 0;
    for (round, &to) in cuts.iter().enumerate() {
        simple.stream.write_all(&requests[0][from..to]).unwrap();
        extended.stream.write_all(&requests[1][from..to]).unwrap();
        let part = &option[round * 3..round * 3 + 3];
        late.stream.write_all(part).unwrap();
        from = to;
        // Later than these bytes.
        assert_eq!(idle.read(0, 8192), pattern(1, 8192), "round {round}");
        server = take_over(&mut server, &device, &path);
        assert_eq!(server.connections(), 4, "round {round}");
    }
    simple.stream.write_all(&requests[0][from..]).unwrap();
    extended.stream.write_all(&requests[1][from..]).unwrap();
    late.stream.write_all(&option[18..]).unwrap();
    assert_eq!(simple.reply(), (0, 9));
    assert_eq!(extended.chunk().1, 9);
    while late.option_reply() != 1 {}
    assert!(late.read(1 << 20, data.len()) == data);
    assert!(late.read(2 << 20, data.len()) == data);
    // A client that connects only now, and the end.
    assert_eq!(Client::simple(&path).read(0, 8192), pattern(1, 8192));
    server.detach();
    assert!(!server.was_forced());
    assert!(!path.exists(), "the socket is removed");
}

#[test]
fn a_pause_that_fails_disconnects_nobody() {
    let (device, gate) = gated(&ram());
    let (mut server, path) = serve(Arc::clone(&device));
    let mut slow = Client::simple(&path);
    let mut half = Client::simple(&path);
    let request = half.header(WRITE, 0, 4, 8192, 4096);
    half.stream.write_all(&request).unwrap();
    half.stream.write_all(&[5; 1000]).unwrap();
    slow.send(WRITE, 0, 3, (0, 4096));
    slow.stream.write_all(&[7; 4096]).unwrap();
    testing::eventually("the request is in the device", || gate.waiting() == 1);
    let reason = server.pause(Instant::now()).unwrap_err();
    assert!(reason.contains("in time"), "{reason}");
    gate.open();
    assert_eq!(slow.reply(), (0, 3));
    half.stream.write_all(&[5; 3096]).unwrap();
    assert_eq!(half.reply(), (0, 4));
    assert_eq!(Client::simple(&path).read(0, 4096), [7; 4096]);
    // What is handed over may come back.
    let handed = server.pause(patience()).unwrap();
    assert_eq!(server.connections(), 0);
    let waits = UnixStream::connect(&path).unwrap();
    server.resume(handed).unwrap();
    drop(waits);
    assert_eq!(slow.read(8192, 4096), [5; 4096]);
    assert_eq!(half.read(0, 4096), [7; 4096]);
}

#[test]
fn a_lost_cache_is_reported_by_the_successor() {
    let life = Arc::new(AtomicU64::new(1));
    let forgetful = Forgetful::new(Ram::new(BYTES, 4096).unwrap(), &life);
    let device: Arc<dyn Device> = Arc::clone(&forgetful) as _;
    let (mut server, path) = serve(Arc::clone(&device));
    let mut client = Client::simple(&path);
    assert_eq!(client.write(0, &[1; 4096]), 0);
    let mut next = take_over(&mut server, &device, &path);
    assert_eq!(client.error(FLUSH, (0, 0)), 0, "nothing was lost");
    assert_eq!(client.write(0, &[1; 4096]), 0);
    forgetful.lose();
    let _last = take_over(&mut next, &device, &path);
    assert_eq!(client.error(FLUSH, (0, 0)), 5);
    assert_eq!(client.error(FLUSH, (0, 0)), 0, "it is reported once");
}
