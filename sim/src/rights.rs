//! The permissions of a host in a volume over time, as the target's administrator knows them.
//!
//! A change takes time: between its start and end both the old and the new rule are accepted. A
//! request is checked against the rules that did not change between its submission and its answer.

use block::{BlockError, Operation};
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

/// Blocks that a host may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permit {
    /// The blocks.
    pub blocks: Range<usize>,
    /// They may be read.
    pub read: bool,
    /// They may be written.
    pub write: bool,
}

/// The rights of one host in one volume; each clone is the same.
#[derive(Clone, Debug, Default)]
pub struct Rights(Rc<RightsState>);

#[derive(Debug, Default)]
struct RightsState {
    /// Counts starts and ends of changes: odd during a change.
    changes: Cell<u64>,
    /// The host may not use the subsystem.
    banned: Cell<bool>,
    /// Its permissions; `None` for full access.
    permits: RefCell<Option<Vec<Permit>>>,
}

/// The size of a volume; each clone is the same.
#[derive(Clone, Debug)]
pub struct Extent(Rc<Size>);

#[derive(Debug)]
struct Size {
    changes: Cell<u64>,
    blocks: Cell<usize>,
    /// The size was different before, and hosts may still use the old size.
    changed: Cell<bool>,
}

/// Version of the rules at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment(u64, u64);

impl Rights {
    /// Begins a change: requests issued until its end may follow either rule.
    pub fn begin(&self) {
        self.0.changes.update(|changes| changes + 1);
    }

    /// Ends the change.
    pub fn end(&self, banned: bool, permits: Option<Vec<Permit>>) {
        self.0.banned.set(banned);
        *self.0.permits.borrow_mut() = permits;
        self.begin();
    }

    /// Returns the permissions of the host.
    #[must_use]
    pub fn permits(&self) -> Option<Vec<Permit>> {
        self.0.permits.borrow().clone()
    }

    /// Returns true if the host may not use the subsystem.
    #[must_use]
    pub fn is_banned(&self) -> bool {
        self.0.banned.get()
    }

    /// Returns the blocks of `range` that the host may not use.
    fn foreign(&self, operation: Operation, range: &Range<usize>) -> Vec<usize> {
        let permits = self.0.permits.borrow();
        let Some(permits) = &*permits else {
            return Vec::new();
        };
        let allows = |block| {
            permits.iter().any(|permit| {
                let kind = if operation.is_write() {
                    permit.write
                } else {
                    permit.read
                };
                kind && permit.blocks.contains(&block)
            })
        };
        range.clone().filter(|&block| !allows(block)).collect()
    }
}

impl Extent {
    /// A volume of `blocks` blocks.
    #[must_use]
    pub fn new(blocks: usize) -> Self {
        Self(Rc::new(Size {
            changes: Cell::new(0),
            blocks: Cell::new(blocks),
            changed: Cell::new(false),
        }))
    }

    /// Returns the current size in blocks.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.0.blocks.get()
    }

    /// Begins a change of the size.
    pub fn begin(&self) {
        self.0.changes.update(|changes| changes + 1);
        self.0.changed.set(true);
    }

    /// Ends the change of the size, which is now `blocks`.
    pub fn end(&self, blocks: usize) {
        self.0.blocks.set(blocks);
        self.0.changes.update(|changes| changes + 1);
    }
}

/// Rules by which a host's requests to a volume are checked.
#[derive(Clone, Debug)]
pub struct Law {
    /// The permissions of the host.
    pub rights: Rights,
    /// The size of the volume.
    pub extent: Extent,
}

impl Law {
    /// Returns the current version of the rules.
    #[must_use]
    pub fn moment(&self) -> Moment {
        Moment(self.rights.0.changes.get(), self.extent.0.changes.get())
    }

    /// Returns the blocks of a refused write that it cannot have changed.
    ///
    /// # Panics
    /// If the rules do not allow this answer to a request issued at `asked`.
    pub fn judge(
        &self,
        operation: Operation,
        range: &Range<usize>,
        asked: Moment,
        answer: Result<(), BlockError>,
    ) -> Vec<usize> {
        let Moment(rights, extent) = asked;
        let now = self.moment();
        let sized = operation != Operation::Flush && extent.is_multiple_of(2) && now.1 == extent;
        if sized && range.end > self.extent.blocks() {
            assert!(
                answer.is_err(),
                "{operation:?} of blocks {range:?} was done, and there are {}",
                self.extent.blocks()
            );
        }
        if answer == Err(BlockError::OutOfRange) {
            assert!(
                self.extent.0.changed.get(),
                "{operation:?} of blocks {range:?} is out of range, and there are {}",
                self.extent.blocks()
            );
        }
        if !rights.is_multiple_of(2) || now.0 != rights || operation == Operation::Flush {
            return Vec::new();
        }
        assert!(
            answer.is_err() || !self.rights.is_banned(),
            "{operation:?} of blocks {range:?} was done for a host that may not connect"
        );
        let foreign = self.rights.foreign(operation, range);
        if answer.is_ok() {
            assert!(
                foreign.is_empty(),
                "{operation:?} of blocks {range:?} was done, and the host may not use {foreign:?}"
            );
        } else if answer == Err(BlockError::Denied) {
            assert!(
                !foreign.is_empty(),
                "{operation:?} of blocks {range:?} was denied, and the host may use all of them"
            );
        }
        foreign
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn law() -> Law {
        Law {
            rights: Rights::default(),
            extent: Extent::new(8),
        }
    }

    fn breaks(law: &Law, asked: Moment, answer: Result<(), BlockError>) -> bool {
        let judge = || law.judge(Operation::Read, &(2..4), asked, answer);
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(judge)).is_err()
    }

    #[test]
    fn an_answer_is_held_to_rules_that_did_not_change_meanwhile() {
        let law = law();
        let asked = law.moment();
        assert!(!breaks(&law, asked, Ok(())));
        assert!(breaks(&law, asked, Err(BlockError::Denied)));
        assert!(breaks(&law, asked, Err(BlockError::OutOfRange)));
        law.rights.begin();
        assert!(!breaks(&law, asked, Err(BlockError::Denied)));
        let permit = Permit {
            blocks: 0..3,
            read: true,
            write: true,
        };
        law.rights.end(false, Some(vec![permit]));
        assert!(!breaks(&law, asked, Ok(())));
        let later = law.moment();
        assert!(breaks(&law, later, Ok(())));
        let refused = Err(BlockError::Denied);
        assert_eq!(law.judge(Operation::Read, &(2..4), later, refused), [3]);
        law.rights.begin();
        law.rights.end(true, None);
        assert!(breaks(&law, law.moment(), Ok(())));
    }

    #[test]
    fn nothing_is_done_beyond_the_end() {
        let law = law();
        law.extent.begin();
        law.extent.end(3);
        assert!(breaks(&law, law.moment(), Ok(())));
        assert!(!breaks(&law, law.moment(), Err(BlockError::OutOfRange)));
    }
}
