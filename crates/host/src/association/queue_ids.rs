//! Identifiers of the I/O queues of a controller.

use crate::limits::IO_QUEUES_MAX;

/// Queue identifiers in use, of those that the controller grants.
#[derive(Debug, Default)]
pub(super) struct QueueIds {
    /// Element `n` is true while identifier `n + 1` is in use.
    used: Vec<bool>,
}

impl QueueIds {
    /// Takes the lowest free identifier above `after` among `1..=granted`, or else the lowest one.
    pub(super) fn take(&mut self, granted: u16, after: u16) -> Option<u16> {
        let granted = usize::from(granted.min(IO_QUEUES_MAX));
        let mut in_turn = (after.into()..granted).chain(0..granted);
        let free = in_turn.find(|&i| !self.used.get(i).copied().unwrap_or(false))?;
        if self.used.len() <= free {
            self.used.resize(free + 1, false);
        }
        self.used[free] = true;
        u16::try_from(free + 1).ok()
    }

    /// Gives an identifier back.
    pub(super) fn release(&mut self, queue_id: u16) {
        let index = usize::from(queue_id) - 1;
        if let Some(used) = self.used.get_mut(index) {
            *used = false;
        }
    }

    /// Returns the number of free identifiers among `1..=granted`.
    pub(super) fn free(&self, granted: u16) -> usize {
        let granted = usize::from(granted);
        let used = self.used.iter().take(granted);
        granted - used.filter(|&&used| used).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_start_at_one_and_are_given_out_once() {
        let mut ids = QueueIds::default();
        assert_eq!(ids.free(2), 2);
        assert_eq!(ids.take(2, 0), Some(1));
        assert_eq!(ids.take(2, 0), Some(2));
        assert_eq!(ids.take(2, 0), None);
        assert_eq!(ids.free(2), 0);
        ids.release(1);
        assert_eq!(ids.take(2, 0), Some(1));
    }

    #[test]
    fn all_that_are_free_are_tried_in_turn() {
        let mut ids = QueueIds::default();
        assert_eq!(ids.take(4, 0), Some(1));
        let mut tried = 1;
        for next in [2, 3, 4, 1, 2] {
            assert_eq!(ids.take(4, tried), Some(next));
            ids.release(tried);
            tried = next;
        }
        assert_eq!(ids.take(4, 4), Some(1));
    }
}
