//! The driver on the real kernel: loopback sockets and a temporary file.

use super::*;
use crate::arrivals::HOT_WINDOW;
use crate::limits::{ACCEPT_PAUSE, HOT_SOCKETS_MAX};
use crate::memory::{Buffer, IoSlice, Memory};
use crate::op::{Allocation, Received, UblkCommand};
use crate::send_list::SendList;
use std::os::fd::OwnedFd;
use switch::limits::LOAD_RESET;

mod chap;
mod promises;
mod random;
mod tls;
mod whole_blocks;

const OWNER: OpNamespace = OpNamespace(7);

fn small() -> UringDriver {
    let buffers = vec![
        BufferClass {
            bytes: 4096,
            count: 16,
        },
        BufferClass {
            bytes: 1 << 20,
            count: 4,
        },
    ];
    UringDriver::new(&Options {
        buffers,
        sockets: 64,
        file_operations: 4,
    })
    .expect("a ring")
}

#[test]
fn a_watch_tells_of_every_event_until_it_is_ended() {
    let mut driver = small();
    let counter = EventWaker::new().expect("an event counter");
    let fd = counter.fd.try_clone().expect("a descriptor is left");
    counter.wake();
    let file = driver
        .open_file(Arc::new(fd.into()))
        .expect("there is room");
    driver.submit(key(1), Op::Watch { file });
    let readable = |outcome| matches!(outcome, Outcome::Readable(Ok(())));
    assert!(readable(wait_for(&mut driver, key(1))), "before the watch");
    for _ in 0..3 {
        counter.wake();
        assert!(readable(wait_for(&mut driver, key(1))), "nothing was read");
    }
    driver.end_watch(file);
    let Outcome::Readable(Err(error)) = wait_for(&mut driver, key(1)) else {
        panic!("the watch has ended");
    };
    assert_eq!(error.raw_os_error(), Some(libc::ECANCELED));
    driver.close_file(file);
    assert!(!driver.has_operation_of(OWNER));
}

/// Only a ublk device accepts such a command.
#[test]
fn a_command_for_ublk_is_refused_by_other_files() {
    let mut driver = small();
    let file = std::env::current_exe().and_then(File::open);
    let file = file.expect("the test's own program");
    let file = driver.open_file(Arc::new(file)).expect("there is room");
    let command = |command| Op::Ublk {
        file,
        queue: 1,
        tag: 2,
        command,
    };
    for op in [
        command(UblkCommand::Fetch),
        command(UblkCommand::Commit(-5)),
    ] {
        driver.submit(key(1), op);
        let Outcome::File { result, slice } = wait_for(&mut driver, key(1)) else {
            panic!("it is an operation of a file");
        };
        let error = result.expect_err("it is refused").raw_os_error();
        assert!(
            matches!(error, Some(libc::EOPNOTSUPP | libc::EINVAL)),
            "{error:?}"
        );
        assert!(slice.is_none());
    }
    driver.close_file(file);
    assert!(!driver.has_operation_of(OWNER));
}

#[test]
fn a_watch_that_the_kernel_ends_at_once_can_be_ended_and_ends_by_itself() {
    let mut driver = small();
    // A file on a disk is always readable, and has no events.
    let file = std::env::current_exe().and_then(File::open);
    let file = file.expect("the test's own program");
    let file = driver.open_file(Arc::new(file)).expect("there is room");
    driver.submit(key(1), Op::Watch { file });
    driver.end_watch(file);
    let Outcome::Readable(Err(error)) = wait_for(&mut driver, key(1)) else {
        panic!("it was to end");
    };
    assert_eq!(error.raw_os_error(), Some(libc::ECANCELED));
    driver.submit(key(2), Op::Watch { file });
    let outcomes = (0..100).map(|_| wait_for(&mut driver, key(2)));
    let ends = outcomes.take_while(|outcome| matches!(outcome, Outcome::Readable(Ok(()))));
    assert!(ends.count() < 100, "it goes on for ever");
    driver.close_file(file);
    assert!(!driver.has_operation_of(OWNER));
}

