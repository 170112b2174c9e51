//! Commands over extents with a limit, cancelled, or not answered: what is told when, what becomes of
//! memory, and of later writes to the same blocks.
#![allow(clippy::tests_outside_test_module)] // The whole file is one.
#![allow(clippy::unwrap_used)] // What fails here fails the test.
#![allow(clippy::cast_possible_truncation)] // Sizes in tests are small.

mod peer;
mod setup;

use base::units::Lba;
use base::{Nanos, Time};
use block::{
    BlockError, Channel, Completion, Extent, Extents, Operation, Request, Submit, SubmitExtents,
};
use host::{Host, HostBuilder, RemoteChannel, RemoteNamespace, Subsystem};
use peer::{Behaviour, Peer, builder};
use reactor::uring::UringDriver;
use reactor::{Context, Driver, IoSlice, Wait};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use wire::nvme::{ExtentTerms, Status};

const BLOCK: usize = peer::BLOCK;

const WRITE: Operation = Operation::Write { durable: false };

/// Time after which a wait is without end.
const PATIENCE: Duration = Duration::from_secs(60);

/// Blocks of the extents of every command, with one between them.
const RANGES: [(u64, u32); 2] = [(0, 2), (3, 2)];

/// A controller that takes this many commands over extents at a time, with writes in their capsules.
fn takes(in_flight: u16) -> Behaviour {
    Behaviour {
        in_capsule_bytes: 8192,
        extents: Some(ExtentTerms {
            extents: 8,
            in_flight,
            bytes: 1 << 20,
            outcomes: false,
        }),
        ..Behaviour::default()
    }
}

/// The same with writes of which it asks for the data.
fn asks() -> Behaviour {
    Behaviour {
        in_capsule_bytes: 64,
        ..takes(8)
    }
}

/// A core that is run by hand.
struct Core {
    driver: UringDriver,
    channel: RemoteChannel,
    done: Vec<Completion>,
    done_extents: Vec<Extents>,
}

impl Core {
    fn open(namespace: &RemoteNamespace) -> Self {
        let mut driver = setup::driver();
        Self {
            channel: namespace.open_remote(&mut driver).unwrap(),
            driver,
            done: Vec::new(),
            done_extents: Vec::new(),
        }
    }

    fn turn(&mut self) {
        let mut completions = Vec::new();
        let mut cx = Context::begin(&mut self.driver);
        self.channel.kick(&mut cx);
        let wait = Wait::Until(self.driver.now() + Nanos::from_millis(1));
        self.driver.reap(wait, &mut completions).unwrap();
        let mut cx = Context::begin(&mut self.driver);
        for completion in completions {
            self.channel.complete(completion, &mut cx);
        }
        self.channel.tick(&mut cx);
        self.done.extend(std::iter::from_fn(|| self.channel.reap()));
        let extents = std::iter::from_fn(|| self.channel.reap_extents());
        self.done_extents.extend(extents);
    }

    fn turn_until(&mut self, done: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        while !done(self) {
            assert!(begun.elapsed() < PATIENCE, "nothing happens any more");
            self.turn();
        }
    }

    fn buffer(&self, bytes: usize, content: u8) -> IoSlice {
        let mut data = IoSlice::from_buffer(self.driver.buffers().take(bytes).unwrap(), bytes);
        data.copy_in(0, &vec![content; bytes]);
        data
    }

    /// A command over [`RANGES`], with this content.
    fn command(&self, tag: u64, operation: Operation, content: u8) -> Extents {
        let extents = RANGES.map(|(lba, blocks)| Extent {
            tag: lba,
            lba: Lba(lba),
            blocks,
            data: Some(self.buffer(blocks as usize * BLOCK, content)),
            result: Ok(()),
        });
        Extents {
            tag,
            operation,
            extents: extents.into(),
        }
    }

    fn submit_until(&mut self, command: Extents, limit: Time) {
        let mut cx = Context::begin(&mut self.driver);
        match self.channel.submit_extents_until(command, limit, &mut cx) {
            SubmitExtents::Queued => {}
            SubmitExtents::Done(command) => self.done_extents.push(command),
            SubmitExtents::Busy(command) => panic!("no room for {command:?}"),
        }
    }

    fn submit(&mut self, tag: u64, operation: Operation, content: u8) {
        self.submit_until(self.command(tag, operation, content), Time::NEVER);
    }

    /// Writes a block.
    fn write(&mut self, tag: u64, lba: u64, content: u8) {
        let request = Request {
            tag,
            operation: WRITE,
            lba: Lba(lba),
            blocks: 1,
            data: Some(self.buffer(BLOCK, content)),
        };
        let mut cx = Context::begin(&mut self.driver);
        let queued = self.channel.submit(request, &mut cx);
        assert!(matches!(queued, Submit::Queued), "{queued:?}");
    }

    /// The result of the next completion of a request, which has this tag.
    fn one(&mut self, tag: u64) -> Result<(), BlockError> {
        self.turn_until(|core| !core.done.is_empty());
        let done = self.done.remove(0);
        assert_eq!(done.tag, tag);
        done.result
    }

    /// The next command over extents that ends, which has this tag and one result for all extents.
    fn ended(&mut self, tag: u64) -> (Result<(), BlockError>, Vec<IoSlice>) {
        self.turn_until(|core| !core.done_extents.is_empty());
        let done = self.done_extents.remove(0);
        assert_eq!((done.tag, done.extents.len()), (tag, RANGES.len()));
        let result = done.extents[0].result;
        let memory = done.extents.into_iter().map(|extent| {
            assert_eq!(extent.result, result);
            let mut data = extent.data.unwrap();
            assert!(data.bytes_mut().is_some(), "it is its submitter's alone");
            data
        });
        (result, memory.collect())
    }

    fn cancel(&mut self, tag: u64) -> bool {
        let mut cx = Context::begin(&mut self.driver);
        self.channel.cancel(tag, &mut cx)
    }

    /// Has a command given up while the controller keeps it. Returns the memory of its extents.
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
            // Whatever was sent arrives before this.
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

/// A controller that behaves so, and its namespace over such a host, which must live as long.
fn start(behaviour: Behaviour, builder: HostBuilder) -> (Peer, (Host, Subsystem), RemoteNamespace) {
    let peer = Peer::start(1 << 20, behaviour);
    let host = builder.build().unwrap();
    let subsystem = host.connect(&peer.address.to_string(), peer::NQN).unwrap();
    let remote = RemoteNamespace::new(subsystem.association(), 1).unwrap();
    (peer, (host, subsystem), remote)
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
        // The answer to this one comes behind the late one.
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
            // Between the extents.
            core.write(4, 2, 4);
            assert_eq!(core.one(4), Ok(()));
        }
        assert_eq!(peer.seen.io_commands.load(Ordering::SeqCst), seen + 2);
        // One that waits may be given up as well, and was not sent.
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

/// A newer command over extents waited without end where the queue that gave an older write up was
/// left alone; a request did not.
#[test]
fn newer_extents_do_not_wait_for_ever_for_a_queue_that_is_left_alone() {
    let bound = Duration::from_secs(1);
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

/// The controller may ask for their data at any time, so they are over with the connection.
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

/// The controller counts a command until it has answered it, whatever became of it here.
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
    // The answer to this one comes behind the late one.
    core.write(3, 0, 3);
    assert_eq!(core.one(3), Ok(()));
    core.submit(4, Operation::Read, 0);
    assert_eq!(core.ended(4).0, Ok(()));
}

/// The command time-out holds for them, too.
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

/// The loss time-out holds for them, too.
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
