//! Application steering: the core on which a thread runs. `[blk-switch §3.3, Algorithm 2]`
//!
//! Handles persistent load, for which per-request steering is too short-sighted. Every period,
//! threads of `Latency` gather on cores with a small but non-zero `Latency` load; then threads of
//! `Throughput` move to cores with less `Latency` load. One [`ApplicationSteering`] per process and
//! side steers opted-in application threads (host) or connection threads (target). It only decides
//! moves; the caller executes and undoes them. In the paper threads decide independently and
//! several may move to the same core; here one step decides for all, and each move updates its copy
//! of the loads. Invariant: never moves a user-pinned thread, or any thread outside its core set.

use crate::class::{Class, PerClass, Placement};
use crate::cpuset::CoreSet;
use crate::limits::{CORES_MAX, MOVES_PER_STEP_MAX};
use base::units::CoreId;
use base::{Nanos, Time};

#[cfg(test)]
mod tests;

/// A thread that can be steered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SteeredThread {
    /// The caller's identifier of the thread.
    pub id: u64,
    /// Class of most of its requests.
    pub class: Class,
    /// Its current core.
    pub core: CoreId,
    /// Cores on which it may run.
    pub allowed: CoreSet,
    /// The user pinned it to its core: it never moves.
    pub pinned_by_user: bool,
    /// Its share of its core's load in bytes, a moving average like the core's. A thread without
    /// load does not move.
    pub load_bytes: u64,
}

/// A move of a thread to another core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Move {
    /// The thread.
    pub id: u64,
    /// The core that it leaves.
    pub from: CoreId,
    /// The core that it moves to.
    pub to: CoreId,
}

/// The condition for a gathering thread to move to another core. A spreading thread always requires
/// that both `L_c` and `T_c` are less than on its own core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hysteresis {
    /// The paper's condition: `L_c + T_c` is less there. The thread takes its load along, so two
    /// cores with nearly the same load can exchange it for ever.
    Paper,
    /// The paper's condition, and `T_c` must also be less there: a thread moves to avoid
    /// `Throughput` work, not to balance gathering load. (The authors' code has the same aim: it
    /// moves no thread from a core without such work.) From a core with L* or more, a thread also
    /// moves if `L_c + T_c` remains less with its own load added.
    Settled,
}

/// Parameters of application steering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ApplicationSteeringRules {
    /// False: no thread is moved.
    pub enabled: bool,
    /// Interval between steps.
    pub period: Nanos,
    /// L*: a core with this `Latency` load, in bytes, accepts no more gathering threads.
    pub latency_load_max_bytes: u64,
    /// Improvement required for a move.
    pub hysteresis: Hysteresis,
}

/// Counters of application steering.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ApplicationSteeringCounters {
    /// Steps; each steers every class.
    pub steps: u64,
    /// Threads moved, by class.
    pub moved: PerClass<u64>,
    /// Class steps that had more threads to move than the limit of one step.
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
    /// Per class, the index of the thread at which the next step starts: after the last moved one
    /// if a step hit its limit.
    begin: PerClass<usize>,
    view: Vec<View>,
    moves: Vec<Move>,
    counters: ApplicationSteeringCounters,
}

impl ApplicationSteering {
    /// Creates the steering; its first step is due at once.
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

    /// Returns the time of the next step; [`Time::NEVER`] while steering is off.
    #[must_use]
    pub const fn next(&self) -> Time {
        if self.rules.enabled {
            self.next
        } else {
            Time::NEVER
        }
    }

    /// Returns the moves of one step, at most [`MOVES_PER_STEP_MAX`] per class; none before the
    /// step is due.
    ///
    /// `loads` are the average loads of the cores, indexed by core, per class, in bytes: the bytes
    /// outstanding in the core's egresses (on the target: requested by the queues it serves). Cores
    /// beyond the end of `loads`, or beyond [`CORES_MAX`], are ignored.
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

    /// Sets new rules from the next step on.
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

    /// Returns a better core for the thread, or `None`.
    fn better_core(&self, thread: &SteeredThread) -> Option<usize> {
        let home = usize::try_from(thread.core.0).ok()?;
        let here = *self.view.get(home)?;
        match thread.class.properties().placement {
            Placement::Gather => self.gather(thread, home, here),
            Placement::Spread => self.spread(thread, here),
        }
    }

    /// Returns the other cores on which a thread may run.
    fn allowed(&self, thread: &SteeredThread) -> impl Iterator<Item = (usize, View)> {
        let numbered = (0_u32..)
            .map(CoreId)
            .zip(self.view.iter().copied().enumerate());
        numbered
            .filter(|(core, _)| *core != thread.core && thread.allowed.contains(*core))
            .map(|(_, place)| place)
    }

    /// Algorithm 2, L-apps: of the cores with `0 < L_c < L*`, the one with the least `L_c + T_c`.
    /// The home core is a candidate if it qualifies, and wins a tie; among other cores the lowest
    /// number wins.
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

    /// Algorithm 2, T-apps: of the cores with `L_c` below home's, the one with the least `T_c`, if
    /// that is also below home's. The lowest number wins a tie.
    fn spread(&self, thread: &SteeredThread, here: View) -> Option<usize> {
        self.allowed(thread)
            .filter(|(_, view)| view.gathering < here.gathering)
            .min_by_key(|(core, view)| (view.spreading, *core))
            .filter(|(_, view)| view.spreading < here.spreading)
            .map(|(core, _)| core)
    }

    /// Records a move and updates the loads.
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
