//! Claims: expected properties of a figure, each a quotient with a bound that can fail.

use super::cell::Cell;
use super::sample::Metric;
use anyhow::{Context as _, Result, ensure};
use load::RunSummary;
use serde::{Serialize, Serializer};
use std::fmt;

/// Bound of a quotient.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// At least this value.
    AtLeast(f64),
    /// At most this value.
    AtMost(f64),
    /// From the first to the second.
    Between(f64, f64),
}

impl Eq for Bound {}

impl Bound {
    /// Returns true if `quotient` is within the bound.
    #[must_use]
    pub fn holds(self, quotient: f64) -> bool {
        match self {
            Self::AtLeast(bound) => quotient >= bound,
            Self::AtMost(bound) => quotient <= bound,
            Self::Between(least, most) => least <= quotient && quotient <= most,
        }
    }

    /// Returns the distance of a quotient from its bound, as a factor; larger is further within.
    fn margin(self, quotient: f64) -> f64 {
        match self {
            Self::AtLeast(bound) => quotient / bound,
            Self::AtMost(bound) => bound / quotient,
            Self::Between(least, most) => (quotient / least).min(most / quotient),
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::AtLeast(bound) => format!("≥ {bound}"),
            Self::AtMost(bound) => format!("≤ {bound}"),
            Self::Between(least, most) => format!("{least} to {most}"),
        };
        f.pad(&text)
    }
}

impl Serialize for Bound {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// One number of a figure divided by another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// Dividend of the quotient.
    pub of: Cell,
    /// Divisor of the quotient.
    pub to: Divisor,
}

/// Divisor of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub enum Divisor {
    /// Another number of the figure.
    Cell(Cell),
    /// A constant, for statements of the paper about a share of a known quantity.
    Fixed {
        /// Its meaning.
        name: &'static str,
        /// The number, in the metric's unit; positive.
        value: f64,
    },
}

impl Eq for Divisor {}

impl Divisor {
    /// The whole of which a metric in percent is a part.
    pub(super) const WHOLE: Self = Self::Fixed {
        name: "100 %",
        value: 100.0,
    };
}

impl From<Cell> for Divisor {
    fn from(cell: Cell) -> Self {
        Self::Cell(cell)
    }
}

/// A property that a figure should show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Its name within the figure.
    pub name: &'static str,
    /// The paper's statement, with the paper's numbers.
    pub says: &'static str,
    /// The number that is compared.
    pub metric: Metric,
    /// The compared cells; each quotient must be within the bound, and the worst one is reported.
    pub comparisons: Vec<Comparison>,
    /// Bound of each quotient.
    pub bound: Bound,
}

/// Verdict on a claim.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// The claim's name.
    pub name: &'static str,
    /// The paper's statement.
    pub says: &'static str,
    /// The number that was compared.
    pub metric: &'static str,
    /// The compared cells; of several pairs, the decisive one.
    pub compared: String,
    /// The dividend.
    pub of: RunSummary,
    /// The divisor.
    pub to: RunSummary,
    /// The dividend divided by the divisor, per repetition.
    pub quotient: RunSummary,
    /// Bound of the median of the quotients.
    pub bound: Bound,
    /// The median is within the bound.
    pub holds: bool,
}

impl Claim {
    /// Judges the claim by `numbers`, which returns the values of all repetitions of a cell.
    ///
    /// # Errors
    /// A cell that was not run, or without a meaningful value.
    pub fn judge(&self, numbers: impl Fn(&Cell, Metric) -> Option<Vec<f64>>) -> Result<Verdict> {
        let judged = self.comparisons.iter().map(|Comparison { of, to }| {
            let metric = self.metric.key();
            let runs = |cell: &Cell| {
                numbers(cell, self.metric)
                    .with_context(|| format!("{}: no {metric} of {cell} was measured", self.name))
            };
            let dividends = runs(of)?;
            let divisors = match to {
                Divisor::Cell(cell) => runs(cell)?,
                Divisor::Fixed { value, .. } => vec![*value; dividends.len()],
            };
            ensure!(
                divisors.iter().all(|&number| number > 0.0),
                "{}: {metric} of {to} was 0, so there is no ratio",
                self.name
            );
            self.compare(&dividends, &divisors, format!("{of} / {to}"))
        });
        let judged = judged.collect::<Result<Vec<_>>>()?.into_iter();
        let margin = |verdict: &Verdict| self.bound.margin(verdict.quotient.median);
        let by_margin = |a: &Verdict, b: &Verdict| margin(a).total_cmp(&margin(b));
        let worst = judged.min_by(by_margin);
        worst.with_context(|| format!("{}: nothing to compare", self.name))
    }

    /// Divides per repetition.
    fn compare(&self, of: &[f64], to: &[f64], compared: String) -> Result<Verdict> {
        let quotients: Vec<_> = of.iter().zip(to).map(|(of, to)| of / to).collect();
        let spread = |runs: &[f64]| RunSummary::of(runs).context("there was no run");
        let quotient = spread(&quotients)?;
        Ok(Verdict {
            name: self.name,
            says: self.says,
            metric: self.metric.key(),
            compared,
            of: spread(of)?,
            to: spread(to)?,
            quotient,
            bound: self.bound,
            holds: self.bound.holds(quotient.median),
        })
    }
}

impl fmt::Display for Divisor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cell(cell) => cell.fmt(f),
            Self::Fixed { name, .. } => f.write_str(name),
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.series)?;
        if self.tick.is_empty() {
            return Ok(());
        }
        write!(f, " at {}", self.tick)
    }
}

/// Formats claims as text, one per line.
#[must_use]
pub(super) fn lines(verdicts: &[Verdict]) -> String {
    use fmt::Write as _;
    let mut text = String::new();
    for verdict in verdicts {
        let RunSummary { median, min, max } = verdict.quotient;
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:6}  {}: {} {} = {} [{}..{}], bound {}\n        {}",
            if verdict.holds { "holds" } else { "FAILS" },
            verdict.name,
            verdict.metric,
            verdict.compared,
            short(median),
            short(min),
            short(max),
            verdict.bound,
            verdict.says,
        );
    }
    text
}

/// Formats a number with three significant digits.
#[must_use]
pub fn short(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude == 0.0 || magnitude >= 99.95 {
        format!("{value:.0}")
    } else if magnitude >= 9.995 {
        format!("{value:.1}")
    } else if magnitude >= 0.0995 {
        format!("{value:.2}")
    } else {
        format!("{value:.4}")
    }
}
