//! Thread scaling compared with a naive form of the rule, with threads whose queues move as it
//! decides.

use super::*;
use crate::limits::TARGET_THREADS_MAX;
use base::Nanos;
use proptest::prelude::*;

const START: Time = Time(5_000_000_000);

fn range(min: usize, max: usize) -> ThreadRange {
    ThreadRange { min, max }
}

fn busy(permille: u32) -> ThreadLoad {
    ThreadLoad {
        busy_permille: permille,
        smallest_permille: 100,
        late: false,
    }
}

/// Checks the same threads repeatedly, until a step is returned or `looks` checks are done.
fn look(
    scaling: &mut ThreadScaling,
    now: &mut Time,
    threads: &[ThreadLoad],
    looks: u32,
) -> Option<ScalingStep> {
    (0..looks).find_map(|_| {
        *now = *now + THREAD_SCALING_PERIOD;
        scaling.step(*now, threads)
    })
}

/// The rule recomputed from the whole history.
#[derive(Debug)]
struct Model {
    range: ThreadRange,
    active: usize,
    /// Loads at each check since the last step, oldest first.
    seen: Vec<Vec<ThreadLoad>>,
    looked_at: Option<Time>,
    done_at: Option<Time>,
    resized_at: Option<Time>,
    shared_at: Option<Time>,
}

impl Model {
    fn new(range: ThreadRange) -> Self {
        Self {
            range,
            active: range.min,
            seen: Vec::new(),
            looked_at: None,
            done_at: None,
            resized_at: None,
            shared_at: None,
        }
    }

    fn is_over(since: Option<Time>, span: Nanos, now: Time) -> bool {
        since.is_none_or(|since| now >= since + span)
    }

    /// The busiest of the fit threads.
    fn busiest(threads: &[ThreadLoad], fit: impl Fn(&ThreadLoad) -> bool) -> Option<usize> {
        let mut best: Option<usize> = None;
        for (number, thread) in threads.iter().enumerate() {
            let busier = |other: usize| thread.busy_permille > threads[other].busy_permille;
            if fit(thread) && best.is_none_or(busier) {
                best = Some(number);
            }
        }
        best
    }

    fn pressed(thread: &ThreadLoad) -> bool {
        thread.smallest_permille <= 500
            && (thread.busy_permille >= 800 || (thread.late && thread.busy_permille >= 500))
    }

    fn least(threads: &[ThreadLoad]) -> usize {
        let least = threads.iter().map(|t| t.busy_permille).min();
        let is_it = |t: &ThreadLoad| Some(t.busy_permille) == least;
        threads.iter().position(is_it).unwrap_or(0)
    }

    /// The part of a thread's load that balances it with another, if possible.
    fn part(from: &ThreadLoad, to: &ThreadLoad) -> Option<u32> {
        let gap = u64::from(from.busy_permille.checked_sub(to.busy_permille)?);
        let whole = gap * 1000 / u64::from(from.busy_permille.max(1)) / 2;
        let room = 2 * whole >= u64::from(from.smallest_permille) + 4;
        (gap >= 300 && room).then(|| u32::try_from(whole).expect("a part"))
    }

    fn sum(threads: &[ThreadLoad]) -> u64 {
        threads.iter().map(|t| u64::from(t.busy_permille)).sum()
    }

    fn one_too_many(&self, threads: &[ThreadLoad]) -> bool {
        let Some((last, others)) = threads.split_last() else {
            return false;
        };
        if threads.len() <= self.range.min || threads.iter().any(|t| t.late) {
            return false;
        }
        let into = others[Self::least(others)].busy_permille;
        let fits = into == 0 || into + last.busy_permille < 800;
        fits && Self::sum(threads) <= 500 * others.len() as u64
    }

    fn grow(&mut self, of: usize) -> ScalingStep {
        self.active += 1;
        let thread = self.active - 1;
        let part = LoadShare { of, permille: 500 };
        ScalingStep::Grow { thread, part }
    }

    fn shrink(&mut self, threads: &[ThreadLoad]) -> ScalingStep {
        self.active -= 1;
        let thread = self.active;
        let into = Self::least(&threads[..thread]);
        ScalingStep::Shrink { thread, into }
    }

