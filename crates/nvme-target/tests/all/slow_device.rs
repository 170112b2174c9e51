//! Slow devices with little room, and exhausted buffers: every command waits for its turn, and none
//! is lost.

use crate::common;
use crate::common::{BLOCK, Bed, Client, Dialect, NQN, io, namespace, pattern, target_with};
use base::units::{CoreId, KIB, MIB};
use base::{Nanos, Time};
use block::layer::delay::{Delay, DelayOptions};
use block::{BlockError, Channel, Completion, Device, Request, Submit};
use reactor::{BufferClass, Context};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use switchyard_target::{
    LATENCY_BOUNDS_NS, Limits, NamespaceSnapshot, RunningTarget, TargetOptions,
};
use testing::device::TestDevice;
use wire::nvme::{IoOpcode, SglDescriptor, Status};

/// A channel of RAM with room for two requests, each of which takes some turns of the core;
/// requests for the last block fail.
#[derive(Debug)]
struct SlowChannel {
    ram: Box<dyn Channel>,
    last_block: u64,
    pending: VecDeque<(Request, u32)>,
    done: VecDeque<Completion>,
}

impl Channel for SlowChannel {
    fn submit(&mut self, request: Request, _cx: &mut Context<'_>) -> Submit {
        if self.pending.len() == 2 {
            return Submit::Busy(request);
        }
        self.pending.push_back((request, 3));
        Submit::Queued
    }

    fn reap(&mut self) -> Option<Completion> {
        self.done.pop_front()
    }

    fn tick(&mut self, cx: &mut Context<'_>) {
        for (_, turns) in &mut self.pending {
            *turns = turns.saturating_sub(1);
        }
        while self.pending.front().is_some_and(|(_, turns)| *turns == 0) {
            let Some((request, _)) = self.pending.pop_front() else {
                return;
            };
            if request.lba.0 == self.last_block {
                self.done
                    .push_back(request.ended(Err(BlockError::ReadFailure)));
            } else if let Submit::Done(completion) = self.ram.submit(request, cx) {
                self.done.push_back(completion);
            }
        }
    }

    fn deadline(&self) -> Time {
        if self.pending.is_empty() {
            Time::NEVER
        } else {
            Time::ZERO
        }
    }

    fn closed(&self) -> bool {
        self.pending.is_empty()
    }
}

fn bed() -> Bed {
    bed_with(Limits::default())
}

/// Starts a target with three buffers of 16 KiB and one of 1 MiB.
fn bed_with(limits: Limits) -> Bed {
    let ram = common::ram(16 * MIB);
    let last_block = ram.geometry().blocks - 1;
    let slow = TestDevice::new(ram, move |ram| {
        Box::new(SlowChannel {
            ram,
            last_block,
            pending: VecDeque::new(),
            done: VecDeque::new(),
        })
    });
    let slow = slow.with(|capabilities| {
        capabilities.volatile_cache = true;
        capabilities.extents_max = 0;
    });
    let target = target_with(limits, 1, [namespace(1, Arc::new(slow))]);
    let options = TargetOptions {
        listen: vec![SocketAddr::from(([127, 0, 0, 1], 0)).into()],
        cores: vec![CoreId(0)],
        pin: false,
        buffers: vec![
            BufferClass {
                bytes: 16 * KIB,
                count: 3,
            },
            BufferClass {
                bytes: MIB,
                count: 1,
            },
        ],
        ..TargetOptions::default()
    };
    let ram = common::ram(MIB);
    let target = RunningTarget::start(target, &options).expect("a target on loopback");
    Bed { target, ram }
}

/// Sends many commands in one write; the answers may arrive in any order.
fn pipeline(client: &mut Client, data: &[u8]) {
    let count = (data.len() / BLOCK) as u16;
    let mut bytes = Vec::new();
    for cid in 0..count {
        let mut command = io(IoOpcode::WRITE, u64::from(cid), 1);
        command.set_cid(cid);
        command.set_sgl(SglDescriptor::in_capsule(0, BLOCK as u32));
        let at = usize::from(cid) * BLOCK;
        bytes.extend(client.session.capsule(&command, &data[at..at + BLOCK]));
    }
    client.send(&bytes);
    let mut seen: Vec<u16> = (0..count)
        .map(|_| {
            let completion = client.completion();
            assert!(completion.status.is_success(), "{}", completion.status);
            completion.cid
        })
        .collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..count).collect::<Vec<_>>());
}

