//! The switchboard over real sockets: the test suite of every device, completions returned to their
//! submitters, and knobs changed while requests are in flight.

use crate::setup;
use crate::setup::{NQN, connect, driver, namespace, switched};
use base::units::{CoreId, Lba};
use base::{Nanos, Time};
use block::{Device, Operation, Request, Submit};
use host::{Switchboard, SwitchboardOptions, SwitchedNamespace};
use reactor::placement::allowed_cores;
use reactor::{Context, Driver as _, Wait};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use switch::{Class, Knobs};
use target::RunningTarget;
use testing::device::conformance::{Bench, Suite, run};

/// Time after which a waiting test counts as hanging.
const PATIENCE: Duration = Duration::from_secs(60);

/// A target with two namespaces.
fn start() -> RunningTarget {
    let running = setup::start(2);
    let second = namespace(2, 4096);
    running.handle.add_namespace(NQN, second).unwrap();
    running
}

fn board(knobs: Knobs) -> Switchboard {
    let cores = allowed_cores().unwrap();
    Switchboard::start(&SwitchboardOptions { cores, knobs }).unwrap()
}

fn conforms(knobs: Knobs, class: Class) {
    let running = start();
    let (_host, subsystem) = connect(&running);
    let board = board(knobs);
    // The suite needs exclusive use of the namespace; the second one shows that numbers are not
    // mixed up.
    let _other = switched(&board, &subsystem, 1);
    let device = switched(&board, &subsystem, 2)
        .with_class(class)
        .with_requests(64, 1 << 20);
    run(driver, &device, Suite::default());
}

#[test]
fn a_switched_namespace_is_a_device_like_any_other() {
    conforms(Knobs::switchyard(), Class::Throughput);
}

#[test]
fn latency_requests_conform_as_well() {
    conforms(Knobs::switchyard(), Class::Latency);
}

#[test]
fn it_conforms_with_one_lane_and_fixed_caravans() {
    conforms(Knobs::linux(), Class::Latency);
}

#[test]
fn it_conforms_with_one_request_a_send() {
    conforms(Knobs::nvme_tcp(), Class::Throughput);
}

/// Many threads on two namespaces; each writes its own area and reads it back, while the knobs
/// change between extremes and requests are steered as early as possible.
#[test]
fn everybody_gets_their_own_back_while_knobs_turn() {
    const ROUNDS: u32 = 40;
    let running = start();
    let (_host, subsystem) = connect(&running);
    let mut eager = Knobs::switchyard();
    eager.request_steering.threshold_bytes = switch::limits::STEERING_THRESHOLD_BYTES_MIN;
    let board = board(eager);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..6_u8)
            .map(|worker| {
                let device = switched(&board, &subsystem, u32::from(worker % 2) + 1)
                    .with_class(Class::ALL[usize::from(worker) % Class::COUNT])
                    .with_requests(8, 65_536);
                scope.spawn(move || own_part(&device, worker, ROUNDS))
            })
            .collect();
        let (board, done) = (&board, &done);
        scope.spawn(move || {
            let presets = [eager, Knobs::linux(), Knobs::nvme_tcp(), Knobs::poll()];
            for knobs in presets.iter().cycle() {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                board.set_knobs(knobs).unwrap();
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let results: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        done.store(true, Ordering::Relaxed);
        for result in results {
            result.unwrap();
        }
    });
    // They are published with a delay of at most 10 ms, and much more time has passed.
    let requests: u64 = board
        .counters()
        .iter()
        .flat_map(|core| core.requests.iter().map(|(_, &n)| n).collect::<Vec<_>>())
        .sum();
    assert!(requests > 0);
}

