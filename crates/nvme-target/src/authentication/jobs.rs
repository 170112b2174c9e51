//! The mathematics of DH-HMAC-CHAP: up to some 10 ms for each job, on a thread of its own, so that
//! none delays data.
//!
//! One thread of the process, named `chap`, serves all targets. It runs at a low priority, and takes
//! one job of each network in turn. A connection has one job at a time.

use crate::authentication::attempts::Attempts;
use crate::limits::{CHAP_JOBS_MAX, CHAP_JOBS_PER_NETWORK};
use crate::message::{CoreMessage, Message};
use base::{SlabKey, Time};
use reactor::{MailboxSender, fill_random, priority};
use secure::chap::{Failure, Job, JobResult};
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

/// A job of a connection.
#[derive(Debug)]
pub(crate) struct AuthenticationJob {
    /// The mailbox of the connection's core.
    pub(crate) core: MailboxSender<Message>,
    pub(crate) connection: SlabKey,
    pub(crate) attempts: Arc<Attempts>,
    /// Network of the host.
    pub(crate) network: IpAddr,
    /// Time at which the host requested it.
    pub(crate) at: Time,
    pub(crate) job: Job,
}

impl AuthenticationJob {
    /// Computes, and reports the result to the core.
    pub(crate) fn run(self) {
        let (attempts, network, at) = (self.attempts, self.network, self.at);
        let result = if self.job.verifies() && !attempts.may_try(network, at) {
            Job::refuse(Failure::TooMany)
        } else {
            self.job.run(&mut fill_random)
        };
        if result.failure().is_some_and(Failure::is_guess) {
            attempts.note_wrong(network, at);
        }
        report(&self.core, self.connection, Some(result));
    }

    /// Leaves the job to the thread.
    pub(crate) fn leave_to_thread(self) {
        let refused = match start() {
            true => lock().push(self.network, self),
            false => Some(self),
        };
        ADDED.notify_one();
        if let Some(refused) = refused {
            report(&refused.core, refused.connection, None);
        }
    }
}

/// Starts the thread, if it does not run; returns false if it cannot. Called before the first job by
/// a thread that is not pinned to a core, because the new thread runs on the same cores.
pub(crate) fn start() -> bool {
    static STARTED: OnceLock<bool> = OnceLock::new();
    *STARTED.get_or_init(|| {
        let thread = std::thread::Builder::new().name("chap".to_owned());
        thread.spawn(serve).is_ok()
    })
}

/// Reports a result to the core; `None` if there was no room for the job.
fn report(core: &MailboxSender<Message>, connection: SlabKey, result: Option<JobResult>) {
    let result = result.map(Box::new);
    core.send_always(Message(CoreMessage::Computed { connection, result }));
}

static LINE: Mutex<Line<AuthenticationJob>> = Mutex::new(Line::new());
static ADDED: Condvar = Condvar::new();

fn lock() -> MutexGuard<'static, Line<AuthenticationJob>> {
    // Nothing panics while it is held.
    LINE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve() {
    priority::lower_nice();
    let mut line = lock();
    loop {
        match line.pop() {
            Some(job) => {
                drop(line);
                job.run();
                line = lock();
            }
            None => line = ADDED.wait(line).unwrap_or_else(PoisonError::into_inner),
        }
    }
}

/// Waiting jobs by network. No network is empty.
#[derive(Debug)]
struct Line<T> {
    waiting: BTreeMap<IpAddr, VecDeque<T>>,
    len: usize,
    /// Network of the last job taken.
    last: Option<IpAddr>,
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
    fn push(&mut self, network: IpAddr, job: T) -> Option<T> {
        let own = self.waiting.get(&network).map_or(0, VecDeque::len);
        if own >= CHAP_JOBS_PER_NETWORK {
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

    fn network(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(number).into()
    }

    #[test]
    fn networks_take_turns() {
        let mut line = Line::new();
        for (from, job) in [(1, "a"), (1, "b"), (1, "c"), (2, "d"), (3, "e")] {
            assert_eq!(line.push(network(from), job), None);
        }
        let all: Vec<_> = std::iter::from_fn(|| line.pop()).collect();
        assert_eq!(all, ["a", "d", "e", "b", "c"]);
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
