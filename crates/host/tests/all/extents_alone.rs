//! Commands over extents that the target no longer supports after a reconnect: their extents are
//! sent as separate commands, wherever they were when the connection broke.

use crate::extents::{BLOCK, Core, RANGES, WRITE, start, takes, terms};
use crate::peer::{Behaviour, Peer, builder};
use base::{Nanos, Time};
use block::{BlockError, Extents, Operation};
use host::HostBuilder;
use reactor::Driver as _;
use std::sync::atomic::Ordering;
use std::time::Duration;
use wire::nvme::ExtentTerms;

/// Initial content of the namespace.
const OLD: u8 = 7;

/// Breaks all connections; the controller supports commands over extents with these limits on the
/// next ones.
fn come_back(peer: &Peer, extents: Option<ExtentTerms>) {
    peer.change(|behaviour| behaviour.extents = extents);
    peer.cut_all();
}

fn commands(peer: &Peer) -> usize {
    peer.seen.io_commands.load(Ordering::SeqCst)
}

fn held(peer: &Peer) -> usize {
    peer.seen.held.load(Ordering::SeqCst)
}

/// Asserts that the blocks of the extents have this content, and that the gap has its initial
/// content.
fn assert_written(peer: &Peer, content: u8) {
    let memory = peer.memory();
    assert_eq!(memory[..2 * BLOCK], [content; 2 * BLOCK]);
    assert_eq!(memory[2 * BLOCK..3 * BLOCK], [OLD; BLOCK]);
    assert_eq!(memory[3 * BLOCK..5 * BLOCK], [content; 2 * BLOCK]);
}

/// A core with a channel to a controller with this behaviour that no longer supports commands over
/// extents.
struct Bed {
    core: Core,
    peer: Peer,
    _host: (host::Host, host::Subsystem),
}

impl Bed {
    fn start(behaviour: Behaviour, builder: HostBuilder) -> Self {
        let (peer, host, remote) = start(behaviour, builder);
        peer.fill(&[OLD; 8 * BLOCK]);
        let mut core = Core::open(&remote);
        // Answered once its queue is connected, so that it is among what is cut.
        core.write(98, 1000, 0);
        assert_eq!(core.one(98), Ok(()));
        come_back(&peer, None);
        // Answered once the channel has followed the association.
        core.write(99, 1000, 0);
        assert_eq!(core.one(99), Ok(()));
        Self {
            core,
            peer,
            _host: host,
        }
    }

    /// Makes the controller hold the next command, and submits one over extents. Returns once it is
    /// held.
    fn submit_held(&mut self, tag: u64, operation: Operation, content: u8) {
        let before = held(&self.peer);
        self.peer.change(|behaviour| behaviour.hold = 1);
        self.core.submit(tag, operation, content);
        let peer = &self.peer;
        self.core.turn_until(|_| held(peer) > before);
    }

    /// Returns the next completed command over extents.
    fn next(&mut self) -> Extents {
        self.core.turn_until(|core| !core.done_extents.is_empty());
        self.core.done_extents.remove(0)
    }
}

/// They must not fail as unsupported.
#[test]
fn what_was_lost_is_sent_again_extent_by_extent() {
    for (operation, next) in [
        (WRITE, None),
        (Operation::Read, None),
        (Operation::Write { durable: true }, Some(terms(8, 1))),
        (Operation::Read, Some(terms(8, 1))),
    ] {
        let behaviour = Behaviour {
            swallow: 1,
            ..takes(8)
        };
        let (peer, _host, remote) = start(behaviour, builder());
        peer.fill(&[OLD; 8 * BLOCK]);
        let mut core = Core::open(&remote);
        core.submit(1, operation, 1);
        core.turn_until(|_| commands(&peer) == 1);
        come_back(&peer, next);
        let (result, found) = core.ended(1);
        assert_eq!(result, Ok(()));
        let content = if operation.is_write() { 1 } else { OLD };
        assert!(
            found
                .iter()
                .all(|data| data.bytes().unwrap() == [content; 2 * BLOCK])
        );
        assert_written(&peer, content);
        assert_eq!(commands(&peer), 1 + RANGES.len());
        assert_eq!(core.channel.outstanding(), 0);

        come_back(&peer, takes(8).extents);
        core.write(2, 1000, 0);
        assert_eq!(core.one(2), Ok(()));
        let before = commands(&peer);
        core.submit(3, operation, 1);
        assert_eq!(core.ended(3).0, Ok(()));
        assert_eq!(commands(&peer), before + 1);
    }
}

/// Commands that wait for a connection must not be refused either.
#[test]
fn what_waits_for_a_connection_leaves_extent_by_extent() {
    let (peer, _host, remote) = start(takes(8), builder());
    peer.fill(&[OLD; 8 * BLOCK]);
    let mut core = Core::open(&remote);
    core.write(1, 1000, 0);
    assert_eq!(core.one(1), Ok(()));
    let busy = wire::nvme::Status::CONNECT_CONTROLLER_BUSY;
    peer.change(|behaviour| behaviour.refuse_connect = Some(busy));
    come_back(&peer, None);
    core.turn_until(|core| core.channel.state() != host::ChannelState::Live);
    core.submit(2, WRITE, 2);
    core.submit(3, WRITE, 2);
    assert!(core.cancel(3));
    assert_eq!(core.ended(3).0, Err(BlockError::Aborted));
    peer.change(|behaviour| behaviour.refuse_connect = None);
    assert_eq!(core.ended(2).0, Ok(()));
    assert_written(&peer, 2);
    assert_eq!(commands(&peer), 1 + RANGES.len());
}

