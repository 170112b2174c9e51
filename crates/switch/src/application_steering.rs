//! Application steering: selects the core of each thread. `[blk-switch §3.3, Algorithm 2]`
//!
//! For persistent load; request steering handles bursts. In every period, `Latency` threads gather
//! on cores with a small `Latency` load, then `Throughput` threads move to cores with less
//! `Latency` load. One [`ApplicationSteering`] per process and side: for application threads that
//! opted in on the host, and for threads that serve connections on the target. It only decides the
//! moves; the caller executes them. Invariant: it never moves a thread pinned by its user, or to a
//! core outside the thread's set.
//!
//! # Stale numbers
//!
//! In the paper, every thread decides for itself from averages of the previous period, so several
//! threads can move to the same core; later periods repair that. Here one step decides for all
//! threads, and updates its copy of the loads after each move.

use crate::class::{Class, PerClass, Placement};
use crate::cpuset::CoreSet;
use crate::limits::{CORES_MAX, MOVES_PER_STEP_MAX};
use base::units::CoreId;
use base::{Nanos, Time};

#[cfg(test)]
mod tests;

/// A thread that may be steered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SteeredThread {
    /// The caller's name for it.
    pub id: u64,
    /// Class of most of its requests.
    pub class: Class,
    /// Core on which it runs now.
    pub core: CoreId,
    /// Cores on which it may run.
    pub allowed: CoreSet,
    /// Its user chose its core: it never moves.
    pub pinned_by_user: bool,
    /// Its own part of its core's load in bytes (a moving average like the core's). A thread
    /// without load stays where it is.
    pub load_bytes: u64,
}

/// A thread is to run elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Move {
    /// The thread.
    pub id: u64,
    /// Core on which it ran.
    pub from: CoreId,
    /// Core on which it is to run.
    pub to: CoreId,
}

/// The condition under which a gathering thread finds another core good enough to go there. (A
/// spreading one goes where `L_c` *and* `T_c` are less than at home, in either case.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hysteresis {
    /// The paper's: when `L_c + T_c` is less there. It takes its load along, so two cores with
    /// nearly the same load can throw it back and forth for ever.
    Paper,
    /// The paper's, and `T_c` must be less there as well: a thread moves to get away from
    /// `Throughput` work, not to even out what gathers. (The authors' code moves no thread from a
    /// core without such work, for the same end.) From a core with L* or more it also moves where
    /// `L_c + T_c` stays less with its own load on top.
    Settled,
}

/// Parameters of application steering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ApplicationSteeringRules {
    /// False to move no thread.
    pub enabled: bool,
    /// Time between two steps.
    pub period: Nanos,
    /// L*: with this much `Latency` load in bytes a core takes no more threads that gather.
    pub latency_load_max_bytes: u64,
    /// Improvement that a move must bring.
    pub hysteresis: Hysteresis,
}

/// Counters of application steering.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ApplicationSteeringCounters {
    /// Steps. Each steers every class.
    pub steps: u64,
    /// Threads moved, by class.
    pub moved: PerClass<u64>,
    /// Classes, summed over steps, that had more threads to move than a step may.
    pub cut_short: u64,
}

/// `L_c` and `T_c` of one core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct View {
    /// Load in bytes of the classes that gather.
    gathering: u64,
    /// Load in bytes of the classes that spread.
    spreading: u64,
}

impl View {
    fn of(loads: &PerClass<u64>) -> Self {
        let mut view = Self::default();
        for (class, &bytes) in loads.iter() {
            view.arrive(class, bytes);
        }
        view
    }

    const fn sum(self) -> u64 {
        self.gathering.saturating_add(self.spreading)
    }

    const fn part(&mut self, class: Class) -> &mut u64 {
        match class.properties().placement {
            Placement::Gather => &mut self.gathering,
            Placement::Spread => &mut self.spreading,
        }
    }

    fn arrive(&mut self, class: Class, bytes: u64) {
        let part = self.part(class);
        *part = part.saturating_add(bytes);
    }

    fn leave(&mut self, class: Class, bytes: u64) {
        let part = self.part(class);
        *part = part.saturating_sub(bytes);
    }
}

/// The application steering of one process.
#[derive(Clone, Debug)]
pub struct ApplicationSteering {
    rules: ApplicationSteeringRules,
    next: Time,
    /// Start of the class's next step among the threads: after the last one that moved, where a
    /// step was cut short.
    begin: PerClass<usize>,
    view: Vec<View>,
    moves: Vec<Move>,
    counters: ApplicationSteeringCounters,
}

impl ApplicationSteering {
    /// Steering that has not looked yet: its first step is due at once.
    #[must_use]
    pub fn new(rules: ApplicationSteeringRules) -> Self {
        Self {
            rules,
            next: Time::ZERO,
            begin: PerClass::default(),
            view: Vec::with_capacity(CORES_MAX),
            moves: Vec::with_capacity(MOVES_PER_STEP_MAX * Class::COUNT),
            counters: ApplicationSteeringCounters::default(),
        }
    }

    /// Returns the time at which the next step is due; [`Time::NEVER`] while it is off.
    #[must_use]
    pub const fn next(&self) -> Time {
        if self.rules.enabled {
            self.next
        } else {
            Time::NEVER
        }
    }

