//! Checks of the project's own source: structure and length.
//!
//! Each rule is a module with one function from [`Source`] files to [`Finding`]s, and a unit test
//! on a small bad example. `tests/house.rs` runs all of them over the workspace.
//!
//! The rules read text, not syntax trees: they know this project's formatting (`cargo fmt`), and
//! need no compiler. They change no file and read nothing outside of the workspace.

/// A table of tuples, with a row for each: `key => value, value;`.
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
