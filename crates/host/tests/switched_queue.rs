//! Queues through a switchboard, as programs use them: the example of the page for programmers, and
//! what a queue promises.
#![allow(clippy::tests_outside_test_module)] // The whole file is one.
#![allow(clippy::unwrap_used)] // What fails here fails the test.

#[path = "../examples/switchboard.rs"]
#[allow(dead_code, unreachable_pub)] // Its `main` is for its users.
mod example;
mod setup;

use host::{
    BlockError, Class, CoreId, Knobs, RequestError, SubmitError, Switchboard, SwitchboardOptions,
    SwitchedQueue, SwitchedQueueOptions,
};
use setup::{connect, start};
use std::time::{Duration, Instant};

/// Longer than anything takes that works.
const PATIENCE: Duration = Duration::from_secs(30);

fn board() -> Switchboard {
    Switchboard::start(&SwitchboardOptions::of_process().unwrap()).unwrap()
}

/// Waits for all requests that are outstanding. Returns the tags with the data of reads.
fn all(queue: &mut SwitchedQueue) -> Vec<(u64, Option<Vec<u8>>)> {
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

/// The page shows the example's functions as they are.
#[test]
fn the_page_for_programmers_shows_the_example() {
    let page = include_str!("../../../docs/programming.md");
    let example = include_str!("../examples/switchboard.rs");
    let section = page.split("### Many threads: the switchboard").nth(1);
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
    // Without lanes of their own, all of them are counted by the board.
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
            class,
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
    // The counters are published while the board works, 10 ms late.
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
    assert_eq!(queue.outstanding(), 0);

    for tag in 0..4 {
        queue.read(tag, 0, 4096).unwrap();
    }
    assert!(matches!(queue.flush(4), Err(SubmitError::Full)));
    // One is taken; what is left stays.
    assert_eq!(queue.wait(4).unwrap().take(1).count(), 1);
    assert_eq!(queue.outstanding(), 3);
    assert_eq!(all(&mut queue).len(), 3);
    assert_eq!(queue.wait(1).unwrap().count(), 0);
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
