//! Runners that return to their programs, are deposed, lose their channel to the device, or end.

use super::*;
use crate::Completion;
use reactor::Wake;
use std::sync::atomic::{AtomicBool, AtomicUsize};

fn at(micros: u64) -> Time {
    Time::ZERO + Nanos::from_micros(micros)
}

/// Submits a request over one block, in memory of the channel.
fn put(channel: &mut dyn Channel, driver: &mut ClockedDriver, now: Time, read: bool, lba: u64) {
    let request = Request {
        tag: lba,
        operation: if read {
            Operation::Read
        } else {
            Operation::Write { durable: false }
        },
        lba: Lba(lba),
        blocks: 1,
        data: channel.memory(BLOCK as usize),
    };
    driver.replaced.set(now);
    let submit = channel.submit(request, &mut Context::begin(driver));
    assert!(matches!(submit, Submit::Queued), "{submit:?}");
}

fn reap(channel: &mut dyn Channel) -> Option<(u64, Result<(), BlockError>)> {
    channel.reap().map(|done| (done.tag, done.result))
}

fn open_all(device: &PathDevice, count: usize) -> (Vec<ClockedDriver>, Vec<Box<dyn Channel>>) {
    let mut drivers: Vec<_> = (0..count).map(|_| clocked()).collect();
    let open = |driver: &mut ClockedDriver| device.open(driver).expect("it opens");
    let channels = drivers.iter_mut().map(open).collect();
    (drivers, channels)
}

/// Reads take 10 ms, writes 50 ms.
fn delayed() -> PathDevice {
    delayed_by(50)
}

/// Reads take 10 ms.
fn delayed_by(write_millis: u64) -> PathDevice {
    let options = DelayOptions {
        read: Nanos::from_millis(10),
        write: Nanos::from_millis(write_millis),
        ..DelayOptions::default()
    };
    start(Arc::new(Delay::new(ram(64), options)), Path::Stm).in_calls()
}

/// It must not take another thread's request and return, so that the answer waits for its next
/// call.
#[test]
fn a_thread_whose_call_is_done_takes_no_batch() {
    let device = delayed();
    let (mut first, mut second) = (clocked(), clocked());
    let mut returns = device.open(&mut first).expect("it opens");
    let mut waits = device.open(&mut second).expect("it opens");
    put(&mut *returns, &mut first, at(10), true, 1);
    turn(&mut *returns, &mut first, at(10));
    put(&mut *waits, &mut second, at(20), true, 2);
    turn(&mut *waits, &mut second, at(20));
    turn(&mut *returns, &mut first, at(10_010));
    assert_eq!(reap(&mut *returns), Some((1, Ok(()))));
    turn(&mut *waits, &mut second, at(10_020));
    assert!(waits.deadline() <= at(20_020), "it runs the queue");
    turn(&mut *waits, &mut second, at(20_020));
    assert_eq!(reap(&mut *waits), Some((2, Ok(()))));
    assert_eq!(device.snapshot().taken_over, 0);
}

/// The other thread's request was sent with its own, and takes longer.
#[test]
fn a_call_is_done_when_nothing_is_under_way_for_others() {
    let device = delayed();
    let (mut first, mut second) = (clocked(), clocked());
    let mut serves = device.open(&mut first).expect("it opens");
    let mut waits = device.open(&mut second).expect("it opens");
    put(&mut *serves, &mut first, at(10), true, 1);
    put(&mut *waits, &mut second, at(10), false, 2);
    turn(&mut *serves, &mut first, at(10));
    turn(&mut *serves, &mut first, at(10_010));
    assert_eq!(reap(&mut *serves), None);
    turn(&mut *serves, &mut first, at(20_000));
    let next = serves.deadline();
    assert!(next > at(20_000) && next <= at(50_010), "{next:?}");
    turn(&mut *serves, &mut first, at(50_010));
    assert_eq!(reap(&mut *serves), Some((1, Ok(()))));
    turn(&mut *waits, &mut second, at(50_010));
    assert_eq!(reap(&mut *waits), Some((2, Ok(()))));
}

/// Requests of the runner itself must not count.
#[test]
fn requests_of_others_lose_the_election() {
    let device = delayed();
    let (mut drivers, mut channels) = open_all(&device, 2);
    put(&mut *channels[0], &mut drivers[0], at(10), false, 1);
    turn(&mut *channels[0], &mut drivers[0], at(10));
    put(&mut *channels[0], &mut drivers[0], at(20), false, 2);
    let counts = || {
        let snapshot = device.snapshot();
        (snapshot.elections_won, snapshot.elections_lost)
    };
    assert_eq!(counts(), (1, 0));
    put(&mut *channels[1], &mut drivers[1], at(30), false, 3);
    assert_eq!(counts(), (1, 1));
}