/// They must not all be sent again unchanged and at once.
#[test]
fn no_more_are_sent_again_together_than_the_next_controller_takes_at_a_time() {
    let behaviour = Behaviour {
        hold: 3,
        ..takes(3)
    };
    let (peer, _host, remote) = start(behaviour, builder());
    peer.fill(&[OLD; 8 * BLOCK]);
    let mut core = Core::open(&remote);
    for tag in 1..4 {
        core.submit(tag, Operation::Read, 0);
    }
    core.turn_until(|_| held(&peer) == 3);
    let again = 1 + 2 * RANGES.len();
    peer.change(|behaviour| behaviour.hold = again);
    come_back(&peer, Some(terms(1, 8)));
    core.turn_until(|_| held(&peer) == 3 + again);
    assert_eq!(peer.seen.held_extents.load(Ordering::SeqCst), 3 + 1);
    peer.release();
    core.turn_until(|core| core.done_extents.len() == 3);
    for done in &core.done_extents {
        for extent in &done.extents {
            let data = extent.data.as_ref().unwrap();
            assert_eq!(extent.result, Ok(()));
            assert!(data.bytes().unwrap() == [OLD; 2 * BLOCK]);
        }
    }
}

#[test]
fn a_lost_write_waits_for_its_fence_extent_by_extent() {
    let behaviour = Behaviour {
        swallow: 1,
        slow_fences: true,
        ..takes(8)
    };
    let (peer, _host, remote) = start(behaviour, builder());
    peer.fill(&[OLD; 8 * BLOCK]);
    let mut core = Core::open(&remote);
    core.submit(1, WRITE, 1);
    core.turn_until(|_| commands(&peer) == 1);
    come_back(&peer, None);
    // Reads, and writes of other blocks, do not wait; newer writes of these blocks do.
    core.submit(2, Operation::Read, 0);
    let (result, found) = core.ended(2);
    assert_eq!(result, Ok(()));
    assert!(
        found
            .iter()
            .all(|data| data.bytes().unwrap() == [OLD; 2 * BLOCK])
    );
    core.write(3, 4, 3);
    core.write(4, 2, OLD);
    assert_eq!(core.one(4), Ok(()));
    assert_written(&peer, OLD);
    while core.done_extents.is_empty() {
        peer.end_controllers();
        core.turn();
    }
    assert_eq!(core.ended(1).0, Ok(()));
    assert_eq!(core.one(3), Ok(()));
    let memory = peer.memory();
    assert_eq!(memory[..2 * BLOCK], [1; 2 * BLOCK]);
    assert_eq!(memory[3 * BLOCK..4 * BLOCK], [1; BLOCK]);
    assert_eq!(memory[4 * BLOCK..5 * BLOCK], [3; BLOCK]);
}

#[test]
fn each_extent_that_left_alone_has_a_result_of_its_own() {
    let behaviour = Behaviour {
        aborts: true,
        ..takes(8)
    };
    let bound = Duration::from_millis(200);
    let mut bed = Bed::start(behaviour, builder().command_timeout(bound));
    bed.submit_held(1, Operation::Read, 0);
    let done = bed.next();
    assert_eq!(done.tag, 1);
    let mut results: Vec<_> = done.extents.iter().map(|extent| extent.result).collect();
    results.sort_unstable_by_key(Result::is_err);
    assert_eq!(results, [Ok(()), Err(BlockError::TimedOut)]);
    for extent in &done.extents {
        let data = extent.data.as_ref().unwrap().bytes().unwrap();
        assert!(extent.result.is_err() || data == [OLD; 2 * BLOCK]);
    }
    assert_eq!(bed.core.channel.outstanding(), 0);
}

/// None of a command's extents overwrites a newer write.
#[test]
fn extents_that_left_alone_are_given_up_together() {
    for cancels in [true, false] {
        let mut bed = Bed::start(takes(8), builder());
        if cancels {
            bed.submit_held(1, WRITE, 1);
            assert!(bed.core.cancel(1) && !bed.core.cancel(1));
        } else {
            bed.peer.change(|behaviour| behaviour.hold = 1);
            let command = bed.core.command(1, WRITE, 1);
            let limit = bed.core.driver.now() + Nanos::from_millis(300);
            bed.core.submit_until(command, limit);
        }
        let done = bed.next();
        let error = if cancels {
            BlockError::Aborted
        } else {
            BlockError::TimedOut
        };
        let is_error = |extent: &block::Extent| extent.result == Err(error);
        assert!(done.extents.iter().any(is_error), "{:?}", done.extents);
        bed.peer.change(|behaviour| behaviour.hold = 0);
        bed.core.submit(2, WRITE, 2);
        for _ in 0..20 {
            bed.core.turn();
        }
        bed.peer.release();
        let done = bed.next();
        assert!(done.tag == 2 && done.extents.iter().all(|extent| extent.result.is_ok()));
        assert_written(&bed.peer, 2);
        let late = bed.core.command(3, WRITE, 3);
        bed.core.submit_until(late, Time::ZERO);
        assert_eq!(bed.core.ended(3).0, Err(BlockError::TimedOut));
        assert_eq!(bed.core.channel.outstanding(), 0);
    }
}