fn own_part(device: &SwitchedNamespace, worker: u8, rounds: u32) {
    let mut bench = Bench::open(driver(), device).unwrap();
    let blocks = 16_u32;
    let first = u64::from(worker) * 256;
    for round in 0..rounds {
        let lba = first + u64::from(round % 16) * u64::from(blocks);
        let content: Vec<u8> = (0..blocks * 4096)
            .map(|at| u8::try_from((at / 64 + round + u32::from(worker)) % 256).unwrap())
            .collect();
        bench.write(lba, &content).unwrap();
        if round % 8 == 0 {
            bench.operate(Operation::Flush, 0, 0).unwrap();
        }
        assert_eq!(bench.read(lba, blocks).unwrap(), content, "round {round}");
    }
    bench.shut();
}

#[test]
fn the_number_of_lanes_depends_on_cores_and_classes_alone() {
    let running = start();
    let (_host, subsystem) = connect(&running);
    let knobs = Knobs::switchyard();
    let board = board(knobs);
    let cores = board.cores().len();
    let mut open = Vec::new();
    for n in 0..12 {
        let device = switched(&board, &subsystem, n % 2 + 1).with_requests(4, 4096);
        let mut bench = Bench::open(driver(), &device).unwrap();
        bench.read(0, 1).unwrap();
        open.push(bench);
    }
    let lanes = || {
        let snapshot = running.handle.snapshot();
        let queues = snapshot.controllers.iter().map(|c| c.io_queues.len());
        queues.sum::<usize>()
    };
    // A lane that no request has needed yet may still be opening.
    while lanes() < cores * Class::COUNT {
        std::thread::yield_now();
    }
    assert_eq!(lanes(), cores * Class::COUNT);
    for bench in &mut open {
        bench.shut();
    }
}

#[test]
fn a_thread_alone_with_latency_work_sends_for_itself() {
    let running = start();
    let (_host, subsystem) = connect(&running);
    let cores = vec![allowed_cores().unwrap()[0]];
    let knobs = Knobs::switchyard();
    let board = Switchboard::start(&SwitchboardOptions { cores, knobs }).unwrap();
    let open = || {
        let device = switched(&board, &subsystem, 1).with_class(Class::Latency);
        Bench::open(driver(), &device.with_requests(4, 4096)).unwrap()
    };
    let direct = || board.counters()[0].direct_requests;
    let mut alone = open();
    // The first requests may be sent before the lane is open.
    let began = Instant::now();
    while direct() < 4 {
        assert!(began.elapsed() < PATIENCE, "it gets no lane of its own");
        alone.write(0, &[7; 4096]).unwrap();
        alone.read(0, 1).unwrap();
    }
    let others = |bench: &mut Bench<_>| {
        let before = direct();
        for _ in 0..4 {
            bench.read(0, 1).unwrap();
        }
        assert_eq!(direct(), before, "by the core's lane");
    };
    let mut second = open();
    others(&mut alone);
    others(&mut second);
    second.shut();
    drop(second);
    let before = direct();
    alone.read(0, 1).unwrap();
    assert_eq!(direct(), before + 1, "alone again");
    let direct_submitters = 0;
    board
        .set_knobs(&Knobs {
            direct_submitters,
            ..knobs
        })
        .unwrap();
    others(&mut alone);
    alone.shut();
}

#[test]
fn knobs_are_read_and_changed_by_name_while_it_runs() {
    let made = Knobs::linux();
    let board = board(made);
    assert_eq!(board.knobs(), made);
    let together = [("doorbell_delay_us", "80"), ("direct_submitters", "2")];
    board.change_knobs(together).unwrap();
    let mut changed = made;
    changed.change(together).unwrap();
    assert_eq!(board.knobs(), changed);
    let refused = [
        (("dorbell", "fixed"), "caravan_alone_bytes"),
        (("doorbell", "loud"), "immediate or fixed or adaptive"),
        (("quantum_bytes", "many"), "4096 to "),
        (("doorbell_max_hold_us", "9"), "doorbell=adaptive"),
        (("lanes", "per-class"), "after the start of a switchboard"),
    ];
    for (change, possible) in refused {
        let both = [("direct_submitters", "1"), change];
        let error = board.change_knobs(both).unwrap_err().to_string();
        assert!(error.contains(possible), "{error}");
        assert_eq!(board.knobs(), changed, "{error}");
    }
    // A fixed knob may be set to its current value again.
    board.change_knobs([("lanes", "shared")]).unwrap();
    board.set_knobs(&Knobs::switchyard()).unwrap();
    let fixed = host::switchboard::FIXED_KNOBS;
    let differs = board.knobs();
    let differs = differs.differences(&Knobs::switchyard());
    assert!(
        differs
            .map(|entry| entry.knob.key)
            .eq(fixed.into_iter().take(2))
    );
}

