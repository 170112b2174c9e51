//! The documented behaviour on misuse, shortage, and misbehaving peers.

use super::*;
use crate::core::{Context, Core, Service};
use crate::idle::PollPolicy;
use std::io::Write;
use std::net::TcpStream;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;

fn soon(driver: &UringDriver) -> Wait {
    Wait::Until(driver.now() + Nanos::from_millis(20))
}

fn listening(driver: &mut UringDriver) -> (ListenerId, SocketAddr) {
    let local = "127.0.0.1:0".parse().expect("an address");
    driver
        .listen(local, &SocketOptions::default())
        .expect("a free port")
}

fn connect(driver: &mut UringDriver, kind: u8, address: SocketAddr) {
    let connect = Op::Connect {
        address,
        options: SocketOptions::default(),
        timeout: Nanos::from_secs(5),
    };
    driver.submit(key(kind), connect);
}

#[test]
fn every_operation_on_a_closed_socket_completes_once_and_closed_comes_last() {
    // (operations submitted before the close, and after it), as (sends, receives); the send before
    // the close is larger than both ends' buffers.
    for (before, after) in [
        ((0, 0), (0, 0)),
        ((0, 1), (0, 0)),
        ((1, 0), (0, 0)),
        ((1, 1), (0, 0)),
        ((0, 0), (1, 0)),
        ((0, 0), (0, 1)),
        ((1, 1), (1, 1)),
    ] {
        for settle in [Wait::No, Wait::Until(Time(1))] {
            let mut driver = small();
            let (near, _far) = pair(&mut driver);
            let large = IoSlice::new(
                Memory::Region(
                    crate::Region::for_device(64 << 20)
                        .expect("a mapping")
                        .handle(),
                ),
                0,
                64 << 20,
            );
            let submit = |driver: &mut UringDriver, (sends, receives), kind, large| {
                if sends == 1 {
                    let mut list = list(b"x");
                    if let Some(large) = large {
                        list.push_payload(large);
                    }
                    driver.submit(key(kind), Op::Send { socket: near, list });
                }
                if receives == 1 {
                    receive(driver, kind + 1, near);
                }
            };
            let mut completions = Vec::new();
            submit(&mut driver, before, 10, Some(large));
            let settle = if settle == Wait::No {
                settle
            } else {
                soon(&driver)
            };
            driver.reap(settle, &mut completions).expect("ok");
            assert!(completions.is_empty(), "{completions:?}");
            driver.submit(key(9), Op::Close { socket: near });
            // Operations after an immediate close have no socket to refer to.
            if driver.sockets.key_at(near.0).is_some() {
                submit(&mut driver, after, 20, None);
            }
            while !completions.iter().any(|c| c.key == key(9)) {
                let wait = soon(&driver);
                driver.reap(wait, &mut completions).expect("ok");
            }
            let last = completions.pop().expect("closed");
            assert!(matches!(last.outcome, Outcome::Closed), "{before:?}");
            for completion in &completions {
                let failed = match &completion.outcome {
                    Outcome::Sent { result, .. } => result.is_err(),
                    Outcome::Received(got) => got.result.is_err(),
                    _ => false,
                };
                assert!(failed, "{completion:?}");
            }
            let mut kinds: Vec<_> = completions.iter().map(|c| c.key.kind).collect();
            kinds.sort_unstable();
            kinds.dedup();
            assert_eq!(kinds.len(), completions.len(), "one completion each");
            driver.reap(soon(&driver), &mut completions).expect("ok");
            assert_eq!(completions.len(), kinds.len(), "nothing comes later");
            assert!(driver.arrivals.hot.is_empty() || driver.arrivals.hot.len() == 1);
        }
    }
}

