//! Requests, and commands that carry them.
//!
//! Neither can be copied, so a request is completed at most once.

use switch::path::Properties;

/// The purpose of a request, which determines the effect of its completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Its thread waits for it.
    Own,
    /// It fills pages of the cache, for those that wait for them.
    Fill,
    /// It writes back pages of the cache.
    WriteBack,
}

/// A request to the path.
#[derive(Debug)]
pub(super) struct Request {
    /// The thread that submits it.
    pub(super) thread: usize,
    pub(super) purpose: Purpose,
    pub(super) properties: Properties,
    /// First page and number of pages.
    pub(super) page: u64,
    pub(super) pages: u64,
}

/// A command to the device.
#[derive(Debug)]
pub(super) struct Command {
    /// The thread that sends it.
    pub(super) sender: usize,
    pub(super) requests: Vec<Request>,
}

impl Command {
    /// Returns the number of requests of one thread in it.
    pub(super) fn of(&self, thread: usize) -> usize {
        let of_thread = |request: &&Request| request.thread == thread;
        self.requests.iter().filter(of_thread).count()
    }
}
