//! A Flush fails if writes that it covers may be lost: the target came back with an empty write
//! cache.

use crate::peer::{Behaviour, Mischief, NQN, Peer, connected};
use crate::setup;
use base::Nanos;
use base::units::CoreId;
use block::{BlockError, CacheLife, Completion, Device as _, Operation, Submit};
use host::{Host, Namespace, ReplayPolicy, RequestError, Subsystem};
use host::{Switchboard, SwitchboardOptions, SwitchedNamespace};
use reactor::placement::allowed_cores;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::sync::{Barrier, Mutex};
use std::time::Duration;
use switch::{Knobs, Path};
use testing::device::conformance::Bench;
use wire::nvme::identify_controller::NvmIdentifyController;

fn subsystem(cache_life: u64) -> (Peer, Host, Subsystem) {
    connected(Behaviour {
        cache_life: Some(cache_life),
        ..Behaviour::default()
    })
}

fn session(cache_life: u64) -> (Peer, Host, Namespace) {
    let (peer, host, subsystem) = subsystem(cache_life);
    let namespace = subsystem.namespace(1).unwrap();
    (peer, host, namespace)
}

/// In drop order.
type Owners = (Switchboard, Subsystem, Host);

/// The same through a switchboard on these cores, in life 7, with the owners of the namespace.
fn switched_session(cores: Vec<CoreId>) -> (Peer, Owners, SwitchedNamespace) {
    let (peer, host, subsystem) = subsystem(7);
    let knobs = Knobs::switchyard();
    let board = Switchboard::start(&SwitchboardOptions { cores, knobs }).unwrap();
    let device = setup::switched(&board, &subsystem, 1);
    (peer, (board, subsystem, host), device)
}

/// Reconnects to the target with this life of its caches.
fn comes_back(peer: &Peer, cache_life: u64) {
    peer.change(|behaviour| behaviour.cache_life = Some(cache_life));
    peer.cut_all();
}

fn is_lost(flush: Result<(), RequestError>) -> bool {
    matches!(flush, Err(RequestError::Device(BlockError::CacheLost)))
}

#[test]
fn the_first_flush_after_a_loss_fails_and_no_other() {
    let (peer, _host, namespace) = session(7);
    namespace.write(0, &[1; 512]).unwrap();
    comes_back(&peer, 8);
    assert!(is_lost(namespace.flush()));
    namespace.flush().unwrap();
    namespace.write(0, &[2; 512]).unwrap();
    namespace.flush().unwrap();
}

/// It is not repeated on the next association, whose success would prove nothing about earlier
/// losses.
#[test]
fn a_flush_that_is_under_way_fails_as_well() {
    let (peer, _host, namespace) = session(7);
    namespace.write(0, &[1; 512]).unwrap();
    peer.change(|behaviour| {
        behaviour.mischief = Some(Mischief::Hangup);
        behaviour.cache_life = Some(8);
    });
    assert!(is_lost(namespace.flush()));
    namespace.flush().unwrap();
}

#[test]
fn a_flush_succeeds_where_nothing_can_be_lost() {
    let (peer, _host, namespace) = session(7);
    namespace.write(0, &[1; 512]).unwrap();
    comes_back(&peer, 7);
    namespace.flush().unwrap();
    comes_back(&peer, 8);
    namespace.flush().unwrap();
    let mut back = [0; 512];
    namespace.read(0, &mut back).unwrap();
    comes_back(&peer, 9);
    namespace.flush().unwrap();
}

/// A target that does not report the life of its caches may have lost them with the connection.
#[test]
fn a_target_that_does_not_say_is_not_believed() {
    let (peer, _host, namespace) = session(0);
    namespace.write(0, &[1; 512]).unwrap();
    comes_back(&peer, 0);
    assert!(is_lost(namespace.flush()));
    comes_back(&peer, 0);
    namespace.flush().unwrap();
}

/// If the answer to the first part arrives with the end of the connection, all parts are sent
/// again, not only the second.
#[test]
fn a_request_of_several_commands_begins_again_with_the_first() {
    let behaviour = Behaviour {
        cache_life: Some(7),
        lengths: Some(NvmIdentifyController {
            wzsl: 1,
            ..NvmIdentifyController::default()
        }),
        ..Behaviour::default()
    };
    let (peer, _host, subsystem) = connected(behaviour);
    let namespace = subsystem.namespace(1).unwrap();
    peer.fill(&[1; 16_384]);
    peer.change(|behaviour| {
        // The writes that it completes are lost with its cache.
        behaviour.mischief = Some(Mischief::DoneAndTerminate);
        behaviour.cache_life = Some(8);
    });
    namespace.write_zeroes(0, 16_384).unwrap();
    namespace.flush().unwrap();
    assert!(peer.memory()[..16_384].iter().all(|&byte| byte == 0));
}

