//! The tests of this crate that may share a process: one program, which links in the time of one.
#![allow(clippy::tests_outside_test_module)]

mod check;
mod hang;
mod isolation;
mod local;
mod loss;
mod op_namespace;
mod recalibration;
mod replay;
mod scaling;
mod storage;
mod switchboard;
mod tenants;
