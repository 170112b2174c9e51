//! The tests of this crate that can share a process, in one program to save link time.
#![allow(clippy::tests_outside_test_module)]

mod changes;
mod clock;
mod dissector;
mod fio;
mod foreign_host;
mod foreign_target;
mod front_ends;
mod kernel_initiator;
mod multipath;
mod page;
mod programs;
mod secure;
mod stopped;
mod ublk_suite;
