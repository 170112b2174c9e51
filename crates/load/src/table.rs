//! Tables as text.

use std::iter;

/// Aligns the columns of a table under its header; the first `left` columns to the left.
#[must_use]
pub fn aligned(
    header: &[&str],
    rows: impl IntoIterator<Item = Vec<String>>,
    left: usize,
) -> String {
    let header = header.iter().map(|&title| title.to_owned()).collect();
    let rows: Vec<Vec<String>> = iter::once(header).chain(rows).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        for (column, cell) in row.iter().enumerate() {
            let width = widths[column];
            let padded = if column < left {
                format!("{cell:<width$}  ")
            } else {
                format!("{cell:>width$}  ")
            };
            text.push_str(&padded);
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}
