//! The caches of a core beside bulk: after 32 KiB were moved, the kernel's code and data that a
//! switch, a send or a receive needs are no longer near, once for each.

/// Bytes that leave little else in a core's nearest caches, when they are moved at once.
const BULK_BYTES: u64 = 32 * 1024;

/// Something that a core does sooner if it did it lately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Habit {
    Switch,
    Send,
    Receive,
}

/// The state of a core's caches.
#[derive(Debug, Default)]
pub(super) struct Caches {
    /// The number of times that bulk went through them.
    bulk: u64,
    /// That number when each habit was followed last.
    followed: [u64; 3],
}

impl Caches {
    /// Returns the additional cost of a habit now: `price_ns` if bulk came since the last time.
    pub(super) const fn follow(&mut self, habit: Habit, price_ns: u64) -> u64 {
        let followed = std::mem::replace(&mut self.followed[habit as usize], self.bulk);
        if followed == self.bulk { 0 } else { price_ns }
    }

    /// Returns the additional cost of sending or receiving so many bytes now. Bulk pays nothing: its
    /// cost by the byte includes that it comes after other bulk.
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