/// A thread that waits elsewhere must not be told that all sockets are watched too early: it would
/// wait for ever.
#[test]
fn nothing_is_ready_for_a_sleep_while_the_kernel_refuses_entries() {
    let mut driver = small();
    let (near, far) = pair(&mut driver);
    let (socket, into) = (near, None);
    driver.submit(key(4), Op::Receive { socket, into });
    let mut completions = Vec::new();
    // Until no operation of the connect is left.
    while !driver
        .prepare_sleep(&mut completions)
        .expect("the ring works")
    {}
    receive(&mut driver, 5, far);
    driver.ring.refusals = 2;
    for _ in 0..2 {
        assert!(!driver.prepare_sleep(&mut completions).expect("no error"));
    }
    while !driver
        .prepare_sleep(&mut completions)
        .expect("the ring works")
    {}
    assert!(!driver.ring.is_short() && completions.is_empty());
}

fn key(kind: u8) -> OpKey {
    OpKey::single(OWNER, kind)
}

/// Runs the driver until an operation with this key completes; no other may.
fn wait_for(driver: &mut UringDriver, wanted: OpKey) -> Outcome {
    let mut completions = Vec::new();
    loop {
        let deadline = driver.now() + Nanos::from_secs(10);
        driver
            .reap(Wait::Until(deadline), &mut completions)
            .expect("the ring works");
        assert!(driver.now() < deadline, "nothing happened");
        if let Some(completion) = completions.pop() {
            assert!(completions.is_empty());
            assert_eq!(completion.key, wanted);
            return completion.outcome;
        }
    }
}

/// Reaps until there are `count` completions.
fn gather(driver: &mut UringDriver, count: usize) -> Vec<Completion> {
    let mut completions = Vec::new();
    let deadline = driver.now() + Nanos::from_secs(10);
    while completions.len() < count {
        driver
            .reap(Wait::Until(deadline), &mut completions)
            .expect("the ring works");
        assert!(
            driver.now() < deadline,
            "only {} completed",
            completions.len()
        );
    }
    completions
}

fn receive(driver: &mut UringDriver, kind: u8, socket: SocketId) {
    driver.submit(key(kind), Op::Receive { socket, into: None });
}

/// Runs the test with this name in a separate process, because it changes process-wide state.
/// Returns true in that process, where the test continues.
pub(super) fn in_own_process(name: &str) -> bool {
    const ALONE: &str = "SWITCHYARD_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let program = std::env::current_exe().expect("this test program");
    let mut child = std::process::Command::new(program);
    child.args(["--exact", name, "--test-threads=1"]);
    let output = child.env(ALONE, "1").output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}"
    );
    false
}

/// A connected pair of sockets, both owned by the driver.
fn pair(driver: &mut UringDriver) -> (SocketId, SocketId) {
    pair_with(driver, &SocketOptions::default())
}

fn pair_with(driver: &mut UringDriver, options: &SocketOptions) -> (SocketId, SocketId) {
    let local = "127.0.0.1:0".parse().expect("an address");
    let (listener, address) = driver.listen(local, options).expect("a free port");
    let timeout = Nanos::from_secs(5);
    let options = options.clone();
    driver.submit(
        key(1),
        Op::Connect {
            address,
            options,
            timeout,
        },
    );
    let Outcome::Connected(Ok(near)) = wait_for(driver, key(1)) else {
        panic!("no connection")
    };
    driver.submit(key(2), Op::Accept { listener });
    let Outcome::Accepted(Ok((stream, _))) = wait_for(driver, key(2)) else {
        panic!("no peer")
    };
    let far = driver.adopt(stream);
    driver.close_listener(listener);
    let Outcome::Accepted(Err(_)) = wait_for(driver, key(2)) else {
        panic!("still accepting")
    };
    (near, far)
}

