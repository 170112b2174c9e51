//! Queues through a switchboard, as programs use them: the example of the page for programmers, and
//! the guarantees of a queue.

use crate::peer;
#[path = "../../examples/switchboard.rs"]
#[allow(dead_code, unreachable_pub)] // Its `main` is for its users.
mod example;

use crate::peer::{Behaviour, Peer, builder};
use crate::setup::{connect, start};
use host::{
    BlockError, Class, CoreId, Knobs, Operation, Queue, RequestError, SubmitError, Switchboard,
    SwitchboardOptions, SwitchedQueueOptions,
};
use rustix::event::{PollFd, PollFlags, poll};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Longer than any successful wait.
const PATIENCE: Duration = Duration::from_secs(30);

/// Time-out of requests that are to be given up.
const SHORT: Duration = Duration::from_millis(30);

fn board() -> Switchboard {
    Switchboard::start(&SwitchboardOptions::of_process().unwrap()).unwrap()
}

/// Waits for all outstanding requests. Returns the tags with the data of reads.
fn all(queue: &mut Queue) -> Vec<(u64, Option<Vec<u8>>)> {
    let count = queue.outstanding();
    let done = queue.wait_for(count, PATIENCE).unwrap();
    let done: Vec<_> = done
        .map(|done| {
            done.result.unwrap();
            let data = done.data.map(|data| {
                let mut copy = vec![0; data.len()];
                data.copy_out(0, &mut copy);
                copy
            });
            (done.tag, data)
        })
        .collect();
    assert_eq!(done.len(), count);
    done
}

#[test]
fn the_example_reads_by_both_classes() {
    let running = start(1);
    let address = running.addresses[0].to_string();
    let (average, large) = example::run(&address, 200).unwrap();
    assert!(
        average > Duration::ZERO && large > 0,
        "{average:?}, {large}"
    );
}

/// The page shows the example's functions unchanged.
#[test]
fn the_page_for_programmers_shows_the_example() {
    let page = include_str!("../../../../docs/guide/program.md");
    let example = include_str!("../../examples/switchboard.rs");
    let section = page.split("### Switchboard for many threads").nth(1);
    let block = section.unwrap().split("```").nth(1).unwrap();
    let shown = block.strip_prefix("rust,ignore\n").unwrap();
    for part in shown.split("// …\n") {
        assert!(!part.trim().is_empty() && example.contains(part), "{part}");
    }
}

#[test]
fn each_class_goes_by_its_own_lanes_and_sees_what_the_other_wrote() {
    let running = start(1);
    let (_host, subsystem) = connect(&running);
    let disk = subsystem.namespace(1).unwrap();
    let mut knobs = Knobs::switchyard();
    // Without direct lanes, the switchboard counts all of them.
    knobs.direct_submitters = 0;
    let cores = SwitchboardOptions::of_process().unwrap().cores;
    let first: CoreId = cores[0];
    let board = Switchboard::start(&SwitchboardOptions {
        cores: vec![first],
        knobs,
    })
    .unwrap();
    let open = |class| {
        let options = SwitchedQueueOptions {
            class: Some(class),
            depth: 8,
            request_bytes: 16_384,
            ..SwitchedQueueOptions::default()
        };
        disk.switched_queue(&board, &options).unwrap()
    };
    let (mut latency, mut throughput) = (open(Class::Latency), open(Class::Throughput));
    latency.write(1, 0, &[1; 4096]).unwrap();
    latency.write_durable(2, 4096, &[2; 16_384]).unwrap();
    all(&mut latency);
    throughput.read(3, 0, 4096).unwrap();
    throughput.read(4, 4096, 16_384).unwrap();
    throughput.flush(5).unwrap();
    let mut done = all(&mut throughput);
    done.sort_unstable();
    let data = [
        (3, Some(vec![1; 4096])),
        (4, Some(vec![2; 16_384])),
        (5, None),
    ];
    assert_eq!(done, data);
    throughput.write_zeroes(6, 0, 4096).unwrap();
    throughput.discard(7, 4096, 1 << 20).unwrap();
    all(&mut throughput);
    latency.read(8, 0, 4096).unwrap();
    assert_eq!(all(&mut latency), [(8, Some(vec![0; 4096]))]);
    // The counters are published while the switchboard works, 10 ms late.
    let began = Instant::now();
    while board.counters()[0].requests.iter().any(|(_, &n)| n < 3) {
        assert!(began.elapsed() < PATIENCE, "{:?}", board.counters());
        for queue in [&mut latency, &mut throughput] {
            queue.read(9, 0, 4096).unwrap();
            all(queue);
        }
    }
}

