//! Contents of a figure: series over an axis, panels, claims.

pub use super::cell::Cell;
pub(super) use super::cell::cell;
use super::claim::{Bound, Claim, Comparison, Divisor};
use super::sample::Metric;
use super::scenario::{Scenario, System};
use serde::Serialize;
use std::fmt;

/// Extent of a figure's sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// The full sweep.
    Full,
    /// Fewer points of each sweep: for a first impression, not for publication.
    Quick,
}

impl Extent {
    /// The points of a sweep: all of `full`, or only `quick`.
    #[must_use]
    pub fn sweep(self, full: &[u32], quick: &[u32]) -> Vec<u32> {
        match self {
            Self::Full => full.to_vec(),
            Self::Quick => quick.to_vec(),
        }
    }
}

/// A horizontal axis: the varied quantity, and its values in display order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Axis {
    /// The varied quantity.
    pub label: &'static str,
    /// Its unit; empty for counts and names.
    pub unit: &'static str,
    /// The values, as text.
    pub ticks: Vec<String>,
}

impl Axis {
    /// An axis of names or numbers.
    pub fn new<T: ToString>(
        label: &'static str,
        unit: &'static str,
        ticks: impl IntoIterator<Item = T>,
    ) -> Self {
        Self {
            label,
            unit,
            ticks: ticks.into_iter().map(|tick| tick.to_string()).collect(),
        }
    }

    /// Label and unit, as the axis title.
    #[must_use]
    pub fn title(&self) -> String {
        titled(self.label, self.unit)
    }
}

/// "label (unit)", or only the label if there is no unit.
#[must_use]
pub(super) fn titled(label: &str, unit: &str) -> String {
    if unit.is_empty() {
        label.to_owned()
    } else {
        format!("{label} ({unit})")
    }
}

/// Form of a panel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Bars side by side: the ticks are names, or there are few.
    Bars,
    /// Points connected by a line: the ticks are a sweep.
    Lines,
}

/// The scale of a panel's vertical axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Linear, from zero.
    Linear,
    /// Logarithmic, for latencies that differ by orders of magnitude.
    Log,
}

/// One diagram of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Panel {
    /// The metric.
    pub metric: Metric,
    /// Form.
    pub style: Style,
    /// Scale of the vertical axis.
    pub scale: Scale,
}

impl Panel {
    /// Bars; latencies on a logarithmic scale.
    #[must_use]
    pub const fn bars(metric: Metric) -> Self {
        Self {
            metric,
            style: Style::Bars,
            scale: Self::scale_of(metric),
        }
    }

    /// Lines; latencies on a logarithmic scale.
    #[must_use]
    pub const fn lines(metric: Metric) -> Self {
        Self {
            style: Style::Lines,
            ..Self::bars(metric)
        }
    }

    /// The same on a logarithmic scale.
    #[must_use]
    pub const fn logarithmic(self) -> Self {
        Self {
            scale: Scale::Log,
            ..self
        }
    }

    const fn scale_of(metric: Metric) -> Scale {
        match metric {
            Metric::Latency(..) => Scale::Log,
            _ => Scale::Linear,
        }
    }
}

/// A scenario to run, and the cell of its numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// Place.
    pub cell: Cell,
    /// Scenario.
    pub scenario: Scenario,
}

/// Adds claims to a plan, one or two lines each: a name, the paper's statement, and the quotient
/// with its bound. Either side of the quotient is a cell, `(series, tick)`, or with `at` a series,
/// which is compared at each of the following ticks.
macro_rules! claims {
    ($plan:expr; $($name:literal $says:literal:
        $metric:expr, $of:tt / $to:tt $sign:tt $bound:expr $(, at $ticks:expr)?;)+) => {$(
        $plan.claim_pairs(
            $name,
            $says,
            $metric,
            $crate::figure::plan::claims!(@pairs $of / $to $(, $ticks)?),
            $crate::figure::plan::claims!(@bound $sign $bound),
        );
    )+};
    (@pairs $of:tt / $to:tt) => {
        [($crate::figure::plan::claims!(@cell $of), $crate::figure::plan::claims!(@cell $to))]
    };
    (@pairs $of:tt / $to:tt, $ticks:expr) => {
        $crate::figure::plan::at_each(
            $crate::figure::plan::claims!(@cell $of),
            $crate::figure::plan::claims!(@cell $to),
            $ticks,
        )
    };
    (@cell ($series:expr, $tick:expr)) => { $crate::figure::cell::cell($series, $tick) };
    (@cell ($of:expr)) => { $of };
    (@cell $of:expr) => { $of };
    (@bound >= $least:expr) => { $crate::figure::claim::Bound::AtLeast($least) };
    (@bound <= $most:expr) => { $crate::figure::claim::Bound::AtMost($most) };
    (@bound in $range:expr) => {
        $crate::figure::claim::Bound::Between(*$range.start(), *$range.end())
    };
}
pub(in crate::figure) use claims;