/// A free port without a listener, and the socket that keeps it reserved: meanwhile the kernel
/// assigns the port only to sockets that name it, and listeners may come and go.
fn reserved() -> (socket2::Socket, SocketAddr) {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
    let socket = socket.expect("a socket");
    // A driver's listeners also set it.
    socket.set_reuse_address(true).expect("set");
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    socket.bind(&any.into()).expect("a free port");
    let bound = socket.local_addr().expect("bound").as_socket();
    (socket, bound.expect("an address"))
}

fn list(bytes: &[u8]) -> Box<SendList> {
    let mut list = Box::new(SendList::with_capacity(64, 8));
    list.push_header(bytes);
    list
}

fn send(driver: &mut UringDriver, socket: SocketId, bytes: &[u8]) {
    driver.submit(
        key(3),
        Op::Send {
            socket,
            list: list(bytes),
        },
    );
    let Outcome::Sent { result, .. } = wait_for(driver, key(3)) else {
        panic!("not sent")
    };
    result.expect("sent");
}

fn received(outcome: Outcome) -> Received {
    let Outcome::Received(received) = outcome else {
        panic!("not received: {outcome:?}")
    };
    received
}

#[test]
fn bytes_cross_and_a_close_is_seen() {
    let mut driver = small();
    let (near, far) = pair(&mut driver);
    send(&mut driver, near, b"to the far end");
    receive(&mut driver, 4, far);
    let got = received(wait_for(&mut driver, key(4)));
    let (buffer, len) = got.rest.expect("data");
    assert_eq!(&buffer[..len], b"to the far end");

    // A waiting receive completes when its own side closes the socket.
    receive(&mut driver, 4, far);
    driver.submit(key(5), Op::Close { socket: far });
    let mut completions = gather(&mut driver, 2);
    assert!(
        matches!(completions[1].outcome, Outcome::Closed),
        "the close comes last"
    );
    let Outcome::Received(got) = completions.remove(0).outcome else {
        panic!("no receive")
    };
    assert!(got.result.is_err());

    receive(&mut driver, 4, near);
    let got = received(wait_for(&mut driver, key(4)));
    let error = got.result.expect_err("the peer closed");
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
}

