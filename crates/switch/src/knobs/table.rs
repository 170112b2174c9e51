//! Every knob as text: one line of one table for each.
//!
//! Files, flags, the HTTP interface, help and [`Knobs::validate`] all read this table, so a further
//! knob is a further line here and nothing elsewhere. A key is the same word everywhere, with its
//! unit last; in files and over HTTP a value has the type that it has there (`true`, `"fixed"`, 64),
//! and on the command line it is text.

use super::{KnobError, Knobs, Lanes, Polling, Preset, ThreadPriority, Threads};
use crate::application_steering::Hysteresis;
use crate::caravan::CaravanLimits;
use crate::class::Class;
use crate::doorbell::Mode;
use crate::limits;
use crate::request_steering::Preference;
use crate::scheduler::Window;
use base::Nanos;
use std::fmt;

#[cfg(test)]
mod tests;

/// A knob: its name, what it may be, and where it is found.
pub struct Knob {
    /// What it is called, with its unit last.
    pub key: &'static str,
    /// What it does, for people.
    pub meaning: &'static str,
    /// What it may be.
    pub range: Range,
    /// The knob and value without which it does not count, where there is such a condition.
    pub with: Option<&'static str>,
    get: fn(&Knobs) -> Option<Value>,
    put: fn(&mut Knobs, Value) -> Option<()>,
}

/// What a knob may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Range {
    /// On or off.
    Switch,
    /// One of these words.
    Words(&'static [&'static str]),
    /// A whole number within these bounds, themselves included, in the key's unit.
    Number(u64, u64),
    /// A span of time within these bounds, themselves included; as text, whole microseconds.
    Time(Nanos, Nanos),
}

/// Where a knob is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// On or off.
    Switch(bool),
    /// A word, by its place in the knob's [`Range::Words`].
    Word(usize),
    /// A number.
    Number(u64),
    /// A span of time.
    Time(Nanos),
}

/// A knob with its value.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The knob.
    pub knob: &'static Knob,
    /// Where it is.
    pub value: Value,
}

impl Value {
    fn switch(self) -> Option<bool> {
        match self {
            Self::Switch(on) => Some(on),
            _ => None,
        }
    }

    fn word<T: Copy>(self, meanings: &[T]) -> Option<T> {
        match self {
            Self::Word(index) => meanings.get(index).copied(),
            _ => None,
        }
    }

    fn number<T: TryFrom<u64>>(self) -> Option<T> {
        match self {
            Self::Number(number) => T::try_from(number).ok(),
            _ => None,
        }
    }

    fn time(self) -> Option<Nanos> {
        match self {
            Self::Time(span) => Some(span),
            _ => None,
        }
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Switch => f.write_str("on or off"),
            Self::Words(words) => f.write_str(&words.join(" or ")),
            Self::Number(min, max) => write!(f, "{min} to {max}"),
            Self::Time(min, max) => write!(f, "{} to {}", Micros(*min), Micros(*max)),
        }
    }
}

/// A span of time in microseconds, without the unit.
struct Micros(Nanos);

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0.0 / 1_000, self.0.0 % 1_000);
        if rest == 0 {
            write!(f, "{whole}")
        } else {
            write!(f, "{whole}.{rest:03}")
        }
    }
}

impl Entry {
    /// The value as text that [`Knobs::set`] takes.
    #[must_use]
    pub fn text(&self) -> String {
        match (self.value, self.knob.range) {
            (Value::Switch(true), _) => "on".to_owned(),
            (Value::Switch(false), _) => "off".to_owned(),
            (Value::Word(index), Range::Words(words)) => {
                words.get(index).copied().unwrap_or_default().to_owned()
            }
            (Value::Word(index), _) => index.to_string(),
            (Value::Number(number), _) => number.to_string(),
            (Value::Time(span), _) => Micros(span).to_string(),
        }
    }
}

impl fmt::Debug for Knob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Knob({})", self.key)
    }
}

impl Knob {
    /// All of them. A knob that decides whether others count comes before those.
    pub const ALL: &'static [Self] = KNOBS;