    fn decide(&mut self, now: Time, threads: &[ThreadLoad]) -> Option<ScalingStep> {
        if self.active > self.range.max {
            return Some(self.shrink(threads));
        }
        if self.active < self.range.min {
            return Some(self.grow(Self::busiest(threads, |_| true).unwrap_or(0)));
        }
        if self.range.min == self.range.max
            || !Self::is_over(self.looked_at, THREAD_SCALING_PERIOD, now)
        {
            return None;
        }
        self.looked_at = Some(now);
        self.seen.push(threads.to_vec());
        if !Self::is_over(self.done_at, THREAD_SETTLE, now) {
            return None;
        }
        let last = |count: u32| {
            let begin = self.seen.len().checked_sub(count as usize);
            begin.map(|begin| &self.seen[begin..])
        };
        let any_pressed = |threads: &Vec<ThreadLoad>| threads.iter().any(Self::pressed);
        if last(THREAD_PRESSED_STEPS).is_some_and(|seen| seen.iter().all(any_pressed)) {
            let thread = Self::least(threads);
            let part = |from: &ThreadLoad| Self::part(from, &threads[thread]);
            let can_share = |from: &ThreadLoad| Self::pressed(from) && part(from).is_some();
            if let Some(of) = Self::busiest(threads, can_share) {
                if !Self::is_over(self.shared_at, THREAD_SHARE_DWELL, now) {
                    return self.too_many(now, threads);
                }
                self.shared_at = Some(now);
                let permille = part(&threads[of]).expect("it can share");
                let part = LoadShare { of, permille };
                return Some(ScalingStep::Balance { thread, part });
            }
            let crowded = Self::sum(threads) > 500 * self.active as u64;
            let of = Self::busiest(threads, Self::pressed).expect("one is pressed");
            if crowded && self.active < self.range.max {
                return Some(self.grow(of));
            }
        }
        self.too_many(now, threads)
    }

    fn too_many(&mut self, now: Time, threads: &[ThreadLoad]) -> Option<ScalingStep> {
        let begin = self.seen.len().checked_sub(THREAD_CALM_STEPS as usize)?;
        let calm = self.seen[begin..]
            .iter()
            .all(|threads| self.one_too_many(threads));
        if calm && Self::is_over(self.resized_at, THREAD_DWELL, now) {
            return Some(self.shrink(threads));
        }
        None
    }

    fn step(&mut self, now: Time, threads: &[ThreadLoad]) -> Option<ScalingStep> {
        let active = self.active;
        let mut view = threads.to_vec();
        view.resize(active, ThreadLoad::IDLE);
        let step = self.decide(now, &view);
        if step.is_some() {
            self.seen.clear();
            self.done_at = Some(now);
        }
        if self.active != active {
            self.resized_at = Some(now);
        }
        step
    }
}

fn threads() -> impl Strategy<Value = Vec<ThreadLoad>> {
    let load = prop_oneof![Just(0), Just(500), Just(800), Just(1000), 0..1001u32];
    let smallest = prop_oneof![Just(1000u32), 0..1001u32];
    let thread = (load, smallest, prop::bool::weighted(0.1));
    let thread = thread.prop_map(|(busy_permille, smallest_permille, late)| ThreadLoad {
        busy_permille,
        smallest_permille,
        late,
    });
    prop::collection::vec(thread, 0..6)
}

fn ranges() -> impl Strategy<Value = ThreadRange> {
    (1..6usize).prop_flat_map(|max| (1..=max).prop_map(move |min| range(min, max)))
}

proptest! {
    /// Loads stay for some checks, so that steps result; ranges change now and then.
    #[test]
    fn it_does_what_the_rule_says(
        first in ranges(),
        changes in prop::collection::vec(
            (threads(), 1..80u32, 0..30_000_000u64, prop::option::weighted(0.1, ranges())), 1..40),
    ) {
        let (mut scaling, mut model) = (ThreadScaling::new(first), Model::new(first));
        let mut now = START;
        for (threads, looks, span, range) in changes {
            if let Some(range) = range {
                scaling.set_range(range);
                model.range = range;
                model.seen.clear();
            }
            for _ in 0..looks {
                now = now + Nanos(span);
                let due = scaling.next() <= now;
                let step = scaling.step(now, &threads);
                prop_assert_eq!(step, model.step(now, &threads));
                prop_assert_eq!(scaling.active(), model.active);
                prop_assert!(due || step.is_none());
            }
            while scaling.next() == Time::ZERO {
                prop_assert_eq!(scaling.step(now, &threads), model.step(now, &threads));
            }
            let ThreadRange { min, max } = scaling.range();
            prop_assert!((min..=max).contains(&scaling.active()));
        }
    }
}

