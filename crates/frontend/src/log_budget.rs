//! A limit on the log lines that clients and guests can cause.

use crate::limits::{LOG_LINES_MAX, LOG_PERIOD};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Log lines that the peers of a server may still cause. Every line that a peer can repeat checks
/// it first, at every level but TRACE.
#[derive(Debug)]
pub(crate) struct LogBudget {
    began: Instant,
    lines: Mutex<Lines>,
}

#[derive(Debug, Default)]
struct Lines {
    /// Number of the current period.
    period: u128,
    used: u32,
    suppressed: u64,
}

impl Default for LogBudget {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            lines: Mutex::default(),
        }
    }
}

impl LogBudget {
    /// Returns the number of suppressed lines since the last logged one if a line may be logged
    /// now.
    pub(crate) fn allow(&self) -> Option<u64> {
        self.allow_after(self.began.elapsed())
    }

    /// [`allow`](Self::allow) at `time` after the start.
    fn allow_after(&self, time: Duration) -> Option<u64> {
        // Each count is valid by itself, so a poisoned lock does no harm.
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let period = time.as_nanos() / Duration::from(LOG_PERIOD).as_nanos();
        if period != lines.period {
            (lines.period, lines.used) = (period, 0);
        }
        if lines.used >= LOG_LINES_MAX {
            lines.suppressed += 1;
            return None;
        }
        lines.used += 1;
        Some(std::mem::take(&mut lines.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_logged_in_part_and_the_rest_is_counted() {
        let budget = LogBudget::default();
        let later = Duration::from(LOG_PERIOD);
        for _ in 0..LOG_LINES_MAX {
            assert_eq!(budget.allow_after(Duration::ZERO), Some(0));
        }
        for _ in 0..200 {
            assert_eq!(budget.allow_after(later - Duration::from_nanos(1)), None);
        }
        assert_eq!(budget.allow_after(later), Some(200));
        assert_eq!(budget.allow_after(later), Some(0));
    }
}
