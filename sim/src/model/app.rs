//! Applications: they issue requests and process completions.

mod requests;

use std::collections::VecDeque;
use switch::{Class, Coalescer};

/// How requests reach the dataplane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Through the ingress of the application's core.
    Ingress,
    /// Through a lane of the application's own thread.
    Direct,
}

#[derive(Debug)]
pub(super) struct App {
    pub(super) class: Class,
    pub(super) bytes: u32,
    pub(super) depth: u32,
    pub(super) write_permille: u16,
    /// Nanoseconds between two requests of an open loop; `None` for a closed loop.
    pub(super) interval: Option<u64>,
    pub(super) thread: usize,
    /// The loop of the lanes of its own thread, with inline hosting or a direct lane in addition to
    /// its core's ingress; `None` otherwise.
    pub(super) engine: Option<usize>,
    /// Outstanding requests in a direct lane.
    pub(super) direct_outstanding: u32,
    pub(super) target: usize,
    pub(super) outstanding: u32,
    pub(super) outstanding_bytes: u64,
    pub(super) load: switch::load::ClassLoad,
    /// Completions to process.
    pub(super) completed: Vec<usize>,
    /// Coalesces completions until it is notified of them.
    pub(super) unnotified: Coalescer,
    /// Intended times of an open loop's requests that are not issued yet.
    pub(super) intended: VecDeque<u64>,
}
