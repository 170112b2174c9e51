//! Answers of the HTTP interface in words.

mod attachments;
mod columns;
mod events;
mod switch;
mod tenants;
mod trace;

pub use columns::{Columns, Fields};
pub use switch::SwitchAnswer;
pub use tenants::{DEFAULT_REFUSED, DEFAULT_SERVED};
pub use trace::{TRACE_TITLE, TraceSummary, Traced};

/// An answer, displayed for people.
#[derive(Debug)]
pub struct Shown<'a, T>(pub &'a T);
