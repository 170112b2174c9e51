//! The tests of this crate that may share a process: one program, which links in the time of one.
#![allow(clippy::tests_outside_test_module)]

#[path = "../../../../fuzz/corpus.rs"]
mod corpus;
mod fuzz_entry;
mod fuzz_smoke;
mod properties;
mod vectors;
