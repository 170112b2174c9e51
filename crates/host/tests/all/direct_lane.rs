//! A direct lane that the controller no longer grants a queue: its requests go through the ingress
//! until it has a queue again.

use crate::peer;
use crate::peer::{Behaviour, NQN, Peer, builder};
use crate::setup::driver;
use base::units::Lba;
use block::{Channel, Completion, Device, Operation, Request, Submit};
use host::{Host, RemoteNamespace, Subsystem, Switchboard, SwitchboardOptions, SwitchedNamespace};
use reactor::placement::allowed_cores;
use reactor::uring::UringDriver;
use reactor::{Context, Driver as _, IoSlice, Wait};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use switch::{Class, Knobs};

/// Time after which a waiting test counts as hanging.
const PATIENCE: Duration = Duration::from_secs(60);

const BLOCK: usize = peer::BLOCK;

/// The only thread with `Latency` work on a switchboard of one core.
struct Submitter {
    driver: UringDriver,
    channel: Box<dyn Channel>,
    board: Switchboard,
    _device: SwitchedNamespace,
    _subsystem: Subsystem,
    _host: Host,
}

impl Submitter {
    fn open(peer: &Peer) -> Self {
        let host = builder().build().unwrap();
        let subsystem = host.connect(&peer.address.to_string(), NQN).unwrap();
        let remote = RemoteNamespace::new(subsystem.association(), 1).unwrap();
        let mut cores = allowed_cores().unwrap();
        cores.truncate(1);
        let knobs = Knobs::switchyard();
        let board = Switchboard::start(&SwitchboardOptions { cores, knobs }).unwrap();
        let device = board.namespace(&remote).unwrap().with_class(Class::Latency);
        let mut driver = driver();
        let channel = device.open(&mut driver).unwrap();
        Self {
            driver,
            channel,
            board,
            _device: device,
            _subsystem: subsystem,
            _host: host,
        }
    }

    /// Runs one turn, and takes the completions.
    fn turn(&mut self, done: &mut Vec<Completion>) {
        let mut events = Vec::new();
        let deadline = self.channel.deadline();
        let soon = self.driver.now() + base::Nanos::from_millis(5);
        self.driver
            .reap(Wait::Until(deadline.min(soon)), &mut events)
            .unwrap();
        let mut cx = Context::begin(&mut self.driver);
        for event in events {
            self.channel.complete(event, &mut cx);
        }
        self.channel.tick(&mut cx);
        done.extend(std::iter::from_fn(|| self.channel.reap()));
    }

    fn submit(&mut self, tag: u64, operation: Operation, fill: u8) {
        let buffer = self.driver.buffers().take(BLOCK).unwrap();
        let mut data = IoSlice::from_buffer(buffer, BLOCK);
        data.copy_in(0, &[fill; BLOCK]);
        let request = Request {
            tag,
            operation,
            lba: Lba(tag),
            blocks: 1,
            data: Some(data),
        };
        let mut cx = Context::begin(&mut self.driver);
        let submit = self.channel.submit(request, &mut cx);
        assert!(matches!(submit, Submit::Queued), "{submit:?}");
        self.channel.kick(&mut cx);
    }

    /// Runs until `count` requests are complete; all must succeed.
    fn finish(&mut self, count: usize) -> Vec<Completion> {
        let end = Instant::now() + PATIENCE;
        let mut done = Vec::new();
        while done.len() < count {
            assert!(Instant::now() < end, "{} of {count} are done", done.len());
            self.turn(&mut done);
        }
        assert_eq!(done.len(), count);
        for completion in &done {
            completion.result.unwrap();
        }
        done
    }

    /// Returns the number of requests of its direct lane so far.
    fn direct(&self) -> u64 {
        let counters = self.board.counters();
        counters.iter().map(|core| core.direct_requests).sum()
    }

    /// Writes until the direct lane takes a request.
    fn write_until_direct(&mut self) {
        let end = Instant::now() + PATIENCE;
        let before = self.direct();
        while self.direct() == before {
            assert!(Instant::now() < end, "it has no lane of its own");
            self.submit(0, WRITE, 9);
            self.finish(1);
        }
    }

