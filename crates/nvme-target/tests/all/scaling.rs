//! Threads come into and out of use under load: every command is answered exactly once, whichever
//! thread serves its queue.

use crate::common;
use crate::common::{
    BLOCK, Bed, Client, Dialect, NQN, StopAtLast, eventually, io, namespace, pattern, run,
    target_with,
};
use base::Prng;
use base::units::MIB;
use block::{Channel, Completion, Request, Submit};
use reactor::Context;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use switch::Knobs;
use switch::thread_scaling::ThreadBounds;
use switchyard_target::{Limits, Snapshot, SwitchStats};
use testing::device::TestDevice;
use wire::fabrics::property::Configuration;
use wire::nvme::{IoOpcode, SglDescriptor};

/// Number of threads of the target.
const THREADS: usize = 3;

/// Number of queues, each with blocks of its own.
const QUEUES: u16 = 8;
const BLOCKS: u64 = 64;

fn bound(bed: &Bed, min: u32, max: u32) {
    let knobs = Knobs {
        target_threads: ThreadBounds { min, max },
        ..bed.handle().knobs()
    };
    bed.handle().set_knobs(knobs).expect("valid knobs");
}

fn connections(snapshot: &Snapshot) -> Vec<u64> {
    snapshot.cores.iter().map(|core| core.connections).collect()
}

/// Waits until `active` threads are in use and no other thread has a connection.
fn settled(bed: &Bed, active: usize) {
    eventually("the queues are where they belong", || {
        let snapshot = bed.handle().snapshot();
        let others = &connections(&snapshot)[active..];
        snapshot.threads.active == active as u64 && others.iter().all(|&count| count == 0)
    });
}

fn hosts(bed: &Bed) -> (Client, Vec<Client>) {
    let mut admin = Client::dial(bed.address(), Dialect::default());
    let cntlid = admin.connect_admin(NQN, 0);
    admin.enable();
    let queues = (1..=QUEUES).map(|id| {
        let mut queue = Client::dial(bed.address(), Dialect::default());
        queue.connect_io(NQN, cntlid, id, 63);
        queue
    });
    let queues = queues.collect();
    (admin, queues)
}

/// Writes and reads the blocks of one queue until stopped. A batch is sent at once, each command is
/// answered once, and the next batch reads the data written.
fn work(client: &mut Client, queue: u16, stop: &AtomicBool, batches: &AtomicU64) {
    let first = u64::from(queue) * BLOCKS;
    let mut prng = Prng::from_seed(u64::from(queue));
    let mut content = pattern(u64::from(queue), BLOCKS as usize * BLOCK);
    assert!(client.write_by_r2t(first, &content).status.is_success());
    while !stop.load(Ordering::Relaxed) {
        let mut bytes = Vec::new();
        let mut reads = BTreeMap::new();
        for cid in 0..8u16 {
            let at = prng.below(BLOCKS);
            let mut read = io(IoOpcode::READ, first + at, 1);
            read.set_cid(cid);
            read.set_sgl(SglDescriptor::transport(BLOCK as u32));
            bytes.extend(client.session.capsule(&read, &[]));
            reads.insert(cid, at as usize);
        }
        client.send(&bytes);
        while !reads.is_empty() {
            let (cid, data) = common::any_read(client);
            let at = reads.remove(&cid).expect("every command is answered once");
            assert!(data == content[at * BLOCK..(at + 1) * BLOCK], "block {at}");
        }
        let at = prng.below(BLOCKS) as usize;
        let data = pattern(prng.next_u64(), BLOCK);
        assert!(
            client
                .write_by_r2t(first + at as u64, &data)
                .status
                .is_success()
        );
        content[at * BLOCK..(at + 1) * BLOCK].copy_from_slice(&data);
        batches.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn queues_lose_nothing_while_threads_come_and_go() {
    let bed = Bed::with(Limits::default(), THREADS);
    let (mut admin, mut queues) = hosts(&bed);
    let (stop, batches) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let _stop = StopAtLast(&stop);
        for (queue, client) in (0..).zip(&mut queues) {
            let (stop, batches) = (&stop, &batches);
            scope.spawn(move || work(client, queue, stop, batches));
        }
        for _ in 0..10 {
            for threads in [1, 3, 2, 1, 2] {
                bound(&bed, threads, threads);
                settled(&bed, threads as usize);
                let before = batches.load(Ordering::Relaxed);
                eventually("work goes on", || {
                    batches.load(Ordering::Relaxed) >= before + 20
                });
            }
        }
    });
    let counters = bed.handle().snapshot().threads;
    // Three at first; then each round goes 2 down, 2 up, 2 down, 1 up, and each later round begins
    // with 1 down.
    assert_eq!((counters.grown, counters.shrunk), (30, 31));
    eventually("what left one thread came to another", || {
        let switch = bed.handle().snapshot().switch;
        let sum = |of: fn(&SwitchStats) -> u64| -> u64 { switch.iter().map(of).sum() };
        let (came, went) = (sum(|core| core.scaled_in), sum(|core| core.scaled_out));
        came == went && came >= counters.shrunk
    });
    // The controller finds its queues on their current threads.
    assert!(
        admin
            .configure(Configuration::default())
            .status
            .is_success()
    );
    for client in queues {
        client.closed();
    }
}

