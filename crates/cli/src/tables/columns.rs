//! Tables with a title above each column, and lists of fields.

use base::printable;
use serde_json::Value;
use std::fmt;

/// A table. Its cells are shown without control characters, because other programs chose them.
#[derive(Debug)]
pub struct Columns {
    rows: Vec<Vec<String>>,
}

impl Columns {
    /// A table with these titles.
    pub fn new(titles: &[&str], rows: Vec<Vec<String>>) -> Self {
        let titles = titles.iter().map(|&title| title.to_owned()).collect();
        let safe = |row: Vec<String>| {
            row.iter()
                .map(|cell| printable(cell).into_owned())
                .collect()
        };
        let rows = rows.into_iter().map(safe);
        Self {
            rows: std::iter::once(titles).chain(rows).collect(),
        }
    }
}

impl fmt::Display for Columns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<_> = (0..self.rows[0].len()).map(width).collect();
        for (number, row) in self.rows.iter().enumerate() {
            if number > 0 {
                f.write_str("\n")?;
            }
            let cells = row.iter().zip(&widths);
            let line: String = cells
                .map(|(cell, width)| format!("{cell:width$}  "))
                .collect();
            f.write_str(line.trim_end())?;
        }
        Ok(())
    }
}

/// The fields of an object, one on each line; those without a value are left out.
#[derive(Debug)]
pub struct Fields<'a>(pub &'a Value);

impl fmt::Display for Fields<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = self.0.as_object().into_iter().flatten();
        let fields = fields.filter(|(_, value)| !value.is_null());
        for (number, (key, value)) in fields.enumerate() {
            let line = if number > 0 { "\n" } else { "" };
            write!(f, "{line}{key}: {}", printable(&text(value)))?;
        }
        Ok(())
    }
}

/// Returns a value as text: words as they are, lists of words with commas.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) if items.iter().all(|item| !item.is_object()) => {
            items.iter().map(text).collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = vec![vec!["long\u{1b}".to_owned(), "1".to_owned()]];
        let table = Columns::new(&["A", "B"], rows);
        assert_eq!(table.to_string(), "A           B\nlong\\u{1b}  1");
    }

    #[test]
    fn fields_are_words_and_lists() {
        let object = json!({ "a": "x", "b": null, "c": ["y", 2], "d": [{ "e": true }] });
        let text = Fields(&object).to_string();
        assert_eq!(text, "a: x\nc: y, 2\nd: [{\"e\":true}]");
    }
}