    fn run_until(&mut self, ready: impl Fn() -> bool) {
        let end = Instant::now() + PATIENCE;
        while !ready() {
            assert!(Instant::now() < end);
            let mut done = Vec::new();
            self.turn(&mut done);
            assert!(done.is_empty(), "{done:?}");
        }
    }
}

const WRITE: Operation = Operation::Write { durable: false };

fn peer(io_queues: u16) -> Peer {
    let behaviour = Behaviour {
        io_queues,
        ..Behaviour::default()
    };
    Peer::start(1 << 20, behaviour)
}

/// Leaves four writes and four reads unanswered in the lane, and grants `io_queues` queues from the
/// next association on.
fn lose_with_requests(submitter: &mut Submitter, peer: &Peer, io_queues: u16) {
    submitter.write_until_direct();
    let (direct, seen) = (
        submitter.direct(),
        peer.seen.io_commands.load(Ordering::SeqCst),
    );
    peer.change(|behaviour| behaviour.swallow = 8);
    for tag in 0..4 {
        submitter.submit(1 + tag, WRITE, 7);
        submitter.submit(101 + tag, Operation::Read, 0);
    }
    assert_eq!(submitter.direct(), direct + 8);
    submitter.run_until(|| peer.seen.io_commands.load(Ordering::SeqCst) >= seen + 8);
    peer.change(|behaviour| behaviour.io_queues = io_queues);
    peer.cut_all();
}

/// They must not fail while the switchboard has lanes.
#[test]
fn requests_of_a_lane_that_gets_no_queue_again_go_through_the_ingress() {
    let peer = peer(8);
    let mut submitter = Submitter::open(&peer);
    peer.fill(&[3; 200 * BLOCK]);
    lose_with_requests(&mut submitter, &peer, 2);
    let done = submitter.finish(8);
    for read in done.iter().filter(|done| done.tag > 100) {
        let mut data = [0; BLOCK];
        read.data.as_ref().unwrap().copy_out(0, &mut data);
        assert!(data == [3; BLOCK], "{}", read.tag);
    }
    assert_eq!(peer.memory()[BLOCK..][..4 * BLOCK], [7; 4 * BLOCK]);
    assert_eq!(peer.seen.associations.load(Ordering::SeqCst), 2);
    let direct = submitter.direct();
    submitter.submit(1, WRITE, 8);
    submitter.finish(1);
    assert_eq!(submitter.direct(), direct, "there is no queue for it");

    // The next association grants it again.
    peer.change(|behaviour| behaviour.io_queues = 8);
    peer.cut_all();
    submitter.write_until_direct();
}

/// A write whose fence stands is not sent by another lane either.
#[test]
fn a_write_waits_for_its_fence_before_it_goes_through_the_ingress() {
    let peer = peer(8);
    let mut submitter = Submitter::open(&peer);
    peer.change(|behaviour| behaviour.slow_fences = true);
    lose_with_requests(&mut submitter, &peer, 2);
    let reads = submitter.finish(4);
    assert!(reads.iter().all(|done| done.tag > 100), "{reads:?}");
    assert_ne!(peer.memory()[BLOCK..][..4 * BLOCK], [7; 4 * BLOCK]);
    peer.end_controllers();
    submitter.finish(4);
    assert_eq!(peer.memory()[BLOCK..][..4 * BLOCK], [7; 4 * BLOCK]);
}

/// The lanes of the switchboard, whose requests cannot go another way, get their queues first; the
/// direct lane requests one of the remaining queues again.
#[test]
fn a_lane_takes_a_queue_again_when_there_is_one() {
    let peer = peer(8);
    let mut submitter = Submitter::open(&peer);
    lose_with_requests(&mut submitter, &peer, 3);
    submitter.finish(8);
    submitter.write_until_direct();
    assert_eq!(peer.seen.associations.load(Ordering::SeqCst), 2);
}