#[test]
fn counters_have_names() {
    let running = start();
    let (_host, subsystem) = connect(&running);
    let board = board(Knobs::nvme_tcp());
    let device = switched(&board, &subsystem, 1).with_requests(4, 4096);
    let mut bench = Bench::open(driver(), &device).unwrap();
    for _ in 0..3 {
        bench.read(0, 1).unwrap();
    }
    let of = |core, name: &str| {
        let named = board.named_counters(core).unwrap();
        named.into_iter().find(|(n, _)| n == name).unwrap().1
    };
    let began = Instant::now();
    while of(None, "throughput_sent_requests") < 3 {
        assert!(began.elapsed() < PATIENCE, "{:?}", board.counters());
        std::thread::yield_now();
    }
    let expected = [
        ("throughput_requests", 3),
        ("throughput_bytes", 3 * 4096),
        ("throughput_caravans", 3),
        ("throughput_rings_disabled", 3),
        ("throughput_rings_timer", 0),
        ("latency_requests", 0),
        ("latency_moved_threads", 0),
    ];
    for (name, count) in expected {
        assert_eq!(of(None, name), count, "{name}");
    }
    let cores = board.cores().iter();
    let by_core = cores.map(|&core| of(Some(core), "throughput_requests"));
    assert_eq!(by_core.sum::<u64>(), 3);
    let error = board.named_counters(Some(CoreId(1_000))).unwrap_err();
    let has = format!("core 1000; use one of {}", board.cores()[0].0);
    assert!(error.to_string().contains(&has), "{error}");
    bench.shut();
}

/// The lane must close although no turn follows the one with its last answer.
#[test]
fn a_channel_closes_once_its_own_lane_has_answered() {
    let running = start();
    let (_host, subsystem) = connect(&running);
    let cores = vec![allowed_cores().unwrap()[0]];
    let knobs = Knobs::switchyard();
    let board = Switchboard::start(&SwitchboardOptions { cores, knobs }).unwrap();
    let device = switched(&board, &subsystem, 1).with_class(Class::Latency);
    let mut driver = driver();
    let mut channel = device.with_requests(4, 4096).open(&mut driver).unwrap();
    let (mut completions, began) = (Vec::new(), Instant::now());
    let (mut outstanding, mut closing) = (0, false);
    while !channel.closed() {
        assert!(began.elapsed() < PATIENCE, "it does not close");
        let mut cx = Context::begin(&mut driver);
        channel.tick(&mut cx);
        while channel.reap().is_some() {
            outstanding -= 1;
            let looks_again = !closing || channel.deadline() == Time::ZERO;
            assert!(looks_again, "it sleeps for ever");
        }
        if outstanding == 0 && !closing {
            let request = Request {
                tag: 0,
                operation: Operation::Read,
                lba: Lba(0),
                blocks: 1,
                data: channel.memory(4096),
            };
            let submitted = channel.submit(request, &mut cx);
            assert!(matches!(submitted, Submit::Queued));
            outstanding += 1;
            channel.kick(&mut cx);
            if board.counters()[0].direct_requests == 4 {
                closing = true;
                channel.close(&mut cx);
            }
        }
        let until = channel
            .deadline()
            .min(driver.now() + Nanos::from_millis(10));
        driver.reap(Wait::Until(until), &mut completions).unwrap();
        let mut cx = Context::begin(&mut driver);
        for completion in completions.drain(..) {
            channel.complete(completion, &mut cx);
        }
    }
}

