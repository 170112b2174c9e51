//! Lost connections: requests in flight complete on the next connection, wherever the previous one
//! broke.

use crate::peer;
use crate::peer::{Behaviour, NQN, Peer, builder, connect};
use host::{
    ControllerName, ControllersWatch, Host, HostBuilder, Namespace, Phase, Queue, RequestError,
};
use std::future::Future;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use wire::fabrics::{Connect, ConnectData, InvalidParameter};

/// A short session on an I/O queue. The first connection is the admin queue; the second is cut.
fn session(host: &Host, behaviour: Behaviour) -> (usize, usize) {
    let peer = Peer::start(64 * 1024, behaviour);
    let subsystem = host.connect(&peer.address.to_string(), NQN).unwrap();
    let namespace = subsystem.namespace(1).unwrap();
    let data: Vec<u8> = (0..1024_u32).map(|i| i as u8).collect();
    namespace.write(0, &data).unwrap();
    let mut back = vec![0; 1024];
    namespace.read(0, &mut back).unwrap();
    assert_eq!(back, data);
    namespace.write(512, &data).unwrap();
    namespace.flush().unwrap();
    assert_eq!(peer.memory()[512..1536], data);
    (
        peer.seen.last_connection_bytes.load(Ordering::SeqCst),
        peer.seen.associations.load(Ordering::SeqCst),
    )
}

#[test]
fn an_io_connection_may_break_at_any_byte() {
    let host = builder().digests(true, true).build().unwrap();
    let (whole, _) = session(&host, Behaviour::default());
    assert!(whole > 1024, "{whole}");
    for limit in 0..whole {
        let cut = Some((1, limit));
        let (_, associations) = session(
            &host,
            Behaviour {
                cut,
                ..Behaviour::default()
            },
        );
        assert_eq!(associations, 2, "cut after {limit} bytes");
    }
}

#[test]
fn an_admin_connection_may_break_while_it_is_made_anew() {
    // ICResp, some small answers, and five pages of Identify data.
    for limit in (0..21_000).step_by(487) {
        let peer = Peer::start(64 * 1024, Behaviour::default());
        let namespace = connect(&peer, builder());
        namespace.write(0, &[3; 512]).unwrap();
        // Connections 0 and 1 exist; 2 is the next admin queue.
        peer.change(|behaviour| behaviour.cut = Some((2, limit)));
        peer.cut_all();
        let mut back = [0; 512];
        namespace.read(0, &mut back).unwrap();
        assert_eq!(back, [3; 512], "cut after {limit} bytes");
    }
}

#[test]
fn writes_survive_a_target_that_loses_every_connection_again_and_again() {
    let peer = Peer::start(1 << 20, Behaviour::default());
    let namespace = connect(&peer, builder());
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let namespace = namespace.clone();
            scope.spawn(move || {
                let at = thread * 65_536;
                for round in 0..60_u8 {
                    let data = vec![round; 16_384];
                    namespace.write(at, &data).unwrap();
                    let mut back = vec![0; 16_384];
                    namespace.read(at, &mut back).unwrap();
                    assert!(back == data, "an acknowledged write is what is read");
                }
            });
        }
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(3));
            peer.cut_all();
        }
    });
    assert!(peer.seen.associations.load(Ordering::SeqCst) > 1);
}

#[test]
fn a_swallowed_command_is_aborted_then_sent_again_on_a_new_connection() {
    // The resent command is answered within twice this time.
    let timeout = Duration::from_secs(2);
    let peer = Peer::start(1 << 20, Behaviour::default());
    let namespace = connect(&peer, builder().command_timeout(timeout));
    peer.change(|behaviour| behaviour.swallow = 1);
    namespace.write(0, &[5; 512]).unwrap();
    assert_eq!(peer.memory()[..512], [5; 512]);
    assert_eq!(peer.seen.associations.load(Ordering::SeqCst), 2);
    assert!(peer.seen.aborts.load(Ordering::SeqCst) >= 1);
}