/// An operation on a closing socket must complete, not be dropped.
#[test]
fn an_operation_behind_a_close_fails() {
    let mut driver = small();
    let (near, _far) = pair(&mut driver);
    receive(&mut driver, 4, near);
    let mut none = Vec::new();
    let wait = soon(&driver);
    driver.reap(wait, &mut none).expect("ok");
    driver.submit(key(9), Op::Close { socket: near });
    driver.submit(
        key(5),
        Op::Send {
            socket: near,
            list: list(b"late"),
        },
    );
    receive(&mut driver, 6, near);
    let mut kinds: Vec<_> = gather(&mut driver, 4)
        .iter()
        .map(|done| done.key.kind)
        .collect();
    assert_eq!(kinds.pop(), Some(9));
    kinds.sort_unstable();
    assert_eq!(kinds, [4, 5, 6]);
}

/// The kernel must not write into memory that others may read through a plain reference.
#[test]
fn nothing_is_read_into_a_shared_buffer() {
    let mut driver = small();
    let (_near, far) = pair(&mut driver);
    let file = driver.open_file(temporary()).expect("opened");
    let shared = |driver: &UringDriver| {
        let buffer = driver.buffers().take(4096).expect("a buffer");
        IoSlice::from_buffer(buffer, 4096).into_shared()
    };
    let slice = shared(&driver);
    let read = Op::Read {
        file,
        offset: 0,
        slice,
    };
    driver.submit(key(1), read);
    let Outcome::File { result, slice } = wait_for(&mut driver, key(1)) else {
        panic!("no read")
    };
    assert_eq!(
        result.expect_err("refused").kind(),
        io::ErrorKind::InvalidInput
    );
    assert!(slice.is_some());
    let into = slice;
    driver.submit(key(2), Op::Receive { socket: far, into });
    let got = received(wait_for(&mut driver, key(2)));
    assert_eq!(
        got.result.expect_err("refused").kind(),
        io::ErrorKind::InvalidInput
    );
    assert!(got.into.is_some());
}

/// A connect beyond the limit must fail, not end the process.
#[test]
fn a_full_core_says_so_and_refuses_to_connect() {
    let mut driver = UringDriver::new(&Options {
        buffers: Vec::new(),
        sockets: 2,
        file_operations: 1,
    })
    .expect("a ring");
    let (_listener, address) = listening(&mut driver);
    assert!(driver.has_room_for_socket());
    for kind in 0..3 {
        connect(&mut driver, kind, address);
    }
    assert!(!driver.has_room_for_socket());
    let (mut sockets, mut refused) = (Vec::new(), 0);
    for completion in gather(&mut driver, 3) {
        match completion.outcome {
            Outcome::Connected(Ok(socket)) => sockets.push(socket),
            Outcome::Connected(Err(error)) => {
                assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
                refused += 1;
            }
            other => panic!("unexpected {other:?}"),
        }
    }
    assert_eq!((sockets.len(), refused), (2, 1));
    assert!(!driver.has_room_for_socket());
    driver.submit(key(9), Op::Close { socket: sockets[0] });
    assert!(matches!(wait_for(&mut driver, key(9)), Outcome::Closed));
    assert!(driver.has_room_for_socket());
    connect(&mut driver, 4, address);
    assert!(matches!(
        wait_for(&mut driver, key(4)),
        Outcome::Connected(Ok(_))
    ));
}

/// Long series of listening and closing must not fill the table of listeners, and a closed listener
/// must refuse connections at once, not only from the next turn.
#[test]
fn a_closed_listener_refuses_at_once_and_its_place_and_port_are_free_again() {
    let mut driver = small();
    let options = SocketOptions::default();
    for round in 0..2 * LISTENERS_MAX {
        let (_port, local) = reserved();
        let (listener, address) = driver.listen(local, &options).expect("a free port");
        driver.submit(key(1), Op::Accept { listener });
        if round % 64 == 0 {
            let mut none = Vec::new();
            driver.reap(Wait::No, &mut none).expect("ok");
        }
        driver.close_listener(listener);
        let refused = TcpStream::connect(address).expect_err("nobody listens");
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        let Outcome::Accepted(Err(error)) = wait_for(&mut driver, key(1)) else {
            panic!("accepted")
        };
        assert_eq!(error.raw_os_error(), Some(libc::ECANCELED));
        let (again, same) = driver.listen(address, &options).expect("free again");
        assert_eq!(same, address);
        driver.close_listener(again);
    }
    assert!(driver.listeners.is_empty());
}

