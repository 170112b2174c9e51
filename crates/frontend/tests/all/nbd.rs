//! The NBD server, with a client that can also send invalid requests.

use crate::forgetful::Forgetful;
use crate::gated::Gated;
use crate::growing::Growing;
use crate::nbd_client::{BLOCK_STATUS, Client, DISCONNECT, FLUSH, READ, TRIM, WRITE, WRITE_ZEROES};
use crate::nbd_servers::{BLOCK, BYTES, file_device, options, pattern, ram, serve, socket};
use base::Nanos;
use block::device::Null;
use block::layer::fault::FaultOperation;
use block::layer::{Delay, DelayOptions, Fault, FaultEffect, FaultOptions, FaultRule};
use block::{BlockError, Cache, CacheOptions, Capabilities, Channel, Device, DeviceError};
use block::{Geometry, Operation};
use reactor::Driver;
use socket2::{Domain, SockAddr, Socket, Type};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use switch::{Class, PerClass};
use switchyard_frontend::limits::NBD_CONNECTIONS_MAX;
use switchyard_frontend::nbd::{Address, NbdOptions, NbdServer};
use switchyard_frontend::{ClassRule, ClassRules};

const EINVAL: u32 = 22;
const EPERM: u32 = 1;
const EIO: u32 = 5;
const ENOSPC: u32 = 28;
const ENOTSUP: u32 = 95;

fn forgetful() -> Arc<Forgetful> {
    Forgetful::new(
        Null::new(1 << 20, 512).unwrap(),
        &Arc::new(AtomicU64::new(1)),
    )
}

#[test]
fn what_was_written_reads_back() {
    let (_server, path) = serve(ram());
    let mut client = Client::simple(&path);
    for (seed, length) in [(1, 4096), (2, 65536), (3, 1 << 20), (4, 32 << 20)] {
        let data = pattern(seed, length);
        assert_eq!(client.write(8192, &data), 0);
        assert!(client.read(8192, length) == data, "{length} bytes");
    }
    for command in [TRIM, WRITE_ZEROES] {
        assert_eq!(client.error(command, (8192, 8192)), 0);
        assert!(client.read(8192, 8192).iter().all(|&byte| byte == 0));
    }
    assert_eq!(client.error(FLUSH, (0, 0)), 0);
    // On another connection, and with every form of replies.
    let mut other = Client::extended(&path);
    other.send(READ, 0, 9, (16384, 4096));
    let (kind, cookie, payload) = other.chunk();
    assert_eq!((kind, cookie), (1, 9));
    assert!(payload[..8] == 16384_u64.to_be_bytes());
    assert!(payload[8..] == client.read(16384, 4096));
    other.send(BLOCK_STATUS, 0, 10, (0, BYTES));
    let (kind, cookie, payload) = other.chunk();
    assert_eq!((kind, cookie, payload.len()), (6, 10, 24));
    assert_eq!(payload[8..16], BYTES.to_be_bytes(), "one extent: all of it");
}

#[test]
fn wrong_requests_get_the_error_that_the_specification_names() {
    let (_server, path) = serve(ram());
    let mut client = Client::simple(&path);
    for (command, range, expected) in [
        (READ, (BYTES, BLOCK), EINVAL),
        (READ, (u64::MAX - 4095, BLOCK), EINVAL),
        (READ, (1, BLOCK), EINVAL),
        (READ, (0, 100), EINVAL),
        (READ, (0, 0), EINVAL),
        (READ, (0, 48 << 20), EINVAL),
        (TRIM, (BYTES, BLOCK), ENOSPC),
        (WRITE_ZEROES, (BYTES - BLOCK, 2 * BLOCK), ENOSPC),
        (BLOCK_STATUS, (0, BLOCK), EINVAL),
        (5, (0, BLOCK), EINVAL),
        (99, (0, BLOCK), EINVAL),
    ] {
        assert_eq!(
            client.error(command, range),
            expected,
            "{command} {range:?}"
        );
    }
    // The data of a refused write is discarded.
    assert_eq!(client.write(BYTES - BLOCK, &[1; 8192]), ENOSPC);
    assert_eq!(client.write(100, &[1; 4096]), EINVAL);
    client.send(READ, 0x8000, 3, (0, BLOCK));
    assert_eq!(client.reply(), (EINVAL, 3), "an unknown flag");
    assert_eq!(client.write(0, &pattern(5, 4096)), 0, "it goes on");
    assert!(client.read(0, 4096) == pattern(5, 4096));
}