/// A Flush whose answer is processed after a later loss must not count as reporting that loss:
/// otherwise a write that is acknowledged next is lost, and the next Flush succeeds.
#[test]
fn a_flush_of_a_switchboard_reports_no_loss_that_is_later_than_its_answer() {
    let zeroes = Operation::WriteZeroes {
        deallocate: false,
        durable: false,
    };
    let cores = vec![allowed_cores().unwrap()[0]];
    let (peer, _owners, device) = switched_session(cores);
    let mut late = Bench::open(setup::driver(), &device).unwrap();
    let mut other = Bench::open(setup::driver(), &device).unwrap();
    for (operation, blocks) in [(Operation::Flush, 0), (zeroes, 1)] {
        let request = late.request(operation, 0, blocks);
        assert!(matches!(late.submit(request), Submit::Queued));
    }
    // It is sent and answered after both.
    other.read(0, 1).unwrap();
    comes_back(&peer, 8);
    let lost = Err(BlockError::CacheLost);
    assert_eq!(other.operate(Operation::Flush, 0, 0), lost);
    assert_eq!(late.wait().result, Ok(()), "the loss is later");
    assert_eq!(late.wait().result, Ok(()));
    assert_eq!(late.operate(Operation::Flush, 0, 0), lost);
    late.operate(Operation::Flush, 0, 0).unwrap();
    late.shut();
    other.shut();
}

/// The lane of the other core must not report the same loss to the thread again.
#[test]
fn a_thread_that_moves_to_another_core_of_a_switchboard_hears_of_a_loss_once() {
    let cores = allowed_cores().unwrap();
    let [first, second, ..] = cores[..] else {
        block::skipped("there is one processor");
        return;
    };
    let (peer, _owners, device) = switched_session(vec![first, second]);
    // On a separate thread, which keeps its affinity.
    let moves = move || {
        let mut bench = Bench::open(setup::driver(), &device).unwrap();
        let go_to = |bench: &mut Bench<_>, core: CoreId| {
            let mut only = CpuSet::new();
            only.set(core.0 as usize);
            sched_setaffinity(None, &only).unwrap();
            // The second one uses the lane of that core.
            bench.read(0, 1).unwrap();
            bench.read(0, 1).unwrap();
        };
        go_to(&mut bench, second);
        go_to(&mut bench, first);
        bench.write(0, &[1; 512]).unwrap();
        comes_back(&peer, 8);
        let flush = |bench: &mut Bench<_>| bench.operate(Operation::Flush, 0, 0);
        assert_eq!(flush(&mut bench), Err(BlockError::CacheLost));
        go_to(&mut bench, second);
        assert_eq!(flush(&mut bench), Ok(()), "it is known");
        bench.shut();
    };
    std::thread::spawn(moves).join().unwrap();
}

/// Including one that was submitted before the loss was known.
#[test]
fn each_flush_of_a_switchboard_that_was_under_way_with_the_first_after_a_loss_fails() {
    let cores = vec![allowed_cores().unwrap()[0]];
    let (peer, _owners, device) = switched_session(cores);
    let mut one = Bench::open(setup::driver(), &device).unwrap();
    let mut other = Bench::open(setup::driver(), &device).unwrap();
    one.write(0, &[1; 512]).unwrap();
    comes_back(&peer, 8);
    let lost = Err(BlockError::CacheLost);
    assert_eq!(other.operate(Operation::Flush, 0, 0), lost);
    for _ in 0..2 {
        let flush = one.request(Operation::Flush, 0, 0);
        assert!(matches!(one.submit(flush), Submit::Queued));
    }
    assert_eq!([one.wait().result, one.wait().result], [lost; 2]);
    one.operate(Operation::Flush, 0, 0).unwrap();
    one.shut();
    other.shut();
}

/// Not only the thread whose Flush was the first on the channel.
#[test]
fn each_thread_of_a_path_hears_of_a_loss_once() {
    for path in Path::ALL {
        let (peer, _host, namespace) = session(7);
        let device = namespace.device_by(path).unwrap().with_requests(8, 4096);
        let mut first = Bench::open(setup::driver(), &device).unwrap();
        let mut second = Bench::open(setup::driver(), &device).unwrap();
        first.write(0, &[1; 512]).unwrap();
        second.write(1, &[2; 512]).unwrap();
        comes_back(&peer, 8);
        // If a submitter runs the queue, the Flush goes through the other thread's channel.
        let read = second.request(Operation::Read, 2, 1);
        assert!(matches!(second.submit(read), Submit::Queued));
        let flush = first.request(Operation::Flush, 0, 0);
        assert!(matches!(first.submit(flush), Submit::Queued));
        let (mut read, mut flushed) = (None, None);
        while read.is_none() || flushed.is_none() {
            first.turn(Nanos::from_millis(1));
            second.turn(Nanos::from_millis(1));
            read = read.or_else(|| second.finished());
            flushed = flushed.or_else(|| first.finished());
        }
        let result = |done: Option<Completion>| done.unwrap().result;
        assert_eq!(result(read), Ok(()), "{path}");
        assert_eq!(result(flushed), Err(BlockError::CacheLost), "{path}");
        let flush = |bench: &mut Bench<_>| bench.operate(Operation::Flush, 0, 0);
        assert_eq!(flush(&mut second), Err(BlockError::CacheLost), "{path}");
        assert_eq!(flush(&mut first), Ok(()), "{path}");
        assert_eq!(flush(&mut second), Ok(()), "{path}");
        first.shut();
        second.shut();
    }
}

