//! The results of a run.

use base::Latencies;

/// Results, of the measured time unless stated otherwise.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Completed requests of applications.
    pub requests: u64,
    /// Times of these requests: from the start of a thread's request to the start of its next
    /// request, so that the application's own part is included.
    pub latencies: Latencies,
    /// Bytes per second that applications read and wrote.
    pub bytes_per_second: f64,
    /// Share of the processors' time with a thread or an interrupt, including polling, in percent.
    pub busy_percent: f64,
    /// Commands by their number of pages; the first element is for one page.
    pub commands: Vec<u64>,
    /// Requests submitted to the path, including the warm-up.
    pub submitted: u64,
    /// Of these, completed requests.
    pub completed: u64,
    /// Requests in a queue or a command at the end.
    pub under_way: u64,
}

impl Report {
    /// Mean pages per command; 0 without commands.
    #[must_use]
    pub fn merged(&self) -> f64 {
        let pages: u64 = (1..).zip(&self.commands).map(|(n, c)| n * c).sum();
        self.share(pages)
    }

    /// Share of commands with a single page, in percent; 0 without commands.
    #[must_use]
    pub fn single_percent(&self) -> f64 {
        self.share(self.commands.first().copied().unwrap_or(0)) * 100.0
    }

    fn share(&self, part: u64) -> f64 {
        let all: u64 = self.commands.iter().sum();
        if all == 0 {
            return 0.0;
        }
        part as f64 / all as f64
    }
}
