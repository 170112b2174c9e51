//! The tests of this crate that may share a process, in one program to save link time.
#![allow(clippy::tests_outside_test_module, clippy::unwrap_used)]

mod common;
mod curves;
mod figure;
mod hostile;
mod limit;
mod measured;
mod sim;
mod take_over;
