//! Blocking calls executed by the calling threads over each I/O path: their transfers, lost
//! connections, dropped namespaces, and threads that get no queue.

use crate::peer::{Behaviour, Mischief, NQN, Peer, builder, connect};
use crate::setup;
use base::Nanos;
use base::units::Lba;
use block::{BlockError, Device as _, Operation, PathDevice, Request, Submit};
use host::{Namespace, RequestError};
use reactor::uring::UringDriver;
use reactor::{Driver as _, Guard, Outcome, Wait};
use std::future::Future as _;
use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};
use switch::{Path, PathRules, PathSpec};
use testing::device::conformance::Bench;
use testing::pattern;

const MIB: usize = 1 << 20;

/// Time after which a waiting test counts as hanging.
const PATIENCE: Duration = Duration::from_secs(60);

fn open(peer: &Peer, path: Path) -> Namespace {
    connect(peer, builder().path(path))
}

/// Writes, reads and all other operations in an area of 4 MiB for each thread.
fn use_area(namespace: &Namespace, area: usize) {
    let start = (area * 4 * MIB) as u64;
    for length in [512, 4096, 65536, 3 * MIB] {
        let data = pattern(area as u64 + 1, length);
        namespace.write(start, &data).unwrap();
        let mut back = vec![0; length];
        namespace.read(start, &mut back).unwrap();
        assert!(back == data, "area {area}, {length} bytes");
    }
    let data = pattern(77, 2 * MIB + 512);
    let (first, second) = data.split_at(100);
    let parts = [IoSlice::new(first), IoSlice::new(second)];
    namespace.write_vectored(start, &parts, true).unwrap();
    let mut back = vec![0; data.len()];
    let (first, second) = back.split_at_mut(MIB + 1);
    let mut parts = [IoSliceMut::new(first), IoSliceMut::new(second)];
    namespace.read_vectored(start, &mut parts).unwrap();
    assert!(back == data, "area {area}, in parts");
    namespace.compare(start, &data[..4096]).unwrap();
    let differs = namespace.compare(start + 512, &data[..4096]);
    let differs = differs.unwrap_err();
    assert!(
        matches!(differs, RequestError::Device(BlockError::CompareFailure)),
        "{differs}"
    );
    namespace.flush().unwrap();
    namespace.write_zeroes(start, 1024).unwrap();
    let mut back = [1; 1024];
    namespace.read(start, &mut back).unwrap();
    assert_eq!(back, [0; 1024]);
}

#[test]
fn threads_call_by_every_path() {
    for path in Path::ALL {
        let peer = Peer::start(16 * MIB, Behaviour::default());
        let namespace = open(&peer, path);
        std::thread::scope(|scope| {
            for area in 0..4 {
                let namespace = &namespace;
                scope.spawn(move || use_area(namespace, area));
            }
        });
        let error = namespace.read(1, &mut [0; 512]).unwrap_err();
        assert!(matches!(error, RequestError::Alignment { .. }), "{error}");
        let end = namespace.size();
        let error = namespace.write(end, &[0; 512]).unwrap_err();
        assert!(matches!(error, RequestError::OutOfRange { .. }), "{error}");
    }
}

#[test]
fn a_path_has_parameters_that_have_an_effect() {
    let path = |text: &str| text.parse::<PathSpec>().unwrap();
    let builder_by = |text| builder().path(path(text));
    let error = builder_by("atm:unplug_threshold=8").build().unwrap_err();
    assert!(error.to_string().contains("have no effect"), "{error}");
    let peer = Peer::start(16 * MIB, Behaviour::default());
    let namespace = connect(&peer, builder_by("stm:table_entries=2,handover_us=500"));
    use_area(&namespace, 0);
}

#[test]
fn calls_wait_for_a_connection_that_was_lost() {
    for path in [Path::Sync, Path::Stm, Path::TwoQueue] {
        let peer = Peer::start(16 * MIB, Behaviour::default());
        let namespace = open(&peer, path);
        namespace.write(0, &[1; 512]).unwrap();
        let begun = peer.seen.associations.load(Ordering::SeqCst);
        peer.change(|behaviour| behaviour.mischief = Some(Mischief::Hangup));
        namespace.write(512, &[2; 512]).unwrap();
        assert!(peer.seen.associations.load(Ordering::SeqCst) > begun);
        let mut back = [0; 1024];
        namespace.read(0, &mut back).unwrap();
        assert_eq!((back[0], back[512]), (1, 2));
    }
}

