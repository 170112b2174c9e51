//! Request steering: selects the core that sends a request. `[blk-switch §3.2, Algorithm 1]`
//!
//! For bursts; application steering handles persistent load. While the local core has fewer
//! outstanding `Throughput` bytes than a threshold, its requests stay; above it, each may use
//! another core's egress to the same target. One [`RequestSteering`] per core and target set,
//! called for every request, on the host only. Invariant: it never moves a request of a class that
//! is not steered, or to a core above the threshold.
//!
//! Loads of other cores are read while they change, once per decision; the result is always a core
//! with an egress, or the local one.
//!
//! Rejected: sampling two random cores before filtering (it could miss the only free core). The
//! scan reads one load per core, only for requests of an overloaded core.

use crate::class::Class;
use base::Prng;

#[cfg(test)]
mod tests;

/// The loads of the egresses to one target, core by core: `0..cores()`. Numbers may be stale; they
/// are asked for once a decision.
pub trait Loads {
    /// Returns the number of cores.
    fn cores(&self) -> usize;

    /// Bytes outstanding in the core's `Throughput` egress to this target; `None` where it has no
    /// such egress.
    fn throughput_bytes(&self, core: usize) -> Option<u64>;

    /// `Latency` load of the core in bytes. Asked only for [`Preference::NearlyFull`].
    fn latency_bytes(&self, core: usize) -> u64;

    /// Requests that wait in the caravan of the core's `Throughput` egress. Asked only for
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

/// The candidates from which the two are picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Preference {
    /// All of them: the paper's algorithm.
    None,
    /// Those without `Latency` load and with a caravan of at least so many requests, if there are
    /// any: one more there disturbs no request and leaves almost at once. (An addition in the
    /// authors' code.)
    NearlyFull {
        /// Requests that make a caravan nearly full.
        requests: u32,
    },
}

/// Parameters of request steering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestSteeringRules {
    /// False to steer no request.
    pub enabled: bool,
    /// Bytes outstanding from which a core is overloaded.
    pub threshold_bytes: u64,
    /// The preference among candidates.
    pub preference: Preference,
}

/// Counters of requests of the classes that are steered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestSteeringCounters {
    /// Stayed: the local core was not overloaded, or was itself the better choice.
    pub stayed: u64,
    /// Left by another core.
    pub steered: u64,
    /// Steered requests that left by a core that was preferred.
    pub preferred: u64,
    /// Stayed though the local core was overloaded: so was every other.
    pub nowhere: u64,
}

/// One core's request steering.
#[derive(Clone, Debug)]
pub struct RequestSteering {
    rules: RequestSteeringRules,
    prng: Prng,
    /// Cores that are looked at.
    cores: usize,
    /// Candidates of the decision at hand, the preferred ones first.
    candidates: Vec<Candidate>,
    counters: RequestSteeringCounters,
}

#[derive(Clone, Copy, Debug)]
struct Candidate {
    core: usize,
    bytes: u64,
}

impl RequestSteering {
    /// Steering among at most `cores` cores; what lies beyond is not looked at. Cores that want
    /// different choices take different seeds.
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
    /// core that has an egress, or `local` in any case that is not clear.
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

    /// Other rules, from the next request on.
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

    /// The local core is overloaded.
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

    /// Collects the candidates, in the order of the cores but the preferred ones first, and
    /// returns how many those are.
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

/// Picks two different candidates at random and returns the less loaded one; the only one, if there
/// is only one.
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

/// A number in `0..count`.
fn pick(prng: &mut Prng, count: usize) -> usize {
    usize::try_from(prng.below(count as u64)).expect("below a usize")
}
