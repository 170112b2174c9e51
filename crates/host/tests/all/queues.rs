//! Controllers that grant few I/O queues: the caller without one receives an error, and no other
//! caller is affected.

use crate::peer::{Behaviour, Peer, connected};
use crate::setup;
use base::{Nanos, Time};
use block::{BlockError, Operation, Submit};
use host::{Host, Phase, QueueOptions, RemoteNamespace, Subsystem, Switchboard};
use host::{RequestError, SwitchboardOptions};
use reactor::PollPolicy;
use reactor::placement::allowed_cores;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use switch::Knobs;
use testing::device::conformance::Bench;
use wire::nvme::Status;

/// A controller that grants two queues.
fn connect() -> (Peer, Host, Subsystem) {
    let behaviour = Behaviour {
        io_queues: 2,
        ..Behaviour::default()
    };
    connected(behaviour)
}

/// The refusal of a third channel must not reset the association of the first two.
#[test]
fn a_channel_that_gets_no_queue_is_refused_and_the_others_go_on() {
    let (peer, _host, subsystem) = connect();
    let namespace = subsystem.namespace(1).unwrap();
    let options = QueueOptions {
        connections: 4,
        ..QueueOptions::default()
    };
    let mut queue = namespace.queue_with(&options).unwrap();
    for _ in 0..2 {
        let error = namespace.queue(4).unwrap_err().to_string();
        assert!(error.contains("all 2 I/O queues"), "{error}");
        let error = subsystem.namespace(1).unwrap_err().to_string();
        assert!(error.contains("use fewer queues"), "{error}");
        namespace.write(0, &[1; 512]).unwrap();
        for tag in 0..8 {
            queue.write(tag, tag * 512, &[2; 512]).unwrap();
        }
        while queue.outstanding() > 0 {
            for done in queue.wait(1).unwrap() {
                done.result.unwrap();
            }
        }
    }
    assert_eq!(peer.seen.associations.load(Ordering::SeqCst), 1);
    assert_eq!(peer.seen.connections.load(Ordering::SeqCst), 3);

    drop(queue);
    let mut anew = namespace.queue(4).unwrap();
    anew.write(1, 0, &[3; 512]).unwrap();
    assert_eq!(anew.wait(1).unwrap().count(), 1);
    assert_eq!(peer.memory()[..512], [3; 512]);
}

/// The refusal must not reset the association of all channels.
#[test]
fn a_queue_that_is_granted_and_then_refused_costs_nobody_else_anything() {
    let behaviour = Behaviour {
        io_queues: 128,
        queues_refused: Some((2, Status::CONNECT_CONTROLLER_BUSY)),
        ..Behaviour::default()
    };
    let (peer, _host, subsystem) = connected(behaviour);
    let namespace = subsystem.namespace(1).unwrap();
    let options = QueueOptions {
        connections: 2,
        ..QueueOptions::default()
    };
    let mut queue = namespace.queue_with(&options).unwrap();
    let error = subsystem.namespace(1).unwrap_err().to_string();
    let status = Status::CONNECT_CONTROLLER_BUSY.to_string();
    assert!(
        error.contains("I/O queue") && error.contains(&status),
        "{error}"
    );
    for tag in 0..8 {
        queue.write(tag, tag * 512, &[2; 512]).unwrap();
    }
    while queue.outstanding() > 0 {
        for done in queue.wait(1).unwrap() {
            done.result.unwrap();
        }
        namespace.read(0, &mut [0; 512]).unwrap();
    }
    assert_eq!(peer.seen.associations.load(Ordering::SeqCst), 1);

    // It has room for one more queue.
    peer.change(|behaviour| behaviour.queues_refused = None);
    let until = Instant::now() + Duration::from_secs(60);
    while peer.seen.live_queues.load(Ordering::SeqCst) < 3 {
        assert!(Instant::now() < until, "the queue is asked for again");
        assert_eq!(queue.wait(0).unwrap().count(), 0);
    }
}

#[test]
fn a_namespace_whose_first_queue_is_refused_is_not_opened() {
    let behaviour = Behaviour {
        queues_refused: Some((0, Status::CONNECT_INVALID_HOST.with_dnr())),
        ..Behaviour::default()
    };
    let (peer, _host, subsystem) = connected(behaviour);
    let error = subsystem.namespace(1).unwrap_err().to_string();
    assert!(error.contains("I/O queue 1"), "{error}");
    let status = Status::CONNECT_INVALID_HOST.with_dnr().to_string();
    assert!(error.contains(&status), "{error}");
    peer.change(|behaviour| behaviour.queues_refused = None);
    subsystem
        .namespace(1)
        .unwrap()
        .read(0, &mut [0; 512])
        .unwrap();
    assert_eq!(peer.seen.associations.load(Ordering::SeqCst), 1);
}

/// A channel was closed and another opened before the target noticed: the refusal must not reset
/// the association of all channels.
#[test]
fn a_queue_that_the_controller_has_still_is_asked_for_again_and_the_others_go_on() {
    let (peer, _host, subsystem) = connect();
    let namespace = subsystem.namespace(1).unwrap();
    let go_on = || namespace.write(0, &[1; 512]).unwrap();
    go_on();
    peer.change(|behaviour| behaviour.queues_in_use = vec![2]);
    let mut queue = namespace.queue(4).unwrap();
    queue.write(1, 512, &[2; 512]).unwrap();
    queue.kick();
    let before = peer.seen.connections.load(Ordering::SeqCst);
    while peer.seen.connections.load(Ordering::SeqCst) < before + 2 {
        assert_eq!(queue.wait(0).unwrap().count(), 0);
        go_on();
    }
    peer.change(|behaviour| behaviour.queues_in_use.clear());
    assert_eq!(queue.wait(1).unwrap().next().unwrap().result, Ok(()));
    go_on();
    assert_eq!(peer.memory()[512..1024], [2; 512]);
    assert_eq!(peer.seen.associations.load(Ordering::SeqCst), 1);
}

