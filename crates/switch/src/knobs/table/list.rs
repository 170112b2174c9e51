//! The list of all knobs, in the order in which they are displayed and set.

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

/// A knob that always has an effect.
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

/// A limit at which a doorbell rings early; without effect for a doorbell that always rings.
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

/// Removed knobs of earlier versions, with their remedies.
pub(super) const REMOVED: &[(&str, &str)] = &[(
    "threads",
    "omit it: each core of a switchboard has one thread for all classes",
)];

pub(super) const KNOBS: &[Knob] = &[
    always!("lanes", "lanes per core and target: one per class, or one shared by both classes; for \
        new connections",
        words ["per-class" = Lanes::PerClass, "shared" = Lanes::Shared], lanes),
    always!("prioritisation", "serve class L before class T on every core",
        switch => prioritisation),
    always!("latency_threads", "scheduling priority of threads with class L work",
        words ["default" = ThreadPriority::Default, "nice" = ThreadPriority::Nice],
        latency_threads),
    always!(TARGET_THREADS_MIN, "fewest threads of a target; 0: one thread per core of --cores, or \
        one without --cores",
        number KnobRange::Number(0, limits::TARGET_THREADS_MAX as u64), target_threads.min),
    always!("target_threads_max", "most threads of a target, limited by its cores",
        number KnobRange::Number(1, limits::TARGET_THREADS_MAX as u64), target_threads.max),
    always!("polling", "idle policy of a core: poll while requests arrive frequently enough, \
        always, or never",
        words ["adaptive" = Polling::Adaptive, "always" = Polling::Always,
            "never" = Polling::Never], polling),
    always!("request_steering", "send class T requests of an overloaded core through another core",
        switch => request_steering.enabled),
    always!("request_steering_threshold_bytes", "outstanding bytes above which a core is \
        overloaded",
        number KnobRange::Number(
            limits::STEERING_THRESHOLD_BYTES_MIN, limits::STEERING_THRESHOLD_BYTES_MAX),
        request_steering.threshold_bytes),
    Knob {
        key: "request_steering_preference",
        meaning: "preferred target cores: none, or cores whose batch is nearly full",
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
        meaning: "requests above which a batch is nearly full",
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
    always!("application_steering", "move threads to cores that suit their class",
        switch => application_steering.enabled),
    always!("application_steering_period_us", "interval of application steering in microseconds",
        time limits::APPLICATION_STEERING_PERIOD_MIN, limits::APPLICATION_STEERING_PERIOD_MAX,
        application_steering.period),
    always!("application_steering_latency_load_max_bytes",
        "class L load above which a core accepts no more class L threads (L*)",
        number KnobRange::Number(1, limits::LATENCY_LOAD_MAX_BYTES_MAX),
        application_steering.latency_load_max_bytes),
    always!("application_steering_hysteresis", "when a class L thread moves: by the rule of the \
        paper, or only away from class T work",
        words ["paper" = Hysteresis::Paper, "settled" = Hysteresis::Settled],
        application_steering.hysteresis),
    always!("queue_affinity",
        "while both classes compete, serve each queue on the core that receives its packets",
        switch => queue_affinity),
    always!("light_hosts",
        "while several hosts are active, accept at most one batch per turn from a host with many \
         requests",
        switch => light_hosts),
    always!("caravan", "send several requests in one batch (caravan)", switch => caravan.enabled),
    always!("caravan_beside_latency_requests", "most requests per batch while class L is active",
        number REQUESTS, caravan.beside_latency.requests),
    always!("caravan_beside_latency_bytes", "most bytes per batch while class L is active",
        number BYTES, caravan.beside_latency.bytes),
    always!("caravan_beside_latency_iovecs", "most segments per batch while class L is active",
        number IOVECS, caravan.beside_latency.iovecs),
    always!("caravan_sparse_factor",
        "factor for these limits while class L is active, but its requests are sparse",
        number KnobRange::Number(1, limits::CARAVAN_SPARSE_FACTOR_MAX as u64), caravan.sparse_factor),
    always!("sparse_latency_bytes",
        "class T bytes sent between two class L requests from which class L counts as sparse",
        number KnobRange::Number(limits::SPARSE_LATENCY_BYTES_MIN, limits::SPARSE_LATENCY_BYTES_MAX),
        sparse_latency_bytes),
    always!("caravan_alone_requests", "most requests per batch while class L is inactive",
        number REQUESTS, caravan.alone.requests),
    always!("caravan_alone_bytes", "most bytes per batch while class L is inactive",
        number BYTES, caravan.alone.bytes),
    always!("caravan_alone_iovecs", "most segments per batch while class L is inactive",
        number IOVECS, caravan.alone.iovecs),
    Knob {
        key: "doorbell",
        meaning: "when a batch is sent: at once, by fixed limits and delay, or adapted to the load",
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
                // The early-ring limits are kept if the previous mode had them.
                if let (Some(new), Some(old)) = (fill_mut(&mut knobs.doorbell), fill(&before)) {
                    *new = old;
                }
            }
            Some(())
        },
    },
    fill!(
        "doorbell_requests",
        "requests that send a batch before its delay ends",
        REQUESTS,
        requests
    ),
    fill!(
        "doorbell_bytes",
        "bytes that send a batch before its delay ends",
        BYTES,
        bytes
    ),
    fill!(
        "doorbell_iovecs",
        "segments that send a batch before its delay ends",
        IOVECS,
        iovecs
    ),
    Knob {
        key: DOORBELL_DELAY,
        meaning: "delay of a batch after its first request in microseconds",
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
        meaning: "longest delay of a request in microseconds",
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
    always!("quantum_bytes", "class T bytes served between two checks for class L work",
        number KnobRange::Number(limits::QUANTUM_BYTES_MIN, limits::QUANTUM_BYTES_MAX),
        quantum_bytes),
    floor!(
        "floor_latency_permille",
        "guaranteed share of service for waiting class L work, in thousandths",
        Class::Latency
    ),
    floor!(
        "floor_throughput_permille",
        "guaranteed share of service for waiting class T work, in thousandths",
        Class::Throughput
    ),
    always!("direct_submitters", "most class L threads per core that send directly, each on its \
        own connection, while the core has no outstanding class T work",
        number KnobRange::Number(0, limits::DIRECT_SUBMITTERS_MAX as u64), direct_submitters),
    always!("completion_hold_us", "longest delay of class T completion notifications while class L \
        is active, in microseconds",
        time Nanos::ZERO, limits::COMPLETION_HOLD_MAX, completion_hold),
    Knob {
        key: "floor_window_us",
        meaning: "period over which floors are guaranteed, in microseconds",
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
        meaning: "the same period in bytes served; replaces floor_window_us",
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

/// Returns the size at which a doorbell rings early.
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
