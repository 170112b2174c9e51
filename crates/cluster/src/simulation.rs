//! `placement simulate`: placement under arrivals, growth and ends, compared with a lower bound and
//! with other algorithms.

mod bound;
mod rivals;
mod workload;

use crate::args::SimulateArgs;
use anyhow::Result;
use base::{Latencies, Nanos};
use qos::placement::{Cluster, NodeId, Volume};
use serde::Serialize;
use std::fmt;
use std::time::Instant;
use workload::Event;

/// Number of rebalancings, at equal intervals; the last one is at the end.
const REBALANCES: usize = 20;

/// Maximum moves of a rebalancing, in thousandths of the volumes.
const MOVES_PERMILLE: usize = 10;

/// The result of an algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Score {
    /// Targets with volumes at the end.
    pub nodes_used: u64,
    /// `nodes_used` by the lower bound.
    pub ratio: f64,
    /// Arrivals and growths that were refused.
    pub refused: u64,
}

/// Time of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct DecisionTime {
    pub p50_us: f64,
    pub p99_us: f64,
    pub max_us: f64,
}

/// The result of a simulation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    pub seed: u64,
    pub nodes: u32,
    /// Volumes at the end.
    pub volumes: u64,
    pub events: u64,
    #[serde(flatten)]
    pub placement: Score,
    /// Lower bound of the targets for the volumes at the end.
    pub bound: u64,
    /// Lower bound with a class of latency per target.
    pub bound_separate: u64,
    /// Moves of volumes by rebalancing, and by growth.
    pub moves: u64,
    pub decision: DecisionTime,
    pub first_fit_decreasing: Score,
    pub spread: Score,
}

/// Runs the simulation.
///
/// # Errors
/// If the targets cannot be created.
pub fn run(args: &SimulateArgs) -> Result<Report> {
    let count = args.events.unwrap_or(args.volumes);
    let events = workload::events(args.volumes, count, args.seed);
    let mut ours = Run::new(args.nodes)?;
    let every = (events.len() / REBALANCES).max(1);
    for (at, event) in (1..).zip(&events) {
        ours.apply(event, |cluster, volume| cluster.place(volume).ok());
        if at % every == 0 {
            ours.rebalance();
        }
    }
    let mut spread = Run::new(args.nodes)?;
    for event in &events {
        spread.apply(event, |cluster, volume| {
            Some(vec![rivals::most_free(cluster, volume)?])
        });
    }
    // The bound, and first-fit decreasing, are of the volumes that are there.
    let volumes = ours.cluster.volumes().iter();
    let volumes: Vec<_> = volumes.map(|(&id, placed)| (id, placed.volume)).collect();
    let device = workload::device();
    let all = volumes.iter().map(|(_, volume)| volume);
    let bounds = bound::bounds(all, &workload::node(0), &device);
    let mut anew = Run::new(args.nodes)?;
    anew.refused = rivals::first_fit_decreasing(&mut anew.cluster, &volumes);
    let decision = |quantile| ours.decisions.quantile_us(quantile);
    Ok(Report {
        seed: args.seed,
        nodes: args.nodes,
        volumes: volumes.len() as u64,
        events: count.into(),
        placement: ours.score(bounds.any),
        bound: bounds.any,
        bound_separate: bounds.separate,
        moves: ours.moves,
        decision: DecisionTime {
            p50_us: decision(0.5),
            p99_us: decision(0.99),
            max_us: ours.decisions.max_us(),
        },
        first_fit_decreasing: anew.score(bounds.any),
        spread: spread.score(bounds.any),
    })
}

/// An algorithm's cluster during the simulation.
struct Run {
    cluster: Cluster,
    refused: u64,
    moves: u64,
    decisions: Latencies,
}

impl Run {
    fn new(nodes: u32) -> Result<Self> {
        let mut cluster = Cluster::new(vec![workload::device()]);
        for at in 0..nodes {
            cluster.add_node(workload::node(at))?;
        }
        Ok(Self {
            cluster,
            refused: 0,
            moves: 0,
            decisions: Latencies::new(),
        })
    }