/// The deposed runner's commands are in flight for 50 ms more, and it runs meanwhile.
#[test]
fn a_runner_that_was_deposed_does_not_hide_that_its_successor_is_stuck() {
    let device = delayed();
    let (mut drivers, mut channels) = open_all(&device, 3);
    put(&mut *channels[0], &mut drivers[0], at(10), false, 1);
    turn(&mut *channels[0], &mut drivers[0], at(10));
    put(&mut *channels[1], &mut drivers[1], at(20), false, 2);
    turn(&mut *channels[1], &mut drivers[1], at(20));
    turn(&mut *channels[1], &mut drivers[1], at(1_100));
    assert_eq!(device.snapshot().taken_over, 1);
    put(&mut *channels[2], &mut drivers[2], at(1_200), true, 3);
    for now in (1_200..4_000).step_by(100) {
        turn(&mut *channels[0], &mut drivers[0], at(now));
        let _ = channels[0].deadline();
        turn(&mut *channels[2], &mut drivers[2], at(now));
    }
    assert_eq!(device.snapshot().taken_over, 2);
    turn(&mut *channels[2], &mut drivers[2], at(14_000));
    assert_eq!(reap(&mut *channels[2]), Some((3, Ok(()))));
}

/// Even if it does not know yet that it was deposed, and its next check for a stuck runner is late.
#[test]
fn a_queue_that_is_handed_to_a_runner_that_was_deposed_is_run() {
    let device = delayed_by(12);
    let (mut drivers, mut channels) = open_all(&device, 2);
    put(&mut *channels[0], &mut drivers[0], at(10), false, 1);
    turn(&mut *channels[0], &mut drivers[0], at(10));
    put(&mut *channels[1], &mut drivers[1], at(20), true, 2);
    turn(&mut *channels[1], &mut drivers[1], at(20));
    turn(&mut *channels[1], &mut drivers[1], at(1_100));
    assert_eq!(device.snapshot().taken_over, 1);
    put(&mut *channels[0], &mut drivers[0], at(1_200), true, 3);
    turn(&mut *channels[1], &mut drivers[1], at(11_100));
    assert_eq!(reap(&mut *channels[1]), Some((2, Ok(()))));
    for now in [11_200, 12_010, 22_010] {
        turn(&mut *channels[0], &mut drivers[0], at(now));
    }
    assert_eq!(reap(&mut *channels[0]), Some((1, Ok(()))));
    assert_eq!(reap(&mut *channels[0]), Some((3, Ok(()))));
}

/// Otherwise other threads would wait as long as its device takes, or until it is woken.
#[test]
fn a_runner_that_sleeps_for_long_is_deposed() {
    let options = DelayOptions {
        write: Nanos::from_millis(500),
        read: Nanos::from_millis(1),
        ..DelayOptions::default()
    };
    let device = start(Arc::new(Delay::new(ram(64), options)), Path::Stm);
    let (mut drivers, mut channels) = open_all(&device, 2);
    put(&mut *channels[0], &mut drivers[0], at(10), false, 1);
    for now in [10, 1_100] {
        turn(&mut *channels[0], &mut drivers[0], at(now));
    }
    assert!(channels[0].deadline() > at(1_100), "it sleeps");
    put(&mut *channels[1], &mut drivers[1], at(1_100), true, 2);
    // It is not deposed within the service time of working devices.
    let done = (1..100).find(|&millis| {
        turn(
            &mut *channels[1],
            &mut drivers[1],
            at(1_100 + 1_000 * millis),
        );
        let deposed = device.snapshot().taken_over > 0;
        assert!(!deposed || millis > 60, "after {millis} ms");
        reap(&mut *channels[1]).is_some()
    });
    assert!(done.is_some(), "it waits as long as the other sleeps");
}

/// A device whose channels lose their connection.
#[derive(Debug)]
struct Ways {
    ram: Ram,
    opened: AtomicUsize,
    /// Number of the channel that is gone.
    gone: usize,
    fate: Arc<Fate>,
}

#[derive(Debug, Default)]
struct Fate {
    /// True if all channels, and the device, are gone.
    all: AtomicBool,
    /// True if that channel is back.
    back: AtomicBool,
}

#[derive(Debug)]
struct Way {
    below: Box<dyn Channel>,
    gone: bool,
    fate: Arc<Fate>,
}

