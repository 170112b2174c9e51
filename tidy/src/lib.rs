//! Checks of the project's own source: structure and length.
//!
//! Each rule is a module with one function from [`Source`] files to [`Finding`]s, and a unit test
//! on a small bad example. `tests/house.rs` runs all rules over the workspace.
//!
//! The rules parse text, not syntax trees: they rely on this project's formatting (`cargo fmt`),
//! and need no compiler. They change no file and read no file outside the workspace.

/// A table of tuples, one per row: `key => value, value;`.
macro_rules! rows {
    ($($key:expr => $($value:expr),+;)+) => {
        &[$(($key, $($value),+)),+]
    };
}

pub mod circles;
pub mod functions;
pub mod links;
pub mod order;
pub mod orphans;
pub mod purity;
pub mod source;
pub mod unsafety;

pub use source::{Finding, Source};
