//! The tests of this crate that may share a process: one program, which links in the time of one.
#![allow(clippy::tests_outside_test_module, clippy::unwrap_used)]

mod ana;
mod api;
mod common;
mod folders;
mod reservations;
mod server;
mod state;
mod subsystems;
mod tenants;
mod zeroing;