#[test]
fn a_reset_is_no_end_of_the_stream() {
    let mut driver = small();
    let (near, far) = pair(&mut driver);
    driver.submit(key(5), Op::Reset { socket: far });
    assert!(matches!(wait_for(&mut driver, key(5)), Outcome::Closed));
    let (socket, into) = (near, None);
    driver.submit(key(4), Op::Receive { socket, into });
    let got = received(wait_for(&mut driver, key(4)));
    let error = got.result.expect_err("the peer reset the connection");
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

#[test]
fn a_cold_socket_wakes_the_sleeper_and_can_be_closed_while_watched() {
    let mut driver = small();
    let (near, far) = pair(&mut driver);
    receive(&mut driver, 4, far);
    let mut none = Vec::new();
    // Long enough to cool down; the ring then watches the socket.
    driver
        .reap(Wait::Until(driver.now() + Nanos::from_millis(5)), &mut none)
        .expect("ok");
    assert!(none.is_empty());
    driver.submit(
        key(3),
        Op::Send {
            socket: near,
            list: list(b"wake"),
        },
    );
    let completions = gather(&mut driver, 2);
    assert!(completions.iter().any(|c| c.key == key(4)));
    receive(&mut driver, 4, far);
    driver
        .reap(Wait::Until(driver.now() + Nanos::from_millis(1)), &mut none)
        .expect("ok");
    driver.submit(key(5), Op::Close { socket: far });
    let completions = gather(&mut driver, 2);
    assert!(matches!(completions[1].outcome, Outcome::Closed));
    assert!(driver.sockets.key_at(far.0).is_none());
}

#[test]
fn a_large_payload_lands_where_it_was_asked_to_and_the_rest_beside_it() {
    let mut driver = small();
    let (near, far) = pair(&mut driver);
    let mut source = driver.buffers().take(1 << 20).expect("a buffer");
    for (i, byte) in source.iter_mut().enumerate() {
        *byte = u8::try_from(i % 251).expect("small");
    }
    let expected = source.to_vec();
    let mut list = list(b"header");
    list.push_payload(IoSlice::from_buffer(source, 1 << 20));
    list.push_header(b"trailer");
    driver.submit(key(3), Op::Send { socket: near, list });

    let into = IoSlice::from_buffer(driver.buffers().take(1 << 20).expect("a buffer"), 6);
    driver.submit(
        key(4),
        Op::Receive {
            socket: far,
            into: Some(into),
        },
    );
    let mut stream = Vec::new();
    let mut sent = false;
    let mut completions = Vec::new();
    while stream.len() < 6 + (1 << 20) + 7 || !sent {
        driver
            .reap(
                Wait::Until(driver.now() + Nanos::from_secs(5)),
                &mut completions,
            )
            .expect("ok");
        for completion in completions.drain(..) {
            match completion.outcome {
                Outcome::Sent { result, .. } => {
                    result.expect("sent");
                    sent = true;
                }
                Outcome::Received(got) => {
                    got.result.as_ref().expect("received");
                    collect(&mut stream, got);
                    let into = driver.buffers().take(1 << 20).expect("a buffer");
                    let into = Some(IoSlice::from_buffer(into, 300_000));
                    driver.submit(key(4), Op::Receive { socket: far, into });
                }
                other => panic!("unexpected {other:?}"),
            }
        }
    }
    assert_eq!(&stream[..6], b"header");
    assert!(stream[6..6 + (1 << 20)] == expected);
    assert_eq!(&stream[6 + (1 << 20)..], b"trailer");
}

fn collect(stream: &mut Vec<u8>, got: Received) {
    let into = got.into.expect("handed back");
    let Memory::Buffer(buffer) = into.into_memory() else {
        panic!("a buffer")
    };
    stream.extend_from_slice(&buffer[..got.filled]);
    if let Some((buffer, len)) = got.rest {
        stream.extend_from_slice(&buffer[..len]);
    }
}

#[test]
fn a_refused_connection_is_an_error() {
    let mut driver = small();
    let options = SocketOptions::default();
    let (_port, local) = reserved();
    let (listener, address) = driver.listen(local, &options).expect("a free port");
    driver.close_listener(listener);
    let timeout = Nanos::from_secs(5);
    driver.submit(
        key(1),
        Op::Connect {
            address,
            options,
            timeout,
        },
    );
    let Outcome::Connected(Err(error)) = wait_for(&mut driver, key(1)) else {
        panic!("connected")
    };
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
}

#[test]
fn a_wake_ends_a_sleep_from_another_thread() {
    let mut driver = small();
    let waker = driver.waker();
    let thread = std::thread::spawn(move || waker.wake());
    let mut none = Vec::new();
    // Without the wake this would sleep until the test's timeout.
    driver
        .reap(Wait::Until(Time::NEVER), &mut none)
        .expect("ok");
    thread.join().expect("the waker ran");
    driver.waker().wake();
    driver
        .reap(Wait::Until(Time::NEVER), &mut none)
        .expect("ok");
}

fn temporary() -> Arc<File> {
    let file = rustix::fs::memfd_create("temporary", rustix::fs::MemfdFlags::CLOEXEC);
    Arc::new(file.expect("a file in memory").into())
}

fn filled(driver: &UringDriver, byte: u8) -> Buffer {
    let mut buffer = driver.buffers().take(4096).expect("a buffer");
    buffer.fill(byte);
    buffer
}

#[test]
fn file_operations_do_what_they_say_also_beyond_the_limit_in_flight() {
    let mut driver = small();
    let file = temporary();
    let id = driver.open_file(file).expect("opened");
    for i in 0..16u8 {
        let slice = IoSlice::from_buffer(filled(&driver, i), 4096);
        let offset = u64::from(i) * 4096;
        driver.submit(
            key(i),
            Op::Write {
                file: id,
                offset,
                slice,
                durable: i % 2 == 0,
            },
        );
    }
    let mut completions = gather(&mut driver, 16);
    for completion in completions.drain(..) {
        let Outcome::File { result, slice } = completion.outcome else {
            panic!("not a file op")
        };
        assert_eq!(result.expect("written"), 4096);
        assert!(slice.is_some());
    }
    driver.submit(key(1), Op::Sync { file: id });
    assert!(matches!(
        wait_for(&mut driver, key(1)),
        Outcome::File { result: Ok(0), .. }
    ));
}

#[test]
fn a_hole_reads_as_zeroes_and_a_forgotten_file_is_an_error() {
    let mut driver = small();
    let id = driver.open_file(temporary()).expect("opened");
    let slice = IoSlice::from_buffer(filled(&driver, 1), 4096);
    driver.submit(
        key(1),
        Op::Write {
            file: id,
            offset: 4096,
            slice,
            durable: false,
        },
    );
    let Outcome::File { result, .. } = wait_for(&mut driver, key(1)) else {
        panic!("no file")
    };
    assert_eq!(result.expect("written"), 4096);
    let allocation = Allocation::PunchHole;
    driver.submit(
        key(1),
        Op::Allocate {
            file: id,
            allocation,
            offset: 4096,
            len: 4096,
        },
    );
    let Outcome::File { result, .. } = wait_for(&mut driver, key(1)) else {
        panic!("not a file")
    };
    let punched = result.is_ok();
    let slice = IoSlice::from_buffer(filled(&driver, 0xFF), 4096);
    driver.submit(
        key(1),
        Op::Read {
            file: id,
            offset: 4096,
            slice,
        },
    );
    let Outcome::File { result, slice } = wait_for(&mut driver, key(1)) else {
        panic!("no file")
    };
    assert_eq!(result.expect("read"), 4096);
    let mut content = Vec::new();
    slice.expect("handed back").append_to(0, &mut content);
    let expected = if punched { 0 } else { 1 };
    assert!(content.iter().all(|&byte| byte == expected));
    driver.close_file(id);
    driver.submit(key(1), Op::Sync { file: id });
    assert!(matches!(
        wait_for(&mut driver, key(1)),
        Outcome::File { result: Err(_), .. }
    ));
}

/// The driver and the urgent pair of a round in which bulk data and then urgent data was readable,
/// the order of receipt, as kinds and bytes, and the time since which the urgent socket counted as
/// active.
struct UrgentRound {
    driver: UringDriver,
    pair: (SocketId, SocketId),
    order: Vec<(u8, usize)>,
    since: Time,
}

fn urgent_round() -> UrgentRound {
    const BULK: usize = 200 << 10;
    let mut driver = small();
    let (bulk_near, bulk_far) = pair(&mut driver);
    let (urgent_near, urgent_far) = pair(&mut driver);
    let buffer = driver.buffers().take(BULK).expect("a large one");
    let mut payload = Box::new(SendList::with_capacity(64, 8));
    payload.push_payload(IoSlice::from_buffer(buffer, BULK));
    let socket = bulk_near;
    driver.submit(
        key(3),
        Op::Send {
            socket,
            list: payload,
        },
    );
    assert!(matches!(
        wait_for(&mut driver, key(3)),
        Outcome::Sent { result: Ok(()), .. }
    ));
    send(&mut driver, urgent_near, b"at once");
    let receive = |driver: &mut UringDriver, kind, socket| {
        let into = None;
        driver.submit(key(kind), Op::Receive { socket, into });
    };
    driver.set_class(urgent_far, Class::Latency);
    let since = driver.now;
    receive(&mut driver, 10, bulk_far);
    receive(&mut driver, 11, urgent_far);
    let mut order = Vec::new();
    let mut left = BULK;
    let mut completions = Vec::new();
    while left > 0 {
        let soon = driver.now() + Nanos::from_secs(5);
        driver
            .reap(Wait::Until(soon), &mut completions)
            .expect("the ring works");
        for completion in completions.drain(..) {
            let kind = completion.key.kind;
            let (_, len) = received(completion.outcome).rest.expect("data");
            order.push((kind, len));
            if kind == 10 {
                left -= len;
                receive(&mut driver, 10, bulk_far);
            }
        }
    }
    UrgentRound {
        driver,
        pair: (urgent_near, urgent_far),
        order,
        since,
    }
}

#[test]
fn urgent_arrivals_come_first_and_bulk_comes_in_quanta() {
    let mut round = urgent_round();
    // The urgent socket no longer counts as active, so bulk does not wait.
    while round.driver.now().since(round.since) >= LOAD_RESET {
        round = urgent_round();
    }
    let UrgentRound {
        mut driver,
        pair: (urgent_near, urgent_far),
        order,
        ..
    } = round;
    assert_eq!(order[0], (11, 7), "{order:?}");
    let quantum = usize::try_from(switch::limits::QUANTUM_BYTES).expect("64 KiB");
    let quanta = order[1..].iter().all(|&(_, len)| len <= quantum);
    assert!(quanta, "{order:?}");

    // Without urgent sockets, no socket has priority.
    driver.set_class(urgent_far, Class::Throughput);
    driver.submit(
        key(5),
        Op::Close {
            socket: urgent_near,
        },
    );
    assert!(matches!(wait_for(&mut driver, key(5)), Outcome::Closed));
    assert_eq!(driver.arrivals.urgent_sockets, 0);
}

/// A descriptor to send without the driver.
fn another_descriptor(driver: &UringDriver, socket: SocketId) -> OwnedFd {
    let entry = driver.sockets.get(driver.socket_key(socket)).expect("open");
    entry.fd.try_clone().expect("another descriptor")
}

#[test]
fn packets_come_in_on_the_sender_s_core_on_the_loopback() {
    let mut driver = small();
    let (near, far) = pair(&mut driver);
    // One after the other, so that the result does not come from the handshake.
    for core in crate::placement::allowed_cores().expect("the cores") {
        let sender = std::thread::scope(|scope| {
            let fd = another_descriptor(&driver, near);
            let send = move || {
                crate::placement::pin_to(core).expect("an allowed core");
                rustix::net::send(fd, b"x", rustix::net::SendFlags::empty()).expect("a byte");
            };
            scope.spawn(send).join()
        });
        sender.expect("sent");
        let into = None;
        driver.submit(key(3), Op::Receive { socket: far, into });
        let arrived = received(wait_for(&mut driver, key(3)));
        assert_eq!(arrived.rest.expect("a byte").1, 1);
        assert_eq!(driver.incoming_core(far), Some(core));
    }
}

/// A core with bulk data left for its next check must not sleep.
#[test]
fn bulk_that_is_gone_keeps_no_core_awake() {
    let (mut driver, bulk_far) = loop {
        let mut driver = small();
        let (bulk_near, bulk_far) = pair(&mut driver);
        let (_urgent_near, urgent_far) = pair(&mut driver);
        driver.set_class(urgent_far, Class::Latency);
        let since = driver.now;
        let (into, socket) = (None, bulk_far);
        driver.submit(key(10), Op::Receive { socket, into });
        let fd = another_descriptor(&driver, bulk_near);
        rustix::net::send(fd, b"bulk", rustix::net::SendFlags::empty()).expect("some bytes");
        received(wait_for(&mut driver, key(10)));
        // The urgent socket no longer counts as active, so bulk does not wait.
        if driver.now().since(since) < LOAD_RESET {
            break (driver, bulk_far);
        }
    };
    assert!(driver.arrivals.bulk_arrived && driver.arrivals.prioritises(driver.now));
    driver.submit(key(3), Op::Close { socket: bulk_far });
    assert!(matches!(wait_for(&mut driver, key(3)), Outcome::Closed));
    let before = driver.stats().sleeps;
    let mut completions = Vec::new();
    for _ in 0..100 {
        let soon = driver.now() + Nanos::from_millis(1);
        driver
            .reap(Wait::Until(soon), &mut completions)
            .expect("the ring works");
    }
    assert!(completions.is_empty());
    assert!(driver.stats().sleeps > before);
}