#[test]
fn listeners_beyond_the_limit_and_a_second_accept_are_errors() {
    let mut driver = small();
    let all: Vec<_> = (0..LISTENERS_MAX)
        .map(|_| listening(&mut driver).0)
        .collect();
    let local = "127.0.0.1:0".parse().expect("an address");
    let error = driver
        .listen(local, &SocketOptions::default())
        .expect_err("full");
    assert!(error.to_string().contains("at most 256"), "{error}");
    driver.submit(key(1), Op::Accept { listener: all[0] });
    driver.submit(key(2), Op::Accept { listener: all[0] });
    let Outcome::Accepted(Err(error)) = wait_for(&mut driver, key(2)) else {
        panic!("accepted")
    };
    assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    driver.close_listener(all[1]);
    driver.submit(key(3), Op::Accept { listener: all[1] });
    let Outcome::Accepted(Err(error)) = wait_for(&mut driver, key(3)) else {
        panic!("accepted")
    };
    assert_eq!(error.kind(), io::ErrorKind::NotConnected);
}

/// Peers that reset before they are accepted must cause no errors: an owner could not know whether
/// to submit another accept.
#[test]
fn a_peer_that_resets_before_it_is_accepted_is_passed_over() {
    let mut driver = small();
    let (listener, address) = listening(&mut driver);
    for _ in 0..20 {
        let stream = TcpStream::connect(address).expect("connected");
        let socket = socket2::Socket::from(stream);
        socket
            .set_linger(Some(std::time::Duration::ZERO))
            .expect("a reset on close");
    }
    let mut last = TcpStream::connect(address).expect("connected");
    last.write_all(b"here").expect("sent");
    let expected = last.local_addr().expect("bound");
    driver.submit(key(1), Op::Accept { listener });
    for completion in gather(&mut driver, 1) {
        let Outcome::Accepted(Ok((stream, peer))) = completion.outcome else {
            panic!("{completion:?}")
        };
        assert_eq!(peer, expected);
        drop(stream);
    }
}

/// Runs a driver with almost no descriptors left, in a separate process, because the limit is per
/// process.
#[test]
fn accepting_goes_on_after_a_shortage_of_descriptors() {
    if !in_own_process("uring::tests::promises::accepting_goes_on_after_a_shortage_of_descriptors")
    {
        return;
    }
    let mut driver = small();
    let (listener, address) = listening(&mut driver);
    driver.submit(key(1), Op::Accept { listener });
    let mut completions = Vec::new();
    driver.reap(Wait::No, &mut completions).expect("ok");
    let peers = [(); 3].map(|()| {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
        socket.expect("a socket")
    });
    let mut hoard = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        hoard.push(file);
    }
    for peer in &peers {
        peer.connect(&address.into()).expect("in the backlog");
    }
    let Outcome::Accepted(Err(error)) = wait_for(&mut driver, key(1)) else {
        panic!("accepted")
    };
    assert_eq!(error.raw_os_error(), Some(libc::EMFILE));
    let (turns, wait) = (driver.stats.turns, driver.now() + Nanos(ACCEPT_PAUSE.0 * 3));
    while driver.now() < wait {
        driver
            .reap(Wait::Until(wait), &mut completions)
            .expect("ok");
    }
    assert!(driver.stats.turns - turns < 20, "it spins");
    drop(hoard);
    completions.clear();
    let mut accepted = 0;
    while accepted < peers.len() {
        for completion in gather(&mut driver, 1) {
            accepted += usize::from(matches!(completion.outcome, Outcome::Accepted(Ok(_))));
        }
    }
    driver.close_listener(listener);
    let Outcome::Accepted(Err(error)) = wait_for(&mut driver, key(1)) else {
        panic!("accepted")
    };
    assert_eq!(error.raw_os_error(), Some(libc::ECANCELED));
}