#[test]
fn a_queue_refuses_what_cannot_be_and_says_when_it_is_full() {
    let running = start(1);
    let (_host, subsystem) = connect(&running);
    let disk = subsystem.namespace(1).unwrap();
    let board = board();
    let options = SwitchedQueueOptions {
        depth: 4,
        request_bytes: 8192,
        ..SwitchedQueueOptions::default()
    };
    let mut queue = disk.switched_queue(&board, &options).unwrap();
    for (offset, length) in [(1, 4096), (0, 1), (16 << 20, 4096), (u64::MAX - 4095, 4096)] {
        let error = queue.read(1, offset, length).unwrap_err();
        assert!(matches!(error, SubmitError::Request(_)), "{error}");
    }
    let error = queue.write(1, 0, &[0; 12_288]).unwrap_err();
    let (length, most) = (12_288, 8192);
    let too_long = SubmitError::Request(RequestError::TooLong { length, most });
    assert_eq!(error.to_string(), too_long.to_string());
    assert_eq!((queue.outstanding(), queue.depth()), (0, 4));

    for tag in 0..4 {
        queue.read(tag, 0, 4096).unwrap();
    }
    assert!(matches!(queue.flush(4), Err(SubmitError::Full)));
    // One is taken; the remaining ones stay.
    assert_eq!(queue.wait(4).unwrap().take(1).count(), 1);
    assert_eq!(queue.outstanding(), 3);
    assert_eq!(all(&mut queue).len(), 3);
    assert_eq!(queue.wait(1).unwrap().count(), 0);
}

#[test]
fn a_request_that_the_caller_makes_goes_by_the_class_of_the_namespace() {
    let running = start(1);
    let (_host, subsystem) = connect(&running);
    let disk = subsystem.namespace_with(1, Class::Latency).unwrap();
    let mut options = SwitchboardOptions::of_process().unwrap();
    options.knobs.direct_submitters = 0;
    let board = Switchboard::start(&options).unwrap();
    let options = SwitchedQueueOptions::default();
    let mut queue = disk.switched_queue(&board, &options).unwrap();
    let began = Instant::now();
    // The counters are published while the switchboard works, 10 ms late.
    let of = |class| board.counters().iter().any(|core| core.requests[class] > 0);
    while !of(Class::Latency) {
        assert!(began.elapsed() < PATIENCE, "{:?}", board.counters());
        let mut data = queue.buffer(4096).unwrap();
        data.copy_in(0, &[9; 4096]);
        let write = Operation::Write { durable: true };
        let request = queue.request(1, write, 8192, 4096, Some(data)).unwrap();
        queue.submit(request).unwrap();
        all(&mut queue);
    }
    assert!(!of(Class::Throughput), "{:?}", board.counters());
    queue.read(2, 8192, 4096).unwrap();
    assert_eq!(all(&mut queue), [(2, Some(vec![9; 4096]))]);
}

#[test]
fn requests_of_a_subsystem_that_is_disconnected_are_answered() {
    let running = start(1);
    let (_host, subsystem) = connect(&running);
    let disk = subsystem.namespace(1).unwrap();
    let mut queue = disk
        .switched_queue(&board(), &SwitchedQueueOptions::default())
        .unwrap();
    queue.read(1, 0, 4096).unwrap();
    all(&mut queue);
    subsystem.disconnect();
    let began = Instant::now();
    loop {
        assert!(began.elapsed() < PATIENCE);
        match queue.read(2, 0, 4096) {
            Err(SubmitError::Request(RequestError::Device(BlockError::Gone))) => break,
            submitted => submitted.unwrap(),
        }
        let done = queue.wait(1).unwrap().next().unwrap();
        if done.result == Err(BlockError::Gone) {
            break;
        }
    }
}

/// Polls the descriptor of a queue until it is readable, or until `timeout`.
fn readable(queue: &mut Queue, timeout: Duration) -> bool {
    let timeout = timeout.try_into().unwrap();
    let fd = queue.readiness().unwrap();
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    poll(&mut fds, Some(&timeout)).unwrap() > 0
}

#[test]
fn a_queue_serves_an_event_loop_through_its_descriptor() {
    let running = start(1);
    let (_host, subsystem) = connect(&running);
    let disk = subsystem.namespace(1).unwrap();
    let board = board();
    // The queue of `Latency` has a direct lane, and uses the ingress too.
    for class in Class::ALL {
        let options = SwitchedQueueOptions {
            class: Some(class),
            ..SwitchedQueueOptions::default()
        };
        let mut queue = disk.switched_queue(&board, &options).unwrap();
        queue.readiness().unwrap();
        let (mut sent, mut done) = (0_u64, 0);
        while done < 4_000 {
            while sent < done + 16 {
                let offset = sent % 1000 * 4096;
                match sent % 3 {
                    0 => queue.write(sent, offset, &[7; 4096]).unwrap(),
                    1 => queue.read(sent, offset, 4096).unwrap(),
                    _ => queue.flush(sent).unwrap(),
                }
                sent += 1;
            }
            queue.kick();
            assert!(readable(&mut queue, PATIENCE), "{done} of {sent} done");
            // The remaining completions make it readable again.
            for completion in queue.wait(0).unwrap().take(3) {
                completion.result.unwrap();
                done += 1;
            }
        }
        all(&mut queue);
        // Spurious wake-ups are possible, but must end.
        while readable(&mut queue, Duration::ZERO) {
            assert_eq!(queue.wait(0).unwrap().count(), 0);
        }
    }
}