#[test]
fn a_read_only_export_refuses_whatever_writes() {
    let path = socket();
    let device = ram();
    let devices = PerClass::from_fn(|_| Arc::clone(&device));
    let options = NbdOptions {
        read_only: true,
        ..options(&path)
    };
    let _server = NbdServer::start(&devices, &options).unwrap();
    let mut client = Client::simple(&path);
    assert_eq!(client.write(0, &[1; 4096]), EPERM);
    assert_eq!(client.error(TRIM, (0, BLOCK)), EPERM);
    assert_eq!(client.error(WRITE_ZEROES, (0, BLOCK)), EPERM);
    assert_eq!(client.read(0, 4096), [0; 4096]);
}

#[test]
fn a_client_that_speaks_something_else_is_closed() {
    let (_server, path) = serve(ram());
    let mut client = Client::simple(&path);
    client.stream.write_all(&[0x55; 64]).unwrap();
    assert!(client.is_closed());
    // More data than allowed for a request.
    let mut client = Client::simple(&path);
    client.send(WRITE, 0, 1, (0, 1 << 30));
    assert!(client.is_closed());
    let mut client = Client::greet(&path);
    client.stream.write_all(&[0xff; 200]).unwrap();
    assert!(client.is_closed());
    let mut client = Client::simple(&path);
    client.send(DISCONNECT, 0, 0, (0, 0));
    assert!(client.is_closed());
    assert_eq!(Client::simple(&path).read(0, 4096), [0; 4096]);
}

/// An incomplete write must not reach the device, not even in part.
#[test]
fn a_client_that_dies_in_a_write_leaves_the_blocks_as_they_were() {
    let (_server, path) = serve(ram());
    let mut client = Client::simple(&path);
    assert_eq!(client.write(0, &pattern(1, 65536)), 0);
    client.send(WRITE, 0, 1, (0, 65536));
    client.stream.write_all(&[0xee; 60_000]).unwrap();
    drop(client);
    assert!(Client::simple(&path).read(0, 65536) == pattern(1, 65536));
}

/// A device that does not respond delays the end of a server by the drain time only.
#[test]
fn detaching_gives_up_what_is_never_answered() {
    let delays = DelayOptions {
        read: Nanos::from_secs(100_000),
        ..DelayOptions::default()
    };
    let (server, path) = serve(Arc::new(Delay::new(ram(), delays)));
    let mut client = Client::simple(&path);
    client.send(READ, 0, 1, (0, BLOCK));
    assert_eq!(client.error(FLUSH, (0, 0)), 0, "both are with the device");
    drop(server);
    assert!(client.is_closed());
}

/// Requests after the signal must not fail: clients pass errors on to their programs instead of
/// reconnecting.
#[test]
fn detaching_answers_what_is_in_flight_and_closes_without_an_error() {
    let device = Gated::new(ram(), 1);
    let (mut server, path) = serve(Arc::clone(&device) as _);
    let mut client = Client::simple(&path);
    let mut idle = Client::simple(&path);
    client.send(WRITE, 0, 1, (0, BLOCK));
    client.stream.write_all(&[1; 4096]).unwrap();
    device.wait_held(1);
    let ending = std::thread::spawn(move || {
        server.detach();
        server
    });
    assert_eq!(
        idle.stream.read(&mut [0]).unwrap(),
        0,
        "it is closed at once"
    );
    // Later requests are for the next server.
    client.send(WRITE, 0, 2, (BLOCK, BLOCK));
    client.stream.write_all(&[2; 4096]).unwrap();
    client.send(READ, 0, 3, (0, BLOCK));
    device.open_gate();
    assert_eq!(client.reply(), (0, 1));
    assert_eq!(client.stream.read(&mut [0]).unwrap(), 0);
    let server = ending.join().unwrap();
    assert!(!server.was_forced());
    assert!(!path.exists(), "its socket is gone");
    let (_server, path) = serve(device);
    let mut client = Client::simple(&path);
    assert_eq!(client.read(0, 4096), [1; 4096]);
    assert_eq!(client.read(BLOCK, 4096), [0; 4096], "it was not begun");
}

