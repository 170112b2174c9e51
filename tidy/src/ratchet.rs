//! Ratchets: numbers that are not at their goal yet, and may only fall.
//!
//! Each row is a crate's folder; a crate without a row is at the goal. A change that lowers a
//! number lowers it here, too; no change raises one.

/// The numbers of a crate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ratchet {
    /// Files of the largest import circle that is not justified.
    pub circle_files: usize,
    /// Functions that are too long.
    pub long_functions: usize,
    /// Files that are too long.
    pub long_files: usize,
    /// Comment lines that speak of people.
    pub people: usize,
    /// Doc comments that open with a question word.
    pub questions: usize,
    /// Lines with a forbidden word.
    pub words: usize,
}

/// A row of the table, with its numbers in the order of [`Ratchet`]'s fields.
const fn row(
    circle_files: usize,
    long_functions: usize,
    long_files: usize,
    people: usize,
    questions: usize,
    words: usize,
) -> Ratchet {
    Ratchet {
        circle_files,
        long_functions,
        long_files,
        people,
        questions,
        words,
    }
}

/// The rows, in the order of the crates' folders.
pub const RATCHETS: &[(&str, Ratchet)] = &[("crates/reactor", row(0, 0, 1, 0, 0, 0))];

/// Returns the numbers of a crate by its folder.
#[must_use]
pub fn of(krate: &str) -> Ratchet {
    let row = RATCHETS.iter().find(|(folder, _)| *folder == krate);
    row.map_or(Ratchet::default(), |(_, ratchet)| *ratchet)
}

/// Compares a count with its ratchet: the reason of a failure, or `None`.
///
/// A count above its ratchet is a step back; one below it is to be kept.
#[must_use]
pub fn judge(krate: &str, rule: &str, found: usize, allowed: usize) -> Option<String> {
    match found.cmp(&allowed) {
        std::cmp::Ordering::Greater => Some(format!(
            "{krate}: {found} {rule}, and the ratchet allows {allowed}: repair what is new"
        )),
        std::cmp::Ordering::Less => Some(format!(
            "{krate}: {found} {rule} only: lower the ratchet from {allowed} to {found} in \
             tidy/src/ratchet.rs"
        )),
        std::cmp::Ordering::Equal => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_neither_rises_nor_stays_above_what_is_found() {
        assert_eq!(judge("crates/x", "long functions", 3, 3), None);
        let worse = judge("crates/x", "long functions", 4, 3).expect("a step back");
        assert!(worse.contains("repair what is new"), "{worse}");
        let better = judge("crates/x", "long functions", 2, 3).expect("to be kept");
        assert!(better.contains("lower the ratchet from 3 to 2"), "{better}");
    }

    #[test]
    fn the_table_is_in_order_and_has_no_empty_row() {
        assert!(RATCHETS.is_sorted_by(|a, b| a.0 < b.0));
        assert!(RATCHETS.iter().all(|(_, row)| *row != Ratchet::default()));
    }
}