/// Pairs of the cells of two series at each of `ticks`.
pub(super) fn at_each<T: ToString>(
    of: &'static str,
    to: &'static str,
    ticks: impl IntoIterator<Item = T>,
) -> impl Iterator<Item = (Cell, Cell)> {
    let pair = move |tick: T| (cell(of, tick.to_string()), cell(to, tick));
    ticks.into_iter().map(pair)
}

/// The contents of a figure: its points, panels and claims.
///
/// Points run in the order given here, again in each repetition; compared points should be
/// adjacent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The horizontal axis of all panels.
    pub x: Axis,
    /// The series' names in the order of the legend.
    pub series: Vec<&'static str>,
    /// Points to run.
    pub points: Vec<Point>,
    /// Panels.
    pub panels: Vec<Panel>,
    /// Claims.
    pub claims: Vec<Claim>,
}

impl Plan {
    /// Returns the ticks from `least` on.
    pub(super) fn ticks_from(&self, least: f64) -> Vec<String> {
        self.ticks_within(least, f64::INFINITY)
    }

    /// Returns the ticks up to `most`.
    pub(super) fn ticks_up_to(&self, most: f64) -> Vec<String> {
        self.ticks_within(f64::NEG_INFINITY, most)
    }

    fn ticks_within(&self, least: f64, most: f64) -> Vec<String> {
        let within = |tick: &&String| {
            tick.parse()
                .is_ok_and(|tick: f64| least <= tick && tick <= most)
        };
        self.x.ticks.iter().filter(within).cloned().collect()
    }

    /// An empty figure over an axis.
    #[must_use]
    pub const fn over(x: Axis) -> Self {
        Self {
            x,
            series: Vec::new(),
            points: Vec::new(),
            panels: Vec::new(),
            claims: Vec::new(),
        }
    }

    /// Adds every system at each value; compared scenarios are adjacent.
    #[must_use]
    pub fn sweep<T: fmt::Display + Copy>(
        label: &'static str,
        unit: &'static str,
        values: &[T],
        systems: &[System],
        scenario: impl Fn(System, T) -> Scenario,
    ) -> Self {
        let mut plan = Self::over(Axis::new(label, unit, values));
        for &value in values {
            for &system in systems {
                plan.run(system.name, value, scenario(system, value));
            }
        }
        plan
    }

    /// Adds a point, and its series if it is new.
    pub fn run(&mut self, series: &'static str, tick: impl ToString, scenario: Scenario) {
        if !self.series.contains(&series) {
            self.series.push(series);
        }
        self.points.push(Point {
            cell: cell(series, tick),
            scenario,
        });
    }

    /// Adds panels.
    #[must_use]
    pub fn showing(mut self, panels: impl IntoIterator<Item = Panel>) -> Self {
        self.panels.extend(panels);
        self
    }

    /// Adds the claim that the first cell of each pair, divided by the second, is within the bound.
    pub fn claim_pairs(
        &mut self,
        name: &'static str,
        says: &'static str,
        metric: Metric,
        pairs: impl IntoIterator<Item = (Cell, impl Into<Divisor>)>,
        bound: Bound,
    ) {
        let comparisons = pairs
            .into_iter()
            .map(|(of, to)| Comparison { of, to: to.into() });
        self.claims.push(Claim {
            name,
            says,
            metric,
            comparisons: comparisons.collect(),
            bound,
        });
    }

    /// Removes a series, and all claims about it.
    pub fn leave_out(&mut self, series: &str) {
        self.series.retain(|name| *name != series);
        self.points.retain(|point| point.cell.series != series);
        let about = |cell: &Cell| cell.series == series;
        self.claims.retain(|claim| {
            let mut pairs = claim.comparisons.iter();
            !pairs.any(|Comparison { of, to }| {
                about(of) || matches!(to, Divisor::Cell(cell) if about(cell))
            })
        });
    }

    /// Returns the cells of all points, in the order in which they run.
    #[must_use]
    pub fn cells(&self) -> Vec<Cell> {
        self.points.iter().map(|point| point.cell.clone()).collect()
    }

    /// Returns the index of a cell's point.
    #[must_use]
    pub fn position(&self, cell: &Cell) -> Option<usize> {
        self.points.iter().position(|point| point.cell == *cell)
    }

    /// Returns the shown or claimed metrics, once each, in that order.
    #[must_use]
    pub fn metrics(&self) -> Vec<Metric> {
        let shown = self.panels.iter().map(|panel| panel.metric);
        let claimed = self.claims.iter().map(|claim| claim.metric);
        let mut metrics = Vec::new();
        for metric in shown.chain(claimed) {
            if !metrics.contains(&metric) {
                metrics.push(metric);
            }
        }
        metrics
    }
}
