//! The side of people and scripts that all programs of this project share: output, exit codes, the log,
//! and options.

pub mod common;
pub mod exit;
pub mod knobs;
pub mod log;
pub mod output;
