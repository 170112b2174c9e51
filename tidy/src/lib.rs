//! Checks of the project's own source: structure, vocabulary, voice.
//!
//! Each rule is a module with one function from [`Source`] files to [`Finding`]s, and a unit test
//! on a small bad example. `tests/house.rs` runs all of them over the workspace. Numbers that are
//! not at their goal yet are in [`ratchet`], and may only fall.
//!
//! The rules read text, not syntax trees: they know this project's formatting (`cargo fmt`), and
//! need no compiler. Must never: change a file, or depend on anything outside of the workspace.

/// A table of tuples, with a row for each: `key => value, value;`.
macro_rules! rows {
    ($($key:expr => $($value:expr),+;)+) => {
        &[$(($key, $($value),+)),+]
    };
}

pub mod circles;
pub mod functions;
pub mod links;
pub mod names;
pub mod order;
pub mod orphans;
pub mod purity;
pub mod ratchet;
pub mod source;
pub mod unsafety;
pub mod voice;
pub mod words;

pub use source::{Finding, Source};