#[test]
fn commands_wait_for_buffers_and_for_the_device() {
    let bed = bed();
    for data_digest in [false, true] {
        let dialect = Dialect {
            data_digest,
            ..Dialect::default()
        };
        let (mut admin, mut client) = bed.host_with(dialect);
        let data = pattern(u64::from(data_digest), 100 * BLOCK);
        pipeline(&mut client, &data);
        let (completion, read) = client.read(0, 100);
        assert!(completion.status.is_success(), "{}", completion.status);
        assert!(read == data);
        // Several big writes at a time; only one of them has a buffer.
        let bigs: Vec<_> = (0..4u16)
            .map(|i| pattern(u64::from(i), 64 * BLOCK))
            .collect();
        for i in 0..4u16 {
            let mut command = io(IoOpcode::WRITE, 1000 + u64::from(i) * 64, 64);
            command.set_cid(i);
            command.set_sgl(SglDescriptor::transport(64 * BLOCK as u32));
            client.capsule(&command, &[]);
        }
        for i in 0..4u16 {
            let r2t = client.r2t();
            assert_eq!(r2t.command_id, i, "in the order in which they came");
            // The admin queue still answers.
            assert_ne!(admin.property(wire::fabrics::Property::CAP), 0);
            client.answer_r2t(&r2t, &bigs[usize::from(i)]);
            assert!(client.completion().status.is_success());
        }
        for (i, big) in bigs.iter().enumerate() {
            assert!(client.read(1000 + i as u64 * 64, 64).1 == *big);
        }
        let mut flush = wire::nvme::Command::new(IoOpcode::FLUSH.0, 0);
        flush.set_nsid(u32::MAX);
        assert!(client.execute(flush, &[]).status.is_success());
        let (completion, _) = client.read(4095, 1);
        assert!(
            completion.status.is(Status::UNRECOVERED_READ_ERROR),
            "{}",
            completion.status
        );
    }
}

#[test]
fn a_host_that_vanishes_leaves_nothing_behind() {
    let bed = bed();
    for _ in 0..5 {
        let (admin, mut client) = bed.host();
        for cid in 0..50 {
            let mut command = io(IoOpcode::WRITE, u64::from(cid), 1);
            command.set_cid(cid);
            command.set_sgl(SglDescriptor::in_capsule(0, BLOCK as u32));
            client.capsule(&command, &pattern(0, BLOCK));
        }
        drop((admin, client));
    }
    common::eventually("every connection is gone", || {
        let snapshot = bed.handle().snapshot();
        snapshot.controllers.is_empty() && snapshot.cores[0].connections == 0
    });
    // All buffers were returned: the largest is available.
    let (_admin, mut client) = bed.host();
    assert!(client.read(0, 256).0.status.is_success());
    bed.target.stop().expect("an orderly end");
}

#[test]
fn a_host_that_does_not_read_holds_nobody_up() {
    let bed = Bed::new();
    let (_admin, mut deaf) = bed.host();
    // 32 MiB of answers, which exceeds the socket buffers.
    for cid in 0..32u16 {
        let mut command = io(IoOpcode::READ, 0, 256);
        command.set_cid(cid);
        command.set_sgl(SglDescriptor::transport(256 * BLOCK as u32));
        deaf.capsule(&command, &[]);
    }
    let (_admin, mut client) = bed.host();
    for slba in 0..100 {
        assert!(client.read(slba, 1).0.status.is_success());
    }
    for cid in 0..32u16 {
        assert_eq!(deaf.fetched(cid).1.len(), 256 * BLOCK);
    }
}

