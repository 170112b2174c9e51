//! A target that supports smaller commands after a restart: its users continue with requests of the
//! old size.

use crate::peer::{Behaviour, Peer, builder, connected};
use crate::{peer, setup};
use base::units::Lba;
use block::{BlockError, Completion, Device, Extent, Extents, Operation, PathDevice};
use host::{Host, Queue, RemoteNamespace, Subsystem, Switchboard, SwitchboardOptions};
use reactor::placement::allowed_cores;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use switch::{Class, Knobs, Path, PathRules};
use testing::device::conformance::Bench;
use wire::nvme::ExtentTerms;

const BLOCKS: u32 = 128;

/// Size of requests, and later of the controller's largest command, in bytes.
const LARGE: usize = BLOCKS as usize * peer::BLOCK;
const SMALL: usize = 8 << 10;

const WRITE: Operation = Operation::Write { durable: false };
const FUA: Operation = Operation::Write { durable: true };

fn pattern(seed: usize) -> Vec<u8> {
    let byte = |at: usize| (at * 7 + at / 509 + seed).to_le_bytes()[0];
    (0..LARGE).map(byte).collect()
}

/// Breaks all connections; the controller accepts smaller commands on the next ones.
fn shrink(peer: &Peer) {
    peer.change(|behaviour| behaviour.mdts = 1);
    peer.cut_all();
}

/// A queue, with its host and controller, which must outlive it.
struct Bed {
    queue: Queue,
    _host: Host,
    _subsystem: Subsystem,
    peer: Peer,
}

impl Bed {
    fn start(behaviour: Behaviour) -> Self {
        let (peer, host, subsystem) = connected(behaviour);
        Self {
            queue: subsystem.namespace(1).unwrap().queue(8).unwrap(),
            _host: host,
            _subsystem: subsystem,
            peer,
        }
    }

    /// Submits a request for the range with this number and the content `data`.
    fn submit(&mut self, tag: u64, operation: Operation, range: usize, data: &[u8]) {
        let mut buffer = self.queue.buffer(LARGE).unwrap();
        buffer.copy_in(0, data);
        let (offset, length) = ((range * LARGE) as u64, LARGE as u64);
        let request = self
            .queue
            .request(tag, operation, offset, length, Some(buffer));
        self.queue.submit(request.unwrap()).unwrap();
        self.queue.kick();
    }

    /// Returns the next completion, with all of its data.
    fn next(&mut self) -> Completion {
        let done = self.queue.wait(1).unwrap().next().unwrap();
        let mut data = done.data.unwrap();
        assert!(data.bytes_mut().is_some(), "it is its submitter's alone");
        assert_eq!(data.len(), LARGE);
        Completion {
            data: Some(data),
            ..done
        }
    }

    /// Waits until the controller has seen `count` I/O commands.
    fn commands(&mut self, count: usize) {
        while self.peer.seen.io_commands.load(Ordering::SeqCst) < count {
            assert_eq!(self.queue.wait(0).unwrap().count(), 0);
        }
    }

    /// Runs requests of every kind, each on its own range; calls `before` when they are in flight.
    fn run(&mut self, content: usize, before: impl FnOnce(&mut Self)) {
        let (written, kept) = (pattern(content), pattern(content + 1));
        let mut memory = self.peer.memory();
        for range in 2..5 {
            memory[range * LARGE..][..LARGE].copy_from_slice(&kept);
        }
        self.peer.fill(&memory);
        let mut other = kept.clone();
        other[LARGE - 1] ^= 1;
        self.submit(0, WRITE, 0, &written);
        self.submit(1, FUA, 1, &written);
        self.submit(2, Operation::Read, 2, &[]);
        self.submit(3, Operation::Compare, 3, &kept);
        self.submit(4, Operation::Compare, 4, &other);
        before(self);
        let mut done: Vec<_> = (0..5).map(|_| self.next()).collect();
        done.sort_unstable_by_key(|done| done.tag);
        for (tag, done) in (0..).zip(&done) {
            let differs = Err(BlockError::CompareFailure);
            let expected = if tag == 4 { differs } else { Ok(()) };
            assert_eq!((done.tag, done.result), (tag, expected));
        }
        let data = |tag: usize| done[tag].data.as_ref().unwrap().bytes().unwrap();
        assert!(data(0) == written && data(1) == written);
        assert!(data(2) == kept && data(3) == kept && data(4) == other);
        let memory = self.peer.memory();
        assert!(memory[..LARGE] == written && memory[LARGE..][..LARGE] == written);
        assert_eq!(self.queue.outstanding(), 0);
    }
}