/// With more busy sockets than can be hot, the others must get receive buffers, too.
#[test]
fn more_busy_sockets_than_can_be_hot_are_all_served() {
    for policy in [Wait::No, Wait::Until(Time::NEVER)] {
        let mut driver = UringDriver::new(&Options {
            sockets: 256,
            ..Options::default()
        })
        .expect("a ring");
        let count = HOT_SOCKETS_MAX + 16;
        let sockets: Vec<_> = (0..count).map(|_| pair(&mut driver)).collect();
        let region = crate::Region::new(1 << 20).expect("a mapping").handle();
        let send = |driver: &mut UringDriver, index: usize| {
            let memory = Memory::Region(region.clone());
            let mut list = list(b"");
            list.push_payload(IoSlice::new(memory, 0, 1 << 20));
            let key = OpKey {
                index: u32::try_from(index).expect("few"),
                ..key(1)
            };
            let socket = sockets[index].0;
            driver.submit(key, Op::Send { socket, list });
        };
        for (index, &(_, socket)) in sockets.iter().enumerate() {
            send(&mut driver, index);
            let key = OpKey {
                index: u32::try_from(index).expect("few"),
                ..key(2)
            };
            driver.submit(key, Op::Receive { socket, into: None });
        }
        let mut received = vec![0u32; count];
        let mut completions = Vec::new();
        for _ in 0..2_000 {
            driver.reap(policy, &mut completions).expect("ok");
            for completion in completions.drain(..) {
                let index = completion.key.index as usize;
                match completion.outcome {
                    Outcome::Received(got) => {
                        got.result.expect("received");
                        received[index] += 1;
                        let socket = sockets[index].1;
                        driver.submit(completion.key, Op::Receive { socket, into: None });
                    }
                    _ => send(&mut driver, index),
                }
            }
        }
        let least = received.iter().min().expect("some");
        let most = received.iter().max().expect("some");
        assert!(least * 20 > *most, "{policy:?}: {received:?}");
    }
}

/// Sockets that have waited for a buffer must be received before new arrivals: among many busy
/// sockets, some would otherwise be served repeatedly, and others hardly ever.
#[test]
fn readable_sockets_are_served_in_order_of_arrival() {
    // Fewer than can be hot, and more.
    for count in [3 * RECEIVE_BUFFERS, HOT_SOCKETS_MAX + 3 * RECEIVE_BUFFERS] {
        for policy in [Wait::No, Wait::Until(Time::NEVER)] {
            let mut driver = UringDriver::new(&Options {
                sockets: 256,
                ..Options::default()
            })
            .expect("a ring");
            let pairs: Vec<_> = (0..count).map(|_| pair(&mut driver)).collect();
            let keyed = |kind, index| OpKey {
                index: u32::try_from(index).expect("few"),
                ..key(kind)
            };
            let ask = |driver: &mut UringDriver, index: usize| {
                let (near, socket) = pairs[index];
                driver.submit(keyed(2, index), Op::Receive { socket, into: None });
                let list = list(b"x");
                driver.submit(keyed(1, index), Op::Send { socket: near, list });
            };
            for index in 0..count {
                ask(&mut driver, index);
            }
            let mut received = vec![0u32; count];
            let mut completions = Vec::new();
            for _ in 0..2_000 {
                driver.reap(policy, &mut completions).expect("ok");
                for completion in completions.drain(..) {
                    if completion.key.kind == 2 {
                        let index = completion.key.index as usize;
                        received[index] += 1;
                        ask(&mut driver, index);
                    }
                }
                let [least, most] = [received.iter().min(), received.iter().max()];
                // A hot socket is found up to one round before one that the ring reports.
                assert!(
                    most <= least.map(|least| least + 3).as_ref(),
                    "{received:?}"
                );
            }
            assert!(received[0] > 10, "{received:?}");
        }
    }
}