impl Ways {
    fn start(path: Path, gone: usize) -> (PathDevice, Arc<Fate>) {
        let fate = Arc::new(Fate::default());
        let ways = Self {
            ram: Ram::new(64 * u64::from(BLOCK), BLOCK).expect("memory"),
            opened: AtomicUsize::new(0),
            gone,
            fate: Arc::clone(&fate),
        };
        let device = PathDevice::unattended(Arc::new(ways), path, PathRules::default());
        (device.expect("good rules").with_requests(8, BLOCK), fate)
    }
}

impl Device for Ways {
    /// A device that is gone has no blocks.
    fn geometry(&self) -> Geometry {
        let all_gone = self.fate.all.load(Ordering::SeqCst);
        Geometry {
            blocks: if all_gone {
                0
            } else {
                self.ram.geometry().blocks
            },
            ..self.ram.geometry()
        }
    }

    fn capabilities(&self) -> Capabilities {
        self.ram.capabilities()
    }

    fn open(&self, driver: &mut dyn Driver) -> Result<Box<dyn Channel>, DeviceError> {
        let number = self.opened.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(Way {
            below: self.ram.open(driver)?,
            gone: number == self.gone,
            fate: Arc::clone(&self.fate),
        }))
    }

    fn outlives_channels(&self) -> bool {
        !self.fate.all.load(Ordering::SeqCst)
    }
}

impl Way {
    fn is_gone(&self) -> bool {
        let back = self.fate.back.load(Ordering::SeqCst);
        (self.gone && !back) || self.fate.all.load(Ordering::SeqCst)
    }
}

impl Channel for Way {
    fn submit(&mut self, request: Request, cx: &mut Context<'_>) -> Submit {
        if self.is_gone() {
            return Submit::Done(request.ended(Err(BlockError::Gone)));
        }
        self.below.submit(request, cx)
    }

    fn submit_extents(&mut self, command: Extents, cx: &mut Context<'_>) -> SubmitExtents {
        if self.is_gone() {
            return SubmitExtents::Done(command.ended(Err(BlockError::Gone)));
        }
        self.below.submit_extents(command, cx)
    }

    fn reap(&mut self) -> Option<Completion> {
        self.below.reap()
    }

    fn reap_extents(&mut self) -> Option<Extents> {
        self.below.reap_extents()
    }

    fn is_back(&self) -> bool {
        !self.is_gone()
    }
}

/// The requests of the remaining threads must not fail.
#[test]
fn a_submitter_that_lost_its_way_fails_alone() {
    let (device, fate) = Ways::start(Path::Stm, 0);
    let (mut first, mut second) = (clocked(), clocked());
    let mut lost = device.open(&mut first).expect("it opens");
    let mut others = device.open(&mut second).expect("it opens");
    put(&mut *lost, &mut first, at(1), false, 1);
    put(&mut *others, &mut second, at(1), false, 2);
    turn(&mut *lost, &mut first, at(2));
    assert_eq!(reap(&mut *lost), Some((1, Err(BlockError::Gone))));
    turn(&mut *others, &mut second, at(3));
    assert_eq!(reap(&mut *others), Some((2, Ok(()))));
    // It no longer wins elections.
    let request = Request {
        tag: 3,
        operation: Operation::Flush,
        lba: Lba(0),
        blocks: 0,
        data: None,
    };
    let mut cx = Context {
        now: at(4),
        driver: &mut first,
    };
    let Submit::Done(done) = lost.submit(request, &mut cx) else {
        panic!("it is gone");
    };
    assert_eq!(done.result, Err(BlockError::Gone));
    put(&mut *others, &mut second, at(5), false, 4);
    fate.all.store(true, Ordering::SeqCst);
    turn(&mut *others, &mut second, at(6));
    assert_eq!(reap(&mut *others), Some((4, Err(BlockError::Gone))));
}

/// The error must not be an out-of-range one.
#[test]
fn a_request_to_a_device_that_went_away_is_told_so() {
    for path in Path::ALL {
        let (device, fate) = Ways::start(path, usize::MAX);
        let mut driver = clocked();
        let mut channel = device.open(&mut driver).expect("it opens");
        fate.all.store(true, Ordering::SeqCst);
        let request = Request {
            tag: 1,
            operation: Operation::Read,
            lba: Lba(1),
            blocks: 1,
            data: channel.memory(BLOCK as usize),
        };
        let submit = channel.submit(request, &mut Context::begin(&mut driver));
        let Submit::Done(done) = submit else {
            panic!("{path}: it is gone");
        };
        assert_eq!(done.result, Err(BlockError::Gone), "{path}");
    }
}

