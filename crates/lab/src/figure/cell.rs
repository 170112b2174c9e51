//! Places in a figure.

/// A place in a figure: a series at a tick.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// The series' name.
    pub series: &'static str,
    /// The tick.
    pub tick: String,
}

/// The place of `series` at `tick`.
pub(super) fn cell(series: &'static str, tick: impl ToString) -> Cell {
    Cell {
        series,
        tick: tick.to_string(),
    }
}