/// Commands must not time out when the thread runs again, before it has processed their answers.
#[test]
fn a_thread_that_does_not_wait_for_a_while_costs_neither_its_requests_nor_anybody_else() {
    // Each awaited answer arrives within this time.
    let timeout = Duration::from_secs(2);
    let peer = Peer::start(1 << 20, Behaviour::default());
    let namespace = connect(&peer, builder().command_timeout(timeout));
    let mut queue = namespace.queue(4).unwrap();
    queue.read(1, 0, 512).unwrap();
    assert_eq!(queue.wait(1).unwrap().count(), 1);
    // The controller requests the data first.
    queue.write(2, 0, &[1; 4096]).unwrap();
    queue.kick();
    std::thread::sleep(timeout * 9 / 8);
    assert_eq!(queue.wait(0).unwrap().count(), 0);
    std::thread::sleep(timeout * 9 / 8);
    assert_eq!(queue.wait(1).unwrap().next().unwrap().result, Ok(()));
    namespace.read(0, &mut [0; 512]).unwrap();
    assert_eq!(peer.seen.aborts.load(Ordering::SeqCst), 0);
    assert_eq!(peer.seen.associations.load(Ordering::SeqCst), 1);
}

/// Different seeds, so they do not reconnect in the same milliseconds.
#[test]
fn each_controller_of_a_host_has_reconnect_delays_of_its_own() {
    let peer = Peer::start(1 << 20, Behaviour::default());
    let host = builder().build().unwrap();
    let options = host.options(&peer.address.to_string(), NQN).unwrap();
    let seeds = [(), ()].map(|()| {
        let subsystem = host.connect_with(options.clone()).unwrap();
        subsystem.association().options().seed
    });
    assert_ne!(seeds[0], seeds[1]);
}

/// A rare check must not extend the time-out by nearly the whole time since the previous one.
#[test]
fn a_command_times_out_also_where_its_thread_looks_seldom() {
    let timeout = Duration::from_secs(2);
    let peer = Peer::start(1 << 20, Behaviour::default());
    let namespace = connect(&peer, builder().command_timeout(timeout));
    let mut queue = namespace.queue(4).unwrap();
    queue.read(1, 0, 512).unwrap();
    assert_eq!(queue.wait(1).unwrap().count(), 1);
    peer.change(|behaviour| behaviour.swallow = 1);
    queue.read(2, 0, 512).unwrap();
    queue.kick();
    for _ in 0..4 {
        // Time for which the queue is not run.
        std::thread::sleep(timeout);
        assert_eq!(queue.wait(0).unwrap().count(), 0);
    }
    let until = Instant::now() + Duration::from_secs(60);
    while peer.seen.aborts.load(Ordering::SeqCst) == 0 {
        assert!(Instant::now() < until, "it was aborted");
        std::thread::yield_now();
    }
}

/// Otherwise the controller would find no buffer for Identify, and lose each association.
#[test]
fn requests_that_hold_every_buffer_do_not_keep_their_host_from_connecting_again() {
    // The host's thread has 672 buffers, and executes 128 requests of each namespace at a time.
    let behaviour = Behaviour {
        hold: 6 * 128,
        ..Behaviour::default()
    };
    let peer = Peer::start(1 << 20, behaviour);
    let host = builder().build().unwrap();
    let connect = |_| host.connect(&peer.address.to_string(), NQN).unwrap();
    let subsystems: Vec<_> = (0..6).map(connect).collect();
    let mut cx = Context::from_waker(Waker::noop());
    let mut reads = Vec::new();
    for subsystem in &subsystems {
        let disk = subsystem.namespace(1).unwrap().asynchronous();
        for _ in 0..128 {
            let mut read = Box::pin(disk.read(0, vec![0; 512]));
            assert!(read.as_mut().poll(&mut cx).is_pending());
            reads.push(read);
        }
    }
    let until = Instant::now() + Duration::from_secs(60);
    while peer.seen.held.load(Ordering::SeqCst) < 672 {
        assert!(Instant::now() < until, "all buffers are taken");
        // Some found the mailbox full.
        for read in &mut reads {
            assert!(read.as_mut().poll(&mut cx).is_pending());
        }
        std::thread::yield_now();
    }
    peer.change(|behaviour| behaviour.hold = 0);
    peer.cut_all();
    let until = Instant::now() + Duration::from_secs(60);
    while !reads.is_empty() {
        assert!(Instant::now() < until, "{} reads are left", reads.len());
        reads.retain_mut(|read| match read.as_mut().poll(&mut cx) {
            Poll::Ready(result) => {
                result.unwrap();
                false
            }
            Poll::Pending => true,
        });
        std::thread::yield_now();
    }
}

