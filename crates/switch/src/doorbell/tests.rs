//! The doorbell compared with a slow, obvious model, and examples.

use super::*;
use crate::limits::{DOORBELL_DELAY_MIN, EWMA_SHIFT};
use proptest::prelude::*;

/// A model that stores every request and event, and recomputes everything each time.
struct Model {
    mode: Mode,
    /// Arrival, bytes and segments of the waiting requests, oldest first.
    held: Vec<(Time, u32, u32)>,
    /// Arrival of the first request in the empty queue, and its maximum wait then.
    first: (Time, Nanos),
    due: Option<Reason>,
    history: Vec<Learned>,
}

enum Learned {
    Arrival(Time, u32),
    Disappointment,
}

/// The moving average, in eighths, of a sequence that began with `start`.
fn average(start: u128, samples: &[u128]) -> u128 {
    samples.iter().fold(start << EWMA_SHIFT, |eighths, sample| {
        eighths - eighths / 8 + sample
    })
}

impl Model {
    fn new(mode: Mode) -> Self {
        let first = (Time::ZERO, Nanos::ZERO);
        Self {
            mode,
            held: Vec::new(),
            first,
            due: None,
            history: Vec::new(),
        }
    }

    fn bytes(&self) -> u64 {
        self.held.iter().map(|held| u64::from(held.1)).sum()
    }

    fn iovecs(&self) -> u32 {
        self.held.iter().map(|held| held.2).sum()
    }

    fn requests(&self) -> u32 {
        u32::try_from(self.held.len()).unwrap()
    }

    fn until(&self) -> Time {
        self.first.0 + self.first.1
    }

    /// Gap in ns and bytes per request, from the whole history.
    fn pace(&self) -> (u128, u128) {
        let longest = u128::from(ARRIVAL_GAP_MAX.0);
        let (mut gap, mut last, mut sizes) = (longest << EWMA_SHIFT, Time::ZERO, Vec::new());
        for learned in &self.history {
            match *learned {
                Learned::Arrival(at, bytes) => {
                    gap = gap - gap / 8 + u128::from(at.0 - last.0).min(longest);
                    last = at;
                    sizes.push(u128::from(u64::from(bytes).min(REQUEST_BYTES_MAX)));
                }
                Learned::Disappointment => gap = (gap / 8 * 2).clamp(1, longest) << EWMA_SHIFT,
            }
        }
        (gap / 8, average(0, &sizes) / 8)
    }

    /// Simulates the near future: one request of average size per average gap, as many as are
    /// outstanding. Returns true if the caravan is full by count or bytes before the bound.
    fn expects_to_fill(&self, now: Time, fill: &CaravanLimits, in_flight: u32) -> bool {
        let (gap, each) = self.pace();
        let window = u128::from(self.until().0 - now.0);
        let by_count = u128::from(fill.requests - self.requests());
        if by_count <= u128::from(in_flight) && by_count * gap <= window {
            return true;
        }
        // Fractions of a request count here, because bytes arrive as a stream.
        let lacking = u128::from(fill.bytes - self.bytes());
        lacking <= u128::from(in_flight) * each && lacking * gap <= window * each
    }

    fn answer(&self) -> Decision {
        match self.due {
            Some(reason) => Decision::Ring(reason),
            None if self.held.is_empty() => Decision::NOTHING,
            None => Decision::Hold {
                until: self.until(),
            },
        }
    }

    fn ring(&mut self, reason: Reason) -> Decision {
        if reason == Reason::Timer && self.due.is_none() {
            self.history.push(Learned::Disappointment);
        }
        self.due = Some(reason);
        self.answer()
    }