/// A core must sleep, not spin, while the owner keeps every receive buffer.
#[test]
fn a_core_sleeps_while_its_owner_keeps_the_receive_buffers() {
    let mut driver = small();
    let (near, far) = pair(&mut driver);
    let mut kept = Vec::new();
    for _ in 0..RECEIVE_BUFFERS {
        receive(&mut driver, 4, far);
        send_quietly(&mut driver, near);
        for done in gather(&mut driver, 2) {
            if let Outcome::Received(got) = done.outcome {
                kept.push(got.rest);
            }
        }
    }
    assert_eq!(kept.len(), RECEIVE_BUFFERS);
    receive(&mut driver, 4, far);
    send(&mut driver, near, b"patience");
    let (turns, deadline) = (driver.stats.turns, driver.now() + Nanos::from_millis(50));
    let mut completions = Vec::new();
    while driver.now() < deadline {
        let wait = Wait::Until(deadline);
        driver.reap(wait, &mut completions).expect("ok");
    }
    assert!(driver.stats.turns - turns < 8, "it spins");
    assert!(completions.is_empty());
    drop(kept);
    let (buffer, len) = received(wait_for(&mut driver, key(4))).rest.expect("data");
    assert_eq!(&buffer[..len], b"patience");
}

/// A core on which a send always completes at once must still check arrivals.
#[test]
fn sends_that_complete_at_once_do_not_starve_receives() {
    let mut driver = small();
    let (near, _sink) = pair(&mut driver);
    let (other, far) = pair(&mut driver);
    receive(&mut driver, 4, far);
    send_quietly(&mut driver, other);
    let mut completions = Vec::new();
    for _ in 0..100 {
        send_quietly(&mut driver, near);
        let deadline = driver.now() + Nanos::from_secs(1);
        driver
            .reap(Wait::Until(deadline), &mut completions)
            .expect("ok");
    }
    assert!(completions.iter().any(|done| done.key == key(4)));
}

fn send_quietly(driver: &mut UringDriver, socket: SocketId) {
    let list = list(b"x");
    driver.submit(key(3), Op::Send { socket, list });
}

/// A socket without a receive must not occupy a hot slot for ever.
#[test]
fn a_socket_that_nobody_receives_from_does_not_stay_hot() {
    let mut driver = small();
    let (near, far) = pair(&mut driver);
    receive(&mut driver, 4, far);
    send_quietly(&mut driver, near);
    drop(gather(&mut driver, 2));
    assert_eq!(driver.arrivals.hot.len(), 1);
    let deadline = driver.now() + Nanos(HOT_WINDOW.0 * 2);
    let mut completions = Vec::new();
    while driver.now() < deadline {
        driver.reap(Wait::No, &mut completions).expect("ok");
    }
    driver.reap(Wait::No, &mut completions).expect("ok");
    assert!(driver.arrivals.hot.is_empty());
    // It continues as if nothing had happened.
    receive(&mut driver, 4, far);
    send_quietly(&mut driver, near);
    drop(gather(&mut driver, 2));
}

/// A peer that hung up while no receive is outstanding must not keep the core awake.
#[test]
fn hang_ups_without_a_receive_let_the_core_sleep() {
    for reset in [false, true] {
        let mut driver = small();
        let (listener, address) = listening(&mut driver);
        driver.submit(key(1), Op::Accept { listener });
        let peer = TcpStream::connect(address).expect("connected");
        let Outcome::Accepted(Ok((stream, _))) = wait_for(&mut driver, key(1)) else {
            panic!("no peer")
        };
        let socket = driver.adopt(stream);
        // Armed once, so that the ring reports, and then served directly.
        receive(&mut driver, 2, socket);
        let mut completions = Vec::new();
        let wait = soon(&driver);
        driver.reap(wait, &mut completions).expect("ok");
        (&peer).write_all(b"last words").expect("sent");
        drop(received(wait_for(&mut driver, key(2))));
        if reset {
            let peer = socket2::Socket::from(peer);
            let linger = Some(std::time::Duration::ZERO);
            peer.set_linger(linger).expect("a reset on close");
        } else {
            drop(peer);
        }
        let (turns, deadline) = (driver.stats.turns, driver.now() + Nanos::from_millis(50));
        while driver.now() < deadline {
            driver
                .reap(Wait::Until(deadline), &mut completions)
                .expect("ok");
        }
        assert!(completions.is_empty());
        assert!(driver.stats.turns - turns < 8, "it spins");
        receive(&mut driver, 2, socket);
        assert!(received(wait_for(&mut driver, key(2))).result.is_err());
    }
}

