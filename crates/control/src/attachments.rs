//! The file of `switchyard attach --config`.

mod file;

pub use file::{ClassCondition, Entry, Fault, File, Interface, Kind, Word, load, parse};
