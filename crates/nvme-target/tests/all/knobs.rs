//! Knobs changed while I/O runs, and the effect of doorbells on answers.

use crate::common;
use crate::common::{BLOCK, Bed, Client, eventually, io, namespace, pattern, target_with};
use base::units::MIB;
use base::{Nanos, Time};
use block::layer::delay::{Delay, DelayOptions};
use block::{Channel, Completion, Device, Request, Submit};
use reactor::Context;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use switch::doorbell::{DoorbellCounters, Mode, Reason};
use switch::knobs::Preset;
use switch::{CaravanLimits, Class, Knobs};
use switchyard_target::{Limits, TargetError};
use testing::device::TestDevice;
use wire::nvme::{IoOpcode, SglDescriptor};

#[test]
fn knobs_are_turned_and_a_bad_one_turns_nothing() {
    let bed = Bed::new();
    assert_eq!(bed.handle().knobs(), Knobs::default());
    bed.handle().set_knobs(Knobs::linux()).expect("valid knobs");
    assert_eq!(bed.handle().snapshot().knobs, Knobs::linux());
    let bad = Knobs {
        quantum_bytes: 1,
        ..Knobs::default()
    };
    let error = bed.handle().set_knobs(bad).expect_err("too small");
    assert!(matches!(error, TargetError::Knobs(_)), "{error}");
    assert!(error.to_string().contains("quantum_bytes"), "{error}");
    assert_eq!(bed.handle().knobs(), Knobs::linux());
}

/// A channel of RAM that completes the permitted number of requests, in order.
#[derive(Debug)]
struct GatedChannel {
    ram: Box<dyn Channel>,
    permits: Arc<AtomicUsize>,
    pending: VecDeque<Request>,
    done: VecDeque<Completion>,
}

impl Channel for GatedChannel {
    fn submit(&mut self, request: Request, _cx: &mut Context<'_>) -> Submit {
        self.pending.push_back(request);
        Submit::Queued
    }

    fn reap(&mut self) -> Option<Completion> {
        self.done.pop_front()
    }