/// A cache that a live target adds has lost nothing; a later loss of it counts.
#[test]
fn a_life_that_changes_under_a_live_association_is_no_loss() {
    let (peer, _host, namespace) = session(7);
    namespace.write(0, &[1; 512]).unwrap();
    peer.change(|behaviour| behaviour.cache_life = Some(8));
    peer.resize(4096);
    while namespace.size() != 2 << 20 {
        std::thread::yield_now();
    }
    comes_back(&peer, 8);
    namespace.flush().unwrap();
    namespace.write(0, &[1; 512]).unwrap();
    comes_back(&peer, 9);
    assert!(is_lost(namespace.flush()));
}

/// A loss counts as past only once a Flush has reported it. Otherwise requests that began after the
/// loss would ignore the report.
#[test]
fn a_loss_is_one_of_the_past_when_a_flush_has_reported_it() {
    let (peer, _host, namespace) = session(7);
    let device = namespace.device();
    namespace.write(0, &[1; 512]).unwrap();
    comes_back(&peer, 8);
    namespace.read(0, &mut [0; 512]).unwrap();
    assert_eq!(device.cache_losses(), 0);
    assert!(is_lost(namespace.flush()));
    assert_eq!(device.cache_losses(), 1);
}

/// An earlier process served the same client and may have made writes that this process does not
/// know.
#[test]
fn writes_that_another_process_made_are_lost_with_the_life_of_the_caches() {
    let (peer, _host, namespace) = session(7);
    let device = namespace.device();
    comes_back(&peer, 8);
    namespace.flush().unwrap();
    device.inherit_writes();
    comes_back(&peer, 9);
    assert!(is_lost(namespace.flush()));
    device.inherit_writes();
    namespace.flush().unwrap();
    comes_back(&peer, 10);
    namespace.flush().unwrap();
}

#[test]
fn a_device_tells_the_life_of_the_targets_caches() {
    let (peer, _host, namespace) = session(7);
    let device = namespace.device();
    assert_eq!(device.cache_life(), CacheLife::Of(7));
    for (number, life) in [(8, CacheLife::Of(8)), (0, CacheLife::Unknown)] {
        comes_back(&peer, number);
        namespace.read(0, &mut [0; 512]).unwrap();
        assert_eq!(device.cache_life(), life);
    }
    // Without a cache nothing can be lost.
    let (_peer, _host, subsystem) = connected(Behaviour::default());
    let device = subsystem.namespace(1).unwrap().device();
    assert_eq!(device.cache_life(), CacheLife::Machine);
    // A trusted target counts as having one life.
    let peer = Peer::start(
        1 << 20,
        Behaviour {
            cache_life: Some(0),
            ..Behaviour::default()
        },
    );
    let host = Host::builder()
        .replay(ReplayPolicy::Immediate)
        .build()
        .unwrap();
    let subsystem = host.connect(&peer.address.to_string(), NQN).unwrap();
    let device = subsystem.namespace(1).unwrap().device();
    assert_eq!(device.cache_life(), CacheLife::Of(0));
}

/// The host's thread repeats the calls of both, on one channel, which reports the loss only to the
/// first.
#[test]
fn each_thread_hears_of_a_loss_that_took_its_queue_as_well() {
    let peer = Peer::start(
        1 << 20,
        Behaviour {
            cache_life: Some(7),
            io_queues: 3,
            ..Behaviour::default()
        },
    );
    let delays = Duration::from_millis(1);
    let host = Host::builder().path(Path::Stm);
    let host = host.reconnect_delay(delays, 5 * delays).build().unwrap();
    let subsystem = host.connect(&peer.address.to_string(), NQN).unwrap();
    let namespace = subsystem.namespace(1).unwrap();
    let (written, lost) = (Barrier::new(3), Barrier::new(3));
    // The second begins after the loss was reported to the first.
    let turn = Mutex::new(());
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..2)
            .map(|thread| {
                let (namespace, written, lost, turn) = (&namespace, &written, &lost, &turn);
                scope.spawn(move || {
                    namespace.write(512 * thread, &[1; 512]).unwrap();
                    written.wait();
                    lost.wait();
                    let _turn = turn.lock().unwrap();
                    [namespace.flush(), namespace.flush(), namespace.flush()]
                })
            })
            .collect();
        written.wait();
        peer.change(|behaviour| behaviour.io_queues = 1);
        comes_back(&peer, 8);
        lost.wait();
        for thread in all {
            let [first, second, third] = thread.join().unwrap();
            assert!(is_lost(first));
            second.unwrap();
            third.unwrap();
        }
    });
}