    /// The moves of one step, at most [`MOVES_PER_STEP_MAX`] of each class; none before the step is
    /// due.
    ///
    /// `loads` are the average loads of the cores by their number, per class, in bytes: what the
    /// core's egresses have outstanding (on the target: what the queues that it serves request).
    /// Cores beyond its end, or beyond [`CORES_MAX`], are not considered.
    pub fn step(
        &mut self,
        now: Time,
        loads: &[PerClass<u64>],
        threads: &[SteeredThread],
    ) -> &[Move] {
        self.moves.clear();
        if !self.rules.enabled || now < self.next {
            return &[];
        }
        self.next = now + self.rules.period;
        self.counters.steps += 1;
        self.view.clear();
        self.view.extend(loads.iter().take(CORES_MAX).map(View::of));
        for class in Class::ALL {
            self.decide(class, threads);
        }
        &self.moves
    }

    /// Other rules, from the next step on.
    pub fn reconfigure(&mut self, rules: ApplicationSteeringRules) {
        self.rules = rules;
        self.next = Time::ZERO;
    }

    /// Returns its parameters.
    #[must_use]
    pub const fn rules(&self) -> &ApplicationSteeringRules {
        &self.rules
    }

    /// Returns its counters.
    #[must_use]
    pub const fn counters(&self) -> &ApplicationSteeringCounters {
        &self.counters
    }

    fn decide(&mut self, class: Class, threads: &[SteeredThread]) {
        let limit = self.moves.len() + MOVES_PER_STEP_MAX;
        let begin = self.begin[class].min(threads.len());
        let (later, first) = threads.split_at(begin);
        self.begin[class] = 0;
        for (offset, thread) in first.iter().chain(later).enumerate() {
            let steered = thread.class == class && !thread.pinned_by_user && thread.load_bytes > 0;
            let Some(to) = steered.then(|| self.better_core(thread)).flatten() else {
                continue;
            };
            if self.moves.len() == limit {
                self.counters.cut_short += 1;
                self.begin[class] = (begin + offset) % threads.len();
                return;
            }
            self.apply(thread, to);
        }
    }

    /// The core where a thread is better off, if there is one.
    fn better_core(&self, thread: &SteeredThread) -> Option<usize> {
        let home = usize::try_from(thread.core.0).ok()?;
        let here = *self.view.get(home)?;
        match thread.class.properties().placement {
            Placement::Gather => self.gather(thread, home, here),
            Placement::Spread => self.spread(thread, here),
        }
    }

    /// The other cores where a thread may run.
    fn allowed(&self, thread: &SteeredThread) -> impl Iterator<Item = (usize, View)> {
        let numbered = (0_u32..)
            .map(CoreId)
            .zip(self.view.iter().copied().enumerate());
        numbered
            .filter(|(core, _)| *core != thread.core && thread.allowed.contains(*core))
            .map(|(_, place)| place)
    }

    /// Algorithm 2, L-apps: of the cores with `0 < L_c < L*` the one with the least `L_c + T_c`.
    /// Home is one of them if it qualifies, and wins a draw; among others the lowest number does.
    fn gather(&self, thread: &SteeredThread, home: usize, here: View) -> Option<usize> {
        let qualifies =
            |view: View| view.gathering > 0 && view.gathering < self.rules.latency_load_max_bytes;
        let (core, there) = self
            .allowed(thread)
            .filter(|(_, view)| qualifies(*view))
            .min_by_key(|(core, view)| (view.sum(), *core))?;
        debug_assert_ne!(core, home);
        let better = match self.rules.hysteresis {
            Hysteresis::Paper => !qualifies(here) || there.sum() < here.sum(),
            Hysteresis::Settled if there.spreading < here.spreading => there.sum() < here.sum(),
            Hysteresis::Settled => {
                here.gathering >= self.rules.latency_load_max_bytes
                    && there.sum().saturating_add(thread.load_bytes) < here.sum()
            }
        };
        better.then_some(core)
    }

    /// Algorithm 2, T-apps: of the cores with `L_c` below home's the one with the least `T_c`, if
    /// that is below home's, too. The lowest number wins a draw.
    fn spread(&self, thread: &SteeredThread, here: View) -> Option<usize> {
        self.allowed(thread)
            .filter(|(_, view)| view.gathering < here.gathering)
            .min_by_key(|(core, view)| (view.spreading, *core))
            .filter(|(_, view)| view.spreading < here.spreading)
            .map(|(core, _)| core)
    }

    /// Records a move, and what it does to the loads.
    fn apply(&mut self, thread: &SteeredThread, to: usize) {
        let (Ok(from), Ok(number)) = (usize::try_from(thread.core.0), u32::try_from(to)) else {
            return;
        };
        assert!(
            thread.allowed.contains(CoreId(number)),
            "a thread stays in its set"
        );
        assert!(!thread.pinned_by_user, "a pinned thread stays");
        self.view[from].leave(thread.class, thread.load_bytes);
        self.view[to].arrive(thread.class, thread.load_bytes);
        self.moves.push(Move {
            id: thread.id,
            from: thread.core,
            to: CoreId(number),
        });
        self.counters.moved[thread.class] += 1;
    }
}