/// The first free identifiers are in use at the controller; another one is not.
#[test]
fn another_queue_is_asked_for_where_the_controller_has_one_still() {
    let behaviour = Behaviour {
        io_queues: 4,
        queues_in_use: vec![1, 2, 3],
        ..Behaviour::default()
    };
    let (peer, _host, subsystem) = connected(behaviour);
    subsystem.namespace(1).unwrap().write(0, &[1; 512]).unwrap();
    assert_eq!(peer.memory()[..512], [1; 512]);
    assert_eq!(peer.seen.associations.load(Ordering::SeqCst), 1);
}

#[test]
fn a_channel_whose_queue_is_not_granted_again_fails_and_the_others_go_on() {
    let (peer, _host, subsystem) = connect();
    let first = subsystem.namespace(1).unwrap();
    let second = subsystem.namespace(1).unwrap();
    first.write(0, &[1; 512]).unwrap();
    second.write(512, &[1; 512]).unwrap();
    peer.change(|behaviour| behaviour.io_queues = 1);
    peer.cut_all();
    let error = second.write(512, &[2; 512]).unwrap_err();
    assert!(
        matches!(error, RequestError::Device(BlockError::Gone)),
        "{error}"
    );
    let reason = subsystem.association().last_error().unwrap().to_string();
    assert!(reason.contains("no more I/O queues"), "{reason}");
    first.write(0, &[2; 512]).unwrap();
    second.read(0, &mut [0; 512]).unwrap_err();
    assert_eq!(subsystem.association().phase(), Phase::Live);
    assert_eq!(peer.seen.associations.load(Ordering::SeqCst), 2);
    assert_eq!(peer.memory()[..512], [2; 512]);

    // The next association grants it again.
    peer.change(|behaviour| behaviour.io_queues = 2);
    peer.cut_all();
    first.write(0, &[3; 512]).unwrap();
    while second.write(512, &[3; 512]).is_err() {
        std::thread::yield_now();
    }
    assert_eq!(peer.memory()[..1024], [3; 1024]);
}

/// It must not be due at once while the lanes are full.
#[test]
fn a_channel_sleeps_while_lost_requests_find_no_room() {
    let zeroes = Operation::WriteZeroes {
        deallocate: false,
        durable: false,
    };
    let (peer, _host, subsystem) = connect();
    let remote = RemoteNamespace::new(subsystem.association(), 1).unwrap();
    let mut bench = Bench::open(setup::driver(), &remote.with_queues(2, 4)).unwrap();
    // All on two queues, and half of them again on one.
    peer.change(|behaviour| behaviour.hold = 12);
    for lba in 0..8 {
        let request = bench.request(zeroes, lba, 1);
        assert!(matches!(bench.submit(request), Submit::Queued));
    }
    for held in [8, 12] {
        bench.turn_until("requests are kept", |_| {
            peer.seen.held.load(Ordering::SeqCst) == held
        });
        if held == 8 {
            peer.change(|behaviour| behaviour.io_queues = 1);
            peer.cut_all();
        }
    }
    bench.turn(Nanos::ZERO);
    assert!(bench.deadline() > Time::ZERO);
    peer.release();
    for _ in 0..8 {
        bench.wait().result.unwrap();
    }
    bench.shut();
}

#[test]
fn a_switchboard_that_needs_more_lanes_than_there_are_queues_is_refused() {
    let (peer, _host, subsystem) = connect();
    let namespace = subsystem.namespace(1).unwrap();
    let remote = RemoteNamespace::new(subsystem.association(), 1).unwrap();
    let board = Switchboard::start(&SwitchboardOptions {
        cores: allowed_cores().unwrap(),
        knobs: Knobs::switchyard(),
    })
    .unwrap();
    let error = board.namespace(&remote).unwrap_err().to_string();
    assert!(error.contains("use fewer cores"), "{error}");
    namespace.write(0, &[1; 512]).unwrap();
    assert_eq!(peer.seen.associations.load(Ordering::SeqCst), 1);
}

#[test]
fn a_wait_for_more_than_is_outstanding_ends() {
    let (_peer, _host, subsystem) = connect();
    let namespace = subsystem.namespace(1).unwrap();
    let options = QueueOptions {
        poll: PollPolicy::Never,
        ..QueueOptions::default()
    };
    let mut queue = namespace.queue_with(&options).unwrap();
    let (begin, limit) = (Instant::now(), Duration::from_secs(20));
    assert_eq!(queue.wait_for(3, limit).unwrap().count(), 0);
    queue.write(1, 0, &[1; 512]).unwrap();
    assert_eq!(queue.wait_for(3, limit).unwrap().count(), 1);
    assert_eq!(queue.wait_for(1, limit).unwrap().count(), 0);
    assert!(begin.elapsed() < limit, "a wait slept to its end");
}

#[test]
fn a_queue_that_is_refused_and_a_namespace_that_is_gone_are_told_apart() {
    let (_peer, _host, subsystem) = connect();
    let namespace = subsystem.namespace(1).unwrap();
    let queue = namespace.queue(4).unwrap();
    let busy = rustix::io::Errno::BUSY.raw_os_error();
    assert_eq!(namespace.queue(4).unwrap_err().errno(), busy);
    drop(queue);
    subsystem.disconnect();
    while subsystem.association().phase() != Phase::Gone {
        std::thread::yield_now();
    }
    let error = namespace.queue(4).unwrap_err();
    let gone = rustix::io::Errno::SHUTDOWN.raw_os_error();
    assert_eq!(error.errno(), gone, "{error}");
}