#[test]
fn each_command_is_counted_by_how_long_it_took() {
    let ram = common::ram(MIB);
    let options = DelayOptions {
        read: Nanos::from_millis(3),
        ..DelayOptions::default()
    };
    let late: Arc<dyn Device> = Arc::new(Delay::new(Arc::clone(&ram) as Arc<dyn Device>, options));
    let namespaces = [namespace(1, Arc::clone(&ram) as _), namespace(2, late)];
    let target = common::run(target_with(Limits::default(), 1, namespaces), 1);
    let bed = Bed { target, ram };
    let (_admin, mut host) = bed.host();
    for nsid in [1, 2] {
        for _ in 0..3 {
            let (read, _) = host.fetch(common::io_on(nsid, IoOpcode::READ, 0, 1), BLOCK);
            assert!(read.status.is_success(), "{}", read.status);
        }
        let zeroes = common::io_on(nsid, IoOpcode::WRITE_ZEROES, 0, 1);
        assert!(host.execute(zeroes, &[]).status.is_success());
    }
    let data = pattern(1, BLOCK);
    assert!(host.write(0, &data).status.is_success());
    let snapshot = || bed.handle().snapshot().subsystems[0].namespaces.clone();
    common::eventually("all commands are counted", || {
        let count = |n: &NamespaceSnapshot| {
            [n.reads, n.writes, n.others].map(|kind| kind.latency.commands())
        };
        // A core publishes a sum after the counts.
        let namespaces = snapshot();
        namespaces.iter().map(count).collect::<Vec<_>>() == [[3, 1, 1], [3, 0, 1]]
            && namespaces[1].reads.latency.sum_ns >= 9_000_000
    });
    let [memory, late] = &snapshot()[..] else {
        panic!("two namespaces")
    };
    // Memory is read within the turn in which the command arrived.
    assert_eq!(
        (memory.reads.latency.buckets[0], memory.reads.latency.sum_ns),
        (3, 0)
    );
    let early = LATENCY_BOUNDS_NS.iter().zip(&late.reads.latency.buckets);
    let early: u64 = early
        .filter(|(bound, _)| **bound < 3_000_000)
        .map(|(_, count)| count)
        .sum();
    assert_eq!(early, 0, "{late:?}");
    assert!(late.reads.latency.sum_ns >= 9_000_000, "{late:?}");
}

/// A channel of RAM that is not accessible as memory, and counts its polls.
#[derive(Debug)]
struct WatchedChannel {
    ram: Box<dyn Channel>,
    ticks: Arc<AtomicU64>,
}

impl Channel for WatchedChannel {
    fn submit(&mut self, request: Request, cx: &mut Context<'_>) -> Submit {
        self.ram.submit(request, cx)
    }

    fn tick(&mut self, _: &mut Context<'_>) {
        self.ticks.fetch_add(1, Ordering::SeqCst);
    }
}

/// Regression: every turn polled every namespace, so a read took 5 µs longer in the presence of a
/// thousand unused namespaces.
#[test]
fn namespaces_that_rest_cost_nothing() {
    let ticks: Vec<_> = (0..3).map(|_| Arc::new(AtomicU64::new(0))).collect();
    let watched = |ticks: &Arc<AtomicU64>| {
        let ticks = Arc::clone(ticks);
        TestDevice::new(common::ram(MIB), move |ram| {
            let ticks = Arc::clone(&ticks);
            Box::new(WatchedChannel { ram, ticks })
        })
    };
    let namespaces = (1..).zip(&ticks);
    let namespaces = namespaces.map(|(nsid, ticks)| namespace(nsid, Arc::new(watched(ticks))));
    let target = target_with(Limits::default(), 1, namespaces);
    let bed = Bed {
        target: common::run(target, 1),
        ram: common::ram(MIB),
    };
    let (_admin, mut client) = bed.host();
    assert!(client.read(0, 1).0.status.is_success());
    let seen = || -> Vec<_> { ticks.iter().map(|t| t.load(Ordering::SeqCst)).collect() };
    let before = seen();
    for _ in 0..100 {
        assert!(client.read(0, 1).0.status.is_success());
    }
    let after = seen();
    assert!(after[0] > before[0], "{after:?}");
    assert_eq!(after[1..], before[1..]);
}

/// A channel that never answers.
#[derive(Debug, Default)]
struct StuckChannel(Vec<Request>);

impl Channel for StuckChannel {
    fn submit(&mut self, request: Request, _: &mut Context<'_>) -> Submit {
        self.0.push(request);
        Submit::Queued
    }

    fn closed(&self) -> bool {
        self.0.is_empty()
    }
}

