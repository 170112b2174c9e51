//! Commands over extents with a limit, cancelled, or not answered: the order of reports, the
//! release of memory, and later writes to the same blocks.

use crate::extents::{Core, WRITE, start, takes};
use crate::peer;
use crate::peer::{Behaviour, Peer, builder};
use base::{Nanos, Time};
use block::{BlockError, Channel, Operation, SubmitExtents};
use reactor::{Context, Driver, IoSlice};
use std::sync::atomic::Ordering;
use std::time::Duration;
use wire::nvme::Status;

const BLOCK: usize = peer::BLOCK;

/// The same with writes whose data it requests by R2T.
fn asks() -> Behaviour {
    Behaviour {
        in_capsule_bytes: 64,
        ..takes(8)
    }
}

impl Core {
    /// Makes a command be given up while the controller holds it. Returns the memory of its
    /// extents.
    fn give_up(
        &mut self,
        peer: &Peer,
        tag: u64,
        operation: Operation,
        cancels: bool,
    ) -> Vec<IoSlice> {
        let held = || peer.seen.held.load(Ordering::SeqCst);
        let mut span = Nanos::from_millis(30);
        loop {
            let before = held();
            peer.change(|behaviour| behaviour.hold = 1);
            let limit = if cancels {
                Time::NEVER
            } else {
                self.driver.now() + span
            };
            self.submit_until(self.command(tag, operation, 1), limit);
            if cancels {
                self.turn_until(|_| held() > before);
                assert!(self.cancel(tag) && !self.cancel(tag));
            }
            let (result, memory) = self.ended(tag);
            let error = if cancels {
                BlockError::Aborted
            } else {
                BlockError::TimedOut
            };
            assert_eq!(result, Err(error));
            peer.change(|behaviour| behaviour.hold = 0);
            // Earlier commands arrive before this one.
            self.write(99, 1000, 0);
            assert_eq!(self.one(99), Ok(()));
            if held() > before {
                return memory;
            }
            // It was given up before it was sent.
            span = Nanos(2 * span.0);
        }
    }
}

#[test]
fn extents_of_a_read_that_comes_too_late_go_nowhere() {
    for (cancels, digests) in [(false, false), (true, true)] {
        let (peer, _host, remote) = start(takes(8), builder().digests(digests, digests));
        peer.fill(&[7; 8 * BLOCK]);
        let mut core = Core::open(&remote);
        let mut memory = core.give_up(&peer, 1, Operation::Read, cancels);
        for data in &mut memory {
            data.copy_in(0, &[9; 2 * BLOCK]);
        }
        assert_eq!(peer.release(), 1);
        // Its answer comes after the late one.
        core.submit(2, Operation::Read, 0);
        let (result, found) = core.ended(2);
        assert_eq!(result, Ok(()));
        let holds = |data: &IoSlice, content| data.bytes().unwrap() == [content; 2 * BLOCK];
        assert!(found.iter().all(|data| holds(data, 7)));
        assert!(memory.iter().all(|data| holds(data, 9)));
        assert_eq!(peer.seen.associations.load(Ordering::SeqCst), 1);
        assert_eq!(core.channel.outstanding(), 0);
    }
}

#[test]
fn a_newer_write_waits_for_extents_that_were_given_up() {
    for cancels in [false, true] {
        let (peer, _host, remote) = start(takes(8), builder());
        let (mut core, mut other) = (Core::open(&remote), Core::open(&remote));
        core.give_up(&peer, 1, WRITE, cancels);
        let seen = peer.seen.io_commands.load(Ordering::SeqCst);
        for core in [&mut core, &mut other] {
            core.write(2, 4, 2);
            core.submit(3, WRITE, 3);
            // In the gap between the extents.
            core.write(4, 2, 4);
            assert_eq!(core.one(4), Ok(()));
        }
        assert_eq!(peer.seen.io_commands.load(Ordering::SeqCst), seen + 2);
        // A waiting command can be given up too, and is then never sent.
        core.submit(5, WRITE, 5);
        assert!(core.cancel(5));
        assert_eq!(core.ended(5).0, Err(BlockError::Aborted));
        assert_eq!(peer.release(), 1);
        for core in [&mut core, &mut other] {
            assert_eq!(core.one(2), Ok(()));
            assert_eq!(core.ended(3).0, Ok(()));
        }
        let memory = peer.memory();
        assert_eq!(memory[..2 * BLOCK], [3; 2 * BLOCK]);
        assert_eq!(memory[2 * BLOCK..3 * BLOCK], [4; BLOCK]);
        assert_eq!(peer.seen.associations.load(Ordering::SeqCst), 1);
    }
}

/// A newer command over extents must not wait forever if no thread runs the queue that gave an
/// older write up, as for a request.
#[test]
fn newer_extents_do_not_wait_for_ever_for_a_queue_that_is_left_alone() {
    // The older answer is processed, and the newest command sent, within this time.
    let bound = Duration::from_secs(5);
    let (peer, _host, remote) = start(takes(8), builder().command_timeout(bound));
    let (mut core, mut other) = (Core::open(&remote), Core::open(&remote));
    peer.change(|behaviour| behaviour.hold = 1);
    core.write(1, 0, 1);
    core.turn_until(|_| peer.seen.held.load(Ordering::SeqCst) == 1);
    assert!(core.cancel(1));
    assert_eq!(core.one(1), Err(BlockError::Aborted));
    other.submit(2, WRITE, 2);
    assert_eq!(peer.release(), 1);
    assert_eq!(other.ended(2).0, Err(BlockError::TimedOut));
    other.submit(3, WRITE, 3);
    while other.done_extents.is_empty() {
        core.turn();
        other.turn();
    }
    assert_eq!(other.ended(3).0, Ok(()));
    assert_eq!(peer.memory()[..2 * BLOCK], [3; 2 * BLOCK]);
    assert_eq!(peer.seen.associations.load(Ordering::SeqCst), 1);
}

