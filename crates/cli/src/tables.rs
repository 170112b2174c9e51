//! Answers of the HTTP interface in words.

mod attachments;
mod columns;
mod events;
mod switch;
mod tenants;

pub use columns::{Columns, Fields};
pub use switch::SwitchAnswer;
pub use tenants::{DEFAULT_REFUSED, DEFAULT_SERVED};

/// An answer, displayed for people.
#[derive(Debug)]
pub struct Shown<'a, T>(pub &'a T);