#[test]
fn a_target_that_stays_away_fails_requests_after_the_loss_timeout() {
    let peer = Peer::start(1 << 20, Behaviour::default());
    let namespace = connect(
        &peer,
        builder().loss_timeout(Some(Duration::from_millis(50))),
    );
    let device = namespace.device();
    drop(peer);
    let error = namespace.read(0, &mut [0; 512]).unwrap_err();
    assert!(
        matches!(error, RequestError::Device(block::BlockError::Gone)),
        "{error}"
    );
    assert_eq!(device.association().phase(), Phase::Gone);
    let again = namespace.write(0, &[0; 512]).unwrap_err();
    assert!(matches!(
        again,
        RequestError::Device(block::BlockError::Gone)
    ));
}

#[test]
fn a_target_that_comes_back_after_the_loss_timeout_is_used_again_where_that_is_wanted() {
    let timeout = Duration::from_millis(50);
    let builder = builder().loss_timeout(Some(timeout));
    let peer = Peer::start(1 << 20, Behaviour::default());
    let namespace = connect(&peer, builder.keep_reconnecting(true));
    let mut queue = namespace.queue(4).unwrap();
    queue.write(1, 0, &[7; 512]).unwrap();
    assert_eq!(queue.wait(1).unwrap().next().unwrap().result, Ok(()));
    for _ in 0..2 {
        let refuse = Some(wire::nvme::Status::CONNECT_CONTROLLER_BUSY);
        peer.change(|behaviour| behaviour.refuse_connect = refuse);
        peer.cut_all();
        queue.read(2, 0, 512).unwrap();
        let failed = queue.wait(1).unwrap().next().unwrap().result;
        assert_eq!(failed, Err(block::BlockError::Gone));
        queue.write(3, 0, &[8; 512]).unwrap();
        let failed = queue.wait(1).unwrap().next().unwrap().result;
        assert_eq!(failed, Err(block::BlockError::Gone), "at once");
        let error = failure(namespace.read(0, &mut [0; 512]));
        assert_eq!(error, block::BlockError::Gone);
        assert_eq!(namespace.device().association().phase(), Phase::Recovering);

        peer.change(|behaviour| behaviour.refuse_connect = None);
        let by = Instant::now() + Duration::from_secs(60);
        let mut data = [0; 512];
        while namespace.read(0, &mut data).is_err() {
            assert!(Instant::now() < by, "it is connected again");
            std::thread::yield_now();
        }
        assert_eq!(data, [7; 512], "the write that failed was not carried out");
        loop {
            queue.read(4, 0, 512).unwrap();
            let done = queue.wait(1).unwrap().next().unwrap();
            if done.result.is_ok() {
                break;
            }
            assert!(Instant::now() < by, "the queue is connected again");
            std::thread::yield_now();
        }
    }
}

