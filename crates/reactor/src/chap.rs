//! The thread that computes for DH-HMAC-CHAP, because the larger groups take up to some 10 ms, and no
//! core may be delayed by that.
//!
//! One for each process, at a low priority; it lives as long as the process. It takes one job of each
//! network in turn.

use crate::limits::{CHAP_JOBS_MAX, CHAP_JOBS_PER_NETWORK};
use crate::op::OpKey;
use crate::results::Results;
use secure::chap::{Job, JobResult};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

/// The result of an operation.
pub(crate) type Computed = (OpKey, io::Result<JobResult>);

/// A job for the thread. It receives false, and does not compute, if there is no room.
pub type Task = Box<dyn FnOnce(bool) + Send>;

/// Computes on the thread for a driver.
///
/// # Errors
/// `ResourceBusy` as the result if there is no room.
pub(crate) fn compute(key: OpKey, job: Job, results: &Arc<Results<Computed>>) {
    let results = Arc::downgrade(results);
    let task = move |has_room| {
        // The driver may be gone.
        if results.strong_count() == 0 {
            return;
        }
        let result = if has_room {
            Ok(run(job))
        } else {
            Err(ErrorKind::ResourceBusy.into())
        };
        if let Some(results) = results.upgrade() {
            results.add((key, result));
        }
    };
    leave_to_thread(None, Box::new(task));
}

/// Computes on the calling thread.
#[must_use]
pub fn run(job: Job) -> JobResult {
    job.run(&mut crate::fill_random)
}

/// Leaves a task to the thread; `network` is that of the host, `None` for a host of this process.
pub fn leave_to_thread(network: Option<IpAddr>, task: Task) {
    let refused = match start() {
        true => lock().push(network, task),
        false => Some(task),
    };
    ADDED.notify_one();
    if let Some(refused) = refused {
        refused(false);
    }
}

/// Starts the thread; an error ends the first job. A core's thread must not start it, because it may
/// be pinned to a core, and the new thread would share that core.
pub fn prepare() {
    start();
}

/// Starts the thread, if it does not run; returns false if it cannot.
fn start() -> bool {
    static STARTED: OnceLock<bool> = OnceLock::new();
    *STARTED.get_or_init(|| {
        let thread = std::thread::Builder::new().name("chap".to_owned());
        thread.spawn(serve).is_ok()
    })
}

static LINE: Mutex<Line<Task>> = Mutex::new(Line::new());
static ADDED: Condvar = Condvar::new();

fn lock() -> MutexGuard<'static, Line<Task>> {
    // Nothing panics while it is held.
    LINE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve() {
    crate::priority::lower_nice();
    let mut line = lock();
    loop {
        match line.pop() {
            Some(task) => {
                drop(line);
                task(true);
                line = lock();
            }
            None => line = ADDED.wait(line).unwrap_or_else(PoisonError::into_inner),
        }
    }
}

/// Waiting jobs by network; `None` for those of this process as a host. No network is empty.
#[derive(Debug)]
struct Line<T> {
    waiting: BTreeMap<Option<IpAddr>, VecDeque<T>>,
    len: usize,
    /// Network of the last job taken.
    last: Option<Option<IpAddr>>,
}

impl<T> Line<T> {
    const fn new() -> Self {
        Self {
            waiting: BTreeMap::new(),
            len: 0,
            last: None,
        }
    }

    /// Adds a job. Returns a job for which there is no room: this one if its network has its part,
    /// or else the newest of the network with the most jobs.
    fn push(&mut self, network: Option<IpAddr>, job: T) -> Option<T> {
        let own = self.waiting.get(&network).map_or(0, VecDeque::len);
        if network.is_some() && own >= CHAP_JOBS_PER_NETWORK {
            return Some(job);
        }
        let mut refused = None;
        if self.len >= CHAP_JOBS_MAX {
            let most = self.waiting.iter_mut().max_by_key(|(_, jobs)| jobs.len());
            let most = most.filter(|(_, jobs)| jobs.len() > own + 1);
            let Some((_, jobs)) = most else {
                return Some(job);
            };
            refused = jobs.pop_back();
            self.len -= 1;
        }
        self.waiting.entry(network).or_default().push_back(job);
        self.len += 1;
        refused
    }

    /// Takes the oldest job of the network whose turn it is.
    fn pop(&mut self) -> Option<T> {
        let next = self.last.and_then(|last| {
            let after = (Excluded(last), Unbounded);
            self.waiting.range(after).next()
        });
        let network = *next.or_else(|| self.waiting.iter().next())?.0;
        self.last = Some(network);
        let jobs = self.waiting.get_mut(&network)?;
        let job = jobs.pop_front();
        if jobs.is_empty() {
            self.waiting.remove(&network);
        }
        self.len -= 1;
        job
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    /// The network with this number; `None` for 0.
    fn network(number: u32) -> Option<IpAddr> {
        (number > 0).then(|| Ipv4Addr::from_bits(number).into())
    }

    #[test]
    fn networks_take_turns() {
        let mut line = Line::new();
        for (from, job) in [(1, "a"), (1, "b"), (1, "c"), (2, "d"), (0, "e")] {
            assert_eq!(line.push(network(from), job), None);
        }
        let all: Vec<_> = std::iter::from_fn(|| line.pop()).collect();
        assert_eq!(all, ["e", "a", "d", "b", "c"]);
        assert!(line.waiting.is_empty() && line.len == 0);
    }

    #[test]
    fn many_jobs_of_one_network_leave_room_for_others() {
        let mut line = Line::new();
        for number in 0..CHAP_JOBS_PER_NETWORK {
            assert_eq!(line.push(network(1), number), None);
        }
        assert_eq!(line.push(network(1), 7), Some(7), "it has its part");
        let mut from = 2;
        while line.len < CHAP_JOBS_MAX {
            assert_eq!(line.push(network(from), 0), None);
            from += 1;
        }
        let newest = CHAP_JOBS_PER_NETWORK - 1;
        assert_eq!(
            line.push(network(from), 0),
            Some(newest),
            "of the greedy one"
        );
        assert_eq!(line.len, CHAP_JOBS_MAX);
    }
}
