//! The list of all knobs, in the order in which they are shown and set.

use super::{Knob, KnobRange, KnobValue};
use crate::application_steering::Hysteresis;
use crate::caravan::CaravanLimits;
use crate::class::Class;
use crate::class_scheduler::Window;
use crate::doorbell::Mode;
use crate::knobs::error::TARGET_THREADS_MIN;
use crate::knobs::{Lanes, Polling, ThreadPriority};
use crate::limits;
use crate::request_steering::Preference;
use base::Nanos;

pub(super) const DOORBELL_DELAY: &str = "doorbell_delay_us";

const REQUESTS: KnobRange = KnobRange::Number(1, limits::CARAVAN_REQUESTS_MAX as u64);
const BYTES: KnobRange = KnobRange::Number(1, limits::CARAVAN_BYTES_MAX);
const IOVECS: KnobRange = KnobRange::Number(1, limits::CARAVAN_IOVECS_MAX as u64);

/// A knob that always counts.
macro_rules! always {
    ($key:literal, $meaning:literal, switch => $($field:ident).+) => {
        Knob {
            key: $key,
            meaning: $meaning,
            range: KnobRange::Switch,
            with: None,
            get: |knobs| Some(KnobValue::Switch(knobs.$($field).+)),
            put: |knobs, value| {
                knobs.$($field).+ = value.switch()?;
                Some(())
            },
        }
    };
    ($key:expr, $meaning:literal, number $range:expr, $($field:ident).+) => {
        Knob {
            key: $key,
            meaning: $meaning,
            range: $range,
            with: None,
            get: |knobs| Some(KnobValue::Number(u64::from(knobs.$($field).+))),
            put: |knobs, value| {
                knobs.$($field).+ = value.number()?;
                Some(())
            },
        }
    };
    ($key:literal, $meaning:literal, time $least:expr, $most:expr, $($field:ident).+) => {
        Knob {
            key: $key,
            meaning: $meaning,
            range: KnobRange::Time($least, $most),
            with: None,
            get: |knobs| Some(KnobValue::Time(knobs.$($field).+)),
            put: |knobs, value| {
                knobs.$($field).+ = value.time()?;
                Some(())
            },
        }
    };
    ($key:literal, $meaning:literal, words [$($word:literal = $variant:path),+], $($field:ident).+) => {
        Knob {
            key: $key,
            meaning: $meaning,
            range: KnobRange::Words(&[$($word),+]),
            with: None,
            get: |knobs| [$($variant),+]
                .iter()
                .position(|variant| *variant == knobs.$($field).+)
                .map(KnobValue::Word),
            put: |knobs, value| {
                knobs.$($field).+ = value.word(&[$($variant),+])?;
                Some(())
            },
        }
    };
}

/// A limit that makes a doorbell ring early; of no meaning for one that always rings.
macro_rules! fill {
    ($key:literal, $meaning:literal, $range:expr, $field:ident) => {
        Knob {
            key: $key,
            meaning: $meaning,
            range: $range,
            with: Some("doorbell=fixed or doorbell=adaptive"),
            get: |knobs| {
                fill(&knobs.doorbell).map(|fill| KnobValue::Number(u64::from(fill.$field)))
            },
            put: |knobs, value| {
                fill_mut(&mut knobs.doorbell)?.$field = value.number()?;
                Some(())
            },
        }
    };
}

/// The floor of a class.
macro_rules! floor {
    ($key:literal, $meaning:literal, $class:expr) => {
        Knob {
            key: $key,
            meaning: $meaning,
            range: KnobRange::Number(0, limits::FLOOR_PERMILLE_MAX as u64),
            with: None,
            get: |knobs| Some(KnobValue::Number(u64::from(knobs.floor_permille[$class]))),
            put: |knobs, value| {
                knobs.floor_permille[$class] = value.number()?;
                Some(())
            },
        }
    };
}

/// Knobs of earlier versions, and the remedy of each.
pub(super) const REMOVED: &[(&str, &str)] = &[(
    "threads",
    "omit it: a core of a switchboard has one thread, which serves all classes",
)];