    fn request(&mut self, now: Time, item: (u32, u32), urgency: Urgency, flying: u32) -> Decision {
        if self.held.is_empty() {
            self.first = (now, self.mode.bound());
        }
        self.held.push((now, item.0, item.1));
        if urgency == Urgency::Urgent {
            return self.ring(Reason::Urgent);
        }
        let (fill, adaptive) = match self.mode {
            Mode::Immediate => return self.ring(Reason::Disabled),
            Mode::Fixed { fill, .. } => (fill, false),
            Mode::Adaptive { fill, .. } => (fill, true),
        };
        if adaptive {
            self.history.push(Learned::Arrival(now, item.0));
        }
        if self.requests() >= fill.requests {
            self.ring(Reason::RequestsFull)
        } else if self.bytes() >= fill.bytes {
            self.ring(Reason::BytesFull)
        } else if self.iovecs() >= fill.iovecs {
            self.ring(Reason::IovecsFull)
        } else if adaptive && flying == 0 {
            self.ring(Reason::Idle)
        } else if now >= self.until() {
            self.ring(Reason::Timer)
        } else if adaptive && !self.expects_to_fill(now, &fill, flying) {
            self.ring(Reason::Sparse)
        } else {
            self.answer()
        }
    }

    fn timer(&mut self, now: Time) -> Decision {
        if !self.held.is_empty() && self.due.is_none() && now >= self.until() {
            return self.ring(Reason::Timer);
        }
        self.answer()
    }

    fn completion(&mut self, now: Time, flying: u32) -> Decision {
        let adaptive = matches!(self.mode, Mode::Adaptive { .. });
        if adaptive && flying == 0 && !self.held.is_empty() && self.due.is_none() {
            return self.ring(Reason::Idle);
        }
        self.timer(now)
    }

    fn take(&mut self, count: usize) -> Caravan {
        let mut caravan = Caravan::EMPTY;
        for (_, bytes, iovecs) in self.held.drain(..count) {
            caravan.add(bytes, iovecs);
        }
        if self.held.is_empty() {
            self.due = None;
        }
        caravan
    }
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Request {
        item: (u32, u32),
        urgency: Urgency,
        in_flight: u32,
    },
    Timer,
    Completion {
        in_flight: u32,
    },
    /// The caller follows a ring.
    Obey,
    /// This share of the waiting requests leaves, in thousandths, with or without a ring.
    Take(u16),
    Turn(Mode),
    Clear,
}