#[test]
fn extents_that_the_controller_aborts_are_over() {
    for cancels in [false, true] {
        let behaviour = Behaviour {
            aborts: true,
            ..asks()
        };
        let (peer, _host, remote) = start(behaviour, builder());
        let mut core = Core::open(&remote);
        core.give_up(&peer, 1, WRITE, cancels);
        core.submit(2, WRITE, 2);
        assert_eq!(core.ended(2).0, Ok(()));
        assert_eq!(peer.release(), 0);
        assert_eq!(peer.memory()[3 * BLOCK..5 * BLOCK], [2; 2 * BLOCK]);
        assert_eq!(peer.seen.associations.load(Ordering::SeqCst), 1);
    }
}

/// The controller may request their data at any time, so they end with the connection.
#[test]
fn extents_of_which_the_data_is_still_wanted_end_with_their_connection() {
    let bound = Duration::from_millis(200);
    let (peer, _host, remote) = start(asks(), builder().command_timeout(bound));
    let mut core = Core::open(&remote);
    core.give_up(&peer, 1, WRITE, true);
    loop {
        core.submit(2, WRITE, 2);
        match core.ended(2).0 {
            Ok(()) => break,
            // Its blocks are closed until the controller has ended the association.
            result => assert_eq!(result, Err(BlockError::TimedOut)),
        }
    }
    assert_eq!(peer.memory()[..2 * BLOCK], [2; 2 * BLOCK]);
    assert!(peer.seen.associations.load(Ordering::SeqCst) >= 2);
}

#[test]
fn extents_that_were_not_sent_are_not_sent_any_more() {
    let (peer, _host, remote) = start(takes(8), builder());
    let mut core = Core::open(&remote);
    core.write(1, 0, 1);
    assert_eq!(core.one(1), Ok(()));
    peer.change(|behaviour| behaviour.refuse_connect = Some(Status::CONNECT_CONTROLLER_BUSY));
    peer.cut_all();
    let writes = peer.seen.writes.load(Ordering::SeqCst);
    core.submit(2, WRITE, 2);
    core.submit(3, Operation::Read, 2);
    core.turn();
    assert!(core.cancel(2) && core.cancel(3));
    for tag in [2, 3] {
        assert_eq!(core.ended(tag).0, Err(BlockError::Aborted));
    }
    for span in [Nanos::from_millis(30), Nanos(0)] {
        let limit = core.driver.now() + span;
        core.submit_until(core.command(4, WRITE, 2), limit);
        assert_eq!(core.ended(4).0, Err(BlockError::TimedOut));
    }
    peer.change(|behaviour| behaviour.refuse_connect = None);
    core.submit(5, Operation::Read, 0);
    let (result, found) = core.ended(5);
    assert_eq!(result, Ok(()));
    assert_eq!(found[0].bytes().unwrap()[..BLOCK], [1; BLOCK]);
    assert_eq!(peer.seen.writes.load(Ordering::SeqCst), writes);
}

/// The controller counts a command until it has answered it, even if it was given up here.
#[test]
fn extents_that_were_given_up_count_among_those_in_flight() {
    let (peer, _host, remote) = start(takes(1), builder());
    let mut core = Core::open(&remote);
    core.give_up(&peer, 1, Operation::Read, true);
    let command = core.command(2, Operation::Read, 0);
    let mut cx = Context::begin(&mut core.driver);
    let refused = core.channel.submit_extents(command, &mut cx);
    assert!(matches!(refused, SubmitExtents::Busy(_)), "{refused:?}");
    assert_eq!(peer.release(), 1);
    // Its answer comes after the late one.
    core.write(3, 0, 3);
    assert_eq!(core.one(3), Ok(()));
    core.submit(4, Operation::Read, 0);
    assert_eq!(core.ended(4).0, Ok(()));
}

/// The command time-out applies to them too.
#[test]
fn extents_that_are_not_answered_are_aborted() {
    let behaviour = Behaviour {
        aborts: true,
        hold: 1,
        ..takes(8)
    };
    let bound = Duration::from_millis(200);
    let (peer, _host, remote) = start(behaviour, builder().command_timeout(bound));
    let mut core = Core::open(&remote);
    core.submit(1, Operation::Read, 0);
    assert_eq!(core.ended(1).0, Err(BlockError::TimedOut));
    assert_eq!(peer.seen.aborts.load(Ordering::SeqCst), 1);
}

/// The loss time-out applies to them too.
#[test]
fn extents_end_with_a_target_that_does_not_come_back() {
    let patience = Some(Duration::from_millis(500));
    let bounded = builder().loss_timeout(patience).keep_reconnecting(true);
    let (peer, _host, remote) = start(takes(8), bounded);
    let mut core = Core::open(&remote);
    peer.change(|behaviour| behaviour.hold = 2);
    core.submit(2, Operation::Read, 0);
    core.submit(3, WRITE, 3);
    let held = || peer.seen.held.load(Ordering::SeqCst);
    core.turn_until(|_| held() == 2);
    peer.change(|behaviour| behaviour.refuse_connect = Some(Status::CONNECT_CONTROLLER_BUSY));
    peer.cut_all();
    for tag in [2, 3] {
        assert_eq!(core.ended(tag).0, Err(BlockError::Gone));
    }
}