/// Regression: the target waited for the device forever.
#[test]
fn a_target_ends_although_a_device_never_answers() {
    let limits = Limits {
        drain_timeout: Nanos::from_millis(50),
        ..Limits::default()
    };
    let stuck = TestDevice::new(common::ram(MIB), |_| Box::new(StuckChannel::default()));
    let target = target_with(limits, 1, [namespace(1, Arc::new(stuck))]);
    let running = common::run(target, 1);
    let address = running.addresses[0];
    let mut admin = Client::admin(address, NQN, 0);
    let mut client = Client::dial(address, Dialect::default());
    client.connect_io(NQN, 1, 1, 31);
    let cid = client.cid();
    let mut read = io(IoOpcode::READ, 0, 1);
    read.set_cid(cid);
    read.set_sgl(SglDescriptor::transport(BLOCK as u32));
    client.capsule(&read, &[]);
    common::eventually("the device has the read", || {
        running.handle.snapshot().cores[0].io_commands == 1
    });
    running.stop().expect("no driver broke");
    assert!(client.try_receive().is_none(), "nobody says it was done");
    assert!(admin.try_receive().is_none());
}

/// Regression: an idle admin queue closed shortly after the shutdown began, and with it the
/// controller: hosts did not receive the completions of finished commands, and the target reported
/// no abandoned ones.
#[test]
fn a_shutdown_waits_for_commands_under_way_although_the_admin_queue_is_idle() {
    let limits = Limits {
        linger: Nanos::from_millis(1),
        ..Limits::default()
    };
    let (bed, state) = common::late::bed_with(4, limits);
    let (_admin, mut client) = bed.host();
    let mut read = io(IoOpcode::READ, 0, 1);
    let cid = client.cid();
    read.set_cid(cid);
    read.set_sgl(SglDescriptor::transport(BLOCK as u32));
    client.capsule(&read, &[]);
    common::eventually("the device has the read", || {
        state.held.load(Ordering::SeqCst) == 1
    });
    bed.handle().shutdown();
    // Long after the admin queue had nothing left to answer.
    std::thread::sleep(std::time::Duration::from_millis(200));
    state.open.store(true, Ordering::SeqCst);
    let (completion, _) = client.fetched(cid);
    assert!(completion.status.is_success(), "{}", completion.status);
    let handle = Arc::clone(bed.handle());
    bed.target.stop().expect("no driver broke");
    assert!(!handle.gave_up_commands());
}

#[test]
fn a_shutdown_gives_up_a_command_whose_host_withholds_its_data_and_says_so() {
    let limits = Limits {
        drain_timeout: Nanos::from_millis(100),
        ..Limits::default()
    };
    let (bed, _) = common::late::bed_with(4, limits);
    let (_admin, mut client) = bed.host();
    let mut write = io(IoOpcode::WRITE, 0, 16);
    write.set_cid(client.cid());
    write.set_sgl(SglDescriptor::transport(16 * BLOCK as u32));
    client.capsule(&write, &[]);
    client.r2t();
    let handle = Arc::clone(bed.handle());
    bed.target.stop().expect("no driver broke");
    assert!(handle.gave_up_commands());
    assert!(client.try_receive().is_none(), "nobody says it was done");
}

/// Regression: a queue that once had a thousand commands kept memory for them for its lifetime.
#[test]
fn a_queue_gives_back_the_memory_of_a_burst() {
    let limits = Limits {
        trim_interval: Nanos::from_millis(50),
        ..Limits::default()
    };
    let (bed, state) = common::late::bed_on(1, 64, limits);
    let (_admin, mut client) = bed.host();
    let mut reads = Vec::new();
    for cid in 0..100 {
        let mut read = io(IoOpcode::READ, 0, 1);
        read.set_cid(cid);
        read.set_sgl(SglDescriptor::transport(BLOCK as u32));
        reads.extend(client.session.capsule(&read, &[]));
    }
    client.send(&reads);
    let places = || bed.handle().snapshot().cores[0].command_places;
    common::eventually("the burst is seen", || places() >= 100);
    state.open.store(true, Ordering::SeqCst);
    for _ in 0..100 {
        common::any_read(&mut client);
    }
    common::eventually("its memory is given back", || places() == 0);
    assert!(client.read(0, 1).0.status.is_success());
}
