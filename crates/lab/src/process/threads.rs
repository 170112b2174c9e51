//! Processor time that the kernel's scheduler gives the threads of another process.

use std::fs;
use std::time::Duration;

/// Time that threads ran, time that they waited to run, and how often they were given a
/// processor; all since they were started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Scheduled {
    pub(super) run: Duration,
    pub(super) wait: Duration,
    pub(super) slices: u64,
}

impl Scheduled {
    /// The threads of process `pid` with a name that begins with `name`; those that have ended do
    /// not
    /// count.
    pub(super) fn of(pid: u32, name: &str) -> Self {
        let mut sum = Self::default();
        for thread in fs::read_dir(format!("/proc/{pid}/task"))
            .into_iter()
            .flatten()
            .flatten()
        {
            let file = |name: &str| fs::read_to_string(thread.path().join(name));
            let ours = file("comm").is_ok_and(|comm| comm.starts_with(name));
            let scheduled = file("schedstat").ok().and_then(|text| Self::parse(&text));
            if let Some(scheduled) = scheduled.filter(|_| ours) {
                sum = sum.plus(scheduled);
            }
        }
        sum
    }

    /// Nanoseconds run, nanoseconds waited, number of slices.
    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split_whitespace().map(str::parse::<u64>);
        let mut next = || numbers.next()?.ok();
        Some(Self {
            run: Duration::from_nanos(next()?),
            wait: Duration::from_nanos(next()?),
            slices: next()?,
        })
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            run: self.run + other.run,
            wait: self.wait + other.wait,
            slices: self.slices + other.slices,
        }
    }

    /// The means; `None` of no slice.
    pub(super) fn means(self) -> Option<crate::figure::Slices> {
        let slices = u32::try_from(self.slices)
            .ok()
            .filter(|&slices| slices > 0)?;
        Some(crate::figure::Slices {
            run: self.run / slices,
            wait: self.wait / slices,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheduler_s_numbers_are_read_and_averaged() {
        let of = |text| Scheduled::parse(text).unwrap();
        let sum = of("8000 4000 2\n").plus(of("0 0 2"));
        let means = sum.means().unwrap();
        assert_eq!(means.run, Duration::from_nanos(2000));
        assert_eq!(means.wait, Duration::from_nanos(1000));
        assert_eq!(Scheduled::default().means(), None);
        assert_eq!(Scheduled::parse("1 2"), None);
    }

    #[test]
    fn threads_are_found_by_their_name() {
        let thread = std::thread::Builder::new().name("Lfound/0".to_owned());
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let thread = thread.spawn(move || stopped.recv()).unwrap();
        let pid = std::process::id();
        while Scheduled::of(pid, "Lfound/0").slices == 0 {
            std::thread::yield_now();
        }
        assert_eq!(Scheduled::of(pid, "no thread is called so").slices, 0);
        drop(stop);
        assert!(thread.join().unwrap().is_err());
    }
}