fn mode() -> impl Strategy<Value = Mode> {
    let fill = (1_u32..40, 1_u64..100_000, 1_u32..100).prop_map(|(requests, bytes, iovecs)| {
        CaravanLimits {
            requests,
            bytes,
            iovecs,
        }
    });
    let bound = (0_u64..200_000).prop_map(Nanos);
    prop_oneof![
        1 => Just(Mode::Immediate),
        1 => Just(Mode::FIXED),
        3 => Just(Mode::ADAPTIVE),
        1 => (fill.clone(), bound.clone()).prop_map(|(fill, delay)| Mode::Fixed { fill, delay }),
        3 => (fill, bound).prop_map(|(fill, max_hold)| Mode::Adaptive { fill, max_hold }),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    // Large ones are rare: they fill every caravan, and raise the average for long.
    let bytes = prop_oneof![
        90 => Just(72_u32), 30 => Just(4_120), 2 => Just(65_560), 1 => any::<u32>()
    ];
    let urgency = prop_oneof![20 => Just(Urgency::Patient), 1 => Just(Urgency::Urgent)];
    let in_flight = prop_oneof![1 => Just(0_u32), 2 => 1_u32..32, 2 => 32_u32..1024];
    prop_oneof![
        12 => (bytes, 1_u32..4, urgency, in_flight.clone()).prop_map(
            |(bytes, iovecs, urgency, in_flight)| Event::Request {
                item: (bytes, iovecs), urgency, in_flight,
            }),
        2 => Just(Event::Timer),
        2 => in_flight.prop_map(|in_flight| Event::Completion { in_flight }),
        12 => Just(Event::Obey),
        1 => (0_u16..=1000).prop_map(Event::Take),
        1 => mode().prop_map(Event::Turn),
        1 => Just(Event::Clear),
    ]
}

/// Gaps of bursts, of steady streams, and between them.
fn gap() -> impl Strategy<Value = u64> {
    prop_oneof![4 => Just(0_u64), 6 => 1_u64..3_000, 2 => 1_000_u64..60_000, 1 => 0_u64..3_000_000]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn it_decides_as_the_model_does_and_keeps_its_promises(
        start in mode(),
        events in prop::collection::vec((gap(), event()), 1..300),
        tempo in prop_oneof![Just(1_u64), Just(50), Just(1_000)],
    ) {
        let (mut bell, mut model) = (Doorbell::new(start), Model::new(start));
        let mut counters = DoorbellCounters::default();
        let (mut now, mut came, mut cleared) = (Time(1_000_000_000), 0_u64, 0_u64);
        for (gap, event) in events {
            now = now + Nanos(gap / tempo);
            let mode = bell.mode();
            let decisions = match event {
                Event::Request { item, urgency, in_flight } => {
                    came += 1;
                    let decision = bell.on_request(now, item.0, item.1, urgency, in_flight);
                    let never_held = urgency == Urgency::Urgent
                        || mode == Mode::Immediate
                        || (in_flight == 0 && matches!(mode, Mode::Adaptive { .. }));
                    if never_held {
                        prop_assert!(matches!(decision, Decision::Ring(_)), "{decision:?}");
                    }
                    Some((decision, model.request(now, item, urgency, in_flight)))
                }
                Event::Timer => Some((bell.on_timer(now), model.timer(now))),
                Event::Completion { in_flight } => Some((
                    bell.on_completion(now, in_flight),
                    model.completion(now, in_flight),
                )),
                Event::Obey => {
                    if bell.due().is_some() {
                        ring(&mut bell, &mut counters);
                        model.take(model.held.len());
                    }
                    None
                }
                Event::Take(permille) => {
                    let taken = model.take(model.held.len() * usize::from(permille) / 1000);
                    let reason = bell.took(taken);
                    counters.count(reason, taken.requests, taken.bytes);
                    None
                }
                Event::Turn(mode) => {
                    let changes = mode != model.mode;
                    model.mode = mode;
                    if changes && !model.held.is_empty() && model.due.is_none() {
                        model.ring(Reason::Knob);
                    }
                    Some((bell.reconfigure(mode), model.answer()))
                }
                Event::Clear => {
                    let lost = bell.clear();
                    prop_assert_eq!(lost.requests, model.requests());
                    cleared += u64::from(lost.requests);
                    model.take(model.held.len());
                    None
                }
            };
            if let Some((decision, expected)) = decisions {
                prop_assert_eq!(decision, expected);
                if let (Decision::Hold { until }, Some(oldest)) = (decision, model.held.first()) {
                    prop_assert!(until <= oldest.0 + bell.mode().bound(), "beyond the bound");
                    prop_assert!(until > now || matches!(event, Event::Turn(_)), "held too long");
                }
            }
            let waiting = bell.waiting();
            prop_assert_eq!(waiting.requests, model.requests());
            prop_assert_eq!(waiting.bytes, model.bytes());
            prop_assert_eq!(waiting.iovecs, model.iovecs());
            prop_assert_eq!(bell.due(), model.due);
            let deadline = match (model.due, model.held.is_empty()) {
                (Some(_), _) => Time::ZERO,
                (None, true) => Time::NEVER,
                (None, false) => model.first.0 + model.first.1,
            };
            prop_assert_eq!(bell.deadline(), deadline);
            prop_assert_eq!(came, counters.requests + cleared + u64::from(waiting.requests));
            prop_assert_eq!(counters.rings.iter().sum::<u64>(), counters.sizes.caravans());
        }
        // In every case the timer releases the remaining requests.
        if !bell.waiting().is_empty() {
            let late = bell.on_timer(now + Nanos::from_millis(1));
            prop_assert!(matches!(late, Decision::Ring(_)), "{late:?}");
            ring(&mut bell, &mut counters);
        }
        prop_assert_eq!(came, counters.requests + cleared);
    }
}

/// Sends all waiting requests, and counts them.
fn ring(bell: &mut Doorbell, counters: &mut DoorbellCounters) {
    let caravan = bell.waiting();
    counters.count(bell.rang(), caravan.requests, caravan.bytes);
}

const READ: (u32, u32) = (72, 1);

/// A closed loop of depth `depth` on a lane that completes one request every `gap`. The caller
/// sends on a ring or when the timer expires. Returns the longest wait and the counters.
fn closed_loop(mode: Mode, depth: u32, gap: Nanos, completions: u32) -> (Nanos, DoorbellCounters) {
    let mut bell = Doorbell::new(mode);
    let mut counters = DoorbellCounters::default();
    let (mut now, mut in_flight) = (Time(1_000_000_000), 0_u32);
    let (mut oldest, mut longest) = (now, Nanos::ZERO);
    let mut settle =
        |bell: &mut Doorbell, decision, oldest: Time, now: Time, in_flight: &mut u32| {
            if let Decision::Ring(_) = decision {
                *in_flight += bell.waiting().requests;
                ring(bell, &mut counters);
                return now.since(oldest);
            }
            Nanos::ZERO
        };
    for turn in 0..depth + completions {
        if turn >= depth {
            now = now + gap;
            if in_flight == 0 {
                // All requests wait in the caravan: only the timer makes progress.
                let Decision::Hold { until } = bell.on_timer(oldest) else {
                    unreachable!()
                };
                now = now.max(until);
                let decision = bell.on_timer(now);
                longest = longest.max(settle(&mut bell, decision, oldest, now, &mut in_flight));
            }
            in_flight -= 1;
            let decision = bell.on_completion(now, in_flight);
            longest = longest.max(settle(&mut bell, decision, oldest, now, &mut in_flight));
        }
        if bell.waiting().is_empty() {
            oldest = now;
        }
        let decision = bell.on_request(now, READ.0, READ.1, Urgency::Patient, in_flight);
        longest = longest.max(settle(&mut bell, decision, oldest, now, &mut in_flight));
    }
    (longest, counters)
}

#[test]
fn adaptive_at_low_depth_never_holds_and_fixed_always_does() {
    for depth in 1..=4 {
        let (longest, counters) = closed_loop(Mode::ADAPTIVE, depth, Nanos::from_micros(10), 5_000);
        assert_eq!(longest, Nanos::ZERO, "depth {depth}");
        assert_eq!(counters.rings[Reason::Timer.index()], 0);
        assert_eq!(counters.sizes.caravans(), counters.requests, "each alone");
    }
    let (longest, counters) = closed_loop(Mode::FIXED, 1, Nanos::from_micros(10), 100);
    assert_eq!(longest, DOORBELL_DELAY);
    assert_eq!(
        counters.rings[Reason::Timer.index()],
        counters.sizes.caravans()
    );
}

#[test]
fn adaptive_at_high_depth_fills_its_caravans() {
    let (longest, counters) = closed_loop(Mode::ADAPTIVE, 128, Nanos::from_micros(1), 50_000);
    assert!(longest <= DOORBELL_HOLD, "{longest}");
    let full = counters.rings[Reason::RequestsFull.index()];
    assert!(full * 100 >= counters.sizes.caravans() * 95, "{counters:?}");
    assert!(counters.requests >= counters.sizes.caravans() * 15);
}

#[test]
fn a_slow_lane_is_not_worth_waiting_for_however_deep() {
    // Sixteen arrivals take 160 µs here, and the bound is 50 µs. Only the initial burst of 128
    // forms caravans, and a few more until its pace is forgotten.
    let (longest, counters) = closed_loop(Mode::ADAPTIVE, 128, Nanos::from_micros(10), 5_000);
    assert!(longest <= DOORBELL_HOLD, "{longest}");
    assert!(
        counters.requests - counters.sizes.caravans() < 150,
        "{counters:?}"
    );
    assert!(counters.rings[Reason::Timer.index()] <= 1, "{counters:?}");
}

#[test]
fn fixed_rings_at_each_limit_and_at_the_timer_of_the_first() {
    let start = Time(1_000);
    let mut bell = Doorbell::new(Mode::FIXED);
    for n in 1..16 {
        let decision = bell.on_request(start + Nanos(n), 72, 1, Urgency::Patient, 0);
        let until = start + Nanos(1) + DOORBELL_DELAY;
        assert_eq!(
            decision,
            Decision::Hold { until },
            "the first request's timer"
        );
    }
    let full = bell.on_request(start, 72, 1, Urgency::Patient, 9);
    assert_eq!(full, Decision::Ring(Reason::RequestsFull));
    bell.rang();
    let large = bell.on_request(start, 65_536, 1, Urgency::Patient, 9);
    assert_eq!(large, Decision::Ring(Reason::BytesFull));
    bell.rang();
    let pieces = bell.on_request(start, 4096, CARAVAN_IOVECS, Urgency::Patient, 9);
    assert_eq!(pieces, Decision::Ring(Reason::IovecsFull));
    bell.rang();
    let early = bell.on_timer(start + DOORBELL_DELAY);
    assert_eq!(early, Decision::NOTHING, "nothing waits");
}

#[test]
fn an_urgent_request_takes_along_what_waits() {
    let mut bell = Doorbell::new(Mode::FIXED);
    for _ in 0..3 {
        bell.on_request(Time(5), 72, 1, Urgency::Patient, 0);
    }
    let flush = bell.on_request(Time(6), 72, 1, Urgency::Urgent, 0);
    assert_eq!(flush, Decision::Ring(Reason::Urgent));
    assert_eq!(bell.waiting().requests, 4);
    let mut counters = DoorbellCounters::default();
    ring(&mut bell, &mut counters);
    assert_eq!(counters.sizes.buckets()[2], 1);
    assert_eq!(Urgency::of(Class::Latency), Urgency::Urgent);
    assert_eq!(Urgency::of(Class::Throughput), Urgency::Patient);
}

#[test]
fn what_did_not_fit_the_socket_is_still_to_be_sent() {
    let mut bell = Doorbell::new(Mode::FIXED);
    for _ in 0..16 {
        bell.on_request(Time(5), 72, 1, Urgency::Patient, 0);
    }
    bell.took(Caravan {
        requests: 10,
        bytes: 720,
        iovecs: 10,
    });
    assert_eq!(bell.on_timer(Time(6)), Decision::Ring(Reason::RequestsFull));
    assert_eq!(
        bell.waiting(),
        Caravan {
            requests: 6,
            bytes: 432,
            iovecs: 6
        }
    );
}

#[test]
fn a_hold_that_was_in_vain_is_not_repeated_at_once() {
    let mut bell = Doorbell::new(Mode::ADAPTIVE);
    let mut now = Time(1_000_000_000);
    // A steady stream: it learns to hold.
    let mut decision = Decision::NOTHING;
    for _ in 0..200 {
        now = now + Nanos(2_000);
        decision = bell.on_request(now, 72, 1, Urgency::Patient, 100);
        if let Decision::Ring(_) = decision {
            bell.rang();
        }
    }
    while bell.waiting().is_empty() {
        now = now + Nanos(2_000);
        decision = bell.on_request(now, 72, 1, Urgency::Patient, 100);
    }
    // The stream stops: the timer releases the waiting requests, and the next one is not held.
    let Decision::Hold { until } = decision else {
        panic!("{decision:?}")
    };
    assert_eq!(bell.on_timer(until), Decision::Ring(Reason::Timer));
    bell.rang();
    let next = bell.on_request(until, 72, 1, Urgency::Patient, 100);
    assert_eq!(next, Decision::Ring(Reason::Sparse));
    assert!(DOORBELL_DELAY_MIN <= DOORBELL_HOLD);
}

#[test]
fn reasons_have_their_places_and_names() {
    for (index, reason) in Reason::ALL.into_iter().enumerate() {
        assert_eq!(reason.index(), index);
    }
    let mut names = Reason::ALL.map(Reason::name).to_vec();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Reason::COUNT);
}

#[test]
fn counters_of_several_doorbells_add_up() {
    let (_, mut one) = closed_loop(Mode::Immediate, 4, Nanos(10), 10);
    let (_, other) = closed_loop(Mode::Immediate, 2, Nanos(10), 5);
    one.merge(&other);
    assert_eq!((one.requests, one.bytes), (21, 21 * 72));
    assert_eq!(one.rings[Reason::Disabled.index()], 21);
    assert_eq!(one.sizes.caravans(), 21);
}