#[test]
fn a_list_of_more_ranges_than_the_kernel_takes_is_sent_whole() {
    let mut driver = small();
    let (near, far) = pair(&mut driver);
    let region = crate::Region::new(4096).expect("a mapping").handle();
    let mut list = Box::new(SendList::new());
    while list.fits(1, 2) {
        list.push_header(b"h");
        list.push_payload(IoSlice::new(Memory::Region(region.clone()), 0, 1));
    }
    let bytes = list.bytes();
    driver.submit(key(3), Op::Send { socket: near, list });
    let Outcome::Sent { result, .. } = wait_for(&mut driver, key(3)) else {
        panic!("not sent")
    };
    result.expect("sent");
    let mut seen = 0;
    while seen < bytes {
        receive(&mut driver, 4, far);
        seen += received(wait_for(&mut driver, key(4)))
            .rest
            .expect("data")
            .1;
    }
    assert_eq!(seen, bytes);
}

/// The offset that means "the file's own position" to the kernel must be refused.
#[test]
fn offsets_beyond_any_file_are_refused() {
    let mut driver = small();
    let file = driver.open_file(temporary()).expect("opened");
    for offset in [u64::MAX, 1 << 63] {
        let slice = IoSlice::from_buffer(filled(&driver, 1), 4096);
        let write = Op::Write {
            file,
            offset,
            slice,
            durable: false,
        };
        driver.submit(key(1), write);
        let Outcome::File { result, slice } = wait_for(&mut driver, key(1)) else {
            panic!("no write")
        };
        assert_eq!(
            result.expect_err("refused").kind(),
            io::ErrorKind::InvalidInput
        );
        assert!(slice.is_some());
    }
}

/// A driver dropped during operations leaves no descriptor, and its port is free at once.
#[test]
fn a_dropped_driver_leaves_nothing_behind() {
    if !in_own_process("uring::tests::promises::a_dropped_driver_leaves_nothing_behind") {
        return;
    }
    let open = || std::fs::read_dir("/proc/self/fd").expect("proc").count();
    let mut before = 0;
    for round in 0..20 {
        let mut driver = small();
        let (near, far) = pair(&mut driver);
        receive(&mut driver, 4, far);
        let (port, local) = reserved();
        let options = SocketOptions::default();
        let (listener, address) = driver.listen(local, &options).expect("a free port");
        driver.submit(key(1), Op::Accept { listener });
        let file = driver.open_file(temporary()).expect("opened");
        for kind in 0..8 {
            let slice = IoSlice::from_buffer(filled(&driver, kind), 4096);
            let write = Op::Write {
                file,
                offset: 0,
                slice,
                durable: true,
            };
            driver.submit(key(kind), write);
        }
        if round % 2 == 0 {
            let mut some = Vec::new();
            driver.reap(Wait::No, &mut some).expect("ok");
        }
        // The accepts of these are not reaped.
        let peers = [(); 5].map(|()| TcpStream::connect(address).expect("connected"));
        driver.submit(key(9), Op::Close { socket: near });
        drop(driver);
        drop(peers);
        let again = UringDriver::new(&Options {
            buffers: Vec::new(),
            sockets: 1,
            file_operations: 1,
        });
        let mut again = again.expect("a ring");
        again.listen(address, &options).expect("the port is free");
        drop((again, port));
        if round == 1 {
            before = open();
        }
    }
    assert_eq!(open(), before);
}

