//! A device on which some requests take very long or never complete: every request of its hosts
//! ends, and no late effect undoes an acknowledged write. See
//! `docs/design/decisions/0004-replay.md`.

use base::{Nanos, Prng, Time};
use block::device::Ram;
use block::{Channel, Completion, Device, Operation, Request, Submit};
use host::ReplayPolicy;
use reactor::Context;
use sim::storage::{Scenario, run};
use sim::{NetworkFaults, Workload};
use std::collections::VecDeque;
use std::sync::Arc;
use testing::device::TestDevice;

/// Which requests are late, and by how much.
#[derive(Clone, Copy, Debug)]
struct Lateness {
    /// One request in this many is late.
    one_in: u64,
    writes: bool,
    by: Nanos,
}

/// A channel of RAM that starts some requests long after their submission: only then it accesses
/// their memory.
#[derive(Debug)]
struct SleepyChannel {
    ram: Box<dyn Channel>,
    late: Lateness,
    prng: Prng,
    sleeping: VecDeque<(Time, Request)>,
    done: VecDeque<Completion>,
}

impl Channel for SleepyChannel {
    fn submit(&mut self, request: Request, cx: &mut Context<'_>) -> Submit {
        let meant = match request.operation {
            Operation::Read => !self.late.writes,
            operation => self.late.writes && operation.is_write(),
        };
        if meant && self.prng.chance(1, self.late.one_in) {
            self.sleeping.push_back((cx.now + self.late.by, request));
            return Submit::Queued;
        }
        self.ram.submit(request, cx)
    }

    fn reap(&mut self) -> Option<Completion> {
        self.done.pop_front()
    }

    fn tick(&mut self, cx: &mut Context<'_>) {
        while self.sleeping.front().is_some_and(|(at, _)| *at <= cx.now) {
            let Some((_, request)) = self.sleeping.pop_front() else {
                return;
            };
            if let Submit::Done(completion) = self.ram.submit(request, cx) {
                self.done.push_back(completion);
            }
        }
    }

    fn deadline(&self) -> Time {
        self.sleeping.front().map_or(Time::NEVER, |(at, _)| *at)
    }

    fn closed(&self) -> bool {
        self.sleeping.is_empty()
    }
}

const FOR_EVER: Nanos = Nanos::from_secs(1_000_000);

fn scenario(faults: NetworkFaults) -> Scenario {
    Scenario {
        target_cores: 2,
        hosts: 2,
        queues: 2,
        digests: false,
        replay: ReplayPolicy::WhenSafe,
        end_controller: true,
        command_timeout: Nanos::from_secs(1),
        loss_timeout: None,
        faults,
        workload: Workload {
            requests: 400,
            depth: 8,
            blocks_max: 4,
            blocks_large: 16,
        },
    }
}

fn sleepy(seed: u64, late: Lateness) -> Arc<dyn Device> {
    let ram = Ram::new(16 * 1024, 512).expect("a small device");
    let device = TestDevice::new(Arc::new(ram), move |ram| {
        Box::new(SleepyChannel {
            ram,
            late,
            prng: Prng::from_seed(seed),
            sleeping: VecDeque::new(),
            done: VecDeque::new(),
        })
    });
    Arc::new(device.with(|capabilities| capabilities.extents_max = 0))
}

/// Runs the scenario on late devices; returns the number of requests that timed out.
fn check(seed: u64, scenario: &Scenario, late: Lateness) -> u64 {
    let ending = run(seed, scenario, |seed| sleepy(seed, late));
    let timed_out = ending.reports.iter().map(|report| report.timed_out).sum();
    let failed: u64 = ending.reports.iter().map(|report| report.failed).sum();
    assert_eq!(timed_out, failed, "seed {seed}: {ending:?}");
    timed_out
}

#[test]
fn reads_that_hang_for_ever_time_out_and_nothing_else_does() {
    let late = Lateness {
        one_in: 8,
        writes: false,
        by: FOR_EVER,
    };
    let timed_out: u64 = (800..806)
        .map(|seed| check(seed, &scenario(NetworkFaults::CALM), late))
        .sum();
    assert!(
        timed_out > 0,
        "no read was late three times: this proves nothing"
    );
}

#[test]
fn late_writes_undo_nothing() {
    let late = Lateness {
        one_in: 12,
        writes: true,
        by: Nanos::from_secs(7),
    };
    for seed in 820..826 {
        for faults in [NetworkFaults::CALM, NetworkFaults::HOSTILE] {
            let mut scenario = scenario(faults);
            // Enough that work remains when the first late requests take effect.
            scenario.workload.requests = 4_000;
            check(seed, &scenario, late);
        }
    }
}

/// Only writes lost with a late write wait for it, at most for the loss timeout; their blocks are
/// closed until its end, and then open again.
#[test]
fn writes_that_are_too_late_are_given_up_and_undo_nothing() {
    let late = Lateness {
        one_in: 60,
        writes: true,
        by: Nanos::from_secs(50),
    };
    let mut given_up = 0;
    for seed in 860..866 {
        for faults in [NetworkFaults::CALM, NetworkFaults::HOSTILE] {
            let mut scenario = scenario(faults);
            // A hostile network may take a while to reconnect, which this test does not cover.
            scenario.loss_timeout = Some(Nanos::from_secs(40));
            scenario.workload.requests = 4_000;
            given_up += check(seed, &scenario, late);
        }
    }
    assert!(given_up > 0, "no write was so late: this proves nothing");
}

#[test]
fn a_write_that_hangs_for_ever_ends_and_the_rest_of_its_host_goes_on() {
    let late = Lateness {
        one_in: 150,
        writes: true,
        by: FOR_EVER,
    };
    for seed in 880..886 {
        let mut scenario = scenario(NetworkFaults::CALM);
        scenario.loss_timeout = Some(Nanos::from_secs(3));
        let given_up = check(seed, &scenario, late);
        let all = scenario.workload.requests * scenario.hosts as u64;
        assert!((1..all / 2).contains(&given_up), "seed {seed}: {given_up}");
    }
}

/// Here only the keep-alive timeout determines when an old write can no longer take effect.
#[test]
fn late_writes_undo_nothing_at_a_target_that_cannot_end_controllers() {
    let late = Lateness {
        one_in: 2,
        writes: true,
        by: Nanos::from_secs(7),
    };
    let mut timed_out = 0;
    for seed in 840..846 {
        let mut scenario = scenario(NetworkFaults::CALM);
        scenario.end_controller = false;
        scenario.workload.requests = 100;
        timed_out += check(seed, &scenario, late);
    }
    assert!(
        timed_out > 0,
        "no write was late three times: this proves nothing"
    );
}
