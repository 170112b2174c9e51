//! The tests of this crate that can share a process, in one program to save link time.
#![allow(clippy::tests_outside_test_module)]

#[path = "../../../../fuzz/corpus.rs"]
mod corpus;
mod fuzz_entry;
mod fuzz_smoke;
mod properties;
mod vectors;
