//! Cells of a figure.

/// A cell of a figure: a series at a tick.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// The series' name.
    pub series: &'static str,
    /// The tick.
    pub tick: String,
}

/// The cell of `series` at `tick`.
pub(super) fn cell(series: &'static str, tick: impl ToString) -> Cell {
    Cell {
        series,
        tick: tick.to_string(),
    }
}
