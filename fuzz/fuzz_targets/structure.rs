//! Any bytes as every data structure and list.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/wire/tests/all/fuzz_entry/mod.rs"]
mod fuzz_entry;

fuzz_target!(|input: &[u8]| fuzz_entry::structure(input));
