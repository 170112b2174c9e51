//! Presets match their documentation, and every limit is enforced with a useful message.

use super::*;
use crate::latency_activity::LatencyActivity;
use base::Nanos;

#[test]
fn every_preset_is_valid_and_has_one_name() {
    for (preset, name) in Preset::ALL {
        assert_eq!(preset.knobs().validate(), Ok(()), "{name}");
        assert_eq!(preset.to_string(), *name);
        assert_eq!(name.to_uppercase().parse(), Ok(*preset));
    }
    let error = "lnux"
        .parse::<Preset>()
        .expect_err("no such preset")
        .to_string();
    assert!(
        error.contains(" linux,") && error.ends_with("blk-switch-paper"),
        "{error}"
    );
    assert_eq!(Knobs::default(), Preset::Switchyard.knobs());
}

#[test]
fn the_baselines_differ_in_what_they_are_for() {
    let linux = Knobs::linux();
    assert_eq!((linux.lanes, linux.prioritisation), (Lanes::Shared, false));
    assert_eq!(linux.doorbell, Mode::FIXED);
    assert_eq!(
        linux.caravan.limits(LatencyActivity::Dense),
        linux.caravan.limits(LatencyActivity::Absent)
    );
    let sparse = linux.caravan.limits(LatencyActivity::Sparse);
    assert_eq!(sparse, linux.caravan.limits(LatencyActivity::Absent));
    assert!(!linux.request_steering.enabled && !linux.application_steering.enabled);

    let nvme_tcp = Knobs::nvme_tcp();
    assert_eq!(nvme_tcp.caravan.limits(LatencyActivity::Absent).requests, 1);
    let batched = Knobs {
        caravan: linux.caravan,
        doorbell: linux.doorbell,
        ..nvme_tcp
    };
    assert_eq!(batched, linux, "the same but for batching");

    let poll = Knobs::poll();
    assert_eq!(
        (poll.polling, poll.doorbell),
        (Polling::Always, Mode::Immediate)
    );
    let nice = Knobs {
        latency_threads: ThreadPriority::Nice,
        ..poll
    };
    assert_eq!(Knobs::poll_with_priority(), nice);
}

#[test]
fn each_step_of_the_ablation_adds_one_mechanism() {
    use Ablation::{ApplicationSteering, Nothing, Prioritisation, RequestSteering};
    let added = |step, before: Knobs| {
        let knobs = Knobs::ablation(step);
        let added = knobs.differences(&before).map(|entry| {
            let text = entry.text();
            format!("{}={text}", entry.knob.key)
        });
        added.collect::<Vec<_>>()
    };
    let [nothing, priority, steered, all] = [
        Nothing,
        Prioritisation,
        RequestSteering,
        ApplicationSteering,
    ]
    .map(Knobs::ablation);
    assert_eq!(added(Nothing, Knobs::linux()), [""; 0]);
    // Each class has its own egress, served in priority order, by threads with priority.
    assert_eq!(
        added(Prioritisation, nothing),
        [
            "lanes=per-class",
            "prioritisation=on",
            "latency_threads=nice"
        ]
    );
    assert_eq!(added(RequestSteering, priority), ["request_steering=on"]);
    assert_eq!(
        added(ApplicationSteering, steered),
        ["application_steering=on"]
    );
    // The last step is Algorithm 2 without additions.
    assert_eq!(all.application_steering.hysteresis, Hysteresis::Paper);
    assert!(!all.queue_affinity && !all.light_hosts);
}

#[test]
fn the_papers_switch_is_the_whole_ablation_on_threads_that_sleep() {
    let paper = Knobs::blk_switch_paper();
    let all = Knobs::ablation(Ablation::ApplicationSteering);
    let keys: Vec<_> = paper
        .differences(&all)
        .map(|entry| entry.knob.key)
        .collect();
    assert_eq!(keys, ["target_threads_min", "polling"]);
    assert_eq!(paper.polling, Polling::Never);
    let steering = paper.application_steering;
    assert_eq!(steering.period, Nanos::from_millis(10));
    assert_eq!(paper.request_steering.threshold_bytes, 16 * 64 * 1024);
    assert_eq!(paper.request_steering.preference, Preference::None);
}

#[test]
fn sends_are_small_beside_latency_work_and_large_without() {
    let caravan = Knobs::switchyard().caravan;
    let [dense, sparse, far] = [
        LatencyActivity::Dense,
        LatencyActivity::Sparse,
        LatencyActivity::Absent,
    ]
    .map(|near| caravan.limits(near));
    assert_eq!((dense.bytes, sparse.bytes), (64 * 1024, 128 * 1024));
    assert!(far.requests > sparse.requests && sparse.requests > dense.requests);
    assert_eq!(Knobs::switchyard().service().order, Order::Strict);
    assert_eq!(Knobs::linux().service().order, Order::RoundRobin);
}

/// Returns the validation error after a change.
fn complaint(turn: impl FnOnce(&mut Knobs)) -> String {
    let mut knobs = Knobs::switchyard();
    turn(&mut knobs);
    knobs.validate().expect_err("out of range").to_string()
}

fn assert_says(turn: impl FnOnce(&mut Knobs), expected: &str) {
    let said = complaint(turn);
    assert!(
        said.starts_with(expected),
        "{said:?} should begin with {expected:?}"
    );
    assert!(
        said.contains(" to ") || said.contains("at least") || said.contains(" in all"),
        "{said:?} names the range"
    );
}

