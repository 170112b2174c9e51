//! A queue that is about to move to another core, and whose connection ends before: the move is
//! cancelled, and the target sees its host close. Regression: the target received nothing more, so
//! the connection lingered, and unread input reset it ahead of the termination request.

use crate::common::late::{self, State};
use crate::common::{BLOCK, Bed, Client, Dialect, NQN, eventually, io};
use base::Nanos;
use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use switch::Knobs;
use switch::thread_scaling::ThreadBounds;
use switchyard_target::Limits;
use wire::nvme::{IoOpcode, SglDescriptor};

/// A queue without a quiet moment is about to move for half of the time, so one of these rounds
/// hits the case.
const ROUNDS: usize = 4;

/// Returns a target on two cores, an admin queue and an idle queue of the first core, and a queue
/// of the second core. That core is to leave use, but the queue stays, because the device holds its
/// read (command identifier 1).
fn held_back() -> (Bed, Arc<State>, [Client; 2], Client) {
    let limits = Limits {
        linger: Nanos::from_secs(10),
        ..Limits::default()
    };
    let (bed, state) = late::bed_with(4, limits);
    let bound = |threads| {
        let knobs = Knobs {
            target_threads: ThreadBounds {
                min: threads,
                max: threads,
            },
            ..bed.handle().knobs()
        };
        bed.handle().set_knobs(knobs).expect("valid knobs");
    };
    bound(2);
    let (admin, cntlid) = bed.controller(Dialect::default());
    let connect = |id| {
        let mut client = Client::dial(bed.address(), Dialect::default());
        client.connect_io(NQN, cntlid, id, 63);
        client
    };
    // The core with fewer queues gets the next queue.
    let idle = connect(1);
    eventually("the first core has a queue", || connections(&bed) == [2, 0]);
    let mut queue = connect(2);
    eventually("and so has the second", || connections(&bed) == [2, 1]);
    send_read(&mut queue, 1);
    eventually("the device holds the read", || {
        state.held.load(Ordering::SeqCst) == 1
    });
    bound(1);
    eventually("one core is in use", || {
        bed.handle().snapshot().threads.active == 1
    });
    (bed, state, [admin, idle], queue)
}

/// Sends a read of a block that the device holds.
fn send_read(queue: &mut Client, cid: u16) {
    let mut read = io(IoOpcode::READ, 0, 1);
    read.set_cid(cid);
    read.set_sgl(SglDescriptor::transport(BLOCK as u32));
    queue.capsule(&read, &[]);
}

fn connections(bed: &Bed) -> Vec<u64> {
    let cores = bed.handle().snapshot().cores;
    cores.iter().map(|core| core.connections).collect()
}

fn lingered(bed: &Bed) -> u64 {
    let cores = bed.handle().snapshot().cores;
    cores.iter().map(|core| core.linger_timeouts).sum()
}

#[test]
fn a_queue_that_was_to_move_is_closed_with_its_subsystem_when_its_host_closes_it() {
    for _ in 0..ROUNDS {
        let (bed, state, others, mut queue) = held_back();
        // The target does not receive again after this command, which it may already have refused.
        send_read(&mut queue, 2);
        std::thread::scope(|scope| {
            let removal = scope.spawn(|| bed.handle().remove_subsystem(NQN));
            eventually("the subsystem is being removed", || {
                let mut late = Client::dial(bed.address(), Dialect::default());
                let data = Client::connect_data(NQN, 0xffff);
                let completion = late.connect(&Client::connect_command(0, 31, 0), &data);
                !completion.status.is_success()
            });
            assert!(bed.handle().responds(Duration::from_secs(60)));
            state.open.store(true, Ordering::SeqCst);
            assert_eq!(queue.fetched(1).1.len(), BLOCK);
            queue.stream.shutdown(Shutdown::Write).expect("a socket");
            let _ = queue.stream.read_to_end(&mut Vec::new());
            drop(others);
            let removed = removal.join().expect("no panic");
            removed.expect("every core lets go of it");
        });
        assert_eq!(lingered(&bed), 0);
    }
}

#[test]
fn a_queue_that_was_to_move_says_why_it_is_terminated() {
    for _ in 0..ROUNDS {
        let (bed, state, others, mut queue) = held_back();
        let sent = queue.stream.write_all(&[0xff; 8]);
        sent.expect("the target reads");
        eventually("the target refuses a PDU of no type", || {
            let cores = bed.handle().snapshot().cores;
            cores.iter().map(|core| core.terminations_sent).sum::<u64>() == 1
        });
        // Further input; then the host closes its half of the connection.
        let sent = queue.stream.write_all(&[0; 1 << 16]);
        sent.expect("the target reads");
        queue.stream.shutdown(Shutdown::Write).expect("a socket");
        state.open.store(true, Ordering::SeqCst);
        eventually("the connection is gone", || connections(&bed)[1] == 0);
        queue.terminated();
        assert_eq!(lingered(&bed), 0);
        drop(others);
    }
}