/// A switchboard of one core over a peer, with or without direct lanes, and a queue.
fn queue_of(peer: &Peer, class: Class, direct: bool, depth: u32) -> (Switchboard, Queue) {
    let mut knobs = Knobs::switchyard();
    knobs.direct_submitters = direct.into();
    let mut cores = SwitchboardOptions::of_process().unwrap().cores;
    cores.truncate(1);
    let board = Switchboard::start(&SwitchboardOptions { cores, knobs }).unwrap();
    let options = SwitchedQueueOptions {
        class: Some(class),
        depth,
        request_bytes: 4096,
        ..SwitchedQueueOptions::default()
    };
    let namespace = peer::connect(peer, builder());
    let queue = namespace.switched_queue(&board, &options).unwrap();
    (board, queue)
}

/// Returns the tag and result of the next completed request.
fn one(queue: &mut Queue) -> (u64, Result<(), BlockError>) {
    let done = queue.wait_for(1, PATIENCE).unwrap().next().unwrap();
    (done.tag, done.result)
}

#[test]
fn requests_end_when_they_are_given_up() {
    let ways = [
        (Class::Throughput, false),
        (Class::Latency, false),
        (Class::Latency, true),
    ];
    for (class, direct) in ways {
        let peer = Peer::start(1 << 20, Behaviour::default());
        let (_board, mut queue) = queue_of(&peer, class, direct, 8);
        for round in 0..3 {
            peer.change(|behaviour| behaviour.hold = 2);
            queue.read(1, 0, 4096).unwrap();
            queue.read(2, 4096, 4096).unwrap();
            while peer.seen.held.load(Ordering::SeqCst) < 4 * round + 2 {
                assert_eq!(queue.wait(0).unwrap().count(), 0);
            }
            assert!(!queue.cancel(3), "there is none");
            assert!(queue.cancel(1));
            assert_eq!(one(&mut queue), (1, Err(BlockError::Aborted)));
            assert!(!queue.cancel(1), "it is over");
            assert_eq!(peer.release(), 2);
            assert_eq!(one(&mut queue), (2, Ok(())));

            peer.change(|behaviour| behaviour.hold = 2);
            queue.write_zeroes(4, 0, 4096).unwrap();
            queue.set_timeout(Some(SHORT));
            queue.read(5, 8192, 4096).unwrap();
            queue.set_timeout(None);
            assert_eq!(one(&mut queue), (5, Err(BlockError::TimedOut)));
            while peer.seen.held.load(Ordering::SeqCst) < 4 * round + 4 {
                assert_eq!(queue.wait(0).unwrap().count(), 0);
                // It may have timed out before it was sent.
                if queue.outstanding() == 1 {
                    queue.read(6, 16_384, 4096).unwrap();
                }
            }
            peer.release();
            while queue.outstanding() > 0 {
                assert_eq!(one(&mut queue).1, Ok(()));
            }
        }
        // Slots and memory are free again.
        for tag in 0..8 {
            queue.read(tag, tag * 4096, 4096).unwrap();
        }
        assert_eq!(all(&mut queue).len(), 8);
    }
}

/// A lane holds at most 512 commands; further requests wait for one of them.
#[test]
fn requests_without_a_place_in_a_lane_end_when_they_are_given_up() {
    let peer = Peer::start(1 << 20, Behaviour::default());
    let (_board, mut queue) = queue_of(&peer, Class::Throughput, false, 600);
    peer.change(|behaviour| behaviour.hold = usize::MAX);
    for tag in 0..560 {
        queue.read(tag, tag * 512, 512).unwrap();
    }
    queue.set_timeout(Some(SHORT));
    queue.read(560, 0, 512).unwrap();
    assert_eq!(one(&mut queue), (560, Err(BlockError::TimedOut)));
    assert!(queue.cancel(555) && queue.cancel(2));
    let mut ended = [one(&mut queue), one(&mut queue)];
    ended.sort_by_key(|&(tag, _)| tag);
    let aborted = Err(BlockError::Aborted);
    assert_eq!(ended, [(2, aborted), (555, aborted)]);
    peer.change(|behaviour| behaviour.hold = 0);
    while queue.outstanding() > 0 {
        peer.release();
        for done in queue.wait_for(1, SHORT).unwrap() {
            assert_eq!(done.result, Ok(()), "{}", done.tag);
        }
    }
}