/// The admin queue works all the time.
#[test]
fn a_target_that_refuses_io_queues_fails_requests_after_the_loss_timeout() {
    let peer = Peer::start(1 << 20, Behaviour::default());
    // A reconnect of the admin queue takes less time.
    let patience = Some(Duration::from_secs(5));
    let delays = [20, 100].map(Duration::from_millis);
    let builder = builder().reconnect_delay(delays[0], delays[1]);
    let namespace = connect(&peer, builder.loss_timeout(patience));
    let refuse = Some(wire::nvme::Status::CONNECT_CONTROLLER_BUSY);
    peer.change(|behaviour| behaviour.refuse_io_connect = refuse);
    peer.cut_all();
    let error = failure(namespace.read(0, &mut [0; 512]));
    assert_eq!(error, block::BlockError::Gone);
    let association = namespace.device().association().clone();
    let reason = association.last_error().unwrap().to_string();
    assert!(reason.contains("Connect"), "{reason}");

    // It requests a queue again on the next association.
    peer.change(|behaviour| behaviour.refuse_io_connect = None);
    peer.cut_all();
    let by = Instant::now() + Duration::from_secs(60);
    while namespace.read(0, &mut [0; 512]).is_err() {
        assert!(Instant::now() < by, "a queue is asked for again");
        std::thread::yield_now();
    }
}

/// Such a controller is of no use, although its admin queue works: requests waited for ever.
#[test]
fn a_host_whose_controller_is_another_one_for_its_queues_connects_anew() {
    let unknown = InvalidParameter::in_data(ConnectData::CNTLID_OFFSET);
    let shorter = InvalidParameter::in_command(Connect::SQSIZE_OFFSET);
    for parameter in [unknown, shorter] {
        let peer = Peer::start(1 << 20, Behaviour::default());
        let patience = Some(Duration::from_secs(30));
        let namespace = connect(&peer, builder().loss_timeout(patience));
        peer.change(|behaviour| behaviour.differs = Some((2, parameter)));
        peer.cut_all();
        namespace
            .read(0, &mut [0; 512])
            .expect("on the third association");
        assert_eq!(peer.seen.associations.load(Ordering::SeqCst), 3);
    }
}

