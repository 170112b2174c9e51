//! The tests of this crate that may share a process: one program, which links in the time of one.
#![allow(clippy::tests_outside_test_module)]

mod changes;
mod clock;
mod dissector;
mod fio;
mod foreign_host;
mod foreign_target;
mod front_ends;
mod kernel_initiator;
mod page;
mod programs;
mod stopped;
mod ublk_suite;