pub(super) const KNOBS: &[Knob] = &[
    always!("lanes", "lanes of a core to a target, for connections made from then on",
        words ["per-class" = Lanes::PerClass, "shared" = Lanes::Shared], lanes),
    always!("prioritisation", "latency work goes before throughput work on every core",
        switch => prioritisation),
    always!("latency_threads", "the priority that threads with latency work ask the kernel for",
        words ["default" = ThreadPriority::Default, "nice" = ThreadPriority::Nice],
        latency_threads),
    always!(TARGET_THREADS_MIN, "threads that a target uses at least; 0 for all of the cores that it \
         was given, and one where it was given none",
        number KnobRange::Number(0, limits::TARGET_THREADS_MAX as u64), target_threads.min),
    always!("target_threads_max", "threads that a target uses at most, if it has as many cores",
        number KnobRange::Number(1, limits::TARGET_THREADS_MAX as u64), target_threads.max),
    always!("polling", "what a core without work does: polls while that pays, for ever, or never",
        words ["adaptive" = Polling::Adaptive, "always" = Polling::Always,
            "never" = Polling::Never], polling),
    always!("request_steering", "throughput requests leave an overloaded core by another one",
        switch => request_steering.enabled),
    always!("request_steering_threshold_bytes", "bytes outstanding that make a core overloaded",
        number KnobRange::Number(
            limits::STEERING_THRESHOLD_BYTES_MIN, limits::STEERING_THRESHOLD_BYTES_MAX),
        request_steering.threshold_bytes),
    Knob {
        key: "request_steering_preference",
        meaning: "which cores are preferred: none, or those whose caravan is nearly full",
        range: KnobRange::Words(&["none", "nearly-full"]),
        with: None,
        get: |knobs| {
            let nearly = knobs.request_steering.preference != Preference::None;
            Some(KnobValue::Word(usize::from(nearly)))
        },
        put: |knobs, value| {
            let preference = &mut knobs.request_steering.preference;
            match (value.word(&[false, true])?, *preference) {
                (false, _) => *preference = Preference::None,
                (true, Preference::NearlyFull { .. }) => {}
                (true, Preference::None) => {
                    *preference = Preference::NearlyFull {
                        requests: limits::NEARLY_FULL_REQUESTS,
                    }
                }
            }
            Some(())
        },
    },
    Knob {
        key: "request_steering_nearly_full_requests",
        meaning: "requests that make a caravan nearly full",
        range: REQUESTS,
        with: Some("request_steering_preference=nearly-full"),
        get: |knobs| match knobs.request_steering.preference {
            Preference::None => None,
            Preference::NearlyFull { requests } => Some(KnobValue::Number(u64::from(requests))),
        },
        put: |knobs, value| match &mut knobs.request_steering.preference {
            Preference::None => None,
            Preference::NearlyFull { requests } => {
                *requests = value.number()?;
                Some(())
            }
        },
    },
    always!("application_steering", "threads move to the cores that suit their class",
        switch => application_steering.enabled),
    always!("application_steering_period_us", "time between two looks at the threads",
        time limits::APPLICATION_STEERING_PERIOD_MIN, limits::APPLICATION_STEERING_PERIOD_MAX,
        application_steering.period),
    always!("application_steering_latency_load_max_bytes",
        "latency load with which a core takes no more latency threads (L*)",
        number KnobRange::Number(1, limits::LATENCY_LOAD_MAX_BYTES_MAX),
        application_steering.latency_load_max_bytes),
    always!("application_steering_hysteresis", "when a latency thread moves: the paper's rule, or \
         only away from throughput work",
        words ["paper" = Hysteresis::Paper, "settled" = Hysteresis::Settled],
        application_steering.hysteresis),
    always!("queue_affinity",
        "while classes contend, a target serves queues on the cores that take their packets in",
        switch => queue_affinity),
    always!("light_hosts",
        "a turn of a target takes a caravan at most from hosts that ask for much, beside others",
        switch => light_hosts),
    always!("caravan", "several requests may share a send", switch => caravan.enabled),
    always!("caravan_beside_latency_requests", "requests of a send while latency work is active",
        number REQUESTS, caravan.beside_latency.requests),
    always!("caravan_beside_latency_bytes", "bytes of a send while latency work is active",
        number BYTES, caravan.beside_latency.bytes),
    always!("caravan_beside_latency_iovecs", "segments of a send while latency work is active",
        number IOVECS, caravan.beside_latency.iovecs),
    always!("caravan_sparse_factor",
        "how many times as much of each while latency work is active, and its requests sparse",
        number KnobRange::Number(1, limits::CARAVAN_SPARSE_FACTOR_MAX as u64), caravan.sparse_factor),
    always!("sparse_latency_bytes",
        "throughput work that leaves between two latency requests from which on they are sparse",
        number KnobRange::Number(limits::SPARSE_LATENCY_BYTES_MIN, limits::SPARSE_LATENCY_BYTES_MAX),
        sparse_latency_bytes),
    always!("caravan_alone_requests", "requests of a send otherwise",
        number REQUESTS, caravan.alone.requests),
    always!("caravan_alone_bytes", "bytes of a send otherwise",
        number BYTES, caravan.alone.bytes),
    always!("caravan_alone_iovecs", "segments of a send otherwise",
        number IOVECS, caravan.alone.iovecs),
    Knob {
        key: "doorbell",
        meaning: "when a send leaves: at once, by fixed limits and delay, or as the load suggests",
        range: KnobRange::Words(&["immediate", "fixed", "adaptive"]),
        with: None,
        get: |knobs| {
            Some(KnobValue::Word(match knobs.doorbell {
                Mode::Immediate => 0,
                Mode::Fixed { .. } => 1,
                Mode::Adaptive { .. } => 2,
            }))
        },
        put: |knobs, value| {
            let wanted = value.word(&[Mode::Immediate, Mode::FIXED, Mode::ADAPTIVE])?;
            let before = knobs.doorbell;
            if std::mem::discriminant(&before) != std::mem::discriminant(&wanted) {
                knobs.doorbell = wanted;
                // What rings early stays, where the mode before had it.
                if let (Some(new), Some(old)) = (fill_mut(&mut knobs.doorbell), fill(&before)) {
                    *new = old;
                }
            }
            Some(())
        },
    },
    fill!(
        "doorbell_requests",
        "requests that ring",
        REQUESTS,
        requests
    ),
    fill!("doorbell_bytes", "bytes that ring", BYTES, bytes),
    fill!("doorbell_iovecs", "segments that ring", IOVECS, iovecs),
    Knob {
        key: DOORBELL_DELAY,
        meaning: "how long a fixed doorbell waits after the first request",
        range: KnobRange::Time(limits::DOORBELL_DELAY_MIN, limits::DOORBELL_HOLD_MAX),
        with: Some("doorbell=fixed"),
        get: |knobs| match knobs.doorbell {
            Mode::Fixed { delay, .. } => Some(KnobValue::Time(delay)),
            _ => None,
        },
        put: |knobs, value| match &mut knobs.doorbell {
            Mode::Fixed { delay, .. } => {
                *delay = value.time()?;
                Some(())
            }
            _ => None,
        },
    },
    Knob {
        key: "doorbell_max_hold_us",
        meaning: "how long an adaptive doorbell holds a request at most",
        range: KnobRange::Time(Nanos::from_micros(1), limits::DOORBELL_HOLD_MAX),
        with: Some("doorbell=adaptive"),
        get: |knobs| match knobs.doorbell {
            Mode::Adaptive { max_hold, .. } => Some(KnobValue::Time(max_hold)),
            _ => None,
        },
        put: |knobs, value| match &mut knobs.doorbell {
            Mode::Adaptive { max_hold, .. } => {
                *max_hold = value.time()?;
                Some(())
            }
            _ => None,
        },
    },
    always!("quantum_bytes", "bytes of throughput work between two looks for latency work",
        number KnobRange::Number(limits::QUANTUM_BYTES_MIN, limits::QUANTUM_BYTES_MAX),
        quantum_bytes),
    floor!(
        "floor_latency_permille",
        "what latency work is promised while it waits",
        Class::Latency
    ),
    floor!(
        "floor_throughput_permille",
        "what throughput work is promised while it waits",
        Class::Throughput
    ),
    always!("direct_submitters", "threads with latency work on a core up to which these send for \
         themselves, while no throughput work is outstanding there; each has a connection of its \
         own then",
        number KnobRange::Number(0, limits::DIRECT_SUBMITTERS_MAX as u64), direct_submitters),
    always!("completion_hold_us", "how long an application is not notified of completions of \
         throughput work, at most, while latency work is active",
        time Nanos::ZERO, limits::COMPLETION_HOLD_MAX, completion_hold),
    Knob {
        key: "floor_window_us",
        meaning: "the stretch of time over which floors hold",
        range: KnobRange::Time(limits::FLOOR_WINDOW_MIN, limits::FLOOR_WINDOW_MAX),
        with: None,
        get: |knobs| match knobs.floor_window {
            Window::Time(span) => Some(KnobValue::Time(span)),
            Window::Bytes(_) => None,
        },
        put: |knobs, value| {
            knobs.floor_window = Window::Time(value.time()?);
            Some(())
        },
    },
    Knob {
        key: "floor_window_bytes",
        meaning: "the same in bytes served; takes the place of the stretch of time",
        range: KnobRange::Number(
            limits::FLOOR_WINDOW_BYTES_MIN,
            limits::FLOOR_WINDOW_BYTES_MAX,
        ),
        with: None,
        get: |knobs| match knobs.floor_window {
            Window::Bytes(bytes) => Some(KnobValue::Number(bytes)),
            Window::Time(_) => None,
        },
        put: |knobs, value| {
            knobs.floor_window = Window::Bytes(value.number()?);
            Some(())
        },
    },
];

/// Returns the amount that rings a doorbell early.
fn fill(mode: &Mode) -> Option<CaravanLimits> {
    match mode {
        Mode::Immediate => None,
        Mode::Fixed { fill, .. } | Mode::Adaptive { fill, .. } => Some(*fill),
    }
}

fn fill_mut(mode: &mut Mode) -> Option<&mut CaravanLimits> {
    match mode {
        Mode::Immediate => None,
        Mode::Fixed { fill, .. } | Mode::Adaptive { fill, .. } => Some(fill),
    }
}