/// A client that connects to the next server relies on writes that it has not flushed.
#[test]
fn detaching_flushes_what_was_written() {
    let (life, path) = (Arc::new(AtomicU64::new(7)), socket());
    let device = Forgetful::new(Null::new(1 << 20, 512).unwrap(), &life);
    let devices = PerClass::from_fn(|_| Arc::clone(&device) as _);
    let mut server = NbdServer::start(&devices, &options(&path)).unwrap();
    let mut client = Client::simple(&path);
    assert_eq!(client.write(0, &[1; 4096]), 0);
    assert!(device.has_unflushed());
    server.detach();
    assert!(client.is_closed());
    assert!(!device.has_unflushed() && !server.was_forced());
}

/// The next server must learn that clients rely on unflushed writes.
#[test]
fn a_server_that_cannot_flush_leaves_its_socket_behind() {
    let rule = FaultRule {
        operation: FaultOperation::Flush,
        ..FaultRule::new(FaultEffect::Error(BlockError::Internal))
    };
    let options = FaultOptions {
        seed: 0,
        rules: vec![rule],
    };
    let (mut server, path) = serve(Arc::new(Fault::new(ram(), &options).unwrap()));
    let _left = Left(&path);
    assert_eq!(Client::simple(&path).write(0, &[1; 4096]), 0);
    server.detach();
    assert!(server.was_forced() && path.exists());
    UnixStream::connect(&path).unwrap_err();
}

#[test]
fn a_socket_in_use_is_refused_and_one_left_behind_is_replaced() {
    let (server, path) = serve(ram());
    let device = ram();
    let devices = PerClass::from_fn(|_| Arc::clone(&device));
    let error = NbdServer::start(&devices, &options(&path)).unwrap_err();
    assert!(error.to_string().contains("cannot listen on"), "{error}");
    assert_eq!(Client::simple(&path).read(0, 4096), [0; 4096]);
    drop(server);
    // A stale socket, as after a killed process.
    drop(UnixListener::bind(&path).unwrap());
    let mut server = NbdServer::start(&devices, &options(&path)).unwrap();
    assert_eq!(Client::simple(&path).read(0, 4096), [0; 4096]);
    server.detach();
    // A regular file is not a socket.
    std::fs::write(&path, "content").unwrap();
    NbdServer::start(&devices, &options(&path)).unwrap_err();
    assert_eq!(std::fs::read(&path).unwrap(), b"content");
    std::fs::remove_file(&path).unwrap();
}

/// The export's name selects the class: each class has its own path to the device.
#[test]
fn exports_carry_their_class() {
    let path = socket();
    let devices = PerClass::from_fn(|_| ram());
    let _server = NbdServer::start(&devices, &options(&path)).unwrap();
    let open = |name: &str| {
        let mut client = Client::greet(&path);
        let mut data = u32::try_from(name.len()).unwrap().to_be_bytes().to_vec();
        data.extend(name.as_bytes());
        data.extend([0, 0]);
        assert_eq!(client.option(7, &data).last(), Some(&1));
        client
    };
    assert_eq!(open("latency").write(0, &[7; 4096]), 0);
    // The default export has the class of the options.
    assert_eq!(open("").read(0, 4096), [0; 4096]);
    assert_eq!(open("throughput").read(0, 4096), [0; 4096]);
    assert_eq!(open("latency").read(0, 4096), [7; 4096]);
}

/// QEMU treats a larger device as empty.
#[test]
fn a_device_that_is_larger_than_its_clients_can_say_is_refused() {
    let path = socket();
    let null: Arc<dyn Device> = Arc::new(Null::new(1 << 63, 512).unwrap());
    let devices = PerClass::from_fn(|_| Arc::clone(&null));
    let error = NbdServer::start(&devices, &options(&path)).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("at most 9223372036854775807 bytes"),
        "{error}"
    );
    assert!(!path.exists());
}