/// Neither requests in flight nor later ones may be refused.
#[test]
fn requests_go_on_that_are_larger_than_the_next_controller_takes() {
    for (in_capsule_bytes, digests, transfer_bytes) in
        [(0, false, 4096), (4096, true, 128 << 10), (8192, true, 512)]
    {
        let mut bed = Bed::start(Behaviour {
            in_capsule_bytes,
            digests,
            transfer_bytes,
            data_pdu_bytes: transfer_bytes.max(4096),
            swallow: 5,
            ..Behaviour::default()
        });
        bed.run(1, |bed| {
            bed.commands(5);
            shrink(&bed.peer);
        });
        let before = bed.peer.seen.io_commands.load(Ordering::SeqCst);
        bed.run(5, |_| ());
        let commands = bed.peer.seen.io_commands.load(Ordering::SeqCst) - before;
        assert_eq!(commands, 5 * LARGE / SMALL);
        assert_eq!(bed.peer.seen.associations.load(Ordering::SeqCst), 2);
    }
}

/// No further command of it is sent, and no newer write is overwritten.
#[test]
fn a_request_is_given_up_as_a_whole_whichever_command_of_it_is_under_way() {
    for cancels in [true, false] {
        let mut bed = Bed::start(Behaviour {
            in_capsule_bytes: 8192,
            ..Behaviour::default()
        });
        shrink(&bed.peer);
        bed.run(1, |_| ());
        for operation in [WRITE, Operation::Read] {
            bed.peer.change(|behaviour| behaviour.hold = 1);
            let seen = bed.peer.seen.io_commands.load(Ordering::SeqCst);
            if !cancels {
                bed.queue.set_timeout(Some(Duration::from_millis(300)));
            }
            bed.submit(1, operation, 0, &pattern(2));
            bed.queue.set_timeout(None);
            let error = if cancels {
                bed.commands(seen + 1);
                assert!(bed.queue.cancel(1) && !bed.queue.cancel(1));
                BlockError::Aborted
            } else {
                BlockError::TimedOut
            };
            let done = bed.next();
            assert_eq!((done.tag, done.result), (1, Err(error)));
            bed.peer.change(|behaviour| behaviour.hold = 0);
            bed.submit(2, WRITE, 0, &pattern(3));
            bed.peer.release();
            let done = bed.next();
            assert_eq!((done.tag, done.result), (2, Ok(())));
            assert!(bed.peer.memory()[..LARGE] == pattern(3));
        }
    }
}