/// The threads' channels neither keep the host alive nor outlive their namespace for long.
#[test]
fn everything_ends_while_threads_have_channels() {
    let peer = Peer::start(16 * MIB, Behaviour::default());
    let (used, gone) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        let namespace = open(&peer, Path::Sync);
        let (used, gone, peer) = (&used, &gone, &peer);
        let theirs = namespace.clone();
        scope.spawn(move || {
            theirs.write(0, &[1; 512]).unwrap();
            drop(theirs);
            used.wait();
            gone.wait();
            // This also closes its old channel.
            open(peer, Path::Sync).read(0, &mut [0; 512]).unwrap();
        });
        used.wait();
        namespace.read(0, &mut [0; 512]).unwrap();
        let subsystem = namespace.subsystem().clone();
        drop(namespace);
        drop(subsystem);
        gone.wait();
    });
}

/// Waits until `expected` connections of this process to the peer are left.
fn wait_for_connections(peer: &Peer, expected: usize) {
    let SocketAddr::V4(address) = peer.address else {
        panic!("the peer has an address of IPv4");
    };
    // The remote address in the kernel's format, and the state: 01 is ESTABLISHED.
    let ip = address.ip().to_bits().to_be();
    let connection = format!(" {ip:08X}:{:04X} 01 ", address.port());
    let begun = Instant::now();
    loop {
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let established = table.matches(&connection).count();
        if established == expected {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{established} connections");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The connections of this thread and of the host's thread end with the namespace; that of another
/// thread ends with its next call to any namespace.
#[test]
fn channels_of_a_namespace_that_was_dropped_are_closed() {
    let behaviour = Behaviour {
        io_queues: 5,
        ..Behaviour::default()
    };
    let peer = Peer::start(MIB, behaviour);
    let namespace = open(&peer, Path::Sync);
    let subsystem = namespace.subsystem().clone();
    let other = subsystem.namespace(1).unwrap();
    let (used, all_used) = channel();
    let (gone, is_gone) = channel::<()>();
    std::thread::scope(|scope| {
        let (theirs, peer) = (namespace.clone(), &peer);
        scope.spawn(move || {
            other.read(0, &mut [0; 512]).unwrap();
            theirs.read(0, &mut [0; 512]).unwrap();
            drop(theirs);
            used.send(()).unwrap();
            is_gone.recv().unwrap_err();
            other.read(0, &mut [0; 512]).unwrap();
            // Connections of the admin queue, of the host's thread and of this one.
            wait_for_connections(peer, 3);
        });
        all_used.recv().unwrap();
        namespace.read(0, &mut [0; 512]).unwrap();
        wait_for_connections(peer, 6);
        drop(namespace);
        wait_for_connections(peer, 4);
        drop(gone);
    });
    wait_for_connections(&peer, 1);
}

#[test]
fn a_call_after_the_disconnect_fails() {
    let peer = Peer::start(MIB, Behaviour::default());
    let namespace = open(&peer, Path::Stm);
    namespace.write(0, &[1; 512]).unwrap();
    namespace.subsystem().disconnect();
    namespace.write(0, &[1; 512]).unwrap_err();
    let read = std::thread::scope(|scope| {
        let read = scope.spawn(|| namespace.read(0, &mut [0; 512]));
        read.join().unwrap()
    });
    read.unwrap_err();
}

/// The first thread gets the only free queue; the remaining threads use the host's thread.
#[test]
fn threads_without_a_queue_of_their_own_call_through_the_host() {
    let behaviour = Behaviour {
        io_queues: 2,
        ..Behaviour::default()
    };
    let peer = Peer::start(16 * MIB, behaviour);
    let namespace = open(&peer, Path::Sync);
    let used = Barrier::new(3);
    std::thread::scope(|scope| {
        for area in 0..3 {
            let (namespace, used) = (&namespace, &used);
            scope.spawn(move || {
                use_area(namespace, area);
                // No thread ends and releases its queue before all have called.
                used.wait();
            });
        }
    });
    // Connections of the admin queue, of the host's thread and of one other thread.
    assert_eq!(peer.seen.connections.load(Ordering::SeqCst), 3);
}

/// If a queue is not granted again, the thread calls through the host.
#[test]
fn a_thread_that_loses_its_queue_calls_through_the_host() {
    let behaviour = Behaviour {
        io_queues: 2,
        ..Behaviour::default()
    };
    let peer = Peer::start(MIB, behaviour);
    let namespace = open(&peer, Path::Sync);
    namespace.write(0, &[1; 512]).unwrap();
    peer.change(|behaviour| behaviour.io_queues = 1);
    peer.cut_all();
    for round in 2..5 {
        namespace.write(0, &[round; 512]).unwrap();
    }
    assert_eq!(peer.memory()[..512], [4; 512]);
}

/// This includes a call that was in flight.
#[test]
fn a_call_whose_queue_is_not_granted_again_goes_on_through_the_host() {
    for path in [Path::Sync, Path::Stm] {
        let behaviour = Behaviour {
            io_queues: 2,
            slow_fences: true,
            ..Behaviour::default()
        };
        let peer = Peer::start(MIB, behaviour);
        let namespace = open(&peer, path);
        namespace.write(0, &[1; 512]).unwrap();
        let seen = peer.seen.io_commands.load(Ordering::SeqCst);
        peer.change(|behaviour| {
            behaviour.swallow = 1;
            behaviour.io_queues = 1;
        });
        std::thread::scope(|scope| {
            let call = scope.spawn(|| namespace.write(0, &[2; 512]));
            while peer.seen.io_commands.load(Ordering::SeqCst) == seen {
                std::thread::yield_now();
            }
            peer.cut_all();
            // The lost write delays no other call, and is not sent again before its fence is
            // lowered.
            std::thread::scope(|scope| {
                let others = scope.spawn(|| namespace.write(512, &[3; 512]));
                others.join().unwrap().unwrap();
            });
            assert_eq!(peer.memory()[..512], [1; 512]);
            peer.end_controllers();
            call.join().unwrap().unwrap();
        });
        assert_eq!(peer.memory()[..1024], [[2; 512], [3; 512]].concat());
    }
}

/// Otherwise a thread could send another thread's request when its own is answered, and return: the
/// answer would arrive on a connection that no thread runs.
#[test]
fn a_thread_that_returns_leaves_no_request_of_another_one_behind() {
    for path in Path::ALL {
        let peer = Peer::start(MIB, Behaviour::default());
        let namespace = open(&peer, path);
        let (opened, returned) = (Barrier::new(3), Barrier::new(2));
        let (done, results) = channel();
        let (begins, begun) = channel();
        let results = std::thread::scope(|scope| {
            let (namespace, opened, returned, peer) = (&namespace, &opened, &returned, &peer);
            let (first, second) = (done.clone(), done);
            scope.spawn(move || {
                namespace.read(0, &mut [0; 512]).unwrap();
                opened.wait();
                opened.wait();
                let _ = first.send(namespace.read(0, &mut [0; 512]));
                // It calls no more, and lives until the other thread has returned.
                returned.wait();
            });
            scope.spawn(move || {
                namespace.read(0, &mut [0; 512]).unwrap();
                opened.wait();
                opened.wait();
                while peer.seen.held.load(Ordering::SeqCst) == 0 {
                    std::thread::yield_now();
                }
                let _ = begins.send(());
                let _ = second.send(namespace.read(512, &mut [0; 512]));
            });
            opened.wait();
            peer.change(|behaviour| behaviour.hold = 2);
            opened.wait();
            begun.recv().unwrap();
            // Its request is most likely in the queue by then.
            std::thread::sleep(Duration::from_millis(20));
            let end = Instant::now() + PATIENCE;
            let mut returns = Vec::new();
            while returns.len() < 2 && Instant::now() < end {
                peer.release();
                returns.extend(results.recv_timeout(Duration::from_millis(1)));
            }
            returned.wait();
            returns
        });
        assert_eq!(results.len(), 2, "{path}: a call did not return");
        assert!(results.iter().all(Result::is_ok), "{path}: {results:?}");
    }
}

/// A host, and a device that threads share through `stm`.
fn share(peer: &Peer) -> (Namespace, PathDevice) {
    let namespace = open(peer, Path::Sync);
    let device = namespace.device_by(Path::Stm).unwrap();
    (namespace, device.with_requests(8, 4096))
}

fn write(bench: &mut Bench<UringDriver>, lba: u64, fill: u8) -> u64 {
    let mut request = bench.request(Operation::Write { durable: false }, lba, 1);
    request.data.as_mut().unwrap().copy_in(0, &[fill; 512]);
    let tag = request.tag;
    assert!(matches!(bench.submit(request), Submit::Queued));
    tag
}

/// Runs turns of both channels until `done`.
fn turn_both(benches: &mut [Bench<UringDriver>; 2], mut done: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < end, "it waits for ever");
        for bench in &mut *benches {
            bench.turn(Nanos::from_millis(1));
        }
    }
}

/// It must not answer the requests of all threads.
#[test]
fn a_thread_that_gets_no_queue_again_does_not_fail_the_others() {
    let behaviour = Behaviour {
        io_queues: 3,
        ..Behaviour::default()
    };
    let peer = Peer::start(MIB, behaviour);
    let (_namespace, device) = share(&peer);
    let open = || Bench::open(setup::driver(), &device).unwrap();
    let mut benches = [open(), open()];
    peer.change(|behaviour| behaviour.io_queues = 2);
    peer.cut_all();
    // The second one has the last queue, and is elected.
    write(&mut benches[1], 1, 7);
    write(&mut benches[0], 2, 8);
    benches[1].turn(Nanos::ZERO);
    let (mut kept, mut lost) = (None, None);
    let end = Instant::now() + PATIENCE;
    while kept.is_none() || lost.is_none() {
        assert!(Instant::now() < end, "it waits for ever");
        for bench in &mut benches {
            bench.turn(Nanos::from_millis(1));
        }
        kept = kept.or_else(|| benches[0].finished());
        lost = lost.or_else(|| benches[1].finished());
    }
    assert_eq!(kept.map(|done| done.result), Some(Ok(())));
    assert_eq!(lost.map(|done| done.result), Some(Err(BlockError::Gone)));
    benches[0].write(3, &[9; 512]).unwrap();
    assert_eq!(benches[1].write(4, &[9; 512]), Err(BlockError::Gone));
    let memory = peer.memory();
    assert_eq!((memory[1024], memory[1536], memory[2048]), (8, 9, 0));
    for mut bench in benches {
        bench.shut();
    }
}

/// Another thread must not send it while the old command may still be executed.
#[test]
fn a_write_that_is_lost_with_the_queue_of_a_thread_waits_and_is_sent_by_another() {
    let behaviour = Behaviour {
        io_queues: 3,
        slow_fences: true,
        ..Behaviour::default()
    };
    let peer = Peer::start(MIB, behaviour);
    let namespace = open(&peer, Path::Sync);
    // As an attachment does.
    let below = namespace.device().with_queues(1, 8).below_path();
    let device = PathDevice::start(Arc::new(below), Path::Stm, PathRules::default());
    let device = device.unwrap().with_requests(8, 4096);
    let open = || Bench::open(setup::driver(), &device).unwrap();
    let mut benches = [open(), open()];
    peer.change(|behaviour| behaviour.swallow = 2);
    // The second one has the last queue, and takes both requests.
    write(&mut benches[1], 1, 7);
    write(&mut benches[0], 2, 8);
    benches[1].turn(Nanos::ZERO);
    let seen = || peer.seen.io_commands.load(Ordering::SeqCst);
    turn_both(&mut benches, || seen() == 2);
    peer.change(|behaviour| behaviour.io_queues = 2);
    peer.cut_all();
    let (mut kept, mut lost, mut turns) = (None, None, 0);
    let end = Instant::now() + PATIENCE;
    while kept.is_none() || lost.is_none() {
        assert!(Instant::now() < end, "it waits for ever");
        for bench in &mut benches {
            bench.turn(Nanos::from_millis(1));
        }
        kept = kept.or_else(|| benches[0].finished());
        lost = lost.or_else(|| benches[1].finished());
        turns += 1;
        if turns > 100 {
            peer.end_controllers();
        }
    }
    assert_eq!(kept.map(|done| done.result), Some(Ok(())));
    assert_eq!(lost.map(|done| done.result), Some(Err(BlockError::Gone)));
    assert_eq!(peer.memory()[1024], 8);
    for mut bench in benches {
        bench.shut();
    }
}

/// The blocks of a write that its runner left outstanding must be closed, because it could
/// overwrite a newer write.
#[test]
fn a_write_that_a_runner_left_behind_undoes_no_newer_one() {
    for is_lost in [false, true] {
        let behaviour = Behaviour {
            slow_fences: true,
            ..Behaviour::default()
        };
        let peer = Peer::start(MIB, behaviour);
        let (_namespace, device) = share(&peer);
        let open = || Bench::open(setup::driver(), &device).unwrap();
        let mut benches = [open(), open()];
        peer.change(|behaviour| behaviour.swallow = 2);
        write(&mut benches[1], 1, 7);
        let left = write(&mut benches[0], 2, 8);
        // It was elected, and takes both requests.
        benches[1].turn(Nanos::ZERO);
        let seen = || peer.seen.io_commands.load(Ordering::SeqCst);
        turn_both(&mut benches, || seen() == 2);
        if is_lost {
            peer.cut_all();
            let met = || peer.seen.associations.load(Ordering::SeqCst);
            turn_both(&mut benches, || met() == 2);
        }
        let [mut waits, runner] = benches;
        drop(runner);
        let done = waits.wait();
        assert_eq!((done.tag, done.result), (left, Err(BlockError::Aborted)));
        assert_eq!(waits.write(2, &[9; 512]), Err(BlockError::TimedOut));
        let end = Instant::now() + PATIENCE;
        while waits.write(2, &[9; 512]).is_err() {
            assert!(Instant::now() < end, "it waits for ever");
            peer.end_controllers();
        }
        assert_eq!(peer.memory()[1024..1536], [9; 512]);
        waits.shut();
    }
}

/// Their calls must not fill the host's thread.
#[test]
fn targets_that_do_not_answer_hold_up_no_other_one() {
    let host = builder().path(Path::Sync).build().unwrap();
    let peers = [(); 3].map(|()| Peer::start(MIB, Behaviour::default()));
    let namespaces = peers.each_ref().map(|peer| {
        let subsystem = host.connect(&peer.address.to_string(), NQN).unwrap();
        subsystem.namespace(1).unwrap().asynchronous()
    });
    let mut cx = Context::from_waker(Waker::noop());
    let mut unanswered = Vec::new();
    for (peer, namespace) in peers.iter().zip(&namespaces).take(2) {
        peer.change(|behaviour| behaviour.swallow = usize::MAX);
        for _ in 0..200 {
            let mut read = Box::pin(namespace.read(0, vec![0; 512]));
            assert!(read.as_mut().poll(&mut cx).is_pending());
            unanswered.push(read);
        }
    }
    let (done, results) = channel();
    // The host's thread executes the call, because it can be cancelled.
    let (other, _canceller) = namespaces[2].namespace().cancellable();
    std::thread::spawn(move || {
        let _ = done.send(other.read(0, &mut [0; 512]));
    });
    results.recv_timeout(PATIENCE).unwrap().unwrap();
}

/// The driver must not send from, or receive into, memory that is reused.
#[test]
fn a_channel_that_is_abandoned_leaves_no_connection() {
    let behaviour = Behaviour {
        io_queues: 2,
        ..Behaviour::default()
    };
    let peer = Peer::start(MIB, behaviour);
    let namespace = open(&peer, Path::Sync);
    let device = namespace.device().with_queues(1, 8).below_path();
    let mut driver = setup::driver();
    let mut channel = device.open(&mut driver).unwrap();
    peer.change(|behaviour| behaviour.hold = 1);
    let request = Request {
        tag: 1,
        operation: Operation::Flush,
        lba: Lba(0),
        blocks: 0,
        data: None,
    };
    let submit = channel.submit(request, &mut reactor::Context::begin(&mut driver));
    assert!(matches!(submit, Submit::Queued));
    let end = Instant::now() + PATIENCE;
    let mut completions = Vec::new();
    while peer.seen.held.load(Ordering::SeqCst) == 0 {
        assert!(Instant::now() < end, "it waits for ever");
        channel.kick(&mut reactor::Context::begin(&mut driver));
        let soon = Wait::Until(driver.now() + Nanos::from_millis(1));
        driver.reap(soon, &mut completions).unwrap();
        let mut cx = reactor::Context::begin(&mut driver);
        for completion in completions.drain(..) {
            channel.complete(completion, &mut cx);
        }
        channel.tick(&mut cx);
    }
    let guard: Guard = Arc::new(());
    channel.abandon(&guard);
    drop(channel);
    driver.reap(Wait::No, &mut completions).unwrap();
    assert_eq!(Arc::strong_count(&guard), 1);
    while !completions
        .iter()
        .any(|c| matches!(c.outcome, Outcome::Closed))
    {
        assert!(Instant::now() < end, "the connection stays");
        let soon = Wait::Until(driver.now() + Nanos::from_millis(1));
        driver.reap(soon, &mut completions).unwrap();
    }
}
