//! Traces of I/O commands: where slow commands spent their time, by stage.
//!
//! A client opens a [`Trace`](crate::Trace) with a [`TraceFilter`]. Then every core stamps its
//! commands, and sends the selected ones through a bounded channel; records that find no room are
//! counted. Dropping the trace ends it. While none is open, a core reads no clock for traces and
//! its commands have no stamps.
//!
//! Invariant: the stages of a command add up to its total time.

pub(crate) mod core;
pub(crate) mod record;
pub(crate) mod selection;
pub(crate) mod stamps;

pub use record::{TraceRecord, command_name, commands};
pub use selection::TraceFilter;
pub use stamps::{Stage, StageTime};
