//! Problems of a configuration, as its checks gather them.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::ops::RangeInclusive;

use crate::config::problem::{Place, Problem};

/// Gathers problems; each names a place.
#[derive(Default)]
pub(super) struct Findings {
    pub(super) problems: Vec<Problem>,
}

impl Findings {
    pub(super) fn report(
        &mut self,
        place: &Place,
        error: impl Into<String>,
        what_to_do: impl Into<String>,
    ) {
        self.problems.push(Problem::new(place, error, what_to_do));
    }

    pub(super) fn range(&mut self, place: &Place, value: u64, range: &RangeInclusive<u64>) {
        if !range.contains(&value) {
            self.report(
                place,
                format!("{value} is out of range"),
                format!("write a number from {} to {}", range.start(), range.end()),
            );
        }
    }

    pub(super) fn at_most(&mut self, place: &Place, count: usize, limit: usize, what: &str) {
        if count > limit {
            self.report(
                place,
                format!("{count} {what} are too many"),
                format!("keep at most {limit}"),
            );
        }
    }

    /// Reports each item that occurs before.
    pub(super) fn distinct<T: Ord + Display>(&mut self, place: &Place, items: &[T]) {
        let mut seen = BTreeSet::new();
        for (index, item) in items.iter().enumerate() {
            if !seen.insert(item) {
                self.report(
                    &place.index(index),
                    format!("{item} is there twice"),
                    "keep one of the two",
                );
            }
        }
    }
}
