//! The tests of this crate that can share a process, in one program to save link time.
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
