//! The results of a run.

use base::Latencies;

/// Results, of the measured time unless said otherwise.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Requests of applications that ended.
    pub requests: u64,
    /// Times of these requests: from the beginning of a thread's request to that of its next one, so
    /// that the application's own part is in it.
    pub latencies: Latencies,
    /// Bytes a second that applications read and wrote.
    pub bytes_per_second: f64,
    /// Time for which processors had a thread or an interrupt, polls included, of all their time.
    pub busy_percent: f64,
    /// Commands by the number of pages in one: the first is those of one page.
    pub commands: Vec<u64>,
    /// Requests that were submitted to the path, warm-up included.
    pub submitted: u64,
    /// Requests of these that ended.
    pub completed: u64,
    /// Requests that are in a queue or a command in the end.
    pub under_way: u64,
}

impl Report {
    /// Pages of one command on average; 0 without any.
    #[must_use]
    pub fn merged(&self) -> f64 {
        let pages: u64 = (1..).zip(&self.commands).map(|(n, c)| n * c).sum();
        self.share(pages)
    }

    /// Of a hundred commands, those that carry a single page; 0 without any.
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
