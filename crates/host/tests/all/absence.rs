//! Threads that do not run their channels, and hosts that are stopped, while an association is
//! lost. The tests set the clock, so the results do not depend on real time.

use crate::peer;
use crate::peer::{Behaviour, NQN, Peer};
use crate::setup;
use base::units::Lba;
use base::{Nanos, Time};
use block::{Channel as _, Completion, Operation, Request, Submit};
use host::{
    Association, ChannelState, ConnectOptions, Controller, HostIdentity, Phase, RemoteChannel,
    RemoteNamespace, Status, parse_nqn,
};
use reactor::testing::{PassThrough, Replace};
use reactor::uring::UringDriver;
use reactor::{Context, Driver as _, IoSlice, Wait};
use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Time after which a waiting test counts as hanging.
const PATIENCE: Duration = Duration::from_secs(60);

const STEP: Nanos = Nanos::from_millis(1);

/// The test's clock.
#[derive(Clone)]
struct Clock(Rc<Cell<Time>>);

impl Replace for Clock {
    fn now(&self, _: &UringDriver) -> Time {
        self.0.get()
    }

    fn reap(
        &mut self,
        inner: &mut UringDriver,
        _: Wait,
        completions: &mut Vec<reactor::Completion>,
    ) -> io::Result<()> {
        inner.reap(Wait::No, completions)
    }
}

/// A controller and one of its channels, each with its own driver.
struct Bench {
    clock: Clock,
    controller: Controller,
    controllers_driver: PassThrough<Clock>,
    channel: RemoteChannel,
    channels_driver: PassThrough<Clock>,
}

impl Bench {
    /// Starts both and reads a block, so the channel is live.
    fn start(peer: &Peer) -> Self {
        let nqn = parse_nqn(NQN).unwrap();
        let mut options = ConnectOptions::new(peer.address, nqn, HostIdentity::generate());
        options.loss_timeout = Some(Nanos::from_secs(60));
        let clock = Clock(Rc::new(Cell::new(Time::ZERO + Nanos::from_secs(1))));
        let driver = || PassThrough {
            inner: setup::driver(),
            replaced: clock.clone(),
        };
        let (mut controllers_driver, mut channels_driver) = (driver(), driver());
        let association = Controller::associate(options);
        let mut controller = Controller::new(Arc::clone(&association), &mut controllers_driver);
        let until = Instant::now() + PATIENCE;
        while association.phase() != Phase::Live {
            assert!(Instant::now() < until, "it connects");
            run(&mut controller, &mut controllers_driver);
        }
        let namespace = RemoteNamespace::new(&association, 1).unwrap();
        let channel = namespace
            .with_queues(1, 4)
            .open_remote(&mut channels_driver);
        let mut bench = Self {
            clock: clock.clone(),
            controller,
            controllers_driver,
            channel: channel.unwrap(),
            channels_driver,
        };
        bench.submit(Operation::Read);
        bench.finish();
        bench
    }

    fn association(&self) -> &Association {
        self.controller.association()
    }

    fn pass(&self, time: Nanos) {
        self.clock.0.set(self.clock.0.get() + time);
    }

    /// Submits a request for a block without running the channel.
    fn submit(&mut self, operation: Operation) {
        let buffer = self.channels_driver.buffers().take(peer::BLOCK).unwrap();
        let request = Request {
            tag: 1,
            operation,
            lba: Lba(0),
            blocks: 1,
            data: Some(IoSlice::from_buffer(buffer, peer::BLOCK)),
        };
        let mut cx = Context::begin(&mut self.channels_driver);
        let submit = self.channel.submit(request, &mut cx);
        assert!(matches!(submit, Submit::Queued), "{submit:?}");
        self.channel.kick(&mut cx);
    }

    /// One turn of both, a millisecond later.
    fn turn(&mut self) -> Option<Completion> {
        self.pass(STEP);
        run(&mut self.controller, &mut self.controllers_driver);
        let mut completions = Vec::new();
        self.channels_driver
            .reap(Wait::No, &mut completions)
            .unwrap();
        let mut cx = Context::begin(&mut self.channels_driver);
        for completion in completions {
            self.channel.complete(completion, &mut cx);
        }
        self.channel.tick(&mut cx);
        std::thread::yield_now();
        self.channel.reap()
    }

    /// Runs both until the request is done.
    fn finish(&mut self) {
        let until = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < until, "it is done");
            if let Some(done) = self.turn() {
                return done.result.unwrap();
            }
        }
    }

    /// Returns the number of connections that the channel opened.
    fn connects(&self) -> u64 {
        let mut states = self.channel.connection_states_entered();
        states.find(|(state, _)| *state == "connecting").unwrap().1
    }
}

fn run(controller: &mut Controller, driver: &mut PassThrough<Clock>) {
    let mut completions = Vec::new();
    driver.reap(Wait::No, &mut completions).unwrap();
    let mut cx = Context::begin(driver);
    for completion in completions {
        controller.complete(completion, &mut cx);
    }
    controller.tick(&mut cx);
}

/// An idle channel that does not run must not delay a reconnect by a second.
#[test]
fn a_controller_does_not_wait_for_an_idle_channel_that_is_not_run() {
    let peer = Peer::start(1 << 20, Behaviour::default());
    let mut bench = Bench::start(&peer);
    // The peer still serves the channel's old connection.
    peer.cut_oldest();
    let until = Instant::now() + PATIENCE;
    // The channel has a second to close its connection.
    let mut left = 900;
    while bench.association().generation() < 2 {
        assert!(Instant::now() < until, "it connects again");
        if left > 0 {
            bench.pass(STEP);
            left -= 1;
        }
        run(&mut bench.controller, &mut bench.controllers_driver);
        std::thread::yield_now();
    }
    assert_eq!(peer.seen.live_queues.load(Ordering::SeqCst), 1);
    bench.submit(Operation::Write { durable: false });
    bench.finish();
    assert_eq!(peer.seen.live_queues.load(Ordering::SeqCst), 2);
    assert_eq!(peer.seen.writes.load(Ordering::SeqCst), 1);
}

/// The time of a stop must not count towards the loss timeout at the next refusal.
#[test]
fn a_channel_without_a_queue_does_not_count_time_in_which_its_host_stood_still() {
    let peer = Peer::start(1 << 20, Behaviour::default());
    let mut bench = Bench::start(&peer);
    peer.change(|behaviour| behaviour.queues_refused = Some((0, Status::CONNECT_CONTROLLER_BUSY)));
    peer.cut_all();
    bench.submit(Operation::Read);
    for stands_still in [false, true, true] {
        if stands_still {
            bench.pass(Nanos::from_secs(3600));
        }
        let (connects, until) = (bench.connects(), Instant::now() + PATIENCE);
        while bench.connects() < connects + 3 {
            assert!(Instant::now() < until, "it connects again");
            let done = bench.turn();
            assert!(done.is_none(), "{done:?}");
            assert_ne!(bench.channel.state(), ChannelState::Gone);
        }
    }
    peer.change(|behaviour| behaviour.queues_refused = None);
    bench.finish();
}