/// Threads, and queues with constant load, without other load.
#[derive(Debug)]
struct Machine {
    /// The queues of each thread, by load in millionths of a thread.
    threads: Vec<Vec<u64>>,
}

impl Machine {
    fn seen(&self) -> Vec<ThreadLoad> {
        let thread = |queues: &Vec<u64>| {
            let total: u64 = queues.iter().sum();
            let smallest = queues.iter().filter(|&&queue| queue > 0).min();
            let part = |smallest: &u64| smallest * 1000 / total;
            let narrow = |number: u64| u32::try_from(number).expect("a part");
            ThreadLoad {
                busy_permille: narrow(total.min(1_000_000) / 1000),
                smallest_permille: narrow(smallest.map_or(1000, part)),
                late: false,
            }
        };
        self.threads.iter().map(thread).collect()
    }

    fn give(&mut self, part: LoadShare, to: usize) {
        let queues = self.threads[part.of].iter();
        let mut queues: Vec<_> = queues.map(|&load| ((), load)).collect();
        let chosen = choose(&mut queues, part.permille);
        let (go, stay) = queues.split_at(chosen);
        self.threads[part.of] = stay.iter().map(|queue| queue.1).collect();
        self.threads[to].extend(go.iter().map(|queue| queue.1));
    }

    fn apply(&mut self, step: ScalingStep) {
        match step {
            ScalingStep::Grow { thread, part } | ScalingStep::Balance { thread, part } => {
                self.give(part, thread)
            }
            ScalingStep::Shrink { thread, into } => {
                let all = std::mem::take(&mut self.threads[thread]);
                self.threads[into].extend(all);
            }
        }
    }

    /// Returns the number of steps in this time, and how many of them change the number of threads.
    fn run(&mut self, scaling: &mut ThreadScaling, from: Time, span: Nanos) -> (u32, u32) {
        let (mut now, mut steps, mut resized) = (from, 0, 0);
        while now < from + span {
            now = now + THREAD_SCALING_PERIOD;
            while let Some(step) = scaling.step(now, &self.seen()) {
                steps += 1;
                resized += u32::from(!matches!(step, ScalingStep::Balance { .. }));
                self.apply(step);
            }
        }
        (steps, resized)
    }
}