/// Dropped memory is lent again.
#[test]
fn a_channel_lends_its_memory_again_when_it_is_given_back() {
    const DEPTH: u32 = 4;
    let running = start();
    let (_host, subsystem) = connect(&running);
    let board = board(Knobs::switchyard());
    let device = switched(&board, &subsystem, 1).with_requests(DEPTH, 8192);
    let mut driver = driver();
    let mut channel = device.open(&mut driver).unwrap();
    for round in 0..3 * u8::try_from(DEPTH).unwrap() {
        let mut lent: Vec<_> = std::iter::from_fn(|| channel.memory(8192)).collect();
        assert_eq!(lent.len(), DEPTH as usize, "round {round}");
        for (n, slice) in (round..).zip(&mut lent) {
            slice.copy_in(0, &[n; 8192]);
        }
        let mut back = [0; 8192];
        for (n, slice) in (round..).zip(&lent) {
            slice.copy_out(0, &mut back);
            assert_eq!(back, [n; 8192], "no two have the same");
        }
        let kept = lent.swap_remove(1);
        drop(lent);
        let again: Vec<_> = std::iter::from_fn(|| channel.memory(1)).collect();
        assert_eq!(again.len(), DEPTH as usize - 1, "one is still kept");
        drop((kept, again));
    }
}

#[test]
fn a_core_that_may_not_be_used_is_named() {
    let cores = vec![CoreId(1_000)];
    let knobs = Knobs::switchyard();
    let error = Switchboard::start(&SwitchboardOptions { cores, knobs }).unwrap_err();
    assert!(error.to_string().contains("1000"), "{error}");
    let nothing = SwitchboardOptions {
        cores: Vec::new(),
        knobs,
    };
    Switchboard::start(&nothing).unwrap_err();
}

#[test]
fn requests_fail_when_the_controller_is_gone_and_submitters_end() {
    let running = start();
    let (_host, subsystem) = connect(&running);
    let board = board(Knobs::switchyard());
    let device = switched(&board, &subsystem, 1).with_requests(4, 4096);
    let mut bench = Bench::open(driver(), &device).unwrap();
    bench.read(0, 1).unwrap();
    subsystem.association().close();
    let error = loop {
        if let Err(error) = bench.read(0, 1) {
            break error;
        }
    };
    assert_eq!(error, block::BlockError::Gone);
    bench.shut();
    assert!(device.geometry().block_bytes == 4096);
}

/// Closed controllers do not count against the limit of 64.
#[test]
fn controllers_come_and_go_without_end() {
    let running = start();
    let board = board(Knobs::switchyard());
    for _ in 0..70 {
        let (_host, subsystem) = connect(&running);
        let namespace = subsystem.namespace(1).unwrap();
        let device = board.namespace(&namespace.device()).unwrap();
        let mut bench = Bench::open(driver(), &device).unwrap();
        bench.read(0, 1).unwrap();
        bench.shut();
    }
}

/// A submitter that is dropped with requests in flight must delay no other submitter, wherever the
/// requests are.
#[test]
fn who_leaves_in_a_hurry_holds_nobody_up() {
    let running = start();
    let (_host, subsystem) = connect(&running);
    let mut eager = Knobs::switchyard();
    eager.request_steering.threshold_bytes = switch::limits::STEERING_THRESHOLD_BYTES_MIN;
    let board = board(eager);
    let device = switched(&board, &subsystem, 1).with_requests(64, 65_536);
    for _ in 0..50 {
        let mut hasty = Bench::open(driver(), &device).unwrap();
        for n in 0..32 {
            let request = hasty.request(Operation::Read, n * 16, 16);
            assert!(matches!(hasty.submit(request), Submit::Queued));
        }
        drop(hasty);
        let mut patient = Bench::open(driver(), &device).unwrap();
        assert_eq!(patient.read(0, 1).unwrap(), [0; 4096]);
        patient.shut();
    }
}
