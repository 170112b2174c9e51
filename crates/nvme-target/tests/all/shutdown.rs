//! After a normal shutdown of its controller, a host's data is on the medium.

use crate::common;
use crate::common::{BLOCK, Bed, Client, NQN, eventually, io, late, namespace, ram, target_with};
use base::Time;
use base::units::MIB;
use block::{BlockError, Channel, Completion, Device, Operation, Request, Submit};
use reactor::Context;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use switchyard_target::Limits;
use testing::device::TestDevice;
use wire::fabrics::Property;
use wire::fabrics::property::{Configuration, ControllerStatus};
use wire::nvme::identify::Cns;
use wire::nvme::{Identify, IdentifyController, IoOpcode, SglDescriptor, Status};

/// Observations of a [`Cached`] device by its tests.
#[derive(Debug, Default)]
struct Seen {
    flushes: AtomicU64,
    broken: AtomicBool,
}

/// A channel of RAM that counts flushes, each of which takes some turns.
#[derive(Debug)]
struct CachedChannel {
    ram: Box<dyn Channel>,
    seen: Arc<Seen>,
    flushing: VecDeque<(Request, u32)>,
    done: VecDeque<Completion>,
}

impl Channel for CachedChannel {
    fn submit(&mut self, request: Request, cx: &mut Context<'_>) -> Submit {
        if request.operation != Operation::Flush {
            return self.ram.submit(request, cx);
        }
        self.flushing.push_back((request, 3));
        Submit::Queued
    }

    fn reap(&mut self) -> Option<Completion> {
        self.done.pop_front()
    }

    fn tick(&mut self, _cx: &mut Context<'_>) {
        for (_, turns) in &mut self.flushing {
            *turns = turns.saturating_sub(1);
        }
        while self.flushing.front().is_some_and(|(_, turns)| *turns == 0) {
            let Some((request, _)) = self.flushing.pop_front() else {
                return;
            };
            self.seen.flushes.fetch_add(1, Ordering::SeqCst);
            let broken = self.seen.broken.load(Ordering::SeqCst);
            self.done.push_back(Completion {
                tag: request.tag,
                result: if broken {
                    Err(BlockError::WriteFailure)
                } else {
                    Ok(())
                },
                data: None,
            });
        }
    }

    fn deadline(&self) -> Time {
        if self.flushing.is_empty() {
            Time::NEVER
        } else {
            Time::ZERO
        }
    }

    fn closed(&self) -> bool {
        self.flushing.is_empty()
    }
}

/// Returns RAM that reports a volatile cache.
fn cached(seen: &Arc<Seen>) -> Arc<dyn Device> {
    let seen = Arc::clone(seen);
    let device = TestDevice::new(ram(MIB), move |ram| {
        Box::new(CachedChannel {
            ram,
            seen: Arc::clone(&seen),
            flushing: VecDeque::new(),
            done: VecDeque::new(),
        })
    });
    Arc::new(device.with(|capabilities| capabilities.volatile_cache = true))
}

/// Starts a target with `count` namespaces with a cache, and one without.
fn bed(count: u32) -> (Bed, Vec<Arc<Seen>>) {
    let all: Vec<Arc<Seen>> = (0..count).map(|_| Arc::default()).collect();
    let plain = ram(MIB);
    let namespaces = (1..).zip(&all);
    let namespaces = namespaces
        .map(|(nsid, seen)| namespace(nsid, cached(seen)))
        .chain([namespace(count + 1, Arc::clone(&plain) as _)]);
    let target = common::run(target_with(Limits::default(), 1, namespaces), 1);
    (Bed { target, ram: plain }, all)
}