/// Runs a submitter by its clock until its request completes.
fn finish(
    channel: &mut dyn Channel,
    driver: &mut ClockedDriver,
    from: u64,
) -> Result<(), BlockError> {
    for step in 0..100 {
        turn(channel, driver, at(from + 1_000 * step));
        if let Some((_, result)) = reap(channel) {
            return result;
        }
    }
    panic!("it waits for ever");
}

#[test]
fn submitters_run_the_queues_of_a_dispatcher_that_lost_its_way() {
    for path in [Path::Interrupt, Path::Poll] {
        let (device, _) = Ways::start(path, 0);
        let (mut first, mut second) = (clocked(), clocked());
        let mut dispatcher = device.dispatcher(&mut second).expect("it opens");
        let mut channel = device.open(&mut first).expect("it opens");
        for round in 0..3 {
            let now = 1_000_000 * round;
            put(&mut *channel, &mut first, at(now), false, round);
            let mut cx = Context {
                now: at(now),
                driver: &mut second,
            };
            reactor::Service::maintain(&mut dispatcher, &mut cx);
            assert!(reactor::Service::deadline(&dispatcher) > at(now), "{path}");
            assert_eq!(finish(&mut *channel, &mut first, now), Ok(()), "{path}");
        }
    }
}

/// Its requests must not fail for good.
#[test]
fn a_submitter_whose_way_is_back_submits_again() {
    for path in [Path::Stm, Path::Atm, Path::Htm, Path::TwoQueue] {
        let (device, fate) = Ways::start(path, 0);
        let mut driver = clocked();
        let mut channel = device.open(&mut driver).expect("it opens");
        put(&mut *channel, &mut driver, at(1), true, 1);
        let gone = Err(BlockError::Gone);
        assert_eq!(finish(&mut *channel, &mut driver, 2), gone, "{path}");
        assert!(!channel.is_back(), "{path}");
        fate.back.store(true, Ordering::SeqCst);
        turn(&mut *channel, &mut driver, at(1_000_000));
        assert!(channel.is_back(), "{path}");
        put(&mut *channel, &mut driver, at(1_000_001), true, 2);
        let done = finish(&mut *channel, &mut driver, 1_000_002);
        assert_eq!(done, Ok(()), "{path}");
    }
}

/// Submitters must not run its queues for good.
#[test]
fn a_dispatcher_whose_way_is_back_runs_its_queues_again() {
    for path in [Path::Interrupt, Path::Poll] {
        let (device, fate) = Ways::start(path, 0);
        let (mut first, mut second) = (clocked(), clocked());
        let mut dispatcher = device.dispatcher(&mut second).expect("it opens");
        let mut channel = device.open(&mut first).expect("it opens");
        let mut dispatch = |now| {
            let mut cx = Context {
                now,
                driver: &mut second,
            };
            reactor::Service::maintain(&mut dispatcher, &mut cx);
        };
        put(&mut *channel, &mut first, at(1), true, 1);
        dispatch(at(1));
        assert_eq!(finish(&mut *channel, &mut first, 2), Ok(()), "{path}");
        fate.back.store(true, Ordering::SeqCst);
        dispatch(at(1_000_000));
        put(&mut *channel, &mut first, at(1_000_001), true, 2);
        turn(&mut *channel, &mut first, at(1_000_002));
        assert_eq!(reap(&mut *channel), None, "{path}: it is not its part");
        dispatch(at(1_000_003));
        turn(&mut *channel, &mut first, at(1_000_004));
        assert_eq!(reap(&mut *channel), Some((2, Ok(()))), "{path}");
    }
}

/// Number of times that the dispatcher was woken.
#[derive(Debug, Default)]
struct Rings(AtomicUsize);