#[test]
fn new_queues_go_to_the_threads_in_use_and_admin_queues_stay() {
    let bed = Bed::with(Limits::default(), THREADS);
    bound(&bed, 2, 2);
    let (_admin, queues) = hosts(&bed);
    eventually("the queues are dealt out in turn", || {
        connections(&bed.handle().snapshot()) == [1 + u64::from(QUEUES) / 2, 4, 0]
    });
    drop(queues);
    bound(&bed, 1, 3);
    eventually("an unloaded target uses one thread", || {
        bed.handle().snapshot().threads.active == 1
    });
    let (_other, _queues) = hosts(&bed);
    eventually("which has everything", || {
        connections(&bed.handle().snapshot()) == [2 + u64::from(QUEUES), 0, 0]
    });
    let snapshot = bed.handle().snapshot();
    assert_eq!(
        snapshot
            .switch
            .iter()
            .map(|core| core.scaled_in)
            .sum::<u64>(),
        0
    );
}

/// A memory channel that blocks its thread for 0.5 ms per request, however fast the machine is.
#[derive(Debug)]
struct SlowChannel(Box<dyn Channel>);

impl Channel for SlowChannel {
    fn submit(&mut self, request: Request, cx: &mut Context<'_>) -> Submit {
        std::thread::sleep(Duration::from_micros(500));
        self.0.submit(request, cx)
    }

    fn reap(&mut self) -> Option<Completion> {
        self.0.reap()
    }
}

/// Queues that use a thread's full capacity are moved to other threads automatically.
#[test]
fn load_brings_threads_into_use_and_silence_lets_them_sleep() {
    let slow = TestDevice::new(common::ram(16 * MIB), |ram| Box::new(SlowChannel(ram)));
    let target = target_with(Limits::default(), 2, [namespace(1, Arc::new(slow))]);
    let bed = Bed {
        target: run(target, 2),
        ram: common::ram(MIB),
    };
    bound(&bed, 1, 2);
    let (_admin, mut queues) = hosts(&bed);
    settled(&bed, 1);
    let (stop, batches) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let _stop = StopAtLast(&stop);
        for (queue, client) in (0..).zip(&mut queues) {
            let (stop, batches) = (&stop, &batches);
            scope.spawn(move || work(client, queue, stop, batches));
        }
        eventually("a second thread is in use, and has queues", || {
            let snapshot = bed.handle().snapshot();
            snapshot.threads.grown > 0 && snapshot.switch[1].scaled_in > 0
        });
    });
    eventually("the first thread has everything again", || {
        let snapshot = bed.handle().snapshot();
        snapshot.threads.active == 1 && connections(&snapshot) == [1 + u64::from(QUEUES), 0]
    });
    // Both were in use before the bounds were set.
    let counters = bed.handle().snapshot().threads;
    assert_eq!(counters.grown + 1, counters.shrunk);
}