    /// The knob with this key.
    ///
    /// # Errors
    /// [`KnobError::NoKnob`].
    pub fn find(key: &str) -> Result<&'static Self, KnobError> {
        Self::ALL
            .iter()
            .find(|knob| knob.key == key)
            .ok_or_else(|| KnobError::NoKnob {
                word: shortened(key),
            })
    }

    /// Where it is in `knobs`; `None` where it does not count.
    #[must_use]
    pub fn get(&self, knobs: &Knobs) -> Option<Value> {
        (self.get)(knobs)
    }

    /// What a text means for it.
    ///
    /// # Errors
    /// [`KnobError::NoValue`], or that it is out of range.
    pub fn parse(&self, text: &str) -> Result<Value, KnobError> {
        let number = || text.parse::<u64>().ok();
        let value = match self.range {
            Range::Switch => match text {
                "on" | "true" => Some(Value::Switch(true)),
                "off" | "false" => Some(Value::Switch(false)),
                _ => None,
            },
            Range::Words(words) => words
                .iter()
                .position(|word| word.eq_ignore_ascii_case(text))
                .map(Value::Word),
            Range::Number(..) => number().map(Value::Number),
            Range::Time(..) => number()
                .and_then(|micros| micros.checked_mul(1_000))
                .map(|nanos| Value::Time(Nanos(nanos))),
        };
        let value = value.ok_or_else(|| KnobError::NoValue {
            knob: self.key,
            word: shortened(text),
            expected: self.range.to_string(),
        })?;
        self.check(value)?;
        Ok(value)
    }

    /// Whether a value of this knob is within its range.
    pub(super) fn check(&self, value: Value) -> Result<(), KnobError> {
        let (fits, text) = match (self.range, value) {
            (Range::Number(min, max), Value::Number(number)) => {
                ((min..=max).contains(&number), number.to_string())
            }
            (Range::Time(min, max), Value::Time(span)) => {
                ((min..=max).contains(&span), Micros(span).to_string())
            }
            (Range::Switch, Value::Switch(_)) => return Ok(()),
            (Range::Words(words), Value::Word(index)) => (index < words.len(), index.to_string()),
            _ => (false, format!("{value:?}")),
        };
        if fits {
            return Ok(());
        }
        if self.key == DOORBELL_DELAY
            && value.time().is_some_and(|d| d < limits::DOORBELL_DELAY_MIN)
        {
            return Err(KnobError::DelayTooShort {
                knob: self.key,
                value: text,
            });
        }
        Err(KnobError::OutOfRange {
            knob: self.key,
            value: text,
            expected: self.range.to_string(),
        })
    }

    /// Turns it.
    fn put(&self, knobs: &mut Knobs, value: Value) -> Result<(), KnobError> {
        (self.put)(knobs, value).ok_or(KnobError::NotInUse {
            knob: self.key,
            with: self.with.unwrap_or("another value"),
        })
    }
}

