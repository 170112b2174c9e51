//! Applications: they make requests, and take completions.

mod requests;

use std::collections::VecDeque;
use switch::{Class, Coalescer};

#[derive(Debug)]
pub(super) struct App {
    pub(super) class: Class,
    pub(super) bytes: u32,
    pub(super) depth: u32,
    pub(super) write_permille: u16,
    /// Nanoseconds between two requests of an open loop.
    pub(super) interval: Option<u64>,
    /// Its own thread; with inline hosting that of its engine.
    pub(super) thread: usize,
    /// With inline hosting.
    pub(super) engine: usize,
    pub(super) target: usize,
    pub(super) outstanding: u32,
    pub(super) outstanding_bytes: u64,
    pub(super) load: switch::load::Ewma,
    /// Completions to take.
    pub(super) completed: Vec<usize>,
    /// Completions that it was not notified of.
    pub(super) unnotified: Coalescer,
    /// Moments of an open loop at which a request was to be made, and was not yet.
    pub(super) intended: VecDeque<u64>,
}