    /// Applies an event; `place` decides. Events of volumes that were refused have no effect.
    fn apply(
        &mut self,
        event: &Event,
        place: impl FnOnce(&Cluster, &Volume) -> Option<Vec<NodeId>>,
    ) {
        let begin = Instant::now();
        match *event {
            Event::Arrival(id, volume) => {
                let nodes = place(&self.cluster, &volume);
                self.decided(begin);
                let nodes = nodes.filter(|nodes| {
                    let placed = self.cluster.insert(id, volume, nodes.clone());
                    placed.is_ok()
                });
                self.refused += u64::from(nodes.is_none());
            }
            Event::Growth(id, volume) => {
                let before = self.cluster.volumes().get(&id);
                let Some(before) = before.map(|placed| placed.nodes.clone()) else {
                    return;
                };
                let after = self.cluster.change(id, volume);
                self.decided(begin);
                match after {
                    Ok(after) => self.moves += u64::from(after != before),
                    Err(_) => self.refused += 1,
                }
            }
            Event::End(id) => {
                self.cluster.remove(id);
            }
        }
    }

    fn decided(&mut self, begin: Instant) {
        let spent = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.decisions.record(Nanos(spent));
    }

    fn rebalance(&mut self) {
        let moves_max = self.cluster.volumes().len() * MOVES_PERMILLE / 1000;
        for step in self.cluster.rebalance(moves_max) {
            for it in &step.moves {
                let moved = self.cluster.move_leg(it.volume, it.from, it.to);
                debug_assert_eq!(moved, Ok(()));
                self.moves += u64::from(moved.is_ok());
            }
        }
    }

    fn score(&self, bound: u64) -> Score {
        let used = self
            .cluster
            .nodes()
            .filter(|(_, loaded)| !loaded.is_empty());
        let nodes_used = used.count() as u64;
        Score {
            nodes_used,
            ratio: nodes_used as f64 / bound.max(1) as f64,
            refused: self.refused,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} volumes on {} targets after {} events (seed {})",
            self.volumes, self.nodes, self.events, self.seed
        )?;
        writeln!(
            f,
            "lower bound: {} targets; {} if classes of latency never share a target",
            self.bound, self.bound_separate
        )?;
        writeln!(f)?;
        writeln!(
            f,
            "{:<22} {:>8} {:>9} {:>8}",
            "", "targets", "by bound", "refused"
        )?;
        for (name, score) in [
            ("switchyard", &self.placement),
            ("first-fit decreasing", &self.first_fit_decreasing),
            ("spread by free space", &self.spread),
        ] {
            let Score {
                nodes_used,
                ratio,
                refused,
            } = score;
            writeln!(f, "{name:<22} {nodes_used:>8} {ratio:>9.3} {refused:>8}")?;
        }
        let DecisionTime {
            p50_us,
            p99_us,
            max_us,
        } = self.decision;
        writeln!(f)?;
        write!(
            f,
            "{} moves; time of a decision: p50 {p50_us:.0} µs, p99 {p99_us:.0} µs, max {max_us:.0} µs",
            self.moves
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn simulate(volumes: u32, nodes: u32, events: u32, seed: u64) -> Report {
        let args = SimulateArgs {
            volumes,
            nodes,
            events: Some(events),
            seed,
        };
        let mut report = run(&args).expect("targets");
        report.decision = DecisionTime {
            p50_us: 0.0,
            p99_us: 0.0,
            max_us: 0.0,
        };
        report
    }

    #[test]
    fn placement_is_near_the_bound_and_ahead_of_its_rivals() {
        let report = simulate(20_000, 200, 20_000, 1);
        let used = report.placement.nodes_used;
        assert_eq!(report.placement.refused, 0, "{report}");
        assert!((1.0..=1.05).contains(&report.placement.ratio), "{report}");
        assert!(used < report.first_fit_decreasing.nodes_used, "{report}");
        assert!(used < report.spread.nodes_used, "{report}");
        assert!(report.bound <= report.bound_separate, "{report}");
    }

    #[test]
    fn a_seed_gives_the_same_report() {
        let report = simulate(1_000, 12, 1_000, 3);
        assert_eq!(report, simulate(1_000, 12, 1_000, 3));
        assert_ne!(report, simulate(1_000, 12, 1_000, 4));
    }

    #[test]
    fn a_cluster_that_is_too_small_refuses() {
        let report = simulate(1_000, 2, 0, 1);
        assert_eq!(report.placement.nodes_used, 2);
        assert_eq!(report.placement.refused + report.volumes, 1_000);
        let report = simulate(1, 1, 0, 1);
        assert_eq!((report.placement.nodes_used, report.bound), (1, 1));
    }
}
