//! Request steering: the core through which a request leaves. `[blk-switch §3.2, Algorithm 1]`
//!
//! Handles bursts, not persistent load: below a threshold of outstanding `Throughput` bytes on the
//! local core, its requests stay; above it, each may leave through another core's egress to the
//! same target. One [`RequestSteering`] per core and target set, owned by the core; called by the
//! ingress for every request, on the host only (a congested target shows in the host's loads).
//! Other cores change their loads concurrently; each is read once per decision. All cores are
//! scanned before two candidates are drawn, because two random cores could miss the only free one.
//! Invariant: never moves a class that is not steered, or chooses a core that was over the
//! threshold when read.

use crate::class::Class;
use base::Prng;

#[cfg(test)]
mod tests;

/// The loads of the egresses to one target, for cores `0..cores()`. Loads may be stale; each is
/// read once per decision.
pub trait Loads {
    /// Returns the number of cores.
    fn cores(&self) -> usize;

    /// Bytes outstanding in the core's `Throughput` egress to this target; `None` if it has none.
    fn throughput_bytes(&self, core: usize) -> Option<u64>;

    /// `Latency` load of the core in bytes. Called only for [`Preference::NearlyFull`].
    fn latency_bytes(&self, core: usize) -> u64;

    /// Requests waiting in the caravan of the core's `Throughput` egress. Called only for
    /// [`Preference::NearlyFull`].
    fn waiting_requests(&self, core: usize) -> u32;
}

/// The load of one core's egress to a target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EgressLoad {
    /// Bytes outstanding in the `Throughput` egress.
    pub throughput_bytes: u64,
    /// `Latency` load of the core in bytes.
    pub latency_bytes: u64,
    /// Requests waiting in the `Throughput` egress's caravan.
    pub waiting_requests: u32,
}

impl Loads for [Option<EgressLoad>] {
    fn cores(&self) -> usize {
        self.len()
    }

    fn throughput_bytes(&self, core: usize) -> Option<u64> {
        self[core].map(|egress| egress.throughput_bytes)
    }

    fn latency_bytes(&self, core: usize) -> u64 {
        self[core].map_or(0, |egress| egress.latency_bytes)
    }

    fn waiting_requests(&self, core: usize) -> u32 {
        self[core].map_or(0, |egress| egress.waiting_requests)
    }
}

/// Which candidates the two are drawn from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Preference {
    /// All candidates: the paper's algorithm.
    None,
    /// Those without `Latency` load whose caravan has at least this number of requests, if any: an
    /// additional request disturbs none and leaves almost at once. (An addition in the authors'
    /// code.)
    NearlyFull {
        /// Requests that make a caravan nearly full.
        requests: u32,
    },
}

/// Parameters of request steering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestSteeringRules {
    /// False: no request is steered.
    pub enabled: bool,
    /// Outstanding bytes from which a core is overloaded.
    pub threshold_bytes: u64,
    /// The preference among candidates.
    pub preference: Preference,
}

/// Counters of requests of steered classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestSteeringCounters {
    /// Stayed: the local core was not overloaded, or was itself the better choice.
    pub stayed: u64,
    /// Left through another core.
    pub steered: u64,
    /// Steered requests that left through a preferred core.
    pub preferred: u64,
    /// Stayed on an overloaded local core because every other core was overloaded, too.
    pub nowhere: u64,
}

/// One core's request steering.
#[derive(Clone, Debug)]
pub struct RequestSteering {
    rules: RequestSteeringRules,
    prng: Prng,
    /// Number of cores considered.
    cores: usize,
    /// Candidates of the current decision, preferred ones first.
    candidates: Vec<Candidate>,
    counters: RequestSteeringCounters,
}

#[derive(Clone, Copy, Debug)]
struct Candidate {
    core: usize,
    bytes: u64,
}

impl RequestSteering {
    /// Creates steering among the first `cores` cores. Cores that should choose differently use
    /// different seeds.
    #[must_use]
    pub fn new(rules: RequestSteeringRules, cores: usize, seed: u64) -> Self {
        Self {
            rules,
            prng: Prng::from_seed(seed),
            cores,
            candidates: Vec::with_capacity(cores),
            counters: RequestSteeringCounters::default(),
        }
    }

    /// Returns the core through which a request of `class`, submitted on core `local`, leaves: a
    /// core that has an egress, or `local` in all doubtful cases.
    #[inline]
    pub fn steer<L: Loads + ?Sized>(&mut self, class: Class, local: usize, loads: &L) -> usize {
        if !(self.rules.enabled && class.properties().steered) {
            return local;
        }
        match loads.throughput_bytes(local) {
            Some(bytes) if bytes < self.rules.threshold_bytes => {
                self.counters.stayed += 1;
                local
            }
            _ => self.elsewhere(local, loads),
        }
    }

    /// Sets new rules from the next request on.
    pub fn reconfigure(&mut self, rules: RequestSteeringRules) {
        self.rules = rules;
    }

    /// Returns its parameters.
    #[must_use]
    pub const fn rules(&self) -> &RequestSteeringRules {
        &self.rules
    }

    /// Returns its counters.
    #[must_use]
    pub const fn counters(&self) -> &RequestSteeringCounters {
        &self.counters
    }

    /// Chooses a core when the local one is overloaded.
    #[inline(never)]
    fn elsewhere<L: Loads + ?Sized>(&mut self, local: usize, loads: &L) -> usize {
        let preferred = self.gather(loads);
        let pool = if preferred > 0 {
            &self.candidates[..preferred]
        } else {
            &self.candidates[..]
        };
        let Some(chosen) = better_of_two(&mut self.prng, pool) else {
            self.counters.nowhere += 1;
            return local;
        };
        if chosen == local {
            self.counters.stayed += 1;
        } else {
            self.counters.steered += 1;
            self.counters.preferred += u64::from(preferred > 0);
        }
        chosen
    }

    /// Collects the candidates in core order, preferred ones first; returns the number of preferred
    /// ones.
    fn gather<L: Loads + ?Sized>(&mut self, loads: &L) -> usize {
        self.candidates.clear();
        let mut preferred = 0;
        for core in 0..loads.cores().min(self.cores) {
            let Some(bytes) = loads.throughput_bytes(core) else {
                continue;
            };
            if bytes > self.rules.threshold_bytes {
                continue;
            }
            self.candidates.push(Candidate { core, bytes });
            if let Preference::NearlyFull { requests } = self.rules.preference
                && loads.latency_bytes(core) == 0
                && loads.waiting_requests(core) >= requests
            {
                let last = self.candidates.len() - 1;
                self.candidates.swap(preferred, last);
                preferred += 1;
            }
        }
        preferred
    }
}

/// Draws two different candidates at random and returns the less loaded one; a single candidate is
/// returned as is.
fn better_of_two(prng: &mut Prng, candidates: &[Candidate]) -> Option<usize> {
    let count = candidates.len();
    if count < 2 {
        return candidates.first().map(|only| only.core);
    }
    let first = pick(prng, count);
    let one = candidates[first];
    let second = pick(prng, count - 1);
    let other = candidates[if second >= first { second + 1 } else { second }];
    Some(if other.bytes < one.bytes {
        other.core
    } else {
        one.core
    })
}

/// Returns a random number in `0..count`.
fn pick(prng: &mut Prng, count: usize) -> usize {
    usize::try_from(prng.below(count as u64)).expect("below a usize")
}