/// Regression: a host that had connected before continued to assume that there was no cache, and
/// silently lost unflushed data.
#[test]
fn a_host_that_was_told_of_no_cache_has_to_ask_again_when_there_is_one() {
    let (bed, _) = bed(0);
    let is_cached = |admin: &mut Client| {
        let identify = Identify::new(Cns::CONTROLLER, 0);
        let (_, data) = admin.fetch(identify.encode(0), 4096);
        let data = data.first_chunk().expect("4096 bytes");
        IdentifyController::parse(data).vwc & IdentifyController::VWC_PRESENT != 0
    };
    let mut told = bed.admin();
    assert!(!is_cached(&mut told));
    let mut other = bed.admin();
    let device = cached(&Arc::default());
    let added = bed.handle().add_namespace(NQN, namespace(2, device));
    added.expect("a new namespace");
    assert!(told.try_receive().is_none(), "its connection is gone");
    assert!(is_cached(&mut other) && is_cached(&mut bed.admin()));
}

fn flushes(all: &[Arc<Seen>]) -> Vec<u64> {
    all.iter()
        .map(|seen| seen.flushes.load(Ordering::SeqCst))
        .collect()
}

/// Returns CSTS.SHST.
fn shutdown_state(admin: &mut Client) -> u8 {
    ControllerStatus(admin.property(Property::CSTS) as u32).shutdown()
}

#[test]
fn a_normal_shutdown_flushes_every_cache_before_it_is_complete() {
    // More namespaces than are flushed at once.
    let (bed, all) = bed(20);
    let mut admin = bed.admin();
    let off = Configuration::ENABLE.with_shutdown(1);
    assert!(admin.configure(off).status.is_success());
    assert_eq!(shutdown_state(&mut admin), 2);
    assert_eq!(flushes(&all), [1; 20]);
    // A repeated request flushes nothing again.
    assert!(admin.configure(off).status.is_success());
    assert_eq!(flushes(&all), [1; 20]);
    // The controller can be used again after a reset.
    assert!(admin.configure(Configuration(0)).status.is_success());
    admin.enable();
    assert_eq!(shutdown_state(&mut admin), 0);
    eventually("each move of the controller is counted", || {
        let stats = bed.handle().snapshot().cores[0];
        let shut_down = (stats.controllers_shutting_down, stats.controllers_shut_down);
        (stats.controllers_ready, stats.controllers_disabled) == (2, 0) && shut_down == (1, 1)
    });
}

#[test]
fn an_abrupt_shutdown_flushes_nothing() {
    let (bed, all) = bed(2);
    let mut admin = bed.admin();
    let off = Configuration::ENABLE.with_shutdown(2);
    assert!(admin.configure(off).status.is_success());
    assert_eq!(shutdown_state(&mut admin), 2);
    assert_eq!(flushes(&all), [0, 0]);
}

#[test]
fn a_shutdown_that_cannot_flush_says_so_and_can_be_asked_for_again() {
    let (bed, all) = bed(2);
    let mut admin = bed.admin();
    all[1].broken.store(true, Ordering::SeqCst);
    let off = Configuration::ENABLE.with_shutdown(1);
    let answer = admin.configure(off);
    assert!(answer.status.is(Status::WRITE_FAULT), "{}", answer.status);
    assert_eq!(shutdown_state(&mut admin), 0);
    all[1].broken.store(false, Ordering::SeqCst);
    assert!(admin.configure(off).status.is_success());
    assert_eq!(shutdown_state(&mut admin), 2);
    assert_eq!(flushes(&all), [2, 2]);
}

/// Regression: an idle admin queue was closed shortly after the drain began, and with it the
/// controller's I/O queues, whose commands had ten seconds.
#[test]
fn an_idle_admin_queue_does_not_cut_a_drain_short() {
    let (bed, device) = late::bed(8);
    let (_admin, mut queue) = bed.host();
    let mut read = io(IoOpcode::READ, 0, 1);
    read.set_cid(7);
    read.set_sgl(SglDescriptor::transport(BLOCK as u32));
    queue.capsule(&read, &[]);
    eventually("the device has the read", || {
        device.held.load(Ordering::SeqCst) == 1
    });
    bed.handle().shutdown();
    // Connections with nothing to answer are closed by then.
    let moment = 5 * Limits::default().linger.0;
    std::thread::sleep(Duration::from_nanos(moment));
    device.open.store(true, Ordering::SeqCst);
    assert!(queue.fetched(7).0.status.is_success());
    drop(queue);
    bed.target.stop().expect("the cores end");
}