#[test]
fn only_loopback_addresses_are_served() {
    let device = ram();
    let devices = PerClass::from_fn(|_| Arc::clone(&device));
    let at = |address: &str| NbdOptions {
        address: address.parse().unwrap(),
        ..options(Path::new("unused"))
    };
    let error = NbdServer::start(&devices, &at("192.0.2.1:10809")).unwrap_err();
    assert!(error.to_string().contains("tunnel"), "{error}");
    let server = NbdServer::start(&devices, &at("127.0.0.1:0")).unwrap();
    assert!(matches!(server.address(), Address::Tcp(address) if address.port() > 0));
}

/// A rule sets the class of a small request through the default export.
#[test]
fn a_rule_goes_before_the_class_of_the_default_export() {
    let path = socket();
    let devices = PerClass::from_fn(|_| ram());
    let small = ClassRule {
        cgroup: None,
        command: None,
        user: None,
        max_bytes: Some(4096),
        max_depth: Some(1),
        class: Class::Latency,
    };
    let options = NbdOptions {
        rules: ClassRules::new(vec![small]),
        ..options(&path)
    };
    let server = NbdServer::start(&devices, &options).unwrap();
    let mut client = Client::simple(&path);
    assert_eq!(client.write(0, &[7; 4096]), 0);
    assert_eq!(client.write(0, &[8; 8192]), 0);
    assert_eq!(client.read(0, 4096), [7; 4096], "it is of the rule's class");
    assert_eq!(
        client.read(0, 8192),
        [8; 8192],
        "it is too large for the rule"
    );
    let counts = server.counts();
    assert_eq!(counts[Class::Latency].written_bytes, 4096);
    assert_eq!(counts[Class::Throughput].read_bytes, 8192);
}

#[test]
fn connections_are_bounded_and_come_back() {
    let (server, path) = serve(ram());
    let open = || {
        (0..NBD_CONNECTIONS_MAX)
            .map(|_| Client::simple(&path))
            .collect::<Vec<_>>()
    };
    let clients = open();
    let mut refused = UnixStream::connect(&path).unwrap();
    assert_eq!(refused.read(&mut [0; 18]).unwrap_or(0), 0, "one too many");
    drop(clients);
    while server.connections() > 0 {
        std::thread::yield_now();
    }
    drop(open());
}

/// Clients that never finish the handshake must not occupy all connections and lock out a client
/// with a certificate.
#[test]
fn the_handshake_of_a_client_ends_those_that_never_finish() {
    let (_server, path) = serve(ram());
    let mut silent: Vec<_> = (0..NBD_CONNECTIONS_MAX)
        .map(|_| Client::greet(&path))
        .collect();
    assert_eq!(Client::simple(&path).read(0, 4096), [0; 4096]);
    assert!(silent[0].is_closed(), "the oldest makes room");
    let last = silent.last_mut().unwrap();
    assert_eq!(last.option(7, &[0; 6]).last(), Some(&1), "the last goes on");
}

/// A device without the operations that carry no data.
#[derive(Debug)]
struct Without(Arc<dyn Device>, bool);

impl Device for Without {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn supports(&self, operation: Operation) -> bool {
        match operation {
            Operation::Deallocate => !self.1,
            Operation::WriteZeroes { .. } => self.1,
            _ => true,
        }
    }

    fn open(&self, driver: &mut dyn Driver) -> Result<Box<dyn Channel>, DeviceError> {
        self.0.open(driver)
    }
}

/// Clients rely on the advertised operations, so they must be those that the target supports.
#[test]
fn trim_and_write_zeroes_are_offered_if_the_device_has_them() {
    let flags = |device: Arc<dyn Device>| {
        let (_server, path) = serve(device);
        let mut client = Client::greet(&path);
        let by_name = b"IHAVEOPT\0\0\0\x01\0\0\0\0";
        client.stream.write_all(by_name).unwrap();
        let mut export = [0; 10];
        client.stream.read_exact(&mut export).unwrap();
        export[9] >> 5 & 3
    };
    assert_eq!(flags(ram()), 3);
    assert_eq!(flags(Arc::new(Without(ram(), false))), 1);
    assert_eq!(flags(Arc::new(Without(ram(), true))), 2);
}

