//! Tables: columns, and rows of cells.

use super::cell::Cell;

/// The text between two columns.
pub const GAP: &str = "  ";

/// Rows of the same columns.
#[derive(Clone, Debug)]
pub struct Table {
    /// Its name.
    pub name: &'static str,
    /// The text in place of no rows.
    pub empty: &'static str,
    /// The columns.
    pub columns: &'static [Column],
    /// So many columns say what a row is about; they do not scroll.
    pub fixed: usize,
    /// The rows.
    pub rows: Vec<Row>,
}

/// A column for scripts, and for people.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// With the unit.
    pub key: &'static str,
    /// For people.
    pub title: &'static str,
}

/// One row.
#[derive(Clone, Debug)]
pub struct Row {
    /// Rows of a group stay together, in the groups' order.
    pub group: usize,
    /// The row is about its whole group, and stays before the rest of it.
    pub is_head: bool,
    /// A cell for each column.
    pub cells: Vec<Cell>,
}

impl Row {
    /// Creates a row that is a group with all others.
    pub fn plain(cells: impl Into<Vec<Cell>>) -> Self {
        Self {
            group: 0,
            is_head: false,
            cells: cells.into(),
        }
    }
}

impl Table {
    /// Of every column, in characters, its title included.
    #[must_use]
    pub fn widths(&self) -> Vec<usize> {
        let columns = self.columns.iter().enumerate();
        columns
            .map(|(index, column)| {
                let cells = self.rows.iter().map(|row| row.cells[index].to_string());
                let widest = cells.map(|cell| cell.chars().count()).max();
                widest.unwrap_or(0).max(column.title.chars().count())
            })
            .collect()
    }

    /// The column has names.
    #[must_use]
    pub fn is_text(&self, column: usize) -> bool {
        self.rows.iter().any(|row| row.cells[column].is_text())
    }

    /// The title of a column, where its cells stand.
    #[must_use]
    pub fn title(&self, column: usize, width: usize) -> String {
        let title = self.columns[column].title;
        if self.is_text(column) {
            format!("{title:<width$}")
        } else {
            format!("{title:>width$}")
        }
    }
}

/// A cell as wide as its column.
#[must_use]
pub fn padded(cell: &Cell, width: usize) -> String {
    let text = cell.to_string();
    if cell.is_text() {
        format!("{text:<width$}")
    } else {
        format!("{text:>width$}")
    }
}

/// Returns a sum that stays in range, as another program chose the numbers.
pub(super) fn sum(counters: impl IntoIterator<Item = u64>) -> u64 {
    counters.into_iter().fold(0, u64::saturating_add)
}

/// Declares the columns of a table, each with its key, its title and its cell of a row, and the
/// function that returns all cells of a row.
macro_rules! columns {
    ($columns:ident, $cells:ident($row:ident: $type:ty): $($key:literal $title:literal => $cell:expr,)+) => {
        const $columns: &[Column] = &[$(Column { key: $key, title: $title }),+];

        fn $cells($row: &$type) -> Vec<Cell> {
            vec![$($cell),+]
        }
    };
}

pub(super) use columns;
