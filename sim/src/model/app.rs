//! Applications: they make requests, and take completions.

mod requests;

use std::collections::VecDeque;
use switch::{Class, Coalescer};

/// The way of requests to the dataplane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Through the ingress of the application's core.
    Ingress,
    /// By the lane of the application's own thread.
    Direct,
}

#[derive(Debug)]
pub(super) struct App {
    pub(super) class: Class,
    pub(super) bytes: u32,
    pub(super) depth: u32,
    pub(super) write_permille: u16,
    /// Nanoseconds between two requests of an open loop.
    pub(super) interval: Option<u64>,
    pub(super) thread: usize,
    /// The loop of the lanes of its own thread: with inline hosting, or a direct lane beside the
    /// way through its core's ingress.
    pub(super) engine: Option<usize>,
    /// Requests in a direct lane.
    pub(super) direct_outstanding: u32,
    pub(super) target: usize,
    pub(super) outstanding: u32,
    pub(super) outstanding_bytes: u64,
    pub(super) load: switch::load::ClassLoad,
    /// Completions to take.
    pub(super) completed: Vec<usize>,
    /// Completions that it was not notified of.
    pub(super) unnotified: Coalescer,
    /// Moments of an open loop at which a request was to be made, and was not yet.
    pub(super) intended: VecDeque<u64>,
}