impl Knobs {
    /// Turns one knob, which must count in the position of the others, and does not look at the
    /// position as a whole ([`Knobs::validate`] does).
    ///
    /// # Errors
    /// An unknown knob, a value that it has not, or a knob that does not count. Nothing has changed
    /// then.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), KnobError> {
        let knob = Knob::find(key)?;
        knob.put(self, knob.parse(value)?)
    }

    /// Turns several knobs together, whatever their order, and validates the result.
    ///
    /// # Errors
    /// As [`Knobs::set`] and [`Knobs::validate`], or two of them that exclude each other. Nothing
    /// has changed then.
    pub fn turn<'a>(
        &mut self,
        changes: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<(), KnobError> {
        let mut wanted: Vec<(&'static Knob, Value)> = Vec::new();
        for (key, text) in changes {
            let knob = Knob::find(key)?;
            if wanted.iter().any(|(other, _)| other.key == knob.key) {
                return Err(KnobError::TurnedTwice { knob: knob.key });
            }
            wanted.push((knob, knob.parse(text)?));
        }
        let mut turned = *self;
        // In the table's order, so that what decides about others is turned before them.
        for knob in Knob::ALL {
            if let Some((_, value)) = wanted.iter().find(|(other, _)| other.key == knob.key) {
                knob.put(&mut turned, *value)?;
            }
        }
        for (knob, value) in wanted {
            if knob.get(&turned) != Some(value) {
                return Err(KnobError::TurnedTwice { knob: knob.key });
            }
        }
        turned.validate()?;
        *self = turned;
        Ok(())
    }

    /// Every knob that counts, with its value, in the table's order.
    pub fn entries(&self) -> impl Iterator<Item = Entry> {
        let knobs = *self;
        Knob::ALL.iter().filter_map(move |knob| {
            let value = knob.get(&knobs)?;
            Some(Entry { knob, value })
        })
    }

    /// The knobs in which this position differs from `base`; [`Knobs::turn`] makes this position of
    /// `base` by them.
    pub fn differences(&self, base: &Self) -> impl Iterator<Item = Entry> {
        let base = *base;
        self.entries()
            .filter(move |entry| entry.knob.get(&base) != Some(entry.value))
    }

    /// The preset that differs least from this position; of several, the first.
    #[must_use]
    pub fn nearest_preset(&self) -> Preset {
        Preset::ALL
            .iter()
            .map(|(preset, _)| *preset)
            .min_by_key(|preset| self.differences(&preset.knobs()).count())
            .unwrap_or(Preset::Switchyard)
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(32).collect()
}

const DOORBELL_DELAY: &str = "doorbell_delay_us";
pub(super) const TARGET_THREADS_MIN: &str = "target_threads_min";

const REQUESTS: Range = Range::Number(1, limits::CARAVAN_REQUESTS_MAX as u64);
const BYTES: Range = Range::Number(1, limits::CARAVAN_BYTES_MAX);
const IOVECS: Range = Range::Number(1, limits::CARAVAN_IOVECS_MAX as u64);

/// A knob that always counts.
macro_rules! always {
    ($key:literal, $meaning:literal, switch, $($field:ident).+) => {
        Knob {
            key: $key,
            meaning: $meaning,
            range: Range::Switch,
            with: None,
            get: |knobs| Some(Value::Switch(knobs.$($field).+)),
            put: |knobs, value| {
                knobs.$($field).+ = value.switch()?;
                Some(())
            },
        }
    };
    ($key:literal, $meaning:literal, number $range:expr, $($field:ident).+) => {
        Knob {
            key: $key,
            meaning: $meaning,
            range: $range,
            with: None,
            get: |knobs| Some(Value::Number(u64::from(knobs.$($field).+))),
            put: |knobs, value| {
                knobs.$($field).+ = value.number()?;
                Some(())
            },
        }
    };
    ($key:literal, $meaning:literal, words [$($word:literal = $variant:path),+], $($field:ident).+) => {
        Knob {
            key: $key,
            meaning: $meaning,
            range: Range::Words(&[$($word),+]),
            with: None,
            get: |knobs| [$($variant),+]
                .iter()
                .position(|variant| *variant == knobs.$($field).+)
                .map(Value::Word),
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
            get: |knobs| fill(&knobs.doorbell).map(|fill| Value::Number(u64::from(fill.$field))),
            put: |knobs, value| {
                fill_mut(&mut knobs.doorbell)?.$field = value.number()?;
                Some(())
            },
        }
    };
}

/// What a class is promised.
macro_rules! floor {
    ($key:literal, $meaning:literal, $class:expr) => {
        Knob {
            key: $key,
            meaning: $meaning,
            range: Range::Number(0, limits::FLOOR_PERMILLE_MAX as u64),
            with: None,
            get: |knobs| Some(Value::Number(u64::from(knobs.floor_permille[$class]))),
            put: |knobs, value| {
                knobs.floor_permille[$class] = value.number()?;
                Some(())
            },
        }
    };
}

const KNOBS: &[Knob] = &[
    always!("lanes", "lanes of a core to a target, for connections made from then on",
        words ["per-class" = Lanes::PerClass, "shared" = Lanes::Shared], lanes),
    always!(
        "prioritisation",
        "latency work goes before throughput work on every core",
        switch,
        prioritisation
    ),
    always!("latency_threads", "the priority that threads with latency work ask the kernel for",
        words ["default" = ThreadPriority::Default, "nice" = ThreadPriority::Nice,
            "best" = ThreadPriority::Best], latency_threads),
    always!("threads", "dataplane threads of a host's core, for switchboards started from then on",
        words ["per-core" = Threads::PerCore, "per-class" = Threads::PerClass], threads),
    Knob {
        key: TARGET_THREADS_MIN,
        meaning: "threads that a target uses at least; 0 for all of the cores that it was given, \
                  and one where it was given none",
        range: Range::Number(0, limits::TARGET_THREADS_MAX as u64),
        with: None,
        get: |knobs| Some(Value::Number(u64::from(knobs.target_threads.min))),
        put: |knobs, value| {
            knobs.target_threads.min = value.number()?;
            Some(())
        },
    },
    always!("target_threads_max", "threads that a target uses at most, if it has as many cores",
        number Range::Number(1, limits::TARGET_THREADS_MAX as u64), target_threads.max),
    always!("polling", "what a core without work does: polls while that pays, for ever, or never",
        words ["adaptive" = Polling::Adaptive, "always" = Polling::Always,
            "never" = Polling::Never], polling),
    always!(
        "request_steering",
        "throughput requests leave an overloaded core by another one",
        switch,
        request_steering.enabled
    ),
    always!("request_steering_threshold_bytes", "bytes outstanding that make a core overloaded",
        number Range::Number(
            limits::STEERING_THRESHOLD_BYTES_MIN, limits::STEERING_THRESHOLD_BYTES_MAX),
        request_steering.threshold_bytes),
    Knob {
        key: "request_steering_preference",
        meaning: "which cores are preferred: none, or those whose caravan is nearly full",
        range: Range::Words(&["none", "nearly-full"]),
        with: None,
        get: |knobs| {
            let nearly = knobs.request_steering.preference != Preference::None;
            Some(Value::Word(usize::from(nearly)))
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
            Preference::NearlyFull { requests } => Some(Value::Number(u64::from(requests))),
        },
        put: |knobs, value| match &mut knobs.request_steering.preference {
            Preference::None => None,
            Preference::NearlyFull { requests } => {
                *requests = value.number()?;
                Some(())
            }
        },
    },
    always!(
        "application_steering",
        "threads move to the cores that suit their class",
        switch,
        application_steering.enabled
    ),
    Knob {
        key: "application_steering_period_us",
        meaning: "time between two looks at the threads",
        range: Range::Time(
            limits::APPLICATION_STEERING_PERIOD_MIN,
            limits::APPLICATION_STEERING_PERIOD_MAX,
        ),
        with: None,
        get: |knobs| Some(Value::Time(knobs.application_steering.period)),
        put: |knobs, value| {
            knobs.application_steering.period = value.time()?;
            Some(())
        },
    },
    always!("application_steering_latency_load_max_bytes",
        "latency load with which a core takes no more latency threads (L*)",
        number Range::Number(1, limits::LATENCY_LOAD_MAX_BYTES_MAX),
        application_steering.latency_load_max_bytes),
    always!("application_steering_hysteresis", "when a latency thread moves: the paper's rule, or \
         only away from throughput work",
        words ["paper" = Hysteresis::Paper, "settled" = Hysteresis::Settled],
        application_steering.hysteresis),
    always!(
        "queue_affinity",
        "while classes contend, a target serves queues on the cores that take their packets in",
        switch,
        queue_affinity
    ),
    always!(
        "light_hosts",
        "a turn of a target takes a caravan at most from hosts that ask for much, beside others",
        switch,
        light_hosts
    ),
    always!(
        "caravan",
        "several requests may share a send",
        switch,
        caravan.enabled
    ),
    always!("caravan_beside_latency_requests", "requests of a send while latency work is near",
        number REQUESTS, caravan.beside_latency.requests),
    always!("caravan_beside_latency_bytes", "bytes of a send while latency work is near",
        number BYTES, caravan.beside_latency.bytes),
    always!("caravan_beside_latency_iovecs", "segments of a send while latency work is near",
        number IOVECS, caravan.beside_latency.iovecs),
    always!("caravan_sparse_factor",
        "how many times as much of each while latency work is near, and its requests sparse",
        number Range::Number(1, limits::CARAVAN_SPARSE_FACTOR_MAX as u64), caravan.sparse_factor),
    always!("sparse_latency_bytes",
        "throughput work that leaves between two latency requests from which on they are sparse",
        number Range::Number(limits::SPARSE_LATENCY_BYTES_MIN, limits::SPARSE_LATENCY_BYTES_MAX),
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
        range: Range::Words(&["immediate", "fixed", "adaptive"]),
        with: None,
        get: |knobs| {
            Some(Value::Word(match knobs.doorbell {
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
        range: Range::Time(limits::DOORBELL_DELAY_MIN, limits::DOORBELL_HOLD_MAX),
        with: Some("doorbell=fixed"),
        get: |knobs| match knobs.doorbell {
            Mode::Fixed { delay, .. } => Some(Value::Time(delay)),
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
        range: Range::Time(Nanos::from_micros(1), limits::DOORBELL_HOLD_MAX),
        with: Some("doorbell=adaptive"),
        get: |knobs| match knobs.doorbell {
            Mode::Adaptive { max_hold, .. } => Some(Value::Time(max_hold)),
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
        number Range::Number(limits::QUANTUM_BYTES_MIN, limits::QUANTUM_BYTES_MAX),
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
    Knob {
        key: "completion_hold_us",
        meaning: "how long an application is not told of completions of throughput work, at most, \
                  while latency work is near",
        range: Range::Time(Nanos::ZERO, limits::COMPLETION_HOLD_MAX),
        with: None,
        get: |knobs| Some(Value::Time(knobs.completion_hold)),
        put: |knobs, value| {
            knobs.completion_hold = value.time()?;
            Some(())
        },
    },
    Knob {
        key: "floor_window_us",
        meaning: "the stretch of time over which floors hold",
        range: Range::Time(limits::FLOOR_WINDOW_MIN, limits::FLOOR_WINDOW_MAX),
        with: None,
        get: |knobs| match knobs.floor_window {
            Window::Time(span) => Some(Value::Time(span)),
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
        range: Range::Number(
            limits::FLOOR_WINDOW_BYTES_MIN,
            limits::FLOOR_WINDOW_BYTES_MAX,
        ),
        with: None,
        get: |knobs| match knobs.floor_window {
            Window::Bytes(bytes) => Some(Value::Number(bytes)),
            Window::Time(_) => None,
        },
        put: |knobs, value| {
            knobs.floor_window = Window::Bytes(value.number()?);
            Some(())
        },
    },
];

/// What rings a doorbell early.
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
