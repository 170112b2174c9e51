//! Barriers of a queue and of a namespace, against our own target.

use crate::setup::{connect, start, start_with};
use block::BlockError;
use host::{QueueOptions, RequestError, SubmitError};
use target::Limits;

#[test]
fn requests_on_both_sides_of_a_barrier_complete_in_that_order() {
    let running = start(2);
    let (_host, subsystem) = connect(&running);
    let namespace = subsystem.namespace(1).unwrap();
    namespace.write(0, &[1; 4096]).unwrap();
    namespace.barrier().unwrap();
    let options = QueueOptions {
        depth: 16,
        connections: 3,
        ..QueueOptions::default()
    };
    let mut queue = namespace.queue_with(&options).unwrap();
    for round in 0..50 {
        let mut tags = 0..;
        let mut tag = || tags.next().unwrap();
        for block in 0..10 {
            queue.write(tag(), block * 4096, &[round; 4096]).unwrap();
        }
        queue.barrier(tag()).unwrap();
        for block in 0..10 {
            queue.read(tag(), block * 4096, 4096).unwrap();
        }
        queue.barrier(tag()).unwrap();
        queue.write(tag(), 0, &[round; 4096]).unwrap();
        let mut done = Vec::new();
        while queue.outstanding() > 0 {
            for completion in queue.wait(1).unwrap() {
                completion.result.unwrap();
                if (11..21).contains(&completion.tag) {
                    let mut found = [0; 4096];
                    completion.data.unwrap().copy_out(0, &mut found);
                    assert_eq!(found, [round; 4096]);
                }
                done.push(completion.tag);
            }
        }
        assert_eq!(done.len(), 23);
        let place = |tag| done.iter().position(|&other| other == tag).unwrap();
        for before in 0..10 {
            assert!(place(before) < place(10));
        }
        for between in 11..21 {
            assert!(place(10) < place(between) && place(between) < place(21));
        }
        assert_eq!(place(22), 22);
    }
}

#[test]
fn a_full_queue_takes_no_barrier() {
    let running = start(1);
    let (_host, subsystem) = connect(&running);
    let mut queue = subsystem.namespace(1).unwrap().queue(2).unwrap();
    queue.barrier(0).unwrap();
    queue.barrier(1).unwrap();
    assert!(matches!(queue.barrier(2), Err(SubmitError::Full)));
    let done: Vec<_> = queue.wait(2).unwrap().map(|done| done.tag).collect();
    assert_eq!(done, [0, 1]);
}

#[test]
fn a_target_that_does_not_announce_barriers_is_named_clearly() {
    let running = start_with(
        1,
        Limits {
            barrier: false,
            ..Limits::default()
        },
    );
    let (_host, subsystem) = connect(&running);
    let namespace = subsystem.namespace(1).unwrap();
    let refused = namespace.barrier();
    assert!(matches!(
        refused,
        Err(RequestError::Device(BlockError::Unsupported))
    ));
    namespace.write(0, &[1; 4096]).unwrap();
    let mut queue = namespace.queue(4).unwrap();
    queue.barrier(7).unwrap();
    let done: Vec<_> = queue.wait(1).unwrap().collect();
    assert_eq!(done[0].tag, 7);
    assert_eq!(done[0].result, Err(BlockError::Unsupported));
}