#[test]
fn what_a_device_does_not_have_is_not_supported() {
    let unsupported = |operation| FaultRule {
        operation,
        ..FaultRule::new(FaultEffect::Error(BlockError::Unsupported))
    };
    let rules = [FaultOperation::Deallocate, FaultOperation::WriteZeroes].map(unsupported);
    let options = FaultOptions {
        seed: 0,
        rules: rules.into(),
    };
    let (_server, path) = serve(Arc::new(Fault::new(ram(), &options).unwrap()));
    let mut client = Client::simple(&path);
    for command in [TRIM, WRITE_ZEROES] {
        assert_eq!(client.error(command, (0, BLOCK)), ENOTSUP);
    }
}

/// Each connection must receive its own report of a loss: with a shared one, the second Flush would
/// succeed although its writes were lost.
#[test]
fn each_connection_hears_of_a_lost_cache_once() {
    let device = forgetful();
    let cached = Cache::new(Arc::clone(&device) as _, CacheOptions::new(64)).unwrap();
    for served in [Arc::clone(&device) as _, Arc::new(cached) as _] {
        let (_server, path) = serve(served);
        let mut clients = [Client::simple(&path), Client::simple(&path)];
        device.lose();
        for client in &mut clients {
            assert_eq!(client.error(FLUSH, (0, 0)), EIO);
            assert_eq!(client.error(FLUSH, (0, 0)), 0);
        }
        assert_eq!(Client::simple(&path).error(FLUSH, (0, 0)), 0);
        drop(clients);
        device.lose();
        let mut client = Client::simple(&path);
        let flushed = client.error(FLUSH, (0, 0));
        assert_eq!(flushed, EIO, "no connection was told before");
        assert_eq!(client.error(FLUSH, (0, 0)), 0);
    }
}

/// A socket that a server may leave; removed when dropped.
struct Left<'a>(&'a Path);

impl Drop for Left<'_> {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.0);
    }
}

/// Clients of a killed front end reconnect to the next one, which must account for their writes.
#[test]
fn a_cache_that_is_lost_after_a_killed_front_end_fails_a_flush_of_the_next_one() {
    for was_killed in [true, false] {
        let (life, path) = (Arc::new(AtomicU64::new(7)), socket());
        let _left = Left(&path);
        if was_killed {
            drop(UnixListener::bind(&path).unwrap());
        }
        let device = Forgetful::new(Null::new(1 << 20, 512).unwrap(), &life);
        let devices = PerClass::from_fn(|_| Arc::clone(&device) as _);
        let _server = NbdServer::start(&devices, &options(&path)).unwrap();
        let mut client = Client::simple(&path);
        life.store(8, Ordering::SeqCst);
        let expected = if was_killed { EIO } else { 0 };
        assert_eq!(client.error(FLUSH, (0, 0)), expected, "{was_killed}");
        life.store(9, Ordering::SeqCst);
        assert_eq!(client.error(FLUSH, (0, 0)), 0, "nothing was written");
    }
}

/// A program that fails after its server has found a stale socket must keep it: otherwise the next
/// server would report no loss.
#[test]
fn a_server_that_is_dropped_leaves_the_socket_that_it_found_left_behind() {
    let (life, path) = (Arc::new(AtomicU64::new(7)), socket());
    drop(UnixListener::bind(&path).unwrap());
    let device = || Forgetful::new(Null::new(1 << 20, 512).unwrap(), &life);
    let serve = || {
        let device = device();
        let devices = PerClass::from_fn(|_| Arc::clone(&device) as _);
        NbdServer::start(&devices, &options(&path)).unwrap()
    };
    drop(serve());
    let mut server = serve();
    let mut client = Client::simple(&path);
    life.store(8, Ordering::SeqCst);
    assert_eq!(client.error(FLUSH, (0, 0)), EIO);
    server.detach();
    assert!(!path.exists(), "its clients were told of its end");
    drop(serve());
    assert!(!path.exists(), "it found none");
}