/// The association stays live, so requests must not fail until it is lost.
#[test]
fn io_queues_that_were_refused_are_asked_for_again_where_that_is_wanted() {
    let peer = Peer::start(1 << 20, Behaviour::default());
    let builder = builder().loss_timeout(Some(Duration::from_millis(50)));
    let namespace = connect(&peer, builder.keep_reconnecting(true));
    let association = namespace.device().association().clone();
    let refuse = Some(wire::nvme::Status::CONNECT_CONTROLLER_BUSY);
    peer.change(|behaviour| behaviour.refuse_io_connect = refuse);
    peer.cut_all();
    let by = Instant::now() + Duration::from_secs(60);
    // It stays live once requests fail and no attempt loses it any more.
    let mut seen = association.generation();
    let mut since = Instant::now();
    while since.elapsed() < Duration::from_secs(2) {
        assert!(Instant::now() < by, "it stays");
        let error = failure(namespace.read(0, &mut [0; 512]));
        assert_eq!(error, block::BlockError::Gone);
        let generation = association.generation();
        if std::mem::replace(&mut seen, generation) != generation {
            since = Instant::now();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    peer.change(|behaviour| behaviour.refuse_io_connect = None);
    while namespace.read(0, &mut [0; 512]).is_err() {
        assert!(Instant::now() < by, "a queue is asked for again");
        std::thread::yield_now();
    }
    assert_eq!(association.generation(), seen);
}

/// Its queues must not be requested with their old size, which the controller refuses.
#[test]
fn a_target_that_comes_back_with_shorter_queues_gets_as_many_commands_as_they_hold() {
    const SHORT: usize = 7;
    const REQUESTS: usize = 32;
    let peer = Peer::start(1 << 20, Behaviour::default());
    let namespace = connect(&peer, builder());
    let mut queue = namespace.queue(REQUESTS as u16).unwrap();
    queue.flush(0).unwrap();
    assert_eq!(queue.wait(1).unwrap().count(), 1);
    peer.fill(&[1; REQUESTS * 512]);
    peer.change(|behaviour| {
        behaviour.max_queue_entries = SHORT as u16;
        behaviour.hold = REQUESTS;
    });
    peer.cut_all();
    for tag in 0..REQUESTS as u64 {
        queue.write_zeroes(tag, tag * 512, 512).unwrap();
    }
    queue.kick();
    let mut taken = 0;
    while queue.outstanding() > 0 {
        for done in queue.wait(0).unwrap() {
            done.result.unwrap();
        }
        let held = peer.seen.held.load(Ordering::SeqCst);
        if held >= (taken + SHORT).min(REQUESTS) {
            taken += peer.release();
        }
        std::thread::yield_now();
    }
    assert_eq!(peer.seen.held_at_once.load(Ordering::SeqCst), SHORT);
    assert!(peer.memory()[..REQUESTS * 512].iter().all(|&b| b == 0));
}

#[test]
fn a_queue_of_ones_own_recovers_too() {
    let peer = Peer::start(1 << 20, Behaviour::default());
    let namespace = connect(&peer, builder());
    let mut queue = namespace.queue(32).unwrap();
    for round in 0..40_u64 {
        for tag in 0..32 {
            queue.write(tag, tag * 4096, &[round as u8; 4096]).unwrap();
        }
        if round % 4 == 1 {
            peer.cut_all();
        }
        while queue.outstanding() > 0 {
            for done in queue.wait(1).unwrap() {
                done.result.unwrap();
            }
        }
        assert!(peer.memory()[..32 * 4096].iter().all(|&b| b == round as u8));
    }
}

#[test]
fn a_closed_subsystem_fails_requests_instead_of_hanging() {
    let peer = Peer::start(1 << 20, Behaviour::default());
    let host = builder().build().unwrap();
    let subsystem = host.connect(&peer.address.to_string(), NQN).unwrap();
    let namespace = subsystem.namespace(1).unwrap();
    namespace.write(0, &[0; 512]).unwrap();
    subsystem.disconnect();
    // Requests may still succeed before the thread learns of it.
    while namespace.write(0, &[0; 512]).is_ok() {}
    assert!(namespace.read(0, &mut [0; 512]).is_err());
}

#[test]
fn the_lost_controller_is_ended_before_writes_are_sent_again() {
    let peer = Peer::start(1 << 20, Behaviour::default());
    let namespace = connect(&peer, builder());
    for round in 0..3 {
        peer.cut_all();
        namespace.write(0, &[round; 512]).unwrap();
    }
    let ended = peer.seen.ended.lock().unwrap().clone();
    assert_eq!(ended[..2], [1, 2], "each association ends the one before");
}

#[test]
fn a_target_that_cannot_end_controllers_gets_lost_writes_only_after_the_keep_alive_timeout() {
    let behaviour = Behaviour {
        fences: false,
        ..Behaviour::default()
    };
    let peer = Peer::start(1 << 20, behaviour);
    // The memory is checked before this time is over.
    let keep_alive = Duration::from_secs(4);
    let namespace = connect(&peer, builder().keep_alive(keep_alive));
    namespace.write(0, &[1; 512]).unwrap();
    peer.change(|behaviour| behaviour.mischief = Some(peer::Mischief::Hangup));
    std::thread::scope(|scope| {
        let lost = scope.spawn(|| namespace.write(0, &[2; 512]));
        while peer.seen.associations.load(Ordering::SeqCst) < 2 {
            std::thread::yield_now();
        }
        // Other writes and reads continue; an overlapping write waits for the lost one.
        namespace.write(512, &[3; 512]).unwrap();
        assert_eq!(
            peer.memory()[..512],
            [1; 512],
            "the lost write is held back"
        );
        namespace.write(0, &[4; 512]).unwrap();
        lost.join().unwrap().unwrap();
    });
    assert_eq!(peer.memory()[..512], [4; 512], "the newer write came last");
}

/// A queue with one answered write, and one write of the same block that the peer dropped.
fn after_a_lost_write(peer: &Peer, namespace: &Namespace) -> Queue {
    let mut queue = namespace.queue(4).unwrap();
    queue.write(1, 0, &[1; 512]).unwrap();
    assert_eq!(queue.wait(1).unwrap().count(), 1);
    peer.change(|behaviour| behaviour.swallow = 1);
    queue.write(2, 0, &[2; 512]).unwrap();
    queue.kick();
    swallowed(peer);
    queue
}

fn swallowed(peer: &Peer) {
    let mut all = false;
    while !all {
        peer.change(|behaviour| all = behaviour.swallow == 0);
        std::thread::yield_now();
    }
}

/// The first write is dropped and its connections are cut. Its channel is closed, so the write is
/// reported as aborted, before or after there is a new association. Then another channel writes the
/// same block.
fn write_after_an_aborted_one(keep_alive: Duration, close_first: bool) -> (Peer, Namespace) {
    let behaviour = Behaviour {
        fences: false,
        ..Behaviour::default()
    };
    let peer = Peer::start(1 << 20, behaviour);
    let namespace = connect(&peer, builder().keep_alive(keep_alive));
    let association = namespace.device().association().clone();
    let queue = after_a_lost_write(&peer, &namespace);
    let refuse = close_first.then_some(wire::nvme::Status::CONNECT_CONTROLLER_BUSY);
    peer.change(|behaviour| behaviour.refuse_connect = refuse);
    peer.cut_all();
    if close_first {
        while association.phase() == Phase::Live {
            std::thread::yield_now();
        }
        drop(queue);
        peer.change(|behaviour| behaviour.refuse_connect = None);
    } else {
        while association.generation() < 2 {
            std::thread::yield_now();
        }
        drop(queue);
    }
    (peer, namespace)
}

/// The next association must not lower all fences: a newer write would be acknowledged while the
/// given-up one could still overwrite it.
#[test]
fn blocks_of_a_write_that_was_given_up_stay_closed_where_controllers_end_only_by_themselves() {
    for close_first in [true, false] {
        // Longer than this test waits.
        let (peer, namespace) = write_after_an_aborted_one(Duration::from_secs(3600), close_first);
        for _ in 0..2 {
            let error = failure(namespace.write(0, &[3; 1024]));
            assert_eq!(error, block::BlockError::TimedOut);
            namespace.write(512, &[4; 512]).unwrap();
            namespace.read(0, &mut [0; 512]).unwrap();
            let before = namespace.device().association().generation();
            peer.cut_all();
            while namespace.device().association().generation() == before {
                std::thread::yield_now();
            }
        }
        assert_eq!(peer.memory()[..512], [1; 512]);
    }
}

#[test]
fn they_are_open_again_when_the_lost_controller_must_have_ended() {
    let (peer, namespace) = write_after_an_aborted_one(Duration::from_millis(100), false);
    while let Err(error) = namespace.write(0, &[3; 512]) {
        assert!(
            matches!(error, RequestError::Device(block::BlockError::TimedOut)),
            "{error}"
        );
        std::thread::yield_now();
    }
    assert_eq!(peer.memory()[..512], [3; 512]);
}

/// The time after which a lost write may be sent again counts from the close of its connection; an
/// orderly close would leave data in the socket's buffer that arrives later.
#[test]
fn a_connection_with_commands_that_are_given_up_is_reset() {
    let peer = Peer::start(1 << 20, Behaviour::default());
    let namespace = connect(&peer, builder());
    namespace.write(512, &[1; 512]).unwrap();
    let mut queue = after_a_lost_write(&peer, &namespace);
    // The admin queue: the host closes those of the two channels.
    peer.cut_oldest();
    assert_eq!(queue.wait(1).unwrap().count(), 1);
    while peer.seen.resets.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    namespace.write(512, &[1; 512]).unwrap();
    drop((queue, namespace));
    while peer.seen.shutdowns.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    let resets = peer.seen.resets.load(Ordering::SeqCst);
    assert_eq!(resets, 1, "what has nothing under way is closed in order");
    assert_eq!(peer.memory()[..512], [2; 512]);
}

/// A namespace whose write to its first block is lost, at a target that confirms the end of the
/// lost association only with [`Peer::end_controllers`].
fn behind_a_fence(builder: HostBuilder) -> (Peer, Namespace) {
    let peer = Peer::start(1 << 20, Behaviour::default());
    let namespace = connect(&peer, builder);
    namespace.write(0, &[1; 512]).unwrap();
    peer.change(|behaviour| {
        behaviour.mischief = Some(peer::Mischief::Hangup);
        behaviour.slow_fences = true;
    });
    (peer, namespace)
}

fn reconnected(peer: &Peer, associations: usize) {
    while peer.seen.associations.load(Ordering::SeqCst) < associations {
        std::thread::yield_now();
    }
}

fn failure(result: Result<(), RequestError>) -> block::BlockError {
    match result.unwrap_err() {
        RequestError::Device(error) => error,
        other => panic!("{other}"),
    }
}

#[test]
fn only_what_overlaps_with_a_lost_write_waits_for_the_end_of_its_controller() {
    let (peer, namespace) = behind_a_fence(builder());
    std::thread::scope(|scope| {
        let lost = scope.spawn(|| namespace.write(0, &[2; 512]));
        reconnected(&peer, 2);
        let mut back = [0; 512];
        for block in 1..50_u64 {
            namespace.write(block * 512, &[3; 512]).unwrap();
            namespace.read(block * 512, &mut back).unwrap();
            assert_eq!(back, [3; 512]);
        }
        let newer = scope.spawn(|| namespace.write(0, &[4; 1024]));
        namespace.read(0, &mut back).unwrap();
        assert_eq!(back, [1; 512], "neither the lost write nor a newer one");
        // The next association requests the end of both lost ones; the host waits no more for one
        // loss than for the other.
        peer.cut_all();
        namespace.write(50 * 512, &[3; 512]).unwrap();
        assert_eq!(peer.memory()[..512], [1; 512]);
        assert!(!lost.is_finished() && !newer.is_finished());
        while peer.seen.ended.lock().unwrap().len() < 3 {
            std::thread::yield_now();
        }
        assert_eq!(*peer.seen.ended.lock().unwrap(), [1, 1, 2]);
        // Both of this association, and one of the previous association whose answer is no longer
        // awaited.
        assert_eq!(peer.end_controllers(), 3);
        lost.join().unwrap().unwrap();
        newer.join().unwrap().unwrap();
    });
    assert_eq!(peer.memory()[..1024], [4; 1024], "the newer write is last");
}

#[test]
fn controllers_of_another_process_have_ended_when_their_end_is_reported() {
    let slow = Behaviour {
        slow_fences: true,
        ..Behaviour::default()
    };
    let peer = Peer::start(1 << 20, slow);
    let host = builder().build().unwrap();
    let left = [7, 9].map(|cntlid| ControllerName {
        cntlid,
        incarnation: 0,
    });
    let address = peer.address.to_string();
    let end = |id, is_over: bool| host.end_controllers((&address, NQN), id, &left, &|| is_over);
    let own = host.identity().id;
    std::thread::scope(|scope| {
        let ended = scope.spawn(|| end(own, false));
        while peer.seen.ended.lock().unwrap().len() < 2 {
            std::thread::yield_now();
        }
        assert!(!ended.is_finished());
        assert_eq!(peer.end_controllers(), 2);
        ended.join().unwrap().unwrap();
    });
    assert_eq!(*peer.seen.ended.lock().unwrap(), [7, 9]);
    end(own, true).unwrap_err();
    // The end of another host's controllers cannot be requested, only awaited.
    let asked = peer.seen.ended.lock().unwrap().len();
    end([0; 16], true).unwrap_err();
    assert_eq!(peer.seen.ended.lock().unwrap().len(), asked);
}

#[test]
fn a_watch_is_told_of_every_controller_that_may_still_write() {
    #[derive(Debug, Default)]
    struct Seen(Mutex<Vec<Vec<u16>>>);
    impl ControllersWatch for Seen {
        fn note(&self, controllers: &[ControllerName]) {
            let all = controllers.iter().map(|controller| controller.cntlid);
            self.0.lock().unwrap().push(all.collect());
        }
    }
    let (peer, namespace) = behind_a_fence(builder());
    let seen = Arc::new(Seen::default());
    let association = namespace.device().association().clone();
    association.watch_controllers(Arc::clone(&seen) as _);
    assert_eq!(*seen.0.lock().unwrap(), [vec![1]]);
    std::thread::scope(|scope| {
        let lost = scope.spawn(|| namespace.write(0, &[2; 512]));
        namespace.read(512, &mut [0; 512]).unwrap();
        while seen.0.lock().unwrap().len() < 2 {
            std::thread::yield_now();
        }
        assert_eq!(seen.0.lock().unwrap()[1], [1, 2], "both may write");
        while peer.end_controllers() == 0 {
            std::thread::yield_now();
        }
        lost.join().unwrap().unwrap();
    });
}

#[test]
fn an_end_that_is_refused_for_once_is_asked_for_again() {
    let patience = Some(Duration::from_secs(60));
    let (peer, namespace) = behind_a_fence(builder().loss_timeout(patience));
    peer.change(|behaviour| {
        behaviour.slow_fences = false;
        behaviour.refused_ends = 1;
    });
    namespace.write(0, &[2; 512]).unwrap();
    assert_eq!(peer.memory()[..512], [2; 512]);
    assert_eq!(*peer.seen.ended.lock().unwrap(), [1, 1]);
    let associations = peer.seen.associations.load(Ordering::SeqCst);
    assert_eq!(associations, 2, "it took no further loss");
}

#[test]
fn blocks_of_a_write_that_was_given_up_stay_closed_until_its_controller_has_ended() {
    // A reconnect takes less time: a loss of this length is final.
    let patience = Some(Duration::from_secs(3));
    let (peer, namespace) = behind_a_fence(builder().loss_timeout(patience));
    let error = failure(namespace.write(0, &[2; 512]));
    assert_eq!(error, block::BlockError::TimedOut);
    let association = namespace.device().association().clone();
    assert_eq!(association.phase(), Phase::Live);
    let reason = association.last_error().unwrap().to_string();
    assert!(reason.contains("End Controller"), "{reason}");

    // On any channel, and across another loss.
    for round in 0..2 {
        let mut queue = namespace.queue(4).unwrap();
        let error = failure(namespace.write(0, &[3; 1024]));
        assert_eq!(error, block::BlockError::TimedOut);
        queue.write(7, 0, &[3; 512]).unwrap();
        for done in queue.wait(1).unwrap() {
            assert_eq!(done.result, Err(block::BlockError::TimedOut));
        }
        namespace.write(512, &[4; 512]).unwrap();
        namespace.read(0, &mut [0; 512]).unwrap();
        drop(queue);
        if round == 0 {
            peer.cut_all();
            reconnected(&peer, 3);
        }
    }
    assert_eq!(peer.memory()[..512], [1; 512]);

    while !peer.memory()[..512].iter().all(|&byte| byte == 5) {
        peer.end_controllers();
        match namespace.write(0, &[5; 512]) {
            Ok(()) => {}
            Err(RequestError::Device(block::BlockError::TimedOut)) => std::thread::yield_now(),
            Err(other) => panic!("{other}"),
        }
    }
}