proptest! {
    /// A constant load moves the number of threads in at most one direction, and then no more steps
    /// follow.
    #[test]
    fn a_load_that_stays_is_left_in_peace(
        queues in prop::collection::vec(0..400_000u64, 0..24),
        begin in 1..8usize,
    ) {
        let mut scaling = ThreadScaling::new(range(begin, begin));
        scaling.set_range(range(1, 8));
        let mut machine = Machine { threads: vec![Vec::new(); 8] };
        for (index, &queue) in queues.iter().enumerate() {
            machine.threads[index % begin].push(queue);
        }
        let (_, resized) = machine.run(&mut scaling, START, Nanos::from_secs(60));
        let there = scaling.active().abs_diff(begin);
        prop_assert_eq!(resized as usize, there, "to and fro");
        let later = START + Nanos::from_secs(60);
        prop_assert_eq!(machine.run(&mut scaling, later, Nanos::from_secs(60)), (0, 0));
        let busiest = machine.seen().iter().map(|thread| thread.busy_permille).max();
        let crowded = busiest.is_some_and(|busy| busy >= 1000);
        prop_assert!(!crowded || scaling.active() == 8, "{machine:?}");
        let total: u64 = queues.iter().sum();
        prop_assert!(total > 0 || scaling.active() == 1);
        let kept: usize = machine.threads.iter().map(Vec::len).sum();
        prop_assert_eq!(kept, queues.len());
        prop_assert!(machine.threads[scaling.active()..].iter().all(Vec::is_empty));
    }

    /// Comparison with all possible choices: the chosen load is at most the requested one and at
    /// least half of the best fit, or else a single queue that relieves the busier thread.
    #[test]
    fn what_goes_is_about_what_was_asked_for(
        loads in prop::collection::vec(0..50u64, 0..10),
        permille in 0..600u32,
    ) {
        let mut queues: Vec<_> = loads.iter().copied().enumerate().collect();
        let chosen = choose(&mut queues, permille);
        let total: u64 = loads.iter().sum();
        let wanted = total * u64::from(permille.min(500)) / 1000;
        let gone: u64 = queues[..chosen].iter().map(|queue| queue.1).sum();
        let subsets = (0..1u32 << loads.len()).map(|set| -> u64 {
            let has = |index: usize| set >> index & 1 == 1;
            (0..loads.len()).filter(|&i| has(i)).map(|i| loads[i]).sum()
        });
        let best = subsets.filter(|&sum| sum <= wanted).max().unwrap_or(0);
        if best > 0 {
            prop_assert!(gone <= wanted && 2 * gone >= best, "{gone} of {best}");
        } else if chosen > 0 {
            prop_assert_eq!(chosen, 1);
            prop_assert!(gone < 2 * wanted && gone < total);
            prop_assert!(loads.iter().all(|&load| load == 0 || load >= gone));
        } else {
            prop_assert!(loads.iter().all(|&load| load == 0 || load >= 2 * wanted));
        }
        queues.sort_unstable();
        let before: Vec<_> = loads.iter().copied().enumerate().collect();
        prop_assert_eq!(queues, before);
    }
}

#[test]
fn pressure_grows_it_within_two_looks_and_calm_shrinks_it_after_the_dwell() {
    let mut scaling = ThreadScaling::new(range(1, 4));
    let mut now = START;
    assert_eq!(scaling.deadline(), Time::NEVER);
    let part = LoadShare {
        of: 0,
        permille: 500,
    };
    let grow = Some(ScalingStep::Grow { thread: 1, part });
    assert_eq!(look(&mut scaling, &mut now, &[busy(950)], 2), grow);
    let grown_at = now;
    assert!(
        scaling.deadline() < Time::NEVER,
        "it looks although nothing happens"
    );
    let shrink = Some(ScalingStep::Shrink { thread: 1, into: 0 });
    assert_eq!(look(&mut scaling, &mut now, &[], 1000), shrink);
    assert!(now >= grown_at + THREAD_DWELL);
    assert!(now <= grown_at + THREAD_DWELL + THREAD_SCALING_PERIOD);
    assert_eq!((scaling.active(), scaling.deadline()), (1, Time::NEVER));
    assert_eq!(look(&mut scaling, &mut now, &[], 1000), None);
    assert_eq!(
        (scaling.counters().grown, scaling.counters().shrunk),
        (1, 1)
    );
}

#[test]
fn a_burst_changes_nothing_and_one_queue_is_never_divided() {
    let mut scaling = ThreadScaling::new(range(1, 2));
    let mut now = START;
    for _ in 0..100 {
        assert_eq!(look(&mut scaling, &mut now, &[busy(1000)], 1), None);
        assert_eq!(look(&mut scaling, &mut now, &[busy(700)], 1), None);
    }
    let alone = ThreadLoad {
        smallest_permille: 1000,
        ..busy(1000)
    };
    assert_eq!(look(&mut scaling, &mut now, &[alone], 1000), None);
}

#[test]
fn late_promises_count_only_where_the_thread_is_busy() {
    let late = |permille| ThreadLoad {
        late: true,
        ..busy(permille)
    };
    let mut now = START;
    let mut scaling = ThreadScaling::new(range(1, 2));
    assert_eq!(
        look(&mut scaling, &mut now, &[late(400)], 1000),
        None,
        "the device is slow"
    );
    assert!(look(&mut scaling, &mut now, &[late(600)], 2).is_some());
    assert_eq!(
        look(&mut scaling, &mut now, &[late(100)], 1000),
        None,
        "no time to shrink"
    );
}

