//! The places of a configuration that is read or checked, where problems are reported.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::ops::RangeInclusive;

use super::node::{Node, Value};
use super::problem::{Place, Problem};

/// Gathers the problems of one reading or one check.
#[derive(Debug)]
pub(crate) struct Problems {
    list: RefCell<Vec<Problem>>,
    most: usize,
}

impl Problems {
    /// Keeps the first `most` problems.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            list: RefCell::default(),
            most,
        }
    }

    pub(crate) fn root(&self) -> Spot<'_> {
        Spot {
            place: Place::root(),
            problems: self,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.borrow().is_empty()
    }

    pub(crate) fn into_list(self) -> Vec<Problem> {
        self.list.into_inner()
    }
}

/// A place, with the list that its problems go to.
#[derive(Clone, Debug)]
pub struct Spot<'a> {
    pub(crate) place: Place,
    problems: &'a Problems,
}

impl Spot<'_> {
    /// The place of `key` in the table here.
    pub fn key(&self, key: &str) -> Self {
        let place = self.place.key(key);
        Self { place, ..*self }
    }

    /// The place of item `index` of the array here.
    pub fn index(&self, index: usize) -> Self {
        let place = self.place.index(index);
        Self { place, ..*self }
    }

    /// Reports a problem here, and its remedy.
    pub fn report(&self, error: impl Into<String>, what_to_do: impl Into<String>) {
        let mut list = self.problems.list.borrow_mut();
        if list.len() < self.problems.most {
            list.push(Problem::new(&self.place, error, what_to_do));
        }
    }

    /// Reports a number outside of `range`.
    pub fn range(&self, value: u64, range: &RangeInclusive<u64>) {
        if !range.contains(&value) {
            self.report(
                format!("{value} is out of range"),
                format!("write a number from {} to {}", range.start(), range.end()),
            );
        }
    }

    /// Reports more than `limit` items.
    pub fn at_most(&self, count: usize, limit: usize, what: &str) {
        if count > limit {
            let what_to_do = format!("keep at most {limit}");
            self.report(format!("{count} {what} are too many"), what_to_do);
        }
    }

    /// Reports each item that occurs before.
    pub fn distinct<T: Ord + Display>(&self, items: &[T]) {
        let mut seen = BTreeSet::new();
        for (index, item) in items.iter().enumerate() {
            if !seen.insert(item) {
                let place = self.index(index);
                place.report(format!("{item} is there twice"), "keep one of the two");
            }
        }
    }
}

/// A node that is read, at its place.
#[derive(Clone, Debug)]
pub struct FoundNode<'a> {
    /// The value.
    pub value: &'a Value,
    /// Its place.
    pub place: Spot<'a>,
}

impl<'a> FoundNode<'a> {
    pub(crate) fn new(node: &'a Node, place: Spot<'a>) -> Self {
        let value = &node.value;
        Self { value, place }
    }

    /// Reports that the value is of a wrong type. `None` is returned for the caller to return.
    pub fn wrong_type<T>(&self, expected: &str) -> Option<T> {
        self.misplaced(format!("write {expected}"))
    }

    /// Reports that the value cannot stand here. `None` is returned for the caller to return.
    pub fn misplaced<T>(&self, what_to_do: impl Into<String>) -> Option<T> {
        let found = format!("{} cannot stand here", self.value.describe());
        self.place.report(found, what_to_do);
        None
    }
}