/// A removed device must not be served as empty: a client would make an empty copy without an
/// error.
#[test]
fn a_device_that_went_away_is_no_empty_one() {
    let device = forgetful();
    let (_server, path) = serve(Arc::clone(&device) as _);
    let mut client = Client::simple(&path);
    assert_eq!(client.write(0, &[1; 4096]), 0);
    device.set_gone(true);
    assert_eq!(client.error(READ, (0, 4096)), EIO);
    assert_eq!(client.write(0, &[1; 4096]), EIO);
    for command in [FLUSH, TRIM, WRITE_ZEROES] {
        assert_eq!(client.error(command, (0, 4096)), EIO);
    }
    let mut client = Client::greet(&path);
    for option in [6, 7] {
        let refused = client.option(option, &[0; 6]);
        assert_eq!(refused, [0x8000_0006], "no export");
    }
    let mut client = Client::greet(&path);
    client
        .stream
        .write_all(b"IHAVEOPT\0\0\0\x01\0\0\0\0")
        .unwrap();
    assert!(client.is_closed());
}

/// A client that uses `EXPORT_NAME`, whose reply begins with the size.
fn connect_by_name(path: &Path) -> (Client, u64) {
    let mut client = Client::greet(path);
    client
        .stream
        .write_all(b"IHAVEOPT\0\0\0\x01\0\0\0\0")
        .unwrap();
    let mut export = [0; 10];
    client.stream.read_exact(&mut export).unwrap();
    (client, u64::from_be_bytes(export[..8].try_into().unwrap()))
}

/// Otherwise a connecting client would see an empty device or a negative size.
#[test]
fn a_device_that_grows_beyond_what_clients_can_say_ends_there() {
    let growing = Growing::new(Arc::new(Null::new(1 << 63, 4096).unwrap()));
    let (_server, path) = serve(Arc::clone(&growing) as _);
    let (_, size) = connect_by_name(&path);
    assert_eq!(size, 1 << 62);
    growing.grow();
    let (mut client, size) = connect_by_name(&path);
    assert_eq!(size, (1 << 63) - BLOCK);
    assert_eq!(client.write(size - BLOCK, &[1; 4096]), 0);
    assert_eq!(client.write(size, &[1; 4096]), ENOSPC);
}

#[test]
fn new_connections_see_a_new_size() {
    let growing = Growing::new(ram());
    let (_server, path) = serve(Arc::clone(&growing) as _);
    let connect = || connect_by_name(&path);
    let (mut client, size) = connect();
    assert_eq!(size, BYTES / 2);
    assert_eq!(client.write(size, &[1; 4096]), ENOSPC);
    growing.grow();
    let (mut client, size) = connect();
    assert_eq!(size, BYTES);
    assert_eq!(client.write(size - BLOCK, &[1; 4096]), 0);
    assert!(client.read(size - BLOCK, 4096) == [1; 4096]);
}

/// A server must remove its socket before closing it: otherwise it could remove a successor's
/// socket.
#[test]
fn a_socket_is_removed_before_it_is_closed() {
    for _ in 0..5 {
        let (server, path) = serve(ram());
        let ending = std::thread::spawn(move || drop(server));
        while path.exists() {
            let client = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
            // A blocking client would wait on a full backlog.
            client.set_nonblocking(true).unwrap();
            let connected = client.connect(&SockAddr::unix(&path).unwrap());
            let refused =
                connected.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused);
            assert!(!refused || !path.exists());
        }
        ending.join().unwrap();
    }
}

#[test]
fn files_are_served_as_well() {
    let (device, path) = file_device();
    let (server, socket) = serve(device);
    let mut client = Client::simple(&socket);
    let data = pattern(8, 3 << 20);
    assert_eq!(client.write(512, &data), 0);
    assert_eq!(client.error(FLUSH, (0, 0)), 0);
    assert!(client.read(512, 3 << 20) == data);
    drop(client);
    drop(server);
    assert!(std::fs::read(&path).unwrap()[512..][..3 << 20] == data);
    std::fs::remove_file(&path).unwrap();
}
