//! The caches of a core under bulk transfers: after 32 KiB were moved, the kernel's code and data
//! for a switch, a send or a receive must be fetched again, once for each.

/// Bytes that evict nearly everything else from a core's nearest caches when moved at once.
const BULK_BYTES: u64 = 32 * 1024;

/// An action of a core that is faster if its code and data are cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Habit {
    Switch,
    Send,
    Receive,
}

/// The state of a core's caches.
#[derive(Debug, Default)]
pub(super) struct Caches {
    /// Number of bulk transfers so far.
    bulk: u64,
    /// That number at the last occurrence of each action.
    followed: [u64; 3],
}

impl Caches {
    /// Returns the additional cost of an action now: `price_ns` if bulk was moved since its last
    /// occurrence, else 0.
    pub(super) const fn follow(&mut self, habit: Habit, price_ns: u64) -> u64 {
        let followed = std::mem::replace(&mut self.followed[habit as usize], self.bulk);
        if followed == self.bulk { 0 } else { price_ns }
    }

    /// Returns the additional cost of sending or receiving `bytes` now. Bulk pays nothing: its cost
    /// per byte includes that it follows other bulk.
    pub(super) const fn carry(&mut self, habit: Habit, bytes: u64, price_ns: u64) -> u64 {
        let more_ns = self.follow(habit, price_ns);
        if bytes < BULK_BYTES {
            return more_ns;
        }
        self.bulk += 1;
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_bulk_each_habit_is_dearer_once() {
        let mut caches = Caches::default();
        assert_eq!(caches.carry(Habit::Send, 72, 5), 0);
        assert_eq!(caches.carry(Habit::Send, BULK_BYTES, 5), 0);
        assert_eq!(caches.carry(Habit::Send, BULK_BYTES, 5), 0);
        let afterwards = |caches: &mut Caches| {
            [
                caches.carry(Habit::Send, 72, 5),
                caches.carry(Habit::Receive, 4_096, 3),
                caches.follow(Habit::Switch, 2),
            ]
        };
        assert_eq!(afterwards(&mut caches), [5, 3, 2]);
        assert_eq!(afterwards(&mut caches), [0, 0, 0]);
    }
}
