//! One value of a table.

use base::printable;
use serde::{Serialize, Serializer};
use std::cmp::{Ordering, Reverse};
use std::fmt;

/// One value, with what it takes to print and to sort it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell {
    /// Nothing is known, or nothing happened.
    Unknown,
    /// A name. Made by [`Cell::text`].
    Text(String),
    /// A number of something.
    Count(u64),
    /// Bytes.
    Bytes(u64),
    /// Nanoseconds.
    Nanos(u64),
    /// More nanoseconds than so many.
    Above(u64),
    /// Hundredths of a whole.
    Percent(u64),
}

impl Cell {
    /// Creates a text that no terminal takes for a command, whatever its origin.
    #[must_use]
    pub fn text(text: &str) -> Self {
        Self::Text(printable(text).into_owned())
    }

    /// The sum, where both are of a kind that adds up.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Count(a), Self::Count(b)) => Self::Count(a.saturating_add(*b)),
            (Self::Bytes(a), Self::Bytes(b)) => Self::Bytes(a.saturating_add(*b)),
            _ => Self::Unknown,
        }
    }

    /// Names stand on the left of their column, numbers on the right.
    #[must_use]
    pub fn is_text(&self) -> bool {
        matches!(self, Self::Text(_))
    }

    /// The order in which people look for things: names rising, numbers falling, what is unknown
    /// last.
    #[must_use]
    pub fn order(&self, other: &Self) -> Ordering {
        let key = |cell: &Self| match cell {
            Self::Text(text) => (0, Reverse((0, 0)), text.clone()),
            Self::Above(n) => (1, Reverse((*n, 1)), String::new()),
            Self::Count(n) | Self::Bytes(n) | Self::Nanos(n) | Self::Percent(n) => {
                (1, Reverse((*n, 0)), String::new())
            }
            Self::Unknown => (2, Reverse((0, 0)), String::new()),
        };
        key(self).cmp(&key(other))
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("-"),
            Self::Text(text) => f.write_str(text),
            Self::Count(n) if *n < 100_000 => write!(f, "{n}"),
            Self::Count(n) => scaled(f, *n, 1000, &["", "K", "M", "G", "T", "P", "E"]),
            Self::Bytes(n) => scaled(f, *n, 1024, &["B", "K", "M", "G", "T", "P", "E"]),
            Self::Nanos(n) => span(f, *n),
            Self::Above(n) => {
                f.write_str(">")?;
                span(f, *n)
            }
            Self::Percent(n) => write!(f, "{n}%"),
        }
    }
}

/// The value in the largest unit of which there is one, rounded down, with a tenth below ten.
fn scaled(f: &mut fmt::Formatter<'_>, value: u64, step: u64, units: &[&str]) -> fmt::Result {
    let (mut unit, mut one) = (0, 1u64);
    while value / one >= step && unit + 1 < units.len() {
        one *= step;
        unit += 1;
    }
    let whole = value / one;
    if one > 1 && whole < 10 {
        let tenths = value % one / (one / 10);
        write!(f, "{whole}.{}{}", tenths.min(9), units[unit])
    } else {
        write!(f, "{whole}{}", units[unit])
    }
}

fn span(f: &mut fmt::Formatter<'_>, ns: u64) -> fmt::Result {
    if ns < 1_000_000_000 {
        scaled(f, ns, 1000, &["ns", "us", "ms"])
    } else {
        scaled(f, ns / 1_000_000, 1000, &["ms", "s", "ks", "Ms", "Gs"])
    }
}

/// A number in its unit, a text, or null.
impl Serialize for Cell {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Unknown | Self::Above(_) => serializer.serialize_none(),
            Self::Text(text) => serializer.serialize_str(text),
            Self::Count(n) | Self::Bytes(n) | Self::Nanos(n) | Self::Percent(n) => {
                serializer.serialize_u64(*n)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_the_digits_that_matter() {
        for (cell, text) in [
            (Cell::Unknown, "-"),
            (Cell::Count(99_999), "99999"),
            (Cell::Count(100_000), "100K"),
            (Cell::Count(9_960_000), "9.9M"),
            (Cell::Count(u64::MAX), "18E"),
            (Cell::Bytes(0), "0B"),
            (Cell::Bytes(1023), "1023B"),
            (Cell::Bytes(1536), "1.5K"),
            (Cell::Bytes(2047), "1.9K"),
            (Cell::Bytes(u64::MAX), "15E"),
            (Cell::Nanos(999), "999ns"),
            (Cell::Nanos(1_500), "1.5us"),
            (Cell::Nanos(250_000), "250us"),
            (Cell::Nanos(2_000_000_000), "2.0s"),
            (Cell::Above(1_000_000), ">1.0ms"),
            (Cell::Percent(87), "87%"),
        ] {
            assert_eq!(cell.to_string(), text);
        }
    }

    #[test]
    fn a_name_commands_no_terminal() {
        let cell = Cell::text("nqn\u{1b}[2J\n\u{9b}x");
        assert_eq!(cell.to_string(), r"nqn\u{1b}[2J\n\u{9b}x");
    }

    #[test]
    fn names_rise_numbers_fall_and_the_unknown_is_last() {
        let mut cells = [
            Cell::Unknown,
            Cell::Count(1),
            Cell::Above(5),
            Cell::text("b"),
            Cell::Nanos(5),
            Cell::text("a"),
        ];
        cells.sort_by(Cell::order);
        let shown = cells.map(|cell| cell.to_string());
        assert_eq!(shown, ["a", "b", ">5ns", "5ns", "1", "-"]);
    }
}