/// The limit of a switchboard must not be that of its first namespace.
#[test]
fn devices_over_it_go_on_with_requests_of_the_old_size() {
    let behaviour = Behaviour {
        // Enough for any number of cores of the machine.
        io_queues: 128,
        mdts: 1,
        ..Behaviour::default()
    };
    let peer = Peer::start(1 << 20, behaviour);
    let host = builder().build().unwrap();
    let subsystem = host.connect(&peer.address.to_string(), peer::NQN).unwrap();
    let (cores, knobs) = (allowed_cores().unwrap(), Knobs::switchyard());
    let board = Switchboard::start(&SwitchboardOptions { cores, knobs }).unwrap();
    let remote = || RemoteNamespace::new(subsystem.association(), 1).unwrap();
    let known = board.namespace(&remote()).unwrap();
    assert_eq!(known.capabilities().max_transfer_bytes as usize, SMALL);
    peer.change(|behaviour| behaviour.mdts = 4);
    let before = peer.seen.associations.load(Ordering::SeqCst);
    peer.cut_all();
    let namespace = subsystem.namespace(1).unwrap();
    while peer.seen.associations.load(Ordering::SeqCst) == before {
        namespace.write(0, &[1; 512]).unwrap();
    }
    namespace.write(0, &[1; 512]).unwrap();

    let switched = |class| board.namespace(&remote()).unwrap().with_class(class);
    let path =
        |below: Arc<dyn Device>| PathDevice::start(below, Path::Stm, PathRules::default()).unwrap();
    let devices: [Box<dyn Device>; 5] = [
        Box::new(remote()),
        Box::new(switched(Class::Latency)),
        Box::new(switched(Class::Throughput)),
        Box::new(path(Arc::new(remote().below_path()))),
        Box::new(path(Arc::new(switched(Class::Latency)))),
    ];
    let mut benches = devices.map(|device| {
        assert_eq!(device.capabilities().max_transfer_bytes as usize, LARGE);
        Bench::open(setup::driver(), &*device).unwrap()
    });
    for mdts in [4, 1] {
        peer.change(|behaviour| behaviour.mdts = mdts);
        peer.cut_all();
        for (content, bench) in benches.iter_mut().enumerate() {
            bench.write(8, &pattern(content)).unwrap();
            assert!(bench.read(8, BLOCKS).unwrap() == pattern(content));
        }
    }
    benches.iter_mut().for_each(Bench::shut);
}

/// They must not be sent unchanged and refused.
#[test]
fn extents_leave_alone_that_the_next_controller_does_not_take_together() {
    let terms = |extents| ExtentTerms {
        extents,
        in_flight: 8,
        bytes: 1 << 20,
        outcomes: false,
    };
    let (peer, _host, subsystem) = connected(Behaviour {
        in_capsule_bytes: 8192,
        extents: Some(terms(8)),
        ..Behaviour::default()
    });
    let remote = RemoteNamespace::new(subsystem.association(), 1).unwrap();
    let mut bench = Bench::open(setup::driver(), &remote).unwrap();
    // One extent is longer than the last controllers accept.
    let ranges = [(0, 1), (3, BLOCKS / 4)];
    let takes = [(8, 8, 1), (1, 8, 2), (0, 8, 2), (8, 1, 3), (8, 8, 1)];
    for (content, (takes, mdts, commands)) in (1..).zip(takes) {
        peer.change(|behaviour| {
            behaviour.extents = (takes > 0).then(|| terms(takes));
            behaviour.mdts = mdts;
        });
        peer.cut_all();
        bench.write(64, &[content; peer::BLOCK]).unwrap();
        for operation in [WRITE, Operation::Read] {
            let before = peer.seen.io_commands.load(Ordering::SeqCst);
            let extents = ranges.map(|(lba, blocks)| {
                let mut data = bench.buffer(blocks as usize * peer::BLOCK).unwrap();
                let filler = if operation == WRITE { content } else { 0 };
                data.copy_in(0, &vec![filler; data.len()]);
                Extent {
                    tag: lba,
                    lba: Lba(lba),
                    blocks,
                    data: Some(data),
                    result: Ok(()),
                }
            });
            let done = bench.run_extents(Extents {
                tag: 7,
                operation,
                extents: extents.into(),
            });
            for (extent, (lba, blocks)) in done.extents.into_iter().zip(ranges) {
                assert_eq!((extent.tag, extent.result), (lba, Ok(())));
                let data = extent.data.unwrap();
                assert!(data.bytes().unwrap() == vec![content; blocks as usize * peer::BLOCK]);
            }
            let sent = peer.seen.io_commands.load(Ordering::SeqCst) - before;
            assert_eq!(sent, commands);
        }
        let memory = peer.memory();
        assert_eq!(memory[..peer::BLOCK], [content; peer::BLOCK]);
        assert_eq!(memory[peer::BLOCK..3 * peer::BLOCK], [0; 2 * peer::BLOCK]);
    }
    bench.shut();
}