    fn tick(&mut self, cx: &mut Context<'_>) {
        // A permit that arrives before its request is kept for it.
        while self.permits.load(Ordering::Relaxed) > 0
            && let Some(request) = self.pending.pop_front()
        {
            self.permits.fetch_sub(1, Ordering::Relaxed);
            if let Submit::Done(completion) = self.ram.submit(request, cx) {
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

fn bed_with(device: Arc<dyn Device>) -> Bed {
    let target = target_with(Limits::default(), 1, [namespace(1, device)]);
    Bed {
        target: common::run(target, 1),
        ram: common::ram(MIB),
    }
}

fn gated() -> (Bed, Arc<AtomicUsize>) {
    let permits = Arc::new(AtomicUsize::new(0));
    let own = Arc::clone(&permits);
    let device = TestDevice::new(common::ram(MIB), move |ram| {
        Box::new(GatedChannel {
            ram,
            permits: Arc::clone(&own),
            pending: VecDeque::new(),
            done: VecDeque::new(),
        })
    });
    (bed_with(Arc::new(device)), permits)
}

/// Reads the first blocks of namespace 1, one per command.
fn ask(client: &mut Client, count: u16) {
    let mut bytes = Vec::new();
    for cid in 0..count {
        let mut read = io(IoOpcode::READ, u64::from(cid), 1);
        read.set_cid(cid);
        read.set_sgl(SglDescriptor::transport(BLOCK as u32));
        bytes.extend(client.session.capsule(&read, &[]));
    }
    client.send(&bytes);
}

/// Returns knobs with a doorbell that waits for four answers for the longest allowed time, so that
/// four are likely to complete in it.
fn patient() -> Knobs {
    let fill = CaravanLimits {
        requests: 4,
        bytes: MIB as u64,
        iovecs: 1024,
    };
    Knobs {
        doorbell: Mode::Adaptive {
            fill,
            max_hold: Nanos::from_millis(100),
        },
        ..Knobs::default()
    }
}

fn caravans(bed: &Bed) -> DoorbellCounters {
    bed.handle().snapshot().switch[0].classes[Class::Throughput].caravans
}

fn rang(counters: &DoorbellCounters, reason: Reason) -> u64 {
    counters.rings[reason.index()]
}

#[test]
fn answers_wait_for_a_caravan_and_for_no_longer_than_they_may() {
    let (bed, permits) = gated();
    bed.handle().set_knobs(patient()).expect("valid knobs");
    let (_admin, mut client) = bed.host();
    ask(&mut client, 32);
    eventually("all have arrived", || {
        let asked = bed.handle().snapshot().switch[0].classes[Class::Throughput];
        asked.outstanding_bytes == 32 * BLOCK as u64
    });
    // Four at once fill the caravan; an answer alone leaves only by the timer.
    permits.fetch_add(4, Ordering::Relaxed);
    for cid in 0..4 {
        assert!(client.fetched(cid).0.status.is_success());
    }
    permits.fetch_add(1, Ordering::Relaxed);
    assert!(client.fetched(4).0.status.is_success());
    eventually("the caravans are counted", || {
        let seen = caravans(&bed);
        rang(&seen, Reason::RequestsFull) == 1 && rang(&seen, Reason::Timer) == 1
    });
    let seen = caravans(&bed);
    // Sent alone: the answer to Connect, and the answer whose wait timed out.
    assert_eq!((seen.sizes.buckets()[0], seen.sizes.buckets()[2]), (2, 1));
    // The last answers have nothing to wait for.
    permits.fetch_add(27, Ordering::Relaxed);
    for cid in 5..32 {
        assert!(client.fetched(cid).0.status.is_success());
    }
    eventually("nothing is outstanding", || {
        let stats = bed.handle().snapshot().switch[0].classes[Class::Throughput];
        stats.outstanding_bytes == 0 && stats.caravans.requests == 1 + 32
    });
    // The bytes passed to TCP: a completion for Connect, and a header plus the data for each read.
    assert_eq!(caravans(&bed).bytes, 24 + 32 * (24 + BLOCK as u64));
}

#[test]
fn what_is_held_outlives_neither_the_knob_nor_the_queue() {
    let (bed, permits) = gated();
    bed.handle().set_knobs(patient()).expect("valid knobs");
    let (_admin, mut client) = bed.host();
    ask(&mut client, 32);
    permits.fetch_add(1, Ordering::Relaxed);
    bed.handle()
        .set_knobs(Knobs::nvme_tcp())
        .expect("valid knobs");
    assert!(client.fetched(0).0.status.is_success());
    bed.handle().set_knobs(patient()).expect("valid knobs");
    permits.fetch_add(1, Ordering::Relaxed);
    let handle = Arc::clone(bed.handle());
    handle.shutdown();
    assert!(client.fetched(1).0.status.is_success());
    permits.fetch_add(30, Ordering::Relaxed);
    for cid in 2..32 {
        assert!(client.fetched(cid).0.status.is_success());
    }
    bed.target.stop().expect("the cores end");
}

#[test]
fn without_caravans_each_answer_has_a_send_of_its_own() {
    let bed = Bed::new();
    bed.handle()
        .set_knobs(Knobs::nvme_tcp())
        .expect("valid knobs");
    let (_admin, mut client) = bed.host();
    for _ in 0..20 {
        ask(&mut client, 64);
        for cid in 0..64 {
            assert!(client.fetched(cid).0.status.is_success());
        }
    }
    // The first answer is that to Connect.
    let answers = 1 + 20 * 64;
    eventually("the caravans are counted", || {
        caravans(&bed).requests == answers
    });
    assert_eq!(caravans(&bed).sizes.buckets()[0], answers);
}

#[test]
fn a_knob_turned_in_flight_loses_nothing() {
    let ram = common::ram(MIB);
    let late = DelayOptions {
        read: Nanos::from_micros(30),
        ..DelayOptions::default()
    };
    let device = Delay::new(Arc::clone(&ram) as Arc<dyn Device>, late);
    let bed = bed_with(Arc::new(device));
    let (_admin, mut writer) = bed.host();
    let content = pattern(3, 64 * BLOCK);
    assert!(writer.write_by_r2t(0, &content).status.is_success());

    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let changes = scope.spawn(|| {
            let mut turns = 0_usize;
            while !stop.load(Ordering::Relaxed) {
                let (preset, _) = Preset::ALL[turns % Preset::ALL.len()];
                let mut knobs = preset.knobs();
                if turns.is_multiple_of(2) {
                    knobs.doorbell = patient().doorbell;
                }
                // A thread that polls forever takes the processor from this test's other threads.
                knobs.polling = Knobs::default().polling;
                bed.handle().set_knobs(knobs).expect("valid knobs");
                turns += 1;
            }
            turns
        });
        let readers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let (_admin, mut client) = bed.host();
                    for _ in 0..60 {
                        ask(&mut client, 64);
                        let mut seen = [false; 64];
                        for _ in 0..64 {
                            let (cid, data) = common::any_read(&mut client);
                            let at = usize::from(cid) * BLOCK;
                            assert!(data == content[at..at + BLOCK]);
                            assert!(!std::mem::replace(&mut seen[usize::from(cid)], true));
                        }
                    }
                })
            })
            .collect();
        for reader in readers {
            reader.join().expect("everything is answered once");
        }
        stop.store(true, Ordering::Relaxed);
        assert!(changes.join().expect("every turn is done") > 0);
    });
}