#[test]
fn a_released_connection_goes_on_in_another_driver_and_loses_nothing() {
    let (mut driver, mut other) = (small(), small());
    for receives in [false, true] {
        let (near, far) = pair(&mut driver);
        driver.set_class(far, Class::Latency);
        if receives {
            receive(&mut driver, 10, far);
            assert!(gather(&mut driver, 0).is_empty());
        }
        driver.submit(key(11), Op::Release { socket: far });
        // Data that arrives from now on is for the adopting driver.
        let bytes = list(b"late");
        driver.submit(
            key(3),
            Op::Send {
                socket: near,
                list: bytes,
            },
        );
        let mut stream = None;
        for completion in gather(&mut driver, 2 + usize::from(receives)) {
            match completion.outcome {
                Outcome::Received(Received { result, filled, .. }) => {
                    assert_eq!(completion.key, key(10));
                    assert!(result.is_err() && filled == 0);
                    assert!(stream.is_none(), "it ends before the release does");
                }
                Outcome::Released(released) => stream = Some(released),
                Outcome::Sent { result, .. } => result.expect("sent"),
                outcome => panic!("{outcome:?}"),
            }
        }
        assert_eq!(driver.arrivals.urgent_sockets, 0);
        let adopted = other.adopt(stream.expect("handed out"));
        receive(&mut other, 12, adopted);
        let outcome = wait_for(&mut other, key(12));
        let (buffer, len) = received(outcome).rest.expect("data");
        assert_eq!(&buffer[..len], b"late");
    }
}

/// A core with arrivals left from earlier turns must be woken, even if its receive buffers went to
/// hot sockets that counted as left as well.
#[test]
fn a_core_that_sleeps_between_looks_receives_from_every_readable_socket() {
    const SOCKETS: u8 = 24;
    let mut driver = small();
    let pairs: Vec<_> = (0..SOCKETS).map(|_| pair(&mut driver)).collect();
    for round in 0..3 {
        for &(near, _) in &pairs {
            let fd = another_descriptor(&driver, near);
            rustix::net::send(fd, b"here", rustix::net::SendFlags::empty()).expect("some bytes");
        }
        for (kind, &(_, far)) in (0..).zip(&pairs) {
            receive(&mut driver, 100 + kind, far);
        }
        let (mut completions, mut kinds) = (Vec::new(), Vec::new());
        let deadline = driver.now() + Nanos::from_secs(10);
        while kinds.len() < usize::from(SOCKETS) {
            driver
                .reap(Wait::Until(deadline), &mut completions)
                .expect("the ring works");
            assert!(driver.now() < deadline, "round {round}: only {kinds:?}");
            kinds.extend(completions.drain(..).map(|done| done.key.kind));
        }
        kinds.sort_unstable();
        assert!(kinds.into_iter().eq(100..100 + SOCKETS), "once each");
    }
}

/// Sleeps and never ends.
struct Endless;

impl Service for Endless {
    type Message = ();

    fn apply(&mut self, _: Completion, _: &mut Context<'_>) {}

    fn message(&mut self, (): (), _: &mut Context<'_>) {}

    fn maintain(&mut self, _: &mut Context<'_>) {}

    fn deadline(&self) -> Time {
        Time::NEVER
    }

    fn finished(&self) -> bool {
        false
    }
}

/// A target ends when one of its cores does.
#[test]
#[allow(unsafe_code)]
fn a_core_ends_with_the_error_of_its_ring() {
    if !in_own_process("uring::tests::promises::a_core_ends_with_the_error_of_its_ring") {
        return;
    }
    let mut core = Core::new(small(), Endless, PollPolicy::Never);
    let descriptors = std::fs::read_dir("/proc/self/fd").expect("proc");
    let mut descriptors = descriptors.map(|entry| entry.expect("an entry").path());
    let is_ring = |path: &PathBuf| {
        let link = std::fs::read_link(path);
        link.is_ok_and(|link| link.as_os_str() == "anon_inode:[io_uring]")
    };
    let ring = descriptors.find(is_ring).expect("the driver's");
    let name = ring.file_name().and_then(|name| name.to_str());
    let number: i32 = name.and_then(|name| name.parse().ok()).expect("a number");
    let other = File::open("/dev/null").expect("a file that is no ring");
    // SAFETY: nothing else runs in this process, and the driver has nothing in flight that names
    // memory.
    assert!(unsafe { libc::dup2(other.as_raw_fd(), number) } >= 0);
    let error = core.run().expect_err("there is no ring");
    assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP), "{error}");
}
