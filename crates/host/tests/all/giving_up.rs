//! Requests with a limit, and cancellation: the order of reports, the release of memory, and later
//! writes to the same blocks.

use crate::peer::{Behaviour, Peer, builder, connect};
use crate::{peer, setup};
use block::device::Ram;
use block::layer::{Delay, DelayOptions};
use block::{BlockError, Completion};
use host::{Namespace, Queue, RequestError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use wire::nvme::Status;

const BLOCK: usize = peer::BLOCK;

const SHORT: Duration = Duration::from_millis(30);

/// In-capsule data for writes.
fn in_capsule() -> Behaviour {
    Behaviour {
        in_capsule_bytes: 8192,
        ..Behaviour::default()
    }
}

fn one(queue: &mut Queue) -> Completion {
    queue.wait(1).unwrap().next().unwrap()
}

/// Makes a request time out while the controller holds it, and returns its completion. With a
/// shorter limit it could be given up before it is sent.
fn late(queue: &mut Queue, peer: &Peer, submit: impl Fn(&mut Queue)) -> Completion {
    let mut span = SHORT;
    loop {
        let held = peer.seen.held.load(Ordering::SeqCst);
        peer.change(|behaviour| behaviour.hold = 1);
        queue.set_timeout(Some(span));
        submit(queue);
        let done = one(queue);
        queue.set_timeout(None);
        peer.change(|behaviour| behaviour.hold = 0);
        // Earlier commands arrive before this one.
        queue.read(99, 1000 * BLOCK as u64, BLOCK).unwrap();
        assert_eq!(one(queue).tag, 99);
        if peer.seen.held.load(Ordering::SeqCst) > held {
            return done;
        }
        span *= 2;
    }
}

/// Makes a call through a handle with a limit time out while the controller holds its command. With
/// a shorter limit it could be given up before it is sent or arrives.
fn late_call(
    namespace: &Namespace,
    peer: &Peer,
    call: impl Fn(&Namespace) -> Result<(), RequestError>,
) {
    let mut span = SHORT;
    loop {
        let held = peer.seen.held.load(Ordering::SeqCst);
        peer.change(|behaviour| behaviour.hold = 1);
        is_error(call(&namespace.with_timeout(span)), BlockError::TimedOut);
        peer.change(|behaviour| behaviour.hold = 0);
        // Earlier commands arrive before this one.
        namespace.read(0, &mut [0; BLOCK]).unwrap();
        if peer.seen.held.load(Ordering::SeqCst) > held {
            return;
        }
        span *= 2;
    }
}

fn until(counter: &AtomicUsize, count: usize) {
    while counter.load(Ordering::SeqCst) < count {
        std::thread::yield_now();
    }
}

fn is_error(result: Result<(), RequestError>, expected: BlockError) {
    let error = result.unwrap_err();
    assert!(
        matches!(error, RequestError::Device(found) if found == expected),
        "{error}"
    );
}

/// Late data must not be written to memory that has another owner by then.
#[test]
fn data_that_comes_too_late_goes_nowhere() {
    for (bytes, digests) in [(BLOCK, false), (BLOCK, true), (64 * 1024, false)] {
        let peer = Peer::start(1 << 20, Behaviour::default());
        let namespace = connect(&peer, builder().digests(digests, digests));
        let mut queue = namespace.queue(8).unwrap();
        peer.fill(&[1; 1 << 20]);
        let done = late(&mut queue, &peer, |queue| queue.read(1, 0, bytes).unwrap());
        assert_eq!((done.tag, done.result), (1, Err(BlockError::TimedOut)));
        let mut memory = done.data.unwrap();
        memory.copy_in(0, &vec![9; bytes]);
        until(&peer.seen.aborts, 1);
        assert_eq!(peer.release(), 1);
        // Its answer comes after the late one.
        queue.read(2, 0, BLOCK).unwrap();
        let done = one(&mut queue);
        assert_eq!((done.tag, done.result), (2, Ok(())));
        assert!(memory.bytes().unwrap().iter().all(|&byte| byte == 9));
        assert_eq!(peer.seen.associations.load(Ordering::SeqCst), 1);
        assert_eq!(queue.outstanding(), 0);
    }
}

#[test]
fn a_newer_write_waits_for_one_that_was_given_up() {
    for cancels in [false, true] {
        let peer = Peer::start(1 << 20, in_capsule());
        let namespace = connect(&peer, builder());
        let mut queue = namespace.queue(8).unwrap();
        let mut other = namespace.queue(8).unwrap();
        let write = |queue: &mut Queue| queue.write(1, 0, &[1; 4 * BLOCK]).unwrap();
        if cancels {
            peer.change(|behaviour| behaviour.hold = 1);
            write(&mut queue);
            while peer.seen.held.load(Ordering::SeqCst) == 0 {
                assert_eq!(queue.wait(0).unwrap().count(), 0);
            }
            assert!(queue.cancel(1));
            let done = one(&mut queue);
            assert_eq!((done.tag, done.result), (1, Err(BlockError::Aborted)));
        } else {
            let done = late(&mut queue, &peer, write);
            assert_eq!((done.tag, done.result), (1, Err(BlockError::TimedOut)));
        }
        assert!(!queue.cancel(1), "it is over");

        let seen = peer.seen.io_commands.load(Ordering::SeqCst);
        for queue in [&mut queue, &mut other] {
            queue.write(2, 3 * BLOCK as u64, &[2; BLOCK]).unwrap();
            queue.write(3, 4 * BLOCK as u64, &[3; BLOCK]).unwrap();
            queue.read(4, 0, BLOCK).unwrap();
            let mut tags = [one(queue).tag, one(queue).tag];
            tags.sort_unstable();
            assert_eq!(tags, [3, 4], "what does not overlap goes on");
        }
        assert_eq!(peer.seen.io_commands.load(Ordering::SeqCst), seen + 4);
        // A waiting request can be given up too, and is then never sent.
        queue.write(5, 0, &[5; BLOCK]).unwrap();
        assert!(queue.cancel(5));
        assert_eq!(one(&mut queue).result, Err(BlockError::Aborted));
        assert_eq!(peer.release(), 1);
        for queue in [&mut queue, &mut other] {
            let done = one(queue);
            assert_eq!((done.tag, done.result), (2, Ok(())));
        }
        let memory = peer.memory();
        assert_eq!(memory[..3 * BLOCK], [1; 3 * BLOCK]);
        assert_eq!(memory[3 * BLOCK..4 * BLOCK], [2; BLOCK]);
        assert_eq!(peer.seen.associations.load(Ordering::SeqCst), 1);
    }
}

/// The answer is in the socket of a queue on which no thread waits any more; a newer write to the
/// same block must not wait for it forever.
#[test]
fn a_newer_write_does_not_wait_for_ever_for_a_queue_that_is_left_alone() {
    let peer = Peer::start(1 << 20, in_capsule());
    // The older answer is processed, and the newest write sent, within this time.
    let bound = Duration::from_secs(5);
    let namespace = connect(&peer, builder().command_timeout(bound));
    let (mut queue, mut other) = (namespace.queue(8).unwrap(), namespace.queue(8).unwrap());
    give_up_write(&peer, &mut queue);
    other.write(2, 0, &[2; BLOCK]).unwrap();
    assert_eq!(peer.release(), 1);
    let done = one(&mut other);
    assert_eq!((done.tag, done.result), (2, Err(BlockError::TimedOut)));
    other.write(3, 0, &[3; BLOCK]).unwrap();
    let done = loop {
        assert_eq!(queue.wait(0).unwrap().count(), 0, "it was reported");
        if let Some(done) = other.wait(0).unwrap().next() {
            break done.result;
        }
    };
    assert_eq!(done, Ok(()));
    assert_eq!(peer.memory()[..BLOCK], [3; BLOCK]);
    assert_eq!(peer.seen.associations.load(Ordering::SeqCst), 1);
}

/// A peer, a queue with a given-up write, and a queue with a newer write, which waits for the first
/// one at most as long as the command time-out `bound`.
fn newer_write_waits(bound: Duration) -> (Peer, Queue, Queue) {
    let peer = Peer::start(1 << 20, in_capsule());
    let namespace = connect(&peer, builder().command_timeout(bound));
    let (mut queue, mut other) = (namespace.queue(8).unwrap(), namespace.queue(8).unwrap());
    give_up_write(&peer, &mut queue);
    other.write(2, 0, &[2; BLOCK]).unwrap();
    (peer, queue, other)
}

/// The bound of that wait ends when the newer write is sent. Otherwise the write would be given up
/// while the target could still execute it after a newer write of another host.
#[test]
fn a_write_that_waited_and_was_sent_has_no_limit_any_more() {
    // Half of it is the time for which this machine may stall, here and below.
    let bound = Duration::from_secs(10);
    let (peer, mut queue, mut other) = newer_write_waits(bound);
    let begun = Instant::now();
    while begun.elapsed() < bound / 2 {
        assert_eq!(other.wait(0).unwrap().count(), 0, "it waits");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(peer.release(), 1);
    // The newer write waits until the answer is processed.
    peer.change(|behaviour| behaviour.hold = 1);
    let held = peer.seen.held.load(Ordering::SeqCst);
    while peer.seen.held.load(Ordering::SeqCst) == held {
        assert_eq!(queue.wait(0).unwrap().count(), 0, "it was reported");
        assert_eq!(other.wait(0).unwrap().count(), 0, "it was sent");
    }
    while begun.elapsed() < bound + SHORT {
        assert_eq!(other.wait(0).unwrap().count(), 0, "it has no limit");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(peer.release(), 1);
    let done = one(&mut other);
    assert_eq!((done.tag, done.result), (2, Ok(())));
}

/// The bound also ends if the wait is over while the newer write finds no connection: it is then
/// sent again like a write that had not waited.
#[test]
fn a_write_that_waited_and_cannot_be_sent_yet_has_no_limit_any_more() {
    let bound = Duration::from_secs(3);
    let (peer, mut queue, mut other) = newer_write_waits(bound);
    let begun = Instant::now();
    assert_eq!(other.wait(0).unwrap().count(), 0, "it waits");
    assert_eq!(peer.release(), 1);
    // Its answer comes after the late one.
    queue.read(3, 0, BLOCK).unwrap();
    let done = one(&mut queue);
    assert_eq!((done.tag, done.result), (3, Ok(())));
    peer.change(|behaviour| behaviour.refuse_connect = Some(Status::CONNECT_CONTROLLER_BUSY));
    let connections = peer.seen.connections.load(Ordering::SeqCst);
    peer.cut_all();
    until(&peer.seen.connections, connections + 1);
    while begun.elapsed() < bound + SHORT {
        assert_eq!(other.wait(0).unwrap().count(), 0, "it has no limit");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(other.wait(0).unwrap().count(), 0, "it has no limit");
    peer.change(|behaviour| behaviour.refuse_connect = None);
    let done = one(&mut other);
    assert_eq!((done.tag, done.result), (2, Ok(())));
}

/// Otherwise the target could still execute the write after a newer one.
#[test]
fn closing_a_queue_with_an_unanswered_write_ends_the_association() {
    let peer = Peer::start(1 << 20, in_capsule());
    let namespace = connect(&peer, builder());
    let (mut queue, mut other) = (namespace.queue(8).unwrap(), namespace.queue(8).unwrap());
    give_up_write(&peer, &mut queue);
    drop(queue);
    let mut tag = 2;
    loop {
        other.write(tag, 0, &[2; BLOCK]).unwrap();
        match one(&mut other).result {
            Ok(()) => break,
            // Its blocks are closed until the target has ended the association.
            result => assert_eq!(result, Err(BlockError::TimedOut)),
        }
        tag += 1;
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(peer.seen.associations.load(Ordering::SeqCst), 2);
}

/// Gives up a write of the first block that the target holds, and takes its completion.
fn give_up_write(peer: &Peer, queue: &mut Queue) {
    peer.change(|behaviour| behaviour.hold = 1);
    queue.write(1, 0, &[1; BLOCK]).unwrap();
    while peer.seen.held.load(Ordering::SeqCst) == 0 {
        assert_eq!(queue.wait(0).unwrap().count(), 0);
    }
    assert!(queue.cancel(1));
    assert_eq!(one(queue).result, Err(BlockError::Aborted));
}

#[test]
fn what_the_controller_aborts_is_over() {
    // Its data has not been requested yet.
    let behaviour = Behaviour {
        aborts: true,
        ..Behaviour::default()
    };
    let peer = Peer::start(1 << 20, behaviour);
    let namespace = connect(&peer, builder());
    let mut queue = namespace.queue(8).unwrap();
    let write = |queue: &mut Queue| queue.write(1, 0, &[1; BLOCK]).unwrap();
    let done = late(&mut queue, &peer, write);
    assert_eq!((done.tag, done.result), (1, Err(BlockError::TimedOut)));
    queue.write(2, 0, &[2; BLOCK]).unwrap();
    assert_eq!(one(&mut queue).result, Ok(()));
    assert_eq!(peer.release(), 0);
    assert_eq!(peer.memory()[..BLOCK], [2; BLOCK]);
    assert_eq!(peer.seen.associations.load(Ordering::SeqCst), 1);
}

/// The controller may request the data of a write at any time, so it ends with the connection.
#[test]
fn a_write_of_which_the_data_is_still_wanted_ends_with_its_connection() {
    let peer = Peer::start(1 << 20, Behaviour::default());
    // The peer answers commands that it does not hold within twice this time.
    let timeout = Duration::from_secs(2);
    let namespace = connect(&peer, builder().command_timeout(timeout));
    let mut queue = namespace.queue(8).unwrap();
    peer.change(|behaviour| behaviour.slow_fences = true);
    let write = |queue: &mut Queue| queue.write(1, 0, &[1; BLOCK]).unwrap();
    let done = late(&mut queue, &peer, write);
    assert_eq!((done.tag, done.result), (1, Err(BlockError::TimedOut)));
    // The target may still execute it.
    queue.write(2, 0, &[2; BLOCK]).unwrap();
    queue.write(3, BLOCK as u64, &[3; BLOCK]).unwrap();
    let mut results = [(); 2]
        .map(|()| one(&mut queue))
        .map(|done| (done.tag, done.result));
    results.sort_unstable_by_key(|&(tag, _)| tag);
    assert_eq!(results, [(2, Err(BlockError::TimedOut)), (3, Ok(()))]);
    while peer.end_controllers() == 0 {
        std::thread::yield_now();
    }
    loop {
        queue.write(4, 0, &[4; BLOCK]).unwrap();
        if one(&mut queue).result.is_ok() {
            break;
        }
    }
    assert_eq!(
        peer.memory()[..2 * BLOCK],
        [[4; BLOCK], [3; BLOCK]].concat()
    );
    assert!(peer.seen.associations.load(Ordering::SeqCst) >= 2);
}

#[test]
fn what_was_not_sent_is_not_sent_any_more() {
    let peer = Peer::start(1 << 20, Behaviour::default());
    let namespace = connect(&peer, builder());
    let mut queue = namespace.queue(8).unwrap();
    queue.write(0, 0, &[1; BLOCK]).unwrap();
    one(&mut queue).result.unwrap();
    peer.change(|behaviour| behaviour.refuse_connect = Some(Status::CONNECT_CONTROLLER_BUSY));
    peer.cut_all();
    let writes = peer.seen.writes.load(Ordering::SeqCst);
    queue.write(1, 0, &[2; BLOCK]).unwrap();
    queue.read(2, 0, BLOCK).unwrap();
    queue.kick();
    assert!(queue.cancel(1) && queue.cancel(2));
    for _ in 0..2 {
        let done = one(&mut queue);
        assert_eq!(done.result, Err(BlockError::Aborted));
        assert!(done.data.is_some());
    }
    queue.set_timeout(Some(SHORT));
    queue.write(3, 0, &[2; BLOCK]).unwrap();
    assert_eq!(one(&mut queue).result, Err(BlockError::TimedOut));
    queue.set_timeout(Some(Duration::ZERO));
    queue.write(4, 0, &[2; BLOCK]).unwrap();
    assert_eq!(one(&mut queue).result, Err(BlockError::TimedOut));
    is_error(
        namespace.with_timeout(SHORT).write(0, &[2; BLOCK]),
        BlockError::TimedOut,
    );
    peer.change(|behaviour| behaviour.refuse_connect = None);
    queue.set_timeout(None);
    queue.read(5, 0, BLOCK).unwrap();
    let read = one(&mut queue);
    assert_eq!(read.data.unwrap().bytes().unwrap(), [1; BLOCK]);
    assert_eq!(peer.seen.writes.load(Ordering::SeqCst), writes);
}

#[test]
fn blocking_calls_and_futures_are_given_up() {
    let peer = Peer::start(1 << 20, in_capsule());
    let namespace = connect(&peer, builder());
    let seen = || peer.seen.io_commands.load(Ordering::SeqCst);
    let hold = |count| peer.change(|behaviour| behaviour.hold = count);
    late_call(&namespace, &peer, |bounded| {
        bounded.read(0, &mut [0; BLOCK])
    });
    late_call(&namespace, &peer, |bounded| bounded.write(0, &[1; BLOCK]));
    late_call(&namespace, &peer, Namespace::flush);
    assert_eq!(peer.release(), 3);
    namespace.write(0, &[2; BLOCK]).unwrap();
    assert_eq!(peer.memory()[..BLOCK], [2; BLOCK]);

    for futures in [false, true] {
        let (theirs, canceller) = namespace.cancellable();
        let before = seen();
        hold(1);
        let call = std::thread::spawn(move || {
            if futures {
                let read = theirs.asynchronous().read(0, vec![0; BLOCK]);
                let error = wait(read).map(|_| ()).unwrap_err();
                (theirs, error)
            } else {
                let error = theirs.read(0, &mut [0; BLOCK]).unwrap_err();
                (theirs, error)
            }
        });
        until(&peer.seen.io_commands, before + 1);
        canceller.cancel();
        let (theirs, error) = call.join().unwrap();
        is_error(Err(error), BlockError::Aborted);
        is_error(theirs.read(0, &mut [0; BLOCK]), BlockError::Aborted);
        assert_eq!(seen(), before + 1, "it is cancelled for good");
        peer.release();
        namespace.read(0, &mut [0; BLOCK]).unwrap();
    }
    assert_eq!(peer.seen.associations.load(Ordering::SeqCst), 1);
}

/// More requests than the controller's limit of outstanding Aborts.
#[test]
fn many_are_given_up_at_once() {
    let peer = Peer::start(1 << 20, in_capsule());
    let namespace = connect(&peer, builder());
    let mut queue = namespace.queue(32).unwrap();
    peer.change(|behaviour| {
        behaviour.hold = 32;
        behaviour.aborts = true;
    });
    queue.set_timeout(Some(SHORT));
    for tag in 0..32 {
        queue.write(tag, tag * BLOCK as u64, &[1; BLOCK]).unwrap();
    }
    let mut done = 0;
    while done < 32 {
        for completion in queue.wait(1).unwrap() {
            assert_eq!(completion.result, Err(BlockError::TimedOut));
            done += 1;
        }
    }
    peer.change(|behaviour| behaviour.hold = 0);
    queue.set_timeout(None);
    for tag in 0..32 {
        queue.write(tag, tag * BLOCK as u64, &[2; BLOCK]).unwrap();
    }
    let mut done = 0;
    while done < 32 {
        for completion in queue.wait(1).unwrap() {
            completion.result.unwrap();
            done += 1;
        }
    }
    assert_eq!(peer.memory()[..32 * BLOCK], [2; 32 * BLOCK]);
    assert_eq!(peer.seen.associations.load(Ordering::SeqCst), 1);
}

/// A Switchyard target with a slow device: it cannot answer commands that the device executes.
#[test]
fn a_slow_device_holds_nobody_up() {
    let span = base::Nanos::from_millis(300);
    let ram = Arc::new(Ram::new(1 << 20, 4096).unwrap());
    let options = DelayOptions {
        read: span,
        write: span,
        ..DelayOptions::default()
    };
    let running = setup::start(1);
    let slow = target::NamespaceOptions {
        device: Arc::new(Delay::new(ram, options)),
        ..setup::namespace(2, 4096)
    };
    running.handle.add_namespace(setup::NQN, slow).unwrap();
    let (_host, subsystem) = setup::connect(&running);
    let namespace = subsystem.namespace(2).unwrap();
    let mut queue = namespace.queue(8).unwrap();
    for bytes in [4096, 65_536] {
        // If the machine is fast enough, it completes in time.
        let mut version = 0;
        let last = loop {
            version += 1;
            queue.set_timeout(Some(SHORT));
            queue
                .write(version, 0, &vec![version as u8; bytes])
                .unwrap();
            if one(&mut queue).result == Err(BlockError::TimedOut) {
                break version;
            }
        };
        let read = loop {
            queue.read(0, 0, bytes).unwrap();
            let read = one(&mut queue);
            if read.result == Err(BlockError::TimedOut) {
                break read;
            }
        };
        let mut memory = read.data.unwrap();
        memory.copy_in(0, &vec![0xee; bytes]);
        queue.set_timeout(None);
        queue
            .write(last + 1, 0, &vec![last as u8 + 1; bytes])
            .unwrap();
        assert_eq!(one(&mut queue).result, Ok(()));
        queue.read(last + 2, 0, bytes).unwrap();
        let read = one(&mut queue);
        let found = read.data.unwrap();
        assert!(
            found
                .bytes()
                .unwrap()
                .iter()
                .all(|&byte| byte == last as u8 + 1)
        );
        assert!(memory.bytes().unwrap().iter().all(|&byte| byte == 0xee));
    }
    assert_eq!(subsystem.association().generation(), 1);
}

/// Runs a future on this thread.
fn wait<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut cx = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut cx) {
            std::task::Poll::Ready(output) => return output,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn a_call_that_is_interrupted_is_given_up_and_no_other_one() {
    static INTERRUPTS: AtomicBool = AtomicBool::new(false);
    let peer = Peer::start(1 << 20, in_capsule());
    let interrupts = || INTERRUPTS.load(Ordering::SeqCst);
    let namespace = connect(&peer, builder()).interrupted_by(interrupts);
    peer.change(|behaviour| behaviour.hold = 1);
    let given_up = std::thread::scope(|scope| {
        scope.spawn(|| {
            until(&peer.seen.held, 1);
            INTERRUPTS.store(true, Ordering::SeqCst);
        });
        namespace.read(0, &mut [0; BLOCK]).unwrap_err()
    });
    // Other calls may take longer than the interval at which a waiting call polls.
    INTERRUPTS.store(false, Ordering::SeqCst);
    let is_aborted = matches!(given_up, RequestError::Device(BlockError::Aborted));
    assert!(is_aborted, "{given_up}");
    namespace.read(0, &mut [0; BLOCK]).unwrap();
    assert_eq!(peer.release(), 1);
    namespace.read(0, &mut [0; BLOCK]).unwrap();
}