#[test]
fn threads_in_use_share_before_there_is_one_more() {
    let mut scaling = ThreadScaling::new(range(2, 4));
    let mut now = START;
    let part = LoadShare {
        of: 1,
        permille: 350,
    };
    let balance = Some(ScalingStep::Balance { thread: 0, part });
    assert_eq!(
        look(&mut scaling, &mut now, &[busy(300), busy(1000)], 2),
        balance
    );
    let step = look(&mut scaling, &mut now, &[busy(850), busy(800)], 100);
    let part = LoadShare {
        of: 0,
        permille: 500,
    };
    assert_eq!(step, Some(ScalingStep::Grow { thread: 2, part }));
}

#[test]
fn other_bounds_count_at_once() {
    let mut scaling = ThreadScaling::new(range(1, 1));
    assert_eq!((scaling.next(), scaling.is_elastic()), (Time::NEVER, false));
    scaling.set_range(range(3, 4));
    assert_eq!(scaling.deadline(), Time::ZERO);
    for thread in [1, 2] {
        let step = scaling.step(START, &[]);
        assert!(
            matches!(step, Some(ScalingStep::Grow { thread: t, .. }) if t == thread),
            "{step:?}"
        );
    }
    assert_eq!(scaling.step(START, &[]), None);
    scaling.set_range(range(1, 1));
    let threads = [busy(900), busy(100), busy(0)];
    let steps = [(); 3].map(|()| scaling.step(START, &threads));
    let shrink = |thread, into| Some(ScalingStep::Shrink { thread, into });
    assert_eq!(steps, [shrink(2, 1), shrink(1, 0), None]);
}

#[test]
fn bounds_fit_the_cores() {
    let bounds = |min, max| ThreadBounds { min, max };
    let all = bounds(0, TARGET_THREADS_MAX);
    assert_eq!(
        (all.on(4, true), all.on(4, false)),
        (range(4, 4), range(1, 4))
    );
    assert_eq!(bounds(0, 2).on(4, true), range(2, 2));
    assert_eq!(bounds(3, 8).on(2, false), range(2, 2));
    assert_eq!(bounds(2, 3).on(8, true), range(2, 3));
}

/// Assigns queues of these classes to `threads` threads; returns the number of each class per
/// thread.
fn dealt(threads: usize, classes: impl IntoIterator<Item = Class>) -> Vec<PerClass<usize>> {
    let mut queues = vec![PerClass::of([0; Class::COUNT]); threads];
    for class in classes {
        let thread = deal(class, queues.iter().copied()).expect("there is a thread");
        queues[thread][class] += 1;
    }
    queues
}

#[test]
fn classes_are_apart_where_threads_have_as_many_queues_of_each() {
    // Connections of a host: a queue of each class for each of its cores.
    let pairs = |cores| std::iter::repeat_n(Class::ALL, cores).flatten();
    for threads in [2, 4, 8] {
        // Whatever was connected and disconnected before.
        let queues = dealt(threads, pairs(threads));
        for queues in queues {
            let counts: Vec<_> = queues.iter().map(|(_, &count)| count).collect();
            assert!(counts == [0, 2] || counts == [2, 0], "{counts:?}");
        }
    }
    // A single class uses all threads.
    let queues = dealt(4, std::iter::repeat_n(Class::Throughput, 8));
    assert!(queues.iter().all(|q| q[Class::Throughput] == 2));
    assert_eq!(deal(Class::Latency, []), None);
}

proptest! {
    #[test]
    fn threads_have_as_many_queues_as_each_other(
        threads in 1usize..9,
        latency in proptest::collection::vec(any::<bool>(), 0..200),
    ) {
        let classes = latency.into_iter().map(|latency| {
            if latency { Class::Latency } else { Class::Throughput }
        });
        let queues = dealt(threads, classes);
        let counts = queues.iter().map(|q| q.iter().map(|(_, &count)| count).sum::<usize>());
        let (most, fewest) = (counts.clone().max().unwrap(), counts.min().unwrap());
        prop_assert!(most - fewest <= 1, "{queues:?}");
    }
}