impl Wake for Rings {
    fn wake(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// The dispatcher checked while the queue was run: it must be notified of the write that stays
/// there.
#[test]
fn the_dispatcher_is_told_of_what_is_plugged_when_a_submitter_does_not_run_it() {
    let options = DelayOptions {
        read: Nanos::from_millis(10),
        ..DelayOptions::default()
    };
    let slow = Arc::new(Delay::new(ram(64), options));
    let device = PathDevice::unattended(slow, Path::Atm, PathRules::default());
    let device = device.expect("good rules").with_requests(8, BLOCK);
    let bell = &device.inner.bell.sleeper;
    let rings = Arc::new(Rings::default());
    bell.serve(Arc::clone(&rings) as _);
    let told = || rings.0.swap(0, Ordering::SeqCst) > 0;
    let (mut drivers, mut channels) = open_all(&device, 2);
    let mut own = clocked();
    let mut plugs = device.clone().unawaited().open(&mut own).expect("it opens");
    put(&mut *channels[0], &mut drivers[0], at(10), true, 1);
    turn(&mut *channels[0], &mut drivers[0], at(10));
    put(&mut *channels[1], &mut drivers[1], at(20), true, 2);
    put(&mut *plugs, &mut own, at(30), false, 3);
    assert!(bell.may_sleep(|| device.inner.queues[0].due(at(30)) == Time::NEVER));
    // The runner leaves the queue to the other submitter, which ends as well.
    channels.remove(0);
    assert!(!told(), "it is not its part");
    channels.remove(0);
    assert!(told(), "it has to look");
    assert_eq!(device.inner.queues[0].due(at(40)), at(1_020));
    // A dispatcher that has not checked yet is notified by the waiting submitters.
    assert!(bell.may_sleep(|| true));
    turn(&mut *plugs, &mut own, at(50));
    assert!(!told());
    turn(&mut *plugs, &mut own, at(5_000));
    assert!(told(), "the write is due");
}

/// Requests must not wait forever for a dispatcher whose ring failed.
#[test]
fn submitters_run_the_queues_of_a_dispatcher_that_ended() {
    let dispatched = Path::ALL.into_iter().filter(|&path| path != Path::Sync);
    for (path, awaited) in dispatched.flat_map(|path| [(path, true), (path, false)]) {
        let device = PathDevice::unattended(dram_ssd(64), path, PathRules::default());
        let device = device.expect("good rules").with_requests(8, BLOCK);
        let device = if awaited { device } else { device.unawaited() };
        let (mut first, mut second) = (clocked(), clocked());
        let dispatcher = device.dispatcher(&mut second).expect("it opens");
        let mut channel = device.open(&mut first).expect("it opens");
        put(&mut *channel, &mut first, at(1), false, 1);
        drop(dispatcher);
        assert_eq!(finish(&mut *channel, &mut first, 2), Ok(()), "{path}");
        put(&mut *channel, &mut first, at(1_000_000), false, 2);
        assert_eq!(
            finish(&mut *channel, &mut first, 1_000_001),
            Ok(()),
            "{path}"
        );
    }
}

/// A channel that accepts commands over extents, and fails all of them at once.
#[derive(Debug)]
struct FailsLateChannel {
    fails: Arc<AtomicBool>,
    commands: Vec<Extents>,
}

impl Channel for FailsLateChannel {
    fn submit(&mut self, request: Request, _: &mut Context<'_>) -> Submit {
        Submit::Done(request.ended(Err(BlockError::TimedOut)))
    }

    fn submit_extents(&mut self, command: Extents, _: &mut Context<'_>) -> SubmitExtents {
        self.commands.push(command);
        SubmitExtents::Queued
    }

    fn reap_extents(&mut self) -> Option<Extents> {
        if !self.fails.load(Ordering::SeqCst) {
            return None;
        }
        let command = self.commands.pop()?;
        Some(command.ended(Err(BlockError::TimedOut)))
    }
}

/// Each of their requests becomes a separate command, for which there must be room.
#[test]
fn many_merged_commands_may_fail_at_once() {
    const SUBMITTERS: u64 = 5;
    const DEPTH: u64 = 1_024;
    let fails = Arc::new(AtomicBool::new(false));
    let own = Arc::clone(&fails);
    let below = TestDevice::new(ram(SUBMITTERS * DEPTH), move |_| {
        Box::new(FailsLateChannel {
            fails: Arc::clone(&own),
            commands: Vec::new(),
        })
    });
    let device = PathDevice::unattended(Arc::new(below), Path::Poll, PathRules::default());
    let device = device.expect("good rules").with_requests(1_024, BLOCK);
    let (mut own, mut dispatchers) = (clocked(), clocked());
    let mut dispatcher = device.dispatcher(&mut dispatchers).expect("it opens");
    let mut dispatch = || {
        let mut cx = Context {
            now: at(2),
            driver: &mut dispatchers,
        };
        reactor::Service::maintain(&mut dispatcher, &mut cx);
    };
    let mut channels = Vec::new();
    for first in 0..SUBMITTERS {
        let mut channel = device.open(&mut own).expect("it opens");
        for lba in first * DEPTH..(first + 1) * DEPTH {
            put(&mut *channel, &mut own, at(1), false, lba);
        }
        channels.push(channel);
        dispatch();
    }
    fails.store(true, Ordering::SeqCst);
    for _ in 0..100 {
        dispatch();
    }
    for channel in &mut channels {
        turn(&mut **channel, &mut own, at(2));
        for _ in 0..DEPTH {
            let done = reap(&mut **channel).map(|(_, result)| result);
            assert_eq!(done, Some(Err(BlockError::TimedOut)));
        }
    }
}