#[test]
fn a_number_out_of_range_is_named_with_its_range() {
    assert_says(
        |k| k.caravan.beside_latency.requests = 0,
        "caravan_beside_latency_requests is 0: ",
    );
    assert_says(
        |k| k.caravan.alone.bytes = 9 << 20,
        "caravan_alone_bytes is 9437184: ",
    );
    assert_says(
        |k| k.caravan.alone.iovecs = 1025,
        "caravan_alone_iovecs is 1025: ",
    );
    assert_says(
        |k| k.quantum_bytes = 4095,
        "quantum_bytes is 4095: use 4096 to 8388608",
    );
    assert_says(
        |k| k.floor_permille = PerClass::of([1, 500]),
        "the floors of all classes add up to 501 thousandths: ",
    );
    assert_says(
        |k| k.floor_window = Window::Bytes(0),
        "floor_window_bytes is 0: ",
    );
    assert_says(
        |k| k.request_steering.threshold_bytes = 0,
        "request_steering_threshold_bytes is 0: ",
    );
    assert_says(
        |k| k.request_steering.preference = Preference::NearlyFull { requests: 0 },
        "request_steering_nearly_full_requests is 0: ",
    );
    assert_says(
        |k| k.target_threads.max = 65,
        "target_threads_max is 65: use 1 to 64",
    );
    assert_says(
        |k| k.target_threads = ThreadBounds { min: 3, max: 2 },
        "target_threads_min is 3, but target_threads_max is 2: use 0 to 2 for target_threads_min",
    );
    assert_says(
        |k| k.application_steering.latency_load_max_bytes = 0,
        "application_steering_latency_load_max_bytes is 0: ",
    );
}

#[test]
fn a_time_out_of_range_is_named_with_its_range() {
    let fill = Knobs::switchyard().caravan.beside_latency;
    assert_says(
        |k| k.floor_window = Window::Time(Nanos(1)),
        "floor_window_us is 0.001: ",
    );
    assert_says(
        |k| k.application_steering.period = Nanos(5),
        "application_steering_period_us is 0.005: use 1000 to 60000000",
    );
    assert_says(
        |k| {
            k.doorbell = Mode::Fixed {
                fill,
                delay: Nanos(24_999),
            }
        },
        "doorbell_delay_us is 24.999: use at least 25µs, or doorbell=immediate for no delay",
    );
    assert_says(
        |k| {
            k.doorbell = Mode::Fixed {
                fill,
                delay: Nanos::from_secs(1),
            }
        },
        "doorbell_delay_us is 1000000: use 25 to 100000",
    );
    assert_says(
        |k| {
            k.doorbell = Mode::Adaptive {
                fill,
                max_hold: Nanos::ZERO,
            }
        },
        "doorbell_max_hold_us is 0: ",
    );
    let nothing = CaravanLimits {
        requests: 0,
        ..fill
    };
    assert_says(
        |k| {
            k.doorbell = Mode::Adaptive {
                fill: nothing,
                max_hold: limits::DOORBELL_HOLD,
            }
        },
        "doorbell_requests is 0: ",
    );
}

#[test]
fn both_ends_of_every_range_are_valid() {
    let mut low = Knobs::switchyard();
    let one = CaravanLimits {
        requests: 1,
        bytes: 1,
        iovecs: 1,
    };
    low.caravan = Caravans {
        enabled: true,
        beside_latency: one,
        sparse_factor: 1,
        alone: one,
    };
    low.sparse_latency_bytes = limits::SPARSE_LATENCY_BYTES_MIN;
    low.doorbell = Mode::Fixed {
        fill: one,
        delay: limits::DOORBELL_DELAY_MIN,
    };
    low.quantum_bytes = limits::QUANTUM_BYTES_MIN;
    low.request_steering.threshold_bytes = limits::STEERING_THRESHOLD_BYTES_MIN;
    low.request_steering.preference = Preference::NearlyFull { requests: 1 };
    low.application_steering.period = limits::APPLICATION_STEERING_PERIOD_MIN;
    low.application_steering.latency_load_max_bytes = 1;
    low.floor_window = Window::Time(limits::FLOOR_WINDOW_MIN);
    assert_eq!(low.validate(), Ok(()));

    let mut high = Knobs::switchyard();
    let most = CaravanLimits {
        requests: limits::CARAVAN_REQUESTS_MAX,
        bytes: limits::CARAVAN_BYTES_MAX,
        iovecs: limits::CARAVAN_IOVECS_MAX,
    };
    high.caravan = Caravans {
        enabled: true,
        beside_latency: most,
        sparse_factor: limits::CARAVAN_SPARSE_FACTOR_MAX,
        alone: most,
    };
    high.sparse_latency_bytes = limits::SPARSE_LATENCY_BYTES_MAX;
    high.doorbell = Mode::Adaptive {
        fill: most,
        max_hold: limits::DOORBELL_HOLD_MAX,
    };
    high.quantum_bytes = limits::QUANTUM_BYTES_MAX;
    high.request_steering.threshold_bytes = limits::STEERING_THRESHOLD_BYTES_MAX;
    high.application_steering.period = limits::APPLICATION_STEERING_PERIOD_MAX;
    high.application_steering.latency_load_max_bytes = limits::LATENCY_LOAD_MAX_BYTES_MAX;
    high.floor_permille = PerClass::of([0, limits::FLOOR_PERMILLE_MAX]);
    high.floor_window = Window::Bytes(limits::FLOOR_WINDOW_BYTES_MAX);
    assert_eq!(high.validate(), Ok(()));
}

#[test]
fn the_fixed_doorbell_is_the_hosts() {
    let modes = [Knobs::linux(), Knobs::nvme_tcp(), Knobs::switchyard()]
        .map(|knobs| knobs.answer_doorbell());
    assert_eq!(modes, [Mode::Immediate, Mode::Immediate, Mode::ADAPTIVE]);
}
